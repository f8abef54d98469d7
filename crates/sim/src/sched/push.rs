//! Linux: need_active_balance() and active_load_balance_cpu_stop(), nohz_kick_needed(), kernel/sched/fair.c (v3.9, v4.1).
//! Differs: an idle CPU is looked for as long as there is any busy CPU (up to 5.4 there have to be two that share a cache); the
//! stopper thread takes no time.

use units::{CpuId, Time};

use crate::world::World;

/// An instant that never comes.
const NEVER: Time = Time(u64::MAX);

impl World {
    /// At a tick: if a CPU is idle, busy CPUs and idle ones look at others. CPUs that are compared one by one only need that
    /// while tasks wait, and the ticks of waiting tasks see to it.
    #[cold]
    #[inline(never)]
    pub(crate) fn kick_idle(&mut self, id: CpuId, now: Time) {
        let number = self.cpus[id.0 as usize].kernel;
        let kernel = &mut self.kernels[number];
        if !kernel.variant().sched_compares_loads || kernel.domains.levels() < 2 {
            kernel.next_kick = NEVER;
            return;
        }
        kernel.next_kick = kernel.ticks.after(now);
        let cpus = kernel.cpus.clone();
        if cpus.clone().any(|cpu| self.cpus[cpu].is_idle()) {
            self.balance(id);
        }
    }

    /// Pushes the running task of a CPU away, if that was asked for. Returns false if the CPU goes on with what it ran.
    #[inline]
    pub(crate) fn push_away(&mut self, id: CpuId) -> bool {
        self.cpus[id.0 as usize].push_to.is_some() && self.push_running(id)
    }

    #[cold]
    #[inline(never)]
    fn push_running(&mut self, id: CpuId) -> bool {
        let (Some(to), Some(running)) = (self.cpus[id.0 as usize].push_to.take(), self.cpus[id.0 as usize].running)
        else {
            return false;
        };
        self.tasks[running.0 as usize].may_run_on(to) && self.leave_for(running, (id, to))
    }
}

#[cfg(test)]
mod tests {
    use units::Picos;

    use super::*;
    use crate::{
        ids::{HOST, NO_SPACE, TaskId},
        runqueue::{Enqueue, Nice},
        sched::Topology,
        task::{Task, TaskState},
    };

    /// Two nodes of two CPUs; both CPUs of the first one run a task each, which may run on `allowed`.
    fn lopsided(rules: &str, allowed: &[CpuId]) -> World {
        let caches = vec![vec![0, 1], vec![2, 3]];
        let mut world = crate::tests::world_of(rules, caches.clone());
        let nodes = vec![(vec![0, 1], vec![10, 20]), (vec![2, 3], vec![20, 10])];
        world.set_domains(&Topology { caches, nodes, ..Topology::default() });
        for id in [0, 1] {
            run_alone(&mut world, id, allowed);
        }
        world
    }

    /// Lets a task run on the CPU of its number.
    fn run_alone(world: &mut World, id: u32, allowed: &[CpuId]) {
        let mut task = Task::new(CpuId(id), vec![CpuId(id)], (HOST, NO_SPACE), Nice::default());
        task.state = TaskState::User;
        world.tasks.push(task);
        world.wake(TaskId(id), Time(0), Enqueue::New);
        world.schedule(CpuId(id));
        world.tasks[id as usize].allowed = allowed.to_vec();
    }

    /// The CPU of each task after this number of ticks, of which each CPU has seen the end.
    fn after(world: &mut World, ticks: u32) -> [u32; 2] {
        let period = world.kernels[HOST].ticks.period;
        for _ in 0..ticks {
            for cpu in 0..4 {
                let clock = world.cpus[cpu].clock;
                world.cpus[cpu].clock = clock + period;
            }
            let now = world.cpus[0].clock;
            world.kick_idle(CpuId(0), now);
            for cpu in (0..4).map(CpuId) {
                world.push_away(cpu);
                if !world.cpus[cpu.0 as usize].is_idle() {
                    world.schedule(cpu);
                }
            }
        }
        [0, 1].map(|id: usize| world.tasks[id].cpu.0)
    }

    #[test]
    fn a_task_that_runs_alone_is_pushed_to_an_idle_node() {
        for rules in ["v3.9", "v4.1", "v5.0"] {
            let mut world = lopsided(rules, &[]);
            assert_eq!(after(&mut world, 2), [0, 1], "{rules}: looks have not failed often enough");
            let places = after(&mut world, 20);
            let is_far = |cpu: &u32| *cpu >= 2;
            assert_eq!(places.iter().filter(|cpu| is_far(cpu)).count(), 1, "{rules}: {places:?}");
            assert_eq!(after(&mut world, 100), places, "{rules}: one for each node is even");
        }
    }

    #[test]
    fn a_task_that_may_not_run_there_stays() {
        let mut world = lopsided("v4.1", &[CpuId(0), CpuId(1)]);
        assert_eq!(after(&mut world, 100), [0, 1]);
    }

    #[test]
    fn nobody_is_kicked_where_cpus_are_compared_one_by_one() {
        let mut world = crate::tests::world_of("v4.1", vec![vec![0, 1, 2, 3]]);
        world.kick_idle(CpuId(0), Time(0));
        assert_eq!(world.kernels[HOST].next_kick, NEVER);
        let mut world = lopsided("v6.1", &[]);
        assert_eq!(after(&mut world, 100), [0, 1], "from 5.5 on it is not modelled");
    }

    /// Two cores of two threads, with a task on each of the first CPUs; the CPU of each task after some time.
    fn on_cores(rules: &str, tasks: u32) -> Vec<u32> {
        let (caches, cores) = (vec![vec![0, 1, 2, 3]], vec![vec![0, 1], vec![2, 3]]);
        let mut world = crate::tests::world_of(rules, caches.clone());
        world.set_domains(&Topology { cores, caches, ..Topology::default() });
        for id in 0..tasks {
            run_alone(&mut world, id, &[]);
        }
        after(&mut world, 100);
        world.tasks.iter().take(tasks as usize).map(|task| task.cpu.0).collect()
    }

    #[test]
    fn cores_share_two_tasks_and_from_4_1_to_4_11_they_exchange_the_third() {
        for (rules, is_restless) in [("v3.9", false), ("v4.1", true), ("v4.12", false), ("v5.0", false)] {
            let two = on_cores(rules, 2);
            assert_eq!(two.iter().filter(|cpu| **cpu >= 2).count(), 1, "{rules}: {two:?}");
            let three = on_cores(rules, 3);
            assert_eq!(three != [0, 1, 2], is_restless, "{rules}: {three:?}");
        }
    }

    #[test]
    fn a_cpu_is_asked_once() {
        let mut world = lopsided("v4.1", &[]);
        assert!(world.ask_to_push(CpuId(0), CpuId(2)));
        assert!(!world.ask_to_push(CpuId(0), CpuId(3)), "it is under way");
        assert!(!world.ask_to_push(CpuId(2), CpuId(3)), "nothing runs there");
        world.cpus[0].clock = world.cpus[0].clock + Picos::from_micros(1);
        assert!(world.push_away(CpuId(0)));
        assert_eq!((world.tasks[0].cpu, world.cpus[0].push_to), (CpuId(2), None));
    }
}
