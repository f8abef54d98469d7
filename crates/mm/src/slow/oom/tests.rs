use memory::{cost::Prices, event::Counters, step::Step};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn};

use super::*;
use crate::{
    fault::{Access, FaultDone, touch::Touch},
    space::address_space::MMAP_BASE,
};

struct World {
    mm: Mm,
    spaces: Spaces,
    counters: Counters,
    now: Time,
}

impl World {
    fn new() -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 4096);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order(4), max_order: Order(10), nodes: vec![node] };
        let mut mm = Mm::new(&machine, *named("v6.1"), &Settings { min_free_kbytes: 64, ..Settings::default() });
        mm.enable_oom_killer();
        Self { mm, spaces: Spaces::default(), counters: Counters::default(), now: Time(0) }
    }

    /// A process that has written to `pages` pages.
    fn process(&mut self, pages: u64) -> SpaceId {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), self.now, &prices, &mut self.counters);
        let mut space = AddressSpace::new(&mut self.mm, &mut cx, MMAP_BASE).unwrap();
        let range = space.mmap(&mut self.mm, &mut cx, pages).unwrap();
        let mut touch = Touch::pages(range, Access::Write);
        while touch.step(&mut self.mm, &mut space, &mut cx, Time(u64::MAX)) != Step::Done(FaultDone::Handled) {}
        self.spaces.add(space)
    }

    /// Memory is out: is something to be expected, and who goes?
    fn out_of_memory(&mut self, is_victim: bool) -> (bool, Vec<SpaceId>) {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), self.now, &prices, &mut self.counters);
        let progress = self.mm.out_of_memory(&self.spaces, &mut cx, is_victim);
        (progress, self.mm.memory.take_killed())
    }
}

#[test]
fn the_largest_goes_and_then_nobody_until_it_is_gone() {
    let mut world = World::new();
    let [_, large, spared, other] = [100, 300, 500, 200].map(|pages| world.process(pages));
    world.mm.spare_from_oom(spared);
    assert_eq!(world.out_of_memory(true), (true, Vec::new()), "who asks is dying");
    assert_eq!(world.out_of_memory(false), (true, vec![large]));
    assert_eq!(world.out_of_memory(false), (true, Vec::new()), "it is waited for");
    world.now = world.now + PATIENCE;
    assert_eq!(world.out_of_memory(false), (true, vec![other]), "but not for ever");
    assert_eq!(world.counters.get(Event::OomKill), 2);
}

#[test]
fn of_equals_the_last_goes_and_nobody_who_is_ending() {
    let mut world = World::new();
    let [first, second, third] = [100; 3].map(|pages| world.process(pages));
    world.spaces.get_mut(third).unwrap().is_exiting = true;
    assert_eq!(world.out_of_memory(false), (true, vec![second]));
    // A victim that gives its memory back is waited for.
    world.spaces.get_mut(second).unwrap().is_exiting = true;
    assert_eq!(world.out_of_memory(false), (true, Vec::new()));
    let prices = Prices::free();
    let space = world.spaces.take(second);
    space.exit(&mut world.mm, &mut Cx::new(CpuId(0), world.now, &prices, &mut world.counters));
    assert_eq!(world.out_of_memory(false), (true, vec![first]));
}

#[test]
fn without_anybody_to_kill_nothing_is_to_be_expected() {
    let mut world = World::new();
    let only = world.process(100);
    world.mm.spare_from_oom(only);
    assert_eq!(world.out_of_memory(false), (false, Vec::new()));
    assert_eq!(world.counters.get(Event::OomKill), 0);
}
