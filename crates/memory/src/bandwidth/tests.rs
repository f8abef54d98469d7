use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::{Settings, ZoneKind},
};
use units::{Bytes, BytesPerSecond, CpuId};

use super::*;
use crate::{
    cost::{Prices, Spent},
    event::Counters,
};

/// Time of one CPU alone to clear or to copy a frame: 4,096 bytes per microsecond.
const ALONE: Picos = Picos::from_micros(1);
const HUGE: u64 = 512;

/// Two nodes of 32 MiB, each with such a limit.
fn machine(limit: Option<BytesPerSecond>) -> Memory {
    let node = |id: u32| {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(8192 * id), 8192);
        let distance = if id == 0 { vec![10, 20] } else { vec![20, 10] };
        NodeSpec { id: NodeId(id), cpus: vec![CpuId(id)], distance, zones: vec![zone] }
    };
    let spec = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node(0), node(1)] };
    let mut mm = Memory::new(&spec, *variant::named("v6.1"), &Settings::default());
    if let Some(limit) = limit {
        mm.limit_bandwidth(NodeId(0), limit);
        mm.limit_bandwidth(NodeId(1), limit);
    }
    mm
}

/// The bandwidth that `count` streams of one CPU each use up.
fn streams(count: u64) -> Option<BytesPerSecond> {
    BytesPerSecond::new(Bytes(4_096_000_000 * count))
}

fn on(mm: &mut Memory, cpu: u32, at: &mut Time, body: impl FnOnce(&mut Memory, &mut Cx<'_>)) -> Spent {
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

/// CPUs that clear for ever, always the one that is farthest behind; when each has cleared `each` runs of `order`.
fn race(mm: &mut Memory, cpus: u32, order: Order, each: u64, node: u32) -> Vec<u64> {
    let mut clocks = vec![Time(0); cpus as usize];
    for _ in 0..each * u64::from(cpus) {
        let (cpu, at) = (0..).zip(&mut clocks).min_by_key(|(_, at)| **at).unwrap();
        on(mm, cpu, at, |mm, cx| mm.clear(cx, Pfn(8192 * node), order));
    }
    clocks.iter().map(|at| at.0 / (ALONE.0 * u64::from(order.frames()) * each / 100)).collect()
}

#[test]
fn one_stream_is_not_affected() {
    for limit in [None, streams(1), streams(3)] {
        for order in [Order::BASE, Order::HUGE] {
            assert_eq!(race(&mut machine(limit), 1, order, 1000, 0), [100], "{limit:?}, in percent");
        }
    }
}

#[test]
fn two_streams_at_half_of_what_they_want_take_twice_as_long() {
    for order in [Order::BASE, Order::HUGE] {
        for share in race(&mut machine(streams(1)), 2, order, 1000, 1) {
            assert!((198..=200).contains(&share), "{share} % of the time alone");
        }
        for share in race(&mut machine(streams(2)), 3, order, 1000, 1) {
            assert!((148..=150).contains(&share), "{share} % of the time alone");
        }
        assert_eq!(race(&mut machine(streams(2)), 2, order, 1000, 1), [100, 100], "there is enough for two");
        assert_eq!(race(&mut machine(None), 4, order, 1000, 1), [100; 4]);
    }
}

#[test]
fn nodes_are_apart() {
    let mut mm = machine(streams(1));
    let mut clocks = [Time(0); 2];
    for _ in 0..100 {
        for (cpu, at) in (0..).zip(&mut clocks) {
            on(&mut mm, cpu, at, |mm, cx| mm.clear(cx, Pfn(8192 * cpu), Order::BASE));
        }
    }
    assert_eq!(clocks, [Time(100 * ALONE.0); 2]);
}

#[test]
fn a_copy_reads_and_writes() {
    for (to, waits) in [(Pfn(4096), HUGE), (Pfn(8192), 0)] {
        let mut mm = machine(streams(1));
        let spent = on(&mut mm, 0, &mut Time(0), |mm, cx| mm.copy(cx, Pfn(0), to, Order::HUGE));
        assert_eq!(spent.on(Cause::Copy), Picos(ALONE.0 * HUGE));
        assert_eq!(spent.on(Cause::Bandwidth), Picos(ALONE.0 * waits), "to frame {to}");
    }
}

/// Within a quantum it does not matter which CPU is simulated first, as long as there is enough for both.
#[test]
fn a_cpu_that_comes_late_finds_what_the_others_left() {
    let late = |quantum: u64| {
        let mut mm = machine(streams(2));
        let mut clocks = [Time(100 * ALONE.0); 2];
        let mut waited = Picos(0);
        for _ in 0..1000 {
            for (cpu, at) in (0..).zip(&mut clocks) {
                for _ in 0..quantum {
                    waited += on(&mut mm, cpu, at, |mm, cx| mm.clear(cx, Pfn(0), Order::BASE)).on(Cause::Bandwidth);
                }
            }
        }
        waited
    };
    assert_eq!((late(1), late(2), late(4)), (Picos(0), Picos(0), Picos(0)));
    assert!(late(64) > Picos(0), "what was left long ago is gone");
}

#[test]
fn who_fills_pages_waits_for_memory_in_user_mode() {
    let mut mm = machine(streams(1));
    let (mut one, mut other) = (Time(0), Time(0));
    let fill = |mm: &mut Memory, cx: &mut Cx<'_>| mm.fill(cx, Pfn(0), HUGE);
    let first = on(&mut mm, 0, &mut one, fill);
    let second = on(&mut mm, 1, &mut other, fill);
    assert_eq!(first.on(Cause::User), Picos(ALONE.0 * HUGE));
    let both = Picos(2 * ALONE.0 * HUGE - SLACK.0);
    assert!(second.on(Cause::User) >= both && second.total() == second.on(Cause::User), "{second:?}");
}

/// A CPU of node 0 sweeps through node 0 as fast as memory lets it, while another one clears a huge page there, or copies one.
#[test]
fn a_clear_goes_past_flows_and_a_copy_does_not() {
    let mut mm = machine(streams(1));
    mm.flows_mut().note(0, (0, 0), (10, ALONE));
    mm.flows_mut().end_step(0, (0, None), Time(10 * ALONE.0), flows::End::GoesOn);
    mm.begin_flow_step(Time(30 * ALONE.0));
    let from = Time(40 * ALONE.0);
    let clear = on(&mut mm, 1, &mut from.clone(), |mm, cx| mm.clear(cx, Pfn(0), Order::HUGE));
    assert_eq!(clear.total(), Picos(ALONE.0 * HUGE));
    let later = Time(4000 * ALONE.0);
    let copy = on(&mut mm, 1, &mut later.clone(), |mm, cx| mm.copy(cx, Pfn(0), Pfn(8192), Order::HUGE));
    assert_eq!(copy.total(), Picos(2 * ALONE.0 * HUGE - SLACK.0), "half of the bandwidth is left: {copy:?}");
}
