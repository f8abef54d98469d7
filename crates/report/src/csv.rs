//! Comma-separated values: one line per value, for programs.

use std::collections::BTreeSet;

use csv::Writer;

use crate::table::{Layout, Report};

/// The columns: the fields of the published tables, bounds, and the seed where the value is of one seed.
const COLUMNS: [&str; 8] = ["experiment", "metric", "case", "kernel", "value", "low", "high", "seed"];

/// A value outside the report's tables, which a command adds as a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvLine {
    /// The experiment.
    pub experiment: String,
    /// The metric.
    pub metric: String,
    /// The case that the value belongs to.
    pub case: String,
    /// The column's [`label`](crate::Column::label), with a suffix if the value was not measured there.
    pub kernel: String,
    /// The value.
    pub value: String,
}

/// All values of a report, unrounded, then the values of each seed alone, then `more`.
///
/// `metric` is `fault_latency_ns.Amean`, `duration.user`, a counter's name, `cpu.<cause>` or
/// `waiting.<cause>` (with `.share`, in per cent), or `check.<name>.expected`, `.found` and `.within` (how many runs, of how
/// many in `.cells`); `kernel` is the column's
/// [`label`](crate::Column::label), such as `host:6.18.44:here`;
/// in the layout of 2015 of one result its kernel alone, where that tells columns apart. `seed` is empty where a
/// value is of all seeds; each value of a table follows once more for each seed, from the runs with that seed alone.
///
/// # Panics
/// Never: writing to memory does not fail, and every line has as many fields.
pub fn to_csv(report: &Report, by_seed: &[(u64, Report)], more: &[CsvLine]) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 8]| writer.write_record(fields).expect("memory takes it");
    line(COLUMNS);
    let mut shown = BTreeSet::new();
    values(report, |experiment, metric, case, kernel, numbers| {
        shown.insert([experiment, metric, case, kernel].map(str::to_owned));
        let [value, low, high] = numbers;
        line([experiment, metric, case, kernel, value, low, high, ""]);
    });
    for table in &report.checks {
        for row in &table.rows {
            let kernel = row.column.label();
            let numbers = [
                ("expected", row.check.expected),
                ("found", row.check.found),
                ("within", row.cells_within),
                ("cells", row.cells),
            ];
            for (what, number) in numbers {
                let metric = format!("check.{}.{what}", row.check.name);
                let number = number.to_string();
                line([&table.experiment, &metric, &row.case, &kernel, &number, "", "", ""]);
            }
        }
    }
    for (seed, report) in by_seed {
        let seed = seed.to_string();
        values(report, |experiment, metric, case, kernel, numbers| {
            if shown.contains(&[experiment, metric, case, kernel].map(str::to_owned)) {
                let [value, low, high] = numbers;
                line([experiment, metric, case, kernel, value, low, high, &seed]);
            }
        });
    }
    for more in more {
        line([&more.experiment, &more.metric, &more.case, &more.kernel, &more.value, "", "", ""]);
    }
    let bytes = writer.into_inner().expect("memory takes it");
    String::from_utf8(bytes).expect("made of strings")
}

/// Calls `tell` for each value of the tables with experiment, metric, case, kernel; value, low and high.
fn values(report: &Report, mut tell: impl FnMut(&str, &str, &str, &str, [&str; 3])) {
    for table in &report.tables {
        let is_of_kernels = table.is_of_kernels();
        for row in &table.rows {
            for (head, value) in table.columns.iter().zip(&row.cells) {
                let Some(value) = value else { continue };
                let kernel = match report.layout {
                    Layout::Classic if is_of_kernels && head.column.result.is_none() => head.column.kernel.clone(),
                    Layout::Head | Layout::WillItScale | Layout::Cases | Layout::Classic => head.column.label(),
                };
                let [number, low, high] = [Some(value.value), value.low, value.high]
                    .map(|number| number.map_or_else(String::new, |number| number.to_string()));
                tell(&table.experiment, &row.metric, &row.case, &kernel, [&number, &low, &high]);
                if let Some(share) = value.share {
                    let metric = format!("{}.share", row.metric);
                    tell(&table.experiment, &metric, &row.case, &kernel, [&share.to_string(), "", ""]);
                }
            }
        }
    }
}
