//! Where the tasks of a workload and the one that counts meet, and what is counted there.

use std::collections::BTreeMap;

use os::{Barrier, Died, Os, Placement};
use serde::{Deserialize, Serialize};
use units::{Errno, Picos};

use crate::{During, Outcome, TaskOutcome, Unable, WorkloadError, model::Begin};

/// States of the machine that are read while everything is mapped. Page tables: kernels spread this one over CPUs, so where
/// a target cannot have it folded a reading is off by at most 125 per CPU and node (`calculate_normal_threshold`,
/// mm/vmstat.c, v6.1), far less on small machines. `VmPTE` of /proc/self/status is exact, but no target's machine-wide
/// reading has it, and tasks that share an address space would each show the whole of it.
const GAUGES: [&str; 1] = ["nr_page_table_pages"];

/// The meeting points: the common start, the common end, and when the counters at the end have been read, so that a
/// task's exit is not counted. `census`: before and after everything is mapped for the gauges.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Meet {
    census: Barrier,
    pub(crate) ready: Barrier,
    pub(crate) start: Barrier,
    pub(crate) end: Barrier,
    pub(crate) leave: Barrier,
}

/// Counters of the machine, over a window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// How far the counters moved between the common start and the common end.
    pub(crate) counters: BTreeMap<String, i64>,
    /// How far apart the gauges are with nothing mapped and with everything mapped; empty without a census.
    pub(crate) gauges: BTreeMap<String, i64>,
    /// The time between the two readings of the counters.
    pub(crate) span: Picos,
}

impl Window {
    /// The outcome of a run whose tasks did this.
    pub(crate) fn outcome(self, tasks: Vec<TaskOutcome>, unable: Vec<Unable>) -> Outcome {
        Outcome { tasks, counters: self.counters, gauges: self.gauges, window: self.span, unable, cpus: None }
    }
}

/// Why a task gave no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskError {
    /// A system call failed.
    Call(Errno),
    /// A child of it died.
    Died(Died),
}

impl From<Errno> for TaskError {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

impl From<Died> for TaskError {
    fn from(died: Died) -> Self {
        Self::Died(died)
    }
}

impl From<WorkloadError> for TaskError {
    /// Of a program that has tasks itself.
    fn from(error: WorkloadError) -> Self {
        match error {
            WorkloadError::Call(_, errno) => Self::Call(errno),
            // Programs of a workload are started with parameters that fit.
            WorkloadError::Misfit(_) | WorkloadError::Refused(_) => Self::Call(Errno::INVAL),
            WorkloadError::Died(died) => Self::Died(died),
        }
    }
}

/// The results of all tasks, in their order, or the first error that is not the echo of another one.
pub(crate) async fn results<T>(
    tasks: Vec<impl Future<Output = Result<Result<T, TaskError>, Died>>>,
) -> Result<Vec<T>, WorkloadError> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    let mut refused = None;
    for task in tasks {
        match task.await? {
            Ok(outcome) => outcomes.push(outcome),
            Err(TaskError::Died(died)) => return Err(died.into()),
            // A cancelled task is the echo of another one's trouble.
            Err(TaskError::Call(errno)) if refused.is_none() || refused == Some(Errno::CANCELED) => {
                refused = Some(errno);
            }
            Err(TaskError::Call(_)) => {}
        }
    }
    match refused {
        Some(errno) => Err(WorkloadError::Call("mmap, madvise, touch, fork or a file operation", errno)),
        None => Ok(outcomes),
    }
}

/// Runs `tasks` tasks, spread over CPUs, which meet at one more barrier among themselves, and counts meanwhile. If a task fails,
/// no task waits for it.
pub(crate) async fn run_spread<O: Os>(
    os: &O,
    tasks: u32,
    body: impl AsyncFnOnce(&O, u32, Meet, Barrier) -> Result<TaskOutcome, Errno> + Clone + Send + 'static,
) -> Result<(Vec<TaskOutcome>, Window), WorkloadError> {
    let meet = Meet::new(os, tasks).await?;
    let among = os.barrier(tasks).await.during("barrier")?;
    let tasks = (0..tasks).map(|index| {
        let body = body.clone();
        os.spawn(Placement::Spread(index), async move |os: O| {
            let outcome = body(&os, index, meet, among).await;
            if outcome.is_err() {
                os.cancel(among).await;
                meet.cancel(&os).await;
            }
            outcome.map_err(TaskError::from)
        })
    });
    let tasks = tasks.collect();
    meet.gather(os, Begin::AT_START, tasks).await
}

