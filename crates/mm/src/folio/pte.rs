//! Linux: arch/x86/include/asm/pgtable_types.h (v6.1).
//! Differs: an entry that points to a table holds the table's index in the address space's arena, not its frame.

use units::Pfn;

/// A page of the swap device (`swp_entry_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwapSlot(pub u32);

/// One entry of a page table of any level, with the bits where x86-64 has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    /// Nothing is mapped here.
    pub const NONE: Self = Self(0);
    /// The base zero page, read-only. It belongs to the kernel's image: no frame of ours.
    pub const ZERO: Self = Self(Self::PRESENT | Self::SPECIAL | Self::ACCESSED);

    const PRESENT: u64 = 1;
    const WRITABLE: u64 = 1 << 1;
    const ACCESSED: u64 = 1 << 5;
    const DIRTY: u64 = 1 << 6;
    const HUGE: u64 = 1 << 7;
    /// User code faults on this entry, so that the kernel learns who uses the page (`_PAGE_PROTNONE`). x86-64 clears the
    /// present bit with it, and `pte_present` is true all the same; here the bit stays.
    const HINTING: u64 = 1 << 8;
    const SPECIAL: u64 = 1 << 9;
    /// In an entry that maps nothing: the page is on a swap device. A bit that the processor leaves to software.
    const SWAP: u64 = 1 << 10;
    /// In an entry that is not present: the page is being migrated. x86-64 has the type of swap entries here
    /// (SWP_MIGRATION_READ and so on, include/linux/swap.h). The other bits keep their meaning.
    const MIGRATION: u64 = 1 << 59;
    const PFN_SHIFT: u32 = 12;

    /// Whether nothing is mapped by any of these entries. All are looked at, several at a time.
    pub fn are_none(entries: &[Self]) -> bool {
        entries.iter().fold(0, |bits, entry| bits | entry.0) == Self::NONE.0
    }

    /// A page of user memory that was just written: writable, accessed, dirty.
    #[inline]
    pub const fn written(pfn: Pfn) -> Self {
        Self(Self::at(pfn) | Self::PRESENT | Self::WRITABLE | Self::ACCESSED | Self::DIRTY)
    }

    /// A page of user memory that was just read: accessed, clean, and write-protected.
    pub const fn read(pfn: Pfn) -> Self {
        Self(Self::at(pfn) | Self::PRESENT | Self::ACCESSED)
    }

    /// A page whose content is on a swap device (`swp_entry_to_pte`).
    pub const fn swapped(slot: SwapSlot) -> Self {
        Self(Self::at(Pfn(slot.0)) | Self::SWAP)
    }

    /// A huge page that was just written.
    pub const fn written_huge(pfn: Pfn) -> Self {
        Self(Self::written(pfn).0 | Self::HUGE)
    }

    /// The huge zero page, read-only.
    pub const fn zero_huge(pfn: Pfn) -> Self {
        Self(Self::at(pfn) | Self::ZERO.0 | Self::HUGE)
    }

    pub(crate) const fn table(index: u32) -> Self {
        Self(Self::at(Pfn(index)) | Self::PRESENT | Self::WRITABLE)
    }

    pub(crate) const fn table_index(self) -> u32 {
        self.pfn().0
    }

    const fn at(pfn: Pfn) -> u64 {
        (pfn.0 as u64) << Self::PFN_SHIFT
    }

    /// The first frame that the entry maps; without meaning for the base zero page.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn((self.0 >> Self::PFN_SHIFT & 0xffff_ffff) as u32)
    }

    /// The word, undecoded: for checks.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the entry maps anything.
    #[inline]
    pub const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// The swap slot of the page, if its contents are on a swap device.
    #[inline]
    pub const fn swap_slot(self) -> Option<SwapSlot> {
        if self.0 & (Self::SWAP | Self::PRESENT) == Self::SWAP { Some(SwapSlot(self.pfn().0)) } else { None }
    }

    /// Whether the entry maps this frame as a base page.
    #[inline]
    pub fn maps(self, pfn: Pfn) -> bool {
        self.is_present() && !self.is_zero_page() && self.pfn() == pfn
    }

    /// Whether the entry maps nothing, or the zero page.
    #[inline]
    pub const fn is_none_or_zero(self) -> bool {
        self.0 == 0 || self.is_zero_page()
    }

    /// The entry while its page is migrated: a task that accesses it waits (`make_readable_migration_entry` and so on).
    #[must_use]
    pub(crate) const fn migrating(self) -> Self {
        Self(self.0 & !(Self::PRESENT | Self::HINTING) | Self::MIGRATION)
    }

    /// The entry after the migration of its page to a frame, or back: present again, with the rights and the history it had
    /// (`remove_migration_pte`).
    #[must_use]
    pub(crate) const fn migrated(self, to: Pfn) -> Self {
        let rest = self.0 & !(Self::MIGRATION | Self::at(Pfn(u32::MAX)));
        Self(rest | Self::at(to) | Self::PRESENT)
    }

    /// Whether the page of the entry is being migrated.
    #[inline]
    pub const fn is_migration(self) -> bool {
        self.0 & (Self::MIGRATION | Self::PRESENT) == Self::MIGRATION
    }

    /// Whether the entry says that its page is migrated away from this frame.
    #[inline]
    pub(crate) fn leaves(self, pfn: Pfn) -> bool {
        self.is_migration() && self.pfn() == pfn
    }

    /// Whether the page is there, but user code faults (`pte_protnone`).
    #[inline]
    pub const fn is_hinting(self) -> bool {
        self.0 & Self::HINTING != 0
    }

    /// Whether user code may load through the entry without a fault.
    #[inline]
    pub const fn is_accessible(self) -> bool {
        self.0 & (Self::PRESENT | Self::HINTING) == Self::PRESENT
    }

    /// The entry with rights on which user code faults (`pte_modify` to `PAGE_NONE`).
    #[must_use]
    #[inline]
    pub(crate) const fn hinting(self) -> Self {
        Self(self.0 | Self::HINTING)
    }

    /// The entry after a hinting fault, with its rights again (`do_numa_page`).
    #[must_use]
    #[inline]
    pub(crate) const fn without_hint(self) -> Self {
        Self(self.0 & !Self::HINTING)
    }

    /// Whether user code may store through the entry without a fault.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.0 & Self::WRITABLE != 0
    }

    /// Whether the entry maps a huge page.
    pub const fn is_huge(self) -> bool {
        self.0 & Self::HUGE != 0
    }

    /// Whether the entry maps a zero page, base or huge.
    #[inline]
    pub const fn is_zero_page(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    /// Whether user code has read or stored through the entry.
    pub const fn is_accessed(self) -> bool {
        self.0 & Self::ACCESSED != 0
    }

    /// The entry as the processor leaves it when user code reads or stores through it.
    #[must_use]
    #[inline]
    pub const fn used(self, stores: bool) -> Self {
        Self(self.0 | Self::ACCESSED | if stores { Self::DIRTY } else { 0 })
    }

    /// The entry as if user code had not used it lately (`pte_mkold`).
    #[must_use]
    #[inline]
    pub const fn old(self) -> Self {
        Self(self.0 & !Self::ACCESSED)
    }

    /// The entry as if user code had never used it, with the rights that it has (`mk_pte`, `pte_mkold`).
    #[must_use]
    pub(crate) const fn unused(self) -> Self {
        Self(self.0 & !(Self::ACCESSED | Self::DIRTY))
    }

    /// Whether user code has stored through the entry.
    pub const fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    /// The entry without write permission (`pte_wrprotect`).
    #[must_use]
    pub const fn write_protected(self) -> Self {
        Self(self.0 & !Self::WRITABLE)
    }

    /// The entry without write permission, as if user code had not stored through it (`pte_wrprotect`, `pte_mkclean`).
    #[must_use]
    pub(crate) const fn cleaned(self) -> Self {
        Self(self.0 & !(Self::WRITABLE | Self::DIRTY))
    }

    /// The entry after user code has just stored through it (`pte_mkwrite`, `pte_mkdirty`, `pte_mkyoung`).
    #[must_use]
    pub const fn rewritten(self) -> Self {
        Self(self.0 | Self::WRITABLE | Self::ACCESSED | Self::DIRTY)
    }

    /// The entry for base page `n` of the huge page that this entry maps, with its rights and history.
    #[must_use]
    pub const fn base_part(self, n: u32) -> Self {
        if self.is_zero_page() {
            return Self::ZERO;
        }
        Self((self.0 & !Self::HUGE) + ((n as u64) << Self::PFN_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_it_maps() {
        let pte = Pte::written(Pfn(u32::MAX));
        assert_eq!(pte.pfn(), Pfn(u32::MAX));
        assert!(pte.is_present() && pte.is_writable() && pte.is_dirty() && pte.is_accessed());
        assert!(!pte.is_huge() && !pte.is_zero_page());
        let shared = pte.write_protected();
        assert!(shared.is_present() && !shared.is_writable() && shared.is_dirty());
        assert_eq!(shared.rewritten(), pte);
        assert!(!Pte::NONE.is_present() && !Pte::NONE.is_migration());
        assert!(Pte::are_none(&[Pte::NONE; 3]) && !Pte::are_none(&[Pte::NONE, Pte::NONE, shared]));
    }

    #[test]
    fn an_entry_keeps_its_rights_while_its_page_moves() {
        for pte in [Pte::written(Pfn(u32::MAX)), Pte::written(Pfn(7)).write_protected()] {
            let away = pte.migrating();
            assert!(!away.is_present() && away.is_migration() && away.leaves(pte.pfn()) && !away.maps(pte.pfn()));
            assert!(!pte.is_migration() && !pte.leaves(pte.pfn()));
            assert_eq!(away.migrated(pte.pfn()), pte);
            let moved = away.migrated(Pfn(3));
            assert!(moved.maps(Pfn(3)) && moved.is_writable() == pte.is_writable() && moved.is_dirty());
            let unused = moved.unused();
            assert!(unused.maps(Pfn(3)) && unused.is_writable() == pte.is_writable());
            assert!(!unused.is_accessed() && !unused.is_dirty());
        }
    }

    #[test]
    fn an_entry_that_hints_is_there_but_not_for_user_code() {
        let pte = Pte::written(Pfn(7));
        let hinting = pte.hinting();
        assert!(hinting.is_hinting() && hinting.is_present() && !hinting.is_accessible() && hinting.maps(Pfn(7)));
        assert!(pte.is_accessible() && !pte.is_hinting() && !Pte::NONE.is_accessible());
        assert_eq!(hinting.without_hint(), pte);
        // `remove_migration_pte` restores the rights of the VMA.
        assert_eq!(hinting.migrating().migrated(Pfn(7)), pte);
    }

    #[test]
    fn a_huge_entry_splits_into_base_entries() {
        let huge = Pte::written_huge(Pfn(1024)).write_protected();
        assert_eq!(huge.base_part(3), Pte::written(Pfn(1027)).write_protected());
        assert_eq!(Pte::zero_huge(Pfn(512)).base_part(7), Pte::ZERO);
        assert!(Pte::ZERO.is_zero_page() && !Pte::ZERO.is_writable() && !Pte::ZERO.is_dirty());
    }
}
