//! Short text for a screen of 80 columns. A row shows on one line the value, its change, how sure the change is, and the
//! published value. The full text is [`to_text`](crate::to_text).

mod across;
mod by_test;
mod legend;
mod number;
mod pivot;
mod strip;
pub mod text;

pub(crate) use self::number::NEW;
pub use self::number::{WIDTH, number as number_of};
use std::collections::BTreeMap;

use self::{
    legend::{Seen, Sign},
    number::{FITTED, SAME, STAR, WRONG, change, number, range, ratio},
    pivot::{Line, Pivot},
    strip::{Field, Strip},
    text::{fit, fold, list},
};
use crate::{
    better::Better,
    compare::Family,
    extfrag,
    group::{distinct, thing_and_operation},
    metrics::TAILS,
    published::{Printed, Published},
    stats::Pair,
    table::{Against, CheckTable, Form, Kind, Layout, Report, Row, Table, Value},
};

/// Further facts that are printed beside our own numbers.
#[derive(Default)]
pub struct Beside<'a> {
    /// The published series that the tables reproduce.
    pub published: Option<&'a Published>,
    /// Titles of columns by kernel, if the experiment gives them.
    pub titles: BTreeMap<String, String>,
}

/// All tables of a report with a blank line between them, then one line about the signs in them. A table of checks is one line.
pub fn to_short(report: &Report, beside: &Beside<'_>) -> String {
    let mut seen = Seen::default();
    let tables = report.tables.iter().map(|table| Short { table, layout: report.layout, beside }.lines(&mut seen));
    let mut parts: Vec<Vec<String>> = tables.collect();
    parts.push(report.checks.iter().map(checks_line).collect());
    parts.push(seen.lines(beside.published.map_or("", Published::reasons)));
    parts.retain(|lines| !lines.is_empty());
    let part = |lines: Vec<String>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    parts.into_iter().map(part).collect::<Vec<String>>().join("\n")
}

/// Printed for a kernel whose fallbacks nobody counted.
pub(crate) const NOT_COUNTED: &str = "-";

/// One line on whether all checks hold. The caller names the checks that do not, as it knows the kernels.
fn checks_line(table: &CheckTable) -> String {
    let failed = table.rows.iter().filter(|row| row.failed()).count();
    let all = table.rows.len();
    fit(&format!("{}: {} of {all} as expected", table.title, all - failed), WIDTH)
}

/// A table, with what is needed to print it.
#[derive(Clone, Copy)]
struct Short<'a> {
    table: &'a Table,
    layout: Layout,
    beside: &'a Beside<'a>,
}

/// Printed where there was nothing to measure.
const NO_SAMPLE: &str = "-";

