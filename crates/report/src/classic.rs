//! The tables that mmtests printed in 2015, for workloads whose every run is a whole run of mmtests: all operations of the run
//! are in one cell, and counters and times are of the whole run.
//!
//! The rows and their order are the same as in "Outsourcing page fault THP allocations to khugepaged" (RFC, 2015). A value is
//! the mean over seeds of each run's value; low and high are the 2.5 and 97.5 percent points of the runs' values.

mod vmstat;

use crate::{
    better::Better,
    duration::{ROWS as DURATIONS, UNIT},
    extfrag,
    group::{Group, Placed, Runs, distinct, row_of},
    memory,
    record::{Cell, Metric},
    stats::{self, Spread},
    table::{Form, Kind, Layout, Report, Row, Table, Value},
};

/// Makes all tables: latencies, shares, times, external fragmentation and counters of each group of cells.
pub(crate) fn report(groups: &[Group<'_>]) -> Report {
    let of_group = |group| {
        let first = [
            latencies(group),
            shares(group),
            programs(group),
            bops(group),
            peaks(group),
            places(group),
            traffic(group),
            durations(group),
        ];
        first
            .into_iter()
            .chain(extfrag::table(group))
            .chain([vmstat(group), memory::table(group)])
            .collect::<Vec<Table>>()
    };
    let tables = groups.iter().flat_map(of_group);
    Report {
        layout: Layout::Classic,
        tables: tables.filter(|table| !table.rows.is_empty()).collect(),
        checks: Vec::new(),
    }
}

/// Names of the rows of counters.
pub fn classic_counters() -> impl Iterator<Item = &'static str> {
    vmstat::LINES.iter().map(|line| line.name)
}

/// One row: its name, and how its value is read from a run.
struct Line<'a> {
    metric: String,
    case: String,
    stat: &'a str,
    better: Better,
    unit: &'a str,
    form: Form,
}

fn row(group: &Group<'_>, line: &Line<'_>, of_run: impl Fn(&Placed<'_>) -> Option<f64>) -> Row {
    let value = |column: usize| {
        let mut runs = Runs::default();
        for placed in group.cells.iter().filter(|placed| placed.column == column) {
            if let Some(number) = of_run(placed) {
                runs.add(placed, [number]);
            }
        }
        runs.mean()
    };
    Row {
        metric: line.metric.clone(),
        operation: line.case.clone(),
        case: line.case.clone(),
        stat: line.stat.to_owned(),
        better: line.better,
        unit: line.unit.to_owned(),
        form: line.form,
        cells: (0..group.columns.len()).map(value).collect(),
    }
}

/// The rows of a value of whole runs: one row without an operation, or one row for each of several operations.
fn rows_of_runs(group: &Group<'_>, line: &Line<'_>, of_run: impl Fn(&Cell) -> Option<f64>) -> Vec<Row> {
    let operations = group.operations();
    let of_operation = |operation: &&str| {
        let row = row(group, line, |placed| (placed.operation == **operation).then(|| of_run(placed.cell)).flatten());
        if operations.len() == 1 { row } else { row_of(row, operation) }
    };
    operations.iter().map(of_operation).collect()
}

fn table(group: &Group<'_>, kind: Kind, (title, unit): (&str, &str), better: Better, rows: Vec<Row>) -> Table {
    Table {
        experiment: group.experiment.clone(),
        title: title.to_owned(),
        kind,
        unit: unit.to_owned(),
        better,
        columns: group.columns.clone(),
        rows,
    }
}

const LATENCY: &str = "fault_latency_us";
/// Names of the latencies that have rows, in the order of the 2015 tables.
const CLASSES: [&str; 2] = ["fault-base", "fault-huge"];

fn of_name<'a>(cell: &'a Cell, name: &str) -> impl Iterator<Item = &'a Metric> {
    let name = name.to_owned();
    cell.measured.metrics.iter().filter(move |metric| metric.name == name)
}

