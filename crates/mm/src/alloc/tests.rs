use std::panic::{AssertUnwindSafe, catch_unwind};

use units::{CpuId, Time};

use super::*;
use crate::{
    MachineSpec, Mobility, NodeSpec, Settings, ZoneKind, ZoneSpec,
    check::walk,
    cost::{Prices, Work},
    event::Counters,
    variant::named,
};

/// A machine of one zone, behind frames of no zone. Large enough for per-CPU lists of more than one frame.
fn small(rules: &str) -> Mm {
    small_with(rules, 0)
}

fn small_with(rules: &str, percpu_pagelist_high_fraction: u32) -> Mm {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(64), 1 << 14);
    let node = NodeSpec { id: NodeId(2), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes: vec![node] };
    let settings = Settings { min_free_kbytes: 0, percpu_pagelist_high_fraction, ..Settings::default() };
    Mm::new(&machine, *named(rules), &settings)
}

/// What an operation takes and counts, with prices that differ.
fn with<T>(mm: &mut Mm, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> (T, u64, Counters) {
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
        let listed = with(&mut short, |mm, cx| mm.alloc_listed(cx, &USER));
        assert_eq!(listed, with(&mut long, |mm, cx| mm.alloc_anywhere(cx, &USER)), "{rules}");
        let (pfn, spent, counters) = listed;
        let pfn = pfn.expect("the first one has filled the list");
        assert_eq!(spent, 1 << (Work::AllocFast as u32), "{rules}");
        let events = [Event::PgallocNormal, Event::NumaHit, Event::NumaLocal];
        assert_eq!(counted(&counters), events.map(|event| (event, 1)), "{rules}");
        assert_eq!(short.frames.raw(pfn), long.frames.raw(pfn), "{rules}");

        let (is_freed, spent, counters) = with(&mut short, |mm, cx| mm.free_to_list(cx, pfn));
        assert!(is_freed, "{rules}: the list is short");
        let their = with(&mut long, |mm, cx| mm.free_anywhere(cx, pfn, Order::BASE));
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
    let free = |pfn: Pfn, order: Order, damage: fn(&mut Mm, Pfn)| {
        let mut mm = mm.clone();
        damage(&mut mm, pfn);
        catch_unwind(AssertUnwindSafe(|| with(&mut mm, |mm, cx| mm.free(cx, pfn, order)))).is_ok()
    };
    assert!(free(pfns[0], Order::BASE, |_, _| {}), "this is how it is done");
    let twice = |mm: &mut Mm, pfn| {
        with(mm, |mm, cx| mm.free(cx, pfn, Order::BASE));
    };
    assert!(!free(pfns[0], Order::BASE, twice), "freed twice");
    assert!(!free(pfns[0], Order(1), |_, _| {}), "as more than it is");
    assert!(!free(Pfn(64 + (1 << 14) - 1), Order::BASE, |_, _| {}), "free already");
    assert!(!free(Pfn(3), Order::BASE, |_, _| {}), "of no zone");
    let linked = |mm: &mut Mm, pfn| *mm.frames.raw_mut(pfn).1 = 1;
    assert!(!free(pfns[0], Order::BASE, linked), "still on a list");
    let head = |mm: &mut Mm, pfn| mm.frames.set(pfn, Frame::Kernel { order: Order(1), mobility: Mobility::Movable });
    assert!(!free(pfns[0], Order::BASE, head), "as less than it is");
}

#[test]
fn what_a_cpu_gives_back_doubles_up_to_a_bound_as_long_as_it_only_frees() {
    let largest = |rules| {
        let mut mm = small_with(rules, 8);
        let taken: Vec<_> = (0..8000).map(|_| with(&mut mm, |mm, cx| mm.alloc(cx, &USER)).0.unwrap()).collect();
        let free = |mm: &Mm| mm.zones()[0].buddy.free_frames();
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
