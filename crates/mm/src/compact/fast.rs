//! Linux: fast_find_migrateblock() and fast_isolate_freepages() in mm/compaction.c (v5.1 to v6.1).
//! Differs: no known differences.
//!
//! Searches a few blocks of the free lists before frames are scanned one after the other: for a pageblock that is partly
//! free, which takes fewer moves to empty, and for free blocks high up in the zone.

use memory::{buddy::Block, cx::Cx, event::Event, pageblock::MigrateType, primitive, step::RUN};
use rules::gfp::COSTLY;
use units::{Order, Pfn};

use crate::{
    Mm,
    compact::control::{CompactControl, FastStart},
};

/// How many more blocks of a list are searched: `limit`, at least one; before 5.14 the kernel took the minimum of both, and
/// so one.
fn at_least_one(mm: &Mm, limit: u32) -> u32 {
    if mm.memory.variant().compact_looks_further { limit.max(1) } else { limit.min(1) }
}

/// The result of a search of one free list.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    /// Blocks looked at.
    scanned: u32,
    /// A block in the preferred part of the zone.
    preferred: Option<Pfn>,
    /// A block in the preferred part of the zone.
    passable: Option<Pfn>,
    /// The block looked at last.
    last: Option<Pfn>,
}

impl CompactControl {
    /// Blocks of the free lists that are searched at most (`freelist_scan_limit`).
    fn list_limit(&self) -> u32 {
        (u32::try_from(RUN).expect("small") >> self.fast_search_fail.min(31)) + 1
    }

    /// The next pageblock to take pages from: one that is partly free, or else where the linear scan is
    /// (`fast_find_migrateblock`).
    pub(super) fn fast_find_migrateblock(&mut self, mm: &mut Mm, cx: &mut Cx) -> Pfn {
        let order = mm.memory.frames.blocks.order();
        let start = mm.memory.zone(self.zone).start;
        let from = self.migrate_pfn;
        let Some(wanted) = self.order.filter(|wanted| *wanted > COSTLY) else { return from };
        if !mm.memory.variant().compact_lists_for_sources
            || self.ignores_skip()
            || (from != start && !from.is_aligned(order))
            || (self.is_direct() && self.list != MigrateType::Movable)
        {
            return from;
        }
        // At the start anywhere in the first half of the free scanner's distance; later in its first eighth, where pages
        // are not moved to soon.
        let half = self.free_pfn.0.saturating_sub(from.0) >> 1;
        let distance = if from == start { half } else { half >> 2 };
        let below = from.plus(distance).align_down(order);
        let limit = self.list_limit();
        let fails_without = mm.memory.variant().compact_fails_without_source;
        let (mut scanned, mut found) = (0, None);
        for at in (COSTLY.0..wanted.0).rev().map(Order) {
            if found.is_some_and(|free| fails_without || self.block_of(mm, free) != from) || scanned >= limit {
                break;
            }
            if mm.memory.zone(self.zone).nr_free(at) > 0 {
                found = self.find_partly_free(mm, cx, (at, below), (&mut scanned, limit)).or(found);
            }
        }
        primitive::scan_frames(cx, scanned.into());
        self.migrate_scanned += u64::from(scanned);
        let Some(free) = found.filter(|free| fails_without || self.block_of(mm, *free) != from) else {
            self.fast_search_fail += u32::from(fails_without);
            return self.reinit_migrate_pfn();
        };
        self.block_of(mm, free)
    }

    /// The first frame of a pageblock that belongs to the zone.
    fn block_of(&self, mm: &Mm, pfn: Pfn) -> Pfn {
        pfn.align_down(mm.memory.frames.blocks.order()).max(mm.memory.zone(self.zone).start)
    }

    /// Lets the linear scan go on from the lowest of the blocks found (`update_fast_start_pfn`).
    fn lower_fast_start(&mut self, free: Pfn) {
        self.fast_start = match self.fast_start {
            FastStart::None => FastStart::At(free),
            FastStart::At(first) => FastStart::At(first.min(free)),
            FastStart::Used => FastStart::Used,
        };
    }

