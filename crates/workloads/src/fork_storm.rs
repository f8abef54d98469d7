//! fork-storm: what copy on write costs, on both sides of a fork.
//!
//! One process repeats: map `size` bytes of private anonymous memory and store into every base page; fork a child that
//! stores into every base page too, so that each is copied, and exits; store into every base page again, in the parent.
//! Those pages are shared no longer, yet each takes a fault: the sole owner finds its page write-protected and keeps it.
//!
//! With huge pages the child's first store into each splits its PMD, and it copies base page by base page (from 5.8 on; kernels
//! before copied the whole huge page with one fault; `thp_split_pmd` says which); the parent keeps whole huge pages.

use os::{MapSpec, Os, Placement, Rusage, VmRange};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::{
    Iteration, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    fault_storm::{BASE_PER_HUGE, PAGE, PageSize, SIZE, parse_size, touch},
    meet::{Meet, TaskError},
    model::Begin,
    params::value,
};

/// The entry of the process that forks.
pub const TASK_ENTRY: &str = "fork-storm-task";

const ITERATIONS: ParamInfo = ParamInfo {
    name: "iterations",
    expects: "a whole number from 1 to 1000000",
    default: "4",
    about: "how often memory is mapped, touched, forked, written on both sides and unmapped",
};
const WARMUP: ParamInfo = ParamInfo {
    name: "warmup",
    expects: "a whole number from 0 to 1000000",
    default: "1",
    about: "iterations before those, not counted",
};

/// The counter of huge pages that became base pages in one page table. Kernels before 4.5 have none, and copy whole huge pages.
const SPLITS: &str = "thp_split_pmd";

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "fork-storm",
    about: "fork and copy on write: touch, fork, write all in the child, write all in the parent",
    maps_memory: true,
    params: &[PAGE, ITERATIONS, WARMUP, SIZE],
};

/// The parts of an iteration, in their order; the outcome has one entry for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The parent's first stores.
    Touch,
    /// fork(2), which takes no fault of its own.
    Fork,
    /// The child's stores.
    Copy,
    /// The parent's stores after the child has ended.
    Reuse,
}

impl Phase {
    /// All phases, in their order.
    pub const ALL: [Self; 4] = [Self::Touch, Self::Fork, Self::Copy, Self::Reuse];
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Base or huge pages.
    pub page: PageSize,
    /// How often everything is done.
    pub iterations: u32,
    /// How often before that, uncounted.
    pub warmup: u32,
    /// Bytes mapped and touched per iteration.
    pub size: Bytes,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { page: PageSize::Base, iterations: 4, warmup: 1, size: Bytes::mib(128) };
        for (name, text) in given {
            match name {
                "page" => params.page = PageSize::parse(text)?,
                "iterations" => params.iterations = value(&ITERATIONS, text, |n| (1..=1_000_000).contains(n))?,
                "warmup" => params.warmup = value(&WARMUP, text, |n| *n <= 1_000_000)?,
                "size" => params.size = parse_size(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// The parent's and the child's.
    pub(crate) fn memory(&self) -> Bytes {
        self.page.mapped(self.size) * 2
    }

    pub(crate) fn case(&self) -> String {
        self.page.name().to_owned()
    }
}

/// Parameters of the forking process; they cross a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskParams {
    params: Params,
    meet: Meet,
}

/// Runs the forking process and reads the machine's counters around its iterations.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let meet = Meet::new(&os, 1).await?;
    // A process of its own: it has little memory besides the mapping, and no other task.
    let task = os.spawn_process(Placement::Spread(0), TASK_ENTRY, TaskParams { params, meet });
    let (tasks, window) = meet.gather(&os, Begin::AT_START, vec![task]).await?;
    let tasks: Vec<Vec<TaskOutcome>> = tasks;
    let mut outcome = window.outcome(tasks.concat(), Vec::new());
    let splits = outcome.counters.get(SPLITS).copied().unwrap_or(0);
    count_copies(&mut outcome.tasks, splits.try_into().unwrap_or(0));
    Ok(outcome)
}

/// Corrects the children's fault counts by the huge pages that they did not split, each of which was copied with one fault
/// instead of a fault for each base page. `splits` is the number of splits that the whole machine counted.
fn count_copies(phases: &mut [TaskOutcome], splits: u64) {
    let touched: Vec<_> = phases[Phase::Touch as usize].iterations.iter().map(|iteration| iteration.faults).collect();
    let copied = &mut phases[Phase::Copy as usize];
    let mut splits = splits;
    for (touched, copy) in touched.into_iter().zip(&mut copied.iterations) {
        // The child stored once into each base page, and the parent took a fault for each that did not come with a huge page.
        let huge = (copy.faults - touched) / (BASE_PER_HUGE - 1);
        let split = huge.min(splits);
        splits -= split;
        copy.faults -= (huge - split) * (BASE_PER_HUGE - 1);
    }
    copied.faults = copied.iterations.iter().map(|iteration| iteration.faults).sum();
}

/// The forking process: one outcome per phase.
pub async fn task<O: Os>(os: O, with: TaskParams) -> Result<Vec<TaskOutcome>, TaskError> {
    let outcome = work(&os, &with.params, with.meet).await;
    if outcome.is_err() {
        with.meet.cancel(&os).await;
    }
    outcome
}

async fn work<O: Os>(os: &O, params: &Params, meet: Meet) -> Result<Vec<TaskOutcome>, TaskError> {
    let fresh = || Phase::ALL.map(|_| TaskOutcome::starting(os.now(), Rusage::default()));
    let mut warmup = fresh();
    for _ in 0..params.warmup {
        iterate(os, params, &mut warmup).await?;
    }
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let mut phases = fresh();
    for _ in 0..params.iterations {
        iterate(os, params, &mut phases).await?;
    }
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    Ok(phases.to_vec())
}

async fn iterate<O: Os>(os: &O, params: &Params, phases: &mut [TaskOutcome; 4]) -> Result<(), TaskError> {
    let [touched, forked, copied, reused] = phases;
    let used = os.rusage().await?;
    let mapping = os.mmap(params.page.mapped(params.size), MapSpec::Anonymous).await?;
    let range = touch(os, mapping, params.page, params.size, touched).await?;
    touched.stores += range.pages(Bytes::PAGE);
    touched.rusage.add(&os.rusage().await?.since(&used));
    touched.end = os.now();
    let owned = touched.iterations.last().expect("it was just pushed").faults;

    let (used, start) = (os.rusage().await?, os.now());
    let child = os.fork(Placement::Spread(0), async move |os: O| store_all(&os, range).await).await?;
    forked.iterations.push(Iteration { faulting: os.now().since(start), faults: 0, unmapping: None });
    let stores = child.await??;
    forked.rusage.add(&os.rusage().await?.since(&used));
    forked.end = os.now();
    add(copied, &stores, range.pages(Bytes::PAGE));
    copied.end = os.now();

    let stores = store_all(os, range).await?;
    add(reused, &stores, owned);
    reused.end = os.now();
    let used = os.rusage().await?;
    os.munmap(mapping).await?;
    reused.rusage.add(&os.rusage().await?.since(&used));
    Ok(())
}

/// Time and faults of storing into every base page.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stores {
    count: u64,
    iteration: Iteration,
    rusage: Rusage,
}

