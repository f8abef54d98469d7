//! Linux: task_tick_numa(), task_numa_work(), kernel/sched/fair.c (v3.10); find_idlest_cpu_node(), task_numa_find_cpu(),
//! migrate_task_to() of the patches for v3.9 (July 2013).
//! Differs: a task that is to run elsewhere goes there at the end of the step in which that was decided.

use memory::frame::ControlId;
use mm::numa::numa_balancing::{Maker, Tick};
use rules::variant::NumaPlaces;
use units::{CpuId, NodeId, Time};

use super::{busiest::Looker, domains::number};
use crate::{
    ids::{KernelId, NO_SPACE, TaskId},
    kernel::Kernel,
    runqueue::Enqueue,
    task::{Task, TaskState},
    world::World,
};

impl World {
    /// Begins NUMA balancing for a task created by the current one. (A task of a new process is made by fork, or by fork and
    /// execve.)
    pub(crate) fn begin_to_balance(&mut self, id: TaskId, now: Time) {
        let Self { tasks, kernels, current, .. } = self;
        let task = &tasks[id.0 as usize];
        let kernel = &mut kernels[task.kernel];
        if !kernel.mm.balances_numa() || kernel.spaces.get(task.space).is_none() {
            return;
        }
        let maker = tasks.get(current.0 as usize).filter(|maker| *current != id && maker.kernel == task.kernel);
        let maker = maker.filter(|maker| maker.space == task.space).map(|_| {
            let lives = |other: &&Task| other.space == task.space && !matches!(other.state, TaskState::Ended);
            let all = tasks.iter().filter(|other| other.kernel == task.kernel).filter(lives).count() as u64;
            Maker { id: ControlId(current.0), users: all - 1, now }
        });
        let space = kernel.spaces.get_mut(task.space).expect("looked at above");
        kernel.mm.numa_begin(ControlId(id.0), (task.space, space), maker);
    }

    /// Ends NUMA balancing for a task.
    pub(crate) fn end_to_balance(&mut self, id: TaskId) {
        let kernel = self.tasks[id.0 as usize].kernel;
        self.kernels[kernel].mm.numa_end(ControlId(id.0));
    }

    /// Notes that a task has moved from one CPU to another.
    #[inline]
    pub(super) fn moves_between(&mut self, id: TaskId, from: CpuId, to: CpuId) {
        let task = &self.tasks[id.0 as usize];
        let Kernel { mm, spaces, cpus, .. } = &mut self.kernels[task.kernel];
        if from == to || task.space == NO_SPACE || !mm.balances_numa() {
            return;
        }
        let node =
            |cpu: CpuId| mm.memory.node_of_cpu(CpuId(cpu.0 - u32::try_from(cpus.start).expect("fewer than 2^32 CPUs")));
        let (from, to) = (node(from), node(to));
        if let Some(space) = spaces.get(task.space) {
            mm.numa_task_moved(space, ControlId(id.0), from, to);
        }
    }

    /// Checks, before a task goes on, whether a tick has found it in user mode and its scan is due; if so it scans first.
    pub(crate) fn numa_tick(&mut self, id: TaskId, cpu: CpuId) {
        let (task, now) = (&mut self.tasks[id.0 as usize], self.cpus[cpu.0 as usize].clock);
        let kernel = &mut self.kernels[task.kernel];
        if now < task.numa_tick || task.space == NO_SPACE || task.is_dying || !task.supply.is_idle() {
            return;
        }
        let is_user = matches!(&task.state, TaskState::Kernel(operation) if operation.is_in_user_mode());
        if !is_user || task.holds.is_some() {
            return;
        }
        task.numa_tick = kernel.ticks.after(now);
        let (number, at, ran) = (kernel.number(cpu), kernel.ticks.last(now), task.ran());
        let space = kernel.spaces.get_mut(task.space).expect("a live task has an address space");
        let tick = Tick { id: ControlId(id.0), cpu: number, at, ran, policy: task.policy };
        let work = kernel.mm.numa_tick(space, tick);
        let threads = if work.is_some() { self.threads_of(id) } else { 0 };
        let task = &mut self.tasks[id.0 as usize];
        if let Some(work) = work
            && let TaskState::Kernel(operation) = std::mem::replace(&mut task.state, TaskState::Blocked)
        {
            task.state = TaskState::Kernel(operation.after(work.of_threads(threads)));
        }
    }

    /// Number of live tasks of a task's process (`get_nr_threads`).
    pub(crate) fn threads_of(&self, id: TaskId) -> u64 {
        let own = &self.tasks[id.0 as usize];
        let lives = |task: &&Task| {
            (task.kernel, task.space) == (own.kernel, own.space) && !matches!(task.state, TaskState::Ended)
        };
        self.tasks.iter().filter(lives).count() as u64
    }

    /// Finds a CPU on the node that a task prefers from now on, if that is not the node of its CPU.
    pub(crate) fn find_preferred_cpu(&mut self, id: TaskId, node: NodeId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        let kernel = &self.kernels[task.kernel];
        if kernel.variant().numa_places != NumaPlaces::Alone {
            return self.task_numa_migrate(id, node, at);
        }
        let found = if kernel.variant().numa_finds_cpu {
            self.numa_find_cpu(id, node, at)
        } else {
            self.idlest_cpu_of(task.kernel, node, at)
        };
        let may_move = found.filter(|cpu| *cpu != task.cpu && task.may_run_on(*cpu));
        let kernel = task.kernel;
        self.kernels[kernel].moves.stuck += u64::from(may_move.is_none());
        self.tasks[id.0 as usize].moves_to = may_move;
    }

    pub(super) fn cpus_of(&self, kernel: KernelId, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        let kernel = &self.kernels[kernel];
        kernel.cpus.clone().map(number).filter(move |cpu| kernel.mm.memory.node_of_cpu(kernel.number(*cpu)) == node)
    }

