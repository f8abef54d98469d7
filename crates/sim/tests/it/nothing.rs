//! The tests of mechanisms: the run is the same with their counts, and a rule that never fires is named by the test that fails.

use memory::{
    event::Event,
    tally::{Mechanism, Row, Tally, Test},
};
use mm::{
    guest::reporting::ReportingSpec,
    swap::{SwapMedium, SwapSpec},
    thp::{ThpEnabled, khugepaged::KhugepagedSettings},
};
use os::{Advice, MapSpec, Os, Placement};
use rules::variant::{self, ThpDefrag};
use sim::{Config, Finish, Options, Sim, simulate_with};
use units::{Bytes, BytesPerSecond, Order, Picos};

use crate::support::{self, no_entries};

/// 32 MiB, two CPUs, a disk to swap to.
fn small() -> Config {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    let medium = SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth };
    let swap = Some(SwapSpec { size: Bytes::mib(64), medium });
    Config { swap, thp_enabled: ThpEnabled::Always, thp_defrag: ThpDefrag::Always, ..support::machine(2, 8192) }
}

/// A run with its tests counted: it is the same without, and asks no test that its kernel lacks.
fn counted(config: &Config, main: impl AsyncFn(Sim) + Copy + 'static) -> (Finish, Tally) {
    let run = |tests| {
        let options = Options { tests, ..Options::default() };
        simulate_with(config, options, no_entries, async move |os: Sim| main(os).await)
    };
    let ((), finish, plain) = run(false);
    assert!(plain.tests.is_empty(), "none were asked for");
    let ((), again, extra) = run(true);
    assert_eq!(again, finish, "counts change nothing");
    assert_eq!((extra.steps, &extra.slow_operations), (plain.steps, &plain.slow_operations));
    let mut tally = Tally::default();
    tally.add(&extra.tests);
    for row in Row::ALL.iter().filter(|row| tally.sum(row.test).asked > 0) {
        assert!((row.has)(&config.variant), "{:?} is none of this kernel's tests", row.test);
    }
    (finish, tally)
}

/// Two threads store to more memory than there is.
async fn fill(os: Sim) {
    let fill = async move |os: Sim| {
        let range = os.mmap(Bytes::mib(24), MapSpec::Anonymous).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        os.store(range, Bytes::PAGE).await.unwrap();
        os.munmap(range).await.unwrap();
    };
    let other = os.spawn(Placement::Spread(1), fill);
    fill(os).await;
    other.await.unwrap();
}

/// Stores to one page in four of a mapping that may have huge pages only later, and waits for khugepaged.
async fn wait_for_khugepaged(os: Sim) {
    let range = os.mmap(Bytes::mib(12), MapSpec::Anonymous).await.unwrap();
    os.store(range, Bytes::PAGE * 4).await.unwrap();
    os.madvise(range, Advice::HugePage).await.unwrap();
    // New pages leave the CPU's batch.
    let others = os.mmap(Bytes::kib(512), MapSpec::Anonymous).await.unwrap();
    os.store(others, Bytes::PAGE).await.unwrap();
    os.sleep(Picos::from_secs(2)).await;
}

/// Leaves free memory in pieces, and asks for huge pages.
async fn compact(os: Sim) {
    let range = os.mmap(Bytes::mib(26), MapSpec::Anonymous).await.unwrap();
    os.store(range, Bytes::PAGE).await.unwrap();
    for n in 0..26 * 16 {
        let piece = range.part(Bytes::kib(n * 64), Bytes::kib(32));
        os.madvise(piece, Advice::DontNeed).await.unwrap();
    }
    let huge = os.mmap(Bytes::mib(8), MapSpec::Anonymous).await.unwrap();
    os.madvise(huge, Advice::HugePage).await.unwrap();
    os.store(huge, Bytes::HUGE_PAGE).await.unwrap();
}

fn culprit(tally: &Tally, mechanism: Mechanism) -> Test {
    let (test, _, count) = tally.culprit(mechanism).expect("a test failed");
    assert!(count.has_never_passed(), "{test:?} passed at times: {count:?}");
    assert_eq!(tally.done(mechanism), 0);
    test
}

