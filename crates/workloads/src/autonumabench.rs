//! autonumabench: four programs that write memory again and again, whose threads and pages begin on the wrong nodes.
//!
//! - numa01: two processes, each with a thread for every second CPU; all threads of a process write all of its buffer, together.
//! - numa01_threadlocal: the same, but after the first pass each thread writes its own part of the buffer.
//! - numa02: one process with a thread for each CPU; each writes its own part of a third as much memory.
//! - numa02_smt: numa02 with a thread for every second CPU.
//!
//! The threads of numa01 put the first pass on one node, the same for both processes, and then have no memory policy any more.
//! The first thread of numa02 writes all of the buffer before the others begin. So memory has to come to the threads, or they
//! to it. With `bind=hard` each has a node from the beginning, with `bind=inverse` the wrong one.
//! (Source of the programs: pholasek/autonuma-benchmark 1a6b2856, numa01.c and numa02.c, read for behaviour; mmtests runs them
//! in this order, each under time(1).)

use std::collections::BTreeMap;

use os::{Amount, Barrier, MapSpec, Mempolicy, NumaNode, Os, Placed, Placement, VmRange};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Errno, NodeId, Stores};

use crate::{
    During, Outcome, ParamError, ParamInfo, TaskOutcome, Unable, WorkloadError, WorkloadInfo,
    fault_storm::parse_size,
    meet::{TaskError, results},
    outcome::{streamed, streamed_since},
    params::value,
    vm_larger_than_a_node::places,
};

const PROGRAM: ParamInfo = ParamInfo {
    name: "program",
    expects: "\"all\", \"numa01\", \"numa01_threadlocal\", \"numa02\" or \"numa02_smt\"",
    default: "all",
    about: "which of the programs; all is one after the other",
};
const BIND: ParamInfo = ParamInfo {
    name: "bind",
    expects: "\"no\", \"hard\", \"inverse\" or \"interleave\"",
    default: "no",
    about: "threads and memory bound to nodes by hand, wrongly by hand, or memory of all nodes in turns",
};
const BUFFER: ParamInfo = ParamInfo {
    name: "size",
    expects: "\"auto\" or a size such as 3GiB, of at least a huge page for each thread",
    default: "auto",
    about: "buffer of each process of numa01, three of numa02's; auto is 3 GiB, or what two fit a small node",
};
const THREADS: ParamInfo = ParamInfo {
    name: "threads",
    expects: "\"auto\" or a whole number from 1 to 4096",
    default: "auto",
    about: "threads of each process of numa01; numa02 has twice as many; auto is one for every second CPU",
};
const ROUNDS: ParamInfo = ParamInfo {
    name: "rounds",
    expects: "a percentage from 1% to 1000%",
    default: "100%",
    about: "passes over memory, of those of the programs (50, 1000 and 800)",
};
const STORES: ParamInfo = ParamInfo {
    name: "stores",
    expects: "\"auto\", \"cached\", \"non-temporal\" or \"rep-stosb\"",
    default: "auto",
    about: "stores of bzero(3), which is all that the programs do; auto is what the C library of the time does",
};

/// The entry of `pagelab list workloads`.
pub const INFO: WorkloadInfo = WorkloadInfo {
    name: "autonumabench",
    about: "numa01, numa01_threadlocal, numa02 and numa02_smt: threads and memory that begin on the wrong nodes",
    maps_memory: true,
    params: &[PROGRAM, BIND, BUFFER, THREADS, ROUNDS, STORES],
};

/// The entry of a process of numa01 and numa02.
pub(crate) const PROCESS_ENTRY: &str = "autonumabench-process";

/// The buffer of numa01 (`SIZE`): a third of it is numa02's.
const SIZE: Bytes = Bytes::gib(3);

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Two processes, whose threads share a buffer.
    Numa01,
    /// Two processes, whose threads have parts of their own.
    Numa01ThreadLocal,
    /// One process with as many threads as CPUs.
    Numa02,
    /// One process with half as many.
    Numa02Smt,
}

impl Program {
    /// In the order in which mmtests runs them.
    pub const ALL: [Self; 4] = [Self::Numa01, Self::Numa01ThreadLocal, Self::Numa02, Self::Numa02Smt];

