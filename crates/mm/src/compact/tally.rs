//! Linux: compaction_suitable() and compact_finished() in mm/compaction.c (v4.1 to v6.1).
//! Differs: the tests of a run are counted for its caller.

use memory::{Memory, cx::Cx, pageblock::ZoneIndex, suitable::Suitable, tally::Test};
use rules::{gfp::Urgency, zone::ZoneKind};
use units::Order;

/// The mechanism that a run is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A task, for its own request.
    Direct,
    /// kswapd, up to 4.5.
    Kswapd,
    /// kcompactd, for an order.
    Kcompactd,
    /// kcompactd, for a node's score.
    Proactive,
    /// `vm.compact_memory`, whose tests are not counted.
    Manual,
}

impl Caller {
    /// Counts the tests of `compaction_suitable`, in its order.
    pub(super) fn count_suitable(
        self,
        memory: &Memory,
        cx: &mut Cx,
        (at, order, highest, urgency): (ZoneIndex, Order, ZoneKind, Urgency),
        suitable: Suitable,
    ) {
        if !cx.counts_tests() {
            return;
        }
        let zone = memory.zone(at).name();
        let [mark, room, index] = match self {
            Self::Direct => [Test::DirectCompactMark, Test::DirectCompactRoom, Test::DirectCompactIndex],
            Self::Kswapd => [Test::KswapdCompactMark, Test::KswapdCompactRoom, Test::KswapdCompactIndex],
            Self::Kcompactd => {
                cx.test(Test::KcompactdBegins, zone, suitable == Suitable::Continue);
                return;
            }
            Self::Proactive | Self::Manual => return,
        };
        let lacks_room = suitable == Suitable::Skipped && memory.lacks_room(at, order, highest, urgency);
        let _ = cx.test(mark, zone, suitable != Suitable::Success)
            && cx.test(room, zone, !lacks_room)
            && cx.test(index, zone, suitable == Suitable::Continue);
    }

    /// Counts the tests that a run has ended by.
    pub(super) fn count_end(self, memory: &Memory, cx: &mut Cx, at: ZoneIndex, (contended, made): (bool, bool)) {
        let [by_contention, by_scanners] = match self {
            Self::Direct => [Test::DirectCompactContended, Test::DirectCompactMet],
            Self::Kswapd => [Test::KswapdCompactContended, Test::KswapdCompactMet],
            Self::Kcompactd => [Test::KcompactdContended, Test::KcompactdMet],
            Self::Proactive => [Test::ProactiveContended, Test::ProactiveMet],
            Self::Manual => return,
        };
        let zone = memory.zone(at).name();
        let _ = cx.test(by_contention, zone, !contended) && cx.test(by_scanners, zone, made);
    }
}
