//! Linux: do_huge_pmd_anonymous_page() and do_huge_pmd_wp_page() in mm/huge_memory.c (v6.1).
//! Differs: as fault.rs.
//!
//! The phases of a fault that brings in a huge page, the zero page, or a copy of a huge page.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    event::Event,
    fact::Fact,
    frame::Frame,
    tally::{Place, Test},
};
use rules::variant::HugeCow;
use units::{Order, Pfn, Time};

use super::{FaultControl, FaultDone, Next, Phase};
use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, PmdSlot, TableId},
    },
    thp::{
        HugeGot, HugeTry,
        huge_cow::{Copied, HugeCopy},
        huge_range,
    },
};

impl FaultControl {
    pub(super) fn map_huge_zero(&self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        let slot = space.tables.pmd_slot(self.vpn).filter(|slot| space.tables.pmd(*slot) == Pmd::None);
        let (Some(slot), Some(_)) = (slot, space.vmas.find(self.vpn)) else {
            return Next::Done(FaultDone::Handled);
        };
        let deposit = match space.tables.alloc_pte_table(mm, cx) {
            Ok(deposit) => deposit,
            Err(no) => return no.into(),
        };
        let Some(frame) = mm.get_huge_zero(cx, space) else {
            space.tables.free_pte_table(mm, cx, deposit);
            return fall_back(cx);
        };
        install_huge(space, cx, slot, Pte::zero_huge(frame), deposit);
        Next::Done(FaultDone::Handled)
    }

    pub(super) fn alloc_huge(&self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, which: HugeTry) -> Next {
        if space.tables.pmd_of(self.vpn) != Pmd::None {
            // Another task was faster while this one asked for memory.
            return Next::Phase(Phase::Pmd);
        }
        let Some(vma) = space.vmas.find(self.vpn) else { return Next::Done(FaultDone::Handled) };
        match mm.try_huge(cx, vma.advice, which, (self.policy, self.vpn)) {
            HugeGot::Frame(frame) => {
                mm.memory.isolate(cx, frame, Order::HUGE);
                Next::Phase(Phase::HugeDeposit { frame })
            }
            HugeGot::Asked => Next::Again,
            HugeGot::Next(which) => Next::Phase(Phase::HugeAlloc(which)),
            HugeGot::Nothing => fall_back(cx),
        }
    }

    pub(super) fn alloc_deposit(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, frame: Pfn) -> Next {
        mm.memory.assert_isolated(cx, frame, Order::HUGE);
        match space.tables.alloc_pte_table(mm, cx) {
            Ok(deposit) => {
                mm.memory.isolate(cx, space.tables.frame(deposit), Order::BASE);
                Next::Phase(Phase::HugeClear { frame, deposit, cleared: 0 })
            }
            Err(NoMemory::Asked) => Next::Again,
            Err(NoMemory::Refused) => {
                mm.memory.free(cx, frame, Order::HUGE);
                Next::Done(FaultDone::OutOfMemory)
            }
        }
    }

    /// Clears a huge page (`clear_huge_page`): between two of its base pages others may run, and have their part of the
    /// memory's bandwidth.
    pub(super) fn clear_huge(mm: &mut Mm, cx: &mut Cx, frame: Pfn, deposit: TableId, cleared: u32) -> Next {
        mm.memory.assert_isolated(cx, frame, Order::HUGE);
        let piece = mm.memory.piece(Order::HUGE);
        mm.memory.clear(cx, frame.plus(cleared), piece);
        let cleared = cleared + piece.frames();
        let is_clear = cleared == Order::HUGE.frames();
        Next::Later(if is_clear {
            Phase::HugeMap { frame, deposit }
        } else {
            Phase::HugeClear { frame, deposit, cleared }
        })
    }

    /// Whether the fault is in the middle of clearing a huge page.
    #[inline]
    pub(crate) fn is_clearing(&self) -> bool {
        matches!(self.phase, Phase::HugeClear { .. })
    }

