//! Linux: pagetypeinfo_showmixedcount_print() in mm/page_owner.c, and /proc/kpageflags (v6.1).
//! Differs: for each pageblock, the number of its frames in use, and its huge pages and reported frames.

use memory::{
    frame::Frame,
    pageblock::{MigrateType, ZoneIndex},
};
use rules::zone::ZoneKind;
use units::{Mobility, NodeId, Order, Pfn};

use crate::Mm;

/// The pageblocks of one zone, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The number of the first pageblock: its first frame divided by the frames of a pageblock.
    pub first: u32,
    /// Number of pageblocks.
    pub blocks: u32,
}

/// The use of one pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUse {
    /// The type of the pageblock.
    pub migrate_type: MigrateType,
    /// Frames that the page allocator manages.
    pub frames: u32,
    /// Frames that are on no free list; frames on per-CPU lists are included.
    pub used: u32,
    /// Free frames that were reported to the host.
    pub reported: u32,
    /// An anonymous folio as large as a pageblock starts here.
    pub huge: bool,
    /// Some frames are in movable use.
    pub has_movable: bool,
    /// Some frames are in other use.
    pub has_unmovable: bool,
}

/// The state of compaction in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCompaction {
    /// The pageblocks, by number, at which the async migrate scanner and the free scanner go on (`compact_cached_migrate_pfn`,
    /// `compact_cached_free_pfn`).
    pub scanners: [u32; 2],
    /// The fragmentation index for a pageblock: towards 0 a request fails for lack of memory, towards 1000 because of
    /// fragmentation; -1000 if it does not fail.
    pub fragmentation: i64,
}

impl BlockUse {
    /// Whether the pageblock holds used frames of another mobility than its type's; for types that no request has: of both
    /// mobilities.
    pub fn is_mixed(&self) -> bool {
        match self.migrate_type {
            MigrateType::Movable | MigrateType::Cma => self.has_unmovable,
            MigrateType::Unmovable | MigrateType::Reclaimable => self.has_movable,
            MigrateType::HighAtomic | MigrateType::Reserve | MigrateType::Isolate => {
                self.has_movable && self.has_unmovable
            }
        }
    }
}

impl Mm {
    /// The pageblocks of every zone, in the order of addresses.
    pub fn bands(&self) -> Vec<Band> {
        let order = self.memory.frames.blocks.order();
        let mut bands: Vec<Band> = Vec::new();
        let mut last = None;
        for block in 0..self.memory.frames.len() >> order.0 {
            let zone = self.memory.frames.blocks.zone(Pfn(block << order.0));
            match (zone, bands.last_mut()) {
                (Some(_), Some(band)) if zone == last => band.blocks += 1,
                (Some(of), _) => {
                    let zone = self.memory.zone(of);
                    bands.push(Band { node: zone.node, kind: zone.kind, first: block, blocks: 1 });
                }
                (None, _) => {}
            }
            last = zone;
        }
        bands
    }

    /// The use of the pageblock with this number. It looks at every block of frames in it.
    ///
    /// # Panics
    /// When there is no such pageblock.
    pub fn block_use(&self, block: u32) -> BlockUse {
        let order = self.memory.frames.blocks.order();
        let start = Pfn(block << order.0);
        let mut found = BlockUse {
            migrate_type: self.memory.frames.blocks.migrate_type(start),
            frames: 0,
            used: 0,
            reported: 0,
            huge: false,
            has_movable: false,
            has_unmovable: false,
        };
        if let Some(frame) = self.larger_block(start) {
            found.add(frame, order.frames(), order);
            return found;
        }
        let mut at = 0;
        // Bound: the frames of the pageblock.
        while at < order.frames() {
            let frame = self.memory.frames.get(start.plus(at));
            let frames = self.memory.frames.order_of(frame).frames();
            found.add(frame, frames.min(order.frames()), order);
            at += frames;
        }
        found
    }

    /// The head of a block that begins before a pageblock and covers it, if there is one.
    fn larger_block(&self, start: Pfn) -> Option<Frame> {
        if self.memory.frames.get(start) != Frame::Interior {
            return None;
        }
        let orders = self.memory.frames.blocks.order().0 + 1..=self.memory.max_order().0;
        let head = |order: u8| {
            let frame = self.memory.frames.get(start.align_down(Order(order)));
            (self.memory.frames.order_of(frame) >= Order(order)).then_some(frame)
        };
        orders.into_iter().find_map(head)
    }

    /// The scanners of a zone, and the reason why a huge page would fail there.
    ///
    /// # Panics
    /// When there is no such zone.
    pub fn zone_compaction(&self, node: NodeId, kind: ZoneKind) -> ZoneCompaction {
        let order = self.memory.frames.blocks.order();
        let is_it = |at: &ZoneIndex| (self.memory.zone(*at).node, self.memory.zone(*at).kind) == (node, kind);
        let at = self.memory.zone_indices().find(is_it).expect("the zone is there");
        let compact = &self.zone_compacts[at];
        let scanners = [compact.cached_migrate[0], compact.cached_free];
        let fragmentation = self.memory.zone(at).free_blocks(order).fragmentation_index(order);
        ZoneCompaction { scanners: scanners.map(|pfn| pfn.0 >> order.0), fragmentation }
    }
}

