//! The benchmarks: each an `async fn` over [`Os`], which sees neither the simulator nor Linux.
//!
//! A workload has named parameters with text values ([`Workload::parse`] turns them into a typed form and refuses what
//! makes no sense), says how much memory it needs, and returns an [`Outcome`] of integers.

pub mod fault_storm;
pub mod fork_storm;
mod meet;
mod outcome;
mod params;

pub use meet::TaskError;
use os::{Died, Os};
pub use outcome::{Iteration, Outcome, TaskOutcome};
pub use params::{ParamError, ParamInfo};
use units::{Bytes, Errno};

/// A workload together with its parameters, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// will-it-scale's page_fault1 as a fixed amount of work.
    FaultStorm(fault_storm::Params),
    /// fork, and the faults on both sides of it.
    ForkStorm(fork_storm::Params),
}

/// What a user sees of a workload in `pagelab list workloads`.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
}

/// Every workload there is.
pub const WORKLOADS: &[WorkloadInfo] = &[fault_storm::INFO, fork_storm::INFO];

/// Why a workload gave no result.
#[derive(Debug, PartialEq, Eq)]
pub enum WorkloadError {
    /// A system call failed; the text says which.
    Call(&'static str, Errno),
    /// One of its tasks died.
    Died(Died),
}

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(call, errno) => write!(f, "{call} failed: {errno}"),
            Self::Died(died) => died.fmt(f),
        }
    }
}

impl std::error::Error for WorkloadError {}

impl From<Died> for WorkloadError {
    fn from(died: Died) -> Self {
        Self::Died(died)
    }
}

/// Names the call that failed.
pub(crate) trait During<T> {
    fn during(self, call: &'static str) -> Result<T, WorkloadError>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, call: &'static str) -> Result<T, WorkloadError> {
        self.map_err(|errno| WorkloadError::Call(call, errno))
    }
}

impl Workload {
    /// The workload `name` with parameters given as text; those not given take their defaults.
    pub fn parse<'a>(name: &str, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        match name {
            "fault-storm" => fault_storm::Params::parse(params).map(Self::FaultStorm),
            "fork-storm" => fork_storm::Params::parse(params).map(Self::ForkStorm),
            _ => Err(ParamError::UnknownWorkload(name.to_owned())),
        }
    }

    /// The most memory the workload has mapped and touched at one time, all tasks together.
    pub fn memory(&self) -> Bytes {
        match self {
            Self::FaultStorm(params) => params.memory(),
            Self::ForkStorm(params) => params.memory(),
        }
    }

    /// A short name of this case inside its workload, for table rows: `huge-threads-2`.
    pub fn case(&self) -> String {
        match self {
            Self::FaultStorm(params) => params.case(),
            Self::ForkStorm(params) => params.case(),
        }
    }

    /// Whether the result may be compared: work bounded by time instead of by count is not.
    pub fn scored(&self) -> bool {
        match self {
            Self::FaultStorm(params) => params.duration.is_none(),
            Self::ForkStorm(_) => true,
        }
    }

    /// Runs it on a target.
    pub async fn run<O: Os>(&self, os: O) -> Result<Outcome, WorkloadError> {
        match self {
            Self::FaultStorm(params) => fault_storm::run(os, params.clone()).await,
            Self::ForkStorm(params) => fork_storm::run(os, params.clone()).await,
        }
    }
}

/// Runs the entry of a spawned process: `params` and the result are JSON, as [`Os::spawn_process`] sends them.
/// `None` when no workload has an entry of that name.
pub async fn run_entry<O: Os>(os: O, entry: &str, params: &[u8]) -> Option<serde_json::Result<Vec<u8>>> {
    match entry {
        fault_storm::TASK_ENTRY => Some(match serde_json::from_slice(params) {
            Ok(params) => serde_json::to_vec(&fault_storm::task(os, params).await),
            Err(error) => Err(error),
        }),
        fork_storm::TASK_ENTRY => Some(match serde_json::from_slice(params) {
            Ok(params) => serde_json::to_vec(&fork_storm::task(os, params).await),
            Err(error) => Err(error),
        }),
        _ => None,
    }
}
