//! Where time went: durations on every target, and by cause in the simulator.

use std::collections::BTreeMap;

use report::{Cell, Target, WAITING};

use crate::support::{TINY, document::Document, room::Room, words};

/// Two tasks per CPU in one address space, base and huge pages.
const CROWDED: [&str; 14] = [
    "run",
    "fault-storm",
    "--target",
    "sim",
    "--machine",
    "two-node-2g",
    "--set",
    "tasks=4",
    "--set",
    "model=threads",
    "--set",
    "iterations=2",
    "-o",
    "result",
];

fn cells(room: &Room, args: &[&str]) -> Vec<Cell> {
    Document::parse(&room.run(&words(&[args, &["--format", "json"]])).expect(0).stdout).cells
}

#[test]
fn time_by_cause_is_part_of_what_repeats_and_sums_up() {
    let room = Room::new();
    let once = cells(&room, &CROWDED);
    assert_eq!(once.len(), 2, "base and huge");
    let again = room.run(&words(&[&CROWDED[..12], &["-o", "again", "--format", "json"]])).expect(0).stdout;
    for (cell, again) in once.iter().zip(Document::parse(&again).cells) {
        let measured = &cell.measured;
        assert_eq!(measured.causes, again.measured.causes, "{}", cell.key.case);
        let sum = |waiting| -> u64 {
            let of = |(name, _): &(&String, &u64)| name.starts_with(WAITING) == waiting;
            measured.causes.iter().filter(of).map(|(_, picos)| *picos).sum()
        };
        let duration = measured.duration.expect("every cell has one");
        // What getrusage says of the tasks in their window is a part of all the CPU time, which is no more than CPUs have.
        let used = duration.user_ps + duration.system_ps;
        assert!(used < sum(false) && used <= 2 * duration.elapsed_ps, "{}: {measured:?}", cell.key.case);
        assert!(sum(true) > 0 && measured.causes["waiting: run queue"] > duration.elapsed_ps / 10, "{}", cell.key.case);
        assert!(measured.causes["clear"] > 3 * 4 * 32_768, "{}", cell.key.case);
        let tasks = measured.detail["tasks"].as_array().expect("one per task");
        let system = |task: &serde_json::Value| task.pointer("/rusage/system").and_then(serde_json::Value::as_u64);
        assert_eq!(tasks.iter().map(|task| system(task).expect("picoseconds")).sum::<u64>(), duration.system_ps);
    }
}

#[test]
fn tables_of_causes_are_there_when_asked_for() {
    let room = Room::new();
    let without = room.run(&words(&[&CROWDED, &["--full"]])).expect(0).stdout;
    assert!(without.contains("Duration Elapsed huge-threads-4") && !without.contains("Time by Cause"), "{without}");
    let shown = room.run(&["show", "result", "--causes", "--full"]).expect(0).stdout;
    assert_eq!(room.run(&words(&[&CROWDED, &["--causes", "--full"]])).expect(0).stdout, shown);
    let text = shown.split_once("fault-storm Time by Cause\n").expect("a table of causes").1;
    let text = text.split_once("\nunit: ms per run").expect("its unit").0;
    let mut shares: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for line in text.lines().skip(2) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let share = line.rsplit_once('(').and_then(|(_, share)| share.trim().strip_suffix("%)")).expect("a share");
        let share: f64 = share.trim().parse().expect("a number");
        let (total, parts) = shares.entry(fields[1]).or_default();
        *(if fields[0] == "All" { total } else { parts }) += share;
    }
    assert_eq!(shares.len(), 2);
    for (case, (total, parts)) in shares {
        // Each share is rounded to two digits.
        assert!((total - 100.0).abs() < 1e-9 && (parts - 100.0).abs() < 0.1, "{case}: {total} and {parts} in\n{text}");
    }
    let csv = room.run(&["show", "result", "--causes", "--format", "csv"]).expect(0).stdout;
    for metric in ["duration.system", "causes.total", "cpu.page table", "waiting.mmap lock", "waiting.mmap lock.share"]
    {
        let start = format!("fault-storm,{metric},huge-threads-4,sim:");
        assert!(csv.lines().any(|line| line.starts_with(&start)), "no {start} in\n{csv}");
    }
}

#[test]
fn a_real_kernel_does_not_know_causes() {
    let room = Room::new();
    let run = ["run", "fault-storm", "-o", "result", "--target", "host"];
    room.run(&words(&[&run, &TINY, &["--causes"]])).expect(2).says(&["--causes is for target sim"]);
    room.assert_untouched("a run that was refused");
    let printed = room.run(&words(&[&run, &TINY, &["--full"]])).expect(0).stdout;
    for row in ["Duration User base-threads-1", "Duration System base-threads-1", "Duration Elapsed base-threads-1"] {
        assert!(printed.contains(row), "no {row} in\n{printed}");
    }
    let refused = room.run(&["show", "result", "--causes"]).expect(2);
    refused.says(&["--causes: nothing in result says where time went; only the simulator knows it"]);
    let both = room.run(&words(&[
        &["run", "fault-storm", "--target", "host", "--target", "sim", "-o", "both", "--causes", "--full"],
        &TINY[..],
    ]));
    let both = both.expect(0).stdout;
    assert!(both.contains("\nskipped: host time by cause: only the simulator knows it\n"), "{both}");
    assert!(!both.contains("skipped: sim") && both.contains("CPU     base-threads-1 clear"), "{both}");
    let cells = cells(&room, &["show", "both"]);
    let targets: Vec<Target> =
        cells.iter().filter(|cell| cell.measured.duration.is_some()).map(|cell| cell.key.target).collect();
    assert_eq!(targets, [Target::Host, Target::Sim]);
}
