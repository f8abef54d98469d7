//! Results side by side: which of their rows differ, and whether that is more than luck.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use report::{
    Cell, Column, Key, Report,
    compare::{Comparison, FailOn, Gates, compare_csv, compare_text, noise_csv, noise_text},
    short::text::list,
};
use serde::Serialize;

use super::{
    commands,
    print::Format,
    rules,
    shown::{Shown, read, read_like, strange},
};
use crate::{
    counted,
    mmtests::{self, ELSEWHERE, Like},
    plan::Seeds,
    results::contents,
    source::unknown,
    usage::UsageError,
};

/// The forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In lines of 72 columns.
    Text,
    /// Tables of Markdown.
    Markdown,
    /// A line for each row.
    Csv,
    /// Everything.
    Json,
}

/// A comparison that a user asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Result directories; the first one is what the others are compared with.
    pub results: Vec<PathBuf>,
    /// Only what was run with these seeds.
    pub seeds: Option<Seeds>,
    /// Label of the column that all others are compared with.
    pub against: Option<String>,
    /// How large a change has to be.
    pub gates: Gates,
    /// The worst rows first.
    pub sort: bool,
    /// Counters too, and what decides nothing.
    pub full: bool,
    /// Changes that must not be.
    pub fail_on: Vec<String>,
    /// The form.
    pub form: Form,
}

/// A comparison as it is printed, and which conditions it fails, a line for each row.
#[derive(Debug)]
pub struct Compared {
    /// All of it.
    pub text: String,
    /// A line for each row that fails a condition.
    pub failed: Vec<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    results: Vec<String>,
    comparison: &'a Comparison,
    failed: &'a [String],
}

