//! The writer of packets: numbers of tracks and kernels, events and their annotations.

use super::protos::{
    DebugAnnotation, EventType, INCREMENTAL_STATE_CLEARED, ProcessDescriptor, Trace, TracePacket, TrackDescriptor,
    TrackEvent,
};
use crate::{
    over_time::{series_of, who},
    record::Cell,
    timeline::Timeline,
};

/// Category of slices that are operations.
pub const OPERATION: &str = "off the fast path";
/// Category of slices that are parts of operations.
pub const CAUSE: &str = "cause";
/// Category of slices that are mechanisms of an operation's slow path.
pub const MECHANISM: &str = "mechanism";
/// Category of slices that are tasks on a CPU.
pub const ON_CPU: &str = "on a CPU";
/// Category of instants at which a task wakes another one, or is woken.
pub const WAKEUP: &str = "wake-up";
/// Category of instants at which something was decided for an operation.
pub const FACT: &str = "fact";
/// Name of the annotation that has the length of a slice in picoseconds.
pub const PS: &str = "ps";

/// The kernels of a run, and their processes in the trace.
pub(super) struct Kernels {
    /// Number of kernels.
    pub(super) count: usize,
    /// The track of each kernel's process.
    pub(super) tracks: Vec<u64>,
    /// The process number of the first kernel; the others follow.
    first: i32,
}

impl Kernels {
    /// The kernels that anything is known of.
    pub(super) fn of(cell: &Cell, timeline: Option<&Timeline>) -> Self {
        let observed = timeline.into_iter().flat_map(|timeline| &timeline.tasks).map(|task| usize::from(task.kernel));
        let log = cell.slow_path.iter();
        let logged = log.flat_map(|log| log.what.iter()).map(|name| kernel_of(name).0);
        let sampled = series_of(cell).flat_map(|series| series.names()).map(|name| kernel_of_column(name).0);
        let last = observed.chain(logged).chain(sampled).max().unwrap_or(0);
        Self { count: last + 1, tracks: Vec::new(), first: 0 }
    }

    /// Adds their processes, the first with this number.
    pub(super) fn written(self, writer: &mut Writer, (cell, first): (&Cell, i32), label: &str) -> Self {
        let process = |kernel: usize| {
            let place = match (self.count, kernel) {
                (1, _) => String::new(),
                (_, 0) => "host of ".to_owned(),
                (_, guest) => format!("guest {guest} of "),
            };
            let process = ProcessDescriptor {
                pid: first.checked_add(i32::try_from(kernel).expect("kernels have 16 bits")),
                process_name: Some(place + &who(cell)),
                process_labels: vec![label.to_owned()],
            };
            writer.track(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() })
        };
        let tracks = (0..self.count).map(process).collect();
        Self { tracks, first, ..self }
    }

    /// The process number of a kernel.
    pub(super) fn pid(&self, kernel: usize) -> Option<i32> {
        self.first.checked_add(i32::try_from(kernel).ok()?)
    }

    /// The thread number of a task.
    pub(super) fn tid(&self, task: u32) -> Option<i32> {
        self.pid(self.count)?.checked_add(i32::try_from(task).ok()?)
    }
}

/// The kernel of an operation in a log, and the operation's name there: `guest 1: fault`.
pub(super) fn kernel_of(name: &str) -> (usize, &str) {
    let guest = name.strip_prefix("guest ").and_then(|rest| rest.split_once(": "));
    guest.and_then(|(number, name)| Some((number.parse().ok()?, name))).unwrap_or((0, name))
}

/// The kernel of a column of a series, and the column's name there: `guest1/pgfault`, or `host/pgfault` beside guests.
pub(super) fn kernel_of_column(name: &str) -> (usize, &str) {
    let Some((kernel, rest)) = name.split_once('/') else { return (0, name) };
    match kernel.strip_prefix("guest").and_then(|number| number.parse().ok()) {
        Some(number) => (number, rest),
        None if kernel == "host" => (0, rest),
        None => (0, name),
    }
}

/// Makes the packets of a trace.
#[derive(Default)]
pub(super) struct Writer {
    /// Descriptions of tracks, which are numbered from 1.
    tracks: Vec<TracePacket>,
    /// Events, each with whether a flow ends there.
    events: Vec<(bool, TracePacket)>,
    /// Number of flows so far.
    pub(super) flows: u64,
}

impl Writer {
    /// Adds a track and returns its number.
    pub(super) fn track(&mut self, descriptor: TrackDescriptor) -> u64 {
        let number = self.tracks.len() as u64 + 1;
        let descriptor = TrackDescriptor { uuid: Some(number), ..descriptor };
        self.tracks.push(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
        number
    }

    pub(super) fn event(&mut self, ns: u64, track: u64, kind: EventType, event: TrackEvent) {
        let event = TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track), ..event };
        let ends_flow = !event.terminating_flow_ids.is_empty();
        let packet = TracePacket { timestamp: Some(ns), track_event: Some(event), ..TracePacket::default() };
        self.events.push((ends_flow, packet));
    }

    pub(super) fn begin(&mut self, ps: u64, track: u64, category: &str, name: &str, notes: Vec<DebugAnnotation>) {
        self.event(ps / 1000, track, EventType::SliceBegin, named(category, name, notes));
    }

    pub(super) fn end(&mut self, ps: u64, track: u64) {
        self.event(ps / 1000, track, EventType::SliceEnd, TrackEvent::default());
    }

    /// All packets: tracks first, then events by time. Of one instant the ends of flows come last, since a flow that ends before
    /// it has begun is none.
    pub(super) fn finish(mut self) -> Trace {
        self.events.sort_by_key(|(ends_flow, packet)| (packet.timestamp, *ends_flow));
        let events = self.events.into_iter().map(|(_, packet)| packet);
        let mut packet: Vec<TracePacket> = self.tracks.into_iter().chain(events).collect();
        for packet in &mut packet {
            packet.trusted_packet_sequence_id = Some(1);
        }
        if let Some(first) = packet.first_mut() {
            first.sequence_flags = Some(INCREMENTAL_STATE_CLEARED);
        }
        Trace { packet }
    }
}

/// An event with a name.
pub(super) fn named(category: &str, name: &str, notes: Vec<DebugAnnotation>) -> TrackEvent {
    TrackEvent {
        categories: vec![category.to_owned()],
        name: Some(name.to_owned()),
        debug_annotations: notes,
        ..TrackEvent::default()
    }
}

pub(super) fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), uint_value: Some(value), ..DebugAnnotation::default() }
}

pub(super) fn word(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), string_value: Some(value.to_owned()), ..DebugAnnotation::default() }
}
