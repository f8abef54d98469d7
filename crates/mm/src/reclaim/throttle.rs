//! Linux: reclaim_throttle(), allow_direct_reclaim() and throttle_direct_reclaim() in mm/vmscan.c (v5.16 to v6.1).
//! Differs: kernels before 5.16 wait for congestion; who waits for kswapd looks each tick whether he may go on.

use units::{Picos, Time};

use crate::{Mm, cost::Cx, event::Event, gfp::AllocRequest, reclaim::RETRIES_MAX, zone::ZoneKind};

/// What one reclaimer takes off a list at once.
const RUN_PAGES: usize = 32;
const _: () = assert!(RUN_PAGES as u64 == crate::step::RUN);
/// `VMSCAN_THROTTLE_ISOLATED`: HZ/50.
pub(super) const ISOLATED: Picos = Picos::from_micros(20_000);
/// `VMSCAN_THROTTLE_WRITEBACK`: HZ/10.
const WRITEBACK: Picos = Picos::from_micros(100_000);
/// One jiffy of a kernel with CONFIG_HZ=250.
pub(super) const TICK: Picos = Picos::from_micros(4000);

impl Mm {
    /// Until when a reclaimer sleeps who meets pages again that are being written: some of them are done then
    /// (`VMSCAN_THROTTLE_WRITEBACK`).
    pub(crate) fn writeback_throttle(&self, cx: &Cx) -> Time {
        let most = cx.now() + WRITEBACK;
        // As many as one who sleeps reclaims at once (`__acct_reclaim_writeback`).
        let files = self.files_written_by(RUN_PAGES as u64);
        self.swap.done_by(RUN_PAGES).into_iter().chain(files).fold(most, Time::min)
    }

    /// Is there no use in waiting for what a node's files wait for (`skip_throttle_noprogress`)? So it is as long as little of
    /// what could be reclaimed is dirty.
    pub(super) fn skips_throttle(&self, node: usize) -> bool {
        if self.kswapds()[node].failures() >= RETRIES_MAX {
            return true;
        }
        let id = self.nodes[node];
        let its = (0..self.zones.len()).filter(|zone| self.zones[*zone].node == id);
        let reclaimable: u64 = its.map(|zone| self.reclaimable_frames(zone)).sum();
        let counts = self.node_file_counts(node);
        2 * (counts.dirty + counts.writeback) <= reclaimable
    }

    /// Is there enough left of a node's reserves for those who make memory free (`allow_direct_reclaim`)? Wakes kswapd if not.
    pub(super) fn may_reclaim_directly(&mut self, cx: &mut Cx, node: usize) -> bool {
        if self.kswapds()[node].failures() >= RETRIES_MAX {
            return true;
        }
        let id = self.nodes[node];
        let is_its = |zone: &usize| self.zones[*zone].node == id && self.zones[*zone].kind <= ZoneKind::Normal;
        let with_pages = (0..self.zones.len()).filter(is_its).filter(|zone| self.reclaimable_frames(*zone) > 0);
        let (free, min) = with_pages.fold((0, 0), |(free, min), zone| {
            (free + self.zones[zone].buddy.free_frames(), min + self.zones[zone].marks.min.0)
        });
        if min == 0 || free > min / 2 {
            return true;
        }
        self.rouse_kswapd(cx, node);
        false
    }

    /// Must a direct reclaimer wait, and is it the first time he is told so?
    pub(super) fn is_throttled(&mut self, cx: &mut Cx, request: &AllocRequest, has_waited: bool) -> bool {
        let zones = self.zones_for(request);
        let Some(zone) = zones.into_iter().find(|zone| self.zones[*zone].kind <= ZoneKind::Normal) else {
            return false;
        };
        let node = self.node_index(self.zones[zone].node);
        if self.may_reclaim_directly(cx, node) {
            return false;
        }
        cx.count(Event::PgscanDirectThrottle, u64::from(!has_waited));
        true
    }
}
