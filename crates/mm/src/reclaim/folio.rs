//! Linux: shrink_folio_list(), folio_check_references() and pageout() in mm/vmscan.c, try_to_unmap_one() in mm/rmap.c (v6.1;
//! v4.1: when it flushes).
//! Differs: every huge page is split, as for a swap device that takes base pages only; no lazily freed pages, no locked ones
//! (`VM_LOCKED`).

use memory::{
    cx::Cx,
    event::Event,
    frame::{FrameFlag, Held},
    lru_kind::LruKind,
    primitive::{self, TlbFlush},
};
use rules::variant::NewAnon;
use units::{Order, Pfn};

use super::{Met, Reclaimer, ScanControl, file::FileState};
use crate::{
    Mm, Spaces,
    folio::{
        lru::Taken,
        pte::{Pte, SwapSlot},
    },
    space::{page_table::Level, spaces::Entry},
    swap::SlotFlag,
};

/// The fate of an isolated folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Back to the list that it was on.
    Keep,
    /// To the active list.
    Activate,
    /// The folio is free.
    Free,
    /// Back to its list, under writeback.
    Written,
}

/// Whether a folio is in use (`enum folio_references`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum References {
    Reclaim,
    Keep,
    Activate,
}

/// The results of one run of folios.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) met: Met,
    activated: u64,
    written: u64,
    /// Entries were cleared that TLBs may still hold.
    unmapped: bool,
    /// The folio in hand is mapped, or in the swap cache, which makes shrinkers work harder.
    met_mapped: bool,
}

impl Mm {
    /// Reclaims isolated folios as far as possible, and puts the others back; returns the number of frames freed. If a huge
    /// folio is split, its base pages behind the head go to `tails`, for a later turn.
    pub(super) fn shrink_folio_list(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        sc: &mut ScanControl,
        (lruvec, from): (usize, LruKind),
        taken: &Taken,
        tails: &mut Vec<Pfn>,
    ) -> u64 {
        let mut tally = Tally::default();
        let (mut free, mut back) = (Taken::default(), Taken::default());
        let mut reclaimed = 0;
        for Held { pfn: head, order } in taken.iter() {
            primitive::scan_folios(cx, 1);
            tally.met_mapped = false;
            let fate = self.shrink_folio(spaces, cx, sc, (head, order), (&mut tally, tails));
            let order = if self.memory.frames.is_base_anon(head) { Order::BASE } else { order };
            let frames = u64::from(order.frames());
            // A page that is mapped or in the swap cache counts twice for shrinkers.
            let weighs = if order == Order::BASE && tally.met_mapped { 2 } else { 1 };
            sc.scanned += frames * weighs;
            match fate {
                Fate::Free => {
                    self.end_isolation(head);
                    free.push(head, order);
                    reclaimed += frames;
                    continue;
                }
                Fate::Activate => {
                    self.memory.frames.mark(head, FrameFlag::Active, true);
                    tally.activated += frames;
                }
                Fate::Written => tally.written += frames,
                Fate::Keep => {}
            }
            back.push(head, order);
        }
        if tally.unmapped {
            primitive::flush_tlb(cx);
        }
        let lost = self.put_back_folios(cx, lruvec, &back);
        self.note_cost(lruvec, from.is_file(), tally.written);
        let is_kswapd = sc.by == Reclaimer::Kswapd;
        cx.count(if is_kswapd { Event::PgstealKswapd } else { Event::PgstealDirect }, reclaimed);
        cx.count(if from.is_file() { Event::PgstealFile } else { Event::PgstealAnon }, reclaimed);
        cx.count(Event::Pgactivate, tally.activated);
        self.free_folios(cx, &free);
        self.free_folios(cx, &lost);
        let is_all_dirty = tally.met.unqueued_dirty > 0 && tally.met.unqueued_dirty == taken.frames();
        if is_all_dirty && self.memory.variant().reclaim_sets_dirty_aside {
            self.wake_flusher(cx);
        }
        sc.met.add(tally.met);
        sc.met.file_taken += if from.is_file() { taken.frames() } else { 0 };
        reclaimed
    }

