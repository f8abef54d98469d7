//! Linux: sched_setaffinity() in kernel/sched/core.c, do_set_mempolicy() in mm/mempolicy.c (v6.1).
//! Differs: a task that has to leave its CPU does so at once, without a stopper thread (`migration_cpu_stop`).

use os::{Mempolicy, NumaNode};
use rules::mempolicy::NodeMask;
use units::{Bytes, CpuId, Errno, Frames, NodeId, Stores, Time};

use crate::{
    ids::TaskId,
    task::{Answer, TaskState},
    world::World,
};

impl World {
    /// The nodes of the current task's kernel, by number, with the kernel's own numbers of CPUs.
    pub(crate) fn numa_nodes(&self) -> Vec<NumaNode> {
        let kernel = self.own_kernel();
        let cpus = || kernel.cpu_ids().map(|cpu| kernel.number(cpu));
        let zones = |id| kernel.mm.memory.zones().iter().filter(move |zone| zone.node == id);
        let node = |id: NodeId| NumaNode {
            id,
            cpus: cpus().filter(|cpu| kernel.mm.memory.node_of_cpu(*cpu) == id).collect(),
            memory: Frames(zones(id).map(|zone| zone.managed).sum()).bytes(),
            distance: kernel.mm.memory.distances(id),
        };
        kernel.mm.memory.node_ids().into_iter().map(node).collect()
    }

    /// The stores with which bzero(3) of the time clears `len` bytes on the current task's machine.
    pub(crate) fn bzero(&self, len: Bytes) -> Stores {
        let kernel = self.own_kernel();
        let cpu = kernel.cpu_ids().next().expect("a machine has a CPU");
        let cache = kernel.mm.memory.latency().cache;
        let share = cache.map(|cache| Bytes(cache.size.0 / kernel.domains.sharing(cpu)));
        kernel.mm.memory.variant().bzero.stores(len, share)
    }

    /// Limits the current task to these CPUs from `at` on. If it may not stay, it goes to another one.
    pub(crate) fn set_affinity(&mut self, id: TaskId, cpus: &[CpuId], at: Time) -> TaskState {
        let kernel = self.own_kernel();
        let is_named = |cpu: &CpuId| cpus.contains(&kernel.number(*cpu));
        let cpus: Vec<CpuId> = kernel.cpu_ids().filter(is_named).collect();
        if cpus.is_empty() {
            return TaskState::Answered(Answer::Unit(Err(Errno::INVAL)));
        }
        let task = &mut self.tasks[id.0 as usize];
        task.allowed = cpus;
        if task.may_run_on(task.cpu) {
            return TaskState::Answered(Answer::Unit(Ok(())));
        }
        // The task leaves its CPU, and its wake-up at the same instant finds it another.
        task.sleeps_until = Some(at);
        self.clock.arm(at, id);
        TaskState::Blocked
    }

    /// The CPU for a task that may not run where it ran last: the first of its CPUs with the fewest tasks.
    pub(crate) fn forced_cpu(&self, id: TaskId) -> Option<CpuId> {
        let task = &self.tasks[id.0 as usize];
        if task.may_run_on(task.cpu) {
            return None;
        }
        task.allowed.iter().copied().min_by_key(|cpu| self.cpus[cpu.0 as usize].tasks())
    }

    /// Sets the policy for pages that the task uses for the first time from now on.
    pub(crate) fn set_mempolicy(&mut self, id: TaskId, policy: &Mempolicy) -> TaskState {
        let known = self.numa_nodes();
        let has_memory = |node: &NodeId| known.iter().any(|known| known.id == *node && known.has_memory());
        // Nodes of a set without memory do not count (`mpol_set_nodemask`); there must be another.
        let mask = |nodes: &[NodeId]| {
            let mask = NodeMask::of(nodes.iter().copied().filter(has_memory));
            (!mask.is_empty()).then_some(mask)
        };
        let policy = match policy {
            Mempolicy::Local => Some(rules::mempolicy::Mempolicy::Local),
            Mempolicy::Bind(nodes) => mask(nodes).map(rules::mempolicy::Mempolicy::Bind),
            Mempolicy::Interleave(nodes) => mask(nodes).map(rules::mempolicy::Mempolicy::Interleave),
            Mempolicy::Preferred(node) => has_memory(node).then_some(rules::mempolicy::Mempolicy::Preferred(*node)),
        };
        if let Some(policy) = policy {
            self.tasks[id.0 as usize].policy = policy;
        }
        TaskState::Answered(Answer::Unit(policy.map(drop).ok_or(Errno::INVAL)))
    }
}
