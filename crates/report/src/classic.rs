//! The tables of mmtests in 2015, of workloads whose every run is a whole run of mmtests: all operations in one cell,
//! counters and times of everything together.
//!
//! Rows and their order are those of "Outsourcing page fault THP allocations to khugepaged" (RFC, 2015). A value is the mean
//! over seeds of what one run shows: its low and high are the 2.5 and 97.5 percent points of those.

mod vmstat;

use std::collections::BTreeMap;

use crate::{
    duration::ROWS as DURATIONS,
    extfrag,
    group::{Group, distinct, mean_over_seeds},
    record::{Better, Cell, Metric},
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
            memory(group),
            durations(group),
        ];
        first.into_iter().chain(extfrag::table(group)).chain([vmstat(group)]).collect::<Vec<Table>>()
    };
    let tables = groups.iter().flat_map(of_group);
    Report {
        layout: Layout::Classic,
        tables: tables.filter(|table| !table.rows.is_empty()).collect(),
        checks: Vec::new(),
    }
}

/// One row: what a run shows of it, if anything.
struct Line<'a> {
    metric: String,
    case: String,
    stat: &'a str,
    better: Better,
    form: Form,
}

fn row(group: &Group<'_>, line: Line<'_>, of_run: impl Fn(&Cell) -> Option<f64>) -> Row {
    let value = |column: usize| {
        let mut of_seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for placed in group.cells.iter().filter(|placed| placed.column == column) {
            let seed = of_seeds.entry(placed.cell.key.seed).or_default();
            seed.extend(of_run(placed.cell));
        }
        // By seed: sums must not depend on the order in which cells finished.
        mean_over_seeds(&of_seeds)
    };
    Row {
        metric: line.metric,
        operation: line.case.clone(),
        case: line.case,
        stat: line.stat.to_owned(),
        better: line.better,
        form: line.form,
        cells: (0..group.columns.len()).map(value).collect(),
    }
}

fn table(group: &Group<'_>, kind: Kind, (title, unit): (&str, &str), better: Better, rows: Vec<Row>) -> Table {
    Table {
        experiment: group.experiment.to_owned(),
        title: title.to_owned(),
        kind,
        unit: unit.to_owned(),
        better,
        columns: group.columns.clone(),
        rows,
    }
}

const LATENCY: &str = "fault_latency_us";
/// Which latencies have rows, in the order of 2015.
const CLASSES: [&str; 2] = ["fault-base", "fault-huge"];

fn of_name<'a>(cell: &'a Cell, name: &str) -> impl Iterator<Item = &'a Metric> {
    let name = name.to_owned();
    cell.measured.metrics.iter().filter(move |metric| metric.name == name)
}

/// The parts of all cells, such as their thread counts, in order of first appearance.
fn parts<'a>(group: &'a Group<'_>) -> Vec<&'a str> {
    let metrics = group.cells.iter().flat_map(|placed| of_name(placed.cell, LATENCY));
    distinct(metrics.filter_map(|metric| metric.part.as_deref()))
}

/// The statistic that is shown of the samples of one run.
type Statistic = fn(&[f64]) -> Option<f64>;

/// The blocks of rows: their name, the metric that programs find them under, and what they show.
const BLOCKS: [(&str, &str, Statistic); 5] = [
    ("Min", "fault_latency_us.Min", |samples| stats::min(samples)),
    ("Amean", "fault_latency_us.Amean", |samples| stats::amean(samples)),
    ("Stddev", "fault_latency_us.Stddev", |samples| stats::stddev(samples)),
    ("CoeffVar", "fault_latency_pct.CoeffVar", |samples| {
        let spread = Spread { mean: stats::amean(samples)?, stddev: stats::stddev(samples) };
        stats::coeff_var(spread)
    }),
    ("Max", "fault_latency_us.Max", |samples| stats::max(samples)),
];

/// Of an operation that no run had, a row of zeroes, as mmtests prints it. A run that had none says nothing otherwise.
fn or_zero(row: Row) -> Row {
    Row { cells: row.cells.into_iter().map(|cell| cell.or_else(|| Some(Value::default()))).collect(), ..row }
}

