//! will-it-scale: what is stored in a time, by the program's count and by the kernel's.

use report::{Cell, Metric, Target};

use crate::support::{document::Document, guests, room::Room, words};

/// A second of small mappings.
const SMALL: [&str; 6] = ["--set", "seconds=1", "--set", "size=8MiB", "--set", "tasks=2"];
const SIM: [&str; 6] = ["--machine", "one-node-512m", "--variant", "v5.4", "--format", "json"];

fn run(room: &Room, parts: &[&[&str]]) -> Vec<Cell> {
    let document = Document::parse(&room.run(&words(parts)).expect(0).stdout);
    assert_eq!(document.missing, 0);
    document.cells
}

fn metric<'a>(cell: &'a Cell, name: &str) -> Option<&'a Metric> {
    cell.measured.metrics.iter().find(|metric| metric.name == name)
}

/// Stores that all tasks counted, and the longest of their windows in seconds.
fn counted(cell: &Cell) -> (u64, f64) {
    let detail = &cell.measured.detail;
    let tasks = detail.get("tasks").unwrap_or(detail).as_array().expect("a list of tasks");
    let number = |task: &serde_json::Value, name: &str| task[name].as_u64().expect("a number");
    let windows = tasks.iter().map(|task| (number(task, "end") - number(task, "start")) as f64 / 1e12);
    (tasks.iter().map(|task| number(task, "stores")).sum(), windows.fold(0.0, f64::max))
}

/// What any target has to say of page_fault1 and page_fault2: a store is a fault, and the window is as long as was asked for.
fn check(cells: &[Cell]) {
    assert!(!cells.is_empty());
    for cell in cells {
        let test = &cell.key.params["test"];
        let (stores, window) = counted(cell);
        assert!(stores > 0 && window >= 1.0, "{}: {stores} stores in {window} s", cell.key.case);
        let iterations = metric(cell, &format!("{test}.iterations")).expect("every cell has it");
        assert_eq!(iterations.part.as_deref(), Some("tasks=2"));
        // Each task has its own window, none of which is longer than this one.
        assert!(iterations.samples[0] >= stores as f64 / window * 0.999_999, "{}: {iterations:?}", cell.key.case);
        let idle = metric(cell, &format!("{test}.idle_pct")).expect("every cell has it").samples[0];
        assert!((-5.0..=100.0).contains(&idle), "{}: {idle} % idle", cell.key.case);
        if test != "page_fault1_thp" {
            let faults = &cell.measured.checks[0];
            assert_eq!((faults.name.as_str(), faults.expected), ("faults by getrusage", stores));
            assert!(faults.within, "{}: {faults:?}", cell.key.case);
        }
    }
}

