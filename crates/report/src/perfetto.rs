//! Results as a trace that Perfetto opens (ui.perfetto.dev, trace processor): a process for each run, a thread for each task.
//!
//! | track | has |
//! |---|---|
//! | a thread | the operations of a task that left the allocator's fast path; within each its parts by cause |
//! | `CPU n` | the same operations once more, by the CPU that each began on |
//! | a column of the series | its values at the instants of its samples, in a group with the columns of the same zone or node |
//!
//! A timestamp is the run's time in nanoseconds, cut off; a result has picoseconds, so each slice has its length in picoseconds
//! as `ps`. A result knows how much of an operation's time went to each cause, but not in which order: the causes are laid one
//! behind the other, the longest first.

mod protos;

use std::collections::{BTreeMap, BTreeSet};

pub use self::protos::{
    CounterDescriptor, DebugAnnotation, EventType, INCREMENTAL_STATE_CLEARED, ProcessDescriptor, ThreadDescriptor,
    Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use crate::{
    over_time::{series_of, who},
    record::Cell,
    series::Series,
    slow_path::{Entry, SlowPath},
};

/// Category of slices that are operations.
pub const OPERATION: &str = "off the fast path";
/// Category of slices that are parts of operations.
pub const CAUSE: &str = "cause";
/// Category of slices of operations by CPU.
pub const BY_CPU: &str = "off the fast path, by CPU";
/// Name of the annotation that has the length of a slice in picoseconds.
pub const PS: &str = "ps";

const UNIT_COUNT: i32 = 2;
/// Most operation names in the name of a thread.
const NAMES_MAX: usize = 3;
const PARTS: &str = "Operations off the allocator's fast path. The parts of each are all of its time; in which order they came \
                     is not recorded, and the longest stands first.";
const CPUS: &str = "Operations by the CPU that each began on. They sleep and move, so several may be there at a time.";

/// A trace, and a list of its runs.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The trace.
    pub trace: Trace,
    /// A line of text for each run in the trace.
    pub runs: Vec<String>,
    /// Runs without time series and without a log of slow operations.
    pub left_out: Vec<String>,
}

/// The error for a result that has more threads (tasks times runs) than a trace has numbers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{runs} runs of up to {tasks} tasks are more threads than a trace has numbers for; choose some with --seeds")]
pub struct TooMany {
    runs: usize,
    tasks: u32,
}

impl Trace {
    /// The trace as the bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(self)
    }

    /// Parses a trace from the bytes of a file; unknown fields are skipped.
    ///
    /// # Errors
    /// Bytes that are no trace.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        prost::Message::decode(bytes).map_err(|error| error.to_string())
    }
}

/// The trace of all cells that have a series or a log of slow operations.
///
/// # Errors
/// When there are more threads than numbers for them.
pub fn trace(cells: &[Cell]) -> Result<Traced, TooMany> {
    let logs = || cells.iter().filter_map(|cell| cell.slow_path.as_ref());
    let tasks = logs().flat_map(|log| &log.entries).map(|entry| entry.task).max().unwrap_or(0);
    // The thread numbers of a run begin at a multiple of `stride`, a power of ten, so that people can read them: first the run's
    // process, then its tasks.
    let stride = std::iter::successors(Some(100_u64), |stride| Some(stride * 10)).find(|of| *of > u64::from(tasks) + 2);
    let stride = stride.expect("tasks have 32 bits");
    let pid = |run: usize| i32::try_from(stride * (run as u64 + 1));
    if pid(cells.len() + 1).is_err() {
        return Err(TooMany { runs: cells.len(), tasks });
    }
    let mut writer = Writer::default();
    let (mut runs, mut left_out) = (Vec::new(), Vec::new());
    for cell in cells {
        let log = cell.slow_path.as_ref().filter(|log| !log.entries.is_empty());
        let columns: usize = series_of(cell).map(|series| series.columns.len()).sum();
        if log.is_none() && columns == 0 {
            left_out.push(who(cell));
            continue;
        }
        let pid = pid(runs.len()).expect("there are no more runs than cells");
        let mut words = Vec::new();
        if let Some(log) = log {
            words.push(match (log.entries.len() as u64, log.count()) {
                (kept, all) if kept == all => format!("{all} operations off the fast path"),
                (kept, all) => format!("the {kept} longest of {all} operations off the fast path"),
            });
        }
        if columns > 0 {
            words.push(format!("{columns} columns of samples"));
        }
        let label = words.join(", ");
        runs.push(format!("{}: {label}", who(cell)));
        let process = ProcessDescriptor { pid: Some(pid), process_name: Some(who(cell)), process_labels: vec![label] };
        let process = writer.track(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() });
        if let Some(log) = log {
            writer.tasks(log, process, pid);
            writer.cpus(log, process);
        }
        for series in series_of(cell) {
            writer.series(series, process);
        }
    }
    if let Some(first) = writer.packets.first_mut() {
        first.sequence_flags = Some(INCREMENTAL_STATE_CLEARED);
    }
    Ok(Traced { trace: Trace { packet: writer.packets }, runs, left_out })
}

/// Makes the packets of a trace.
#[derive(Default)]
struct Writer {
    packets: Vec<TracePacket>,
    /// Number of tracks so far; tracks are numbered from 1.
    tracks: u64,
}

impl Writer {
    fn push(&mut self, packet: TracePacket) {
        self.packets.push(TracePacket { trusted_packet_sequence_id: Some(1), ..packet });
    }

