//! Which seeds a run is repeated with.

use std::{fmt, str::FromStr};

/// The largest seed that a user may ask for.
const MAX: u64 = 10_000;

/// Seeds in a row, each of which is a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// From 1 to this.
    ///
    /// # Panics
    /// When that is none.
    pub fn up_to(last: u64) -> Self {
        assert!(last > 0, "a run has a seed");
        Self { first: 1, last }
    }

    /// Is this one of them?
    pub fn contains(self, seed: u64) -> bool {
        (self.first..=self.last).contains(&seed)
    }

    /// Each of them, in order.
    pub fn all(self) -> impl Iterator<Item = u64> {
        self.first..=self.last
    }
}

impl fmt::Display for Seeds {
    /// The first and the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Seeds {
    type Err = String;

    /// `N` is from 1 to N, `A-B` from A to B.
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or(("1", text));
        let seeds = match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Some(Self { first, last }),
            _ => None,
        };
        let seeds = seeds.filter(|seeds| (1..=seeds.last).contains(&seeds.first) && seeds.last <= MAX);
        seeds.ok_or_else(|| format!("expected how many, or the first and the last as in 3-5, from 1 to {MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_from_one_and_a_range_is_itself() {
        let read = |text: &str| text.parse::<Seeds>().map(|seeds| seeds.all().collect::<Vec<_>>());
        assert_eq!(read("3"), Ok(vec![1, 2, 3]));
        assert_eq!(read("3-5"), Ok(vec![3, 4, 5]));
        assert_eq!(read("7-7"), Ok(vec![7]));
        for bad in ["0", "", "-3", "3-", "5-3", "0-3", "1-10001", "two", "1-2-3"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