    fn shrink_folio(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        sc: &ScanControl,
        (head, order): (Pfn, Order),
        (tally, tails): (&mut Tally, &mut Vec<Pfn>),
    ) -> Fate {
        if self.memory.frames.has(head, FrameFlag::Dropped) || self.memory.frames.has(head, FrameFlag::Locked) {
            return Fate::Keep;
        }
        if self.memory.frames.is_file(head) {
            return self.shrink_file(spaces, cx, sc, head, tally);
        }
        if let Some(slot) = self.swap.slot_of(head).filter(|slot| self.swap.has(*slot, SlotFlag::Writeback)) {
            return self.meet_writeback(sc, slot, tally);
        }
        let mapped = self.folio_mappings(head);
        tally.met_mapped |= self.memory.variant().slab_by_scanned;
        if mapped == 0 {
            // The control that unmapped it last, and has not flushed the TLB yet, frees it.
            return if self.swap.slot_of(head).is_some() {
                self.shrink_cached(cx, sc, head, tally)
            } else {
                Fate::Keep
            };
        }
        let (references, found) = self.check_references(spaces, cx, head);
        match references {
            References::Activate => return self.activate(cx, head),
            References::Keep => return Fate::Keep,
            References::Reclaim => {}
        }
        // Folios that a child being forked maps already stay (`can_split_folio`); so do folios for which swap has no room.
        if found != mapped {
            return self.activate(cx, head);
        }
        if self.is_pinned(head) && self.swap.slot_of(head).is_none() && self.memory.variant().reclaim_keeps_pinned {
            return Fate::Keep;
        }
        if order == Order::HUGE {
            if self.memory.variant().split_counts_each {
                primitive::read_frames(cx, order);
            }
            if !self.can_split(head) {
                return self.activate(cx, head);
            }
            let is_whole = self.memory.frames.map_count(head) > 0;
            if !self.split_isolated(spaces, cx, head, tails) {
                return self.activate(cx, head);
            }
            if is_whole {
                cx.count(Event::ThpSwpoutFallback, 1);
            }
            if self.folio_mappings(head) == 0 {
                // The folio lost its last reference, and is freed when it is put back.
                return Fate::Keep;
            }
        }
        if self.swap.slot_of(head).is_none() && !self.add_to_swap(head) {
            return self.activate(cx, head);
        }
        let flush = self.unmap_flush();
        self.try_to_unmap(spaces, cx, head, flush);
        tally.unmapped |= flush == TlbFlush::Later;
        self.shrink_cached(cx, sc, head, tally)
    }

    /// Handles an unmapped folio of the swap cache: it is written, or freed if the device has its contents; a device that is
    /// memory has them at once.
    fn shrink_cached(&mut self, cx: &mut Cx, sc: &ScanControl, head: Pfn, tally: &mut Tally) -> Fate {
        let slot = self.swap.slot_of(head).expect("it is in the swap cache");
        if self.swap.count(slot) > 0 && self.swap.has(slot, SlotFlag::Dirty) {
            if !sc.may_write {
                return Fate::Keep;
            }
            if std::mem::take(&mut tally.unmapped) {
                primitive::flush_tlb(cx);
            }
            // pageout().
            if self.is_pinned(head) {
                // The folio must have no other reference (`is_page_cache_freeable`).
                return Fate::Keep;
            }
            self.swap.mark(slot, SlotFlag::Reclaim, true);
            self.write_swap(cx, head);
            cx.count(Event::NrVmscanWrite, 1);
            if self.swap.has(slot, SlotFlag::Writeback) || self.swap.has(slot, SlotFlag::Dirty) {
                return Fate::Written;
            }
            tally.written += 1;
        }
        if self.is_pinned(head) {
            // A pinned folio of a file stays, too (`__remove_mapping`).
            return Fate::Keep;
        }
        let shadow = self.workingset_eviction(head);
        self.delete_from_swap_cache(head, shadow);
        Fate::Free
    }

