//! Runs in which every frame is asked whose it is after every step.

use memory::{
    cost::{Cause, Work},
    event::Event,
};
use mm::swap::SwapMedium;
use os::{MapSpec, Os, Placement, VmRange};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant,
    zone::ZoneKind,
};
use units::{BytesPerSecond, NodeId, Order, Pfn, Time};

use super::*;
use crate::sched::Topology;

mod files;
mod guests;
mod khugepaged;
mod livelock;
mod oom;
mod programs;
mod slab;
mod tags;

/// A world by the rules of a version, with nobody in it, whose CPUs share these caches.
pub(crate) fn world_of(rules: &str, caches: Vec<Vec<usize>>) -> World {
    let cpus = caches.iter().map(Vec::len).sum();
    let mut config = Config { variant: *variant::named(rules), cpus, ..config(ThpEnabled::Never) };
    config.machine.nodes[0].cpus = (0..).take(cpus).map(CpuId).collect();
    let mut world = crate::fresh(&config);
    world.set_domains(&Topology { caches, ..Topology::default() });
    world
}

/// One node of 8 MiB and two CPUs, on which everything takes some time.
pub(crate) fn config(thp_enabled: ThpEnabled) -> Config {
    let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 2048);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
    Config {
        machine: MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] },
        variant: *variant::named("v6.7"),
        settings: Settings { min_free_kbytes: 64, ..Settings::default() },
        thp_enabled,
        use_zero_page: true,
        thp_defrag: ThpDefrag::Madvise,
        khugepaged: KhugepagedSettings::default(),
        prices: Prices::new(|work| if work == Work::UserTouch { Picos(0) } else { Picos::from_nanos(50) }),
        cores: Vec::new(),
        caches: Vec::new(),
        shared_core: 100,
        latency: memory::cost::Latency::default(),
        bandwidth: Vec::new(),
        swap: None,
        disk: mm::file::disk::DiskSpec::default(),
        cpus: 2,
        quantum: QUANTUM,
        cap: Bytes::mib(6),
        seed: 1,
        held: Frames(0),
        system: None,
        host: None,
        reporting: None,
        balloon: None,
        shuffle: false,
    }
}

/// A machine with 32 MiB, whose marks are not boosted.
fn larger(thp_enabled: ThpEnabled) -> Config {
    let mut config = config(thp_enabled);
    config.machine.nodes[0].zones = vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192)];
    config.settings.watermark_boost_factor = 0;
    config.cap = Bytes::mib(16);
    config
}

fn no_entries(name: &'static str, _: Vec<u8>) -> EntryFuture {
    panic!("nobody spawns a process, not even {name}")
}

/// All frames ever allocated, but for those given back.
fn kept(finish: &Finish) -> u64 {
    allocated(finish) - finish.counters.get(Event::Pgfree)
}

fn allocated(finish: &Finish) -> u64 {
    let zones = [Event::PgallocDma, Event::PgallocDma32, Event::PgallocNormal, Event::PgallocMovable];
    zones.into_iter().map(|event| finish.counters.get(event)).sum()
}

/// Two threads store to the same pages at once; the first also unmaps some of them, and nobody unmaps the rest.
fn storm(thp_enabled: ThpEnabled) -> Finish {
    let (result, finish) = simulate(&config(thp_enabled), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| os.store(range, Bytes::PAGE).await);
        os.store(range, Bytes::PAGE).await.unwrap();
        other.await.unwrap().unwrap();
        let part = VmRange { len: Bytes::mib(1), ..range };
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
        // The CPU's slabs stay, and what the other CPU has in its batch of new folios until that is drained.
        let slabs = 1 + 8;
        let kept = kept(&finish);
        let batch = variant::named("v6.7").lru_batch;
        assert!((slabs..slabs + batch).contains(&kept), "the end of the process gives back all but {kept}");
    }
}

