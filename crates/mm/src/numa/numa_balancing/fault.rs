//! Linux: do_huge_pmd_numa_page(), mm/huge_memory.c; do_numa_page() and do_pmd_numa_page(), mm/memory.c; mpol_misplaced(),
//! mm/mempolicy.c (v3.10, v6.1).
//! Differs: a task that waits for a page being moved by another task keeps no reference to it, so that the move does not fail
//! for that. The entry of a base page hints no longer while it moves, as up to 3.12.
//!
//! If several tasks fault on one huge page, each counts as long as the entry hints. It does so until the page is moved, or
//! until a task for which the page is well placed clears the hint: then the move is in vain.

use memory::{
    cost::Cause,
    cx::Cx,
    event::Event,
    fact::{Fact, HintVerdict},
    frame::{ControlId, Holdings, SpaceId},
    last_fault::{Last, sharing::Parts},
    primitive,
    step::Step,
    tally::Test,
};
use rules::mempolicy::Mempolicy;
use units::{NodeId, Order, Pfn, Vpn};

use super::task::Fault;
use crate::{
    Mm, Spaces,
    folio::pte::Pte,
    migrate::misplaced::{Misplaced, Misplacement},
    reclaim::split::Split,
    space::{
        address_space::AddressSpace,
        page_table::{Level, Pmd, PmdSlot, TableId},
        vma::PageRange,
    },
};

/// Misplaced pages that a hinting fault has found, and tries to move.
#[derive(Clone, Debug)]
pub(crate) struct HintFault {
    /// The entry of the huge page; none if these are base pages.
    huge: Option<Pte>,
    /// Pages of the fault that are left; the last element is taken next.
    rest: Vec<Hinted>,
    to: NodeId,
    moving: Option<Box<Misplaced>>,
    /// The record of the last fault on the page that moves, as it was before the move.
    known: Option<(Last, Option<Parts>)>,
    /// The huge page is falsely shared, and is split.
    splits: bool,
}

/// A page on which a task has faulted.
#[derive(Clone, Copy, Debug)]
struct Hinted {
    vpn: Vpn,
    fault: Fault,
}

impl HintFault {
    /// Handles a hinting fault on a huge page; returns the move that is left to do, if any (`do_huge_pmd_numa_page`).
    pub(crate) fn huge(
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (slot, vpn): (PmdSlot, Vpn),
        policy: Mempolicy,
    ) -> Option<Self> {
        let Pmd::Huge(huge) = space.tables.pmd(slot) else { unreachable!("the caller has found a huge page") };
        space.numa.ptl.acquire(cx, Cause::PageTable);
        let left = Self::look_at_huge(mm, space, cx, (slot, vpn, huge), policy);
        space.numa.ptl.release(cx, Cause::PageTable);
        left
    }

    fn look_at_huge(
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (slot, vpn, huge): (PmdSlot, Vpn, Pte),
        policy: Mempolicy,
    ) -> Option<Self> {
        if huge.is_zero_page() && mm.memory.variant().numa_spares_huge_zero {
            clear_huge(space, cx, slot);
            return None;
        }
        let (here, on) = (mm.memory.node_of_cpu(cx.cpu()), mm.memory.node_of(huge.pfn()));
        count(cx, on == here);
        let (to, last) = mm.numa_misplaced(cx, policy, huge.pfn(), Order::HUGE);
        let stays_on = if mm.memory.variant().numa_huge_fault_here { here } else { on };
        let fault =
            Fault { is_local: on == here, is_read_only: !huge.is_writable(), ..Fault::at(stays_on, HUGE_PAGES, last) };
        let splits = !huge.is_zero_page() && mm.is_falsely_shared(cx, huge.pfn(), vpn);
        let control = cx.control();
        cx.fact(|| {
            let hinted = match to {
                _ if splits => HintVerdict::FalselyShared,
                Some(_) => HintVerdict::Moves,
                None => mm.why_hinted(control, policy, last, (on, here)),
            };
            Fact::HintFault { node: on, here, pages: HUGE_PAGES, hinted }
        });
        let to = if splits { Some(on) } else { to };
        let Some(to) = to.filter(|_| !huge.is_zero_page()) else {
            clear_huge(space, cx, slot);
            mm.numa_fault(space, cx, fault);
            return None;
        };
        Some(Self { huge: Some(huge), rest: vec![Hinted { vpn, fault }], to, moving: None, known: None, splits })
    }

