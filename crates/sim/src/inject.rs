//! Losses injected for tests: one step of a run loses a part of its effects, and the run hash must differ.

use memory::{
    cost::{Cause, Spent},
    event::{Counters, Event},
};
use units::{Picos, Time};

/// The part of a step that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Time spent on a cause: the price of one piece of work is left out.
    Time(Cause, Picos),
    /// One count of an event.
    Count(Event),
    /// The step's task, which the kernel ends instead of taking the step: an OOM kill in the middle of any operation.
    Task,
}

/// A loss in one step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Number of the step, from 0 in the order of the run.
    pub step: u64,
    /// The part that is lost, if the step has it.
    pub lost: Lost,
}

/// The state of such injection: one branch per step when there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Injector {
    pub(crate) wanted: Option<Injection>,
    /// Steps taken so far.
    pub(crate) steps: u64,
    /// The loss was made.
    pub(crate) done: bool,
    /// Steps between two checks of all frames; 0 is no check.
    pub(crate) check_every: u64,
}

impl Injector {
    /// Whether a check of all frames' owners is due after this step.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.check_every > 0 && self.steps.is_multiple_of(self.check_every)
    }

    /// Begins a step: returns its loss, if it has one, and the count of the event before.
    pub(crate) fn begin(&mut self, counters: &Counters) -> Option<(Lost, u64)> {
        let step = self.steps;
        self.steps += 1;
        let lost = self.wanted.filter(|wanted| wanted.step == step)?.lost;
        let before = if let Lost::Count(event) = lost { counters.get(event) } else { 0 };
        Some((lost, before))
    }

    /// Whether the task is killed instead of taking this step.
    #[cold]
    pub(crate) fn kills(&mut self, loss: Option<(Lost, u64)>) -> bool {
        let kills = matches!(loss, Some((Lost::Task, _)));
        self.done |= kills;
        kills
    }

    /// Takes the loss off at the end of a step; returns the time at which the step ends without it.
    #[cold]
    pub(crate) fn lose(
        &mut self,
        (lost, before): (Lost, u64),
        counters: &mut Counters,
        end: Time,
        spent: &Spent,
    ) -> Time {
        match lost {
            Lost::Time(cause, span) if span > Picos(0) && spent.on(cause) >= span => {
                self.done = true;
                Time(end.0 - span.0)
            }
            Lost::Count(event) if counters.get(event) > before => {
                self.done = true;
                counters.lose(event);
                end
            }
            Lost::Time(..) | Lost::Count(_) | Lost::Task => end,
        }
    }
}
