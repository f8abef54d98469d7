//! From a workload's integers to the metrics of the result.

mod autonumabench;
mod locality;
mod metric;
mod numa_access;
mod numa_probe;
mod service;
mod traffic;
mod warehouses;

use report::{Better, Metric};
use units::{Bytes, Picos};
use workloads::{
    Block, Iteration, Outcome, TaskOutcome, Unmapping, Workload, fork_storm::Phase, guest_footprint, llfree_frag,
    will_it_scale,
};

use self::metric::{GIB, classed, metric, rate};
pub(crate) use self::{
    autonumabench::{Times, of_times},
    warehouses::of_points,
};

/// The metrics of one cell, in the order in which tables show them.
pub(crate) fn of(workload: &Workload, outcome: &Outcome) -> Vec<Metric> {
    match workload {
        Workload::FaultStorm(_) => fault_storm(outcome),
        Workload::ForkStorm(_) => fork_storm(outcome),
        Workload::NumaAccess(params) if params.by_distance => numa_access::by_distance(params.pattern, &outcome.tasks),
        Workload::NumaAccess(params) => numa_access::metrics(params.pattern, &outcome.tasks),
        Workload::Thpscale2015(params) => {
            let parts = params.by_count(&outcome.tasks).into_iter().map(|(count, tasks)| {
                let part = |metric| Metric { part: Some(count.to_string()), ..metric };
                blocks(tasks).into_iter().map(part).collect::<Vec<_>>()
            });
            parts.flatten().collect()
        }
        Workload::Thpfioscale(_) => {
            // Whoever asked for as many threads as the script starts wants to see how many these are.
            let part = outcome.tasks.len().to_string();
            blocks(&outcome.tasks).into_iter().map(|metric| Metric { part: Some(part.clone()), ..metric }).collect()
        }
        Workload::Week(params) => week(params.hours, &outcome.tasks),
        Workload::Guests(_) => guests(outcome),
        Workload::WillItScale(params) => match params.test {
            will_it_scale::Test::None => memhog(params, outcome),
            test => will_it_scale(test, outcome),
        },
        Workload::NumaProbe(_) => numa_probe::metrics(&outcome.tasks),
        Workload::Autonumabench(_) => autonumabench::metrics(outcome),
        Workload::Warehouses(_) => warehouses::metrics(outcome),
        Workload::VmLargerThanANode(_) => locality::vm(&workload.case(), outcome),
        Workload::FragmentedFault(_) => locality::fragmented(&workload.case(), outcome),
        Workload::Service(service) => service::metrics(service, &outcome.tasks),
        Workload::LlfreeFrag(params) => frag(&workload.case(), params, &outcome.tasks),
        Workload::GuestFootprint(params) => footprint(params, &outcome.tasks),
        Workload::Thpscale(_) | Workload::AgedFault(_) | Workload::SmallFiles(_) | Workload::SlabChurn(_) => {
            blocks(&outcome.tasks)
        }
    }
}

fn fault_storm(outcome: &Outcome) -> Vec<Metric> {
    let elapsed = outcome.elapsed();
    let all = |count: fn(&TaskOutcome) -> u64| outcome.tasks.iter().map(count).sum::<u64>();
    let own = |task: &TaskOutcome| rate(task.faults, task.end.since(task.start));
    let iterations = || outcome.tasks.iter().flat_map(|task| &task.iterations);
    let per_page = |unmapping: Unmapping| unmapping.span.0 as f64 / 1e3 / unmapping.pages as f64;
    vec![
        metric("faults_per_second", "faults/s", Better::Higher, vec![rate(all(|task| task.faults), elapsed)]),
        metric(
            "faults_per_second_per_task",
            "faults/s",
            Better::Higher,
            vec![harmonic_mean(outcome.tasks.iter().map(own))],
        ),
        metric("fault_latency_ns", "ns", Better::Lower, iterations().map(latency_ns).collect()),
        metric(
            "unmap_latency_per_page_ns",
            "ns",
            Better::Lower,
            iterations().filter_map(|iteration| iteration.unmapping.map(per_page)).collect(),
        ),
        metric("page_stores_per_second", "base pages/s", Better::Higher, vec![rate(all(|task| task.stores), elapsed)]),
    ]
}

fn fork_storm(outcome: &Outcome) -> Vec<Metric> {
    let phase = |phase: Phase| outcome.tasks[phase as usize].iterations.iter();
    let latency = |name, of| metric(name, "ns", Better::Lower, phase(of).map(latency_ns).collect());
    let forks = phase(Phase::Fork).map(|iteration| iteration.faulting.0 as f64 / 1e3).collect();
    vec![
        latency("touch_fault_latency_ns", Phase::Touch),
        metric("fork_latency_ns", "ns", Better::Lower, forks),
        latency("copy_fault_latency_ns", Phase::Copy),
        latency("reuse_fault_latency_ns", Phase::Reuse),
    ]
}

