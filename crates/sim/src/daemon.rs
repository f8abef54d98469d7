//! Kernel threads: tasks without a user half. What they do is in `mm`, in the file named after each; when and where they do
//! it is decided here like for any task.

mod khugepaged;

use mm::{
    SpaceId,
    compact::kcompactd::CHECK_INTERVAL,
    khugepaged::ThpRequests,
    step::{Step, Wait},
};
use units::{CpuId, NodeId, Picos, Time};

use crate::{
    draw::{Draws, Purpose},
    kernel::KernelId,
    runqueue::{Enqueue, Nice},
    sched::Cpu,
    task::{Task, TaskId, TaskState},
    world::{World, rig::Stage},
};

/// Which kernel thread a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// The one that keeps memory of a node free.
    Kswapd(NodeId),
    /// The one that compacts a node's memory.
    Kcompactd(NodeId),
    /// The one that makes huge pages.
    Khugepaged,
    /// The one that allocates huge pages of a node for faults; by a rule.
    ThpThread(NodeId),
    /// The one that writes files to the disk.
    Flusher,
}

/// No process: kernel threads have no address space.
pub(crate) const NO_SPACE: SpaceId = SpaceId(u32::MAX);

impl World {
    /// Starts the threads of a kernel, asleep: `cpus` are those of each node (`kswapd_init`).
    pub(crate) fn start_daemons(&mut self, kernel: KernelId, cpus: Vec<(NodeId, Vec<CpuId>)>, draws: Draws) {
        for (node, cpus) in &cpus {
            let id = self.start_daemon(kernel, cpus.clone(), Daemon::Kswapd(*node), Nice::default());
            self.kernels[kernel].kswapds.insert(*node, id);
        }
        let flusher = self.start_daemon(kernel, Vec::new(), Daemon::Flusher, Nice::default());
        self.kernels[kernel].flusher = Some(flusher);
        for (node, cpus) in &cpus {
            let id = self.start_daemon(kernel, cpus.clone(), Daemon::Kcompactd(*node), Nice::default());
            self.kernels[kernel].kcompactds.insert(*node, id);
            if self.kernels[kernel].mm.is_proactive() {
                // They have been there since the machine came up.
                let phase = draws.below(CHECK_INTERVAL.0, node.0.into(), Purpose::CompactPhase, 0);
                self.arm_periodic(id, self.latest() + Picos(phase));
            }
        }
        // `set_user_nice(current, MAX_NICE)`; it may run anywhere.
        let khugepaged = self.start_daemon(kernel, Vec::new(), Daemon::Khugepaged, Nice::new(19));
        self.kernels[kernel].khugepaged = Some(khugepaged);
        if self.kernels[kernel].variant.thp_requests == ThpRequests::NodeThreads {
            // As nice as khugepaged, whose work it is, and on the CPUs of its node like other threads of nodes.
            for (node, cpus) in cpus {
                let id = self.start_daemon(kernel, cpus, Daemon::ThpThread(node), Nice::new(19));
                self.kernels[kernel].thp_threads.insert(node, id);
            }
        }
    }

    fn start_daemon(&mut self, kernel: KernelId, cpus: Vec<CpuId>, daemon: Daemon, nice: Nice) -> TaskId {
        let id = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
        let first = cpus.first().copied().unwrap_or(CpuId(0));
        let mut task = Task::new(first, cpus, (kernel, NO_SPACE), nice);
        task.state = TaskState::Asleep(daemon);
        self.tasks.push(task);
        id
    }

    /// Arms the timer of a kernel thread that looks around from time to time, unless nothing else will ever happen.
    fn arm_periodic(&mut self, id: TaskId, until: Time) {
        // Who spins for a lock waits for one of the others.
        let goes_on = |cpu: &Cpu| !cpu.is_spinning && cpu.running.is_some_and(|running| running != id);
        let runs = |cpu: &Cpu| cpu.has_waiting() || goes_on(cpu);
        if self.clock.timers() > self.periodic.len() || self.cpus.iter().any(runs) {
            self.tasks[id.0 as usize].sleeps_until = Some(until);
            if self.periodic.insert((until, id)) {
                self.clock.arm(until, id);
            }
        }
    }

    /// One step of a kernel thread.
    #[inline(never)]
    pub(crate) fn step_daemon(&mut self, id: TaskId, cpu: CpuId, daemon: Daemon) {
        let has_lock = match daemon {
            Daemon::Khugepaged => match self.lock_for_khugepaged(id, cpu) {
                Some(has_lock) => has_lock,
                None => return,
            },
            Daemon::Kswapd(_) | Daemon::Kcompactd(_) | Daemon::ThpThread(_) | Daemon::Flusher => false,
        };
        let step = self.take_step(id, cpu, |Stage { mm, spaces, .. }, cx| match daemon {
            Daemon::Kswapd(node) => mm.step_kswapd(spaces, cx, node),
            Daemon::Kcompactd(node) => mm.step_kcompactd(spaces, cx, node),
            Daemon::Khugepaged => mm.step_khugepaged(spaces, cx, has_lock),
            Daemon::ThpThread(node) => mm.step_thp_thread(spaces, cx, node),
            Daemon::Flusher => mm.step_flusher(spaces, cx),
        });
        if daemon == Daemon::Khugepaged {
            self.end_hold_of_khugepaged(id, cpu, matches!(step, Step::Block(_)));
        }
        match step {
            Step::More => {}
            Step::Block(wait) => self.sleep_daemon(id, daemon, wait),
            Step::Done(()) => unreachable!("a kernel thread has no end"),
        }
        self.end_of_step(id, cpu);
    }

