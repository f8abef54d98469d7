//! Linux: stall_fragmentation() of "mm: Stall movable allocations until kswapd progresses during serious external fragmentation
//! event" (message 20181123114528.28802-6-mgorman@techsingularity.net, for 4.20-rc3), which was dropped before it was merged.
//! Differs: a step that may not ask for memory counts as `PF_MEMALLOC`; a task that is killed while it sleeps
//! sleeps on.
//!
//! The first look of the slow path takes no small block from another type. When it has found nothing, the request raises marks,
//! wakes kswapd, and sleeps until that has come to the end of a pass; then it takes what there is.

use memory::{
    cx::Cx,
    event::Event,
    news::News,
    pageblock::ZoneIndex,
    step::{TICK, Wait},
};
use units::{NodeId, Picos, Time};

use crate::{
    Mm,
    slow::{AllocControl, Next, Phase},
};

/// By how many pageblocks a stall raises marks: one, and two for each type that requests ask for (`MIGRATE_PCPTYPES`).
const STALL_BLOCKS: u64 = 1 + 2 * 3;
/// How long it sleeps at most: HZ/50.
const STALL_MOST: Picos = Picos::from_micros(20_000);

impl AllocControl {
    /// Raises marks, wakes kswapd, and sleeps; a task that is being killed does not sleep.
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
        Next::Block(Wait::Pass { node, until: since + STALL_MOST }, Phase::Stalled { since })
    }

    /// Looks once more, with nothing spared. What was shorter than a tick is not counted.
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
    /// Raises the marks of a zone for a stall, and wakes the kswapd of its node, which it returns.
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