/// Two captures of counters, which have no runs and so neither luck nor conditions.
fn of_captures(wanted: &Wanted, captures: &mmtests::captures::Moved) -> Result<String, UsageError> {
    let asked = [
        ("--fail-on", !wanted.fail_on.is_empty()),
        ("--gate", wanted.gates != Gates::default()),
        ("--seeds", wanted.seeds.is_some()),
        ("--against", wanted.against.is_some()),
        ("--sort", wanted.sort),
        ("--full", wanted.full),
    ];
    if let Some((option, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
        return Err(UsageError::new(format!(
            "{option} is for results; two captures of /proc/vmstat have one number each"
        )));
    }
    match wanted.form {
        Form::Text => Ok(captures.text()),
        Form::Csv => Ok(captures.csv()),
        Form::Markdown | Form::Json => {
            Err(UsageError::of_key("--format", "two captures of /proc/vmstat are printed as text or csv"))
        }
    }
}

/// Compares results.
///
/// # Errors
/// A directory that is no result, results that have nothing in common, a column or a row that is not there.
pub fn compare(wanted: &Wanted) -> Result<Compared, UsageError> {
    let conditions = wanted
        .fail_on
        .iter()
        .map(|text| text.parse::<FailOn>().map_err(|error| UsageError::of_key("--fail-on", error)));
    let conditions = conditions.collect::<Result<Vec<FailOn>, UsageError>>()?;
    if let Some(captures) = mmtests::captures::compare(&wanted.results)? {
        let text = of_captures(wanted, &captures)?;
        return Ok(Compared { text, failed: Vec::new() });
    }
    let like = rows_of(&wanted.results)?;
    let mut shown = Vec::new();
    for directory in &wanted.results {
        let found = read_like(directory, wanted.seeds, like.as_ref())?;
        if found.cells.is_empty() {
            return Err(UsageError::in_file(directory.display(), "no cell is done, so there is nothing to compare"));
        }
        shown.push(found);
    }
    let names = names(&wanted.results);
    have_something_in_common(&wanted.results, &names, &shown, wanted.seeds)?;
    let cells = marked(&names, &shown);
    let report = compared(&names, &shown, &cells, wanted.against.as_deref(), &conditions);
    let mut report = report.map_err(|error| UsageError::new(error.to_string()))?;
    report.tables.retain(|table| !table.rows.is_empty());
    let mut comparison = Comparison::of(&report, wanted.gates);
    if comparison.rows.is_empty() {
        let rows = |rows: &[String]| list("", rows, 200);
        return Err(UsageError::new(format!(
            "compare: no row is in two columns; {} has {}, others have {}",
            names[0],
            rows(&comparison.unmatched.only_old),
            rows(&comparison.unmatched.only_new)
        )));
    }
    if wanted.sort {
        comparison.sort();
    }
    let mut failed = Vec::new();
    for condition in &conditions {
        let rows = condition.failed(&comparison).map_err(|error| {
            let is_counter = counted::all().contains_key(condition.name());
            let why = if is_counter { "; a target of these results does not count it" } else { "" };
            UsageError::of_key("--fail-on", format!("{error}{why}"))
        })?;
        failed.extend(rows.iter().map(|row| {
            format!("--fail-on {condition}: {} {} went from {} to {}", row.stat, row.operation, row.old, row.new)
        }));
    }
    let notes = || differences(&names, &shown).into_iter().map(|line| format!("{line}\n")).collect::<String>();
    let text = match wanted.form {
        Form::Text => compare_text(&comparison, wanted.full, false) + &notes(),
        Form::Markdown => compare_text(&comparison, wanted.full, true) + &notes(),
        Form::Csv => compare_csv(&comparison),
        Form::Json => {
            let results = wanted.results.iter().map(|path| path.display().to_string()).collect();
            let document = Document { results, comparison: &comparison, failed: &failed };
            serde_json::to_string_pretty(&document).expect("fields serialise") + "\n"
        }
    };
    Ok(Compared { text, failed })
}

/// Compares the columns of results, whose cells are [`marked`].
pub(super) fn comparison(
    names: &[String],
    shown: &[Shown],
    cells: &[Cell],
    against: Option<&str>,
    gates: Gates,
) -> Result<Comparison, NoBaseline> {
    Ok(Comparison::of(&compared(names, shown, cells, against, &[])?, gates))
}

/// Compares each column of a result with the one before it, as `pagelab ladder` does.
pub(super) fn steps(shown: &Shown, cells: &[Cell]) -> Comparison {
    let mut report = Report::with_all_counters(shown.report.layout, cells);
    for table in &mut report.tables {
        for (at, head) in table.columns.iter_mut().enumerate() {
            head.baseline = at.saturating_sub(1);
        }
    }
    Comparison::of(&report, Gates::default())
}

/// The tables that are compared: with every counter, also by its own name where a condition names it.
fn compared(
    names: &[String],
    shown: &[Shown],
    cells: &[Cell],
    against: Option<&str>,
    conditions: &[FailOn],
) -> Result<Report, NoBaseline> {
    let mut report = Report::with_all_counters(shown[0].report.layout, cells);
    report.add_counters(cells, |counter| {
        conditions.iter().any(|condition| condition.name().eq_ignore_ascii_case(counter))
    });
    choose_baselines(&mut report, names, against)?;
    Ok(report)
}

/// How small a change the runs of results can see.
///
/// # Errors
/// A directory that is no result, or has no cell that is done.
pub fn noise(results: &[PathBuf], seeds: Option<Seeds>, full: bool, form: Format) -> Result<String, UsageError> {
    let names = names(results);
    let mut rows = Vec::new();
    for (directory, name) in results.iter().zip(names) {
        let shown = read(directory, seeds)?;
        if shown.cells.is_empty() {
            return Err(UsageError::in_file(directory.display(), "no cell is done"));
        }
        let mut of_result = report::compare::noise(&shown.report);
        if results.len() > 1 {
            for row in &mut of_result {
                row.column = format!("{name}:{}", row.column);
            }
        }
        rows.extend(of_result);
    }
    Ok(match form {
        Format::Text => noise_text(&rows, full),
        Format::Csv => noise_csv(&rows),
        Format::Json => serde_json::to_string_pretty(&rows).expect("fields serialise") + "\n",
    })
}

/// The rows that numbers from elsewhere are put into: the rows of the first result of ours.
fn rows_of(results: &[PathBuf]) -> Result<Option<Like>, UsageError> {
    let Some(ours) = results.iter().find(|path| mmtests::is_ours(path)) else { return Ok(None) };
    let (identity, _) = contents(ours, None)?;
    Ok(Some(Like::of_result(&ours.display().to_string(), &identity)))
}

/// Results by the last part of their path, where these are all different.
pub(super) fn names(results: &[PathBuf]) -> Vec<String> {
    let last = |path: &PathBuf| {
        path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into())
    };
    let short: Vec<String> = results.iter().map(last).collect();
    if short.iter().collect::<BTreeSet<_>>().len() == short.len() {
        short
    } else {
        let numbered = results.iter().zip(1..).map(|(path, number)| format!("{number}={}", path.display()));
        numbered.collect()
    }
}

