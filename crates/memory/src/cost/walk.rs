//! Linux: none; the work of processors: TLBs, page walks, and the caches that these share with data.
//! Differs: each random access is to a random line of the range. For random accesses caches and TLBs replace entries at random,
//! for accesses by address the least recently used. They belong to one task. A walk reads one entry after the other, and two
//! walks never overlap. Tables above the lowest level are priced as if they were on the CPU's node, as a cache holds nearly all
//! of these entries.
//!
//! The price of random accesses to a range is computed, not given. The translations that the TLB holds give the number of walks;
//! the entries that the walk caches hold give the entries that a walk reads; the lines of data and of tables give the parts that
//! come from a cache and from memory. In a guest each entry, and the data in the end, is at an address that the host's tables
//! have to translate: up to 24 entries for one access.

use units::{Frames, Picos};

use super::{AccessPrice, LastCache, Latency};

/// Entries of a TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbEntries {
    /// Translations of base pages.
    pub base: u64,
    /// Translations of huge pages.
    pub huge: u64,
}

/// The size of the pages in which a host backs a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPages {
    /// Base pages.
    Base,
    /// Huge pages.
    Huge,
    /// The size of the pages in which the guest maps the memory.
    AsGuest,
}

/// The parts of a processor between an address and memory: TLBs, walk caches and a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The first-level TLB.
    pub first: TlbEntries,
    /// The second-level TLB.
    pub second: TlbEntries,
    /// Time of a lookup in the second-level TLB.
    pub second_hit: Picos,
    /// Entries in the walk caches, which save reads of upper tables: of PMD tables, of PUD tables and of the root.
    pub skips: [u64; 3],
    /// The cache between a core and the last-level one.
    pub private: Option<LastCache>,
    /// In a guest: how the host backs the memory.
    pub host: Option<HostPages>,
}

/// Shares are in units of 2^-16.
const PARTS: u64 = super::latency::PARTS;
/// Bytes of a cache line, and of an entry of a page table.
const LINE: u64 = 64;
const ENTRY: u64 = 8;
/// Entries of a table.
const ENTRIES: u64 = 512;
/// Levels of page tables.
const LEVELS: usize = 4;

/// The memory that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The range itself.
    Data,
    /// The range's page tables.
    Tables,
    /// The page tables of the range's host.
    HostTables,
}

/// Lines of one owner, each of which is read equally often.
#[derive(Clone, Copy, Debug)]
struct Reads {
    owner: Owner,
    lines: u64,
    /// Reads of these lines for each access to the range, in parts.
    rate: u64,
}

/// The price of a visit to a page, before the distance to memory is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The time of caches and TLBs.
    cached: Picos,
    /// Loads from memory for each visit, in parts: of data, of page tables, of the host's page tables.
    from_memory: [u64; 3],
}

/// The positions of the nodes that a visit involves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    /// That of the CPU.
    pub cpu: usize,
    /// That of the page; a host's tables are there, too.
    pub page: usize,
    /// That of its page table.
    pub tables: usize,
}

impl Visit {
    /// The price between nodes.
    pub fn price(&self, latency: &Latency, homes: Homes) -> AccessPrice {
        let row = &latency.load[homes.cpu];
        let own = row[homes.cpu].0;
        let (mut near, mut far) = (0, 0);
        for (parts, home) in self.from_memory.iter().zip([homes.page, homes.tables, homes.page]) {
            let load = row[home].0;
            near += parts * own.min(load);
            far += parts * load.saturating_sub(own);
        }
        AccessPrice { near: self.cached + Picos(near / PARTS), far: Picos(far / PARTS) }
    }
}

impl Walk {
    /// A visit to `lines` lines of a page of a range of `range` base pages; the range is mapped by base pages or by huge
    /// ones.
    pub fn visit(&self, last: Option<LastCache>, (range, lines): (Frames, u64), is_huge: bool) -> Visit {
        let reads = self.reads((range, lines), is_huge);
        let [private, last_hits] = [self.private, last].map(|cache| hits(cache, &reads));
        let mut visit = Visit { cached: self.second_time(range, is_huge), from_memory: [0; 3] };
        let loads = [self.private, last].map(|cache| cache.map_or(0, |cache| cache.load.0));
        let mut cached = 0;
        for (at, read) in reads.iter().enumerate() {
            let here = private[at];
            let behind = last_hits[at].max(here) - here;
            cached += (loads[0] * here + loads[1] * behind) / PARTS * read.rate / PARTS;
            visit.from_memory[read.owner as usize] += (PARTS - here - behind) * read.rate / PARTS;
        }
        visit.cached += Picos(cached);
        visit
    }

