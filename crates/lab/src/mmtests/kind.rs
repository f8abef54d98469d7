//! The benchmarks of mmtests whose numbers are understood.

use report::Metric;

/// A benchmark whose logs are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
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
pub(super) const TESTS: [(&str, Kind); 7] = [
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
    pub(super) fn of_test(test: &str) -> Option<Self> {
        TESTS.iter().find(|(name, _)| *name == test).map(|(_, kind)| *kind)
    }

    /// The benchmark whose numbers a cell has.
    pub(super) fn of_metrics(metrics: &[Metric]) -> Option<Self> {
        metrics.iter().find_map(|metric| match metric.name.as_str() {
            "fault_latency_us" => Some(Self::Faults),
            "time_s" => Some(Self::Programs),
            "bops" => Some(Self::Warehouses),
            name if name.ends_with(".iterations") => Some(Self::Stores),
            _ => None,
        })
    }

    pub(super) fn test(self) -> &'static str {
        TESTS.iter().find(|(_, kind)| *kind == self).expect("each has a name").0
    }

    /// The workload of ours that does the same.
    pub(super) fn workload(self) -> &'static str {
        match self {
            Self::Faults => "thpscale",
            Self::Programs => "autonumabench",
            Self::Warehouses => "warehouses",
            Self::Stores => "will-it-scale",
        }
    }
}

/// The names of tests that are understood, for messages.
pub(super) fn known_tests() -> String {
    TESTS.map(|(name, _)| name).join(", ")
}

/// The identity of a metric in logs: its name, its class, and its case.
pub(super) fn place<'a>(metric: &'a Metric, label: &'a str) -> (&'a str, Option<&'a str>, &'a str) {
    (&metric.name, metric.class.as_deref(), metric.part.as_deref().unwrap_or(label))
}