/// Experiments and metrics decide whether results can be compared.
fn have_something_in_common(
    results: &[PathBuf],
    names: &[String],
    shown: &[Shown],
    seeds: Option<Seeds>,
) -> Result<(), UsageError> {
    let Some(other) = strange(shown) else { return Ok(()) };
    let how = commands::of_strangers(results, names, shown, seeds);
    let how: Vec<String> = how.iter().map(|(what, command)| format!("; {} {command}", in_sentence(what))).collect();
    Err(UsageError::new(format!("compare: {}{}", in_words(names, shown, other), how.concat())))
}

/// A sentence as it stands behind another one.
fn in_sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_ascii_lowercase(), letters.as_str()))
}

/// The experiments of the first result and of another one, or their workloads where the experiment is the same.
pub(super) fn in_words(names: &[String], shown: &[Shown], other: usize) -> String {
    let all = |shown: &Shown, of: fn(&Key) -> &String| {
        let all: BTreeSet<String> = shown.cells.iter().map(|cell| of(&cell.key).clone()).collect();
        list("", &all.into_iter().collect::<Vec<_>>(), 120)
    };
    let both = |of| [&shown[0], &shown[other]].map(|shown| all(shown, of));
    let ([first, second], what) = match both(|key| &key.experiment) {
        [first, second] if first == second => (both(|key| &key.workload), "workload"),
        experiments => (experiments, "experiment"),
    };
    format!("{} and {} have no {what} in common: {first}, and {second}", names[0], names[other])
}

/// All cells, each with the name of its result; without a name if there is one result.
pub(super) fn marked(names: &[String], shown: &[Shown]) -> Vec<Cell> {
    let of = |(name, shown): (&String, &Shown)| {
        let mut cells = shown.cells.clone();
        if names.len() > 1 {
            for cell in &mut cells {
                cell.key.result = Some(name.clone());
            }
        }
        cells
    };
    names.iter().zip(shown).flat_map(of).collect()
}

/// Why nothing is compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBaseline {
    /// A column that the first result lacks.
    #[error("--against: {0}")]
    Unknown(String),
    /// A column that has none of its like in the first result, which has several.
    #[error(
        "compare: no column of {first} is like {column}; name one of these with --against: {}",
        list("", labels, 300)
    )]
    Unlike {
        /// The first result.
        first: String,
        /// Label of the column.
        column: String,
        /// Labels of the columns of the first result.
        labels: Vec<String>,
    },
    /// A single result with a single column.
    #[error("compare: {0} has one column; expected a second result, or a second column")]
    OneColumn(String),
}

