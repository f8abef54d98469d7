//! Kinds of numbers; each kind has a least change that matters. A row declares its unit, from which the kind follows.

use serde::Serialize;

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// A span of time.
    Time,
    /// A part of a whole, in per cent.
    Share,
    /// A whole number of events in a run, or of things.
    Count,
    /// A number per second.
    Rate,
    /// Any other amount, such as memory.
    Amount,
}

/// Units of time.
const TIMES: [&str; 5] = ["ps", "ns", "us", "ms", "s"];
/// Units of shares.
const SHARES: [&str; 2] = ["pct", "%"];
/// Units of counts, beside the units that end with [`PER_RUN`].
const COUNTS: [&str; 7] = ["as counted", "attempts", "base pages", "events", "faults", "pages", "times"];
const PER_RUN: &str = "per run";

impl Quantity {
    /// The quantity of values in a unit.
    pub fn of_unit(unit: &str) -> Self {
        match unit {
            unit if TIMES.contains(&unit) => Self::Time,
            unit if SHARES.contains(&unit) => Self::Share,
            unit if unit.ends_with("/s") => Self::Rate,
            unit if COUNTS.contains(&unit) || unit.ends_with(PER_RUN) => Self::Count,
            _ => Self::Amount,
        }
    }

    /// The kind's name in a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Share => "share",
            Self::Count => "count",
            Self::Rate => "rate",
            Self::Amount => "amount",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_says_what_a_number_is() {
        for (unit, expected) in [
            ("ns", Quantity::Time),
            ("s", Quantity::Time),
            ("pct", Quantity::Share),
            ("%", Quantity::Share),
            ("faults/s", Quantity::Rate),
            ("1/s", Quantity::Rate),
            ("GiB/s", Quantity::Rate),
            ("faults", Quantity::Count),
            ("movement of the counter per run", Quantity::Count),
            ("events per run", Quantity::Count),
            ("GiB", Quantity::Amount),
            ("GiB min", Quantity::Amount),
            ("million words", Quantity::Amount),
        ] {
            assert_eq!(Quantity::of_unit(unit), expected, "{unit}");
        }
    }
}
