//! Linux: kswapd, wakeup_kswapd(), balance_pgdat() and kswapd_try_to_sleep() in mm/vmscan.c (v5.0 to v6.1).
//! Differs: tasks that wait for kswapd check by themselves, except stalled ones (`slow/stall.rs`); kernels from 4.8 to 4.19
//! have the rules of 5.0, except for when kswapd of 4.8 to 4.11 sleeps. Failures are counted before 4.12 too (c73322d098e4),
//! and the frames that a run reclaims are added up over its passes.
//!
//! `by_zone.rs` has the kswapd of kernels up to 4.7, whose zones have LRU lists of their own.

mod by_zone;

use memory::{
    Memory,
    bell::{RETRIES_MAX, Rest, Wish},
    cx::Cx,
    event::Event,
    fact::{Fact, Throttle},
    frame::Holdings,
    lru_kind::LruKind,
    step::{RUN, Step, Wait},
    suitable::compact_gap,
    tally::Test,
};
use rules::{gfp::Mark, variant::LruBy, zone::ZoneKind};
use units::{NodeId, Order, Picos};

use crate::{
    Mm, Spaces,
    reclaim::{DEF_PRIORITY, NodeScan, Reclaimer, ScanControl},
};

/// Sleep before the second check of a balanced node, after which kswapd really sleeps.
// kswapd_try_to_sleep, mm/vmscan.c (v6.1): HZ/10.
const SHORT_SLEEP: Picos = Picos::from_micros(100_000);

/// The state of one node's kswapd.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a node, as the kernel has them")]
pub struct Kswapd {
    /// The memory of kswapd's loop, where it goes by zones.
    turn: by_zone::Turn,
    /// All that it met lately is being written (`PGDAT_WRITEBACK`).
    meets_writeback: bool,
    /// All files' folios met lately are dirty (`PGDAT_DIRTY`).
    meets_dirty: bool,
    /// All dirty folios were met before, on their way to the disk (`LRUVEC_CONGESTED`).
    is_congested: bool,
    /// Tasks sleep until kswapd has finished a pass (`pfmemalloc_wait`).
    pub(crate) has_sleepers: bool,
    /// The run that kswapd has begun.
    run: Option<Run>,
}

/// A run of kswapd.
#[derive(Clone, Debug)]
enum Run {
    /// Over the node's lists.
    ByNode(Balance),
    /// Zone by zone.
    ByZone(by_zone::Balance),
}

/// One run of kswapd (`balance_pgdat`).
#[derive(Clone, Debug)]
struct Balance {
    wish: Wish,
    sc: ScanControl,
    /// The boost of each kind of zone when the run began.
    boosts: [u64; ZoneKind::ALL.len()],
    /// Frames of the boosts that are still to be reclaimed, without writing or swapping.
    boost: u64,
    pass: Pass,
}

#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and none is moved often")]
#[derive(Clone, Debug)]
enum Pass {
    /// The run begins.
    Begin,
    /// Begin a pass.
    Next,
    /// Scan the node; `before` is the number of frames reclaimed before.
    Node { scan: NodeScan, before: u64 },
}

impl Balance {
    fn new(wish: Wish, (meets_writeback, meets_dirty): (bool, bool)) -> Self {
        let mut sc = ScanControl::new(Reclaimer::Kswapd, wish.order, wish.highest);
        (sc.meets_writeback, sc.meets_dirty) = (meets_writeback, meets_dirty);
        Self { wish, sc, boosts: [0; ZoneKind::ALL.len()], boost: 0, pass: Pass::Begin }
    }
}

impl Default for Kswapd {
    fn default() -> Self {
        let turn = by_zone::Turn::default();
        let (meets_writeback, meets_dirty, is_congested) = (false, false, false);
        Self { turn, meets_writeback, meets_dirty, is_congested, has_sleepers: false, run: None }
    }
}

impl Kswapd {
    /// Is all that is dirty on its node on its way to the disk, and was met by it before?
    pub(crate) fn is_congested(&self) -> bool {
        self.is_congested
    }

