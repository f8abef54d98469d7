//! Linux: none; decisions that a branch of a run takes otherwise, to see what would have become of it.
//!
//! A decision is known by its instant and its control from an earlier run of the same cell, which told a fact of it. No decision
//! is asked about unless an observer has lent the step its list of facts, and no run of a benchmark takes one otherwise.

use serde::{Deserialize, Serialize};
use units::Time;

use crate::fact::{Fact, Kswapd, Told};

/// A decision that can be taken otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A request wakes kswapd. Otherwise: kswapd sleeps on.
    WakeKswapd,
    /// A failed run defers compaction of a zone. Otherwise: the zone is not deferred.
    Defer,
    /// Compaction of a zone is deferred. Otherwise: the request may compact the zone.
    Deferred,
    /// A run of compaction begins. Otherwise: the zone is skipped.
    Compact,
    /// Direct reclaim begins. Otherwise: nothing is reclaimed.
    Reclaim,
    /// A task leaves its CPU to another one that waits. Otherwise: the task runs on to the next tick.
    Preempt,
    /// A task sleeps until a device answers or time has passed. Otherwise: the task goes on at once.
    Sleep,
}

impl Decision {
    /// The decision that a fact tells of, and its instant; none if there is nothing that could be otherwise.
    pub fn of(told: &Told) -> Option<(Self, Time)> {
        let decision = match &told.fact {
            Fact::WakeupKswapd { kswapd: Kswapd::Woken, .. } => Self::WakeKswapd,
            Fact::DeferCompaction { .. } => Self::Defer,
            Fact::CompactionDeferred { .. } => Self::Deferred,
            Fact::CompactionBegin { .. } => Self::Compact,
            Fact::ReclaimBegin { .. } => Self::Reclaim,
            Fact::Waited { cause, since, .. } => {
                return match cause.as_str() {
                    "run queue" => Some((Self::Preempt, *since)),
                    "disk" | "swap" | "throttle" => Some((Self::Sleep, *since)),
                    _ => None,
                };
            }
            _ => return None,
        };
        Some((decision, told.at))
    }
}

/// A decision of an earlier run of the same cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otherwise {
    /// The instant of the decision.
    pub at: Time,
    /// The control that decides: of a task, its number.
    pub by: u32,
    /// The decision.
    pub decision: Decision,
}

#[cfg(test)]
mod tests {
    use rules::zone::ZoneKind;
    use units::{NodeId, Order};

    use super::*;
    use crate::fact::{Compaction, ZoneName};

    #[test]
    fn a_fact_tells_of_the_decision_that_can_be_otherwise() {
        let told = |fact| Told { at: Time(7), by: 1, fact };
        let zone = ZoneName { node: NodeId(0), kind: ZoneKind::Normal };
        let begin = told(Fact::CompactionBegin { zone, order: Some(Order::HUGE), sync: true });
        assert_eq!(Decision::of(&begin), Some((Decision::Compact, Time(7))));
        let (result, migrate_scanned, free_scanned, moved, failed) = (Compaction::Complete, 0, 0, 0, 0);
        let end = told(Fact::CompactionEnd { zone, result, migrate_scanned, free_scanned, moved, failed });
        assert_eq!(Decision::of(&end), None, "an end follows from what was found");
        let waited = |cause: &str| told(Fact::Waited { cause: cause.to_owned(), since: Time(3), behind: None });
        assert_eq!(Decision::of(&waited("run queue")), Some((Decision::Preempt, Time(3))));
        assert_eq!(Decision::of(&waited("disk")), Some((Decision::Sleep, Time(3))));
        assert_eq!(Decision::of(&waited("mmap lock")), None);
        let kswapd = |kswapd| told(Fact::WakeupKswapd { node: NodeId(0), order: Order::BASE, kswapd });
        assert_eq!(Decision::of(&kswapd(Kswapd::Woken)), Some((Decision::WakeKswapd, Time(7))));
        assert_eq!(Decision::of(&kswapd(Kswapd::Awake)), None);
    }
}
