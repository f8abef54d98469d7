//! Linux: none; the kernel keeps no account of what pages hold.
//! Differs: a word for each frame, for tests: whoever clears or copies a frame does so with its word.

use units::{Order, Pfn};

use super::FrameTable;

impl FrameTable {
    /// From now on each frame holds a word, and clears and copies move it: for tests. Before the first clear a frame
    /// holds `dirt`.
    pub fn keep_contents(&mut self, dirt: u64) {
        self.contents = vec![dirt; self.state.len()];
    }

    /// Are contents kept?
    #[inline]
    pub fn keeps_contents(&self) -> bool {
        !self.contents.is_empty()
    }

    /// The contents of a frame, where contents are kept.
    pub fn content(&self, pfn: Pfn) -> u64 {
        self.contents[pfn.0 as usize]
    }

    /// User code stores to a frame, where contents are kept.
    pub fn store(&mut self, pfn: Pfn, content: u64) {
        self.contents[pfn.0 as usize] = content;
    }

    #[inline]
    pub(crate) fn clear_contents(&mut self, pfn: Pfn, order: Order) {
        if self.keeps_contents() {
            self.contents[pfn.0 as usize..][..order.frames() as usize].fill(0);
        }
    }

    #[inline]
    pub(crate) fn copy_contents(&mut self, from: Pfn, to: Pfn, order: Order) {
        if self.keeps_contents() {
            let from = from.0 as usize;
            self.contents.copy_within(from..from + order.frames() as usize, to.0 as usize);
        }
    }
}
