//! Linux: none; When a zone is worth compacting: against figures worked out by hand.

use memory::{
    pageblock::ZoneIndex,
    suitable::{FreeBlocks, Suitable, compact_gap},
};
use rules::{gfp::Urgency, zone::ZoneKind};
use units::Order;

use super::lab::{Lab, rules};

#[test]
fn the_fragmentation_index_of_known_cases() {
    // By __fragmentation_index() in mm/vmstat.c (v6.1): order 9, no block that is large enough.
    for (frames, blocks, index) in
        [(1000, 1000, 998), (4096, 64, 860), (20480, 320, 872), (2048, 8, 375), (256, 8, 813)]
    {
        let free = FreeBlocks { frames, blocks, suitable: 0 };
        assert_eq!(free.fragmentation_index(Order(9)), index, "{free:?}");
    }
    assert_eq!(FreeBlocks { frames: 600, blocks: 2, suitable: 1 }.fragmentation_index(Order(9)), -1000);
    assert_eq!(FreeBlocks::default().fragmentation_index(Order(9)), 0);
}

#[test]
fn the_share_of_free_memory_that_is_in_pieces() {
    assert_eq!(FreeBlocks { frames: 1000, blocks: 489, suitable: 1 }.extfrag(Order(9)), 48);
    assert_eq!(FreeBlocks { frames: 1024, blocks: 1, suitable: 2 }.extfrag(Order(9)), 0);
    assert_eq!(FreeBlocks::default().extfrag(Order(9)), 0);
}

#[test]
fn a_move_of_order_9_takes_1024_frames() {
    assert_eq!(compact_gap(Order(9)), 1024);
    assert_eq!(compact_gap(Order(3)), 16);
}

/// Takes frames one by one from a fragmented zone until `frames` frames are free.
fn leave(lab: &mut Lab, frames: u64) {
    let request = rules::gfp::AllocRequest {
        highest: ZoneKind::Movable,
        mobility: rules::gfp::Mobility::Movable,
        ..rules::gfp::AllocRequest::gfp_nowait(units::NodeId(0))
    };
    while lab.mm.memory.zones()[0].free_frames() > frames {
        lab.step(super::lab::OTHER, |mm, _, cx| {
            mm.memory.alloc(cx, &request).unwrap();
            mm.memory.drain_all_pages(cx);
        });
    }
}

#[test]
fn a_zone_is_compacted_above_the_index_threshold_for_costly_orders() {
    let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
    let low = lab.mm.memory.zones()[0].marks.low;
    leave(&mut lab, low.0 + 1024 + 1);
    let index = lab.mm.memory.zones()[0].free_blocks(Order(9)).fragmentation_index(Order(9));
    let index = u32::try_from(index).unwrap();
    for (extfrag_threshold, expected) in [(index - 1, Suitable::Continue), (index, Suitable::Skipped)] {
        lab.mm.memory.set_extfrag_threshold(extfrag_threshold);
        let asked = lab.mm.memory.compaction_suitable(ZoneIndex(0), Order(9), ZoneKind::Movable, Urgency::Normal);
        assert_eq!(asked, expected, "{index} {extfrag_threshold}");
    }
}

/// Takes all blocks of order 3 and above.
fn take_large(lab: &mut Lab) {
    let request = rules::gfp::AllocRequest::gfp_nowait(units::NodeId(0)).of_order(Order(3));
    while lab.step(super::lab::OTHER, |mm, _, cx| mm.memory.alloc(cx, &request)).is_ok() {}
}

#[test]
fn compaction_needs_room_above_low_for_costly_orders_else_min() {
    let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
    let marks = lab.mm.memory.zones()[0].marks;
    assert!(marks.min.0 < marks.low.0);
    let ask = |lab: &Lab, order| {
        lab.mm.memory.compaction_suitable(ZoneIndex(0), Order(order), ZoneKind::Movable, Urgency::Normal)
    };
    leave(&mut lab, marks.low.0 + 1024 + 1);
    assert_eq!(ask(&lab, 9), Suitable::Continue, "all in pieces: {:?}", lab.mm.memory.zones()[0].free_blocks(Order(9)));
    leave(&mut lab, marks.low.0 + 1024);
    assert_eq!(ask(&lab, 9), Suitable::Skipped);
    take_large(&mut lab);
    leave(&mut lab, marks.min.0 + 16 + 1);
    assert_eq!(ask(&lab, 3), Suitable::Continue);
    leave(&mut lab, marks.min.0 + 16);
    assert_eq!(ask(&lab, 3), Suitable::Skipped);

    // 4.1 asks for Low whatever the order.
    let (mut lab, _) = Lab::fragmented(16, rules("v4.1"));
    let marks = lab.mm.memory.zones()[0].marks;
    take_large(&mut lab);
    leave(&mut lab, marks.low.0 + 16 + 1);
    assert_eq!(ask(&lab, 3), Suitable::Continue);
    leave(&mut lab, marks.low.0 + 16);
    assert_eq!(ask(&lab, 3), Suitable::Skipped);
}

#[test]
fn marks_that_are_raised_ask_for_more_room() {
    // low_wmark_pages() and min_wmark_pages() hold watermark_boost (include/linux/mmzone.h, v5.0 to v6.1).
    let (mut lab, _) = Lab::fragmented(16, rules("v6.1"));
    let marks = lab.mm.memory.zones()[0].marks;
    let ask = |lab: &Lab, order| {
        lab.mm.memory.compaction_suitable(ZoneIndex(0), Order(order), ZoneKind::Movable, Urgency::Normal)
    };
    leave(&mut lab, marks.low.0 + 1024 + 2);
    for (boost, expected) in [(1, Suitable::Continue), (2, Suitable::Skipped)] {
        lab.mm.memory.zone_mut(ZoneIndex(0)).boost = boost;
        assert_eq!(ask(&lab, 9), expected, "{boost}");
    }
    take_large(&mut lab);
    leave(&mut lab, marks.min.0 + 2 + 16 + 2);
    for (boost, expected) in [(3, Suitable::Continue), (4, Suitable::Skipped)] {
        lab.mm.memory.zone_mut(ZoneIndex(0)).boost = boost;
        assert_eq!(ask(&lab, 3), expected, "{boost}");
    }
    // What is taken for a target is above the mark as it was set (__isolate_free_page, mm/page_alloc.c, v5.1).
    lab.mm.memory.zone_mut(ZoneIndex(0)).boost = marks.low.0;
    assert!(lab.mm.memory.may_isolate_free(ZoneIndex(0), Order::BASE));
    let (mut lab, _) = Lab::fragmented(16, rules("v5.0"));
    assert!(lab.mm.memory.may_isolate_free(ZoneIndex(0), Order::BASE));
    lab.mm.memory.zone_mut(ZoneIndex(0)).boost = 16 << 8;
    assert!(!lab.mm.memory.may_isolate_free(ZoneIndex(0), Order::BASE), "as it is raised");
}
