//! Costs of CPUs to each other: locks that another one holds, and TLBs that hold pages which one has unmapped.

use memory::{
    cost::{Cause, Prices, Spent, Work},
    cx::Cx,
    event::{Counters, Event},
    step::Step,
    tlb::Shootdowns,
};
use mm::{
    Mm,
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        fork::Fork,
        vma::{HugeAdvice, PageRange},
    },
    thp::ThpEnabled,
};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Picos, Time};

const HUGE: u64 = 512;
const SHARERS: u32 = 3;

struct Machine {
    mm: Mm,
    counters: Counters,
    prices: Prices,
    /// Where every CPU's next operation begins.
    now: Time,
}

/// The effects of an operation besides its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    spent: Spent,
    asked: Shootdowns,
}

impl Machine {
    fn new(rules: &str, frames: u32, prices: Prices) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), frames);
        let cpus = vec![CpuId(0), CpuId(1)];
        let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
        let spec = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let mm = Mm::new(&spec, *named(rules), &Settings::default());
        Self { mm, counters: Counters::default(), prices, now: Time(0) }
    }

    /// An operation on a CPU while `sharers` others run the same address space.
    fn on<T>(&mut self, cpu: u32, sharers: u32, body: impl FnOnce(&mut Mm, &mut Cx) -> T) -> (T, Told) {
        let cx = Cx::new(CpuId(cpu), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.with_sharers(sharers);
        let result = body(&mut self.mm, &mut cx);
        let told = Told { spent: *cx.spent(), asked: cx.shootdowns() };
        assert_eq!(told.spent.total(), cx.now().since(self.now), "the parts sum to the total");
        (result, told)
    }

    fn space(&mut self, pages: u64) -> (AddressSpace, PageRange) {
        let mut space = self.on(0, 0, |mm, cx| AddressSpace::new(mm, cx, MMAP_BASE)).0.unwrap();
        let range = self.on(0, 0, |mm, cx| space.mmap(mm, cx, pages)).0.unwrap();
        (space, range)
    }

    fn touch(&mut self, space: &mut AddressSpace, range: PageRange, access: Access) -> Told {
        let mut touch = Touch::pages(range, access);
        let (step, mut told) = self.on(0, SHARERS, |mm, cx| {
            // Bound: each step takes a fault at least.
            loop {
                match touch.step(mm, space, cx, Time(u64::MAX)) {
                    Step::More => {}
                    other => return other,
                }
            }
        });
        assert_eq!(step, Step::Done(FaultDone::Handled));
        told.spent = Spent::default();
        told
    }

    fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }
}

/// Nothing but the price of one kind of work, one picosecond: to count it.
fn only(work: Work) -> Prices {
    Prices::new(move |other| Picos(u64::from(other == work)))
}

// ---- Locks.

#[test]
fn a_refill_waits_for_the_refill_of_another_cpu() {
    let prices = Prices::new(|work| match work {
        Work::LockPair => Picos(20),
        Work::LineTransfer => Picos(50),
        Work::ListMove => Picos(10),
        _ => Picos(0),
    });
    let mut machine = Machine::new("v6.1", 64 << 10, prices);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let first = machine.on(0, 0, |mm, cx| mm.memory.alloc(cx, &request).unwrap()).1.spent;
    assert_eq!(first.on(Cause::ZoneLock), Picos(20), "it was free");
    let moves = first.on(Cause::Allocator);
    let batch = machine.mm.memory.zones()[0].cpu_lists()[0].count() + 1;
    assert!(batch > 10 && moves >= Picos(u64::from(batch) * 10), "{batch} frames under one hold: {moves}");
    machine.now = Time(5);
    let second = machine.on(1, 0, |mm, cx| mm.memory.alloc(cx, &request).unwrap()).1.spent;
    assert_eq!(second.on(Cause::ZoneLock), (Picos(20) + moves - Picos(5)) + Picos(50 + 20), "wait, line and pair");
    // What is on the CPU's list needs no lock.
    let third = machine.on(1, 0, |mm, cx| mm.memory.alloc(cx, &request).unwrap()).1.spent;
    assert_eq!(third.on(Cause::ZoneLock), Picos(0));
    // A block that no list holds: from the free lists under the lock.
    machine.now = Time(1_000_000);
    let block = request.of_order(Order(5));
    let large = machine.on(1, 0, |mm, cx| mm.memory.alloc(cx, &block).unwrap());
    assert_eq!(large.1.spent.on(Cause::ZoneLock), Picos(20));
    machine.now = Time(2_000_000);
    let freed = machine.on(0, 0, |mm, cx| mm.memory.free(cx, large.0, Order(5))).1.spent;
    assert_eq!(freed.on(Cause::ZoneLock), Picos(50 + 20));
}

