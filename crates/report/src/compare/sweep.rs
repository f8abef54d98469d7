//! A grid of settings: a map of each row, how much each setting moves it, and where it is flat.
//!
//! All tests are those of comparisons ([`super::test`]), in three families, each taken together (Holm): neighbours in the grid,
//! values of a setting over all others, and the two ends of what is called flat. With one setting neighbours are values of it
//! too, and judged as such: a map and what is said of the setting have the same stars.

mod csv;
mod regions;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::{csv::sweep_csv, regions::Region, text::sweep_text};
use super::{
    Compared, Comparison, Family, Gates, RowOf, Side, Tested, Unmatched, Verdict, test::Bounds, test::Geometric,
};
use crate::{
    better::Better,
    record::Column,
    stats::{self, Pair},
    table::{Report, Value},
};

/// A setting or a parameter, and its values in a grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The name after `--set`.
    pub name: String,
    /// The values, in the order given. There are at least two.
    pub values: Vec<String>,
    /// The value where nobody sets it, where that is known: it need not be among the values.
    pub default: Option<String>,
}

impl Axis {
    /// The last word of its name.
    pub fn short(&self) -> &str {
        self.name.rsplit(['.', '/']).next().unwrap_or_default()
    }
}

/// A place in a grid: of each axis the index of a value.
pub type Place = Vec<usize>;

/// The place of a report's columns in a grid. A column may stand at several places, if one of its settings means nothing with
/// some values of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// The settings and parameters that vary.
    pub axes: Vec<Axis>,
    /// The kernel that columns are called by, at each place that has one.
    pub columns: BTreeMap<Place, String>,
}

impl Grid {
    /// All places, the last axis changing fastest.
    fn places(&self) -> Vec<Place> {
        let mut places = vec![Vec::new()];
        for axis in &self.axes {
            let with = |place: &Place, value| [place.as_slice(), &[value]].concat();
            places =
                places.iter().flat_map(|place| (0..axis.values.len()).map(move |value| with(place, value))).collect();
        }
        places
    }

    /// The place of the defaults, if every default is in the grid.
    fn default(&self) -> Option<Place> {
        let of = |axis: &Axis| axis.values.iter().position(|value| Some(value) == axis.default.as_ref());
        self.axes.iter().map(of).collect()
    }
}

/// Everything that is said of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// How large a change has to be.
    pub gates: Gates,
    /// The settings and parameters that vary.
    pub axes: Vec<Axis>,
    /// The place of the defaults, if every default is in the grid.
    pub default: Option<Place>,
    /// The rows.
    pub rows: Vec<Mapped>,
    /// The families whose rows have maps in texts; all where there are none.
    #[serde(skip)]
    pub maps: Vec<Family>,
    /// Pairs of neighbours that were tested together.
    pub neighbours: usize,
    /// Pairs of a setting's values that were tested together.
    pub pairs: usize,
}

/// A row over the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mapped {
    /// The experiment.
    pub experiment: String,
    /// The title of its table.
    pub title: String,
    /// The unit of its values.
    pub unit: String,
    /// The metric and the case, for programs.
    pub metric: String,
    /// See `metric`.
    pub case: String,
    /// The name of the row in texts.
    pub name: String,
    /// Which direction is better.
    pub better: Better,
    /// Which rows it is judged with.
    pub family: Family,
    /// Each place with its value, the last axis changing fastest.
    pub points: Vec<Point>,
    /// How much each axis moves it, in their order; none where no two of its values can be compared.
    pub effects: Vec<Option<Effect>>,
    /// Where it is flat, the largest first.
    pub regions: Vec<Region>,
    /// Is it the same everywhere, in every run?
    pub is_same: bool,
}

/// A row at a place of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The place.
    pub place: Place,
    /// The value over all runs; none where no cell has one.
    pub value: Option<f64>,
    /// How many runs there are.
    pub runs: usize,
    /// 2.5 and 97.5 % points of single runs; of more than one.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// From the place before it on the first axis, where there is one: the change as comparisons have it.
    #[serde(skip)]
    pub(super) step: Option<Compared>,
}

