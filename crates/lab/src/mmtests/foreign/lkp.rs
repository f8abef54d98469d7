//! Mails of the kernel robot (LKP): comparisons of two commits, or of several, each with its rows.
//!
//! A comparison begins with a line of `%stddev` and `%change`, one `%stddev` for each commit, and ends with a blank line. Mail
//! programs wrap its rows, and write the sign before a spread in many ways.

use std::{collections::BTreeMap, path::Path};

use report::{Better, Metric};

use super::sheet::{LKP, Sheet, found_in, metric, number};
use crate::{
    mmtests::{found::Found, sysstate::wrong},
    usage::UsageError,
};

/// Signs before a spread, as encodings and editors have left them.
const MARKS: [&str; 7] = ["\u{b1}", "\u{c2}\u{b1}", "\u{105}", "+-", "A+-", "\u{fffd}", "?"];
/// Ends of names of rates: operations a second, of which more are better.
const RATES: [&str; 9] =
    ["_ops", "ops_per_sec", "throughput", "iops", "_tps", "jobs-per-min", "per_sec", "operations/s", ".score"];
/// Lines before a comparison in which its heading is looked for.
const HEADING: usize = 60;
/// Characters of a commit that are shown.
const COMMIT: usize = 12;

/// Does the line begin a comparison, or go on with its first line?
pub(super) fn is_head(line: &str) -> bool {
    line.contains("%stddev")
}

/// A row. Operations a second are better the more there are; of the rest only the mail's first sentence may say it.
pub(super) fn row(name: &str, sample: f64) -> Metric {
    let is_rate = RATES.iter().any(|end| name.ends_with(end));
    if is_rate { metric("rate", name, Better::Higher, sample) } else { metric("value", name, Better::None, sample) }
}

/// The comparisons of a mail.
///
/// # Errors
/// A row without a value for each commit, or a mail without rows.
pub(super) fn mail(file: &Path, lines: &[(usize, &str)]) -> Result<Vec<Found>, UsageError> {
    let judged = judged(lines);
    let mut sheets = Vec::new();
    let mut from = 0;
    while let Some(head) = (from..lines.len()).find(|at| is_head(lines[*at].1)) {
        let (sheet, end) = comparison(file, lines, from, head)?;
        sheets.push(sheet);
        from = end;
    }
    for metric in sheets.iter_mut().flat_map(|sheet| sheet.columns.iter_mut().flatten()) {
        if let Some((_, better)) = judged.iter().find(|(name, _)| metric.part.as_deref() == Some(name)) {
            metric.better = *better;
        }
    }
    if sheets.iter().all(|sheet| sheet.columns.iter().all(Vec::is_empty)) {
        return Err(UsageError::in_file(
            file.display(),
            "expected rows `OLD CHANGE NEW NAME` of an LKP comparison, found none",
        ));
    }
    Ok(found_in(LKP, sheets))
}

/// The comparison whose head is at this line, and the line after its end.
fn comparison(file: &Path, lines: &[(usize, &str)], from: usize, head: usize) -> Result<(Sheet, usize), UsageError> {
    let is_head_line = |line: &str| is_head(line) || line.contains("%change");
    let heads = lines[head..].iter().take_while(|(_, line)| is_head_line(line)).count();
    let columns: usize = lines[head..head + heads].iter().map(|(_, line)| line.matches("%stddev").count()).sum();
    let (names, title) = heading(&lines[from.max(head.saturating_sub(HEADING))..head], columns);
    let mut sheet = Sheet { title, names, columns: vec![Vec::new(); columns] };
    let expected = match columns {
        2 => "OLD CHANGE NEW NAME".to_owned(),
        _ => format!("{columns} values, a change before each but the first, and a NAME"),
    };
    let is_ruler = |line: &str| !line.is_empty() && line.chars().all(|c| matches!(c, '\\' | '|' | ' '));
    // The values and changes of a row that is being read, and its first line.
    let mut row: Vec<&str> = Vec::new();
    let mut first = 0;
    let mut at = head + heads;
    while let Some((_, line)) = lines.get(at).filter(|(_, line)| !line.is_empty()) {
        let is_prose = row.is_empty() && !starts_with_number(line) && !line.split_whitespace().any(is_change);
        if is_prose && !is_ruler(line) && sheet.columns.iter().any(|column| !column.is_empty()) {
            break;
        }
        let words = line.split_whitespace().filter(|word| !matches!(*word, "\\" | "|") && !is_spread(word));
        for word in words {
            if row.is_empty() {
                first = at;
            }
            if row.len() + 1 < 2 * columns {
                row.push(word);
                continue;
            }
            let values = values(&row).filter(|_| is_name(word));
            let values = values.ok_or_else(|| wrong(file, lines[first].0, &expected, lines[first].1))?;
            add(&mut sheet, word, &values);
            row.clear();
        }
        at += 1;
    }
    if row.is_empty() { Ok((sheet, at)) } else { Err(wrong(file, lines[first].0, &expected, lines[first].1)) }
}

