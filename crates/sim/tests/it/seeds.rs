//! Effects of a seed on a run, and what it does not change.

use memory::{
    cost::{Prices, Work},
    event::Event,
};
use mm::thp::ThpEnabled;
use rules::zone::Settings;
use sim::{Config, Finish, simulate};
use units::{Bytes, Frames, Picos};

use crate::support::{machine, no_entries};

/// A run in which nothing but init does anything.
fn run(seed: u64, held: u64) -> Finish {
    let config = Config {
        settings: Settings::default(),
        thp_enabled: ThpEnabled::Always,
        prices: Prices::new(|work| Picos(if work == Work::Trap { 1000 } else { 1 })),
        cap: Bytes::mib(16),
        seed,
        held: Frames(held),
        ..machine(2, 8192)
    };
    simulate(&config, no_entries, async |_| ()).1
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    assert_eq!(run(1, 0), run(1, 0));
    assert_ne!(run(1, 0).hash, run(2, 0).hash, "clocks start elsewhere");
    assert_eq!(run(1, 0).counters, run(2, 0).counters, "nothing else is drawn");
}

#[test]
fn init_takes_what_it_holds_in_base_pages_before_anything_else() {
    let (none, some) = (run(1, 0), run(1, 700));
    let more = |event| some.counters.get(event) - none.counters.get(event);
    assert_eq!(more(Event::Pgfault), 700);
    assert_eq!(more(Event::ThpFaultAlloc), 0);
    assert_ne!(none.hash, some.hash);
}

#[test]
#[should_panic(expected = "the machine has not the 9000 frames that init holds")]
fn a_machine_that_is_too_small_says_so() {
    run(1, 9000);
}
