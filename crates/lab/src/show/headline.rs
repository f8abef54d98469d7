//! The title of a page and the three sentences below it: which column against which, how many rows moved, the largest change of
//! each verdict.

use std::collections::BTreeMap;

use report::{
    compare::{Compared, Verdict},
    html::{Changed, PairOf},
    short::number_of,
};

use super::shown::Shown;

/// Words of experiments about themselves and about their columns.
pub(super) struct Titles {
    about: Vec<String>,
    /// Titles by the name of a column, where it has one.
    of_columns: BTreeMap<String, String>,
}

impl Titles {
    pub(super) fn of(shown: &[Shown]) -> Self {
        let mut about: Vec<String> = shown.iter().filter_map(|shown| shown.presentation.about.clone()).collect();
        about.dedup();
        let of_columns = shown.iter().flat_map(|shown| shown.presentation.titles.clone()).collect();
        Self { about, of_columns }
    }

    /// A column's name, with its title behind it where the experiment gives one.
    fn name(&self, column: &str) -> String {
        // Beside another result a column's name begins with its result.
        let title = self.of_columns.get(column).or_else(|| self.of_columns.get(column.rsplit(' ').next()?));
        title.map_or_else(|| column.to_owned(), |title| format!("{column} ({title})"))
    }
}

/// The columns that all pairs compare: `new against old`, or how many against the one.
fn columns(pairs: &[PairOf], name: impl Fn(&str) -> String) -> Option<String> {
    let first = pairs.first()?;
    Some(if pairs.len() == 1 {
        format!("{} against {}", name(&first.new), name(&first.old))
    } else if pairs.iter().all(|pair| pair.old == first.old) {
        format!("{} columns against {}", pairs.len(), name(&first.old))
    } else {
        format!("{} pairs of columns", pairs.len())
    })
}

/// The name of the page: columns, experiment and, of a single pair, the counts of verdicts.
pub(super) fn name(pairs: &[PairOf], experiment: &str) -> String {
    let counts = match pairs {
        [pair] => format!(": {}", pair.verdict.trim_end_matches('.')),
        _ => String::new(),
    };
    match columns(pairs, str::to_owned) {
        Some(columns) => format!("{columns}, {experiment}{counts}"),
        None => experiment.to_owned(),
    }
}

/// The title of the page: columns, and what the experiment asks.
pub(super) fn title(pairs: &[PairOf], titles: &Titles, experiment: &str) -> String {
    let about = if titles.about.is_empty() { experiment.to_owned() } else { titles.about.join("; ") };
    match columns(pairs, |column| titles.name(column)) {
        Some(columns) => format!("{columns}: {about}"),
        None => about,
    }
}

/// The sentence that names both columns of a pair, the machines and the runs.
pub(super) fn which(pair: &PairOf, titles: &Titles, machines: &str) -> String {
    let runs = match pair.runs {
        (1, 1) => "one run of each".to_owned(),
        (old, new) if old == new => format!("{old} runs of each"),
        (old, new) => format!("{new} and {old} runs"),
    };
    format!("{} against {} on {machines}, {runs}.", titles.name(&pair.new), titles.name(&pair.old))
}

/// Verdicts with their words in a count.
const COUNTED: [(&[Verdict], &str); 5] = [
    (&[Verdict::Better], "better"),
    (&[Verdict::Worse], "worse"),
    (&[Verdict::NoChange, Verdict::Same], "the same or nearly so"),
    (&[Verdict::CannotTell, Verdict::DiffersInAll], "not told apart"),
    (&[Verdict::OneRun], "of one run, which tells nothing of luck"),
];

/// The sentence that counts the rows of a pair by verdict.
pub(super) fn counts(rows: &[&Compared]) -> String {
    let count = |verdicts: &[Verdict]| rows.iter().filter(|row| verdicts.contains(&row.verdict)).count();
    let words: Vec<String> = COUNTED
        .iter()
        .map(|(verdicts, word)| (count(verdicts), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let of = if rows.len() == 1 { "row" } else { "rows" };
    format!("{} {of}: {}.", rows.len(), words.join(", "))
}

/// The sentence that names the largest change of each verdict.
pub(super) fn largest(rows: &[(&Compared, Changed)]) -> String {
    let size = |row: &(&Compared, Changed)| row.1.change.map_or(f64::MAX, f64::abs);
    let largest = |verdicts: &[Verdict]| {
        rows.iter().filter(|row| verdicts.contains(&row.0.verdict)).max_by(|a, b| size(a).total_cmp(&size(b)))
    };
    let words: Vec<String> = COUNTED
        .iter()
        .filter(|(verdicts, _)| *verdicts != [Verdict::NoChange, Verdict::Same])
        .filter_map(|(verdicts, word)| Some((largest(verdicts)?, word)))
        .map(|((_, row), word)| {
            let word = if *word == "of one run, which tells nothing of luck" { "of one run" } else { word };
            format!("{word} {} {}", row.name, change(row))
        })
        .collect();
    if words.is_empty() { String::new() } else { format!("Largest change of each: {}.", words.join("; ")) }
}

/// The change of a row in per cent, with the two numbers that it is between.
fn change(row: &Changed) -> String {
    let numbers = format!("{} to {} {}", number_of(row.old), number_of(row.new), row.unit);
    match row.change {
        Some(percent) if percent.abs() < 10.0 => format!("{percent:+.1} % ({numbers})"),
        Some(percent) => format!("{percent:+.0} % ({numbers})"),
        None => format!("({numbers})"),
    }
}
