//! Frames in pageblocks, counted by use.

use serde::{Deserialize, Serialize};

/// How much of memory cannot be moved, and over how many pageblocks that is scattered.
///
/// Unmovable memory is what neither migration nor page reclaim can take away: slabs (also of reclaimable caches), page tables,
/// and all else that the kernel has for itself. Movable memory is anonymous memory and the page cache. Frames on per-CPU lists
/// count as free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCensus {
    /// Pageblocks with frames that the page allocator manages.
    pub blocks: u64,
    /// Those frames.
    pub frames: u64,
    /// Frames that are free.
    pub free: u64,
    /// Frames in unmovable use.
    pub unmovable: u64,
    /// Page tables among them.
    pub page_tables: u64,
    /// Pageblocks with at least one frame in unmovable use.
    pub with_unmovable: u64,
    /// Pageblocks among those with at least one frame in movable use.
    pub mixed: u64,
}

impl BlockCensus {
    /// A part of something, in ten-thousandths.
    fn share(part: u64, whole: u64) -> u64 {
        (part * 10_000).checked_div(whole).unwrap_or(0)
    }

    /// Frames in unmovable use among all frames, in ten-thousandths.
    pub fn unmovable_share(&self) -> u64 {
        Self::share(self.unmovable, self.frames)
    }

    /// Pageblocks with frames in unmovable use among all pageblocks, in ten-thousandths.
    pub fn scattered_share(&self) -> u64 {
        Self::share(self.with_unmovable, self.blocks)
    }

    /// Pageblocks with frames of both kinds among all pageblocks, in ten-thousandths.
    pub fn mixed_share(&self) -> u64 {
        Self::share(self.mixed, self.blocks)
    }
}