fn with_khugepaged(max_ptes_none: u32) -> Config {
    let khugepaged =
        KhugepagedSettings { max_ptes_none, scan_sleep: Picos::from_millis(10), ..KhugepagedSettings::default() };
    Config { khugepaged, thp_enabled: ThpEnabled::Madvise, ..small() }
}

#[test]
fn a_run_asks_the_tests_of_its_kernel_alone_and_is_the_same_with_counts() {
    for kernel in ["v3.9", "v4.4", "v4.6", "v4.8", "v4.20", "v5.4", "v6.1", "v6.12"] {
        let config = Config { variant: *variant::named(kernel), ..small() };
        let (finish, tally) = counted(&config, fill);
        let passed = |test| tally.sum(test).asked - tally.sum(test).failed;
        let counter = |event| finish.counters.get(event);
        assert!(passed(Test::KswapdFrees) + passed(Test::ReclaimFrees) > 0, "{kernel}");
        assert_eq!(passed(Test::HugeMapped), counter(Event::ThpFaultAlloc), "{kernel}");
        let compacts = Mechanism::KswapdCompaction.is_in(&config.variant);
        assert!(compacts || tally.sum(Test::KswapdCompactOrder).asked == 0, "{kernel}");
    }
}

#[test]
fn khugepaged_that_may_add_no_page_ends_at_max_ptes_none() {
    let (finish, tally) = counted(&with_khugepaged(511), wait_for_khugepaged);
    assert!(finish.counters.get(Event::ThpCollapseAlloc) > 0);
    assert!(tally.done(Mechanism::Khugepaged) > 0);
    let (_, tally) = counted(&with_khugepaged(0), wait_for_khugepaged);
    assert_eq!(culprit(&tally, Mechanism::Khugepaged), Test::KhugepagedNone);
}

#[test]
fn a_boost_factor_of_0_is_named() {
    let (_, tally) = counted(&small(), fill);
    assert!(tally.done(Mechanism::Boost) > 0, "{:?}", tally.culprit(Mechanism::Boost));
    let mut config = small();
    config.settings.watermark_boost_factor = 0;
    let (_, tally) = counted(&config, fill);
    assert_eq!(culprit(&tally, Mechanism::Boost), Test::BoostFactor);
}

#[test]
fn compaction_that_no_fragmentation_is_enough_for_ends_at_the_index() {
    let mut config = Config { thp_enabled: ThpEnabled::Madvise, ..small() };
    let (_, tally) = counted(&config, compact);
    assert!(tally.done(Mechanism::DirectCompaction) > 0, "{:?}", tally.culprit(Mechanism::DirectCompaction));
    config.settings.extfrag_threshold = 1000;
    let (_, tally) = counted(&config, compact);
    assert_eq!(culprit(&tally, Mechanism::DirectCompaction), Test::DirectCompactIndex);
}

#[test]
fn proactive_compaction_that_no_score_is_high_enough_for_ends_at_the_score() {
    let mut config = small();
    config.settings.compaction_proactiveness = 1;
    let (_, tally) = counted(&config, async |os: Sim| os.sleep(Picos::from_secs(3)).await);
    assert_eq!(culprit(&tally, Mechanism::ProactiveCompaction), Test::ProactiveScore);
}

#[test]
fn reports_of_more_than_the_zone_has_end_at_its_watermark() {
    let delay = Picos::from_millis(10);
    let reporting = |order| Config { reporting: Some(ReportingSpec { order: Order(order), delay }), ..small() };
    let main = async |os: Sim| {
        fill(os).await;
        os.sleep(Picos::from_secs(1)).await;
    };
    // 32 blocks of 2 MiB are twice the machine.
    let (_, tally) = counted(&reporting(9), main);
    assert_eq!(culprit(&tally, Mechanism::Reporting), Test::ReportRoom);
    let (_, tally) = counted(&reporting(4), main);
    assert!(tally.done(Mechanism::Reporting) > 0);
}

#[test]
fn faults_for_huge_pages_that_are_off_end_at_the_mapping() {
    let (_, tally) = counted(&Config { thp_enabled: ThpEnabled::Never, ..small() }, fill);
    assert_eq!(culprit(&tally, Mechanism::HugeFault), Test::HugeEligible);
}
