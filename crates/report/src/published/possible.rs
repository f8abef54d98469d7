//! Checks that claims name things that a result can have, so that a misspelt name is told from one that was not measured.

use std::collections::BTreeSet;

use super::{
    Published, PublishedError,
    claim::{Claim, Part, Selection},
    ours::{Ours, Place, words},
};
use crate::classic;

/// Names that the results of some experiments can have, whether or not the experiments were run.
#[derive(Clone, Debug, Default)]
pub struct Possible {
    /// Sets of tables.
    pub sets: BTreeSet<String>,
    /// Metric and case of rows that are known to be made: the rows of the built-in series.
    pub rows: BTreeSet<(String, String)>,
    /// Metrics that a result only has rows of if they moved.
    pub metrics: BTreeSet<String>,
    /// Words that case names are made of: parameter names and their values.
    pub words: BTreeSet<String>,
}

/// An unknown name, with the names it could have been.
struct Unknown<'a> {
    noun: &'static str,
    name: &'a str,
    known: BTreeSet<&'a str>,
}

/// Words of a statistic, after the point in a metric's name.
const STATISTICS: [&str; 12] = [
    "Min",
    "Amean",
    "Hmean",
    "Stddev",
    "HStddev",
    "CoeffVar",
    "HCoeffVar",
    "Max",
    "BAmean",
    "BHmean",
    "Percentage",
    "Ops",
];
/// The metric of the fixed rows of mmtests in 2015.
const COUNTER: &str = "counter";
/// Words in the names of rows of external fragmentation events.
const EXTFRAG: &str =
    "extfrag_events extfrag_events_in_window order movable unmovable reclaimable highatomic of fragmenting";
/// Metrics of the steps in which a guest's memory fell.
const STEPS: [&str; 2] = ["step_mb", "step_s"];
/// Most bytes of a list of names in a message.
const LIST_MAX: usize = 400;

impl Published {
    /// Rejects claims with a name that no result of the series' experiments can have. A name is accepted if a result could have
    /// it but this result has not.
    ///
    /// # Errors
    /// The first such name, with its claim and the nearest known name.
    pub fn check_claims(&self, ours: &Ours, possible: &Possible) -> Result<(), PublishedError> {
        let names = Names { published: self, ours, possible };
        for (claim, part, selection) in self.selections() {
            if let Some(unknown) = places(selection).into_iter().find_map(|place| names.unknown(place)) {
                return Err(self.wrong_claim(claim, part, &unknown));
            }
        }
        Ok(())
    }

    /// Rejects claims about a column that the series does not have.
    pub(super) fn check_columns(&self) -> Result<(), PublishedError> {
        let labels = || {
            let changes = self.source.changes.iter().map(|change| change.kernel.as_str());
            self.source.columns.iter().map(|column| column.kernel.as_str()).chain(changes)
        };
        for (claim, part, selection) in self.selections() {
            let mut named = selection.kernel.names().iter();
            if let Some(name) = named.find(|name| labels().all(|label| label != name.as_str())) {
                let unknown = Unknown { noun: "column", name, known: labels().collect() };
                return Err(self.wrong_claim(claim, part, &unknown));
            }
        }
        Ok(())
    }

    fn selections(&self) -> impl Iterator<Item = (&Claim, &Part, &Selection)> {
        let parts = self.claims.iter().flat_map(|claim| claim.parts.iter().map(move |part| (claim, part)));
        parts.flat_map(|(claim, part)| part.selections().map(move |selection| (claim, part, selection)))
    }

    fn wrong_claim(&self, claim: &Claim, part: &Part, unknown: &Unknown<'_>) -> PublishedError {
        let message = format!("{}: {}: {}", claim.id, part.what, unknown.message());
        PublishedError { file: self.claims_file.clone(), line: None, message }
    }
}

/// Every place that a selection names.
fn places(selection: &Selection) -> Vec<[&str; 4]> {
    let mut all = Vec::new();
    for set in selection.experiment.names() {
        for metric in selection.metric.names() {
            for case in selection.case.names() {
                all.extend(
                    selection.kernel.names().iter().map(|kernel| [set, metric, case, kernel].map(String::as_str)),
                );
            }
        }
    }
    all
}

impl Unknown<'_> {
    fn message(&self) -> String {
        let Self { noun, name, known } = self;
        let distance = |known: &&&str| strsim::damerau_levenshtein(name, known);
        let nearest = known.iter().min_by_key(distance);
        let is_near = |known: &&&str| distance(known) <= 1 + known.chars().count() / 4;
        if let Some(near) = nearest.filter(is_near) {
            return format!("no result can have {noun} {name:?}; did you mean {near:?}?");
        }
        let nearest = nearest.map_or_else(String::new, |nearest| format!("nearest: {nearest}; "));
        let mut list = String::new();
        for known in known {
            let comma = if list.is_empty() { "" } else { ", " };
            if list.len() + known.len() > LIST_MAX {
                list += ", ...";
                break;
            }
            list += &format!("{comma}{known}");
        }
        format!("no result can have {noun} {name:?} ({nearest}there are {list})")
    }
}

