//! Linux: none; the series of 2015, each of its patches alone and all patches together, on one node and on two.
//! Differs: nobody else runs.

use memory::{cost::Work, news::Daemon};
use rules::{gfp::AllocRequest, variant::patched};

use super::*;

fn with_patches(patches: &[u32], nodes: u32) -> World {
    World::with_rules(patched("v4.1-rc2", patches), nodes)
}

const ALL: [u32; 4] = [1, 2, 3, 4];
const HALF: Order = Order(Order::HUGE.0 - 1);

impl World {
    fn has_huge(&self, node: u32) -> bool {
        self.mm.has_huge(NodeId(node))
    }

    /// Allocates all frames of an order that are left on a node, for good.
    fn exhaust(&mut self, node: u32, order: Order) -> Vec<Pfn> {
        let request = AllocRequest::gfp_nowait(NodeId(node)).of_order(order).this_node();
        std::iter::from_fn(|| self.with(|mm, _, cx| mm.memory.alloc(cx, &request)).ok()).collect()
    }

    fn free(&mut self, pfn: Pfn, order: Order) {
        self.with(|mm, _, cx| mm.memory.free(cx, pfn, order));
    }

    /// Halves of huge pages, several, as the first base pages after it break some: nobody frees a huge page as such.
    fn halves(&mut self) -> Vec<Pfn> {
        let request = AllocRequest::gfp_nowait(NodeId(0)).of_order(HALF);
        (0..8).map(|_| self.with(|mm, _, cx| mm.memory.alloc(cx, &request)).expect("there is memory")).collect()
    }

    fn free_halves(&mut self, halves: Vec<Pfn>) {
        for half in halves {
            self.free(half, HALF);
        }
    }

    /// A store to the n-th huge page of a range.
    fn fault(&mut self, id: SpaceId, range: PageRange, n: u64) {
        self.touch(id, range.start.plus(n * HUGE_PAGES), 1);
    }

    fn touch(&mut self, id: SpaceId, from: Vpn, pages: u64) {
        self.with(|mm, spaces, cx| {
            let mut touch = Touch::pages(PageRange::new(from, pages), Access::Write);
            while !matches!(touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)), Step::Done(_)) {}
            mm.lru_add_drain(cx);
        });
    }

    fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    /// One step of khugepaged.
    fn step(&mut self) -> Step<()> {
        self.with(|mm, spaces, cx| mm.step_khugepaged(spaces, cx, true))
    }

    /// Until it has a huge page and nothing to copy into it yet.
    fn run_until_it_holds_one(&mut self) {
        // Bound: a wake-up looks at so many pages.
        for _ in 0..10_000 {
            if !self.mm.khugepaged.holdings().isolated.is_empty() {
                return;
            }
            assert_eq!(self.step(), Step::More);
        }
        panic!("it never holds one");
    }

    fn set_locked(&mut self, id: SpaceId, vpn: Vpn, is_locked: bool) {
        let pfn = self.frame(id, vpn);
        self.mm.memory.frames.mark(pfn, FrameFlag::Locked, is_locked);
    }

    fn run_thread(&mut self, node: u32) -> Wait {
        // Bound: it looks once for each request.
        for _ in 0..10_000 {
            if let Step::Block(wait) = self.with(|mm, spaces, cx| mm.step_thp_thread(spaces, cx, NodeId(node))) {
                return wait;
            }
        }
        panic!("it never sleeps");
    }
}

fn scan_sleep(world: &World) -> Wait {
    Wait::Until(world.now + world.mm.khugepaged.settings.scan_sleep)
}

fn alloc_sleep(world: &World) -> Wait {
    Wait::Until(world.now + world.mm.khugepaged.settings.alloc_sleep)
}

