//! Linux: collapse_huge_page(), __collapse_huge_page_isolate() and __collapse_huge_page_copy() in mm/khugepaged.c (v6.1), in
//! mm/huge_memory.c before 4.8 (v4.1).
//! Differs: pages are isolated and copied a run at a time; a page that has to be read from swap ends this try, as it has
//! since 6.0.

use memory::{
    cost::Cause,
    cx::Cx,
    event::Event,
    fact::Collapsed,
    frame::{FrameFlag, Held, Holdings, SpaceId, moves::MoveReason},
    primitive,
    step::{RUN, Step, Wait},
    tally::{Place, Test},
};
use units::{NodeId, Order, Pfn, Vpn};

use super::{HUGE_PAGES, NeedsLock, node_alloc::NodeAlloc, survey::Found};
use crate::{
    Mm, Spaces,
    fault::Access,
    folio::pte::Pte,
    space::{
        page_table::{Pmd, TableId},
        vma::PageRange,
    },
    swap::{SwapIn, Went},
};

/// The result of a collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The range is a huge page now.
    Collapsed,
    /// The range has changed, or one of its pages has another reference. With the huge page, if that is kept.
    Abandoned(Option<Pfn>),
    /// There is no huge page to be had.
    NoMemory,
}

impl Ended {
    /// The result as a fact has it.
    pub(super) fn told(self) -> Collapsed {
        match self {
            Self::Collapsed => Collapsed::Succeeded,
            Self::Abandoned(_) => Collapsed::Abandoned,
            Self::NoMemory => Collapsed::NoMemory,
        }
    }
}

/// The collapse of one range of a process into a huge page.
#[derive(Clone, Debug)]
pub(super) struct Collapse {
    id: SpaceId,
    range: PageRange,
    node: NodeId,
    phase: Phase,
    /// Isolated and locked folios of the range, each with whether it was active.
    isolated: Vec<(Held, bool)>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one collapse at a time, in a box")]
enum Phase {
    /// 2: take the huge page that was kept, or allocate one. No lock is held.
    Alloc { held: Option<Pfn> },
    /// 2: allocate on the slow path.
    SlowAlloc(NodeAlloc),
    /// Check the range again, with the lock for read.
    Look { frame: Pfn },
    /// 3: read pages from swap, with the lock for read.
    SwapIn { frame: Pfn, next: u64, swap_in: SwapIn },
    /// A page is being read; then this try is over.
    GiveUp { frame: Pfn },
    /// 4, 5, 7: with the lock for write, check the range once more, and flush the TLB.
    Begin { frame: Pfn },
    /// 8: isolate its pages, from this one on.
    Isolate { frame: Pfn, table: TableId, next: u64 },
    /// 9: copy its pages and free them, from this one on.
    Copy { frame: Pfn, table: TableId, next: u64 },
    /// 10: map the huge page in their place.
    Install { frame: Pfn, table: TableId },
    /// The collapse is over.
    Over,
}

impl Collapse {
    /// A collapse of a range on a node. `held`: a huge page that was kept.
    pub(super) fn new(id: SpaceId, range: PageRange, node: NodeId, held: Option<Pfn>) -> Self {
        Self { id, range, node, phase: Phase::Alloc { held }, isolated: Vec::new() }
    }

    /// The node that the huge page comes from.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn needs(&self) -> Option<NeedsLock> {
        match self.phase {
            Phase::Alloc { .. } | Phase::SlowAlloc(_) | Phase::GiveUp { .. } | Phase::Over => None,
            Phase::Look { .. } | Phase::SwapIn { .. } => Some(NeedsLock::Read(self.id)),
            Phase::Begin { .. } | Phase::Isolate { .. } | Phase::Copy { .. } | Phase::Install { .. } => {
                Some(NeedsLock::Write(self.id))
            }
        }
    }

