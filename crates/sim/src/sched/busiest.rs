//! Linux: kernel/sched/fair.c (v4.1): `find_busiest_group`, `calculate_imbalance`, `find_busiest_queue`: the CPU from which
//! another one takes tasks over, and how many.
//!
//! Differs: from 5.3 on loads are still seen with delay; since the rework of 5.5, which is in the rules of 5.8, tasks are
//! counted, whatever caches their CPUs share. From 4.3 to 5.4 a CPU's usage is of the tasks that are there, not of those that
//! were. What interrupts take of a CPU does not make it smaller (`scale_rt_capacity`).

use std::cmp::Reverse;

use units::{CpuId, Time};

use super::{
    Cpu,
    domains::{CpuGroup, number},
};
use crate::{runqueue::NICE_0, world::World};

/// If tasks are counted, a busy CPU takes one over from a CPU with this number more: half of the difference is one.
const IMBALANCE: usize = 2;

/// A group of CPUs as a CPU sees it (`struct sg_lb_stats`).
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The load as seen, biased towards leaving tasks where they are (`group_load`).
    load: u64,
    /// The load as it is (`sum_weighted_load`).
    weight: u64,
    tasks: u64,
    cpus: u64,
    /// Number of tasks that the CPUs run at full speed (`group_capacity`).
    capacity: u64,
    /// Number of idle CPUs.
    idle: u64,
    /// The group has more tasks than it can run (`group_is_overloaded`).
    is_overloaded: bool,
    /// The group could run more tasks (`group_has_capacity`).
    has_room: bool,
}

impl Group {
    fn mean(&self) -> u64 {
        self.load / self.cpus
    }

    /// The mean load of a task (`load_per_task`).
    fn each(&self) -> u64 {
        self.weight / self.tasks.max(1)
    }

    /// How much of this load another group shall take over: as much as brings one of them to the mean but leaves no CPU
    /// without a task, or one task if that is less (`calculate_imbalance`, `fix_small_imbalance`).
    fn too_much_for(&self, local: &Self, mean: u64) -> u64 {
        let both_are_full = self.is_overloaded && local.is_overloaded;
        let spare = if both_are_full { (self.tasks - self.capacity.min(self.tasks)) * NICE_0 } else { u64::MAX };
        let above = self.mean().saturating_sub(mean).min(spare) * self.cpus;
        let too_much = above.min(mean.saturating_sub(local.mean()) * local.cpus);
        let each = self.each();
        let counts = if local.tasks > 0 && each > local.each() { 1 } else { 2 };
        let helps = self.mean() + each / self.cpus >= local.mean() + counts * each / self.cpus;
        if too_much < each && helps { each } else { too_much }
    }
}

/// The amount that one CPU shall take over from another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// One task.
    Task,
    /// Tasks of this weight; half as much is better than nothing.
    Load(u64),
}

/// The state of the CPU that looks at others (`enum cpu_idle_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looker {
    /// A busy CPU, at one of its ticks.
    Busy,
    /// A CPU that has been idle for a while, for which another CPU looks.
    Idle,
    /// A CPU whose last task has just left it.
    NewlyIdle,
}

impl World {
    /// The CPU that another one takes tasks over from, and how much.
    pub(super) fn busiest(&self, id: CpuId, level: usize, at: Time, looker: Looker) -> Option<(CpuId, Amount)> {
        let kernel = self.cpus[id.0 as usize].kernel;
        if self.kernels[kernel].variant().sched_compares_loads {
            return self.busiest_by_load(id, level, at, looker);
        }
        if level == 0 { self.busiest_by_number(id) } else { None }
    }

    /// The choice from 5.5 on (`group_has_spare`): a CPU that has some tasks more gives one away, or a waiting one to an idle
    /// CPU.
    fn busiest_by_number(&self, id: CpuId) -> Option<(CpuId, Amount)> {
        let all = self.kernels[self.cpus[id.0 as usize].kernel].cpu_ids();
        let others = all.filter(|other| *other != id && self.has_for(id, *other));
        let tasks = |of: CpuId| self.cpus[of.0 as usize].tasks();
        let found = others.max_by_key(|other| (tasks(*other), Reverse(*other)))?;
        (tasks(found) >= tasks(id) + IMBALANCE.min(1 + tasks(id))).then_some((found, Amount::Task))
    }

