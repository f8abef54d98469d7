//! Linux: kernel/sched/fair.c, kernel/sched/core.c (v3.9 to v6.5): the completely fair scheduler.
//!
//! One queue per CPU, ordered by virtual run time; a task's run time counts the more the less it weighs. Not here: groups,
//! bandwidth limits, real-time classes, buddies and `SCHED_IDLE`. 6.6 and later order by deadlines (EEVDF); they get these
//! rules too until something depends on the difference.

use std::collections::BTreeSet;

use units::{Picos, Time};

use crate::task::TaskId;

/// The weight of nice 0 (`NICE_0_LOAD`).
const NICE_0: u64 = 1024;

/// Weights from nice -20 to 19: each step is about 1.25 (Documentation/scheduler/sched-nice-design.rst; the rounded
/// figures are those of `sched_prio_to_weight`, kernel/sched/core.c, v6.1).
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// A task's nice level, from -20 to 19; daemons such as khugepaged have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nice(pub(crate) i8);

impl Nice {
    fn weight(self) -> u32 {
        WEIGHTS[usize::try_from(i32::from(self.0) + 20).expect("nice levels begin at -20")]
    }
}

/// The periods that the scheduler works with (`sysctl_sched_*`, kernel/sched/fair.c, v6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    /// In which every task of a queue runs once.
    latency: Picos,
    /// What a task runs at least, when there are many.
    min_granularity: Picos,
    /// How far a waking task must be behind to preempt.
    wakeup_granularity: Picos,
    /// From one tick to the next (1/HZ).
    pub(crate) tick: Picos,
}

impl Periods {
    /// Those of a machine: scaled by 1 + log2 of its CPUs, of which at most 8 count (`SCHED_TUNABLESCALING_LOG`).
    pub(crate) fn for_cpus(cpus: usize, tick: Picos) -> Self {
        let factor = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        let scaled = |micros| Picos(Picos::from_micros(micros).0 * factor);
        let [latency, min_granularity, wakeup_granularity] = [6000, 750, 1000].map(scaled);
        Self { latency, min_granularity, wakeup_granularity, tick }
    }
}

/// What the scheduler knows of a task (`struct sched_entity`).
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    weight: u64,
    /// Weighted run time in nanoseconds.
    vruntime: u64,
    /// Up to when its run time is counted.
    counted: Time,
    /// When it was picked last.
    picked: Time,
}

impl Entity {
    pub(crate) fn new(nice: Nice) -> Self {
        Self { weight: nice.weight().into(), vruntime: 0, counted: Time(0), picked: Time(0) }
    }

    /// `calc_delta_fair`: nanoseconds of this task in those of nice 0.
    fn weighted(&self, nanos: u64) -> u64 {
        nanos * NICE_0 / self.weight
    }
}

/// Why a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueue {
    /// It was created.
    New,
    /// It slept.
    Woken,
    /// It was running, and another one is preferred.
    Preempted,
    /// It waited on another CPU.
    Moved,
}

/// The tasks of one CPU that can run (`struct cfs_rq`).
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueue {
    /// Those that wait, the most deserving first.
    waiting: BTreeSet<(u64, TaskId)>,
    /// Weights of all, the running one included.
    load: u64,
    /// No task that comes is set before this.
    min_vruntime: u64,
}

