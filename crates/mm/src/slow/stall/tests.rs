use memory::{bell::KswapdBell, cost::Prices, event::Counters, news::Daemon, pageblock::MigrateType, step::Step};
use rules::{
    gfp::{AllocRequest, Mark},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::patched,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Mobility, Order, Pfn};

use super::*;
use crate::{Spaces, reclaim::kswapd::Kswapd, slow::Supply};

const USER: AllocRequest = AllocRequest::gfp_highuser_movable(NodeId(0));
/// Two frames: no CPU's list has them, so that one request takes one block.
const PAIR: AllocRequest = USER.of_order(Order(1));
const PAGEBLOCK: u64 = 512;

/// Nodes whose movable blocks are all in use: what is free, between the Min and the Low mark, are unmovable blocks of one order
/// that lie apart from each other.
struct Lab {
    mm: Mm,
    counters: Counters,
    supply: Supply,
}

impl Lab {
    fn new(free_order: Order) -> Self {
        Self::with(free_order, 1, &[1, 2, 3, 4, 5])
    }

    fn with(free_order: Order, nodes: u32, patches: &[u32]) -> Self {
        let node = |id: u32| {
            let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(id << 15), 1 << 15);
            let distance = (0..nodes).map(|to| if to == id { 10 } else { 20 }).collect();
            NodeSpec { id: NodeId(id), cpus: vec![CpuId(id)], distance, zones: vec![zone] }
        };
        let spec =
            MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: (0..nodes).map(node).collect() };
        let min_free_kbytes = u64::from(nodes) * 16_384;
        let mm = Mm::new(&spec, patched("v4.20-rc3", patches), &Settings { min_free_kbytes, ..Settings::default() });
        let mut lab = Self { mm, counters: Counters::default(), supply: Supply::default() };
        lab.fill(free_order);
        lab
    }

    /// The kernel has every second of the first node's blocks of this order, as far as there are any, and all larger ones.
    fn fill(&mut self, order: Order) {
        let kernel = AllocRequest::gfp_kernel(NodeId(0)).of_order(order).this_node();
        let low = self.mm.memory.zones()[0].marks.low.0;
        let wanted = (low + 256) / u64::from(order.frames());
        self.at(0, |mm, cx| {
            let blocks: Vec<Pfn> = (0..2 * wanted).map(|_| mm.memory.alloc(cx, &kernel).unwrap()).collect();
            blocks.iter().step_by(2).for_each(|block| mm.memory.free(cx, *block, order));
            mm.memory.drain_all_pages(cx);
            take_all(mm, cx, USER.this_node(), MigrateType::Movable, Order::BASE);
            take_all(mm, cx, kernel, MigrateType::Unmovable, Order(order.0 + 1));
            while mm.memory.zones()[0].free_frames() > low - 64 {
                mm.memory.alloc(cx, &kernel).unwrap();
            }
            mm.memory.drain_all_pages(cx);
        });
        let marks = self.mm.memory.zones()[0].marks;
        assert!((marks.min.0 + 64..=marks.low.0).contains(&self.mm.memory.zones()[0].free_frames()));
        assert_eq!(self.count(Event::SimExtfragFragmenting), 0);
        // As if kswapd slept, and nothing had happened yet.
        let _ = self.mm.memory.take_news();
        self.mm.memory.node_mut(NodeId(0)).kswapd = KswapdBell::default();
        self.mm.kswapds[NodeId(0)] = Kswapd::default();
        self.counters = Counters::default();
    }

    fn at<T>(&mut self, now: u64, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        body(&mut self.mm, &mut Cx::new(CpuId(0), Time(now), &prices, &mut self.counters))
    }

    /// A step of an operation that needs a block, and may ask for it.
    fn ask(&mut self, now: u64, request: &AllocRequest) -> Option<Pfn> {
        let mut supply = std::mem::take(&mut self.supply);
        let got = self.at(now, |mm, cx| {
            supply.lend(cx);
            let got = mm.memory.alloc(cx, request).ok();
            assert_eq!(supply.settle(mm, cx), got.is_none());
            got
        });
        self.supply = supply;
        got
    }

    /// A step on the slow path.
    fn supply(&mut self, now: u64) -> Step<()> {
        let mut supply = std::mem::take(&mut self.supply);
        let step = self.at(now, |mm, cx| supply.step(mm, &mut Spaces::default(), cx));
        self.supply = supply;
        step
    }

    fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    fn boost(&self) -> u64 {
        self.mm.memory.zones()[0].boost
    }

    /// Pageblocks by which marks are raised, fallbacks, and whether kswapd was woken.
    fn signs(&mut self) -> (u64, u64, bool) {
        let woken = !self.mm.memory.take_woken(Daemon::Kswapd).is_empty();
        (self.boost() / PAGEBLOCK, self.count(Event::SimExtfrag), woken)
    }
}

