//! Linux: none; where threads are in memory that they sweep through together.
//!
//! Threads that write all of the same range, round after round, are somewhere in it. How far each is behind the first of them,
//! by the node on which it runs, says who meets a page first: nearest to the front who is served fastest.

use std::collections::BTreeMap;

use memory::frame::SpaceId;
use units::{Bytes, NodeId, Vpn};

/// A sweep of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    /// The node of the task's CPU.
    pub(super) node: NodeId,
    /// Sweeps of equal ways have a common front.
    pub(super) way: Way,
    /// Pages of the way that are behind the sweep.
    pub(super) passed: u64,
}

/// The address space of a sweep, the first page and the one after the last, and pages of all rounds together.
pub(super) type Way = (SpaceId, (Vpn, Vpn), u64);

/// The number of a node's sweeps, and their distances to the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OnNode {
    tasks: u64,
    /// Pages from each sweep to the front of its way, all together; and from the last sweep.
    behind: u64,
    last: u64,
}

/// Tells of each node how many sweeps it has, and how far they are behind the front, on the mean and at most.
pub(super) fn by_node(nodes: impl Iterator<Item = NodeId>, sweeps: &[Sweep], mut tell: impl FnMut(String, u64)) {
    let mut fronts: BTreeMap<Way, u64> = BTreeMap::new();
    for sweep in sweeps {
        let front = fronts.entry(sweep.way).or_default();
        *front = sweep.passed.max(*front);
    }
    let mut found: BTreeMap<NodeId, OnNode> = nodes.map(|node| (node, OnNode::default())).collect();
    for sweep in sweeps {
        let behind = fronts[&sweep.way] - sweep.passed;
        let node = found.entry(sweep.node).or_default();
        node.tasks += 1;
        node.behind += behind;
        node.last = node.last.max(behind);
    }
    let mib = |pages: u64| (Bytes::PAGE * pages).as_mib();
    for (node, OnNode { tasks, behind, last }) in found {
        tell(format!("node{node}/sweeps"), tasks);
        tell(format!("node{node}/sweeps_behind_mib"), mib(behind / tasks.max(1)));
        tell(format!("node{node}/sweeps_last_behind_mib"), mib(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_behind_the_front_of_its_own_way() {
        let way = |space, pages| (SpaceId(space), (Vpn(0), Vpn(1 << 20)), pages);
        let sweep = |node, way, mib: u64| Sweep { node: NodeId(node), way, passed: mib * 256 };
        let (one, other, longer) = (way(1, 1 << 20), way(2, 1 << 20), way(1, 1 << 21));
        let sweeps = [sweep(0, one, 90), sweep(1, one, 70), sweep(1, one, 40), sweep(1, other, 5), sweep(0, longer, 9)];
        let mut told = Vec::new();
        by_node([0, 1, 2].map(NodeId).into_iter(), &sweeps, |name, value| told.push((name, value)));
        let expected = [
            ("node0/sweeps", 2),
            ("node0/sweeps_behind_mib", 0),
            ("node0/sweeps_last_behind_mib", 0),
            ("node1/sweeps", 3),
            ("node1/sweeps_behind_mib", 23),
            ("node1/sweeps_last_behind_mib", 50),
            ("node2/sweeps", 0),
            ("node2/sweeps_behind_mib", 0),
            ("node2/sweeps_last_behind_mib", 0),
        ];
        assert_eq!(told, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