/// The metric of this name in every cell of the group, each with the cell's place.
fn metrics<'a>(group: &'a Group<'_>, name: &'a str) -> impl Iterator<Item = (&'a Placed<'a>, &'a Metric)> {
    group.cells.iter().flat_map(move |placed| of_name(placed.cell, name).map(move |metric| (placed, metric)))
}

/// The cases of a metric over all cells, such as thread counts, in order of first appearance.
fn cases(group: &Group<'_>, name: &str) -> Vec<String> {
    distinct(metrics(group, name).map(|(placed, metric)| group.case_of(placed, metric)))
}

/// The operation classes of a metric over all cells.
fn classes<'a>(group: &'a Group<'_>, name: &'a str) -> Vec<&'a str> {
    distinct(metrics(group, name).filter_map(|(_, metric)| metric.class.as_deref()))
}

/// The samples of a metric in one cell, for one class and one case.
fn samples<'a>(
    group: &Group<'_>,
    placed: &Placed<'a>,
    (name, class, case): (&str, Option<&str>, &str),
) -> Option<&'a [f64]> {
    let mut all = of_name(placed.cell, name).filter(|metric| class.is_none() || metric.class.as_deref() == class);
    all.find(|metric| group.is_case_of(placed, metric, case)).map(|metric| metric.samples.as_slice())
}

/// The number of a metric that has exactly one sample in each run.
fn number(group: &Group<'_>, placed: &Placed<'_>, of: (&str, Option<&str>, &str)) -> Option<f64> {
    samples(group, placed, of)?.first().copied()
}

/// The statistic that a row shows of the samples of one run.
type Statistic = fn(&[f64]) -> Option<f64>;

/// The blocks of rows: name, the metric's name in the result, unit, and statistic.
const BLOCKS: [(&str, &str, &str, Statistic); 7] = [
    ("Min", "fault_latency_us.Min", "us", |samples| stats::min(samples)),
    ("Amean", "fault_latency_us.Amean", "us", |samples| stats::amean(samples)),
    ("Stddev", "fault_latency_us.Stddev", "us", |samples| stats::stddev(samples)),
    ("CoeffVar", "fault_latency_pct.CoeffVar", "pct", |samples| {
        let spread = Spread { mean: stats::amean(samples)?, stddev: stats::stddev(samples) };
        stats::coeff_var(spread)
    }),
    ("P50", "fault_latency_us.P50", "us", |samples| stats::percentile(samples, 50.0)),
    ("P99", "fault_latency_us.P99", "us", |samples| stats::percentile(samples, 99.0)),
    ("Max", "fault_latency_us.Max", "us", |samples| stats::max(samples)),
];

/// For an operation that happened in no run, a row of zeroes, as mmtests prints it. A single run without the operation adds
/// nothing to the mean.
fn or_zero(row: Row) -> Row {
    Row { cells: row.cells.into_iter().map(|cell| cell.or_else(|| Some(Value::default()))).collect(), ..row }
}

fn latencies(group: &Group<'_>) -> Table {
    let cases = cases(group, LATENCY);
    let mut rows = Vec::new();
    for (stat, metric, unit, statistic) in BLOCKS {
        for class in CLASSES {
            rows.extend(cases.iter().map(|case| {
                let of_run = |placed: &Placed<'_>| statistic(samples(group, placed, (LATENCY, Some(class), case))?);
                let (metric, case) = (metric.to_owned(), format!("{class}-{case}"));
                let line = Line { metric, case, stat, better: Better::Lower, unit, form: Form::Hundredths };
                or_zero(row(group, &line, of_run))
            }));
        }
    }
    let title = format!("{} Fault Latencies (microseconds)", group.experiment);
    table(group, Kind::Metric, (&title, "us"), Better::Lower, rows)
}

