use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Time};

use crate::check;

use super::*;
use crate::{
    cost::Prices,
    event::{Counters, Event},
};

const PER_SLAB: usize = 20;

fn machine(frames: u32) -> Memory {
    machine_of("v6.1", frames)
}

fn machine_of(rules: &str, frames: u32) -> Memory {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
    Memory::new(&machine, *named(rules), &Settings { min_free_kbytes: 0, ..Settings::default() })
}

/// Does something on a CPU; says which frames it took from the page allocator less those that it gave back.
fn on<T>(mm: &mut Memory, cpu: u32, body: impl FnOnce(&mut Memory, &mut Cx) -> T) -> (T, i64) {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let result = body(mm, &mut Cx::new(CpuId(cpu), Time(0), &prices, &mut counters));
    check::walk(mm).unwrap();
    let frames = |event| i64::try_from(counters.get(event)).unwrap();
    (result, frames(Event::PgallocNormal) - frames(Event::Pgfree))
}

fn alloc(mm: &mut Memory, n: usize) -> (Vec<Object>, i64) {
    on(mm, 0, |mm, cx| (0..n).map(|_| mm.alloc_object(cx, Cache::VmArea).unwrap()).collect())
}

fn free(mm: &mut Memory, object: Object) -> i64 {
    free_on(mm, 0, object)
}

fn free_on(mm: &mut Memory, cpu: u32, object: Object) -> i64 {
    on(mm, cpu, |mm, cx| mm.free_object(cx, object)).1
}

/// Slabs of VMAs on the partial list of a CPU.
fn cpu_partial(mm: &Memory, cpu: usize) -> Vec<Pfn> {
    mm.slabs.slub().unwrap().cpu_partial(Cache::VmArea)[cpu].iter().map(|partial| partial.slab).collect()
}

fn partial(mm: &Memory) -> u32 {
    mm.slabs.slub().unwrap().partial(Cache::VmArea)[NodeId(0)].len()
}

#[test]
fn sizes_are_the_kernels() {
    let objects = |cpus: u32| Cache::ALL.map(|cache| cache.objects(cache.order_on(cpus)));
    let orders = |cpus: u32| Cache::ALL.map(|cache| cache.order_on(cpus).0);
    // Order 2 for inodes is what a guest of Debian's 6.1 with one CPU asks for; 42 dentries and 40 VMAs of order 1 are usual on
    // machines with many.
    assert_eq!(orders(1), [0, 2, 0, 0, 2, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3]);
    assert_eq!(objects(1), [20, 10, 16, 21, 13, 14, 39, 8, 24, 10, 8, 8, 64, 102, 128, 34, 21, 8, 8]);
    assert_eq!(orders(4), [0, 3, 0, 0, 3, 2, 0, 2, 0, 1, 1, 2, 0, 0, 0, 0, 0, 2, 3]);
    assert_eq!(objects(4), [20, 20, 16, 21, 27, 28, 39, 17, 24, 21, 16, 16, 64, 102, 128, 34, 21, 16, 8]);
    assert_eq!(orders(16), [1, 3, 1, 1, 3, 2, 0, 3, 0, 2, 2, 3, 0, 0, 0, 0, 1, 3, 3]);
    assert_eq!(objects(16), [40, 20, 32, 42, 27, 28, 39, 34, 24, 42, 32, 32, 64, 102, 128, 34, 42, 32, 8]);
    assert_eq!(objects(48), [40, 20, 32, 42, 27, 28, 39, 34, 48, 42, 32, 32, 64, 102, 128, 34, 42, 32, 8]);
    let partial = |cache: Cache| if cache == Cache::BiovecMax { 6 } else { 5 };
    assert_eq!(Cache::ALL.map(Cache::min_partial), Cache::ALL.map(partial));
}

