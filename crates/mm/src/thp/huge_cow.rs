//! Linux: do_huge_pmd_wp_page() and do_huge_pmd_wp_page_fallback(), mm/huge_memory.c (v3.9 to v5.7).
//! Differs: no reference keeps the old page while it is copied, which shows only if the other processes unmap it
//! meanwhile.
//!
//! A store to a huge page that others map too, or to the huge zero page, gets a huge page of its own;
//! without one, 512 base pages.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    event::Event,
    fact::Fact,
    frame::{Frame, Held, Holdings},
    primitive,
    step::RUN,
};
use rules::{gfp::AllocRequest, mempolicy::Mempolicy};
use units::{Order, Pfn, Vpn};

use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, PmdSlot},
    },
    thp::{HugeGot, HugeTry, huge_range},
};

/// The copy of a huge page.
#[derive(Clone, Debug)]
pub(crate) struct HugeCopy {
    vpn: Vpn,
    /// The PMD entry at the fault; if it has changed later, another task was faster.
    was: Pte,
    phase: Phase,
    which: HugeTry,
    /// Base pages for the copy, if there is no huge page.
    pages: Vec<Pfn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Allocate a huge page, and copy or clear it. No other task sees it yet.
    Huge,
    /// Map the copy.
    Replace { frame: Pfn },
    /// Allocate base pages, a run at a time, and copy to them.
    Base,
    /// Map the base pages.
    ReplaceByBase,
    /// Free the base pages, a run at a time.
    GiveBack { then: Copied },
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// There is more to do.
    NotYet,
    /// The store can be tried again.
    Done,
    /// There was no memory: the PMD is split, so that one base page can be copied.
    PmdSplit,
}

impl HugeCopy {
    pub(crate) fn new(vpn: Vpn, was: Pte) -> Self {
        Self { vpn, was, phase: Phase::Huge, which: HugeTry::First, pages: Vec::new() }
    }

    pub(crate) fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Copied {
        match self.phase {
            Phase::Huge => self.alloc_huge(mm, space, cx),
            Phase::Replace { frame } => self.replace(mm, space, cx, frame),
            Phase::Base => self.alloc_base(mm, cx),
            Phase::ReplaceByBase => self.replace_by_base(mm, space, cx),
            Phase::GiveBack { then } => self.give_back(mm, space, cx, then),
        }
    }

