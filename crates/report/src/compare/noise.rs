//! The smallest change that a number of runs can show, row by row and column by column.

use csv::Writer;
use serde::Serialize;

use super::{Family, test};
use crate::{
    short::{
        number_of,
        text::{fold, name_field},
    },
    table::Report,
};

/// The spread of a row's runs in one column, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// The experiment, and the title of the table.
    pub experiment: String,
    /// See `experiment`.
    pub title: String,
    /// The metric and the case, for programs.
    pub metric: String,
    /// See `metric`.
    pub case: String,
    /// The name of the row in texts.
    pub name: String,
    /// The label of the column.
    pub column: String,
    /// Which rows it is judged with.
    pub family: Family,
    /// How many runs there are.
    pub runs: usize,
    /// The value over all runs, in the table's unit.
    pub value: f64,
    /// The standard deviation of runs, in per cent of their mean: of logarithms. None with one run, or where a run is zero or
    /// negative.
    pub spread_percent: Option<f64>,
    /// The smallest change, in per cent, that four of five comparisons with as many runs see.
    pub sees_percent: Option<f64>,
    /// How many runs of each side a change of five per cent needs.
    pub runs_for_5_percent: Option<u64>,
}

/// All rows of a report that are of runs.
pub fn noise(report: &Report) -> Vec<Noise> {
    let mut all = Vec::new();
    for table in &report.tables {
        for (at, head) in table.columns.iter().enumerate() {
            for row in &table.rows {
                let (Some(family), Some(value)) = (Family::of(table, row), &row.cells[at]) else { continue };
                let runs: Vec<f64> = value.of_seeds.values().copied().collect();
                let found = test::spread(&runs);
                all.push(Noise {
                    experiment: table.experiment.clone(),
                    title: super::title(table),
                    metric: row.metric.clone(),
                    case: row.case.clone(),
                    name: super::words::name_of(&row.stat, &row.operation),
                    column: head.column.label(),
                    family,
                    runs: runs.len(),
                    value: value.value,
                    spread_percent: found.map(|found| found.percent),
                    sees_percent: found.map(|found| found.sees_percent),
                    runs_for_5_percent: found.map(|found| found.runs_for_asked),
                });
            }
        }
    }
    all
}

/// In lines of 72 columns; counters only with `full`.
pub fn noise_text(noise: &[Noise], full: bool) -> String {
    let mut lines = Vec::new();
    let mut group = None;
    for row in noise.iter().filter(|row| full || row.family == Family::Primary) {
        if group != Some((&row.title, &row.column)) {
            if group.is_some() {
                lines.push(String::new());
            }
            lines.extend(fold(&row.title, 72));
            lines.extend(fold(&row.column, 72));
            lines.push(format!("{:28} {:>4} {:>9} {:>8} {:>8} {:>8}", "", "runs", "value", "spread", "sees", "for 5%"));
            group = Some((&row.title, &row.column));
        }
        let percent =
            |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{}%", number_of(number)));
        let needs = row.runs_for_5_percent.map_or_else(|| "-".to_owned(), |runs| runs.to_string());
        let (before, name) = name_field(&row.name, 28, 72);
        lines.extend(before);
        lines.push(format!(
            "{name} {:>4} {:>9} {:>8} {:>8} {needs:>8}",
            row.runs,
            number_of(row.value),
            percent(row.spread_percent),
            percent(row.sees_percent)
        ));
    }
    lines.push(String::new());
    let rule = "spread: standard deviation of runs. sees: the smallest change that four of five comparisons with as many runs on \
                each side find (Welch's t of logarithms, 5 %, one row alone). for 5%: runs of each side that a change of 5 % \
                needs; simulated columns with the same seeds, compared pair by pair, may need \
                fewer. -: one run, a zero, or no spread";
    lines.extend(fold(rule, 72));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Every row as a line of values.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn noise_csv(noise: &[Noise]) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let names = ["experiment", "metric", "case", "kernel", "runs", "value", "spread_pct", "sees_pct", "runs_for_5_pct"];
    writer.write_record(names).expect("memory takes it");
    let number = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    for row in noise {
        let needs = row.runs_for_5_percent.map_or_else(String::new, |runs| runs.to_string());
        let (runs, value) = (row.runs.to_string(), row.value.to_string());
        let (spread, sees) = (number(row.spread_percent), number(row.sees_percent));
        writer
            .write_record([&row.experiment, &row.metric, &row.case, &row.column, &runs, &value, &spread, &sees, &needs])
            .expect("memory takes it");
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}
