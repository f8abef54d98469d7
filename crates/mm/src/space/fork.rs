//! Linux: dup_mmap() in kernel/fork.c, copy_page_range() in mm/memory.c (v6.1).
//! Differs: no pinned pages, so nothing is copied at once; fork waits for a page that is being migrated, where the kernel
//! copies the migration entry.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::Holdings,
    primitive,
    slab::Cache,
    step::{RUN, Step, Wait},
};
use units::{Errno, Time, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::{AddressSpace, EVERYTHING},
        page_table::{Pmd, TableId},
        unmap::Unmap,
        vma::PageRange,
    },
};

/// A fork's copy of an address space: the child maps the parent's frames, and neither may write them without a fault.
#[derive(Clone, Debug)]
pub struct Fork {
    child: Option<AddressSpace>,
    /// The parent's pages below this one are done.
    from: Vpn,
    /// End of the parent's VMA around `from`: the child has this VMA, and its pages are being copied.
    vma_end: Option<Vpn>,
    /// Memory is out: the child is being unmapped again.
    undo: Option<Unmap>,
}

/// The result of copying a part.
enum Part {
    /// A VMA or some pages were copied.
    Copied,
    /// Another task works on the next page.
    Waits(Wait),
    /// Everything is copied.
    None,
}

impl Fork {
    #[expect(clippy::new_without_default, reason = "an operation, not a value")]
    /// A copy that has not begun. The caller holds the parent's mmap lock for write from the first step on.
    pub fn new() -> Self {
        Self { child: None, from: Vpn(0), vma_end: None, undo: None }
    }

    /// Takes a step until `horizon`, at least one run of pages; `ENOMEM` if memory is out, after the child was undone.
    pub fn step(
        &mut self,
        mm: &mut Mm,
        parent: &mut AddressSpace,
        cx: &mut Cx,
        horizon: Time,
    ) -> Step<Result<AddressSpace, Errno>> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => match parent.related(mm, cx) {
                Ok(mut child) => {
                    if parent.khugepaged.is_some() {
                        mm.khugepaged_enter(&mut child);
                    }
                    child
                }
                Err(no) => return no.step(),
            },
        };
        if let Some(undo) = &mut self.undo {
            // The child has never run on a CPU.
            return match cx.on_unloaded(|cx| undo.step(mm, &mut child, cx, horizon)) {
                Step::Done(_) => {
                    child.end(mm, cx);
                    Step::Done(Err(Errno::NOMEM))
                }
                Step::More | Step::Block(_) => {
                    self.child = Some(child);
                    Step::More
                }
            };
        }
        // Bound: each turn passes a VMA of the parent, or the pages of one of its PMD entries.
        loop {
            match self.copy_some(mm, parent, &mut child, cx) {
                Ok(Part::Copied) => {}
                Ok(Part::Waits(wait)) => {
                    self.child = Some(child);
                    return Step::Block(wait);
                }
                Ok(Part::None) => {
                    primitive::flush_tlb(cx);
                    return Step::Done(Ok(child));
                }
                Err(NoMemory::Asked) => break,
                Err(NoMemory::Refused) => {
                    primitive::flush_tlb(cx);
                    self.undo = Some(Unmap::everything());
                    break;
                }
            }
            if cx.is_over(horizon) {
                break;
            }
        }
        self.child = Some(child);
        Step::More
    }

    /// Copies the next VMA (`dup_mmap`), or a run of pages of the last one (`copy_page_range`).
    fn copy_some(
        &mut self,
        mm: &mut Mm,
        parent: &mut AddressSpace,
        child: &mut AddressSpace,
        cx: &mut Cx,
    ) -> Result<Part, NoMemory> {
        let Some(end) = self.vma_end else {
            let rest = PageRange { start: self.from, end: EVERYTHING.end };
            let Some(vma) = parent.vmas.first_in(rest) else { return Ok(Part::None) };
            let object = mm.memory.alloc_object(cx, Cache::VmArea)?;
            child.vmas.inherit(&vma, object);
            if let Some(map) = vma.file {
                mm.map_file(child.family, map);
            }
            // Pages of a VMA without anonymous pages are faulted in by the child.
            (self.from, self.vma_end) =
                if vma.anon.is_some() { (vma.start, Some(vma.end())) } else { (vma.end(), None) };
            return Ok(Part::Copied);
        };
        let Some((mut part, slot)) = parent.tables.next_pmd(PageRange { start: self.from, end }) else {
            (self.from, self.vma_end) = (end, None);
            return Ok(Part::Copied);
        };
        match parent.tables.pmd(slot) {
            Pmd::None => {}
            Pmd::Huge(huge) if huge.is_migration() => return Ok(Part::Waits(mm.wait_on_migration(huge))),
            Pmd::Huge(_) => parent.share_huge(child, mm, cx, slot, part.start)?,
            Pmd::Table(table) => {
                part.end = part.end.min(part.start.plus(RUN));
                if let Some(away) = parent.first_migrating(table, part) {
                    return Ok(Part::Waits(mm.wait_on_migration(away)));
                }
                parent.share_base(child, mm, cx, table, part)?;
            }
        }
        self.from = part.end;
        Ok(Part::Copied)
    }

    /// The child, as far as it is copied.
    pub fn child(&self) -> Option<&AddressSpace> {
        self.child.as_ref()
    }

    /// The frames that fork holds between two steps, beside the child.
    pub fn holdings(&self) -> Holdings {
        self.undo.as_ref().map_or_else(Holdings::default, Unmap::holdings)
    }

    /// Undoes the copy at once.
    pub fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        if let Some(child) = self.child.take() {
            cx.on_unloaded(|cx| {
                if let Some(mut undo) = self.undo.take() {
                    undo.abort(mm, cx);
                }
                child.exit(mm, cx);
            });
        }
    }
}