    /// Finds a free block below a frame, in a pageblock without a skip mark. Blocks that were searched go to the end of the
    /// list.
    fn find_partly_free(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        (order, below): (Order, Pfn),
        (scanned, limit): (&mut u32, u32),
    ) -> Option<Pfn> {
        mm.memory.zone_mut(self.zone).lock(cx);
        let (zone, frames, variant) = (mm.memory.zone(self.zone), &mm.memory.frames, mm.memory.variant());
        let (mut found, mut cut) = (None, None);
        // Bound: the limit, or before 5.12 the list.
        for pfn in zone.free_list(order, MigrateType::Movable).iter(frames) {
            *scanned += 1;
            if *scanned > limit && variant.compact_fails_without_source {
                cut = Some(pfn);
                break;
            }
            if pfn < below {
                if !variant.compact_private_sources {
                    // Also of pageblocks that were marked meanwhile.
                    self.lower_fast_start(pfn);
                }
                if !frames.blocks.skip(pfn) {
                    (found, cut) = (Some(pfn), Some(pfn));
                    break;
                }
            } else if *scanned >= limit && !variant.compact_fails_without_source {
                self.fast_search_fail += 1;
                cut = Some(pfn);
                break;
            }
        }
        if let Some(pfn) = found {
            self.fast_search_fail = 0;
            self.lower_fast_start(pfn);
            mm.memory.frames.blocks.set_skip(pfn, true);
        }
        if let Some(next) = cut.and_then(|pfn| mm.memory.frames.next_of(pfn)) {
            mm.memory.rotate_free(self.zone, Block { pfn: next, order });
        }
        mm.memory.zone_mut(self.zone).unlock(cx);
        found
    }

    /// Nothing was found: the linear scan goes on, the first time from the lowest block found (`reinit_migrate_pfn`).
    fn reinit_migrate_pfn(&mut self) -> Pfn {
        if let FastStart::At(first) = self.fast_start {
            self.migrate_pfn = first;
            self.fast_start = FastStart::Used;
        }
        self.migrate_pfn
    }

    /// Takes a free block high up in the zone; returns its place, or a better place for the linear search
    /// (`fast_isolate_freepages`).
    pub(super) fn fast_isolate_freepages(&mut self, mm: &mut Mm, cx: &mut Cx) -> Option<Pfn> {
        let wanted = self.order.filter(|wanted| *wanted > Order::BASE)?;
        let pageblock = mm.memory.frames.blocks.order();
        let is_start = self.begins_at_end(mm);
        let mut limit = if is_start { pageblock.frames() >> 1 } else { at_least_one(mm, self.list_limit() >> 1) };
        // Preferably in the top quarter of the range between the scanners, else in its top half.
        let distance = self.free_pfn.0.saturating_sub(self.migrate_pfn.0);
        let low = Pfn(self.free_pfn.0 - (distance >> 2)).align_down(pageblock);
        let min = Pfn(self.free_pfn.0 - (distance >> 1)).align_down(pageblock);
        let in_turn = mm.memory.variant().compact_orders_in_turn;
        let first = if in_turn { self.search_order } else { wanted.0 };
        self.search_order = first.min(wanted.0 - 1);
        let (mut scanned, mut highest, mut found) = (0, None, None);
        let mut order = Some(self.search_order);
        // Bound: each turn is done with an order.
        while let Some(at) = order {
            if mm.memory.zone(self.zone).nr_free(Order(at)) == 0 {
                order = self.next_search_order(at, wanted);
                continue;
            }
            self.hold_zone_only(mm, cx);
            let looked = self.look_for_free(mm, Order(at), (low, min), (&mut limit, &mut highest));
            scanned += u64::from(looked.scanned);
            let candidate = looked.preferred.or(looked.passable);
            if let Some(first) = candidate.or(looked.last) {
                mm.memory.rotate_free(self.zone, Block { pfn: first, order: Order(at) });
            }
            if looked.preferred.is_some() {
                self.fast_search_fail = 0;
                if in_turn {
                    self.search_order = at;
                }
            }
            let mut is_refused = false;
            if let Some(pfn) = candidate {
                if self.take_free(mm, cx, Block { pfn, order: Order(at) }) {
                    let frames = u64::from(Order(at).frames());
                    if mm.memory.variant().compact_counts_frames {
                        scanned += frames - 1;
                    }
                    cx.count(Event::CompactIsolated, frames);
                    found = Some(pfn);
                } else {
                    is_refused = true;
                }
            }
            mm.memory.zone_mut(self.zone).unlock(cx);
            if looked.scanned >= limit {
                limit = at_least_one(mm, limit >> 1);
            }
            order = self.next_search_order(if is_refused { self.search_order + 1 } else { at }, wanted);
            if found.is_some() {
                break;
            }
        }
        primitive::scan_frames(cx, scanned);
        self.free_scanned += scanned;
        self.after_fast_search(mm, found, (highest, min), is_start)
    }

