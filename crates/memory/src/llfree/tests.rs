//! LLFree beside a naive twin, at the ends of its zone, and with its state damaged.

mod twin;

use std::panic::{AssertUnwindSafe, catch_unwind};

use units::{CpuId, Order, Pfn, Picos, Time};

use self::twin::Twin;
use super::{trees::Tree, *};
use crate::{
    cost::{Cause, Prices, Work},
    event::Counters,
    splitmix::{SPLITMIX_STEP, mix},
};

/// Does something as a CPU, and says what it took.
fn on<T>(cpu: u32, body: impl FnOnce(&mut Cx<'_>) -> T) -> (T, Picos) {
    let prices = Prices::new(|work| Picos(if work == Work::LineTransfer { 1000 } else { 1 }));
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(cpu), Time(1_000_000), &prices, &mut counters);
    let result = body(&mut cx);
    let spent = cx.spent().on(Cause::Allocator);
    (result, spent)
}

fn of(start: u32, end: u32, cpus: u32) -> LlFree {
    let mut all = LlFree::new(Pfn(start), Pfn(end), cpus);
    all.release(Pfn(start), Pfn(end));
    assert_eq!((all.check(), all.free_frames()), (Ok(()), u64::from(end - start)));
    all
}

fn alloc(all: &mut LlFree, cpu: u32, order: u8) -> Option<u32> {
    on(cpu, |cx| all.alloc(cx, Order(order))).0.map(|pfn| pfn.0)
}

fn free(all: &mut LlFree, cpu: u32, pfn: u32, order: u8) {
    on(cpu, |cx| all.free(cx, Pfn(pfn), Order(order)));
}

/// A stream of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(SPLITMIX_STEP);
        usize::try_from(mix(self.0) % n as u64).expect("below n")
    }
}

/// How often each thing is done, of 100; the rest are frees.
#[derive(Clone, Copy)]
struct Weights {
    alloc: usize,
    take_at: usize,
    /// Allocations are of order 0 so often, of 100; the others of any order.
    base: usize,
}

/// Does the same with both, and compares what they say and all that is free.
fn run_beside_twin(seed: u64, (start, end, cpus): (u32, u32, u32), weights: Weights, operations: usize) {
    let (mut all, mut twin) = (of(start, end, cpus), Twin::new(start, end, cpus));
    let mut draw = Draw(seed);
    let mut held: Vec<(u32, u8)> = Vec::new();
    for operation in 0..operations {
        let cpu = u32::try_from(draw.below(cpus as usize)).unwrap();
        let order = if draw.below(100) < weights.base { 0 } else { u8::try_from(draw.below(11)).unwrap() };
        let what = draw.below(100);
        if what < weights.alloc {
            let found = alloc(&mut all, cpu, order);
            assert_eq!(found, twin.alloc(cpu, order), "seed {seed}, operation {operation}, order {order}, CPU {cpu}");
            held.extend(found.map(|pfn| (pfn, order)));
        } else if what < weights.alloc + weights.take_at {
            let blocks = (end >> order) - start.div_ceil(1 << order);
            let pfn = (start.div_ceil(1 << order) + u32::try_from(draw.below(blocks as usize)).unwrap()) << order;
            let found = on(cpu, |cx| all.take_at(cx, Pfn(pfn), Order(order))).0;
            assert_eq!(found, twin.take_at(pfn, order), "seed {seed}, operation {operation}, frame {pfn}");
            held.extend(found.then_some((pfn, order)));
        } else if !held.is_empty() {
            let at = draw.below(held.len());
            let (pfn, order) = held.swap_remove(at);
            // Now and then in halves, as after a split.
            let halves = if order > 0 && draw.below(4) == 0 { 2 } else { 1 };
            let part = if halves == 2 { order - 1 } else { order };
            for half in 0..halves {
                free(&mut all, cpu, pfn + half * (1 << part), part);
                twin.free(cpu, pfn + half * (1 << part), part);
            }
        }
        if operation % 64 == 0 {
            assert_eq!(all.check(), Ok(()), "seed {seed}, operation {operation}");
            assert_eq!(all.free_frames(), twin.free_frames(), "seed {seed}, operation {operation}");
        }
    }
    let mut visited = Vec::new();
    all.visit_free(|pfn, order| visited.extend(pfn.0..pfn.0 + order.frames()));
    assert_eq!(visited, twin.free_list(), "seed {seed}");
    assert!((start..end).all(|pfn| all.is_free(Pfn(pfn)) == twin.is_free(pfn)));
    assert_eq!(all.free_blocks(), twin.free_blocks());
    assert_eq!([9, 10].map(|order| all.free_blocks_of(Order(order))), all.free_blocks()[9..]);
    // All of it comes back, whoever frees it.
    for (pfn, order) in held {
        free(&mut all, 0, pfn, order);
    }
    assert_eq!((all.check(), all.free_frames()), (Ok(()), u64::from(end - start)));
}

