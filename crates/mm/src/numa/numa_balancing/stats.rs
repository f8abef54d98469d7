//! Linux: task_numa_fault(), task_numa_placement(), numa_get_avg_runtime(), numa_migrate_preferred() and
//! should_numa_migrate_memory(), kernel/sched/fair.c (v6.1).
//! Differs: a task without a placement yet counts as one that always ran; the kernel uses the scheduler's average.
//!
//! Tasks' counts of faults since 3.13: by the node of the memory and by the node of the CPU, together with the counts of their
//! group.

use memory::{cx::Cx, frame::ControlId, last_fault::Last, news::News};
use rules::variant::{NumaFilter, NumaPlaces};
use units::{NodeId, Picos, Time};

use super::{
    JIFFY, TaskNuma,
    group::{ACTIVE_NODE_FRACTION, ByNode, Faults, GroupId},
    task::Fault,
};
use crate::{Mm, space::address_space::AddressSpace};

/// Time between two tries to move a task to its preferred node (`numa_migrate_retry`).
const RETRY: Picos = Picos::from_secs(1);
/// A task is young during its first scan sequences, of this number.
const YOUNG_SCANS: u64 = 4;

/// The fault counts of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    /// Empty before the first fault.
    pub(super) faults: Faults,
    /// Faults of this scan sequence, by the node of the memory, and of the CPU (`NUMA_MEMBUF`, `NUMA_CPUBUF`).
    pub(super) mem_now: ByNode,
    cpu_now: ByNode,
    /// Faults of this scan sequence that were remote and local, and pages whose move failed (`numa_faults_locality`).
    pub(super) locality: [u64; 3],
    pub(super) group: Option<GroupId>,
    /// The jiffy after which a move to the preferred node is next tried.
    retry: u64,
    /// Time that the task had run, and the instant: at its last tick, and at the last tick before its last placement.
    pub(super) ran: (Picos, Time),
    placed: Option<(Picos, Time)>,
}

fn jiffies(now: Time) -> u64 {
    now.0 / JIFFY.0
}

impl Stats {
    /// The task's share of its CPU's time since its last placement, in 1/65536 (`numa_get_avg_runtime`).
    fn share_of_cpu(&mut self) -> u64 {
        let (ran, at) = self.ran;
        let share = self.placed.map_or(1 << 16, |(before, since)| {
            (Picos(ran.0 - before.0).as_nanos() << 16) / (at.since(since).as_nanos() + 1)
        });
        self.placed = Some((ran, at));
        share
    }

    /// Halves older faults and adds the faults of this scan sequence; returns the sequence's shared and private faults.
    fn decay(&mut self) -> [u64; 2] {
        let (share, all) = (self.share_of_cpu(), self.locality[0] + self.locality[1]);
        let mut types = [0; 2];
        for place in 0..self.faults.mem.len() {
            for (private, of_type) in types.iter_mut().enumerate() {
                let (mem, cpu) = (&mut self.faults.mem[place][private], &mut self.faults.cpu[place][private]);
                let new = std::mem::take(&mut self.mem_now[place][private]);
                *of_type += new;
                self.faults.total = self.faults.total + new - *mem / 2;
                *mem = *mem - *mem / 2 + new;
                *cpu = *cpu - *cpu / 2 + share * std::mem::take(&mut self.cpu_now[place][private]) / (all + 1);
            }
        }
        types
    }
}

impl TaskNuma {
    /// Whether the task is young: it may take pages on which no other task has faulted.
    fn is_young(&self) -> bool {
        self.preferred.is_none() || self.scan_seq <= YOUNG_SCANS
    }
}

impl Mm {
    /// Counts a fault (`task_numa_fault`).
    pub(super) fn numa_fault_grouped(&mut self, space: &mut AddressSpace, cx: &Cx, fault: Fault) {
        let (id, nodes) = (cx.control(), self.memory.nodes().count());
        let (here, on) =
            (self.memory.nodes().place(self.memory.node_of_cpu(cx.cpu())), self.memory.nodes().place(fault.node));
        let numa = self.numa.as_mut().expect("only a kernel that balances has hinting faults of its own");
        let stats = &mut numa.task_mut(id).stats;
        if stats.faults.mem.is_empty() {
            let none = || vec![[0; 2]; nodes];
            (stats.faults, stats.mem_now, stats.cpu_now) = (Faults::new(nodes), none(), none());
        }
        let mut is_private = fault.last == Last::NOBODY || fault.last.may_be(id);
        if !is_private && !fault.is_read_only {
            let has_mask = self.memory.variant().numa_filter == NumaFilter::ActiveNodes;
            let active = if has_mask { (0..nodes).map(|place| place == here).collect() } else { Vec::new() };
            is_private = numa.join(id, (fault.last, fault.is_shared), active);
        }
        let is_within = numa
            .group_of(id)
            .is_some_and(|group| group.active_nodes > 1 && group.is_active(here) && group.is_active(on));
        let is_local = fault.is_local || (!is_private && is_within);
        let is_due = jiffies(cx.now()) > numa.task_mut(id).stats.retry;
        // Up to 4.18 it is placed at any fault, and tries to move at once.
        let at_once = self.memory.variant().numa_places == NumaPlaces::ByCapacity;
        let is_placed = (is_due || at_once) && self.numa_place_grouped(space, cx);
        if is_due || (at_once && is_placed) {
            self.numa_migrate_preferred(cx);
        }
        let stats = &mut self.numa.as_mut().expect("as before").task_mut(id).stats;
        if fault.has_failed {
            stats.locality[2] += fault.pages;
        }
        stats.mem_now[on][usize::from(is_private)] += fault.pages;
        stats.cpu_now[here][usize::from(is_private)] += fault.pages;
        stats.locality[usize::from(is_local)] += fault.pages;
    }

