//! Linux: frag_show() and pagetypeinfo_show() in mm/vmstat.c, node_read_vmstat() in drivers/base/node.c (v6.1).
//! Differs: one census of everything; pageblocks that are wholly free are counted too, and huge pages whether or not a PMD maps
//! them.

use memory::{frame::Frame, lru_kind::LruKind, node::Node, pageblock::MigrateType, zone_state::ZoneState};
use rules::zone::ZoneKind;
use units::{NodeId, Order};

use crate::Mm;

/// The use of memory at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// By node, in the machine's order.
    pub nodes: Vec<NodeCensus>,
    /// By zone, in the order of [`memory::Memory::zones`].
    pub zones: Vec<ZoneCensus>,
}

/// A node's gauges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCensus {
    /// The node.
    pub node: NodeId,
    /// Values by the names of `/sys/devices/system/node/nodeN/vmstat`.
    pub gauges: Vec<(&'static str, u64)>,
}

/// A zone's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCensus {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// Free blocks of order 0, 1, ...: its line of /proc/buddyinfo.
    pub free: Vec<u64>,
    /// Pageblocks of each type, in the order of [`MigrateType::ALL`]: its line of "Number of blocks type" in /proc/pagetypeinfo.
    pub blocks: [u64; MigrateType::COUNT],
    /// Pageblocks all of whose frames are on free lists.
    pub free_blocks: u64,
    /// Folios of anonymous memory as large as a pageblock.
    pub huge_pages: u64,
}

const LRU: [(LruKind, &str); 4] = [
    (LruKind::InactiveAnon, "nr_inactive_anon"),
    (LruKind::ActiveAnon, "nr_active_anon"),
    (LruKind::InactiveFile, "nr_inactive_file"),
    (LruKind::ActiveFile, "nr_active_file"),
];

impl Mm {
    /// Counts everything. It walks all pageblocks.
    pub fn census(&self) -> Census {
        let zones = self.zone_census();
        let nodes = self.memory.nodes().values().map(|node| self.node_census(node, &zones)).collect();
        Census { nodes, zones }
    }

    fn zone_census(&self) -> Vec<ZoneCensus> {
        let pageblock = self.memory.frames.blocks.order();
        let census = |zone: &ZoneState| {
            let orders = 0..=zone.max_order().0;
            let free: Vec<u64> = orders.map(|order| zone.nr_free(Order(order))).collect();
            // Free frames of a pageblock that has no others are one block, or part of one.
            let whole = (0_u32..).zip(&free).skip(usize::from(pageblock.0));
            let free_blocks = whole.map(|(order, blocks)| blocks << (order - u32::from(pageblock.0))).sum();
            let (node, kind, blocks) = (zone.node, zone.kind, [0; MigrateType::COUNT]);
            ZoneCensus { node, kind, free, blocks, free_blocks, huge_pages: 0 }
        };
        let mut zones: Vec<ZoneCensus> = self.memory.zones().iter().map(census).collect();
        for pfn in (0..self.memory.frames.len()).step_by(pageblock.frames() as usize).map(units::Pfn) {
            let Some(zone) = self.memory.frames.blocks.zone(pfn) else { continue };
            let zone = &mut zones[zone.position()];
            zone.blocks[self.memory.frames.blocks.migrate_type(pfn) as usize] += 1;
            if let Frame::Anon { order, .. } = self.memory.frames.get(pfn)
                && order == pageblock
            {
                zone.huge_pages += 1;
            }
        }
        zones
    }

    fn node_census(&self, node: &Node, census: &[ZoneCensus]) -> NodeCensus {
        let zones = || node.zones().map(|zone| self.memory.zone(zone));
        let huge_pages = census.iter().filter(|zone| zone.node == node.id).map(|zone| zone.huge_pages);
        let mut gauges = vec![
            ("nr_free_pages", zones().map(ZoneState::free_frames).sum()),
            ("nr_page_table_pages", zones().map(|zone| zone.page_tables.0).sum()),
            ("nr_anon_transparent_hugepages", huge_pages.sum()),
        ];
        let on = |kind| node.zones().map(|zone| self.lru.zone_frames(zone, kind)).sum();
        gauges.extend(LRU.map(|(kind, name)| (name, on(kind))));
        NodeCensus { node: node.id, gauges }
    }
}

#[cfg(test)]
mod tests {
    use memory::{cost::Prices, cx::Cx, event::Counters};
    use rules::{
        gfp::AllocRequest,
        machine::{MachineSpec, NodeSpec, ZoneSpec},
        variant,
        zone::Settings,
    };
    use units::{CpuId, Pfn, Time};

    use super::*;

    /// Two nodes of eight and of four pageblocks.
    fn mm() -> Mm {
        let node = |id: u32, zone| NodeSpec {
            id: NodeId(id),
            cpus: vec![CpuId(id)],
            distance: vec![10, 20],
            zones: vec![zone],
        };
        let nodes = vec![
            node(0, ZoneSpec::whole(ZoneKind::Dma32, Pfn(0), 8 * 512)),
            NodeSpec { distance: vec![20, 10], ..node(1, ZoneSpec::whole(ZoneKind::Normal, Pfn(8 * 512), 4 * 512)) },
        ];
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        Mm::new(&machine, *variant::named("v6.1"), &Settings::default())
    }

    #[test]
    fn free_memory_is_free_pageblocks() {
        let census = mm().census();
        let of = |zone: &ZoneCensus| (zone.node.0, zone.kind, zone.free_blocks, zone.blocks.iter().sum::<u64>());
        assert_eq!(
            census.zones.iter().map(of).collect::<Vec<_>>(),
            [(0, ZoneKind::Dma32, 8, 8), (1, ZoneKind::Normal, 4, 4)]
        );
        assert_eq!(census.zones[0].free, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(census.zones[1].blocks[MigrateType::Movable as usize], 4);
        assert_eq!(census.nodes[1].gauges[0], ("nr_free_pages", 4 * 512));
    }

    #[test]
    fn one_frame_takes_a_whole_pageblock() {
        let mut mm = mm();
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let request = AllocRequest { order: Order(3), ..AllocRequest::gfp_nowait(NodeId(0)) };
        mm.memory.alloc(&mut cx, &request).expect("there is memory");
        let census = mm.census();
        let zone = &census.zones[0];
        assert_eq!((zone.free_blocks, zone.blocks.iter().sum::<u64>()), (7, 8));
        assert_eq!(zone.free[3], 1, "its buddy: {:?}", zone.free);
        assert_eq!(census.zones[1].free_blocks, 4, "the other node's are as they were");
        assert_eq!(zone.huge_pages, 0);
    }
}
