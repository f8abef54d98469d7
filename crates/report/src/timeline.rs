//! A simulated run as a timeline: what its cell comes to when it runs again with an observer, for traces. No result holds one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The timeline of a run, beside its log of slow operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// All tasks, by their numbers.
    pub tasks: Vec<TaskName>,
    /// Turns of CPUs: CPU, task, start and end in picoseconds.
    pub turns: Vec<(u32, u32, u64, u64)>,
    /// Wake-ups: instant in picoseconds, woken task, waker.
    pub wakeups: Vec<(u64, u32, Waker)>,
    /// Each operation of the log, in the order of the log.
    pub operations: Vec<InOrder>,
    /// Turns and wake-ups that found no room.
    pub dropped: u64,
}

/// A task's name, and its kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// The kernel: 0 is the host or the only one, 1 the first guest.
    pub kernel: u16,
    /// `task 5`, or the name of a kernel thread.
    pub name: String,
}

/// The source of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waker {
    /// A task, by its number.
    Task(u32),
    /// The interrupt of a disk.
    Disk,
    /// A timer.
    Timer,
}

/// A slow operation in the order of its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOrder {
    /// Stretches, one behind the other.
    pub stretches: Vec<Stretch>,
    /// Decisions about the operation, by instant.
    pub facts: Vec<Fact>,
    /// Number of further decisions.
    pub left_out: u64,
}

/// A stretch of a slow operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The mechanism of the slow path that worked.
    pub mechanism: Option<String>,
    /// The cause of the time.
    pub cause: String,
    /// Whether the task had no CPU.
    pub waits: bool,
    /// The length in picoseconds.
    pub ps: u64,
}

/// A decision, with the numbers that it was made by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The instant in picoseconds.
    pub at_ps: u64,
    /// The kind of decision.
    pub name: String,
    /// The numbers and names of the decision.
    pub notes: BTreeMap<String, Note>,
}

/// A number or a word of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Note {
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

impl InOrder {
    /// The time by cause, in picoseconds.
    pub fn by_cause(&self) -> BTreeMap<&str, u64> {
        let mut sums = BTreeMap::new();
        for stretch in &self.stretches {
            *sums.entry(stretch.cause.as_str()).or_default() += stretch.ps;
        }
        sums
    }
}
