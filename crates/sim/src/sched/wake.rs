//! Linux: kernel/sched/fair.c (v4.1): `select_task_rq_fair` of a task that wakes up, `wake_affine`, `select_idle_sibling`; and
//! block/blk-softirq.c (v4.1): `__blk_complete_request`: which CPU it is that wakes a task whose disk has answered;
//! arch/x86/kernel/apic/apic_flat_64.c (v4.1): which one is interrupted.
//! Differs: from 4.14 on, whose rules compare other figures, a task wakes where it ran or beside that. A waker that sleeps right
//! after (`WF_SYNC`) makes no difference here. A kernel thread that waits for a disk wakes where it ran, as by a timer.

use units::{CpuId, Time};

use super::{domains::number, wakes::Wakes};
use crate::{ids::TaskId, world::World};

/// Most CPUs that are addressed as a set, of which the chipset picks the one to interrupt (`dest_LowestPrio`).
const FLAT: usize = 8;

impl World {
    /// The CPU on which the end of a disk's request is handled: the one that is interrupted, or if it shares no cache with the
    /// CPU that sent the request, the latter (`QUEUE_FLAG_SAME_COMP`, the default of `rq_affinity`). Assumptions: among equals
    /// the chipset picks one after the other, and if CPUs are too many for a set the first is interrupted.
    pub(crate) fn disk_answers(&mut self, asked: CpuId) -> CpuId {
        let kernel = &self.kernels[self.cpus[asked.0 as usize].kernel];
        let set = if kernel.cpus.len() <= FLAT { kernel.cpus.len() } else { 1 };
        let interrupted = number(kernel.cpus.start + self.disk_irqs % set);
        self.disk_irqs += 1;
        if kernel.domains.share_cache(interrupted, asked) { interrupted } else { asked }
    }

    /// Records that a task wakes another one, or that the idle task of an interrupted CPU does; a timer fires on the CPU where
    /// its task ran last.
    pub(super) fn note_wake(&mut self, id: TaskId, at: Time) {
        let waker = self.waker.unwrap_or(self.tasks[id.0 as usize].cpu);
        self.wakes_of(waker).record(id, at);
    }

    /// The record of wake-ups of the task that a CPU runs now.
    fn wakes_of(&mut self, cpu: CpuId) -> &mut Wakes {
        let cpu = &mut self.cpus[cpu.0 as usize];
        cpu.running.map_or(&mut cpu.idle_wakes, |task| &mut self.tasks[task.0 as usize].wakes)
    }

    /// The CPU for a task that wakes up at an instant: near the one that it ran on, or near the one that wakes it.
    pub(super) fn select_cpu(&self, id: TaskId, at: Time) -> CpuId {
        if let Some(cpu) = self.forced_cpu(id) {
            return cpu;
        }
        let kernel = self.tasks[id.0 as usize].kernel;
        if self.kernels[kernel].variant().sched_wake_affine_by_load
            && let Some(waker) = self.waker
        {
            return self.select_near(id, waker, at);
        }
        let task = &self.tasks[id.0 as usize];
        let last = &self.cpus[task.cpu.0 as usize];
        if last.is_idle() || last.queue.keeps(id, &task.entity) {
            return task.cpu;
        }
        // select_idle_core, select_idle_cpu
        let domains = &self.kernels[kernel].domains;
        let idles = |cpu: CpuId| self.cpus[cpu.0 as usize].is_idle();
        let mut ids = self.kernels[kernel]
            .cpu_ids()
            .filter(|cpu| idles(*cpu) && task.may_run_on(*cpu) && domains.share_cache(*cpu, task.cpu));
        let is_core_idle = |cpu: &CpuId| self.cpus[cpu.0 as usize].siblings.iter().all(|other| idles(*other));
        ids.clone().find(is_core_idle).or_else(|| ids.next()).unwrap_or(task.cpu)
    }

    /// Up to 4.13: the CPU that wakes it, if that has nothing to do, or much less than the one that the task ran on; or an idle
    /// CPU beside it.
    fn select_near(&self, id: TaskId, waker: CpuId, at: Time) -> CpuId {
        let kernel = self.tasks[id.0 as usize].kernel;
        let task = &self.tasks[id.0 as usize];
        let last = task.cpu;
        let is_pulled = waker != last && task.may_run_on(waker) && self.is_affine(id, waker, at);
        let target = if is_pulled { waker } else { last };
        let idles = |cpu: CpuId| self.cpus[cpu.0 as usize].is_idle();
        if idles(target) {
            return target;
        }
        if idles(last) && self.kernels[kernel].domains.share_cache(last, target) {
            return last;
        }
        self.idle_beside(id, target).unwrap_or(target)
    }

