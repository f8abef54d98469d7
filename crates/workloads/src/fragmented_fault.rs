//! fragmented-fault: faults in a region of `MADV_HUGEPAGE` while memory of some nodes is free in small holes only.
//!
//! First memory of each node that is to be fragmented is filled with base pages until its kswapd runs; then every second 64 KiB
//! are freed (holes of order 4), and the rest is pinned, so that compaction has nothing to move. Whole blocks that are still
//! free are taken by huge pages. Then a task on the CPUs of one node maps regions and stores into each page of them; the time of
//! each 2 MiB counts.
//! (D. Rientjes, October 2018: all of memory "fragmented" by holes of order 4, the task bound to a node by its affinity. His
//! program was not published; pins are ours.)

use os::{Advice, MapSpec, Mempolicy, Os, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, NodeId, Picos};

use crate::{
    Block, Outcome, ParamError, ParamInfo, TaskOutcome, WorkloadError, WorkloadInfo,
    block::{ADVISE, SIZE_EXPECTS, Size, blocks, map_blocks, parse_advise},
    conditions::{CPU_NODE, CpuNode},
    meet::{Meet, run_alone},
    params::{one_of, value},
    vm_larger_than_a_node::places,
};

const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: SIZE_EXPECTS,
    default: "12%",
    about: "memory that is faulted, all regions together",
};
const FRAGMENTED: ParamInfo = ParamInfo {
    name: "fragmented",
    expects: "\"none\", \"local\" or \"all\"",
    default: "all",
    about: "the nodes whose memory is fragmented before: none, that of the task's CPUs, or all",
};
const REGIONS: ParamInfo = ParamInfo {
    name: "regions",
    expects: "a whole number from 1 to 65536",
    default: "1",
    about: "mappings that the memory is divided into",
};
const ADVISED: ParamInfo = ParamInfo { default: "yes", about: "MADV_HUGEPAGE on the regions", ..ADVISE };
const DEFERRAL: ParamInfo = ParamInfo {
    name: "deferral",
    expects: "\"no\" or \"yes\"",
    default: "no",
    about: "count attempts from one compaction to the next, by the kernel's counters after each 2 MiB",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "fragmented-fault",
    about: "fault a region with MADV_HUGEPAGE while nodes have free memory in holes of 64 KiB only",
    maps_memory: true,
    params: &[SIZE, FRAGMENTED, REGIONS, ADVISED, CPU_NODE, DEFERRAL],
};

/// A hole: an order-4 block.
const HOLE: Bytes = Bytes::kib(64);

/// The nodes whose memory is fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fragmented {
    /// None.
    None,
    /// That of the task's CPUs.
    Local,
    /// All that have memory.
    All,
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Memory that is faulted.
    pub size: Size,
    /// Nodes whose memory is fragmented before.
    pub fragmented: Fragmented,
    /// Mappings that it is divided into.
    pub regions: u32,
    /// `MADV_HUGEPAGE` on them.
    pub advise: bool,
    /// The node whose CPUs the task runs on.
    pub cpus: CpuNode,
    /// Whether attempts between compactions are counted.
    pub deferral: bool,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            size: Size::Percent(12),
            fragmented: Fragmented::All,
            regions: 1,
            advise: true,
            cpus: CpuNode::DEFAULT,
            deferral: false,
        };
        for (name, text) in given {
            match name {
                "size" => params.size = Size::parse(&SIZE, text)?,
                "fragmented" => {
                    let known = ["none", "local", "all"];
                    let word = value::<String>(&FRAGMENTED, text, |word| known.contains(&word.as_str()))?;
                    params.fragmented = match word.as_str() {
                        "none" => Fragmented::None,
                        "local" => Fragmented::Local,
                        _ => Fragmented::All,
                    };
                }
                "regions" => params.regions = value(&REGIONS, text, |n| (1..=65_536).contains(n))?,
                "advise" => params.advise = parse_advise(text)?,
                "cpus" => params.cpus = CpuNode::parse(text)?,
                "deferral" => params.deferral = !one_of(&DEFERRAL, text, "no", "yes")?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// Whole blocks of 2 MiB of each region; at least one.
    fn region(&self, total: Bytes) -> u64 {
        (blocks(self.size.of(total)) / u64::from(self.regions)).max(1)
    }

    fn faulted(&self, total: Bytes) -> Bytes {
        Bytes::HUGE_PAGE * (self.region(total) * u64::from(self.regions))
    }

    /// Fills memory, and frees it before it takes more.
    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        if self.fragmented == Fragmented::None { self.mapped(total) } else { total.max(self.faulted(total)) }
    }

    /// Mappings of all of memory, and of what is faulted, with room to align it.
    pub(crate) fn mapped(&self, total: Bytes) -> Bytes {
        let regions = self.faulted(total) + Bytes::HUGE_PAGE * u64::from(self.regions);
        if self.fragmented == Fragmented::None { regions } else { regions + total * 2 }
    }

    /// Half of what is fragmented is free; less than all of that may be faulted.
    pub(crate) fn misfit(&self, total: Bytes) -> Option<String> {
        let (faulted, most) = (self.faulted(total), Bytes(total.0 / 3));
        (self.fragmented != Fragmented::None && faulted > most).then(|| {
            let (faulted, most) = (faulted.as_mib(), most.as_mib());
            format!(
                "size: {faulted} MiB are to be faulted, and fragmented memory has room for {most} MiB: expected less"
            )
        })
    }

    /// In the words of the published table.
    pub(crate) fn case(&self) -> String {
        let nodes = match self.fragmented {
            Fragmented::None => "no node fragmented",
            Fragmented::Local => "remote node not fragmented",
            Fragmented::All => "all nodes fragmented",
        };
        let what = match (self.regions, self.advise) {
            (1, true) => "MADV_HUGEPAGE region".to_owned(),
            (1, false) => "region".to_owned(),
            (regions, true) => format!("{regions} MADV_HUGEPAGE regions"),
            (regions, false) => format!("{regions} regions"),
        };
        format!("{nodes}; {what}")
    }
}

