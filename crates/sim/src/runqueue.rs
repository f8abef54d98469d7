//! Linux: kernel/sched/fair.c, kernel/sched/core.c (v3.9 to v6.18): the tasks of a CPU that can run.
//!
//! A task's run time counts the more the less it weighs; which of them runs, and for how long, is one of two sets of rules:
//! `cfs.rs` up to 6.5, `eevdf.rs` from 6.6 on. Not here: groups, bandwidth limits, real-time classes, buddies and `SCHED_IDLE`.

mod cfs;
mod eevdf;
mod load;
#[cfg(test)]
mod tests;

use rules::variant::{Scheduler, Variant};
use units::{Picos, Time};

use self::load::{Average, Doing};
use crate::ids::TaskId;

/// The weight of nice 0 (`NICE_0_LOAD`).
pub(crate) const NICE_0: u64 = 1024;

/// Weights from nice -20 to 19: each step is about 1.25 (Documentation/scheduler/sched-nice-design.rst; the rounded
/// figures are those of `sched_prio_to_weight`, kernel/sched/core.c, v6.1).
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// A task's nice level, from -20 to 19; daemons such as khugepaged have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nice(i8);

impl Nice {
    /// # Panics
    /// When there is no such level.
    pub(crate) fn new(level: i8) -> Self {
        assert!((-20..=19).contains(&level), "no nice level {level}");
        Self(level)
    }

    fn weight(self) -> u32 {
        WEIGHTS[usize::try_from(i32::from(self.0) + 20).expect("nice levels begin at -20")]
    }
}

/// When CPUs tick. No rule of a kernel's: it is the same for all of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// From one to the next (1/HZ).
    pub(crate) period: Picos,
    /// How long after the multiples of that all CPUs tick (`tick_setup_sched_timer`, unless `skew_tick` is set).
    pub(crate) offset: Picos,
}

impl Ticks {
    /// At the multiples of a period.
    pub(crate) const fn every(period: Picos) -> Self {
        Self { period, offset: Picos(0) }
    }

    /// The last tick up to an instant.
    pub(crate) fn last(&self, at: Time) -> Time {
        Time(self.offset.0.min(at.0) + self.count(at) * self.period.0)
    }

    /// The ticks up to an instant.
    pub(crate) fn count(&self, at: Time) -> u64 {
        at.0.saturating_sub(self.offset.0) / self.period.0
    }

    /// The first tick at an instant or after it.
    pub(crate) fn from(&self, at: Time) -> Time {
        let last = self.last(at);
        if last == at { at } else { self.after(at) }
    }

    /// The first tick after an instant.
    pub(crate) fn after(&self, at: Time) -> Time {
        Time(self.offset.0) + self.period * (self.count(at) + 1)
    }
}

/// The periods that the scheduler works with (`sysctl_sched_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    /// CFS: in which every task of a queue runs once.
    latency: Picos,
    /// CFS: how far a waking task must be behind to preempt.
    wakeup_granularity: Picos,
    /// CFS: what a task runs at least, when there are many. EEVDF: what it asks for.
    base_slice: Picos,
    pub(crate) ticks: Ticks,
    /// How much longer than an idle CPU a busy one waits before it looks at others again (`busy_factor`).
    busy_factor: u64,
    /// The longest that any CPU waits before it looks at others again (`max_load_balance_interval`).
    balance_max: Picos,
    /// Does a busy one look a tick before that is over?
    looks_a_tick_early: bool,
    /// Does a task that waits for a CPU count there as it did when it began to wait?
    load_stays: bool,
}

impl Periods {
    /// Those of a machine: scaled by 1 + log2 of its CPUs, of which at most 8 count (`SCHED_TUNABLESCALING_LOG`).
    pub(crate) fn for_cpus(cpus: usize, ticks: Ticks, rules: &Variant) -> Self {
        let factor = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        let scaled = |nanos| Picos::from_nanos(nanos) * factor;
        let [latency, wakeup_granularity, base_slice] = [6_000_000, 1_000_000, rules.sched_base_slice_ns].map(scaled);
        let (busy_factor, load_stays) = (rules.sched_busy_factor, rules.sched_load_stays);
        let looks_a_tick_early = rules.sched_looks_a_tick_early;
        let balance_max = Picos::from_millis(100) * cpus.max(1) as u64;
        Self {
            latency,
            wakeup_granularity,
            base_slice,
            ticks,
            busy_factor,
            balance_max,
            looks_a_tick_early,
            load_stays,
        }
    }

