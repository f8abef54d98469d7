//! Grids whose effects are known.

use std::collections::BTreeMap;

use super::*;
use crate::{
    compare::tests::Normal,
    record::Target,
    table::{ColumnHead, Form, Kind, Layout, Row, Table},
};

fn axis(name: &str, values: &[&str], default: &str) -> Axis {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Axis { name: name.to_owned(), values, default: Some(default.to_owned()) }
}

fn column(place: &Place) -> Column {
    Column { result: None, target: Target::Sim, kernel: format!("{place:?}"), machine: "m".to_owned() }
}

/// A sweep of `rows` rows, with the runs that a function draws for each place.
fn sweep(axes: Vec<Axis>, rows: usize, mut runs: impl FnMut(usize, &Place) -> Vec<f64>) -> Sweep {
    let mut grid = Grid { axes, columns: BTreeMap::new() };
    let places = grid.places();
    grid.columns = places.iter().map(|place| (place.clone(), column(place).kernel)).collect();
    let row = |at: usize| {
        let mut value = |place: &Place| {
            let of_seeds: BTreeMap<u64, f64> = (1..).zip(runs(at, place)).collect();
            let mean = stats::amean(&of_seeds.values().copied().collect::<Vec<f64>>())?;
            Some(Value::over_seeds(mean, of_seeds))
        };
        Row {
            metric: "latency_us.Amean".to_owned(),
            case: format!("case-{at}"),
            stat: "Amean".to_owned(),
            operation: format!("case-{at}"),
            better: Better::Lower,
            unit: "us".to_owned(),
            form: Form::Hundredths,
            cells: places.iter().map(&mut value).collect(),
        }
    };
    let table = Table {
        experiment: "e".to_owned(),
        title: "e Latency".to_owned(),
        kind: Kind::Metric,
        unit: "us".to_owned(),
        better: Better::Lower,
        rows: (0..rows).map(row).collect(),
        columns: places
            .iter()
            .map(|place| ColumnHead { column: column(place), lines: Vec::new(), baseline: 0 })
            .collect(),
    };
    Sweep::of(&Report { layout: Layout::Head, tables: vec![table], checks: Vec::new() }, &grid, Gates::default())
}

fn boost_by_threshold() -> Vec<Axis> {
    vec![axis("vm.boost", &["0", "5", "10", "15"], "15"), axis("vm.threshold", &["0", "500", "1000"], "500")]
}

/// A step of 10 % from the second value of the first axis on, and nothing else but noise.
fn with_a_step() -> Sweep {
    let mut draws = Normal(1);
    sweep(boost_by_threshold(), 1, |_, place| {
        let level = if place[0] < 2 { 100.0 } else { 110.0 };
        (0..8).map(|run| level + f64::from(run) + 0.2 * draws.next()).collect()
    })
}

#[test]
fn a_step_is_found_and_what_lies_beside_it_is_flat() {
    let sweep = with_a_step();
    let row = &sweep.rows[0];
    let effect = |axis: usize| row.effects[axis].as_ref().expect("an effect");
    assert_eq!((effect(0).reaction, effect(1).reaction), (Reaction::Moves, Reaction::Flat));
    let percent = effect(0).percent.expect("a mean");
    assert!((8.8..10.0).contains(&percent), "10 of 103.5: {percent}");
    let bounds = effect(0).geometric.expect("runs");
    assert!(bounds.low < percent && percent < bounds.high && bounds.high - bounds.low < 1.0, "{bounds:?}");
    let regions: Vec<_> = row.regions.iter().map(|region| (&region.from[..], &region.to[..], region.is_sure)).collect();
    assert_eq!(regions, [(&[0, 0][..], &[1, 2][..], true), (&[2, 0], &[3, 2], true)]);
    assert_eq!((sweep.default.as_deref(), sweep.pairs, sweep.neighbours), (Some(&[3, 1][..]), 6 + 3, 9 + 8));
}

