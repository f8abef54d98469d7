//! Prices of accesses against a naive twin, which walks tables page by page through TLBs and caches that replace at random.

use std::collections::BTreeMap;

use units::Bytes;

use super::*;

/// A small processor, so that a twin comes to rest in it soon.
fn walk() -> Walk {
    Walk {
        first: TlbEntries { base: 8, huge: 4 },
        second: TlbEntries { base: 64, huge: 16 },
        second_hit: Picos(2_000),
        skips: [8, 2, 1],
        private: Some(LastCache { size: Bytes(64 * 32), load: Picos(4_000) }),
        host: None,
    }
}

const LAST: LastCache = LastCache { size: Bytes(64 * 2048), load: Picos(15_000) };
const LOAD: u64 = 100_000;

fn latency() -> Latency {
    let load = vec![vec![Picos(LOAD), Picos(160_000)], vec![Picos(160_000), Picos(LOAD)]];
    Latency { load, ..Latency::default() }
}

/// A cache with `room` places, in which a newcomer takes any place.
struct Places {
    room: usize,
    taken: Vec<u64>,
    by_key: BTreeMap<u64, usize>,
}

impl Places {
    fn new(count: u64) -> Self {
        Self { room: usize::try_from(count).unwrap(), taken: Vec::new(), by_key: BTreeMap::new() }
    }

    /// Is it there? From now on it is.
    fn has(&mut self, key: u64, draws: &mut Draws) -> bool {
        if self.by_key.contains_key(&key) {
            return true;
        }
        if self.taken.len() < self.room {
            self.by_key.insert(key, self.taken.len());
            self.taken.push(key);
        } else if self.room > 0 {
            let at = usize::try_from(draws.below(self.room as u64)).unwrap();
            self.by_key.remove(&std::mem::replace(&mut self.taken[at], key));
            self.by_key.insert(key, at);
        }
        false
    }
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A processor, entry by entry.
struct Twin {
    walk: Walk,
    is_huge: bool,
    tlbs: [Places; 2],
    skips: [[Places; 3]; 2],
    caches: [Places; 2],
    draws: Draws,
    spent: u64,
    /// Reads of entries, from anywhere.
    entries: u64,
    /// Loads from memory: of data, of tables, of a host's tables.
    memory: [u64; 3],
}

impl Twin {
    fn new(walk: Walk, is_huge: bool) -> Self {
        let tlb = |of: TlbEntries, is_huge| Places::new(if is_huge { of.huge } else { of.base });
        let smaller = is_huge && walk.host.is_none_or(|host| host.is_huge(is_huge));
        let private = walk.private.map_or(0, |cache| cache.size.0 / LINE);
        Self {
            walk,
            is_huge,
            tlbs: [tlb(walk.first, smaller), tlb(walk.second, smaller)],
            skips: [(); 2].map(|()| walk.skips.map(Places::new)),
            caches: [Places::new(private), Places::new(LAST.size.0 / LINE)],
            draws: Draws(1),
            spent: 0,
            entries: 0,
            memory: [0; 3],
        }
    }

    /// A line of some owner; `place` tells it from the owner's others.
    fn read(&mut self, owner: Owner, place: u64) {
        let line = ((owner as u64) << 40) | place;
        let hits = [0, 1].map(|cache| self.caches[cache].has(line, &mut self.draws));
        self.spent += match hits {
            [true, _] => self.walk.private.unwrap().load.0,
            [_, true] => LAST.load.0,
            _ => LOAD,
        };
        self.memory[owner as usize] += u64::from(hits == [false, false]);
    }

    /// The entries that a walk reads, from the lowest up: level and number.
    fn entries(&mut self, host: bool, page: u64, lowest: usize) -> Vec<(usize, u64)> {
        let mut read = vec![(lowest, page)];
        let mut entry = page;
        for level in lowest + 1..LEVELS {
            entry /= ENTRIES;
            if self.skips[usize::from(host)][level - 1].has(entry, &mut self.draws) {
                break;
            }
            read.push((level, entry));
        }
        read
    }

    /// Walks the host's tables for a page of the guest.
    fn translate(&mut self, host: HostPages, page: u64) {
        let is_huge = host.is_huge(self.is_huge);
        let leaf = if is_huge { page / ENTRIES } else { page };
        for (level, entry) in self.entries(true, leaf, usize::from(is_huge)) {
            self.entries += 1;
            self.read(Owner::HostTables, ((level as u64) << 36) | (entry / 8));
        }
    }

