//! Linux: do_munmap() in mm/mmap.c, unmap_vmas() in mm/memory.c, zap_huge_pmd() in mm/huge_memory.c (v6.1).
//! Differs: base pages go in runs of at most 32, so that a step is short.

use units::{Errno, Time, Vpn};

use crate::{
    Mm,
    address_space::{AddressSpace, EVERYTHING},
    cost::Cx,
    mmu_gather::MmuGather,
    page_table::{Pmd, PmdSlot, TableId},
    primitive,
    pte::Pte,
    step::Step,
    vma::PageRange,
};

/// Base pages that one step looks at before it asks for the time.
const RUN: u64 = 32;

/// Unmapping a range: the VMAs first, so that nobody faults any more; then pages; then page tables.
#[derive(Clone, Debug)]
pub struct Unmap {
    range: PageRange,
    phase: Phase,
    gather: MmuGather,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Cut the VMAs at both ends and take out those between.
    Detach,
    /// Unmap pages from here on.
    Zap { from: Vpn },
    /// Flush and free what was gathered, then free the tables that cover nothing else.
    Tables,
}

impl Unmap {
    /// Unmaps `range`. The caller holds the mmap lock for write from the first step on.
    pub fn new(range: PageRange) -> Self {
        Self { range, phase: Phase::Detach, gather: MmuGather::default() }
    }

    /// Goes on until `horizon`, at least by one run of pages.
    pub fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        horizon: Time,
    ) -> Step<Result<(), Errno>> {
        if let Phase::Detach = self.phase {
            if self.range.pages() == 0 {
                return Step::Done(Err(Errno::INVAL));
            }
            match self.detach(mm, space, cx) {
                Ok(None) => return Step::Done(Ok(())),
                Ok(Some(removed)) => self.range = removed,
                Err(error) => return Step::Done(Err(error)),
            }
            // `unmap_region` and `exit_mmap` begin with this.
            mm.lru_add_drain(cx);
            self.phase = Phase::Zap { from: self.range.start };
        }
        if let Phase::Zap { from } = self.phase {
            if let Some(from) = self.zap(mm, space, cx, from, horizon) {
                self.phase = Phase::Zap { from };
                return Step::More;
            }
            self.phase = Phase::Tables;
            if cx.now() >= horizon {
                return Step::More;
            }
        }
        let gap = space.vmas.gap_around(self.range);
        self.gather.finish(mm, cx);
        space.tables.free_tables(mm, cx, self.range, gap);
        Step::Done(Ok(()))
    }

    /// Frees what the operation holds; what it has detached stays to be unmapped by [`AddressSpace::exit`].
    pub fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        self.gather.finish(mm, cx);
    }

    /// From the first to the last page that was mapped; at the end of a process whatever its tables hold.
    fn detach(&self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Result<Option<PageRange>, Errno> {
        space.split_vma(mm, cx, self.range.start)?;
        space.split_vma(mm, cx, self.range.end)?;
        let removed = space.vmas.remove(self.range);
        for _ in &removed {
            primitive::update_vma(cx);
        }
        if self.range == EVERYTHING {
            return Ok(Some(EVERYTHING));
        }
        let (Some(first), Some(last)) = (removed.first(), removed.last()) else { return Ok(None) };
        Ok(Some(PageRange { start: first.start, end: last.end() }))
    }

    /// Unmaps pages until the horizon; where to go on, or nothing at the end.
    fn zap(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, from: Vpn, horizon: Time) -> Option<Vpn> {
        let mut rest = PageRange { start: from, end: self.range.end };
        // Bound: each turn passes a run of pages.
        while let Some((part, slot)) = space.tables.next_pmd(rest) {
            match space.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(huge) => {
                    assert_eq!(part.pages(), AddressSpace::HUGE_PAGES, "a cut huge page was split when its VMA was");
                    self.zap_huge(mm, space, cx, slot, huge);
                }
                Pmd::Table(table) => {
                    rest.start = self.zap_table(mm, space, cx, table, part, horizon);
                    if rest.start < part.end {
                        return Some(rest.start);
                    }
                }
            }
            rest.start = part.end;
            if cx.now() >= horizon {
                return Some(rest.start);
            }
        }
        None
    }

    /// Unmaps base pages of one table until the horizon; says where it stopped.
    fn zap_table(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        table: TableId,
        part: PageRange,
        horizon: Time,
    ) -> Vpn {
        let mut from = part.start;
        while from < part.end {
            let run = PageRange { start: from, end: from.plus(RUN).min(part.end) };
            self.zap_run(mm, space, cx, table, run);
            from = run.end;
            if cx.now() >= horizon {
                break;
            }
        }
        from
    }

    fn zap_run(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, table: TableId, run: PageRange) {
        primitive::scan_ptes(cx, run.pages());
        let mut unmapped = 0;
        let mut folios = 0;
        let first = usize::try_from(run.start.0 % AddressSpace::HUGE_PAGES).expect("below 512");
        let ptes = &mut space.tables.ptes_mut(table)[first..][..usize::try_from(run.pages()).expect("at most 512")];
        for pte in ptes.iter_mut().filter(|pte| pte.is_present()) {
            let was = std::mem::take(pte);
            unmapped += 1;
            if was.is_zero_page() {
                continue;
            }
            folios += 1;
            if let Some(folio) = mm.unmap_base(cx, was.pfn()) {
                self.gather.take(mm, cx, folio);
            }
        }
        if unmapped > 0 {
            primitive::write_ptes(cx, unmapped);
            self.gather.note_unmapped();
            space.rss -= folios;
        }
    }

    fn zap_huge(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, slot: PmdSlot, huge: Pte) {
        primitive::scan_ptes(cx, 1);
        space.tables.set_pmd(cx, slot, Pte::NONE);
        self.gather.note_unmapped();
        let deposit = space.tables.withdraw(slot);
        space.tables.free_pte_table(mm, cx, deposit);
        if !huge.is_zero_page() {
            space.rss -= AddressSpace::HUGE_PAGES;
            if let Some(folio) = mm.unmap_huge(cx, huge.pfn()) {
                self.gather.take(mm, cx, folio);
            }
        }
    }
}
