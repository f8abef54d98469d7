//! The tests of mechanisms, counted in cells that run again.

use std::fs;

use serde_json::Value;

use crate::support::{room::Room, words};

/// Two kernels whose faults compact for huge pages.
const RUN: [&str; 14] = [
    "run",
    "thpscale",
    "--target",
    "sim",
    "--machine",
    "two-node-2g",
    "--variant",
    "v4.4",
    "--variant",
    "v6.1",
    "--set",
    "threads=4",
    "-o",
    "result",
];

#[test]
fn tests_of_a_mechanism_are_counted_in_a_block_for_each_kernel() {
    let room = Room::new();
    room.run(&RUN).expect(0);
    let before = fs::read(room.here().join("result/result.jsonl")).unwrap();
    let why = ["why", "result", "--nothing"];

    let text = room.run(&words(&[&why, &["direct-compaction"]])).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let blocks: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(blocks.len(), 2, "{text}");
    assert!(blocks.iter().all(|block| block.starts_with("direct compaction made a block ")), "{text}");
    assert!(blocks.iter().all(|block| block.contains(" compaction_suitable: free frames")), "{text}");
    let json = room.run(&words(&[&why, &["direct-compaction", "--format", "json"]])).expect(0).stdout;
    let answers: Vec<Value> = serde_json::from_str(&json).expect("an array");
    for (answer, block) in answers.iter().zip(&blocks) {
        let flat = block.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.starts_with(answer["sentence"].as_str().unwrap()), "{block}");
        let tests = answer["tests"].as_array().unwrap();
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
        for test in tests {
            let places = test["places"].as_array().unwrap();
            for name in ["asked", "failed"] {
                assert_eq!(number(test, name), places.iter().map(|at| number(at, name)).sum::<u64>());
            }
            assert!(number(test, "failed") <= number(test, "asked"));
        }
        let last = tests.last().unwrap();
        assert_eq!(number(answer, "done"), number(last, "asked") - number(last, "failed"));
    }

    // Each kernel has its own tests, and mechanisms.
    let one =
        |mechanism: &str, kernel: &str| room.run(&words(&[&why, &[mechanism, "--kernel", kernel]])).expect(0).stdout;
    assert!(one("kswapd-compaction", "v6.1").starts_with("v6.1 has no kswapd-compaction"));
    assert!(one("kcompactd", "v4.4").starts_with("v4.4 has no kcompactd"));
    let (old, new) = (one("reclaim", "v4.4"), one("reclaim", "v6.1"));
    assert!(old.contains("zone_reclaimable") && !new.contains("zone_reclaimable"), "{old}{new}");
    assert!(before == fs::read(room.here().join("result/result.jsonl")).unwrap(), "nothing is written");

    let help = room.run(&["why", "--help"]).expect(0).stdout;
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    // The refusal lists all mechanisms; so does the help.
    let refusal = room.run(&words(&[&why, &["nobody"]])).expect(2).stderr;
    let known = refusal.split_once("(valid mechanisms: ").expect("a list").1.split_once(')').expect("its end").0;
    assert!(known.split(", ").count() > 8, "{refusal}");
    for mechanism in known.split(", ") {
        assert!(flat.contains(&format!(" {mechanism}")), "{mechanism:?} is not in the help");
    }
    for (options, says) in [
        (&["kcompact"][..], "--nothing: unknown mechanism \"kcompact\"; did you mean \"kcompactd\"?"),
        (&["kswapd", "--kernel", "v6.2"], "unknown kernel"),
        (&["kswapd", "--what", "fault"], "cannot be used with"),
        (&["kswapd", "--slowest", "1"], "cannot be used with"),
    ] {
        room.run(&words(&[&why, options])).expect(2).says(&[says]);
    }
    room.run(&["why", "nowhere", "--nothing", "kswapd"]).expect(2).says(&["nowhere"]);
}

#[test]
fn a_dma_zone_that_is_never_balanced_keeps_kswapd_of_4_8_from_waking_kcompactd() {
    let room = Room::new();
    let run =
        ["run", "thpscale", "--target", "sim", "--machine", "one-node-4g", "--variant", "v4.8", "--variant", "v4.12"];
    let sets = ["--set", "threads=3", "--set", "transparent_hugepage/defrag=defer", "-o", "result"];
    room.run(&words(&[&run, &sets])).expect(0);
    let text = room.run(&["why", "result", "--nothing", "kcompactd"]).expect(0).stdout;
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (old, new) = flat.split_once("sim:v4.12:").expect("a block for each kernel");
    assert!(old.starts_with("kcompactd made a block 0 times: "), "{text}");
    assert!(old.contains(" ended at zone_balanced(DMA, node 0), in prepare_kswapd_sleep"), "{text}");
    // Since 4.12 one balanced zone is enough.
    assert!(new.contains("prepare_kswapd_sleep: pgdat_balanced") && !new.contains("zone_balanced"), "{text}");
    assert!(
        flat.contains("kcompactd made a block") && !flat.contains("kcompactd made a block 0 times: no test"),
        "{text}"
    );
}
