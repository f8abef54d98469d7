//! States by recipe: made, cited by a checksum, and followed again by whoever uses them.

use report::Cell;

use crate::support::{
    document::{self, Document},
    room::Room,
    words,
};

const MAKE: [&str; 6] = ["state", "make", "--recipe", "metadata+anon", "--machine", "one-node-512m"];
const RUN: [&str; 14] = [
    "run",
    "fault-storm",
    "--target",
    "sim",
    "--machine",
    "one-node-512m",
    "--variant",
    "v4.20",
    "--set",
    "tasks=1",
    "--set",
    "iterations=2",
    "--set",
    "size=16MiB",
];

/// The checksum of the first state that was printed.
fn checksum(printed: &str) -> &str {
    let line = printed.lines().find_map(|line| line.strip_prefix("checksum ")).expect("a line with a checksum");
    assert_eq!(line.len(), 64, "{line}");
    line
}

fn state(cell: &Cell) -> (&str, &str) {
    let of = |key: &str| cell.measured.detail["state"][key].as_str();
    (of("hash").expect("a checksum"), cell.measured.detail["state"]["notes"][0].as_str().expect("a note"))
}

#[test]
fn a_state_that_is_made_is_where_a_run_starts() {
    let room = Room::new();
    let made = room.run(&words(&[&MAKE, &["-o", "mixed.toml"]])).expect(0).stdout;
    let second = room.run(&words(&[&MAKE])).expect(0).stdout;
    assert_eq!(made, second, "the second is from the cache");
    for part in ["unmovable 7", "Node 0, zone    DMA32 ", "Page block order: 9", "Number of blocks type"] {
        assert!(made.contains(part), "{part}:\n{made}");
    }
    let shown = room.run(&["state", "show", "mixed.toml"]).expect(0).stdout;
    assert!(shown.starts_with("recipe metadata+anon 7% in 34%\n") && shown.contains(checksum(&made)), "{shown}");
    let cells = |more: &[&str]| {
        let answer = room.run(&words(&[&RUN, more, &["--format", "json"]])).expect(0);
        Document::parse(&answer.stdout).cells
    };
    let (by_file, by_words) =
        (cells(&["--state", "mixed.toml"]), cells(&["--state", "metadata+anon,unmovable=7%,blocks=34%"]));
    let fresh = cells(&[]);
    assert_eq!((by_file.len(), by_words.len(), fresh.len()), (4, 4, 4));
    for ((by_file, by_words), fresh) in by_file.iter().zip(&by_words).zip(&fresh) {
        assert_eq!(state(by_file).0, checksum(&made));
        assert!(state(by_file).1.starts_with("unmovable "), "{}", state(by_file).1);
        assert_eq!(by_file.measured, by_words.measured);
        assert_eq!(by_file.key.state, "metadata+anon 7% in 34%");
        assert_eq!(by_file.measured.counters["pgfault"], fresh.measured.counters["pgfault"], "of the workload alone");
        assert_ne!(by_file.measured.detail["run_hash"], fresh.measured.detail["run_hash"]);
    }
    let text = room.run(&words(&[&RUN, &["--state", "mixed.toml", "--full"]])).expect(0).stdout;
    assert!(text.contains("memory at the start by recipe, metadata+anon 7% in 34%"), "{text}");
    room.assert_nothing_left("a recipe");
}

#[test]
fn another_seed_is_another_state_and_another_checksum_is_refused() {
    let room = Room::new();
    let made = room.run(&words(&[&MAKE, &["--seeds", "2", "-o", "two.toml"]])).expect(0).stdout;
    let sums: Vec<&str> = made.lines().filter_map(|line| line.strip_prefix("checksum ")).collect();
    assert!(sums.len() == 2 && sums[0] != sums[1], "{sums:?}");
    let other = std::fs::read_to_string(room.here().join("two.toml")).expect("written").replace(sums[0], sums[1]);
    let other = room.give("other.toml", other);
    let answer = room.run(&words(&[&RUN, &["--state", &other]])).expect(1);
    assert!(
        answer.stderr.contains(&format!("its file says checksum {}, and it came to {}", sums[1], sums[0])),
        "{answer:?}"
    );
}

