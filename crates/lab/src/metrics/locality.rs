//! Metrics of the workloads that ask where huge pages come from: times, where memory ended, and what the kernel counted.

use report::{Better, Metric, OF_ALL_CASES};
use workloads::{Outcome, TaskOutcome};

use super::metric::{GIB, metric};

/// Counters of the table, each the sum of some /proc/vmstat counters, which some kernels have by zone.
const COUNTERS: [(&str, &[&str]); 11] = [
    ("compact_stall", &["compact_stall"]),
    ("compact_fail", &["compact_fail"]),
    ("compact_success", &["compact_success"]),
    ("skipped", &[SKIPPED]),
    ("deferred", &[DEFERRED]),
    ("allocstall", &["allocstall", "allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable"]),
    ("pgscan", &["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged"]),
    ("pgsteal", &["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged"]),
    ("pswpout", &["pswpout"]),
    ("thp_fault_alloc", &["thp_fault_alloc"]),
    ("thp_fault_fallback", &["thp_fault_fallback"]),
];
/// Attempts to compact that did not begin: too little free memory, and too many failures before. The simulator alone counts them.
const SKIPPED: &str = "sim_compact_skipped";
const DEFERRED: &str = "sim_compact_deferred";

/// Of vm-larger-than-a-node, under the names of the published table.
pub(super) fn vm(case: &str, outcome: &Outcome) -> Vec<Metric> {
    let tasks = &outcome.tasks;
    let seconds = |task: &TaskOutcome| task.end.since(task.start).as_secs_f64();
    let gib = |task: &TaskOutcome| task.stores as f64 * BASE_PAGE / GIB;
    let mut metrics = vec![
        part("seconds", case, "s", Better::Lower, tasks.iter().map(seconds).collect()),
        part("gb_per_s", case, "GiB/s", Better::Higher, tasks.iter().map(|task| gib(task) / seconds(task)).collect()),
    ];
    metrics.extend(places(case, outcome));
    metrics.extend(counters(case, outcome));
    metrics
}

/// Of fragmented-fault.
pub(super) fn fragmented(case: &str, outcome: &Outcome) -> Vec<Metric> {
    let seconds = |task: &TaskOutcome| task.blocks.iter().map(|block| block.latency.as_secs_f64()).sum();
    let mut metrics = vec![part("seconds", case, "s", Better::Lower, outcome.tasks.iter().map(seconds).collect())];
    metrics.extend(places(case, outcome));
    metrics.extend(counters(case, outcome));
    for attempts in outcome.tasks.iter().filter_map(|task| task.deferral) {
        let of =
            |name: &str, case: &str, unit: &str, value: u64| part(name, case, unit, Better::None, vec![value as f64]);
        metrics.push(of("max_deferred_allocations", "compaction deferral threshold", "attempts", attempts));
        metrics.push(of("mb_before_recompaction", "threshold x 2MB", "MB", 2 * attempts));
    }
    metrics
}

const BASE_PAGE: f64 = 4096.0;

/// KiB by node and page size, and the parts that are huge and on the first node.
fn places(case: &str, outcome: &Outcome) -> Vec<Metric> {
    let mut sizes: std::collections::BTreeMap<(units::NodeId, bool), u64> = std::collections::BTreeMap::new();
    for place in outcome.tasks.iter().filter_map(|task| task.places.as_ref()).flatten() {
        *sizes.entry((place.node, place.is_huge)).or_default() += place.size.0 / 1024;
    }
    let all: u64 = sizes.values().sum();
    if all == 0 {
        return Vec::new();
    }
    let share = |name: &str, of: fn(&(units::NodeId, bool)) -> bool| {
        let kib: u64 = sizes.iter().filter(|(place, _)| of(place)).map(|(_, kib)| kib).sum();
        part(name, case, "pct", Better::None, vec![100.0 * kib as f64 / all as f64])
    };
    let of_place = |((node, is_huge), kib): (&(units::NodeId, bool), &u64)| {
        let name = format!("node{node}-{}.memory_kib", if *is_huge { "2M" } else { "4k" });
        part(&name, case, "KiB", Better::None, vec![*kib as f64])
    };
    let shares = [share("huge_pct", |(_, is_huge)| *is_huge), share("node0_pct", |(node, _)| node.0 == 0)];
    shares.into_iter().chain(sizes.iter().map(of_place)).collect()
}

/// Counters of the run; those that a kernel lacks are left out.
fn counters(case: &str, outcome: &Outcome) -> Vec<Metric> {
    let moved = |names: &[&str]| {
        let found: Vec<i64> = names.iter().filter_map(|name| outcome.counters.get(*name)).copied().collect();
        (!found.is_empty()).then(|| found.iter().sum::<i64>() as f64)
    };
    let of = |name: &str, case: &str, times: f64| part(name, case, "times", Better::None, vec![times]);
    let all = COUNTERS.iter().filter_map(|(name, names)| Some(of(&format!("{name}.counter"), case, moved(names)?)));
    // Of all sizes together, as the claim about them has it.
    let reasons = [("compaction skipped", SKIPPED), ("compaction deferred", DEFERRED)];
    let reasons = reasons.iter().filter_map(|(case, name)| Some(of(OF_ALL_CASES, case, moved(&[name])?)));
    all.chain(reasons).collect()
}

fn part(name: &str, case: &str, unit: &str, better: Better, samples: Vec<f64>) -> Metric {
    Metric { part: Some(case.to_owned()), ..metric(name, unit, better, samples) }
}
