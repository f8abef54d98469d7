//! Faults from outside the rules, for tests, as `CONFIG_FAULT_INJECTION` has them: allocations that fail, pages that cannot be
//! moved, a disk that refuses requests or is slow, kernel threads that run late. Faults end, and then a run has to go on.

use mm::Mm;
use serde::{Deserialize, Serialize};
use units::{Picos, Time};

/// Faults of a run, until an instant. A nought is none of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// In one step of so many the first allocation of a task fails (`fail_page_alloc`).
    pub alloc_every: u64,
    /// One page of so many that are migrated has a reference that nothing explains.
    pub move_every: u32,
    /// One request of so many to the disk of the files ends in an error (`fail_make_request`).
    pub request_every: u32,
    /// The disk of the files takes so many times as long.
    pub disk_slowdown: u32,
    /// One wake-up of so many of kernel threads comes late.
    pub wake_every: u64,
    /// How late that is.
    pub wake_delay: Picos,
    /// From this instant on there are none.
    pub until: Time,
}

/// Faults under way: one branch per step when there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPoints {
    faults: Option<Faults>,
    /// Steps of operations, and wake-ups, so far.
    steps: u64,
    wakes: u64,
    /// Faults that were made.
    made: u64,
}

impl FaultPoints {
    /// Begins with the faults of a run.
    pub(crate) fn begin(faults: Faults, mm: &mut Mm) -> Self {
        apply(mm, &faults);
        Self { faults: (faults != Faults::default()).then_some(faults), ..Self::default() }
    }

    /// Whether there are faults whose time is over.
    #[inline]
    pub(crate) fn are_over(&self, now: Time) -> bool {
        self.faults.is_some_and(|faults| now >= faults.until)
    }

    /// Heals everything, for good.
    #[cold]
    pub(crate) fn end(&mut self, mm: &mut Mm) {
        self.faults = None;
        apply(mm, &Faults::default());
    }

    /// Whether the first allocation of a task's next step fails.
    #[inline]
    pub(crate) fn fails_alloc(&mut self) -> bool {
        let Some(faults) = self.faults else { return false };
        self.steps += 1;
        let fails = faults.alloc_every > 0 && self.steps.is_multiple_of(faults.alloc_every);
        self.made += u64::from(fails);
        fails
    }

    /// How late a kernel thread is woken.
    #[inline]
    pub(crate) fn delay_of_wake(&mut self) -> Option<Picos> {
        let faults = self.faults?;
        self.wakes += 1;
        let is_late = faults.wake_every > 0 && self.wakes.is_multiple_of(faults.wake_every);
        self.made += u64::from(is_late);
        is_late.then_some(faults.wake_delay)
    }

    /// Steps that failed an allocation, and wake-ups that came late.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }
}

/// The faults that the memory manager makes itself.
fn apply(mm: &mut Mm, faults: &Faults) {
    mm.compaction.fail_moves(faults.move_every);
    mm.cache.fail_disk(faults.request_every);
    mm.cache.slow_disk(faults.disk_slowdown.max(1));
}
