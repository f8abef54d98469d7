//! Kernel threads: tasks without a user half. What they do is in `mm`, in the file named after each; when and where they do
//! it is decided here like for any task.

use mm::{
    ControlId, SpaceId,
    cost::Cx,
    step::{Step, Wait},
};
use units::{CpuId, Time};

use crate::{
    run_hash::Mark,
    runqueue::{Enqueue, Nice},
    task::{Task, TaskId, TaskState},
    world::World,
};

/// Which kernel thread a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// The one that keeps memory of a node free, by the node's position.
    Kswapd(usize),
}

/// No process: kernel threads have no address space.
pub(crate) const NO_SPACE: SpaceId = SpaceId(u32::MAX);

impl World {
    /// Starts the kernel threads of the machine, asleep: `cpus` are those of each node (`kswapd_init`).
    pub(crate) fn start_daemons(&mut self, cpus: Vec<Vec<CpuId>>) {
        for (node, cpus) in cpus.into_iter().enumerate() {
            let id = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
            let first = cpus.first().copied().unwrap_or(CpuId(0));
            let mut task = Task::new(first, cpus, NO_SPACE, Nice::default());
            task.state = TaskState::Asleep(Daemon::Kswapd(node));
            self.tasks.push(task);
            self.kswapds.push(id);
        }
    }

    /// One step of a kernel thread.
    pub(crate) fn step_daemon(&mut self, id: TaskId, cpu: CpuId, daemon: Daemon) {
        let start = self.cpus[cpu.0 as usize].clock;
        let loss = self.injector.begin(&self.counters);
        // Whose entries it will change is not known yet: the TLBs of all that run user code may have them.
        let runners: Vec<usize> = self.runners(cpu).collect();
        let sharers = u32::try_from(runners.len()).expect("fewer than 2^32 CPUs");
        let cx = Cx::new(cpu, start, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(id.0)).with_sharers(sharers);
        let step = match daemon {
            Daemon::Kswapd(node) => self.mm.step_kswapd(&mut self.spaces, &mut cx, node),
        };
        let (mut end, spent, asked) = (cx.now(), cx.spent(), cx.shootdowns());
        if asked.rounds > 0 {
            for other in runners {
                self.cpus[other].asked.add(asked);
            }
        }
        if let Some(loss) = loss {
            end = self.injector.lose(loss, &mut self.counters, end, &spent);
        }
        let task = &mut self.tasks[id.0 as usize];
        task.spent.add(&spent);
        self.cpus[cpu.0 as usize].clock = end;
        self.hash.fold(end, cpu, Mark::Daemon, u64::from(id.0));
        match step {
            Step::More => {}
            Step::Block(wait) => {
                task.state = TaskState::Asleep(daemon);
                task.sleeps_until = None;
                if let Wait::Until(until) | Wait::Io { until, .. } = wait {
                    task.sleeps_until = Some(until);
                    self.clock.arm(until, id);
                }
            }
            Step::Done(()) => unreachable!("a kernel thread has no end"),
        }
    }

    /// The CPUs, but for one, that run tasks of processes.
    fn runners(&self, but: CpuId) -> impl Iterator<Item = usize> + '_ {
        let runs = |task: TaskId| self.tasks[task.0 as usize].space != NO_SPACE;
        let cpus = self.cpus.iter().enumerate();
        cpus.filter(move |(id, cpu)| *id != but.0 as usize && cpu.running.is_some_and(runs)).map(|(id, _)| id)
    }

    /// The timer of a kernel thread's sleep: one that was woken before, or sleeps anew, does not mind.
    pub(crate) fn daemon_timer(&mut self, id: TaskId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        if task.sleeps_until == Some(at) {
            self.wake_daemon(id, at);
        }
    }

    /// After a step: those whom it has woken run from its end on.
    pub(crate) fn wake_daemons(&mut self, at: Time) {
        for node in self.mm.take_woken() {
            self.wake_daemon(self.kswapds[node], at);
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
