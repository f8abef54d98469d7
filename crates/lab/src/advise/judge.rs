//! The effect of a setting on a goal: runs with it and without, seed by seed.

use std::str::FromStr;

use report::{
    Better, Cell,
    stats::{Pair, paired_interval},
};
use serde::Serialize;

use crate::source::unknown;

/// Changes below this many per cent do not matter.
pub(super) const MATERIAL: f64 = 5.0;
/// Costs that are named of a setting.
const COSTS: usize = 3;
/// Reasons that are named of a setting.
const REASONS: usize = 3;
/// Events that a counter must move by in a run to be a reason.
const EVENTS: f64 = 10.0;
/// A part that stands for nought.
const NOUGHT: f64 = 1e-4;
/// Counters that say what an operation had to wait for.
const STALLS: [&str; 10] = [
    "allocstall_",
    "pgscan_direct",
    "compact_stall",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "thp_fault_fallback",
    "thp_fault_alloc",
    "pswpin",
    "pgscan_kswapd",
    "workingset_refault_file",
];

/// The quantity that a setting is to make better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The median time of an operation that takes memory.
    P50,
    /// The 99th percentile of these times.
    P99,
    /// The longest of them.
    Max,
    /// The 99th percentile of reads of files.
    Reads,
    /// CPU time of all tasks.
    Cpu,
    /// Memory in huge pages.
    Huge,
}

impl Goal {
    /// Each goal with its name and what it is.
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::P50, "p50", "median time of an operation that takes memory"),
        (Self::P99, "p99", "99th percentile of the time of an operation that takes memory"),
        (Self::Max, "max", "longest time of an operation that takes memory"),
        (Self::Reads, "reads", "99th percentile of the time of a read of 128 KiB"),
        (Self::Cpu, "cpu", "CPU time of all tasks"),
        (Self::Huge, "huge", "part of anonymous memory in huge pages"),
    ];

    /// The goal in words.
    pub(super) fn about(self) -> &'static str {
        Self::ALL.iter().find(|(goal, ..)| *goal == self).map_or("", |(.., about)| about)
    }

    /// Is less of it better?
    fn is_lower_better(self) -> bool {
        self != Self::Huge
    }

    /// The value of a run; `taking` is the phase whose operations take memory.
    pub(super) fn value(self, cell: &Cell, taking: &str) -> Option<f64> {
        let latency = |class: &str, parts: &[&str]| {
            let of = |part: &&str| metric(cell, "latency_us", class, part);
            parts.iter().find_map(of)
        };
        match self {
            Self::P50 => latency(taking, &["p50"]),
            // Too few operations for a percentile have a longest one.
            Self::P99 => latency(taking, &["p99", "max"]),
            Self::Max => latency(taking, &["max"]),
            Self::Reads => latency("scan", &["p99", "max"]),
            Self::Cpu => cell.measured.duration.map(|duration| (duration.user_ps + duration.system_ps) as f64 / 1e12),
            Self::Huge => metric(cell, "huge_pct", "service", "serve"),
        }
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
        let found = Self::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(goal, ..)| *goal).ok_or_else(|| unknown("goal", text, &names))
    }
}

fn metric(cell: &Cell, name: &str, class: &str, part: &str) -> Option<f64> {
    let is_it = |metric: &&report::Metric| {
        metric.name == name && metric.class.as_deref() == Some(class) && metric.part.as_deref() == Some(part)
    };
    cell.measured.metrics.iter().find(is_it).and_then(|metric| metric.samples.first().copied())
}

/// A change in per cent, and its 95 % interval with seeds as pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// The change of geometric means.
    pub(super) percent: f64,
    /// The lower end of the interval.
    pub(super) low: f64,
    /// The upper end.
    pub(super) high: f64,
}

impl Change {
    /// Of positive numbers, pair by pair; none with fewer than two pairs.
    fn of(pairs: &[Pair<f64>]) -> Option<Self> {
        let pairs: Vec<Pair<f64>> = pairs
            .iter()
            .filter(|pair| pair.baseline > 0.0)
            // Nought has no logarithm, and a loss of everything is a loss.
            .map(|pair| Pair {
                baseline: libm::log(pair.baseline),
                new: libm::log(pair.new.max(pair.baseline * NOUGHT)),
            })
            .collect();
        let interval = paired_interval(&pairs)?;
        let mean = pairs.iter().map(|pair| pair.new - pair.baseline).sum::<f64>() / pairs.len() as f64;
        let percent = |log: f64| 100.0 * (libm::exp(log) - 1.0);
        Some(Self { percent: percent(mean), low: percent(interval.low), high: percent(interval.high) })
    }

    /// Is it large, and is its sign sure?
    fn is_sure(self) -> bool {
        self.percent.abs() >= MATERIAL && (self.low > 0.0 || self.high < 0.0)
    }
}

