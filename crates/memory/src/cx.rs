//! Linux: none; what `current` and the arguments of a call are to a kernel function.
//! Differs: one struct holds all that a step is told, and all that it tells its caller.
//!
//! Every mechanism gets a [`Cx`]. Time, prices, causes and counters are its [`Meter`] (`cost.rs`), which knows no mechanism;
//! what a step may ask of memory (`alloc/lent.rs`) and of the TLBs of other CPUs (`tlb.rs`) belongs to those who answer.

use units::{CpuId, ExtfragKind, Picos, Time, Vpn};

use crate::{
    alloc::lent::Lent,
    cost::{AccessPrice, Cause, Faults, Meter, Prices, Spent, Work},
    decision::Decision,
    event::{Counters, Event},
    fact::{Fact, Facts},
    frame::ControlId,
    tally::{Place, Test},
    tlb::{Loaded, Running, Tlbs},
};

/// The owner of a step, and what other CPUs do meanwhile.
#[derive(Debug)]
pub struct Circumstances<'a> {
    /// See [`Cx::acting_for`].
    pub control: ControlId,
    /// See [`Cx::with_sharers`].
    pub sharers: u32,
    /// The address space of each CPU, needed if the step may change other spaces than its own.
    pub running: Option<Running<'a>>,
    /// Another task waits for this CPU (`need_resched`).
    pub need_resched: bool,
    /// Instant up to which no other task or CPU has a turn, as far as is known.
    pub alone_until: Time,
    /// Another task has run on this CPU since the last step: the kernel would have seen `need_resched` at the end of that step.
    pub was_preempted: bool,
}

impl Circumstances<'_> {
    /// Circumstances of a step that changes its own address space alone, while no other task waits for the CPU.
    #[must_use]
    pub const fn plain(control: ControlId, sharers: u32) -> Self {
        Self { control, sharers, running: None, need_resched: false, alone_until: Time(0), was_preempted: false }
    }
}

/// The context of a step: its time and CPU, its owner, its requests to memory and to other CPUs. Only through it time passes and
/// events are counted.
#[derive(Debug)]
pub struct Cx<'a> {
    meter: Meter<'a>,
    control: ControlId,
    need_resched: bool,
    was_preempted: bool,
    alone_until: Time,
    /// Which CPUs have which page tables loaded.
    pub tlbs: Tlbs<'a>,
    /// The step's request for memory, and the slow path's answer.
    pub memory: Lent,
    has_free_block: bool,
    /// Where the facts of the step go, if an observer wants them.
    facts: Option<&'a mut Facts>,
}

impl<'a> Cx<'a> {
    /// A context for one step that starts at `now` on `cpu`, owned by the control with number 0.
    #[inline]
    pub fn new(cpu: CpuId, now: Time, prices: &'a Prices, counters: &'a mut Counters) -> Self {
        Self {
            meter: Meter::new(cpu, now, prices, counters),
            control: ControlId(0),
            need_resched: false,
            was_preempted: false,
            alone_until: Time(0),
            tlbs: Tlbs::ALONE,
            memory: Lent::default(),
            has_free_block: false,
            facts: None,
        }
    }

    /// Notes that a block became free that a hypervisor is to be told of.
    #[inline]
    pub(crate) fn note_free_block(&mut self) {
        self.has_free_block = true;
    }

    /// Has the step made one? Then `mm::Mm::notify_reporting` is to be told.
    #[inline]
    pub fn has_free_block(&self) -> bool {
        self.has_free_block
    }

    /// Lends the step a list for its facts.
    #[inline]
    pub fn tell_facts(&mut self, facts: Option<&'a mut Facts>) {
        self.facts = facts;
    }

    /// Records a fact of this step, if an observer wants facts.
    #[inline]
    pub fn fact(&mut self, fact: impl FnOnce() -> Fact) {
        if self.facts.is_some() {
            self.record(fact());
        }
    }

    /// Whether a decision of this step is taken otherwise than the kernel takes it: in a branch of a run alone.
    #[inline]
    pub fn decides_otherwise(&self, decision: Decision) -> bool {
        let (now, by) = (self.now(), self.control.0);
        self.facts.as_ref().is_some_and(|facts| facts.decides_otherwise(now, by, decision))
    }

    /// Records a fact of this step, if an observer wants details of its operation.
    #[inline]
    pub fn detail(&mut self, fact: impl FnOnce() -> Fact) {
        if self.facts.is_some() && self.wants_details() {
            self.record(fact());
        }
    }

