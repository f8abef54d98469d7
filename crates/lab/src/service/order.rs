//! Phases that wait for each other: a phase that can never begin, or a process without an end, is refused.

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use workloads::service::{Access, Action, Event, Phase, Process, Service, Until};

use super::{
    names::{Written, index},
    phase,
};
use crate::{source::TableReader, usage::UsageError};

/// Refuses a service in which something never begins or never ends.
pub(super) fn check(service: &Service, written: &[Written<'_, '_>]) -> Result<(), UsageError> {
    for (process, one) in service.processes.iter().zip(written) {
        let mut has_memory = false;
        for (of, table) in process.phases.iter().zip(&one.phases) {
            if phase::needs_memory(of) && !has_memory {
                return Err(
                    table.error("do", format!("process {} has no memory yet: allocate comes first", process.name))
                );
            }
            if let Action::Access(Access { of: Some(by), .. }) = of.action {
                let earlier = process.phases[..of_index(process, of)]
                    .iter()
                    .any(|one| one.name == process.phases[by as usize].name && phase::gives_memory(one));
                if !earlier {
                    let name = &process.phases[by as usize].name;
                    return Err(table.error("of", format!("{name} is no allocation that stands before this phase")));
                }
            }
            if of.is_beside() && matches!(of.action, Action::Free(_)) {
                return Err(
                    table.error("do", "memory is given back in its turn, not beside a phase that may be using it")
                );
            }
            has_memory |= phase::gives_memory(of);
        }
    }
    for (process, one) in service.processes.iter().zip(written) {
        forks_alone(process, &one.phases)?;
    }
    // An arrow from what has to end to what begins or ends after it; a process as a whole is the end of its last phase.
    let mut waits = DiGraphMap::<Event, ()>::new();
    for (process, of) in service.processes.iter().enumerate() {
        let at = |phase: usize| Event { process: index(process), phase: index(phase) };
        let last = |process: u32| Event { process, phase: index(service.processes[process as usize].phases.len() - 1) };
        waits.extend(of.after.map(|event| (event, at(0))));
        for (number, phase) in of.phases.iter().enumerate() {
            waits.extend((number > 0).then(|| (at(number - 1), at(number))));
            waits.extend(phase.after.map(|event| (event, at(number))));
            if let Until::Ended(other) = phase.requests.until {
                waits.add_edge(last(other), at(number), ());
            }
        }
    }
    let is_circle = |events: &Vec<Event>| events.len() > 1 || waits.contains_edge(events[0], events[0]);
    let Some(circle) = tarjan_scc(&waits).into_iter().find(is_circle) else { return Ok(()) };
    let first = circle.iter().min().expect("a circle has members");
    let mut names: Vec<String> = circle.iter().map(|event| name(service, *event)).collect();
    names.sort();
    let table = &written[first.process as usize].phases[first.phase as usize];
    let key = ["after", "until"].into_iter().find(|key| table.has(key)).unwrap_or("do");
    Err(table.error(key, format!("these wait for each other, so that none ever begins: {}", names.join(", "))))
}

/// Refuses forks and other phases beside the same one: to fork, a process has to have one thread.
fn forks_alone(process: &Process, tables: &[TableReader<'_>]) -> Result<(), UsageError> {
    let forks = |phase: &Phase| matches!(phase.action, Action::Fork(_));
    let all: Vec<(&Phase, &TableReader<'_>)> = process.phases.iter().zip(tables).collect();
    for group in all.chunk_by(|_, (next, _)| next.is_beside()) {
        let beside = &group[1..];
        let other = beside.iter().find(|(phase, _)| !forks(phase));
        if let (true, Some((phase, table))) = (beside.iter().any(|(phase, _)| forks(phase)), other) {
            let problem =
                "a fork and other phases cannot run beside the same one: put this one into a process of its own";
            return Err(table.error("do", format!("{}: {problem}", phase.name)));
        }
    }
    Ok(())
}

/// Where a phase stands in its process.
fn of_index(process: &Process, phase: &Phase) -> usize {
    process.phases.iter().position(|one| one.name == phase.name).expect("a phase of this process")
}

fn name(service: &Service, event: Event) -> String {
    let process = &service.processes[event.process as usize];
    format!("{}.{}", process.name, process.phases[event.phase as usize].name)
}
