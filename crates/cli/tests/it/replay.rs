//! Replayable guests: the same run gives the same bytes.

use std::thread;

use crate::support::{document, guests, room::Room, words};
use report::{Cell, Record, System, Target};

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

fn replay(name: &str, what: &[&str], shift: &str) -> Option<Replay> {
    let _turn = guests::turn(name)?;
    let room = Room::new();
    let guest = ["--target", "vm", "--machine", "one-node-512m", "--replayable", shift, "-o", "result"];
    room.run(&words(&[&["run"], what, &guest])).expect(0);
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

/// Files and swap too: their disks are the guest's own memory.
#[test]
fn vm_a_run_with_a_disk_gives_the_same_bytes() {
    const DISK: &str = "vm_a_run_with_a_disk_gives_the_same_bytes";
    let Some(first) = replay(DISK, &FILES, "4") else { return };
    let second = replay(DISK, &FILES, "4").expect("the guest that could be had before");
    assert_eq!(first.measured.len(), 1);
    assert_eq!(first.measured, second.measured);
    assert_eq!(first.captures, second.captures);
    assert_eq!(first.stream, second.stream);
}
