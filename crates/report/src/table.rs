//! A report as plain data, ready for any renderer.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    better::Better,
    compare::Verdict,
    quantity::Quantity,
    record::{Check, Column},
    stats::{self, middle_95},
};

/// Everything that is shown about a set of cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// How texts and CSV name and arrange the tables.
    pub layout: Layout,
    /// Tables of metrics, then of durations, external fragmentation, counters and memory, then the tables that were asked for in
    /// addition.
    pub tables: Vec<Table>,
    /// Tables of checks.
    pub checks: Vec<CheckTable>,
}

/// How a report is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// As mmtests prints it today.
    #[default]
    Head,
    /// As mmtests printed it in 2015, with columns named only by their kernels.
    Classic,
    /// As users of will-it-scale post it: a line for each kernel and number of tasks.
    WillItScale,
    /// A line for each column with the cases side by side, for many kernels and a few cases; tables of several quantities show
    /// their last case.
    Cases,
}

/// One table: rows of one metric (or of counters), one column per kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The experiment that the cells belong to.
    pub experiment: String,
    /// Its title line.
    pub title: String,
    /// The kind of the table's rows.
    pub kind: Kind,
    /// The unit that texts print for the table; each row has its own unit too.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// The columns.
    pub columns: Vec<ColumnHead>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Are values compared? That is so if a direction is better and some column has a baseline other than itself.
    pub fn compares(&self) -> bool {
        let other = |(index, head): (usize, &ColumnHead)| head.baseline != index;
        self.better != Better::None && self.columns.iter().enumerate().any(other)
    }

    /// Do the kernels' names alone tell the columns apart?
    pub(crate) fn is_of_kernels(&self) -> bool {
        let kernels: BTreeSet<&str> = self.columns.iter().map(|head| head.column.kernel.as_str()).collect();
        kernels.len() == self.columns.len()
    }

    /// The column that a column is compared with.
    pub fn against(&self, column: usize) -> Against {
        let head = &self.columns[column];
        match &self.columns[head.baseline] {
            _ if head.baseline == column => Against::Nothing,
            other if other.column.target == head.column.target => Against::Baseline(head.baseline),
            _ => Against::Kernel(head.baseline),
        }
    }
}

/// How a table's columns find their baselines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Baseline {
    /// The first column with the same result, target and machine; for a simulated twin the real column.
    #[default]
    OfTarget,
    /// One column for all tables; a table without it uses the default.
    Column(Column),
}

/// The comparison of a column, with the index of the column it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The first column of its target and machine; it is compared with nothing.
    Nothing,
    /// Compared with the first column of its target and machine: values are changes in per cent.
    Baseline(usize),
    /// Compared with the real kernel whose twin the simulated column is: values are multiples of the real ones.
    Kernel(usize),
}

/// The kind of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Statistics of a metric.
    Metric,
    /// User, system and elapsed time.
    Duration,
    /// External fragmentation events.
    Extfrag,
    /// Movements of counters.
    Counters,
    /// Time by cause.
    Causes,
    /// Free memory, watermarks, OOM kills.
    Memory,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnHead {
    /// The kernel, machine and target that was measured.
    pub column: Column,
    /// How texts show the column: target, kernel and, if the table has several machines, the machine.
    pub lines: Vec<String>,
    /// Index of the column that this one is compared with: the first column of the same target and machine (perhaps this one),
    /// or the real column of a simulated twin.
    pub baseline: usize,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The row's name for programs: `fault_latency_ns.Amean`, or a counter's name.
    pub metric: String,
    /// The row's case, for programs.
    pub case: String,
    /// First word of the row: a statistic, or `Ops`.
    pub stat: String,
    /// The rest of the row's name: the case; for a counter, the case after the counter's name.
    pub operation: String,
    /// Which direction of the row is better: the table's, but always lower for spreads.
    pub better: Better,
    /// The unit of its values, from which [`Quantity`] follows.
    pub unit: String,
    /// How texts show the row's values.
    pub form: Form,
    /// One value per column; none where there is nothing to show.
    pub cells: Vec<Option<Value>>,
}

impl Row {
    /// The kind of number that the row's values are.
    pub fn quantity(&self) -> Quantity {
        Quantity::of_unit(&self.unit)
    }
}

/// How texts show a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// With two digits after the point.
    Hundredths,
    /// With three digits after the point.
    Thousandths,
    /// Without digits after the point.
    Whole,
    /// Without digits after the point, and with a per cent sign.
    Percent,
}

