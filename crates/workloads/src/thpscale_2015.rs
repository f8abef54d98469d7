//! mmtests' thpscale as one run of 2015 has it: one thread count after the other, over one file.
//!
//! (Source of the sequence: gormanm/mmtests, shellpack_src/src/thpscale of 2015, read for behaviour.) Unlike `thpscale` of 2018
//! and later, a thread's first mapping is up to four huge pages larger than its share, and the file is no larger than `size`
//! (there 16 MiB more). Unlike the workload `thpscale`, a run is all thread counts, so that counters and times are of everything
//! from the making of the file to the last thread count, as the tables of that time print them.
//!
//! The program of each thread count is a process of its own, which khugepaged meets anew.

use std::collections::BTreeMap;

use os::{Barrier, Os, Placement};
use units::{Bytes, Errno};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, parse_advise},
    meet::{TaskError, results},
    outcome::drop_caches,
    params::{misfit, value},
    thpscale::{self, FILE, Program, press, write_file},
};

const COUNTS: ParamInfo = ParamInfo {
    name: "counts",
    expects: "whole numbers from 1 to 4096 with spaces between them",
    default: "1 3 5 7 12 16",
    about: "how many threads, one after the other; mmtests goes up to four per CPU",
};
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: SIZE_EXPECTS,
    default: "80%",
    about: "memory of all threads' first mappings, and the size of the file",
};

/// How much goes to the file with one write(2). The script calls dd(1) with an input block of a megabyte, and with none for
/// the output: dd then writes what is its default, a sector. It is six and a half million system calls on 4 GiB.
const DD_BLOCK: Bytes = Bytes(512);

/// The name of the entry at which a new process is the program.
pub const PROGRAM_ENTRY: &str = "thpscale-2015-program";

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "thpscale-2015",
    about: "mmtests thpscale as one run of 2015: all thread counts over one file, counted together",
    maps_memory: true,
    params: &[COUNTS, SIZE, ADVISE],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// How many threads, one after the other; at least one number.
    pub counts: Vec<u32>,
    /// The first mappings of all threads together.
    pub size: Size,
    /// `MADV_HUGEPAGE` on the second mappings.
    pub advise: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { counts: vec![1, 3, 5, 7, 12, 16], size: Size::Percent(80), advise: false };
        for (name, text) in given {
            match name {
                "counts" => params.counts = value::<Counts>(&COUNTS, text, |_| true)?.0,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// The tasks of a run by their thread count: the first task, which makes the file and drops caches, is of none.
    pub fn by_count<'a>(&self, tasks: &'a [TaskOutcome]) -> Vec<(u32, &'a [TaskOutcome])> {
        let mut rest = &tasks[1..];
        let split = |count: &u32| {
            let (these, others) = rest.split_at(*count as usize);
            rest = others;
            (*count, these)
        };
        self.counts.iter().map(split).collect()
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        self.each().map(|params| params.memory(total)).max().expect("there is one")
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.size.of(total)
    }

    pub(crate) fn case(&self) -> String {
        let counts: Vec<_> = self.counts.iter().map(u32::to_string).collect();
        format!("{}{}", if self.advise { "advised-" } else { "" }, counts.join("+"))
    }

    /// Why a thread would read beyond the end of the file, if one would. Shares are rounded up and the file is not, so that with
    /// many threads the last parts lie behind its end. There the program of 2015 died of SIGBUS; mmtests mended that in 2016
    /// ("thpscale: align thread_size to 4*HPAGESIZE").
    fn misfit(&self, memory: Bytes) -> Option<String> {
        let end = |threads| self.with(threads).shares(memory).last_read(threads);
        let file = Bytes(self.files(memory).0.next_multiple_of(Bytes::PAGE.0));
        let wrong = *self.counts.iter().find(|threads| end(**threads) > file)?;
        let most = (1..wrong).take_while(|threads| end(*threads) <= file).last().unwrap_or(0);
        let expects =
            format!("at most {most} threads, whose parts lie within the file of {} (size)", Bytes::mib(file.as_mib()));
        let found =
            format!("{wrong}: the last part ends at {}, and reading there is SIGBUS", Bytes::mib(end(wrong).as_mib()));
        Some(misfit(&COUNTS, &expects, found))
    }

    fn each(&self) -> impl Iterator<Item = thpscale::Params> {
        self.counts.iter().map(|threads| self.with(*threads))
    }

    fn with(&self, threads: u32) -> thpscale::Params {
        let Self { size, advise, .. } = *self;
        thpscale::Params { program: Program::Thpscale2015, threads, size, advise, file: true }
    }
}

/// At least one number of threads.
struct Counts(Vec<u32>);

impl std::str::FromStr for Counts {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let counts: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
        let counts = counts.map_err(drop)?;
        let is_right = !counts.is_empty() && counts.iter().all(|count| (1..=4096).contains(count));
        if is_right { Ok(Self(counts)) } else { Err(()) }
    }
}