fn blocks(tasks: &[TaskOutcome]) -> Vec<Metric> {
    let micros = |time: Picos| time.0 as f64 / 1e6;
    let fault = |block: &Block| (block.huge, micros(block.latency));
    let faults: Vec<(bool, f64)> = tasks.iter().flat_map(|task| task.blocks.iter().map(fault)).collect();
    let init = |of: fn(&TaskOutcome) -> Option<Picos>| tasks.iter().filter_map(of).map(micros).collect();
    of_faults(&faults, init(|task| task.anoninit), init(|task| task.fileinit))
}

/// Metrics of thpscale as mmtests reports them: the time of a block by what its fault brought, and how many were huge. Of each
/// block whether it was huge, and its time; all times in microseconds.
pub(crate) fn of_faults(faults: &[(bool, f64)], anoninit: Vec<f64>, fileinit: Vec<f64>) -> Vec<Metric> {
    let latency = |class: &str, of: fn(bool) -> bool| {
        let samples = faults.iter().filter(|(huge, _)| of(*huge)).map(|(_, micros)| *micros).collect();
        classed("fault_latency_us", class, "us", Better::Lower, samples)
    };
    let huge = faults.iter().filter(|(huge, _)| *huge).count() as f64;
    let share = (!faults.is_empty()).then(|| 100.0 * huge / faults.len() as f64);
    vec![
        latency("fault-base", |huge| !huge),
        latency("fault-huge", |huge| huge),
        latency("fault-both", |_| true),
        classed("thp_success_pct", "huge", "pct", Better::Higher, share.into_iter().collect()),
        classed("init_latency_us", "anoninit", "us", Better::Lower, anoninit),
        classed("init_latency_us", "fileinit", "us", Better::Lower, fileinit),
    ]
}

/// How long the guests' turns took, and what their host had to do.
fn guests(outcome: &Outcome) -> Vec<Metric> {
    let secs = |iteration: &Iteration| iteration.faulting.as_secs_f64();
    let fills = outcome.tasks.iter().flat_map(|task| &task.iterations).map(secs).collect();
    let of_host = |name: &str| {
        let count = outcome.counters.get(&format!("host_{name}")).copied().unwrap_or(0);
        metric(&format!("host_{name}"), "pages", Better::None, vec![count as f64])
    };
    vec![metric("fill_time_s", "s", Better::Lower, fills), of_host("pswpin"), of_host("pswpout")]
}

/// How long each phase took to hold what it holds, by the time at which it was due, and the faults of all.
fn footprint(params: &guest_footprint::Params, phases: &[TaskOutcome]) -> Vec<Metric> {
    let case = params.trace.name();
    let took = |(phase, task): (&guest_footprint::Phase, &TaskOutcome)| {
        let took = task.end.since(task.start).0 as f64 / 1e9;
        let part = Some(format!("{case} {}s", phase.at.as_secs_f64()));
        Metric { part, ..metric("phase_ms", "ms", Better::Lower, vec![took]) }
    };
    let mut metrics: Vec<Metric> = params.trace.phases().iter().zip(phases).map(took).collect();
    let faults = phases.iter().map(|phase| phase.faults).sum::<u64>();
    metrics.push(metric("page_fault_count", "faults", Better::Lower, vec![faults as f64]));
    metrics
}

/// Free blocks of 2 MiB, a row for a round.
fn frag(case: &str, params: &llfree_frag::Params, tasks: &[TaskOutcome]) -> Vec<Metric> {
    let class = format!("{case}-round");
    let counted = |round: u32| {
        let of = |task: &TaskOutcome| task.frame_churn.as_ref()?.free_huge.get(round as usize).copied();
        let samples = tasks.iter().filter_map(of).map(|blocks| blocks as f64).collect();
        let metric = classed("free_2mib_blocks", &class, "blocks", Better::Higher, samples);
        Metric { part: Some(round.to_string()), ..metric }
    };
    params.shown().into_iter().map(counted).collect()
}