    /// The choice before 5.5 (`find_busiest_group`, `calculate_imbalance`, `find_busiest_queue`).
    fn busiest_by_load(&self, id: CpuId, level: usize, at: Time, looker: Looker) -> Option<(CpuId, Amount)> {
        let kernel = self.cpus[id.0 as usize].kernel;
        let is_idle = looker != Looker::Busy;
        let mut groups = self.kernels[kernel].domains.groups(id, level);
        let own = groups.next()?;
        if looker != Looker::NewlyIdle {
            // Only one CPU of a group looks for the whole group (`should_we_balance`): an idle one, or the first.
            let looks = own.cpus.iter().find(|cpu| self.cpus[**cpu].is_idle()).or(own.cpus.first())?;
            if *looks != id.0 as usize {
                return None;
            }
        }
        let local = self.sum(own, level, (is_idle, true), at);
        let by_usage = self.kernels[kernel].variant().sched_overload_by_usage;
        let spreads = local.has_room && self.kernels[kernel].domains.spreads(level, by_usage);
        let few = if self.kernels[kernel].variant().sched_evens_out_two { local.tasks + 1 } else { 1 };
        let others = groups.map(|group| {
            let sum = self.sum(group, level, (is_idle, false), at);
            (Group { is_overloaded: sum.is_overloaded || (spreads && sum.tasks > few), ..sum }, group)
        });
        let counts = |group: &Group| group.is_overloaded || (by_usage && group.load > 0);
        let rank = |group: &Group| (group.is_overloaded, group.mean());
        let (mut load, mut cpus, mut found) = (local.load, local.cpus, None::<(Group, &CpuGroup)>);
        for (group, of) in others {
            (load, cpus) = (load + group.load, cpus + group.cpus);
            // The first of equal groups (`update_sd_pick_busiest`).
            if counts(&group) && found.is_none_or(|(first, _)| rank(&group) > rank(&first)) {
                found = Some((group, of));
            }
        }
        let mean = load / cpus;
        let (busiest, group) = found?;
        // A CPU that would idle beside others that have too much takes something in any case.
        let is_forced = looker == Looker::NewlyIdle && local.has_room && busiest.is_overloaded;
        let has_less = local.mean() < busiest.mean() && local.mean() < mean;
        let stands_out = if looker == Looker::Idle {
            // More tasks than CPUs, however few tasks a core runs at full speed (`group_weight`).
            let has_too_many = if by_usage { busiest.is_overloaded } else { busiest.tasks > busiest.cpus };
            has_too_many || local.idle > busiest.idle + 1
        } else {
            100 * busiest.mean() > self.kernels[kernel].domains.imbalance_pct(level) * local.mean()
        };
        let takes = is_forced || (has_less && stands_out);
        if !takes {
            return None;
        }
        let too_much = busiest.too_much_for(&local, mean);
        // A task that runs alone may be pushed away, once looks have failed.
        let is_alone = |cpu: CpuId| {
            let there = &self.cpus[cpu.0 as usize];
            there.tasks() == 1 && there.running.is_some() && self.load(cpu, at) <= too_much
        };
        let all = group.cpus.iter().map(|cpu| number(*cpu));
        let found = all
            .filter(|cpu| self.has_for(id, *cpu) || is_alone(*cpu))
            .max_by_key(|cpu| (self.load(*cpu, at), Reverse(*cpu)))?;
        Some((found, Amount::Load(too_much)))
    }

    /// Whether a task waits for a CPU that may run on another one. (If there are only others, the kernel looks elsewhere,
    /// `LBF_ALL_PINNED`.)
    pub(super) fn has_for(&self, id: CpuId, from: CpuId) -> bool {
        self.cpus[from.0 as usize].queue.find(|task| self.tasks[task.0 as usize].may_run_on(id)).is_some()
    }

