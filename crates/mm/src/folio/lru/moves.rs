//! Linux: isolate_lru_folios() and move_folios_to_lru() in mm/vmscan.c, folio_rotate_reclaimable() and lru_note_cost() in
//! mm/swap.c (v5.8 to v6.1).
//! Differs: rotations are not collected in batches.

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    event::Event,
    frame::{FrameFlag, Held},
    lru_kind::LruKind,
    pageblock::ZoneIndex,
};
use rules::zone::ZoneKind;
use units::{CpuId, NodeId, Order, Pfn};

use super::RUN_MAX;
use crate::Mm;

/// Folios that were isolated from a list together.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    folios: [Pfn; RUN_MAX],
    orders: [Order; RUN_MAX],
    len: usize,
}

impl Default for Taken {
    fn default() -> Self {
        Self { folios: [Pfn(0); RUN_MAX], orders: [Order::BASE; RUN_MAX], len: 0 }
    }
}

impl Taken {
    pub(crate) fn push(&mut self, head: Pfn, order: Order) {
        (self.folios[self.len], self.orders[self.len]) = (head, order);
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[Pfn] {
        &self.folios[..self.len]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames of the folios.
    pub(crate) fn frames(&self) -> u64 {
        self.orders[..self.len].iter().map(|order| u64::from(order.frames())).sum()
    }

    /// The folios with their orders.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Held> + '_ {
        let orders = self.orders[..self.len].iter();
        self.as_slice().iter().zip(orders).map(|(pfn, order)| Held { pfn: *pfn, order: *order })
    }
}

impl Mm {
    /// Isolates up to `most` frames from the tail of a list, of zones up to `highest`; folios of other zones go to its head.
    /// Returns the frames it met, and those it isolated.
    pub(crate) fn isolate_folios(
        &mut self,
        cx: &mut Cx,
        (lruvec, kind): (usize, LruKind),
        most: u64,
        highest: ZoneKind,
        taken: &mut Taken,
    ) -> (u64, u64) {
        self.lru.lruvecs[lruvec].lock.acquire(cx, Cause::LruLock);
        let (mut met, mut took, mut moves) = (0, 0, 0);
        // Bound: each turn takes the folio at the tail, or moves it to the head once.
        for _ in 0..self.lru.lruvecs[lruvec].lists[kind as usize].len() {
            let Some(head) = self.lru.lruvecs[lruvec].lists[kind as usize].last().filter(|_| took < most) else {
                break;
            };
            let order = self.memory.frames.allocated(head).expect("it is on an LRU list");
            let frames = u64::from(order.frames());
            met += frames;
            moves += 1;
            if self.memory.zone(self.zone_position(head)).kind > highest {
                self.lru.lruvecs[lruvec].note_move(kind);
                let list = &mut self.lru.lruvecs[lruvec].lists[kind as usize];
                list.remove(self.memory.frames.threads(), head);
                list.push_head(self.memory.frames.threads(), head);
                continue;
            }
            self.isolate_lru(head);
            taken.push(head, order);
            took += frames;
        }
        cx.work(Work::LruMove, moves);
        self.lru.lruvecs[lruvec].lock.release(cx, Cause::LruLock);
        if !kind.is_file() {
            self.lru.lruvecs[lruvec].patience.note(u32::try_from(taken.as_slice().len()).expect("a run"));
        }
        (met, took)
    }

    /// Puts isolated folios back, active ones on the active list. Returns those whose last reference was dropped meanwhile, to
    /// be freed.
    pub(crate) fn put_back_folios(&mut self, cx: &mut Cx, lruvec: usize, folios: &Taken) -> Taken {
        let mut lost = Taken::default();
        if folios.is_empty() {
            return lost;
        }
        self.lru.lruvecs[lruvec].lock.acquire(cx, Cause::LruLock);
        for Held { pfn: head, order } in folios.iter() {
            if self.memory.frames.has(head, FrameFlag::Dropped) {
                self.end_isolation(head);
                lost.push(head, order);
            } else {
                let (is_file, is_active) =
                    (self.memory.frames.is_file(head), self.memory.frames.has(head, FrameFlag::Active));
                let rotated = if is_active { u64::from(order.frames()) } else { 0 };
                self.lru.lruvecs[lruvec].recent[usize::from(is_file)].rotated += rotated;
                self.putback_lru(head, is_active);
            }
        }
        cx.work(Work::LruMove, folios.as_slice().len() as u64);
        self.lru.lruvecs[lruvec].lock.release(cx, Cause::LruLock);
        lost
    }

