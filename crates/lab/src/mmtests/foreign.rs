//! Numbers that other tools print: a table of compare-mmtests in a mail, the JSON and the mails of the kernel robot (LKP), and
//! the CSV of will-it-scale.
//!
//! Their rows keep their names. A column is a run, and a repetition its seed, where the numbers are of single runs.

use std::{collections::BTreeMap, path::Path};

use report::{Better, Metric};

use super::{
    found::Found,
    logs::{Numbers, read_packed},
    sysstate::{Around, wrong},
};
use crate::{metrics, usage::UsageError};

/// The first words of rows of compare-mmtests, and the direction that is better where they say it.
const STATISTICS: [&str; 14] = [
    "Amean",
    "Hmean",
    "Gmean",
    "Min",
    "Max",
    "Stddev",
    "CoeffVar",
    "Percentage",
    "Median",
    "Ops",
    "Elapsed",
    "User",
    "System",
    "Duration",
];

/// The runs in a file of a form that is known here; none if it is of another.
///
/// # Errors
/// A form that is known, and a line of it that is not read; or a text that no command reads.
pub(super) fn read(file: &Path) -> Result<Option<Vec<Found>>, UsageError> {
    let bytes = read_packed(file)?;
    let Ok(text) = String::from_utf8(bytes) else { return Ok(None) };
    let name = file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if text.trim_start().starts_with('{') {
        return lkp_json(file, &text, &name);
    }
    let plain = linux::procfs::paste::plain(&text);
    let lines: Vec<(usize, &str)> = (1..).zip(plain.lines()).collect();
    let first = lines.iter().find(|(_, line)| !line.is_empty()).map_or("", |(_, line)| line);
    if first.starts_with("tasks,processes") {
        return will_it_scale(file, &lines, &name).map(Some);
    }
    if lines.iter().any(|(_, line)| line.contains("%stddev") && line.contains("%change")) {
        return lkp_mail(file, &lines).map(Some);
    }
    if lines.iter().any(|(_, line)| row(line).is_some()) {
        return table(file, &text).map(Some);
    }
    if linux::procfs::oom::is_report(&text) {
        return Err(UsageError::in_file(
            file.display(),
            "an OOM report has no results: `pagelab machine import --from` makes a machine of it, with its marks and free blocks",
        ));
    }
    if lines.iter().any(|(_, line)| line.starts_with("nr_free_pages ")) {
        return Err(UsageError::in_file(
            file.display(),
            "a single capture of /proc/vmstat says nothing of what moved: expected two, `pagelab compare BEFORE AFTER`",
        ));
    }
    if text.trim_start().starts_with('[') {
        return Ok(None);
    }
    Err(UsageError::in_file(
        file.display(),
        "its form is not known: expected a result directory, JSON of compare-mmtests.pl or LKP, a table of compare-mmtests, an \
         LKP mail or will-it-scale's CSV; other texts, such as kdevops' comparisons, have no columns that are read",
    ))
}

fn found(run: &str, test: &str, runs: Vec<Vec<Metric>>) -> Found {
    let numbers = Some(vec![Numbers { group: None, runs }]);
    Found { run: run.to_owned(), test: test.to_owned(), is_pair: false, numbers, around: Around::default() }
}

/// A row: `name` is the table that it stands in, `part` what it is called there.
fn metric(name: &str, part: &str, better: Better, sample: f64) -> Metric {
    let (name, part, unit) = (name.to_owned(), Some(part.to_owned()), "as printed".to_owned());
    Metric { name, class: None, part, unit, better, samples: vec![sample] }
}

/// A number as mails have it: `1.2e+08`, `950000`.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

// ---- LKP

/// A row of LKP. Operations a second are better the more there are; of the rest LKP does not say it.
fn lkp(name: &str, sample: f64) -> Metric {
    let is_rate = name.ends_with("_ops") || name.ends_with(".throughput");
    if is_rate { metric("rate", name, Better::Higher, sample) } else { metric("value", name, Better::None, sample) }
}

