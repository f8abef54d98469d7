//! Linux: shrink_active_list() in mm/vmscan.c, folio_referenced() in mm/rmap.c (v4.1, v5.9 to v6.1).
//! Differs: no locked pages (`VM_LOCKED`).

use memory::{
    cx::Cx,
    event::Event,
    frame::{FrameFlag, Held},
    lru_kind::LruKind,
    primitive,
};
use units::Pfn;

use crate::{
    Mm, Spaces,
    folio::lru::Taken,
    reclaim::ScanControl,
    space::{page_table::Level, spaces::Entry},
};

/// Recent accesses to a folio through page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// Number of entries that map the folio.
    pub(super) found: u32,
    /// Number of entries with the accessed bit set.
    pub(super) used: u32,
    /// Such an entry belongs to a program's text.
    pub(super) is_executed: bool,
}

impl Mm {
    /// Counts the entries with the accessed bit set, and clears the bits.
    pub(super) fn test_and_clear_used(&mut self, spaces: &mut Spaces, cx: &mut Cx, head: Pfn) -> Uses {
        if self.memory.frames.is_file(head) {
            return self.file_uses(spaces, cx, head);
        }
        let mut used = 0;
        let found = spaces.visit_mappings(&self.memory.frames, head, |_, space, at| match at {
            Entry::Base(table, vpn) => {
                let pte = &mut space.tables.ptes_mut(table)[Level::Pte.index(vpn)];
                used += u32::from(pte.is_accessed());
                *pte = pte.old();
            }
            Entry::Huge(slot) => used += u32::from(space.tables.clear_huge_used(slot)),
        });
        primitive::scan_ptes(cx, found.into());
        Uses { found, used, is_executed: false }
    }

    /// Moves some folios of an active list to the inactive one; used folios of programs' text stay.
    pub(crate) fn shrink_active_list(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        sc: &ScanControl,
        (lruvec, kind): (usize, LruKind),
        most: u64,
    ) {
        self.lru_add_drain(cx);
        let mut taken = Taken::default();
        let (met, took) = self.isolate_folios(cx, (lruvec, kind), most, sc.highest, &mut taken);
        cx.count(Event::Pgrefill, met);
        primitive::scan_folios(cx, taken.as_slice().len() as u64);
        let (mut deactivated, mut rotated) = (0, 0);
        for Held { pfn: head, order } in taken.iter() {
            let uses = self.test_and_clear_used(spaces, cx, head);
            rotated += if uses.used > 0 { u64::from(order.frames()) } else { 0 };
            if kind.is_file() && uses.used > 0 && uses.is_executed {
                continue;
            }
            self.memory.frames.mark(head, FrameFlag::Active, false);
            if kind.is_file() {
                self.note_file_workingset(head);
            } else {
                self.swap.set_workingset(head);
            }
            deactivated += u64::from(order.frames());
        }
        let lost = self.put_back_folios(cx, lruvec, &taken);
        assert!(lost.is_empty(), "nobody else has run meanwhile");
        cx.count(Event::Pgdeactivate, deactivated);
        let recent = &mut self.lru.lruvec_mut(lruvec).recent[usize::from(kind.is_file())];
        (recent.scanned, recent.rotated) = (recent.scanned + took, recent.rotated + rotated);
        self.note_zone_scan(lruvec, met);
    }
}
