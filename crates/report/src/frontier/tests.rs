//! Frontiers of guest memory: one line per column, held to 80 columns and to known figures.

use serde_json::json;

use super::*;
use crate::record::{RESIDENT, USED};
use crate::series::{Sample, Series};

/// A cell with a minute at `mib[0]` MiB, and `mib[1]` MiB at the end.
fn cell(target: &str, kernel: &str, seed: u64, mib: [u64; 2], more: &serde_json::Value) -> Cell {
    let is_sim = target == "sim";
    let params = more.clone();
    let causes = if is_sim { json!({ "host": 2_500_000_000_000_u64, "clearing": 1 }) } else { json!({}) };
    let counters =
        if is_sim { json!({ "sim_host_refaults": 512, "sim_host_gives_back_ns": 250_000_000 }) } else { json!({}) };
    let mut cell: Cell = serde_json::from_value(json!({
        "schema": crate::SCHEMA,
        "key": {
            "experiment": "guest-footprint", "workload": "guest-footprint", "case": "free", "params": params,
            "variant": "v6.1", "machine": "guest-1g", "state": "fresh", "target": target, "kernel": kernel,
            "seed": seed, "program": "0"
        },
        "measured": {
            "scored": true, "metrics": [], "counters": counters, "causes": causes, "checks": [], "skipped": [],
            "duration": { "user_ps": 500_000_000_000_u64, "system_ps": 1_000_000_000_000_u64, "elapsed_ps": 1 },
            "detail": null
        },
        "run": { "date": "", "wall_s": 0.0, "host": "", "commit": "", "max_rss_kib": 0 }
    }))
    .expect("it is a cell");
    let sample = |(at_us, mib): (u64, u64)| Sample { at_us, values: vec![mib * 256, mib * 128] };
    let names = [RESIDENT, USED].map(str::to_owned);
    let known = if is_sim { &names[..] } else { &names[..1] };
    let samples = [(0, mib[0]), (60_000_000, mib[1])].map(sample);
    let samples = samples.map(|sample| Sample { values: sample.values[..known.len()].to_vec(), ..sample });
    cell.footprint = Some(Footprint { series: Series::new(1, known, &samples), ..Footprint::default() });
    cell
}

fn cells() -> Vec<Cell> {
    let (off, on) = (json!({ REPORTING: "off" }), json!({ REPORTING: "on", "page_reporting.delay_ms": "2000" }));
    let often = json!({ REPORTING: "on", "page_reporting.order": "0" });
    vec![
        cell("vm", "6.1 reporting=off", 1, [2048, 2048], &off),
        cell("sim", "v6.1 reporting=off", 1, [1024, 1024], &off),
        cell("sim", "v6.1 reporting=on order=9 delay_ms=2000", 1, [1024, 64], &on),
        cell("sim", "v6.1 reporting=on order=9 delay_ms=2000", 2, [512, 32], &on),
        cell("sim", "v6.1 reporting=on order=0", 1, [512, 16], &often),
    ]
}

#[test]
fn each_column_has_a_line_and_a_simulated_machine_an_ideal_one() {
    let rows = frontier(&cells());
    let found: Vec<_> = rows.iter().map(|row| (row.column.kernel.as_str(), row.area_gib_min, row.end_mib)).collect();
    let expected = [
        ("6.1 reporting=off", 2.0, 2048.0),
        ("v6.1 reporting=off", 1.0, 1024.0),
        ("v6.1 reporting=on order=9 delay_ms=2000", 0.75, 48.0),
        ("v6.1 reporting=on order=0", 0.5, 16.0),
        ("ideal", 0.5, 512.0),
    ];
    assert_eq!(found, expected);
    assert_eq!((rows[0].host_s, rows[0].refaults, rows[0].process_s), (None, None, Some(1.5)));
    assert_eq!((rows[2].host_s, rows[2].refaults), (Some(2.75), Some(512.0)));
    let marked: Vec<bool> = rows.iter().map(|row| row.is_default).collect();
    assert_eq!(marked, [false, false, true, false, false]);
}

#[test]
fn the_table_has_80_columns_and_its_legend_what_it_needs() {
    let text = frontier_text(&frontier(&cells()));
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let numbers = |name: &str| line(name).split_whitespace().rev().take(5).collect::<Vec<_>>();
    assert_eq!(numbers("vm 6.1 reporting=off"), ["-", "-", "1.500", "2048", "2.000"]);
    assert_eq!(numbers("delay_ms=2000*"), ["512", "2.750", "1.500", "48", "0.750"]);
    assert_eq!(numbers("sim ideal"), ["-", "-", "-", "512", "0.500"]);
    assert!(text.contains("\n*: as kernels report") && text.contains("\n-: no real host"), "{text}");
    let plain = frontier_text(&frontier(&cells()[1..2]));
    assert!(!plain.contains("\n*: ") && !plain.contains("\n-: "), "{plain}");
    assert_eq!(frontier_text(&frontier(&[])), "");
}

#[test]
fn what_is_not_known_has_no_line_for_programs() {
    let lines = frontier_csv(&frontier(&cells()), "guest-footprint");
    let of = |kernel: &str| lines.iter().filter(|line| line.kernel == kernel).count();
    assert_eq!((of("vm:6.1 reporting=off:guest-1g"), of("sim:v6.1 reporting=off:guest-1g")), (3, 5));
    let ideal: Vec<_> = lines.iter().filter(|line| line.kernel == "sim:ideal:guest-1g").collect();
    assert_eq!((ideal[0].metric.as_str(), ideal[0].value.as_str()), ("frontier.host_memory_gib_min", "0.5"));
    assert_eq!(ideal.len(), 2);
}
