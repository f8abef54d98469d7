//! will-it-scale: stores into fresh memory for a time, as the original counts them.
//!
//! Each task repeats: map `size` bytes, store one byte into every base page, unmap. Every store counts, whatever it faulted. The
//! tasks run for `warmup_seconds`, and then what they store in `seconds` counts. They store in pieces of 2 MiB: a task looks at
//! the clock before each, so that its count belongs to its own window exactly.
//! (Source of the loop: antonblanchard/will-it-scale, main.c, tests/page_fault1.c and page_fault2.c, read for behaviour.)
//!
//! `page_fault1_thp` is page_fault1 with `MADV_HUGEPAGE`, as measured for "mm / virtio: Provide support for free page reporting"
//! (Alexander Duyck, 2020). The task maps 2 MiB more and uses the aligned part, as otherwise the two ends of the mapping fall
//! back to base pages. page_fault1 has `MADV_NOHUGEPAGE`: its pages are base pages on every kernel.
//!
//! After some seconds the tasks of the original are at different places of their loop. Here they are from the beginning: of its
//! first mapping, task i stores only into the first (i + 1) of as many parts as there are tasks. Where nothing disturbs them they
//! would else unmap at one instant for ever, and neighbours in memory would always be freed together.
//!
//! Before all that, `memhog` (of numactl) writes memory once and frees it, so that a guest's host has backed all of it; then
//! nothing happens for `settle_seconds`. With `test = none` that is all.
//!
//! fault_storm.rs is the same loop with a fixed amount of work.

use os::{Advice, MapSpec, Os, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    fault_storm::{Backing, PageSize, SIZE, parse_size, what_to_map},
    meet::{Meet, TaskError, results},
    model::{Begin, Body, MODEL, Model, TASKS, gather, parse_tasks},
    params::value,
};

/// The entry of a task that is a process of its own.
pub const TASK_ENTRY: &str = "will-it-scale-task";
/// The entry of memhog's process.
pub const MEMHOG_ENTRY: &str = "will-it-scale-memhog";

const TEST: ParamInfo = ParamInfo {
    name: "test",
    expects: "\"page_fault1\", \"page_fault1_thp\", \"page_fault2\" or \"none\"",
    default: "page_fault1",
    about: "what is mapped: base pages, huge pages, a private mapping of a file; none: only memhog runs",
};
const SECONDS: ParamInfo = ParamInfo {
    name: "seconds",
    expects: "whole seconds from 1 to 86400",
    default: "5",
    about: "how long stores are counted",
};
const WARMUP: ParamInfo = ParamInfo {
    name: "warmup_seconds",
    expects: "whole seconds from 0 to 86400",
    default: "1",
    about: "how long the tasks run before that",
};
const MEMHOG: ParamInfo = ParamInfo {
    name: "memhog",
    expects: "\"none\", \"all\" or a size from \"2MiB\" to \"1TiB\"",
    default: "none",
    about: "memory that a process writes once and frees before; all: what is free, but a 64th of memory",
};
const SETTLE: ParamInfo = ParamInfo {
    name: "settle_seconds",
    expects: "whole seconds from 0 to 86400",
    default: "0",
    about: "how long nothing happens after memhog",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "will-it-scale",
    about: "will-it-scale page_fault1 and page_fault2 for a time, after memhog: how many stores a second",
    maps_memory: true,
    params: &[TEST, MODEL, TASKS, SECONDS, WARMUP, SIZE, MEMHOG, SETTLE],
};

/// The memory that a task stores to between two looks at the clock.
const PIECE: Bytes = Bytes::HUGE_PAGE;
/// The part of memory that memhog leaves alone where it takes all: marks, reserves of lower zones and its page tables are in it.
const LEFT: u64 = 64;

/// The loop that tasks repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Anonymous base pages.
    PageFault1,
    /// Anonymous huge pages.
    PageFault1Thp,
    /// A private mapping of a file.
    PageFault2,
    /// Nothing.
    None,
}

impl Test {
    const ALL: [Self; 4] = [Self::PageFault1, Self::PageFault1Thp, Self::PageFault2, Self::None];

