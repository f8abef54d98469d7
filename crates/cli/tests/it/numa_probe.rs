//! numa-probe as users see it: one task on a busy machine, and mistakes that end a run before it begins.

use crate::support::{room::Room, words};

const SMALL: [&str; 6] = ["--set", "size=64MiB", "--set", "rounds=20", "-o", "result"];

/// The value of a row.
fn value(csv: &str, metric: &str, case: &str) -> Option<f64> {
    let its = |line: &&str| {
        let parts: Vec<&str> = line.split('"').collect();
        parts[0] == format!("numa-probe,{metric},") && parts.get(1) == Some(&case) && line.ends_with(",,,")
    };
    csv.lines().find(its)?.split("two-socket-104,").nth(1)?.split(',').next()?.parse().ok()
}

#[test]
fn memory_that_is_far_is_slow_and_a_load_takes_its_part() {
    let room = Room::new();
    let sets = ["--set", "load=0,60", "--set", "memory=0,free", "--set", "cpu=1,free", "--format", "csv"];
    let run = ["run", "numa-probe", "--machine", "two-socket-104"];
    let csv = room.run(&words(&[&run, &sets, &SMALL])).expect(0).stdout;
    let of =
        |metric: &str, case: &str| value(&csv, metric, case).unwrap_or_else(|| panic!("{metric} {case} in\n{csv}"));
    for phase in ["read", "write"] {
        let time = |case: &str| of("phase_s.Amean", &format!("{phase}-{case}"));
        let (near, far) = (time("cpu1,memfree,0%"), time("cpu1,mem0,0%"));
        assert!(far > 1.4 * near, "{phase}: {far} s far, {near} s near");
        assert!(time("cpu1,memfree,60%") > near, "{phase}: beside a load");
    }
    let pages = |node: u32, case: &str| value(&csv, "pages_at_end.Amean", &format!("node{node}-{case}"));
    assert_eq!(pages(0, "cpu1,mem0,60%"), Some(16_384.0));
    assert_eq!((pages(0, "cpu1,memfree,60%"), pages(1, "cpu1,memfree,60%")), (None, Some(16_384.0)));
    assert_eq!(of("task_moves.Amean", "other-node-cpu1,memfree,60%"), 0.0, "it is bound to the node");
    assert_eq!(of("task_moves.Amean", "same-node-cpu1,memfree,0%"), 0.0, "nobody is in its way");
    assert!(of("task_moves.Amean", "same-node-cpu1,memfree,60%") > 0.0);
    let load = of("load_pct.Amean", "load-cpufree,memfree,60%");
    assert!((59.0..=61.0).contains(&load), "{load}");
    assert_eq!(value(&csv, "load_pct.Amean", "load-cpufree,memfree,0%"), None);
}

#[test]
fn mistakes_name_the_parameter_and_what_it_takes() {
    let room = Room::new();
    let percent = "expected a whole number from 0 to 100, found \"101\"";
    let place = "expected \"free\", the number of a node, or \"preferred-\" and one, as in preferred-1, found \"any\"";
    let wrong: [(&[&str], &str); 9] = [
        (&["--set", "load=101"], &format!("load: {percent}")),
        (&["--set", "held=101"], &format!("held: {percent}")),
        (&["--set", "cpu=2"], "cpu: the machine has no node 2 with CPUs (nodes with CPUs: 0, 1)"),
        (&["--set", "memory=preferred-7"], "memory: the machine has no node 7 with memory (nodes with memory: 0, 1)"),
        (&["--set", "memory=any"], &format!("memory: {place}")),
        (&["--set", "loads=1"], "did you mean \"load\"?"),
        (&["--machine", "one-node-4g"], "nothing can be balanced, with memory on 1 node: expected two nodes"),
        (&["--machine", "two-node-2g", "--set", "memory=1", "--set", "size=2GiB"], "size: expected less than the 1"),
        (&["--variant", "v5.0", "--set", "kernel.numa_balancing=1"], "kernel.numa_balancing=1: "),
    ];
    for (arguments, expected) in wrong {
        let stderr = room.run(&words(&[&["run", "numa-probe"], arguments, &["-o", "result"]])).expect(2).stderr;
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
