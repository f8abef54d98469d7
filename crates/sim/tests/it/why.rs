//! The facts of slow operations: the run is the same with them, and they agree with what the run counts and logs.

use memory::{
    event::Event,
    fact::{Fact, Kswapd, Lacks, Told},
};
use mm::{
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};
use os::{MapSpec, Os, Placement};
use sim::{Config, Extra, Finish, Options, Sim, SlowOperation, Watched, simulate_with};
use units::{Bytes, BytesPerSecond, Errno, Order, Picos};

use crate::support::{self, no_entries};

/// 32 MiB, huge pages, and a disk to swap to.
pub(crate) fn small() -> Config {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    let medium = SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth };
    let swap = Some(SwapSpec { size: Bytes::mib(64), medium });
    Config { swap, thp_enabled: ThpEnabled::Always, ..support::machine(2, 8192) }
}

/// Two threads store to more memory than there is.
pub(crate) async fn fill_memory(os: Sim) -> Result<(), Errno> {
    let fill = async move |os: Sim| {
        let range = os.mmap(Bytes::mib(24), MapSpec::Anonymous).await?;
        os.store(range, Bytes::PAGE).await?;
        os.store(range, Bytes::PAGE).await?;
        os.munmap(range).await
    };
    let other = os.spawn(Placement::Spread(1), fill);
    fill(os).await?;
    other.await.unwrap()
}

fn fill(why: Vec<Watched>) -> (Finish, Extra) {
    let options = Options { why, ..Options::default() };
    let (result, finish, extra) = simulate_with(&small(), options, no_entries, fill_memory);
    assert_eq!(result, Ok(()));
    (finish, extra)
}

pub(crate) fn watched(operation: &SlowOperation) -> Watched {
    let (task, start) = (operation.task, operation.start);
    Watched { task, start, end: start + operation.spent.total() }
}

/// The run with the facts of all operations of its tasks.
fn explained() -> (Finish, Extra, Vec<SlowOperation>) {
    let (finish, extra) = fill(Vec::new());
    assert!(extra.why.is_empty(), "none were asked for");
    let of_task = |operation: &&SlowOperation| operation.vpn.is_some();
    let operations: Vec<SlowOperation> = extra.slow_operations.longest.iter().filter(of_task).cloned().collect();
    let (again, with) = fill(operations.iter().map(watched).collect());
    assert_eq!(again, finish, "facts change nothing");
    assert_eq!((with.steps, &with.slow_operations), (extra.steps, &extra.slow_operations));
    assert_eq!(with.why.len(), operations.len());
    (finish, with, operations)
}

#[test]
fn a_run_is_the_same_with_facts_and_they_are_within_their_operations() {
    let (_, extra, operations) = explained();
    assert!(operations.len() > 20, "{}", operations.len());
    for (operation, story) in operations.iter().zip(&extra.why) {
        let Watched { task, start, end } = watched(operation);
        assert_eq!(story.is_whole, [true; 2], "{operation:?}");
        assert!(story.facts.is_sorted_by_key(|told| told.at));
        let is_foreign = |told: &&Told| told.by != task;
        let is_reason = |told: &Told| {
            matches!(told.fact, Fact::DeferCompaction { .. } | Fact::WakeupKswapd { kswapd: Kswapd::Woken, .. })
        };
        assert!(story.facts.iter().filter(is_foreign).all(is_reason));
        let own: Vec<&Told> = story.facts.iter().filter(|told| told.by == task).collect();
        for told in &own {
            match &told.fact {
                // The request is refused in the step before, and an answer may be taken in the step behind.
                Fact::Request { .. }
                | Fact::PassedOver { .. }
                | Fact::SlowPath { .. }
                | Fact::WakeupKswapd { .. }
                | Fact::SpinWait { .. }
                | Fact::ThpFallback => {}
                Fact::Waited { since, .. } => assert!(start <= *since && told.at <= end, "{told:?} of {operation:?}"),
                _ => assert!((start..=end).contains(&told.at), "{told:?} of {operation:?}"),
            }
        }
        // An operation that asked for memory begins with the refusal, and the slow path has one end.
        if let Some(order) = operation.order {
            let is_begin = |told: &&&Told| told.fact == Fact::SlowPath { order };
            let is_end = |told: &&&Told| matches!(told.fact, Fact::SlowPathEnd { order: its, .. } if its == order);
            let counts = (own.iter().filter(is_begin).count(), own.iter().filter(is_end).count());
            assert!(counts.0 >= 1 && counts.0 == counts.1, "{counts:?} in {operation:?}");
        }
    }
}

