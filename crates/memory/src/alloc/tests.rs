//! The fast path: zonelists, per-CPU lists, fair zones and ALLOC_NOFRAGMENT, held to the rules of releases.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rules::{
    gfp::Mobility,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Time};

use crate::check::walk;

use super::*;
use crate::{
    cost::{Prices, Work},
    event::Counters,
};

/// A machine of one zone, behind frames of no zone. Large enough for per-CPU lists of more than one frame.
fn small(rules: &str) -> Memory {
    small_with(rules, 0)
}

fn small_with(rules: &str, percpu_pagelist_high_fraction: u32) -> Memory {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(64), 1 << 14);
    let node = NodeSpec { id: NodeId(2), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes: vec![node] };
    let settings = Settings { min_free_kbytes: 1024, percpu_pagelist_high_fraction, ..Settings::default() };
    Memory::new(&machine, *named(rules), &settings)
}

/// The result of an operation, its time and its counts, with prices that differ.
fn with<T>(mm: &mut Memory, body: impl FnOnce(&mut Memory, &mut Cx<'_>) -> T) -> (T, u64, Counters) {
    let prices = Prices::new(|work: Work| units::Picos(1 << (work as u32)));
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let result = body(mm, &mut cx);
    let spent = cx.spent().total().0;
    (result, spent, counters)
}

fn counted(counters: &Counters) -> Vec<(Event, u64)> {
    counters.iter().filter(|(_, n)| *n > 0).collect()
}

const USER: AllocRequest = AllocRequest::gfp_highuser_movable(NodeId(2));

#[test]
fn the_short_way_is_the_long_way_in_short() {
    for rules in ["v3.9", "v4.1", "v6.1"] {
        let mut short = small(rules);
        with(&mut short, |mm, cx| mm.alloc(cx, &USER)).0.expect("there is memory");
        let mut long = short.clone();
        let listed = with(&mut short, |mm, cx| mm.alloc_listed(cx, &USER, 0));
        assert_eq!(listed, with(&mut long, |mm, cx| mm.alloc_anywhere(cx, &USER, 0).ok()), "{rules}");
        let (pfn, spent, counters) = listed;
        let pfn = pfn.expect("the first one has filled the list");
        assert_eq!(spent, 1 << (Work::AllocFast as u32), "{rules}");
        let events = [Event::PgallocNormal, Event::NumaHit, Event::NumaLocal];
        assert_eq!(counted(&counters), events.map(|event| (event, 1)), "{rules}");
        assert_eq!(short.frames.raw(pfn), long.frames.raw(pfn), "{rules}");

        let (is_freed, spent, counters) = with(&mut short, |mm, cx| mm.free_to_list(cx, pfn));
        assert!(is_freed, "{rules}: the list is short");
        let their = with(&mut long, |mm, cx| mm.free_anywhere(cx, pfn, Order::BASE, ListEnd::Head));
        assert_eq!(((), spent, counters.clone()), their, "{rules}");
        assert_eq!(spent, 1 << (Work::FreeFast as u32), "{rules}");
        assert_eq!(counted(&counters), [(Event::Pgfree, 1)], "{rules}");
        assert_eq!(short.frames.raw(pfn), long.frames.raw(pfn), "{rules}");
        assert_eq!((walk(&short), walk(&long)), (Ok(()), Ok(())), "{rules}");
    }
}

#[test]
fn what_is_not_the_callers_is_not_freed() {
    let mut mm = small("v6.1");
    let (pfns, ..) = with(&mut mm, |mm, cx| [0; 2].map(|_| mm.alloc(cx, &USER).expect("there is memory")));
    let free = |pfn: Pfn, order: Order, damage: fn(&mut Memory, Pfn)| {
        let mut mm = mm.clone();
        damage(&mut mm, pfn);
        catch_unwind(AssertUnwindSafe(|| with(&mut mm, |mm, cx| mm.free(cx, pfn, order)))).is_ok()
    };
    assert!(free(pfns[0], Order::BASE, |_, _| {}), "this is how it is done");
    let twice = |mm: &mut Memory, pfn| {
        with(mm, |mm, cx| mm.free(cx, pfn, Order::BASE));
    };
    assert!(!free(pfns[0], Order::BASE, twice), "freed twice");
    assert!(!free(pfns[0], Order(1), |_, _| {}), "as more than it is");
    assert!(!free(Pfn(64 + (1 << 14) - 1), Order::BASE, |_, _| {}), "free already");
    assert!(!free(Pfn(3), Order::BASE, |_, _| {}), "of no zone");
    let linked = |mm: &mut Memory, pfn| *mm.frames.raw_mut(pfn).1 = 1;
    assert!(!free(pfns[0], Order::BASE, linked), "still on a list");
    let head =
        |mm: &mut Memory, pfn| mm.frames.set(pfn, Frame::Kernel { order: Order(1), mobility: Mobility::Movable });
    assert!(!free(pfns[0], Order::BASE, head), "as less than it is");
}

#[test]
fn pcp_free_batches_double_up_to_a_bound_while_only_freeing() {
    let largest = |rules| {
        let mut mm = small_with(rules, 8);
        let taken: Vec<_> = (0..8000).map(|_| with(&mut mm, |mm, cx| mm.alloc(cx, &USER)).0.unwrap()).collect();
        let free = |mm: &Memory| mm.zones()[0].buddy.free_frames();
        let mut give = |pfn| {
            let before = free(&mm);
            with(&mut mm, |mm, cx| mm.free(cx, pfn, Order::BASE));
            free(&mm) - before
        };
        taken.into_iter().map(&mut give).max().unwrap()
    };
    // An eighth of 16384 frames may be kept, in batches of 3.
    assert_eq!(largest("v6.1"), 3 << 5);
    assert_eq!(largest("v6.4"), 16384 / 8 - 3, "all but a batch");
    assert_eq!(largest("v5.10"), 96, "a batch");
}

/// A node of two zones, the lower one three times as large.
fn two_zones(rules: &str) -> Memory {
    let [low, high] = [3 << 12, 1 << 12];
    let zones =
        vec![ZoneSpec::whole(ZoneKind::Dma32, Pfn(64), low), ZoneSpec::whole(ZoneKind::Normal, Pfn(64 + low), high)];
    let node = NodeSpec { id: NodeId(2), cpus: vec![CpuId(0)], distance: vec![10], zones };
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes: vec![node] };
    let settings = Settings { min_free_kbytes: 4096, lowmem_reserve_ratio: vec![0; 4], ..Settings::default() };
    Memory::new(&machine, *named(rules), &settings)
}