/// The effects of a setting that were found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    /// The change of the goal's quantity.
    pub(super) change: Change,
    /// Is it a gain that is large enough and sure?
    pub(super) helps: bool,
    /// Other quantities that get worse: names, and their changes.
    pub(super) costs: Vec<(String, Change)>,
    /// Free memory that it keeps on top, in MiB.
    pub(super) kept_free_mib: f64,
    /// Counters that explain it: names, and events in a run before and with it.
    pub(super) reasons: Vec<(String, f64, f64)>,
    /// The cause of time that fell most: its name, and seconds of all tasks before and with it.
    pub(super) time: Option<(String, f64, f64)>,
}

/// The change of a goal's quantity from the first runs to the second; none where a run has none.
pub(super) fn change(goal: Goal, taking: &str, without: &[Cell], with: &[Cell]) -> Option<Change> {
    Change::of(&pairs(without, with, |cell| goal.value(cell, taking)))
}

/// How much better the goal gets, in per cent of the quantity.
pub(super) fn gain(goal: Goal, change: Change) -> f64 {
    if goal.is_lower_better() { -change.percent } else { change.percent }
}

/// All that is found of a setting by runs without it and with it.
pub(super) fn finding(goal: Goal, taking: &str, without: &[Cell], with: &[Cell]) -> Option<Finding> {
    let change = change(goal, taking, without, with)?;
    let free = |cell: &Cell| cell.measured.memory.map_or(0.0, |memory| memory.free_mean as f64 / 256.0);
    let reason = |name: &&str| {
        let of = |cell: &Cell| super::demand::sum(&cell.measured.counters, name);
        let (before, after) = (mean(without, of), mean(with, of));
        let moved = (after - before).abs();
        (moved >= EVENTS && moved >= 0.2 * before).then(|| ((*name).trim_end_matches('_').to_owned(), before, after))
    };
    Some(Finding {
        change,
        helps: change.is_sure() && gain(goal, change) > 0.0,
        costs: costs(goal, taking, without, with),
        kept_free_mib: mean(with, free) - mean(without, free),
        reasons: STALLS.iter().filter_map(reason).take(REASONS).collect(),
        time: time(without, with),
    })
}

/// Quantities beside the goal's that get worse for sure, the worst first.
fn costs(goal: Goal, taking: &str, without: &[Cell], with: &[Cell]) -> Vec<(String, Change)> {
    let Some(first) = without.first() else { return Vec::new() };
    let mut costs: Vec<(String, Change)> = Vec::new();
    for of in first.measured.metrics.iter().filter(|metric| metric.better != Better::None) {
        let (class, part) = (of.class.as_deref().unwrap_or(""), of.part.as_deref().unwrap_or(""));
        let is_tail = !["p50", "p99", "reached", "serve"].contains(&part);
        if is_tail || (class == taking && matches!(goal, Goal::P50 | Goal::P99 | Goal::Max)) {
            continue;
        }
        let change = Change::of(&pairs(without, with, |cell| metric(cell, &of.name, class, part)));
        let is_worse = |change: &Change| (change.percent > 0.0) == (of.better == Better::Lower);
        costs.extend(change.filter(|change| change.is_sure() && is_worse(change)).map(|change| (named(of), change)));
    }
    if goal != Goal::Cpu {
        let change = change(Goal::Cpu, taking, without, with);
        costs.extend(
            change
                .filter(|change| change.is_sure() && change.percent > 0.0)
                .map(|change| ("CPU time".to_owned(), change)),
        );
    }
    costs.sort_by(|a, b| b.1.percent.abs().total_cmp(&a.1.percent.abs()));
    costs.truncate(COSTS);
    costs
}

fn named(metric: &report::Metric) -> String {
    let words = [metric.class.as_deref(), metric.part.as_deref()];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    let what = if metric.name == "huge_pct" { "huge pages of " } else { "" };
    format!("{what}{}", words.join("-"))
}

/// The mean of a number over runs.
fn mean(cells: &[Cell], of: impl Fn(&Cell) -> f64) -> f64 {
    cells.iter().map(of).sum::<f64>() / cells.len().max(1) as f64
}

/// Values of both sides by seed.
fn pairs(without: &[Cell], with: &[Cell], value: impl Fn(&Cell) -> Option<f64>) -> Vec<Pair<f64>> {
    let pair = |new: &Cell| {
        let old = without.iter().find(|old| old.key.seed == new.key.seed)?;
        Some(Pair { baseline: value(old)?, new: value(new)? })
    };
    with.iter().filter_map(pair).collect()
}

fn time(without: &[Cell], with: &[Cell]) -> Option<(String, f64, f64)> {
    let seconds = |cells: &[Cell], cause: &str| {
        mean(cells, |cell| cell.measured.causes.get(cause).copied().unwrap_or(0) as f64 / 1e12)
    };
    let causes = without.iter().flat_map(|cell| cell.measured.causes.keys());
    let of = |cause: &String| (cause.clone(), seconds(without, cause), seconds(with, cause));
    let fell = causes.map(of).max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
    // A cause that falls by less than a hundredth of a second in a run explains nothing.
    (fell.1 - fell.2 >= 0.01).then_some(fell)
}
