//! The result schema: one self-describing JSON line per record, the same for every target.

mod extfrag;
mod footprint;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use self::footprint::MIB;
pub use self::{
    extfrag::{Extfrag, ExtfragEvents, WindowEvents},
    footprint::{Footprint, HUGE, Held, RESIDENT, Step, USED},
};
use crate::{better::Better, series::Series, slow_path::SlowPath};

/// The version of the schema that this build writes. 2 has [`Cell::series`] and [`Cell::slow_path`], and else is 1; 3 has
/// [`Measured::extfrag`], and else is 2; 4 has [`Cell::map`], and else is 3; 5 has [`Measured::memory`], and else is 4.
pub const SCHEMA: u32 = 5;
/// The oldest version that it reads.
pub const OLDEST_SCHEMA: u32 = 1;

/// One line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "most are cells, the largest; records are moved a few times each")]
pub enum Record {
    /// A workload ran and was measured.
    Cell(Cell),
    /// A kernel that cells ran on, as found.
    System(System),
    /// Something the run would have done by default but could not.
    Skipped(Skipped),
}

/// The cells among the records, in order.
pub fn cells(records: Vec<Record>) -> Vec<Cell> {
    let cell = |record| match record {
        Record::Cell(cell) => Some(cell),
        Record::System(_) | Record::Skipped(_) => None,
    };
    records.into_iter().filter_map(cell).collect()
}

/// One workload on one kernel and machine, from one state and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`SCHEMA`] of the build that wrote it.
    pub schema: u32,
    /// Which cell it is.
    pub key: Key,
    /// The part that a rerun on a deterministic target repeats byte for byte.
    pub measured: Measured,
    /// Samples of what the kernel counted and held while the workload ran, where they were asked for; of a deterministic target
    /// repeated like what was measured, of which it is no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// The map of physical memory at the instants of [`Self::series`], where it was asked for: a file of the result's folder
    /// [`crate::map::FOLDER`], whose name is the BLAKE3 of what it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Operations that left the allocator's fast path, where the target knows them; repeated in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_path: Option<SlowPath>,
    /// The memory of the guest on its host, where that was asked for; on real kernels never repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// The part that differs from run to run.
    pub run: Run,
}

/// The identity of a cell: a stopped sweep resumes by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Name of the result that the cell was read from, where several stand side by side: whoever reads them says it, and no
    /// line has it.
    #[serde(skip)]
    pub result: Option<String>,
    /// Name of the experiment.
    pub experiment: String,
    /// The subject of its tables, where an experiment has several sets of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of the workload.
    pub workload: String,
    /// Name of the point of the experiment's grid, such as `base-threads-1`; tables call it the
    /// operation.
    pub case: String,
    /// Parameters of the workload, as written in the experiment.
    pub params: BTreeMap<String, String>,
    /// Name of the kernel variant.
    pub variant: String,
    /// Name of the machine.
    pub machine: String,
    /// Name of the memory state that the workload starts from.
    pub state: String,
    /// Where it ran.
    pub target: Target,
    /// Label of the kernel in column heads, such as `6.18.44`.
    pub kernel: String,
    /// The seed of every random stream of the cell.
    pub seed: u64,
    /// Hash of the program's sources and lock file, in hexadecimal.
    pub program: String,
}

impl Key {
    /// The table column that the cell belongs to.
    pub fn column(&self) -> Column {
        let (kernel, machine) = (self.kernel.clone(), self.machine.clone());
        Column { result: self.result.clone(), target: self.target, kernel, machine }
    }
}

/// One column of a table: everything measured on one kernel, machine and target, in one result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Column {
    /// Name of the result that it is from, where several stand side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Where it ran.
    pub target: Target,
    /// Label of the kernel.
    pub kernel: String,
    /// Name of the machine.
    pub machine: String,
}

impl Column {
    /// The column's name for programs, whatever else is in the result: `host:6.18.44:here`; of a result among several
    /// `mine:host:6.18.44:here`.
    pub fn label(&self) -> String {
        let result = self.result.as_ref().map_or_else(String::new, |result| format!("{result}:"));
        format!("{result}{}:{}:{}", self.target, self.kernel, self.machine)
    }
}

/// Where a cell runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The kernel that this program runs on.
    Host,
    /// A kernel booted in a virtual machine.
    Vm,
    /// The simulator.
    Sim,
}

