//! Linux: kswapd, wakeup_kswapd(), balance_pgdat() and kswapd_try_to_sleep() in mm/vmscan.c (v5.0 to v6.1).
//! Differs: who waits for it looks by himself, but for who stalls (`slow/stall.rs`); kernels from 4.8 to 4.19 have the rules of
//! 5.0 here, but for when kswapd of 4.8 to 4.11 sleeps. Failures are counted before 4.12 too (c73322d098e4), and what a run
//! reclaims is added up over its passes.
//!
//! `by_zone.rs` has those up to 4.7, whose zones have LRU lists of their own.

mod by_zone;

use units::{NodeId, Order, Picos};

use crate::{
    Mm, Spaces,
    memory::{
        cx::Cx,
        event::Event,
        frame::Holdings,
        lru_kind::LruKind,
        news::{Daemon, News},
        step::{RUN, Step, Wait},
    },
    reclaim::{DEF_PRIORITY, NodeScan, RETRIES_MAX, Reclaimer, ScanControl, compact_gap},
    rules::{
        gfp::{Mark, Urgency},
        variant::LruBy,
        zone::ZoneKind,
    },
};

/// A balanced node is looked at once more after a tenth of a second, before the thread really sleeps.
// kswapd_try_to_sleep, mm/vmscan.c (v6.1): HZ/10.
const SHORT_SLEEP: Picos = Picos::from_micros(100_000);

/// One node's kswapd.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a node, as the kernel has them")]
pub struct Kswapd {
    /// The request that kswapd has yet to serve: the largest order and the highest zone since it last began (`kswapd_order`,
    /// `kswapd_highest_zoneidx`).
    wish: Option<Wish>,
    /// The request that kswapd served last.
    last: Wish,
    /// The memory of kswapd's loop, where it goes by zones.
    turn: by_zone::Turn,
    /// Runs in a row that reclaimed nothing (`kswapd_failures`).
    failures: u32,
    /// All that it met lately is being written (`PGDAT_WRITEBACK`).
    meets_writeback: bool,
    /// All that it met of files is dirty (`PGDAT_DIRTY`).
    meets_dirty: bool,
    /// All that is dirty was met before, on its way to the disk (`LRUVEC_CONGESTED`).
    is_congested: bool,
    /// Tasks sleep until kswapd has come to the end of a pass (`pfmemalloc_wait`).
    pub(crate) has_sleepers: bool,
    state: State,
}

/// A request to kswapd: the order and the highest zone to make room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    order: Order,
    highest: ZoneKind,
}

#[derive(Clone, Debug)]
enum State {
    /// Until kswapd is woken.
    Asleep,
    /// Balanced, it naps before it sleeps.
    Napping,
    /// Kswapd looks for room.
    Balancing(Balance),
    /// Woken, it has not looked yet what for.
    Woken,
    /// Kswapd looks for room, zone by zone.
    ByZone(by_zone::Balance),
}

/// One run (`balance_pgdat`).
#[derive(Clone, Debug)]
struct Balance {
    wish: Wish,
    sc: ScanControl,
    /// The boost of the marks of each kind of zone when the run began.
    boosts: [u64; ZoneKind::ALL.len()],
    /// The part of the boosts that is still to be reclaimed, without writing or swapping.
    boost: u64,
    pass: Pass,
}

#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and none is moved often")]
#[derive(Clone, Debug)]
enum Pass {
    /// The run begins.
    Begin,
    /// A pass begins.
    Next,
    /// A pass over the node; what was reclaimed before.
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
        let last = Wish { order: Order::BASE, highest: ZoneKind::Movable };
        let turn = by_zone::Turn::default();
        let (meets_writeback, meets_dirty, is_congested) = (false, false, false);
        let (has_sleepers, state) = (false, State::Asleep);
        Self { wish: None, last, turn, failures: 0, meets_writeback, meets_dirty, is_congested, has_sleepers, state }
    }
}

impl Kswapd {
    /// Does it sleep, for good or for a moment?
    pub fn is_asleep(&self) -> bool {
        matches!(self.state, State::Asleep | State::Napping)
    }

    /// Runs in a row that reclaimed nothing.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Is all that is dirty on its node on its way to the disk, and was met by it before?
    pub(crate) fn is_congested(&self) -> bool {
        self.is_congested
    }

    /// A task has reclaimed something on the node: failures are forgotten.
    pub(crate) fn forgive(&mut self) {
        self.failures = 0;
    }

    /// The folios that it holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.state {
            State::Balancing(Balance { pass: Pass::Node { scan, .. }, .. }) => scan.holdings(),
            State::ByZone(run) => run.holdings(),
            _ => Holdings::default(),
        }
    }

    fn begin(&mut self, wish: Wish) {
        self.last = wish;
        self.state = State::Balancing(Balance::new(wish, (self.meets_writeback, self.meets_dirty)));
    }
}

