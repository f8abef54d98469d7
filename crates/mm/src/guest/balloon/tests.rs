use memory::{
    backing::{Discard, HostSpec},
    cost::Prices,
    event::Counters,
    frame::ControlId,
    pageblock::ZoneIndex,
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId};

use super::*;
use crate::whole::check::{Owners, walk_owners};

const FRAMES: u64 = 64 * 256;
const DRIVER: ControlId = ControlId(7);

/// A guest of 64 MiB, all free, and its balloon.
struct Lab {
    mm: Mm,
    counters: Counters,
    prices: Prices,
    now: Time,
    /// Frames that a task has taken.
    taken: u64,
}

impl Lab {
    /// `touched`: all memory was in use once, so that the host backs it.
    fn new(touched: bool, orders: &[(u64, Leaves)]) -> Self {
        Self::of(("v6.1", false), touched, orders)
    }

    fn of((rules, deflate_on_oom): (&str, bool), touched: bool, orders: &[(u64, Leaves)]) -> Self {
        let frames = Frames(FRAMES);
        let zone =
            ZoneSpec { kind: ZoneKind::Normal, start: Pfn(0), spanned: frames, present: frames, managed: frames };
        let nodes = vec![NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] }];
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let settings = Settings { min_free_kbytes: 1024, ..Settings::default() };
        let mut mm = Mm::new(&machine, *variant::named(rules), &settings);
        mm.memory.attach_host(HostSpec { page: Order::HUGE, discard: Discard::DontNeed });
        let prices = Prices::new(|_| Picos::from_nanos(10));
        let mut lab = Self { mm, counters: Counters::default(), prices, now: Time(0), taken: 0 };
        if touched {
            (0..16).for_each(|n| lab.step(|mm, cx| mm.memory.access_through_host(cx, Pfn(n * 1024), Order(10))));
            assert_eq!(lab.mm.memory.host_resident(), Some(FRAMES));
            lab.now = Time(0);
        }
        let seconds = |(at, leaves): &(u64, Leaves)| (Picos::from_secs(*at), *leaves);
        let spec = BalloonSpec { orders: orders.iter().map(seconds).collect(), deflate_on_oom };
        lab.mm.add_balloon(&spec, lab.now);
        lab
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters).acting_for(DRIVER);
        let result = body(&mut self.mm, &mut cx);
        self.now = cx.now();
        result
    }

    /// Until it waits for an instant, which is then, or for ever. Whose every frame is, is asked after each step.
    fn run(&mut self) -> Option<Time> {
        let mut spaces = Spaces::default();
        // Bound: it has fewer steps.
        for _ in 0..20_000 {
            let step = self.step(|mm, cx| mm.step_balloon(&mut spaces, cx));
            let controls = vec![(DRIVER, self.mm.balloon_holdings())];
            let others = walk_owners(&self.mm, &Owners { spaces: Vec::new(), controls }).expect("no frame is lost");
            assert_eq!(others.len() as u64, self.taken, "frames of nobody");
            match step {
                Step::More => {}
                Step::Block(Wait::Io { until, cause: Cause::Host }) => self.now = self.now.max(until),
                Step::Block(Wait::Until(until)) => return Some(until),
                Step::Block(Wait::Queue) => return None,
                step => unreachable!("{step:?}"),
            }
        }
        panic!("a balloon does not come to rest");
    }

    /// A task takes base pages until there are none, and keeps them; how many it gets. The kernel has nobody to kill.
    fn take_all(&mut self) -> u64 {
        let mut spaces = Spaces::default();
        let request = AllocRequest::gfp_highuser_movable(NodeId(0));
        let mut got = 0;
        // Bound: there are no more.
        while got <= FRAMES {
            if self.step(|mm, cx| mm.memory.alloc(cx, &request)).is_ok() {
                got += 1;
                continue;
            }
            let mut alloc = AllocControl::of_task(request);
            let found = loop {
                match self.step(|mm, cx| alloc.step(mm, &mut spaces, cx)) {
                    Step::More => {}
                    Step::Block(Wait::Io { until, .. } | Wait::Until(until)) => self.now = self.now.max(until),
                    Step::Block(wait) => unreachable!("{wait:?}"),
                    Step::Done(found) => break found,
                }
                let (leaking, balloon) = (self.mm.balloon_holdings().isolated.len() as u64, self.pages());
                assert_eq!(leaking, balloon, "what comes out is the balloon's until the device knows");
            };
            if found.is_none() {
                break;
            }
            got += 1;
        }
        self.taken += got;
        got
    }

    fn pages(&self) -> u64 {
        self.mm.balloon_pages().expect("there is one")
    }

    fn free(&self) -> u64 {
        self.mm.memory.zone(ZoneIndex(0)).free_frames()
    }
}

fn memory(mib: u64) -> Leaves {
    Leaves::Memory(Frames(mib * 256))
}