/// The known names that a claim's names are compared with.
struct Names<'a> {
    published: &'a Published,
    ours: &'a Ours,
    possible: &'a Possible,
}

impl<'a> Names<'a> {
    fn unknown(&self, [set, metric, case, kernel]: [&'a str; 4]) -> Option<Unknown<'a>> {
        let place: Place = [set, metric, case, kernel].map(str::to_owned);
        let is_change = |change: &&super::PublishedChange| change.metric == metric && change.experiment == set;
        let change = self.published.source.changes.iter().find(is_change);
        if self.ours.mean(&place).is_some() {
            return None;
        }
        let Some(rows) = self.ours.rows.get(set) else {
            let known: BTreeSet<&str> = self.ours.rows.keys().chain(&self.possible.sets).map(String::as_str).collect();
            return (!known.contains(set)).then_some(Unknown { noun: "set of tables", name: set, known });
        };
        // A published change has the rows of the metric that it is a change of.
        let metric = change.map_or(metric, |change| change.of.as_str());
        let rows: BTreeSet<(&str, &str)> = rows.iter().chain(&self.possible.rows).map(borrowed).collect();
        self.unknown_metric(&rows, metric).or_else(|| self.unknown_case(&rows, metric, case))
    }

    /// A metric is possible if each of its parts between points is known, such as another statistic or another test of the same
    /// quantity.
    fn unknown_metric(&self, rows: &BTreeSet<(&'a str, &'a str)>, metric: &'a str) -> Option<Unknown<'a>> {
        let known: BTreeSet<&str> = rows.iter().map(|(metric, _)| *metric).chain(self.metrics()).collect();
        let pieces: BTreeSet<&str> = known.iter().flat_map(|known| known.split('.')).chain(STATISTICS).collect();
        let all_words: BTreeSet<String> = self.words(rows);
        let is_known = |piece: &str| pieces.contains(piece) || has_words(&all_words, piece);
        let is_possible = known.contains(metric) || metric.split('.').all(is_known);
        (!is_possible).then_some(Unknown { noun: "metric", name: metric, known })
    }

    /// A case is possible if it is a number, if it differs from a known case only by numbers, or if all its words are in known
    /// cases.
    fn unknown_case(&self, rows: &BTreeSet<(&'a str, &'a str)>, metric: &'a str, case: &'a str) -> Option<Unknown<'a>> {
        let stem = |metric: &'a str| metric.split('.').next().unwrap_or(metric);
        let of_metric: BTreeSet<&str> =
            rows.iter().filter(|(of, _)| stem(of) == stem(metric)).map(|(_, case)| *case).collect();
        let lines = || classic::counter_rows().collect::<BTreeSet<&str>>();
        if metric == COUNTER && of_metric.iter().any(|case| lines().contains(case)) {
            return (!lines().contains(case)).then(|| Unknown { noun: "case", name: case, known: lines() });
        }
        let is_alike = |known: &&str| shape(known) == shape(case);
        let is_number = words(case).next().is_none();
        let is_possible = is_number || of_metric.iter().any(is_alike) || has_words(&self.words(rows), case);
        let known = if of_metric.is_empty() { rows.iter().map(|(_, case)| *case).collect() } else { of_metric };
        (!is_possible).then_some(Unknown { noun: "case", name: case, known })
    }

    fn metrics(&self) -> impl Iterator<Item = &'a str> {
        self.possible.metrics.iter().map(String::as_str).chain(STEPS)
    }

    fn words(&self, rows: &BTreeSet<(&str, &str)>) -> BTreeSet<String> {
        let names = rows.iter().flat_map(|(metric, case)| [*metric, *case]).chain([EXTFRAG]);
        let conditions = self.published.source.columns.iter().filter_map(|column| column.condition.as_deref());
        let all = names.chain(conditions).flat_map(words);
        all.chain(self.ours.words.iter().chain(&self.possible.words).cloned()).collect()
    }
}

fn borrowed((metric, case): &(String, String)) -> (&str, &str) {
    (metric, case)
}

/// Does the name have words, and only known words?
fn has_words(known: &BTreeSet<String>, name: &str) -> bool {
    words(name).next().is_some() && words(name).all(|word| known.contains(&word))
}

/// The name with its numbers left out, such as `fault-huge-#`.
fn shape(name: &str) -> String {
    let mut shape = String::new();
    for c in name.chars() {
        match c {
            digit if digit.is_ascii_digit() => {
                if !shape.ends_with('#') {
                    shape.push('#');
                }
            }
            other => shape.push(other),
        }
    }
    shape
}
