//! A service as a user writes it: a file of processes and phases, read into the plan that [`workloads::service`] runs.
//!
//! Names are found here, and what can never begin or never end is refused, each mistake with its file, line and key.

mod names;
mod order;
mod phase;
mod value;

use workloads::{
    Policy,
    service::{Cpus, Process, Service},
};

use self::{
    names::{Names, Written, advising, event, names},
    value::{Count, Level, Span},
};
use crate::{
    machine::cpulist,
    source::{TableReader, unknown},
    usage::UsageError,
};

const KEYS: &[&str] = &["about", "answers", "machine", "kernel", "state", "settings", "process", "measure"];
const PROCESS_KEYS: &[&str] =
    &["name", "copies", "threads", "start", "after", "cpus", "policy", "thp", "nice", "phase"];
const MEASURE_KEYS: &[&str] = &["latency", "from"];

/// Whether a table is the root of a service's file.
pub(crate) fn is_service(root: &TableReader<'_>) -> bool {
    root.has("process")
}

/// The service of a file of this name.
pub(crate) fn read(name: &str, root: &TableReader<'_>) -> Result<Service, UsageError> {
    let root = root.clone().only("key", KEYS)?;
    root.optional::<String>("answers")?;
    let tables = root.tables("process")?;
    if tables.is_empty() {
        return Err(root.error("process", "expected at least one table [[process]]"));
    }
    let mut written = Vec::new();
    for table in &tables {
        let phases = table.tables("phase")?;
        if phases.is_empty() {
            return Err(table.error("phase", "missing; expected at least one table [[process.phase]]"));
        }
        written.push(Written { process: table, phases });
    }
    let names = names(&written)?;
    let mut processes = Vec::new();
    for (index, one) in written.iter().enumerate() {
        processes.push(process(one, &names, index)?);
    }
    let measure = root.table("measure")?.map(|table| table.only("key", MEASURE_KEYS)).transpose()?;
    let mut from = None;
    if let Some(measure) = &measure {
        from = event(measure, "from", &names, None)?;
        if let Some(latency) = measure.optional::<Vec<String>>("latency")? {
            choose_measured(measure, &latency, &mut processes)?;
        }
    }
    let service = Service { name: name.to_owned(), processes, from };
    order::check(&service, &written)?;
    Ok(service)
}

fn process(written: &Written<'_, '_>, names: &Names, index: usize) -> Result<Process, UsageError> {
    let table = written.process.clone().only("key", PROCESS_KEYS)?;
    let count = |key: &str, most: u64| -> Result<u32, UsageError> {
        let Count(count) = table.optional(key)?.unwrap_or(Count(1));
        if !(1..=most).contains(&count) {
            return Err(table.error(key, format!("expected a whole number from 1 to {most}, found {count}")));
        }
        Ok(u32::try_from(count).expect("it is at most a thousand"))
    };
    let mut phases = Vec::new();
    for (number, phase) in written.phases.iter().enumerate() {
        phases.push(phase::read(phase, names, (index, number))?);
    }
    Ok(Process {
        name: names[index].0.clone(),
        copies: count("copies", 256)?,
        threads: count("threads", 1024)?,
        start: table.optional("start")?.map(|Span(time)| time).unwrap_or_default(),
        after: event(&table, "after", names, None)?,
        cpus: cpus(&table)?,
        policy: policy(&table)?,
        thp: advising(&table, "thp")?,
        nice: table.optional("nice")?.map_or(0, |Level(level)| level),
        phases,
    })
}

fn cpus(table: &TableReader<'_>) -> Result<Cpus, UsageError> {
    let Some(text) = table.optional::<String>("cpus")? else { return Ok(Cpus::Free) };
    if text == "spread" {
        return Ok(Cpus::Spread);
    }
    match cpulist::parse(&text) {
        Ok(list) if !list.is_empty() => Ok(Cpus::These(list.into_iter().map(|cpu| cpu.0).collect())),
        _ => Err(table.error("cpus", format!("expected \"spread\" or CPUs such as \"0-3,5\", found {text:?}"))),
    }
}

fn policy(table: &TableReader<'_>) -> Result<Policy, UsageError> {
    let Some(text) = table.optional::<String>("policy")? else { return Ok(Policy::Default) };
    Policy::parse(&text).map_err(|error| match error {
        workloads::ParamError::BadValue { expects, found, .. } => {
            table.error("policy", format!("expected {expects}, found {found:?}"))
        }
        error => table.error("policy", error.to_string()),
    })
}

/// Shows latencies of these phases alone.
fn choose_measured(measure: &TableReader<'_>, wanted: &[String], processes: &mut [Process]) -> Result<(), UsageError> {
    let all: Vec<String> =
        processes.iter().flat_map(|process| process.phases.iter().map(|phase| phase.name.clone())).collect();
    let full: Vec<String> = processes
        .iter()
        .flat_map(|process| process.phases.iter().map(|phase| format!("{}.{}", process.name, phase.name)))
        .collect();
    if let Some(name) = wanted.iter().find(|name| !all.contains(name) && !full.contains(name)) {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        return Err(measure.error("latency", unknown("phase", name, &all)));
    }
    for process in processes {
        for phase in &mut process.phases {
            let full = format!("{}.{}", process.name, phase.name);
            phase.measured = wanted.contains(&phase.name) || wanted.contains(&full);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
