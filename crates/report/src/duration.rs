//! Tables of durations: user, system and elapsed time, which mmtests prints after the results.

use crate::better::Better;
use crate::group::{Group, Runs, groups};
use crate::record::{Cell, Duration};
use crate::table::{Form, Kind, Row, Table, Value};

/// Reads one part of a duration, in picoseconds.
pub(crate) type Part = fn(&Duration) -> u64;

/// The unit of all rows.
pub(crate) const UNIT: &str = "s";

/// For each row its name for programs, its name in texts, and the part of the duration that it shows.
pub(crate) const ROWS: [(&str, &str, Part); 3] = [
    ("duration.user", "User", |duration| duration.user_ps),
    ("duration.system", "System", |duration| duration.system_ps),
    ("duration.elapsed", "Elapsed", |duration| duration.elapsed_ps),
];

/// One table per experiment and workload, of the operations whose durations were measured. A value is the mean over the
/// runs of an operation (its seeds).
pub fn durations(records: &[Cell]) -> Vec<Table> {
    of_groups(&groups(records))
}

pub(crate) fn of_groups(groups: &[Group<'_>]) -> Vec<Table> {
    groups.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

fn table(group: &Group<'_>) -> Table {
    let operations = group.operations();
    let row = |(metric, name, part): (&str, &str, Part), operation: &str| {
        let value = |column| value(group, operation, column, part);
        let cells: Vec<Option<Value>> = (0..group.columns.len()).map(value).collect();
        cells.iter().any(Option::is_some).then(|| Row {
            metric: metric.to_owned(),
            case: operation.to_owned(),
            stat: "Duration".to_owned(),
            operation: format!("{name} {operation}"),
            better: Better::None,
            unit: UNIT.to_owned(),
            form: Form::Hundredths,
            cells,
        })
    };
    let rows = ROWS.iter().flat_map(|of| operations.iter().filter_map(|operation| row(*of, operation)));
    Table {
        experiment: group.experiment.clone(),
        title: format!("{} Duration", group.title),
        kind: Kind::Duration,
        unit: "s per run, User and System of all tasks together".to_owned(),
        better: Better::None,
        columns: group.columns.clone(),
        rows: rows.collect(),
    }
}

fn value(group: &Group<'_>, operation: &str, column: usize, part: Part) -> Option<Value> {
    let mut runs = Runs::default();
    for placed in group.cells.iter().filter(|placed| (placed.operation.as_str(), placed.column) == (operation, column))
    {
        if let Some(duration) = &placed.cell.measured.duration {
            runs.add(placed, [part(duration) as f64 / 1e12]);
        }
    }
    runs.mean()
}