    #[cold]
    fn wants_details(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.is_detailed())
    }

    #[cold]
    fn record(&mut self, fact: Fact) {
        let (now, by) = (self.now(), self.control.0);
        if let Some(facts) = &mut self.facts {
            facts.tell(now, by, fact);
        }
    }

    /// Counts a test of this step where it is decided, if an observer wants counts; returns whether it passes.
    #[inline]
    pub fn test(&mut self, test: Test, at: impl Into<Place>, passes: bool) -> bool {
        if let Some(facts) = &mut self.facts {
            count_test(facts, test, at.into(), passes);
        }
        passes
    }

    /// Whether an observer wants the counts of tests: where more than the decision itself is read for them.
    #[inline]
    pub fn counts_tests(&self) -> bool {
        self.facts.is_some()
    }

    /// Sets the control that the step belongs to. The caller numbers its controls: a task, by its own number.
    #[inline]
    #[must_use]
    pub fn acting_for(self, control: ControlId) -> Self {
        Self { control, ..self }
    }

    /// Sets the number of other CPUs that run tasks of the step's address space.
    #[inline]
    #[must_use]
    pub fn with_sharers(mut self, others: u32) -> Self {
        self.tlbs.loaded = Loaded::Here { others };
        self
    }

    /// Sets the owner of the step and what other CPUs do meanwhile. In place: a context is large, and every step of a run has
    /// one.
    #[inline]
    pub fn set_circumstances(&mut self, of: Circumstances<'a>) {
        self.control = of.control;
        self.tlbs.loaded = Loaded::Here { others: of.sharers };
        self.tlbs.running = of.running;
        self.need_resched = of.need_resched;
        self.was_preempted = of.was_preempted;
        self.alone_until = of.alone_until;
    }

    /// Until when nobody else has a turn: what would be many steps until then may be one.
    pub fn alone_until(&self) -> Time {
        self.alone_until
    }

    /// Sets the instant until which nobody else has a turn: for tests.
    pub fn be_alone_until(&mut self, at: Time) {
        self.alone_until = at;
    }

    /// The control of this step: the owner of the frames that are held until its next step.
    pub fn control(&self) -> ControlId {
        self.control
    }

    /// Does another task wait for this CPU?
    pub fn need_resched(&self) -> bool {
        self.need_resched
    }

    /// Does another task wait for this CPU, or did so when the last step ended? For callers in the middle of one step of the
    /// kernel's that is several steps here.
    pub fn has_to_yield(&self) -> bool {
        self.need_resched || self.was_preempted
    }

    /// Whether the step has sent requests to other CPUs, or asked for memory.
    #[inline]
    pub fn has_asked_anybody(&self) -> bool {
        self.tlbs.has_asked() || self.is_supplied()
    }
}

#[cold]
fn count_test(facts: &mut Facts, test: Test, place: Place, passes: bool) {
    facts.tally.count(test, place, passes);
}

/// Methods of the meter, one line each.
impl<'a> Cx<'a> {
    /// Time, prices, causes and counters.
    #[inline]
    pub fn meter(&self) -> &Meter<'a> {
        &self.meter
    }

    /// The CPU that runs the step.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.meter.cpu()
    }

    /// The time now: the start of the step plus the time spent since.
    #[inline]
    pub fn now(&self) -> Time {
        self.meter.now()
    }

    /// Whether the step must end, at its horizon or because a task was woken in it.
    #[inline]
    pub fn is_over(&self, horizon: Time) -> bool {
        self.meter.is_over(horizon)
    }

    /// Notes that a task was woken: a range operation ends its step as soon as it can.
    #[inline]
    pub fn cut(&mut self) {
        self.meter.cut();
    }

    /// Charges `n` exits from the guest and entries to it, because the host has changed the backing of its memory.
    pub fn leave_guest(&mut self, n: u64) {
        self.work(Work::HostExit, n);
    }

    /// Charges `n` primitive operations of one kind.
    #[inline]
    pub fn work(&mut self, work: Work, n: u64) {
        self.meter.work(work, n);
    }

    /// Waits until an instant; an instant in the past takes no time.
    #[inline]
    pub fn wait(&mut self, until: Time, cause: Cause) {
        self.meter.wait(until, cause);
    }

    /// Counts an event.
    #[inline]
    pub fn count(&mut self, event: Event, n: u64) {
        self.meter.count(event, n);
    }

    /// Counts several events, each once.
    #[inline]
    pub fn count_each<const N: usize>(&mut self, events: [Event; N]) {
        self.meter.count_each(events);
    }

    /// Counts an event of `mm_page_alloc_extfrag` by its kind.
    #[inline]
    pub(crate) fn count_extfrag(&mut self, kind: ExtfragKind) {
        self.meter.count_extfrag(kind);
    }

    /// Counts a page fault that begins now.
    #[inline]
    pub fn fault(&mut self, vpn: Vpn) {
        self.meter.fault(vpn);
    }

    /// A page fault turns out to need a device.
    #[inline]
    pub fn major_fault(&mut self) {
        self.meter.major_fault();
    }

    /// The page faults since the step began.
    #[inline]
    pub fn faults(&self) -> Faults {
        self.meter.faults()
    }

    /// Time spent since the step began, by cause.
    #[inline]
    pub fn spent(&self) -> &Spent {
        self.meter.spent()
    }

    /// Faults that others, who want as much time as each of them takes, let pass in one go: all of a table's, where no other CPU
    /// shares the address space.
    pub fn faults_at_once(&self, among_others: u64) -> u64 {
        match self.tlbs.loaded {
            Loaded::Here { others } if others > 0 => among_others,
            _ => u64::MAX,
        }
    }

    /// See [`Meter::prices`].
    #[inline]
    pub fn prices(&self) -> &Prices {
        self.meter.prices()
    }

    /// See [`Meter::price`].
    #[inline]
    pub fn price(&self, work: Work) -> Picos {
        self.meter.price(work)
    }

    /// See [`Meter::access`].
    #[inline]
    pub fn access(&mut self, price: AccessPrice, n: u64) {
        self.meter.access(price, n);
    }

    /// See [`Meter::faults_from`].
    pub(crate) fn faults_from(&mut self, vpn: Vpn, n: u64) {
        self.meter.faults_from(vpn, n);
    }

    /// Charges everything inside `body` to one cause.
    pub fn because<T>(&mut self, cause: Cause, body: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.meter.charge_to(cause);
        let result = body(self);
        self.meter.charge_again(outer);
        result
    }
}