    /// The test's name in experiment files and in names of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::PageFault1 => "page_fault1",
            Self::PageFault1Thp => "page_fault1_thp",
            Self::PageFault2 => "page_fault2",
            Self::None => "none",
        }
    }

    fn backing(self) -> Backing {
        match self {
            Self::PageFault1 | Self::PageFault1Thp | Self::None => Backing::Anonymous,
            Self::PageFault2 => Backing::PrivateFile,
        }
    }

    fn page(self) -> PageSize {
        match self {
            Self::PageFault1Thp => PageSize::Huge,
            Self::PageFault1 | Self::PageFault2 | Self::None => PageSize::Base,
        }
    }

    fn advice(self) -> Option<Advice> {
        match self {
            Self::PageFault1 => Some(Advice::NoHugePage),
            Self::PageFault1Thp => Some(Advice::HugePage),
            Self::PageFault2 | Self::None => None,
        }
    }
}

/// How much memory is written and freed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memhog {
    /// None; there is no such process.
    None,
    /// All free memory, but a 64th of the memory of the run.
    All,
    /// This number of bytes.
    Size(Bytes),
}

impl std::str::FromStr for Memhog {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            size => size.parse().map(Self::Size).map_err(drop),
        }
    }
}

impl Memhog {
    fn parse(text: &str) -> Result<Self, ParamError> {
        value(&MEMHOG, text, |memhog| match memhog {
            Self::None | Self::All => true,
            Self::Size(size) => (Bytes::HUGE_PAGE..=Bytes::gib(1024)).contains(size),
        })
    }

    /// The most memory that the program maps, of `memory` bytes.
    fn of(self, memory: Bytes) -> Bytes {
        match self {
            Self::None => Bytes(0),
            Self::All => Bytes(memory.0 - memory.0 / LEFT),
            Self::Size(size) => size,
        }
    }
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The loop that tasks repeat.
    pub test: Test,
    /// Threads or processes.
    pub model: Model,
    /// Tasks at the same time.
    pub tasks: u32,
    /// How long stores are counted.
    pub window: Picos,
    /// How long tasks run before.
    pub warmup: Picos,
    /// Bytes mapped and touched per iteration.
    pub size: Bytes,
    /// Memory that is written and freed before.
    pub memhog: Memhog,
    /// How long nothing happens after that.
    pub settle: Picos,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            test: Test::PageFault1,
            model: Model::Threads,
            tasks: 1,
            window: Picos::from_secs(5),
            warmup: Picos::from_secs(1),
            size: Bytes::mib(128),
            memhog: Memhog::None,
            settle: Picos(0),
        };
        let seconds = |info: &ParamInfo, text: &str, least: u64| {
            value(info, text, |s: &u64| (least..=86_400).contains(s)).map(Picos::from_secs)
        };
        for (name, text) in given {
            match name {
                "test" => params.test = parse_test(text)?,
                "model" => params.model = Model::parse(text)?,
                "tasks" => params.tasks = parse_tasks(text)?,
                "seconds" => params.window = seconds(&SECONDS, text, 1)?,
                "warmup_seconds" => params.warmup = seconds(&WARMUP, text, 0)?,
                "size" => params.size = parse_size(text)?,
                "memhog" => params.memhog = Memhog::parse(text)?,
                "settle_seconds" => params.settle = seconds(&SETTLE, text, 0)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        let tasks = match self.test {
            Test::None => Bytes(0),
            test => test.page().mapped(self.size) * u64::from(self.tasks) + self.files(),
        };
        tasks.max(self.memhog.of(total))
    }

    pub(crate) fn files(&self) -> Bytes {
        if self.test == Test::PageFault2 { self.size * u64::from(self.tasks) } else { Bytes(0) }
    }

    /// Without a test there has to be memhog, and memhog has to leave something.
    pub(crate) fn misfit(&self, memory: Bytes) -> Option<String> {
        let most = Memhog::All.of(memory);
        let expects = match (self.test, self.memhog) {
            (Test::None, Memhog::None) => "\"all\" or a size with test = none".to_owned(),
            (_, Memhog::Size(size)) if size > most => {
                format!("at most {} MiB of {} MiB", most.as_mib(), memory.as_mib())
            }
            _ => return None,
        };
        let found = match self.memhog {
            Memhog::None => "none".to_owned(),
            Memhog::All => "all".to_owned(),
            Memhog::Size(size) => size.to_string(),
        };
        Some(crate::params::misfit(&MEMHOG, &expects, found))
    }

    pub(crate) fn case(&self) -> String {
        match self.test {
            Test::None => "memhog".to_owned(),
            test => format!("{}-{}-{}", test.name(), self.model.name(), self.tasks),
        }
    }

    /// The subject of its tables: will-it-scale has a program for each model.
    pub(crate) fn tables(&self) -> &'static str {
        match (self.test, self.model) {
            (Test::None, _) => "memhog",
            (_, Model::Processes) => "will-it-scale-processes",
            (_, Model::Threads) => "will-it-scale-threads",
        }
    }

    /// Whether the number of faults follows from that of stores: each takes one.
    pub(crate) fn faults_follow(&self) -> bool {
        matches!(self.test, Test::PageFault1 | Test::PageFault2)
    }
}

