use memory::{cost::Prices, event::Counters, news::Daemon};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{Variant, named},
    zone::Settings,
};
use units::{CpuId, NodeId, Pfn, Time};

use super::*;
use crate::{reclaim::DirectReclaim, whole::check};

const DMA32: ZoneIndex = ZoneIndex(0);
const NORMAL: ZoneIndex = ZoneIndex(1);

/// A node with 64 MiB below Normal and as much in it.
struct World {
    mm: Mm,
    counters: Counters,
    now: u64,
    pages: u64,
}

impl World {
    fn new(rules: &str) -> Self {
        let zones = vec![
            ZoneSpec::whole(ZoneKind::Dma32, Pfn(0), 16 << 10),
            ZoneSpec::whole(ZoneKind::Normal, Pfn(16 << 10), 16 << 10),
        ];
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones };
        let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
        // One zone after the other, so that it is known what is where.
        let rules = Variant { fair_zones: false, ..*named(rules) };
        let mm = Mm::new(&machine, rules, &Settings { min_free_kbytes: 4096, ..Settings::default() });
        Self { mm, counters: Counters::default(), now: 0, pages: 0 }
    }

    fn at<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), Time(self.now), &prices, &mut self.counters);
        body(&mut self.mm, &mut Spaces::default(), &mut cx)
    }

    /// Pages of a file, in Normal as long as it has room.
    fn read(&mut self, pages: u64) {
        for index in self.pages..self.pages + pages {
            self.at(|mm, _, cx| mm.add_clean_page(cx, index));
        }
        self.pages += pages;
        self.at(|mm, _, cx| mm.lru_add_drain_all(cx));
    }

    fn free(&self, zone: ZoneIndex) -> u64 {
        self.mm.memory.zone(zone).free_frames()
    }

    /// The kernel takes a zone's frames except `most` of them.
    fn take_all_but(&mut self, zone: ZoneIndex, most: u64) {
        let (_rules, mobility, prices) = (*self.mm.memory.variant(), rules::gfp::Mobility::Unmovable, Prices::free());
        let mut cx = Cx::new(CpuId(0), Time(self.now), &prices, &mut self.counters);
        while self.mm.memory.zone(zone).free_frames() > most {
            self.mm.memory.take_of_zone(&mut cx, zone, mobility).unwrap();
        }
    }

    fn wake(&mut self, order: u8, highest: ZoneKind) -> bool {
        self.at(|mm, _, cx| mm.memory.wake_kswapd(cx, NodeId(0), Order(order), highest));
        !self.mm.memory.take_woken(Daemon::Kswapd).is_empty()
    }

    /// Until it sleeps; says until when.
    fn run(&mut self) -> Wait {
        for _ in 0..100_000 {
            match self.at(|mm, spaces, cx| mm.step_kswapd(spaces, cx, NodeId(0))) {
                Step::More => check::walk(&self.mm).unwrap(),
                Step::Block(wait) => return wait,
                Step::Done(()) => unreachable!("a daemon has no end"),
            }
        }
        panic!("it does not sleep");
    }

    fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }
}

fn wish(order: u8, highest: ZoneKind) -> Wish {
    Wish { order: Order(order), highest }
}

#[test]
fn by_zone_kswapd_reclaims_exactly_the_zones_below_high() {
    let made = |rules: &str| {
        let mut world = World::new(rules);
        world.read(2000);
        let high = world.mm.memory.zone(NORMAL).marks.high.0;
        world.take_all_but(NORMAL, high - 50);
        world.mm.memory.zone_mut(NORMAL).reclaim =
            memory::zone_state::ZoneReclaim { meets_writeback: true, meets_dirty: true, is_congested: true };
        if !world.wake(0, ZoneKind::Movable) {
            return None;
        }
        assert_eq!(world.run(), Wait::Until(Time(0) + SHORT_SLEEP));
        assert!(world.free(NORMAL) > high);
        Some(world)
    };
    let world = made("v4.1").unwrap();
    let scans = [Event::PgscanKswapdNormal, Event::PgscanKswapdDma32, Event::PgscanKswapd].map(|at| world.count(at));
    assert!(scans[0] > 50 && scans[1] == 0 && scans[2] == scans[0], "{scans:?}");
    assert_eq!(world.count(Event::PgstealKswapdNormal), world.count(Event::PgstealKswapd));
    assert_eq!(world.count(Event::Pageoutrun), 1);
    let flags = world.mm.memory.zone(NORMAL).reclaim;
    assert!(!flags.meets_writeback && !flags.meets_dirty && !flags.is_congested, "it has room again");
    assert!(made("v4.8").is_none(), "any zone with room is enough for a node");
}

