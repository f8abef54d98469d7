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
//! page_fault2 and page_fault3 are the same loop over a file of each task's own, unlinked and sparse at first, of `size` bytes:
//! private, so that each store copies a page of the page cache; shared, so that each makes one writable. Base pages only.
//! (tests/page_fault2.c and page_fault3.c of the same.)
//!
//! Before the common start each task does `warmup` iterations that nobody counts: on a host that is itself a guest, memory
//! that its hypervisor has not backed yet costs milliseconds per huge page at the first touch.

use os::{Advice, FileRange, MapSpec, Os, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use crate::{
    Iteration, Outcome, ParamError, ParamInfo, TaskOutcome, Unmapping, WorkloadError, WorkloadInfo,
    meet::{Meet, TaskError},
    model::{Begin, Body, MODEL, Model, TASKS, gather, parse_tasks},
    params::{one_of, value},
};

/// The entry of a task that is a process of its own.
pub const TASK_ENTRY: &str = "fault-storm-task";

/// A huge page in base pages.
pub(crate) const BASE_PER_HUGE: u64 = Bytes::HUGE_PAGE.0 / Bytes::PAGE.0;

pub(crate) const PAGE: ParamInfo = ParamInfo {
    name: "page",
    expects: "\"base\" or \"huge\"",
    default: "base",
    about: "MADV_NOHUGEPAGE or MADV_HUGEPAGE on the mapping",
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
pub(crate) const SIZE: ParamInfo = ParamInfo {
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

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "fault-storm",
    about: "will-it-scale page_fault1 as a fixed amount of work: mmap, touch, munmap",
    maps_memory: true,
    params: &[PAGE, MODEL, TASKS, ITERATIONS, WARMUP, SIZE, DURATION],
};

/// The entry of page_fault2 in `pagelab list workloads`.
pub const PAGE_FAULT2: WorkloadInfo = WorkloadInfo {
    name: "page-fault2",
    about: "will-it-scale page_fault2 as a fixed amount of work: stores into a private mapping of a file",
    maps_memory: true,
    params: &[MODEL, TASKS, ITERATIONS, WARMUP, SIZE, DURATION],
};
/// The entry of page_fault3 in `pagelab list workloads`.
pub const PAGE_FAULT3: WorkloadInfo = WorkloadInfo {
    name: "page-fault3",
    about: "will-it-scale page_fault3 as a fixed amount of work: stores into a shared mapping of a file",
    maps_memory: true,
    params: &[MODEL, TASKS, ITERATIONS, WARMUP, SIZE, DURATION],
};

/// The kind of mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Nothing: page_fault1.
    Anonymous,
    /// A file, privately: page_fault2.
    PrivateFile,
    /// A file, shared: page_fault3.
    SharedFile,
}

/// Size of the pages that the mapping asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// 4 KiB (`MADV_NOHUGEPAGE`).
    Base,
    /// 2 MiB (`MADV_HUGEPAGE`).
    Huge,
}

impl PageSize {
    pub(crate) fn parse(text: &str) -> Result<Self, ParamError> {
        Ok(if one_of(&PAGE, text, "base", "huge")? { Self::Base } else { Self::Huge })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Huge => "huge",
        }
    }

    /// Bytes to map for `size` bytes to touch: huge pages need room to align.
    pub(crate) fn mapped(self, size: Bytes) -> Bytes {
        match self {
            Self::Base => size,
            Self::Huge => size + Bytes::HUGE_PAGE,
        }
    }
}

