//! Linux: task_numa_migrate(), update_numa_stats(), migrate_degrades_locality(), kernel/sched/fair.c (v3.16, v4.19, v6.1).
//! Differs: the whole search happens at one instant, so that no two tasks look for CPUs at once; a task that moves does so at the
//! end of the step in which that was decided, and its partner in a swap when its CPU has its next turn.
//!
//! A task whose memory is elsewhere looks for a CPU there: an idle one, or one whose task gains, or does not lose as much, by
//! running in its place.

use memory::frame::ControlId;
use rules::variant::NumaPlaces;
use units::{CpuId, NodeId, Time};

use super::numa_search::{Best, Candidate, Compared, NodeStats, Running, Search};
use crate::{
    ids::{KernelId, TaskId},
    kernel::Kernel,
    runqueue::NICE_0,
    task::TaskState,
    world::World,
};

impl World {
    /// Looks for a CPU of the node that a task prefers, and of other nodes if there is none, or if its group is spread over
    /// several.
    pub(super) fn task_numa_migrate(&mut self, id: TaskId, preferred: NodeId, at: Time) {
        let (kernel, cpu) = (self.tasks[id.0 as usize].kernel, self.tasks[id.0 as usize].cpu);
        let mm = &self.kernels[kernel].mm;
        let source = mm.memory.node_of_cpu(self.kernels[kernel].number(cpu));
        let control = ControlId(id.0);
        let Some(view) = mm.numa_view(control).filter(|_| source != preferred) else { return };
        let periods = self.kernels[kernel].periods();
        let mut search = Search {
            form: self.kernels[kernel].variant().numa_places,
            beside: self.cpus[cpu.0 as usize].tasks(),
            group: view.group,
            task_load: self.tasks[id.0 as usize].entity.load(at, &periods).cast_signed(),
            source,
            from: self.numa_stats(kernel, source, None, at),
            to: NodeStats::default(),
            gain: 0,
            group_gain: 0,
            may_move: false,
            best: Best::default(),
        };
        self.search_node(&mut search, (id, cpu), preferred, at);
        if search.best.cpu.is_none() || view.is_spread {
            let others: Vec<NodeId> = self.kernels[kernel].mm.memory.node_ids();
            for node in others.into_iter().filter(|node| *node != source && *node != preferred) {
                let (gain, group_gain) = self.gains(kernel, control, source, node);
                if gain >= 0 || group_gain >= 0 {
                    self.search_node(&mut search, (id, cpu), node, at);
                }
            }
        }
        let node_of =
            |world: &Self, cpu| world.kernels[kernel].mm.memory.node_of_cpu(world.kernels[kernel].number(cpu));
        let found = search.best.cpu.map_or(source, |cpu| node_of(self, cpu));
        if view.group.is_some() && found != preferred {
            self.kernels[kernel].mm.numa_prefer(control, found);
        }
        let Some(to) = search.best.cpu else {
            self.kernels[kernel].moves.stuck += 1;
            return;
        };
        self.kernels[kernel].moves.swapped += u64::from(search.best.swap.is_some());
        self.tasks[id.0 as usize].moves_to = Some(to);
        let Kernel { mm, spaces, .. } = &mut self.kernels[kernel];
        if let Some(space) = spaces.get(self.tasks[id.0 as usize].space) {
            mm.numa_hurry(space, control);
        }
        if let Some((other, _)) = search.best.swap {
            self.tasks[other.0 as usize].moves_to = Some(cpu);
        }
    }

    /// The gain of a task by going from one node to another: by its own faults, and by its group's.
    fn gains(&self, kernel: KernelId, id: ControlId, from: NodeId, to: NodeId) -> (i64, i64) {
        let mm = &self.kernels[kernel].mm;
        let own = mm.numa_task_weight(id, to) - mm.numa_task_weight(id, from);
        (own, mm.numa_group_weight(id, to) - mm.numa_group_weight(id, from))
    }

    fn search_node(&self, search: &mut Search, (id, cpu): (TaskId, CpuId), node: NodeId, at: Time) {
        let kernel = self.tasks[id.0 as usize].kernel;
        (search.gain, search.group_gain) = self.gains(kernel, ControlId(id.0), search.source, node);
        search.to = self.numa_stats(kernel, node, Some(id), at);
        search.decide_move(self.imb_numa_nr(kernel, cpu));
        if search.has_room()
            && search.may_move
            && let Some(idle) = search.to.idle
        {
            search.best = Best { cpu: Some(idle), swap: None, improvement: 0 };
            return;
        }
        let cpus: Vec<CpuId> = self.cpus_of(kernel, node).collect();
        for there in cpus {
            if !self.tasks[id.0 as usize].may_run_on(there) || self.has_coming(there) {
                continue;
            }
            let candidate = self.candidate(search, there, node, (cpu, at));
            let stops = match search.compare(&candidate) {
                Compared::Passed(_) => false,
                Compared::Move { stops } | Compared::Swap { stops } => stops,
            };
            if stops {
                return;
            }
        }
    }