#[test]
fn a_fault_that_loses_the_race_frees_its_huge_page() {
    // Each block is faulted by both threads at once: each allocates and clears a huge page, and one of them maps it.
    let (result, finish) = simulate(&config(ThpEnabled::Always), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
        let meet = os.barrier(2).await.unwrap();
        let store = async move |os: Sim| {
            os.arrive(meet).await.unwrap();
            os.store(range, Bytes::HUGE_PAGE).await.unwrap();
            os.rusage().await.unwrap().minor_faults
        };
        let other = os.spawn(Placement::Spread(1), store);
        let faults = store(os).await;
        faults + other.await.unwrap()
    });
    let (mapped, faults) = (finish.counters.get(Event::ThpFaultAlloc), result);
    assert_eq!(mapped, 2, "each block once");
    assert!(faults > mapped, "both threads fault in a block: {faults} faults");
    // The losers' pages, each with its table, beside the winners'.
    assert!(allocated(&finish) >= faults * 513, "{} frames", allocated(&finish));
    assert!(kept(&finish) <= 9 + 31, "all but slabs and batches is given back: {}", kept(&finish));
}

#[test]
fn who_finds_a_page_mapped_does_not_fault() {
    let both = storm(ThpEnabled::Never).counters.get(Event::Pgfault);
    // 1,024 pages are each faulted by one of two threads that pass over all of them side by side.
    assert!((1024..1060).contains(&both), "{both} faults");
}

/// Threads and a child that fault huge and base pages, copy both, fork and unmap; and go on when one of them dies.
fn everything(rules: &str, bandwidth: &[(NodeId, BytesPerSecond)], loss: Option<Injection>) -> (Finish, Extra) {
    // In the strict order each step is as short as it can be: there are more of them to die in.
    let (variant, bandwidth, quantum) = (*variant::named(rules), bandwidth.to_vec(), Picos(0));
    let config = Config { variant, bandwidth, quantum, ..config(ThpEnabled::Always) };
    let options = Options { loss, ..Options::default() };
    let store = async |os: Sim, range: VmRange| {
        let small = os.mmap(Bytes::kib(64), MapSpec::Anonymous).await.unwrap();
        os.store(small, Bytes::kib(16)).await.unwrap();
        os.store(range, Bytes::kib(512)).await.unwrap();
        os.munmap(small).await.is_ok()
    };
    let process = async move |os: Sim| {
        let range = os.mmap(Bytes::mib(2), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::HUGE_PAGE).await.unwrap();
        let child = os.fork(Placement::Spread(1), async move |os: Sim| {
            os.store(range, Bytes::HUGE_PAGE).await.unwrap();
            os.munmap(range).await.is_ok()
        });
        if let Ok(child) = child.await {
            let _ = child.await;
        }
        let threads = [0, 1].map(|cpu| os.spawn(Placement::Spread(cpu), async move |os: Sim| store(os, range).await));
        for thread in threads {
            let _ = thread.await;
        }
        os.munmap(range).await.is_ok()
    };
    let ((), finish, extra) = simulate_with(&config, options, no_entries, async move |os: Sim| {
        let _ = os.fork(Placement::Spread(0), process).await.unwrap().await;
    });
    (finish, extra)
}

#[test]
fn a_task_that_dies_in_the_middle_of_anything_leaves_nothing_behind() {
    // Where memory has a limit each frame of a huge page is a step, and every so many of them do.
    let limit = [(NodeId(0), BytesPerSecond::new(Bytes::mib(4000)).unwrap())];
    for (rules, bandwidth, every) in [("v4.1", &[][..], 1), ("v6.1", &[], 1), ("v6.7", &[], 1), ("v6.7", &limit, 3)] {
        let (_, Extra { steps, .. }) = everything(rules, bandwidth, None);
        let mut deaths = 0;
        // Its frames are looked for after every step; a lock that it kept would keep the others waiting for ever.
        for step in (0..steps).step_by(every) {
            let (finish, extra) = everything(rules, bandwidth, Some(Injection { step, lost: Lost::Task }));
            deaths += u64::from(extra.lost);
            assert!(kept(&finish) <= 2 * 9 + 31, "{rules}, step {step}: {} frames are left", kept(&finish));
        }
        assert!(deaths > 15, "{rules}: {deaths} of {steps} steps");
    }
}

