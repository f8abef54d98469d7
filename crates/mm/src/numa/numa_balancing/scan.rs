//! Linux: task_numa_work(), kernel/sched/fair.c; change_prot_numa(), mm/mempolicy.c; change_pte_range() and change_pmd_range(),
//! mm/mprotect.c; change_huge_pmd(), mm/huge_memory.c (v3.10, v6.1).

use memory::{
    cx::Cx,
    event::Event,
    frame::Frame,
    primitive,
    step::Step,
    tally::{Place, Test},
};
use rules::variant::NumaHintsCow;
use units::{NodeId, Pfn, Time, Vpn};

use super::{JIFFY, Tick, filter::VmaFilter};
use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::{AddressSpace, EVERYTHING},
        page_table::{Level, Pmd, TableId},
        vma::{PageRange, Vma},
    },
};

/// One scan of an address space: from the end of the last one, until enough pages hint.
#[derive(Clone, Debug)]
pub struct ScanWork {
    /// Pages that are still to be made hinting.
    left: i64,
    /// The next page; none before the lock is held.
    at: Option<Vpn>,
    /// Whether any entry was changed.
    has_updated: bool,
    /// The part of a VMA that is scanned.
    chunk: Option<Chunk>,
    /// The filter of VMAs.
    filter: VmaFilter,
    /// Pages that may still be passed, if that has a limit.
    left_to_pass: i64,
    /// The tick that began the scan; none in a test.
    tick: Option<Tick>,
    /// The scanning task is the only one of its process.
    is_alone: bool,
}

#[derive(Clone, Debug)]
struct Chunk {
    all: PageRange,
    rest: PageRange,
    spares_shared: bool,
    /// Base pages of this node are well placed, and are spared.
    spares_node: Option<NodeId>,
    /// Pages are copied before a store if they are shared (`is_cow_mapping`).
    is_private: bool,
    updated: u64,
}

impl ScanWork {
    pub(super) fn new(pages: u64) -> Self {
        let left = pages.cast_signed();
        let (filter, left_to_pass) = (VmaFilter::default(), 8 * left);
        Self { left, at: None, has_updated: false, chunk: None, filter, left_to_pass, tick: None, is_alone: false }
    }

    /// Sets the tick that began the scan.
    pub(super) fn of(self, tick: Tick) -> Self {
        Self { tick: Some(tick), ..self }
    }

    /// Sets the number of threads of the process (`get_nr_threads`, `mm_users`).
    #[must_use]
    pub fn of_threads(mut self, threads: u64) -> Self {
        self.filter.of_threads(threads);
        Self { is_alone: threads == 1, ..self }
    }

    /// Makes a task pay for a scan that took longer than a tick: it runs 32 times as long before it scans again.
    fn pay(&self, mm: &mut Mm, cx: &Cx) {
        let (Some(tick), Some(numa)) = (self.tick, &mut mm.numa) else { return };
        let ticks = cx.now().since(tick.at).0 / JIFFY.0;
        let task = numa.task_mut(tick.id);
        task.stamp += JIFFY * (32 * ticks);
    }

    /// Takes a step until `horizon`, at least one PMD entry. The caller holds the mmap lock for read.
    pub fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<()> {
        let done = self.go_on(mm, space, cx, horizon);
        if done == Step::Done(()) && mm.memory.variant().numa_scan_pays {
            self.pay(mm, cx);
        }
        done
    }

