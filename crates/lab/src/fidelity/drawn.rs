//! The score of drawn cells: beside the ceiling that the kernel's own boots set, beside an older program, and by counter.
//!
//! The ceiling is what a program would come to that is a real kernel: each boot takes our place and is held against the other
//! boots of its cell. One boot is compared with the mean of the others there, where the score compares means of all with means of
//! all; so the score of single runs of ours against the same other boots stands beside it.

mod text;

use std::collections::BTreeMap;

use report::stats::{self, Interval, Pair};
use serde::Serialize;

pub use self::text::renew;
use super::{Cell, Comparison, Figures, Tally, draw::LeftOut};

/// Everything that a draw came to.
#[derive(Clone, Debug, Serialize)]
pub struct Drawn {
    /// The seed, in hexadecimal.
    pub seed: String,
    /// The commit of the seed; none of a seed that somebody chose.
    pub commit: Option<String>,
    /// Boots of each cell.
    pub boots: u64,
    /// Seconds that all guests took when they ran, one after the other.
    pub guests_s: f64,
    /// Seconds of this run, with guests from the cache where they were there.
    pub wall_s: f64,
    /// Ours beside the kernel.
    pub comparison: Comparison,
    /// The drawn runs by the name that cells have behind theirs: parameters and settings.
    pub settings: BTreeMap<String, String>,
    /// Candidates that cannot run: how many for each reason.
    pub left_out: BTreeMap<String, usize>,
    /// Each boot of the kernel against its cell's other boots; none of cells with a single boot.
    pub ceiling: Option<Tally>,
    /// Each of our runs against the other boots than that of its seed.
    pub single: Option<Tally>,
    /// Scores by experiment: ours, and the ceiling.
    pub experiments: BTreeMap<String, Score>,
    /// Counters that missed, those with the most misses first.
    pub misses: Vec<Miss>,
    /// An older program on the same cells.
    pub base: Option<Base>,
}

/// Ours beside the ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Means of our runs against the kernel's means.
    pub ours: Tally,
    /// Boots of the kernel against its other boots.
    pub ceiling: Tally,
}

/// One counter over all cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Miss {
    /// The counter's name.
    pub counter: String,
    /// Cells in which it was compared.
    pub compared: usize,
    /// Cells where ours is outside of its class and below the kernel's.
    pub fewer: usize,
    /// Cells where ours is outside and above.
    pub more: usize,
    /// Median of ours by the kernel's over the cells that missed, each with one event more, as there may be none.
    pub ratio: f64,
    /// Boots of the kernel that are outside, against their other boots, and how many were compared.
    pub kernel: Tally,
}

/// An older program on the same cells.
#[derive(Clone, Debug, Serialize)]
pub struct Base {
    /// The older program's commit.
    pub commit: String,
    /// The older program's tally.
    pub total: Tally,
    /// Cells that both programs ran.
    pub cells: usize,
    /// Mean over these cells of the difference of the share within class, ours less the older program's, in points.
    pub gain: Option<f64>,
    /// 95 % interval of that mean by Student's t for pairs, from the first end to the last.
    pub interval: Option<(f64, f64)>,
    /// Cells that the older program did not run, with the reason.
    pub missing: Vec<(String, String)>,
}

/// Facts of a draw that are not in its results.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The seed.
    pub seed: String,
    /// The commit of the seed, unless the seed was chosen.
    pub commit: Option<String>,
    /// Boots of each cell.
    pub boots: u64,
    /// Parameters and settings by cell.
    pub settings: BTreeMap<String, String>,
    /// Candidates that were left out.
    pub left_out: Vec<LeftOut>,
}

impl Drawn {
    /// Scores what was compared.
    pub fn of(facts: Facts, cells: &[Cell], comparison: Comparison) -> Self {
        let several = cells.iter().any(|cell| cell.runs.len() > 1);
        let by_kernel = against_others(cells, |(kernel, _)| kernel);
        let by_ours = against_others(cells, |(_, ours)| ours);
        let mut left_out = BTreeMap::new();
        for LeftOut { reason, .. } in facts.left_out {
            *left_out.entry(reason).or_default() += 1;
        }
        Self {
            seed: facts.seed,
            commit: facts.commit,
            boots: facts.boots,
            guests_s: 0.0,
            wall_s: 0.0,
            settings: facts.settings,
            left_out,
            ceiling: several.then_some(by_kernel.total),
            single: several.then_some(by_ours.total),
            experiments: experiments(&comparison, &by_kernel),
            misses: misses(&comparison, &by_kernel),
            comparison,
            base: None,
        }
    }
}

