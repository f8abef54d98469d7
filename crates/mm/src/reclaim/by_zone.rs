//! Linux: shrink_zone(), zone_reclaimable(), compaction_ready() and should_continue_reclaim() in mm/vmscan.c (v4.1).
//! Differs: as `reclaim.rs` does, and in nothing else.
//!
//! Before v4.8 each zone has LRU lists of its own. So each zone is reclaimed, balanced and given up by itself.

use memory::{
    cx::Cx,
    event::Event,
    fact::Throttle,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::RUN,
    suitable::{Suitable, compact_gap},
};
use rules::{
    gfp::{AllocRequest, COSTLY, Mark, Urgency},
    variant::LruBy,
    zone::ZoneKind,
};
use units::{Order, Time};

use super::{Met, NodeScan, Reclaimer, ScanControl, direct::is_for_compaction, throttle::CONGESTION};
use crate::{Mm, reclaim::shrinker::Demand};

/// A zone is given up once this many times its reclaimable frames were scanned without a frame being freed.
// zone_reclaimable, mm/vmscan.c (v4.1).
const LOOKS_MAX: u64 = 6;
/// The most that a zone should have free above its High mark is one part in this many of its frames.
// KSWAPD_ZONE_BALANCE_GAP_RATIO, include/linux/swap.h (v4.1).
const BALANCE_GAP_RATIO: u64 = 100;

/// How hard a pass over lists was, for shrinkers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Frames scanned when the pass began.
    pub(super) scanned: u64,
    /// Frames on the lists that the pass has scanned.
    pub(super) eligible: u64,
}

impl Pressure {
    /// The demand on shrinkers.
    pub(super) fn demand(&self, mm: &Mm, sc: &ScanControl) -> Demand {
        if !mm.memory.variant().slab_by_scanned {
            return Demand::Priority(sc.priority);
        }
        let scanned = sc.scanned - self.scanned;
        Demand::Ratio { scanned: if scanned == 0 { RUN } else { scanned }, eligible: self.eligible }
    }
}

/// The `pgscan` event of this reclaimer and zone.
fn scanned(by: Reclaimer, kind: ZoneKind) -> Event {
    match (by, kind) {
        (Reclaimer::Kswapd, ZoneKind::Dma) => Event::PgscanKswapdDma,
        (Reclaimer::Kswapd, ZoneKind::Dma32) => Event::PgscanKswapdDma32,
        (Reclaimer::Kswapd, ZoneKind::Normal) => Event::PgscanKswapdNormal,
        (Reclaimer::Kswapd, ZoneKind::Movable | ZoneKind::Device) => Event::PgscanKswapdMovable,
        (Reclaimer::Direct, ZoneKind::Dma) => Event::PgscanDirectDma,
        (Reclaimer::Direct, ZoneKind::Dma32) => Event::PgscanDirectDma32,
        (Reclaimer::Direct, ZoneKind::Normal) => Event::PgscanDirectNormal,
        (Reclaimer::Direct, ZoneKind::Movable | ZoneKind::Device) => Event::PgscanDirectMovable,
    }
}

/// The `pgsteal` event of this reclaimer and zone.
pub(super) fn stolen(by: Reclaimer, kind: ZoneKind) -> Event {
    match (by, kind) {
        (Reclaimer::Kswapd, ZoneKind::Dma) => Event::PgstealKswapdDma,
        (Reclaimer::Kswapd, ZoneKind::Dma32) => Event::PgstealKswapdDma32,
        (Reclaimer::Kswapd, ZoneKind::Normal) => Event::PgstealKswapdNormal,
        (Reclaimer::Kswapd, ZoneKind::Movable | ZoneKind::Device) => Event::PgstealKswapdMovable,
        (Reclaimer::Direct, ZoneKind::Dma) => Event::PgstealDirectDma,
        (Reclaimer::Direct, ZoneKind::Dma32) => Event::PgstealDirectDma32,
        (Reclaimer::Direct, ZoneKind::Normal) => Event::PgstealDirectNormal,
        (Reclaimer::Direct, ZoneKind::Movable | ZoneKind::Device) => Event::PgstealDirectMovable,
    }
}

