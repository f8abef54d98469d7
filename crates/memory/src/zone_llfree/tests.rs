//! A machine whose zones are LLFree's: requests of all orders until memory is out, against the walk of the whole allocator.

use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{Variant, named},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, PageAllocator, Time};

use super::*;
use crate::{
    Memory, check,
    cost::Prices,
    event::{Counters, Event},
    splitmix::{SPLITMIX_STEP, mix},
    suitable::Suitable,
};

const FRAMES: u32 = 20 * 512 + 77;

fn memory() -> Memory {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(512), FRAMES);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0), CpuId(1)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    let rules = Variant { allocator: PageAllocator::Llfree, ..*named("v6.1") };
    Memory::new(&machine, rules, &Settings { min_free_kbytes: 512, ..Settings::default() })
}

fn with<T>(memory: &mut Memory, cpu: u32, body: impl FnOnce(&mut Memory, &mut Cx<'_>) -> T) -> (T, Counters) {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let result = body(memory, &mut Cx::new(CpuId(cpu), Time(0), &prices, &mut counters));
    (result, counters)
}

#[test]
fn random_requests_keep_every_invariant_and_all_frames_come_back() {
    for seed in 0..8 {
        let mut memory = memory();
        let free = memory.free_frames();
        assert_eq!(free.0, u64::from(FRAMES), "all managed frames are free");
        let (mut held, mut drawn) = (Vec::new(), mix(seed));
        let mut draw = |below: u64| {
            drawn = drawn.wrapping_add(SPLITMIX_STEP);
            mix(drawn) % below
        };
        for operation in 0..3000 {
            let cpu = u32::try_from(draw(2)).unwrap();
            if draw(5) < 2 && !held.is_empty() {
                let at = usize::try_from(draw(held.len() as u64)).unwrap();
                let (pfn, order) = held.swap_remove(at);
                with(&mut memory, cpu, |memory, cx| memory.free(cx, pfn, order));
            } else {
                let order = Order([0, 0, 0, 1, 3, 9, 10][usize::try_from(draw(7)).unwrap()]);
                let request = AllocRequest { reclaims: false, ..AllocRequest::gfp_highuser_movable(NodeId(0)) };
                let got = with(&mut memory, cpu, |memory, cx| memory.alloc(cx, &request.of_order(order))).0;
                held.extend(got.ok().map(|pfn| (pfn, order)));
            }
            if operation % 100 == 0 {
                assert_eq!(check::walk(&memory), Ok(()), "seed {seed}, operation {operation}");
            }
        }
        for (pfn, order) in held {
            with(&mut memory, 0, |memory, cx| memory.free(cx, pfn, order));
        }
        assert_eq!((check::walk(&memory), memory.free_frames()), (Ok(()), free), "seed {seed}");
        assert!(memory.zones()[0].cpu_lists().iter().all(|pcp| pcp.count() == 0), "no CPU keeps a frame");
    }
}

#[test]
fn a_damaged_free_frame_is_noticed() {
    let mut memory = memory();
    let taken = with(&mut memory, 0, |memory, cx| memory.alloc(cx, &AllocRequest::gfp_nowait(NodeId(0)))).0.unwrap();
    memory.frames.free_each(taken, Order::BASE);
    let broken = check::walk(&memory).unwrap_err();
    assert!(broken.pfn == Some(taken) && broken.what.contains("LLFree has it in use"), "{broken}");
}

#[test]
fn nothing_is_compacted_reserved_or_taken_from_other_types() {
    let mut memory = memory();
    let zone = crate::pageblock::ZoneIndex(0);
    let request = AllocRequest::gfp_kernel(NodeId(0)).of_order(Order(9));
    let ((), counters) = with(&mut memory, 0, |memory, cx| while memory.alloc(cx, &request).is_ok() {});
    assert_eq!(counters.get(Event::SimExtfragFragmenting), 0);
    assert_eq!(memory.zones()[0].high_atomic, 0);
    let urgency = rules::gfp::Urgency::Normal;
    assert_ne!(memory.is_suitable_for(zone, Order(9), ZoneKind::Normal, urgency), Suitable::Continue);
    with(&mut memory, 0, |memory, cx| memory.wake_kcompactd(cx, NodeId(0), Order(9), ZoneKind::Normal));
    assert!(!memory.has_woken(crate::news::Daemon::Kcompactd));
}
