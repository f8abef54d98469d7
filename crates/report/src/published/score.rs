//! Scores that say how near a result's changes are to a published table. They are for information: claims judge a model, scores
//! do not.
//!
//! A table is scored row by row. The row's baseline is its first column with a value, and each later column is a change from it.
//! Rows that the series calls no evidence (`unscored`), and counts below [`SMALL_COUNT`] in both the table and the result, are
//! left out. A change is *material* if it is a factor of [`MATERIAL`] or more in either direction, or begins or ends at zero.
//!
//! - *direction*: which part of the material changes goes the same way in ours by [`SAME_WAY`] or more, what rises and what
//!   falls weighed alike. What ours lacks goes the wrong way.
//! - *skill*: how near the sizes of material changes are, from the median factor between our change and theirs. 1 is equal; 0 is
//!   as far as saying that nothing changes.
//! - *level*: the median factor between our baselines and theirs, either way; 1 is equal.
//! - *inside*: which part of the published values lies in the range of our single runs.
//!
//! One run cannot be predicted better than the model's own single runs can: the *ceiling* takes each of them for the published
//! table, and scores the mean of the others by it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Published,
    ours::{Ours, Place},
};
use crate::{group::distinct, stats};

/// A change by at least this factor is material.
const MATERIAL: f64 = 1.10;
/// A simulated value goes the same way if it changes by at least this factor.
const SAME_WAY: f64 = 1.03;
/// Counts below this in the table and the result are luck.
const SMALL_COUNT: f64 = 30.0;
/// The factor that the model "everything falls" predicts for every change.
const ALL_DOWN: f64 = 0.85;

/// The scores of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// The series.
    pub series: String,
    /// The seeds of the result.
    pub seeds: Vec<u64>,
    /// One score for each set of tables. With several sets follow all sets together, and, if no two sets have a column of the
    /// same name, all sets as one table.
    pub sets: Vec<ScoredSet>,
}

/// The score of one set of tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoredSet {
    /// The name of the set.
    pub name: String,
    /// The score of the result against the published table.
    pub score: Score,
    /// The score of a model that says that everything falls by 15 %.
    pub all_down: Score,
    /// The scores of single simulated runs, each against the mean of the other runs; none with fewer than two seeds.
    pub ceiling: Option<Ceiling>,
}

/// How near a result is to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Number of changes that are scored.
    pub rows: usize,
    /// Number of these changes that the result has.
    pub covered: usize,
    /// Number of these changes that are material.
    pub material: usize,
    /// Share of the material changes that go the same way in the result, from 0 to 1.
    pub direction: Option<f64>,
    /// How near the sizes of the material changes are: 1 is equal, 0 is like saying that nothing changes.
    pub skill: Option<f64>,
    /// The factor between the baselines of the result and the table: 1 is equal.
    pub level: Option<f64>,
    /// Share of the published values inside the range of the simulated runs, from 0 to 1.
    pub inside: Option<f64>,
}

/// The scores of single runs of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// Number of runs.
    pub runs: usize,
    /// Direction of the runs' scores.
    pub direction: Option<Runs>,
    /// Skill of the runs' scores.
    pub skill: Option<Runs>,
    /// Level of the runs' scores.
    pub level: Option<Runs>,
}

/// Mean and range of a score over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Runs {
    /// The mean.
    pub mean: f64,
    /// The 2.5 % point.
    pub low: f64,
    /// The 97.5 % point.
    pub high: f64,
}

/// Looks up the value of a place in a table or a result.
type Value<'a> = &'a dyn Fn(&Place) -> Option<f64>;

/// Scores a result by a series.
pub fn scores(published: &Published, ours: &Ours) -> Scores {
    let experiments = distinct(published.all().iter().map(|printed| printed.experiment.as_str()));
    let mut sets = Vec::new();
    let mut all = Vec::new();
    for experiment in &experiments {
        let rows = rows(published, &|printed| printed == *experiment);
        sets.push(scored(published, ours, experiment, &rows));
        all.extend(rows);
    }
    if experiments.len() > 1 {
        sets.push(scored(published, ours, "all", &all));
        if no_column_twice(published) {
            sets.push(scored(published, ours, "merged", &rows(published, &|_| true)));
        }
    }
    Scores { series: published.name.clone(), seeds: ours.seeds().to_vec(), sets }
}

fn no_column_twice(published: &Published) -> bool {
    let columns = distinct(published.all().iter().map(|printed| (&printed.kernel, &printed.experiment)));
    distinct(columns.iter().map(|(kernel, _)| *kernel)).len() == columns.len()
}

/// A row of the tables: the place of its value in each column.
type Row = Vec<Place>;

/// The scored rows of the experiments for which `of` holds. Rows of one metric and case are one row even across experiments.
fn rows(published: &Published, of: &dyn Fn(&str) -> bool) -> Vec<Row> {
    let mut rows: BTreeMap<(&str, &str), Row> = BTreeMap::new();
    for printed in published.all().iter().filter(|printed| of(&printed.experiment)) {
        let [experiment, metric, case, kernel] = printed.place();
        if published.unscored(experiment, metric, case, kernel).is_none() {
            rows.entry((metric, case)).or_default().push(printed.place().map(str::to_owned));
        }
    }
    rows.into_values().collect()
}

