//! Linux: folio_mark_dirty(), folio_clear_dirty_for_io(), folio_end_writeback() in mm/page-writeback.c and mm/filemap.c,
//! mpage_prepare_extent_to_map() and ext4_finish_bio() in fs/ext4 (v6.1).
//! Differs: the interrupt of a page is handled by the next task that looks; a page that could not be written is clean, as in
//! ext4.

use memory::{
    cx::Cx,
    event::Event,
    frame::FrameFlag,
    primitive,
    step::{RUN, Wait},
};
use units::{NodeId, Order, Pfn, Time};

use super::{CachedPage, InodeId, Marks, PageFlag};
use crate::{
    Mm, Spaces,
    file::disk::Request,
    space::{page_table::Level, spaces::Entry},
};

/// Indices of requests for the log of XFS and for buffers of metadata, above the indices of any file's pages.
pub(super) const LOG: u64 = METADATA - (1 << 32);
pub(super) const METADATA: u64 = JOURNAL - METADATA_PAGES as u64;
pub(super) const METADATA_PAGES: u32 = 4;
/// Index of a request for a block of the journal.
pub(super) const JOURNAL: u64 = u64::MAX;

/// The result of sending a run of pages to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// This many pages were sent; the second number is the index to go on at.
    Some(u64, u64),
    /// The next dirty page is locked by another task.
    Locked(u64, Pfn),
    /// The disk's queue is full.
    Full(Wait),
    /// No page is dirty from the index on.
    None,
}

impl Mm {
    /// Promises a block of the disk to a page of a file that is not dirty, if it has none; false if the disk is full.
    pub(super) fn reserve_block(&mut self, id: InodeId, index: u64) -> bool {
        if self.cache.inode(id).blocks.has(index) {
            return true;
        }
        let has_room = self.cache.blocks_used < self.cache.disk.pages();
        self.cache.blocks_used += u64::from(has_room);
        has_room
    }

    /// Marks a page dirty for which a block is promised (`folio_mark_dirty`).
    pub(crate) fn set_page_dirty(&mut self, cx: &mut Cx, head: Pfn) {
        let ((id, index), marks) = self.cache.find(&self.memory.frames, head).expect("it is in the cache");
        if marks.has(PageFlag::Dirty) {
            return;
        }
        self.cache.mark((id, index), PageFlag::Dirty, true);
        self.account_dirtied(cx, id, head);
    }

    /// Counts a page of a file that has been marked dirty (`folio_account_dirtied`).
    pub(super) fn account_dirtied(&mut self, cx: &mut Cx, id: InodeId, head: Pfn) {
        let zone = self.zone_position(head);
        self.cache.counts[zone].dirty += 1;
        cx.count(Event::NrDirtied, 1);
        self.cache.balancing.dirtied += 1;
        if self.cache.enter_dirty(id, cx.now()) {
            self.arm_flusher(cx.now());
        }
        self.cache.note_dirtied(cx.control());
    }

    /// Clears the dirty mark of a page that is removed and need not be written (`folio_cancel_dirty`).
    pub(super) fn cancel_dirty(&mut self, (id, index): (InodeId, u64), head: Pfn) {
        self.cache.mark((id, index), PageFlag::Dirty, false);
        let zone = self.zone_position(head);
        self.cache.counts[zone].dirty -= 1;
        if !self.cache.inode(id).blocks.has(index) {
            self.cache.blocks_used -= 1;
        }
    }

    /// Sends dirty pages of a file that follow each other to the disk, at most a run, from an index on.
    pub(super) fn send_run(&mut self, spaces: &mut Spaces, cx: &mut Cx, id: InodeId, from: u64, most: u64) -> Sent {
        self.complete_disk_io(cx);
        if let Some(until) = self.cache.disk.full_until() {
            return Sent::Full(disk_wait(until));
        }
        let Some((first, head)) = self.cache.inode(id).mapping.next_dirty(&self.cache.nodes, from) else {
            return Sent::None;
        };
        if self.memory.frames.has(head, FrameFlag::Locked) {
            return Sent::Locked(first, head);
        }
        let mut pages = 0;
        // Bound: the pages of a run.
        while pages < RUN.min(most)
            && let Some(page) = self.cache.look_up((id, first + pages))
            && self.may_send(page)
        {
            self.begin_writeback(spaces, cx, (id, first + pages), page.head);
            pages += 1;
        }
        if pages == 0 {
            // The page is being written and was changed since: it waits for the next time.
            return Sent::Some(0, first + 1);
        }
        let count = u32::try_from(pages).expect("at most a run");
        let done = self.submit_request(cx, id, (first, count), true);
        self.cache.inode_mut(id).written_by = done;
        Sent::Some(pages, first + pages)
    }

