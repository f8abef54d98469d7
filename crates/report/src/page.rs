//! A page of output: a head, parts and a foot, with one renderer for each output form. Every command that prints a result
//! makes a page of it.

use crate::{
    csv::{CsvLine, to_csv},
    json::{self, FieldValue},
    mmtests::to_text,
    over_time::{series_csv, series_text, slow_path_csv, slow_path_text},
    published::{Judgement, Published, Scores, claims_csv, claims_text, scores_csv, scores_text},
    record::Cell,
    short::{Beside, to_short},
    table::Report,
};

/// Everything that a command prints.
pub struct Page<'a> {
    /// Lines before the parts; only text output has them.
    pub head: String,
    /// The parts, in the order in which they are printed.
    pub parts: Vec<Part<'a>>,
    /// Lines after the parts; only text output has them.
    pub foot: String,
}

/// One part of a page.
pub enum Part<'a> {
    /// Tables of numbers and of checks, with what stands beside the numbers in short texts.
    Tables(&'a Report, Beside<'a>),
    /// The tables once more for each seed, from the runs with that seed alone. Only output for programs has them.
    BySeed(Vec<(u64, Report)>),
    /// Lines that are already laid out.
    Text(String),
    /// Values outside the tables, under the same column names. Only output for programs has them.
    Values(Vec<CsvLine>),
    /// Time series of some cells: the named columns, or a digest if no column is named.
    Series(&'a [Cell], &'a [String]),
    /// The given number of longest operations in each of some cells.
    SlowPath(&'a [Cell], usize),
    /// A published series, and which of its claims hold.
    Claims(&'a Published, &'a Judgement),
    /// A published series, and how near the simulated changes are to it.
    Score(&'a Published, &'a Scores),
    /// Further fields of the JSON object, by name; text and CSV output do not have them.
    Fields(Vec<(&'static str, &'a dyn FieldValue)>),
}

impl<'a> Page<'a> {
    /// A page of these parts, without head and foot.
    pub fn of(parts: Vec<Part<'a>>) -> Self {
        Self { head: String::new(), parts, foot: String::new() }
    }

    /// The full text: every row, with a blank line between two parts.
    pub fn to_text(&self) -> String {
        let in_texts = self.parts.iter().filter(|part| part.is_in_texts());
        let parts = in_texts.map(|part| match part {
            Part::Tables(report, _) => to_text(report),
            other => other.lines(),
        });
        format!("{}{}{}", self.head, parts.collect::<Vec<String>>().join("\n"), self.foot)
    }

    /// The short text, in lines of [`WIDTH`](crate::WIDTH) characters; a blank line separates the head and the parts that
    /// are not empty.
    pub fn to_short(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Tables(report, beside) => to_short(report, beside),
            other => other.lines(),
        });
        let parts: Vec<String> =
            std::iter::once(self.head.clone()).chain(parts).filter(|part| !part.is_empty()).collect();
        parts.join("\n") + &self.foot
    }

    /// CSV, one value to a line: first the values of tables, then other values. Series have columns of their own.
    pub fn to_csv(&self) -> String {
        let more = self.parts.iter().filter_map(|part| match part {
            Part::Values(values) => Some(values.as_slice()),
            _ => None,
        });
        let more = more.collect::<Vec<_>>().concat();
        let by_seed = self.parts.iter().find_map(|part| match part {
            Part::BySeed(reports) => Some(reports.as_slice()),
            _ => None,
        });
        let parts = self.parts.iter().map(|part| match part {
            Part::Tables(report, _) => to_csv(report, by_seed.unwrap_or_default(), &more),
            Part::Text(_) | Part::Values(_) | Part::BySeed(_) | Part::Fields(_) | Part::Claims(..) => String::new(),
            Part::Series(cells, names) => series_csv(cells, names),
            Part::SlowPath(cells, count) => slow_path_csv(cells, *count),
            Part::Score(_, scores) => scores_csv(scores),
        });
        // Claims of several series share one line of column names.
        let claims = self.judgements();
        let claims = if claims.is_empty() { String::new() } else { claims_csv(&claims) };
        parts.collect::<String>() + &claims
    }

    /// One JSON document: an object of named fields, in which the tables are `report`, or a list where the page is of
    /// claims, samples or slow operations.
    ///
    /// # Panics
    /// When a field does not serialise.
    pub fn to_json(&self) -> String {
        json::to_json(self)
    }

    /// The judgements of the page's published series, in their order.
    pub(crate) fn judgements(&self) -> Vec<&Judgement> {
        let judgement = |part: &Part<'a>| match part {
            Part::Claims(_, judgement) => Some(*judgement),
            _ => None,
        };
        self.parts.iter().filter_map(judgement).collect()
    }
}

impl Part<'_> {
    /// The lines of a part that looks the same in short and full texts.
    fn lines(&self) -> String {
        match self {
            Part::Tables(..) => unreachable!("whoever prints tables says how"),
            Part::Text(text) => text.clone(),
            Part::Values(_) | Part::BySeed(_) | Part::Fields(_) => String::new(),
            Part::Series(cells, names) => series_text(cells, names),
            Part::SlowPath(cells, count) => slow_path_text(cells, *count),
            Part::Claims(published, judgement) => claims_text(published, judgement),
            Part::Score(published, scores) => scores_text(published, scores),
        }
    }

    fn is_in_texts(&self) -> bool {
        !matches!(self, Self::Values(_) | Self::BySeed(_) | Self::Fields(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Layout;

    #[test]
    fn parts_are_apart_by_blank_lines_under_one_header() {
        let report = Report { layout: Layout::Head, tables: Vec::new(), checks: Vec::new() };
        let value = |metric: &str| CsvLine {
            experiment: "e".to_owned(),
            metric: metric.to_owned(),
            case: "c".to_owned(),
            kernel: "k".to_owned(),
            value: "1".to_owned(),
        };
        let text = |lines: &str| Part::Text(lines.to_owned());
        let tables = || Part::Tables(&report, Beside::default());
        let parts = vec![tables(), text("one\n"), text(""), text("two\n")];
        let page = Page { head: "head\n".to_owned(), parts, foot: "foot\n".to_owned() };
        assert_eq!(page.to_short(), "head\n\none\n\ntwo\nfoot\n");
        assert_eq!(page.to_text(), "head\n\none\n\n\ntwo\nfoot\n", "every part of a full text has its line");
        let parts = vec![Part::Values(vec![value("m")]), tables(), Part::Values(vec![value("n")])];
        let csv = Page { parts, ..page }.to_csv();
        let metrics: Vec<&str> = csv.lines().filter_map(|line| line.split(',').nth(1)).collect();
        assert_eq!(metrics, ["metric", "m", "n"]);
    }
}
