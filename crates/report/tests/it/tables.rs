//! Hand-written cells against the exact bytes of every renderer.

use std::collections::BTreeMap;

use report::mmtests::{checks_text, table_text};
use report::{
    Baseline, Better, Cell, Check, Duration, Key, Layout, Metric, Report, Run, SCHEMA, Target, causes, checks,
    counters, tables, to_csv, to_text,
};

fn cell(target: Target, kernel: &str, case: &str) -> Cell {
    Cell {
        schema: SCHEMA,
        key: Key {
            result: None,
            experiment: "faults".into(),
            group: None,
            workload: "fault-storm".into(),
            case: case.into(),
            params: BTreeMap::new(),
            variant: "as-found".into(),
            machine: "laptop".into(),
            state: "booted".into(),
            target,
            kernel: kernel.into(),
            seed: 1,
            program: "0123456789abcdef".into(),
        },
        measured: serde_json::from_value(serde_json::json!({
            "scored": true, "metrics": [], "counters": {}, "checks": [], "skipped": [], "detail": null,
        }))
        .expect("nothing was measured"),
        series: None,
        map: None,
        slow_path: None,
        footprint: None,
        run: Run {
            date: "2026-01-02T03:04:05Z".into(),
            wall_s: 1.5,
            boot_s: None,
            host: "builder".into(),
            commit: "abc".into(),
            max_rss_kib: 4096,
        },
    }
}

fn seeded(mut cell: Cell, seed: u64) -> Cell {
    cell.key.seed = seed;
    cell
}

fn with(mut cell: Cell, name: &str, unit: &str, better: Better, samples: &[f64]) -> Cell {
    cell.measured.metrics.push(Metric {
        name: name.into(),
        class: None,
        part: None,
        unit: unit.into(),
        better,
        samples: samples.to_vec(),
    });
    cell
}

fn latency(cell: Cell, samples: &[f64]) -> Cell {
    with(cell, "fault_latency_ns", "ns", Better::Lower, samples)
}

fn rate(cell: Cell, samples: &[f64]) -> Cell {
    with(cell, "faults_per_s", "1/s", Better::Higher, samples)
}

fn only_table(cells: &[Cell]) -> String {
    let tables = tables(cells);
    assert_eq!(tables.len(), 1, "{tables:?}");
    table_text(&tables[0])
}

/// The names of a table's rows.
fn rows(cells: &[Cell], table: usize) -> Vec<String> {
    let tables = tables(cells);
    tables[table].rows.iter().map(|row| format!("{} {} {}", row.metric, row.stat, row.operation)).collect()
}

#[test]
fn a_class_has_its_rows_together_and_a_share_is_one_percentage() {
    let classed = |mut cell: Cell, class: &str, name: &str, unit: &str, samples: &[f64]| {
        cell = with(cell, name, unit, if unit == "pct" { Better::Higher } else { Better::Lower }, samples);
        cell.measured.metrics.last_mut().unwrap().class = Some(class.into());
        cell
    };
    let threads = |case: &str| {
        let base = classed(cell(Target::Vm, "6.1", case), "fault-base", "fault_latency_us", "us", &[7.0]);
        let huge = classed(base, "fault-huge", "fault_latency_us", "us", &[3.0]);
        classed(huge, "huge", "thp_success_pct", "pct", &[50.0])
    };
    // A class that a cell has no sample of has no row of it.
    let mut third = cell(Target::Vm, "6.1", "5");
    third = classed(third, "fault-base", "fault_latency_us", "us", &[]);
    third = classed(third, "fault-huge", "fault_latency_us", "us", &[4.0]);
    let cells = [threads("1"), threads("3"), third];
    let mean = |operation: &str| format!("fault_latency_us.Amean Amean {operation}");
    let expected = ["fault-base-1", "fault-base-3", "fault-huge-1", "fault-huge-3", "fault-huge-5"].map(mean);
    assert_eq!(rows(&cells, 0), expected);
    let share = |operation: &str| format!("thp_success_pct Percentage {operation}");
    assert_eq!(rows(&cells, 1), ["huge-1", "huge-3"].map(share));
    assert_eq!(tables(&cells)[1].title, "fault-storm Percentage Faults Huge");
}