#[test]
fn sim_counts_what_its_kernel_counts() {
    let room = Room::new();
    let cells = run(&room, &[&["run", "will-it-scale"], &SIM, &SMALL, &["-o", "r"]]);
    assert_eq!(cells.len(), 6);
    check(&cells);
    for cell in &cells {
        let (stores, window) = counted(cell);
        assert!(window < 1.01, "{}: {window} s", cell.key.case);
        let group = format!("will-it-scale-{}", cell.key.params["model"]);
        assert_eq!(cell.key.group.as_deref(), Some(group.as_str()));
        let count = |name: &str| cell.measured.counters.get(name).copied().unwrap_or(0).unsigned_abs();
        // A task may be in the middle of a piece, or of several as its clock says another time than that of the one who counts.
        let near =
            |found: u64, unit: u64| assert!(found.abs_diff(stores) <= unit, "{}: {found} of {stores}", cell.key.case);
        match cell.key.params["test"].as_str() {
            "page_fault1_thp" => near(512 * count("thp_fault_alloc"), 8 * 512),
            _ => near(count("pgfault"), 4 * 512),
        }
    }
    let rate = |case: &str| {
        let cell = cells.iter().find(|cell| cell.key.case == case).expect("it was run");
        metric(cell, &format!("{}.iterations", cell.key.params["test"])).expect("it has it").samples[0]
    };
    assert!(rate("page_fault1_thp-processes-2") > rate("page_fault1-processes-2"));
    assert!(rate("page_fault1-processes-2") > rate("page_fault2-processes-2"), "a page is read and one is written");

    // On a screen tests stand side by side.
    let text = room.run(&["show", "r"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("will-it-scale-threads iterations, 1/s, higher is better\n"), "{text}");
    let head: Vec<_> =
        text.lines().find(|line| line.contains("page_fault2")).expect("a head").split_whitespace().collect();
    assert_eq!(head, ["page_fault1", "page_fault1_thp", "page_fault2"]);
}

/// Memory that is free: all but what was left alone was written once, and is free again.
#[test]
fn sim_memhog_writes_what_is_free() {
    let room = Room::new();
    let none = ["--set", "test=none", "--set", "model=processes", "--set", "tasks=1", "--set", "memhog=all"];
    let cells = run(&room, &[&["run", "will-it-scale"], &SIM, &none, &["--set", "settle_seconds=40", "-o", "r"]]);
    let [cell] = &cells[..] else { panic!("{} cells", cells.len()) };
    assert_eq!((cell.key.case.as_str(), cell.key.group.as_deref()), ("memhog", Some("memhog")));
    let (pages, _) = counted(cell);
    assert!((115_000..=131_072 - 2048).contains(&pages), "{pages} pages of 512 MiB");
    assert_eq!(cell.measured.duration.unwrap().elapsed_ps / 1_000_000_000_000, 40);
    let killed = cell.measured.counters.get("oom_kill").copied().unwrap_or(0);
    assert_eq!(killed, 0, "it takes no more than there is");
}

#[test]
fn host_counts_what_its_kernel_counts() {
    let room = Room::new();
    let here = ["--target", "host", "--format", "json", "--set", "warmup_seconds=0", "--set", "memhog=8MiB"];
    let cells = run(&room, &[&["run", "will-it-scale"], &here, &SMALL, &["--set", "test=page_fault1,page_fault2"]]);
    assert_eq!(cells.len(), 4);
    assert!(cells.iter().all(|cell| cell.key.target == Target::Host));
    check(&cells);
    room.assert_nothing_left("will-it-scale");
}

#[test]
fn vm_counts_what_its_kernel_counts() {
    let Some(_turn) = guests::turn("vm_counts_what_its_kernel_counts") else { return };
    let room = Room::new();
    let guest = ["--target", "vm", "--accel", "tcg", "--machine", "one-node-512m", "--format", "json"];
    let all = ["--set", "memhog=all", "--set", "model=processes", "--set", "test=page_fault1"];
    check(&run(&room, &[&["run", "will-it-scale"], &guest, &SMALL, &all]));
    room.assert_nothing_left("will-it-scale in a guest");
}

#[test]
fn mistakes_are_one_message() {
    let room = Room::new();
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &["test=page_fault3"],
            &["--set test: expected \"page_fault1\", \"page_fault1_thp\", \"page_fault2\" or \"none\""],
        ),
        (&["seconds=0"], &["--set seconds: expected whole seconds from 1 to 86400, found \"0\""]),
        (&["warmup_seconds=no"], &["--set warmup_seconds: expected whole seconds from 0 to 86400, found \"no\""]),
        (
            &["memhog=some"],
            &["--set memhog: expected \"none\", \"all\" or a size from \"2MiB\" to \"1TiB\", found \"some\""],
        ),
        (&["second=1"], &["second", "did you mean \"seconds\"?"]),
        (&["test=none"], &["memhog: expected \"all\" or a size with test = none, found none"]),
        (&["memhog=1GiB"], &["memhog: expected at most 504 MiB of 512 MiB, found 1GiB"]),
        (&["size=2GiB"], &["needs 2048 MiB (memhog, size)", "memory and swap of the machine is 1024 MiB"]),
    ];
    for (sets, expected) in cases {
        let sets = sets.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>();
        let start = ["run", "will-it-scale", "--target", "sim", "--machine", "one-node-512m", "--set", "tasks=1"];
        room.run(&words(&[&start, &sets])).expect(2).says(expected);
    }
}