/// Takes all blocks of a type that are as large as this, the largest first.
fn take_all(mm: &mut Mm, cx: &mut Cx<'_>, request: AllocRequest, list: MigrateType, least: Order) {
    for order in (least.0..=10).rev().map(Order) {
        while !mm.memory.zones()[0].free_list(order, list).is_empty() {
            mm.memory.alloc(cx, &request.of_order(order)).unwrap();
        }
    }
}

/// One who waits sleeps until this instant at most.
fn until(step: Step<()>) -> Time {
    match step {
        Step::Block(Wait::Pass { node: NodeId(0), until }) => until,
        step => panic!("it sleeps for kswapd, but {step:?}"),
    }
}

#[test]
fn a_small_block_is_refused_and_a_large_one_is_not() {
    for (order, is_refused) in [(1, true), (3, true), (4, false)] {
        let mut lab = Lab::new(Order(order));
        assert_eq!(lab.ask(0, &PAIR).is_none(), is_refused, "order {order}");
        // Marks are raised and kswapd is woken as if it had been taken, but there is no event.
        assert_eq!(lab.signs(), (1, u64::from(!is_refused), true), "order {order}");
        assert_eq!(lab.supply.is_busy(), is_refused, "order {order}");
    }
}

#[test]
fn without_the_patch_or_for_others_no_block_is_refused() {
    let takes = |patches: &[u32], request: &AllocRequest| {
        let mut lab = Lab::with(Order(1), 1, patches);
        lab.ask(0, request).is_some() && lab.count(Event::SimExtfragFragmenting) == 1
    };
    let nowait = AllocRequest { reclaims: false, ..PAIR };
    let reclaimable = AllocRequest { mobility: Mobility::Reclaimable, ..PAIR };
    assert!(takes(&[1, 2, 3, 4], &PAIR));
    assert!(!takes(&[1, 2, 3, 4, 5], &PAIR));
    assert!(takes(&[1, 2, 3, 4, 5], &nowait), "who may not wait");
    assert!(takes(&[1, 2, 3, 4, 5], &reclaimable), "whose pages cannot be moved");
}

#[test]
fn a_stall_boosts_seven_pageblocks_and_sleeps_at_most_20_ms() {
    let mut lab = Lab::new(Order(1));
    assert_eq!(lab.ask(0, &PAIR), None);
    assert_eq!(lab.signs(), (1, 0, true));
    assert_eq!(until(lab.supply(5)), Time(5) + Picos::from_micros(20_000));
    // It is awake by now: nobody wakes it twice.
    assert_eq!(lab.signs(), (8, 0, false));
    // Too little is left above marks that are raised so far: on to reclaim.
    let limit = lab.mm.memory.zones()[0].mark(Mark::Min);
    assert!(lab.mm.memory.zones()[0].free_frames() < limit);
    assert_eq!(lab.supply(6), Step::More);
    assert_eq!((lab.count(Event::SimExtfrag), lab.count(Event::FragmentStall)), (0, 0));
}

