//! Linux: none; the kernel keeps no account of what pages hold.
//! Differs: one word for each frame, for tests. Clearing or copying a frame does the same to its word.

use units::{Order, Pfn};

use super::FrameTable;

impl FrameTable {
    /// Keeps a word for each frame from now on, which clears and copies move: for tests. Before the first clear a frame
    /// holds `dirt`.
    pub fn keep_contents(&mut self, dirt: u64) {
        self.contents = vec![dirt; self.state.len()];
    }

    /// Whether contents are kept.
    #[inline]
    pub fn keeps_contents(&self) -> bool {
        !self.contents.is_empty()
    }

    /// The word of a frame, if contents are kept.
    pub fn content(&self, pfn: Pfn) -> u64 {
        self.contents[pfn.0 as usize]
    }

    /// Stores to a frame by user code, if contents are kept.
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
