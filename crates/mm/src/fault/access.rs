//! Linux: none; user code that accesses memory again and again, and the faults that it takes.
//! Differs: computed as a rate. The time of a visit is known as long as pages share node, size and hinting state, and so is
//! that of many visits. A random order is one of huge pages here; within each, base pages come by address.
//!
//! [`Touch`](crate::fault::touch::Touch) is for the first use of memory, page by page. This is for later use: billions of
//! visits, of which nearly none faults. Between two faults nothing changes that others see, so a step goes on for as long as
//! nothing else happens on its CPU: up to a tick.

pub(crate) mod order;
mod visit;

use memory::{
    bandwidth::flows::{End, Written},
    cost::{Pattern, walk::Visit},
    cx::Cx,
    frame::{Holdings, SpaceId},
    step::Step,
};
use rules::mempolicy::Mempolicy;
use units::{Picos, Time, Vpn};

use self::order::Order;
pub use self::order::Runs;
use crate::{
    Mm, Spaces,
    fault::{self, FaultControl, FaultDone},
    space::{address_space::AddressSpace, vma::PageRange},
};

/// How long user code accesses a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This number of rounds over the whole range.
    Rounds(u64),
    /// Until this time has passed.
    Time(Picos),
}

/// User code that accesses all pages of a range, round after round.
#[derive(Clone, Debug)]
pub struct Accesses {
    order: Order,
    pattern: Pattern,
    amount: Amount,
    next: Vpn,
    visits: u64,
    phase: Phase,
    /// Start of the first step, and end of the last.
    span: Option<(Time, Time)>,
    /// The common properties of all pages of the range, as long as no entry is written; and the common properties of the pages
    /// that this round has met.
    known: Option<Alike>,
    met: Option<Met>,
    /// The memory policy of the task.
    policy: Mempolicy,
    /// Prices of visits to base pages and to huge pages, before nodes are known; none if the machine has no page walk. Computed
    /// once: they follow from the range alone.
    walked: Option<[Option<Visit>; 2]>,
}

/// Common properties of pages that can be accessed without changing any entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alike {
    /// The position of the pages' node.
    node: usize,
    /// The position of their page tables' node.
    tables: usize,
    is_huge: bool,
    /// The page tables' count of changes when the properties were found.
    changes: u64,
}

/// The pages that a round has met since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Nothing { changes: u64 },
    Alike(Alike),
}

/// The next phase of the accesses.
#[derive(Clone, Debug)]
enum Phase {
    /// Access memory in user code.
    User,
    /// Take hinting faults at the next pages, under the mmap lock.
    Hints,
    /// Take another fault at the next page.
    Fault(Box<FaultControl>),
}

/// The instants up to which a step may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// End of the step for effects that others see.
    pub horizon: Time,
    /// End of the step for user code.
    pub until: Time,
}

impl Accesses {
    /// Visits to all pages of these runs. `draw`: the seed of a random order.
    pub fn new(runs: Runs, pattern: Pattern, amount: Amount, draw: u64) -> Self {
        let order = Order::new(runs, pattern.is_random().then_some(draw));
        let next = order.piece().start;
        Self {
            order,
            pattern,
            amount,
            next,
            visits: 0,
            phase: Phase::User,
            span: None,
            known: None,
            met: None,
            policy: Mempolicy::Local,
            walked: None,
        }
    }

    /// Sets the policy of the task.
    #[must_use]
    pub fn under(self, policy: Mempolicy) -> Self {
        Self { policy, ..self }
    }

    /// Visits to pages so far.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Accesses to memory so far.
    pub fn accesses(&self) -> u64 {
        self.visits * self.pattern.accesses()
    }

    /// The range of a sweep, and how many of its pages have been visited; none if this is not a sweep by rounds.
    pub fn sweep(&self) -> Option<(PageRange, u64)> {
        let is_by_rounds = matches!(self.amount, Amount::Rounds(_));
        (self.pattern.is_sweep() && is_by_rounds).then(|| (self.order.range(), self.visits))
    }