    /// Adds a track and returns its number.
    fn track(&mut self, descriptor: TrackDescriptor) -> u64 {
        self.tracks += 1;
        let descriptor = TrackDescriptor { uuid: Some(self.tracks), ..descriptor };
        self.push(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
        self.tracks
    }

    fn event(&mut self, ns: u64, track: u64, kind: EventType, event: TrackEvent) {
        let event = TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track), ..event };
        self.push(TracePacket { timestamp: Some(ns), track_event: Some(event), ..TracePacket::default() });
    }

    fn begin(&mut self, ps: u64, track: u64, category: &str, name: &str, notes: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            categories: vec![category.to_owned()],
            name: Some(name.to_owned()),
            debug_annotations: notes,
            ..TrackEvent::default()
        };
        self.event(ps / 1000, track, EventType::SliceBegin, event);
    }

    fn end(&mut self, ps: u64, track: u64) {
        self.event(ps / 1000, track, EventType::SliceEnd, TrackEvent::default());
    }

    /// Adds a thread for each task in the log.
    fn tasks(&mut self, log: &SlowPath, process: u64, pid: i32) {
        let mut tasks: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        for entry in &log.entries {
            tasks.entry(entry.task).or_default().push(entry);
        }
        for (task, entries) in tasks {
            let names: BTreeSet<&str> = entries.iter().map(|entry| log.name(entry)).collect();
            let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
            let names = names.into_iter().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
            let thread = ThreadDescriptor {
                pid: Some(pid),
                tid: i32::try_from(task).ok().and_then(|task| pid.checked_add(1 + task)),
                thread_name: Some(format!("task {task}: {names}{more}")),
            };
            let track = self.track(TrackDescriptor {
                parent_uuid: Some(process),
                description: Some(PARTS.to_owned()),
                thread: Some(thread),
                ..TrackDescriptor::default()
            });
            for entry in entries {
                self.operation(log, entry, track);
            }
        }
    }

    fn operation(&mut self, log: &SlowPath, entry: &Entry, track: u64) {
        let mut at = entry.start_ps;
        self.begin(at, track, OPERATION, log.name(entry), notes(entry));
        for (cause, ps) in log.parts(entry) {
            self.begin(at, track, CAUSE, cause, vec![number(PS, ps)]);
            at = at.saturating_add(ps);
            self.end(at, track);
        }
        self.end(at, track);
    }

    /// Adds the tracks of each CPU: enough tracks that no two operations on one track overlap. Perfetto merges tracks of the same
    /// name in its view.
    fn cpus(&mut self, log: &SlowPath, process: u64) {
        let mut cpus: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        for entry in &log.entries {
            cpus.entry(entry.cpu).or_default().push(entry);
        }
        for (cpu, mut entries) in cpus {
            entries.sort_by_key(|entry| (entry.start_ps, entry.task));
            // Each track's number, with the end of its last operation.
            let mut lanes: Vec<(u64, u64)> = Vec::new();
            for entry in entries {
                let end = entry.start_ps.saturating_add(entry.ps());
                let lane = lanes.iter().position(|(last, _)| *last <= entry.start_ps).unwrap_or_else(|| {
                    let track = self.track(TrackDescriptor {
                        parent_uuid: Some(process),
                        name: Some(format!("CPU {cpu}")),
                        description: Some(CPUS.to_owned()),
                        ..TrackDescriptor::default()
                    });
                    lanes.push((0, track));
                    lanes.len() - 1
                });
                lanes[lane].0 = end;
                let track = lanes[lane].1;
                self.begin(entry.start_ps, track, BY_CPU, log.name(entry), notes(entry));
                self.end(end, track);
            }
        }
    }

    /// Adds a counter track for each column that moved.
    fn series(&mut self, series: &Series, process: u64) {
        let samples = series.samples();
        let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
        for (column, name) in series.columns.iter().enumerate() {
            let group = name.rsplit_once('/').map(|(group, _)| group);
            let parent = group.map_or(process, |group| {
                *groups.entry(group).or_insert_with(|| {
                    let name = Some(group.to_owned());
                    self.track(TrackDescriptor { parent_uuid: Some(process), name, ..TrackDescriptor::default() })
                })
            });
            let track = self.track(TrackDescriptor {
                parent_uuid: Some(parent),
                name: Some(name.clone()),
                counter: Some(CounterDescriptor { unit: Some(UNIT_COUNT) }),
                ..TrackDescriptor::default()
            });
            let mut before = None;
            for (at, sample) in samples.iter().enumerate() {
                let value = sample.values[column];
                // A value holds until the column's following sample; the last sample is written too, since it says how long the
                // value held.
                if before.replace(value) != Some(value) || at + 1 == samples.len() {
                    let value = TrackEvent {
                        counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
                        ..TrackEvent::default()
                    };
                    self.event(sample.at_us * 1000, track, EventType::Counter, value);
                }
            }
        }
    }
}

/// The annotations of an operation.
fn notes(entry: &Entry) -> Vec<DebugAnnotation> {
    let mut notes = vec![
        number("task", u64::from(entry.task)),
        number("CPU at its start", u64::from(entry.cpu)),
        number(PS, entry.ps()),
    ];
    notes.extend(entry.order.map(|order| number("order", u64::from(order))));
    notes.extend(entry.vpn.map(|vpn| DebugAnnotation {
        name: Some("address".to_owned()),
        pointer_value: Some(vpn << 12),
        ..DebugAnnotation::default()
    }));
    notes
}

fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), uint_value: Some(value), ..DebugAnnotation::default() }
}
