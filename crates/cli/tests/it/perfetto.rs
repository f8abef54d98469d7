//! `pagelab export --to perfetto`: what is in a trace is what `show` prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use report::perfetto::{CAUSE, EventType, MECHANISM, ON_CPU, OPERATION, PS, Trace, TrackDescriptor, TrackEvent};

use crate::support::{TINY, room::Room, words};

/// 512 MiB that are full, two seeds.
const FULL: [&str; 12] = [
    "run",
    "thpscale",
    "--target",
    "sim",
    "--machine",
    "one-node-512m",
    "--variant",
    "v6.1",
    "--set",
    "threads=1",
    "--seeds",
    "2",
];

/// A slice of a track, with those within it.
#[derive(Debug, Default)]
struct Slice {
    name: String,
    category: String,
    /// Nanoseconds.
    begin: u64,
    end: u64,
    notes: BTreeMap<String, u64>,
    within: Vec<Slice>,
}

fn notes(event: &TrackEvent) -> BTreeMap<String, u64> {
    let note = |note: &report::perfetto::DebugAnnotation| {
        Some((note.name.clone().unwrap(), note.uint_value.or(note.pointer_value)?))
    };
    event.debug_annotations.iter().filter_map(note).collect()
}

/// The slices of each track. Events of a track are in the order of time, and every slice that begins ends.
fn slices(trace: &Trace) -> BTreeMap<u64, Vec<Slice>> {
    let mut open: BTreeMap<u64, (u64, Vec<Slice>, Vec<Slice>)> = BTreeMap::new();
    for (event, now) in trace.packet.iter().filter_map(|packet| Some((packet.track_event.as_ref()?, packet.timestamp?)))
    {
        let kind = EventType::try_from(event.r#type.unwrap()).unwrap();
        if kind == EventType::Counter {
            continue;
        }
        let (last, stack, done) = open.entry(event.track_uuid.unwrap()).or_default();
        assert!(*last <= now, "events of a track are in order");
        *last = now;
        match kind {
            EventType::SliceBegin => stack.push(Slice {
                name: event.name.clone().unwrap(),
                category: event.categories.concat(),
                begin: now,
                notes: notes(event),
                ..Slice::default()
            }),
            EventType::SliceEnd => {
                let slice = Slice { end: now, ..stack.pop().expect("it has begun") };
                stack.last_mut().map_or(&mut *done, |around| &mut around.within).push(slice);
            }
            EventType::Instant => {}
            kind => panic!("{kind:?}"),
        }
    }
    assert!(open.values().all(|(_, stack, _)| stack.is_empty()), "every slice ends");
    open.into_iter().map(|(track, (.., done))| (track, done)).collect()
}

/// Tracks by their numbers, of which no two have the same.
fn tracks(trace: &Trace) -> BTreeMap<u64, &TrackDescriptor> {
    let all: Vec<&TrackDescriptor> =
        trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
    let by_number: BTreeMap<_, _> = all.iter().map(|of| (of.uuid.unwrap(), *of)).collect();
    assert_eq!(by_number.len(), all.len());
    by_number
}

/// Lines of `show --format csv` by the names of its columns.
fn lines(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect()
}

/// An operation, or a part of one: seed, task, kind and CPU, page and order, cause (`total` of the whole), and when the operation
/// began, in nanoseconds.
type Known = (String, String, String, String, String, u64);

/// A trace, with what is told of each track and the slices on it.
struct Told<'a> {
    trace: &'a Trace,
    tracks: BTreeMap<u64, &'a TrackDescriptor>,
    slices: BTreeMap<u64, Vec<Slice>>,
}

impl Told<'_> {
    fn seed(&self, process: u64) -> String {
        let process = self.tracks[&process].process.as_ref().unwrap();
        process.process_name.as_ref().unwrap().rsplit_once("seed ").unwrap().1.to_owned()
    }

    /// All operations of threads and their parts, with their picoseconds.
    fn operations(&self) -> BTreeMap<Known, u64> {
        let mut known = BTreeMap::new();
        let mut numbers = Vec::new();
        for (number, all) in &self.slices {
            let place = self.tracks[number];
            let Some(thread) = &place.thread else { continue };
            let process = place.parent_uuid.unwrap();
            assert_eq!(thread.pid, self.tracks[&process].process.as_ref().unwrap().pid);
            numbers.push(thread.tid.unwrap());
            for slice in all {
                let task = format!("task {}: ", slice.notes["task"]);
                assert!(thread.thread_name.as_ref().unwrap().starts_with(&task), "{thread:?}");
                for (key, ps) in parts(&self.seed(process), slice) {
                    assert_eq!(known.insert(key, ps), None);
                }
            }
        }
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "every thread has a number of its own");
        known
    }

    /// The values of each column by seed and name, each with its microsecond.
    fn counters(&self) -> BTreeMap<(String, &str), Vec<(u64, i64)>> {
        let mut counters: BTreeMap<_, Vec<(u64, i64)>> = BTreeMap::new();
        for packet in &self.trace.packet {
            let Some((event, ns)) = packet.track_event.as_ref().zip(packet.timestamp) else { continue };
            let Some(value) = event.counter_value else { continue };
            let column = self.tracks[&event.track_uuid.unwrap()];
            let parent = self.tracks[&column.parent_uuid.unwrap()];
            let name = column.name.as_deref().unwrap();
            assert_eq!(name.rsplit_once('/').map(|(group, _)| group), parent.name.as_deref());
            let process = if parent.name.is_some() { parent.parent_uuid } else { parent.uuid };
            counters.entry((self.seed(process.unwrap()), name)).or_default().push((ns / 1000, value));
        }
        counters
    }
}

