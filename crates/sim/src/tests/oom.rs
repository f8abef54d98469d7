//! Memory is out: a process goes, the others go on.

use super::*;

/// 8 MiB, of which processes want more.
fn small() -> Config {
    let mut config = Config { variant: *variant::named("v6.1"), cap: Bytes::mib(64), ..config(ThpEnabled::Never) };
    config.settings.watermark_boost_factor = 0;
    config
}

#[test]
fn the_process_that_wants_too_much_dies_others_go_on() {
    for thp_enabled in [ThpEnabled::Never, ThpEnabled::Always] {
        let config = Config { thp_enabled, ..small() };
        let ((modest, greedy), finish) = simulate(&config, no_entries, async |os: Sim| {
            let modest = os.fork(Placement::Spread(1), async |os: Sim| {
                let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
                for _ in 0..200 {
                    os.store(range, Bytes::PAGE).await.unwrap();
                    let other = os.mmap(Bytes::kib(64), MapSpec::Anonymous).await.unwrap();
                    os.store(other, Bytes::PAGE).await.unwrap();
                    os.munmap(other).await.unwrap();
                }
                os.sleep(Picos::from_micros(1_000_000)).await;
            });
            let modest = modest.await.unwrap();
            let greedy = os.fork(Placement::Spread(0), async |os: Sim| {
                let range = os.mmap(Bytes::mib(20), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
            });
            let greedy = greedy.await.unwrap().await;
            (modest.await, greedy)
        });
        assert_eq!(modest, Ok(()), "{thp_enabled:?}");
        assert!(greedy.unwrap_err().reason.starts_with("out of memory: killed"), "{thp_enabled:?}");
        assert_eq!(finish.counters.get(Event::OomKill), 1, "{thp_enabled:?}");
        assert!(finish.counters.get(Event::AllocstallNormal) + finish.counters.get(Event::AllocstallMovable) > 0);
        assert!(kept(&finish) <= 2 * 9 + 31 + 512, "{thp_enabled:?}: {} frames are left", kept(&finish));
    }
}

#[test]
fn all_threads_of_a_victim_die_wherever_they_are() {
    let (ends, finish) = simulate(&small(), no_entries, async |os: Sim| {
        let child = os.fork(Placement::Spread(0), async |os: Sim| {
            let meet = os.barrier(2).await.unwrap();
            let range = os.mmap(Bytes::mib(20), MapSpec::Anonymous).await.unwrap();
            let _waits = os.spawn(Placement::Spread(1), async move |os: Sim| os.arrive(meet).await);
            let _sleeps = os.spawn(Placement::Spread(1), async |os: Sim| os.sleep(Picos::from_secs(1000)).await);
            let _runs = os.spawn(Placement::Spread(1), async move |os: Sim| {
                loop {
                    let small = os.mmap(Bytes::kib(16), MapSpec::Anonymous).await.unwrap();
                    os.store(small, Bytes::PAGE).await.unwrap();
                    os.munmap(small).await.unwrap();
                }
            });
            let stores = os.spawn(Placement::Spread(0), async move |os: Sim| os.store(range, Bytes::PAGE).await);
            let _ = stores.await;
            os.sleep(Picos::from_secs(1000)).await;
        });
        let end = child.await.unwrap().await;
        (end, os.now())
    });
    assert!(ends.0.unwrap_err().reason.starts_with("out of memory: killed"));
    assert!(ends.1 < Time(0) + Picos::from_secs(10), "nobody sleeps to the end: {:?}", ends.1);
    assert_eq!(finish.counters.get(Event::OomKill), 1);
    assert!(kept(&finish) <= 2 * 9 + 31, "{} frames are left", kept(&finish));
}

#[test]
fn the_first_task_is_told_who_died() {
    let (died, finish) = simulate(&small(), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(20), MapSpec::Anonymous).await.unwrap();
        let threads =
            [0, 1].map(|cpu| os.spawn(Placement::Spread(cpu), async move |os: Sim| os.store(range, Bytes::PAGE).await));
        let mut died = 0;
        for thread in threads {
            died += u32::from(thread.await.is_err());
        }
        os.munmap(range).await.unwrap();
        died
    });
    assert_eq!((died, finish.counters.get(Event::OomKill)), (2, 1));
}

#[test]
fn a_process_without_memory_is_dead_and_not_waited_for() {
    let entries = |_: &'static str, _: Vec<u8>| -> EntryFuture {
        Box::pin(async {
            Sim.sleep(Picos::from_secs(1)).await;
            Ok(b"null".to_vec())
        })
    };
    let config = Config { held: Frames(1800), ..small() };
    let ((ends, met), _) = simulate(&config, entries, async |os: Sim| {
        let meet = os.barrier(2).await.unwrap();
        let waits = os.spawn(Placement::Spread(1), async move |os: Sim| os.arrive(meet).await);
        let born: Vec<_> = (0..300).map(|_| os.spawn_process::<(), ()>(Placement::Spread(0), "any", ())).collect();
        let mut ends = Vec::new();
        for process in born {
            ends.push(process.await.map_err(|died| died.reason));
        }
        (ends, waits.await.unwrap())
    });
    let alive = ends.iter().take_while(|end| end.is_ok()).count();
    assert!((100..248).contains(&alive), "there is memory for {alive} of them");
    assert!(ends[alive..].iter().all(|end| *end == Err("no memory for a new process".to_owned())));
    assert_eq!(met, Err(units::Errno::CANCELED));
}

/// Before the first process nothing can be reclaimed, and nobody killed.
#[test]
fn a_kernel_without_memory_above_its_marks_does_not_start() {
    let run = |min_free_kbytes: u64, held: u64| {
        let settings = rules::zone::Settings { min_free_kbytes, ..rules::zone::Settings::default() };
        let config = Config { settings, held: Frames(held), ..config(ThpEnabled::Never) };
        let run = crate::try_simulate_from(&config, Options::default(), None, no_entries, async |_: Sim| ());
        run.map(|((), ..)| ())
    };
    assert_eq!(run(64, 0), Ok(()));
    assert_eq!(run(16 << 10, 0), Err(CannotStart::NoProcess.into()), "marks are larger than memory");
    assert_eq!(run(64, 4096), Err(CannotStart::NoFrames(Frames(4096)).into()), "init holds more than there is");
}
