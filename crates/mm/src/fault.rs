//! Linux: handle_mm_fault() and below in mm/memory.c, do_huge_pmd_anonymous_page() in mm/huge_memory.c (v6.1).
//! Differs: a fault without memory ends the task, where the kernel would call the OOM killer once more.
//!
//! A phase that asks for memory (`slow.rs`) is taken again when there is an answer; so it allocates before it changes
//! anything.
//!
//! Floor 5: this room is page faults, and the other accesses of user code to memory: touches, repeated accesses, pins. Files
//! here use floors 0 to 4. Begin with [`FaultControl`].
//! 4. Begin with [`Fault`].

pub mod access;
pub mod gup;
mod huge;
pub mod touch;

use memory::{
    alloc::NoMemory,
    cost::Cause,
    cx::Cx,
    event::Event,
    frame::{FrameFlag, Held, Holdings, SpaceId},
    primitive,
    step::{Step, Wait},
    tally::{Place, Test},
};
use rules::{gfp::AllocRequest, mempolicy::Mempolicy, variant::CowReuse};
use units::{NodeId, Order, Pfn, Vpn};

use crate::{
    Mm, Spaces,
    file::page_cache::{FileFault, FileWent},
    folio::pte::Pte,
    numa::{numa_balancing::HintFault, numa_hint},
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, PmdSlot, TableId},
        vma::PageRange,
    },
    swap::{SwapIn, Went},
    thp::{HugeTry, huge_cow::HugeCopy},
};

/// The kind of an access of user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultDone {
    /// The access can be tried again; nearly always it succeeds.
    Handled,
    /// No VMA is there: SIGSEGV.
    BadAddress,
    /// The page cannot be read, has no room on the disk, or lies behind the end of its file: SIGBUS.
    BusError,
    /// There is no memory for a page or a page table.
    OutOfMemory,
}

/// One page fault, over several steps.
#[derive(Clone, Debug)]
pub struct FaultControl {
    vpn: Vpn,
    access: Access,
    phase: Phase,
    /// The copy of a huge page, while one is made.
    cow: Option<HugeCopy>,
    /// The way back from swap, while one is gone.
    swap_in: Option<SwapIn>,
    /// The way to a page of a file, while one is gone.
    file: Option<FileFault>,
    /// The memory policy of the task.
    policy: Mempolicy,
    /// Misplaced pages that a hinting fault found, while they are moved.
    moving: Option<Box<HintFault>>,
}

/// The next phase of a fault, with numbers in the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Enter the kernel, find the VMA.
    Enter,
    /// As `Enter` without the price of entry, after a wait for a device.
    Retry,
    /// Make the upper tables.
    Tables,
    /// 1: is a huge page there, or allowed?
    Pmd,
    /// 2: map the huge zero page.
    HugeZero,
    /// 3: allocate a huge page.
    HugeAlloc(HugeTry),
    /// 4, 5: allocate a page table to deposit.
    HugeDeposit { frame: Pfn },
    /// 5: clear the huge page, from `cleared` frames on. No other task sees it yet.
    HugeClear { frame: Pfn, deposit: TableId, cleared: u32 },
    /// 5: map the huge page, unless another task was faster.
    HugeMap { frame: Pfn, deposit: TableId },
    /// 7: a store to a write-protected huge page.
    HugeWrite { slot: PmdSlot, huge: Pte },
    /// 7, up to 5.7: copy the huge page.
    HugeCopy,
    /// 6: a base page.
    Base,
    /// Read a page from a swap device.
    Swapped,
    /// Map a page of a file.
    File,
    /// The page was being migrated: the access is tried again.
    Moved,
}

/// Result of a phase.
enum Next {
    Phase(Phase),
    /// Go on with this phase, after others may have run.
    Later(Phase),
    /// Begin the fault again after this wait for a device.
    Wait(Wait),
    /// Go on with this phase after this event.
    Block(Wait, Phase),
    /// Take this phase once more, when the memory that it has asked for is there.
    Again,
    Done(FaultDone),
}

impl From<NoMemory> for Next {
    fn from(no: NoMemory) -> Self {
        match no {
            NoMemory::Asked => Self::Again,
            NoMemory::Refused => Self::Done(FaultDone::OutOfMemory),
        }
    }
}

