//! Linux: none.
//! Differs: which pageblocks had frames that became something else, for whoever watches memory over time.

use units::{Order, Pfn};

use super::FrameTable;

impl FrameTable {
    /// From now on it is noted which pageblocks have frames that become something else. At first all of them have.
    pub fn watch(&mut self) {
        self.touched = vec![true; self.block_state.len()];
    }

    /// Whether a frame of the pageblock, which is named by its number, has become something else since this was last asked;
    /// true where nobody watches.
    pub fn take_touched(&mut self, block: u32) -> bool {
        self.touched.get_mut(block as usize).is_none_or(std::mem::take)
    }

    /// The block of `order` that starts here becomes something else. Where nobody watches it is one comparison.
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
