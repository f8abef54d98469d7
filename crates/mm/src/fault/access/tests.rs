//! Visits in runs against a naive twin that goes page by page.

use memory::{
    cost::{Cause, LastCache, Latency, Prices, Spent, TlbEntries, Walk, Work, latency::Place, walk::Homes},
    event::{Counters, Event},
    primitive,
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Frames, NodeId, Order as FrameOrder, Pfn, Picos, Time, Vpn};

use super::{order::Order, *};
use crate::{
    fault::touch::Touch,
    numa::numa_hint::HintScan,
    space::{address_space::MMAP_BASE, page_table::Pmd},
    thp::ThpEnabled,
};

const NODES: u32 = 3;

/// Three nodes of 32 MiB, two CPUs each.
fn machine() -> Mm {
    let frames = 8192;
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id * 2), CpuId(id * 2 + 1)],
        distance: (0..NODES).map(|to| if to == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * frames), frames)],
    };
    let nodes = (0..NODES).map(node).collect();
    let spec = MachineSpec { pageblock_order: FrameOrder::HUGE, max_order: FrameOrder(10), nodes };
    let settings = Settings { min_free_kbytes: 128, ..Settings::default() };
    let mut mm = Mm::new(&spec, *named("v6.1"), &settings);
    mm.memory.set_latency(latency());
    mm
}

/// Each pair of nodes has figures of its own.
fn latency() -> Latency {
    let by_place = |least: u64, step: u64| {
        let row =
            |from: u64| (0..3).map(move |to| Picos(least + if from == to { 0 } else { step * (1 + from + 3 * to) }));
        (0..3).map(|from| row(from).collect()).collect()
    };
    Latency { load: by_place(80_000, 10_001), line: by_place(6_000, 1_003), ..Latency::default() }
}

/// As `latency`, with tables that have to be walked: few pages are in a TLB, and no cache holds all of their entries.
fn walked() -> Latency {
    let walk = Walk {
        first: TlbEntries { base: 4, huge: 2 },
        second: TlbEntries { base: 16, huge: 2 },
        second_hit: Picos(1_009),
        skips: [1, 1, 1],
        private: None,
        host: None,
    };
    let cache = Some(LastCache { size: units::Bytes(64 * 64), load: Picos(9_001) });
    Latency { walk: Some(walk), cache, ..latency() }
}

fn prices() -> Prices {
    Prices::new(|work| Picos(1_000 + 17 * work as u64))
}

/// A stream of numbers without a pattern.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Memory, and what was counted and spent in it.
#[derive(Clone)]
struct World {
    mm: Mm,
    space: AddressSpace,
    counters: Counters,
    spent: Spent,
    now: Time,
    cpu: CpuId,
}

