//! thpfioscale: huge page faults while many small files are read that were made badly on purpose.
//!
//! Writers fill a directory each with small files, all of them open at the same time: each write(2) of 4 KiB goes to the next
//! file, so that inodes, dentries and open files come first, and then pages of the page cache, with nothing allocated ahead.
//! The files are more than memory holds. As many readers then take one file after the other at random and read 16 of its
//! blocks in a random order, until others say stop; a file that was opened stays open. When they have read for as long as the
//! writing took, threads fault blocks of 2 MiB, each timed.
//! (Source of the sequence: gormanm/mmtests, thpfioscale and fio-random-reader-inefficient of 2018; fio's file service and its
//! random map as of tag fio-2.99, `get_next_file_rand`, `get_next_rand_block` and `axmap_next_free`; read for behaviour. There
//! writers, readers and the program that faults are processes; here they are tasks of one.)

use os::{Barrier, File, Os, Placement};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use units::{Bytes, Errno, Picos};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, FILE, SIZE_EXPECTS, Size, blocks, fault_blocks, few_files, map_blocks, parse_advise, parse_file},
    draw::{below, seed_of},
    meet::{Meet, TaskError, results},
    model::Begin,
    params::{misfit, value},
};

const THREADS: ParamInfo = ParamInfo {
    name: "threads",
    expects: "a whole number from 1 to 4096, or \"auto\": a quarter of the CPUs of a node that the jobs leave",
    default: "auto",
    about: "threads that fault blocks at the same time",
};
const JOBS: ParamInfo = ParamInfo {
    name: "jobs",
    expects: "a whole number from 1 to 1024",
    default: "4",
    about: "tasks that write files, and then read them",
};
const TOTAL: ParamInfo =
    ParamInfo { name: "total", expects: SIZE_EXPECTS, default: "150%", about: "what all jobs write together" };
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: SIZE_EXPECTS,
    default: "75%",
    about: "memory of all threads' mappings, in bytes or of node 0; half of it is faulted",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "thpfioscale",
    about: "mmtests' thpfioscale: more small files than memory holds are written and read, 2 MiB blocks faulted meanwhile",
    maps_memory: true,
    params: &[THREADS, JOBS, FILE, TOTAL, SIZE, ADVISE],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Threads that fault; none is as the script has it.
    pub threads: Option<u32>,
    /// Tasks that write, and then read.
    pub jobs: u32,
    /// Size of each file.
    pub file: Bytes,
    /// Size of all files together.
    pub total: Size,
    /// The mappings of all threads together.
    pub size: Size,
    /// `MADV_HUGEPAGE` on those.
    pub advise: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            threads: None,
            jobs: 4,
            file: Bytes::kib(64),
            total: Size::Percent(150),
            size: Size::Percent(75),
            advise: false,
        };
        for (name, text) in given {
            match name {
                "threads" if text == "auto" => params.threads = None,
                "threads" => params.threads = Some(value(&THREADS, text, |n| (1..=4096).contains(n))?),
                "jobs" => params.jobs = value(&JOBS, text, |n| (1..=1024).contains(n))?,
                "file" => params.file = parse_file(text)?,
                "total" => params.total = Size::parse(&TOTAL, text)?,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        // Each thread has room to align, and its share was made larger by less than four huge pages.
        self.size.of(total) + Bytes::mib(10) * u64::from(self.threads.unwrap_or(64))
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.file * (self.each(total) * u64::from(self.jobs))
    }

    pub(crate) fn case(&self) -> String {
        let advised = if self.advise { "advised-" } else { "" };
        let threads = self.threads.map_or_else(|| "auto".to_owned(), |threads| threads.to_string());
        format!("{advised}{threads}")
    }

    pub(crate) fn misfit(&self, memory: Bytes, cpus: u32) -> Option<String> {
        let (total, jobs) = (self.total.of(memory), self.jobs);
        let threads = self.threads.unwrap_or_else(|| auto(cpus, jobs));
        if threads == 0 {
            return Some(format!(
                "threads = auto: a quarter of the CPUs that {jobs} jobs leave, and {cpus} CPUs are too few: --set threads=1"
            ));
        }
        if self.each(memory) == 0 {
            return Some(few_files((&JOBS, jobs), self.file, total));
        }
        let size = self.size.of(memory);
        let most = blocks(size) / 2;
        (most < threads.into()).then(|| {
            let expects = format!("at most {most}, as each maps 4MiB or more of {} (size)", Bytes::mib(size.as_mib()));
            misfit(&THREADS, &expects, threads)
        })
    }

    pub(crate) fn open_files(&self, total: Bytes) -> u64 {
        self.each(total) * u64::from(self.jobs)
    }

    /// Files of each job.
    fn each(&self, total: Bytes) -> u64 {
        self.total.of(total).0 / self.file.0 / u64::from(self.jobs)
    }

    fn pages(&self) -> u64 {
        self.file.0 / Bytes::PAGE.0
    }
}

