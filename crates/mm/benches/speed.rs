//! Cost of the memory manager, in CPU time and memory: an order-0 pair, a fresh 1 TiB machine, and a quarter of a
//! machine's memory touched once, at 4 GiB and at 1 TiB. Ratios and sizes are compared with what we want of them; a time
//! alone says more about this machine than about us.
//!
//!     cargo bench -p mm
#![expect(clippy::print_stdout, reason = "a benchmark talks to a person")]

use std::{fs, process::Command};

use memory::{
    cost::{Prices, Work},
    cx::Cx,
    event::{Counters, Event},
    frame::SpaceId,
    step::Step,
};
use mm::{
    Mm, Spaces,
    compact::kcompactd::CompactMemory,
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
    thp::ThpEnabled,
};
use nix::{sys::time::TimeValLike, time::ClockId};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{Bytes, CpuId, NodeId, Order, PageAllocator, Pfn, Picos, Time};

const PAIRS: u32 = 5_000_000;
const ROUNDS: usize = 7;
/// Runs on a small machine for each on a large one, which takes a few hundred times as long.
const SMALL_RUNS: usize = 9;

/// The argument that starts [`touch_quarter`] in a process of its own: its memory is new then, as a simulated machine's is.
const TOUCH: &str = "touch-quarter";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, gib, rules] = arguments.as_slice()
        && command == TOUCH
    {
        return touch_quarter(Bytes::gib(gib.parse().expect("a number of GiB")), *named(rules));
    }
    fresh_machine();
    compaction();
    for rules in ["v4.1", "v6.1"] {
        let mut mm = Mm::new(&machine(1, Bytes::gib(4)), *named(rules), &settings());
        let hot = median_of(ROUNDS, || pair(&mut mm));
        let burst = median_of(ROUNDS, || bursts(&mut mm, 4096));
        println!("order-0 pair, {rules}: {hot:.1} ns (wanted: at most 10), {burst:.1} ns in bursts of 4096");
    }
    allocators();
    for rules in ["v4.1", "v6.1"] {
        quarter_touched(rules);
    }
}

/// Small and large machines in turn, so that each ratio is of times from the same minute: the median says what there is,
/// the extremes how well it is known.
fn quarter_touched(rules: &str) {
    let rounds = (0..ROUNDS).map(|_| {
        let small = median_of(SMALL_RUNS, || in_new_process(4, rules).ns);
        (small, in_new_process(1024, rules))
    });
    let rounds: Vec<(f64, Touched)> = rounds.collect();
    let ratios = sorted(rounds.iter().map(|(small, large)| large.ns / small).collect());
    println!(
        "a quarter touched, {rules}: {:.1} ns per page at 4 GiB, {:.1} ns at 1 TiB: ratio {:.2} (wanted: at most 1.3), from \
         {:.2} to {:.2} in {ROUNDS} rounds; {:.1} bytes per touched frame at 1 TiB (wanted: at most 32)",
        middle(rounds.iter().map(|(small, _)| *small).collect()),
        middle(rounds.iter().map(|(_, large)| large.ns).collect()),
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1],
        middle(rounds.iter().map(|(_, large)| large.bytes).collect())
    );
}

/// Two processes have every second frame each, and one of them ends: how fast compaction scans, and moves what is left.
fn compaction() {
    let mut mm = Mm::new(&machine(1, Bytes::gib(1)), *named("v6.1"), &settings());
    mm.thp.enabled = ThpEnabled::Never;
    let (prices, mut counters, mut spaces) = (Prices::free(), Counters::default(), Spaces::default());
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let mut ranges = Vec::new();
    let pages = 100_000;
    for _ in 0..2 {
        let mut space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).expect("there is room");
        ranges.push(space.mmap(&mut mm, &mut cx, pages).expect("there is room"));
        spaces.add(space);
    }
    for at in 0..pages {
        for (id, range) in (0..).map(SpaceId).zip(&ranges) {
            let mut touch = Touch::pages(PageRange::new(range.start.plus(at), 1), Access::Write);
            let space = spaces.get_mut(id).expect("it lives");
            while touch.step(&mut mm, space, &mut cx, Time(u64::MAX)) == Step::More {}
        }
    }
    spaces.take(SpaceId(1)).exit(&mut mm, &mut cx);
    let mut compact = CompactMemory::default();
    let before = cpu_ns();
    while compact.step(&mut mm, &mut spaces, &mut cx) == Step::More {}
    let first = cpu_ns() - before;
    // Once more: nothing is left to be moved, only to be looked at.
    let scanned =
        |counters: &Counters| counters.get(Event::CompactMigrateScanned) + counters.get(Event::CompactFreeScanned);
    let (moved, seen) = (counters.get(Event::PgmigrateSuccess), scanned(&counters));
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let mut compact = CompactMemory::default();
    let before = cpu_ns();
    while compact.step(&mut mm, &mut spaces, &mut cx) == Step::More {}
    let second = cpu_ns() - before;
    let again = scanned(&counters) - seen;
    println!(
        "compaction of 1 GiB, v6.1: {:.0} ns per page moved; {:.1} frames scanned per us when nothing can be moved",
        first as f64 / moved as f64,
        again as f64 * 1e3 / second as f64
    );
}

