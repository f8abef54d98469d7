//! Threads of one process interrupt each other when they unmap; processes do not.

use mm::{
    MachineSpec, NodeSpec, Settings, ZoneKind, ZoneSpec,
    cost::{Prices, Work},
    event::Event,
    thp::ThpEnabled,
    variant,
};
use os::{MapSpec, Os, Placement};
use pagelab_sim::{Config, EntryFuture, Sim, simulate};
use units::{Bytes, BytesPerSecond, CpuId, Frames, NodeId, Order, Pfn, Picos};

const RECEIVE: Picos = Picos::from_micros(100);

/// Two CPUs, 64 MiB.
fn machine(bandwidth: Option<BytesPerSecond>) -> Config {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 16 << 10);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
    Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] },
        variant: *variant::named("v6.1"),
        settings: Settings { min_free_kbytes: 1024, ..Settings::default() },
        thp_enabled: ThpEnabled::Never,
        use_zero_page: true,
        prices: Prices::new(|work| if work == Work::IpiReceive { RECEIVE } else { Picos::from_nanos(200) }),
        bandwidth: bandwidth.map(|limit| (NodeId(0), limit)).into_iter().collect(),
        cpus: 2,
        cap: Bytes::mib(32),
        seed: 1,
        held: Frames(0),
    }
}

fn no_entries(name: &'static str, _: Vec<u8>) -> EntryFuture {
    panic!("nobody spawns a process, not even {name}")
}

/// Two threads map, store and unmap 1 MiB each, ten times; the second unmaps only when `both` do. What the first one's
/// kernel time came to, and the CPUs that were interrupted.
fn storm(both: bool, bandwidth: Option<BytesPerSecond>) -> (Picos, u64) {
    let worker = async |os: Sim, unmaps: bool| {
        for _ in 0..10 {
            let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            if unmaps {
                os.munmap(range).await.unwrap();
            }
        }
        os.rusage().await.unwrap().system
    };
    let (system, finish) = simulate(&machine(bandwidth), no_entries, async move |os: Sim| {
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| worker(os, both).await);
        let system = worker(os, false).await;
        other.await.unwrap();
        system
    });
    (system, finish.counters.get(Event::SimTlbRemoteFlushReceived))
}

#[test]
fn an_interrupt_takes_the_receivers_time() {
    let (alone, none) = storm(false, None);
    let (interrupted, some) = storm(true, None);
    assert_eq!(none, 0, "who unmaps nothing flushes nothing");
    assert!(some > 0);
    assert!(interrupted > alone + RECEIVE, "{some} interrupts: {interrupted} after {alone}");
}

#[test]
fn a_limit_of_a_node_reaches_its_cpus() {
    // A clear takes 200 ns alone, 4096 bytes; two at once want 41 GB/s.
    let limit = |gib| BytesPerSecond::new(Bytes::gib(gib));
    let (free, _) = storm(false, None);
    assert_eq!(storm(false, limit(100)).0, free);
    assert!(storm(false, limit(1)).0 > free + free);
}
