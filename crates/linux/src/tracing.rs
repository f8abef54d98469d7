//! Events that /proc/vmstat does not count, counted by the kernel's histogram triggers
//! (Documentation/trace/histogram.rst, v6.1). Only in guests: on a machine that others use, tracefs is theirs too.

use std::{fs, path::Path};

use nix::mount::{MsFlags, mount};

/// Where the guest's tracefs is mounted.
const TRACEFS: &str = "/sys/kernel/tracing";
/// Pages of one mobility taken from a block of another.
const EXTFRAG: &str = "events/kmem/mm_page_alloc_extfrag";

/// Counts fallbacks from now on. A kernel without tracefs or without histograms says why.
pub(crate) fn start() -> Result<(), String> {
    let explain = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), None::<&str>)
        .map_err(|error| explain(TRACEFS, &error))?;
    let trigger = Path::new(TRACEFS).join(EXTFRAG).join("trigger");
    // Eleven orders; 128 entries are the least.
    fs::write(&trigger, "hist:keys=fallback_order:size=128").map_err(|error| explain("histogram triggers", &error))
}

/// How often each event has come since it is counted: `mm_page_alloc_extfrag_order_3`. Empty where nothing counts.
pub(crate) fn counts() -> Vec<(String, u64)> {
    let hist = fs::read_to_string(Path::new(TRACEFS).join(EXTFRAG).join("hist")).unwrap_or_default();
    if !hist.contains("fallback_order") {
        return Vec::new();
    }
    // An order that has not come yet is not listed, but it has been counted.
    let mut counts: Vec<_> = (0..=MAX_ORDER).map(|order| (name(order), 0)).collect();
    for (order, hits) in hist.lines().filter_map(entry) {
        if let Some(count) = counts.get_mut(order) {
            count.1 = hits;
        }
    }
    counts
}

/// The largest order of the buddy allocator (`MAX_ORDER - 1`, include/linux/mmzone.h, v6.1).
const MAX_ORDER: usize = 10;

fn name(order: usize) -> String {
    format!("mm_page_alloc_extfrag_order_{order}")
}

/// `{ fallback_order:          3 } hitcount:         17`.
fn entry(line: &str) -> Option<(usize, u64)> {
    let (key, count) = line.trim().strip_prefix("{ fallback_order:")?.split_once('}')?;
    let hits = count.trim().strip_prefix("hitcount:")?;
    Some((key.trim().parse().ok()?, hits.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_histogram_are_read() {
        assert_eq!(entry("{ fallback_order:         10 } hitcount:         17"), Some((10, 17)));
        assert_eq!(entry("    Hits: 17"), None);
        assert_eq!(
            entry("# trigger info: hist:keys=fallback_order:vals=hitcount:sort=hitcount:size=128 [active]"),
            None
        );
    }
}
