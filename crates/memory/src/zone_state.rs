//! Linux: struct zone, include/linux/mmzone.h (v6.1).
//! Differs: counts are exact, not spread over CPUs.

use rules::{
    gfp::{AllocRequest, Mark, Urgency},
    machine::ZoneSpec,
    variant::{HighAtomic, ListEnd, Variant, WatermarkBoost},
    zone::ZoneKind,
};
use units::{CpuId, Frames, NodeId, Order, Pfn};

use crate::{
    ZoneFigures,
    alloc::fair::FairShare,
    buddy::{Block, Buddy},
    cx::Cx,
    event::Event,
    fact::{Fact, Lacks, Room, ZoneName},
    fallback::Want,
    frame::{Frame, FrameTable},
    pageblock::{MigrateType, ZoneIndex},
    pcp::lists::{Pcp, Source, holds},
    tally::Test,
    watermark::{self, Marks},
    zone_llfree::ZoneLlFree,
};

/// A zone with memory, as it runs (`struct zone`).
#[derive(Clone, Debug)]
pub struct ZoneState {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The event that counts an allocation from this zone.
    pub(crate) alloc_event: Event,
    /// The zone's first frame.
    pub start: Pfn,
    /// One past the zone's last frame.
    pub end: Pfn,
    /// Frames that the buddy allocator was given (`managed_pages`).
    pub managed: u64,
    /// Frames that exist (`present_pages`).
    pub present: u64,
    /// The zone's watermarks.
    pub marks: Marks,
    /// Frames by which the marks are raised, until kswapd has reclaimed that many (`watermark_boost`).
    pub boost: u64,
    /// `vm.watermark_boost_factor`.
    pub boost_factor: u32,
    /// A pageblock was broken up, and its kswapd is to be told (`ZONE_BOOSTED_WATERMARK`).
    pub is_boosted: bool,
    /// Frames kept from requests whose highest zone is the n-th kind (`lowmem_reserve`).
    pub protection: [u64; ZoneKind::ALL.len()],
    /// Whether requests can go to another zone of the node instead of breaking up a pageblock here (`alloc_flags_nofragment`).
    pub can_spread: bool,
    /// Frames of the zone that are page tables (`NR_PAGETABLE`).
    pub page_tables: Frames,
    /// RESERVE pageblocks that the zone should have (`nr_migrate_reserve_block`, up to 4.3).
    pub reserve_blocks: u32,
    /// Frames of HIGHATOMIC pageblocks, free or not (`nr_reserved_highatomic`, 4.4 and later).
    pub high_atomic: u64,
    /// A free pageblock was converted to another type: it may lie beside a free buddy without being merged.
    pub has_unmerged: bool,
    /// Frames that the zone may still give before it is the other zones' turn, where zones take turns.
    pub fair: FairShare,
    /// State of the zone's pages that reclaim has met lately, where zones have their own LRU lists.
    pub reclaim: ZoneReclaim,
    /// The zone's free blocks.
    pub(crate) buddy: Buddy,
    /// The allocator of the zone's frames, where a rule has another than Linux's: then `buddy` and `pcps` stay empty.
    pub(crate) llfree: Option<Box<ZoneLlFree>>,
    /// Each CPU's lists, by CPU number.
    pub(crate) pcps: Vec<Pcp>,
}

/// State of the pages that reclaim has met lately in a zone (`enum zone_flags`, include/linux/mmzone.h, v4.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ZoneReclaim {
    /// All of it is being written (`ZONE_WRITEBACK`).
    pub meets_writeback: bool,
    /// All of it is dirty, and none is being written (`ZONE_DIRTY`).
    pub meets_dirty: bool,
    /// All that is dirty was met before, on its way to the disk (`ZONE_CONGESTED`).
    pub is_congested: bool,
}

