//! The plan of a run, and the first line that is told of it.

use std::{collections::BTreeSet, sync::atomic::AtomicBool};

use report::Key;

use super::{Progress, choose_accelerator};
use crate::plan::{Plan, Request, UsageError};

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
