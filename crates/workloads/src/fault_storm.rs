//! fault-storm: will-it-scale's page_fault1 as a fixed amount of work.
//!
//! Each task repeats: map `size` bytes of private anonymous memory, store one byte into every base page, unmap. The
//! original runs for a number of seconds; a fixed number of iterations makes two kernels do the same work.
//! (Source of the loop: antonblanchard/will-it-scale, tests/page_fault1.c, read for behaviour.)
//!
//! With huge pages the task maps 2 MiB more and uses the aligned part, as otherwise the two ends of the mapping fall
//! back to base pages. It first stores into the head of every 2 MiB block, asks `mincore` whether the block's other pages
//! came along, and then stores into every base page: so it knows how many faults it must have taken, whatever the kernel
//! decided, and the time of a huge fault is not mixed with 511 stores that do not fault.
//!
//! Before the common start each task does `warmup` iterations that nobody counts: on a host that is itself a guest, memory
//! that its hypervisor has not backed yet costs milliseconds per huge page at the first touch.

use os::{Advice, Barrier, MapSpec, Os, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use crate::{
    During, Iteration, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo, params::value,
};

/// The entry of a task that is a process of its own.
pub const TASK_ENTRY: &str = "fault-storm-task";

/// A huge page in base pages.
const BASE_PER_HUGE: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;

const PAGE: ParamInfo = ParamInfo {
    name: "page",
    expects: "\"base\" or \"huge\"",
    default: "base",
    about: "MADV_NOHUGEPAGE or MADV_HUGEPAGE on the mapping",
};
const MODEL: ParamInfo = ParamInfo {
    name: "model",
    expects: "\"threads\" or \"processes\"",
    default: "threads",
    about: "whether the tasks share an address space",
};
const TASKS: ParamInfo = ParamInfo {
    name: "tasks",
    expects: "a whole number from 1 to 4096",
    default: "1",
    about: "tasks that run at the same time, task i pinned to CPU i mod CPUs",
};
const ITERATIONS: ParamInfo = ParamInfo {
    name: "iterations",
    expects: "a whole number from 1 to 1000000",
    default: "8",
    about: "how often each task maps, touches and unmaps",
};
const WARMUP: ParamInfo = ParamInfo {
    name: "warmup",
    expects: "a whole number from 0 to 1000000",
    default: "1",
    about: "iterations of each task before the common start, not counted",
};
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: "a multiple of 2MiB from \"2MiB\" to \"1TiB\"",
    default: "128MiB",
    about: "bytes mapped and touched per iteration",
};
const DURATION: ParamInfo = ParamInfo {
    name: "duration",
    expects: "whole seconds from 1 to 86400",
    default: "none",
    about: "run for this long instead of `iterations` times; such a run is never scored",
};

/// What `pagelab list workloads` says.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "fault-storm",
    about: "will-it-scale page_fault1 as a fixed amount of work: mmap, touch, munmap",
    params: &[PAGE, MODEL, TASKS, ITERATIONS, WARMUP, SIZE, DURATION],
};

/// Size of the pages that the mapping asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// 4 KiB (`MADV_NOHUGEPAGE`).
    Base,
    /// 2 MiB (`MADV_HUGEPAGE`).
    Huge,
}

