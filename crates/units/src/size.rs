//! Sizes: bytes as a user writes them, frames as the memory manager counts them.

use std::{
    fmt,
    ops::{Add, AddAssign, Mul, Sub},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// log2 of the bytes in a frame: 4 KiB, the base page of x86-64.
pub const FRAME_SHIFT: u32 = 12;

/// A size in bytes. Written `512MiB` or `2 GiB` by users; serialised the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A count of 4 KiB frames of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Frames(pub u64);

impl Bytes {
    /// One base page, 4 KiB.
    pub const PAGE: Self = Self::kib(4);
    /// One huge page of x86-64, 2 MiB.
    pub const HUGE_PAGE: Self = Self::mib(2);

    /// `n` KiB (1,024 bytes each).
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Whole frames in this many bytes, rounded down.
    pub const fn frames(self) -> Frames {
        Frames(self.0 >> FRAME_SHIFT)
    }

    /// KiB, rounded down.
    pub const fn as_kib(self) -> u64 {
        self.0 >> 10
    }

    /// MiB, rounded down.
    pub const fn as_mib(self) -> u64 {
        self.0 >> 20
    }
}

impl Frames {
    /// The bytes in these frames.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 << FRAME_SHIFT)
    }

    /// The KiB in these frames.
    pub const fn kib(self) -> u64 {
        self.0 << (FRAME_SHIFT - 10)
    }

    /// Whole frames in `kib` KiB, rounded down.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib >> (FRAME_SHIFT - 10))
    }
}

macro_rules! arithmetic {
    ($($quantity:ident),*) => {$(
        impl Add for $quantity {
            type Output = Self;
            fn add(self, other: Self) -> Self { Self(self.0 + other.0) }
        }
        impl AddAssign for $quantity {
            fn add_assign(&mut self, other: Self) { self.0 += other.0; }
        }
        impl Sub for $quantity {
            type Output = Self;
            fn sub(self, other: Self) -> Self { Self(self.0 - other.0) }
        }
        impl Mul<u64> for $quantity {
            type Output = Self;
            fn mul(self, times: u64) -> Self { Self(self.0 * times) }
        }
        impl std::iter::Sum for $quantity {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self { parts.fold(Self(0), Add::add) }
        }
    )*};
}
arithmetic!(Bytes, Frames);

const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Prints in the largest unit that divides the size exactly, so that what is printed parses back to the same size.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) =
            UNITS.into_iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale)).unwrap_or(("B", 1));
        f.pad(&format!("{}{unit}", self.0 / scale))
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSizeError {
    /// No unit, or one that is not a power of two: `MB` could mean either, so it is not accepted.
    #[error("expected a size such as \"512MiB\" (units B, KiB, MiB, GiB, TiB), found {0:?}")]
    Form(String),
    /// More than 64 bits of bytes.
    #[error("{0:?} is more bytes than 64 bits hold")]
    TooLarge(String),
}

impl FromStr for Bytes {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseSizeError::Form(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
        let (number, unit) = text.split_at(digits);
        let scale = UNITS.into_iter().find(|(name, _)| *name == unit.trim()).ok_or_else(form)?.1;
        if number.is_empty() {
            return Err(form());
        }
        let too_large = || ParseSizeError::TooLarge(text.to_owned());
        let number: u64 = number.parse().map_err(|_| too_large())?;
        number.checked_mul(scale).map(Bytes).ok_or_else(too_large)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_through_text() {
        for size in [0, 1, 4096, 1 << 20, 3 << 29, (1 << 30) + 4096, u64::MAX] {
            assert_eq!(Bytes(size).to_string().parse(), Ok(Bytes(size)));
        }
        assert_eq!("128 MiB".parse(), Ok(Bytes::mib(128)));
    }

    #[test]
    fn sizes_without_a_binary_unit_are_refused() {
        for text in ["", "128", "MiB", "1.5GiB", "2GB", "-1KiB", "4kib"] {
            assert_eq!(text.parse::<Bytes>(), Err(ParseSizeError::Form(text.to_owned())), "{text}");
        }
        assert!(matches!("99999999TiB".parse::<Bytes>(), Err(ParseSizeError::TooLarge(_))));
        assert!(matches!("99999999999999999999B".parse::<Bytes>(), Err(ParseSizeError::TooLarge(_))));
    }

    #[test]
    fn frames_are_four_kib() {
        assert_eq!(Bytes::HUGE_PAGE.frames(), Frames(512));
        assert_eq!(Frames(512).kib(), 2048);
        assert_eq!(Frames::from_kib(67584), Frames(16896));
    }
}
