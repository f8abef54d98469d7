//! A guest as data: its kernel, its process in the host, and the reason of its loss.

use memory::frame::{Held, SpaceId};
use os::VmRange;
use units::{Bytes, Pfn, Picos, Time, Vpn};

use crate::ids::{KernelId, TaskId};

/// A guest: its kernel, and the process of the host that it runs in.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(super) kernel: KernelId,
    pub(super) process: SpaceId,
    /// The first task in the guest.
    pub(super) main: Option<TaskId>,
    /// The range at which the process has mapped the guest's memory.
    pub(super) memory: Option<VmRange>,
    pub(super) cpus: Vec<Vcpu>,
    /// Reported blocks that the host was not told of yet.
    pub(super) reported: Vec<Held>,
    /// The task that frees reported blocks, and whether the guest waits for it.
    pub(super) balloon: Option<TaskId>,
    pub(super) is_reporting: bool,
    /// The guest has come to its end.
    pub(super) is_off: bool,
}

/// A CPU of a guest.
#[derive(Clone, Debug)]
pub(super) struct Vcpu {
    /// The CPU's task in the host.
    pub(super) task: Option<TaskId>,
    /// Since when the CPU stands still in the guest.
    pub(super) stands_since: Option<Time>,
    /// Pages that the CPU has accessed and that were not looked up yet.
    pub(super) accessed: Vec<Pages>,
}

/// Pages of the host's process, from the first to before the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    pub(super) at: Vpn,
    pub(super) end: Vpn,
}

impl Guest {
    pub(super) fn pages(&self, Held { pfn, order }: Held) -> Pages {
        let base = self.memory.expect("its memory is mapped before it is started").start.0 / Bytes::PAGE.0;
        let at = Vpn(base + u64::from(pfn.0));
        Pages { at, end: Vpn(at.0 + u64::from(order.frames())) }
    }

    /// The guest's kernel, its process in the host, and the first page of its memory there, until it is powered off.
    #[cfg(test)]
    pub(crate) fn place(&self) -> Option<(KernelId, SpaceId, Vpn)> {
        let memory = self.memory.filter(|_| !self.is_off)?;
        Some((self.kernel, self.process, Vpn(memory.start.0 / Bytes::PAGE.0)))
    }

    /// The guest's frame behind a page of the process.
    pub(super) fn frame(&self, vpn: Vpn) -> Pfn {
        let base = self.memory.expect("its memory is mapped before it is started").start.0 / Bytes::PAGE.0;
        Pfn(u32::try_from(vpn.0 - base).expect("a frame of the guest"))
    }
}

/// The reason why a run with guests has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLost {
    /// The number of the guest, from 0 on.
    pub guest: usize,
    /// Time from the start of the run to the loss.
    pub after: Picos,
    /// The kernel that has ended the guest.
    pub by: LostBy,
}

/// The kernel that has ended a guest: the host's, or the guest's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostBy {
    /// The host's OOM killer has chosen the guest's process. The memory of all guests' processes at that instant.
    Host(Vec<ProcessMemory>),
    /// The guest's own kernel has no memory for its first program, which it may not kill.
    Itself,
}

/// Memory of a process, as the OOM killer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// In RAM (`VmRSS`).
    pub resident: Bytes,
    /// On the swap device (`VmSwap`).
    pub swapped: Bytes,
}
