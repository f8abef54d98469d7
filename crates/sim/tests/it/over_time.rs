//! Output of a run beside its result: samples over time, and the operations that left the fast path.

use std::collections::BTreeSet;

use memory::event::Event;
use mm::{
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use os::{MapSpec, Os, Placement};
use sim::{Config, Extra, Finish, Options, Samples, Sim, SlowOperation, SlowOperations, simulate_with};
use units::{Bytes, BytesPerSecond, Picos, Time};

use crate::support::{self, no_entries};

const MILLISECOND: Picos = Picos::from_micros(1000);

/// 32 MiB and a disk to swap to.
fn small() -> Config {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    let medium = SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth };
    let swap = Some(SwapSpec { size: Bytes::mib(64), medium });
    Config { swap, thp_enabled: ThpEnabled::Always, ..support::machine(2, 8192) }
}

/// Two threads store to memory of this size twice.
fn fill(config: &Config, size: Bytes, sample: Option<Picos>) -> (Finish, Extra) {
    let options = Options { sample, ..Options::default() };
    let (result, finish, extra) = simulate_with(config, options, no_entries, async move |os: Sim| {
        let half = Bytes(size.0 / 2);
        let fill = async move |os: Sim| {
            let range = os.mmap(half, MapSpec::Anonymous).await?;
            os.store(range, Bytes::PAGE).await?;
            os.store(range, Bytes::PAGE).await?;
            os.munmap(range).await
        };
        let other = os.spawn(Placement::Spread(1), fill);
        fill(os).await?;
        other.await.unwrap()
    });
    assert_eq!(result, Ok(()));
    (finish, extra)
}

fn samples(every: Picos, size: Bytes) -> (Finish, Samples) {
    let (finish, extra) = fill(&small(), size, Some(every));
    (finish, extra.samples.expect("they were asked for"))
}

fn column(samples: &Samples, name: &str) -> Vec<u64> {
    let at = samples.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no {name}"));
    samples.rows.iter().map(|(_, values)| values[at]).collect()
}

#[test]
fn a_run_is_the_same_with_and_without_samples() {
    let (without, extra) = fill(&small(), Bytes::mib(48), None);
    assert_eq!(extra.samples, None);
    for every in [Picos::from_micros(10), MILLISECOND] {
        let (with, again) = fill(&small(), Bytes::mib(48), Some(every));
        assert_eq!(with, without);
        assert_eq!((again.steps, again.slow_operations), (extra.steps, extra.slow_operations.clone()));
    }
}

#[test]
fn samples_are_of_the_start_of_multiples_and_of_the_end() {
    let (finish, samples) = samples(MILLISECOND, Bytes::mib(48));
    let times: Vec<Time> = samples.rows.iter().map(|(at, _)| *at).collect();
    let (end, before) = times.split_last().unwrap();
    assert!(before.len() > 20, "{before:?}");
    assert_eq!(before, (0..before.len() as u64).map(|n| Time(n * MILLISECOND.0)).collect::<Vec<_>>());
    assert!(end > before.last().unwrap() && end.since(*before.last().unwrap()) <= MILLISECOND);
    let faults = column(&samples, "pgfault");
    assert_eq!((faults[0], *faults.last().unwrap()), (0, finish.counters.get(Event::Pgfault)));
    assert!(faults.is_sorted());
    assert!(faults.iter().collect::<BTreeSet<_>>().len() > 10, "they are not all at once: {faults:?}");
    assert!(column(&samples, "pswpout").last() > Some(&0));
    assert_eq!(samples.names.iter().collect::<BTreeSet<_>>().len(), samples.names.len(), "each name is there once");
}

