//! CPUs that several tasks want: who runs, for how long, and what it shows in times.

use memory::{
    cost::{Prices, Work},
    event::Event,
};
use os::{MapSpec, Os, Placement};
use rules::variant;
use sim::{Config, Sim, simulate};
use units::{Bytes, CpuId, Picos, Time};

use crate::support::{self, no_entries};

/// Four CPUs, of which two each share a cache.
const PAIRS: [[CpuId; 2]; 2] = [[CpuId(0), CpuId(1)], [CpuId(2), CpuId(3)]];

/// A machine with `cpus` CPUs and 256 MiB.
fn machine(cpus: u32, rules: &str) -> Config {
    Config {
        variant: *variant::named(rules),
        // Faults take most of the time.
        prices: Prices::new(|work| match work {
            Work::ClearFrame | Work::Trap => Picos::from_nanos(400),
            Work::PteScan => Picos::from_nanos(2),
            _ => Picos::from_nanos(20),
        }),
        ..support::machine(cpus, 64 << 10)
    }
}

/// When a task began and ended, and its user and system time.
struct Life {
    begin: Time,
    end: Time,
    busy: Picos,
}

impl Life {
    fn elapsed(&self) -> Picos {
        self.end.since(self.begin)
    }
}

/// Runs `tasks` threads, task i on CPU i modulo CPUs, each with memory of its own to store to, in rounds.
fn storm(config: &Config, tasks: u32, rounds: u32) -> Vec<Life> {
    placed_storm(config, tasks, rounds, Placement::Spread)
}

