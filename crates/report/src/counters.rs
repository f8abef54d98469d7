//! Tables of counters: how far each counter moved in a run, as mmtests prints its monitors.

use std::collections::{BTreeMap, BTreeSet};

use crate::balancing;
use crate::better::Better;
use crate::group::{Group, Runs, groups, means_of_seeds};
use crate::record::Cell;
use crate::stats;
use crate::table::{Form, Kind, Row, Table, Value};

/// One table per experiment and workload. A value is the mean over the runs of an operation (its seeds). A counter has
/// a row for every operation if it moved by at least `threshold`, up or down, in some cell; a threshold of 0 shows
/// every counter. Gauges always have rows, since they were read on purpose. A run without the counter adds nothing to
/// the mean. Runs with NUMA balancing have two further rows computed from counters.
pub fn counters(records: &[Cell], threshold: u64) -> Vec<Table> {
    of_groups(&groups(records), threshold)
}

pub(crate) fn of_groups(groups: &[Group<'_>], threshold: u64) -> Vec<Table> {
    let tables = groups.iter().map(|group| table(group, threshold));
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// Movements by counter, operation and column, each with a value per seed.
type Movements<'a> = BTreeMap<(&'a str, &'a str, usize), Runs<'a>>;

/// Removes the rows below the threshold, which were judged like all rows but are not shown.
pub(crate) fn hide(tables: &mut Vec<Table>, groups: &[Group<'_>], threshold: u64) {
    for group in groups {
        let movements = movements(group);
        let (shown, title) = (shown(group, &movements, threshold), title(group));
        let mine = |table: &&mut Table| {
            table.kind == Kind::Counters && (&table.experiment, &table.title) == (&group.experiment, &title)
        };
        for table in tables.iter_mut().filter(mine) {
            table.rows.retain(|row| shown.contains(row.metric.as_str()));
        }
    }
    tables.retain(|table| !table.rows.is_empty());
}

fn title(group: &Group<'_>) -> String {
    format!("{} Counters", group.title)
}

/// The counters that moved by `threshold` in some cell, and all gauges.
fn shown<'a>(group: &'a Group<'_>, movements: &Movements<'a>, threshold: u64) -> BTreeSet<&'a str> {
    let is_shown = |((counter, ..), runs): &(&(&str, &str, usize), &Runs)| {
        mean(runs.by_seed()).is_some_and(|mean| mean.abs() >= threshold as f64 || mean != 0.0 && is_derived(counter))
    };
    let moved = movements.iter().filter(is_shown).map(|((counter, ..), _)| *counter);
    moved.chain(group.cells.iter().flat_map(|placed| placed.cell.measured.gauges.keys().map(String::as_str))).collect()
}

/// The unit of counters that do not count time.
const UNIT: &str = "movement of the counter per run";
/// The suffix of counters that count time, and their unit.
const NANOSECONDS: (&str, &str) = ("_ns", "ns");

fn unit(counter: &str) -> &'static str {
    let derived = balancing::DERIVED.iter().find(|(name, ..)| *name == counter).map(|(_, unit, _)| *unit);
    let (end, of_time) = NANOSECONDS;
    derived.unwrap_or(if counter.ends_with(end) { of_time } else { UNIT })
}

fn table(group: &Group<'_>, threshold: u64) -> Table {
    let movements = movements(group);
    let shown = shown(group, &movements, threshold);
    let operations = group.operations();
    let row = |counter: &str, operation: &str| {
        let value = |column| movements.get(&(counter, operation, column)).and_then(|runs| value(runs.by_seed()));
        let cells: Vec<Option<Value>> = (0..group.columns.len()).map(value).collect();
        cells.iter().any(Option::is_some).then(|| Row {
            metric: counter.to_owned(),
            case: operation.to_owned(),
            stat: "Ops".to_owned(),
            operation: format!("{counter} {operation}"),
            better: Better::None,
            unit: unit(counter).to_owned(),
            form: Form::Hundredths,
            cells,
        })
    };
    let rows = shown
        .iter()
        .flat_map(|counter| operations.iter().filter_map(|operation| row(counter, operation)).collect::<Vec<Row>>());
    Table {
        experiment: group.experiment.clone(),
        title: title(group),
        kind: Kind::Counters,
        unit: UNIT.to_owned(),
        better: Better::None,
        columns: group.columns.clone(),
        rows: rows.collect(),
    }
}

fn movements<'a>(group: &'a Group<'_>) -> Movements<'a> {
    let mut movements = Movements::new();
    for placed in &group.cells {
        let measured = &placed.cell.measured;
        let mut add = |counter: &'a str, moved: f64| {
            let place = (counter, placed.operation.as_str(), placed.column);
            movements.entry(place).or_default().add(placed, [moved]);
        };
        for (counter, &moved) in measured.counters.iter().chain(&measured.gauges) {
            add(counter, moved as f64);
        }
        for (name, _, value) in balancing::DERIVED {
            if let Some(value) = value(&measured.counters) {
                add(name, value);
            }
        }
    }
    movements
}

/// Is the row computed from other counters? Such values matter even where they are small, so the threshold does not
/// hide them.
fn is_derived(counter: &str) -> bool {
    balancing::DERIVED.iter().any(|(name, ..)| *name == counter)
}

/// The mean over runs. Sums of whole numbers are exact, so the order of the runs does not matter.
fn mean(seeds: &BTreeMap<u64, Vec<f64>>) -> Option<f64> {
    stats::amean(&seeds.values().flatten().copied().collect::<Vec<f64>>())
}

fn value(seeds: &BTreeMap<u64, Vec<f64>>) -> Option<Value> {
    Some(Value::over_seeds(mean(seeds)?, means_of_seeds(seeds)))
}
