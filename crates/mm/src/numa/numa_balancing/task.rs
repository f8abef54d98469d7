//! Linux: task_numa_fault(), task_numa_placement(), kernel/sched/fair.c (v3.10, and the series for v3.9).

use memory::{
    cx::Cx,
    frame::{ControlId, SpaceId},
    last_fault::Last,
    news::News,
};
use units::{NodeId, Picos};

use super::SLOWER_MS;
use crate::{Mm, numa::numa_balancing::stats::Stats, space::address_space::AddressSpace};

/// The state of a task in NUMA balancing (`numa_*` of `struct task_struct`).
#[derive(Clone, Debug, Default)]
pub(super) struct TaskNuma {
    /// Time that the task had run when it was last checked (`node_stamp`).
    pub(super) stamp: Picos,
    pub(super) period_ms: u64,
    /// The longest period in ms; 0 until it is computed.
    pub(super) period_max_ms: u64,
    pub(super) scan_seq: u64,
    /// The task's address space.
    pub(super) space: Option<SpaceId>,
    /// Faults as they are counted since 3.13.
    pub(super) stats: Stats,
    /// Scans since the preferred node was chosen.
    pub(super) migrate_seq: u64,
    pub(super) preferred: Option<NodeId>,
    /// Faults by node, shared and private, including the faults of earlier scans; empty before the first fault.
    faults: Vec<[u64; 2]>,
    /// Faults of this scan sequence.
    buffer: Vec<[u64; 2]>,
}

impl TaskNuma {
    pub(super) fn begin(scan_seq: u64, delay_ms: u64) -> Self {
        Self { scan_seq, period_ms: delay_ms, ..Self::default() }
    }

    /// Halves older faults and adds the faults of this scan sequence; returns the position of the node with most private
    /// faults.
    fn decay(&mut self, by_scan: bool) -> Option<usize> {
        let mut most = (0, None);
        for (place, (faults, buffer)) in self.faults.iter_mut().zip(&mut self.buffer).enumerate() {
            // Without a buffer, faults are halved after they were compared.
            let before = faults[1];
            for (faults, buffer) in faults.iter_mut().zip(buffer) {
                *faults = *faults / 2 + std::mem::take(buffer);
            }
            let counts = if by_scan { faults[1] } else { before };
            if counts > most.0 {
                most = (counts, Some(place));
            }
        }
        most.1
    }
}

/// A hinting fault, as it is counted.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are the kernel's flags, TNF_*")]
pub(super) struct Fault {
    pub(super) node: NodeId,
    pub(super) pages: u64,
    pub(super) is_moved: bool,
    /// The record of the fault before on the page.
    pub(super) last: Last,
    /// The page was on the task's node (`TNF_FAULT_LOCAL`).
    pub(super) is_local: bool,
    /// The entry is read-only (`TNF_NO_GROUP`).
    pub(super) is_read_only: bool,
    /// Several processes map the page, all writable (`TNF_SHARED`).
    pub(super) is_shared: bool,
    /// The move of the page failed (`TNF_MIGRATE_FAIL`).
    pub(super) has_failed: bool,
}

impl Fault {
    /// A fault on pages of a node, without any flag.
    pub(super) const fn at(node: NodeId, pages: u64, last: Last) -> Self {
        Self {
            node,
            pages,
            is_moved: false,
            last,
            is_local: false,
            is_read_only: false,
            is_shared: false,
            has_failed: false,
        }
    }
}

impl Mm {
    /// Counts a fault (`task_numa_fault`).
    pub(super) fn numa_fault(&mut self, space: &mut AddressSpace, cx: &Cx, fault: Fault) {
        let rules = *self.memory.variant();
        if rules.numa_groups {
            return self.numa_fault_grouped(space, cx, fault);
        }
        let (id, nodes) = (cx.control(), self.memory.nodes().count());
        let place = self.memory.nodes().place(fault.node);
        let numa = self.numa.as_mut().expect("only a kernel that balances has hinting faults of its own");
        let max_ms = numa.settings.period_max_ms(&rules);
        let task = numa.task_mut(id);
        let is_private = !rules.numa_private_by_pid || fault.last == Last::NOBODY || fault.last.may_be(id);
        if rules.numa_counts_faults && task.faults.is_empty() {
            (task.faults, task.buffer) = (vec![[0; 2]; nodes], vec![[0; 2]; nodes]);
        }
        if !fault.is_moved {
            let max_ms = if rules.numa_period_by_size { task.period_max_ms } else { max_ms };
            task.period_ms = max_ms.min(task.period_ms + SLOWER_MS);
        }
        self.numa_place(space, cx, id);
        if rules.numa_counts_faults {
            let task = self.numa.as_mut().expect("as before").task_mut(id);
            let counts = if rules.numa_faults_by_scan { &mut task.buffer } else { &mut task.faults };
            counts[place][usize::from(is_private)] += fault.pages << u32::from(fault.is_moved);
        }
    }

    /// Sets the node that a task prefers, at the first fault after a scan sequence (`task_numa_placement`).
    fn numa_place(&mut self, space: &AddressSpace, cx: &Cx, id: ControlId) {
        let rules = *self.memory.variant();
        let here = self.memory.node_of_cpu(cx.cpu());
        let settle_count = self.numa_settle_count();
        let numa = self.numa.as_mut().expect("asked for by its faults");
        if numa.task_mut(id).scan_seq == space.numa.seq {
            return;
        }
        let windows = space.numa_windows(numa.size_pages(), &rules);
        let (min_ms, max_ms) = (numa.scan_min_ms(&rules, windows), numa.scan_max_ms(&rules, windows));
        let task = numa.task_mut(id);
        task.scan_seq = space.numa.seq;
        task.migrate_seq += 1;
        if rules.numa_period_by_size {
            task.period_max_ms = max_ms;
        }
        if !rules.numa_prefers_node {
            return;
        }
        let Some(place) = task.decay(rules.numa_faults_by_scan) else { return };
        let node = self.memory.nodes().ids().nth(place).expect("there is a count for each node");
        if task.preferred == Some(node) {
            return;
        }
        let was_settled = task.migrate_seq >= settle_count;
        task.preferred = Some(node);
        task.migrate_seq = 0;
        if rules.numa_period_by_preference && was_settled {
            task.period_ms = (task.period_ms / 2).max(min_ms);
        }
        if rules.numa_moves_at_once && node != here {
            self.memory.tell(News::Prefers(id, node));
        }
    }
}
