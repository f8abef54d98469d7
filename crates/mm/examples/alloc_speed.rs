//! How long the allocator takes, in CPU time: one order-0 pair, a fresh 1 TiB machine, and what it holds.
//!
//!     cargo run --release -p pagelab-mm --example alloc_speed
#![expect(clippy::print_stdout, reason = "an example talks to a person")]

extern crate pagelab_mm as mm;

use std::fs;

use mm::{
    AllocRequest, MachineSpec, Mm, NodeSpec, Settings, ZoneKind, ZoneSpec,
    cost::{Cx, Prices, Work},
    event::Counters,
    variant::named,
};
use units::{Bytes, CpuId, NodeId, Order, Pfn, Picos, Time};

const PAIRS: u32 = 5_000_000;
const ROUNDS: usize = 7;

fn main() {
    let before = resident_kib();
    let start = cpu_ns();
    let mm = Mm::new(&machine(8, Bytes::gib(128)), *named("v6.1"), &Settings::default());
    let (span, held) = (cpu_ns() - start, resident_kib() - before);
    println!("1 TiB in 8 nodes: {:.1} ms, {:.1} MiB resident", span as f64 / 1e6, held as f64 / 1024.0);
    drop(mm);
    for (name, size) in [("4 GiB", Bytes::gib(4)), ("1 TiB", Bytes::gib(1024))] {
        for rules in ["v4.1", "v6.1"] {
            let mut mm =
                Mm::new(&machine(1, size), *named(rules), &Settings { min_free_kbytes: 65536, ..Settings::default() });
            let hot = median(|| pair_of(&mut mm, 1));
            let batched = median(|| pair_of(&mut mm, 4096));
            let touch = touch_quarter(&mut mm);
            println!(
                "{name}, {rules}: {hot:.1} ns per pair, {batched:.1} ns in bursts of 4096, {touch:.1} ns per frame of a quarter"
            );
        }
    }
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

/// Nanoseconds per frame allocated and freed, `burst` at a time.
fn pair_of(mm: &mut Mm, burst: u32) -> f64 {
    let prices = Prices::new(|work: Work| Picos(1 + work as u64));
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    let mut taken = Vec::with_capacity(burst as usize);
    let start = cpu_ns();
    for _ in 0..PAIRS / burst {
        for _ in 0..burst {
            taken.push(mm.alloc(&mut cx, &request).expect("there is memory"));
        }
        while let Some(pfn) = taken.pop() {
            mm.free(&mut cx, pfn, Order::BASE);
        }
    }
    (cpu_ns() - start) as f64 / f64::from(PAIRS / burst * burst)
}

/// Nanoseconds per frame to allocate a quarter of the memory, frame by frame.
fn touch_quarter(mm: &mut Mm) -> f64 {
    let prices = Prices::free();
    let mut counters = Counters::default();
    let mut cx = Cx::new(CpuId(0), Time(0), &prices, &mut counters);
    let request = AllocRequest::gfp_highuser_movable(NodeId(0));
    // No more than 4 GiB of table for this machine to hold.
    let frames = (mm.frames.len() / 4).min(1 << 26);
    let start = cpu_ns();
    for _ in 0..frames {
        assert!(mm.alloc(&mut cx, &request).is_some(), "there is memory");
    }
    (cpu_ns() - start) as f64 / f64::from(frames)
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut spans: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    spans.sort_by(f64::total_cmp);
    spans[ROUNDS / 2]
}

/// CPU time of this thread so far (/proc/[pid]/schedstat, Documentation/scheduler/sched-stats.rst).
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts CPU time");
    text.split_whitespace().next().and_then(|field| field.parse().ok()).expect("the first field is a number")
}

fn resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has one");
    line.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("the field is a number")
}