impl BlockUse {
    fn add(&mut self, frame: Frame, frames: u32, pageblock: Order) {
        match frame {
            // Any other frame belongs to a block whose head is in the same pageblock, or to a larger block.
            Frame::Reserved | Frame::Interior | Frame::Tail { .. } => return,
            Frame::Free { reported, .. } => {
                self.frames += frames;
                self.reported += if reported { frames } else { 0 };
                return;
            }
            Frame::Pcp { .. } => {}
            Frame::Anon { order, .. } => {
                self.has_movable = true;
                self.huge |= order == pageblock;
            }
            Frame::File { .. } | Frame::Isolated { .. } | Frame::Kernel { mobility: Mobility::Movable, .. } => {
                self.has_movable = true;
            }
            Frame::Slab(_) | Frame::Kernel { .. } | Frame::ZeroHuge | Frame::PageTable => self.has_unmovable = true,
        }
        self.frames += frames;
        self.used += frames;
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
    use units::{CpuId, Time};

    use super::*;

    /// Two zones with a hole between them.
    fn mm() -> Mm {
        let zones = vec![
            ZoneSpec::whole(ZoneKind::Dma32, Pfn(0), 4 * 512),
            ZoneSpec::whole(ZoneKind::Normal, Pfn(8 * 512), 3 * 512 + 100),
        ];
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        Mm::new(&machine, *variant::named("v6.1"), &Settings::default())
    }

    fn blocks(mm: &Mm) -> Vec<BlockUse> {
        mm.bands()
            .iter()
            .flat_map(|band| band.first..band.first + band.blocks)
            .map(|block| mm.block_use(block))
            .collect()
    }

    #[test]
    fn bands_are_zones_in_the_order_of_addresses() {
        let mm = mm();
        let bands: Vec<_> = mm.bands().iter().map(|band| (band.kind, band.first, band.blocks)).collect();
        assert_eq!(bands, [(ZoneKind::Dma32, 0, 4), (ZoneKind::Normal, 8, 4)]);
        let blocks = blocks(&mm);
        assert_eq!(
            blocks.iter().map(|block| block.frames).collect::<Vec<_>>(),
            [512, 512, 512, 512, 512, 512, 512, 100]
        );
        assert!(blocks.iter().all(|block| block.used == 0 && !block.is_mixed()));
    }

    #[test]
    fn pageblocks_that_change_are_noted() {
        let mut mm = mm();
        let prices = Prices::free();
        let mut counters = Counters::default();
        let numbers: Vec<u32> = mm.bands().iter().flat_map(|band| band.first..band.first + band.blocks).collect();
        assert!(
            mm.memory.frames.take_touched(0) && mm.memory.frames.take_touched(0),
            "nobody watches, so all may have changed"
        );
        mm.memory.frames.watch();
        let mut before: Vec<Option<BlockUse>> = vec![None; numbers.len()];
        let (mut held, mut noted) = (Vec::new(), 0);
        for n in 0_u32..300 {
            let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
            let order = Order([0, 0, 3, 9, 0, 10][n as usize % 6]);
            let mobility = [Mobility::Movable, Mobility::Unmovable][(n / 5) as usize % 2];
            let request = AllocRequest { order, mobility, ..AllocRequest::gfp_nowait(NodeId(0)) };
            match mm.memory.alloc(&mut cx, &request) {
                Ok(pfn) if n % 3 > 0 => held.push((pfn, order)),
                Ok(pfn) => mm.memory.free(&mut cx, pfn, order),
                // Pages that are held longest go first.
                Err(_) => held.drain(..held.len() / 2).for_each(|(pfn, order)| mm.memory.free(&mut cx, pfn, order)),
            }
            for (number, before) in numbers.iter().zip(&mut before) {
                let now = mm.block_use(*number);
                let is_noted = mm.memory.frames.take_touched(*number);
                noted += usize::from(is_noted);
                let then = before.replace(now).unwrap_or(now);
                assert!(
                    is_noted || BlockUse { migrate_type: now.migrate_type, ..then } == now,
                    "{n}: {then:?}, {now:?}"
                );
            }
        }
        assert!((300..300 * numbers.len() / 2).contains(&noted), "{noted} of {} looks", 300 * numbers.len());
    }

    #[test]
    fn what_is_seen_is_what_the_census_counts() {
        let mut mm = mm();
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let kernel = AllocRequest { order: Order(3), ..AllocRequest::gfp_nowait(NodeId(0)) };
        let movable = AllocRequest { order: Order::BASE, mobility: Mobility::Movable, ..kernel };
        for n in 0..900 {
            let request = if n % 200 == 7 { &kernel } else { &movable };
            mm.memory.alloc(&mut cx, request).expect("there is memory");
        }
        let (blocks, census, by_use) = (blocks(&mm), mm.census(), mm.memory.block_census());
        let of_type = |of: MigrateType| blocks.iter().filter(|block| block.migrate_type == of).count() as u64;
        for of in MigrateType::ALL {
            let counted: u64 = census.zones.iter().map(|zone| zone.blocks[of as usize]).sum();
            assert_eq!(of_type(of), counted, "{of:?}");
        }
        let free = |block: &&BlockUse| block.used == 0 && block.frames == 512;
        assert_eq!(
            blocks.iter().filter(free).count() as u64,
            census.zones.iter().map(|zone| zone.free_blocks).sum::<u64>()
        );
        assert_eq!(blocks.iter().filter(|block| block.has_unmovable).count() as u64, by_use.with_unmovable);
        let both = |block: &&BlockUse| block.has_unmovable && block.has_movable;
        assert_eq!(blocks.iter().filter(both).count() as u64, by_use.mixed);
        let on_lists: u64 = census.nodes[0].gauges[0].1;
        assert_eq!(blocks.iter().map(|block| u64::from(block.frames - block.used)).sum::<u64>(), on_lists);
    }
}
