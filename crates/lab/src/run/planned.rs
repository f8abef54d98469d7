//! The plan of a run, and the first line that is told of it.

use std::{collections::BTreeSet, sync::atomic::AtomicBool};

use report::{Key, Target};

use super::here::choose_accelerator;
use crate::{
    plan::{Plan, Request},
    progress::Progress,
    usage::UsageError,
};

/// The plan, and what was noted while it was made: it comes after the first line, which [`tell`] tells.
pub(super) fn planned(
    request: &Request,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<(Plan, Vec<String>), UsageError> {
    let mut held = Held { progress, notes: Vec::new() };
    let plan = Plan::new(request, |image| choose_accelerator(image, stop, &mut held));
    let Held { progress, notes } = held;
    match plan {
        Ok(plan) => Ok((plan, notes)),
        Err(error) => {
            for note in &notes {
                progress.note(note);
            }
            Err(error)
        }
    }
}

/// The first line, before anything runs, says that this machine's own kernel is used, where it is and the user has not named it.
pub(super) fn tell(
    plan: &Plan,
    notes: &[String],
    (by_name, done): (bool, &BTreeSet<Key>),
    progress: &mut dyn Progress,
) {
    if let Some(line) = plan.on_host(done).filter(|_| !by_name) {
        progress.warning(&line);
    }
    for note in notes {
        progress.note(note);
    }
}

/// Progress whose notes are kept until it is known what comes before them.
struct Held<'a> {
    progress: &'a mut dyn Progress,
    notes: Vec<String>,
}

impl Progress for Held<'_> {
    fn step(&mut self, done: usize, total: usize, doing: &str) {
        self.progress.step(done, total, doing);
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn warning(&mut self, text: &str) {
        self.progress.warning(text);
    }
}

/// Runs shorter than this need no announcement.
const SHORT_S: u64 = 15;

/// A sentence on what the rest of a run takes, where that was measured: an experiment as its file has it, and not a short one.
pub(super) fn expected(request: &Request, plan: &Plan, done: usize) -> Option<String> {
    let is_as_it_is = request.sets.is_empty()
        && request.columns.is_empty()
        && request.variants.is_empty()
        && request.machine.is_none()
        && plan.sessions.iter().all(|session| session.target() == Target::Sim);
    let cost = plan.experiment.cost.as_ref().filter(|_| is_as_it_is)?;
    let (cells, seeds) = (plan.cells(), request.seeds.all().count());
    let missing = cells.saturating_sub(done);
    let cpu_ms = u128::from(cost.cpu_ms) * seeds as u128 * missing as u128 / cells.max(1) as u128;
    let at_once = plan.workers.min(missing).max(1);
    let seconds = cpu_ms / 1000;
    (seconds / at_once as u128 >= u128::from(SHORT_S)).then(|| {
        format!(
            "{missing} cells, about {seconds} s of CPU over {at_once} at a time (measured on {}, `pagelab list experiments`)",
            cost.processor
        )
    })
}
