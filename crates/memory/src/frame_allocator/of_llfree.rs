//! Linux: none; LLFree behind the seam.
//! Differs: see `llfree.rs`.

use rules::{
    gfp::Urgency,
    variant::{ListEnd, Variant},
};
use units::{Order, Pfn};

use super::{FrameAllocator, Offers};
use crate::{buddy::Block, cx::Cx, fallback::Want, frame::FrameTable, llfree::LlFree, pageblock::MigrateType};

impl FrameAllocator for LlFree {
    const OFFERS: Offers = Offers { migrate_types: false, cpu_lists: false, marked_blocks: false };

    #[inline]
    fn take(
        &mut self,
        _: &mut FrameTable,
        cx: &mut Cx<'_>,
        (want, _): (Want, ListEnd),
        _: Urgency,
        _: &Variant,
    ) -> Option<Pfn> {
        self.alloc(cx, want.order)
    }

    #[inline]
    fn give(&mut self, _: &mut FrameTable, cx: &mut Cx<'_>, block: Block, _: (MigrateType, ListEnd), _: &Variant) {
        self.free(cx, block.pfn, block.order);
    }

    fn take_at(&mut self, _: &mut FrameTable, cx: &mut Cx<'_>, block: Block, _: &Variant) -> bool {
        Self::take_at(self, cx, block.pfn, block.order)
    }

    fn drain(&mut self, _: &mut FrameTable, cx: &mut Cx<'_>, _: &Variant) {
        Self::drain(self, cx);
    }

    fn max_order(&self) -> Order {
        Self::MAX_ORDER
    }

    fn free_frames(&self) -> u64 {
        Self::free_frames(self)
    }

    /// # Panics
    /// When the blocks of one type are asked for: there are no types.
    fn free_blocks(&self, order: Order, list: Option<MigrateType>) -> u64 {
        assert!(list.is_none(), "LLFree has no migrate types");
        self.free_blocks_of(order)
    }

    fn is_free(&self, _: &FrameTable, pfn: Pfn) -> bool {
        Self::is_free(self, pfn)
    }

    fn visit_free(&self, _: &FrameTable, mut visit: impl FnMut(Block)) {
        Self::visit_free(self, |pfn, order| visit(Block { pfn, order }));
    }

    fn check(&self, _: &FrameTable) -> Result<(), String> {
        Self::check(self)
    }
}
