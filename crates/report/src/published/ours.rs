//! The simulated values for a published table: for each published value, one number per seed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Published, PublishedChange};
use crate::{
    better::Better,
    group::distinct,
    record::Cell,
    stats,
    table::{Kind, Layout, Report},
};

/// The place of a value: experiment, metric, case and the column's published label.
pub(super) type Place = [String; 4];

/// Values of a result, for the columns of a published table.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    seeds: Vec<u64>,
    /// Values by seed, in the order of `seeds`; none where the seed's run had nothing to measure.
    values: BTreeMap<Place, Vec<Option<f64>>>,
    /// Metric and case of each row in a set of tables, also of rows without a published value.
    pub(super) rows: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Each column of the published tables: set of tables, and label.
    columns: BTreeSet<(String, String)>,
    /// Words in the names of what the cells measured, also of metrics without samples.
    pub(super) words: BTreeSet<String>,
}

/// Values of rows that say their case only because columns of other cases stand beside them: where a column has one case alone, a
/// published row without a case is that one's.
fn alone(values: &[(Place, f64)], cases: &[String]) -> Vec<(Place, f64)> {
    let mut found: BTreeMap<Place, Vec<f64>> = BTreeMap::new();
    for ([experiment, metric, row, kernel], value) in values {
        let of_case = |case: &String| row.strip_suffix(case.as_str())?.strip_suffix(" of ");
        if let Some(row) = cases.iter().find_map(of_case) {
            let place = [experiment.as_str(), metric, row, kernel].map(str::to_owned);
            found.entry(place).or_default().push(*value);
        }
    }
    let is_new = |place: &Place| values.iter().all(|(known, _)| known != place);
    let one =
        found.into_iter().filter_map(|(place, values)| Some((place, *values.first().filter(|_| values.len() == 1)?)));
    one.filter(|(place, _)| is_new(place)).collect()
}

impl Ours {
    /// Reads the tables of each seed. Columns that were not published are left out.
    pub fn new(cells: &[Cell], layout: Layout, published: &Published) -> Self {
        let mut ours = Self::of_tables(cells, layout, published);
        ours.add_steps(cells, published);
        ours
    }

    /// Adds the values of another experiment with the same seeds.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.values.extend(other.values);
        self.rows.extend(other.rows);
        self.columns.extend(other.columns);
        self.words.extend(other.words);
        self
    }

    /// Adds the steps in which a guest's memory on its host fell: the size `step_mb`, and the time `step_s` since the
    /// step before.
    fn add_steps(&mut self, cells: &[Cell], published: &Published) {
        for cell in cells {
            let (Some(footprint), Some(column)) = (&cell.footprint, published.column(&cell.key.kernel)) else {
                continue;
            };
            let experiment = cell.key.group.as_ref().unwrap_or(&cell.key.experiment);
            let Some(at) = self.seeds.iter().position(|seed| *seed == cell.key.seed) else { continue };
            let mut before = None;
            for (n, step) in (1..).zip(footprint.steps()) {
                let since = before.replace(step.at_us).map(|before| (step.at_us - before) as f64 / 1e6);
                let values = [("step_mb", Some(step.mib())), ("step_s", since)];
                for (metric, value) in values.into_iter().filter_map(|(metric, value)| Some((metric, value?))) {
                    let rows = self.rows.entry(experiment.clone()).or_default();
                    rows.insert((metric.to_owned(), format!("{n}")));
                    let place = [experiment.clone(), metric.to_owned(), format!("{n}"), column.kernel.clone()];
                    let of_seeds = self.values.entry(place).or_insert_with(|| vec![None; self.seeds.len()]);
                    of_seeds[at].get_or_insert(value);
                }
            }
        }
    }

    fn of_tables(cells: &[Cell], layout: Layout, published: &Published) -> Self {
        let mut seeds = distinct(cells.iter().map(|cell| cell.key.seed));
        seeds.sort_unstable();
        let mut ours = Self { seeds: seeds.clone(), words: words_of(cells), ..Self::default() };
        for (at, seed) in seeds.iter().enumerate() {
            let values_of_seed = ours.of_one_seed(cells, *seed, layout, published);
            let changes = changes(&values_of_seed, published);
            for (place, value) in values_of_seed.into_iter().chain(changes) {
                let of_seeds = ours.values.entry(place).or_insert_with(|| vec![None; seeds.len()]);
                of_seeds[at].get_or_insert(value);
            }
        }
        ours
    }

    fn of_one_seed(&mut self, cells: &[Cell], seed: u64, layout: Layout, published: &Published) -> Vec<(Place, f64)> {
        let cells: Vec<Cell> = cells.iter().filter(|cell| cell.key.seed == seed).cloned().collect();
        let report = Report::of_layout(layout, &cells, 0);
        let mut values = Vec::new();
        for table in &report.tables {
            let rows = self.rows.entry(table.experiment.clone()).or_default();
            for row in &table.rows {
                rows.insert((row.metric.clone(), row.case.clone()));
                for (head, value) in table.columns.iter().zip(&row.cells) {
                    let Some(column) = published.column(&head.column.kernel) else { continue };
                    let case = column.case(&row.case);
                    rows.insert((row.metric.clone(), case.clone()));
                    self.columns.insert((table.experiment.clone(), column.kernel.clone()));
                    let Some(value) = value else { continue };
                    // A latency of zero in a table means that the run had no such operation.
                    if value.value == 0.0 && table.kind == Kind::Metric && row.better == Better::Lower {
                        continue;
                    }
                    let place = [&table.experiment, &row.metric, &case, &column.kernel].map(String::clone);
                    values.push((place, value.value));
                }
            }
        }
        let alone = alone(&values, &distinct(cells.iter().map(|cell| cell.key.case.clone())));
        for ([experiment, metric, case, _], _) in &alone {
            self.rows.entry(experiment.clone()).or_default().insert((metric.clone(), case.clone()));
        }
        values.extend(alone);
        values
    }

    /// Why a value is missing, behind a colon; empty if that cannot be said.
    pub(super) fn why_not(&self, [set, metric, case, label]: &Place) -> String {
        let Some(rows) = self.rows.get(set) else {
            let why = format!(": {set} was not run");
            return if self.rows.is_empty() { String::new() } else { why };
        };
        if !self.columns.contains(&(set.clone(), label.clone())) {
            return ": this column was not run".to_owned();
        }
        if rows.contains(&(metric.clone(), case.clone())) {
            return ": it had nothing of the kind".to_owned();
        }
        ": this case was not run".to_owned()
    }

    /// The seeds, in order.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// The mean over the seeds that have the value.
    pub(super) fn mean(&self, place: &Place) -> Option<f64> {
        stats::amean(&self.of_seeds(place))
    }

    /// The 2.5 % and 97.5 % points of the value over single runs.
    pub(super) fn range(&self, place: &Place) -> Option<(f64, f64)> {
        let (low, high) = stats::middle_95(&self.of_seeds(place));
        low.zip(high)
    }

    /// The value in the run at index `run` of [`seeds`](Self::seeds).
    pub(super) fn of_run(&self, run: usize, place: &Place) -> Option<f64> {
        self.values.get(place)?[run]
    }

    /// The mean over all runs except the run at index `run`.
    pub(super) fn mean_without(&self, run: usize, place: &Place) -> Option<f64> {
        let others = self.values.get(place)?.iter().enumerate().filter(|(other, _)| *other != run);
        stats::amean(&others.filter_map(|(_, value)| *value).collect::<Vec<f64>>())
    }

    fn of_seeds(&self, place: &Place) -> Vec<f64> {
        self.values.get(place).map(|values| values.iter().flatten().copied().collect()).unwrap_or_default()
    }

    /// The published table as if it were the result of one run.
    pub(super) fn of_table(published: &Published) -> Self {
        let value = |printed: &super::Printed| (printed.place().map(str::to_owned), vec![Some(printed.number)]);
        Self { seeds: vec![0], values: published.all().iter().map(value).collect(), ..Self::default() }
    }

    /// Values made by hand, for tests: the values by seed of each place.
    #[cfg(test)]
    pub(super) fn of_values(seeds: &[u64], values: &[(Place, Vec<f64>)]) -> Self {
        let some = |(place, values): &(Place, Vec<f64>)| (place.clone(), values.iter().copied().map(Some).collect());
        Self { seeds: seeds.to_vec(), values: values.iter().map(some).collect(), ..Self::default() }
    }
}

