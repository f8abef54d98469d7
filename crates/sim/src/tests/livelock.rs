//! Runs that would never end: each comes to an end that says so.

use super::*;
use crate::{Bounds, Livelock, NoResult, Stuck};

/// The end of a run by these bounds.
fn livelock(config: &Config, bounds: Bounds, main: impl AsyncFnOnce(Sim) + 'static) -> Result<(), Livelock> {
    let options = Options { bounds: Some(bounds), ..Options::default() };
    match crate::try_simulate_from(config, options, None, no_entries, main) {
        Ok(_) => Ok(()),
        Err(NoResult::Livelock(livelock)) => Err(*livelock),
        Err(other) => panic!("{other}"),
    }
}

/// khugepaged that does not sleep.
fn sleepless(prices: Prices) -> Config {
    let mut config = Config { prices, ..config(ThpEnabled::Always) };
    config.khugepaged.scan_sleep = Picos(0);
    config
}

/// A task with memory that khugepaged looks at, which then sleeps.
async fn waits_a_while(os: Sim) {
    let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
    os.store(range, Bytes::PAGE).await.unwrap();
    os.sleep(Picos::from_micros(15)).await;
}

/// Where khugepaged's way round costs nothing, the timer that the task waits for never fires.
#[test]
fn a_run_in_which_time_stands_still_ends() {
    let bounds = Bounds { still: 200, ..Bounds::default() };
    let found = livelock(&sleepless(Prices::free()), bounds, waits_a_while).expect_err("time stands still");
    assert!(matches!(found.stuck, Stuck::Still(turns) if (200..300).contains(&turns)), "{found}");
    assert_eq!(found.events.len(), 10, "{found}");
    assert!(found.events.iter().all(|event| event.contains("khugepaged: runs")), "{found}");
    assert!(found.tasks[0].starts_with("task-0: sleeps until "), "{found}");
    assert_eq!(found.tasks[1..], ["khugepaged: runs"], "{found}");
    assert!(found.zones[0].starts_with("node 0 Normal: free "), "{found}");
    let text = found.to_string();
    assert!(text.starts_with("livelock after ") && text.contains(": it has not moved in 2"), "{text}");
}

/// A task waits for a disk that takes a thousand seconds, beside khugepaged that does not sleep: turns pass, and time.
#[test]
fn a_run_in_which_no_task_gets_on_ends() {
    let slow = mm::file::disk::DiskSpec { latency: Picos::from_secs(1000), ..mm::file::disk::DiskSpec::default() };
    let config = Config { disk: slow, ..sleepless(config(ThpEnabled::Always).prices) };
    let writes = async |os: Sim| {
        let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let file = os.create("stuck").await.unwrap();
        os.write(file, Bytes(0), Bytes::PAGE).await.unwrap();
        os.fsync(file).await.unwrap();
    };
    let by_turns = Bounds { vain: 200, ..Bounds::default() };
    let by_time = Bounds { span: Picos::from_micros(30), ..Bounds::default() };
    for bounds in [by_turns, by_time] {
        let found = livelock(&config, bounds, writes).expect_err("the disk does not answer");
        let Stuck::Vain(turns, span) = found.stuck else { panic!("{found}") };
        assert!(turns >= 200 || span > Picos::from_micros(30), "{found}");
        assert!(found.tasks[0].starts_with("task-0: fsync, sleeps for disk since "), "{found}");
        assert!(found.tasks.contains(&"khugepaged: runs".to_owned()), "{found}");
        assert_eq!(found.events.len(), 10, "{found}");
        assert!(found.to_string().contains(": no task has got on for "), "{found}");
    }
    // A user half that sleeps says how long it will: that is no livelock.
    assert_eq!(livelock(&config, by_turns, waits_a_while), Ok(()));
}

/// A sync(2) of more than a slow disk writes in two minutes: the task sleeps, and the flusher and the disk work.
#[test]
fn a_sync_of_minutes_is_no_livelock() {
    let bandwidth = units::BytesPerSecond::new(Bytes::kib(8)).expect("more than nothing");
    let slow = mm::file::disk::DiskSpec { bandwidth, depth: 1, ..mm::file::disk::DiskSpec::default() };
    let config = Config { disk: slow, ..config(ThpEnabled::Always) };
    let writes = async |os: Sim| {
        let file = os.create("large").await.unwrap();
        os.write(file, Bytes(0), Bytes::mib(2)).await.unwrap();
        let before = os.now();
        os.sync().await.unwrap();
        assert!(os.now().since(before) > Bounds::default().span, "a sync of minutes");
    };
    assert_eq!(livelock(&config, Bounds::default(), writes), Ok(()));
}

/// A `scan_sleep_millisecs` of 0 is legal: khugepaged uses the CPU that others leave, and they go on beside it.
#[test]
fn khugepaged_that_does_not_sleep_lets_others_go_on() {
    let config = Config { khugepaged: sleepless(Prices::free()).khugepaged, ..larger(ThpEnabled::Always) };
    let run = |scan_sleep| {
        let mut config = config.clone();
        config.khugepaged.scan_sleep = scan_sleep;
        let ((), finish) = simulate(&config, no_entries, async |os: Sim| {
            let other = os.spawn(Placement::Spread(1), waits_a_while);
            waits_a_while(os).await;
            other.await.unwrap();
        });
        finish
    };
    let busy = |finish: &Finish| finish.times.cpu.on(Cause::Allocator);
    let (sleepless, asleep) = (run(Picos(0)), run(Picos::from_secs(10)));
    assert!(busy(&sleepless) > busy(&asleep), "{:?}", busy(&sleepless));
}
