//! The difference of two columns in one row, and the causes of time and the counters that differ with it beyond luck.
//!
//! A cause explains its share of the time that all causes which moved in the row's direction gained or lost. A counter explains
//! nothing by itself: counters are ordered by the size of their change, and the correlation over seeds stands beside it.

mod text;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use thiserror::Error;

pub use self::text::between_text;
use super::{Compared, Comparison, Gates, Tested, Verdict};
use crate::{
    better::Better,
    group::operations,
    quantity::Quantity,
    record::{Cell, Column, Key, WAITING},
    short::text::list,
    stats,
    table::{ColumnHead, Form, Kind, Layout, Report, Row, Table, Value},
};

/// Most lines of causes and counters together.
const LINES: usize = 10;
/// Most of these lines that are causes.
const CAUSES: usize = 4;
/// Pairs of runs from which on a correlation is shown.
const PAIRS: usize = 4;

/// A row of two columns with the numbers that differ with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Between {
    /// The row.
    pub row: Compared,
    /// Times by cause and then counters, at most ten, each kind in its order.
    pub explained: Vec<Explaining>,
    /// Causes and counters that were looked at.
    pub looked_at: usize,
    /// Causes and counters among these whose difference is within luck, or too small to matter.
    pub within_luck: usize,
    /// Rules, settings and parameters of the two columns that differ: name, old and new value.
    pub rules: Vec<(String, String, String)>,
}

/// A cause of time or a counter that differs between two columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explaining {
    /// The kind of number.
    pub kind: Explainer,
    /// The name: `CPU: copy`, `waiting: disk`, or a counter's.
    pub name: String,
    /// The two values and their test.
    pub compared: Compared,
    /// Of a cause: the share, in per cent, of the time that all causes which moved in the row's direction gained or lost.
    pub share_percent: Option<f64>,
    /// Correlation of paired differences of runs with the row's; none of fewer than four pairs, or without spread.
    pub correlation: Option<f64>,
}

/// Kinds of numbers that explain a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Explainer {
    /// Time of all tasks and kernel threads by cause.
    Cause,
    /// A counter.
    Counter,
}

/// Why a row is not explained.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BetweenError {
    /// No row has the name.
    #[error("no row of both columns is called {wanted:?}; nearest: {nearest}")]
    NoRow {
        /// The name.
        wanted: String,
        /// The valid name that is most like it.
        nearest: String,
    },
    /// Several rows have the name.
    #[error("several rows are called {0:?}; name one by its metric: {1}")]
    Several(String, String),
    /// The columns share no row.
    #[error("no row is in both columns")]
    NothingShared,
}

impl Between {
    /// Explains a row, `METRIC:CASE`, of cells of two columns.
    ///
    /// # Errors
    /// No row has the name, or several.
    pub fn of(layout: Layout, cells: &[Cell], columns: [&Column; 2], row: &str) -> Result<Self, BetweenError> {
        let [old, _] = columns;
        let report = report_of(layout, cells, old);
        let comparison = Comparison::of(&report, Gates::default());
        let row = found(&comparison, row)?.clone();
        let cells = cells_of(layout, cells, &row);
        let runs = differences(&report, &row);
        let (causes, of_causes) = if row.quantity == Quantity::Time {
            let report = Report { tables: vec![causes(&cells, columns)], ..report_of(Layout::Head, &[], old) };
            explaining(Explainer::Cause, &report, &row, &runs)
        } else {
            (Vec::new(), 0)
        };
        let mut counters = report_of(Layout::Head, &cells, old);
        counters.tables.retain(|table| table.kind == Kind::Counters);
        let (counters, of_counters) = explaining(Explainer::Counter, &counters, &row, &runs);
        let looked_at = of_causes + of_counters;
        let within_luck = looked_at - causes.len() - counters.len();
        let causes: Vec<Explaining> = causes.into_iter().filter(|cause| cause.share_percent.is_some()).collect();
        let room = CAUSES.max(LINES.saturating_sub(counters.len()));
        let explained = causes.into_iter().take(room).chain(counters).take(LINES).collect();
        Ok(Self { row, explained, looked_at, within_luck, rules: Vec::new() })
    }
}

