//! Linux: kswapd, wakeup_kswapd(), balance_pgdat() and kswapd_try_to_sleep() in mm/vmscan.c (v4.20 to v6.1).
//! Differs: there is nothing to reclaim yet, so a balancing run only lowers its priority; no boost, no
//! throttled reclaimers to wake; kernels up to 4.19 have the rules of 4.20 here.

use units::{Order, Picos};

use crate::{
    Mm, Spaces,
    cost::Cx,
    event::Event,
    gfp::{Mark, Urgency},
    step::{Step, Wait},
    zone::ZoneKind,
};

/// Where reclaim begins: each pass looks at one frame in 2^12.
// DEF_PRIORITY, include/linux/mmzone.h (v6.1).
const DEF_PRIORITY: u8 = 12;
/// Runs without success after which a node is left to direct reclaim.
// MAX_RECLAIM_RETRIES, mm/internal.h (v6.1).
const RETRIES_MAX: u32 = 16;
/// A balanced node is looked at once more after a tenth of a second, before the thread really sleeps.
// kswapd_try_to_sleep, mm/vmscan.c (v6.1): HZ/10.
const SHORT_SLEEP: Picos = Picos::from_micros(100_000);

/// One node's kswapd.
#[derive(Clone, Debug)]
pub struct Kswapd {
    /// What it is asked for: the largest order and the highest zone since it last began (`kswapd_order`,
    /// `kswapd_highest_zoneidx`).
    wish: Option<Wish>,
    /// Runs in a row that reclaimed nothing (`kswapd_failures`).
    failures: u32,
    state: State,
}

/// What kswapd is to make room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    order: Order,
    highest: ZoneKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until somebody wakes it.
    Asleep,
    /// Balanced, it naps before it sleeps.
    Napping,
    /// It looks for room.
    Balancing { wish: Wish, priority: u8 },
}

impl Default for Kswapd {
    fn default() -> Self {
        Self { wish: None, failures: 0, state: State::Asleep }
    }
}

impl Kswapd {
    /// Does it sleep, for good or for a moment?
    pub fn is_asleep(&self) -> bool {
        !matches!(self.state, State::Balancing { .. })
    }

    /// Runs in a row that reclaimed nothing.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

impl Mm {
    /// The kswapd of each node, by position.
    pub fn kswapds(&self) -> &[Kswapd] {
        &self.kswapds
    }

    /// Nodes whose kswapd has been woken since this was last asked, by position.
    pub fn take_woken(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.woken)
    }

    /// Has any been woken?
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// A request found no zone of a node above its Low mark (`wakeup_kswapd`). The step in progress ends soon, so that the
    /// thread can run beside it.
    pub(crate) fn wake_kswapd(&mut self, cx: &mut Cx, node: usize, order: Order, highest: ZoneKind) {
        let daemon = &mut self.kswapds[node];
        let wish = daemon.wish.get_or_insert(Wish { order, highest });
        wish.order = wish.order.max(order);
        wish.highest = wish.highest.max(highest);
        let wish = *wish;
        if !daemon.is_asleep() || daemon.failures >= RETRIES_MAX || self.is_balanced(node, wish) {
            return;
        }
        let daemon = &mut self.kswapds[node];
        // It naps no more, whatever else it finds.
        if daemon.state == State::Napping {
            cx.count(Event::KswapdLowWmarkHitQuickly, 1);
        }
        daemon.state = State::Balancing { wish, priority: DEF_PRIORITY };
        daemon.wish = None;
        self.woken.push(node);
        cx.cut();
    }

    /// Is there nothing that kswapd could do for a request, so that kcompactd may have to?
    pub(crate) fn is_left_to_kcompactd(&self, node: usize, order: Order, highest: ZoneKind) -> bool {
        let daemon = &self.kswapds[node];
        let is_useless = daemon.failures >= RETRIES_MAX || self.is_balanced(node, Wish { order, highest });
        daemon.is_asleep() && is_useless
    }

    /// Goes on for one pass over the node's lists, or goes to sleep. Blocks on `Wait::Queue` until it is woken.
    pub fn step_kswapd(&mut self, _spaces: &mut Spaces, cx: &mut Cx, node: usize) -> Step<()> {
        match self.kswapds[node].state {
            State::Asleep => Step::Block(Wait::Queue),
            State::Napping => self.settle_kswapd(cx, node, true),
            State::Balancing { wish, priority } => {
                if priority == DEF_PRIORITY {
                    cx.count(Event::Pageoutrun, 1);
                }
                if self.is_balanced(node, wish) {
                    self.kswapds[node].failures = 0;
                    return self.settle_kswapd(cx, node, false);
                }
                // One hold of the lists' lock finds them without anything that could go.
                if let Some(zone) = self.zones.iter().position(|zone| zone.node == self.nodes[node]) {
                    self.lru.look(cx, zone);
                }
                if priority > 1 {
                    self.kswapds[node].state = State::Balancing { wish, priority: priority - 1 };
                    return Step::More;
                }
                self.kswapds[node].failures += 1;
                self.settle_kswapd(cx, node, false)
            }
        }
    }

    /// `kswapd_try_to_sleep`: a nap first, and sleep if nothing has come up.
    fn settle_kswapd(&mut self, cx: &mut Cx, node: usize, has_napped: bool) -> Step<()> {
        let daemon = &mut self.kswapds[node];
        let is_hopeless = daemon.failures >= RETRIES_MAX;
        let wish = daemon.wish.take();
        let again = wish.or(match daemon.state {
            State::Balancing { wish, .. } => Some(wish),
            State::Asleep | State::Napping => None,
        });
        if let Some(wish) = again
            && !is_hopeless
            && !self.is_balanced(node, wish)
        {
            self.kswapds[node].state = State::Balancing { wish, priority: DEF_PRIORITY };
            return Step::More;
        }
        let daemon = &mut self.kswapds[node];
        if has_napped {
            daemon.state = State::Asleep;
            return Step::Block(Wait::Queue);
        }
        daemon.state = State::Napping;
        // Room was made: now blocks of the order wanted can be, and what was given up is worth another look.
        self.reset_isolation_suitable(cx, node);
        if let Some(wish) = again {
            self.wake_kcompactd(cx, node, wish.order, wish.highest);
        }
        Step::Block(Wait::Until(cx.now() + SHORT_SLEEP))
    }

    /// Does any of the node's zones that may serve a wish stay above its High mark (`pgdat_balanced`)?
    fn is_balanced(&self, node: usize, wish: Wish) -> bool {
        let id = self.nodes[node];
        let may_serve = self.zones.iter().filter(|zone| zone.node == id && zone.kind <= wish.highest);
        let mut has_zones = false;
        for zone in may_serve {
            has_zones = true;
            if zone.is_ok(wish.order, Mark::High, wish.highest, Urgency::Normal, &self.variant) {
                return true;
            }
        }
        !has_zones
    }
}

#[cfg(test)]
mod tests;
