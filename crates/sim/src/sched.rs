//! Linux: kernel/sched/core.c, kernel/sched/fair.c (v3.9 to v6.18): which task runs where, and until when.
//!
//! A step is never interrupted: between two steps a CPU looks at its queue, as the kernel does on the way back to user mode and
//! where it calls `cond_resched`. Ticks are no events of their own; a CPU with waiting tasks checks each of them.

mod balance;
mod balancing;
mod busiest;
mod cpu;
mod domains;
mod moves;
mod numa_search;
mod numa_swap;
mod preferred;
mod push;
mod wake;
mod wakes;

use memory::{
    cost::{Cause, Work, latency::Beside},
    cx::Cx,
    decision::Decision,
    frame::{ControlId, SpaceId},
};
use units::{CpuId, Time};

pub(crate) use self::{
    cpu::{Cpu, CpuPrices, LetGo},
    domains::{Domains, Topology},
    moves::{Distances, SchedMoves},
    wakes::Wakes,
};
use crate::{
    ids::{KernelId, NO_SPACE, TaskId},
    runqueue::{Enqueue, Leave, RunQueue},
    task::TaskState,
    world::World,
};

impl World {
    /// The busy CPUs that share a core or a last-level cache with a CPU.
    pub(crate) fn beside(&self, cpu: CpuId, kernel: KernelId) -> Beside {
        let is_busy = |other: &CpuId| self.cpus[other.0 as usize].running.is_some();
        let on_core = self.cpus[cpu.0 as usize].siblings.iter().any(is_busy);
        let others = self.kernels[kernel].domains.busy_beside(cpu) - u64::from(is_busy(&cpu));
        Beside { on_core, cache_users: others + 1 }
    }

    /// Makes a task runnable from `at` on (`try_to_wake_up`, `wake_up_new_task`).
    pub(crate) fn wake(&mut self, id: TaskId, at: Time, why: Enqueue) {
        let (kernel, cpu) = (self.tasks[id.0 as usize].kernel, self.tasks[id.0 as usize].cpu);
        if self.cpus[cpu.0 as usize].running == Some(id) {
            // The task is on its way to sleep; its own step may be what wakes it. It stays on its CPU (`ttwu_runnable`).
            return;
        }
        if self.spans.is_some() && (why == Enqueue::Woken || self.waker.is_some()) {
            self.note_wakeup(id, at);
        }
        if why == Enqueue::Woken && self.kernels[kernel].variant().sched_wake_affine_by_load {
            self.note_wake(id, at);
        }
        // A new task was given the idlest CPU.
        let cpu_id = if why == Enqueue::New { self.tasks[id.0 as usize].cpu } else { self.select_cpu(id, at) };
        let task = &mut self.tasks[id.0 as usize];
        let from = std::mem::replace(&mut task.cpu, cpu_id);
        task.runnable_since = at;
        self.moves_between(id, from, cpu_id);
        let cpu = &mut self.cpus[cpu_id.0 as usize];
        let was_idle = cpu.is_idle();
        if was_idle {
            // The CPU is interrupted out of its idle state; a task that sleeps before others on the same CPU do it finds it
            // awake.
            let from = if why == Enqueue::Woken { at + self.prices.alone.of(Work::WakeUp) } else { at };
            cpu.clock = cpu.clock.max(from);
            cpu.begin_to_be_busy();
        }
        self.account_running(cpu_id, at);
        if from != cpu_id && why == Enqueue::Woken {
            self.count_move(id, from, cpu_id);
            let entity = &mut self.tasks[id.0 as usize].entity;
            self.cpus[cpu_id.0 as usize].queue.adopt(&self.cpus[from.0 as usize].queue, entity);
        }
        self.note_load(cpu_id, at);
        let (cpu, task) = (&mut self.cpus[cpu_id.0 as usize], &mut self.tasks[id.0 as usize]);
        let periods = self.kernels[kernel].periods();
        if self.kernels[kernel].tracks_loads() {
            task.entity.waits(why, at, &periods);
        }
        if why == Enqueue::Woken {
            cpu.count_idle(at);
        }
        cpu.queue.enqueue(id, &mut task.entity, why, &periods);
        self.arrived(id);
        let cpu = &mut self.cpus[cpu_id.0 as usize];
        if was_idle {
            cpu.ready(cpu_id, &mut self.clock);
        } else if cpu.running.is_some() {
            let is_spinning = cpu.is_spinning;
            self.preempt_for(cpu_id, id);
            if is_spinning {
                self.look_up_from_spinning(cpu_id, at);
            }
        }
    }

