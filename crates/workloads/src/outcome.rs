//! The outcome of a workload, as integers; rates and means are made from it when it is reported.

use std::collections::BTreeMap;

use os::{Os, Placed, Rusage};
use serde::{Deserialize, Serialize};
use units::{BlockCensus, Bytes, Errno, FrameChurned, Picos, Stores, Streamed, Time};

use crate::{Block, During, WorkloadError, member::MemberOutcome, numa_access::Access, numa_probe::Probe};

/// The outcome of one workload run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// One entry per task, in the order they were spawned; of fork-storm, one per [phase](crate::fork_storm::Phase).
    pub tasks: Vec<TaskOutcome>,
    /// How far the machine-wide counters moved between the common start and the common end.
    pub counters: BTreeMap<String, i64>,
    /// How far apart the machine-wide gauges were with nothing mapped and with everything mapped, where they were read.
    pub gauges: BTreeMap<String, i64>,
    /// The time between the two readings of the counters.
    pub window: Picos,
    /// Parts of it that the target does not have.
    pub unable: Vec<Unable>,
    /// The CPUs of the run; of will-it-scale only.
    pub cpus: Option<u32>,
}

/// A part of a workload that was left out, as the target does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unable {
    /// The figure that was left out.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Drops the caches of the machine; a target that may not has that noted, once.
pub(crate) async fn drop_caches<O: Os>(os: &O, unable: &mut Vec<Unable>) -> Result<(), WorkloadError> {
    let left_out = Unable::drop_caches();
    match os.drop_caches().await {
        Err(Errno::NOSYS) if unable.contains(&left_out) => {}
        Err(Errno::NOSYS) => unable.push(left_out),
        dropped => dropped.during("drop_caches")?,
    }
    Ok(())
}

/// Bytes that all sweeps have streamed until now, where somebody counts that.
pub(crate) async fn streamed<O: Os>(os: &O) -> Result<Option<Streamed>, Errno> {
    match os.streamed().await {
        Err(Errno::NOSYS) => Ok(None),
        known => known.map(Some),
    }
}

/// Bytes that all sweeps have streamed since an earlier reading.
pub(crate) async fn streamed_since<O: Os>(os: &O, before: Option<Streamed>) -> Result<Option<Streamed>, Errno> {
    Ok(streamed(os).await?.zip(before).map(|(now, before)| now.since(&before)))
}

impl Unable {
    fn drop_caches() -> Self {
        Self {
            what: "drop_caches".to_owned(),
            reason: "the run may not drop the caches of this machine (ENOSYS), so its own file may be cached already"
                .to_owned(),
        }
    }
}

/// The outcome of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// When its first iteration began.
    pub start: Time,
    /// When its last iteration ended.
    pub end: Time,
    /// Stores, one per base page and iteration: what will-it-scale counts.
    pub stores: u64,
    /// Faults that those stores must have taken, by the program's own count.
    pub faults: u64,
    /// Huge-page faults among them.
    pub huge_faults: u64,
    /// Per iteration: the time of the stores that fault, and how many faults those were.
    pub iterations: Vec<Iteration>,
    /// Counts of the kernel for this task over the same iterations.
    pub rusage: Rusage,
    /// Blocks of 2 MiB whose fault was timed, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// The time of filling and punching memory before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anoninit: Option<Picos>,
    /// The time of mapping and reading a file before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fileinit: Option<Picos>,
    /// The task's accesses to memory; of numa-access only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Phases and moves of a task on a busy machine; of numa-probe only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// How mixed memory was before its first block; of week only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub census: Option<BlockCensus>,
    /// The program that it stands for, where a run has several; of autonumabench only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Business transactions that it has done; of warehouses only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// Bytes that sweeps of all tasks streamed meanwhile; of autonumabench and warehouses only, where somebody counts
    /// that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamed: Option<Streamed>,
    /// Bytes that its passes wrote, by the kind of store; of autonumabench only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<(Stores, Bytes)>,
    /// Where its memory ended, by node and page size; of vm-larger-than-a-node, fragmented-fault, autonumabench and
    /// numa-probe only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<Placed>>,
    /// Attempts from one compaction to the next, at most; of fragmented-fault with `deferral` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferral: Option<u64>,
    /// Base pages of the guest that its host backed at the end; of will-it-scale without a test only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_resident: Option<u64>,
    /// The least part of a free list that a pass has reported until then, in millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_reported: Option<u64>,
    /// Free blocks by round; of llfree-frag only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_churn: Option<FrameChurned>,
    /// Phases of a process; of a service only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberOutcome>,
}

/// One iteration of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Time of the stores that take a fault.
    pub faulting: Picos,
    /// How many faults they took.
    pub faults: u64,
    /// Time of the `munmap` at its end, and the base pages that were stored to; of fault-storm only.
    pub unmapping: Option<Unmapping>,
}

/// The end of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmapping {
    /// Time of the `munmap`.
    pub span: Picos,
    /// Base pages of it that were there.
    pub pages: u64,
}

impl TaskOutcome {
    /// The outcome of a task that has done nothing yet.
    pub(crate) fn starting(start: Time, rusage: Rusage) -> Self {
        Self {
            start,
            end: start,
            stores: 0,
            faults: 0,
            huge_faults: 0,
            iterations: Vec::new(),
            rusage,
            blocks: Vec::new(),
            anoninit: None,
            fileinit: None,
            access: None,
            probe: None,
            census: None,
            part: None,
            transactions: None,
            streamed: None,
            wrote: Vec::new(),
            places: None,
            deferral: None,
            host_resident: None,
            least_reported: None,
            frame_churn: None,
            member: None,
        }
    }
}

impl Outcome {
    /// From the first task's start to the last task's end.
    ///
    /// # Panics
    /// When there are no tasks.
    pub fn elapsed(&self) -> Picos {
        let start = self.tasks.iter().map(|task| task.start).min().expect("a workload has at least one task");
        let end = self.tasks.iter().map(|task| task.end).max().expect("a workload has at least one task");
        end.since(start)
    }

    /// Counts of the kernel for all tasks together.
    pub fn rusage(&self) -> Rusage {
        let mut all = Rusage::default();
        self.tasks.iter().for_each(|task| all.add(&task.rusage));
        all
    }
}