/// Makes the file, and runs one thread count after the other, each with caches dropped before.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    // Only of the memory that the kernel has, to the page: that of the machine is more, and other counts fit it.
    if let Some(problem) = params.misfit(os.memory()) {
        return Err(WorkloadError::Misfit(problem));
    }
    let before = os.vmstat().await.during("vmstat")?;
    let used = os.rusage().await.during("getrusage")?;
    let mut main = TaskOutcome::starting(os.now(), used);
    let mut unable = Vec::new();
    let file = os.create(FILE).await.during("create")?;
    write_file(&os, file, params.size.of(os.memory()), DD_BLOCK).await.during("write or fsync")?;
    let mut tasks = Vec::new();
    for each in params.each() {
        drop_caches(&os, &mut unable).await?;
        tasks.extend(run_count(&os, each).await?);
    }
    os.unlink(FILE).await.during("unlink")?;
    main.end = os.now();
    main.rusage = os.rusage().await.during("getrusage")?.since(&used);
    let after = os.vmstat().await.during("vmstat")?;
    let window = main.end.since(main.start);
    tasks.insert(0, main);
    Ok(Outcome { tasks, counters: after.since(&before), gauges: BTreeMap::new(), window, unable, cpus: None })
}

/// The program, for one thread count: a process of its own.
async fn run_count<O: Os>(os: &O, params: thpscale::Params) -> Result<Vec<TaskOutcome>, WorkloadError> {
    let process = os.spawn_process(Placement::Free, PROGRAM_ENTRY, params);
    let by_process: Vec<Vec<TaskOutcome>> = results(vec![process]).await?;
    Ok(by_process.concat())
}

/// The first task of the program: starts its threads, and waits for them.
pub async fn program<O: Os>(os: O, params: thpscale::Params) -> Result<Vec<TaskOutcome>, TaskError> {
    let shares = params.shares(os.memory());
    let filled = os.barrier(params.threads).await?;
    let threads = (0..params.threads).map(|index| {
        let params = params.clone();
        os.spawn(Placement::Free, async move |os: O| {
            let outcome = work(&os, &params, shares, index, filled).await;
            if outcome.is_err() {
                os.cancel(filled).await;
            }
            outcome.map_err(TaskError::from)
        })
    });
    results(threads.collect()).await.map_err(TaskError::from)
}

async fn work<O: Os>(
    os: &O,
    params: &thpscale::Params,
    shares: thpscale::Shares,
    index: u32,
    filled: Barrier,
) -> Result<TaskOutcome, Errno> {
    let used = os.rusage().await?;
    let (mut outcome, mapped) = press(os, params, shares, index, filled).await?;
    for range in mapped {
        os.munmap(range).await?;
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_up_to_four_huge_pages_more_than_their_share() {
        // 1000 MiB of memory: 800 MiB, of 3 threads 266.67 each, and half of their 133 blocks.
        let params = Params::parse([("counts", "3 16")]).unwrap();
        let shares: Vec<_> = params.each().map(|each| each.shares(Bytes::mib(1000))).collect();
        assert_eq!((shares[0].thread, shares[0].blocks), (Bytes::mib(274), 66));
        // A byte less than four, so that 50 MiB become 56.
        assert_eq!((shares[1].thread, shares[1].blocks), (Bytes::mib(56), 12));
        assert_eq!((shares[0].file, params.files(Bytes::mib(1000))), (Bytes::mib(800), Bytes::mib(800)));
        assert_eq!(params.case(), "3+16");
    }

    /// The shares of the machine four-core-4g. Blocks: the only numbers of which parts give the percentages of series s0, to two
    /// decimals and in all four columns. Sizes: worked out by hand from the program's line.
    #[test]
    fn threads_fault_the_blocks_of_the_published_percentages() {
        let params = Params::parse([]).unwrap();
        let shares: Vec<_> = params.each().map(|each| each.shares(Bytes::mib(3952))).collect();
        let blocks: Vec<_> = shares.iter().map(|share| share.blocks).collect();
        assert_eq!(blocks, [790, 263, 158, 112, 65, 49]);
        let sizes: Vec<_> = shares.iter().map(|share| share.thread).collect();
        assert_eq!(sizes, [3168, 1060, 640, 458, 270, 204].map(Bytes::mib));
    }

    /// 800 MiB are 81.8 for each of 11 threads, and their parts of 20.5 are 88 apart. (Published counts on the machine of series
    /// s0 are parts that fit.)
    #[test]
    fn no_part_lies_behind_the_end_of_the_file() {
        let misfit = |counts| Params::parse([("counts", counts)]).unwrap().misfit(Bytes::mib(1000));
        assert_eq!(misfit("1 3 5 7"), None);
        assert_eq!(
            misfit("1 24").unwrap(),
            "counts: expected at most 10 threads, whose parts lie within the file of 800MiB (size), found 24: the last part ends \
             at 930MiB, and reading there is SIGBUS"
        );
        assert!(misfit("11").is_some());
        assert_eq!(Params::parse([]).unwrap().misfit(Bytes::mib(3952)), None);
    }

    #[test]
    fn counts_are_numbers_of_threads() {
        for wrong in ["", "0", "1 two", "5000"] {
            assert!(Params::parse([("counts", wrong)]).is_err(), "{wrong}");
        }
    }
}
