//! Linux: struct mm_struct, include/linux/mm_types.h; mm/mmap.c, mm/madvise.c, mm/mincore.c (v6.1).
//! Differs: the caller holds the mmap lock across the steps of an operation.

use std::{collections::BTreeMap, mem::offset_of};

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::FamilyId,
    primitive,
    slab::{Cache, Object},
    step::Step,
};
use rules::variant::MmapAlign;
use units::{Errno, NodeId, Order, Pfn, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    numa::numa_balancing::SpaceNuma,
    space::{
        page_table::{PageTables, Pmd},
        unmap::Unmap,
        vma::{FileMap, HugeAdvice, PageRange, VmaSet},
    },
};

/// Pages of the user half of the addresses that four levels of tables translate, minus the last page.
// TASK_SIZE_MAX, arch/x86/include/asm/page_64_types.h (v6.1).
pub const TASK_PAGES: u64 = (1 << 35) - 1;

/// The page below which mappings are placed, without randomisation: 128 MiB, the least gap for the stack, below the end.
// mmap_base, arch/x86/mm/mmap.c (v6.1).
pub const MMAP_BASE: Vpn = Vpn(TASK_PAGES - (128 << 20 >> 12));

/// Every page that a process may map.
pub(crate) const EVERYTHING: PageRange = PageRange { start: Vpn(0), end: Vpn(TASK_PAGES) };

/// One process's memory (`struct mm_struct`). The fields that every fault needs fill the second cache line: from the end of
/// `vmas` to the beginning of `tables`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct AddressSpace {
    /// A page of the VMA that khugepaged has write-locked (`vma_start_write`), if there is one.
    pub(crate) locked_vma: Option<Vpn>,
    mmap_base: Vpn,
    /// The mappings.
    pub vmas: VmaSet,
    pub(crate) rss: u64,
    /// The family of processes related by fork that this one belongs to.
    pub family: FamilyId,
    pub(crate) uses_huge_zero: bool,
    /// The last task has ended: the remaining pages and tables are freed step by step.
    pub is_exiting: bool,
    /// The object that holds the `mm_struct`.
    object: Object,
    /// The page tables.
    pub tables: PageTables,
    /// The space's number with khugepaged, if khugepaged looks at it.
    pub(crate) khugepaged: Option<u64>,
    /// Entries that name a swap slot (`MM_SWAPENTS`).
    pub(crate) swapped: u64,
    /// The state of NUMA balancing, if the kernel does that.
    pub(crate) numa: SpaceNuma,
}

const _: () = assert!(offset_of!(AddressSpace, rss) == 72 && offset_of!(AddressSpace, tables) == 88);

impl AddressSpace {
    /// A new address space without mappings; they are placed downward from `mmap_base`.
    pub fn new(mm: &mut Mm, cx: &mut Cx, mmap_base: Vpn) -> Result<Self, Errno> {
        Self::new_in(mm, cx, mmap_base, Vec::new())
    }

    /// A new address space whose page tables use the frames of `tables` before they allocate new ones.
    pub(crate) fn new_in(mm: &mut Mm, cx: &mut Cx, mmap_base: Vpn, tables: Vec<Pfn>) -> Result<Self, Errno> {
        let family = mm.rmap.new_family().ok_or(Errno::NOMEM)?;
        let made = object_and_root(mm, cx, tables).inspect_err(|_| mm.rmap.leave_family(family));
        let (object, tables) = made.map_err(NoMemory::errno)?;
        Ok(Self::empty((family, mmap_base), object, tables))
    }

    /// A new member of this family: a child before anything is copied.
    pub(crate) fn related(&self, mm: &mut Mm, cx: &mut Cx) -> Result<Self, NoMemory> {
        let (object, tables) = object_and_root(mm, cx, Vec::new())?;
        mm.rmap.join_family(self.family);
        Ok(Self::empty((self.family, self.mmap_base), object, tables))
    }

    fn empty((family, mmap_base): (FamilyId, Vpn), object: Object, tables: PageTables) -> Self {
        Self {
            family,
            vmas: VmaSet::default(),
            tables,
            rss: 0,
            swapped: 0,
            uses_huge_zero: false,
            khugepaged: None,
            numa: SpaceNuma::default(),
            is_exiting: false,
            locked_vma: None,
            object,
            mmap_base,
        }
    }

