//! Linux: try_to_free_pages(), shrink_zones(), should_continue_reclaim() and compaction_ready() in mm/vmscan.c (v4.1, v5.9 to
//! v6.1).
//! Differs: a task that waits as there is no progress (`VMSCAN_THROTTLE_NOPROGRESS`) checks its preferred node.

use memory::{
    cx::Cx,
    decision::Decision,
    event::Event,
    fact::{Fact, Throttle},
    frame::Holdings,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::{Step, TICK, Wait},
    suitable::{Suitable, compact_gap},
    tally::Test,
};
use rules::{
    gfp::{AllocRequest, COSTLY, Mark, Urgency},
    variant::LruBy,
    zone::ZoneKind,
};
use units::{NodeId, Order};

use super::{DEF_PRIORITY, NodeScan, Reclaimer, ScanControl};
use crate::{Mm, Spaces};

/// Whether reclaim runs so that compaction can make a large block (`in_reclaim_compaction`).
pub(super) fn is_for_compaction(sc: &ScanControl) -> bool {
    sc.order > COSTLY || (sc.order > Order::BASE && sc.priority < DEF_PRIORITY - 2)
}

/// Direct reclaim for one request (`try_to_free_pages`).
#[derive(Clone, Debug)]
pub(crate) struct DirectReclaim {
    request: AllocRequest,
    sc: ScanControl,
    phase: Phase,
    /// Compaction can do the rest (`compaction_ready`).
    is_ready: bool,
    /// Frames scanned in all rounds.
    total_scanned: u64,
    /// A zone was worth scanning in this round (`zones_reclaimable`).
    has_reclaimable: bool,
    /// The run has gone through all priorities once before (`may_thrash`).
    is_again: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Wait while the node's reserves are low.
    Throttle { has_waited: bool },
    /// Begin a round over all nodes at the next priority.
    Round,
    /// Go on with the zonelist at this index.
    Zones { next: usize, last: Option<NodeId> },
    /// Scan a zone with lists of its own; `before` is the number of frames reclaimed before.
    Zone { scan: NodeScan, zone: ZoneIndex, next: usize, before: u64 },
    /// Scan a node; `before` is the number of frames reclaimed before.
    Node { scan: NodeScan, next: usize, before: u64 },
}

impl DirectReclaim {
    pub(crate) fn new(request: AllocRequest) -> Self {
        let sc = ScanControl::new(Reclaimer::Direct, request.order, request.highest);
        let phase = Phase::Throttle { has_waited: false };
        Self { request, sc, phase, is_ready: false, total_scanned: 0, has_reclaimable: false, is_again: false }
    }

