//! Rows of tables, of cells of every experiment that are planned and were not run: each case has its own, under a name that no
//! other has, in every renderer.

use std::collections::{BTreeMap, BTreeSet};

use linux::qemu::Accelerator;
use report::{
    Better, Cell, Duration, Extfrag, ExtfragEvents, Key, Layout, Measured, Memory, Metric, Report, Run, SCHEMA, Target,
    WindowEvents,
    compare::{
        Axis, Compared, Comparison, Gates, Grid, Sweep, compare_csv, compare_text, ladder_text, noise, noise_text,
        sweep_text,
    },
    to_csv, to_short, to_text,
};
use units::{ExtfragClass, ExtfragKind, Mobility, Order};

use super::html::{all_columns, causes, distributions};
use crate::{
    evidence,
    experiment::Experiment,
    plan::{Plan, Request, Seeds},
    source::{self, Kind},
};

fn experiments() -> Vec<Experiment> {
    source::names(Kind::Experiment).iter().map(|name| Experiment::load(name).expect("a built-in one")).collect()
}

/// The layout of an experiment, and its simulated cells with one seed.
fn planned(experiment: &Experiment) -> (Layout, Vec<Key>) {
    planned_with(experiment, &[])
}

/// The layout and the cells where some parameters are set.
fn planned_with(experiment: &Experiment, sets: &[&str]) -> (Layout, Vec<Key>) {
    let request =
        evidence::request(experiment.name.clone(), Vec::new(), Seeds::up_to(1), Some(1), std::path::PathBuf::new());
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let request = Request { targets: vec![Target::Sim], sets, ..request };
    let plan = Plan::new(&request, |_| Accelerator::Tcg).expect("it can be planned");
    let keys: Vec<Key> = plan.sessions.into_iter().flat_map(|session| session.keys).collect();
    assert!(!keys.is_empty(), "{}", experiment.name);
    (experiment.layout, keys)
}

/// Metrics that workloads have, by name, class, part and unit. The cells of every workload get all these metrics.
const METRICS: [(&str, Option<&str>, Option<&str>, &str); 14] = [
    ("fault_latency_ns", None, None, "ns"),
    ("fault_latency_us", Some("fault-base"), Some("3"), "us"),
    ("fault_latency_us", Some("fault-huge"), Some("3"), "us"),
    ("init_latency_us", Some("anoninit"), None, "us"),
    ("thp_success_pct", Some("hour"), Some("3-4"), "pct"),
    ("mixed_pageblocks_pct", Some("hour"), Some("3-4"), "pct"),
    ("time_s", Some("User"), Some("NUMA01"), "s"),
    ("time_s", Some("System"), Some("NUMA01"), "s"),
    ("cpu_pct", Some("CPU"), Some("NUMA01"), "%"),
    ("memory_gib", Some("node0-4k"), Some("NUMA01"), "GiB"),
    ("bops", Some("TPut"), Some("warehouses=1"), "ops/s"),
    ("peak", None, Some("Peak Bops"), "ops/s"),
    ("page_fault2.iterations", None, Some("tasks=1"), "1/s"),
    ("faults_per_second", None, None, "faults/s"),
];

/// Counters of long and of like names.
const COUNTERS: [&str; 4] = ["pgfault", "sim_nr_tlb_remote_flush", "sim_nr_tlb_remote_flush_received", "numa_hit"];

/// A cell whose numbers follow from one.
fn cell(key: &Key, number: u32) -> Cell {
    let (count, count_of_events) = (i64::from(number), u64::from(number));
    let number = f64::from(number);
    let metric = |(name, class, part, unit): (&str, Option<&str>, Option<&str>, &str)| Metric {
        name: name.to_owned(),
        class: class.map(str::to_owned),
        part: part.map(str::to_owned),
        unit: unit.to_owned(),
        better: if unit.ends_with("/s") || unit == "pct" { Better::Higher } else { Better::Lower },
        samples: (0..9).map(|sample| number * (1.0 + 0.01 * f64::from(sample))).collect(),
    };
    let kind = ExtfragKind {
        alloc_type: Mobility::Unmovable,
        fallback_type: Mobility::Movable,
        alloc_order: Order(0),
        fallback_order: Order(3),
        change_ownership: false,
    };
    let class: ExtfragClass = kind.class(Order(9));
    let measured = Measured {
        scored: true,
        metrics: METRICS.map(metric).into(),
        counters: COUNTERS.iter().map(|name| ((*name).to_owned(), count)).collect(),
        gauges: BTreeMap::new(),
        duration: Some(Duration {
            user_ps: count_of_events << 40,
            system_ps: count_of_events << 39,
            elapsed_ps: count_of_events << 38,
        }),
        causes: [("copy".to_owned(), count_of_events), ("waiting: disk".to_owned(), count_of_events)].into(),
        extfrag: Some(Extfrag {
            pageblock_order: Order(9),
            lost: 0,
            events: vec![ExtfragEvents { kind, fragmenting: true, count: count_of_events }],
            window: vec![WindowEvents { class, count: count_of_events }],
        }),
        memory: Some(Memory { free_least: count_of_events, ..Memory::default() }),
        checks: Vec::new(),
        skipped: Vec::new(),
        detail: serde_json::Value::Null,
    };
    let run = Run {
        date: "2026-01-02T03:04:05Z".into(),
        wall_s: 1.0,
        boot_s: None,
        host: "h".into(),
        commit: "c".into(),
        max_rss_kib: 1,
    };
    let key = key.clone();
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run }
}