/// Fifteen and five samples with the mean, spread and extremes that
/// compare-mmtests.pl of mmtests printed for them.
const VANILLA: [f64; 15] =
    [2271., 2500., 2477., 2495., 2408., 2591., 2464., 2538., 2480., 2608., 2551., 2523., 2553., 2353., 2675.];
const PATCHED: [f64; 5] = [1675., 1888., 1694., 1792., 2019.];

#[test]
fn a_table_looks_as_mmtests_prints_it() {
    let cells = [
        latency(cell(Target::Host, "vanilla", "fault-base-1"), &VANILLA),
        latency(cell(Target::Host, "patched-v1", "fault-base-1"), &PATCHED),
    ];
    let expected = "\
fault-storm Fault Latency
                                               host                         host
                                            vanilla                   patched-v1
Min       fault-base-1           2271.00 (   0.00%)           1675.00 (  26.24%)
Amean     fault-base-1           2499.13 (   0.00%)           1813.60 (  27.43%)
Stddev    fault-base-1            100.96 (   0.00%)            142.92 ( -41.56%)
CoeffVar  fault-base-1              4.04 (   0.00%)              7.88 ( -95.07%)
P50       fault-base-1           2500.00 (   0.00%)           1792.00 (  28.32%)
P99       fault-base-1           2665.62 (   0.00%)           2013.76 (  24.45%)
Max       fault-base-1           2675.00 (   0.00%)           2019.00 (  24.52%)
BAmean.95 fault-base-1           2486.57 (   0.00%)           1762.25 (  29.13%)
unit: ns, lower is better
";
    assert_eq!(only_table(&cells), expected);
}

#[test]
fn single_samples_have_only_a_mean_row() {
    let cells = [
        latency(cell(Target::Vm, "6.1", "base-1"), &[200.0]),
        latency(cell(Target::Vm, "6.1", "base-16"), &[400.0]),
        latency(cell(Target::Vm, "6.18", "base-1"), &[150.0]),
    ];
    let expected = "\
fault-storm Fault Latency
                                        vm                           vm
                                       6.1                         6.18
Amean base-1             200.00 (   0.00%)            150.00 (  25.00%)
Amean base-16            400.00 (   0.00%)                            \x20
unit: ns, lower is better
";
    assert_eq!(only_table(&cells), expected);
}

#[test]
fn a_value_without_its_baseline_has_no_percentage() {
    let cells =
        [latency(cell(Target::Vm, "6.1", "base-1"), &[200.0]), latency(cell(Target::Vm, "6.18", "base-16"), &[150.0])];
    let text = only_table(&cells);
    let row = text.lines().find(|line| line.contains("base-16")).expect("a row");
    assert_eq!(row, format!("Amean base-16{:29}{:18.2}{:11}", "", 150.0, ""));
}

#[test]
fn rates_have_harmonic_rows() {
    // H of 2 and 6 is 3 with spread 1.5; of 40 and 60 it is 48 with spread 48 * 48 / 240.
    let cells =
        [rate(cell(Target::Host, "a", "base-1"), &[6.0, 2.0]), rate(cell(Target::Host, "b", "base-1"), &[40.0, 60.0])];
    let expected = "\
fault-storm Faults Per S
                                         host                         host
                                            a                            b
Min       base-1              2.00 (   0.00%)             40.00 (1900.00%)
Hmean     base-1              3.00 (   0.00%)             48.00 (1500.00%)
HStddev   base-1              1.50 (   0.00%)              9.60 (-540.00%)
HCoeffVar base-1             50.00 (   0.00%)             20.00 (  60.00%)
Max       base-1              6.00 (   0.00%)             60.00 ( 900.00%)
BHmean.95 base-1              6.00 (   0.00%)             60.00 ( 900.00%)
unit: 1/s, higher is better
";
    assert_eq!(only_table(&cells), expected);
}

