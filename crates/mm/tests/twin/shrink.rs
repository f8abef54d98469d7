//! Shrinkers once more: who has memory on no LRU list is asked for some of it, the more the longer kswapd has looked in vain.

use std::collections::BTreeSet;

use memory::event::Event;

use crate::{
    model::Taken,
    processes::{Entry, Folio, HUGE, Page, World},
};

/// Objects that are asked for at once.
const BATCH: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shrinker {
    /// The huge zero page, in frames.
    HugeZero,
    /// Huge pages that lost a part.
    DeferredSplit,
}

/// A huge page that waits for its split; no two get the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) head: u32,
    number: u64,
}

/// Going round the shrinkers for a node.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    priority: u32,
    /// Shrinkers that are still to be asked; the last element is asked next.
    left: Vec<Shrinker>,
    turn: Option<Turn>,
}

#[derive(Clone, Debug)]
struct Turn {
    had: u64,
    put_off: u64,
    more: u64,
    /// Objects that the shrinker is still to be asked for.
    total: u64,
    asked: u64,
    batch: Option<Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    size: u64,
    /// Numbers of the huge pages in it, the next to be split last.
    waiting: Vec<u64>,
    any: bool,
}

impl Round {
    pub(crate) fn new(priority: u32) -> Self {
        Self { priority, left: vec![Shrinker::DeferredSplit, Shrinker::HugeZero], turn: None }
    }
}

impl World {
    /// Goes on with a round until a huge page was split, or at least tried; true at the end. Nobody finds the mappings of
    /// children that are not born yet.
    pub(crate) fn ask_around(&mut self, node: usize, round: &mut Round, unborn: &BTreeSet<u32>) -> bool {
        while let Some(who) = round.left.last().copied() {
            // Who knows no nodes has one account for all of them.
            let account = (who, if who == Shrinker::HugeZero { 0 } else { node });
            let Some(turn) = &mut round.turn else {
                let had = self.could_give(who, node);
                if had == 0 {
                    round.left.pop();
                    continue;
                }
                let put_off = self.put_off.remove(&account).unwrap_or(0);
                let rules = &self.memory.rules;
                let mut more = (had >> round.priority) * 2;
                if rules.slab_scans_a_batch {
                    more = more.max(had.min(BATCH));
                }
                let total = if rules.slab_deferred_by_priority {
                    ((put_off >> round.priority) + more).min(2 * had)
                } else if more < had / 4 {
                    (put_off + more).min(had / 2)
                } else {
                    (put_off + more).min(2 * had)
                };
                round.turn = Some(Turn { had, put_off, more, total, asked: 0, batch: None });
                continue;
            };
            if turn.batch.is_none() && turn.total < BATCH && turn.total < turn.had {
                let rest = (turn.put_off + turn.more).saturating_sub(turn.asked);
                let rest = if self.memory.rules.slab_deferred_by_priority { rest.min(2 * turn.had) } else { rest };
                *self.put_off.entry(account).or_insert(0) += rest;
                round.turn = None;
                round.left.pop();
                continue;
            }
            let size = turn.total.min(BATCH);
            let waiting = || self.waiting_on(node).take(usize::try_from(size).unwrap()).map(|waiting| waiting.number);
            let batch = turn.batch.get_or_insert_with(|| Batch { size, waiting: waiting().collect(), any: false });
            if who == Shrinker::DeferredSplit {
                while let Some(number) = batch.waiting.pop() {
                    if let Some(at) = self.deferred.iter().position(|waiting| waiting.number == number) {
                        batch.any |= self.split_waiting(0, at, unborn);
                        return false;
                    }
                }
            } else {
                self.shrink_huge_zero(0);
            }
            let (size, any) = (batch.size, batch.any);
            turn.batch = None;
            if who == Shrinker::DeferredSplit && !any && self.waiting_on(node).next().is_none() {
                turn.total = 0;
                continue;
            }
            self.memory.count(Event::SlabsScanned, size);
            turn.total -= size;
            turn.asked += size;
        }
        true
    }

