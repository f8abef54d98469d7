//! Linux: change_prot_numa() in mm/mempolicy.c, change_pte_range() in mm/mprotect.c, do_numa_page() in mm/memory.c,
//! do_huge_pmd_numa_page() in mm/huge_memory.c (v6.1).
//! Differs: only the entries and their faults; nothing scans or moves by itself. Pages of files hint too.

use memory::{cost::Work, cx::Cx, event::Event, primitive, step::Step};
use units::{Time, Vpn};

use crate::{
    Mm,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, TableId},
        vma::PageRange,
    },
};

/// Makes every page of a range hint, once.
#[derive(Clone, Debug)]
pub struct HintScan {
    rest: PageRange,
    updated: u64,
}

impl HintScan {
    /// A control that makes a range hint. The caller holds the mmap lock for read.
    pub fn new(range: PageRange) -> Self {
        Self { rest: range, updated: 0 }
    }

    /// Number of entries changed so far (`NUMA_PTE_UPDATES` counts them).
    pub fn updated(&self) -> u64 {
        self.updated
    }

    /// Takes a step until `horizon`, at least the pages of one PMD entry. The TLBs are flushed at the end
    /// (`change_protection_range`).
    pub fn step(&mut self, space: &mut AddressSpace, cx: &mut Cx, horizon: Time) -> Step<()> {
        // Bound: each turn passes a PMD entry.
        while let Some((part, slot)) = space.tables.next_pmd(self.rest) {
            self.rest.start = part.end;
            let updated = match space.tables.pmd(slot) {
                Pmd::None => 0,
                Pmd::Huge(huge) if !huge.is_accessible() || huge.is_zero_page() => 0,
                Pmd::Huge(_) => {
                    space.tables.hint_huge(slot, true);
                    AddressSpace::HUGE_PAGES
                }
                Pmd::Table(table) => {
                    primitive::scan_ptes(cx, part.pages());
                    space.tables.hint(table, part)
                }
            };
            let entries = if let Pmd::Huge(_) = space.tables.pmd(slot) { updated.min(1) } else { updated };
            primitive::write_ptes(cx, entries);
            self.updated += updated;
            cx.count(Event::NumaPteUpdates, updated);
            if cx.is_over(horizon) {
                return Step::More;
            }
        }
        if self.updated > 0 {
            primitive::flush_tlb_range(cx, self.updated);
        }
        Step::Done(())
    }
}

/// Handles hinting faults on `pages` of a table, which all hint and are memory of one node. The caller charges the
/// entries into the kernel.
pub(crate) fn hinting_faults(space: &mut AddressSpace, cx: &mut Cx, table: TableId, pages: PageRange, is_local: bool) {
    space.tables.clear_hints(table, pages);
    primitive::write_ptes(cx, pages.pages());
    count(cx, pages.pages(), is_local);
}

/// Handles a hinting fault on a huge page.
pub(crate) fn huge_hinting_fault(mm: &Mm, space: &mut AddressSpace, cx: &mut Cx, vpn: Vpn) {
    let slot = space.tables.pmd_slot(vpn).expect("a huge page was found there");
    let Pmd::Huge(huge) = space.tables.pmd(slot) else { unreachable!("a huge page was found there") };
    space.tables.hint_huge(slot, false);
    primitive::write_ptes(cx, 1);
    count(cx, 1, mm.memory.node_of(huge.pfn()) == mm.memory.node_of_cpu(cx.cpu()));
}

/// The price of one fault of [`hinting_faults`], including the entry into the kernel.
pub(crate) fn price_of_fault(cx: &Cx) -> units::Picos {
    cx.price(Work::Trap) + cx.price(Work::PteWrite)
}

fn count(cx: &mut Cx, faults: u64, is_local: bool) {
    cx.count(Event::NumaHintFaults, faults);
    if is_local {
        cx.count(Event::NumaHintFaultsLocal, faults);
    }
}
