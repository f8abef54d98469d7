//! The simulator: the same bytes every time, and the counters of the real kernels beside it.

use std::collections::{BTreeMap, BTreeSet};

use report::{Cell, Target};

use crate::support::{
    TINY,
    document::{self, Document},
    guests,
    room::Room,
    skip, words,
};

fn run(room: &Room, arguments: &[&str]) -> BTreeMap<(Target, String), Cell> {
    run_experiment(room, "fault-storm", arguments)
}

fn run_experiment(room: &Room, experiment: &str, arguments: &[&str]) -> BTreeMap<(Target, String), Cell> {
    let answer = room.run(&words(&[&["run", experiment, "--format", "json"], arguments])).expect(0);
    let cells = Document::parse(&answer.stdout).cells;
    cells.into_iter().map(|cell| ((cell.key.target, cell.key.case.clone()), cell)).collect()
}

#[test]
fn the_simulator_repeats_itself_byte_for_byte() {
    let room = Room::new();
    let once = run(&room, &["--target", "sim", "-o", "once"]);
    let again = run(&room, &["--target", "sim", "-o", "again"]);
    assert_eq!(once.len(), 8);
    for (key, cell) in &once {
        assert_eq!(cell.measured, again[key].measured, "{key:?}");
    }
    // The control: another machine is another run.
    let other = run(&room, &["--target", "sim", "--machine", "one-node-4g", "--set", "tasks=1", "-o", "other"]);
    let hash = |cell: &Cell| cell.measured.detail["run_hash"].as_str().expect("a run hash").to_owned();
    for (key, cell) in &other {
        assert_ne!(hash(cell), hash(&once[key]), "{key:?}");
    }
}

/// Counters of a fixed program are the kernel's within 0.5 % plus 400.
fn assert_twins(cells: &BTreeMap<(Target, String), Cell>, real: Target) {
    let counter =
        |cell: &Cell, name: &str| cell.measured.counters.get(name).and_then(|moved| u64::try_from(*moved).ok());
    let zones = ["pgalloc_dma", "pgalloc_dma32", "pgalloc_normal", "pgalloc_movable"];
    let allocated = |cell: &Cell| zones.iter().filter_map(|name| counter(cell, name)).sum::<u64>();
    let mut compared = 0;
    for ((target, case), theirs) in cells.iter().filter(|((target, _), _)| *target == real) {
        let ours = &cells[&(Target::Sim, case.clone())];
        let mut pairs = vec![("pgalloc", Some(allocated(theirs)), allocated(ours))];
        for name in ["pgfault", "pgfree", "thp_fault_alloc", "thp_split_pmd"] {
            pairs.push((name, counter(theirs, name), counter(ours, name).unwrap_or(0)));
        }
        let tables = |cell: &Cell| cell.measured.gauges.get("nr_page_table_pages").map(|tables| tables.unsigned_abs());
        if let (Target::Vm, Some(theirs)) = (real, tables(theirs)) {
            // Exact in a guest, whose init may have counts folded; a process there has a few upper tables already.
            let ours = tables(ours).expect("both read it");
            assert!(theirs > 0 && theirs.abs_diff(ours) <= 8, "{case}: {theirs} page tables, or {ours}");
            compared += 1;
        }
        // A counter that was too noisy on a shared host is no yardstick, and one that did not move is not listed.
        for (name, theirs, ours) in pairs.into_iter().filter_map(|(name, theirs, ours)| Some((name, theirs?, ours))) {
            assert!(are_near(ours, theirs), "{target} {case} {name}: {theirs} or {ours}");
            compared += 1;
        }
    }
    assert!(compared >= 8, "only {compared} counters could be compared");
}

#[test]
fn vm_counters_are_those_of_the_twin() {
    let Some(_turn) = guests::turn("vm_counters_are_those_of_the_twin") else { return };
    let room = Room::new();
    let arguments = ["--target", "vm", "--target", "sim", "--accel", "tcg", "--set", "iterations=2"];
    assert_twins(&run(&room, &arguments), Target::Vm);
}

