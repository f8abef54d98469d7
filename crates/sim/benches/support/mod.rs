//! Pieces that benches share.

use nix::{sys::time::TimeValLike, time::ClockId};

/// The entries of a world whose tasks start no program.
pub(crate) fn no_entries(name: &'static str, _: Vec<u8>) -> sim::EntryFuture {
    unreachable!("no task starts a program, not even {name}")
}

/// CPU time of this thread so far, in ns.
pub(crate) fn cpu_ns() -> u64 {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("every thread has this clock");
    u64::try_from(now.num_nanoseconds()).expect("it starts at 0")
}
