//! Cells that travel as lines: held to come back as they went, or to be refused by name.

use serde_json::json;

use super::*;
use crate::{order::Order, run::travel};

/// A line as `pagelab cells` prints it.
fn line() -> Value {
    let directory = tempfile::tempdir().unwrap();
    let wanted = crate::sweep::Wanted {
        experiment: "fault-storm".to_owned(),
        sets: ["size=2MiB", "iterations=1", "tasks=1", "model=threads", "page=base"].map(str::to_owned).to_vec(),
        variants: vec!["v6.1".to_owned()],
        machine: Some("one-node-512m".to_owned()),
        state: Some("fresh".to_owned()),
        seeds: crate::plan::Seeds::up_to(1),
        workers: None,
        out: Some(directory.path().join("there")),
    };
    let lines = travel::lines(&wanted.request_of_cells().unwrap()).unwrap();
    assert_eq!(lines.len(), 1);
    let mut line: Value = serde_json::from_str(&lines[0]).unwrap();
    // As of a start by recipe, which takes longer to plan.
    let recipe = Recipe::new("metadata+anon", Recipe::UNMOVABLE, Recipe::BLOCKS).unwrap();
    line["order"]["simulated"]["prefix"] =
        serde_json::to_value(Prefix { recipe, expected: None, again: String::new() }).unwrap();
    line
}

/// The line with this value at a place, which need not be there before.
fn with(line: &Value, pointer: &str, value: Value) -> String {
    let mut line = line.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    line.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value);
    line.to_string()
}

fn refusal(line: &str) -> String {
    Travelling::read(line).expect_err(line)
}

#[test]
fn a_line_of_cells_comes_back_as_it_went() {
    let line = line();
    let read = Travelling::read(&line.to_string()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), line);
    let order = read.order.clone().into_order();
    assert_eq!((order.trace.as_ref(), order.map.as_ref(), order.idle_window), (None, None, false));
    assert_eq!(order.ground, linux::file::Ground::default());
    let told = Order::Cell(order.clone());
    assert_eq!(serde_json::from_slice::<Order>(&serde_json::to_vec(&told).unwrap()).unwrap(), told);
    assert_eq!(order.simulated.as_ref().unwrap().state, None);
    assert_eq!(Sent::of(order).unwrap(), read.order);
}

/// All that [`CellOrder`] has and a line has not, and what nobody has: nested too.
#[test]
fn what_a_line_does_not_carry_is_refused_by_name() {
    let line = line();
    let ground = json!({ "directory": "/precious", "room": 0, "memory": null, "drops_caches": true });
    for (pointer, value) in [
        ("/order/ground", ground),
        ("/order/ground", Value::Null),
        ("/order/watch", json!("host")),
        ("/order/idle_window", json!(true)),
        ("/order/trace", json!("/precious/trace")),
        ("/order/trace", Value::Null),
        ("/order/map", json!("/precious")),
        ("/order/simulated/state", json!("/etc/passwd")),
        ("/order/simulated/state", Value::Null),
        ("/order/simulated/prefix/file", json!("/etc/passwd")),
        ("/order/simulated/variant/file", json!("/etc/passwd")),
        ("/order/key/result", json!("x")),
        ("/order/key/path", json!("x")),
        ("/probe", json!({ "seconds": 1 })),
    ] {
        let name = pointer[1..].replace('/', ".");
        let said = refusal(&with(&line, pointer, value));
        assert!(said.contains(&name), "{name}: {said}");
    }
}

#[test]
fn a_value_that_no_cell_has_is_refused_by_name() {
    let line = line();
    let tera = json!(u64::MAX);
    for (pointer, value) in [
        ("/timeout_s", tera.clone()),
        ("/timeout_s", json!(0)),
        ("/timeout_s", json!(TIMEOUT_S_MAX + 1)),
        ("/timeout_s", json!(-1)),
        ("/timeout_s", json!(1.5)),
        ("/order/footprint", json!(0)),
        ("/order/footprint", tera.clone()),
        ("/order/sample", json!(0)),
        ("/order/sample", tera),
        ("/order/sample", json!("1s")),
        ("/order/cap", json!("all")),
        ("/order/simulated", Value::Null),
        ("/order/simulated/machine", json!("/etc/passwd")),
        ("/order/simulated/machine", json!("about = \"none\"")),
        ("/order/simulated/prefix", json!({})),
        ("/order/simulated/prefix/recipe/unmovable", json!(9_999_999)),
        ("/order/simulated/prefix/recipe/name", json!("rm")),
        ("/order/simulated/variant/rules", json!({ "lru_batch": "many" })),
        ("/order/key/target", json!("host")),
        ("/order/key/target", json!("vm")),
        ("/order/key/workload", json!("sh")),
        ("/order/key/case", json!("another")),
        ("/order/key/seed", json!(-1)),
        ("/order/key/program", json!("0")),
        ("/order/key/params", json!({ "size": "/etc" })),
        ("/order", json!([])),
    ] {
        let name = pointer[1..].replace('/', ".");
        let said = refusal(&with(&line, pointer, value.clone()));
        let parent = name.rsplit_once('.').map_or(name.as_str(), |(parent, _)| parent);
        let first = parent.strip_suffix(".recipe").unwrap_or(parent);
        assert!(said.contains(first), "{name} = {value}: {said}");
    }
    for pointer in ["/timeout_s", "/order", "/order/key", "/order/cap", "/order/simulated", "/order/simulated/machine"]
    {
        let mut short = line.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        short.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        assert!(refusal(&short.to_string()).contains(&format!("{}: missing", pointer[1..].replace('/', "."))));
    }
}

#[test]
fn an_order_that_names_files_does_not_travel() {
    let order = Travelling::read(&line().to_string()).unwrap().order.into_order();
    let simulated = order.simulated.clone().unwrap();
    let with_state = Simulated { state: Some("here.state".into()), ..simulated };
    for (order, said) in [
        (CellOrder { simulated: None, ..order.clone() }, "only simulated"),
        (CellOrder { simulated: Some(with_state), ..order.clone() }, "state here.state"),
        (CellOrder { trace: Some("t".into()), ..order.clone() }, "--trace"),
        (CellOrder { map: Some("files".into()), ..order.clone() }, "--map"),
    ] {
        assert!(Sent::of(order).unwrap_err().contains(said));
    }
}
