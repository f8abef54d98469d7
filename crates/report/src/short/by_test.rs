//! Tables of will-it-scale as its users post them: a line for each kernel and number of tasks, and tests side by side.

use super::{
    Short,
    legend::{Seen, Sign},
    number::{NEW, STAR, WIDTH, number},
    strip::{self, Field, Strip},
    text::fold,
};
use crate::{
    better::Better,
    group::distinct,
    stats::{self, Pair},
    table::{Against, Kind, Row, Value},
    will_it_scale::test_and_quantity,
};

/// One line of a table.
struct Line<'a> {
    column: usize,
    case: &'a str,
}

/// All lines of a table; none of what is no metric.
pub(super) fn lines(short: Short<'_>, seen: &mut Seen) -> Vec<String> {
    let rows = &short.table.rows;
    if short.table.kind != Kind::Metric || rows.is_empty() {
        return Vec::new();
    }
    let tests = distinct(rows.iter().map(|row| test_and_quantity(&row.metric).0));
    let cases = distinct(rows.iter().map(|row| row.case.as_str()));
    let has_value = |line: &Line<'_>| {
        let of_case = rows.iter().filter(|row| row.case == line.case);
        of_case.into_iter().any(|row| row.cells[line.column].is_some())
    };
    let all = (0..short.table.columns.len()).flat_map(|column| cases.iter().map(move |case| Line { column, case }));
    let lines: Vec<Line<'_>> = all.filter(has_value).collect();
    let strips: Vec<Strip> = tests.iter().map(|test| strip(short, test, &lines, seen)).collect();
    let mut text = fold(&short.title(&[]), WIDTH);
    text.extend(strip::lines(&labels(short, &lines), &strips, WIDTH));
    text
}

/// The column's name once, and the number of tasks.
fn labels(short: Short<'_>, lines: &[Line<'_>]) -> Vec<String> {
    let several = distinct(short.table.columns.iter().map(|head| head.column.target)).len() > 1;
    // The first word of a head is the target.
    let name = |line: &Line<'_>| short.head(line.column)[usize::from(!several)..].join(" ");
    let names: Vec<String> = lines.iter().map(name).collect();
    let width = super::text::widest(names.iter().map(String::as_str));
    let label = |(at, (line, name)): (usize, (&Line<'_>, &String))| {
        let again = at > 0 && lines[at - 1].column == line.column;
        let name = if again { "" } else { name };
        let case = line.case.strip_prefix("tasks=").unwrap_or(line.case);
        format!("{name:width$} {case:>2}")
    };
    lines.iter().zip(&names).enumerate().map(label).collect()
}

fn strip(short: Short<'_>, test: &str, lines: &[Line<'_>], seen: &mut Seen) -> Strip {
    let mut fields: [Field; 6] = Default::default();
    for line in lines {
        let row = |row: &&Row| row.case == line.case && test_and_quantity(&row.metric).0 == test;
        let texts = short.table.rows.iter().find(row).map(|row| texts(short, row, line.column, true, seen));
        for (field, text) in fields.iter_mut().zip(texts.unwrap_or_default()) {
            field.texts.push(text);
        }
    }
    fields[MARKS].left = true;
    let published = fields[THEIRS].texts.iter().any(|text| !text.is_empty());
    let whose = published.then_some(["ours", "published"]);
    Strip { title: vec![test.to_owned()], whose, fields: fields.into_iter().collect() }
}

/// Fields of a test.
const OURS: usize = 0;
const CHANGE: usize = 1;
const DEVIATION: usize = 2;
pub(super) const MARKS: usize = 3;
pub(super) const THEIRS: usize = 4;
const THEIR_CHANGE: usize = 5;

/// Value, change, how far single runs are from it at most, marks, the published value and its change; no changes where it does
/// not compare.
pub(super) fn texts(short: Short<'_>, row: &Row, column: usize, compares: bool, seen: &mut Seen) -> [String; 6] {
    let mut texts: [String; 6] = Default::default();
    let baseline = match short.table.against(column) {
        Against::Nothing => None,
        Against::Baseline(other) | Against::Kernel(other) => Some(other),
    };
    let baseline = baseline.filter(|_| compares && short.table.better != Better::None);
    let number = |value: f64| if short.table.unit == "pct" { hundredths(value) } else { number(value) };
    if let Some(value) = short.measured(row, column) {
        texts[OURS] = number(value.value);
        if let Some(other) = baseline.and_then(|other| short.measured(row, other)) {
            texts[CHANGE] = change(Pair { baseline: other.value, new: value.value });
            seen.change(false, &texts[CHANGE]);
            if let Some(verdict) = value.verdict {
                seen.verdict(verdict);
                texts[MARKS].extend(verdict.is_starred().then_some(STAR));
            }
        }
        if let Some(deviation) = deviation(value).filter(|_| short.table.better != Better::None) {
            texts[DEVIATION] = format!("+-{}", tenths(deviation, ""));
            seen.sign(Sign::Deviation);
        }
        let marks = short.marks(column, row);
        seen.marks(&marks);
        texts[MARKS] += &marks;
    }
    if let Some(theirs) = short.their_number(row, column) {
        texts[THEIRS] = number(theirs);
        if let Some(other) = baseline.and_then(|other| short.their_number(row, other)) {
            texts[THEIR_CHANGE] = change(Pair { baseline: other, new: theirs });
            seen.published_change();
        }
    }
    texts
}

/// A share of time, of which two digits after the point say enough.
fn hundredths(percent: f64) -> String {
    let text = format!("{percent:.2}");
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

/// A change with one digit after the point.
fn change(pair: Pair<f64>) -> String {
    stats::change(pair).map_or_else(|| NEW.to_owned(), |percent| tenths(percent / 100.0, "+"))
}

/// In per cent, with one digit after the point: most differences of these tables are less than ten.
fn tenths(part: f64, plus: &str) -> String {
    let percent = format!("{:.1}%", 100.0 * part);
    match percent.as_str() {
        "0.0%" | "-0.0%" => "0.0%".to_owned(),
        negative if negative.starts_with('-') => percent,
        _ => format!("{plus}{percent}"),
    }
}

/// How far the run that is furthest off is from the mean, as a part of it: what their author calls STDEV.
fn deviation(value: &Value) -> Option<f64> {
    let runs: Vec<f64> = value.of_seeds.values().copied().collect();
    let (low, high) = stats::min(&runs).zip(stats::max(&runs)).filter(|_| runs.len() > 1 && value.value > 0.0)?;
    Some((high - value.value).max(value.value - low) / value.value)
}