impl Short<'_> {
    fn lines(&self, seen: &mut Seen) -> Vec<String> {
        if self.layout == Layout::WillItScale {
            return by_test::lines(*self, seen);
        }
        if self.layout == Layout::Cases {
            return across::lines(*self, seen);
        }
        let shown: Vec<&Row> = self.table.rows.iter().filter(|row| self.is_shown(row)).collect();
        if shown.is_empty() {
            return Vec::new();
        }
        let pivot = Pivot::of(self.table, &shown);
        let (zero, lines): (Vec<Line<'_>>, Vec<Line<'_>>) =
            pivot.lines.into_iter().partition(|line| line.rows.iter().flatten().all(|row| self.is_zero(row)));
        if lines.is_empty() && self.table.kind == Kind::Extfrag {
            // Only whole pageblocks were taken, so no mobilities were mixed.
            return Vec::new();
        }
        let (empty, zero): (Vec<Line<'_>>, Vec<Line<'_>>) =
            zero.into_iter().partition(|line| line.rows.iter().flatten().all(|row| self.lacks_samples(row)));
        let mut text = fold(&self.title(&pivot.cases), WIDTH);
        if !lines.is_empty() {
            let labels: Vec<String> = lines.iter().map(|line| line.label.clone()).collect();
            text.extend(strip::lines(&labels, &self.strips(&pivot.cases, &lines, seen), WIDTH));
        }
        for (what, lines) in [("zero in all columns: ", zero), ("no sample in any column: ", empty)] {
            let names: Vec<String> = lines.into_iter().map(|line| line.label).collect();
            if !names.is_empty() {
                text.push(list(what, &names, WIDTH));
            }
        }
        text.extend(self.tails(seen));
        text
    }

    /// Percentiles and maxima of samples: a line for each case, with three numbers side by side. `--full` prints the 2015 form.
    fn tails(&self, seen: &mut Seen) -> Vec<String> {
        let is_tail = |row: &&Row| self.layout == Layout::Head && Family::of(self.table, row) == Some(Family::Tails);
        let rows: Vec<&Row> = self.table.rows.iter().filter(is_tail).collect();
        let cases: Vec<String> = TAILS.iter().map(|stat| stat.to_lowercase()).collect();
        let operations = distinct(rows.iter().map(|row| row.operation.as_str()));
        let line = |operation: &str| {
            let of = |stat: &&str| rows.iter().find(|row| row.stat == **stat && row.operation == operation).copied();
            Line { label: operation.to_owned(), rows: TAILS.iter().map(of).collect() }
        };
        let lines: Vec<Line<'_>> = operations.into_iter().map(line).collect();
        if lines.is_empty() {
            return Vec::new();
        }
        let mut strips = self.strips(&cases, &lines, seen);
        // The line has room for numbers and changes, but not for ranges.
        for strip in &mut strips {
            strip.fields[RANGE].texts.iter_mut().for_each(String::clear);
        }
        let of_column =
            if self.table.columns.len() == 1 { format!(" of {}", self.head(0).join(" ")) } else { String::new() };
        let mut text = vec![String::new()];
        text.extend(fold(&format!("{}{of_column}: percentiles of samples", self.table.title), WIDTH));
        let labels: Vec<String> = lines.iter().map(|line| line.label.clone()).collect();
        text.extend(strip::lines(&labels, &strips, WIDTH));
        text
    }

    /// One strip for each column, or for each case and column.
    fn strips(&self, cases: &[String], lines: &[Line<'_>], seen: &mut Seen) -> Vec<Strip> {
        let columns = self.table.columns.len();
        let places = (0..cases.len().max(1)).flat_map(|case| (0..columns).map(move |column| (case, column)));
        let strip = |(case, column): (usize, usize)| {
            let rows: Vec<Option<&Row>> = lines.iter().map(|line| line.rows[case]).collect();
            let strip = self.strip(column, &rows, seen);
            let title = match cases {
                // The table's title already names the case, or the column.
                [] | [_] => strip.title,
                cases if columns == 1 => vec![cases[case].clone()],
                cases => [vec![cases[case].clone()], strip.title].concat(),
            };
            Strip { title, ..strip }
        };
        places.map(strip).collect()
    }

    fn title(&self, cases: &[String]) -> String {
        let Table { title, experiment, better, unit, kind, .. } = self.table;
        let mut title = if title.is_empty() { format!("{experiment} Counters") } else { title.clone() };
        match cases {
            [] => {}
            [case] => title += &format!(" of {case}"),
            _ if self.table.columns.len() == 1 => title += &format!(" of {}", self.head(0).join(" ")),
            _ => {}
        }
        // Some titles already name the unit.
        let is_said = title.ends_with(')') || title.contains("Percentage") || *kind == Kind::Counters;
        let unit = if is_said { String::new() } else { format!(", {unit}") };
        let better = match better {
            Better::Lower => ", lower is better",
            Better::Higher => ", higher is better",
            Better::None => "",
        };
        format!("{title}{unit}{better}")
    }

    /// Is the row shown? One statistic of each measured thing is, and rates and shares that follow from two counters are not.
    fn is_shown(&self, row: &Row) -> bool {
        match self.table.kind {
            Kind::Metric => MEANS.contains(&row.stat.as_str()),
            Kind::Counters => {
                !matches!(row.form, Form::Percent | Form::Thousandths) && !FOLLOW.contains(&thing_and_operation(row).0)
            }
            Kind::Extfrag => extfrag::is_short(row),
            Kind::Duration | Kind::Causes => true,
            Kind::Memory => false,
        }
    }

    /// Is the row zero in every column, including the published ones?
    fn is_zero(&self, row: &Row) -> bool {
        let is_zero = |value: &Option<Value>| value.as_ref().is_none_or(|value| value.value == 0.0);
        row.cells.iter().all(is_zero)
            && (0..self.table.columns.len())
                .all(|column| self.theirs(row, column).is_none_or(|theirs| theirs.number == 0.0))
    }

    /// Did no run of any column have anything to measure?
    fn lacks_samples(&self, row: &Row) -> bool {
        (0..row.cells.len()).all(|column| self.measured(row, column).is_none()) && self.table.kind == Kind::Metric
    }

    /// The value of a column; none if no run had anything to measure, since that is not a time of zero.
    fn measured<'r>(&self, row: &'r Row, column: usize) -> Option<&'r Value> {
        let is_empty = |value: &Value| self.table.kind == Kind::Metric && value.of_seeds.is_empty();
        row.cells[column].as_ref().filter(|value| !is_empty(value))
    }

    fn kernel(&self, column: usize) -> &str {
        &self.table.columns[column].column.kernel
    }

    /// The published value of a row for one of our columns.
    fn theirs(&self, row: &Row, column: usize) -> Option<&Printed> {
        self.beside.published?.value(&self.table.experiment, &row.metric, &row.case, self.kernel(column))
    }

    /// The published value, unless the series says that there was nothing to measure.
    fn their_number(&self, row: &Row, column: usize) -> Option<f64> {
        let (published, printed) = (self.beside.published?, self.theirs(row, column)?);
        (!published.lacks_samples(printed)).then_some(printed.number)
    }

    fn strip(&self, column: usize, rows: &[Option<&Row>], seen: &mut Seen) -> Strip {
        let mut fields: [Field; 6] = Default::default();
        for row in rows {
            let texts = row.map_or_else(Default::default, |row| self.cell(column, row, seen));
            for (field, text) in fields.iter_mut().zip(texts) {
                field.texts.push(text);
            }
        }
        fields[MARKS].left = true;
        let published = fields[THEIRS].texts.iter().any(|text| !text.is_empty());
        Strip {
            title: self.head(column),
            whose: published.then_some(["ours", "published"]),
            fields: fields.into_iter().collect(),
        }
    }

    fn head(&self, column: usize) -> Vec<String> {
        let head = &self.table.columns[column];
        let kernel = &head.column.kernel;
        let mut lines = head.lines.clone();
        if self.layout == Layout::Classic && self.table.is_of_kernels() {
            lines = vec![kernel.clone()];
        }
        let named = match self.beside.titles.get(kernel) {
            Some(title) => vec![title.clone()],
            None => variant(kernel),
        };
        lines.into_iter().flat_map(|line| if line == *kernel { named.clone() } else { vec![line] }).collect()
    }

    /// The texts of a row in a column: value, change, range, marks, published value and published change.
    fn cell(&self, column: usize, row: &Row, seen: &mut Seen) -> [String; 6] {
        let mut texts: [String; 6] = Default::default();
        let against = self.table.against(column);
        let other = match against {
            Against::Nothing => None,
            Against::Baseline(other) | Against::Kernel(other) => Some(other),
        };
        let marks = self.marks(column, row);
        if let Some(value) = self.measured(row, column) {
            texts[OURS] = number(value.value);
            let baseline = other.and_then(|other| self.measured(row, other));
            if let Some(baseline) = baseline {
                let pair = Pair { baseline: baseline.value, new: value.value };
                let is_twin = matches!(against, Against::Kernel(_));
                texts[CHANGE] = if is_twin { ratio(pair) } else { change(pair) };
                seen.change(is_twin, &texts[CHANGE]);
                if let Some(verdict) = value.verdict.filter(|_| !is_twin) {
                    seen.verdict(verdict);
                    texts[MARKS].extend(verdict.is_starred().then_some(STAR));
                }
            }
            if let Some(share) = value.share {
                texts[CHANGE] = format!("{share:.1}%");
            }
            if let Some((low, high)) = value.range() {
                texts[RANGE] = range(low, high);
                match texts[RANGE].as_str() {
                    SAME => seen.sign(Sign::Same),
                    _ => seen.range(value.of_seeds.len()),
                }
            }
            seen.marks(&marks);
            texts[MARKS] += &marks;
            if texts[MARKS].len() > 1 {
                seen.sign(Sign::Combined);
            }
        } else if self.table.kind == Kind::Extfrag {
            NOT_COUNTED.clone_into(&mut texts[OURS]);
        } else if self.table.kind == Kind::Metric {
            texts[OURS].push_str(NO_SAMPLE);
        }
        match self.their_number(row, column) {
            Some(new) => {
                texts[THEIRS] = number(new);
                if let Some(baseline) = other.and_then(|other| self.their_number(row, other)) {
                    texts[THEIR_CHANGE] = change(Pair { baseline, new });
                    seen.published_change();
                }
            }
            None if self.theirs(row, column).is_some() => texts[THEIRS].push_str(NO_SAMPLE),
            None => {}
        }
        texts
    }

    /// The marks that say what is known about a published value.
    fn marks(&self, column: usize, row: &Row) -> String {
        let Some(published) = self.beside.published else { return String::new() };
        let (experiment, kernel) = (&self.table.experiment, self.kernel(column));
        let fitted = published.fitted(experiment, &row.metric, &row.case, kernel).map(|_| FITTED);
        let wrong = published.wrong(experiment, &row.metric, &row.case, kernel).map(|_| WRONG);
        fitted.into_iter().chain(wrong).collect()
    }
}

