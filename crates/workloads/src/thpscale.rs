//! thpscale and thpcompact: huge page faults while memory is full of holes of 1 MiB.
//!
//! Threads fill four fifths of memory, unmap every other MiB, read a file, and then fault 2 MiB blocks, each timed: nearly all
//! that is free by then lies in the holes, and file pages have taken a part of it.
//! (Source of the sequence: gormanm/mmtests, thpscale.c and shellpack_src/src/thpscale of 2018 to 2023, thpcompact.c of
//! 2023; read for behaviour. There threads run where they like; here thread i is pinned to CPU i mod CPUs.)
//!
//! The two differ so: thpcompact advises its first mapping too, and its file is a quarter as large, of which
//! each thread reads all of its slice.

use os::{Advice, Barrier, File, FileRange, MapSpec, Os, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, blocks, fault_blocks, map_blocks, parse_advise},
    meet::{Meet, TaskError},
    model::Begin,
    outcome::drop_caches,
    params::value,
};

const THREADS: ParamInfo = ParamInfo {
    name: "threads",
    expects: "a whole number from 1 to 4096",
    default: "1",
    about: "threads that fill memory and fault at the same time",
};
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: SIZE_EXPECTS,
    default: "80%",
    about: "memory of all threads' first mappings; half of it is unmapped again, and as much is then faulted in blocks",
};

const FILE_PARAM: ParamInfo = ParamInfo {
    name: "file",
    expects: "\"yes\" or \"no\"",
    default: "yes",
    about: "whether a file is made and read in between; without one, only private memory presses",
};

/// The entry of thpscale in `pagelab list workloads`.
pub const THPSCALE: WorkloadInfo = WorkloadInfo {
    name: "thpscale",
    about: "mmtests thpscale: fill memory, punch holes of 1 MiB, read a file, then fault 2 MiB blocks",
    maps_memory: true,
    params: &[THREADS, SIZE, ADVISE, FILE_PARAM],
};
/// The entry of thpcompact in `pagelab list workloads`.
pub const THPCOMPACT: WorkloadInfo = WorkloadInfo {
    name: "thpcompact",
    about: "mmtests thpcompact: thpscale with its first mapping advised and a file of a quarter of the size",
    maps_memory: true,
    params: &[THREADS, SIZE, ADVISE, FILE_PARAM],
};

/// The first of every block's two halves is unmapped.
const HOLE: Bytes = Bytes::mib(1);
/// Size of thpscale's file beyond that of memory.
const FILE_EXTRA: Bytes = Bytes::mib(16);
/// How much is written to it at a time.
const WRITE: Bytes = Bytes::mib(1);
pub(crate) const FILE: &str = "thpscale";
/// Bytes that a thread's share is made larger by before it is cut to whole huge pages: four of them, less a byte.
const ROOM: Bytes = Bytes(Bytes::mib(8).0 - 1);

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Up to 2018: each thread has up to four huge pages more than its share.
    Thpscale2015,
    /// Up to 2023.
    Thpscale,
    /// From 2023 on.
    Thpcompact,
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Which program.
    pub program: Program,
    /// How many threads.
    pub threads: u32,
    /// The first mappings of all threads together.
    pub size: Size,
    /// `MADV_HUGEPAGE` on the second mappings.
    pub advise: bool,
    /// A file is made and read.
    pub file: bool,
}

impl Params {
    pub(crate) fn parse<'a>(
        program: Program,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        let mut params = Self { program, threads: 1, size: Size::Percent(80), advise: false, file: true };
        for (name, text) in given {
            match name {
                "threads" => params.threads = value(&THREADS, text, |n| (1..=4096).contains(n))?,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                "file" => {
                    let word = value::<String>(&FILE_PARAM, text, |word| word == "yes" || word == "no")?;
                    params.file = word == "yes";
                }
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        // A thread has half of its first mapping left when it has all of its second one.
        (self.shares(total).thread + Bytes::HUGE_PAGE) * u64::from(self.threads)
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.shares(total).file
    }

    pub(crate) fn case(&self) -> String {
        let words = [(self.advise, "advised-"), (!self.file, "fileless-")];
        let words: String = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        format!("{words}{}", self.threads)
    }

    pub(crate) fn shares(&self, total: Bytes) -> Shares {
        let threads = u64::from(self.threads);
        let all = self.size.of(total);
        let whole = |bytes: u64| Bytes::HUGE_PAGE * (bytes / Bytes::HUGE_PAGE.0);
        let thread = match self.program {
            Program::Thpscale2015 => whole(all.0 / threads + ROOM.0),
            Program::Thpscale | Program::Thpcompact => whole(all.0 / threads),
        };
        let (file, stride, read) = match self.program {
            _ if !self.file => (Bytes(0), Bytes(0), Bytes(0)),
            Program::Thpscale2015 => (all, thread, Bytes(thread.0 / 4)),
            Program::Thpscale => (all + FILE_EXTRA, thread, Bytes(thread.0 / 4)),
            Program::Thpcompact => {
                let step = Bytes::HUGE_PAGE.0 * threads;
                let file = (all.0 / 4).div_ceil(step) * step;
                (Bytes(file), whole(file / threads), whole(file / threads))
            }
        };
        Shares { thread, blocks: blocks(Bytes(all.0 / threads)) / 2, file, stride, read }
    }
}

/// The share of each thread in memory and in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// The thread's first mapping.
    pub(crate) thread: Bytes,
    /// Blocks that it faults.
    pub(crate) blocks: u64,
    /// The whole file.
    pub(crate) file: Bytes,
    /// Distance between the parts of the file that two consecutive threads read.
    stride: Bytes,
    /// How much of it a thread reads.
    read: Bytes,
}

