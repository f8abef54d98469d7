//! How far the simulator is from a real kernel, cell by cell and counter by counter.
//!
//! A *cell* is one workload with its parameters on one kind of guest, run several times on both sides: each run of the kernel
//! is perturbed (another seed, another rate of time), and the simulated run of the same seed starts from the memory that this
//! kernel had. What is compared are means over the runs; how far they may be apart follows from the class of the counter in
//! that cell ([`class`]). A counter with fewer than [`EVENTS_MIN`] events on both sides says nothing and is left out.
//!
//! A cell is *contended* when the kernel's own runs do not agree on the share of huge pages: a standard deviation of more
//! than [`class::CLEAR_POINTS`] points. Else it is *clear*.

pub mod cells;
pub mod class;
pub mod draw;
pub mod drawn;
pub mod rank;
pub mod results;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};

use report::{Measured, stats};
use serde::{Deserialize, Serialize};

use self::{
    class::{Class, Nature},
    rank::Ranking,
};

/// A counter is compared when its mean is at least this on either side.
pub const EVENTS_MIN: f64 = 20.0;
/// The share of blocks of a workload that were huge, in percent.
pub const HUGE_BLOCKS: &str = "huge share of blocks";
/// The share of faults that got the huge page that they wanted, in percent.
pub const HUGE_FAULTS: &str = "huge share of faults";
/// The share of a workload's memory that is huge pages in the end, in percent.
pub const HUGE_MEMORY: &str = "huge share of memory";
/// The share of it on the first node, which is that of the CPUs, in percent.
pub const NEAR_MEMORY: &str = "near share of memory";
/// Pages written to swap.
pub const SWAPPED_OUT: &str = "pswpout";
/// Entries into direct reclaim, for whichever zone.
pub const STALLS: &str = "allocstall";
/// Entries that balancing made hint.
const PTE_UPDATES: &str = "numa_pte_updates";
/// Pages that kswapd reclaimed.
pub const KSWAPD: &str = "pgsteal_kswapd";
/// Frames taken from a block of another mobility that stays as it is: `mm_page_alloc_extfrag` below a pageblock's order.
pub const EXTFRAG: &str = "extfrag";

/// Figures of one run: counters and shares by name.
pub type Figures = BTreeMap<String, f64>;

/// One cell with its runs, the simulated one beside the kernel's of the same seed.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The cell's name: guest, experiment, case, and what else tells it from others.
    pub name: String,
    /// Of the kernel, and ours.
    pub runs: Vec<(Figures, Figures)>,
    /// Whether files stream through memory, so that kswapd's counts are proportional to the work.
    pub streaming: bool,
    /// Whether memory is ranked by policy in it: the group in which it is compared, and its policy.
    pub policy: Option<(String, String)>,
    /// By which of [`rank::QUANTITIES`]; by [`rank::USUAL`] where none is given.
    pub ranked_by: Vec<&'static str>,
    /// A note for a reader, such as runs that are missing.
    pub note: Option<String>,
}

/// A cell that one side cannot run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skipped {
    /// The cell's name.
    pub cell: String,
    /// `kernel` or `sim`.
    pub side: &'static str,
    /// Why not.
    pub reason: String,
    /// Figures of the kernel nevertheless: each with at least [`EVENTS_MIN`] events, its mean and spread.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel: BTreeMap<String, Known>,
}

impl Skipped {
    /// Of which nothing else is known.
    pub fn whole(cell: &str, side: &'static str, reason: &str) -> Self {
        Self { cell: cell.to_owned(), side, reason: reason.to_owned(), kernel: BTreeMap::new() }
    }
}

/// A figure of the kernel without ours beside it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Known {
    /// Mean of the runs.
    pub mean: f64,
    /// How far they are apart.
    pub spread: Spread,
}

/// Figures of the kernel's runs of a cell that we cannot run.
pub fn known(runs: &[Figures]) -> BTreeMap<String, Known> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|figures| figures.keys()).collect();
    let of = |name: &&String| {
        let samples = samples(runs.iter(), name);
        ((*name).clone(), Known { mean: mean(&samples), spread: Spread::of(&samples) })
    };
    let shares = [HUGE_BLOCKS, HUGE_FAULTS, HUGE_MEMORY, NEAR_MEMORY];
    let counts = |(name, known): &(String, Known)| known.mean >= EVENTS_MIN || shares.contains(&name.as_str());
    names.iter().map(of).filter(counts).collect()
}

