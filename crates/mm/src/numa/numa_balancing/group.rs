//! Linux: struct numa_group, task_numa_group(), task_weight(), group_weight(), numa_group_count_active_nodes(),
//! kernel/sched/fair.c (v6.1).
//! Differs: all nodes count as directly connected (`NUMA_DIRECT`); of two groups of equal size the older one grows, not the one
//! at the higher address.
//!
//! Tasks that fault on the same pages form a group: the faults of all its tasks decide on the node that each of them prefers.

use memory::{frame::ControlId, last_fault::Last};
use units::NodeId;

use super::NumaBalancing;
use crate::Mm;

/// A node is in use if it has more than a third of the faults of the node with most (`ACTIVE_NODE_FRACTION`).
pub(super) const ACTIVE_NODE_FRACTION: u64 = 3;

/// The number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(u32);

impl GroupId {
    /// The group with number `n`, in the order of creation.
    pub const fn nth(n: u32) -> Self {
        Self(n)
    }
}

/// Numbers of faults by position of a node: shared, and private.
pub(super) type ByNode = Vec<[u64; 2]>;

/// Faults of a task or a group; older faults count less (`numa_faults`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// By the node of the memory (`NUMA_MEM`).
    pub(super) mem: ByNode,
    /// By the node of the CPU, weighted by the task's share of the CPU's time (`NUMA_CPU`).
    pub(super) cpu: ByNode,
    /// Sum of `mem` (`total_numa_faults`).
    pub(super) total: u64,
}

impl Faults {
    pub(super) fn new(nodes: usize) -> Self {
        Self { mem: vec![[0; 2]; nodes], cpu: vec![[0; 2]; nodes], total: 0 }
    }

    /// Faults on memory of a node.
    pub(super) fn at(&self, place: usize) -> u64 {
        self.mem.get(place).map_or(0, |[shared, private]| shared + private)
    }

    /// Faults by CPUs of a node.
    pub(super) fn by(&self, place: usize) -> u64 {
        self.cpu.get(place).map_or(0, |[shared, private]| shared + private)
    }

    /// Shared or private faults on all nodes.
    pub(super) fn of(&self, is_private: bool) -> u64 {
        self.mem.iter().map(|counts| counts[usize::from(is_private)]).sum()
    }

    /// The part of the faults on memory of a node, in thousandths.
    fn weight(&self, place: usize) -> u64 {
        (1000 * self.at(place)).checked_div(self.total).unwrap_or(0)
    }

    /// Adds or subtracts the faults of a task.
    fn change(&mut self, task: &Self, comes: bool) {
        let change = |all: &mut u64, one: u64| *all = if comes { *all + one } else { *all - one };
        let pairs = |all: &mut ByNode, one: &ByNode| {
            all.iter_mut().flatten().zip(one.iter().flatten()).for_each(|(all, one)| change(all, *one));
        };
        pairs(&mut self.mem, &task.mem);
        pairs(&mut self.cpu, &task.cpu);
        change(&mut self.total, task.total);
    }
}

/// Tasks that fault on the same pages (`struct numa_group`).
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Number of tasks (`nr_tasks`, and the count of references).
    pub(super) tasks: u64,
    pub(super) faults: Faults,
    pub(super) active_nodes: u64,
    max_faults_cpu: u64,
    /// Whether each node is in use, by position (3.15 to 4.6); empty if that is computed each time.
    active: Vec<bool>,
}

impl Group {
    /// Whether the group uses a node much (`numa_is_active_node`).
    pub(super) fn is_active(&self, place: usize) -> bool {
        if let Some(is_active) = self.active.get(place) {
            return *is_active;
        }
        self.faults.by(place) * ACTIVE_NODE_FRACTION > self.max_faults_cpu
    }

    /// Replaces the faults of one of the group's tasks.
    pub(super) fn replace(&mut self, before: &Faults, after: &Faults) {
        self.faults.change(after, true);
        self.faults.change(before, false);
    }

    /// `numa_group_count_active_nodes`; `update_numa_active_node_mask` up to 4.6.
    pub(super) fn count_active_nodes(&mut self) {
        let nodes = 0..self.faults.cpu.len();
        let most = nodes.clone().map(|place| self.faults.by(place)).max().unwrap_or(0);
        self.max_faults_cpu = most;
        for (place, is_active) in self.active.iter_mut().enumerate() {
            let by = self.faults.by(place);
            *is_active = if *is_active { by >= most * 3 / 16 } else { by > most * 6 / 16 };
        }
        self.active_nodes = nodes.filter(|place| self.is_active(*place)).count() as u64;
    }
}