    /// Handles a hinting fault on a base page (`do_numa_page`), or on all hinting pages of its table (`do_pmd_numa_page`).
    pub(crate) fn base(
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (table, vpn): (TableId, Vpn),
        policy: Mempolicy,
    ) -> Option<Self> {
        let here = mm.memory.node_of_cpu(cx.cpu());
        let is_batch = space.tables.hints_at_once(table);
        let pages = if is_batch {
            space.tables.hint_all_at_once(table, false);
            Level::Pmd.entry_range(vpn)
        } else {
            PageRange::new(vpn, 1)
        };
        let mut rest = Vec::new();
        for vpn in (pages.start.0..pages.end.0).rev().map(Vpn) {
            let pte = space.tables.pte(table, vpn);
            if !pte.is_hinting() {
                continue;
            }
            space.tables.clear_hints(table, PageRange::new(vpn, 1));
            primitive::write_ptes(cx, 1);
            let on = mm.memory.node_of(pte.pfn());
            count(cx, on == here);
            let (to, last) = mm.numa_misplaced(cx, policy, pte.pfn(), Order::BASE);
            let control = cx.control();
            cx.fact(|| {
                let stays = || mm.why_hinted(control, policy, last, (on, here));
                Fact::HintFault { node: on, here, pages: 1, hinted: to.map_or_else(stays, |_| HintVerdict::Moves) }
            });
            let is_shared = space.vmas.find(vpn).and_then(|vma| vma.file).is_some_and(|file| file.is_shared)
                && mm.mappings_of(pte.pfn()) > 1;
            let fault = Fault {
                is_local: on == here,
                is_read_only: !pte.is_writable(),
                is_shared,
                // Up to 3.12 a page that stays counts for the node of the task.
                ..Fault::at(if mm.memory.variant().numa_groups { on } else { here }, 1, last)
            };
            if to.is_some() {
                rest.push(Hinted { vpn, fault });
            } else if !is_batch {
                // Of a whole table, only pages that were to move change the period (`do_pmd_numa_page`).
                mm.numa_fault(space, cx, fault);
            }
        }
        let is_all = rest.is_empty();
        (!is_all).then_some(Self { huge: None, rest, to: here, moving: None, known: None, splits: false })
    }

