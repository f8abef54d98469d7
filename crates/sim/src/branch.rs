//! Linux: none; a run that leaves its path at an instant: other rules, other draws, or a decision taken otherwise.
//!
//! A branch is executed from the seed, as is every run: up to the instant it is the run that it branches from, which the run
//! hash before each change proves.

use std::collections::VecDeque;

use memory::decision::Otherwise;
use rules::variant::Variant;
use units::{Picos, Time, Vpn};

/// A branch of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Changes, each before the first step that begins at its instant or later; by instant.
    pub changes: Vec<(Time, Change)>,
    /// A decision that is taken otherwise.
    pub otherwise: Option<Otherwise>,
    /// The symptom that the branch is asked about: it ends as soon as the answer is known.
    pub symptom: Option<Symptom>,
    /// The first and the last instant between which all facts are wanted, whoever's they are.
    pub window: Option<(Time, Time)>,
}

/// A change of a run in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// None: the run hash at this instant is wanted.
    Nothing,
    /// The kernel has these rules from now on.
    Rules(Box<Variant>),
    /// From now on these are drawn from this seed: the phase of timer ticks, and up to seven interrupts on each CPU.
    Draws(u64),
}

/// A symptom: a fault of a task on a range of pages that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symptom {
    /// The number of the task.
    pub task: u32,
    /// The first page of the range.
    pub first: Vpn,
    /// The last page of the range.
    pub last: Vpn,
    /// More time than this off the fast path is the symptom.
    pub over: Picos,
    /// Faults before this instant are not looked at.
    pub from: Time,
}

/// The end of a branch at its symptom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Whether the symptom has shown.
    pub is_met: bool,
    /// The run hash before each change.
    pub hashes: Vec<String>,
    /// The last time before [`Symptom::from`] at which the task left the range.
    pub left: Option<Time>,
}

/// The changes of a branch that are left, and the run hash before each one that was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) left: VecDeque<(Time, Change)>,
    pub(crate) hashes: Vec<String>,
}

impl Changes {
    pub(crate) fn new(changes: Vec<(Time, Change)>) -> Self {
        Self { left: changes.into(), hashes: Vec::new() }
    }

    /// The instant of the next change; after all other times if there is none.
    pub(crate) fn next(&self) -> Time {
        self.left.front().map_or(Time(u64::MAX), |(at, _)| *at)
    }
}

/// The watch for a symptom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    symptom: Symptom,
    /// The page that the task's operation was at after its last step.
    page: Option<Vpn>,
    /// The task has passed the range.
    has_passed: bool,
    pub(crate) left: Option<Time>,
    pub(crate) is_met: Option<bool>,
}

impl Watch {
    pub(crate) fn new(symptom: Symptom) -> Self {
        Self { symptom, page: None, has_passed: false, left: None, is_met: None }
    }

    fn has(&self, page: Option<Vpn>) -> bool {
        page.is_some_and(|page| self.symptom.first <= page && page <= self.symptom.last)
    }

    /// Notes the page that comes next for a task after a step; none if its operation is over, or accesses no pages in turn.
    pub(crate) fn stepped(&mut self, task: u32, end: Time, page: Option<Vpn>) {
        if task != self.symptom.task {
            return;
        }
        if end < self.symptom.from {
            if self.has(self.page) && !self.has(page) {
                self.left = Some(end);
            }
            self.page = page;
            return;
        }
        // The log of the step itself comes after this: its fault may have been the symptom.
        if self.has_passed {
            self.is_met = self.is_met.or(Some(false));
        }
        let was_before = self.page.is_some_and(|page| page < self.symptom.first);
        let is_behind = page.is_some_and(|page| page > self.symptom.last);
        self.has_passed |= (self.has(self.page) && !self.has(page)) || (was_before && is_behind);
        self.page = page;
    }

    /// Notes that a task has been off the fast path at a page for this time, and goes on there or not.
    pub(crate) fn is_slow(&mut self, task: u32, page: Option<Vpn>, (start, time): (Time, Picos)) {
        let Symptom { from, over, .. } = self.symptom;
        if task == self.symptom.task && start + time >= from && time > over && self.has(page) {
            self.is_met = self.is_met.or(Some(true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(Symptom { task: 3, first: Vpn(512), last: Vpn(1023), over: Picos(100), from: Time(1000) })
    }

    #[test]
    fn a_range_that_is_passed_quickly_has_no_symptom() {
        let mut watch = watch();
        for (end, page) in [(800, 600), (900, 1500), (1000, 511), (1010, 512), (1020, 1023), (1030, 1024)] {
            watch.stepped(3, Time(end), Some(Vpn(page)));
            assert_eq!(watch.is_met, None, "the log of the last step is not there yet");
        }
        watch.stepped(4, Time(1040), None);
        assert_eq!(watch.is_met, None, "another task");
        watch.stepped(3, Time(1040), Some(Vpn(1025)));
        assert_eq!((watch.is_met, watch.left), (Some(false), Some(Time(900))));
    }

    #[test]
    fn a_range_that_one_step_leaps_over_is_passed() {
        let mut watch = watch();
        for (end, page) in [(1010, Some(100)), (1020, Some(2000)), (1030, None)] {
            watch.stepped(3, Time(end), page.map(Vpn));
        }
        assert_eq!(watch.is_met, Some(false));
    }

    #[test]
    fn only_a_long_time_of_the_task_on_the_range_is_the_symptom() {
        let mut watch = watch();
        for (task, page, time) in [(4, 600, 101), (3, 1024, 101), (3, 600, 100)] {
            watch.is_slow(task, Some(Vpn(page)), (Time(1000), Picos(time)));
            assert_eq!(watch.is_met, None, "task {task} at {page} for {time}");
        }
        watch.is_slow(3, Some(Vpn(600)), (Time(1), Picos(101)));
        assert_eq!(watch.is_met, None, "over before the branch");
        watch.is_slow(3, Some(Vpn(600)), (Time(950), Picos(101)));
        assert_eq!(watch.is_met, Some(true));
    }
}
