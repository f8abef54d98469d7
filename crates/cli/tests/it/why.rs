//! Why operations were slow: facts of a cell that runs again.

use std::fs;

use serde_json::Value;

use crate::support::{TINY, document, room::Room, words};

/// Memory is filled and in pieces, so that faults of huge pages compact and reclaim.
const FULL: [&str; 10] =
    ["run", "thpscale", "--target", "sim", "--machine", "two-node-2g", "--variant", "v4.1-rc2", "--set", "threads=4"];
/// The question about its slowest faults.
const FAULTS: [&str; 6] = ["why", "result", "--what", "fault", "--slowest", "4"];

/// The sum of a number over all facts with a name.
fn sum(facts: &[Value], kind: &str, number: &str) -> u64 {
    let of_kind = facts.iter().filter(|told| told["fact"]["fact"] == kind);
    of_kind.map(|told| told["fact"][number].as_u64().expect("a number")).sum()
}

/// A number as texts print it.
fn printed(number: u64) -> String {
    let digits = number.to_string();
    let (head, tail) = digits.split_at(digits.len() % 3);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    Some(head.to_owned()).filter(|head| !head.is_empty()).into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[test]
fn the_slowest_faults_are_explained_by_what_was_decided() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "result"]])).expect(0);
    let before = fs::read(room.here().join("result/result.jsonl")).unwrap();
    let log = report::cells(document::whole_records(&room.here().join("result"))).remove(0).slow_path.unwrap();

    let text = room.run(&FAULTS).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let blocks: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(blocks.len(), 4, "{text}");
    let json = room.run(&words(&[&FAULTS, &["--format", "json"]])).expect(0).stdout;
    let explained: Vec<Value> = serde_json::from_str(&json).expect("an array");
    let mut reclaims = 0;
    for (number, (block, one)) in (1..).zip(blocks.iter().zip(&explained)) {
        assert!(block.starts_with(&format!("{number}. ")) && block.lines().count() <= 10, "{block}");
        // The parts are the result's own, and all of the time.
        let (start, task) = (one["start_ps"].as_u64().unwrap(), one["task"].as_u64().unwrap());
        let entry = log.entries.iter().find(|entry| (entry.start_ps, u64::from(entry.task)) == (start, task)).unwrap();
        let parts: u64 = one["parts"].as_array().unwrap().iter().map(|part| part[1].as_u64().unwrap()).sum();
        assert_eq!((parts, one["time_ps"].as_u64()), (entry.ps(), Some(entry.ps())));
        assert_eq!(one["parts"].as_array().unwrap().len(), entry.parts.len());
        // Numbers of sentences are sums over the facts.
        let facts = one["facts"].as_array().unwrap();
        let flat = block.split_whitespace().collect::<Vec<_>>().join(" ") + " ";
        if flat.contains("direct reclaim") {
            let [scanned, reclaimed] = ["scanned", "reclaimed"].map(|of| printed(sum(facts, "reclaim_end", of)));
            assert!(flat.contains(&format!("scans {scanned} pages, reclaims {reclaimed} ")), "{block}");
            reclaims += 1;
        }
        if let Some(asked) = facts.iter().find(|told| told["fact"]["fact"] == "slow_path") {
            let at = asked["at"].as_u64().unwrap();
            assert!(at <= start, "it is asked in the step before");
            let order = asked["fact"]["order"].as_u64().unwrap();
            assert!(flat.contains(&format!("order-{order} ")), "{block}");
            let refused =
                |told: &&Value| told["fact"]["fact"] == "passed_over" && told["at"].as_u64().unwrap() <= start;
            let last = facts.iter().rfind(refused).expect("a zone refused it");
            let free = last["fact"]["room"]["free"].as_u64().unwrap();
            assert!(flat.contains(&format!(" {} ", printed(free))), "{block}");
        }
    }
    assert!(reclaims > 0, "{text}");

    // Each by itself is the same.
    let second = room.run(&["why", "result", "--what", "fault", "--stall", "2"]).expect(0).stdout;
    assert_eq!(second.trim_end(), blocks[1].trim_end());
    let at = explained[2]["start_ps"].as_u64().unwrap() as f64 / 1e12;
    let task = explained[2]["task"].to_string();
    let third = room.run(&["why", "result", "--at", &format!("{:.6}s", at + 1e-6), "--task", &task]).expect(0).stdout;
    let behind_number = |block: &str| block.split_once(". ").expect("a number").1.trim_end().to_owned();
    assert_eq!(behind_number(&third), behind_number(blocks[2]));
    assert!(before == fs::read(room.here().join("result/result.jsonl")).unwrap(), "nothing is written");

    for (options, says) in [
        (&["--stall", "9999"][..], "--stall: the logs of result hold "),
        (&["--stall", "1", "--what", "faults"], "unknown operation \"faults\""),
        (&["--stall", "1", "--kernel", "v6.2"], "unknown kernel"),
        (&["--stall", "1", "--case", "threads-9"], "unknown case"),
        (&["--stall", "1", "--seed", "9"], "unknown seed"),
        (&["--at", "100h"], "--at: no slow operation of result was under way then"),
        (&["--stall", "0"], "0 is not in 1.."),
        (&["--at", "12"], "expected an instant such as 12.3s"),
        (&[], "--slowest <N>"),
    ] {
        room.run(&words(&[&["why", "result"], options])).expect(2).says(&[says]);
    }
    room.run(&["why", "nowhere", "--stall", "1"]).expect(2).says(&["nowhere"]);
}

