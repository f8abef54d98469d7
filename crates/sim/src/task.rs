//! Tasks: the kernel half is data, the user half a future that lives in the executor.
//!
//! Here are the data of a task, the requests of its user half (`handle.rs`, `executor.rs`), the operations that it can be inside
//! of (`operation.rs`), where it may run (`affinity.rs`), and its end (`oom.rs`); `programs.rs` has the tasks of a machine's
//! system. May use: the world, its clock and kernels, and the scheduler to wake a task. Begin with [`Task`] and [`TaskState`],
//! then follow one request: `handle.rs`, `World::submit`, `operation.rs`.

mod affinity;
pub(crate) mod executor;
pub(crate) mod handle;
pub(crate) mod layout;
mod oom;
pub(crate) mod operation;
pub(crate) mod programs;

use std::mem::offset_of;

use memory::{
    cost::{Cause, Spent},
    frame::SpaceId,
};
use mm::{
    file::page_cache::{FileAnswer, FileRequest},
    slow::Supply,
};
use os::{Accessed, Advice, Amount, Barrier, MapSpec, Mempolicy, Pattern, Runs, Rusage, VmRange};
use units::{Bytes, CpuId, Errno, NodeId, Picos, Time, Vpn};

use crate::{
    Times,
    ids::{KernelId, TaskId, Thread},
    runqueue::{Entity, Nice},
    rwsem::Mode,
    sched::{Distances, Wakes},
    task::operation::Operation,
};

/// The kernel half of a task. A step of a CPU needs four cache lines of it: the first two, and those in which its operation
/// begins.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Task {
    /// The CPU where the task runs, or ran last.
    pub(crate) cpu: CpuId,
    /// The task's kernel.
    pub(crate) kernel: KernelId,
    pub(crate) space: SpaceId,
    /// The address space whose mmap lock the task holds, or waits for: its own, except for kernel threads.
    pub(crate) lock_of: SpaceId,
    /// How the task holds that lock between two steps, if it does.
    pub(crate) holds: Option<Mode>,
    /// The task spins for the lock on its CPU.
    pub(crate) is_spinning: bool,
    /// The nice level with which the task's children begin.
    pub(crate) nice_of_children: Nice,
    /// The kernel is to end the task.
    pub(crate) is_dying: bool,
    /// The task's operation will leave mappings unchanged for some quanta yet.
    pub(crate) is_settled: bool,
    /// Another task has had the CPU since the task's last step.
    pub(crate) was_preempted: bool,
    /// The task's operation has left the fast path, and is open in the log of such operations.
    pub(crate) is_slow: bool,
    pub(crate) faults: u64,
    /// The slow path of the allocation that the task's operation has asked for.
    pub(crate) supply: Supply,
    /// The task's time since it began, by cause.
    pub(crate) spent: Spent,
    /// Number of its faults that needed a device.
    pub(crate) major_faults: u64,
    pub(crate) state: TaskState,
    /// When the timer of the task's sleep fires, if it has one.
    pub(crate) sleeps_until: Option<Time>,
    /// The reason for which the kernel ended the task, if it did.
    killed: Option<&'static str>,
    /// The scheduler's record of the task.
    pub(crate) entity: Entity,
    /// The task's record of the tasks that it has woken.
    pub(crate) wakes: Wakes,
    /// Since when the task waits for its CPU.
    pub(crate) runnable_since: Time,
    /// When the task began the operation under way, and the time that it had spent until then.
    pub(crate) asked: Option<(Time, Picos)>,
    /// Since when the task waits for the mmap lock.
    pub(crate) lock_since: Time,
    /// When the task stops spinning for the lock, unless it gets it before.
    pub(crate) spins_until: Option<Time>,
    /// The part of its time in which the task had no CPU.
    waited: Spent,
    /// Where it wants its memory.
    pub(crate) policy: rules::mempolicy::Mempolicy,
    /// The CPUs that the task may run on; empty where it may run on every CPU.
    pub(crate) allowed: Vec<CpuId>,
    /// Tasks that wait for the end of this one.
    pub(crate) joiners: Vec<TaskId>,
    /// The next tick at which NUMA balancing checks the task.
    pub(crate) numa_tick: Time,
    /// The CPU, on its preferred node, where the task is to go on.
    pub(crate) moves_to: Option<CpuId>,
    /// Moves of the task from CPU to CPU since it began.
    pub(crate) moves: Distances,
}

const _: () = assert!(offset_of!(Task, spent) == 64 && offset_of!(Task, state) == 256);

/// The state of a task.
#[derive(Clone, Debug)]
pub(crate) enum TaskState {
    /// The user half runs next.
    User,
    /// The task is inside an operation.
    Kernel(Operation),
    /// The task is inside an operation that waits for the lock of its address space.
    LockWait(Operation),
    /// The task is inside an operation that sleeps.
    Sleeping(Operation, Slumber),
    /// An operation ended; its user half has not taken the answer yet.
    Answered(Answer),
    /// The task waits for a timer, a barrier or another task.
    Blocked,
    /// The task is a kernel thread that has something to do.
    Daemon(Thread),
    /// The task is a kernel thread that sleeps.
    Asleep(Thread),
    /// The task is a kernel thread that waits for the lock of an address space.
    DaemonLockWait(Thread),
    /// The task has ended.
    Ended,
}