    /// An idle CPU that shares the cache of a busy one: of a wholly idle core, else a thread of the busy one's core
    /// (`select_idle_sibling`).
    fn idle_beside(&self, id: TaskId, target: CpuId) -> Option<CpuId> {
        let task = &self.tasks[id.0 as usize];
        let domains = &self.kernels[task.kernel].domains;
        let idles = |cpu: &&usize| self.cpus[**cpu].is_idle();
        let may_have = |cpu: &usize| number(*cpu) != target && task.may_run_on(number(*cpu));
        let mut idle_cores = domains.cores_beside(target).filter(|core| core.iter().all(|cpu| idles(&cpu)));
        let of_core = idle_cores.find_map(|core| core.iter().find(|cpu| may_have(cpu)));
        let own = || domains.cores_beside(target).next()?.iter().filter(idles).find(|cpu| may_have(cpu));
        of_core.or_else(own).map(|cpu| number(*cpu))
    }

    /// Whether a task that wakes up would be no worse off on the waking CPU (`wake_affine`). Its own load counts there and, as it
    /// has slept, not where it ran.
    fn is_affine(&self, id: TaskId, waker: CpuId, at: Time) -> bool {
        let kernel = self.tasks[id.0 as usize].kernel;
        let last = self.tasks[id.0 as usize].cpu;
        let (current, sharing) = (&self.cpus[waker.0 as usize], self.kernels[kernel].domains.sharing(waker));
        let known = current.running.map_or(&current.idle_wakes, |task| &self.tasks[task.0 as usize].wakes);
        if known.is_wide(&self.tasks[id.0 as usize].wakes, sharing) {
            return false;
        }
        let here = self.load(waker, at);
        // Beyond the last domain in which tasks are pulled, none is.
        let domains = &self.kernels[kernel].domains;
        let Some(level) = domains.common(waker, last).filter(|level| domains.is_near(*level)) else { return false };
        let percent = 100 + (domains.imbalance_pct(level) - 100) / 2;
        here == 0 || 100 * (here + self.tasks[id.0 as usize].entity.weight()) <= percent * self.load(last, at)
    }

    /// The load of all tasks of a CPU at an instant.
    pub(super) fn load(&self, cpu: CpuId, at: Time) -> u64 {
        let kernel = self.cpus[cpu.0 as usize].kernel;
        self.cpus[cpu.0 as usize].load(&self.tasks, at, &self.kernels[kernel].periods())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{HOST, NO_SPACE},
        runqueue::{Enqueue, Nice},
        sched::Topology,
        sched::wakes::FORGETS,
        task::Task,
    };

    /// Four CPUs, of which two each share a cache; one task that sleeps, where it ran, and others that have long been on the CPUs
    /// listed.
    fn world(rules: &str, last: u32, others: &[u32]) -> (World, TaskId) {
        world_of(rules, vec![vec![0, 1], vec![2, 3]], last, others)
    }

    fn world_of(rules: &str, caches: Vec<Vec<usize>>, last: u32, others: &[u32]) -> (World, TaskId) {
        let mut world = crate::tests::world_of(rules, caches);
        let mut id = TaskId(0);
        for (n, cpu) in (0..).zip(others.iter().chain([&last])) {
            id = TaskId(n);
            let cpu = CpuId(*cpu);
            world.tasks.push(Task::new(cpu, Vec::new(), (HOST, NO_SPACE), Nice::default()));
            if id.0 as usize != others.len() {
                world.wake(id, Time(0), Enqueue::New);
            }
        }
        (world, id)
    }

    fn woken_by(rules: &str, last: u32, others: &[u32], waker: Option<u32>) -> u32 {
        let (mut world, id) = world(rules, last, others);
        world.waker = waker.map(CpuId);
        world.select_cpu(id, Time(1)).0
    }

    #[test]
    fn up_to_4_13_one_that_idles_has_whom_it_wakes() {
        // An interrupt finds its CPU idle.
        assert_eq!(woken_by("v4.1", 1, &[], Some(0)), 0);
        assert_eq!(woken_by("v5.0", 1, &[], Some(0)), 1);
        // From a CPU of another cache too.
        assert_eq!(woken_by("v4.1", 2, &[], Some(0)), 0);
        // Woken by its own timer.
        assert_eq!(woken_by("v4.1", 1, &[], None), 1);
    }

