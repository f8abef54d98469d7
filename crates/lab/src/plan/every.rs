//! How often a run is sampled.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use units::Picos;

/// The time between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Picos", into = "Picos")]
pub struct Every(Picos);

const UNITS: [(&str, Picos); 4] = [
    ("ms", Picos::from_micros(1000)),
    ("s", Picos::from_secs(1)),
    ("min", Picos::from_secs(60)),
    ("h", Picos::from_secs(3600)),
];

/// Shorter than it takes to read all counters of a real kernel.
const MIN: Picos = Picos::from_micros(1000);
/// Longer than any run: 24 hours.
const MAX: Picos = Picos::from_secs(24 * 3600);

impl Every {
    /// The time.
    pub fn time(self) -> Picos {
        self.0
    }
}

impl fmt::Display for Every {
    /// In the largest unit of which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_whole = |(_, unit): &&(&str, Picos)| self.0.0.is_multiple_of(unit.0);
        let (name, unit) = UNITS.iter().rfind(is_whole).unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", self.0.0 / unit.0)
    }
}

impl TryFrom<Picos> for Every {
    type Error = String;

    fn try_from(time: Picos) -> Result<Self, String> {
        let (min, max) = (MIN.0, MAX.0);
        let is_one = (MIN..=MAX).contains(&time);
        is_one.then_some(Self(time)).ok_or_else(|| format!("expected {min} to {max} picoseconds, found {}", time.0))
    }
}

impl From<Every> for Picos {
    fn from(every: Every) -> Self {
        every.0
    }
}

impl FromStr for Every {
    type Err = String;

    /// A whole number and its unit, from a millisecond to a day.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, unit)| unit);
        let time = number.parse().ok().zip(unit).and_then(|(number, unit): (u64, _)| unit.0.checked_mul(number));
        let time = time.and_then(|time| Self::try_from(Picos(time)).ok());
        time.ok_or_else(|| "expected a time from 1ms to 24h, such as 100ms, 1s, 5min or 1h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        let read = |text: &str| text.parse::<Every>().map(Every::time);
        assert_eq!(read("1s"), Ok(Picos::from_secs(1)));
        assert_eq!(read("1500ms"), Ok(Picos::from_micros(1_500_000)));
        assert_eq!(read("5min"), Ok(Picos::from_secs(300)));
        assert_eq!(read("24h"), Ok(MAX));
        for written in ["1ms", "100ms", "1s", "90s", "5min", "1h", "24h"] {
            assert_eq!(written.parse::<Every>().unwrap().to_string(), written);
        }
        for bad in [
            "",
            "0s",
            "abc",
            "1",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "10us",
            "25h",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
