//! Linux: none; what a kernel shows of itself in /proc/kpageflags, pagetypeinfo, buddyinfo and zoneinfo (v6.1).
//! Differs: pages of files on disks, slabs and all else that the kernel has for itself are blocks that stay where they are;
//! anonymous memory of every process is mapped by one address space, each page once, and so are pages of files in memory,
//! which reclaim sends to swap like those.
//!
//! Memory as a real kernel had it: every frame is what the kernel said it was, free blocks are those that it had, and each
//! is on a list of the type that the kernel counted it under. What no file says is drawn: see [`Drawn`].

mod fill;
mod system;
mod types;

use memory::{buddy::ORDERS, lru_kind::LruKind, pageblock::MigrateType};
use rules::{
    machine::MachineSpec,
    variant::Variant,
    zone::{Settings, ZoneKind},
};
use units::{NodeId, Order};

pub use self::system::System;
use crate::{Mm, space::address_space::AddressSpace};

/// The kind of a frame, as a kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There is no memory.
    Hole,
    /// Not the buddy allocator's.
    Reserved,
    /// In a free block.
    Free,
    /// In no way marked: the kernel's for itself, or on a per-CPU list.
    Unmarked,
    /// Anonymous memory, and the LRU list that it is on.
    Anon(Option<LruKind>),
    /// A page of a file in memory (tmpfs): reclaim sends it to swap, so that it is on a list of anonymous memory.
    Shmem(Shmem),
    /// A page of another file.
    File,
    /// A frame of a slab.
    Slab,
    /// A page table of a process.
    PageTable,
    /// Any other memory of the kernel.
    Kernel,
    /// A frame of the same block as the frame before.
    Tail,
}

/// A page of a file in memory, as a kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shmem {
    /// The LRU list that it is on.
    pub list: Option<LruKind>,
    /// Whether a process maps the page.
    pub is_mapped: bool,
    /// The page was accessed since reclaim last looked at it (`PG_referenced`).
    pub is_referenced: bool,
}

/// Counts of a zone, as a kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCounts {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// Pageblocks by type (/proc/pagetypeinfo).
    pub blocks: [u64; MigrateType::COUNT],
    /// Free blocks by type and order (/proc/pagetypeinfo).
    pub free: [[u64; ORDERS]; MigrateType::COUNT],
    /// Frames on each CPU's lists, by number of the CPU (/proc/zoneinfo).
    pub listed: Vec<u32>,
}

/// The memory of a machine, as a kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameMap {
    /// Every frame from the first on; frames beyond are holes.
    pub frames: Vec<Seen>,
    /// The zones of the machine; for zones that are missing, everything is drawn at random.
    pub zones: Vec<ZoneCounts>,
}

/// Facts that are drawn at random, because no file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// The type of pageblocks, as far as their contents and the counts leave a choice.
    BlockType,
    /// The order of the free lists.
    FreeOrder,
    /// The unmarked frames that are on per-CPU lists, and their order.
    Listed,
    /// The order of the LRU lists.
    LruOrder,
    /// The places of memory that a system has in use before anything begins.
    System,
}

/// A source of random draws.
pub trait Draw {
    /// Draws a number below `bound` for a purpose.
    fn below(&mut self, bound: u64, what: Drawn) -> u64;
}

/// Memory that was loaded from a kernel's report.
#[derive(Debug)]
pub struct Loaded {
    /// The memory.
    pub mm: Mm,
    /// The address space that maps all memory of processes.
    pub init: AddressSpace,
    /// Facts that were drawn, and facts that could not be taken over: a line each.
    pub notes: Vec<String>,
}

impl Mm {
    /// The memory of a machine as a kernel of it reports it; none if there is too little for a process.
    pub fn from_map(
        machine: &MachineSpec,
        variant: Variant,
        settings: &Settings,
        map: &FrameMap,
        draw: &mut dyn Draw,
    ) -> Option<Loaded> {
        let mm = Self::bare(machine, variant, settings);
        fill::fill(mm, machine, map, draw)
    }
}

/// Shuffles things (Fisher and Yates).
fn shuffle<T>(things: &mut [T], draw: &mut dyn Draw, what: Drawn) {
    for last in (1..things.len()).rev() {
        let other = draw.below(last as u64 + 1, what);
        things.swap(last, usize::try_from(other).expect("below the length"));
    }
}

/// The order of a block of `frames` frames at a place, if it can be one block.
fn order_of(pfn: u32, frames: u32) -> Option<Order> {
    let order = Order(u8::try_from(frames.trailing_zeros()).expect("at most 32"));
    (frames.is_power_of_two() && pfn.is_multiple_of(frames)).then_some(order)
}

#[cfg(test)]
mod tests;
