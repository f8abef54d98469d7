//! Percentiles of times, in tables and in comparisons.

use std::collections::BTreeMap;

use report::{
    Beside, Cell, Report,
    compare::{Comparison, Family, Gates},
    to_short,
};
use serde_json::json;

/// A run with samples of a latency.
fn cell(kernel: &str, seed: u32, samples: &[f64]) -> Cell {
    let metric = json!({ "name": "fault_latency_ns", "unit": "ns", "better": "lower", "samples": samples });
    let cell = json!({
        "schema": 5,
        "key": { "experiment": "faults", "workload": "fault-storm", "case": "base-1", "params": {}, "variant": "v",
                 "machine": "m", "state": "fresh", "target": "sim", "kernel": kernel, "seed": seed, "program": "p" },
        "measured": { "scored": true, "metrics": [metric], "counters": {}, "checks": [], "skipped": [], "detail": null },
        "run": { "date": "", "wall_s": 1.0, "host": "h", "commit": "c", "max_rss_kib": 1 },
    });
    serde_json::from_value(cell).expect("a cell")
}

/// Six runs of two kernels, the second one's times half as long again.
fn runs_of(samples: &[f64]) -> Vec<Cell> {
    let of = |kernel: &'static str, factor: f64| {
        (1..=6).map(move |seed: u32| {
            let factor = factor * (1.0 + 0.001 * f64::from(seed % 3));
            cell(kernel, seed, &samples.iter().map(|sample| sample * factor).collect::<Vec<f64>>())
        })
    };
    of("v6.1", 1.0).chain(of("v6.12", 1.5)).collect()
}

#[test]
fn percentiles_of_times_are_rows_that_are_compared_apart() {
    let samples: Vec<f64> = (0..=100).map(f64::from).collect();
    let cells = runs_of(&samples);
    let report = Report::new(&cells[..1], 1);
    let values = report.tables[0].rows.iter().map(|row| (row.metric.as_str(), row.cells[0].as_ref().unwrap().value));
    let values: BTreeMap<&str, f64> = values.collect();
    let found = ["P50", "P99", "Max"].map(|stat| values[format!("fault_latency_ns.{stat}").as_str()]);
    for (found, expected) in found.into_iter().zip([50.05, 99.099, 100.1]) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    let report = Report::new(&cells, 1);
    let comparison = Comparison::of(&report, Gates::default());
    let tails = comparison.rows.iter().filter(|row| row.family == Family::Tails);
    let tails: Vec<_> = tails.map(|row| (row.stat.as_str(), row.verdict.word(), row.label())).collect();
    let expected = ["P50", "P99", "Max"].map(|stat| (stat, "worse", format!("fault_latency_ns.{stat} base-1")));
    assert_eq!(tails, expected);
    let short = to_short(&report, &Beside::default());
    assert!(short.contains("Fault Latency: percentiles of samples\n") && short.contains("p99"), "{short}");

    // Of one sample in each run there is no percentile.
    let report = Report::new(&runs_of(&[1.0]), 1);
    assert!(report.tables[0].rows.iter().all(|row| row.stat != "P99"), "{report:?}");
    assert!(!to_short(&report, &Beside::default()).contains("percentiles"));
}
