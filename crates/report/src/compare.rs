//! Two columns compared row by row: by how much a number has changed, how sure the change is, and whether it is large enough to
//! matter.
//!
//! The unit of a test is the run: each run has one mean, share or counter for the row. One p-value decides about a row: the
//! paired t test over runs with the same seeds where both columns are simulated, else Welch's test. Where all numbers of a row
//! are positive, the test is of their logarithms and the interval is one of geometric means; for counts with zeroes among them
//! the test is of log(count + 1). The rows of a family are corrected together (Holm). The number of runs that are lower, and
//! Mann-Whitney's p, are printed and decide nothing.
//!
//! The change of a row is the change between the two numbers that the table shows ([`crate::stats::change`]). The row has a star
//! if the test separates the columns in the same direction and the change is large enough.

mod between;
mod csv;
mod fail_on;
mod ladder;
mod noise;
mod summary;
mod sweep;
mod test;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod words;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::{
    between::{Between, BetweenError, Explainer, Explaining, between_text},
    csv::compare_csv,
    fail_on::{FailOn, FailOnError},
    ladder::ladder_text,
    noise::{Noise, noise, noise_csv, noise_text},
    summary::{summary, summary_of},
    sweep::{Axis, Effect, Grid, Mapped, Place, Region, Sweep, sweep_csv, sweep_text},
    test::{Geometric, Scale, Test, Tested},
    text::compare_text,
    verdict::Verdict,
};
use crate::{
    better::Better,
    metrics::TAILS,
    quantity::Quantity,
    record::{Column, Target},
    stats::{self, Pair},
    table::{Kind, Report, Row, Table, Value},
};

/// In one comparison of twenty a family of rows has a false star.
pub const LEVEL: f64 = 0.05;

/// Statistics of samples that are not tested, since the means of the same samples have rows of their own.
const OF_SAMPLES: [&str; 7] = ["Min", "Stddev", "HStddev", "CoeffVar", "HCoeffVar", "BAmean.95", "BHmean.95"];

/// How large a change has to be to matter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gates {
    /// Least relative change, in per cent of the old value.
    pub percent: f64,
    /// For counts, which are whole numbers: least difference per run.
    pub count: f64,
    /// For shares: least difference in percentage points.
    pub points: f64,
}

impl Gates {
    /// The least change of a quantity that matters, in the quantity's unit.
    fn least(self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Count => self.count,
            Quantity::Share => self.points,
            Quantity::Time | Quantity::Rate | Quantity::Amount => 0.0,
        }
    }

    /// The conditions for a star, in words.
    pub(crate) fn in_words(self, test: &str) -> String {
        let Self { percent, count, points } = self;
        format!(
            "separated ({test}Holm over metrics, and over counters; {} %) and material ({percent} % and more; of counts also \
             {count} a run, of shares {points} points)",
            100.0 * LEVEL
        )
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self { percent: 1.0, count: 10.0, points: 0.5 }
    }
}

/// Rows whose p-values are corrected together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Means, shares and times for which a direction is better.
    Primary,
    /// Percentiles and maxima of samples. They are a family of their own, since in one family they would make means harder to
    /// tell apart.
    Tails,
    /// All other rows: counters, fragmentation events, and numbers that describe a run.
    Counters,
}

impl Family {
    /// The family of a row; none where the row has no value per run.
    pub fn of(table: &Table, row: &Row) -> Option<Self> {
        match table.kind {
            // Statistics over samples have no value per run, and causes are parts of what durations measure.
            _ if row.cells.iter().flatten().all(|value| value.of_seeds.is_empty()) => None,
            Kind::Causes => None,
            Kind::Metric if OF_SAMPLES.contains(&row.stat.as_str()) => None,
            Kind::Metric if TAILS.contains(&row.stat.as_str()) => Some(Self::Tails),
            Kind::Metric | Kind::Duration if row.better != Better::None => Some(Self::Primary),
            Kind::Metric | Kind::Duration | Kind::Extfrag | Kind::Counters | Kind::Memory => Some(Self::Counters),
        }
    }
}

