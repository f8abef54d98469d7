//! Linux: kswapd(), wakeup_kswapd(), balance_pgdat(), kswapd_shrink_zone(), zone_balanced() and pgdat_balanced() in
//! mm/vmscan.c, __compact_pgdat() in mm/compaction.c (v4.1).
//! Differs: tasks that wait for kswapd check by themselves. Kernels of 4.6 and 4.7, which leave compaction to kcompactd, have the
//! other rules of 4.1.
//!
//! Each zone has LRU lists of its own and is balanced by itself. A pass looks for the highest zone that lacks free memory, from
//! the top down, and reclaims from the lowest zone up.

use memory::{
    bell::{Rest, Wish},
    cx::Cx,
    event::Event,
    fact::Fact,
    frame::Holdings,
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::{RUN, Step, Wait},
    suitable::{Suitable, compact_gap},
    tally::Test,
};
use rules::{
    gfp::{Mark, Urgency},
    zone::ZoneKind,
};
use units::{NodeId, Order};

use super::{Run, SHORT_SLEEP};
use crate::{
    Mm, Spaces,
    compact::CompactControl,
    reclaim::{DEF_PRIORITY, NodeScan, Reclaimer, ScanControl},
};

/// The highest zone that has LRU lists.
const TOP: ZoneKind = ZoneKind::Movable;

/// The local variables of `kswapd`'s loop, kept from run to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The request of the run.
    run: Wish,
    /// The request when the run began, or one that came since.
    new: Wish,
    /// The order and the highest zone that the run balanced.
    balanced: Wish,
}

impl Default for Turn {
    fn default() -> Self {
        let nothing = Wish { order: Order::BASE, highest: TOP };
        Self { run: nothing, new: nothing, balanced: nothing }
    }
}

/// One run of kswapd (`balance_pgdat`).
#[derive(Clone, Debug)]
pub(super) struct Balance {
    wish: Wish,
    sc: ScanControl,
    /// The highest zone that is not balanced (`end_zone`).
    end: ZoneKind,
    /// Frames that the zones should reclaim in this pass (`nr_attempted`).
    attempted: u64,
    /// Whether the next pass has a higher priority (`raise_priority`).
    goes_harder: bool,
    /// No zone has a block of the order (`pgdat_needs_compaction`).
    compacts: bool,
    phase: Phase,
}

#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and none is moved often")]
#[derive(Clone, Debug)]
enum Phase {
    /// The run begins.
    Begin,
    /// Begin a pass.
    Pass,
    /// Go on with the zones at this one.
    Zones { next: ZoneIndex },
    /// Scan a zone, tested for this order; `before` is the number of frames reclaimed before.
    Zone { at: ZoneIndex, order: Order, scan: NodeScan, before: u64 },
    /// Compact the zones from this one on.
    Compact { next: ZoneIndex, run: Option<Box<CompactControl>> },
}

impl Balance {
    fn new(wish: Wish) -> Self {
        let sc = ScanControl::new(Reclaimer::Kswapd, wish.order, TOP);
        let (end, attempted, goes_harder, compacts) = (ZoneKind::Dma, 0, true, false);
        Self { wish, sc, end, attempted, goes_harder, compacts, phase: Phase::Begin }
    }

    pub(super) fn holdings(&self) -> Holdings {
        match &self.phase {
            Phase::Zone { scan, .. } => scan.holdings(),
            Phase::Compact { run: Some(run), .. } => run.holdings(),
            _ => Holdings::default(),
        }
    }
}

/// Where a phase leads.
type Next = memory::step::Next<Phase, ()>;

impl Mm {
    /// A run begins with what was asked for last.
    pub(super) fn begin_zone_run(&mut self, node: NodeId) -> Step<()> {
        let nothing = self.memory.no_wish(node);
        let wish = self.memory.node_mut(node).kswapd.wish.take().unwrap_or(nothing);
        let turn = &mut self.kswapds[node].turn;
        (turn.run, turn.new) = (wish, wish);
        self.goes_on(node, Run::ByZone(Balance::new(wish)));
        Step::More
    }

