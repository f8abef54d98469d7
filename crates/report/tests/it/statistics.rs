//! Holds statistics to scipy's: of ten recorded samples, and of twenty data sets of two columns.
//!
//! `statistics/scipy.json` says which versions computed it: `tmean`, `gmean`, `hmean`, `tstd`, `variation` (with one degree of
//! freedom less) and `scoreatpercentile` of `scipy.stats`. `statistics/compare.py` has written `statistics/compare.json`.

use std::collections::BTreeMap;

use report::{
    Better, Column, ColumnHead, Form, Kind, Layout, Report, Row, Table, Target, Value,
    compare::{Comparison, Gates, Tested},
    stats, to_text,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Recording {
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    name: String,
    values: Vec<f64>,
    min: f64,
    max: f64,
    amean: f64,
    gmean: f64,
    hmean: f64,
    stddev: Option<f64>,
    coeff_var: Option<f64>,
    percentiles: Vec<(f64, f64)>,
}

/// Equal but for what the order of additions changes.
fn assert_same(what: &str, found: Option<f64>, expected: Option<f64>) {
    match (found, expected) {
        (Some(found), Some(expected)) => {
            let far = (found - expected).abs();
            assert!(far <= 1e-12 * expected.abs(), "{what}: found {found}, scipy has {expected}");
        }
        (found, expected) => assert_eq!(found, expected, "{what}"),
    }
}

#[test]
fn statistics_are_those_of_scipy() {
    let recording: Recording = serde_json::from_str(include_str!("statistics/scipy.json")).expect("a recording");
    assert_eq!(recording.samples.len(), 10);
    for sample in &recording.samples {
        let Sample { name, values, .. } = sample;
        let check = |what: &str, found, expected| assert_same(&format!("{what} of {name}"), found, expected);
        check("min", stats::min(values), Some(sample.min));
        check("max", stats::max(values), Some(sample.max));
        check("amean", stats::amean(values), Some(sample.amean));
        check("gmean", stats::gmean(values), Some(sample.gmean));
        check("hmean", stats::hmean(values), Some(sample.hmean));
        check("stddev", stats::stddev(values), sample.stddev);
        let spread = stats::Spread { mean: sample.amean, stddev: sample.stddev };
        check("coeff_var", stats::coeff_var(spread), sample.coeff_var);
        for &(percent, expected) in &sample.percentiles {
            check(&format!("{percent} %"), stats::percentile(values, percent), Some(expected));
        }
    }
}

#[derive(Deserialize)]
struct Comparisons {
    sets: Vec<DataSet>,
}

#[derive(Deserialize)]
struct DataSet {
    name: String,
    old: Vec<(u64, f64)>,
    new: Vec<(u64, f64)>,
    p: f64,
    p_holm: f64,
    p_ranks: f64,
    /// The difference of means and the ends of its interval.
    difference: [f64; 3],
    /// The same in per cent, where every number is positive.
    percent: Option<[f64; 3]>,
}

type Runs = [(u64, f64)];

/// A table of two simulated columns.
fn report(rows: &[(&str, &Runs, &Runs)]) -> Report {
    let value = |runs: &Runs| {
        let of_seeds: BTreeMap<u64, f64> = runs.iter().copied().collect();
        let value = stats::amean(&of_seeds.values().copied().collect::<Vec<f64>>()).expect("there are runs");
        Some(Value { value, of_seeds, ..Value::default() })
    };
    let row = |(name, old, new): &(&str, &Runs, &Runs)| Row {
        metric: "latency_us.Amean".to_owned(),
        case: (*name).to_owned(),
        stat: "Amean".to_owned(),
        operation: (*name).to_owned(),
        better: Better::Lower,
        unit: "us".to_owned(),
        form: Form::Hundredths,
        cells: vec![value(old), value(new)],
    };
    let head = |kernel: &str| {
        let column = Column { result: None, target: Target::Sim, kernel: kernel.to_owned(), machine: "m".to_owned() };
        ColumnHead { column, lines: Vec::new(), baseline: 0 }
    };
    let table = Table {
        experiment: "recorded".to_owned(),
        title: "recorded".to_owned(),
        kind: Kind::Metric,
        unit: "us".to_owned(),
        better: Better::Lower,
        columns: vec![head("old"), head("new")],
        rows: rows.iter().map(row).collect(),
    };
    Report { layout: Layout::Head, tables: vec![table], checks: Vec::new() }
}

/// The library of Student's t has fewer digits than scipy's, and none of them is printed.
fn assert_near(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-8 * expected.abs(), "{what}: found {found}, scipy has {expected}");
}

#[test]
fn comparisons_are_those_of_scipy() {
    let recording: Comparisons = serde_json::from_str(include_str!("statistics/compare.json")).expect("a recording");
    assert_eq!(recording.sets.len(), 20);
    let rows: Vec<_> = recording.sets.iter().map(|set| (set.name.as_str(), &set.old[..], &set.new[..])).collect();
    let comparison = Comparison::of(&report(&rows), Gates::default());
    for (set, row) in recording.sets.iter().zip(&comparison.rows) {
        let near = |what: &str, found, expected| assert_near(&format!("{what} of {}", set.name), found, expected);
        let Tested::By(test) = &row.tested else { panic!("{} is tested", set.name) };
        assert_eq!(test.is_paired, set.old.iter().map(|run| run.0).eq(set.new.iter().map(|run| run.0)));
        near("p", test.p, set.p);
        near("Holm's p", row.p_holm.expect("there is a p"), set.p_holm);
        near("p by ranks", test.p_ranks, set.p_ranks);
        let interval = test.interval.expect("runs spread");
        for (found, expected) in [test.difference, interval.low, interval.high].into_iter().zip(set.difference) {
            near("difference", found, expected);
        }
        assert_eq!(test.geometric.is_some(), set.percent.is_some(), "{}", set.name);
        for (found, expected) in test.geometric.iter().zip(&set.percent) {
            for (found, expected) in [found.change, found.low, found.high].into_iter().zip(expected) {
                near("per cent", found, *expected);
            }
        }
    }
}

#[test]
fn whole_tables_have_the_stars_of_comparisons_and_say_what_they_are() {
    let runs = |times: f64| (1..=6).map(|seed| (seed, times * (100 + seed % 3) as f64)).collect::<Vec<(u64, f64)>>();
    let (old, tenth, thousandth) = (runs(1.0), runs(1.1), runs(1.001));
    let report = report(&[("much", &old, &tenth), ("little", &old, &thousandth), ("once", &old[..1], &tenth[..1])]);
    let text = to_text(&report.judged());
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].contains("* -10.00%*") && lines[2].contains("(  -0.10%)") && lines[3].contains("( -10.00%)"),
        "{text}"
    );
    assert!(text.contains("\n* separated (Holm over metrics") && text.ends_with("of shares 0.5 points)\n"), "{text}");
}
