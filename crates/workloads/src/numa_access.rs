//! numa-access: what an access to memory takes, by the node of the CPU and the node of the memory.
//!
//! For each pair of nodes in turn, `threads` tasks on the CPUs of the one map `size` bytes each, have them on the other by a
//! memory policy, store into every base page, and then go through them `rounds` times: each load waits for the one before
//! (random), or each page is written as a whole (sweep). Where the pages are is asked of the kernel. With `local` there is a
//! pair for each node that has both, with `interleave` one for each node with CPUs, whose memory is on all nodes.

use os::{Accessed, Advice, Amount, MapSpec, Mempolicy, NumaNode, Os, Pattern, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Errno, NodeId, Picos, Stores};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, Unable, WorkloadError, WorkloadInfo,
    fault_storm::{SIZE, parse_size},
    meet::{TaskError, results},
    params::value,
};

const PATTERN: ParamInfo = ParamInfo {
    name: "pattern",
    expects: "\"random\", \"update\", \"stride\", \"sweep\", \"fresh\", \"non-temporal\" or \"rep-stosb\"",
    default: "random",
    about: "one load of each page after the other, at random (stored back with update) or by address; or stores to all of it: \
            through caches (sweep; fresh where they have none of it), past them, or by the string instruction",
};
const POLICY: ParamInfo = ParamInfo {
    name: "policy",
    expects: "\"bind\", \"preferred\", \"local\" or \"interleave\"",
    default: "bind",
    about: "the memory policy of the tasks; bind and preferred go through all pairs of nodes",
};
const THREADS: ParamInfo = ParamInfo {
    name: "threads",
    expects: "a whole number from 1 to 4096",
    default: "1",
    about: "tasks at the same time, on the CPUs of one node",
};
const ROUNDS: ParamInfo = ParamInfo {
    name: "rounds",
    expects: "a whole number from 1 to 1000000",
    default: "16",
    about: "how often each task goes through its memory",
};
const PAGE: ParamInfo = ParamInfo {
    name: "page",
    expects: "\"base\", \"huge\" or \"both\"",
    default: "base",
    about: "pages that the memory is mapped in; with both, huge ones first, and latencies by those of local huge pages",
};
const PAIRS: ParamInfo = ParamInfo {
    name: "pairs",
    expects: "\"all\" or \"distances\"",
    default: "all",
    about: "which pairs of nodes; distances is one for each distance of the first node with CPUs",
};
const TABLES: ParamInfo = ParamInfo {
    name: "tables",
    expects: "\"policy\", \"cpu\" or \"both\"",
    default: "policy",
    about: "where page tables of base pages are: as the policy has it, or on the node of the CPU",
};
const LINES: ParamInfo = ParamInfo {
    name: "lines",
    expects: "a whole number from 1 to 64",
    default: "1",
    about: "loads of each page of a random pattern, each of another cache line and after the one before",
};
const COMPUTE: ParamInfo = ParamInfo {
    name: "compute",
    expects: "whole microseconds from 0 to 1000000",
    default: "0",
    about: "time of a CPU, without memory, after each round; not part of what accesses take",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "numa-access",
    about: "what an access takes, by the node of the CPU and the node of the memory",
    maps_memory: true,
    params: &[PATTERN, POLICY, THREADS, ROUNDS, SIZE, COMPUTE, LINES, PAGE, PAIRS, TABLES],
};

/// The memory policy of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// On one node and no other.
    Bind,
    /// On one node, if it has any.
    Preferred,
    /// On the node of the CPU.
    Local,
    /// On all nodes in turn.
    Interleave,
}

impl Policy {
    const ALL: [Self; 4] = [Self::Bind, Self::Preferred, Self::Local, Self::Interleave];

    fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Preferred => "preferred",
            Self::Local => "local",
            Self::Interleave => "interleave",
        }
    }
}

/// One of two, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The first one: base pages, tables by policy.
    First,
    /// The other: huge pages, tables on the node of the CPU.
    Other,
    /// Both.
    Both,
}

impl Which {
    fn parse(info: &ParamInfo, names: [&str; 3], text: &str) -> Result<Self, ParamError> {
        let found = names.iter().zip([Self::First, Self::Other, Self::Both]).find(|(name, _)| **name == text);
        found.map_or_else(|| value::<String>(info, text, |_| false).map(|_| Self::First), |(_, which)| Ok(which))
    }

