//! Workloads that need files, and those that mean to fill memory: on this machine with little of it, and in a guest.

use std::fs;

use report::{Cell, Metric, Target};

use crate::support::{document::Document, guests, room::Room, words};

const HOST: [&str; 4] = ["--target", "host", "--format", "json"];
const GUEST: [&str; 8] = ["--target", "vm", "--accel", "tcg", "--machine", "one-node-512m", "--format", "json"];

fn run(room: &Room, parts: &[&[&str]]) -> Vec<Cell> {
    let document = Document::parse(&room.run(&words(parts)).expect(0).stdout);
    assert_eq!(document.missing, 0);
    document.cells
}

fn samples<'a>(cell: &'a Cell, name: &str, class: &str) -> &'a [f64] {
    let is_it = |metric: &&Metric| metric.name == name && metric.class.as_deref() == Some(class);
    let found = cell.measured.metrics.iter().find(is_it);
    &found.unwrap_or_else(|| panic!("{name} {class} in {:?}", cell.measured.metrics)).samples
}

/// Whether the cell says that it left this out.
fn lacks(cell: &Cell, what: &str) -> bool {
    cell.measured.skipped.iter().any(|skip| skip.what == what)
}

const SMALL: [&str; 6] = ["--set", "tasks=1,2", "--set", "iterations=2", "--set", "size=4MiB"];

/// Each store into a fresh mapping takes one fault, whether it copies a page or makes one writable.
fn check_page_faults(cells: &[Cell]) {
    let cases: Vec<_> = cells.iter().map(|cell| cell.key.case.as_str()).collect();
    assert_eq!(cases, ["threads-1", "threads-2", "processes-1", "processes-2"]);
    for cell in cells {
        let tasks: u64 = cell.key.params["tasks"].parse().unwrap();
        let check = &cell.measured.checks[0];
        assert_eq!((check.name.as_str(), check.expected), ("faults by getrusage", tasks * 2 * 1024));
        assert!(check.within, "{}: {check:?}", cell.key.case);
    }
}

#[test]
fn host_faults_in_mappings_of_files() {
    for workload in ["page-fault2", "page-fault3"] {
        let room = Room::new();
        check_page_faults(&run(&room, &[&["run", workload], &HOST, &SMALL]));
        room.assert_nothing_left(workload);
    }
}

#[test]
fn vm_faults_in_mappings_of_files() {
    let Some(_turn) = guests::turn("vm_faults_in_mappings_of_files") else { return };
    let room = Room::new();
    check_page_faults(&run(&room, &[&["run", "page-fault2"], &GUEST, &SMALL]));
    room.assert_nothing_left("page-fault2 in a guest");
}

/// On this machine, with no more memory than is said, and without a change of what is everybody's.
#[test]
fn host_runs_what_fills_memory_in_little_of_it() {
    let little = ["--memory", "64MiB"];
    let room = Room::new();
    let [scale] = run(&room, &[&["run", "thpscale", "--set", "threads=2"], &HOST, &little]).try_into().unwrap();
    // 80 % of 64 MiB is 51; 12 whole blocks for each thread, of which it faults 6.
    assert_eq!(samples(&scale, "fault_latency_us", "fault-both").len(), 12);
    let classes = ["fault-base", "fault-huge"].map(|class| samples(&scale, "fault_latency_us", class).len());
    assert_eq!(classes[0] + classes[1], 12);
    let share = 100.0 * classes[1] as f64 / 12.0;
    assert!((samples(&scale, "thp_success_pct", "huge")[0] - share).abs() < 1e-9);
    assert_eq!(samples(&scale, "init_latency_us", "anoninit").len(), 2);
    assert_eq!(samples(&scale, "init_latency_us", "fileinit").len(), 2);
    assert!(lacks(&scale, "drop_caches"), "{:?}", scale.measured.skipped);
    // Whoever may not use tracefs hears why.
    assert_ne!(
        lacks(&scale, "mm_page_alloc_extfrag"),
        scale.measured.extfrag.is_some(),
        "{:?}",
        scale.measured.skipped
    );
    assert_eq!(scale.measured.checks, [], "nobody knows how often reclaimed pages fault again");
    room.assert_nothing_left("thpscale");

    let small = ["--set", "advise=yes", "--set", "size=8MiB"];
    let [aged] = run(&room, &[&["run", "aged-fault"], &HOST, &little, &small]).try_into().unwrap();
    assert_eq!(samples(&aged, "fault_latency_us", "fault-both").len(), 4);
    let files = ["--set", "file=4KiB,64KiB", "--set", "total=8MiB", "--set", "size=8MiB"];
    let cells = run(&room, &[&["run", "small-files"], &HOST, &little, &files]);
    let cases: Vec<_> = cells.iter().map(|cell| cell.key.case.as_str()).collect();
    assert_eq!(cases, ["4k-4", "64k-4"]);
    for cell in &cells {
        assert_eq!(samples(cell, "fault_latency_us", "fault-both").len(), 4);
    }
    room.assert_nothing_left("small files");
}