    /// Takes a step of a run, or of what comes after it.
    pub(super) fn balance_by_zone(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        node: NodeId,
        mut run: Balance,
    ) -> Step<()> {
        // Bound: each turn is done with a zone, or ends the step.
        loop {
            let phase = std::mem::replace(&mut run.phase, Phase::Pass);
            match self.balance_phase(spaces, cx, node, &mut run, phase).note(&mut run.phase) {
                None => {}
                Some(Step::Done(())) => return self.end_zone_run(cx, node, &run),
                Some(step) => {
                    self.goes_on(node, Run::ByZone(run));
                    return step;
                }
            }
        }
    }

    fn balance_phase(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        node: NodeId,
        run: &mut Balance,
        phase: Phase,
    ) -> Next {
        match phase {
            Phase::Begin => {
                cx.count(Event::Pageoutrun, 1);
                Next::Phase(Phase::Pass)
            }
            Phase::Pass => self.begin_zone_pass(spaces, cx, node, run),
            Phase::Zones { next } => self.begin_kswapd_zone(cx, node, run, next),
            Phase::Zone { at, order, mut scan, before } => match scan.step(self, spaces, cx, &mut run.sc) {
                Step::More => Next::Later(Phase::Zone { at, order, scan, before }),
                Step::Block(wait) => Next::Block(wait, Phase::Zone { at, order, scan, before }),
                Step::Done(()) => {
                    let (zone, node) = (Some(self.memory.zone(at).kind), self.memory.zone(at).node);
                    let (priority, scanned, reclaimed) = (run.sc.priority, run.sc.scanned, run.sc.reclaimed - before);
                    cx.fact(|| Fact::KswapdPass { node, zone, order, priority, scanned, reclaimed });
                    self.end_kswapd_zone(cx, run, at, order, before)
                }
            },
            Phase::Compact { next, run: compact } => self.compact_for_kswapd(spaces, cx, node, run, (next, compact)),
        }
    }

    /// Begins a pass: finds the highest zone that is not balanced, and whether compaction is needed.
    fn begin_zone_pass(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId, run: &mut Balance) -> Next {
        (run.sc.reclaimed, run.attempted, run.goes_harder) = (0, 0, true);
        let mut found = None;
        for zone in self.memory.zones_up_to(node, TOP).collect::<Vec<_>>().into_iter().rev() {
            if run.sc.priority != DEF_PRIORITY && !self.asks_reclaimable(cx, zone) {
                continue;
            }
            let lruvec = self.lru.of_zone(zone);
            if self.swap.is_on() && self.inactive_is_low(lruvec, false) {
                self.shrink_active_list(spaces, cx, &run.sc, (lruvec, LruKind::ActiveAnon), RUN);
            }
            let lacks = !self.memory.zone_balanced(zone, run.sc.order, 0, ZoneKind::Dma);
            if cx.test(Test::KswapdFindsZone, self.memory.zone(zone).name(), lacks) {
                found = Some(self.memory.zone(zone).kind);
                break;
            }
            self.relieve_zone(zone);
        }
        let Some(end) = found else { return Next::Done(()) };
        run.end = end;
        // Since 4.6 that is left to kcompactd.
        run.compacts = !self.memory.variant().kcompactd
            && cx.test(Test::KswapdCompactOrder, node, run.sc.order > Order::BASE)
            && self.memory.zones_up_to(node, end).all(|zone| {
                let (zone, highest, rules) = (self.memory.zone(zone), run.wish.highest, self.memory.variant());
                let has_it = zone.is_ok(run.sc.order, Mark::Low, highest, Urgency::Normal, rules);
                cx.test(Test::KswapdCompactHasBlock, zone.name(), !has_it)
            });
        Next::Phase(Phase::Zones { next: ZoneIndex::FIRST })
    }

    /// Begins with the next zone that is not balanced (the first half of `kswapd_shrink_zone`).
    fn begin_kswapd_zone(&mut self, cx: &mut Cx, node: NodeId, run: &mut Balance, next: ZoneIndex) -> Next {
        for at in self.memory.zones_up_to(node, run.end).filter(|at| *at >= next).collect::<Vec<_>>() {
            if run.sc.priority != DEF_PRIORITY && !self.asks_reclaimable(cx, at) {
                continue;
            }
            run.sc.scanned = 0;
            run.sc.to_reclaim = self.memory.zone(at).mark(Mark::High).max(RUN);
            // More than compaction needs would only drive out what is of use.
            let is_compactable = run.sc.order > Order::BASE
                && self.memory.compaction_suitable(at, run.sc.order, run.end, Urgency::Normal) != Suitable::Skipped;
            let order = if is_compactable { Order::BASE } else { run.sc.order };
            let is_balanced = self.memory.zone_balanced(at, order, self.balance_gap(at), run.end);
            if !cx.test(Test::KswapdShrinks, self.memory.zone(at).name(), !is_balanced) {
                run.goes_harder = false;
                continue;
            }
            return Next::Phase(self.scan_kswapd_zone(run, at, order));
        }
        self.end_zone_pass(cx, node, run)
    }