    /// Sets a task's preferred node and its period after a scan sequence (`task_numa_placement`); returns whether it prefers a
    /// node.
    fn numa_place_grouped(&mut self, space: &mut AddressSpace, cx: &Cx) -> bool {
        let (rules, id) = (self.memory.variant(), cx.control());
        let numa = self.numa.as_mut().expect("a task has faulted");
        if numa.task_mut(id).scan_seq == space.numa.seq {
            return false;
        }
        let windows = space.numa_windows(numa.size_pages(), rules);
        let max_ms = numa.scan_max_ms_of(rules, id, windows);
        let task = numa.task_mut(id);
        task.scan_seq = space.numa.seq;
        task.period_max_ms = max_ms;
        let (group, before) = (task.stats.group, task.stats.faults.clone());
        let types = task.stats.decay();
        let after = task.stats.faults.clone();
        let counts = match group {
            Some(group) => {
                let group = numa.group_mut(group);
                group.replace(&before, &after);
                group.count_active_nodes();
                group.faults.clone()
            }
            None => after,
        };
        let most = (0..counts.mem.len()).rev().max_by_key(|place| counts.at(*place)).filter(|it| counts.at(*it) > 0);
        if let Some(place) = most {
            let node = self.memory.nodes().ids().nth(place).expect("there is a count for each node");
            self.numa_prefer(id, node);
        }
        self.numa_adapt(space, id, cx.now(), types);
        most.is_some()
    }

    /// Tries, from time to time, to move a task to its preferred node.
    fn numa_migrate_preferred(&mut self, cx: &Cx) {
        let here = self.memory.node_of_cpu(cx.cpu());
        let task = self.numa.as_mut().expect("a task has faulted").task_mut(cx.control());
        let Some(preferred) = task.preferred else { return };
        let period = Picos::from_millis(task.period_ms).0.div_ceil(JIFFY.0);
        task.stats.retry = jiffies(cx.now()) + (RETRY.0 / JIFFY.0).min(period / 16);
        if preferred != here {
            self.memory.tell(News::Prefers(cx.control(), preferred));
        }
    }

    /// Whether a page may move to the node of a task that has faulted on it after `last` (`should_numa_migrate_memory`).
    pub(super) fn numa_may_come(&self, id: ControlId, last: Last, (from, to): (NodeId, NodeId)) -> bool {
        let numa = self.numa.as_ref().expect("only a kernel that balances asks");
        let task = numa.task(id);
        let (is_unset, is_own) = (last == Last::NOBODY, last.may_be(id));
        let is_young = self.memory.variant().numa_moves_early && task.is_none_or(TaskNuma::is_young);
        if is_young && (is_unset || is_own) {
            return true;
        }
        let was_on =
            last.place().map(|cpu| self.memory.node_of_cpu(units::CpuId(u32::try_from(cpu).expect("a CPU's number"))));
        if was_on.is_some_and(|node| node != to) {
            return false;
        }
        let Some(group) = numa.group_of(id).filter(|_| !is_own) else { return true };
        let (from, to) = (self.memory.nodes().place(from), self.memory.nodes().place(to));
        let (by, at) = (|place| group.faults.by(place), |place| group.faults.at(place));
        match self.memory.variant().numa_filter {
            NumaFilter::Twice => true,
            NumaFilter::ActiveNodes => {
                // Between two nodes that the group uses, memory goes to the one that has less of it.
                group.is_active(to) && (!group.is_active(from) || at(to) < at(from) * 3 / 4)
            }
            NumaFilter::CpuUse => {
                by(to) > by(from) * ACTIVE_NODE_FRACTION || by(to) * at(from) * 3 > by(from) * at(to) * 4
            }
        }
    }
}