fn shares(group: &Group<'_>) -> Table {
    const SHARE: &str = "thp_success_pct";
    let of_case = |case: &String| {
        let (metric, row_case) = (SHARE.to_owned(), format!("huge-{case}"));
        let (better, form) = (Better::Higher, Form::Hundredths);
        let line = Line { metric, case: row_case, stat: "Percentage", better, unit: "pct", form };
        row(group, &line, |placed| number(group, placed, (SHARE, None, case)))
    };
    let rows = cases(group, SHARE).iter().map(of_case).collect();
    let title = format!("{} Percentage Faults Huge", group.experiment);
    table(group, Kind::Metric, (&title, "pct"), Better::Higher, rows)
}

/// Metrics of autonumabench's programs, several of which run one after another in a run.
const PROGRAMS: [&str; 2] = ["time_s", "cpu_pct"];
/// The metric of where each program's memory was when the program ended.
const MEMORY: [&str; 1] = ["memory_gib"];

/// User, System and Elapsed time of each program, as time(1) prints them.
fn programs(group: &Group<'_>) -> Table {
    let of_row = |row: Row| Row { operation: format!("{}-{}", row.stat, row.case), ..row };
    let rows = of_programs(group, &PROGRAMS).into_iter().map(of_row).collect();
    let title = format!("{} Programs (seconds, and per cent of a CPU)", group.experiment);
    table(group, Kind::Duration, (&title, "s"), Better::None, rows)
}

/// SPECjbb's business operations per second, by number of warehouses, and the number of warehouses with the highest
/// throughput.
const BOPS: &str = "bops";
const PEAK: &str = "peak";

/// Throughput by number of warehouses; with several JVMs first the mean and deviation over the JVMs.
fn bops(group: &Group<'_>) -> Table {
    let cases = cases(group, BOPS);
    let mut rows = Vec::new();
    for class in classes(group, BOPS) {
        rows.extend(cases.iter().map(|case| {
            let better = if class == "Stddev" { Better::Lower } else { Better::Higher };
            let metric = format!("{BOPS}.{class}");
            let line = Line { metric, case: case.clone(), stat: class, better, unit: "ops/s", form: Form::Hundredths };
            let row = row(group, &line, |placed| number(group, placed, (BOPS, Some(class), case)));
            Row { operation: format!("{class} {}", case.trim_start_matches("warehouses=")), ..row }
        }));
    }
    let title = format!("{} (business operations per second by warehouses)", group.experiment);
    table(group, Kind::Duration, (&title, "ops/s"), Better::Higher, rows)
}

/// The expected peak, at as many warehouses as CPUs, and the actual peak. The label of the expected peak is one too high, as
/// it was in mmtests.
fn peaks(group: &Group<'_>) -> Table {
    // The parts of a case after the peak's name tell rows apart.
    let is_rate = |case: &str| case.split(',').next().is_some_and(|name| name.ends_with("Bops"));
    let rows = cases(group, PEAK).into_iter().map(|case| {
        let (better, unit) = if is_rate(&case) { (Better::Higher, "ops/s") } else { (Better::None, "warehouses") };
        let (metric, form) = (PEAK.to_owned(), Form::Hundredths);
        let line = Line { metric, case: case.clone(), stat: "", better, unit, form };
        row(group, &line, |placed| number(group, placed, (PEAK, None, &case)))
    });
    let title = format!("{} Peaks", group.experiment);
    table(group, Kind::Duration, (&title, "warehouses, ops/s"), Better::None, rows.collect())
}

/// Memory of each program at its end, by node and page size.
fn places(group: &Group<'_>) -> Table {
    let title = format!("{} Memory (GiB at the end)", group.experiment);
    table(group, Kind::Metric, (&title, "GiB"), Better::None, of_programs(group, &MEMORY))
}

/// Bytes that programs wrote, where sweeps went, and the limits that they met.
const TRAFFIC: [&str; 3] = ["wrote_gib_s", "streamed_gib_s", "limit_pct"];

