//! Tables of many kernels and a few cases: a line for each kernel, with the cases side by side. A table of several
//! quantities shows the quantities of its last case.

use super::{
    Short,
    by_test::{MARKS, THEIRS, texts},
    legend::Seen,
    number::WIDTH,
    strip::{self, Field, Strip},
    text::{fold, list},
};
use crate::{
    group::distinct,
    table::{Kind, Row},
    will_it_scale::test_and_quantity,
};

/// All lines of a table; none if it is no table of a metric.
pub(super) fn lines(short: Short<'_>, seen: &mut Seen) -> Vec<String> {
    let rows = &short.table.rows;
    if short.table.kind != Kind::Metric || rows.is_empty() {
        return Vec::new();
    }
    let name = |row: &Row| test_and_quantity(&row.metric).0.to_owned();
    let mut title = short.title(&[]);
    let of_several = rows.iter().rev().find(|row| !name(row).is_empty());
    let shown: Vec<(String, &Row)> = match of_several {
        None => rows.iter().map(|row| (row.case.clone(), row)).collect(),
        Some(last) => {
            title += &format!(": {}", last.case);
            let of_last = rows.iter().filter(|row| row.case == last.case);
            of_last.map(|row| (name(row), row)).collect()
        }
    };
    let (zero, shown): (Vec<_>, Vec<_>) = shown.into_iter().partition(|(_, row)| short.is_zero(row));
    let mut text = fold(&title, WIDTH);
    text.extend(columns(short, &shown, seen));
    let names: Vec<String> = zero.into_iter().map(|(name, _)| name).collect();
    if !names.is_empty() {
        text.push(list("zero in all columns: ", &names, WIDTH));
    }
    text
}

/// A line for each column of the table that has any of these values.
fn columns(short: Short<'_>, shown: &[(String, &Row)], seen: &mut Seen) -> Vec<String> {
    let has_any = |column: &usize| shown.iter().any(|(_, row)| row.cells[*column].is_some());
    let columns: Vec<usize> = (0..short.table.columns.len()).filter(has_any).collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let strips: Vec<Strip> = shown.iter().map(|(name, row)| strip(short, name, row, &columns, seen)).collect();
    let several = distinct(short.table.columns.iter().map(|head| head.column.target)).len() > 1;
    // The first word of a column's head is the target.
    let label = |column: &usize| short.head(*column)[usize::from(!several)..].join(" ");
    let labels: Vec<String> = columns.iter().map(label).collect();
    strip::lines(&labels, &strips, WIDTH)
}

/// The strip of one case or quantity. With this many columns there is no room for changes.
fn strip(short: Short<'_>, name: &str, row: &Row, columns: &[usize], seen: &mut Seen) -> Strip {
    let mut fields: [Field; 6] = Default::default();
    for column in columns {
        for (field, text) in fields.iter_mut().zip(texts(short, row, *column, false, seen)) {
            field.texts.push(text);
        }
    }
    fields[MARKS].left = true;
    let published = fields[THEIRS].texts.iter().any(|text| !text.is_empty());
    let whose = published.then_some(["ours", "published"]);
    Strip { title: vec![name.to_owned()], whose, fields: fields.into_iter().collect() }
}