impl From<Result<(), NoMemory>> for Next {
    fn from(handled: Result<(), NoMemory>) -> Self {
        handled.map_or_else(Self::from, |()| Self::Done(FaultDone::Handled))
    }
}

const _: () = assert!(size_of::<FaultControl>() <= 1024, "a task's kernel half is small");

impl FaultControl {
    /// A fault at `vpn`. The caller holds the mmap lock for read from the first step on.
    pub fn new(vpn: Vpn, access: Access) -> Self {
        Self {
            vpn,
            access,
            phase: Phase::Enter,
            cow: None,
            swap_in: None,
            file: None,
            policy: Mempolicy::Local,
            moving: None,
        }
    }

    /// Sets the policy of the task.
    #[must_use]
    pub fn under(self, policy: Mempolicy) -> Self {
        Self { policy, ..self }
    }

    /// The rest of a fault at a page whose page table exists; the entry to the kernel is paid.
    pub(crate) fn again(vpn: Vpn, access: Access) -> Self {
        Self { phase: Phase::Base, ..Self::new(vpn, access) }
    }

    /// The rest of a fault in a file mapping without an entry; the entry to the kernel is paid.
    pub(crate) fn again_of_file(vpn: Vpn, access: Access) -> Self {
        Self { phase: Phase::File, ..Self::new(vpn, access) }
    }

    /// Takes a step.
    pub fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Step<FaultDone> {
        space.tables.make_under(self.policy);
        if let Some(mut moving) = self.moving.take() {
            cx.because(Cause::Balancing, |cx| moving.give_up(mm, space, cx));
            self.phase = Phase::Enter;
            return Step::Done(FaultDone::Handled);
        }
        // Bound: phases only go forward.
        loop {
            match self.run_phase(mm, space, cx) {
                Next::Phase(phase) => self.phase = phase,
                Next::Later(phase) => {
                    self.phase = phase;
                    return Step::More;
                }
                Next::Wait(wait) => {
                    self.phase = Phase::Retry;
                    return Step::Block(wait);
                }
                Next::Block(wait, phase) => {
                    self.phase = phase;
                    return Step::Block(wait);
                }
                Next::Again => return Step::More,
                Next::Done(done) => {
                    self.phase = Phase::Enter;
                    return Step::Done(done);
                }
            }
        }
    }

    /// The blocks that the fault holds between two steps, beside `space`.
    pub fn holdings(&self, space: &AddressSpace) -> Holdings {
        if let Some(moving) = &self.moving {
            return moving.holdings();
        }
        match self.phase {
            Phase::HugeDeposit { frame } => {
                Holdings { isolated: vec![Held { pfn: frame, order: Order::HUGE }], ..Holdings::default() }
            }
            Phase::HugeClear { frame, deposit, .. } | Phase::HugeMap { frame, deposit } => {
                let table = Held { pfn: space.tables.frame(deposit), order: Order::BASE };
                Holdings { isolated: vec![Held { pfn: frame, order: Order::HUGE }, table], ..Holdings::default() }
            }
            _ => self.cow.as_ref().map_or_else(Holdings::default, HugeCopy::holdings),
        }
    }