#[test]
fn a_slab_is_one_allocation_and_holds_so_many() {
    let mut mm = machine(4096);
    let (objects, frames) = alloc(&mut mm, PER_SLAB);
    assert_eq!(frames, 1);
    assert!(objects.iter().all(|object| *object == objects[0]));
    let slab = Slab { cache: Cache::VmArea, order: Order::BASE, in_use: 20, frozen: true };
    assert_eq!(mm.frames.get(objects[0].slab()), Frame::Slab(slab));
    assert_eq!(alloc(&mut mm, 1).1, 1, "the next one needs another");
    assert_eq!(on(&mut mm, 1, |mm, cx| mm.alloc_object(cx, Cache::VmArea)).1, 1, "another CPU has its own");
    let (space, frames) = on(&mut mm, 0, |mm, cx| mm.alloc_object(cx, Cache::MmStruct));
    assert_eq!(frames, 8, "order 3");
    assert_eq!(mm.frames.order_of(mm.frames.get(space.unwrap().slab())), Order(3));
}

#[test]
fn the_slab_of_a_cpu_stays_when_it_is_empty() {
    let mut mm = machine(4096);
    let (objects, _) = alloc(&mut mm, 3);
    for object in objects {
        assert_eq!(free(&mut mm, object), 0);
    }
    assert_eq!((alloc(&mut mm, PER_SLAB).1, partial(&mm)), (0, 0));
}

#[test]
fn a_full_slab_with_a_freed_object_joins_the_cpus_partial_list() {
    let mut mm = machine(4096);
    let (objects, frames) = alloc(&mut mm, 3 * PER_SLAB);
    assert_eq!((frames, partial(&mm)), (3, 0));
    free(&mut mm, objects[PER_SLAB]);
    free(&mut mm, objects[0]);
    assert_eq!((partial(&mm), cpu_partial(&mm, 0)), (0, vec![objects[PER_SLAB].slab(), objects[0].slab()]));
    let (next, frames) = alloc(&mut mm, 2);
    assert_eq!((next, frames), (vec![objects[0], objects[PER_SLAB]], 0), "the last that came back is the first used");
}

#[test]
fn the_cpu_that_frees_has_the_slab() {
    let mut mm = machine(4096);
    let (objects, _) = alloc(&mut mm, 3 * PER_SLAB);
    free_on(&mut mm, 1, objects[0]);
    assert_eq!((cpu_partial(&mm, 0), cpu_partial(&mm, 1)), (vec![], vec![objects[0].slab()]));
    // From now on that slab is the other's whoever frees of it, and stays when it is empty.
    assert_eq!(objects[1..PER_SLAB].iter().map(|object| free(&mut mm, *object)).sum::<i64>(), 0);
    assert_eq!((cpu_partial(&mm, 1), partial(&mm)), (vec![objects[0].slab()], 0));
}

/// Frees one object of each slab but the last, which is the CPU's; then all others. Says how many slabs stayed with the CPU, and
/// with the node, after the first of these, and how many frames went back.
fn free_all(mm: &mut Memory, slabs: usize) -> ((usize, u32), i64) {
    let (objects, _) = alloc(mm, slabs * PER_SLAB);
    let (first, rest): (Vec<_>, Vec<_>) = (0..(slabs - 1) * PER_SLAB).partition(|n| n % PER_SLAB == 0);
    let mut gone: i64 = first.iter().map(|n| free(mm, objects[*n])).sum();
    let kept = (cpu_partial(mm, 0).len(), partial(mm));
    gone += rest.iter().map(|n| free(mm, objects[*n])).sum::<i64>();
    (kept, -gone)
}

#[test]
fn a_full_cpu_partial_list_is_moved_to_the_node() {
    // 5.16: 120 objects, that is 12 half-empty slabs. 4.20: 30 objects, but each slab had one when it came.
    for (rules, most) in [("v6.1", 12), ("v4.20", 31)] {
        assert_eq!(free_all(&mut machine_of(rules, 16_384), most + 1), ((most, 0), 0), "{rules}");
        let frames = i64::try_from(most).unwrap() - 4;
        let most_u32 = u32::try_from(most).unwrap();
        // Those of the node go back as they become empty, but four.
        assert_eq!(free_all(&mut machine_of(rules, 16_384), most + 2), ((1, most_u32), frames), "{rules}");
    }
}

