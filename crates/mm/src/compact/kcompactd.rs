//! Linux: kcompactd(), wakeup_kcompactd(), proactive_compact_node() and compact_nodes() in mm/compaction.c (v4.6 to v6.1).
//! Differs: the first proactive check comes when its timer is first armed to fire, not half a second after boot.
//!
//! The kernel thread of each node that compacts in the background: for an order that a request could not get, or, every half
//! second, if free memory is too fragmented for huge pages.

use memory::{
    bell::ANY_ZONE,
    cx::Cx,
    event::Event,
    fact::Fact,
    frame::Holdings,
    pageblock::ZoneIndex,
    step::{Step, Wait},
    suitable::Suitable,
    tally::Test,
};
use rules::{
    gfp::Urgency,
    zone::{Settings, ZoneKind},
};
use units::{NodeId, Order, PageAllocator, Picos};

use crate::{
    Mm, Spaces,
    compact::{CompactControl, CompactResult, SCORE_ORDER, zone::DEFER_SHIFT_MAX},
};

/// Time between two checks of a node's fragmentation score.
// HPAGE_FRAG_CHECK_INTERVAL_MSEC, include/linux/compaction.h (v6.1).
pub const CHECK_INTERVAL: Picos = Picos::from_micros(500_000);
/// The lowest score at which proactive compaction ends.
// fragmentation_score_wmark, mm/compaction.c (v6.1).
const SCORE_LEAST: u64 = 5;
/// Distance from the score at which proactive compaction ends to the score above which it begins.
const SCORE_STEP: u64 = 10;
const SCORE_MOST: u64 = 100;

/// Compaction in the background: its settings, and moves that fail for tests.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// `vm.compaction_proactiveness`: 0 to 100; 0 is off.
    pub proactiveness: u32,
    /// One move of a page in `fail_every` fails, 0: none does; and how many moves there were.
    fail_every: u32,
    moves: u32,
}

impl Compaction {
    /// Compaction of a machine that has just booted.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { proactiveness: settings.compaction_proactiveness, fail_every: 0, moves: 0 }
    }

    /// Makes every n-th move of a page fail after the page was unmapped: for tests.
    pub fn fail_moves(&mut self, every: u32) {
        self.fail_every = every;
    }

    /// Counts a move; returns whether it fails as if a task held a reference to the page (`folio_migrate_mapping`).
    pub(crate) fn does_move_fail(&mut self) -> bool {
        self.moves = self.moves.wrapping_add(1);
        self.fail_every > 0 && self.moves.is_multiple_of(self.fail_every)
    }

    /// Applies changed settings.
    pub(crate) fn apply_settings(&mut self, settings: &Settings) {
        self.proactiveness = settings.compaction_proactiveness;
    }

    /// The score at which proactive compaction ends, and the score above which it begins (`fragmentation_score_wmark`).
    pub fn score_marks(&self) -> (u64, u64) {
        let low = SCORE_MOST.saturating_sub(self.proactiveness.into()).max(SCORE_LEAST);
        (low, (low + SCORE_STEP).min(SCORE_MOST))
    }
}

/// One node's kcompactd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kcompactd {
    work: Option<Work>,
}

/// The work of a node's kcompactd.
#[derive(Clone, Debug)]
struct Work {
    /// The order to make; none: the score is to be lowered.
    order: Option<Order>,
    highest: ZoneKind,
    /// Number of the machine's zones that are done.
    passed: usize,
    run: Option<Box<CompactControl>>,
    /// The node's score when the work began.
    score: u64,
}

impl Mm {
    /// How fragmented a zone's free memory is for huge pages, 0 to 100 (`fragmentation_score_zone`).
    pub(crate) fn zone_score(&self, zone: ZoneIndex) -> u64 {
        self.memory.zone(zone).free_blocks(SCORE_ORDER).extfrag(SCORE_ORDER)
    }