#[test]
fn a_stalled_request_takes_a_block_after_its_counted_sleep() {
    let tick = TICK.0;
    for (from, to, counts) in [(5, tick - 1, 0), (tick - 1, tick, 1), (0, 5 * tick, 1)] {
        let mut lab = Lab::new(Order(1));
        assert_eq!(lab.ask(from, &PAIR), None);
        until(lab.supply(from));
        // kswapd has done what it was woken for.
        lab.mm.memory.zone_mut(ZoneIndex(0)).boost = 0;
        assert_eq!(lab.supply(to), Step::Done(()));
        assert_eq!(lab.signs(), (1, 1, true), "as it does without the stall");
        assert_eq!(lab.count(Event::FragmentStall), counts, "{from} to {to}");
        assert!(lab.ask(to, &PAIR).is_some());
        assert_eq!((lab.count(Event::SimExtfrag), lab.boost()), (1, PAGEBLOCK), "it has what it asked for");
    }
}

#[test]
fn a_stall_that_follows_no_refusal_has_kswapd_look_at_dma_alone() {
    // Nothing is as large: who asks for it is refused nothing, and wakes nobody.
    let huge = AllocRequest { wakes_kswapd: false, no_retry: true, ..USER.of_order(Order(9)) };
    let mut lab = Lab::new(Order(1));
    assert_eq!(lab.ask(0, &huge), None);
    assert_eq!(lab.signs(), (0, 0, false));
    until(lab.supply(0));
    assert_eq!(lab.signs(), (7, 0, true));
    // There is no DMA: it has nothing to do, and goes to sleep; who waits for it goes on.
    let step = lab.at(0, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
    assert!(matches!(step, Step::Block(Wait::Until(_))), "{step:?}");
    assert_eq!((lab.mm.memory.take_passed(), lab.boost()), (vec![NodeId(0)], 7 * PAGEBLOCK));
    assert_eq!(lab.mm.memory.take_passed(), [], "they are told once");
}

#[test]
fn who_makes_memory_free_does_not_stall() {
    // kswapd and whoever reclaims: a step that may not ask.
    let mut lab = Lab::new(Order(1));
    assert!(lab.at(0, |mm, cx| mm.memory.alloc(cx, &PAIR)).is_ok());
    assert_eq!(lab.signs(), (2, 1, true), "for the look that spared it, and for the one that did not");
    assert!(!lab.mm.kswapds[NodeId(0)].has_sleepers);
}

#[test]
fn who_is_being_killed_does_not_sleep() {
    let mut lab = Lab::new(Order(1));
    assert_eq!(lab.ask(0, &PAIR), None);
    lab.supply.open_reserves();
    assert_eq!(lab.supply(0), Step::Done(()), "it has what others may not have, at once");
    assert_eq!((lab.boost(), lab.count(Event::FragmentStall)), (9 * PAGEBLOCK, 0), "the last of them for the block");
    assert!(!lab.mm.kswapds[NodeId(0)].has_sleepers);
}

#[test]
fn who_stalls_does_not_go_to_another_node_before() {
    let from = |patches: &[u32]| {
        let mut lab = Lab::with(Order::BASE, 2, patches);
        // A block that there is on the other node alone, which is low too, so that the fast path has none.
        let low = lab.mm.memory.zones()[1].marks.low.0;
        let other = AllocRequest::gfp_kernel(NodeId(1)).of_order(Order(5)).this_node();
        lab.at(0, |mm, cx| {
            while mm.memory.zones()[1].free_frames() > low {
                mm.memory.alloc(cx, &other).unwrap();
            }
        });
        lab.ask(0, &USER.of_order(Order(2))).map(|pfn| pfn.0 >> 15)
    };
    assert_eq!(from(&[1, 2, 3, 4]), Some(1));
    assert_eq!(from(&[1, 2, 3, 4, 5]), None);
}

#[test]
fn the_counter_is_there_where_stalls_are() {
    let has = |patches: &[u32]| {
        let counters = Counters::of(&patched("v4.20-rc3", patches));
        counters.iter().any(|(event, _)| event == Event::FragmentStall)
    };
    assert!(has(&[5]) && !has(&[1, 2, 3, 4]));
    let mut counters = Counters::default();
    counters.count(Event::FragmentStall, 1);
    assert!(counters.iter().any(|counted| counted == (Event::FragmentStall, 1)));
}
