//! Linux: mm/mempolicy.c (v4.1, v4.19 to v5.4, v6.1): get_vma_policy(), policy_node(), policy_nodemask(), interleave_nid(),
//! alloc_pages_vma() and vma_alloc_folio().
//! Differs: policies of tasks only, and only for pages of anonymous memory that faults map; no cpusets, no home node, no weights.

use units::{NodeId, Vpn};

use crate::{gfp::AllocRequest, variant::ThpNodes};

/// A set of nodes, one bit per node number (`nodemask_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMask(u32);

impl NodeMask {
    /// The set of all nodes.
    pub const ALL: Self = Self(u32::MAX);

    /// The set of these nodes.
    ///
    /// # Panics
    /// When a node has a number above 31.
    pub fn of(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let bit = |node: NodeId| {
            assert!(node.0 < u32::BITS, "node {node} has no bit");
            1 << node.0
        };
        Self(nodes.into_iter().fold(0, |mask, node| mask | bit(node)))
    }

    /// Whether the set holds this node.
    #[inline]
    pub const fn has(self, node: NodeId) -> bool {
        self.0 >> (node.0 % u32::BITS) & 1 == 1
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The node at place `n` of the set, from the lowest number on and round again (`interleave_nid`, before 5.x
    /// `offset_il_node`).
    fn nth(self, n: u64) -> NodeId {
        let mut rest = self.0;
        for _ in 0..n % u64::from(self.0.count_ones()) {
            rest &= rest - 1;
        }
        NodeId(rest.trailing_zeros())
    }
}

/// The nodes that a task takes its memory from (`set_mempolicy(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mempolicy {
    /// On the node of the CPU that the task runs on (`MPOL_DEFAULT`).
    #[default]
    Local,
    /// On the nodes of this set and no other, the nearest first (`MPOL_BIND`).
    Bind(NodeMask),
    /// On this node, else on the node nearest to it (`MPOL_PREFERRED`).
    Preferred(NodeId),
    /// On each node of this set in turn, by address (`MPOL_INTERLEAVE`).
    Interleave(NodeMask),
}

/// The rule by which the nodes for a huge page are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeReach {
    /// As the kernel's rules for huge pages have it.
    ByRule,
    /// The task's policy alone, as for a base page.
    ByPolicy,
}

impl Mempolicy {
    /// Whether the policy leaves the choice to the node of the task's CPU.
    #[inline]
    pub fn is_local(self) -> bool {
        self == Self::Local
    }

    /// The wish of a task for a page at `vpn`, which prefers the node that it runs on. The offset in a file that interleaving
    /// goes by is the page number for anonymous memory (`vm_pgoff`), counted in pages of the order that is wanted.
    pub fn apply(self, wish: AllocRequest, vpn: Vpn) -> AllocRequest {
        match self {
            Self::Local => wish,
            Self::Bind(allowed) => AllocRequest { allowed, ..wish },
            Self::Preferred(node) => AllocRequest { node, ..wish },
            Self::Interleave(nodes) => AllocRequest { node: nodes.nth(vpn.0 >> wish.order.0), ..wish },
        }
    }

    /// A huge page is taken from the preferred node only, where the kernel has that rule: not when pages are interleaved, and
    /// not when that node is none of those it is bound to. Where the rule is part of what faults ask for
    /// (`alloc_hugepage_direct_gfpmask`, 5.3), only who is bound to nodes is left out.
    pub fn huge_reach(self, request: &AllocRequest, rule: ThpNodes) -> HugeReach {
        match self {
            Self::Bind(_) if rule == ThpNodes::LocalUnlessReclaims => HugeReach::ByPolicy,
            _ if rule == ThpNodes::LocalUnlessReclaims => HugeReach::ByRule,
            Self::Interleave(_) => HugeReach::ByPolicy,
            _ if !request.allowed.has(request.node) => HugeReach::ByPolicy,
            _ => HugeReach::ByRule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_node_of_a_set_is_counted_from_the_lowest() {
        let nodes = NodeMask::of([1, 4, 31].map(NodeId));
        assert_eq!([0, 1, 2, 3, 7].map(|n| nodes.nth(n).0), [1, 4, 31, 1, 4]);
        assert!(nodes.has(NodeId(31)) && !nodes.has(NodeId(0)) && NodeMask::of([]).is_empty());
    }
}
