//! Linux: kernel/sched/fair.c: task_tick_numa(), task_numa_work() (v3.10, and the patches for v3.9 of July 2013).
//! Differs: jiffies are instants; a task of a process that was forked begins with a period of its own.
//!
//! Here is who scans and when; the scan itself is in `scan.rs`, the faults that follow are in `fault.rs`, and how tasks count
//! them is in `task.rs`. Which VMAs are scanned since 6.4 is in `filter.rs`. A task is known by the number of its control.

mod fault;
mod filter;
pub mod last;
pub mod scan;
mod task;
#[cfg(test)]
mod tests;

use units::{NodeId, Picos, Time, Vpn};

pub(crate) use self::fault::HintFault;
use self::{last::LastFaults, task::TaskNuma};
use crate::{MachineSpec, Mm, Settings, Variant, address_space::AddressSpace, frame::ControlId, spin::SpinLock};

/// A fault that moved nothing adds so much to the period of scans: ten jiffies, at the simulator's HZ of 250.
const SLOWER_MS: u64 = 40;
/// No more than so many MiB are scanned in a second where periods follow from the size of a task (`MAX_SCAN_WINDOW`).
const MAX_SCAN_WINDOW: u64 = 2560;

const fn millis(ms: u64) -> Picos {
    Picos::from_micros(1000 * ms)
}

/// A kernel's balancing of NUMA: its settings, and what it knows of tasks, pages and nodes.
#[derive(Clone, Debug)]
pub struct NumaBalancing {
    settings: Sysctls,
    last: LastFaults,
    /// By number of the control.
    tasks: Vec<TaskNuma>,
    /// VMAs that scans have skipped.
    skips: filter::Skips,
}

/// `kernel.numa_balancing_*`, as they are set.
#[derive(Clone, Copy, Debug)]
struct Sysctls {
    delay_ms: Option<u32>,
    period_min_ms: Option<u32>,
    period_max_ms: Option<u32>,
    reset_ms: Option<u32>,
    size_mb: Option<u32>,
    settle_count: Option<u32>,
}

/// The state of an address space (`numa_*` and `first_nid` of `struct mm_struct`).
#[derive(Clone, Debug)]
pub struct SpaceNuma {
    next_scan: Time,
    /// None before a task of it was looked at.
    next_reset: Option<Time>,
    offset: Vpn,
    seq: u64,
    first: FirstNode,
    /// The lock of all entries of huge pages (`page_table_lock`).
    ptl: SpinLock,
}

impl Default for SpaceNuma {
    fn default() -> Self {
        let (next_scan, first, ptl) = (Time(0), FirstNode::default(), SpinLock::default());
        Self { next_scan, next_reset: None, offset: Vpn(0), seq: 0, first, ptl }
    }
}

/// The node of an address space's tasks: as long as it is one alone, nothing is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstNode {
    /// `NUMA_PTE_SCAN_INIT`.
    #[default]
    Unknown,
    Only(NodeId),
    /// `NUMA_PTE_SCAN_ACTIVE`.
    Several,
}

impl NumaBalancing {
    /// That of a kernel with these rules and settings; none where it is off, or where there is but one node.
    pub(crate) fn of(machine: &MachineSpec, rules: &Variant, settings: &Settings) -> Option<Box<Self>> {
        let is_on = settings.numa_balancing.is_some_and(|on| on > 0) && rules.numa_balancing;
        if !is_on || machine.nodes.len() < 2 {
            return None;
        }
        Some(Box::new(Self {
            settings: Sysctls {
                delay_ms: settings.numa_scan_delay_ms,
                period_min_ms: settings.numa_scan_period_min_ms,
                period_max_ms: settings.numa_scan_period_max_ms,
                reset_ms: settings.numa_scan_period_reset_ms,
                size_mb: settings.numa_scan_size_mb,
                settle_count: settings.numa_settle_count,
            },
            last: LastFaults::new(machine),
            tasks: Vec::new(),
            skips: filter::Skips::default(),
        }))
    }

    fn task(&self, id: ControlId) -> Option<&TaskNuma> {
        self.tasks.get(id.0 as usize)
    }

    fn task_mut(&mut self, id: ControlId) -> &mut TaskNuma {
        let at = id.0 as usize;
        if at >= self.tasks.len() {
            self.tasks.resize_with(at + 1, TaskNuma::default);
        }
        &mut self.tasks[at]
    }

    fn size_pages(&self) -> u64 {
        u64::from(self.settings.size_mb.unwrap_or(256)) << (20 - 12)
    }
}

impl Sysctls {
    fn period_min_ms(&self, rules: &Variant) -> u64 {
        u64::from(self.period_min_ms.unwrap_or(if rules.numa_period_by_size { 1000 } else { 100 }))
    }