    /// The fragmentation score of a node: its zones' scores, weighted by their frames (`fragmentation_score_node`).
    pub fn node_score(&self, node: NodeId) -> u64 {
        let present: u64 = self.memory.node_zones(node).iter().map(|zone| zone.present).sum();
        let weighted = |at: ZoneIndex| self.memory.zone(at).present * self.zone_score(at) / (present + 1);
        self.memory.node(node).zones().map(weighted).sum()
    }

    /// Whether kcompactd checks its node's score from time to time.
    pub fn is_proactive(&self) -> bool {
        self.has_proactive() && self.compaction.proactiveness > 0
    }

    /// Whether the kernel can compact by scores.
    fn has_proactive(&self) -> bool {
        let rules = self.memory.variant();
        rules.kcompactd && rules.compact_proactive && rules.allocator == PageAllocator::Linux
    }

    /// Whether a node's kcompactd has no work, so that it sleeps until it is woken or its timer fires.
    pub fn is_kcompactd_idle(&self, node: NodeId) -> bool {
        !self.memory.node(node).kcompactd.is_busy
    }

    /// Frames that a node's kcompactd holds between two steps.
    pub fn kcompactd_holdings(&self, node: NodeId) -> Holdings {
        let run = self.kcompactds[node].work.as_ref().and_then(|work| work.run.as_ref());
        run.map_or_else(Holdings::default, |run| run.holdings())
    }

    /// Goes on until others may run, or goes to sleep: until it is woken, or it is time to look at the score.
    pub fn step_kcompactd(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId) -> Step<()> {
        self.memory.node_mut(node).kcompactd.is_busy = false;
        let work = self.kcompactds[node].work.take();
        let Some(mut work) = work.or_else(|| self.next_work(cx, node)) else {
            return self.sleep_kcompactd(cx, CHECK_INTERVAL);
        };
        match self.step_work(spaces, cx, node, &mut work) {
            Step::Done(()) => self.end_work(cx, node, &work),
            step => {
                self.kcompactds[node].work = Some(work);
                self.memory.node_mut(node).kcompactd.is_busy = true;
                step
            }
        }
    }

    fn sleep_kcompactd(&self, cx: &Cx, span: Picos) -> Step<()> {
        Step::Block(if self.is_proactive() { Wait::Until(cx.now() + span) } else { Wait::Queue })
    }

    /// The next work: what kcompactd was woken for, else proactive work.
    fn next_work(&mut self, cx: &mut Cx, node: NodeId) -> Option<Work> {
        let score = self.node_score(node);
        let bell = &self.memory.node(node).kcompactd;
        let work = Work { order: None, highest: bell.highest, passed: 0, run: None, score };
        if bell.order > Order::BASE {
            cx.count(Event::CompactDaemonWake, 1);
            let order = Some(bell.order);
            cx.fact(|| Fact::KcompactdWork { node, order });
            return Some(Work { order, ..work });
        }
        let (rests, most) = (self.memory.node(node).kswapd.is_asleep(), self.compaction.score_marks().1);
        let is_due = self.has_proactive()
            && cx.test(Test::ProactiveOn, node, self.is_proactive())
            && cx.test(Test::ProactiveKswapd, node, rests)
            && cx.test(Test::ProactiveScore, node, score > most);
        if is_due {
            cx.fact(|| Fact::KcompactdWork { node, order: None });
        }
        is_due.then_some(Work { highest: ANY_ZONE, ..work })
    }

    /// Takes a step of the work, zone after zone (`kcompactd_do_work`, `proactive_compact_node`).
    fn step_work(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId, work: &mut Work) -> Step<()> {
        // Bound: each turn passes a zone, or ends a step.
        while work.passed < self.memory.zones().len() {
            let at = ZoneIndex::at(work.passed);
            let kind = self.memory.zone(at).kind;
            if let Some(run) = &mut work.run {
                let result = match run.step(self, spaces, cx) {
                    Step::More => return Step::More,
                    Step::Block(wait) => return Step::Block(wait),
                    Step::Done(result) => result,
                };
                if let Some(order) = work.order {
                    let (migrate, free) = run.scanned();
                    cx.count(Event::CompactDaemonMigrateScanned, migrate);
                    cx.count(Event::CompactDaemonFreeScanned, free);
                    self.after_daemon_zone(cx, at, order, result);
                }
                work.run = None;
                work.passed += 1;
                continue;
            }
            let is_its = self.memory.zone(at).node == node && kind <= work.highest;
            if is_its && let Some(order) = work.order {
                self.zone_compacts[at].consider(order);
            }
            if is_its && self.is_daemon_zone(cx, at, work.order) {
                work.run = Some(Box::new(CompactControl::by_daemon(at, work.order, work.highest)));
            } else {
                work.passed += 1;
            }
        }
        Step::Done(())
    }

