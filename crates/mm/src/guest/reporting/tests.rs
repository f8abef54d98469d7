mod poison;

use memory::{
    backing::{Discard, HostSpec},
    cost::Prices,
    event::Counters,
};
use rules::{
    gfp::{AllocRequest, Mobility},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, Variant},
    zone::Settings,
};
use units::{CpuId, Frames, Pfn};

use super::*;

const BLOCKS: u32 = 2048;
const DELAY: Picos = Picos::from_micros(2_000_000);

/// A guest with one zone of 2,048 blocks of the largest order, whose host backs all that it has in use.
struct Lab {
    mm: Mm,
    counters: Counters,
    now: Time,
}

impl Lab {
    fn new(rules: Variant, discard: Discard) -> Self {
        let frames = Frames(u64::from(BLOCKS * Order(10).frames()));
        let zone =
            ZoneSpec { kind: ZoneKind::Normal, start: Pfn(0), spanned: frames, present: frames, managed: frames };
        let nodes = vec![NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] }];
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
        let mut mm = Mm::new(&machine, rules, &Settings { min_free_kbytes: 4096, ..Settings::default() });
        mm.memory.attach_host(HostSpec { page: Order::HUGE, discard });
        let mut lab = Self { mm, counters: Counters::default(), now: Time(0) };
        // All memory has been in use.
        let all = lab.take_all();
        assert_eq!(lab.resident(), frames.0 - lab.free());
        for pfn in all {
            lab.step(|mm, cx| mm.memory.free(cx, pfn, Order(10)));
        }
        lab.mm.register_reporting(ReportingSpec { order: Order::HUGE, delay: DELAY }, lab.now);
        lab
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let prices = Prices::free();
        let mut cx = Cx::new(CpuId(0), self.now, &prices, &mut self.counters);
        let result = body(&mut self.mm, &mut cx);
        if cx.has_free_block() {
            self.mm.notify_reporting(self.now);
        }
        result
    }

    /// Blocks of the largest order until there is none.
    fn take_all(&mut self) -> Vec<Pfn> {
        let request =
            AllocRequest { order: Order(10), mobility: Mobility::Movable, ..AllocRequest::gfp_nowait(NodeId(0)) };
        std::iter::from_fn(|| self.step(|mm, cx| mm.memory.alloc(cx, &request)).ok()).collect()
    }

    fn free(&self) -> u64 {
        self.mm.memory.zone(ZoneIndex(0)).free_frames()
    }

    fn resident(&self) -> u64 {
        self.mm.memory.host_resident().expect("it is a guest")
    }

    fn get(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    /// Until the thread waits for its time, or for somebody; the instant, if it is one.
    fn run(&mut self) -> Option<Time> {
        // Bound: a pass has fewer steps.
        for _ in 0..100_000 {
            match self.step(Mm::step_reporter) {
                Step::More => {}
                Step::Block(Wait::Io { until, .. }) => self.now = self.now.max(until),
                Step::Block(Wait::Until(until)) => return Some(until),
                Step::Block(_) => return None,
                Step::Done(()) => unreachable!("it has no end"),
            }
        }
        panic!("a pass has no end");
    }

    fn pass(&mut self) -> Option<Time> {
        let due = self.run().expect("a pass is wanted");
        self.now = due;
        self.run()
    }

    fn unreported(&self) -> usize {
        let zone = self.mm.memory.zone(ZoneIndex(0));
        let blocks = [Order(9), Order(10)].into_iter().flat_map(|order| {
            MigrateType::ALL.iter().flat_map(move |list| zone.blocks_of(&self.mm.memory.frames, order, *list))
        });
        blocks.filter(|pfn| !self.mm.memory.frames.is_reported(*pfn)).count()
    }
}

fn rules() -> Variant {
    *variant::named("v5.8")
}

#[test]
fn an_idle_guest_gives_everything_back_in_sixteen_passes() {
    let mut lab = Lab::new(rules(), Discard::DontNeed);
    let before = lab.resident();
    let mut passes = Vec::new();
    // Bound: more passes than there may be.
    for _ in 0..20 {
        let reports = lab.get(Event::SimPageReports);
        let next = lab.pass();
        passes.push(lab.get(Event::SimPageReports) - reports);
        if next.is_none() {
            break;
        }
        assert_eq!(next, Some(lab.now + DELAY), "a pass that left something is followed by another");
    }
    // ceil(2048 / 512) and one: five reports of 32 blocks a pass.
    assert_eq!(passes[..12], [5; 12]);
    assert!(passes.len() <= 16, "{passes:?}");
    assert_eq!(lab.unreported(), 0);
    assert_eq!(lab.get(Event::SimReportListsShort) + lab.get(Event::SimReportsBeyondBudget), 0);
    assert_eq!(lab.get(Event::SimHostDiscards), before - lab.resident());
    assert!(lab.resident() <= u64::from(BLOCKS), "{}", lab.resident());
}

#[test]
fn without_a_budget_one_pass_reports_all() {
    for rotates in [false, true] {
        let rules = Variant { reporting_has_budget: false, reporting_rotates: rotates, ..rules() };
        let mut lab = Lab::new(rules, Discard::DontNeed);
        assert_eq!(lab.pass(), None, "nothing is left");
        assert_eq!(lab.unreported(), 0, "rotates: {rotates}");
        assert_eq!(lab.get(Event::SimPageReports), u64::from(BLOCKS).div_ceil(32));
    }
}

