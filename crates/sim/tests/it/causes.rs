//! Where the time of a run went: the parts are all there is, and none is counted twice.

use memory::cost::{Cause, Prices, Work};
use mm::thp::ThpEnabled;
use os::{Advice, MapSpec, Os, Placement, Rusage, VmRange};
use rules::variant;
use sim::{Config, Options, Sim, Times, simulate, simulate_with};
use units::{Bytes, Picos, Time, VirtAddr};

use crate::support::{self, no_entries};

/// Longer than anything else in these runs.
const LONG: Picos = Picos::from_secs(10);

fn machine(cpus: u32, thp_enabled: ThpEnabled) -> Config {
    Config {
        // munmap keeps faults out to its end.
        variant: *variant::named("v4.19"),
        thp_enabled,
        prices: Prices::new(|work| match work {
            Work::ClearFrame | Work::Trap => Picos::from_nanos(400),
            _ => Picos::from_nanos(20),
        }),
        ..support::machine(cpus, 64 << 10)
    }
}

fn busy(used: Rusage) -> Picos {
    used.user + used.system
}

/// Times that can be told from outside: those in which tasks had a CPU, and those in which they had none and did not want to.
struct Outside {
    busy: Picos,
    waited: Picos,
    /// From the first task's begin to the last other one's end, and what was busy in it.
    span: Picos,
    busy_in_span: Picos,
}

/// Runs `tasks` threads, task i on CPU i modulo CPUs; meanwhile the first task sleeps, so that it waits for nobody.
fn storm(config: &Config, tasks: u32) -> (Outside, Times) {
    let one = async |os: Sim| {
        for _ in 0..4 {
            let range = os.mmap(Bytes::mib(8), MapSpec::Anonymous).await.unwrap();
            os.store(range, Bytes::PAGE).await.unwrap();
            os.munmap(range).await.unwrap();
        }
        (os.now(), busy(os.rusage().await.unwrap()))
    };
    let body = async move |os: Sim| {
        let (start, used) = (os.now(), busy(os.rusage().await.unwrap()));
        let spawned: Vec<_> = (0..tasks).map(|id| (os.now(), os.spawn(Placement::Spread(id), one))).collect();
        let (asleep, used_asleep) = (os.now(), busy(os.rusage().await.unwrap()));
        os.sleep(LONG).await;
        let awake = os.now();
        let mut all = Outside { busy: Picos(0), waited: Picos(0), span: Picos(0), busy_in_span: used_asleep - used };
        for (begin, task) in spawned {
            let (end, used): (Time, Picos) = task.await.unwrap();
            all.span = all.span.max(end.since(start));
            all.busy += used;
            all.busy_in_span += used;
            all.waited += end.since(begin) - used;
        }
        let own = busy(os.rusage().await.unwrap());
        all.busy += own;
        all.waited += asleep.since(start) + (awake.since(asleep) - LONG) - (own - used);
        all
    };
    let (outside, finish) = simulate(config, no_entries, body);
    (outside, finish.times)
}

/// The end of a process with nothing mapped takes less: it gives back the last page table, and perhaps drains a list. Nobody
/// lives to tell.
const EXIT: Picos = Picos::from_micros(2);

#[test]
fn parts_sum_to_the_time_of_all_tasks() {
    for (seed, thp_enabled) in (1..=16).zip([ThpEnabled::Never, ThpEnabled::Always].into_iter().cycle()) {
        let config = Config { seed, ..machine(2, thp_enabled) };
        let (outside, times) = storm(&config, 4);
        let exit = times.cpu.total() - outside.busy;
        assert!(exit > Picos(0) && exit < EXIT, "{thp_enabled:?}: {exit:?}");
        // khugepaged waits for a CPU too, and nobody sees it from outside.
        let unseen = times.waiting.total() - outside.waited;
        assert!(unseen == Picos(0) || thp_enabled == ThpEnabled::Always, "{thp_enabled:?}, seed {seed}: {unseen:?}");
        let sum = |parts: &mut dyn Iterator<Item = (Cause, Picos)>| parts.map(|(_, span)| span).sum::<Picos>();
        assert_eq!(sum(&mut times.cpu.by_cause()), times.cpu.total());
        let waited: Vec<Cause> = times.waiting.by_cause().map(|(cause, _)| cause).collect();
        assert_eq!(waited, [Cause::MmapLock, Cause::RunQueue], "{thp_enabled:?}");
    }
}

#[test]
fn a_task_without_a_cpu_has_neither_user_nor_system_time() {
    // One CPU that always has something to do is busy exactly as long as time passes, however many want it.
    for tasks in [1, 2, 5] {
        let (outside, times) = storm(&machine(1, ThpEnabled::Never), tasks);
        assert_eq!(outside.busy_in_span, outside.span, "{tasks} tasks");
        assert_eq!(times.waiting.total() > Picos::from_micros(1000), tasks > 1, "{tasks} tasks");
    }
    let (outside, _) = storm(&machine(2, ThpEnabled::Never), 4);
    assert!(outside.busy_in_span <= outside.span + outside.span && outside.busy_in_span > outside.span);
}

#[test]
fn each_of_a_million_latencies_is_the_sum_of_its_parts() {
    // Prices without a common divisor: no two mistakes cancel. The simulator compares where an operation ends, and panics.
    let prices = Prices::new(|work| Picos(20_011 + 1_009 * work as u64));
    let mut operations = 0;
    for (seed, rules) in (1..).zip(["v4.1", "v6.1", "v6.7", "v6.12"]) {
        let config =
            Config { seed, variant: *variant::named(rules), prices: prices.clone(), ..machine(3, ThpEnabled::Madvise) };
        let body = async move |os: Sim| {
            let one = async |os: Sim| {
                for round in 0..160 {
                    let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
                    if round % 8 == 0 {
                        os.madvise(range, Advice::HugePage).await.unwrap();
                    }
                    // A system call or a fault each.
                    for page in 0..256 {
                        let start = VirtAddr(range.start.0 + page * Bytes::PAGE.0);
                        os.store(VmRange { start, len: Bytes::PAGE }, Bytes::PAGE).await.unwrap();
                    }
                    os.munmap(range).await.unwrap();
                }
            };
            let tasks: Vec<_> = (0..7).map(|id| os.spawn(Placement::Spread(id), one)).collect();
            for task in tasks {
                task.await.unwrap();
            }
        };
        let ((), finish, extra) = simulate_with(&config, Options::default(), no_entries, body);
        operations += extra.operations;
        let waits = [Cause::MmapLock, Cause::RunQueue].map(|cause| finish.times.waiting.on(cause));
        assert!(waits.iter().all(|wait| *wait > Picos(0)), "{rules}: {waits:?}");
        assert!(finish.times.cpu.on(Cause::ZoneLock) > Picos(0) && finish.times.cpu.on(Cause::Ipi) > Picos(0));
    }
    assert!(operations > 1_000_000, "{operations} operations");
}
