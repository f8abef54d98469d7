//! llfree-frag: free blocks of 2 MiB while random frames are replaced.
//!
//! The fragmentation benchmark of LLFree (Wrenger et al., USENIX ATC 2023). A module of the kernel fills all memory, frees blocks
//! that are drawn until a part of memory is left allocated, and then goes by rounds: in each it replaces a tenth of the blocks,
//! freeing one that is drawn and taking one for it. Free blocks of 2 MiB are counted after each round. The CPUs take turns.
//!
//! Nothing is mapped, no process has these frames, and none of them can be moved: what becomes whole again does so by the
//! allocator alone. With one block at a time, a per-CPU list gives the very block back that was freed; `at_once` frees several
//! before as many are taken.

use os::Os;
use units::{Errno, FrameChurn, FrameChurned, Order, PageAllocator};

use crate::{
    Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    meet::{Meet, run_alone},
    params::value,
};

const ALLOCATOR: ParamInfo = ParamInfo {
    name: "allocator",
    expects: "\"linux\" or \"llfree\"",
    default: "linux",
    about: "page allocator: the kernel's own, or LLFree on the frames that are free in its zones",
};
const FILL: ParamInfo = ParamInfo {
    name: "fill",
    expects: "a whole number from 1 to 99",
    default: "50",
    about: "per cent of memory that stay allocated, drawn at random, after all of it was",
};
const ORDER: ParamInfo =
    ParamInfo { name: "order", expects: "a whole number from 0 to 8", default: "0", about: "order of all blocks" };
const ROUNDS: ParamInfo = ParamInfo {
    name: "rounds",
    expects: "a whole number from 1 to 10000",
    default: "100",
    about: "how often a part of the blocks is replaced",
};
const REPLACED: ParamInfo = ParamInfo {
    name: "replaced",
    expects: "a whole number from 1 to 100",
    default: "10",
    about: "per cent of the blocks that a round replaces",
};
const AT_ONCE: ParamInfo = ParamInfo {
    name: "at_once",
    expects: "a whole number from 1 to 1000000",
    default: "1",
    about: "blocks that are freed before as many are taken for them",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "llfree-frag",
    about: "free 2 MiB blocks while a kernel module replaces random frames, with Linux's page allocator or LLFree's",
    maps_memory: false,
    params: &[ALLOCATOR, FILL, ORDER, ROUNDS, REPLACED, AT_ONCE],
};

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The page allocator.
    pub allocator: PageAllocator,
    /// Per cent of memory that stay allocated.
    pub fill: u32,
    /// The order of all blocks.
    pub order: Order,
    /// Rounds.
    pub rounds: u32,
    /// Per cent of the blocks that a round replaces.
    pub replaced: u32,
    /// Blocks that are freed before as many are taken.
    pub at_once: u32,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let allocator = PageAllocator::Linux;
        let mut params = Self { allocator, fill: 50, order: Order::BASE, rounds: 100, replaced: 10, at_once: 1 };
        for (name, text) in given {
            match name {
                "allocator" => {
                    let named = |allocator: &PageAllocator| allocator.name() == text;
                    let found = PageAllocator::ALL.into_iter().find(named);
                    let bad = || value::<String>(&ALLOCATOR, text, |_| false).expect_err("nothing is accepted");
                    params.allocator = found.ok_or_else(bad)?;
                }
                "fill" => params.fill = value(&FILL, text, |n| (1..=99).contains(n))?,
                "order" => params.order = Order(value(&ORDER, text, |n| *n <= 8)?),
                "rounds" => params.rounds = value(&ROUNDS, text, |n| (1..=10_000).contains(n))?,
                "replaced" => params.replaced = value(&REPLACED, text, |n| (1..=100).contains(n))?,
                "at_once" => params.at_once = value(&AT_ONCE, text, |n| (1..=1_000_000).contains(n))?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// Without the allocator: cases of both stand side by side.
    pub(crate) fn case(&self) -> String {
        let order = if self.order == Order::BASE { String::new() } else { format!("-order{}", self.order) };
        let at_once = if self.at_once == 1 { String::new() } else { format!("-by{}", self.at_once) };
        let replaced = if self.replaced == 10 { String::new() } else { format!("-{}%", self.replaced) };
        format!("fill{}{order}{at_once}{replaced}", self.fill)
    }

    /// The rounds that tables show: few of them, and the last. Round 0 is before the first.
    pub fn shown(&self) -> Vec<u32> {
        let steps = (0..4).flat_map(|power| [1, 2, 5].map(|n| n * 10_u32.pow(power)));
        let mut shown: Vec<u32> = std::iter::once(0).chain(steps).filter(|round| *round < self.rounds).collect();
        shown.push(self.rounds);
        shown
    }
}

/// Runs the module, with counters read around it.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let cpus = os.cpus();
    let Params { allocator, fill: kept, order, rounds, replaced, at_once } = params;
    let churn = FrameChurn { allocator, order, kept, rounds, replaced, at_once, seed, cpus };
    let refused = "llfree-frag: needs a kernel module that allocates frames; only the simulator has one (--target sim)";
    match run_alone(&os, async move |os: &O, meet| work(os, &churn, meet).await).await {
        Ok((tasks, window)) => Ok(window.outcome(tasks, Vec::new())),
        Err(WorkloadError::Call(_, Errno::NOSYS)) => Err(WorkloadError::Refused(refused.to_owned())),
        Err(other) => Err(other),
    }
}

async fn work<O: Os>(os: &O, churn: &FrameChurn, meet: Meet) -> Result<TaskOutcome, Errno> {
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let found: FrameChurned = os.churn_frames(churn).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    outcome.frame_churn = Some(found);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_name_what_is_not_the_default_and_never_the_allocator() {
        let case = |sets: &[(&str, &str)]| Params::parse(sets.iter().copied()).map(|params| params.case());
        assert_eq!(case(&[("allocator", "llfree")]).unwrap(), "fill50");
        let all = [("fill", "75"), ("order", "3"), ("at_once", "64"), ("replaced", "20")];
        assert_eq!(case(&all).unwrap(), "fill75-order3-by64-20%");
        let message = case(&[("allocator", "buddy")]).unwrap_err().to_string();
        assert_eq!(message, "allocator: expected \"linux\" or \"llfree\", found \"buddy\"");
        for bad in [("fill", "100"), ("order", "9"), ("rounds", "0"), ("replaced", "0"), ("at_once", "0"), ("x", "1")] {
            assert!(case(&[bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn few_rounds_are_shown_and_always_the_last() {
        let shown = |rounds| Params::parse([("rounds", rounds)]).unwrap().shown();
        assert_eq!(shown("100"), [0, 1, 2, 5, 10, 20, 50, 100]);
        assert_eq!(shown("1"), [0, 1]);
        assert_eq!(shown("30"), [0, 1, 2, 5, 10, 20, 30]);
        assert_eq!(shown("10000").len(), 14);
    }
}