#[test]
fn a_run_of_folios_leaves_the_lru_under_one_lock() {
    // The batches of v6.1 hold 15 folios; 320 pages go through 21 of them, and the last 5 when the range is unmapped.
    let pages = 320;
    let mut machine = Machine::new("v6.1", 64 << 10, only(Work::LockPair));
    machine.mm.thp.enabled = ThpEnabled::Never;
    let (mut space, range) = machine.space(pages);
    let mut touch = Touch::pages(range, Access::Write);
    let filled = machine.on(0, 0, |mm, cx| touch.step(mm, &mut space, cx, Time(u64::MAX))).1;
    assert_eq!(filled.spent.on(Cause::LruLock), Picos(pages / 15));
    let unmapped = machine.on(0, 0, |mm, cx| space.munmap(mm, cx, range).unwrap()).1;
    // A drain; the first 8 folios, which the gather holds itself; and runs of 32.
    let runs = 1 + (pages - 8).div_ceil(32);
    let locks = unmapped.spent.on(Cause::LruLock).0;
    assert!((1 + runs..=2 + runs).contains(&locks), "{locks} locks for {runs} runs");
    machine.on(0, 0, |mm, cx| space.exit(mm, cx));

    // A huge page leaves alone.
    let mut machine = Machine::new("v6.7", 64 << 10, only(Work::LockPair));
    let (mut space, range) = machine.space(4 * HUGE);
    machine.touch(&mut space, range, Access::Write);
    let unmapped = machine.on(0, 0, |mm, cx| space.munmap(mm, cx, range).unwrap()).1;
    assert_eq!(unmapped.spent.on(Cause::LruLock), Picos(4));
    assert_eq!(machine.count(Event::ThpFaultAlloc), 4);
}

// ---- TLBs.

/// The kind of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    None,
    Whole,
    Pages(u32),
}

fn asked(flush: Flush) -> Shootdowns {
    match flush {
        Flush::None => Shootdowns::default(),
        Flush::Whole => Shootdowns { rounds: 1, whole: 1, pages: 0 },
        Flush::Pages(pages) => Shootdowns { rounds: 1, whole: 0, pages },
    }
}

/// Pages of a new address space, all stored to.
fn written(enabled: ThpEnabled, pages: u64) -> (Machine, AddressSpace, PageRange) {
    let mut machine = Machine::new("v6.7", 64 << 10, Prices::free());
    machine.mm.thp.enabled = enabled;
    let (mut space, range) = machine.space(pages);
    assert_eq!(machine.touch(&mut space, range, Access::Write).asked, asked(Flush::None), "nothing was mapped before");
    (machine, space, range)
}

#[test]
fn an_unmapping_flushes_what_it_has_unmapped() {
    for (enabled, pages, from, gone, flush) in [
        (ThpEnabled::Never, 100, 10, 1, Flush::Pages(1)),
        (ThpEnabled::Never, 100, 10, 33, Flush::Pages(33)),
        (ThpEnabled::Never, 100, 10, 34, Flush::Whole),
        (ThpEnabled::Always, 4 * HUGE, HUGE, 2 * HUGE, Flush::Pages(2)),
        (ThpEnabled::Always, 40 * HUGE, HUGE, 34 * HUGE, Flush::Whole),
        (ThpEnabled::Always, 4 * HUGE, HUGE, HUGE, Flush::Pages(1)),
    ] {
        let (mut machine, mut space, range) = written(enabled, pages);
        let part = PageRange::new(range.start.plus(from), gone);
        let told = machine.on(0, SHARERS, |mm, cx| space.munmap(mm, cx, part).unwrap()).1;
        assert_eq!(told.asked, asked(flush), "{gone} pages of {pages}");
        let again = machine.on(0, SHARERS, |mm, cx| space.munmap(mm, cx, part)).1;
        assert_eq!(again.asked, asked(Flush::None), "nothing is mapped there");
    }
}

#[test]
fn tables_that_go_are_flushed_too() {
    // One page, the only one in the space, far from where its tables begin: all of them go.
    let (mut machine, mut space, range) = written(ThpEnabled::Never, 1);
    assert!(range.start.0 - range.start.huge_start().0 > 33);
    let told = machine.on(0, SHARERS, |mm, cx| space.munmap(mm, cx, range).unwrap()).1;
    assert_eq!(told.asked, asked(Flush::Whole));
}

