//! Linux: task_scan_min(), task_scan_start(), task_scan_max(), update_task_scan_period(), update_scan_period(),
//! kernel/sched/fair.c (v6.1).
//!
//! How long a task waits from one scan to the next: at least as long as its size demands, and longer if its faults are well
//! placed.

use memory::frame::ControlId;
use rules::variant::{NumaPeriod, NumaPlaces, Variant};
use units::{NodeId, Time};

use super::{MAX_SCAN_WINDOW, NumaBalancing, Sysctls, millis};
use crate::{Mm, space::address_space::AddressSpace};

/// The scan period changes in steps of a tenth (`NUMA_PERIOD_SLOTS`).
const SLOTS: u64 = 10;
/// Number of tenths of the faults that have to be local, or private (`NUMA_PERIOD_THRESHOLD`).
const THRESHOLD: u64 = 7;

impl Sysctls {
    pub(super) fn period_min_ms(&self, rules: &Variant) -> u64 {
        u64::from(self.period_min_ms.unwrap_or(if rules.numa_period_by_size { 1000 } else { 100 }))
    }

    pub(super) fn period_max_ms(&self, rules: &Variant) -> u64 {
        let default = match (rules.numa_period_by_size, rules.numa_period_by_preference) {
            _ if rules.numa_groups => 60_000,
            (true, _) => 600_000,
            (false, true) => 100 * 600,
            (false, false) => 100 * 50,
        };
        u64::from(self.period_max_ms.unwrap_or(default))
    }
}

impl NumaBalancing {
    /// The shortest period, in ms, of a task with this number of scan windows (`task_scan_min`).
    pub(super) fn scan_min_ms(&self, rules: &Variant, windows: u64) -> u64 {
        let min = self.settings.period_min_ms(rules);
        if !rules.numa_period_by_size {
            return min;
        }
        let size_mb = u64::from(self.settings.size_mb.unwrap_or(256));
        let per_second = if size_mb < MAX_SCAN_WINDOW { MAX_SCAN_WINDOW / size_mb } else { 1 };
        (min / windows).max(1000 / per_second)
    }

    /// The longest period, in ms, of a task with this number of scan windows (`task_scan_max`).
    pub(super) fn scan_max_ms(&self, rules: &Variant, windows: u64) -> u64 {
        let max = self.settings.period_max_ms(rules);
        if rules.numa_period_by_size { (max / windows).max(self.scan_min_ms(rules, windows)) } else { max }
    }

    /// Lengthens a period by the size of the task's group, and by how much that shares.
    fn by_sharing(&self, rules: &Variant, id: ControlId, period: u64) -> u64 {
        let Some(group) = self.group_of(id).filter(|_| rules.numa_period_by_sharing) else { return period };
        let (shared, private) = (group.faults.of(false), group.faults.of(true));
        // A period of more than 64 bits of ms is for ever.
        let longer =
            u128::from(period) * u128::from(group.tasks) * u128::from(shared + 1) / u128::from(private + shared + 1);
        period.max(u64::try_from(longer).unwrap_or(u64::MAX))
    }

    /// The period with which a task begins, in ms (`task_scan_start`).
    pub(super) fn scan_start_ms(&self, rules: &Variant, id: ControlId, windows: u64) -> u64 {
        self.by_sharing(rules, id, self.scan_min_ms(rules, windows))
    }

    /// The longest period of a task, in ms (`task_scan_max`).
    pub(super) fn scan_max_ms_of(&self, rules: &Variant, id: ControlId, windows: u64) -> u64 {
        let max = self.settings.period_max_ms(rules) / windows;
        self.by_sharing(rules, id, max).max(self.scan_min_ms(rules, windows))
    }
}

/// The new period in ms, given the numbers of faults that were remote, local, and failed to move; and shared and private. None
/// if the period doubles and the next scan is put off (`update_task_scan_period`).
pub(super) fn adapted(
    form: NumaPeriod,
    period: u64,
    [remote, local, failed]: [u64; 3],
    [shared, private]: [u64; 2],
) -> Option<u64> {
    let heeds_failures = form != NumaPeriod::Local;
    if local + shared == 0 || (heeds_failures && failed > 0) {
        return None;
    }
    let slot = period.div_ceil(SLOTS);
    let local_ratio = (local * SLOTS).checked_div(local + remote).unwrap_or(0);
    let private_ratio = (private * SLOTS).checked_div(private + shared).unwrap_or(0);
    let longer = |ratio: u64| Some(period + (ratio - THRESHOLD).max(1) * slot);
    if form == NumaPeriod::LocalOrPrivate {
        if private_ratio >= THRESHOLD {
            return longer(private_ratio);
        }
        if local_ratio >= THRESHOLD {
            return longer(local_ratio);
        }
        return Some(period.saturating_sub((THRESHOLD - local_ratio.max(private_ratio)) * slot));
    }
    if local_ratio >= THRESHOLD {
        return longer(local_ratio);
    }
    // If faults are shared, scanning faster does not help as much.
    let private_up = (private * SLOTS).div_ceil(private + shared);
    Some(period.saturating_sub((THRESHOLD - local_ratio) * slot * private_up / SLOTS))
}

impl Mm {
    /// Adapts a task's period after a scan sequence; `types` has its shared and private faults.
    pub(super) fn numa_adapt(&mut self, space: &mut AddressSpace, id: ControlId, now: Time, types: [u64; 2]) {
        let rules = *self.memory.variant();
        let numa = self.numa.as_mut().expect("a task has faulted");
        let windows = space.numa_windows(numa.size_pages(), &rules);
        let (min, max) = (numa.scan_min_ms(&rules, windows), numa.scan_max_ms_of(&rules, id, windows));
        let task = numa.task_mut(id);
        if let Some(period) = adapted(rules.numa_period, task.period_ms, task.stats.locality, types) {
            task.period_ms = period.clamp(min, max);
            task.stats.locality = [0; 3];
        } else {
            task.period_ms = task.period_max_ms.min(task.period_ms << 1);
            space.numa.next_scan = now + millis(task.period_ms);
        }
    }

    /// Lets a task scan as fast as it may after it moved to another CPU for its memory's sake, up to 4.18 (`task_numa_migrate`).
    pub fn numa_hurry(&mut self, space: &AddressSpace, id: ControlId) {
        let rules = *self.memory.variant();
        if let Some(numa) = self.numa.as_mut().filter(|_| rules.numa_places == NumaPlaces::ByCapacity) {
            let min_ms = numa.scan_min_ms(&rules, space.numa_windows(numa.size_pages(), &rules));
            numa.task_mut(id).period_ms = min_ms;
        }
    }

    /// Adapts a task's period after it moved to a CPU of another node (`update_scan_period`).
    pub fn numa_task_moved(&mut self, space: &AddressSpace, id: ControlId, from: NodeId, to: NodeId) {
        let rules = *self.memory.variant();
        let Some(numa) = self.numa.as_mut().filter(|_| rules.numa_move_resets_period && from != to) else { return };
        let task = numa.task_mut(id);
        let is_settled =
            task.scan_seq > 0 && (task.preferred == Some(to) || task.preferred.is_some_and(|it| it != from));
        if task.stats.faults.mem.is_empty() || is_settled {
            return;
        }
        let windows = space.numa_windows(numa.size_pages(), &rules);
        numa.task_mut(id).period_ms = numa.scan_start_ms(&rules, id, windows);
    }
}