    /// Splits a huge folio in a batch, whose head stays there: its mapped tails, the last one first, go to the end of a list
    /// that reclaim scans first; unmapped tails go there too, and are freed right after (`lru_add_page_tail`, mm/swap.c, v4.1).
    pub(crate) fn lru_split_waiting(
        &mut self,
        cx: &mut Cx,
        zone: ZoneIndex,
        is_active: bool,
        (tails, unmapped): (&[Pfn], usize),
    ) {
        let (at, kind) = (self.lru.of_zone(zone), LruKind::of(false, is_active));
        let lruvec = &mut self.lru.lruvecs[at];
        lruvec.lock.acquire(cx, Cause::LruLock);
        cx.work(Work::LruMove, (tails.len() + unmapped) as u64);
        lruvec.recent[0].note((tails.len() + unmapped) as u64, is_active);
        lruvec.note_move(kind);
        for tail in tails {
            self.memory.frames.mark(*tail, FrameFlag::OnLru, true);
            lruvec.lists[kind as usize].push_tail(self.memory.frames.threads(), *tail);
        }
        lruvec.lock.release(cx, Cause::LruLock);
        self.lru.zones[zone].frames[kind as usize] += tails.len() as u64;
    }

    /// Puts an isolated folio back through this CPU's batch, which frees it if the batch's reference is the last
    /// (`putback_lru_page`, mm/vmscan.c, v4.1).
    pub(crate) fn putback_by_batch(&mut self, cx: &mut Cx, head: Pfn) {
        self.end_isolation(head);
        self.lru_add_again(cx, head);
    }

    /// Puts a folio on a list that is not counted as isolated: it has just replaced another folio.
    pub(crate) fn lru_add_again(&mut self, cx: &mut Cx, head: Pfn) {
        let order = self.memory.frames.allocated(head).expect("it is a folio");
        self.memory.frames.mark(head, FrameFlag::InBatch, true);
        self.lru_add(cx, head, order);
    }

    /// Frees folios that are on no list (`free_unref_page_list`). Up to 4.14 they go to the cold end of the CPU's list, the
    /// first folio being the first to be given back (`free_hot_cold_page_list`).
    pub(crate) fn free_folios(&mut self, cx: &mut Cx, folios: &Taken) {
        if self.memory.variant().pcp_has_cold_end {
            for held in folios.iter().rev() {
                self.memory.free_cold(cx, held.pfn, held.order);
            }
            return;
        }
        for held in folios.iter() {
            self.memory.free(cx, held.pfn, held.order);
        }
    }

    /// Puts a folio that is on no list at the head of a list.
    pub(crate) fn lru_insert(&mut self, head: Pfn, order: Order, kind: LruKind) {
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.memory.frames.mark(head, FrameFlag::Active, kind.is_active());
        let zone = self.zone_position(head);
        self.lru.insert(&mut self.memory.frames, zone, kind, head, order);
    }

    /// Moves a folio whose writeback ended to the tail of the inactive list, to be reclaimed next, if it is on a list.
    pub(crate) fn lru_rotate(&mut self, cx: &mut Cx, head: Pfn) {
        let Some(was) = self.memory.frames.leave_lru(head) else { return };
        let (zone, order) = (self.zone_position(head), self.memory.frames.allocated(head).expect("it is on a list"));
        let is_file = self.memory.frames.is_file(head);
        let at = self.lru.of_zone(zone);
        self.lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        self.lru.remove(&mut self.memory.frames, zone, was, head, order);
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.memory.frames.mark(head, FrameFlag::Active, false);
        let kind = LruKind::of(is_file, false);
        self.lru.lruvecs[at].note_move(kind);
        self.lru.zones[zone].frames[kind as usize] += u64::from(order.frames());
        self.lru.lruvecs[at].lists[kind as usize].push_tail(self.memory.frames.threads(), head);
        cx.work(Work::LruMove, 1);
        self.lru.lruvecs[at].lock.release(cx, Cause::LruLock);
        cx.count(Event::Pgrotated, order.frames().into());
    }

    /// Notes an access to a file's folio other than through a page table: the second one makes an inactive folio active
    /// (`mark_page_accessed`).
    pub fn mark_page_accessed(&mut self, cx: &mut Cx, head: Pfn) {
        if !self.memory.frames.has(head, FrameFlag::Referenced) {
            self.memory.frames.mark(head, FrameFlag::Referenced, true);
            return;
        }
        if self.memory.frames.has(head, FrameFlag::Active) {
            return;
        }
        if self.memory.frames.has(head, FrameFlag::InBatch) {
            // Only a folio of this CPU's batch can be marked there (`__lru_cache_activate_folio`).
            if !self.lru.batch(cx.cpu()).contains(&head) {
                return;
            }
            self.memory.frames.mark(head, FrameFlag::Active, true);
        } else if !self.activate_folio(cx, head) {
            return;
        }
        self.memory.frames.mark(head, FrameFlag::Referenced, false);
        self.age_nonresident(self.lru.of_zone(self.zone_position(head)), 1);
    }

