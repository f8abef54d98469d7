//! Starting from a kernel's own state: recorded in guests, taken over by the simulator, kept as files.

use std::fs;

use report::{Cell, Target};

use crate::support::{document::Document, guests, recording, room::Room, words};

const SMALL: [&str; 8] =
    ["--set", "tasks=1", "--set", "iterations=2", "--set", "size=16MiB", "--machine", "one-node-512m"];

/// A recorded state, as a file of its own.
fn recorded(room: &Room) -> String {
    let file = recording("state/6.1-1n-512m-used.state");
    room.give("used.state", fs::read(file).expect("a recording"))
}

fn hash(cell: &Cell) -> &str {
    cell.measured.detail["state"]["hash"].as_str().expect("a hash")
}

#[test]
fn vm_a_twin_starts_from_what_its_guest_recorded() {
    let Some(_turn) = guests::turn("vm_a_twin_starts_from_what_its_guest_recorded") else { return };
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "vm", "--target", "sim", "--kernel", "6.1", "--state", "kernel"];
    let answer = room.run(&words(&[&run, &SMALL, &["--accel", "tcg", "--format", "json", "-o", "result"]])).expect(0);
    let machine = lab::machine::Machine::load("one-node-512m", &linux::setting::names()).expect("a machine of ours");
    let slow = room.give("slow.toml", machine.translated().to_toml());
    let cells = Document::parse(&answer.stdout).cells;
    let twins: Vec<&Cell> = cells.iter().filter(|cell| cell.key.target == Target::Sim).collect();
    assert_eq!((cells.len(), twins.len()), (8, 4), "base and huge, threads and processes");
    let mut files: Vec<_> = fs::read_dir(room.here().join("result/states")).expect("states").flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    assert_eq!(files.len(), 4);
    for twin in &twins {
        assert_eq!(twin.key.state, "kernel");
        let case = &twin.key.case;
        let file = files.iter().find(|file| file.file_name().to_string_lossy().contains(case.as_str()));
        let file = file.expect("a state of each case").path().display().to_string();
        let shown = room.run(&["state", "show", &file]).expect(0).stdout;
        assert!(shown.starts_with(&format!("state {}\nLinux 6.1.", hash(twin))), "{shown}");
        assert!(shown.contains("memory stood still while it was read"), "{shown}");
        // A run from the state's file, without the guest's result, is the run that stood beside the guest: the file has the
        // memory, `--machine` the pace.
        let alone = ["run", "fault-storm", "--target", "sim", "--format", "json", "--state", &file, "--machine", &slow];
        let answer = room.run(&words(&[&alone, &SMALL[..6]])).expect(0);
        let alone = Document::parse(&answer.stdout).cells;
        let same = alone.iter().find(|cell| cell.key.case == *case).expect("the same case");
        assert_eq!(same.measured, twin.measured, "{case}");
    }
    let text = room.run(&["show", "result", "--full"]).expect(0).stdout;
    for part in ["memory at the start as the kernel had it before the same cell", "drawn: the order of"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    room.assert_nothing_left("recording frames");
}

#[test]
fn a_state_file_starts_a_run_and_the_table_says_so() {
    let room = Room::new();
    let state = recorded(&room);
    let run = |more: &[&str]| room.run(&words(&[&["run", "fault-storm", "--target", "sim"], &SMALL, more])).expect(0);
    let cells = |more: &[&str]| Document::parse(&run(&[more, &["--format", "json"]].concat()).stdout).cells;
    let (taken, fresh) = (cells(&["--state", &state]), cells(&[]));
    assert_eq!(taken.len(), 4);
    for (taken, fresh) in taken.iter().zip(&fresh) {
        assert_eq!((taken.key.state.as_str(), fresh.key.state.as_str()), ("used", "fresh"));
        assert_eq!(taken.measured.counters["pgfault"], fresh.measured.counters["pgfault"]);
        assert_ne!(taken.measured.detail["run_hash"], fresh.measured.detail["run_hash"]);
        assert_eq!(hash(taken).len(), 64);
    }
    let text = run(&["--state", &state, "--full"]).stdout;
    assert!(text.contains(&format!("memory at the start as in {state} (state {}", &hash(&taken[0])[..12])), "{text}");
    assert!(text.contains("drawn: which "), "{text}");
}

#[test]
fn mistakes_with_states_are_one_message() {
    let room = Room::new();
    let state = recorded(&room);
    let mut damaged = fs::read(&state).expect("given above");
    damaged.truncate(1000);
    let damaged = room.give("damaged.state", damaged);
    let sim = ["run", "fault-storm", "--target", "sim", "--machine", "one-node-512m"];
    let refuse = |args: &[String], expected: &[&str]| {
        let answer = room.run(args).expect(2).says(expected);
        assert_eq!((answer.stdout.as_str(), answer.stderr.lines().count()), ("", 1), "{}", answer.stderr);
    };
    let cut = [damaged.as_str(), ": byte ", "the compressed part is damaged or cut off"];
    refuse(&words(&[&sim, &["--state", &damaged]]), &cut);
    refuse(&words(&[&["state", "show", &damaged]]), &cut);
    refuse(&words(&[&sim, &["--state", "no/such.state"]]), &["no/such.state: No such file or directory"]);
    refuse(&words(&[&sim, &["--state", "kernel"]]), &["state kernel: a guest's, so it needs target vm"]);
    let other = ["run", "fault-storm", "--target", "sim", "--machine", "four-node-2g", "--state", &state];
    refuse(&words(&[&other]), &["of a machine with [2] CPUs by node; machine four-node-2g has [1, 1, 1, 1]"]);
    let host = ["run", "fault-storm", "--target", "host", "--state", &state];
    refuse(&words(&[&host]), &["a state file is for target sim alone"]);
}