/// With the rules of 4.4 this machine comes to 60 % of the pageblocks, with the rules of 5.4 to 24 %.
#[test]
fn a_cell_that_cannot_reach_its_recipe_is_skipped_beside_others() {
    let room = Room::new();
    let far = ["--variant", "v4.4", "--state", "metadata+anon,unmovable=20%,blocks=60%", "--set", "page=base"];
    let more = ["--set", "model=threads", "-o", "result"];
    let text = room.run(&words(&[&RUN[..6], &["--variant", "v5.4"], &RUN[8..], &far, &more])).expect(0).stdout;
    assert!(text.contains("skipped: sim base-threads-1 on v5.4: recipe not reached: 20.03% in "), "{text}");
    let cells = report::cells(document::whole_records(&room.here().join("result")));
    let kernels: Vec<_> = cells.iter().map(|cell| cell.key.kernel.as_str()).collect();
    assert_eq!(kernels, ["v4.4"]);
}

#[test]
fn mistakes_with_recipes_are_one_message() {
    let room = Room::new();
    let refuse = |args: &[String], expected: &[&str]| {
        let answer = room.run(args).expect(2).says(expected);
        assert_eq!((answer.stdout.as_str(), answer.stderr.lines().count()), ("", 1), "{}", answer.stderr);
    };
    let make = |more: &[&str]| words(&[&MAKE, more]);
    let unknown = ["state", "make", "--recipe", "metadata+anom"];
    refuse(&words(&[&unknown]), &["unknown recipe \"metadata+anom\"", "did you mean \"metadata+anon\"?"]);
    refuse(&make(&["--unmovable", "0%"]), &["unmovable: expected more than 0% and at most 50%, found 0%"]);
    refuse(&make(&["--blocks", "5%"]), &["7% of the frames need at least 7% of the pageblocks, found 5%"]);
    refuse(&make(&["--unmovable", "0.01%"]), &["0.01% of the frames are in 5.12% of the pageblocks, found 34%"]);
    let other = ["state", "make", "--recipe", "metadata+anon", "--machine", "one-node-4"];
    refuse(&words(&[&other]), &["unknown machine \"one-node-4\"", "did you mean"]);
    // Every pageblock cannot have a frame: some stay free, or nothing could run.
    let far = make(&["--unmovable", "50%", "--blocks", "100%"]);
    refuse(&far, &["metadata+anon 50% in 100% of the pageblocks cannot be reached here: it came to "]);
    let run = |state: &str| words(&[&RUN, &["--state", state]]);
    refuse(&run("metadata+anom"), &["unknown state \"metadata+anom\"", "did you mean \"metadata+anon\"?"]);
    refuse(&run("metadata+anon,blocks=7"), &["blocks: expected a part of memory such as \"7%\""]);
    refuse(&run("metadata+anon,block=7%"), &["unknown parameter of a recipe \"block\"", "did you mean \"blocks\"?"]);
    refuse(&run("metadata+anon,unmovable=50%,blocks=100%"), &["cannot be reached here: it came to "]);
    let without_swap = ["run", "thpscale", "--target", "sim", "--machine", "four-core-4g", "--state", "metadata+anon"];
    refuse(
        &words(&[&without_swap]),
        &[
            "memory ran out (ENOMEM): a recipe fills it, and machine four-core-4g of 4GiB has no swap; expected one with the \
             key swap",
        ],
    );
    refuse(&run("no/such.toml"), &["no/such.toml: cannot be read"]);
    let bad = room.give("bad.toml", "recipe = \"metadata+anon\"\nblocks = \"700%\"\n");
    refuse(&run(&bad), &["bad.toml:2: blocks: expected a part of memory such as"]);
    let host = words(&[&["run", "fault-storm", "--target", "host", "--state", "metadata+anon"]]);
    refuse(&host, &["state metadata+anon: a recipe is for target sim alone"]);
    for (args, word) in [(["--unmovable", "7"], "invalid value '7'"), (["--blocks", "101%"], "invalid value '101%'")] {
        room.run(&make(&args)).expect(2).says(&[word]);
    }
}
