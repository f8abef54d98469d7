//! The memory of a virtual machine larger than a node, in the simulator and in a guest; faults among holes; memory policies
//! of any workload; and what is refused.

use report::Cell;

use crate::support::{document::Document, guests, room::Room, words};

fn run(room: &Room, parts: &[&[&str]]) -> Vec<Cell> {
    let document = Document::parse(&room.run(&words(parts)).expect(0).stdout);
    assert_eq!(document.missing, 0);
    document.cells
}

/// The value of a metric; zero where there was nothing of the kind.
fn value(cell: &Cell, name: &str) -> f64 {
    let metric = cell.measured.metrics.iter().find(|metric| metric.name == name);
    metric.map_or(0.0, |metric| metric.samples[0])
}

/// Whole numbers that went through a table.
fn is(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.5
}

/// KiB by node and page size.
fn places(cell: &Cell) -> [f64; 4] {
    ["node0-4k", "node0-2M", "node1-4k", "node1-2M"].map(|place| value(cell, &format!("{place}.memory_kib")))
}

const VM: [&str; 6] = ["run", "vm-larger-than-a-node", "--machine", "two-node-2g", "--format", "json"];

#[test]
fn policies_say_where_the_memory_of_a_guest_ends() {
    let room = Room::new();
    let variants = ["--variant", "v4.18", "--variant", "v4.18+1", "--variant", "v4.18+2"];
    let cells = run(&room, &[&VM, &variants, &["--target", "sim", "--set", "size=1200MiB"]]);
    let [vanilla, relaxed, compact] = &cells[..] else { panic!("{} cells", cells.len()) };
    for cell in &cells {
        // Reclaim unmaps pinned base pages, and can do no more: they are in the swap cache then.
        let mib = places(cell).iter().sum::<f64>() / 1024.0;
        assert!((1190.0..=1200.0).contains(&mib), "{}: {mib} MiB", cell.key.kernel);
    }
    // Huge pages of the own node, then base pages of the other one; or huge pages of both.
    for cell in [vanilla, compact] {
        let [_, huge, far, far_huge] = places(cell);
        assert!(huge > 900.0 * 1024.0 && far > 100.0 * 1024.0 && is(far_huge, 0.0), "{:?}", places(cell));
    }
    assert!(is(value(relaxed, "huge_pct"), 100.0));
    assert!(places(relaxed)[3] > 0.0);
    // One reclaims its node for each huge page it lacks, in vain: compaction does not begin, so it is never deferred.
    assert!(value(vanilla, "allocstall.counter") >= value(vanilla, "thp_fault_fallback.counter"));
    assert!(value(vanilla, "pgscan.counter") > 0.0 && is(value(vanilla, "pgsteal.counter"), 0.0));
    assert!(value(vanilla, "skipped.counter") > 0.0 && is(value(vanilla, "deferred.counter"), 0.0));
    for cell in [relaxed, compact] {
        assert!(is(value(cell, "allocstall.counter"), 0.0), "{}", cell.key.kernel);
        assert!(value(cell, "seconds") < value(vanilla, "seconds"));
    }
}

#[test]
fn vm_a_real_kernel_says_where_the_memory_of_a_guest_ends() {
    let Some(_turn) = guests::turn("vm_a_real_kernel_says_where_the_memory_of_a_guest_ends") else { return };
    let room = Room::new();
    let cells = run(&room, &[&VM, &["--target", "vm", "--accel", "tcg", "--kernel", "6.1", "--set", "size=1200MiB"]]);
    let [cell] = &cells[..] else { panic!("{} cells", cells.len()) };
    assert!(is(places(cell).iter().sum(), 1200.0 * 1024.0), "{:?}: {:?}", places(cell), cell.measured.skipped);
    let [_, huge, _, far_huge] = places(cell);
    // 6.1 takes huge pages of the other node where its own has none; the rest of the system has few.
    assert!(far_huge > 100.0 * 1024.0, "{:?}", places(cell));
    let faults = value(cell, "thp_fault_alloc.counter") * 2048.0;
    assert!((huge + far_huge..huge + far_huge + 32.0 * 1024.0).contains(&faults), "{faults} KiB, {:?}", places(cell));
}

#[test]
fn compaction_is_deferred_for_64_attempts() {
    let room = Room::new();
    let region = ["--set", "program=region", "--set", "fragmented=all", "--set", "deferral=yes", "--set", "cpus=1"];
    let sim = ["run", "vm-larger-than-a-node", "--target", "sim", "--machine", "two-node-2g", "--variant", "v4.18"];
    let cells = run(&room, &[&sim, &region, &["--set", "size=400MiB", "--format", "json"]]);
    assert!(is(value(&cells[0], "max_deferred_allocations"), 64.0));
    assert!(is(value(&cells[0], "mb_before_recompaction"), 128.0));
    assert!(is(value(&cells[0], "huge_pct"), 0.0), "no block is free among the holes");
    assert!(is(value(&cells[0], "node0_pct"), 0.0));
}