    /// The folios that it holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.run {
            Some(Run::ByNode(Balance { pass: Pass::Node { scan, .. }, .. })) => scan.holdings(),
            Some(Run::ByZone(run)) => run.holdings(),
            _ => Holdings::default(),
        }
    }
}

impl Mm {
    /// Goes on for some folios of a pass over the node's lists, or goes to sleep. Blocks on `Wait::Queue` until it is woken.
    pub fn step_kswapd(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId) -> Step<()> {
        let is_by_zone = self.memory.variant().lru_by == LruBy::Zone;
        match std::mem::take(&mut self.memory.node_mut(node).kswapd.rest) {
            Rest::Asleep => Step::Block(Wait::Queue),
            Rest::Napping if is_by_zone => self.end_zone_nap(cx, node),
            Rest::Napping => self.end_nap(cx, node),
            Rest::Awake => match self.kswapds[node].run.take() {
                Some(Run::ByNode(run)) => self.balance(spaces, cx, node, run),
                Some(Run::ByZone(run)) => self.balance_by_zone(spaces, cx, node, run),
                None if is_by_zone => self.begin_zone_run(node),
                None => {
                    let (daemon, wish) = (&self.kswapds[node], self.memory.node(node).kswapd.last);
                    let run = Balance::new(wish, (daemon.meets_writeback, daemon.meets_dirty));
                    self.balance(spaces, cx, node, run)
                }
            },
        }
    }

    /// Kswapd goes on with a run in its next step.
    fn goes_on(&mut self, node: NodeId, run: Run) {
        self.kswapds[node].run = Some(run);
        self.memory.node_mut(node).kswapd.rest = Rest::Awake;
    }

    fn balance(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId, mut run: Balance) -> Step<()> {
        if let Pass::Begin = run.pass {
            cx.count(Event::Pageoutrun, 1);
            self.note_boosts(node, &mut run);
            self.set_reclaim_active(node, run.wish.highest, true);
            run.pass = Pass::Next;
        }
        if let Pass::Next = run.pass {
            let is_balanced = self.memory.is_balanced(node, Wish { order: run.sc.order, ..run.wish });
            if !is_balanced && run.boost > 0 {
                // The request comes before the boost.
                run.boost = 0;
                run.sc.priority = DEF_PRIORITY;
            }
            if !cx.test(Test::KswapdFindsNode, node, !is_balanced || run.boost > 0) {
                return self.end_run(cx, node, &run, false);
            }
            run.sc.may_write = run.boost == 0 || run.sc.priority < DEF_PRIORITY - 2;
            run.sc.may_swap = run.boost == 0;
            self.age_node(spaces, cx, node, &run.sc);
            run.sc.scanned = 0;
            run.sc.to_reclaim = self.kswapd_target(node, run.sc.highest);
            let spares_slab = run.boost > 0 && self.memory.variant().boost_spares_slab;
            let mut scan = NodeScan::new(self, node, &mut run.sc);
            scan.asks_shrinkers = !spares_slab;
            run.pass = Pass::Node { scan, before: run.sc.reclaimed };
        }
        let Pass::Node { scan, before } = &mut run.pass else { unreachable!("begun above") };
        let before = *before;
        let step = scan.step(self, spaces, cx, &mut run.sc);
        if step != Step::Done(()) {
            self.goes_on(node, Run::ByNode(run));
            return step;
        }
        run.pass = Pass::Next;
        self.end_pass(cx, node, run, before)
    }

