//! Each node's kswapd once more: it finds nothing to reclaim, and only looks whether its node is balanced.

use mm::{Urgency, ZoneKind, event::Event};

use crate::model::{Model, Wish};

const PASSES: u32 = 12;
const FAILURES_MAX: u32 = 16;

#[derive(Clone, Debug)]
pub(crate) struct Kswapd {
    asked: Option<Need>,
    pub(crate) failures: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    order: u32,
    highest: ZoneKind,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asleep,
    Napping,
    /// This many passes are left, the last included.
    Balancing(Need, u32),
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    More,
    Nap,
    Sleep,
}

impl Kswapd {
    pub(crate) fn new() -> Self {
        Self { asked: None, failures: 0, state: State::Asleep }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        !matches!(self.state, State::Balancing(..))
    }
}

impl Model {
    /// A request found no zone above its Low mark: the kswapd of each node that it could use hears of it.
    pub(crate) fn wake_kswapds(&mut self, wish: Wish, zonelist: &[usize]) {
        let mut nodes: Vec<usize> = zonelist.iter().map(|z| self.zones[*z].node as usize).collect();
        nodes.dedup();
        for node in nodes {
            let asked = self.kswapds[node].asked;
            let need = Need {
                order: asked.map_or(0, |asked| asked.order).max(wish.order),
                highest: asked.map_or(ZoneKind::Dma, |asked| asked.highest).max(wish.highest),
            };
            let balanced = self.is_balanced(node, need);
            let daemon = &mut self.kswapds[node];
            daemon.asked = Some(need);
            if daemon.failures >= FAILURES_MAX || balanced {
                continue;
            }
            match daemon.state {
                State::Balancing(..) => continue,
                State::Napping => self.count(Event::KswapdLowWmarkHitQuickly, 1),
                State::Asleep => {}
            }
            let daemon = &mut self.kswapds[node];
            (daemon.asked, daemon.state) = (None, State::Balancing(need, PASSES));
            self.woken.push(node);
            self.cut = true;
        }
    }

    /// One pass, or the end of a nap.
    pub(crate) fn step_kswapd(&mut self, node: usize) -> Then {
        let (need, left) = match self.kswapds[node].state {
            State::Asleep => return Then::Sleep,
            State::Napping => return self.settle(node, None, (State::Asleep, Then::Sleep)),
            State::Balancing(need, left) => (need, left),
        };
        self.count(Event::Pageoutrun, u64::from(left == PASSES));
        if self.is_balanced(node, need) {
            self.kswapds[node].failures = 0;
        } else if left > 1 {
            self.kswapds[node].state = State::Balancing(need, left - 1);
            return Then::More;
        } else {
            self.kswapds[node].failures += 1;
        }
        self.settle(node, Some(need), (State::Napping, Then::Nap))
    }

    /// It begins again if there is need; else it rests.
    fn settle(&mut self, node: usize, was: Option<Need>, rest: (State, Then)) -> Then {
        let need = self.kswapds[node].asked.take().or(was);
        if let Some(need) = need.filter(|need| !self.is_balanced(node, *need))
            && self.kswapds[node].failures < FAILURES_MAX
        {
            self.kswapds[node].state = State::Balancing(need, PASSES);
            return Then::More;
        }
        self.kswapds[node].state = rest.0;
        rest.1
    }

    /// Is any zone that could serve above its High mark?
    fn is_balanced(&self, node: usize, need: Need) -> bool {
        let wish = Wish { order: need.order, highest: need.highest, ..Wish::kernel(0) };
        let may = |z: &usize| self.zones[*z].node as usize == node && self.zones[*z].kind <= need.highest;
        let zones: Vec<usize> = (0..self.zones.len()).filter(may).collect();
        zones.is_empty() || zones.iter().any(|z| self.passes(*z, wish, self.zones[*z].high, Urgency::Normal))
    }
}
