//! Linux: do_munmap() in mm/mmap.c, unmap_vmas() in mm/memory.c, zap_huge_pmd() in mm/huge_memory.c (v6.1).
//! Differs: base pages and page tables go in runs of at most 32, so that a step is short.

use memory::{
    cx::Cx,
    frame::{FamilyId, Holdings},
    primitive,
    slab::Object,
    step::{RUN, Step},
};
use units::{Errno, Time, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::{AddressSpace, EVERYTHING},
        mmu_gather::{MmuGather, Room},
        page_table::{Level, Pmd, PmdSlot, TableId},
        vma::{FileMap, PageRange},
    },
};

/// Unmaps a range: first the VMAs, so that there are no more faults; then the pages; then the page tables.
#[derive(Clone, Debug)]
pub struct Unmap {
    range: PageRange,
    phase: Phase,
    gather: MmuGather,
    /// The objects of the removed VMAs, to be freed from the last.
    objects: Vec<Object>,
    /// Parts of files that the removed VMAs mapped.
    files: Vec<(FamilyId, FileMap)>,
    /// Only the pages are freed, and the VMAs stay (`MADV_DONTNEED`).
    keeps_vmas: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Split the VMAs at both ends of the range, and remove those inside.
    Detach,
    /// Unmap pages from this one on.
    Zap { from: Vpn },
    /// Everything is unmapped and freed: free the gather's own frames.
    Finish,
    /// Free the tables that cover nothing else, from this page on.
    Tables { from: Vpn },
    /// Free the objects of the removed VMAs.
    Vmas,
}

impl Unmap {
    /// Unmaps `range`. The caller holds the mmap lock for write from the first step on.
    pub fn new(range: PageRange) -> Self {
        Self {
            range,
            phase: Phase::Detach,
            gather: MmuGather::default(),
            objects: Vec::new(),
            files: Vec::new(),
            keeps_vmas: false,
        }
    }

    /// Frees the pages of `range`, and keeps its VMAs (`zap_page_range_single`). The caller holds the mmap lock for read.
    pub fn discard(range: PageRange) -> Self {
        Self { keeps_vmas: true, ..Self::new(range) }
    }

    /// Unmaps everything at the end of a process. [`AddressSpace::end`] does the rest.
    pub fn everything() -> Self {
        Self { gather: MmuGather::of_everything(), ..Self::new(EVERYTHING) }
    }