    /// Ends a pass, and decides whether another one is worth it.
    fn end_pass(&mut self, cx: &mut Cx, node: NodeId, mut run: Balance, before: u64) -> Step<()> {
        let came = run.sc.reclaimed - before;
        if cx.test(Test::KswapdFrees, node, came > 0) {
            self.memory.node_mut(node).kswapd.failures = 0;
        }
        let (order, priority, scanned) = (run.sc.order, run.sc.priority, run.sc.scanned);
        cx.fact(|| Fact::KswapdPass { node, zone: None, order, priority, scanned, reclaimed: came });
        let daemon = &mut self.kswapds[node];
        daemon.meets_writeback |= run.sc.met.is_all_writeback();
        daemon.meets_dirty |= run.sc.met.is_all_dirty();
        daemon.is_congested |= run.sc.met.is_congested();
        (run.sc.meets_writeback, run.sc.meets_dirty) = (daemon.meets_writeback, daemon.meets_dirty);
        if run.sc.order > Order::BASE && run.sc.reclaimed >= compact_gap(run.sc.order) {
            // Compaction can do the rest.
            run.sc.order = Order::BASE;
        }
        let is_gentle = run.boost > 0 && run.sc.priority == DEF_PRIORITY - 2;
        let goes_harder = run.sc.scanned < run.sc.to_reclaim && !is_gentle;
        if (!goes_harder && run.boost > 0) || self.has_reserves(node) {
            self.wake_stalled(node);
        }
        run.boost -= run.boost.min(came);
        let is_vain = run.boost > 0 && came == 0;
        if !is_vain && (goes_harder || came == 0) {
            run.sc.priority -= 1;
        }
        if is_vain || run.sc.priority == 0 {
            return self.end_run(cx, node, &run, run.sc.reclaimed == 0);
        }
        let (has_met_again, counts) = (run.sc.met.immediate > 0, (run.sc.met.immediate, run.sc.met.taken));
        self.goes_on(node, Run::ByNode(run));
        if !has_met_again {
            return Step::More;
        }
        let until = self.writeback_throttle(cx);
        Step::Block(Wait::Until(Self::throttled(cx, Throttle::Writeback, counts, until)))
    }

    /// Ends a run: its request is served, except for what was asked meanwhile.
    fn end_run(&mut self, cx: &mut Cx, node: NodeId, run: &Balance, has_failed: bool) -> Step<()> {
        self.set_reclaim_active(node, run.wish.highest, false);
        for zone in self.memory.node_zones_mut(node).iter_mut().filter(|zone| zone.kind <= run.wish.highest) {
            zone.boost -= zone.boost.min(run.boosts[zone.kind as usize]);
        }
        if run.boosts.iter().any(|boost| *boost > 0) {
            // Blocks were broken up: whole ones again (end of balance_pgdat, mm/vmscan.c, v5.0 to v6.1).
            self.memory.wake_kcompactd(cx, node, self.memory.frames.blocks.order(), run.wish.highest);
        }
        self.snapshot_refaults(node);
        let bell = &mut self.memory.node_mut(node).kswapd;
        bell.failures += u32::from(has_failed);
        // `reclaim_order < alloc_order`: it has given the order up, and rests on what is left of it.
        let gave_up = run.sc.order < run.wish.order;
        let wish = bell.wish;
        let asked = self.memory.rests_on(wish, run.wish.highest);
        let rests = if gave_up { Wish { order: run.sc.order, ..run.wish } } else { asked };
        // Compaction has to make the block that kswapd was woken for, whatever it rests on.
        let wanted = if gave_up { run.wish.order } else { asked.order };
        self.try_to_sleep(cx, node, rests, wanted)
    }

    /// Naps before sleeping, unless the node is not balanced (`kswapd_try_to_sleep`).
    fn try_to_sleep(&mut self, cx: &mut Cx, node: NodeId, wish: Wish, wanted: Order) -> Step<()> {
        self.wake_stalled(node);
        if !self.may_sleep(cx, node, wish) {
            return self.begin_again(cx, node, wish);
        }
        let daemon = &mut self.kswapds[node];
        (daemon.meets_writeback, daemon.meets_dirty, daemon.is_congested) = (false, false, false);
        let bell = &mut self.memory.node_mut(node).kswapd;
        (bell.last, bell.rest) = (wish, Rest::Napping);
        // Room was made: now blocks of the order wanted can be, and what was given up is worth another look.
        self.reset_isolation_suitable(cx, node);
        self.memory.wake_kcompactd(cx, node, wanted, wish.highest);
        Step::Block(Wait::Until(cx.now() + SHORT_SLEEP))
    }