fn scored(published: &Published, ours: &Ours, name: &str, rows: &[Row]) -> ScoredSet {
    let printed = |[experiment, metric, case, kernel]: &Place| {
        published.printed(experiment, metric, case, kernel).map(|printed| printed.number)
    };
    let mean = |place: &Place| ours.mean(place);
    let mut score = score(&changes(rows, &printed, &mean));
    score.inside = inside(rows, &printed, ours);
    let unchanged = changes(rows, &printed, &printed).into_iter();
    let falls = unchanged.map(|change| Change { ours: change.ours.map(|(base, _)| (base, ALL_DOWN * base)), ..change });
    let all_down = self::score(&falls.collect::<Vec<_>>());
    ScoredSet { name: name.to_owned(), score, all_down, ceiling: ceiling(rows, ours) }
}

fn ceiling(rows: &[Row], ours: &Ours) -> Option<Ceiling> {
    let runs = ours.seeds().len();
    let of_run = |run: usize| {
        let table = |place: &Place| ours.of_run(run, place);
        let others = |place: &Place| ours.mean_without(run, place);
        score(&changes(rows, &table, &others))
    };
    let scores: Vec<Score> = (0..runs).filter(|_| runs > 1).map(of_run).collect();
    let of = |number: fn(&Score) -> Option<f64>| {
        let numbers: Vec<f64> = scores.iter().filter_map(number).collect();
        let (low, high) = (stats::percentile(&numbers, 2.5)?, stats::percentile(&numbers, 97.5)?);
        Some(Runs { mean: stats::amean(&numbers)?, low, high })
    };
    (runs > 1).then(|| Ceiling {
        runs,
        direction: of(|score| score.direction),
        skill: of(|score| score.skill),
        level: of(|score| score.level),
    })
}

/// A change from the baseline of a row to a later column.
#[derive(Clone, Copy, Debug)]
struct Change {
    table: (f64, f64),
    ours: Option<(f64, f64)>,
}

/// The scored changes of a table, with the same changes in the result.
fn changes(rows: &[Row], table: Value<'_>, ours: Value<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    for row in rows {
        let columns: Vec<(&Place, f64)> = row.iter().filter_map(|place| Some((place, table(place)?))).collect();
        let Some(((first, base), later)) = columns.split_first() else { continue };
        for (place, new) in later {
            if is_count(&place[1]) && base.max(*new) < SMALL_COUNT {
                continue;
            }
            changes.push(Change { table: (*base, *new), ours: ours(first).zip(ours(place)) });
        }
    }
    changes
}

fn is_count(metric: &str) -> bool {
    metric == "counter" || metric.ends_with("_events")
}

fn score(changes: &[Change]) -> Score {
    let (mut risen, mut fallen) = ((0_usize, 0_usize), (0_usize, 0_usize));
    let (mut sizes, mut nulls, mut levels) = (Vec::new(), Vec::new(), Vec::new());
    for Change { table, ours } in changes {
        let way = way(*table, MATERIAL);
        let hits = if way > 0 { &mut risen } else { &mut fallen };
        if way != 0 {
            hits.1 += 1;
            hits.0 += usize::from(ours.is_some_and(|ours| self::way(ours, SAME_WAY) == way));
            if let Some((theirs, ours)) = effect(*table).zip(ours.and_then(effect)) {
                sizes.push((theirs - ours).abs());
                nulls.push(theirs.abs());
            }
        }
        levels.extend(ours.and_then(|(base, _)| effect((table.0, base))).map(f64::abs));
    }
    let parts = [risen, fallen].into_iter().filter(|(_, all)| *all > 0);
    let parts: Vec<f64> = parts.map(|(hits, all)| hits as f64 / all as f64).collect();
    let median = |logs: &[f64]| stats::percentile(logs, 50.0);
    Score {
        rows: changes.len(),
        covered: changes.iter().filter(|change| change.ours.is_some()).count(),
        material: risen.1 + fallen.1,
        direction: stats::amean(&parts),
        skill: median(&sizes).zip(median(&nulls).filter(|null| *null > 0.0)).map(|(size, null)| 1.0 - size / null),
        level: median(&levels).map(libm::exp),
        inside: None,
    }
}

/// The share of published values inside the range of the simulated runs; each value counts once.
fn inside(rows: &[Row], table: Value<'_>, ours: &Ours) -> Option<f64> {
    let mut places = BTreeMap::new();
    for row in rows {
        let columns: Vec<(&Place, f64)> = row.iter().filter_map(|place| Some((place, table(place)?))).collect();
        let Some(((_, base), later)) = columns.split_first() else { continue };
        let small = |new: &f64| is_count(&row[0][1]) && base.max(*new) < SMALL_COUNT;
        let shown: Vec<_> = later.iter().filter(|(_, new)| !small(new)).collect();
        if !shown.is_empty() {
            for (place, value) in columns.iter().take(1).chain(shown) {
                if let Some((low, high)) = ours.range(place) {
                    places.insert(*place, (low..=high).contains(value));
                }
            }
        }
    }
    let inside = places.values().filter(|inside| **inside).count();
    (!places.is_empty()).then(|| inside as f64 / places.len() as f64)
}

/// The logarithm of a change.
fn effect((base, new): (f64, f64)) -> Option<f64> {
    (base > 0.0 && new > 0.0).then(|| libm::log(new / base))
}

/// The direction of a change: 1 up, -1 down, 0 by less than the factor `by`.
fn way((base, new): (f64, f64), by: f64) -> i32 {
    match effect((base, new)) {
        Some(effect) if effect.abs() < libm::log(by) => 0,
        _ => i32::from(new > base) - i32::from(new < base),
    }
}
