//! Rows of a table of many things in many cases, as lines: if the cases are the same for all things, one line for each thing
//! with the cases side by side.

use crate::{
    group::{distinct, thing_and_operation},
    table::{Kind, Row, Table},
};

/// The rows of a table by line and case.
pub(super) struct Pivot<'a> {
    /// The cases that stand side by side; empty if each line has its own.
    pub(super) cases: Vec<String>,
    pub(super) lines: Vec<Line<'a>>,
}

/// One line.
pub(super) struct Line<'a> {
    pub(super) label: String,
    /// The row of each case.
    pub(super) rows: Vec<Option<&'a Row>>,
}

impl<'a> Pivot<'a> {
    pub(super) fn of(table: &Table, rows: &[&'a Row]) -> Self {
        let thing = |row: &'a Row| thing(table, row);
        let things: Vec<Option<&str>> = rows.iter().map(|row| thing(row)).collect();
        let pivots = matches!(table.kind, Kind::Counters | Kind::Duration | Kind::Extfrag);
        let is_both = pivots && things.iter().all(Option::is_some);
        if !is_both {
            let line = |row: &&'a Row| Line { label: label(table, row), rows: vec![Some(*row)] };
            return Self { cases: Vec::new(), lines: rows.iter().map(line).collect() };
        }
        let things: Vec<&str> = distinct(things.into_iter().flatten());
        // The things in the order in which most of them were found.
        let of = |name: &str| rows.iter().filter(|row| thing(row) == Some(name)).count();
        let fullest = things.iter().rev().max_by_key(|name| of(name)).copied();
        let (first, rest): (Vec<&&Row>, Vec<&&Row>) = rows.iter().partition(|row| thing(row) == fullest);
        let cases = distinct(first.into_iter().chain(rest).filter_map(|row| case(table, row)));
        let line = |name: &str| {
            let of_case = |case: &&str| {
                let found = |row: &&&'a Row| thing(row) == Some(name) && self::case(table, row) == Some(*case);
                rows.iter().find(found).copied()
            };
            Line { label: name.to_owned(), rows: cases.iter().map(of_case).collect() }
        };
        let lines = things.into_iter().map(line).collect();
        Self { lines, cases: cases.iter().map(|case| (*case).to_owned()).collect() }
    }
}

fn label(table: &Table, row: &Row) -> String {
    match table.kind {
        Kind::Causes => format!("{} {}", row.stat, row.operation),
        Kind::Metric | Kind::Duration | Kind::Extfrag | Kind::Counters | Kind::Memory => row.operation.clone(),
    }
}

/// The measured thing of a row, if the row's operation is a thing and a case.
fn thing<'a>(table: &Table, row: &'a Row) -> Option<&'a str> {
    row.operation.strip_suffix(case(table, row)?)?.strip_suffix(' ')
}

/// The case of a row; if rows name a thing and an operation, the operation.
fn case<'a>(table: &Table, row: &'a Row) -> Option<&'a str> {
    match thing_and_operation(row) {
        (_, Some(operation)) => Some(operation),
        (case, None) => (table.kind != Kind::Extfrag).then_some(case),
    }
}
