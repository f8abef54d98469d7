//! Linux: mm/gup.c (v4.18 to v6.1), as vaddr_get_pfn() in drivers/vfio/vfio_iommu_type1.c (v4.18) uses it for a device.
//! Differs: anonymous memory only; a page has at most one pin, which ends with its last mapping; the device's own page tables are
//! left out.
//!
//! A pinned page has a reference beside its mappings' references, and so stays where it is: reclaim, compaction and the split of
//! huge pages check for the extra reference and give up.

use memory::{cx::Cx, frame::Holdings, primitive, step::Step};
use rules::mempolicy::Mempolicy;
use units::{Errno, Pfn, Time, Vpn};

use crate::{
    Mm,
    fault::{Access, FaultControl, FaultDone},
    space::{address_space::AddressSpace, page_table::Pmd, vma::PageRange},
};

/// Pins the pages of a range, one after the other: each page is faulted in as by a store, and gets a long-term reference
/// (`get_user_pages` with `FOLL_WRITE`).
#[derive(Clone, Debug)]
pub struct Pin {
    range: PageRange,
    next: Vpn,
    fault: Option<FaultControl>,
    policy: Mempolicy,
}

/// The next page, as it is mapped.
enum Found {
    /// A writable page, and the end of the pages that its entry maps.
    Page(Pfn, Vpn),
    /// A store to the page faults.
    Faults,
}

impl Pin {
    /// A control that pins the pages of a range.
    pub fn new(range: PageRange) -> Self {
        Self { range, next: range.start, fault: None, policy: Mempolicy::Local }
    }

    /// Sets the policy of the task.
    #[must_use]
    pub fn under(self, policy: Mempolicy) -> Self {
        Self { policy, ..self }
    }

    /// The first page that is not pinned yet.
    pub fn next(&self) -> Vpn {
        self.next
    }

    /// Pages that are not pinned yet.
    pub fn left(&self) -> u64 {
        self.range.end.0 - self.next.0
    }

    /// Whether a fault is under way.
    pub fn is_in_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Takes a step until `horizon`, at least one page or one phase of a fault. The caller holds the mmap lock for read.
    ///
    /// # Errors
    /// `EFAULT` if a page has no VMA, `EOPNOTSUPP` in a file mapping, `ENOMEM` when memory is out: the step then pins nothing.
    pub fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        horizon: Time,
    ) -> Step<Result<(), Errno>> {
        // Bound: each turn pins pages, or starts a fault, or ends one.
        while self.next < self.range.end {
            let failed = match &mut self.fault {
                Some(fault) => match fault.step(mm, space, cx) {
                    Step::More => return Step::More,
                    Step::Block(wait) => return Step::Block(wait),
                    Step::Done(done) => {
                        self.fault = None;
                        error_of(done)
                    }
                },
                None => self.advance(mm, space, cx),
            };
            if let Some(errno) = failed {
                self.unpin(mm, space);
                return Step::Done(Err(errno));
            }
            if self.next < self.range.end && cx.is_over(horizon) {
                return Step::More;
            }
        }
        Step::Done(Ok(()))
    }

    /// Frames that a fault under way holds between two steps.
    pub fn holdings(&self, space: &AddressSpace) -> Holdings {
        self.fault.as_ref().map_or_else(Holdings::default, |fault| fault.holdings(space))
    }

    /// Frees what a fault under way holds. Pinned pages stay pinned until they are unmapped.
    pub fn abort(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) {
        if let Some(mut fault) = self.fault.take() {
            fault.abort(mm, space, cx);
        }
    }

    fn advance(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Option<Errno> {
        match space.vmas.find(self.next) {
            None => return Some(Errno::FAULT),
            Some(vma) if vma.file.is_some() => return Some(Errno::OPNOTSUPP),
            Some(_) => {}
        }
        match find(space, self.next, self.range.end) {
            Found::Page(pfn, end) => {
                let pages = end.0 - self.next.0;
                // Each page is looked up by itself, and gets a reference of its own.
                primitive::scan_ptes(cx, pages);
                primitive::count_mappings(cx, pages);
                mm.set_pinned(pfn, true);
                self.next = end;
            }
            Found::Faults => self.fault = Some(FaultControl::new(self.next, Access::Write).under(self.policy)),
        }
        None
    }

    fn unpin(&mut self, mm: &mut Mm, space: &AddressSpace) {
        while self.next > self.range.start {
            self.next = Vpn(self.next.0 - 1);
            let pte = space.tables.lookup(self.next);
            if pte.is_present() && !pte.is_zero_page() {
                mm.set_pinned(pte.pfn(), false);
            }
        }
    }
}

/// The page at `vpn`, and the end of the pages up to `end` that the same entry maps.
fn find(space: &AddressSpace, vpn: Vpn, end: Vpn) -> Found {
    match space.tables.pmd_of(vpn) {
        Pmd::Huge(huge) if huge.is_writable() && huge.is_accessible() => {
            Found::Page(huge.pfn(), end.min(vpn.huge_start().plus(AddressSpace::HUGE_PAGES)))
        }
        Pmd::Table(table) => {
            let pte = space.tables.pte(table, vpn);
            if pte.is_accessible() && pte.is_writable() { Found::Page(pte.pfn(), vpn.plus(1)) } else { Found::Faults }
        }
        Pmd::None | Pmd::Huge(_) => Found::Faults,
    }
}

fn error_of(done: FaultDone) -> Option<Errno> {
    match done {
        FaultDone::Handled => None,
        FaultDone::OutOfMemory => Some(Errno::NOMEM),
        FaultDone::BadAddress | FaultDone::BusError => Some(Errno::FAULT),
    }
}

#[cfg(test)]
mod tests;