    /// The name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Numa01 => "numa01",
            Self::Numa01ThreadLocal => "numa01_threadlocal",
            Self::Numa02 => "numa02",
            Self::Numa02Smt => "numa02_smt",
        }
    }

    /// The label of mmtests' rows, spelt as it was up to 2018.
    pub fn label(self) -> &'static str {
        match self {
            Self::Numa01 => "NUMA01",
            Self::Numa01ThreadLocal => "NUMA01_THEADLOCAL",
            Self::Numa02 => "NUMA02",
            Self::Numa02Smt => "NUMA02_SMT",
        }
    }

    fn processes(self) -> u32 {
        match self {
            Self::Numa01 | Self::Numa01ThreadLocal => 2,
            Self::Numa02 | Self::Numa02Smt => 1,
        }
    }

    /// Passes of each thread after the first one of numa01, and of numa02 altogether.
    fn rounds(self) -> u64 {
        match self {
            Self::Numa01 => 50,
            Self::Numa01ThreadLocal => 1000,
            Self::Numa02 | Self::Numa02Smt => 800,
        }
    }
}

/// How threads and memory are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    /// Not at all, but for the first pass.
    No,
    /// Threads and their memory to the same nodes (`HARD_BIND`).
    Hard,
    /// Threads and their memory to different nodes (`INVERSE_BIND`).
    Inverse,
    /// Memory to all nodes in turns, threads to none (numactl --interleave).
    Interleave,
}

impl Bind {
    const NAMES: [(&'static str, Self); 4] =
        [("no", Self::No), ("hard", Self::Hard), ("inverse", Self::Inverse), ("interleave", Self::Interleave)];
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The programs, in their order.
    pub programs: Vec<Program>,
    /// How threads and memory are bound.
    pub bind: Bind,
    /// The buffer of a process of numa01; none is as the program has it, where two fit a node.
    pub size: Option<Bytes>,
    /// Threads of a process of numa01; none is one for every second CPU.
    pub threads: Option<u32>,
    /// Passes, in per cent.
    pub rounds: u32,
    /// Stores of every pass; none is as bzero(3) has them for a pass of that length.
    pub stores: Option<Stores>,
}

impl Params {
    pub(crate) fn parse<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self {
            programs: Program::ALL.to_vec(),
            bind: Bind::No,
            size: None,
            threads: None,
            rounds: 100,
            stores: None,
        };
        for (name, text) in given {
            match name {
                "program" if text == "all" => params.programs = Program::ALL.to_vec(),
                "program" => {
                    let found = Program::ALL.into_iter().find(|program| program.name() == text);
                    let bad = || value::<String>(&PROGRAM, text, |_| false).expect_err("nothing is accepted");
                    params.programs = vec![found.ok_or_else(bad)?];
                }
                "bind" => {
                    let found = Bind::NAMES.into_iter().find(|(name, _)| *name == text);
                    let bad = || value::<String>(&BIND, text, |_| false).expect_err("nothing is accepted");
                    params.bind = found.ok_or_else(bad)?.1;
                }
                "size" if text == "auto" => params.size = None,
                "size" => params.size = Some(parse_size(text)?),
                "threads" if text == "auto" => params.threads = None,
                "threads" => params.threads = Some(value(&THREADS, text, |n| (1..=4096).contains(n))?),
                "stores" if text == "auto" => params.stores = None,
                "stores" => {
                    let found = Stores::NAMES.into_iter().find(|(name, _)| *name == text);
                    let bad = || value::<String>(&STORES, text, |_| false).expect_err("nothing is accepted");
                    params.stores = Some(found.ok_or_else(bad)?.1);
                }
                "rounds" => {
                    let number = text.strip_suffix('%').unwrap_or("");
                    let bad = || value::<String>(&ROUNDS, text, |_| false).expect_err("nothing is accepted");
                    let percent = number.parse().ok().filter(|percent| (1..=1000).contains(percent));
                    params.rounds = percent.ok_or_else(bad)?;
                }
                _ => return Err(ParamError::UnknownParam { name: name.to_owned() }),
            }
        }
        Ok(params)
    }

    /// The buffer of one numa01 process on a node with `node` bytes: the buffers of two processes that begin there leave a
    /// quarter of it free.
    fn buffer(&self, node: Bytes) -> Bytes {
        let fits = Bytes(node.0 / 8 * 3 / Bytes::HUGE_PAGE.0 * Bytes::HUGE_PAGE.0);
        self.size.unwrap_or_else(|| SIZE.min(fits))
    }

    /// Of machines with two nodes, which have the largest ones.
    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        let processes = self.programs.iter().map(|program| program.processes()).max().expect("there is one");
        (self.buffer(Bytes(total.0 / 2)) + Bytes::PAGE) * u64::from(processes)
    }

