//! Linux: reclaim_throttle(), allow_direct_reclaim() and throttle_direct_reclaim() in mm/vmscan.c (v5.16 to v6.1),
//! congestion_wait() and wait_iff_congested() in mm/backing-dev.c (v4.1).
//! Differs: a task that waits for kswapd checks each tick whether it may go on, and so do kernel threads; zones that are given
//! up do not count as reserves, as since 4.2.

use memory::{
    bell::RETRIES_MAX,
    cx::Cx,
    event::Event,
    fact::{Fact, Throttle},
    pageblock::ZoneIndex,
    step::TICK,
};
use rules::{
    gfp::{AllocRequest, Mark},
    variant::LruBy,
    zone::ZoneKind,
};
use units::{NodeId, Picos, Time};

use crate::Mm;

/// Pages that one reclaimer isolates at a time.
const RUN_PAGES: usize = 32;
const _: () = assert!(RUN_PAGES as u64 == memory::step::RUN);
/// `VMSCAN_THROTTLE_ISOLATED`: HZ/50.
const ISOLATED: Picos = Picos::from_micros(20_000);
/// `VMSCAN_THROTTLE_WRITEBACK`: HZ/10.
const WRITEBACK: Picos = Picos::from_micros(100_000);
/// Longest sleep of reclaim in `congestion_wait` and `wait_iff_congested`: HZ/10 (mm/vmscan.c, v4.1).
pub(super) const CONGESTION: Picos = Picos::from_micros(100_000);

impl Mm {
    /// Until when a reclaimer sleeps that meets pages under writeback again; some of them are written by then
    /// (`VMSCAN_THROTTLE_WRITEBACK`).
    pub(crate) fn writeback_throttle(&self, cx: &Cx) -> Time {
        if !self.memory.variant().reclaim_throttles {
            return self.congestion_wait(cx, CONGESTION);
        }
        let most = cx.now() + WRITEBACK;
        // As many pages as a reclaimer isolates at a time (`__acct_reclaim_writeback`).
        let files = self.files_written_by(RUN_PAGES as u64);
        self.swap.done_by(RUN_PAGES).into_iter().chain(files).fold(most, Time::min)
    }

    /// Until when a reclaimer or compaction sleeps because too many pages are isolated (`VMSCAN_THROTTLE_ISOLATED`).
    pub(crate) fn isolated_throttle(&self, cx: &Cx) -> Time {
        if self.memory.variant().reclaim_throttles { cx.now() + ISOLATED } else { self.congestion_wait(cx, CONGESTION) }
    }

    /// Notes that a task is held back until an instant, which is returned.
    pub(crate) fn throttled(cx: &mut Cx, by: Throttle, (has, limit): (u64, u64), until: Time) -> Time {
        cx.fact(|| Fact::Throttled { by, has, limit, until });
        until
    }

    /// Notes that a task is held back by a congested disk.
    pub(crate) fn congested(&self, cx: &mut Cx, until: Time) -> Time {
        let congestion = self.disk_congestion();
        Self::throttled(cx, Throttle::Congested, congestion, until)
    }

    /// Until when a task sleeps that waits for a congested disk: at most for a while (`congestion_wait`).
    fn congestion_wait(&self, cx: &Cx, most: Picos) -> Time {
        let most = cx.now() + most;
        self.disk_congested_until().map_or(most, |until| until.clamp(cx.now(), most))
    }

    /// Until when a reclaimer sleeps that meets only pages to be written to a congested disk (`wait_iff_congested`).
    pub(crate) fn wait_iff_congested(&self, cx: &Cx, meets_congestion: bool, most: Picos) -> Option<Time> {
        let is_congested = meets_congestion && self.disk_congested_until().is_some();
        is_congested.then(|| self.congestion_wait(cx, most))
    }

    /// Until when a direct reclaimer sleeps after a pass over a node whose dirty pages were all met before, on their way to the
    /// disk (`VMSCAN_THROTTLE_CONGESTED`).
    pub(super) fn congested_throttle(&self, cx: &Cx, node: NodeId) -> Option<Time> {
        let is_congested = self.kswapds[node].is_congested();
        if self.memory.variant().reclaim_throttles {
            return (is_congested && !self.skips_throttle(node)).then(|| cx.now() + TICK);
        }
        self.wait_iff_congested(cx, is_congested, CONGESTION)
    }

    /// Whether waiting for writeback on a node is of no use, as only few of its reclaimable pages are dirty
    /// (`skip_throttle_noprogress`).
    pub(super) fn skips_throttle(&self, node: NodeId) -> bool {
        if self.memory.node(node).kswapd.failures() >= RETRIES_MAX {
            return true;
        }
        let its = self.memory.node(node).zones();
        let reclaimable: u64 = its.map(|zone| self.reclaimable_frames(zone)).sum();
        let counts = self.node_file_counts(node);
        2 * (counts.dirty + counts.writeback) <= reclaimable
    }

    /// Whether a node's reserves are large enough for tasks that free memory (`allow_direct_reclaim`).
    pub(crate) fn has_reserves(&self, node: NodeId) -> bool {
        if self.memory.node(node).kswapd.failures() >= RETRIES_MAX {
            return true;
        }
        let (free, min) = self.reserves(node);
        min == 0 || free > min / 2
    }

    /// Free frames of the zones that count as a node's reserves, and the sum of their Min marks.
    pub(super) fn reserves(&self, node: NodeId) -> (u64, u64) {
        // Up to 4.7 kswapd does nothing for zones that are given up: 4.1 itself would have all reclaimers wait for ever.
        let counts = |zone: &ZoneIndex| match self.memory.variant().lru_by {
            LruBy::Zone => self.is_reclaimable(*zone),
            LruBy::Node => self.reclaimable_frames(*zone) > 0,
        };
        let with_pages = self.memory.zones_up_to(node, ZoneKind::Normal).filter(counts);
        with_pages.fold((0, 0), |(free, min), zone| {
            (free + self.memory.zone(zone).free_frames(), min + self.memory.zone(zone).mark(Mark::Min))
        })
    }

    /// Whether a node's reserves allow direct reclaim; if not, kswapd is woken.
    pub(super) fn may_reclaim_directly(&mut self, cx: &mut Cx, node: NodeId) -> bool {
        let has_reserves = self.has_reserves(node);
        if !has_reserves {
            self.memory.rouse_kswapd(cx, node);
        }
        has_reserves
    }

    /// Whether a direct reclaimer must wait, for the first time for its request.
    pub(super) fn is_throttled(&mut self, cx: &mut Cx, request: &AllocRequest, has_waited: bool) -> bool {
        let zones = self.memory.zones_for(request);
        let Some(zone) = zones.into_iter().find(|zone| self.memory.zone(*zone).kind <= ZoneKind::Normal) else {
            return false;
        };
        let node = self.memory.zone(zone).node;
        if self.may_reclaim_directly(cx, node) {
            return false;
        }
        cx.count(Event::PgscanDirectThrottle, u64::from(!has_waited));
        let until = cx.now() + TICK;
        cx.fact(|| {
            let (free, min) = self.reserves(node);
            Fact::Throttled { by: Throttle::Reserves, has: free, limit: min / 2, until }
        });
        true
    }
}