/// Runs the task; the counters cover the faults alone.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let (tasks, window) = run_alone(&os, async move |os: &O, meet| work(os, &params, meet).await).await?;
    Ok(window.outcome(tasks, Vec::new()))
}

async fn work<O: Os>(os: &O, params: &Params, meet: Meet) -> Result<TaskOutcome, Errno> {
    let nodes = os.nodes();
    if let Some(cpus) = params.cpus.of(&nodes) {
        os.set_affinity(&cpus).await?;
    }
    for node in nodes.iter().filter(|node| node.has_memory()) {
        let is_local = Some(node.id) == params.cpus.0;
        match params.fragmented {
            Fragmented::All => fragment(os, node.id, node.memory).await?,
            Fragmented::Local if is_local => fragment(os, node.id, node.memory).await?,
            Fragmented::Local | Fragmented::None => {}
        }
    }
    os.set_mempolicy(&Mempolicy::Local).await?;
    // Kernel threads come to rest.
    os.sleep(Picos::from_secs(1)).await;
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let mut deferral = Deferral::since_now(os).await?;
    let mut mappings = Vec::new();
    let of_region = params.region(os.memory());
    for _ in 0..params.regions {
        let mapping = map_blocks(os, Bytes::HUGE_PAGE * of_region, params.advise).await?;
        let region = mapping.aligned_part(Bytes::HUGE_PAGE, Bytes::HUGE_PAGE * of_region);
        for at in 0..of_region {
            fault(os, region.part(Bytes::HUGE_PAGE * at, Bytes::HUGE_PAGE), &mut outcome).await?;
            if params.deferral {
                deferral.look(os).await?;
            }
        }
        mappings.push(region);
    }
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    outcome.deferral = params.deferral.then_some(deferral.most);
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    let mut all = Vec::new();
    for region in mappings {
        all.extend(places(os, region).await?.unwrap_or_default());
    }
    outcome.places = Some(all);
    Ok(outcome)
}

/// Stores into each page of 2 MiB; a huge page takes one fault.
async fn fault<O: Os>(os: &O, block: VmRange, outcome: &mut TaskOutcome) -> Result<(), Errno> {
    let before = os.rusage().await?.faults();
    let start = os.now();
    os.store(block, Bytes::PAGE).await?;
    let latency = os.now().since(start);
    let faults = os.rusage().await?.faults() - before;
    let huge = faults <= 1;
    outcome.faults += faults;
    outcome.huge_faults += u64::from(huge);
    outcome.stores += block.pages(Bytes::PAGE);
    outcome.blocks.push(Block { huge, start, latency });
    Ok(())
}

/// Leaves memory of a node that is free in holes of 64 KiB between pinned base pages.
async fn fragment<O: Os>(os: &O, node: NodeId, memory: Bytes) -> Result<(), Errno> {
    os.set_mempolicy(&Mempolicy::Bind(vec![node])).await?;
    let filled = fill(os, memory).await?;
    for at in (0..filled.len.0).step_by(2 * bytes(HOLE)).map(Bytes) {
        os.madvise(filled.part(at, HOLE), Advice::DontNeed).await?;
    }
    for at in (HOLE.0..filled.len.0).step_by(2 * bytes(HOLE)).map(Bytes) {
        os.pin(filled.part(at, HOLE)).await?;
    }
    take_blocks(os, memory).await
}

fn bytes(size: Bytes) -> usize {
    usize::try_from(size.0).expect("it is small")
}

