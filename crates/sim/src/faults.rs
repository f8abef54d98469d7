//! Faults injected into a run, for tests, like `CONFIG_FAULT_INJECTION`: allocations that fail, pages that cannot be moved, a
//! disk that fails requests or is slow, kernel threads that run late. The faults end, and then a run must make progress.

use mm::Mm;
use serde::{Deserialize, Serialize};
use units::{Picos, Time};

/// The faults of a run, until an instant. 0 is no fault of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// In one step of this number the first allocation of a task fails (`fail_page_alloc`).
    pub alloc_every: u64,
    /// One page of this number that are migrated has an unknown reference.
    pub move_every: u32,
    /// One request of this number to the files' disk fails (`fail_make_request`).
    pub request_every: u32,
    /// Factor by which the files' disk is slower.
    pub disk_slowdown: u32,
    /// One wake-up of this number of kernel threads comes late.
    pub wake_every: u64,
    /// By how much such a wake-up is late.
    pub wake_delay: Picos,
    /// From this instant on there are no faults.
    pub until: Time,
}

/// The state of fault injection: one branch per step when there are no faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPoints {
    faults: Option<Faults>,
    /// Steps of operations so far, and wake-ups.
    steps: u64,
    wakes: u64,
    /// Faults injected so far.
    made: u64,
}

impl FaultPoints {
    /// Begins injecting the faults of a run.
    pub(crate) fn begin(faults: Faults, mm: &mut Mm) -> Self {
        apply(mm, &faults);
        Self { faults: (faults != Faults::default()).then_some(faults), ..Self::default() }
    }

    /// Whether there are faults whose time has ended.
    #[inline]
    pub(crate) fn are_over(&self, now: Time) -> bool {
        self.faults.is_some_and(|faults| now >= faults.until)
    }

    /// Ends all faults, for good.
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

    /// By how much a kernel thread is woken late, if it is.
    #[inline]
    pub(crate) fn delay_of_wake(&mut self) -> Option<Picos> {
        let faults = self.faults?;
        self.wakes += 1;
        let is_late = faults.wake_every > 0 && self.wakes.is_multiple_of(faults.wake_every);
        self.made += u64::from(is_late);
        is_late.then_some(faults.wake_delay)
    }

    /// Steps with a failed allocation, and late wake-ups.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }
}

/// Sets the faults that the memory manager injects itself.
fn apply(mm: &mut Mm, faults: &Faults) {
    mm.compaction.fail_moves(faults.move_every);
    mm.cache.fail_disk(faults.request_every);
    mm.cache.slow_disk(faults.disk_slowdown.max(1));
}