/// All values of a report by table, metric and column, in order of size.
fn values(layout: Layout, cells: &[Cell]) -> BTreeMap<(String, String, String), Vec<f64>> {
    let mut report = Report::of_layout(layout, cells, 0);
    report.tables.extend(report::causes(cells));
    let mut values: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for table in &report.tables {
        for row in &table.rows {
            for (head, value) in table.columns.iter().zip(&row.cells) {
                let place = (table.title.clone(), row.metric.clone(), head.column.label());
                values.entry(place).or_default().extend(value.as_ref().map(|value| value.value));
            }
        }
    }
    for values in values.values_mut() {
        values.sort_by(f64::total_cmp);
    }
    values
}

/// Asserts that two cells have rows of their own.
fn assert_apart(layout: Layout, one: &Key, other: &Key, what: &str) {
    let (one, other) = (cell(one, 1000), cell(other, 3000));
    let mut expected = values(layout, std::slice::from_ref(&one));
    for (place, more) in values(layout, std::slice::from_ref(&other)) {
        let all = expected.entry(place).or_default();
        all.extend(more);
        all.sort_by(f64::total_cmp);
    }
    let found = values(layout, &[one, other]);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (place, expected) in expected {
        assert_eq!(found[&place], expected, "{what}: {place:?}");
    }
}

/// Changes a key into another one.
type Change = fn(&mut Key);

#[test]
fn cells_that_differ_in_any_parameter_have_rows_of_their_own() {
    let mut pairs = 0;
    for experiment in experiments() {
        let (layout, keys) = planned(&experiment);
        let first = &keys[0];
        for param in experiment.workload.param_names() {
            let mut twin = first.clone();
            twin.params.insert(param.to_owned(), "another".to_owned());
            assert_apart(layout, first, &twin, &format!("{} {param}", experiment.name));
            pairs += 1;
        }
        let twin = |change: Change| {
            let mut twin = first.clone();
            change(&mut twin);
            twin
        };
        let others: [(&str, Change); 5] = [
            ("state", |key| key.state = "aged".to_owned()),
            ("variant", |key| key.variant = "mine".to_owned()),
            ("program", |key| key.program = "0123456789".to_owned()),
            ("case", |key| key.case += "-another"),
            ("setting", |key| drop(key.params.insert("vm.swappiness".to_owned(), "7".to_owned()))),
        ];
        for (what, change) in others {
            assert_apart(layout, first, &twin(change), &format!("{} {what}", experiment.name));
        }
        // The grid of the experiment itself, some pairs of neighbours that are in one column and one set of tables.
        for pair in keys.windows(2).take(4) {
            let of = |key: &Key| (key.column(), key.group.clone(), key.workload.clone());
            if of(&pair[0]) == of(&pair[1]) {
                assert_apart(layout, &pair[0], &pair[1], &format!("{} {}", experiment.name, pair[1].case));
            }
        }
    }
    assert!(pairs > 200, "{pairs}");
}

/// Planned cells with `seeds` seeds, and once more with other settings, so that there are at least two columns.
fn two_columns(keys: &[Key], seeds: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (at, key) in (1..).zip(keys) {
        for seed in 1..=seeds {
            let of_seed = Key { seed, ..key.clone() };
            let mut again = of_seed.clone();
            again.kernel += " numa_balancing_scan_period_min_ms=1000 compaction_proactiveness=20";
            cells.push(cell(&of_seed, at * 100 + u32::try_from(seed).expect("few")));
            cells.push(cell(&again, at * 120 + u32::try_from(seed).expect("few")));
        }
    }
    cells
}

/// Asserts that no name comes twice.
fn assert_unique<T: Ord + std::fmt::Debug + Clone>(names: impl IntoIterator<Item = T>, what: &str) {
    let mut names: Vec<T> = names.into_iter().collect();
    names.sort();
    let twice: Vec<&T> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    assert!(twice.is_empty(), "{what}: {twice:?}");
}

/// Asserts that each name stands in a text whole: broken into lines between words at most.
fn assert_whole<'a>(text: &str, names: impl IntoIterator<Item = &'a str>, what: &str) {
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = spaced(text);
    for name in names.into_iter().collect::<BTreeSet<&str>>() {
        assert!(words.contains(&spaced(name)), "{what}: no {name:?} in\n{text}");
    }
}

/// The names and numbers of a head.
fn words(head: &str) -> impl Iterator<Item = &str> {
    head.split_whitespace().flat_map(|word| word.split_inclusive(['=', ',']))
}

