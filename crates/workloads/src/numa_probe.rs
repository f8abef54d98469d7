//! numa-probe: what a busy machine and a kernel that balances NUMA make of one task and its memory.
//!
//! One task loads a random word of each page of a mapping, `rounds` times over, each load after the one before; then it does so
//! again and stores each word back. Its CPU and its memory are bound to a node each, begin on one, or are left to the kernel.
//! With `load` every CPU, its own included, has a task pinned to it that is busy for that part of the time and uses no memory: a
//! process, so that nobody shares the mapping. It says how long both phases took, where the pages ended, and how often the task
//! went to another CPU meanwhile.

use os::{Accessed, Amount, Barrier, CountedBy, MapSpec, Mempolicy, Moves, NumaNode, Os, Pattern, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Errno, NodeId, Picos};

use crate::{
    Outcome, ParamError, ParamInfo, TaskOutcome, Unable, WorkloadError, WorkloadInfo,
    conditions::{has_memory, no_such_node},
    fault_storm::parse_size,
    meet::{Meet, TaskError, results, run_alone},
    params::{misfit, value},
    vm_larger_than_a_node::places,
};

const WHERE: &str = "\"free\", the number of a node, or \"preferred-\" and one, as in preferred-1";
const CPU: ParamInfo = ParamInfo {
    name: "cpu",
    expects: WHERE,
    default: "free",
    about: "CPUs of the task: those of a node; with preferred it begins there and may go anywhere",
};
const MEMORY: ParamInfo = ParamInfo {
    name: "memory",
    expects: WHERE,
    default: "free",
    about: "memory of the task: on a node alone (MPOL_BIND), there if it has any, or as the kernel does",
};
const LOAD: ParamInfo = ParamInfo {
    name: "load",
    expects: "a whole number from 0 to 100",
    default: "0",
    about: "for how many per cent of the time a task on each CPU is busy, in turns of 10 ms; 0 is none",
};
const SIZE: ParamInfo = ParamInfo {
    name: "size",
    expects: "a multiple of 2MiB from \"2MiB\" to \"1TiB\"",
    default: "256MiB",
    about: "the mapping",
};
const ROUNDS: ParamInfo = ParamInfo {
    name: "rounds",
    expects: "a whole number from 1 to 1000000",
    default: "500",
    about: "how often each phase goes through all pages of the mapping",
};
const HELD: ParamInfo = ParamInfo {
    name: "held",
    expects: "a whole number from 0 to 100",
    default: "0",
    about: "per cent of the mapping, from its beginning, that are pinned so that they cannot move",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "numa-probe",
    about: "one task and its memory on a busy machine: how long accesses take, and where both end",
    maps_memory: true,
    params: &[CPU, MEMORY, LOAD, SIZE, ROUNDS, HELD],
};

/// The entry of a process that loads a CPU.
pub(crate) const LOAD_ENTRY: &str = "numa-probe-load";

/// The period of a task that loads a CPU: it is busy once in each period. Assumed: two and a half ticks of a kernel with 250
/// ticks per second.
const TURN: Picos = Picos::from_micros(10_000);

/// Where something is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whereabouts {
    /// Wherever the kernel has it.
    Free,
    /// On a node and on no other.
    Bound(NodeId),
    /// On a node at first, or if it has room.
    Preferred(NodeId),
}

impl Whereabouts {
    fn parse(info: &ParamInfo, text: &str) -> Result<Self, ParamError> {
        if text == "free" {
            return Ok(Self::Free);
        }
        let bad = || value::<String>(info, text, |_| false).expect_err("nothing is accepted");
        let node = |text: &str| text.parse().ok().filter(|node| *node < 1024).map(NodeId).ok_or_else(bad);
        match text.strip_prefix("preferred-") {
            Some(preferred) => node(preferred).map(Self::Preferred),
            None => node(text).map(Self::Bound),
        }
    }

    /// As the names of cases have it, which stand in narrow columns.
    fn short(self) -> String {
        match self {
            Self::Free => "free".to_owned(),
            Self::Bound(node) => node.to_string(),
            Self::Preferred(node) => format!("pref{node}"),
        }
    }