/// An operation and its parts, which are one behind the other and all of it, to the nanosecond and to the picosecond.
fn parts(seed: &str, slice: &Slice) -> Vec<(Known, u64)> {
    assert_eq!(slice.category, OPERATION);
    let ends: Vec<u64> = slice.within.iter().map(|part| part.end).collect();
    let begins: Vec<u64> = slice.within.iter().map(|part| part.begin).collect();
    assert_eq!((begins[0], *ends.last().unwrap()), (slice.begin, slice.end));
    assert_eq!(begins[1..], ends[..ends.len() - 1]);
    assert_eq!(slice.within.iter().map(|part| part.notes[PS]).sum::<u64>(), slice.notes[PS]);
    let note = |name: &str| slice.notes.get(name).map(u64::to_string).unwrap_or_default();
    let page = slice.notes.get("address").map(|address| (address >> 12).to_string()).unwrap_or_default();
    let whole = std::iter::once(("total", slice));
    let all = whole.chain(slice.within.iter().map(|part| (part.name.as_str(), part)));
    let known = |(cause, part): (&str, &Slice)| {
        assert!((part.end - part.begin).abs_diff(part.notes[PS] / 1000) <= 1, "{part:?}");
        assert!(part.category == CAUSE || cause == "total");
        let what = format!("{} on {}", slice.name, note("CPU at its start"));
        let place = format!("{page}/{}", note("order"));
        ((seed.to_owned(), note("task"), what, place, cause.to_owned(), slice.begin), part.notes[PS])
    };
    all.map(known).collect()
}

/// A number with a point as that of a unit which is smaller by as many digits as stand behind the point.
fn digits(text: &str) -> u64 {
    text.replace('.', "").parse().unwrap()
}

#[test]
fn a_trace_says_what_show_says() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["--sample", "200ms", "-o", "result"]])).expect(0);
    let answer = room.run(&["export", "result", "--to", "perfetto", "trace.pftrace"]).expect(0);
    assert_eq!(answer.stdout, "trace.pftrace\n");
    let answer = answer.says(&["seed 1: ", "operations off the fast path", "columns of samples", "ui.perfetto.dev"]);
    assert!(!answer.stderr.contains("left out"), "{}", answer.stderr);
    let bytes = fs::read(room.here().join("trace.pftrace")).expect("a trace");
    let trace = Trace::from_bytes(&bytes).expect("a trace");
    assert_eq!(trace.packet[0].sequence_flags, Some(1));
    assert!(trace.packet.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));
    let told = Told { trace: &trace, tracks: tracks(&trace), slices: slices(&trace) };

    let operations = told.operations();
    let csv = room.run(&["show", "result", "--stalls", "4096", "--format", "csv"]).expect(0).stdout;
    let stalls = lines(&csv);
    let totals = stalls.iter().filter(|line| line["cause"] == "total").count();
    assert!(totals > 100, "{totals} operations of two runs");
    assert_eq!(stalls.len(), operations.len());
    for line in &stalls {
        let of = |name: &str| line[name].to_owned();
        let (what, place) = (format!("{} on {}", of("what"), of("cpu")), format!("{}/{}", of("vpn"), of("order")));
        let key = |ns| (of("seed"), of("task"), what.clone(), place.clone(), of("cause"), ns);
        // Seconds are rounded to nanoseconds there, and cut off here.
        let start = digits(line["s"]);
        let found = operations.get(&key(start)).or_else(|| operations.get(&key(start - 1)));
        assert_eq!(found, Some(&digits(line["ns"])), "{line:?}");
    }

    // Of each column that moved, the values of all samples.
    let csv = room.run(&["show", "result", "--series", "--format", "csv"]).expect(0).stdout;
    let counters = told.counters();
    let mut compared = 0;
    for line in lines(&csv) {
        let Some(values) = counters.get(&(line["seed"].to_owned(), line["name"])) else { continue };
        let us = digits(line["s"]);
        let (_, value) = values[values.partition_point(|(at, _)| *at <= us) - 1];
        assert_eq!(value.to_string(), line["value"], "{line:?}");
        compared += 1;
    }
    assert!(compared > 1000 && counters.contains_key(&("2".to_owned(), "node0/nr_free_pages")), "{compared}");

    // Some of it; the same bytes again.
    room.run(&["export", "result", "--to", "perfetto", "one.pftrace", "--seeds", "2-2"]).expect(0);
    room.run(&["export", "result", "--to", "perfetto", "two.pftrace"]).expect(0);
    let read = |name: &str| fs::read(room.here().join(name)).expect("a trace");
    assert!(read("two.pftrace") == bytes && read("one.pftrace").len() < bytes.len());
}

