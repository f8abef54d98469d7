//! Names of counters: so that a reader can tell a counter that did not move from one that the kernel lacks.

use memory::event::{Counters, Event};
use mm::numa::numa_balancing::{VMA_SKIPS, balances_numa};

use crate::{Config, sched::SchedMoves};

/// Names of all counters that the kernel of a run has, also of those that stay 0.
pub fn counter_names(config: &Config) -> Vec<&'static str> {
    let Config { machine, variant, settings, .. } = config;
    let mut counters = Counters::of(variant);
    // A kernel that can balance has these counters even if balancing is off.
    if variant.numa_balancing {
        counters.of_balancing();
    }
    if config.host.is_some() {
        counters.of_guest();
    }
    if config.balloon.is_some() {
        counters.of_balloon();
    }
    let events = counters.iter().map(|(event, _)| event.name());
    let balances = balances_numa(machine, variant, settings);
    let moves = SchedMoves::default().named().map(|(name, _)| name);
    let moves = moves.into_iter().filter(|_| balances);
    events.chain(moves).chain(VMA_SKIPS.into_iter().filter(|_| balances && variant.numa_vma_by_pid)).collect()
}

/// Names of all counters that the kernel of any run may have.
pub fn all_counter_names() -> Vec<&'static str> {
    let events = Event::ALL.iter().map(|event| event.name());
    let moves = SchedMoves::default().named().map(|(name, _)| name);
    events.chain(moves).chain(VMA_SKIPS).collect()
}
