//! A comparison as lines of values. `change_pct` is the change of `old` and `new`, empty from nought; `geometric_pct` that of
//! geometric means, of which p and the interval are where all numbers are positive.

use csv::Writer;

use super::{Comparison, Tested};

const COLUMNS: [&str; 26] = [
    "experiment",
    "metric",
    "case",
    "old_kernel",
    "kernel",
    "family",
    "quantity",
    "unit",
    "old_runs",
    "new_runs",
    "old",
    "new",
    "difference",
    "difference_from",
    "difference_to",
    "change_pct",
    "geometric_pct",
    "geometric_pct_from",
    "geometric_pct_to",
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
        let percent = test.and_then(|test| test.geometric);
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
                row.quantity.word().to_owned(),
                row.unit.clone(),
                runs.0.to_string(),
                runs.1.to_string(),
                row.old.to_string(),
                row.new.to_string(),
                row.difference().to_string(),
                number(bounds.map(|bounds| bounds.low)),
                number(bounds.map(|bounds| bounds.high)),
                number(row.change_percent),
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
