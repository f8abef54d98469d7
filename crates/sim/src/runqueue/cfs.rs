//! Linux: kernel/sched/fair.c (v3.9 to v6.5): the completely fair scheduler. The task that has run least runs next.

use std::collections::BTreeSet;

use units::{Picos, Time};

use super::{Enqueue, Entity, Periods};
use crate::ids::TaskId;

/// The beginning of virtual time: far enough from 0 that a sleeper's credit never goes below it (`init_cfs_rq` starts below 0,
/// and compares numbers modulo 2^64).
const START: u64 = 1 << 62;

/// The tasks of one CPU by virtual run time.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// The waiting tasks, the next to run first.
    waiting: BTreeSet<(u64, TaskId)>,
    /// Sum of the weights of all tasks, the running one included.
    load: u64,
    /// Least virtual run time of a task that is queued.
    min_vruntime: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), load: 0, min_vruntime: START }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().map(|(_, id)| *id)
    }

    pub(super) fn enqueue(&mut self, id: TaskId, task: &mut Entity, why: Enqueue, periods: &Periods) {
        let latency = periods.latency.as_nanos();
        match why {
            Enqueue::New => {
                self.load += task.weight;
                let slice = task.weighted(self.slice_of(task, self.len() + 1, periods).as_nanos());
                task.vruntime = task.vruntime.max(self.min_vruntime + slice);
            }
            // A sleeper gets half a period of credit (GENTLE_FAIR_SLEEPERS).
            Enqueue::Woken => {
                self.load += task.weight;
                task.vruntime = task.vruntime.max(self.min_vruntime - latency / 2);
            }
            Enqueue::Preempted => {}
            // The task brings its distance from the others of its former queue.
            Enqueue::Moved => {
                self.load += task.weight;
                task.vruntime = task.vruntime.wrapping_add(self.min_vruntime);
            }
        }
        let is_new = self.waiting.insert((task.vruntime, id));
        assert!(is_new, "task {} waits already", id.0);
    }

    pub(super) fn pick(&mut self) -> Option<TaskId> {
        self.waiting.pop_first().map(|(_, id)| id)
    }

    pub(super) fn leave(&mut self, task: &mut Entity, now: Time) {
        self.account(task, now);
        self.load -= task.weight;
    }

    pub(super) fn remove(&mut self, id: TaskId, task: &mut Entity) {
        let was_there = self.waiting.remove(&(task.vruntime, id));
        assert!(was_there, "task {} does not wait here", id.0);
        self.load -= task.weight;
        // A task that moves keeps its distance from the other tasks, not its virtual time (`dequeue_entity`). Below the minimum
        // the distance is negative, a sleeper's credit, until the task is placed.
        task.vruntime = task.vruntime.wrapping_sub(self.min_vruntime);
    }

    pub(super) fn adopt(&self, from: &Self, task: &mut Entity) {
        task.vruntime = if task.vruntime < from.min_vruntime {
            // A task that has never run has no distance to keep.
            self.min_vruntime.saturating_sub(from.min_vruntime - task.vruntime)
        } else {
            self.min_vruntime + (task.vruntime - from.min_vruntime)
        };
    }

    pub(super) fn account(&mut self, task: &mut Entity, now: Time) {
        task.count(now);
        let first = self.waiting.first().map_or(task.vruntime, |(first, _)| task.vruntime.min(*first));
        self.min_vruntime = self.min_vruntime.max(first);
    }

    /// `check_preempt_tick`.
    pub(super) fn tick_preempts(&self, running: &Entity, now: Time, periods: &Periods) -> bool {
        let Some((first, _)) = self.waiting.first() else { return false };
        let ideal = self.slice_of(running, self.len() + 1, periods);
        let ran = now.since(running.picked);
        if ran > ideal {
            return true;
        }
        ran >= periods.base_slice && running.vruntime.saturating_sub(*first) > ideal.as_nanos()
    }

    /// A task's share of the period in which each of `tasks` runs once (`sched_slice`).
    fn slice_of(&self, task: &Entity, tasks: usize, periods: &Periods) -> Picos {
        let many = periods.base_slice * tasks as u64;
        let period = periods.latency.max(many);
        Picos(period.0 / self.load * task.weight)
    }
}

