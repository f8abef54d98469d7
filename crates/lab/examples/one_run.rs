//! One simulated run in this process, and nothing else: `cargo xtask bench --against` pairs it with one of another commit, by
//! this file on both sides.
//!
//!     cargo run --release -p lab --example one_run -- one-node-4g fault-storm page=huge iterations=64 size=2GiB
//!
//! Prints how many page faults there were.
#![expect(clippy::print_stdout, reason = "the number is for who runs it")]

use lab::machine::Machine;
use memory::event::Event;
use workloads::Workload;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, name, params @ ..] = arguments.as_slice() else { panic!("expected MACHINE WORKLOAD KEY=VALUE...") };
    let params = params.iter().map(|param| param.split_once('=').expect("a parameter is KEY=VALUE"));
    let workload = Workload::parse(name, params).expect("the parameters are good");
    let machine = Machine::load(machine, &linux::setting::names()).expect("a built-in machine");
    let cap = machine.memory() * 2;
    let config = lab::simulated::config(&machine, rules::variant::named("v6.1"), cap, 1).expect("a good machine");
    let (outcome, finish) = sim::simulate(&config, entries, async move |os| workload.run(os, 1).await);
    outcome.expect("the workload runs there");
    println!("{}", finish.counters.get(Event::Pgfault));
}

fn entries(name: &'static str, params: Vec<u8>) -> sim::EntryFuture {
    Box::pin(async move {
        let result = workloads::run_entry(sim::Sim, name, &params).await.ok_or_else(|| format!("no entry {name:?}"))?;
        result.map_err(|error| error.to_string())
    })
}