    /// See [`crate::fault::touch::Touch::clear_on`].
    pub(crate) fn clear_on(&mut self, mm: &mut Mm, cx: &mut Cx, before: Time, mut ended: impl FnMut(Time)) -> Time {
        // Bound: the pieces of a huge page.
        loop {
            let start = cx.now();
            let Phase::HugeClear { frame, deposit, cleared } = self.phase else {
                unreachable!("the caller looked, and it ends at the last piece");
            };
            if let Next::Later(phase) = Self::clear_huge(mm, cx, frame, deposit, cleared) {
                self.phase = phase;
            }
            ended(cx.now());
            if cx.now() >= before || !self.is_clearing() {
                return start;
            }
        }
    }

    pub(super) fn map_huge(
        &self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        frame: Pfn,
        deposit: TableId,
    ) -> Next {
        mm.memory.assert_isolated(cx, frame, Order::HUGE);
        let at = huge_range(self.vpn);
        let is_mapped = space.vmas.find(self.vpn).is_some_and(|vma| vma.range().covers(at));
        let slot = space.tables.pmd_slot(self.vpn).filter(|slot| space.tables.pmd(*slot) == Pmd::None);
        cx.test(Test::HugeMapped, Place::Machine, is_mapped && slot.is_some());
        let (true, Some(slot)) = (is_mapped, slot) else {
            // Another task was faster, or the VMA is gone.
            space.tables.free_pte_table(mm, cx, deposit);
            mm.memory.free(cx, frame, Order::HUGE);
            cx.count(Event::ThpFaultAlloc, mm.memory.variant().thp_fault_alloc_counts_losers.into());
            return Next::Done(FaultDone::Handled);
        };
        mm.map_new_folio(cx, frame, space.family, at.start, Order::HUGE);
        mm.memory.frames.set(space.tables.frame(deposit), Frame::PageTable);
        install_huge(space, cx, slot, Pte::written_huge(frame), deposit);
        space.rss += AddressSpace::HUGE_PAGES;
        cx.count(Event::ThpFaultAlloc, 1);
        Next::Done(FaultDone::Handled)
    }

    /// Handles a store to a write-protected huge page: the only process that maps it may write; others get a copy, of
    /// the whole or of one base page.
    pub(super) fn write_huge(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        slot: PmdSlot,
        huge: Pte,
    ) -> Next {
        if !huge.is_zero_page() && mm.may_reuse(cx, huge.pfn()) {
            space.tables.set_pmd(cx, slot, huge.rewritten());
            return Next::Done(FaultDone::Handled);
        }
        match mm.memory.variant().huge_cow {
            HugeCow::SplitPmd => {
                space.split_pmd(mm, cx, slot);
                Next::Phase(Phase::Base)
            }
            HugeCow::Copy => {
                space.vmas.prepare_anon(self.vpn);
                self.cow = Some(HugeCopy::new(self.vpn, huge));
                Next::Phase(Phase::HugeCopy)
            }
        }
    }

    pub(super) fn copy_huge(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        let copied = self.cow.as_mut().expect("begun by the phase before").step(mm, space, cx);
        if copied != Copied::NotYet {
            self.cow = None;
        }
        match copied {
            Copied::NotYet => Next::Later(Phase::HugeCopy),
            Copied::Done => Next::Done(FaultDone::Handled),
            Copied::PmdSplit => Next::Phase(Phase::Base),
        }
    }
}

fn fall_back(cx: &mut Cx) -> Next {
    cx.count(Event::ThpFaultFallback, 1);
    cx.fact(|| Fact::ThpFallback);
    Next::Phase(Phase::Base)
}

fn install_huge(space: &mut AddressSpace, cx: &mut Cx, slot: PmdSlot, huge: Pte, deposit: TableId) {
    space.tables.deposit(slot, deposit);
    space.tables.set_pmd(cx, slot, huge);
}
