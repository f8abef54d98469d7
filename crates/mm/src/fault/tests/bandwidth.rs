//! Linux: none.
//!
//! Tasks that clear and fill huge pages where a node's memory has a limit, beside others who clear.

use memory::{
    cost::{Cause, Prices, Spent, Work},
    cx::Cx,
    event::{Counters, Event},
    step::Step,
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::{Settings, ZoneKind},
};
use units::{Bytes, BytesPerSecond, CpuId, NodeId, Order, Pfn, Picos, Time, VirtAddr, Vpn};

use crate::{
    Mm,
    fault::touch::Touch,
    space::address_space::{AddressSpace, MMAP_BASE},
    thp::ThpEnabled,
    whole::check::{Owners, walk, walk_owners},
};

/// Time of one CPU alone to clear or to copy a frame: 4,096 bytes per microsecond.
const ALONE: Picos = Picos::from_micros(1);
const HUGE: u64 = 512;

/// Two nodes of 32 MiB, each with such a limit.
fn machine(limit: Option<BytesPerSecond>) -> Mm {
    let node = |id: u32| {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(8192 * id), 8192);
        let distance = if id == 0 { vec![10, 20] } else { vec![20, 10] };
        NodeSpec { id: NodeId(id), cpus: vec![CpuId(id)], distance, zones: vec![zone] }
    };
    let spec = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node(0), node(1)] };
    let mut mm = Mm::new(&spec, *variant::named("v6.1"), &Settings::default());
    if let Some(limit) = limit {
        mm.memory.limit_bandwidth(NodeId(0), limit);
        mm.memory.limit_bandwidth(NodeId(1), limit);
    }
    mm
}

/// So many bytes per second that as many streams of one CPU each use it up.
fn streams(count: u64) -> Option<BytesPerSecond> {
    BytesPerSecond::new(Bytes(4_096_000_000 * count))
}

fn on(mm: &mut Mm, cpu: u32, at: &mut Time, body: impl FnOnce(&mut Mm, &mut Cx<'_>)) -> Spent {
    let moves = |work| matches!(work, Work::ClearFrame | Work::CopyFrame | Work::UserFill);
    let price = |work| if moves(work) { ALONE } else { Picos(0) };
    let (prices, mut counters) = (Prices::new(price), Counters::default());
    let mut cx = Cx::new(CpuId(cpu), *at, &prices, &mut counters);
    body(mm, &mut cx);
    let spent = *cx.spent();
    assert_eq!(spent.total(), cx.now().since(*at), "the parts sum to the total");
    *at = cx.now();
    spent
}

/// A process, and where it may have a huge page that it is about to fill.
fn filling(mm: &mut Mm) -> (AddressSpace, Touch) {
    mm.thp.enabled = ThpEnabled::Always;
    let mut made = None;
    on(mm, 0, &mut Time(0), |mm, cx| {
        let mut space = AddressSpace::new(mm, cx, MMAP_BASE).unwrap();
        let room = space.mmap(mm, cx, 2 * HUGE).unwrap();
        let start = Vpn(room.start.0.next_multiple_of(HUGE));
        made = Some((space, Touch::fill(VirtAddr(start.0 * Bytes::PAGE.0), Bytes(HUGE * Bytes::PAGE.0))));
    });
    made.unwrap()
}

#[test]
fn who_clears_and_fills_a_huge_page_leaves_others_their_part() {
    let mut mm = machine(streams(1));
    let (mut space, mut touch) = filling(&mut mm);
    // Both begin when what the process took has been served.
    let begin = Time(100 * ALONE.0);
    let (mut one, mut other) = (begin, begin);
    let (mut frames, mut faults, mut longest, mut is_done) = (0_u64, 0, Picos(0), false);
    // Bound: each turn of the first clears or fills a frame, or goes on with its fault.
    while !is_done {
        if one <= other {
            let horizon = one;
            on(&mut mm, 0, &mut one, |mm, cx| {
                is_done = matches!(touch.step(mm, &mut space, cx, horizon), Step::Done(_));
                faults += cx.faults().taken;
            });
        } else {
            let spent = on(&mut mm, 1, &mut other, |mm, cx| mm.memory.clear(cx, Pfn(4096), Order::BASE));
            longest = longest.max(spent.on(Cause::Bandwidth));
            frames += 1;
        }
    }
    assert_eq!(faults, 1, "one for all of the huge page");
    assert!(longest <= Picos(2 * ALONE.0), "nobody waits for more than a frame or two: {longest}");
    let took = one.since(begin).0 / ALONE.0;
    assert!((2 * 2 * HUGE..=2 * 2 * HUGE + 2 * HUGE).contains(&took), "{took} us to clear and to fill, beside another");
    assert!((frames * 2).abs_diff(took) < took / 10, "{frames} frames for the other in {took} us");
}

#[test]
fn a_huge_page_that_is_not_clear_yet_is_given_back() {
    let mut mm = machine(streams(1));
    let (mut space, mut touch) = filling(&mut mm);
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    for _ in 0..100 {
        assert!(matches!(touch.step(&mut mm, &mut space, &mut cx, Time(0)), Step::More));
    }
    let held = touch.holdings(&space);
    assert_eq!(held.isolated.iter().map(|held| held.order).collect::<Vec<_>>(), [Order::HUGE, Order::BASE]);
    walk_owners(&mm, &Owners { spaces: vec![&space], controls: vec![(cx.control(), held)] }).unwrap();
    touch.abort(&mut mm, &mut space, &mut cx);
    walk(&mm).unwrap();
    walk_owners(&mm, &Owners { spaces: vec![&space], controls: Vec::new() }).unwrap();
    assert_eq!(counters.get(Event::ThpFaultAlloc), 0);
}
