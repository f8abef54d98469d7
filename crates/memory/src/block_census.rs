//! Linux: none; what /proc/kpageflags says of every frame, by pageblock. pagetypeinfo_showmixedcount_print() in mm/page_owner.c
//! (v6.1) counts pageblocks that hold pages of other types in the same way.
//! Differs: counted from what frames are, not from what they were asked for.

use units::{BlockCensus, Mobility, Order, Pfn};

use crate::{Memory, frame::Frame};

/// The use of a frame, as far as it matters for emptying its pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Movable,
    Unmovable,
    PageTable,
    /// Outside the page allocator: a hole, or reserved at boot.
    Nobody,
}

impl Memory {
    /// Shows every block of frames from the first on: where it starts, how many frames it has, and what its head is. Blocks of
    /// frames that are no memory are shown frame by frame, but for pageblocks without any memory, which are left out.
    pub fn visit_blocks(&self, mut see: impl FnMut(Pfn, u32, Frame)) {
        let pageblock = self.frames.blocks.order();
        let mut at = 0;
        // Bound: the frames.
        while at < self.frames.len() {
            let pfn = Pfn(at);
            if pfn.is_aligned(pageblock) && self.frames.blocks.zone(pfn).is_none() {
                at += pageblock.frames();
                continue;
            }
            let frame = self.frames.get(pfn);
            let frames = order_of(frame, pageblock).frames();
            see(pfn, frames, frame);
            at += frames;
        }
    }

    /// Counts unmovable memory and the pageblocks that it is scattered over. It looks at every block of frames.
    pub fn block_census(&self) -> BlockCensus {
        let pageblock = self.frames.blocks.order();
        let mut census = BlockCensus::default();
        let mut current = Pageblock::default();
        self.visit_blocks(|pfn, frames, frame| {
            let used = used(frame);
            let mut at = pfn.0;
            // Bound: the pageblocks of the block.
            while at < pfn.0 + frames {
                let number = at >> pageblock.0;
                if number != current.number {
                    current.close(&mut census);
                    current = Pageblock { number, ..Pageblock::default() };
                }
                let end = (pfn.0 + frames).min((number + 1) << pageblock.0);
                current.add(u64::from(end - at), used, &mut census);
                at = end;
            }
        });
        current.close(&mut census);
        census
    }
}

/// Frames found so far in one pageblock.
#[derive(Clone, Copy, Debug, Default)]
struct Pageblock {
    number: u32,
    has_memory: bool,
    has_movable: bool,
    has_unmovable: bool,
}

impl Pageblock {
    fn add(&mut self, frames: u64, used: Use, census: &mut BlockCensus) {
        if used == Use::Nobody {
            return;
        }
        self.has_memory = true;
        census.frames += frames;
        match used {
            Use::Free => census.free += frames,
            Use::Movable => self.has_movable = true,
            Use::Unmovable | Use::PageTable => {
                self.has_unmovable = true;
                census.unmovable += frames;
                census.page_tables += if used == Use::PageTable { frames } else { 0 };
            }
            Use::Nobody => unreachable!("it was left out above"),
        }
    }

    fn close(self, census: &mut BlockCensus) {
        census.blocks += u64::from(self.has_memory);
        census.with_unmovable += u64::from(self.has_unmovable);
        census.mixed += u64::from(self.has_unmovable && self.has_movable);
    }
}

fn used(frame: Frame) -> Use {
    match frame {
        Frame::Free { .. } | Frame::Pcp { .. } => Use::Free,
        // An isolated block is about to move, or to return to the free lists.
        Frame::Anon { .. }
        | Frame::File { .. }
        | Frame::Isolated { .. }
        | Frame::Kernel { mobility: Mobility::Movable, .. } => Use::Movable,
        Frame::Slab(_) | Frame::Kernel { .. } | Frame::ZeroHuge => Use::Unmovable,
        Frame::PageTable => Use::PageTable,
        Frame::Reserved | Frame::Interior | Frame::Tail { .. } => Use::Nobody,
    }
}

fn order_of(head: Frame, pageblock: Order) -> Order {
    match head {
        Frame::Free { order, .. }
        | Frame::Pcp { order, .. }
        | Frame::Anon { order, .. }
        | Frame::File { order, .. }
        | Frame::Kernel { order, .. }
        | Frame::Isolated { order, .. } => order,
        Frame::Slab(slab) => slab.order,
        Frame::ZeroHuge => pageblock,
        Frame::PageTable | Frame::Reserved | Frame::Interior | Frame::Tail { .. } => Order::BASE,
    }
}

#[cfg(test)]
mod tests {
    use rules::{
        gfp::AllocRequest,
        machine::{MachineSpec, NodeSpec, ZoneSpec},
        variant,
        zone::{Settings, ZoneKind},
    };
    use units::{CpuId, Frames, NodeId, Time};

    use super::*;
    use crate::{cost::Prices, cx::Cx, event::Counters};

    /// Four pageblocks, the last of them with a hole at its end.
    fn mm() -> Memory {
        let zone = ZoneSpec {
            kind: ZoneKind::Dma32,
            start: Pfn(0),
            spanned: Frames(4 * 512),
            present: Frames(4 * 512),
            managed: Frames(4 * 512),
        };
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        Memory::new(&machine, *variant::named("v6.1"), &Settings::default())
    }

    #[test]
    fn blocks_are_counted_by_what_is_in_them() {
        let mut mm = mm();
        let free = mm.block_census();
        assert_eq!((free.blocks, free.frames, free.free, free.unmovable), (4, 2048, 2048, 0));
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        // One kernel block of eight frames, then movable frames that fill the rest of another pageblock and more.
        let request = AllocRequest { order: Order(3), ..AllocRequest::gfp_nowait(NodeId(0)) };
        mm.alloc(&mut cx, &request).expect("there is memory");
        let census = mm.block_census();
        assert_eq!((census.unmovable, census.with_unmovable, census.mixed), (8, 1, 0));
        assert_eq!((census.free, census.unmovable_share(), census.scattered_share()), (2040, 39, 2500));
        // Movable frames take what is left, at last in the pageblock of the kernel's block.
        let request = AllocRequest { order: Order::BASE, mobility: Mobility::Movable, ..request };
        // Bound: the frames.
        while mm.alloc(&mut cx, &request).is_ok() {}
        let full = mm.block_census();
        assert_eq!((full.unmovable, full.with_unmovable, full.mixed), (8, 1, 1), "{full:?}");
        assert!(full.free < 512 && full.frames == 2048, "{full:?}");
        let mut seen = Vec::new();
        mm.visit_blocks(|pfn, frames, _| seen.push((pfn.0, frames)));
        assert_eq!(seen.iter().map(|(_, frames)| frames).sum::<u32>(), 2048);
        assert!(seen.iter().all(|(pfn, frames)| pfn % frames == 0), "{seen:?}");
    }
}