fn parse_test(text: &str) -> Result<Test, ParamError> {
    let found = Test::ALL.into_iter().find(|test| test.name() == text);
    found.ok_or_else(|| ParamError::BadValue {
        name: TEST.name.to_owned(),
        expects: TEST.expects.to_owned(),
        found: text.to_owned(),
    })
}

/// Parameters of a task; they cross a pipe when the task is a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskParams {
    params: Params,
    meet: Meet,
    index: u32,
}

/// Runs memhog, then all tasks, and reads the machine's counters around the window that counts.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let hog = match params.memhog {
        Memhog::None => None,
        memhog => Some(os.spawn_process(Placement::Free, MEMHOG_ENTRY, memhog)),
    };
    let mut hogs: Vec<TaskOutcome> = results(hog.into_iter().collect()).await?;
    let before = os.vmstat().await.during("vmstat")?;
    let freed = os.now();
    os.sleep(params.settle).await;
    if params.test == Test::None {
        let after = os.vmstat().await.during("vmstat")?;
        for hog in &mut hogs {
            hog.host_resident = after.0.get(HOST_RESIDENT).copied();
            hog.least_reported = after.0.get(LEAST_REPORTED).copied();
        }
        let window = os.now().since(freed);
        let (gauges, unable) = (std::collections::BTreeMap::new(), Vec::new());
        return Ok(Outcome { tasks: hogs, counters: after.since(&before), gauges, window, unable, cpus: None });
    }
    let meet = Meet::new(&os, params.tasks).await?;
    let begin = Begin { census: false, after: params.warmup };
    let each = (0..params.tasks).map(|index| TaskParams { params: params.clone(), meet, index });
    let body = Body { entry: TASK_ENTRY, run: task };
    let (tasks, window) = gather(&os, (meet, begin), params.model, body, each).await?;
    let mut outcome = window.outcome(tasks, Vec::new());
    outcome.cpus = Some(os.cpus());
    Ok(outcome)
}

/// Base pages of a guest that its host backs, of the simulator alone.
pub const HOST_RESIDENT: &str = "sim_host_resident";
/// The least part of a free list that a pass of page reporting has reported, in millionths, of the simulator alone.
pub const LEAST_REPORTED: &str = "sim_report_least_millionths";
/// Reports of a pass beyond those that a list may have, of the simulator alone.
pub const BEYOND_BUDGET: &str = "sim_reports_beyond_budget";

/// Writes memory once, and ends.
pub async fn memhog<O: Os>(os: O, memhog: Memhog) -> Result<TaskOutcome, TaskError> {
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let mut size = memhog.of(os.memory());
    if memhog == Memhog::All {
        let free = os.vmstat().await?.0.get("nr_free_pages").copied();
        let left = Bytes(os.memory().0 / LEFT);
        let free = free.map_or(size, |pages| Bytes((Bytes::PAGE * pages).0.saturating_sub(left.0)));
        size = size.min(free);
    }
    let size = Bytes(size.0 / PIECE.0 * PIECE.0);
    let mapping = os.mmap(size, MapSpec::Anonymous).await?;
    os.fill(mapping).await?;
    os.munmap(mapping).await?;
    outcome.stores = mapping.pages(Bytes::PAGE);
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    Ok(outcome)
}

/// One task, in a thread or in a process of its own.
pub async fn task<O: Os>(os: O, with: TaskParams) -> Result<TaskOutcome, TaskError> {
    let params = &with.params;
    let outcome = match what_to_map(&os, params.test.backing(), params.size, with.index).await {
        Ok(what) => work(&os, &with, what).await,
        Err(errno) => Err(errno),
    };
    if outcome.is_err() {
        with.meet.cancel(&os).await;
    }
    Ok(outcome?)
}