/// The words of a name in lower case: runs of at least two letters. Numbers in a name are parameters and say nothing of
/// its kind.
pub fn words(name: &str) -> impl Iterator<Item = String> {
    let words = name.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    words.map(str::to_ascii_lowercase)
}

fn words_of(cells: &[Cell]) -> BTreeSet<String> {
    let metrics = cells.iter().flat_map(|cell| &cell.measured.metrics);
    let names = metrics.flat_map(|metric| [Some(&metric.name), metric.class.as_ref(), metric.part.as_ref()]);
    names.flatten().flat_map(|name| words(name)).collect()
}

/// The values that were published as changes from one column to another, computed from the simulated values of both
/// columns.
fn changes(values: &[(Place, f64)], published: &Published) -> Vec<(Place, f64)> {
    let of = |change: &PublishedChange| {
        let at = |place: &Place, column: &str| {
            let [experiment, metric, _, kernel] = place;
            [experiment, metric, kernel].into_iter().eq([&change.experiment, &change.of, column])
        };
        let changed = values.iter().filter(|(place, _)| at(place, &change.to));
        let change_of = |(place, to): &(Place, f64)| {
            let is_same = |(other, _): &&(Place, f64)| at(other, &change.from) && other[2] == place[2];
            let (_, from) = values.iter().find(is_same)?;
            let [experiment, metric, kernel] = [&change.experiment, &change.metric, &change.kernel].map(String::clone);
            Some(([experiment, metric, place[2].clone(), kernel], 100.0 * (to / from - 1.0)))
        };
        changed.filter_map(change_of).collect::<Vec<_>>()
    };
    published.source.changes.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_whose_column_has_one_case_is_found_without_it() {
        let value = |row: &str, kernel: &str, value| (["e", "counter", row, kernel].map(str::to_owned), value);
        let values = [
            value("pgfault of all", "old", 7.0),
            value("pgfault of all-hard", "hand", 8.0),
            value("pgscan of all", "old", 1.0),
            value("pgscan of all-hard", "old", 2.0),
            value("pgfree of all", "old", 3.0),
            value("pgfree", "old", 4.0),
        ];
        let cases = ["all", "all-hard"].map(str::to_owned);
        assert_eq!(alone(&values, &cases), [value("pgfault", "hand", 8.0), value("pgfault", "old", 7.0)]);
    }
}
