//! Each node's kswapd once more: it finds nothing on its lists, asks shrinkers, and looks whether its node is balanced.

use std::collections::BTreeSet;

use mm::{Urgency, ZoneKind, event::Event};

use crate::{
    model::{Model, Wish, Zone},
    processes::World,
    shrink::Round,
};

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
    /// It looks once more for this before it sleeps.
    Napping(Need),
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
            let balanced = self.is_balanced(node, Need { order: wish.order, highest: wish.highest });
            let daemon = &mut self.kswapds[node];
            daemon.asked = Some(need);
            if daemon.failures >= FAILURES_MAX || balanced {
                continue;
            }
            match daemon.state {
                State::Balancing(..) => continue,
                State::Napping(_) => self.count(Event::KswapdLowWmarkHitQuickly, 1),
                State::Asleep => {}
            }
            let daemon = &mut self.kswapds[node];
            (daemon.asked, daemon.state) = (None, State::Balancing(need, PASSES));
            self.woken.push(node);
            self.cut = true;
        }
    }

    /// One pass, or the end of a nap. A pass over the lists is not over with this: those who have something else to give
    /// are asked, at this priority, and then it ends.
    pub(crate) fn begin_pass(&mut self, node: usize) -> Result<Then, u32> {
        let (need, left) = match self.kswapds[node].state {
            State::Asleep => return Ok(Then::Sleep),
            State::Napping(need) => return Ok(self.settle(node, need, None)),
            State::Balancing(need, left) => (need, left),
        };
        self.count(Event::Pageoutrun, u64::from(left == PASSES));
        self.hurry(node, need, true);
        if self.is_balanced(node, need) { Ok(self.end_run(node, need)) } else { Err(left) }
    }

    /// The pass is over.
    pub(crate) fn end_pass(&mut self, node: usize) -> Then {
        let State::Balancing(need, left) = self.kswapds[node].state else { panic!("a pass has begun") };
        if left > 1 {
            self.kswapds[node].state = State::Balancing(need, left - 1);
            return Then::More;
        }
        self.kswapds[node].failures += 1;
        self.end_run(node, need)
    }

    /// From the first pass to the last CPUs have less of the zones in question.
    fn hurry(&mut self, node: usize, need: Need, hurried: bool) {
        let is_there = self.rules.pcp_yields_to_reclaim;
        let mine = |zone: &&mut Zone| is_there && zone.node as usize == node && zone.kind <= need.highest;
        self.zones.iter_mut().filter(mine).flat_map(|zone| &mut zone.pcps).for_each(|pcp| pcp.hurried = hurried);
    }

    fn end_run(&mut self, node: usize, need: Need) -> Then {
        self.hurry(node, need, false);
        let rests = self.kswapds[node].asked.unwrap_or(Need { order: 0, ..need });
        self.settle(node, rests, Some(State::Napping(rests)))
    }

    /// It begins again if there is need; else it naps or sleeps.
    fn settle(&mut self, node: usize, need: Need, nap: Option<State>) -> Then {
        if self.kswapds[node].failures < FAILURES_MAX && !self.is_balanced(node, need) {
            self.count(Event::KswapdHighWmarkHitQuickly, 1);
            let need = self.kswapds[node].asked.take().unwrap_or(Need { order: 0, ..need });
            self.kswapds[node].state = State::Balancing(need, PASSES);
            return Then::More;
        }
        self.kswapds[node].state = nap.unwrap_or(State::Asleep);
        if nap.is_some() { Then::Nap } else { Then::Sleep }
    }

    /// Is any zone that could serve above its High mark?
    fn is_balanced(&self, node: usize, need: Need) -> bool {
        let wish = Wish { order: need.order, highest: need.highest, ..Wish::kernel(0) };
        let may = |z: &usize| self.zones[*z].node as usize == node && self.zones[*z].kind <= need.highest;
        let zones: Vec<usize> = (0..self.zones.len()).filter(may).collect();
        zones.is_empty() || zones.iter().any(|z| self.passes(*z, wish, self.zones[*z].high, Urgency::Normal))
    }
}

impl World {
    /// A node's kswapd takes a step, which ends where others may run.
    pub(crate) fn step_kswapd(&mut self, node: usize, unborn: &BTreeSet<u32>) -> Then {
        let mut round = match self.rounds[node].take() {
            Some(round) => round,
            None => match self.memory.begin_pass(node) {
                Ok(then) => return then,
                Err(priority) => Round::new(priority),
            },
        };
        if !self.ask_around(node, &mut round, unborn) {
            self.rounds[node] = Some(round);
            return Then::More;
        }
        self.memory.end_pass(node)
    }
}
