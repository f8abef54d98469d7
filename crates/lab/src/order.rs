//! Orders to workers: all that travels from planner and runner to the process that works on a cell.

use std::path::PathBuf;

use linux::{file::Ground, tracing::Watch};
use memory::{decision::Otherwise, fact::Told, tally::Counted};
use report::{Key, Measured, Series, SlowPath, timeline::Timeline};
use serde::{Deserialize, Serialize};
use units::{Bytes, Picos};
use workloads::recipe::Recipe;

use crate::{plan::Every, variant::Recorded};

/// The work of a worker process: JSON on its standard input, of a guest's worker in the plan of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "kebab-case")]
pub enum Order {
    /// A cell of a run.
    Cell(CellOrder),
    /// A simulated cell once more, for the facts of some of its operations.
    Why(WhyOrder),
    /// A simulated cell once more, which leaves its path at an instant.
    Branch(Box<BranchOrder>),
    /// A simulated cell once more, for the counts of its mechanisms' tests.
    Nothing(CellOrder),
    /// Times of primitive operations, for prices.
    Probe {
        /// For how many seconds of the worker's time.
        seconds: u16,
    },
}

/// A simulated cell, and the operations of it whose facts are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyOrder {
    /// The cell.
    pub cell: CellOrder,
    /// Each operation's task, start and end, in picoseconds.
    pub operations: Vec<(u32, u64, u64)>,
    /// Whether the timeline of the run is wanted too.
    #[serde(default)]
    pub timeline: bool,
}

/// The line that comes of a [`WhyOrder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The run hash, which must be the first run's.
    pub run_hash: String,
    /// The log of slow operations, which must be the first run's.
    pub slow_path: SlowPath,
    /// The facts of each operation, in the order in which they were asked for.
    pub stories: Vec<Story>,
    /// The timeline, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// The line that comes of an order for the counts of tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tests {
    /// The run hash, which must be the first run's.
    pub run_hash: String,
    /// The log of slow operations, which must be the first run's.
    pub slow_path: SlowPath,
    /// The counts of all tests that were asked.
    pub counts: Vec<Counted>,
}

/// The facts of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Story {
    /// Facts, by instant.
    pub facts: Vec<Told>,
    /// Whether the operation began and ended, by the clock of its CPU, when its parts say so.
    pub is_whole: bool,
}

/// A simulated cell, and where it leaves its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOrder {
    /// The cell.
    pub cell: CellOrder,
    /// Changes, by instant, in picoseconds.
    pub changes: Vec<(u64, BranchChange)>,
    /// A decision that is taken otherwise.
    pub otherwise: Option<Otherwise>,
    /// The symptom that the branch is asked about, if it is.
    pub symptom: Option<Symptom>,
    /// The first and the last instant between which all facts are wanted, in picoseconds.
    pub window: Option<[u64; 2]>,
}

/// A change of a run in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchChange {
    /// None: the run hash at this instant is wanted.
    Nothing,
    /// Other rules.
    Rules(Box<Recorded>),
    /// Other draws, from this seed.
    Draws(u64),
}

/// A fault of a task on a range of pages that takes long; see [`sim::Symptom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symptom {
    /// The number of the task.
    pub task: u32,
    /// The first and the last page.
    pub pages: [u64; 2],
    /// The time, in picoseconds.
    pub over_ps: u64,
    /// The instant from which faults are looked at, in picoseconds.
    pub from_ps: u64,
}

/// The line that comes of a [`BranchOrder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branched {
    /// The run hash before each change.
    pub hashes: Vec<String>,
    /// Whether the symptom has shown; without one, none.
    pub is_met: Option<bool>,
    /// The last time before [`Symptom::from_ps`] at which the task left the pages, in picoseconds.
    pub left_ps: Option<u64>,
    /// Facts of all tasks between two instants, if they were wanted.
    pub window: Vec<Told>,
    /// The measured numbers and the samples of the branch; none if it was ended at its symptom.
    pub found: Option<(Measured, Option<Series>)>,
}

/// A cell, and how it is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellOrder {
    /// The cell.
    pub key: Key,
    /// How much memory the workload may map.
    pub cap: Bytes,
    /// Where the files of the workload live, and what it may do to others; of a real kernel.
    #[serde(default)]
    pub ground: Ground,
    /// The tracer that counts fallbacks of the page allocator; of a real kernel.
    #[serde(default)]
    pub watch: Watch,
    /// Whether an equally long idle window is watched afterwards, and its counts are taken off: on a machine that others use.
    pub idle_window: bool,
    /// The machine and the kernel to simulate; none on a real kernel.
    pub simulated: Option<Simulated>,
    /// Where the simulator's trace events go, if anywhere.
    #[serde(default)]
    pub trace: Option<PathBuf>,
    /// How often the cell is sampled, if at all.
    #[serde(default)]
    pub sample: Option<Every>,
    /// The folder for files that are named by their hash, where the map of memory is wanted with each sample; of the simulator.
    #[serde(default)]
    pub map: Option<PathBuf>,
    /// How often the memory of the guest on its host is looked at, if at all.
    #[serde(default)]
    pub footprint: Option<Picos>,
}

/// The machine that a cell simulates, its kernel, and where memory stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulated {
    /// The machine, as a machine file.
    pub machine: String,
    /// The kernel.
    pub variant: Recorded,
    /// The state file that says where memory stands; else all of it is free.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// The recipe that is followed before the workload.
    #[serde(default)]
    pub prefix: Option<Prefix>,
}

/// A recipe that a cell follows before its workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The recipe.
    pub recipe: Recipe,
    /// The checksum that the recipe's file says for this machine, variant and seed.
    pub expected: Option<String>,
    /// The command that makes that file again.
    #[serde(default)]
    pub again: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_says_what_its_work_is() {
        let probe = Order::Probe { seconds: 3 };
        assert_eq!(serde_json::to_string(&probe).unwrap(), r#"{"work":"probe","seconds":3}"#);
        let refused = |order: &str| serde_json::from_str::<Order>(order).unwrap_err().to_string();
        assert_eq!(serde_json::from_str::<Order>(r#"{"work":"probe","seconds":3}"#).unwrap(), probe);
        assert!(refused(r#"{"seconds":3}"#).contains("missing field `work`"));
        assert!(refused(r#"{"work":"cells"}"#).contains("unknown variant `cells`"));
        assert!(refused(r#"{"work":"cell","seconds":3}"#).contains("missing field `key`"));
    }
}