fn latencies(group: &Group<'_>) -> Table {
    let parts = parts(group);
    let mut rows = Vec::new();
    for (stat, metric, statistic) in BLOCKS {
        for class in CLASSES {
            rows.extend(parts.iter().map(|part| {
                let of_run = |cell: &Cell| {
                    let mut found = of_name(cell, LATENCY)
                        .filter(|found| (found.class.as_deref(), found.part.as_deref()) == (Some(class), Some(part)));
                    statistic(&found.next()?.samples)
                };
                let (metric, case) = (metric.to_owned(), format!("{class}-{part}"));
                let line = Line { metric, case, stat, better: Better::Lower, form: Form::Hundredths };
                or_zero(row(group, line, of_run))
            }));
        }
    }
    let title = format!("{} Fault Latencies (microseconds)", group.experiment);
    table(group, Kind::Metric, (&title, "us"), Better::Lower, rows)
}

fn shares(group: &Group<'_>) -> Table {
    const SHARE: &str = "thp_success_pct";
    let of_part = |part: &&str| {
        let of_run = |cell: &Cell| {
            let found = of_name(cell, SHARE).find(|found| found.part.as_deref() == Some(*part))?;
            found.samples.first().copied()
        };
        let (metric, case) = (SHARE.to_owned(), format!("huge-{part}"));
        let line = Line { metric, case, stat: "Percentage", better: Better::Higher, form: Form::Hundredths };
        row(group, line, of_run)
    };
    let rows = parts(group).iter().map(of_part).collect();
    let title = format!("{} Percentage Faults Huge", group.experiment);
    table(group, Kind::Metric, (&title, "pct"), Better::Higher, rows)
}

/// Metrics of single programs, of which a run has several (autonumabench).
const PROGRAMS: [&str; 2] = ["time_s", "cpu_pct"];
/// Where their memory ended.
const MEMORY: [&str; 1] = ["memory_gib"];

/// User, System and Elapsed of each program, as time(1) says them.
fn programs(group: &Group<'_>) -> Table {
    let of_row = |row: Row| Row { operation: format!("{}-{}", row.stat, row.case), ..row };
    let rows = of_programs(group, &PROGRAMS).into_iter().map(of_row).collect();
    let title = format!("{} Programs (seconds, and per cent of a CPU)", group.experiment);
    table(group, Kind::Duration, (&title, "s"), Better::None, rows)
}

/// Business operations of warehouses by their number, and the number with most of them.
const BOPS: &str = "bops";
const PEAK: &str = "peak";

/// Throughput by warehouses; with several JVMs its mean and deviation over them before it.
fn bops(group: &Group<'_>) -> Table {
    let metrics = || group.cells.iter().flat_map(|placed| of_name(placed.cell, BOPS));
    let parts = distinct(metrics().filter_map(|metric| metric.part.as_deref()));
    let mut rows = Vec::new();
    for class in distinct(metrics().filter_map(|metric| metric.class.as_deref())) {
        rows.extend(parts.iter().map(|part| {
            let found = |cell: &Cell| {
                let place = (Some(class), Some(*part));
                let mut all = of_name(cell, BOPS);
                all.find(|found| (found.class.as_deref(), found.part.as_deref()) == place)?.samples.first().copied()
            };
            let better = if class == "Stddev" { Better::Lower } else { Better::Higher };
            let (metric, case) = (format!("{BOPS}.{class}"), (*part).to_owned());
            let row = row(group, Line { metric, case, stat: class, better, form: Form::Hundredths }, found);
            Row { operation: format!("{class} {}", part.trim_start_matches("warehouses=")), ..row }
        }));
    }
    let title = format!("{} (business operations per second by warehouses)", group.experiment);
    table(group, Kind::Duration, (&title, "ops/s"), Better::Higher, rows)
}