    pub(crate) fn case(&self) -> String {
        let program = if self.programs.len() == 1 { self.programs[0].name() } else { "all" };
        let bind = Bind::NAMES.iter().find(|(_, bind)| *bind == self.bind).expect("each has a name").0;
        if self.bind == Bind::No { program.to_owned() } else { format!("{program}-{bind}") }
    }

    /// Memory and threads of one node have nowhere to go.
    pub(crate) fn misfit(&self, nodes: &[NumaNode]) -> Option<String> {
        let (cpus, memories) = (with_cpus(nodes).len(), with_memory(nodes).len());
        (cpus < 2 || memories < 2).then(|| {
            format!(
                "{}: nothing can be balanced on a machine with {memories} nodes with memory and {cpus} with CPUs: \
                 expected two and more of both, as in --machine two-node-2g",
                self.case()
            )
        })
    }

    fn process(&self, program: Program, nodes: &[NumaNode], cpus: u32, first: NodeId) -> Process {
        let least = nodes.iter().filter(|node| node.has_memory()).map(|node| node.memory).min();
        let buffer = self.buffer(least.unwrap_or(Bytes(0)));
        let half = self.threads.unwrap_or_else(|| (cpus / 2).max(1));
        let (threads, size) = match program {
            Program::Numa01 | Program::Numa01ThreadLocal => (half, buffer),
            Program::Numa02 => (2 * half, Bytes(buffer.0 / 3)),
            Program::Numa02Smt => (half, Bytes(buffer.0 / 3)),
        };
        let rounds = (program.rounds() * u64::from(self.rounds)).div_ceil(100);
        Process { program, bind: self.bind, index: 0, threads, size, rounds, first, stores: self.stores }
    }
}

fn with_cpus(nodes: &[NumaNode]) -> Vec<&NumaNode> {
    nodes.iter().filter(|node| !node.cpus.is_empty()).collect()
}

fn with_memory(nodes: &[NumaNode]) -> Vec<NodeId> {
    nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect()
}

/// A process of a program, as its starter tells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    program: Program,
    bind: Bind,
    /// The first one, or the second.
    index: u32,
    threads: u32,
    size: Bytes,
    rounds: u64,
    /// The node on which the first pass of numa01 puts all memory.
    first: NodeId,
    /// Stores of every pass; none is as bzero(3) has them.
    stores: Option<Stores>,
}

/// The CPUs and the memory policy of a thread; none is any CPU, and the default policy.
type Bound = (Option<Vec<CpuId>>, Option<Mempolicy>);

impl Process {
    /// Bytes between the starts of two threads' parts: they are equal, and not whole pages (21.3 MiB of numa02 with 48 threads).
    fn part(&self, whole: VmRange, thread: u32) -> VmRange {
        let each = self.size.0 / u64::from(self.threads);
        let page = |at: u64| at / Bytes::PAGE.0 * Bytes::PAGE.0;
        let (from, to) = (page(each * u64::from(thread)), page(each * u64::from(thread + 1)));
        whole.part(Bytes(from), Bytes(to - from))
    }

    /// Clears a range again and again; says with which stores, and how many bytes.
    async fn clear<O: Os>(&self, os: &O, range: VmRange, rounds: u64) -> Result<(Stores, Bytes), Errno> {
        let stores = self.stores.unwrap_or_else(|| os.bzero(range.len));
        os.access(range, stores.into(), Amount::Rounds(rounds)).await?;
        Ok((stores, range.len * rounds))
    }