/// The place of a new value in its report, as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) table: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// One row of two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The experiment.
    pub experiment: String,
    /// The title of its table.
    pub title: String,
    /// The unit of its values.
    pub unit: String,
    /// The kind of number that they are.
    pub quantity: Quantity,
    /// The family it is judged with.
    pub family: Family,
    /// The metric and the case, for programs.
    pub metric: String,
    /// The case.
    pub case: String,
    /// The statistic, and the rest of the row's name in texts.
    pub stat: String,
    /// See `stat`.
    pub operation: String,
    /// Which direction is better.
    pub better: Better,
    /// Labels of the two columns.
    pub old_column: String,
    /// See `old_column`.
    pub new_column: String,
    /// The kernel of the new column.
    #[serde(skip)]
    pub new_kernel: String,
    /// The value of all runs together, in the row's unit.
    pub old: f64,
    /// See `old`.
    pub new: f64,
    /// The change of these two in per cent of the old one; none from nought to something.
    pub change_percent: Option<f64>,
    /// Runs of each side.
    pub runs: (usize, usize),
    /// The test of its runs.
    pub tested: Tested,
    /// The p that decides, made larger for the rows that are judged together (Holm); none without a test.
    pub p_holm: Option<f64>,
    /// The words.
    pub verdict: Verdict,
    /// The new column is a model of the old one: no change, but how far the model is off.
    #[serde(skip)]
    pub is_model: bool,
}

impl Compared {
    /// The change of the two numbers, in the unit of the row.
    pub fn difference(&self) -> f64 {
        self.new - self.old
    }
}

impl Compared {
    /// The row's name wherever it stands alone: metric and case in full, which no other row of its experiment has.
    pub fn label(&self) -> String {
        format!("{} {}", self.metric, self.case)
    }
}

/// Rows that only one of the two columns has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unmatched {
    /// In the old one.
    pub only_old: Vec<String>,
    /// In the new one.
    pub only_new: Vec<String>,
}

/// All rows of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// How large a change has to be.
    pub gates: Gates,
    /// The rows, in the order of their tables; of each row all pairs of columns.
    pub rows: Vec<Compared>,
    /// Rows that could not be compared.
    pub unmatched: Unmatched,
}

impl Comparison {
    /// Compares each column of a report with its baseline.
    pub fn of(report: &Report, gates: Gates) -> Self {
        Self::with_places(report, gates).0
    }

    /// The same, with the place of each row's new value.
    pub(crate) fn with_places(report: &Report, gates: Gates) -> (Self, Vec<At>) {
        let (mut rows, mut places, mut unmatched) = (Vec::new(), Vec::new(), Unmatched::default());
        for (at_table, table) in report.tables.iter().enumerate() {
            for (new, head) in table.columns.iter().enumerate().filter(|(at, head)| head.baseline != *at) {
                let old = head.baseline;
                for (at_row, row) in table.rows.iter().enumerate() {
                    let Some(family) = Family::of(table, row) else { continue };
                    let name = || format!("{} {}", row.metric, row.case);
                    match (&row.cells[old], &row.cells[new]) {
                        (Some(before), Some(after)) => {
                            let column = |at: usize| &table.columns[at].column;
                            let side = |at: usize, value| Side { column: column(at), value };
                            places.push(At { table: at_table, row: at_row, column: new });
                            let row = RowOf { table, row, family };
                            rows.push(row.compared(Pair { baseline: side(old, before), new: side(new, after) }));
                        }
                        (Some(_), None) => unmatched.only_old.push(name()),
                        (None, Some(_)) => unmatched.only_new.push(name()),
                        (None, None) => {}
                    }
                }
            }
        }
        let mut comparison = Self { gates, rows, unmatched };
        comparison.judge(0);
        (comparison, places)
    }

    /// Judges all rows together with `others` further rows that are not here, among which a row was chosen.
    fn judge(&mut self, others: usize) {
        for family in [Family::Primary, Family::Tails, Family::Counters] {
            let p = |row: &Compared| row.tested.p().filter(|_| row.family == family && self.can_matter(row));
            let found: Vec<Option<f64>> = self.rows.iter().map(p).collect();
            let raw: Vec<f64> = found.iter().flatten().copied().chain(std::iter::repeat_n(1.0, others)).collect();
            let mut adjusted = holm(&raw).into_iter();
            for (row, found) in self.rows.iter_mut().zip(found) {
                if row.family == family {
                    row.p_holm = found.and_then(|_| adjusted.next());
                }
            }
        }
        for at in 0..self.rows.len() {
            self.rows[at].verdict = self.verdict(&self.rows[at]);
        }
    }

