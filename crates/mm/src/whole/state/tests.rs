use memory::{
    cost::Prices,
    cx::Cx,
    event::Counters,
    frame::{Frame, FrameFlag},
    step::Step,
};
use rules::{
    gfp::{AllocRequest, Mobility},
    machine::{NodeSpec, ZoneSpec},
    variant::named,
};
use units::{CpuId, Frames, NodeId, Order, Pfn, Time};

use super::*;
use crate::{
    fault::{Access, FaultDone, touch::Touch},
    space::{address_space::MMAP_BASE, page_table::Pmd},
    thp::ThpEnabled,
    whole::check::{self, Owners},
};

/// Marsaglia's xorshift64, for tests and as draws.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

impl Draw for Xorshift {
    fn below(&mut self, bound: u64, _: Drawn) -> u64 {
        Xorshift::below(self, bound)
    }
}

/// Two zones, of which the lower begins and the upper ends inside a pageblock, and a hole between them.
fn machine() -> MachineSpec {
    let lower = ZoneSpec::whole(ZoneKind::Dma32, Pfn(1), 8191);
    let upper = ZoneSpec::whole(ZoneKind::Normal, Pfn(16384), 16300);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![lower, upper] };
    MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] }
}

fn settings() -> Settings {
    Settings { min_free_kbytes: 128, ..Settings::default() }
}

/// Memory that has been in use, and the address space of its user.
fn used(seed: u64, operations: u32) -> (Mm, AddressSpace) {
    let mut random = Xorshift(seed);
    let mut mm = Mm::new(&machine(), *named("v6.1"), &settings());
    mm.thp.enabled = ThpEnabled::Always;
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let mut space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).unwrap();
    let range = space.mmap(&mut mm, &mut cx, 1 + random.below(6000)).unwrap();
    let mut touch = Touch::pages(range, Access::Write);
    loop {
        match touch.step(&mut mm, &mut space, &mut cx, Time(u64::MAX)) {
            Step::More => {}
            Step::Done(done) => break assert_eq!(done, FaultDone::Handled),
            Step::Block(wait) => panic!("nothing waits here, but for {wait:?}"),
        }
    }
    let mut held = Vec::new();
    for _ in 0..operations {
        let mut cx = Cx::new(CpuId(u32::try_from(random.below(2)).unwrap()), Time(0), &prices, &mut counters);
        if random.below(5) < 3 || held.is_empty() {
            let order = Order(u8::try_from(random.below(6).saturating_sub(2)).unwrap());
            let mobility = Mobility::ALL[random.index(3)];
            let request = AllocRequest { mobility, ..AllocRequest::gfp_kernel(NodeId(0)) }.of_order(order);
            held.extend(mm.memory.alloc(&mut cx, &request).map(|pfn| (pfn, order)));
        } else {
            let (pfn, order) = held.swap_remove(random.index(held.len()));
            mm.memory.free(&mut cx, pfn, order);
        }
    }
    (mm, space)
}

/// The map that a kernel would give of all frames.
fn map_of(mm: &Mm) -> FrameMap {
    let mut frames = Vec::new();
    while frames.len() < mm.memory.frames.len() as usize {
        let pfn = Pfn(u32::try_from(frames.len()).unwrap());
        let frame = mm.memory.frames.get(pfn);
        let (first, others) = match frame {
            Frame::Reserved => (Seen::Reserved, Seen::Tail),
            Frame::Free { .. } => (Seen::Free, Seen::Free),
            Frame::Pcp { .. } => (Seen::Unmarked, Seen::Unmarked),
            Frame::Kernel { order: Order::BASE, mobility: Mobility::Unmovable } => (Seen::Unmarked, Seen::Tail),
            Frame::Kernel { mobility: Mobility::Movable, .. } => (Seen::File, Seen::Tail),
            Frame::Kernel { mobility: Mobility::Reclaimable, .. } | Frame::Slab(_) => (Seen::Slab, Seen::Tail),
            Frame::PageTable => (Seen::PageTable, Seen::Tail),
            Frame::Anon { .. } => {
                let listed = mm.memory.frames.has(pfn, FrameFlag::OnLru);
                let is_active = mm.memory.frames.has(pfn, FrameFlag::Active);
                let kind = if is_active { LruKind::ActiveAnon } else { LruKind::InactiveAnon };
                (Seen::Anon(listed.then_some(kind)), Seen::Tail)
            }
            _ => (Seen::Kernel, Seen::Tail),
        };
        frames.push(first);
        frames.extend((1..mm.memory.frames.order_of(frame).frames()).map(|_| others));
    }
    FrameMap { frames, zones: counts_of(mm) }
}