/// Aged memory, then steps of files and of a block each.
#[test]
fn slab_churn_goes_by_steps() {
    let room = Room::new();
    let host = run(&room, &[&["run", "slab-churn"], &HOST, &["--memory", "64MiB", "--set", "size=8MiB", "-o", "host"]]);
    assert_eq!(samples(&host[0], "fault_latency_us", "fault-both").len(), 4);
    let boost = ["--set", "vm.watermark_boost_factor=0,15000", "--set", "total=20%", "--set", "size=20%", "-o", "sim"];
    let sim = ["run", "slab-churn", "--machine", "one-node-512m", "--target", "sim", "--format", "json"];
    let cells = run(&room, &[&sim, &boost]);
    assert_eq!(cells.len(), 2);
    let reclaimed = |cell: &Cell| cell.measured.counters.get("pgsteal_kswapd").copied().unwrap_or(0);
    let of = |factor: &str| {
        let columns = cells.iter().filter(|cell| cell.key.params["vm.watermark_boost_factor"] == factor);
        columns.map(reclaimed).sum::<i64>()
    };
    assert!(of("15000") > of("0"), "kswapd works ahead where marks are raised: {} and {}", of("15000"), of("0"));
    for cell in &cells {
        let blocks = samples(cell, "fault_latency_us", "fault-both").len();
        assert!((44..=51).contains(&blocks), "{blocks} blocks in a fifth of what is managed of 512 MiB");
        assert!(cell.measured.extfrag.is_some() && cell.measured.counters["nr_dirtied"] >= 23_000);
    }
}

/// A kernel is built with one slab allocator or the other: each is a column.
#[test]
fn slab_churn_has_the_slab_allocator_that_is_asked_for() {
    let room = Room::new();
    let sim = ["run", "slab-churn", "--machine", "one-node-512m", "--target", "sim", "--variant", "v4.20"];
    let few = ["--set", "total=20%", "--set", "size=20%", "--format", "json", "-o", "sim"];
    let cells = run(&room, &[&sim, &few, &["--set", "slab.allocator=slab,slub"]]);
    let hash = |allocator: &str| {
        let mut columns = cells.iter().filter(|cell| cell.key.params["slab.allocator"] == allocator);
        columns.next().expect("a column of it").measured.detail["run_hash"].clone()
    };
    assert_eq!(cells.len(), 2);
    assert_ne!(hash("slab"), hash("slub"));
    let new = ["run", "slab-churn", "--machine", "one-node-512m", "--target", "sim", "--variant", "v6.10"];
    room.run(&words(&[&new, &["--set", "slab.allocator=slab"]]))
        .expect(2)
        .says(&["slab.allocator=slab: kernels with these rules can be built with SLUB alone; SLAB went with 6.8"]);
}

/// A guest of 512 MiB is full before the timed faults begin, and has to scan, to swap and to split.
#[test]
fn vm_thpscale_fills_memory() {
    let Some(_turn) = guests::turn("vm_thpscale_fills_memory") else { return };
    let room = Room::new();
    let [cell] = run(&room, &[&["run", "thpscale", "--set", "threads=1"], &GUEST]).try_into().unwrap();
    assert_eq!(cell.key.target, Target::Vm);
    let blocks = samples(&cell, "fault_latency_us", "fault-both").len();
    assert!((85..=100).contains(&blocks), "{blocks} blocks in 40 % of what the kernel manages of 512 MiB");
    let moved = |name: &str| cell.measured.counters.get(name).copied().unwrap_or(0);
    // Half of every huge page of the first mapping was unmapped.
    assert!(moved("thp_fault_alloc") >= 150 && moved("thp_split_pmd") >= 150, "{:?}", cell.measured.counters);
    assert!(moved("pgscan_direct") + moved("pgscan_kswapd") > 1_000, "{:?}", cell.measured.counters);
    assert_eq!(cell.measured.skipped, [], "6.1 drops caches and has histograms");
    let extfrag = cell.measured.extfrag.as_ref().expect("they were counted");
    let all: u64 = extfrag.events.iter().map(|events| events.count).sum();
    let in_window: u64 = extfrag.window.iter().map(|events| events.count).sum();
    // Every kernel takes its first blocks of each type from movable ones.
    assert!(all > 0 && in_window <= all && extfrag.lost == 0, "{extfrag:?}");
    room.assert_nothing_left("thpscale in a guest");
}

