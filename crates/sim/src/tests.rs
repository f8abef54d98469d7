//! Runs in which every frame is asked whose it is after every step.

use mm::{
    MachineSpec, NodeSpec, ZoneKind, ZoneSpec,
    cost::{Cause, Work},
    event::Event,
    variant,
};
use os::{MapSpec, Os, Placement};
use units::{NodeId, Order, Pfn};

use super::*;

/// One node of 8 MiB and two CPUs, on which everything takes some time.
fn config(thp_enabled: ThpEnabled) -> Config {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 2048);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
    Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] },
        variant: *variant::named("v6.7"),
        settings: Settings { min_free_kbytes: 64, ..Settings::default() },
        thp_enabled,
        use_zero_page: true,
        prices: Prices::new(|work| if work == Work::UserTouch { Picos(0) } else { Picos::from_nanos(50) }),
        bandwidth: Vec::new(),
        swap: None,
        cpus: 2,
        cap: Bytes::mib(6),
        seed: 1,
        held: Frames(0),
    }
}

fn no_entries(name: &'static str, _: Vec<u8>) -> EntryFuture {
    panic!("nobody spawns a process, not even {name}")
}

/// Two threads store to the same pages at once; the first also unmaps some of them, and nobody unmaps the rest.
fn storm(thp_enabled: ThpEnabled) -> Finish {
    let (result, finish) = simulate(&config(thp_enabled), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| os.store(range, Bytes::PAGE).await);
        os.store(range, Bytes::PAGE).await.unwrap();
        other.await.unwrap().unwrap();
        let part = os::VmRange { len: Bytes::mib(1), ..range };
        os.munmap(part).await
    });
    assert_eq!(result, Ok(()));
    finish
}

#[test]
fn every_frame_is_somebodys_after_every_step() {
    let huge = storm(ThpEnabled::Always);
    assert!(huge.counters.get(Event::ThpFaultAlloc) > 0);
    let base = storm(ThpEnabled::Never);
    assert!(base.counters.get(Event::Pgfault) >= 1024);
    for finish in [huge, base] {
        let zones = [Event::PgallocDma, Event::PgallocDma32, Event::PgallocNormal, Event::PgallocMovable];
        let allocated: u64 = zones.into_iter().map(|event| finish.counters.get(event)).sum();
        // The CPU's slabs stay, and what the other CPU has in its batch of new folios until that is drained.
        let slabs = 1 + 8;
        let kept = allocated - finish.counters.get(Event::Pgfree);
        let batch = variant::named("v6.7").lru_batch;
        assert!((slabs..slabs + batch).contains(&kept), "the end of the process gives back all but {kept}");
    }
}

/// Two threads store again and again to more memory than there is.
fn swapping() -> (u64, Finish) {
    let swap = SwapSpec {
        size: Bytes::mib(16),
        latency: Picos::from_micros(80),
        bandwidth: BytesPerSecond::new(Bytes::mib(400)).unwrap(),
    };
    let config = Config { swap: Some(swap), cap: Bytes::mib(12), ..config(ThpEnabled::Never) };
    let (result, finish) = simulate(&config, no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(10), MapSpec::Anonymous).await.unwrap();
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| os.store(range, Bytes::PAGE).await);
        os.store(range, Bytes::PAGE).await.unwrap();
        other.await.unwrap().unwrap();
        // Its beginning is gone by now.
        os.store(range, Bytes::PAGE).await.unwrap();
        let usage = os.rusage().await.unwrap();
        os.munmap(range).await.unwrap();
        usage.major_faults
    });
    (result, finish)
}

#[test]
fn more_memory_than_there_is_goes_to_swap_and_comes_back() {
    let (major, finish) = swapping();
    let count = |event| finish.counters.get(event);
    assert!(count(Event::Pswpout) > 512 && count(Event::Pswpin) > 0, "{:?}", finish.counters);
    assert!(major > 0 && major <= count(Event::Pgmajfault));
    assert!(count(Event::PgstealKswapd) > 0);
    let stolen = count(Event::PgstealKswapd) + count(Event::PgstealDirect);
    assert!(stolen <= count(Event::PgscanKswapd) + count(Event::PgscanDirect));
    assert!(finish.times.waiting.on(Cause::Swap) > Picos(0), "major faults wait for the device");
    assert!(finish.times.cpu.on(Cause::ReclaimScan) > Picos(0));
    assert_eq!(swapping(), (major, finish));
}
