//! SLAB: arrays, shared arrays and aliens, held to mm/slab.c (v4.20).

use std::collections::BTreeSet;

use rules::{
    machine::{NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Picos};

use crate::check;

use super::*;
use crate::{
    cost::Prices,
    event::{Counters, Event},
    slab::SlabAllocator,
    step::{Step, Wait},
};

const PER_SLAB: usize = 20;
const NODE: u32 = 16_384;

/// Nodes with two CPUs each and 64 MiB.
fn machine(nodes: u32) -> Memory {
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(2 * id), CpuId(2 * id + 1)],
        distance: (0..nodes).map(|other| if other == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * NODE), NODE)],
    };
    let machine =
        MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: (0..nodes).map(node).collect() };
    let settings = Settings { min_free_kbytes: 0, slab_allocator: SlabAllocator::Slab, ..Settings::default() };
    Memory::new(&machine, *named("v4.20"), &settings)
}

/// Does something on a CPU at a second; says which frames it took from the page allocator less those that it gave back.
fn on<T>(mm: &mut Memory, cpu: u32, second: u64, body: impl FnOnce(&mut Memory, &mut Cx) -> T) -> (T, i64) {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let now = Time(Picos::from_micros(second * 1_000_000).0);
    let result = body(mm, &mut Cx::new(CpuId(cpu), now, &prices, &mut counters));
    check::walk(mm).unwrap();
    let frames = |event| i64::try_from(counters.get(event)).unwrap();
    (result, frames(Event::PgallocNormal) - frames(Event::Pgfree))
}

fn alloc(mm: &mut Memory, cpu: u32, n: usize) -> (Vec<Object>, i64) {
    on(mm, cpu, 0, |mm, cx| (0..n).map(|_| mm.alloc_object(cx, Cache::VmArea).unwrap()).collect())
}

fn free(mm: &mut Memory, cpu: u32, objects: &[Object]) -> i64 {
    on(mm, cpu, 0, |mm, cx| objects.iter().for_each(|object| mm.free_object(cx, *object))).1
}

/// All that a CPU does in its turn.
fn reap(mm: &mut Memory, cpu: u32, second: u64) -> i64 {
    let reap = |mm: &mut Memory, cx: &mut Cx| loop {
        match mm.step_cache_reap(cx) {
            Step::More => {}
            Step::Block(Wait::Until(until)) => break until,
            other => panic!("{other:?}"),
        }
    };
    let (until, frames) = on(mm, cpu, second, reap);
    assert_eq!(until, Time(Picos::from_micros((second + 2) * 1_000_000).0));
    frames
}

fn kmem(mm: &Memory) -> &KmemCache {
    mm.slabs.arrays().unwrap().of(Cache::VmArea)
}

/// Objects in the arrays of CPUs, in the shared array of node 0, and free in its slabs.
fn held(mm: &Memory) -> (Vec<usize>, usize, usize) {
    let (kmem, node) = (kmem(mm), &kmem(mm).nodes[NodeId(0)]);
    let cpus = kmem.cpus.iter().map(|array| array.slabs.len()).collect();
    (cpus, node.shared.as_ref().unwrap().slabs.len(), node.free_objects)
}

#[test]
fn an_array_refills_by_16_and_when_touched_by_a_batch() {
    let mut mm = machine(1);
    let (_, frames) = alloc(&mut mm, 0, 1);
    // From a new slab: 16 of its 20 objects.
    assert_eq!((frames, held(&mm)), (1, (vec![15, 0], 0, 4)));
    alloc(&mut mm, 0, 15);
    // A batch is 60, but the node has 4: no slab is made while an array has something.
    assert_eq!((alloc(&mut mm, 0, 1).1, held(&mm)), (0, (vec![3, 0], 0, 0)));
    // Then a new slab comes into the array with all that it has.
    assert_eq!((alloc(&mut mm, 0, 4).1, held(&mm)), (1, (vec![19, 0], 0, 0)));
}

#[test]
fn the_last_that_was_freed_is_the_first_to_be_used() {
    let mut mm = machine(1);
    let (objects, _) = alloc(&mut mm, 0, 3 * PER_SLAB);
    free(&mut mm, 0, &[objects[0], objects[PER_SLAB], objects[2 * PER_SLAB]]);
    let (again, _) = alloc(&mut mm, 0, 3);
    assert_eq!(again, [objects[2 * PER_SLAB], objects[PER_SLAB], objects[0]]);
}

#[test]
fn a_full_array_flushes_half_to_the_shared_one_then_slabs() {
    let mut mm = machine(1);
    let (objects, _) = alloc(&mut mm, 0, 50 * PER_SLAB);
    let rest = held(&mm).0[0];
    free(&mut mm, 0, &objects[..120 - rest]);
    assert_eq!(held(&mm), (vec![120, 0], 0, 0));
    free(&mut mm, 0, &objects[120 - rest..=120 - rest]);
    assert_eq!(held(&mm), (vec![61, 0], 60, 0));
    // Eight batches are all that the CPUs of a node keep together.
    free(&mut mm, 0, &objects[121 - rest..=600 - rest]);
    assert_eq!(held(&mm), (vec![120 - 59, 0], 480, 59 + 1));
    // Another CPU has of them before slabs are looked at.
    alloc(&mut mm, 1, 1);
    assert_eq!(held(&mm), (vec![61, 15], 464, 60));
}

