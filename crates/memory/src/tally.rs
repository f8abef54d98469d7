//! Linux: none; the conditions of mm/vmscan.c, mm/compaction.c, mm/huge_memory.c, mm/khugepaged.c, mm/page_alloc.c,
//! mm/page_reporting.c, mm/mempolicy.c and mm/migrate.c (v3.9 to v6.18), each under the name of its function.
//! Differs: the kernel counts some of their outcomes, and names none of the others.
//!
//! A mechanism that never works stops at a test. Each test between *wanted* and *done* is counted where it is decided
//! (`Cx::test`), but only while an observer has lent the step its list: otherwise the place pays one branch. No mechanism reads
//! a count. The tests themselves are one table, `tally/table.rs`.

mod table;

use std::{collections::BTreeMap, fmt};

use rules::zone::ZoneKind;
use serde::{Deserialize, Serialize};
use units::NodeId;

pub use self::table::{Mechanism, Row, Test};

/// The place that a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The whole machine.
    Machine,
    /// A node.
    Node(NodeId),
    /// A zone of a node.
    Zone(NodeId, ZoneKind),
}

impl From<NodeId> for Place {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => write!(f, "machine"),
            Self::Node(node) => write!(f, "node {}", node.0),
            Self::Zone(node, kind) => write!(f, "{}, node {}", kind.name(), node.0),
        }
    }
}

/// Number of times that a test was asked at a place, and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of times that the test was asked.
    pub asked: u64,
    /// Number of times that the test failed, so that the mechanism did nothing then and there.
    pub failed: u64,
}

impl Count {
    /// Whether the test was asked, and never passed.
    pub fn has_never_passed(&self) -> bool {
        self.asked > 0 && self.failed == self.asked
    }

    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.failed += other.failed;
    }
}

/// The count of a test at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The test.
    pub test: Test,
    /// The place.
    pub place: Place,
    /// The count.
    #[serde(flatten)]
    pub count: Count,
}

/// The counts of all tests that were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(Test, Place), Count>);

impl Tally {
    /// Counts a test.
    pub fn count(&mut self, test: Test, place: Place, passes: bool) {
        let count = self.0.entry((test, place)).or_default();
        count.add(Count { asked: 1, failed: u64::from(!passes) });
    }

    /// Adds counts of another run.
    pub fn add(&mut self, counts: &[Counted]) {
        for Counted { test, place, count } in counts {
            self.0.entry((*test, *place)).or_default().add(*count);
        }
    }

    /// All counts: tests in the order of the table, places from the first node up.
    pub fn counts(&self) -> Vec<Counted> {
        self.0.iter().map(|((test, place), count)| Counted { test: *test, place: *place, count: *count }).collect()
    }

    /// The sum of a test's counts at all places.
    pub fn sum(&self, test: Test) -> Count {
        let mut sum = Count::default();
        self.at(test).for_each(|(_, count)| sum.add(count));
        sum
    }

    /// The counts of a test at each place.
    pub fn at(&self, test: Test) -> impl Iterator<Item = (Place, Count)> + '_ {
        self.0.iter().filter(move |((its, _), _)| *its == test).map(|((_, place), count)| (*place, *count))
    }

    /// Number of times that a mechanism did its work: its last test passed.
    pub fn done(&self, mechanism: Mechanism) -> u64 {
        let last = mechanism.tests().last().map(|row| self.sum(row.test)).unwrap_or_default();
        last.asked - last.failed
    }

    /// The test that keeps a mechanism from its work, and its place if there is one: of the tests that never passed the one that
    /// failed most often, the last one of equals; if each passed at times, the one that failed most often. None if none failed.
    /// A test that only passes a zone over has to fail in every zone.
    pub fn culprit(&self, mechanism: Mechanism) -> Option<(Test, Option<Place>, Count)> {
        let mut all: Vec<(Test, Option<Place>, Count)> = Vec::new();
        for row in mechanism.tests() {
            let mut places = self.at(row.test).peekable();
            if row.ends_all {
                all.extend(places.map(|(place, count)| (row.test, Some(place), count)));
            } else if let Some((first, _)) = places.peek().copied() {
                let place = (places.count() == 1).then_some(first);
                all.push((row.test, place, self.sum(row.test)));
            }
        }
        let worst = all.into_iter().filter(|(.., count)| count.failed > 0);
        worst.max_by_key(|(.., count)| (count.has_never_passed(), count.failed))
    }

    /// The test in front of the culprit that ended most rounds, with its place: more than the culprit, so that few came as far.
    pub fn barrier_before(
        &self,
        mechanism: Mechanism,
        culprit: Test,
        failed: u64,
    ) -> Option<(Test, Option<Place>, Count)> {
        let before = mechanism.tests().filter(|row| row.ends_all && row.test < culprit);
        let at = before.flat_map(|row| self.at(row.test).map(|(place, count)| (row.test, Some(place), count)));
        at.filter(|(.., count)| count.failed > failed).max_by_key(|(.., count)| count.failed)
    }
}

