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

/// Folios that were taken off a list together, to be looked at.
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

    /// Their frames.
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
    /// Takes up to `most` frames off the tail of a list, those of zones up to `highest`; the others go to its head. Says how
    /// many frames it met, and how many it took.
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
        // Bound: each turn takes the tail, or brings it to the head once.
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

    /// Puts folios back that were taken off a list, active ones where they belong by now; those that lost their last
    /// reference meanwhile come out again, to be freed.
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

    /// A huge folio in a batch was taken apart, whose head stays there: its tails that are mapped, the last one first, go to the
    /// end of a list where the next ones are that reclaim looks at; the others are put there too, and freed right after
    /// (`lru_add_page_tail`, mm/swap.c, v4.1).
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

    /// An isolated folio goes back by way of this CPU's batch, which frees it if nobody wants it any more
    /// (`putback_lru_page`, mm/vmscan.c, v4.1).
    pub(crate) fn putback_by_batch(&mut self, cx: &mut Cx, head: Pfn) {
        self.end_isolation(head);
        self.lru_add_again(cx, head);
    }

    /// Puts back a folio that is not counted as isolated: it has just taken another one's place.
    pub(crate) fn lru_add_again(&mut self, cx: &mut Cx, head: Pfn) {
        let order = self.memory.frames.allocated(head).expect("it is a folio");
        self.memory.frames.mark(head, FrameFlag::InBatch, true);
        self.lru_add(cx, head, order);
    }

    /// Frees folios that are on no list (`free_unref_page_list`). Up to 4.14 they are what others should have last, and the one
    /// that came first is given back first (`free_hot_cold_page_list`).
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

    /// A folio that is on no list goes to the head of one.
    pub(crate) fn lru_insert(&mut self, head: Pfn, order: Order, kind: LruKind) {
        self.memory.frames.mark(head, FrameFlag::OnLru, true);
        self.memory.frames.mark(head, FrameFlag::Active, kind.is_active());
        let zone = self.zone_position(head);
        self.lru.insert(&mut self.memory.frames, zone, kind, head, order);
    }

    /// A folio was written, and is to be reclaimed next, if it is on a list.
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

    /// A folio of a file was used other than through a page table: the second time while inactive it becomes active
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

    /// An inactive folio moves to the head of the active list (`folio_activate`); says whether it was on a list.
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

    /// Reclaiming such pages had a price, in pages (`lru_note_cost`); what is old counts less and less.
    pub(crate) fn note_cost(&mut self, lruvec: usize, is_file: bool, pages: u64) {
        let all: u64 = LruKind::ALL.iter().map(|kind| self.lru.frames(lruvec, *kind)).sum();
        let cost = &mut self.lru.lruvecs[lruvec].cost;
        cost[usize::from(is_file)] += pages;
        if cost[0] + cost[1] > all / 4 {
            *cost = cost.map(|cost| cost / 2);
        }
    }

    /// Does the price of reclaiming stay as it is when nothing is added?
    pub(crate) fn is_cost_settled(&self, lruvec: usize) -> bool {
        let all: u64 = LruKind::ALL.iter().map(|kind| self.lru.frames(lruvec, *kind)).sum();
        let [anon, file] = self.lru.lruvecs[lruvec].cost;
        anon + file <= all / 4
    }

    /// How much was evicted and activated in these lists so far grows (`workingset_age_nonresident`).
    pub(crate) fn age_nonresident(&mut self, lruvec: usize, pages: u64) {
        self.lru.lruvecs[lruvec].nonresident_age += pages;
    }

    /// Drains the batches of all CPUs (`lru_add_drain_all`).
    pub fn lru_add_drain_all(&mut self, cx: &mut Cx) {
        for cpu in (0..self.lru.cpus()).map(CpuId) {
            self.lru_add_drain_cpu(cx, cpu);
        }
    }

    /// The lists of a node that hold frames of zones up to `highest`.
    pub(crate) fn lruvecs_of(&self, node: NodeId, highest: ZoneKind) -> std::ops::Range<usize> {
        let its = self.memory.zones_up_to(node, highest).map(|zone| self.lru.of_zone(zone));
        its.clone().min().map_or(0..0, |first| first..its.max().unwrap_or(first) + 1)
    }

    /// The zones whose folios are on some lists, by position.
    pub(crate) fn zones_of(&self, lruvec: usize) -> impl Iterator<Item = ZoneIndex> + '_ {
        self.memory.zone_indices().filter(move |zone| self.lru.of_zone(*zone) == lruvec)
    }

    /// Frames of lists of a kind, those of zones up to `highest` (`lruvec_lru_size`).
    pub(crate) fn lru_size(&self, lruvec: usize, kind: LruKind, highest: ZoneKind) -> u64 {
        let is_its = |zone: &ZoneIndex| self.lru.of_zone(*zone) == lruvec && self.memory.zone(*zone).kind <= highest;
        self.memory.zone_indices().filter(is_its).map(|zone| self.lru.zone_frames(zone, kind)).sum()
    }

    /// Does an inactive list hold too little of all the pages of its kind (`inactive_is_low`)? The larger they are, the
    /// less is enough. Up to 4.6 a half of files is, and how large a zone is decides about anonymous memory
    /// (`inactive_file_is_low`, `inactive_anon_is_low_global`, mm/vmscan.c, v4.1).
    pub(crate) fn inactive_is_low(&self, lruvec: usize, is_file: bool) -> bool {
        let size = |is_active| self.lru.frames(lruvec, LruKind::of(is_file, is_active));
        self.is_low(lruvec, [size(false), size(true)], is_file)
    }

    /// Is that so where the two lists hold so many frames?
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
