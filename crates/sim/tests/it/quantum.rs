//! The outcome of a run does not depend on how far CPUs may run ahead of each other, as long as that is little.

use memory::{
    cost::{Cause, Prices, Work},
    event::{Counters, Event},
};
use rules::variant;
use sim::{Config, QUANTUM, simulate};
use units::{Bytes, Picos};

use crate::support::{self, no_entries};
use workloads::Workload;

const CPUS: u32 = 4;
/// The longest that a simulation here could take.
const UNBOUNDED: Picos = Picos::from_secs(3600);

/// A fault takes most of a microsecond, of which clearing is a third; who sleeps takes microseconds to be back.
fn machine(rules: &str, quantum: Picos, seed: u64) -> Config {
    let prices = Prices::new(|work| {
        Picos::from_nanos(match work {
            Work::WakeUp => 3000,
            Work::ContextSwitch | Work::Ipi => 1200,
            Work::IpiReceive => 500,
            Work::VmaUpdate => 400,
            // Each run is a little different: all the same, tasks fall into step with each other.
            Work::Trap => 300 + 3 * seed,
            Work::ClearFrame => 300,
            Work::SystemCall | Work::TlbFlush => 200,
            Work::AllocFast | Work::LineTransfer => 50,
            Work::PteScan => 2,
            _ => 20,
        })
    });
    let cap = Bytes::gib(1);
    Config { variant: *variant::named(rules), prices, quantum, cap, seed, ..support::machine(CPUS, 256 << 10) }
}

/// Sums over several runs.
#[derive(Debug, Default)]
struct Sum {
    elapsed: Picos,
    mmap_lock: Picos,
    zone_lock: Picos,
    counters: Vec<u64>,
}

/// Counts of what faults do; the counts of the locks' effects on each other are too small to compare.
fn counts(counters: &Counters) -> Vec<u64> {
    [Event::Pgfault, Event::PgallocNormal, Event::Pgfree, Event::SimTlbLocalFlushAll]
        .map(|event| counters.get(event))
        .to_vec()
}

/// Two threads per CPU map, fill and unmap memory of one address space and one zone.
fn storm(rules: &str, quantum: Picos, seeds: u64) -> Sum {
    let tasks = (2 * CPUS).to_string();
    let params = [("tasks", tasks.as_str()), ("iterations", "96"), ("size", "8MiB")];
    let mut sum = Sum::default();
    for seed in 1..=seeds {
        let workload = Workload::parse("fault-storm", params).unwrap();
        let run = async move |os| workload.run(os, 1).await.unwrap();
        let (outcome, finish) = simulate(&machine(rules, quantum, seed), no_entries, run);
        let begin = outcome.tasks.iter().map(|task| task.start).min().unwrap();
        sum.elapsed += outcome.tasks.iter().map(|task| task.end).max().unwrap().since(begin);
        let of = |cause| finish.times.cpu.on(cause) + finish.times.waiting.on(cause);
        sum.mmap_lock += of(Cause::MmapLock);
        sum.zone_lock += of(Cause::ZoneLock);
        let counts = counts(&finish.counters);
        sum.counters.resize(counts.len(), 0);
        sum.counters.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sum
}

/// By how much of `one` the other differs.
fn off(one: Picos, other: Picos) -> f64 {
    (other.as_secs_f64() / one.as_secs_f64() - 1.0).abs()
}

/// By how much elapsed time and lock waits differ.
fn offs(one: &Sum, other: &Sum) -> [f64; 2] {
    let locks = |sum: &Sum| sum.mmap_lock + sum.zone_lock;
    [off(one.elapsed, other.elapsed), off(locks(one), locks(other))]
}

/// The first at a lock decides the next, so that one run waits some 10 % longer than another for nothing: as many
/// seeds as it takes to see 5 % of their sum.
fn compare(rules: &str, seeds: u64) {
    let [strict, usual] = [Picos(0), QUANTUM].map(|quantum| storm(rules, quantum, seeds));
    let is_close = offs(&strict, &usual).iter().all(|off| *off < 0.05);
    assert!(is_close, "{rules}: {strict:?}, with the usual quantum {usual:?}");
    for (one, other) in strict.counters.iter().zip(&usual.counters) {
        assert!(one.abs_diff(*other) * 20 < *one, "{rules}: {strict:?}, with the usual quantum {usual:?}");
    }
    let [strict, unbounded] = [Picos(0), UNBOUNDED].map(|quantum| storm(rules, quantum, 2));
    let is_far = offs(&strict, &unbounded).iter().any(|off| *off > 0.05);
    assert!(is_far, "{rules}: {strict:?}, without a bound {unbounded:?}");
}

#[test]
fn fair_locks_are_waited_for_as_long_as_in_the_strict_order() {
    compare("v4.1", 2);
}

#[test]
fn stolen_locks_are_waited_for_as_in_the_strict_order() {
    compare("v6.1", 32);
}

#[test]
fn locks_of_vmas_leave_as_much_waiting_as_in_the_strict_order() {
    compare("v6.7", 48);
}
