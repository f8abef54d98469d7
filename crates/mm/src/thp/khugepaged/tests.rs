//! khugepaged: collapses keep contents and mappings, and ranges are chosen by its settings.

mod series;

use memory::{
    cost::{Cause, Prices, Work},
    event::{Counters, Event},
    frame::{ControlId, FrameFlag},
    news::Daemon,
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{Variant, named},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Order, Pfn, Picos, Time};

use super::*;
use crate::{
    fault::{Access, touch::Touch},
    space::{address_space::MMAP_BASE, page_table::Pmd, vma::HugeAdvice},
    whole::check::{Owners, walk, walk_owners},
};

/// Frames of a node.
const ZONE: u32 = 24 * Order::HUGE.frames();

struct World {
    mm: Mm,
    spaces: Spaces,
    counters: Counters,
    /// Where and when all of it happens.
    cpu: CpuId,
    now: Time,
}

impl World {
    fn new() -> Self {
        Self::with_rules(*named("v6.1"), 1)
    }

    /// Nodes of 24 huge pages and one CPU each.
    fn with_rules(rules: Variant, nodes: u32) -> Self {
        let node = |id: u32| {
            let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(id * ZONE), ZONE);
            let distance = (0..nodes).map(|other| if other == id { 10 } else { 20 }).collect();
            NodeSpec { id: NodeId(id), cpus: vec![CpuId(id)], distance, zones: vec![zone] }
        };
        let nodes = (0..nodes).map(node).collect();
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let mut mm = Mm::new(
            &machine,
            rules,
            &Settings { min_free_kbytes: 0, watermark_boost_factor: 0, ..Settings::default() },
        );
        mm.memory.frames.keep_contents(7);
        Self { mm, spaces: Spaces::default(), counters: Counters::default(), cpu: CpuId(0), now: Time(0) }
    }

    fn with<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        let mut cx = Cx::new(self.cpu, self.now, &prices, &mut self.counters).acting_for(ControlId(9));
        let result = body(&mut self.mm, &mut self.spaces, &mut cx);
        walk(&self.mm).unwrap();
        let spaces = self.spaces.iter().map(|(_, space)| space).collect();
        let mut holdings = self.mm.khugepaged.holdings();
        self.mm.thp_threads.values().for_each(|thread| holdings.add(thread.holdings()));
        let controls = vec![(ControlId(9), holdings)];
        walk_owners(&self.mm, &Owners { spaces, controls }).unwrap();
        result
    }

    /// A process with a mapping of huge size, the first `touched` base pages of which were written: with their own numbers.
    fn process(&mut self, huge: u64, touched: u64) -> (SpaceId, PageRange) {
        self.mm.thp.enabled = ThpEnabled::Never;
        let (id, range) = self.with(|mm, spaces, cx| {
            let id = spaces.add(AddressSpace::new(mm, cx, MMAP_BASE).unwrap());
            let space = spaces.get_mut(id).unwrap();
            let room = space.mmap(mm, cx, (huge + 1) * HUGE_PAGES).unwrap();
            let range = PageRange::new(Vpn(room.start.0.next_multiple_of(HUGE_PAGES)), huge * HUGE_PAGES);
            let mut touch = Touch::pages(PageRange::new(range.start, touched), Access::Write);
            while !matches!(touch.step(mm, space, cx, Time(u64::MAX)), Step::Done(_)) {}
            (id, range)
        });
        for n in 0..touched {
            let pfn = self.frame(id, range.start.plus(n));
            self.mm.memory.frames.store(pfn, 1000 + n);
        }
        self.mm.thp.enabled = ThpEnabled::Madvise;
        self.with(|mm, spaces, cx| {
            mm.lru_add_drain(cx);
            spaces.get_mut(id).unwrap().madvise(mm, cx, range, HugeAdvice::HugePage).unwrap();
        });
        (id, range)
    }

    fn frame(&self, id: SpaceId, vpn: Vpn) -> Pfn {
        let pte = self.spaces.get(id).unwrap().tables.lookup(vpn);
        if pte.is_huge() { pte.pfn().plus(u32::try_from(vpn.0 % HUGE_PAGES).unwrap()) } else { pte.pfn() }
    }

    fn is_huge(&self, id: SpaceId, vpn: Vpn) -> bool {
        matches!(self.spaces.get(id).unwrap().tables.pmd_of(vpn), Pmd::Huge(_))
    }

    /// Until it sleeps; says for how long.
    fn run(&mut self) -> Wait {
        // Bound: a wake-up looks at so many pages.
        for _ in 0..10_000 {
            if let Step::Block(wait) = self.with(|mm, spaces, cx| mm.step_khugepaged(spaces, cx, true)) {
                return wait;
            }
        }
        panic!("it never sleeps");
    }
}

