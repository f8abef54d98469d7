//! Linux: none; this is what memory does by itself.
//! Differs: loads wait for one another or not at all; a task has the whole of its cache and of its TLB for the range that it goes
//! through.
//!
//! The latency of an access of user code, by the node of the CPU, the node of the memory, and the order of accesses. A machine
//! whose file says nothing of that is flat: an access takes as long as `user_touch` says, wherever the page is.

use units::{Bytes, Frames, Picos};

use super::{Prices, Walk, Work, walk::Visit};

/// How user code goes through a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The program stores to all of each page, one after the other. Processors fetch the next lines meanwhile.
    Sweep,
    /// The program loads one word of each page, in an order that no processor foresees, each only when the one before has come.
    Random,
    /// As `Random`, with so many words of each page, each in a line of its own.
    Lines(u32),
    /// As `Random`, but page after page.
    Stride,
    /// As `Random`, and the word is stored back. The line is there then, and goes to memory when nobody waits for it.
    Update,
}

impl Pattern {
    /// Accesses to memory, a cache line each, of a visit to a base page.
    pub const fn accesses(self) -> u64 {
        match self {
            Self::Sweep => Bytes::PAGE.0 / LINE,
            Self::Random | Self::Stride | Self::Update => 1,
            Self::Lines(lines) => lines as u64,
        }
    }

    /// Does it store?
    pub fn stores(self) -> bool {
        matches!(self, Self::Sweep | Self::Update)
    }

    /// Is it an order that no processor foresees?
    pub fn is_random(self) -> bool {
        matches!(self, Self::Random | Self::Lines(_) | Self::Update)
    }
}

/// Bytes of a cache line of x86-64.
const LINE: u64 = 64;

/// The price of each of a number of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessPrice {
    /// As long as it takes from the CPU's own node.
    pub near: Picos,
    /// The part that comes on top because the memory is another node's.
    pub far: Picos,
}

impl AccessPrice {
    /// Both together.
    pub fn total(self) -> Picos {
        self.near + self.far
    }

    fn times(self, n: u64) -> Self {
        Self { near: Picos(self.near.0 * n), far: Picos(self.far.0 * n) }
    }
}

/// A last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCache {
    /// The size of the cache.
    pub size: Bytes,
    /// A load from it.
    pub load: Picos,
}

/// The reach of the TLBs, and the price of a translation that none of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbReach {
    /// Memory in base pages.
    pub base: Bytes,
    /// Memory in huge pages.
    pub huge: Bytes,
    /// A walk of the page tables.
    pub miss: Picos,
}

/// The latency of a machine's memory, by places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// A load that has to come from memory: by position of the CPU's node, of the memory's node. Nothing is flat.
    pub load: Vec<Vec<Picos>>,
    /// A cache line of a sweep of stores that go to memory, by the same. Nothing: as a load.
    pub line: Vec<Vec<Picos>>,
    /// A cache line that CPUs write in step, from one to the next, by position of their nodes. Nothing: it takes no time.
    pub handover: Vec<Vec<Picos>>,
    /// The last-level cache of each CPU.
    pub cache: Option<LastCache>,
    /// The TLB of each CPU.
    pub tlb: Option<TlbReach>,
    /// The way of a processor from an address to memory; where it is given, `tlb` is not needed.
    pub walk: Option<Walk>,
    /// The time to send a page over the link between two nodes, by the same places as `load`; 0 where the link has no limit.
    /// Nothing: no link has one.
    pub links: Vec<Vec<Picos>>,
    /// How much of each other CPUs take that are busy; none where each has its core and its cache for itself.
    pub sharing: Option<Sharing>,
}

/// CPUs that are busy share what they have in common: those of a core its speed, those of a cache its size, in equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// User code that needs no memory takes so much, while another hardware thread of the core is busy, in percent of its time
    /// alone.
    pub core_percent: u32,
}

/// Busy CPUs beside the one that takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Is another hardware thread of its core busy?
    pub on_core: bool,
    /// Busy CPUs of its last-level cache, with itself.
    pub cache_users: u64,
}

impl Default for Beside {
    fn default() -> Self {
        Self { on_core: false, cache_users: 1 }
    }
}