    /// How long a CPU waits before it looks again at others in a domain of so many CPUs: as many ms, twice as long when it saw
    /// nothing (`sd_init`, kernel/sched/core.c; `get_sd_balance_interval`, kernel/sched/fair.c, v4.1). A busy one waits a tick at
    /// least, whatever the factor.
    pub(crate) fn balance(&self, span: u64, is_busy: bool, saw_imbalance: bool) -> Picos {
        let factors = if is_busy { self.busy_factor } else { 1 } * if saw_imbalance { 1 } else { 2 };
        let early = if is_busy && self.looks_a_tick_early { self.ticks.period.0 } else { 0 };
        let least = if is_busy { self.ticks.period } else { Picos(0) };
        let interval = Picos((Picos::from_millis(1) * span * factors).0.saturating_sub(early));
        interval.min(self.balance_max).max(least)
    }
}

/// A task as the scheduler knows it (`struct sched_entity`).
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    weight: u64,
    /// For how much of its time it could run of late, and did.
    average: Average,
    /// Weighted run time in nanoseconds.
    vruntime: u64,
    /// When it came to its CPU, as a number among all that came to any; less than 0 when balancing has passed it by.
    pub(crate) arrived: i64,
    /// Up to when its run time is counted.
    counted: Time,
    /// When it was picked last.
    picked: Time,
    /// EEVDF: by when, in virtual time, it shall have had its slice.
    deadline: u64,
    /// EEVDF: the deadline that it was picked with: until that is over nobody with a later claim takes its place.
    picked_for: u64,
    /// EEVDF, of one that is on no queue: how much less than its share it had when it left.
    lag: i64,
}

impl Entity {
    pub(crate) fn new(nice: Nice) -> Self {
        let weight = nice.weight().into();
        Self {
            weight,
            average: Average::default(),
            vruntime: 0,
            arrived: 0,
            counted: Time(0),
            picked: Time(0),
            deadline: 0,
            picked_for: 0,
            lag: 0,
        }
    }

    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The task's part in the load of its CPU at an instant: its weight, less when it has slept of late.
    pub(crate) fn load(&self, at: Time, periods: &Periods) -> u64 {
        self.average.load(self.weight, at, periods)
    }

    /// How much of a CPU it has used of late, in parts of [`NICE_0`].
    pub(crate) fn usage(&self, at: Time, periods: &Periods) -> u64 {
        self.average.usage(at, periods)
    }

    /// For how much of its time it could run of late, in parts of [`NICE_0`].
    pub(crate) fn runnable(&self, at: Time, periods: &Periods) -> u64 {
        self.average.load(NICE_0, at, periods)
    }

    /// The task waits for a CPU from `at` on.
    pub(crate) fn waits(&mut self, why: Enqueue, at: Time, periods: &Periods) {
        if why == Enqueue::New {
            self.average.begin(at, periods);
        }
        self.average.changes(Doing::Waits, at);
    }

    /// The task runs from `at` on.
    pub(crate) fn runs(&mut self, at: Time) {
        self.average.changes(Doing::Runs, at);
    }

    /// The task sleeps from `at` on, or has ended.
    pub(crate) fn sleeps(&mut self, at: Time) {
        self.average.changes(Doing::Sleeps, at);
    }

    /// `calc_delta_fair`: nanoseconds of this task in those of nice 0.
    fn weighted(&self, nanos: u64) -> u64 {
        nanos * NICE_0 / self.weight
    }

    /// Counts the run time up to `now`, and says by how much that moves its virtual time.
    fn count(&mut self, now: Time) -> u64 {
        let ran = now.since(self.counted).as_nanos();
        self.counted = self.counted + Picos::from_nanos(ran);
        let weighted = self.weighted(ran);
        self.vruntime += weighted;
        weighted
    }
}

/// Why a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueue {
    /// The task was created.
    New,
    /// The task slept.
    Woken,
    /// The task was running, and another one is preferred.
    Preempted,
    /// The task waited on another CPU.
    Moved,
}

/// Why the running task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The task waits for something.
    Sleeps,
    /// The task has ended.
    Ends,
}

/// The tasks of one CPU that can run (`struct cfs_rq`).
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct RunQueue {
    /// How many wait: all that most turns ask.
    len: usize,
    /// Elsewhere, so that a CPU's hot part is short.
    kind: Box<Kind>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Up to 6.5.
    Cfs(cfs::Queue),
    /// From 6.6 on.
    Eevdf(eevdf::Queue),
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($kind:expr, $queue:ident => $call:expr) => {
        match $kind {
            Kind::Cfs($queue) => $call,
            Kind::Eevdf($queue) => $call,
        }
    };
}

