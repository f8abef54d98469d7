//! Threads of a trace: a task's operations, what was decided for them, and its wake-ups; and the CPUs that tasks ran on.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    protos::{DebugAnnotation, EventType, ThreadDescriptor, TrackDescriptor, TrackEvent},
    writer::{CAUSE, FACT, Kernels, MECHANISM, ON_CPU, OPERATION, PS, WAKEUP, Writer, kernel_of, named, number, word},
};
use crate::{
    slow_path::{Entry, SlowPath},
    timeline::{Fact, InOrder, Note, Timeline, Waker},
};

/// Most operation names in the name of a thread.
const NAMES_MAX: usize = 3;
const PARTS: &str = "Operations off the allocator's fast path. The parts of each are all of its time; in which order they came \
                     is not recorded, and the longest stands first. `pagelab export --again` knows the order.";
const IN_ORDER: &str = "Operations off the allocator's fast path, with their parts in the order of time, what was decided for \
                        them, and wake-ups.";
const CPUS: &str = "The tasks that this CPU ran.";

/// The place of an event among others of its track at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Within the slices that end at the instant.
    Ending,
    /// In turn: the begin or the end of a slice.
    InTurn,
    /// Within the slices that begin at the instant.
    Beginning,
}

/// Events of one track.
#[derive(Default)]
struct Events(Vec<(u64, Place, EventType, TrackEvent)>);

impl Events {
    fn begin(&mut self, ps: u64, category: &str, name: &str, notes: Vec<DebugAnnotation>) {
        self.0.push((ps, Place::InTurn, EventType::SliceBegin, named(category, name, notes)));
    }

    fn end(&mut self, ps: u64) {
        self.0.push((ps, Place::InTurn, EventType::SliceEnd, TrackEvent::default()));
    }

    fn instant(&mut self, ps: u64, place: Place, event: TrackEvent) {
        self.0.push((ps, place, EventType::Instant, event));
    }
}

impl Writer {
    /// Adds a thread for each task that is in the log, wakes or is woken.
    pub(super) fn tasks(&mut self, log: &SlowPath, kernels: &Kernels, timeline: Option<&Timeline>) {
        let mut tasks: BTreeMap<u32, (Events, Vec<&Entry>)> = BTreeMap::new();
        for (place, entry) in log.entries.iter().enumerate() {
            let (events, entries) = tasks.entry(entry.task).or_default();
            entries.push(entry);
            let in_order = timeline.and_then(|timeline| timeline.operations.get(place));
            operation(events, log, entry, in_order);
        }
        for (at, task, by) in timeline.into_iter().flat_map(|timeline| &timeline.wakeups) {
            let names = timeline.map_or(&[][..], |timeline| &timeline.tasks);
            let name =
                |task: u32| names.get(task as usize).map_or_else(|| format!("task {task}"), |of| of.name.clone());
            let by_name = match by {
                Waker::Task(waker) => name(*waker),
                Waker::Disk => "the disk".to_owned(),
                Waker::Timer => "a timer".to_owned(),
            };
            let mut woken = named(WAKEUP, &format!("woken by {by_name}"), vec![word("waker", &by_name)]);
            if let Waker::Task(waker) = by {
                self.flows += 1;
                woken.terminating_flow_ids = vec![self.flows];
                let mut wakes = named(WAKEUP, &format!("wakes {}", name(*task)), vec![word("wakes", &name(*task))]);
                wakes.flow_ids = vec![self.flows];
                tasks.entry(*waker).or_default().0.instant(*at, Place::Ending, wakes);
            }
            tasks.entry(*task).or_default().0.instant(*at, Place::Beginning, woken);
        }
        for (task, (mut events, entries)) in tasks {
            let known = timeline.and_then(|timeline| timeline.tasks.get(task as usize));
            let logged = entries.first().map_or(0, |entry| kernel_of(log.name(entry)).0);
            let kernel = known.map_or(logged, |known| usize::from(known.kernel));
            let thread = ThreadDescriptor {
                pid: kernels.pid(kernel),
                tid: kernels.tid(task),
                thread_name: Some(known.map_or_else(|| name_by_operations(task, log, &entries), |of| of.name.clone())),
            };
            let track = self.track(TrackDescriptor {
                parent_uuid: Some(kernels.tracks[kernel]),
                description: Some(if known.is_some() { IN_ORDER } else { PARTS }.to_owned()),
                thread: Some(thread),
                ..TrackDescriptor::default()
            });
            events.0.sort_by_key(|(ps, place, ..)| (*ps, *place));
            for (ps, _, kind, event) in events.0 {
                self.event(ps / 1000, track, kind, event);
            }
        }
    }

