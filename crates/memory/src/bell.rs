//! Linux: wakeup_kswapd() and pgdat_balanced(), mm/vmscan.c (v4.1, v5.0 to v6.1); wakeup_kcompactd(), mm/compaction.c; the fields
//! of both threads in `pg_data_t`, include/linux/mmzone.h.
//! Differs: a thread that sleeps is told apart from one that runs by its bell, and not by its wait queue.
//!
//! The page allocator rings the bells of a node's kswapd and kcompactd. What the threads do then is theirs
//! (`reclaim/kswapd.rs`, `compact/kcompactd.rs`).

use rules::{
    gfp::{Mark, Urgency},
    variant::LruBy,
    zone::ZoneKind,
};
use units::{NodeId, Order};

use crate::{
    Memory,
    cx::Cx,
    decision::Decision,
    event::Event,
    fact::{Fact, Kswapd},
    news::{Daemon, News},
    pageblock::ZoneIndex,
    suitable::Suitable,
    tally::Test,
};

/// Runs of kswapd without success after which its node is left to direct reclaim.
// MAX_RECLAIM_RETRIES, mm/internal.h (v6.1).
pub const RETRIES_MAX: u32 = 16;

/// No zone with LRU lists is higher.
const TOP: ZoneKind = ZoneKind::Movable;

/// The highest zone of a kcompactd that nobody has woken.
pub const ANY_ZONE: ZoneKind = ZoneKind::Device;

/// A request to kswapd: the order and the highest zone to make room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The largest order that was asked for.
    pub order: Order,
    /// The highest zone that may serve.
    pub highest: ZoneKind,
}

/// Whether kswapd sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// Until kswapd is woken.
    #[default]
    Asleep,
    /// Balanced, it naps before it sleeps.
    Napping,
    /// Kswapd looks for room, or will when it comes to run.
    Awake,
}

/// The bell of a node's kswapd (`kswapd_wait`).
#[derive(Clone, Copy, Debug)]
pub struct KswapdBell {
    /// The request that kswapd has yet to serve: the largest order and the highest zone since it last began (`kswapd_order`,
    /// `kswapd_highest_zoneidx`).
    pub wish: Option<Wish>,
    /// The request that kswapd served last, or serves now.
    pub last: Wish,
    /// Runs in a row that reclaimed nothing (`kswapd_failures`).
    pub failures: u32,
    /// Whether kswapd sleeps.
    pub rest: Rest,
}

impl Default for KswapdBell {
    fn default() -> Self {
        let last = Wish { order: Order::BASE, highest: ZoneKind::Movable };
        Self { wish: None, last, failures: 0, rest: Rest::Asleep }
    }
}

impl KswapdBell {
    /// Does kswapd sleep, for good or for a moment?
    pub fn is_asleep(&self) -> bool {
        self.rest != Rest::Awake
    }

    /// Runs in a row that reclaimed nothing.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A task has reclaimed something on the node: failures are forgotten.
    pub fn forgive(&mut self) {
        self.failures = 0;
    }

    /// A run for a request begins with kswapd's next step.
    pub fn begin(&mut self, wish: Wish) {
        (self.last, self.rest) = (wish, Rest::Awake);
    }
}

/// The bell of a node's kcompactd (`kcompactd_wait`).
#[derive(Clone, Copy, Debug)]
pub struct KcompactdBell {
    /// The largest order that was asked for since kcompactd last began; 0 is none (`kcompactd_max_order`).
    pub order: Order,
    /// The lowest of the highest zones (`kcompactd_highest_zoneidx`).
    pub highest: ZoneKind,
    /// Kcompactd has work that it has begun.
    pub is_busy: bool,
}

impl Default for KcompactdBell {
    fn default() -> Self {
        Self { order: Order::BASE, highest: ANY_ZONE, is_busy: false }
    }
}

/// Records the answer of kswapd to a request.
#[inline]
fn tell_kswapd(cx: &mut Cx, node: NodeId, order: Order, kswapd: Kswapd) {
    cx.fact(|| Fact::WakeupKswapd { node, order, kswapd });
}

