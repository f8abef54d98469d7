//! Linux: mm/mmap.c, mm/madvise.c, include/linux/mm_types.h (v6.1).
//! Differs: an ordered map instead of the maple tree; VMAs of files do not merge; if a VMA is split, the upper part is
//! always the new one; `anon_vma`s and nodes of the tree take no memory yet.

pub(crate) mod numab;

use std::collections::BTreeMap;

use memory::{alloc::NoMemory, frame::NIL, slab::Object};
use rules::variant::MmapAlign;
use units::{Errno, Order, Vpn};

use self::numab::NumabStates;
use crate::file::page_cache::InodeId;

/// Most VMAs of an address space.
// vm.max_map_count, Documentation/admin-guide/sysctl/vm.rst (v6.1).
const MAX_MAP_COUNT: usize = 65_530;

/// The lowest page that the kernel chooses for a mapping.
// vm.mmap_min_addr, 64 KiB on x86-64 (Documentation/admin-guide/sysctl/vm.rst).
const LOWEST: Vpn = Vpn(16);

/// A range of pages of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// First page.
    pub start: Vpn,
    /// The page after the last.
    pub end: Vpn,
}

impl PageRange {
    /// `pages` pages from `start` on.
    pub const fn new(start: Vpn, pages: u64) -> Self {
        Self { start, end: start.plus(pages) }
    }

    /// Number of pages.
    pub const fn pages(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether `vpn` is in the range.
    pub fn contains(self, vpn: Vpn) -> bool {
        (self.start..self.end).contains(&vpn)
    }

    /// Whether the range contains all of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// Advice of a process about huge pages in a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeAdvice {
    /// No advice.
    #[default]
    Default,
    /// `MADV_HUGEPAGE` (VM_HUGEPAGE).
    HugePage,
    /// `MADV_NOHUGEPAGE` (VM_NOHUGEPAGE).
    NoHugePage,
}

/// Whether a mapping of `pages` is aligned to a huge page.
fn is_aligned_to_huge(rule: MmapAlign, pages: u64) -> bool {
    let huge = u64::from(Order::HUGE.frames());
    match rule {
        MmapAlign::Base => false,
        MmapAlign::LargeAtHuge => pages >= huge,
        MmapAlign::MultiplesAtHuge => pages >= huge && pages.is_multiple_of(huge),
    }
}

/// The `anon_vma` of a VMA's anonymous pages; here it only decides which VMAs may merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonVma {
    id: u32,
    /// Made by fork, so that it is not the only one on its chain.
    inherited: bool,
}

/// The part of a file that a VMA maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMap {
    /// The file.
    pub inode: InodeId,
    /// The open file that it was mapped through.
    pub file: u32,
    /// Page number minus the index of the page in the file.
    pub shift: u64,
    /// Whether stores go to the file (`MAP_SHARED`).
    pub is_shared: bool,
}

impl FileMap {
    /// The index in the file of the page mapped at `vpn`.
    pub const fn index(self, vpn: Vpn) -> u64 {
        vpn.0.wrapping_sub(self.shift)
    }
}

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First page.
    pub start: Vpn,
    /// Number of pages.
    pub pages: u64,
    /// Advice about huge pages.
    pub advice: HugeAdvice,
    /// None until a fault may have mapped an anonymous page.
    pub anon: Option<AnonVma>,
    /// The part of a file that the VMA maps; none for anonymous memory.
    pub file: Option<FileMap>,
    /// The object that holds the VMA.
    pub object: Object,
}

impl Vma {
    /// The page after the last.
    pub const fn end(&self) -> Vpn {
        self.start.plus(self.pages)
    }

    /// The VMA's pages.
    pub const fn range(&self) -> PageRange {
        PageRange::new(self.start, self.pages)
    }

    /// Whether two VMAs are equal but for their `anon_vma`.
    fn merges_but_for_anon(&self, other: &Self) -> bool {
        self.advice == other.advice && self.file.is_none() && other.file.is_none()
    }

    /// Whether this VMA and the one right above may merge.
    fn merges_with(&self, above: &Self) -> bool {
        let anon = match (self.anon, above.anon) {
            (Some(a), Some(b)) => a.id == b.id,
            (Some(a), None) | (None, Some(a)) => !a.inherited,
            (None, None) => true,
        };
        let is_anon = self.file.is_none() && above.file.is_none();
        self.end() == above.start && self.advice == above.advice && anon && is_anon
    }
}

/// The VMAs of an address space, by address; no two overlap. The field that every access needs comes last.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct VmaSet {
    /// State of NUMA balancing for the VMAs.
    pub(crate) numab: NumabStates,
    by_start: BTreeMap<Vpn, Vma>,
    anon_vmas: u32,
    /// Number of changes of any VMA: facts about a VMA hold until this changes.
    changes: u64,
}