    /// Which of the two they are; the other one comes first.
    fn each(self) -> &'static [bool] {
        match self {
            Self::First => &[false],
            Self::Other => &[true],
            Self::Both => &[true, false],
        }
    }
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// How memory is gone through.
    pub pattern: Pattern,
    /// Where it is.
    pub policy: Policy,
    /// Tasks at the same time.
    pub threads: u32,
    /// How often each goes through its memory.
    pub rounds: u32,
    /// Bytes of each task.
    pub size: Bytes,
    /// Time of its CPU that it uses after each round.
    pub compute: Picos,
    /// Base pages, or huge ones.
    pub page: Which,
    /// One pair of nodes for each distance, and not all pairs.
    pub by_distance: bool,
    /// Tables of base pages by the policy, or on the node of the CPU.
    pub tables: Which,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            pattern: Pattern::Random,
            policy: Policy::Bind,
            threads: 1,
            rounds: 16,
            size: Bytes::mib(128),
            compute: Picos(0),
            page: Which::First,
            by_distance: false,
            tables: Which::First,
        };
        let mut lines = 1;
        for (name, text) in given {
            match name {
                "lines" => lines = value(&LINES, text, |n| (1..=64).contains(n))?,
                "pattern" => {
                    let words = ["random", "update", "stride", "sweep", "fresh", "non-temporal", "rep-stosb"];
                    let known = |word: &String| words.contains(&word.as_str());
                    params.pattern = match value::<String>(&PATTERN, text, known)?.as_str() {
                        "random" => Pattern::Random,
                        "stride" => Pattern::Stride,
                        "update" => Pattern::Update,
                        "fresh" => Pattern::Fresh,
                        "non-temporal" => Pattern::NonTemporal,
                        "rep-stosb" => Pattern::RepStosb,
                        _ => Pattern::Sweep,
                    };
                }
                "policy" => {
                    let found = Policy::ALL.into_iter().find(|policy| policy.name() == text);
                    params.policy = match found {
                        Some(policy) => policy,
                        None => return value::<String>(&POLICY, text, |_| false).map(|_| params),
                    };
                }
                "threads" => params.threads = value(&THREADS, text, |n| (1..=4096).contains(n))?,
                "rounds" => params.rounds = value(&ROUNDS, text, |n| (1..=1_000_000).contains(n))?,
                "size" => params.size = parse_size(text)?,
                "compute" => {
                    params.compute = Picos::from_micros(value(&COMPUTE, text, |us: &u64| *us <= 1_000_000)?);
                }
                "page" => params.page = Which::parse(&PAGE, ["base", "huge", "both"], text)?,
                "pairs" => {
                    let word = value::<String>(&PAIRS, text, |word| word == "all" || word == "distances")?;
                    params.by_distance = word == "distances";
                }
                "tables" => params.tables = Which::parse(&TABLES, ["policy", "cpu", "both"], text)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        if params.pattern == Pattern::Random && lines > 1 {
            params.pattern = Pattern::Lines(lines);
        }
        Ok(params)
    }

    pub(crate) fn memory(&self) -> Bytes {
        self.size * u64::from(self.threads)
    }

    pub(crate) fn case(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Random => "random".to_owned(),
            Pattern::Lines(lines) => format!("random-lines-{lines}"),
            Pattern::Stride => "stride".to_owned(),
            Pattern::Update => "update".to_owned(),
            Pattern::Sweep => "sweep".to_owned(),
            Pattern::NonTemporal => Stores::NonTemporal.name().to_owned(),
            Pattern::Fresh => "fresh".to_owned(),
            Pattern::RepStosb => Stores::RepStosb.name().to_owned(),
        };
        let page = ["", "-huge", "-both"][self.page as usize];
        let pairs = if self.by_distance { "-distances" } else { "" };
        let tables = ["", "-tables-of-cpu", "-tables-of-both"][self.tables as usize];
        format!("{pattern}-{}-{}{page}{pairs}{tables}", self.policy.name(), self.threads)
    }

    /// Do its stores take a fault each, and no others?
    pub(crate) fn knows_its_faults(&self) -> bool {
        self.page == Which::First && self.tables == Which::First
    }
}

