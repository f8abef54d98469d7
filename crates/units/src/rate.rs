//! Rates of data.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Bytes, ParseSizeError, Picos};

/// Bytes per second, at least one. Written `12GiB/s` or `12 GiB/s` by users; serialised the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesPerSecond(u64);

impl BytesPerSecond {
    /// A number of bytes per second; zero is no rate.
    pub const fn new(each_second: Bytes) -> Option<Self> {
        if each_second.0 == 0 { None } else { Some(Self(each_second.0)) }
    }

    /// Bytes moved in a second.
    pub const fn each_second(self) -> Bytes {
        Bytes(self.0)
    }

    /// The time that a number of bytes takes, rounded up to a picosecond.
    ///
    /// # Panics
    /// When that is more than [`Picos`] holds, 213 days.
    pub fn takes(self, bytes: Bytes) -> Picos {
        let picos = (u128::from(bytes.0) * u128::from(Picos::from_secs(1).0)).div_ceil(u128::from(self.0));
        Picos(u64::try_from(picos).expect("data moves in less than 213 days"))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/s", self.each_second()))
    }
}

/// Why a text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRateError {
    /// No `/s` behind it, or no size before that.
    #[error("expected a rate such as \"12GiB/s\" (units B, KiB, MiB, GiB, TiB), found {0:?}")]
    Form(String),
    /// Nothing ever moves.
    #[error("expected more than nothing in a second, found {0:?}")]
    Nothing(String),
    /// More than 64 bits of bytes.
    #[error("{0:?} is more bytes in a second than 64 bits hold")]
    TooLarge(String),
}

impl FromStr for BytesPerSecond {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseRateError::Form(text.to_owned());
        let size = text.trim_end().strip_suffix("/s").ok_or_else(form)?;
        let size = size.parse().map_err(|error| match error {
            ParseSizeError::Form(_) => form(),
            ParseSizeError::TooLarge(_) => ParseRateError::TooLarge(text.to_owned()),
        })?;
        Self::new(size).ok_or_else(|| ParseRateError::Nothing(text.to_owned()))
    }
}

impl Serialize for BytesPerSecond {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BytesPerSecond {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(each_second: u64) -> BytesPerSecond {
        BytesPerSecond::new(Bytes(each_second)).unwrap()
    }

    #[test]
    fn rates_round_trip_through_text() {
        for each_second in [1, 4096, 12 << 30, (1 << 30) + 1, u64::MAX] {
            assert_eq!(rate(each_second).to_string().parse(), Ok(rate(each_second)));
        }
        assert_eq!("25 GiB/s".parse(), Ok(rate(25 << 30)));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "12GiB", "GiB/s", "12GB/s", "12/s", "/s", "-1GiB/s", "1.5GiB/s", "12GiB/min"] {
            assert_eq!(text.parse::<BytesPerSecond>(), Err(ParseRateError::Form(text.to_owned())), "{text}");
        }
        assert_eq!("0GiB/s".parse::<BytesPerSecond>(), Err(ParseRateError::Nothing("0GiB/s".to_owned())));
        assert!(matches!("99999999TiB/s".parse::<BytesPerSecond>(), Err(ParseRateError::TooLarge(_))));
    }

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(rate(1_000_000_000).takes(Bytes(4096)), Picos::from_nanos(4096));
        assert_eq!(rate(3).takes(Bytes(1)), Picos(333_333_333_334), "rounded up");
        assert_eq!(rate(u64::MAX).takes(Bytes(u64::MAX)), Picos::from_secs(1));
    }
}
