//! The walk over the page allocator's state against states that were damaged in one place.

use rules::{
    gfp::{AllocRequest, Mobility},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{Frames, NodeId, Time};

use super::*;
use crate::{cost::Prices, cx::Cx, event::Counters, frame::FamilyId};

const SEEDS: u32 = 40;
const OPERATIONS: u32 = 400;

/// Numbers that depend on a seed alone.
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % n
    }
}

fn with<T>(mm: &mut Memory, body: impl FnOnce(&mut Memory, &mut Cx<'_>) -> T) -> T {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    body(mm, &mut Cx::new(CpuId(0), Time(0), &prices, &mut counters))
}

/// A machine of one zone after some operations, and as it was some operations before.
fn used(numbers: &mut Numbers) -> (Memory, Memory) {
    let zone = ZoneSpec { managed: Frames(500), ..ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 512) };
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(5), nodes: vec![node] };
    let mut mm = Memory::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 0, ..Settings::default() });
    let mut earlier = mm.clone();
    let mut live = Vec::new();
    for operation in 0..OPERATIONS {
        if operation == OPERATIONS / 2 {
            earlier = mm.clone();
        }
        if numbers.below(5) < 2 && live.len() > 20 {
            let (pfn, order) = live.swap_remove(numbers.below(live.len()));
            with(&mut mm, |mm, cx| mm.free(cx, pfn, order));
            continue;
        }
        let order = Order(u8::try_from(numbers.below(5) / 2).unwrap());
        let request = AllocRequest { mobility: Mobility::Movable, ..AllocRequest::gfp_kernel(NodeId(0)) };
        if let Ok(pfn) = with(&mut mm, |mm, cx| mm.alloc(cx, &request.of_order(order))) {
            if order > Order::BASE {
                mm.frames.set(pfn, Frame::Anon { family: FamilyId(0), vpn: units::Vpn(0), order });
            }
            live.push((pfn, order));
        }
    }
    // Leave some blocks of every size: free a good part of it.
    for (pfn, order) in live.drain(live.len() / 3..) {
        with(&mut mm, |mm, cx| mm.free(cx, pfn, order));
    }
    // And one frame on the per-CPU list.
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let last = with(&mut mm, |mm, cx| mm.alloc(cx, &request)).expect("there is memory");
    with(&mut mm, |mm, cx| mm.free(cx, last, Order::BASE));
    (mm, earlier)
}

/// A frame for which something holds.
fn any(mm: &Memory, numbers: &mut Numbers, what: &str, holds: impl Fn(Pfn, Frame) -> bool) -> Pfn {
    let all: Vec<Pfn> = (0..mm.frames.len()).map(Pfn).filter(|pfn| holds(*pfn, mm.frames.get(*pfn))).collect();
    assert!(!all.is_empty(), "the state has {what}");
    all[numbers.below(all.len())]
}

type Damage = fn(&mut Memory, &Memory, &mut Numbers);

const BIG: Order = Order(4);

fn small_free(mm: &Memory, numbers: &mut Numbers) -> Pfn {
    any(mm, numbers, "a small free block", |_, frame| matches!(frame, Frame::Free { order, .. } if order < BIG))
}

fn big_free(mm: &Memory, numbers: &mut Numbers) -> Pfn {
    any(mm, numbers, "a large free block", |_, frame| matches!(frame, Frame::Free { order, .. } if order >= BIG))
}

fn in_pcp(mm: &Memory, numbers: &mut Numbers) -> Pfn {
    any(mm, numbers, "a frame on a per-CPU list", |_, frame| matches!(frame, Frame::Pcp { .. }))
}

fn allocated(mm: &Memory, numbers: &mut Numbers) -> Pfn {
    any(mm, numbers, "an allocated frame", |_, frame| matches!(frame, Frame::Kernel { .. }))
}

