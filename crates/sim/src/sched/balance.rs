//! Linux: kernel/sched/fair.c (v4.1): `load_balance`, `rebalance_domains`, `idle_balance`: which CPU takes tasks over from which.
//! Differs: where tasks are counted instead of loads (rework of 5.5, in the rules of 5.8), a CPU that becomes idle looks however
//! short its idle times are (`avg_idle`), an idle CPU looks at each tick of CPUs with waiting tasks, what idle CPUs see does not
//! change when they look next, and no running task is pushed away. The cost of a look never keeps a CPU from it
//! (`max_newidle_lb_cost`). A CPU that runs a single task has no ticks, so its looks are made up for when another CPU has a task
//! too many, or is idle. From 4.15 on the longest-waiting task is the one that has run least.

use std::cmp::Reverse;

use units::{CpuId, Time};

use super::{
    balancing::{MIGRATION_COST, Seen},
    busiest::{Amount, Looker},
};
use crate::{ids::TaskId, runqueue::Enqueue, world::World};

/// Failed looks, beyond those after which a CPU takes a task with a hot cache, until a running task is pushed away
/// (`need_active_balance`).
const PATIENCE: u32 = 2;

impl World {
    /// Updates a CPU's load before a task comes or goes: up to here the load was unchanged.
    pub(super) fn note_load(&mut self, id: CpuId, at: Time) {
        let kernel = self.cpus[id.0 as usize].kernel;
        if self.kernels[kernel].variant().sched_compares_loads {
            let (cpu, periods) = (&mut self.cpus[id.0 as usize], self.kernels[kernel].periods());
            let now = cpu.load(&self.tasks, at, &periods);
            cpu.balancing.load = cpu.delayed(now, at, &periods);
            cpu.balancing.load_at = cpu.balancing.load_at.max(at);
        }
    }

    /// Notes that a busy CPU has looked at others in vain at all its ticks but the last, as otherwise they would have been looked
    /// for. A CPU with waiting tasks may not have come to the last tick yet.
    pub(super) fn looked_in_vain(&mut self, id: CpuId, now: Time) {
        let cpu = &mut self.cpus[id.0 as usize];
        let kernel = &self.kernels[cpu.kernel];
        let (domains, periods) = (&kernel.domains, kernel.periods());
        let until = Time(now.0.saturating_sub(periods.ticks.period.0));
        for level in 0..domains.levels() {
            cpu.found_nothing(until, level, domains.span(id, level), &periods);
        }
    }

    /// Takes over a task that waits elsewhere, for a CPU that becomes idle, unless its recent idle times were short
    /// (`idle_balance`). Returns false if there is none.
    pub(super) fn pull(&mut self, id: CpuId) -> bool {
        let cpu = &self.cpus[id.0 as usize];
        let (at, will_wake_soon) = (cpu.clock, cpu.balancing.mean_idle < MIGRATION_COST);
        let kernel = &self.kernels[cpu.kernel];
        let (levels, looks) = (kernel.domains.levels(), !(kernel.variant().sched_compares_loads && will_wake_soon));
        let got = looks && (0..levels).any(|level| self.look(id, level, at, Looker::NewlyIdle).got);
        self.cpus[id.0 as usize].balancing.idle_since = (!got).then_some(at);
        got
    }

    /// At the ticks of a CPU with waiting tasks: CPUs that have less take tasks over, idle ones every few milliseconds
    /// (`nohz_idle_balance`), busy ones if their look was due since the last tick (`load_balance`), in the order of their looks.
    /// A fifth task on four CPUs goes round that way.
    #[inline(never)]
    pub(super) fn balance(&mut self, id: CpuId) {
        let (id_of_kernel, now) = (self.cpus[id.0 as usize].kernel, self.cpus[id.0 as usize].clock);
        let kernel = &self.kernels[id_of_kernel];
        let (all, levels, periods) = (kernel.cpu_ids(), kernel.domains.levels(), kernel.periods());
        let compares_loads = kernel.variant().sched_compares_loads;
        for other in all.clone() {
            if !self.cpus[other.0 as usize].is_idle() {
                self.looked_in_vain(other, now);
            }
            for level in 0..levels {
                let (cpu, domains) = (&self.cpus[other.0 as usize], &self.kernels[id_of_kernel].domains);
                let span = domains.span(other, level);
                if cpu.is_idle() && (!compares_loads || cpu.is_looked_for(now, level, span, &periods)) {
                    self.look(other, level, now, Looker::Idle);
                }
            }
        }
        let due = |world: &Self, other: CpuId, level: usize| {
            let (cpu, domains) = (&world.cpus[other.0 as usize], &world.kernels[id_of_kernel].domains);
            let next = cpu.next_balance(level, domains.span(other, level), &periods);
            (!cpu.is_idle() && next <= now).then_some((next, other, level))
        };
        let looks = all.flat_map(|cpu| (0..levels).map(move |level| (cpu, level)));
        // Bound: each CPU looks once in a tick at each level.
        while let Some((next, other, level)) = looks.clone().filter_map(|(cpu, level)| due(self, cpu, level)).min() {
            let seen = self.look(other, level, now, Looker::Busy);
            self.cpus[other.0 as usize].looked(next, level, seen);
        }
    }