    /// Frees what the fault holds.
    pub fn abort(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Enter) {
            Phase::HugeDeposit { frame } => mm.memory.free(cx, frame, Order::HUGE),
            Phase::HugeClear { frame, deposit, .. } | Phase::HugeMap { frame, deposit } => {
                mm.memory.assert_isolated(cx, frame, Order::HUGE);
                space.tables.free_pte_table(mm, cx, deposit);
                mm.memory.free(cx, frame, Order::HUGE);
            }
            _ => {}
        }
        if let Some(mut cow) = self.cow.take() {
            cow.abort(mm, cx);
        }
    }

    fn run_phase(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        match self.phase {
            Phase::Enter => self.enter(space, cx, primitive::page_fault),
            Phase::Retry => self.enter(space, cx, primitive::retry_fault),
            Phase::Tables => match space.tables.make_pmd_slot(mm, cx, self.vpn) {
                Ok(_) => Next::Phase(Phase::Pmd),
                Err(no) => no.into(),
            },
            Phase::Pmd => self.look_at_pmd(mm, space, cx),
            Phase::HugeZero => self.map_huge_zero(mm, space, cx),
            Phase::HugeAlloc(which) => self.alloc_huge(mm, space, cx, which),
            Phase::HugeDeposit { frame } => Self::alloc_deposit(mm, space, cx, frame),
            Phase::HugeClear { frame, deposit, cleared } => Self::clear_huge(mm, cx, frame, deposit, cleared),
            Phase::HugeMap { frame, deposit } => self.map_huge(mm, space, cx, frame, deposit),
            Phase::HugeWrite { slot, huge } => self.write_huge(mm, space, cx, slot, huge),
            Phase::HugeCopy => self.copy_huge(mm, space, cx),
            Phase::Base => self.base(mm, space, cx),
            Phase::Swapped => self.swap_in(mm, space, cx),
            Phase::File => self.of_file(mm, space, cx),
            Phase::Moved => Next::Done(FaultDone::Handled),
        }
    }

    /// Moves the misplaced pages of a hinting fault, or ends the fault if there are none.
    fn move_next(&mut self, moving: Option<HintFault>) -> Next {
        self.moving = moving.map(Box::new);
        if self.moving.is_some() { Next::Later(Phase::Moved) } else { Next::Done(FaultDone::Handled) }
    }

    /// Whether the fault has pages to move, which needs all address spaces ([`Self::step_moving`]). A caller without these
    /// goes on with [`Self::step`], and nothing moves.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Takes a step of moving these pages.
    ///
    /// # Panics
    /// When there are no pages to move.
    pub(crate) fn step_moving(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        id: SpaceId,
    ) -> Step<FaultDone> {
        let moving = self.moving.as_mut().expect("the caller has asked");
        match cx.because(Cause::Balancing, |cx| moving.step(mm, spaces, cx, id)) {
            Step::More => Step::More,
            Step::Block(wait) => Step::Block(wait),
            Step::Done(()) => {
                self.moving = None;
                self.phase = Phase::Enter;
                Step::Done(FaultDone::Handled)
            }
        }
    }

    /// Leaves the pages that were to move where they are, if there are any.
    pub(crate) fn abort_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Some(mut moving) = self.moving.take() {
            moving.abort(mm, spaces, cx);
        }
    }

    fn swap_in(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        let went = self.swap_in.get_or_insert_default().step(mm, space, cx, (self.vpn, self.access));
        if went != Went::Asked {
            self.swap_in = None;
        }
        match went {
            Went::Asked => Next::Again,
            Went::Waits(until) => Next::Wait(Wait::Io { until, cause: Cause::Swap }),
            // A store to a page that others share is not over yet.
            Went::Mapped => Next::Phase(Phase::Base),
            Went::Ended(done) => Next::Done(done),
        }
    }

    fn of_file(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        // Another task may have unmapped the page, or been faster, while this one asked for memory.
        let vma = space.vmas.find(self.vpn).copied().filter(|vma| vma.file.is_some());
        let (Pmd::Table(table), Some(vma)) = (space.tables.pmd_of(self.vpn), vma) else {
            self.file = None;
            return Next::Done(FaultDone::Handled);
        };
        if !is_files(mm, space.tables.pte(table, self.vpn), self.access) {
            self.file = None;
            return Next::Phase(Phase::Base);
        }
        let at = (table, vma, self.vpn, self.access);
        match self.file.get_or_insert_default().step(mm, space, cx, at) {
            FileWent::Without(no) => no.into(),
            FileWent::Waits(wait @ Wait::Io { .. }) => Next::Wait(wait),
            FileWent::Waits(wait) => Next::Block(wait, Phase::Moved),
            FileWent::Done(done) => {
                self.file = None;
                Next::Done(done)
            }
        }
    }

    fn enter(&self, space: &AddressSpace, cx: &mut Cx, begin: fn(&mut Cx, Vpn)) -> Next {
        if space.vmas.find(self.vpn).is_none() {
            primitive::bad_access(cx);
            return Next::Done(FaultDone::BadAddress);
        }
        begin(cx, self.vpn);
        Next::Phase(Phase::Tables)
    }

    fn look_at_pmd(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        let slot = space.tables.pmd_slot(self.vpn).expect("made in the same step");
        match space.tables.pmd(slot) {
            Pmd::Huge(huge) if huge.is_migration() => Next::Block(mm.wait_on_migration(huge), Phase::Moved),
            // Since 3.14 a task waits before it counts (`pmd_trans_migrating` in do_huge_pmd_numa_page).
            Pmd::Huge(huge) if mm.memory.variant().numa_groups && mm.is_copied_mapped(huge) => {
                Next::Block(mm.wait_on_folio(huge.pfn()), Phase::Moved)
            }
            Pmd::Huge(huge) if huge.is_hinting() && mm.balances_numa() => {
                if !huge.is_zero_page() {
                    mm.numa_vma_faulted(space, cx.control(), self.vpn);
                }
                let at = (slot, self.vpn);
                let moving = cx.because(Cause::Balancing, |cx| HintFault::huge(mm, space, cx, at, self.policy));
                self.move_next(moving)
            }
            Pmd::Huge(huge) if mm.is_copied_mapped(huge) => Next::Block(mm.wait_on_folio(huge.pfn()), Phase::Moved),
            Pmd::Huge(huge) if huge.is_hinting() => {
                numa_hint::huge_hinting_fault(mm, space, cx, self.vpn);
                Next::Done(FaultDone::Handled)
            }
            Pmd::Huge(huge) if self.access == Access::Write && !huge.is_writable() => {
                Next::Phase(Phase::HugeWrite { slot, huge })
            }
            Pmd::Huge(_) => Next::Done(FaultDone::Handled),
            Pmd::Table(_) => Next::Phase(Phase::Base),
            Pmd::None => {
                let vma = space.vmas.find(self.vpn).expect("found on entry");
                if !cx.test(Test::HugeEligible, Place::Machine, mm.is_thp_eligible(vma, self.vpn)) {
                    return Next::Phase(Phase::Base);
                }
                space.vmas.prepare_anon(self.vpn);
                mm.khugepaged_enter(space);
                let zero = self.access == Access::Read && mm.thp.use_zero_page;
                Next::Phase(if zero { Phase::HugeZero } else { Phase::HugeAlloc(HugeTry::First) })
            }
        }
    }

    /// The request for a page of the task's own.
    fn wish(&self, mm: &Mm, cx: &Cx) -> AllocRequest {
        self.policy.apply(AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu())), self.vpn)
    }

    fn base(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) -> Next {
        // Another task may have unmapped the page, or been faster, while this one asked for memory.
        let slot = space.tables.pmd_slot(self.vpn).filter(|slot| !matches!(space.tables.pmd(*slot), Pmd::Huge(_)));
        let (Some(slot), Some(_)) = (slot, space.vmas.find(self.vpn)) else {
            return Next::Done(FaultDone::Handled);
        };
        let table = match space.tables.make_pte_table(mm, cx, slot) {
            Ok(table) => table,
            Err(no) => return no.into(),
        };
        let pte = space.tables.pte(table, self.vpn);
        if pte.is_hinting() && mm.balances_numa() {
            mm.numa_vma_faulted(space, cx.control(), self.vpn);
            let at = (table, self.vpn);
            let moving = cx.because(Cause::Balancing, |cx| HintFault::base(mm, space, cx, at, self.policy));
            return self.move_next(moving);
        }
        if pte.is_hinting() {
            // A store to a page that may not be written is tried again, and faults again.
            let is_local = mm.memory.node_of(pte.pfn()) == mm.memory.node_of_cpu(cx.cpu());
            numa_hint::hinting_faults(space, cx, table, PageRange::new(self.vpn, 1), is_local);
            return Next::Done(FaultDone::Handled);
        }
        if pte.is_migration() {
            return Next::Block(mm.wait_on_migration(pte), Phase::Moved);
        }
        match self.access {
            _ if pte.swap_slot().is_some() => Next::Phase(Phase::Swapped),
            access if space.vmas.find(self.vpn).is_some_and(|vma| vma.file.is_some()) && is_files(mm, pte, access) => {
                Next::Phase(Phase::File)
            }
            Access::Write if !pte.is_present() => {
                space.vmas.prepare_anon(self.vpn);
                map_base_as(mm, space, cx, (table, self.vpn), &self.wish(mm, cx)).into()
            }
            Access::Write if !pte.is_writable() => {
                write_protected(mm, space, cx, (table, self.vpn), &self.wish(mm, cx)).into()
            }
            Access::Read if !pte.is_present() => {
                space.tables.set_pte(cx, table, self.vpn, Pte::ZERO);
                Next::Done(FaultDone::Handled)
            }
            _ => Next::Done(FaultDone::Handled),
        }
    }
}

