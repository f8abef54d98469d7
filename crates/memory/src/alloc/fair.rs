//! Linux: `NR_ALLOC_BATCH`, `ZONE_FAIR_DEPLETED` and `reset_alloc_batches()` in mm/page_alloc.c (v3.17 to v4.7).
//! Differs: the count is exact, not spread over CPUs; 3.12 to 3.16 have no flag, and ask for the count itself.
//!
//! The zones of a node take turns: each serves requests until it has given as many frames as its Low and High marks are apart.
//! They begin anew when a request finds nothing in those whose turn it still is: all have had theirs, or what is left of them is
//! below its mark or in pieces. So, but for requests that fail, each zone is used in proportion to its size, and what is read
//! into memory stays there for about as long wherever it is.

use crate::{pageblock::ZoneIndex, per_zone::PerZone, watermark::Marks, zone_state::ZoneState};

/// Frames that a zone may still give in its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare {
    /// Frames (`NR_ALLOC_BATCH`). Negative where the last one was larger than what was left.
    left: i64,
    /// The zone has had its turn: others are next (`ZONE_FAIR_DEPLETED`).
    is_depleted: bool,
}

impl FairShare {
    /// The whole of it. A turn that is over stays over (`__setup_per_zone_wmarks`).
    pub(crate) fn refill(&mut self, marks: &Marks) {
        self.left = span(marks);
    }

    /// The next turn.
    fn begin(&mut self, marks: &Marks) {
        self.refill(marks);
        self.is_depleted = false;
    }

    /// The zone has given so many frames, to whomever (`buffered_rmqueue`).
    #[inline]
    pub fn take(&mut self, frames: u32) {
        self.left -= i64::from(frames);
        self.is_depleted |= self.left <= 0;
    }

    /// Is it the others' turn?
    #[inline]
    pub(crate) fn is_depleted(self) -> bool {
        self.is_depleted
    }

    /// Can it be so, with these marks?
    pub(crate) fn is_sound(self, marks: &Marks) -> bool {
        let all = span(marks);
        self.left <= all && (self.is_depleted || self.left > 0 || self.left == all)
    }
}

/// How far Low and High are apart.
fn span(marks: &Marks) -> i64 {
    i64::try_from(marks.high.0 - marks.low.0).expect("a mark is a part of a zone")
}

/// Is it the others' turn for one of the zones that are of the first one's node?
pub(super) fn has_depleted(zones: &PerZone<ZoneState>, list: &[ZoneIndex]) -> bool {
    let home = list.first().map(|index| zones[*index].node);
    let zones = list.iter().map(|index| &zones[*index]);
    zones.take_while(|zone| Some(zone.node) == home).any(|zone| zone.fair.is_depleted())
}

/// The zones of the node of the first one in a list begin their next turn.
pub(super) fn begin_turn(zones: &mut PerZone<ZoneState>, list: &[ZoneIndex]) {
    let Some(first) = list.first().map(|index| &zones[*index]) else { return };
    let (node, kind) = (first.node, first.kind);
    for zone in zones.iter_mut().filter(|zone| zone.node == node && zone.kind <= kind) {
        zone.fair.begin(&zone.marks);
    }
}