fn counts_of(mm: &Mm) -> Vec<ZoneCounts> {
    let zone = |(index, zone): (usize, &memory::zone_state::ZoneState)| {
        let mut blocks = [0; MigrateType::COUNT];
        for block in (0..mm.memory.frames.len()).step_by(512).map(Pfn) {
            if mm.memory.frames.blocks.zone(block).is_some_and(|of| usize::from(of.0) == index) {
                blocks[mm.memory.frames.blocks.migrate_type(block) as usize] += 1;
            }
        }
        let orders = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(Order);
        let of = |list| orders.map(|order| u64::from(zone.free_list(order, list).len()));
        let listed = zone.cpu_lists().iter().map(memory::pcp::lists::Pcp::count).collect();
        ZoneCounts { node: zone.node, kind: zone.kind, blocks, free: MigrateType::ALL.map(of), listed }
    };
    mm.memory.zones().iter().enumerate().map(zone).collect()
}

fn load(map: &FrameMap, seed: u64) -> Loaded {
    let loaded = Mm::from_map(&machine(), *named("v6.1"), &settings(), map, &mut Xorshift(seed)).unwrap();
    check::walk(&loaded.mm).unwrap();
    check::walk_owners(&loaded.mm, &Owners { spaces: vec![&loaded.init], controls: Vec::new() }).unwrap();
    loaded
}

#[test]
fn memory_that_was_in_use_comes_back_with_the_same_counts() {
    for seed in 1..=24 {
        let (mm, space) = used(seed, 200 * u32::try_from(seed).unwrap());
        let map = map_of(&mm);
        let loaded = load(&map, seed + 7);
        assert_eq!(counts_of(&loaded.mm), map.zones, "seed {seed}");
        assert_eq!(loaded.init.rss_pages(), space.rss_pages(), "seed {seed}");
        assert_eq!(loaded.mm.gauges(), mm.gauges(), "seed {seed}");
        for at in 0..mm.lru.lruvecs().len() {
            let frames = |mm: &Mm| LruKind::ALL.map(|kind| mm.lru.frames(at, kind));
            assert_eq!(frames(&loaded.mm), frames(&mm));
        }
        let again = map_of(&loaded.mm).frames;
        let free = |frames: &[Seen]| frames.iter().map(|seen| *seen == Seen::Free).collect::<Vec<bool>>();
        assert_eq!(free(&again), free(&map.frames), "seed {seed}");
        assert!(!loaded.notes.iter().any(|note| note.contains("not as the kernel counts")), "{:?}", loaded.notes);
    }
}

#[test]
fn pageblocks_of_contents_that_tell_get_their_types_back() {
    // Little was freed, so that each pageblock holds what its type says.
    let (mm, _) = used(3, 1500);
    let map = map_of(&mm);
    let loaded = load(&map, 1);
    let mut others = 0;
    for block in (0..mm.memory.frames.len()).step_by(512).map(Pfn) {
        let types = [&mm, &loaded.mm].map(|mm| mm.memory.frames.blocks.migrate_type(block));
        let inside = &map.frames[block.0 as usize..][..512];
        if inside.iter().any(|seen| !matches!(seen, Seen::Free | Seen::Reserved)) {
            assert_eq!(types[0], types[1], "the pageblock of frame {block}");
            others += u32::from(types[0] != MigrateType::Movable);
        }
    }
    assert!(others >= 2, "the test needs pageblocks of other types, not {others}");
}

#[test]
fn draws_decide_what_the_map_leaves_open_and_nothing_else() {
    let map = map_of(&used(5, 3000).0);
    let words = |loaded: &Loaded| {
        (0..loaded.mm.memory.frames.len()).map(|pfn| loaded.mm.memory.frames.raw(Pfn(pfn))).collect::<Vec<(u64, u64)>>()
    };
    let [one, same, other] = [1, 1, 2].map(|seed| load(&map, seed));
    assert_eq!(words(&one), words(&same));
    assert_ne!(words(&one), words(&other));
    assert_eq!(counts_of(&one.mm), counts_of(&other.mm));
}

/// A map with free memory, and with page tables and pages of files in memory, from `AT` on.
fn with_shmem(tables: usize, pages: &[Shmem]) -> Loaded {
    let mut frames = vec![Seen::Free; 16384 + 16300];
    frames[0] = Seen::Reserved;
    frames[1..=tables].fill(Seen::PageTable);
    for (at, shmem) in pages.iter().enumerate() {
        frames[AT + at] = Seen::Shmem(*shmem);
    }
    load(&FrameMap { frames, zones: Vec::new() }, 1)
}

const AT: usize = 1024;