    /// Whether the page of a file in this frame is dirty.
    pub(crate) fn is_page_dirty(&self, head: Pfn) -> bool {
        self.cache.find(&self.memory.frames, head).is_some_and(|(_, marks)| marks.has(PageFlag::Dirty))
    }

    fn may_send(&self, CachedPage { head, marks, .. }: CachedPage) -> bool {
        marks.has(PageFlag::Dirty)
            && !marks.has(PageFlag::Writeback)
            && !self.memory.frames.has(head, FrameFlag::Locked)
    }

    /// Marks a page as under writeback: a task that stores to it again makes it dirty again (`folio_clear_dirty_for_io`).
    fn begin_writeback(&mut self, spaces: &mut Spaces, cx: &mut Cx, (id, index): (InodeId, u64), head: Pfn) {
        if self.file_mappings(head) > 0 {
            self.make_clean(spaces, cx, head);
        }
        let zone = self.zone_position(head);
        let [writeback, dirty] = [PageFlag::Writeback, PageFlag::Dirty].map(|flag| Marks::NONE.with(flag));
        self.cache.remark((id, index), (writeback, dirty));
        self.cache.counts[zone].dirty -= 1;
        self.cache.counts[zone].writeback += 1;
        // The promised block is allocated.
        if self.cache.inode_mut(id).blocks.add(index) {
            self.cache.ext4.note_allocated();
        }
        if self.memory.frames.keeps_contents() {
            let content = self.memory.frames.content(head);
            self.cache.inode_mut(id).set_content(index, content);
        }
        primitive::write_page_back(cx);
    }

    /// Write-protects the entries of a page, so that stores fault (`folio_mkclean`).
    fn make_clean(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) {
        let places = self.file_places(head);
        let mut changed = 0;
        let found = spaces.visit_file_mappings(&places, head, |_, space, at| {
            let Entry::Base(table, vpn) = at else { unreachable!("files have base entries") };
            let pte = &mut space.tables.ptes_mut(table)[Level::Pte.index(vpn)];
            if pte.is_writable() || pte.is_dirty() {
                *pte = pte.cleaned();
                changed += 1;
            }
        });
        primitive::scan_ptes(cx, found.into());
        if changed > 0 {
            primitive::write_ptes(cx, changed);
            primitive::flush_tlb(cx);
        }
    }

    /// Sends a buffer of metadata to the disk, or reads it, in the name of a file; returns when that will be done. (Its
    /// indices are above every page index.)
    pub(super) fn submit_metadata(&mut self, cx: &mut Cx, id: InodeId, is_write: bool) -> Time {
        self.submit_request(cx, id, (METADATA, METADATA_PAGES), is_write)
    }

    /// Sends `pages` pages of the log to the disk; returns when they will be written.
    pub(super) fn submit_log(&mut self, cx: &mut Cx, pages: u64) -> Time {
        let mut done = cx.now();
        // Bound: the pages of a checkpoint, a run at a time.
        for from in (0..pages).step_by(usize::try_from(RUN).expect("a run is short")) {
            let count = u32::try_from(RUN.min(pages - from)).expect("at most a run");
            done = self.submit_request(cx, InodeId(0), (LOG + from, count), true);
        }
        done
    }

    /// Sends a request for pages that are marked for it (`submit_bio`); returns when it will be done. If the disk is memory
    /// it is done at once, and the marks are cleared.
    pub(super) fn submit_request(&mut self, cx: &mut Cx, id: InodeId, pages: (u64, u32), is_write: bool) -> Time {
        let before = self.cache.disk.requests();
        let done = self.cache.disk.submit(cx, id, pages, is_write);
        let is_new = self.cache.disk.requests() > before;
        self.alloc_bios(cx, id, pages, is_write, is_new);
        if self.cache.disk.is_memory() {
            self.complete_requests(cx);
        }
        done
    }

    /// Whether a request will be done by `at`.
    pub(crate) fn is_disk_io_due(&self, at: Time) -> bool {
        self.cache.disk.is_done(at)
    }

    /// Completes requests that the disk has done by now (`ext4_end_bio`, `mpage_end_io`).
    #[inline]
    pub(crate) fn complete_disk_io(&mut self, cx: &mut Cx) {
        if self.cache.disk.is_done(cx.now()) {
            self.complete_requests(cx);
        }
    }

    #[cold]
    fn complete_requests(&mut self, cx: &mut Cx) {
        // Bound: the requests that were sent.
        while let Some(request) = self.cache.disk.next_done(cx.now()) {
            self.free_bios(cx);
            for index in (0..u64::from(request.pages)).map(|n| request.index + n) {
                if request.is_write { self.end_write(cx, request, index) } else { self.end_read(cx, request, index) }
            }
        }
    }