/// The tables of cells, with every counter, each column compared with the old one.
fn report_of(layout: Layout, cells: &[Cell], old: &Column) -> Report {
    let mut report = Report::with_all_counters(layout, cells);
    report.add_counters(cells, |_| true);
    for table in &mut report.tables {
        let Some(baseline) = table.columns.iter().position(|head| head.column == *old) else { continue };
        table.columns.iter_mut().for_each(|head| head.baseline = baseline);
    }
    report
}

fn found<'a>(comparison: &'a Comparison, wanted: &str) -> Result<&'a Compared, BetweenError> {
    let (name, case) = wanted.split_once(':').map_or((wanted, None), |(name, case)| (name, Some(case)));
    let is_named = |row: &&Compared| row.stat.eq_ignore_ascii_case(name) || row.metric.eq_ignore_ascii_case(name);
    let is_case = |row: &&Compared| case.is_none_or(|case| row.operation == case || row.case == case);
    let mut rows: Vec<&Compared> = comparison.rows.iter().filter(is_named).filter(is_case).collect();
    // The layout of 2015 has some counters twice.
    rows.dedup_by_key(|row| (&row.metric, &row.case));
    match rows[..] {
        [row] => Ok(row),
        [] => {
            let of_stat = |row: &Compared| format!("{}:{}", row.stat.to_lowercase(), row.operation);
            let of_metric = |row: &Compared| format!("{}:{}", row.metric, row.case);
            let names: BTreeSet<String> =
                comparison.rows.iter().flat_map(|row| [of_stat(row), of_metric(row)]).collect();
            let nearest = names.into_iter().min_by_key(|name| strsim::damerau_levenshtein(name, wanted));
            let wanted = wanted.to_owned();
            Err(nearest.map_or(BetweenError::NothingShared, |nearest| BetweenError::NoRow { wanted, nearest }))
        }
        _ => {
            let names: Vec<String> = rows.iter().map(|row| format!("{}:{}", row.metric, row.case)).collect();
            Err(BetweenError::Several(wanted.to_owned(), list("", &names, 300)))
        }
    }
}

/// The cells that a row is made of: of each operation that has the row where the operation stands alone.
fn cells_of(layout: Layout, cells: &[Cell], row: &Compared) -> Vec<Cell> {
    let operations: BTreeMap<Key, String> = operations(cells);
    let names: BTreeSet<&String> = operations.values().collect();
    let of_name = |name: &String| -> Vec<Cell> {
        cells.iter().filter(|cell| operations.get(&cell.key) == Some(name)).cloned().collect()
    };
    let has_row = |cells: &Vec<Cell>| {
        let mut report = Report::with_all_counters(layout, cells);
        report.add_counters(cells, |_| true);
        let mut rows = report.tables.iter().flat_map(|table| &table.rows);
        rows.any(|found| (&found.metric, &found.case) == (&row.metric, &row.case))
    };
    let found: Vec<Cell> = names.into_iter().map(of_name).filter(has_row).flatten().collect();
    if found.is_empty() { cells.to_vec() } else { found }
}

/// The differences of a row's runs by seed.
fn differences(report: &Report, row: &Compared) -> BTreeMap<u64, f64> {
    for table in &report.tables {
        let at = |label: &String| table.columns.iter().position(|head| head.column.label() == *label);
        let Some((old, new)) = at(&row.old_column).zip(at(&row.new_column)) else { continue };
        let is_row = |found: &&Row| (&found.metric, &found.case) == (&row.metric, &row.case);
        let Some(found) = table.rows.iter().find(is_row) else { continue };
        let [Some(old), Some(new)] = [old, new].map(|at| found.cells[at].as_ref()) else { continue };
        let difference = |(seed, new): (&u64, &f64)| Some((*seed, new - old.of_seeds.get(seed)?));
        return new.of_seeds.iter().filter_map(difference).collect();
    }
    BTreeMap::new()
}