/// Since when an operation sleeps, and the cause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slumber {
    pub(crate) since: Time,
    pub(crate) cause: Cause,
}

/// The request of a user half.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Mmap(Bytes, MapSpec),
    Munmap(VmRange),
    Madvise(VmRange, Advice),
    Store(VmRange, Bytes),
    Load(VmRange, Bytes),
    Fill(VmRange),
    Access(Runs, Pattern, Amount),
    Hint(VmRange),
    NodeOf(VmRange),
    Pin(VmRange),
    Compute(Picos),
    SetMempolicy(Mempolicy),
    SetAffinity(Vec<CpuId>),
    File(FileRequest),
    Mincore(VmRange),
    Fork,
    Sleep(Picos),
    Arrive(Barrier),
    Join(TaskId),
    /// By a task that is a CPU of a guest: the next page that it has accessed there.
    AwaitGuest,
    /// By a task that gives back what a guest reports: the next block.
    AwaitReports,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Range(Result<VmRange, Errno>),
    Resident(Result<Vec<bool>, Errno>),
    Space(Result<SpaceId, Errno>),
    Unit(Result<(), Errno>),
    Accessed(Accessed),
    Nodes(Vec<Option<NodeId>>),
    File(Result<FileAnswer, Errno>),
}

impl Task {
    /// The page that comes next, of an operation that accesses pages in turn.
    pub(crate) fn page(&self) -> Option<Vpn> {
        self.operation().and_then(Operation::page)
    }

    /// The operation that the task is inside of, if there is one.
    pub(crate) fn operation(&self) -> Option<&Operation> {
        match &self.state {
            TaskState::Kernel(operation) | TaskState::LockWait(operation) | TaskState::Sleeping(operation, _) => {
                Some(operation)
            }
            _ => None,
        }
    }

    pub(crate) fn new(cpu: CpuId, allowed: Vec<CpuId>, (kernel, space): (KernelId, SpaceId), nice: Nice) -> Self {
        Self {
            cpu,
            kernel,
            allowed,
            policy: rules::mempolicy::Mempolicy::default(),
            entity: Entity::new(nice),
            wakes: Wakes::default(),
            nice_of_children: nice,
            is_dying: false,
            asked: None,
            runnable_since: Time(0),
            space,
            lock_of: space,
            state: TaskState::User,
            supply: Supply::default(),
            faults: 0,
            major_faults: 0,
            spent: Spent::default(),
            waited: Spent::default(),
            sleeps_until: None,
            lock_since: Time(0),
            is_spinning: false,
            spins_until: None,
            holds: None,
            is_settled: false,
            was_preempted: false,
            is_slow: false,
            killed: None,
            joiners: Vec::new(),
            numa_tick: Time(0),
            moves_to: None,
            moves: Distances::default(),
        }
    }

    /// Has the kernel end the task; the first reason counts.
    pub(crate) fn kill(&mut self, reason: &'static str) {
        self.is_dying = true;
        self.killed.get_or_insert(reason);
    }

    /// The reason for which the kernel ended the task, if it did.
    pub(crate) fn killed(&self) -> Option<&'static str> {
        self.killed
    }

    /// Whether the task waits for the lock of an address space.
    pub(crate) fn waits_for_lock(&self) -> bool {
        matches!(self.state, TaskState::LockWait(_) | TaskState::DaemonLockWait(_))
    }

    /// Whether the task may run on this CPU.
    pub(crate) fn may_run_on(&self, cpu: CpuId) -> bool {
        self.allowed.is_empty() || self.allowed.contains(&cpu)
    }

    /// Adds time for which the task had no CPU.
    pub(crate) fn wait(&mut self, from: Time, until: Time, cause: Cause) {
        let span = self.spin(from, until, cause);
        self.waited.add_on(cause, span);
    }

    /// Adds time for which the task had a CPU, but could not go on.
    pub(crate) fn spin(&mut self, from: Time, until: Time, cause: Cause) -> Picos {
        let span = until.max(from).since(from);
        self.spent.add_on(cause, span);
        span
    }

    /// The task's `getrusage`.
    pub(crate) fn rusage(&self) -> Rusage {
        // Memory of another node makes user code slower; the kernel's own work there is priced without that.
        let user = self.spent.on(Cause::User) + self.spent.on(Cause::RemoteMemory);
        Rusage {
            minor_faults: self.faults - self.major_faults,
            major_faults: self.major_faults,
            user,
            system: self.spent.total() - user - self.waited.total(),
        }
    }

    /// Time for which the task had a CPU (`sum_exec_runtime`).
    pub(crate) fn ran(&self) -> Picos {
        self.spent.total() - self.waited.total()
    }

    /// Adds the task's time to that of others.
    pub(crate) fn add_to(&self, times: &mut Times) {
        times.waiting.add(&self.waited);
        for (cause, span) in self.spent.by_cause() {
            times.cpu.add_on(cause, span - self.waited.on(cause));
        }
    }
}

/// A barrier and the tasks that wait at it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meeting {
    pub(crate) parties: u32,
    pub(crate) waiting: Vec<TaskId>,
    pub(crate) cancelled: bool,
    /// A number shared by the tasks of the barrier.
    pub(crate) count: u32,
}
