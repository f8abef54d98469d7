//! Linux: the branches for the page cache of shrink_folio_list() in mm/vmscan.c, pageout() for ext4 (v6.1).
//! Differs: pages whose block is not allocated yet are never written here, as ext4 refuses to; nor are those of the block device.
//!
//! The questions of reclaim to the page cache, and nothing else.

use memory::{cx::Cx, event::Event, primitive};
use units::Pfn;

use super::{Reclaimer, ScanControl, active::Uses, folio::Tally};
use crate::{
    Mm, Spaces,
    file::page_cache::{Marks, PageFlag},
    space::{page_table::Level, spaces::Entry},
};

/// Obstacles between a file's folio and the free lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Nothing: the disk has it.
    Clean,
    /// The disk does not.
    Dirty,
    /// The folio is being written.
    Writeback,
    /// The folio is in no file any more, and about to be freed.
    Gone,
}

impl Mm {
    /// Is the folio dirty, or being written (`folio_check_dirty_writeback`)?
    pub(super) fn file_state(&self, head: Pfn) -> FileState {
        self.cache.find(&self.memory.frames, head).map_or(FileState::Gone, |(_, marks)| state_of(marks))
    }

    /// The state of a file's folio when reclaim meets it, before it decides anything: the meeting is counted.
    pub(super) fn note_file_state(&self, head: Pfn, tally: &mut Tally) -> FileState {
        let Some((_, marks)) = self.cache.find(&self.memory.frames, head) else { return FileState::Gone };
        let [dirty, writeback, reclaim] =
            [PageFlag::Dirty, PageFlag::Writeback, PageFlag::Reclaim].map(|flag| marks.has(flag));
        tally.met.dirty += u64::from(dirty || writeback);
        tally.met.unqueued_dirty += u64::from(dirty && !writeback);
        tally.met.congested += u64::from(writeback && reclaim);
        state_of(marks)
    }

    /// A folio that is being written: it goes as soon as that ends. Kswapd is told when it meets it again.
    pub(super) fn meet_file_writeback(&mut self, sc: &ScanControl, head: Pfn, tally: &mut Tally) {
        let at = self.cache.place_of(&self.memory.frames, head).expect("it is being written");
        if sc.by == Reclaimer::Kswapd && self.cache.has(at, PageFlag::Reclaim) && sc.meets_writeback {
            tally.met.immediate += 1;
        } else {
            self.cache.mark(at, PageFlag::Reclaim, true);
            tally.met.writeback += 1;
        }
    }

    /// A dirty folio: the flusher writes it. Says whether it is to be kept out of the way until then, as opposed to the file
    /// system's refusal.
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

    /// The entries that map the folio, and those of them through which it was used; makes them unused.
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

    /// Takes a clean folio without mappings out of the page cache, which keeps a shadow of it (`__remove_mapping`). From then
    /// on it is the caller's to free.
    pub(super) fn remove_file_folio(&mut self, cx: &mut Cx, head: Pfn) {
        let shadow = self.workingset_eviction(head);
        self.remove_page(cx, head, Some(shadow));
    }

    /// A folio was on an active list, and is not any more (`folio_set_workingset`).
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
