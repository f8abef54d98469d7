//! A machine as data: NUMA nodes, CPUs, memory, distances, kernel settings, prices. Files: `machines/NAME.toml`.

pub(crate) mod cpulist;
mod latency;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use latency::{FLAT, Latency};
use mm::whole::state::System;
use units::{Bytes, BytesPerSecond, CpuId, Frames, NodeId};

use crate::{
    prices::{self, Measured, Pace, Price, SharedCore},
    source::{self, Kind, Source},
    usage::UsageError,
};

/// A node's distance to itself, and to others when nothing says otherwise (ACPI's SLIT; LOCAL_DISTANCE and
/// REMOTE_DISTANCE in Linux).
pub(crate) const LOCAL_DISTANCE: u32 = 10;
pub(crate) const REMOTE_DISTANCE: u32 = 20;

/// A machine: what a run needs to know of it, whichever target builds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The name of its file.
    pub name: String,
    /// One line on what it is.
    pub about: String,
    /// NUMA nodes; node i has id i.
    pub nodes: Vec<Node>,
    /// The hardware threads of each core; empty when each core has one.
    pub threads: Vec<Vec<CpuId>>,
    /// The groups of CPUs that share a last-level cache; if this is empty, the CPUs of a node share one.
    pub caches: Vec<Vec<CpuId>>,
    /// The slow-down of CPUs that share a core; generic when it is not given.
    pub shared_core: Option<SharedCore>,
    /// Kernel settings by the kernel's names, such as `transparent_hugepage/enabled`; in the file's order.
    pub settings: Vec<(String, String)>,
    /// How fast it is where it gives no price of its own; as fast as the generic prices when it is not given.
    pub pace: Option<Pace>,
    /// Prices of primitive operations, in the order of `memory::cost::Work::ALL`; those not given are generic.
    pub prices: Vec<Price>,
    /// Other figures that were measured with them; no run uses them.
    pub measured: Vec<Measured>,
    /// How far memory is from each CPU; equally far everywhere when it is not given.
    pub latency: Option<Latency>,
    /// Kernel modules that a guest of this shape needs.
    pub modules: Vec<String>,
    /// Swap that a guest of this shape gets for workloads that fill memory; none if 0.
    pub swap: Bytes,
    /// The storage of swap and files.
    pub storage: Storage,
    /// The page size in which a host backs this machine's memory, where the machine is a guest; none where it is not.
    pub host_page: Option<Bytes>,
    /// How fast its disk is; generic when it is not given.
    pub disk: Option<Disk>,
    /// Memory in use before a simulated workload begins; nothing when it is not given.
    pub system: Option<System>,
    /// Release of the kernel that it was imported from.
    pub kernel: Option<String>,
}

/// The storage behind swap and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// A disk behind a queue.
    #[default]
    Disk,
    /// Memory that the kernel has no other use for, as in a replayable guest (pmem): a page is copied at once, by who writes
    /// or reads it.
    Memory,
}

impl Storage {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Memory];

    /// The storage's name in a machine file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// From the end of a request's transfer to its interrupt, in microseconds.
    pub latency_us: u64,
    /// How fast it reads and writes.
    pub bandwidth: BytesPerSecond,
    /// The disk's file system is XFS, and not ext4.
    pub is_xfs: bool,
    /// The room for all files together; none is as much as they need, as in a guest.
    pub size: Option<Bytes>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's number.
    pub id: NodeId,
    /// The node's CPUs; none when it has only memory.
    pub cpus: Vec<CpuId>,
    /// The node's memory.
    pub memory: Bytes,
    /// Distance to each node, as in ACPI's SLIT: 10 to itself.
    pub distance: Vec<u32>,
    /// Bytes per second that the node's memory gives to all CPUs together; no limit when it is not given.
    pub bandwidth: Option<BytesPerSecond>,
    /// The node's zones as a kernel laid them out; empty when not known.
    pub zones: Vec<ZoneFacts>,
}