/// How much one setting moves a row: the means over its values, all other settings taken together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The name of the axis.
    pub axis: String,
    /// The means, value by value; none where the others' values lack cells.
    pub means: Vec<Option<f64>>,
    /// The two values whose means are furthest apart; of those that are separated, where some are.
    pub from: String,
    /// See `from`.
    pub to: String,
    /// The mean at `to` less that at `from`.
    pub difference: f64,
    /// The 95 % interval of `difference`.
    pub interval: Option<Bounds>,
    /// `difference` in per cent of the mean at `from`; none from nought.
    pub percent: Option<f64>,
    /// The change of geometric means, where all numbers are positive: p is of these.
    pub geometric: Option<Geometric>,
    /// The difference's p, corrected for all pairs of values, settings and rows (Holm).
    pub p_holm: Option<f64>,
    /// The words.
    pub reaction: Reaction,
}

/// The words about a setting and a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reaction {
    /// Some two values are separated, by enough to matter.
    Moves,
    /// All differences of values are within what does not matter.
    Flat,
    /// Runs spread too much to tell.
    CannotTell,
    /// Numbers are constant and differ, of too few runs for more.
    DiffersInAll,
    /// There is one run.
    OneRun,
}

impl Reaction {
    /// The word in a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Moves => "moves",
            Self::Flat => "flat",
            Self::CannotTell => "cannot tell",
            Self::DiffersInAll => "differs, few",
            Self::OneRun => "one run",
        }
    }
}

/// A row with its values at each place, before it is judged.
struct OverGrid<'a> {
    of: RowOf<'a>,
    values: BTreeMap<Place, Side<'a>>,
}

impl<'a> OverGrid<'a> {
    fn of(of: RowOf<'a>, grid: &Grid) -> Self {
        let value = |kernel: &String| {
            let at = of.table.columns.iter().position(|head| head.column.kernel == *kernel)?;
            Some(Side { column: &of.table.columns[at].column, value: of.row.cells[at].as_ref()? })
        };
        let values = grid.columns.iter().filter_map(|(place, kernel)| Some((place.clone(), value(kernel)?)));
        Self { of, values: values.collect() }
    }

    /// The values at two places; none where one is not there, or both are of one column.
    fn pair(&self, old: &Place, new: &Place) -> Option<Pair<Side<'a>>> {
        let (baseline, new) = (*self.values.get(old)?, *self.values.get(new)?);
        (baseline.column != new.column).then_some(Pair { baseline, new })
    }
}

/// Pairs of neighbours: a place, and the place after it along an axis.
fn neighbours(places: &[Place], axes: &[Axis]) -> Vec<(Place, Place)> {
    let next = |place: &Place, axis: usize| {
        let mut next = place.clone();
        next[axis] += 1;
        (next[axis] < axes[axis].values.len()).then(|| (place.clone(), next))
    };
    places.iter().flat_map(|place| (0..axes.len()).filter_map(move |axis| next(place, axis))).collect()
}

/// Rows judged together, each with what it is of.
struct Judged<K> {
    rows: BTreeMap<K, Compared>,
}

impl<K: Ord> Judged<K> {
    fn of(rows: Vec<(K, Compared)>, gates: Gates) -> Self {
        let (keys, rows): (Vec<K>, Vec<Compared>) = rows.into_iter().unzip();
        let mut comparison = Comparison { gates, rows, unmatched: Unmatched::default() };
        comparison.judge(0);
        Self { rows: keys.into_iter().zip(comparison.rows).collect() }
    }
}

