//! An operation with its facts.

use memory::fact::Told;
use report::Key;
use serde::Serialize;

/// An operation with its facts.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The operation's place among the operations of the cells that were asked about, from 1: the slowest first.
    pub(super) stall: usize,
    /// The cell.
    pub(super) key: Key,
    /// The kind of operation.
    pub(super) what: String,
    /// The kernel, where the run has several: `host`, or `guest 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// Whether this is the work of a kernel thread.
    #[serde(skip)]
    pub(super) is_thread: bool,
    /// When it left the fast path, in picoseconds since the start of the run.
    pub(super) start_ps: u64,
    /// The whole time, in picoseconds.
    pub(super) time_ps: u64,
    /// The number of the task.
    pub(super) task: u32,
    /// The CPU at the start.
    pub(super) cpu: u32,
    /// The virtual page of a fault.
    pub(super) vpn: Option<u64>,
    /// The order that was asked for.
    pub(super) order: Option<u8>,
    /// The time by cause, in picoseconds, the longest first.
    pub(super) parts: Vec<(String, u64)>,
    /// The facts, by instant.
    pub(super) facts: Vec<Told>,
}
