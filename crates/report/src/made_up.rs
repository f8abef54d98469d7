//! Made-up cells for tests.

use std::collections::BTreeMap;

use crate::record::{Cell, Key, Measured, Run, SCHEMA, Target};

/// A simulated cell in which nothing was measured.
pub(crate) fn cell(kernel: &str, seed: u64) -> Cell {
    let key = Key {
        result: None,
        experiment: "e".into(),
        group: None,
        workload: "w".into(),
        case: "c".into(),
        params: BTreeMap::new(),
        variant: format!("v{kernel}"),
        machine: "m".into(),
        state: "fresh".into(),
        target: Target::Sim,
        kernel: kernel.into(),
        seed,
        program: "p".into(),
    };
    let measured = Measured::nothing();
    let run = Run {
        date: "2026-01-02T03:04:05Z".into(),
        wall_s: 1.5,
        boot_s: None,
        host: "h".into(),
        commit: "abc".into(),
        max_rss_kib: 9,
    };
    Cell { schema: SCHEMA, key, measured, series: None, map: None, slow_path: None, footprint: None, run }
}