#[test]
fn vm_fork_counts_as_its_twin_does() {
    let Some(_turn) = guests::turn("vm_fork_counts_as_its_twin_does") else { return };
    let room = Room::new();
    let cells = run_experiment(&room, "fork-storm", &["--target", "vm", "--target", "sim", "--accel", "tcg"]);
    assert_eq!(cells.len(), 4);
    assert_twins(&cells, Target::Vm);
    // Base pages that the parent had to itself again; the guest's other processes reuse a few, too.
    let reused = |target| cells[&(target, "base".to_owned())].measured.counters["pgreuse"];
    assert_eq!(reused(Target::Sim), 4 * 32_768);
    assert!(
        reused(Target::Vm) >= 4 * 32_768 && reused(Target::Vm) < 4 * 32_768 * 1005 / 1000,
        "{}",
        reused(Target::Vm)
    );
}

/// Kernels before 5.8 copy a huge page whole, with one fault; later ones split it, and copy base page by base page.
#[test]
fn children_copy_huge_pages_as_their_kernel_does() {
    let room = Room::new();
    let arguments =
        ["--target", "sim", "--variant", "v5.4", "--variant", "v6.1", "--set", "page=huge", "--set", "size=32MiB"];
    let answer = room.run(&words(&[&["run", "fork-storm", "--format", "json"], &arguments])).expect(0);
    let found: Vec<_> = Document::parse(&answer.stdout)
        .cells
        .iter()
        .map(|cell| {
            let check = &cell.measured.checks[0];
            assert_eq!(
                (check.name.as_str(), check.expected),
                ("faults by getrusage", check.found),
                "{}",
                cell.key.kernel
            );
            check.found
        })
        .collect();
    assert_eq!(found, [4 * (16 + 16 + 16), 4 * (16 + 16 * 512 + 16)]);
}

#[test]
fn fork_on_this_kernel_takes_the_faults_that_it_must() {
    let room = Room::new();
    let cells = run_experiment(&room, "fork-storm", &["--target", "host", "--set", "size=32MiB"]);
    assert_eq!(cells.len(), 2);
    for cell in cells.values() {
        let check = &cell.measured.checks[0];
        assert_eq!(check.name, "faults by getrusage");
        assert!(cell.measured.metrics.iter().all(|metric| metric.samples.len() == 4), "{}", cell.key.case);
        if let Some(more) = faults_for_nothing(cell) {
            let name = "fork_on_this_kernel_takes_the_faults_that_it_must";
            skip(
                name,
                &format!(
                    "huge pages: {more} faults more than there was something to do for, as under hypervisors that map base pages"
                ),
            );
        } else {
            assert!(check.within, "{}: {check:?}", cell.key.case);
        }
    }
    room.assert_nothing_left("forking");
}

/// Where a hypervisor keeps base pages of what this kernel maps with huge ones, a store to each may fault once more when a huge
/// page has become writable again, and there is nothing to do. So its parent, whose huge pages are whole, takes more than one
/// fault for each when the child has ended, and without these all is as it must be.
fn faults_for_nothing(cell: &Cell) -> Option<u64> {
    const PAGES: u64 = 4 * 32 * 256;
    let check = &cell.measured.checks[0];
    if cell.key.case != "huge" || check.within {
        return None;
    }
    // The last of its phases (`Phase::Reuse`).
    let again = cell.measured.detail[3]["rusage"]["minor_faults"].as_u64().expect("a count");
    let more = again.saturating_sub(PAGES / 512);
    (more < PAGES / 2 && are_near(check.found - more, check.expected)).then_some(more)
}

/// Within 0.5 % and 400 of each other, as checks of faults are?
fn are_near(ours: u64, theirs: u64) -> bool {
    ours.abs_diff(theirs) * 200 <= theirs + 400 * 200
}

/// One task maps 128 MiB, in 64 tables of base pages or deposits of huge ones; two have twice as many.
#[test]
fn page_tables_are_counted_while_everything_is_mapped() {
    let room = Room::new();
    for (key, cell) in run(&room, &["--target", "sim"]) {
        let tasks: i64 = cell.key.params["tasks"].parse().expect("a number");
        let tables = cell.measured.gauges["nr_page_table_pages"];
        assert!((64 * tasks..=70 * tasks).contains(&tables), "{key:?}: {tables}");
    }
    let without = ["--target", "sim", "--set", "warmup=0", "--set", "tasks=1"];
    assert!(run(&room, &without).values().all(|cell| cell.measured.gauges.is_empty()));
}