/// Frames of each of the two zones that `requests` requests get.
fn shares(mm: &mut Memory, requests: u32, request: &AllocRequest) -> [u64; 2] {
    let ((), _, counters) = with(mm, |mm, cx| {
        for _ in 0..requests {
            mm.alloc(cx, request).expect("there is memory");
        }
    });
    walk(mm).unwrap();
    [Event::PgallocDma32, Event::PgallocNormal].map(|event| counters.get(event))
}

#[test]
fn zones_take_turns_from_3_12_to_4_7() {
    for (rules, is_fair) in [("v3.9", false), ("v3.16", true), ("v4.1", true), ("v4.7", true), ("v4.8", false)] {
        for order in [Order::BASE, Order(3)] {
            let mut mm = two_zones(rules);
            let request = USER.of_order(order);
            // Ten turns, each a quarter of the Min mark.
            let [low, high] = shares(&mut mm, 2560 >> order.0, &request);
            let expected = if is_fair { (1920, 640) } else { (0, 2560) };
            assert_eq!((low, high), expected, "{rules} {order}");
        }
    }
}

#[test]
fn a_fair_turn_ends_with_the_last_frame_for_all_zones() {
    let mut mm = two_zones("v4.1");
    let spans = [0, 1].map(|zone: usize| mm.zones()[zone].marks.high.0 - mm.zones()[zone].marks.low.0);
    assert_eq!(spans[0], 3 * spans[1]);
    let turn = |mm: &mut Memory, frames: u64| shares(mm, u32::try_from(frames).unwrap(), &USER);
    assert_eq!(turn(&mut mm, spans[1]), [0, spans[1]], "the preferred zone first");
    assert!(mm.zones()[1].fair.is_depleted() && !mm.zones()[0].fair.is_depleted());
    assert_eq!(turn(&mut mm, spans[0]), [spans[0], 0]);
    assert!(mm.zones()[0].fair.is_depleted());
    assert_eq!(turn(&mut mm, 1), [0, 1]);
    assert!([0, 1].iter().all(|zone: &usize| !mm.zones()[*zone].fair.is_depleted()));
    // What is given back changes nothing.
    let (pfn, ..) = with(&mut mm, |mm, cx| mm.alloc(cx, &USER).unwrap());
    with(&mut mm, |mm, cx| mm.free(cx, pfn, Order::BASE));
    assert_eq!(turn(&mut mm, spans[1] - 2), [0, spans[1] - 2]);
    assert_eq!(turn(&mut mm, 1), [1, 0]);
}

