//! Cost of letting programs go through their memory for a long time: 48 CPUs on four nodes, 1,200 s of virtual time, 48
//! threads that sweep over 3 GiB each, and user code made to fault at 256 MiB a second, as automatic NUMA balancing does it. Base
//! pages are the hard case: each of them is a fault of its own.
//!
//!     cargo bench -p sim --bench access
//!     cargo bench -p sim --bench access -- 120 Sweep base "in all"     # of shorter time, and only cases of these names
//!
//! With a limit on what nodes give, the sweeps of each node share its memory.
#![expect(clippy::print_stdout, reason = "a benchmark talks to a person")]

mod support;

use memory::{
    cost::{Latency, Prices, Work},
    event::Event,
};
use mm::thp::{ThpEnabled, khugepaged::KhugepagedSettings};
use os::{Amount, Barrier, MapSpec, Os, Pattern, Placement, VmRange};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, ThpDefrag},
    zone::{Settings, ZoneKind},
};
use sim::{Config, Sim};
use units::{Bytes, BytesPerSecond, CpuId, Frames, NodeId, Order, Pfn, Picos};

use support::{cpu_ns, no_entries};

const NODES: u32 = 4;
const CPUS: u32 = 48;
const EACH: Bytes = Bytes::gib(3);
const SCAN: Bytes = Bytes::mib(256);

/// The limit of a node's memory, where nodes have one: two thirds of what its twelve CPUs want.
const LIMIT: u64 = 72_000_000_000;

/// The task that scans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// One process: one of its threads a second, as the kernel has it.
    Process,
    /// Every thread a second: each is a process.
    Thread,
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1200);
    let wanted = |case: &str| {
        std::env::args()
            .skip(1)
            .all(|argument| argument.starts_with('-') || argument.parse::<u64>().is_ok() || case.contains(&argument))
    };
    for (pages, thp) in [("base pages", ThpEnabled::Never), ("huge pages", ThpEnabled::Always)] {
        for pattern in [Pattern::Sweep, Pattern::Random] {
            for (scan, per) in [(Scan::Process, "in all"), (Scan::Thread, "each")] {
                let case = format!("{pattern:?}, {pages}, 256 MiB a second scanned {per}");
                if !wanted(&case) {
                    continue;
                }
                report(&Config { thp_enabled: thp, ..config() }, &case, (seconds, pattern, scan));
            }
            let case = format!("{pattern:?}, {pages}, limits on, 256 MiB a second scanned in all");
            if pattern == Pattern::Sweep && wanted(&case) {
                let limit = BytesPerSecond::new(Bytes(LIMIT)).expect("more than nothing");
                let bandwidth = (0..NODES).map(|node| (NodeId(node), limit)).collect();
                let config = Config { thp_enabled: thp, bandwidth, ..config() };
                report(&config, &case, (seconds, pattern, Scan::Process));
            }
        }
    }
}

/// Runs a case, and prints what it took.
fn report(config: &Config, case: &str, (seconds, pattern, scan): (u64, Pattern, Scan)) {
    let start = cpu_ns();
    let (accesses, finish, extra) = sim::simulate_with(config, sim::Options::default(), no_entries, async move |os| {
        run(os, seconds, pattern, scan).await
    });
    println!(
        "{seconds} s of {CPUS} threads over 3 GiB each, {case}: \
         {:.1} s of CPU time (wanted: at most 40 for 1200); {accesses} accesses, {} hinting faults, {} steps",
        (cpu_ns() - start) as f64 / 1e9,
        finish.counters.get(Event::NumaHintFaults),
        extra.steps
    );
}

/// All threads fill their memory, meet, and go through it; says how many accesses that was.
async fn run(os: Sim, seconds: u64, pattern: Pattern, scan: Scan) -> u64 {
    let barrier = os.barrier(CPUS).await.expect("barriers are free");
    let mut accesses = 0;
    if scan == Scan::Process {
        let body = |number| async move |os| thread(os, number, (seconds, pattern, scan), barrier).await;
        let threads: Vec<_> = (0..CPUS).map(|number| os.spawn(Placement::Spread(number), body(number))).collect();
        for thread in threads {
            accesses += thread.await.expect("nobody dies");
        }
        return accesses;
    }
    let mut processes = Vec::new();
    for number in 0..CPUS {
        let body = async move |os| thread(os, number, (seconds, pattern, scan), barrier).await;
        processes.push(os.fork(Placement::Spread(number), body).await.expect("there is room"));
    }
    for process in processes {
        accesses += process.await.expect("nobody dies");
    }
    accesses
}

async fn thread(os: Sim, number: u32, (seconds, pattern, scan): (u64, Pattern, Scan), barrier: Barrier) -> u64 {
    let range = os.mmap(EACH, MapSpec::Anonymous).await.expect("there is room");
    os.store(range, Bytes::PAGE).await.expect("there is memory");
    os.arrive(barrier).await.expect("all come");
    let (mut accesses, mut scans) = (0, 0);
    for second in 0..seconds {
        if scan == Scan::Thread || second % u64::from(CPUS) == u64::from(number) {
            os.hint(part(range, scans)).await.expect("it is mapped");
            scans += 1;
        }
        let done = os.access(range, pattern, Amount::Time(Picos::from_secs(1))).await.expect("it is mapped");
        accesses += done.accesses;
    }
    accesses
}

/// The part of the range that the n-th scan looks at.
fn part(range: VmRange, n: u64) -> VmRange {
    range.part(Bytes(n % (EACH.0 / SCAN.0) * SCAN.0), SCAN)
}

fn config() -> Config {
    let frames = u32::try_from(Bytes::gib(40).frames().0).expect("few");
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: (0..CPUS).filter(|cpu| cpu % NODES == id).map(CpuId).collect(),
        distance: (0..NODES).map(|to| if to == id { 10 } else { 21 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * frames), frames)],
    };
    let by_place = |own: u64, other: u64| {
        let row = |from| (0..NODES).map(|to| Picos(if to == from { own } else { other })).collect();
        (0..NODES).map(row).collect()
    };
    Config {
        machine: MachineSpec {
            pageblock_order: Order::HUGE,
            max_order: Order(10),
            nodes: (0..NODES).map(node).collect(),
        },
        variant: *variant::named("v6.1"),
        settings: Settings::default(),
        thp_enabled: ThpEnabled::Never,
        use_zero_page: true,
        thp_defrag: ThpDefrag::Madvise,
        khugepaged: KhugepagedSettings::default(),
        // Round figures of today's machines; no result is made of them.
        prices: Prices::new(|work| Picos::from_nanos(if work == Work::Trap { 500 } else { 20 })),
        latency: Latency { load: by_place(135_000, 198_000), line: by_place(7_000, 12_000), ..Latency::default() },
        cores: Vec::new(),
        caches: Vec::new(),
        shared_core: 100,
        bandwidth: Vec::new(),
        swap: None,
        disk: mm::file::disk::DiskSpec::default(),
        cpus: usize::try_from(CPUS).expect("few"),
        quantum: sim::QUANTUM,
        cap: Bytes::gib(160),
        seed: 1,
        held: Frames(0),
        system: None,
        host: None,
        reporting: None,
        balloon: None,
        shuffle: false,
    }
}
