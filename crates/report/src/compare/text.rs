//! A comparison in lines of 72 columns, for a mail, and as Markdown.

use super::{
    Compared, Comparison, Family, Scale, Tested, Verdict, summary,
    test::ASKED,
    words::{change, interval, name_of},
};
use crate::short::text::{fit, fold, list, name_field};

/// Characters of a line.
const WIDTH: usize = 72;
/// Width of names, of each value, of a change and of its interval.
const NAME: usize = 20;
const VALUE: usize = 7;
const CHANGE: usize = 7;
const INTERVAL: usize = 13;

/// Most rows with a star that are shown by default.
const SHOWN: usize = 30;

/// The outcome in three lines, then the rows with a star. With `full`, all rows that are not zero in both columns, and below
/// each row the numbers that decide nothing.
pub fn compare_text(comparison: &Comparison, full: bool, markdown: bool) -> String {
    let summary = summary(comparison, WIDTH);
    let mut lines: Vec<String> =
        summary.into_iter().map(|line| if markdown { format!("- {line}") } else { line }).collect();
    let is_nought = |row: &Compared| row.old == 0.0 && row.new == 0.0;
    let is_shown = |row: &&Compared| if full { !is_nought(row) } else { row.verdict.is_starred() };
    let mut group = None;
    for row in comparison.rows.iter().filter(is_shown).take(if full { usize::MAX } else { SHOWN }) {
        let key = (&row.title, &row.old_column, &row.new_column);
        if group != Some(key) {
            lines.push(String::new());
            lines.extend(head(row, markdown));
            group = Some(key);
        }
        lines.extend(if markdown { vec![markdown_row(row)] } else { text_row(row) });
        if full && !markdown {
            lines.extend(details(row));
        }
    }
    lines.push(String::new());
    lines.extend(foot(comparison, full));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn head(row: &Compared, markdown: bool) -> Vec<String> {
    let columns = [format!("old: {}", row.old_column), format!("new: {}", row.new_column)];
    if markdown {
        let head = format!("**{}** ({}), {}, {}", row.title, row.unit, columns[0], columns[1]);
        let names = "| | old | new | change | 95 % geometric | |".to_owned();
        return vec![head, String::new(), names, "|---|--:|--:|--:|:-:|---|".to_owned()];
    }
    let names =
        format!("{:NAME$} {:>VALUE$} {:>VALUE$} {:>CHANGE$}  {:^INTERVAL$}", "", "old", "new", "change", "95 % geom.");
    let title = format!("{} ({})", row.title, row.unit);
    let lines = [title].into_iter().chain(columns).flat_map(|line| fold(&line, WIDTH));
    lines.chain([names.trim_end().to_owned()]).collect()
}

fn name(row: &Compared) -> String {
    name_of(&row.stat, &row.operation)
}

/// The numbers of a row, below its name where the name is long.
fn text_row(row: &Compared) -> Vec<String> {
    let [old, new] = [row.old, row.new].map(crate::short::number_of);
    let star = if row.verdict.is_starred() { '*' } else { ' ' };
    let (mut lines, name) = name_field(&name(row), NAME, WIDTH);
    let line = format!(
        "{name} {old:>VALUE$} {new:>VALUE$} {:>CHANGE$}{star} {:^INTERVAL$} {}",
        change(row),
        interval_of(row),
        row.verdict.word()
    );
    lines.push(line.trim_end().to_owned());
    lines
}

fn markdown_row(row: &Compared) -> String {
    let [old, new] = [row.old, row.new].map(crate::short::number_of);
    let star = if row.verdict.is_starred() { " \\*" } else { "" };
    format!("| {} | {old} | {new} | {}{star} | {} | {} |", name(row), change(row), interval_of(row), row.verdict.word())
}

fn interval_of(row: &Compared) -> String {
    let Tested::By(test) = &row.tested else { return String::new() };
    interval(test.geometric, test.interval)
}

/// The numbers of a row that decide nothing, such as how many runs are lower.
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

/// The rule for a star, the number of runs, how often a table like this has a false star, and how many rows are left out.
fn foot(comparison: &Comparison, full: bool) -> Vec<String> {
    let count = |verdict: Verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    let rows = |is: &dyn Fn(&&Compared) -> bool| comparison.rows.iter().filter(is).count();
    let starred = rows(&|row| row.verdict.is_starred());
    let nought = rows(&|row| row.old == 0.0 && row.new == 0.0);
    let is_tested = |row: &&Compared, log: bool| match &row.tested {
        Tested::By(test) => (test.scale == Scale::Log) == log,
        _ => false,
    };
    let mut lines = Vec::new();
    let mut runs: Vec<String> = comparison.runs().values().map(|(old, new)| format!("{old} and {new}")).collect();
    runs.dedup();
    lines.push(fit(&format!("{} rows; runs of each: {}", comparison.rows.len(), list("", &runs, 48)), WIDTH));
    let rule = comparison.gates.in_words("paired t of seeds, else Welch's, of logarithms where all are positive; ");
    lines.extend(fold(&format!("* {rule}. At most one such table in 20 has a false star."), WIDTH));
    if rows(&|row| is_tested(row, true)) > 0 {
        let geometric =
            "geom.: interval of the change of geometric means, in %; the change is of the two numbers shown";
        lines.extend(fold(geometric, WIDTH));
    }
    if rows(&|row| is_tested(row, false)) > 0 {
        lines.extend(fold("(a..b): of differences, where a number is 0 or negative; new: was 0", WIDTH));
    }
    if let Some(text) = cannot_tell(comparison).filter(|_| full) {
        lines.extend(fold(&text, WIDTH));
    }
    let (one, few) = (count(Verdict::OneRun), count(Verdict::DiffersInAll));
    if one > 0 && full {
        lines.push(format!("one run: nothing can be told of {one} rows; --seeds 8 would tell"));
    }
    if few > 0 && full {
        lines.extend(fold(&format!("differs, few: all runs differ in {few} rows, of fewer than 5 runs"), WIDTH));
    }
    for (rows, side) in [(&comparison.unmatched.only_old, "old"), (&comparison.unmatched.only_new, "new")] {
        if !rows.is_empty() {
            lines.push(list(&format!("only in {side}: "), rows, WIDTH));
        }
    }
    if full && nought > 0 {
        lines.push(format!("nought on both sides: {nought} rows"));
    }
    if !full {
        let more = starred.saturating_sub(SHOWN);
        let more = if more > 0 { format!("{more} more rows with a star, ") } else { String::new() };
        lines.extend(fold(
            &format!("--full has {more}{} without a star", count_of(comparison.rows.len() - starred)),
            WIDTH,
        ));
    }
    lines
}

fn count_of(rows: usize) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}

/// The least change of each kind of row that these runs could have shown.
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
        ",
        all.len(),
        crate::short::number_of(sees)
    ))
}
