//! Linux: compaction's fields of struct zone, include/linux/mmzone.h (v4.1 to v6.1).
//! Differs: the scanners' starts are set at boot; the kernel's first run sets them.
//!
//! Where the scanners of a zone go on, and which requests are deferred after failures.

use memory::{
    Memory,
    cx::Cx,
    fact::{Fact, ZoneName},
    frame::{FrameTable, Seen},
    pageblock::{MigrateType, ZoneIndex},
    primitive,
    zone_state::ZoneState,
};
use rules::gfp::AllocRequest;
use units::{NodeId, Order, Pfn};

use crate::{Mm, migrate::MigrateMode};

/// Compaction is deferred for at most 2^6 requests.
// COMPACT_MAX_DEFER_SHIFT, mm/compaction.c (v6.1).
pub(crate) const DEFER_SHIFT_MAX: u8 = 6;
/// Every eighth frame of a pageblock is read to decide whether its skip mark is cleared.
// __reset_isolation_pfn, mm/compaction.c (v6.1): 1 << PAGE_ALLOC_COSTLY_ORDER.
const SAMPLE: u32 = 8;

/// The state of compaction in a zone between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCompact {
    /// Start of the migrate scanner: for async, and for sync compaction (`compact_cached_migrate_pfn`).
    pub(crate) cached_migrate: [Pfn; 2],
    /// Start of the free scanner (`compact_cached_free_pfn`).
    pub(crate) cached_free: Pfn,
    /// The first pageblock with pages to move when skip marks were last cleared (`compact_init_migrate_pfn`).
    pub(crate) init_migrate: Option<Pfn>,
    /// The last pageblock with free frames at that time (`compact_init_free_pfn`).
    pub(crate) init_free: Option<Pfn>,
    /// Requests deferred since the last failure (`compact_considered`).
    pub(crate) considered: u32,
    /// log2 of the number of requests of which the last is not deferred (`compact_defer_shift`).
    pub(crate) defer_shift: u8,
    /// The lowest order that failed (`compact_order_failed`). At boot it is 0, as if every order had failed.
    pub(crate) order_failed: Order,
    /// Free frames of the zone at the last failure, for the rule `compact_defers_by_reason`.
    pub(crate) failed_with: u64,
    /// A task has scanned the whole zone: kswapd clears the skip marks before it sleeps (`compact_blockskip_flush`).
    pub(crate) blockskip_flush: bool,
}

impl ZoneCompact {
    pub(crate) fn new(start: Pfn, end: Pfn, pageblock: Order) -> Self {
        let mut new = Self {
            cached_migrate: [start; 2],
            cached_free: start,
            init_migrate: None,
            init_free: None,
            considered: 0,
            defer_shift: 0,
            order_failed: Order::BASE,
            failed_with: 0,
            blockskip_flush: false,
        };
        new.reset_cached(start, end, pageblock);
        new
    }

    /// Sets the scanners' starts to the ends of the zone (`reset_cached_positions`).
    pub(crate) fn reset_cached(&mut self, start: Pfn, end: Pfn, pageblock: Order) {
        self.cached_migrate = [start; 2];
        self.cached_free = Pfn(end.0 - 1).align_down(pageblock);
    }

    /// Moves the migrate scanner's start behind the pageblock of `pfn` (`update_cached_migrate`, 5.1 and later).
    pub(crate) fn update_cached_migrate(&mut self, pfn: Pfn, mode: MigrateMode, pageblock: Order) {
        self.raise_cached_migrate(pfn.align_down(pageblock).plus(pageblock.frames()), mode);
    }

    /// Raises the migrate scanner's start to `pfn` at least.
    pub(crate) fn raise_cached_migrate(&mut self, pfn: Pfn, mode: MigrateMode) {
        self.cached_migrate[0] = self.cached_migrate[0].max(pfn);
        if mode != MigrateMode::Async {
            self.cached_migrate[1] = self.cached_migrate[1].max(pfn);
        }
    }

