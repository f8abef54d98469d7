//! Linux: mm/page_alloc.c: __isolate_free_page(), drain_pages_zone(), nr_free and zone->lock as others use them (v6.1).
//!
//! Questions of compaction, reclaim and reporting about a zone's free blocks: counts, lists, the zone's lock, and blocks
//! taken off their list whole. Nobody above sees how free blocks are kept.

use rules::{
    gfp::Mobility,
    variant::{FallbackRules, ListEnd},
};
use units::{Order, Pfn};

use crate::{
    Memory,
    buddy::{Block, Capture},
    cx::Cx,
    fallback::Want,
    frame::{Frame, FrameTable, moves::MoveReason},
    list::List,
    pageblock::{MigrateType, ZoneIndex},
    pcp::lists::Pcp,
    suitable::FreeBlocks,
    zone_state::ZoneState,
};

impl ZoneState {
    /// Free frames of the zone (`NR_FREE_PAGES`); those on lists of CPUs do not count.
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }

    /// The largest order of a free block.
    #[inline]
    pub fn max_order(&self) -> Order {
        self.buddy.max_order()
    }

    /// Free blocks of an order (`nr_free`).
    #[inline]
    pub fn nr_free(&self, order: Order) -> u64 {
        match &self.llfree {
            None => self.buddy.area(order).nr_free(),
            Some(all) => all.allocator().free_blocks_of(order),
        }
    }

    /// The free blocks of an order and a type.
    pub fn free_list(&self, order: Order, list: MigrateType) -> &List {
        self.buddy.area(order).list(list)
    }

    /// Free memory as a request of some order sees it.
    pub fn free_blocks(&self, order: Order) -> FreeBlocks {
        match &self.llfree {
            None => FreeBlocks::of(&self.buddy, order),
            Some(all) => FreeBlocks::counted((0..).map(Order).zip(all.allocator().free_blocks()), order),
        }
    }

    /// The lists of each CPU, by CPU number.
    pub fn cpu_lists(&self) -> &[Pcp] {
        &self.pcps
    }

    /// Takes the zone's lock (`spin_lock_irqsave(&zone->lock)`).
    pub fn lock(&mut self, cx: &mut Cx<'_>) {
        self.buddy.lock(cx);
    }

    /// Gives the zone's lock back.
    pub fn unlock(&mut self, cx: &mut Cx<'_>) {
        self.buddy.unlock(cx);
    }

    /// Does somebody else want the zone's lock?
    pub fn is_contended(&self, cx: &Cx<'_>) -> bool {
        self.buddy.is_contended(cx)
    }

    /// Could a request take more than it needs from the first block of `order` that is of another type
    /// (`find_suitable_fallback` with `only_stealable`)?
    pub fn may_steal_from(&self, order: Order, list: MigrateType, pageblock: Order, rules: FallbackRules) -> bool {
        self.buddy.may_steal_from(order, list, pageblock, rules)
    }

    /// The next block of an order that is freed is the caller's, who compacts the zone for it (`struct capture_control`).
    pub fn begin_capture(&mut self, order: Order) {
        self.buddy.capture = Some(Capture { order, block: None });
    }

    /// Has the block been freed for which the zone is compacted?
    pub fn has_captured(&self) -> bool {
        self.buddy.capture.is_some_and(|capture| capture.block.is_some())
    }

    /// Ends the capture, and hands over the block.
    pub fn end_capture(&mut self) -> Option<Pfn> {
        self.buddy.capture.take().and_then(|capture| capture.block)
    }

    /// Pages that reclaim has looked at since a page of the zone was last freed (`NR_PAGES_SCANNED`).
    pub fn scanned(&self) -> u64 {
        self.buddy.scanned
    }

    /// Reclaim has looked at `pages` more pages of the zone.
    pub fn add_scanned(&mut self, pages: u64) {
        self.buddy.scanned += pages;
    }

    /// Sets the number of pages that reclaim has looked at: for tests.
    pub fn set_scanned(&mut self, pages: u64) {
        self.buddy.scanned = pages;
    }

    /// Notes as many pageblocks as broken up, for which the zone has not raised its marks yet: for tests.
    pub fn set_broken_up(&mut self, pageblocks: u32) {
        self.buddy.broken_up = pageblocks;
    }

    /// The free blocks of an order and a type, the first of the list first: for tests.
    pub fn blocks_of(&self, frames: &FrameTable, order: Order, list: MigrateType) -> Vec<Pfn> {
        self.buddy.blocks_of(frames, order, list)
    }

    /// From now on a step that frees a block of this order or a larger one notes so
    /// (`page_reporting_notify_free`).
    pub fn notify_from(&mut self, order: Order) {
        self.buddy.notify_from = Some(order);
    }
}

