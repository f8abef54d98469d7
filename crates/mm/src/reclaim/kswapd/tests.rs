use memory::{cost::Prices, event::Counters, news::Daemon, pageblock::ZoneIndex};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::Settings,
};
use units::{CpuId, NodeId, Pfn, Time};

use super::*;

fn machine() -> Mm {
    machine_of("v6.1")
}

fn machine_of(rules: &str) -> Mm {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 16 << 10);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    Mm::new(&machine, *named(rules), &Settings { min_free_kbytes: 4096, ..Settings::default() })
}

fn at<T>(mm: &mut Mm, counters: &mut Counters, now: u64, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
    let prices = Prices::free();
    body(mm, &mut Cx::new(CpuId(0), Time(now), &prices, counters))
}

#[test]
fn kswapd_wakes_below_low_and_sleeps_after_16_failures() {
    let (mut mm, mut counters) = (machine(), Counters::default());
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let marks = mm.memory.zones()[0].marks;
    let mut taken = Vec::new();
    while !mm.memory.has_woken(Daemon::Kswapd) {
        taken.push(at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &request)).unwrap());
    }
    assert!(mm.memory.zones()[0].free_frames() <= marks.low.0, "not before the Low mark");
    assert_eq!(mm.memory.take_woken(Daemon::Kswapd), [NodeId(0)]);
    let mut passes = 0;
    let wait = loop {
        match at(&mut mm, &mut counters, 7, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0))) {
            Step::More => passes += 1,
            Step::Block(wait) => break wait,
            Step::Done(()) => unreachable!("a daemon has no end"),
        }
    };
    assert_eq!(
        (passes, mm.memory.node(NodeId(0)).kswapd.failures(), counters.get(Event::Pageoutrun)),
        (16 * 12 - 1, 16, 16)
    );
    assert_eq!(wait, Wait::Until(Time(7) + SHORT_SLEEP));
    assert_eq!(
        at(&mut mm, &mut counters, 8, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0))),
        Step::Block(Wait::Queue)
    );
    taken.push(at(&mut mm, &mut counters, 9, |mm, cx| mm.memory.alloc(cx, &request)).unwrap());
    assert!(!mm.memory.has_woken(Daemon::Kswapd), "hopeless: left alone");
}

#[test]
fn it_sleeps_again_when_the_memory_has_come_back() {
    let (mut mm, mut counters) = (machine(), Counters::default());
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let mut taken = Vec::new();
    while !mm.memory.has_woken(Daemon::Kswapd) {
        taken.push(at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &request)).unwrap());
    }
    for pfn in taken {
        at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.free(cx, pfn, Order::BASE));
    }
    let step = at(&mut mm, &mut counters, 1, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
    assert_eq!(step, Step::Block(Wait::Until(Time(1) + SHORT_SLEEP)));
    assert_eq!((mm.memory.node(NodeId(0)).kswapd.failures(), counters.get(Event::Pageoutrun)), (0, 1));
}

#[test]
fn while_it_reclaims_a_cpu_keeps_four_batches() {
    let kept = |rules: &str| {
        let (mut mm, mut counters) = (machine_of(rules), Counters::default());
        let request = AllocRequest::gfp_highuser_movable(NodeId(0));
        let mut taken = Vec::new();
        while !mm.memory.has_woken(Daemon::Kswapd) {
            taken.push(at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &request)).unwrap());
        }
        let mut free = |mm: &mut Mm, frames: usize| {
            for pfn in taken.drain(..frames) {
                at(mm, &mut counters, 1, |mm, cx| mm.memory.free(cx, pfn, Order::BASE));
            }
            mm.memory.zones()[0].cpu_lists()[0].count()
        };
        let before = free(&mut mm, 100);
        at(&mut mm, &mut Counters::default(), 1, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
        assert!(!mm.memory.node(NodeId(0)).kswapd.is_asleep(), "what the CPU keeps is not free");
        let during = free(&mut mm, 400);
        while !mm.memory.node(NodeId(0)).kswapd.is_asleep() {
            at(&mut mm, &mut Counters::default(), 2, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
        }
        (before, during, free(&mut mm, 900))
    };
    // Batches of 3 in 64 MiB: the lists held two of the last batch that was drawn, when the kernel thread was woken.
    let (before, during, after) = kept("v6.1");
    assert!((100..103).contains(&before) && during < 4 * 3, "{before} and {during}");
    assert!(after >= 900, "{after}: as before");
    let (before, during, _) = kept("v5.11");
    assert!([before, during].iter().all(|kept| (15..18).contains(kept)), "{before} and {during}: up to six, always");
}