impl Sweep {
    /// Judges the rows of a report over a grid.
    pub fn of(report: &Report, grid: &Grid, gates: Gates) -> Self {
        let (places, axes) = (grid.places(), &grid.axes);
        let rows = report.tables.iter().flat_map(|table| {
            let of = |row| Some(RowOf { table, row, family: Family::of(table, row)? });
            table.rows.iter().filter_map(of)
        });
        let rows: Vec<OverGrid<'_>> = rows.map(|row| OverGrid::of(row, grid)).collect();
        let edges = neighbours(&places, axes);
        let compared = |(at, row): (usize, &OverGrid<'_>)| {
            let pairs = edges.iter().filter_map(|(old, new)| Some((old, new, row.pair(old, new)?)));
            let tested = pairs.map(|(old, new, pair)| ((at, old.clone(), new.clone()), row.of.compared(pair)));
            tested.collect::<Vec<_>>()
        };
        let edges = Judged::of(rows.iter().enumerate().flat_map(|(at, row)| compared((at, row))).collect(), gates);
        let levels: Vec<Vec<Levels>> = rows
            .iter()
            .map(|row| (0..axes.len()).map(|axis| Levels::of(row, axis, axes[axis].values.len())).collect())
            .collect();
        let pairs = levels.iter().enumerate().flat_map(|(at, levels)| {
            levels.iter().enumerate().flat_map(move |(axis, levels)| levels.pairs((at, axis)))
        });
        let pairs = pairs.map(|(key, pair)| (key, rows[key.0].of.compared(pair.sides())));
        let pairs = Judged::of(pairs.collect(), gates);
        let mapped = rows.iter().zip(&levels).enumerate().map(|(at, (row, levels))| {
            let edge = |old: &Place, new: &Place| match (old.as_slice(), new.as_slice()) {
                ([old], [new]) => pairs.rows.get(&(at, 0, *old, *new)),
                _ => edges.rows.get(&(at, old.clone(), new.clone())),
            };
            let effects = levels.iter().zip(axes).enumerate().map(|(axis, (levels, described))| {
                let own = pairs.rows.range((at, axis, 0, 0)..(at, axis + 1, 0, 0));
                effect(described, levels, own.map(|((.., old, new), row)| (*old, *new, row)))
            });
            let of = row.of;
            Mapped {
                experiment: of.table.experiment.clone(),
                title: super::title(of.table),
                unit: of.table.unit.clone(),
                metric: of.row.metric.clone(),
                case: of.row.case.clone(),
                name: super::words::name_of(&of.row.stat, &of.row.operation),
                better: of.row.better,
                family: of.family,
                points: places.iter().map(|place| point(place, row, edge)).collect(),
                effects: effects.collect(),
                regions: regions::of(row, axes, edge, gates),
                is_same: is_same(row),
            }
        });
        Self {
            gates,
            axes: axes.clone(),
            default: grid.default(),
            rows: mapped.collect(),
            maps: Vec::new(),
            neighbours: edges.rows.len(),
            pairs: pairs.rows.len(),
        }
    }
}

/// Does every run at every place show one number?
fn is_same(row: &OverGrid<'_>) -> bool {
    let mut runs = row.values.values().flat_map(|side| side.value.of_seeds.values());
    let Some(first) = runs.next() else { return false };
    runs.all(|run| run.total_cmp(first).is_eq())
}

fn point<'e>(place: &Place, row: &OverGrid<'_>, edge: impl Fn(&Place, &Place) -> Option<&'e Compared>) -> Point {
    let value = row.values.get(place).map(|side| side.value);
    let before = place.first().and_then(|first| first.checked_sub(1));
    let before = before.map(|first| [&[first], &place[1..]].concat());
    Point {
        place: place.clone(),
        value: value.map(|value| value.value),
        runs: value.map_or(0, |value| value.of_seeds.len()),
        low: value.and_then(|value| value.low),
        high: value.and_then(|value| value.high),
        step: before.and_then(|before| edge(&before, place)).cloned(),
    }
}

/// The means of a row over each value of an axis, run by run: over the values of all others with which each value of this one has
/// a cell of its own.
struct Levels {
    columns: Vec<Column>,
    values: Vec<Option<Value>>,
}

/// Two of them.
struct PairOf<'a> {
    old: (&'a Column, &'a Value),
    new: (&'a Column, &'a Value),
}

impl PairOf<'_> {
    fn sides(&self) -> Pair<Side<'_>> {
        let side = |(column, value)| Side { column, value };
        Pair { baseline: side(self.old), new: side(self.new) }
    }
}