/// Whether an access to a file mapping goes to the file's page, and not to a private copy.
fn is_files(mm: &Mm, pte: Pte, access: Access) -> bool {
    let may_not_store = access == Access::Write && !pte.is_writable();
    pte == Pte::NONE || (pte.is_present() && may_not_store && mm.memory.frames.is_file(pte.pfn()))
}

/// Maps a new page where nothing was mapped (`do_anonymous_page`).
#[inline]
pub(crate) fn map_base(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx,
    table: TableId,
    vpn: Vpn,
    node: NodeId,
) -> Result<(), NoMemory> {
    map_base_as(mm, space, cx, (table, vpn), &AllocRequest::gfp_highuser_movable(node))
}

/// Maps a base page that is allocated by this request.
#[inline(always)]
#[expect(clippy::inline_always, reason = "in the fault that is by far the most frequent, whose request is known")]
fn map_base_as(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx,
    (table, vpn): (TableId, Vpn),
    request: &AllocRequest,
) -> Result<(), NoMemory> {
    let frame = mm.memory.alloc(cx, request)?;
    mm.memory.clear(cx, frame, Order::BASE);
    mm.map_new_folio(cx, frame, space.family, vpn, Order::BASE);
    space.tables.set_pte(cx, table, vpn, Pte::written(frame));
    space.rss += 1;
    Ok(())
}