    fn verdict(&self, row: &Compared) -> Verdict {
        match &row.tested {
            Tested::OneRun => Verdict::OneRun,
            Tested::Same => Verdict::Same,
            Tested::DiffersInAll => Verdict::DiffersInAll,
            Tested::By(test) => {
                let change = row.difference();
                // Few large runs may pull a mean one way while most runs go the other.
                let is_separated = row.p_holm.is_some_and(|p| p <= LEVEL) && change * test.on_scale > 0.0;
                if is_separated && self.is_material(row, change) {
                    return match (row.better, change > 0.0) {
                        (Better::None, _) => Verdict::Differs,
                        (Better::Lower, true) | (Better::Higher, false) => Verdict::Worse,
                        (Better::Lower, false) | (Better::Higher, true) => Verdict::Better,
                    };
                }
                let is_small = |change: f64| !self.is_material(row, change);
                let are_small = test.ends(row.old).is_some_and(|(low, high)| is_small(low) && is_small(high));
                if are_small && is_small(change) { Verdict::NoChange } else { Verdict::CannotTell }
            }
        }
    }

    /// Is a change, in the unit of the row, large enough to matter?
    fn is_material(&self, row: &Compared, change: f64) -> bool {
        let least = self.gates.least(row.quantity);
        change.abs() >= least && 100.0 * change.abs() >= self.gates.percent * row.old.abs()
    }

    /// Could a change of this row be large enough at all? Others are not judged with it: a kernel has many counters that hardly
    /// move.
    fn can_matter(&self, row: &Compared) -> bool {
        row.old.abs() + row.new.abs() >= self.gates.least(row.quantity)
    }

    /// The rows by how much worse they are, the worst first; then the others as they stand.
    pub fn sort(&mut self) {
        let rank = |row: &Compared| match row.verdict {
            Verdict::Worse => 0,
            Verdict::Differs => 1,
            Verdict::Better => 2,
            Verdict::DiffersInAll => 3,
            Verdict::CannotTell => 4,
            Verdict::NoChange | Verdict::Same | Verdict::OneRun => 5,
        };
        let size = |row: &Compared| row.change_percent.map_or(f64::MAX, f64::abs);
        self.rows.sort_by(|a, b| rank(a).cmp(&rank(b)).then(size(b).total_cmp(&size(a))));
    }

    /// Runs of each pair of columns.
    pub fn runs(&self) -> BTreeMap<(&str, &str), (usize, usize)> {
        let mut runs = BTreeMap::new();
        for row in &self.rows {
            let found = row.runs;
            let known = runs.entry((row.old_column.as_str(), row.new_column.as_str())).or_insert(found);
            *known = (found.0.max(known.0), found.1.max(known.1));
        }
        runs
    }
}

/// A row that is compared, and where it is from.
#[derive(Clone, Copy)]
struct RowOf<'a> {
    table: &'a Table,
    row: &'a Row,
    family: Family,
}

/// One side of a comparison.
#[derive(Clone, Copy)]
struct Side<'a> {
    column: &'a Column,
    value: &'a Value,
}

impl RowOf<'_> {
    /// The two sides, tested but not judged yet.
    fn compared(self, Pair { baseline: old, new }: Pair<Side<'_>>) -> Compared {
        let Self { table, row, family } = self;
        let runs = Pair { baseline: &old.value.of_seeds, new: &new.value.of_seeds };
        let are_simulated = [old, new].iter().all(|side| side.column.target == Target::Sim);
        let values = Pair { baseline: old.value.value, new: new.value.value };
        Compared {
            experiment: table.experiment.clone(),
            title: title(table),
            unit: row.unit.clone(),
            quantity: row.quantity(),
            family,
            metric: row.metric.clone(),
            case: row.case.clone(),
            stat: row.stat.clone(),
            operation: row.operation.clone(),
            better: row.better,
            old_column: old.column.label(),
            new_column: new.column.label(),
            new_kernel: new.column.kernel.clone(),
            old: values.baseline,
            new: values.new,
            change_percent: stats::change(values),
            runs: (old.value.of_seeds.len(), new.value.of_seeds.len()),
            tested: test::of(runs, row.quantity(), are_simulated),
            p_holm: None,
            verdict: Verdict::CannotTell,
            is_model: old.column.target != Target::Sim && new.column.target == Target::Sim,
        }
    }
}

/// The title of a table; the tables of 2015 have none.
fn title(table: &Table) -> String {
    if table.title.is_empty() { table.experiment.clone() } else { table.title.clone() }
}

/// Each p made as large as it has to be so that the smallest of a family is false in no more cases than a single one (S. Holm, A
/// simple sequentially rejective multiple test procedure, 1979).
pub fn holm(raw: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| raw[*a].total_cmp(&raw[*b]));
    let (mut adjusted, mut least) = (vec![1.0; raw.len()], 0.0_f64);
    for (place, at) in order.into_iter().enumerate() {
        least = least.max(raw[at] * (raw.len() - place) as f64).min(1.0);
        adjusted[at] = least;
    }
    adjusted
}
