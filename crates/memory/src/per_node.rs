//! Linux: arrays of `MAX_NUMNODES` or `nr_node_ids` entries (v6.1): `node_data`, `kmem_cache.node`, `shrinker.nr_deferred`.
//! Differs: node numbers that the machine lacks take no room.

use std::ops::{Index, IndexMut};

use rules::machine::{MachineSpec, NodeSpec};
use units::NodeId;

/// Something of each node of the machine, by the node's number; numbers may have gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerNode<T>(Vec<(NodeId, T)>);

impl<T> PerNode<T> {
    /// The value of `of` for each node.
    pub fn new(machine: &MachineSpec, of: impl FnMut(&NodeSpec) -> T) -> Self {
        let ids = machine.nodes.iter().map(|node| node.id);
        Self(ids.zip(machine.nodes.iter().map(of)).collect())
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each node's number and value, in the order of the machine.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, &T)> {
        self.0.iter().map(|(id, of)| (*id, of))
    }

    /// Values by node, without the numbers.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter().map(|(_, of)| of)
    }

    /// The numbers of the nodes, in the order of the machine.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// Position of a node's value. Nearly always that is the node's number.
    #[inline]
    pub fn place(&self, node: NodeId) -> usize {
        let guess = node.0 as usize;
        match self.0.get(guess) {
            Some((known, _)) if *known == node => guess,
            _ => self.search(node),
        }
    }

    #[cold]
    fn search(&self, node: NodeId) -> usize {
        self.ids().position(|known| known == node).expect("the node is one of the machine's")
    }
}

impl<T> Index<NodeId> for PerNode<T> {
    type Output = T;

    #[inline]
    fn index(&self, node: NodeId) -> &T {
        &self.0[self.place(node)].1
    }
}

impl<T> IndexMut<NodeId> for PerNode<T> {
    #[inline]
    fn index_mut(&mut self, node: NodeId) -> &mut T {
        let place = self.place(node);
        &mut self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use units::Order;

    use super::*;

    #[test]
    fn numbers_may_have_gaps() {
        let node = |id| NodeSpec { id: NodeId(id), cpus: Vec::new(), distance: Vec::new(), zones: Vec::new() };
        let nodes = [0, 3, 1].map(node).to_vec();
        let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes };
        let mut squares = PerNode::new(&machine, |node| node.id.0 * node.id.0);
        squares[NodeId(1)] += 1;
        assert_eq!([0, 1, 3].map(|id| squares[NodeId(id)]), [0, 2, 9]);
        assert_eq!(squares.iter().map(|(id, square)| (id.0, *square)).collect::<Vec<_>>(), [(0, 0), (3, 9), (1, 2)]);
    }

    #[test]
    #[should_panic(expected = "the node is one of the machine's")]
    fn a_node_that_is_not_there_has_nothing() {
        let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: Vec::new() };
        let _ = PerNode::new(&machine, |node| node.id)[NodeId(0)];
    }
}
