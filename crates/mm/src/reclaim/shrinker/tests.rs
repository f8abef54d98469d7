use memory::{cost::Prices, event::Counters, frame::FrameFlag};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Pfn, Time};

use super::*;
use crate::{
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
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

/// Every shrinker has its turn; how many steps that took.
fn shrink(mm: &mut Mm, spaces: &mut Spaces, counters: &mut Counters, priority: u8) -> u64 {
    let prices = Prices::free();
    let mut slab = SlabScan::default();
    let mut steps = 1;
    while slab.step(
        mm,
        spaces,
        &mut Cx::new(CpuId(0), Time(0), &prices, counters),
        (NodeId(0), Demand::Priority(priority)),
    ) == Step::More
    {
        crate::whole::check::walk(mm).unwrap();
        steps += 1;
    }
    steps
}

#[test]
fn the_huge_zero_page_goes_when_memory_is_really_short() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    let mut lowest = 12;
    while mm.huge_zero.frame().is_some() {
        lowest -= 1;
        shrink(&mut mm, &mut Spaces::default(), &mut counters, lowest);
    }
    // 512 frames, twice, at 1/2^3: a batch. What was put off before does not count until then.
    assert_eq!((lowest, counters.get(Event::SlabsScanned)), (3, 128));
    shrink(&mut mm, &mut Spaces::default(), &mut counters, 0);
    assert_eq!(counters.get(Event::SlabsScanned), 128, "nothing is left to ask for");
    // Who frees what it has with the first batch is asked for the others all the same: it does not say stop.
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    shrink(&mut mm, &mut Spaces::default(), &mut counters, 0);
    assert_eq!((mm.huge_zero.frame(), counters.get(Event::SlabsScanned)), (None, 1024));
}

#[test]
fn what_was_put_off_adds_up() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    for _ in 0..1000 {
        shrink(&mut mm, &mut Spaces::default(), &mut counters, 4);
    }
    // Each call puts off 64 objects, at most twice the number that exist. Of 1,024 put off, a sixteenth is counted now:
    // 64 more, which is a batch.
    assert_eq!(mm.huge_zero.frame(), None);
    assert_eq!(counters.get(Event::SlabsScanned), 128);
}

#[test]
fn deferred_huge_pages_are_split_one_by_one_under_pressure() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    let prices = Prices::free();
    let (mut spaces, huge) = (Spaces::default(), AddressSpace::HUGE_PAGES);
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    assert!(mm.shrink_huge_zero(&mut cx));
    let id = spaces.add(AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).unwrap());
    let space = spaces.get_mut(id).unwrap();
    let room = space.mmap(&mut mm, &mut cx, 7 * huge).unwrap();
    let start = units::Vpn(room.start.0.next_multiple_of(huge));
    let mut touch = Touch::pages(PageRange::new(start, 6 * huge), Access::Write);
    while touch.step(&mut mm, space, &mut cx, Time(u64::MAX)) != Step::Done(FaultDone::Handled) {}
    for n in 0..5 {
        space.munmap(&mut mm, &mut cx, PageRange::new(start.plus(n * huge), 100)).unwrap();
    }
    let free = |mm: &Mm| mm.memory.zones()[0].free_frames() + u64::from(mm.memory.zones()[0].cpu_lists()[0].count());
    let before = free(&mm);
    // Half of five is less than all of them.
    assert_eq!((shrink(&mut mm, &mut spaces, &mut counters, 2), mm.deferred_split_count()), (1, 5));
    let (_, head) = mm.next_deferred_split(NodeId(0), mm.deferred_split_place(NodeId(0), 1)).unwrap();
    mm.memory.frames.mark(head, FrameFlag::Locked, true);
    assert_eq!((shrink(&mut mm, &mut spaces, &mut counters, 0), mm.deferred_split_count()), (6, 1));
    mm.memory.frames.mark(head, FrameFlag::Locked, false);
    assert_eq!(counters.get(Event::SlabsScanned), 10, "twice what there is");
    assert_eq!(free(&mm) - before, 4 * 100, "somebody had the first of them locked");
    assert_eq!((counters.get(Event::ThpSplitPage), counters.get(Event::ThpSplitPageFailed) > 0), (4, true));
}

#[test]
fn up_to_4_15_shrinkers_are_asked_by_pages_scanned() {
    let (old, ratio) = (ShareRules::default(), Demand::Ratio { scanned: 32, eligible: 1023 });
    // Two objects for a page, of 1,024 pages 32.
    assert_eq!(ratio.share(1024, 0, old), (64, 64));
    assert_eq!(ratio.share(1024, 100, old), (64, 164), "with all that was put off");
    assert_eq!(ratio.share(1024, 5000, old), (64, 512), "but not more than half, if little is asked for");
    let hard = Demand::Ratio { scanned: 512, eligible: 1023 };
    assert_eq!(hard.share(1024, 5000, old), (1024, 2048), "twice what there is when much is");
    // 1,998 of 1,000: one batch, and 974 that are neither one nor all.
    assert_eq!((asked_when_dropping(1000), asked_when_dropping(10), asked_when_dropping(0)), (1024, 19, 0));
}

#[test]
fn a_small_cache_is_spared_except_in_4_19_4_20() {
    let old = ShareRules::default();
    let (all, new) = (ShareRules { least: 128, ..old }, ShareRules { deferred_by_priority: true, ..old });
    let usual = Demand::Priority(12);
    assert_eq!(usual.share(1000, 0, old), (0, 0));
    assert_eq!(usual.share(1000, 0, all), (128, 128));
    assert_eq!(usual.share(100, 0, all), (100, 100));
    assert_eq!((usual.share(10_000, 300, old), usual.share(10_000, 300, new)), ((4, 304), (4, 4)));
    let least = |name: &str| rules::variant::named(name).slab_scans_a_batch;
    assert_eq!(["v4.17", "v4.19", "v4.20", "v5.0"].map(least), [false, true, true, false]);
}

#[test]
fn what_a_ratio_leaves_is_asked_for_the_next_time() {
    let mut counters = Counters::default();
    let mut mm = machine(&mut counters);
    let prices = Prices::free();
    let mut slab = |mm: &mut Mm, scanned| {
        let demand = Demand::Ratio { scanned, eligible: 511 };
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        while SlabScan::default().step(mm, &mut Spaces::default(), &mut cx, (NodeId(0), demand)) == Step::More {}
        counters.get(Event::SlabsScanned)
    };
    // Of 512 frames 126, which is less than a batch.
    assert_eq!((slab(&mut mm, 63), mm.huge_zero.frame().is_some()), (0, true));
    assert_eq!((slab(&mut mm, 1), mm.huge_zero.frame()), (128, None), "and two more are one");
}