    fn end_nap(&mut self, cx: &mut Cx, node: NodeId) -> Step<()> {
        self.wake_stalled(node);
        let wish = self.memory.node(node).kswapd.last;
        if !self.may_sleep(cx, node, wish) {
            return self.begin_again(cx, node, wish);
        }
        Step::Block(Wait::Queue)
    }

    /// Begins another run at once: for new requests, or for the same one.
    fn begin_again(&mut self, cx: &mut Cx, node: NodeId, wish: Wish) -> Step<()> {
        cx.count(Event::KswapdHighWmarkHitQuickly, 1);
        let nothing = Wish { order: Order::BASE, highest: self.memory.unasked_zone(wish.highest) };
        let bell = &mut self.memory.node_mut(node).kswapd;
        let wish = bell.wish.take().unwrap_or(nothing);
        bell.begin(wish);
        Step::More
    }

    /// Whether kswapd may sleep (`prepare_kswapd_sleep`). From 4.8 to 4.11 a zone below its High mark and its lowmem reserve,
    /// such as a small DMA zone, keeps kswapd from the sleep before which it would wake kcompactd.
    fn may_sleep(&self, cx: &mut Cx, node: NodeId, wish: Wish) -> bool {
        let needs_all = self.memory.variant().kswapd_needs_all_zones;
        if self.memory.node(node).kswapd.failures >= RETRIES_MAX {
            return true;
        }
        if needs_all && cx.counts_tests() {
            self.count_zones(cx, node, wish);
        }
        let is_ready = if needs_all { Memory::are_all_balanced } else { Memory::is_balanced };
        let is_ready = is_ready(&self.memory, node, wish);
        if !needs_all && self.memory.variant().kcompactd {
            cx.test(Test::KswapdSleepsNode, node, is_ready);
        }
        is_ready
    }

    /// Counts the test of each zone, up to the first one that fails.
    #[cold]
    fn count_zones(&self, cx: &mut Cx, node: NodeId, wish: Wish) {
        let zones = self.memory.node_zones(node).iter().filter(|zone| zone.kind <= wish.highest);
        for (zone, is_balanced) in zones.zip(self.memory.balanced_zones(node, wish)) {
            if !cx.test(Test::KswapdSleepsZone, zone.name(), is_balanced) {
                return;
            }
        }
    }

    /// Frames of a node that kswapd reclaims in a pass: the sum of the High marks (`kswapd_shrink_node`).
    fn kswapd_target(&self, node: NodeId, highest: ZoneKind) -> u64 {
        let its = self.memory.node_zones(node).iter().filter(|zone| zone.kind <= highest);
        its.map(|zone| zone.mark(Mark::High).max(RUN)).sum()
    }

    /// Moves some active anonymous folios to the inactive list, if that is too short (`kswapd_age_node`).
    fn age_node(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId, sc: &ScanControl) {
        if !self.swap.is_on() {
            return;
        }
        for lruvec in self.lruvecs_of(node, sc.highest) {
            if self.inactive_is_low(lruvec, false) {
                self.shrink_active_list(spaces, cx, sc, (lruvec, LruKind::ActiveAnon), RUN);
            }
        }
    }

    /// Limits the CPUs' lists of zones that kswapd reclaims, so that frames it frees are visible to all.
    fn set_reclaim_active(&mut self, node: NodeId, highest: ZoneKind, is_active: bool) {
        let yields = self.memory.variant().pcp_yields_to_reclaim;
        for zone in self.memory.node_zones_mut(node).iter_mut().filter(|zone| yields && zone.kind <= highest) {
            zone.set_reclaim_active(is_active);
        }
    }

    fn note_boosts(&self, node: NodeId, run: &mut Balance) {
        for zone in self.memory.node_zones(node).iter().filter(|zone| zone.kind <= run.wish.highest) {
            run.boosts[zone.kind as usize] = zone.boost;
        }
        run.boost = run.boosts.iter().sum();
    }
}

#[cfg(test)]
mod tests;
