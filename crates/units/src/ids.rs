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
