//! Faults as the kernel counts them against the workload's own count, on this machine and in a guest.
//!
//! A test program of its own: counters of this machine count what other tests do at the same time.

#[path = "it/support/mod.rs"]
mod support;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use report::{Cell, Check, Target};
use serde_json::Value;
use support::{TINY, document::Document, guests, room::Room, words};

const BY_RUSAGE: &str = "faults by getrusage";
const BY_VMSTAT: &str = "pgfault of /proc/vmstat";

/// The whole grid: 128 MiB per task, once.
const GRID: [&str; 4] = ["--set", "tasks=1,2", "--set", "iterations=1"];
const CASES: [&str; 8] = [
    "base-processes-1",
    "base-processes-2",
    "base-threads-1",
    "base-threads-2",
    "huge-processes-1",
    "huge-processes-2",
    "huge-threads-1",
    "huge-threads-2",
];
const PAGES_PER_TASK: u64 = 128 << 8;
const BASE_PER_HUGE: u64 = 512;

/// Counters of this machine count guests' emulators too, so the tests of this file take turns.
static ALONE: Mutex<()> = Mutex::new(());

/// On a machine that others use, their faults may fall into the workload's window and not into the idle one.
const ATTEMPTS: usize = 3;

#[test]
fn host_counts_agree() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut attempt = 1;
    loop {
        let cells = grid("host", Target::Host);
        for cell in &cells {
            for skip in &cell.measured.skipped {
                assert!(skip.what.starts_with("vmstat ") && skip.reason.contains("idle window"), "{skip:?}");
            }
            let skipped = cell.measured.skipped.iter().any(|skip| skip.what == "vmstat pgfault");
            assert_eq!(check_of(cell, BY_VMSTAT).is_none(), skipped, "{}: pgfault is a check or a skip", cell.key.case);
        }
        let off: Vec<_> =
            cells.iter().filter_map(|cell| check_of(cell, BY_VMSTAT)).filter(|check| !check.within).collect();
        if off.is_empty() {
            return;
        }
        assert!(attempt < ATTEMPTS, "off in {ATTEMPTS} attempts: {off:?}");
        attempt += 1;
    }
}

#[test]
fn vm_counts_agree() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_turn) = guests::turn("vm_counts_agree") else { return };
    let cells = grid("vm", Target::Vm);
    for cell in &cells {
        let case = &cell.key.case;
        // Nobody else is in the guest: there is no idle window, and nothing to skip.
        assert_eq!(cell.measured.skipped, [], "{case}");
        assert!(check_of(cell, BY_VMSTAT).is_some_and(|check| check.within), "{case}: {:?}", cell.measured.checks);
        assert!(cell.measured.counters["pgfault"] > 0, "{case}");
        let huge = sum(cell, "/huge_faults");
        if case.starts_with("huge") {
            assert!(huge * BASE_PER_HUGE * 10 >= sum(cell, "/stores") * 9, "{case}: only {huge} huge faults");
        } else {
            assert_eq!(huge, 0, "{case}");
        }
    }
}

/// Runs the grid on one target and checks what holds on every kernel.
fn grid(target: &str, expected: Target) -> Vec<Cell> {
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", target, "--format", "json"];
    let accelerator: &[&str] = if expected == Target::Vm { &["--accel", "tcg"] } else { &[] };
    let answer = room.run(&words(&[&run, accelerator, &GRID])).expect(0);
    let document = Document::parse(&answer.stdout);
    let cases: BTreeSet<_> = document.cells.iter().map(|cell| cell.key.case.as_str()).collect();
    assert!(cases.into_iter().eq(CASES), "{:?}", document.skipped);
    for cell in &document.cells {
        let case = &cell.key.case;
        assert_eq!(cell.key.target, expected);
        assert!(cell.measured.scored, "{case}");
        let tasks: u64 = cell.key.params["tasks"].parse().unwrap();
        assert_eq!(sum(cell, "/stores"), tasks * PAGES_PER_TASK, "{case}");
        let (faults, huge) = (sum(cell, "/faults"), sum(cell, "/huge_faults"));
        assert_eq!(faults - huge + huge * BASE_PER_HUGE, tasks * PAGES_PER_TASK, "{case}: each page is in one fault");
        let by_rusage = check_of(cell, BY_RUSAGE).expect("getrusage is always there");
        assert_eq!(by_rusage.expected, faults, "{case}");
        let counted = sum(cell, "/rusage/minor_faults") + sum(cell, "/rusage/major_faults");
        assert_eq!(by_rusage.found, counted, "{case}");
        let slack = faults as f64 * 0.005 + 400.0;
        assert!(by_rusage.within && faults.abs_diff(counted) as f64 <= slack, "{case}: {by_rusage:?}");
    }
    room.assert_nothing_left("a run");
    document.cells
}

fn check_of<'a>(cell: &'a Cell, name: &str) -> Option<&'a Check> {
    cell.measured.checks.iter().find(|check| check.name == name)
}

/// The sum of a figure over the tasks of a cell.
fn sum(cell: &Cell, pointer: &str) -> u64 {
    let tasks = cell.measured.detail.as_array().expect("a list of tasks");
    let figure = |task: &Value| task.pointer(pointer).and_then(Value::as_u64).expect("a whole number");
    tasks.iter().map(figure).sum()
}

/// Work bounded by time is not scored, and is checked all the same.
#[test]
fn a_run_bounded_by_time_is_checked_and_not_scored() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "host", "--format", "json", "--set", "duration=1"];
    let document = Document::parse(&room.run(&words(&[&run, &TINY])).expect(0).stdout);
    let [cell] = document.cells.as_slice() else { panic!("{} cells", document.cells.len()) };
    assert!(!cell.measured.scored);
    assert!(check_of(cell, BY_RUSAGE).is_some_and(|check| check.within && check.expected > 512));
}