    fn go_on(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<()> {
        let rules = *mm.memory.variant();
        // Bound: each turn passes a PMD entry, or a VMA.
        loop {
            if let Some(chunk) = &mut self.chunk {
                let Step::Done(()) = chunk.step(mm, space, cx, horizon) else { return Step::More };
                self.has_updated |= cx.test(Test::ScanMarks, Place::Machine, chunk.updated > 0);
                let counts = if rules.numa_scan_ends { chunk.updated > 0 } else { self.has_updated };
                let passed = if !rules.numa_period_by_size {
                    chunk.updated
                } else if counts {
                    chunk.all.pages()
                } else {
                    0
                };
                self.left -= passed.cast_signed();
                self.left_to_pass -= chunk.all.pages().cast_signed();
                self.at = Some(chunk.all.end);
                self.chunk = None;
                let is_over = self.left <= 0 || (rules.numa_scan_ends && self.left_to_pass <= 0);
                if is_over || self.filter.ends_at(&rules, space, self.at.expect("set above")) {
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
            // vma_policy_mof; up to 3.18 the policy is checked at the page.
            let is_placed = rules.numa_groups && self.tick.is_some_and(|tick| !tick.policy.is_local());
            let mut asks = |is_asked: bool, test, passes| !is_asked || cx.test(test, Place::Machine, passes);
            if !asks(rules.numa_groups, Test::ScanPolicy, !is_placed)
                || !asks(!rules.numa_scans_small_vmas, Test::ScanSmall, !is_small(&vma))
                || !asks(rules.numa_scans_shared, Test::ScanLibrary, !is_library(&vma))
            {
                self.at = Some(vma.end());
                continue;
            }
            let passes = self.filter.passes(mm, space, cx, (&vma, at));
            let is_filtered = rules.numa_vma_delay || rules.numa_vma_by_pid;
            if is_filtered {
                cx.test(Test::ScanVma, Place::Machine, passes);
            }
            if !passes {
                self.at = Some(vma.end());
                continue;
            }
            let start = at.max(vma.start);
            let end = (start.0 + self.left.cast_unsigned()).next_multiple_of(AddressSpace::HUGE_PAGES);
            let all = PageRange { start, end: Vpn(end).min(vma.end()) };
            let spares_shared = !rules.numa_scans_shared;
            let spares_node = self.tick.filter(|_| self.is_alone && !rules.numa_hints_local && !is_shared(&vma));
            let spares_node = spares_node.map(|tick| mm.memory.node_of_cpu(tick.cpu));
            let is_private = !is_shared(&vma);
            self.chunk = Some(Chunk { all, rest: all, spares_shared, spares_node, is_private, updated: 0 });
        }
    }
}

fn is_small(vma: &Vma) -> bool {
    vma.pages < AddressSpace::HUGE_PAGES
}

fn is_shared(vma: &Vma) -> bool {
    vma.file.is_some_and(|file| file.is_shared)
}

/// Whether a mapping is never stored to, and thus shared by many (patch 13: "shared libraries").
fn is_library(vma: &Vma) -> bool {
    is_shared(vma)
}

impl super::SpaceNuma {
    /// Starts anew when a process with one task creates another (`init_numa_balancing`).
    pub(super) fn start_over(&mut self, next_scan: Time) {
        (self.seq, self.next_scan) = (0, next_scan);
    }

    /// Begins a new scan sequence after the last VMA (`reset_ptenuma_scan`).
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
                Pmd::Huge(huge) if mm.memory.variant().numa_groups => {
                    primitive::scan_mapped_frames(cx, 1);
                    let is_page = huge.is_accessible() && !huge.is_zero_page();
                    if is_page {
                        space.tables.hint_huge(slot, true);
                        primitive::write_ptes(cx, 1);
                        self.updated += AddressSpace::HUGE_PAGES;
                    }
                }
                Pmd::Huge(huge) => {
                    // A huge page that was visited counts, whether its entry was changed or not.
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
                    self.updated += if mm.memory.variant().numa_hints_by_table {
                        self.mark_table(mm, space, cx, (table, part))
                    } else {
                        self.mark_each(mm, space, cx, (table, part))
                    };
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

    /// Whether the entry of a page is made hinting.
    fn marks(&self, mm: &Mm, pte: Pte) -> bool {
        if pte.is_zero_page() {
            // A huge one has no mapcount, and is looked at no longer where that does not matter.
            return pte.is_huge() && !self.spares_shared && !mm.memory.variant().numa_spares_huge_zero;
        }
        let is_file = matches!(mm.memory.frames.get(pte.pfn()), Frame::File { .. });
        let mappings = if is_file { mm.mappings_of(pte.pfn()) } else { mm.frame_mappings(pte.pfn()) };
        !self.spares_shared || mappings == 1
    }

    /// Makes pages of a table hint, each by itself (`change_pte_range`).
    fn mark_each(&self, mm: &Mm, space: &mut AddressSpace, cx: &mut Cx, (table, part): (TableId, PageRange)) -> u64 {
        let mut marked = 0;
        for vpn in (part.start.0..part.end.0).map(Vpn) {
            let pte = space.tables.pte(table, vpn);
            if pte.is_accessible() && !pte.is_zero_page() && self.hints(mm, pte.pfn()) {
                space.tables.hint(table, PageRange::new(vpn, 1));
                marked += 1;
            }
        }
        primitive::write_ptes(cx, marked);
        marked
    }

    /// Whether the entry of a base page is made hinting.
    fn hints(&self, mm: &Mm, page: Pfn) -> bool {
        let (rules, is_file) = (mm.memory.variant(), mm.memory.frames.is_file(page));
        let is_own = match rules.numa_hints_cow {
            NumaHintsCow::MappedOnce if self.is_private && is_file => mm.mappings_of(page) == 1,
            NumaHintsCow::MappedOnce if self.is_private => mm.frame_mappings(page) == 1,
            // The page cache holds a reference to its pages.
            NumaHintsCow::ReferencedOnce if self.is_private => {
                !is_file && mm.folio_references(mm.folio_head(page)) == 1
            }
            _ => true,
        };
        let is_dirty = || is_file && mm.is_page_dirty(page);
        is_own && (rules.numa_hints_dirty || !is_dirty()) && self.spares_node != Some(mm.memory.node_of(page))
    }

    /// Makes the pages of a page table hint. If all these pages are on one node, one fault will clear all hints
    /// (`change_pmd_protnuma`).
    fn mark_table(&self, mm: &Mm, space: &mut AddressSpace, cx: &mut Cx, (table, part): (TableId, PageRange)) -> u64 {
        let by_pid = mm.memory.variant().numa_private_by_pid;
        let faults = mm.memory.last_faults().expect("a scan is of a kernel that balances");
        let (mut first, mut is_one, mut marked, mut absent) = (None, true, Vec::new(), 0);
        for vpn in (part.start.0..part.end.0).map(Vpn) {
            let pte = space.tables.pte(table, vpn);
            if !pte.is_present() {
                absent += 1;
                continue;
            }
            if pte.is_zero_page() {
                continue;
            }
            let last = by_pid.then(|| faults.get(pte.pfn(), units::Order::BASE));
            // With PIDs, the node is that of the last fault too.
            let key = (if by_pid { None } else { Some(mm.memory.node_of(pte.pfn())) }, last);
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
        // Entries without a page count as updated too, up to 3.12.
        marked.len() as u64 + absent
    }
}