    fn could_give(&self, who: Shrinker, node: usize) -> u64 {
        let is_unused = self.huge_zero.is_some() && self.processes.values().all(|process| !process.uses_huge_zero);
        match who {
            Shrinker::HugeZero if is_unused => HUGE,
            Shrinker::HugeZero => 0,
            Shrinker::DeferredSplit => self.waiting_on(node).count() as u64,
        }
    }

    /// Frees the huge zero page if no process uses it.
    pub(crate) fn shrink_huge_zero(&mut self, cpu: usize) -> bool {
        let unused = self.processes.values().all(|process| !process.uses_huge_zero);
        let frame = if unused { self.huge_zero.take() } else { None };
        if let Some(frame) = frame {
            self.memory.free(cpu, frame);
        }
        frame.is_some()
    }

    fn waiting_on(&self, node: usize) -> impl Iterator<Item = &Waiting> {
        let node_of = |head| self.memory.zones[self.memory.zone_of(head)].node as usize;
        self.deferred.iter().filter(move |waiting| node_of(waiting.head) == node)
    }

    /// A huge page goes to the end of those that wait.
    pub(crate) fn wait_for_split(&mut self, head: u32) {
        self.deferrals += 1;
        self.deferred.push(Waiting { head, number: self.deferrals });
    }

    /// A huge page becomes base pages, and those that nobody maps are free; or it waits again, behind all others.
    fn split_waiting(&mut self, cpu: usize, at: usize, unborn: &BTreeSet<u32>) -> bool {
        let head = self.deferred[at].head;
        if self.lru.is_in_batch(head) {
            self.drain_batch(cpu);
        }
        let parts = head..head + u32::try_from(HUGE).unwrap();
        let maps = |entry: &Entry| match entry {
            Entry::Huge { frame, zero, .. } => !zero && *frame == head,
            Entry::Table { pages, .. } => {
                pages.iter().any(|page| matches!(page, Page::Frame { pfn, .. } if parts.contains(pfn)))
            }
        };
        let is_hidden = unborn.iter().any(|id| self.processes[id].entries.values().any(maps));
        if self.lru.is_in_batch(head) || is_hidden {
            self.memory.count(Event::ThpSplitPageFailed, 1);
            self.deferred.remove(at);
            self.wait_for_split(head);
            return false;
        }
        let is_its = |entry: &Entry| matches!(entry, Entry::Huge { frame, zero: false, .. } if *frame == head);
        let ids: Vec<u32> = self.processes.keys().copied().collect();
        for id in ids {
            let its = self.processes[&id].entries.iter().find(|(_, entry)| is_its(entry)).map(|(number, _)| *number);
            if let Some(number) = its {
                self.split_entry(id, number * HUGE);
            }
        }
        self.free_unmapped_parts(cpu, head);
        self.deferred.remove(at);
        self.memory.count(Event::ThpSplitPage, 1);
        true
    }

    /// From the first to the last, but the first of all after all others.
    fn free_unmapped_parts(&mut self, cpu: usize, head: u32) {
        let (folio, taken) = (self.folios.remove(&head).unwrap(), self.memory.taken[&head]);
        assert_eq!(folio.by_huge, 0, "its huge entries were split");
        self.lru.take_apart(head);
        let mut unmapped = Vec::new();
        for (pfn, count) in (head..).zip(folio.by_base) {
            self.memory.taken.insert(pfn, Taken { order: 0, ..taken });
            if count == 0 {
                unmapped.push(pfn);
            } else {
                self.folios.insert(pfn, Folio { by_huge: 0, by_base: vec![count] });
            }
        }
        let last = unmapped.iter().position(|pfn| *pfn == head).map(|first| unmapped.remove(first));
        for pfn in unmapped.into_iter().chain(last) {
            self.put_folio(cpu, pfn);
        }
    }
}
