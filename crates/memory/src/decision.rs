//! Linux: none; decisions that a branch of a run takes otherwise, to see what would have become of it.
//!
//! A decision is known by its instant and its control from an earlier run of the same cell, which told a fact of it. No decision
//! is asked about unless an observer has lent the step its list of facts, and no run of a benchmark takes one otherwise.

use serde::{Deserialize, Serialize};
use units::Time;

/// A decision that can be taken otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A request wakes kswapd. Otherwise: kswapd sleeps on.
    WakeKswapd,
    /// A failed run defers compaction of a zone. Otherwise: the zone is not deferred.
    Defer,
    /// Compaction of a zone is deferred. Otherwise: the request may compact the zone.
    Deferred,
    /// A run of compaction begins. Otherwise: the zone is skipped.
    Compact,
    /// Direct reclaim begins. Otherwise: nothing is reclaimed.
    Reclaim,
    /// A task leaves its CPU to another one that waits. Otherwise: the task runs on to the next tick. A task that waits for a CPU
    /// since it was woken has decided nothing.
    Preempt,
    /// A task sleeps until a device answers or time has passed. Otherwise: the task goes on at once.
    Sleep,
}

/// A decision of an earlier run of the same cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otherwise {
    /// The instant of the decision.
    pub at: Time,
    /// The control that decides: of a task, its number.
    pub by: u32,
    /// The decision.
    pub decision: Decision,
}
