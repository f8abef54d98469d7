//! Linux: filemap_read() in mm/filemap.c, ondemand_readahead() and force_page_cache_ra() in mm/readahead.c, generic_fadvise()
//! in mm/fadvise.c (v6.1; generic_file_buffered_read() in v4.20).
//! Differs: a task that waits for the disk begins again with that page; the history in the cache (`try_context_readahead`) is
//! not used.

use memory::{alloc::NoMemory, cx::Cx, frame::FrameFlag, primitive, step::Step};
use units::{Bytes, Errno, Pfn, Time};

use super::{InodeId, PageFlag, dirty::disk_wait, read::Window, xfs::RETRY};
use crate::Mm;

/// One read(2).
#[derive(Clone, Debug)]
pub(super) struct Read {
    file: u32,
    id: InodeId,
    at: u64,
    end: u64,
    /// Pages that are being read for the present page.
    window: Option<Window>,
    /// Read-ahead was done, or was not possible: the page is read alone.
    is_alone: bool,
}

enum Next {
    /// Go on with the next page.
    Go,
    Pause(Step<Result<(), Errno>>),
}

impl Read {
    pub(super) fn new(file: u32, id: InodeId, offset: Bytes, len: Bytes) -> Self {
        Self { file, id, at: offset.0, end: offset.0 + len.0, window: None, is_alone: false }
    }

    /// Takes a step until `horizon`, at least one page. Nothing is read behind the end of the file.
    pub(super) fn step(&mut self, mm: &mut Mm, cx: &mut Cx, horizon: Time) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        // Bound: each turn reads a page.
        while self.at < self.end.min(mm.cache.inode(self.id).size) {
            match self.read_page(mm, cx) {
                Next::Go => {}
                Next::Pause(step) => return step,
            }
            if cx.is_over(horizon) {
                return Step::More;
            }
        }
        match mm.update_times(cx, self.id, false) {
            Ok(step) => step.map(Ok),
            // The call repeats it until there is memory (KM_SLEEP).
            Err(NoMemory::Asked) => Step::More,
            Err(NoMemory::Refused) => Step::Block(disk_wait(cx.now() + RETRY)),
        }
    }

    /// Gets the present page (`filemap_get_pages`), and copies the wanted bytes.
    fn read_page(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        let index = self.at / Bytes::PAGE.0;
        let at = (self.id, index);
        // Nearly always the page is in the cache and only has to be copied: one walk of the tree tells.
        let ready = if self.window.is_none() { mm.cache.ready_page(self.id, index) } else { None };
        if let Some(head) = ready.filter(|head| !mm.memory.frames.has(*head, FrameFlag::Locked)) {
            return self.copy(mm, cx, head);
        }
        if self.window.is_none() && !self.is_alone {
            let wanted = self.end.div_ceil(Bytes::PAGE.0) - index;
            self.window = if mm.cache.page(self.id, index).is_some() {
                mm.window_behind(self.file, at)
            } else {
                Some(mm.read_ahead_of(self.file).sync(index, wanted))
            };
        }
        if let Some(window) = &mut self.window
            && let Err(no) = mm.read_window(cx, self.id, window)
        {
            return Next::Pause(no.step());
        }
        let Some(head) = mm.cache.page(self.id, index) else { return self.read_alone(mm, cx, index) };
        if let Some(wait) = mm.wait_for_page(at, head) {
            return Next::Pause(Step::Block(wait));
        }
        if !mm.cache.has(at, PageFlag::Uptodate) {
            return self.read_alone(mm, cx, index);
        }
        self.copy(mm, cx, head)
    }

    /// Copies the wanted bytes of the present page (`copy_folio_to_iter`).
    fn copy(&mut self, mm: &mut Mm, cx: &mut Cx, head: Pfn) -> Next {
        let index = self.at / Bytes::PAGE.0;
        let end = self.end.min((index + 1) * Bytes::PAGE.0);
        primitive::read_file(cx, Bytes(end - self.at));
        if mm.memory.frames.keeps_contents() {
            mm.cache.balancing.seen = mm.memory.frames.content(head);
        }
        if mm.read_ahead_of(self.file).note(index) {
            mm.mark_page_accessed(cx, head);
        }
        (self.at, self.window, self.is_alone) = (end, None, false);
        Next::Go
    }

    /// Reads a page alone that could not be read ahead (`filemap_create_folio`, `filemap_read_folio`).
    fn read_alone(&mut self, mm: &mut Mm, cx: &mut Cx, index: u64) -> Next {
        if std::mem::replace(&mut self.is_alone, true) && mm.cache.page(self.id, index).is_some() {
            return Next::Pause(Step::Done(Err(Errno::IO)));
        }
        mm.read_one(cx, self.id, index).map_or_else(|no| Next::Pause(no.step()), |()| Next::Go)
    }
}

impl Mm {
    /// The pages to read ahead after a hit on a page with a read-ahead mark (`filemap_readahead`).
    fn window_behind(&mut self, file: u32, at: (InodeId, u64)) -> Option<Window> {
        if !self.cache.has(at, PageFlag::ReadAhead) {
            return None;
        }
        self.cache.mark(at, PageFlag::ReadAhead, false);
        let miss = self.next_miss(at.0, at.1);
        let ahead = self.read_ahead_of(file);
        if ahead.is_random() { None } else { ahead.ahead(at.1, || miss) }
    }
}