    /// Looks at the others of a domain for a CPU.
    fn look(&mut self, id: CpuId, level: usize, at: Time, looker: Looker) -> Seen {
        let found = self.busiest(id, level, at, looker);
        let (saw, got) = (found.is_some(), found.is_some_and(|found| self.take_some(id, found, (level, looker), at)));
        let cpu = &mut self.cpus[id.0 as usize];
        let (kernel, last) = (&self.kernels[cpu.kernel], &mut cpu.balancing.looks[level]);
        last.failed = match (saw, got) {
            // That happens too often to mean anything.
            (true, false) if looker == Looker::NewlyIdle => last.failed,
            (true, false) => last.failed + 1,
            _ => 0,
        };
        let (compares_loads, tries) = (kernel.variant().sched_compares_loads, kernel.domains.nice_tries(level));
        let (has_failed, tick) = (last.failed > tries + PATIENCE, kernel.ticks.last(at));
        let asked = found.filter(|_| compares_loads && has_failed && looker != Looker::NewlyIdle);
        let pushes = asked.is_some_and(|(from, _)| self.ask_to_push(from, id));
        let seen = Seen { is_uneven: saw, got, pushes };
        let last = &mut self.cpus[id.0 as usize].balancing.looks[level];
        if pushes {
            last.failed = tries + 1;
        }
        if compares_loads {
            last.saw_imbalance = seen.is_pressing();
            if looker == Looker::Idle {
                last.last = tick;
            }
        }
        seen
    }

    /// Asks a CPU to push its running task to another one. Returns false if the task may not run there, or if the CPU has been
    /// asked before.
    pub(super) fn ask_to_push(&mut self, from: CpuId, to: CpuId) -> bool {
        let Some(running) = self.cpus[from.0 as usize].running else { return false };
        if !self.tasks[running.0 as usize].may_run_on(to) {
            return false;
        }
        let there = &mut self.cpus[from.0 as usize];
        let is_asked = there.push_to.is_some();
        there.push_to.get_or_insert(to);
        !is_asked
    }

    /// Takes as much over from another CPU as is to be had (`detach_tasks`). Returns false if that is nothing.
    fn take_some(
        &mut self,
        id: CpuId,
        (from, amount): (CpuId, Amount),
        (level, looker): (usize, Looker),
        at: Time,
    ) -> bool {
        let cpu = &self.cpus[id.0 as usize];
        let (was_idle, periods) = (cpu.is_idle(), self.kernels[cpu.kernel].periods());
        let tries = self.kernels[cpu.kernel].domains.nice_tries(level);
        let takes_hot = cpu.balancing.looks[level].failed > tries;
        let (mut tasks, mut taken) = (0, 0);
        // Bound: each turn takes a task.
        loop {
            let left = match amount {
                Amount::Task if tasks > 0 => break,
                Amount::Task => u64::MAX,
                Amount::Load(load) if taken >= load => break,
                Amount::Load(load) => load - taken,
            };
            // A task that is about to run where it is stays there.
            if self.cpus[from.0 as usize].tasks() <= 1 {
                break;
            }
            let Some(found) = self.next_to_move((id, level), from, at, (left, takes_hot, looker)) else { break };
            // A task that has slept for long has no weight yet.
            tasks += 1;
            taken += self.tasks[found.0 as usize].entity.load(at, &periods);
            self.take_over(id, found);
        }
        if tasks > 0 && was_idle {
            let cpu = &mut self.cpus[id.0 as usize];
            cpu.clock = cpu.clock.max(at);
            cpu.begin_to_be_busy();
            cpu.ready(id, &mut self.clock);
        }
        tasks > 0
    }

