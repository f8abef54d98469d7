//! Names of CPUs, NUMA nodes and virtual addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a logical CPU, as in `/sys/devices/system/cpu/cpuN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

/// Number of a NUMA node, as in `/sys/devices/system/node/nodeN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// A virtual address in bytes, meaningful in one address space only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The next address at or above this one that is a multiple of `align` bytes (a power of two).
    #[must_use]
    pub fn align_up(self, align: crate::Bytes) -> Self {
        assert!(align.0.is_power_of_two(), "alignment {} is not a power of two", align.0);
        Self((self.0 + align.0 - 1) & !(align.0 - 1))
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Number of a frame of physical memory, 4 KiB each. 32 bits reach 16 TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pfn(pub u32);

/// Number of a base page of an address space, 4 KiB each: 36 bits of the 48 that x86-64 translates with four levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vpn(pub u64);

/// log2 of the frames in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Order(pub u8);

impl Order {
    /// One frame.
    pub const BASE: Self = Self(0);
    /// A huge page of x86-64: 512 frames.
    pub const HUGE: Self = Self(9);

    /// Frames in a run of this order.
    pub const fn frames(self) -> u32 {
        1 << self.0
    }
}

impl Pfn {
    /// The frame `n` frames further on.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0 + n)
    }

    /// Whether a run of `order` may start here.
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }

    /// The start of the run of `order` that holds this frame.
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !(order.frames() - 1))
    }

    /// The other half of the run of the next higher order.
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ order.frames())
    }
}

impl Vpn {
    /// The page `n` pages further on.
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0 + n)
    }

    /// The first page of the huge page that holds this one.
    #[must_use]
    pub const fn huge_start(self) -> Self {
        Self(self.0 & !((1 << Order::HUGE.0) - 1))
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
