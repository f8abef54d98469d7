//! Cells that share tables: those of one experiment and workload, placed in columns and operations.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Cell, Column, Key, Target};
use crate::stats;
use crate::table::{Baseline, ColumnHead, Value};

/// The cells of one experiment and workload, and the columns that they span.
pub(crate) struct Group<'a> {
    pub(crate) experiment: &'a str,
    /// What titles begin with: the workload, after the experiment if there are several.
    pub(crate) title: String,
    pub(crate) columns: Vec<ColumnHead>,
    pub(crate) cells: Vec<Placed<'a>>,
}

/// A cell and its place in the tables.
pub(crate) struct Placed<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) column: usize,
    /// The case, and whatever else tells apart cells that would fall together by mistake.
    pub(crate) operation: String,
}

/// The name of each cell's case in tables: its case, and whatever else tells apart cells that would fall together by mistake.
pub fn operations(cells: &[Cell]) -> BTreeMap<Key, String> {
    let groups = groups(cells);
    let placed = groups.iter().flat_map(|group| &group.cells);
    placed.map(|placed| (placed.cell.key.clone(), placed.operation.clone())).collect()
}

/// Groups in order of first appearance, with columns compared as they are by themselves.
pub(crate) fn groups(cells: &[Cell]) -> Vec<Group<'_>> {
    groups_against(cells, &Baseline::OfTarget)
}

/// Groups in order of first appearance.
pub(crate) fn groups_against<'a>(cells: &'a [Cell], baseline: &Baseline) -> Vec<Group<'a>> {
    let names: Vec<(&str, &str)> = distinct(cells.iter().map(name));
    let several = names.iter().any(|(experiment, _)| *experiment != names[0].0);
    let group = |(experiment, workload)| {
        let title =
            if several && experiment != workload { format!("{experiment} {workload}") } else { String::from(workload) };
        let mine = cells.iter().filter(|cell| name(cell) == (experiment, workload));
        place(experiment, title, mine.collect(), baseline)
    };
    names.into_iter().map(group).collect()
}

/// The items without their repetitions, in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// 2.5 % and 97.5 % points of one number per seed, if there is more than one.
pub(crate) fn interval(of_seeds: &[f64]) -> (Option<f64>, Option<f64>) {
    match of_seeds.len() {
        0 | 1 => (None, None),
        _ => (stats::percentile(of_seeds, 2.5), stats::percentile(of_seeds, 97.5)),
    }
}

/// The mean of each seed's runs.
pub(crate) fn means_of_seeds(of_seeds: &BTreeMap<u64, Vec<f64>>) -> BTreeMap<u64, f64> {
    of_seeds.iter().filter_map(|(seed, runs)| Some((*seed, stats::amean(runs)?))).collect()
}

/// The mean of those, with its range over seeds.
pub(crate) fn mean_over_seeds(of_seeds: &BTreeMap<u64, Vec<f64>>) -> Option<Value> {
    let means = means_of_seeds(of_seeds);
    let mean = stats::amean(&means.values().copied().collect::<Vec<f64>>())?;
    Some(Value::over_seeds(mean, means))
}

fn name(cell: &Cell) -> (&str, &str) {
    (cell.key.group.as_ref().unwrap_or(&cell.key.experiment), &cell.key.workload)
}

fn place<'a>(experiment: &'a str, title: String, cells: Vec<&'a Cell>, baseline: &Baseline) -> Group<'a> {
    let columns = distinct(cells.iter().map(|cell| cell.key.column()));
    let varying = varying_traits(&cells);
    let cells = cells.into_iter().map(|cell| Placed {
        cell,
        column: position(&columns, &cell.key.column()),
        operation: operation(&cell.key, &varying),
    });
    Group { experiment, title, cells: cells.collect(), columns: heads(&columns, baseline) }
}

fn position(columns: &[Column], column: &Column) -> usize {
    columns.iter().position(|other| other == column).expect("made from the same cells")
}

fn heads(columns: &[Column], baseline: &Baseline) -> Vec<ColumnHead> {
    let several_results = columns.iter().any(|column| column.result != columns[0].result);
    let several_machines = columns.iter().any(|column| column.machine != columns[0].machine);
    let head = |column: &Column| {
        let mut lines = vec![column.target.to_string(), column.kernel.clone()];
        if several_results {
            lines.extend(column.result.clone());
        }
        if several_machines {
            lines.push(column.machine.clone());
        }
        let baseline = index(columns, column, baseline);
        ColumnHead { column: column.clone(), lines, baseline }
    };
    columns.iter().map(head).collect()
}