/// Each column is compared with its like in the first result, or with the only one there; in a single result with the first.
fn choose_baselines(report: &mut Report, names: &[String], against: Option<&str>) -> Result<(), NoBaseline> {
    let all = report.tables.iter().flat_map(|table| table.columns.iter().map(|head| head.column.clone()));
    let all: BTreeSet<Column> = all.collect();
    let is_first = |column: &&Column| names.len() == 1 || column.result.as_ref() == Some(&names[0]);
    let labels: Vec<String> = all.iter().filter(is_first).map(Column::label).collect();
    let asked = match against {
        None => None,
        Some(label) => {
            let is_asked = |column: &&Column| column.label() == label || column.kernel == label;
            let found = all.iter().filter(is_first).find(is_asked);
            let known: Vec<&str> = labels.iter().map(String::as_str).collect();
            Some(found.ok_or_else(|| NoBaseline::Unknown(unknown("column", label, &known)))?.clone())
        }
    };
    // Of a run that was measured elsewhere only the name is known.
    let is_elsewhere = |column: &Column| column.machine == ELSEWHERE;
    let alike = |column: &Column, other: &Column| {
        let is_same = (column.target, &column.machine) == (other.target, &other.machine);
        column.kernel == other.kernel && (is_same || is_elsewhere(column) || is_elsewhere(other))
    };
    for table in &mut report.tables {
        let columns: Vec<Column> = table.columns.iter().map(|head| head.column.clone()).collect();
        let first: Vec<usize> = (0..columns.len()).filter(|at| is_first(&&columns[*at])).collect();
        for (at, head) in table.columns.iter_mut().enumerate() {
            let own_result = first.contains(&at);
            head.baseline = match &asked {
                Some(asked) => columns.iter().position(|column| column == asked).unwrap_or(at),
                None if names.len() == 1 => first.first().copied().unwrap_or(at),
                None if own_result => at,
                None => {
                    let like = first.iter().copied().find(|other| alike(&columns[at], &columns[*other]));
                    let only = (first.len() == 1).then(|| first[0]);
                    let unlike = || {
                        let (first, column, labels) = (names[0].clone(), columns[at].label(), labels.clone());
                        NoBaseline::Unlike { first, column, labels }
                    };
                    like.or(only).ok_or_else(unlike)?
                }
            };
        }
    }
    if names.len() == 1 && all.len() < 2 {
        return Err(NoBaseline::OneColumn(names[0].clone()));
    }
    Ok(())
}

/// Parameters, states and programs that differ between results, so that nobody takes one change for another.
fn differences(names: &[String], shown: &[Shown]) -> Vec<String> {
    let mut lines = Vec::new();
    let first = &shown[0];
    for (name, other) in names.iter().zip(shown).skip(1) {
        let mut differing: BTreeMap<String, (String, String)> = BTreeMap::new();
        if first.program != other.program {
            let short = |program: &str| program.chars().take(8).collect::<String>();
            differing.insert("program".to_owned(), (short(&first.program), short(&other.program)));
        }
        for cell in &other.cells {
            let alike =
                |known: &&Cell| (&known.key.experiment, &known.key.case) == (&cell.key.experiment, &cell.key.case);
            let Some(known) = first.cells.iter().find(alike) else { continue };
            let (before, after) = (&known.key, &cell.key);
            for (param, value) in &after.params {
                if let Some(old) = before.params.get(param).filter(|old| *old != value) {
                    differing.insert(param.clone(), (old.clone(), value.clone()));
                }
            }
            for (what, old, new) in [
                ("state", &before.state, &after.state),
                ("variant", &before.variant, &after.variant),
                ("machine", &before.machine, &after.machine),
            ] {
                if old != new {
                    differing.entry(what.to_owned()).or_insert((old.clone(), new.clone()));
                }
            }
        }
        let changes: Vec<String> =
            differing.into_iter().map(|(what, (old, new))| format!("{what} {old} -> {new}")).collect();
        if !changes.is_empty() {
            lines.push(list(&format!("{name} differs by: "), &changes, 72));
        }
        if first.missing + other.missing > 0 {
            lines.push(format!("unfinished: {} cells of {}, {} of {name}", first.missing, names[0], other.missing));
        }
    }
    let simulated: Vec<_> = shown.iter().flat_map(|shown| shown.simulated.iter().cloned()).collect();
    lines.extend(rules::lines(&simulated));
    lines
}