    /// The CPU for a new task that may run anywhere: in the smallest domain that the search from its parent's leads to, the
    /// first CPU with the fewest tasks (`find_idlest_cpu`; by number of tasks instead of load).
    pub(crate) fn idlest_cpu(&self) -> CpuId {
        let all: Vec<usize> = self.own_kernel().cpus.clone().collect();
        let few = |cpus: &[usize]| cpus.iter().copied().min_by_key(|cpu| self.cpus[*cpu].tasks()).map(domains::number);
        let is_apart = self.own_kernel().variant().sched_compares_loads && !self.tasks.is_empty();
        let found = if is_apart { few(&self.idlest_domain()) } else { few(&all) };
        found.expect("a kernel has CPUs")
    }

    /// Searches from the parent's CPU down, group by group: goes to a group that is idler by half of balancing's threshold,
    /// else to the own one (`find_idlest_group`, up to 5.4).
    fn idlest_domain(&self) -> Vec<usize> {
        let (domains, at) = (&self.own_kernel().domains, self.now());
        let mean = |group: &domains::CpuGroup| {
            let load: u64 = group.cpus.iter().map(|cpu| self.load(domains::number(*cpu), at)).sum();
            load * 1024 / group.power
        };
        let mut cpu = self.current().cpu;
        for level in (1..domains.levels()).rev().filter(|level| domains.is_near(*level)) {
            let mut groups = domains.groups(cpu, level);
            let Some(own) = groups.next() else { continue };
            let Some(idlest) = groups.min_by_key(|group| mean(group)) else { continue };
            let percent = 100 + (domains.imbalance_pct(level) - 100) / 2;
            if 100 * mean(own) >= percent * mean(idlest) {
                cpu = domains::number(idlest.cpus[0]);
            }
        }
        let mut cpus: Vec<usize> = domains.groups(cpu, 0).flat_map(|group| group.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// Begins the turn of a CPU that was taken out of the order. Returns false if it has nothing to do any more, or if its
    /// clock has moved since: then it stands where it belongs.
    #[inline]
    pub(crate) fn begin_turn(&mut self, id: CpuId, at: Time) -> bool {
        let cpu = &mut self.cpus[id.0 as usize];
        cpu.is_ordered = false;
        if cpu.clock > at {
            cpu.ready(id, &mut self.clock);
            return false;
        }
        !cpu.is_idle()
    }

    /// The task that a CPU runs now; changes it if another one should run.
    #[inline]
    pub(crate) fn schedule(&mut self, id: CpuId) -> TaskId {
        let cpu = &self.cpus[id.0 as usize];
        match cpu.running {
            Some(running) if !cpu.need_resched && !cpu.has_waiting() => running,
            _ => self.choose(id),
        }
    }

    /// Chooses the next task, if a task waits or the CPU was idle (`schedule`).
    #[inline(never)]
    fn choose(&mut self, id: CpuId) -> TaskId {
        let cpu = &self.cpus[id.0 as usize];
        if let Some(running) = cpu.running {
            let is_tick = cpu.has_waiting() && cpu.clock >= cpu.next_tick;
            if is_tick {
                // Balancing that other CPUs were due for since the last tick is done before this CPU's own.
                self.balance(id);
            }
            let Self { kernels, cpus, tasks, .. } = self;
            let cpu = &mut cpus[id.0 as usize];
            let kernel = &kernels[cpu.kernel];
            let periods = &kernel.periods();
            if is_tick {
                let entity = &mut tasks[running.0 as usize].entity;
                cpu.need_resched |= cpu.queue.account(entity, cpu.clock, periods)
                    || cpu.queue.tick_preempts(entity, cpu.clock, periods);
                cpu.next_tick = kernel.ticks.after(cpu.clock);
            }
            if !cpu.need_resched {
                return running;
            }
            let now = cpu.clock;
            if self.decides_otherwise(running, now, Decision::Preempt) {
                self.cpus[id.0 as usize].need_resched = false;
                return running;
            }
            self.put_running(running, id);
        }
        self.switch(id)
    }

    /// Whether a decision about a task is taken otherwise than the kernel takes it: in a branch of a run alone.
    pub(crate) fn decides_otherwise(&self, id: TaskId, at: Time, decision: Decision) -> bool {
        self.why.as_ref().is_some_and(|why| why.facts.decides_otherwise(at, id.0, decision))
    }

    /// Picks the next task, and switches to it.
    fn switch(&mut self, id: CpuId) -> TaskId {
        let cpu = &mut self.cpus[id.0 as usize];
        cpu.need_resched = false;
        let next = cpu.queue.pick().expect("a CPU in the order has a task");
        cpu.running = Some(next);
        let task = &mut self.tasks[next.0 as usize];
        let kernel = &mut self.kernels[task.kernel];
        kernel.domains.begin_busy(id);
        if task.space != NO_SPACE {
            kernel.running_user += 1;
            kernel.running_in[task.space.0 as usize] += 1;
            kernel.settled_in[task.space.0 as usize] += u32::from(task.is_settled);
        }
        // A task that a step elsewhere wakes at its end may be picked by a CPU whose clock is still earlier.
        cpu.clock = cpu.clock.max(task.runnable_since);
        let waited = (task.runnable_since, cpu.clock);
        task.wait(waited.0, waited.1, Cause::RunQueue);
        let before = cpu.loaded.replace(next);
        if let Some(why) = &mut self.why {
            let other = before.filter(|before| *before != next);
            why.waited(next, waited, Cause::RunQueue, || other.map(|other| kernel.name_of(other)));
        }
        if let Some(spans) = &mut self.spans {
            spans.spend(next, &task.spent, task.supply.mechanism(), true);
            spans.comes(id, next, waited.1);
        }
        if before != Some(next) {
            let prices = self.prices.on(&self.cpus, id);
            let cpu = &mut self.cpus[id.0 as usize];
            let mut cx = Cx::new(kernel.number(id), cpu.clock, prices, &mut kernel.counters);
            cx.work(Work::ContextSwitch, 1);
            cpu.clock = cx.now();
            task.spent.add(cx.spent());
            if let Some(spans) = &mut self.spans {
                spans.spend(next, &task.spent, task.supply.mechanism(), false);
            }
        }
        let cpu = &mut self.cpus[id.0 as usize];
        RunQueue::start(&mut task.entity, cpu.clock);
        if kernel.tracks_loads() {
            task.entity.runs(cpu.clock);
            if kernel.mm.balances_numa() {
                kernel.mm.numa_switch(kernel.number(id), (task.space != NO_SPACE).then_some(ControlId(next.0)));
            }
        }
        cpu.next_tick = kernel.ticks.after(cpu.clock);
        next
    }

    /// Takes the running task off its CPU.
    fn stop(&mut self, id: CpuId) {
        let running = self.cpus[id.0 as usize].running.take().expect("the CPU ran a task");
        let task = &self.tasks[running.0 as usize];
        let kernel = &mut self.kernels[task.kernel];
        if let Some(spans) = &mut self.spans {
            spans.leaves(id, kernel.number(id), self.cpus[id.0 as usize].clock);
        }
        kernel.mm.numa_switch(kernel.number(id), None);
        kernel.domains.end_busy(id);
        if task.space != NO_SPACE {
            let kernel = &mut self.kernels[task.kernel];
            kernel.running_user -= 1;
            kernel.running_in[task.space.0 as usize] -= 1;
            kernel.settled_in[task.space.0 as usize] -= u32::from(task.is_settled);
        }
    }

    /// Lists the address space that each CPU of a kernel runs, in a list that is reused.
    pub(crate) fn list_running_spaces(&self, kernel: KernelId, list: &mut Vec<SpaceId>) {
        let space = |cpu: &Cpu| cpu.running.map_or(NO_SPACE, |task| self.tasks[task.0 as usize].space);
        list.clear();
        list.extend(self.cpus[self.kernels[kernel].cpus.clone()].iter().map(space));
    }

    /// The other CPUs of the kernel that now run a task of this address space.
    pub(crate) fn sharers(&self, space: SpaceId, but: CpuId) -> impl Iterator<Item = usize> + '_ {
        let runs = move |task: TaskId| self.tasks[task.0 as usize].space == space;
        let ids = self.kernels[self.cpus[but.0 as usize].kernel].cpus.clone();
        ids.filter(move |id| *id != but.0 as usize && self.cpus[*id].running.is_some_and(runs))
    }

    /// Up to when a CPU may run without looking at its queue.
    #[inline]
    pub(crate) fn horizon_of(&self, id: CpuId, horizon: Time) -> Time {
        let cpu = &self.cpus[id.0 as usize];
        if cpu.has_waiting() { horizon.min(cpu.next_tick) } else { horizon }
    }

    /// Ends the turn of a CPU: a task that cannot go on leaves it, and the CPU goes back into the order.
    #[inline]
    pub(crate) fn settle(&mut self, id: CpuId) {
        let cpu = &mut self.cpus[id.0 as usize];
        let running = cpu.running.expect("the CPU ran a task");
        let task = &mut self.tasks[running.0 as usize];
        let leaves = match task.state {
            TaskState::LockWait(_) | TaskState::DaemonLockWait(_) => !task.is_spinning,
            TaskState::Blocked | TaskState::Sleeping(..) | TaskState::Asleep(_) | TaskState::Ended => true,
            TaskState::User | TaskState::Kernel(_) | TaskState::Answered(_) | TaskState::Daemon(_) => false,
        };
        cpu.is_spinning = task.is_spinning;
        if leaves {
            self.leave(id, running);
        }
        self.cpus[id.0 as usize].ready(id, &mut self.clock);
    }

    /// Takes off a CPU's running task that cannot go on.
    #[inline(never)]
    fn leave(&mut self, id: CpuId, running: TaskId) {
        let kernel = self.cpus[id.0 as usize].kernel;
        self.note_load(id, self.cpus[id.0 as usize].clock);
        let cpu = &mut self.cpus[id.0 as usize];
        let task = &mut self.tasks[running.0 as usize];
        let why = if matches!(task.state, TaskState::Ended) { Leave::Ends } else { Leave::Sleeps };
        if self.kernels[kernel].tracks_loads() {
            task.entity.sleeps(cpu.clock);
        }
        cpu.queue.leave(running, &mut task.entity, cpu.clock, why, &self.kernels[kernel].periods());
        self.stop(id);
        if self.cpus[id.0 as usize].is_idle() {
            // The idle CPU sees other queues at its next look; its past looks saw none.
            self.looked_in_vain(id, self.cpus[id.0 as usize].clock);
            self.pull(id);
        }
    }

    /// Lets a CPU go on whose task spun on a lock: the task has got it, or sleeps from now on.
    pub(crate) fn end_spin(&mut self, id: CpuId, at: Time) {
        let cpu = &mut self.cpus[id.0 as usize];
        assert!(std::mem::take(&mut cpu.is_spinning), "CPU {id} spins");
        cpu.clock = cpu.clock.max(at);
    }
}
