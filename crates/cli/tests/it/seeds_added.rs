//! Seeds that are added to a result: the run goes on, and another run is told from it by name.

use crate::support::{document, room::Room, words};

const RUN: [&str; 12] = [
    "run",
    "fault-storm",
    "--target",
    "sim",
    "--machine",
    "one-node-512m",
    "--variant",
    "v6.1",
    "--set",
    "size=16MiB",
    "--set",
    "page=base",
];
const ONE: [&str; 6] = ["--set", "model=threads", "--set", "tasks=1", "--set", "iterations=2"];

/// Seeds and run hashes of a result, in the order of their lines.
fn runs(room: &Room, directory: &str) -> Vec<(u64, String)> {
    let cells = report::cells(document::whole_records(&room.here().join(directory)));
    cells.into_iter().map(|cell| (cell.key.seed, cell.measured.detail["run_hash"].to_string())).collect()
}

#[test]
fn seeds_are_added_to_a_result_and_give_what_they_would_alone() {
    let room = Room::new();
    let run =
        |seeds: &str, directory: &str| room.run(&words(&[&RUN[..], &ONE[..], &["--seeds", seeds, "-o", directory]]));
    run("2", "grown").expect(0);
    run("4", "grown").expect(0).says(&["resuming grown: 2 of 4 cells are there"]);
    run("4", "whole").expect(0);
    assert_eq!(runs(&room, "grown"), runs(&room, "whole"));
    // Those that are there are no reason to refuse others, and are not lost.
    run("5-6", "grown").expect(0).says(&["resuming grown: 4 of 6 cells are there"]);
    assert_eq!(runs(&room, "grown").iter().map(|(seed, _)| *seed).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let fewer = run("2", "grown").expect(0);
    assert!(fewer.stdout.contains("seeds 1-6"), "{}", fewer.stdout);
    run("9-9", "grown").expect(2).says(&["grown holds seeds 1-6: expected --seeds that adjoin them, not 9-9"]);
    assert_eq!(runs(&room, "grown").len(), 6, "a refused run changes nothing");
}

#[test]
fn another_run_is_told_by_what_differs() {
    let room = Room::new();
    let run = |variant: &str, iterations: &str, more: &[&str]| {
        let sets = ["--set", "size=16MiB", "--set", "page=base", "--set", "tasks=1", "--set", iterations];
        let run = ["run", "fault-storm", "--target", "sim", "--machine", "one-node-512m", "--variant", variant];
        room.run(&words(&[&run, &sets, more, &["-o", "result"]]))
    };
    run("v6.1", "iterations=2", &[]).expect(0);
    run("v6.1", "iterations=3", &[]).expect(2).says(&["result holds a different run (", "iterations: 2 there, 3 here"]);
    run("v5.10", "iterations=2", &[]).expect(2).says(&["variants: v6.1 there, v5.10 here"]);
    run("v6.1", "iterations=2", &["--sample", "10ms"]).expect(2).says(&["(--sample: none there, 10ms here); give"]);
    run("v6.1", "iterations=2", &["--set", "warmup=1"]).expect(2).says(&["warmup: not set there, 1 here"]);
    run("v6.1", "iterations=2", &["--set", "vm.swappiness=7"])
        .expect(2)
        .says(&["vm.swappiness: not set there, 7 here"]);
}
