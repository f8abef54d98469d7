//! Replayable guests: the same run gives the same bytes.

use std::{env, ffi::OsString, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command, thread};

use linux::qemu;
use report::{Cell, Record, System, Target};
use tempfile::TempDir;

use crate::support::{document, guests, room::Room, skip, words};

const NAME: &str = "vm_the_same_run_gives_the_same_bytes";

/// What one replayable run must repeat, and what it says about its stream.
struct Replay {
    /// `measured` of each cell, as bytes.
    measured: Vec<String>,
    captures: String,
    stream: String,
}

/// Four cells without a disk.
const FAULTS: [&str; 7] = ["fault-storm", "--set", "tasks=1", "--set", "iterations=2", "--set", "size=4MiB"];
/// One cell with files and swap.
const FILES: [&str; 5] = ["thpscale", "--set", "threads=1", "--set", "size=30%"];

/// A QEMU whose guest's CPU is late whenever it halts.
struct Late {
    folder: TempDir,
    log: PathBuf,
}

impl Late {
    /// None without a compiler.
    fn new() -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        let (library, log) = (folder.path().join("late.so"), folder.path().join("log"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/replay/late.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        let status = compiler.status().ok()?;
        assert!(status.success(), "{source}: cc {status}");
        let emulator = folder.path().join(qemu::EMULATOR);
        let real = qemu::find_emulator().expect("the emulator that guests need");
        let [library, log_name, real] = [&library, &log, &real].map(|path| path.display());
        let script = format!("#!/bin/sh\nPAGELAB_LATE={log_name} LD_PRELOAD={library} exec {real} \"$@\"\n");
        fs::write(&emulator, script).expect("a script");
        fs::set_permissions(&emulator, fs::Permissions::from_mode(0o700)).expect("it shall be run");
        Some(Self { folder, log })
    }

    /// A PATH on which it comes first.
    fn path(&self) -> OsString {
        let rest = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.folder.path().to_owned()).chain(env::split_paths(&rest));
        env::join_paths(all).expect("folders without colons")
    }

    /// How often it was late.
    fn times(&self) -> usize {
        fs::read(&self.log).map_or(0, |log| log.len())
    }
}

fn replay(name: &str, what: &[&str], shift: &str) -> Option<Replay> {
    replay_by(name, what, shift, None)
}

fn replay_by(name: &str, what: &[&str], shift: &str, late: Option<&Late>) -> Option<Replay> {
    let _turn = guests::turn(name)?;
    let room = Room::new();
    let guest = ["--target", "vm", "--machine", "one-node-512m", "--replayable", shift, "-o", "result"];
    let mut command = room.command(&words(&[&["run"], what, &guest]));
    if let Some(late) = late {
        command.env("PATH", late.path());
    }
    room.start(command).wait().expect(0);
    let records = document::whole_records(&room.here().join("result"));
    let system = |record: &Record| match record {
        Record::System(system) => Some(system.clone()),
        Record::Cell(_) | Record::Skipped(_) => None,
    };
    let systems: Vec<System> = records.iter().filter_map(system).collect();
    let [system] = systems.as_slice() else { panic!("{} systems", systems.len()) };
    assert_eq!(system.accelerator.as_deref(), Some(format!("tcg,icount={shift}").as_str()));
    let Some(stream) = system.notes.last() else { panic!("{system:?}") };
    assert!(stream.starts_with("stream of ") && stream.contains(" blake3 "), "{stream}");
    let cells = report::cells(records);
    Some(Replay {
        measured: cells.iter().map(|cell| serde_json::to_string(&cell.measured).unwrap()).collect(),
        captures: system.captures.to_string(),
        stream: stream.clone(),
    })
}

#[test]
fn vm_seeds_take_shifts_in_turn() {
    let Some(_turn) = guests::turn("vm_seeds_take_shifts_in_turn") else { return };
    let room = Room::new();
    let both = ["--target", "vm", "--target", "sim", "--machine", "one-cpu-512m"];
    let guest = ["--replayable", "3,5", "--seeds", "2-3", "-o", "result", "--full"];
    let faults = words(&[&["run"], &FAULTS, &["--set", "page=base", "--set", "model=threads"], &both, &guest]);
    let output = room.run(&faults).expect(0);
    assert!(output.stdout.contains("prices are the guest's own (an instruction takes 2^3, 2^5 ns, by seed)"));
    let records = document::whole_records(&room.here().join("result"));
    let accelerators: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::System(system) => system.accelerator.clone(),
            Record::Cell(_) | Record::Skipped(_) => None,
        })
        .collect();
    assert_eq!(accelerators, ["tcg,icount=5", "tcg,icount=3"]);
    let cells = report::cells(records);
    let of = |target| cells.iter().filter(move |cell| cell.key.target == target);
    assert_eq!(of(Target::Vm).map(|cell| cell.key.seed).collect::<Vec<_>>(), [2, 3]);
    // The twin is as fast as its guest: an instruction of 2^5 ns takes four times as long as one of 2^3.
    let user = |cell: &Cell| cell.measured.duration.as_ref().expect("simulated time").user_ps;
    let twins: Vec<_> = of(Target::Sim).map(|cell| (cell.key.seed, user(cell))).collect();
    let [(2, slow), (3, quick)] = twins[..] else { panic!("{twins:?}") };
    assert!((slow / 100 * 98..slow / 100 * 102).contains(&(4 * quick)), "{slow} and {quick}");
}

#[test]
fn vm_the_same_run_gives_the_same_bytes() {
    // At the same time, so that the host's load differs from one to the other.
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| replay(NAME, &FAULTS, "4"));
        (replay(NAME, &FAULTS, "4"), first.join().expect("the first run"))
    });
    let (Some(first), Some(second)) = (first, second) else { return };
    assert_eq!(first.measured.len(), 4, "base and huge, threads and processes");
    assert_eq!(first.measured, second.measured);
    assert_eq!(first.captures, second.captures);
    assert_eq!(first.stream, second.stream);

    // The control: with other time per instruction the bytes differ, so they do depend on the run.
    let other = replay(NAME, &FAULTS, "5").expect("the guest that could be had before");
    assert_ne!(first.measured, other.measured);
    assert_ne!(first.stream, other.stream);
}

/// Files and swap too: their disks are the guest's own memory. While it waits for them to appear the guest halts, and the second
/// time QEMU's threads then run in the order that a busy host gives them now and then.
#[test]
fn vm_a_run_with_a_disk_gives_the_same_bytes() {
    const DISK: &str = "vm_a_run_with_a_disk_gives_the_same_bytes";
    let Some(first) = replay(DISK, &FILES, "4") else { return };
    let Some(late) = Late::new() else { return skip(DISK, "no compiler cc, which makes the emulator late") };
    let second = replay_by(DISK, &FILES, "4", Some(&late)).expect("the guest that could be had before");
    assert!(late.times() > 0, "the guest never halted, or leaves its CPU in another way than late.c knows");
    assert_eq!(first.measured.len(), 1);
    assert_eq!(first.measured, second.measured);
    assert_eq!(first.captures, second.captures);
    assert_eq!(first.stream, second.stream);
}