async fn work<O: Os>(os: &O, with: &TaskParams, what: MapSpec) -> Result<TaskOutcome, Errno> {
    let TaskParams { params, meet, index } = with;
    let (tasks, pieces) = (u64::from(params.tasks), params.size.0 / PIECE.0);
    let mut first = Some(PIECE * (pieces * (u64::from(*index) + 1)).div_ceil(tasks));
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let mut count = Count { begin: os.now() + params.warmup, window: params.window, counted: None };
    let (outcome, mapping) = loop {
        let mapping = os.mmap(params.test.page().mapped(params.size), what).await?;
        if let Some(advice) = params.test.advice() {
            os.madvise(mapping, advice).await?;
        }
        let range = match params.test.page() {
            PageSize::Base => mapping,
            PageSize::Huge => mapping.aligned_part(Bytes::HUGE_PAGE, params.size),
        };
        let part = VmRange { len: first.take().unwrap_or(range.len), ..range };
        if let Some(outcome) = count.store(os, part).await? {
            break (outcome, mapping);
        }
        os.munmap(mapping).await?;
    };
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    os.munmap(mapping).await?;
    Ok(TaskOutcome { faults: if params.faults_follow() { outcome.stores } else { 0 }, ..outcome })
}

/// The window in which a task counts.
struct Count {
    /// Stores from then on count.
    begin: Time,
    /// The length of the measured window.
    window: Picos,
    /// Since the window began.
    counted: Option<TaskOutcome>,
}

impl Count {
    /// Stores into every base page, piece by piece; what was counted, once the window is over.
    async fn store<O: Os>(&mut self, os: &O, range: VmRange) -> Result<Option<TaskOutcome>, Errno> {
        for piece in 0..range.pages(PIECE) {
            let now = os.now();
            match &mut self.counted {
                None if now >= self.begin => self.counted = Some(TaskOutcome::starting(now, os.rusage().await?)),
                Some(counted) if now.since(counted.start) >= self.window => {
                    counted.end = now;
                    counted.rusage = os.rusage().await?.since(&counted.rusage);
                    return Ok(self.counted.take());
                }
                None | Some(_) => {}
            }
            os.store(range.part(PIECE * piece, PIECE), Bytes::PAGE).await?;
            if let Some(counted) = &mut self.counted {
                counted.stores += PIECE.frames().0;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&str, &str)]) -> Result<Params, ParamError> {
        Params::parse(given.iter().copied())
    }

    #[test]
    fn memory_is_that_of_the_tasks_or_of_memhog() {
        let params = parse(&[("test", "page_fault1_thp"), ("tasks", "3"), ("model", "processes")]).unwrap();
        assert_eq!((params.memory(Bytes::gib(1)), params.files()), (Bytes::mib(390), Bytes(0)));
        assert_eq!(
            (params.case().as_str(), params.tables()),
            ("page_fault1_thp-processes-3", "will-it-scale-processes")
        );
        let params = parse(&[("test", "page_fault2"), ("tasks", "2"), ("memhog", "all")]).unwrap();
        assert_eq!((params.memory(Bytes::mib(256)), params.files()), (Bytes::mib(512), Bytes::mib(256)));
        assert_eq!(params.memory(Bytes::gib(64)), Bytes::gib(63));
        let params = parse(&[("test", "none"), ("tasks", "2"), ("memhog", "1GiB")]).unwrap();
        assert_eq!((params.memory(Bytes::gib(64)), params.case().as_str()), (Bytes::gib(1), "memhog"));
        assert_eq!(params.tables(), "memhog");
    }

    #[test]
    fn memhog_has_to_fit_and_to_be_there_where_nothing_else_is() {
        let misfit = |given: &[(&str, &str)]| parse(given).unwrap().misfit(Bytes::gib(64));
        assert_eq!(misfit(&[("memhog", "63GiB")]), None);
        let large = "memhog: expected at most 64512 MiB of 65536 MiB, found 64GiB";
        assert_eq!(misfit(&[("memhog", "64GiB")]).as_deref(), Some(large));
        let none = "memhog: expected \"all\" or a size with test = none, found none";
        assert_eq!(misfit(&[("test", "none")]).as_deref(), Some(none));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_what_was_expected() {
        for (name, text) in [
            ("test", "page_fault3"),
            ("model", "fibres"),
            ("tasks", "0"),
            ("seconds", "0"),
            ("seconds", "1.5"),
            ("warmup_seconds", "-1"),
            ("settle_seconds", "86401"),
            ("memhog", "much"),
            ("memhog", "1MiB"),
            ("size", "3MiB"),
        ] {
            let error = parse(&[(name, text)]).unwrap_err();
            assert!(matches!(&error, ParamError::BadValue { found, .. } if found == text), "{error}");
        }
        assert_eq!(parse(&[("second", "1")]), Err(ParamError::UnknownParam { name: "second".to_owned() }));
    }
}