    /// The first of the waiting tasks that may be moved: up to 4.14 the one that came last; a task that is passed by counts as
    /// the first that came, from then on (`cfs_tasks`).
    fn next_to_move(
        &mut self,
        (id, level): (CpuId, usize),
        from: CpuId,
        at: Time,
        (left, takes_hot, looker): (u64, bool, Looker),
    ) -> Option<TaskId> {
        let kernel = self.cpus[id.0 as usize].kernel;
        let periods = self.kernels[kernel].periods();
        let movable = |world: &Self, found: TaskId| {
            let task = &world.tasks[found.0 as usize];
            let is_hot = task.was_preempted && at < task.runnable_since + MIGRATION_COST;
            let is_held = || match world.numa_holds(found, (from, id), (level, looker)) {
                Some(holds) => holds,
                None => is_hot,
            };
            task.may_run_on(id) && (takes_hot || !is_held()) && task.entity.load(at, &periods) / 2 <= left
        };
        let there = &self.cpus[from.0 as usize];
        if !self.kernels[kernel].variant().sched_moves_latest {
            return there.queue.find(|found| movable(self, found));
        }
        let mut all: Vec<TaskId> = there.queue.waiting().chain(there.running).collect();
        all.sort_by_key(|task| Reverse(self.tasks[task.0 as usize].entity.arrived));
        for task in all {
            if self.cpus[from.0 as usize].running != Some(task) && movable(self, task) {
                return Some(task);
            }
            self.passed_by -= 1;
            self.tasks[task.0 as usize].entity.arrived = self.passed_by;
        }
        None
    }

    /// Moves a waiting task to another CPU (`detach_task`, `attach_task`).
    pub(super) fn take_over(&mut self, id: CpuId, found: TaskId) {
        let kernel = &self.kernels[self.cpus[id.0 as usize].kernel];
        let (periods, tracks_loads) = (kernel.periods(), kernel.tracks_loads());
        let from = std::mem::replace(&mut self.tasks[found.0 as usize].cpu, id);
        let at = self.cpus[from.0 as usize].clock;
        self.count_move(found, from, id);
        self.account_running(from, at);
        self.account_running(id, at);
        self.note_load(from, at);
        self.note_load(id, at);
        let task = &mut self.tasks[found.0 as usize];
        self.cpus[from.0 as usize].queue.remove(found, &mut task.entity, &periods);
        let cpu = &mut self.cpus[id.0 as usize];
        if cpu.is_idle() {
            cpu.clock = cpu.clock.max(task.runnable_since);
        }
        if tracks_loads {
            task.entity.waits(Enqueue::Moved, cpu.clock, &periods);
        }
        cpu.queue.enqueue(found, &mut task.entity, Enqueue::Moved, &periods);
        self.moves_between(found, from, id);
        self.arrived(found);
        self.preempt_for(id, found);
    }

    /// Numbers the arrival of a task at its CPU.
    pub(super) fn arrived(&mut self, id: TaskId) {
        self.arrivals += 1;
        self.tasks[id.0 as usize].entity.arrived = self.arrivals;
    }

    /// Counts the run time of a CPU's running task before a task comes or goes, which keeps its distance from it (`update_curr`
    /// in `enqueue_entity`). A task that was alone has had its ticks; the first tick after `at` is still to come.
    pub(super) fn account_running(&mut self, id: CpuId, at: Time) {
        let cpu = &mut self.cpus[id.0 as usize];
        let Some(running) = cpu.running else { return };
        let (kernel, running) = (&self.kernels[cpu.kernel], &mut self.tasks[running.0 as usize].entity);
        cpu.need_resched |= cpu.queue.account(running, cpu.clock, &kernel.periods());
        if !cpu.has_waiting() {
            cpu.next_tick = kernel.ticks.after(at.min(cpu.clock));
        }
    }