    /// Takes a step of the moves. The mmap lock is held for read.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, id: SpaceId) -> Step<()> {
        let Some(Hinted { vpn, fault }) = self.rest.last().copied() else { return Step::Done(()) };
        if self.splits {
            self.rest.clear();
            self.split(mm, spaces, cx, (id, vpn), fault);
            return Step::Done(());
        }
        let moving = self.moving.get_or_insert_with(|| Box::new(Misplaced::new(id, vpn, self.to)));
        let order = if self.huge.is_some() { Order::HUGE } else { Order::BASE };
        let was = spaces.get(id).expect("a live task has an address space").tables.lookup(vpn);
        if was.is_present() && !was.is_zero_page() {
            self.known = Some((mm.last_fault(was.pfn(), order), mm.parts_of(was.pfn(), order)));
        }
        let ended = match moving.step(mm, spaces, cx) {
            Step::More => return Step::More,
            Step::Block(wait) => return Step::Block(wait),
            Step::Done(ended) => ended,
        };
        self.moving = None;
        self.rest.pop();
        let space = spaces.get_mut(id).expect("as before");
        let is_moved = matches!(ended, Misplacement::Moved { .. });
        if is_moved {
            let now = space.tables.lookup(vpn).pfn();
            // Up to 3.12 it is the node that counts, whatever CPU the task has by now.
            let by_node = Last::new(mm.memory.nodes().place(self.to), cx.control());
            let own = if mm.memory.variant().numa_groups { mm.last_by(cx) } else { by_node };
            let (last, parts) = self.known.take().unwrap_or((own, None));
            mm.set_last_fault(now, order, last);
            mm.keep_parts(now, parts);
        }
        self.end_one(mm, space, cx, Hinted { vpn, fault }, is_moved);
        if self.rest.is_empty() { Step::Done(()) } else { Step::More }
    }

    /// Splits the huge page, whose base pages then still hint; a page with other references stays as it is.
    fn split(&self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, (id, vpn): (SpaceId, Vpn), fault: Fault) {
        let huge = self.huge.expect("only a huge page is split");
        let space = spaces.get(id).expect("a live task has an address space");
        let is_there = |slot: &PmdSlot| space.tables.pmd(*slot) == Pmd::Huge(huge);
        let Some(slot) = space.tables.pmd_slot(vpn).filter(is_there) else { return };
        if mm.split_folio(spaces, cx, huge.pfn()) == Split::Busy {
            let space = spaces.get_mut(id).expect("as before");
            clear_huge(space, cx, slot);
            mm.numa_fault(space, cx, fault);
        }
    }

    /// Ends with a page, moved or not; if it was not moved, its hint is cleared.
    fn end_one(&self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, hinted: Hinted, is_moved: bool) {
        let Hinted { vpn, fault } = hinted;
        if let (Some(huge), false) = (self.huge, is_moved) {
            let slot = space.tables.pmd_slot(vpn).filter(|slot| space.tables.pmd(*slot) == Pmd::Huge(huge));
            match slot {
                Some(slot) => clear_huge(space, cx, slot),
                // Another task has moved it, or restored its entry.
                None if mm.memory.variant().numa_groups && !mm.memory.variant().numa_huge_at_once => return,
                None => {}
            }
        }
        let node = if is_moved { self.to } else { fault.node };
        mm.numa_fault(space, cx, Fault { node, is_moved, has_failed: !is_moved, ..fault });
    }

    /// Gives up moves that have not begun.
    pub(crate) fn give_up(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) {
        assert!(self.moving.is_none(), "who has begun to move a page goes on with that");
        while let Some(page) = self.rest.pop() {
            self.end_one(mm, space, cx, page, false);
        }
    }

    /// Stops, and leaves the page where it is.
    pub(crate) fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Some(mut moving) = self.moving.take() {
            moving.abort(mm, spaces, cx);
        }
        self.rest.clear();
    }

    /// Frames that the fault holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        self.moving.as_ref().map_or_else(Holdings::default, |moving| moving.holdings())
    }
}

const HUGE_PAGES: u64 = AddressSpace::HUGE_PAGES;

fn count(cx: &mut Cx, is_local: bool) {
    cx.count(Event::NumaHintFaults, 1);
    cx.count(Event::NumaHintFaultsLocal, is_local.into());
}

fn clear_huge(space: &mut AddressSpace, cx: &mut Cx, slot: PmdSlot) {
    space.tables.hint_huge(slot, false);
    primitive::write_ptes(cx, 1);
}

impl Mm {
    /// The node that a page should be on, if it is on another, and the record of the last fault: a page follows tasks of a
    /// node that fault on it twice in a row (`mpol_misplaced`).
    fn numa_misplaced(&mut self, cx: &mut Cx, policy: Mempolicy, head: Pfn, order: Order) -> (Option<NodeId>, Last) {
        let (here, on) = (self.memory.node_of_cpu(cx.cpu()), self.memory.node_of(head));
        let (own, rules) = (self.last_by(cx), *self.memory.variant());
        let is_elsewhere = on != here;
        // Pages under other policies have no MPOL_F_MOF.
        let has_mof = cx.test(Test::MisplacedPolicy, on, policy.is_local());
        let may_move = has_mof && cx.test(Test::MisplacedNode, on, is_elsewhere);
        if !has_mof || (rules.numa_local_keeps_last && !is_elsewhere) {
            return (None, self.last_fault(head, order));
        }
        let faults = self.memory.last_faults_mut().expect("only a kernel that balances asks");
        let last = faults.exchange(head, order, own);
        let follows = if rules.numa_groups {
            is_elsewhere && self.numa_may_come(cx.control(), last, (on, here))
        } else {
            let is_first = rules.numa_private_by_pid && last == Last::NOBODY;
            is_first || last.place() == own.place()
        };
        if may_move {
            cx.test(Test::MisplacedTwice, on, follows);
        }
        ((follows && is_elsewhere).then_some(here), last)
    }