    fn access(&mut self, page: u64, lines: u64) {
        let smaller = self.is_huge && self.walk.host.is_none_or(|host| host.is_huge(self.is_huge));
        let translation = if smaller { page / ENTRIES } else { page };
        let first = self.tlbs[0].has(translation, &mut self.draws);
        let second = self.tlbs[1].has(translation, &mut self.draws);
        self.spent += if first { 0 } else { self.walk.second_hit.0 };
        if !second {
            let leaf = if self.is_huge { page / ENTRIES } else { page };
            for (level, entry) in self.entries(false, leaf, usize::from(self.is_huge)) {
                if let Some(host) = self.walk.host {
                    // Tables are apart: no two have their entries in one line of a table of base pages.
                    let table = ((level as u64) << 24) | (entry / ENTRIES);
                    let covered = ENTRIES.pow(u32::try_from(level).unwrap() + 1);
                    let is_huge = host.is_huge(self.is_huge);
                    self.translate(host, if is_huge { page / covered * covered } else { (1 << 30) | (table * 8) });
                }
                self.entries += 1;
                self.read(Owner::Tables, ((level as u64) << 36) | (entry / 8));
            }
            if let Some(host) = self.walk.host {
                self.translate(host, page);
            }
        }
        for _ in 0..lines {
            let line = page * 64 + self.draws.below(64);
            self.read(Owner::Data, line);
        }
    }
}

/// The price of an access by the model and by the twin, in picoseconds.
fn both(walk: Walk, (pages, lines): (u64, u64), is_huge: bool) -> (u64, u64) {
    let mut twin = Twin::new(walk, is_huge);
    let (warm, accesses) = (20_000, 60_000);
    for n in 0..warm + accesses {
        if n == warm {
            (twin.spent, twin.memory) = (0, [0; 3]);
        }
        let page = twin.draws.below(pages);
        twin.access(page, lines);
    }
    let visit = walk.visit(Some(LAST), (Frames(pages), lines), is_huge);
    let price = visit.price(&latency(), Homes { cpu: 0, page: 0, tables: 0 });
    assert_eq!(price.far, Picos(0));
    (price.near.0, twin.spent / accesses)
}

#[test]
fn prices_are_those_of_a_walk_entry_by_entry() {
    let hosts = [None, Some(HostPages::Base), Some(HostPages::Huge), Some(HostPages::AsGuest)];
    for host in hosts {
        for (pages, lines) in [(48, 1), (700, 2), (8_192, 1), (40_000, 1), (40_000, 3)] {
            for is_huge in [false, true] {
                let (model, twin) = both(Walk { host, ..walk() }, (pages, lines), is_huge);
                let what = format!("{pages} pages, {lines} lines, huge {is_huge}, {host:?}");
                assert!(model.abs_diff(twin) * 100 <= twin * 4, "{what}: {model} ps, entry by entry {twin}");
            }
        }
    }
}

#[test]
fn a_walk_that_nothing_helps_reads_all_entries_of_both_dimensions() {
    let none = TlbEntries { base: 0, huge: 0 };
    let bare = Walk { first: none, second: none, skips: [0; 3], private: None, ..walk() };
    let reads = |host, is_huge| {
        let walk = Walk { host, ..bare };
        let all = walk.reads((Frames(1 << 20), 1), is_huge);
        let entries = all.iter().filter(|read| read.owner != Owner::Data).map(|read| read.rate).sum::<u64>();
        let mut twin = Twin::new(walk, is_huge);
        twin.access(77_777, 1);
        assert_eq!(entries, PARTS * twin.entries, "{host:?}, huge {is_huge}");
        entries / PARTS
    };
    assert_eq!((reads(None, false), reads(None, true)), (4, 3));
    assert_eq!((reads(Some(HostPages::Base), false), reads(Some(HostPages::Huge), false)), (24, 19));
    assert_eq!((reads(Some(HostPages::Base), true), reads(Some(HostPages::AsGuest), true)), (19, 15));
}

#[test]
fn memory_of_a_table_costs_what_the_tables_node_costs() {
    let visit = walk().visit(Some(LAST), (Frames(1 << 20), 1), false);
    let price = |page, tables| visit.price(&latency(), Homes { cpu: 0, page, tables });
    let near = price(0, 0);
    assert_eq!(price(1, 1).near, near.near, "what caches take is near");
    let (data, tables) = (price(1, 0).far.0, price(0, 1).far.0);
    assert!(data > 50_000 && tables > 20_000, "{data} and {tables} ps");
    assert!(price(1, 1).far.0.abs_diff(data + tables) <= 1);
}

#[test]
fn a_range_that_a_tlb_reaches_is_never_walked_for() {
    let walk = walk();
    assert_eq!(walk.walks(Frames(64), false), 0);
    assert_eq!(walk.walks(Frames(128), false), PARTS / 2);
    assert_eq!(walk.walks(Frames(16 * 512), true), 0);
    assert!(walk.walks(Frames(32 * 512), true) == PARTS / 2);
    // A host's base pages are all that a TLB of a guest has.
    assert_eq!(Walk { host: Some(HostPages::Base), ..walk }.walks(Frames(128), true), PARTS / 2);
}

#[test]
fn a_stride_of_pages_reads_one_entry_line_per_eight_pages() {
    let walk = walk();
    let price = |pages, is_huge| {
        let visit = walk.visit_in_order(Some(LAST), Frames(pages), is_huge);
        let price = visit.price(&latency(), Homes { cpu: 0, page: 0, tables: 0 });
        price.near.0
    };
    // The load, a look into the second TLB, an eighth of a load from memory for the entry, and seven eighths from the cache.
    let base = LOAD + 2_000 + LOAD / 8 + 4_000 * 7 / 8;
    assert!(price(1 << 20, false).abs_diff(base) * 100 < base, "{} ps, not {base}", price(1 << 20, false));
    let huge = price(1 << 20, true);
    assert!((LOAD..LOAD + 500).contains(&huge), "{huge} ps: a walk for each 512 pages");
    assert_eq!(price(8, false), LAST.load.0, "all of it is in a cache and in the first TLB");
    // A guest reads its host's entries, too.
    let guest = Walk { host: Some(HostPages::Base), ..walk }.visit_in_order(Some(LAST), Frames(1 << 20), false);
    let guest = guest.price(&latency(), Homes { cpu: 0, page: 0, tables: 0 }).near.0;
    let entry = LOAD / 8 + 4_000 * 7 / 8;
    assert!(guest.abs_diff(base + entry) * 100 < base, "{guest} ps, not {}", base + entry);
}