/// The values of a row; none if one is no number, or a change stands where none is.
fn values(row: &[&str]) -> Option<Vec<f64>> {
    let is_alternating = row.iter().skip(1).step_by(2).all(|word| word.starts_with(['+', '-']));
    let values = row.iter().step_by(2).map(|word| number(word)).collect::<Option<Vec<f64>>>();
    values.filter(|_| is_alternating)
}

fn add(sheet: &mut Sheet, name: &str, values: &[f64]) {
    for (column, value) in sheet.columns.iter_mut().zip(values) {
        column.push(row(name, *value));
    }
}

fn is_name(word: &str) -> bool {
    word.contains('.') && number(word).is_none() && word.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_change(word: &str) -> bool {
    word.starts_with(['+', '-']) && word.strip_suffix('%').is_some_and(|word| number(word).is_some())
}

fn starts_with_number(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(|word| number(word).is_some())
}

/// A sign before a spread, a spread, or both in one word: `±`, `2%`, `±111%`.
fn is_spread(word: &str) -> bool {
    let digits = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
    let (mark, rest) = word.split_at(digits);
    let is_percent = |rest: &str| rest.strip_suffix('%').is_some_and(|rest| rest.parse::<u64>().is_ok());
    if mark.is_empty() { is_percent(rest) } else { MARKS.contains(&mark) && (rest.is_empty() || is_percent(rest)) }
}

/// Names of the columns and the title, from the lines before a comparison: the commits stand above a line of dashes.
fn heading(above: &[(usize, &str)], columns: usize) -> (Vec<String>, Option<String>) {
    let is_rule = |line: &str| line.contains("----") && line.chars().all(|c| c == '-' || c == ' ');
    let mut commits: Vec<&str> = Vec::new();
    let mut end = above.iter().rposition(|(_, line)| is_rule(line)).unwrap_or(0);
    while end > 0 && is_rule(above[end - 1].1) {
        end -= 1;
    }
    // They take two lines where they were wrapped.
    while end > 0 && commits.len() < columns && !above[end - 1].1.is_empty() {
        end -= 1;
        commits.splice(0..0, above[end].1.split_whitespace());
    }
    let names = match commits.len() == columns {
        true => commits.iter().map(|commit| commit.chars().take(COMMIT).collect()).collect(),
        false if columns == 2 => ["old", "new"].map(str::to_owned).to_vec(),
        false => (1..=columns).map(|column| format!("column {column}")).collect(),
    };
    (names, title(above))
}

/// The run in words: the test and the machine, of the parameters that a comparison is headed with.
fn title(above: &[(usize, &str)]) -> Option<String> {
    let keys = above.iter().rposition(|(_, line)| line.ends_with(':') && line.contains("testcase"))?;
    let values = above.get(keys + 1)?.1;
    let params: BTreeMap<&str, &str> = above[keys].1.trim_end_matches(':').split('/').zip(values.split('/')).collect();
    let is_whole = above[keys].1.split('/').count() == values.split('/').count();
    let shown = ["testcase", "test", "mode", "nr_task", "tbox_group"];
    let words: Vec<&str> = shown.iter().filter_map(|key| params.get(key).copied()).collect();
    if is_whole { Some(words.join(" ")) } else { values.rsplit('/').next().map(str::to_owned) }
}

/// Rows of which a mail says whether more is better: "noticed a -5.0% regression of NAME".
fn judged(lines: &[(usize, &str)]) -> Vec<(String, Better)> {
    let words: Vec<&str> = lines.iter().flat_map(|(_, line)| line.split_whitespace()).collect();
    let of = |at: usize| {
        let [change, verdict, "of", name] = words[at..].first_chunk::<4>()? else { return None };
        let is_worse = match *verdict {
            "regression" => true,
            "improvement" => false,
            _ => return None,
        };
        let has_fallen = change.strip_suffix('%').and_then(number)? < 0.0;
        let better = if is_worse == has_fallen { Better::Higher } else { Better::Lower };
        Some(((*name).trim_end_matches(['.', ',']).to_owned(), better))
    };
    (0..words.len()).filter_map(of).collect()
}