impl Target {
    /// The target's name, as in result lines and column heads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Vm => "vm",
            Self::Sim => "sim",
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The measurements of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Whether the numbers may be scored against those of another target.
    pub scored: bool,
    /// The metrics, in the order in which tables show them.
    pub metrics: Vec<Metric>,
    /// How far each counter moved while the workload ran, by its name in `/proc/vmstat`.
    pub counters: BTreeMap<String, i64>,
    /// How far apart gauges of `/proc/vmstat` were with nothing mapped and with all of the workload's memory mapped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, i64>,
    /// How long it took, and the time that its tasks had a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Where the time of all tasks of the whole run went, where the target knows: picoseconds by cause, or by
    /// [`WAITING`] and a cause for time without a CPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, u64>,
    /// Pages taken from pageblocks of another mobility, by kind, where they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extfrag: Option<Extfrag>,
    /// Free memory and what it is held against, where the target knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Numbers known beforehand, against the numbers found.
    pub checks: Vec<Check>,
    /// Measurements that this cell could not make.
    pub skipped: Vec<Skip>,
    /// Whatever else the workload reports; tables do not read it.
    pub detail: serde_json::Value,
}

/// The beginning of names of [`Measured::causes`] where a task had no CPU.
pub const WAITING: &str = "waiting: ";

/// The time of a workload between its common start and its common end, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duration {
    /// In user mode, all tasks together (getrusage(2)).
    pub user_ps: u64,
    /// In the kernel, all tasks together.
    pub system_ps: u64,
    /// By the clock.
    pub elapsed_ps: u64,
}

/// Free memory of a run and the watermarks, of all zones together, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The least that was free at any time.
    pub free_least: u64,
    /// The mean over time of free memory.
    pub free_mean: u64,
    /// The min marks.
    pub min: u64,
    /// The low marks: below them kswapd wakes up.
    pub low: u64,
    /// The high marks: there kswapd stops.
    pub high: u64,
}

/// One measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The metric's name, unit last, such as `fault_latency_ns`.
    pub name: String,
    /// Which of several classes of the same quantity, such as `fault-huge`; rows call the operation that and the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Which part of the cell's case it is of, such as `12`, where a cell has several; rows say that instead of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The metric's unit, such as `ns`.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// Every sample, in `unit`, in the order taken. All are finite.
    pub samples: Vec<f64>,
}

/// The name of metrics that are of all cases of an experiment together, such as how often compaction was skipped for machines of
/// all sizes: their rows take the mean over cases too.
pub const OF_ALL_CASES: &str = "counter";

/// A number known beforehand, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The quantity that is counted.
    pub name: String,
    /// How many the workload must cause, by its own arithmetic.
    pub expected: u64,
    /// How many were found.
    pub found: u64,
    /// How far the two may be apart, in words such as `±1 %`.
    pub tolerance: String,
    /// Whether they are no further apart than that.
    pub within: bool,
}

/// Something a cell could not measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The measurement that was not made.
    pub what: String,
    /// Why not.
    pub reason: String,
}

/// The circumstances of one run; never part of what a rerun must repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, in RFC 3339.
    pub date: String,
    /// How long it took by the wall clock, in seconds.
    pub wall_s: f64,
    /// How long the kernel took to boot, in seconds, where one was booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_s: Option<f64>,
    /// Name of the computer that ran it.
    pub host: String,
    /// Commit of the program.
    pub commit: String,
    /// Most resident memory of the process that ran it, in KiB (`ru_maxrss`, getrusage(2)).
    pub max_rss_kib: u64,
}

/// A kernel that cells ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// [`SCHEMA`] of the build that wrote it.
    pub schema: u32,
    /// Where it ran.
    pub target: Target,
    /// Name of the machine.
    pub machine: String,
    /// Label of the kernel in column heads: [`Key::kernel`] of its cells.
    pub kernel: String,
    /// The release that `uname -r` prints; of the simulator, the variant.
    pub release: String,
    /// The engine that executes a guest's instructions, such as `kvm` or `tcg`; absent where there is no guest.
    pub accelerator: Option<String>,
    /// Every setting that was changed for the run: path or sysctl name, and the value applied.
    pub settings: BTreeMap<String, String>,
    /// Files read from the kernel: phase, then path, then content. Of the simulator, the machine file it was made from.
    pub captures: serde_json::Value,
    /// Notes for a reader.
    pub notes: Vec<String>,
    /// The part that differs from run to run.
    pub run: Run,
}

impl System {
    /// The table column of the cells that ran on it.
    pub fn column(&self) -> Column {
        let (kernel, machine) = (self.kernel.clone(), self.machine.clone());
        Column { result: None, target: self.target, kernel, machine }
    }
}

/// Something that a run would have done by default but could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// [`SCHEMA`] of the build that wrote it.
    pub schema: u32,
    /// The cell, where it is one that was begun: the target lacks something that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The target that it needed.
    pub target: Target,
    /// The work that was not done.
    pub what: String,
    /// Why not.
    pub reason: String,
}
