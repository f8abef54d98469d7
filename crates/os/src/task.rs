//! Tasks: where they run, how they meet, how they die.

use serde::{Deserialize, Serialize};

/// Where a new task may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Pinned to CPU `n` modulo the CPUs of the run, cores before hardware threads, as will-it-scale does.
    Spread(u32),
    /// Wherever the scheduler of the target puts it, now and later.
    Free,
}

/// A place where a fixed number of tasks meet. The handle may be sent to threads and to spawned processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The target's own name for it.
    pub id: u32,
    /// How many tasks meet there.
    pub parties: u32,
}

/// A task ended without giving its result: the OOM killer, a crash, a panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Died {
    /// Why, for people: `killed by signal 9 (SIGKILL)`.
    pub reason: String,
}

impl std::fmt::Display for Died {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a task died: {}", self.reason)
    }
}

impl std::error::Error for Died {}
