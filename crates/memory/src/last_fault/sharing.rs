//! Linux: none. An idea of this project, which stands behind the sixteen patches of the series for v3.9 as a seventeenth
//! (`variants/v3.9.toml`). The series' author calls the detection of false sharing a "key task for the future".
//!
//! Several tasks that fault on one huge page need not share anything: each may use base pages of its own. So each part of a huge
//! page keeps a record of its last fault. A kernel would have room for that in the `struct page` of each part, which is a tail
//! of the huge page and whose `page_nidpid` is unused. If tasks of several nodes come back to parts of their own, and no part
//! was also used by another task, the huge page is split, and its base pages follow their tasks. A page that is really shared
//! stays huge, and so does one whose users are on one node.

use rules::machine::MachineSpec;
use units::{Order, Pfn, Vpn};

use super::Last;

/// Number of parts of a huge page.
const PARTS: usize = 8;
/// Number of faults in a row after which a part is a task's own.
const OWN: u8 = 2;
/// Number of faults after which the records of a huge page are cleared: objects come and go.
const FORGOTTEN: u8 = 32;

/// The faults on a huge page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    last: [Last; PARTS],
    /// Faults in a row of the task that faulted last.
    times: [u8; PARTS],
    /// Whether two tasks have faulted on one part.
    is_shared: bool,
    faults: u8,
}

/// Records of huge pages by pageblock, so that each has a place before it is allocated.
#[derive(Clone, Debug)]
pub struct Sharing {
    blocks: Vec<Parts>,
}

fn block_of(head: Pfn) -> usize {
    (head.0 >> Order::HUGE.0) as usize
}

/// The part that holds the n-th base page of a huge page.
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
