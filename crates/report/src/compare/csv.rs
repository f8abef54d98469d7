//! A comparison as lines of values. Bounds of a change have names of their own: `low` and `high` are percent points of runs.

use csv::Writer;

use super::{Comparison, Tested};

const COLUMNS: [&str; 23] = [
    "experiment",
    "metric",
    "case",
    "old_kernel",
    "kernel",
    "family",
    "old_runs",
    "new_runs",
    "old",
    "new",
    "difference",
    "difference_from",
    "difference_to",
    "change_pct",
    "change_pct_from",
    "change_pct_to",
    "p",
    "p_holm",
    "p_ranks",
    "lower",
    "of",
    "starred",
    "verdict",
];

/// Every row that was compared.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn compare_csv(comparison: &Comparison) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).expect("memory takes it");
    let number = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    for row in &comparison.rows {
        let test = match &row.tested {
            Tested::By(test) => Some(test),
            _ => None,
        };
        let percent = test.and_then(|test| test.percent);
        let bounds = test.and_then(|test| test.interval);
        let family = format!("{:?}", row.family).to_lowercase();
        let count = |count: Option<usize>| count.map_or_else(String::new, |count| count.to_string());
        let runs = row.runs;
        writer
            .write_record([
                row.experiment.clone(),
                row.metric.clone(),
                row.case.clone(),
                row.old_column.clone(),
                row.new_column.clone(),
                family,
                runs.0.to_string(),
                runs.1.to_string(),
                row.old.to_string(),
                row.new.to_string(),
                (row.new - row.old).to_string(),
                number(bounds.map(|bounds| bounds.low)),
                number(bounds.map(|bounds| bounds.high)),
                number(percent.map(|percent| percent.change)),
                number(percent.map(|percent| percent.low)),
                number(percent.map(|percent| percent.high)),
                number(test.map(|test| test.p)),
                number(row.p_holm),
                number(test.map(|test| test.p_ranks)),
                count(test.map(|test| test.lower.0)),
                count(test.map(|test| test.lower.1)),
                row.verdict.is_starred().to_string(),
                row.verdict.word().to_owned(),
            ])
            .expect("memory takes it");
    }
    String::from_utf8(writer.into_inner().expect("memory takes it")).expect("made of strings")
}