    fn node(self) -> Option<NodeId> {
        match self {
            Self::Free => None,
            Self::Bound(node) | Self::Preferred(node) => Some(node),
        }
    }
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// CPUs of the task.
    pub cpu: Whereabouts,
    /// Memory of the task.
    pub memory: Whereabouts,
    /// Per cent of the time for which each CPU is busy besides.
    pub load: u32,
    /// The mapping.
    pub size: Bytes,
    /// Passes of a phase.
    pub rounds: u64,
    /// Per cent of the mapping that are pinned.
    pub held: u64,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let (cpu, memory) = (Whereabouts::Free, Whereabouts::Free);
        let mut params = Self { cpu, memory, load: 0, size: Bytes::mib(256), rounds: 500, held: 0 };
        for (name, text) in given {
            match name {
                "cpu" => params.cpu = Whereabouts::parse(&CPU, text)?,
                "memory" => params.memory = Whereabouts::parse(&MEMORY, text)?,
                "load" => params.load = value(&LOAD, text, |percent| *percent <= 100)?,
                "size" => params.size = parse_size(text)?,
                "rounds" => params.rounds = value(&ROUNDS, text, |n| (1..=1_000_000).contains(n))?,
                "held" => params.held = value(&HELD, text, |percent| *percent <= 100)?,
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// With room to align it.
    pub(crate) fn memory(&self) -> Bytes {
        self.size + Bytes::HUGE_PAGE
    }

    pub(crate) fn case(&self) -> String {
        let case = format!("cpu{},mem{},{}%", self.cpu.short(), self.memory.short(), self.load);
        if self.held == 0 { case } else { format!("{case},held{}%", self.held) }
    }

    /// Nodes that are not there, memory that a node does not have, and machines on which all is one place.
    pub(crate) fn misfit(&self, nodes: &[NumaNode]) -> Option<String> {
        let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
        let with_memory = || nodes.iter().filter(|node| node.has_memory());
        let memories = with_memory().count();
        if memories < 2 {
            return Some(format!(
                "numa-probe: nothing is near or far, and nothing can be balanced, with memory on {memories} node: expected two \
                 nodes with memory and more, as in --machine two-node-2g"
            ));
        }
        if let Some(lacking) = self.cpu.node().filter(|wanted| with_cpus().all(|node| node.id != *wanted)) {
            return Some(no_such_node(CPU.name, lacking, "CPUs", with_cpus()));
        }
        if let Some(lacking) = self.memory.node().filter(|wanted| !has_memory(nodes, *wanted)) {
            return Some(no_such_node(MEMORY.name, lacking, "memory", with_memory()));
        }
        let Whereabouts::Bound(bound) = self.memory else { return None };
        let room = nodes.iter().find(|node| node.id == bound).map_or(Bytes(0), |node| node.memory);
        let expected = format!("less than the {} MiB of node {bound}, to which memory binds it", room.as_mib());
        (self.memory() >= room).then(|| misfit(&SIZE, &expected, self.size))
    }

    /// The part of the mapping that is pinned, in whole pages.
    fn held(&self, mapping: VmRange) -> VmRange {
        mapping.part(Bytes(0), Bytes(self.size.0 / 100 * self.held / Bytes::PAGE.0 * Bytes::PAGE.0))
    }
}

/// The phases of the task, and its moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The phase of loads.
    pub read: Accessed,
    /// The phase of loads and stores.
    pub write: Accessed,
    /// Moves in both; none where the target does not say which CPU it is on.
    pub moves: Option<Moves>,
    /// The part of the CPUs that the tasks got which load them, in millionths of all; nothing where there are none.
    pub loaded: Option<u64>,
}

/// A task that loads a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// All load tasks and the measured task begin at this barrier; when it is cancelled, the load tasks end.
    gate: Barrier,
    /// Number of this load task, and the number of load tasks.
    nth: (u32, u32),
    percent: u32,
}

/// The time that a task which loads a CPU has had of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    used: Picos,
    /// The time since the task began.
    span: Picos,
}

/// Loads a CPU until there is no more use for it. Each begins its turns at another time than the others.
pub(crate) async fn load<O: Os>(os: O, load: Load) -> Result<Loaded, TaskError> {
    let busy = Picos(TURN.0 / 100 * u64::from(load.percent));
    os.arrive(load.gate).await?;
    os.sleep(Picos(TURN.0 / u64::from(load.nth.1) * u64::from(load.nth.0))).await;
    let used = os.rusage().await?;
    let from = os.now();
    let mut begun = from;
    while !os.is_cancelled(load.gate) {
        os.compute(busy).await;
        let next = begun + TURN;
        let now = os.now();
        if now < next {
            os.sleep(next.since(now)).await;
        }
        // A CPU that others wanted is not paid back later.
        begun = next.max(now);
    }
    let used = os.rusage().await?.since(&used);
    Ok(Loaded { used: used.user + used.system, span: os.now().since(from) })
}