impl RunQueue {
    /// Does nobody wait?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The tasks that wait, the most deserving first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().map(|(_, id)| *id)
    }

    /// A task waits to run from now on (`enqueue_task_fair`, `place_entity`).
    pub(crate) fn enqueue(&mut self, id: TaskId, task: &mut Entity, why: Enqueue, periods: &Periods) {
        let latency = periods.latency.as_nanos();
        match why {
            Enqueue::New => {
                self.load += task.weight;
                let slice = task.weighted(self.slice_of(task, self.len() + 1, periods).as_nanos());
                task.vruntime = task.vruntime.max(self.min_vruntime + slice);
            }
            // Half a period of credit for having slept (GENTLE_FAIR_SLEEPERS).
            Enqueue::Woken => {
                self.load += task.weight;
                task.vruntime = task.vruntime.max(self.min_vruntime.saturating_sub(latency / 2));
            }
            Enqueue::Preempted => {}
            // It comes with its distance only.
            Enqueue::Moved => {
                self.load += task.weight;
                task.vruntime += self.min_vruntime;
            }
        }
        let is_new = self.waiting.insert((task.vruntime, id));
        assert!(is_new, "task {} waits already", id.0);
    }

    /// The task that runs next, from `now` on; it is on no queue until it is enqueued again or leaves.
    pub(crate) fn pick(&mut self) -> Option<TaskId> {
        self.waiting.pop_first().map(|(_, id)| id)
    }

    /// The picked task starts.
    pub(crate) fn start(task: &mut Entity, now: Time) {
        (task.picked, task.counted) = (now, now);
    }

    /// The running task blocks or ends (`dequeue_task_fair`).
    pub(crate) fn leave(&mut self, task: &mut Entity, now: Time) {
        self.account(task, now);
        self.load -= task.weight;
    }

    /// A waiting task goes to another CPU, or ends.
    pub(crate) fn remove(&mut self, id: TaskId, task: &mut Entity) {
        let was_there = self.waiting.remove(&(task.vruntime, id));
        assert!(was_there, "task {} does not wait here", id.0);
        self.load -= task.weight;
        // What it takes along is its distance from the others, not their time (`migrate_task_rq_fair`).
        task.vruntime = task.vruntime.saturating_sub(self.min_vruntime);
    }

    /// Counts the run time of the running task up to `now` (`update_curr`).
    pub(crate) fn account(&mut self, task: &mut Entity, now: Time) {
        let ran = now.since(task.counted).as_nanos();
        task.counted = task.counted + Picos::from_nanos(ran);
        task.vruntime += task.weighted(ran);
        let first = self.waiting.first().map_or(task.vruntime, |(first, _)| task.vruntime.min(*first));
        self.min_vruntime = self.min_vruntime.max(first);
    }

    /// Does a task that woke up run at once (`check_preempt_wakeup`)?
    pub(crate) fn preempts(running: &Entity, woken: &Entity, periods: &Periods) -> bool {
        let ahead = running.vruntime.saturating_sub(woken.vruntime);
        ahead > woken.weighted(periods.wakeup_granularity.as_nanos())
    }

    /// At a tick: has the running task had its share (`check_preempt_tick`)? Its run time is counted up to the tick.
    pub(crate) fn tick_preempts(&self, running: &Entity, now: Time, periods: &Periods) -> bool {
        let Some((first, _)) = self.waiting.first() else { return false };
        let ideal = self.slice_of(running, self.len() + 1, periods);
        let ran = now.since(running.picked);
        if ran > ideal {
            return true;
        }
        ran >= periods.min_granularity && running.vruntime.saturating_sub(*first) > ideal.as_nanos()
    }

    /// A task's share of the period in which each of `tasks` runs once (`sched_slice`).
    fn slice_of(&self, task: &Entity, tasks: usize, periods: &Periods) -> Picos {
        let many = Picos(periods.min_granularity.0 * tasks as u64);
        let period = periods.latency.max(many);
        Picos(period.0 / self.load * task.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Picos = Picos::from_micros(4000);

    /// One CPU under its own ticks: how long each task ran, of `ticks`.
    fn run(nice: &[i8], ticks: u64) -> Vec<u64> {
        let periods = Periods::for_cpus(1, TICK);
        let mut queue = RunQueue::default();
        let mut tasks: Vec<Entity> = nice.iter().map(|nice| Entity::new(Nice(*nice))).collect();
        for (id, task) in (0..).zip(&mut tasks) {
            queue.enqueue(TaskId(id), task, Enqueue::New, &periods);
        }
        let mut ran = vec![0; tasks.len()];
        let mut now = Time(0);
        let mut current = queue.pick().unwrap();
        RunQueue::start(&mut tasks[current.0 as usize], now);
        for _ in 0..ticks {
            now = now + TICK;
            let task = &mut tasks[current.0 as usize];
            queue.account(task, now);
            ran[current.0 as usize] += 1;
            if queue.tick_preempts(task, now, &periods) {
                queue.enqueue(current, task, Enqueue::Preempted, &periods);
                current = queue.pick().unwrap();
                RunQueue::start(&mut tasks[current.0 as usize], now);
            }
        }
        ran
    }

    #[test]
    fn equal_tasks_share_and_heavier_ones_get_more() {
        let equal = run(&[0, 0, 0], 3000);
        assert!(equal.iter().all(|ran| ran.abs_diff(1000) < 10), "{equal:?}");
        let ran = run(&[0, 19], 100_000);
        let share = ran[1] as f64 / 100_000.0;
        assert!((share / (15.0 / 1039.0) - 1.0).abs() < 0.05, "nice 19 gets 1.44 % beside nice 0: {share}");
        assert_eq!(run(&[0], 10), [10], "alone it is never preempted");
    }

    #[test]
    fn a_sleeper_preempts_but_gains_no_more_than_half_a_period() {
        let periods = Periods::for_cpus(2, TICK);
        let mut queue = RunQueue::default();
        let mut busy = Entity::new(Nice(0));
        let mut sleeper = Entity::new(Nice(0));
        queue.enqueue(TaskId(0), &mut busy, Enqueue::New, &periods);
        queue.pick();
        RunQueue::start(&mut busy, Time(0));
        let now = Time(Picos::from_secs(1).0);
        queue.account(&mut busy, now);
        queue.enqueue(TaskId(1), &mut sleeper, Enqueue::Woken, &periods);
        assert_eq!(busy.vruntime - sleeper.vruntime, periods.latency.as_nanos() / 2);
        assert!(RunQueue::preempts(&busy, &sleeper, &periods));
        assert!(!RunQueue::preempts(&sleeper, &busy, &periods));
        let nice = Entity { vruntime: sleeper.vruntime, ..Entity::new(Nice(19)) };
        assert!(!RunQueue::preempts(&busy, &nice, &periods), "its granularity weighs 68 times as much");
    }

    #[test]
    fn periods_grow_with_the_cpus_up_to_eight() {
        let latency = |cpus| Periods::for_cpus(cpus, TICK).latency;
        assert_eq!([1, 2, 4, 8, 96].map(latency), [6, 12, 18, 24, 24].map(|ms| Picos::from_micros(ms * 1000)));
    }

    #[test]
    fn a_task_that_moves_keeps_its_distance() {
        let periods = Periods::for_cpus(2, TICK);
        let mut from = RunQueue { min_vruntime: 5_000_000, ..RunQueue::default() };
        let mut task = Entity { vruntime: 5_000_400, ..Entity::new(Nice(0)) };
        from.enqueue(TaskId(3), &mut task, Enqueue::Woken, &periods);
        from.remove(TaskId(3), &mut task);
        assert_eq!((task.vruntime, from.load), (400, 0));
        let mut to = RunQueue { min_vruntime: 9_000_000, ..RunQueue::default() };
        to.enqueue(TaskId(3), &mut task, Enqueue::Moved, &periods);
        assert_eq!((task.vruntime, to.load), (9_000_400, 1024));
    }
}