    pub(super) fn holdings(&self) -> Holdings {
        let frame = match &self.phase {
            Phase::SlowAlloc(alloc) => return alloc.holdings(),
            Phase::Alloc { held } => held.map(|pfn| Held { pfn, order: Order::HUGE }),
            Phase::Over => None,
            Phase::Look { frame }
            | Phase::SwapIn { frame, .. }
            | Phase::GiveUp { frame }
            | Phase::Begin { frame }
            | Phase::Isolate { frame, .. }
            | Phase::Copy { frame, .. }
            | Phase::Install { frame, .. } => Some(Held { pfn: *frame, order: Order::HUGE }),
        };
        Holdings {
            isolated: frame.into_iter().collect(),
            off_lru: self.isolated.iter().map(|(held, _)| *held).collect(),
            ..Holdings::default()
        }
    }

    pub(super) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Ended> {
        let step = self.take_step(mm, spaces, cx);
        if let (Step::Done(_), Some(space)) = (&step, spaces.get_mut(self.id)) {
            space.locked_vma = None;
        }
        step
    }

    fn take_step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Ended> {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => unreachable!("a collapse ends once"),
            Phase::Alloc { held } => self.begin_alloc(mm, spaces, cx, held),
            Phase::SlowAlloc(alloc) => self.alloc(mm, spaces, cx, alloc),
            Phase::Look { frame } => match self.asks_table(mm, spaces, cx) {
                Some(_) => self.later(Phase::SwapIn { frame, next: 0, swap_in: SwapIn::default() }),
                None => Self::give_up(mm, cx, frame),
            },
            Phase::SwapIn { frame, next, swap_in } => self.swap_in(mm, spaces, cx, frame, next, swap_in),
            Phase::GiveUp { frame } => Self::give_up(mm, cx, frame),
            Phase::Begin { frame } => match self.asks_table(mm, spaces, cx) {
                Some(table) => {
                    let space = spaces.get_mut(self.id).expect("its lock is held");
                    space.locked_vma = Some(self.range.start);
                    primitive::write_ptes(cx, 1);
                    primitive::flush_tlb_huge(cx, self.id);
                    self.later(Phase::Isolate { frame, table, next: 0 })
                }
                None => Self::give_up(mm, cx, frame),
            },
            Phase::Isolate { frame, table, next } => self.isolate(mm, spaces, cx, frame, table, next),
            Phase::Copy { frame, table, next } => self.copy(mm, spaces, cx, frame, table, next),
            Phase::Install { frame, table } => self.install(mm, spaces, cx, frame, table),
        }
    }

    fn later(&mut self, phase: Phase) -> Step<Ended> {
        self.phase = phase;
        Step::More
    }

    fn give_up(mm: &mut Mm, cx: &mut Cx, frame: Pfn) -> Step<Ended> {
        if mm.memory.variant().khugepaged_keeps_page {
            return Step::Done(Ended::Abandoned(Some(frame)));
        }
        mm.memory.free(cx, frame, Order::HUGE);
        Step::Done(Ended::Abandoned(None))
    }

    /// Takes a huge page (`alloc_charge_hpage`; a page that was kept: `khugepaged_alloc_page` of patch 1). Whether the node
    /// has huge pages is checked at the end of the look, 512 entries after its beginning: a fault may have found meanwhile
    /// that it has none.
    fn begin_alloc(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, held: Option<Pfn>) -> Step<Ended> {
        if mm.leaves_node_alone(self.node) {
            return Step::Done(Ended::Abandoned(held));
        }
        if let Some(frame) = held {
            mm.memory.assert_isolated(cx, frame, Order::HUGE);
            if mm.memory.node_of(frame) == self.node {
                return self.with_huge(mm, frame);
            }
            mm.memory.free(cx, frame, Order::HUGE);
        }
        let alloc = NodeAlloc::new(mm, self.node);
        self.alloc(mm, spaces, cx, alloc)
    }

    fn alloc(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, mut alloc: NodeAlloc) -> Step<Ended> {
        let got = match alloc.step(mm, spaces, cx) {
            Step::Done(got) => got,
            step => {
                self.phase = Phase::SlowAlloc(alloc);
                return step.map(|_| Ended::NoMemory);
            }
        };
        cx.test(Test::KhugepagedAlloc, self.node, got.is_some());
        let Some(frame) = got else {
            cx.count(Event::ThpCollapseAllocFailed, 1);
            return Step::Done(Ended::NoMemory);
        };
        cx.count(Event::ThpCollapseAlloc, 1);
        self.with_huge(mm, frame)
    }

    /// Goes on with the huge page. The check with the lock for read came with reading from swap (4.8).
    fn with_huge(&mut self, mm: &Mm, frame: Pfn) -> Step<Ended> {
        let looks = mm.memory.variant().khugepaged_swaps_in;
        self.later(if looks { Phase::Look { frame } } else { Phase::Begin { frame } })
    }

    /// The page table of the range, as a test.
    fn asks_table(&self, mm: &Mm, spaces: &Spaces, cx: &mut Cx) -> Option<TableId> {
        let table = self.table(mm, spaces);
        cx.test(Test::KhugepagedRevalidate, Place::Machine, table.is_some());
        table
    }

    /// The page table of the range, if it may still be collapsed (`hugepage_vma_revalidate`).
    fn table(&self, mm: &Mm, spaces: &Spaces) -> Option<TableId> {
        let space = spaces.get(self.id)?;
        let vma = space.vmas.find(self.range.start)?;
        if !mm.is_thp_eligible(vma, self.range.start) || vma.anon.is_none() {
            return None;
        }
        match space.tables.pmd_of(self.range.start) {
            Pmd::Table(table) => Some(table),
            Pmd::None | Pmd::Huge(_) => None,
        }
    }

    /// Reads pages from swap, from the `next`-th on (`__collapse_huge_page_swapin`).
    fn swap_in(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        frame: Pfn,
        next: u64,
        mut swap_in: SwapIn,
    ) -> Step<Ended> {
        let Some(table) = self.table(mm, spaces) else { return Self::give_up(mm, cx, frame) };
        let space = spaces.get_mut(self.id).expect("its lock is held");
        let is_swapped = |n: &u64| space.tables.pte(table, self.vpn(*n)).swap_slot().is_some();
        let Some(at) = (next..HUGE_PAGES).find(is_swapped) else {
            if next > 0 {
                mm.lru_add_drain(cx);
            }
            return self.later(Phase::Begin { frame });
        };
        match swap_in.step(mm, space, cx, (self.vpn(at), Access::Read)) {
            Went::Mapped => self.later(Phase::SwapIn { frame, next: at + 1, swap_in: SwapIn::default() }),
            Went::Waits(until) => {
                // khugepaged does not wait for a device with the lock held; it would have to begin again anyway.
                self.phase = Phase::GiveUp { frame };
                Step::Block(Wait::Io { until, cause: Cause::Swap })
            }
            Went::Asked | Went::Ended(_) => Self::give_up(mm, cx, frame),
        }
    }

    fn vpn(&self, n: u64) -> Vpn {
        self.range.start.plus(n)
    }

    fn isolate(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        frame: Pfn,
        table: TableId,
        next: u64,
    ) -> Step<Ended> {
        let space = spaces.get(self.id).expect("its lock is held");
        // The whole table is checked at the first run, in one hold of its lock.
        if next == 0 && mm.survey_table(cx, space, table, false) == Found::Unsuitable {
            cx.test(Test::KhugepagedIsolate, Place::Machine, false);
            return Self::give_up(mm, cx, frame);
        }
        let end = (next + RUN).min(HUGE_PAGES);
        for n in next..end {
            let pte = space.tables.pte(table, self.vpn(n));
            if pte.is_none_or_zero() {
                continue;
            }
            let head = if pte.is_present() { mm.folio_head(pte.pfn()) } else { return self.put_back(mm, cx, frame) };
            if self.isolated.iter().any(|(held, _)| held.pfn == head) {
                continue;
            }
            if mm.memory.frames.has(head, FrameFlag::Locked) || mm.is_pinned(head) {
                return self.put_back(mm, cx, frame);
            }
            let Some(kind) = mm.isolate_lru(head) else { return self.put_back(mm, cx, frame) };
            mm.memory.frames.mark(head, FrameFlag::Locked, true);
            let order = mm.memory.frames.allocated(head).expect("it is a folio");
            self.isolated.push((Held { pfn: head, order }, kind.is_active()));
        }
        mm.charge_lru_moves(cx, mm.zone_position(frame), end - next);
        match end {
            HUGE_PAGES => {
                cx.test(Test::KhugepagedIsolate, Place::Machine, true);
                self.later(Phase::Copy { frame, table, next: 0 })
            }
            next => self.later(Phase::Isolate { frame, table, next }),
        }
    }

    /// Abandons the collapse: every page goes back where it was.
    fn put_back(&mut self, mm: &mut Mm, cx: &mut Cx, frame: Pfn) -> Step<Ended> {
        cx.test(Test::KhugepagedIsolate, Place::Machine, false);
        self.release_all(mm, cx);
        Self::give_up(mm, cx, frame)
    }

    fn copy(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        frame: Pfn,
        table: TableId,
        next: u64,
    ) -> Step<Ended> {
        let space = spaces.get_mut(self.id).expect("its lock is held");
        let end = (next + RUN).min(HUGE_PAGES);
        for n in next..end {
            let to = frame.plus(u32::try_from(n).expect("below 512"));
            let was = space.tables.pte(table, self.range.start.plus(n));
            if was.is_none_or_zero() {
                mm.memory.clear_hole(cx, to);
            } else {
                mm.memory.copy(cx, was.pfn(), to, Order::BASE);
                mm.memory.frames.note_move(cx.control(), MoveReason::Collapse, (was.pfn(), to), Order::BASE);
                space.rss -= 1;
                let head = mm.folio_head(was.pfn());
                let is_base = mm.memory.frames.allocated(head) == Some(Order::BASE);
                if is_base {
                    // Other processes that map the folio find it on its list again, and its slot can be freed.
                    self.release(mm, cx, head);
                }
                if let Some(folio) = mm.unmap_base(cx, was.pfn()) {
                    if !is_base {
                        self.release(mm, cx, head);
                    }
                    mm.put_folio(cx, folio);
                }
            }
            space.tables.set_pte(cx, table, self.range.start.plus(n), Pte::NONE);
        }
        if end < HUGE_PAGES {
            return self.later(Phase::Copy { frame, table, next: end });
        }
        // Huge folios of which the range mapped only a part; others map the rest.
        self.release_all(mm, cx);
        self.later(Phase::Install { frame, table })
    }

    /// Puts all isolated folios back on their lists (`release_pte_pages`).
    fn release_all(&mut self, mm: &mut Mm, cx: &mut Cx) {
        for (held, is_active) in self.isolated.drain(..) {
            release_page(mm, cx, held.pfn, is_active);
        }
    }

    /// Puts a folio back on its list.
    fn release(&mut self, mm: &mut Mm, cx: &mut Cx, head: Pfn) {
        let place = self.isolated.iter().position(|(held, _)| held.pfn == head).expect("it was isolated");
        let (_, is_active) = self.isolated.swap_remove(place);
        release_page(mm, cx, head, is_active);
    }

    fn install(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, frame: Pfn, table: TableId) -> Step<Ended> {
        mm.memory.assert_isolated(cx, frame, Order::HUGE);
        let space = spaces.get_mut(self.id).expect("its lock is held");
        let slot = space.tables.pmd_slot(self.range.start).expect("its table is there");
        mm.map_new_folio(cx, frame, space.family, self.range.start, Order::HUGE);
        space.rss += HUGE_PAGES;
        space.tables.deposit(slot, table);
        space.tables.set_pmd(cx, slot, Pte::written_huge(frame));
        Step::Done(Ended::Collapsed)
    }
}

/// Unlocks a folio and puts it back on its list (`release_pte_page`).
fn release_page(mm: &mut Mm, cx: &mut Cx, head: Pfn, is_active: bool) {
    mm.unlock_folio(cx, head);
    if mm.memory.variant().migrate_through_batch {
        mm.putback_by_batch(cx, head);
    } else {
        mm.putback_lru(head, is_active);
    }
}