/// Runs the task, with counters read around its two phases.
pub async fn run<O: Os>(os: O, params: Params) -> Result<Outcome, WorkloadError> {
    if params.held > 0 {
        can_pin(&os).await?;
    }
    let (tasks, window) = run_alone(&os, async move |os: &O, meet| work(os, &params, meet).await).await?;
    let mut unable = Vec::new();
    let mut lacks = |what: &str, reason: &str| {
        unable.push(Unable { what: what.to_owned(), reason: reason.to_owned() });
    };
    if tasks.iter().any(|task| task.places.is_none()) {
        lacks("places of memory", "the kernel does not show this process where its pages are, or which are huge");
    }
    let counted_by = tasks.iter().filter_map(|task| task.probe.as_ref()?.moves).map(|moves| moves.counted_by).next();
    match counted_by {
        None => lacks("task moves", "the kernel does not say which CPU a task is on (getcpu)"),
        Some(CountedBy::Task) => lacks(
            "moves there and back",
            "task moves are what the task sees itself, which looks where it is every 256 accesses (getcpu)",
        ),
        Some(CountedBy::Scheduler) => {}
    }
    Ok(window.outcome(tasks, unable))
}

/// Whether pages can be held at all, before anything is measured.
async fn can_pin<O: Os>(os: &O) -> Result<(), WorkloadError> {
    let refused = |errno: Errno| {
        let expected = "0 here, as the kernel pins no memory of this process";
        WorkloadError::Refused(format!("{}: {errno}", misfit(&HELD, expected, "more")))
    };
    let range = os.mmap(Bytes::PAGE, MapSpec::Anonymous).await.map_err(refused)?;
    let pinned = os.pin(range).await;
    os.munmap(range).await.map_err(refused)?;
    pinned.map_err(refused)
}

async fn work<O: Os>(os: &O, params: &Params, meet: Meet) -> Result<TaskOutcome, Errno> {
    let tasks = if params.load == 0 { 0 } else { os.cpus() };
    let gate = os.barrier(tasks + 1).await?;
    let load = |index| {
        let with = Load { gate, nth: (index, tasks), percent: params.load };
        os.spawn_process(Placement::Spread(index), LOAD_ENTRY, with)
    };
    let loads: Vec<_> = (0..tasks).map(load).collect();
    let measured = measure(os, params, meet, gate).await;
    os.cancel(gate).await;
    let loads = results(loads).await;
    let mut outcome = measured?;
    let loads: Vec<Loaded> = loads.map_err(|error| match TaskError::from(error) {
        TaskError::Call(errno) => errno,
        TaskError::Died(_) => Errno::CANCELED,
    })?;
    if let Some(probe) = &mut outcome.probe {
        let (used, span) =
            loads.iter().fold((0, 0), |(used, span), load| (used + load.used.as_nanos(), span + load.span.as_nanos()));
        probe.loaded = used.saturating_mul(1_000_000).checked_div(span);
    }
    Ok(outcome)
}

async fn measure<O: Os>(os: &O, params: &Params, meet: Meet, gate: Barrier) -> Result<TaskOutcome, Errno> {
    let nodes = os.nodes();
    bind(os, params, &nodes).await?;
    let whole = os.mmap(params.memory(), MapSpec::Anonymous).await?;
    let mapping = whole.aligned_part(Bytes::HUGE_PAGE, params.size);
    os.store(mapping, Bytes::PAGE).await?;
    if params.held > 0 {
        os.pin(params.held(mapping)).await?;
    }
    os.arrive(gate).await?;
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    let (used, before) = (os.rusage().await?, os.moves().await.ok());
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let rounds = Amount::Rounds(params.rounds);
    let read = os.access(mapping, Pattern::Random, rounds).await?;
    let write = os.access(mapping, Pattern::Update, rounds).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    let moves = match before {
        Some(before) => Some(os.moves().await?.since(&before)),
        None => None,
    };
    outcome.probe = Some(Probe { read, write, moves, loaded: None });
    os.arrive(meet.end).await?;
    os.arrive(meet.leave).await?;
    outcome.places = places(os, mapping).await?;
    os.munmap(whole).await?;
    Ok(outcome)
}

