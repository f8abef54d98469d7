//! A simulated cell as a trial: with faults from outside, and walks over all frames.

use memory::{event::Counters, tally::Counted};

use super::{Failure, simulated};
use crate::{order::CellOrder, timeline, workload};

/// The extras of a simulated cell for [`crate::swarm`] and [`crate::why`], and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Faults from outside.
    pub(crate) faults: sim::Faults,
    /// Steps between two walks over all frames; 0 is no walk.
    pub(crate) check_every: u64,
    /// Operations whose facts are wanted.
    pub(crate) why: Vec<sim::Watched>,
    /// Whether the timeline of the run is wanted.
    pub(crate) wants_timeline: bool,
    /// The timeline.
    pub(crate) timeline: Option<report::timeline::Timeline>,
    /// Where the run leaves its path.
    pub(crate) branch: sim::Branch,
    /// The run hash before each change of the branch.
    pub(crate) hashes: Vec<String>,
    /// Facts between two instants of the branch.
    pub(crate) window: Vec<memory::fact::Told>,
    /// The end of a branch at its symptom.
    pub(crate) decided: Option<sim::Decided>,
    /// Whether the tests of all mechanisms are counted.
    pub(crate) tests: bool,
    /// The counts of these tests.
    pub(crate) counts: Vec<Counted>,
    /// The facts of each of these operations.
    pub(crate) stories: Vec<sim::Story>,
    /// All events of the run.
    pub(crate) counters: Option<Counters>,
    /// Faults that were made.
    pub(crate) made: u64,
}

impl Trial {
    /// The options of the run.
    pub(super) fn options(&self) -> sim::Options {
        let Self { faults, check_every, tests, wants_timeline: timeline, .. } = *self;
        let (why, branch) = (self.why.clone(), self.branch.clone());
        sim::Options { faults, check_every, tests, why, timeline, branch, ..sim::Options::default() }
    }

    /// Takes what came of the extras.
    pub(super) fn keep(&mut self, finish: &sim::Finish, extra: &mut sim::Extra) {
        (self.counters, self.made) = (Some(finish.counters.clone()), extra.faults);
        self.stories = std::mem::take(&mut extra.why);
        self.timeline = extra.timeline.take().map(|found| timeline::written(found, &extra.slow_operations));
        self.hashes = std::mem::take(&mut extra.hashes);
        self.window = std::mem::take(&mut extra.window);
        self.counts = std::mem::take(&mut extra.tests);
    }
}

/// Runs a simulated cell as a trial, in this process.
///
/// # Errors
/// Why the cell has no result.
///
/// # Panics
/// When an invariant of the simulator breaks, or when nothing gets on.
pub(crate) fn try_out(order: &CellOrder, trial: &mut Trial) -> Result<(), String> {
    let workload = workload::of_key(&order.key)?;
    let what = order.simulated.as_ref().ok_or("only simulated cells are tried out")?;
    match simulated(&workload, order, what, trial) {
        Ok(_) => Ok(()),
        Err(Failure::Lacking(reason) | Failure::Refused(reason) | Failure::Failed(reason)) => Err(reason),
        Err(Failure::Livelock(livelock)) => panic!("{livelock}"),
    }
}