#[test]
fn a_partial_fallback_boosts_the_marks_and_wakes_kswapd() {
    let mut counters = Counters::default();
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8 << 10);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
    let spec = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    let mut mm = Mm::new(&spec, *named("v6.1"), &Settings { min_free_kbytes: 128, ..Settings::default() });
    let (user, kernel) = (AllocRequest::gfp_highuser_movable(NodeId(0)), AllocRequest::gfp_kernel(NodeId(0)));
    // Until less than a pageblock is free, all of it Movable.
    while mm.memory.zones()[0].free_frames() > 256 {
        at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &user)).unwrap();
    }
    assert_eq!(
        (mm.memory.zones()[0].boost, counters.get(Event::SimExtfragFragmenting), mm.memory.has_woken(Daemon::Kswapd)),
        (0, 0, false)
    );
    at(&mut mm, &mut counters, 1, |mm, cx| mm.memory.alloc(cx, &kernel)).unwrap();
    assert!(counters.get(Event::SimExtfragFragmenting) > 0);
    assert_eq!(mm.memory.zones()[0].boost, 512, "a pageblock, which is more than half of the High mark");
    assert_eq!(mm.memory.take_woken(Daemon::Kswapd), [NodeId(0)]);
}

#[test]
fn a_boost_has_a_ceiling_and_ends_with_the_run() {
    let (mut mm, mut counters) = (machine(), Counters::default());
    let high = mm.memory.zones()[0].marks.high.0;
    let ceiling = high * 15_000 / 10_000;
    let rules = *mm.memory.variant();
    mm.memory.zone_mut(ZoneIndex(0)).set_broken_up(1);
    mm.memory.zone_mut(ZoneIndex(0)).boost_marks(Order(9), &rules);
    assert_eq!(mm.memory.zones()[0].boost, 512);
    mm.memory.zone_mut(ZoneIndex(0)).set_broken_up(100);
    assert!(mm.memory.zone_mut(ZoneIndex(0)).boost_marks(Order(9), &rules));
    assert_eq!(
        (mm.memory.zones()[0].boost, mm.memory.zones()[0].mark(Mark::Low)),
        (ceiling, mm.memory.zones()[0].marks.low.0 + ceiling)
    );
    mm.memory.zone_mut(ZoneIndex(0)).is_boosted = true;
    let request = AllocRequest::gfp_highuser_movable(NodeId(0)).of_order(Order(4));
    at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &request)).unwrap();
    assert_eq!(mm.memory.take_woken(Daemon::Kswapd), [NodeId(0)], "though all is balanced");
    // What is raised meanwhile stays.
    let step = at(&mut mm, &mut counters, 1, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
    assert_eq!(step, Step::Block(Wait::Until(Time(1) + SHORT_SLEEP)), "nothing could go gently");
    assert_eq!((mm.memory.zones()[0].boost, counters.get(Event::Pageoutrun)), (0, 1));
    assert_eq!(mm.memory.node(NodeId(0)).kswapd.failures(), 1);
}

#[test]
fn small_zones_and_a_factor_of_0_are_not_boosted() {
    let (mut mm, rules) = (machine(), *named("v6.1"));
    mm.memory.zone_mut(ZoneIndex(0)).managed = 4 * 512 - 1;
    mm.memory.zone_mut(ZoneIndex(0)).set_broken_up(1);
    assert!(!mm.memory.zone_mut(ZoneIndex(0)).boost_marks(Order(9), &rules));
    assert_eq!(mm.memory.zones()[0].boost, 0);
    mm.memory.zone_mut(ZoneIndex(0)).set_broken_up(1);
    mm.memory.zone_mut(ZoneIndex(0)).boost_marks(Order(9), named("v5.0"));
    assert_eq!(mm.memory.zones()[0].boost, 512, "before 5.7");
    (mm.memory.zone_mut(ZoneIndex(0)).boost, mm.memory.zone_mut(ZoneIndex(0)).boost_factor) = (0, 0);
    mm.memory.zone_mut(ZoneIndex(0)).set_broken_up(1);
    mm.memory.zone_mut(ZoneIndex(0)).boost_marks(Order(9), named("v5.0"));
    assert_eq!(mm.memory.zones()[0].boost, 0);
}