    /// Why a page is to move or to stay, once that is decided; `last` is the fault before this one.
    fn why_hinted(&self, control: ControlId, policy: Mempolicy, last: Last, nodes: (NodeId, NodeId)) -> HintVerdict {
        let (on, here) = nodes;
        let was_on = last.place().map(|place| {
            let is_cpu = self.memory.variant().numa_groups;
            let cpu = units::CpuId(u32::try_from(place).expect("a CPU's number"));
            if is_cpu { self.memory.node_of_cpu(cpu) } else { self.memory.nodes().ids().nth(place).unwrap_or(on) }
        });
        match () {
            () if !policy.is_local() => HintVerdict::Policy,
            () if on == here => HintVerdict::IsLocal,
            () if was_on != Some(here) || !(self.memory.variant().numa_groups || last.may_be(control)) => {
                HintVerdict::LastElsewhere
            }
            () => HintVerdict::Group,
        }
    }

    /// The record of a fault of this step's task (`cpu_pid_to_cpupid`; with a node instead of the CPU up to 3.12).
    fn last_by(&self, cx: &Cx) -> Last {
        let place = if self.memory.variant().numa_groups {
            cx.cpu().0 as usize
        } else {
            self.memory.nodes().place(self.memory.node_of_cpu(cx.cpu()))
        };
        Last::new(place, cx.control())
    }

    fn last_fault(&self, head: Pfn, order: Order) -> Last {
        self.memory.last_faults().map_or(Last::NOBODY, |faults| faults.get(head, order))
    }

    fn set_last_fault(&mut self, head: Pfn, order: Order, last: Last) {
        if let Some(faults) = self.memory.last_faults_mut() {
            faults.exchange(head, order, last);
        }
    }

    /// Whether a huge page is used by several tasks, each in parts of its own.
    fn is_falsely_shared(&mut self, cx: &Cx, head: Pfn, vpn: Vpn) -> bool {
        let own = self.last_by(cx);
        self.memory.is_falsely_shared(head, vpn, own)
    }

    fn parts_of(&self, head: Pfn, order: Order) -> Option<Parts> {
        let sharing =
            self.memory.last_faults().filter(|_| order == Order::HUGE).and_then(|faults| faults.sharing.as_ref());
        sharing.map(|sharing| sharing.parts(head))
    }

    /// Copies the records of a huge page's parts to its new place.
    fn keep_parts(&mut self, head: Pfn, parts: Option<Parts>) {
        let sharing = self.memory.last_faults_mut().and_then(|faults| faults.sharing.as_mut());
        if let (Some(sharing), Some(parts)) = (sharing, parts) {
            sharing.keep(head, parts);
        }
    }

    /// Splits the record of a huge page: each base page gets the last fault of its part, if known, and else that of the huge
    /// page (`__split_huge_page_tail`).
    pub(crate) fn split_last_fault(&mut self, head: Pfn) {
        let Some(faults) = self.memory.last_faults_mut() else { return };
        let whole = faults.get(head, Order::HUGE);
        for n in 0..Order::HUGE.frames() {
            let part = faults.sharing.as_ref().map_or(Last::NOBODY, |sharing| sharing.last(head, n));
            faults.exchange(head.plus(n), Order::BASE, if part == Last::NOBODY { whole } else { part });
        }
        if let Some(sharing) = &mut faults.sharing {
            sharing.forget(head);
        }
    }
}

const _: () = assert!(size_of::<ControlId>() == 4, "part of it stands for a PID");