/// The accesses of a task: how many, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The node that it ran on.
    pub cpu: NodeId,
    /// The node of its memory; none where that is on all nodes.
    pub memory: Option<NodeId>,
    /// How many there were, and how long they took.
    pub done: Accessed,
    /// Pages that were elsewhere, if the kernel says.
    pub misplaced: Option<u64>,
    /// The distance of the two nodes, where pairs are chosen or compared by it and the kernel says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u32>,
    /// How its memory was mapped.
    #[serde(default, skip_serializing_if = "Mapped::is_usual")]
    pub mapped: Mapped,
}

/// How memory is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// In huge pages.
    pub is_huge: bool,
    /// By page tables on the node of the CPU, where the policy would have them elsewhere.
    pub has_near_tables: bool,
}

impl Mapped {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Tasks that run at the same time.
#[derive(Clone, Debug)]
struct Place {
    cpu: NodeId,
    cpus: Vec<CpuId>,
    memory: Option<NodeId>,
    policy: Mempolicy,
    distance: Option<u32>,
    mapped: Mapped,
}

/// Goes through the pairs of nodes, one after the other.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    let nodes = os.nodes();
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    let (mut tasks, mut unable) = (Vec::new(), Vec::new());
    for place in places(&params, &nodes) {
        let threads: Vec<_> = (0..params.threads)
            .map(|_| {
                let (place, params) = (place.clone(), params.clone());
                os.spawn(Placement::Free, async move |os: O| task(&os, &params, &place).await)
            })
            .collect();
        match results(threads).await {
            Ok(outcomes) => tasks.extend(outcomes),
            Err(WorkloadError::Call(_, errno)) if tasks.is_empty() && lacks(errno) => {
                let what = format!("{} memory", params.policy.name());
                let reason = format!("the kernel does not let this run set a memory policy or an affinity: {errno}");
                unable.push(Unable { what, reason });
                break;
            }
            Err(error) => return Err(error),
        }
    }
    note(&nodes, &tasks, &mut unable);
    let window = os.now().since(start);
    let counters = os.vmstat().await.during("vmstat")?.since(&before);
    note_small_pages(&params, &tasks, &counters, &mut unable);
    Ok(Outcome { tasks, counters, gauges: std::collections::BTreeMap::new(), window, unable, cpus: None })
}

/// A kernel without nodes, or one that keeps such calls from a container.
fn lacks(errno: Errno) -> bool {
    [Errno::NOSYS, Errno::PERM].contains(&errno)
}

/// The pairs of nodes: only those with CPUs run tasks, only those with memory have any.
fn places(params: &Params, nodes: &[NumaNode]) -> Vec<Place> {
    let memories: Vec<NodeId> = nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    let of = |node: &NumaNode| -> Vec<(Option<NodeId>, Mempolicy)> {
        match params.policy {
            Policy::Bind => memories.iter().map(|memory| (Some(*memory), Mempolicy::Bind(vec![*memory]))).collect(),
            Policy::Preferred => memories.iter().map(|memory| (Some(*memory), Mempolicy::Preferred(*memory))).collect(),
            Policy::Local if node.has_memory() => vec![(Some(node.id), Mempolicy::Local)],
            Policy::Local => Vec::new(),
            Policy::Interleave => vec![(None, Mempolicy::Interleave(memories.clone()))],
        }
    };
    let has_distance = params.by_distance || params.page == Which::Both;
    let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty());
    let pairs = with_cpus.flat_map(|node| {
        let place = |(memory, policy)| Place {
            cpu: node.id,
            cpus: node.cpus.clone(),
            memory,
            policy,
            distance: memory.filter(|_| has_distance).and_then(|memory| distance(nodes, node, memory)),
            mapped: Mapped::default(),
        };
        of(node).into_iter().map(place)
    });
    let mut pairs: Vec<Place> = pairs.collect();
    if params.by_distance {
        pairs = one_of_each_distance(pairs);
    }
    pairs.iter().flat_map(|pair| mappings(params, pair).map(|mapped| Place { mapped, ..pair.clone() })).collect()
}

/// The distance from one node to another, as the kernel says it.
fn distance(nodes: &[NumaNode], from: &NumaNode, to: NodeId) -> Option<u32> {
    let at = nodes.iter().position(|node| node.id == to)?;
    from.distance.get(at).copied()
}

