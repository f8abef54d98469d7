//! Linux: kernel/sched/fair.c (v4.1): `load_balance`, `rebalance_domains`, `newidle_balance`: who takes tasks over from whom.
//! Differs: load is the number of tasks; one domain of all CPUs; a CPU that is alone with its task has no ticks, so what it
//! would have done at them is worked out when somebody has a task too many.

use units::{CpuId, Picos, Time};

use super::Cpu;
use crate::{
    runqueue::{Enqueue, Periods},
    task::TaskId,
    world::World,
};

/// When a CPU looks at others (`struct sched_domain`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balancing {
    /// When it did (`last_balance`).
    last: Time,
    /// Did it take a task over then (`balance_interval` is the shortest)?
    has_pulled: bool,
    /// Since when it has been busy: an idle CPU has no ticks.
    busy_since: Time,
}

impl Cpu {
    pub(super) fn begin_to_be_busy(&mut self) {
        self.balancing.busy_since = self.clock;
    }

    pub(super) fn end_to_be_busy(&mut self, periods: &Periods) {
        self.found_nothing(self.clock, periods);
    }

    /// The first of its ticks at which it looks at others, if it stays busy.
    fn next_balance(&self, periods: &Periods) -> Time {
        let Balancing { last, has_pulled, busy_since } = self.balancing;
        let interval = Picos(periods.balance.0 * if has_pulled { 1 } else { 2 });
        self.tick_after((last + interval).max(busy_since), periods)
    }

    /// Whenever it looked at others up to an instant, nobody had a task too many.
    fn found_nothing(&mut self, until: Time, periods: &Periods) {
        // Bound: each turn goes on by an interval.
        loop {
            let next = self.next_balance(periods);
            if next > until {
                return;
            }
            self.looked(next, false);
        }
    }

    fn looked(&mut self, at: Time, has_pulled: bool) {
        self.balancing.last = at;
        self.balancing.has_pulled = has_pulled;
    }
}

impl World {
    /// An idle CPU takes over a task that waits elsewhere and may run anywhere (`newidle_balance`). False if there is none.
    pub(super) fn pull(&mut self, id: CpuId) -> bool {
        let movable = |task: TaskId| self.tasks[task.0 as usize].may_run_on(id);
        // One that is about to run where it is stays there.
        let busy = |cpu: &&Cpu| cpu.running.is_some() || cpu.queue.len() > 1;
        let found = self.cpus.iter().filter(busy).find_map(|cpu| cpu.queue.find(movable));
        if let Some(found) = found {
            self.take_over(id, found);
        }
        found.is_some()
    }

    /// Called at the ticks of a CPU that has somebody waiting: others take a task over that have fewer, idle ones at once
    /// (`nohz_idle_balance`), busy ones if it was since the last tick that they looked (`load_balance`), in the order in which
    /// they did. A fifth task on four CPUs goes round that way.
    #[inline(never)]
    pub(super) fn balance(&mut self, id: CpuId) {
        let now = self.cpus[id.0 as usize].clock;
        let before = Time(now.0.saturating_sub(self.periods.tick.0));
        let others = (0..).map(CpuId).take(self.cpus.len()).filter(|other| *other != id);
        for other in others.clone() {
            if !self.cpus[other.0 as usize].is_idle() {
                self.cpus[other.0 as usize].found_nothing(before, &self.periods);
            } else if self.has_more(id, other) {
                self.give(id, other, now);
            }
        }
        let due = |world: &Self, other: &CpuId| {
            let cpu = &world.cpus[other.0 as usize];
            let next = cpu.next_balance(&world.periods);
            (!cpu.is_idle() && next <= now).then_some((next, *other))
        };
        // Bound: each of the others looks once in a tick.
        while let Some((next, other)) =
            others.clone().filter_map(|other| due(self, &other)).min_by_key(|(next, _)| *next)
        {
            let has_pulled = self.has_more(id, other) && self.give(id, other, now);
            self.cpus[other.0 as usize].looked(next, has_pulled);
        }
    }

    /// Has one CPU so many tasks more than another that it gives one away?
    fn has_more(&self, id: CpuId, other: CpuId) -> bool {
        self.cpus[id.0 as usize].tasks() >= self.cpus[other.0 as usize].tasks() + self.imbalance
    }

    /// One CPU gives a task that waits for it to another, if that may run there.
    fn give(&mut self, id: CpuId, other: CpuId, now: Time) -> bool {
        let movable = |task: TaskId| self.tasks[task.0 as usize].may_run_on(other);
        let Some(found) = self.cpus[id.0 as usize].queue.find(movable) else { return false };
        let is_idle = self.cpus[other.0 as usize].is_idle();
        self.take_over(other, found);
        if is_idle {
            let cpu = &mut self.cpus[other.0 as usize];
            cpu.clock = cpu.clock.max(now);
            cpu.begin_to_be_busy();
            cpu.ready(other, &mut self.clock);
        }
        true
    }

    /// A CPU takes over a task that waits for another one (`detach_task`, `attach_task`).
    fn take_over(&mut self, id: CpuId, found: TaskId) {
        let from = std::mem::replace(&mut self.tasks[found.0 as usize].cpu, id);
        let at = self.cpus[from.0 as usize].clock;
        self.account_running(from, at);
        self.account_running(id, at);
        let task = &mut self.tasks[found.0 as usize];
        self.cpus[from.0 as usize].queue.remove(found, &mut task.entity, &self.periods);
        let cpu = &mut self.cpus[id.0 as usize];
        if cpu.is_idle() {
            cpu.clock = cpu.clock.max(task.runnable_since);
        }
        cpu.queue.enqueue(found, &mut task.entity, Enqueue::Moved, &self.periods);
        self.preempt_for(id, found);
    }

    /// The run time of who runs on a CPU is counted before somebody comes or goes, who keeps its distance from that
    /// (`update_curr` in `enqueue_entity`). One that was alone has had its ticks; the first after `at` is still to come.
    pub(super) fn account_running(&mut self, id: CpuId, at: Time) {
        let cpu = &mut self.cpus[id.0 as usize];
        let Some(running) = cpu.running else { return };
        let running = &mut self.tasks[running.0 as usize].entity;
        cpu.need_resched |= cpu.queue.account(running, cpu.clock, &self.periods);
        if !cpu.has_waiting() {
            cpu.next_tick = cpu.tick_after(at.min(cpu.clock), &self.periods);
        }
    }

    /// Shall one that has just come to a CPU run at once (`check_preempt_curr`)?
    pub(super) fn preempt_for(&mut self, id: CpuId, come: TaskId) {
        let cpu = &mut self.cpus[id.0 as usize];
        if let Some(running) = cpu.running {
            let [running, come_task] =
                self.tasks.get_disjoint_mut([running.0 as usize, come.0 as usize]).expect("two tasks");
            cpu.need_resched |= cpu.queue.preempts(&running.entity, come, &come_task.entity, &self.periods);
        }
    }
}