    fn is_numa01(&self) -> bool {
        self.program.processes() == 2
    }

    /// A thread's CPUs and where its memory is to be, in its first pass where this is numa01.
    fn bound(&self, nodes: &[NumaNode], thread: u32) -> Bound {
        let (places, memories) = (with_cpus(nodes), with_memory(nodes));
        let cpus_of = |of: &[&NumaNode]| of.iter().flat_map(|node| node.cpus.iter().copied()).collect::<Vec<_>>();
        match (self.bind, self.is_numa01()) {
            (Bind::No, true) => (None, Some(Mempolicy::Bind(vec![self.first]))),
            (Bind::No, false) => (None, None),
            (Bind::Interleave, _) => (None, Some(Mempolicy::Interleave(memories))),
            (Bind::Hard | Bind::Inverse, true) => {
                let half = |second: bool, of: usize| if second { of / 2..of } else { 0..of / 2 };
                let (is_second, is_crossed) = (self.index == 1, self.bind == Bind::Inverse);
                let cpus = cpus_of(&places[half(is_second, places.len())]);
                // The second process is left as it is, by a slip of the program's.
                let memory = half(is_second || is_crossed, memories.len());
                (Some(cpus), Some(Mempolicy::Bind(memories[memory].to_vec())))
            }
            (Bind::Hard | Bind::Inverse, false) => {
                let each = (self.threads as usize / places.len()).max(1);
                let node = (thread as usize / each).min(places.len() - 1);
                let node = if self.bind == Bind::Inverse { places.len() - 1 - node } else { node };
                (Some(places[node].cpus.clone()), None)
            }
        }
    }
}

/// Runs the programs, one after the other.
pub async fn run<O: Os>(os: O, params: Params, seed: u64) -> Result<Outcome, WorkloadError> {
    let nodes = os.nodes();
    // The program takes the parity of time(2): one of the first two nodes.
    let first = with_memory(&nodes)[usize::from(seed.is_multiple_of(2))];
    let before = os.vmstat().await.during("vmstat")?;
    let start = os.now();
    let mut tasks = Vec::new();
    for program in &params.programs {
        tasks.push(run_program(&os, &params.process(*program, &nodes, os.cpus(), first)).await?);
    }
    let window = os.now().since(start);
    let counters = os.vmstat().await.during("vmstat")?.since(&before);
    let mut unable = Vec::new();
    if tasks.iter().any(|task| task.places.is_none()) {
        let reason = "the kernel does not show this process where its pages are, or which are huge";
        unable.push(Unable { what: "places of memory".to_owned(), reason: reason.to_owned() });
    }
    Ok(Outcome { tasks, counters, gauges: BTreeMap::new(), window, unable, cpus: None })
}

/// One program, as time(1) sees it: from its start to the end of its last process, with all that its threads used.
async fn run_program<O: Os>(os: &O, process: &Process) -> Result<TaskOutcome, WorkloadError> {
    let mut whole = TaskOutcome::starting(os.now(), os::Rusage::default());
    let before = streamed(os).await.during("streamed")?;
    let processes = (0..process.program.processes())
        .map(|index| os.spawn_process(Placement::Free, PROCESS_ENTRY, Process { index, ..process.clone() }));
    let done: Vec<TaskOutcome> = results(processes.collect()).await?;
    whole.end = os.now();
    whole.part = Some(process.program.label().to_owned());
    whole.streamed = streamed_since(os, before).await.during("streamed")?;
    let mut found: Option<Vec<Placed>> = Some(Vec::new());
    for one in done {
        whole.rusage.add(&one.rusage);
        one.wrote.iter().for_each(|wrote| add(&mut whole.wrote, *wrote));
        found = found.zip(one.places).map(|(known, new)| sum(known, &new));
    }
    whole.places = found;
    Ok(whole)
}

/// Adds what a pass wrote.
fn add(known: &mut Vec<(Stores, Bytes)>, (stores, bytes): (Stores, Bytes)) {
    match known.iter_mut().find(|one| one.0 == stores) {
        Some(one) => one.1 += bytes,
        None => known.push((stores, bytes)),
    }
}