    /// Whether a zone is worth scanning, as a pass at a higher priority asks.
    fn asks_reclaimable(&self, cx: &mut Cx, zone: ZoneIndex) -> bool {
        cx.test(Test::KswapdReclaimable, self.memory.zone(zone).name(), self.is_reclaimable(zone))
    }

    fn scan_kswapd_zone(&self, run: &Balance, at: ZoneIndex, order: Order) -> Phase {
        let scan = NodeScan::of_zone(self, at, self.memory.zone(at).kind == run.end, &run.sc);
        Phase::Zone { at, order, scan, before: run.sc.reclaimed }
    }

    /// Ends with a zone: another pass there, or the next zone.
    fn end_kswapd_zone(&mut self, cx: &mut Cx, run: &mut Balance, at: ZoneIndex, order: Order, before: u64) -> Next {
        cx.test(Test::KswapdFrees, self.memory.zone(at).name(), run.sc.reclaimed > before);
        if self.should_continue_zone(at, &run.sc, run.sc.reclaimed - before) {
            return Next::Later(self.scan_kswapd_zone(run, at, order));
        }
        run.attempted += run.sc.to_reclaim;
        self.memory.zone_mut(at).reclaim.meets_writeback = false;
        if self.is_reclaimable(at) && self.memory.zone_balanced(at, order, 0, run.end) {
            self.relieve_zone(at);
        }
        run.goes_harder &= run.sc.scanned < run.sc.to_reclaim;
        Next::Later(Phase::Zones { next: at.next() })
    }

    /// Ends a pass over all zones.
    fn end_zone_pass(&mut self, cx: &mut Cx, node: NodeId, run: &mut Balance) -> Next {
        if run.sc.order > Order::BASE && run.sc.reclaimed >= compact_gap(run.sc.order) {
            // The task that wants the block can compact by itself.
            run.sc.order = Order::BASE;
        }
        if run.compacts
            && cx.test(Test::KswapdCompactGap, node, run.sc.order > Order::BASE)
            && cx.test(Test::KswapdCompactAttempted, node, run.sc.reclaimed > run.attempted)
        {
            return Next::Phase(Phase::Compact { next: ZoneIndex::FIRST, run: None });
        }
        self.after_zone_pass(node, run)
    }

    fn after_zone_pass(&mut self, node: NodeId, run: &mut Balance) -> Next {
        run.sc.priority -= u8::from(run.goes_harder || run.sc.reclaimed == 0);
        let is_over = run.sc.priority == 0 || self.node_balanced(node, Wish { order: run.sc.order, ..run.wish });
        if is_over { Next::Done(()) } else { Next::Later(Phase::Pass) }
    }

    /// Compacts every zone of the node, async (`compact_pgdat`).
    fn compact_for_kswapd(
        &mut self,
        spaces: &mut Spaces,
        cx: &mut Cx,
        node: NodeId,
        run: &mut Balance,
        (next, compact): (ZoneIndex, Option<Box<CompactControl>>),
    ) -> Next {
        let order = run.sc.order;
        if let Some(mut control) = compact {
            match control.step(self, spaces, cx) {
                Step::More => return Next::Later(Phase::Compact { next, run: Some(control) }),
                Step::Block(wait) => return Next::Block(wait, Phase::Compact { next, run: Some(control) }),
                Step::Done(_) => self.note_compacted(next, order),
            }
            return Next::Later(Phase::Compact { next: next.next(), run: None });
        }
        let Some(at) = self.memory.zones_up_to(node, TOP).find(|at| *at >= next) else {
            return self.after_zone_pass(node, run);
        };
        self.zone_compacts[at].consider(order);
        let is_deferred = self.zone_compacts[at].is_deferred(order);
        if !cx.test(Test::KswapdCompactDeferred, self.memory.zone(at).name(), !is_deferred) {
            self.note_compacted(at, order);
            return Next::Phase(Phase::Compact { next: at.next(), run: None });
        }
        let control = Box::new(CompactControl::by_kswapd(at, order));
        Next::Later(Phase::Compact { next: at, run: Some(control) })
    }

