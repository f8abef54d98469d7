//! Effects of a seed on a run, and what it does not change.

use mm::{
    MachineSpec, NodeSpec, Settings, ZoneKind, ZoneSpec,
    cost::{Prices, Work},
    event::Event,
    khugepaged::KhugepagedSettings,
    thp::{ThpDefrag, ThpEnabled},
    variant,
};
use pagelab_sim::{Config, EntryFuture, Finish, simulate};
use units::{Bytes, CpuId, Frames, NodeId, Order, Pfn, Picos};

fn no_entries(name: &'static str, _: Vec<u8>) -> EntryFuture {
    Box::pin(async move { Err(format!("no entry {name}")) })
}

/// A run in which nothing but init does anything.
fn run(seed: u64, held: u64) -> Finish {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192);
    let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0), CpuId(1)], distance: vec![10], zones: vec![zone] };
    let config = Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] },
        variant: *variant::named("v6.1"),
        settings: Settings::default(),
        thp_enabled: ThpEnabled::Always,
        use_zero_page: true,
        thp_defrag: ThpDefrag::Madvise,
        khugepaged: KhugepagedSettings::default(),
        prices: Prices::new(|work| Picos(if work == Work::Trap { 1000 } else { 1 })),
        cores: Vec::new(),
        caches: Vec::new(),
        shared_core: 100,
        latency: mm::cost::Latency::default(),
        bandwidth: Vec::new(),
        swap: None,
        disk: mm::disk::DiskSpec::default(),
        cpus: 2,
        quantum: pagelab_sim::QUANTUM,
        cap: Bytes::mib(16),
        seed,
        held: Frames(held),
        system: None,
        host: None,
        reporting: None,
        balloon: None,
        shuffle: false,
    };
    simulate(&config, no_entries, async |_| ()).1
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    assert_eq!(run(1, 0), run(1, 0));
    assert_ne!(run(1, 0).hash, run(2, 0).hash, "clocks start elsewhere");
    assert_eq!(run(1, 0).counters, run(2, 0).counters, "nothing else is drawn");
}

#[test]
fn init_takes_what_it_holds_in_base_pages_before_anything_else() {
    let (none, some) = (run(1, 0), run(1, 700));
    let more = |event| some.counters.get(event) - none.counters.get(event);
    assert_eq!(more(Event::Pgfault), 700);
    assert_eq!(more(Event::ThpFaultAlloc), 0);
    assert_ne!(none.hash, some.hash);
}

#[test]
#[should_panic(expected = "the machine has not the 9000 frames that init holds")]
fn a_machine_that_is_too_small_says_so() {
    run(1, 9000);
}
