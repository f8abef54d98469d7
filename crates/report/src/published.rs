//! Published series: a table as printed, where it is from, and which of its rows say little about a model.
//!
//! A series is a folder of files (`published/s0/`): `source.toml`, tables as CSV, `rows.toml`, `claims.toml`. No simulation
//! reads it; only what prints or judges results does.

mod claim;
mod claims_text;
mod figure;
mod judge;
mod ours;
mod possible;
#[cfg(test)]
mod possible_tests;
mod read;
mod rows;
mod score;
#[cfg(test)]
mod score_tests;
mod score_text;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use self::rows::Rows;
pub use self::{
    claim::{Claim, Unit},
    claims_text::{claims_csv, claims_text},
    judge::{JudgedClaim, JudgedPart, Judgement, Verdict, judge, judge_published},
    ours::{Ours, words},
    possible::Possible,
    score::{Ceiling, Runs, Score, ScoredSet, Scores, scores},
    score_text::{scores_csv, scores_text},
};
use crate::better::Better;

/// A published series of patches: its tables and the claims about them.
#[derive(Clone, Debug)]
pub struct Published {
    /// The series' name here: `s0`.
    pub name: String,
    /// Author, place and date.
    pub source: PublishedSource,
    /// The file or page that explains to readers why some rows are known to be off.
    reasons: String,
    printed: Vec<Printed>,
    /// Index in `printed` of each value, by experiment, metric, case and kernel.
    places: BTreeMap<[String; 4], usize>,
    rows: Rows,
    claims: Vec<Claim>,
    /// Path of the file of claims, for error messages.
    claims_file: String,
}

/// The source of a published series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSource {
    /// One line about what was compared.
    pub about: String,
    /// The subject of the letter or commit.
    pub title: String,
    /// The author.
    pub author: String,
    /// When: a date, or a month.
    pub date: String,
    /// The list or commit, with its id where it is known.
    #[serde(rename = "where")]
    pub place: String,
    /// The machine, as far as it was published.
    pub machine: String,
    /// The built-in experiment that makes these tables; none if there is none yet.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Further experiments, whose results some claims need.
    #[serde(default)]
    pub also: Vec<String>,
    /// The page that explains why some rows do not come out, if the series has such a page.
    #[serde(default)]
    pub page: Option<String>,
    /// The columns, in the order of the tables.
    #[serde(rename = "column")]
    pub columns: Vec<PublishedColumn>,
    /// Values that were published as changes from one kernel to another.
    #[serde(default, rename = "change")]
    pub changes: Vec<PublishedChange>,
}

/// A metric published as a change: by how many per cent a value in one simulated column is above the value in another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedChange {
    /// The experiment.
    pub experiment: String,
    /// The metric, as published.
    pub metric: String,
    /// The column's label, as published: `B vs A`.
    pub kernel: String,
    /// The metric of ours whose values are compared, in all of its cases.
    pub of: String,
    /// The column of ours that changed, by its published label.
    pub to: String,
    /// The column of ours that it is compared with, likewise.
    pub from: String,
}

/// One column of the published tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedColumn {
    /// The column's label, as published.
    pub kernel: String,
    /// Name of the simulated kernel for the column; if it is left out, the name is the published label.
    #[serde(default)]
    ours: Option<String>,
    /// A suffix of the column's case names, for cases of the form name=value: with `shuffle` our case `tasks=16` is
    /// `tasks=16;shuffle`.
    #[serde(default)]
    condition: Option<String>,
    /// The column in a few words: `with patches 1-4`.
    pub about: String,
}

/// One published value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Printed {
    /// Workload and configuration.
    pub experiment: String,
    /// The metric.
    pub metric: String,
    /// The row of the metric's table.
    pub case: String,
    /// The column's label, as published.
    pub kernel: String,
    /// The value, digit by digit as printed.
    pub digits: String,
    /// The digits as a number.
    pub number: f64,
    /// Which direction is better, for the same work.
    pub better: Better,
}

/// A mistake in a file of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedError {
    /// The file.
    pub file: String,
    /// The line, from 1; none when the file as a whole is meant.
    pub line: Option<usize>,
    /// The text that was expected, and the one that was found.
    pub message: String,
}

impl fmt::Display for PublishedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PublishedError {}

impl Printed {
    /// The value's place: experiment, metric, case and column.
    pub fn place(&self) -> [&str; 4] {
        [&self.experiment, &self.metric, &self.case, &self.kernel]
    }
}

impl PublishedColumn {
    /// Name of the simulated kernel for this published column.
    pub fn ours(&self) -> &str {
        self.ours.as_deref().unwrap_or(&self.kernel)
    }

    /// The published name of our case in this column.
    fn case(&self, ours: &str) -> String {
        let condition = self.condition.as_ref().filter(|_| ours.contains('='));
        condition.map_or_else(|| ours.to_owned(), |condition| format!("{ours};{condition}"))
    }
}

impl Published {
    /// The published column for a simulated kernel.
    pub fn column(&self, ours: &str) -> Option<&PublishedColumn> {
        self.source.columns.iter().find(|column| column.ours() == ours)
    }

    /// The published value of a row for a simulated kernel.
    pub fn value(&self, experiment: &str, metric: &str, case: &str, ours: &str) -> Option<&Printed> {
        let column = self.column(ours)?;
        self.printed(experiment, metric, &column.case(case), &column.kernel)
    }

    /// The value of a row in a column by its published label.
    pub fn printed(&self, experiment: &str, metric: &str, case: &str, kernel: &str) -> Option<&Printed> {
        let place = self.places.get(&[experiment, metric, case, kernel].map(str::to_owned))?;
        Some(&self.printed[*place])
    }

    /// All values, in the order of the files.
    pub fn all(&self) -> &[Printed] {
        &self.printed
    }

    /// The claims that a model is tested against, in the order of the file.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The reason why a value is no prediction of the model: something was chosen so that it comes out.
    pub fn fitted(&self, experiment: &str, metric: &str, case: &str, ours: &str) -> Option<&str> {
        rows::reason(&self.rows.fitted, [experiment, metric, &self.case(case, ours), self.label(ours)])
    }

    /// The reason why a value is known not to come out.
    pub fn wrong(&self, experiment: &str, metric: &str, case: &str, ours: &str) -> Option<&str> {
        rows::reason(&self.rows.wrong, [experiment, metric, &self.case(case, ours), self.label(ours)])
    }

    /// The reason why a published value is no evidence; `kernel` is its published label.
    pub fn unscored(&self, experiment: &str, metric: &str, case: &str, kernel: &str) -> Option<&str> {
        rows::reason(&self.rows.unscored, [experiment, metric, case, kernel])
    }

    /// Does a published zero say that there was nothing to measure?
    pub fn lacks_samples(&self, printed: &Printed) -> bool {
        printed.number == 0.0 && rows::reason(&self.rows.no_sample, printed.place()).is_some()
    }

    /// Where a reader finds why rows are known to be off: the series' page, or the file that lists them.
    pub fn reasons(&self) -> &str {
        &self.reasons
    }

    /// The published name of our case, for a simulated kernel.
    fn case(&self, case: &str, ours: &str) -> String {
        self.column(ours).map_or_else(|| case.to_owned(), |column| column.case(case))
    }

    /// The published label of a simulated kernel.
    fn label<'a>(&'a self, ours: &'a str) -> &'a str {
        self.column(ours).map_or(ours, |column| &column.kernel)
    }
}
