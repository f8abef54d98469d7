//! Tables of will-it-scale, each of whose runs has one number for each test and number of tasks: a table for each quantity of
//! each set of tables (processes, threads), with rows for tests and tasks under the names of the published table.

use crate::{
    group::{Group, Placed, Runs, distinct},
    record::Metric,
    table::{Form, Kind, Layout, Report, Row, Table},
};

/// Makes all tables; those but of metrics are as mmtests has them today, as `other` says.
pub(crate) fn report(groups: &[Group<'_>], layout: Layout, other: Report) -> Report {
    let mut all: Vec<Table> = groups.iter().flat_map(quantities).collect();
    all.extend(other.tables.into_iter().filter(|table| table.kind != Kind::Metric));
    Report { layout, tables: all, checks: other.checks }
}

/// The test of a metric, if the metric is of a test, and what was measured: `page_fault2.iterations` is `page_fault2`,
/// `iterations`.
pub(crate) fn test_and_quantity(metric: &str) -> (&str, &str) {
    metric.split_once('.').unwrap_or(("", metric))
}

fn metrics<'a>(group: &'a Group<'_>) -> impl Iterator<Item = (&'a Placed<'a>, &'a Metric)> {
    let of = |placed: &'a Placed<'a>| placed.cell.measured.metrics.iter().map(move |metric| (placed, metric));
    group.cells.iter().flat_map(of).filter(|(_, metric)| !metric.samples.is_empty())
}

fn quantities(group: &Group<'_>) -> Vec<Table> {
    let names = distinct(metrics(group).map(|(_, metric)| test_and_quantity(&metric.name).1));
    names.into_iter().map(|name| table(group, name)).collect()
}

fn table(group: &Group<'_>, quantity: &str) -> Table {
    let mine = || metrics(group).filter(|(_, metric)| test_and_quantity(&metric.name).1 == quantity);
    let (_, first) = mine().next().expect("a quantity is some metric's");
    let rows = distinct(mine().map(|(placed, metric)| (metric.name.as_str(), group.case_of(placed, metric))));
    Table {
        experiment: group.experiment.clone(),
        title: format!("{} {}", group.experiment, words(quantity)),
        kind: Kind::Metric,
        unit: first.unit.clone(),
        better: first.better,
        columns: group.columns.clone(),
        rows: rows.into_iter().map(|(name, case)| row(group, name, &case)).collect(),
    }
}

/// `idle_pct` is `idle`: the unit follows the title.
fn words(quantity: &str) -> String {
    let unit = ["_pct", "_gib", "_kib"].into_iter().find_map(|unit| quantity.strip_suffix(unit));
    unit.unwrap_or(quantity).replace('_', " ")
}

fn row(group: &Group<'_>, name: &str, case: &str) -> Row {
    let mine =
        || metrics(group).filter(|(placed, metric)| metric.name == name && group.case_of(placed, metric) == case);
    let Metric { better, unit, .. } = mine().next().expect("a row is some metric's").1;
    let value = |column: usize| {
        let mut runs = Runs::default();
        for (placed, metric) in mine().filter(|(placed, _)| placed.column == column) {
            runs.add_metric(placed, metric);
        }
        runs.mean()
    };
    let (test, _) = test_and_quantity(name);
    Row {
        metric: name.to_owned(),
        operation: format!("{test} {case}").trim_start().to_owned(),
        case: case.to_owned(),
        stat: "Amean".to_owned(),
        better: *better,
        unit: unit.clone(),
        form: Form::Hundredths,
        cells: (0..group.columns.len()).map(value).collect(),
    }
}
