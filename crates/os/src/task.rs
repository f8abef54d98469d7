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

/// How often a task has gone from one CPU to another, by how far that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// To another hardware thread of the same core.
    pub same_core: u64,
    /// To another core of the same node.
    pub same_node: u64,
    /// To another node.
    pub other_node: u64,
    /// By whom they were counted.
    pub counted_by: CountedBy,
}

/// The one who counts the moves of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedBy {
    /// The scheduler: none is missed.
    Scheduler,
    /// The task itself, which looks where it is now and then (getcpu(2)): who goes and comes back in between has not moved.
    Task,
}

impl Moves {
    /// None yet.
    pub fn none(counted_by: CountedBy) -> Self {
        Self { same_core: 0, same_node: 0, other_node: 0, counted_by }
    }

    /// Moves since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            same_core: self.same_core - earlier.same_core,
            same_node: self.same_node - earlier.same_node,
            other_node: self.other_node - earlier.other_node,
            counted_by: self.counted_by,
        }
    }
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
