//! Linux: none; a zone whose frames LLFree allocates (rule `allocator`).
//! Differs: no migrate types and so no fallback, no lists of CPUs, no HIGHATOMIC reserve; nothing is compacted or reported.
//!
//! The zone's `buddy` counts the free frames, so that watermarks are asked as ever; of blocks of more than one frame a watermark
//! says nothing, as LLFree has no lists: whether there is one shows when a request takes it.

use units::{Order, Pfn};

use crate::{
    buddy::{Block, Buddy},
    cx::Cx,
    frame::FrameTable,
    llfree::LlFree,
};

/// LLFree has the frames of a zone; the zone's `buddy` counts those that are free.
#[derive(Clone, Debug)]
pub(crate) struct ZoneLlFree(LlFree);

impl ZoneLlFree {
    /// An allocator for the frames of a zone, of which none is free yet.
    pub(crate) fn new(start: Pfn, end: Pfn, cpus: u32, buddy: &mut Buddy) -> Self {
        buddy.counts_for_another = true;
        Self(LlFree::new(start, end, cpus))
    }

    /// The allocator, to be looked at.
    pub(crate) fn allocator(&self) -> &LlFree {
        &self.0
    }

    /// Frees the zone's managed frames at boot.
    pub(crate) fn release(&mut self, buddy: &mut Buddy, frames: &mut FrameTable, start: Pfn, end: Pfn) {
        self.0.release(start, end);
        buddy.count_for_another(self.0.free_frames());
        for pfn in (start.0..end.0).map(Pfn) {
            frames.free_each(pfn, Order::BASE);
        }
    }

    /// Takes a block.
    pub(crate) fn take(
        &mut self,
        buddy: &mut Buddy,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        order: Order,
    ) -> Option<Pfn> {
        let pfn = self.0.alloc(cx, order)?;
        buddy.count_for_another(self.0.free_frames());
        frames.take_each(pfn, order);
        Some(pfn)
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, buddy: &mut Buddy, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block) {
        self.0.free(cx, block.pfn, block.order);
        buddy.count_for_another(self.0.free_frames());
        buddy.scanned = 0;
        frames.free_each(block.pfn, block.order);
    }
}

#[cfg(test)]
mod tests;
