//! Guests of a simulated host: their machines, and the measurements over all guests together.

use std::collections::BTreeMap;

use memory::event::{Counters, Event};
use sim::{GuestLost, LostBy, NoResult, ProcessMemory};
use units::{Bytes, CpuId, setting};
use workloads::{Outcome, Workload, guests::Params};

use super::{Failure, Found, Trial, entry, measure};
use crate::{
    counted::OF_HOST,
    machine::{Machine, Node},
    order::{CellOrder, Simulated},
    over_time,
    plan::Every,
    simulated,
    source::Source,
    timeline,
};

/// A guest's machine: as fast as its host, with memory and CPUs of its own.
fn guest_of(host: &Machine, params: &Params) -> Machine {
    let node = Node {
        id: host.nodes[0].id,
        cpus: (0..params.cpus).map(CpuId).collect(),
        memory: params.memory,
        distance: host.nodes[0].distance[..1].to_vec(),
        bandwidth: None,
        zones: Vec::new(),
    };
    let reporting = if params.reporting { "on" } else { "off" };
    let mut settings = host.settings.clone();
    let of_guests = ["transparent_hugepage", "boot."].into_iter().chain(simulated::OF_GUESTS);
    let of_guests: Vec<&str> = of_guests.collect();
    settings.retain(|(name, _)| of_guests.iter().any(|begin| name.starts_with(begin)));
    settings.push((setting::REPORTING.to_owned(), reporting.to_owned()));
    Machine {
        name: format!("guest of {}", host.name),
        nodes: vec![node],
        threads: Vec::new(),
        caches: Vec::new(),
        latency: None,
        settings,
        swap: Bytes(0),
        system: None,
        host_page: Some(Bytes::HUGE_PAGE),
        ..host.clone()
    }
}

/// What has happened to a guest, when, and what to change.
fn why_lost(lost: &GuestLost, host: &Machine, params: &Params) -> String {
    let GuestLost { guest, after, by } = lost;
    let mib = |size: Bytes| format!("{} MiB", size.as_mib());
    let at = format!("after {:.3} s of virtual time", after.as_secs_f64());
    let number = guest + 1;
    let (memory, all) = (mib(params.memory), mib(params.memory * u64::from(params.guests)));
    match by {
        LostBy::Host(processes) => {
            let sum = |of: fn(&ProcessMemory) -> Bytes| mib(processes.iter().map(of).sum());
            let (all_resident, all_swapped) = (sum(|process| process.resident), sum(|process| process.swapped));
            let ProcessMemory { resident, swapped } = processes[*guest];
            let (name, of_host, swap) = (&host.name, mib(host.memory()), mib(host.swap));
            format!(
                "guest {number}: the host's OOM killer has killed its process {at}, with {} of it in memory and {} in swap, \
                 of all guests {all_resident} and {all_swapped}: {} guests of {memory} ({all}), each filling {} %, on \
                 machine {name} with {of_host} of memory and {swap} of swap; ask for fewer or smaller guests (guests, \
                 memory, hog), or for a machine with more memory or swap",
                mib(resident),
                mib(swapped),
                params.guests,
                params.hog,
            )
        }
        LostBy::Itself => format!(
            "guest {number}: its own memory is out {at}: its program fills {} % of {memory}, and a guest has no swap; ask for \
             less (hog) or larger guests (memory)",
            params.hog
        ),
    }
}

/// Runs them.
pub(super) fn run(
    workload: &Workload,
    params: &Params,
    (order, what): (&CellOrder, &Simulated),
    trial: &mut Trial,
) -> Result<Found, Failure> {
    let source = Source::from_text(format!("{}.toml", order.key.machine), what.machine.as_str());
    let machine = Machine::from_source(&source, &setting::names()).map_err(|error| error.to_string())?;
    let rules = what.variant.rules()?;
    let guest_machine = guest_of(&machine, params);
    let machine = simulated::without_guests_settings(machine);
    let config = |machine: &Machine, cap, seed| simulated::config(machine, &rules, cap, seed);
    let mut host = config(&machine, (machine.memory() + machine.swap) * 2, order.key.seed)?;
    (host.host, host.reporting) = (None, None);
    let guests =
        (1..=u64::from(params.guests)).map(|n| config(&guest_machine, params.memory * 2, order.key.seed ^ n << 32));
    let guests = guests.collect::<Result<Vec<_>, _>>()?;
    let of_each = params.clone();
    let body = async move |os: sim::Sim, n: usize| {
        let before = u32::try_from(n).expect("few guests");
        workloads::guests::guest(&os, &of_each, before).await
    };
    let sample = order.sample.map(Every::time);
    let options = sim::GuestsOptions { sample, why: trial.why.clone(), timeline: trial.wants_timeline };
    let (outcomes, mut finish) =
        sim::simulate_guests_with(&host, &guests, options, entry, body).map_err(|problem| match problem {
            NoResult::GuestLost(lost) => Failure::Refused(why_lost(&lost, &machine, params)),
            problem => super::no_result(&problem, &machine.name),
        })?;
    let tasks = outcomes.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::from)?;
    let window = tasks.iter().map(|task| task.end.since(task.start)).max().unwrap_or_default();
    let counted = |counters: &Counters, prefix: &str| {
        let count =
            |(event, n): (Event, u64)| (format!("{prefix}{}", event.name()), i64::try_from(n).unwrap_or(i64::MAX));
        counters.iter().map(count).collect::<Vec<_>>()
    };
    let mut counters: BTreeMap<String, i64> = counted(&finish.host.counters, OF_HOST).into_iter().collect();
    for (name, n) in finish.guests.iter().flat_map(|guest| counted(guest, "")) {
        *counters.entry(name).or_default() += n;
    }
    let outcome = Outcome { tasks, counters, gauges: BTreeMap::new(), window, unable: Vec::new(), cpus: None };
    let mut measured = measure(workload, outcome, None);
    measured.causes = super::causes(&finish.host.times);
    let (tasks, run_hash, variant) = (measured.detail.take(), finish.host.hash, &what.variant.difference);
    measured.detail = serde_json::json!({ "tasks": tasks, "run_hash": run_hash, "variant": variant });
    let samples = sample.zip(finish.samples.as_ref());
    let series = samples.map(|(every, samples)| over_time::series(every, samples));
    let slow_path = Some(over_time::slow_path(&finish.slow_operations));
    trial.stories = std::mem::take(&mut finish.why);
    trial.timeline = finish.timeline.take().map(|found| timeline::written(found, &finish.slow_operations));
    Ok(Found { measured, series, map: None, slow_path, footprint: None })
}