#[test]
fn every_row_of_every_experiment_has_a_name_of_its_own() {
    let mut all: Vec<(String, Layout, Vec<Key>)> = Vec::new();
    for experiment in experiments() {
        let (layout, keys) = planned(&experiment);
        all.push((experiment.name.clone(), layout, keys));
    }
    // Two workloads whose cases have the same names, and cells that their case does not tell apart.
    for (name, sets) in
        [("thpscale", &["script=2018,2023", "threads=1,3"][..]), ("numa01", &["bind=no,hard", "rounds=1%,2%"])]
    {
        let experiment = Experiment::load(name).expect("a built-in one");
        let (layout, keys) = planned_with(&experiment, sets);
        assert_eq!(keys.len(), 4, "{name}");
        all.push((name.to_owned(), layout, keys));
    }
    for (name, layout, keys) in &all {
        let cells = two_columns(keys, 1);
        let mut report = Report::of_layout(*layout, &cells, 0);
        report.tables.extend(report::causes(&cells));
        for table in &report.tables {
            let of_table = table.rows.iter().map(|row| (&row.stat, &row.operation));
            assert_unique(of_table, &format!("{name}: {}", table.title));
        }
        let rows = report.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        assert_unique(rows.map(|(table, row)| (&table.experiment, &row.metric, &row.case)), name);
        let csv = to_csv(&report, &[], &[]);
        assert_unique(csv.lines().skip(1).map(place_of_line), &format!("{name}, CSV"));
        let comparison = Comparison::of(&report, Gates::default());
        let in_text = |row: &Compared| (pair(row), row.title.clone(), row.stat.clone(), row.operation.clone());
        assert_unique(comparison.rows.iter().map(in_text), name);
        assert_unique(comparison.rows.iter().map(|row| (pair(row), row.experiment.clone(), row.label())), name);

        // Texts of all cells would take long, and a few have all kinds of rows.
        let few: Vec<Key> = keys.iter().take(2).chain(keys.iter().skip(2).last()).cloned().collect();
        assert_names_are_whole(name, *layout, two_columns(&few, 2));
    }
}

/// The columns that a row compares.
fn pair(row: &Compared) -> (String, String) {
    (row.old_column.clone(), row.new_column.clone())
}

/// Asserts that all renderers have all names whole, and none twice.
fn assert_names_are_whole(name: &str, layout: Layout, mut cells: Vec<Cell>) {
    let mut report = Report::of_layout(layout, &cells, 0);
    report.tables.extend(report::causes(&cells));
    let operations = || report.tables.iter().flat_map(|table| &table.rows).map(|row| row.operation.as_str());
    let (full, short) = (to_text(&report), to_short(&report, &report::Beside::default()));
    assert_whole(&full, operations(), name);
    let heads = report.tables.iter().flat_map(|table| &table.columns);
    assert_whole(&short, heads.flat_map(|head| words(&head.column.kernel)), name);
    assert!(short.lines().all(|line| line.chars().count() <= 80), "{name}: {short}");

    let comparison = Comparison::of(&report, Gates::default());
    let text = compare_text(&comparison, true, false);
    assert!(text.lines().all(|line| line.chars().count() <= 72), "{name}: {text}");
    // Rows that are nought on both sides are counted in a line.
    let listed = comparison.rows.iter().filter(|row| row.old != 0.0 || row.new != 0.0);
    assert_whole(&text, listed.map(|row| row.operation.as_str()), name);
    assert_whole(&text, comparison.rows.iter().flat_map(|row| words(&row.new_column)), name);
    assert_eq!(compare_csv(&comparison).lines().count(), 1 + comparison.rows.len());
    let noise = noise(&report);
    assert_whole(&noise_text(&noise, true), noise.iter().map(|row| row.name.as_str()), name);
    assert_whole(&ladder_text(&report, &comparison), operations(), name);

    // The first two columns as the two ends of a setting.
    let kernels = report.tables[0].columns.iter().map(|head| head.column.kernel.clone());
    let axis = Axis { name: "vm.x".into(), values: vec!["1".into(), "2".into()], default: None };
    let grid = Grid { axes: vec![axis], columns: (0..2).map(|at| vec![at]).zip(kernels).collect() };
    let sweep = Sweep::of(&report, &grid, Gates::default());
    let text = sweep_text(&sweep, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}: {text}");
    assert_whole(&text, sweep.rows.iter().map(|row| row.name.as_str()), name);

    report::name_cases(&mut cells);
    let cells_of = cells.iter().map(|cell| (cell.key.column(), &cell.key.case, cell.key.seed));
    assert_unique(cells_of, &format!("{name}, cells"));
    assert_unique(
        distributions(&cells, &all_columns(&cells)).iter().map(|set| &set.title),
        &format!("{name}, distributions"),
    );
    assert_unique(causes(&cells, &all_columns(&cells)).iter().map(|set| &set.title), &format!("{name}, causes"));
}

/// A line of values without its value: what it is of, and its seed.
fn place_of_line(line: &str) -> Vec<String> {
    // Commas inside of quotes are letters.
    let mut is_quoted = false;
    let fields = line.split(|letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    });
    let fields: Vec<&str> = fields.collect();
    [0, 1, 2, 3, 7].map(|at| fields[at].to_owned()).into()
}