/// Shares are in so many parts: a price is rounded down once, for a single access, so that it does not matter how many are paid
/// for at a time.
pub(super) const PARTS: u64 = 1 << 16;

impl Latency {
    /// Does it not matter where memory is?
    #[inline]
    pub fn is_flat(&self) -> bool {
        self.load.is_empty()
    }

    /// A load from memory, past all caches. `from`, `to`: positions of nodes.
    pub fn of(&self, prices: &Prices, from: usize, to: usize) -> AccessPrice {
        if self.is_flat() {
            return AccessPrice { near: prices.of(Work::UserTouch), far: Picos(0) };
        }
        split(self.load[from][from], self.load[from][to])
    }

    /// Has a cache all of a range?
    pub fn is_cached(&self, range: Frames) -> bool {
        self.cache.is_some_and(|cache| range.bytes() <= cache.size)
    }

    /// A visit of loads to a page of a range, where walks are known; elsewhere [`Self::of_visit`] has it.
    pub fn walked_visit(&self, pattern: Pattern, range: Frames, is_huge: bool) -> Option<Visit> {
        let walk = self.walk.as_ref().filter(|_| !self.is_flat())?;
        match pattern {
            Pattern::Sweep => None,
            Pattern::Stride => Some(walk.visit_in_order(self.cache, range, is_huge)),
            Pattern::Random | Pattern::Lines(_) | Pattern::Update => {
                Some(walk.visit(self.cache, (range, pattern.accesses()), is_huge))
            }
        }
    }

    /// A visit to a base page of a range of so many pages, or to such a part of a huge page.
    pub fn of_visit(&self, prices: &Prices, pattern: Pattern, range: Frames, place: Place) -> AccessPrice {
        let Place { from, to, is_huge, cache_users } = place;
        let is_cached = self.is_cached(range);
        match pattern {
            Pattern::Sweep if self.is_flat() || is_cached => {
                AccessPrice { near: prices.of(Work::UserFill), far: Picos(0) }
            }
            Pattern::Sweep => {
                let line = if self.line.is_empty() { &self.load } else { &self.line };
                split(line[from][from], line[from][to]).times(pattern.accesses())
            }
            Pattern::Random | Pattern::Lines(_) | Pattern::Stride | Pattern::Update if self.is_flat() => {
                self.of(prices, from, to).times(pattern.accesses())
            }
            Pattern::Random | Pattern::Lines(_) | Pattern::Stride | Pattern::Update => {
                let memory = self.of(prices, from, to);
                let hits = self.cache.map_or(0, |cache| share(Bytes(cache.size.0 / cache_users), range));
                let from_cache = self.cache.map_or(Picos(0), |cache| cache.load);
                let walks = self.tlb.map_or(Picos(0), |tlb| {
                    let reach = if is_huge { tlb.huge } else { tlb.base };
                    part(tlb.miss, PARTS - share(reach, range))
                });
                let load = AccessPrice {
                    near: part(from_cache, hits) + part(memory.near, PARTS - hits),
                    far: part(memory.far, PARTS - hits),
                };
                let loads = load.times(pattern.accesses());
                AccessPrice { near: loads.near + walks, ..loads }
            }
        }
    }
}

/// The place of an access: its CPU, its memory, and how it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the CPU's node.
    pub from: usize,
    /// The position of the memory's node.
    pub to: usize,
    /// The page is mapped by a huge page.
    pub is_huge: bool,
    /// CPUs that have equal parts of the cache.
    pub cache_users: u64,
}

/// Splits the price of a place into the price within the CPU's own node, and the rest.
fn split(own: Picos, all: Picos) -> AccessPrice {
    let near = own.min(all);
    AccessPrice { near, far: all - near }
}

/// How much of a range something holds, in parts.
fn share(of: Bytes, range: Frames) -> u64 {
    let range = range.bytes().0.max(1);
    let share = u128::from(of.0.min(range)) * u128::from(PARTS) / u128::from(range);
    u64::try_from(share).expect("at most all of it")
}

fn part(of: Picos, parts: u64) -> Picos {
    Picos(of.0 * parts / PARTS)
}

#[cfg(test)]
mod tests;
