//! Linux: what `struct zone` holds for each mechanism, include/linux/mmzone.h (v6.1).
//! Differs: a mechanism keeps its own part of a zone.

use std::ops::{Deref, DerefMut, Index, IndexMut};

use crate::{node::Node, pageblock::ZoneIndex};

/// A value for each zone with memory: by node, lowest zone first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerZone<T>(Vec<T>);

impl<T> PerZone<T> {
    /// Something of each zone, by node, lowest first.
    pub fn new(of: Vec<T>) -> Self {
        assert!(of.len() < usize::from(ZoneIndex::NONE.0), "fewer zones than numbers for them");
        Self(of)
    }

    /// Those of a node, lowest first.
    pub fn of(&self, node: &Node) -> &[T] {
        &self.0[node.zone_range()]
    }

    /// The values of a node's zones, to be changed.
    pub fn of_mut(&mut self, node: &Node) -> &mut [T] {
        &mut self.0[node.zone_range()]
    }

    /// Which zones there are.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = ZoneIndex> + Clone + use<T> {
        (0..self.0.len()).map(ZoneIndex::at)
    }
}

/// Methods over all zones together are the methods of a slice.
impl<T> Deref for PerZone<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for PerZone<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> Index<ZoneIndex> for PerZone<T> {
    type Output = T;

    #[inline]
    fn index(&self, zone: ZoneIndex) -> &T {
        &self.0[zone.position()]
    }
}

impl<T> IndexMut<ZoneIndex> for PerZone<T> {
    #[inline]
    fn index_mut(&mut self, zone: ZoneIndex) -> &mut T {
        &mut self.0[zone.position()]
    }
}

#[cfg(test)]
mod tests {
    use rules::{
        machine::{MachineSpec, NodeSpec, ZoneSpec},
        zone::ZoneKind,
    };
    use units::{NodeId, Order, Pfn};

    use super::*;

    #[test]
    fn a_node_has_its_own_zones() {
        let zone = |kind, start| ZoneSpec::whole(kind, Pfn(start), 1024);
        let node = |id, zones| NodeSpec { id: NodeId(id), cpus: Vec::new(), distance: vec![10, 20], zones };
        let first = node(0, vec![zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, 1024)]);
        let second = node(2, vec![zone(ZoneKind::Normal, 2048)]);
        let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![first, second] };
        let kinds = [(NodeId(0), ZoneKind::Dma32), (NodeId(0), ZoneKind::Normal), (NodeId(2), ZoneKind::Normal)];
        let nodes = Node::all(&machine, &kinds);
        let mut names = PerZone::new(vec!["a", "b", "c"]);
        names.of_mut(&nodes[NodeId(2)])[0] = "d";
        assert_eq!([names.of(&nodes[NodeId(0)]), names.of(&nodes[NodeId(2)])], [&["a", "b"][..], &["d"]]);
        assert_eq!(names.indices().map(|zone| names[zone]).collect::<String>(), "abd");
        assert!(nodes[NodeId(2)].zones().eq([ZoneIndex(2)]));
    }
}
