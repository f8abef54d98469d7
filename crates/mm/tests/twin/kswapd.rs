//! Each node's kswapd once more: it finds nothing on its lists, asks shrinkers, and looks whether its node is balanced.

use std::collections::BTreeSet;

use memory::event::Event;
use rules::{gfp::Urgency, zone::ZoneKind};

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
    /// By how much the marks of which zones were raised when it began.
    saved: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) order: u32,
    pub(crate) highest: ZoneKind,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    need: Need,
    /// This many passes are left, the last included; none has begun yet.
    left: u32,
    is_new: bool,
    /// Frames that raised marks ask for, as long as nothing else is needed.
    boost: u64,
}

impl Run {
    fn new(need: Need) -> Self {
        Self { need, left: PASSES, is_new: true, boost: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asleep,
    /// Kswapd looks once more for this before it sleeps.
    Napping(Need),
    Balancing(Run),
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    More,
    Nap,
    Sleep,
}

impl Kswapd {
    pub(crate) fn new() -> Self {
        Self { asked: None, failures: 0, state: State::Asleep, saved: Vec::new() }
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
            self.wake_kswapd(node, Need { order: wish.order, highest: wish.highest });
        }
    }

    pub(crate) fn wake_kswapd(&mut self, node: usize, wish: Need) {
        let asked = self.kswapds[node].asked;
        let need = Need {
            order: asked.map_or(0, |asked| asked.order).max(wish.order),
            highest: asked.map_or(ZoneKind::Dma, |asked| asked.highest).max(wish.highest),
        };
        let enough = self.is_balanced(node, wish) && self.boosts(node, wish.highest).is_empty();
        let daemon = &mut self.kswapds[node];
        daemon.asked = Some(need);
        if daemon.failures >= FAILURES_MAX || enough {
            return;
        }
        let need = match daemon.state {
            State::Balancing(..) => return,
            State::Napping(rested) => {
                self.count(Event::KswapdLowWmarkHitQuickly, 1);
                self.goes_on_with(Need { order: need.order.max(rested.order), ..need }, rested.highest)
            }
            State::Asleep => need,
        };
        let daemon = &mut self.kswapds[node];
        (daemon.asked, daemon.state) = (None, State::Balancing(Run::new(need)));
        self.woken.push(node);
        self.cut = true;
    }

    /// Up to 5.1 what it did something for counts on.
    fn goes_on_with(&self, asked: Need, last: ZoneKind) -> Need {
        let highest = if self.rules.kswapd_keeps_highest { asked.highest.max(last) } else { asked.highest };
        Need { highest, ..asked }
    }

    /// Zones of a node, up to a kind, whose marks are raised, and by how much.
    fn boosts(&self, node: usize, highest: ZoneKind) -> Vec<(usize, u64)> {
        let is_its = |zone: &Zone| zone.node as usize == node && zone.kind <= highest && zone.boost > 0;
        let zones = self.zones.iter().enumerate().filter(|(_, zone)| is_its(zone));
        zones.map(|(z, zone)| (z, zone.boost)).collect()
    }

    /// One pass, or the end of a nap. A pass over the lists is not over with this: those who have something else to give
    /// are asked, at this priority, unless they are spared, and then it ends.
    pub(crate) fn begin_pass(&mut self, node: usize) -> Result<Then, Option<u32>> {
        let mut run = match self.kswapds[node].state {
            State::Asleep => return Ok(Then::Sleep),
            State::Napping(need) => return Ok(self.settle(node, need, None)),
            State::Balancing(run) => run,
        };
        if std::mem::take(&mut run.is_new) {
            self.count(Event::Pageoutrun, 1);
            self.hurry(node, run.need, true);
            let boosts = self.boosts(node, run.need.highest);
            run.boost = boosts.iter().map(|(_, boost)| boost).sum();
            self.kswapds[node].saved = boosts;
        }
        let is_balanced = self.is_balanced(node, run.need);
        if !is_balanced && run.boost > 0 {
            (run.boost, run.left) = (0, PASSES);
            self.reach("a boost gives way to a need");
        }
        self.kswapds[node].state = State::Balancing(run);
        if is_balanced && run.boost == 0 {
            return Ok(self.end_run(node, run.need));
        }
        let spares = run.boost > 0 && self.rules.boost_spares_slab;
        if run.boost > 0 {
            self.reach(if spares { "a gentle pass that spares slab" } else { "a gentle pass" });
        }
        Err((!spares).then_some(run.left))
    }

    /// The pass is over.
    pub(crate) fn end_pass(&mut self, node: usize) -> Then {
        let State::Balancing(run) = self.kswapds[node].state else { panic!("a pass has begun") };
        // Nothing was reclaimed, as always here: for a boost that is enough.
        if run.left > 1 && run.boost == 0 {
            self.kswapds[node].state = State::Balancing(Run { left: run.left - 1, ..run });
            return Then::More;
        }
        self.kswapds[node].failures += 1;
        self.end_run(node, run.need)
    }

    /// From the first pass to the last CPUs have less of the zones in question.
    fn hurry(&mut self, node: usize, need: Need, hurried: bool) {
        let is_there = self.rules.pcp_yields_to_reclaim;
        let mine = |zone: &&mut Zone| is_there && zone.node as usize == node && zone.kind <= need.highest;
        self.zones.iter_mut().filter(mine).flat_map(|zone| &mut zone.pcps).for_each(|pcp| pcp.hurried = hurried);
    }

    fn end_run(&mut self, node: usize, need: Need) -> Then {
        self.hurry(node, need, false);
        for (z, saved) in std::mem::take(&mut self.kswapds[node].saved) {
            let left = self.zones[z].boost.saturating_sub(saved);
            self.zones[z].boost = left;
            self.reach(if left > 0 { "a boost outlives a run" } else { "a boost ends" });
        }
        let asked = self.kswapds[node].asked;
        let rests = if self.rules.kswapd_rests_on_asked {
            asked.unwrap_or(Need { order: 0, highest: ZoneKind::Dma })
        } else {
            self.goes_on_with(asked.unwrap_or(Need { order: 0, ..need }), need.highest)
        };
        self.settle(node, rests, Some(State::Napping(rests)))
    }

    /// Begins again if there is need; else kswapd naps or sleeps.
    fn settle(&mut self, node: usize, need: Need, nap: Option<State>) -> Then {
        if self.kswapds[node].failures < FAILURES_MAX && !self.may_sleep(node, need) {
            self.count(Event::KswapdHighWmarkHitQuickly, 1);
            let unasked = if self.rules.kswapd_keeps_highest { ZoneKind::Dma } else { need.highest };
            let need = self.kswapds[node].asked.take().unwrap_or(Need { order: 0, highest: unasked });
            self.kswapds[node].state = State::Balancing(Run::new(need));
            return Then::More;
        }
        self.kswapds[node].state = nap.unwrap_or(State::Asleep);
        if nap.is_some() { Then::Nap } else { Then::Sleep }
    }

    /// Up to 4.11 every zone that could serve is to be above its High mark, else any.
    fn may_sleep(&self, node: usize, need: Need) -> bool {
        let lacking = self.balanced(node, need).iter().filter(|balanced| !**balanced).count();
        if self.rules.kswapd_needs_all_zones { lacking == 0 } else { self.is_balanced(node, need) }
    }

    /// Is any zone that could serve above its High mark?
    fn is_balanced(&self, node: usize, need: Need) -> bool {
        let zones = self.balanced(node, need);
        zones.is_empty() || zones.contains(&true)
    }

    /// Of each zone that could serve, whether it is above its High mark.
    fn balanced(&self, node: usize, need: Need) -> Vec<bool> {
        let wish = Wish { order: need.order, highest: need.highest, ..Wish::kernel(0) };
        let mine = self.zones.iter().enumerate();
        let mine = mine.filter(|(_, zone)| zone.node as usize == node && zone.kind <= need.highest);
        mine.map(|(z, zone)| self.passes(z, wish, zone.high + zone.boost, Urgency::Normal)).collect()
    }
}

impl World {
    /// A node's kswapd takes a step, which ends where others may run.
    pub(crate) fn step_kswapd(&mut self, node: usize, unborn: &BTreeSet<u32>) -> Then {
        let mut round = match self.rounds[node].take() {
            Some(round) => round,
            None => match self.memory.begin_pass(node) {
                Ok(then) => return then,
                Err(None) => return self.memory.end_pass(node),
                Err(Some(priority)) => Round::new(priority),
            },
        };
        if !self.ask_around(node, &mut round, unborn) {
            self.rounds[node] = Some(round);
            return Then::More;
        }
        self.memory.end_pass(node)
    }
}