    /// The kernel objects of the space: its `mm_struct`, and its VMAs.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        std::iter::once(self.object).chain(self.vmas.iter().map(|vma| vma.object))
    }

    /// Base pages that are mapped (`RssAnon` and `RssFile`), without zero pages.
    pub fn rss_pages(&self) -> u64 {
        self.rss
    }

    /// Pages of the space on a swap device (`VmSwap`).
    pub fn swapped_pages(&self) -> u64 {
        self.swapped
    }

    /// Maps `pages` anonymous pages at the address that the kernel would choose.
    pub fn mmap(&mut self, mm: &mut Mm, cx: &mut Cx, pages: u64) -> Result<PageRange, Errno> {
        if pages == 0 {
            return Err(Errno::INVAL);
        }
        let start =
            self.vmas.unmapped_area(self.mmap_base, pages, mm.memory.variant().mmap_align).ok_or(Errno::NOMEM)?;
        let range = PageRange::new(start, pages);
        primitive::update_vma(cx);
        if let Some(left_over) = self.vmas.insert(range, || mm.memory.alloc_object(cx, Cache::VmArea))? {
            mm.memory.free_object(cx, left_over);
        }
        Ok(range)
    }

    /// Maps `pages` pages of an open file, from the page `index` on.
    pub fn mmap_file(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        pages: u64,
        (file, index, is_shared): (u32, u64, bool),
    ) -> Result<PageRange, Errno> {
        if pages == 0 {
            return Err(Errno::INVAL);
        }
        let inode = mm.inode_of(file)?;
        let start = self.vmas.unmapped_area(self.mmap_base, pages, MmapAlign::Base).ok_or(Errno::NOMEM)?;
        let range = PageRange::new(start, pages);
        primitive::update_vma(cx);
        let map = FileMap { inode, file, shift: start.0.wrapping_sub(index), is_shared };
        self.vmas.insert_file(range, map, || mm.memory.alloc_object(cx, Cache::VmArea))?;
        mm.map_file(self.family, map);
        Ok(range)
    }

    /// Unmaps all mappings in a range at once: all the steps of [`Unmap`].
    pub fn munmap(&mut self, mm: &mut Mm, cx: &mut Cx, range: PageRange) -> Result<(), Errno> {
        let mut unmap = Unmap::new(range);
        // Bound: each step that is not the last passes some of the range's entries.
        loop {
            match unmap.step(mm, self, cx, cx.now()) {
                Step::More => {}
                Step::Block(wait) => unreachable!("unmapping does not wait, but for {wait:?}"),
                Step::Done(result) => return result,
            }
        }
    }

    /// Applies advice to the mapped parts of a range; `ENOMEM` if there are holes, after the rest was done.
    pub fn madvise(&mut self, mm: &mut Mm, cx: &mut Cx, range: PageRange, advice: HugeAdvice) -> Result<(), Errno> {
        let mut from = range.start;
        let mut holes = false;
        // Bound: each turn passes one VMA.
        while let Some(vma) = self.vmas.first_in(PageRange { start: from, end: range.end }) {
            let part = PageRange { start: vma.start.max(from), end: vma.end().min(range.end) };
            holes |= part.start > from;
            if vma.advice != advice {
                if advice == HugeAdvice::HugePage {
                    mm.khugepaged_enter(self);
                }
                primitive::update_vma(cx);
                self.split_vma(mm, cx, part.start)?;
                self.split_vma(mm, cx, part.end)?;
                for left_over in self.vmas.advise(part, advice).into_iter().flatten() {
                    mm.memory.free_object(cx, left_over);
                }
            }
            from = part.end;
        }
        if holes || from < range.end { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Whether all pages of a range are mapped.
    pub fn is_mapped(&self, range: PageRange) -> bool {
        let mapped: u64 = self.vmas.overlapping(range).map(|vma| overlap(vma.range(), range)).sum();
        mapped == range.pages()
    }

    /// Whether each page of a range is resident; `ENOMEM` if a part is not mapped.
    pub fn mincore(&self, mm: &Mm, cx: &mut Cx, range: PageRange) -> Result<Vec<bool>, Errno> {
        if !self.is_mapped(range) {
            return Err(Errno::NOMEM);
        }
        let mut resident = vec![false; usize::try_from(range.pages()).expect("memory addresses them")];
        let mut rest = range;
        // Bound: each turn passes one PMD entry.
        while let Some((part, slot)) = self.tables.next_pmd(rest) {
            let at = usize::try_from(part.start.0 - range.start.0).expect("inside");
            let page = |n: usize| Vpn(part.start.0 + n as u64);
            let pages = &mut resident[at..][..usize::try_from(part.pages()).expect("at most 512")];
            match self.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(_) => {
                    primitive::scan_ptes(cx, 1);
                    pages.fill(true);
                }
                Pmd::Table(table) => {
                    primitive::scan_ptes(cx, part.pages());
                    for (n, is_resident) in pages.iter_mut().enumerate() {
                        let pte = self.tables.pte(table, page(n));
                        let is_cached = |slot| mm.swap.cached(slot).is_some();
                        let is_swapped_in = pte.swap_slot().is_some_and(is_cached);
                        *is_resident = pte.is_present() || pte.is_migration() || is_swapped_in;
                    }
                }
            }
            rest.start = part.end;
        }
        Ok(resident)
    }

    /// The node of each page of a range; none for unmapped pages and the zero page (`do_pages_stat`, mm/migrate.c, v6.1).
    pub fn nodes_of(&self, mm: &Mm, cx: &mut Cx, range: PageRange) -> Vec<Option<NodeId>> {
        primitive::scan_ptes(cx, range.pages());
        let node = |vpn| {
            let pte = self.tables.lookup(Vpn(vpn));
            (pte.is_present() && !pte.is_zero_page()).then(|| mm.memory.node_of(pte.pfn()))
        };
        (range.start.0..range.end.0).map(node).collect()
    }

    /// Number of pages of a range by node and by whether a huge page maps them; without unmapped pages and the zero page. For
    /// observers: it takes no simulated time.
    pub fn places_of(&self, mm: &Mm, range: PageRange) -> BTreeMap<(NodeId, bool), u64> {
        let mut places = BTreeMap::new();
        let mut add = |pte: Pte, is_huge: bool, pages: u64| {
            if pte.is_present() && !pte.is_zero_page() {
                *places.entry((mm.memory.node_of(pte.pfn()), is_huge)).or_insert(0) += pages;
            }
        };
        let mut rest = range;
        // Bound: each turn passes one PMD entry.
        while let Some((part, slot)) = self.tables.next_pmd(rest) {
            match self.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(pte) => add(pte, true, part.pages()),
                Pmd::Table(table) => {
                    (part.start.0..part.end.0).for_each(|vpn| add(self.tables.pte(table, Vpn(vpn)), false, 1));
                }
            }
            rest.start = part.end;
        }
        places
    }

    /// Ends the process: unmaps everything, and frees the root table.
    pub fn exit(mut self, mm: &mut Mm, cx: &mut Cx) {
        self.munmap(mm, cx, EVERYTHING).expect("nothing is split when everything goes");
        self.end(mm, cx);
    }

    /// Ends a process that has unmapped everything.
    pub fn end(self, mm: &mut Mm, cx: &mut Cx) {
        assert!(self.vmas.is_empty() && self.rss == 0 && self.swapped == 0, "{} pages are still mapped", self.rss);
        let (mine, others) = std::mem::take(&mut mm.orphan_maps)
            .into_iter()
            .partition::<Vec<_>, _>(|(family, _)| *family == self.family);
        mm.orphan_maps = others;
        for (family, map) in mine {
            mm.unmap_file(cx, family, map);
        }
        mm.put_huge_zero(&self);
        mm.rmap.leave_family(self.family);
        self.tables.free_root(mm, cx);
        mm.memory.free_object(cx, self.object);
    }

    /// Makes `at` a border between VMAs (`split_vma`); after that no huge page is mapped across it.
    pub(crate) fn split_vma(&mut self, mm: &mut Mm, cx: &mut Cx, at: Vpn) -> Result<(), Errno> {
        if let Some(whole) = self.vmas.split_at(at, || mm.memory.alloc_object(cx, Cache::VmArea))? {
            if let Some(map) = whole.file {
                mm.map_file(self.family, map);
            }
            primitive::update_vma(cx);
            self.split_pmd_across(mm, cx, at);
        }
        Ok(())
    }

    /// Base pages in a huge page.
    pub(crate) const HUGE_PAGES: u64 = Order::HUGE.frames() as u64;
}

/// The objects that every address space begins with (`mm_alloc`, `mm_init`).
fn object_and_root(mm: &mut Mm, cx: &mut Cx, given: Vec<Pfn>) -> Result<(Object, PageTables), NoMemory> {
    let object = mm.memory.alloc_object(cx, Cache::MmStruct)?;
    let tables = PageTables::new_in(mm, cx, given).inspect_err(|_| mm.memory.free_object(cx, object))?;
    Ok((object, tables))
}

fn overlap(a: PageRange, b: PageRange) -> u64 {
    a.end.min(b.end).0.saturating_sub(a.start.max(b.start).0)
}
