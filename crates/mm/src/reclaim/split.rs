//! Linux: split_huge_page_to_list(), deferred_split_scan() in mm/huge_memory.c (v4.5 to v6.1).
//! Differs: one step splits the folio, holding the locks of its lists and page tables together; a huge folio is never in the
//! swap cache, as no device takes one as a whole; up to 4.4 a folio that others map by huge entries too, or that is isolated,
//! waits; folios that a scan could not split go before those queued while it ran.
//!
//! A huge folio becomes base folios. Processes that mapped it by a huge entry map it by base entries after that; unmapped frames
//! are freed.

use memory::{
    cx::Cx,
    event::Event,
    frame::{FamilyId, Frame, FrameFlag},
    primitive,
};
use rules::gfp::Mobility;
use units::{NodeId, Order, Pfn, Vpn};

use crate::{Mm, Spaces, space::spaces::Entry};

/// The result of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The folio was split.
    Done {
        /// Number of base folios that were freed, as they were unmapped.
        freed: u32,
    },
    /// The folio has another reference: a batch of new folios, a control, a child that is being forked, or a pin.
    Busy,
}

/// The places of the base folios that a huge folio is split into.
enum Parts<'a> {
    /// The list that it is on, before the head.
    OnList,
    /// A list; the head stays in its batch.
    FromBatch,
    /// The caller that has isolated the folio: the base folios behind the head, the last one first.
    Isolated(&'a mut Vec<Pfn>),
}