/// Runs one task that is bound to no CPU, with counters read around what it does between its start and its end.
pub(crate) async fn run_alone<O: Os>(
    os: &O,
    body: impl AsyncFnOnce(&O, Meet) -> Result<TaskOutcome, Errno> + Send + 'static,
) -> Result<(Vec<TaskOutcome>, Window), WorkloadError> {
    let meet = Meet::new(os, 1).await?;
    let task = os.spawn(Placement::Free, async move |os: O| {
        let outcome = body(&os, meet).await;
        if outcome.is_err() {
            meet.cancel(&os).await;
        }
        outcome.map_err(TaskError::from)
    });
    meet.gather(os, Begin::AT_START, vec![task]).await
}

impl Meet {
    /// Barriers for the tasks and for the task that counts.
    pub(crate) async fn new<O: Os>(os: &O, tasks: u32) -> Result<Self, WorkloadError> {
        let parties = tasks + 1;
        Ok(Self {
            census: os.barrier(parties).await.during("barrier")?,
            ready: os.barrier(parties).await.during("barrier")?,
            start: os.barrier(parties).await.during("barrier")?,
            end: os.barrier(parties).await.during("barrier")?,
            leave: os.barrier(parties).await.during("barrier")?,
        })
    }

    /// Lets nobody wait for someone who will not come.
    pub(crate) async fn cancel<O: Os>(self, os: &O) {
        for barrier in [self.census, self.ready, self.start, self.end, self.leave] {
            os.cancel(barrier).await;
        }
    }

    /// A task holds still while the gauges are read.
    pub(crate) async fn hold_still<O: Os>(self, os: &O) -> Result<(), Errno> {
        os.arrive(self.census).await?;
        os.arrive(self.census).await
    }

    /// Walks through the meeting points with the tasks (which hold still twice if there is a census), then collects their
    /// results. Counting begins after the common start by the time that `begin` says. A task that died gives the reason, which
    /// is worth more than the error that the barrier was cancelled, so results are collected before a barrier's error is
    /// returned.
    pub(crate) async fn gather<O: Os, T>(
        self,
        os: &O,
        begin: Begin,
        tasks: Vec<impl Future<Output = Result<Result<T, TaskError>, Died>>>,
    ) -> Result<(Vec<T>, Window), WorkloadError> {
        let window = self.count(os, begin).await;
        if window.is_err() {
            self.cancel(os).await;
        }
        Ok((results(tasks).await?, window?))
    }

    async fn count<O: Os>(self, os: &O, begin: Begin) -> Result<Window, WorkloadError> {
        let mut gauges = BTreeMap::new();
        if begin.census {
            let empty = self.read_gauges(os).await?;
            let full = self.read_gauges(os).await?;
            gauges = full.since(&empty);
        }
        os.arrive(self.ready).await.during("barrier")?;
        let mut before = os.vmstat().await.during("vmstat")?;
        let mut start = os.now();
        os.arrive(self.start).await.during("barrier")?;
        if begin.after > Picos(0) {
            os.sleep(begin.after).await;
            before = os.vmstat().await.during("vmstat")?;
            start = os.now();
        }
        os.arrive(self.end).await.during("barrier")?;
        let span = os.now().since(start);
        let after = os.vmstat().await.during("vmstat")?;
        os.arrive(self.leave).await.during("barrier")?;
        Ok(Window { counters: after.since(&before), gauges, span })
    }

    async fn read_gauges<O: Os>(self, os: &O) -> Result<os::VmStat, WorkloadError> {
        os.arrive(self.census).await.during("barrier")?;
        let mut reading = os.vmstat().await.during("vmstat")?;
        os.arrive(self.census).await.during("barrier")?;
        reading.0.retain(|name, _| GAUGES.contains(&name.as_str()));
        Ok(reading)
    }
}
