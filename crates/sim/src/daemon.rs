//! Kernel threads: tasks without a user half. Their work is in `mm`, in the file named after each thread; here is decided
//! when and where they run, as for any task.

mod lock;

use memory::{
    news::{Daemon, News},
    step::{Step, Wait},
};
use mm::whole::daemon::{Row, Scope};
use units::{CpuId, NodeId, Pfn, Picos, Time};

use crate::{
    draw::{Draws, Purpose},
    ids::{KernelId, NO_SPACE, TaskId, Thread},
    runqueue::{Enqueue, Nice},
    sched::Cpu,
    task::{Task, TaskState},
    world::{World, rig::Stage},
};

/// Time between the timers of two CPUs (`round_jiffies_common`): three ticks of CONFIG_HZ=250.
const SKEW: Picos = Picos::from_micros(3 * 4000);

/// The places of threads with this scope: a node and CPUs for each; no CPUs means all.
fn places(scope: Scope, nodes: &[(NodeId, Vec<CpuId>)]) -> Vec<(NodeId, Vec<CpuId>)> {
    match scope {
        Scope::Node => nodes.to_vec(),
        Scope::Cpu => nodes.iter().flat_map(|(node, cpus)| cpus.iter().map(|cpu| (*node, vec![*cpu]))).collect(),
        Scope::Machine => vec![(NodeId(0), Vec::new())],
    }
}

impl World {
    /// Starts the threads of a kernel, asleep: `nodes` are its nodes with the CPUs of each (`kswapd_init` and so on).
    pub(crate) fn start_daemons(&mut self, kernel: KernelId, nodes: &[(NodeId, Vec<CpuId>)], draws: Draws) {
        for daemon in Daemon::ALL {
            let row = Row::of(*daemon);
            if !(row.exists)(&self.kernels[kernel].mm) {
                continue;
            }
            for (place, (node, cpus)) in (0_u64..).zip(places(row.scope, nodes)) {
                let id = self.start_daemon(kernel, cpus, Thread { daemon: *daemon, node });
                if let Some(period) = (row.period)(&self.kernels[kernel].mm) {
                    // Their timers have run since boot. (Each kind of thread draws for itself; kcompactd was the first.)
                    let n = (*daemon as u64) ^ (Daemon::Kcompactd as u64);
                    let phase = |who: u64| draws.below(period.0, who, Purpose::CompactPhase, n);
                    let first = match row.scope {
                        Scope::Cpu => (phase(0) + SKEW.0 * place) % period.0,
                        Scope::Node | Scope::Machine => phase(node.0.into()),
                    };
                    self.arm_periodic(id, self.latest() + Picos(first));
                }
            }
        }
    }

    fn start_daemon(&mut self, kernel: KernelId, cpus: Vec<CpuId>, thread: Thread) -> TaskId {
        let id = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
        let anywhere = || self.kernels[kernel].cpu_ids().next().expect("a kernel has CPUs");
        let first = cpus.first().copied().unwrap_or_else(anywhere);
        let nice = Nice::new(Row::of(thread.daemon).nice);
        let mut task = Task::new(first, cpus, (kernel, NO_SPACE), nice);
        task.state = TaskState::Asleep(thread);
        self.tasks.push(task);
        self.kernels[kernel].daemons.push((thread, id));
        id
    }

    /// Arms the timer of a kernel thread that wakes up from time to time, unless nothing else will ever happen.
    fn arm_periodic(&mut self, id: TaskId, until: Time) {
        if self.others_happen(id) {
            self.tasks[id.0 as usize].sleeps_until = Some(until);
            if self.periodic.insert((until, id)) {
                self.clock.arm(until, id);
            }
        }
    }

    /// Whether anything will happen other than such threads' timers and this thread.
    fn others_happen(&self, id: TaskId) -> bool {
        // A task that spins for a lock waits for another task, and does nothing by itself.
        let goes_on = |cpu: &Cpu| !cpu.is_spinning && cpu.running.is_some_and(|running| running != id);
        let runs = |cpu: &Cpu| cpu.has_waiting() || goes_on(cpu);
        self.clock.timers() > self.periodic.len() || self.cpus.iter().any(runs)
    }

    /// Takes a step of a kernel thread.
    #[inline(never)]
    pub(crate) fn step_daemon(&mut self, id: TaskId, cpu: CpuId, thread: Thread) {
        self.slow_daemon(id, cpu, thread);
        let Some(has_lock) = self.lock_for_daemon(id, cpu, thread.daemon) else { return };
        let turn = mm::whole::daemon::Turn { node: thread.node, has_lock };
        let step =
            self.take_step(id, cpu, |Stage { mm, spaces, .. }, cx| mm.step_daemon(thread.daemon, spaces, cx, turn));
        self.end_hold_of_daemon(id, cpu, thread.daemon, matches!(step, Step::Block(_)));
        match step {
            Step::More => {}
            Step::Block(wait) => self.sleep_daemon(id, thread, wait),
            Step::Done(()) => unreachable!("a kernel thread has no end"),
        }
        self.end_of_step(id, cpu);
    }

