use rules::{
    gfp::Urgency,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Frames, NodeId, Order, Time};

use crate::check;

use super::*;
use crate::{alloc::NoMemory, cost::Prices, event::Counters, pageblock::ZoneIndex};

const BLOCK: u32 = 512;

fn machine(blocks: u32, unmanaged: u64) -> MachineSpec {
    let whole = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), blocks * BLOCK);
    let zone = ZoneSpec { managed: Frames(whole.managed.0 - unmanaged), ..whole };
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] }
}

fn settings(min_frames: u64) -> Settings {
    Settings { min_free_kbytes: 4 * min_frames, ..Settings::default() }
}

fn with<T>(mm: &mut Memory, body: impl FnOnce(&mut Memory, &mut Cx<'_>) -> T) -> T {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let result = body(mm, &mut Cx::new(CpuId(0), Time(0), &prices, &mut counters));
    check::walk(mm).unwrap();
    result
}

fn blocks_of(mm: &Memory, kind: MigrateType) -> Vec<u32> {
    (0..mm.frames.len() / BLOCK).filter(|block| mm.frames.blocks.migrate_type(Pfn(block * BLOCK)) == kind).collect()
}

#[test]
fn reserve_pageblocks_hold_the_min_mark_up_to_two() {
    for (min, wanted) in [(0, 0), (1, 1), (512, 1), (513, 2), (2000, 2)] {
        let mm = Memory::new(&machine(16, 0), *named("v4.1"), &settings(min));
        assert_eq!(blocks_of(&mm, MigrateType::Reserve), (0..wanted).collect::<Vec<_>>(), "min {min}");
    }
    let mm = Memory::new(&machine(16, 0), *named("v4.4"), &settings(2000));
    assert_eq!(blocks_of(&mm, MigrateType::Reserve), [], "no longer");
    let mm = Memory::new(&machine(16, 700), *named("v4.1"), &settings(2000));
    assert_eq!(blocks_of(&mm, MigrateType::Reserve), [2, 3], "two begin with frames that are never free");
}

#[test]
fn reserve_pageblocks_come_and_go_with_min_free() {
    let machine = machine(16, 0);
    let mut mm = Memory::new(&machine, *named("v3.9"), &settings(100));
    let kernel = AllocRequest::gfp_kernel(NodeId(0));
    let taken = with(&mut mm, |mm, cx| mm.alloc(cx, &kernel)).unwrap();
    for (min, wanted) in [(600, 2), (0, 0), (100, 1)] {
        with(&mut mm, |mm, cx| mm.apply_settings(cx, &machine.view(), &settings(min)));
        assert_eq!(blocks_of(&mm, MigrateType::Reserve).len(), wanted);
        assert_eq!(mm.zones()[0].marks.min.0, min);
    }
    with(&mut mm, |mm, cx| mm.free(cx, taken, Order::BASE));
}

#[test]
fn reserve_pageblocks_serve_when_nothing_else_does() {
    let mut mm = Memory::new(&machine(2, 0), *named("v4.1"), &settings(0));
    // Without marks, there is no reserve; make one as if there were.
    mm.zones[ZoneIndex(0)].marks.min = Frames(1);
    with(&mut mm, |mm, cx| mm.zones[ZoneIndex(0)].setup_migrate_reserve(&mut mm.frames, cx, named("v4.1")));
    mm.zones[ZoneIndex(0)].marks.min = Frames(0);
    // Both pageblocks are one free block, which is on the list of its first.
    let list = |mm: &Memory, kind| mm.zones()[0].buddy.area(Order(10)).list(kind).len();
    assert_eq!((list(&mm, MigrateType::Reserve), list(&mm, MigrateType::Movable)), (1, 0));
    let user = AllocRequest::gfp_highuser_movable(NodeId(0));
    assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &user)).is_ok());
}

fn atomic(order: u8) -> AllocRequest {
    AllocRequest::gfp_atomic(NodeId(0)).of_order(Order(order))
}

/// A machine whose free frames are between the marks of an atomic request and of others.
fn short_of_memory(rules: Variant) -> (Memory, Vec<Pfn>) {
    let mut mm = Memory::new(&machine(16, 0), rules, &settings(2000));
    let user = AllocRequest::gfp_highuser_movable(NodeId(0)).of_order(Order(4));
    let taken = with(&mut mm, |mm, cx| std::iter::from_fn(|| mm.alloc(cx, &user).ok()).collect());
    (mm, taken)
}

#[test]
fn an_atomic_request_goes_below_min_and_reserves_its_pageblock() {
    for (rules, served) in [("v4.4", true), ("v5.14", true), ("v6.1", true)] {
        let (mut mm, _) = short_of_memory(*named(rules));
        let kernel = AllocRequest::gfp_kernel(NodeId(0)).of_order(Order(4));
        assert_eq!(with(&mut mm, |mm, cx| mm.alloc(cx, &kernel)), Err(NoMemory::Refused));
        let first = with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(4)));
        assert_eq!(first.is_ok(), served);
        let block = first.unwrap().0 / BLOCK;
        assert_eq!((blocks_of(&mm, MigrateType::HighAtomic), mm.zones()[0].high_atomic), (vec![block], 512));
        let second = with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(4))).unwrap();
        assert_eq!(second.0 / BLOCK, block, "where the first one was");
        assert_eq!(blocks_of(&mm, MigrateType::HighAtomic).len(), 1);
    }
    let (mut mm, _) = short_of_memory(*named("v4.1"));
    assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(4))).is_ok());
    assert_eq!(blocks_of(&mm, MigrateType::HighAtomic), [], "before 4.4 nothing is left");
}

