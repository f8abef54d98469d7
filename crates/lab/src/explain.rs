//! The plan of a service in words, with its amounts on a machine: what `run --explain` prints.

use report::short::text::fold;
use units::{Bytes, Picos};

use crate::{
    experiment::service_of,
    plan::{Plan, Request},
    usage::UsageError,
};
use workloads::{
    Policy,
    service::{Access, Action, Advising, Cpus, Event, Phase, Process, Rate, Service, Share, Until},
};

/// Characters in a line, at most.
const WIDTH: usize = 80;

/// A request in words, once for each machine.
///
/// # Errors
/// A request that is none, or one whose experiment is no service.
pub fn explained(request: &Request) -> Result<String, UsageError> {
    let plan = Plan::new(request, |_| linux::qemu::Accelerator::Tcg)?;
    let Some(service) = service_of(&plan.experiment) else {
        let problem = "expected a file of processes and phases, which this is not (docs/services.md)";
        return Err(UsageError::of_key("--explain", format!("{}: {problem}", plan.experiment.name)));
    };
    let mut texts: Vec<String> = Vec::new();
    for session in plan.sessions.iter().filter(|session| !session.keys.is_empty()) {
        let text = explain(&service, &session.machine.name, session.memory());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let columns: Vec<&str> = plan.sessions.iter().map(|session| session.kernel.as_str()).collect();
    let seeds = plan.sessions.iter().map(|session| session.keys.len()).max().unwrap_or(0);
    let seeds = if seeds == 1 { "one seed".to_owned() } else { format!("{seeds} seeds") };
    let columns = format!("Columns: {}; {seeds} each.", columns.join(", "));
    texts.push(fold(&columns, WIDTH).join("\n") + "\n");
    Ok(texts.join("\n"))
}

/// A service on a machine with some memory: a line for a process and for each of its phases.
pub fn explain(service: &Service, machine: &str, memory: Bytes) -> String {
    let mut text = format!("{} on machine {machine}, {} of memory\n", service.name, size(memory));
    for process in &service.processes {
        text += &format!("\n{}\n", fold(&head(service, process), WIDTH).join("\n"));
        let indent = process.phases.iter().map(|phase| phase.name.len()).max().unwrap_or(0) + 4;
        for (number, phase) in process.phases.iter().enumerate() {
            let words = fold(&line(service, process, (number, phase), memory), WIDTH - indent);
            let words = words.join(&format!("\n{:indent$}", ""));
            text += &format!("  {:width$}{words}\n", phase.name, width = indent - 2);
        }
    }
    text += &end(service);
    text
}

fn head(service: &Service, process: &Process) -> String {
    let mut words = vec![match process.copies {
        1 => format!("process {}", process.name),
        copies => format!("{copies} processes {}", process.name),
    }];
    words.push(match process.threads {
        1 => "one thread".to_owned(),
        threads => format!("{threads} threads"),
    });
    words.push(match &process.cpus {
        Cpus::Free => "on any CPU".to_owned(),
        Cpus::Spread => "each thread on a CPU of its own".to_owned(),
        Cpus::These(cpus) => format!("on CPUs {}", cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    });
    match process.thp {
        Advising::Default => {}
        Advising::Huge => words.push("MADV_HUGEPAGE".to_owned()),
        Advising::Base => words.push("MADV_NOHUGEPAGE".to_owned()),
    }
    if process.policy != Policy::Default {
        words.push(format!("policy {:?}", process.policy).to_lowercase());
    }
    if process.nice != 0 {
        words.push(format!("nice {}", process.nice));
    }
    if let Some(event) = process.after {
        words.push(format!("begins when {} is over", name(service, event)));
    }
    if process.start > Picos(0) {
        let when = if process.after.is_some() { "later" } else { "after the start" };
        words.push(format!("begins {} {when}", time(process.start)));
    }
    words.join(", ")
}

fn name(service: &Service, event: Event) -> String {
    let process = &service.processes[event.process as usize];
    format!("{}.{}", process.name, process.phases[event.phase as usize].name)
}

fn line(service: &Service, process: &Process, (number, phase): (usize, &Phase), memory: Bytes) -> String {
    let mut words = Vec::new();
    if let Some(event) = phase.after {
        words.push(format!("waits for {}", name(service, event)));
    }
    if phase.is_beside() {
        let main = process.phases[..number].iter().rfind(|one| !one.is_beside()).map_or("", |one| one.name.as_str());
        let every = phase.every.map_or(String::new(), |every| format!(" every {}", time(every)));
        words.push(format!("beside {main}{every}"));
    }
    words.push(action(process, phase, memory));
    if let Some(rate) = phase.requests.rate {
        words.push(match rate {
            Rate::Bytes(bytes) => format!("{}/s", size(Bytes(bytes))),
            Rate::Operations(thousandths) => format!("{} operations/s", thousandths as f64 / 1000.0),
        });
    } else if !matches!(
        phase.action,
        Action::Sleep(_) | Action::Free(_) | Action::Pin(_) | Action::Drop | Action::Madvise(_)
    ) {
        words.push("as fast as it goes".to_owned());
    }
    words.extend(match phase.requests.until {
        Until::Times(1) => None,
        Until::Times(times) => Some(format!("{times} times")),
        Until::Time(span) => Some(format!("for {}", time(span))),
        Until::Ended(other) => Some(format!("until {} has ended", service.processes[other as usize].name)),
    });
    words.join(", ")
}

fn action(process: &Process, phase: &Phase, memory: Bytes) -> String {
    let block = size(phase.requests.block);
    match &phase.action {
        Action::Allocate { size: of, hold, pieces, .. } => {
            let pieces =
                if pieces.is_empty() { String::new() } else { format!(" in pieces of {} sizes", pieces.len()) };
            let stays = match hold {
                None => "keeps it".to_owned(),
                Some(hold) => format!("gives it back after {}", time(*hold)),
            };
            format!("allocates {}{pieces} in steps of {block}, {stays}", size(of.of(memory)))
        }
        Action::Free(freed) => {
            let how = if freed.holes { format!(" in holes of {block}") } else { String::new() };
            format!("gives {} of its memory back{how}", percent(freed.part))
        }
        Action::Access(of) => accesses(process, of, &block),
        Action::Read { size: of, file, random, written, .. } => {
            let order = if *random { "in no order" } else { "in order" };
            let kind = if *written { "" } else { ", whose blocks are holes: the disk is not read" };
            let (of, file) = (size(of.of(memory)), size(file.of(memory)));
            format!("reads {of} {order} from a file of {file}{kind}, {block} at a time")
        }
        Action::Write { size: of, file, sync, .. } => {
            let files = file.map_or("one file".to_owned(), |file| format!("files of {}", size(file)));
            let sync = if *sync { ", fsync behind each" } else { "" };
            format!("writes {} to {files}, {block} at a time{sync}", size(of.of(memory)))
        }
        Action::Fork(child) => {
            let writes = if child.writes { " and writes it to a file" } else { "" };
            format!("forks: the child reads all of its memory{writes}, {block} at a time")
        }
        Action::Exec(exec) => format!(
            "starts a program that allocates {}, computes for {} and writes {}",
            size(exec.size),
            time(exec.compute),
            size(exec.writes)
        ),
        Action::Sleep(span) => format!("sleeps for {}", time(*span)),
        Action::Compute(span) => format!("computes for {}", time(*span)),
        Action::Pin(pinning) => format!("pins {}", size(pinning.size.of(memory))),
        Action::Drop => "drops the machine's caches (not where others use the machine)".to_owned(),
        Action::Madvise(Advising::Huge) => "advises MADV_HUGEPAGE for all of its memory".to_owned(),
        Action::Madvise(_) => "advises MADV_NOHUGEPAGE for all of its memory".to_owned(),
    }
}

fn accesses(process: &Process, of: &Access, block: &str) -> String {
    let pattern = match of.pattern {
        Share::Sequential => "one after the other".to_owned(),
        Share::Uniform => "each as often as any other".to_owned(),
        Share::Zipf(exponent) => format!("by Zipf {}", f64::from(exponent) / 1000.0),
        Share::Hot { part, accesses, moves } => {
            let moves = moves.map_or(String::new(), |moves| format!(", another part each {}", time(moves)));
            format!("{} of them to {} of the memory{moves}", percent(accesses), percent(part))
        }
    };
    let churn = match of.churn {
        0 => String::new(),
        churn => format!(", {} of the memory given back and taken anew each second", percent(churn)),
    };
    let threads = if process.threads > 1 { format!(" by {} threads", process.threads) } else { String::new() };
    let whose = of.of.map_or(String::new(), |phase| format!(" of {}", process.phases[phase as usize].name));
    format!("accesses blocks of {block}{whose} {pattern}{threads}, {} of them stores{churn}", percent(of.writes))
}

fn end(service: &Service) -> String {
    let shown: Vec<String> = service
        .processes
        .iter()
        .flat_map(|process| process.phases.iter().filter(|phase| phase.measured).map(|phase| phase.name.clone()))
        .collect();
    let from = service.from.map_or("the start".to_owned(), |event| format!("the end of {}", name(service, event)));
    let shown = if shown.is_empty() { "no latencies".to_owned() } else { format!("latencies of {}", shown.join(", ")) };
    let words = format!("Counters are read from {from} until the last process is done; shown are {shown}.");
    format!("\n{}\n", fold(&words, WIDTH).join("\n"))
}

/// A size in the largest unit of which it is at least one, with a digit behind the point where it is not whole.
fn size(bytes: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((name, shift)) = units.into_iter().find(|(_, shift)| bytes.0 >> shift > 0) else {
        return format!("{} B", bytes.0);
    };
    let value = bytes.0 as f64 / (1_u64 << shift) as f64;
    if value.fract() == 0.0 { format!("{value} {name}") } else { format!("{value:.1} {name}") }
}

fn time(span: Picos) -> String {
    let units = [
        ("h", 3_600_000_000_000_000_u64),
        ("min", 60_000_000_000_000),
        ("s", 1_000_000_000_000),
        ("ms", 1_000_000_000),
    ];
    let whole = units.into_iter().find(|(_, unit)| span.0 >= *unit && span.0.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => format!("{} {name}", span.0 / unit),
        None => format!("{} us", span.0 / 1_000_000),
    }
}

fn percent(millionths: u32) -> String {
    format!("{} %", f64::from(millionths) / 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiment::Experiment,
        source::{self, Kind},
    };

    #[test]
    fn every_service_that_comes_with_us_is_read_and_explained() {
        for name in source::names(Kind::Workload) {
            let experiment = Experiment::load(&name).unwrap_or_else(|error| panic!("{error}"));
            let service = service_of(&experiment).expect("a service");
            let text = explain(&service, "one-node-8g", Bytes::gib(8));
            assert!(service.processes.iter().all(|process| text.contains(&process.name)), "{text}");
        }
    }
}