/// Whether tasks share an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// One address space: the mmap lock is shared.
    Threads,
    /// One address space each.
    Processes,
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Base or huge pages.
    pub page: PageSize,
    /// Threads or processes.
    pub model: Model,
    /// Tasks at the same time.
    pub tasks: u32,
    /// Iterations of each task.
    pub iterations: u32,
    /// Iterations before those.
    pub warmup: u32,
    /// Bytes mapped and touched per iteration.
    pub size: Bytes,
    /// Run for this long instead of `iterations` times.
    pub duration: Option<Picos>,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            page: PageSize::Base,
            model: Model::Threads,
            tasks: 1,
            iterations: 8,
            warmup: 1,
            size: Bytes::mib(128),
            duration: None,
        };
        for (name, text) in given {
            match name {
                "page" => {
                    params.page = if one_of(&PAGE, text, "base", "huge")? { PageSize::Base } else { PageSize::Huge }
                }
                "model" => {
                    params.model =
                        if one_of(&MODEL, text, "threads", "processes")? { Model::Threads } else { Model::Processes };
                }
                "tasks" => params.tasks = value(&TASKS, text, |n| (1..=4096).contains(n))?,
                "iterations" => params.iterations = value(&ITERATIONS, text, |n| (1..=1_000_000).contains(n))?,
                "warmup" => params.warmup = value(&WARMUP, text, |n| *n <= 1_000_000)?,
                "size" => {
                    params.size = value(&SIZE, text, |size: &Bytes| {
                        size.0.is_multiple_of(Bytes::HUGE_PAGE.0)
                            && (Bytes::HUGE_PAGE..=Bytes::gib(1024)).contains(size)
                    })?;
                }
                "duration" => {
                    params.duration = Some(Picos::from_secs(value(&DURATION, text, |s| (1..=86_400).contains(s))?));
                }
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// Bytes mapped by one task: huge pages need room to align.
    fn mapped(&self) -> Bytes {
        match self.page {
            PageSize::Base => self.size,
            PageSize::Huge => self.size + Bytes::HUGE_PAGE,
        }
    }

    pub(crate) fn memory(&self) -> Bytes {
        self.mapped() * u64::from(self.tasks)
    }

    pub(crate) fn case(&self) -> String {
        let page = match self.page {
            PageSize::Base => "base",
            PageSize::Huge => "huge",
        };
        let model = match self.model {
            Model::Threads => "threads",
            Model::Processes => "processes",
        };
        format!("{page}-{model}-{}", self.tasks)
    }
}

/// Whether `text` is the first of two words; neither is an error.
fn one_of(info: &ParamInfo, text: &str, first: &str, second: &str) -> Result<bool, ParamError> {
    value::<String>(info, text, |word| word == first || word == second).map(|word| word == first)
}

/// What a task needs to know; crosses a pipe when the task is a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskParams {
    params: Params,
    meet: Meet,
}

/// Where the tasks and the one that counts meet: at the common start, at the common end, and when the counters at the
/// end have been read, so that a task's exit is not counted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Meet {
    ready: Barrier,
    start: Barrier,
    end: Barrier,
    leave: Barrier,
}

impl Meet {
    /// Lets nobody wait for someone who will not come.
    async fn cancel<O: Os>(self, os: &O) {
        for barrier in [self.ready, self.start, self.end, self.leave] {
            os.cancel(barrier).await;
        }
    }
}

/// Runs all tasks and reads the machine's counters around their common window.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let parties = params.tasks + 1;
    let meet = Meet {
        ready: os.barrier(parties).await.during("barrier")?,
        start: os.barrier(parties).await.during("barrier")?,
        end: os.barrier(parties).await.during("barrier")?,
        leave: os.barrier(parties).await.during("barrier")?,
    };
    let each = TaskParams { params: params.clone(), meet };
    match params.model {
        Model::Threads => {
            let tasks: Vec<_> = (0..params.tasks)
                .map(|i| {
                    let each = each.clone();
                    os.spawn(Placement::Spread(i), async move |os: O| task(os, each).await)
                })
                .collect();
            gather(&os, meet, tasks).await
        }
        Model::Processes => {
            let tasks: Vec<_> =
                (0..params.tasks).map(|i| os.spawn_process(Placement::Spread(i), TASK_ENTRY, each.clone())).collect();
            gather(&os, meet, tasks).await
        }
    }
}

/// Walks through the meeting points with the tasks, then collects their results. A task that died says why, which is
/// worth more than that the barrier was cancelled, so results are collected before a barrier's error is returned.
async fn gather<O: Os>(
    os: &O,
    meet: Meet,
    tasks: Vec<impl Future<Output = Result<Result<TaskOutcome, Errno>, os::Died>>>,
) -> Result<Outcome, WorkloadError> {
    let window = count(os, meet).await;
    if window.is_err() {
        meet.cancel(os).await;
    }
    let mut outcomes = Vec::with_capacity(tasks.len());
    let mut refused = None;
    for task in tasks {
        match task.await? {
            Ok(outcome) => outcomes.push(outcome),
            // A cancelled task is the echo of another one's trouble.
            Err(errno) if refused.is_none() || refused == Some(Errno::CANCELED) => refused = Some(errno),
            Err(_) => {}
        }
    }
    if let Some(errno) = refused {
        return Err(WorkloadError::Call("mmap, madvise or touch", errno));
    }
    let (counters, window) = window?;
    Ok(Outcome { tasks: outcomes, counters, window })
}

async fn count<O: Os>(os: &O, meet: Meet) -> Result<(std::collections::BTreeMap<String, i64>, Picos), WorkloadError> {
    os.arrive(meet.ready).await.during("barrier")?;
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    os.arrive(meet.start).await.during("barrier")?;
    os.arrive(meet.end).await.during("barrier")?;
    let window = os.now().since(start);
    let after = os.vmstat().await.during("vmstat")?;
    os.arrive(meet.leave).await.during("barrier")?;
    Ok((after.since(&before), window))
}

