//! A profile held against the machine whose demand it is: counters of both, each second.

use report::Cell;
use serde::Serialize;

use super::{demand::sum, files::Observed};

/// Less than these events in a run are none: what they come to is luck.
const EVENTS: f64 = 10.0;
/// How near counters of faults and allocations have to be: a tenth.
const NEAR: f64 = 0.1;
/// How near counters of reclaim and compaction have to be, as for real kernels (`fidelity`): a factor.
const FACTOR: f64 = 2.0;

/// Counters of faults and allocations; a name that ends with `_` stands for all zones.
const FAULTS: [&str; 4] = ["pgfault", "thp_fault_alloc", "pgalloc_", "pgfree"];
/// Counters of what memory management has to do for them.
const WORK: [&str; 22] = [
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "allocstall_",
    "kswapd_low_wmark_hit_quickly",
    "kswapd_high_wmark_hit_quickly",
    "pageoutrun",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_isolated",
    "compact_daemon_wake",
    "pswpin",
    "pswpout",
    "thp_fault_fallback",
    "thp_split_page",
    "thp_collapse_alloc",
    "workingset_refault_file",
    "slabs_scanned",
];

/// A counter of the machine and of its profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Held {
    /// The counter; `pgalloc_` stands for all zones.
    pub(super) name: &'static str,
    /// Events of the machine each second.
    pub(super) observed: f64,
    /// Events of the profile each second.
    pub(super) ours: f64,
    /// Is that near enough?
    pub(super) holds: bool,
}

/// A profile beside the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Replay {
    /// Counters that either has.
    pub(super) counters: Vec<Held>,
    /// Per cent of them that are near enough.
    pub(super) share: f64,
    /// Mean distance of logarithms, for choosing among profiles.
    pub(super) distance: f64,
}

/// Compares the means of these cells with what was observed.
pub(super) fn replay(observed: &Observed, cells: &[Cell]) -> Replay {
    let rates = |name: &'static str| {
        let of_cell = |cell: &Cell| {
            let seconds = cell.measured.duration.map_or(0.0, |duration| duration.elapsed_ps as f64 / 1e12);
            (seconds > 0.0).then(|| (sum_of(&cell.measured.counters, name) / seconds, seconds))
        };
        let all: Vec<(f64, f64)> = cells.iter().filter_map(of_cell).collect();
        let runs = all.len().max(1) as f64;
        let (rate, seconds) = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (rate / runs, seconds / runs)
    };
    let held = |name: &'static str| {
        let observed_rate = sum_of(&observed.moved, name) / observed.seconds;
        let (ours, seconds) = rates(name);
        // A machine's few events are few in the time of a run too.
        let is_there = |rate: f64| rate * seconds.max(1.0) >= EVENTS;
        if !is_there(observed_rate) && !is_there(ours) {
            return None;
        }
        let (least, most) = (observed_rate.min(ours), observed_rate.max(ours));
        let holds = if FAULTS.contains(&name) { most - least <= NEAR * observed_rate } else { most <= FACTOR * least };
        Some(Held { name, observed: observed_rate, ours, holds })
    };
    let counters: Vec<Held> = FAULTS.into_iter().chain(WORK).filter_map(held).collect();
    let holding = counters.iter().filter(|held| held.holds).count();
    let share = if counters.is_empty() { 0.0 } else { 100.0 * holding as f64 / counters.len() as f64 };
    let apart = |held: &Held| libm::log((held.ours + 1.0) / (held.observed + 1.0)).abs();
    let distance = counters.iter().map(apart).sum::<f64>() / counters.len().max(1) as f64;
    Replay { counters, share, distance }
}

/// Kernels up to 4.9 count stalls of all zones together.
fn sum_of(moved: &std::collections::BTreeMap<String, i64>, name: &str) -> f64 {
    let also = if name == "allocstall_" { sum(moved, "allocstall") } else { 0.0 };
    sum(moved, name) + also
}