#[test]
fn what_is_in_use_becomes_huge_and_holds_the_same() {
    let mut world = World::new();
    let (id, range) = world.process(3, HUGE_PAGES + 100);
    let rss = world.spaces.get(id).unwrap().rss_pages();
    assert_eq!(rss, HUGE_PAGES + 100);
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    assert!(matches!(world.run(), Wait::Until(_)));
    assert_eq!(world.mm.khugepaged.pages_collapsed, 2, "the third has no page at all");
    assert!(world.is_huge(id, range.start) && world.is_huge(id, range.start.plus(HUGE_PAGES)));
    for n in 0..2 * HUGE_PAGES {
        let held = world.mm.memory.frames.content(world.frame(id, range.start.plus(n)));
        assert_eq!(held, if n < HUGE_PAGES + 100 { 1000 + n } else { 0 }, "page {n}");
    }
    assert_eq!(world.spaces.get(id).unwrap().rss_pages(), 2 * HUGE_PAGES);
    assert_eq!(world.counters.get(Event::ThpCollapseAlloc), 2);
    assert_eq!(world.mm.khugepaged.full_scans, 1);
    // Nothing is left to do, and all of it goes with the process.
    assert!(matches!(world.run(), Wait::Until(_)));
    assert_eq!(world.mm.khugepaged.pages_collapsed, 2);
    let space = world.spaces.take(id);
    world.with(|mm, _, cx| space.exit(mm, cx));
    assert!(matches!(world.run(), Wait::Queue), "nobody is registered any more");
}

/// Up to 4.7 a page that was copied waits for its end among the CPU's new folios.
#[test]
fn what_was_collapsed_is_freed_by_the_batch() {
    for (rules, waiting) in [("v4.1", 512 % 14), ("v4.8", 0)] {
        let mut world = World::with_rules(*named(rules), 1);
        let (id, range) = world.process(1, HUGE_PAGES);
        let pages: Vec<Pfn> = (0..HUGE_PAGES).map(|n| world.frame(id, range.start.plus(n))).collect();
        world.run();
        assert!(world.is_huge(id, range.start), "{rules}");
        let held = |mm: &Mm| pages.iter().filter(|pfn| mm.memory.frames.has(**pfn, FrameFlag::Dropped)).count();
        assert_eq!(held(&world.mm), waiting, "{rules}");
        world.with(|mm, _, cx| mm.lru_add_drain(cx));
        assert_eq!(held(&world.mm), 0, "{rules}");
        assert!(pages.iter().all(|pfn| world.mm.memory.frames.allocated(*pfn).is_none()), "{rules}");
    }
}

#[test]
fn ranges_beyond_max_ptes_none_or_with_busy_pages_are_skipped() {
    let mut world = World::new();
    let (id, range) = world.process(1, 100);
    world.mm.khugepaged.settings.max_ptes_none = 411;
    world.run();
    assert_eq!(world.mm.khugepaged.pages_collapsed, 0, "412 are missing");
    world.mm.khugepaged.settings.max_ptes_none = 412;
    let busy = world.frame(id, range.start.plus(50));
    world.mm.memory.frames.mark(busy, FrameFlag::Locked, true);
    world.run();
    assert_eq!((world.mm.khugepaged.pages_collapsed, world.counters.get(Event::ThpCollapseAlloc)), (0, 0));
    world.mm.memory.frames.mark(busy, FrameFlag::Locked, false);
    world.run();
    assert_eq!(world.mm.khugepaged.pages_collapsed, 1);
}

