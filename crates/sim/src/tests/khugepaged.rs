//! khugepaged beside tasks that fault, unmap and die.

use os::Advice;

use super::*;

/// A machine of 32 MiB on which khugepaged looks around every 100 us.
fn busy(rules: &str) -> Config {
    let mut config = Config { variant: *variant::named(rules), ..larger(ThpEnabled::Madvise) };
    config.khugepaged.scan_sleep = Picos::from_micros(100);
    config.khugepaged.alloc_sleep = Picos::from_micros(300);
    config
}

/// Stores to base pages of 4 MiB, and says then that huge ones are wanted.
async fn base_pages(os: &Sim) -> VmRange {
    let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
    os.store(range, Bytes::PAGE).await.unwrap();
    os.madvise(range, Advice::HugePage).await.unwrap();
    range
}

#[test]
fn base_pages_become_huge_while_others_change_the_same_address_space() {
    for rules in ["v3.9", "v4.1", "v5.10", "v6.1", "v6.7"] {
        let (collapsed, finish) = simulate(&busy(rules), no_entries, async |os: Sim| {
            let range = base_pages(&os).await;
            let other = os.spawn(Placement::Spread(1), async move |os: Sim| {
                for _ in 0..40 {
                    let small = os.mmap(Bytes::kib(64), MapSpec::Anonymous).await.unwrap();
                    os.store(small, Bytes::PAGE).await.unwrap();
                    os.munmap(small).await.unwrap();
                    os.store(range, Bytes::kib(64)).await.unwrap();
                }
            });
            os.sleep(Picos::from_micros(20_000)).await;
            other.await.unwrap();
            let vmstat = os.vmstat().await.unwrap();
            vmstat.0.get("thp_collapse_alloc").copied()
        });
        assert!(collapsed >= Some(1), "{rules}: {collapsed:?}");
        assert!(finish.times.waiting.on(Cause::MmapLock) + finish.times.cpu.on(Cause::MmapLock) > Picos(0), "{rules}");
        // The huge zero page is nobody's here; the rest went with the process.
        assert!(kept(&finish) <= 2 * 9 + 31, "{rules}: {} frames are left", kept(&finish));
    }
}

#[test]
fn a_run_ends_though_khugepaged_would_look_around_for_ever() {
    let config = busy("v6.1");
    let ((), finish) = simulate(&config, no_entries, async |os: Sim| {
        base_pages(&os).await;
        os.sleep(Picos::from_micros(1_000_000)).await;
    });
    assert_eq!(finish.counters.get(Event::ThpCollapseAlloc), 1, "4 MiB that begin anywhere hold one whole huge page");
}

#[test]
fn nobody_wants_huge_pages_so_nobody_makes_any() {
    let config = Config { thp_enabled: ThpEnabled::Never, ..busy("v6.1") };
    let ((), finish) = simulate(&config, no_entries, async |os: Sim| {
        base_pages(&os).await;
        os.sleep(Picos::from_micros(10_000)).await;
    });
    assert_eq!(finish.counters.get(Event::ThpCollapseAlloc), 0);
}

/// A process whose only thread dies while khugepaged may be anywhere in its memory; another one goes on.
fn dies(rules: &str, loss: Option<Injection>) -> (Finish, Extra) {
    let options = Options { loss, ..Options::default() };
    let config = Config { quantum: Picos(0), ..busy(rules) };
    let ((), finish, extra) = simulate_with(&config, options, no_entries, async move |os: Sim| {
        let child = os.fork(Placement::Spread(1), async |os: Sim| {
            let range = base_pages(&os).await;
            for _ in 0..40 {
                os.store(range, Bytes::kib(128)).await.unwrap();
                os.sleep(Picos::from_micros(10)).await;
            }
        });
        let _ = child.await.unwrap().await;
        // What khugepaged was in the middle of comes to its end.
        os.sleep(Picos::from_micros(2_000)).await;
        // Up to 4.8 a huge page may wait for its LRU list as base pages do, on the CPU where it was made.
        for cpu in [0, 1] {
            let drains = async |os: Sim| {
                let page = os.mmap(Bytes::PAGE, MapSpec::Anonymous).await.unwrap();
                os.munmap(page).await.unwrap();
            };
            // It may be what is killed, once.
            while os.spawn(Placement::Spread(cpu), drains).await.is_err() {}
        }
    });
    (finish, extra)
}

