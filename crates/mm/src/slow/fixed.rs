//! Linux: __alloc_pages_slowpath(), should_alloc_retry() and __alloc_pages_may_oom() in mm/page_alloc.c (v4.1 to v4.4).
//! Differs: 3.9 to 4.0 go in this order too, and so do 4.6 and 4.7, which already count reclaims without progress.
//!
//! Phases have numbers in the order of the kernel's function. A phase does what it does in later releases (`slow.rs`); this file
//! has the order of the phases.

use memory::{cx::Cx, step::Wait, tally::Test};
use rules::gfp::{COSTLY, Effort, Mobility};
use units::{Order, Picos};

use super::{AllocControl, DirectCompact, DirectReclaim, Next, Phase};
use crate::{
    Mm,
    compact::{CompactPriority, CompactResult, Compacted, Contention},
};

/// Longest wait of a task for a congested disk before it begins again.
// wait_iff_congested(zone, BLK_RW_ASYNC, HZ/50) in __alloc_pages_slowpath, mm/page_alloc.c (v4.1).
const CONGESTION_WAIT: Picos = Picos::from_micros(20_000);

impl AllocControl {
    /// Whether this is a request for a huge page, for which the kernel does little (`(gfp_mask & GFP_TRANSHUGE) ==
    /// GFP_TRANSHUGE`): a movable one that does not wake kswapd.
    fn is_transhuge(&self) -> bool {
        let request = &self.request;
        request.order == Order::HUGE && request.mobility == Mobility::Movable && !request.wakes_kswapd
    }

    /// 4, 5: compacts first for every order above 0: the first time async.
    pub(super) fn begin_fixed(&mut self) -> Next {
        if self.is_victim && !self.has_tried_reserves {
            return Next::Phase(Phase::Look);
        }
        if !self.request.reclaims || self.is_victim {
            return Next::Done(None);
        }
        let effort = if self.is_begun { self.priority } else { CompactPriority::Async };
        self.is_begun = true;
        if self.request.order == Order::BASE {
            return Next::Phase(Phase::Reclaim(DirectReclaim::new(self.request)));
        }
        Next::Phase(Phase::CompactFirst(DirectCompact::new(self.request, effort)))
    }

    /// 6, 7: a request for a huge page fails if compaction met contention; a fault that goes on never waits while it compacts.
    pub(super) fn after_first_of_fixed(&mut self, came_to: Compacted) -> Next {
        if came_to.block.is_some() {
            return Next::Done(came_to.block);
        }
        let is_in_the_way = came_to.result == CompactResult::Deferred
            || came_to.contention == Some(Contention::Lock)
            || (came_to.contention == Some(Contention::Cpu) && !self.is_kthread);
        if self.request.effort == Effort::OnlyCompacts || (self.is_transhuge() && is_in_the_way) {
            return Next::Done(None);
        }
        self.priority =
            if self.is_transhuge() && !self.is_kthread { CompactPriority::Async } else { CompactPriority::SyncLight };
        Next::Later(Phase::Reclaim(DirectReclaim::new(self.request)))
    }

    /// 9, 10: begins again, or compacts once more as the last try.
    pub(super) fn decide_fixed(&mut self, mm: &Mm, cx: &mut Cx, reclaimed: u64) -> Next {
        let request = self.request;
        self.reclaimed += reclaimed;
        let is_worth_it = request.order <= COSTLY
            || (request.effort == Effort::RetriesHard && self.reclaimed < u64::from(request.order.frames()));
        if cx.test(Test::OomRetries, request.node, !request.no_retry)
            && cx.test(Test::OomCostly, request.node, is_worth_it)
        {
            let is_vain = cx.test(Test::OomProgress, request.node, reclaimed == 0);
            return if is_vain { Next::Phase(Phase::Oom) } else { self.begin_again(mm, cx) };
        }
        if request.order == Order::BASE {
            return Next::Done(None);
        }
        Next::Later(Phase::Compact { reclaimed, compact: DirectCompact::new(request, self.priority) })
    }

    /// Begins again at the head of the loop. If reclaim has met little but pages under writeback in the preferred zone, the task
    /// waits for some of them first.
    fn begin_again(&self, mm: &Mm, cx: &mut Cx) -> Next {
        let preferred = mm.memory.zones_for(&self.request).first().map(|zone| mm.memory.zone(*zone));
        let meets_congestion = preferred.is_some_and(|zone| zone.reclaim.is_congested);
        match mm.wait_iff_congested(cx, meets_congestion, CONGESTION_WAIT) {
            Some(until) => Next::Block(Wait::Until(mm.congested(cx, until)), Phase::Look),
            None => Next::Later(Phase::Look),
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::{cost::Prices, event::Counters};
    use rules::{
        gfp::AllocRequest,
        machine::{MachineSpec, NodeSpec, ZoneSpec},
        variant::named,
        zone::{Settings, ZoneKind},
    };
    use units::{CpuId, NodeId, Pfn, Time};

    use super::*;

    #[test]
    fn a_retry_waits_for_a_congested_disk_of_the_preferred_zone() {
        let zone = |kind, start| ZoneSpec::whole(kind, Pfn(start), 1 << 13);
        let zones = vec![zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, 1 << 13)];
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones };
        let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(10), nodes: vec![node] };
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let control = AllocControl::of_task(AllocRequest::gfp_highuser_movable(NodeId(0)));
        let mut waits = |requests, congested: Option<u16>| {
            let mut mm = Mm::new(&machine, *named("v4.1"), &Settings::default());
            mm.send_writes(&mut cx, requests);
            if let Some(zone) = congested {
                mm.memory.zone_mut(memory::pageblock::ZoneIndex(zone)).reclaim.is_congested = true;
            }
            match control.begin_again(&mm, &mut cx) {
                Next::Block(Wait::Until(until), Phase::Look) => Some(until.since(Time(0))),
                Next::Later(Phase::Look) => None,
                _ => unreachable!("it begins again, sooner or later"),
            }
        };
        let (dma32, normal) = (Some(0), Some(1));
        assert_eq!([waits(200, dma32), waits(200, None), waits(10, normal)], [None; 3]);
        let queue = waits(200, normal).expect("both");
        assert!(Picos(0) < queue && queue < CONGESTION_WAIT, "until some of it is written: {queue:?}");
        assert_eq!(waits(100_000, normal), Some(CONGESTION_WAIT), "but not for ever");
    }
}