impl ZoneState {
    pub(crate) fn new(spec: &ZoneSpec, figures: &ZoneFigures, max_order: Order, cpu_nodes: &[NodeId]) -> Self {
        let mut zone = Self {
            node: figures.node,
            kind: spec.kind,
            alloc_event: match spec.kind {
                ZoneKind::Dma => Event::PgallocDma,
                ZoneKind::Dma32 => Event::PgallocDma32,
                ZoneKind::Normal => Event::PgallocNormal,
                ZoneKind::Movable => Event::PgallocMovable,
                ZoneKind::Device => unreachable!("no machine allocates from a device's memory"),
            },
            start: spec.start,
            end: spec.end(),
            managed: spec.managed.0,
            present: spec.present.0,
            marks: figures.marks,
            boost: 0,
            boost_factor: 0,
            is_boosted: false,
            protection: [0; ZoneKind::ALL.len()],
            can_spread: false,
            page_tables: Frames(0),
            reserve_blocks: 0,
            high_atomic: 0,
            has_unmerged: false,
            fair: FairShare::default(),
            reclaim: ZoneReclaim::default(),
            buddy: Buddy::new(max_order),
            llfree: None,
            pcps: cpu_nodes.iter().map(|node| Pcp::new(figures.pcp, *node == figures.node)).collect(),
        };
        zone.set_figures(figures);
        zone
    }

    /// Whether LLFree allocates the zone's frames.
    #[inline]
    pub fn is_llfree(&self) -> bool {
        self.llfree.is_some()
    }

    /// Hands the zone over to LLFree, before it gets its frames.
    pub(crate) fn hand_to_llfree(&mut self) {
        let cpus = u32::try_from(self.pcps.len()).expect("fewer than 2^32 CPUs");
        self.llfree = Some(Box::new(ZoneLlFree::new(self.start, self.end, cpus, &mut self.buddy)));
        self.pcps.iter_mut().for_each(Pcp::never_keep);
    }

    /// Sets the marks and limits that follow from the settings.
    pub(crate) fn set_figures(&mut self, figures: &ZoneFigures) {
        self.marks = figures.marks;
        self.boost = 0;
        self.fair.refill(&self.marks);
        for (kept, frames) in self.protection.iter_mut().zip(&figures.protection) {
            *kept = frames.0;
        }
        for pcp in &mut self.pcps {
            pcp.set_limits(figures.pcp);
        }
    }

    /// kswapd begins to reclaim for the zone, or is done (`set_reclaim_active`, `clear_reclaim_active`).
    pub fn set_reclaim_active(&mut self, is_active: bool) {
        for pcp in &mut self.pcps {
            pcp.set_yields(is_active);
        }
    }

    /// Gives the zone its managed frames at boot, largest blocks first; `__free_pages_memory`, mm/memblock.c.
    pub fn release(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        zone: ZoneIndex,
        (start, end): (Pfn, Pfn),
        rules: &Variant,
    ) {
        if start == end {
            return;
        }
        frames.reserve_edges(start, end, zone);
        if let Some(all) = &mut self.llfree {
            return all.release(&mut self.buddy, frames, start, end);
        }
        let mut at = start;
        // Bounded by the zone: each block has at least one frame.
        while at < end {
            let aligned = if at.0 == 0 { u32::BITS } else { at.0.trailing_zeros() };
            let fits = (end.0 - at.0).ilog2();
            let order = aligned.min(fits).min(self.buddy.max_order().0.into());
            let order = Order(u8::try_from(order).expect("at most the largest order"));
            self.buddy.give(frames, cx, Block { pfn: at, order }, MigrateType::Movable, Some(rules.moved_end), rules);
            at = at.plus(order.frames());
        }
    }

    /// A watermark with the present boost (`wmark_pages`).
    #[inline]
    pub fn mark(&self, mark: Mark) -> u64 {
        let mark = match mark {
            Mark::Min => self.marks.min,
            Mark::Low => self.marks.low,
            Mark::High => self.marks.high,
        };
        mark.0 + self.boost
    }

    /// Frames that the zone keeps above a mark: those for requests that cannot go to a higher zone, and free HIGHATOMIC ones. The
    /// latter are open to requests that cannot wait, and to tasks killed by the OOM killer.
    #[inline]
    pub fn keeps(&self, highest: ZoneKind, urgency: Urgency) -> u64 {
        let is_let_in = urgency.is_harder() || urgency == Urgency::Victim;
        self.protection[highest as usize] + if is_let_in { 0 } else { self.high_atomic }
    }

