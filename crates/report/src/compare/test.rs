//! The runs of a row: paired t or Welch's, of logarithms where all are positive, and of counts with noughts among them of one
//! more.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use crate::{
    quantity::Quantity,
    stats::{self, Estimate, Interval, Pair},
};

/// With at least this number of runs, numbers that are constant in each column and differ are told apart for sure.
const ENOUGH: usize = 5;
/// The part of real changes of a size that runs are said to see.
const POWER: f64 = 0.8;
/// The change, in per cent, for which the number of runs is said.
pub(super) const ASKED: f64 = 5.0;

/// The word of the runs of two columns on a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tested {
    /// A side has one run.
    OneRun,
    /// All runs of both sides show one number, or each pair does.
    Same,
    /// Each side is constant, of too few runs to say more.
    DiffersInAll,
    /// They were tested.
    By(Test),
}

/// A test of two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Test {
    /// Do runs belong together two by two?
    pub is_paired: bool,
    /// The difference of means, new less old, in the unit of the row.
    pub difference: f64,
    /// The interval of that; none where numbers are constant.
    pub interval: Option<Bounds>,
    /// The scale on which runs were compared, and p found.
    pub scale: Scale,
    /// The difference of means on that scale: it may have another sign than that of the means themselves.
    pub on_scale: f64,
    /// The change of geometric means in per cent with its interval; none where a number is zero or negative.
    pub geometric: Option<Geometric>,
    /// The p that decides.
    pub p: f64,
    /// Of how many pairs, the new one is lower; where runs are no pairs, of how many combinations of two.
    pub lower: (usize, usize),
    /// By ranks (Mann-Whitney, with correction for ties); decides nothing.
    pub p_ranks: f64,
    /// The change in per cent that four of five such comparisons see; none where the old number is nought.
    pub sees_percent: Option<f64>,
    /// Runs of each side that a change of five per cent needs; none where the old number is nought.
    pub runs_for_asked: Option<u64>,
}

/// The scale on which runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Logarithms: all numbers are positive.
    Log,
    /// Logarithms of one more: counts, some of which are nought.
    LogOfOneMore,
    /// The numbers themselves.
    Plain,
}

impl Scale {
    /// The scale for these runs of a row.
    fn of<'r>(mut runs: impl Iterator<Item = &'r f64> + Clone, quantity: Quantity) -> Self {
        if runs.clone().all(|run| *run > 0.0) {
            Self::Log
        } else if quantity == Quantity::Count && runs.all(|run| *run >= 0.0) {
            Self::LogOfOneMore
        } else {
            Self::Plain
        }
    }

    fn at(self, run: f64) -> f64 {
        match self {
            Self::Log => libm::log(run),
            Self::LogOfOneMore => libm::log1p(run),
            Self::Plain => run,
        }
    }
}

/// The ends of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// The lower one.
    pub low: f64,
    /// The higher one.
    pub high: f64,
}

/// A change of geometric means, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Geometric {
    /// The change.
    pub change: f64,
    /// The 95 % interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

impl Tested {
    /// The p that decides, if there was a test.
    pub fn p(&self) -> Option<f64> {
        match self {
            Self::By(test) => Some(test.p),
            Self::OneRun | Self::Same | Self::DiffersInAll => None,
        }
    }
}

impl Test {
    /// The ends of its interval, in the unit of the row.
    pub(super) fn ends(&self, old: f64) -> Option<(f64, f64)> {
        let of_percent = self.geometric.map(|percent| (percent.low / 100.0 * old, percent.high / 100.0 * old));
        of_percent.or(self.interval.map(|bounds| (bounds.low, bounds.high)))
    }
}

/// Tests the runs of two columns, each by its seed. Runs with one seed belong together only where both are simulated.
pub(super) fn of(runs: Pair<&BTreeMap<u64, f64>>, quantity: Quantity, are_simulated: bool) -> Tested {
    let Pair { baseline: old, new } = runs;
    if old.len() < 2 || new.len() < 2 {
        return Tested::OneRun;
    }
    let is_paired = are_simulated && old.keys().eq(new.keys());
    let [old, new] = [old, new].map(|runs| runs.values().copied().collect::<Vec<f64>>());
    let is_constant = |runs: &[f64]| runs.iter().all(|run| run.total_cmp(&runs[0]).is_eq());
    let constant = is_constant(&old) && is_constant(&new);
    let same = |(old, new): (&f64, &f64)| old.total_cmp(new).is_eq();
    if constant && same((&old[0], &new[0])) || is_paired && old.iter().zip(&new).all(same) {
        return Tested::Same;
    }
    let fewer = old.len().min(new.len());
    if constant && fewer < ENOUGH {
        return Tested::DiffersInAll;
    }
    let estimate = |old: &[f64], new: &[f64]| {
        if is_paired {
            let differences: Vec<f64> = old.iter().zip(new).map(|(old, new)| new - old).collect();
            Estimate::paired(&differences)
        } else {
            Estimate::welch(old, new)
        }
        .expect("two runs of each")
    };
    let plain = estimate(&old, &new);
    let scale = Scale::of(old.iter().chain(&new), quantity);
    let at = |runs: &[f64]| runs.iter().map(|run| scale.at(*run)).collect::<Vec<f64>>();
    let deciding = estimate(&at(&old), &at(&new));
    // All pairs differ by the same: nothing spreads.
    if deciding.error == 0.0 && fewer < ENOUGH {
        return Tested::DiffersInAll;
    }
    let logs = (scale == Scale::Log).then_some(deciding);
    let bounds = |interval: Interval| Bounds { low: interval.low, high: interval.high };
    let mean = stats::amean(&old).map(f64::abs).filter(|mean| *mean > 0.0);
    Tested::By(Test {
        is_paired,
        difference: plain.mean,
        interval: plain.interval().map(bounds),
        scale,
        on_scale: deciding.mean,
        geometric: logs.and_then(geometric),
        p: deciding.p(),
        lower: lower(&old, &new, is_paired),
        p_ranks: mann_whitney(&old, &new),
        sees_percent: match logs {
            Some(logs) => Some(percent_of(logs.sees(POWER))),
            None => mean.map(|mean| 100.0 * plain.sees(POWER) / mean),
        },
        runs_for_asked: match logs {
            Some(logs) => Some(runs_for(logs, libm::log(1.0 + ASKED / 100.0), fewer)),
            None => mean.map(|mean| runs_for(plain, ASKED / 100.0 * mean, fewer)),
        },
    })
}

