//! Groups of cells that share tables: the cells of one experiment and workload, placed in columns and operations.

use std::collections::BTreeMap;

use crate::naming::Naming;
use crate::record::{Cell, Column, Key, Metric, OF_ALL_CASES, Target};
use crate::stats;
use crate::table::{Baseline, ColumnHead, Row, Value};

/// The cells of one experiment and workload, and the columns that they span.
pub(crate) struct Group<'a> {
    /// The experiment, and the workload where the experiment has several; output for programs has no other name of the
    /// workload.
    pub(crate) experiment: String,
    /// Begin of the tables' titles: the workload, after the experiment if there are several.
    pub(crate) title: String,
    pub(crate) columns: Vec<ColumnHead>,
    pub(crate) cells: Vec<Placed<'a>>,
    naming: Naming<'a>,
}

impl<'a> Group<'a> {
    /// The case in the row of a metric: the part that the metric measures, else the case of its cell, with a suffix where cells
    /// would otherwise share the row by mistake.
    pub(crate) fn case_of(&self, placed: &Placed<'a>, metric: &Metric) -> String {
        match metric.part {
            Some(_) => self.naming.part(placed.cell, metric),
            None => placed.operation.clone(),
        }
    }

    /// Is `case` the case in the row of a metric?
    pub(crate) fn is_case_of(&self, placed: &Placed<'a>, metric: &Metric, case: &str) -> bool {
        case.starts_with(metric.part.as_deref().unwrap_or(&placed.operation)) && self.case_of(placed, metric) == case
    }

    /// The operations, in order of first appearance.
    pub(crate) fn operations(&self) -> Vec<&str> {
        distinct(self.cells.iter().map(|placed| placed.operation.as_str()))
    }
}

/// A cell with its column and operation in the tables.
pub(crate) struct Placed<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) column: usize,
    /// The cell's case, with a suffix where cells would otherwise share a row by mistake.
    pub(crate) operation: String,
    /// Number of the cell's key without the seed: cells that differ only in the seed have the same number.
    run: usize,
}

/// The numbers of one row in one column by seed, from cells that differ only in the seed. Every maker of rows adds its numbers
/// here.
#[derive(Default)]
pub(crate) struct Runs<'a> {
    /// One cell of each case. Most rows are of one case, so this map has one entry.
    of: BTreeMap<&'a str, &'a Placed<'a>>,
    by_seed: BTreeMap<u64, Vec<f64>>,
}

impl<'a> Runs<'a> {
    /// Adds numbers of a cell to the row.
    ///
    /// # Panics
    /// When an added cell differs from an earlier one in more than the seed.
    pub(crate) fn add(&mut self, placed: &'a Placed<'a>, numbers: impl IntoIterator<Item = f64>) {
        self.add_of("", placed, numbers);
    }

    /// Adds the samples of a metric of a cell.
    ///
    /// # Panics
    /// As [`Self::add`], but samples of a metric of all cases together may come from different cases.
    pub(crate) fn add_metric(&mut self, placed: &'a Placed<'a>, metric: &Metric) {
        let case = if metric.name == OF_ALL_CASES { &placed.cell.key.case } else { "" };
        self.add_of(case, placed, metric.samples.iter().copied());
    }

    fn add_of(&mut self, case: &'a str, placed: &'a Placed<'a>, numbers: impl IntoIterator<Item = f64>) {
        let first = *self.of.entry(case).or_insert(placed);
        assert!(
            first.run == placed.run && first.column == placed.column,
            "one row and column of cells that differ in more than the seed: {:?} and {:?}",
            first.cell.key,
            placed.cell.key
        );
        self.by_seed.entry(placed.cell.key.seed).or_default().extend(numbers);
    }

    /// The numbers by seed, so that sums do not depend on the order in which cells finished.
    pub(crate) fn by_seed(&self) -> &BTreeMap<u64, Vec<f64>> {
        &self.by_seed
    }

    /// The numbers by seed.
    pub(crate) fn into_by_seed(self) -> BTreeMap<u64, Vec<f64>> {
        self.by_seed
    }

    /// The mean over seeds of each seed's mean, with the range over seeds.
    pub(crate) fn mean(&self) -> Option<Value> {
        let means = means_of_seeds(&self.by_seed);
        let mean = stats::amean(&means.values().copied().collect::<Vec<f64>>())?;
        Some(Value::over_seeds(mean, means))
    }
}

/// Separates, in a row's name, the measured thing from its operation, where the table has several operations.
const OF: &str = " of ";

/// A row of a measured thing in one of the operations of its table.
pub(crate) fn row_of(row: Row, operation: &str) -> Row {
    Row { case: format!("{}{OF}{operation}", row.case), operation: format!("{} {operation}", row.operation), ..row }
}

/// The measured thing of a row, and the operation, if the row's name has one.
pub(crate) fn thing_and_operation(row: &Row) -> (&str, Option<&str>) {
    row.case.split_once(OF).map_or((&row.case, None), |(thing, operation)| (thing, Some(operation)))
}