    /// Adds a track for each CPU.
    pub(super) fn cpus(&mut self, timeline: &Timeline, kernels: &Kernels) {
        let mut cpus: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (cpu, task, start, end) in &timeline.turns {
            let kernel = timeline.tasks.get(*task as usize).map_or(0, |task| task.kernel);
            cpus.entry((kernel, *cpu)).or_default().push((*start, *end, *task));
        }
        for ((kernel, cpu), turns) in cpus {
            let track = self.track(TrackDescriptor {
                parent_uuid: Some(kernels.tracks[usize::from(kernel)]),
                name: Some(format!("CPU {cpu}")),
                description: Some(CPUS.to_owned()),
                ..TrackDescriptor::default()
            });
            for (start, end, task) in turns {
                let name = timeline.tasks.get(task as usize).map_or("?", |of| of.name.as_str());
                let notes = vec![number("task", u64::from(task)), number(PS, end.saturating_sub(start))];
                self.begin(start, track, ON_CPU, name, notes);
                self.end(end, track);
            }
        }
    }
}

/// The name of a thread by the operations in its log.
fn name_by_operations(task: u32, log: &SlowPath, entries: &[&Entry]) -> String {
    let names: BTreeSet<&str> = entries.iter().map(|entry| kernel_of(log.name(entry)).1).collect();
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    let names = names.into_iter().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
    format!("task {task}: {names}{more}")
}

fn operation(events: &mut Events, log: &SlowPath, entry: &Entry, in_order: Option<&InOrder>) {
    let start = entry.start_ps;
    let mut notes = notes(entry);
    let left_out = in_order.map_or(0, |in_order| in_order.left_out);
    notes.extend((left_out > 0).then(|| number("facts left out", left_out)));
    events.begin(start, OPERATION, kernel_of(log.name(entry)).1, notes);
    let end = match in_order {
        None => parts(events, log, entry),
        Some(in_order) => {
            for fact in in_order.facts.iter().filter(|fact| fact.at_ps <= start) {
                events.0.push((start, Place::InTurn, EventType::Instant, of_fact(fact)));
            }
            let end = stretches(events, start, in_order);
            for fact in in_order.facts.iter().filter(|fact| fact.at_ps > start) {
                events.instant(fact.at_ps.min(end), Place::Ending, of_fact(fact));
            }
            end
        }
    };
    events.end(end);
}

/// The parts of an operation whose order is not known; returns the end.
fn parts(events: &mut Events, log: &SlowPath, entry: &Entry) -> u64 {
    let mut at = entry.start_ps;
    for (cause, ps) in log.parts(entry) {
        events.begin(at, CAUSE, cause, vec![number(PS, ps)]);
        at = at.saturating_add(ps);
        events.end(at);
    }
    at
}

/// The stretches of an operation, each run of stretches of a mechanism within a slice of its name; returns the end.
fn stretches(events: &mut Events, start: u64, in_order: &InOrder) -> u64 {
    let mut at = start;
    for of_mechanism in in_order.stretches.chunk_by(|a, b| a.mechanism == b.mechanism) {
        let mechanism = of_mechanism[0].mechanism.as_deref();
        if let Some(mechanism) = mechanism {
            let ps = of_mechanism.iter().map(|stretch| stretch.ps).sum();
            events.begin(at, MECHANISM, mechanism, vec![number(PS, ps)]);
        }
        for stretch in of_mechanism {
            let waits = stretch.waits.then(|| word("on a CPU", "no"));
            let notes = std::iter::once(number(PS, stretch.ps)).chain(waits).collect();
            events.begin(at, CAUSE, &stretch.cause, notes);
            at = at.saturating_add(stretch.ps);
            events.end(at);
        }
        if mechanism.is_some() {
            events.end(at);
        }
    }
    at
}

/// The annotations of an operation.
fn notes(entry: &Entry) -> Vec<DebugAnnotation> {
    let mut notes = vec![
        number("task", u64::from(entry.task)),
        number("CPU at its start", u64::from(entry.cpu)),
        number(PS, entry.ps()),
    ];
    if let Some(order) = entry.order {
        notes.extend([number("order", u64::from(order)), number("bytes", 4096 << order)]);
    }
    notes.extend(entry.vpn.map(|vpn| DebugAnnotation {
        name: Some("address".to_owned()),
        pointer_value: Some(vpn << 12),
        ..DebugAnnotation::default()
    }));
    notes
}

fn of_fact(fact: &Fact) -> TrackEvent {
    let note = |(name, note): (&String, &Note)| match note {
        Note::Number(value) => number(name, *value),
        Note::Word(value) => word(name, value),
    };
    let at = number("at ps", fact.at_ps);
    named(FACT, &fact.name, std::iter::once(at).chain(fact.notes.iter().map(note)).collect())
}