/// The comparison of everything.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The kernel's release.
    pub kernel: String,
    /// Hash of the simulator's sources.
    pub program: String,
    /// Counters within their class and all that were compared, over all cells.
    pub total: Tally,
    /// Tallies by class.
    pub classes: BTreeMap<&'static str, Tally>,
    /// Each cell.
    pub cells: Vec<Compared>,
    /// Cells that one side cannot run.
    pub skipped: Vec<Skipped>,
    /// The order of policies, by group and quantity.
    pub rankings: Vec<Ranking>,
    /// Notes for a reader of all of it.
    pub notes: Vec<String>,
}

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Within their class.
    pub within: usize,
    /// Compared.
    pub compared: usize,
    /// Of those within, what would also be with no event at all on our side: so small that the class says nothing of them.
    #[serde(default)]
    pub vacuous: usize,
}

/// One cell, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The cell's name.
    pub cell: String,
    /// Runs on each side.
    pub runs: usize,
    /// The nature of the cell, by the kernel's own counters.
    #[serde(flatten)]
    pub nature: Nature,
    /// A note for a reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Each counter that says something.
    pub counters: Vec<Counter>,
}

/// One counter of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Counter {
    /// The kernel's name, or one of ours.
    pub counter: String,
    /// The counter's class in this cell.
    pub class: &'static str,
    /// Mean of the kernel's runs.
    pub kernel: f64,
    /// How far those are apart.
    pub spread: Spread,
    /// Mean of ours.
    pub ours: f64,
    /// How many events it stands for: the larger mean of the two; of a share, what it is a share of.
    pub events: f64,
    /// Whether ours is as near as its class asks for.
    pub within: bool,
    /// Whether none at all would be too: what the class allows is more than there is.
    #[serde(skip)]
    pub vacuous: bool,
}

/// How far the runs of the kernel are apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// Their standard deviation; 0 of a single run.
    pub deviation: f64,
}

/// Figures of a run, from the measurements of whichever side.
pub fn figures(measured: &Measured) -> Figures {
    let mut figures = Figures::new();
    for (name, moved) in &measured.counters {
        let name = name.strip_prefix("sim_").unwrap_or(name);
        let name = match name {
            // Counted by kind below.
            _ if name.starts_with("mm_page_alloc_extfrag") => continue,
            _ if name.starts_with("allocstall_") => STALLS,
            _ => name,
        };
        *figures.entry(name.to_owned()).or_default() += *moved as f64;
    }
    // A fallback that takes a whole block leaves nothing behind.
    let fragmenting = measured.extfrag.as_ref().map_or(0, report::Extfrag::fragmenting_in_window);
    if fragmenting > 0 {
        figures.insert(EXTFRAG.to_owned(), fragmenting as f64);
    }
    let metric = |class: &str, name: &str| {
        let of = |metric: &&report::Metric| metric.name == name && metric.class.as_deref() == Some(class);
        measured.metrics.iter().find(of).map(|metric| &metric.samples)
    };
    if let Some(&[share]) = metric("huge", "thp_success_pct").map(Vec::as_slice) {
        figures.insert(HUGE_BLOCKS.to_owned(), share);
        figures.insert(BLOCKS.to_owned(), metric("fault-both", "fault_latency_us").map_or(0.0, |all| all.len() as f64));
    }
    for (figure, name) in [(HUGE_MEMORY, "huge_pct"), (NEAR_MEMORY, "node0_pct")] {
        if let Some(&[share]) = measured.metrics.iter().find(|m| m.name == name).map(|m| m.samples.as_slice()) {
            figures.insert(figure.to_owned(), share);
            let of_place = |metric: &&report::Metric| metric.name.ends_with(".memory_kib");
            let kib: f64 = measured.metrics.iter().filter(of_place).flat_map(|metric| &metric.samples).sum();
            figures.insert(MEMORY.to_owned(), kib / 1024.0);
        }
    }
    // Of programs that balancing brings memory to, by node in the end.
    let by_node = |metric: &&report::Metric| metric.name == "memory_gib";
    let gib = |node: &str| -> f64 {
        let of = |metric: &&report::Metric| metric.class.as_deref().is_some_and(|class| class.starts_with(node));
        measured.metrics.iter().filter(by_node).filter(of).flat_map(|metric| &metric.samples).sum()
    };
    let all = gib("");
    if all > 0.0 {
        figures.insert(NEAR_MEMORY.to_owned(), 100.0 * gib("node0-") / all);
        figures.insert(MEMORY.to_owned(), 1024.0 * all);
    }
    let [huge, base] = ["thp_fault_alloc", "thp_fault_fallback"].map(|name| figures.get(name).copied().unwrap_or(0.0));
    if huge + base > 0.0 {
        figures.insert(HUGE_FAULTS.to_owned(), 100.0 * huge / (huge + base));
    }
    figures
}

