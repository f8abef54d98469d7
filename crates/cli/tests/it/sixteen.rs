//! A published result, predicted: what 16 threads lose against 16 processes.

use std::collections::BTreeMap;

use crate::support::{document::Document, room::Room, words};

/// Series s2 (free page reporting v16, January 2020), baseline, 16 tasks: threads against processes, 5.85 M to 8.83 M for
/// `page_fault1` with huge pages and 2.18 M to 3.28 M for `page_fault2`. Issue 4 wants x1.25. Nothing of ours is fitted to it.
const PUBLISHED: [(&str, f64); 2] = [("huge", 5.85 / 8.83), ("base", 2.18 / 3.28)];

/// Our base fault clears a page, where that of `page_fault2` copies one of a file: it takes longer there, and the lock weighs
/// less. With v5.3 eight seeds give 0.64 (huge, 0.62 to 0.67) and 0.72 (base, 0.70 to 0.77): one run waits more for locks than
/// another. Huge pages came to 0.53 as long as each was cleared in one go.
#[test]
fn sixteen_threads_against_processes_are_as_published() {
    let room = Room::new();
    let answer = room
        .run(&words(&[&[
            "run",
            "fault-storm-16",
            "--target",
            "sim",
            "--variant",
            "v5.3",
            "--seeds",
            "8",
            "--format",
            "json",
        ]]))
        .expect(0);
    let rate = |cell: &report::Cell| {
        let metric = cell.measured.metrics.iter().find(|metric| metric.name == "page_stores_per_second");
        metric.expect("every cell has it").samples[0]
    };
    let mut rates: BTreeMap<String, f64> = BTreeMap::new();
    for cell in &Document::parse(&answer.stdout).cells {
        *rates.entry(cell.key.case.clone()).or_default() += rate(cell);
    }
    for (page, published) in PUBLISHED {
        let ratio = rates[&format!("{page}-threads-16")] / rates[&format!("{page}-processes-16")];
        assert!((published / 1.25..=published * 1.25).contains(&ratio), "{page}: {ratio}, published {published}");
    }
}