    /// Whether the zone is above `mark` for a block of this order.
    #[inline]
    pub fn is_ok(&self, order: Order, mark: Mark, highest: ZoneKind, urgency: Urgency, rules: &Variant) -> bool {
        let keeps = self.keeps(highest, urgency);
        let is_ok = watermark::is_ok(&self.buddy, order, self.mark(mark), keeps, urgency, rules);
        let may_spare = rules.atomic_ignores_boost && urgency == Urgency::Atomic;
        let spares = !is_ok && self.boost > 0 && mark == Mark::Min && order == Order::BASE && may_spare;
        is_ok || (spares && watermark::is_ok(&self.buddy, order, self.marks.min.0, keeps, urgency, rules))
    }

    /// Would it stay above its Min mark, if `more` frames of it were free?
    pub fn could_be_ok(&self, request: &AllocRequest, more: u64, rules: &Variant) -> bool {
        let (min, urgency) = (self.marks.min.0 + self.boost, Urgency::Normal);
        let keeps = self.keeps(request.highest, urgency);
        watermark::could_be_ok(&self.buddy, more, request.order, min, keeps, urgency, rules)
    }

    /// Gives back all that a CPU's lists hold (`drain_pages_zone`).
    pub(crate) fn drain_cpu(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, cpu: CpuId, rules: &Variant) {
        let mut to = Source { buddy: &mut self.buddy, frames, rules, cpu, end: self.end };
        self.pcps[cpu.0 as usize].drain_all(&mut to, cx);
    }

    /// Gives back what the lists of all CPUs hold (`drain_all_pages` of a zone).
    pub(crate) fn drain_cpus(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, rules: &Variant) {
        for cpu in 0..u32::try_from(self.pcps.len()).expect("fewer than 2^32 CPUs") {
            self.drain_cpu(frames, cx, CpuId(cpu), rules);
        }
    }

    /// Takes a block from an end of the CPU's list or from the free lists; `rmqueue`.
    #[inline]
    pub(crate) fn take(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        (want, end): (Want, ListEnd),
        urgency: Urgency,
        rules: &Variant,
    ) -> Option<Pfn> {
        if let Some(all) = &mut self.llfree {
            return all.take(&mut self.buddy, frames, cx, want.order);
        }
        let cpu = cx.cpu();
        let may_use_reserve = urgency.is_harder() && want.order > Order::BASE;
        if holds(rules.pcp_lists, want.order, frames.blocks.order()) {
            let mut source = Source { buddy: &mut self.buddy, frames, rules, cpu, end: self.end };
            let listed = self.pcps[cpu.0 as usize].take(&mut source, cx, want, end);
            self.raise_marks(cx, frames.blocks.order(), want, rules);
            // If the CPU's list could not be refilled, only the HIGHATOMIC reserve is left.
            let asks_on = may_use_reserve && rules.high_atomic == HighAtomic::PageblockAfterPcp;
            if listed.is_some() || !asks_on {
                return listed;
            }
        }
        self.buddy.lock(cx);
        let reserved = may_use_reserve
            .then(|| self.buddy.take_smallest(frames, cx, want.order, MigrateType::HighAtomic))
            .flatten();
        let taken =
            reserved.or_else(|| self.buddy.take_or_fall_back(frames, cx, want, self.end, rules).map(|(pfn, _)| pfn));
        self.buddy.unlock(cx);
        self.raise_marks(cx, frames.blocks.order(), want, rules);
        taken
    }

    /// Raises the marks after pageblocks were broken up: kswapd reclaims that much, so that the next request finds whole ones
    /// (`steal_suitable_fallback`).
    #[inline]
    fn raise_marks(&mut self, cx: &mut Cx<'_>, pageblock: Order, want: Want, rules: &Variant) {
        if self.buddy.broken_up > 0 {
            let before = self.boost;
            let is_raised = self.boost_marks(pageblock, rules);
            if cx.counts_tests() {
                self.count_boost(cx, before, pageblock, rules);
            }
            self.is_boosted |= want.wakes_kswapd && (is_raised || rules.fallback_wakes_unboosted);
        }
    }

    /// Raises the marks by one pageblock for each pageblock broken up. Returns whether the zone may raise its marks at all.
    #[cold]
    pub fn boost_marks(&mut self, pageblock: Order, rules: &Variant) -> bool {
        let times = u64::from(std::mem::take(&mut self.buddy.broken_up));
        self.boost_by(times, pageblock, rules)
    }

