use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{NodeId, Picos};

use super::*;
use crate::check::walk;

const CHURN: FrameChurn = FrameChurn {
    allocator: PageAllocator::Linux,
    order: Order::BASE,
    kept: 50,
    rounds: 5,
    replaced: 10,
    at_once: 1,
    seed: 1,
    cpus: 3,
};

/// 160 MiB in two zones, of which the first is not aligned and smaller than a tree.
fn machine() -> Memory {
    let zones = [(ZoneKind::Dma32, 300, 7700), (ZoneKind::Normal, 8300, 33_000)];
    let zones = zones.map(|(kind, start, frames)| ZoneSpec::whole(kind, Pfn(start), frames)).to_vec();
    let node = NodeSpec { id: NodeId(0), cpus: (0..3).map(CpuId).collect(), distance: vec![10], zones };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    Memory::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 1024, ..Settings::default() })
}

fn run(mm: &mut Memory, churn: &FrameChurn) -> FrameChurned {
    let prices = Prices::new(|_| Picos(10));
    mm.churn_frames(churn, Time(0), &prices, &mut Counters::default()).0
}

#[test]
fn both_allocators_fill_the_same_memory_keep_a_half_and_give_it_all_back() {
    let mut mm = machine();
    let free = mm.zones().iter().map(ZoneState::free_frames).sum::<u64>();
    for allocator in [PageAllocator::Linux, PageAllocator::Llfree] {
        for order in [0, 2, 5] {
            let found = run(&mut mm, &FrameChurn { allocator, order: Order(order), ..CHURN });
            // Ends that are not aligned hold no block of the order.
            let blocks = free >> order;
            assert!((blocks - 3..=blocks).contains(&found.filled), "{allocator:?} {order}: {found:?}, {blocks}");
            assert_eq!((found.kept, found.free_huge.len()), (found.filled / 2, 6));
            assert_eq!((found.free_huge_full, found.free_huge[0]), (0, 0), "{allocator:?} {order}");
            assert_eq!((walk(&mm), free), (Ok(()), mm.zones().iter().map(ZoneState::free_frames).sum()));
        }
    }
}

#[test]
fn the_same_seed_finds_the_same_and_another_seed_something_else() {
    let churn = FrameChurn { allocator: PageAllocator::Llfree, rounds: 60, kept: 25, ..CHURN };
    let [one, again] = [1, 1].map(|seed| run(&mut machine(), &FrameChurn { seed, ..churn }));
    let other = run(&mut machine(), &FrameChurn { seed: 2, ..churn });
    assert_eq!(one, again);
    assert_ne!(one.free_huge, other.free_huge);
}

#[test]
fn llfree_gathers_free_frames_in_areas_as_lists_of_cpus_do_not() {
    let of = |allocator| {
        let churn = FrameChurn { allocator, kept: 25, rounds: 100, cpus: 1, ..CHURN };
        *run(&mut machine(), &churn).free_huge.last().unwrap()
    };
    let [linux, llfree] = PageAllocator::ALL.map(of);
    assert!(llfree > 2 * linux && llfree > 8, "{linux} blocks with Linux's, {llfree} with LLFree");
}
