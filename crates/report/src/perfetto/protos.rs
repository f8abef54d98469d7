//! The messages of Perfetto's trace format that this crate writes, with only the fields it uses: protos/perfetto/trace/ of
//! google/perfetto (Apache-2.0), whose field numbers never change. Alternatives of a `oneof` are optional fields here, which
//! have the same bytes.

use prost::{Enumeration, Message};

/// A trace: the whole file (trace.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Trace {
    /// All packets, in any order; packets with the same timestamp are in the order in which they happened.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// A packet: an event, or a track for events (trace_packet.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TracePacket {
    /// The time in nanoseconds. A packet without a clock of its own uses the trace's clock, which here is that of the run.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Number of the writer, the same in all packets.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// [`INCREMENTAL_STATE_CLEARED`] in the first packet; without it readers drop the packets that follow.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// An event.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED` of trace_packet.proto.
pub const INCREMENTAL_STATE_CLEARED: u32 = 1;

/// A track: the row of a process, thread, CPU or counter (track_event/track_descriptor.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TrackDescriptor {
    /// A number that no other track has.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// The parent track, below which this one is shown.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// A name for people.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Explanatory text.
    #[prost(string, optional, tag = "14")]
    pub description: Option<String>,
    /// The process, if the track is a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The thread, if the track is a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// Present if the track is of numbers.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A process (track_event/process_descriptor.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ProcessDescriptor {
    /// The process's number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// A name for people.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
    /// Words behind the name.
    #[prost(string, repeated, tag = "8")]
    pub process_labels: Vec<String>,
}

/// A thread (track_event/thread_descriptor.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ThreadDescriptor {
    /// The number of its process.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// The thread's own number.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// A name for people.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// The kind of numbers on a counter track (track_event/counter_descriptor.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CounterDescriptor {
    /// Unit of the numbers, as a word.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// An event of a track (track_event/track_event.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TrackEvent {
    /// The categories of the event.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// A name for people.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The type of the event, such as the begin of a slice.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// The track that the event is on.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// The new value, on a counter track.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    /// Further facts about the event.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Flows that begin here or pass through, by numbers that the whole trace shares.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Flows that end here.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// The type of a [`TrackEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// The type is not set.
    Unspecified = 0,
    /// A slice begins, within the slices of its track that have begun and not ended.
    SliceBegin = 1,
    /// The slice that began last ends.
    SliceEnd = 2,
    /// An event without a length.
    Instant = 3,
    /// A counter track has a new value.
    Counter = 4,
}

/// A name and a value (track_event/debug_annotation.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DebugAnnotation {
    /// The name.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// An address, which is shown in hexadecimal.
    #[prost(uint64, optional, tag = "7")]
    pub pointer_value: Option<u64>,
    /// A word.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
}