/// A difference of logarithms in per cent.
fn percent_of(log: f64) -> f64 {
    100.0 * (libm::exp(log) - 1.0)
}

fn geometric(logs: Estimate) -> Option<Geometric> {
    let interval = logs.interval()?;
    Some(Geometric { change: percent_of(logs.mean), low: percent_of(interval.low), high: percent_of(interval.high) })
}

/// The spread of runs of one column, and the changes that as many runs beside them would see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The standard deviation of logarithms, as per cent.
    pub(super) percent: f64,
    /// See [`Test::sees_percent`], of as many runs on the other side.
    pub(super) sees_percent: f64,
    /// See [`Test::runs_for_asked`].
    pub(super) runs_for_asked: u64,
}

/// None of one run, of runs that are zero or negative, and where nothing spreads.
pub(super) fn spread(runs: &[f64]) -> Option<Spread> {
    if runs.len() < 2 || runs.iter().any(|run| *run <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = runs.iter().map(|run| libm::log(*run)).collect();
    let stddev = stats::stddev(&logs).filter(|stddev| *stddev > 0.0)?;
    let count = runs.len() as f64;
    let both = Estimate { mean: 0.0, error: stddev * (2.0 / count).sqrt(), freedom: 2.0 * (count - 1.0) };
    Some(Spread {
        percent: percent_of(stddev),
        sees_percent: percent_of(both.sees(POWER)),
        runs_for_asked: runs_for(both, libm::log(1.0 + ASKED / 100.0), runs.len()),
    })
}

fn lower(old: &[f64], new: &[f64], is_paired: bool) -> (usize, usize) {
    if is_paired {
        (old.iter().zip(new).filter(|(old, new)| new < old).count(), old.len())
    } else {
        let below = |old: &f64| new.iter().filter(|new| *new < old).count();
        (old.iter().map(below).sum(), old.len() * new.len())
    }
}

/// How many runs of each side a change needs, by the spread of these.
fn runs_for(found: Estimate, change: f64, runs: usize) -> u64 {
    let spread = found.error * (runs as f64).sqrt();
    // Student's t of so many runs is what has to be exceeded, so that few of them are not promised too much.
    let are_enough = |count: u64| {
        let freedom = found.freedom * (count as f64 - 1.0) / (runs as f64 - 1.0);
        let estimate = Estimate { mean: 0.0, error: spread / (count as f64).sqrt(), freedom };
        estimate.sees(POWER) <= change
    };
    // The more runs the more they see: halve what lies between too few and enough.
    let (mut few, mut enough) = (1_u64, 100_000);
    while enough - few > 1 {
        let middle = few.midpoint(enough);
        if are_enough(middle) { enough = middle } else { few = middle }
    }
    enough
}

/// The p of ranks, two-sided, by the normal distribution with corrections for ties and for whole numbers (H. B. Mann and D. R.
/// Whitney, 1947).
pub(super) fn mann_whitney(old: &[f64], new: &[f64]) -> f64 {
    let (m, n) = (old.len() as f64, new.len() as f64);
    let mut all: Vec<(f64, bool)> =
        old.iter().map(|run| (*run, false)).chain(new.iter().map(|run| (*run, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
    while at < all.len() {
        let end = at + all[at..].iter().take_while(|run| run.0.total_cmp(&all[at].0).is_eq()).count();
        let (size, rank) = ((end - at) as f64, (at + 1 + end) as f64 / 2.0);
        ranks += rank * all[at..end].iter().filter(|run| run.1).count() as f64;
        ties += size * size * size - size;
        at = end;
    }
    let u = ranks - n * (n + 1.0) / 2.0;
    let total = m + n;
    let variance = m * n / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - m * n / 2.0).abs() - 0.5).max(0.0);
    (2.0 * Normal::standard().cdf(-distance / variance.sqrt())).min(1.0)
}
