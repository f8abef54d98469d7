//! Three lines at the end of a run and at the head of a comparison: what moved, what is worst, and what runs could not tell.

use super::{Compared, Comparison, Family, Noise, Tested, Verdict, noise, test::ASKED, words};
use crate::{
    short::{
        number_of,
        text::{fit, list},
    },
    table::Report,
};

/// Seeds that are proposed where there is one.
const SEEDS: &str = "--seeds 8";

/// The three lines, of at most `width` characters each. How far a model is from its kernel is no change.
pub fn summary(comparison: &Comparison, width: usize) -> [String; 3] {
    let rows: Vec<&Compared> = comparison.rows.iter().filter(|row| !row.is_model).collect();
    [moved(&rows, width), worst(&rows, width), not_told(&rows)].map(|line| fit(&line, width))
}

/// Three lines about a result. For a single column the lines say how large a difference from another column its runs could
/// show.
pub fn summary_of(report: &Report, comparison: &Comparison, width: usize) -> [String; 3] {
    if comparison.rows.iter().any(|row| !row.is_model) {
        return summary(comparison, width);
    }
    let rows: Vec<Noise> = noise(report).into_iter().filter(|row| row.family == Family::Primary).collect();
    let nothing = "moved: nothing to compare: one column (--variant or --set makes more)".to_owned();
    let spread = rows.iter().max_by(|a, b| a.spread_percent.unwrap_or(0.0).total_cmp(&b.spread_percent.unwrap_or(0.0)));
    let widest = spread.and_then(|row| Some((row, row.spread_percent?)));
    let widest = widest.map_or_else(
        || "widest spread of runs: none is known".to_owned(),
        |(row, percent)| format!("widest spread of {} runs: {}%, {}", row.runs, number_of(percent), row.name),
    );
    let seeds =
        match (rows.iter().map(|row| row.runs).max(), needs(rows.iter().filter_map(|row| row.runs_for_5_percent))) {
            (_, Some(needs)) => format!("to tell {ASKED} % apart: {needs}, of {} rows", rows.len()),
            (Some(0 | 1), None) => format!("to tell changes from luck: {SEEDS}; there is one seed"),
            (_, None) => "to tell 5 % apart: these runs are enough, as they do not spread".to_owned(),
        };
    [nothing, widest, seeds].map(|line| fit(&line, width))
}

/// How far a change goes: a fall to nought and a rise from it go furthest.
fn size(row: &Compared) -> f64 {
    let ratio = row.new / row.old;
    if ratio > 0.0 && ratio.is_finite() { libm::log(ratio).abs() } else { f64::INFINITY }
}

/// The largest first; of equal ones those with a direction, and then the larger difference.
fn largest_first(rows: &mut [&Compared]) {
    let difference = |row: &Compared| row.difference().abs();
    rows.sort_by(|a, b| {
        size(b).total_cmp(&size(a)).then(a.family.cmp(&b.family)).then(difference(b).total_cmp(&difference(a)))
    });
}

/// The row, and where there are several pairs of columns, the column.
fn name(row: &Compared, rows: &[&Compared]) -> String {
    let pair = |row: &Compared| (row.old_column.clone(), row.new_column.clone());
    let several = rows.iter().any(|other| pair(other) != pair(row));
    let column = if several { format!(" at {}", row.new_kernel) } else { String::new() };
    format!("{}{column}", words::name_of(&row.stat, &row.operation))
}

fn moved(rows: &[&Compared], width: usize) -> String {
    let mut starred: Vec<&Compared> = rows.iter().copied().filter(|row| row.verdict.is_starred()).collect();
    if starred.is_empty() {
        return format!("moved: none of {} rows", rows.len());
    }
    largest_first(&mut starred);
    let items: Vec<String> = starred.iter().map(|row| format!("{} {}", name(row, rows), words::change(row))).collect();
    list(&format!("moved: {} of {} rows: ", starred.len(), rows.len()), &items, width)
}

fn worst(rows: &[&Compared], width: usize) -> String {
    let mut worse: Vec<&Compared> = rows.iter().copied().filter(|row| row.verdict == Verdict::Worse).collect();
    largest_first(&mut worse);
    let Some(row) = worse.first() else { return "worst: no row is worse".to_owned() };
    let [old, new] = [row.old, row.new].map(number_of);
    let end = format!(" {}, {old} to {new} {}", words::change(row), row.unit);
    let room = width.saturating_sub("worst: ".len() + end.chars().count());
    format!("worst: {}{end}", fit(&name(row, rows), room))
}

fn not_told(rows: &[&Compared]) -> String {
    let of = |verdict: Verdict| rows.iter().copied().filter(move |row| row.verdict == verdict);
    let (unsure, few, one) =
        (of(Verdict::CannotTell).count(), of(Verdict::DiffersInAll).count(), of(Verdict::OneRun).count());
    let all = rows.len();
    let asked = |row: &Compared| if let Tested::By(test) = &row.tested { test.runs_for_asked } else { None };
    match (one, unsure, few) {
        (1.., ..) => format!("not told apart: {one} of {all} rows, of one seed; {SEEDS} would tell"),
        (0, 0, 0) => format!("not told apart: none of {all} rows"),
        (0, 0, few) => format!("not told apart: {few} of {all} rows, of fewer than 5 seeds; {SEEDS} would tell"),
        (0, unsure, few) => {
            let needs = needs(of(Verdict::CannotTell).filter_map(asked));
            let needs = needs.map_or_else(String::new, |needs| format!("; {ASKED} % takes {needs}"));
            format!("not told apart: {} of {all}{needs}", unsure + few)
        }
    }
}

/// The number of seeds that half of the rows need, and the number that every row needs.
fn needs(runs: impl Iterator<Item = u64>) -> Option<String> {
    let mut runs: Vec<u64> = runs.collect();
    runs.sort_unstable();
    let [half, all] = [runs.get(runs.len().checked_sub(1)? / 2)?, runs.last()?].map(|runs| number_of(*runs as f64));
    Some(if half == all { format!("{all} seeds") } else { format!("{half} seeds in half, {all} in all") })
}