#[test]
fn the_fault_side_goes_each_way_of_its_diagram() {
    let mut world = with_patches(&ALL, 1);
    let (id, range) = world.process(8, 0);
    world.mm.memory.take_woken(Daemon::Khugepaged);
    // A fault that gets one changes nothing.
    world.fault(id, range, 0);
    assert_eq!((world.count(Event::ThpFaultAlloc), world.has_huge(0)), (1, true));
    assert_eq!(world.run(), scan_sleep(&world));
    assert!(world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    // One that gets none clears the bit, and asks khugepaged.
    let halves = world.halves();
    let mut taken = world.exhaust(0, Order::HUGE);
    world.fault(id, range, 1);
    assert_eq!((world.count(Event::ThpFaultFallback), world.has_huge(0)), (1, false));
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    // khugepaged gets none either.
    assert_eq!(world.run(), alloc_sleep(&world));
    assert!(!world.has_huge(0));
    // The next one does not try, though merging has made one; and asks again.
    world.free_halves(halves);
    world.fault(id, range, 2);
    assert_eq!((world.count(Event::ThpFaultFallback), world.count(Event::ThpFaultAlloc)), (2, 1));
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty() && !world.has_huge(0));
    // khugepaged finds it, and faults try again.
    assert_eq!(world.count(Event::ThpCollapseAlloc), 0);
    world.run();
    let counted = (world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed);
    assert_eq!(counted, (2, 2), "what the check got was kept for a collapse");
    // A huge page that is freed is known at once.
    world.exhaust(0, Order::HUGE);
    world.fault(id, range, 3);
    assert!(!world.has_huge(0));
    world.free(taken.pop().unwrap(), Order::HUGE);
    assert!(world.has_huge(0));
    world.fault(id, range, 4);
    assert_eq!(world.count(Event::ThpFaultAlloc), 2);
}

#[test]
fn without_patches_an_abandoned_collapse_frees_its_huge_page() {
    let mut world = with_patches(&[], 1);
    let (id, range) = world.process(2, 2 * HUGE_PAGES);
    world.run_until_it_holds_one();
    world.set_locked(id, range.start, true);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (2, 1));
    world.set_locked(id, range.start, false);
    world.exhaust(0, Order::HUGE);
    assert_eq!([world.run(), world.run()], [alloc_sleep(&world), scan_sleep(&world)]);
    assert_eq!(
        world.count(Event::ThpCollapseAllocFailed),
        1,
        "there is but one range left, so the second look finds none"
    );
    // Faults try on and on, and nobody is told.
    let (id, range) = world.process(2, 0);
    world.mm.memory.take_woken(Daemon::Khugepaged);
    (0..2).for_each(|n| world.fault(id, range, n));
    assert!(world.has_huge(0) && world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
}

#[test]
fn patch_1_keeps_the_huge_page_until_the_wake_up_ends() {
    let mut world = with_patches(&[1], 1);
    let (id, range) = world.process(2, 2 * HUGE_PAGES);
    world.run_until_it_holds_one();
    world.set_locked(id, range.start, true);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (1, 1));
    // With nothing left to use it for, it goes back.
    world.set_locked(id, range.start, false);
    world.run_until_it_holds_one();
    world.set_locked(id, range.start, true);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (2, 1));
    assert!(world.mm.khugepaged.holdings().isolated.is_empty());
    // What it does not get ends the wake-up: it sleeps for that, then as always.
    world.set_locked(id, range.start, false);
    world.exhaust(0, Order::HUGE);
    assert_eq!([world.run(), world.run()], [alloc_sleep(&world), scan_sleep(&world)]);
    assert_eq!(world.run(), alloc_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAllocFailed), world.has_huge(0)), (2, true));
}

#[test]
fn patch_1_gives_back_a_page_of_the_wrong_node() {
    let mut world = with_patches(&[1], 2);
    let (first, range) = world.process(1, HUGE_PAGES);
    world.cpu = CpuId(1);
    let (second, other) = world.process(1, HUGE_PAGES);
    world.run_until_it_holds_one();
    world.set_locked(first, range.start, true);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (2, 1));
    assert_eq!(world.mm.memory.node_of(world.frame(second, other.start)), NodeId(1));
}

#[test]
fn patch_2_looks_for_huge_pages_before_it_scans() {
    let mut world = with_patches(&[2], 1);
    let (id, range) = world.process(2, 2 * HUGE_PAGES);
    let halves = world.halves();
    let mut taken = world.exhaust(0, Order::HUGE);
    assert_eq!(world.run(), alloc_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAllocFailed), world.has_huge(0)), (1, false));
    // As long as there is none, it does not look at processes; what the check does not get is not counted.
    let scans = world.mm.khugepaged.full_scans;
    assert_eq!(world.run(), alloc_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAllocFailed), world.mm.khugepaged.full_scans), (1, scans));
    // Faults do not care, and a page that is freed tells nobody.
    world.free(taken.pop().unwrap(), Order::HUGE);
    assert!(!world.has_huge(0));
    world.free_halves(halves);
    // Without patch 1 what the check gets goes back, and each collapse allocates.
    assert_eq!(world.run(), scan_sleep(&world));
    assert!(world.has_huge(0) && world.is_huge(id, range.start));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (2, 2));
}