    /// Takes a step until `horizon`, at least one run of pages.
    pub fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        horizon: Time,
    ) -> Step<Result<(), Errno>> {
        if let Phase::Detach = self.phase
            && let Step::Done(result) = self.begin(mm, space, cx)
        {
            return Step::Done(result);
        }
        // Bound: each turn passes a run of pages, of folios or of tables.
        while !self.run(mm, space, cx, horizon) {
            if cx.is_over(horizon) {
                return Step::More;
            }
        }
        Step::Done(Ok(()))
    }

    /// The first step, for a caller that lets readers in after it: removes the VMAs, and unmaps nothing.
    pub fn begin(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Step<Result<(), Errno>> {
        if self.range.pages() == 0 {
            return Step::Done(Err(Errno::INVAL));
        }
        if self.keeps_vmas {
            for at in [self.range.start, self.range.end] {
                space.split_pmd_across(mm, cx, at);
            }
            mm.lru_add_drain(cx);
            self.phase = Phase::Zap { from: self.range.start };
            return Step::More;
        }
        match self.detach(mm, space, cx) {
            Ok(None) => return Step::Done(Ok(())),
            Ok(Some(removed)) => self.range = removed,
            Err(error) => return Step::Done(Err(error)),
        }
        // `unmap_region` and `exit_mmap` drain this CPU's batch first.
        mm.lru_add_drain(cx);
        self.phase = Phase::Zap { from: self.range.start };
        Step::More
    }

    /// Does one run, or more before the horizon; returns whether it was the last.
    fn run(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> bool {
        if self.gather.is_flushing() {
            self.gather.release_run(mm, cx);
            return false;
        }
        match self.phase {
            Phase::Detach => unreachable!("the first step has left it behind"),
            Phase::Zap { from } => {
                self.phase = if let Some(from) = self.zap(mm, space, cx, from, horizon) {
                    Phase::Zap { from }
                } else {
                    if !self.keeps_vmas {
                        self.gather.note_tables(space.vmas.gap_around(self.range));
                    }
                    self.gather.begin_flush(cx);
                    Phase::Finish
                };
            }
            Phase::Finish => {
                self.gather.free_batches(mm, cx);
                if self.keeps_vmas {
                    return true;
                }
                self.phase = Phase::Tables { from: self.range.start };
            }
            Phase::Tables { from } => {
                let gap = space.vmas.gap_around(self.range);
                let rest = PageRange { start: from, end: self.range.end };
                let stopped = space.tables.free_tables(mm, cx, rest, gap, RUN);
                self.phase = stopped.map_or(Phase::Vmas, |from| Phase::Tables { from });
            }
            Phase::Vmas => {
                for _ in 0..RUN {
                    if let Some((family, map)) = self.files.pop() {
                        mm.unmap_file(cx, family, map);
                    }
                    let Some(object) = self.objects.pop() else { break };
                    mm.memory.free_object(cx, object);
                }
                return self.objects.is_empty() && self.files.is_empty();
            }
        }
        false
    }

    /// The frames that the operation holds between two steps.
    pub fn holdings(&self) -> Holdings {
        Holdings { objects: self.objects.clone(), ..self.gather.holdings() }
    }

    /// Whether there are pages left to unmap or to free.
    pub fn has_pages_left(&self) -> bool {
        matches!(self.phase, Phase::Zap { .. }) || self.gather.is_flushing()
    }

    /// Whether the VMAs are removed, and only their memory is left.
    pub fn is_detached(&self) -> bool {
        !matches!(self.phase, Phase::Detach)
    }

    /// Frees what the operation holds; pages of removed VMAs are left to [`AddressSpace::exit`].
    pub fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        self.gather.finish(mm, cx);
        while let Some(object) = self.objects.pop() {
            mm.memory.free_object(cx, object);
        }
        mm.orphan_maps.append(&mut self.files);
    }

    /// Removes the VMAs; returns the range from the first to the last page that was mapped, at the end of a process the range of
    /// its tables.
    fn detach(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Result<Option<PageRange>, Errno> {
        space.split_vma(mm, cx, self.range.start)?;
        space.split_vma(mm, cx, self.range.end)?;
        let removed = space.vmas.remove(self.range);
        for vma in removed.iter().rev() {
            primitive::update_vma(cx);
            self.objects.push(vma.object);
            self.files.extend(vma.file.map(|map| (space.family, map)));
        }
        if self.range == EVERYTHING {
            return Ok(Some(EVERYTHING));
        }
        let (Some(first), Some(last)) = (removed.first(), removed.last()) else { return Ok(None) };
        Ok(Some(PageRange { start: first.start, end: last.end() }))
    }

    /// Unmaps pages until the horizon, or until the gather is full, which begins a flush; returns the page to go on at, or none
    /// at the end.
    fn zap(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, from: Vpn, horizon: Time) -> Option<Vpn> {
        let mut rest = PageRange { start: from, end: self.range.end };
        // Bound: each turn passes a run of pages.
        while let Some((part, slot)) = space.tables.next_pmd(rest) {
            match space.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(huge) => {
                    assert_eq!(part.pages(), AddressSpace::HUGE_PAGES, "a cut huge page was split when its VMA was");
                    self.zap_huge(mm, space, cx, (slot, part), huge);
                }
                Pmd::Table(table) => {
                    rest.start = self.zap_table(mm, space, cx, table, part, horizon);
                    if rest.start < part.end {
                        return Some(rest.start);
                    }
                }
            }
            rest.start = part.end;
            if self.gather.is_flushing() || cx.is_over(horizon) {
                return Some(rest.start);
            }
        }
        None
    }

    /// Unmaps base pages of one table until the horizon; returns the page at which it stopped.
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
            from = self.zap_run(mm, space, cx, table, run);
            if self.gather.is_flushing() || cx.is_over(horizon) {
                break;
            }
        }
        from
    }

    /// Unmaps a run of base pages, or as many as the gather has room for; returns the page at which it stopped.
    fn zap_run(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, table: TableId, run: PageRange) -> Vpn {
        let mut stopped = run.end;
        let mut room = Room::Left;
        let (mut unmapped, mut moving) = (0, 0);
        let mut folios = 0;
        let first = usize::try_from(run.start.0 % AddressSpace::HUGE_PAGES).expect("below 512");
        let ptes = &mut space.tables.ptes_mut(table)[first..][..usize::try_from(run.pages()).expect("at most 512")];
        let cleared = present(ptes, run.start);
        for (vpn, pte) in (run.start.0..).zip(ptes).filter(|(_, pte)| **pte != Pte::NONE) {
            let was = std::mem::take(pte);
            unmapped += 1;
            if let Some(slot) = was.swap_slot() {
                mm.free_swap_entry(cx, slot);
                space.swapped -= 1;
                continue;
            }
            if was.is_zero_page() {
                continue;
            }
            folios += 1;
            if was.is_migration() {
                // The migration of the page finds one entry less to restore.
                moving += 1;
                continue;
            }
            if mm.memory.frames.is_file(was.pfn()) {
                mm.unmap_file_entry(cx, was);
                continue;
            }
            if let Some(folio) = mm.unmap_base(cx, was.pfn()) {
                room = self.gather.take(mm, cx, folio);
                if room == Room::None {
                    stopped = Vpn(vpn + 1);
                    break;
                }
            }
        }
        primitive::scan_ptes(cx, stopped.0 - run.start.0);
        if unmapped > 0 {
            primitive::clear_ptes(cx, unmapped);
            primitive::count_mappings(cx, folios);
            space.rss -= folios;
        }
        if unmapped > moving {
            self.gather.note_unmapped(PageRange { end: cleared.end.min(stopped), ..cleared }, Level::Pte);
        }
        if room == Room::None {
            self.gather.begin_flush(cx);
        }
        stopped
    }

    fn zap_huge(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (slot, part): (PmdSlot, PageRange),
        huge: Pte,
    ) {
        primitive::scan_ptes(cx, 1);
        space.tables.set_pmd(cx, slot, Pte::NONE);
        if !huge.is_migration() {
            self.gather.note_unmapped(part, Level::Pmd);
        }
        let deposit = space.tables.withdraw(slot);
        space.tables.free_pte_table(mm, cx, deposit);
        if !huge.is_zero_page() {
            space.rss -= AddressSpace::HUGE_PAGES;
            // The migration of the page finds one entry less to restore.
            if !huge.is_migration()
                && let Some(folio) = mm.unmap_huge(cx, huge.pfn())
                && self.gather.take(mm, cx, folio) == Room::None
            {
                self.gather.begin_flush(cx);
            }
        }
    }
}

/// The range from the first to the last present entry; empty if there is none.
fn present(ptes: &[Pte], start: Vpn) -> PageRange {
    let before = ptes.iter().take_while(|pte| !pte.is_present()).count();
    let behind = ptes[before..].iter().rev().take_while(|pte| !pte.is_present()).count();
    PageRange { start: start.plus(before as u64), end: start.plus((ptes.len() - behind) as u64) }
}
