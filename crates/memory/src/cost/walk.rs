//! Linux: none; this is what processors do by themselves: TLBs, page walks, and the caches that these share with data.
//! Differs: each random access is to a line of the range drawn anew; there caches and TLBs replace at random, and what is least
//! recently used where accesses come by address; they are a task's own; a walk reads one entry after the other, and never two
//! walks at a time; the tables above the lowest are priced as if they were on its node, as a cache has nearly all of them.
//!
//! The price of random accesses to a range is computed, not given: from how many translations a TLB holds follows how often
//! tables are walked, from what the walk caches hold which entries are read, and from the lines of data and of tables which
//! of them come from a cache and which from memory. In a guest each entry that is read, and the data in the end, is at an
//! address that the host's tables have to translate: up to 24 entries for one access.

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

/// The pages in which a host backs a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPages {
    /// Base pages.
    Base,
    /// Huge pages.
    Huge,
    /// Pages of the size in which the guest maps the memory.
    AsGuest,
}

/// A processor's way from an address to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The TLB that each access looks in.
    pub first: TlbEntries,
    /// The TLB behind it.
    pub second: TlbEntries,
    /// The time of a look into the second one.
    pub second_hit: Picos,
    /// Entries of upper tables that a walk need not read: of PMD tables, PUD tables and the root.
    pub skips: [u64; 3],
    /// The cache between a core and the last-level one.
    pub private: Option<LastCache>,
    /// Of a guest: the host behind its memory.
    pub host: Option<HostPages>,
}

/// Shares are in so many parts.
const PARTS: u64 = super::latency::PARTS;
/// Bytes of a cache line, and of an entry of a page table.
const LINE: u64 = 64;
const ENTRY: u64 = 8;
/// Entries of a table.
const ENTRIES: u64 = 512;
/// Levels of tables, from base pages up.
const LEVELS: usize = 4;

/// The memory that a line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The range itself.
    Data,
    /// The range's page tables.
    Tables,
    /// The page tables of its host.
    HostTables,
}

/// Lines that are read, each as often as any other of them.
#[derive(Clone, Copy, Debug)]
struct Reads {
    owner: Owner,
    lines: u64,
    /// Reads of any of them for each access to the range, in parts.
    rate: u64,
}

/// The price of a visit to a page, but for how far memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// The time of caches and TLBs.
    cached: Picos,
    /// Loads from memory for each visit, in parts: of data, of its tables, of its host's tables.
    from_memory: [u64; 3],
}

/// The positions of nodes that a visit has to do with.
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
    /// A visit to a page of a range of so many base pages, to so many lines of it; the range is mapped by base pages or by huge
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

    /// A visit to the next page of a range that is gone through by address, to a line of it. What does not hold all of the range
    /// holds nothing that it needs; but eight entries that are neighbours are in a line, and a walk cache has those above.
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

    /// The entries that walks by address read: those above the lowest ones each time that the walk comes to the next of them.
    /// Tables of a guest are translated as rarely, and left out.
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

    /// How many translations the range has, and whether they are of huge pages: those of the smaller pages of guest and host.
    fn translations(&self, range: Frames, is_huge: bool) -> (u64, bool) {
        let is_huge = is_huge && self.host.is_none_or(|host| host.is_huge(is_huge));
        (leaves(range.0, is_huge), is_huge)
    }

    /// All lines that accesses to a range come to read.
    fn reads(&self, (range, lines): (Frames, u64), is_huge: bool) -> Vec<Reads> {
        let walks = self.walks(range, is_huge);
        let data = (range.bytes().0 / LINE).max(1);
        let mut all = vec![Reads { owner: Owner::Data, lines: data, rate: PARTS * lines }];
        let tables = self.levels(Owner::Tables, leaves(range.0, is_huge), (usize::from(is_huge), walks));
        if let Some(host) = self.host {
            let is_huge = host.is_huge(is_huge);
            let pages = leaves(range.0, is_huge);
            for table in &tables {
                // A table is a page among those of its range: the host's entries for it are as far apart as the tables are.
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

    /// The entries that walks read, by level from the one that maps pages up: `pages` of them there, and `walks` of each access.
    fn levels(&self, owner: Owner, pages: u64, (lowest, walks): (usize, u64)) -> Vec<Reads> {
        let (mut entries, mut rate, mut reads) = (pages, walks, Vec::new());
        for level in lowest..LEVELS {
            if level > lowest {
                entries = entries.div_ceil(ENTRIES);
                // The walk begins below an entry that it need not read.
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

/// Pages of one size in a range of so many base pages.
fn leaves(pages: u64, is_huge: bool) -> u64 {
    if is_huge { pages.div_ceil(ENTRIES).max(1) } else { pages.max(1) }
}

/// The share of accesses that a TLB has no translation for, in parts.
fn misses(tlb: TlbEntries, (translations, is_huge): (u64, bool)) -> u64 {
    PARTS - share(if is_huge { tlb.huge } else { tlb.base }, translations)
}

/// How much something holds of `all`, in parts.
fn share(held: u64, all: u64) -> u64 {
    PARTS * held.min(all) / all.max(1)
}

/// The share of reads that a cache serves, for each kind of line, in parts. A cache that replaces at random keeps a line for a
/// time that does not depend on the line: of lines that are read r times meanwhile it has r in 1 + r (Gelenbe, A Unified
/// Approach to the Evaluation of a Class of Replacement Algorithms, IEEE Transactions on Computers, 1973). That time is the one
/// for which all that it has fills it.
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
    // Times are in accesses. Bound: a halving for each bit.
    let (mut too_short, mut long_enough) = (0, 1_u128 << 56);
    while long_enough - too_short > 1 {
        let time = u128::midpoint(too_short, long_enough);
        *(if fills(time) { &mut long_enough } else { &mut too_short }) = time;
    }
    reads.iter().map(|read| u64::try_from(held(too_short, read)).expect("at most all")).collect()
}

#[cfg(test)]
mod tests;