#[test]
fn a_result_holds_the_machine_that_was_simulated() {
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "sim", "--format", "json", "--set", "tasks=1", "--set", "page=base"];
    let answer = room.run(&words(&[&run, &["--set", "vm.min_free_kbytes=9000"]])).expect(0);
    let document = Document::parse(&answer.stdout);
    let [system] = document.systems.as_slice() else { panic!("{} systems", document.systems.len()) };
    assert_eq!((system.target, system.machine.as_str(), system.release.as_str()), (Target::Sim, "two-node-2g", "v6.1"));
    assert_eq!(system.settings["vm.min_free_kbytes"], "9000");
    let machine = system.captures["machine"].as_str().expect("a machine file");
    // It is a machine file: the same run on it is the same run.
    let path = room.give("found.toml", machine);
    let again = room.run(&words(&[&run, &["--machine", &path]])).expect(0);
    let measured = |document: &Document| document.cells.iter().map(|cell| cell.measured.clone()).collect::<Vec<_>>();
    assert_eq!(measured(&Document::parse(&again.stdout)), measured(&document));
}

#[test]
fn trace_events_are_lines_beside_the_result() {
    let room = Room::new();
    let run = ["--target", "sim", "--set", "tasks=1", "--set", "page=base", "--set", "model=threads", "--trace"];
    let cells = run_experiment(&room, "fault-storm", &[&run[..], &["-o", "traced"]].concat());
    let files = std::fs::read_dir(room.here().join("traced")).expect("a result").flatten().map(|entry| entry.path());
    let is_its =
        |file: &std::path::PathBuf| file.display().to_string().contains("/trace-two-node-2g-v6.1-base-threads-1-1-");
    let trace = files.into_iter().find(is_its).expect("a trace");
    let trace = std::fs::read_to_string(trace).expect("a trace");
    let lines: Vec<_> = trace.lines().collect();
    // The first page table finds nothing but Movable blocks.
    assert!(
        lines[0].contains(" mm_page_alloc_extfrag: page=0xffffea") && lines[0].contains("fallback_migratetype=1"),
        "{trace}"
    );
    assert!(lines.len() < 100 && lines.iter().all(|line| line.contains("pageblock_order=9")), "{trace}");
    // Watching changes nothing.
    let unwatched = run_experiment(&room, "fault-storm", &run[..run.len() - 1]);
    for (key, cell) in &cells {
        assert_eq!(cell.measured, unwatched[key].measured);
    }
    room.run(&words(&[&["run", "fault-storm", "--target", "host", "--trace"]])).expect(2).says(&["--trace is for"]);
}

/// A machine of 96 MiB with little that its kernel keeps for itself: three quarters of it are below what user pages can have.
const SMALL: &str = "about = 'small'\n[[node]]\nid = 0\nmemory = '96MiB'\ncpus = '0-1'\n";

#[test]
fn a_cell_that_can_be_seen_not_to_fit_is_refused_beforehand() {
    let room = Room::new();
    let path = room.give("small.toml", SMALL);
    let run = ["run", "fault-storm", "--target", "sim", "--machine", &path, "--set", "page=base", "-o", "result"];
    // It fits the cap of three quarters, but not beside what boot keeps.
    let asked = words(&[&run, &["--set", "size=72MiB", "--set", "tasks=1"]]);
    room.run(&asked).expect(2).says(&["base-threads-1 needs 72 MiB", "above its min marks and reserves is"]);
    // Nor does what fits alone when min_free_kbytes takes its part.
    let fits = words(&[&run, &["--set", "size=32MiB", "--set", "tasks=1"]]);
    let marks = words(&[&["--set", "vm.min_free_kbytes=40000"]]);
    room.run(&[fits.clone(), marks].concat()).expect(2).says(&["needs 32 MiB"]);
    room.assert_untouched("what cannot fit");
    room.run(&fits).expect(0);
}

#[test]
fn memory_that_runs_out_ends_the_task_and_says_so() {
    let room = Room::new();
    let path = room.give("small.toml", SMALL);
    let run = ["run", "fault-storm", "--target", "sim", "--machine", &path, "--set", "tasks=1", "--set", "page=base"];
    let with_min_free =
        |kib: u64| room.run(&words(&[&run, &["--set", "size=32MiB", "--set", &format!("vm.min_free_kbytes={kib}")]]));
    // The least that is refused beforehand: just below it the memory fits by the figures, but its page tables do not.
    let (mut fits, mut refused) = (1_000, 40_000);
    while refused - fits > 8 {
        let middle = u64::midpoint(fits, refused);
        let bound = if with_min_free(middle).status.code() == Some(2) { &mut refused } else { &mut fits };
        *bound = middle;
    }
    with_min_free(fits).expect(1).says(&["base-threads-1", "out of memory"]);
}

