//! Tables of checks: numbers that a workload knows beforehand, against the numbers that the kernel showed.

use std::collections::BTreeMap;

use crate::group::{Group, groups};
use crate::record::{Cell, Check};
use crate::table::{CheckRow, CheckTable};

/// One table per experiment and workload whose cells checked a number, in order of first appearance.
pub fn checks(records: &[Cell]) -> Vec<CheckTable> {
    groups(records).iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

fn table(group: &Group<'_>) -> CheckTable {
    // The rank of an operation or a check is its place in the order of first appearance.
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

/// Orders checks from least to most wrong. The order is total, so that the row does not depend on which cell finished
/// first.
fn badness(check: &Check) -> (bool, u64, u64, u64) {
    let difference = check.found.abs_diff(check.expected);
    (!check.within, difference, check.expected, check.found)
}
