//! Fallback between migrate types: verdicts held to the rules of releases.

use super::*;
use FallbackRules::{CountsAlike, KernelSteals, ReclaimableSteals};
use MigrateType::{Movable, Reclaimable, Unmovable};

fn census(free: u32, movable: u32) -> BlockCensus {
    BlockCensus { free, movable, size: 512 }
}

#[test]
fn who_may_take_more_than_was_found() {
    let can = |rules, found, from| can_steal(rules, Order(found), from, Order::HUGE);
    for rules in [ReclaimableSteals, KernelSteals, CountsAlike] {
        assert!(!can(rules, 3, Movable) && can(rules, 4, Movable) && can(rules, 10, Movable), "{rules:?}");
        assert!(can(rules, 0, Reclaimable), "{rules:?}");
    }
    assert!(can(CountsAlike, 3, Unmovable) && can(KernelSteals, 0, Unmovable));
    assert!(!can(ReclaimableSteals, 3, Unmovable) && can(ReclaimableSteals, 4, Unmovable));
}

#[test]
fn a_movable_request_counts_movable_frames_as_its_own() {
    assert_eq!(may_steal(CountsAlike, Movable, Unmovable, census(200, 60)), Steal::WholeBlock);
    assert_eq!(may_steal(CountsAlike, Movable, Unmovable, census(200, 50)), Steal::FreeFrames);
    assert_eq!(may_steal(KernelSteals, Movable, Unmovable, census(200, 60)), Steal::FreeFrames);
    assert_eq!(may_steal(ReclaimableSteals, Movable, Unmovable, census(256, 0)), Steal::WholeBlock);
}

#[test]
fn other_requests_count_kernel_frames_of_a_movable_block_as_alike() {
    assert_eq!(may_steal(CountsAlike, Unmovable, Movable, census(100, 300)), Steal::FreeFrames, "112 alike");
    assert_eq!(may_steal(CountsAlike, Unmovable, Movable, census(100, 256)), Steal::WholeBlock, "156 alike");
    assert_eq!(may_steal(CountsAlike, Unmovable, Movable, census(100, 257)), Steal::FreeFrames, "155 alike");
    assert_eq!(may_steal(CountsAlike, Unmovable, Reclaimable, census(255, 0)), Steal::FreeFrames, "no telling");
    assert_eq!(may_steal(CountsAlike, Unmovable, Movable, census(0, 0)), Steal::FoundOnly, "beyond its zone");
}

#[test]
fn types_turn_to_each_other_in_order() {
    assert_eq!(fallbacks(Unmovable), [Reclaimable, Movable]);
    assert_eq!(fallbacks(Movable), [Reclaimable, Unmovable]);
    assert_eq!(fallbacks(Reclaimable), [Unmovable, Movable]);
}

#[test]
fn what_is_on_an_lru_list_is_movable_and_nothing_else() {
    let mut frames = FrameTable::new(Pfn(1024), Order::HUGE, Order(10));
    frames.reserve_edges(Pfn(0), Pfn(1024), crate::pageblock::ZoneIndex(0));
    let anon = |order| Frame::Anon { family: crate::frame::FamilyId(0), vpn: units::Vpn(0), order: Order(order) };
    let file = |order| Frame::File { segment: crate::frame::SegmentId(0), index: 0, order: Order(order) };
    let kernel = |order| Frame::Kernel { order: Order(order), mobility: rules::gfp::Mobility::Movable };
    let (on_list, in_batch) = (Some(FrameFlag::OnLru), Some(FrameFlag::InBatch));
    // Each twice as large as the one before, so that a sum says which they are.
    let blocks = [
        (anon(0), on_list),
        (anon(0), in_batch),
        (file(1), on_list),
        (file(2), in_batch),
        // Taken off its list: reclaim or compaction has it.
        (anon(3), None),
        // As a state has pages of a kernel's files, and as any allocation begins.
        (kernel(4), on_list),
        (kernel(5), None),
        (Frame::Free { order: Order(6), list: Movable, reported: false }, None),
    ];
    let mut at = Pfn(512);
    for (frame, flag) in blocks {
        frames.set(at, frame);
        if let Some(flag) = flag {
            frames.mark(at, flag, true);
        }
        at = at.plus(frames.order_of(frame).frames());
    }
    let found = super::census(&frames, Pfn(512 + 70), Pfn(1024));
    assert_eq!(found, BlockCensus { free: 64, movable: 1 + 2 + 16, size: 512 });
    assert_eq!(super::census(&frames, Pfn(512), Pfn(1023)), census(0, 0), "it is not all of its zone");
}
