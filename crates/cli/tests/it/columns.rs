//! Results as columns, and progress as lines of JSON: what the Python package reads.

use report::Cell;
use serde_json::Value;

use crate::support::{TINY, document, room::Room, words};

const RUN: [&str; 7] = ["run", "fault-storm", "--machine", "one-cpu-512m", "--variant", "v6.1", "--seeds"];

fn parse(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "one line");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The values of a column, one for each row.
#[track_caller]
fn values(document: &Value, table: &str, column: &str) -> Vec<Value> {
    let of = |list: &Value, name: &str| {
        list.as_array().and_then(|list| list.iter().find(|one| one["name"] == name).cloned())
    };
    let table = of(&document["tables"], table).unwrap_or_else(|| panic!("no table {table} in {document}"));
    let column = of(&table["columns"], column).unwrap_or_else(|| panic!("no column {column} in {table}"));
    let runs = column["runs"].as_array().into_iter().flatten();
    let of_runs = runs.flat_map(|run| {
        std::iter::repeat_n(run[0].clone(), usize::try_from(run[1].as_u64().expect("a count")).unwrap())
    });
    let values: Vec<Value> = of_runs.chain(column["values"].as_array().into_iter().flatten().cloned()).collect();
    assert_eq!(Some(values.len() as u64), table["rows"].as_u64(), "{column}");
    values
}

#[test]
fn columns_hold_what_result_lines_hold() {
    let room = Room::new();
    room.run(&words(&[&RUN, &["2", "--sample", "1ms", "-o", "result"], &TINY])).expect(0);
    let cells: Vec<Cell> = report::cells(document::whole_records(&room.here().join("result")));
    let shown = parse(&room.run(&["show", "result", "--format", "columns"]).expect(0).stdout);
    assert_eq!((&shown["columns"], &shown["schema"]), (&1.into(), &report::SCHEMA.into()));
    assert_eq!((&shown["experiment"], &shown["missing"]), (&"fault-storm".into(), &0.into()));
    assert_eq!(values(&shown, "cells", "seed"), [1, 2]);
    assert_eq!(values(&shown, "cells", "param_size"), ["2MiB", "2MiB"]);
    let samples = cells.iter().flat_map(|cell| cell.measured.metrics.iter().flat_map(|metric| &metric.samples));
    assert_eq!(values(&shown, "samples", "value"), samples.map(|value| Value::from(*value)).collect::<Vec<_>>());
    let counters = cells.iter().flat_map(|cell| cell.measured.counters.values().chain(cell.measured.gauges.values()));
    // Lines leave noughts out; a counter that the kernel has is a number all the same.
    let all = values(&shown, "counters", "value");
    let is_moved = |value: &Value| value.as_i64() != Some(0);
    assert!(all.len() > 200 && all.iter().any(|value| !is_moved(value)), "{all:?}");
    let moved: Vec<Value> = all.into_iter().filter(is_moved).collect();
    let counters = counters.map(|value| Value::from(*value)).filter(is_moved);
    assert_eq!(moved, counters.collect::<Vec<_>>());
    let second = parse(&room.run(&["show", "result", "--seeds", "2-2", "--format", "columns"]).expect(0).stdout);
    assert_eq!(values(&second, "cells", "seed"), [2]);

    let series = parse(&room.run(&["show", "result", "--series=pgfault", "--format", "columns"]).expect(0).stdout);
    let rows: usize = cells.iter().map(|cell| cell.series.as_ref().expect("it was sampled").rows.len()).sum();
    assert_eq!(values(&series, "series", "name"), vec![Value::from("pgfault"); rows]);
    let stalls = parse(&room.run(&["show", "result", "--stalls", "1", "--format", "columns"]).expect(0).stdout);
    let longest = cells[0].slow_path.as_ref().expect("simulated runs have one").longest(1);
    let of_first = values(&stalls, "stalls", "cell").iter().filter(|cell| **cell == 0).count();
    assert_eq!(of_first, longest.iter().map(|entry| entry.parts.len()).sum::<usize>());
    room.run(&["show", "result", "--series=pgfaul", "--format", "columns"]).expect(2).says(&["\"pgfault\"?"]);
    room.run(&["compare", "result", "--format", "columns"]).expect(2).says(&["invalid value 'columns'"]);
}

#[test]
fn progress_is_a_line_of_json_for_each_event() {
    let room = Room::new();
    let run = words(&[&RUN, &["2", "--progress", "json", "-o", "result"], &TINY]);
    let events = |stderr: &str| -> Vec<Value> { stderr.lines().map(parse).collect() };
    let first = room.run(&run).expect(0);
    let told = events(&first.stderr);
    let steps: Vec<u64> = told
        .iter()
        .filter(|event| event["event"] == "step")
        .map(|event| event["done"].as_u64().expect("a number"))
        .collect();
    assert!(!steps.is_empty() && steps.is_sorted(), "{told:?}");
    assert!(told.iter().filter(|event| event["event"] == "step").all(|event| event["total"] == 2), "{told:?}");
    let last = serde_json::json!({ "event": "finished", "directory": "result" });
    assert_eq!(told.last(), Some(&last));
    let again = events(&room.run(&run).expect(0).stderr);
    assert!(again.iter().any(|event| event["text"] == "resuming result: 2 of 2 cells are there"), "{again:?}");
    let answer = room.run(&words(&[&RUN, &["2", "--progress", "json", "--quiet"], &TINY])).expect(2);
    answer.says(&["--progress", "--quiet"]);
}
