//! Text in the layout of mmtests' compare-kernels.sh of 2015, as the mailing lists of that time have it.
//!
//! Differs: columns grow where something would touch; what was not measured is blank.

use crate::{
    mmtests::ratio,
    short::NOT_COUNTED,
    stats::{Pair, percent_change},
    table::{Against, ColumnHead, Form, Kind, Row, Table, Value},
};

/// Width of a number.
const NUMBER: usize = 12;
/// Width of ` (%6.2f%%)`.
const PERCENT: usize = 10;
/// Width of the names of counters.
const NAME: usize = 26;

/// One table: title, header lines, rows.
pub(crate) fn table_text(table: &Table) -> String {
    let stat = widest(table.rows.iter().map(|row| row.stat.as_str()));
    let operation = widest(table.rows.iter().map(|row| row.operation.as_str()));
    let name = |row: &Row| match table.kind {
        Kind::Metric | Kind::Extfrag => format!("{:stat$} {:operation$}", row.stat, row.operation),
        _ => row.operation.clone(),
    };
    let names: Vec<String> = table.rows.iter().map(name).collect();
    let least = if table.kind == Kind::Counters { NAME } else { 0 };
    let names_width = widest(names.iter().map(String::as_str)).max(least);
    let cells: Vec<Vec<String>> = table.rows.iter().map(|row| cells(table, row)).collect();
    let widths: Vec<usize> = (0..table.columns.len()).map(|column| width(table, &cells, column)).collect();

    let mut lines: Vec<String> = Vec::new();
    if !table.title.is_empty() {
        lines.push(table.title.clone());
    }
    let heads: Vec<Vec<&str>> = table.columns.iter().map(|column| head(table, column)).collect();
    for at in 0..heads.iter().map(Vec::len).max().unwrap_or(0) {
        lines.push(
            " ".repeat(names_width) + &aligned(heads.iter().map(|head| head.get(at).copied().unwrap_or("")), &widths),
        );
    }
    for (name, cells) in names.iter().zip(&cells) {
        lines.push(format!("{name:names_width$}{}", aligned(cells.iter().map(String::as_str), &widths)));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The kernel, and what it has more; before them what tells columns of one kernel apart.
fn head<'a>(table: &Table, head: &'a ColumnHead) -> Vec<&'a str> {
    let kernel = head.column.kernel.as_str();
    let named = kernel.split_once('+').map_or(["", kernel], |(kernel, more)| [kernel, more]);
    let others = head.lines.iter().map(String::as_str).filter(|line| *line != kernel && !table.is_of_kernels());
    others.chain(named).collect()
}

fn cells(table: &Table, row: &Row) -> Vec<String> {
    let cell = |(column, (cell, head)): (usize, (&Option<Value>, &ColumnHead))| {
        let Some(value) = cell else {
            return if table.kind == Kind::Extfrag { NOT_COUNTED.to_owned() } else { String::new() };
        };
        let number = number(row.form, value.value);
        let baseline = row.cells[head.baseline].as_ref().filter(|_| table.kind == Kind::Metric);
        let pair = |baseline: &Value| Pair { baseline: baseline.value, new: value.value };
        if let (Against::Kernel(_), Some(baseline)) = (table.against(column), baseline) {
            return format!("{number:>NUMBER$} {:>width$}", ratio(pair(baseline)), width = PERCENT - 1);
        }
        match baseline.and_then(|baseline| percent_change(row.better, pair(baseline))) {
            Some(percent) => format!("{number:>NUMBER$} ({percent:6.2}%)"),
            None => number,
        }
    };
    row.cells.iter().zip(&table.columns).enumerate().map(cell).collect()
}

fn number(form: Form, value: f64) -> String {
    match form {
        Form::Hundredths => format!("{value:.2}"),
        Form::Thousandths => format!("{value:.3}"),
        Form::Whole => format!("{value:.0}"),
        // mmtests truncates them.
        Form::Percent => format!("{:.0}%", value.floor()),
    }
}

fn width(table: &Table, cells: &[Vec<String>], column: usize) -> usize {
    let usual = if table.kind == Kind::Metric { NUMBER + PERCENT } else { NUMBER };
    let head = head(table, &table.columns[column]);
    usual.max(1 + widest(cells.iter().map(|row| row[column].as_str()).chain(head)))
}

fn aligned<'a>(texts: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    texts.zip(widths).map(|(text, &width)| format!("{text:>width$}")).collect()
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}
