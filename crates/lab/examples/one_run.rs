//! One simulated run in this process, and nothing else: `cargo xtask bench --against` pairs it with one of another commit, by
//! this file on both sides.
//!
//!     cargo run --release -p lab --example one_run -- one-node-4g fault-storm page=huge iterations=64 size=2GiB
//!
//! `KEY=VALUE` is the workload's parameter; with a slash or a full stop in the key it is a setting of the machine, and `kernel=`
//! says by whose rules. Prints a line of JSON: the counters that have moved, `steps`, and `virtual_ms`.
#![expect(clippy::print_stdout, reason = "the counts are for who runs it")]

use std::collections::BTreeMap;

use lab::machine::Machine;
use workloads::Workload;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, name, given @ ..] = arguments.as_slice() else { panic!("expected MACHINE WORKLOAD KEY=VALUE...") };
    let mut machine = Machine::load(machine, &linux::setting::names()).expect("a built-in machine");
    let (mut params, mut kernel) = (Vec::new(), "v6.1");
    for (key, value) in given.iter().map(|given| given.split_once('=').expect("a parameter is KEY=VALUE")) {
        match key {
            "kernel" => kernel = value,
            key if key.contains(['/', '.']) => machine.settings.push((key.to_owned(), value.to_owned())),
            key => params.push((key, value)),
        }
    }
    let workload = Workload::parse(name, params).expect("the parameters are good");
    let cap = machine.memory() * 2;
    let config = lab::simulated::config(&machine, rules::variant::named(kernel), cap, 1).expect("a good machine");
    let body = async move |os| workload.run(os, 1).await;
    let (outcome, finish, extra) = sim::simulate_with(&config, sim::Options::default(), entries, body);
    let outcome = outcome.expect("the workload runs there");
    let moved = finish.counters.iter().filter(|(_, count)| *count > 0);
    let mut counts: BTreeMap<&str, u64> = moved.map(|(event, count)| (event.name(), count)).collect();
    counts.insert("steps", extra.steps);
    counts.insert("virtual_ms", outcome.elapsed().as_nanos() / 1_000_000);
    println!("{}", serde_json::to_string(&counts).expect("names and numbers"));
}

fn entries(name: &'static str, params: Vec<u8>) -> sim::EntryFuture {
    Box::pin(async move {
        let result = workloads::run_entry(sim::Sim, name, &params).await.ok_or_else(|| format!("no entry {name:?}"))?;
        result.map_err(|error| error.to_string())
    })
}
