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

/// The version of the schema that this build writes. Version 2 added [`Cell::series`] and [`Cell::slow_path`], 3 added
/// [`Measured::extfrag`], 4 added [`Cell::map`] and 5 added [`Measured::memory`]; nothing else changed.
pub const SCHEMA: u32 = 5;
/// The oldest schema version that this build reads.
pub const OLDEST_SCHEMA: u32 = 1;

/// One line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "most are cells, the largest; records are moved a few times each")]
pub enum Record {
    /// A workload ran and was measured.
    Cell(Cell),
    /// A kernel that cells ran on, as it was found.
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

/// The result of one workload on one kernel and machine, from one memory state and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Schema version of the build that wrote the cell.
    pub schema: u32,
    /// The cell's identity.
    pub key: Key,
    /// The part that a rerun on a deterministic target repeats byte for byte.
    pub measured: Measured,
    /// Samples of the kernel's counters and gauges while the workload ran, if they were asked for. A deterministic target
    /// repeats them like `measured`, but they are no part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// The map of physical memory at the instants of [`Self::series`], if it was asked for: name of a file in the result's
    /// folder [`crate::map::FOLDER`]. The name is the BLAKE3 of the file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Operations that left the allocator's fast path, if the target knows them; a deterministic target repeats them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_path: Option<SlowPath>,
    /// The memory of the guest on its host, if it was asked for. Real kernels do not repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// The part that differs from run to run.
    pub run: Run,
}

/// The identity of a cell, by which a stopped sweep is resumed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Name of the result that the cell was read from, if several results are compared. It is set by the reader and not in the
    /// file.
    #[serde(skip)]
    pub result: Option<String>,
    /// Name of the experiment.
    pub experiment: String,
    /// The subject of the cell's tables, if the experiment has several sets of tables.
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
    /// The target that the cell ran on.
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
    /// Name of the result that the column is from, if several results are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The target.
    pub target: Target,
    /// Label of the kernel.
    pub kernel: String,
    /// Name of the machine.
    pub machine: String,
}

impl Column {
    /// The column's name for programs: `host:6.18.44:here`, or for one of several results `mine:host:6.18.44:here`. It does not
    /// depend on which other columns there are.
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
    /// May the numbers be scored against another target's?
    pub scored: bool,
    /// The metrics, in the order in which tables show them.
    pub metrics: Vec<Metric>,
    /// How far each `/proc/vmstat` counter moved while the workload ran, by the counter's name.
    pub counters: BTreeMap<String, i64>,
    /// The difference of `/proc/vmstat` gauges between nothing mapped and all of the workload's memory mapped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, i64>,
    /// How long the workload took, and the CPU time of its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// The time of all tasks over the whole run by cause, if the target knows it, in picoseconds. The name for time without a
    /// CPU is [`WAITING`] and the cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, u64>,
    /// Pages that the allocator took from pageblocks of another mobility, by kind, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extfrag: Option<Extfrag>,
    /// Free memory and the watermarks, if the target knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Numbers known beforehand, against the numbers that the kernel showed.
    pub checks: Vec<Check>,
    /// Measurements that this cell could not make.
    pub skipped: Vec<Skip>,
    /// Further output of the workload, which tables do not read.
    pub detail: serde_json::Value,
}

impl Measured {
    /// Measurements with nothing in them.
    pub fn nothing() -> Self {
        Self {
            scored: true,
            metrics: Vec::new(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            duration: None,
            causes: BTreeMap::new(),
            extfrag: None,
            memory: None,
            checks: Vec::new(),
            skipped: Vec::new(),
            detail: serde_json::Value::Null,
        }
    }
}

/// The prefix of names in [`Measured::causes`] for time in which a task had no CPU.
pub const WAITING: &str = "waiting: ";

/// The time of a workload between its common start and its common end, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duration {
    /// CPU time in user mode, all tasks together (getrusage(2)).
    pub user_ps: u64,
    /// CPU time in the kernel, all tasks together.
    pub system_ps: u64,
    /// Elapsed time.
    pub elapsed_ps: u64,
}

/// Free memory and watermarks of a run, summed over all zones, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Least free memory at any time.
    pub free_least: u64,
    /// Mean free memory over time.
    pub free_mean: u64,
    /// Sum of the min watermarks.
    pub min: u64,
    /// Sum of the low watermarks, below which kswapd wakes up.
    pub low: u64,
    /// Sum of the high watermarks, at which kswapd stops.
    pub high: u64,
}

/// One measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The metric's name, unit last, such as `fault_latency_ns`.
    pub name: String,
    /// The class, where a quantity has several, such as `fault-huge`. The operation in a row's name is the class and the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The part of the cell's case that was measured, such as `12`, if the case has several; rows show the part in place of the
    /// case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The metric's unit, such as `ns`.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// Every sample, in `unit`, in the order taken. All are finite.
    pub samples: Vec<f64>,
}

/// The class name of metrics over all cases of an experiment, such as how often compaction was skipped on machines of all sizes.
/// Their rows take the mean over cases too.
pub const OF_ALL_CASES: &str = "counter";

/// A number known beforehand, and the number that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The quantity that is counted.
    pub name: String,
    /// The number that the workload must cause, by its own arithmetic.
    pub expected: u64,
    /// The number that was found.
    pub found: u64,
    /// How far the two may be apart, in words such as `±1 %`.
    pub tolerance: String,
    /// Are the two numbers within the tolerance?
    pub within: bool,
}

/// Something a cell could not measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The measurement that was not made.
    pub what: String,
    /// Why it was not made.
    pub reason: String,
}

/// The circumstances of one run; never part of what a rerun must repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, in RFC 3339.
    pub date: String,
    /// Wall-clock time of the run, in seconds.
    pub wall_s: f64,
    /// Boot time of the kernel in seconds, if one was booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_s: Option<f64>,
    /// Name of the computer.
    pub host: String,
    /// Commit of the program.
    pub commit: String,
    /// Most resident memory of the process that ran it, in KiB (`ru_maxrss`, getrusage(2)).
    pub max_rss_kib: u64,
}

/// A kernel that cells ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// Schema version of the build that wrote the record.
    pub schema: u32,
    /// The target.
    pub target: Target,
    /// Name of the machine.
    pub machine: String,
    /// Label of the kernel in column heads: [`Key::kernel`] of its cells.
    pub kernel: String,
    /// The release that `uname -r` prints; for the simulator, the variant.
    pub release: String,
    /// The engine that executes a guest's instructions, such as `kvm` or `tcg`; absent where there is no guest.
    pub accelerator: Option<String>,
    /// Every setting that was changed for the run: its path or sysctl name, and the value that was applied.
    pub settings: BTreeMap<String, String>,
    /// Files read from the kernel: phase, then path, then content. For the simulator it is the machine file.
    pub captures: serde_json::Value,
    /// Notes for a reader.
    pub notes: Vec<String>,
    /// The circumstances, which differ from run to run.
    pub run: Run,
}

impl System {
    /// The table column of the cells that ran on this kernel.
    pub fn column(&self) -> Column {
        let (kernel, machine) = (self.kernel.clone(), self.machine.clone());
        Column { result: None, target: self.target, kernel, machine }
    }
}

/// Something that a run would have done by default but could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Schema version of the build that wrote the record.
    pub schema: u32,
    /// The cell, if it was begun and the target then lacked something that the cell needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The target that the work needed.
    pub target: Target,
    /// The work that was not done.
    pub what: String,
    /// Why not.
    pub reason: String,
}
