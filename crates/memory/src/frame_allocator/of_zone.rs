//! Linux: mm/page_alloc.c (v6.1): the free lists and the per-CPU lists of a zone behind the seam.
//! Differs: nothing of them; see `zone_state.rs`, `buddy.rs` and `pcp/lists.rs`.

use rules::{
    gfp::Urgency,
    variant::{ListEnd, Variant},
};
use units::{Order, Pfn};

use super::{FrameAllocator, Offers};
use crate::{buddy::Block, cx::Cx, fallback::Want, frame::FrameTable, pageblock::MigrateType, zone_state::ZoneState};

impl FrameAllocator for ZoneState {
    const OFFERS: Offers = Offers { migrate_types: true, cpu_lists: true, marked_blocks: true };

    #[inline]
    fn take(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        request: (Want, ListEnd),
        urgency: Urgency,
        rules: &Variant,
    ) -> Option<Pfn> {
        Self::take(self, frames, cx, request, urgency, rules)
    }

    #[inline]
    fn give(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        to: (MigrateType, ListEnd),
        rules: &Variant,
    ) {
        Self::give(self, frames, cx, block, to, rules);
    }

    /// Frames on lists of CPUs are not found, nor blocks whose halves are of types that do not merge.
    fn take_at(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block, rules: &Variant) -> bool {
        let Some(mut around) = block_around(frames, block.pfn, self.buddy.max_order()) else { return false };
        if around.order < block.order {
            return false;
        }
        let list = frames.free_list(around.pfn, around.order);
        self.buddy.lock(cx);
        self.buddy.isolate(frames, cx, around);
        // Bound: each turn halves the block, and gives back the half without the frames that are wanted.
        while around.order > block.order {
            let half = Order(around.order.0 - 1);
            let wanted = block.pfn.align_down(half);
            let rest = Block { pfn: wanted.buddy(half), order: half };
            self.buddy.give(frames, cx, rest, list, None, rules);
            around = Block { pfn: wanted, order: half };
        }
        self.buddy.unlock(cx);
        true
    }

    fn drain(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, rules: &Variant) {
        self.drain_cpus(frames, cx, rules);
    }

    fn max_order(&self) -> Order {
        self.buddy.max_order()
    }

    fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }

    fn free_blocks(&self, order: Order, list: Option<MigrateType>) -> u64 {
        let area = self.buddy.area(order);
        list.map_or_else(|| area.nr_free(), |list| u64::from(area.list(list).len()))
    }

    fn is_free(&self, frames: &FrameTable, pfn: Pfn) -> bool {
        (self.start..self.end).contains(&pfn) && block_around(frames, pfn, self.buddy.max_order()).is_some()
    }

    fn visit_free(&self, frames: &FrameTable, mut visit: impl FnMut(Block)) {
        for order in (0..=self.buddy.max_order().0).map(Order) {
            for list in MigrateType::ALL {
                for pfn in self.buddy.area(order).list(list).iter(frames) {
                    visit(Block { pfn, order });
                }
            }
        }
    }

    /// The free lists alone: `whole::check` walks the others with all memory.
    fn check(&self, frames: &FrameTable) -> Result<(), String> {
        let (mut free, mut wrong) = (0, None);
        self.visit_free(frames, |block| {
            free += u64::from(block.order.frames());
            let is_inside = self.start <= block.pfn && block.pfn.0 + block.order.frames() <= self.end.0;
            if !is_inside || !frames.is_free(block.pfn, block.order) {
                wrong = wrong.or(Some(block));
            }
        });
        match wrong {
            Some(Block { pfn, order }) => {
                Err(format!("frame {pfn} is on a list of order {order}, but is no such block"))
            }
            None if free != self.buddy.free_frames() => {
                Err(format!("{} free frames are counted, but {free} are on lists", self.buddy.free_frames()))
            }
            None => Ok(()),
        }
    }
}

/// The free block that a frame is part of.
fn block_around(frames: &FrameTable, pfn: Pfn, largest: Order) -> Option<Block> {
    let blocks = (0..=largest.0).map(|order| Block { pfn: pfn.align_down(Order(order)), order: Order(order) });
    blocks.into_iter().find(|block| frames.is_free(block.pfn, block.order))
}