#[test]
fn a_rate_of_zero_makes_the_table_arithmetic() {
    let cells =
        [rate(cell(Target::Host, "a", "base-1"), &[4.0, 0.0]), rate(cell(Target::Host, "b", "base-1"), &[4.0, 8.0])];
    let table = &tables(&cells)[0];
    let stats: Vec<&str> = table.rows.iter().map(|row| row.stat.as_str()).collect();
    assert_eq!(stats, ["Min", "Amean", "Stddev", "CoeffVar", "Max", "BAmean.95"]);
    assert_eq!(table.rows[1].cells[0].as_ref().map(|cell| cell.value), Some(2.0));
    assert_eq!(table.rows[4].cells[1].as_ref().map(|cell| cell.value), Some(8.0));
    // The best of two is the highest here.
    assert_eq!(table.rows[5].cells[0].as_ref().map(|cell| cell.value), Some(4.0));
}

#[test]
fn a_metric_without_direction_has_no_percentages() {
    let metric = |cell, samples: &[f64]| with(cell, "resident_kib", "KiB", Better::None, samples);
    let cells =
        [metric(cell(Target::Host, "a", "base-1"), &[10.0]), metric(cell(Target::Host, "b", "base-1"), &[20.0])];
    let expected = "\
fault-storm Resident
                          host              host
                             a                 b
Amean base-1             10.00             20.00
unit: KiB, no direction is better
";
    assert_eq!(only_table(&cells), expected);
}

#[test]
fn a_table_without_comparisons_has_no_percentages() {
    let cells = [
        latency(cell(Target::Host, "6.18", "base-1"), &[200.0, 220.0]),
        latency(cell(Target::Vm, "6.1", "base-1"), &[400.0]),
    ];
    let expected = "\
fault-storm Fault Latency
                              host                vm
                              6.18               6.1
Min       base-1            200.00            400.00
Amean     base-1            210.00            400.00
Stddev    base-1             14.14                 \x20
CoeffVar  base-1              6.73                 \x20
P50       base-1            210.00            400.00
P99       base-1            219.80            400.00
Max       base-1            220.00            400.00
BAmean.95 base-1            200.00            400.00
unit: ns, lower is better
";
    assert_eq!(only_table(&cells), expected);
    let again = latency(cell(Target::Vm, "6.12", "base-1"), &[400.0]);
    assert_eq!(only_table(&[&cells[..], &[again]].concat()).matches("0.00%)").count(), 8 + 2 * 6);
}

#[test]
fn each_target_and_machine_has_its_own_baseline() {
    let machine = |mut cell: Cell, name: &str| {
        cell.key.machine = name.into();
        cell
    };
    let on = |target, kernel, name, sample| latency(machine(cell(target, kernel, "c"), name), &[sample]);
    let cells = [
        on(Target::Host, "6.18", "laptop", 100.0),
        on(Target::Sim, "v6.18", "laptop", 80.0),
        on(Target::Host, "6.19", "laptop", 50.0),
        on(Target::Sim, "v6.19", "laptop", 60.0),
        on(Target::Host, "6.19", "server", 10.0),
    ];
    let table = &tables(&cells)[0];
    let baselines: Vec<usize> = table.columns.iter().map(|head| head.baseline).collect();
    assert_eq!(baselines, [0, 0, 0, 2, 4]);
    assert_eq!(table.columns[3].column.label(), "sim:v6.19:laptop");
    let text = table_text(table);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["laptop", "laptop", "laptop", "laptop", "server"]);
    assert_eq!(
        lines[4],
        "Amean c            100.00 (   0.00%)             80.00      x0.80             50.00 (  50.00%)\
         \x20            60.00      x1.20             10.00 (   0.00%)"
    );
}

#[test]
fn long_labels_and_percentages_widen_but_lose_nothing() {
    let cells = [
        latency(cell(Target::Host, "a", "c"), &[1.0]),
        latency(cell(Target::Host, "6.18.44-with-a-very-long-local-version", "c"), &[101.0]),
        latency(cell(Target::Host, "b", "c"), &[1e12]),
    ];
    let expected = "\
fault-storm Fault Latency
                                host                                   host                                   host
                                   a 6.18.44-with-a-very-long-local-version                                      b
Amean c              1.00 (   0.00%)                    101.00 (-10000.00%) 1000000000000.00 (-99999999999900.00%)
unit: ns, lower is better
";
    assert_eq!(only_table(&cells), expected);
}