    /// Preempts the running task if one that has just come should run at once (`check_preempt_curr`).
    pub(super) fn preempt_for(&mut self, id: CpuId, come: TaskId) {
        let cpu = &mut self.cpus[id.0 as usize];
        if let Some(running) = cpu.running {
            let [running, come_task] =
                self.tasks.get_disjoint_mut([running.0 as usize, come.0 as usize]).expect("two tasks");
            let periods = self.kernels[cpu.kernel].periods();
            cpu.need_resched |= cpu.queue.preempts(&running.entity, come, &come_task.entity, &periods);
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::variant;
    use units::Picos;

    use super::*;
    use crate::{
        ids::{HOST, NO_SPACE},
        runqueue::Nice,
        sched::{Cpu, balancing::MOST_IDLE},
        task::Task,
    };

    /// A look that saw an imbalance, and got nothing of it.
    const UNEVEN: Seen = Seen { is_uneven: true, ..Seen::NOTHING };

    /// Four CPUs, of which two each share a cache; the first has four tasks, and runs one of them.
    fn crowded(rules: &str) -> World {
        let mut world = crate::tests::world_of(rules, vec![vec![0, 1], vec![2, 3]]);
        for id in (0..4).map(TaskId) {
            let mut task = Task::new(CpuId(0), vec![CpuId(0)], (HOST, NO_SPACE), Nice::default());
            task.runnable_since = Time(0);
            world.tasks.push(task);
            world.wake(id, Time(0), Enqueue::Woken);
            world.tasks[id.0 as usize].allowed.clear();
        }
        world.schedule(CpuId(0));
        world
    }

    #[test]
    fn one_that_is_woken_on_its_way_to_sleep_is_queued_once() {
        let mut world = crowded("v5.0");
        let running = world.cpus[0].running.unwrap();
        let waiting = |world: &World| world.cpus.iter().map(|cpu| cpu.queue.waiting().count()).collect::<Vec<_>>();
        let before = waiting(&world);
        world.wake(running, Time(1), Enqueue::Woken);
        assert_eq!((waiting(&world), world.cpus[0].running), (before, Some(running)));
    }

    fn millis(millis: u64) -> Time {
        Time(Picos::from_micros(1000 * millis).0)
    }

    /// The tasks of a CPU.
    fn tasks_of(world: &World, cpu: CpuId) -> Vec<u32> {
        (0..4).filter(|id| world.tasks[*id as usize].cpu == cpu).collect()
    }

    #[test]
    fn up_to_4_14_those_move_that_came_last() {
        for (rules, moved) in [("v4.1", [2, 3]), ("v5.0", [1, 2])] {
            let mut world = crowded(rules);
            assert!(world.pull(CpuId(1)));
            assert_eq!(tasks_of(&world, CpuId(1)), moved, "{rules}");
        }
    }

    #[test]
    fn a_cpu_that_becomes_idle_looks_though_its_neighbour_idles() {
        let mut world = crowded("v4.1");
        assert!(world.pull(CpuId(3)), "the other pair has four tasks");
        // But a CPU that has been idle leaves it to the first of its group.
        let mut world = crowded("v3.16");
        assert!(!world.look(CpuId(3), 1, Time(0), Looker::Idle).got);
        assert!(world.look(CpuId(2), 1, Time(0), Looker::Idle).got);
        // From 4.1 on both do: the neighbour, which idles too, is nearer.
        let mut world = crowded("v4.1");
        assert!(!world.look(CpuId(2), 1, Time(0), Looker::Idle).got);
    }

    #[test]
    fn a_cpu_that_takes_over_only_what_weighs_nothing_runs_it() {
        let mut world = crowded("v4.1");
        let at = Time(Picos::from_micros(10_000_000).0);
        for task in &mut world.tasks[1..] {
            task.entity.sleeps(Time(0));
            assert_eq!(task.entity.load(at, &world.kernels[HOST].periods()), 0);
        }
        world.cpus[1].clock = at;
        assert!(world.pull(CpuId(1)));
        assert!(world.cpus[1].has_waiting() && world.cpus[1].is_ordered);
    }

    #[test]
    fn one_that_has_idled_for_short_times_only_takes_nothing_over() {
        let micros = |micros| Time(Picos::from_micros(micros).0);
        for (times, pulls) in [(0, true), (5, true), (6, false)] {
            let mut world = crowded("v4.1");
            // The mean begins at 1 ms and loses an eighth each time: 0.51 ms after five times.
            for _ in 0..times {
                world.cpus[1].balancing.idle_since = Some(micros(7));
                world.cpus[1].count_idle(micros(7));
            }
            assert_eq!(world.pull(CpuId(1)), pulls, "{times} times");
            assert_eq!(world.cpus[1].balancing.idle_since.is_none(), pulls);
        }
        // The mean of a CPU that idles for long is at most 1 ms, and a wake-up that finds it busy changes nothing.
        let mut cpu = Cpu::new(HOST, variant::named("v4.1"));
        cpu.balancing.idle_since = Some(Time(0));
        cpu.count_idle(micros(1_000_000));
        assert_eq!(cpu.balancing.mean_idle, MOST_IDLE);
        cpu.count_idle(micros(1_000_001));
        assert_eq!(cpu.balancing.mean_idle, MOST_IDLE);
    }

    #[test]
    fn somebody_looks_for_an_idle_cpu_every_few_milliseconds() {
        let mut world = crowded("v4.1");
        // The CPU was looked for just now, in vain: in a domain of two CPUs the next look is due after 4 ms, at the next tick but
        // not before.
        world.look(CpuId(2), 0, Time(0), Looker::Idle);
        let cpu = &world.cpus[2];
        let due = |micros| cpu.is_looked_for(Time(Picos::from_micros(micros).0), 0, 2, &world.kernels[HOST].periods());
        assert_eq!([3_999, 4_000].map(due), [false, true]);
    }

    #[test]
    fn a_busy_cpu_balances_at_the_tick_after_its_interval() {
        let world = crowded("v4.1");
        let mut cpu = Cpu::new(HOST, variant::named("v4.1"));
        cpu.looked(millis(400), 0, UNEVEN);
        assert_eq!(cpu.next_balance(0, 2, &world.kernels[HOST].periods()), millis(400 + 2 * 32));
        cpu.looked(millis(464), 0, Seen::NOTHING);
        assert_eq!(cpu.next_balance(0, 2, &world.kernels[HOST].periods()), millis(464 + 2 * 2 * 32));
        for (rules, interval) in [("v5.8", 2 * 32), ("v5.10", 2 * 16 - 4)] {
            let periods = crowded(rules).kernels[HOST].periods();
            let mut cpu = Cpu::new(HOST, variant::named(rules));
            cpu.looked(millis(400), 0, UNEVEN);
            assert_eq!(cpu.next_balance(0, 2, &periods), millis(400 + interval), "{rules}");
        }
        // The CPU had no tick while it was idle.
        cpu.clock = millis(700);
        cpu.begin_to_be_busy();
        assert_eq!(cpu.next_balance(0, 2, &world.kernels[HOST].periods()), millis(704));
    }

    #[test]
    fn a_newly_idle_look_leaves_the_last_look_time() {
        let mut world = crowded("v4.1");
        let cpu = &mut world.cpus[1];
        cpu.looked(millis(400), 0, Seen::NOTHING);
        // The CPU's interval would end after 128 ms. Half of that is its interval after an imbalance, and has gone by.
        cpu.clock = millis(501);
        assert!(world.pull(CpuId(1)));
        let cpu = &mut world.cpus[1];
        assert!(cpu.balancing.looks[0].saw_imbalance);
        cpu.found_nothing(millis(501), 0, 2, &world.kernels[HOST].periods());
        assert_eq!(cpu.balancing.looks[0].last, millis(400));
        assert_eq!(cpu.next_balance(0, 2, &world.kernels[HOST].periods()), millis(504));
    }

    #[test]
    fn what_it_sees_and_does_not_get_does_not_either() {
        let mut world = crowded("v4.1");
        let alone = TaskId(4);
        world.tasks.push(Task::new(CpuId(1), vec![CpuId(1)], (HOST, NO_SPACE), Nice::default()));
        world.wake(alone, Time(0), Enqueue::New);
        world.schedule(CpuId(1));
        // The other waiting tasks have run just now, and stay where their cache is.
        for task in &mut world.tasks[..4] {
            (task.was_preempted, task.runnable_since) = (true, millis(501));
        }
        world.cpus[1].looked(millis(400), 0, Seen::NOTHING);
        world.cpus[1].clock = millis(501);
        world.leave(CpuId(1), alone);
        assert!(world.cpus[1].is_idle() && world.cpus[1].balancing.looks[0].saw_imbalance);
        assert_eq!(world.cpus[1].balancing.looks[0].last, millis(400));
    }

    #[test]
    fn a_look_at_what_is_balanced_ends_a_row_of_failures() {
        let mut cpu = Cpu::new(HOST, variant::named("v4.1"));
        cpu.balancing.looks[0].failed = 2;
        cpu.looked(Time(1), 0, UNEVEN);
        assert_eq!(cpu.balancing.looks[0].failed, 2);
        cpu.looked(Time(2), 0, Seen::NOTHING);
        assert_eq!(cpu.balancing.looks[0].failed, 0);
    }
}