impl VmaSet {
    /// Grows with each change of any VMA (`vmacache_seqnum`, up to 6.0).
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn changing(&mut self) -> &mut BTreeMap<Vpn, Vma> {
        self.changes += 1;
        &mut self.by_start
    }

    /// The VMA that holds `vpn`.
    pub fn find(&self, vpn: Vpn) -> Option<&Vma> {
        self.by_start.range(..=vpn).next_back().map(|(_, vma)| vma).filter(|vma| vma.range().contains(vpn))
    }

    /// Every VMA, from the lowest.
    pub fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.by_start.values()
    }

    /// Number of VMAs.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there is no VMA.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The VMAs that have a page in `range`, from the lowest.
    pub fn overlapping(&self, range: PageRange) -> impl Iterator<Item = &Vma> {
        let below = self.find(range.start).filter(|vma| vma.start < range.start);
        let rest = self.by_start.range(range.start..range.end.max(range.start)).map(|(_, vma)| vma);
        below.into_iter().filter(move |_| range.pages() > 0).chain(rest)
    }

    /// Number of pages of all VMAs (`total_vm`).
    pub fn total_pages(&self) -> u64 {
        self.by_start.values().map(|vma| vma.pages).sum()
    }

    /// The lowest VMA that has a page in `range`.
    pub fn first_in(&self, range: PageRange) -> Option<Vma> {
        self.overlapping(range).next().copied()
    }

    /// The highest free run of `pages` below `base`; `vm_unmapped_area` and, for huge alignment,
    /// `__thp_get_unmapped_area` (v6.7), which asks for 2 MiB more and aligns within.
    pub fn unmapped_area(&self, base: Vpn, pages: u64, align: MmapAlign) -> Option<Vpn> {
        let huge = u64::from(Order::HUGE.frames());
        if is_aligned_to_huge(align, pages)
            && let Some(start) = self.highest_gap(base, pages + huge)
        {
            // An aligned start moves to the top of the padded run.
            return Some(start.plus(huge).huge_start());
        }
        self.highest_gap(base, pages)
    }

    fn highest_gap(&self, base: Vpn, pages: u64) -> Option<Vpn> {
        let mut top = base;
        for vma in self.by_start.range(..base).rev().map(|(_, vma)| vma) {
            if vma.end() < top && top.0 - vma.end().0 >= pages {
                break;
            }
            top = vma.start;
        }
        top.0.checked_sub(pages).map(Vpn).filter(|start| *start >= LOWEST)
    }

    /// Maps `range`, which is free: as a VMA in a new `object`, or by extending a neighbour. Joining two neighbours
    /// leaves one of their objects over.
    pub fn insert(
        &mut self,
        range: PageRange,
        object: impl FnOnce() -> Result<Object, NoMemory>,
    ) -> Result<Option<Object>, Errno> {
        assert!(self.overlapping(range).next().is_none(), "{range:?} is mapped already");
        if self.len() > MAX_MAP_COUNT {
            return Err(Errno::NOMEM);
        }
        let (start, pages, advice) = (range.start, range.pages(), HugeAdvice::Default);
        let mut vma = Vma { start, pages, advice, anon: None, file: None, object: Object::of(NIL) };
        let above = self.by_start.get(&range.end).copied().filter(|above| vma.merges_with(above));
        if let Some(above) = above {
            self.changing().remove(&above.start);
            self.numab.begins_at(above.start, start);
            vma = Vma { start, pages: pages + above.pages, ..above };
        }
        let below = self.changing().range_mut(..start).next_back().map(|(_, below)| below);
        if let Some(below) = below.filter(|below| below.merges_with(&vma)) {
            below.pages += vma.pages;
            below.anon = below.anon.or(vma.anon);
            self.numab.forget(start);
            return Ok(above.map(|above| above.object));
        }
        if above.is_none() {
            vma.object = object().map_err(NoMemory::errno)?;
        }
        self.changing().insert(start, vma);
        Ok(None)
    }

    /// Maps `range`, which is free, as a VMA of a file.
    pub fn insert_file(
        &mut self,
        range: PageRange,
        file: FileMap,
        object: impl FnOnce() -> Result<Object, NoMemory>,
    ) -> Result<(), Errno> {
        assert!(self.overlapping(range).next().is_none(), "{range:?} is mapped already");
        if self.len() > MAX_MAP_COUNT {
            return Err(Errno::NOMEM);
        }
        let object = object().map_err(NoMemory::errno)?;
        let (start, pages, advice) = (range.start, range.pages(), HugeAdvice::Default);
        self.changing().insert(start, Vma { start, pages, advice, anon: None, file: Some(file), object });
        Ok(())
    }

    /// Makes `at` a border between two VMAs if it lies inside one, and returns that VMA. The upper one is in a new
    /// `object`.
    pub fn split_at(
        &mut self,
        at: Vpn,
        object: impl FnOnce() -> Result<Object, NoMemory>,
    ) -> Result<Option<Vma>, Errno> {
        let Some(whole) = self.find(at).copied().filter(|vma| vma.start < at) else {
            return Ok(None);
        };
        if self.len() >= MAX_MAP_COUNT {
            return Err(Errno::NOMEM);
        }
        let object = object().map_err(NoMemory::errno)?;
        let below = at.0 - whole.start.0;
        self.changing().insert(whole.start, Vma { pages: below, ..whole });
        self.changing().insert(at, Vma { start: at, pages: whole.pages - below, object, ..whole });
        Ok(Some(whole))
    }

    /// Removes the VMAs inside `range`, which has borders at both ends.
    pub fn remove(&mut self, range: PageRange) -> Vec<Vma> {
        let starts: Vec<Vpn> = self.overlapping(range).map(|vma| vma.start).collect();
        let removed: Vec<Vma> = starts.iter().filter_map(|start| self.changing().remove(start)).collect();
        for vma in &removed {
            self.numab.forget(vma.start);
        }
        assert!(removed.iter().all(|vma| range.covers(vma.range())), "{range:?} cuts a VMA");
        removed
    }

    /// Sets the advice of the VMA that is exactly `range`, and merges it with neighbours that equal it now; returns the
    /// objects left over.
    pub fn advise(&mut self, range: PageRange, advice: HugeAdvice) -> [Option<Object>; 2] {
        let vma = self.changing().get_mut(&range.start).expect("the range starts a VMA");
        assert_eq!(vma.range(), range, "the range is one VMA");
        vma.advice = advice;
        [range.end, range.start].map(|at| self.merge_at(at))
    }

    /// Gives the VMA that holds `vpn` an `anon_vma` before its first anonymous page: that of a neighbour with which it
    /// could merge, else a new one (`__anon_vma_prepare`).
    pub fn prepare_anon(&mut self, vpn: Vpn) {
        let vma = *self.find(vpn).expect("a fault has a VMA");
        if vma.anon.is_some() {
            return;
        }
        let above = self.by_start.get(&vma.end());
        let below = self.by_start.range(..vma.start).next_back().map(|(_, below)| below);
        let below = below.filter(|below| below.end() == vma.start);
        let reusable = |other: &&Vma| other.merges_but_for_anon(&vma) && other.anon.is_some_and(|anon| !anon.inherited);
        let shared = above.filter(reusable).or(below.filter(reusable)).and_then(|other| other.anon);
        let anon = shared.unwrap_or_else(|| {
            self.anon_vmas += 1;
            AnonVma { id: self.anon_vmas, inherited: false }
        });
        self.changing().get_mut(&vma.start).expect("found above").anon = Some(anon);
    }

    /// Copies a VMA of the parent to a forked child (`dup_mmap`); a VMA with anonymous pages gets an `anon_vma` of its
    /// own.
    pub fn inherit(&mut self, parents: &Vma, object: Object) {
        let anon = parents.anon.map(|_| {
            self.anon_vmas += 1;
            AnonVma { id: self.anon_vmas, inherited: true }
        });
        let other = self.changing().insert(parents.start, Vma { anon, object, ..*parents });
        assert!(other.is_none(), "{parents:?} is inherited twice");
    }

    /// The range in which page tables may be freed once `range` is unmapped: from the end of the VMA below to the start
    /// of the one above (`free_pgtables`).
    pub fn gap_around(&self, range: PageRange) -> PageRange {
        let below = self.by_start.range(..range.start).next_back().map(|(_, vma)| vma.end());
        let above = self.by_start.range(range.end..).next().map(|(_, vma)| vma.start);
        let gap = PageRange { start: below.unwrap_or(Vpn(0)), end: above.unwrap_or(Vpn(1 << 36)) };
        assert!(gap.covers(range), "something is mapped in {range:?}");
        gap
    }

    /// Merges the VMA at `at` with the one below, if they are alike; returns the object left over.
    fn merge_at(&mut self, at: Vpn) -> Option<Object> {
        let above = self.by_start.get(&at).copied()?;
        let (_, below) = self.changing().range_mut(..at).next_back()?;
        if !below.merges_with(&above) {
            return None;
        }
        below.pages += above.pages;
        below.anon = below.anon.or(above.anon);
        self.changing().remove(&at);
        self.numab.forget(at);
        Some(above.object)
    }
}

