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
    let heads: Vec<[&str; 2]> = table.columns.iter().map(head).collect();
    for at in 0..2 {
        lines.push(" ".repeat(names_width) + &aligned(heads.iter().map(|head| head[at]), &widths));
    }
    for (name, cells) in names.iter().zip(&cells) {
        lines.push(format!("{name:names_width$}{}", aligned(cells.iter().map(String::as_str), &widths)));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The kernel, and what it has more.
fn head(head: &ColumnHead) -> [&str; 2] {
    head.column.kernel.split_once('+').map_or(["", head.column.kernel.as_str()], |(kernel, more)| [kernel, more])
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
    let head = head(&table.columns[column]);
    usual.max(1 + widest(cells.iter().map(|row| row[column].as_str()).chain(head)))
}

fn aligned<'a>(texts: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    texts.zip(widths).map(|(text, &width)| format!("{text:>width$}")).collect()
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}