    /// The first CPU of a node with the least load, unless its running task is on its preferred node, or may run nowhere else
    /// (`find_idlest_cpu_node`).
    fn idlest_cpu_of(&self, kernel: KernelId, node: NodeId, at: Time) -> Option<CpuId> {
        let may_be_preempted = |cpu: &CpuId| {
            let Some(running) = self.cpus[cpu.0 as usize].running else { return true };
            let task = &self.tasks[running.0 as usize];
            let prefers = self.kernels[kernel].mm.numa_preferred(ControlId(running.0));
            task.space == NO_SPACE
                || (prefers.is_none_or(|(preferred, _)| preferred != node) && task.allowed.len() != 1)
        };
        self.cpus_of(kernel, node).filter(may_be_preempted).min_by_key(|cpu| self.load(*cpu, at))
    }

    /// `task_numa_find_cpu` as it was posted: a CPU without load ends the search, and is not the result.
    fn numa_find_cpu(&self, id: TaskId, node: NodeId, at: Time) -> Option<CpuId> {
        let task = &self.tasks[id.0 as usize];
        let mut cpus = self.cpus_of(task.kernel, node);
        let first = cpus.next()?;
        if self.cpus[first.0 as usize].is_idle() {
            return Some(first);
        }
        let periods = self.kernels[task.kernel].periods();
        // target_load by busy_idx: biased towards leaving a CPU alone.
        let load = |cpu: CpuId| {
            let now = self.load(cpu, at);
            now.max(self.cpus[cpu.0 as usize].delayed(now, at, &periods))
        };
        let mut found = (u64::MAX, None);
        for cpu in std::iter::once(first).chain(cpus) {
            let there = load(cpu);
            if there == 0 {
                return found.1;
            }
            if there < found.0 {
                found = (there, Some(cpu));
            }
        }
        // The kernel computes effective loads too, and does not compare them.
        found.1
    }

    /// Whether the place of its memory keeps a waiting task where it is when another CPU looks for one, or lets it go though its
    /// cache is hot (`migrate_improves_locality`, `migrate_degrades_locality`); none if its faults say nothing.
    pub(super) fn numa_holds(
        &self,
        id: TaskId,
        (from, to): (CpuId, CpuId),
        (level, looker): (usize, Looker),
    ) -> Option<bool> {
        let kernel = &self.kernels[self.cpus[to.0 as usize].kernel];
        if kernel.variant().numa_groups {
            return self.degrades_locality(id, (from, to), looker == Looker::Idle);
        }
        let node_of = |cpu| kernel.mm.memory.node_of_cpu(kernel.number(cpu));
        let may_gain = kernel.domains.spans_nodes(level) && kernel.variant().numa_favours_moves;
        let may_gain = may_gain && node_of(to) != node_of(from);
        let (preferred, scans) = may_gain.then(|| kernel.mm.numa_preferred(ControlId(id.0))).flatten()?;
        (preferred == node_of(to) && scans < kernel.mm.numa_settle_count()).then_some(false)
    }

    /// Moves the running task of a CPU to the one that was found for it (`migration_cpu_stop`). Returns false if it stays.
    pub(crate) fn leave_for_preferred(&mut self, id: TaskId, cpu: CpuId) -> bool {
        let Some(to) = self.tasks[id.0 as usize].moves_to.take() else { return false };
        let goes = self.leave_for(id, (cpu, to));
        let kernel = self.tasks[id.0 as usize].kernel;
        self.kernels[kernel].moves.numa += u64::from(goes);
        goes
    }

    /// Moves the running task of a CPU to another CPU. Returns false if it cannot leave now.
    pub(super) fn leave_for(&mut self, id: TaskId, (cpu, to): (CpuId, CpuId)) -> bool {
        let is_ready =
            matches!(self.tasks[id.0 as usize].state, TaskState::User | TaskState::Kernel(_) | TaskState::Answered(_));
        if to == cpu || !is_ready || self.tasks[id.0 as usize].is_spinning {
            return false;
        }
        let swaps = self.kernels[self.cpus[cpu.0 as usize].kernel].variant().numa_places != NumaPlaces::Alone;
        self.put_running(id, cpu);
        self.take_over(to, id);
        let there = &mut self.cpus[to.0 as usize];
        if there.running.is_none() {
            there.begin_to_be_busy();
            there.ready(to, &mut self.clock);
        }
        // The task that it is swapped with is about to come.
        if self.cpus[cpu.0 as usize].is_idle() && !(swaps && self.has_coming(cpu)) {
            self.looked_in_vain(cpu, self.cpus[cpu.0 as usize].clock);
            self.pull(cpu);
        }
        self.cpus[cpu.0 as usize].ready(cpu, &mut self.clock);
        true
    }

    /// Makes the running task of a CPU wait there, as if it had been preempted.
    pub(super) fn put_running(&mut self, id: TaskId, cpu: CpuId) {
        let Self { kernels, cpus, tasks, .. } = self;
        let (here, task) = (&mut cpus[cpu.0 as usize], &mut tasks[id.0 as usize]);
        let periods = kernels[here.kernel].periods();
        here.queue.account(&mut task.entity, here.clock, &periods);
        here.queue.enqueue(id, &mut task.entity, Enqueue::Preempted, &periods);
        if kernels[here.kernel].tracks_loads() {
            task.entity.waits(Enqueue::Preempted, here.clock, &periods);
        }
        task.runnable_since = here.clock;
        task.was_preempted = true;
        if task.holds.is_some() {
            self.stop_spinning_on(id);
        }
        self.stop_spinning(id, cpu);
        self.stop(cpu);
    }
}
