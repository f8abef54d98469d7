//! Tasks: the kernel half is data, the user half a future that lives in the executor.

use mm::cost::{Cause, Shootdowns, Spent};
use os::{Advice, Barrier, Rusage, VmRange};
use units::{Bytes, CpuId, Errno, Picos, Time};

use crate::{mmap_lock::Mode, operation::Operation};

/// Number of a task, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u32);

/// Number of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpaceId(pub(crate) u32);

/// The kernel half of a task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) cpu: CpuId,
    pub(crate) space: SpaceId,
    pub(crate) state: TaskState,
    pub(crate) faults: u64,
    pub(crate) spent: Spent,
    /// How it holds the lock of its address space between two steps, if it does.
    pub(crate) holds: Option<Mode>,
    /// Why the kernel ended it, if it did.
    pub(crate) killed: Option<&'static str>,
    /// Tasks that wait for this one's end.
    pub(crate) joiners: Vec<TaskId>,
}

/// What a task is doing.
#[derive(Clone, Debug)]
pub(crate) enum TaskState {
    /// Its user half runs next.
    User,
    /// It is inside an operation.
    Kernel(Operation),
    /// It is inside an operation that waits for the lock of its address space.
    LockWait(Operation),
    /// An operation ended; its user half has not taken the answer yet.
    Answered(Answer),
    /// It waits for a timer, a barrier or another task.
    Blocked,
    /// It has ended.
    Ended,
}

/// What a user half asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Mmap(Bytes),
    Munmap(VmRange),
    Madvise(VmRange, Advice),
    Store(VmRange, Bytes),
    Mincore(VmRange),
    Fork,
    Sleep(Picos),
    Arrive(Barrier),
    Join(TaskId),
}

/// What it gets.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Range(Result<VmRange, Errno>),
    Resident(Result<Vec<bool>, Errno>),
    Space(Result<SpaceId, Errno>),
    Unit(Result<(), Errno>),
}

impl Task {
    pub(crate) fn new(cpu: CpuId, space: SpaceId) -> Self {
        Self {
            cpu,
            space,
            state: TaskState::User,
            faults: 0,
            spent: Spent::default(),
            holds: None,
            killed: None,
            joiners: Vec::new(),
        }
    }

    /// What `getrusage` says of it.
    pub(crate) fn rusage(&self) -> Rusage {
        let user = self.spent.on(Cause::User);
        Rusage { minor_faults: self.faults, major_faults: 0, user, system: self.spent.total() - user }
    }
}

/// A barrier and those who wait at it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meeting {
    pub(crate) parties: u32,
    pub(crate) waiting: Vec<TaskId>,
    pub(crate) cancelled: bool,
}

/// A CPU: its clock, and the tasks that can run on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) clock: Time,
    /// In the order in which they became runnable; the first one runs. One at a time until it blocks: a scheduler with
    /// slices and weights comes with step 3.
    pub(crate) queue: std::collections::VecDeque<TaskId>,
    /// What other CPUs have interrupted it for; its next step pays.
    pub(crate) asked: Shootdowns,
}