/// The part of the work that one job does.
#[derive(Clone, Copy, Debug)]
struct Job {
    index: u32,
    files: u64,
    pages: u64,
}

impl Job {
    fn name(&self, file: u64) -> String {
        format!("{}/workfile.{file}", self.index)
    }
}

/// Writes, reads and faults; the outcomes are of the threads that fault.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let threads = params.threads.unwrap_or_else(|| threads_of(&os, params.jobs));
    let job = |index| Job { index, files: params.each(os.memory()), pages: params.pages() };
    let start = os.now();
    let writers = (0..params.jobs).map(|index| {
        let job = job(index);
        os.spawn(Placement::Free, async move |os: O| write_files(&os, job).await.map_err(TaskError::from))
    });
    results(writers.collect()).await?;
    // The script takes whole seconds.
    let warm_up = Picos::from_secs(os.now().since(start).0 / Picos::from_secs(1).0);
    os.sync().await.during("sync")?;

    let stop = os.barrier(1).await.during("barrier")?;
    let readers = (0..params.jobs).map(|index| {
        let (job, seed) = (job(index), seed_of(seed, index));
        os.spawn(Placement::Free, async move |os: O| read_files(&os, job, seed, stop).await.map_err(TaskError::from))
    });
    let readers = readers.collect();
    os.sleep(warm_up).await;
    let faulted = fault(&os, &params, threads).await;
    os.cancel(stop).await;
    results(readers).await?;
    faulted
}

/// As many as the script starts: a quarter of the CPUs of a socket that the jobs leave.
fn threads_of<O: Os>(os: &O, jobs: u32) -> u32 {
    let nodes = u32::try_from(os.nodes().len()).expect("few nodes");
    auto(os.cpus() / nodes, jobs)
}

/// The number of threads on a node with `cpus` CPUs.
fn auto(cpus: u32, jobs: u32) -> u32 {
    cpus.saturating_sub(jobs) / 4
}

async fn fault<O: Os>(os: &O, params: &Params, threads: u32) -> Result<Outcome, WorkloadError> {
    let size = params.size.of(os.nodes().first().map_or(os.memory(), |node| node.memory));
    let share = blocks(Bytes(size.0 / u64::from(threads))) / 2;
    let meet = Meet::new(os, threads).await?;
    let tasks = (0..threads).map(|_| {
        let advise = params.advise;
        os.spawn(Placement::Free, async move |os: O| {
            let outcome = fault_share(&os, share, advise, meet).await;
            if outcome.is_err() {
                meet.cancel(&os).await;
            }
            outcome.map_err(TaskError::from)
        })
    });
    let tasks = tasks.collect();
    let (tasks, window) = meet.gather(os, Begin::AT_START, tasks).await?;
    Ok(window.outcome(tasks, Vec::new()))
}

async fn fault_share<O: Os>(os: &O, share: u64, advise: bool, meet: Meet) -> Result<TaskOutcome, Errno> {
    // Half of a mapping is never touched.
    let mapping = map_blocks(os, Bytes::HUGE_PAGE * (2 * share), advise).await?;
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    fault_blocks(os, mapping, share, &mut outcome).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    os.munmap(mapping).await?;
    Ok(outcome)
}

/// One block to each file in turn (fio's `file_service_type=roundrobin`). A file is made when its turn comes first, and closed
/// behind its last block.
async fn write_files<O: Os>(os: &O, job: Job) -> Result<(), Errno> {
    let mut open = Vec::with_capacity(usize::try_from(job.files).expect("memory holds a number for each file"));
    for page in 0..job.pages {
        for number in 0..job.files {
            let at = usize::try_from(number).expect("as many as there are");
            if at == open.len() {
                open.push(os.create(&job.name(number)).await?);
            }
            let file = open[at];
            os.write(file, Bytes::PAGE * page, Bytes::PAGE).await?;
            if page + 1 == job.pages {
                os.close(file).await?;
            }
        }
    }
    Ok(())
}

/// How many blocks a reader takes from a file before the next (`file_service_type=random:16`).
const SERVICE: u32 = 16;

/// One file after the other at random, any of them again at any time, and of each [`SERVICE`] blocks, until somebody says stop.
/// Files that were opened stay open (`openfiles` is by default the number of files), and their times are kept as relatime says:
/// fio opens regular files without `O_NOATIME`.
async fn read_files<O: Os>(os: &O, job: Job, seed: u64, stop: Barrier) -> Result<(), Errno> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let files = usize::try_from(job.files).expect("memory holds a number for each file");
    let mut open: Vec<Option<File>> = vec![None; files];
    let mut maps = RandomMaps::new(files, job.pages);
    // Bound: until somebody says stop.
    while !os.is_cancelled(stop) {
        let number = below(&mut random, files);
        let file = if let Some(file) = open[number] {
            file
        } else {
            let file = os.open(&job.name(number as u64)).await?;
            os.advise_random(file).await?;
            *open[number].insert(file)
        };
        for _ in 0..SERVICE {
            if os.is_cancelled(stop) {
                break;
            }
            os.read(file, Bytes::PAGE * maps.next_block(number, &mut random), Bytes::PAGE).await?;
        }
    }
    for file in open.into_iter().flatten() {
        os.close(file).await?;
    }
    Ok(())
}