    /// Bound of the boost, as far as the factor allows.
    fn boost_most(&self) -> u64 {
        let most = u64::try_from(u128::from(self.marks.high.0) * u128::from(self.boost_factor) / 10_000);
        most.expect("a mark is part of a zone")
    }

    /// Counts the tests of a boost: of `boost_watermark`, in its order.
    #[cold]
    fn count_boost(&self, cx: &mut Cx<'_>, before: u64, pageblock: Order, rules: &Variant) {
        let (zone, is_large) = (self.name(), 4 * u64::from(pageblock.frames()) <= self.managed);
        let _ = rules.watermark_boost != WatermarkBoost::None
            && cx.test(Test::BoostFactor, zone, self.boost_most() > 0)
            && (rules.watermark_boost != WatermarkBoost::NotSmall || cx.test(Test::BoostLarge, zone, is_large))
            && cx.test(Test::BoostRaised, zone, self.boost > before);
    }

    /// Raises the marks by some pageblocks, up to a bound; false where that is not done (`boost_watermark`).
    pub fn boost_by(&mut self, times: u64, pageblock: Order, rules: &Variant) -> bool {
        let block = u64::from(pageblock.frames());
        let most = self.boost_most();
        let spared = match rules.watermark_boost {
            WatermarkBoost::None => true,
            WatermarkBoost::Any => false,
            WatermarkBoost::NotSmall => 4 * block > self.managed,
        };
        let is_raised = most > 0 && !spared;
        if is_raised {
            self.boost = (self.boost + times * block).min(most.max(block));
        }
        is_raised
    }

    /// Gives a block of a pageblock of type `list` to an end of the CPU's list or to the free lists; `free_unref_page`,
    /// `free_one_page`.
    pub fn give(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        (list, end): (MigrateType, ListEnd),
        rules: &Variant,
    ) {
        if let Some(all) = &mut self.llfree {
            return all.free(&mut self.buddy, frames, cx, block);
        }
        let cpu: CpuId = cx.cpu();
        if holds(rules.pcp_lists, block.order, frames.blocks.order()) && list != MigrateType::Isolate {
            let pcp = &mut self.pcps[cpu.0 as usize];
            if pcp.put(frames, cx, block, (list, end), rules) {
                let mut to = Source { buddy: &mut self.buddy, frames, rules, cpu, end: self.end };
                pcp.give_back(&mut to, cx, block.order, list);
            }
        } else {
            frames.set(block.pfn, Frame::Interior);
            self.buddy.lock(cx);
            self.buddy.give(frames, cx, block, list, None, rules);
            self.buddy.unlock(cx);
        }
    }
}

impl ZoneState {
    /// The zone's name.
    pub fn name(&self) -> ZoneName {
        ZoneName { node: self.node, kind: self.kind }
    }

    /// The zone's free memory, beside a mark.
    fn room(&self, order: Order, mark: Mark, highest: ZoneKind, urgency: Urgency) -> Room {
        let keeps = self.keeps(highest, urgency);
        let orders = (0..=self.buddy.max_order().0).map(Order);
        let blocks = |order| match &self.llfree {
            None => self.buddy.area(order).nr_free(),
            Some(all) => all.allocator().free_blocks_of(order),
        };
        Room {
            free: self.buddy.free_frames(),
            blocks: orders.map(blocks).collect(),
            mark: self.mark(mark) - self.boost,
            boost: self.boost,
            keeps,
            needs: watermark::needed(order, self.mark(mark), keeps, urgency),
        }
    }

    /// The zone was passed over for a request.
    #[cold]
    pub(crate) fn passed_over(
        &self,
        request: &AllocRequest,
        (mark, urgency): (Mark, Urgency),
        rules: &Variant,
    ) -> Fact {
        let AllocRequest { order, highest, .. } = *request;
        let room = self.room(order, mark, highest, urgency);
        let lacks = match (room.free > room.needs, self.is_ok(order, mark, highest, urgency, rules)) {
            (_, true) => Lacks::List,
            (true, false) => Lacks::Block,
            (false, false) => Lacks::Frames,
        };
        Fact::PassedOver { zone: self.name(), order, mark, room, lacks }
    }
}