#[test]
fn a_zone_whose_turn_it_is_not_is_better_than_none() {
    let mut mm = two_zones("v4.1");
    let normal = mm.zones()[1].marks.high.0 - mm.zones()[1].marks.low.0;
    shares(&mut mm, u32::try_from(normal).unwrap(), &USER);
    // The other one is full.
    let dma32 = AllocRequest { highest: ZoneKind::Dma32, reclaims: false, ..USER };
    while with(&mut mm, |mm, cx| mm.alloc(cx, &dma32)).0.is_ok() {}
    assert!(mm.zones()[1].fair.is_depleted());
    assert_eq!(shares(&mut mm, 1, &USER), [0, 1]);
    assert!(!mm.zones()[1].fair.is_depleted(), "and it begins anew");
}

/// Takes frames until no more than `frames` are free.
fn leave(mm: &mut Memory, frames: u64) {
    while mm.zones()[0].buddy.free_frames() > frames {
        with(mm, |mm, cx| {
            mm.alloc(cx, &AllocRequest { mark: Mark::Min, ..USER }).expect("there is memory");
            mm.drain_all_pages(cx);
        });
    }
}

#[test]
fn before_4_6_local_requests_without_reclaim_stop_at_low() {
    let speculative = AllocRequest { reclaims: false, wakes_kswapd: false, ..USER }.this_node();
    for (rules, above_min) in [("v4.1", false), ("v4.4", false), ("v4.6", true), ("v4.8", true)] {
        let mut mm = small(rules);
        let marks = mm.zones()[0].marks;
        leave(&mut mm, marks.low.0 + 2);
        assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &speculative)).0.is_ok(), "{rules}");
        with(&mut mm, Memory::drain_all_pages);
        leave(&mut mm, marks.low.0);
        assert_eq!(with(&mut mm, |mm, cx| mm.alloc(cx, &speculative)).0.is_ok(), above_min, "{rules}");
        let anywhere = AllocRequest { this_node_only: false, ..speculative };
        assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &anywhere)).0.is_ok(), "{rules}");
    }
}

#[test]
fn before_4_4_who_may_not_wait_is_as_good_as_atomic() {
    let nowait = AllocRequest::gfp_nowait(NodeId(2));
    for (rules, is_harder) in [("v4.1", true), ("v4.4", false)] {
        let mut mm = small(rules);
        let min = mm.zones()[0].marks.min.0;
        leave(&mut mm, min + 1);
        with(&mut mm, Memory::drain_all_pages);
        with(&mut mm, |mm, cx| mm.alloc(cx, &AllocRequest { mark: Mark::Min, ..USER })).0.expect("the last one");
        with(&mut mm, Memory::drain_all_pages);
        assert_eq!(with(&mut mm, |mm, cx| mm.alloc(cx, &nowait)).0.is_ok(), is_harder, "{rules}");
        let huge = AllocRequest { wakes_kswapd: false, ..nowait };
        assert!(with(&mut mm, |mm, cx| mm.alloc(cx, &huge)).0.is_err(), "{rules}: not who leaves kswapd alone");
    }
}

