//! Tables of checks: numbers known beforehand, against those found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::group::{Group, groups};
use crate::record::{Cell, Check, Column};

/// The checks of one experiment and workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckTable {
    /// The experiment that the cells belong to.
    pub experiment: String,
    /// Its title line.
    pub title: String,
    /// The rows: those that failed first; within each part by operation, then check, then column.
    pub rows: Vec<CheckRow>,
}

/// One check of one operation in one column; of several seeds, the one furthest from what it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckRow {
    /// Where it was made.
    pub column: Column,
    /// How texts show that: target, kernel and, if the table has several, machine.
    pub lines: Vec<String>,
    /// The operation.
    pub case: String,
    /// What is counted, how many, and how far off that may be.
    pub check: Check,
    /// How many cells made this check.
    pub cells: u64,
    /// How many of them were within the tolerance.
    pub cells_within: u64,
}

impl CheckRow {
    /// Whether some cell was not within the tolerance.
    pub fn failed(&self) -> bool {
        self.cells_within < self.cells
    }

    /// 100 · (found - expected) / expected, in percent; none where nothing was expected but some found.
    pub fn difference_percent(&self) -> Option<f64> {
        let (expected, found) = (self.check.expected, self.check.found);
        if expected == found {
            return Some(0.0);
        }
        (expected != 0).then(|| 100.0 * (found as f64 - expected as f64) / expected as f64)
    }
}

/// One table per experiment and workload that checked anything, in order of first appearance.
pub fn checks(records: &[Cell]) -> Vec<CheckTable> {
    groups(records).iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

fn table(group: &Group<'_>) -> CheckTable {
    // Ranks give operations and checks their order of first appearance.
    let mut operations: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows: BTreeMap<(usize, usize, usize), CheckRow> = BTreeMap::new();
    for placed in &group.cells {
        let rank = operations.len();
        let operation = *operations.entry(&placed.operation).or_insert(rank);
        for check in &placed.cell.measured.checks {
            let rank = names.len();
            let name = *names.entry(&check.name).or_insert(rank);
            let row = rows.entry((operation, name, placed.column)).or_insert_with(|| CheckRow {
                column: group.columns[placed.column].column.clone(),
                lines: group.columns[placed.column].lines.clone(),
                case: placed.operation.clone(),
                check: check.clone(),
                cells: 0,
                cells_within: 0,
            });
            row.cells += 1;
            row.cells_within += u64::from(check.within);
            if badness(check) > badness(&row.check) {
                row.check = check.clone();
            }
        }
    }
    let mut rows: Vec<CheckRow> = rows.into_values().collect();
    rows.sort_by_key(|row| !row.failed());
    CheckTable { experiment: group.experiment.clone(), title: format!("{} Checks", group.title), rows }
}

/// A total order, so that the row does not depend on the order in which cells finished.
fn badness(check: &Check) -> (bool, u64, u64, u64) {
    let difference = check.found.abs_diff(check.expected);
    (!check.within, difference, check.expected, check.found)
}
