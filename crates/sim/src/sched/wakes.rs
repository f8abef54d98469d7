//! Linux: `record_wakee` and `wake_wide`, kernel/sched/fair.c (v4.1): a task's record of the tasks that it has woken.

use units::{Picos, Time};

use crate::ids::TaskId;

/// Time after which a task halves its record of wake-ups (`HZ` in `record_wakee`).
pub(super) const FORGETS: Picos = Picos::from_micros(1_000_000);

/// A task's record of the tasks that it has woken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wakes {
    /// The task that was woken last (`last_wakee`).
    pub(super) last: Option<TaskId>,
    /// Number of times that this was another task than before (`wakee_flips`).
    pub(super) flips: u64,
    /// When `flips` was last halved (`wakee_flip_decay_ts`).
    pub(super) halved: Time,
}

impl Wakes {
    /// `record_wakee`.
    pub(super) fn record(&mut self, wakee: TaskId, at: Time) {
        if at > self.halved + FORGETS {
            self.flips /= 2;
            self.halved = at;
        }
        if self.last.replace(wakee) != Some(wakee) {
            self.flips += 1;
        }
    }

    /// Whether the waker wakes many more other tasks than the wakee does, so that the wakee stays where it is
    /// (`wake_wide`); `sharing` is the number of CPUs that share a cache.
    pub(super) fn is_wide(&self, wakee: &Self, sharing: u64) -> bool {
        wakee.flips > sharing && self.flips > sharing * wakee.flips
    }
}