/// Facts of a zone in /proc/zoneinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFacts {
    /// The kernel's name: DMA, DMA32, Normal, Movable.
    pub name: String,
    /// The zone's first frame.
    pub start_pfn: u64,
    /// Frames from first to last, holes included.
    pub spanned: Frames,
    /// Frames without the holes.
    pub present: Frames,
    /// Frames that the page allocator got.
    pub managed: Frames,
}

/// Nanoseconds of an instruction in a guest that is translated.
// `pagelab calibrate --kernel 6.1` in a guest with two CPUs, twice, beside two other guests on a host with two: the median of 20
// prices is 0.42 and 0.82 of that at 4 ns an instruction.
pub(crate) const TRANSLATED_NS: u64 = 3;

/// The text of a machine's file.
///
/// # Errors
/// A name or path that leads to none.
pub fn file(name_or_path: &str) -> Result<String, UsageError> {
    Ok(source::lookup(Kind::Machine, name_or_path)?.text().to_owned())
}

impl Machine {
    /// The machine of a name or path. `known` are the settings that a kernel can have.
    pub fn load(name_or_path: &str, known: &[&str]) -> Result<Self, UsageError> {
        Self::from_source(&source::lookup(Kind::Machine, name_or_path)?, known)
    }

    /// Reads and validates a machine file. `known` are the settings that a kernel can have.
    pub fn from_source(source: &Source, known: &[&str]) -> Result<Self, UsageError> {
        read::machine(source, known)
    }

    /// The machine as the text of a file, which [`Self::from_source`] reads back.
    pub fn to_toml(&self) -> String {
        write::machine(self)
    }

    /// Every CPU, in order.
    pub fn cpus(&self) -> Vec<CpuId> {
        let mut cpus: Vec<_> = self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// The memory of all nodes.
    pub fn memory(&self) -> Bytes {
        self.nodes.iter().map(|node| node.memory).sum()
    }

    /// Takes from `other` all that a kernel does not say: how fast things are (bandwidth by the number
    /// of the node), and the swap that a guest of its shape gets.
    #[must_use]
    pub fn as_fast_as(mut self, other: &Self) -> Self {
        self.prices.clone_from(&other.prices);
        self.pace.clone_from(&other.pace);
        self.shared_core.clone_from(&other.shared_core);
        if self.nodes.len() == other.nodes.len() {
            self.latency.clone_from(&other.latency);
        }
        self.disk = other.disk;
        self.swap = other.swap;
        self.storage = other.storage;
        self.host_page = other.host_page;
        self.system = other.system;
        for node in &mut self.nodes {
            node.bandwidth = other.nodes.iter().find(|theirs| theirs.id == node.id).and_then(|theirs| theirs.bandwidth);
        }
        self
    }

    /// Makes the machine as fast as a guest that counts time in instructions of 2^`shift` ns each.
    ///
    /// Timers do not slow down with a CPU: kcompactd looks for fragments every half second, and kswapd naps for a tenth. A
    /// kernel whose CPU takes seconds for what ours does in milliseconds has that much more of it done beside the same work.
    /// Such a guest has no device of the host's either: its disk and its swap are memory.
    #[must_use]
    pub fn counting_instructions(mut self, shift: u8) -> Self {
        self.storage = Storage::Memory;
        self.pace = None;
        self.prices = prices::of_instructions(1 << shift);
        self
    }

    /// Makes the machine as fast as a guest of which QEMU translates the instructions (`tcg`), in the host's time.
    ///
    /// A guest under translation, whose CPUs are some ten times slower than a server's, while its timers are not: see
    /// [`counting_instructions`](Self::counting_instructions). The disk is the host's.
    #[must_use]
    pub fn translated(mut self) -> Self {
        self.pace = None;
        self.prices = prices::of_instructions(TRANSLATED_NS);
        self
    }

    /// The machine with CPU 0 only, as the replayable mode wants it; other nodes keep their memory.
    #[must_use]
    pub fn with_one_cpu(&self) -> Self {
        let mut machine = self.clone();
        for node in &mut machine.nodes {
            node.cpus.retain(|&cpu| cpu == CpuId(0));
        }
        machine.threads.clear();
        machine.caches.clear();
        assert_eq!(machine.cpus(), [CpuId(0)], "machine {} has a CPU 0", self.name);
        machine
    }
}
