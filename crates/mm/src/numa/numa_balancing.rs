//! Linux: kernel/sched/fair.c: task_tick_numa(), task_numa_work(), init_numa_balancing() (v3.10, the patches for v3.9 of July
//! 2013, and v6.1).
//! Differs: jiffies are instants; before 3.13 a task of a process that was forked begins with a period of its own; a scan waits
//! for the mmap lock instead of giving up (`mmap_read_trylock`, 4.15).
//!
//! Here is who scans and when; the scan itself is in `scan.rs`, the faults that follow are in `fault.rs`, and how tasks count
//! them is in `task.rs`, since 3.13 in `stats.rs` and `group.rs`. Periods are in `period.rs`. Which VMAs are scanned since 6.4 is
//! in `filter.rs`. The last fault at each page is a column beside the frames, in crate `memory`. A task is known by the number
//! of its control.

mod fault;
mod filter;
pub mod group;
mod period;
pub mod scan;
mod stats;
mod task;
#[cfg(test)]
mod tests;

use memory::{
    frame::{ControlId, SpaceId},
    spin::SpinLock,
};
use rules::{machine::MachineSpec, mempolicy::Mempolicy, variant::Variant, zone::Settings};
use units::{NodeId, Picos, Time, Vpn};

pub(crate) use self::fault::HintFault;
pub use self::filter::VMA_SKIPS;
use self::{group::Group, task::TaskNuma};
use crate::{Mm, space::address_space::AddressSpace};

/// Milliseconds that a fault without a move adds to the scan period: ten jiffies, at the simulator's HZ of 250.
const SLOWER_MS: u64 = 40;
/// One jiffy at that HZ.
const JIFFY: Picos = Picos::from_micros(4000);
/// Most MiB that are scanned in a second if periods follow from the size of a task (`MAX_SCAN_WINDOW`).
const MAX_SCAN_WINDOW: u64 = 2560;

const fn millis(ms: u64) -> Picos {
    Picos::from_millis(ms)
}

/// The state of NUMA balancing in a kernel: its settings, and its records of tasks, pages and nodes.
#[derive(Clone, Debug)]
pub struct NumaBalancing {
    settings: Sysctls,
    /// By number of the control.
    tasks: Vec<TaskNuma>,
    /// Numbers of VMAs that scans have skipped.
    skips: filter::Skips,
    /// Groups by number; groups without tasks stay.
    groups: Vec<Group>,
    /// The task that each CPU runs.
    running: Vec<Option<ControlId>>,
}

/// The settings `kernel.numa_balancing_*`.
#[derive(Clone, Copy, Debug)]
struct Sysctls {
    delay_ms: Option<u32>,
    period_min_ms: Option<u32>,
    period_max_ms: Option<u32>,
    reset_ms: Option<u32>,
    size_mb: Option<u32>,
    settle_count: Option<u32>,
}

/// The state of an address space in NUMA balancing (`numa_*` and `first_nid` of `struct mm_struct`).
#[derive(Clone, Debug)]
pub struct SpaceNuma {
    next_scan: Time,
    /// None until a task of the space was first looked at.
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

/// The node of an address space's tasks: while it is a single one, nothing is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstNode {
    /// `NUMA_PTE_SCAN_INIT`.
    #[default]
    Unknown,
    Only(NodeId),
    /// `NUMA_PTE_SCAN_ACTIVE`.
    Several,
}

/// A tick on a CPU that runs a task.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// The task.
    pub id: ControlId,
    /// The task's CPU.
    pub cpu: units::CpuId,
    /// The instant of the tick.
    pub at: Time,
    /// Time that the task has run in its life.
    pub ran: Picos,
    /// The memory policy of the task.
    pub policy: Mempolicy,
}

/// The task that creates another one in its process.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// The task.
    pub id: ControlId,
    /// Tasks that the process had before.
    pub users: u64,
    /// The instant.
    pub now: Time,
}

/// Whether a kernel with these rules and settings balances this machine. With a single node none does.
pub fn balances_numa(machine: &MachineSpec, rules: &Variant, settings: &Settings) -> bool {
    settings.numa_balancing.is_some_and(|on| on > 0) && rules.numa_balancing && machine.nodes.len() > 1
}

