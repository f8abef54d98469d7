//! Linux: kernel/sched/fair.c, kernel/sched/core.c (v3.9 to v6.18): the run queue of a CPU.
//!
//! The lower the weight of a task, the more its run time counts. One of two sets of rules chooses the next task and how long it
//! runs: `cfs.rs` up to 6.5, `eevdf.rs` from 6.6 on. Not modelled: groups, bandwidth limits, real-time classes, buddies and
//! `SCHED_IDLE`.

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

/// Weights from nice -20 to 19: each step is about 1.25 (Documentation/scheduler/sched-nice-design.rst; rounded as in
/// `sched_prio_to_weight`, kernel/sched/core.c, v6.1).
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// A task's nice level, from -20 to 19; daemons such as khugepaged have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nice(i8);

impl Nice {
    /// When the level is out of range.
    /// # Panics
    pub(crate) fn new(level: i8) -> Self {
        assert!((-20..=19).contains(&level), "no nice level {level}");
        Self(level)
    }

    fn weight(self) -> u32 {
        WEIGHTS[usize::try_from(i32::from(self.0) + 20).expect("nice levels begin at -20")]
    }
}

/// When CPUs tick. Not a rule of the kernel: equal for all kernels of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Time from one tick to the next (1/HZ).
    pub(crate) period: Picos,
    /// Offset of all CPUs' ticks from the multiples of the period (`tick_setup_sched_timer`, unless `skew_tick` is set).
    pub(crate) offset: Picos,
}

impl Ticks {
    /// Ticks at the multiples of a period.
    pub(crate) const fn every(period: Picos) -> Self {
        Self { period, offset: Picos(0) }
    }

    /// The last tick at or before an instant.
    pub(crate) fn last(&self, at: Time) -> Time {
        Time(self.offset.0.min(at.0) + self.count(at) * self.period.0)
    }

    /// Number of ticks up to an instant.
    pub(crate) fn count(&self, at: Time) -> u64 {
        at.0.saturating_sub(self.offset.0) / self.period.0
    }

    /// The first tick at or after an instant.
    pub(crate) fn from(&self, at: Time) -> Time {
        let last = self.last(at);
        if last == at { at } else { self.after(at) }
    }

    /// The first tick after an instant.
    pub(crate) fn after(&self, at: Time) -> Time {
        Time(self.offset.0) + self.period * (self.count(at) + 1)
    }
}

/// The periods of the scheduler (`sysctl_sched_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    /// CFS: time in which every task of a queue runs once.
    latency: Picos,
    /// CFS: how far a woken task must be behind the running one to preempt it.
    wakeup_granularity: Picos,
    /// CFS: the least time that a task runs, if there are many. EEVDF: the slice that it requests.
    base_slice: Picos,
    pub(crate) ticks: Ticks,
    /// Factor by which a busy CPU waits longer than an idle one between two balancing looks (`busy_factor`).
    busy_factor: u64,
    /// The longest time between two balancing looks of a CPU (`max_load_balance_interval`).
    balance_max: Picos,
    /// Whether a busy CPU looks a tick early.
    looks_a_tick_early: bool,
    /// Whether a task that waits for a CPU keeps the load that it had when it began to wait.
    load_stays: bool,
}

impl Periods {
    /// The periods of a machine: scaled by 1 + log2 of its CPUs, of which at most 8 count (`SCHED_TUNABLESCALING_LOG`).
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

    /// Time between two balancing looks of a CPU in a domain of `span` CPUs: as many ms, twice that after a look without
    /// imbalance (`sd_init`, kernel/sched/core.c; `get_sd_balance_interval`, kernel/sched/fair.c, v4.1). A busy CPU waits at
    /// least a tick, whatever the factor.
    pub(crate) fn balance(&self, span: u64, is_busy: bool, saw_imbalance: bool) -> Picos {
        let factors = if is_busy { self.busy_factor } else { 1 } * if saw_imbalance { 1 } else { 2 };
        let early = if is_busy && self.looks_a_tick_early { self.ticks.period.0 } else { 0 };
        let least = if is_busy { self.ticks.period } else { Picos(0) };
        let interval = Picos((Picos::from_millis(1) * span * factors).0.saturating_sub(early));
        interval.min(self.balance_max).max(least)
    }
}

