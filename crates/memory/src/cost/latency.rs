//! Linux: none; the latency of memory itself.
//! Differs: loads wait for one another or not at all; a task has its CPU's cache and TLB to itself, for the range that it goes
//! through.
//!
//! The latency of an access of user code, by the node of the CPU, the node of the memory, and the order of accesses. On a machine
//! whose file has no latencies memory is flat: an access takes `user_touch`, wherever the page is.

use units::{Bytes, Frames, Picos};

use super::{Prices, Walk, Work, walk::Visit};

/// The order in which user code accesses a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The program stores to all of each page, page after page. The processor fetches the next lines meanwhile.
    Sweep,
    /// As `Sweep`, with stores past all caches (`movntdq`): no cache owns the line, and each line keeps one of the few buffers
    /// of its core until memory has it.
    NonTemporal,
    /// As `Sweep`, over memory of which no cache has a line, since gigabytes were used meanwhile: each line is read before it is
    /// written, and goes back to memory when the cache needs its place.
    Fresh,
    /// The program loads one word of each page, in an order that no processor foresees, each load only after the last has
    /// completed.
    Random,
    /// As `Random`, with this number of words of each page, each word in its own cache line.
    Lines(u32),
    /// As `Random`, but page after page.
    Stride,
    /// As `Random`, and the word is stored back. The line is in the cache by then, and is written to memory without anybody
    /// waiting.
    Update,
}

impl Pattern {
    /// Cache lines that a visit to a base page accesses.
    pub const fn accesses(self) -> u64 {
        match self {
            Self::Sweep | Self::NonTemporal | Self::Fresh => Bytes::PAGE.0 / LINE,
            Self::Random | Self::Stride | Self::Update => 1,
            Self::Lines(lines) => lines as u64,
        }
    }

    /// Does it store?
    pub fn stores(self) -> bool {
        matches!(self, Self::Sweep | Self::NonTemporal | Self::Fresh | Self::Update)
    }

    /// Does it write all of memory in order?
    pub fn is_sweep(self) -> bool {
        matches!(self, Self::Sweep | Self::NonTemporal | Self::Fresh)
    }

    /// Is no line of the range in a cache before?
    pub fn is_never_cached(self) -> bool {
        matches!(self, Self::NonTemporal | Self::Fresh)
    }

    /// How often each line goes between the caches and memory.
    pub const fn crossings(self) -> u64 {
        if matches!(self, Self::Fresh) { 2 } else { 1 }
    }

    /// Is it an order that no processor foresees?
    pub fn is_random(self) -> bool {
        matches!(self, Self::Random | Self::Lines(_) | Self::Update)
    }
}

/// Bytes of a cache line of x86-64.
const LINE: u64 = 64;

/// Lines that a core may have on their way at once (line fill buffers of Nehalem to Skylake: Intel's optimization manual).
const FILL_BUFFERS: u64 = 10;

/// The price of one access, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessPrice {
    /// Time that the access takes in the CPU's own node.
    pub near: Picos,
    /// Time on top because the memory is on another node.
    pub far: Picos,
}

impl AccessPrice {
    /// The sum of both parts.
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
    /// Time of a load from the cache.
    pub load: Picos,
}

/// The reach of the TLBs, and the price of a TLB miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbReach {
    /// Memory that base-page entries cover.
    pub base: Bytes,
    /// Memory that huge-page entries cover.
    pub huge: Bytes,
    /// A walk of the page tables.
    pub miss: Picos,
}

/// The latency of a machine's memory, by places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Time of a load from memory: by the position of the CPU's node, then of the memory's. Empty: memory is flat.
    pub load: Vec<Vec<Picos>>,
    /// Time of one cache line in a sweep of stores to memory, by the same positions. Empty: as a load.
    pub line: Vec<Vec<Picos>>,
    /// Time of a cache line from one CPU to the next, for CPUs that write in step, by the positions of their nodes. Empty: no
    /// time.
    pub handover: Vec<Vec<Picos>>,
    /// The last-level cache of each CPU.
    pub cache: Option<LastCache>,
    /// The TLB of each CPU.
    pub tlb: Option<TlbReach>,
    /// The caches and TLBs of a page walk; if given, `tlb` is not needed.
    pub walk: Option<Walk>,
    /// Time to send a page over the link between two nodes, by the positions of `load`; 0 where the link has no limit. Empty: no
    /// link has a limit.
    pub links: Vec<Vec<Picos>>,
    /// How much busy CPUs slow each other down; none if each has its core and its cache for itself.
    pub sharing: Option<Sharing>,
}