impl World {
    fn new() -> Self {
        let (mut mm, mut counters, prices) = (machine(), Counters::default(), Prices::free());
        mm.thp.enabled = ThpEnabled::Madvise;
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).expect("there is room");
        Self { mm, space, counters, spent: Spent::default(), now: Time(1_000_000), cpu: CpuId(0) }
    }

    /// A step of something.
    fn with<T>(&mut self, body: impl FnOnce(&mut Mm, &mut AddressSpace, &mut Cx) -> T) -> T {
        let prices = prices();
        let mut cx = Cx::new(self.cpu, self.now, &prices, &mut self.counters);
        let result = body(&mut self.mm, &mut self.space, &mut cx);
        self.now = cx.now();
        self.spent.add(cx.spent());
        result
    }

    /// Pieces of a new range get memory from different nodes, or none, and some of them hint.
    fn populate(&mut self, numbers: &mut Numbers, pages: u64) -> PageRange {
        let range = self.with(|mm, space, cx| space.mmap(mm, cx, pages)).expect("there is room");
        if numbers.below(3) == 0 {
            let advice = crate::space::vma::HugeAdvice::HugePage;
            self.with(|mm, space, cx| space.madvise(mm, cx, range, advice)).expect("it is mapped");
        }
        let alternates = numbers.below(4) == 0;
        let mut at = range.start;
        while at < range.end {
            let long = 1 + numbers.below(if alternates { 3 } else { 700 });
            let part = PageRange { start: at, end: at.plus(long).min(range.end) };
            at = part.end;
            self.cpu = CpuId(u32::try_from(numbers.below(6)).unwrap());
            let access = if numbers.below(5) == 0 { fault::Access::Read } else { fault::Access::Write };
            if numbers.below(8) > 0 {
                let mut touch = Touch::pages(part, access);
                while self.with(|mm, space, cx| touch.step(mm, space, cx, Time(u64::MAX))) == Step::More {}
            }
        }
        self.hint(numbers, range);
        range
    }

    fn hint(&mut self, numbers: &mut Numbers, range: PageRange) {
        for _ in 0..numbers.below(4) {
            let start = range.start.plus(numbers.below(range.pages()));
            let end = start.plus(1 + numbers.below(900)).min(range.end);
            let mut scan = HintScan::new(PageRange { start, end });
            while self.with(|_, space, cx| scan.step(space, cx, Time(0))) == Step::More {}
        }
    }

    /// In steps of any length, each of which ends where the next begins.
    fn in_runs(&mut self, numbers: &mut Numbers, accesses: &mut Accesses) {
        let longest = [1, 100_000, 50_000_000, 10_000_000_000][usize::try_from(numbers.below(4)).unwrap()];
        loop {
            let limits = Limits {
                horizon: self.now + Picos(numbers.below(3_000)),
                until: self.now + Picos(1 + numbers.below(longest)),
            };
            match self.with(|mm, space, cx| accesses.step(mm, space, cx, limits)) {
                Step::More => {}
                Step::Done(done) => return assert_eq!(done, FaultDone::Handled),
                Step::Block(wait) => panic!("nothing is waited for, but {wait:?}"),
            }
        }
    }

    /// One page after the other. Says how many visits there were.
    fn page_by_page(&mut self, range: PageRange, pattern: Pattern, amount: Amount, draw: u64) -> u64 {
        let mut order = Order::new(range.into(), pattern.is_random().then_some(draw));
        let (begin, mut visits, mut next) = (self.now, 0, order.piece().start);
        while match amount {
            Amount::Rounds(rounds) => visits < rounds * range.pages(),
            Amount::Time(span) => self.now < begin + span,
        } {
            if self.visit(range, pattern, next) {
                visits += 1;
                next = next.plus(1);
                if next == order.piece().end {
                    next = order.next_piece();
                }
            }
        }
        visits
    }

    /// A visit to a page, or the fault that has to come before; says whether it was the visit.
    fn visit(&mut self, range: PageRange, pattern: Pattern, vpn: Vpn) -> bool {
        let stores = matches!(pattern, Pattern::Sweep | Pattern::Update);
        let pte = self.space.tables.lookup(vpn);
        if !pte.is_present() || (stores && !pte.is_writable()) || (pte.is_huge() && pte.is_hinting()) {
            let access = if stores { fault::Access::Write } else { fault::Access::Read };
            let mut fault = FaultControl::new(vpn, access);
            while self.with(|mm, space, cx| fault.step(mm, space, cx)) == Step::More {}
            return false;
        }
        self.with(|mm, space, cx| {
            let own = mm.memory.nodes().place(mm.memory.node_of_cpu(cx.cpu()));
            // The base zero page is no frame of any node's; the huge one is.
            let to = if pte.is_zero_page() && !pte.is_huge() {
                own
            } else {
                mm.memory.nodes().place(mm.memory.node_of(pte.pfn()))
            };
            if pte.is_hinting() {
                let Pmd::Table(table) = space.tables.pmd_of(vpn) else { unreachable!("a base page") };
                primitive::page_fault(cx, vpn);
                space.tables.set_pte(cx, table, vpn, pte.without_hint());
                cx.count(Event::NumaHintFaults, 1);
                cx.count(Event::NumaHintFaultsLocal, u64::from(to == own));
            }
            match space.tables.pmd_of(vpn) {
                Pmd::Table(table) => {
                    let place = crate::space::page_table::Level::Pte.index(vpn);
                    let entry = &mut space.tables.ptes_mut(table)[place];
                    *entry = entry.used(stores);
                }
                _ => space.tables.use_huge(vpn, stores),
            }
            let range = Frames(range.pages());
            let place = Place { from: own, to, is_huge: pte.is_huge(), cache_users: 1 };
            let table = match space.tables.pmd_of(vpn) {
                Pmd::Table(table) => space.tables.frame(table),
                _ => space.tables.pmd_frame(vpn).expect("it is mapped"),
            };
            let homes = Homes { cpu: own, page: to, tables: mm.memory.nodes().place(mm.memory.node_of(table)) };
            let price = match mm.memory.latency().walked_visit(pattern, range, pte.is_huge()) {
                Some(visit) => visit.price(mm.memory.latency(), homes),
                None => mm.memory.latency().of_visit(cx.prices(), pattern, range, place),
            };
            cx.access(price, 1);
        });
        true
    }

    fn entries(&self, range: PageRange) -> Vec<u64> {
        (range.start.0..range.end.0).map(|vpn| self.space.tables.lookup(Vpn(vpn)).raw()).collect()
    }
}