/// A storm of tasks, each wherever it is placed; the last round's memory stays.
fn placed_storm(config: &Config, tasks: u32, rounds: u32, place: fn(u32) -> Placement) -> Vec<Life> {
    let body = async move |os: Sim| {
        let meet = os.barrier(tasks).await.unwrap();
        let one = async move |os: Sim| {
            os.arrive(meet).await.unwrap();
            let begin = os.now();
            for round in 1..=rounds {
                let range = os.mmap(Bytes::mib(8), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
                if round < rounds {
                    os.munmap(range).await.unwrap();
                }
            }
            let used = os.rusage().await.unwrap();
            Life { begin, end: os.now(), busy: used.user + used.system }
        };
        let spawned: Vec<_> = (0..tasks).map(|id| os.spawn(place(id), one)).collect();
        let mut lives = Vec::new();
        for task in spawned {
            lives.push(task.await.unwrap());
        }
        lives
    };
    simulate(config, no_entries, body).0
}

#[test]
fn the_last_task_at_a_barrier_wakes_the_others_in_turn() {
    for rules in ["v5.3", "v6.1", "v6.12"] {
        let prices = Prices::new(|work| match work {
            Work::WakeUp => Picos::from_micros(8),
            Work::WakeOther => Picos::from_micros(1),
            _ => Picos::from_nanos(20),
        });
        let lives = storm(&Config { prices, ..machine(4, rules) }, 4, 1);
        let mut begins: Vec<Time> = lives.iter().map(|life| life.begin).collect();
        begins.sort_unstable();
        let gaps: Vec<Picos> = begins.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        // The last one has woken three before it goes on; the first of those was on its way by then.
        assert_eq!(gaps, [6, 1, 1].map(Picos::from_micros), "{rules}: {begins:?}");
    }
}

#[test]
fn tasks_on_one_cpu_share_it_in_slices() {
    let config = machine(1, "v6.1");
    let alone = storm(&config, 1, 8).remove(0).elapsed();
    let lives = storm(&config, 3, 8);
    for life in &lives {
        let ratio = life.elapsed().as_secs_f64() / alone.as_secs_f64();
        assert!((2.2..3.2).contains(&ratio), "each takes about three times as long, not {ratio}");
        let busy = life.busy.as_secs_f64() / alone.as_secs_f64();
        assert!((0.95..1.1).contains(&busy), "but works as much as alone, not {busy} times that");
    }
    let ends: Vec<Time> = lives.iter().map(|life| life.end).collect();
    let spread = ends.iter().max().unwrap().since(*ends.iter().min().unwrap());
    // One round of a tick each; one after the other, it would be twice what one takes alone.
    assert!(spread < Picos::from_micros(3 * 4000), "they ran in turn: {ends:?}");
}

#[test]
fn a_nice_19_task_gets_its_share() {
    // Beside a task of weight 1024, one of weight 15: until the first has done its work the other has 1.44 % of the CPU.
    for rules in ["v6.1", "v6.6", "v6.12"] {
        let share = simulate(&machine(1, rules), no_entries, async |os: Sim| {
            let used = async |os: &Sim| -> f64 {
                let used = os.rusage().await.unwrap();
                (used.user + used.system).as_secs_f64()
            };
            // Both until the same instant, the nice one up to its last look at the clock before.
            // Nobody waits for a lock: who sleeps for one that the nice task holds is placed by what that has had meanwhile,
            // and forgives it its debt.
            let work = async move |os: Sim| {
                let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
                let mut busy = 0.0;
                while os.now() < Time(Picos::from_secs(4).0) {
                    busy = used(&os).await;
                    os.store(range, Bytes(64)).await.unwrap();
                }
                busy
            };
            os.nice_children(19).unwrap();
            let nice = os.spawn(Placement::Spread(0), work);
            os.nice_children(0).unwrap();
            let busy = os.spawn(Placement::Spread(0), work);
            let (nice, busy) = (nice.await.unwrap(), busy.await.unwrap());
            nice / (nice + busy)
        });
        let off = share.0 / (15.0 / 1039.0);
        assert!((0.9..1.1).contains(&off), "{rules}: {} instead of 1.44 %", share.0);
    }
}

#[test]
fn a_task_too_many_goes_round() {
    // Faults that take long, and nobody ever sleeps. One seed gives up to 0.15 more or less than another.
    let spread_of = |seed, rules: &str, place: fn(u32) -> Placement| {
        let config = Config { prices: Prices::new(|_| Picos::from_micros(60)), seed, ..machine(4, rules) };
        let lives = placed_storm(&config, 5, 1, place);
        let elapsed = || lives.iter().map(Life::elapsed);
        elapsed().max().unwrap().as_secs_f64() / elapsed().min().unwrap().as_secs_f64()
    };
    let spread = |rules, place| (1..=12).map(|seed| spread_of(seed, rules, place)).sum::<f64>() / 12.0;
    let (free, pinned) = (spread("v4.1", |_| Placement::Free), spread("v4.1", Placement::Spread));
    assert!(pinned > 1.5, "two share a CPU to the end: {pinned}");
    assert!(free < 1.3, "all of them take turns: {free}");
    // Since 5.5 one more is no imbalance: only who ends makes room.
    let later = spread("v5.8", |_| Placement::Free);
    assert!(later > free, "{later}");
}

#[test]
fn tasks_are_evened_out_and_then_stay() {
    // Three times as many as CPUs, some of which have more at first: nobody has a CPU for itself for long.
    for caches in [Vec::new(), PAIRS.map(Vec::from).to_vec()] {
        let config = Config { prices: Prices::new(|_| Picos::from_micros(60)), caches, ..machine(4, "v4.1") };
        let lives = placed_storm(&config, 12, 1, |_| Placement::Free);
        let elapsed = || lives.iter().map(Life::elapsed);
        let spread = elapsed().max().unwrap().as_secs_f64() / elapsed().min().unwrap().as_secs_f64();
        assert!(spread < 1.15, "{:?}: {spread}", config.caches);
    }
}

#[test]
fn tasks_go_round_between_pairs_that_share_a_cache() {
    // Seven on four CPUs: one has a CPU for itself, but not for long.
    let spread = |caches: &[Vec<CpuId>]| {
        let of = |seed| {
            let (prices, caches) = (Prices::new(|_| Picos::from_micros(60)), caches.to_vec());
            let lives = placed_storm(&Config { prices, caches, seed, ..machine(4, "v4.1") }, 7, 1, |_| Placement::Free);
            let elapsed = || lives.iter().map(Life::elapsed);
            elapsed().max().unwrap().as_secs_f64() / elapsed().min().unwrap().as_secs_f64()
        };
        (1..=64).map(of).sum::<f64>() / 64.0
    };
    let (one, pairs) = (spread(&[]), spread(&PAIRS.map(Vec::from)));
    // One seed gives up to 0.11 more than the mean.
    assert!(pairs < one + 0.02 && one < 1.2, "{pairs}, where all share one {one}");
}

#[test]
fn an_idle_cpu_starts_a_task_at_once() {
    // Where in its tick a CPU is decides when it looks at its queue, not when it can begin.
    for seed in 1..=16 {
        let config = Config { seed, ..machine(4, "v6.1") };
        let (late, _) = simulate(&config, no_entries, async |os: Sim| {
            let mut late = Picos(0);
            for cpu in 1..4 {
                let asked = os.now();
                let begun = os.spawn(Placement::Spread(cpu), async |os: Sim| os.now()).await.unwrap();
                late = late.max(begun.since(asked));
            }
            late
        });
        assert!(late < Picos::from_micros(2), "seed {seed}: {late}");
    }
}

#[test]
fn cpus_work_side_by_side_where_faults_lock_their_vma() {
    let slowest =
        |rules| storm(&machine(4, rules), 4, 4).iter().map(|life| life.elapsed().as_secs_f64()).fold(0.0, f64::max);
    let alone = storm(&machine(4, "v6.4"), 1, 4).remove(0).elapsed().as_secs_f64();
    let (whole, single) = (slowest("v6.1"), slowest("v6.4"));
    assert!(single < 1.6 * alone, "{single} alone: {alone}");
    assert!(whole > single, "one lock for all: {whole}, for each VMA: {single}");
}

#[test]
fn threads_wait_for_each_others_mappings() {
    // Two threads of one process: munmap of one keeps faults of the other out, but for kernels that downgrade.
    let elapsed = |rules| storm(&machine(2, rules), 2, 8).iter().map(Life::elapsed).max().unwrap();
    let alone = storm(&machine(2, "v4.1"), 1, 8).remove(0).elapsed();
    let (old, new) = (elapsed("v4.19"), elapsed("v4.20"));
    assert!(old.as_secs_f64() > 1.1 * alone.as_secs_f64(), "old {old:?}, alone {alone:?}");
    assert!(new < old, "new {new:?}, old {old:?}");
}

#[test]
fn more_tasks_than_cpus_run_the_same_twice() {
    let run = || {
        let lives = storm(&machine(2, "v6.1"), 5, 3);
        lives.iter().map(|life| (life.begin, life.end, life.busy)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn kswapd_wakes_on_a_shortage_and_gives_up_in_vain() {
    let mut config = machine(2, "v6.1");
    config.settings.min_free_kbytes = 8192;
    config.cap = Bytes::mib(300);
    let body = async |os: Sim| {
        let range = os.mmap(Bytes::mib(246), MapSpec::Anonymous).await.unwrap();
        let stored = os.spawn(Placement::Spread(0), async move |os: Sim| os.store(range, Bytes::PAGE).await).await;
        os.sleep(Picos::from_micros(300_000)).await;
        stored.is_ok()
    };
    let (stored, finish) = simulate(&config, no_entries, body);
    assert!(stored, "it fits above the Min mark");
    assert_eq!(finish.counters.get(Event::Pageoutrun), 16, "MAX_RECLAIM_RETRIES runs without success");
}
