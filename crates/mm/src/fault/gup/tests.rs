//! Pins: which pages they bring in and keep, and for how long.

use memory::{
    cost::Prices,
    event::{Counters, Event},
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order};

use super::*;
use crate::{space::address_space::MMAP_BASE, thp::ThpEnabled};

/// One node of 32 MiB, and a process.
struct World {
    mm: Mm,
    space: AddressSpace,
    counters: Counters,
    prices: Prices,
}

impl World {
    fn new(thp: ThpEnabled) -> Self {
        let zones = vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192)];
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones };
        let spec = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let settings = Settings { min_free_kbytes: 256, ..Settings::default() };
        let mut mm = Mm::new(&spec, *named("v4.18"), &settings);
        mm.thp.enabled = thp;
        let (mut counters, prices) = (Counters::default(), Prices::free());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).expect("there is room");
        Self { mm, space, counters, prices }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Mm, &mut AddressSpace, &mut Cx) -> T) -> T {
        let mut cx = Cx::new(CpuId(0), Time(0), &self.prices, &mut self.counters);
        act(&mut self.mm, &mut self.space, &mut cx)
    }

    fn map(&mut self, pages: u64) -> PageRange {
        self.with(|mm, space, cx| space.mmap(mm, cx, pages)).expect("there is room")
    }

    fn pin(&mut self, range: PageRange) -> Result<(), Errno> {
        self.with(|mm, space, cx| {
            let mut pin = Pin::new(range);
            loop {
                if let Step::Done(result) = pin.step(mm, space, cx, Time(u64::MAX)) {
                    return result;
                }
            }
        })
    }

    /// The folio of each page of a range that has one, and whether it is pinned.
    fn folios(&self, range: PageRange) -> Vec<(Pfn, bool)> {
        let ptes = (range.start.0..range.end.0).map(|vpn| self.space.tables.lookup(Vpn(vpn)));
        let heads = ptes.filter(|pte| pte.is_present()).map(|pte| self.mm.folio_head(pte.pfn()));
        heads.map(|head| (head, self.mm.is_pinned(head))).collect()
    }
}

#[test]
fn a_pin_brings_in_every_page_and_ends_with_its_mapping() {
    let mut world = World::new(ThpEnabled::Never);
    let range = world.map(20);
    let part = PageRange::new(range.start.plus(4), 10);
    assert_eq!(world.pin(part), Ok(()));
    assert_eq!(world.counters.get(Event::Pgfault), 10);
    let folios = world.folios(range);
    assert_eq!(folios.len(), 10);
    assert!(folios.iter().all(|(_, pinned)| *pinned));
    world.with(|mm, space, cx| space.munmap(mm, cx, range)).unwrap();
    assert!(folios.iter().all(|(head, _)| !world.mm.is_pinned(*head)));
    // Frames that come again have no pin.
    let again = world.map(20);
    world.with(|mm, space, cx| {
        let mut touch = crate::fault::touch::Touch::pages(again, Access::Write);
        while touch.step(mm, space, cx, Time(u64::MAX)) == Step::More {}
    });
    assert!(world.folios(again).iter().all(|(_, pinned)| !pinned));
}

#[test]
fn a_huge_page_is_pinned_as_one() {
    let mut world = World::new(ThpEnabled::Always);
    let range = world.map(2048);
    assert_eq!(world.pin(range), Ok(()));
    assert_eq!(world.counters.get(Event::ThpFaultAlloc), 3, "the range begins and ends in the middle of one");
    let folios = world.folios(range);
    assert!(folios.len() == 2048 && folios.iter().all(|(_, pinned)| *pinned));
}

#[test]
fn what_cannot_be_pinned_leaves_nothing_pinned() {
    let mut world = World::new(ThpEnabled::Never);
    let range = world.map(8);
    let beyond = PageRange::new(range.start.plus(4), 10);
    assert_eq!(world.pin(beyond), Err(Errno::FAULT));
    assert_eq!(world.folios(range), world.folios(range).iter().map(|(head, _)| (*head, false)).collect::<Vec<_>>());
    // More than there is.
    let large = world.map(9000);
    assert_eq!(world.pin(large), Err(Errno::NOMEM));
    assert!(world.folios(large).iter().all(|(_, pinned)| !pinned));
}
