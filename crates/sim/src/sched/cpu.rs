//! A CPU as data: what it runs, who waits for it, and its prices.

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

/// Work that a step leaves to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    /// The lock is free for others; the step goes on without it for so long.
    Unlock { after: Picos },
    /// A writer lets readers in.
    Downgrade,
}

/// A CPU: its clock, the task that it runs, and those that wait for it. What every turn needs is one line of cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    pub(crate) clock: Time,
    pub(crate) running: Option<TaskId>,
    /// Another task shall run as soon as the step in progress ends (`TIF_NEED_RESCHED`).
    pub(super) need_resched: bool,
    /// The running task spins on a lock: nothing happens here until somebody lets go of it.
    pub(crate) is_spinning: bool,
    /// The CPU stands in the one order.
    pub(super) is_ordered: bool,
    /// The CPU's core has other hardware threads.
    pub(super) has_siblings: bool,
    /// Interrupts of other CPUs to this one; its next step pays.
    pub(crate) asked: Shootdowns,
    /// The lock of a task that its last step leaves to be let go, at the end of the step.
    pub(crate) lets_go: Option<(TaskId, LetGo)>,
    pub(super) queue: RunQueue,
    /// The other hardware threads of its core.
    pub(super) siblings: Box<[CpuId]>,
    /// The next tick at which the running task may have had its share.
    pub(crate) next_tick: Time,
    /// The task whose state is in its registers.
    pub(super) loaded: Option<TaskId>,
    pub(super) balancing: Balancing,
    /// The CPU's kernel.
    pub(crate) kernel: KernelId,
    /// The CPU is a guest's, and is busy in the host.
    pub(crate) stands: bool,
    /// Frames that a host without a kernel clears before the CPU goes on.
    pub(crate) host_clears: u64,
    /// How often it has to leave the guest before it goes on (`KVM_REQ_TLB_FLUSH`).
    pub(crate) kicks: u64,
    /// Whom its idle task has woken: interrupts come while that runs.
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

    /// The CPU's core has these other hardware threads.
    pub(crate) fn share_core(&mut self, siblings: Box<[CpuId]>) {
        self.has_siblings = !siblings.is_empty();
        self.siblings = siblings;
    }

    /// Is that one another hardware thread of its core?
    pub(super) fn shares_core(&self, other: CpuId) -> bool {
        self.siblings.contains(&other)
    }

    /// Is there nothing to run?
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// How many tasks it runs or has waiting.
    pub(crate) fn tasks(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }

    /// Shall somebody else run as soon as the step in progress ends?
    #[inline]
    pub(crate) fn need_resched(&self) -> bool {
        self.need_resched
    }

    /// Does anybody wait for it?
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The task that it goes on with, where nobody waits and nobody has asked anything of it.
    #[inline]
    pub(crate) fn undisturbed(&self) -> Option<TaskId> {
        let is_disturbed = self.need_resched || self.has_waiting() || self.asked.rounds > 0 || self.kicks > 0;
        self.running.filter(|_| !is_disturbed)
    }

    /// Has it nothing left to do with the lock that its task holds like this, but to let go of it as a reader?
    #[inline]
    pub(crate) fn is_between(&self, id: TaskId, holds: Option<Mode>) -> bool {
        match holds {
            None => self.lets_go.is_none(),
            Some(Mode::Read) => self.lets_go == Some((id, LetGo::Unlock { after: Picos(0) })),
            Some(Mode::Write) => false,
        }
    }

    /// Puts it back into the one order in the turn in which it was taken out: its task goes on.
    #[inline]
    pub(crate) fn stay(&mut self, id: CpuId, clock: &mut Clock) {
        debug_assert!(!self.is_ordered, "it was taken out");
        self.is_ordered = true;
        clock.ready(id, self.clock);
    }

    /// Puts it into the one order, if it has something to do.
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
    /// Those of a CPU now, whoever runs there.
    #[inline]
    pub(crate) fn on(&self, cpus: &[Cpu], cpu: CpuId) -> &Prices {
        let here = &cpus[cpu.0 as usize];
        let is_busy = |sibling: &CpuId| cpus[sibling.0 as usize].running.is_some();
        if here.has_siblings && here.siblings.iter().any(is_busy) { &self.shared_core } else { &self.alone }
    }
}
