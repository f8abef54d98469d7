//! khugepaged beside tasks that fault, unmap and die.

use os::Advice;

use super::*;

/// A machine of 32 MiB on which khugepaged looks around every 100 us.
fn busy(rules: &str) -> Config {
    let mut config = Config { variant: *variant::named(rules), ..config(ThpEnabled::Madvise) };
    config.machine.nodes[0].zones = vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 8192)];
    config.settings.watermark_boost_factor = 0;
    config.cap = Bytes::mib(16);
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