#[test]
fn what_is_reported_comes_last_where_lists_rotate() {
    for rotates in [false, true] {
        let mut lab = Lab::new(Variant { reporting_rotates: rotates, ..rules() }, Discard::DontNeed);
        lab.pass();
        let zone = lab.mm.memory.zone(ZoneIndex(0));
        let first = zone.free_list(Order(10), MigrateType::Movable).first().unwrap();
        assert_eq!(lab.mm.memory.frames.is_reported(first), !rotates);
    }
}

#[test]
fn a_block_that_is_used_again_comes_back_through_the_host() {
    let mut lab = Lab::new(rules(), Discard::DontNeed);
    while lab.pass().is_some() {}
    let (resident, cleared) = (lab.resident(), lab.get(Event::SimHostClearedPages));
    let request = AllocRequest { order: Order::HUGE, ..AllocRequest::gfp_nowait(NodeId(0)) };
    let pfn = lab.step(|mm, cx| mm.memory.alloc(cx, &request)).unwrap();
    assert_eq!(lab.resident(), resident + 512);
    assert_eq!(lab.get(Event::SimHostClearedPages), cleared + 512);
    assert_eq!(lab.get(Event::SimHostRefaults), 512);
    assert_eq!(lab.unreported(), 1, "the other half of a block that was split is no longer known to be free");
    let again = lab.step(|mm, cx| mm.memory.alloc(cx, &AllocRequest { order: Order::BASE, ..request })).unwrap();
    assert_eq!(lab.resident(), resident + 2 * 512, "the host backs a huge page for the first frame of it");
    lab.step(|mm, cx| mm.memory.free(cx, again, Order::BASE));
    assert_eq!(lab.run(), None, "a frame on a list of a CPU tells nobody");
    lab.step(|mm, cx| mm.memory.free(cx, pfn, Order::HUGE));
    assert_eq!(lab.run(), Some(lab.now + DELAY));
}

#[test]
fn a_host_that_keeps_pages_has_nothing_to_clear() {
    let mut lab = Lab::new(rules(), Discard::Free);
    while lab.pass().is_some() {}
    assert!(lab.get(Event::SimPagesReported) > u64::from(BLOCKS) * 1000);
    lab.take_all();
    assert_eq!(lab.get(Event::SimHostDiscards) + lab.get(Event::SimHostRefaults), 0);
    assert_eq!(lab.get(Event::SimHostClearedPages), lab.resident(), "no frame twice");
}

#[test]
fn a_report_that_fails_leaves_no_mark_and_ends_the_pass() {
    let mut lab = Lab::new(rules(), Discard::DontNeed);
    lab.mm.fail_reports(3);
    let (free, resident) = (lab.free(), lab.resident());
    assert_eq!(lab.pass(), None, "nobody asks for another pass");
    assert_eq!(lab.get(Event::SimPageReports), 3);
    assert_eq!(lab.get(Event::SimPagesReported), 2 * 32 * 1024);
    assert_eq!(lab.unreported(), BLOCKS as usize - 64);
    assert_eq!((lab.free(), lab.resident()), (free, resident - 2 * 32 * 1024), "all of it is on the lists again");
}

#[test]
fn a_zone_that_is_short_reports_nothing() {
    let mut lab = Lab::new(rules(), Discard::DontNeed);
    let request = AllocRequest { order: Order(10), ..AllocRequest::gfp_nowait(NodeId(0)) };
    // What a report takes is 32 blocks of 2 MiB.
    while lab.free() > 16 * 1024 {
        lab.step(|mm, cx| mm.memory.alloc(cx, &request)).unwrap();
    }
    assert_eq!(lab.pass(), None);
    assert_eq!(lab.get(Event::SimPageReports), 0);
}

#[test]
fn small_blocks_leave_huge_pages_of_the_host_in_pieces() {
    let mut lab = Lab::new(rules(), Discard::DontNeed);
    let request = AllocRequest { order: Order::HUGE, ..AllocRequest::gfp_nowait(NodeId(0)) };
    let pfn = lab.step(|mm, cx| mm.memory.alloc(cx, &request)).unwrap();
    let resident = lab.resident();
    lab.step(|mm, cx| mm.memory.discard_by_host(cx, pfn.plus(8), Order(3)));
    assert_eq!(lab.resident(), resident - 8);
    let faults = lab.get(Event::SimHostFaults);
    lab.step(|mm, cx| mm.memory.access_through_host(cx, pfn, Order::HUGE));
    assert_eq!(lab.get(Event::SimHostFaults), faults + 8, "base pages, as the rest is there");
    assert_eq!(lab.resident(), resident);
}

#[test]
fn a_hole_is_nothing_that_a_host_backs() {
    let (spanned, present) = (Frames(32 * 1024), Frames(24 * 1024));
    let zone = ZoneSpec { kind: ZoneKind::Normal, start: Pfn(0), spanned, present, managed: present };
    let nodes = vec![NodeSpec { id: NodeId(0), cpus: vec![CpuId(0)], distance: vec![10], zones: vec![zone] }];
    let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes };
    let mut mm = Mm::new(&machine, rules(), &Settings { min_free_kbytes: 4096, ..Settings::default() });
    mm.memory.attach_host(HostSpec { page: Order::HUGE, discard: Discard::DontNeed });
    let free = mm.memory.zone(ZoneIndex(0)).free_frames();
    assert_eq!(mm.memory.host_resident(), Some(present.0 - free), "all that is in use, and nothing else");
}
