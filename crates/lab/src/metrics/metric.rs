//! Metrics as the files of workloads make them.

use report::{Better, Metric};
use units::Picos;

/// Bytes of a GiB.
pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// A metric of no class and no part.
pub(super) fn metric(name: &str, unit: &str, better: Better, samples: Vec<f64>) -> Metric {
    Metric { name: name.to_owned(), class: None, part: None, unit: unit.to_owned(), better, samples }
}

/// A metric of a class.
pub(super) fn classed(name: &str, class: &str, unit: &str, better: Better, samples: Vec<f64>) -> Metric {
    Metric { class: Some(class.to_owned()), ..metric(name, unit, better, samples) }
}

/// The rate of an event: its count per second.
pub(super) fn rate(count: u64, span: Picos) -> f64 {
    count as f64 / span.as_secs_f64()
}

/// The outcome of a task that ran for some time and counted nothing.
#[cfg(test)]
pub(super) fn task_of(start: units::Time, end: units::Time) -> workloads::TaskOutcome {
    let rusage = serde_json::json!({ "minor_faults": 0, "major_faults": 0, "user": 0, "system": 0 });
    serde_json::from_value(serde_json::json!({
        "start": start, "end": end, "stores": 0, "faults": 0, "huge_faults": 0, "iterations": [], "rusage": rusage,
    }))
    .expect("all other fields have defaults")
}
