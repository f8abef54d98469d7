//! Linux: kernel/sched/fair.c (v6.6 to v6.18): earliest eligible virtual deadline first.
//! Differs: all tasks request the same slice, so that none preempts by a shorter request (`PREEMPT_SHORT`, 6.12), and a task
//! that moves begins a new slice, as before `PLACE_REL_DEADLINE` (6.12).
//!
//! Virtual time is the mean of all virtual run times, by weight. A task that has run less than that has *lag* and is eligible;
//! of the eligible tasks the one whose slice ends first in virtual time runs, until its slice is over or it is no longer
//! eligible. Lag outlives sleep: a task neither gains nor loses by it. From 6.12 on a task that sleeps with negative lag stays
//! queued until the others have caught up.

use std::collections::BTreeMap;

use units::Time;

use super::{Enqueue, Entity, Leave, Periods};
use crate::ids::TaskId;

/// How a task goes to sleep after it has run more than its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleepers {
    /// The task leaves the queue with its negative lag.
    Leave,
    /// The task stays queued until its lag is 0 (`DELAY_DEQUEUE`, 6.12).
    PayFirst,
}

/// The tasks of one CPU by virtual deadline.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    sleepers: Sleepers,
    /// Waiting tasks, and sleepers that stay queued, by deadline.
    waiting: BTreeMap<(u64, TaskId), Waiting>,
    /// Number of sleepers among them.
    asleep: usize,
    /// Sum of the weights of all tasks, the running one included.
    load: u64,
    /// Sum of their virtual run times, each times its weight.
    weighted_sum: u128,
    /// Virtual time at which the last task left the queue.
    stopped_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    vruntime: u64,
    weight: u64,
    is_asleep: bool,
}

