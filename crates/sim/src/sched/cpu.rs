//! A CPU as data: the task that it runs, its queue, and its prices.

use std::mem::offset_of;

use memory::{cost::Prices, tlb::Shootdowns};
use rules::variant::Variant;
use units::{CpuId, Picos, Time};

use super::{balancing::Balancing, wakes::Wakes};
use crate::{
    clock::Clock,
    ids::{KernelId, TaskId},
    runqueue::RunQueue,
    rwsem::Mode,
};

/// Work on a lock that a step leaves to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    /// The lock is free for others; the step still works for this time without it.
    Unlock { after: Picos },
    /// A writer becomes a reader and lets readers in.
    Downgrade,
}

/// A CPU: its clock, the task that it runs, and those that wait for it. The fields that every turn needs fill one cache
/// line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    pub(crate) clock: Time,
    pub(crate) running: Option<TaskId>,
    /// Another task shall run as soon as the step in progress ends (`TIF_NEED_RESCHED`).
    pub(super) need_resched: bool,
    /// The running task spins on a lock: nothing happens on the CPU until the lock is released.
    pub(crate) is_spinning: bool,
    /// The CPU stands in the one order.
    pub(super) is_ordered: bool,
    /// The CPU's core has other hardware threads.
    pub(super) has_siblings: bool,
    /// Interrupts of other CPUs to this one, for which its next step pays.
    pub(crate) asked: Shootdowns,
    /// The task and lock that the last step leaves to be released at its end.
    pub(crate) lets_go: Option<(TaskId, LetGo)>,
    pub(super) queue: RunQueue,
    /// The other hardware threads of the CPU's core.
    pub(super) siblings: Box<[CpuId]>,
    /// The next tick at which the running task may have had its share.
    pub(crate) next_tick: Time,
    /// The CPU to which this one's running task is to be pushed (`active_balance`, `push_cpu`).
    pub(super) push_to: Option<CpuId>,
    /// The task whose state is in the CPU's registers.
    pub(super) loaded: Option<TaskId>,
    pub(super) balancing: Balancing,
    /// The CPU's kernel.
    pub(crate) kernel: KernelId,
    /// The CPU is a guest's, and is busy in the host.
    pub(crate) stands: bool,
    /// Frames that a host without a kernel clears before the CPU goes on.
    pub(crate) host_clears: u64,
    /// Number of times that the CPU has to leave the guest before it goes on (`KVM_REQ_TLB_FLUSH`).
    pub(crate) kicks: u64,
    /// Tasks that the CPU's idle task has woken: interrupts come while that runs.
    pub(super) idle_wakes: Wakes,
}

const _: () = assert!(offset_of!(Cpu, queue) + RunQueue::WAITING <= 64);

impl Cpu {
    pub(crate) fn new(kernel: KernelId, rules: &Variant) -> Self {
        Self {
            kernel,
            clock: Time(0),
            running: None,
            queue: RunQueue::new(rules),
            loaded: None,
            push_to: None,
            need_resched: false,
            next_tick: Time(0),
            is_spinning: false,
            stands: false,
            host_clears: 0,
            kicks: 0,
            siblings: Box::default(),
            has_siblings: false,
            is_ordered: false,
            asked: Shootdowns::default(),
            lets_go: None,
            balancing: Balancing::default(),
            idle_wakes: Wakes::default(),
        }
    }

    /// The task that runs here, or ran here last.
    pub(crate) fn on_it(&self) -> Option<TaskId> {
        self.running.or(self.loaded)
    }

    /// Sets the other hardware threads of the CPU's core.
    pub(crate) fn share_core(&mut self, siblings: Box<[CpuId]>) {
        self.has_siblings = !siblings.is_empty();
        self.siblings = siblings;
    }

    /// Whether another CPU is a hardware thread of the same core.
    pub(super) fn shares_core(&self, other: CpuId) -> bool {
        self.siblings.contains(&other)
    }

    /// Whether the CPU has nothing to run.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// Number of tasks that the CPU runs or has waiting.
    pub(crate) fn tasks(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }

    /// Whether another task shall run as soon as the step in progress ends.
    #[inline]
    pub(crate) fn need_resched(&self) -> bool {
        self.need_resched
    }

    /// Whether a task waits for the CPU.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The task that the CPU goes on with, if no task waits and no other CPU has asked anything of it.
    #[inline]
    pub(crate) fn undisturbed(&self) -> Option<TaskId> {
        let is_disturbed = self.need_resched || self.has_waiting() || self.asked.rounds > 0 || self.kicks > 0;
        self.running.filter(|_| !is_disturbed)
    }

    /// Whether all that is left to do with the lock that the CPU's task holds is to release it as a reader.
    #[inline]
    pub(crate) fn is_between(&self, id: TaskId, holds: Option<Mode>) -> bool {
        match holds {
            None => self.lets_go.is_none(),
            Some(Mode::Read) => self.lets_go == Some((id, LetGo::Unlock { after: Picos(0) })),
            Some(Mode::Write) => false,
        }
    }

    /// Puts the CPU back into the order in the turn in which it was taken out: its task goes on.
    #[inline]
    pub(crate) fn stay(&mut self, id: CpuId, clock: &mut Clock) {
        debug_assert!(!self.is_ordered, "it was taken out");
        self.is_ordered = true;
        clock.ready(id, self.clock);
    }

    /// Puts the CPU into the order, if it has something to do.
    #[inline]
    pub(crate) fn ready(&mut self, id: CpuId, clock: &mut Clock) {
        if !self.is_idle() && !self.is_spinning && !self.stands && !self.is_ordered {
            self.is_ordered = true;
            clock.ready(id, self.clock);
        }
    }
}

/// Prices of operations: alone on a core, and while another hardware thread of it is busy.
#[derive(Clone, Debug)]
pub(crate) struct CpuPrices {
    pub(crate) alone: Prices,
    pub(crate) shared_core: Prices,
}

impl CpuPrices {
    /// The present prices of a CPU, whatever task runs there.
    #[inline]
    pub(crate) fn on(&self, cpus: &[Cpu], cpu: CpuId) -> &Prices {
        let here = &cpus[cpu.0 as usize];
        let is_busy = |sibling: &CpuId| cpus[sibling.0 as usize].running.is_some();
        if here.has_siblings && here.siblings.iter().any(is_busy) { &self.shared_core } else { &self.alone }
    }
}
