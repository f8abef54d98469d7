//! Linux: compaction_zonelist_suitable() and too_many_isolated(), mm/compaction.c (v4.1 to v6.1).
//!
//! Could a zone be compacted, if reclaim went on; and is too much isolated already? What the free frames alone say is in
//! `memory/suitable.rs`.

use memory::{lru_kind::LruKind, pageblock::ZoneIndex};
use rules::{
    gfp::{Mark, Urgency},
    zone::ZoneKind,
};
use units::Order;

use crate::Mm;

impl Mm {
    /// Would a zone be, if a part of what can be reclaimed were free (`compaction_zonelist_suitable`)?
    pub(crate) fn could_compact(&self, zone: ZoneIndex, order: Order, highest: ZoneKind, urgency: Urgency) -> bool {
        let state = self.memory.zone(zone);
        let more = self.reclaimable_frames(zone) / u64::from(order.0.max(1));
        !state.is_ok(order, Mark::Min, highest, urgency, self.memory.variant())
            && state.has_room(order, highest, more, self.memory.variant().compact_mark)
    }

    /// Whether more pages of a zone's node are isolated than half of those on its LRU lists (`too_many_isolated`).
    pub(crate) fn too_many_isolated(&self, zone: ZoneIndex) -> bool {
        let (isolated, limit) = self.isolated_and_limit(zone);
        isolated > limit
    }

    /// The isolated frames of a zone's node, and how many may be: half of those on the lists.
    pub(crate) fn isolated_and_limit(&self, zone: ZoneIndex) -> (u64, u64) {
        let (mut listed, mut isolated) = (0, 0);
        for at in self.memory.node(self.memory.zone(zone).node).zones() {
            listed += LruKind::ALL.iter().map(|kind| self.lru.zone_frames(at, *kind)).sum::<u64>();
            isolated += self.lru.zone_isolated(at, false) + self.lru.zone_isolated(at, true);
        }
        (isolated, listed / 2)
    }
}