/// The causes of a slice's time, with their sums.
fn causes<'a>(slice: &'a Slice, sums: &mut BTreeMap<&'a str, u64>) {
    for part in &slice.within {
        match part.category.as_str() {
            CAUSE => *sums.entry(&part.name).or_default() += part.notes[PS],
            MECHANISM => causes(part, sums),
            other => panic!("{other} in {}", slice.name),
        }
    }
}

#[test]
fn a_run_that_was_observed_again_says_what_why_says() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["-o", "result"]])).expect(0);
    let answer = room.run(&["export", "result", "--to", "perfetto", "--again", "--seeds", "1", "trace"]).expect(0);
    answer.says(&["turns of CPUs", "wake-ups"]);
    let trace = Trace::from_bytes(&fs::read(room.here().join("trace")).expect("a trace")).expect("a trace");
    let told = Told { trace: &trace, tracks: tracks(&trace), slices: slices(&trace) };
    let all: Vec<(u64, &Slice)> =
        told.slices.iter().flat_map(|(track, slices)| slices.iter().map(|slice| (*track, slice))).collect();

    // The slowest fault, its task and its longest cause.
    let faults = all.iter().filter(|(_, slice)| slice.category == OPERATION && slice.name == "fault");
    let (number, slowest) = faults.max_by_key(|(_, slice)| slice.notes[PS]).expect("faults");
    let why = room
        .run(&words(&[&["why", "result", "--slowest", "1", "--what", "fault", "--seed", "1"], &["--format", "json"]]));
    let why: serde_json::Value = serde_json::from_str(&why.expect(0).stdout).expect("JSON");
    assert_eq!(why[0]["time_ps"], slowest.notes[PS]);
    let name = told.tracks[number].thread.as_ref().unwrap().thread_name.clone().unwrap();
    assert_eq!(name, format!("task {}", why[0]["task"]));
    let mut sums = BTreeMap::new();
    causes(slowest, &mut sums);
    let parts = why[0]["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), sums.len());
    for part in parts {
        assert_eq!(part[1], sums[part[0].as_str().expect("a cause")], "{part}");
    }

    // A CPU runs one task at a time, and has one track.
    let cpus: Vec<&str> =
        told.tracks.values().filter_map(|of| of.name.as_deref().filter(|name| name.starts_with("CPU "))).collect();
    assert_eq!(cpus, ["CPU 0", "CPU 1"]);
    assert!(all.iter().all(|(_, slice)| slice.category != ON_CPU || slice.within.is_empty()));

    // A task that another task wakes has a slice of its waker before.
    let mut open: BTreeSet<u64> = BTreeSet::new();
    for event in trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()) {
        open.extend(&event.flow_ids);
        assert!(event.terminating_flow_ids.iter().all(|flow| open.remove(flow)), "{event:?}");
    }
    assert!(open.is_empty(), "{open:?}");
    room.run(&["export", "result", "--to", "mmtests", "--again", "out"]).expect(2).says(&["--again", "perfetto"]);
}

#[test]
fn a_trace_is_written_whole_or_not_at_all() {
    let room = Room::new();
    let export = |result: &str, file: &str| room.run(&["export", result, "--to", "perfetto", file]);
    room.run(&words(&[&["run", "fault-storm", "--variant", "v6.1"], &TINY, &["-o", "result"]])).expect(0);
    export("result", "result").expect(2).says(&["result exists already; give the name of a new file"]);
    export("result", "no/such/trace").expect(2).says(&["write no/such/trace: No such file"]);
    export("nowhere", "trace").expect(2).says(&["nowhere is not a result directory"]);
    // On a fast path alone, and without samples.
    export("result", "trace").expect(2).says(&["nothing in it is known over time", "--sample 100ms"]);
    room.run(&["export", "result", "--to", "chrome", "trace"]).expect(2).says(&["mmtests", "perfetto"]);
    room.run(&["export", "result", "--to", "perfetto", "trace", "--seeds", "7-7"]).expect(2).says(&["no seed 7"]);
    let left: Vec<_> = fs::read_dir(room.here()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