#[test]
fn from_5_0_to_5_2_a_boost_run_spares_slab() {
    let asks = |rules: &str, is_boosted: bool| {
        let (mut mm, mut counters) = (machine_of(rules), Counters::default());
        // Enough that a pass has something to look at.
        for index in 0..8192 {
            at(&mut mm, &mut counters, 0, |mm, cx| mm.add_clean_page(cx, index));
        }
        let highest = ZoneKind::Movable;
        // Without a boost, for an order that there is not.
        let order = if is_boosted { Order::BASE } else { Order(11) };
        mm.memory.zone_mut(ZoneIndex(0)).boost = if is_boosted { 512 } else { 0 };
        at(&mut mm, &mut counters, 0, |mm, cx| {
            mm.memory.wake_kswapd(cx, NodeId(0), order, highest);
            mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0))
        });
        match &mm.kswapds[NodeId(0)].run {
            Some(Run::ByNode(Balance { pass: Pass::Node { scan, .. }, .. })) => scan.asks_shrinkers,
            state => panic!("{rules}: a pass has begun, but {state:?}"),
        }
    };
    for (rules, asks_when_boosted) in [("v5.0", false), ("v5.1", false), ("v5.3", true), ("v6.1", true)] {
        assert_eq!((asks(rules, true), asks(rules, false)), (asks_when_boosted, true), "{rules}");
    }
}

#[test]
fn kcompactd_is_not_woken_in_its_place_where_marks_are_raised() {
    let mut mm = machine();
    let is_left = |mm: &Mm| mm.memory.is_left_to_kcompactd(NodeId(0), Order(9), ZoneKind::Movable);
    assert!(is_left(&mm), "it is balanced");
    mm.memory.zone_mut(ZoneIndex(0)).boost = 1;
    assert!(!is_left(&mm), "kswapd has something to do");
    mm.memory.node_mut(NodeId(0)).kswapd.failures = RETRIES_MAX;
    assert!(is_left(&mm), "it has given up");
}

#[test]
fn who_breaks_up_a_pageblock_wakes_kswapd() {
    let woken = |rules: &str, watermark_boost_factor: u32, request: AllocRequest| {
        let mut counters = Counters::default();
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8 << 10);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] };
        let spec = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
        let settings = Settings { min_free_kbytes: 1024, watermark_boost_factor, ..Settings::default() };
        let mut mm = Mm::new(&spec, *named(rules), &settings);
        // Between Low and High: nobody else would wake it.
        let user = AllocRequest::gfp_highuser_movable(NodeId(0));
        while mm.memory.zones()[0].free_frames() > mm.memory.zones()[0].marks.high.0 {
            at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.alloc(cx, &user)).unwrap();
        }
        assert!(mm.memory.zones()[0].free_frames() < 512 && !mm.memory.has_woken(Daemon::Kswapd));
        at(&mut mm, &mut counters, 1, |mm, cx| mm.memory.alloc(cx, &request)).unwrap();
        assert!(counters.get(Event::SimExtfragFragmenting) > 0, "{rules}");
        assert!(!mm.memory.zones()[0].is_boosted, "{rules}: and nobody wakes it later for that");
        mm.memory.has_woken(Daemon::Kswapd)
    };
    let kernel = AllocRequest::gfp_kernel(NodeId(0));
    let quiet = AllocRequest { wakes_kswapd: false, ..kernel };
    for (rules, with_factor, without) in [
        ("v4.20", false, false),
        ("v5.0", true, true),
        ("v5.9", true, true),
        ("v5.10", true, false),
        ("v6.1", true, false),
    ] {
        assert_eq!((woken(rules, 15_000, kernel), woken(rules, 0, kernel)), (with_factor, without), "{rules}");
        assert_eq!((woken(rules, 15_000, quiet), woken(rules, 0, quiet)), (false, false), "{rules}");
    }
}

