//! Linux: task_numa_work(), kernel/sched/fair.c; change_prot_numa(), mm/mempolicy.c; change_pte_range() and change_pmd_range(),
//! mm/mprotect.c; change_huge_pmd(), mm/huge_memory.c (v3.10).

use units::{Time, Vpn};

use super::filter::VmaFilter;
use crate::{
    Mm,
    address_space::{AddressSpace, EVERYTHING},
    cx::Cx,
    event::Event,
    frame::Frame,
    page_table::{Level, Pmd, TableId},
    primitive,
    pte::Pte,
    step::Step,
    vma::{PageRange, Vma},
};

/// One scan: from where the last one of the address space ended, until enough pages hint.
#[derive(Clone, Debug)]
pub struct ScanWork {
    /// How many more.
    left: i64,
    /// Where the next page is; nothing before the lock is had.
    at: Option<Vpn>,
    /// Has it changed any entry yet?
    has_updated: bool,
    /// The part of a VMA that is scanned.
    chunk: Option<Chunk>,
    /// Which VMAs are.
    filter: VmaFilter,
}

#[derive(Clone, Debug)]
struct Chunk {
    all: PageRange,
    rest: PageRange,
    spares_shared: bool,
    updated: u64,
}

impl ScanWork {
    pub(super) fn new(pages: u64) -> Self {
        Self { left: pages.cast_signed(), at: None, has_updated: false, chunk: None, filter: VmaFilter::default() }
    }

    /// Sets the threads of the process.
    #[must_use]
    pub fn of_threads(mut self, threads: u64) -> Self {
        self.filter.of_threads(threads);
        self
    }

    /// Goes on until `horizon`, at least by an entry of a PMD. The caller holds the mmap lock for read.
    pub fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<()> {
        let rules = *mm.variant();
        // Bound: each turn passes a PMD entry, or a VMA.
        loop {
            if let Some(chunk) = &mut self.chunk {
                let Step::Done(()) = chunk.step(mm, space, cx, horizon) else { return Step::More };
                self.has_updated |= chunk.updated > 0;
                let passed = if !rules.numa_period_by_size {
                    chunk.updated
                } else if self.has_updated {
                    chunk.all.pages()
                } else {
                    0
                };
                self.left -= passed.cast_signed();
                self.at = Some(chunk.all.end);
                self.chunk = None;
                if self.left <= 0 || self.filter.ends_at(&rules, space, self.at.expect("set above")) {
                    space.numa.offset = self.at.expect("set above");
                    return Step::Done(());
                }
            }
            let at = *self.at.get_or_insert_with(|| {
                if space.vmas.first_in(PageRange { start: space.numa.offset, ..EVERYTHING }).is_none() {
                    space.numa.begin_again();
                }
                space.numa.offset
            });
            let Some(vma) = space.vmas.first_in(PageRange { start: at, ..EVERYTHING }) else {
                if self.filter.tries_again(&rules) {
                    self.at = None;
                    continue;
                }
                space.numa.begin_again();
                return Step::Done(());
            };
            if is_small(&vma) && !rules.numa_scans_small_vmas || is_library(&vma) && rules.numa_scans_shared {
                self.at = Some(vma.end());
                continue;
            }
            if !self.filter.passes(mm, space, cx, (&vma, at)) {
                self.at = Some(vma.end());
                continue;
            }
            let start = at.max(vma.start);
            let end = (start.0 + self.left.cast_unsigned()).next_multiple_of(AddressSpace::HUGE_PAGES);
            let all = PageRange { start, end: Vpn(end).min(vma.end()) };
            let spares_shared = !rules.numa_scans_shared;
            self.chunk = Some(Chunk { all, rest: all, spares_shared, updated: 0 });
        }
    }
}

fn is_small(vma: &Vma) -> bool {
    vma.pages < AddressSpace::HUGE_PAGES
}

/// Mappings that no process stores to are shared by many (patch 13: "shared libraries").
fn is_library(vma: &Vma) -> bool {
    vma.file.is_some_and(|file| file.is_shared)
}

impl super::SpaceNuma {
    /// All has been scanned once (`reset_ptenuma_scan`).
    pub(super) fn begin_again(&mut self) {
        self.seq += 1;
        self.offset = Vpn(0);
    }
}

impl Chunk {
    fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<()> {
        while let Some((part, slot)) = space.tables.next_pmd(self.rest) {
            self.rest.start = part.end;
            match space.tables.pmd(slot) {
                Pmd::None => {}
                Pmd::Huge(_) if part.pages() < AddressSpace::HUGE_PAGES => {
                    space.split_pmd(mm, cx, slot);
                    self.rest.start = part.start;
                }
                Pmd::Huge(huge) => {
                    // One that is visited counts, whether it is changed or not.
                    self.updated += AddressSpace::HUGE_PAGES;
                    primitive::scan_mapped_frames(cx, 1);
                    if !huge.is_hinting() && self.marks(mm, huge) {
                        space.tables.hint_huge(slot, true);
                    }
                    primitive::write_ptes(cx, 1);
                }
                Pmd::Table(table) => {
                    primitive::scan_ptes(cx, part.pages());
                    primitive::scan_mapped_frames(cx, part.pages());
                    self.updated += self.mark_table(mm, space, cx, (table, part));
                }
            }
            if self.rest.start < self.rest.end && cx.is_over(horizon) {
                return Step::More;
            }
        }
        cx.count(Event::NumaPteUpdates, self.updated);
        if self.updated > 0 {
            primitive::flush_tlb_range(cx, self.all.pages());
        }
        Step::Done(())
    }

    /// Shall user code fault at a page?
    fn marks(&self, mm: &Mm, pte: Pte) -> bool {
        if pte.is_zero_page() {
            // A huge one has no mapcount, and is looked at no longer where that does not matter.
            return pte.is_huge() && !self.spares_shared && !mm.variant().numa_spares_huge_zero;
        }
        let is_file = matches!(mm.frames.get(pte.pfn()), Frame::File { .. });
        let mappings = if is_file { mm.mappings_of(pte.pfn()) } else { mm.frame_mappings(pte.pfn()) };
        !self.spares_shared || mappings == 1
    }

    /// Marks the pages of a table; if all of them are of one node, one fault will do for all of them (`change_pmd_protnuma`).
    fn mark_table(&self, mm: &Mm, space: &mut AddressSpace, cx: &mut Cx, (table, part): (TableId, PageRange)) -> u64 {
        let by_pid = mm.variant().numa_private_by_pid;
        let numa = mm.numa.as_ref().expect("a scan is of a kernel that balances");
        let (mut first, mut is_one, mut marked) = (None, true, Vec::new());
        for vpn in (part.start.0..part.end.0).map(Vpn) {
            let pte = space.tables.pte(table, vpn);
            if !pte.is_present() || pte.is_zero_page() {
                continue;
            }
            let last = by_pid.then(|| numa.last.get(pte.pfn(), units::Order::BASE));
            // With PIDs, the node is that of the last fault too.
            let key = (if by_pid { None } else { Some(mm.node_of(pte.pfn())) }, last);
            is_one &= *first.get_or_insert(key) == key;
            if !pte.is_hinting() && self.marks(mm, pte) {
                marked.push(vpn);
            }
        }
        for vpn in &marked {
            space.tables.hint(table, PageRange::new(*vpn, 1));
        }
        space.tables.hint_all_at_once(table, is_one && first.is_some());
        primitive::write_ptes(cx, marked.len() as u64 + u64::from(is_one));
        debug_assert!(part.pages() <= Level::Pmd.entry_pages(), "a PMD entry covers a table");
        marked.len() as u64
    }
}
