//! Linux: bio_alloc_bioset(), bvec_alloc() and bio_put() in block/bio.c; io_submit_init_bio() in fs/ext4/page-io.c,
//! ext4_mpage_readpages() in fs/ext4/readpage.c, submit_bh() in fs/buffer.c, iomap_alloc_ioend() in fs/iomap/buffered-io.c,
//! xfs_buf_ioapply_map() in fs/xfs/xfs_buf.c (v6.1; v5.10 has the same sizes under other names).
//! Differs: a bio is allocated when its first page is sent, one that reads gets its vector with the second page; the mempool's
//! reserve never runs out; a bio ends with its request, and nothing waits for a workqueue (`ext4_end_io_rsv_work`).
//!
//! Pages on their way to a disk are listed by a bio: an unmovable object, and, for more than four pages, a vector of 16 bytes
//! per page, also unmovable. Writeback of files takes the largest vector, a page in slabs of order 3; a block of metadata has a
//! bio of its own. Bios come and go with the disk's queue, and are allocated by tasks that must not wait for memory.

use memory::{cx::Cx, slab::Cache};

use super::{
    InodeId,
    dirty::{LOG, METADATA},
};
use crate::Mm;

impl Mm {
    /// Allocates the bios for pages that were sent, in a new request or in the last one, as far as there is memory.
    pub(super) fn alloc_bios(
        &mut self,
        cx: &mut Cx,
        id: InodeId,
        (index, pages): (u64, u32),
        is_write: bool,
        is_new: bool,
    ) {
        let mut bios = if is_new { Vec::new() } else { self.cache.bios.pop_back().unwrap_or_default() };
        let (is_log, is_xfs) = (index >= LOG, self.cache.is_xfs());
        let first = u32::from(is_new);
        let (count, vector) = if self.cache.ext4.is_own(id) || (is_log && !is_xfs) {
            (pages, None)
        } else if is_log {
            // The log of XFS has bios of its own; the bio of a buffer has room for its pages.
            (if index >= METADATA { first } else { 0 }, None)
        } else if is_write {
            (first, is_new.then_some(Cache::BiovecMax))
        } else {
            (first, (bios.len() == 1 && !is_new).then_some(Cache::Biovec64))
        };
        let wanted = std::iter::repeat_n(Cache::Bio, count as usize).chain(vector);
        for cache in wanted {
            bios.extend(self.memory.alloc_object(cx, cache));
        }
        self.cache.bios.push_back(bios);
    }

    /// Frees the bios of the disk's oldest request.
    pub(super) fn free_bios(&mut self, cx: &mut Cx) {
        for object in self.cache.bios.pop_front().into_iter().flatten() {
            self.memory.free_object(cx, object);
        }
    }
}
