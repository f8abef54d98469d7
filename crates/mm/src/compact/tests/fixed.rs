//! Linux: none; the slow path up to 4.7, and what compaction of that time does differently.

use memory::{
    event::Event,
    pageblock::ZoneIndex,
    step::{Step, Wait},
};
use rules::{
    gfp::AllocRequest,
    variant::{CompactHugePages, SlowPath, Variant},
};
use units::{NodeId, Order, Pfn};

use super::lab::{Lab, ME, OTHER, rules};
use crate::{
    compact::{CompactPriority, CompactResult, DirectCompact},
    slow::AllocControl,
    space::vma::PageRange,
};

/// The request of a fault that wants a huge page.
fn fault() -> AllocRequest {
    AllocRequest { no_retry: true, ..Lab::request() }
}

/// Stalls in direct compaction, failures, and stalls in direct reclaim.
fn counts(lab: &Lab) -> [u64; 3] {
    [Event::CompactStall, Event::CompactFail, Event::AllocstallMovable].map(|event| lab.count(event))
}

impl Lab {
    /// Takes the slow path to its end, every `nth` step after another task had the CPU; there is no block.
    pub(super) fn fail_slowly(&mut self, mut control: AllocControl, nth: Option<u32>) {
        for step in 1_u32.. {
            let came_to = if nth.is_some_and(|nth| step.is_multiple_of(nth)) {
                self.preempted_step(|mm, spaces, cx| control.step(mm, spaces, cx))
            } else {
                self.step(ME, |mm, spaces, cx| control.step(mm, spaces, cx))
            };
            match came_to {
                Step::More => {}
                Step::Block(Wait::Until(at)) => self.now = at,
                Step::Block(wait) => panic!("{wait:?}"),
                Step::Done(got) => {
                    assert_eq!(got, None, "there is none to be had");
                    return crate::whole::check::walk(&self.mm).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_fault_that_gets_nothing_compacts_reclaims_and_compacts_again() {
    let (mut lab, id) = Lab::fragmented(16, rules("v4.1"));
    lab.lock_all(id);
    lab.fail_slowly(AllocControl::of_task(fault()), None);
    assert_eq!(counts(&lab), [2, 2, 1]);
    assert_eq!(lab.mm.zone_compacts[ZoneIndex(0)].defer_shift, 0, "neither has waited, so neither defers");
    // A request without __GFP_NORETRY waits in its second compaction; like the fault, it does not begin again.
    let kernel = AllocRequest { no_retry: false, wakes_kswapd: true, ..fault() };
    lab.fail_slowly(AllocControl::of_task(kernel), None);
    assert_eq!(counts(&lab), [4, 4, 2]);
    assert_eq!(lab.mm.zone_compacts[ZoneIndex(0)].defer_shift, 1);
}

#[test]
fn khugepaged_waits_on_its_second_try_and_defers_faults() {
    let (mut lab, id) = Lab::fragmented(16, rules("v4.1"));
    lab.lock_all(id);
    lab.fail_slowly(AllocControl::new(fault()), None);
    assert_eq!(counts(&lab), [2, 2, 1]);
    lab.mm.zone_compacts[ZoneIndex(0)].defer(Order::HUGE);
    let shift = lab.mm.zone_compacts[ZoneIndex(0)].defer_shift;
    assert_eq!(shift, 2, "once by itself");
    for considered in 1..4 {
        lab.fail_slowly(AllocControl::of_task(fault()), None);
        assert_eq!(counts(&lab), [2, 2, 1], "nothing is tried, not even reclaim");
        assert_eq!(lab.mm.zone_compacts[ZoneIndex(0)].considered, considered);
    }
    lab.fail_slowly(AllocControl::of_task(fault()), None);
    assert_eq!(counts(&lab), [4, 4, 2], "the fourth is let through, and so is its second compaction");
}

#[test]
fn a_fault_gives_up_on_contention_and_khugepaged_does_not() {
    for (thread, stalls) in [(false, [1, 1, 0]), (true, [2, 2, 1])] {
        let (mut lab, id) = Lab::fragmented(16, rules("v4.1"));
        lab.lock_all(id);
        let control = if thread { AllocControl::new(fault()) } else { AllocControl::of_task(fault()) };
        lab.fail_slowly(control, Some(4));
        assert_eq!(counts(&lab), stalls, "a thread: {thread}");
    }
}

#[test]
fn a_frame_is_worth_round_after_round_and_somebodys_end() {
    // All that is free is what Min keeps, and all else is locked.
    let (mut lab, id) = Lab::fragmented(16, rules("v4.1"));
    lab.mm.enable_oom_killer();
    lab.lock_all(id);
    let frame = AllocRequest::gfp_highuser_movable(NodeId(0));
    let min = lab.mm.memory.zones()[0].marks.min.0;
    while lab.mm.memory.zones()[0].free_frames() > min {
        lab.step(OTHER, |mm, _, cx| {
            mm.memory.alloc(cx, &frame).unwrap();
            mm.memory.drain_all_pages(cx);
        });
    }
    lab.fail_slowly(AllocControl::of_task(AllocRequest { no_retry: true, ..frame }), None);
    // Reclaim in vain goes through all priorities twice, and counts as two.
    assert_eq!(counts(&lab), [0, 0, 2], "with __GFP_NORETRY one round, and nobody is killed");
    assert!(lab.mm.memory.take_killed().is_empty());
    let mut control = AllocControl::of_task(frame);
    // Bound: nobody ends who is killed, so it goes on as long as it is asked.
    for _ in 0..2000 {
        match lab.step(ME, |mm, spaces, cx| control.step(mm, spaces, cx)) {
            Step::Block(Wait::Until(at)) => lab.now = at,
            Step::More => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(!lab.mm.memory.take_killed().is_empty());
    assert!(counts(&lab)[2] > 5, "and as long as he has not ended, it begins again");
}

/// A zone whose lowest pageblocks are huge pages and whose others are half free.
pub(super) fn behind_huge_pages(rules: Variant) -> (Lab, Vec<Pfn>) {
    let mut lab = Lab::new(32, rules);
    let huge = AllocRequest { reclaims: false, ..Lab::request() };
    let take = |_| lab.step(OTHER, |mm, _, cx| mm.memory.alloc(cx, &huge)).ok();
    let mut blocks: Vec<Pfn> = (0..16).map_while(take).collect();
    blocks.sort_unstable();
    // All but the lowest are given back, and the rest of the zone is filled.
    for pfn in blocks.split_off(4) {
        lab.step(OTHER, |mm, _, cx| mm.memory.free(cx, pfn, Order::HUGE));
    }
    for pfn in &blocks {
        // Somebody's, as a whole.
        lab.step(OTHER, |mm, _, cx| mm.memory.isolate(cx, *pfn, Order::HUGE));
    }
    let (stays, goes) = (lab.process(), lab.process());
    let zone = &lab.mm.memory.zones()[0];
    let pages = (zone.free_frames() * 199 / 200 - zone.marks.min.0 - 64) / 2;
    let [one, two] = [stays, goes].map(|id| lab.map(id, pages));
    for at in 0..pages {
        for (id, range) in [(stays, one), (goes, two)] {
            lab.write(id, PageRange::new(range.start.plus(at), 1));
        }
    }
    lab.end(goes);
    for who in [ME, OTHER] {
        lab.step(who, |mm, _, cx| {
            mm.lru_add_drain(cx);
            mm.memory.drain_all_pages(cx);
        });
    }
    (lab, blocks)
}

#[test]
fn pageblocks_of_huge_pages_are_marked_and_stay_marked_before_4_15() {
    for (huge_pages, marked) in [(CompactHugePages::ByFrame, true), (CompactHugePages::ByBlock, false)] {
        let of_then = Variant { compact_huge_pages: huge_pages, ..rules("v4.1") };
        let (mut lab, blocks) = behind_huge_pages(of_then);
        // Each run takes the huge page that it makes, and the next one goes on behind it.
        for _ in 0..3 {
            lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        }
        let marks = blocks.iter().filter(|pfn| lab.mm.memory.frames.blocks.skip(**pfn)).count();
        assert_eq!(marks > 0, marked, "{huge_pages:?}: {marks} of {blocks:?}");
    }
}

#[test]
fn before_5_1_the_next_run_begins_at_the_last_marked_pageblock() {
    // From 5.1 on it begins one behind the next one, and so passes that over.
    for (is_private, begins_at) in [(false, true), (true, false)] {
        let of_then = Variant { compact_private_sources: is_private, ..rules("v4.1") };
        let (mut lab, blocks) = behind_huge_pages(of_then);
        lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        let cached = lab.mm.zone_compacts[ZoneIndex(0)].cached_migrate[1];
        let marked = |pfn: &&Pfn| lab.mm.memory.frames.blocks.skip(**pfn);
        let last = blocks.iter().rfind(marked).expect("nothing of a huge page is to be had");
        assert_eq!(cached == *last, begins_at, "{is_private}: {cached}, {blocks:?}");
    }
}

#[test]
fn before_4_3_the_free_scanner_reads_every_frame_of_large_pages() {
    let scanned = |compact_huge_pages, compact_counts_frames| {
        let of_then = Variant { compact_huge_pages, compact_counts_frames, ..rules("v4.1") };
        // Tables of slabs are in its way.
        let (mut lab, _) = Lab::fragmented_every(16, of_then, 4);
        lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        lab.count(Event::CompactFreeScanned)
    };
    let looks = scanned(CompactHugePages::ByPage, false);
    assert!(scanned(CompactHugePages::ByFrame, false) > looks);
    assert!(scanned(CompactHugePages::ByPage, true) > looks, "since 6.0 the rest of each free block counts too");
}

#[test]
fn since_6_0_taken_frames_and_since_6_4_passed_ones_count() {
    let scanned = |rules| {
        // Free blocks of four frames, and tables of slabs between pages.
        let (mut lab, _) = Lab::fragmented_every(16, rules, 4);
        lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        (lab.count(Event::CompactMigrateScanned), lab.count(Event::CompactFreeScanned))
    };
    let looks = Variant { compact_counts_frames: false, ..rules("v6.1") };
    let counts = [looks, rules("v6.1"), Variant { compact_counts_passed: true, ..rules("v6.1") }].map(scanned);
    assert_eq!(counts[0].0, counts[1].0, "it is of the search for free frames, fast and slow");
    assert!(counts[0].1 < counts[1].1, "{counts:?}");
    assert!(counts[1].0 < counts[2].0 && counts[1].1 <= counts[2].1, "{counts:?}");
}

#[test]
fn before_4_8_the_free_scanner_goes_on_below_the_mark() {
    let came_to = |compact_ends_at_mark| {
        let (mut lab, _) = Lab::fragmented(16, Variant { compact_ends_at_mark, ..rules("v4.1") });
        let low = lab.mm.memory.zones()[0].marks.low.0;
        let mut compact = DirectCompact::new(Lab::request(), CompactPriority::SyncLight);
        loop {
            let step = lab.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx));
            if let Step::Done(compacted) = step {
                return (compacted.result, lab.count(Event::CompactFreeScanned));
            }
            // Once it runs, somebody else takes what is above Low.
            let frame = AllocRequest { reclaims: false, ..AllocRequest::gfp_highuser_movable(NodeId(0)) };
            while lab.mm.memory.zones()[0].free_frames() > low {
                lab.step(OTHER, |mm, _, cx| mm.memory.alloc(cx, &frame)).unwrap();
                lab.step(OTHER, |mm, _, cx| mm.memory.drain_all_pages(cx));
            }
        }
    };
    let (result, until_the_first) = came_to(true);
    assert_eq!(result, CompactResult::Contended, "there is no frame to move to");
    let (result, all) = came_to(false);
    assert_eq!(result, CompactResult::PartialSkipped, "it has looked down to where the other scanner is");
    assert!(all > until_the_first, "{all} and {until_the_first}");
}

#[test]
fn before_5_1_all_marks_are_cleared_at_once() {
    for (selective, left) in [(false, 0), (true, 8)] {
        // Nothing but free memory: no pageblock is worth looking at again.
        let mut lab = Lab::new(16, Variant { compact_clears_selectively: selective, ..rules("v4.1") });
        let blocks: Vec<Pfn> = (0..8).map(|n| Pfn(n << 9)).collect();
        let huge = AllocRequest { reclaims: false, ..AllocRequest::gfp_transhuge_light(NodeId(0)) };
        while lab.step(OTHER, |mm, _, cx| mm.memory.alloc(cx, &huge)).is_ok() {}
        for pfn in &blocks {
            lab.mm.memory.frames.blocks.set_skip(*pfn, true);
        }
        lab.mm.zone_compacts[ZoneIndex(0)].blockskip_flush = true;
        lab.mm.zone_compacts[ZoneIndex(0)].cached_migrate = [Pfn(512), Pfn(1024)];
        lab.step(ME, |mm, _, cx| mm.reset_isolation_suitable(cx, NodeId(0)));
        let marked = blocks.iter().filter(|pfn| lab.mm.memory.frames.blocks.skip(**pfn)).count();
        assert!(if left == 0 { marked == 0 } else { marked > 0 }, "{selective}: {marked}");
        assert!(!lab.mm.zone_compacts[ZoneIndex(0)].blockskip_flush);
        assert!(selective || lab.mm.zone_compacts[ZoneIndex(0)].cached_migrate == [Pfn(0); 2]);
    }
}

#[test]
fn the_order_of_steps_changed_with_4_8() {
    for (version, path) in [("v3.9", SlowPath::Fixed), ("v4.7", SlowPath::Fixed), ("v4.8", SlowPath::ByProgress)] {
        assert_eq!(rules(version).slow_path, path);
    }
}