/// For each distance the first of the first CPUs' pairs; all of those where distances are not known.
fn one_of_each_distance(mut pairs: Vec<Place>) -> Vec<Place> {
    let Some(first) = pairs.first().map(|place| place.cpu) else { return pairs };
    pairs.retain(|place| place.cpu == first);
    let mut met = Vec::new();
    pairs.retain(|place| {
        let is_new = place.distance.is_none() || !met.contains(&place.distance);
        met.push(place.distance);
        is_new
    });
    pairs.sort_by_key(|place| place.distance);
    pairs
}

/// The ways in which the memory of a pair of CPU and node is mapped, one after the other. Where that node is the CPU's own,
/// page tables are there too.
fn mappings(params: &Params, pair: &Place) -> impl Iterator<Item = Mapped> {
    let is_own = pair.memory.is_none_or(|memory| memory == pair.cpu);
    let tables = params.tables.each();
    params.page.each().iter().flat_map(move |is_huge| {
        let tables: &[bool] = if *is_huge || is_own { &[false] } else { tables };
        tables.iter().map(move |near| Mapped { is_huge: *is_huge, has_near_tables: *near })
    })
}

/// Notes figures that cannot be had here.
fn note(nodes: &[NumaNode], tasks: &[TaskOutcome], unable: &mut Vec<Unable>) {
    let mut note = |what: &str, reason: &str| {
        unable.push(Unable { what: what.to_owned(), reason: reason.to_owned() });
    };
    if nodes.iter().filter(|node| node.has_memory()).count() == 1 {
        note("memory of another node", "the machine has one node with memory");
    }
    let accesses = || tasks.iter().filter_map(|task| task.access);
    if accesses().any(|access| access.misplaced.is_none()) {
        note("places of pages", "the kernel does not tell where pages are (move_pages)");
    }
}

/// Notes that memory was to be in huge pages and was not, as far as the kernel counts them.
fn note_small_pages(
    params: &Params,
    tasks: &[TaskOutcome],
    counters: &std::collections::BTreeMap<String, i64>,
    unable: &mut Vec<Unable>,
) {
    let in_huge = tasks.iter().filter(|task| task.access.is_some_and(|access| access.mapped.is_huge)).count();
    let wanted = in_huge as u64 * (params.size.0 / Bytes::HUGE_PAGE.0);
    let got = counters.get("thp_fault_alloc").map_or(0, |moved| u64::try_from(*moved).unwrap_or(0));
    if got < wanted {
        let reason =
            format!("{got} of {wanted} huge pages came from faults (thp_fault_alloc); the others are base pages");
        unable.push(Unable { what: "huge pages".to_owned(), reason });
    }
}

/// Maps the memory of a task, and has it where its place says.
async fn populate<O: Os>(os: &O, params: &Params, place: &Place) -> Result<(VmRange, VmRange), Errno> {
    let mapped = place.mapped;
    let len = if mapped.is_huge { params.size + Bytes::HUGE_PAGE } else { params.size };
    let whole = os.mmap(len, MapSpec::Anonymous).await?;
    let range = if mapped.is_huge { whole.aligned_part(Bytes::HUGE_PAGE, params.size) } else { whole };
    // A kernel without huge pages has no such advice.
    let advice = if mapped.is_huge { Advice::HugePage } else { Advice::NoHugePage };
    let _ = os.madvise(range, advice).await;
    if mapped.has_near_tables {
        os.set_mempolicy(&Mempolicy::Local).await?;
        os.store(range, Bytes::PAGE).await?;
        os.madvise(range, Advice::DontNeed).await?;
        os.set_mempolicy(&place.policy).await?;
    }
    os.store(range, Bytes::PAGE).await?;
    Ok((whole, range))
}

async fn task<O: Os>(os: &O, params: &Params, place: &Place) -> Result<TaskOutcome, TaskError> {
    os.set_affinity(&place.cpus).await?;
    os.set_mempolicy(&place.policy).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let (whole, range) = populate(os, params, place).await?;
    outcome.stores = range.pages(Bytes::PAGE);
    outcome.faults = outcome.stores;
    let misplaced = misplaced(os, range, place.memory).await?;
    let mut done = Accessed { accesses: 0, time: Picos(0) };
    // One at a time, where something comes in between.
    let (turns, rounds) = if params.compute == Picos(0) { (1, params.rounds) } else { (params.rounds, 1) };
    for _ in 0..turns {
        let part = os.access(range, params.pattern, Amount::Rounds(rounds.into())).await?;
        done = Accessed { accesses: done.accesses + part.accesses, time: done.time + part.time };
        if params.compute > Picos(0) {
            os.compute(params.compute).await;
        }
    }
    let (cpu, memory, distance, mapped) = (place.cpu, place.memory, place.distance, place.mapped);
    outcome.access = Some(Access { cpu, memory, done, misplaced, distance, mapped });
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.munmap(whole).await?;
    Ok(outcome)
}

