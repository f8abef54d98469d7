//! Linux: thp_avail_nodes and its users in mm/huge_memory.c, mm/mempolicy.c and mm/page_alloc.c, as posted for v4.1-rc2
//! ("Outsourcing page fault THP allocations to khugepaged", RFC, May 2015; never merged).
//! Differs: no memory policies, so that a fault tries on the node of its CPU.
//!
//! A node on which a request got no huge page is left alone, by faults and by khugepaged, each by a rule of its own, until a
//! request gets one or a huge page is freed there.

use memory::{alloc::lent::Shortage, cx::Cx, per_node::PerNode};
use rules::{gfp::AllocRequest, machine::MachineSpec, variant::ThpRequests};
use units::NodeId;

use crate::Mm;

/// The nodes that have huge pages, as far as is known. At first all have (`NODE_MASK_ALL`).
#[derive(Clone, Debug)]
pub struct ThpAvail {
    nodes: PerNode<NodeAvail>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeAvail {
    /// A request got no huge page on this node, and none was allocated or freed since: the node's bit is clear.
    is_without: bool,
    /// Faults that have tried since then.
    tries: u64,
}

impl ThpAvail {
    pub(crate) fn new(machine: &MachineSpec) -> Self {
        Self { nodes: PerNode::new(machine, |_| NodeAvail::default()) }
    }
}

impl Mm {
    /// Has a node huge pages, as far as is known? One that was freed there counts, as such and not by merging
    /// (`__free_pages_ok` of patch 3).
    pub fn has_huge(&self, node: NodeId) -> bool {
        let is_freed = self.memory.variant().thp_faults_gated && self.memory.node(node).has_freed_huge;
        is_freed || !self.thp_avail.nodes[node].is_without
    }

    /// Of each node without huge pages, how many faults have tried there since: for checks.
    pub(crate) fn raw_huge_tries(&self) -> impl Iterator<Item = u64> + '_ {
        self.thp_avail.nodes.iter().filter(|(id, _)| !self.has_huge(*id)).map(|(_, node)| node.tries)
    }

    /// Notes what the page allocator has said of a node since: that a huge block was freed.
    fn hear_of_freed(&mut self, node: NodeId) {
        if std::mem::take(&mut self.memory.node_mut(node).has_freed_huge) && self.memory.variant().thp_faults_gated {
            self.note_huge(node);
        }
    }

    /// Does khugepaged collapse nothing on this node?
    pub(super) fn leaves_node_alone(&self, node: NodeId) -> bool {
        self.memory.variant().khugepaged_checks_nodes && !self.has_huge(node)
    }

    /// Notes that a request got no huge page on a node (`node_clear`).
    pub(super) fn note_without_huge(&mut self, node: NodeId) {
        self.hear_of_freed(node);
        let known = &mut self.thp_avail.nodes[node];
        if !known.is_without {
            *known = NodeAvail { is_without: true, tries: 0 };
        }
    }

    /// Notes that a request got a huge page on a node (`thp_avail_set`).
    pub(super) fn note_huge(&mut self, node: NodeId) {
        self.thp_avail.nodes[node] = NodeAvail::default();
    }

    /// May a fault try for a huge page (`thp_avail_isset`, in `alloc_pages_vma` of patch 3)? What the slow path has answered
    /// is a try that began before.
    pub(crate) fn may_try_huge(&self, cx: &mut Cx, request: &AllocRequest) -> bool {
        !self.memory.variant().thp_faults_gated || self.has_huge(request.node) || is_answered(cx, request)
    }

    /// Counts a fault that tries for a huge page.
    pub(crate) fn count_huge_try(&mut self, cx: &mut Cx, request: &AllocRequest) {
        self.hear_of_freed(request.node);
        let known = &mut self.thp_avail.nodes[request.node];
        known.tries += u64::from(known.is_without && !is_answered(cx, request));
    }

    /// Notes a fault that got no huge page on its node, or did not try (`thp_avail_clear` of patches 3 and 4).
    pub(crate) fn huge_fault_failed(&mut self, node: NodeId) {
        let (gates, requests) = (self.memory.variant().thp_faults_gated, self.memory.variant().thp_faults_request);
        if gates || requests {
            self.note_without_huge(node);
        }
        if requests {
            match self.memory.variant().thp_requests {
                ThpRequests::Khugepaged | ThpRequests::KhugepagedUnscanned => self.request_of_khugepaged(),
                ThpRequests::NodeThreads => self.request_of_thread(node),
            }
        }
    }
}

/// Whether the slow path has an answer to this request.
fn is_answered(cx: &mut Cx, request: &AllocRequest) -> bool {
    cx.memory.given.is_some_and(|given| given.request == *request) || cx.memory.shortage == Shortage::Refused(*request)
}
