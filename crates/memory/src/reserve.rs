//! Linux: setup_zone_migrate_reserve(), mm/page_alloc.c (v3.9 to v4.3); reserve_highatomic_pageblock() and
//! unreserve_highatomic_pageblock(), mm/page_alloc.c (v4.4 to v6.1).
//! Differs: the rules of 6.8 and later (no reserve in zones of less than a hundred pageblocks, whole pageblocks) are not
//! modelled.
//!
//! Reserved pageblocks: RESERVE ones from boot on, for requests that would fail otherwise. HIGHATOMIC ones are those in
//! which an atomic request for more than one frame was served; they are kept for later atomic requests.

use rules::{
    gfp::AllocRequest,
    variant::{HighAtomic, LastResort, Variant},
};
use units::Pfn;

use crate::{
    Memory,
    alloc::listed,
    cx::Cx,
    frame::{Frame, FrameTable, moves::MoveReason},
    pageblock::MigrateType,
    zone_state::ZoneState,
};

/// Most RESERVE pageblocks of a zone: a higher `min_free_kbytes` is meant for huge pages, not for atomic requests.
// setup_zone_migrate_reserve, mm/page_alloc.c (v4.1).
const RESERVE_BLOCKS_MAX: u64 = 2;

/// HIGHATOMIC pageblocks are at most one part in this many of a zone, plus one pageblock.
// reserve_highatomic_pageblock, mm/page_alloc.c (v6.1).
const HIGH_ATOMIC_PART: u64 = 100;

impl ZoneState {
    /// Makes pageblocks RESERVE, from the zone's first on, until they hold the Min mark; pageblocks with reserved frames
    /// are left out. Others become Movable again.
    pub(crate) fn setup_migrate_reserve(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, rules: &Variant) {
        let size = frames.blocks.order().frames();
        let wanted = match rules.last_resort {
            LastResort::Reserve | LastResort::ReserveMisplaced if !self.is_llfree() => {
                self.marks.min.0.div_ceil(size.into()).min(RESERVE_BLOCKS_MAX)
            }
            _ => 0,
        };
        let wanted = u32::try_from(wanted).expect("at most two");
        let before = std::mem::replace(&mut self.reserve_blocks, wanted);
        if wanted == before {
            return;
        }
        let mut left = wanted;
        for start in (self.start.0.next_multiple_of(size)..self.end.0).step_by(size as usize).map(Pfn) {
            if left == 0 && before == 0 {
                break;
            }
            if left > 0 && has_reserved(frames, start, Pfn(self.end.0.min(start.0 + size))) {
                continue;
            }
            match frames.blocks.migrate_type(start) {
                MigrateType::Reserve if left > 0 => left -= 1,
                MigrateType::Movable if left > 0 => {
                    self.convert(frames, cx, start, MigrateType::Reserve, rules);
                    left -= 1;
                }
                MigrateType::Reserve => {
                    self.convert(frames, cx, start, MigrateType::Movable, rules);
                }
                _ => {}
            }
        }
    }

    /// Reserves the pageblock of a block that an atomic request just got, for later atomic requests.
    #[inline(never)]
    pub(crate) fn reserve_high_atomic(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, pfn: Pfn, rules: &Variant) {
        let size = u64::from(frames.blocks.order().frames());
        let most = self.managed / HIGH_ATOMIC_PART + size;
        if rules.high_atomic == HighAtomic::Nothing || self.is_llfree() || self.high_atomic >= most {
            return;
        }
        self.buddy.lock(cx);
        if frames.blocks.migrate_type(pfn).is_requestable() {
            self.high_atomic += size;
            self.convert(frames, cx, pfn, MigrateType::HighAtomic, rules);
        }
        self.buddy.unlock(cx);
    }

    /// Gives the pageblock of one free HIGHATOMIC block to another type; returns whether there was one.
    fn unreserve_high_atomic(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        to: MigrateType,
        rules: &Variant,
    ) -> bool {
        let size = u64::from(frames.blocks.order().frames());
        self.buddy.lock(cx);
        let moved = (0..=self.buddy.max_order().0).map(units::Order).any(|order| {
            let Some(pfn) = self.buddy.area(order).list(MigrateType::HighAtomic).first() else { return false };
            if frames.blocks.migrate_type(pfn) == MigrateType::HighAtomic {
                self.high_atomic -= size.min(self.high_atomic);
            }
            self.has_unmerged |= order >= frames.blocks.order();
            self.convert(frames, cx, pfn, to, rules)
        });
        self.buddy.unlock(cx);
        moved
    }

    /// Changes the type of a pageblock and of its free frames; returns whether frames were moved. The frames of a
    /// pageblock that reaches beyond the zone stay.
    fn convert(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        pfn: Pfn,
        to: MigrateType,
        rules: &Variant,
    ) -> bool {
        frames.blocks.set_migrate_type(pfn, to);
        frames.note_taken(cx.control(), MoveReason::Retyped(to), pfn, frames.blocks.order());
        let end = pfn.align_down(frames.blocks.order()).plus(frames.blocks.order().frames());
        let moves = end <= self.end;
        if moves {
            self.buddy.move_free_frames(frames, cx, pfn, to, rules.moved_end);
        }
        moves
    }
}

/// Whether the pageblock has a frame that will never be free (`pageblock_is_reserved`).
fn has_reserved(frames: &FrameTable, start: Pfn, end: Pfn) -> bool {
    (start.0..end.0).any(|pfn| frames.get(Pfn(pfn)) == Frame::Reserved)
}

impl Memory {
    /// Gives one HIGHATOMIC pageblock to the type of a request that would else fail; says whether there was one. Without
    /// `force`, the last one of each zone stays.
    pub fn unreserve_high_atomic(&mut self, cx: &mut Cx<'_>, request: &AllocRequest, force: bool) -> bool {
        let Self { frames, zones, nodes, variant, .. } = self;
        let kept = if force { 0 } else { u64::from(frames.blocks.order().frames()) };
        listed(nodes, zones, request).iter().any(|index| {
            let zone = &mut zones[*index];
            zone.high_atomic > kept
                && zone.unreserve_high_atomic(frames, cx, MigrateType::of(request.mobility), variant)
        })
    }
}

#[cfg(test)]
mod tests;