#[test]
fn runs_of_pages_come_to_what_each_page_comes_to() {
    let mut numbers = Numbers(1);
    let (mut hints, mut far) = (0, Picos(0));
    for case in 0..150 {
        let mut world = World::new();
        if case % 2 == 0 {
            world.mm.memory.set_latency(walked());
        }
        let pages = 1 + numbers.below(if case % 3 == 0 { 20 } else { 3000 });
        let range = world.populate(&mut numbers, pages);
        let start = range.start.plus(numbers.below(range.pages()));
        let part = PageRange { start, end: start.plus(1 + numbers.below(range.end.0 - start.0)) };
        let pattern = match numbers.below(2) {
            0 if case % 5 == 0 => Pattern::Stride,
            0 if case % 7 == 0 => Pattern::Update,
            0 => Pattern::Sweep,
            _ if case % 4 == 0 => Pattern::Lines(3),
            _ => Pattern::Random,
        };
        let amount = match numbers.below(3) {
            0 => Amount::Rounds(1 + numbers.below(5)),
            1 => Amount::Time(Picos(1 + numbers.below(3_000_000_000))),
            _ => Amount::Time(Picos(1 + numbers.below(3_000_000))),
        };
        world.cpu = CpuId(u32::try_from(numbers.below(6)).unwrap());
        let mut twin = world.clone();
        // Twice: what was known of tables has changed in between.
        for round in 0..2 {
            let what = format!("case {case}, round {round}: {part:?}, {pattern:?}, {amount:?}");
            let mut accesses = Accesses::new(part.into(), pattern, amount, case);
            world.in_runs(&mut numbers, &mut accesses);
            let visits = twin.page_by_page(part, pattern, amount, case);
            assert_eq!(accesses.visits(), visits, "{what}");
            assert_eq!(world.now, twin.now, "{what}");
            assert_eq!(world.spent, twin.spent, "{what}");
            assert!(world.counters.iter().eq(twin.counters.iter()), "{what}");
            assert_eq!(world.entries(range), twin.entries(range), "{what}");
            let seed = numbers.0;
            world.hint(&mut numbers, range);
            numbers.0 = seed;
            twin.hint(&mut numbers, range);
        }
        hints += world.counters.get(Event::NumaHintFaults);
        far += world.spent.on(Cause::RemoteMemory);
    }
    assert!(hints > 5_000 && far > Picos::from_micros(100), "the cases have {hints} hinting faults, {far} remote");
}

/// Tables are where the policy of the task has them, as the kernel takes them by it.
#[test]
fn a_walk_costs_what_the_node_of_the_table_costs() {
    let pages = 3 * AddressSpace::HUGE_PAGES;
    let far = |bind_tables: bool| {
        let mut world = World::new();
        world.mm.memory.set_latency(walked());
        let range = world.with(|mm, space, cx| space.mmap(mm, cx, pages)).expect("there is room");
        let bound = Mempolicy::Bind(rules::mempolicy::NodeMask::of([NodeId(2)]));
        let touch = |world: &mut World, policy| {
            let mut touch = Touch::pages(range, fault::Access::Write).under(policy);
            while world.with(|mm, space, cx| touch.step(mm, space, cx, Time(u64::MAX))) == Step::More {}
        };
        if !bind_tables {
            touch(&mut world, Mempolicy::Local);
            let mut discard = crate::space::unmap::Unmap::discard(range);
            while world.with(|mm, space, cx| discard.step(mm, space, cx, Time(u64::MAX))) == Step::More {}
        }
        touch(&mut world, bound);
        let Pmd::Table(table) = world.space.tables.pmd_of(range.start) else { panic!("base pages") };
        let node = world.mm.memory.node_of(world.space.tables.frame(table));
        assert_eq!(node, NodeId(if bind_tables { 2 } else { 0 }));
        assert_eq!(world.mm.memory.node_of(world.space.tables.lookup(range.start).pfn()), NodeId(2));
        let spent = world.spent;
        let mut accesses = Accesses::new(range.into(), Pattern::Random, Amount::Rounds(2), 1);
        let limits = Limits { horizon: Time(u64::MAX), until: Time(u64::MAX) };
        while world.with(|mm, space, cx| accesses.step(mm, space, cx, limits)) == Step::More {}
        let visits = 2 * pages;
        (world.spent.on(Cause::RemoteMemory) - spent.on(Cause::RemoteMemory)).0 / visits
    };
    let (with_tables, data_alone) = (far(true), far(false));
    assert!(data_alone > 20_000 && with_tables > data_alone + 20_000, "{with_tables} and {data_alone} ps");
}