impl Queue {
    pub(super) fn new(sleepers: Sleepers) -> Self {
        Self { sleepers, waiting: BTreeMap::new(), asleep: 0, load: 0, weighted_sum: 0, stopped_at: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() - self.asleep
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().filter(|(_, task)| !task.is_asleep).map(|((_, id), _)| *id)
    }

    pub(super) fn keeps(&self, id: TaskId, task: &Entity) -> bool {
        self.waiting.get(&(task.deadline, id)).is_some_and(|waiting| waiting.is_asleep)
    }

    pub(super) fn enqueue(&mut self, id: TaskId, task: &mut Entity, why: Enqueue, periods: &Periods) {
        match why {
            Enqueue::Preempted => {}
            // The sleeper's lag is still negative; it goes on where it was (`requeue_delayed_entity`).
            Enqueue::Woken if self.keeps(id, task) => {
                self.drop_sleeper(id, task);
                if self.is_eligible(task.vruntime) {
                    self.place(task, why, periods);
                }
                self.add(task);
            }
            Enqueue::New | Enqueue::Woken | Enqueue::Moved => {
                self.place(task, why, periods);
                self.add(task);
            }
        }
        self.insert(id, task, false);
    }

    /// Sets a task's virtual run time and deadline so that it has its former lag (`place_entity`).
    fn place(&self, task: &mut Entity, why: Enqueue, periods: &Periods) {
        // The arrival of the task moves the mean towards it: to have this lag after that, it must stand further away.
        let lag = match self.load {
            0 => 0,
            load => i128::from(task.lag) * i128::from(load + task.weight) / i128::from(load),
        };
        let at = i128::from(self.average()) - lag;
        task.vruntime = u64::try_from(at.max(0)).expect("virtual time fits");
        task.lag = 0;
        let slice = task.weighted(periods.base_slice.as_nanos());
        // A new task begins with half a slice (`PLACE_DEADLINE_INITIAL`).
        task.deadline = task.vruntime + if why == Enqueue::New { slice / 2 } else { slice };
    }

    /// Takes the first eligible task by deadline; sleepers whose turn comes have no negative lag any more, and leave.
    pub(super) fn pick(&mut self) -> Option<TaskId> {
        // Bound: each turn takes a task off.
        loop {
            let key = self.earliest()?;
            let task = self.waiting.remove(&key).expect("it was just found");
            if !task.is_asleep {
                return Some(key.1);
            }
            self.asleep -= 1;
            self.subtract(task.vruntime, task.weight);
        }
    }

    pub(super) fn leave(&mut self, id: TaskId, task: &mut Entity, now: Time, why: Leave, periods: &Periods) {
        self.account(task, now, periods);
        let stays = self.sleepers == Sleepers::PayFirst && why == Leave::Sleeps && self.len() > 0;
        if stays && !self.is_eligible(task.vruntime) {
            // When it leaves, or wakes up before, it has no lag to bring.
            task.lag = 0;
            self.insert(id, task, true);
            self.asleep += 1;
            return;
        }
        task.lag = self.lag_of(task, periods);
        self.subtract(task.vruntime, task.weight);
        if self.len() == 0 {
            // The CPU looks for a task to run until none of the sleepers is left.
            let nobody = self.pick();
            assert_eq!(nobody, None, "only sleepers are left");
        }
    }

    pub(super) fn remove(&mut self, id: TaskId, task: &mut Entity, periods: &Periods) {
        let was_there = self.waiting.remove(&(task.deadline, id));
        assert!(was_there.is_some(), "task {} does not wait here", id.0);
        task.lag = self.lag_of(task, periods);
        self.subtract(task.vruntime, task.weight);
    }

    /// Counts run time; returns true if the task has had its slice, and others wait (`update_deadline`).
    pub(super) fn account(&mut self, task: &mut Entity, now: Time, periods: &Periods) -> bool {
        let moved = task.count(now);
        self.weighted_sum += u128::from(moved) * u128::from(task.weight);
        if task.vruntime < task.deadline {
            return false;
        }
        task.deadline = task.vruntime + task.weighted(periods.base_slice.as_nanos());
        self.len() > 0
    }

    /// Whether the woken task would be picked now (`check_preempt_wakeup_fair`).
    pub(super) fn preempts(&self, running: &Entity, id: TaskId) -> bool {
        let Some((deadline, first)) = self.earliest() else { return false };
        // A picked task runs on while it is eligible and its slice lasts (`RUN_TO_PARITY`).
        let is_kept = running.picked_for == running.deadline || running.deadline < deadline;
        first == id && !(self.is_eligible(running.vruntime) && is_kept)
    }

    // ---- Sums

    /// Virtual time (`avg_vruntime`).
    fn average(&self) -> u64 {
        match self.load {
            0 => self.stopped_at,
            load => u64::try_from(self.weighted_sum / u128::from(load)).expect("a mean of 64-bit numbers"),
        }
    }

    /// Whether a task with this virtual run time has had no more than its share (`entity_eligible`).
    fn is_eligible(&self, vruntime: u64) -> bool {
        u128::from(vruntime) * u128::from(self.load) <= self.weighted_sum
    }

    /// The first of the eligible tasks by deadline (`pick_eevdf`). Queues are short, so a scan finds it.
    fn earliest(&self) -> Option<(u64, TaskId)> {
        self.waiting.iter().find(|(_, task)| self.is_eligible(task.vruntime)).map(|(key, _)| *key)
    }

    /// How far a task is behind virtual time, at most two slices or a tick (`update_entity_lag`).
    fn lag_of(&self, task: &Entity, periods: &Periods) -> i64 {
        let most = (periods.base_slice.as_nanos() * 2).max(periods.ticks.period.as_nanos());
        let limit = i128::from(task.weighted(most));
        let lag = i128::from(self.average()) - i128::from(task.vruntime);
        i64::try_from(lag.clamp(-limit, limit)).expect("a few slices")
    }

    fn add(&mut self, task: &Entity) {
        self.load += task.weight;
        self.weighted_sum += u128::from(task.vruntime) * u128::from(task.weight);
    }

    fn subtract(&mut self, vruntime: u64, weight: u64) {
        self.stopped_at = self.average();
        self.load -= weight;
        self.weighted_sum -= u128::from(vruntime) * u128::from(weight);
    }

    fn insert(&mut self, id: TaskId, task: &Entity, is_asleep: bool) {
        let waiting = Waiting { vruntime: task.vruntime, weight: task.weight, is_asleep };
        let before = self.waiting.insert((task.deadline, id), waiting);
        assert!(before.is_none(), "task {} waits already", id.0);
    }

    fn drop_sleeper(&mut self, id: TaskId, task: &Entity) {
        self.waiting.remove(&(task.deadline, id)).expect("the sleeper stayed");
        self.asleep -= 1;
        self.subtract(task.vruntime, task.weight);
    }
}
