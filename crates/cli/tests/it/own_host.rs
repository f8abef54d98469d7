//! This machine's own kernel: used where it is meant, with a first line that says so, and left as it was.

use std::{collections::BTreeMap, fs, path::Path};

use linux::procfs::{Capture, Snapshot};
use report::Target;

use crate::support::{
    TINY, document,
    room::{PATIENCE_S, Room, within},
    words,
};

/// The machine and variant of a run that is short.
const SMALL: [&str; 4] = ["--machine", "one-node-512m", "--variant", "v6.1"];

#[test]
fn a_machine_that_is_named_is_the_machine() {
    let room = Room::new();
    let fork = ["run", "fork-storm", "--set", "page=base", "--set", "iterations=1", "--set", "size=2MiB"];
    for (number, option) in
        [["--machine", "one-node-512m"], ["--variant", "v6.1"], ["--state", "fresh"], ["--set", "slab.allocator=slab"]]
            .iter()
            .enumerate()
    {
        let result = format!("result-{number}");
        let answer = room.run(&words(&[&fork, option, &["-o", &result]])).expect(0);
        assert_eq!(answer.stderr, format!("pagelab: results are in {result}\n"), "nothing of this machine's kernel");
        let records = document::whole_records(&room.here().join(&result));
        let cells = report::cells(records);
        assert!(!cells.is_empty() && cells.iter().all(|cell| cell.key.target == Target::Sim), "{option:?}");
        let machines: Vec<_> = cells.iter().map(|cell| cell.key.machine.as_str()).collect();
        assert!(number > 0 || machines == vec!["one-node-512m"; machines.len()], "{machines:?}");
        let starts = |word: &str| answer.stdout.lines().any(|line| line.starts_with(word));
        assert!(starts("sim, ") && !starts("host, ") && !starts("vm, "), "{}", answer.stdout);
    }
}

/// A sweep, a ladder and claims are of the simulator, whatever their experiment says.
#[test]
fn what_else_runs_is_simulated() {
    let room = Room::new();
    let sweep = ["sweep", "fault-storm", "--set", "vm.swappiness=10,60", "--seeds", "1", "-o", "swept"];
    let ladder = ["ladder", "v5.0..v5.1", "--workload", "fault-storm", "--seeds", "1", "-o", "climbed"];
    room.run(&words(&[&sweep, &SMALL[..2], &TINY])).expect(0);
    let sets = ["--set", "iterations=1", "--set", "page=base", "--set", "size=2MiB"];
    room.run(&words(&[&ladder, &["--machines", "one-node-512m"], &sets])).expect(0);
    for result in ["swept", "climbed"] {
        let cells = report::cells(document::whole_records(&room.here().join(result)));
        assert!(cells.len() > 1 && cells.iter().all(|cell| cell.key.target == Target::Sim), "{result}");
    }
}

/// Every file of settings that this kernel has, by its path.
fn settings() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<_> =
        ["/proc/sys/vm", "/proc/sys/kernel", "/sys/kernel/mm"].map(|folder| Path::new(folder).to_owned()).into();
    // Bound: directories of /proc and /sys, which have no loops but by links.
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    let text = fs::read_to_string(entry.path()).unwrap_or_default();
                    found.insert(entry.path().display().to_string(), text);
                }
                _ => {}
            }
        }
    }
    found
}

fn available_kib() -> u64 {
    let capture = Capture::live().expect("/proc");
    Snapshot::parse(&capture).expect("/proc").meminfo["MemAvailable"]
}

/// How far available memory may be lower than before: others come and go, and it is waited for.
const SLACK_KIB: u64 = 256 << 10;

