//! slab-churn: huge page faults in aged memory while the smallest of files are written.
//!
//! First memory is aged as aged-fault does it: private and file pages in turns, then half of the private ones freed. What is
//! free lies scattered in pageblocks that are movable. Then writers make files of one page each: the kernel needs inodes,
//! dentries, buffer heads and directory blocks for them, which are not movable, and takes their pages out of those pageblocks.
//! Another task faults blocks of 2 MiB meanwhile, each timed. From 5.0 on, each taking raises the marks
//! (`vm.watermark_boost_factor`), and kswapd reclaims ahead of need: this is the workload for looking at that.
//!
//! Everybody goes by steps, one for each block: in a step each writer makes its share of the files, and the block is faulted.
//! No task begins the next step before all have done this one. So a step demands the same on a fast machine and a slow
//! one, and differences between kernels are in their answers.

use os::{Barrier, Os};
use units::{Bytes, Errno};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    aged_fault::age,
    block::{ADVISE, FILE, SIZE_EXPECTS, Size, blocks, fault_block, few_files, map_blocks, parse_advise, parse_file},
    meet::{Meet, run_spread},
    outcome::drop_caches,
    params::{misfit, value},
    small_files::write_files,
};

const AGED: ParamInfo = ParamInfo {
    name: "aged",
    expects: SIZE_EXPECTS,
    default: "80%",
    about: "memory that is aged first: half private pages, half file pages, in turns",
};
const SMALL: ParamInfo = ParamInfo { default: "4KiB", ..FILE };
const WRITERS: ParamInfo = ParamInfo {
    name: "writers",
    expects: "a whole number from 1 to 1024",
    default: "4",
    about: "tasks that write files",
};
const TOTAL: ParamInfo =
    ParamInfo { name: "total", expects: SIZE_EXPECTS, default: "15%", about: "what all writers write together" };
const SIZE: ParamInfo =
    ParamInfo { name: "size", expects: SIZE_EXPECTS, default: "10%", about: "memory that is faulted in blocks" };

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "slab-churn",
    about: "fault 2 MiB blocks in aged memory while writers make tiny files: slab pages enter movable pageblocks",
    maps_memory: true,
    params: &[AGED, SMALL, WRITERS, TOTAL, SIZE, ADVISE],
};

/// The file that ages memory.
const AGED_FILE: &str = "aged";

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Private and file pages together.
    pub aged: Size,
    /// Size of each file that is written then.
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
            aged: Size::Percent(80),
            file: Bytes::kib(4),
            writers: 4,
            total: Size::Percent(15),
            size: Size::Percent(10),
            advise: false,
        };
        for (name, text) in given {
            match name {
                "aged" => params.aged = Size::parse(&AGED, text)?,
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
        self.private(total) + Bytes::HUGE_PAGE * (self.blocks(total) + 1)
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.private(total) + self.file * (self.each(total) * u64::from(self.writers))
    }

    pub(crate) fn case(&self) -> String {
        let advised = if self.advise { "advised-" } else { "" };
        format!("{}k-{advised}{}", self.file.as_kib(), self.writers)
    }

    pub(crate) fn misfit(&self, memory: Bytes) -> Option<String> {
        let total = self.total.of(memory);
        if self.each(memory) == 0 {
            return Some(few_files((&WRITERS, self.writers), self.file, total));
        }
        let size = self.size.of(memory);
        (blocks(size) == 0).then(|| misfit(&SIZE, "a block of 2MiB or more", Bytes::kib(size.as_kib())))
    }

    /// Private pages of aged memory; as much is in its file.
    fn private(&self, total: Bytes) -> Bytes {
        Bytes::PAGE * (self.aged.of(total).0 / 2 / Bytes::PAGE.0)
    }

    /// Files of each writer.
    fn each(&self, total: Bytes) -> u64 {
        self.total.of(total).0 / u64::from(self.writers) / self.file.0
    }

    fn blocks(&self, total: Bytes) -> u64 {
        blocks(self.size.of(total))
    }
}

/// Ages memory, then runs the writers and the task that faults; the outcome of the latter is the last one. Counters cover the
/// time after aging.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let mut unable = Vec::new();
    drop_caches(&os, &mut unable).await?;
    let aged = os.create(AGED_FILE).await.during("create")?;
    age(&os, aged, params.private(os.memory()), seed).await.during("ageing memory")?;
    os.close(aged).await.during("close")?;

    let tasks = params.writers + 1;
    let body = async move |os: &O, index, meet, step| work(os, &params, index, meet, step).await;
    let (tasks, window) = run_spread(&os, tasks, body).await?;
    Ok(window.outcome(tasks, unable))
}

async fn work<O: Os>(os: &O, params: &Params, index: u32, meet: Meet, step: Barrier) -> Result<TaskOutcome, Errno> {
    let total = os.memory();
    let (files, steps) = (params.each(total), params.blocks(total));
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    if index < params.writers {
        for at in 0..steps {
            os.arrive(step).await?;
            write_files(os, params.file, index, files * at / steps..files * (at + 1) / steps).await?;
        }
    } else {
        let mapping = map_blocks(os, Bytes::HUGE_PAGE * steps, params.advise).await?;
        let range = mapping.aligned_part(Bytes::HUGE_PAGE, Bytes::HUGE_PAGE * steps);
        for at in 0..steps {
            os.arrive(step).await?;
            fault_block(os, range, at, &mut outcome).await?;
        }
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    // What is mapped goes with the process, which ends now; the files go with the run.
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_blocks_are_whole() {
        let params = Params::parse([("aged", "50%"), ("writers", "3"), ("total", "12MiB"), ("size", "10MiB")]).unwrap();
        assert_eq!(params.each(Bytes::mib(400)), 1024);
        assert_eq!(params.files(Bytes::mib(400)), Bytes::mib(112));
        assert_eq!(params.memory(Bytes::mib(400)), Bytes::mib(112));
        assert_eq!(params.case(), "4k-3");
        let misfit = |sets: &[(&str, &str)]| Params::parse(sets.iter().copied()).unwrap().misfit(Bytes::mib(100));
        assert_eq!(misfit(&[]), None);
        let few = misfit(&[("writers", "9"), ("total", "4MiB"), ("file", "512KiB")]).unwrap();
        assert_eq!(few, "writers: expected at most 8, as 4MiB (total) are so many files of 512KiB (file), found 9");
        assert_eq!(misfit(&[("size", "1%")]).unwrap(), "size: expected a block of 2MiB or more, found 1MiB");
        let advised = Params::parse([("advise", "yes"), ("file", "8KiB")]).unwrap();
        assert_eq!(advised.case(), "8k-advised-4");
        assert!(Params::parse([("writers", "0")]).is_err() && Params::parse([("file", "5KiB")]).is_err());
    }
}
