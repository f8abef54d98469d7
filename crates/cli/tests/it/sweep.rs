//! `pagelab sweep`: maps of a small grid, a sweep that is killed again and again, and grids that are none.

use std::{fs, path::Path};

use crate::support::{
    document,
    room::{PATIENCE_S, Room, within},
    words,
};
use nix::sys::signal::Signal;
use report::{Cell, RESULT_FILE};

/// Cells of some milliseconds: a setting that they react to, and one that they do not.
const TINY: [&str; 14] = [
    "sweep",
    "fault-storm",
    "--machine",
    "one-node-512m",
    "--set",
    "size=2MiB..6MiB:2MiB",
    "--set",
    "vm.swappiness=0,60,100",
    "--set",
    "iterations=1",
    "--set",
    "page=base",
    "--set",
    "model=threads",
];
const SEEDS: [&str; 4] = ["--set", "tasks=1", "--seeds", "5"];

fn into(directory: &str, more: &[&str]) -> Vec<String> {
    words(&[&TINY, &SEEDS, &["-o", directory], more])
}

/// Returns what was measured, cell by cell, in the order of the file.
fn measured(directory: &Path) -> Vec<String> {
    let of = |cell: &Cell| format!("{:?} {}", cell.key, serde_json::to_string(&cell.measured).expect("it serialises"));
    report::cells(document::whole_records(directory)).iter().map(of).collect()
}

#[test]
fn a_map_has_shades_flat_regions_and_what_each_setting_does() {
    let room = Room::new();
    let text = room.run(&into("result", &[])).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for expected in ["rows: size 2MiB 4MiB 6MiB; the default is 128MiB", "columns: vm.swappiness 0 [60] 100", "██"]
    {
        assert!(text.contains(expected), "{expected} in\n{text}");
    }
    assert!(text.contains("vm.swappiness: flat: nothing reacts to it"), "{text}");
    let moved = text.lines().find(|line| line.starts_with("size: moves")).expect("size does something");
    assert!(!moved.contains("moves 0"), "{moved}");
    assert!(text.contains("flat: size 4MiB..6MiB, swappiness 0..100 (6 cells"), "{text}");
    // All forms, without running anything again.
    let again = room.run(&["sweep", "--result", "result"]).expect(0);
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), (text.as_str(), ""));
    let form = |form: &str| room.run(&["sweep", "--result", "result", "--format", form]).expect(0).stdout;
    assert!(form("markdown").contains("| size \\ swappiness | 0 | [60] | 100 |"), "{}", form("markdown"));
    let csv = form("csv");
    let rows = csv.lines().filter(|line| line.starts_with("cell,")).count();
    assert!(rows > 0 && rows % 9 == 0, "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("effect,") && line.contains(",size,")), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&form("json")).expect("JSON");
    assert_eq!(json["sweep"]["axes"][1]["default"], "60");
    assert_eq!(json["sweep"]["rows"][0]["points"].as_array().map(Vec::len), Some(9));
}

#[test]
fn one_setting_makes_bars_and_a_third_makes_panels() {
    let room = Room::new();
    let small = ["--machine", "one-node-512m", "--set", "iterations=1", "--set", "page=base", "--set", "model=threads"];
    let run = |more: &[&str]| {
        room.run(&words(&[&["sweep", "fault-storm"], &small, &["--seeds", "2"], more])).expect(0).stdout
    };
    let bars = run(&["--set", "tasks=1", "--set", "size=2MiB,4MiB", "--metrics", "amean"]);
    assert!(bars.contains("  4MiB ") && bars.contains(" ====="), "{bars}");
    let sets = ["--set", "size=2MiB,4MiB", "--set", "vm.swappiness=0,60", "--set", "tasks=1,2", "--metrics", "amean"];
    let panels = run(&sets);
    assert!(panels.contains("  at tasks [1]\n") && panels.contains("  at tasks 2\n"), "{panels}");
    assert!(panels.contains("Amean base-threads-*"), "the case without what varies\n{panels}");
}

#[test]
fn a_sweep_that_is_killed_again_and_again_gives_the_same_bytes() {
    let room = Room::new();
    let whole = room.run(&into("whole", &[])).expect(0).stdout;
    let lines =
        || fs::read_to_string(room.here().join("killed").join(RESULT_FILE)).map_or(0, |text| text.lines().count());
    let mut kills = 0;
    for _ in 0..6 {
        let before = lines();
        let mut running = room.start(room.command(&into("killed", &["--workers", "1"])));
        assert!(within(PATIENCE_S, || lines() > before + 2 || running.has_ended()), "no cell was done");
        kills += usize::from(!running.has_ended());
        running.signal(Signal::SIGKILL);
        drop(running.wait());
        room.assert_nothing_left("SIGKILL");
    }
    assert!(kills >= 3, "{kills} of 6 were killed before their end");
    let resumed = room.run(&into("killed", &[])).expect(0).stdout;
    assert_eq!(resumed, whole);
    assert_eq!(measured(&room.here().join("killed")), measured(&room.here().join("whole")));
    for form in ["csv", "json"] {
        let of = |directory: &str| room.run(&["sweep", "--result", directory, "--format", form]).expect(0).stdout;
        assert_eq!(of("killed").replace("\"killed\"", "\"whole\""), of("whole"));
    }
}

#[test]
fn what_is_no_sweep_is_one_message() {
    let room = Room::new();
    let other = room.here().join("other");
    room.run(&words(&[&["run", "fault-storm", "--target", "sim"], &crate::support::TINY, &["-o", "other"]])).expect(0);
    for (arguments, expected) in [
        (&["sweep", "fault-storm"][..], "expected --set NAME=VALUES"),
        (&["sweep", "fault-storm", "--set", "vm.swappiness=60"], "the grid has one cell"),
        (&["sweep", "fault-storm", "--set", "vm.swappiness=60..0:10"], "the range is empty"),
        (&["sweep", "fault-storm", "--set", "vm.swapiness=0,60"], "did you mean \"vm.swappiness\"?"),
        (&["sweep", "fault-storm", "--set", "vm.extfrag_threshold=0..1000:1", "--set", "size=2MiB,4MiB,6MiB"], "2000"),
        (&["sweep", "fault-storm", "--set", "vm.swappiness=0,60", "-o", "other"], "holds a different run"),
        (&["sweep", "--result", "other"], "is of no sweep"),
        (&["sweep", "--result", "nowhere"], "is not a result directory"),
    ] {
        let answer = room.run(arguments).expect(2).says(&[expected]);
        assert!(answer.stderr.lines().count() == 1 && answer.stdout.is_empty(), "{answer:?}");
    }
    assert_eq!(fs::read_dir(room.here()).unwrap().count(), 1, "only {}", other.display());
}