const DAMAGES: [(&str, Damage); 17] = [
    ("a link towards the tail", |mm, _, n| {
        let pfn = small_free(mm, n);
        *mm.frames.raw_mut(pfn).1 ^= 1 << (32 + n.below(32));
    }),
    ("a link towards the head", |mm, _, n| {
        let pfn = small_free(mm, n);
        *mm.frames.raw_mut(pfn).1 ^= 1 << n.below(32);
    }),
    ("a link of a large block", |mm, _, n| {
        let pfn = big_free(mm, n);
        *mm.frames.raw_block_mut(pfn).1 ^= 1 << n.below(64);
    }),
    ("a link of a frame on a per-CPU list", |mm, _, n| {
        let pfn = in_pcp(mm, n);
        *mm.frames.raw_mut(pfn).1 ^= 1 << n.below(64);
    }),
    ("a per-CPU list that leads elsewhere", |mm, _, n| {
        let lists = mm.zones[ZoneIndex(0)].pcps[0].lists_mut();
        let list = lists.iter_mut().map(Stack::blocks_mut).find(|list| !list.is_empty()).expect("a frame is on a list");
        list[n.below(list.len())].0 ^= 1 << n.below(32);
    }),
    ("a frame less on a per-CPU list", |mm, _, _| {
        let lists = mm.zones[ZoneIndex(0)].pcps[0].lists_mut();
        lists.iter_mut().find_map(Stack::pop_tail).expect("a frame is on a list");
    }),
    ("a free block forgotten", |mm, _, n| {
        let pfn = small_free(mm, n);
        *mm.frames.raw_mut(pfn).0 = 0;
    }),
    ("a large free block forgotten", |mm, _, n| {
        let pfn = big_free(mm, n);
        *mm.frames.raw_block_mut(pfn).0 = 0;
    }),
    ("a free block of another order", |mm, _, n| {
        let pfn = small_free(mm, n);
        *mm.frames.raw_mut(pfn).0 ^= 1 << (4 + n.below(4));
    }),
    ("a free block of another list", |mm, _, n| {
        let pfn = small_free(mm, n);
        *mm.frames.raw_mut(pfn).0 ^= 1 << 16;
    }),
    ("an allocated frame that says it is free", |mm, _, n| {
        let pfn = allocated(mm, n);
        mm.frames.set(pfn, Frame::Free { order: Order::BASE, list: MigrateType::Movable, reported: false });
    }),
    ("a per-CPU frame that says it is allocated", |mm, _, n| {
        let pfn = in_pcp(mm, n);
        mm.frames.set(pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Movable });
    }),
    ("an interior that says something", |mm, _, n| {
        let pfn = any(mm, n, "an interior", |_, frame| frame == Frame::Interior);
        mm.frames.set(pfn, Frame::PageTable);
    }),
    ("an interior with links", |mm, _, n| {
        let pfn = any(mm, n, "an interior", |_, frame| frame == Frame::Interior);
        *mm.frames.raw_mut(pfn).1 = 1 << n.below(64);
    }),
    ("free lists of yesterday", |mm, earlier, _| {
        mm.zones[ZoneIndex(0)].buddy = earlier.zones[ZoneIndex(0)].buddy.clone();
    }),
    ("per-CPU lists of yesterday", |mm, earlier, _| {
        mm.zones[ZoneIndex(0)].pcps = earlier.zones[ZoneIndex(0)].pcps.clone();
    }),
    ("a page table that was not counted", |mm, _, n| {
        let pfn = allocated(mm, n);
        mm.frames.set(pfn, Frame::PageTable);
    }),
];

#[test]
fn every_damage_is_noticed() {
    for seed in 0..SEEDS {
        let mut numbers = Numbers(seed);
        let (mm, earlier) = used(&mut numbers);
        assert_eq!(walk(&mm), Ok(()), "seed {seed}");
        for (what, damage) in DAMAGES {
            let mut damaged = mm.clone();
            damage(&mut damaged, &earlier, &mut numbers);
            // A kind, type or mobility that does not exist is a panic, not a verdict.
            let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walk(&damaged)));
            assert!(!matches!(verdict, Ok(Ok(()))), "seed {seed}: {what} went unnoticed");
        }
    }
}

#[test]
fn buddies_that_are_both_free_are_noticed() {
    let mut numbers = Numbers(0);
    let (mut mm, _) = used(&mut numbers);
    let pfn = big_free(&mm, &mut numbers);
    let Frame::Free { order, list, .. } = mm.frames.get(pfn) else { unreachable!() };
    let half = Order(order.0 - 1);
    with(&mut mm, |mm, cx| {
        let Memory { zones, frames, .. } = mm;
        let buddy = &mut zones[ZoneIndex(0)].buddy;
        buddy.take(frames, cx, crate::buddy::Block { pfn, order }, half, list);
        // While the upper half looks taken, the lower one finds nobody to merge with.
        let upper = pfn.buddy(half);
        let was = frames.get(upper);
        let words = frames.raw(upper);
        let blocks = frames.raw_block(upper);
        *frames.raw_block_mut(upper).0 = 0;
        frames.set(upper, Frame::PageTable);
        buddy.give(frames, cx, crate::buddy::Block { pfn, order: half }, list, None, named("v6.1"));
        *frames.raw_mut(upper).0 = words.0;
        *frames.raw_block_mut(upper).0 = blocks.0;
        assert_eq!(frames.get(upper), was);
    });
    let broken = walk(&mm).unwrap_err().to_string();
    assert!(broken.contains("and so is its buddy"), "{broken}");
}

#[test]
fn a_broken_state_says_where() {
    let mut numbers = Numbers(1);
    let (mut mm, _) = used(&mut numbers);
    let pfn = allocated(&mm, &mut numbers);
    mm.frames.set(pfn, Frame::Free { order: Order::BASE, list: MigrateType::Movable, reported: false });
    assert_eq!(walk(&mm).unwrap_err().pfn, Some(pfn));
}