/// `NAME: [numbers]` for each repetition (matrix.json), or `NAME: number` (stats.json).
fn lkp_json(file: &Path, text: &str, run: &str) -> Result<Option<Vec<Found>>, UsageError> {
    let Ok(serde_json::Value::Object(values)) = serde_json::from_str::<serde_json::Value>(text) else {
        return Ok(None);
    };
    if values.contains_key("_ExtractModules") {
        return Ok(None);
    }
    let mut runs: Vec<Vec<Metric>> = Vec::new();
    for (name, value) in values.iter().filter(|(name, _)| name.contains('.')) {
        let samples = match value {
            serde_json::Value::Array(samples) => samples.iter().map(serde_json::Value::as_f64).collect(),
            one => vec![one.as_f64()],
        };
        let samples: Vec<Option<f64>> = samples;
        for (at, sample) in samples.into_iter().enumerate() {
            if runs.len() <= at {
                runs.resize_with(at + 1, Vec::new);
            }
            runs[at].extend(sample.map(|sample| lkp(name, sample)));
        }
    }
    runs.retain(|run| !run.is_empty());
    if runs.is_empty() {
        let what = "expected \"TEST.NAME\": numbers, as LKP's matrix.json and stats.json have, or what compare-mmtests.pl \
                    --json-export writes; found no number with such a name";
        return Err(UsageError::in_file(file.display(), what));
    }
    Ok(Some(vec![found(run, "lkp", runs)]))
}

/// The comparison of two commits in a mail of the kernel robot.
fn lkp_mail(file: &Path, lines: &[(usize, &str)]) -> Result<Vec<Found>, UsageError> {
    let head = lines.iter().position(|(_, line)| line.contains("%stddev") && line.contains("%change")).unwrap_or(0);
    let is_rule = |line: &str| !line.is_empty() && line.chars().all(|c| c == '-' || c == ' ');
    let rule = lines[..head].iter().rposition(|(_, line)| is_rule(line));
    let names: Vec<&str> =
        rule.and_then(|rule| rule.checked_sub(1)).map_or_else(Vec::new, |at| lines[at].1.split_whitespace().collect());
    let names = match names.as_slice() {
        [old, new] => [*old, *new].map(|name| name.chars().take(12).collect::<String>()),
        _ => ["old", "new"].map(str::to_owned),
    };
    let mut columns: [Vec<Metric>; 2] = [Vec::new(), Vec::new()];
    for (at, line) in &lines[head + 1..] {
        let words: Vec<&str> = line.split_whitespace().filter(|word| !matches!(*word, "\\" | "|" | "\u{b1}")).collect();
        let is_spread = |word: &str| word.strip_suffix('%').is_some_and(|word| word.parse::<u64>().is_ok());
        let words: Vec<&str> = words.into_iter().filter(|word| !is_spread(word)).collect();
        let Some(name) = words.last().filter(|name| name.contains('.') && number(name).is_none()) else { continue };
        match words[..words.len() - 1] {
            [old, _, new] => {
                let values = [old, new].map(number);
                let [Some(old), Some(new)] = values else {
                    return Err(wrong(file, *at, "OLD CHANGE NEW NAME", line));
                };
                for (column, value) in columns.iter_mut().zip([old, new]) {
                    column.push(lkp(name, value));
                }
            }
            _ => return Err(wrong(file, *at, "OLD CHANGE NEW NAME", line)),
        }
    }
    if columns[0].is_empty() {
        return Err(UsageError::in_file(
            file.display(),
            "expected rows `OLD CHANGE NEW NAME` of an LKP comparison, found none",
        ));
    }
    Ok(names.into_iter().zip(columns).map(|(name, column)| found(&name, "lkp", vec![column])).collect())
}

// ---- will-it-scale

/// `tasks,processes,processes_idle,threads,threads_idle,linear`: operations a second by tasks.
fn will_it_scale(file: &Path, lines: &[(usize, &str)], name: &str) -> Result<Vec<Found>, UsageError> {
    let mut models: BTreeMap<&str, Vec<Metric>> = BTreeMap::new();
    let expected = "tasks,processes,processes_idle,threads,threads_idle,linear";
    let rows = lines.iter().filter(|(_, line)| !line.is_empty()).skip(1);
    for (at, line) in rows {
        let cells: Vec<&str> = line.split(',').collect();
        let tasks =
            cells.first().and_then(|cell| cell.parse::<u32>().ok()).ok_or_else(|| wrong(file, *at, expected, line))?;
        for (model, column) in [("processes", 1), ("threads", 3)] {
            let Some(cell) = cells.get(column) else { continue };
            let rate = number(cell).ok_or_else(|| wrong(file, *at, expected, line))?;
            if tasks > 0 {
                models.entry(model).or_default().push(metrics::stores(name, tasks, vec![rate]));
            }
        }
    }
    if models.is_empty() {
        return Err(UsageError::in_file(file.display(), format!("expected lines {expected}, found none with a task")));
    }
    let numbers = models.into_iter();
    let numbers = numbers
        .map(|(model, metrics)| Numbers { group: Some(format!("will-it-scale-{model}")), runs: vec![metrics] })
        .collect();
    Ok(vec![Found {
        run: name.to_owned(),
        test: "wis-pf".to_owned(),
        is_pair: false,
        numbers: Some(numbers),
        around: Around::default(),
    }])
}

