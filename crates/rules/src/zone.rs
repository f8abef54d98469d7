//! Linux: include/linux/mmzone.h (v6.1).
//! Differs: no HighMem; a zone is its sizes, seen from outside.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use units::setting::Settings;
use units::{Frames, NodeId};

/// Zones of a node, lowest addresses first (`enum zone_type`, include/linux/mmzone.h, v6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ZoneKind {
    /// The first 16 MiB.
    #[serde(rename = "DMA")]
    Dma,
    /// Below 4 GiB.
    #[serde(rename = "DMA32")]
    Dma32,
    /// Above 4 GiB.
    Normal,
    /// For movable allocations alone; empty unless configured (`ZONE_MOVABLE`).
    Movable,
    /// Memory of devices (4.3 and later); the buddy allocator manages none of it.
    Device,
}

impl ZoneKind {
    /// Every kind, lowest first.
    pub const ALL: [Self; 5] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable, Self::Device];

    /// The kernel's name in /proc/zoneinfo (`zone_names`, mm/page_alloc.c, v6.1).
    pub fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
            Self::Device => "Device",
        }
    }

    /// The kind that the kernel calls `name`, if there is one on 64-bit.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether unmovable user memory (`GFP_USER`) may come from such a zone.
    pub fn holds_user(self) -> bool {
        self <= Self::Normal
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The nodes and sizes of zones that the arithmetic of watermarks goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Online nodes, by number.
    pub nodes: Vec<NodeView>,
}

/// One node: its CPUs, and all its zones, including empty ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The node's number.
    pub id: NodeId,
    /// Online CPUs of this node; 0 is allowed.
    pub cpus: u32,
    /// One entry per zone kind that the kernel was built with, lowest first.
    pub zones: Vec<ZoneView>,
}

/// One zone's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneView {
    /// The zone's kind.
    pub kind: ZoneKind,
    /// Frames that exist (`present_pages`).
    pub present: Frames,
    /// Frames that the buddy allocator was given (`managed_pages`).
    pub managed: Frames,
}

impl MachineView {
    /// Every zone of every node.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneView> {
        self.nodes.iter().flat_map(|node| &node.zones)
    }

    /// CPUs that share a zone of `node`: the node's own, or every CPU of the machine when it has none; at least 1.
    pub fn local_cpus(&self, node: &NodeView) -> u64 {
        let local = u64::from(node.cpus);
        let online = self.nodes.iter().map(|n| u64::from(n.cpus)).sum();
        if local > 0 { local } else { u64::max(online, 1) }
    }
}

impl ZoneView {
    /// Whether any frame of the zone exists (`populated_zone`).
    pub fn is_populated(&self) -> bool {
        self.present > Frames(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_the_kernels_names() {
        for kind in ZoneKind::ALL {
            assert_eq!(ZoneKind::from_name(&kind.to_string()), Some(kind));
        }
        assert_eq!(ZoneKind::from_name("HighMem"), None);
        assert!(ZoneKind::ALL.is_sorted());
    }

    #[test]
    fn a_node_without_cpus_shares_all_of_them() {
        let node = |id, cpus| NodeView { id: NodeId(id), cpus, zones: vec![] };
        let machine = MachineView { nodes: vec![node(0, 2), node(1, 3), node(2, 0)] };
        let cpus: Vec<_> = machine.nodes.iter().map(|n| machine.local_cpus(n)).collect();
        assert_eq!(cpus, [2, 3, 5]);
        let offline = MachineView { nodes: vec![node(0, 0)] };
        assert_eq!(offline.local_cpus(&offline.nodes[0]), 1);
    }
}