    fn shrink_file(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        sc: &ScanControl,
        head: Pfn,
        tally: &mut Tally,
    ) -> Fate {
        if self.note_file_state(head, tally) == FileState::Writeback {
            self.meet_file_writeback(sc, head, tally);
            return self.out_of_the_way();
        }
        let mapped = self.file_mappings(head);
        tally.met_mapped |= mapped > 0 && self.memory.variant().slab_by_scanned;
        let (references, found) = self.check_references(spaces, cx, head);
        match references {
            References::Activate => return Fate::Activate,
            References::Keep => return Fate::Keep,
            References::Reclaim => {}
        }
        if found != mapped {
            // A child that is being forked maps the folio too.
            return Fate::Activate;
        }
        if mapped > 0 {
            let flush = self.unmap_flush();
            self.unmap_page(spaces, cx, head, flush);
            tally.unmapped |= flush == TlbFlush::Later;
        }
        match self.file_state(head) {
            // The journal holds the page's buffer (`filemap_release_folio`).
            FileState::Clean if self.is_kept_by_journal(cx, head) => Fate::Activate,
            FileState::Clean => {
                self.remove_file_folio(cx, head);
                Fate::Free
            }
            FileState::Dirty if self.meet_file_dirty(cx, sc, head) => self.out_of_the_way(),
            FileState::Dirty | FileState::Gone => Fate::Keep,
            FileState::Writeback => unreachable!("looked at above"),
        }
    }

    /// Marks a folio under writeback so that it is freed when that ends; counts it if kswapd meets it again.
    fn meet_writeback(&mut self, sc: &ScanControl, slot: SwapSlot, tally: &mut Tally) -> Fate {
        let is_wanted_gone = self.swap.has(slot, SlotFlag::Reclaim);
        if sc.by == Reclaimer::Kswapd && is_wanted_gone && sc.meets_writeback {
            tally.met.immediate += 1;
        } else {
            self.swap.mark(slot, SlotFlag::Reclaim, true);
            tally.met.writeback += 1;
        }
        self.out_of_the_way()
    }

    /// The fate of a folio that must be written before it can be freed: since 4.12 it is moved away from the tail of the
    /// inactive list.
    fn out_of_the_way(&self) -> Fate {
        if self.memory.variant().reclaim_sets_dirty_aside { Fate::Activate } else { Fate::Keep }
    }

    fn activate(&mut self, cx: &mut Cx, head: Pfn) -> Fate {
        if self.swap.is_full() {
            self.free_swap(cx, head);
        }
        Fate::Activate
    }

    /// Whether a folio was used, through page tables or otherwise; also returns the number of entries that map it.
    fn check_references(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> (References, u32) {
        let uses = self.test_and_clear_used(spaces, cx, head);
        let is_file = self.memory.frames.is_file(head);
        let was_marked = self.memory.frames.has(head, FrameFlag::Referenced);
        self.memory.frames.mark(head, FrameFlag::Referenced, uses.used > 0);
        let verdict = if uses.used == 0 {
            References::Reclaim
        } else if was_marked
            || uses.used > 1
            || (is_file && uses.is_executed)
            // Up to 5.8 anonymous memory in use stays active.
            || (!is_file && self.memory.variant().lru_new_anon == NewAnon::Active)
        {
            References::Activate
        } else {
            References::Keep
        };
        (verdict, uses.found)
    }

    /// Whether TLBs are flushed once per run, or for each page (`TTU_BATCH_FLUSH`).
    fn unmap_flush(&self) -> TlbFlush {
        if self.memory.variant().reclaim_batches_flushes { TlbFlush::Later } else { TlbFlush::AtOnce }
    }

    /// Replaces every entry that maps a folio of the swap cache by its slot.
    fn try_to_unmap(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn, flush: TlbFlush) {
        let slot = self.swap.slot_of(head).expect("it has a slot");
        let mut is_dirty = false;
        let entries = spaces.visit_mappings(&self.memory.frames, head, |id, space, at| {
            let Entry::Base(table, vpn) = at else { unreachable!("base pages are swapped") };
            let pte = &mut space.tables.ptes_mut(table)[Level::Pte.index(vpn)];
            is_dirty |= pte.is_dirty();
            *pte = Pte::swapped(slot);
            space.rss -= 1;
            space.swapped += 1;
            primitive::flush_entry(cx, id, flush);
        });
        primitive::walk_rmap(cx, 1);
        primitive::clear_ptes(cx, entries.into());
        primitive::count_mappings(cx, entries.into());
        for _ in 0..entries {
            self.swap.duplicate(slot);
        }
        if is_dirty {
            self.swap.mark(slot, SlotFlag::Dirty, true);
        }
        self.unmap_for_swap(head, entries);
    }
}
