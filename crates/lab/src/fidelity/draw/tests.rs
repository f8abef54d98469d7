//! Draws: what a seed says, what is left out, and that cells of the ranges can be planned.

use std::collections::BTreeSet;

use super::*;

fn seed(n: u32) -> String {
    format!("{n:08x}")
}

#[test]
fn a_seed_says_everything_and_many_cover_all_ranges() {
    assert_eq!(candidate("1a2b3c4d", 7, 3), candidate("1a2b3c4d", 7, 3));
    let all: Vec<_> = (0..200).flat_map(|n| (0..10).map(move |number| candidate(&seed(n), number, 3).run)).collect();
    let drawn: BTreeSet<_> = all.iter().map(|run| run.experiment.as_str()).collect();
    assert_eq!(drawn, WORKLOADS.iter().map(|workload| workload.experiment).collect());
    let sets: BTreeSet<_> = all.iter().flat_map(|run| &run.sets).map(String::as_str).collect();
    for axis in WORKLOADS.iter().flat_map(|workload| workload.params).chain(ALWAYS_SET).chain(SOMETIMES_SET) {
        for value in axis.values {
            let set = format!("{}={value}", axis.name);
            assert!(sets.contains(set.as_str()), "{set} was never drawn");
        }
    }
    let guests: BTreeSet<_> = all.iter().map(|run| run.guest.name.as_str()).collect();
    // Two CPUs have no pace of their own.
    assert_eq!(guests.len(), MEMORY.values.len() * KERNEL.values.len() * (SHIFT.values.len() + 1));
    // 2000 / 5, with three standard deviations to either side.
    let boosted = all.iter().filter(|run| run.sets.iter().any(|set| set.starts_with("vm.watermark_boost_factor")));
    assert!((346..454).contains(&boosted.count()));
    let table = ranges();
    assert!(WORKLOADS.iter().all(|workload| table.contains(workload.experiment)), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn what_cannot_run_is_left_out_with_its_reason_and_replaced() {
    let place = |candidate: Candidate| match candidate.run.guest.kernel.as_str() {
        "5.10" => Err("no such kernel here".to_owned()),
        _ => Ok(candidate.run),
    };
    let (runs, left_out) = draw("00000001", (12, 3), place).unwrap();
    assert_eq!(runs.len(), 12);
    assert!(runs.iter().all(|run| run.guest.kernel == "6.1" && run.guest.seeds == 3));
    assert!(!left_out.is_empty() && left_out.iter().all(|left| left.reason == "no such kernel here"));
    let names: BTreeSet<_> = runs.iter().map(|run| run.cell("1")).collect();
    assert_eq!(names.len(), 12, "each cell has a name of its own");
    // A shorter draw is the beginning of a longer one.
    assert_eq!(draw("00000001", (5, 3), place).unwrap().0, runs[..5]);
    let error = draw("00000001", (2, 3), |_| Err("nothing runs".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "only 0 of 100 candidates can run: nothing runs");
}

#[test]
fn what_is_drawn_can_be_planned_or_says_why_not() {
    let room = tempfile::tempdir().unwrap();
    let mut planned = BTreeSet::new();
    for number in 0..60 {
        let Candidate { mut run, machine } = candidate("0badcafe", number, 1);
        let file = room.path().join(format!("{}.toml", run.guest.machine));
        std::fs::write(&file, machine).unwrap();
        run.guest.machine = file.to_string_lossy().into_owned();
        match cannot_plan(&run) {
            None => _ = planned.insert(run.experiment),
            Some(reason) => {
                let known = ["percpu_pagelist_high_fraction", "three quarters of the machine's memory"];
                assert!(known.iter().any(|known| reason.contains(known)), "{}: {reason}", run.label());
            }
        }
    }
    assert_eq!(planned, WORKLOADS.iter().map(|workload| workload.experiment.to_owned()).collect());
}