#[test]
fn empty_slabs_beyond_five_partial_ones_are_freed() {
    let mut mm = machine(16_384);
    let (objects, _) = alloc(&mut mm, 14 * PER_SLAB);
    let freed: i64 = objects[..12 * PER_SLAB].iter().map(|object| free(&mut mm, *object)).sum();
    assert_eq!((freed, cpu_partial(&mm, 0).len(), partial(&mm)), (0, 12, 0), "the list holds them, empty or not");
    assert_eq!((free(&mut mm, objects[12 * PER_SLAB]), cpu_partial(&mm, 0).len(), partial(&mm)), (12 - 7 - 12, 1, 5));
}

#[test]
fn a_cpu_takes_several_slabs_of_its_node_at_once() {
    for (rules, slabs, most) in [("v6.1", 16, 12), ("v4.20", 40, 31)] {
        let mut mm = machine_of(rules, 16_384);
        let (objects, _) = alloc(&mut mm, slabs * PER_SLAB);
        // One of each goes, so that the node has as many as a list holds; the CPU uses up the rest.
        for slab in 0..=most {
            free(&mut mm, objects[slab * PER_SLAB]);
        }
        assert_eq!((cpu_partial(&mm, 0).len(), partial(&mm)), (1, u32::try_from(most).unwrap()), "{rules}");
        alloc(&mut mm, 1);
        assert_eq!((cpu_partial(&mm, 0).len(), partial(&mm)), (0, u32::try_from(most).unwrap()), "{rules}");
        // One to allocate from, and more: 7 slabs, which is more than half of 12; or 15 objects, which is half of 30.
        assert_eq!(alloc(&mut mm, 1).1, 0);
        let taken = if rules == "v6.1" { 1 + 7 } else { 16 };
        assert_eq!(
            (cpu_partial(&mm, 0).len(), partial(&mm)),
            (taken - 1, u32::try_from(most - taken).unwrap()),
            "{rules}"
        );
    }
}

#[test]
fn limits_are_the_kernels() {
    let objects = [30, 6, 13, 30, 6, 13, 30, 13, 30, 13, 13, 6, 30, 30, 30, 30, 30, 6, 2];
    assert_eq!(Cache::ALL.map(Cache::cpu_partial), objects);
    // 120, 52 or 24 objects in half-empty slabs, of the orders for 16 CPUs.
    let slabs = Cache::ALL.map(|cache| cache.cpu_partial_slabs(cache.order_on(16)));
    assert_eq!(slabs, [6, 3, 4, 6, 2, 4, 7, 4, 10, 3, 4, 2, 4, 3, 2, 8, 6, 2, 2]);
}

#[test]
fn without_a_large_block_a_slab_is_of_the_least_order() {
    let mut mm = machine(512);
    let kernel = AllocRequest::gfp_kernel(NodeId(0));
    let (taken, _) =
        on(&mut mm, 0, |mm, cx| -> Vec<Pfn> { std::iter::from_fn(|| mm.alloc(cx, &kernel).ok()).collect() });
    assert_eq!(on(&mut mm, 0, |mm, cx| mm.alloc_object(cx, Cache::MmStruct)).0, Err(NoMemory::Refused));
    on(&mut mm, 0, |mm, cx| taken.iter().step_by(2).for_each(|pfn| mm.free(cx, *pfn, Order::BASE)));
    let (object, _) = on(&mut mm, 0, |mm, cx| mm.alloc_object(cx, Cache::MmStruct));
    let Frame::Slab(slab) = mm.frames.get(object.unwrap().slab()) else { panic!("it is a slab") };
    assert_eq!((slab.order, slab.cache.objects(slab.order)), (Order::BASE, 2));
}
