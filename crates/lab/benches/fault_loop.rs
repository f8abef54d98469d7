//! The whole fault-storm loop, mmap and munmap included, on this host's kernel and in the simulator: CPU time per page fault,
//! medians of alternating rounds, and their ratio. Runs are so long that the start of one is nothing beside its faults.
//!
//! And the simulator's cost per fault with 16 CPUs relative to one CPU, each with one task; the tasks share the same amount
//! of memory.
//!
//!     cargo bench -p lab
#![expect(clippy::print_stdout, reason = "a benchmark talks to a person")]

use lab::machine::Machine;
use linux::{
    file::Ground,
    host::{Linux, block_on},
};
use nix::{sys::time::TimeValLike, time::ClockId};
use units::{Bytes, CpuId};
use workloads::{Outcome, Workload};

const ROUNDS: usize = 7;
/// Runs within the simulator are short, and the fastest of 40 rounds repeats to a hundredth on a machine whose medians move
/// by a tenth.
const SHORT_ROUNDS: usize = 40;
const SIZE: Bytes = Bytes::mib(128);
const MACHINE: &str = "one-node-4g";
const CAP: Bytes = Bytes::gib(2);

/// How a kind of pages is faulted.
struct Loop {
    page: &'static str,
    /// Frames that one fault maps.
    each: u64,
    size: Bytes,
    /// Of the host, which counts them alone.
    on_host: u64,
    /// Of the simulator. More, where a fault is of hundreds of pages: its run is measured from the start of the machine.
    in_simulator: u64,
    wanted: &'static str,
}

const LOOPS: [Loop; 2] = [
    Loop { page: "base", each: 1, size: SIZE, on_host: 16, in_simulator: 64, wanted: " (wanted: at least 25)" },
    Loop { page: "huge", each: 512, size: Bytes::gib(1), on_host: 4, in_simulator: 256, wanted: "" },
];

impl Loop {
    fn workload(&self, iterations: u64, warmup: u64) -> Workload {
        let (iterations, warmup, size) = (iterations.to_string(), warmup.to_string(), self.size.to_string());
        let params = [("page", self.page), ("iterations", &iterations), ("warmup", &warmup), ("size", &size)];
        Workload::parse("fault-storm", params).expect("the parameters are good")
    }

    fn per_fault(&self, ns: f64, outcome: &Outcome, iterations: u64) -> f64 {
        assert_eq!(outcome.tasks.len(), 1, "one task");
        ns / (iterations * self.size.frames().0 / self.each) as f64
    }

    /// The counted iterations by `getrusage`: user and system time of the one task.
    fn on_host(&self) -> f64 {
        let host = Linux::new(vec![CpuId(0)], CAP, Ground::default());
        let outcome = block_on(self.workload(self.on_host, 1).run(host, 1)).expect("the workload runs here");
        let rusage = outcome.tasks[0].rusage;
        let span = rusage.user + rusage.system;
        self.per_fault(span.0 as f64 / 1000.0, &outcome, self.on_host)
    }

    /// All of a run by the CPU time of this thread.
    fn in_simulator(&self) -> f64 {
        let machine = Machine::load(MACHINE, &linux::setting::names()).expect("a built-in machine");
        let config = lab::simulated::config(&machine, rules::variant::named("v6.1"), CAP, 1).expect("a good machine");
        let workload = self.workload(self.in_simulator, 0);
        let start = cpu_ns();
        let (outcome, finish) = sim::simulate(&config, no_entries, async move |os| workload.run(os, 1).await);
        let span = cpu_ns() - start;
        let faults = self.in_simulator * self.size.frames().0 / self.each;
        assert_eq!(finish.counters.get(memory::event::Event::Pgfault), faults, "{} pages", self.page);
        self.per_fault(span as f64, &outcome.expect("the workload runs there"), self.in_simulator)
    }
}

fn main() {
    for of in LOOPS {
        let rounds = (0..ROUNDS).map(|_| (of.on_host(), of.in_simulator()));
        let (host, sim): (Vec<_>, Vec<_>) = rounds.unzip();
        let [host, sim] = [host, sim].map(median);
        println!(
            "fault-storm, {} pages: {host:.0} ns of CPU per fault on this host, {sim:.1} ns in the simulator: {:.1} times \
             cheaper{}",
            of.page,
            host / sim,
            of.wanted
        );
    }
    many_cpus();
}

/// CPU time per fault on a machine of `cpus` CPUs with one task on each; the tasks share `SIZE` bytes.
fn per_fault(cpus: u32, model: &str) -> f64 {
    let mut machine = Machine::load(MACHINE, &linux::setting::names()).expect("a built-in machine");
    machine.nodes[0].cpus = (0..cpus).map(CpuId).collect();
    let config =
        lab::simulated::config(&machine, rules::variant::named("v6.1"), Bytes::gib(1), 1).expect("a good machine");
    let (tasks, size) = (cpus.to_string(), Bytes(SIZE.0 / u64::from(cpus)).to_string());
    let params = [("model", model), ("tasks", &tasks), ("size", &size)];
    let workload = Workload::parse("fault-storm", params).expect("the parameters are good");
    let start = cpu_ns();
    let (_, finish) = sim::simulate(&config, entries, async move |os| workload.run(os, 1).await);
    (cpu_ns() - start) as f64 / finish.counters.get(memory::event::Event::Pgfault) as f64
}

fn many_cpus() {
    for model in ["processes", "threads"] {
        let (mut one, mut many) = (Vec::new(), Vec::new());
        for _ in 0..SHORT_ROUNDS {
            one.push(per_fault(1, model));
            many.push(per_fault(16, model));
        }
        let [one, many] = [one, many].map(least);
        println!(
            "fault-storm, base pages, {model}: {one:.2} ns of CPU per fault with one CPU, {many:.2} ns with 16: {:.2} times \
             as much (wanted: at most 1.5)",
            many / one
        );
    }
}

fn entries(name: &'static str, params: Vec<u8>) -> sim::EntryFuture {
    Box::pin(async move {
        let result = workloads::run_entry(sim::Sim, name, &params).await.ok_or_else(|| format!("no entry {name:?}"))?;
        result.map_err(|error| error.to_string())
    })
}

fn no_entries(name: &'static str, _: Vec<u8>) -> sim::EntryFuture {
    unreachable!("threads need no entry such as {name}")
}

fn least(spans: Vec<f64>) -> f64 {
    spans.into_iter().fold(f64::INFINITY, f64::min)
}

fn median(mut spans: Vec<f64>) -> f64 {
    spans.sort_by(f64::total_cmp);
    spans[spans.len() / 2]
}

/// CPU time of this thread so far.
fn cpu_ns() -> u64 {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("every thread has this clock");
    u64::try_from(now.num_nanoseconds()).expect("it starts at 0")
}
