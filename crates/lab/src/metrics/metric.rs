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
