//! Results in the layout of mmtests (gormanm/mmtests): written for its own `compare-kernels.sh`, and read so that a run on a real
//! machine stands beside a simulated one.
//!
//! | file | has |
//! |---|---|
//! | `write.rs` | a result as mmtests' `work/log` |
//! | `read.rs` | what a directory or file holds: runs of mmtests, an export of ours, its JSON, pairs of /proc/vmstat |
//! | `logs.rs` | the logs of each benchmark, both ways |
//! | `sysstate.rs` | counters and times around a test, both ways |
//! | `json.rs` | what `compare-mmtests.pl --json-export` writes |
//! | `captures.rs` | two captures of /proc/vmstat, as `pagelab compare` takes them |
//! | `config.rs` | configurations of mmtests as experiments of ours |
//! | `stride.rs` | the numbers of threads that mmtests tries |
//! | `found.rs` | numbers from elsewhere, before they have a place |
//! | `foreign.rs` | tables in mails, the JSON and mails of the kernel robot (LKP), will-it-scale's CSV |
//! | `kind.rs` | the benchmarks, and the tests that have them |
//! | `beside.rs` | what an export keeps beside mmtests' files |
//! | `like.rs` | rows that numbers from elsewhere stand in |
//!
//! An export keeps beside mmtests' files, in `pagelab.json`, what they cannot say (keys, counters of each case). The numbers of a
//! benchmark are in its logs alone.

mod beside;
pub(crate) mod captures;
pub(crate) mod config;
mod foreign;
mod found;
mod json;
mod kind;
mod like;
mod logs;
mod read;
pub(crate) mod stride;
mod sysstate;
#[cfg(test)]
mod tests;
mod write;

pub use self::write::{Exported, export};
pub(crate) use self::{
    like::Like,
    read::{ELSEWHERE, contents, is_ours},
};