    /// Time since the first visit began.
    pub fn elapsed(&self) -> Picos {
        self.span.map_or(Picos(0), |(from, until)| until.since(from))
    }

    /// The work left, in units that take about the same time each.
    pub fn left(&self) -> u64 {
        match self.amount {
            Amount::Rounds(rounds) => rounds * self.order.pages() - self.visits,
            Amount::Time(span) => Picos(span.0.saturating_sub(self.elapsed().0)).as_nanos(),
        }
    }

    /// Whether a fault is under way or comes next, for which the caller holds the mmap lock for read.
    pub fn is_in_fault(&self) -> bool {
        !matches!(self.phase, Phase::User)
    }

    /// Whether a fault has begun and is not over.
    pub fn keeps_lock(&self) -> bool {
        matches!(self.phase, Phase::Fault(_))
    }

    /// Whether the VMA of the next page has anonymous pages already, and no task has locked the VMA for write
    /// (`lock_vma_under_rcu`).
    pub fn has_tied_vma(&self, space: &AddressSpace) -> bool {
        let vma = space.vmas.find(self.next).filter(|vma| vma.anon.is_some() && vma.file.is_none());
        let is_locked = |range: PageRange| space.locked_vma.is_some_and(|page| range.contains(page));
        vma.is_some_and(|vma| !is_locked(vma.range()))
    }

    /// Takes a step up to a limit, at least one page, one phase of a fault, or up to where a lock is needed. Returns `Handled`
    /// when all visits are done. The lock is held if [`Self::is_in_fault`] said so before.
    pub fn step(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, limits: Limits) -> Step<FaultDone> {
        let (begin, _) = *self.span.get_or_insert((cx.now(), cx.now()));
        let limits = self.begin_flow(mm, cx, limits);
        let step = self.go_on(mm, space, cx, limits, self.deadline(begin));
        self.span = Some((begin, cx.now()));
        if self.is_flow(mm) {
            let end = match step {
                Step::Done(_) => End::Done,
                _ if self.keeps_lock() => End::HeldUp,
                _ => End::GoesOn,
            };
            self.end_flow_step(mm, space, cx, end);
        }
        step
    }

    fn end_flow_step(&self, mm: &mut Mm, space: &AddressSpace, cx: &Cx, end: End) {
        let (cpu, from) = (cx.cpu().0 as usize, mm.memory.nodes().place(mm.memory.node_of_cpu(cx.cpu())));
        let range = self.order.range();
        let writes = (self.pattern == Pattern::Sweep)
            .then(|| Written { root: space.tables.root_frame(), pages: (range.start, range.end) });
        mm.memory.flows_mut().end_step(cpu, (from, writes), cx.now(), end);
    }

    /// Whether the accesses stream through memory whose bandwidth may be short.
    fn is_flow(&self, mm: &Mm) -> bool {
        let users = mm.memory.beside().cache_users;
        let is_cached = || mm.memory.latency().is_cached(units::Frames(self.order.pages()), users);
        mm.memory.flows().is_limited() && self.pattern.is_sweep() && (self.pattern.is_never_cached() || !is_cached())
    }

    /// Limits a step of a flow to the next change of the shares; a flow that is not known yet goes up to where the others are.
    fn begin_flow(&self, mm: &mut Mm, cx: &Cx, limits: Limits) -> Limits {
        if !self.is_flow(mm) {
            return limits;
        }
        let due = mm.memory.begin_flow_step(cx.now());
        let until = due.map_or(limits.until, |due| limits.until.min(due));
        let is_known = mm.memory.flows().is_live(cx.cpu().0 as usize);
        Limits { until: if is_known { until } else { limits.horizon }, ..limits }
    }

    fn deadline(&self, begin: Time) -> Time {
        match self.amount {
            Amount::Rounds(_) => Time(u64::MAX),
            Amount::Time(span) => begin + span,
        }
    }

