//! Linux: none.
//!
//! Words of frames that can be written as they are: for tests of the walks that are to notice it.

use units::Pfn;

use super::FrameTable;

impl FrameTable {
    /// State and links of one frame.
    pub fn raw_mut(&mut self, pfn: Pfn) -> (&mut u64, &mut u64) {
        (&mut self.state[pfn.0 as usize], &mut self.links[pfn.0 as usize])
    }

    /// State and links of the pageblock that holds a frame.
    pub fn raw_block_mut(&mut self, pfn: Pfn) -> (&mut u64, &mut u64) {
        let block = self.blocks.index(pfn);
        (&mut self.block_state[block], &mut self.block_links[block])
    }
}