    /// Sums over a group, which may be the CPU's own, biased towards leaving tasks where they are, unless the CPU is idle
    /// (`source_load`, `target_load`).
    fn sum(&self, group: &CpuGroup, level: usize, (is_idle, is_own): (bool, bool), at: Time) -> Group {
        let kernel = &self.kernels[self.cpus[group.cpus[0]].kernel];
        let periods = kernel.periods();
        let add = |(load, weight): (u64, u64), cpu: &Cpu| {
            let now = cpu.load(&self.tasks, at, &periods);
            let delayed = || cpu.delayed(now, at, &periods);
            let seen = match (is_idle, is_own) {
                (true, _) => now,
                (false, true) => now.max(delayed()),
                (false, false) => now.min(delayed()),
            };
            (load + seen, weight + now)
        };
        let members = || group.cpus.iter().map(|cpu| &self.cpus[*cpu]);
        let (tasks, cpus) = (members().map(|cpu| cpu.tasks() as u64).sum::<u64>(), group.cpus.len() as u64);
        let by_usage = kernel.variant().sched_overload_by_usage;
        let usage: u64 = if by_usage { members().map(|cpu| cpu.usage(&self.tasks, at, &periods)).sum() } else { 0 };
        let (has, needs) = (100 * cpus * NICE_0, usage * kernel.domains.imbalance_pct(level));
        let (load, weight) = members().fold((0, 0), add);
        let capacity = if by_usage { cpus } else { group.capacity() };
        Group {
            load,
            weight,
            tasks,
            cpus,
            capacity,
            idle: members().filter(|cpu| cpu.is_idle()).count() as u64,
            is_overloaded: tasks > capacity && (!by_usage || has < needs),
            has_room: tasks < capacity || (by_usage && has > needs),
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Picos;

    use super::*;
    use crate::{
        ids::{HOST, NO_SPACE, TaskId},
        runqueue::{Enqueue, Nice},
        task::Task,
    };

    /// Two CPUs that share a cache. The first has tasks that have slept until `at`, and runs one of them.
    fn woken(rules: &str, tasks: u32, at: Time) -> World {
        let mut world = crate::tests::world_of(rules, vec![vec![0, 1]]);
        for id in (0..tasks).map(TaskId) {
            world.tasks.push(Task::new(CpuId(0), vec![CpuId(0)], (HOST, NO_SPACE), Nice::default()));
            world.wake(id, Time(0), Enqueue::New);
            world.tasks[id.0 as usize].entity.sleeps(Time(0));
            world.tasks[id.0 as usize].entity.waits(Enqueue::Woken, at, &world.kernels[HOST].periods());
            world.tasks[id.0 as usize].allowed.clear();
        }
        world.schedule(CpuId(0));
        world
    }

    #[test]
    fn from_4_1_on_overload_needs_tasks_that_ran_nearly_always() {
        let second = Time(Picos::from_secs(1).0);
        for (rules, looker, takes) in
            [("v3.16", Looker::Idle, true), ("v4.1", Looker::Idle, false), ("v4.1", Looker::NewlyIdle, true)]
        {
            // Some milliseconds later the running task has some weight, and the waiting ones have none yet.
            let world = woken(rules, 2, second);
            let found = world.busiest(CpuId(1), 0, second + Picos::from_micros(10_000), looker);
            assert_eq!(found.is_some(), takes, "{rules} {looker:?}");
        }
        // For tasks that have always run there is no difference.
        for rules in ["v3.16", "v4.1"] {
            let world = woken(rules, 2, Time(0));
            assert!(world.busiest(CpuId(1), 0, Time(1), Looker::Idle).is_some(), "{rules}");
        }
    }

    #[test]
    fn what_a_task_weighs_is_not_seen_with_delay() {
        let group = Group { load: 900, weight: 1200, tasks: 2, cpus: 1, capacity: 1, ..Group::default() };
        let local = Group { load: 600, weight: 600, tasks: 1, cpus: 1, capacity: 1, ..Group::default() };
        // 900 and 600: with a task of 600 moved it would be 300 and 1200, which helps nobody; the part above the mean is left.
        assert_eq!(group.too_much_for(&local, 750), 150);
        // With 1200, both groups have the same after as before: one task moves.
        assert_eq!(Group { load: 1200, ..group }.too_much_for(&local, 900), 600);
    }
}
