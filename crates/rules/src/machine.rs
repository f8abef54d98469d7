//! Linux: the memory map of arch/x86/kernel/e820.c, and the tables of nodes, ACPI's SRAT and SLIT, as the manager gets them.
//! Differs: zones are given, not made of ranges.

use units::{CpuId, Frames, NodeId, Order, Pfn};

use crate::zone::{MachineView, NodeView, ZoneKind, ZoneView};

/// The memory and CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// log2 of the frames in a pageblock; 9 on x86-64.
    pub pageblock_order: Order,
    /// The largest order of the buddy allocator; 10 on x86-64.
    pub max_order: Order,
    /// The machine's nodes, by number.
    pub nodes: Vec<NodeSpec>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The node's number.
    pub id: NodeId,
    /// The node's CPUs.
    pub cpus: Vec<CpuId>,
    /// The node's distance to each node of the machine, in their order; 10 to itself.
    pub distance: Vec<u32>,
    /// The node's zones, lowest first; empty zones may be left out.
    pub zones: Vec<ZoneSpec>,
}

/// One zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The zone's first frame.
    pub start: Pfn,
    /// Frames from the zone's first to its last, holes included.
    pub spanned: Frames,
    /// Frames that exist (`present_pages`). A hole lies at the zone's end.
    pub present: Frames,
    /// Frames that the buddy allocator is given (`managed_pages`). The kernel keeps the zone's first frames.
    pub managed: Frames,
}

impl MachineSpec {
    /// The machine as the arithmetic of watermarks sees it.
    pub fn view(&self) -> MachineView {
        let nodes = self.nodes.iter().map(|node| NodeView {
            id: node.id,
            cpus: u32::try_from(node.cpus.len()).expect("fewer CPUs than numbers for them"),
            zones: ZoneKind::ALL.into_iter().map(|kind| node.zone_view(kind)).collect(),
        });
        MachineView { nodes: nodes.collect() }
    }

    /// Is there a DMA32 zone to spread to from the Normal zone of a node? On a machine of one node Linux does not look.
    pub fn has_below_normal(&self, node: &NodeSpec) -> bool {
        self.nodes.len() == 1 || node.zone_view(ZoneKind::Dma32).is_populated()
    }

    /// One past the last frame of the highest zone.
    pub fn end(&self) -> Pfn {
        let zones = self.nodes.iter().flat_map(|node| &node.zones);
        zones.map(ZoneSpec::end).max().unwrap_or(Pfn(0))
    }
}

impl NodeSpec {
    fn zone_view(&self, kind: ZoneKind) -> ZoneView {
        let zone = self.zones.iter().find(|zone| zone.kind == kind);
        let (present, managed) = zone.map_or((Frames(0), Frames(0)), |zone| (zone.present, zone.managed));
        ZoneView { kind, present, managed }
    }

    /// The node's zones with memory, lowest first.
    pub fn managed_zones(&self) -> impl Iterator<Item = &ZoneSpec> {
        self.zones.iter().filter(|zone| zone.managed > Frames(0))
    }

    /// Has the node memory?
    pub fn has_memory(&self) -> bool {
        self.managed_zones().next().is_some()
    }
}

impl ZoneSpec {
    /// A zone without holes, all of it given to the buddy allocator.
    pub fn whole(kind: ZoneKind, start: Pfn, frames: u32) -> Self {
        let all = Frames(frames.into());
        Self { kind, start, spanned: all, present: all, managed: all }
    }

    /// One past the zone's last frame, holes included.
    pub fn end(&self) -> Pfn {
        self.start.plus(count(self.spanned))
    }

    /// The frames that the buddy allocator is given, from the first to one past the last.
    pub fn managed_range(&self) -> (Pfn, Pfn) {
        assert!(self.managed <= self.present && self.present <= self.spanned, "sizes of {self:?} are in order");
        let end = self.start.plus(count(self.present));
        (Pfn(end.0 - count(self.managed)), end)
    }
}

fn count(frames: Frames) -> u32 {
    u32::try_from(frames.0).expect("a zone's frames have 32-bit numbers")
}
