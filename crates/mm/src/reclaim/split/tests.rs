use memory::{cost::Prices, event::Counters, frame::SpaceId, lru_kind::LruKind, step::Step};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Time};

use super::*;
use crate::{
    fault::{Access, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
    whole::check::{Owners, walk, walk_owners},
};

const HUGE: u64 = Order::HUGE.frames() as u64;

struct World {
    mm: Mm,
    spaces: Spaces,
    counters: Counters,
}

impl World {
    fn new() -> Self {
        Self::of("v6.1")
    }

    fn of(rules: &str) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 24 * Order::HUGE.frames());
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let mut mm = Mm::new(
            &machine,
            *named(rules),
            &Settings { min_free_kbytes: 0, watermark_boost_factor: 0, ..Settings::default() },
        );
        mm.memory.frames.keep_contents(7);
        Self { mm, spaces: Spaces::default(), counters: Counters::default() }
    }

    fn with<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        let result = body(&mut self.mm, &mut self.spaces, &mut Cx::new(CpuId(0), Time(0), &prices, &mut self.counters));
        walk(&self.mm).unwrap();
        let spaces = self.spaces.iter().map(|(_, space)| space).collect();
        walk_owners(&self.mm, &Owners { spaces, controls: Vec::new() }).unwrap();
        result
    }

    fn process(&mut self) -> SpaceId {
        self.with(|mm, spaces, cx| spaces.add(AddressSpace::new(mm, cx, MMAP_BASE).unwrap()))
    }

    /// Huge pages that were written, and that is all that is on LRU lists.
    fn written(&mut self, id: SpaceId, huge: u64) -> PageRange {
        self.with(|mm, spaces, cx| {
            let space = spaces.get_mut(id).unwrap();
            let room = space.mmap(mm, cx, (huge + 1) * HUGE).unwrap();
            let start = Vpn(room.start.0.next_multiple_of(HUGE));
            let range = PageRange::new(start, huge * HUGE);
            let mut touch = Touch::pages(range, Access::Write);
            while !matches!(touch.step(mm, space, cx, Time(u64::MAX)), Step::Done(_)) {}
            range
        })
    }

    fn head(&self, id: SpaceId, vpn: Vpn) -> Pfn {
        self.spaces.get(id).unwrap().tables.lookup(vpn).pfn()
    }

    fn unmap(&mut self, id: SpaceId, range: PageRange) {
        self.with(|mm, spaces, cx| spaces.get_mut(id).unwrap().munmap(mm, cx, range)).unwrap();
    }
}

#[test]
fn a_half_mapped_huge_page_gives_back_the_other_half() {
    let mut world = World::new();
    let id = world.process();
    let range = world.written(id, 3);
    let heads: Vec<Pfn> = (0..3).map(|n| world.head(id, range.start.plus(n * HUGE))).collect();
    for n in 0..512 {
        world.mm.memory.frames.store(heads[1].plus(n), u64::from(n) + 1000);
    }
    world.unmap(id, PageRange::new(range.start.plus(HUGE), HUGE / 2));
    assert_eq!(world.mm.deferred_split_count(), 1);
    let free = world.mm.memory.zones()[0].free_frames() + u64::from(world.mm.memory.zones()[0].cpu_lists()[0].count());
    assert_eq!(world.with(|mm, spaces, cx| mm.split_deferred(spaces, cx, heads[1])), Some(256));
    let now = world.mm.memory.zones()[0].free_frames() + u64::from(world.mm.memory.zones()[0].cpu_lists()[0].count());
    assert_eq!((now - free, world.mm.deferred_split_count()), (256, 0));
    assert_eq!(world.counters.get(Event::ThpSplitPage), 1);
    assert_eq!(world.counters.get(Event::ThpSplitPmd), 1, "munmap split it");
    // Where the huge page was, its upper half is, the last page first.
    let listed: Vec<Pfn> =
        world.mm.lru.lruvecs()[0].list(LruKind::InactiveAnon).iter(&world.mm.memory.frames).collect();
    let upper: Vec<Pfn> = (256..512).rev().map(|n| heads[1].plus(n)).collect();
    assert_eq!(listed, [vec![heads[2]], upper, vec![heads[0]]].concat());
    for n in 256..512 {
        assert_eq!(world.head(id, range.start.plus(HUGE + u64::from(n))), heads[1].plus(n), "page {n}");
        assert_eq!(world.mm.memory.frames.content(heads[1].plus(n)), u64::from(n) + 1000);
    }
}