impl NumaBalancing {
    /// The state for a kernel with these rules and settings; none if balancing is off, or there is a single node.
    pub(crate) fn of(machine: &MachineSpec, rules: &Variant, settings: &Settings) -> Option<Box<Self>> {
        if !balances_numa(machine, rules, settings) {
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
            tasks: Vec::new(),
            skips: filter::Skips::default(),
            groups: Vec::new(),
            running: Vec::new(),
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

    fn delay_ms(&self) -> u64 {
        u64::from(self.settings.delay_ms.unwrap_or(1000))
    }

    fn size_pages(&self) -> u64 {
        u64::from(self.settings.size_mb.unwrap_or(256)) << (20 - 12)
    }
}

impl Mm {
    /// Whether the kernel balances NUMA.
    #[inline]
    pub fn balances_numa(&self) -> bool {
        self.numa.is_some()
    }

    /// Begins the state of a new task in an address space, created by another one there or as its first (`__sched_fork`,
    /// `init_numa_balancing`).
    pub fn numa_begin(&mut self, id: ControlId, space: (SpaceId, &mut AddressSpace), maker: Option<Maker>) {
        let (rules, (space_id, space)) = (self.memory.variant(), space);
        let Some(numa) = &mut self.numa else { return };
        let delay_ms = numa.delay_ms();
        if let Some(maker) = maker.filter(|maker| rules.numa_groups && maker.users == 1) {
            space.numa.start_over(maker.now + millis(delay_ms));
        }
        let mut task = TaskNuma::begin(space.numa.seq, delay_ms);
        task.space = Some(space_id);
        if let Some(Maker { id, users, .. }) = maker.filter(|_| rules.numa_groups) {
            let windows = space.numa_windows(numa.size_pages(), rules);
            let max_ms = numa.scan_max_ms_of(rules, id, windows);
            let maker = numa.task_mut(id);
            task.preferred = maker.preferred;
            if rules.numa_move_resets_period {
                // The longest period is in ms, and is compared with a value in ns, of which 32 bits count.
                let nanos = (maker.period_ms * users * 1_000_000) & u64::from(u32::MAX);
                task.stamp = Picos::from_nanos(max_ms.min(nanos)) + JIFFY * 2;
            }
        }
        *numa.task_mut(id) = task;
    }

    /// Copies the state of a process with one task to its child (`dup_mm`); scanning begins anew in both.
    pub fn numa_fork(&self, parent: &mut AddressSpace, child: &mut AddressSpace, now: Time) {
        if let Some(numa) = self.numa.as_ref().filter(|_| self.memory.variant().numa_groups) {
            parent.numa.start_over(now + millis(numa.delay_ms()));
            child.numa = SpaceNuma { ptl: SpinLock::default(), ..parent.numa.clone() };
        }
    }

    /// Drops the state of a task that ends (`task_numa_free`).
    pub fn numa_end(&mut self, id: ControlId) {
        if let Some(numa) = &mut self.numa {
            numa.leave(id);
        }
    }

    /// Handles a tick of a running task (`task_tick_numa`); returns the scan that the task does on its way back to user mode, if
    /// one is due (the beginning of `task_numa_work`).
    pub fn numa_tick(&mut self, space: &mut AddressSpace, tick: Tick) -> Option<scan::ScanWork> {
        if self.memory.variant().numa_groups {
            self.numa_tick_grouped(space, tick)
        } else {
            self.numa_tick_alone(space, tick)
        }
    }

    fn numa_tick_grouped(&mut self, space: &mut AddressSpace, tick: Tick) -> Option<scan::ScanWork> {
        let (rules, id, now) = (self.memory.variant(), tick.id, tick.at);
        let numa = self.numa.as_mut()?;
        let task = numa.task_mut(id);
        task.stats.ran = (tick.ran, now);
        let period = millis(task.period_ms);
        if tick.ran <= task.stamp + period {
            return None;
        }
        let windows = space.numa_windows(numa.size_pages(), rules);
        let delay = millis(numa.delay_ms());
        let (start_ms, max_ms) = (numa.scan_start_ms(rules, id, windows), numa.scan_max_ms_of(rules, id, windows));
        let size = numa.size_pages();
        let task = numa.task_mut(id);
        if task.stamp == Picos(0) {
            task.period_ms = start_ms;
        }
        task.stamp += period;
        if now < space.numa.next_scan {
            return None;
        }
        // task_numa_work
        if space.numa.next_scan == Time(0) {
            space.numa.next_scan = now + delay;
        }
        if now < space.numa.next_scan {
            return None;
        }
        if task.period_ms == 0 {
            (task.period_ms, task.period_max_ms) = (start_ms, max_ms);
        }
        space.numa.next_scan = now + millis(task.period_ms);
        // So that another task of the process is likely to scan next time.
        task.stamp += JIFFY * 2;
        Some(scan::ScanWork::new(size).of(tick))
    }

    fn numa_tick_alone(&mut self, space: &mut AddressSpace, tick: Tick) -> Option<scan::ScanWork> {
        let Tick { id, cpu, at: now, ran, .. } = tick;
        let task = self.numa.as_mut()?.task_mut(id);
        if Picos(ran.0 - task.stamp.0) <= millis(task.period_ms) {
            return None;
        }
        let rules = *self.memory.variant();
        let here = self.memory.node_of_cpu(cpu);
        let keeps_away = self.keeps_scans_away(here, now);
        let numa = self.numa.as_mut()?;
        let windows = space.numa_windows(numa.size_pages(), &rules);
        let min_ms = numa.scan_min_ms(&rules, windows);
        let task = numa.task_mut(id);
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

    /// The node that a task prefers, and the number of scans since it was chosen, if tasks count faults.
    pub fn numa_preferred(&self, id: ControlId) -> Option<(NodeId, u64)> {
        let task = self.numa.as_ref()?.task(id)?;
        Some((task.preferred?, task.migrate_seq))
    }

    /// Number of scans for which the load balancer favours a task's preferred node.
    pub fn numa_settle_count(&self) -> u64 {
        let settings = self.numa.as_ref().map(|numa| numa.settings);
        u64::from(settings.and_then(|settings| settings.settle_count).unwrap_or(3))
    }
}

impl AddressSpace {
    /// Number of scan windows in the memory that is mapped, or resident (`task_nr_scan_windows`).
    fn numa_windows(&self, size: u64, rules: &Variant) -> u64 {
        let pages = if rules.numa_size_is_rss { self.rss_pages() } else { self.vmas.total_pages() };
        pages.div_ceil(size).max(1)
    }
}