impl RunQueue {
    /// How much of it says how many wait.
    pub(crate) const WAITING: usize = size_of::<usize>();

    pub(crate) fn new(rules: &Variant) -> Self {
        let kind = match rules.scheduler {
            Scheduler::Cfs => Kind::Cfs(cfs::Queue::default()),
            Scheduler::Eevdf => Kind::Eevdf(eevdf::Queue::new(eevdf::Sleepers::Leave)),
            Scheduler::EevdfDelayed => Kind::Eevdf(eevdf::Queue::new(eevdf::Sleepers::PayFirst)),
        };
        Self { len: 0, kind: Box::new(kind) }
    }

    /// Something has come or gone.
    fn recount(&mut self) {
        self.len = either!(&*self.kind, queue => queue.len());
    }

    /// Does nobody wait?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The tasks that wait, the most deserving first.
    pub(crate) fn waiting(&self) -> Box<dyn Iterator<Item = TaskId> + '_> {
        either!(&*self.kind, queue => Box::new(queue.waiting()))
    }

    /// The first task that waits and may move, the most deserving first.
    pub(crate) fn find(&self, may_move: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        self.waiting().find(|id| may_move(*id))
    }

    /// Is a task still on the queue though it sleeps (`sched_delayed`)? Then it wakes up here.
    pub(crate) fn keeps(&self, id: TaskId, task: &Entity) -> bool {
        match &*self.kind {
            Kind::Cfs(_) => false,
            Kind::Eevdf(queue) => queue.keeps(id, task),
        }
    }

    /// A task waits to run from now on (`enqueue_task_fair`, `place_entity`).
    pub(crate) fn enqueue(&mut self, id: TaskId, task: &mut Entity, why: Enqueue, periods: &Periods) {
        either!(&mut *self.kind, queue => queue.enqueue(id, task, why, periods));
        self.recount();
    }

    /// The task that runs next; it is on no queue until it is enqueued again or leaves.
    pub(crate) fn pick(&mut self) -> Option<TaskId> {
        let next = either!(&mut *self.kind, queue => queue.pick());
        self.recount();
        next
    }

    /// The picked task starts.
    pub(crate) fn start(task: &mut Entity, now: Time) {
        (task.picked, task.counted, task.picked_for) = (now, now, task.deadline);
    }

    /// The running task blocks or ends (`dequeue_task_fair`).
    pub(crate) fn leave(&mut self, id: TaskId, task: &mut Entity, now: Time, why: Leave, periods: &Periods) {
        match &mut *self.kind {
            Kind::Cfs(queue) => queue.leave(task, now),
            Kind::Eevdf(queue) => queue.leave(id, task, now, why, periods),
        }
        self.recount();
    }

    /// A waiting task goes to another CPU.
    pub(crate) fn remove(&mut self, id: TaskId, task: &mut Entity, periods: &Periods) {
        match &mut *self.kind {
            Kind::Cfs(queue) => queue.remove(id, task),
            Kind::Eevdf(queue) => queue.remove(id, task, periods),
        }
        self.recount();
    }

    /// A task that slept on another CPU wakes up here: it keeps its distance from the others, not their time
    /// (`migrate_task_rq_fair`). Where lag is kept, it comes along by itself.
    pub(crate) fn adopt(&self, from: &Self, task: &mut Entity) {
        if let (Kind::Cfs(here), Kind::Cfs(there)) = (&*self.kind, &*from.kind) {
            here.adopt(there, task);
        }
    }

    /// Counts the run time of the running task up to `now` (`update_curr`). True when others shall run.
    pub(crate) fn account(&mut self, task: &mut Entity, now: Time, periods: &Periods) -> bool {
        match &mut *self.kind {
            Kind::Cfs(queue) => {
                queue.account(task, now);
                false
            }
            Kind::Eevdf(queue) => queue.account(task, now, periods),
        }
    }

    /// Does a task that woke up run at once (`check_preempt_wakeup`)?
    pub(crate) fn preempts(&self, running: &Entity, id: TaskId, woken: &Entity, periods: &Periods) -> bool {
        match &*self.kind {
            Kind::Cfs(_) => cfs::preempts(running, woken, periods),
            Kind::Eevdf(queue) => queue.preempts(running, id),
        }
    }

    /// At a tick: has the running task had its share? Its run time is counted up to the tick.
    pub(crate) fn tick_preempts(&self, running: &Entity, now: Time, periods: &Periods) -> bool {
        match &*self.kind {
            Kind::Cfs(queue) => queue.tick_preempts(running, now, periods),
            // Slices end wherever run time is counted.
            Kind::Eevdf(_) => false,
        }
    }
}
