//! The plan of a service: what its file says, with names found and values checked.

use os::NumaNode;
use serde::{Deserialize, Serialize};
use units::{Bytes, Picos};

use crate::{block::Size, conditions::Policy};

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The name of its file.
    pub name: String,
    /// All processes, in the order of the file.
    pub processes: Vec<Process>,
    /// Counters are read from the end of this phase on, not from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Event>,
}

/// A process of a service, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The name of the process.
    pub name: String,
    /// Processes that are alike, above 0.
    pub copies: u32,
    /// Threads of each, above 0.
    pub threads: u32,
    /// When it begins to work, from the start of the run or from `after` on.
    pub start: Picos,
    /// Another phase has to be over before it begins to work.
    pub after: Option<Event>,
    /// Where its threads run.
    pub cpus: Cpus,
    /// Where its memory shall be.
    pub policy: Policy,
    /// The advice that it gives about memory it allocates (madvise(2)).
    pub thp: Advising,
    /// The nice level of all threads; 0 is the usual one.
    pub nice: i8,
    /// All phases, in the order of the file.
    pub phases: Vec<Phase>,
}

/// Where the threads of a process run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// Where the scheduler puts them.
    #[default]
    Free,
    /// Thread i of the process on CPU i, modulo CPUs.
    Spread,
    /// On these.
    These(Vec<u32>),
}

/// Advice about huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advising {
    /// None: the machine's settings decide.
    #[default]
    Default,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    Base,
}

/// The end of a phase, of all copies of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Index of the process.
    pub process: u32,
    /// Index of the phase.
    pub phase: u32,
}

/// How often operations come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    /// Operations a second, in thousandths.
    Operations(u64),
    /// Bytes a second.
    Bytes(u64),
}

/// How long a phase goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Until it has done its work this often.
    Times(u64),
    /// For a time.
    Time(Picos),
    /// Until all copies of the process of this index have ended.
    Ended(u32),
}

/// When the operations of a phase come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Operations come at this rate, of the process; else each comes when the one before is done.
    pub rate: Option<Rate>,
    /// Bytes of an operation.
    pub block: Bytes,
    /// When the phase ends.
    pub until: Until,
}

/// A phase of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The name of the phase.
    pub name: String,
    /// Another phase has to be over before it begins.
    pub after: Option<Event>,
    /// The time after which it runs again, beside the phase before it.
    pub every: Option<Picos>,
    /// Whether it runs beside the phase before it, once, by a thread of its own.
    pub beside: bool,
    /// When its operations come.
    pub requests: Requests,
    /// The latency of its operations is shown.
    pub measured: bool,
    /// The operation that it repeats.
    pub action: Action,
}

/// The operation of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Maps anonymous memory and stores into each page of it.
    Allocate {
        /// Bytes of the process.
        size: Size,
        /// Sizes of the pieces that are given back and taken anew, where they are not blocks.
        pieces: Vec<PieceClass>,
        /// Memory is given back after this time; without one it stays.
        hold: Option<Picos>,
        /// All bytes are written (memset(3)), and not one of each page.
        fill: bool,
    },
    /// Gives memory of the process back.
    Free(Freed),
    /// Accesses memory of the process.
    Access(Access),
    /// Reads a file.
    Read {
        /// Bytes that are read.
        size: Size,
        /// Bytes of the file, which is read again from its begin on where it is smaller.
        file: Size,
        /// In no order.
        random: bool,
        /// The file is written to its disk before the start; else it is a hole.
        written: bool,
        /// Through a mapping and not by read(2).
        mapped: bool,
    },
    /// Writes files.
    Write {
        /// Bytes that are written.
        size: Size,
        /// Bytes of each file; one file where there are none.
        file: Option<Bytes>,
        /// Each file is on its disk before another file begins (fsync(2)).
        sync: bool,
        /// Files are removed when the phase is over.
        remove: bool,
    },
    /// Copies the process; the child reads its memory and writes it to a file.
    Fork(Child),
    /// Starts a program, and waits for its end.
    Exec(Exec),
    /// Does nothing for a time.
    Sleep(Picos),
    /// Uses a CPU for a time.
    Compute(Picos),
    /// Maps memory that a device has, so that nothing moves it.
    Pin(Pinning),
    /// Drops the machine's clean caches.
    Drop,
    /// Gives advice about all memory of the process.
    Madvise(Advising),
}