#[test]
fn commands_leave_this_machine_as_it_was() {
    let room = Room::new();
    let (before, available) = (settings(), available_kib());
    let names: Vec<_> = linux::setting::names().into_iter().filter(|name| linux::setting::read(name).is_ok()).collect();
    assert!(names.len() > 20 && before.len() > 100, "{} settings in {} files", names.len(), before.len());
    let storm = words(&[&["run", "fault-storm", "--sample", "100ms", "--map", "--trace", "--causes"], &SMALL, &TINY]);
    let storm = |more: &[&str]| [storm.clone(), words(&[more])].concat();
    let sweep = ["sweep", "fork-storm", "--set", "vm.min_free_kbytes=4096,8192", "--seeds", "1", "-o", "swept"];
    let commands = [
        storm(&["--set", "vm.min_free_kbytes=8192", "--set", "transparent_hugepage/enabled=never", "-o", "one"]),
        storm(&["--set", "vm.swappiness=10,100", "--report", "one.html", "-o", "two"]),
        words(&[&["run", "fork-storm", "--set", "page=base", "--set", "iterations=1", "--set", "size=2MiB"], &SMALL]),
        words(&[&sweep, &SMALL, &["--set", "iterations=1", "--set", "page=base", "--set", "size=2MiB"]]),
        words(&[&["cells", "fault-storm", "--seeds", "2", "-o", "cells"], &SMALL, &TINY]),
        words(&[&["show", "two", "--full"]]),
        words(&[&["show", "one", "--series"]]),
        words(&[&["map", "one"]]),
        words(&[&["compare", "two"]]),
        words(&[&["noise", "two"]]),
        words(&[&["report", "one", "two", "-o", "both.html"]]),
        words(&[&["export", "one", "--to", "perfetto", "one.pftrace"]]),
        words(&[&["trust", "fault-storm"]]),
        words(&[&["list", "experiments"]]),
        words(&[&["machine", "import", "-o", "here.toml"]]),
        words(&[&["state", "make", "--recipe", "metadata+anon", "--machine", "one-node-512m", "-o", "mixed.toml"]]),
    ];
    for command in &commands {
        room.run(command).expect(0);
    }
    room.assert_nothing_left("all commands");
    // Of all that these folders hold the kernel moves some by itself, but no setting that pagelab knows.
    let known = |path: &str| names.iter().any(|name| path.ends_with(&name.replace('.', "/")));
    let changed = || {
        let after = settings();
        let is_other = |(path, text): &(&String, &String)| known(path) && after.get(*path) != Some(*text);
        before.iter().filter(is_other).map(|(path, _)| path.clone()).collect::<Vec<_>>()
    };
    // Another test may have set something that it puts back.
    assert!(within(PATIENCE_S, || changed().is_empty()), "{:?}", changed());
    assert!(within(PATIENCE_S, || available_kib() + SLACK_KIB > available), "{} of {available} KiB", available_kib());
}

/// An experiment's own default has this machine's kernel, and the first line says so, before anything else and even if nothing is
/// wanted but tables.
#[test]
fn the_first_line_says_that_this_machines_kernel_is_used() {
    let room = Room::new();
    let nowhere = room.given("nowhere");
    let run = |more: &[&str]| {
        let mut command = room.command(&words(&[&["run", "fault-storm"], &TINY, more]));
        // Without an emulator no guest takes part.
        command.env("PATH", &nowhere);
        room.start(command).wait().expect(0).stderr
    };
    let release = linux::procfs::Capture::live().expect("/proc");
    let release = Snapshot::parse(&release).expect("/proc").version.text;
    let release = release.split(' ').next().unwrap_or_default();
    let expected = format!(
        "pagelab: this machine's own kernel is used (host, {release}): 1 cell of up to 2 MiB (--target sim leaves it alone)"
    );
    assert_eq!(run(&["-o", "default"]).lines().next(), Some(expected.as_str()));
    assert_eq!(run(&["-o", "quiet", "--quiet"]), format!("{expected}\n"));
    let done = run(&["-o", "default"]);
    assert!(done.starts_with("pagelab: resuming default: "), "nothing more runs: {done}");
    assert_eq!(run(&["-o", "said", "--target", "host"]), "pagelab: results are in said\n", "the user has said it");
    let json = run(&["-o", "lines", "--progress", "json"]);
    let first = json.lines().find(|line| !line.contains("\"step\"")).unwrap_or_default();
    assert!(first.starts_with("{\"event\":\"note\",\"text\":\"this machine's own kernel is used (host"), "{json}");
}

/// The help says the rule, and no other.
#[test]
fn help_says_where_a_run_goes() {
    let room = Room::new();
    let help = room.run(&["run", "--help"]).expect(0).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "Without --target, it runs where its experiment says: in the simulator (sim)",
        "Options of the simulator mean --target sim: --machine, --variant, --column, --state, and a setting",
        "Options of guests mean --target vm: --kernel, --accel, --replayable.",
        "Machine for targets sim and vm",
    ] {
        assert!(help.contains(sentence), "{sentence:?} in {help}");
    }
    assert!(!help.contains("Machine for target vm:"), "{help}");
}
