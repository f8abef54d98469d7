//! Time in integer picoseconds: 64 bits hold about 213 days.
//!
//! Sums and products stop at the last instant: a setting may say 2^31 hundredths of a second, and what is due then comes never.
//! A difference below nothing is a bug, and panics.

use std::{
    fmt,
    ops::{Add, AddAssign, Mul, Sub},
};

use serde::{Deserialize, Serialize};

/// A span of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Picos(pub u64);

/// An instant in picoseconds since the start of the run (virtual in the simulator, monotonic elsewhere).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Picos {
    /// One nanosecond is 1,000 ps.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// One microsecond is 1,000,000 ps.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// One millisecond is 10^9 ps.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000_000))
    }

    /// One second is 10^12 ps.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000_000))
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds as a number for printing and for rates.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Time {
    /// The span since `earlier`.
    ///
    /// # Panics
    /// When `earlier` is later: clocks of one run never go backwards.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Picos {
        assert!(earlier <= self, "time went backwards: {earlier:?} is after {self:?}");
        Picos(self.0 - earlier.0)
    }
}

impl Add<Picos> for Time {
    type Output = Time;
    fn add(self, span: Picos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Picos {
    type Output = Picos;
    fn add(self, other: Picos) -> Picos {
        Picos(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Picos {
    type Output = Picos;
    fn mul(self, times: u64) -> Picos {
        Picos(self.0.saturating_mul(times))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Picos) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sub for Picos {
    type Output = Picos;
    fn sub(self, other: Picos) -> Picos {
        Picos(self.0 - other.0)
    }
}

impl std::iter::Sum for Picos {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps < 1_000 => write!(f, "{ps} ps"),
            ps if ps < 1_000_000 => write!(f, "{:.2} ns", ps as f64 / 1e3),
            ps if ps < 1_000_000_000 => write!(f, "{:.2} us", ps as f64 / 1e6),
            ps if ps < 1_000_000_000_000 => write!(f, "{:.2} ms", ps as f64 / 1e9),
            ps => write!(f, "{:.2} s", ps as f64 / 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_the_unit_a_reader_expects() {
        assert_eq!(Picos(999).to_string(), "999 ps");
        assert_eq!(Picos::from_nanos(250).to_string(), "250.00 ns");
        assert_eq!(Picos::from_micros(953).to_string(), "953.00 us");
        assert_eq!(Picos::from_secs(2).to_string(), "2.00 s");
    }

    #[test]
    fn sums_and_products_stop_at_the_last_instant() {
        let last = Picos(u64::MAX);
        assert_eq!([Picos::from_nanos(u64::MAX), Picos::from_micros(1 << 50), Picos::from_millis(u64::MAX)], [last; 3]);
        assert_eq!([Picos::from_secs(1 << 32), Picos::from_millis(10) * (i32::MAX as u64), last + Picos(1)], [last; 3]);
        assert_eq!(Time(1) + last, Time(u64::MAX));
        let mut sum = last;
        sum += Picos(1);
        assert_eq!(sum, last);
        assert_eq!(Picos::from_millis(10) * 3000, Picos::from_secs(30), "what fits is exact");
    }

    #[test]
    #[should_panic(expected = "time went backwards")]
    fn an_instant_before_its_start_is_a_bug() {
        let _ = Time(1).since(Time(2));
    }
}