impl Memory {
    /// Takes a free block off its list, whole, under the zone's lock; false when the zone cannot spare it. Pageblocks of which it
    /// is half or more become Movable (`__isolate_free_page`).
    pub fn isolate_free_block(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex, block: Block) -> bool {
        if !self.may_isolate_free(zone, block.order) {
            return false;
        }
        let Self { frames, zones, .. } = self;
        zones[zone].buddy.isolate(frames, cx, block);
        let pageblock = frames.blocks.order();
        if block.order.0 + 1 >= pageblock.0 {
            for start in (0..block.order.frames()).step_by(pageblock.frames() as usize) {
                let pfn = block.pfn.plus(start);
                let was = frames.blocks.migrate_type(pfn);
                if was.is_requestable() {
                    frames.blocks.set_migrate_type(pfn, MigrateType::Movable);
                }
                if was.is_requestable() && was != MigrateType::Movable {
                    frames.note_taken(cx.control(), MoveReason::Retyped(MigrateType::Movable), pfn, pageblock);
                }
            }
        }
        true
    }

    /// Makes a block the first of its free list, if it is not (`list_rotate_to_front`).
    pub fn rotate_free(&mut self, zone: ZoneIndex, block: Block) {
        self.zones[zone].buddy.rotate(&mut self.frames, block);
    }

    /// Puts a block on the free list of a type, at the end that a rule says, or at this one; the caller has made it
    /// `Frame::Interior`, or it never was anything (`__putback_isolated_page`).
    pub fn put_free(
        &mut self,
        cx: &mut Cx<'_>,
        zone: ZoneIndex,
        block: Block,
        (list, end): (MigrateType, Option<ListEnd>),
    ) {
        self.zones[zone].buddy.give(&mut self.frames, cx, block, list, end, &self.variant);
    }

    /// Puts a block back that was taken to be reported: nobody is notified of it, unless `notifies`.
    pub fn put_back_reported(
        &mut self,
        cx: &mut Cx<'_>,
        zone: ZoneIndex,
        block: Block,
        (list, end): (MigrateType, Option<ListEnd>),
        notifies: bool,
    ) {
        let buddy = &mut self.zones[zone].buddy;
        let notify_from = if notifies { buddy.notify_from } else { buddy.notify_from.take() };
        buddy.give(&mut self.frames, cx, block, list, end, &self.variant);
        buddy.notify_from = notify_from;
    }

    /// Puts a frame on the list of the CPU of this step, however long that is.
    pub fn put_listed(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex, pfn: Pfn, list: MigrateType) {
        let Self { frames, zones, variant, .. } = self;
        let pcp = &mut zones[zone].pcps[cx.cpu().0 as usize];
        pcp.put(frames, cx, Block { pfn, order: Order::BASE }, (list, ListEnd::Head), variant);
    }

    /// Takes a frame off a zone's free lists, whatever its marks say and past the lists of CPUs: for tests.
    pub fn take_of_zone(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex, mobility: Mobility) -> Option<Pfn> {
        let Self { frames, zones, variant, .. } = self;
        let list = MigrateType::of(mobility);
        let want = Want { order: Order::BASE, list, whole_blocks_only: false, stalls: false, wakes_kswapd: false };
        let (end, buddy) = (zones[zone].end, &mut zones[zone].buddy);
        let (pfn, _) = buddy.take_or_fall_back(frames, cx, want, end, variant)?;
        frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility });
        Some(pfn)
    }

    /// Gives back what the lists of all CPUs hold of a zone (`drain_all_pages` of a zone).
    pub fn drain_zone(&mut self, cx: &mut Cx<'_>, at: ZoneIndex) {
        let Self { frames, zones, variant, .. } = self;
        zones[at].drain_cpus(frames, cx, variant);
    }

    /// Gives back what this CPU's lists of a zone hold (`drain_local_pages`).
    pub fn drain_local_pages(&mut self, cx: &mut Cx<'_>, zone: ZoneIndex) {
        let Self { frames, zones, variant, .. } = self;
        let cpu = cx.cpu();
        zones[zone].drain_cpu(frames, cx, cpu, variant);
    }
}
