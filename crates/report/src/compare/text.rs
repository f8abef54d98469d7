//! A comparison in lines of 72 columns, for a mail, and as Markdown.

use super::{Compared, Comparison, Family, Test, Tested, Verdict, test::ASKED};
use crate::short::text::{fit, fold, list, name_field};

/// Characters of a line.
const WIDTH: usize = 72;
/// Those of names, of each value, of a change and of its interval.
const NAME: usize = 20;
const VALUE: usize = 7;
const CHANGE: usize = 7;
const INTERVAL: usize = 13;

/// A change in per cent of the old value: from nothing to something is endless.
pub(super) fn percent(change: f64, old: f64) -> f64 {
    if old == 0.0 {
        if change == 0.0 { 0.0 } else { change.signum() * f64::INFINITY }
    } else {
        100.0 * change / old.abs()
    }
}

/// All rows. With `full` counters too, and below each row what decides nothing.
pub fn compare_text(comparison: &Comparison, full: bool, markdown: bool) -> String {
    let shown = |row: &&Compared| full || row.family == Family::Primary || row.verdict.is_starred();
    let mut lines = Vec::new();
    let mut group = None;
    for row in comparison.rows.iter().filter(shown) {
        let key = (&row.title, &row.old_column, &row.new_column);
        if group != Some(key) {
            if group.is_some() {
                lines.push(String::new());
            }
            lines.extend(head(row, markdown));
            group = Some(key);
        }
        lines.extend(if markdown { vec![markdown_row(row)] } else { text_row(row) });
        if full && !markdown {
            lines.extend(details(row));
        }
    }
    if lines.is_empty() {
        lines.push("no row has a star: --full shows all of them".to_owned());
    }
    lines.push(String::new());
    lines.extend(foot(comparison, full));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn head(row: &Compared, markdown: bool) -> Vec<String> {
    let columns = [format!("old: {}", row.old_column), format!("new: {}", row.new_column)];
    if markdown {
        let head = format!("**{}** ({}), {}, {}", row.title, row.unit, columns[0], columns[1]);
        let names = "| | old | new | change | 95 % interval | |".to_owned();
        return vec![head, String::new(), names, "|---|--:|--:|--:|:-:|---|".to_owned()];
    }
    let names =
        format!("{:NAME$} {:>VALUE$} {:>VALUE$} {:>CHANGE$}  {:^INTERVAL$}", "", "old", "new", "change", "95 %");
    let title = format!("{} ({})", row.title, row.unit);
    let lines = [title].into_iter().chain(columns).flat_map(|line| fold(&line, WIDTH));
    lines.chain([names.trim_end().to_owned()]).collect()
}

fn name(row: &Compared) -> String {
    name_of(&row.stat, &row.operation)
}

/// The name of a row; counters have no statistic.
pub(super) fn name_of(stat: &str, operation: &str) -> String {
    if ["Ops", ""].contains(&stat) { operation.to_owned() } else { format!("{stat} {operation}") }
}

/// The numbers of a row, below its name where that is long.
fn text_row(row: &Compared) -> Vec<String> {
    let [old, new] = [row.old, row.new].map(crate::short::number_of);
    let star = if row.verdict.is_starred() { '*' } else { ' ' };
    let (mut lines, name) = name_field(&name(row), NAME, WIDTH);
    let line = format!(
        "{name} {old:>VALUE$} {new:>VALUE$} {:>CHANGE$}{star} {:^INTERVAL$} {}",
        change(row),
        interval(row),
        row.verdict.word()
    );
    lines.push(line.trim_end().to_owned());
    lines
}

fn markdown_row(row: &Compared) -> String {
    let [old, new] = [row.old, row.new].map(crate::short::number_of);
    let star = if row.verdict.is_starred() { " \\*" } else { "" };
    format!("| {} | {old} | {new} | {}{star} | {} | {} |", name(row), change(row), interval(row), row.verdict.word())
}

/// A change with as many digits as can be read.
fn of_percent(percent: f64) -> String {
    match percent.abs() {
        size if size.is_infinite() => "was 0".to_owned(),
        size if size >= 1000.0 => format!("x{}", crate::short::number_of(1.0 + percent / 100.0)),
        size if size >= 100.0 => format!("{percent:+.0}%"),
        _ => format!("{percent:+.1}%"),
    }
}

/// The change in per cent, as a table has it.
pub(super) fn change(row: &Compared) -> String {
    match &row.tested {
        Tested::By(Test { percent: Some(percent), .. }) => of_percent(percent.change),
        Tested::Same => "=".to_owned(),
        _ => of_percent(percent(row.new - row.old, row.old)),
    }
}

fn interval(row: &Compared) -> String {
    let Tested::By(test) = &row.tested else { return String::new() };
    let end = |value: f64| match value.abs() {
        size if size >= 99.5 => crate::short::number_of(value.round()),
        _ => format!("{value:.1}"),
    };
    match (test.percent, test.interval) {
        (Some(percent), _) => format!("{}..{}", end(percent.low), end(percent.high)),
        // Without logarithms it is of differences, in the unit of the row.
        (None, Some(bounds)) => format!("({}..{})", end(bounds.low), end(bounds.high)),
        (None, None) => String::new(),
    }
}

/// Lines about a row that decide nothing.
fn details(row: &Compared) -> Vec<String> {
    let text = match &row.tested {
        Tested::OneRun => "one run on a side: no verdict".to_owned(),
        Tested::Same => return Vec::new(),
        Tested::DiffersInAll => {
            format!("differs in all {} runs; from 5 on that is told for sure", row.runs.0.min(row.runs.1))
        }
        Tested::By(test) => {
            let (lower, of) = test.lower;
            let kind = if test.is_paired { "seeds" } else { "pairs" };
            let p = row.p_holm.unwrap_or(1.0);
            let sees = match (row.verdict, test.sees_percent, test.runs_for_asked) {
                (Verdict::CannotTell, Some(sees), Some(runs)) => format!(
                    "; {} runs see changes of {} % and more; {ASKED} % needs {runs}",
                    row.runs.0.min(row.runs.1),
                    crate::short::number_of(sees)
                ),
                _ => String::new(),
            };
            format!("p {p:.3}, {lower} of {of} {kind} lower, by ranks p {:.3}{sees}", test.p_ranks)
        }
    };
    fold(&text, WIDTH - 4).into_iter().map(|line| format!("    {line}")).collect()
}

/// The rule, the runs, and how often a table like this has a false star.
fn foot(comparison: &Comparison, full: bool) -> Vec<String> {
    let count = |verdict: Verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    let hidden =
        comparison.rows.iter().filter(|row| row.family != Family::Primary && !row.verdict.is_starred()).count();
    let mut lines = Vec::new();
    let mut runs: Vec<String> = comparison.runs().values().map(|(old, new)| format!("{old} and {new}")).collect();
    runs.dedup();
    lines.push(fit(&format!("{} rows; runs of each: {}", comparison.rows.len(), list("", &runs, 48)), WIDTH));
    let rule = comparison.gates.in_words("paired t of seeds, else Welch's, of logarithms where all are positive; ");
    lines.extend(fold(&format!("* {rule}. At most one such table in 20 has a false star."), WIDTH));
    if comparison.rows.iter().any(|row| matches!(&row.tested, Tested::By(Test { percent: None, .. }))) {
        lines.extend(fold("(a..b): of differences, where a number is 0 or negative", WIDTH));
    }
    if let Some(text) = cannot_tell(comparison) {
        lines.extend(fold(&text, WIDTH));
    }
    let (one, few) = (count(Verdict::OneRun), count(Verdict::DiffersInAll));
    if one > 0 {
        lines.push(format!("one run: nothing can be told of {one} rows; --seeds 8 would tell"));
    }
    if few > 0 {
        lines.extend(fold(&format!("differs, few: all runs differ in {few} rows, of fewer than 5 runs"), WIDTH));
    }
    for (rows, side) in [(&comparison.unmatched.only_old, "old"), (&comparison.unmatched.only_new, "new")] {
        if !rows.is_empty() {
            lines.push(list(&format!("only in {side}: "), rows, WIDTH));
        }
    }
    if !full && hidden > 0 {
        lines.push(format!("{hidden} rows of percentiles and counters without a star: --full"));
    }
    lines
}

/// How large changes have to be for these runs to see them.
fn cannot_tell(comparison: &Comparison) -> Option<String> {
    let unsure =
        comparison.rows.iter().filter(|row| row.verdict == Verdict::CannotTell && row.family == Family::Primary);
    let of_test = |row: &Compared| match &row.tested {
        Tested::By(test) => Some((test.sees_percent?, test.runs_for_asked?, row.runs.0.min(row.runs.1))),
        _ => None,
    };
    let all: Vec<(f64, u64, usize)> = unsure.filter_map(of_test).collect();
    let runs = all.iter().map(|row| row.2).max()?;
    let sees = all.iter().map(|row| row.0).fold(f64::NEG_INFINITY, f64::max);
    let needs = all.iter().map(|row| row.1).max()?;
    Some(format!(
        "cannot tell: in the widest of {} rows {runs} runs see changes of {} % and more; {ASKED} % needs {needs} runs of each \
         (--full says it by row)",
        all.len(),
        crate::short::number_of(sees)
    ))
}