/// The same benchmark of files beside each other on this machine and in the simulator.
#[test]
fn sim_has_files_too() {
    let room = Room::new();
    let both = ["run", "page-fault2", "--target", "host", "--target", "sim", "--format", "json", "-o", "both"];
    let small = ["--set", "tasks=1", "--set", "iterations=1", "--set", "size=2MiB", "--set", "model=threads"];
    let document = Document::parse(&room.run(&words(&[&both, &small])).expect(0).stdout);
    assert_eq!((document.cells.len(), document.missing, document.skipped.len()), (2, 0, 0));
    let mut targets: Vec<Target> = document.cells.iter().map(|cell| cell.key.target).collect();
    targets.dedup();
    assert_eq!(targets, [Target::Host, Target::Sim]);
    assert_eq!(fs::read_dir(room.here()).unwrap().count(), 1, "only the result is in the working directory");
}

/// Small files are written and read, and as many threads as were asked for fault blocks beside that.
#[test]
fn sim_thpfioscale_faults_beside_readers() {
    let room = Room::new();
    let it = ["run", "thpfioscale", "--machine", "one-node-512m", "--format", "json", "--set", "total=110%"];
    let cells = run(&room, &[&it, &["--set", "threads=2", "--set", "jobs=2", "--set", "advise=no,yes", "-o", "r"]]);
    assert_eq!(cells.len(), 2);
    for cell in &cells {
        let both = cell.measured.metrics.iter().find(|metric| metric.class.as_deref() == Some("fault-both")).unwrap();
        // Of three quarters of memory, half.
        assert!(both.part.as_deref() == Some("2") && (80..96).contains(&both.samples.len()), "{}", both.samples.len());
        assert!(cell.measured.counters["pgpgin"] > 0 && cell.measured.extfrag.is_some());
    }
    let few = room.run(&words(&[&it, &["-o", "few"]])).expect(2).stderr;
    assert!(few.contains("2 CPUs are too few: --set threads=1"), "{few}");
}

/// An hour is an hour, and each ends with a probe: of how many blocks are huge, and of how mixed memory is.
#[test]
fn sim_week_probes_every_hour() {
    let room = Room::new();
    let it =
        ["run", "week", "--machine", "one-node-512m", "--variant", "v4.20", "--format", "json", "--set", "hours=2"];
    let cells = run(&room, &[&it, &["--set", "advise=no,yes", "-o", "r"]]);
    assert_eq!(cells.len(), 2);
    for cell in &cells {
        let measured = &cell.measured;
        let rows = |name: &str| {
            let rows = measured.metrics.iter().filter(|metric| metric.name == name);
            rows.map(|metric| (metric.part.as_deref().unwrap(), metric.samples[0])).collect::<Vec<_>>()
        };
        let huge = rows("thp_success_pct");
        assert_eq!(huge.iter().map(|(part, _)| *part).collect::<Vec<_>>(), ["1", "2"]);
        assert!(huge[0].1 > 90.0, "memory is hardly mixed yet: {huge:?}");
        let unmovable = rows("unmovable_frames_pct");
        assert!(unmovable.iter().all(|(_, share)| *share > 1.0), "files have inodes: {unmovable:?}");
        assert_eq!(rows("mixed_pageblocks_pct").len(), 2);
        assert_eq!(measured.duration.unwrap().elapsed_ps / 1_000_000_000_000, 7200);
        assert!(measured.counters["pgpgin"] > 0 && measured.extfrag.is_some());
    }
    let none = ["run", "week", "--set", "hours=0"];
    room.run(&words(&[&none])).expect(2).says(&["hours: expected a whole number from 1 to 168, found \"0\""]);
    let all = ["run", "week", "--machine", "one-node-512m", "--set", "size=1000%"];
    room.run(&words(&[&all])).expect(2).says(&["24h needs ", "memory and swap of the machine is"]);
}
