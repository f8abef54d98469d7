//! Linux: page_cache_ra_unbounded(), ondemand_readahead() and force_page_cache_ra() in mm/readahead.c, do_sync_mmap_readahead()
//! and do_async_mmap_readahead() in mm/filemap.c, ext4_mpage_readpages() (v6.1).
//! Differs: no huge or sequential VMAs; the history in the cache (`try_context_readahead`) is not used.

use std::ops::Range;

use memory::{alloc::NoMemory, cx::Cx, frame::FrameFlag, primitive};
use rules::gfp::AllocRequest;
use units::{Order, Pfn};

use super::{InodeId, PageFlag};
use crate::Mm;

/// The largest read-ahead window, in pages.
// VM_READAHEAD_PAGES, include/linux/mm.h (v6.1): 128 KiB.
const RA_PAGES: u64 = 32;
/// Number of misses from which on the pages around a fault are not read any more.
// MMAP_LOTSAMISS, mm/filemap.c (v6.1).
const LOTS_OF_MISSES: u32 = 100;

/// The read-ahead state of an open file (`struct file_ra_state`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    start: u64,
    size: u64,
    async_size: u64,
    mmap_miss: u32,
    /// The page that read(2) used last.
    last: Option<u64>,
    /// Only the pages asked for are read (`FMODE_RANDOM`).
    is_random: bool,
}

/// A read-ahead window: pages to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Pages that are still to be submitted.
    pages: Range<u64>,
    /// The page whose first use starts the next window (`PG_readahead`).
    mark: u64,
}

impl ReadAhead {
    /// The window around a page that is missing in a mapping.
    pub(super) fn around(&mut self, index: u64) -> Option<Window> {
        if self.mmap_miss < LOTS_OF_MISSES * 10 {
            self.mmap_miss += 1;
        }
        if self.mmap_miss > LOTS_OF_MISSES {
            return None;
        }
        self.start = index.saturating_sub(RA_PAGES / 2);
        (self.size, self.async_size) = (RA_PAGES, RA_PAGES / 4);
        Some(self.window())
    }

    /// Notes a hit on a page of a mapping.
    pub(super) fn hit(&mut self) {
        self.mmap_miss = self.mmap_miss.saturating_sub(1);
    }

    /// The next window, when a page with a read-ahead mark is used (`ondemand_readahead`). `miss`: the first index behind this
    /// page that is not in the cache.
    pub(super) fn ahead(&mut self, index: u64, miss: impl FnOnce() -> u64) -> Option<Window> {
        if index == self.start + self.size - self.async_size.min(self.size) || index == self.start + self.size {
            self.start += self.size;
            self.size = next_size(self.size);
        } else {
            let start = miss();
            if start - index > RA_PAGES {
                return None;
            }
            self.start = start;
            self.size = next_size(start - index + RA_PAGES);
        }
        self.async_size = self.size;
        Some(self.window())
    }

    /// The window for a page that is missing in read(2), which wants `wanted` pages from there on (`page_cache_sync_ra`).
    pub(super) fn sync(&mut self, index: u64, wanted: u64) -> Window {
        let just_these = Window { pages: index..index + wanted, mark: u64::MAX };
        if self.is_random {
            return just_these;
        }
        let expected = [self.start + self.size - self.async_size.min(self.size), self.start + self.size];
        if index > 0 && expected.contains(&index) {
            self.start += self.size;
            self.size = next_size(self.size);
            self.async_size = self.size;
            return self.window();
        }
        let follows = self.last.is_none_or(|last| index.checked_sub(last).is_some_and(|gap| gap <= 1));
        if index > 0 && wanted <= RA_PAGES && !follows {
            return just_these;
        }
        (self.start, self.size) = (index, first_size(wanted));
        self.async_size = if self.size > wanted { self.size - wanted } else { self.size };
        // A read that begins with the marked page reads the next window too.
        if self.size == self.async_size {
            let next = next_size(self.size);
            (self.async_size, self.size) = (next, self.size + next);
        }
        self.window()
    }

    /// Notes a page that read(2) uses; returns whether it differs from the last one.
    pub(super) fn note(&mut self, index: u64) -> bool {
        self.last.replace(index) != Some(index)
    }

    pub(super) fn is_random(&self) -> bool {
        self.is_random
    }

    /// `POSIX_FADV_RANDOM`.
    pub(super) fn set_random(&mut self) {
        self.is_random = true;
    }

    fn window(&self) -> Window {
        Window { pages: self.start..self.start + self.size, mark: self.start + self.size - self.async_size }
    }
}

