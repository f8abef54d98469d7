//! Branches of a result: one instant and two policies, and when a stall became inevitable.

use serde_json::Value;

use crate::support::{room::Room, words};

/// Memory is filled and in pieces, so that faults of huge pages compact and reclaim.
const FULL: [&str; 12] = [
    "run",
    "thpscale",
    "--target",
    "sim",
    "--machine",
    "two-node-2g",
    "--variant",
    "v4.1-rc2",
    "--set",
    "threads=4",
    "-o",
    "result",
];

#[test]
fn a_fork_is_the_same_run_up_to_its_instant() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["--seeds", "2"]])).expect(0);
    let fork = |at: &'static str, more: &[&'static str]| room.run(&words(&[&["fork", "result", "--at", at], more]));
    let same = fork("2s", &["--variant", "v4.1-rc2", "--variant", "v4.1-rc2"]).expect(0).stdout;
    assert!(same.contains("the same bytes: no decision behind the instant differs"), "{same}");

    let other = fork("2s", &["--variant", "v4.1-rc2+3", "--format", "json"]).expect(0).stdout;
    let forked: Value = serde_json::from_str(&other).expect("an object");
    assert_eq!(forked["variants"], serde_json::json!(["v4.1-rc2", "v4.1-rc2+3"]));
    assert_eq!(forked["seeds"], serde_json::json!([1, 2]));
    assert_ne!(forked["hashes"][0], forked["hashes"][1]);
    let rows = forked["pairs"][0].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["name"].as_str().is_some_and(|name| name.starts_with("compact_"))), "{other}");
    let text = fork("2s", &["--variant", "v4.1-rc2+3"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    for (at, more, said) in [
        ("90000s", &["--variant", "v4.1-rc2+3"][..], "ends before"),
        ("2s", &["--variant", "v9.9-rc1"], "unknown"),
        ("2s", &["--variant", "v6.1"], "rules that only a boot can change"),
        ("2s", &["--variant", "v4.1-rc2+3", "--seed", "7"], "unknown"),
        ("2parsecs", &["--variant", "v4.1-rc2+3"], "expected an instant"),
    ] {
        let refused = fork(at, more).expect(2);
        assert!(refused.stderr.contains(said), "{at} {more:?}: {}", refused.stderr);
    }
}

#[test]
fn a_stall_hangs_on_a_decision() {
    let room = Room::new();
    room.run(&FULL).expect(0);
    let ask = ["why", "result", "--what", "fault", "--order", "9", "--stall", "1", "--inevitable"];
    let json = room.run(&words(&[&ask, &["--format", "json"]])).expect(0).stdout;
    let all: Vec<Value> = serde_json::from_str(&json).expect("an array");
    let [stall] = &all[..] else { panic!("{json}") };
    assert_eq!(stall["over_ps"].as_u64().unwrap(), stall["explained"]["time_ps"].as_u64().unwrap() / 2);
    let event = &stall["event"];
    let (kept, removed) = (&event["kept"], &event["removed"]);
    assert!(kept["met"].as_u64() >= removed["met"].as_u64(), "{event}");
    assert_eq!((kept["of"].as_u64(), removed["of"].as_u64()), (Some(4), Some(4)));
    // Its instant is that of a fact of the stall.
    let facts = stall["explained"]["facts"].as_array().unwrap();
    assert!(facts.contains(&event["fact"]), "{event}");
    let text = room.run(&ask).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let refused = room.run(&["why", "result", "--what", "fsync", "--slowest", "1", "--inevitable"]).expect(2);
    assert!(refused.stderr.contains("--inevitable") || refused.stderr.contains("--what"), "{}", refused.stderr);
}
