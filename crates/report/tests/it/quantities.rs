//! Every row has a quantity, whose gate is the only one that it passes.

use std::collections::BTreeMap;

use report::{
    Better, Cell, Duration, Key, Kind, Layout, Measured, Metric, Quantity, Report, Row, Run, SCHEMA, Table, Target,
    compare::{Comparison, FailOn, Family, Gates},
};

/// Metrics of all workloads that differ in their unit, small as they may be: name, class, unit and value.
const METRICS: [(&str, &str, &str, f64); 12] = [
    ("fault_latency_us", "fault-base", "us", 0.02),
    ("fault_latency_us", "fault-huge", "us", 0.3),
    ("fault_latency_ns", "", "ns", 0.7),
    ("thp_success_pct", "huge", "pct", 40.0),
    ("faults_per_second", "", "faults/s", 3.0),
    ("time_s", "User", "s", 0.265),
    ("time_s", "System", "s", 0.112),
    ("cpu_pct", "CPU", "%", 40.0),
    ("memory_gib", "node0-4k", "GiB", 0.25),
    ("bops", "TPut", "ops/s", 2.0),
    ("page_fault_count", "", "faults", 3.0),
    ("seconds", "", "s", 0.5),
];

/// Counters of which rows of both layouts are made.
const COUNTERS: [(&str, f64); 9] = [
    ("pgfault", 4000.0),
    ("compact_stall", 3.0),
    ("compact_migrate_scanned", 90_000.0),
    ("pgscan_kswapd", 5000.0),
    ("pgsteal_kswapd", 900.0),
    ("numa_pte_updates", 5120.0),
    ("numa_hint_faults", 4000.0),
    ("numa_hint_faults_local", 30.0),
    ("sim_host_gives_back_ns", 7.0),
];

fn cell(kernel: &str, seed: u64, times: f64) -> Cell {
    let metric = |(name, class, unit, value): &(&str, &str, &str, f64)| Metric {
        name: (*name).to_owned(),
        class: (!class.is_empty()).then(|| (*class).to_owned()),
        part: Some("1".to_owned()),
        unit: (*unit).to_owned(),
        better: Better::Lower,
        samples: vec![value * times],
    };
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    let counter = |(name, value): &(&str, f64)| ((*name).to_owned(), (value * times).round() as i64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    let ps = |seconds: f64| (seconds * times * 1e12) as u64;
    let duration = Duration { user_ps: ps(0.003), system_ps: ps(0.265), elapsed_ps: ps(0.4) };
    Cell {
        schema: SCHEMA,
        key: Key {
            result: None,
            experiment: "e".into(),
            group: None,
            workload: "w".into(),
            case: "c".into(),
            params: BTreeMap::new(),
            variant: kernel.into(),
            machine: "m".into(),
            state: "fresh".into(),
            target: Target::Sim,
            kernel: kernel.into(),
            seed,
            program: "p".into(),
        },
        measured: Measured {
            metrics: METRICS.iter().map(metric).collect(),
            counters: COUNTERS.iter().map(counter).collect(),
            duration: Some(duration),
            ..Measured::nothing()
        },
        series: None,
        map: None,
        slow_path: None,
        footprint: None,
        run: Run {
            date: "2026-01-02T03:04:05Z".into(),
            wall_s: 1.0,
            boot_s: None,
            host: "h".into(),
            commit: "c".into(),
            max_rss_kib: 1,
        },
    }
}

/// All tables of both layouts, of a kernel beside one that takes 28 % more of everything.
fn reports() -> [Report; 2] {
    let noise = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002];
    let column = |kernel: &'static str, times: f64| {
        (1..).zip(noise).map(move |(seed, noise)| cell(kernel, seed, times * noise)).collect::<Vec<Cell>>()
    };
    let cells = [column("old", 1.0), column("new", 1.28)].concat();
    [Layout::Head, Layout::Classic].map(|layout| Report::with_all_counters(layout, &cells))
}

const TIMES: [&str; 6] =
    ["fault_latency_us", "fault_latency_ns", "time_s", "seconds", "duration", "sim_host_gives_back_ns"];

/// The quantity of a row, by its name.
fn expected(table: &Table, row: &Row) -> Quantity {
    let name = row.metric.split('.').next().unwrap_or_default();
    let ends = |ends: &[&str]| ends.iter().any(|end| row.case.ends_with(end));
    match (table.kind, name) {
        _ if row.stat == "CoeffVar" => Quantity::Share,
        (_, name) if TIMES.contains(&name) => Quantity::Time,
        (_, "thp_success_pct" | "cpu_pct") => Quantity::Share,
        (_, "faults_per_second" | "bops") => Quantity::Rate,
        (_, "memory_gib" | "numa_cost_million_words" | "numa_hint_faults_per_mark") => Quantity::Amount,
        (Kind::Counters, _) if ends(&["efficiency", "percent", "Percentage direct scans"]) => Quantity::Share,
        (Kind::Counters, _) if ends(&["velocity"]) => Quantity::Rate,
        (Kind::Counters, _) if ends(&["cost", "per mark"]) => Quantity::Amount,
        _ => Quantity::Count,
    }
}

#[test]
fn every_row_has_the_quantity_of_its_unit_and_its_gate_alone() {
    let gates = Gates::default();
    let mut seen = 0;
    for report in reports() {
        for (table, row) in report.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row))) {
            assert_eq!(row.quantity(), expected(table, row), "{} {} in {}", row.metric, row.case, row.unit);
        }
        for row in Comparison::of(&report, gates).rows {
            let change = row.difference().abs();
            if change <= 0.2 * row.old {
                continue;
            }
            let gate = match row.quantity {
                Quantity::Count => gates.count,
                Quantity::Share => gates.points,
                Quantity::Time | Quantity::Rate | Quantity::Amount => 0.0,
            };
            assert_eq!(row.verdict.is_starred(), change >= gate, "{} {}: {row:?}", row.metric, row.case);
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn seconds_of_any_size_fail_a_bound() {
    let [head, classic] = reports().map(|report| Comparison::of(&report, Gates::default()));
    for (comparison, condition) in [
        (&head, "duration:System c>5%"),
        (&head, "duration.user:c>5%"),
        (&head, "duration:Elapsed c>0.05"),
        (&classic, "time_s:System>5%"),
    ] {
        let failed = condition.parse::<FailOn>().unwrap().failed(comparison).expect(condition);
        assert!(!failed.is_empty(), "{condition}");
    }
    assert!(head.rows.iter().any(|row| row.family == Family::Counters && row.metric == "duration.system"));
}