/// A class of pieces of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PieceClass {
    /// Bytes of a piece, in whole pages.
    pub size: Bytes,
    /// The part of this class among all, by weight.
    pub weight: u32,
    /// The mean life of a piece, where pieces are replaced.
    pub lifetime: Option<Picos>,
}

/// How memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freed {
    /// The part of the memory of the process, in millionths.
    pub part: u32,
    /// In holes of a block each, evenly over all of it; else from the last mapping backwards.
    pub holes: bool,
    /// The mapping stays, its pages go (`MADV_DONTNEED`).
    pub keeps_mapping: bool,
}

/// Accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// To memory that the phase of this index allocated; to all of the process where there is none.
    pub of: Option<u32>,
    /// Where they go.
    pub pattern: Share,
    /// Part that stores, in millionths.
    pub writes: u32,
    /// Part of the memory that is given back and taken anew in a second, in millionths.
    pub churn: u32,
}

/// Where accesses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// One block after the other.
    Sequential,
    /// Each block as often as any other.
    Uniform,
    /// The n-th most frequent block n^-s as often as the first; the exponent s in thousandths.
    Zipf(u32),
    /// A part of the blocks gets most accesses, and another part later.
    Hot {
        /// That part of the memory, in millionths.
        part: u32,
        /// The part of the accesses that go there, in millionths.
        accesses: u32,
        /// The time after which another part becomes hot.
        moves: Option<Picos>,
    },
}

/// The work of a fork's child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Child {
    /// The child writes memory to a file, which takes the place of an earlier file.
    pub writes: bool,
}

/// A program that is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Memory that it allocates.
    pub size: Bytes,
    /// CPU time that it uses.
    pub compute: Picos,
    /// Bytes that it writes, in files of `file` bytes.
    pub writes: Bytes,
    /// Bytes of each of its files.
    pub file: Bytes,
}

/// Memory that is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinning {
    /// Bytes of the process.
    pub size: Size,
}

/// The sum of two sizes, which stops at the largest: a file may ask for more than there is.
pub(super) fn added(one: Bytes, other: Bytes) -> Bytes {
    Bytes(one.0.saturating_add(other.0))
}

/// A size times a number, which stops at the largest.
pub(super) fn times(bytes: Bytes, count: u64) -> Bytes {
    Bytes(bytes.0.saturating_mul(count))
}

impl Process {
    /// Threads that share the work of a phase; some work is one thing, which one thread does.
    pub(super) fn threads_of(&self, phase: &Phase) -> u32 {
        match phase.action {
            Action::Allocate { .. }
            | Action::Access(_)
            | Action::Read { .. }
            | Action::Write { .. }
            | Action::Exec(_)
            | Action::Compute(_)
                if !phase.is_beside() =>
            {
                self.threads
            }
            _ => 1,
        }
    }

    /// Memory that a copy has mapped at once, at most.
    pub(crate) fn memory(&self, total: Bytes) -> Bytes {
        let mut held = Bytes(0);
        let mut most = Bytes(0);
        for phase in &self.phases {
            let (stays, goes) = phase.memory(total);
            held = added(held, stays);
            most = most.max(added(held, goes));
        }
        most
    }

    /// Bytes of the files that a copy makes.
    pub(crate) fn files(&self, total: Bytes) -> Bytes {
        let child = |phase: &Phase| match phase.action {
            // The old file and the new one.
            Action::Fork(Child { writes: true }) => times(self.memory(total), 2),
            _ => phase.files(total),
        };
        self.phases.iter().map(child).fold(Bytes(0), added)
    }
}

impl Phase {
    /// Whether it runs while another one does.
    pub fn is_beside(&self) -> bool {
        self.beside || self.every.is_some()
    }