pub(crate) fn parse_size(text: &str) -> Result<Bytes, ParamError> {
    value(&SIZE, text, |size: &Bytes| {
        size.0.is_multiple_of(Bytes::HUGE_PAGE.0) && (Bytes::HUGE_PAGE..=Bytes::gib(1024)).contains(size)
    })
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The kind of mapping.
    pub backing: Backing,
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
    pub(crate) fn parse<'a>(
        backing: Backing,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        let mut params = Self {
            backing,
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
                "page" if backing == Backing::Anonymous => params.page = PageSize::parse(text)?,
                "model" => params.model = Model::parse(text)?,
                "tasks" => params.tasks = parse_tasks(text)?,
                "iterations" => params.iterations = value(&ITERATIONS, text, |n| (1..=1_000_000).contains(n))?,
                "warmup" => params.warmup = value(&WARMUP, text, |n| *n <= 1_000_000)?,
                "size" => params.size = parse_size(text)?,
                "duration" => {
                    params.duration = Some(Picos::from_secs(value(&DURATION, text, |s| (1..=86_400).contains(s))?));
                }
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// Bytes mapped by one task.
    fn mapped(&self) -> Bytes {
        self.page.mapped(self.size)
    }

    pub(crate) fn memory(&self) -> Bytes {
        let cached = self.files();
        match self.backing {
            Backing::Anonymous | Backing::PrivateFile => self.mapped() * u64::from(self.tasks) + cached,
            Backing::SharedFile => cached,
        }
    }

    pub(crate) fn files(&self) -> Bytes {
        match self.backing {
            Backing::Anonymous => Bytes(0),
            Backing::PrivateFile | Backing::SharedFile => self.size * u64::from(self.tasks),
        }
    }

    pub(crate) fn case(&self) -> String {
        let page = self.page.name();
        let model = self.model.name();
        match self.backing {
            Backing::Anonymous => format!("{page}-{model}-{}", self.tasks),
            Backing::PrivateFile | Backing::SharedFile => format!("{model}-{}", self.tasks),
        }
    }
}

/// Parameters of a task; they cross a pipe when the task is a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskParams {
    params: Params,
    meet: Meet,
    index: u32,
}

/// Runs all tasks and reads the machine's counters around their common window.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let meet = Meet::new(&os, params.tasks).await?;
    let begin = Begin { census: params.warmup > 0, after: Picos(0) };
    let each = (0..params.tasks).map(|index| TaskParams { params: params.clone(), meet, index });
    let body = Body { entry: TASK_ENTRY, run: task };
    let (tasks, window) = gather(&os, (meet, begin), params.model, body, each).await?;
    Ok(window.outcome(tasks, Vec::new()))
}

/// One task, in a thread or in a process of its own.
pub async fn task<O: Os>(os: O, with: TaskParams) -> Result<TaskOutcome, TaskError> {
    let params = &with.params;
    let outcome = match what_to_map(&os, params.backing, params.size, with.index).await {
        Ok(what) => work(&os, params, what, with.meet).await,
        Err(errno) => Err(errno),
    };
    if outcome.is_err() {
        with.meet.cancel(&os).await;
    }
    Ok(outcome?)
}

/// The mapping of a task: of the file workloads, a file of its own that has no name any more.
pub(crate) async fn what_to_map<O: Os>(os: &O, backing: Backing, size: Bytes, index: u32) -> Result<MapSpec, Errno> {
    let spec = match backing {
        Backing::Anonymous => return Ok(MapSpec::Anonymous),
        Backing::PrivateFile => MapSpec::Private,
        Backing::SharedFile => MapSpec::Shared,
    };
    let name = format!("page-fault-{index}");
    let file = os.create(&name).await?;
    os.unlink(&name).await?;
    os.truncate(file, size).await?;
    Ok(spec(FileRange { file, offset: Bytes(0) }))
}