#[test]
fn what_is_free_is_the_sum_of_what_is_free() {
    let (_, samples) = samples(MILLISECOND, Bytes::mib(48));
    let orders: Vec<Vec<u64>> = (0..=10).map(|order| column(&samples, &format!("node0/Normal/free/{order}"))).collect();
    let blocks =
        ["Unmovable", "Movable", "Reclaimable"].map(|of| column(&samples, &format!("node0/Normal/blocks/{of}")));
    let (free, whole) = (column(&samples, "node0/nr_free_pages"), column(&samples, "node0/Normal/blocks/free"));
    for row in 0..samples.rows.len() {
        assert_eq!((0..=10).map(|order| orders[order][row] << order).sum::<u64>(), free[row]);
        assert_eq!(orders[9][row] + 2 * orders[10][row], whole[row]);
        assert_eq!(blocks.iter().map(|of| of[row]).sum::<u64>(), 16);
    }
    assert!(whole.iter().any(|blocks| *blocks < 2) && whole[0] > 10, "{whole:?}");
    assert!(column(&samples, "node0/nr_anon_transparent_hugepages").iter().any(|pages| *pages > 2));
    assert!(column(&samples, "node0/nr_inactive_anon").iter().any(|frames| *frames > 1000));
}

#[test]
fn a_run_shorter_than_the_time_between_two_samples_has_two() {
    let (finish, samples) = samples(Picos::from_secs(100), Bytes::mib(4));
    assert_eq!(samples.rows.len(), 2);
    assert_eq!(samples.rows[0].0, Time(0));
    assert_eq!(column(&samples, "pgfault"), [0, finish.counters.get(Event::Pgfault)]);
}

fn of<'a>(operations: &'a SlowOperations, name: &'a str) -> impl Iterator<Item = &'a SlowOperation> {
    operations.longest.iter().filter(move |operation| operation.what.to_string() == name)
}

#[test]
fn what_left_the_fast_path_is_logged_with_its_causes() {
    let (finish, extra) = fill(&small(), Bytes::mib(48), None);
    let log = extra.slow_operations;
    assert!(finish.counters.get(Event::AllocstallMovable) > 0 && finish.counters.get(Event::Pswpin) > 0);
    let faults: Vec<_> = of(&log, "fault").collect();
    assert!(faults.len() > 10 && faults.iter().all(|fault| fault.vpn.is_some()));
    let waits = |cause| faults.iter().map(|fault| fault.spent.on(cause)).sum::<Picos>();
    assert!(waits(memory::cost::Cause::ReclaimScan) > Picos(0) && waits(memory::cost::Cause::Swap) > Picos(0));
    // Faults that reclaim ask for memory; those that wait for a page from swap do not.
    let asks = |order: u8| faults.iter().filter(|fault| fault.order == Some(units::Order(order))).count();
    let asleep = faults.iter().filter(|fault| fault.order.is_none()).count();
    assert!(asks(0) + asks(9) > 0 && asleep > 0, "{} {} {asleep}", asks(0), asks(9));
    assert!(of(&log, "kswapd0").count() > 0);
    assert_eq!(of(&log, "mmap").count(), 0);
    assert!(log.longest.iter().all(|operation| operation.spent.total() > Picos(0)));
    let total: u64 = log.totals.values().map(|total| total.count).sum();
    assert!(total >= log.longest.len() as u64, "{total}");
    assert!(log.longest.is_sorted_by_key(|operation| (operation.start, operation.task)));
    // A task is in one place at a time.
    for task in log.longest.iter().map(|operation| operation.task).collect::<BTreeSet<_>>() {
        let its: Vec<_> = log.longest.iter().filter(|operation| operation.task == task).collect();
        let ends = |operation: &SlowOperation| operation.start + operation.spent.total();
        assert!(its.windows(2).all(|pair| ends(pair[0]) <= pair[1].start), "task {task}");
    }
    // All of it is part of what tasks have spent.
    let times = finish.times.cpu.total() + finish.times.waiting.total();
    assert!(log.totals.values().map(|total| total.time).sum::<Picos>() < times);
}

#[test]
fn a_run_that_has_memory_leaves_no_fast_path() {
    let (_, extra) = fill(&small(), Bytes::mib(4), None);
    assert_eq!(extra.slow_operations.longest.iter().filter(|operation| operation.vpn.is_some()).count(), 0);
}