    /// The blocks that the copy holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        let huge = match self.phase {
            Phase::Replace { frame } => Some(Held { pfn: frame, order: Order::HUGE }),
            _ => None,
        };
        let base = self.pages.iter().map(|pfn| Held { pfn: *pfn, order: Order::BASE });
        Holdings { isolated: huge.into_iter().chain(base).collect(), ..Holdings::default() }
    }

    /// Frees the blocks that the copy holds.
    pub(crate) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        for held in self.holdings().isolated {
            mm.memory.free(cx, held.pfn, held.order);
        }
    }

    fn later(&mut self, phase: Phase) -> Copied {
        self.phase = phase;
        Copied::NotYet
    }

    fn alloc_huge(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Copied {
        let Some(vma) = space.vmas.find(self.vpn) else { return Copied::Done };
        let got = if mm.is_thp_eligible(vma, self.vpn) {
            mm.try_huge(cx, vma.advice, self.which, (Mempolicy::Local, self.vpn))
        } else {
            HugeGot::Nothing
        };
        let frame = match got {
            HugeGot::Frame(frame) => Some(frame),
            HugeGot::Asked => return Copied::NotYet,
            HugeGot::Next(which) => {
                // The kernel does both tries in one allocation (alloc_pages_vma, mm/mempolicy.c, v5.4).
                self.which = which;
                return self.alloc_huge(mm, space, cx);
            }
            HugeGot::Nothing => None,
        };
        if let Some(frame) = frame {
            cx.count(Event::ThpFaultAlloc, 1);
            if self.was.is_zero_page() {
                mm.memory.clear(cx, frame, Order::HUGE);
            } else {
                mm.memory.copy(cx, self.was.pfn(), frame, Order::HUGE);
            }
            mm.memory.isolate(cx, frame, Order::HUGE);
            return self.later(Phase::Replace { frame });
        }
        cx.count(Event::ThpFaultFallback, 1);
        cx.fact(|| Fact::ThpFallback);
        if self.was.is_zero_page() {
            let slot = self.slot(space).expect("looked at in the same step");
            space.split_pmd(mm, cx, slot);
            return Copied::PmdSplit;
        }
        self.later(Phase::Base)
    }

    fn replace(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, frame: Pfn) -> Copied {
        mm.memory.assert_isolated(cx, frame, Order::HUGE);
        let Some(slot) = self.slot(space) else {
            mm.memory.free(cx, frame, Order::HUGE);
            return Copied::Done;
        };
        primitive::flush_tlb_range(cx, AddressSpace::HUGE_PAGES);
        mm.map_new_folio(cx, frame, space.family, huge_range(self.vpn).start, Order::HUGE);
        space.tables.set_pmd(cx, slot, Pte::written_huge(frame));
        if self.was.is_zero_page() {
            space.rss += AddressSpace::HUGE_PAGES;
        } else {
            self.put_old(mm, cx);
        }
        Copied::Done
    }

    fn alloc_base(&mut self, mm: &mut Mm, cx: &mut Cx) -> Copied {
        let request = AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu()));
        let missing = AddressSpace::HUGE_PAGES - self.pages.len() as u64;
        for _ in 0..RUN.min(missing) {
            match mm.memory.alloc(cx, &request) {
                Ok(frame) => {
                    mm.memory.isolate(cx, frame, Order::BASE);
                    self.pages.push(frame);
                }
                Err(NoMemory::Asked) => return Copied::NotYet,
                Err(NoMemory::Refused) => return self.later(Phase::GiveBack { then: Copied::PmdSplit }),
            }
        }
        if (self.pages.len() as u64) < AddressSpace::HUGE_PAGES {
            return Copied::NotYet;
        }
        for (n, frame) in (0..).zip(&self.pages) {
            mm.memory.copy(cx, self.was.pfn().plus(n), *frame, Order::BASE);
        }
        self.later(Phase::ReplaceByBase)
    }

    fn replace_by_base(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Copied {
        let Some(slot) = self.slot(space) else {
            return self.later(Phase::GiveBack { then: Copied::Done });
        };
        let table = space.tables.withdraw(slot);
        let start = huge_range(self.vpn).start;
        for (n, frame) in (0..).zip(self.pages.drain(..)) {
            assert!(matches!(mm.memory.frames.get(frame), Frame::Isolated { .. }), "frame {frame} is held");
            mm.map_new_folio(cx, frame, space.family, start.plus(n), Order::BASE);
            space.tables.set_pte(cx, table, start.plus(n), Pte::written(frame));
        }
        primitive::flush_tlb_range(cx, AddressSpace::HUGE_PAGES);
        space.tables.link_pte_table(cx, slot, table);
        self.put_old(mm, cx);
        Copied::Done
    }

    /// Frees base pages, from the last one that was allocated.
    fn give_back(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, then: Copied) -> Copied {
        for _ in 0..RUN {
            let Some(frame) = self.pages.pop() else { break };
            mm.memory.free(cx, frame, Order::BASE);
        }
        if !self.pages.is_empty() {
            return Copied::NotYet;
        }
        match (then, self.slot(space)) {
            (Copied::PmdSplit, Some(slot)) => {
                space.split_pmd(mm, cx, slot);
                Copied::PmdSplit
            }
            // Another task has changed the entry.
            _ => Copied::Done,
        }
    }

    /// Counts off the mapping of the old page.
    fn put_old(&self, mm: &mut Mm, cx: &mut Cx) {
        if let Some(folio) = mm.unmap_huge(cx, self.was.pfn()) {
            mm.put_folio(cx, folio);
        }
    }

    /// The place of the PMD entry, if it has not changed.
    fn slot(&self, space: &AddressSpace) -> Option<PmdSlot> {
        let slot = space.tables.pmd_slot(self.vpn)?;
        (space.tables.pmd(slot) == Pmd::Huge(self.was)).then_some(slot)
    }
}