/// Sharing by busy CPUs: those on one core share its speed, those on one cache its size, in equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Time of user code that needs no memory while another hardware thread of the core is busy, in percent of its time alone.
    pub core_percent: u32,
    /// By how much the time in which saturated memory serves a page differs at most between a CPU and the mean of all, in
    /// percent; none: all CPUs have equal parts.
    pub uneven_percent: Option<u32>,
}

/// Busy CPUs beside the one that takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Whether another hardware thread of this CPU's core is busy.
    pub on_core: bool,
    /// Busy CPUs that share the last-level cache, this CPU included.
    pub cache_users: u64,
}

impl Default for Beside {
    fn default() -> Self {
        Self { on_core: false, cache_users: 1 }
    }
}

/// Shares are in units of 2^-16. A price is rounded down once, for a single access, so that the sum does not depend on how many
/// accesses are paid for at a time.
pub(super) const PARTS: u64 = 1 << 16;

impl Latency {
    /// Whether memory is flat: the node does not matter.
    #[inline]
    pub fn is_flat(&self) -> bool {
        self.load.is_empty()
    }

    /// Time of a load from memory, past all caches. `from`, `to`: positions of nodes.
    pub fn of(&self, prices: &Prices, from: usize, to: usize) -> AccessPrice {
        if self.is_flat() {
            return AccessPrice { near: prices.of(Work::UserTouch), far: Picos(0) };
        }
        split(self.load[from][from], self.load[from][to])
    }

    /// Has a cache all of a range, of which a CPU has an equal part beside the other CPUs that share it and are busy?
    pub fn is_cached(&self, range: Frames, cache_users: u64) -> bool {
        self.cache.is_some_and(|cache| range.bytes().0 <= cache.size.0 / cache_users)
    }

    /// A visit of loads to a page of a range, where walks are known; elsewhere [`Self::of_visit`] has it.
    pub fn walked_visit(&self, pattern: Pattern, range: Frames, is_huge: bool) -> Option<Visit> {
        let walk = self.walk.as_ref().filter(|_| !self.is_flat())?;
        match pattern {
            Pattern::Sweep | Pattern::NonTemporal | Pattern::Fresh => None,
            Pattern::Stride => Some(walk.visit_in_order(self.cache, range, is_huge)),
            Pattern::Random | Pattern::Lines(_) | Pattern::Update => {
                Some(walk.visit(self.cache, (range, pattern.accesses()), is_huge))
            }
        }
    }

    /// The price of a visit to a base page, or to 4 KiB of a huge page, of a range of this many frames.
    pub fn of_visit(&self, prices: &Prices, pattern: Pattern, range: Frames, place: Place) -> AccessPrice {
        let Place { from, to, is_huge, cache_users } = place;
        let is_cached = !pattern.is_never_cached() && self.is_cached(range, cache_users);
        match pattern {
            Pattern::NonTemporal if !self.is_flat() => {
                let line = |to: usize| Picos(self.load[from][to].0 / FILL_BUFFERS);
                split(line(from), line(to)).times(pattern.accesses())
            }
            Pattern::Sweep | Pattern::NonTemporal | Pattern::Fresh if self.is_flat() || is_cached => {
                AccessPrice { near: prices.of(Work::UserFill), far: Picos(0) }
            }
            Pattern::Sweep | Pattern::NonTemporal | Pattern::Fresh => {
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

/// The place of an access: the node of its CPU, the node of its memory, and the size of its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the CPU's node.
    pub from: usize,
    /// The position of the memory's node.
    pub to: usize,
    /// The page is mapped by a huge page.
    pub is_huge: bool,
    /// CPUs that share the cache in equal parts.
    pub cache_users: u64,
}

/// Splits a price into that within the CPU's own node, and the rest.
fn split(own: Picos, all: Picos) -> AccessPrice {
    let near = own.min(all);
    AccessPrice { near, far: all - near }
}

/// The part of a range that a cache or a TLB holds, in parts.
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