    fn end_write(&mut self, cx: &mut Cx, request: Request<InodeId>, index: u64) {
        if index >= LOG && index != JOURNAL {
            return;
        }
        let at = (request.of, index);
        let page = self.cache.look_up(at).filter(|page| page.marks.has(PageFlag::Writeback));
        let Some(CachedPage { head, marks, .. }) = page else {
            // The request was for a block of the journal.
            self.cache.inode_mut(request.of).has_failed |= request.failed;
            return;
        };
        self.note_append(request.of, index);
        self.cache.mark(at, PageFlag::Writeback, false);
        let zone = self.zone_position(head);
        self.cache.counts[zone].writeback -= 1;
        cx.count(Event::NrWritten, 1);
        self.cache.balancing.written += 1;
        if request.failed {
            self.cache.inode_mut(request.of).has_failed = true;
            if self.memory.frames.keeps_contents() {
                self.cache.inode_mut(request.of).set_content(index, !0);
            }
        }
        if marks.has(PageFlag::Reclaim) {
            self.cache.mark(at, PageFlag::Reclaim, false);
            let is_idle = !self.memory.frames.has(head, FrameFlag::Locked) && !marks.has(PageFlag::Dirty);
            if is_idle {
                self.lru_rotate(cx, head);
            }
        }
    }

    fn end_read(&mut self, cx: &mut Cx, request: Request<InodeId>, index: u64) {
        let at = (request.of, index);
        if index >= LOG {
            return;
        }
        let head = self.cache.page(request.of, index).expect("a page that is read stays in the cache");
        self.cache.mark(at, PageFlag::Uptodate, !request.failed);
        self.unlock_folio(cx, head);
    }

    /// When the read of a page ends.
    pub(super) fn read_by(&self, at: (InodeId, u64)) -> Option<Time> {
        self.cache.disk.read_by(|of, index, pages| of == at.0 && (index..index + pages).contains(&at.1))
    }

    /// When the writeback of a file's page ends, if it is under way.
    pub(crate) fn written_by(&self, head: Pfn) -> Option<Time> {
        let at = self.cache.place_of(&self.memory.frames, head)?;
        self.cache.has(at, PageFlag::Writeback).then(|| self.cache.inode(at.0).written_by)
    }

    /// The wait for a page that another task has locked, or that is being read.
    pub(crate) fn wait_on_page(&mut self, head: Pfn) -> Wait {
        let reading = self.cache.place_of(&self.memory.frames, head).and_then(|at| self.read_by(at));
        reading.map_or_else(|| self.wait_on_folio(head), disk_wait)
    }

    /// Replaces a page of a file by its copy, with all marks (`folio_migrate_mapping`).
    pub(crate) fn replace_page(&mut self, cx: &mut Cx, from: Pfn, to: Pfn) {
        let (id, index) = self.cache.place_of(&self.memory.frames, from).expect("a locked page stays in its file");
        self.cache.replace((id, index), to);
        let [zone, other] = [from, to].map(|head| self.zone_position(head));
        let is_dirty = u64::from(self.cache.has((id, index), PageFlag::Dirty));
        (self.cache.counts[zone].pages, self.cache.counts[zone].dirty) =
            (self.cache.counts[zone].pages - 1, self.cache.counts[zone].dirty - is_dirty);
        (self.cache.counts[other].pages, self.cache.counts[other].dirty) =
            (self.cache.counts[other].pages + 1, self.cache.counts[other].dirty + is_dirty);
        primitive::file_pages(cx, 1);
    }

    /// Numbers of frames of files in all zones of a node, by state.
    pub(crate) fn node_file_counts(&self, node: NodeId) -> super::FileCounts {
        let its = self.memory.node(node).zones();
        its.fold(super::FileCounts::default(), |sum, zone| {
            let counts = self.cache.counts[zone];
            super::FileCounts {
                pages: sum.pages + counts.pages,
                mapped: sum.mapped + counts.mapped,
                dirty: sum.dirty + counts.dirty,
                writeback: sum.writeback + counts.writeback,
            }
        })
    }

    /// When `pages` more pages will have been written, if writes are under way.
    pub(crate) fn files_written_by(&self, pages: u64) -> Option<Time> {
        self.cache.disk.written_by(pages)
    }

    /// Number of writes under way to the disk, and from how many on it is congested.
    pub(crate) fn disk_congestion(&self) -> (u64, u64) {
        self.cache.disk.congestion()
    }

    /// Until when the disk has too many writes, if it has.
    pub(crate) fn disk_congested_until(&self) -> Option<Time> {
        self.cache.disk.congested_until()
    }

    /// Map count of a page of the cache.
    pub(crate) fn file_mappings(&self, head: Pfn) -> u32 {
        debug_assert_eq!(self.memory.frames.allocated(head), Some(Order::BASE), "files have base pages");
        self.mappings_of(head)
    }
}

/// The wait for the disk.
pub(super) fn disk_wait(until: Time) -> Wait {
    Wait::Io { until, cause: memory::cost::Cause::Disk }
}
