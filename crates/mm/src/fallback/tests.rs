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
fn another_request_counts_what_is_neither_free_nor_movable_in_a_movable_block() {
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