#[test]
fn zones_below_an_unbalanced_one_get_a_balance_gap() {
    let scanned = |above: u64| {
        let mut world = World::new("v4.1");
        world.read(15_000 + 2000);
        let marks = [DMA32, NORMAL].map(|zone| world.mm.memory.zone(zone).marks.high.0);
        world.take_all_but(NORMAL, marks[1] - 50);
        world.take_all_but(DMA32, marks[0] + above);
        assert!(world.wake(0, ZoneKind::Movable));
        world.run();
        world.count(Event::PgscanKswapdDma32)
    };
    // A hundredth of 16,384 frames, which is less than the Low mark; and what is kept from requests for Normal.
    let gap = 164 + 16_384 / 256;
    assert!(scanned(gap) > 0);
    assert_eq!(scanned(gap + 1), 0);
}

#[test]
fn a_large_order_balances_a_quarter_of_the_node() {
    let mut world = World::new("v4.1");
    world.read(100);
    world.take_all_but(NORMAL, 10);
    assert!(!world.mm.node_balanced(NodeId(0), wish(0, ZoneKind::Normal)));
    assert!(world.mm.node_balanced(NodeId(0), wish(3, ZoneKind::Normal)), "Dma32 is half of it");
    assert!(world.mm.node_balanced(NodeId(0), wish(0, ZoneKind::Dma32)));
    world.mm.memory.zone_mut(NORMAL).set_scanned(6 * 100);
    assert!(world.mm.node_balanced(NodeId(0), wish(0, ZoneKind::Normal)), "all of it was looked at six times");
    world.mm.memory.zone_mut(NORMAL).set_scanned(6 * 100 - 1);
    assert!(!world.mm.node_balanced(NodeId(0), wish(0, ZoneKind::Normal)));
}

#[test]
fn a_frame_that_comes_free_is_a_reason_to_look_again() {
    let mut world = World::new("v4.1");
    world.read(100);
    world.mm.memory.zone_mut(NORMAL).set_scanned(1000);
    assert!(!world.mm.is_reclaimable(NORMAL));
    let request = AllocRequest::gfp_kernel(NodeId(0)).of_order(Order(1));
    let pfn = world.at(|mm, _, cx| mm.memory.alloc(cx, &request)).unwrap();
    world.at(|mm, _, cx| mm.memory.free(cx, pfn, Order(1)));
    assert!(world.mm.is_reclaimable(NORMAL));
}

#[test]
fn what_ends_a_nap_too_soon_is_counted() {
    let napping = || {
        let mut world = World::new("v4.1");
        world.read(2000);
        let high = world.mm.memory.zone(NORMAL).marks.high.0;
        world.take_all_but(NORMAL, high - 1);
        assert!(world.wake(0, ZoneKind::Movable));
        assert!(matches!(world.run(), Wait::Until(_)));
        world.now += SHORT_SLEEP.0;
        world
    };
    let counts = |world: &World| {
        [Event::KswapdLowWmarkHitQuickly, Event::KswapdHighWmarkHitQuickly, Event::Pageoutrun].map(|at| world.count(at))
    };
    let mut rested = napping();
    assert!(!rested.wake(0, ZoneKind::Movable), "all is well");
    assert_eq!((rested.run(), counts(&rested)), (Wait::Queue, [0, 0, 1]));

    let mut cut = napping();
    cut.take_all_but(NORMAL, 700);
    assert!(cut.wake(0, ZoneKind::Movable));
    assert!(matches!(cut.run(), Wait::Until(_)));
    assert_eq!(counts(&cut), [1, 0, 2]);

    let mut short = napping();
    short.take_all_but(NORMAL, 700);
    assert!(matches!(short.run(), Wait::Until(_)));
    assert_eq!(counts(&short), [0, 1, 2]);
}

