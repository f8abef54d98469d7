//! Linux: truncate_inode_pages_range() in mm/truncate.c, evict() in fs/inode.c, unmap_mapping_pages() in mm/memory.c (v6.1).
//! Differs: mappings of a page are removed just before the page; a page is never truncated in its middle.

use memory::{
    cx::Cx,
    primitive::{self, TlbFlush},
    step::{RUN, Step, Wait},
};
use units::{Bytes, Pfn};

use super::{InodeId, dirty::disk_wait};
use crate::{
    Mm, Spaces,
    folio::{lru::Run, pte::Pte},
    space::{page_table::Level, spaces::Entry},
};

impl Mm {
    /// Truncates some pages of a file, from byte `len` on; done when there are no more.
    pub(super) fn truncate_some(&mut self, spaces: &mut Spaces, cx: &mut Cx, id: InodeId, len: Bytes) -> Step<()> {
        let first = len.0.div_ceil(Bytes::PAGE.0);
        // Bound: the pages of a run.
        for _ in 0..RUN {
            let Some((_, head)) = self.cache.inode(id).mapping.next_folio(&self.cache.nodes, first) else { break };
            if self.file_mappings(head) == 0 {
                break;
            }
            self.unmap_page(spaces, cx, head, TlbFlush::Later);
            primitive::flush_tlb(cx);
            if self.file_mappings(head) > 0 {
                // A child that is being forked maps the page too, and is not found yet.
                return Step::Block(Wait::Until(cx.now() + units::Picos::from_micros(4000)));
            }
            if let Step::Block(wait) = self.cut_pages(cx, id, first, 1) {
                return Step::Block(wait);
            }
        }
        let cut = self.cut_pages(cx, id, first, RUN);
        if cut == Step::Done(()) {
            let inode = self.cache.inode_mut(id);
            inode.size = len.0;
            inode.cut_contents(first);
            let freed = inode.blocks.cut(first);
            self.cache.blocks_used -= freed;
        }
        cut
    }

    /// Removes some pages of an unused file without a name; done when the file is gone (`evict`).
    pub(super) fn evict_some(&mut self, cx: &mut Cx, id: InodeId) -> Step<()> {
        self.complete_disk_io(cx);
        let cut = self.cut_pages(cx, id, 0, RUN);
        if cut == Step::Done(()) {
            self.free_inode_objects(cx, id);
            self.cache.forget_inode(id);
        }
        cut
    }

    /// Takes up to `most` unmapped pages out of the cache, from index `first` on, and frees them. When no page is
    /// left, it drops the shadows of pages that were reclaimed.
    fn cut_pages(&mut self, cx: &mut Cx, id: InodeId, first: u64, most: u64) -> Step<()> {
        self.complete_disk_io(cx);
        let mut run = Run::EMPTY;
        let mut step = Step::More;
        // Bound: the pages asked for.
        for _ in 0..most {
            let Some((index, head)) = self.cache.inode(id).mapping.next_folio(&self.cache.nodes, first) else {
                self.cut_shadows(cx, id, first);
                step = Step::Done(());
                break;
            };
            if self.file_mappings(head) > 0 {
                break;
            }
            if let Some(wait) = self.wait_for_page((id, index), head) {
                step = Step::Block(wait);
                break;
            }
            if self.cache.has((id, index), super::PageFlag::Writeback) {
                let until = self.cache.inode(id).written_by.max(cx.now());
                step = Step::Block(disk_wait(until));
                break;
            }
            self.remove_page(cx, head, None);
            run.push(head);
        }
        self.put_run(cx, &mut run);
        step
    }

    pub(super) fn cut_shadows(&mut self, cx: &mut Cx, id: InodeId, first: u64) {
        // Bound: the shadows of the file.
        while let Some(index) = self.cache.inode(id).mapping.next_any(&self.cache.nodes, first) {
            let inode = self.cache.inodes[id.0 as usize].as_mut().expect("the file exists");
            inode.mapping.set(&mut self.cache.nodes, index, super::Slot::Empty);
        }
        self.free_tree_nodes(cx);
    }

    /// Removes all mappings of a page; a dirty entry makes the page dirty (`try_to_unmap`).
    pub(crate) fn unmap_page(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn, flush: TlbFlush) {
        let places = self.file_places(head);
        let mut is_dirty = false;
        let found = spaces.visit_file_mappings(&places, head, |id, space, at| {
            let Entry::Base(table, vpn) = at else { unreachable!("files have base entries") };
            let was = std::mem::replace(&mut space.tables.ptes_mut(table)[Level::Pte.index(vpn)], Pte::NONE);
            is_dirty |= was.is_dirty();
            space.rss -= 1;
            primitive::flush_entry(cx, id, flush);
        });
        primitive::walk_rmap(cx, 1);
        primitive::clear_ptes(cx, found.into());
        primitive::count_mappings(cx, found.into());
        for _ in 0..found {
            self.unmap_file_page(head);
        }
        if is_dirty {
            self.set_page_dirty(cx, head);
        }
    }
}