/// Each policy with each value: an advised region among holes, small enough for every value to pass.
#[test]
fn every_policy_has_every_value_of_defrag() {
    const POLICIES: [&str; 12] = ["", "+1", "+2", "+3", "+4", "+5", "+6", "+6,7", "+8", "+9", "+10", "+11"];
    const VALUES: [&str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];
    let room = Room::new();
    let variants: Vec<String> = POLICIES.iter().map(|patch| format!("v4.18{patch}")).collect();
    let variants: Vec<&str> = variants.iter().flat_map(|variant| ["--variant", variant]).collect();
    let set = format!("transparent_hugepage/defrag={}", VALUES.join(","));
    let region = ["--set", "program=region", "--set", "size=64MiB", "--set", "fragmented=local", "--set", &set];
    let cells = run(&room, &[&VM, &["--target", "sim"], &variants, &region]);
    assert_eq!(cells.len(), POLICIES.len() * VALUES.len());
    let count = |cell: &Cell, prefix: &str| -> i64 {
        cell.measured.counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, times)| times).sum()
    };
    for cell in &cells {
        let (variant, defrag) = (cell.key.variant.as_str(), cell.key.params["transparent_hugepage/defrag"].as_str());
        let context = format!("{variant} with {defrag}");
        let [stalls, compactions, kswapd] =
            ["allocstall", "compact_stall", "pgscan_kswapd"].map(|name| count(cell, name));
        // Advised, it waits for memory with all but these two.
        let may_wait = !["defer", "never"].contains(&defrag);
        assert!(may_wait || stalls + compactions == 0, "{context}");
        // Any node, if none is free on the own one: the fast path alone, and advice that accepts remote memory.
        let is_anywhere = ["v4.18+5", "v4.18+8"].contains(&variant) || (variant == "v4.18+1" && may_wait);
        let is_huge_far = is(value(cell, "huge_pct"), 100.0) && is(value(cell, "node0_pct"), 0.0);
        assert_eq!(is_huge_far, is_anywhere || (variant.starts_with("v4.18+6") && is_huge_far), "{context}");
        let reclaims = ["v4.18", "v4.18+4", "v4.18+10"].contains(&variant);
        assert!(!(reclaims && may_wait) || stalls > 0, "{context}");
        assert!(!["v4.18+2", "v4.18+3", "v4.18+11"].contains(&variant) || !may_wait || compactions == 32, "{context}");
        // Only `defer` has kswapd make room, where the own node alone is asked.
        assert_eq!(kswapd > 0, defrag == "defer" && !is_anywhere, "{context}");
    }
    for (variant, value, expected) in [("v4.4", "defer", "defer"), ("v4.18", "sometimes", "sometimes")] {
        let set = format!("transparent_hugepage/defrag={value}");
        let stderr =
            room.run(&words(&[&VM, &["--target", "sim", "--variant", variant, "--set", &set]])).expect(2).stderr;
        assert!(stderr.contains(expected) && stderr.trim_end().lines().count() == 1, "{set}: {stderr}");
    }
}

#[test]
fn any_workload_has_a_memory_policy() {
    let room = Room::new();
    let small = ["--set", "tasks=1", "--set", "iterations=1", "--set", "page=base", "--set", "model=threads"];
    let sim = ["run", "fault-storm", "--target", "sim", "--machine", "two-node-2g", "--format", "json"];
    let cells = run(&room, &[&sim, &small, &["--set", "policy=default,bind:1,interleave"]]);
    let far: Vec<i64> =
        cells.iter().map(|cell| cell.measured.counters.get("numa_other").copied().unwrap_or(0)).collect();
    let pages = 128 * 256;
    assert!(far[0] < 100 && far[1] > pages && (pages / 2..pages / 2 * 3).contains(&far[2]), "{far:?}");
}

#[test]
fn what_cannot_be_is_one_message() {
    let room = Room::new();
    for (set, expected) in [
        (
            "size=3GiB",
            "size: 3072 MiB are to be pinned, and the memory of the run is 2048 MiB: expected less, or pin=no",
        ),
        ("cpus=5", "machine two-node-2g: cpus: the machine has no node 5 with CPUs (nodes with CPUs: 0, 1)"),
        ("policy=preferred:7", "policy: the machine has no node 7 with memory (nodes with memory: 0, 1)"),
        ("policy=bind", "policy: expected \"default\", \"interleave\", or"),
        ("drop_caches=no", "drop_caches: expected \"auto\" or \"yes\""),
        ("regions=3", "--set regions: is there only with program = region"),
        ("program=guest", "program: expected \"vm\" (vm-larger-than-a-node) or \"region\""),
    ] {
        let stderr = room.run(&words(&[&VM, &["--target", "sim", "--set", set]])).expect(2).stderr;
        assert!(stderr.contains(expected) && stderr.trim_end().lines().count() == 1, "{set}: {stderr}");
    }
}