impl Levels {
    fn of(row: &OverGrid<'_>, axis: usize, count: usize) -> Self {
        if row.values.keys().all(|place| place.len() == 1) {
            return Self::of_only(row, count);
        }
        let mut lines: BTreeMap<Place, Vec<Side<'_>>> = BTreeMap::new();
        for (place, side) in &row.values {
            let mut others = place.clone();
            others.remove(axis);
            lines.entry(others).or_default().push(*side);
        }
        let is_whole = |line: &Vec<Side<'_>>| {
            let columns: BTreeSet<&Column> = line.iter().map(|side| side.column).collect();
            columns.len() == count
        };
        let lines: Vec<Vec<Side<'_>>> = lines.into_values().filter(is_whole).collect();
        let Some(first) = lines.first() else { return Self { columns: Vec::new(), values: Vec::new() } };
        let level = |at: usize| {
            let all: Vec<&Value> = lines.iter().map(|line| line[at].value).collect();
            let seeds = all[0].of_seeds.keys().filter(|seed| all.iter().all(|value| value.of_seeds.contains_key(seed)));
            let of_seed = |seed: &u64| {
                let runs: Vec<f64> = all.iter().map(|value| value.of_seeds[seed]).collect();
                Some((*seed, stats::amean(&runs)?))
            };
            let of_seeds: BTreeMap<u64, f64> = seeds.filter_map(of_seed).collect();
            let value = stats::amean(&all.iter().map(|value| value.value).collect::<Vec<f64>>())?;
            Some(Value::over_seeds(value, of_seeds))
        };
        let column = |at: usize| Column { kernel: at.to_string(), ..first[at].column.clone() };
        Self { columns: (0..count).map(column).collect(), values: (0..count).map(level).collect() }
    }

    /// The values of the only axis that have a cell.
    fn of_only(row: &OverGrid<'_>, count: usize) -> Self {
        let columns: BTreeSet<&Column> = row.values.values().map(|side| side.column).collect();
        let Some(first) = columns.first().filter(|_| columns.len() == row.values.len()) else {
            return Self { columns: Vec::new(), values: Vec::new() };
        };
        let column = |at: usize| Column { kernel: at.to_string(), ..Column::clone(first) };
        let value = |at: usize| row.values.get(&vec![at]).map(|side| side.value.clone());
        Self { columns: (0..count).map(column).collect(), values: (0..count).map(value).collect() }
    }

    /// All pairs of values, with the row and axis before them.
    fn pairs(&self, (row, axis): (usize, usize)) -> Vec<((usize, usize, usize, usize), PairOf<'_>)> {
        let side = |at: usize| Some((&self.columns[at], self.values[at].as_ref()?));
        let count = self.values.len();
        let pairs = (0..count).flat_map(|old| (old + 1..count).map(move |new| (old, new)));
        let pairs =
            pairs.filter_map(|(old, new)| Some(((row, axis, old, new), PairOf { old: side(old)?, new: side(new)? })));
        pairs.collect()
    }
}

/// The pair of values that says most.
fn effect<'c>(
    axis: &Axis,
    levels: &Levels,
    pairs: impl Iterator<Item = (usize, usize, &'c Compared)>,
) -> Option<Effect> {
    let pairs: Vec<(usize, usize, &Compared)> = pairs.collect();
    let size = |(_, _, row): &&(usize, usize, &Compared)| row.difference().abs();
    let furthest = |all: &dyn Fn(&Compared) -> bool| {
        // Of equal ones the first.
        let found = pairs.iter().rev().filter(|(_, _, row)| all(row));
        found.max_by(|a, b| size(a).total_cmp(&size(b))).copied()
    };
    let starred = furthest(&|row| row.verdict.is_starred());
    let (old, new, row) = starred.or_else(|| furthest(&|_| true))?;
    let all = |verdicts: &[Verdict]| pairs.iter().all(|(_, _, row)| verdicts.contains(&row.verdict));
    let reaction = if starred.is_some() {
        Reaction::Moves
    } else if all(&[Verdict::Same, Verdict::NoChange]) {
        Reaction::Flat
    } else {
        match row.verdict {
            Verdict::OneRun => Reaction::OneRun,
            Verdict::DiffersInAll => Reaction::DiffersInAll,
            _ => Reaction::CannotTell,
        }
    };
    let means: Vec<Option<f64>> = levels.values.iter().map(|value| value.as_ref().map(|value| value.value)).collect();
    let (interval, geometric) = match &row.tested {
        Tested::By(test) => (test.interval, test.geometric),
        Tested::Same => (Some(Bounds { low: 0.0, high: 0.0 }), None),
        Tested::OneRun | Tested::DiffersInAll => (None, None),
    };
    Some(Effect {
        axis: axis.name.clone(),
        from: axis.values[old].clone(),
        to: axis.values[new].clone(),
        difference: row.difference(),
        interval,
        percent: row.change_percent,
        geometric,
        p_holm: row.p_holm,
        reaction,
        means,
    })
}
