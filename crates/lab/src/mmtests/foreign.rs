//! Numbers that other tools print: a table of compare-mmtests in a mail, the JSON and the mails of the kernel robot (LKP), and
//! the CSV of will-it-scale.
//!
//! Their rows keep their names. A column is a run, and a repetition its seed, where the numbers are of single runs.
//!
//! | file | has |
//! |---|---|
//! | `lkp.rs` | mails of the kernel robot |
//! | `tables.rs` | tables that compare-mmtests has printed |
//! | `sheet.rs` | a table of a mail, and the runs that tables have in common |

mod lkp;
mod sheet;
mod tables;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path};

use report::Metric;

pub(super) use self::sheet::TESTS;
use self::sheet::{LKP, TABLE, found, found_in, number};
use super::{
    found::Found,
    logs::{Numbers, read_packed},
    sysstate::{Around, wrong},
};
use crate::{metrics, usage::UsageError};

/// The runs in a file of a form that is known here; none if it is of another.
///
/// # Errors
/// A form that is known, and a line of it that is not read; or a text that no command reads.
pub(super) fn read(file: &Path) -> Result<Option<Vec<Found>>, UsageError> {
    let bytes = read_packed(file)?;
    // A mail of an older encoding keeps its numbers.
    let text = String::from_utf8_lossy(&bytes);
    let name = file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if text.trim_start().starts_with('{') {
        return lkp_json(file, &text, &name);
    }
    let plain = linux::procfs::paste::lines(&text);
    let lines: Vec<(usize, &str)> = plain.iter().map(|line| (line.number, line.text.as_str())).collect();
    let first = lines.iter().find(|(_, line)| !line.is_empty()).map_or("", |(_, line)| line);
    if first.starts_with("tasks,processes") {
        return will_it_scale(file, &lines, &name).map(Some);
    }
    if lines.iter().any(|(_, line)| lkp::is_head(line)) {
        return lkp::mail(file, &lines).map(Some);
    }
    let indents: Vec<usize> = plain.iter().map(|line| line.indent).collect();
    let sheets = tables::sheets(&lines, &indents);
    if !sheets.is_empty() {
        return Ok(Some(found_in(TABLE, sheets)));
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
    // A log begins with a bracket too.
    if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
        return Ok(None);
    }
    Err(UsageError::in_file(
        file.display(),
        "its form is not known: expected a result directory, JSON of compare-mmtests.pl or LKP, a table of compare-mmtests, an \
         LKP mail or will-it-scale's CSV; other texts, such as kdevops' comparisons, have no columns that are read",
    ))
}

// ---- LKP

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
            runs[at].extend(sample.map(|sample| lkp::row(name, sample)));
        }
    }
    runs.retain(|run| !run.is_empty());
    if runs.is_empty() {
        let what = "expected \"TEST.NAME\": numbers, as LKP's matrix.json and stats.json have, or what compare-mmtests.pl \
                    --json-export writes; found no number with such a name";
        return Err(UsageError::in_file(file.display(), what));
    }
    Ok(Some(vec![found(run, LKP, runs)]))
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