/// Times by cause as a table whose rows can be compared.
fn causes(cells: &[Cell], columns: [&Column; 2]) -> Table {
    let mut times: BTreeMap<&str, [BTreeMap<u64, f64>; 2]> = BTreeMap::new();
    let known: BTreeSet<&str> = cells.iter().flat_map(|cell| cell.measured.causes.keys().map(String::as_str)).collect();
    for cell in cells.iter().filter(|cell| !cell.measured.causes.is_empty()) {
        let Some(side) = columns.iter().position(|column| **column == cell.key.column()) else { continue };
        for name in &known {
            let ps = cell.measured.causes.get(*name).copied().unwrap_or(0);
            *times.entry(name).or_default()[side].entry(cell.key.seed).or_default() += ps as f64 / 1e9;
        }
    }
    let value = |runs: BTreeMap<u64, f64>| {
        let mean = stats::amean(&runs.values().copied().collect::<Vec<f64>>())?;
        Some(Value::over_seeds(mean, runs))
    };
    let row = |(name, sides): (&str, [BTreeMap<u64, f64>; 2])| {
        let name = if name.starts_with(WAITING) { name.to_owned() } else { format!("CPU: {name}") };
        Row {
            metric: name.clone(),
            case: String::new(),
            stat: String::new(),
            operation: name,
            better: Better::None,
            unit: "ms".to_owned(),
            form: Form::Hundredths,
            cells: sides.map(value).into(),
        }
    };
    let head = |column: &Column| ColumnHead { column: column.clone(), lines: Vec::new(), baseline: 0 };
    Table {
        experiment: String::new(),
        title: String::new(),
        // A kind of rows that are tested: causes in tables of results are not.
        kind: Kind::Counters,
        unit: "ms".to_owned(),
        better: Better::None,
        columns: columns.map(head).into(),
        rows: times.into_iter().map(row).collect(),
    }
}

/// Numbers that differ beyond luck, in the order in which they explain a row, and how many numbers were looked at. Where runs are
/// too few to tell luck, a number counts whose difference is large enough to matter.
fn explaining(kind: Explainer, report: &Report, row: &Compared, runs: &BTreeMap<u64, f64>) -> (Vec<Explaining>, usize) {
    let comparison = Comparison::of(report, Gates::default());
    let is_row = |found: &&Compared| (&found.metric, &found.case) == (&row.metric, &row.case);
    let others: Vec<&Compared> = comparison.rows.iter().filter(|found| !is_row(found)).collect();
    let goes_along = |found: &Compared| found.difference() * row.difference() > 0.0;
    let along = others.iter().filter(|found| goes_along(found)).map(|found| found.difference().abs()).sum::<f64>();
    let differs = |found: &&Compared| match found.verdict {
        Verdict::OneRun | Verdict::DiffersInAll => comparison.is_material(found, found.difference()),
        verdict => verdict.is_starred(),
    };
    let of = |found: &Compared| Explaining {
        kind,
        name: found.metric.clone(),
        share_percent: (kind == Explainer::Cause && goes_along(found))
            .then(|| 100.0 * found.difference().abs() / along),
        correlation: correlation(runs, &differences(report, found)),
        compared: found.clone(),
    };
    let count = others.len();
    let mut found: Vec<Explaining> =
        others.into_iter().filter(differs).filter(|found| found.old.total_cmp(&found.new).is_ne()).map(of).collect();
    let size = |one: &Explaining| one.share_percent.unwrap_or_else(|| size(&one.compared));
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found.sort_by_key(|one| Reverse(one.compared.verdict.is_starred()));
    (found, count)
}

/// How large the change of a counter is: on the scale of its test, which for counts is that of logarithms.
fn size(row: &Compared) -> f64 {
    let logs = |value: f64| libm::log1p(value.abs());
    match &row.tested {
        Tested::By(test) if test.scale != super::Scale::Plain => test.on_scale.abs(),
        _ if row.old * row.new < 0.0 => logs(row.old) + logs(row.new),
        _ => (logs(row.new) - logs(row.old)).abs(),
    }
}

/// Pearson's correlation of what two rows have for the same seeds.
fn correlation(one: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = one.iter().filter_map(|(seed, one)| Some((*one, *other.get(seed)?))).collect();
    if pairs.len() < PAIRS {
        return None;
    }
    let (ones, others): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (mean, of_other) = (stats::amean(&ones)?, stats::amean(&others)?);
    let spread = stats::stddev(&ones)? * stats::stddev(&others)?;
    let products = pairs.iter().map(|(one, other)| (one - mean) * (other - of_other));
    let covariance = products.sum::<f64>() / (pairs.len() - 1) as f64;
    (spread > 0.0).then(|| covariance / spread)
}

#[cfg(test)]
mod tests;
