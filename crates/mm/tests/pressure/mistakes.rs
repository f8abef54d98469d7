//! Mistakes in the rules of free page reporting: each is seen, by what pages hold or by a check, and without it nothing is.

use memory::{
    event::Event,
    frame::{Frame, Held},
    news::Daemon,
    pageblock::MigrateType,
};
use mm::{guest::mistake::Mistake, whole::check::walk_host};
use units::{Order, Pfn};

use crate::{everything_with, machine::Machine};

/// Seeds until one must have shown a mistake, and steps of each.
const SEEDS: u64 = 10;
const STEPS: u64 = 8_000;
/// Passes until everything that is free is known, when nobody does anything: a sixteenth of each list in each, and some more.
const PASSES: u32 = 100;

/// A mistake that breaks a rule, and the check that sees it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seeded {
    mistake: Option<Mistake>,
    /// The backing by the host is not compared with the guest's memory: only contents of pages are.
    is_host_hidden: bool,
}

impl Machine {
    pub(crate) fn seed_mistake(&mut self) {
        if let Some(mistake) = self.seeded.mistake {
            self.mm.make_mistake(mistake);
        }
    }

    pub(crate) fn check_host(&self) {
        if !self.seeded.is_host_hidden {
            walk_host(&self.mm).unwrap();
        }
    }

    /// Blocks that the thread holds, and the types of their pageblocks.
    pub(crate) fn reported_types(&self) -> Vec<(Held, MigrateType)> {
        let types = &self.mm.memory.frames.blocks;
        self.mm.reporter_holdings().isolated.iter().map(|held| (*held, types.migrate_type(held.pfn))).collect()
    }

    /// Blocks that the thread has put back are on the lists of their type.
    pub(crate) fn check_put_back(&self, before: &[(Held, MigrateType)]) {
        let frames = &self.mm.memory.frames;
        let still = self.mm.reporter_holdings().isolated;
        for (held, was) in before.iter().filter(|(held, _)| !still.contains(held)) {
            let orders = (held.order.0..=self.mm.memory.max_order().0).map(Order);
            let heads = orders.map(|order| (held.pfn.align_down(order), order));
            let block = heads.into_iter().find(|(pfn, order)| frames.is_free(*pfn, *order));
            // One that has merged may have been taken again; one that is lost is found by who asks for the owner of each.
            let Some((head, order)) = block else { continue };
            let Frame::Free { list, .. } = frames.get(head) else { unreachable!("it is free") };
            // One that is larger than a pageblock has the type of any of them; and the same step may take a large block
            // next, which makes its pageblock Movable.
            let size = usize::try_from(frames.blocks.order().frames()).unwrap();
            let types = (head.0..head.0 + order.frames()).step_by(size).map(|pfn| frames.blocks.migrate_type(Pfn(pfn)));
            assert!(
                types.into_iter().any(|of| of == list) || list == *was,
                "{held:?} is on the list of {list:?} after its report"
            );
        }
    }

    /// Runs the thread alone: passes come to an end, and one that has left nothing is the last.
    pub(crate) fn report_all(&mut self, order: Order) {
        self.end_pass();
        self.mm.notify_reporting(self.now);
        self.note_woken_reporter();
        for _ in 0..PASSES {
            let Some(due) = self.reporter else { return };
            self.now = self.now.max(due);
            let before = self.count(Event::SimPageReports);
            self.step_reporter();
            self.end_pass();
            self.note_woken_reporter();
            let has_reported = self.count(Event::SimPageReports) > before;
            let has_left = self.reporter.is_none() || self.unreported(order) > 0;
            assert!(!has_reported || has_left, "a pass that left nothing is followed by another");
        }
        panic!("no end after {PASSES} passes");
    }

    fn note_woken_reporter(&mut self) {
        if !self.mm.memory.take_woken(Daemon::Reporter).is_empty() {
            self.reporter = Some(self.now);
        }
    }

