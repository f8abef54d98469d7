//! Replayable guests: the same run gives the same bytes.

mod support;

use std::thread;

use report::{Record, System};
use support::{document, guests, room::Room, words};

const NAME: &str = "vm_the_same_run_gives_the_same_bytes";

/// What one replayable run must repeat, and what it says about its stream.
struct Replay {
    /// `measured` of each cell, as bytes.
    measured: Vec<String>,
    captures: String,
    stream: String,
}

fn replay(shift: &str) -> Option<Replay> {
    let _turn = guests::turn(NAME)?;
    let room = Room::new();
    let run = ["run", "fault-storm", "--target", "vm", "--machine", "one-node-512m", "--replayable", shift];
    let grid = ["--set", "tasks=1", "--set", "iterations=2", "--set", "size=4MiB", "-o", "result"];
    room.run(&words(&[&run, &grid])).expect(0);
    let records = document::whole_records(&room.here().join("result"));
    let system = |record: &Record| match record {
        Record::System(system) => Some(system.clone()),
        Record::Cell(_) | Record::Skipped(_) => None,
    };
    let systems: Vec<System> = records.iter().filter_map(system).collect();
    let [system] = systems.as_slice() else { panic!("{} systems", systems.len()) };
    assert_eq!(system.accelerator.as_deref(), Some(format!("tcg,icount={shift}").as_str()));
    let [stream] = system.notes.as_slice() else { panic!("{:?}", system.notes) };
    assert!(stream.starts_with("stream of ") && stream.contains(" blake3 "), "{stream}");
    let cells = report::cells(records);
    assert_eq!(cells.len(), 4, "base and huge, threads and processes");
    Some(Replay {
        measured: cells.iter().map(|cell| serde_json::to_string(&cell.measured).unwrap()).collect(),
        captures: system.captures.to_string(),
        stream: stream.clone(),
    })
}

#[test]
fn vm_the_same_run_gives_the_same_bytes() {
    // At the same time, so that the host's load differs from one to the other.
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| replay("4"));
        (replay("4"), first.join().expect("the first run"))
    });
    let (Some(first), Some(second)) = (first, second) else { return };
    assert_eq!(first.measured, second.measured);
    assert_eq!(first.captures, second.captures);
    assert_eq!(first.stream, second.stream);

    // The control: with other time per instruction the bytes differ, so they do depend on the run.
    let other = replay("5").expect("the guest that could be had before");
    assert_ne!(first.measured, other.measured);
    assert_ne!(first.stream, other.stream);
}
