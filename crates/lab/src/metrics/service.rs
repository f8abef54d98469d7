//! Metrics of a service: latencies of its phases' operations, how much of what was asked was done, and memory of its processes.

use report::{Better, Metric};
use workloads::{
    Latencies, MemberOutcome, PhaseOutcome, TaskOutcome,
    service::{Action, Phase, Process, Service},
};

use super::metric::classed;

/// Percentiles that are shown, in millionths, each with its name and the operations that it takes to mean anything.
const PERCENTILES: [(&str, u32, u64); 3] = [("p50", 500_000, 1), ("p99", 990_000, 100), ("p99.9", 999_000, 1000)];

/// All metrics; copies of a process count together.
pub(super) fn metrics(service: &Service, tasks: &[TaskOutcome]) -> Vec<Metric> {
    let members: Vec<&MemberOutcome> = tasks.iter().filter_map(|task| task.member.as_ref()).collect();
    let mut latency = Vec::new();
    let mut throughput = Vec::new();
    for (process, phase) in phases(service).filter(|(_, phase)| phase.measured) {
        let of: Vec<&PhaseOutcome> = of_phase(&members, process, phase).collect();
        let label = label(service, process, phase);
        latency.extend(latencies(&label, &of, |of| &of.operations));
        let inner = if matches!(phase.action, Action::Fork(_)) { "call" } else { "churn" };
        latency.extend(latencies(&format!("{label}-{inner}"), &of, |of| &of.inner));
        throughput.extend(rates(&label, &of));
    }
    let mut all = latency;
    all.extend(throughput);
    all.extend(memory(service, &members));
    all.extend(killed(service, &members));
    all
}

fn phases(service: &Service) -> impl Iterator<Item = (&Process, &Phase)> {
    service.processes.iter().flat_map(|process| process.phases.iter().map(move |phase| (process, phase)))
}

/// A phase's own name where no other process has one of the same.
fn label(service: &Service, process: &Process, phase: &Phase) -> String {
    let same = phases(service).filter(|(_, other)| other.name == phase.name).count();
    if same == 1 { phase.name.clone() } else { format!("{}-{}", process.name, phase.name) }
}

fn of_phase<'a>(
    members: &'a [&MemberOutcome],
    process: &'a Process,
    phase: &'a Phase,
) -> impl Iterator<Item = &'a PhaseOutcome> {
    let own = members.iter().filter(|member| member.process == process.name);
    own.flat_map(|member| &member.phases).filter(|of| of.name == phase.name)
}

fn latencies(label: &str, of: &[&PhaseOutcome], which: fn(&PhaseOutcome) -> &Latencies) -> Vec<Metric> {
    let mut all = Latencies::default();
    for one in of {
        all.add(which(one));
    }
    let row = |part: &str, value: Option<units::Picos>| {
        let micros = value.map(|value| value.0 as f64 / 1e6);
        let metric = classed("latency_us", label, "us", Better::Lower, micros.into_iter().collect());
        Metric { part: Some(part.to_owned()), ..metric }
    };
    if all.is_empty() {
        return Vec::new();
    }
    let shown = PERCENTILES.iter().filter(|(.., least)| all.len() >= *least);
    let mut rows: Vec<Metric> = shown.map(|(name, part, _)| row(name, all.percentile(*part))).collect();
    rows.push(row("max", all.max()));
    rows
}

/// Operations a second that were reached, and beside them how many were asked for, where they came at a rate for a time.
fn rates(label: &str, of: &[&PhaseOutcome]) -> Vec<Metric> {
    let operations: u64 = of.iter().map(|of| of.operations.len()).sum();
    let asked: u64 = of.iter().filter_map(|of| of.asked).sum();
    let start = of.iter().map(|of| of.start).min();
    let end = of.iter().map(|of| of.end).max();
    let seconds = start.zip(end).map_or(0.0, |(start, end)| end.since(start).as_secs_f64());
    if operations < 2 || seconds == 0.0 {
        return Vec::new();
    }
    let row = |part: &str, better, count: u64| {
        let metric = classed("throughput", label, "ops/s", better, vec![count as f64 / seconds]);
        Metric { part: Some(part.to_owned()), ..metric }
    };
    let mut rows = vec![row("reached", Better::Higher, operations)];
    if asked > 0 {
        rows.push(row("asked", Better::None, asked));
    }
    rows
}

/// Memory of each process at the end of its phases, and the part of it in huge pages.
fn memory(service: &Service, members: &[&MemberOutcome]) -> Vec<Metric> {
    let mut resident = Vec::new();
    let mut huge = Vec::new();
    for (process, phase) in phases(service) {
        let of: Vec<(f64, f64)> = of_phase(members, process, phase)
            .filter_map(|of| of.resident)
            .map(|(base, huge)| (base.0 as f64, huge.0 as f64))
            .collect();
        let (base_bytes, huge_bytes) = of.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let all = base_bytes + huge_bytes;
        if all == 0.0 {
            continue;
        }
        let row = |metric: Metric| Metric { part: Some(phase.name.clone()), ..metric };
        resident.push(row(classed("resident_mib", &process.name, "MiB", Better::None, vec![all / f64::from(1 << 20)])));
        huge.push(row(classed("huge_pct", &process.name, "pct", Better::Higher, vec![100.0 * huge_bytes / all])));
    }
    resident.extend(huge);
    resident
}

/// Processes, children and programs that the kernel killed.
fn killed(service: &Service, members: &[&MemberOutcome]) -> Vec<Metric> {
    let count = |process: &Process| {
        let own = members.iter().filter(|member| member.process == process.name);
        let killed: u64 = own
            .map(|member| u64::from(member.killed) + member.phases.iter().map(|phase| phase.killed).sum::<u64>())
            .sum();
        let metric = classed("killed", &process.name, "processes", Better::Lower, vec![killed as f64]);
        Metric { part: Some("killed".to_owned()), ..metric }
    };
    service.processes.iter().map(count).collect()
}