// ---- compare-mmtests

/// A row: its statistic, its operation, and a value for each column.
fn row(line: &str) -> Option<(String, Vec<f64>)> {
    let first = line.split_whitespace().next()?;
    let is_known = STATISTICS.contains(&first) || first.ends_with("%-le");
    if !is_known || !line.contains('%') || !line.contains('(') {
        return None;
    }
    // A change in brackets, or between stars where it is significant, follows each value: "123.45 (  -0.12%)", "9.8 *  12.3%*".
    let mut values = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut is_change = false;
    for word in line.split_whitespace() {
        if is_change || word.starts_with('(') || word.starts_with('*') {
            is_change = !(word.ends_with(')') || word.ends_with("%*"));
            if !is_change {
                values.push(words.pop().and_then(number)?);
            }
        } else {
            words.push(word);
        }
    }
    let is_name = words.len() <= 2 && !is_change;
    (is_name && (1..=MAX_COLUMNS).contains(&values.len())).then(|| (words.join(" "), values))
}

/// More columns than any table in a mail has.
const MAX_COLUMNS: usize = 8;

/// The columns of a table, as compare-mmtests prints it.
fn table(file: &Path, text: &str) -> Result<Vec<Found>, UsageError> {
    let plain = linux::procfs::paste::plain(text);
    let lines: Vec<(usize, &str)> = (1..).zip(plain.lines()).collect();
    let mut columns: Vec<Vec<Metric>> = Vec::new();
    let mut heads: Option<Vec<String>> = None;
    for (index, (at, line)) in lines.iter().enumerate() {
        let Some((name, values)) = row(line) else { continue };
        if heads.is_none() {
            heads = Some(head(&lines[..index], values.len()));
            columns = vec![Vec::new(); values.len()];
        }
        if values.len() != columns.len() {
            return Err(wrong(
                file,
                *at,
                &format!("{} columns, each a value and its change in brackets", columns.len()),
                line,
            ));
        }
        let better = match name.split(' ').next().unwrap_or_default() {
            "Hmean" | "Ops" => Better::Higher,
            "Percentage" | "Max" | "Min" | "Gmean" => Better::None,
            _ => Better::Lower,
        };
        for (column, value) in columns.iter_mut().zip(values) {
            let (statistic, operation) = name.split_once(' ').unwrap_or(("value", &name));
            let is_new = |known: &Metric| known.name != statistic || known.part.as_deref() != Some(operation);
            if column.iter().all(is_new) {
                column.push(metric(statistic, operation, better, value));
            }
        }
    }
    let heads = heads.unwrap_or_default();
    Ok(heads.into_iter().zip(columns).map(|(head, column)| found(&head, "table", vec![column])).collect())
}

/// Names of columns: the last one or two lines before the rows that have a word for each.
fn head(above: &[(usize, &str)], columns: usize) -> Vec<String> {
    let mut lines: Vec<Vec<&str>> = Vec::new();
    for (_, line) in above.iter().rev().take(4) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() == columns && row(line).is_none() {
            lines.insert(0, words);
        } else if !lines.is_empty() {
            break;
        }
    }
    let name = |at: usize| {
        let parts: Vec<&str> = lines.iter().map(|words| words[at]).collect();
        if parts.is_empty() { format!("column {}", at + 1) } else { parts.join("-") }
    };
    let mut names: Vec<String> = (0..columns).map(name).collect();
    for at in 1..names.len() {
        if names[..at].contains(&names[at]) {
            names[at] = format!("{} ({})", names[at], at + 1);
        }
    }
    names
}
