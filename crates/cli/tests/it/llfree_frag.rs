//! llfree-frag as users see it: one table with a column for each page allocator, and mistakes that end a run before it begins.

use crate::support::{document, room::Room, words};

/// Eight trees of LLFree's.
const SMALL: [&str; 8] =
    ["run", "llfree-frag", "--machine", "one-node-512m", "--set", "fill=25,50", "--set", "rounds=40"];

/// Free blocks of 2 MiB in a round: of the column of Linux's allocator, and of LLFree's.
fn blocks(text: &str, row: &str) -> (f64, f64) {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(row));
    let line = line.unwrap_or_else(|| panic!("no row {row} in\n{text}"));
    let values: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    (values[0], values[1])
}

#[test]
fn both_allocators_stand_in_one_table_over_rounds_and_only_llfree_gathers_free_frames() {
    let room = Room::new();
    let text = room.run(&words(&[&SMALL, &["-o", "first"]])).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.matches("Free 2 MiB Blocks").count(), 1, "{text}");
    let (linux, llfree) = blocks(&text, "fill25-round-40");
    assert!(linux < 1.0 && llfree > 10.0, "{text}");
    room.run(&words(&[&SMALL, &["-o", "again"]])).expect(0);
    let cells = |result: &str| report::cells(document::whole_records(&room.here().join(result)));
    let measured = |result: &str| cells(result).iter().map(|cell| cell.measured.clone()).collect::<Vec<_>>();
    assert_eq!(measured("first"), measured("again"));
    let csv = room.run(&["show", "first", "--format", "csv"]).expect(0).stdout;
    assert!(csv.lines().any(|line| line.contains("free_2mib_blocks") && line.contains("llfree")), "{csv}");
}

#[test]
fn mistakes_name_the_parameter_and_what_it_takes() {
    let room = Room::new();
    for (set, expected) in [
        ("fill=100", "fill: expected a whole number from 1 to 99, found \"100\""),
        ("order=9", "order: expected a whole number from 0 to 8, found \"9\""),
        ("policy=default", "policy"),
    ] {
        room.run(&["run", "llfree-frag", "--set", set, "-o", "result"]).expect(2).says(&[expected]);
    }
    assert!(room.run(&["list", "workloads"]).expect(0).stdout.contains("llfree-frag"));
}

const RULES: &str = "about = '6.1 on LLFree'\nparent = 'v6.1'\n[rules]\nallocator = 'llfree'\n";

#[test]
fn ordinary_workloads_run_on_llfree_beside_linux() {
    let room = Room::new();
    let mine = room.give("llfree.toml", RULES);
    let both = ["--target", "sim", "--variant", "v6.1", "--variant", &mine, "-o", "result"];
    let run = ["run", "fault-storm", "--set", "size=64MiB", "--set", "iterations=5", "--set", "page=base,huge"];
    let text = room.run(&words(&[&run, &both])).expect(0).stdout;
    assert!(text.contains("llfree"), "{text}");
    let cells = report::cells(document::whole_records(&room.here().join("result")));
    let of = |variant: &str| -> Vec<String> {
        let its = cells.iter().filter(|cell| cell.key.variant == variant);
        its.map(|cell| format!("{:?}", cell.measured)).collect()
    };
    let (linux, llfree) = (of("v6.1"), of("llfree"));
    assert!(!linux.is_empty() && linux.len() == llfree.len() && linux != llfree, "{text}");
    assert!(linux.iter().all(|cell| cell.contains("compact_")), "{linux:?}");
    // A fault that finds no huge block is not helped by compaction, and no pageblock is stolen from.
    assert!(llfree.iter().all(|cell| cell.contains("pgfault") && !cell.contains("compact_")), "{llfree:?}");
}

#[test]
fn what_llfree_cannot_have_is_refused_before_anything_runs() {
    let room = Room::new();
    let mine = room.give("llfree.toml", RULES);
    let run = ["run", "fault-storm", "--target", "sim", "--variant", &mine, "-o", "result"];
    for (set, expected) in [
        ("vm.compaction_proactiveness=20", "which is not compacted"),
        ("vm.percpu_pagelist_high_fraction=8", "which has no lists of CPUs"),
        ("vm.watermark_boost_factor=15000", "which has no migrate types"),
    ] {
        room.run(&words(&[&run, &["--set", set]])).expect(2).says(&[set, "allocator = \"llfree\"", expected]);
    }
}
