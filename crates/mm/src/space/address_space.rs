//! Linux: struct mm_struct, include/linux/mm_types.h; mm/mmap.c, mm/madvise.c, mm/mincore.c (v6.1).
//! Differs: the mmap lock is the caller's, held across the steps of an operation.

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

/// Pages of the user half of the addresses that four levels translate, less the last.
// TASK_SIZE_MAX, arch/x86/include/asm/page_64_types.h (v6.1).
pub const TASK_PAGES: u64 = (1 << 35) - 1;

/// Where mappings start to grow down without randomisation: below the least gap for the stack, 128 MiB.
// mmap_base, arch/x86/mm/mmap.c (v6.1).
pub const MMAP_BASE: Vpn = Vpn(TASK_PAGES - (128 << 20 >> 12));

/// Every page that a process may map.
pub(crate) const EVERYTHING: PageRange = PageRange { start: Vpn(0), end: Vpn(TASK_PAGES) };

/// One process's memory. What every fault needs is one line of cache, the second: from the end of `vmas` to the beginning of
/// `tables`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct AddressSpace {
    /// A page of the VMA that khugepaged has locked, while it does (`vma_start_write`).
    pub(crate) locked_vma: Option<Vpn>,
    mmap_base: Vpn,
    /// The mappings.
    pub vmas: VmaSet,
    pub(crate) rss: u64,
    /// The processes it is related to by fork.
    pub family: FamilyId,
    pub(crate) uses_huge_zero: bool,
    /// The last task has ended: pages and tables that are left go by themselves.
    pub is_exiting: bool,
    /// Where it lives itself.
    object: Object,
    /// Where it is.
    pub tables: PageTables,
    /// The space's number with khugepaged, if khugepaged looks at it.
    pub(crate) khugepaged: Option<u64>,
    /// Entries that name a swap slot (`MM_SWAPENTS`).
    pub(crate) swapped: u64,
    /// The state of balancing, where the kernel does that.
    pub(crate) numa: SpaceNuma,
}

const _: () = assert!(offset_of!(AddressSpace, rss) == 72 && offset_of!(AddressSpace, tables) == 88);

impl AddressSpace {
    /// An empty one, whose mappings grow down from `mmap_base`.
    pub fn new(mm: &mut Mm, cx: &mut Cx, mmap_base: Vpn) -> Result<Self, Errno> {
        Self::new_in(mm, cx, mmap_base, Vec::new())
    }

    /// An empty address space, whose page tables lie in given frames before they take new ones.
    pub(crate) fn new_in(mm: &mut Mm, cx: &mut Cx, mmap_base: Vpn, tables: Vec<Pfn>) -> Result<Self, Errno> {
        let family = mm.rmap.new_family().ok_or(Errno::NOMEM)?;
        let made = object_and_root(mm, cx, tables).inspect_err(|_| mm.rmap.leave_family(family));
        let (object, tables) = made.map_err(NoMemory::errno)?;
        Ok(Self::empty((family, mmap_base), object, tables))
    }

    /// An empty member of the same family: a child before anything is copied.
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

    /// The kernel objects that are its own: itself, and its VMAs.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        std::iter::once(self.object).chain(self.vmas.iter().map(|vma| vma.object))
    }

    /// Base pages that are mapped (`RssAnon` and `RssFile`), without zero pages.
    pub fn rss_pages(&self) -> u64 {
        self.rss
    }

    /// Pages of it that are on a swap device (`VmSwap`).
    pub fn swapped_pages(&self) -> u64 {
        self.swapped
    }

    /// Maps `pages` pages where the kernel would.
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

    /// Unmaps any part of any mappings at once: all the steps of [`Unmap`].
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

    /// Gives advice about the mapped parts of a range; `ENOMEM` where there are holes, after the rest was done.
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

    /// Is all of a range mapped?
    pub fn is_mapped(&self, range: PageRange) -> bool {
        let mapped: u64 = self.vmas.overlapping(range).map(|vma| overlap(vma.range(), range)).sum();
        mapped == range.pages()
    }

    /// Which pages of a range are resident; `ENOMEM` where something is not mapped.
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

    /// The node of each page of a range; none where nothing is, or a zero page (`do_pages_stat`, mm/migrate.c, v6.1).
    pub fn nodes_of(&self, mm: &Mm, cx: &mut Cx, range: PageRange) -> Vec<Option<NodeId>> {
        primitive::scan_ptes(cx, range.pages());
        let node = |vpn| {
            let pte = self.tables.lookup(Vpn(vpn));
            (pte.is_present() && !pte.is_zero_page()).then(|| mm.memory.node_of(pte.pfn()))
        };
        (range.start.0..range.end.0).map(node).collect()
    }

    /// Pages of a range by node and by whether a huge page maps them, in that order; none where nothing is, or a zero page. For
    /// those who look from outside: it costs nothing.
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

    /// The process ends: everything is unmapped, and the root table goes too.
    pub fn exit(mut self, mm: &mut Mm, cx: &mut Cx) {
        self.munmap(mm, cx, EVERYTHING).expect("nothing is split when everything goes");
        self.end(mm, cx);
    }

    /// The end of a process that has unmapped everything.
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

    /// Makes `at` a border between VMAs (`split_vma`); no huge page is mapped across it after.
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

    /// Pages of a huge page, for those who count in base pages.
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
