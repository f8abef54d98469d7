//! Extreme values of every setting and every rule: no panic, and an end that says what it is.
//!
//! The suite runs a part of the grid. Which part follows from the size of the tables: it is the same on every machine, and
//! another one when a setting or a rule is added. `cargo xtask values` runs all of it.

use std::{collections::BTreeSet, fmt::Write};

use rules::variant::{Rule, Takes as RuleTakes, Variant};
use units::{
    Bytes,
    setting::{SETTINGS, Setting, Sim, Takes},
};

use crate::support::{
    TWO_NODES,
    room::{Answer, Room},
};

/// The variable that `cargo xtask values` sets.
const ALL: &str = "PAGELAB_VALUES";
/// Places of the grid that the suite tries, on both workloads.
const PART: usize = 20;
/// Seconds that a cell may take on however busy a machine; a run that does not end by itself takes for ever.
const TIMEOUT_S: &str = "900";

/// The least machine that boots: what took for ever there takes seconds now, and several times as long on a larger one.
const LEAST: &str = r#"
about = "96 MiB, two CPUs"
swap = "96MiB"
[[node]]
id = 0
memory = "96MiB"
cpus = "0-1"
[settings]
"transparent_hugepage/enabled" = "always"
"#;
/// Fewer files.
const FEW: &[&str] =
    &["small-files", "--set", "total=20%", "--set", "writers=2", "--set", "file=64KiB", "--set", "size=20%"];

/// Workloads: faults of two tasks that balancing watches, and files with reclaim and compaction.
const WORKLOADS: [&[&str]; 2] = [
    &["fault-storm", "--set", "size=8MiB", "--set", "iterations=2", "--set", "tasks=2", "--set", "model=threads"],
    &["small-files", "--set", "total=110%", "--set", "writers=2", "--set", "file=64KiB", "--set", "size=20%"],
];
/// Releases that a value is tried on, one after the other: both kinds of lists, of schedulers and of balancing.
const RELEASES: [&str; 4] = ["v6.1", "v4.1", "v6.12", "v3.9"];

/// A value of a setting or of a rule.
struct Place {
    name: &'static str,
    value: String,
    is_rule: bool,
}

/// A number that follows from two others.
fn drawn(seed: usize, n: usize) -> u64 {
    let digits = report::seal::checksum(format!("{seed}/{n}").as_bytes());
    u64::from_str_radix(&digits, 16).expect("sixteen digits of a hash")
}

/// The least, the most, the middle, and one in between.
fn of_range(least: i128, most: i128, draw: u64) -> BTreeSet<i128> {
    BTreeSet::from([least, most, i128::midpoint(least, most), least + i128::from(draw) % (most - least + 1)])
}

fn of_setting(setting: &Setting, draw: u64) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match setting.takes {
        Takes::Number(least, most) => of_range(least.into(), most.into(), draw).iter().map(i128::to_string).collect(),
        Takes::Numbers => words(&["0", "-1", "1 1 1 1 1", "2147483647 2147483647 2147483647", "256 256 32 0 0"]),
        Takes::Word(all) | Takes::Size(all) => words(all),
    }
}