impl Memory {
    /// A request found no zone of a node above its Low mark, or has broken up a pageblock (`wakeup_kswapd`). The step in
    /// progress ends soon, so that the thread can run beside it.
    pub fn wake_kswapd(&mut self, cx: &mut Cx, node: NodeId, order: Order, highest: ZoneKind) {
        if self.variant.lru_by == LruBy::Zone {
            return self.wake_kswapd_by_zone(cx, node, order, highest);
        }
        let bell = &mut self.nodes[node].kswapd;
        let wish = bell.wish.get_or_insert(Wish { order, highest });
        wish.order = wish.order.max(order);
        wish.highest = wish.highest.max(highest);
        let (is_asleep, is_hopeless) = (bell.is_asleep(), bell.failures >= RETRIES_MAX);
        if !cx.test(Test::KswapdAsleep, node, is_asleep) {
            return tell_kswapd(cx, node, order, Kswapd::Awake);
        }
        let has_hope = cx.test(Test::KswapdHopes, node, !is_hopeless);
        if !has_hope || !cx.test(Test::KswapdNodeLacks, node, !self.has_enough(node, Wish { order, highest })) {
            // Where the kernel wakes kcompactd here, for a request that may not compact by itself, `alloc.rs` does.
            let answer = if is_hopeless { Kswapd::Hopeless } else { Kswapd::Content };
            return tell_kswapd(cx, node, order, answer);
        }
        tell_kswapd(cx, node, order, Kswapd::Woken);
        if !cx.decides_otherwise(Decision::WakeKswapd) {
            self.ring_kswapd(cx, node);
        }
    }

    /// A request found no zone above its Low mark (`wakeup_kswapd` for each of a node's zones that it may have).
    fn wake_kswapd_by_zone(&mut self, cx: &mut Cx, node: NodeId, order: Order, highest: ZoneKind) {
        let (classzone, nothing) = (self.classzone(node, highest), self.no_wish(node));
        let bell = &mut self.nodes[node].kswapd;
        let wish = bell.wish.get_or_insert(nothing);
        if wish.order < order {
            *wish = Wish { order, highest: wish.highest.min(classzone) };
        }
        let is_asleep = bell.is_asleep();
        if !cx.test(Test::KswapdAsleep, node, is_asleep) {
            return tell_kswapd(cx, node, order, Kswapd::Awake);
        }
        let has_need = self.zones_up_to(node, highest).any(|zone| {
            let lacks = !self.zone_balanced(zone, order, 0, ZoneKind::Dma);
            cx.test(Test::KswapdZoneLacks, self.zones[zone].name(), lacks)
        });
        tell_kswapd(cx, node, order, if has_need { Kswapd::Woken } else { Kswapd::Content });
        if has_need && !cx.decides_otherwise(Decision::WakeKswapd) {
            self.ring_kswapd(cx, node);
        }
    }

