//! Whether a lower or a higher number of a metric is better.

use serde::{Deserialize, Serialize};

/// Which direction of a number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better: a latency.
    Lower,
    /// Higher is better: a rate.
    Higher,
    /// Neither direction is better: the number describes the run. Tables print it without a percentage.
    None,
}
