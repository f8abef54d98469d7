//! Linux: none. An idea of this project, which stands behind the sixteen patches of the series for v3.9 as a seventeenth
//! (`variants/v3.9.toml`). The series' author calls the detection of false sharing a "key task for the future".
//!
//! Several tasks that fault at one huge page need not share anything: each may use base pages of its own. So the parts of a huge
//! page keep who faulted there last, each for itself. A kernel would have room for that in the `struct page` of each part, which
//! is a tail of the huge page and whose `page_nidpid` nobody uses. Where tasks of several nodes come back to parts of their own,
//! and no part has been another's too, the huge page is split, and base pages follow their tasks. One that is shared in earnest
//! stays huge, and so does one whose users are on one node.

use rules::machine::MachineSpec;
use units::{Order, Pfn, Vpn};

use super::Last;

/// Parts of a huge page.
const PARTS: usize = 8;
/// A part is a task's own once it has faulted there so many times.
const OWN: u8 = 2;
/// After so many faults all that is known of a huge page is forgotten: objects come and go.
const FORGOTTEN: u8 = 32;

/// The faults at a huge page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    last: [Last; PARTS],
    /// Faults in a row of the task that was last there.
    times: [u8; PARTS],
    /// Has a part been that of two tasks?
    is_shared: bool,
    faults: u8,
}

/// Huge pages by number of their block, so that each has a place before it is allocated.
#[derive(Clone, Debug)]
pub struct Sharing {
    blocks: Vec<Parts>,
}

fn block_of(head: Pfn) -> usize {
    (head.0 >> Order::HUGE.0) as usize
}

/// The part that a base page of a huge one lies in, by its number there.
fn part_of(number: u64) -> usize {
    usize::try_from(number).expect("below 512") * PARTS / Order::HUGE.frames() as usize
}

impl Sharing {
    pub(crate) fn new(machine: &MachineSpec) -> Self {
        Self { blocks: vec![Parts::default(); block_of(machine.end()) + 1] }
    }

    /// Notes a fault. Is each part of the page known the own of a task, and are these of several nodes?
    pub fn note(&mut self, head: Pfn, vpn: Vpn, own: Last, node: impl Fn(Last) -> Option<usize>) -> bool {
        let parts = &mut self.blocks[block_of(head)];
        if parts.faults == FORGOTTEN {
            *parts = Parts::default();
        }
        parts.faults += 1;
        let at = part_of(vpn.0 % u64::from(Order::HUGE.frames()));
        let was = std::mem::replace(&mut parts.last[at], own);
        if was == Last::NOBODY || was.is_of_the_task_of(own) {
            parts.times[at] += 1;
        } else {
            parts.is_shared = true;
        }
        let owned = parts.last.iter().zip(parts.times).filter(|(_, times)| *times >= OWN);
        let mut nodes = owned.map(|(last, _)| node(*last));
        let first = nodes.next();
        !parts.is_shared && first.is_some_and(|first| nodes.any(|other| other != first))
    }

    /// The last fault at the part of a base page, where that is known.
    pub fn last(&self, head: Pfn, number: u32) -> Last {
        self.blocks[block_of(head)].last[part_of(number.into())]
    }

    /// The faults at the parts of a huge page.
    pub fn parts(&self, head: Pfn) -> Parts {
        self.blocks[block_of(head)]
    }

    /// The huge page was copied to another.
    pub fn keep(&mut self, head: Pfn, parts: Parts) {
        self.blocks[block_of(head)] = parts;
    }

    /// The huge page is freed, or split.
    pub fn forget(&mut self, head: Pfn) {
        self.blocks[block_of(head)] = Parts::default();
    }
}
