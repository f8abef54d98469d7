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
    assert!(of("task_moves.Amean", "other-node-cpu1,memfree,60%") < 0.5, "it is bound to the node");
    assert!(of("task_moves.Amean", "same-node-cpu1,memfree,0%") < 0.5, "nobody is in its way");
    assert!(of("task_moves.Amean", "same-node-cpu1,memfree,60%") > 0.0);
    let load = of("load_pct", "load-cpufree,memfree,60%");
    assert!((59.0..=61.0).contains(&load), "{load}");
    assert_eq!(value(&csv, "load_pct", "load-cpufree,memfree,0%"), None);
}

#[test]
fn mistakes_name_the_parameter_and_what_it_takes() {
    let room = Room::new();
    let percent = "expected a whole number from 0 to 100, found \"101\"";
    let place = "expected \"free\", the number of a node, or \"preferred-\" and one, as in preferred-1, found \"any\"";
    let wrong: [(&[&str], &str); 8] = [
        (&["--set", "load=101"], &format!("load: {percent}")),
        (&["--set", "held=101"], &format!("held: {percent}")),
        (&["--set", "cpu=2"], "cpu: the machine has no node 2 with CPUs (nodes with CPUs: 0, 1)"),
        (&["--set", "memory=preferred-7"], "memory: the machine has no node 7 with memory (nodes with memory: 0, 1)"),
        (&["--set", "memory=any"], &format!("memory: {place}")),
        (&["--set", "loads=1"], "did you mean \"load\"?"),
        (&["--machine", "one-node-4g"], "nothing can be balanced, with memory on 1 node: expected two nodes"),
        (&["--machine", "two-node-2g", "--set", "memory=1", "--set", "size=2GiB"], "size: expected less than the 1"),
    ];
    for (arguments, expected) in wrong {
        let stderr = room.run(&words(&[&["run", "numa-probe"], arguments, &["-o", "result"]])).expect(2).stderr;
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn invalid_and_useless_balancing_settings_are_refused() {
    let room = Room::new();
    let on_one_node = ["--machine", "one-node-512m"];
    let wrong: [(&[&str], &str, &[&str]); 11] = [
        (
            &on_one_node,
            "kernel.numa_balancing=1",
            &["nothing can be balanced on machine one-node-512m", "expected 0, or a machine"],
        ),
        (
            &on_one_node,
            "kernel.numa_balancing_scan_size_mb=64",
            &["nothing can be balanced", "expected a machine of two nodes"],
        ),
        (
            &[],
            "kernel.numa_balancing_scan_size_mb=64",
            &["nothing is balanced unless kernel.numa_balancing=1 is set too"],
        ),
        (&[], "kernel.numa_balancing=5", &["kernel.numa_balancing: expected a whole number from 0 to 4, found \"5\""]),
        (&[], "kernel.numa_balancing=2", &["kernel.numa_balancing: expected 0 or 1, found \"2\""]),
        (&[], "kernel.numa_balancing=-1", &["expected a whole number from 0 to 4, found \"-1\""]),
        (&[], "kernel.numa_balancing_scan_period_min_ms=0", &["scan_period_min_ms: expected a whole number from 1 to"]),
        (&[], "kernel.numa_balancing_scan_size_mb=2000000", &["from 1 to 1048576, found \"2000000\""]),
        (&[], "kernel.numa_balancing_scan_size=4", &["did you mean \"kernel.numa_balancing_scan_size_mb\"?"]),
        (
            &[],
            "kernel.numa_balancing_settle_count=2",
            &["kernel.numa_balancing_settle_count: ", "patch 7 of v3.9 brings it"],
        ),
        (&["--variant", "v3.9+1-16"], "kernel.numa_balancing_scan_period_reset=2", &["patch 10 of v3.9 removes it"]),
    ];
    for (arguments, setting, expected) in wrong {
        let run = [
            "run",
            "fault-storm",
            "--target",
            "sim",
            "--machine",
            "two-node-2g",
            "--variant",
            "v3.9",
            "--set",
            "tasks=1",
        ];
        // The option that is given last counts.
        let names = |name: &str| arguments.contains(&name);
        let run: Vec<&str> = run
            .chunks(2)
            .filter(|pair| !names(pair[0]))
            .flatten()
            .chain(arguments)
            .chain(&["--set", setting, "-o", "result"])
            .copied()
            .collect();
        let stderr = room.run(&run).expect(2).stderr;
        for expected in expected {
            assert!(stderr.contains(expected), "{setting}: {stderr}");
        }
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    // Off is off on every machine.
    let off = ["--machine", "one-node-512m", "--variant", "v3.9", "--set", "kernel.numa_balancing=0"];
    let tiny = ["--set", "size=2MiB", "--set", "iterations=1", "--set", "tasks=1", "-o", "off"];
    room.run(&words(&[&["run", "fault-storm", "--target", "sim"], &off, &tiny])).expect(0);
}

#[test]
fn cpus_that_are_not_there_are_refused_in_machine_files() {
    let room = Room::new();
    let text = include_str!("../../../../machines/two-socket-104.toml");
    for (name, from, to, expected) in [
        ("threads", "\"51,103\"", "\"51,203\"", "threads: CPU 203 is not on any node"),
        ("caches", "\"26-51,78-103\"]", "\"26-51,78-104\"]", "caches: CPU"),
    ] {
        let file = room.give(&format!("{name}.toml"), text.replacen(from, to, 1));
        let stderr = room.run(&["run", "numa-probe", "--machine", &file, "-o", "result"]).expect(2).stderr;
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
    }
}