    fn period_max_ms(&self, rules: &Variant) -> u64 {
        let default = match (rules.numa_period_by_size, rules.numa_period_by_preference) {
            (true, _) => 600_000,
            (false, true) => 100 * 600,
            (false, false) => 100 * 50,
        };
        u64::from(self.period_max_ms.unwrap_or(default))
    }
}

impl Mm {
    /// Does the kernel balance NUMA?
    #[inline]
    pub fn balances_numa(&self) -> bool {
        self.numa.is_some()
    }

    /// A task that has begun to exist in an address space (`__sched_fork`).
    pub fn numa_begin(&mut self, space: &AddressSpace, id: ControlId) {
        if let Some(numa) = &mut self.numa {
            let delay_ms = u64::from(numa.settings.delay_ms.unwrap_or(1000));
            *numa.task_mut(id) = TaskNuma::begin(space.numa.seq, delay_ms);
        }
    }

    /// A tick of a running task that has had the CPU for so long in its life (`task_tick_numa`): the scan that it does on its
    /// way back to user mode, if it is its turn (the beginning of `task_numa_work`).
    pub fn numa_tick(
        &mut self,
        space: &mut AddressSpace,
        id: ControlId,
        (cpu, now): (units::CpuId, Time),
        ran: Picos,
    ) -> Option<scan::ScanWork> {
        let rules = self.variant;
        let here = self.node_of_cpu(cpu);
        let keeps_away = self.keeps_scans_away(here, now);
        let numa = self.numa.as_mut()?;
        let windows = space.numa_windows(numa.size_pages());
        let min_ms = numa.scan_min_ms(&rules, windows);
        let task = numa.task_mut(id);
        if Picos(ran.0 - task.stamp.0) <= millis(task.period_ms) {
            return None;
        }
        if task.stamp == Picos(0) {
            task.period_ms = min_ms;
        }
        task.stamp = ran;
        if now < space.numa.next_scan {
            return None;
        }
        // task_numa_work
        let state = &mut space.numa;
        if state.first == FirstNode::Unknown {
            state.first = FirstNode::Only(here);
        }
        if state.first != FirstNode::Several {
            if state.first == FirstNode::Only(here) {
                return None;
            }
            state.first = FirstNode::Several;
        }
        let reset_ms = u64::from(numa.settings.reset_ms.unwrap_or(60_000));
        if !rules.numa_period_by_preference && state.next_reset.is_none_or(|at| now > at) {
            numa.task_mut(id).period_ms = min_ms;
            state.next_reset = Some(now + millis(reset_ms));
        }
        let max_ms = numa.scan_max_ms(&rules, windows);
        let task = numa.task_mut(id);
        if task.period_ms == 0 {
            (task.period_ms, task.period_max_ms) = (min_ms, max_ms);
        }
        state.next_scan = now + millis(task.period_ms);
        if keeps_away {
            return None;
        }
        Some(scan::ScanWork::new(numa.size_pages()))
    }

    /// The node that a task prefers, and for how many scans it has; where it counts faults.
    pub fn numa_preferred(&self, id: ControlId) -> Option<(NodeId, u64)> {
        let task = self.numa.as_ref()?.task(id)?;
        Some((task.preferred?, task.migrate_seq))
    }

    /// For how many scans the load balancer favours a task's preferred node.
    pub fn numa_settle_count(&self) -> u64 {
        let settings = self.numa.as_ref().map(|numa| numa.settings);
        u64::from(settings.and_then(|settings| settings.settle_count).unwrap_or(3))
    }
}

impl NumaBalancing {
    /// The shortest period for a task of so many windows (`task_scan_min`).
    fn scan_min_ms(&self, rules: &Variant, windows: u64) -> u64 {
        let min = self.settings.period_min_ms(rules);
        if !rules.numa_period_by_size {
            return min;
        }
        let size_mb = u64::from(self.settings.size_mb.unwrap_or(256));
        let per_second = if size_mb < MAX_SCAN_WINDOW { MAX_SCAN_WINDOW / size_mb } else { 1 };
        (min / windows).max(1000 / per_second)
    }

    /// The longest one (`task_scan_max`).
    fn scan_max_ms(&self, rules: &Variant, windows: u64) -> u64 {
        let max = self.settings.period_max_ms(rules);
        if rules.numa_period_by_size { (max / windows).max(self.scan_min_ms(rules, windows)) } else { max }
    }
}

impl AddressSpace {
    /// How often a scan's size goes into all that is mapped (`task_nr_scan_windows`).
    fn numa_windows(&self, size: u64) -> u64 {
        self.vmas.total_pages().div_ceil(size).max(1)
    }
}