#[test]
fn a_balloon_gives_its_pages_to_the_host_and_back() {
    let mut lab = Lab::new(true, &[(0, memory(32)), (60, memory(48))]);
    assert_eq!(lab.run(), Some(Time(60_000_000_000_000)));
    assert_eq!((lab.pages(), lab.counters.get(Event::BalloonInflate)), (32 * 256, 32 * 256));
    assert_eq!(lab.counters.get(Event::SimHostDiscards), 32 * 256);
    assert!(lab.counters.get(Event::SimHostGivesBackNs) > 0, "the host took some time for it");
    assert_eq!(lab.mm.memory.host_resident(), Some(32 * 256));
    // 32 arrays, and what each page takes the host.
    let device = SENDING.0 * 32 + GIVING_BACK.0 * 32 * 256;
    assert!((device..2 * device).contains(&lab.now.0), "{:?}", lab.now);
    lab.now = Time(60_000_000_000_000);
    assert_eq!(lab.run(), None, "there is no other order");
    assert_eq!((lab.pages(), lab.counters.get(Event::BalloonDeflate)), (16 * 256, 16 * 256));
    assert_eq!(lab.mm.memory.host_resident(), Some(32 * 256), "nobody has touched it yet");
    let all = lab.free() + lab.pages();
    assert!(all <= FRAMES && all + 1024 > FRAMES, "some are on lists of the CPU: {all} of {FRAMES}");
}

#[test]
fn pages_that_the_host_never_had_stay_away() {
    let mut lab = Lab::new(false, &[(0, memory(16))]);
    assert_eq!(lab.run(), None);
    assert_eq!((lab.pages(), lab.mm.memory.host_resident()), (48 * 256, Some(0)));
    assert_eq!(lab.counters.get(Event::SimHostFaults), 0, "nobody touches what is in a balloon");
}

#[test]
fn it_rests_when_there_is_no_page_and_tries_again() {
    let mut lab = Lab::new(true, &[(0, Leaves::Memory(Frames(1))), (1, memory(64))]);
    let rest = lab.run().expect("it rests");
    assert_eq!(rest, lab.now + REST);
    assert!(lab.mm.is_balloon_idle(), "it keeps nobody from ending");
    let min = lab.mm.memory.zone(ZoneIndex(0)).marks.min.0;
    assert!((min..min + 512).contains(&lab.free()), "{} free, Min {min}", lab.free());
    let before = lab.pages();
    lab.now = rest;
    assert_eq!(lab.run(), Some(lab.now + REST), "nobody has freed anything");
    assert!(lab.pages() >= before && lab.free() >= min);
    lab.now = Time(2_000_000_000_000);
    assert_eq!(lab.run(), None);
    assert_eq!((lab.pages(), lab.mm.balloon_holdings()), (0, Holdings::default()));
    assert_eq!(lab.counters.get(Event::BalloonInflate), lab.counters.get(Event::BalloonDeflate));
    assert!(lab.free() + 1024 > FRAMES);
}

#[test]
fn who_follows_a_need_leaves_a_tenth_and_the_marks() {
    let mut lab = Lab::new(true, &[(0, Leaves::Use(Frames(1000)))]);
    lab.run();
    let high = lab.mm.memory.zone(ZoneIndex(0)).marks.high.0;
    assert_eq!(lab.pages(), FRAMES - 1100 - high);
}

#[test]
fn who_has_no_memory_takes_it_back_from_the_balloon() {
    // What the kernels with each rule do, and those that have it and may not.
    let deflated = |rules: &str, on: bool| {
        let mut lab = Lab::of((rules, on), true, &[(0, memory(8)), (60, memory(8))]);
        lab.mm.enable_oom_killer();
        assert_eq!(lab.run(), Some(Time(60_000_000_000_000)));
        let (before, held) = (lab.now, lab.pages());
        let got = lab.take_all();
        let deflated = lab.counters.get(Event::BalloonDeflate);
        assert_eq!(held - lab.pages(), deflated);
        assert!(
            lab.now.since(before) >= Picos(SENDING.0 * deflated.div_ceil(ARRAY as u64)),
            "the device hears of each"
        );
        assert_eq!(lab.counters.get(Event::OomKill), 0, "there is nobody");
        // The worker hears of it only with the next order.
        let left = lab.pages();
        assert_eq!(lab.run(), Some(lab.now.max(Time(60_000_000_000_000))));
        assert_eq!(lab.pages(), left);
        (got, deflated, lab.counters.get(Event::SlabsScanned))
    };
    let (got, none, _) = deflated("v6.1", false);
    assert!(got < 8 * 256 && none == 0, "{got} of 8 MiB");
    assert_eq!(deflated("v3.16", true).1, 0, "it does not know how");
    for rules in ["v4.1", "v4.17", "v5.8", "v6.1"] {
        let (got, all, scanned) = deflated(rules, true);
        assert_eq!((all, scanned), (56 * 256, 0), "{rules}");
        assert!(got > 62 * 256, "{rules}: {got}");
    }
    for rules in ["v4.19", "v5.4"] {
        let (got, most, scanned) = deflated(rules, true);
        assert!(most > 55 * 256 && scanned >= most, "{rules}: {most} came out, {scanned} were asked for");
        assert!(got > 61 * 256, "{rules}: {got}");
    }
}
