//! Every sequence of six operations on a few frames.

use mm::{fault::Access, thp::ThpEnabled};
use rules::{
    gfp::Mobility,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn};

use crate::{model::Wish, pair::Pair, processes::Page, rules};

const DEPTH: u32 = 6;

/// Order and mobility of what each operation allocates; the operations after these free or change.
const ALLOCATIONS: [(u32, Mobility); 6] = [
    (0, Mobility::Unmovable),
    (0, Mobility::Movable),
    (0, Mobility::Reclaimable),
    (1, Mobility::Unmovable),
    (2, Mobility::Movable),
    (3, Mobility::Movable),
];

fn of_allocator(pair: &mut Pair, operation: usize) {
    match (ALLOCATIONS.get(operation), operation - ALLOCATIONS.len().min(operation)) {
        (Some((order, mobility)), _) => {
            let (order, mobility, highest) = (*order, *mobility, ZoneKind::Movable);
            pair.alloc(0, Wish { order, mobility, highest, ..Wish::kernel(0) });
        }
        (_, 0) => pair.free(0, 0),
        (_, 1) => pair.free(0, 1),
        (_, 2) => pair.free(0, pair.live.len().saturating_sub(1)),
        _ => pair.make_movable(0),
    }
}

/// A process with two pages, its child, and little memory for both.
fn of_processes(pair: &mut Pair, operation: usize) {
    let ids = pair.ids();
    let Some((first, last)) = ids.first().copied().zip(ids.last().copied()) else { return pair.start(0) };
    let base = mm::space::address_space::MMAP_BASE.0;
    let [lower, upper] = [(base - 2, base - 1), (base - 1, base)];
    match operation {
        0 => pair.map(0, first, 2),
        1 => pair.touch(0, first, lower, Access::Write),
        2 => pair.touch(0, last, (lower.0, upper.1), Access::Write),
        3 => pair.touch(0, last, upper, Access::Read),
        4 => pair.unmap(0, last, upper),
        5 if ids.len() < 2 => pair.fork(0, first),
        5 => {}
        6 => pair.exit(0, first),
        _ => pair.alloc(0, Wish { order: 1, ..Wish::kernel(0) }),
    }
    // Twice where a fork takes itself back.
    for _ in 0..2 {
        if !pair.running.is_empty() {
            pair.advance(0, 1 << 40);
        }
    }
    assert!(pair.running.is_empty());
}

fn every_sequence(pair: &Pair, operations: usize, operate: fn(&mut Pair, usize), depth: u32) -> u64 {
    if depth == DEPTH {
        return 1;
    }
    let mut sequences = 0;
    for operation in 0..operations {
        let mut next = pair.clone();
        operate(&mut next, operation);
        next.compare();
        next.compare_contents();
        sequences += every_sequence(&next, operations, operate, depth + 1);
    }
    sequences
}

fn small(name: &str, frames: u32) -> Pair {
    let node = NodeSpec {
        id: NodeId(0),
        cpus: vec![CpuId(0)],
        distance: vec![10],
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames)],
    };
    let machine = MachineSpec { pageblock_order: Order(2), max_order: Order(3), nodes: vec![node] };
    Pair::new(&machine, rules(name), &Settings { min_free_kbytes: 0, ..Settings::default() }, ThpEnabled::Always)
}

fn every_allocation(name: &str) {
    assert_eq!(every_sequence(&small(name, 16), 10, of_allocator, 0), 10_u64.pow(DEPTH));
}

#[test]
fn every_six_allocations_on_sixteen_frames_v3_9() {
    every_allocation("v3.9");
}

#[test]
fn every_six_allocations_on_sixteen_frames_v4_20() {
    every_allocation("v4.20");
}

#[test]
fn every_six_allocations_on_sixteen_frames_v6_1() {
    every_allocation("v6.1");
}

#[test]
fn every_six_operations_of_processes_on_24_frames() {
    let mut pair = small("v6.1", 24);
    pair.start(0);
    pair.map(0, 0, 2);
    assert_eq!(every_sequence(&pair, 8, of_processes, 0), 8_u64.pow(DEPTH));
}

/// A case that streams hardly reach: a shared huge page is stored to where no huge page is free, but 512 base pages are.
#[test]
fn a_huge_page_is_copied_by_base_pages_before_5_8() {
    let node = NodeSpec {
        id: NodeId(0),
        cpus: vec![CpuId(0)],
        distance: vec![10],
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 4096)],
    };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    let settings = Settings { min_free_kbytes: 0, ..Settings::default() };
    for (keep, copied) in [(2, true), (16, false)] {
        let mut pair = Pair::new(&machine, rules("v4.20"), &settings, ThpEnabled::Always);
        pair.start(0);
        pair.map(0, 0, 1024);
        let vma = pair.twin.processes[&0].vmas[0];
        let start = vma.start.next_multiple_of(512);
        pair.touch(0, 0, (start, start + 512), Access::Write);
        pair.run_to_end();
        pair.fork(0, 0);
        pair.run_to_end();
        let free = pair.mm.memory.zones()[0].free_frames();
        for _ in 0..free {
            pair.alloc(0, Wish { mobility: Mobility::Movable, ..Wish::kernel(0) });
        }
        for at in (0..pair.live.len()).rev().step_by(keep) {
            pair.free(0, at);
        }
        pair.touch(0, 1, (start + 7, start + 8), Access::Write);
        pair.run_to_end();
        let pages = (0..512).map(|n| pair.twin.processes[&1].page(start + n));
        let own = pages.filter(|page| matches!(page, Page::Frame { writable: true, .. })).count();
        assert_eq!(own, if copied { 512 } else { 1 });
    }
}
