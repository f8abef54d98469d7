//! Linux: none.
//!
//! Patterns over freed pages: which blocks are reported then, what the host discards, and what it costs.

use memory::{
    backing::{Discard, HostSpec},
    cost::{Prices, Work},
    cx::Cx,
    event::{Counters, Event},
    poison::{OnFree, PATTERN},
    step::{Step, Wait},
};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Frames, NodeId, Order, Pfn, Picos, Time};

use crate::{
    Mm,
    guest::{mistake::Mistake, reporting::ReportingSpec},
    whole::check::walk_host,
};

const FRAMES: u64 = 256 * 1024;
const CLEAR: Picos = Picos::from_nanos(1000);

/// A guest of 1 GiB that frees what it had, and reports it for a minute.
struct Lab {
    mm: Mm,
    counters: Counters,
    now: Time,
}

impl Lab {
    fn new(on_free: OnFree, device_knows_poison: bool) -> Self {
        let frames = Frames(FRAMES);
        let zone =
            ZoneSpec { kind: ZoneKind::Normal, start: Pfn(0), spanned: frames, present: frames, managed: frames };
        let nodes = vec![NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] }];
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let settings = Settings {
            min_free_kbytes: 4096,
            page_poison: on_free == OnFree::Poison,
            init_on_free: on_free == OnFree::Zero,
            device_knows_poison,
            ..Settings::default()
        };
        let mut mm = Mm::new(&machine, *variant::named("v6.1"), &settings);
        // What boot has written.
        mm.memory.frames.keep_contents(if on_free == OnFree::Poison { PATTERN } else { 0 });
        mm.memory.attach_host(HostSpec { page: Order::HUGE, discard: Discard::DontNeed });
        let delay = Picos::from_micros(2_000_000);
        mm.register_reporting(ReportingSpec { order: Order::HUGE, delay }, Time(0));
        Self { mm, counters: Counters::default(), now: Time(0) }
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::new(|work| if work == Work::ClearFrame { CLEAR } else { Picos(0) });
        let mut cx = Cx::new(CpuId(0), self.now, &prices, &mut self.counters);
        let result = body(&mut self.mm, &mut cx);
        self.now = cx.now();
        result
    }

    /// All that is free is used, and reported when it is free again.
    fn use_and_report(&mut self) {
        let order = Order(10);
        let request = AllocRequest { order, ..AllocRequest::gfp_nowait(NodeId(0)) };
        let all: Vec<Pfn> = std::iter::from_fn(|| self.step(|mm, cx| mm.memory.alloc(cx, &request)).ok()).collect();
        for pfn in all {
            (0..order.frames()).for_each(|n| self.mm.memory.frames.store(pfn.plus(n), 77));
            self.step(|mm, cx| mm.memory.free(cx, pfn, order));
        }
        self.mm.notify_reporting(self.now);
        // Bound: passes come to an end.
        loop {
            match self.step(Mm::step_reporter) {
                Step::Block(Wait::Io { until, .. } | Wait::Until(until)) => self.now = self.now.max(until),
                Step::Block(_) => break,
                _ => {}
            }
        }
        walk_host(&self.mm).expect("both levels agree");
    }

    fn get(&self, event: Event) -> u64 {
        self.counters.get(event)
    }
}

#[test]
fn what_is_reported_and_what_is_discarded() {
    // Poisons, knows: reports, discards.
    for (on_free, knows, reports, discards) in [
        (OnFree::Nothing, true, true, true),
        (OnFree::Nothing, false, true, true),
        (OnFree::Poison, true, true, false),
        (OnFree::Poison, false, false, false),
        (OnFree::Zero, true, true, true),
        (OnFree::Zero, false, false, false),
    ] {
        let mut lab = Lab::new(on_free, knows);
        let booted = lab.mm.memory.host_resident();
        assert_eq!(booted == Some(FRAMES), on_free != OnFree::Nothing, "boot writes to all of it");
        (0..2).for_each(|_| lab.use_and_report());
        let is = (lab.get(Event::SimPageReports) > 0, lab.get(Event::SimHostDiscards) > 0);
        assert_eq!(is, (reports, discards), "{on_free:?}, the device knows: {knows}");
        let resident = lab.mm.memory.host_resident().expect("it is a guest");
        assert_eq!(resident > FRAMES / 2, !discards, "{on_free:?}: {resident} frames are left");
    }
}

#[test]
fn poisoning_costs_a_page_at_free_and_at_alloc() {
    let takes = |on_free: OnFree| {
        let mut lab = Lab::new(on_free, true);
        let request = AllocRequest::gfp_highuser_movable(NodeId(0));
        let pfn = lab.step(|mm, cx| mm.memory.alloc(cx, &request)).expect("there is one");
        // The host's part is over.
        lab.step(|mm, cx| mm.memory.free(cx, pfn, Order::BASE));
        let start = lab.now;
        let again = lab.step(|mm, cx| mm.memory.alloc(cx, &request));
        assert_eq!(again, Ok(pfn));
        let used = lab.now;
        lab.step(|mm, cx| mm.memory.free(cx, pfn, Order::BASE));
        (used.since(start), lab.now.since(used))
    };
    assert_eq!(takes(OnFree::Nothing), (Picos(0), Picos(0)));
    assert_eq!(takes(OnFree::Zero), (Picos(0), CLEAR));
    assert_eq!(takes(OnFree::Poison), (CLEAR, CLEAR));
}

#[test]
#[should_panic(expected = "was poisoned when it was freed")]
fn a_poisoned_page_that_the_host_discards_is_seen() {
    let mut lab = Lab::new(OnFree::Poison, true);
    lab.mm.make_mistake(Mistake::DiscardsPoisoned);
    (0..2).for_each(|_| lab.use_and_report());
}