/// The scheduler's record of a task (`struct sched_entity`).
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    weight: u64,
    /// The part of its recent time for which the task could run, and ran.
    average: Average,
    /// Weighted run time in nanoseconds.
    vruntime: u64,
    /// Number of its arrival at its CPU among all arrivals of tasks; below 0 after balancing has passed it by.
    pub(crate) arrived: i64,
    /// Up to when the task's run time is counted.
    counted: Time,
    /// When the task was last picked.
    picked: Time,
    /// EEVDF: the deadline of its slice, in virtual time.
    deadline: u64,
    /// EEVDF: the deadline that it was picked with: until then no task with a later deadline takes its place.
    picked_for: u64,
    /// EEVDF, for a task on no queue: by how much it had run less than its share when it left.
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

    /// The task's part in the load of its CPU at an instant: its weight, less after recent sleep.
    pub(crate) fn load(&self, at: Time, periods: &Periods) -> u64 {
        self.average.load(self.weight, at, periods)
    }

    /// The part of a CPU that the task has used recently, in units of 1/[`NICE_0`].
    pub(crate) fn usage(&self, at: Time, periods: &Periods) -> u64 {
        self.average.usage(at, periods)
    }

    /// The part of its recent time for which the task could run, in units of 1/[`NICE_0`].
    pub(crate) fn runnable(&self, at: Time, periods: &Periods) -> u64 {
        self.average.load(NICE_0, at, periods)
    }

    /// Notes that the task waits for a CPU from `at` on.
    pub(crate) fn waits(&mut self, why: Enqueue, at: Time, periods: &Periods) {
        if why == Enqueue::New {
            self.average.begin(at, periods);
        }
        self.average.changes(Doing::Waits, at);
    }

    /// Notes that the task runs from `at` on.
    pub(crate) fn runs(&mut self, at: Time) {
        self.average.changes(Doing::Runs, at);
    }

    /// Notes that the task sleeps from `at` on, or has ended.
    pub(crate) fn sleeps(&mut self, at: Time) {
        self.average.changes(Doing::Sleeps, at);
    }

    /// Run time of this task in nanoseconds, converted to that of nice 0 (`calc_delta_fair`).
    fn weighted(&self, nanos: u64) -> u64 {
        nanos * NICE_0 / self.weight
    }

    /// Counts the run time up to `now`; returns by how much the virtual time moves.
    fn count(&mut self, now: Time) -> u64 {
        let ran = now.since(self.counted).as_nanos();
        self.counted = self.counted + Picos::from_nanos(ran);
        let weighted = self.weighted(ran);
        self.vruntime += weighted;
        weighted
    }
}

/// The reason why a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueue {
    /// The task was created.
    New,
    /// The task slept.
    Woken,
    /// The task was running, and another one has preempted it.
    Preempted,
    /// The task waited on another CPU.
    Moved,
}

/// The reason why the running task leaves its CPU.
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
    /// Number of waiting tasks: all that most turns ask for.
    len: usize,
    /// The queue itself, boxed so that a CPU's hot fields are few.
    kind: Box<Kind>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Up to 6.5.
    Cfs(cfs::Queue),
    /// From 6.6 on.
    Eevdf(eevdf::Queue),
}

/// Calls a method of either kind of queue.
macro_rules! either {
    ($kind:expr, $queue:ident => $call:expr) => {
        match $kind {
            Kind::Cfs($queue) => $call,
            Kind::Eevdf($queue) => $call,
        }
    };
}

impl RunQueue {
    /// Size of the field with the number of waiting tasks.
    pub(crate) const WAITING: usize = size_of::<usize>();

    pub(crate) fn new(rules: &Variant) -> Self {
        let kind = match rules.scheduler {
            Scheduler::Cfs => Kind::Cfs(cfs::Queue::default()),
            Scheduler::Eevdf => Kind::Eevdf(eevdf::Queue::new(eevdf::Sleepers::Leave)),
            Scheduler::EevdfDelayed => Kind::Eevdf(eevdf::Queue::new(eevdf::Sleepers::PayFirst)),
        };
        Self { len: 0, kind: Box::new(kind) }
    }

    /// Updates the number of waiting tasks.
    fn recount(&mut self) {
        self.len = either!(&*self.kind, queue => queue.len());
    }