#[test]
fn files_in_memory_are_where_reclaim_finds_them() {
    let shmem = |list, is_mapped, is_referenced| Shmem { list, is_mapped, is_referenced };
    let (active, inactive) = (Some(LruKind::ActiveAnon), Some(LruKind::InactiveAnon));
    let pages = [shmem(active, true, false), shmem(inactive, false, true), shmem(None, false, false)];
    let loaded = with_shmem(9, &pages);
    assert_eq!(loaded.init.rss_pages(), 3);
    for (at, shmem) in pages.iter().enumerate() {
        let pfn = Pfn(u32::try_from(AT + at).unwrap());
        let Frame::Anon { vpn, .. } = loaded.mm.memory.frames.get(pfn) else { panic!("{pfn} can go to swap") };
        let Pmd::Table(table) = loaded.init.tables.pmd_of(vpn) else { panic!("{pfn} is mapped") };
        assert_eq!(loaded.init.tables.pte(table, vpn).is_accessed(), shmem.is_mapped);
        let has = |flag| loaded.mm.memory.frames.has(pfn, flag);
        assert_eq!(has(FrameFlag::OnLru), shmem.list.is_some());
        assert_eq!(has(FrameFlag::Active), shmem.list == active);
        assert_eq!(has(FrameFlag::Referenced), shmem.is_referenced);
    }
}

#[test]
fn files_in_memory_take_no_tables_that_the_kernel_did_not_have() {
    let page = Shmem { list: Some(LruKind::InactiveAnon), is_mapped: false, is_referenced: false };
    for (tables, pages, mapped) in [(9, 1025, 1025), (7, 1025, 512), (5, 40, 0), (0, 40, 0)] {
        let loaded = with_shmem(tables, &vec![page; pages]);
        assert_eq!(loaded.init.rss_pages(), mapped as u64, "{tables} tables");
        let kept = loaded.notes.iter().any(|note| note.contains("there are no page tables for them"));
        assert_eq!(kept, mapped < pages);
        let held =
            |pfn: usize| matches!(loaded.mm.memory.frames.get(Pfn(u32::try_from(pfn).unwrap())), Frame::Kernel { .. });
        assert_eq!((AT..AT + pages).filter(|pfn| held(*pfn)).count(), pages - mapped);
        assert_eq!(loaded.mm.gauges()[0].1, tables.max(1) as u64);
    }
}

#[test]
fn a_free_run_ends_where_types_do_not_merge() {
    let mut frames = vec![Seen::Reserved; 16384 + 16300];
    frames[1024..3072].fill(Seen::Free);
    let mut counts = counts_of(&Mm::new(&machine(), *named("v6.1"), &settings())).remove(0);
    counts.blocks = [0; MigrateType::COUNT];
    counts.free = [[0; ORDERS]; MigrateType::COUNT];
    (counts.blocks[MigrateType::Movable as usize], counts.blocks[MigrateType::HighAtomic as usize]) = (15, 1);
    counts.free[MigrateType::HighAtomic as usize][9] = 1;
    counts.free[MigrateType::Movable as usize][9] = 1;
    counts.free[MigrateType::Movable as usize][10] = 1;
    let map = FrameMap { frames, zones: vec![counts] };
    let loaded = load(&map, 1);
    let zone = &loaded.mm.memory.zones()[0];
    let high_atomic = zone.free_list(Order(9), MigrateType::HighAtomic);
    assert_eq!((high_atomic.len(), zone.high_atomic), (1, 512));
    let block = high_atomic.first().unwrap();
    assert_eq!(loaded.mm.memory.frames.blocks.migrate_type(block), MigrateType::HighAtomic);
}

#[test]
fn what_lists_of_cpus_hold_are_neighbours_that_merge_again() {
    // Of eight runs of 32 unmarked frames between files the lists of the first CPU hold as many frames as two of them have.
    let mut frames = vec![Seen::Reserved; 16384 + 16300];
    for start in (1024..1536).step_by(64) {
        frames[start..start + 32].fill(Seen::Unmarked);
        frames[start + 32..start + 64].fill(Seen::File);
    }
    let mut counts = counts_of(&Mm::new(&machine(), *named("v6.1"), &settings())).remove(0);
    frames[2048..4096].fill(Seen::Free);
    (counts.blocks, counts.free) = ([0; MigrateType::COUNT], [[0; ORDERS]; MigrateType::COUNT]);
    counts.blocks[MigrateType::Movable as usize] = 16;
    counts.free[MigrateType::Movable as usize][10] = 2;
    counts.listed = vec![64, 0];
    for seed in 1..=20 {
        let mut loaded = load(&FrameMap { frames: frames.clone(), zones: vec![counts.clone()] }, seed);
        let (prices, mut counters) = (Prices::free(), Counters::default());
        loaded.mm.memory.drain_all_pages(&mut Cx::new(CpuId(0), Time(0), &prices, &mut counters));
        let free = |pfn| {
            if let Frame::Free { order, .. } = loaded.mm.memory.frames.get(Pfn(pfn)) { Some(order) } else { None }
        };
        let blocks: Vec<Order> = (1024..1536).filter_map(free).collect();
        assert_eq!(blocks, [Order(5); 2], "seed {seed}");
    }
}