#[test]
fn patches_1_and_2_keep_what_the_check_got_and_count_it() {
    let mut world = with_patches(&[1, 2], 1);
    world.process(1, HUGE_PAGES);
    let mut taken = world.exhaust(0, Order::HUGE);
    assert_eq!(world.run(), alloc_sleep(&world));
    world.free(taken.pop().unwrap(), Order::HUGE);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (1, 1));
    assert!(world.mm.khugepaged.holdings().isolated.is_empty());
}

#[test]
fn patch_2_leaves_ranges_alone_whose_node_has_no_huge_pages() {
    // So many pages of the range are on node 0, which has none; the others on node 1. Equal halves go to node 0 first.
    for (here, first) in [(300, 0), (300, 1), (256, 0), (255, 0), (200, 1)] {
        let mut world = with_patches(&[2], 2);
        let (id, range) = world.process(1, 0);
        world.mm.thp.enabled = ThpEnabled::Never;
        let cut = if first == 0 { here } else { HUGE_PAGES - here };
        for (cpu, from, pages) in [(first, 0, cut), (1 - first, cut, HUGE_PAGES - cut)] {
            world.cpu = CpuId(cpu);
            world.touch(id, range.start.plus(from), pages);
        }
        world.mm.thp.enabled = ThpEnabled::Madvise;
        world.exhaust(0, Order::HUGE);
        world.mm.note_without_huge(NodeId(0));
        world.run();
        let what = format!("{here} pages on node 0, node {first} first");
        assert_eq!(world.is_huge(id, range.start), here < 256, "{what}");
        assert_eq!(world.count(Event::ThpCollapseAllocFailed), 0, "{what}: it did not even try");
        assert!(!world.has_huge(0) && world.has_huge(1), "{what}");
    }
}

#[test]
fn patch_2_asks_again_after_its_look_and_keeps_what_it_has() {
    for patches in [&[2][..], &[1, 2]] {
        let mut world = with_patches(patches, 1);
        let (id, range) = world.process(2, 2 * HUGE_PAGES);
        // The first range is abandoned, so that it has a page left where it keeps them.
        world.run_until_it_holds_one();
        world.set_locked(id, range.start, true);
        let is_collapsing = |world: &World| matches!(world.mm.khugepaged.state, State::Collapsing(..));
        for ends in [false, true] {
            while is_collapsing(&world) != ends {
                assert_eq!(world.step(), Step::More);
            }
        }
        let allocated = world.count(Event::ThpCollapseAlloc);
        let kept = world.mm.khugepaged.holdings();
        world.mm.note_without_huge(NodeId(0));
        assert_eq!(world.step(), Step::More);
        assert_eq!(world.mm.khugepaged.holdings(), kept);
        assert!(!is_collapsing(&world), "{patches:?}");
        assert_eq!(world.run(), scan_sleep(&world));
        assert_eq!(world.count(Event::ThpCollapseAlloc), allocated, "{patches:?}");
        assert_eq!(world.mm.khugepaged.pages_collapsed, 0, "{patches:?}");
    }
}

#[test]
fn equal_nodes_take_turns_and_before_that_the_first_page_chose() {
    let targets = |rules: Variant| {
        let mut world = World::with_rules(rules, 2);
        let (id, range) = world.process(3, 0);
        world.mm.thp.enabled = ThpEnabled::Never;
        for n in 0..3 {
            // Half on each node, and the first page always on node 1.
            for (cpu, at) in [(1, 0), (0, HUGE_PAGES / 2)] {
                world.cpu = CpuId(cpu);
                world.touch(id, range.start.plus(n * HUGE_PAGES + at), HUGE_PAGES / 2);
            }
        }
        world.mm.thp.enabled = ThpEnabled::Madvise;
        world.run();
        [0, 1, 2].map(|n| world.mm.memory.node_of(world.frame(id, range.start.plus(n * HUGE_PAGES))).0)
    };
    assert_eq!(targets(*named("v3.9")), [1, 1, 1]);
    assert_eq!(targets(*named("v4.1")), [0, 1, 0]);
    assert_eq!(targets(*named("v6.1")), [0, 0, 0]);
}