/// Shares over time, a row for some hours together.
fn week(hours: u64, probes: &[TaskOutcome]) -> Vec<Metric> {
    /// Rows at most.
    const ROWS: usize = 6;
    let each = usize::try_from(hours).expect("few hours").div_ceil(ROWS);
    let name = |(probes, row): (&[TaskOutcome], usize)| {
        let (from, to) = (row * each + 1, row * each + probes.len());
        if from == to { format!("{from}") } else { format!("{from}-{to}") }
    };
    let rows: Vec<(String, &[TaskOutcome])> =
        probes.chunks(each).zip(0..).map(|(probes, nth)| (name((probes, nth)), probes)).collect();
    let over_time = |name: &str, better, of: fn(&TaskOutcome) -> Option<f64>| {
        let row = |(part, probes): &(String, &[TaskOutcome])| {
            let values: Vec<f64> = probes.iter().filter_map(of).collect();
            let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
            let metric = classed(name, "hour", "pct", better, mean.into_iter().collect());
            Metric { part: Some(part.clone()), ..metric }
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let huge = |probe: &TaskOutcome| {
        let huge = probe.blocks.iter().filter(|block| block.huge).count() as f64;
        (!probe.blocks.is_empty()).then(|| 100.0 * huge / probe.blocks.len() as f64)
    };
    let mixed = |probe: &TaskOutcome| Some(probe.census?.mixed_share() as f64 / 100.0);
    let scattered = |probe: &TaskOutcome| Some(probe.census?.scattered_share() as f64 / 100.0);
    let unmovable = |probe: &TaskOutcome| Some(probe.census?.unmovable_share() as f64 / 100.0);
    let mut metrics = over_time("thp_success_pct", Better::Higher, huge);
    metrics.extend(over_time("mixed_pageblocks_pct", Better::Lower, mixed));
    metrics.extend(over_time("pageblocks_with_unmovable_pct", Better::Lower, scattered));
    metrics.extend(over_time("unmovable_frames_pct", Better::Lower, unmovable));
    metrics.extend(blocks(probes).into_iter().filter(|metric| metric.name == "fault_latency_us"));
    metrics
}

/// The numbers that will-it-scale prints, and what a guest's host did meanwhile. The names are taken from the published table,
/// which has one number for each.
fn will_it_scale(test: will_it_scale::Test, outcome: &Outcome) -> Vec<Metric> {
    let tasks = &outcome.tasks;
    let windows: f64 = tasks.iter().map(|task| task.end.since(task.start).as_secs_f64()).sum();
    let used = outcome.rusage();
    // Tasks have no more than the CPUs there are.
    let cpus = outcome.cpus.map_or(1.0, |cpus| (f64::from(cpus) / tasks.len() as f64).min(1.0));
    let idle = 100.0 * (1.0 - (used.user + used.system).as_secs_f64() / (windows * cpus));
    let cleared = outcome.counters.get(HOST_CLEARED).map(|pages| *pages as f64);
    let stores = tasks.iter().map(|task| rate(task.stores, task.end.since(task.start))).sum();
    let part = format!("tasks={}", tasks.len());
    let of = |name: &str, unit: &str, better: Better, samples: Vec<f64>| {
        let name = format!("{}.{name}", test.name());
        Metric { part: Some(part.clone()), ..metric(&name, unit, better, samples) }
    };
    vec![
        self::stores(test.name(), u32::try_from(tasks.len()).expect("few tasks"), vec![stores]),
        of("idle_pct", "pct", Better::None, vec![idle]),
        of("host_cleared_pages", "base pages", Better::None, cleared.into_iter().collect()),
    ]
}

/// Stores a second of all tasks together.
pub(crate) fn stores(test: &str, tasks: u32, samples: Vec<f64>) -> Metric {
    let part = Some(format!("tasks={tasks}"));
    Metric { part, ..metric(&format!("{test}.iterations"), "1/s", Better::Higher, samples) }
}

/// Base pages that a guest's host cleared where it had backed them before, of the simulator alone: memory that nobody had touched
/// yet it would have to clear in any case.
const HOST_CLEARED: &str = "sim_host_refaults";

/// What a guest's host has of it some time after memhog, and how much it got back meanwhile.
fn memhog(params: &will_it_scale::Params, outcome: &Outcome) -> Vec<Metric> {
    let gib = |pages: f64| pages * Bytes::PAGE.0 as f64 / GIB;
    let resident = outcome.tasks.iter().filter_map(|task| task.host_resident).map(|pages| gib(pages as f64)).collect();
    let returned = outcome.counters.get(will_it_scale::HOST_RESIDENT).map(|moved| gib(-(*moved).min(0) as f64));
    let part = format!("after {} s", params.settle.0 / Picos::from_secs(1).0);
    let of = |name: &str, samples: Vec<f64>| Metric {
        part: Some(part.clone()),
        ..metric(name, "GiB", Better::None, samples)
    };
    let least = outcome.tasks.iter().filter_map(|task| task.least_reported).map(|part| part as f64 / 1e6).collect();
    let beyond =
        returned.is_some().then(|| outcome.counters.get(will_it_scale::BEYOND_BUDGET).copied().unwrap_or(0) as f64);
    let of_pass = |name: &str, samples: Vec<f64>| Metric {
        part: Some("pass".to_owned()),
        ..metric(name, "of a list", Better::None, samples)
    };
    vec![
        of("host_resident_gib", resident),
        of("host_returned_gib", returned.into_iter().collect()),
        of_pass("reported_part", least),
        of_pass("reports_beyond_budget", beyond.into_iter().collect()),
    ]
}

/// Time per fault.
fn latency_ns(iteration: &Iteration) -> f64 {
    iteration.faulting.0 as f64 / 1e3 / iteration.faults as f64
}

/// The mean of rates over tasks: what one task of a set of equals would show. (The rates themselves are in `detail`.)
fn harmonic_mean(rates: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = rates.len() as f64;
    count / rates.map(|rate| 1.0 / rate).sum::<f64>()
}
