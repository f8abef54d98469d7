//! Tables of CPU time by cause over whole runs, as `perf report` shows it for samples.

use std::collections::{BTreeMap, BTreeSet};

use crate::better::Better;
use crate::group::{Group, Placed, Runs, groups};
use crate::record::{Cell, WAITING};
use crate::table::{Form, Kind, Row, Table, Value};

/// One table per experiment and workload that has times by cause. Each case has a row for the total and then one per
/// cause, the largest first. A value is the mean over the runs of a case (its seeds), with its share of the total. Columns
/// whose runs know no causes are blank.
pub fn causes(records: &[Cell]) -> Vec<Table> {
    groups(records).iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

fn table(group: &Group<'_>) -> Table {
    let operations = group.operations();
    Table {
        experiment: group.experiment.clone(),
        title: format!("{} Time by Cause", group.title),
        kind: Kind::Causes,
        unit: "ms per run of all tasks and kernel threads, start to end (share); Waiting is time without a CPU"
            .to_owned(),
        better: Better::None,
        columns: group.columns.clone(),
        rows: operations.iter().flat_map(|operation| rows(group, operation)).collect(),
    }
}

/// The summed time of one case in one column: the number of runs, and picoseconds by cause.
#[derive(Default)]
struct Sum<'a> {
    runs: u32,
    parts: BTreeMap<&'a str, u128>,
}

impl<'a> Sum<'a> {
    fn of(cells: impl Iterator<Item = &'a Placed<'a>>) -> Self {
        let (mut sum, mut runs) = (Self::default(), Runs::default());
        for placed in cells.filter(|placed| !placed.cell.measured.causes.is_empty()) {
            runs.add(placed, []);
            sum.runs += 1;
            for (name, picos) in &placed.cell.measured.causes {
                *sum.parts.entry(name).or_default() += u128::from(*picos);
            }
        }
        sum
    }

    fn total(&self) -> u128 {
        self.parts.values().sum()
    }

    /// The value of one cause, or of the total, in a column; none where no run of the column knows causes.
    fn value(&self, name: Option<&str>) -> Option<Value> {
        let part = |name| self.parts.get(name).copied().unwrap_or(0);
        let picos = name.map_or_else(|| self.total(), part);
        let share = picos as f64 / self.total() as f64 * 100.0;
        let value = picos as f64 / 1e9 / f64::from(self.runs);
        (self.runs > 0).then_some(Value { value, share: Some(share), ..Value::default() })
    }
}

fn rows(group: &Group<'_>, operation: &str) -> Vec<Row> {
    let cells = |column| {
        group.cells.iter().filter(move |placed| (placed.operation.as_str(), placed.column) == (operation, column))
    };
    let sums: Vec<Sum<'_>> = (0..group.columns.len()).map(|column| Sum::of(cells(column))).collect();
    let names: BTreeSet<&str> = sums.iter().flat_map(|sum| sum.parts.keys().copied()).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    let all = |name: &str| sums.iter().filter_map(|sum| sum.parts.get(name)).sum::<u128>();
    // Causes with equal times stay in the order of their names.
    names.sort_by_key(|name| std::cmp::Reverse(all(name)));
    if names.is_empty() {
        return Vec::new();
    }
    let row = |name: Option<&str>| {
        let (metric, stat, what) = match name.map(|name| (name, name.strip_prefix(WAITING))) {
            None => ("causes.total".to_owned(), "All", "total"),
            Some((cause, None)) => (format!("cpu.{cause}"), "CPU", cause),
            Some((_, Some(cause))) => (format!("waiting.{cause}"), "Waiting", cause),
        };
        Row {
            metric,
            case: operation.to_owned(),
            stat: stat.to_owned(),
            operation: format!("{operation} {what}"),
            better: Better::None,
            unit: "ms".to_owned(),
            form: Form::Hundredths,
            cells: sums.iter().map(|sum| sum.value(name)).collect(),
        }
    };
    std::iter::once(None).chain(names.into_iter().map(Some)).map(row).collect()
}
