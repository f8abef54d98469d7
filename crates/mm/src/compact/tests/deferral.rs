//! Linux: none; failures make compaction rest.

use memory::{event::Event, pageblock::ZoneIndex};
use rules::{gfp::AllocRequest, variant::Variant};
use units::{Order, Pfn};

use super::lab::{Lab, rules};
use crate::{
    compact::{CompactPriority, CompactResult, ZoneCompact},
    slow::AllocControl,
};

#[test]
fn the_kth_failure_defers_2_to_the_k_less_1_requests() {
    let mut zone = ZoneCompact::new(Pfn(512), Pfn(4096), Order(9));
    let order = Order(9);
    let comes = |zone: &mut ZoneCompact, order| {
        zone.consider(order);
        let before = *zone;
        let is_deferred = zone.is_deferred(order);
        assert_eq!((zone.is_deferred(order), *zone), (is_deferred, before), "a question changes nothing");
        is_deferred
    };
    assert!(!comes(&mut zone, order), "nothing has failed yet");
    for k in 1..=8_u32 {
        zone.defer(order);
        let shift = k.min(6);
        let mut turned_away = 0;
        while comes(&mut zone, order) {
            turned_away += 1;
        }
        assert_eq!(turned_away, (1 << shift) - 1, "after {k} failures");
        assert_eq!(zone.is_restarting(order), shift == 6);
    }
    zone.reset_deferral(order, false);
    assert!(!comes(&mut zone, order), "a success that is expected lets smaller ones through");
    assert!(comes(&mut zone, Order(10)) || zone.considered == 64, "but not larger ones");
    zone.reset_deferral(Order(10), true);
    assert_eq!((zone.considered, zone.defer_shift, zone.order_failed), (0, 0, Order(11)));
}

#[test]
fn only_synchronous_failures_defer_and_a_deferred_stall_counts_since_5_1() {
    for (version, counts) in [("v6.1", 1), ("v5.10", 1), ("v5.0", 0)] {
        let (mut lab, id) = Lab::fragmented(16, rules(version));
        // Nothing can be moved: every page is locked.
        lab.lock_all(id);
        let asynchronous = lab.compact_fast(Lab::request(), CompactPriority::Async);
        assert!(asynchronous.block.is_none());
        assert_eq!(lab.mm.zone_compacts[ZoneIndex(0)].defer_shift, 0, "{asynchronous:?}");
        for _ in 0..20 {
            if lab.mm.zone_compacts[ZoneIndex(0)].defer_shift > 0 {
                break;
            }
            assert!(lab.compact_fast(Lab::request(), CompactPriority::SyncLight).block.is_none());
        }
        assert_eq!(lab.mm.zone_compacts[ZoneIndex(0)].defer_shift, 1);
        let [stall, fail] = [Event::CompactStall, Event::CompactFail].map(|event| lab.count(event));
        let next = lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        assert_eq!(next.result, CompactResult::Deferred, "one is turned away");
        assert_eq!(lab.count(Event::CompactStall) - stall, counts);
        assert_eq!(lab.count(Event::CompactFail) - fail, counts);
        let after = lab.compact_fast(Lab::request(), CompactPriority::SyncLight);
        assert_ne!(after.result, CompactResult::Deferred, "the second is not");
        // The greatest effort asks nobody.
        lab.mm.zone_compacts[ZoneIndex(0)].defer(Order(9));
        let full = lab.compact_fast(Lab::request(), CompactPriority::SyncFull);
        assert_ne!(full.result, CompactResult::Deferred);
    }
}

#[test]
fn from_5_1_to_5_11_skipped_requests_count_as_compacted() {
    for (version, counts) in [("v5.0", 0), ("v5.1", 1), ("v5.10", 1), ("v5.14", 0), ("v6.1", 0)] {
        let mut lab = Lab::new(16, rules(version));
        let id = lab.process();
        let free = lab.mm.memory.zones()[0].free_frames();
        let range = lab.map(id, free - 900);
        lab.write(id, range);
        let compacted = lab.compact_fast(Lab::request(), CompactPriority::Async);
        assert_eq!((compacted.result, compacted.block), (CompactResult::Skipped, None), "{version}");
        let counted = [Event::CompactStall, Event::CompactFail, Event::CompactSuccess].map(|event| lab.count(event));
        assert_eq!(counted, [counts, counts, 0], "{version}");
    }
}

#[test]
fn who_compacts_in_vain_reclaims_or_gives_up() {
    // Does a request reclaim that shall not try hard, and one that may?
    let stalls = |version: &str, is_deferred: bool| stalls(rules(version), is_deferred);
    for (version, skipped, deferred) in [
        ("v4.8", [1, 1], [0, 1]),
        ("v4.20", [1, 1], [0, 1]),
        ("v5.3", [1, 1], [0, 1]),
        ("v5.4", [0, 0], [0, 0]),
        ("v5.8", [0, 1], [0, 1]),
        ("v6.1", [0, 1], [0, 1]),
    ] {
        assert_eq!(stalls(version, false), skipped, "{version}");
        assert_eq!(stalls(version, true), deferred, "{version}");
    }
}

/// Why nobody spoke of deferral alone: too little free memory to begin with is none, unless the reason counts.
#[test]
fn each_proposal_says_when_a_request_that_compacts_in_vain_reclaims() {
    for (patches, skipped, deferred) in [
        (&[][..], [1, 1], [0, 1]),
        (&[6], [0, 0], [0, 0]),
        (&[6, 7], [0, 1], [0, 1]),
        (&[9], [0, 1], [0, 1]),
        (&[11], [0, 1], [0, 1]),
    ] {
        let rules = || rules::variant::patched("v4.18", patches);
        assert_eq!(stalls(rules(), false), skipped, "{patches:?}");
        assert_eq!(stalls(rules(), true), deferred, "{patches:?}");
    }
}

/// Does a request reclaim that shall not try hard, and one that may? Less is free than compaction needs to begin; or it is
/// deferred, too.
fn stalls(rules: Variant, is_deferred: bool) -> [u32; 2] {
    [true, false].map(|no_retry| {
        let mut lab = Lab::new(16, rules);
        let id = lab.process();
        // Less is free than compaction needs to begin, and no block of the order.
        let free = lab.mm.memory.zones()[0].free_frames();
        let range = lab.map(id, free - 900);
        lab.write(id, range);
        if is_deferred {
            lab.mm.zone_compacts[ZoneIndex(0)].defer(Order(9));
        }
        lab.fail_slowly(AllocControl::of_task(AllocRequest { no_retry, ..Lab::request() }), None);
        u32::from(lab.count(Event::AllocstallMovable) > 0)
    })
}