    /// Counts a request, unless no request of its order has failed. `compaction_deferred` is this and [`Self::is_deferred`].
    pub(crate) fn consider(&mut self, order: Order) {
        if order >= self.order_failed {
            self.considered = (self.considered + 1).min(self.considered_max());
        }
    }

    /// Whether the request that was counted last is deferred.
    pub(crate) fn is_deferred(&self, order: Order) -> bool {
        order >= self.order_failed && self.considered < self.considered_max()
    }

    /// The fact that the request that was counted last is deferred.
    pub(super) fn deferred(&self, zone: ZoneName, order: Order) -> Fact {
        Fact::CompactionDeferred { zone, order, shift: self.defer_shift, considered: self.considered }
    }

    /// Number of requests that are counted after a failure; the last of them is let through.
    fn considered_max(&self) -> u32 {
        1 << self.defer_shift
    }

    /// Defers compaction after a sync run scanned the zone without success (`defer_compaction`).
    pub(crate) fn defer(&mut self, order: Order) {
        self.considered = 0;
        self.defer_shift = (self.defer_shift + 1).min(DEFER_SHIFT_MAX);
        self.order_failed = self.order_failed.min(order);
    }

    /// Ends deferral for an order: an allocation will succeed, or has (`compaction_defer_reset`).
    pub(crate) fn reset_deferral(&mut self, order: Order, has_succeeded: bool) {
        if has_succeeded {
            self.considered = 0;
            self.defer_shift = 0;
        }
        if order >= self.order_failed {
            self.order_failed = Order(order.0 + 1);
        }
    }

    /// Whether this is the first run after the longest deferral (`compaction_restarting`).
    pub(crate) fn is_restarting(&self, order: Order) -> bool {
        order >= self.order_failed && self.defer_shift == DEFER_SHIFT_MAX && self.considered >= 1 << DEFER_SHIFT_MAX
    }
}

impl ZoneCompact {
    /// All of the zone was scanned in vain while `free` frames of it were free: only frames freed since make a difference.
    pub(crate) fn defer_until_freed(&mut self, order: Order, free: u64) {
        self.defer(order);
        self.failed_with = free;
    }

    /// Have frames for a block of such an order come free since then?
    fn has_freed(&self, order: Order, free: u64) -> bool {
        free >= self.failed_with + u64::from(order.frames())
    }

    /// Clears skip marks of pageblocks with pages to move or free frames, if a task has scanned the whole zone
    /// (`__reset_isolation_suitable`).
    pub(crate) fn reset_isolation_suitable(&mut self, memory: &mut Memory, at: ZoneIndex, cx: &mut Cx<'_>) {
        if !std::mem::take(&mut self.blockskip_flush) {
            return;
        }
        self.reset_some(memory, at, cx);
    }

    /// Clears the skip bits of all pageblocks of the zone, and sets the scanners back to its ends
    /// (`__reset_isolation_suitable`, up to 5.0).
    pub(crate) fn reset_all(&mut self, memory: &mut Memory, at: ZoneIndex, cx: &mut Cx<'_>) {
        self.blockskip_flush = false;
        let (zone, frames) = memory.zone_and_frames(at);
        let order = frames.blocks.order();
        let blocks = (zone.start.0..zone.end.0).step_by(order.frames() as usize).map(Pfn);
        primitive::scan_frames(cx, blocks.len() as u64);
        for pfn in blocks {
            frames.blocks.set_skip(pfn, false);
        }
        self.reset_cached(zone.start, zone.end, order);
    }