#[test]
fn the_waits_among_facts_are_the_times_of_their_causes() {
    let (_, extra, operations) = explained();
    let mut checked = 0;
    for (operation, story) in operations.iter().zip(&extra.why) {
        for (cause, time) in operation.spent.by_cause().filter(|(cause, _)| cause.name() == "swap") {
            let waited = story.facts.iter().filter_map(|told| match &told.fact {
                Fact::Waited { cause: of, since, .. } if of == cause.name() => Some(told.at.since(*since)),
                _ => None,
            });
            let waited: Picos = waited.sum();
            assert!(waited <= time, "{waited:?} of {time:?} in {operation:?}");
            checked += usize::from(waited > Picos(0));
        }
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn refusals_say_what_the_free_lists_hold() {
    let (_, extra, _) = explained();
    let facts = extra.why.iter().flat_map(|story| &story.facts);
    let mut refusals = [0; 3];
    for told in facts {
        let Fact::PassedOver { order, room, lacks, .. } = &told.fact else { continue };
        let free: u64 = (0..).zip(&room.blocks).map(|(order, blocks)| blocks << order).sum();
        assert_eq!(room.free, free, "{told:?}");
        let largest = room.blocks.iter().rposition(|blocks| *blocks > 0);
        assert!(room.needs >= room.keeps + u64::from(order.frames()) - 1, "{told:?}");
        match lacks {
            Lacks::Frames => assert!(room.free <= room.needs, "{told:?}"),
            Lacks::Block => assert!(room.free > room.needs && largest < Some(order.0.into()), "{told:?}"),
            Lacks::List => assert!(room.free > room.needs, "{told:?}"),
        }
        refusals[*lacks as usize] += 1;
    }
    assert!(refusals[0] > 20, "{refusals:?}");
}

#[test]
fn facts_and_counters_count_the_same() {
    let (finish, extra, operations) = explained();
    let count = |is: fn(&Fact) -> u64| {
        let facts = extra.why.iter().flat_map(|story| &story.facts);
        facts.map(|told| is(&told.fact)).sum::<u64>()
    };
    let counters = &finish.counters;
    let begun = count(|fact| u64::from(matches!(fact, Fact::ReclaimBegin { .. })));
    let ended = count(|fact| u64::from(matches!(fact, Fact::ReclaimEnd { .. })));
    assert!(begun > 0 && begun == ended);
    // A request that enters the slow path leaves it within the operation's facts, whatever comes of it.
    for story in &extra.why {
        let of = |is: fn(&Fact) -> bool| story.facts.iter().filter(|told| is(&told.fact)).count();
        let entered = of(|fact| matches!(fact, Fact::SlowPath { .. }));
        assert_eq!(entered, of(|fact| matches!(fact, Fact::SlowPathEnd { .. })), "{:?}", story.facts);
    }
    assert!(begun <= counters.get(Event::AllocstallMovable) + counters.get(Event::AllocstallNormal));
    let stolen = count(|fact| if let Fact::ReclaimEnd { reclaimed, .. } = fact { *reclaimed } else { 0 });
    let direct = counters.get(Event::PgstealDirect);
    // Khugepaged reclaims too.
    assert!(stolen > direct / 2 && stolen <= direct, "{stolen} and {direct}");
    let scanned = count(|fact| if let Fact::ReclaimEnd { scanned, .. } = fact { *scanned } else { 0 });
    assert!(scanned > 0 && scanned <= counters.get(Event::PgscanDirect), "{scanned}");
    let moved = count(|fact| if let Fact::CompactionEnd { migrate_scanned, .. } = fact { *migrate_scanned } else { 0 });
    assert!(moved <= counters.get(Event::CompactMigrateScanned), "{moved}");
    let fallbacks = count(|fact| u64::from(*fact == Fact::ThpFallback));
    assert!(fallbacks <= counters.get(Event::ThpFaultFallback), "{fallbacks}");
    let asks = |operation: &&SlowOperation| operation.order == Some(Order::HUGE);
    assert!(operations.iter().filter(asks).count() as u64 >= fallbacks.min(1));
}