#[test]
fn a_scan_reads_the_record_of_each_present_page() {
    let mut world = World::new();
    let (id, range) = world.process(1, 300);
    let busy = world.frame(id, range.start.plus(50));
    let mut looked_at = |is_busy, is_scan| {
        world.mm.memory.frames.mark(busy, FrameFlag::Locked, is_busy);
        let prices = Prices::new(|work| Picos(u64::from(work == Work::ScanFrame)));
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut world.counters);
        let space = world.spaces.get(id).unwrap();
        let Pmd::Table(table) = space.tables.pmd_of(range.start) else { unreachable!("its pages are small") };
        world.mm.survey_table(&mut cx, space, table, is_scan);
        assert_eq!(cx.spent().on(Cause::CompactScan), Picos(0), "it is the price of one, not its cause");
        cx.spent().on(Cause::PageTable).0
    };
    assert_eq!(
        [looked_at(false, true), looked_at(false, false)],
        [300, 300],
        "for the 212 others there is nothing to read"
    );
    assert_eq!([looked_at(true, true), looked_at(true, false)], [51, 51], "the range is given up at the 51st");
}

#[test]
fn pages_that_a_child_shares_are_copied_and_stay_the_childs() {
    let mut world = World::new();
    let (id, range) = world.process(1, HUGE_PAGES);
    let child = world.with(|mm, spaces, cx| {
        let child = spaces.get_mut(id).unwrap().fork(mm, cx).unwrap();
        spaces.add(child)
    });
    world.run();
    assert_eq!(world.mm.khugepaged.pages_collapsed, 0, "nobody may write any of them");
    // The parent writes to half of them, and has those alone.
    world.with(|mm, spaces, cx| {
        let mut touch = Touch::pages(PageRange::new(range.start, 256), Access::Write);
        while !matches!(touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)), Step::Done(_)) {}
        mm.lru_add_drain(cx);
    });
    world.run();
    assert_eq!(world.mm.khugepaged.pages_collapsed, 1);
    assert!(world.is_huge(id, range.start) && !world.is_huge(child, range.start));
    for n in 0..HUGE_PAGES {
        for whose in [id, child] {
            assert_eq!(world.mm.memory.frames.content(world.frame(whose, range.start.plus(n))), 1000 + n, "page {n}");
        }
    }
}

#[test]
fn an_allocation_that_fails_is_tried_once_more_after_a_while() {
    let mut world = World::new();
    world.process(2, 2 * HUGE_PAGES);
    let request = rules::gfp::AllocRequest::gfp_kernel(NodeId(0)).of_order(Order::HUGE);
    let request = rules::gfp::AllocRequest { reclaims: false, ..request };
    while world.with(|mm, _, cx| mm.memory.alloc(cx, &request)).is_ok() {}
    let sleeps = world.mm.khugepaged.settings;
    assert_eq!(world.run(), Wait::Until(Time(0) + sleeps.alloc_sleep));
    assert_eq!(world.run(), Wait::Until(Time(0) + sleeps.scan_sleep));
    assert_eq!(world.counters.get(Event::ThpCollapseAllocFailed), 2);
}

#[test]
fn a_process_whose_lock_is_held_is_waited_for_or_passed_by() {
    for (rules, tries) in [("v3.9", false), ("v4.15", false), ("v4.17", true), ("v6.1", true)] {
        let mut world = World::with_rules(*named(rules), 1);
        let (id, _) = world.process(1, 512);
        // Up to the process: the wake-up begins, and its first round.
        let needs = (0..3).find_map(|_| {
            world.with(|mm, spaces, cx| mm.step_khugepaged(spaces, cx, false));
            world.mm.khugepaged_needs(&world.spaces)
        });
        let expected = if tries { NeedsLock::TryRead(id) } else { NeedsLock::Read(id) };
        assert_eq!(needs, Some(expected), "{rules}");
    }
}