impl NumaBalancing {
    /// The group of a task, if it is in one.
    pub(super) fn group_of(&self, id: ControlId) -> Option<&Group> {
        Some(self.group(self.task(id)?.stats.group?))
    }

    fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(super) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0 as usize]
    }

    /// Joins the groups of a task and of the task that faulted on the page before, if that still runs where it did and its
    /// group is not the smaller one. Returns whether the fault counts as private all the same.
    pub(super) fn join(&mut self, id: ControlId, (last, is_shared): (Last, bool), active: Vec<bool>) -> bool {
        let mine = self.own_group(id, active);
        let running = last.place().and_then(|cpu| self.running.get(cpu).copied().flatten());
        let Some(other) = running.filter(|other| last.may_be(*other)) else { return false };
        let (own_space, Some(there)) = (self.task_mut(id).space, self.task(other)) else { return false };
        let (Some(theirs), is_same_process) = (there.stats.group, there.space == own_space) else { return false };
        let (own, their) = (self.group(mine).tasks, self.group(theirs).tasks);
        if theirs == mine || own > their || (own == their && mine < theirs) {
            return false;
        }
        if !is_same_process && !is_shared {
            return true;
        }
        self.leave(id);
        let Self { tasks, groups, .. } = self;
        let (task, group) = (&mut tasks[id.0 as usize], &mut groups[theirs.0 as usize]);
        group.faults.change(&task.stats.faults, true);
        group.tasks += 1;
        task.stats.group = Some(theirs);
        false
    }

    /// The group of a task that shares pages; a new group if it has none.
    fn own_group(&mut self, id: ControlId, active: Vec<bool>) -> GroupId {
        let task = self.task_mut(id);
        if let Some(group) = task.stats.group {
            return group;
        }
        let faults = task.stats.faults.clone();
        let new = GroupId::nth(u32::try_from(self.groups.len()).expect("fewer groups than tasks"));
        self.task_mut(id).stats.group = Some(new);
        self.groups.push(Group { tasks: 1, faults, active_nodes: 1, max_faults_cpu: 0, active });
        new
    }

    /// Takes a task out of its group (`task_numa_free`).
    pub(super) fn leave(&mut self, id: ControlId) {
        let Self { tasks, groups, .. } = self;
        let Some(task) = tasks.get_mut(id.0 as usize) else { return };
        if let Some(group) = task.stats.group.take() {
            let group = &mut groups[group.0 as usize];
            group.faults.change(&task.stats.faults, false);
            group.tasks -= 1;
        }
    }
}

/// The facts about a task that its placement on a CPU needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaView {
    /// The node that the task prefers.
    pub preferred: Option<NodeId>,
    /// The task's group.
    pub group: Option<GroupId>,
    /// The group uses more than one node.
    pub is_spread: bool,
    /// Faults of the task were counted.
    pub has_faults: bool,
}

impl Mm {
    /// The facts about a task for its placement; none if tasks are not placed by their faults.
    pub fn numa_view(&self, id: ControlId) -> Option<NumaView> {
        let numa = self.numa.as_ref()?;
        let task = numa.task(id)?;
        Some(NumaView {
            preferred: task.preferred,
            group: task.stats.group,
            is_spread: numa.group_of(id).is_some_and(|group| group.active_nodes > 1),
            has_faults: !task.stats.faults.mem.is_empty(),
        })
    }

    /// The part of a task's faults on memory of a node, in thousandths (`task_weight`).
    pub fn numa_task_weight(&self, id: ControlId, node: NodeId) -> i64 {
        let task = self.numa.as_ref().and_then(|numa| numa.task(id));
        task.map_or(0, |task| task.stats.faults.weight(self.memory.nodes().place(node)).cast_signed())
    }

    /// The part of a group's faults on memory of a node, in thousandths (`group_weight`).
    pub fn numa_group_weight(&self, id: ControlId, node: NodeId) -> i64 {
        let group = self.numa.as_ref().and_then(|numa| numa.group_of(id));
        group.map_or(0, |group| group.faults.weight(self.memory.nodes().place(node)).cast_signed())
    }

    /// Sets the node that a task prefers (`sched_setnuma`).
    pub fn numa_prefer(&mut self, id: ControlId, node: NodeId) {
        if let Some(numa) = &mut self.numa {
            numa.task_mut(id).preferred = Some(node);
        }
    }

    /// Notes the task that a CPU runs from now on, if any.
    #[inline]
    pub fn numa_switch(&mut self, cpu: units::CpuId, task: Option<ControlId>) {
        if let Some(numa) = &mut self.numa {
            let at = cpu.0 as usize;
            if at >= numa.running.len() {
                numa.running.resize(at + 1, None);
            }
            numa.running[at] = task;
        }
    }
}
