//! Values of a service's file: times, rates, parts and counts, as a user writes them.

use std::str::FromStr;

use toml::{Spanned, de::DeValue};
use units::{Bytes, Picos};
use workloads::{Size, service::Rate};

use crate::source::{FromValue, Mismatch, Scalar};

/// A time, such as `40s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Picos);

/// A rate, such as `800MiB/s` or `5k/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerSecond(pub(super) Rate);

/// A part, such as `20%`, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part(pub(super) u32);

/// A part in a second, such as `2%/s`, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartPerSecond(pub(super) u32);

/// A size, in bytes or as a part of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeOf(pub(super) Size);

/// A whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

/// A nice level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level(pub(super) i8);

/// Longest times: a day. A run of more is a mistake of units.
const DAY: u64 = 24 * 3600;

impl FromStr for Span {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or(())?;
        let (number, unit) = text.split_at(split);
        let picos = match unit.trim() {
            "us" => 1_000_000,
            "ms" => 1_000_000_000,
            "s" => 1_000_000_000_000,
            "m" | "min" => 60_000_000_000_000,
            "h" => 3_600_000_000_000_000,
            _ => return Err(()),
        };
        let time = u64::try_from(scaled(number, picos).ok_or(())?).map_err(drop)?;
        if time > DAY * 1_000_000_000_000 { Err(()) } else { Ok(Self(Picos(time))) }
    }
}

impl FromStr for PerSecond {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let each = text.trim_end().strip_suffix("/s").ok_or(())?.trim_end();
        let rate = if let Ok(bytes) = each.parse::<Bytes>() {
            Rate::Bytes(bytes.0)
        } else {
            let (number, thousandths) = match each.strip_suffix(['k', 'M']) {
                Some(number) if each.ends_with('k') => (number, 1_000_000),
                Some(number) => (number, 1_000_000_000),
                None => (each, 1000),
            };
            Rate::Operations(u64::try_from(scaled(number.trim_end(), thousandths).ok_or(())?).map_err(drop)?)
        };
        match rate {
            Rate::Operations(0) | Rate::Bytes(0) => Err(()),
            rate => Ok(Self(rate)),
        }
    }
}

impl FromStr for Part {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = text.trim_end().strip_suffix('%').ok_or(())?;
        let part = scaled(number.trim_end(), 10_000).filter(|part| *part <= 1_000_000).ok_or(())?;
        u32::try_from(part).map(Self).map_err(drop)
    }
}

impl FromStr for PartPerSecond {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Part(part) = text.trim_end().strip_suffix("/s").ok_or(())?.parse()?;
        Ok(Self(part))
    }
}

impl FromStr for SizeOf {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.parse()? {
            Size::Bytes(bytes) if !(Bytes::PAGE..=Bytes::gib(1 << 16)).contains(&bytes) => Err(()),
            Size::Percent(percent) if !(1..=1000).contains(&percent) => Err(()),
            size => Ok(Self(size)),
        }
    }
}

impl FromStr for Count {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().map(Self).map_err(drop)
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().ok().filter(|level| (-20..=19).contains(level)).map(Self).ok_or(())
    }
}

/// A decimal number times a factor, rounded down; without floats, so that what is written is what is meant.
fn scaled(number: &str, factor: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !(fraction.is_empty() && !number.ends_with('.') || digits(fraction)) {
        return None;
    }
    let mut all = whole.parse::<u128>().ok()? * factor;
    if !fraction.is_empty() {
        all += fraction.parse::<u128>().ok()? * factor / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    }
    Some(all)
}

/// Reads these types from strings and numbers.
macro_rules! from_value {
    ($($of:ty, $expected:literal;)*) => {$(
        impl FromValue for $of {
            fn expected() -> String {
                $expected.to_owned()
            }

            fn from_value(value: &Spanned<DeValue<'_>>) -> Result<Self, Mismatch> {
                let Scalar(text) = Scalar::from_value(value).map_err(|_| Mismatch::new($expected, value))?;
                text.parse().map_err(|()| Mismatch::new($expected, value))
            }
        }
    )*};
}

from_value! {
    Span, "a time up to a day, such as \"40s\" (units us, ms, s, m, h)";
    PerSecond, "a rate such as \"800MiB/s\" (bytes) or \"5k/s\" (operations)";
    Part, "a part such as \"20%\", from 0% to 100%";
    PartPerSecond, "a part in a second such as \"2%/s\"";
    SizeOf, "a size such as \"512MiB\", from 4KiB to 64TiB, or a part of the memory such as \"40%\", from 1% to 1000%";
    Count, "a whole number";
    Level, "a nice level from -20 to 19";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (text, expected) in [("40s", 40_000), ("1.5m", 90_000), ("2h", 7_200_000), ("7ms", 7), ("0.001s", 1)] {
            assert_eq!(text.parse(), Ok(Span(Picos::from_millis(expected))), "{text}");
        }
        for text in ["40", "s", "-1s", "1.s", "1d", "25h", "1e3s", "", "999999999999999999999s"] {
            assert_eq!(text.parse::<Span>(), Err(()), "{text}");
        }
    }

    #[test]
    fn rates_are_of_bytes_or_operations() {
        assert_eq!("800MiB/s".parse(), Ok(PerSecond(Rate::Bytes(800 << 20))));
        for (text, thousandths) in [("5k/s", 5_000_000), ("0.5/s", 500), ("2M/s", 2_000_000_000), ("200/s", 200_000)] {
            assert_eq!(text.parse(), Ok(PerSecond(Rate::Operations(thousandths))), "{text}");
        }
        for text in ["5k", "0/s", "k/s", "0B/s", "5kk/s", "-5/s"] {
            assert_eq!(text.parse::<PerSecond>(), Err(()), "{text}");
        }
    }

    #[test]
    fn parts_stop_at_all() {
        assert_eq!("2.5%".parse(), Ok(Part(25_000)));
        assert_eq!("2%/s".parse(), Ok(PartPerSecond(20_000)));
        for text in ["101%", "20", "-1%"] {
            assert_eq!(text.parse::<Part>(), Err(()), "{text}");
        }
    }
}
