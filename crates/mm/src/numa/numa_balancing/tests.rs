//! Scans, hinting faults and what tasks make of them, on three nodes.

mod filter;
mod grouped;
mod sharing;

use memory::{
    cost::Prices,
    cx::{Circumstances, Cx},
    event::{Counters, Event},
    frame::{ControlId, SpaceId},
    last_fault::Last,
    news::News,
    step::{Step, Wait},
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    mempolicy::Mempolicy,
    variant::{Variant, named, patched},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Picos, Time, Vpn};

use super::{Tick, task::Fault};
use crate::{
    Mm, Spaces,
    fault::{Access, FaultControl, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        page_table::Pmd,
        vma::PageRange,
    },
    thp::ThpEnabled,
};

const NODES: u32 = 3;
const HUGE: u64 = Order::HUGE.frames() as u64;
/// Frames of a node.
const FRAMES: u32 = 64 * Order::HUGE.frames();

/// Three nodes of 128 MiB with a CPU each, and a process.
struct World {
    mm: Mm,
    spaces: Spaces,
    id: SpaceId,
    counters: Counters,
    now: Time,
}

impl World {
    fn new(rules: &Variant, settings: &[(&str, &str)]) -> Self {
        let node = |id: u32| NodeSpec {
            id: NodeId(id),
            cpus: vec![CpuId(id)],
            distance: (0..NODES).map(|to| if to == id { 10 } else { 20 }).collect(),
            zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
        };
        let nodes = (0..NODES).map(node).collect();
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let mut wanted = Settings { min_free_kbytes: 512, ..Settings::default() };
        wanted.set("kernel.numa_balancing", "1").unwrap();
        for (name, value) in settings {
            wanted.set(name, value).unwrap();
        }
        let mut mm = Mm::new(&machine, *rules, &wanted);
        mm.thp.enabled = ThpEnabled::Always;
        let (prices, mut counters) = (Prices::free(), Counters::default());
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        let space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).unwrap();
        let mut spaces = Spaces::default();
        let id = spaces.add(space);
        Self { mm, spaces, id, counters, now: Time(0) }
    }

    /// A step of a task on the CPU of a node.
    fn on<T>(&mut self, task: u32, node: u32, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx) -> T) -> T {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(node), self.now, &prices, &mut self.counters);
        cx.set_circumstances(Circumstances::plain(ControlId(task), 0));
        body(&mut self.mm, &mut self.spaces, &mut cx)
    }

    fn space(&mut self) -> &mut AddressSpace {
        self.spaces.get_mut(self.id).unwrap()
    }

    /// Maps `pages` huge pages on a node.
    fn huge(&mut self, pages: u64, node: u32) -> PageRange {
        let id = self.id;
        self.on(0, node, |mm, spaces, cx| {
            let space = spaces.get_mut(id).unwrap();
            let whole = space.mmap(mm, cx, (pages + 1) * HUGE).unwrap();
            let range = PageRange::new(Vpn(whole.start.0.next_multiple_of(HUGE)), pages * HUGE);
            let mut touch = Touch::pages(range, Access::Write);
            while let Step::More = touch.step(mm, space, cx, Time(u64::MAX)) {}
            mm.lru_add_drain_all(cx);
            range
        })
    }

    /// Maps two tables of base pages, and touches a page at the beginning on each of these nodes.
    fn base(&mut self, nodes: &[u32]) -> PageRange {
        let id = self.id;
        self.mm.thp.enabled = ThpEnabled::Never;
        let range = self.on(0, 0, |mm, spaces, cx| {
            let whole = spaces.get_mut(id).unwrap().mmap(mm, cx, 3 * HUGE).unwrap();
            PageRange::new(Vpn(whole.start.0.next_multiple_of(HUGE)), 2 * HUGE)
        });
        for (n, node) in (0..).zip(nodes) {
            self.on(0, *node, |mm, spaces, cx| {
                let mut touch = Touch::pages(PageRange::new(range.start.plus(n), 1), Access::Write);
                while let Step::More = touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
                mm.lru_add_drain_all(cx);
            });
        }
        range
    }

    /// Makes everything hint, whoever's turn it is. Those that were moved have come to their lists before.
    fn scan(&mut self, pages: u64) {
        let id = self.id;
        self.on(0, 0, |mm, _, cx| mm.lru_add_drain_all(cx));
        let mut work = super::scan::ScanWork::new(pages);
        self.on(
            0,
            0,
            |mm, spaces, cx| {
                while let Step::More = work.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)) {}
            },
        );
    }

    fn begin_fault(&mut self, task: u32, node: u32, vpn: Vpn) -> FaultControl {
        let id = self.id;
        let mut fault = FaultControl::new(vpn, Access::Write).under(Mempolicy::Local);
        self.on(task, node, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
        fault
    }

    /// One step of moving; true when the fault is over.
    fn go_on(&mut self, fault: &mut FaultControl, task: u32, node: u32) -> Result<bool, Wait> {
        let id = self.id;
        match self.on(task, node, |mm, spaces, cx| fault.step_moving(mm, spaces, cx, id)) {
            Step::More => Ok(false),
            Step::Block(wait) => Err(wait),
            Step::Done(done) => {
                assert_eq!(done, FaultDone::Handled);
                Ok(true)
            }
        }
    }

    /// A fault from its beginning to its end, with nobody beside it.
    fn fault(&mut self, task: u32, node: u32, vpn: Vpn) {
        let mut fault = self.begin_fault(task, node, vpn);
        while fault.is_moving() && !self.go_on(&mut fault, task, node).unwrap() {}
    }

    fn hints(&mut self, vpn: Vpn) -> bool {
        matches!(self.space().tables.pmd_of(vpn), Pmd::Huge(huge) if huge.is_hinting())
    }

    fn node_of(&mut self, vpn: Vpn) -> u32 {
        let pte = self.space().tables.lookup(vpn);
        self.mm.memory.node_of(pte.pfn()).0
    }

    fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }
}