/// The name of each cell's case in tables: the case, with a suffix where cells would otherwise share a row by mistake.
pub fn operations(cells: &[Cell]) -> BTreeMap<Key, String> {
    let groups = groups(cells);
    let placed = groups.iter().flat_map(|group| &group.cells);
    placed.map(|placed| (placed.cell.key.clone(), placed.operation.clone())).collect()
}

/// Renames the case of each cell to its name in tables. Where several experiments or workloads have a case of the same name,
/// the experiment or workload goes before it, so that case, column and seed name exactly one cell.
pub fn name_cases(cells: &mut [Cell]) {
    let groups = groups(cells);
    let mut groups_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for group in &groups {
        for operation in group.operations() {
            groups_of.entry(operation).or_default().push(&group.title);
        }
    }
    let mut names: BTreeMap<Key, String> = BTreeMap::new();
    for group in &groups {
        for placed in &group.cells {
            let operation = &placed.operation;
            let is_alone = groups_of[operation.as_str()].len() == 1;
            let name = if is_alone { operation.clone() } else { format!("{} {operation}", group.title) };
            names.insert(placed.cell.key.clone(), name);
        }
    }
    for cell in cells {
        cell.key.case.clone_from(&names[&cell.key]);
    }
}

/// The workload that a file of processes and phases is run by: the file's name says more.
const SERVICE: &str = "service";

/// The groups in order of first appearance, each column compared with its default baseline.
pub(crate) fn groups(cells: &[Cell]) -> Vec<Group<'_>> {
    groups_against(cells, &Baseline::OfTarget)
}

/// The groups in order of first appearance, compared with `baseline`.
pub(crate) fn groups_against<'a>(cells: &'a [Cell], baseline: &Baseline) -> Vec<Group<'a>> {
    let names: Vec<(&str, &str)> = distinct(cells.iter().map(name));
    let several = names.iter().any(|(experiment, _)| *experiment != names[0].0);
    let group = |(experiment, workload)| {
        let title = match workload {
            SERVICE => String::from(experiment),
            _ if several && experiment != workload => format!("{experiment} {workload}"),
            _ => String::from(workload),
        };
        let mine = cells.iter().filter(|cell| name(cell) == (experiment, workload));
        let is_alone = names.iter().filter(|(other, _)| *other == experiment).count() == 1;
        let experiment = if is_alone { experiment.to_owned() } else { format!("{experiment} {workload}") };
        place(experiment, title, mine.collect(), baseline)
    };
    names.iter().copied().map(group).collect()
}

/// The distinct items, in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// The mean of each seed's numbers.
pub(crate) fn means_of_seeds(of_seeds: &BTreeMap<u64, Vec<f64>>) -> BTreeMap<u64, f64> {
    of_seeds.iter().filter_map(|(seed, runs)| Some((*seed, stats::amean(runs)?))).collect()
}

fn name(cell: &Cell) -> (&str, &str) {
    (cell.key.group.as_ref().unwrap_or(&cell.key.experiment), &cell.key.workload)
}

fn place<'a>(experiment: String, title: String, cells: Vec<&'a Cell>, baseline: &Baseline) -> Group<'a> {
    let columns = distinct(cells.iter().map(|cell| cell.key.column()));
    let naming = Naming::of(&cells);
    let mut runs: BTreeMap<Key, usize> = BTreeMap::new();
    let mut run = |key: &Key| {
        let next = runs.len();
        *runs.entry(Key { seed: 0, ..key.clone() }).or_insert(next)
    };
    let cells = cells.into_iter().map(|cell| Placed {
        cell,
        column: position(&columns, &cell.key.column()),
        operation: naming.case(cell),
        run: run(&cell.key),
    });
    Group { experiment, title, cells: cells.collect(), columns: heads(&columns, baseline), naming }
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

/// Index of the column that `column` is compared with. If the requested baseline is not in the table, each column has its
/// default baseline.
fn index(columns: &[Column], column: &Column, baseline: &Baseline) -> usize {
    let asked = match baseline {
        Baseline::OfTarget => None,
        Baseline::Column(asked) => columns.iter().position(|other| other == asked),
    };
    asked.unwrap_or_else(|| of_target(columns, column))
}

/// The default baseline: the first column with the same result, target and machine. For a simulator column it is the last real
/// column of the same machine before it, whose twin the simulator is.
fn of_target(columns: &[Column], column: &Column) -> usize {
    let own = columns.iter().position(|other| other == column).expect("a column is among its table's");
    let is_near = |other: &Column| (&other.result, &other.machine) == (&column.result, &column.machine);
    let real = |other: &Column| other.target != Target::Sim && is_near(other);
    let twin_of = columns[..own].iter().rposition(real).filter(|_| column.target == Target::Sim);
    let pairs = |other: &Column| other.target == column.target && is_near(other);
    twin_of.unwrap_or_else(|| columns.iter().position(pairs).expect("a column pairs with itself"))
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
    fn results_are_compared_within_each_or_with_a_chosen_column() {
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