    /// Ends deferral for a zone that now has a block above its Low mark.
    fn note_compacted(&mut self, at: ZoneIndex, order: Order) {
        if self.memory.zone(at).is_ok(order, Mark::Low, ZoneKind::Dma, Urgency::Normal, self.memory.variant()) {
            self.zone_compacts[at].reset_deferral(order, false);
        }
    }

    /// Ends a run: begins another one for a new request, or sleeps (the loop of `kswapd`).
    fn end_zone_run(&mut self, cx: &mut Cx, node: NodeId, run: &Balance) -> Step<()> {
        let nothing = self.memory.no_wish(node);
        let turn = &mut self.kswapds[node].turn;
        turn.balanced = Wish { order: run.sc.order, highest: run.end };
        // A run that has failed would fail again.
        if turn.balanced.highest >= turn.new.highest && turn.balanced.order == turn.new.order {
            turn.new = self.memory.node_mut(node).kswapd.wish.take().unwrap_or(nothing);
        }
        if turn.run.order < turn.new.order || turn.run.highest > turn.new.highest {
            turn.run = turn.new;
            let run = Balance::new(turn.run);
            self.goes_on(node, Run::ByZone(run));
            return Step::More;
        }
        let rests = turn.balanced;
        self.wake_stalled(node);
        if !self.node_balanced(node, rests) {
            return self.refuse_sleep(cx, node);
        }
        self.memory.node_mut(node).kswapd.rest = Rest::Napping;
        Step::Block(Wait::Until(cx.now() + SHORT_SLEEP))
    }

    /// Ends a nap that was not cut short.
    pub(super) fn end_zone_nap(&mut self, cx: &mut Cx, node: NodeId) -> Step<()> {
        self.wake_stalled(node);
        if !self.node_balanced(node, self.kswapds[node].turn.balanced) {
            return self.refuse_sleep(cx, node);
        }
        // With free memory, compaction may retry what it gave up.
        self.reset_isolation_suitable(cx, node);
        Step::Block(Wait::Queue)
    }

    fn refuse_sleep(&mut self, cx: &mut Cx, node: NodeId) -> Step<()> {
        cx.count(Event::KswapdHighWmarkHitQuickly, 1);
        self.begin_zone_run(node)
    }

    /// Clears the flags of a zone that is balanced again.
    fn relieve_zone(&mut self, zone: ZoneIndex) {
        let flags = &mut self.memory.zone_mut(zone).reclaim;
        (flags.is_congested, flags.meets_dirty) = (false, false);
    }

    /// Is every zone balanced, or, for larger orders, a quarter of the node (`pgdat_balanced`)? Those that are given up count
    /// as such.
    fn node_balanced(&self, node: NodeId, wish: Wish) -> bool {
        let (mut managed, mut balanced) = (0, 0);
        for zone in self.memory.zones_up_to(node, wish.highest) {
            let its = self.memory.zone(zone).managed;
            managed += its;
            if !self.is_reclaimable(zone) || self.memory.zone_balanced(zone, wish.order, 0, self.memory.zone(zone).kind)
            {
                balanced += its;
            } else if wish.order == Order::BASE {
                return false;
            }
        }
        wish.order == Order::BASE || balanced >= managed >> 2
    }
}

#[cfg(test)]
impl Mm {
    /// Compacts the node, after kswapd has reclaimed enough for a block.
    pub(crate) fn kswapd_compacts(&mut self, spaces: &mut Spaces, cx: &mut Cx, order: Order) {
        let mut run = Balance::new(Wish { order, highest: TOP });
        run.phase = Phase::Compact { next: ZoneIndex::FIRST, run: None };
        while let phase @ Phase::Compact { .. } = std::mem::replace(&mut run.phase, Phase::Pass) {
            match self.balance_phase(spaces, cx, NodeId(0), &mut run, phase) {
                Next::Phase(phase) | Next::Later(phase) | Next::Block(_, phase) => run.phase = phase,
                Next::Done(()) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;