impl Mm {
    /// Splits a huge anonymous folio (`split_huge_page`). The caller holds no mmap lock: mappings are changed under the locks of
    /// page tables.
    pub fn split_folio(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> Split {
        let Frame::Anon { family, vpn, order: Order::HUGE } = self.memory.frames.get(head) else {
            unreachable!("frame {head} is no huge folio, but {:?}", self.memory.frames.get(head));
        };
        if self.memory.frames.has(head, FrameFlag::InBatch) {
            // It may be in this CPU's (`lru_add_drain` in `split_huge_page_to_list`).
            self.lru_add_drain(cx);
        }
        let is_loose =
            self.memory.frames.has(head, FrameFlag::InBatch) || self.memory.frames.has(head, FrameFlag::Locked);
        if is_loose || !self.can_split(head) || !self.memory.frames.has(head, FrameFlag::OnLru) {
            cx.count(Event::ThpSplitPageFailed, 1);
            return Split::Busy;
        }
        if !self.split_mappings(spaces, cx, head, vpn) {
            cx.count(Event::ThpSplitPageFailed, 1);
            return Split::Busy;
        }
        let freed = self.take_apart(cx, head, (family, vpn), Parts::OnList);
        cx.count(Event::ThpSplitPage, 1);
        Split::Done { freed }
    }

    /// Splits an isolated folio: the base folios are isolated too, and those behind the head go to `tails`, the last one first.
    /// An unmapped head is [`FrameFlag::Dropped`]. Returns false if another task holds the folio.
    pub(crate) fn split_isolated(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn, tails: &mut Vec<Pfn>) -> bool {
        let Frame::Anon { family, vpn, order: Order::HUGE } = self.memory.frames.get(head) else {
            unreachable!("frame {head} is no huge folio, but {:?}", self.memory.frames.get(head));
        };
        let is_split = self.can_split(head) && self.split_mappings(spaces, cx, head, vpn);
        cx.count(if is_split { Event::ThpSplitPage } else { Event::ThpSplitPageFailed }, 1);
        if is_split {
            self.take_apart(cx, head, (family, vpn), Parts::Isolated(tails));
        }
        is_split
    }

    /// Splits a huge folio with its first huge entry that is split, up to 4.4: for all processes that map it, even in the batch
    /// of any CPU (`__split_huge_page_pmd`).
    pub(crate) fn split_with_pmd(&mut self, cx: &mut Cx, head: Pfn) {
        let Frame::Anon { family, vpn, order: Order::HUGE } = self.memory.frames.get(head) else {
            unreachable!("frame {head} is no huge folio, but {:?}", self.memory.frames.get(head));
        };
        let parts = match [FrameFlag::InBatch, FrameFlag::OnLru].map(|flag| self.memory.frames.has(head, flag)) {
            [true, _] => Parts::FromBatch,
            [_, true] => Parts::OnList,
            // The folio is isolated, by reclaim or khugepaged.
            _ => return,
        };
        if !self.memory.frames.has(head, FrameFlag::Locked) && self.memory.frames.map_count(head) == 0 {
            self.take_apart(cx, head, (family, vpn), parts);
            cx.count(Event::ThpSplitPage, 1);
        }
    }

    /// Replaces all huge entries by base entries; false if not all are found. The kernel uses migration entries meanwhile: base
    /// entries are replaced page by page, each with a flush, a huge entry at once (`unmap_folio`), and at the end the entries of
    /// every page are looked for (`remap_page`). Up to 4.4 the huge entry is only replaced by base entries
    /// (`__split_huge_page_map`).
    fn split_mappings(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn, vpn: Vpn) -> bool {
        let mappings = spaces.mappings(self, head);
        // An unmapped folio is about to be freed by the control that unmapped it.
        if mappings.is_empty() || u32::try_from(mappings.len()).ok() != Some(self.folio_mappings(head)) {
            return false;
        }
        let mut entries = 0;
        for mapping in mappings {
            match mapping.at {
                Entry::Huge(slot) => {
                    let space = spaces.get_mut(mapping.space).expect("it maps the folio");
                    space.split_pmd_unflushed(self, cx, slot);
                    primitive::flush_tlb_huge(cx, mapping.space);
                    entries += u64::from(Order::HUGE.frames());
                }
                Entry::Base(..) => {
                    primitive::walk_rmap(cx, 1);
                    primitive::clear_ptes(cx, 1);
                    primitive::flush_tlb_page(cx, mapping.space, 1);
                    primitive::count_mappings(cx, 1);
                    primitive::write_ptes(cx, 1);
                    entries += 1;
                }
            }
        }
        if !self.memory.variant().thp_splits_at_once {
            primitive::walk_rmap(cx, Order::HUGE.frames().into());
            primitive::write_ptes(cx, entries);
            primitive::count_mappings(cx, entries);
        }
        debug_assert!(self.memory.frames.map_count(head) == 0, "page {vpn:?} is mapped by base entries only");
        true
    }

    /// Makes the frames folios of their own, or free if they are unmapped; returns the number of the latter
    /// (`__split_huge_page`).
    fn take_apart(&mut self, cx: &mut Cx, head: Pfn, (family, vpn): (FamilyId, Vpn), parts: Parts) -> u32 {
        let counts = self.rmap.take_base_counts(head);
        let (zone, is_active) = (self.zone_position(head), self.memory.frames.has(head, FrameFlag::Active));
        let is_referenced = self.memory.frames.has(head, FrameFlag::Referenced);
        let is_workingset = self.swap.is_workingset(head);
        let is_pinned = self.is_pinned(head);
        let (mut tails, mut unmapped) = (Vec::new(), Vec::new());
        self.split_last_fault(head);
        for n in (0..Order::HUGE.frames()).rev() {
            let pfn = head.plus(n);
            let count = u32::from(counts[n as usize]);
            if count == 0 && (n > 0 || matches!(parts, Parts::OnList)) {
                unmapped.push(pfn);
                continue;
            }
            self.memory.frames.set(pfn, Frame::Anon { family, vpn: vpn.plus(n.into()), order: Order::BASE });
            self.set_base_mappings(pfn, count);
            self.swap.forget(pfn);
            if is_workingset {
                self.swap.set_workingset(pfn);
            }
            self.memory.frames.mark(pfn, FrameFlag::Referenced, is_referenced);
            self.memory.frames.mark(pfn, FrameFlag::Active, is_active);
            self.memory.frames.mark(pfn, FrameFlag::Pinned, is_pinned);
            self.memory.frames.mark(pfn, FrameFlag::Dropped, count == 0);
            if n > 0 {
                tails.push(pfn);
            }
        }
        let is_head_mapped = unmapped.last() != Some(&head);
        match parts {
            Parts::OnList => self.lru_split(cx, (zone, head), is_active, (&tails, unmapped.len()), is_head_mapped),
            Parts::FromBatch => {
                self.memory.frames.mark(head, FrameFlag::InBatch, true);
                self.lru_split_waiting(cx, zone, is_active, (&tails, unmapped.len()));
            }
            Parts::Isolated(all) => {
                self.charge_lru_moves(cx, zone, (tails.len() + unmapped.len()) as u64);
                self.lru_isolated_less(zone, unmapped.len() as u64);
                all.append(&mut tails);
            }
        }
        // The caller of the split holds the head, and drops it last.
        unmapped.reverse();
        if !is_head_mapped {
            unmapped.rotate_left(1);
        }
        for pfn in &unmapped {
            // The head leaves the list on its own.
            self.charge_lru_moves(cx, zone, 1);
            primitive::uncharge(cx);
            self.memory.frames.set(*pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
            self.memory.free(cx, *pfn, Order::BASE);
        }
        u32::try_from(unmapped.len()).expect("at most 512")
    }

    /// Number of huge pages in the queue of deferred splits (`deferred_split_count`).
    pub fn deferred_split_count(&self) -> u64 {
        self.rmap.deferred_splits().count() as u64
    }

    /// Number of huge pages of a node in the queue of deferred splits.
    pub(crate) fn deferred_split_count_of(&self, node: NodeId) -> u64 {
        if self.memory.nodes().count() == 1 {
            return self.rmap.deferred_splits().len() as u64;
        }
        self.rmap.deferred_splits().filter(|head| self.memory.node_of(*head) == node).count() as u64
    }

    /// The place in the queue up to which the oldest `most` huge pages of a node are; before the first place if there are none.
    pub(crate) fn deferred_split_place(&self, node: NodeId, most: u64) -> u64 {
        let its = self.rmap.deferred_until(u64::MAX).filter(|(_, head)| self.memory.node_of(*head) == node);
        its.take(usize::try_from(most).unwrap_or(usize::MAX)).last().map_or(0, |(place, _)| place)
    }

    /// The last huge page of a node up to a place in the queue: a scan moves each to the front of its list, so the last of a
    /// batch is split first.
    pub(crate) fn next_deferred_split(&self, node: NodeId, until: u64) -> Option<(u64, Pfn)> {
        let mut waiting = self.rmap.deferred_until(until).rev();
        waiting.find(|(_, head)| self.memory.node_of(*head) == node)
    }

    /// Splits a queued huge page; returns the number of frames freed. A page that cannot be split is requeued behind all others.
    pub(crate) fn split_deferred(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> Option<u32> {
        match self.split_folio(spaces, cx, head) {
            Split::Done { freed } => Some(freed),
            Split::Busy => {
                self.rmap.requeue_deferred(head);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
