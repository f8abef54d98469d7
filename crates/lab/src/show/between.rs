//! Two columns of a simulated result: which causes of time and which counters differ with one of their rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use report::{
    Cell, Column, Target,
    compare::{Between, between_text},
};

use super::shown::{Shown, read};
use crate::{source::unknown, usage::UsageError};

/// A question about two columns of a result.
#[derive(Clone, Debug)]
pub struct BetweenWanted {
    /// The result directory.
    pub result: PathBuf,
    /// The two columns, each by its kernel or its label.
    pub columns: [String; 2],
    /// The row: `METRIC:CASE`.
    pub row: String,
}

/// The answer as text.
pub fn text(between: &Between) -> String {
    between_text(between)
}

/// The answer as JSON.
pub fn json(between: &Between) -> String {
    serde_json::to_string_pretty(between).expect("fields serialise") + "\n"
}

/// Explains the difference of two columns in a row.
///
/// # Errors
/// No result, a column or a row that is not there, columns of real kernels or of other seeds.
pub fn between(wanted: &BetweenWanted) -> Result<Between, UsageError> {
    let shown = read(&wanted.result, None)?;
    let [old, new] = [&wanted.columns[0], &wanted.columns[1]].map(|name| column(&shown, name));
    let (old, new) = (old?, new?);
    check(&wanted.result, &shown, [&old, &new])?;
    // The old column comes first, in the order of the result.
    let of = |column: &Column| shown.cells.iter().filter(|cell| cell.key.column() == *column).cloned().collect();
    let cells: Vec<Cell> = [of(&old), of(&new)].into_iter().flat_map(|cells: Vec<Cell>| cells).collect();
    let between = Between::of(shown.report.layout, &cells, [&old, &new], &wanted.row);
    let between = between.map_err(|error| UsageError::of_key("--row", error))?;
    Ok(Between { rules: differing(&shown, [&old, &new]), ..between })
}

/// The cells of the row's case and the first seed, of each column, and the case.
pub(crate) fn first_pair(wanted: &BetweenWanted) -> Result<([Cell; 2], String), UsageError> {
    let shown = read(&wanted.result, None)?;
    let [old, new] = [&wanted.columns[0], &wanted.columns[1]].map(|name| column(&shown, name));
    let (old, new) = (old?, new?);
    check(&wanted.result, &shown, [&old, &new])?;
    let row = wanted.row.split_once(':').map_or("", |(_, case)| case);
    let of = |column: &Column| {
        let mut cells: Vec<&Cell> = shown.cells.iter().filter(|cell| cell.key.column() == *column).collect();
        // A row that is of no single case, as those of parts of a case are, is looked at in the first one.
        cells.sort_by_key(|cell| (cell.key.case != row, cell.key.seed));
        cells.first().map(|cell| (*cell).clone())
    };
    let Some((old, new)) = of(&old).zip(of(&new)) else {
        return Err(UsageError::in_file(wanted.result.display(), "it has no cells"));
    };
    let case = old.key.case.clone();
    Ok(([old, new], case))
}

/// The column with a name.
fn column(shown: &Shown, name: &str) -> Result<Column, UsageError> {
    let all: BTreeSet<Column> = shown.cells.iter().map(|cell| cell.key.column()).collect();
    let is_named = |column: &&Column| column.kernel == name || column.label() == name;
    let found: Vec<&Column> = all.iter().filter(is_named).collect();
    let labels = |columns: &[&Column]| columns.iter().map(|column| column.label()).collect::<Vec<String>>().join(", ");
    match found[..] {
        [column] => Ok(column.clone()),
        [] => {
            let kernels: BTreeSet<&str> = all.iter().map(|column| column.kernel.as_str()).collect();
            let kernels: Vec<&str> = kernels.into_iter().collect();
            Err(UsageError::of_key("--between", unknown("column", name, &kernels)))
        }
        _ => Err(UsageError::of_key("--between", format!("several columns are called {name:?}: {}", labels(&found)))),
    }
}

/// Refuses columns whose runs are no pairs.
fn check(directory: &Path, shown: &Shown, columns: [&Column; 2]) -> Result<(), UsageError> {
    let [old, new] = columns;
    if old == new {
        return Err(UsageError::of_key("--between", format!("{} twice; name two columns", old.label())));
    }
    if let Some(real) = columns.into_iter().find(|column| column.target != Target::Sim) {
        let real = real.label();
        let how = format!("{real} is no simulated column, whose runs are pairs; `pagelab compare` tests real ones");
        return Err(UsageError::of_key("--between", how));
    }
    let runs = |column: &Column| -> BTreeSet<(String, u64)> {
        let of_column = shown.cells.iter().filter(|cell| cell.key.column() == *column);
        of_column.map(|cell| (cell.key.case.clone(), cell.key.seed)).collect()
    };
    if runs(old) != runs(new) {
        let (old, new) = (old.label(), new.label());
        let problem = format!("{old} and {new} do not have the same cases and seeds; the same run with -o goes on");
        return Err(UsageError::in_file(directory.display(), problem));
    }
    Ok(())
}

/// Rules, and settings and parameters of cells, that differ between two simulated columns.
fn differing(shown: &Shown, columns: [&Column; 2]) -> Vec<(String, String, String)> {
    let rules = columns.map(|column| {
        let known = shown.simulated.iter().find(|known| known.column == *column);
        known.map(|known| &known.variant.rules)
    });
    let settings = columns.map(|column| {
        let known = shown.systems.iter().find(|known| known.column() == *column);
        known.map(|known| &known.settings)
    });
    let params = columns.map(|column| {
        let cell = shown.cells.iter().find(|cell| cell.key.column() == *column);
        cell.map(|cell| &cell.key.params)
    });
    let mut found = Vec::new();
    for [old, new] in [rules, settings, params] {
        let (Some(old), Some(new)) = (old, new) else { continue };
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let value = |of: &BTreeMap<String, String>, name| of.get(name).cloned().unwrap_or_else(|| "unset".to_owned());
        let values = names.into_iter().map(|name| (name.clone(), value(old, name), value(new, name)));
        found.extend(values.filter(|(_, old, new)| old != new));
    }
    found.sort();
    found.dedup();
    found
}
