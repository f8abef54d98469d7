//! Text in the layout of mmtests' compare-kernels.sh at HEAD, as people paste it into a mail.
//!
//! Differs: columns grow and header lines stay whole where mmtests shifts a row or drops a letter; a
//! value that is not there is blank instead of zero; a table where every column is its own baseline
//! has no percentages, which would all be 0.00%; a simulator beside the kernel whose twin it is has a ratio instead of one; a
//! last line gives unit and direction; a star is that of [`Comparison`](crate::compare::Comparison), which needs several runs,
//! where mmtests looks whether the intervals of single samples overlap.

use crate::better::Better;
use crate::compare::{Gates, Verdict};
use crate::mmtests_2015;
use crate::short::{NOT_COUNTED, WIDTH, text::fold};
use crate::stats::{Pair, percent_change};
use crate::table::{Against, CheckRow, CheckTable, ColumnHead, Kind, Layout, Report, Row, Table, Value};

/// Width of ` (%7.2f%%)`.
const PERCENT_WIDTH: usize = 11;

/// All tables of a report, one blank line between them.
pub fn to_text(report: &Report) -> String {
    let table_text = |table: &Table| match report.layout {
        Layout::Classic if table.kind != Kind::Causes => mmtests_2015::table_text(table),
        Layout::Head | Layout::Classic | Layout::WillItScale | Layout::Cases => table_text(table),
    };
    let tables = report.tables.iter().map(table_text);
    let checks = report.checks.iter().map(checks_text);
    let text = tables.chain(checks).collect::<Vec<String>>().join("\n");
    if text.contains("%*") {
        let rule = fold(&format!("* {}", Gates::default().in_words("")), WIDTH);
        return text + "\n" + &rule.iter().map(|line| format!("{line}\n")).collect::<String>();
    }
    text
}

/// One table: title, header lines, rows, unit and direction.
pub fn table_text(table: &Table) -> String {
    let stat_width = widest(table.rows.iter().map(|row| row.stat.as_str()));
    let operation_width = widest(table.rows.iter().map(|row| row.operation.as_str()));
    let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row_cells(table, row)).collect();
    let widths: Vec<usize> = (0..table.columns.len()).map(|column| column_width(table, &rows, column)).collect();

    let mut lines = vec![table.title.clone()];
    let header_lines = table.columns.iter().map(|head| head.lines.len()).max().unwrap_or(0);
    lines.extend((0..header_lines).map(|line| {
        let names = " ".repeat(stat_width + 1 + operation_width);
        let heads = table.columns.iter().map(|head| head.lines.get(line).map_or("", String::as_str));
        names + &aligned(heads, &widths)
    }));
    lines.extend(table.rows.iter().zip(&rows).map(|(Row { stat, operation, .. }, cells)| {
        let names = format!("{stat:stat_width$} {operation:operation_width$}");
        names + &aligned(cells.iter().map(|cell| cell.trim_start()), &widths)
    }));
    let direction = match table.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::None => "no direction is better",
    };
    lines.push(format!("unit: {}, {direction}\n", table.unit));
    lines.join("\n")
}

/// mmtests: F = 18 for results and `Duration`, 15 for vmstat; results that are compared have a percentage after it.
fn number_width(table: &Table) -> usize {
    match table.kind {
        Kind::Metric | Kind::Duration | Kind::Extfrag => 18,
        Kind::Counters | Kind::Memory | Kind::Causes => 15,
    }
}

fn row_cells(table: &Table, row: &Row) -> Vec<String> {
    let width = number_width(table);
    let compares = table.compares();
    let cell = |(column, (cell, head)): (usize, (&Option<Value>, &ColumnHead))| {
        let Some(value) = cell else {
            return if table.kind == Kind::Extfrag { NOT_COUNTED.to_owned() } else { String::new() };
        };
        let number = format!("{:width$.2}", value.value);
        if let Some(share) = value.share {
            return format!("{number} ({share:7.2}%)");
        }
        if !compares {
            return number;
        }
        let baseline = row.cells[head.baseline].as_ref().map(|baseline| baseline.value);
        let pair = |baseline| Pair { baseline, new: value.value };
        if let Against::Kernel(_) = table.against(column) {
            let ratio = baseline.map_or_else(String::new, |baseline| ratio(pair(baseline)));
            return format!("{number} {ratio:>width$}", width = PERCENT_WIDTH - 1);
        }
        match baseline.and_then(|baseline| percent_change(row.better, pair(baseline))) {
            Some(percent) if value.verdict.is_some_and(Verdict::is_starred) => format!("{number} *{percent:7.2}%*"),
            Some(percent) => format!("{number} ({percent:7.2}%)"),
            None => format!("{number}{}", " ".repeat(PERCENT_WIDTH)),
        }
    };
    row.cells.iter().zip(&table.columns).enumerate().map(cell).collect()
}

/// How many times the real number the model's is: a model and a kernel have no percentage between them.
pub(crate) fn ratio(Pair { baseline, new }: Pair<f64>) -> String {
    if baseline == 0.0 { String::new() } else { format!("x{:.2}", new / baseline) }
}

/// mmtests' width, or more if something would touch what is left of it.
fn column_width(table: &Table, rows: &[Vec<String>], column: usize) -> usize {
    let percent = if table.compares() || table.kind == Kind::Causes { PERCENT_WIDTH } else { 0 };
    let cells = rows.iter().map(|cells| cells[column].trim_start());
    let head = table.columns[column].lines.iter().map(String::as_str);
    (number_width(table) + percent).max(1 + widest(cells.chain(head)))
}

/// One table of checks: one line per operation, check and column.
pub fn checks_text(table: &CheckTable) -> String {
    let head = ["case", "check", "column", "expected", "found", "difference", "tolerance", "within"];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(table.rows.iter().map(check_fields));
    let widths: [usize; 8] = std::array::from_fn(|field| widest(lines.iter().map(|line| line[field].as_str())));
    let mut text = format!("{}\n", table.title);
    for line in &lines {
        let mut row = String::new();
        for (index, (field, width)) in line.iter().zip(widths).enumerate() {
            let gap = if index == 0 { "" } else { "  " };
            let numeric = (3..=5).contains(&index);
            let field = if numeric { right(field, width) } else { format!("{field:width$}") };
            row.push_str(gap);
            row.push_str(&field);
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text.push_str("unit: as counted, of the run furthest off; found should equal expected\n");
    text
}

fn check_fields(row: &CheckRow) -> [String; 8] {
    let difference = row.difference_percent();
    let within = match (row.cells, row.cells_within) {
        (cells, within) if cells == within => "yes".to_owned(),
        (1, _) => "no".to_owned(),
        (cells, within) => format!("no ({within} of {cells} runs)"),
    };
    [
        row.case.clone(),
        row.check.name.clone(),
        row.lines.join(" "),
        row.check.expected.to_string(),
        row.check.found.to_string(),
        difference.map_or_else(String::new, |percent| format!("{percent:.2}%")),
        row.check.tolerance.clone(),
        within,
    ]
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn aligned<'a>(texts: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    texts.zip(widths).map(|(text, &width)| right(text, width)).collect()
}

fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}