async fn store_all<O: Os>(os: &O, range: VmRange) -> Result<Stores, TaskError> {
    let (used, start) = (os.rusage().await?, os.now());
    os.store(range, Bytes::PAGE).await?;
    let faulting = os.now().since(start);
    let rusage = os.rusage().await?.since(&used);
    Ok(Stores {
        count: range.pages(Bytes::PAGE),
        iteration: Iteration { faulting, faults: 0, unmapping: None },
        rusage,
    })
}

/// Adds stores to a phase, with the faults that they must have taken.
fn add(phase: &mut TaskOutcome, stores: &Stores, faults: u64) {
    phase.stores += stores.count;
    phase.faults += faults;
    phase.rusage.add(&stores.rusage);
    phase.iterations.push(Iteration { faults, ..stores.iteration });
}

#[cfg(test)]
mod tests {
    use units::{Picos, Time};

    use super::*;

    /// 64 huge pages; of the second iteration's, one came as base pages.
    #[test]
    fn each_child_faults_once_per_unsplit_huge_page() {
        let with = |touched: u64, copied: u64| {
            let fresh = TaskOutcome::starting(Time(0), Rusage::default());
            let mut phases = Phase::ALL.map(|_| fresh.clone());
            let iteration = |faults| Iteration { faulting: Picos(0), faults, unmapping: None };
            phases[Phase::Touch as usize].iterations = vec![iteration(64), iteration(touched)];
            phases[Phase::Copy as usize].iterations = vec![iteration(64 * 512); 2];
            count_copies(&mut phases, copied);
            let copied = &phases[Phase::Copy as usize];
            (copied.iterations[0].faults, copied.iterations[1].faults, copied.faults)
        };
        assert_eq!(with(64, 0), (64, 64, 128));
        assert_eq!(with(64 + 511, 0), (64, 63 + 512, 128 + 511));
        // Others may split some, too.
        assert_eq!(with(64, 128), (64 * 512, 64 * 512, 128 * 512));
        assert_eq!(with(64, 200), (64 * 512, 64 * 512, 128 * 512));
        // Memory of base pages alone.
        assert_eq!(with(64 * 512, 64), (64 * 512, 64 * 512, 128 * 512));
    }

    #[test]
    fn two_processes_need_twice_the_memory() {
        let params = Params::parse([("page", "huge"), ("size", "64MiB")]).unwrap();
        assert_eq!((params.memory(), params.case().as_str()), (Bytes::mib(132), "huge"));
        assert!(Params::parse([("tasks", "1")]).is_err());
    }
}