/// The peak that is expected, at as many warehouses as CPUs, and the actual one; its label is one too high, as mmtests had it.
fn peaks(group: &Group<'_>) -> Table {
    let metrics = group.cells.iter().flat_map(|placed| of_name(placed.cell, PEAK));
    let rows = distinct(metrics.filter_map(|metric| metric.part.as_deref())).into_iter().map(|part| {
        let found = |cell: &Cell| {
            of_name(cell, PEAK).find(|found| found.part.as_deref() == Some(part))?.samples.first().copied()
        };
        let better = if part.ends_with("Bops") { Better::Higher } else { Better::None };
        let (metric, case) = (PEAK.to_owned(), part.to_owned());
        row(group, Line { metric, case, stat: "", better, form: Form::Hundredths }, found)
    });
    let title = format!("{} Peaks", group.experiment);
    table(group, Kind::Duration, (&title, "warehouses, ops/s"), Better::None, rows.collect())
}

/// Where the memory of each program ended, by node and page size.
fn memory(group: &Group<'_>) -> Table {
    let title = format!("{} Memory (GiB at the end)", group.experiment);
    table(group, Kind::Metric, (&title, "GiB"), Better::None, of_programs(group, &MEMORY))
}

/// Metrics of programs, a row for each class and program: all programs' User, then all their System. A metric with several
/// classes is `name.class` for programs that read tables, as that of a published table is.
fn of_programs(group: &Group<'_>, names: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in names {
        let metrics = || group.cells.iter().flat_map(|placed| of_name(placed.cell, name));
        let classes = distinct(metrics().filter_map(|metric| metric.class.as_deref()));
        let parts = distinct(metrics().filter_map(|metric| metric.part.as_deref()));
        let places = classes.iter().flat_map(|class| parts.iter().map(|part| (*class, *part)));
        rows.extend(places.map(|(class, part)| {
            let found = |cell: &Cell| {
                let mut all = of_name(cell, name);
                let place = (Some(class), Some(part));
                all.find(|found| (found.class.as_deref(), found.part.as_deref()) == place)?.samples.first().copied()
            };
            let metric = if classes.len() == 1 { (*name).to_owned() } else { format!("{name}.{class}") };
            let better = if *name == PROGRAMS[0] { Better::Lower } else { Better::None };
            row(group, Line { metric, case: part.to_owned(), stat: class, better, form: Form::Hundredths }, found)
        }));
    }
    rows.into_iter().filter(|row| row.cells.iter().any(Option::is_some)).collect()
}

fn durations(group: &Group<'_>) -> Table {
    let of_part = |(_, name, part): &(&str, &str, fn(&crate::Duration) -> u64)| {
        let of_run = |cell: &Cell| Some(part(cell.measured.duration.as_ref()?) as f64 / 1e12);
        let (metric, case) = ("time_s".to_owned(), (*name).to_owned());
        row(group, Line { metric, case, stat: "", better: Better::None, form: Form::Hundredths }, of_run)
    };
    let rows = DURATIONS.iter().map(of_part).collect();
    let title = format!("{} Duration (seconds)", group.experiment);
    table(group, Kind::Duration, (&title, "s"), Better::None, rows)
}

fn vmstat(group: &Group<'_>) -> Table {
    let of_row = |line: &vmstat::Line| {
        let of_run = |cell: &Cell| Some((line.value)(&vmstat::Run::of(cell)));
        let (metric, case) = ("counter".to_owned(), line.name.to_owned());
        row(group, Line { metric, case, stat: "", better: Better::None, form: line.form }, of_run)
    };
    // The posting of 2013 has one row for entries that were made to fault, those of 2015 have three.
    let has = |name: &str| group.cells.iter().any(|placed| of_name(placed.cell, name).next().is_some());
    let has_programs = has(PROGRAMS[0]) || has(BOPS);
    let is_counted =
        |line: &&vmstat::Line| group.cells.iter().any(|placed| line.is_counted(&vmstat::Run::of(placed.cell)));
    let lines = vmstat::LINES.iter().filter(|line| line.is_of(has_programs)).filter(is_counted);
    let rows = lines.map(of_row).collect();
    table(group, Kind::Counters, ("", "as counted"), Better::None, rows)
}