fn sum(mut known: Vec<Placed>, new: &[Placed]) -> Vec<Placed> {
    for placed in new {
        match known.iter_mut().find(|one| (one.node, one.is_huge) == (placed.node, placed.is_huge)) {
            Some(one) => one.size += placed.size,
            None => known.push(*placed),
        }
    }
    known.sort_unstable();
    known
}

/// A process: maps its buffer, starts its threads and waits for them.
pub async fn process<O: Os>(os: O, process: Process) -> Result<TaskOutcome, TaskError> {
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    // malloc(3) maps a page more than the buffer, for its header: so both ends of the buffer lie within huge pages.
    let mapping = os.mmap(process.size + Bytes::PAGE, MapSpec::Anonymous).await?;
    let buffer = mapping.part(Bytes(0), process.size);
    if !process.is_numa01() {
        populate(&os, (&process, &mut outcome), buffer).await?;
    }
    let ready = os.barrier(process.threads).await?;
    let threads = (0..process.threads).map(|index| {
        let process = process.clone();
        os.spawn(Placement::Free, async move |os: O| {
            let outcome = thread(&os, &process, buffer, index, ready).await;
            if outcome.is_err() {
                os.cancel(ready).await;
            }
            outcome.map_err(TaskError::from)
        })
    });
    let threads = results(threads.collect()).await.map_err(TaskError::from)?;
    outcome.places = places(&os, buffer).await?;
    os.munmap(mapping).await?;
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    for thread in &threads {
        outcome.rusage.add(&thread.rusage);
        thread.wrote.iter().for_each(|wrote| add(&mut outcome.wrote, *wrote));
    }
    Ok(outcome)
}

/// The first pass of numa02 is its main thread's: a part for each node, which is bound to it only by hand.
async fn populate<O: Os>(
    os: &O,
    (process, outcome): (&Process, &mut TaskOutcome),
    buffer: VmRange,
) -> Result<(), Errno> {
    let memories = with_memory(&os.nodes());
    let each = process.size.0 / memories.len() as u64 / Bytes::PAGE.0 * Bytes::PAGE.0;
    for (at, node) in (0..).zip(&memories) {
        let rest = process.size.0 - each * at;
        let len = if at + 1 == memories.len() as u64 { rest } else { each };
        let policy = match process.bind {
            Bind::No => None,
            Bind::Hard | Bind::Inverse => Some(Mempolicy::Bind(vec![*node])),
            Bind::Interleave => Some(Mempolicy::Interleave(memories.clone())),
        };
        if let Some(policy) = policy {
            os.set_mempolicy(&policy).await?;
        }
        let wrote = process.clear(os, buffer.part(Bytes(each * at), Bytes(len)), 1).await?;
        add(&mut outcome.wrote, wrote);
    }
    if process.bind == Bind::No { Ok(()) } else { os.set_mempolicy(&Mempolicy::Local).await }
}

async fn thread<O: Os>(
    os: &O,
    process: &Process,
    buffer: VmRange,
    index: u32,
    ready: Barrier,
) -> Result<TaskOutcome, Errno> {
    let used = os.rusage().await?;
    let mut outcome = TaskOutcome::starting(os.now(), used);
    let (cpus, policy) = process.bound(&os.nodes(), index);
    if let Some(cpus) = cpus {
        os.set_affinity(&cpus).await?;
    }
    let own = process.part(buffer, index);
    if process.is_numa01() {
        if let Some(policy) = &policy {
            os.set_mempolicy(policy).await?;
        }
        add(&mut outcome.wrote, process.clear(os, buffer, 1).await?);
        if process.bind == Bind::No {
            os.set_mempolicy(&Mempolicy::Local).await?;
        }
    } else {
        os.arrive(ready).await?;
    }
    let range = if process.program == Program::Numa01 { buffer } else { own };
    add(&mut outcome.wrote, process.clear(os, range, process.rounds).await?);
    outcome.end = os.now();
    outcome.rusage = os.rusage().await?.since(&used);
    Ok(outcome)
}

#[cfg(test)]
pub(crate) mod tests {
    use units::VirtAddr;

    use super::*;

