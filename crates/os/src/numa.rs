//! Nodes as places: what a program can find out and ask for.

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, NodeId};

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The node's number.
    pub id: NodeId,
    /// The node's CPUs, as far as they are the run's.
    pub cpus: Vec<CpuId>,
    /// The node's memory (`MemTotal` of its meminfo); none where it has none.
    pub memory: Bytes,
    /// Distances to the nodes, in the order of their numbers, as ACPI's SLIT has them: 10 is the node itself. Empty where the
    /// kernel does not say.
    pub distance: Vec<u32>,
}

impl NumaNode {
    /// Has it memory?
    pub fn has_memory(&self) -> bool {
        self.memory > Bytes(0)
    }
}

/// Memory of a range that is on one node, in pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placed {
    /// The node.
    pub node: NodeId,
    /// Whether it is mapped by huge pages.
    pub is_huge: bool,
    /// How much it is.
    pub size: Bytes,
}

/// Where a task wants its memory (set_mempolicy(2)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mempolicy {
    /// On the node of the CPU that it runs on (`MPOL_DEFAULT`).
    Local,
    /// On these nodes and no other (`MPOL_BIND`).
    Bind(Vec<NodeId>),
    /// On this node, if it has any (`MPOL_PREFERRED`).
    Preferred(NodeId),
    /// On each of these nodes in turn (`MPOL_INTERLEAVE`).
    Interleave(Vec<NodeId>),
}