/// `get_init_ra_size`.
fn first_size(wanted: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= RA_PAGES / 32 {
        size * 4
    } else if size <= RA_PAGES / 4 {
        size * 2
    } else {
        RA_PAGES
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64) -> u64 {
    if size < RA_PAGES / 16 {
        4 * size
    } else if size <= RA_PAGES / 2 {
        2 * size
    } else {
        RA_PAGES
    }
}

impl Mm {
    /// The read-ahead state of an open file.
    pub(super) fn read_ahead_of(&mut self, file: u32) -> &mut ReadAhead {
        &mut self.cache.open[file as usize].as_mut().expect("its user keeps it").read_ahead
    }

    /// The first index behind a page that is not in the cache (`page_cache_next_miss`), at most a window away.
    pub(super) fn next_miss(&self, id: InodeId, index: u64) -> u64 {
        let behind = index + 1..=index + RA_PAGES + 1;
        behind.into_iter().find(|at| self.cache.page(id, *at).is_none()).unwrap_or(index + RA_PAGES + 2)
    }

    /// Puts the pages of a window into the cache and submits their reads (`page_cache_ra_unbounded`). If memory is out, the
    /// window ends there without an error.
    pub(super) fn read_window(&mut self, cx: &mut Cx, id: InodeId, window: &mut Window) -> Result<(), NoMemory> {
        let end = window.pages.end.min(self.cache.inode(id).pages());
        // Bound: the pages of the window.
        while window.pages.start < end {
            let index = window.pages.start;
            if self.cache.page(id, index).is_none() {
                let request = AllocRequest { no_retry: true, ..self.page_cache_request(cx, false) };
                let head = match self.make_place(cx, id, index).and_then(|()| self.memory.alloc(cx, &request)) {
                    Ok(head) => head,
                    Err(NoMemory::Asked) => return Err(NoMemory::Asked),
                    Err(NoMemory::Refused) => {
                        // The window ends here.
                        window.pages.start = end;
                        return Ok(());
                    }
                };
                self.add_page(cx, (id, index), head, true);
                self.read_page(cx, (id, index), head);
                if index == window.mark {
                    self.cache.mark((id, index), PageFlag::ReadAhead, true);
                }
            }
            window.pages.start += 1;
        }
        Ok(())
    }

    /// Reads one page alone: it is in the cache but not up to date, or memory was short for it.
    pub(super) fn read_one(&mut self, cx: &mut Cx, id: InodeId, index: u64) -> Result<(), NoMemory> {
        let head = if let Some(head) = self.cache.page(id, index) {
            self.try_lock_folio(head);
            head
        } else {
            let request = self.page_cache_request(cx, false);
            self.make_place(cx, id, index)?;
            let head = self.memory.alloc(cx, &request)?;
            self.add_page(cx, (id, index), head, true);
            head
        };
        self.read_page(cx, (id, index), head);
        Ok(())
    }

    /// Submits the read of a locked page; a hole is zeroes, at once.
    fn read_page(&mut self, cx: &mut Cx, (id, index): (InodeId, u64), head: Pfn) {
        debug_assert!(self.memory.frames.has(head, FrameFlag::Locked), "a page is read under its lock");
        if self.cache.inode(id).blocks.has(index) {
            primitive::read_file_page(cx);
            self.fill_from_disk((id, index), head);
            self.submit_request(cx, id, (index, 1), false);
        } else {
            self.memory.clear(cx, head, Order::BASE);
            self.cache.mark((id, index), PageFlag::Uptodate, true);
            self.unlock_folio(cx, head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_on_and_on_is_read_ahead_of() {
        let mut ahead = ReadAhead::default();
        let first = ahead.around(0).unwrap();
        assert_eq!((first.pages, first.mark), (0..32, 24));
        let second = ahead.ahead(24, || unreachable!("as expected")).unwrap();
        assert_eq!((second.pages, second.mark), (32..64, 32));
        let third = ahead.ahead(32, || unreachable!("as expected")).unwrap();
        assert_eq!((third.pages, third.mark), (64..96, 64));
    }

    #[test]
    fn sequential_reads_are_read_ahead_from_the_start() {
        let mut ahead = ReadAhead::default();
        let first = ahead.sync(0, 1);
        assert_eq!((first.pages, first.mark), (0..4, 1));
        let second = ahead.ahead(1, || unreachable!("as expected")).unwrap();
        assert_eq!((second.pages, second.mark), (4..12, 4));
        // A page elsewhere, and the page behind it.
        ahead.note(7);
        assert_eq!(ahead.sync(100, 2).pages, 100..102);
        assert!(ahead.note(101) && !ahead.note(101));
        assert_eq!(ahead.sync(102, 1).pages, 102..106);
        ahead.set_random();
        assert_eq!(ahead.sync(0, 3).pages, 0..3);
    }

    #[test]
    fn who_misses_too_often_reads_alone() {
        let mut ahead = ReadAhead::default();
        let windows = (0..150).filter(|n| ahead.around(n * 1000).is_some()).count();
        assert_eq!(windows, 100);
        for _ in 0..60 {
            ahead.hit();
        }
        assert!(ahead.around(7).is_some());
    }
}
