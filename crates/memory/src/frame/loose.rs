//! Linux: none; free frames of LLFree, which has neither blocks nor lists: each frame says by itself that it is free.

use units::{Order, Pfn};

use super::{Frame, FrameTable, word::pack};
use crate::pageblock::MigrateType;

impl FrameTable {
    /// Frames of a block become free, each on its own.
    pub fn free_each(&mut self, pfn: Pfn, order: Order) {
        let free = Frame::Free { order: Order::BASE, list: MigrateType::Movable, reported: false };
        self.set_each(pfn, order, pack(free));
    }

    /// Free frames become a block of which nothing is known yet.
    pub fn take_each(&mut self, pfn: Pfn, order: Order) {
        self.set_each(pfn, order, 0);
    }

    fn set_each(&mut self, pfn: Pfn, order: Order, word: u64) {
        self.touch(pfn, order);
        let first = pfn.0 as usize;
        self.state[first..first + order.frames() as usize].fill(word);
    }
}