impl Shares {
    /// Where in the file the part that the last thread reads ends.
    pub(crate) fn last_read(&self, threads: u32) -> Bytes {
        self.stride * u64::from(threads - 1) + self.read
    }
}

/// Makes the file, drops caches, and runs all threads.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let shares = params.shares(os.memory());
    let mut unable = Vec::new();
    if params.file {
        let file = os.create(FILE).await.during("create")?;
        write_file(&os, file, shares.file, WRITE).await.during("write or fsync")?;
        drop_caches(&os, &mut unable).await?;
    }
    let meet = Meet::new(&os, params.threads).await?;
    let filled = os.barrier(params.threads).await.during("barrier")?;
    let tasks = (0..params.threads).map(|index| {
        let params = params.clone();
        os.spawn(Placement::Spread(index), async move |os: O| {
            let outcome = work(&os, &params, shares, index, (meet, filled)).await;
            if outcome.is_err() {
                os.cancel(filled).await;
                meet.cancel(&os).await;
            }
            outcome.map_err(TaskError::from)
        })
    });
    let tasks = tasks.collect();
    let gathered = meet.gather(&os, Begin::AT_START, tasks).await;
    if params.file {
        os.unlink(FILE).await.during("unlink")?;
    }
    let (tasks, window) = gathered?;
    Ok(window.outcome(tasks, unable))
}

/// Writes `block` by `block`.
pub(crate) async fn write_file<O: Os>(os: &O, file: File, len: Bytes, block: Bytes) -> Result<(), Errno> {
    os.write_blocks(file, Bytes(0), len, block).await?;
    os.fsync(file).await?;
    os.close(file).await
}

async fn work<O: Os>(
    os: &O,
    params: &Params,
    shares: Shares,
    index: u32,
    (meet, filled): (Meet, Barrier),
) -> Result<TaskOutcome, Errno> {
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let (outcome, _) = press(os, params, shares, index, filled).await?;
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    // What is still mapped goes with the process, which ends now.
    Ok(outcome)
}

/// The work of a thread; returns its mappings at the end.
pub(crate) async fn press<O: Os>(
    os: &O,
    params: &Params,
    shares: Shares,
    index: u32,
    filled: Barrier,
) -> Result<(TaskOutcome, Vec<VmRange>), Errno> {
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);

    let start = os.now();
    let first = os.mmap(shares.thread, MapSpec::Anonymous).await?;
    if params.program == Program::Thpcompact {
        os.madvise(first, Advice::HugePage).await?;
    }
    os.fill(first).await?;
    punch(os, first).await?;
    let second = map_blocks(os, Bytes(shares.thread.0 / 2), params.advise).await?;
    outcome.anoninit = Some(os.now().since(start));
    let mut mapped = vec![first, second];

    if params.file {
        let start = os.now();
        let file = os.open(FILE).await?;
        let part = FileRange { file, offset: shares.stride * u64::from(index) };
        let read = os.mmap(shares.read, MapSpec::SharedRead(part)).await?;
        os.load(read, Bytes::PAGE).await?;
        outcome.fileinit = Some(os.now().since(start));
        // As it is unmapped first.
        mapped.insert(0, read);
    }

    os.arrive(filled).await?;
    fault_blocks(os, second, shares.blocks, &mut outcome).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    Ok((outcome, mapped))
}

/// Unmaps the first half of every block.
async fn punch<O: Os>(os: &O, mapping: VmRange) -> Result<(), Errno> {
    let end = mapping.start.0 + mapping.len.0;
    let mut start = mapping.start.align_up(Bytes::HUGE_PAGE);
    while start.0 + HOLE.0 <= end {
        os.munmap(VmRange { start, len: HOLE }).await?;
        start.0 += Bytes::HUGE_PAGE.0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(program: Program, threads: &str) -> Params {
        Params::parse(program, [("threads", threads)]).unwrap()
    }

    #[test]
    fn both_programs_take_the_same_parameters() {
        assert_eq!(THPSCALE.params.len(), THPCOMPACT.params.len());
    }

    #[test]
    fn shares_are_those_of_mmtests() {
        // 1000 MiB of memory: 800 MiB, of 3 threads 266 each, and half of their 133 blocks.
        let shares = params(Program::Thpscale, "3").shares(Bytes::mib(1000));
        assert_eq!((shares.thread, shares.blocks), (Bytes::mib(266), 66));
        assert_eq!((shares.file, shares.stride), (Bytes::mib(816), Bytes::mib(266)));
        assert_eq!(shares.read, Bytes(Bytes::mib(266).0 / 4));
        // A quarter, rounded up to 3 x 2 MiB.
        let shares = params(Program::Thpcompact, "3").shares(Bytes::mib(1000));
        assert_eq!((shares.file, shares.stride, shares.read), (Bytes::mib(204), Bytes::mib(68), Bytes::mib(68)));
    }

    #[test]
    fn cases_say_threads_and_advice() {
        assert_eq!(params(Program::Thpscale, "12").case(), "12");
        let advised = Params::parse(Program::Thpscale, [("advise", "yes")]).unwrap();
        assert_eq!(advised.case(), "advised-1");
        assert!(Params::parse(Program::Thpscale, [("advise", "maybe")]).is_err());
        let fileless = Params::parse(Program::Thpscale, [("advise", "yes"), ("file", "no")]).unwrap();
        assert_eq!((fileless.case().as_str(), fileless.files(Bytes::gib(1))), ("advised-fileless-1", Bytes(0)));
    }
}