#[test]
fn operations_of_a_real_kernel_are_not_known() {
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "host", "-o", "result"];
    room.run(&words(&[&run, &TINY[..6]])).expect(0);
    room.run(&["why", "result", "--slowest", "1"])
        .expect(2)
        .says(&["result: only the simulator knows what an operation did", "--target sim"]);
    room.run(&["report", "result", "--why", "3", "-o", "page.html"])
        .expect(2)
        .says(&["result: only the simulator knows what an operation did", "--target sim"]);
    assert!(!room.here().join("page.html").exists());
}

#[test]
fn the_difference_of_two_columns_is_told_by_what_differs_with_it() {
    let room = Room::new();
    // Two columns of one kernel: faults compact for huge pages in the first one alone.
    let run = ["run", "thpscale", "--target", "sim", "--machine", "two-node-2g", "--variant", "v4.1-rc2"];
    let sets =
        ["--set", "threads=4", "--set", "transparent_hugepage/defrag=always,never", "--seeds", "2", "-o", "result"];
    room.run(&words(&[&run, &sets])).expect(0);
    let kernels: Vec<String> = {
        let cells = report::cells(document::whole_records(&room.here().join("result")));
        let mut kernels: Vec<String> = cells.into_iter().map(|cell| cell.key.kernel).collect();
        kernels.dedup();
        kernels
    };
    let (old, new) = (kernels[0].as_str(), kernels[kernels.len() - 1].as_str());
    let between = ["why", "result", "--between", old, new, "--row"];
    let text = room.run(&words(&[&between, &["amean:fault-huge-4"]])).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().next().is_some_and(|line| line.ends_with(": Amean fault-huge-4 (us)")), "{text}");
    assert!(
        text.contains("that differ: transparent_hugepage/defrag always -> never")
            && text.contains(&format!("sim:{new}:two-node-2g")),
        "{text}"
    );
    let numbered = text.lines().filter(|line| line.get(2..4) == Some(". ")).count();
    assert!((1..=10).contains(&numbered), "{text}");

    let json = room.run(&words(&[&between, &["compact_stall:4", "--format", "json"]])).expect(0).stdout;
    let found: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(found["row"]["metric"], "compact_stall");
    assert!(found["explained"].as_array().unwrap().iter().all(|one| one["kind"] == "counter"), "{json}");

    let row = ["--row", "amean:fault-huge-4"];
    for (options, says) in [
        (words(&[&between, &["amean:fault-huge-9"]]), "nearest: amean:fault-huge-4"),
        (words(&[&["why", "result", "--between", old, "v9.9"], &row]), "--between: unknown column \"v9.9\""),
        (words(&[&["why", "result", "--between", old, old], &row]), "twice; name two columns"),
        (words(&[&["why", "result", "--between", old, new]]), "--row <METRIC:CASE>"),
        (words(&[&["why", "result", "--slowest", "1"], &row]), "cannot be used with"),
        (words(&[&["why", "nowhere", "--between", old, new], &row]), "nowhere"),
    ] {
        room.run(&options).expect(2).says(&[says]);
    }
}
