//! Both allocators behind the seam, by one and the same body.

use rules::{
    gfp::Mobility,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Picos, Time};

use super::*;
use crate::{Memory, cost::Prices, event::Counters, frame::Frame, llfree::LlFree};

const START: Pfn = Pfn(2048);
const FRAMES: u32 = 8192;

/// The contract, for an allocator that has all frames of the zone.
fn holds_for(allocator: &mut impl FrameAllocator, frames: &mut FrameTable) {
    let rules = named("v6.1");
    let (prices, mut counters) = (Prices::new(|_| Picos(1)), Counters::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let (list, end) = (MigrateType::Movable, ListEnd::Head);
    let all = u64::from(FRAMES);
    let state = |allocator: &_, frames: &_| {
        let mut visited = 0;
        FrameAllocator::visit_free(allocator, frames, |block| visited += u64::from(block.order.frames()));
        assert_eq!(FrameAllocator::check(allocator, frames), Ok(()));
        (visited, FrameAllocator::free_frames(allocator))
    };
    assert_eq!(state(allocator, frames), (all, all));
    assert_eq!(allocator.free_blocks(Order(10), None), 8);
    for order in (0..=allocator.max_order().0).map(Order) {
        let want = Want { order, list, whole_blocks_only: false, stalls: false, wakes_kswapd: false };
        let pfn = allocator.take(frames, &mut cx, (want, end), Urgency::Normal, rules).expect("all is free");
        frames.set(pfn, Frame::Kernel { order, mobility: Mobility::Movable });
        assert!(pfn.is_aligned(order) && !allocator.is_free(frames, pfn));
        allocator.give(frames, &mut cx, Block { pfn, order }, (list, end), rules);
        allocator.drain(frames, &mut cx, rules);
        assert_eq!(state(allocator, frames), (all, all), "order {order}");
    }
    let block = Block { pfn: START.plus(1024 + 96), order: Order(3) };
    assert!(allocator.take_at(frames, &mut cx, block, rules) && !allocator.take_at(frames, &mut cx, block, rules));
    assert!(!allocator.take_at(frames, &mut cx, Block { order: Order(5), ..block }, rules), "part of it is taken");
    assert_eq!(state(allocator, frames), (all - 8, all - 8));
    let free: Vec<bool> = (95..105).map(|n| allocator.is_free(frames, START.plus(1024 + n))).collect();
    assert_eq!(free, [true, false, false, false, false, false, false, false, false, true]);
    let counted: Vec<u64> = (0..=10).map(|order| allocator.free_blocks(Order(order), None)).collect();
    assert_eq!(counted, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 7], "the rest of the block around it");
    frames.set(block.pfn, Frame::Kernel { order: block.order, mobility: Mobility::Movable });
    allocator.give(frames, &mut cx, block, (list, end), rules);
    allocator.drain(frames, &mut cx, rules);
    assert_eq!((state(allocator, frames), allocator.free_blocks(Order(10), None)), ((all, all), 8));
}

fn machine() -> Memory {
    let zone = ZoneSpec::whole(ZoneKind::Normal, START, FRAMES);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    Memory::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 1024, ..Settings::default() })
}

#[test]
fn both_allocators_hold_the_contract() {
    let Memory { mut frames, mut zones, .. } = machine();
    let zone = zones.iter_mut().next().expect("there is one");
    holds_for(zone, &mut frames);
    let mut all = LlFree::new(START, START.plus(FRAMES), 1);
    all.release(START, START.plus(FRAMES));
    holds_for(&mut all, &mut frames);
}

#[test]
#[should_panic(expected = "LLFree has no migrate types")]
fn llfree_is_not_asked_for_blocks_of_a_type() {
    FrameAllocator::free_blocks(&LlFree::new(START, START.plus(8), 1), Order(0), Some(MigrateType::Movable));
}

#[test]
fn free_lists_whose_count_is_wrong_are_found() {
    let Memory { mut frames, mut zones, .. } = machine();
    let zone = zones.iter_mut().next().expect("there is one");
    frames.clear_free(START, Order(10));
    assert_eq!(zone.check(&frames), Err(format!("frame {START} is on a list of order 10, but is no such block")));
}