    /// Whether no task waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of waiting tasks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The waiting tasks, the next to run first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        // Most queues are empty, and are not looked into.
        let kind = (!self.is_empty()).then_some(&*self.kind);
        let (cfs, eevdf) = match kind {
            None => (None, None),
            Some(Kind::Cfs(queue)) => (Some(queue), None),
            Some(Kind::Eevdf(queue)) => (None, Some(queue)),
        };
        cfs.into_iter().flat_map(cfs::Queue::waiting).chain(eevdf.into_iter().flat_map(eevdf::Queue::waiting))
    }

    /// The first waiting task that may move, in the order in which they would run.
    pub(crate) fn find(&self, may_move: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        self.waiting().find(|id| may_move(*id))
    }

    /// Whether a task is still on the queue though it sleeps (`sched_delayed`): then it wakes up here.
    pub(crate) fn keeps(&self, id: TaskId, task: &Entity) -> bool {
        match &*self.kind {
            Kind::Cfs(_) => false,
            Kind::Eevdf(queue) => queue.keeps(id, task),
        }
    }

    /// Queues a task (`enqueue_task_fair`, `place_entity`).
    pub(crate) fn enqueue(&mut self, id: TaskId, task: &mut Entity, why: Enqueue, periods: &Periods) {
        either!(&mut *self.kind, queue => queue.enqueue(id, task, why, periods));
        self.recount();
    }

    /// Takes the task that runs next off the queue; it is on none until it is queued again or leaves.
    pub(crate) fn pick(&mut self) -> Option<TaskId> {
        let next = either!(&mut *self.kind, queue => queue.pick());
        self.recount();
        next
    }

    /// Starts the picked task.
    pub(crate) fn start(task: &mut Entity, now: Time) {
        (task.picked, task.counted, task.picked_for) = (now, now, task.deadline);
    }

    /// Takes the running task off its CPU: it blocks or ends (`dequeue_task_fair`).
    pub(crate) fn leave(&mut self, id: TaskId, task: &mut Entity, now: Time, why: Leave, periods: &Periods) {
        match &mut *self.kind {
            Kind::Cfs(queue) => queue.leave(task, now),
            Kind::Eevdf(queue) => queue.leave(id, task, now, why, periods),
        }
        self.recount();
    }

    /// Takes a waiting task off the queue, to go to another CPU.
    pub(crate) fn remove(&mut self, id: TaskId, task: &mut Entity, periods: &Periods) {
        match &mut *self.kind {
            Kind::Cfs(queue) => queue.remove(id, task),
            Kind::Eevdf(queue) => queue.remove(id, task, periods),
        }
        self.recount();
    }

    /// Adjusts a task that slept on another CPU and wakes up here: it keeps its distance from the other tasks
    /// (`migrate_task_rq_fair`). EEVDF's lag needs no adjustment.
    pub(crate) fn adopt(&self, from: &Self, task: &mut Entity) {
        if let (Kind::Cfs(here), Kind::Cfs(there)) = (&*self.kind, &*from.kind) {
            here.adopt(there, task);
        }
    }

    /// Counts the run time of the running task up to `now` (`update_curr`). Returns true if another task shall run.
    pub(crate) fn account(&mut self, task: &mut Entity, now: Time, periods: &Periods) -> bool {
        match &mut *self.kind {
            Kind::Cfs(queue) => {
                queue.account(task, now);
                false
            }
            Kind::Eevdf(queue) => queue.account(task, now, periods),
        }
    }

    /// Whether a task that woke up runs at once (`check_preempt_wakeup`).
    pub(crate) fn preempts(&self, running: &Entity, id: TaskId, woken: &Entity, periods: &Periods) -> bool {
        match &*self.kind {
            Kind::Cfs(_) => cfs::preempts(running, woken, periods),
            Kind::Eevdf(queue) => queue.preempts(running, id),
        }
    }

    /// Whether the running task has had its share at a tick, up to which its run time is counted.
    pub(crate) fn tick_preempts(&self, running: &Entity, now: Time, periods: &Periods) -> bool {
        match &*self.kind {
            Kind::Cfs(queue) => queue.tick_preempts(running, now, periods),
            // Slices end whenever run time is counted.
            Kind::Eevdf(_) => false,
        }
    }
}