impl NodeScan {
    /// A pass over one zone of a node. Shrinkers are called only after the highest zone that is reclaimed (`is_classzone`).
    pub(crate) fn of_zone(mm: &Mm, zone: ZoneIndex, is_classzone: bool, sc: &ScanControl) -> Self {
        let lruvec = mm.lru.of_zone(zone);
        let node = mm.memory.zone(zone).node;
        Self { zone: Some(zone), asks_shrinkers: is_classzone, ..Self::over(node, lruvec..lruvec + 1, sc.scanned) }
    }
}

impl Mm {
    /// Whether a zone's lists are worth scanning, and were not scanned over and over in vain (`zone_reclaimable`).
    pub(crate) fn is_reclaimable(&self, zone: ZoneIndex) -> bool {
        self.memory.zone(zone).scanned() < self.reclaimable_frames(zone) * LOOKS_MAX
    }

    /// Counts frames of a zone's active list that were scanned.
    pub(super) fn note_zone_scan(&mut self, lruvec: usize, met: u64) {
        if self.memory.variant().lru_by == LruBy::Zone {
            let zone = self.zones_of(lruvec).next().expect("lists are some zone's");
            self.memory.zone_mut(zone).add_scanned(met);
        }
    }

    /// Counts `met` frames of a zone's inactive list that were scanned, and those isolated.
    pub(super) fn begin_zone_list(&mut self, cx: &mut Cx, sc: &mut ScanControl, zone: ZoneIndex, met: u64) {
        let state = self.memory.zone_mut(zone);
        state.add_scanned(met);
        cx.count(scanned(sc.by, state.kind), met);
        sc.met = Met::default();
        (sc.meets_writeback, sc.meets_dirty) = (state.reclaim.meets_writeback, state.reclaim.meets_dirty);
    }

    /// Notes the state of a zone after its isolated folios were handled; returns the time until which the reclaimer sleeps, if it
    /// has to.
    pub(super) fn end_zone_list(&mut self, cx: &mut Cx, sc: &ScanControl, zone: ZoneIndex) -> Option<Time> {
        let (met, flags) = (&sc.met, &mut self.memory.zone_mut(zone).reclaim);
        flags.meets_writeback |= met.is_all_writeback();
        flags.is_congested |= met.is_congested();
        flags.meets_dirty |= met.unqueued_dirty == met.taken;
        let is_congested = flags.is_congested;
        if met.immediate > 0 {
            let (until, counts) = (self.writeback_throttle(cx), (met.immediate, met.taken));
            return Some(Self::throttled(cx, Throttle::Writeback, counts, until));
        }
        let is_held = is_congested && sc.by != Reclaimer::Kswapd;
        self.wait_iff_congested(cx, is_held, CONGESTION).map(|until| self.congested(cx, until))
    }

    /// Frames that a zone shall have free above its High mark, before the others are left to serve (`balance_gap`).
    pub(crate) fn balance_gap(&self, zone: ZoneIndex) -> u64 {
        let state = self.memory.zone(zone);
        state.mark(Mark::Low).min(state.managed.div_ceil(BALANCE_GAP_RATIO))
    }

    /// Whether compaction can begin in a zone with room to spare (`compaction_ready`). The caller has counted the request for
    /// deferral.
    pub(super) fn zone_compaction_ready(&self, zone: ZoneIndex, request: &AllocRequest) -> bool {
        let order = request.order;
        if order <= COSTLY {
            return false;
        }
        let mark = self.memory.zone(zone).mark(Mark::High) + self.balance_gap(zone) + compact_gap(order);
        let has_room = self.memory.has_above(zone, Order::BASE, mark, ZoneKind::Dma);
        if self.zone_compacts[zone].is_deferred(order) {
            return has_room;
        }
        has_room && self.memory.compaction_suitable(zone, order, ZoneKind::Dma, Urgency::Normal) != Suitable::Skipped
    }

    /// Whether more reclaim of a zone would help compaction to make a block (`should_continue_reclaim`). `came`: frames freed by
    /// the last pass.
    pub(crate) fn should_continue_zone(&self, zone: ZoneIndex, sc: &ScanControl, came: u64) -> bool {
        if !is_for_compaction(sc) || came == 0 {
            return false;
        }
        let size = |kind| self.lru.zone_frames(zone, kind);
        let anon = if self.swap.free() > 0 { size(LruKind::InactiveAnon) } else { 0 };
        let gap = compact_gap(sc.order);
        (sc.reclaimed < gap && size(LruKind::InactiveFile) + anon > gap)
            || self.memory.compaction_suitable(zone, sc.order, ZoneKind::Dma, Urgency::Normal) == Suitable::Skipped
    }
}