/// With at least 40 runs, the 2.5 and 97.5 % points leave out a run at each end, and 95 of 100 runs are between them.
pub const MANY_RUNS: usize = 40;

/// One value of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Value {
    /// The value, in the table's unit.
    pub value: f64,
    /// The cell's statistic in each seed's run; empty if it was not taken by seed, or no run had anything to measure. Not
    /// serialised: cells have the samples.
    #[serde(skip)]
    pub of_seeds: BTreeMap<u64, f64>,
    /// 2.5 % point of the statistic over seeds; only for means over more than one seed.
    pub low: Option<f64>,
    /// 97.5 % point of the statistic over seeds.
    pub high: Option<f64>,
    /// The verdict on the value's change, as in [`Comparison`](crate::compare::Comparison); none if the runs are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The value's share of the column's total in the case, in per cent, where values are parts of a total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl Value {
    /// A value with its range over seeds.
    pub(crate) fn over_seeds(value: f64, of_seeds: BTreeMap<u64, f64>) -> Self {
        let (low, high) = middle_95(&of_seeds.values().copied().collect::<Vec<f64>>());
        Self { value, of_seeds, low, high, verdict: None, share: None }
    }

    /// What texts show of single runs, if there is more than one: the smallest and the largest; from [`MANY_RUNS`] on the 2.5
    /// and 97.5 % points. Of fewer runs these lie between the outermost two, so that a run at each end is outside: two of eight,
    /// and both of two.
    pub fn range(&self) -> Option<(f64, f64)> {
        let runs: Vec<f64> = self.of_seeds.values().copied().collect();
        match runs.len() {
            0 | 1 => None,
            few if few < MANY_RUNS => stats::min(&runs).zip(stats::max(&runs)),
            _ => self.low.zip(self.high),
        }
    }
}

/// The checks of one experiment and workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckTable {
    /// The experiment that the cells belong to.
    pub experiment: String,
    /// The title line of the table.
    pub title: String,
    /// The rows: those that failed first; within each part by operation, then check, then column.
    pub rows: Vec<CheckRow>,
}

/// One check of one operation in one column; of several seeds, the one furthest from what it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckRow {
    /// Where it was made.
    pub column: Column,
    /// How texts show that: target, kernel and, if the table has several, machine.
    pub lines: Vec<String>,
    /// The operation.
    pub case: String,
    /// The check: the quantity, the counts that were expected and found, and how far apart they may be.
    pub check: Check,
    /// How many cells made this check.
    pub cells: u64,
    /// How many of them were within the tolerance.
    pub cells_within: u64,
}

impl CheckRow {
    /// Whether some cell was not within the tolerance.
    pub fn failed(&self) -> bool {
        self.cells_within < self.cells
    }

    /// 100 · (found - expected) / expected, in percent; none where nothing was expected but some found.
    pub fn difference_percent(&self) -> Option<f64> {
        let (expected, found) = (self.check.expected, self.check.found);
        if expected == found {
            return Some(0.0);
        }
        (expected != 0).then(|| 100.0 * (found as f64 - expected as f64) / expected as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that show 1, 2, 3 and so on.
    fn of_runs(count: u32) -> Value {
        let runs: BTreeMap<u64, f64> = (1..=count).map(|run| (u64::from(run), f64::from(run))).collect();
        Value::over_seeds(1.0, runs)
    }

    #[test]
    fn a_range_of_few_runs_holds_them_all() {
        assert_eq!(of_runs(1).range(), None);
        assert_eq!(of_runs(2).range(), Some((1.0, 2.0)));
        assert_eq!(of_runs(8).range(), Some((1.0, 8.0)));
        assert_eq!(of_runs(39).range(), Some((1.0, 39.0)));
        // What programs get are percent points, however few runs there are.
        assert_eq!((of_runs(2).low, of_runs(2).high), (Some(1.025), Some(1.975)));
    }

    #[test]
    fn a_range_of_many_runs_holds_95_of_100() {
        for count in [40, 41, 79, 100, 1000] {
            let value = of_runs(count);
            let (low, high) = value.range().expect("there are many");
            let inside = value.of_seeds.values().filter(|run| (low..=high).contains(run)).count();
            assert!((0.94..=0.96).contains(&(inside as f64 / f64::from(count))), "{inside} of {count}");
        }
    }
}