#[test]
fn stores_to_shared_pages_flush_one_page_and_forks_flush_all() {
    let (mut machine, mut parent, range) = written(ThpEnabled::Never, 8);
    let (child, told) = machine.on(0, SHARERS, |mm, cx| parent.fork(mm, cx).unwrap());
    assert_eq!(told.asked, asked(Flush::Whole));
    let told = machine.touch(&mut parent, range, Access::Write);
    assert_eq!(told.asked, Shootdowns { rounds: 8, whole: 0, pages: 8 }, "each is copied");
    machine.on(0, 0, |mm, cx| child.exit(mm, cx));
    let (child, _) = machine.on(0, 0, |mm, cx| parent.fork(mm, cx).unwrap());
    machine.on(0, 0, |mm, cx| child.exit(mm, cx));
    let told = machine.touch(&mut parent, range, Access::Write);
    assert_eq!((told.asked, machine.count(Event::Pgreuse)), (asked(Flush::None), 8), "nobody else maps them now");
}

#[test]
fn the_split_of_a_pmd_flushes_all() {
    let (mut machine, mut space, range) = written(ThpEnabled::Always, 2 * HUGE);
    let inside = PageRange::new(range.start, 10);
    let told = machine.on(0, SHARERS, |mm, cx| space.madvise(mm, cx, inside, HugeAdvice::NoHugePage).unwrap()).1;
    assert_eq!((told.asked, machine.count(Event::ThpSplitPmd)), (asked(Flush::Whole), 1));
}

#[test]
fn the_end_of_a_process_flushes_once_and_all() {
    let (mut machine, space, _) = written(ThpEnabled::Never, 3);
    let told = machine.on(0, SHARERS, |mm, cx| space.exit(mm, cx)).1;
    assert_eq!(told.asked, asked(Flush::Whole));
}

#[test]
fn a_child_that_never_ran_is_in_no_tlb() {
    let (mut machine, mut parent, _) = written(ThpEnabled::Never, 64);
    let mut fork = Fork::new();
    for _ in 0..3 {
        let (step, told) = machine.on(0, SHARERS, |mm, cx| fork.step(mm, &mut parent, cx, Time(0)));
        assert!(matches!(step, Step::More));
        assert_eq!(told.asked, asked(Flush::None), "the parent is flushed at the end");
    }
    assert!(fork.child().is_some_and(|child| child.rss_pages() > 0));
    let flushes = machine.count(Event::SimTlbLocalFlushAll);
    let told = machine.on(0, SHARERS, |mm, cx| fork.abort(mm, cx)).1;
    assert_eq!(told.asked, asked(Flush::None));
    assert_eq!(machine.count(Event::SimTlbLocalFlushAll), flushes);
}

#[test]
fn sender_and_receivers_pay() {
    let prices = Prices::new(|work| match work {
        Work::TlbFlush => Picos(200),
        Work::TlbFlushPage => Picos(50),
        Work::Ipi => Picos(1000),
        Work::IpiTarget => Picos(10_000),
        Work::IpiReceive => Picos(100_000),
        _ => Picos(0),
    });
    for (gone, flush, local) in [(2, Flush::Pages(2), 100), (40, Flush::Whole, 200)] {
        for sharers in [0, 1, SHARERS] {
            let (mut machine, mut space, range) = written(ThpEnabled::Never, 100);
            machine.prices = prices.clone();
            let part = PageRange::new(range.start, gone);
            let told = machine.on(0, sharers, |mm, cx| space.munmap(mm, cx, part).unwrap()).1;
            let rounds = u64::from(sharers > 0);
            assert_eq!(told.spent.on(Cause::PageTable), Picos(local));
            assert_eq!(told.spent.on(Cause::Ipi), Picos(rounds * 1000 + u64::from(sharers.saturating_sub(1)) * 10_000));
            assert_eq!(told.asked, if sharers > 0 { asked(flush) } else { asked(Flush::None) });
            assert_eq!(machine.count(Event::SimTlbRemoteFlush), rounds);
            assert_eq!(machine.count(Event::SimTlbRemoteFlushReceived), sharers.into());
            let events = [Event::SimTlbLocalFlushAll, Event::SimTlbLocalFlushOne].map(|event| machine.count(event));
            assert_eq!(events, if gone > 33 { [1, 0] } else { [0, gone] });

            let received = machine.on(1, sharers, |_, cx| cx.receive(told.asked)).1.spent;
            assert_eq!(received.on(Cause::Ipi), Picos(rounds * (100_000 + local)));
            assert_eq!(received.total(), received.on(Cause::Ipi));
        }
    }
}

// ---- Prices.

#[test]
fn a_shared_core_scales_what_the_core_does() {
    let prices = Prices::new(|work| Picos(10 * work as u64 + 7));
    let shared = prices.shared_core(160);
    for work in Work::ALL {
        let alone = prices.of(*work).0;
        // What is only waited for comes as soon as alone.
        let waiting = [Work::LineTransfer, Work::WakeUp, Work::Ipi, Work::HostReport, Work::HostDiscard];
        let waits = waiting.contains(work);
        assert_eq!(shared.of(*work).0, if waits { alone } else { (alone * 16 + 5) / 10 }, "{work:?}");
    }
    assert_eq!(prices.shared_core(100), prices);
}
