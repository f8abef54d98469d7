//! LRU lists once more, and the batches before them: what is on a list is numbered in the order in which it came, and a
//! batch is a vector with the oldest first.

use std::collections::{BTreeMap, BTreeSet};

use memory::event::Event;
use rules::variant::{CowReuse, LruBy, NewAnon};

use crate::{
    model::Taken,
    processes::{Folio, World},
};

/// Where anonymous memory waits to be reclaimed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lru {
    /// By number of the zone or node, and whether active: what is on it, by when it came.
    lists: BTreeMap<(usize, bool), BTreeMap<u64, u32>>,
    places: BTreeMap<u32, ((usize, bool), u64)>,
    joined: u64,
    /// How much has joined at the end where the oldest are.
    joined_last: u64,
    /// Folios that each CPU has mapped and not yet put on a list.
    pub(crate) batches: Vec<Vec<u32>>,
    /// Folios that are in use no longer, but for the batch that they are in.
    pub(crate) dropped: BTreeSet<u32>,
}

/// Base pages of a huge one.
const PARTS: u64 = 512;
/// Where the first one joins: more than enough room on both sides.
const MIDDLE: u64 = 1 << 40;

impl Lru {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { batches: vec![Vec::new(); cpus], ..Self::default() }
    }

    /// One list, the newest first.
    pub(crate) fn list(&self, number: usize, active: bool) -> impl Iterator<Item = u32> + '_ {
        self.lists.get(&(number, active)).into_iter().flat_map(|list| list.values().rev().copied())
    }

    /// A huge page becomes base pages: where it was they are, the last one first.
    pub(crate) fn take_apart(&mut self, head: u32) {
        let (list, place) = self.places[&head];
        for (at, pfn) in (place..place + PARTS).zip(head..) {
            self.lists.get_mut(&list).unwrap().insert(at, pfn);
            self.places.insert(pfn, (list, at));
        }
    }

    /// Takes a folio apart that is in a batch, where its first page stays: the others are the oldest of a list from now on, the
    /// second page the oldest of all.
    fn take_apart_waiting(&mut self, list: (usize, bool), head: u32) {
        self.joined_last += PARTS;
        let first = MIDDLE - self.joined_last;
        for (at, pfn) in (first..first + PARTS).zip(head..).skip(1) {
            self.lists.entry(list).or_default().insert(at, pfn);
            self.places.insert(pfn, (list, at));
        }
    }

    pub(crate) fn is_in_batch(&self, head: u32) -> bool {
        self.batches.iter().any(|batch| batch.contains(&head))
    }
}

impl World {
    /// Memory that `cpu` has just mapped for the first time.
    pub(crate) fn lru_add(&mut self, cpu: usize, head: u32) {
        let is_full = |world: &Self| world.lru.batches[cpu].len() as u64 == world.memory.rules.lru_batch;
        let rules = &self.memory.rules;
        let (full_drains, huge_drains) = (rules.lru_full_drains, rules.lru_huge_drains);
        if is_full(self) {
            self.drain_batch(cpu);
        }
        self.lru.batches[cpu].push(head);
        let is_huge = self.memory.taken[&head].order > 0;
        if (full_drains && is_full(self)) || (huge_drains && is_huge) {
            self.drain_batch(cpu);
        }
    }

    /// The oldest goes first, so that the newest is the first of its list. What nobody wants is freed after, from the last.
    pub(crate) fn drain_batch(&mut self, cpu: usize) {
        let batch = std::mem::take(&mut self.lru.batches[cpu]);
        for head in &batch {
            if !self.lru.dropped.contains(head) {
                self.join_list(*head);
            }
        }
        for head in batch.iter().rev() {
            if self.lru.dropped.remove(head) {
                self.memory.free(cpu, *head);
            }
        }
    }

    fn join_list(&mut self, head: u32) {
        let list = self.list_of(head);
        let lru = &mut self.lru;
        // Room for the parts of one that is taken apart.
        lru.joined += PARTS;
        let at = MIDDLE + lru.joined;
        lru.lists.entry(list).or_default().insert(at, head);
        assert!(lru.places.insert(head, (list, at)).is_none(), "frame {head} is on a list already");
        self.memory.taken.get_mut(&head).unwrap().on_lru = true;
    }

    fn list_of(&self, head: u32) -> (usize, bool) {
        let zone = self.memory.zone_of(head);
        let number = match self.memory.rules.lru_by {
            LruBy::Zone => zone,
            LruBy::Node => self.memory.zones[zone].node as usize,
        };
        (number, self.memory.rules.lru_new_anon == NewAnon::Active)
    }

    /// Frees a folio without mappings, unless a batch has it.
    pub(crate) fn put_folio(&mut self, cpu: usize, head: u32) {
        let Some((list, place)) = self.lru.places.remove(&head) else {
            assert!(self.lru.is_in_batch(head), "frame {head} is on no list, and in no batch");
            self.lru.dropped.insert(head);
            return;
        };
        self.lru.lists.get_mut(&list).unwrap().remove(&place);
        self.memory.free(cpu, head);
    }

    /// A huge page that nobody maps as one any more becomes base pages.
    pub(crate) fn fall_apart(&mut self, head: u32) {
        if self.folios[&head].by_huge > 0 {
            return;
        }
        let folio = self.folios.remove(&head).unwrap();
        let taken = self.memory.taken[&head];
        self.deferred.retain(|waiting| waiting.head != head);
        for (pfn, count) in (head..).zip(folio.by_base) {
            assert!(count > 0, "it was mapped as one until now");
            self.folios.insert(pfn, Folio { by_huge: 0, by_base: vec![count] });
            // The first one stays in a batch, if that is where it was.
            self.memory.taken.insert(pfn, Taken { order: 0, on_lru: taken.on_lru || pfn > head });
        }
        if self.lru.is_in_batch(head) {
            self.lru.take_apart_waiting(self.list_of(head), head);
        } else {
            self.lru.take_apart(head);
        }
        self.memory.count(Event::ThpSplitPage, 1);
    }

    /// May a process that maps it write to it without a copy?
    pub(crate) fn may_reuse(&mut self, cpu: usize, pfn: u32) -> bool {
        let head = self.head_of(pfn);
        let mappings = self.folios[&head].mappings();
        match self.memory.rules.cow_reuse {
            CowReuse::ByMappings => return mappings == 1,
            CowReuse::ByReferences => {}
            CowReuse::ByReferencesDrained => {
                if self.lru.is_in_batch(head) {
                    self.drain_batch(cpu);
                }
            }
        }
        mappings + u32::from(self.lru.is_in_batch(head)) == 1
    }
}