#[test]
fn a_page_moves_at_the_second_fault_in_a_row() {
    let mut world = World::new(named("v3.9"), &[]);
    let page = world.huge(1, 0).start;
    for (node, there) in [(1, 0), (2, 0), (1, 0), (1, 1), (2, 1), (2, 2)] {
        world.scan(100 * HUGE);
        assert!(world.hints(page));
        world.fault(7, node, page);
        assert_eq!((world.node_of(page), world.hints(page)), (there, false), "a fault on node {node}");
    }
    assert_eq!(world.count(Event::NumaPteUpdates), 6 * HUGE);
    assert_eq!((world.count(Event::NumaHintFaults), world.count(Event::NumaHintFaultsLocal)), (6, 0));
    assert_eq!(world.count(Event::NumaPagesMigrated), 2 * HUGE);
    // With PIDs the first one has it at once, and is private.
    let mut world = World::new(&patched("v3.9", &(1..=15).collect::<Vec<_>>()), &[]);
    let page = world.huge(1, 0).start;
    world.scan(100 * HUGE);
    world.fault(7, 1, page);
    assert_eq!(world.node_of(page), 1);
}

#[test]
fn each_hinting_task_counts_and_a_local_one_undoes_the_move() {
    let mut world = World::new(named("v3.9"), &[]);
    let page = world.huge(1, 0).start;
    world.scan(100 * HUGE);
    world.fault(7, 1, page);
    world.scan(100 * HUGE);
    // Two of node 1: the second waits for the first, and then finds nothing to do.
    let mut first = world.begin_fault(7, 1, page);
    assert!(!world.go_on(&mut first, 7, 1).unwrap() && world.hints(page));
    let mut second = world.begin_fault(8, 1, page);
    assert!(matches!(world.go_on(&mut second, 8, 1), Err(Wait::Folio(_))));
    while !world.go_on(&mut first, 7, 1).unwrap() {}
    while !world.go_on(&mut second, 8, 1).unwrap() {}
    assert_eq!((world.node_of(page), world.count(Event::NumaPagesMigrated)), (1, HUGE));
    assert_eq!(world.count(Event::NumaHintFaults), 3);
    // One of node 0 begins to move it back; one of node 2 comes for the first time, and takes the mark away.
    world.scan(100 * HUGE);
    world.fault(7, 0, page);
    world.scan(100 * HUGE);
    let mut first = world.begin_fault(7, 0, page);
    world.go_on(&mut first, 7, 0).unwrap();
    let other = world.begin_fault(9, 2, page);
    assert!(!other.is_moving() && !world.hints(page));
    while !world.go_on(&mut first, 7, 0).unwrap() {}
    assert_eq!((world.node_of(page), world.count(Event::NumaPagesMigrated)), (1, HUGE));
}

