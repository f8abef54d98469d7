//! Linux: none; a zone whose frames LLFree allocates (rule `allocator`).
//! Differs: no migrate types and so no fallback, no lists of CPUs, no HIGHATOMIC reserve; nothing is compacted or reported.
//!
//! The zone's `buddy` counts the free frames, so that watermarks are asked as ever; of blocks of more than one frame a watermark
//! says nothing, as LLFree has no lists: whether there is one shows when a request takes it.

use rules::variant::Variant;
use units::{Order, PageAllocator, Pfn};

use crate::{buddy::Block, cx::Cx, frame::FrameTable, llfree::LlFree, zone_state::ZoneState};

impl ZoneState {
    /// Whether the zone's frames are LLFree's.
    #[inline]
    pub fn is_llfree(&self) -> bool {
        self.llfree.is_some()
    }

    /// Hands the zone over to LLFree before it gets its frames, if the rules say so.
    pub(crate) fn choose_allocator(&mut self, rules: &Variant) {
        if rules.allocator == PageAllocator::Llfree {
            let cpus = u32::try_from(self.pcps.len()).expect("fewer than 2^32 CPUs");
            self.llfree = Some(Box::new(LlFree::new(self.start, self.end, cpus)));
            self.buddy.counts_for_another = true;
            self.pcps.iter_mut().for_each(|pcp| pcp.never_keep());
        }
    }

    /// Gives LLFree the zone's managed frames at boot.
    pub(crate) fn release_to_llfree(&mut self, frames: &mut FrameTable, start: Pfn, end: Pfn) {
        let all = self.llfree.as_mut().expect("the zone is LLFree's");
        all.release(start, end);
        self.buddy.count_for_another(all.free_frames());
        for pfn in (start.0..end.0).map(Pfn) {
            frames.free_each(pfn, Order::BASE);
        }
    }

    /// Takes a block from LLFree.
    pub(crate) fn take_from_llfree(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, order: Order) -> Option<Pfn> {
        let all = self.llfree.as_mut().expect("the zone is LLFree's");
        let pfn = all.alloc(cx, order)?;
        self.buddy.count_for_another(all.free_frames());
        frames.take_each(pfn, order);
        Some(pfn)
    }

    /// Gives a block back to LLFree.
    pub(crate) fn give_to_llfree(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block) {
        let all = self.llfree.as_mut().expect("the zone is LLFree's");
        all.free(cx, block.pfn, block.order);
        self.buddy.count_for_another(all.free_frames());
        self.buddy.scanned = 0;
        frames.free_each(block.pfn, block.order);
    }
}

#[cfg(test)]
mod tests;