#[test]
fn one_access_takes_what_the_machine_says_of_its_two_nodes() {
    let mut world = World::new();
    let latency = latency();
    for (from, to) in (0..3_u32).flat_map(|from| (0..3).map(move |to| (from, to))) {
        world.cpu = CpuId(from * 2 + 1);
        let (before, spent) = (world.now, world.spent);
        world.with(|mm, _, cx| mm.memory.access(cx, Pfn(to * 8192 + 5), 7));
        let figure = latency.load[from as usize][to as usize];
        assert_eq!(world.now.since(before).0, 7 * figure.0);
        let far = world.spent.on(Cause::RemoteMemory) - spent.on(Cause::RemoteMemory);
        let own = latency.load[from as usize][from as usize];
        assert_eq!(far.0, 7 * (figure - own).0, "from {from} to {to}");
    }
}

#[test]
fn on_a_flat_machine_an_access_takes_what_user_touch_says() {
    let mut world = World::new();
    world.mm.memory.set_latency(Latency::default());
    let before = world.now;
    world.with(|mm, _, cx| mm.memory.access(cx, Pfn(2 * 8192), 3));
    assert_eq!(world.now.since(before).0, 3 * prices().of(Work::UserTouch).0);
    assert_eq!(world.spent.on(Cause::RemoteMemory), Picos(0));
}

#[test]
fn rounds_that_cost_nothing_end_with_their_time() {
    let mut world = World::new();
    world.mm.memory.set_latency(Latency::default());
    let range = world.with(|mm, space, cx| space.mmap(mm, cx, 3)).expect("there is room");
    let free = Prices::free();
    let mut accesses = Accesses::new(range.into(), Pattern::Random, Amount::Time(Picos(500)), 0);
    let (mut now, mut steps) = (Time(0), 0);
    while {
        let mut cx = Cx::new(CpuId(0), now, &free, &mut world.counters);
        let limits = Limits { horizon: now, until: now + Picos(200) };
        let step = accesses.step(&mut world.mm, &mut world.space, &mut cx, limits);
        now = cx.now();
        steps += 1;
        step == Step::More
    } {}
    assert_eq!(now, Time(500));
    assert!(steps < 20, "{steps} steps");
}

#[test]
fn a_mapping_that_is_gone_ends_the_program() {
    let mut world = World::new();
    let range = PageRange::new(Vpn(4096), 4);
    let mut accesses = Accesses::new(range.into(), Pattern::Sweep, Amount::Rounds(1), 0);
    let limits = Limits { horizon: world.now, until: world.now + Picos(1) };
    assert_eq!(world.with(|mm, space, cx| accesses.step(mm, space, cx, limits)), Step::More, "it needs the lock first");
    assert!(accesses.is_in_fault() && accesses.keeps_lock());
    let step = world.with(|mm, space, cx| accesses.step(mm, space, cx, limits));
    assert_eq!(step, Step::Done(FaultDone::BadAddress));
}

#[test]
fn a_store_or_a_load_takes_the_hinting_fault_too() {
    for huge in [false, true] {
        let mut world = World::new();
        let range = world.with(|mm, space, cx| space.mmap(mm, cx, 1024)).expect("there is room");
        if huge {
            let advice = crate::space::vma::HugeAdvice::HugePage;
            world.with(|mm, space, cx| space.madvise(mm, cx, range, advice)).expect("it is mapped");
        }
        let touch = |world: &mut World| {
            let mut touch = Touch::pages(range, fault::Access::Write);
            while world.with(|mm, space, cx| touch.step(mm, space, cx, Time(u64::MAX))) == Step::More {}
        };
        touch(&mut world);
        let mut scan = HintScan::new(range);
        while world.with(|_, space, cx| scan.step(space, cx, Time(0))) == Step::More {}
        assert_eq!(world.counters.get(Event::NumaPteUpdates), 1024);
        assert_eq!(scan.updated(), 1024);
        world.cpu = CpuId(4);
        touch(&mut world);
        touch(&mut world);
        assert_eq!(
            world.counters.get(Event::NumaHintFaults),
            if huge { 513 } else { 1024 },
            "the range has one whole huge page"
        );
        assert_eq!(world.counters.get(Event::NumaHintFaultsLocal), 0);
    }
}
