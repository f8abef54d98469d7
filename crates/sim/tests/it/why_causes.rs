//! Each cause of time in the log of slow operations: a machine and a program where it is a part, and the fact that explains it.

use memory::{
    backing::{Discard, HostSpec},
    cost::Cause,
    fact::{Device, Fact, HintVerdict, Told},
};
use mm::{
    guest::reporting::ReportingSpec,
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use os::{Advice, Amount, MapSpec, Os, Pattern, Placement, VmRange};
use rules::{
    machine::{NodeSpec, ZoneSpec},
    variant,
    zone::ZoneKind,
};
use sim::{Config, GuestsOptions, Options, Sim, SlowOperation, SlowOperations, Story, Watched};
use units::{Bytes, BytesPerSecond, CpuId, NodeId, Order, Pfn, Picos, VirtAddr};

use crate::support::{self, no_entries};

/// A machine and a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Threads of a process store to more memory than there is, with huge pages, and swap to a disk.
    Pressure,
    /// Two tasks write files faster than the disk, force them to it, and read.
    Files,
    /// Khugepaged collapses ranges with holes.
    Collapse,
    /// Two guests need a host's memory in turns.
    Guests,
    /// A task faults on huge pages where free memory is in pieces, and compacts.
    Pieces,
    /// Threads on two nodes use huge pages together, under automatic NUMA balancing.
    Balancing,
}

const ALL: [Scenario; 6] =
    [Scenario::Pressure, Scenario::Files, Scenario::Collapse, Scenario::Guests, Scenario::Pieces, Scenario::Balancing];

/// How a cause is explained.
enum By {
    /// By a fact of the operation.
    Fact(Scenario, fn(&Fact) -> bool),
    /// By no fact: the reason.
    Nothing(&'static str),
    /// The cause is no part of any logged operation: the reason.
    NeverLogged(&'static str),
}

/// A wait for this cause, behind somebody.
fn is_wait(fact: &Fact, of: Cause) -> bool {
    matches!(fact, Fact::Waited { cause, behind: Some(_), .. } if cause == of.name())
}

/// Spinning for this lock, behind a task that is named.
fn is_spin(fact: &Fact, of: Cause) -> bool {
    matches!(fact, Fact::SpinWait { lock, by: Some(_), .. } if lock == of.name())
}

/// The table. A cause without an arm does not compile.
fn explained_by(cause: Cause) -> By {
    use Scenario::{Balancing, Collapse, Files, Guests, Pieces, Pressure};
    const LEAVES: &str = "an operation is in the log until it goes on: user code and hinting faults are outside of it";
    match cause {
        Cause::User | Cause::RemoteMemory | Cause::Balancing => By::NeverLogged(LEAVES),
        Cause::Trap => By::Nothing("a fault that has slept enters the kernel once more: one price"),
        Cause::PageTable => By::Nothing("entries are read and written in proportion to the pages of other facts"),
        Cause::File => {
            By::Nothing("pages of the call, in proportion to its length; its waits have causes of their own")
        }
        Cause::ZoneLock => By::Fact(Pressure, |fact| is_spin(fact, Cause::ZoneLock)),
        Cause::LruLock => By::Fact(Pressure, |fact| is_spin(fact, Cause::LruLock)),
        Cause::MmapLock => By::Fact(Pressure, |fact| is_wait(fact, Cause::MmapLock)),
        Cause::Allocator => By::Fact(Pressure, |fact| matches!(fact, Fact::PassedOver { .. })),
        Cause::Clear => By::Fact(Collapse, |fact| matches!(fact, Fact::Cleared { pages: 1.., .. })),
        Cause::Copy => By::Fact(Collapse, |fact| matches!(fact, Fact::Copied { pages: 1.., .. })),
        Cause::CompactScan => By::Fact(Pieces, |fact| matches!(fact, Fact::CompactionEnd { migrate_scanned: 1.., .. })),
        Cause::Migrate => By::Fact(Pieces, |fact| matches!(fact, Fact::CompactionEnd { moved: 1.., .. })),
        Cause::FolioLock => By::Fact(Balancing, |fact| is_wait(fact, Cause::FolioLock)),
        Cause::Ipi => By::Fact(Pressure, |fact| matches!(fact, Fact::Shootdown { .. } | Fact::Interrupted { .. })),
        Cause::Bandwidth => By::Fact(Pressure, |fact| matches!(fact, Fact::MemoryBusy { .. })),
        Cause::ReclaimScan => By::Fact(Pressure, |fact| matches!(fact, Fact::ReclaimEnd { scanned: 1.., .. })),
        Cause::Swap => {
            By::Fact(Pressure, |fact| matches!(fact, Fact::DeviceWait { device: Device::Swap, request: Some(_), .. }))
        }
        Cause::Disk => {
            By::Fact(Files, |fact| matches!(fact, Fact::DeviceWait { device: Device::Disk, request: Some(_), .. }))
        }
        Cause::Throttle => By::Fact(Files, |fact| matches!(fact, Fact::Throttled { .. })),
        Cause::RunQueue => By::Fact(Pressure, |fact| is_wait(fact, Cause::RunQueue)),
        Cause::Host => By::Fact(Guests, |fact| is_wait(fact, Cause::Host)),
    }
}

fn swap() -> SwapSpec {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    SwapSpec { size: Bytes::mib(128), medium: SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth } }
}

fn run<T: 'static>(config: &Config, why: Vec<Watched>, body: impl AsyncFnOnce(Sim) -> T + 'static) -> Logged {
    let (_, _, extra) = sim::simulate_with(config, Options { why, ..Options::default() }, no_entries, body);
    (extra.slow_operations, extra.why)
}