    fn go_on(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        limits: Limits,
        deadline: Time,
    ) -> Step<FaultDone> {
        let has_lock = self.is_in_fault();
        // If NUMA balancing scans tasks, a tick also ends the step after a fault.
        let horizon = if mm.balances_numa() { limits.horizon.min(limits.until) } else { limits.horizon };
        let limit = deadline.min(if has_lock { horizon } else { limits.until });
        let units = self.units(mm, cx);
        let mut round = None;
        // Bound: each turn visits a page, or ends a phase of a fault, or a round.
        while !self.is_over(cx.now(), deadline) {
            match &mut self.phase {
                Phase::User if !has_lock && self.order.is_round_start(self.next) => {
                    self.begin_to_meet(space);
                    self.go_round(mm, cx, limit, &mut round);
                    if !self.is_over(cx.now(), deadline) && !cx.is_over(limit) {
                        self.visit(mm, space, cx, &units, limit);
                    }
                }
                Phase::User => self.visit(mm, space, cx, &units, limit),
                Phase::Hints => {
                    self.take_hints(mm, space, cx, &units, (deadline.min(limits.until), limits.horizon));
                }
                Phase::Fault(fault) => match fault.step(mm, space, cx) {
                    Step::More => return Step::More,
                    Step::Block(wait) => return Step::Block(wait),
                    Step::Done(FaultDone::Handled) => self.phase = Phase::User,
                    Step::Done(failed) => return Step::Done(failed),
                },
            }
            if self.is_in_fault() {
                round = None;
                if !has_lock {
                    return Step::More;
                }
            } else if cx.is_over(limit) && !self.is_over(cx.now(), deadline) {
                return Step::More;
            }
        }
        Step::Done(FaultDone::Handled)
    }

    fn is_over(&self, now: Time, deadline: Time) -> bool {
        match self.amount {
            Amount::Rounds(rounds) => self.visits == rounds * self.order.pages(),
            Amount::Time(_) => now >= deadline,
        }
    }

    fn access(&self) -> fault::Access {
        if self.stores() { fault::Access::Write } else { fault::Access::Read }
    }

    fn stores(&self) -> bool {
        self.pattern.stores()
    }

    /// Whether a fault under way has pages to move, which needs all address spaces.
    pub fn is_moving(&self) -> bool {
        matches!(&self.phase, Phase::Fault(fault) if fault.is_moving())
    }

    /// Takes a step of moving these pages, if [`Self::is_moving`].
    ///
    /// # Panics
    /// When there are no pages to move.
    pub fn step_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, id: SpaceId) -> Step<FaultDone> {
        if self.is_flow(mm) {
            mm.memory.begin_flow_step(cx.now());
        }
        let Phase::Fault(fault) = &mut self.phase else { unreachable!("a fault moves pages") };
        let step = fault.step_moving(mm, spaces, cx, id);
        let (begin, _) = self.span.expect("a fault is entered in a step");
        self.span = Some((begin, cx.now()));
        if self.is_flow(mm) {
            let space = spaces.get(id).expect("a live task has an address space");
            self.end_flow_step(mm, space, cx, End::HeldUp);
        }
        match step {
            Step::Done(FaultDone::Handled) => self.phase = Phase::User,
            Step::Done(failed) => return Step::Done(failed),
            Step::Block(wait) => return Step::Block(wait),
            Step::More => {}
        }
        Step::More
    }

    /// Leaves the pages that were to move where they are, if there are any.
    pub fn abort_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Phase::Fault(fault) = &mut self.phase {
            fault.abort_moving(mm, spaces, cx);
        }
    }

    /// Frames that a fault under way holds between two steps.
    pub fn holdings(&self, space: &AddressSpace) -> Holdings {
        match &self.phase {
            Phase::Fault(fault) => fault.holdings(space),
            Phase::User | Phase::Hints => Holdings::default(),
        }
    }

    /// Frees what a fault under way holds.
    pub fn abort(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx) {
        if let Phase::Fault(mut fault) = std::mem::replace(&mut self.phase, Phase::User) {
            fault.abort(mm, space, cx);
        }
    }
}

#[cfg(test)]
mod tests;