    /// Wakes a node's kswapd whatever the marks say.
    pub fn rouse_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        let bell = &mut self.nodes[node].kswapd;
        if bell.is_asleep() {
            bell.wish.get_or_insert(Wish { order: Order::BASE, highest: ZoneKind::Normal });
            self.ring_kswapd(cx, node);
        }
    }

    /// Wakes a node's kswapd without saying what for (`wake_up_interruptible(&pgdat->kswapd_wait)`): it looks at what it was
    /// asked for meanwhile.
    pub fn nudge_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        if self.nodes[node].kswapd.is_asleep() {
            let unasked = self.unasked_zone(self.nodes[node].kswapd.last.highest);
            let bell = &mut self.nodes[node].kswapd;
            bell.wish.get_or_insert(Wish { order: Order::BASE, highest: unasked });
            self.ring_kswapd(cx, node);
        }
    }

    fn ring_kswapd(&mut self, cx: &mut Cx, node: NodeId) {
        let bell = &mut self.nodes[node].kswapd;
        // The bell ends kswapd's nap, whatever kswapd then finds.
        let is_napping = bell.rest == Rest::Napping;
        if is_napping {
            cx.count(Event::KswapdLowWmarkHitQuickly, 1);
        }
        if self.variant.lru_by == LruBy::Zone {
            bell.rest = Rest::Awake;
        } else {
            let (mut wish, rested) = (bell.wish.take().expect("the caller has a wish"), bell.last);
            if is_napping {
                // A kswapd that is woken from its nap also serves the request that it rests on (kswapd_try_to_sleep, mm/vmscan.c,
                // v4.8 to v6.1).
                wish = self.goes_on_with(Wish { order: wish.order.max(rested.order), ..wish }, rested.highest);
            }
            self.nodes[node].kswapd.begin(wish);
        }
        self.tell(News::Woken(Daemon::Kswapd, node));
        cx.cut();
    }

    /// Is there nothing that kswapd could do for a request, so that kcompactd may have to?
    pub fn is_left_to_kcompactd(&self, node: NodeId, order: Order, highest: ZoneKind) -> bool {
        let bell = &self.nodes[node].kswapd;
        let is_useless = bell.failures >= RETRIES_MAX || self.has_enough(node, Wish { order, highest });
        bell.is_asleep() && is_useless
    }

    /// A request could do with a block of `order`: kcompactd runs if compaction may help (`wakeup_kcompactd`).
    pub fn wake_kcompactd(&mut self, cx: &mut Cx, node: NodeId, order: Order, highest: ZoneKind) {
        if !self.variant.kcompactd || !cx.test(Test::KcompactdOrder, node, order > Order::BASE) {
            return;
        }
        let bell = &mut self.nodes[node].kcompactd;
        bell.order = bell.order.max(order);
        bell.highest = bell.highest.min(highest);
        let (order, highest) = (bell.order, bell.highest);
        let woken = News::Woken(Daemon::Kcompactd, node);
        let is_asleep = !bell.is_busy && !self.news.contains(&woken);
        if cx.test(Test::KcompactdAsleep, node, is_asleep) && self.is_worth_compacting(cx, node, order, highest) {
            self.tell(woken);
            cx.cut();
        }
    }

    /// Is there a zone that compaction may help (`kcompactd_node_suitable`)?
    fn is_worth_compacting(&self, cx: &mut Cx, node: NodeId, order: Order, highest: ZoneKind) -> bool {
        self.zones_up_to(node, highest).any(|at| {
            let is_worth_it = self.compaction_suitable(at, order, highest, Urgency::Normal) == Suitable::Continue;
            cx.test(Test::KcompactdNodeSuitable, self.zones[at].name(), is_worth_it)
        })
    }

    /// The zone that kswapd looks at without a request since it last served this highest zone (kswapd, mm/vmscan.c).
    pub fn unasked_zone(&self, last: ZoneKind) -> ZoneKind {
        if self.variant.kswapd_keeps_highest { ZoneKind::Dma } else { last }
    }

    /// The request that kswapd goes on with, asked for this, after it served that highest zone (`kswapd_classzone_idx`,
    /// `kswapd_highest_zoneidx`).
    fn goes_on_with(&self, asked: Wish, last: ZoneKind) -> Wish {
        let highest = if self.variant.kswapd_keeps_highest { asked.highest.max(last) } else { asked.highest };
        Wish { highest, ..asked }
    }

    /// The request that kswapd rests on at the end of a run for this highest zone, by what was asked for meanwhile.
    pub fn rests_on(&self, asked: Option<Wish>, last: ZoneKind) -> Wish {
        if self.variant.kswapd_rests_on_asked {
            // kswapd, mm/vmscan.c (4.8.15, 4.11.0): `kswapd_classzone_idx` is 0 until somebody asks.
            return asked.unwrap_or(Wish { order: Order::BASE, highest: ZoneKind::Dma });
        }
        self.goes_on_with(asked.unwrap_or(Wish { order: Order::BASE, highest: last }), last)
    }

    /// No request (`kswapd_max_order`, `classzone_idx`).
    pub fn no_wish(&self, node: NodeId) -> Wish {
        Wish { order: Order::BASE, highest: self.classzone(node, TOP) }
    }

    /// Is it not worth waking kswapd, since the node is balanced and no zone that may serve the wish has raised marks
    /// (`pgdat_watermark_boosted`)?
    fn has_enough(&self, node: NodeId, wish: Wish) -> bool {
        let is_boosted = self.node_zones(node).iter().any(|zone| zone.kind <= wish.highest && zone.boost > 0);
        self.is_balanced(node, wish) && !is_boosted
    }

    /// Is any of the node's zones that may serve a wish balanced (`pgdat_balanced`)? A node without such a zone is.
    pub fn is_balanced(&self, node: NodeId, wish: Wish) -> bool {
        let mut zones = self.balanced_zones(node, wish).peekable();
        zones.peek().is_none() || zones.any(|is_balanced| is_balanced)
    }

    /// Is each of the node's zones that may serve a wish balanced?
    pub fn are_all_balanced(&self, node: NodeId, wish: Wish) -> bool {
        self.balanced_zones(node, wish).all(|is_balanced| is_balanced)
    }

    /// Whether each zone of a node that may serve a wish is above its High mark and what it keeps from the wish's highest zone
    /// (`zone_balanced`).
    pub fn balanced_zones(&self, node: NodeId, wish: Wish) -> impl Iterator<Item = bool> {
        let may_serve = self.node_zones(node).iter().filter(move |zone| zone.kind <= wish.highest);
        may_serve.map(move |zone| zone.is_ok(wish.order, Mark::High, wish.highest, Urgency::Normal, &self.variant))
    }

    /// The highest zone of a node that a request with this highest zone may have (`classzone_idx`).
    pub fn classzone(&self, node: NodeId, highest: ZoneKind) -> ZoneKind {
        let its = self.node_zones(node).iter().filter(|zone| zone.kind <= highest);
        its.map(|zone| zone.kind).max().unwrap_or(ZoneKind::Dma)
    }

    /// Does a zone stay `gap` frames above its High mark, and could compaction begin for a larger order (`zone_balanced` of 4.1)?
    pub fn zone_balanced(&self, zone: ZoneIndex, order: Order, gap: u64, classzone: ZoneKind) -> bool {
        let mark = self.zones[zone].mark(Mark::High) + gap;
        self.has_above(zone, order, mark, classzone)
            && (order == Order::BASE
                || self.compaction_suitable(zone, order, classzone, Urgency::Normal) != Suitable::Skipped)
    }
}