    /// Whether the free scanner is still at the start of a search of the whole zone.
    fn begins_at_end(&self, mm: &Mm) -> bool {
        let zone = mm.memory.zone(self.zone);
        if mm.memory.variant().compact_clears_selectively {
            // Nothing says where that is, until marks have been cleared for the first time.
            return mm.zone_compacts[self.zone].init_free.is_none_or(|last| self.free_pfn >= last);
        }
        self.free_pfn == Pfn(zone.end.0 - 1).align_down(mm.memory.frames.blocks.order())
    }

    /// The place at which the linear search begins if the lists gave no block.
    pub(super) fn after_fast_search(
        &mut self,
        mm: &mut Mm,
        found: Option<Pfn>,
        (highest, min): (Option<Pfn>, Pfn),
        is_start: bool,
    ) -> Option<Pfn> {
        let mut page = found;
        if found.is_none() {
            self.fast_search_fail += 1;
            if is_start {
                if let Some(highest) =
                    highest.filter(|highest| !mm.memory.variant().compact_begins_high || *highest >= min)
                {
                    self.free_pfn = highest;
                    page = Some(highest);
                } else if self.is_direct() {
                    self.free_pfn = min;
                    page = (mm.memory.frames.blocks.zone(min) == Some(self.zone)).then_some(min);
                }
            }
        }
        let size =
            if mm.memory.variant().compact_marks_searched { mm.memory.frames.blocks.order().frames() } else { 0 };
        let cached = &mut mm.zone_compacts[self.zone].cached_free;
        if let Some(highest) = highest.filter(|highest| *highest >= *cached) {
            *cached = Pfn(highest.0.saturating_sub(size));
        }
        page
    }

    /// Searches the free blocks of one order, from the tail of the list.
    fn look_for_free(
        &self,
        mm: &Mm,
        order: Order,
        (low, min): (Pfn, Pfn),
        (limit, highest): (&mut u32, &mut Option<Pfn>),
    ) -> Looked {
        let pageblock = mm.memory.frames.blocks.order();
        let zone = mm.memory.zone(self.zone);
        let mut looked = Looked::default();
        let mut at = zone.free_list(order, MigrateType::Movable).last();
        // Bound: the limit.
        while let Some(pfn) = at {
            looked.scanned += 1;
            if highest.is_none_or(|highest| pfn >= highest) {
                *highest = Some(pfn.align_down(pageblock).max(zone.start));
            }
            if pfn >= low {
                looked.preferred = Some(pfn);
                break;
            }
            if pfn >= min && looked.passable.is_none_or(|best| pfn > best) {
                looked.passable = Some(pfn);
                // A passable block is known: the search may be shorter.
                *limit >>= 1;
            }
            if looked.scanned >= *limit {
                looked.last = Some(pfn);
                break;
            }
            at = mm.memory.frames.previous_of(pfn);
        }
        looked
    }

    /// The next lower order, and round again, each order once (`next_search_order`).
    fn next_search_order(&mut self, order: u8, wanted: Order) -> Option<u8> {
        let next = order.checked_sub(1).unwrap_or(wanted.0 - 1);
        if next == self.search_order {
            self.search_order = self.search_order.checked_sub(1).unwrap_or(wanted.0 - 1);
            return None;
        }
        Some(next)
    }

    fn hold_zone_only(&self, mm: &mut Mm, cx: &mut Cx) {
        mm.memory.zone_mut(self.zone).lock(cx);
    }
}
