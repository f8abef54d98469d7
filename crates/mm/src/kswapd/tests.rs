use units::{CpuId, NodeId, Pfn, Time};

use super::*;
use crate::{AllocRequest, MachineSpec, NodeSpec, Settings, ZoneSpec, cost::Prices, event::Counters, variant::named};

fn machine() -> Mm {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 16 << 10);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    Mm::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 4096, ..Settings::default() })
}

fn at<T>(mm: &mut Mm, counters: &mut Counters, now: u64, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
    let prices = Prices::free();
    body(mm, &mut Cx::new(CpuId(0), Time(now), &prices, counters))
}

#[test]
fn it_wakes_below_low_tries_sixteen_times_and_sleeps_when_there_is_nothing() {
    let (mut mm, mut counters) = (machine(), Counters::default());
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let marks = mm.zones()[0].marks;
    let mut taken = Vec::new();
    while !mm.has_woken() {
        taken.push(at(&mut mm, &mut counters, 0, |mm, cx| mm.alloc(cx, &request)).unwrap());
    }
    assert!(mm.zones()[0].buddy.free_frames() <= marks.low.0, "not before the Low mark");
    assert_eq!(mm.take_woken(), [0]);
    let mut passes = 0;
    let wait = loop {
        match at(&mut mm, &mut counters, 7, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, 0)) {
            Step::More => passes += 1,
            Step::Block(wait) => break wait,
            Step::Done(()) => unreachable!("a daemon has no end"),
        }
    };
    assert_eq!((passes, mm.kswapds()[0].failures(), counters.get(Event::Pageoutrun)), (16 * 12 - 1, 16, 16));
    assert_eq!(wait, Wait::Until(Time(7) + SHORT_SLEEP));
    assert_eq!(
        at(&mut mm, &mut counters, 8, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, 0)),
        Step::Block(Wait::Queue)
    );
    taken.push(at(&mut mm, &mut counters, 9, |mm, cx| mm.alloc(cx, &request)).unwrap());
    assert!(!mm.has_woken(), "hopeless: left alone");
}

#[test]
fn it_sleeps_again_when_the_memory_has_come_back() {
    let (mut mm, mut counters) = (machine(), Counters::default());
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let mut taken = Vec::new();
    while !mm.has_woken() {
        taken.push(at(&mut mm, &mut counters, 0, |mm, cx| mm.alloc(cx, &request)).unwrap());
    }
    for pfn in taken {
        at(&mut mm, &mut counters, 0, |mm, cx| mm.free(cx, pfn, Order::BASE));
    }
    let step = at(&mut mm, &mut counters, 1, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, 0));
    assert_eq!(step, Step::Block(Wait::Until(Time(1) + SHORT_SLEEP)));
    assert_eq!((mm.kswapds()[0].failures(), counters.get(Event::Pageoutrun)), (0, 1));
}