#[test]
fn what_is_kept_counts_as_taken_for_others() {
    let (mut mm, taken) = short_of_memory(*named("v6.1"));
    with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(4))).unwrap();
    let zone = &mm.zones()[0];
    let ok = |urgency, mark| zone.is_ok(Order::BASE, mark, ZoneKind::Normal, urgency, named("v6.1"));
    assert!(!ok(Urgency::Normal, rules::gfp::Mark::Min) && ok(Urgency::Atomic, rules::gfp::Mark::Min));
    let free = zone.buddy.free_frames();
    // As many frames more as are kept are not enough for another.
    for pfn in taken.iter().take(16) {
        with(&mut mm, |mm, cx| mm.free(cx, *pfn, Order(4)));
    }
    let zone = &mm.zones()[0];
    assert!(zone.buddy.free_frames() > free && zone.buddy.free_frames() < 2000 + 512);
    assert!(!zone.is_ok(Order::BASE, rules::gfp::Mark::Min, ZoneKind::Normal, Urgency::Normal, named("v6.1")));
}

#[test]
fn since_6_0_orders_on_pcp_lists_use_the_high_atomic_reserve() {
    for (name, finds) in [("v5.14", false), ("v6.1", true)] {
        let rules = *named(name);
        let mut mm = Memory::new(&machine(2, 0), rules, &settings(0));
        // A kept pageblock is all that is free.
        let user = AllocRequest::gfp_highuser_movable(NodeId(0)).of_order(Order::HUGE);
        let taken = [0; 2].map(|_| with(&mut mm, |mm, cx| mm.alloc(cx, &user)).unwrap());
        mm.frames.blocks.set_migrate_type(taken[0], MigrateType::HighAtomic);
        mm.zones[ZoneIndex(0)].high_atomic = 512;
        with(&mut mm, |mm, cx| {
            let block = crate::buddy::Block { pfn: taken[0], order: Order::HUGE };
            mm.frames.set(taken[0], Frame::Interior);
            mm.zones[ZoneIndex(0)].buddy.give(&mut mm.frames, cx, block, MigrateType::HighAtomic, None, &rules);
        });
        assert_eq!(with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(2))).is_ok(), finds, "{name}");
        assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(4))).is_ok());
        assert_eq!(with(&mut mm, |mm, cx| mm.alloc(cx, &atomic(0))), Err(NoMemory::Refused), "never for single frames");
    }
}

#[test]
fn at_most_one_part_in_a_hundred_and_one_pageblock_is_kept() {
    let mut mm = Memory::new(&machine(250, 0), *named("v6.1"), &settings(2000));
    with(&mut mm, |mm, cx| {
        for block in 0..10 {
            mm.zones[ZoneIndex(0)].reserve_high_atomic(&mut mm.frames, cx, Pfn(block * BLOCK), named("v6.1"));
        }
    });
    // 2.5 pageblocks and one: the fourth still begins below that.
    assert_eq!(blocks_of(&mm, MigrateType::HighAtomic), [0, 1, 2, 3]);
}

#[test]
fn kept_pageblocks_are_given_up_but_for_the_last() {
    let (mut mm, taken) = short_of_memory(*named("v6.1"));
    let other = taken.iter().find(|pfn| pfn.0 / BLOCK == 3).copied().unwrap();
    with(&mut mm, |mm, cx| {
        mm.alloc(cx, &atomic(4)).unwrap();
        mm.zones[ZoneIndex(0)].reserve_high_atomic(&mut mm.frames, cx, other, named("v6.1"));
        mm.free(cx, other, Order(4));
    });
    assert_eq!(blocks_of(&mm, MigrateType::HighAtomic).len(), 2);
    let user = AllocRequest::gfp_highuser_movable(NodeId(0));
    assert!(with(&mut mm, |mm, cx| mm.unreserve_high_atomic(cx, &user, false)));
    assert!(!with(&mut mm, |mm, cx| mm.unreserve_high_atomic(cx, &user, false)), "one stays");
    assert!(with(&mut mm, |mm, cx| mm.unreserve_high_atomic(cx, &user, true)));
    assert_eq!((blocks_of(&mm, MigrateType::HighAtomic).len(), mm.zones()[0].high_atomic), (0, 0));
    assert!(!with(&mut mm, |mm, cx| mm.unreserve_high_atomic(cx, &user, true)), "nothing is left");
}

#[test]
fn urgency_lowers_the_mark() {
    let lowered = Urgency::ALL.map(|urgency| urgency.lowered(1001));
    assert_eq!(lowered, [1001, 501, 751, 376]);
    assert_eq!(Urgency::Victim.lowered(1001), 501);
}