/// One task, in a thread or in a process of its own.
pub async fn task<O: Os>(os: O, with: TaskParams) -> Result<TaskOutcome, Errno> {
    let outcome = work(&os, &with.params, with.meet).await;
    if outcome.is_err() {
        with.meet.cancel(&os).await;
    }
    outcome
}

async fn work<O: Os>(os: &O, params: &Params, meet: Meet) -> Result<TaskOutcome, Errno> {
    let mut warmup = TaskOutcome::starting(os.now(), os.rusage().await?);
    for _ in 0..params.warmup {
        iterate(os, params, &mut warmup).await?;
    }
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    while more(params, &outcome, os.now()) {
        iterate(os, params, &mut outcome).await?;
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    Ok(outcome)
}

fn more(params: &Params, outcome: &TaskOutcome, now: Time) -> bool {
    match params.duration {
        Some(duration) => now.since(outcome.start) < duration,
        None => outcome.iterations.len() < params.iterations as usize,
    }
}

async fn iterate<O: Os>(os: &O, params: &Params, outcome: &mut TaskOutcome) -> Result<(), Errno> {
    let mapping = os.mmap(params.mapped(), MapSpec::Anonymous).await?;
    let iteration = match params.page {
        PageSize::Base => {
            os.madvise(mapping, Advice::NoHugePage).await?;
            let start = os.now();
            os.store(mapping, Bytes::PAGE).await?;
            Iteration { faulting: os.now().since(start), faults: mapping.pages(Bytes::PAGE) }
        }
        PageSize::Huge => {
            os.madvise(mapping, Advice::HugePage).await?;
            let range = mapping.aligned_part(Bytes::HUGE_PAGE, params.size);
            fault_blocks(os, range, outcome).await?
        }
    };
    outcome.stores += params.size.0 / Bytes::PAGE.0;
    outcome.faults += iteration.faults;
    outcome.iterations.push(iteration);
    os.munmap(mapping).await
}

/// Faults the heads of all blocks, counts which came as huge pages, then touches the rest. When every block is huge, the
/// rest takes no fault and is not part of the faulting time.
async fn fault_blocks<O: Os>(os: &O, range: VmRange, outcome: &mut TaskOutcome) -> Result<Iteration, Errno> {
    let start = os.now();
    os.store(range, Bytes::HUGE_PAGE).await?;
    let heads = os.now().since(start);
    let resident = os.mincore(range).await?;
    let start = os.now();
    os.store(range, Bytes::PAGE).await?;
    let rest = os.now().since(start);
    let blocks = resident.chunks_exact(usize::try_from(BASE_PER_HUGE).expect("512 fits"));
    // Every page that did not come along with its head takes a fault of its own.
    let left: Vec<u64> = blocks.map(|block| block.iter().filter(|resident| !**resident).count() as u64).collect();
    outcome.huge_faults += left.iter().filter(|left| **left == 0).count() as u64;
    let left_all: u64 = left.iter().sum();
    let faulting = if left_all == 0 { heads } else { heads + rest };
    Ok(Iteration { faulting, faults: left.len() as u64 + left_all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_page_fault1_with_eight_iterations() {
        let params = Params::parse([]).unwrap();
        assert_eq!(params.case(), "base-threads-1");
        assert_eq!((params.iterations, params.size), (8, Bytes::mib(128)));
        assert_eq!(params.memory(), Bytes::mib(128));
    }

    #[test]
    fn the_defaults_that_are_listed_are_those_in_force() {
        let listed = INFO.params.iter().map(|param| (param.name, param.default)).filter(|(_, text)| *text != "none");
        assert_eq!(Params::parse(listed), Params::parse([]));
    }

    #[test]
    fn huge_pages_need_room_to_align() {
        let params = Params::parse([("page", "huge"), ("tasks", "3")]).unwrap();
        assert_eq!(params.memory(), Bytes::mib(390));
        assert_eq!(params.case(), "huge-threads-3");
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_what_was_expected() {
        for (name, text) in [
            ("page", "large"),
            ("tasks", "0"),
            ("tasks", "-1"),
            ("iterations", "1e3"),
            ("size", "3MiB"),
            ("size", "0B"),
            ("duration", "0"),
        ] {
            let error = Params::parse([(name, text)]).unwrap_err();
            assert!(matches!(&error, ParamError::BadValue { found, .. } if found == text), "{error}");
        }
        assert_eq!(Params::parse([("taks", "1")]), Err(ParamError::UnknownParam { name: "taks".to_owned() }));
    }
}