impl AddressSpace {
    /// Makes a child with the parent's memory: all the steps of [`Fork`].
    pub fn fork(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<Self, Errno> {
        let mut fork = Fork::new();
        // Bound: each step that is not the last passes some of the parent's entries.
        loop {
            match fork.step(mm, self, cx, cx.now()) {
                Step::More => {}
                Step::Block(wait) => unreachable!("copying does not wait, but for {wait:?}"),
                Step::Done(result) => return result,
            }
        }
    }

    /// The first migration entry among these base pages.
    fn first_migrating(&self, table: TableId, part: PageRange) -> Option<Pte> {
        let mut ptes = (part.start.0..part.end.0).map(|vpn| self.tables.pte(table, Vpn(vpn)));
        ptes.find(|pte| pte.is_migration())
    }

    /// Shares a run of base pages of one table with a child (`copy_pte_range`).
    fn share_base(
        &mut self,
        child: &mut Self,
        mm: &mut Mm,
        cx: &mut Cx,
        table: TableId,
        part: PageRange,
    ) -> Result<(), NoMemory> {
        let slot = child.tables.make_pmd_slot(mm, cx, part.start)?;
        let to = child.tables.make_pte_table(mm, cx, slot)?;
        primitive::scan_ptes(cx, part.pages());
        let first = usize::try_from(part.start.0 % Self::HUGE_PAGES).expect("below 512");
        let pages = first..first + usize::try_from(part.pages()).expect("at most 512");
        let ours = &mut self.tables.ptes_mut(table)[pages.clone()];
        let theirs = &mut child.tables.ptes_mut(to)[pages];
        let (mut changed, mut shared, mut stored) = (0, 0, 0);
        for (ours, theirs) in ours.iter_mut().zip(theirs).filter(|(ours, _)| **ours != Pte::NONE) {
            if let Some(slot) = ours.swap_slot() {
                mm.swap.duplicate(slot);
                child.swapped += 1;
            } else if !ours.is_zero_page() {
                changed += u64::from(ours.is_writable());
                *ours = ours.write_protected();
                mm.map_base_again(ours.pfn());
                shared += 1;
            }
            *theirs = *ours;
            stored += 1;
        }
        child.rss += shared;
        primitive::write_ptes(cx, changed);
        primitive::count_mappings(cx, shared);
        primitive::fill_ptes(cx, stored);
        Ok(())
    }
}