/// The column that one is compared with. Where the one that is asked for is not in the table, each is as by itself.
fn index(columns: &[Column], column: &Column, baseline: &Baseline) -> usize {
    let asked = match baseline {
        Baseline::OfTarget => None,
        Baseline::Column(asked) => columns.iter().position(|other| other == asked),
    };
    asked.unwrap_or_else(|| of_target(columns, column))
}

/// The first of the same result, target and machine, and a simulator's the last real one of its machine before it, whose twin
/// it is.
fn of_target(columns: &[Column], column: &Column) -> usize {
    let own = columns.iter().position(|other| other == column).expect("a column is among its table's");
    let is_near = |other: &Column| (&other.result, &other.machine) == (&column.result, &column.machine);
    let real = |other: &Column| other.target != Target::Sim && is_near(other);
    let twin_of = columns[..own].iter().rposition(real).filter(|_| column.target == Target::Sim);
    let pairs = |other: &Column| other.target == column.target && is_near(other);
    twin_of.unwrap_or_else(|| columns.iter().position(pairs).expect("a column pairs with itself"))
}

/// Per case, the traits that differ between cells of one column: pooling those cells without naming
/// the trait would average two different things.
fn varying_traits<'a>(cells: &[&'a Cell]) -> BTreeMap<&'a str, BTreeSet<String>> {
    let mut first: BTreeMap<(&str, Column), BTreeMap<String, String>> = BTreeMap::new();
    let mut varying: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for cell in cells {
        let traits = traits(&cell.key);
        let place = (cell.key.case.as_str(), cell.key.column());
        let first = first.entry(place).or_insert_with(|| traits.clone());
        let names = first.keys().chain(traits.keys());
        let differing = names.filter(|name| first.get(*name) != traits.get(*name));
        varying.entry(&cell.key.case).or_default().extend(differing.cloned());
    }
    varying
}

/// Everything of a key that neither its column nor its operation shows, but for the seed.
fn traits(key: &Key) -> BTreeMap<String, String> {
    let mut traits = key.params.clone();
    traits.insert("state".to_owned(), key.state.clone());
    traits.insert("variant".to_owned(), key.variant.clone());
    traits.insert("program".to_owned(), key.program.chars().take(8).collect());
    traits
}

fn operation(key: &Key, varying: &BTreeMap<&str, BTreeSet<String>>) -> String {
    let traits = traits(key);
    let shown = varying[key.case.as_str()].iter().filter_map(|name| traits.get_key_value(name));
    shown.fold(key.case.clone(), |text, (name, value)| format!("{text},{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(target: Target, kernel: &str, machine: &str) -> Column {
        Column { result: None, target, kernel: kernel.to_owned(), machine: machine.to_owned() }
    }

    #[test]
    fn a_simulator_is_compared_with_the_real_kernel_of_its_machine() {
        let columns = [
            column(Target::Host, "6.18", "here"),
            column(Target::Sim, "v6.18", "here"),
            column(Target::Vm, "6.1", "two-node-2g"),
            column(Target::Vm, "6.12", "two-node-2g"),
            column(Target::Sim, "v6.1", "two-node-2g"),
            column(Target::Sim, "v6.1", "alone"),
            column(Target::Sim, "v6.18", "alone"),
        ];
        let baselines: Vec<_> = columns.iter().map(|column| index(&columns, column, &Baseline::OfTarget)).collect();
        assert_eq!(baselines, [0, 0, 2, 2, 3, 5, 5]);
    }
    #[test]
    fn results_side_by_side_are_compared_within_each_or_with_the_column_that_is_asked_for() {
        let of = |result: &str, kernel| Column { result: Some(result.to_owned()), ..column(Target::Sim, kernel, "m") };
        let columns = [of("old", "v6.1"), of("old", "v6.6"), of("new", "v6.1"), of("new", "v6.6")];
        let heads_of = |baseline: &Baseline| heads(&columns, baseline);
        for (asked, expected) in [
            (Baseline::OfTarget, [0, 0, 2, 2]),
            (Baseline::Column(columns[1].clone()), [1, 1, 1, 1]),
            (Baseline::Column(of("gone", "v6.1")), [0, 0, 2, 2]),
        ] {
            assert_eq!(heads_of(&asked).iter().map(|head| head.baseline).collect::<Vec<_>>(), expected);
        }
        assert_eq!(heads_of(&Baseline::OfTarget)[2].lines, ["sim", "v6.1", "new"]);
        assert_eq!(columns[2].label(), "new:sim:v6.1:m");
    }
}