    /// Takes a step; the result is the number of frames reclaimed.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<u64> {
        let step = self.take_step(mm, spaces, cx);
        if let Step::Done(_) = step {
            let (scanned, sc) = (self.total_scanned, &self.sc);
            cx.test(Test::ReclaimFrees, self.request.node, sc.reclaimed > 0);
            cx.fact(|| Fact::ReclaimEnd { scanned, reclaimed: sc.reclaimed, priority: sc.priority });
        }
        step
    }

    fn take_step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<u64> {
        // Bound: rounds are counted by priority, and zones within them.
        loop {
            match std::mem::replace(&mut self.phase, Phase::Round) {
                Phase::Throttle { has_waited } => {
                    if mm.is_throttled(cx, &self.request, has_waited) {
                        self.phase = Phase::Throttle { has_waited: true };
                        return Step::Block(Wait::Until(cx.now() + TICK));
                    }
                    cx.fact(|| Fact::ReclaimBegin { order: self.request.order });
                    if cx.decides_otherwise(Decision::Reclaim) {
                        return Step::Done(0);
                    }
                    self.begin(cx);
                }
                Phase::Round => {
                    (self.sc.scanned, self.has_reclaimable) = (0, false);
                    self.phase = Phase::Zones { next: 0, last: None };
                }
                Phase::Zones { next, .. } if mm.memory.variant().lru_by == LruBy::Zone => {
                    if let Some((zone, next)) = self.next_zone(mm, cx, next) {
                        self.begin_zone(mm, zone, next);
                    } else if let Some(reclaimed) = self.end_round(mm, cx) {
                        return Step::Done(reclaimed);
                    }
                }
                Phase::Zone { mut scan, zone, next, before } => {
                    let step = scan.step(mm, spaces, cx, &mut self.sc);
                    if step == Step::Done(()) {
                        self.end_zone(mm, zone, next, before);
                        return Step::More;
                    }
                    self.phase = Phase::Zone { scan, zone, next, before };
                    return if let Step::Block(wait) = step { Step::Block(wait) } else { Step::More };
                }
                Phase::Zones { next, last } => {
                    if let Some((node, next)) = self.next_node(mm, cx, next, last) {
                        let before = self.sc.reclaimed;
                        self.phase = Phase::Node { scan: NodeScan::new(mm, node, &mut self.sc), next, before };
                        continue;
                    }
                    let is_vain = self.sc.priority == 1 && self.sc.reclaimed == 0;
                    if let Some(reclaimed) = self.end_round(mm, cx) {
                        return Step::Done(reclaimed);
                    }
                    if is_vain && mm.memory.variant().reclaim_throttles && !mm.skips_throttle(self.request.node) {
                        // VMSCAN_THROTTLE_NOPROGRESS.
                        let (by, until) = (Throttle::NoProgress, cx.now() + TICK);
                        return Step::Block(Wait::Until(Mm::throttled(cx, by, (0, self.sc.to_reclaim), until)));
                    }
                }
                Phase::Node { mut scan, next, before } => {
                    let step = scan.step(mm, spaces, cx, &mut self.sc);
                    if step == Step::Done(()) {
                        let node = scan.node();
                        self.end_node(mm, node, next, before);
                        let wait = mm.congested_throttle(cx, node);
                        return wait.map_or(Step::More, |until| Step::Block(Wait::Until(mm.congested(cx, until))));
                    }
                    self.phase = Phase::Node { scan, next, before };
                    return if let Step::Block(wait) = step { Step::Block(wait) } else { Step::More };
                }
            }
        }
    }

    /// The folios that the run holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        match &self.phase {
            Phase::Node { scan, .. } | Phase::Zone { scan, .. } => scan.holdings(),
            Phase::Throttle { .. } | Phase::Round | Phase::Zones { .. } => Holdings::default(),
        }
    }

    /// Puts back the folios that the run holds.
    pub(crate) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Round) {
            Phase::Node { mut scan, .. } | Phase::Zone { mut scan, .. } => scan.abort(mm, cx),
            Phase::Throttle { .. } | Phase::Round | Phase::Zones { .. } => {}
        }
    }

    fn begin(&mut self, cx: &mut Cx) {
        let stall = match self.request.highest {
            ZoneKind::Dma => Event::AllocstallDma,
            ZoneKind::Dma32 => Event::AllocstallDma32,
            ZoneKind::Normal => Event::AllocstallNormal,
            ZoneKind::Movable | ZoneKind::Device => Event::AllocstallMovable,
        };
        cx.count(stall, 1);
        self.sc.priority = DEF_PRIORITY;
    }

    /// The next node of the zonelist, and the index to go on at (`shrink_zones`).
    fn next_node(&mut self, mm: &Mm, cx: &mut Cx, from: usize, last: Option<NodeId>) -> Option<(NodeId, usize)> {
        for (at, zone) in mm.memory.zones_for(&self.request).into_iter().enumerate().skip(from) {
            if self.request.order > COSTLY {
                let is_ready = mm.compaction_ready(zone, &self.request);
                if !cx.test(Test::ReclaimReady, mm.memory.zone(zone).name(), !is_ready) {
                    self.is_ready = true;
                    continue;
                }
            }
            let node = mm.memory.zone(zone).node;
            if last != Some(node) {
                return Some((node, at + 1));
            }
        }
        None
    }

    /// Ends a pass over a node: begins another one there, or goes to the next node.
    fn end_node(&mut self, mm: &mut Mm, node: NodeId, next: usize, before: u64) {
        let came = self.sc.reclaimed - before;
        if came > 0 {
            mm.forgive_kswapd(node);
        }
        if mm.should_continue_reclaim(node, &self.sc, came) {
            let before = self.sc.reclaimed;
            self.phase = Phase::Node { scan: NodeScan::new(mm, node, &mut self.sc), next, before };
        } else {
            self.phase = Phase::Zones { next, last: Some(node) };
        }
    }

    /// The next zone of the zonelist worth scanning, and the index to go on at (`shrink_zones`, v4.1).
    fn next_zone(&mut self, mm: &mut Mm, cx: &mut Cx, from: usize) -> Option<(ZoneIndex, usize)> {
        for (at, zone) in mm.memory.zones_for(&self.request).into_iter().enumerate().skip(from) {
            let name = mm.memory.zone(zone).name();
            if self.sc.priority != DEF_PRIORITY && !cx.test(Test::ReclaimZone, name, mm.is_reclaimable(zone)) {
                // The zone is left to kswapd.
                continue;
            }
            if self.request.order > COSTLY {
                mm.zone_compacts[zone].consider(self.request.order);
            }
            let is_ready = mm.zone_compaction_ready(zone, &self.request);
            if self.request.order > COSTLY && !cx.test(Test::ReclaimReady, name, !is_ready) {
                self.is_ready = true;
                continue;
            }
            return Some((zone, at + 1));
        }
        None
    }

    fn begin_zone(&mut self, mm: &Mm, zone: ZoneIndex, next: usize) {
        let node = mm.memory.zone(zone).node;
        let is_classzone = mm.memory.zone(zone).kind == mm.memory.classzone(node, self.request.highest);
        let scan = NodeScan::of_zone(mm, zone, is_classzone, &self.sc);
        self.phase = Phase::Zone { scan, zone, next, before: self.sc.reclaimed };
    }

    /// Ends a pass over a zone: begins another one there, or goes to the next zone (`shrink_zone`, v4.1).
    fn end_zone(&mut self, mm: &Mm, zone: ZoneIndex, next: usize, before: u64) {
        let came = self.sc.reclaimed - before;
        self.has_reclaimable |= came > 0;
        if mm.should_continue_zone(zone, &self.sc, came) {
            self.begin_zone(mm, zone, next);
            return;
        }
        self.has_reclaimable |= mm.is_reclaimable(zone);
        self.phase = Phase::Zones { next, last: None };
    }

    /// Ends a round over all nodes: begins another one at a higher priority, or returns the number of frames reclaimed
    /// (`do_try_to_free_pages`).
    fn end_round(&mut self, mm: &mut Mm, cx: &mut Cx) -> Option<u64> {
        let sc = &mut self.sc;
        self.total_scanned += sc.scanned;
        if sc.reclaimed < sc.to_reclaim && !self.is_ready {
            // As much shall be written as was looked at.
            if self.total_scanned > sc.to_reclaim + sc.to_reclaim / 2 && !mm.memory.variant().reclaim_sets_dirty_aside {
                mm.wake_flusher(cx);
            }
        }
        if sc.reclaimed < sc.to_reclaim && !self.is_ready && sc.priority > 0 {
            sc.priority -= 1;
            self.phase = Phase::Round;
            return None;
        }
        for zone in mm.memory.zones_for(&self.request) {
            mm.snapshot_refaults(mm.memory.zone(zone).node);
        }
        if sc.reclaimed > 0 {
            return Some(sc.reclaimed);
        }
        if self.is_ready {
            return Some(1);
        }
        if sc.spared_active {
            (sc.spared_active, sc.force_deactivate) = (false, true);
            self.begin(cx);
            self.phase = Phase::Round;
            return None;
        }
        if mm.memory.variant().reclaim_vain_again && !std::mem::replace(&mut self.is_again, true) {
            self.phase = Phase::Round;
            self.begin(cx);
            return None;
        }
        // Where zones are given up one by one, that not all are is as good as a frame.
        Some(u64::from(mm.memory.variant().lru_by == LruBy::Zone && self.has_reclaimable))
    }
}