/// Statistics whose rows are shown: means and shares.
const MEANS: [&str; 3] = ["Amean", "Hmean", "Percentage"];

/// Counters that follow from other counters, or repeat the same number.
const FOLLOW: [&str; 4] = ["Compaction cost", "NUMA hint local percent", "NUMA page range updates", "NUMA alloc local"];

/// Index of the first field of a column: our value.
const OURS: usize = 0;
const CHANGE: usize = 1;
const RANGE: usize = 2;
const MARKS: usize = 3;
const THEIRS: usize = 4;
const THEIR_CHANGE: usize = 5;

/// A kernel name with the patches applied to it, in lines: `v4.1-rc2+1,4` is `v4.1-rc2`, `patches 1,4`; `v3.9+1,2,3,5` is
/// `v3.9`, `patches 1-3,5`.
fn variant(kernel: &str) -> Vec<String> {
    let is_list = |list: &str| list.split(',').all(|patch| patch.parse::<u32>().is_ok());
    match kernel.split_once('+').filter(|(name, patches)| name.starts_with('v') && is_list(patches)) {
        Some((name, patches)) if patches.contains(',') => vec![name.to_owned(), format!("patches {}", ranges(patches))],
        Some((name, patch)) => vec![name.to_owned(), format!("patch {patch}")],
        None => vec![kernel.to_owned()],
    }
}

/// A list of numbers with three or more consecutive numbers as a range.
fn ranges(list: &str) -> String {
    let numbers: Vec<u32> = list.split(',').filter_map(|number| number.parse().ok()).collect();
    let in_a_row = numbers.chunk_by(|before, after| before.checked_add(1) == Some(*after));
    let parts = in_a_row.flat_map(|run| match run {
        [from, _, .., to] => vec![format!("{from}-{to}")],
        few => few.iter().map(u32::to_string).collect(),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::variant;

    #[test]
    fn patches_in_a_row_are_a_range() {
        let named = |kernel: &str| variant(kernel).join(" ");
        assert_eq!(named("v3.9+1,2,3,4"), "v3.9 patches 1-4");
        assert_eq!(named("v3.9+1,2,4,6,7,8"), "v3.9 patches 1,2,4,6-8");
        assert_eq!(named("v3.9+2"), "v3.9 patch 2");
    }
}
