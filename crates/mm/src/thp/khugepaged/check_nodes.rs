//! Linux: khugepaged_check_nodes() in mm/huge_memory.c, as patch 2 of the series posted for v4.1-rc2 has it.
//! Differs: if threads of nodes allocate, it only looks.

use memory::{cx::Cx, event::Event, frame::Holdings, step::Step};
use rules::variant::ThpRequests;
use units::Order;

use super::node_alloc::NodeAlloc;
use crate::{Mm, Spaces};

/// The check of nodes that had no huge page, before khugepaged scans processes: each is asked for one.
#[derive(Clone, Debug)]
pub(super) struct CheckNodes {
    /// Whether khugepaged scans processes after the check.
    scans: bool,
    /// The next node, by position.
    next: usize,
    /// A node before `next` has huge pages.
    found: bool,
    /// The allocation on that node.
    alloc: Option<NodeAlloc>,
}

impl CheckNodes {
    pub(super) fn new(scans: bool) -> Self {
        Self { scans, next: 0, found: false, alloc: None }
    }

    pub(super) fn scans(&self) -> bool {
        self.scans
    }

    /// Asks at most one node. Done: whether any node has huge pages.
    pub(super) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<bool> {
        if let Some(alloc) = &mut self.alloc {
            let got = match alloc.step(mm, spaces, cx) {
                Step::Done(got) => got,
                step => return step.map(|_| false),
            };
            self.alloc = None;
            if let Some(frame) = got {
                self.found = true;
                // It asks for memory of that node alone.
                mm.note_huge(mm.memory.node_of(frame));
                if mm.memory.variant().khugepaged_keeps_page && mm.khugepaged.held.is_none() {
                    // Only what is kept counts, as the first collapse will not allocate.
                    cx.count(Event::ThpCollapseAlloc, 1);
                    mm.khugepaged.held = Some(frame);
                } else {
                    mm.memory.free(cx, frame, Order::HUGE);
                }
            }
            self.next += 1;
            return Step::More;
        }
        let others_allocate = mm.memory.variant().thp_requests == ThpRequests::NodeThreads;
        // Bound: the nodes of the machine.
        while let Some(node) = mm.memory.nodes().ids().nth(self.next) {
            if mm.has_huge(node) {
                self.found = true;
            } else if !others_allocate {
                self.alloc = Some(NodeAlloc::new(mm, node));
                return Step::More;
            }
            self.next += 1;
        }
        Step::Done(self.found)
    }

    pub(super) fn holdings(&self) -> Holdings {
        self.alloc.as_ref().map_or_else(Holdings::default, NodeAlloc::holdings)
    }
}