#[test]
fn a_scan_ends_at_a_huge_page_and_resumes_there() {
    let mut world = World::new(named("v3.9"), &[]);
    let range = world.huge(6, 0);
    let marked = |world: &mut World| -> Vec<bool> { (0..6).map(|n| world.hints(range.start.plus(n * HUGE))).collect() };
    world.scan(2 * HUGE + 3);
    assert_eq!(marked(&mut world), [true, true, true, false, false, false], "rounded up to a huge page");
    assert_eq!(world.space().numa.seq, 0);
    world.scan(2 * HUGE);
    assert_eq!(marked(&mut world), [true, true, true, true, true, false]);
    world.scan(100 * HUGE);
    assert_eq!((world.space().numa.seq, world.space().numa.offset), (1, Vpn(0)), "all of it, once");
    // Those that hint already count again.
    world.scan(2 * HUGE);
    assert_eq!(world.count(Event::NumaPteUpdates), (3 + 2 + 1 + 2) * HUGE);
}

#[test]
fn up_to_3_12_absent_entries_count_and_pages_of_a_batch_that_stay_change_no_period() {
    for (name, nodes, [updated, faults, period]) in
        [("v3.9", [0, 0, 0], [HUGE, 3, 0]), ("v3.9", [0, 0, 1], [HUGE, 1, 40]), ("v4.1", [0, 0, 0], [3, 1, 0])]
    {
        let mut world = World::new(named(name), &[]);
        let page = world.base(&nodes).start;
        world.scan(100 * HUGE);
        assert_eq!(world.count(Event::NumaPteUpdates), updated, "{name}: of one table");
        world.fault(7, 0, page);
        assert_eq!(world.count(Event::NumaHintFaultsLocal), faults, "{name} {nodes:?}");
        let task = world.mm.numa.as_ref().unwrap().task(ControlId(7));
        assert_eq!(task.map_or(0, |task| task.period_ms), u32::try_from(period).unwrap().into(), "{name} {nodes:?}");
    }
}

/// Faults of a task by node, as the series has it, worked out from all that there ever were.
#[derive(Default)]
struct Naive {
    scans: Vec<[u64; 3]>,
}

impl Naive {
    fn decayed(&self, node: usize) -> u64 {
        self.scans.iter().fold(0, |sum, scan| sum / 2 + scan[node])
    }

    /// The first of the nodes with the most faults.
    fn most(&self) -> Option<u32> {
        let of = |node: usize| (self.decayed(node), std::cmp::Reverse(node));
        let found = (0..3).max_by_key(|node| of(*node)).unwrap();
        (self.decayed(found) > 0).then(|| u32::try_from(found).unwrap())
    }
}

#[test]
fn the_preferred_node_is_that_of_a_naive_twin() {
    let mut world = World::new(&patched("v3.9", &(1..=11).collect::<Vec<_>>()), &[]);
    let mut naive = Naive { scans: vec![[0; 3]] };
    let (mut draw, mut preferred, mut moves) = (1_u64, None, 0);
    for _ in 0..20_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (node, pages, is_moved) = ((draw >> 33) % 3, 1 + (draw >> 40) % 512, draw >> 60 & 1 == 1);
        if (draw >> 50).is_multiple_of(40) {
            world.space().numa.begin_again();
            if let Some(found) = naive.most() {
                preferred = Some(found);
            }
            naive.scans.push([0; 3]);
        }
        let node_id = NodeId(u32::try_from(node).unwrap());
        let fault = Fault { is_moved, ..Fault::at(node_id, pages, Last::NOBODY) };
        let id = world.id;
        world.on(7, 0, |mm, spaces, cx| mm.numa_fault(spaces.get_mut(id).unwrap(), cx, fault));
        *naive.scans.last_mut().unwrap().get_mut(usize::try_from(node).unwrap()).unwrap() +=
            pages << u32::from(is_moved);
        let known = world.mm.numa_preferred(ControlId(7)).map(|(node, _)| node.0);
        assert_eq!(known, preferred);
        for news in world.mm.memory.take_news() {
            assert_eq!(news, News::Prefers(ControlId(7), NodeId(preferred.unwrap())));
            assert_ne!(preferred, Some(0), "it is there already");
            moves += 1;
        }
    }
    assert!(moves > 50, "it has moved {moves} times");
}

