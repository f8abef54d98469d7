//! Results as a trace that Perfetto opens (ui.perfetto.dev, trace processor): a process for each kernel of a run, a thread for
//! each task.
//!
//! | track | has |
//! |---|---|
//! | a thread | the operations of a task that left the allocator's fast path, and within each where its time went |
//! | `CPU n` | the tasks that the CPU ran, where the run was observed |
//! | a column of the series | its values at the instants of its samples, in a group with the columns of the same zone or node |
//!
//! A timestamp is the run's time in nanoseconds, cut off; a result has picoseconds, so each slice has its length in picoseconds
//! as `ps`. A result knows how much of an operation's time went to each cause, but not in which order: without a [`Timeline`]
//! the causes are laid one behind the other, the longest first.

mod counters;
mod protos;
mod tasks;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;

pub use self::protos::{
    CounterDescriptor, DebugAnnotation, EventType, INCREMENTAL_STATE_CLEARED, ProcessDescriptor, ThreadDescriptor,
    Trace, TracePacket, TrackDescriptor, TrackEvent,
};
pub use self::writer::{CAUSE, FACT, MECHANISM, ON_CPU, OPERATION, PS, WAKEUP};
use self::writer::{Kernels, Writer};
use crate::{
    over_time::{series_of, who},
    record::Cell,
    slow_path::SlowPath,
    timeline::Timeline,
};

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
    tasks: usize,
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

/// The trace of all cells that have a series or a log of slow operations; `timelines`: the timeline of each
/// cell that was observed, by the place of the cell.
///
/// # Errors
/// When there are more threads than numbers for them.
pub fn trace(cells: &[Cell], timelines: &BTreeMap<usize, Timeline>) -> Result<Traced, TooMany> {
    let logs = || cells.iter().filter_map(|cell| cell.slow_path.as_ref());
    let logged = logs().flat_map(|log| &log.entries).map(|entry| entry.task as usize + 1);
    let observed = timelines.values().map(|timeline| timeline.tasks.len());
    let tasks = logged.chain(observed).max().unwrap_or(0);
    let kernels = |place: usize, cell: &Cell| Kernels::of(cell, timelines.get(&place));
    let most = cells.iter().enumerate().map(|(place, cell)| kernels(place, cell).count).max().unwrap_or(1);
    // The numbers of a run begin at a multiple of `stride`, a power of ten, so that people can read them: first the kernels'
    // processes, then the tasks.
    let stride =
        std::iter::successors(Some(100_u64), |stride| Some(stride * 10)).find(|of| *of > (tasks + most) as u64);
    let stride = stride.expect("tasks have 32 bits");
    let first = |run: usize| i32::try_from(stride * (run as u64 + 1));
    if first(cells.len() + 1).is_err() {
        return Err(TooMany { runs: cells.len(), tasks });
    }
    let mut writer = Writer::default();
    let (mut runs, mut left_out) = (Vec::new(), Vec::new());
    for (place, cell) in cells.iter().enumerate() {
        let log = cell.slow_path.as_ref().filter(|log| !log.entries.is_empty());
        let columns: usize = series_of(cell).map(|series| series.columns.len()).sum();
        if log.is_none() && columns == 0 {
            left_out.push(who(cell));
            continue;
        }
        let timeline = timelines.get(&place);
        let label = label(log, columns, timeline);
        runs.push(format!("{}: {label}", who(cell)));
        let first = first(runs.len() - 1).expect("there are no more runs than cells");
        let kernels = kernels(place, cell).written(&mut writer, (cell, first), &label);
        if let Some(log) = log {
            writer.tasks(log, &kernels, timeline);
        }
        if let Some(timeline) = timeline {
            writer.cpus(timeline, &kernels);
        }
        for series in series_of(cell) {
            writer.series(series, &kernels);
        }
    }
    Ok(Traced { trace: writer.finish(), runs, left_out })
}

/// The words behind a process's name: how much of its run is in the trace.
fn label(log: Option<&SlowPath>, columns: usize, timeline: Option<&Timeline>) -> String {
    let mut words = Vec::new();
    if let Some(log) = log {
        words.push(match (log.entries.len() as u64, log.count()) {
            (kept, all) if kept == all => format!("{all} operations off the fast path"),
            (kept, all) => format!("the {kept} longest of {all} operations off the fast path"),
        });
    }
    if let Some(Timeline { turns, wakeups, dropped, .. }) = timeline {
        let more = if *dropped > 0 { format!(" (the first of them; {dropped} more)") } else { String::new() };
        words.push(format!("{} turns of CPUs and {} wake-ups{more}", turns.len(), wakeups.len()));
    }
    if columns > 0 {
        words.push(format!("{columns} columns of samples"));
    }
    words.join(", ")
}
