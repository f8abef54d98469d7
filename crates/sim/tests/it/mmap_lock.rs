//! Two tasks on one mmap_lock: who waits, and for how long, by the rules of each kernel.

use memory::cost::{Cause, Prices, Work};
use os::{MapSpec, Os, Placement};
use rules::variant;
use sim::{Config, Finish, Sim, simulate};
use units::{Bytes, Picos};

use crate::support::{self, no_entries};

/// Time of waking a task.
const WAKE_UP: Picos = Picos::from_micros(10);

/// A machine on which a fault takes 1.1 us, most of it with the mmap lock held.
fn machine(rules: &str) -> Config {
    Config {
        variant: *variant::named(rules),
        prices: Prices::new(|work| match work {
            Work::Trap | Work::ClearFrame => Picos::from_nanos(400),
            Work::UserTouch | Work::PteScan | Work::TailFrame | Work::TailFree => Picos::from_nanos(2),
            Work::WakeUp => WAKE_UP,
            Work::WakeOther => Picos::from_micros(1),
            _ => Picos::from_nanos(20),
        }),
        ..support::machine(2, 64 << 10)
    }
}

/// A thread stores to 32 MiB; another one maps and unmaps a page, as often as it can in that time. How often that was, and
/// the longest that one of them took.
fn writer_against_reader(rules: &str) -> (usize, Picos, Finish) {
    let ((count, longest), finish) = simulate(&machine(rules), no_entries, async |os: Sim| {
        let range = os.mmap(Bytes::mib(32), MapSpec::Anonymous).await.unwrap();
        let meet = os.barrier(2).await.unwrap();
        let reader = os.spawn(Placement::Spread(1), async move |os: Sim| {
            os.arrive(meet).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.now()
        });
        os.arrive(meet).await.unwrap();
        let mut ends = vec![os.now()];
        for _ in 0..20_000 {
            let page = os.mmap(Bytes::PAGE, MapSpec::Anonymous).await.unwrap();
            os.munmap(page).await.unwrap();
            ends.push(os.now());
        }
        let over = reader.await.unwrap();
        let in_time: Vec<_> = ends.into_iter().filter(|end| *end <= over).collect();
        let longest = in_time.windows(2).map(|pair| pair[1].since(pair[0])).max();
        (in_time.len() - 1, longest.unwrap_or_default())
    });
    (count, longest, finish)
}

#[test]
fn a_writer_gets_the_lock_from_a_constantly_faulting_reader() {
    let times = |rules| writer_against_reader(rules).0;
    // Asleep, it is woken by the first fault that ends, and no other one begins before it had the lock: for each of its two
    // locks the reader that it kept out wakes up, faults once, and then the writer wakes up.
    let (old, longest, _) = writer_against_reader("v5.0");
    assert!(longest > WAKE_UP + WAKE_UP, "{longest}");
    assert!(longest < WAKE_UP + WAKE_UP + WAKE_UP + WAKE_UP + Picos::from_micros(20), "{longest}");
    // It spins through the short hold, and pays no wake-up.
    let spinning = times("v5.3");
    assert!(spinning > old, "spinning on readers {spinning}, asleep {old}");
    assert!(old > 100, "{old}");
}

#[test]
fn both_wait_and_the_parts_say_so() {
    for rules in ["v3.9", "v5.0", "v5.3", "v6.1"] {
        let (_, _, finish) = writer_against_reader(rules);
        let waited = finish.times.cpu.on(Cause::MmapLock) + finish.times.waiting.on(Cause::MmapLock);
        assert!(waited > Picos::from_micros(1000), "{rules}: {waited}");
    }
}

/// Two threads with huge faults of some microseconds and mappings between them: the slower thread's time for 60 rounds,
/// relative to a thread alone.
fn huge_storm(rules: &str) -> f64 {
    let elapsed = |tasks: u32| {
        let mut config = machine(rules);
        config.thp_enabled = mm::thp::ThpEnabled::Always;
        let (spans, _) = simulate(&config, no_entries, async move |os: Sim| {
            let meet = os.barrier(tasks).await.unwrap();
            let one = async move |os: Sim| {
                os.arrive(meet).await.unwrap();
                let begin = os.now();
                for _ in 0..60 {
                    let range = os.mmap(Bytes::mib(10), MapSpec::Anonymous).await.unwrap();
                    os.store(range, Bytes::HUGE_PAGE).await.unwrap();
                    os.munmap(range).await.unwrap();
                }
                os.now().since(begin)
            };
            let threads: Vec<_> = (0..tasks).map(|id| os.spawn(Placement::Spread(id), one)).collect();
            let mut spans = Vec::new();
            for thread in threads {
                spans.push(thread.await.unwrap());
            }
            spans
        });
        spans.into_iter().max().unwrap().as_secs_f64()
    };
    elapsed(2) / elapsed(1)
}

#[test]
fn a_stealing_reader_starves_a_writer_until_the_handoff() {
    // The writer spins for 10 us on a huge fault of 200 us, in vain, and sleeps. Up to 5.10 its wait keeps readers out; from
    // 5.11 on the reader that lets go takes the lock again before the writer has woken up, time and again.
    let (fair, stealing, vma_locks) = (huge_storm("v5.3"), huge_storm("v5.11"), huge_storm("v6.18"));
    assert!(fair < 1.3, "{fair}");
    assert!(stealing > 1.2 * fair, "stealing {stealing}, fair {fair}");
    assert!(vma_locks < fair, "VMA locks {vma_locks}, fair {fair}");
}