#[test]
fn where_nothing_happens_a_sweep_in_twenty_says_that_something_moves() {
    let mut draws = Normal(2);
    let mut wrong = 0;
    for _ in 0..60 {
        let found = sweep(boost_by_threshold(), 4, |_, _| (0..8).map(|_| 100.0 + 4.0 * draws.next()).collect());
        let effects = found.rows.iter().flat_map(|row| row.effects.iter().flatten());
        wrong += usize::from(effects.into_iter().any(|effect| effect.reaction == Reaction::Moves));
    }
    assert!(wrong <= 8, "{wrong} of 60");
}

#[test]
fn places_without_a_cell_stay_empty_and_leave_the_others_comparable() {
    let mut draws = Normal(3);
    let found = sweep(boost_by_threshold(), 1, |_, place| {
        let runs = if *place == [1, 1] { 0 } else { 8 };
        (0..runs).map(|_| 100.0 + 10.0 * place[1] as f64 + 0.1 * draws.next()).collect()
    });
    let row = &found.rows[0];
    let empty = row.points.iter().find(|point| point.place == [1, 1]).expect("all places are there");
    assert_eq!((empty.value, empty.runs), (None, 0));
    let reaction = |axis: usize| row.effects[axis].as_ref().map(|effect| effect.reaction);
    assert_eq!((reaction(0), reaction(1)), (Some(Reaction::Flat), Some(Reaction::Moves)));
    assert!(row.regions.iter().all(|region| !region.holds(&vec![1, 1])), "{:?}", row.regions);
    assert!(sweep_text(&found, false).lines().any(|line| line.contains(" 5 ") && line.contains(" - ")));
}

#[test]
fn one_run_says_nothing_and_few_that_are_constant_little() {
    let with = |runs: u32| {
        let found = sweep(vec![axis("a.b", &["1", "2"], "1")], 1, |_, place| {
            (0..runs).map(|_| 100.0 + 50.0 * place[0] as f64).collect()
        });
        let effect = found.rows[0].effects[0].clone().expect("an effect");
        (effect.reaction, effect.percent.expect("a mean"), found.rows[0].regions.len())
    };
    assert_eq!(with(1), (Reaction::OneRun, 50.0, 0));
    assert_eq!(with(3), (Reaction::DiffersInAll, 50.0, 0));
    assert_eq!(with(5), (Reaction::Moves, 50.0, 0));
}

#[test]
fn all_forms_say_it_in_80_columns() {
    let found = with_a_step();
    let text = sweep_text(&found, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for expected in [
        "[15]",
        "[500]",
        "vm.boost: moves 1 of 1",
        "vm.threshold: flat",
        "flat: boost 10..15, threshold 0..1000 (6 cells, ",
    ] {
        assert!(text.contains(expected), "{expected} in\n{text}");
    }
    // Shades are of numbers that stand there too.
    assert!(text.lines().any(|line| line == "     10  114 ██  114 ██  114 ██"), "{text}");
    assert!(sweep_text(&found, true).contains("| boost \\ threshold | 0 | [500] | 1000 |"));
    let csv = sweep_csv(&found);
    assert_eq!(csv.lines().count(), 1 + 12 + 2, "{csv}");
    let fields = |line: &str| line.split(',').count();
    assert!(csv.lines().all(|line| fields(line) == 4 + 2 + 6 + 12), "{csv}");
}

#[test]
fn many_values_come_in_blocks_that_fit_a_line() {
    let values: Vec<String> = (0..20).map(|value| (value * 12_345).to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let axes = vec![axis("vm.a", &values, "0"), axis("vm.b", &values, "0")];
    let found = sweep(axes, 1, |_, place| (0..3).map(|run| (1000 * place[0] + place[1] + run + 1) as f64).collect());
    let text = sweep_text(&found, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().filter(|line| line.contains(" a ")).count() >= 3, "several blocks\n{text}");
}