    /// A visit to one line of the next page of a range that is accessed by address. A TLB or cache that does not hold the whole
    /// range holds none of what comes next; but 8 neighbouring entries share a line, and a walk cache holds the entries above.
    pub(crate) fn visit_in_order(&self, last: Option<LastCache>, range: Frames, is_huge: bool) -> Visit {
        let (translations, huge) = self.translations(range, is_huge);
        let pages = if huge { ENTRIES } else { 1 };
        let walks_by = |tlb: TlbEntries| {
            let entries = if huge { tlb.huge } else { tlb.base };
            if entries >= translations { 0 } else { PARTS / pages }
        };
        let walks = walks_by(self.second);
        let mut reads = self.levels_in_order(Owner::Tables, leaves(range.0, is_huge), (usize::from(is_huge), walks));
        if let Some(host) = self.host {
            let is_huge = host.is_huge(is_huge);
            reads.extend(self.levels_in_order(
                Owner::HostTables,
                leaves(range.0, is_huge),
                (usize::from(is_huge), walks),
            ));
        }
        let data = (range.bytes().0 / LINE).max(1);
        let lines = data + reads.iter().map(|read| read.lines).sum::<u64>();
        let holder = [self.private, last].into_iter().flatten().find(|cache| cache.size.0 / LINE >= lines);
        let near = self.private.or(last).map_or(Picos(0), |cache| cache.load);
        let mut visit = Visit { cached: Picos(self.second_hit.0 * walks_by(self.first) / PARTS), from_memory: [0; 3] };
        let mut load = |owner: Owner, rate: u64| match holder {
            Some(cache) => visit.cached += Picos(cache.load.0 * rate / PARTS),
            None => visit.from_memory[owner as usize] += rate,
        };
        load(Owner::Data, PARTS);
        let mut again = 0;
        for read in reads {
            let first = read.rate / (LINE / ENTRY);
            load(read.owner, first);
            again += read.rate - first;
        }
        visit.cached += Picos(near.0 * again / PARTS);
        visit
    }

    /// The entries that walks read if accesses come by address: an entry above the lowest level is read once for each table
    /// below it. Walks of the host's tables for the guest's tables are as rare, and left out.
    fn levels_in_order(&self, owner: Owner, pages: u64, (lowest, walks): (usize, u64)) -> Vec<Reads> {
        let (mut entries, mut rate, mut reads) = (pages, walks, Vec::new());
        for level in lowest..LEVELS {
            if level > lowest {
                entries = entries.div_ceil(ENTRIES);
                rate = if self.skips[level - 1] > 0 { rate / ENTRIES } else { rate };
            }
            reads.push(Reads { owner, lines: (entries * ENTRY).div_ceil(LINE), rate });
        }
        reads
    }

    /// Walks for each access, in parts.
    pub fn walks(&self, range: Frames, is_huge: bool) -> u64 {
        misses(self.second, self.translations(range, is_huge))
    }

    fn second_time(&self, range: Frames, is_huge: bool) -> Picos {
        Picos(self.second_hit.0 * misses(self.first, self.translations(range, is_huge)) / PARTS)
    }

    /// Number of translations of the range, and whether they are of huge pages: the smaller page size of guest and host counts.
    fn translations(&self, range: Frames, is_huge: bool) -> (u64, bool) {
        let is_huge = is_huge && self.host.is_none_or(|host| host.is_huge(is_huge));
        (leaves(range.0, is_huge), is_huge)
    }