    #[test]
    fn one_that_is_busy_has_only_those_whose_cpu_is_far_busier() {
        assert_eq!(woken_by("v4.1", 2, &[0], Some(0)), 2);
        // With it there would be two tasks, and 1.12 times as many are two where it ran.
        assert_eq!(woken_by("v4.1", 2, &[0, 1, 2, 2, 3], Some(0)), 0);
        assert_eq!(woken_by("v4.1", 2, &[0, 1, 2, 3], Some(0)), 2);
        // Beside a CPU that has more tasks there may be an idle one.
        assert_eq!(woken_by("v4.1", 2, &[0, 2, 2, 3], Some(0)), 1);
        assert_eq!(woken_by("v4.1", 1, &[0, 1], Some(0)), 1);
    }

    #[test]
    fn wakees_of_a_wide_waker_stay_if_they_wake_many() {
        let (mut world, id) = world("v4.1", 1, &[]);
        world.waker = Some(CpuId(0));
        let wake = |wakes: &mut Wakes, times: u32| (0..times).for_each(|n| wakes.record(TaskId(n), Time(1)));
        // The idle task of the first CPU is interrupted for thirteen others, one after the other.
        wake(&mut world.cpus[0].idle_wakes, 13);
        for (its_own, cpu) in [(2, 0), (3, 1), (6, 1), (7, 0)] {
            world.tasks[id.0 as usize].wakes = Wakes::default();
            wake(&mut world.tasks[id.0 as usize].wakes, its_own);
            assert_eq!(world.select_cpu(id, Time(1)).0, cpu, "it wakes {its_own}");
        }
    }

    #[test]
    fn wakee_flips_count_changes_and_halve_each_second() {
        let mut wakes = Wakes::default();
        for at in [1, 2, 3] {
            wakes.record(TaskId(1), Time(at));
        }
        assert_eq!(wakes.flips, 1);
        (2..9).for_each(|id| wakes.record(TaskId(id), Time(4)));
        assert_eq!(wakes.flips, 8);
        wakes.record(TaskId(8), Time(FORGETS.0 + 1));
        assert_eq!((wakes.flips, wakes.halved), (4, Time(FORGETS.0 + 1)));
    }

    #[test]
    fn a_disk_interrupt_lands_in_the_asking_cpus_cache() {
        let (mut world, _) = world("v4.1", 0, &[]);
        // The first CPU is interrupted, then the second, and so on.
        for asked_and_told in [[0, 0], [0, 1], [0, 0], [1, 1], [2, 2], [3, 3], [3, 2], [2, 3]] {
            let [asked, told] = asked_and_told.map(CpuId);
            assert_eq!(world.disk_answers(asked), told);
        }
    }

    #[test]
    fn more_than_eight_cpus_leave_interrupts_to_the_first() {
        let mut world = crate::tests::world_of("v4.1", vec![(0..9).collect()]);
        assert_eq!([5, 5, 5].map(|asked| world.disk_answers(CpuId(asked)).0), [0, 0, 0]);
    }

    /// Two nodes of two cores with two hardware threads each, and tasks that have long been on these CPUs.
    fn threads(rules: &str, others: &[u32]) -> World {
        let (mut world, _) = world_of(rules, vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]], 0, others);
        let near = vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
        world.set_domains(&Topology {
            cores: (0..4).map(|core| vec![core, core + 4]).collect(),
            caches: near.clone(),
            nodes: near.into_iter().zip([vec![10, 21], vec![21, 10]]).collect(),
        });
        for (cpu, sibling) in [(0, 4), (1, 5), (2, 6), (3, 7), (4, 0), (5, 1), (6, 2), (7, 3)] {
            world.cpus[cpu].share_core([CpuId(sibling)].into());
        }
        world
    }

    #[test]
    fn a_woken_task_prefers_an_idle_core_to_a_sibling_thread() {
        for rules in ["v4.1", "v5.0"] {
            // The waking task ran on CPU 0, where another one runs now.
            let mut world = threads(rules, &[0]);
            let id = TaskId(1);
            assert!([1, 5].contains(&world.select_cpu(id, Time(1)).0), "{rules}: the other core of its node");
            world = threads(rules, &[0, 1]);
            assert_eq!(world.select_cpu(TaskId(2), Time(1)), CpuId(4), "{rules}: no core of its node idles");
        }
    }

    #[test]
    fn new_tasks_are_spread_over_nodes_and_then_over_cores() {
        let mut world = threads("v4.1", &[0]);
        world.current = TaskId(0);
        let mut given = Vec::new();
        for _ in 0..4 {
            let cpu = world.idlest_cpu();
            given.push(cpu.0);
            let id = TaskId(u32::try_from(world.tasks.len()).unwrap());
            world.tasks.push(Task::new(cpu, Vec::new(), (HOST, NO_SPACE), Nice::default()));
            world.wake(id, Time(0), Enqueue::New);
        }
        // Among cores that are all idle, another one than that of the group's first CPU is the idlest.
        assert_eq!(given, [3, 1, 2, 4]);
    }
}
