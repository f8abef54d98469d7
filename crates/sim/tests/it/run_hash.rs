//! The run hash sees everything: whatever one step of a run loses, the hash is another one.

use memory::{
    cost::{Cause, Prices, Work},
    event::Event,
};
use mm::thp::ThpEnabled;
use rules::zone::Settings;
use sim::{Config, EntryFuture, Extra, Finish, Injection, Lost, Options, Sim, simulate, simulate_with};
use units::{Bytes, Picos};

use crate::support;
use workloads::{Outcome, Workload};

/// Each primitive has a price of its own, none of them zero.
fn prices() -> Prices {
    Prices::new(|work| Picos(100_003 + 9_007 * work as u64))
}

/// Two CPUs, 64 MiB.
fn machine() -> Config {
    Config {
        settings: Settings { min_free_kbytes: 1024, ..Settings::default() },
        thp_enabled: ThpEnabled::Always,
        prices: prices(),
        cap: Bytes::mib(32),
        ..support::machine(2, 16 << 10)
    }
}

fn entries(name: &'static str, params: Vec<u8>) -> EntryFuture {
    Box::pin(async move {
        let result = workloads::run_entry(Sim, name, &params).await.ok_or_else(|| format!("no entry {name:?}"))?;
        result.map_err(|error| error.to_string())
    })
}

fn run(page: &str, model: &str, loss: Option<Injection>) -> (Outcome, Finish, Extra) {
    let params = [("page", page), ("model", model), ("tasks", "2"), ("iterations", "2"), ("warmup", "0")];
    let params = params.into_iter().chain([("size", "2MiB")]);
    let workload = Workload::parse("fault-storm", params).unwrap();
    let body = async move |os| workload.run(os, 1).await.unwrap();
    simulate_with(&machine(), Options { loss, ..Options::default() }, entries, body)
}

/// Every step of small runs, one loss at a time: the price of one PTE write, and one of each event that it counted.
#[test]
fn one_pte_write_or_one_counter_less_is_another_hash() {
    let pte_write = Lost::Time(Cause::PageTable, prices().of(Work::PteWrite));
    for (page, model) in [("base", "processes"), ("huge", "threads")] {
        let (_, whole, Extra { steps, lost, .. }) = run(page, model, None);
        assert!(!lost && steps > 10, "{steps} steps");
        let losses = std::iter::once(pte_write).chain(Event::ALL.iter().map(|event| Lost::Count(*event)));
        let (mut writes, mut counts) = (0, 0);
        for lost in losses.filter(|lost| could_happen(*lost, &whole)) {
            for step in 0..steps {
                let (_, finish, extra) = run(page, model, Some(Injection { step, lost }));
                assert_eq!(finish.hash != whole.hash, extra.lost, "{page} {model}: step {step} of {steps}, {lost:?}");
                writes += u64::from(extra.lost && lost == pte_write);
                counts += u64::from(extra.lost && lost != pte_write);
            }
        }
        assert!(writes >= 10 && counts >= 10, "{page} {model}: {writes} PTE writes and {counts} counts were left out");
    }
}

fn could_happen(lost: Lost, whole: &Finish) -> bool {
    match lost {
        Lost::Time(..) | Lost::Task => true,
        Lost::Count(event) => whole.counters.get(event) > 0,
    }
}

/// Faults in another order, or at other pages, within one step: only the fold of faults sees it.
#[test]
fn faults_are_in_the_hash_one_by_one() {
    let touch = |pages: [u64; 2]| {
        let body = async move |os: Sim| {
            use os::{MapSpec, Os, VmRange};
            let range = os.mmap(Bytes::mib(1), MapSpec::Anonymous).await.unwrap();
            // The tables come first, so that the two stores cost the same, whichever page they are to.
            os.store(VmRange { len: Bytes::PAGE, ..range }, Bytes::PAGE).await.unwrap();
            for page in pages {
                let start = units::VirtAddr(range.start.0 + page * Bytes::PAGE.0);
                os.store(VmRange { start, len: Bytes::PAGE }, Bytes::PAGE).await.unwrap();
            }
        };
        let ((), finish) = simulate(&machine(), entries, body);
        finish
    };
    let (base, other) = (touch([3, 5]), touch([5, 3]));
    assert_eq!(base.counters, other.counters);
    assert_ne!(base.hash, other.hash);
    assert_eq!(base, touch([3, 5]));
}

#[test]
fn machines_of_any_size_repeat_themselves() {
    let run = |cpus: u32, model: &str, seed: u64| {
        // Two tasks per CPU, so that they wait for their CPU too.
        let tasks = (2 * cpus).to_string();
        let params = [("model", model), ("tasks", &tasks), ("iterations", "2"), ("warmup", "0"), ("size", "2MiB")];
        let workload = Workload::parse("fault-storm", params).unwrap();
        let config = Config { prices: prices(), cap: Bytes::gib(1), seed, ..support::machine(cpus, 192 << 10) };
        let body = async move |os| workload.run(os, 1).await.unwrap();
        simulate(&config, entries, body)
    };
    for cpus in [1, 4, 16, 96] {
        for model in ["threads", "processes"] {
            let once = run(cpus, model, 1);
            assert_eq!(once, run(cpus, model, 1), "{cpus} CPUs, {model}");
            assert_ne!(once.1.hash, run(cpus, model, 2).1.hash, "{cpus} CPUs, {model}: the control, another seed");
        }
    }
}
