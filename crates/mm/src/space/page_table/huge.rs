//! Linux: __split_huge_pmd() and copy_huge_pmd(), mm/huge_memory.c (v6.1).
//! Differs: the table deposited for a split is withdrawn in the same step.

use memory::{alloc::NoMemory, cx::Cx, event::Event, primitive};
use units::{Order, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, PmdSlot},
    },
};

impl AddressSpace {
    /// Splits the PMD entry that maps a huge page across `at`, where a VMA will end (`vma_adjust_trans_huge`).
    pub(crate) fn split_pmd_across(&mut self, mm: &mut Mm, cx: &mut Cx, at: Vpn) {
        if at != at.huge_start()
            && let Some(slot) = self.tables.pmd_slot(at)
            && let Pmd::Huge(_) = self.tables.pmd(slot)
        {
            self.split_pmd(mm, cx, slot);
        }
    }

    /// Maps the base pages of a huge page one by one, through its deposited table (`__split_huge_pmd_locked`).
    pub(crate) fn split_pmd(&mut self, mm: &mut Mm, cx: &mut Cx, slot: PmdSlot) {
        let huge = self.split_pmd_unflushed(mm, cx, slot);
        // The flush counts base pages in either case (`flush_pmd_tlb_range`).
        primitive::flush_tlb_range(cx, Self::HUGE_PAGES);
        if mm.memory.variant().thp_splits_at_once && !huge.is_zero_page() {
            mm.split_with_pmd(cx, huge.pfn());
        }
    }

    /// Splits a PMD entry without a TLB flush, and returns the old entry.
    pub(crate) fn split_pmd_unflushed(&mut self, mm: &mut Mm, cx: &mut Cx, slot: PmdSlot) -> Pte {
        let Pmd::Huge(huge) = self.tables.pmd(slot) else { unreachable!("only a huge page is split") };
        cx.count(Event::ThpSplitPmd, 1);
        let table = self.tables.withdraw(slot);
        for (n, pte) in (0..).zip(self.tables.ptes_mut(table)) {
            *pte = huge.base_part(n);
        }
        primitive::fill_ptes(cx, u64::from(Order::HUGE.frames()));
        self.tables.link_pte_table(cx, slot, table);
        // A huge page that is being migrated has no mappings; after that it has base entries.
        if !huge.is_zero_page() && !huge.is_migration() {
            mm.map_huge_by_base(huge.pfn());
        }
        huge
    }

    /// Shares the huge page at `slot` of the parent with a child (`copy_huge_pmd`).
    pub(crate) fn share_huge(
        &mut self,
        child: &mut Self,
        mm: &mut Mm,
        cx: &mut Cx,
        slot: PmdSlot,
        at: Vpn,
    ) -> Result<(), NoMemory> {
        let Pmd::Huge(huge) = self.tables.pmd(slot) else { unreachable!("the caller looked") };
        let to = child.tables.make_pmd_slot(mm, cx, at)?;
        let deposit = child.tables.alloc_pte_table(mm, cx)?;
        let shared = huge.write_protected();
        if huge.is_zero_page() {
            mm.get_huge_zero(cx, child).expect("the parent has it");
        } else {
            mm.map_huge_again(cx, huge.pfn());
            child.rss += u64::from(Order::HUGE.frames());
            self.tables.set_pmd(cx, slot, shared);
        }
        child.tables.deposit(to, deposit);
        child.tables.set_pmd(cx, to, shared);
        Ok(())
    }
}
