//! small-files: huge page faults while writers fill memory with the pages of many small files.
//!
//! Each writer makes file after file in a directory of its own, in writes of 4 KiB, until together they have written more than
//! memory holds: pages of the page cache then alternate with the inodes, dentries and buffer heads that belong to them, and
//! kswapd has to keep up. When two thirds are written, another task starts to fault 2 MiB blocks, each timed.
//! (The idea: mmtests' thpfioscale, whose fio jobs write 64 KiB files; read for behaviour.)

use os::{Barrier, Os};
use units::{Bytes, Errno};

use crate::{
    Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, FILE, SIZE_EXPECTS, Size, blocks, fault_blocks, map_blocks, parse_advise, parse_file},
    meet::{Meet, run_spread},
    outcome::drop_caches,
    params::value,
};

const WRITERS: ParamInfo = ParamInfo {
    name: "writers",
    expects: "a whole number from 1 to 1024",
    default: "4",
    about: "tasks that write files",
};
const TOTAL: ParamInfo =
    ParamInfo { name: "total", expects: SIZE_EXPECTS, default: "150%", about: "what all writers write together" };
const SIZE: ParamInfo =
    ParamInfo { name: "size", expects: SIZE_EXPECTS, default: "30%", about: "memory that is faulted in blocks" };

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "small-files",
    about: "fault 2 MiB blocks while writers make more small files than memory holds",
    maps_memory: true,
    params: &[FILE, WRITERS, TOTAL, SIZE, ADVISE],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Size of each file.
    pub file: Bytes,
    /// Tasks that write.
    pub writers: u32,
    /// Size of all files together.
    pub total: Size,
    /// Memory that is faulted in blocks.
    pub size: Size,
    /// `MADV_HUGEPAGE` on that.
    pub advise: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            file: Bytes::kib(64),
            writers: 4,
            total: Size::Percent(150),
            size: Size::Percent(30),
            advise: false,
        };
        for (name, text) in given {
            match name {
                "file" => params.file = parse_file(text)?,
                "writers" => params.writers = value(&WRITERS, text, |n| (1..=1024).contains(n))?,
                "total" => params.total = Size::parse(&TOTAL, text)?,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        self.faulted(total) + Bytes::HUGE_PAGE
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.file * (self.each(total) * u64::from(self.writers))
    }

    pub(crate) fn case(&self) -> String {
        let advised = if self.advise { "advised-" } else { "" };
        format!("{}k-{advised}{}", self.file.as_kib(), self.writers)
    }

    /// Files of each writer.
    fn each(&self, total: Bytes) -> u64 {
        self.total.of(total).0 / u64::from(self.writers) / self.file.0
    }

    fn faulted(&self, total: Bytes) -> Bytes {
        Bytes::HUGE_PAGE * blocks(self.size.of(total))
    }
}

/// Runs writers and the task that faults; of its outcomes, that task's is the last.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let mut unable = Vec::new();
    drop_caches(&os, &mut unable).await?;
    let tasks = params.writers + 1;
    let body = async move |os: &O, index, meet, filled| work(os, &params, index, meet, filled).await;
    let (tasks, window) = run_spread(&os, tasks, body).await?;
    Ok(window.outcome(tasks, unable))
}

async fn work<O: Os>(os: &O, params: &Params, index: u32, meet: Meet, filled: Barrier) -> Result<TaskOutcome, Errno> {
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    if index < params.writers {
        let files = params.each(os.memory());
        // Memory is full when as much is written as it holds; that is two thirds by default.
        let first = files * 2 / 3;
        write_files(os, params.file, index, 0..first).await?;
        os.arrive(filled).await?;
        write_files(os, params.file, index, first..files).await?;
    } else {
        os.arrive(filled).await?;
        let faulted = params.faulted(os.memory());
        let mapping = map_blocks(os, faulted, params.advise).await?;
        fault_blocks(os, mapping, blocks(faulted), &mut outcome).await?;
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    // What is mapped goes with the process, which ends now; the files go with the run.
    Ok(outcome)
}

pub(crate) async fn write_files<O: Os>(
    os: &O,
    size: Bytes,
    writer: u32,
    files: std::ops::Range<u64>,
) -> Result<(), Errno> {
    for number in files {
        let file = os.create(&format!("writer-{writer}/{number}")).await?;
        for page in 0..size.0 / Bytes::PAGE.0 {
            os.write(file, Bytes::PAGE * page, Bytes::PAGE).await?;
        }
        os.close(file).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_and_together_as_large_as_asked_for() {
        let params = Params::parse([("file", "4KiB"), ("writers", "3"), ("total", "100%")]).unwrap();
        assert_eq!(params.each(Bytes::mib(12)), 1024);
        assert_eq!(params.files(Bytes::mib(12)), Bytes::mib(12));
        assert_eq!(params.case(), "4k-3");
        assert!(Params::parse([("file", "5KiB")]).is_err());
    }
}