#[test]
fn seeds_are_pooled_and_bounded_by_their_means() {
    let base = || cell(Target::Host, "6.18.44", "base-1");
    let cells = [
        latency(seeded(base(), 2), &[30.0, 50.0]), // mean 40
        latency(seeded(base(), 1), &[10.0, 10.0]), // mean 10
        latency(seeded(base(), 3), &[20.0]),       // mean 20
    ];
    let table = &tables(&cells)[0];
    let mean = table.rows[1].cells[0].as_ref().expect("a mean");
    assert_eq!(table.rows[1].metric, "fault_latency_ns.Amean");
    assert_eq!(mean.value.to_string(), "24");
    assert_eq!((mean.low, mean.high), (Some(10.5), Some(39.0)));
    assert_eq!(table.rows[0].cells[0].as_ref().expect("a minimum").low, None);

    let reversed: Vec<Cell> = cells.iter().rev().cloned().collect();
    assert_eq!(&tables(&reversed)[0], table);
}

#[test]
fn cells_that_differ_in_more_than_the_seed_are_not_pooled() {
    let aged = |mut cell: Cell| {
        cell.key.state = "aged".into();
        cell
    };
    let cells = [
        latency(cell(Target::Host, "a", "c"), &[1.0]),
        latency(aged(cell(Target::Host, "a", "c")), &[5.0]),
        latency(cell(Target::Host, "a", "d"), &[2.0]),
    ];
    let table = &tables(&cells)[0];
    let operations: Vec<&str> = table.rows.iter().map(|row| row.operation.as_str()).collect();
    assert_eq!(operations, ["c,state=booted", "c,state=aged", "d"]);
    assert_eq!(table.rows[0].cells[0].as_ref().map(|cell| cell.value), Some(1.0));
}

#[test]
fn metrics_of_the_same_name_but_another_unit_do_not_mix() {
    let cells = [
        with(cell(Target::Host, "a", "c"), "x", "ns", Better::Lower, &[1.0]),
        with(cell(Target::Host, "b", "c"), "x", "us", Better::Lower, &[1.0]),
    ];
    let tables = tables(&cells);
    let units: Vec<&str> = tables.iter().map(|table| table.unit.as_str()).collect();
    assert_eq!(units, ["ns", "us"]);
    assert_eq!(tables[0].rows[0].cells[1], None);
}

fn moved(mut cell: Cell, counters: &[(&str, i64)]) -> Cell {
    cell.measured.counters = counters.iter().map(|(name, moved)| ((*name).to_owned(), *moved)).collect();
    cell
}

#[test]
fn counters_that_moved_are_listed_without_percentages() {
    let cells = [
        moved(cell(Target::Host, "6.18", "base-1"), &[("pgfault", 4096), ("nr_dirty", -3), ("nr_free_pages", -12)]),
        moved(cell(Target::Host, "6.18", "base-16"), &[("pgfault", 5), ("nr_free_pages", 0)]),
        moved(seeded(cell(Target::Host, "6.18", "base-16"), 2), &[("pgfault", 6), ("nr_free_pages", 0)]),
        moved(cell(Target::Sim, "v6.18", "base-1"), &[("pgfault", 4000)]),
    ];
    let tables = counters(&cells, 10);
    assert_eq!(tables.len(), 1);
    let expected = "\
fault-storm Counters
                                    host            sim
                                    6.18          v6.18
Ops nr_free_pages base-1          -12.00              \x20
Ops nr_free_pages base-16           0.00              \x20
Ops pgfault base-1               4096.00        4000.00
Ops pgfault base-16                 5.50              \x20
unit: movement of the counter per run, no direction is better
";
    assert_eq!(table_text(&tables[0]), expected);
    assert_eq!(counters(&cells, 5000), []);
    assert_eq!(counters(&cells, 12)[0].rows.len(), 4);
    assert_eq!(counters(&cells, 13)[0].rows.len(), 2);
}

#[test]
fn gauges_are_listed_however_little_they_moved() {
    let mut cell = moved(cell(Target::Sim, "v6.18", "base-1"), &[("pgfault", 4000), ("pgsteal", 5)]);
    cell.measured.gauges.insert("nr_page_table_pages".into(), 3);
    let tables = counters(&[cell], 400);
    let rows: Vec<_> = tables[0].rows.iter().map(|row| row.metric.as_str()).collect();
    assert_eq!(rows, ["nr_page_table_pages", "pgfault"]);
}