#[test]
fn only_a_larger_order_narrows_the_zones() {
    let mut world = World::new("v4.1");
    assert!(!world.wake(0, ZoneKind::Dma32), "balanced");
    assert_eq!(world.mm.memory.node(NodeId(0)).kswapd.wish, Some(wish(0, ZoneKind::Normal)));
    world.wake(3, ZoneKind::Dma32);
    assert_eq!(world.mm.memory.node(NodeId(0)).kswapd.wish, Some(wish(3, ZoneKind::Dma32)));
    world.wake(2, ZoneKind::Normal);
    world.wake(4, ZoneKind::Movable);
    assert_eq!(world.mm.memory.node(NodeId(0)).kswapd.wish, Some(wish(4, ZoneKind::Dma32)));
}

#[test]
fn it_gives_the_order_up_when_compaction_can_do_the_rest() {
    let mut world = World::new("v4.1");
    world.read(24_000);
    let high = world.mm.memory.zone(NORMAL).marks.high.0;
    for zone in [NORMAL, DMA32] {
        world.take_all_but(zone, high - 600);
    }
    assert!(world.wake(3, ZoneKind::Movable));
    assert!(matches!(world.run(), Wait::Until(_)));
    let turn = world.mm.kswapds[NodeId(0)].turn;
    assert_eq!((turn.run.order, turn.balanced.order), (Order(3), Order::BASE));
}

#[test]
fn direct_reclaim_passes_every_zone_of_the_list() {
    let mut world = World::new("v4.1");
    world.read(24_000);
    let stalls = |world: &World| world.count(Event::AllocstallMovable);
    let mut direct = DirectReclaim::new(AllocRequest::gfp_highuser_movable(NodeId(0)));
    let reclaimed = loop {
        match world.at(|mm, spaces, cx| direct.step(mm, spaces, cx)) {
            Step::More => check::walk(&world.mm).unwrap(),
            Step::Block(wait) => panic!("{wait:?}"),
            Step::Done(reclaimed) => break reclaimed,
        }
    };
    assert!(reclaimed >= RUN, "{reclaimed}");
    let [normal, dma32, all] =
        [Event::PgstealDirectNormal, Event::PgstealDirectDma32, Event::PgstealDirect].map(|at| world.count(at));
    assert!(normal > 0 && dma32 > 0, "{normal} and {dma32}");
    assert_eq!((normal + dma32, all, stalls(&world)), (reclaimed, reclaimed, 1));
}

#[test]
fn a_direct_reclaim_for_a_huge_page_frees_twice_its_size() {
    let freed = |order: u8| {
        let mut world = World::new("v4.1");
        world.read(14_000);
        world.take_all_but(NORMAL, 600);
        let mut direct = DirectReclaim::new(AllocRequest {
            this_node_only: true,
            ..AllocRequest::gfp_highuser_movable(NodeId(0)).of_order(Order(order))
        });
        loop {
            match world.at(|mm, spaces, cx| direct.step(mm, spaces, cx)) {
                Step::More => {}
                Step::Block(wait) => panic!("{wait:?}"),
                Step::Done(_) => break world.count(Event::PgstealDirectNormal),
            }
        }
    };
    assert!((1024..1024 + 2 * RUN).contains(&freed(9)), "{}", freed(9));
    assert!((RUN..2 * RUN).contains(&freed(0)), "{}", freed(0));
}

#[test]
fn in_vain_it_goes_through_all_priorities_once_more() {
    let stalls = |rules: &str| {
        let mut world = World::new(rules);
        let mut direct = DirectReclaim::new(AllocRequest::gfp_highuser_movable(NodeId(0)));
        while world.at(|mm, spaces, cx| direct.step(mm, spaces, cx)) != Step::Done(0) {}
        world.count(Event::AllocstallMovable)
    };
    assert_eq!(["v3.16", "v4.1", "v4.12"].map(stalls), [1, 2, 1]);
}

#[test]
fn nobody_waits_for_room_in_zones_that_are_given_up() {
    let first = |looked_at: u64| {
        let mut world = World::new("v4.1");
        world.read(100);
        for zone in [NORMAL, DMA32] {
            world.take_all_but(zone, 10);
        }
        world.mm.memory.zone_mut(NORMAL).set_scanned(looked_at);
        let mut direct = DirectReclaim::new(AllocRequest::gfp_highuser_movable(NodeId(0)));
        let step = world.at(|mm, spaces, cx| direct.step(mm, spaces, cx));
        (matches!(step, Step::Block(Wait::Until(_))), world.count(Event::PgscanDirectThrottle))
    };
    assert_eq!((first(6 * 100 - 1), first(6 * 100)), ((true, 1), (false, 0)));
}
