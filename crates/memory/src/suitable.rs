//! Linux: compaction_suitable() in mm/compaction.c, fragmentation_index() and extfrag_for_order() in mm/vmstat.c (v4.1 to v6.1).
//! Differs: no CMA.
//!
//! Is it worth compacting a zone?

use rules::{
    gfp::{COSTLY, Mark, Urgency},
    variant::CompactMark,
    zone::ZoneKind,
};
use units::Order;

use crate::{Memory, buddy::Buddy, pageblock::ZoneIndex, watermark, zone_state::ZoneState};

/// Should a zone be compacted?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitable {
    /// There are too few free frames.
    Skipped,
    /// There is a block already.
    Success,
    /// Yes.
    Continue,
}

/// Free frames that a move takes beside a mark: what is moved is in two places for a while (`compact_gap`).
pub const fn compact_gap(order: Order) -> u64 {
    2 << order.0
}

/// A zone's free memory as a request of some order sees it (`struct contig_page_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Free frames.
    pub frames: u64,
    /// Free blocks of every order.
    pub blocks: u64,
    /// Blocks that are large enough, counted in blocks of that order.
    pub suitable: u64,
}

impl FreeBlocks {
    /// Counts them.
    pub fn of(buddy: &Buddy, order: Order) -> Self {
        let orders = (0..=buddy.max_order().0).map(Order);
        Self::counted(orders.map(|at| (at, buddy.area(at).nr_free())), order)
    }

    /// Adds up the free blocks of each order.
    pub(crate) fn counted(free: impl Iterator<Item = (Order, u64)>, order: Order) -> Self {
        let mut counts = Self::default();
        for (at, blocks) in free {
            counts.blocks += blocks;
            counts.frames += blocks << at.0;
            if at >= order {
                counts.suitable += blocks << (at.0 - order.0);
            }
        }
        counts
    }

    /// Would a request fail for want of memory (towards 0) or because it is in pieces (towards 1000)? -1000 where it would
    /// not fail (`__fragmentation_index`).
    pub fn fragmentation_index(&self, order: Order) -> i64 {
        if self.blocks == 0 {
            return 0;
        }
        if self.suitable > 0 {
            return -1000;
        }
        let shortage = (1000 + ((self.frames * 1000) >> order.0)) / self.blocks;
        1000 - i64::try_from(shortage).expect("a share of the frames")
    }

    /// How much of the free memory is in blocks that are too small, in per cent (`extfrag_for_order`).
    pub fn extfrag(&self, order: Order) -> u64 {
        let useless = self.frames - (self.suitable << order.0);
        (useless * 100).checked_div(self.frames).unwrap_or(0)
    }
}

impl ZoneState {
    /// Would as many free frames be above the Low mark, beside what others keep?
    pub fn has_above_low(&self, frames: u64, highest: ZoneKind) -> bool {
        self.buddy.free_frames() > self.mark(Mark::Low) + self.keeps(highest, Urgency::Normal) + frames
    }

    /// Is there enough room to move pages around in, beside what a mark, raised as it is, and others keep
    /// (`__compaction_suitable`: `low_wmark_pages` and `min_wmark_pages` hold the boost since 5.0)?
    pub fn has_room(&self, order: Order, highest: ZoneKind, free_too: u64, by: CompactMark) -> bool {
        let mark = match by {
            CompactMark::ByOrder if order <= COSTLY => self.mark(Mark::Min),
            CompactMark::Low | CompactMark::ByOrder => self.mark(Mark::Low),
        };
        let keeps = self.keeps(highest, Urgency::Normal);
        self.buddy.free_frames() + free_too > mark + compact_gap(order) + keeps
    }
}

impl Memory {
    /// Should a zone be compacted for a request of `order`, as those who reclaim ask? With the older mark, they ask for
    /// whatever the lowest zone could serve.
    pub fn compaction_suitable(&self, zone: ZoneIndex, order: Order, highest: ZoneKind, urgency: Urgency) -> Suitable {
        let by_lowest = self.variant.compact_mark == CompactMark::Low;
        self.is_suitable_for(zone, order, if by_lowest { ZoneKind::Dma } else { highest }, urgency)
    }

    /// Would a zone stay above this many free frames?
    pub fn has_above(&self, at: ZoneIndex, order: Order, mark: u64, highest: ZoneKind) -> bool {
        let zone = &self.zones[at];
        let urgency = Urgency::Normal;
        watermark::is_ok(&zone.buddy, order, mark, zone.keeps(highest, urgency), urgency, &self.variant)
    }

    /// Is the zone worth compacting, as a compacting task asks (`compaction_suitable`)?
    pub fn is_suitable_for(&self, zone: ZoneIndex, order: Order, highest: ZoneKind, urgency: Urgency) -> Suitable {
        let (state, rules) = (&self.zones[zone], &self.variant);
        let mark = match rules.compact_mark {
            CompactMark::Low => Mark::Low,
            CompactMark::ByOrder => Mark::Min,
        };
        if state.is_ok(order, mark, highest, urgency, rules) {
            return Suitable::Success;
        }
        if state.is_llfree() || !state.has_room(order, highest, 0, rules.compact_mark) {
            return Suitable::Skipped;
        }
        if order > COSTLY || rules.compact_mark == CompactMark::Low {
            let index = FreeBlocks::of(&state.buddy, order).fragmentation_index(order);
            if (0..=i64::from(self.extfrag_threshold)).contains(&index) {
                return Suitable::Skipped;
            }
        }
        Suitable::Continue
    }

    /// Has a zone no block for a request, and too few free frames to make one by moving pages?
    pub fn lacks_room(&self, zone: ZoneIndex, order: Order, highest: ZoneKind, urgency: Urgency) -> bool {
        let (state, rules) = (&self.zones[zone], &self.variant);
        !state.is_ok(order, Mark::Min, highest, urgency, rules)
            && !state.has_room(order, highest, 0, rules.compact_mark)
    }

    /// May a free block be taken, as if it were allocated (the test of `__isolate_free_page`)?
    pub fn may_isolate_free(&self, zone: ZoneIndex, order: Order) -> bool {
        let state = &self.zones[zone];
        // low_wmark_pages() in 4.8.15, min_wmark_pages() in 4.9.0 (mm/page_alloc.c).
        let mark = match self.variant.compact_mark {
            CompactMark::Low => state.marks.low,
            CompactMark::ByOrder => state.marks.min,
        };
        let boost = if self.variant.boost_keeps_targets { state.boost } else { 0 };
        let mark = mark.0 + boost + u64::from(order.frames());
        // As for a request that only the lowest zone may serve, from which no zone keeps anything.
        let keeps = state.keeps(ZoneKind::Dma, Urgency::Normal);
        watermark::is_ok(&state.buddy, Order::BASE, mark, keeps, Urgency::Normal, &self.variant)
    }
}
