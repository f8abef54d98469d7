//! Linux: struct vma_numab_state, include/linux/mm_types.h; vma_numab_state_init(), include/linux/mm.h (v6.4 to v6.18).
//! Differs: kept beside the VMAs, as most have none.

use std::collections::BTreeMap;

use units::{Time, Vpn};

/// The knowledge that balancing has of a VMA (`struct vma_numab_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumabState {
    /// A new VMA is not scanned before.
    pub(crate) next_scan: Time,
    /// When PIDs are forgotten next.
    pub(crate) pids_active_reset: Time,
    /// A bit for each PID that has faulted in it: before PIDs were forgotten last, and since.
    pub(crate) pids_active: [u64; 2],
    /// The scan of all that has had it last.
    pub(crate) prev_scan_seq: i64,
    /// The one in which it was looked at first.
    pub(crate) start_scan_seq: u64,
}

/// The states of the VMAs of an address space, by their first pages. One has none before it is looked at, nor when another was
/// split to make it (`vm_area_dup`).
#[derive(Clone, Debug, Default)]
pub(crate) struct NumabStates(Option<Box<States>>);

#[derive(Clone, Debug, Default)]
struct States {
    by_start: BTreeMap<Vpn, NumabState>,
}

const _: () = assert!(size_of::<NumabStates>() == 8, "part of the first line of an address space");

impl NumabStates {
    /// A VMA has grown downwards.
    pub(crate) fn begins_at(&mut self, was: Vpn, now: Vpn) {
        if let Some(states) = &mut self.0
            && let Some(state) = states.by_start.remove(&was)
        {
            states.by_start.insert(now, state);
        }
    }

    /// A VMA is no more, or a part of the one below.
    pub(crate) fn forget(&mut self, start: Vpn) {
        if let Some(states) = &mut self.0 {
            states.by_start.remove(&start);
        }
    }

    /// That of the VMA that begins there.
    pub(crate) fn of(&mut self, start: Vpn) -> Option<&mut NumabState> {
        self.0.as_mut()?.by_start.get_mut(&start)
    }

    /// That of the VMA that begins there, which is made if it has none.
    pub(crate) fn make(&mut self, start: Vpn, new: impl FnOnce() -> NumabState) -> &mut NumabState {
        self.0.get_or_insert_default().by_start.entry(start).or_insert_with(new)
    }
}