async fn work<O: Os>(os: &O, params: &Params, what: MapSpec, meet: Meet) -> Result<TaskOutcome, Errno> {
    let mut warmup = TaskOutcome::starting(os.now(), os.rusage().await?);
    for left in (0..params.warmup).rev() {
        // The last one is also the census: everybody has everything mapped at the same time.
        if left == 0 {
            meet.hold_still(os).await?;
        }
        let mapping = fill(os, params, what, &mut warmup).await?;
        if left == 0 {
            meet.hold_still(os).await?;
        }
        os.munmap(mapping).await?;
    }
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    while more(params, &outcome, os.now()) {
        let mapping = fill(os, params, what, &mut outcome).await?;
        let start = os.now();
        os.munmap(mapping).await?;
        let unmapping = Unmapping { span: os.now().since(start), pages: params.size.frames().0 };
        outcome.iterations.last_mut().expect("filling it was one").unmapping = Some(unmapping);
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

/// Maps memory and touches all of it; whoever calls unmaps it.
async fn fill<O: Os>(os: &O, params: &Params, what: MapSpec, outcome: &mut TaskOutcome) -> Result<VmRange, Errno> {
    let mapping = os.mmap(params.mapped(), what).await?;
    let range = match what {
        MapSpec::Anonymous => touch(os, mapping, params.page, params.size, outcome).await?,
        MapSpec::Private(_) | MapSpec::Shared(_) | MapSpec::SharedRead(_) => {
            let iteration = store_all(os, mapping).await?;
            outcome.faults += iteration.faults;
            outcome.iterations.push(iteration);
            mapping
        }
    };
    outcome.stores += range.pages(Bytes::PAGE);
    Ok(mapping)
}

/// Stores into every base page of `size` bytes of a fresh mapping, and says which bytes those are.
pub(crate) async fn touch<O: Os>(
    os: &O,
    mapping: VmRange,
    page: PageSize,
    size: Bytes,
    outcome: &mut TaskOutcome,
) -> Result<VmRange, Errno> {
    let (range, iteration) = match page {
        PageSize::Base => {
            os.madvise(mapping, Advice::NoHugePage).await?;
            (mapping, store_all(os, mapping).await?)
        }
        PageSize::Huge => {
            os.madvise(mapping, Advice::HugePage).await?;
            let range = mapping.aligned_part(Bytes::HUGE_PAGE, size);
            (range, fault_blocks(os, range, outcome).await?)
        }
    };
    outcome.faults += iteration.faults;
    outcome.iterations.push(iteration);
    Ok(range)
}

/// One store into every base page, each of which takes a fault.
async fn store_all<O: Os>(os: &O, mapping: VmRange) -> Result<Iteration, Errno> {
    let start = os.now();
    os.store(mapping, Bytes::PAGE).await?;
    Ok(Iteration { faulting: os.now().since(start), faults: mapping.pages(Bytes::PAGE), unmapping: None })
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
    // Every page that the fault at the head of its block did not map takes a fault of its own.
    let missing = |block: &[bool]| block.iter().filter(|resident| !**resident).count() as u64;
    // Nearly all blocks are whole, which is found sooner than counted.
    let left: Vec<u64> = blocks.map(|block| if block.contains(&false) { missing(block) } else { 0 }).collect();
    outcome.huge_faults += left.iter().filter(|left| **left == 0).count() as u64;
    let left_all: u64 = left.iter().sum();
    let faulting = if left_all == 0 { heads } else { heads + rest };
    Ok(Iteration { faulting, faults: left.len() as u64 + left_all, unmapping: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_page_fault1_with_eight_iterations() {
        let params = Params::parse(Backing::Anonymous, []).unwrap();
        assert_eq!(params.case(), "base-threads-1");
        assert_eq!((params.iterations, params.size), (8, Bytes::mib(128)));
        assert_eq!(params.memory(), Bytes::mib(128));
    }

    #[test]
    fn files_have_base_pages_and_private_copies_double_them() {
        let params = |backing| Params::parse(backing, [("tasks", "2"), ("size", "4MiB")]).unwrap();
        let (private, shared) = (params(Backing::PrivateFile), params(Backing::SharedFile));
        assert_eq!((private.memory(), private.files()), (Bytes::mib(16), Bytes::mib(8)));
        assert_eq!((shared.memory(), shared.files()), (Bytes::mib(8), Bytes::mib(8)));
        assert_eq!(shared.case(), "threads-2");
        assert!(Params::parse(Backing::SharedFile, [("page", "huge")]).is_err());
    }

    #[test]
    fn huge_pages_need_room_to_align() {
        let params = Params::parse(Backing::Anonymous, [("page", "huge"), ("tasks", "3")]).unwrap();
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
            let error = Params::parse(Backing::Anonymous, [(name, text)]).unwrap_err();
            assert!(matches!(&error, ParamError::BadValue { found, .. } if found == text), "{error}");
        }
        assert_eq!(
            Params::parse(Backing::Anonymous, [("taks", "1")]),
            Err(ParamError::UnknownParam { name: "taks".to_owned() })
        );
    }
}