#[test]
fn random_operations_end_as_the_naive_twin_says() {
    let even = Weights { alloc: 50, take_at: 5, base: 60 };
    for seed in 0..12 {
        run_beside_twin(seed, (0, 5 * TREE, 3), even, 3000);
    }
}

#[test]
fn random_operations_in_full_memory_end_as_the_naive_twin_says() {
    let filling = Weights { alloc: 70, take_at: 2, base: 20 };
    for seed in 100..112 {
        run_beside_twin(seed, (0, 2 * TREE + 3 * AREA, 2), filling, 3000);
    }
    let bases = Weights { alloc: 55, take_at: 0, base: 100 };
    for seed in 200..202 {
        run_beside_twin(seed, (0, TREE / 4, 2), bases, 30_000);
    }
}

#[test]
fn random_operations_between_ends_that_are_not_aligned_end_as_the_naive_twin_says() {
    let even = Weights { alloc: 55, take_at: 5, base: 50 };
    for seed in 300..310 {
        let mut draw = Draw(seed);
        let start = 1 + u32::try_from(draw.below(5000)).unwrap();
        let end = start + 2000 + u32::try_from(draw.below(60_000)).unwrap();
        run_beside_twin(seed, (start, end, 4), even, 2000);
    }
}

#[test]
fn a_zone_gives_each_of_its_frames_once_and_takes_them_all_back() {
    for order in 0..=10 {
        let (start, end) = (700, 700 + 3 * TREE + 333);
        let mut all = of(start, end, 2);
        let mut taken = Vec::new();
        while let Some(pfn) = alloc(&mut all, u32::from(taken.len() % 2 == 1), order) {
            taken.push(pfn);
        }
        let blocks = (end >> order) - start.div_ceil(1 << order);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), blocks as usize, "order {order}");
        assert_eq!((taken[0] >= start, all.check()), (true, Ok(())));
        for pfn in taken {
            free(&mut all, 1, pfn, order);
        }
        assert_eq!((all.check(), all.free_frames()), (Ok(()), u64::from(end - start)));
        assert!(alloc(&mut all, 0, 10).is_some(), "what came back is whole again");
    }
}

#[test]
fn a_cpu_stays_in_its_tree_and_another_cpu_takes_another() {
    let mut all = of(0, 8 * TREE, 2);
    let [here, there]: [Vec<u32>; 2] = [0, 1].map(|cpu| (0..1000).filter_map(|_| alloc(&mut all, cpu, 0)).collect());
    assert_eq!(here, (0..1000).collect::<Vec<_>>());
    assert_eq!(there, (4 * TREE..4 * TREE + 1000).collect::<Vec<_>>());
}

#[test]
fn a_used_up_tree_is_followed_by_a_half_full_one_then_a_free_one_then_any() {
    let mut all = of(0, 6 * TREE, 1);
    let half = |all: &mut LlFree, tree: u32, frames: u32| {
        assert!((0..frames).all(|n| on(0, |cx| all.take_at(cx, Pfn(tree * TREE + n), Order(0))).0));
    };
    half(&mut all, 5, TREE - 100);
    half(&mut all, 4, TREE / 2);
    half(&mut all, 2, TREE - FEW - 1);
    let mut trees = Vec::new();
    while let Some(pfn) = alloc(&mut all, 0, 0) {
        if trees.last() != Some(&(pfn / TREE)) {
            trees.push(pfn / TREE);
        }
    }
    // The first search begins at tree 0: 4 is nearer to it than 2 is, around the end.
    assert_eq!(trees, [4, 2, 1, 0, 3, 5]);
    assert_eq!((all.free_frames(), all.check()), (0, Ok(())));
}

#[test]
fn a_cpu_that_frees_to_a_tree_without_a_cpu_four_times_in_a_row_has_it_then() {
    let mut all = of(0, 4 * TREE, 2);
    let frames: Vec<u32> = (0..TREE).filter_map(|_| alloc(&mut all, 0, 0)).collect();
    assert_eq!(alloc(&mut all, 0, 0), Some(3 * TREE), "tree 0 is used up");
    // Up to 1,024 free frames a tree is not worth it.
    for pfn in &frames[..FEW as usize] {
        free(&mut all, 1, *pfn, 0);
    }
    assert_eq!(all.reserved[1].tree, None);
    free(&mut all, 1, frames[2000], 0);
    assert_eq!((all.reserved[1].tree, all.reserved[1].free, all.check()), (Some(0), FEW + 1, Ok(())));
    assert_eq!(alloc(&mut all, 1, 0), Some(0));
    free(&mut all, 0, 3 * TREE, 0);
    assert_eq!(all.reserved[0].tree, Some(3), "what its CPU frees to its own tree changes nothing");
}

