//! Observers of a run: time series, the map of memory, the log of slow operations, trace lines, and a run that is stuck.
//!
//! Observers are told of turns and steps and change nothing that is simulated; `livelock.rs` alone ends a run. May use: the
//! data of the world, its kernels, tasks and clock; no scheduler and no lock. Begin with `sampler.rs`, which is called before
//! each turn; `slow_log.rs` is called at each step, `trace.rs` at each event, `why.rs` with each step's facts,
//! `spans.rs` where a task comes, goes, waits or is woken.

pub(crate) mod free_watch;
pub(crate) mod livelock;
pub(crate) mod map_sampler;
pub(crate) mod sampler;
pub(crate) mod slow_log;
pub(crate) mod spans;
pub(crate) mod sweeps;
pub(crate) mod trace;
pub(crate) mod why;
