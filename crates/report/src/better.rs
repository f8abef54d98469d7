//! Which way a number is good.

use serde::{Deserialize, Serialize};

/// Which direction of a number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better: a latency.
    Lower,
    /// Higher is better: a rate.
    Higher,
    /// Neither: a number that describes. Tables print it without a percentage.
    None,
}
