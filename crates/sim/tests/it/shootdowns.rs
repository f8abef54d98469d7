//! Threads of one process interrupt each other when they unmap; processes do not.

use memory::{
    cost::{Prices, Work},
    event::Event,
};
use os::{MapSpec, Os, Placement};
use rules::{variant, zone::Settings};
use sim::{Config, Sim, simulate};
use units::{Bytes, BytesPerSecond, NodeId, Picos};

use crate::support::{self, no_entries};

const RECEIVE: Picos = Picos::from_micros(100);

/// Two CPUs, 64 MiB.
fn machine(rules: &str, bandwidth: Option<BytesPerSecond>) -> Config {
    Config {
        variant: *variant::named(rules),
        settings: Settings { min_free_kbytes: 1024, ..Settings::default() },
        prices: Prices::new(|work| if work == Work::IpiReceive { RECEIVE } else { Picos::from_nanos(200) }),
        bandwidth: bandwidth.map(|limit| (NodeId(0), limit)).into_iter().collect(),
        swap: None,
        disk: mm::file::disk::DiskSpec::default(),
        cap: Bytes::mib(32),
        ..support::machine(2, 16 << 10)
    }
}

/// A thread stores to each page of 16 MiB, while another one does so to 64 KiB time and again, and unmaps them each time
/// if it `unmaps`. What the first one's kernel time came to, and how often a CPU was interrupted.
fn storm(rules: &str, unmaps: bool, bandwidth: Option<BytesPerSecond>) -> (Picos, u64) {
    let (system, finish) = simulate(&machine(rules, bandwidth), no_entries, async move |os: Sim| {
        let range = os.mmap(Bytes::mib(16), MapSpec::Anonymous).await.unwrap();
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| {
            for _ in 0..10 {
                let range = os.mmap(Bytes::kib(64), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                if unmaps {
                    os.munmap(range).await.unwrap();
                }
            }
        });
        os.store(range, Bytes::PAGE).await.unwrap();
        let system = os.rusage().await.unwrap().system;
        other.await.unwrap();
        system
    });
    (system, finish.counters.get(Event::SimTlbRemoteFlushReceived))
}

#[test]
fn an_interrupt_takes_the_receivers_time() {
    // Where faults lock their VMA, they do not sleep while somebody else unmaps.
    let (alone, none) = storm("v6.4", false, None);
    let (interrupted, some) = storm("v6.4", true, None);
    assert_eq!(none, 0, "who unmaps nothing flushes nothing");
    assert!(some >= 5, "{some} interrupts");
    assert!(interrupted > alone + Picos(RECEIVE.0 * (some - 1)), "{some} interrupts: {interrupted} after {alone}");
}

#[test]
fn a_limit_of_a_node_reaches_its_cpus() {
    // A clear takes 200 ns alone, 4,096 bytes; two at once want 41 GB/s, and of 1 GiB/s a page takes 3.8 us.
    let limit = |gib| BytesPerSecond::new(Bytes::gib(gib));
    let (free, _) = storm("v6.1", false, None);
    // A fault takes 3 us here, so that a CPU may be further ahead than the node remembers what it has left.
    let wide = storm("v6.1", false, limit(100)).0;
    assert!(wide >= free && wide.0 - free.0 < free.0 / 1000, "{wide} instead of {free}");
    assert!(storm("v6.1", false, limit(1)).0 > free + free);
}