    /// Moves an inactive folio to the head of the active list (`folio_activate`); returns whether it was on a list.
    fn activate_folio(&mut self, cx: &mut Cx, head: Pfn) -> bool {
        let at = self.lru.of_zone(self.zone_position(head));
        if !self.memory.frames.has(head, FrameFlag::OnLru) {
            return false;
        }
        self.lru.lruvecs[at].lock.acquire(cx, Cause::LruLock);
        self.isolate_lru(head);
        self.putback_lru(head, true);
        self.lru.lruvecs[at].recent[usize::from(self.memory.frames.is_file(head))].note(1, true);
        cx.work(Work::LruMove, 1);
        self.lru.lruvecs[at].lock.release(cx, Cause::LruLock);
        let order = self.memory.frames.allocated(head).expect("it is on a list");
        cx.count(Event::Pgactivate, order.frames().into());
        true
    }

    /// Adds the cost of reclaiming pages of one kind (`lru_note_cost`); old cost is halved from time to time.
    pub(crate) fn note_cost(&mut self, lruvec: usize, is_file: bool, pages: u64) {
        let all: u64 = LruKind::ALL.iter().map(|kind| self.lru.frames(lruvec, *kind)).sum();
        let cost = &mut self.lru.lruvecs[lruvec].cost;
        cost[usize::from(is_file)] += pages;
        if cost[0] + cost[1] > all / 4 {
            *cost = cost.map(|cost| cost / 2);
        }
    }

    /// Whether the cost stays as it is while none is added.
    pub(crate) fn is_cost_settled(&self, lruvec: usize) -> bool {
        let all: u64 = LruKind::ALL.iter().map(|kind| self.lru.frames(lruvec, *kind)).sum();
        let [anon, file] = self.lru.lruvecs[lruvec].cost;
        anon + file <= all / 4
    }

    /// Advances the clock of evictions and activations (`workingset_age_nonresident`).
    pub(crate) fn age_nonresident(&mut self, lruvec: usize, pages: u64) {
        self.lru.lruvecs[lruvec].nonresident_age += pages;
    }

    /// Drains the batches of all CPUs (`lru_add_drain_all`).
    pub fn lru_add_drain_all(&mut self, cx: &mut Cx) {
        for cpu in (0..self.lru.cpus()).map(CpuId) {
            self.lru_add_drain_cpu(cx, cpu);
        }
    }

    /// Indices of the lists that hold frames of a node's zones up to `highest`.
    pub(crate) fn lruvecs_of(&self, node: NodeId, highest: ZoneKind) -> std::ops::Range<usize> {
        let its = self.memory.zones_up_to(node, highest).map(|zone| self.lru.of_zone(zone));
        its.clone().min().map_or(0..0, |first| first..its.max().unwrap_or(first) + 1)
    }

    /// The zones whose folios are on these lists.
    pub(crate) fn zones_of(&self, lruvec: usize) -> impl Iterator<Item = ZoneIndex> + '_ {
        self.memory.zone_indices().filter(move |zone| self.lru.of_zone(*zone) == lruvec)
    }

    /// Frames on a list, of zones up to `highest` (`lruvec_lru_size`).
    pub(crate) fn lru_size(&self, lruvec: usize, kind: LruKind, highest: ZoneKind) -> u64 {
        let is_its = |zone: &ZoneIndex| self.lru.of_zone(*zone) == lruvec && self.memory.zone(*zone).kind <= highest;
        self.memory.zone_indices().filter(is_its).map(|zone| self.lru.zone_frames(zone, kind)).sum()
    }

    /// Whether an inactive list is too short (`inactive_is_low`). The more pages of its kind there are, the smaller a part is
    /// enough. Up to 4.6 it is a half for files, and by the zone's size for anonymous memory (`inactive_file_is_low`,
    /// `inactive_anon_is_low_global`, mm/vmscan.c, v4.1).
    pub(crate) fn inactive_is_low(&self, lruvec: usize, is_file: bool) -> bool {
        let size = |is_active| self.lru.frames(lruvec, LruKind::of(is_file, is_active));
        self.is_low(lruvec, [size(false), size(true)], is_file)
    }

    /// Whether the inactive list is too short if the lists hold these numbers of frames.
    pub(crate) fn is_low(&self, lruvec: usize, [inactive, active]: [u64; 2], is_file: bool) -> bool {
        let all = match (self.memory.variant().inactive_by_lists, is_file) {
            (true, _) => inactive + active,
            (false, true) => return active > inactive,
            (false, false) => self.zones_of(lruvec).map(|zone| self.memory.zone(zone).managed).sum(),
        };
        let gib = all >> (30 - 12);
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }
}
