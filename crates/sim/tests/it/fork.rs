//! fork in the simulator: alone or not at all, one memory for two, and no frame lost.

use memory::{
    cost::Prices,
    event::{Counters, Event},
};
use mm::thp::ThpEnabled;
use os::{Advice, MapSpec, Os, Placement};
use sim::{Config, Sim, simulate};
use units::{Bytes, Errno, Picos};

use crate::support::{self, no_entries};

/// A machine with two CPUs and `frames` frames.
fn machine(frames: u32) -> Config {
    Config {
        thp_enabled: ThpEnabled::Madvise,
        prices: Prices::new(|work| Picos(100_000 + work as u64)),
        cap: Bytes::mib(64),
        ..support::machine(2, frames)
    }
}

fn run<T: 'static>(frames: u32, body: impl AsyncFnOnce(Sim) -> T + 'static) -> (T, Counters) {
    let (result, finish) = simulate(&machine(frames), no_entries, body);
    let zones = [Event::PgallocDma, Event::PgallocDma32, Event::PgallocNormal, Event::PgallocMovable];
    let allocated: u64 = zones.into_iter().map(|event| finish.counters.get(event)).sum();
    // Each CPU keeps a slab of VMAs and one of `mm_struct`s at most.
    let kept = allocated - finish.counters.get(Event::Pgfree);
    assert!(kept <= 2 * (1 + 8), "all but {kept} frames are given back");
    (result, finish.counters)
}

#[test]
fn a_child_copies_what_it_writes_and_the_parent_keeps_the_rest() {
    let body = async |os: Sim| {
        let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let child = os.fork(Placement::Spread(1), async move |os: Sim| {
            let before = os.rusage().await.unwrap().faults();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.munmap(range).await.unwrap();
            os.rusage().await.unwrap().faults() - before
        });
        let copied: u64 = child.await.unwrap().await.unwrap();
        let before = os.rusage().await.unwrap().faults();
        os.store(range, Bytes::PAGE).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        (copied, os.rusage().await.unwrap().faults() - before)
    };
    let (faults, counters) = run(16 << 10, body);
    assert_eq!(faults, (256, 256), "each page once on each side");
    assert_eq!(counters.get(Event::Pgreuse), 256);
    assert_eq!(counters.get(Event::Pgfault), 3 * 256);
}

#[test]
fn a_process_of_two_tasks_does_not_fork() {
    let body = async |os: Sim| {
        let meet = os.barrier(2).await.unwrap();
        let other = os.spawn(Placement::Spread(1), async move |os: Sim| os.arrive(meet).await);
        let nothing = async |_: Sim| ();
        let refused = os.fork(Placement::Spread(0), nothing).await.err();
        os.arrive(meet).await.unwrap();
        other.await.unwrap().unwrap();
        let child = os.fork(Placement::Spread(0), nothing).await.unwrap();
        (refused, child.await)
    };
    assert_eq!(run(16 << 10, body).0, (Some(Errno::INVAL), Ok(())));
}

#[test]
fn a_fork_without_memory_fails_and_leaves_nothing() {
    // Sparse pages need a table each, which the child needs too.
    let body = async |os: Sim| {
        let range = os.mmap(Bytes::mib(60), MapSpec::Anonymous).await.unwrap();
        os.madvise(range, Advice::NoHugePage).await.unwrap();
        os.store(range, Bytes::HUGE_PAGE).await.unwrap();
        let hog = os.mmap(Bytes::mib(3), MapSpec::Anonymous).await.unwrap();
        os.store(hog, Bytes::PAGE).await.unwrap();
        let refused = os.fork(Placement::Spread(0), async |_: Sim| ()).await.err();
        os.munmap(hog).await.unwrap();
        let child = os.fork(Placement::Spread(0), async |_: Sim| ()).await.unwrap();
        (refused, child.await)
    };
    assert_eq!(run(896, body).0, (Some(Errno::NOMEM), Ok(())));
}

#[test]
fn memory_that_runs_out_in_a_child_ends_the_child_alone() {
    let body = async |os: Sim| {
        let range = os.mmap(Bytes::mib(3), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        let child = os.fork(Placement::Spread(0), async move |os: Sim| os.store(range, Bytes::PAGE).await.is_ok());
        let died = child.await.unwrap().await.unwrap_err();
        os.store(range, Bytes::PAGE).await.unwrap();
        died.reason
    };
    assert_eq!(run(1024, body).0, "out of memory: killed by signal 9 (SIGKILL)");
}
