use units::{CpuId, NodeId, Pfn, Time};

use super::*;
use crate::{
    Spaces,
    address_space::{AddressSpace, MMAP_BASE},
    cost::Prices,
    event::Counters,
    fault::{Access, FaultDone},
    node::{MachineSpec, NodeSpec, ZoneSpec},
    step::Step,
    touch::Touch,
    variant::named,
    zone::{Settings, ZoneKind},
};

/// A machine whose huge zero page was used once.
fn machine(counters: &mut Counters) -> Mm {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    let mut mm = Mm::new(&machine, *named("v6.1"), &Settings::default());
    let prices = Prices::free();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, counters);
    let mut space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).unwrap();
    let range = space.mmap(&mut mm, &mut cx, 2048).unwrap();
    let mut touch = Touch::pages(range, Access::Read);
    while touch.step(&mut mm, &mut space, &mut cx, Time(u64::MAX)) != Step::Done(FaultDone::Handled) {}
    space.exit(&mut mm, &mut cx);
    assert!(Spaces::default().iter().next().is_none());
    mm
}

#[test]
fn the_huge_zero_page_goes_when_memory_is_really_short() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    let prices = Prices::free();
    let mut lowest = 12;
    while mm.thp.huge_zero_frame().is_some() {
        lowest -= 1;
        mm.shrink_slab(&mut Cx::new(CpuId(0), Time(0), &prices, &mut counters), 0, lowest);
    }
    // 512 frames, twice, at 1/2^3: a batch. What was put off before does not count until then.
    assert_eq!((lowest, counters.get(Event::SlabsScanned)), (3, 128));
    mm.shrink_slab(&mut Cx::new(CpuId(0), Time(0), &prices, &mut counters), 0, 0);
    assert_eq!(counters.get(Event::SlabsScanned), 128, "nothing is left to ask for");
}

#[test]
fn what_was_put_off_adds_up() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    let prices = Prices::free();
    for _ in 0..1000 {
        mm.shrink_slab(&mut Cx::new(CpuId(0), Time(0), &prices, &mut counters), 0, 4);
    }
    // 64 each time, at most twice of what there is: of 1,024 a sixteenth counts, 64 more, and that is a batch.
    assert_eq!(mm.thp.huge_zero_frame(), None);
    assert_eq!(counters.get(Event::SlabsScanned), 128);
}
