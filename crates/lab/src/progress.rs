//! Progress of a run, and its end before the last cell.

use std::path::PathBuf;

use crate::usage::UsageError;

/// The reason why a run stopped before its last cell.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The user's mistake; exit status 2.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The user interrupted; exit status 130.
    #[error("interrupted; the finished cells are in {dir}; this goes on from there: {command}", dir = .directory.display())]
    Interrupted {
        /// The result directory.
        directory: PathBuf,
        /// The command that goes on.
        command: String,
    },
    /// The user interrupted before the first cell was done; exit status 130.
    #[error("interrupted before the first cell was done; nothing is left behind")]
    InterruptedEarly,
    /// Something else; exit status 1.
    #[error("{0}")]
    Failed(String),
}

/// The receiver of a run's progress and notes.
pub trait Progress {
    /// The run has done `done` cells of `total`, and is busy with `doing`.
    fn step(&mut self, done: usize, total: usize, doing: &str);
    /// A note, which is worth a line of its own.
    fn note(&mut self, text: &str);
    /// A warning, which a user must see who wants no notes.
    fn warning(&mut self, text: &str) {
        self.note(text);
    }
}
