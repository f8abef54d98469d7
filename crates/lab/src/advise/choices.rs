//! Settings that may help, each with the values that are tried.

use serde::Serialize;
use units::{Bytes, setting};

use super::demand::Demand;

/// Memory that may be kept free, as a part of all.
const FREE_MOST: u64 = 20;

/// A setting with a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    /// The kernel's name of the setting.
    pub(super) name: String,
    /// The value that it has now, where that is known.
    pub(super) now: Option<String>,
    /// The value that is tried.
    pub(super) value: String,
}

/// Values that a machine of a release may be set to, by setting; `now` says the value that it has.
pub(super) fn choices(
    release: (u32, u32),
    nodes: usize,
    demand: &Demand,
    now: impl Fn(&str) -> Option<String>,
) -> Vec<Choice> {
    let mut all = Vec::new();
    let mut offer = |name: &str, values: &[String]| {
        let Some(known) = setting::find(name).filter(|known| known.since <= release) else { return };
        let current = now(name);
        let values = values.iter().filter(|value| Some(*value) != current.as_ref() && known.takes.accepts(value));
        all.extend(values.map(|value| Choice { name: name.to_owned(), now: current.clone(), value: value.clone() }));
    };
    let words = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    offer("transparent_hugepage/enabled", &words(&["always", "madvise", "never"]));
    let efforts: &[&str] = match release {
        (..4, _) | (4, ..6) => &["always", "madvise", "never"],
        (4, ..11) => &["always", "defer", "madvise", "never"],
        _ => &["always", "defer", "defer+madvise", "madvise", "never"],
    };
    offer("transparent_hugepage/defrag", &words(efforts));
    if let Some(kib) = now("vm.min_free_kbytes").and_then(|text| text.parse::<u64>().ok()) {
        let most = demand.memory / FREE_MOST / Bytes::kib(1).0;
        let larger = [2, 4, 8].map(|times| kib.saturating_mul(times)).into_iter().filter(|kib| *kib <= most);
        offer("vm.min_free_kbytes", &larger.map(|kib| kib.to_string()).collect::<Vec<_>>());
    }
    offer("vm.watermark_scale_factor", &words(&["10", "50", "200", "500"]));
    offer("vm.watermark_boost_factor", &words(&["0", "15000"]));
    offer("vm.compaction_proactiveness", &words(&["0", "20", "60"]));
    offer("vm.extfrag_threshold", &words(&["100", "500", "900"]));
    if demand.swapped > 0 {
        offer("vm.swappiness", &words(&["1", "20", "60", "100"]));
    }
    if demand.writes > 0 {
        offer("vm.dirty_background_ratio", &words(&["2", "10"]));
        offer("vm.dirty_ratio", &words(&["5", "20", "40"]));
        offer("vm.vfs_cache_pressure", &words(&["50", "100", "200"]));
    }
    if nodes > 1 {
        offer("kernel.numa_balancing", &words(&["0", "1"]));
    }
    all
}