type Logged = (SlowOperations, Vec<Story>);

fn pressure(why: Vec<Watched>) -> Logged {
    let bandwidth = vec![(NodeId(0), BytesPerSecond::new(Bytes::mib(2000)).unwrap())];
    let config = Config { swap: Some(swap()), thp_enabled: ThpEnabled::Always, bandwidth, ..support::machine(3, 8192) };
    run(&config, why, async |os: Sim| {
        let fill = async move |os: Sim| {
            for _ in 0..3 {
                let range = os.mmap(Bytes::mib(14), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                os.load(range, Bytes::PAGE).await.unwrap();
                os.munmap(range).await.unwrap();
            }
        };
        let others: Vec<_> = (1..4).map(|n| os.spawn(Placement::Spread(n), fill)).collect();
        fill(os).await;
        for other in others {
            other.await.unwrap();
        }
    })
}

fn files(why: Vec<Watched>) -> Logged {
    run(&support::machine(2, 8192), why, async |os: Sim| {
        let write = async move |os: Sim, name: &'static str| {
            let file = os.create(name).await.unwrap();
            for at in 0..24 {
                os.write(file, Bytes::mib(at), Bytes::mib(1)).await.unwrap();
            }
            os.fsync(file).await.unwrap();
            os.read(file, Bytes(0), Bytes::mib(24)).await.unwrap();
        };
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| write(os, "b").await);
        write(os, "a").await;
        other.await.unwrap();
    })
}

fn collapse(why: Vec<Watched>) -> Logged {
    let mut config = Config { thp_enabled: ThpEnabled::Madvise, ..support::machine(2, 16384) };
    config.khugepaged.scan_sleep = Picos::from_micros(10_000);
    run(&config, why, async |os: Sim| {
        let range = os.mmap(Bytes::mib(8), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes(2 * Bytes::PAGE.0)).await.unwrap();
        os.madvise(range, Advice::HugePage).await.unwrap();
        os.sleep(Picos::from_micros(200_000)).await;
    })
}

fn guests(why: Vec<Watched>) -> Logged {
    let medium = SwapMedium::Memory;
    let swap = Some(SwapSpec { size: Bytes::mib(256), medium });
    let cap = Bytes::gib(1);
    let host = Config { swap, cap, thp_enabled: ThpEnabled::Madvise, ..support::machine(3, 32 * 256) };
    let guest = || {
        let backed = Some(HostSpec { page: Order::HUGE, discard: Discard::DontNeed });
        let reporting = Some(ReportingSpec { order: Order(3), delay: Picos::from_micros(2_000) });
        Config { host: backed, reporting, cap: Bytes::mib(64), ..support::machine(1, 16 * 256) }
    };
    let options = GuestsOptions { why, ..GuestsOptions::default() };
    let body = async |os: Sim, _: usize| {
        for _ in 0..3 {
            let file = os.create("a").await.unwrap();
            os.write(file, Bytes(0), Bytes::mib(6)).await.unwrap();
            let range = os.mmap(Bytes::mib(10), MapSpec::Anonymous).await.unwrap();
            os.fill(range).await.unwrap();
            os.munmap(range).await.unwrap();
            os.unlink("a").await.unwrap();
            os.sleep(Picos::from_micros(40_000)).await;
        }
    };
    let (_, finish) = sim::simulate_guests_with(&host, &[guest(), guest()], options, no_entries, body).unwrap();
    (finish.slow_operations, finish.why)
}