/// Two threads store again and again to more memory than there is.
fn swapping(medium: SwapMedium) -> (u64, Finish) {
    let swap = SwapSpec { size: Bytes::mib(16), medium };
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
fn memory_to_swap_to_frees_pages_in_the_pass_that_writes_them() {
    let (major, finish) = swapping(SwapMedium::Memory);
    let count = |event| finish.counters.get(event);
    assert!(count(Event::Pswpout) > 512 && count(Event::Pswpin) > 0, "{:?}", finish.counters);
    assert_eq!(count(Event::Pgrotated), 0, "nothing is written later");
    let stolen = count(Event::PgstealAnon);
    assert_eq!(stolen, count(Event::Pswpout), "what is written is free");
    assert_eq!(finish.times.waiting.on(Cause::Swap), Picos(0), "nobody waits for it");
    assert!(finish.times.cpu.on(Cause::Swap) > Picos(0), "it is copied");
    assert_eq!(count(Event::SwapRa), 0, "nothing is read ahead");
    assert!(major > 0 && major == count(Event::Pswpin));
    assert_eq!(swapping(SwapMedium::Memory), (major, finish));
}

#[test]
fn more_memory_than_there_is_goes_to_swap_and_comes_back() {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    let disk = SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth };
    let (major, finish) = swapping(disk);
    let count = |event| finish.counters.get(event);
    assert!(count(Event::Pswpout) > 512 && count(Event::Pswpin) > 0, "{:?}", finish.counters);
    assert!(major > 0 && major <= count(Event::Pgmajfault));
    assert!(count(Event::PgstealKswapd) > 0);
    let stolen = count(Event::PgstealKswapd) + count(Event::PgstealDirect);
    assert!(stolen <= count(Event::PgscanKswapd) + count(Event::PgscanDirect));
    assert!(finish.times.waiting.on(Cause::Swap) > Picos(0), "major faults wait for the device");
    assert!(finish.times.cpu.on(Cause::ReclaimScan) > Picos(0));
    assert_eq!(swapping(disk), (major, finish));
}

/// The time that reclaim took for each page that it looked at, in picoseconds. One task stores to more memory than there is, and
/// kswapd, alone on the other CPU, does nearly all the rest.
fn price_of_a_scan(cores: Vec<Vec<CpuId>>) -> u64 {
    let swap = SwapSpec { size: Bytes::mib(64), medium: SwapMedium::Memory };
    // Faults are slow, so that kswapd is always ahead of them.
    let prices = Prices::new(|work| Picos::from_nanos(if work == Work::Trap { 20_000 } else { 50 }));
    let mut config = Config { swap: Some(swap), cores, shared_core: 200, prices, ..larger(ThpEnabled::Never) };
    (config.settings.min_free_kbytes, config.cap) = (1024, Bytes::mib(96));
    let ((), finish) = simulate(&config, no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(44), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
    });
    let [by_kswapd, by_itself] = [Event::PgscanKswapd, Event::PgscanDirect].map(|event| finish.counters.get(event));
    assert!(by_kswapd > 2 * by_itself, "{by_kswapd} pages by kswapd, {by_itself} by the task itself");
    finish.times.cpu.on(Cause::ReclaimScan).0 / (by_kswapd + by_itself)
}

#[test]
fn kernel_threads_pay_for_a_busy_sibling_too() {
    let alone = price_of_a_scan(Vec::new());
    let shared = price_of_a_scan(vec![vec![CpuId(0), CpuId(1)]]);
    assert!(shared > alone * 3 / 2, "{alone} ps on a core of its own, {shared} beside a task that runs");
}