#[test]
fn release_5_0_fragments_pageblocks_like_4_20_unlike_5_1() {
    for (rules, spares) in [("v4.20", false), ("v5.0", false), ("v5.1", true), ("v6.1", true)] {
        let mut mm = two_zones(rules);
        let normal = mm.zones()[1].start;
        let take = |mm: &mut Memory, request: &AllocRequest| {
            let pfn = with(mm, |mm, cx| mm.alloc(cx, request)).0.expect("there is memory");
            if pfn < normal {
                with(mm, |mm, cx| mm.free(cx, pfn, request.order));
            }
            Some(pfn).filter(|pfn| *pfn >= normal)
        };
        // Every second frame of Normal is free, and no pageblock of it.
        let taken: Vec<Pfn> = std::iter::from_fn(|| take(&mut mm, &USER)).collect();
        for pfn in taken.iter().step_by(2) {
            with(&mut mm, |mm, cx| mm.free(cx, *pfn, Order::BASE));
        }
        with(&mut mm, Memory::drain_all_pages);
        while take(&mut mm, &USER.of_order(Order(4))).is_some() {}
        assert_eq!(take(&mut mm, &AllocRequest::gfp_kernel(NodeId(2))).is_none(), spares, "{rules}");
    }
}

#[test]
fn since_5_9_atomic_requests_have_what_marks_were_raised_by() {
    let atomic = AllocRequest::gfp_atomic(NodeId(2));
    let requests = [atomic, atomic.of_order(Order(1)), AllocRequest { urgency: Urgency::Harder, ..atomic }];
    for (rules, served) in [("v5.0", [false; 3]), ("v5.8", [false; 3]), ("v5.9", [true, false, false])] {
        let mut mm = small(rules);
        mm.zones[ZoneIndex(0)].boost = 1 << 17;
        let got = requests.map(|request| with(&mut mm, |mm, cx| mm.alloc(cx, &request)).0.is_ok());
        assert_eq!(got, served, "{rules}");
    }
}

/// Nodes 10 apart from themselves; node 1 is nearer to node 2 than to node 0.
fn three_nodes(kinds: [Option<ZoneKind>; 3]) -> Memory {
    let distances = [[10, 40, 80], [40, 10, 20], [80, 20, 10]];
    let node = |(id, kind): (u32, Option<ZoneKind>)| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id)],
        distance: distances[id as usize].to_vec(),
        zones: kind.into_iter().map(|kind| ZoneSpec::whole(kind, Pfn(id << 14), 1 << 14)).collect(),
    };
    let nodes = (0..).zip(kinds).map(node).collect();
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes };
    Memory::new(&machine, *named("v6.6"), &Settings { min_free_kbytes: 1024, ..Settings::default() })
}

/// The node that serves a request of a task on node 1.
fn served(memory: &mut Memory, request: AllocRequest) -> NodeId {
    let pfn = with(memory, |memory, cx| memory.alloc(cx, &request)).0.expect("there is memory");
    NodeId(pfn.0 >> 14)
}

#[test]
fn a_node_without_memory_is_served_by_the_nearest_that_has_some() {
    let mut memory = three_nodes([Some(ZoneKind::Normal), None, Some(ZoneKind::Normal)]);
    for request in [AllocRequest::gfp_highuser_movable(NodeId(1)), AllocRequest::gfp_kernel(NodeId(1))] {
        assert_eq!(served(&mut memory, request), NodeId(2));
    }
    assert_eq!(walk(&memory), Ok(()));
}

#[test]
fn a_policy_for_movable_memory_alone_is_none_for_page_tables() {
    let mut memory = three_nodes([Some(ZoneKind::Normal), Some(ZoneKind::Movable), Some(ZoneKind::Normal)]);
    let bound = |request: AllocRequest, node: u32| AllocRequest { allowed: NodeMask::of([NodeId(node)]), ..request };
    let page = AllocRequest::gfp_highuser_movable(NodeId(1));
    let table = AllocRequest::gfp_pgtable_user(NodeId(1));
    assert_eq!(served(&mut memory, bound(page, 1)), NodeId(1));
    assert_eq!(served(&mut memory, bound(table, 1)), NodeId(2), "the nearest with kernel memory");
    // Nodes with kernel memory keep their policy for all requests.
    assert_eq!(served(&mut memory, bound(page, 0)), NodeId(0));
    assert_eq!(served(&mut memory, bound(table, 0)), NodeId(0));
    assert_eq!(walk(&memory), Ok(()));
}
