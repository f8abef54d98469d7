//! A trace is read as its bytes say, without Perfetto.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    made_up,
    series::{Sample, Series},
    slow_path::Entry,
    timeline::{Fact, InOrder, Note, Stretch, TaskName, Waker},
};

/// A run of a host and a guest: task 0 has a fault of 9 ns, kswapd0 of the guest has worked for 3 ns.
fn cell() -> Cell {
    let names = ["host/pgfault", "guest1/pgfault", "guest1/node0/nr_free_pages"].map(str::to_owned);
    let sample = |at_us, value| Sample { at_us, values: vec![value; 3] };
    let series = Series::new(1, &names, &[sample(0, 1), sample(10, 2)]);
    let entry = |start_ps, task, what, parts: &[(u32, u64)]| Entry {
        start_ps,
        task,
        cpu: 0,
        what,
        vpn: Some(7),
        order: Some(9),
        parts: parts.to_vec(),
    };
    let slow_path = SlowPath {
        totals: BTreeMap::new(),
        what: vec!["fault".into(), "guest 1: kswapd0".into()],
        causes: vec!["copy".into(), "disk".into()],
        entries: vec![entry(1_000, 0, 0, &[(0, 4_000), (1, 5_000)]), entry(3_000, 1, 1, &[(0, 3_000)])],
    };
    let (series, slow_path) = (Some(series), Some(slow_path));
    Cell { series, slow_path, ..made_up::cell("6.1", 1) }
}

fn timeline() -> Timeline {
    let task = |kernel, name: &str| TaskName { kernel, name: name.to_owned() };
    let stretch = |mechanism: Option<&str>, cause: &str, waits, ps| Stretch {
        mechanism: mechanism.map(str::to_owned),
        cause: cause.to_owned(),
        waits,
        ps,
    };
    let fact = |at_ps, name: &str| Fact {
        at_ps,
        name: name.to_owned(),
        notes: [("zone".to_owned(), Note::Word("Normal".to_owned()))].into(),
    };
    let (compaction, reclaim) = (Some("direct compaction"), Some("direct reclaim"));
    let fault = InOrder {
        stretches: vec![
            stretch(compaction, "copy", false, 2_000),
            stretch(reclaim, "copy", false, 1_000),
            stretch(reclaim, "disk", true, 5_000),
            stretch(None, "copy", false, 1_000),
        ],
        // Before the operation, at the end of a stretch, and behind the operation.
        facts: vec![fact(500, "request"), fact(3_000, "compaction end"), fact(20_000, "slow path end")],
        left_out: 0,
    };
    let thread = InOrder { stretches: vec![stretch(None, "copy", false, 3_000)], ..InOrder::default() };
    Timeline {
        tasks: vec![task(0, "task 0"), task(1, "kswapd0"), task(1, "task 2")],
        turns: vec![(0, 0, 1_000, 4_000), (0, 1, 3_000, 6_000), (0, 0, 9_000, 12_000)],
        wakeups: vec![(3_000, 1, Waker::Task(0)), (9_000, 0, Waker::Disk), (6_000, 0, Waker::Task(1))],
        operations: vec![fault, thread],
        dropped: 0,
    }
}

fn traced() -> Trace {
    let traced = trace(&[cell()], &[(0, timeline())].into()).unwrap();
    assert_eq!(traced.runs.len(), 1);
    assert!(traced.runs[0].contains("3 turns of CPUs and 3 wake-ups, 3 columns"), "{}", traced.runs[0]);
    Trace::from_bytes(&traced.trace.to_bytes()).unwrap()
}

/// The tracks of a trace by number: process, and name.
fn tracks(trace: &Trace) -> BTreeMap<u64, (u64, String)> {
    let all = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let descriptors: BTreeMap<u64, &TrackDescriptor> = all.map(|of| (of.uuid(), of)).collect();
    let of_process = |number: &u64| {
        let mut of = *number;
        while let Some(parent) = descriptors[&of].parent_uuid {
            of = parent;
        }
        of
    };
    let name = |of: &TrackDescriptor| {
        let thread = of.thread.as_ref().map(|thread| thread.thread_name().to_owned());
        let process = of.process.as_ref().map(|process| process.process_name().to_owned());
        thread.or(process).unwrap_or_else(|| of.name().to_owned())
    };
    descriptors.iter().map(|(number, of)| (*number, (of_process(number), name(of)))).collect()
}