#[test]
fn no_map_makes_it_panic() {
    let mut random = Xorshift(77);
    let kinds = [
        Seen::Hole,
        Seen::Reserved,
        Seen::Free,
        Seen::Unmarked,
        Seen::Anon(None),
        Seen::Anon(Some(LruKind::ActiveAnon)),
        Seen::Shmem(Shmem { list: Some(LruKind::InactiveAnon), is_mapped: false, is_referenced: true }),
        Seen::File,
        Seen::Slab,
        Seen::PageTable,
        Seen::Kernel,
        Seen::Tail,
    ];
    let mut loads = 0;
    for round in 0..80 {
        let mut frames = Vec::new();
        let longest = 1 << random.below(11);
        while frames.len() < 34000 {
            let seen = kinds[random.index(kinds.len())];
            let run = 1 + random.index(longest);
            frames.extend(std::iter::repeat_n(seen, run));
        }
        frames.truncate(random.index(34000));
        let mut counts = || ZoneCounts {
            node: NodeId(0),
            kind: [ZoneKind::Dma32, ZoneKind::Normal][random.index(2)],
            blocks: [(); MigrateType::COUNT].map(|()| random.below(20)),
            free: [(); MigrateType::COUNT].map(|()| [(); ORDERS].map(|()| random.below(1 << 6))),
            listed: (0..random.below(4)).map(|_| u32::try_from(random.below(5000)).unwrap()).collect(),
        };
        let map = FrameMap { frames, zones: vec![counts(), counts()] };
        let loaded = Mm::from_map(&machine(), *named("v6.1"), &settings(), &map, &mut Xorshift(round + 1));
        if let Some(loaded) = loaded {
            loads += 1;
            check::walk(&loaded.mm).unwrap();
            check::walk_owners(&loaded.mm, &Owners { spaces: vec![&loaded.init], controls: Vec::new() }).unwrap();
        }
    }
    assert!(loads > 20, "{loads} loads are too few to show anything");
}

#[test]
fn a_system_is_where_it_was_drawn() {
    let system = System { anonymous: Frames(600), kernel: Frames(1000), percent: 10, programs: Frames(500), varies: 0 };
    let map = |seed| FrameMap::of_system(&machine(), &system, &mut Xorshift(seed));
    let count = |map: &FrameMap, is: &dyn Fn(&Seen) -> bool| map.frames.iter().filter(|seen| is(seen)).count();
    let first = map(1);
    assert_eq!(count(&first, &|seen| *seen == Seen::Anon(Some(LruKind::ActiveAnon))), 600);
    // Two whole pageblocks.
    assert_eq!(count(&first, &|seen| *seen == Seen::Kernel), 1024);
    // 46 pageblocks are whole, so five have anonymous memory, and no huge page can be had of seven.
    let whole = |block: &[Seen]| block.iter().all(|seen| *seen == Seen::Free);
    assert_eq!(first.frames.chunks_exact(512).skip(1).filter(|block| whole(block)).count(), 46 - 7);
    assert!(first != map(2), "another seed, another place");

    let varied = System { varies: 20, ..system };
    for amount in [|system: &System| system.anonymous, |system: &System| system.programs] {
        let wanted = amount(&system).0;
        let amounts: Vec<u64> = (1..20).map(|seed| amount(&varied.drawn(&mut Xorshift(seed))).0).collect();
        assert!(amounts.iter().all(|amount| (wanted * 4 / 5..=wanted * 6 / 5).contains(amount)), "{amounts:?}");
        assert!(amounts.iter().min() != amounts.iter().max(), "{amounts:?}");
    }
    assert_eq!(system.drawn(&mut Xorshift(1)), system, "one that does not vary");

    let Loaded { mm, init, .. } = load(&first, 3);
    let kernel = (0..32_684).step_by(512).filter(|pfn| first.frames.get(*pfn) == Some(&Seen::Kernel));
    let types: Vec<_> =
        kernel.map(|pfn| mm.memory.frames.blocks.migrate_type(Pfn(u32::try_from(pfn).unwrap()))).collect();
    assert_eq!(types, [MigrateType::Unmovable; 2]);
    assert_eq!(init.rss_pages(), 600);
}