    /// Whether a zone is suitable for compaction, and compaction is not deferred there.
    fn is_daemon_zone(&self, cx: &mut Cx, at: ZoneIndex, order: Option<Order>) -> bool {
        let Some(order) = order else { return true };
        let (kind, zone) = (self.memory.zone(at).kind, self.memory.zone(at).name());
        cx.test(Test::KcompactdDeferred, zone, !self.zone_compacts[at].is_deferred(order)) && {
            let suitable = self.memory.compaction_suitable(at, order, kind, Urgency::Normal);
            cx.test(Test::KcompactdSuitable, zone, suitable == Suitable::Continue)
        }
    }

    fn after_daemon_zone(&mut self, cx: &mut Cx, at: ZoneIndex, order: Order, result: CompactResult) {
        match result {
            CompactResult::Success => self.zone_compacts[at].reset_deferral(order, false),
            CompactResult::Complete | CompactResult::PartialSkipped => {
                // What the lists of CPUs hold may be what was missing.
                self.memory.drain_zone(cx, at);
                self.zone_compacts[at].defer(order);
            }
            _ => {}
        }
    }

    /// Ends the work after all zones.
    fn end_work(&mut self, cx: &mut Cx, node: NodeId, work: &Work) -> Step<()> {
        let Some(order) = work.order else {
            // The score did not fall: kcompactd rests for 32 s.
            let is_useless = self.node_score(node) >= work.score;
            let span = if is_useless { Picos(CHECK_INTERVAL.0 << DEFER_SHIFT_MAX) } else { CHECK_INTERVAL };
            return if self.memory.node(node).kcompactd.order > Order::BASE {
                Step::More
            } else {
                self.sleep_kcompactd(cx, span)
            };
        };
        let bell = &mut self.memory.node_mut(node).kcompactd;
        if bell.order <= order {
            bell.order = Order::BASE;
        }
        if bell.highest >= work.highest {
            bell.highest = ANY_ZONE;
        }
        if bell.order > Order::BASE { Step::More } else { self.sleep_kcompactd(cx, CHECK_INTERVAL) }
    }
}

/// A write to `vm.compact_memory`: compacts all zones as a whole (`compact_nodes`).
#[derive(Clone, Debug, Default)]
pub struct CompactMemory {
    passed: usize,
    run: Option<Box<CompactControl>>,
    /// The batches of new folios of all CPUs were drained.
    has_drained: bool,
}

impl CompactMemory {
    /// Takes a step.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<()> {
        if !std::mem::replace(&mut self.has_drained, true) {
            mm.lru_add_drain_all(cx);
            return Step::More;
        }
        if self.passed == mm.memory.zones().len() {
            return Step::Done(());
        }
        let run = self.run.get_or_insert_with(|| Box::new(CompactControl::manual(ZoneIndex::at(self.passed))));
        match run.step(mm, spaces, cx) {
            Step::More => {}
            Step::Block(wait) => return Step::Block(wait),
            Step::Done(_) => {
                self.run = None;
                self.passed += 1;
            }
        }
        Step::More
    }

    /// Frames that the work holds between two steps.
    pub fn holdings(&self) -> Holdings {
        self.run.as_ref().map_or_else(Holdings::default, |run| run.holdings())
    }

    /// Gives back all pages and frames that the run holds.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Some(mut run) = self.run.take() {
            run.abort(mm, spaces, cx);
        }
    }
}
