//! Linux: none; the functions of mm/page_alloc.c (v6.1) that the rest of the kernel calls for a zone.
//! Differs: Linux has one allocator, and no name for what callers expect of it.
//!
//! Two allocators of a zone's frames can stand behind [`FrameAllocator`]: Linux's free lists with its per-CPU lists
//! (`of_zone.rs`), and LLFree (`of_llfree.rs`). Callers are generic over it, so that a call costs nothing; what only one of the
//! two has is said by [`Offers`], and is not asked of the other.

mod of_llfree;
mod of_zone;

use rules::{
    gfp::Urgency,
    variant::{ListEnd, Variant},
};
use units::{Order, Pfn};

use crate::{buddy::Block, cx::Cx, fallback::Want, frame::FrameTable, pageblock::MigrateType};

/// Abilities that an allocator may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Free frames are grouped by the type of their pageblock, and requests of a type fall back to others.
    pub migrate_types: bool,
    /// Frames that a CPU frees stay on lists of its own, and are not counted as free.
    pub cpu_lists: bool,
    /// Free blocks are marked in the frame table, so that compaction's free scanner finds them.
    pub marked_blocks: bool,
}

/// An allocator of the frames of one zone. The step's CPU acts; the caller says in the frame table what a block is that it got.
pub trait FrameAllocator {
    /// The abilities of this allocator.
    const OFFERS: Offers;

    /// Allocates a block. `end`: of the CPU's list that it comes from, where there is one.
    fn take(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        request: (Want, ListEnd),
        urgency: Urgency,
        rules: &Variant,
    ) -> Option<Pfn>;

    /// Frees a block of a pageblock of this type.
    fn give(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        to: (MigrateType, ListEnd),
        rules: &Variant,
    );

    /// Allocates a given block, for a caller that needs the frames of one place; false, and nothing happens, where part of it is
    /// not free, or not at this moment.
    fn take_at(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block, rules: &Variant) -> bool;

    /// Gives back all that CPUs keep for themselves.
    fn drain(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, rules: &Variant);

    /// The largest order.
    fn max_order(&self) -> Order;

    /// Free frames, but for those that CPUs keep.
    fn free_frames(&self) -> u64;

    /// Free blocks of an order that are part of no larger one; of one type, or of all.
    fn free_blocks(&self, order: Order, list: Option<MigrateType>) -> u64;

    /// Is a frame part of a free block?
    fn is_free(&self, frames: &FrameTable, pfn: Pfn) -> bool;

    /// Goes through the free blocks, in an order that means nothing.
    fn visit_free(&self, frames: &FrameTable, visit: impl FnMut(Block));

    /// Walks all that the allocator knows of its frames.
    ///
    /// # Errors
    /// The first contradiction.
    fn check(&self, frames: &FrameTable) -> Result<(), String>;
}

#[cfg(test)]
mod tests;
