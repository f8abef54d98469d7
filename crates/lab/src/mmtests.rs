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
//! | `like.rs` | rows that numbers from elsewhere stand in |
//!
//! An export keeps beside mmtests' files, in [`BESIDE`], what they cannot say (keys, counters of each case). The numbers of a
//! benchmark are in its logs alone.

mod json;
mod like;
mod logs;
mod read;
mod sysstate;
#[cfg(test)]
mod tests;
mod write;

use report::{Cell, Measured, Metric};
use serde::{Deserialize, Serialize};

pub use self::write::{Exported, export};
pub(crate) use self::{
    like::Like,
    read::{ELSEWHERE, contents, is_ours},
};
use crate::plan::Identity;

/// Beside the runs of an export: what mmtests' files cannot hold.
const BESIDE: &str = "pagelab.json";
/// Version of [`BESIDE`].
const BESIDE_VERSION: u32 = 1;

/// A benchmark whose logs are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Blocks of 2 MiB and how long each took: thpscale and its relatives.
    Faults,
    /// The programs of autonumabench under time(1).
    Programs,
    /// SPECjbb2005: throughput by warehouses.
    Warehouses,
    /// will-it-scale: stores a second.
    Stores,
}

/// Names of tests in mmtests. The first of each kind is the one that mmtests of 2026 knows, under which an export has it.
const TESTS: [(&str, Kind); 7] = [
    ("thpchallenge", Kind::Faults),
    ("thpscale", Kind::Faults),
    ("thpcompact", Kind::Faults),
    ("thpfioscale", Kind::Faults),
    ("autonumabench", Kind::Programs),
    ("specjbb", Kind::Warehouses),
    ("wis-pf", Kind::Stores),
];

impl Kind {
    /// The benchmark that mmtests calls `test`.
    fn of_test(test: &str) -> Option<Self> {
        TESTS.iter().find(|(name, _)| *name == test).map(|(_, kind)| *kind)
    }

    /// The benchmark whose numbers a cell has.
    fn of_metrics(metrics: &[Metric]) -> Option<Self> {
        metrics.iter().find_map(|metric| match metric.name.as_str() {
            "fault_latency_us" => Some(Self::Faults),
            "time_s" => Some(Self::Programs),
            "bops" => Some(Self::Warehouses),
            name if name.ends_with(".iterations") => Some(Self::Stores),
            _ => None,
        })
    }

    fn test(self) -> &'static str {
        TESTS.iter().find(|(_, kind)| *kind == self).expect("each has a name").0
    }

    /// The workload of ours that does the same.
    fn workload(self) -> &'static str {
        match self {
            Self::Faults => "thpscale",
            Self::Programs => "autonumabench",
            Self::Warehouses => "warehouses",
            Self::Stores => "will-it-scale",
        }
    }
}

/// The names of tests that are understood, for messages.
fn known_tests() -> String {
    TESTS.map(|(name, _)| name).join(", ")
}

/// The contents of [`BESIDE`].
#[derive(Debug, Serialize, Deserialize)]
struct Beside {
    version: u32,
    identity: Identity,
    /// Systems and what was skipped.
    records: Vec<report::Record>,
    cells: Vec<CellBeside>,
}

/// A cell without the numbers that are in logs.
#[derive(Debug, Serialize, Deserialize)]
struct CellBeside {
    /// The run's directory under that of the export.
    run: String,
    /// The number of `iter-N`.
    iteration: usize,
    /// The test whose logs have its numbers.
    test: String,
    /// The name of its case in logs, of metrics that have no part.
    label: String,
    cell: Cell,
}

/// The identity of a metric in logs: its name, its class, and its case.
fn place<'a>(metric: &'a Metric, label: &'a str) -> (&'a str, Option<&'a str>, &'a str) {
    (&metric.name, metric.class.as_deref(), metric.part.as_deref().unwrap_or(label))
}

/// Measurements with nothing in them.
fn nothing() -> Measured {
    Measured {
        scored: true,
        metrics: Vec::new(),
        counters: std::collections::BTreeMap::new(),
        gauges: std::collections::BTreeMap::new(),
        duration: None,
        causes: std::collections::BTreeMap::new(),
        extfrag: None,
        memory: None,
        checks: Vec::new(),
        skipped: Vec::new(),
        detail: serde_json::Value::Null,
    }
}