fn of_rule(rule: &Rule, draw: u64) -> Vec<String> {
    match rule.takes {
        RuleTakes::Switch => ["false", "true"].map(str::to_owned).to_vec(),
        RuleTakes::Number(least, most) => {
            of_range(least.into(), most.into(), draw).iter().map(i128::to_string).collect()
        }
        RuleTakes::Size(least, most) => [least, most, Bytes::kib(256)].map(|size| format!("\"{size}\"")).to_vec(),
        RuleTakes::Words(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
    }
}

/// All values that are tried: of every setting of the simulator except the guests' settings, and of every rule.
fn grid(seed: usize) -> Vec<Place> {
    let settings = SETTINGS.iter().filter(|setting| setting.sim == Sim::Yes).enumerate();
    let settings = settings.flat_map(|(n, setting)| {
        let values = of_setting(setting, drawn(seed, n)).into_iter();
        values.map(|value| Place { name: setting.name, value, is_rule: false })
    });
    let rules = Variant::RULES.iter().enumerate().flat_map(|(n, rule)| {
        let values = of_rule(rule, drawn(seed, n)).into_iter();
        values.map(|value| Place { name: rule.name, value, is_rule: true })
    });
    settings.chain(rules).collect()
}

/// Runs a workload with a value, on a release that follows from a number.
fn run(room: &Room, machine: &str, (place, n): (&Place, usize), workload: &[&str]) -> Answer {
    let release = RELEASES[n % RELEASES.len()];
    let out = room.here().join("r");
    let out = out.to_str().expect("paths of rooms are UTF-8");
    let mut args = vec!["run"];
    args.extend(workload);
    args.extend(["--target", "sim", "--machine", machine, "--timeout", TIMEOUT_S, "--output", out]);
    let (set, variant);
    if place.is_rule {
        let rule = format!("about = ''\nparent = '{release}'\n[rules]\n{} = {}\n", place.name, place.value);
        variant = room.give("v.toml", rule);
        // A simulation consults the rules of NUMA balancing only where NUMA balancing is on.
        args.extend(["--set", "kernel.numa_balancing=1", "--variant", &variant]);
    } else {
        set = format!("{}={}", place.name, place.value);
        args.extend(["--variant", release, "--set", &set]);
        if place.name.starts_with("kernel.numa_balancing_") {
            args.extend(["--set", "kernel.numa_balancing=1"]);
        }
    }
    let answer = room.run(&args);
    let _ = std::fs::remove_dir_all(out);
    answer
}

/// The mistake of an end, if it is one. Right are a result, a mistake of the user that is named, a cell that its workload or
/// the kernel has ended, and a livelock.
fn wrong(answer: &Answer) -> Option<String> {
    let said = &answer.stderr;
    let says_why = ["livelock after ", "out of memory", "ENOMEM", "ENOSPC"].iter().any(|why| said.contains(why));
    let is_right = match answer.status.code() {
        Some(0 | 2) => true,
        Some(1) => says_why,
        _ => false,
    };
    let is_bug = said.contains("panicked") || said.contains("no result within");
    (!is_right || is_bug).then(|| said.lines().take(6).collect::<Vec<_>>().join("\n"))
}

#[test]
fn extreme_values_of_settings_and_rules_have_an_end() {
    let seed = SETTINGS.len() * 1000 + Variant::RULES.len();
    let grid = grid(seed);
    let whole = std::env::var_os(ALL).is_some();
    let part = |n| usize::try_from(drawn(seed, n)).expect("64 bits") % grid.len();
    let chosen: BTreeSet<usize> = if whole { (0..grid.len()).collect() } else { (0..PART).map(part).collect() };
    let room = Room::new();
    let machine = room.give("small.toml", TWO_NODES);
    let (mut report, mut results) = (String::new(), 0);
    for n in &chosen {
        let place = &grid[*n];
        for workload in WORKLOADS {
            let answer = run(&room, &machine, (place, *n), workload);
            results += usize::from(answer.status.success());
            if let Some(wrong) = wrong(&answer) {
                let release = RELEASES[n % RELEASES.len()];
                let _ = writeln!(report, "{} on {release}, {} = {}: {wrong}", workload[0], place.name, place.value);
            }
        }
    }
    assert_eq!(report, "");
    assert!(results > chosen.len(), "most values have a result, and {results} of {} have", 2 * chosen.len());
}

/// Values that had no end, or ended in a panic, before they had ranges or time stopped at its last instant.
#[test]
fn values_that_had_no_end_have_one() {
    let room = Room::new();
    let machine = room.give("least.toml", LEAST);
    for (name, value, workload) in [
        ("transparent_hugepage/khugepaged/scan_sleep_millisecs", "0", WORKLOADS[0]),
        ("transparent_hugepage/khugepaged/scan_sleep_millisecs", "0", FEW),
        ("transparent_hugepage/khugepaged/alloc_sleep_millisecs", "0", FEW),
        ("vm.dirty_expire_centisecs", "2147483647", FEW),
        ("vm.dirty_writeback_centisecs", "2147483647", FEW),
        ("vm.dirty_ratio", "100", WORKLOADS[1]),
    ] {
        let place = Place { name, value: value.to_owned(), is_rule: false };
        let answer = run(&room, &machine, (&place, 0), workload);
        assert!(answer.status.success(), "{name}={value}: {}", answer.stderr);
    }
    // Rules are tried with balancing, which needs two nodes.
    let nodes = room.give("small.toml", TWO_NODES);
    let factor = Place { name: "sched_busy_factor", value: "1".to_owned(), is_rule: true };
    let answer = run(&room, &nodes, (&factor, 1), FEW);
    assert!(answer.status.success(), "{}", answer.stderr);
}