/// Handles a store to a write-protected page (`do_wp_page`): the only process that maps its folio keeps it, others get a copy.
fn write_protected(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx,
    (table, vpn): (TableId, Vpn),
    request: &AllocRequest,
) -> Result<(), NoMemory> {
    let was = space.tables.pte(table, vpn);
    if !was.is_zero_page() && mm.may_reuse(cx, was.pfn()) {
        space.tables.set_pte(cx, table, vpn, was.rewritten());
        cx.count(Event::Pgreuse, 1);
        return Ok(());
    }
    space.vmas.prepare_anon(vpn);
    let frame = mm.memory.alloc(cx, request)?;
    mm.map_new_folio(cx, frame, space.family, vpn, Order::BASE);
    if was.is_zero_page() {
        mm.memory.clear(cx, frame, Order::BASE);
        space.rss += 1;
    } else {
        mm.memory.copy(cx, was.pfn(), frame, Order::BASE);
    }
    primitive::flush_tlb_range(cx, 1);
    space.tables.set_pte(cx, table, vpn, Pte::written(frame));
    if !was.is_zero_page() {
        primitive::count_mappings(cx, 1);
        if let Some(folio) = mm.unmap_base(cx, was.pfn()) {
            mm.put_folio(cx, folio);
        }
    }
    Ok(())
}

impl Mm {
    /// Whether the only process that maps a page of this folio may write to it without a copy.
    fn may_reuse(&mut self, cx: &mut Cx, pfn: Pfn) -> bool {
        let head = self.folio_head(pfn);
        let entries = |mm: &Self| mm.folio_mappings(head) + mm.swap.slot_of(head).map_or(0, |slot| mm.swap.count(slot));
        match self.memory.variant().cow_reuse {
            CowReuse::ByMappings => {
                let is_alone = entries(self) == 1;
                if is_alone {
                    self.free_swap(cx, head);
                }
                return is_alone;
            }
            CowReuse::ByReferences => {}
            CowReuse::ByReferencesDrained => {
                if self.memory.frames.has(head, FrameFlag::InBatch) {
                    self.lru_add_drain(cx);
                }
                if entries(self) == 1 {
                    self.free_swap(cx, head);
                }
            }
        }
        self.folio_references(head) == 1
    }
}

#[cfg(test)]
mod tests;
