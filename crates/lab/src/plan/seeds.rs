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

    /// From the smallest of these to the largest; none of none, or where one is beyond what a user may ask for.
    pub(crate) fn around(seeds: impl IntoIterator<Item = u64>) -> Option<Self> {
        let range = |range: Option<Self>, seed| match range {
            None => Some(Self { first: seed, last: seed }),
            Some(Self { first, last }) => Some(Self { first: first.min(seed), last: last.max(seed) }),
        };
        seeds.into_iter().fold(None, range).filter(|seeds| seeds.first > 0 && seeds.last <= MAX)
    }

    /// Both together, where no seed lies between them.
    pub(crate) fn joined(self, other: Self) -> Option<Self> {
        let has_gap = self.last + 1 < other.first || other.last + 1 < self.first;
        (!has_gap).then(|| Self { first: self.first.min(other.first), last: self.last.max(other.last) })
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
    fn seeds_that_adjoin_are_joined() {
        let read = |text: &str| text.parse::<Seeds>().unwrap();
        let join = |one: &str, other: &str| read(one).joined(read(other)).map(|seeds| seeds.to_string());
        for (one, other, both) in
            [("8", "16", "1-16"), ("8", "9-16", "1-16"), ("5-8", "4", "1-8"), ("3-9", "5-6", "3-9")]
        {
            assert_eq!((join(one, other), join(other, one)), (Some(both.to_owned()), Some(both.to_owned())));
        }
        assert_eq!((join("8", "10-16"), join("10-16", "8")), (None, None), "seed 9 was asked for by nobody");
        assert_eq!(join("1-10000", "10000-10000").as_deref(), Some("1-10000"));
        assert_eq!(Seeds::around([4, 2, 9]).map(|seeds| seeds.to_string()).as_deref(), Some("2-9"));
        assert_eq!((Seeds::around([]), Seeds::around([0]), Seeds::around([10_001])), (None, None, None));
    }

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
