//! Linux: struct vma_numab_state, include/linux/mm_types.h; vma_numab_state_init(), include/linux/mm.h (v6.4 to v6.18).
//! Differs: kept beside the VMAs, as most VMAs have no such state.

use std::collections::BTreeMap;

use units::{Time, Vpn};

/// The state of NUMA balancing for a VMA (`struct vma_numab_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumabState {
    /// When a new VMA is first scanned.
    pub(crate) next_scan: Time,
    /// When the PIDs in `pids_active` are next forgotten.
    pub(crate) pids_active_reset: Time,
    /// One bit for each hash of a PID that has faulted in the VMA: in the last period, and in the present one.
    pub(crate) pids_active: [u64; 2],
    /// Number of the scan sequence in which the VMA was last scanned.
    pub(crate) prev_scan_seq: i64,
    /// Number of the scan sequence in which the state was made.
    pub(crate) start_scan_seq: u64,
}

/// The states of an address space's VMAs, by their first pages. A VMA has none before its first scan, nor if it was split off
/// another VMA (`vm_area_dup`).
#[derive(Clone, Debug, Default)]
pub(crate) struct NumabStates(Option<Box<States>>);

#[derive(Clone, Debug, Default)]
struct States {
    by_start: BTreeMap<Vpn, NumabState>,
}

const _: () = assert!(size_of::<NumabStates>() == 8, "part of the first line of an address space");

impl NumabStates {
    /// Moves the state of a VMA that has grown downward.
    pub(crate) fn begins_at(&mut self, was: Vpn, now: Vpn) {
        if let Some(states) = &mut self.0
            && let Some(state) = states.by_start.remove(&was)
        {
            states.by_start.insert(now, state);
        }
    }

    /// Drops the state of a VMA that was removed, or merged into the one below.
    pub(crate) fn forget(&mut self, start: Vpn) {
        if let Some(states) = &mut self.0 {
            states.by_start.remove(&start);
        }
    }

    /// The state of the VMA that begins at `start`.
    pub(crate) fn of(&mut self, start: Vpn) -> Option<&mut NumabState> {
        self.0.as_mut()?.by_start.get_mut(&start)
    }

    /// The state of the VMA that begins at `start`, which is made if there is none.
    pub(crate) fn make(&mut self, start: Vpn, new: impl FnOnce() -> NumabState) -> &mut NumabState {
        self.0.get_or_insert_default().by_start.entry(start).or_insert_with(new)
    }
}
