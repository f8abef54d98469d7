//! Linux: `NR_ALLOC_BATCH`, `ZONE_FAIR_DEPLETED` and `reset_alloc_batches()` in mm/page_alloc.c (v3.17 to v4.7).
//! Differs: the count is exact, not spread over CPUs; 3.12 to 3.16 have no flag and check the count.
//!
//! The zones of a node take turns. In its turn a zone gives as many frames as its Low and High marks are apart. A new round
//! begins when a request finds nothing in the zones whose turn is not over: the others are depleted, or what is left of their
//! share is below the mark or in blocks that are too small. So each zone is used in proportion to its size, and data read into
//! memory stay there for about as long in any zone.

use crate::{pageblock::ZoneIndex, per_zone::PerZone, watermark::Marks, zone_state::ZoneState};

/// Frames that a zone may still give in this round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare {
    /// Frames (`NR_ALLOC_BATCH`). Negative where the last one was larger than what was left.
    left: i64,
    /// The zone's turn is over: other zones are next (`ZONE_FAIR_DEPLETED`).
    is_depleted: bool,
}

impl FairShare {
    /// Refills the share. A turn that is over stays over (`__setup_per_zone_wmarks`).
    pub(crate) fn refill(&mut self, marks: &Marks) {
        self.left = span(marks);
    }

    /// Begins a new round for the zone.
    fn begin(&mut self, marks: &Marks) {
        self.refill(marks);
        self.is_depleted = false;
    }

    /// Counts frames that the zone has given to any request (`buffered_rmqueue`).
    #[inline]
    pub fn take(&mut self, frames: u32) {
        self.left -= i64::from(frames);
        self.is_depleted |= self.left <= 0;
    }

    /// Whether the zone's turn is over.
    #[inline]
    pub(crate) fn is_depleted(self) -> bool {
        self.is_depleted
    }

    /// Whether such a share can exist with these marks: an invariant.
    pub(crate) fn is_sound(self, marks: &Marks) -> bool {
        let all = span(marks);
        self.left <= all && (self.is_depleted || self.left > 0 || self.left == all)
    }
}

/// Frames between the Low and the High mark.
fn span(marks: &Marks) -> i64 {
    i64::try_from(marks.high.0 - marks.low.0).expect("a mark is a part of a zone")
}

/// Whether the turn of a zone of the first zone's node is over.
pub(super) fn has_depleted(zones: &PerZone<ZoneState>, list: &[ZoneIndex]) -> bool {
    let home = list.first().map(|index| zones[*index].node);
    let zones = list.iter().map(|index| &zones[*index]);
    zones.take_while(|zone| Some(zone.node) == home).any(|zone| zone.fair.is_depleted())
}

/// Begins a new round for the zones of the first zone's node.
pub(super) fn begin_turn(zones: &mut PerZone<ZoneState>, list: &[ZoneIndex]) {
    let Some(first) = list.first().map(|index| &zones[*index]) else { return };
    let (node, kind) = (first.node, first.kind);
    for zone in zones.iter_mut().filter(|zone| zone.node == node && zone.kind <= kind) {
        zone.fair.begin(&zone.marks);
    }
}
