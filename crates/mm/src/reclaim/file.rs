//! Linux: the branches for the page cache of shrink_folio_list() in mm/vmscan.c, pageout() for ext4 (v6.1).
//! Differs: pages whose block is not allocated yet are never written here, as ext4 refuses to; pages of the block device are not
//! written either.
//!
//! The questions that reclaim asks the page cache.

use memory::{cx::Cx, event::Event, primitive};
use units::Pfn;

use super::{Reclaimer, ScanControl, active::Uses, folio::Tally};
use crate::{
    Mm, Spaces,
    file::page_cache::{Marks, PageFlag},
    space::{page_table::Level, spaces::Entry},
};

/// The obstacle between a file's folio and the free lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Nothing: the disk has its contents.
    Clean,
    /// The folio is dirty.
    Dirty,
    /// The folio is being written.
    Writeback,
    /// The folio has left its file, and is about to be freed.
    Gone,
}

impl Mm {
    /// The state of a file's folio (`folio_check_dirty_writeback`).
    pub(super) fn file_state(&self, head: Pfn) -> FileState {
        self.cache.find(&self.memory.frames, head).map_or(FileState::Gone, |(_, marks)| state_of(marks))
    }

    /// The state of a file's folio, which is counted as met by reclaim.
    pub(super) fn note_file_state(&self, head: Pfn, tally: &mut Tally) -> FileState {
        let Some((_, marks)) = self.cache.find(&self.memory.frames, head) else { return FileState::Gone };
        let [dirty, writeback, reclaim] =
            [PageFlag::Dirty, PageFlag::Writeback, PageFlag::Reclaim].map(|flag| marks.has(flag));
        tally.met.dirty += u64::from(dirty || writeback);
        tally.met.unqueued_dirty += u64::from(dirty && !writeback);
        tally.met.congested += u64::from(writeback && reclaim);
        state_of(marks)
    }

    /// Marks a folio under writeback so that it is freed when that ends; counts it if kswapd meets it again.
    pub(super) fn meet_file_writeback(&mut self, sc: &ScanControl, head: Pfn, tally: &mut Tally) {
        let at = self.cache.place_of(&self.memory.frames, head).expect("it is being written");
        if sc.by == Reclaimer::Kswapd && self.cache.has(at, PageFlag::Reclaim) && sc.meets_writeback {
            tally.met.immediate += 1;
        } else {
            self.cache.mark(at, PageFlag::Reclaim, true);
            tally.met.writeback += 1;
        }
    }

    /// Handles a dirty folio, which the flusher will write. Returns whether it is kept off the inactive list until then; else the
    /// file system refused to write it.
    pub(super) fn meet_file_dirty(&mut self, cx: &mut Cx, sc: &ScanControl, head: Pfn) -> bool {
        let at = self.cache.place_of(&self.memory.frames, head).expect("it is dirty");
        // Since 4.12 only what is met for the second time.
        let is_old = self.cache.has(at, PageFlag::Reclaim) || !self.memory.variant().reclaim_sets_dirty_aside;
        let may_write = sc.by == Reclaimer::Kswapd && is_old && sc.meets_dirty;
        if !may_write {
            cx.count(Event::NrVmscanImmediateReclaim, 1);
            self.cache.mark(at, PageFlag::Reclaim, true);
            return true;
        }
        if sc.may_write {
            // `ext4_writepage` makes it dirty again.
            cx.count(Event::NrVmscanWrite, 1);
            self.cache.mark(at, PageFlag::Reclaim, false);
        }
        false
    }

    /// Counts the entries that map a file's folio, and those with the accessed bit set, and clears the bits.
    pub(super) fn file_uses(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> Uses {
        if self.file_mappings(head) == 0 {
            return Uses::default();
        }
        let places = self.file_places(head);
        let mut used = 0;
        let found = spaces.visit_file_mappings(&places, head, |_, space, at| {
            let Entry::Base(table, vpn) = at else { unreachable!("files have base entries") };
            let pte = &mut space.tables.ptes_mut(table)[Level::Pte.index(vpn)];
            used += u32::from(pte.is_accessed());
            *pte = pte.old();
        });
        primitive::scan_ptes(cx, found.into());
        Uses { found, used, is_executed: false }
    }

    /// Takes a clean, unmapped folio out of the page cache, which keeps a shadow (`__remove_mapping`). The caller frees it.
    pub(super) fn remove_file_folio(&mut self, cx: &mut Cx, head: Pfn) {
        let shadow = self.workingset_eviction(head);
        self.remove_page(cx, head, Some(shadow));
    }

    /// Notes that a folio was on an active list before (`folio_set_workingset`).
    pub(super) fn note_file_workingset(&mut self, head: Pfn) {
        if let Some(at) = self.cache.place_of(&self.memory.frames, head) {
            self.cache.mark(at, PageFlag::Workingset, true);
        }
    }
}

fn state_of(marks: Marks) -> FileState {
    if marks.has(PageFlag::Writeback) {
        FileState::Writeback
    } else if marks.has(PageFlag::Dirty) {
        FileState::Dirty
    } else {
        FileState::Clean
    }
}