/// Pages that are not on a node; nothing is misplaced that may be on any.
async fn misplaced<O: Os>(os: &O, range: VmRange, node: Option<NodeId>) -> Result<Option<u64>, Errno> {
    match os.node_of(range).await {
        Ok(places) => {
            let is_elsewhere = |place: &&Option<NodeId>| node.is_some() && **place != node;
            Ok(Some(places.iter().filter(is_elsewhere).count() as u64))
        }
        Err(errno) if lacks(errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_paired_as_the_policy_has_it() {
        let node = |id, cpus: &[u32], has_memory: bool| NumaNode {
            id: NodeId(id),
            cpus: cpus.iter().copied().map(CpuId).collect(),
            memory: Bytes::mib(u64::from(has_memory)),
            distance: (0..3).map(|to: u32| if to == id { 10 } else { 10 + 10 * to.abs_diff(id) }).collect(),
        };
        let nodes = [node(0, &[0, 1], true), node(1, &[], true), node(2, &[2], false)];
        let pairs = |policy| {
            let params = Params { policy, ..Params::parse([]).unwrap() };
            let pairs = places(&params, &nodes).into_iter().map(|place| (place.cpu.0, place.memory.map(|node| node.0)));
            pairs.collect::<Vec<_>>()
        };
        let all = [(0, Some(0)), (0, Some(1)), (2, Some(0)), (2, Some(1))];
        assert_eq!(pairs(Policy::Bind), all);
        assert_eq!(pairs(Policy::Preferred), all);
        assert_eq!(pairs(Policy::Local), [(0, Some(0))]);
        assert_eq!(pairs(Policy::Interleave), [(0, None), (2, None)]);
    }

    #[test]
    fn one_pair_stands_for_each_distance_and_each_mapping() {
        let node = |id: u32| NumaNode {
            id: NodeId(id),
            cpus: vec![CpuId(id)],
            memory: Bytes::gib(1),
            distance: (0..4).map(|to: u32| [10, 16, 16, 32][(to ^ id) as usize]).collect(),
        };
        let nodes: Vec<NumaNode> = (0..4).map(node).collect();
        let given = [("page", "both"), ("pairs", "distances"), ("tables", "both")];
        let params = Params::parse(given).unwrap();
        assert_eq!(params.case(), "random-bind-1-both-distances-tables-of-both");
        let pairs = |nodes: &[NumaNode]| {
            let pairs = places(&params, nodes).into_iter().map(|place| {
                (place.memory.unwrap().0, place.distance, place.mapped.is_huge, place.mapped.has_near_tables)
            });
            pairs.collect::<Vec<_>>()
        };
        let found = pairs(&nodes);
        let of = |node, distance| {
            let near = (node, distance, false, true);
            let usual = [(node, distance, true, false), (node, distance, false, false)];
            if node == 0 { usual.to_vec() } else { vec![usual[0], near, usual[1]] }
        };
        assert_eq!(found, [of(0, Some(10)), of(1, Some(16)), of(3, Some(32))].concat());
        let unknown: Vec<NumaNode> = nodes.into_iter().map(|node| NumaNode { distance: Vec::new(), ..node }).collect();
        assert_eq!(pairs(&unknown).len(), 2 + 3 * 3, "all of the first node where distances are not known");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, value) in [
            ("pattern", "zigzag"),
            ("policy", "far"),
            ("rounds", "0"),
            ("size", "1MiB"),
            ("page", "gigantic"),
            ("pairs", "some"),
            ("tables", "none"),
            ("lines", "65"),
        ] {
            assert!(Params::parse([(name, value)]).is_err(), "{name} = {value}");
        }
        let params = Params::parse([("pattern", "sweep"), ("policy", "interleave"), ("threads", "3")]).unwrap();
        assert_eq!((params.case().as_str(), params.memory()), ("sweep-interleave-3", Bytes::mib(384)));
    }
}