fn checked(mut cell: Cell, found: u64, within: bool) -> Cell {
    let tolerance = "±1 %".to_owned();
    cell.measured.checks.push(Check { name: "pgfault".into(), expected: 4096, found, tolerance, within });
    cell
}

#[test]
fn checks_show_the_run_furthest_off_and_failures_first() {
    let cells = [
        checked(cell(Target::Host, "6.18", "base-1"), 4097, true),
        checked(cell(Target::Host, "6.18", "base-16"), 4096, true),
        checked(seeded(cell(Target::Host, "6.18", "base-16"), 2), 2048, false),
        checked(cell(Target::Sim, "v6.18", "base-1"), 0, false),
    ];
    let expected = "\
fault-storm Checks
case     check    column     expected  found  difference  tolerance  within
base-1   pgfault  sim v6.18      4096      0    -100.00%  ±1 %       no
base-16  pgfault  host 6.18      4096   2048     -50.00%  ±1 %       no (1 of 2 runs)
base-1   pgfault  host 6.18      4096   4097       0.02%  ±1 %       yes
unit: as counted, of the run furthest off; found should equal expected
";
    assert_eq!(checks_text(&checks(&cells)[0]), expected);
}

#[test]
fn csv_has_every_value_and_its_labels() {
    let base = || cell(Target::Host, "6.18.44", "base-1");
    let cells = [
        checked(moved(latency(base(), &[10.0]), &[("pgfault", 4096)]), 4096, true),
        latency(seeded(base(), 2), &[20.0]),
        latency(cell(Target::Sim, "v6.18, tuned", "base-1"), &[12.5]),
    ];
    let expected = "\
experiment,metric,case,kernel,value,low,high,seed
faults,fault_latency_ns.Min,base-1,host:6.18.44:laptop,10,,,
faults,fault_latency_ns.Min,base-1,\"sim:v6.18, tuned:laptop\",12.5,,,
faults,fault_latency_ns.Amean,base-1,host:6.18.44:laptop,15,10.25,19.75,
faults,fault_latency_ns.Amean,base-1,\"sim:v6.18, tuned:laptop\",12.5,,,
faults,fault_latency_ns.Stddev,base-1,host:6.18.44:laptop,7.0710678118654755,,,
faults,fault_latency_ns.CoeffVar,base-1,host:6.18.44:laptop,47.14045207910317,,,
faults,fault_latency_ns.Max,base-1,host:6.18.44:laptop,20,,,
faults,fault_latency_ns.Max,base-1,\"sim:v6.18, tuned:laptop\",12.5,,,
faults,fault_latency_ns.BAmean.95,base-1,host:6.18.44:laptop,10,,,
faults,fault_latency_ns.BAmean.95,base-1,\"sim:v6.18, tuned:laptop\",12.5,,,
faults,pgfault,base-1,host:6.18.44:laptop,4096,,,
faults,check.pgfault.expected,base-1,host:6.18.44:laptop,4096,,,
faults,check.pgfault.found,base-1,host:6.18.44:laptop,4096,,,
faults,check.pgfault.within,base-1,host:6.18.44:laptop,1,,,
faults,check.pgfault.cells,base-1,host:6.18.44:laptop,1,,,
";
    assert_eq!(to_csv(&Report::new(&cells, 1), &[], &[]), expected);
}