    /// Puts a kernel thread to sleep: until it is woken, or for a while.
    fn sleep_daemon(&mut self, id: TaskId, thread: Thread, wait: Wait) {
        if wait == Wait::Yield && self.others_happen(id) {
            return;
        }
        self.slow_daemon_sleeps(id);
        let task = &mut self.tasks[id.0 as usize];
        task.state = TaskState::Asleep(thread);
        task.sleeps_until = None;
        let kernel = &mut self.kernels[task.kernel];
        match wait {
            Wait::Until(until) if (Row::of(thread.daemon).is_idle)(&kernel.mm, thread.node) => {
                self.arm_periodic(id, until);
            }
            Wait::Until(until) | Wait::Io { until, .. } => {
                // That instant may have passed while the thread was on its way to sleep.
                let until = until.max(self.cpus[task.cpu.0 as usize].clock);
                task.sleeps_until = Some(until);
                self.clock.arm(until, id);
            }
            Wait::Folio(pfn) => kernel.folio_sleepers.push((pfn, id)),
            Wait::Pass { node, until } => {
                kernel.pass_sleepers.push((node, id));
                let until = until.max(self.cpus[task.cpu.0 as usize].clock);
                task.sleeps_until = Some(until);
                self.clock.arm(until, id);
            }
            Wait::Queue | Wait::Yield => {}
        }
    }

    /// Handles the timer of a kernel thread's sleep; does nothing if the thread was woken before, or sleeps anew.
    pub(crate) fn daemon_timer(&mut self, id: TaskId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        self.periodic.remove(&(at, id));
        if task.sleeps_until == Some(at) {
            self.wake_daemon(id, at);
        }
    }

    /// Tells the news of a step to other tasks and threads, which run from the step's end on.
    #[inline]
    pub(crate) fn tell_news(&mut self, kernel: KernelId, at: Time) {
        if self.kernels[kernel].mm.memory.has_news() {
            self.tell_all_news(kernel, at);
        }
    }

    #[inline(never)]
    fn tell_all_news(&mut self, kernel: KernelId, at: Time) {
        let mut unlocked = Vec::new();
        for news in self.kernels[kernel].mm.memory.take_news() {
            match news {
                News::Woken(daemon, node) => {
                    // Before the threads are started there is none to wake.
                    let Some(id) = self.kernels[kernel].thread(Thread { daemon, node }) else { continue };
                    match self.faults.delay_of_wake() {
                        None => self.wake_daemon(id, at),
                        Some(delay) => self.wake_daemon_late(id, at + delay),
                    }
                }
                News::Killed(space) => self.oom_kill(kernel, space, at),
                News::Unlocked(pfn) => unlocked.push(pfn),
                News::Passed(node) => self.wake_after_pass(kernel, node, at),
                News::Prefers(id, node) => self.find_preferred_cpu(TaskId(id.0), node, at),
            }
        }
        if !unlocked.is_empty() {
            self.wake_sleepers(kernel, &unlocked, at);
        }
    }

    /// Wakes tasks that wait for one of these folios, in the order in which they began to wait.
    fn wake_sleepers(&mut self, kernel: KernelId, unlocked: &[Pfn], at: Time) {
        let sleepers = std::mem::take(&mut self.kernels[kernel].folio_sleepers);
        let (woken, rest): (Vec<_>, Vec<_>) = sleepers.into_iter().partition(|(pfn, _)| unlocked.contains(pfn));
        self.kernels[kernel].folio_sleepers = rest;
        for (_, id) in woken {
            self.wake_sleeper(id, at);
        }
    }

    /// Wakes the tasks that wait for a pass of a node's kswapd.
    pub(crate) fn wake_after_pass(&mut self, kernel: KernelId, node: NodeId, at: Time) {
        let sleepers = std::mem::take(&mut self.kernels[kernel].pass_sleepers);
        let (woken, rest): (Vec<_>, Vec<_>) = sleepers.into_iter().partition(|(of, _)| *of == node);
        self.kernels[kernel].pass_sleepers = rest;
        for (_, id) in woken {
            self.wake_sleeper(id, at);
        }
    }

    fn wake_sleeper(&mut self, id: TaskId, at: Time) {
        match self.tasks[id.0 as usize].state {
            TaskState::Sleeping(..) => self.end_sleep(id, at),
            _ => self.wake_daemon(id, at),
        }
    }

    /// Takes a task off the waiters for a pass, as its timer came first.
    pub(crate) fn leave_pass(&mut self, id: TaskId) {
        let kernel = &mut self.kernels[self.tasks[id.0 as usize].kernel];
        if !kernel.pass_sleepers.is_empty() {
            kernel.pass_sleepers.retain(|(_, sleeper)| *sleeper != id);
        }
    }

    /// Lets a woken kernel thread run only from a later instant on, unless its timer comes first: an injected fault.
    #[cold]
    fn wake_daemon_late(&mut self, id: TaskId, until: Time) {
        let task = &mut self.tasks[id.0 as usize];
        let is_sooner = task.sleeps_until.is_none_or(|sleeps_until| until < sleeps_until);
        if is_sooner && matches!(task.state, TaskState::Asleep(_)) {
            task.sleeps_until = Some(until);
            self.clock.arm(until, id);
        }
    }

    pub(crate) fn wake_daemon(&mut self, id: TaskId, at: Time) {
        self.leave_pass(id);
        let task = &mut self.tasks[id.0 as usize];
        if let TaskState::Asleep(thread) = task.state {
            task.state = TaskState::Daemon(thread);
            task.sleeps_until = None;
            self.wake(id, at, Enqueue::Woken);
        }
    }
}