    /// All lines that accesses to a range read, data and tables.
    fn reads(&self, (range, lines): (Frames, u64), is_huge: bool) -> Vec<Reads> {
        let walks = self.walks(range, is_huge);
        let data = (range.bytes().0 / LINE).max(1);
        let mut all = vec![Reads { owner: Owner::Data, lines: data, rate: PARTS * lines }];
        let tables = self.levels(Owner::Tables, leaves(range.0, is_huge), (usize::from(is_huge), walks));
        if let Some(host) = self.host {
            let is_huge = host.is_huge(is_huge);
            let pages = leaves(range.0, is_huge);
            for table in &tables {
                // A guest's table is a page of the guest: the host's entries for such pages are as far apart as the tables are.
                let its = (table.lines * LINE).div_ceil(ENTRIES * ENTRY).min(pages);
                let of_host = self.levels(Owner::HostTables, pages, (usize::from(is_huge), table.rate));
                all.extend(of_host.into_iter().map(|read| Reads { lines: read.lines.min(its), ..read }));
            }
            all.extend(self.levels(Owner::HostTables, pages, (usize::from(is_huge), walks)));
        }
        all.extend(tables);
        all.retain(|read| read.rate > 0);
        all
    }

    /// The entries that walks read, by level, from the lowest up: `pages` entries on the lowest level, and `walks` walks for
    /// each access.
    fn levels(&self, owner: Owner, pages: u64, (lowest, walks): (usize, u64)) -> Vec<Reads> {
        let (mut entries, mut rate, mut reads) = (pages, walks, Vec::new());
        for level in lowest..LEVELS {
            if level > lowest {
                entries = entries.div_ceil(ENTRIES);
                // The walk begins below an entry that the walk cache holds.
                rate = rate * (PARTS - share(self.skips[level - 1], entries)) / PARTS;
            }
            reads.push(Reads { owner, lines: (entries * ENTRY).div_ceil(LINE), rate });
        }
        reads
    }
}

impl HostPages {
    fn is_huge(self, guest_is_huge: bool) -> bool {
        match self {
            Self::Base => false,
            Self::Huge => true,
            Self::AsGuest => guest_is_huge,
        }
    }
}

/// Number of pages, base or huge, in a range of `pages` base pages.
fn leaves(pages: u64, is_huge: bool) -> u64 {
    if is_huge { pages.div_ceil(ENTRIES).max(1) } else { pages.max(1) }
}

/// The share of accesses that miss a TLB, in parts.
fn misses(tlb: TlbEntries, (translations, is_huge): (u64, bool)) -> u64 {
    PARTS - share(if is_huge { tlb.huge } else { tlb.base }, translations)
}

/// The share of `all` that is held, in parts.
fn share(held: u64, all: u64) -> u64 {
    PARTS * held.min(all) / all.max(1)
}

/// The share of reads that a cache serves, for each kind of line, in parts. A cache that replaces at random keeps every line for
/// the same time; a line read r times in that time is found in r of 1 + r reads (Gelenbe, A Unified Approach to the Evaluation
/// of a Class of Replacement Algorithms, IEEE Transactions on Computers, 1973). The time is the one with which the lines fill
/// the cache.
fn hits(cache: Option<LastCache>, reads: &[Reads]) -> Vec<u64> {
    let Some(cache) = cache else { return vec![0; reads.len()] };
    let room = u128::from(cache.size.0 / LINE);
    if reads.iter().map(|read| u128::from(read.lines)).sum::<u128>() <= room {
        return vec![PARTS; reads.len()];
    }
    let held = |time: u128, read: &Reads| {
        let read_again = u128::from(read.rate) * time;
        read_again * u128::from(PARTS) / (read_again + u128::from(read.lines) * u128::from(PARTS))
    };
    let fills = |time: u128| {
        let lines: u128 = reads.iter().map(|read| u128::from(read.lines) * held(time, read)).sum();
        lines >= room * u128::from(PARTS)
    };
    // Times are in accesses. Bound: one halving per bit.
    let (mut too_short, mut long_enough) = (0, 1_u128 << 56);
    while long_enough - too_short > 1 {
        let time = u128::midpoint(too_short, long_enough);
        *(if fills(time) { &mut long_enough } else { &mut too_short }) = time;
    }
    reads.iter().map(|read| u64::try_from(held(too_short, read)).expect("at most all")).collect()
}

#[cfg(test)]
mod tests;