#[test]
fn periods_grow_with_unmoved_faults_whole_task_from_patch_12_on() {
    let periods = |rules: &Variant, pages: u64| {
        let mut world = World::new(rules, &[]);
        world.huge(pages, 0);
        let id = world.id;
        let fault = Fault::at(NodeId(0), 1, Last::NOBODY);
        world.space().numa.begin_again();
        for _ in 0..3 {
            world.on(7, 0, |mm, spaces, cx| mm.numa_fault(spaces.get_mut(id).unwrap(), cx, fault));
        }
        world.mm.numa.as_ref().unwrap().task(ControlId(7)).unwrap().period_ms
    };
    assert_eq!(periods(named("v3.9"), 1), 3 * 40);
    let mut world =
        World::new(&patched("v3.9", &(1..=12).collect::<Vec<_>>()), &[("kernel.numa_balancing_scan_size_mb", "16")]);
    world.huge(31, 0);
    // 64 MiB are four windows; 2,560 MiB in a second are a window in 6.25 ms.
    let windows = world.spaces.get(world.id).unwrap().numa_windows(16 << 8, world.mm.memory.variant());
    let (numa, rules) = (world.mm.numa.as_ref().unwrap(), world.mm.memory.variant());
    assert_eq!((windows, numa.scan_min_ms(rules, windows), numa.scan_max_ms(rules, windows)), (4, 250, 150_000));
    assert_eq!(numa.scan_min_ms(rules, 1000), 6);
}

#[test]
fn nothing_is_scanned_before_a_task_runs_on_a_second_node() {
    let mut world = World::new(named("v3.9"), &[]);
    let id = world.id;
    let mut tick = |node: u32, ms: u64| {
        let at = Time(Picos::from_micros(1000 * ms).0);
        let space = world.spaces.get_mut(id).unwrap();
        let tick = Tick { id: ControlId(7), cpu: CpuId(node), at, ran: Picos(at.0), policy: Mempolicy::Local };
        world.mm.numa_tick(space, tick).is_some()
    };
    assert!(!tick(0, 1000), "its first period begins");
    assert!(!tick(0, 1200) && !tick(0, 2000), "one node alone");
    assert!(tick(1, 2200) && !tick(1, 2250), "and then every 100 ms");
    assert!(tick(1, 2400) && tick(0, 2600));
}

#[test]
fn up_to_4_2_threads_racing_for_a_huge_page_all_count() {
    for (name, counted) in [("v3.9", 2), ("v4.1", 2), ("v4.4", 1), ("v6.1", 1)] {
        let mut world = World::new(named(name), &[]);
        let id = world.id;
        let room = world.on(0, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().mmap(mm, cx, 2 * HUGE)).unwrap();
        let page = Vpn(room.start.0.next_multiple_of(HUGE));
        let mut faults: Vec<_> = [7, 8].map(|task| (task, FaultControl::new(page, Access::Write))).into();
        // Both have found nothing there before either has cleared its page.
        while !faults.is_empty() {
            faults.retain_mut(|(task, fault)| {
                let step = world.on(*task, 0, |mm, spaces, cx| fault.step(mm, spaces.get_mut(id).unwrap(), cx));
                !matches!(step, Step::Done(_))
            });
        }
        assert_eq!(world.count(Event::ThpFaultAlloc), counted, "{name}");
    }
}
