//! Linux: stall_fragmentation() of "mm: Stall movable allocations until kswapd progresses during serious external fragmentation
//! event" (message 20181123114528.28802-6-mgorman@techsingularity.net, for 4.20-rc3), which was dropped before it was merged.
//! Differs: a step that may not ask for memory counts as `PF_MEMALLOC`; a task that is killed while it sleeps
//! sleeps on.
//!
//! The first try of the slow path takes no small block from another type. If it finds nothing, the request raises the marks,
//! wakes kswapd, and sleeps until kswapd has finished a pass; then it takes any block.

use memory::{
    cx::Cx,
    event::Event,
    fact::Throttle,
    news::News,
    pageblock::ZoneIndex,
    step::{TICK, Wait},
};
use units::{NodeId, Picos, Time};

use crate::{
    Mm,
    slow::{AllocControl, Next, Phase},
};

/// Pageblocks by which a stall raises the marks: one, and two for each type that requests ask for (`MIGRATE_PCPTYPES`).
const STALL_BLOCKS: u64 = 1 + 2 * 3;
/// Longest sleep of a stalled request: HZ/50.
const STALL_MOST: Picos = Picos::from_micros(20_000);

impl AllocControl {
    /// Raises the marks, wakes kswapd, and sleeps; an OOM victim does not sleep.
    pub(super) fn stall(&self, mm: &mut Mm, cx: &mut Cx) -> Next {
        let Some(preferred) = mm.memory.zones_for(&self.request).first().copied() else {
            return Next::Phase(Phase::Begin);
        };
        let node = mm.boost_for_stall(cx, preferred);
        let since = cx.now();
        if self.is_victim {
            return Next::Phase(Phase::Stalled { since });
        }
        mm.kswapds[node].has_sleepers = true;
        Mm::throttled(cx, Throttle::Stall, (0, 0), since + STALL_MOST);
        Next::Block(Wait::Pass { node, until: since + STALL_MOST }, Phase::Stalled { since })
    }

    /// Tries once more, with blocks of all types. A sleep of less than a tick is not counted.
    pub(super) fn end_stall(&self, mm: &mut Mm, cx: &mut Cx, since: Time) -> Next {
        let jiffies = |time: Time| time.0 / TICK.0;
        cx.count(Event::FragmentStall, u64::from(jiffies(cx.now()) != jiffies(since)));
        match mm.memory.alloc_above_min(cx, &self.request) {
            Some(found) => Next::Done(Some(found)),
            None => Next::Phase(Phase::Begin),
        }
    }
}

impl Mm {
    /// Raises the marks of a zone for a stall, and wakes kswapd of its node, which it returns.
    fn boost_for_stall(&mut self, cx: &mut Cx, zone: ZoneIndex) -> NodeId {
        let (pageblock, rules) = (self.memory.frames.blocks.order(), *self.memory.variant());
        let zone = self.memory.zone_mut(zone);
        let node = zone.node;
        zone.boost_by(STALL_BLOCKS, pageblock, &rules);
        self.memory.nudge_kswapd(cx, node);
        node
    }

    /// Those go on who wait for a node's kswapd (`wake_up_all(&pgdat->pfmemalloc_wait)`).
    pub(crate) fn wake_stalled(&mut self, node: NodeId) {
        if std::mem::take(&mut self.kswapds[node].has_sleepers) {
            self.memory.tell(News::Passed(node));
        }
    }
}

#[cfg(test)]
mod tests;
