//! Tables of memory: how much was free, what kernels hold that against, and what happened when there was too little.

use crate::{
    better::Better,
    group::{Group, Placed, Runs},
    record::Cell,
    table::{Form, Kind, Row, Table},
};

/// The number that a row shows of a cell that knows its memory.
type Part = fn(&Cell) -> Option<u64>;

/// Rows for programs and for people, and what they show.
const ROWS: [(&str, &str, Part); 6] = [
    ("memory.free_least", "free, least", |cell| Some(cell.measured.memory?.free_least)),
    ("memory.free_mean", "free, mean", |cell| Some(cell.measured.memory?.free_mean)),
    ("memory.min", "min marks", |cell| Some(cell.measured.memory?.min)),
    ("memory.low", "low marks", |cell| Some(cell.measured.memory?.low)),
    ("memory.high", "high marks", |cell| Some(cell.measured.memory?.high)),
    (OOM_KILLS, "OOM kills", oom_kills),
];

const OOM_KILLS: &str = "memory.oom_kills";

fn oom_kills(cell: &Cell) -> Option<u64> {
    cell.measured.memory?;
    u64::try_from(cell.measured.counters.get("oom_kill").copied().unwrap_or(0)).ok()
}

/// One table for each experiment and workload of which cells know their memory; a value is the mean over runs of an operation.
pub(crate) fn of_groups(groups: &[Group<'_>]) -> Vec<Table> {
    groups.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

pub(crate) fn table(group: &Group<'_>) -> Table {
    let operations = group.operations();
    let row = |(metric, name, part): (&str, &str, Part), operation: &str| {
        let value = |column| {
            let mut runs = Runs::default();
            let is_of = |of: &&Placed<'_>| (of.column, of.operation.as_str()) == (column, operation);
            for placed in group.cells.iter().filter(is_of) {
                if let Some(number) = part(placed.cell) {
                    runs.add(placed, [number as f64]);
                }
            }
            runs.mean()
        };
        Row {
            metric: metric.to_owned(),
            case: operation.to_owned(),
            stat: "Memory".to_owned(),
            operation: format!("{name} {operation}"),
            better: Better::None,
            unit: if metric == OOM_KILLS { "times" } else { "pages" }.to_owned(),
            form: Form::Whole,
            cells: (0..group.columns.len()).map(value).collect(),
        }
    };
    let rows = ROWS.iter().flat_map(|of| operations.iter().map(|operation| row(*of, operation)));
    Table {
        experiment: group.experiment.clone(),
        title: format!("{} Memory", group.title),
        kind: Kind::Memory,
        unit: "base pages of all zones; kills per run".to_owned(),
        better: Better::None,
        columns: group.columns.clone(),
        rows: rows.filter(|row| row.cells.iter().any(Option::is_some)).collect(),
    }
}