/// The events of a track as words, each slice between brackets.
fn events(trace: &Trace, name: &str) -> String {
    let tracks = tracks(trace);
    let mut words = Vec::new();
    for packet in &trace.packet {
        let Some(event) = packet.track_event.as_ref().filter(|event| tracks[&event.track_uuid()].1 == name) else {
            continue;
        };
        let ns = packet.timestamp();
        words.push(match event.r#type() {
            EventType::SliceBegin => format!("{ns}[{}", event.name()),
            EventType::SliceEnd => format!("]{ns}"),
            EventType::Instant => format!("{ns}!{}", event.name()),
            other => panic!("{other:?}"),
        });
    }
    words.join(" ")
}

#[test]
fn no_two_tracks_of_a_process_have_one_name() {
    let trace = traced();
    let tracks = tracks(&trace);
    let names: BTreeSet<&(u64, String)> = tracks.values().collect();
    assert_eq!(names.len(), tracks.len());
    let processes: Vec<&str> =
        tracks.iter().filter(|(number, (of, _))| *number == of).map(|(_, (_, name))| name.as_str()).collect();
    assert_eq!(processes.len(), 2);
    assert!(processes[0].starts_with("host of ") && processes[1].starts_with("guest 1 of "), "{processes:?}");
    let of_guest: Vec<&str> =
        tracks.values().filter(|(of, _)| tracks[of].1.starts_with("guest")).map(|(_, name)| name.as_str()).collect();
    assert_eq!(of_guest[1..], ["kswapd0", "CPU 0", "pgfault", "node0", "node0/nr_free_pages"], "{of_guest:?}");
}

#[test]
fn slices_nest_and_stand_in_the_order_of_time() {
    let trace = traced();
    assert_eq!(
        events(&trace, "task 0"),
        "1[fault 1!request 1[direct compaction 1[copy 3!compaction end 3!wakes kswapd0 ]3 ]3 3[direct reclaim 3[copy ]4 \
         4[disk 6!woken by kswapd0 ]9 ]9 9[copy 9!woken by the disk 10!slow path end ]10 ]10"
    );
    // A wake-up at an instant is within the slice that begins then.
    assert_eq!(events(&trace, "kswapd0"), "3[kswapd0 3[copy 3!woken by task 0 6!wakes task 0 ]6 ]6");
    // Both kernels have a CPU 0.
    assert_eq!(events(&trace, "CPU 0"), "1[task 0 3[kswapd0 ]4 ]6 9[task 0 ]12");
    let ends = trace.packet.windows(2).all(|pair| pair[0].timestamp <= pair[1].timestamp);
    assert!(ends, "events are in the order of time, behind all tracks");
}

#[test]
fn each_flow_begins_and_then_ends() {
    let mut open = BTreeSet::new();
    let (mut begun, mut ended) = (0, 0);
    for event in traced().packet.iter().filter_map(|packet| packet.track_event.as_ref()) {
        for flow in &event.flow_ids {
            assert!(open.insert(*flow) && event.name().starts_with("wakes "), "{event:?}");
            begun += 1;
        }
        for flow in &event.terminating_flow_ids {
            assert!(open.remove(flow) && event.name().starts_with("woken by "), "{event:?}");
            ended += 1;
        }
    }
    assert_eq!((begun, ended, open.len()), (2, 2, 0));
}

#[test]
fn without_a_timeline_the_longest_cause_stands_first() {
    let traced = trace(&[cell()], &BTreeMap::new()).unwrap();
    assert_eq!(events(&traced.trace, "task 0: fault"), "1[fault 1[disk ]6 6[copy ]10 ]10");
    assert!(!tracks(&traced.trace).values().any(|(_, name)| name.starts_with("CPU")));
}

#[test]
fn columns_have_units_and_facts_have_words() {
    let trace = traced();
    let units: Vec<&str> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref()?.counter.as_ref())
        .map(CounterDescriptor::unit_name)
        .collect();
    assert_eq!(units, ["events", "events", "pages"]);
    let facts = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref());
    let fact = facts.into_iter().find(|event| event.categories == [FACT]).unwrap();
    let zone = fact.debug_annotations.iter().find(|note| note.name() == "zone").unwrap();
    assert_eq!((zone.string_value(), fact.name()), ("Normal", "request"));
}
