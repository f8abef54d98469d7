//! Linux: none.
//! Differs: pageblocks with frames whose state has changed, for maps of memory over time.

use units::{Order, Pfn};

use super::FrameTable;

impl FrameTable {
    /// Notes from now on the pageblocks with frames whose state changes. At first all pageblocks count as changed.
    pub fn watch(&mut self) {
        self.touched = vec![true; self.block_state.len()];
    }

    /// Whether the state of any frame of this pageblock has changed since the last call; true if changes are not noted.
    pub fn take_touched(&mut self, block: u32) -> bool {
        self.touched.get_mut(block as usize).is_none_or(std::mem::take)
    }

    /// Notes that the block of `order` at `pfn` changes its state. If changes are not noted this is one comparison.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "on the fast path of every allocation")]
    pub(super) fn touch(&mut self, pfn: Pfn, order: Order) {
        if !self.touched.is_empty() {
            self.note(pfn, order);
        }
    }

    #[inline(never)]
    fn note(&mut self, pfn: Pfn, order: Order) {
        let pageblocks = (order.frames() >> self.blocks.order().0).max(1);
        let first = self.blocks.index(pfn);
        self.touched[first..first + pageblocks as usize].fill(true);
    }
}
