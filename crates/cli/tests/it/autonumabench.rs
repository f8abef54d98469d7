//! autonumabench as users see it: mistakes end a run before it begins, and a recorded result settles claims.

use std::path::Path;

use crate::support::{room::Room, words};

#[test]
fn a_machine_that_has_nothing_to_balance_is_refused() {
    let room = Room::new();
    let small = ["--set", "size=32MiB", "-o", "result"];
    let wrong: [(&[&str], &str); 5] = [
        (&["--machine", "one-node-512m"], "nothing can be balanced on a machine with 1 nodes with memory"),
        (&["--set", "bind=soft"], "expected \"no\", \"hard\", \"inverse\" or \"interleave\", found \"soft\""),
        (&["--set", "threads=0"], "threads: expected"),
        (&["--set", "rounds=5"], "rounds: expected a percentage"),
        (&["--set", "kernel.numa_balancing_scan_size_mb=0"], "kernel.numa_balancing_scan_size_mb"),
    ];
    for (arguments, expected) in wrong {
        let stderr = room.run(&words(&[&["run", "numa01"], arguments, &small])).expect(2).stderr;
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

/// Seed 1 of `pagelab run autonumabench-3.9` and, beside it, of `pagelab run specjbb-3.9` (November 2026) without the details
/// that no claim reads.
#[test]
fn a_recorded_result_settles_what_s3_claims_of_autonumabench() {
    let room = Room::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/s3-autonumabench");
    let text = room.run(&["claims", "s3", "--result", recorded.to_str().expect("a name")]).expect(1).stdout;
    for line in
        ["s3-1  fails", "s3-5  holds", "s3-6  fails", "s3-8  fails", "s3-9  holds", "s3-10 holds", "s3-11 fails"]
    {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
    }
    let jvms = recorded.with_file_name("s3-autonumabench-specjbb-3.9");
    let shown = room.run(&["show", jvms.to_str().expect("a name")]).expect(0).stdout;
    for row in ["TPut 25 ", "Mean 10 ", "Stddev 46 ", "Peak Bops ", "Warehouse  ", "NUMA pages"] {
        assert!(shown.lines().any(|line| line.starts_with(row)), "{row} in\n{shown}");
    }
    let shown = room.run(&["show", recorded.to_str().expect("a name")]).expect(0).stdout;
    for row in ["User-NUMA01 ", "System-NUMA01_THEADLOCAL ", "Elapsed-NUMA02_SMT ", "NUMA PTE updates "] {
        assert!(shown.lines().any(|line| line.starts_with(row)), "{row} in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}