#[test]
fn patch_3_keeps_faults_away_until_a_huge_page_is_freed() {
    let mut world = with_patches(&[3], 1);
    let (id, range) = world.process(4, 0);
    world.mm.memory.take_woken(Daemon::Khugepaged);
    let halves = world.halves();
    let mut taken = world.exhaust(0, Order::HUGE);
    world.fault(id, range, 0);
    assert!(!world.has_huge(0) && world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    world.free_halves(halves);
    world.fault(id, range, 1);
    assert_eq!((world.count(Event::ThpFaultFallback), world.count(Event::ThpFaultAlloc)), (2, 0));
    // khugepaged does not know of it, and tells nobody.
    assert_eq!(world.run(), scan_sleep(&world));
    assert!(world.count(Event::ThpCollapseAlloc) > 0 && !world.has_huge(0));
    world.free(taken.pop().unwrap(), Order::HUGE);
    world.fault(id, range, 2);
    assert_eq!(world.count(Event::ThpFaultAlloc), 1);
}

#[test]
fn patch_4_wakes_khugepaged_from_every_kind_of_sleep() {
    let mut world = with_patches(&[4], 1);
    let (id, range) = world.process(4, HUGE_PAGES);
    let taken = world.exhaust(0, Order::HUGE);
    // It sleeps after a failure: a fault wakes it, and it goes on.
    assert_eq!(world.run(), alloc_sleep(&world));
    world.fault(id, range, 1);
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    world.fault(id, range, 2);
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    // After the second failure it would sleep until the next wake-up, but begins that at once.
    assert_eq!(world.count(Event::ThpCollapseAllocFailed), 1);
    assert_eq!(world.run(), alloc_sleep(&world));
    assert_eq!(world.count(Event::ThpCollapseAllocFailed), 3);
    for frame in taken {
        world.free(frame, Order::HUGE);
    }
    while world.run() != scan_sleep(&world) {}
    assert!(world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    // Faults still try by themselves.
    world.fault(id, range, 3);
    assert_eq!(world.count(Event::ThpFaultAlloc), 1);
    // With no process left it sleeps for good, and a request still wakes it.
    let space = world.spaces.take(id);
    world.with(|mm, _, cx| space.exit(mm, cx));
    assert_eq!(world.run(), Wait::Queue);
    world.mm.huge_fault_failed(NodeId(0));
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    assert_eq!(world.run(), Wait::Queue);
}

#[test]
fn a_request_wakes_khugepaged_that_never_had_anything_to_do() {
    let mut world = with_patches(&[2, 4], 1);
    assert_eq!(world.run(), Wait::Queue);
    world.mm.huge_fault_failed(NodeId(0));
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty() && !world.has_huge(0));
    assert_eq!((world.run(), world.has_huge(0)), (Wait::Queue, true));
}

#[test]
fn patch_2_aborts_a_scan_at_half_without_huge_pages() {
    let looked_at = |patches: &[u32]| {
        let mut world = with_patches(patches, 1);
        let (id, range) = world.process(1, 300);
        if patches == [2] {
            world.mm.note_without_huge(NodeId(0));
        }
        let prices = Prices::new(|work| if work == Work::PteScan { Picos(1) } else { Picos(0) });
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut world.counters);
        let found = world.mm.survey(&mut cx, world.spaces.get(id).unwrap(), range);
        (found, cx.now().0)
    };
    assert_eq!(looked_at(&[]), (Found::Suitable(NodeId(0)), HUGE_PAGES));
    assert_eq!(looked_at(&[2]), (Found::Unsuitable, HUGE_PAGES / 2 + 1));
}

#[test]
fn khugepaged_looks_at_each_node_that_has_none() {
    let mut world = with_patches(&ALL, 2);
    let (_, _) = world.process(1, HUGE_PAGES);
    let mut taken = [0, 1].map(|node| world.exhaust(node, Order::HUGE));
    for node in 0..2 {
        world.mm.huge_fault_failed(NodeId(node));
    }
    assert_eq!(world.run(), alloc_sleep(&world), "none has any");
    // Node 1 has two: the check keeps one of them, of no use for a range of node 0.
    for _ in 0..2 {
        let frame = taken[1].pop().unwrap();
        world.free(frame, Order::HUGE);
    }
    assert!(world.has_huge(1) && !world.has_huge(0));
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (0, 0));
    // Node 0 gets one.
    let frame = taken[0].pop().unwrap();
    world.free(frame, Order::HUGE);
    assert_eq!(world.run(), scan_sleep(&world));
    assert_eq!((world.count(Event::ThpCollapseAlloc), world.mm.khugepaged.pages_collapsed), (1, 1));
}

