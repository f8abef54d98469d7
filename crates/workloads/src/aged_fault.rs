//! aged-fault: huge page faults while memory is full of holes of single pages.
//!
//! One task takes turns page by page: it stores into a page of private memory, then writes a page of a file. Then it gives
//! half of its private pages back, one by one as a seed draws them, and faults 2 MiB blocks, each timed. What is free then is
//! scattered as in a machine that has run for long, between pages that compaction can move and pages that reclaim can
//! drop.

use os::{Advice, File, MapSpec, Os, Placement, VmRange};
use units::{Bytes, Errno};

use crate::{
    Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, blocks, fault_blocks, map_blocks, parse_advise},
    meet::{Meet, TaskError},
    model::Begin,
    outcome::drop_caches,
};

const AGED: ParamInfo = ParamInfo {
    name: "aged",
    expects: SIZE_EXPECTS,
    default: "80%",
    about: "memory that is aged: half private pages, half file pages, in turns",
};
const SIZE: ParamInfo =
    ParamInfo { name: "size", expects: SIZE_EXPECTS, default: "30%", about: "memory that is then faulted in blocks" };

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "aged-fault",
    about: "fault 2 MiB blocks among single free pages: private and file pages in turns, half of the private ones freed",
    maps_memory: true,
    params: &[AGED, SIZE, ADVISE],
};

const FILE: &str = "aged";

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Private and file pages together.
    pub aged: Size,
    /// Memory that is faulted in blocks.
    pub size: Size,
    /// `MADV_HUGEPAGE` on that.
    pub advise: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self { aged: Size::Percent(80), size: Size::Percent(30), advise: false };
        for (name, text) in given {
            match name {
                "aged" => params.aged = Size::parse(&AGED, text)?,
                "size" => params.size = Size::parse(&SIZE, text)?,
                "advise" => params.advise = parse_advise(text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        self.private(total) + self.faulted(total) + Bytes::HUGE_PAGE
    }

    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        self.private(total)
    }

    pub(crate) fn case(&self) -> String {
        if self.advise { "advised-1".to_owned() } else { "1".to_owned() }
    }

    /// Half of what is aged, in whole pages.
    fn private(&self, total: Bytes) -> Bytes {
        Bytes::PAGE * (self.aged.of(total).0 / 2 / Bytes::PAGE.0)
    }

    fn faulted(&self, total: Bytes) -> Bytes {
        Bytes::HUGE_PAGE * blocks(self.size.of(total))
    }
}

/// Runs the task and reads the machine's counters around all that it does.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let mut unable = Vec::new();
    drop_caches(&os, &mut unable).await?;
    let meet = Meet::new(&os, 1).await?;
    let task = os.spawn(Placement::Spread(0), async move |os: O| {
        let outcome = work(&os, &params, seed, meet).await;
        if outcome.is_err() {
            meet.cancel(&os).await;
        }
        outcome.map_err(TaskError::from)
    });
    let (tasks, window) = meet.gather(&os, Begin::AT_START, vec![task]).await?;
    Ok(window.outcome(tasks, unable))
}

async fn work<O: Os>(os: &O, params: &Params, seed: u64, meet: Meet) -> Result<TaskOutcome, Errno> {
    let (len, faulted) = (params.private(os.memory()), params.faulted(os.memory()));
    let file = os.create(FILE).await?;
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);

    let start = os.now();
    age(os, file, len, seed).await?;
    outcome.anoninit = Some(os.now().since(start));

    let mapping = map_blocks(os, faulted, params.advise).await?;
    fault_blocks(os, mapping, blocks(faulted), &mut outcome).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    // What is mapped goes with the process, which ends now.
    os.close(file).await?;
    os.unlink(FILE).await?;
    Ok(outcome)
}

/// Ages memory: `len` bytes of private pages and as many of an empty file, in turns, then about half of the private ones freed as
/// the seed draws them. Mapping and file stay.
pub(crate) async fn age<O: Os>(os: &O, file: File, len: Bytes, seed: u64) -> Result<(), Errno> {
    let aged = os.mmap(len, MapSpec::Anonymous).await?;
    os.madvise(aged, Advice::NoHugePage).await?;
    for at in (0..aged.pages(Bytes::PAGE)).map(|page| Bytes::PAGE * page) {
        os.store(aged.part(at, Bytes::PAGE), Bytes::PAGE).await?;
        os.write(file, at, Bytes::PAGE).await?;
    }
    // Clean pages of the file can be dropped at once.
    os.fsync(file).await?;
    free_half(os, aged, seed).await
}

async fn free_half<O: Os>(os: &O, range: VmRange, seed: u64) -> Result<(), Errno> {
    for page in (0..range.pages(Bytes::PAGE)).filter(|page| coin(seed, *page)) {
        os.madvise(range.part(Bytes::PAGE * page, Bytes::PAGE), Advice::DontNeed).await?;
    }
    Ok(())
}

/// Whether the page is freed: one bit of a hash of seed and page, so that no draw depends on another one.
/// (The finalizer of SplitMix64: Steele, Lea, Flood, OOPSLA 2014.)
fn coin(seed: u64, page: u64) -> bool {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_frees_half_and_another_one_another_half() {
        let freed = |seed: u64| (0..10_000).map(|page| coin(seed, page)).collect::<Vec<_>>();
        let (one, two) = (freed(1), freed(2));
        for pages in [&one, &two] {
            let count = pages.iter().filter(|freed| **freed).count();
            assert!((4_800..5_200).contains(&count), "{count}");
        }
        let same = one.iter().zip(&two).filter(|(a, b)| a == b).count();
        assert!((4_800..5_200).contains(&same), "{same}");
        // Four standard deviations around half of the pairs: neighbours are drawn apart too.
        let pairs = one.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((4_800..5_200).contains(&pairs), "{pairs}");
    }

    #[test]
    fn what_is_aged_is_half_private_and_half_file() {
        let params = Params::parse([("aged", "50%"), ("size", "10MiB")]).unwrap();
        assert_eq!(params.files(Bytes::mib(400)), Bytes::mib(100));
        assert_eq!(params.memory(Bytes::mib(400)), Bytes::mib(112));
    }
}