#[test]
fn csv_has_the_values_of_each_seed_too() {
    let base = || cell(Target::Host, "6.18.44", "base-1");
    let cells = [
        moved(latency(base(), &[10.0]), &[("pgfault", 4096), ("compact_stall", 3)]),
        moved(latency(seeded(base(), 2), &[20.0]), &[("pgfault", 1)]),
    ];
    let by_seed = [(1, Report::new(&cells[..1], 0)), (2, Report::new(&cells[1..], 0))];
    let csv = to_csv(&Report::new(&cells, 5), &by_seed, &[]);
    let of = |seed: &str| {
        let lines = csv.lines().filter(|line| line.rsplit(',').next() == Some(seed));
        let values =
            lines.map(|line| line.split(',').collect::<Vec<_>>()).map(|line| format!("{} {}", line[1], line[4]));
        values
            .filter(|value| value.starts_with("fault_latency_ns.Amean") || !value.starts_with("fault_latency"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(""), ["fault_latency_ns.Amean 15", "pgfault 2048.5"]);
    // Each seed has the values that all seeds together have, and no other.
    assert_eq!(of("1"), ["fault_latency_ns.Amean 10", "pgfault 4096"]);
    assert_eq!(of("2"), ["fault_latency_ns.Amean 20", "pgfault 1"]);
}

#[test]
fn csv_calls_a_column_the_same_whatever_else_is_there() {
    let here = checked(latency(cell(Target::Host, "6.18.44", "base-1"), &[10.0]), 4096, true);
    let mut there = here.clone();
    there.key.machine = "server".into();
    let names = |cells: &[Cell]| {
        let csv = to_csv(&Report::new(cells, 1), &[], &[]);
        let names = csv.lines().skip(1).map(|line| line.split(',').nth(3).expect("a kernel").to_owned());
        names.collect::<std::collections::BTreeSet<String>>()
    };
    assert_eq!(names(std::slice::from_ref(&here)), ["host:6.18.44:laptop".to_owned()].into());
    let both = ["host:6.18.44:laptop", "host:6.18.44:server"].map(str::to_owned);
    assert_eq!(names(&[here, there]), both.into());
}

#[test]
fn json_is_the_tables_as_they_are() {
    let cells = [latency(cell(Target::Host, "6.18.44", "base-1"), &[10.0])];
    let json = serde_json::to_value(Report::new(&cells, 1)).expect("JSON");
    let table = &json["tables"][0];
    assert_eq!(table["title"], "fault-storm Fault Latency");
    assert_eq!(table["unit"], "ns");
    assert_eq!(table["better"], "lower");
    assert_eq!(table["columns"][0]["lines"], serde_json::json!(["host", "6.18.44"]));
    let column = serde_json::json!({ "target": "host", "kernel": "6.18.44", "machine": "laptop" });
    assert_eq!(table["columns"][0]["column"], column);
    assert_eq!(table["rows"][0]["cells"][0]["value"], 10.0);
}

#[test]
fn a_report_separates_its_tables_by_one_blank_line() {
    let cells = [checked(latency(cell(Target::Host, "a", "c"), &[1.0]), 4096, true)];
    let text = to_text(&Report::new(&cells, 1));
    assert_eq!(text.matches("\n\n").count(), 1);
    assert!(text.contains("lower is better\n\nfault-storm Checks\n"), "{text}");
    assert_eq!(to_text(&Report::new(&[], 1)), "");
}

#[test]
fn titles_name_the_experiment_only_where_there_are_several() {
    let other = |mut cell: Cell| {
        cell.key.experiment = "more-faults".into();
        cell
    };
    let one = latency(cell(Target::Host, "a", "c"), &[1.0]);
    assert_eq!(tables(std::slice::from_ref(&one))[0].title, "fault-storm Fault Latency");
    let two = tables(&[one.clone(), other(one)]);
    assert_eq!(two[0].title, "faults fault-storm Fault Latency");
    assert_eq!(two[1].title, "more-faults fault-storm Fault Latency");
}

fn spent(mut cell: Cell, causes: &[(&str, u64)]) -> Cell {
    cell.measured.causes = causes.iter().map(|(name, ms)| ((*name).to_owned(), ms * 1_000_000_000)).collect();
    cell
}

#[test]
fn causes_are_shares_of_each_column_and_blank_where_nobody_knows() {
    let cells = [
        cell(Target::Host, "6.1", "base"),
        spent(cell(Target::Sim, "v6.1", "base"), &[("clear", 1), ("user", 2), ("waiting: run queue", 5)]),
        spent(seeded(cell(Target::Sim, "v6.1", "base"), 2), &[("clear", 8), ("waiting: run queue", 4)]),
        spent(cell(Target::Sim, "v6.2", "base"), &[("user", 1)]),
    ];
    let mut report = Report::new(&cells, 1);
    assert_eq!(report.tables, [], "not unless asked for");
    report.tables = causes(&cells);
    let text = "\
fault-storm Time by Cause
                                            host                       sim                       sim
                                             6.1                      v6.1                      v6.2
All     base total                                        10.00 ( 100.00%)           1.00 ( 100.00%)
CPU     base clear                                         4.50 (  45.00%)           0.00 (   0.00%)
Waiting base run queue                                     4.50 (  45.00%)           0.00 (   0.00%)
CPU     base user                                          1.00 (  10.00%)           1.00 ( 100.00%)
unit: ms per run of all tasks and kernel threads, start to end (share); Waiting is time without a CPU, no direction is better
";
    assert_eq!(to_text(&report), text);
    let csv = to_csv(&report, &[], &[]);
    let lines: Vec<&str> = csv.lines().filter(|line| line.contains("v6.1")).collect();
    let expected = [
        "faults,causes.total,base,sim:v6.1:laptop,10,,,",
        "faults,causes.total.share,base,sim:v6.1:laptop,100,,,",
        "faults,cpu.clear,base,sim:v6.1:laptop,4.5,,,",
        "faults,cpu.clear.share,base,sim:v6.1:laptop,45,,,",
        "faults,waiting.run queue,base,sim:v6.1:laptop,4.5,,,",
        "faults,waiting.run queue.share,base,sim:v6.1:laptop,45,,,",
        "faults,cpu.user,base,sim:v6.1:laptop,1,,,",
        "faults,cpu.user.share,base,sim:v6.1:laptop,10,,,",
    ];
    assert_eq!(lines, expected);
    assert!(!csv.contains("host"), "{csv}");
}

#[test]
fn durations_stand_between_metrics_and_counters_as_in_mmtests() {
    let took = |mut cell: Cell, seconds: [u64; 3]| {
        let [user_ps, system_ps, elapsed_ps] = seconds.map(|seconds| seconds * 1_000_000_000_000);
        cell.measured.duration = Some(Duration { user_ps, system_ps, elapsed_ps });
        cell.measured.counters.insert("pgfault".to_owned(), 7);
        latency(cell, &[1.0])
    };
    let cells = [
        took(cell(Target::Vm, "vanilla", "base"), [12, 230, 58]),
        took(seeded(cell(Target::Vm, "vanilla", "base"), 2), [13, 230, 58]),
        took(cell(Target::Vm, "patched-v1", "base"), [13, 210, 55]),
        // From before durations were kept.
        cell(Target::Vm, "vanilla", "huge"),
    ];
    let report = Report::new(&cells, 1);
    let titles: Vec<&str> = report.tables.iter().map(|table| table.title.as_str()).collect();
    assert_eq!(titles, ["fault-storm Fault Latency", "fault-storm Duration", "fault-storm Counters"]);
    let text = "\
fault-storm Duration
                                     vm                vm
                                vanilla        patched-v1
Duration User base                12.50             13.00
Duration System base             230.00            210.00
Duration Elapsed base             58.00             55.00
unit: s per run, User and System of all tasks together, no direction is better
";
    assert_eq!(table_text(&report.tables[1]), text);
    assert_eq!(report.tables[1].rows[0].cells[0].as_ref().and_then(|value| value.low), Some(12.025));
}

/// A cell of one of several results.
fn of_result(result: &str, mut cell: Cell) -> Cell {
    cell.key.result = Some(result.to_owned());
    cell
}

#[test]
fn two_results_are_compared_with_the_chosen_column() {
    let one = |result, samples: &[f64]| of_result(result, latency(cell(Target::Sim, "v6.1", "base"), samples));
    let cells = [one("old", &[100.0]), one("new", &[80.0])];
    let csv = to_csv(&Report::new(&cells, 1), &[], &[]);
    for (column, value) in [("old:sim:v6.1:", ",100,"), ("new:sim:v6.1:", ",80,")] {
        let is_its = |line: &&str| line.contains(column) && line.contains(value);
        assert!(csv.lines().any(|line| is_its(&line)), "{column} {value} in\n{csv}");
    }
    let baselines = |report: &Report| report.tables[0].columns.iter().map(|head| head.baseline).collect::<Vec<_>>();
    assert_eq!(baselines(&Report::new(&cells, 1)), [0, 1], "each is compared within its result");
    for (asked, expected, change) in [(0, [0, 0], "20.00%"), (1, [1, 1], "-25.00%")] {
        let report = Report::against(&Baseline::Column(cells[asked].key.column()), Layout::Head, &cells, 1);
        let text = to_text(&report);
        assert!(baselines(&report) == expected && text.contains(change), "{change} in\n{text}");
    }
}