#[test]
fn settings_reach_the_simulator_or_are_refused() {
    let room = Room::new();
    let never = ["--target", "sim", "--set", "page=huge", "--set", "tasks=1", "--set"];
    let cells = run(&room, &[never.as_slice(), &["transparent_hugepage/enabled=never"]].concat());
    for cell in cells.values() {
        assert_eq!(cell.measured.counters.get("thp_fault_alloc"), Some(&0), "{}", cell.key.case);
        assert_eq!(cell.measured.counters["pgfault"], 262_144, "{}", cell.key.case);
    }
    let answer = room.run(&words(&[&["run", "fault-storm"], &never, &["vm.zone_reclaim_mode=1"]])).expect(2);
    assert!(answer.stderr.contains("the simulator does not model it yet"), "{}", answer.stderr);
}

#[test]
fn a_users_variant_explains_itself_and_is_kept_apart() {
    let room = Room::new();
    let text = |rule: &str| format!("about = 'mine'\nparent = 'v5.10'\n[rules]\n{rule}\n");
    let mine = room.give("mine.toml", text("pcp_batch_limit = '16KiB'"));
    let sets = ["--set", "tasks=1", "--set", "size=8MiB", "--set", "page=base", "-o", "result"];
    let arguments =
        words(&[&["run", "fault-storm", "--target", "sim", "--variant", &mine, "--variant", "v5.10"], &sets]);
    let text_shown = room.run(&[&arguments[..], &["--full".to_owned()]].concat()).expect(0).stdout;
    let head = "sim  mine on two-node-2g, v5.10 with pcp_batch_limit = 16KiB\n";
    assert!(text_shown.contains(head), "{text_shown}");
    assert!(text_shown.contains(" prices are assumed; 0 are the machine's, "), "{text_shown}");
    let cells = Document::parse(&room.run(&["show", "result", "--format", "json"]).expect(0).stdout).cells;
    let [mine_hash, parents_hash] = ["mine", "v5.10"].map(|name| {
        let cell = cells.iter().find(|cell| cell.key.variant == name).expect("a cell of each");
        cell.measured.detail["run_hash"].clone()
    });
    assert_ne!(mine_hash, parents_hash, "a rule that changes nothing");

    // The same name with other rules is another run.
    room.give("mine.toml", text("pcp_batch_limit = '32KiB'"));
    let answer = room.run(&arguments).expect(2);
    assert!(answer.stderr.contains("holds a different run"), "{}", answer.stderr);
    room.give("mine.toml", text("pcp_batch = '32KiB'"));
    let answer = room.run(&arguments).expect(2);
    assert!(answer.stderr.contains("mine.toml:4: rules: unknown rule \"pcp_batch\""), "{}", answer.stderr);
}

#[test]
fn seeds_are_other_runs_of_the_same_counters() {
    let room = Room::new();
    let sets = ["--set", "size=16MiB", "--set", "model=threads", "--set", "iterations=2"];
    let seeds = |directory: &str| {
        let run = ["run", "fault-storm", "--target", "sim", "--seeds", "5", "--format", "json", "-o", directory];
        Document::parse(&room.run(&words(&[&run, &sets])).expect(0).stdout).cells
    };
    let cells = seeds("once");
    assert_eq!(cells.len(), 4 * 5);
    for (cell, again) in cells.iter().zip(seeds("again")) {
        assert_eq!(cell.measured, again.measured, "{:?}", cell.key);
    }
    for first in cells.iter().filter(|cell| cell.key.seed == 1) {
        let of_case = || cells.iter().filter(|cell| cell.key.case == first.key.case);
        let hashes: BTreeSet<_> = of_case().map(|cell| cell.measured.detail["run_hash"].to_string()).collect();
        assert_eq!(hashes.len(), 5, "{}", first.key.case);
        for cell in of_case() {
            for name in ["pgfault", "pgfree", "pgalloc_dma32"] {
                let [ours, theirs] = [cell, first].map(|cell| cell.measured.counters[name].unsigned_abs());
                assert!(are_near(ours, theirs), "{:?} {name}: {ours} or {theirs}", cell.key);
            }
        }
    }
    // And some of them can be looked at alone.
    let show = |seeds| ["show", "once", "--format", "json", "--seeds", seeds];
    let some = Document::parse(&room.run(&show("2-3")).expect(0).stdout).cells;
    let wanted: Vec<_> = cells.into_iter().filter(|cell| (2..=3).contains(&cell.key.seed)).collect();
    assert_eq!(some, wanted);
    for (seeds, lacks) in [("6-9", "no seed 6"), ("4-9", "no seed 6")] {
        let refused = room.run(&show(seeds)).expect(2).stderr;
        assert!(refused.contains("--seeds") && refused.contains(lacks) && refused.contains("1-5"), "{refused}");
    }
}