/// How many blocks [`HUGE_BLOCKS`] is a share of.
const BLOCKS: &str = "blocks";
/// How many MiB [`HUGE_MEMORY`] and [`NEAR_MEMORY`] are shares of.
const MEMORY: &str = "MiB";

/// Means and spread of one figure over some runs; a run without it has none of it.
fn samples<'a>(runs: impl Iterator<Item = &'a Figures>, name: &str) -> Vec<f64> {
    runs.map(|figures| figures.get(name).copied().unwrap_or(0.0)).collect()
}

fn mean(samples: &[f64]) -> f64 {
    stats::amean(samples).unwrap_or(0.0)
}

impl Spread {
    fn of(samples: &[f64]) -> Self {
        let end = |end: Option<f64>| end.unwrap_or(0.0);
        let deviation = end(stats::stddev(samples));
        Self { low: end(stats::min(samples)), high: end(stats::max(samples)), deviation }
    }
}

impl Cell {
    /// The kernel's runs of one figure.
    pub(crate) fn kernel(&self, name: &str) -> Vec<f64> {
        samples(self.runs.iter().map(|(kernel, _)| kernel), name)
    }

    /// Does our kernel balance NUMA, so that it counts what that does?
    pub(crate) fn balances(&self) -> bool {
        self.runs.iter().any(|(_, ours)| ours.contains_key(PTE_UPDATES))
    }

    /// Ours.
    pub(crate) fn ours(&self, name: &str) -> Vec<f64> {
        samples(self.runs.iter().map(|(_, ours)| ours), name)
    }

    fn compare(&self) -> Compared {
        let nature = Nature::of(self);
        let counter = |(name, class): (&str, Class)| {
            let (kernel, ours) = (self.kernel(name), self.ours(name));
            let spread = Spread::of(&kernel);
            let (kernel, ours) = (mean(&kernel), mean(&ours));
            let events = self.events(name).unwrap_or(kernel.max(ours));
            (events >= EVENTS_MIN).then(|| Counter {
                counter: name.to_owned(),
                class: class.name(),
                kernel,
                spread,
                ours,
                events,
                within: class.holds(kernel, spread, ours),
                vacuous: class.holds(kernel, spread, 0.0),
            })
        };
        Compared {
            cell: self.name.clone(),
            runs: self.runs.len(),
            nature,
            note: self.note.clone(),
            counters: class::of_cell(nature).filter_map(counter).collect(),
        }
    }

    /// Events behind a share, on the side that has more of them.
    fn events(&self, name: &str) -> Option<f64> {
        let parts: &[&str] = match name {
            HUGE_BLOCKS => &[BLOCKS],
            HUGE_MEMORY | NEAR_MEMORY => &[MEMORY],
            HUGE_FAULTS => &["thp_fault_alloc", "thp_fault_fallback"],
            _ => return None,
        };
        let of = |side: fn(&Self, &str) -> Vec<f64>| parts.iter().map(|part| mean(&side(self, part))).sum::<f64>();
        Some(of(Self::kernel).max(of(Self::ours)))
    }
}

/// Compares everything.
pub fn compare(kernel: &str, cells: &[Cell], skipped: Vec<Skipped>) -> Comparison {
    let compared: Vec<_> = cells.iter().map(Cell::compare).collect();
    let mut classes: BTreeMap<&'static str, Tally> = BTreeMap::new();
    let mut total = Tally::default();
    for counter in compared.iter().flat_map(|cell| &cell.counters) {
        for tally in [&mut total, classes.entry(counter.class).or_default()] {
            tally.compared += 1;
            tally.within += usize::from(counter.within);
            tally.vacuous += usize::from(counter.vacuous);
        }
    }
    Comparison {
        kernel: kernel.to_owned(),
        program: crate::provenance::PROGRAM_HASH.to_owned(),
        total,
        classes,
        cells: compared,
        skipped,
        rankings: rank::rankings(cells),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