    /// Forgets those where there is something to move, or somewhere to move it to.
    fn reset_some(&mut self, memory: &mut Memory, at: ZoneIndex, cx: &mut Cx<'_>) {
        let (zone, frames) = memory.zone_and_frames(at);
        let block = frames.blocks.order().frames();
        let (mut low, mut high) = (zone.start, Pfn(zone.end.0 - 1));
        let (mut first, mut last) = (None, None);
        let mut samples = 0;
        // Bound: half of the zone's pageblocks. Once one scanner has its start, a pageblock may serve either scanner.
        while low < high {
            if clear_skip(zone, frames, low, (true, first.is_some()), &mut samples) && first.is_none() {
                first = Some(low);
            }
            if clear_skip(zone, frames, high, (last.is_some(), true), &mut samples) && last.is_none() {
                last = Some(high);
            }
            low = low.plus(block);
            high = Pfn(high.0.saturating_sub(block));
        }
        primitive::scan_frames(cx, samples);
        let compact = self;
        if let Some(first) = first {
            compact.init_migrate = Some(first);
            compact.cached_migrate = [first; 2];
        }
        if let Some(last) = last {
            compact.init_free = Some(last);
            compact.cached_free = last;
        }
        if first.unwrap_or(Pfn(zone.end.0 - 1)) >= last.unwrap_or(zone.start) {
            // Nothing is between them.
            compact.cached_migrate = [low; 2];
            compact.cached_free = high;
        }
    }
}

/// Is there something to move, or somewhere to move it to, in the pageblock of a frame? Then it is not skipped any
/// more (`__reset_isolation_pfn`).
fn clear_skip(
    zone: &ZoneState,
    frames: &mut FrameTable,
    pfn: Pfn,
    (source, target): (bool, bool),
    samples: &mut u64,
) -> bool {
    let order = frames.blocks.order();
    let is_huge = matches!(frames.seen(pfn.align_down(order)), Seen::Compound(found) if found >= order);
    if frames.blocks.zone(pfn).is_none() || is_huge {
        return false;
    }
    if source && target && !frames.blocks.skip(pfn) {
        return true;
    }
    if !source && target && frames.blocks.migrate_type(pfn) != MigrateType::Movable {
        return false;
    }
    let start = pfn.align_down(order);
    let end = zone.end.min(start.plus(order.frames()));
    for at in (start.max(zone.start).0..end.0).step_by(SAMPLE as usize).map(Pfn) {
        *samples += 1;
        let has = match frames.seen(at) {
            Seen::Lru => source,
            Seen::Free(_) => target,
            Seen::Compound(_) | Seen::Other => false,
        };
        if has {
            frames.blocks.set_skip(pfn, false);
            return true;
        }
    }
    false
}

impl Mm {
    /// Records that a failed run has deferred compaction of a zone.
    pub(super) fn tell_deferral(&self, cx: &mut Cx, zone: ZoneIndex, order: Order) {
        let (zone, shift) = (self.memory.zone(zone).name(), self.zone_compacts[zone].defer_shift);
        cx.fact(|| Fact::DeferCompaction { zone, order, shift });
    }

    /// Counts a request for compaction of a zone; returns whether it is deferred (`compaction_deferred`).
    pub(super) fn is_compaction_deferred(&mut self, zone: ZoneIndex, request: &AllocRequest) -> bool {
        let AllocRequest { order, highest, urgency, .. } = *request;
        if self.memory.variant().compact_defers_by_reason {
            if self.memory.lacks_room(zone, order, highest, urgency) {
                return true;
            }
            if !self.zone_compacts[zone].has_freed(order, self.memory.zone(zone).free_frames()) {
                return self.zone_compacts[zone].is_deferred(order);
            }
        }
        let compact = &mut self.zone_compacts[zone];
        compact.consider(order);
        compact.is_deferred(order)
    }

    /// Clears skip marks of a node's zones that a task has scanned as a whole (`reset_isolation_suitable`).
    pub(crate) fn reset_isolation_suitable(&mut self, cx: &mut Cx, node: NodeId) {
        for at in self.memory.node(node).zones() {
            let compact = &mut self.zone_compacts[at];
            if self.memory.variant().compact_clears_selectively {
                compact.reset_isolation_suitable(&mut self.memory, at, cx);
            } else if compact.blockskip_flush {
                compact.reset_all(&mut self.memory, at, cx);
            }
        }
    }
}