/// Which blocks of each file were read already: fio reads none twice before all were read once.
struct RandomMaps {
    blocks: u64,
    /// Of each file as many words of 64 blocks as it needs.
    words: Vec<u64>,
}

impl RandomMaps {
    fn new(files: usize, blocks: u64) -> Self {
        Self { blocks, words: vec![0; files * Self::words_of(blocks)] }
    }

    fn words_of(blocks: u64) -> usize {
        usize::try_from(blocks.div_ceil(64)).expect("a file has few blocks")
    }

    /// The block to be read next: a random one, or if that was read, the lowest that was not among the 64 around it, else in the
    /// file.
    fn next_block(&mut self, file: usize, random: &mut impl Rng) -> u64 {
        let words = Self::words_of(self.blocks);
        let map = &mut self.words[file * words..][..words];
        let read: u32 = map.iter().map(|word| word.count_ones()).sum();
        if u64::from(read) == self.blocks {
            map.fill(0);
        }
        let drawn = below(random, usize::try_from(self.blocks).expect("a file has few blocks"));
        let (blocks, at) = (self.blocks, drawn / 64);
        let lowest = |place: usize| {
            let free = place as u64 * 64 + u64::from(map[place].trailing_ones());
            (map[place] != u64::MAX && free < blocks).then_some(free)
        };
        let block = match map[at] >> (drawn % 64) & 1 {
            0 => drawn as u64,
            _ => lowest(at).or_else(|| (0..words).find_map(lowest)).expect("some block was not read"),
        };
        map[usize::try_from(block / 64).expect("few words")] |= 1 << (block % 64);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_what_is_written() {
        let params = Params::parse([("jobs", "3"), ("total", "100%"), ("threads", "2"), ("advise", "yes")]).unwrap();
        assert_eq!((params.each(Bytes::mib(3)), params.files(Bytes::mib(3))), (16, Bytes::mib(3)));
        assert_eq!(params.case(), "advised-2");
        let default = Params::parse([]).unwrap();
        assert_eq!(default.case(), "auto");
        let memory = Bytes::gib(1);
        assert!(default.misfit(memory, 7).unwrap().contains("and 7 CPUs are too few"));
        assert_eq!((default.misfit(memory, 8), params.misfit(memory, 1), auto(24, 4)), (None, None, 5));
        assert!(Params::parse([("threads", "0")]).is_err() && Params::parse([("file", "5KiB")]).is_err());
    }

    #[test]
    fn what_does_not_fit_says_which_parameter() {
        let misfit = |sets: &[(&str, &str)]| {
            let sets = [("threads", "1")].iter().chain(sets).copied();
            Params::parse(sets).unwrap().misfit(Bytes::mib(512), 2).unwrap_or_default()
        };
        assert_eq!(misfit(&[]), "");
        let few = misfit(&[("jobs", "40"), ("total", "32MiB"), ("file", "1MiB")]);
        assert_eq!(few, "jobs: expected at most 32, as 32MiB (total) are so many files of 1MiB (file), found 40");
        let none = misfit(&[("file", "1GiB")]);
        assert_eq!(none, "file: expected at most 768MiB (total), found 1GiB");
        // Of 384 MiB, each thread faults half.
        let crowd = misfit(&[("threads", "97")]);
        assert_eq!(crowd, "threads: expected at most 96, as each maps 4MiB or more of 384MiB (size), found 97");
        assert_eq!(misfit(&[("threads", "96")]), "");
        let params = Params::parse([("total", "1GiB"), ("jobs", "2")]).unwrap();
        assert_eq!(params.open_files(Bytes::mib(512)), 16_384);
    }

    #[test]
    fn every_block_is_read_once_before_any_again() {
        for blocks in [1, 2, 16, 64, 65, 200] {
            let mut random = ChaCha8Rng::seed_from_u64(seed_of(7, 1));
            let mut maps = RandomMaps::new(3, blocks);
            let mut orders = Vec::new();
            for _ in 0..2 {
                let order: Vec<u64> = (0..blocks).map(|_| maps.next_block(1, &mut random)).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..blocks).collect::<Vec<_>>());
                orders.push(order);
            }
            assert!(blocks < 16 || orders[0] != orders[1], "{blocks} blocks in the same order twice");
        }
    }
}