impl Mm {
    /// Whether more reclaim would help compaction to make a block (`should_continue_reclaim`).
    fn should_continue_reclaim(&self, node: NodeId, sc: &ScanControl, came: u64) -> bool {
        if !is_for_compaction(sc) || came == 0 {
            return false;
        }
        let lists = self.lruvecs_of(node, sc.highest);
        let size = |kind| lists.clone().map(|at| self.lru.frames(at, kind)).sum::<u64>();
        let anon = if self.swap.free() > 0 { size(LruKind::InactiveAnon) } else { 0 };
        let gap = compact_gap(sc.order);
        let wants_more = sc.reclaimed < gap && size(LruKind::InactiveFile) + anon > gap;
        if wants_more && self.memory.variant().reclaim_gap_first {
            return true;
        }
        if self.memory.zones_up_to(node, sc.highest).any(|zone| {
            self.memory.compaction_suitable(zone, sc.order, sc.highest, Urgency::Normal) != Suitable::Skipped
        }) {
            return false;
        }
        wants_more || self.memory.variant().reclaim_gap_first
    }

    /// Whether compaction can begin in a zone, or has nothing to do there (`compaction_ready`).
    fn compaction_ready(&self, zone: ZoneIndex, request: &AllocRequest) -> bool {
        match self.memory.compaction_suitable(zone, request.order, request.highest, Urgency::Normal) {
            Suitable::Success => true,
            Suitable::Skipped => false,
            // Beyond this mark reclaim is left to kswapd, so that frames are not reclaimed twice.
            Suitable::Continue => {
                let mark = self.memory.zone(zone).mark(Mark::High) + compact_gap(request.order);
                self.memory.has_above(zone, Order::BASE, mark, request.highest)
            }
        }
    }

    /// A task has reclaimed something on a node: its kswapd may try again.
    pub(crate) fn forgive_kswapd(&mut self, node: NodeId) {
        self.memory.node_mut(node).kswapd.forgive();
    }
}