    /// A number of nodes with 12 CPUs each, each with `gib` GiB.
    pub(crate) fn nodes(nodes: u32, gib: u64) -> Vec<NumaNode> {
        let node = |id: u32| NumaNode {
            id: NodeId(id),
            cpus: (id * 12..id * 12 + 12).map(CpuId).collect(),
            memory: Bytes::gib(gib),
            distance: Vec::new(),
        };
        (0..nodes).map(node).collect()
    }

    fn of(given: &[(&'static str, &str)], program: Program) -> Process {
        let params = Params::parse(given.iter().copied()).unwrap();
        params.process(program, &nodes(4, 16), 48, NodeId(1))
    }

    #[test]
    fn programs_are_as_large_as_they_were_on_48_cpus() {
        let all = Program::ALL.map(|program| of(&[], program));
        assert_eq!(all.each_ref().map(|one| one.threads), [24, 24, 48, 24]);
        assert_eq!(all.each_ref().map(|one| one.rounds), [50, 1000, 800, 800]);
        assert_eq!(all.each_ref().map(|one| one.size), [3, 3, 1, 1].map(Bytes::gib));
        let whole = VmRange { start: VirtAddr(0x20_0000), len: Bytes::gib(1) };
        let parts: Vec<VmRange> = (0..48).map(|thread| all[2].part(whole, thread)).collect();
        assert_eq!(parts[0].len.as_mib(), 21, "21.3 MiB, so that some huge pages have two owners");
        assert!(parts.windows(2).all(|two| two[0].start.0 + two[0].len.0 == two[1].start.0));
        let small = Params::parse([("rounds", "5%")]).unwrap().process(Program::Numa01, &nodes(2, 1), 4, NodeId(0));
        assert_eq!((small.threads, small.size.as_mib(), small.rounds), (2, 384, 3));
    }

    #[test]
    fn hands_bind_threads_to_their_memory_or_away_from_it() {
        let four = nodes(4, 16);
        let bound = |bind, program, index, thread| {
            let process = Process { index, ..of(&[("bind", bind)], program) };
            let (cpus, policy) = process.bound(&four, thread);
            (cpus.map(|cpus| cpus[0].0 / 12), policy)
        };
        let bind = |nodes: &[u32]| Some(Mempolicy::Bind(nodes.iter().copied().map(NodeId).collect()));
        assert_eq!(bound("no", Program::Numa01, 1, 0), (None, bind(&[1])), "all memory on the one node");
        assert_eq!(bound("hard", Program::Numa01, 0, 0), (Some(0), bind(&[0, 1])));
        assert_eq!(bound("hard", Program::Numa01, 1, 0), (Some(2), bind(&[2, 3])));
        assert_eq!(bound("inverse", Program::Numa01, 0, 0), (Some(0), bind(&[2, 3])));
        assert_eq!(bound("inverse", Program::Numa01, 1, 0), (Some(2), bind(&[2, 3])), "as the program's slip has it");
        assert_eq!(bound("hard", Program::Numa02, 0, 47), (Some(3), None));
        assert_eq!(bound("inverse", Program::Numa02, 0, 47), (Some(0), None));
    }

    #[test]
    fn a_machine_of_one_node_has_nothing_to_balance() {
        let problem = Params::parse([]).unwrap().misfit(&nodes(1, 4)).unwrap();
        assert!(problem.starts_with("all: nothing can be balanced"), "{problem}");
        assert_eq!(Params::parse([]).unwrap().misfit(&nodes(2, 4)), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, text) in [
            ("program", "numa03"),
            ("bind", "soft"),
            ("size", "3"),
            ("threads", "0"),
            ("rounds", "5"),
            ("rounds", "0%"),
            ("stores", "fast"),
            ("passes", "5"),
        ] {
            assert!(Params::parse([(name, text)]).is_err(), "{name} = {text}");
        }
        let case = |given: &[(&'static str, &str)]| Params::parse(given.iter().copied()).unwrap().case();
        assert_eq!(case(&[]), "all");
        assert_eq!(case(&[("program", "numa02_smt"), ("bind", "hard")]), "numa02_smt-hard");
    }
}