    /// Memory that one call of mmap(2) asks for, where `threads` threads share the phase.
    fn mapping(&self, total: Bytes, threads: u32) -> Bytes {
        match &self.action {
            Action::Allocate { size, .. } => Bytes(size.of(total).0 / u64::from(threads)),
            Action::Pin(pinning) => pinning.size.of(total),
            Action::Exec(exec) => exec.size,
            _ => Bytes(0),
        }
    }

    /// Memory that it maps: what stays, and what is given back at its end.
    fn memory(&self, total: Bytes) -> (Bytes, Bytes) {
        match &self.action {
            Action::Allocate { size, hold: None, .. } => (self.times_of(size.of(total)), Bytes(0)),
            Action::Allocate { size, hold: Some(_), .. } => (Bytes(0), size.of(total)),
            Action::Pin(pinning) => (self.times_of(pinning.size.of(total)), Bytes(0)),
            Action::Exec(exec) => (Bytes(0), exec.size),
            _ => (Bytes(0), Bytes(0)),
        }
    }

    fn files(&self, total: Bytes) -> Bytes {
        match &self.action {
            Action::Read { file, .. } => file.of(total),
            Action::Write { size, .. } => self.times_of(size.of(total)),
            Action::Exec(exec) => self.times_of(exec.writes),
            _ => Bytes(0),
        }
    }

    /// Bytes of all its repetitions, where their number is known.
    fn times_of(&self, bytes: Bytes) -> Bytes {
        match self.requests.until {
            Until::Times(count) => times(bytes, count),
            Until::Time(_) | Until::Ended(_) => bytes,
        }
    }
}

impl Service {
    /// Ends of phases that somebody waits for, some of them more than once.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        let of_phases = |process: &Process| process.phases.iter().filter_map(|phase| phase.after).collect::<Vec<_>>();
        let of_process = move |process: &Process| process.after.into_iter().chain(of_phases(process));
        self.processes.iter().flat_map(of_process).chain(self.from)
    }

    /// Why it cannot run on these nodes: a policy or a CPU that there is not.
    pub(crate) fn misfit(&self, nodes: &[NumaNode]) -> Option<String> {
        let cpus: u32 = nodes.iter().map(|node| node.cpus.len()).sum::<usize>().try_into().expect("few CPUs");
        self.processes.iter().find_map(|process| {
            let lacking = match &process.cpus {
                Cpus::These(these) => these.iter().find(|cpu| **cpu >= cpus),
                Cpus::Free | Cpus::Spread => None,
            };
            let cpu = lacking.map(|cpu| format!("cpus: expected CPUs from 0 to {}, found {cpu}", cpus - 1));
            let problem = cpu.or_else(|| process.policy.misfit(nodes))?;
            Some(format!("process {}: {problem}", process.name))
        })
    }

    /// The phase that asks for most memory in one call of mmap(2), with its process, and how much that is.
    pub fn largest_mapping(&self, total: Bytes) -> Option<(String, Bytes)> {
        let of_phase = |process: &Process, phase: &Phase| {
            let name = format!("{}.{}", process.name, phase.name);
            (name, phase.mapping(total, process.threads_of(phase)))
        };
        let of_process =
            |process: &Process| process.phases.iter().map(|phase| of_phase(process, phase)).collect::<Vec<_>>();
        self.processes.iter().flat_map(of_process).max_by_key(|(_, size)| *size)
    }

    /// Whether its work is a fixed number of operations, whatever the kernel does.
    pub(crate) fn is_fixed(&self) -> bool {
        let fixed = |phase: &Phase| matches!(phase.requests.until, Until::Times(_)) || phase.requests.rate.is_some();
        self.processes.iter().flat_map(|process| &process.phases).all(fixed)
    }

    /// Whether a process reads a file.
    pub(super) fn reads(&self) -> bool {
        let reads = |phase: &Phase| matches!(phase.action, Action::Read { .. });
        self.processes.iter().flat_map(|process| &process.phases).any(reads)
    }
}