    fn candidate(&self, search: &Search, there: CpuId, node: NodeId, (from, at): (CpuId, Time)) -> Candidate {
        let running = self.cpus[there.0 as usize].running.map(|id| {
            let task = &self.tasks[id.0 as usize];
            let view = self.kernels[task.kernel].mm.numa_view(ControlId(id.0));
            let (gain, group_gain) = self.gains(task.kernel, ControlId(id.0), node, search.source);
            let periods = self.kernels[task.kernel].periods();
            let load = task.entity.load(at, &periods).cast_signed();
            let (preferred, group) = view.map_or((None, None), |view| (view.preferred, view.group));
            let beside = self.cpus[there.0 as usize].tasks();
            Running { id, may_come: task.may_run_on(from), preferred, group, gain, group_gain, load, beside }
        });
        let is_ending = |task: &Running| matches!(self.tasks[task.id.0 as usize].state, TaskState::Ended);
        Candidate { cpu: there, node, running: running.filter(|task| !is_ending(task)) }
    }

    /// Whether a task is on its way to a CPU (`numa_migrate_on`).
    pub(super) fn has_coming(&self, cpu: CpuId) -> bool {
        self.tasks.iter().any(|task| task.moves_to == Some(cpu))
    }

    /// The figures of a node (`update_numa_stats`), with an idle CPU for a task that looks for one.
    fn numa_stats(&self, kernel: KernelId, node: NodeId, wanted: Option<TaskId>, at: Time) -> NodeStats {
        let periods = self.kernels[kernel].periods();
        let mut stats = NodeStats::default();
        let mut idle_core = None;
        for id in self.cpus_of(kernel, node) {
            let cpu = &self.cpus[id.0 as usize];
            stats.load += cpu.load(&self.tasks, at, &periods).cast_signed();
            stats.runnable += cpu.runnable(&self.tasks, at, &periods);
            stats.usage += cpu.usage(&self.tasks, at, &periods);
            stats.running += cpu.tasks();
            stats.capacity += NICE_0;
            stats.cpus += 1;
            let may_run = wanted.is_some_and(|task| self.tasks[task.0 as usize].may_run_on(id));
            if cpu.is_idle() && may_run && !self.has_coming(id) {
                stats.idle = stats.idle.or(Some(id));
                let idles = |sibling: &CpuId| self.cpus[sibling.0 as usize].is_idle();
                if cpu.has_siblings && cpu.siblings.iter().all(idles) {
                    idle_core = idle_core.or(Some(id));
                }
            }
        }
        stats.idle = idle_core.or(stats.idle);
        stats
    }

    /// Number of tasks that a node may run before loads of nodes have to be alike (`imb_numa_nr`, kernel/sched/topology.c, v6.1).
    fn imb_numa_nr(&self, kernel: KernelId, cpu: CpuId) -> usize {
        let this = &self.kernels[kernel];
        let node = this.mm.memory.node_of_cpu(this.number(cpu));
        let of_node = self.cpus_of(kernel, node).count();
        let of_cache = usize::try_from(this.domains.sharing(cpu)).expect("fewer than 2^32 CPUs");
        let caches = of_node / of_cache.min(of_node);
        let of_first_domain = if caches == 1 { of_node >> 3 } else { caches };
        of_first_domain.max(1)
    }

    /// Takes a task that is to swap its place off its CPU, before that chooses its next task. Returns true if it has.
    pub(crate) fn leave_for_swap(&mut self, cpu: CpuId) -> bool {
        let here = &self.cpus[cpu.0 as usize];
        let Some(running) = here.running.filter(|id| self.tasks[id.0 as usize].moves_to.is_some()) else {
            return false;
        };
        let swaps = self.kernels[here.kernel].variant().numa_places != NumaPlaces::Alone;
        swaps && self.leave_for_preferred(running, cpu)
    }

    /// Whether a task would lose by going to another node (`migrate_degrades_locality`); none if its faults say nothing.
    pub(super) fn degrades_locality(&self, id: TaskId, (from, to): (CpuId, CpuId), is_idle: bool) -> Option<bool> {
        let kernel = &self.kernels[self.cpus[from.0 as usize].kernel];
        let mm = &kernel.mm;
        let node_of = |cpu| mm.memory.node_of_cpu(kernel.number(cpu));
        let (source, target) = (node_of(from), node_of(to));
        if source == target {
            return None;
        }
        let control = ControlId(id.0);
        let view = mm.numa_view(control).filter(|view| view.has_faults)?;
        if view.preferred == Some(source) {
            let there = &self.cpus[from.0 as usize];
            let prefers =
                |task: &TaskId| mm.numa_view(ControlId(task.0)).is_some_and(|view| view.preferred == Some(source));
            let preferring = there.queue.waiting().chain(there.running).filter(prefers).count();
            return (there.tasks() > preferring).then_some(true);
        }
        if view.preferred == Some(target) {
            return Some(false);
        }
        if is_idle {
            return None;
        }
        let weight = |node| {
            if view.group.is_some() { mm.numa_group_weight(control, node) } else { mm.numa_task_weight(control, node) }
        };
        Some(weight(target) < weight(source))
    }
}
