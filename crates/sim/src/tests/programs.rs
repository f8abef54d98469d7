//! A benchmark beside programs that a system starts every ten seconds.

use mm::whole::state::System;

use super::*;

/// A machine of 32 MiB whose system has four programs.
fn with_programs(seed: u64) -> Config {
    let programs = Frames(4 * System::PROGRAM.0);
    let mut config = larger(ThpEnabled::Always);
    config.system = Some(System { anonymous: Frames(20), kernel: Frames(0), percent: 10, programs, varies: 0 });
    Config { seed, ..config }
}

/// Faults, and those that had to read, in ten seconds: as long as caches are kept, and after they were dropped.
fn faults(config: &Config) -> [(i64, i64); 2] {
    let run = async |os: Sim| {
        // From the second round on.
        os.sleep(Picos::from_secs(10)).await;
        let kept = faults_in_ten_seconds(&os).await;
        os.drop_caches().await.unwrap();
        [kept, faults_in_ten_seconds(&os).await]
    };
    simulate(config, no_entries, run).0
}

async fn faults_in_ten_seconds(os: &Sim) -> (i64, i64) {
    let before = os.vmstat().await.unwrap();
    os.sleep(Picos::from_secs(10)).await;
    let moved = os.vmstat().await.unwrap().since(&before);
    ["pgfault", "pgmajfault"].map(|name| moved[name]).into()
}

#[test]
fn programs_are_read_again_after_caches_were_dropped() {
    let [kept, dropped] = faults(&with_programs(1));
    assert_eq!((kept.1, dropped.1), (0, 4), "one major fault for each program, once");
    // Their own pages, and the pages of the files, 16 of which are mapped by one fault.
    assert!((400..=400 + 4 * 64).contains(&kept.0), "{kept:?}");
}

#[test]
fn the_seed_says_how_long_ago_they_were_started() {
    let begins = |seed| simulate(&with_programs(seed), no_entries, async |os: Sim| os.now()).0;
    let times: Vec<Time> = (1..5).map(begins).collect();
    assert!(times.iter().all(|time| *time < Time(Picos::from_secs(11).0)), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[0] != pair[1]), "{times:?}");
    assert_eq!(times[0], begins(1));
}

#[test]
fn a_system_without_programs_is_as_if_nothing_ran() {
    let mut config = with_programs(1);
    config.system = config.system.map(|system| System { programs: Frames(0), ..system });
    let begins = simulate(&config, no_entries, async |os: Sim| os.now()).0;
    assert!(begins < Time(Picos::from_secs(1).0), "{begins:?}");
    assert_eq!(faults(&config), [(0, 0), (0, 0)]);
}

#[test]
fn khugepaged_was_awake_before_the_first_huge_page_of_a_benchmark() {
    let run = |config: &Config| {
        let base_pages = async |os: Sim| {
            let range = os.mmap(Bytes::mib(4), MapSpec::Anonymous).await.unwrap();
            os.madvise(range, os::Advice::NoHugePage).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.madvise(range, os::Advice::HugePage).await.unwrap();
            let from = os.now();
            while os.vmstat().await.unwrap().0.get("thp_collapse_alloc").is_none_or(|made| *made == 0) {
                os.sleep(Picos::from_micros(100_000)).await;
            }
            os.now().since(from)
        };
        simulate(config, no_entries, base_pages).0
    };
    let mut alone = with_programs(1);
    alone.system = None;
    assert!(run(&alone) < Picos::from_micros(200_000), "it is woken by the first process");
    let waits: Vec<Picos> = (1..6).map(|seed| run(&with_programs(seed))).collect();
    assert!(waits.iter().any(|wait| *wait > Picos::from_secs(1)), "it wakes when it would have: {waits:?}");
}
