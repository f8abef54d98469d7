//! Cost of giving a device more memory than a node has: two nodes of 32 GiB, and a guest that is advised to have huge pages and
//! is pinned page by page, as by VFIO (the storm of 2018). Says what it took, in virtual time and on this machine.
//!
//!     cargo bench -p sim --bench pinned
//!     cargo bench -p sim --bench pinned -- 30 34              # guests of 30 and 34 GiB
//!     cargo bench -p sim --bench pinned -- 34 v4.18+2         # by other rules
#![expect(clippy::print_stdout, reason = "a benchmark talks to a person")]

mod support;

use memory::{
    cost::{Prices, Work},
    event::Event,
};
use mm::{
    swap::{SwapMedium, SwapSpec},
    thp::{ThpEnabled, khugepaged::KhugepagedSettings},
};
use os::{Advice, MapSpec, Os};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, ThpDefrag},
    zone::{Settings, ZoneKind},
};
use sim::{Config, Sim};
use units::{Bytes, BytesPerSecond, CpuId, Frames, NodeId, Order, Pfn, Picos};

use support::{cpu_ns, no_entries};

const NODE: Bytes = Bytes::gib(32);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let mut sizes: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![30, 34, 38, 42];
    }
    let rules = arguments.iter().find(|argument| argument.starts_with('v')).map_or("v4.18", String::as_str);
    for size in sizes {
        let start = cpu_ns();
        let (time, finish, extra) =
            sim::simulate_with(&config(rules), sim::Options::default(), no_entries, async move |os| {
                pin(os, Bytes::gib(size)).await
            });
        let count = |event| finish.counters.get(event);
        println!(
            "{rules}, {size} GiB: {:.3} s; {:.1} s of CPU time (wanted: at most 60), {} steps, {} MiB at most; {}",
            time.0 as f64 / 1e12,
            (cpu_ns() - start) as f64 / 1e9,
            extra.steps,
            max_rss_mib(),
            [
                Event::AllocstallMovable,
                Event::PgscanDirect,
                Event::Pgrefill,
                Event::PgstealDirect,
                Event::Pgactivate,
                Event::ThpFaultAlloc,
                Event::ThpFaultFallback,
                Event::CompactStall,
                Event::SimCompactSkipped,
                Event::SimCompactDeferred,
            ]
            .map(|event| format!("{} {}", event.name(), count(event)))
            .join(", ")
        );
    }
}

async fn pin(os: Sim, len: Bytes) -> Picos {
    os.set_affinity(&[CpuId(0)]).await.expect("it is there");
    let range = os.mmap(len, MapSpec::Anonymous).await.expect("there is room");
    os.madvise(range, Advice::HugePage).await.expect("it is mapped");
    let start = os.now();
    os.pin(range).await.expect("there is memory");
    os.now().since(start)
}

fn config(rules: &str) -> Config {
    let frames = |size: Bytes| u32::try_from(size.frames().0).expect("few");
    let zone = |kind, start: Bytes, size| ZoneSpec::whole(kind, Pfn(frames(start)), frames(size));
    let low = Bytes::gib(2);
    let rest = Bytes(NODE.0 - low.0);
    let zones = [
        vec![zone(ZoneKind::Dma32, Bytes(0), low), zone(ZoneKind::Normal, low, rest)],
        vec![zone(ZoneKind::Normal, NODE, NODE)],
    ];
    let nodes = (0..2).zip(zones).map(|(id, zones)| NodeSpec {
        id: NodeId(id),
        cpus: (0..4).map(|cpu| CpuId(id * 4 + cpu)).collect(),
        distance: if id == 0 { vec![10, 21] } else { vec![21, 10] },
        zones,
    });
    let (base, patches) = variant::split_patches(rules).expect("a variant");
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).expect("some");
    Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: nodes.collect() },
        variant: variant::patched(base, &patches),
        settings: Settings::default(),
        thp_enabled: ThpEnabled::Madvise,
        use_zero_page: true,
        thp_defrag: ThpDefrag::Madvise,
        khugepaged: KhugepagedSettings::default(),
        // Round figures near those of machines/prices/generic.toml; no result is made of them.
        prices: Prices::new(|work| {
            Picos::from_nanos(match work {
                Work::Trap => 500,
                Work::ClearFrame => 280,
                Work::FolioScan => 215,
                Work::RmapWalk => 96,
                Work::PteScan | Work::PteStore | Work::ScanFrame => 1,
                _ => 25,
            })
        }),
        latency: memory::cost::Latency::default(),
        cores: Vec::new(),
        caches: Vec::new(),
        shared_core: 100,
        bandwidth: Vec::new(),
        swap: Some(SwapSpec {
            size: Bytes::gib(16),
            medium: SwapMedium::Disk { latency: Picos::from_micros(100), bandwidth },
        }),
        disk: mm::file::disk::DiskSpec::default(),
        cpus: 8,
        quantum: sim::QUANTUM,
        cap: Bytes::gib(60),
        seed: 1,
        held: Frames(0),
        system: None,
        host: None,
        reporting: None,
        balloon: None,
        shuffle: false,
    }
}

/// The most memory that this process has had.
fn max_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) / 1024
}
