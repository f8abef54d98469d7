//! Linux: set_task_cpu(), kernel/sched/core.c, and its trace event sched_migrate_task; sched_move_numa, sched_stick_numa and
//! sched_swap_numa (include/trace/events/sched.h, v3.14).
//! Differs: counted for 3.9 too, which has no such events; moves are also counted by distance; the two moves of a swap count as
//! moves too.

use os::{CountedBy, Moves};
use units::CpuId;

use crate::{ids::TaskId, world::World};

/// Moves from CPU to CPU, as a kernel's scheduler counts them. No counter of the kernel has them, so they are not part of the
/// run hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedMoves {
    /// Moves of all tasks (`sched_migrate_task`), by distance.
    all: Distances,
    /// Moves of tasks to the node that they prefer, by NUMA balancing (`sched_move_numa`).
    pub(crate) numa: u64,
    /// Tasks for which that node had no CPU (`sched_stick_numa`).
    pub(crate) stuck: u64,
    /// Exchanges of two tasks' places (`sched_swap_numa`).
    pub(crate) swapped: u64,
}

/// Moves by distance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distances {
    same_core: u64,
    same_node: u64,
    other_node: u64,
}

impl Distances {
    fn count(&mut self, shares_core: bool, shares_node: bool) {
        match (shares_core, shares_node) {
            (true, _) => self.same_core += 1,
            (false, true) => self.same_node += 1,
            (false, false) => self.other_node += 1,
        }
    }

    /// The counts as programs see them.
    pub(crate) fn moves(self) -> Moves {
        let Self { same_core, same_node, other_node } = self;
        Moves { same_core, same_node, other_node, counted_by: CountedBy::Scheduler }
    }
}

impl SchedMoves {
    /// The counts under the names of the trace events, where there are any.
    pub(crate) fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("sim_sched_migrate_task_core", self.all.same_core),
            ("sim_sched_migrate_task_node", self.all.same_node),
            ("sim_sched_migrate_task_other_node", self.all.other_node),
            ("sim_sched_move_numa", self.numa),
            ("sim_sched_stick_numa", self.stuck),
            ("sim_sched_swap_numa", self.swapped),
        ]
    }
}

impl World {
    /// Counts the move of a task from one CPU to another.
    pub(super) fn count_move(&mut self, id: TaskId, from: CpuId, to: CpuId) {
        if from == to {
            return;
        }
        let Self { kernels, cpus, tasks, .. } = self;
        let kernel = &mut kernels[cpus[to.0 as usize].kernel];
        let node = |cpu: CpuId| kernel.mm.memory.node_of_cpu(kernel.number(cpu));
        let (shares_core, shares_node) = (cpus[from.0 as usize].shares_core(to), node(from) == node(to));
        kernel.moves.all.count(shares_core, shares_node);
        tasks[id.0 as usize].moves.count(shares_core, shares_node);
    }
}

#[cfg(test)]
mod tests {
    use units::Time;

    use super::*;
    use crate::{
        ids::{HOST, NO_SPACE},
        runqueue::{Enqueue, Nice},
        task::Task,
    };

    /// Two cores of two threads; the tested task has slept on CPU 0.
    #[test]
    fn a_task_that_wakes_or_is_pulled_elsewhere_has_moved() {
        let mut world = crate::tests::world_of("v4.1", vec![vec![0, 1, 2, 3]]);
        world.cpus[0].share_core(Box::new([CpuId(1)]));
        let id = TaskId(0);
        world.tasks.push(Task::new(CpuId(0), vec![CpuId(1)], (HOST, NO_SPACE), Nice::default()));
        world.wake(id, Time(0), Enqueue::Woken);
        let moves = |world: &World| {
            let Moves { same_core, same_node, other_node, counted_by } = world.tasks[0].moves.moves();
            assert_eq!(counted_by, CountedBy::Scheduler);
            (same_core, same_node, other_node)
        };
        assert_eq!(moves(&world), (1, 0, 0), "it may run on the other thread alone");
        world.tasks[0].allowed.clear();
        world.take_over(CpuId(3), id);
        assert_eq!(moves(&world), (1, 1, 0));
        assert_eq!(world.kernels[HOST].moves.named()[..3].iter().map(|(_, count)| *count).sum::<u64>(), 2);
    }
}
