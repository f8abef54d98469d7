//! numa-access: what an access to memory takes, by the node of the CPU and the node of the memory.
//!
//! For each pair of nodes in turn, `threads` tasks on the CPUs of the one map `size` bytes each, have them on the other by a
//! memory policy, store into every base page, and then go through them `rounds` times: each load waits for the one before
//! (random), or each page is written as a whole (sweep). Where the pages are is asked of the kernel. With `local` there is a
//! pair for each node that has both, with `interleave` one for each node with CPUs, whose memory is on all nodes.

use os::{Accessed, Advice, Amount, MapSpec, Mempolicy, NumaNode, Os, Pattern, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Errno, NodeId, Picos};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, Unable, WorkloadError, WorkloadInfo,
    fault_storm::{SIZE, parse_size},
    meet::{TaskError, results},
    params::value,
};

const PATTERN: ParamInfo = ParamInfo {
    name: "pattern",
    expects: "\"random\" or \"sweep\"",
    default: "random",
    about: "one load of each page, each after the one before; or stores to all of each page, by address",
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
    params: &[PATTERN, POLICY, THREADS, ROUNDS, SIZE, COMPUTE],
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
        };
        for (name, text) in given {
            match name {
                "pattern" => {
                    let word = value::<String>(&PATTERN, text, |word| word == "random" || word == "sweep")?;
                    params.pattern = if word == "random" { Pattern::Random } else { Pattern::Sweep };
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
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    pub(crate) fn memory(&self) -> Bytes {
        self.size * u64::from(self.threads)
    }

    pub(crate) fn case(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Random => "random",
            Pattern::Sweep => "sweep",
        };
        format!("{pattern}-{}-{}", self.policy.name(), self.threads)
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
}

/// Tasks that run at the same time.
#[derive(Clone, Debug)]
struct Place {
    cpu: NodeId,
    cpus: Vec<CpuId>,
    memory: Option<NodeId>,
    policy: Mempolicy,
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
    let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty());
    with_cpus
        .flat_map(|node| {
            let place = |(memory, policy)| Place { cpu: node.id, cpus: node.cpus.clone(), memory, policy };
            of(node).into_iter().map(place)
        })
        .collect()
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

async fn task<O: Os>(os: &O, params: &Params, place: &Place) -> Result<TaskOutcome, TaskError> {
    os.set_affinity(&place.cpus).await?;
    os.set_mempolicy(&place.policy).await?;
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let range = os.mmap(params.size, MapSpec::Anonymous).await?;
    // A kernel without huge pages has no such advice.
    let _ = os.madvise(range, Advice::NoHugePage).await;
    os.store(range, Bytes::PAGE).await?;
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
    outcome.access = Some(Access { cpu: place.cpu, memory: place.memory, done, misplaced });
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    os.munmap(range).await?;
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
    fn what_makes_no_sense_is_refused() {
        for (name, value) in
            [("pattern", "zigzag"), ("policy", "far"), ("rounds", "0"), ("size", "1MiB"), ("page", "base")]
        {
            assert!(Params::parse([(name, value)]).is_err(), "{name} = {value}");
        }
        let params = Params::parse([("pattern", "sweep"), ("policy", "interleave"), ("threads", "3")]).unwrap();
        assert_eq!((params.case().as_str(), params.memory()), ("sweep-interleave-3", Bytes::mib(384)));
    }
}
