//! Linux: drop_caches_sysctl_handler() in fs/drop_caches.c, invalidate_mapping_pages() in mm/truncate.c (v6.1).
//! Differs: pages in batches of other CPUs go too.

use memory::{
    cx::Cx,
    event::Event,
    frame::FrameFlag,
    step::{RUN, Step},
};
use units::Errno;

use super::{InodeId, PageFlag, Slot};
use crate::{Mm, folio::lru::Run};

/// Dropping clean pages, dentries and inodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropCaches {
    /// File and index from which on pages are still to be dropped; none when that is done.
    next: Option<(u32, u64)>,
}

impl DropCaches {
    pub(super) fn new() -> Self {
        Self { next: Some((0, 0)) }
    }

    pub(super) fn step(&mut self, mm: &mut Mm, cx: &mut Cx) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        if self.next == Some((0, 0)) {
            mm.lru_add_drain_all(cx);
            cx.count(Event::DropPagecache, 1);
        }
        let mut run = Run::EMPTY;
        // Bound: the pages of a run, or the files.
        for _ in 0..RUN {
            let Some((id, index)) = self.next else { break };
            self.next = mm.next_cached(id, index).map(|(id, index, head)| {
                if mm.may_invalidate(cx, (id, index), head) {
                    mm.remove_page(cx, head, None);
                    run.push(head);
                }
                (id.0, index + 1)
            });
        }
        mm.put_run(cx, &mut run);
        if self.next.is_some() {
            return Step::More;
        }
        mm.drop_shadows(cx);
        cx.count(Event::DropSlab, 1);
        mm.drop_slab(cx);
        Step::Done(Ok(()))
    }
}

impl Mm {
    /// The first page in the cache from an index of a file on, or of a later file.
    fn next_cached(&self, id: u32, from: u64) -> Option<(InodeId, u64, units::Pfn)> {
        let files = u32::try_from(self.cache.inodes.len()).expect("fewer than 2^32 files");
        (id..files).find_map(|at| {
            let inode = self.cache.inodes[at as usize].as_ref()?;
            let from = if at == id { from } else { 0 };
            let (index, head) = inode.mapping.next_folio(&self.cache.nodes, from)?;
            Some((InodeId(at), index, head))
        })
    }

    /// Drops the shadows of evicted pages, so that files count as never read (`invalidate_exceptional_entry`).
    fn drop_shadows(&mut self, cx: &mut Cx) {
        for inode in self.cache.inodes.iter_mut().flatten() {
            let mut from = 0;
            // Bound: the pages and shadows of the file.
            while let Some(index) = inode.mapping.next_any(&self.cache.nodes, from) {
                if let Slot::Shadow(_) = inode.mapping.get(&self.cache.nodes, index) {
                    inode.mapping.set(&mut self.cache.nodes, index, Slot::Empty);
                }
                from = index + 1;
            }
        }
        self.free_tree_nodes(cx);
    }

    /// Whether a page is clean and unused (`invalidate_inode_page`). The journal of ext4 gives up its reference if it
    /// can.
    pub(super) fn may_invalidate(&mut self, cx: &mut Cx, at: (InodeId, u64), head: units::Pfn) -> bool {
        let is_busy = self.memory.frames.has(head, FrameFlag::Locked) || self.file_mappings(head) > 0;
        let marks = self.cache.inode(at.0).mapping.marks_of(&self.cache.nodes, at.1, head);
        let is_clean = marks.is_some_and(|marks| !marks.has(PageFlag::Dirty) && !marks.has(PageFlag::Writeback));
        !is_busy && is_clean && !self.is_kept_by_journal(cx, head)
    }
}