/// The task goes to its CPUs, and says where its memory is to be.
async fn bind<O: Os>(os: &O, params: &Params, nodes: &[NumaNode]) -> Result<(), Errno> {
    let of = |node: NodeId| nodes.iter().find(|known| known.id == node).map(|known| known.cpus.clone());
    if let Some(cpus) = params.cpu.node().and_then(of) {
        os.set_affinity(&cpus).await?;
    }
    if let Whereabouts::Preferred(_) = params.cpu {
        let all: Vec<CpuId> = nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        os.set_affinity(&all).await?;
    }
    match params.memory {
        // As whoever started it has it.
        Whereabouts::Free => Ok(()),
        Whereabouts::Bound(node) => os.set_mempolicy(&Mempolicy::Bind(vec![node])).await,
        Whereabouts::Preferred(node) => os.set_mempolicy(&Mempolicy::Preferred(node)).await,
    }
}

#[cfg(test)]
mod tests {
    use units::VirtAddr;

    use super::*;

    fn nodes(memories: &[u64]) -> Vec<NumaNode> {
        let node = |(id, mib): (u32, &u64)| NumaNode {
            id: NodeId(id),
            cpus: vec![CpuId(2 * id), CpuId(2 * id + 1)],
            memory: Bytes::mib(*mib),
            distance: Vec::new(),
        };
        (0..).zip(memories).map(node).collect()
    }

    fn params(given: &[(&'static str, &str)]) -> Params {
        Params::parse(given.iter().copied()).unwrap()
    }

    #[test]
    fn places_are_nodes_by_number() {
        let of = |text: &str| Whereabouts::parse(&CPU, text);
        assert_eq!(of("free"), Ok(Whereabouts::Free));
        assert_eq!(of("0"), Ok(Whereabouts::Bound(NodeId(0))));
        assert_eq!(of("preferred-1"), Ok(Whereabouts::Preferred(NodeId(1))));
        for bad in ["", "any", "-1", "preferred", "preferred-", "preferred-x", "9999"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, text) in
            [("load", "101"), ("load", "-1"), ("held", "101"), ("rounds", "0"), ("size", "3MiB"), ("cpus", "0")]
        {
            assert!(Params::parse([(name, text)]).is_err(), "{name} = {text}");
        }
        assert_eq!(params(&[("load", "60"), ("cpu", "1"), ("held", "5")]).case(), "cpu1,memfree,60%,held5%");
    }

    #[test]
    fn nodes_have_to_be_there_and_to_be_two() {
        let problem = |given: &[(&'static str, &str)], memories: &[u64]| params(given).misfit(&nodes(memories));
        assert_eq!(problem(&[("cpu", "1"), ("memory", "preferred-0")], &[1024, 1024]), None);
        let expected = "cpu: the machine has no node 2 with CPUs (nodes with CPUs: 0, 1)";
        assert_eq!(problem(&[("cpu", "2")], &[1024, 1024]).as_deref(), Some(expected));
        let expected = "memory: the machine has no node 2 with memory (nodes with memory: 0, 1)";
        assert_eq!(problem(&[("memory", "preferred-2")], &[1024, 1024, 0]).as_deref(), Some(expected));
        assert!(problem(&[], &[1024]).unwrap().contains("with memory on 1 node: expected two"));
        let small = problem(&[("memory", "1")], &[1024, 128]).unwrap();
        assert_eq!(small, "size: expected less than the 128 MiB of node 1, to which memory binds it, found 256MiB");
        assert_eq!(problem(&[("memory", "preferred-1")], &[1024, 128]), None, "the rest goes elsewhere");
    }

    #[test]
    fn a_part_of_the_mapping_is_held() {
        let mapping = VmRange { start: VirtAddr(0x20_0000), len: Bytes::mib(4) };
        let held = |percent| params(&[("size", "4MiB"), ("held", percent)]).held(mapping).len.0;
        assert_eq!((held("0"), held("100"), held("50")), (0, Bytes::mib(4).0 / 100 * 100 / 4096 * 4096, 2_093_056));
    }
}