#[cfg(test)]
mod tests {
    use units::Pfn;

    use super::*;

    const BASE: Vpn = Vpn(1 << 20);

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start: Vpn(start), end: Vpn(end) }
    }

    fn set(ranges: &[(u64, u64)]) -> VmaSet {
        let mut vmas = VmaSet::default();
        for (start, end) in ranges {
            vmas.insert(range(*start, *end), object).unwrap();
        }
        vmas
    }

    #[expect(clippy::unnecessary_wraps, reason = "memory may be out elsewhere")]
    fn object() -> Result<Object, NoMemory> {
        Ok(Object::of(Pfn(0)))
    }

    fn ranges(vmas: &VmaSet) -> Vec<(u64, u64)> {
        vmas.iter().map(|vma| (vma.start.0, vma.end().0)).collect()
    }

    #[test]
    fn mappings_grow_down_from_the_base_and_fill_holes_from_the_top() {
        let mut vmas = VmaSet::default();
        let first = vmas.unmapped_area(BASE, 10, MmapAlign::Base).unwrap();
        assert_eq!(first, Vpn(BASE.0 - 10));
        vmas.insert(PageRange::new(first, 10), object).unwrap();
        assert_eq!(vmas.unmapped_area(BASE, 4, MmapAlign::Base), Some(Vpn(BASE.0 - 14)));
        vmas.split_at(Vpn(BASE.0 - 7), object).unwrap();
        vmas.split_at(Vpn(BASE.0 - 3), object).unwrap();
        vmas.remove(range(BASE.0 - 7, BASE.0 - 3));
        assert_eq!(vmas.unmapped_area(BASE, 4, MmapAlign::Base), Some(Vpn(BASE.0 - 7)));
        assert_eq!(vmas.unmapped_area(BASE, 5, MmapAlign::Base), Some(Vpn(BASE.0 - 15)));
        assert_eq!(vmas.unmapped_area(BASE, BASE.0, MmapAlign::Base), None);
    }

    #[test]
    fn large_mappings_start_at_huge_pages_where_the_kernel_does_that() {
        let vmas = VmaSet::default();
        let place = |base, pages, align| vmas.unmapped_area(Vpn(base), pages, align).unwrap().0;
        assert_eq!(place(10_000, 512, MmapAlign::Base), 10_000 - 512);
        assert_eq!(place(10_000, 512, MmapAlign::LargeAtHuge), 9216);
        assert_eq!(place(10_240, 512, MmapAlign::LargeAtHuge), 10_240 - 512, "aligned already");
        assert_eq!(place(10_000, 511, MmapAlign::LargeAtHuge), 10_000 - 511);
        assert_eq!(place(10_000, 513, MmapAlign::LargeAtHuge) % 512, 0);
        assert_eq!(place(10_000, 513, MmapAlign::MultiplesAtHuge), 10_000 - 513);
    }

    #[test]
    fn equal_neighbours_merge_and_split_again() {
        let mut vmas = set(&[(100, 110), (120, 130), (110, 120)]);
        assert_eq!(ranges(&vmas), [(100, 130)]);
        assert!(vmas.split_at(Vpn(100), object).unwrap().is_none());
        vmas.split_at(Vpn(105), object).unwrap();
        vmas.split_at(Vpn(115), object).unwrap();
        vmas.advise(range(105, 115), HugeAdvice::HugePage);
        assert_eq!(ranges(&vmas), [(100, 105), (105, 115), (115, 130)]);
        vmas.advise(range(105, 115), HugeAdvice::Default);
        assert_eq!(ranges(&vmas), [(100, 130)]);
        assert_eq!(vmas.overlapping(range(90, 101)).count(), 1);
        assert_eq!(vmas.overlapping(range(90, 100)).count(), 0);
        assert_eq!(vmas.overlapping(range(129, 129)).count(), 0);
    }

    #[test]
    fn ties_of_anonymous_pages_decide_about_merging() {
        let mut vmas = set(&[(100, 110), (120, 130)]);
        vmas.prepare_anon(Vpn(100));
        vmas.prepare_anon(Vpn(129));
        vmas.insert(range(110, 120), object).unwrap();
        assert_eq!(ranges(&vmas).len(), 2, "it joins one of them, but the two have ties of their own");
        let mut child = VmaSet::default();
        for vma in vmas.iter() {
            child.inherit(vma, Object::of(Pfn(1)));
        }
        assert_eq!(child.len(), 2);
        child.insert(range(130, 140), object).unwrap();
        assert_eq!(child.len(), 3, "an inherited tie is not alone on its chain");
    }

    #[test]
    fn page_tables_are_free_between_the_neighbours() {
        let mut vmas = set(&[(100, 110), (120, 130), (140, 150)]);
        vmas.remove(range(120, 130));
        assert_eq!(vmas.gap_around(range(120, 130)), range(110, 140));
        vmas.remove(range(100, 150));
        assert_eq!(vmas.gap_around(range(100, 150)), range(0, 1 << 36));
    }
}