fn in_new_process(gib: u32, rules: &str) -> Touched {
    let program = std::env::current_exe().expect("a running program has a file");
    let output = Command::new(program).args([TOUCH, &gib.to_string(), rules]).output().expect("it starts again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("numbers are text");
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Touched { ns: numbers[0], bytes: numbers[1] }
}

fn settings() -> Settings {
    Settings { min_free_kbytes: 65536, ..Settings::default() }
}

fn machine(nodes: u32, each: Bytes) -> MachineSpec {
    let frames = u32::try_from(each.frames().0).expect("a node's frames have 32-bit numbers");
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id)],
        distance: (0..nodes).map(|other| if other == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * frames), frames)],
    };
    MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: (0..nodes).map(node).collect() }
}

fn fresh_machine() {
    let before = resident_kib();
    let start = cpu_ns();
    let mm = Mm::new(&machine(8, Bytes::gib(128)), *named("v6.1"), &Settings::default());
    let (span, held) = (cpu_ns() - start, resident_kib() - before);
    println!(
        "a fresh machine of 1 TiB in 8 nodes: {:.1} ms (wanted: under 500), {:.1} MiB resident (wanted: under 64)",
        span as f64 / 1e6,
        held as f64 / 1024.0
    );
    drop(mm);
}

/// Prices that differ, so that nothing is optimised away.
fn prices() -> Prices {
    Prices::new(|work: Work| Picos(1 + work as u64))
}

/// Nanoseconds per frame allocated and freed at once.
fn pair(mm: &mut Mm) -> f64 {
    let prices = prices();
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let start = cpu_ns();
    for _ in 0..PAIRS {
        let pfn = mm.memory.alloc(&mut cx, &request).expect("there is memory");
        mm.memory.free(&mut cx, pfn, Order::BASE);
    }
    (cpu_ns() - start) as f64 / f64::from(PAIRS)
}

/// An order-0 pair with each page allocator, behind the seam that both stand behind: no zonelist, no watermark.
fn allocators() {
    let mut mm = Mm::new(&machine(1, Bytes::gib(4)), *named("v6.1"), &settings());
    let [linux, llfree] = PageAllocator::ALL.map(|allocator| median_of(ROUNDS, || pair_of(&mut mm, allocator)));
    println!(
        "order-0 pair by the zone's allocator alone, v6.1: {linux:.1} ns by Linux's, {llfree:.1} ns by LLFree: ratio {:.2} \
         (wanted: at most 2)",
        llfree / linux
    );
}

fn pair_of(mm: &mut Mm, allocator: PageAllocator) -> f64 {
    let prices = prices();
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let start = cpu_ns();
    mm.memory.pairs_of(allocator, &mut cx, PAIRS);
    (cpu_ns() - start) as f64 / f64::from(PAIRS)
}

/// Nanoseconds per frame allocated and freed, `burst` at a time; what it takes to keep them in mind is part of it.
fn bursts(mm: &mut Mm, burst: u32) -> f64 {
    let prices = prices();
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let mut taken = Vec::with_capacity(burst as usize);
    let start = cpu_ns();
    for _ in 0..PAIRS / burst {
        for _ in 0..burst {
            taken.push(mm.memory.alloc(&mut cx, &request).expect("there is memory"));
        }
        while let Some(pfn) = taken.pop() {
            mm.memory.free(&mut cx, pfn, Order::BASE);
        }
    }
    (cpu_ns() - start) as f64 / f64::from(PAIRS / burst * burst)
}

/// Cost of a touched page.
struct Touched {
    ns: f64,
    bytes: f64,
}

/// Touches a quarter of the memory of a machine of one node once, page by page, from one process; prints nanoseconds and
/// bytes per page.
fn touch_quarter(size: Bytes, rules: rules::variant::Variant) {
    let mut mm = Mm::new(&machine(1, size), rules, &settings());
    mm.thp.enabled = ThpEnabled::Never;
    let prices = prices();
    let mut counters = Counters::default();
    let pages = size.frames().0 / 4;
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let mut space = AddressSpace::new(&mut mm, &mut cx, MMAP_BASE).expect("there is memory");
    let range = space.mmap(&mut mm, &mut cx, pages).expect("there is room");
    let mut touch = Touch::pages(range, Access::Write);
    let before = resident_kib();
    let start = cpu_ns();
    // Bound: each step takes a fault at least. Steps of 2 us of virtual time, as the simulator's quantum makes them.
    loop {
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
        match touch.step(&mut mm, &mut space, &mut cx, Time(2_000_000)) {
            Step::More => {}
            Step::Block(wait) => panic!("nothing waits here, but for {wait:?}"),
            Step::Done(done) => break assert_eq!(done, FaultDone::Handled, "there is memory"),
        }
    }
    let span = cpu_ns() - start;
    let bytes = (resident_kib() - before) as f64 * 1024.0 / pages as f64;
    println!("{} {bytes}", span as f64 / pages as f64);
}

fn median_of(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    middle((0..runs).map(|_| run()).collect())
}

fn middle(figures: Vec<f64>) -> f64 {
    let figures = sorted(figures);
    figures[figures.len() / 2]
}

fn sorted(mut figures: Vec<f64>) -> Vec<f64> {
    figures.sort_by(f64::total_cmp);
    figures
}

/// CPU time of this thread so far.
fn cpu_ns() -> u64 {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("every thread has this clock");
    u64::try_from(now.num_nanoseconds()).expect("it starts at 0")
}

fn resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has one");
    line.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("the field is a number")
}