pub(super) fn preempts(running: &Entity, woken: &Entity, periods: &Periods) -> bool {
    let ahead = running.vruntime.saturating_sub(woken.vruntime);
    ahead > woken.weighted(periods.wakeup_granularity.as_nanos())
}

#[cfg(test)]
mod tests {
    use rules::variant;

    use super::*;
    use crate::{
        TICK,
        runqueue::{Nice, Ticks},
    };

    fn periods(cpus: usize) -> Periods {
        Periods::for_cpus(cpus, Ticks::every(TICK), variant::named("v6.1"))
    }

    #[test]
    fn a_sleeper_preempts_but_gains_no_more_than_half_a_period() {
        let periods = periods(2);
        let mut queue = Queue::default();
        let mut busy = Entity::new(Nice::new(0));
        let mut sleeper = Entity::new(Nice::new(0));
        queue.enqueue(TaskId(0), &mut busy, Enqueue::New, &periods);
        queue.pick();
        queue.account(&mut busy, Time(Picos::from_secs(1).0));
        queue.enqueue(TaskId(1), &mut sleeper, Enqueue::Woken, &periods);
        assert_eq!(busy.vruntime - sleeper.vruntime, periods.latency.as_nanos() / 2);
        assert!(preempts(&busy, &sleeper, &periods));
        assert!(!preempts(&sleeper, &busy, &periods));
        let nice = Entity { vruntime: sleeper.vruntime, ..Entity::new(Nice::new(19)) };
        assert!(!preempts(&busy, &nice, &periods), "its granularity weighs 68 times as much");
    }

    #[test]
    fn a_sleeper_has_credit_on_a_young_cpu_too() {
        let periods = periods(2);
        let mut queue = Queue::default();
        let mut sleeper = Entity::new(Nice::new(0));
        queue.enqueue(TaskId(0), &mut sleeper, Enqueue::Woken, &periods);
        let mut new = Entity::new(Nice::new(0));
        queue.enqueue(TaskId(1), &mut new, Enqueue::New, &periods);
        assert!(preempts(&new, &sleeper, &periods));
        assert_eq!(
            new.vruntime - sleeper.vruntime,
            periods.latency.as_nanos(),
            "half for the one, a slice of two for the other"
        );
    }

    #[test]
    fn periods_grow_with_the_cpus_up_to_eight() {
        let latency = |cpus| periods(cpus).latency;
        assert_eq!([1, 2, 4, 8, 96].map(latency), [6, 12, 18, 24, 24].map(|ms| Picos::from_micros(ms * 1000)));
    }

    #[test]
    fn a_task_that_wakes_elsewhere_keeps_its_distance() {
        let from = Queue { min_vruntime: 5_000_000, ..Queue::default() };
        let to = Queue { min_vruntime: 70, ..Queue::default() };
        for (before, after) in [(5_000_400, 470), (5_000_000, 70), (4_999_990, 60), (0, 0)] {
            let mut task = Entity { vruntime: before, ..Entity::new(Nice::new(0)) };
            to.adopt(&from, &mut task);
            assert_eq!(task.vruntime, after);
        }
    }

    #[test]
    fn a_task_that_moves_keeps_its_distance() {
        let periods = periods(2);
        // By how much a task has run more than the others; the second number is a sleeper's credit, and negative.
        for distance in [400, 10_u64.wrapping_neg()] {
            let before = (START + 5_000_000).wrapping_add(distance);
            let mut from = Queue { min_vruntime: START + 5_000_000, ..Queue::default() };
            let mut task = Entity { vruntime: before, ..Entity::new(Nice::new(0)) };
            from.enqueue(TaskId(3), &mut task, Enqueue::Woken, &periods);
            from.remove(TaskId(3), &mut task);
            assert_eq!((task.vruntime, from.load), (distance, 0));
            let mut to = Queue { min_vruntime: START + 9_000_000, ..Queue::default() };
            to.enqueue(TaskId(3), &mut task, Enqueue::Moved, &periods);
            assert_eq!((task.vruntime, to.load), ((START + 9_000_000).wrapping_add(distance), 1024));
        }
    }
}