/// Memory traffic of each program or point; limits that no column has met have no row.
fn traffic(group: &Group<'_>) -> Table {
    let is_met = |row: &Row| row.cells.iter().flatten().any(|value| value.value > 0.0);
    let rows = of_programs(group, &TRAFFIC).into_iter().filter(|row| row.unit != "%" || is_met(row));
    let of_row = |row: Row| {
        let name = match row.metric.split('.').next() {
            Some("wrote_gib_s") => format!("{} stores", row.stat),
            Some("limit_pct") => format!("{}-bound %", row.stat),
            _ => row.stat.clone(),
        };
        Row { operation: format!("{name} {}", row.case.trim_start_matches("warehouses=")), ..row }
    };
    let title = format!("{} Memory Traffic (GiB/s, and its limits in per cent)", group.experiment);
    table(group, Kind::Duration, (&title, "GiB/s"), Better::None, rows.map(of_row).collect())
}

/// Metrics of programs, a row for each class and program: first User of all programs, then System of all programs. In output
/// for programs, a metric with several classes is named `name.class`, like the metric of a published table.
fn of_programs(group: &Group<'_>, names: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in names {
        let (classes, cases) = (classes(group, name), cases(group, name));
        let places = classes.iter().flat_map(|class| cases.iter().map(|case| (*class, case)));
        rows.extend(places.map(|(class, case)| {
            let metric = if classes.len() == 1 { (*name).to_owned() } else { format!("{name}.{class}") };
            let better = if *name == PROGRAMS[0] { Better::Lower } else { Better::None };
            let unit = metrics(group, name).next().map_or("", |(_, metric)| metric.unit.as_str());
            let line = Line { metric, case: case.clone(), stat: class, better, unit, form: Form::Hundredths };
            row(group, &line, |placed| number(group, placed, (name, Some(class), case)))
        }));
    }
    rows.into_iter().filter(|row| row.cells.iter().any(Option::is_some)).collect()
}

fn durations(group: &Group<'_>) -> Table {
    let of_part = |(_, name, part): &(&str, &str, fn(&crate::Duration) -> u64)| {
        let of_run = |cell: &Cell| Some(part(cell.measured.duration.as_ref()?) as f64 / 1e12);
        let (metric, case) = ("time_s".to_owned(), (*name).to_owned());
        let (better, form) = (Better::None, Form::Hundredths);
        rows_of_runs(group, &Line { metric, case, stat: "", better, unit: UNIT, form }, of_run)
    };
    let rows = DURATIONS.iter().flat_map(of_part).collect();
    let title = format!("{} Duration (seconds)", group.experiment);
    table(group, Kind::Duration, (&title, "s"), Better::None, rows)
}

/// Every row that a table of counters can have.
pub(crate) fn counter_rows() -> impl Iterator<Item = &'static str> {
    vmstat::LINES.iter().map(|line| line.name)
}

fn vmstat(group: &Group<'_>) -> Table {
    let of_row = |line: &vmstat::Line| {
        let of_run = |cell: &Cell| Some((line.value)(&vmstat::Run::of(cell)));
        let (metric, case) = ("counter".to_owned(), line.name.to_owned());
        let (better, unit, form) = (Better::None, line.unit(), line.form);
        rows_of_runs(group, &Line { metric, case, stat: "", better, unit, form }, of_run)
    };
    // The 2013 posting has one row for entries that were made to fault, the 2015 posting has three.
    let has = |name: &str| group.cells.iter().any(|placed| of_name(placed.cell, name).next().is_some());
    let has_programs = has(PROGRAMS[0]) || has(BOPS);
    let is_counted =
        |line: &&vmstat::Line| group.cells.iter().any(|placed| line.is_counted(&vmstat::Run::of(placed.cell)));
    let lines = vmstat::LINES.iter().filter(|line| line.is_of(has_programs)).filter(is_counted);
    let rows = lines.flat_map(of_row).collect();
    table(group, Kind::Counters, ("", "as counted"), Better::None, rows)
}
