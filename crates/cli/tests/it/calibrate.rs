//! `pagelab calibrate`: a file that the simulator runs with, whole or absent, and never over another one unasked.

use std::fs;

use crate::support::room::Room;

const FILE: &str = "here.toml";

#[test]
fn the_file_is_a_machine_that_the_simulator_runs_on() {
    let room = Room::new();
    let answer = room.run(&["calibrate", "-o", FILE, "--seconds", "2"]).expect(0);
    for expected in ["clear_frame ", "system_call ", "context_switch ", "median", "spread"] {
        assert!(answer.stdout.contains(expected), "{expected}: {}", answer.stdout);
    }
    assert!(answer.stderr.contains("nothing is changed"), "{}", answer.stderr);
    let text = fs::read_to_string(room.here().join(FILE)).unwrap();
    for expected in ["\n[prices]\n", "\nclear_frame = { ns = ", ", low = ", ", high = ", "source = \"measured: "] {
        assert!(text.contains(expected), "{expected}: {text}");
    }

    let small = ["--set", "tasks=1", "--set", "iterations=1", "--set", "size=2MiB", "--set", "page=base"];
    let run =
        [&["run", "fault-storm", "--target", "sim", "--machine", FILE, "-o", "result", "--full"][..], &small].concat();
    let answer = room.run(&run).expect(0);
    assert!(!answer.stdout.contains(" 0 are the machine's"), "{}", answer.stdout);
    assert!(answer.stdout.contains("are the machine's, "), "{}", answer.stdout);
}

#[test]
fn another_file_is_replaced_only_on_demand() {
    let room = Room::new();
    fs::write(room.here().join(FILE), "mine").unwrap();
    let answer = room.run(&["calibrate", "-o", FILE]).expect(2);
    assert_eq!(answer.stderr, "pagelab: here.toml: exists already; --force replaces it\n");
    assert_eq!(fs::read_to_string(room.here().join(FILE)).unwrap(), "mine");
    room.run(&["calibrate", "-o", FILE, "--force", "--seconds", "1"]).expect(0);
    assert!(fs::read_to_string(room.here().join(FILE)).unwrap().contains("[prices]"));
}

#[test]
fn mistakes_are_found_before_anything_is_measured() {
    let room = Room::new();
    let cases: [(&[&str], &str); 4] = [
        (&["calibrate"], "--output <FILE>"),
        (&["calibrate", "-o", "no/such.toml"], "no/such.toml: expected the name of a file in a directory that exists"),
        (&["calibrate", "-o", "."], "expected the name of a file, found a directory"),
        (&["calibrate", "-o", FILE, "--seconds", "0"], "'0'"),
    ];
    for (args, expected) in cases {
        let answer = room.run(args).expect(2);
        assert!(answer.stderr.contains(expected), "{args:?}: {}", answer.stderr);
        room.assert_untouched(&args.join(" "));
    }
}