#[test]
fn several_values_of_a_setting_are_columns() {
    let room = Room::new();
    let set = ["--set", "vm.percpu_pagelist_high_fraction=0,8", "--set", "transparent_hugepage/enabled=never"];
    let run = words(&[
        &["run", "fault-storm", "--target", "sim", "--set", "size=64MiB", "-o", "result", "--full"],
        &set,
        &TINY[..8],
    ]);
    let answer = room.run(&run).expect(0);
    let cells = report::cells(document::whole_records(&room.here().join("result")));
    let kernels: Vec<_> = cells.iter().map(|cell| cell.key.kernel.as_str()).collect();
    let labels = ["v6.1 percpu_pagelist_high_fraction=0", "v6.1 percpu_pagelist_high_fraction=8"];
    assert_eq!(kernels, labels);
    for (cell, value) in cells.iter().zip(["0", "8"]) {
        assert_eq!(cell.key.params["vm.percpu_pagelist_high_fraction"], value);
        assert_eq!(cell.key.params["transparent_hugepage/enabled"], "never");
    }
    let [first, second] = [0, 1].map(|at| &cells[at].measured.detail);
    assert_ne!(first, second, "per-CPU lists of other lengths give another run");
    assert!(labels.iter().all(|label| answer.stdout.contains(label)), "{}", answer.stdout);
    // Going on finds both.
    room.run(&run).expect(0);
    let twice = ["--set", "vm.percpu_pagelist_high_fraction=8,8"];
    let wrong = words(&[&["run", "fault-storm", "--target", "sim"], &twice, &TINY]);
    room.run(&wrong).expect(2).says(&["--set vm.percpu_pagelist_high_fraction: 8 is given twice"]);
}

/// `min_free_kbytes` is divided by managed pages; all marks are of zones that have any.
#[test]
fn marks_of_simulated_zones_are_shown() {
    let room = Room::new();
    let run =
        ["run", "fault-storm", "--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1", "-o", "result"];
    let text = room.run(&words(&[&run, &TINY, &["--set", "vm.min_free_kbytes=20480", "--full"]])).expect(0).stdout;
    let zones =
        text.split_once("Zones of sim v6.1 on one-node-512m\nrules of v6.1; frames of 4 KiB\n").expect("a table").1;
    let marks = zones.lines().skip(1).take_while(|line| line.starts_with("0 ")).map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let mark = |at: usize| fields[at].parse::<u64>().expect("frames");
        assert!(mark(3) < mark(4) && mark(4) < mark(5), "{line}");
        mark(3)
    });
    let sum: u64 = marks.sum();
    assert!((5118..=5120).contains(&sum), "{sum} frames are 20 MiB but for what rounding takes:\n{zones}");
    assert!(zones.contains("min_free_kbytes: 20480\n"), "{zones}");
    let csv = room.run(&["show", "result", "--format", "csv"]).expect(0).stdout;
    let line = "fault-storm,zone.simulated.min_free_kbytes,all,sim:v6.1:one-node-512m,20480,,,";
    assert!(csv.lines().any(|found| found == line), "{csv}");
}

#[test]
fn a_machine_without_distances_is_said_to_be_flat() {
    let room = Room::new();
    let run = ["run", "numa-access", "--target", "sim", "--set", "pattern=sweep", "--set", "policy=bind", "--machine"];
    let said = |machine: &str| room.run(&words(&[&run, &[machine]])).expect(0).stdout;
    let flat = "sim: memory is equally near everywhere: the machine gives no [latency]";
    assert!(said("two-node-2g").lines().any(|line| line == flat));
    assert!(!said("four-socket-8g").contains(flat));
}