    /// A pass that has begun comes to its end.
    fn end_pass(&mut self) {
        // Bound: a pass has an end.
        while !self.mm.is_reporter_idle() {
            self.now = self.now.max(self.reporter.expect("the host answers"));
            self.step_reporter();
        }
    }

    /// Free blocks of which the host does not know.
    fn unreported(&self, order: Order) -> usize {
        let is_one = |frame| matches!(frame, Frame::Free { order: of, reported: false, .. } if of >= order);
        (0..self.mm.memory.frames.len()).filter(|pfn| is_one(self.mm.memory.frames.get(Pfn(*pfn)))).count()
    }
}

/// How a run has failed, if it has.
fn failure(seed: u64, seeded: Seeded) -> Option<String> {
    let run = || everything_with(seed, STEPS, seeded).steps;
    let panic = std::panic::catch_unwind(run).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

/// The contents of pages differ.
const LOST: &str = "assertion `left == right` failed: Vpn";
/// Frames and those who have them (`walk_owners`).
const OWNERS: &str = "said to be held by";
const NOBODYS: &str = "claimed as None";
/// The host backs a page that its guest does not have (`walk_host`).
const BACKED: &str = "but the host backs it";
const UNBACKED: &str = "which no host backs";
/// A kernel takes a page that it has poisoned.
const POISON: &str = "was poisoned when it was freed";
const STALE: &str = "given back, but it holds";
/// The thread has put blocks on another list, in a step or in a pass.
const OTHER_LIST: &str = "after its report";
const ANOTHER_PASS: &str = "is followed by another";

/// Each mistake, whether the host is hidden, and what sees it then. What a guest has written and lost is seen by what is
/// written alone, and earlier by who looks at the host.
const SEEN: [(Mistake, bool, &str); 19] = [
    (Mistake::LeavesOnList, true, OWNERS),
    (Mistake::PutsBackEarly, true, LOST),
    (Mistake::PutsBackEarly, false, UNBACKED),
    (Mistake::DiscardsWhatFailed, true, LOST),
    (Mistake::DiscardsWhatFailed, false, UNBACKED),
    (Mistake::MarksWhatFailed, false, BACKED),
    (Mistake::MarksMerged, false, BACKED),
    (Mistake::KeepsMark, false, BACKED),
    (Mistake::ReportsAgain, true, LOST),
    (Mistake::ReportsAgain, false, UNBACKED),
    (Mistake::DiscardsBuddy, true, LOST),
    (Mistake::DiscardsBuddy, false, UNBACKED),
    (Mistake::LosesBlock, true, NOBODYS),
    (Mistake::PutsBackOnOtherList, true, OTHER_LIST),
    (Mistake::NotifiesItself, true, ANOTHER_PASS),
    (Mistake::DiscardsHostPage, true, LOST),
    (Mistake::ClearsHostPage, true, LOST),
    (Mistake::BringsBackStale, false, STALE),
    (Mistake::DiscardsPoisoned, false, POISON),
];

#[test]
fn each_mistake_is_seen() {
    for (mistake, is_host_hidden, by) in SEEN {
        let seeded = Seeded { mistake: Some(mistake), is_host_hidden };
        let mut others = Vec::new();
        let is_seen = (0..SEEDS).any(|seed| {
            let failure = failure(seed, seeded);
            let is_seen = failure.as_ref().is_some_and(|failure| failure.contains(by));
            others.extend(failure);
            is_seen
        });
        assert!(is_seen, "{mistake:?}, host hidden: {is_host_hidden}: nobody has seen that {by:?}, but {others:#?}");
    }
    let is_tried = |mistake: &Mistake| SEEN.iter().any(|row| row.0 == *mistake);
    assert!(Mistake::ALL.iter().all(is_tried), "each of them has a row");
}

#[test]
fn without_a_mistake_the_same_seeds_show_nothing() {
    for seed in 0..SEEDS {
        assert_eq!(failure(seed, Seeded::default()), None, "seed {seed}");
    }
}
