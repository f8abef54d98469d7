//! Linux: page_nid_xchg_last(), include/linux/mm.h (v3.10); page_nidpid_xchg_last() of the series for v3.9;
//! page_cpupid_xchg_last(), mm/mmzone.c (v6.1).
//! Differs: a column beside the frames, which only kernels that balance NUMA have; a huge page has one entry.

pub mod sharing;

use rules::machine::MachineSpec;
use units::{Order, Pfn, Vpn};

use self::sharing::Sharing;
use crate::{Memory, frame::ControlId};

/// The record of the last fault on a page: the position of a node, or, if tasks are grouped, the number of a CPU; and 8 bits of
/// the task's PID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last(u32);

impl Last {
    /// No fault since the page was allocated.
    pub const NOBODY: Self = Self(0);

    /// A task on a CPU of a node.
    pub fn new(place: usize, task: ControlId) -> Self {
        let place = u32::try_from(place + 1).expect("fewer nodes and CPUs than bits for them");
        Self(place << 8 | task.0 & 0xff)
    }

    /// The position of the node, or the number of the CPU, if any task has faulted.
    pub fn place(self) -> Option<usize> {
        ((self.0 >> 8) as usize).checked_sub(1)
    }

    /// Were both the same task, as far as that is known?
    pub(crate) fn is_of_the_task_of(self, other: Self) -> bool {
        self != Self::NOBODY && self.0 & 0xff == other.0 & 0xff
    }

    /// May it have been this task? (`LAST__PID_MASK`: eight bits.)
    pub fn may_be(self, task: ControlId) -> bool {
        self != Self::NOBODY && self.0 & 0xff == task.0 & 0xff
    }
}

/// The records of all pages. Huge pages have theirs in a column by pageblock, so that the column of frames is only touched for
/// base pages.
#[derive(Clone, Debug)]
pub struct LastFaults {
    frames: Vec<Last>,
    blocks: Vec<Last>,
    pageblock: Order,
    /// Faults at the parts of huge pages, where a rule has them kept.
    pub sharing: Option<Sharing>,
}

impl LastFaults {
    pub(crate) fn new(machine: &MachineSpec, keeps_parts: bool) -> Self {
        let frames = machine.end().0 as usize;
        let blocks = (frames >> machine.pageblock_order.0) + 1;
        Self {
            frames: vec![Last::NOBODY; frames],
            blocks: vec![Last::NOBODY; blocks],
            pageblock: machine.pageblock_order,
            sharing: keeps_parts.then(|| Sharing::new(machine)),
        }
    }

    fn of(&mut self, head: Pfn, order: Order) -> &mut Last {
        if order >= self.pageblock {
            &mut self.blocks[(head.0 >> self.pageblock.0) as usize]
        } else {
            &mut self.frames[head.0 as usize]
        }
    }

    /// The last fault at a page of this order.
    pub fn get(&self, head: Pfn, order: Order) -> Last {
        if order >= self.pageblock {
            self.blocks[(head.0 >> self.pageblock.0) as usize]
        } else {
            self.frames[head.0 as usize]
        }
    }

    /// Notes who faults, and says who did so before.
    pub fn exchange(&mut self, head: Pfn, order: Order, now: Last) -> Last {
        std::mem::replace(self.of(head, order), now)
    }

    /// A page is freed: who faulted there is of no interest any more (`page_nid_reset_last`).
    pub fn forget(&mut self, head: Pfn, order: Order) {
        let last = self.of(head, order);
        if *last != Last::NOBODY {
            *last = Last::NOBODY;
        }
        if let Some(sharing) = self.sharing.as_mut().filter(|_| order == Order::HUGE) {
            sharing.forget(head);
        }
    }
}

impl Memory {
    /// Is a huge page at which a task of this step faults that of several tasks, each of which uses parts of its own? `own`: the
    /// mark of that fault.
    pub fn is_falsely_shared(&mut self, head: Pfn, vpn: Vpn, own: Last) -> bool {
        let (nodes, cpus, by_cpu) = (&self.nodes, &self.cpu_nodes, self.variant.numa_groups);
        let Some(sharing) = self.last_faults.as_mut().and_then(|faults| faults.sharing.as_mut()) else { return false };
        let node = |last: Last| last.place().map(|at| if by_cpu { nodes.place(cpus[at]) } else { at });
        sharing.note(head, vpn, own, node)
    }
}