#[test]
fn waiters_for_a_kswapd_pass_are_woken_at_its_end() {
    let is_told = |boost: u64, priority: u8, is_enough: bool, has_reserves: bool| {
        let (mut mm, mut counters) = (machine(), Counters::default());
        for index in 0..64 {
            at(&mut mm, &mut counters, 0, |mm, cx| mm.add_clean_page(cx, index));
        }
        // What there is is less than half of so high a mark.
        mm.memory.zone_mut(ZoneIndex(0)).boost = if has_reserves { 0 } else { 1 << 20 };
        mm.kswapds[NodeId(0)].has_sleepers = true;
        let mut run = Balance::new(Wish { order: Order::BASE, highest: ZoneKind::Movable }, (false, false));
        run.boost = boost;
        (run.sc.priority, run.sc.to_reclaim, run.sc.reclaimed) = (priority, 100, 1);
        run.sc.scanned = if is_enough { 100 } else { 99 };
        let step = at(&mut mm, &mut counters, 0, |mm, cx| mm.end_pass(cx, NodeId(0), run, 0));
        assert_eq!(step, Step::More, "the run is not over: who goes to sleep tells everybody");
        assert_eq!(mm.kswapds[NodeId(0)].has_sleepers, !mm.memory.has_news());
        mm.memory.take_passed() == [NodeId(0)]
    };
    assert!(is_told(512, DEF_PRIORITY, true, false), "it has looked at enough");
    assert!(is_told(512, DEF_PRIORITY - 2, false, false), "it may look at no more");
    assert!(!is_told(512, DEF_PRIORITY, false, false));
    assert!(!is_told(0, DEF_PRIORITY, true, false), "no marks are raised, or more is needed than they are");
    assert!(is_told(0, DEF_PRIORITY, false, true) && is_told(512, DEF_PRIORITY, false, true));
}

/// The request that a run serves which begins when kswapd is woken: the order, and the highest zone.
fn begun(rules: &str, rest: Rest, wish: Option<Wish>) -> (u8, ZoneKind) {
    let (mut mm, mut counters) = (machine_of(rules), Counters::default());
    let bell = &mut mm.memory.node_mut(NodeId(0)).kswapd;
    (bell.rest, bell.wish) = (rest, wish);
    bell.last = Wish { order: Order(3), highest: ZoneKind::Dma32 };
    at(&mut mm, &mut counters, 0, |mm, cx| mm.memory.nudge_kswapd(cx, NodeId(0)));
    assert_eq!(mm.memory.take_woken(Daemon::Kswapd), [NodeId(0)]);
    let bell = &mm.memory.node(NodeId(0)).kswapd;
    assert_eq!((bell.rest, bell.wish), (Rest::Awake, None), "it was woken");
    (bell.last.order.0, bell.last.highest)
}

#[test]
fn kswapd_serves_its_request_and_the_one_it_rested_on() {
    let [dma, normal] = [ZoneKind::Dma, ZoneKind::Normal].map(|highest| Some(Wish { order: Order::BASE, highest }));
    for (rules, nothing, lower) in [
        ("v5.1", ZoneKind::Dma, ZoneKind::Dma32),
        ("v5.2", ZoneKind::Dma32, ZoneKind::Dma),
        ("v6.1", ZoneKind::Dma32, ZoneKind::Dma),
    ] {
        assert_eq!(begun(rules, Rest::Asleep, normal), (0, ZoneKind::Normal), "{rules}");
        assert_eq!(begun(rules, Rest::Asleep, None), (0, nothing), "{rules}: nobody has asked");
        assert_eq!(begun(rules, Rest::Napping, normal), (3, ZoneKind::Normal), "{rules}: it rested on order 3");
        assert_eq!(begun(rules, Rest::Napping, dma), (3, lower), "{rules}: it rested on a higher zone");
    }
}

#[test]
fn up_to_5_1_a_failed_run_precedes_one_for_dma() {
    let next = |rules: &str| {
        let (mut mm, mut counters) = (machine_of(rules), Counters::default());
        let wish = Wish { order: Order(3), highest: ZoneKind::Movable };
        at(&mut mm, &mut counters, 0, |mm, cx| mm.begin_again(cx, NodeId(0), wish));
        let bell = &mm.memory.node(NodeId(0)).kswapd;
        assert_eq!((bell.rest, bell.wish), (Rest::Awake, None), "it begins again");
        (bell.last.order.0, bell.last.highest)
    };
    assert_eq!([next("v4.20"), next("v5.2")], [(0, ZoneKind::Dma), (0, ZoneKind::Movable)]);
}

const DMA: ZoneIndex = ZoneIndex(0);