/// Base pages until kswapd runs, in whole blocks of 2 MiB.
async fn fill<O: Os>(os: &O, memory: Bytes) -> Result<VmRange, Errno> {
    let range = os.mmap(memory, MapSpec::Anonymous).await?;
    os.madvise(range, Advice::NoHugePage).await?;
    let runs = counter(os, "pageoutrun").await?;
    let mut filled = Bytes(0);
    for at in 0..blocks(memory) {
        os.store(range.part(Bytes::HUGE_PAGE * at, Bytes::HUGE_PAGE), Bytes::PAGE).await?;
        filled = Bytes::HUGE_PAGE * (at + 1);
        if counter(os, "pageoutrun").await? != runs {
            break;
        }
    }
    Ok(range.part(Bytes(0), filled))
}

/// Huge pages take the whole blocks that are still free, as far as the kernel gives them without advice and compaction: none
/// where transparent_hugepage/enabled is not `always`.
async fn take_blocks<O: Os>(os: &O, memory: Bytes) -> Result<(), Errno> {
    // Bound: a node has no more blocks.
    for _ in 0..blocks(memory) {
        let range = map_blocks(os, Bytes::HUGE_PAGE, false).await?;
        let block = range.aligned_part(Bytes::HUGE_PAGE, Bytes::HUGE_PAGE);
        os.store(block.part(Bytes(0), Bytes::PAGE), Bytes::PAGE).await?;
        if !os.mincore(block.part(Bytes::PAGE, Bytes::PAGE)).await?[0] {
            return os.munmap(range).await;
        }
    }
    Ok(())
}

async fn counter<O: Os>(os: &O, name: &str) -> Result<u64, Errno> {
    Ok(os.vmstat().await?.0.get(name).copied().unwrap_or(0))
}

/// Attempts to compact from one that was made to the next: those that were deferred, and the one that was not.
#[derive(Debug, Default)]
struct Deferral {
    /// Counters when they were last read: attempts that were deferred, and compactions.
    deferred: u64,
    compactions: u64,
    /// Attempts since the last compaction; none before the first.
    since: Option<u64>,
    most: u64,
}

impl Deferral {
    async fn since_now<O: Os>(os: &O) -> Result<Self, Errno> {
        let mut before = Self::default();
        before.look(os).await?;
        Ok(Self { deferred: before.deferred, compactions: before.compactions, ..Self::default() })
    }

    async fn look<O: Os>(&mut self, os: &O) -> Result<(), Errno> {
        let now = os.vmstat().await?;
        let read = |name: &str| now.0.get(name).copied().unwrap_or(0);
        self.learn(read("sim_compact_deferred"), read("compact_stall"));
        Ok(())
    }

    /// Within 2 MiB what was deferred came before what was not.
    fn learn(&mut self, deferred: u64, compactions: u64) {
        let more = deferred - self.deferred;
        if let Some(since) = &mut self.since {
            *since += more;
        }
        if compactions > self.compactions {
            self.most = self.most.max(self.since.map_or(0, |since| since + 1));
            self.since = Some(0);
        }
        (self.deferred, self.compactions) = (deferred, compactions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(given: &[(&'static str, &str)]) -> Result<Params, ParamError> {
        Params::parse(given.iter().copied())
    }

    #[test]
    fn cases_have_the_words_of_the_published_table() {
        let case = |given: &[(&'static str, &str)]| params(given).unwrap().case();
        assert_eq!(case(&[]), "all nodes fragmented; MADV_HUGEPAGE region");
        assert_eq!(case(&[("fragmented", "local")]), "remote node not fragmented; MADV_HUGEPAGE region");
        let many = [("fragmented", "none"), ("regions", "200"), ("advise", "no")];
        assert_eq!(case(&many), "no node fragmented; 200 regions");
    }

    #[test]
    fn what_is_faulted_fits_into_the_holes() {
        let total = Bytes::gib(6);
        let problem = params(&[("size", "3GiB")]).unwrap().misfit(total);
        let expected = "size: 3072 MiB are to be faulted, and fragmented memory has room for 2048 MiB: expected less";
        assert_eq!(problem.as_deref(), Some(expected));
        assert_eq!(params(&[("size", "3GiB"), ("fragmented", "none")]).unwrap().misfit(total), None);
        assert_eq!(params(&[("size", "10MiB"), ("regions", "2")]).unwrap().faulted(total), Bytes::mib(8));
    }

    #[test]
    fn attempts_are_counted_from_one_compaction_to_the_next() {
        let mut deferral = Deferral::default();
        for (deferred, compactions) in [(5, 0), (6, 1), (8, 1), (9, 2), (9, 3), (72, 4)] {
            deferral.learn(deferred, compactions);
        }
        // Deferred before the first compaction: nobody knows since when.
        assert_eq!(deferral.most, 64);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [("size", "0"), ("fragmented", "remote"), ("regions", "0"), ("deferral", "64"), ("hole", "4")] {
            assert!(params(&[bad]).is_err(), "{bad:?}");
        }
    }
}