/// Compares single runs with the kernel's other boots: the run of each seed, as `of` takes it from both sides.
fn against_others(cells: &[Cell], of: impl Fn(&(Figures, Figures)) -> &Figures) -> Comparison {
    let one = |cell: &Cell, at: usize| {
        let others = cell.runs.iter().enumerate().filter(|(other, _)| *other != at);
        let runs = others.map(|(_, (kernel, _))| (kernel.clone(), of(&cell.runs[at]).clone())).collect();
        Cell { runs, ..cell.clone() }
    };
    let several = cells.iter().filter(|cell| cell.runs.len() > 1);
    let all: Vec<_> = several.flat_map(|cell| (0..cell.runs.len()).map(move |at| one(cell, at))).collect();
    super::compare("", &all, Vec::new())
}

impl Tally {
    fn add(&mut self, counter: &super::Counter) {
        self.compared += 1;
        self.within += usize::from(counter.within);
        self.vacuous += usize::from(counter.vacuous);
    }

    /// The share within class, in percent; none where nothing was compared.
    pub fn percent(self) -> Option<f64> {
        (self.compared > 0).then(|| 100.0 * self.within as f64 / self.compared as f64)
    }

    /// That share in words, rounded in one way wherever it is said.
    pub fn share(self) -> Option<String> {
        self.percent().map(|percent| format!("{percent:.0} %"))
    }

    /// Outside of their class.
    pub fn outside(self) -> usize {
        self.compared - self.within
    }
}

/// The experiment in a cell's name.
fn experiment(cell: &str) -> &str {
    cell.split_whitespace().nth(1).unwrap_or(cell)
}

fn experiments(ours: &Comparison, ceiling: &Comparison) -> BTreeMap<String, Score> {
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    for (comparison, part) in
        [(ours, (|score| &mut score.ours) as fn(&mut Score) -> &mut Tally), (ceiling, |score| &mut score.ceiling)]
    {
        for cell in &comparison.cells {
            let score = scores.entry(experiment(&cell.cell).to_owned()).or_default();
            cell.counters.iter().for_each(|counter| part(score).add(counter));
        }
    }
    scores
}

fn misses(ours: &Comparison, ceiling: &Comparison) -> Vec<Miss> {
    let mut kernel: BTreeMap<&str, Tally> = BTreeMap::new();
    for counter in ceiling.cells.iter().flat_map(|cell| &cell.counters) {
        kernel.entry(&counter.counter).or_default().add(counter);
    }
    let mut by_name: BTreeMap<&str, Vec<&super::Counter>> = BTreeMap::new();
    for counter in ours.cells.iter().flat_map(|cell| &cell.counters) {
        by_name.entry(&counter.counter).or_default().push(counter);
    }
    let mut misses: Vec<_> = by_name
        .into_iter()
        .filter_map(|(name, counters)| {
            let missed: Vec<_> = counters.iter().filter(|counter| !counter.within).collect();
            let ratios: Vec<_> = missed.iter().map(|of| (of.ours + 1.0) / (of.kernel + 1.0)).collect();
            Some(Miss {
                counter: name.to_owned(),
                compared: counters.len(),
                fewer: missed.iter().filter(|of| of.ours < of.kernel).count(),
                more: missed.iter().filter(|of| of.ours > of.kernel).count(),
                ratio: stats::percentile(&ratios, 50.0)?,
                kernel: kernel.get(name).copied().unwrap_or_default(),
            })
        })
        .collect();
    misses.sort_by_key(|miss| std::cmp::Reverse(miss.fewer + miss.more));
    misses
}

/// An older program beside ours, on the cells that both have run.
pub fn beside_base(commit: &str, ours: &Comparison, base: &Comparison) -> Base {
    let share = |comparison: &Comparison, name: &str| {
        let cell = comparison.cells.iter().find(|cell| cell.cell == name)?;
        let mut tally = Tally::default();
        cell.counters.iter().for_each(|counter| tally.add(counter));
        tally.percent()
    };
    let pair =
        |cell: &super::Compared| Some(Pair { baseline: share(base, &cell.cell)?, new: share(ours, &cell.cell)? });
    let pairs: Vec<_> = ours.cells.iter().filter_map(pair).collect();
    let gains: Vec<_> = pairs.iter().map(|pair| pair.new - pair.baseline).collect();
    let missing = base.skipped.iter().map(|skip| (skip.cell.clone(), skip.reason.clone())).collect();
    Base {
        commit: commit.to_owned(),
        total: base.total,
        cells: pairs.len(),
        gain: stats::amean(&gains),
        interval: stats::paired_interval(&pairs).map(|Interval { low, high }| (low, high)),
        missing,
    }
}

#[cfg(test)]
mod tests;