#[test]
fn a_node_with_too_many_free_objects_gives_back_single_frames() {
    let mut mm = machine(1);
    let (objects, taken) = alloc(&mut mm, 0, 2_000);
    // A batch for each of two CPUs, one more, and a slab.
    assert_eq!((taken, kmem(&mm).nodes[NodeId(0)].free_limit), (100, 200));
    let given = -free(&mut mm, 0, &objects);
    let (cpus, shared, free) = held(&mm);
    assert_eq!(shared, 480);
    assert!(free <= 200 && free > 180, "{free} stay with the node");
    assert_eq!(usize::try_from(given).unwrap(), (2_000 - cpus[0] - shared - free) / PER_SLAB);
    let empty = &kmem(&mm).nodes[NodeId(0)].free;
    assert!(!empty.is_empty(), "those that hold nothing are the next to go");
}

#[test]
fn what_lies_idle_goes_back_in_time() {
    let mut mm = machine(1);
    let (objects, _) = alloc(&mut mm, 0, 2_000);
    free(&mut mm, 0, &objects);
    let before = held(&mm);
    // The array was used; a fifth of the shared one goes. Empty slabs were looked for, when the objects were allocated.
    assert_eq!(reap(&mut mm, 0, 10), -5);
    let after = held(&mm);
    assert_eq!((&after.0, after.1), (&before.0, before.1 - 96));
    // A fifth of the array's room, 24 objects; and of the node, whose turn it is each 4 seconds, nothing.
    let gone = reap(&mut mm, 0, 12);
    assert_eq!((held(&mm).0[0], held(&mm).1), (before.0[0] - 24, after.1));
    assert!(gone <= 0);
    // 200 is two slabs by five.
    let empty = kmem(&mm).nodes[NodeId(0)].free.len();
    let gone = -reap(&mut mm, 0, 14);
    assert!(gone >= 2 && empty >= 2, "{gone} of {empty}");
    for second in (16..200).step_by(2) {
        reap(&mut mm, 0, second);
        reap(&mut mm, 1, second);
    }
    let slabs = (0..NODE).filter(|pfn| matches!(mm.frames.get(Pfn(*pfn)), Frame::Slab(_))).count();
    assert_eq!((held(&mm), slabs), ((vec![0, 0], 0, 0), 0), "nothing stays for ever");
}

#[test]
fn objects_of_another_node_go_there_by_twelve() {
    let mut mm = machine(2);
    let (objects, _) = alloc(&mut mm, 2, 40);
    let aliens = |mm: &Memory| kmem(mm).nodes[NodeId(0)].aliens.as_ref().unwrap()[NodeId(1)].slabs.len();
    let shared = |mm: &Memory| kmem(mm).nodes[NodeId(1)].shared.as_ref().unwrap().slabs.len();
    free(&mut mm, 0, &objects[..12]);
    assert_eq!((aliens(&mm), shared(&mm), held(&mm).0[0]), (12, 0, 0));
    free(&mut mm, 0, &objects[12..13]);
    assert_eq!((aliens(&mm), shared(&mm)), (1, 12));
    // Of two nodes it is the other's turn first, and then the own one's, which has collected nothing of itself.
    reap(&mut mm, 0, 10);
    assert_eq!((aliens(&mm), shared(&mm)), (0, 13));
    free(&mut mm, 0, &objects[13..14]);
    reap(&mut mm, 0, 12);
    assert_eq!(aliens(&mm), 1);
    reap(&mut mm, 0, 14);
    assert_eq!(aliens(&mm), 0);
}

#[test]
fn a_cpu_without_memory_has_objects_of_others_one_by_one() {
    let mut mm = machine(2);
    let kernel = AllocRequest::gfp_kernel(NodeId(0)).this_node();
    let all = |mm: &mut Memory, cx: &mut Cx| while mm.alloc(cx, &kernel).is_ok() {};
    on(&mut mm, 0, 0, all);
    let (objects, frames) = alloc(&mut mm, 0, 3);
    assert_eq!(frames, 1);
    assert!(objects.iter().all(|object| *object == objects[0] && mm.node_of(object.slab()) == NodeId(1)));
    assert_eq!((held(&mm).0[0], kmem(&mm).nodes[NodeId(1)].free_objects), (0, 17));
}

#[test]
fn slabs_are_of_the_type_that_the_kind_is() {
    let mut mm = machine(1);
    let caches = [Cache::BufferHead, Cache::MmStruct, Cache::Dentry, Cache::Kmalloc512];
    let take = |mm: &mut Memory, cx: &mut Cx| caches.map(|cache| mm.alloc_object(cx, cache).unwrap().slab());
    let (slabs, frames) = on(&mut mm, 0, 0, take);
    assert_eq!(frames, 1 + 2 + 1 + 1, "address spaces have two frames");
    let types = slabs.map(|pfn| mm.frames.blocks.migrate_type(pfn) as usize);
    assert_eq!((types[0], types[1]), (types[2], types[3]));
    assert_eq!(types.into_iter().collect::<BTreeSet<_>>().len(), 2);
}
