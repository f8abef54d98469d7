//! Progress of a run, and its end before the last cell.

use std::path::PathBuf;

use crate::usage::UsageError;

/// Why a run ended before its end.
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
    /// The same, before the first cell was done.
    #[error("interrupted before the first cell was done; nothing is left behind")]
    InterruptedEarly,
    /// Something else; exit status 1.
    #[error("{0}")]
    Failed(String),
}

/// What a run tells while it runs.
pub trait Progress {
    /// So many of so many cells are done; this is being done now.
    fn step(&mut self, done: usize, total: usize, doing: &str);
    /// Something worth a line of its own.
    fn note(&mut self, text: &str);
    /// A note that a user must see who wants none.
    fn warning(&mut self, text: &str) {
        self.note(text);
    }
}
