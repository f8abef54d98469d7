//! User code that goes through memory again and again.

use serde::{Deserialize, Serialize};
use units::{Bytes, Picos, Stores};

use crate::VmRange;

/// How user code goes through a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// The task stores to all of each page, page after page. An access is a cache line of 64 bytes.
    Sweep,
    /// As `Sweep`, with stores past all caches (`movntdq`).
    NonTemporal,
    /// As `Sweep`, with the string instruction (`rep stosb`).
    RepStosb,
    /// As `Sweep`, over memory of which no cache has a line, since gigabytes were used meanwhile.
    Fresh,
    /// The task loads one word of each page, in an order that no processor foresees; each load begins when the one before has
    /// come. An access is such a load.
    Random,
    /// As `Random`, with this number of words of each page, 1 to 64, each word in a cache line of its own.
    Lines(u32),
    /// The task loads one word of each page, page after page: a stride that processors do not follow beyond a page. Each load
    /// begins when the one before has come.
    Stride,
    /// As `Random`, and each word is stored back before the following word is loaded. An access is a load with its store.
    Update,
}

/// Parts of a range that are as long, and as far from each other, all over it, in whole pages; the last one may be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// From the start of the first part.
    pub range: VmRange,
    /// The length of each, a page at least.
    pub len: Bytes,
    /// Distance from the start of a part to the start of the following part, at least the length of a part.
    pub every: Bytes,
}

impl From<VmRange> for Runs {
    /// All of a range.
    fn from(range: VmRange) -> Self {
        Self { range, len: range.len, every: range.len }
    }
}

impl Pattern {
    /// Does the task store to all of memory, page after page?
    pub fn is_sweep(self) -> bool {
        self.stores().is_some()
    }

    /// The stores of a sweep; none for the patterns that load words.
    pub fn stores(self) -> Option<Stores> {
        match self {
            Self::Sweep | Self::Fresh => Some(Stores::Cached),
            Self::NonTemporal => Some(Stores::NonTemporal),
            Self::RepStosb => Some(Stores::RepStosb),
            Self::Random | Self::Lines(_) | Self::Stride | Self::Update => None,
        }
    }
}

impl From<Stores> for Pattern {
    fn from(stores: Stores) -> Self {
        match stores {
            Stores::Cached => Self::Sweep,
            Stores::NonTemporal => Self::NonTemporal,
            Stores::RepStosb => Self::RepStosb,
        }
    }
}

/// How long it does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// The whole range, this number of times.
    Rounds(u64),
    /// For this time by the clock.
    Time(Picos),
}

/// The result of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessed {
    /// How many accesses there were.
    pub accesses: u64,
    /// How long they took, by the clock.
    pub time: Picos,
}
