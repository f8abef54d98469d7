//! Statistics against those of scipy, of ten recorded samples.
//!
//! `statistics/scipy.json` says which versions computed it: `tmean`, `gmean`, `hmean`, `tstd`, `variation` (with one degree of
//! freedom less), `scoreatpercentile` and `norm.ppf` of `scipy.stats`.

use pagelab_report::stats;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recording {
    normal_97_5: f64,
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

#[test]
fn a_star_begins_where_scipy_has_the_interval_end() {
    let recording: Recording = serde_json::from_str(include_str!("statistics/scipy.json")).expect("a recording");
    // Both sides spread by 1, so that their intervals end half the distance from each other.
    let apart = |distance: f64| {
        let [baseline, new] = [0.0, distance].map(|mean| stats::Spread { mean, stddev: Some(1.0) });
        stats::significant(stats::Pair { baseline, new })
    };
    assert!(apart(2.0 * recording.normal_97_5 + 1e-9));
    assert!(!apart(2.0 * recording.normal_97_5 - 1e-9));
}