impl Mm {
    /// A request found no zone of a node above its Low mark, or has broken up a pageblock (`wakeup_kswapd`). The step in
    /// progress ends soon, so that the thread can run beside it.
    pub(crate) fn wake_kswapd(&mut self, cx: &mut Cx, node: NodeId, order: Order, highest: ZoneKind) {
        if self.variant.lru_by == LruBy::Zone {
            return self.wake_kswapd_by_zone(cx, node, order, highest);
        }
        let daemon = &mut self.nodes[node].kswapd;
        let wish = daemon.wish.get_or_insert(Wish { order, highest });
        wish.order = wish.order.max(order);
        wish.highest = wish.highest.max(highest);
        let (is_asleep, is_hopeless) = (daemon.is_asleep(), daemon.failures >= RETRIES_MAX);
        if !is_asleep {
            return;
        }
        if is_hopeless || self.has_enough(node, Wish { order, highest }) {
            // Where the kernel wakes kcompactd here, for a request that may not compact by itself, `alloc.rs` does.
            return;
        }
        self.start_kswapd(cx, node);
    }

    /// Wakes it whatever the marks say.
    pub(crate) fn rouse_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        if self.nodes[node].kswapd.is_asleep() {
            let daemon = &mut self.nodes[node].kswapd;
            daemon.wish.get_or_insert(Wish { order: Order::BASE, highest: ZoneKind::Normal });
            self.start_kswapd(cx, node);
        }
    }

    /// Wakes it without saying what for (`wake_up_interruptible(&pgdat->kswapd_wait)`): it looks at what it was asked for
    /// meanwhile.
    pub(crate) fn nudge_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        if self.nodes[node].kswapd.is_asleep() {
            let unasked = self.unasked_zone(self.nodes[node].kswapd.last.highest);
            let daemon = &mut self.nodes[node].kswapd;
            daemon.wish.get_or_insert(Wish { order: Order::BASE, highest: unasked });
            self.start_kswapd(cx, node);
        }
    }

    /// The zone that kswapd looks at without a request since it last served this highest zone (kswapd, mm/vmscan.c).
    fn unasked_zone(&self, last: ZoneKind) -> ZoneKind {
        if self.variant.kswapd_keeps_highest { ZoneKind::Dma } else { last }
    }

    /// The request that kswapd goes on with, asked for this, after it served that highest zone (`kswapd_classzone_idx`,
    /// `kswapd_highest_zoneidx`).
    fn goes_on_with(&self, asked: Wish, last: ZoneKind) -> Wish {
        let highest = if self.variant.kswapd_keeps_highest { asked.highest.max(last) } else { asked.highest };
        Wish { highest, ..asked }
    }

    /// The request that kswapd rests on at the end of a run for this highest zone, by what was asked for meanwhile.
    fn rests_on(&self, asked: Option<Wish>, last: ZoneKind) -> Wish {
        if self.variant.kswapd_rests_on_asked {
            // kswapd, mm/vmscan.c (4.8.15, 4.11.0): `kswapd_classzone_idx` is 0 until somebody asks.
            return asked.unwrap_or(Wish { order: Order::BASE, highest: ZoneKind::Dma });
        }
        self.goes_on_with(asked.unwrap_or(Wish { order: Order::BASE, highest: last }), last)
    }

    fn start_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        let daemon = &mut self.nodes[node].kswapd;
        // It naps no more, whatever else it finds.
        let is_napping = matches!(daemon.state, State::Napping);
        if is_napping {
            cx.count(Event::KswapdLowWmarkHitQuickly, 1);
        }
        if self.variant.lru_by == LruBy::Zone {
            daemon.state = State::Woken;
        } else {
            let (mut wish, rested) = (daemon.wish.take().expect("the caller has a wish"), daemon.last);
            if is_napping {
                // Who cuts its nap short has it look at what it rests on, too (kswapd_try_to_sleep, mm/vmscan.c, v4.8 to v6.1).
                wish = self.goes_on_with(Wish { order: wish.order.max(rested.order), ..wish }, rested.highest);
            }
            self.nodes[node].kswapd.begin(wish);
        }
        self.tell(News::Woken(Daemon::Kswapd, node));
        cx.cut();
    }

    /// Is there nothing that kswapd could do for a request, so that kcompactd may have to?
    pub(crate) fn is_left_to_kcompactd(&self, node: NodeId, order: Order, highest: ZoneKind) -> bool {
        let daemon = &self.nodes[node].kswapd;
        let is_useless = daemon.failures >= RETRIES_MAX || self.has_enough(node, Wish { order, highest });
        daemon.is_asleep() && is_useless
    }

    /// Goes on for some folios of a pass over the node's lists, or goes to sleep. Blocks on `Wait::Queue` until it is woken.
    pub fn step_kswapd(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId) -> Step<()> {
        match std::mem::replace(&mut self.nodes[node].kswapd.state, State::Asleep) {
            State::Asleep => Step::Block(Wait::Queue),
            State::Napping if self.variant.lru_by == LruBy::Zone => self.end_zone_nap(cx, node),
            State::Woken => self.begin_zone_run(node),
            State::ByZone(run) => self.balance_by_zone(spaces, cx, node, run),
            State::Napping => self.end_nap(cx, node),
            State::Balancing(balance) => self.balance(spaces, cx, node, balance),
        }
    }

    fn balance(&mut self, spaces: &mut Spaces, cx: &mut Cx, node: NodeId, mut run: Balance) -> Step<()> {
        if let Pass::Begin = run.pass {
            cx.count(Event::Pageoutrun, 1);
            self.note_boosts(node, &mut run);
            self.set_reclaim_active(node, run.wish.highest, true);
            run.pass = Pass::Next;
        }
        if let Pass::Next = run.pass {
            let is_balanced = self.is_balanced(node, Wish { order: run.sc.order, ..run.wish });
            if !is_balanced && run.boost > 0 {
                // What is needed now goes before what would be good to have.
                run.boost = 0;
                run.sc.priority = DEF_PRIORITY;
            }
            if is_balanced && run.boost == 0 {
                return self.end_run(cx, node, &run, false);
            }
            run.sc.may_write = run.boost == 0 || run.sc.priority < DEF_PRIORITY - 2;
            run.sc.may_swap = run.boost == 0;
            self.age_node(spaces, cx, node, &run.sc);
            run.sc.scanned = 0;
            run.sc.to_reclaim = self.kswapd_target(node, run.sc.highest);
            let spares_slab = run.boost > 0 && self.variant.boost_spares_slab;
            let mut scan = NodeScan::new(self, node, &mut run.sc);
            scan.asks_shrinkers = !spares_slab;
            run.pass = Pass::Node { scan, before: run.sc.reclaimed };
        }
        let Pass::Node { scan, before } = &mut run.pass else { unreachable!("begun above") };
        let before = *before;
        let step = scan.step(self, spaces, cx, &mut run.sc);
        if step != Step::Done(()) {
            self.nodes[node].kswapd.state = State::Balancing(run);
            return step;
        }
        run.pass = Pass::Next;
        self.end_pass(cx, node, run, before)
    }

    /// A pass has come to its end: is another one worth it?
    fn end_pass(&mut self, cx: &mut Cx, node: NodeId, mut run: Balance, before: u64) -> Step<()> {
        let came = run.sc.reclaimed - before;
        let daemon = &mut self.nodes[node].kswapd;
        if came > 0 {
            daemon.failures = 0;
        }
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
        let has_met_again = run.sc.met.immediate > 0;
        self.nodes[node].kswapd.state = State::Balancing(run);
        if has_met_again { Step::Block(Wait::Until(self.writeback_throttle(cx))) } else { Step::More }
    }

    /// The run is over: what it began with is done, but for what was added meanwhile.
    fn end_run(&mut self, cx: &mut Cx, node: NodeId, run: &Balance, has_failed: bool) -> Step<()> {
        self.set_reclaim_active(node, run.wish.highest, false);
        for zone in self.node_zones_mut(node).iter_mut().filter(|zone| zone.kind <= run.wish.highest) {
            zone.boost -= zone.boost.min(run.boosts[zone.kind as usize]);
        }
        if run.boosts.iter().any(|boost| *boost > 0) {
            // Blocks were broken up: whole ones again (end of balance_pgdat, mm/vmscan.c, v5.0 to v6.1).
            self.wake_kcompactd(cx, node, self.frames.blocks.order(), run.wish.highest);
        }
        self.snapshot_refaults(node);
        let daemon = &mut self.nodes[node].kswapd;
        daemon.failures += u32::from(has_failed);
        // `reclaim_order < alloc_order`: it has given the order up, and rests on what is left of it.
        let gave_up = run.sc.order < run.wish.order;
        let wish = daemon.wish;
        let asked = self.rests_on(wish, run.wish.highest);
        let rests = if gave_up { Wish { order: run.sc.order, ..run.wish } } else { asked };
        // What it was woken for is compaction's to make now, whatever it rests on.
        let wanted = if gave_up { run.wish.order } else { asked.order };
        self.try_to_sleep(cx, node, rests, wanted)
    }

    /// `kswapd_try_to_sleep`: a nap first, unless there is still need.
    fn try_to_sleep(&mut self, cx: &mut Cx, node: NodeId, wish: Wish, wanted: Order) -> Step<()> {
        self.wake_stalled(node);
        if !self.may_sleep(node, wish) {
            return self.begin_again(cx, node, wish);
        }
        let daemon = &mut self.nodes[node].kswapd;
        (daemon.meets_writeback, daemon.meets_dirty, daemon.is_congested) = (false, false, false);
        daemon.last = wish;
        daemon.state = State::Napping;
        // Room was made: now blocks of the order wanted can be, and what was given up is worth another look.
        self.reset_isolation_suitable(cx, node);
        self.wake_kcompactd(cx, node, wanted, wish.highest);
        Step::Block(Wait::Until(cx.now() + SHORT_SLEEP))
    }

    fn end_nap(&mut self, cx: &mut Cx, node: NodeId) -> Step<()> {
        self.wake_stalled(node);
        let wish = self.nodes[node].kswapd.last;
        if !self.may_sleep(node, wish) {
            return self.begin_again(cx, node, wish);
        }
        Step::Block(Wait::Queue)
    }

    /// Another run at once: for those who have asked meanwhile, or for the same.
    fn begin_again(&mut self, cx: &mut Cx, node: NodeId, wish: Wish) -> Step<()> {
        cx.count(Event::KswapdHighWmarkHitQuickly, 1);
        let nothing = Wish { order: Order::BASE, highest: self.unasked_zone(wish.highest) };
        let daemon = &mut self.nodes[node].kswapd;
        let wish = daemon.wish.take().unwrap_or(nothing);
        daemon.begin(wish);
        Step::More
    }

    /// `prepare_kswapd_sleep`. From 4.8 to 4.11 a zone below its High mark and its lowmem reserve, such as a small DMA zone,
    /// keeps kswapd from the sleep before which it would wake kcompactd.
    fn may_sleep(&self, node: NodeId, wish: Wish) -> bool {
        let is_ready = if self.variant.kswapd_needs_all_zones { Self::are_all_balanced } else { Self::is_balanced };
        self.nodes[node].kswapd.failures >= RETRIES_MAX || is_ready(self, node, wish)
    }

    /// Frames of a node that kswapd reclaims in a pass: as many as its High marks (`kswapd_shrink_node`).
    fn kswapd_target(&self, node: NodeId, highest: ZoneKind) -> u64 {
        let its = self.node_zones(node).iter().filter(|zone| zone.kind <= highest);
        its.map(|zone| zone.mark(Mark::High).max(RUN)).sum()
    }

    /// Some active anonymous memory becomes inactive, if there is too much of it (`kswapd_age_node`).
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

    /// CPUs keep less of the zones for which it reclaims, so that what it frees can be seen and had by all.
    fn set_reclaim_active(&mut self, node: NodeId, highest: ZoneKind, is_active: bool) {
        let yields = self.variant.pcp_yields_to_reclaim;
        for zone in self.node_zones_mut(node).iter_mut().filter(|zone| yields && zone.kind <= highest) {
            zone.set_reclaim_active(is_active);
        }
    }

    fn note_boosts(&self, node: NodeId, run: &mut Balance) {
        for zone in self.node_zones(node).iter().filter(|zone| zone.kind <= run.wish.highest) {
            run.boosts[zone.kind as usize] = zone.boost;
        }
        run.boost = run.boosts.iter().sum();
    }

    /// Is it not worth waking, since the node is balanced and no zone that may serve the wish has raised marks
    /// (`pgdat_watermark_boosted`)?
    fn has_enough(&self, node: NodeId, wish: Wish) -> bool {
        let is_boosted = self.node_zones(node).iter().any(|zone| zone.kind <= wish.highest && zone.boost > 0);
        self.is_balanced(node, wish) && !is_boosted
    }

    /// Is any of the node's zones that may serve a wish balanced (`pgdat_balanced`)? A node without such a zone is.
    fn is_balanced(&self, node: NodeId, wish: Wish) -> bool {
        let mut zones = self.balanced_zones(node, wish).peekable();
        zones.peek().is_none() || zones.any(|is_balanced| is_balanced)
    }

    /// Is each of them?
    fn are_all_balanced(&self, node: NodeId, wish: Wish) -> bool {
        self.balanced_zones(node, wish).all(|is_balanced| is_balanced)
    }

    /// Whether each zone of a node that may serve a wish is above its High mark and what it keeps from the wish's highest zone
    /// (`zone_balanced`).
    fn balanced_zones(&self, node: NodeId, wish: Wish) -> impl Iterator<Item = bool> {
        let may_serve = self.node_zones(node).iter().filter(move |zone| zone.kind <= wish.highest);
        may_serve.map(move |zone| zone.is_ok(wish.order, Mark::High, wish.highest, Urgency::Normal, &self.variant))
    }
}

#[cfg(test)]
mod tests;