fn pieces(why: Vec<Watched>) -> Logged {
    let config = Config { thp_enabled: ThpEnabled::Madvise, ..support::machine(1, 16384) };
    run(&config, why, async |os: Sim| {
        const PIECE: Bytes = Bytes::kib(16);
        let range = os.mmap(Bytes::mib(48), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let piece = move |n: u64| VmRange { start: VirtAddr(range.start.0 + n * PIECE.0), len: PIECE };
        let pieces = range.len.0 / PIECE.0;
        for n in (0..pieces).step_by(2) {
            os.munmap(piece(n)).await.unwrap();
        }
        let huge = os.mmap(Bytes::mib(24), MapSpec::Anonymous).await.unwrap();
        os.madvise(huge, Advice::HugePage).await.unwrap();
        os.store(huge, Bytes::HUGE_PAGE).await.unwrap();
    })
}

fn balancing(why: Vec<Watched>) -> Logged {
    const FRAMES: u32 = 16384;
    let mut config = support::machine(4, FRAMES);
    let node = |id: u32| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(id * 2), CpuId(id * 2 + 1)],
        distance: (0..2_u32).map(|to| if to == id { 10 } else { 20 }).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
    };
    config.machine.nodes = (0..2).map(node).collect();
    config.caches = (0..2).map(|id| vec![CpuId(id * 2), CpuId(id * 2 + 1)]).collect();
    let (near, far) = (Picos(80_000), Picos(140_000));
    config.latency = memory::cost::Latency { load: vec![vec![near, far], vec![far, near]], ..config.latency };
    config.variant = *variant::named("v3.9");
    config.thp_enabled = ThpEnabled::Always;
    config.settings.set("kernel.numa_balancing", "1").unwrap();
    run(&config, why, async |os: Sim| {
        let range = os.mmap(Bytes::mib(18), MapSpec::Anonymous).await.unwrap();
        let range = range.aligned_part(Bytes::HUGE_PAGE, Bytes::mib(16));
        os.store(range, Bytes::PAGE).await.unwrap();
        // A page in the CPU's batch of new pages cannot be moved: base pages take the huge ones out of it.
        let others = os.mmap(Bytes::kib(128), MapSpec::Anonymous).await.unwrap();
        os.store(others, Bytes::PAGE).await.unwrap();
        // No page hints before tasks of both nodes have run (`first_nid`, 3.8 to 3.12).
        os.access(range, Pattern::Sweep, Amount::Time(Picos::from_secs(2))).await.unwrap();
        let use_it = async move |os: Sim| {
            os.access(range, Pattern::Sweep, Amount::Time(Picos::from_secs(20))).await.unwrap();
        };
        let others: Vec<_> = (2..4).map(|n| os.spawn(Placement::Spread(n), use_it)).collect();
        for other in others {
            other.await.unwrap();
        }
    })
}

/// The operations of a scenario, each with its facts.
fn operations(scenario: Scenario) -> Vec<(SlowOperation, Story)> {
    let run = match scenario {
        Scenario::Pressure => pressure,
        Scenario::Files => files,
        Scenario::Collapse => collapse,
        Scenario::Guests => guests,
        Scenario::Pieces => pieces,
        Scenario::Balancing => balancing,
    };
    let (log, _) = run(Vec::new());
    let watched = |operation: &SlowOperation| {
        let (task, start) = (operation.task, operation.start);
        Watched { task, start, end: start + operation.spent.total() }
    };
    let (again, stories) = run(log.longest.iter().map(watched).collect());
    assert_eq!(again, log, "facts change nothing in {scenario:?}");
    assert_eq!(stories.len(), log.longest.len());
    log.longest.into_iter().zip(stories).collect()
}

#[test]
fn every_cause_of_time_is_explained_by_a_fact() {
    let known: Vec<_> = ALL.iter().map(|scenario| (*scenario, operations(*scenario))).collect();
    let with = |cause: Cause, among: &dyn Fn(Scenario) -> bool| {
        let of_scenarios = known.iter().filter(|(scenario, _)| among(*scenario)).flat_map(|(_, of)| of);
        of_scenarios.filter(|(operation, _)| operation.spent.on(cause) > Picos(0)).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for cause in Cause::ALL {
        match explained_by(*cause) {
            By::Fact(scenario, is_it) => {
                let all = with(*cause, &|of| of == scenario);
                let explained = all.iter().filter(|(_, story)| story.facts.iter().any(|told| is_it(&told.fact)));
                let (count, of) = (explained.count(), all.len());
                wrong.extend((count == 0).then(|| format!("{}: none of {of} of {scenario:?}", cause.name())));
            }
            By::Nothing(reason) => assert!(!reason.is_empty()),
            By::NeverLogged(reason) => {
                let of = with(*cause, &|_| true);
                wrong.extend(of.first().map(|(operation, _)| format!("{}: {operation:?}, but {reason}", cause.name())));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // A hinting fault that waits for the move of its page says why the page moves.
    let hints = |told: &Told| matches!(told.fact, Fact::HintFault { hinted: HintVerdict::Moves, .. });
    let of_balancing = known.iter().filter(|(scenario, _)| *scenario == Scenario::Balancing).flat_map(|(_, of)| of);
    assert!(of_balancing.filter(|(_, story)| story.facts.iter().any(hints)).count() > 0);
}

#[test]
fn parts_of_every_operation_sum_to_its_time_by_the_clock() {
    for scenario in ALL {
        for (operation, story) in operations(scenario) {
            assert_eq!(story.is_whole, [true; 2], "{operation:?} of {scenario:?}");
            let end = operation.start + operation.spent.total();
            // Own facts of work and of waits lie within the operation.
            for told in story.facts.iter().filter(|told| told.by == operation.task) {
                let is_within = (operation.start..=end).contains(&told.at);
                let is_around = matches!(
                    told.fact,
                    Fact::Request { .. }
                        | Fact::PassedOver { .. }
                        | Fact::SlowPath { .. }
                        | Fact::WakeupKswapd { .. }
                        | Fact::SpinWait { .. }
                        | Fact::HintFault { .. }
                        | Fact::ThpFallback
                        | Fact::SlowPathEnd { .. }
                );
                assert!(is_within || is_around, "{told:?} of {operation:?} of {scenario:?}");
            }
        }
    }
}