#[test]
fn patch_5_has_the_threads_of_nodes_allocate_and_khugepaged_sleep() {
    let mut world = with_patches(&[1, 2, 3, 4, 5], 2);
    let (id, range) = world.process(3, 0);
    world.run();
    world.mm.memory.take_woken(Daemon::Khugepaged);
    let halves = world.halves();
    world.exhaust(0, Order::HUGE);
    world.fault(id, range, 0);
    assert!(world.mm.memory.take_woken(Daemon::Khugepaged).is_empty());
    assert_eq!(world.mm.memory.take_woken(Daemon::ThpThread), [NodeId(0)]);
    assert_eq!(world.run_thread(0), alloc_sleep(&world));
    assert!(!world.has_huge(0));
    world.free_halves(halves);
    world.fault(id, range, 1);
    assert_eq!(
        (world.mm.memory.take_woken(Daemon::ThpThread), world.count(Event::ThpFaultFallback)),
        (vec![NodeId(0)], 2)
    );
    assert_eq!(world.run_thread(0), alloc_sleep(&world));
    assert!(world.has_huge(0));
    world.fault(id, range, 2);
    assert_eq!((world.count(Event::ThpFaultAlloc), world.count(Event::ThpCollapseAlloc)), (1, 0));
    // With none, khugepaged does not look at processes, and leaves it to the threads to get any.
    let more = world.halves();
    for node in 0..2 {
        world.exhaust(node, Order::HUGE);
    }
    for node in 0..2 {
        world.mm.huge_fault_failed(NodeId(node));
    }
    let scans = world.mm.khugepaged.full_scans;
    world.free_halves(more);
    assert_eq!(world.run(), alloc_sleep(&world));
    assert_eq!((world.mm.khugepaged.full_scans, world.has_huge(0)), (scans, false));
    assert_eq!(world.run_thread(0), alloc_sleep(&world));
    assert!(world.has_huge(0));
}

#[test]
fn khugepaged_unscanned_allocates_when_asked_and_scans_when_it_is_time() {
    let rules = Variant { thp_requests: ThpRequests::KhugepagedUnscanned, ..patched("v4.1-rc2", &ALL) };
    let mut world = World::with_rules(rules, 1);
    let (id, range) = world.process(2, HUGE_PAGES);
    world.mm.khugepaged.settings.max_ptes_none = 0;
    let due = world.run();
    assert_eq!((due, world.mm.khugepaged.pages_collapsed), (scan_sleep(&world), 1));
    let scans = world.mm.khugepaged.full_scans;
    let halves = world.halves();
    world.exhaust(0, Order::HUGE);
    world.now = world.now + Picos::from_secs(1);
    world.fault(id, range, 1);
    world.free_halves(halves);
    // It gets one for the fault's next, and sleeps for the rest of its time.
    assert!(!world.mm.memory.take_woken(Daemon::Khugepaged).is_empty() && !world.has_huge(0));
    assert_eq!((world.run(), world.has_huge(0)), (due, true));
    assert_eq!(world.mm.khugepaged.full_scans, scans);
    let Wait::Until(due) = due else { unreachable!("it sleeps for a while") };
    world.now = due;
    // Also if somebody asks just then.
    world.mm.huge_fault_failed(NodeId(0));
    assert_eq!(world.run(), scan_sleep(&world));
    assert!(world.mm.khugepaged.full_scans > scans);
}

#[test]
fn what_the_rules_forbid_is_found() {
    let fails = |patches: &[u32], damage: fn(&mut Mm)| {
        let mut world = with_patches(patches, 1);
        world.mm.note_without_huge(NodeId(0));
        if patches.is_empty() {
            return walk(&world.mm).is_err();
        }
        walk(&world.mm).unwrap();
        damage(&mut world.mm);
        walk(&world.mm).is_err()
    };
    let try_anyway = |mm: &mut Mm| {
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        mm.count_huge_try(&mut cx, &AllocRequest::gfp_transhuge_light(NodeId(0)));
    };
    assert!(fails(&[], |_| {}));
    assert!(fails(&[3], try_anyway) && fails(&ALL, try_anyway));
    assert!(!fails(&[2], try_anyway) && !fails(&[4], try_anyway), "without patch 3 faults may");
    assert!(fails(&[2], |mm| mm.khugepaged.held = Some(Pfn(512))));
}