/// A node with 16 MiB of DMA, all free, and 64 MiB of Normal, half free in single frames. DMA's high watermark is `room` frames
/// below its free frames, not counting the frames it keeps from requests for Normal.
fn fragmented(rules: &str, room: u64) -> Mm {
    let (prices, mut counters) = (Prices::free(), Counters::default());
    let zones = vec![
        ZoneSpec::whole(ZoneKind::Dma, Pfn(0), 4 << 10),
        ZoneSpec::whole(ZoneKind::Normal, Pfn(4 << 10), 16 << 10),
    ];
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones };
    let machine = MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: vec![node] };
    let mut mm = Mm::new(&machine, *named(rules), &Settings { min_free_kbytes: 512, ..Settings::default() });
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let mut taken = Vec::new();
    while mm.memory.zones()[1].free_frames() > 2 * mm.memory.zones()[1].marks.high.0 {
        taken.push(mm.memory.alloc(&mut cx, &request).unwrap());
    }
    for pfn in taken.into_iter().filter(|pfn| pfn.0 % 2 == 0) {
        mm.memory.free(&mut cx, pfn, Order::BASE);
    }
    let dma = mm.memory.zone_mut(DMA);
    dma.marks.high.0 = dma.free_frames() - dma.protection[ZoneKind::Normal as usize] - room;
    mm
}

#[test]
fn from_4_8_to_4_11_kcompactd_needs_all_zones_balanced() {
    let asked = Wish { order: Order(9), highest: ZoneKind::Normal };
    let ended = |rules: &str, room: u64| {
        let (mut mm, mut counters) = (fragmented(rules, room), Counters::default());
        assert!(mm.memory.zone(DMA).protection[ZoneKind::Normal as usize] > 0, "what DMA keeps counts");
        // It has reclaimed enough for compaction, and gone on for single frames.
        let mut run = Balance::new(asked, (false, false));
        run.sc.order = Order::BASE;
        let step = at(&mut mm, &mut counters, 7, |mm, cx| mm.end_run(cx, NodeId(0), &run, false));
        (step, mm.memory.has_woken(Daemon::Kcompactd), counters.get(Event::KswapdHighWmarkHitQuickly))
    };
    let sleeps = (Step::Block(Wait::Until(Time(7) + SHORT_SLEEP)), true, 0);
    for rules in ["v4.8", "v4.12", "v6.1"] {
        assert_eq!(ended(rules, 1), sleeps, "{rules}: each zone is above its High mark and its reserve");
    }
    assert_eq!(ended("v4.8", 0), (Step::More, false, 1), "one is not: a frame less is too little");
    for rules in ["v4.12", "v6.1"] {
        assert_eq!(ended(rules, 0), sleeps, "{rules}: one zone is enough");
    }
}

/// The turn for nothing that follows is for DMA, which keeps nothing from its own requests: that ends in sleep, without
/// kcompactd.
#[test]
fn kswapd_of_4_8_sleeps_without_kcompactd_if_dma_lacks_room() {
    let (mut mm, mut counters) = (fragmented("v4.8", 0), Counters::default());
    let step = at(&mut mm, &mut counters, 0, |mm, cx| {
        mm.begin_again(cx, NodeId(0), Wish { order: Order::BASE, highest: ZoneKind::Normal })
    });
    assert_eq!(step, Step::More);
    let step = at(&mut mm, &mut counters, 1, |mm, cx| mm.step_kswapd(&mut Spaces::default(), cx, NodeId(0)));
    assert_eq!(step, Step::Block(Wait::Until(Time(1) + SHORT_SLEEP)));
    assert_eq!(
        (mm.memory.has_woken(Daemon::Kcompactd), mm.memory.node(NodeId(0)).kswapd.last.highest),
        (false, ZoneKind::Dma)
    );
}

#[test]
fn up_to_4_11_kswapd_rests_only_on_zones_asked_for() {
    let [dma, normal] = [ZoneKind::Dma, ZoneKind::Normal].map(|highest| Wish { order: Order(3), highest });
    for (rules, unasked, lower) in [
        ("v4.8", ZoneKind::Dma, ZoneKind::Dma),
        ("v4.12", ZoneKind::Dma32, ZoneKind::Dma32),
        ("v5.2", ZoneKind::Dma32, ZoneKind::Dma),
    ] {
        let mm = machine_of(rules);
        let rests = |asked| mm.memory.rests_on(asked, ZoneKind::Dma32);
        assert_eq!(rests(None), Wish { order: Order::BASE, highest: unasked }, "{rules}");
        assert_eq!(rests(Some(dma)), Wish { order: Order(3), highest: lower }, "{rules}");
        assert_eq!(rests(Some(normal)), normal, "{rules}");
    }
}