#[test]
fn frames_that_others_free_to_a_cpus_tree_are_taken_over_when_they_are_many() {
    let mut all = of(0, 4 * TREE, 2);
    let frames: Vec<u32> = (0..TREE).filter_map(|_| alloc(&mut all, 0, 0)).collect();
    for pfn in &frames[100..100 + FEW as usize] {
        free(&mut all, 1, *pfn, 0);
    }
    assert_eq!((all.reserved[0].free, all.trees.each[0].free), (0, FEW));
    let mut few = all.clone();
    assert_eq!(alloc(&mut few, 0, 0), Some(3 * TREE));
    free(&mut all, 1, frames[5000], 0);
    let near = alloc(&mut all, 0, 0).expect("there are many");
    assert_eq!((near / TREE, all.reserved[0].free, all.trees.each[0].free, all.check()), (0, FEW, 0, Ok(())));
}

#[test]
fn part_of_a_huge_block_may_be_freed_and_small_ones_that_fill_an_area_as_one() {
    let mut all = of(0, TREE, 1);
    let huge = alloc(&mut all, 0, 9).unwrap();
    free(&mut all, 0, huge + 8, 3);
    assert_eq!((all.check(), all.free_frames()), (Ok(()), u64::from(TREE - AREA + 8)));
    assert!(all.is_free(Pfn(huge + 15)) && !all.is_free(Pfn(huge + 16)));
    let mut all = of(0, TREE, 1);
    assert!((0..512).all(|n| alloc(&mut all, 0, 0) == Some(n)));
    free(&mut all, 0, 0, 9);
    assert_eq!((all.check(), all.free_areas()), (Ok(()), 32));
}

#[test]
fn a_line_is_transferred_where_another_cpu_wrote_to_it_last() {
    let mut all = of(0, 4 * TREE, 2);
    let (pfn, first) = on(0, |cx| all.alloc(cx, Order(0)));
    let again = on(0, |cx| all.alloc(cx, Order(0))).1;
    assert_eq!((first, again), (Picos(1), Picos(1)), "nobody else has written there");
    // The bits, the area's counter and the tree's counter.
    let foreign = on(1, |cx| all.free(cx, pfn.unwrap(), Order(0))).1;
    assert_eq!(foreign.0 / 1000, 3, "{foreign:?}");
    assert_eq!(on(0, |cx| all.alloc(cx, Order(0))).1.0 / 1000, 2, "its own count is in a line of its own");
}

#[test]
fn what_is_not_allocated_is_not_freed() {
    let mut all = of(0, TREE, 1);
    let pfn = alloc(&mut all, 0, 3).unwrap();
    for (pfn, order) in [(pfn + 8, 0), (pfn, 4), (pfn, 9), (pfn + 1, 1), (TREE, 0)] {
        let mut copy = all.clone();
        let freed = catch_unwind(AssertUnwindSafe(|| free(&mut copy, 0, pfn, order)));
        assert!(freed.is_err(), "frame {pfn}, order {order}");
    }
}

#[test]
fn damage_is_named() {
    type Damage = fn(&mut LlFree);
    let cases: [(Damage, &str); 9] = [
        (|all| all.areas.counters[3].take(Order(0)), "area 3 counts 511 free frames, but 512 bits are clear"),
        (|all| all.areas.bits[0].set(511, Order(0), true), "area 0 counts 500 free frames, but 499 bits are clear"),
        (|all| all.areas.counters[0] = Counter::WHOLE, "area 0 is allocated whole, but 12 bits are set"),
        (|all| all.trees.each[1].free -= 1, "tree 1 and its CPU count 16383 and 0 free frames, but its areas 16384"),
        (|all| all.trees.each[0] = Tree { free: 5, cpu: None }, "tree 0 and its CPU count 5 and 0 free frames"),
        (|all| all.trees.each[2].cpu = Some(CpuId(1)), "tree 2 says that CPU 1 has it, but that CPU has not"),
        (|all| all.reserved[1].free = 7, "CPU 1 counts 7 free frames, but has no tree"),
        (|all| all.reserved[0].row = TREE / ROW, "CPU 0 looks in row 256, which is not of tree 0"),
        (|all| all.free += 1, "65525 free frames are counted, but there are 65524"),
    ];
    let mut all = of(0, 4 * TREE, 2);
    assert!((0..12).all(|n| alloc(&mut all, 0, 0) == Some(n)));
    for (damage, what) in cases {
        let mut copy = all.clone();
        damage(&mut copy);
        let found = copy.check().expect_err(what);
        assert!(found.starts_with(what), "{found}");
    }
    let mut all = of(100, TREE, 1);
    all.areas.bits[0].set(0, Order(0), false);
    all.areas.counters[0].add(Order(0));
    assert_eq!(all.check(), Err("frame 0 is free, but not of the zone".to_owned()));
}