#[test]
fn a_process_that_dies_under_khugepaged_leaves_nothing_behind() {
    for rules in ["v4.1", "v6.1", "v6.7"] {
        let (finish, Extra { steps, .. }) = dies(rules, None);
        assert!(finish.counters.get(Event::ThpCollapseAlloc) > 0, "{rules}");
        let mut deaths = 0;
        for step in (0..steps).step_by(2) {
            let (finish, extra) = dies(rules, Some(Injection { step, lost: Lost::Task }));
            deaths += u64::from(extra.lost);
            assert!(kept(&finish) <= 2 * 9 + 31, "{rules}, step {step}: {} frames are left", kept(&finish));
        }
        assert!(deaths > 15, "{rules}: {deaths} of {steps} steps");
    }
}

/// A machine of one or two nodes on which huge pages are rare, with some patches of the series of 2015.
fn short_of_huge(rules: rules::variant::Variant, nodes: u32) -> Config {
    let mut config = Config { variant: rules, thp_enabled: ThpEnabled::Always, ..busy("v4.1") };
    let node = |id| {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(8192 / nodes * id), 8192 / nodes);
        let distance = (0..nodes).map(|other| if other == id { 10 } else { 20 }).collect();
        let cpus = (0..2).filter(|cpu| cpu % nodes == id).map(CpuId).collect();
        NodeSpec { id: NodeId(id), cpus, distance, zones: vec![zone] }
    };
    config.machine.nodes = (0..nodes).map(node).collect();
    config.thp_defrag = ThpDefrag::Never;
    config.cap = Bytes::mib(64);
    config
}

/// Base pages in most pageblocks, with holes between; and then threads that fault huge pages until there are none, and give
/// them back.
async fn fragment_and_fault(os: Sim) {
    let base = os.mmap(Bytes::mib(20), MapSpec::Anonymous).await.unwrap();
    os.madvise(base, Advice::NoHugePage).await.unwrap();
    os.store(base, Bytes::PAGE).await.unwrap();
    for n in 0..40 {
        os.munmap(base.part(Bytes(n * Bytes::kib(512).0), Bytes::kib(448))).await.unwrap();
    }
    let faults = async |os: Sim| {
        for _ in 0..2 {
            let range = os.mmap(Bytes::mib(12), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::HUGE_PAGE).await.unwrap();
            os.sleep(Picos::from_micros(200)).await;
            os.munmap(range).await.unwrap();
        }
    };
    let workers = [0, 1].map(|cpu| os.spawn(Placement::Spread(cpu), faults));
    for worker in workers {
        worker.await.unwrap();
    }
}

#[test]
fn every_subset_of_the_series_runs_to_its_end() {
    let all: [&[u32]; 8] = [&[1], &[2], &[3], &[4], &[2, 4], &[1, 3], &[1, 2, 3, 4], &[1, 2, 3, 4, 5]];
    for (patches, nodes) in all.into_iter().flat_map(|patches| [(patches, 1), (patches, 2)]) {
        let config = short_of_huge(variant::patched("v4.1-rc2", patches), nodes);
        let ((), finish) = simulate(&config, no_entries, fragment_and_fault);
        let what = format!("+{patches:?} on {nodes} nodes");
        let [huge, base, made] = [Event::ThpFaultAlloc, Event::ThpFaultFallback, Event::CompactSuccess]
            .map(|event| finish.counters.get(event));
        assert!(huge > 0 && base > 0, "{what}: {huge} huge faults, {base} that were none");
        // Nobody compacts but who is asked.
        let asks = patches.contains(&2) && patches.contains(&4);
        assert_eq!(made > 0, asks, "{what}: {made} compactions of use");
    }
}

#[test]
fn the_kernel_that_the_series_was_posted_for_is_its_release() {
    let run = |rules: &str| simulate(&short_of_huge(*variant::named(rules), 1), no_entries, fragment_and_fault).1;
    let (release, posted_for) = (run("v4.1"), run("v4.1-rc2"));
    assert_eq!((release.hash, release.times), (posted_for.hash, posted_for.times));
}