    /// A kernel thread sleeps: until it is woken, or for a while.
    fn sleep_daemon(&mut self, id: TaskId, daemon: Daemon, wait: Wait) {
        let task = &mut self.tasks[id.0 as usize];
        task.state = TaskState::Asleep(daemon);
        task.sleeps_until = None;
        let kernel = &mut self.kernels[task.kernel];
        match (wait, daemon) {
            (Wait::Until(until), Daemon::Kcompactd(node)) if kernel.mm.is_kcompactd_idle(node) => {
                self.arm_periodic(id, until);
            }
            (Wait::Until(until), Daemon::Khugepaged) if kernel.mm.khugepaged.is_asleep() => {
                self.arm_periodic(id, until);
            }
            (Wait::Until(until), Daemon::ThpThread(node)) if kernel.mm.nodes()[node].thp_thread.is_idle() => {
                self.arm_periodic(id, until);
            }
            (Wait::Until(until), Daemon::Flusher) if kernel.mm.is_flusher_idle() => {
                self.arm_periodic(id, until);
            }
            (Wait::Until(until) | Wait::Io { until, .. }, _) => {
                // It may have come while the thread was on its way to wait.
                let until = until.max(self.cpus[task.cpu.0 as usize].clock);
                task.sleeps_until = Some(until);
                self.clock.arm(until, id);
            }
            (Wait::Folio(pfn), _) => kernel.folio_sleepers.push((pfn, id)),
            (Wait::Queue, _) => {}
        }
    }

    /// The timer of a kernel thread's sleep: one that was woken before, or sleeps anew, does not mind.
    pub(crate) fn daemon_timer(&mut self, id: TaskId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        self.periodic.remove(&(at, id));
        if task.sleeps_until == Some(at) {
            self.wake_daemon(id, at);
        }
    }

    /// After a step in a kernel: those of it whom the step has woken run from its end on.
    #[inline]
    pub(crate) fn wake_woken(&mut self, kernel: KernelId, at: Time) {
        if self.kernels[kernel].mm.has_news() {
            self.wake_all_woken(kernel, at);
        }
    }

    #[inline(never)]
    fn wake_all_woken(&mut self, id: KernelId, at: Time) {
        let kernel = &mut self.kernels[id];
        let mut woken = Vec::new();
        if kernel.mm.has_woken() {
            woken.extend(kernel.mm.take_woken().into_iter().map(|node| kernel.kswapds[&node]));
        }
        if kernel.mm.has_woken_kcompactds() {
            woken.extend(kernel.mm.take_woken_kcompactds().into_iter().map(|node| kernel.kcompactds[&node]));
        }
        if kernel.mm.take_woken_khugepaged() {
            woken.extend(kernel.khugepaged);
        }
        woken.extend(kernel.mm.take_woken_thp_threads().into_iter().filter_map(|node| kernel.thp_threads.get(&node)));
        for daemon in woken {
            self.wake_daemon(daemon, at);
        }
        if self.kernels[id].mm.has_oom_killed() {
            self.oom_kill(id, at);
        }
        if self.kernels[id].mm.take_flusher_woken()
            && let Some(flusher) = self.kernels[id].flusher
        {
            self.wake_daemon(flusher, at);
        }
        let kernel = &mut self.kernels[id];
        if kernel.mm.has_unlocked() {
            let unlocked = kernel.mm.take_unlocked();
            let sleepers = std::mem::take(&mut kernel.folio_sleepers);
            let (woken, rest): (Vec<_>, Vec<_>) = sleepers.into_iter().partition(|(pfn, _)| unlocked.contains(pfn));
            kernel.folio_sleepers = rest;
            for (_, id) in woken {
                match self.tasks[id.0 as usize].state {
                    TaskState::Sleeping(..) => self.end_sleep(id, at),
                    _ => self.wake_daemon(id, at),
                }
            }
        }
    }

    fn wake_daemon(&mut self, id: TaskId, at: Time) {
        let task = &mut self.tasks[id.0 as usize];
        if let TaskState::Asleep(daemon) = task.state {
            task.state = TaskState::Daemon(daemon);
            task.sleeps_until = None;
            self.wake(id, at, Enqueue::Woken);
        }
    }
}
