//! Linux: include/linux/mmzone.h (v6.1).
//! Differs: no HighMem; a zone is its sizes, seen from outside.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::{Frames, NodeId};

use crate::poison::OnFree;

/// Zones of a node, lowest addresses first (`enum zone_type`, include/linux/mmzone.h, v6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ZoneKind {
    /// The first 16 MiB.
    #[serde(rename = "DMA")]
    Dma,
    /// Below 4 GiB.
    #[serde(rename = "DMA32")]
    Dma32,
    /// The rest.
    Normal,
    /// Movable allocations only; empty unless configured.
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

    /// May a GFP_USER request, which is not movable, be served from here?
    pub fn holds_user(self) -> bool {
        self <= Self::Normal
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// All that the arithmetic may know of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Online nodes, by number.
    pub nodes: Vec<NodeView>,
}

/// One node: its CPUs, and all its zones, empty ones too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The node's number.
    pub id: NodeId,
    /// Online CPUs of this node; may be 0.
    pub cpus: u32,
    /// One entry per zone kind that the kernel was built with, lowest first.
    pub zones: Vec<ZoneView>,
}

/// One zone's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneView {
    /// Which of the node's zones.
    pub kind: ZoneKind,
    /// Frames that exist (`present_pages`); a zone with any is "populated".
    pub present: Frames,
    /// Frames that the buddy allocator was given (`managed_pages`).
    pub managed: Frames,
}

/// The settings that the arithmetic reads, by their names in /proc/sys/vm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `vm.min_free_kbytes`, in KiB.
    pub min_free_kbytes: u64,
    /// `vm.watermark_scale_factor`, in 1/10000 of a zone; read by 4.6 and later.
    pub watermark_scale_factor: u32,
    /// `vm.lowmem_reserve_ratio`, one entry per zone from the lowest; kernels before 4.17 leave out the last.
    pub lowmem_reserve_ratio: Vec<u32>,
    /// `vm.percpu_pagelist_high_fraction`, before 5.14 `vm.percpu_pagelist_fraction`: 1/n of a zone; 0 is unset.
    pub percpu_pagelist_high_fraction: u32,
    /// `transparent_hugepage/enabled` is `always` or `madvise`.
    pub thp: bool,
    /// `vm.swappiness`.
    pub swappiness: u32,
    /// `vm.page-cluster`: log2 of the pages that are read ahead from swap.
    pub page_cluster: u32,
    /// `vm.watermark_boost_factor`, in 1/10000 of the High mark; read by 5.0 and later.
    pub watermark_boost_factor: u32,
    /// `vm.dirty_ratio`: where writers stop, in percent of the memory that could be dirty.
    pub dirty_ratio: u32,
    /// `vm.dirty_background_ratio`: where the flusher starts, in percent of that.
    pub dirty_background_ratio: u32,
    /// `vm.dirty_expire_centisecs`: how old dirty pages get.
    pub dirty_expire_centisecs: u32,
    /// `vm.dirty_writeback_centisecs`: how often the flusher looks for old ones; 0 is never.
    pub dirty_writeback_centisecs: u32,
    /// `vm.vfs_cache_pressure`: how many of 100 unused dentries and inodes reclaim sees.
    pub vfs_cache_pressure: u32,
    /// `vm.compaction_proactiveness`: 0 to 100; 0 is off; read by 5.9 and later.
    pub compaction_proactiveness: u32,
    /// `vm.extfrag_threshold`: up to this fragmentation index, in thousandths, a zone is not compacted.
    pub extfrag_threshold: u32,
    /// `page_poison` and `init_on_free` of the kernel's command line.
    #[serde(skip)]
    pub on_free: OnFree,
    /// Does a balloon's device not offer VIRTIO_BALLOON_F_PAGE_POISON (QEMU's property `page-poison`)?
    #[serde(skip)]
    pub device_ignores_poison: bool,
}

impl Default for Settings {
    /// The kernel's defaults on x86-64 with all five zones, before it sizes `min_free_kbytes`
    /// (Documentation/admin-guide/sysctl/vm.rst, v6.1).
    fn default() -> Self {
        Self {
            min_free_kbytes: 1024,
            watermark_scale_factor: 10,
            lowmem_reserve_ratio: vec![256, 256, 32, 0, 0],
            percpu_pagelist_high_fraction: 0,
            thp: false,
            swappiness: 60,
            page_cluster: 3,
            watermark_boost_factor: 15_000,
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_expire_centisecs: 3000,
            dirty_writeback_centisecs: 500,
            vfs_cache_pressure: 100,
            compaction_proactiveness: 20,
            extfrag_threshold: 500,
            on_free: OnFree::Nothing,
            device_ignores_poison: false,
        }
    }
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
    /// Does the zone have any memory (`populated_zone`)?
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