#[test]
fn every_process_that_shares_it_maps_it_by_base_entries_after() {
    let mut world = World::new();
    let first = world.process();
    let range = world.written(first, 1);
    let second = world.with(|mm, spaces, cx| {
        let child = spaces.get_mut(first).unwrap().fork(mm, cx).unwrap();
        spaces.add(child)
    });
    let head = world.head(first, range.start);
    // One of them has lost its first page; the other maps all of it.
    world.unmap(second, PageRange::new(range.start, 1));
    assert_eq!(world.mm.deferred_split_count(), 0, "every frame is mapped by somebody");
    assert_eq!(world.with(|mm, spaces, cx| mm.split_folio(spaces, cx, head)), Split::Done { freed: 0 });
    assert_eq!(world.mm.folio_mappings(head), 1);
    assert_eq!(world.mm.folio_mappings(head.plus(1)), 2);
    for id in [first, second] {
        world.unmap(id, range);
    }
    assert_eq!(world.counters.get(Event::ThpSplitPage), 1);
}

#[test]
fn one_that_others_hold_is_left_alone() {
    let mut world = World::new();
    let id = world.process();
    let range = world.written(id, 1);
    let head = world.head(id, range.start);
    world.mm.memory.frames.mark(head, FrameFlag::Locked, true);
    assert_eq!(world.with(|mm, spaces, cx| mm.split_folio(spaces, cx, head)), Split::Busy);
    world.mm.memory.frames.mark(head, FrameFlag::Locked, false);
    // A child that is being forked maps it, and is nowhere to be found yet.
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let child = world.spaces.get_mut(id).unwrap().fork(&mut world.mm, &mut cx).unwrap();
    assert_eq!(world.mm.split_folio(&mut world.spaces, &mut cx, head), Split::Busy);
    world.spaces.add(child);
    assert_eq!(world.with(|mm, spaces, cx| mm.split_folio(spaces, cx, head)), Split::Done { freed: 0 });
    assert_eq!(world.counters.get(Event::ThpSplitPageFailed), 1);
}

#[test]
fn up_to_4_4_a_huge_page_falls_apart_with_its_entry() {
    let mut world = World::of("v4.1");
    let id = world.process();
    let range = world.written(id, 2);
    let head = world.head(id, range.start.plus(HUGE));
    for n in 0..512 {
        world.mm.memory.frames.store(head.plus(n), u64::from(n) + 1000);
    }
    world.unmap(id, PageRange::new(range.start.plus(HUGE), HUGE / 2));
    let events = [Event::ThpSplitPage, Event::ThpSplitPmd, Event::ThpDeferredSplitPage];
    assert_eq!(events.map(|event| world.counters.get(event)), [1, 1, 0]);
    assert_eq!(world.mm.memory.frames.allocated(head.plus(300)), Some(Order::BASE));
    assert_eq!(world.mm.memory.frames.allocated(head.plus(3)), None, "it is free");
    for n in 256..512 {
        let at = world.head(id, range.start.plus(HUGE + u64::from(n)));
        assert_eq!((at, world.mm.memory.frames.content(at)), (head.plus(n), u64::from(n) + 1000));
    }
}

#[test]
fn up_to_4_4_a_huge_page_is_split_inside_a_batch() {
    let mut world = World::of("v4.1");
    let id = world.process();
    let range = world.written(id, 2);
    world.with(|mm, _, cx| mm.lru_add_drain(cx));
    let listed = |world: &World| -> Vec<Pfn> {
        world.mm.lru.lruvecs()[0].list(LruKind::ActiveAnon).iter(&world.mm.memory.frames).collect()
    };
    let before = listed(&world);
    let other = world.written(id, 2);
    let heads = [0, 1].map(|n| world.head(id, other.start.plus(n * HUGE)));
    assert_eq!(world.mm.lru.batch(CpuId(0)), heads);
    // Whose batch it is makes no difference, as none is drained.
    let recent = world.mm.lru.lruvecs()[0].recent[0];
    world.with(|mm, spaces, cx| {
        let space = spaces.get_mut(id).unwrap();
        let slot = space.tables.pmd_slot(other.start).unwrap();
        space.split_pmd(mm, cx, slot);
    });
    assert_eq!((world.mm.lru.batch(CpuId(0)), world.mm.deferred_split_count()), (&heads[..], 0));
    assert_eq!(world.counters.get(Event::ThpSplitPage), 1);
    assert_eq!(world.mm.memory.frames.allocated(heads[0]), Some(Order::BASE));
    let tails: Vec<Pfn> = (1..512).rev().map(|n| heads[0].plus(n)).collect();
    assert_eq!(listed(&world), [&before[..], &tails].concat(), "the first tail is the next to be looked at");
    let now = world.mm.lru.lruvecs()[0].recent[0];
    assert_eq!((now.scanned - recent.scanned, now.rotated - recent.rotated), (511, 511));
    // The head is in use by itself, or is not.
    world.unmap(id, PageRange::new(other.start, 1));
    assert_eq!(world.mm.memory.frames.allocated(heads[0]), None, "munmap drains the batch first");
    assert_eq!(listed(&world), [&[heads[1]][..], &before, &tails].concat());
    world.unmap(id, range);
    world.unmap(id, other);
    assert_eq!(listed(&world), []);
}
