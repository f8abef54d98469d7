//! Linux: `record_wakee` and `wake_wide`, kernel/sched/fair.c (v4.1): whom a task has woken.

use units::{Picos, Time};

use crate::ids::TaskId;

/// How often a task halves what it knows of whom it has woken (`HZ` in `record_wakee`).
pub(super) const FORGETS: Picos = Picos::from_micros(1_000_000);

/// Whom a task has woken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wakes {
    /// The last one (`last_wakee`).
    pub(super) last: Option<TaskId>,
    /// How often that was another one than before (`wakee_flips`).
    pub(super) flips: u64,
    /// When that was last halved (`wakee_flip_decay_ts`).
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

    /// Does who has woken these wake so many more others than a task that it wakes that this one stays where it is?
    /// (`wake_wide`, by how many CPUs share a cache.)
    pub(super) fn is_wide(&self, wakee: &Self, sharing: u64) -> bool {
        wakee.flips > sharing && self.flips > sharing * wakee.flips
    }
}
