//! Linux: struct numa_group, task_numa_group(), task_weight(), group_weight(), numa_group_count_active_nodes(),
//! kernel/sched/fair.c (v6.1).
//! Differs: all nodes count as directly connected (`NUMA_DIRECT`); of two groups of a size the older one grows, and not the one
//! at the higher address.
//!
//! Tasks that fault at the same pages are a group: the node that a task prefers follows from the faults of all of them.

use memory::{frame::ControlId, last_fault::Last};
use units::NodeId;

use super::NumaBalancing;
use crate::Mm;

/// A node with more than a third of the faults of the one with the most is in use (`ACTIVE_NODE_FRACTION`).
pub(super) const ACTIVE_NODE_FRACTION: u64 = 3;

/// The number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(u32);

impl GroupId {
    /// The group that came to be after so many others.
    pub const fn nth(n: u32) -> Self {
        Self(n)
    }
}

/// Faults by position of a node; shared ones, and private ones.
pub(super) type ByNode = Vec<[u64; 2]>;

/// Faults of a task or a group, older ones counting less (`numa_faults`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// By the node of the memory (`NUMA_MEM`).
    pub(super) mem: ByNode,
    /// By the node of the CPU, each the more the more of its time the task ran (`NUMA_CPU`).
    pub(super) cpu: ByNode,
    /// All of `mem` (`total_numa_faults`).
    pub(super) total: u64,
}

impl Faults {
    pub(super) fn new(nodes: usize) -> Self {
        Self { mem: vec![[0; 2]; nodes], cpu: vec![[0; 2]; nodes], total: 0 }
    }

    /// Faults at memory of a node.
    pub(super) fn at(&self, place: usize) -> u64 {
        self.mem.get(place).map_or(0, |[shared, private]| shared + private)
    }

    /// Faults of CPUs of a node.
    pub(super) fn by(&self, place: usize) -> u64 {
        self.cpu.get(place).map_or(0, |[shared, private]| shared + private)
    }

    /// Shared faults at all nodes, or private ones.
    pub(super) fn of(&self, is_private: bool) -> u64 {
        self.mem.iter().map(|counts| counts[usize::from(is_private)]).sum()
    }

    /// In thousandths of all.
    fn weight(&self, place: usize) -> u64 {
        (1000 * self.at(place)).checked_div(self.total).unwrap_or(0)
    }

    /// The faults of a task come to these, or leave them.
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

/// Tasks that fault at the same pages (`struct numa_group`).
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// How many there are (`nr_tasks`, and the count of references).
    pub(super) tasks: u64,
    pub(super) faults: Faults,
    pub(super) active_nodes: u64,
    max_faults_cpu: u64,
    /// By position, where nodes come to be in use and cease to be (3.15 to 4.6); empty where that is decided anew each time.
    active: Vec<bool>,
}

impl Group {
    /// Does it make much use of a node (`numa_is_active_node`)?
    pub(super) fn is_active(&self, place: usize) -> bool {
        if let Some(is_active) = self.active.get(place) {
            return *is_active;
        }
        self.faults.by(place) * ACTIVE_NODE_FRACTION > self.max_faults_cpu
    }

    /// The faults of one of its tasks have changed.
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
    /// The group of a task.
    pub(super) fn group_of(&self, id: ControlId) -> Option<&Group> {
        Some(self.group(self.task(id)?.stats.group?))
    }

    fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(super) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0 as usize]
    }

    /// A task has faulted at a page at which another one did before: both are of one group from now on, if that other one still
    /// runs where it did, and its group is not the smaller one. Does the fault count as private all the same?
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

    /// The group of a task that shares pages; a new one, if it has none.
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

    /// A task leaves its group (`task_numa_free`).
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

/// A task as its placement looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaView {
    /// The node that it prefers.
    pub preferred: Option<NodeId>,
    /// The task's group.
    pub group: Option<GroupId>,
    /// The group uses more than one node.
    pub is_spread: bool,
    /// Faults were counted.
    pub has_faults: bool,
}

impl Mm {
    /// Returns a task as placement sees it; none where tasks are not looked at.
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

    /// The part of a task's faults at memory of a node, in thousandths (`task_weight`).
    pub fn numa_task_weight(&self, id: ControlId, node: NodeId) -> i64 {
        let task = self.numa.as_ref().and_then(|numa| numa.task(id));
        task.map_or(0, |task| task.stats.faults.weight(self.memory.nodes().place(node)).cast_signed())
    }

    /// That of its group's (`group_weight`).
    pub fn numa_group_weight(&self, id: ControlId, node: NodeId) -> i64 {
        let group = self.numa.as_ref().and_then(|numa| numa.group_of(id));
        group.map_or(0, |group| group.faults.weight(self.memory.nodes().place(node)).cast_signed())
    }

    /// A task prefers a node from now on (`sched_setnuma`).
    pub fn numa_prefer(&mut self, id: ControlId, node: NodeId) {
        if let Some(numa) = &mut self.numa {
            numa.task_mut(id).preferred = Some(node);
        }
    }

    /// A CPU runs a task from now on, or none.
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