#[cfg(test)]
mod check {
    use rules::variant::named;

    use super::*;

    #[test]
    fn names_of_mechanisms_and_tests_are_unique_and_short() {
        let mut names: Vec<&str> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Mechanism::ALL.len());
        for mechanism in Mechanism::ALL {
            let mut of: Vec<String> = mechanism.tests().map(Row::name).collect();
            assert!(of.len() > 1, "{mechanism:?}");
            assert!(of.iter().all(|name| name.len() <= Row::NAME_MAX), "{of:?}");
            of.sort_unstable();
            of.dedup();
            assert_eq!(of.len(), mechanism.tests().count(), "{mechanism:?}");
            assert_eq!(Mechanism::named(mechanism.name()), Some(*mechanism));
        }
    }

    #[test]
    fn rows_are_in_the_order_of_the_tests() {
        assert!(Row::ALL.iter().enumerate().all(|(at, row)| row.test as usize == at));
        assert!(Row::ALL.is_sorted_by_key(|row| row.mechanism));
    }

    #[test]
    fn kswapd_compacts_up_to_4_5_and_kcompactd_since() {
        let has = |release: &str, mechanism: Mechanism| mechanism.is_in(named(release));
        assert_eq!(["v4.4", "v4.6", "v6.1"].map(|at| has(at, Mechanism::KswapdCompaction)), [true, false, false]);
        assert_eq!(["v4.4", "v4.6", "v6.1"].map(|at| has(at, Mechanism::Kcompactd)), [false, true, true]);
        assert_eq!(["v4.20", "v5.0"].map(|at| has(at, Mechanism::Boost)), [false, true]);
    }

    #[test]
    fn a_zone_that_ends_all_is_named_and_one_that_is_passed_over_is_not() {
        let zone = |kind| Place::Zone(NodeId(0), kind);
        let (dma, normal) = (zone(ZoneKind::Dma), zone(ZoneKind::Normal));
        let mut tally = Tally::default();
        for _ in 0..5 {
            tally.count(Test::KswapdCompactHasBlock, dma, false);
            tally.count(Test::DirectCompactRoom, dma, false);
            tally.count(Test::DirectCompactRoom, normal, true);
        }
        tally.count(Test::KswapdCompactHasBlock, normal, true);
        tally.count(Test::DirectCompactMet, normal, false);
        let found = tally.culprit(Mechanism::KswapdCompaction).expect("one failed");
        assert_eq!(found, (Test::KswapdCompactHasBlock, Some(dma), Count { asked: 5, failed: 5 }));
        let found = tally.culprit(Mechanism::DirectCompaction).expect("one failed");
        assert_eq!(found, (Test::DirectCompactMet, Some(normal), Count { asked: 1, failed: 1 }));
        assert_eq!(tally.culprit(Mechanism::Khugepaged), None);
        assert_eq!(tally.barrier_before(Mechanism::KswapdCompaction, Test::KswapdCompactHasBlock, 5), None);
        let mut deeper = tally.clone();
        deeper.count(Test::KswapdCompactHasBlock, dma, true);
        deeper.count(Test::KswapdCompactGap, Place::Machine, false);
        let (test, place, count) = deeper.culprit(Mechanism::KswapdCompaction).expect("two failed");
        assert_eq!((test, place), (Test::KswapdCompactGap, Some(Place::Machine)));
        let barrier = deeper.barrier_before(Mechanism::KswapdCompaction, test, count.failed);
        assert_eq!(barrier, Some((Test::KswapdCompactHasBlock, Some(dma), Count { asked: 6, failed: 5 })));
        let mut twice = tally.clone();
        twice.add(&tally.counts());
        assert_eq!(twice.sum(Test::DirectCompactRoom), Count { asked: 20, failed: 10 });
        assert_eq!(twice.done(Mechanism::DirectCompaction), 0);
        assert_eq!([dma, Place::Node(NodeId(1))].map(|place| place.to_string()), ["DMA, node 0", "node 1"]);
    }
}
