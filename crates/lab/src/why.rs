//! Why an operation was slow: the facts of its chain, from its cell run once more.
//!
//! The result says which operations were slow, and where their time went. What made it so is not in it: the cell runs again from
//! its seed, in a worker, with the facts of those operations recorded where decisions were made (`memory::fact`). The program
//! must be the result's, and the run hash and the log of slow operations must come out the same.

mod chain;
mod explained;
pub mod inevitable;
mod kinds;
pub mod nothing;
pub(crate) mod numbers;
pub mod parting;
mod words;

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use linux::worker::{self, WorkerError};
use memory::{fact::Told, news::Daemon};
use mm::whole::daemon::Row;
use report::{Cell, Key, Record, SlowPath, Target, slow_path::Entry};
use serde::de::DeserializeOwned;

pub use self::explained::Explained;
use crate::{
    order::{Facts, Order, WhyOrder},
    plan::TIMEOUT_S_MAX,
    progress::RunError,
    provenance, results,
    run::order_again,
    show::At,
    source::unknown,
    usage::UsageError,
};

/// The operations that a user asks about.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// The slowest.
    Slowest(usize),
    /// The n-th slowest, from 1.
    Nth(usize),
    /// The slowest that was under way at an instant, of a task where one is named.
    At {
        /// The instant.
        at: At,
        /// The number of the task.
        task: Option<u32>,
    },
}

/// A question about a result.
#[derive(Clone, Debug)]
pub struct WhyWanted {
    /// The result directory.
    pub result: PathBuf,
    /// The operations.
    pub which: Which,
    /// Only of this kind: `fault`, or the name of a system call.
    pub what: Option<String>,
    /// Only of requests for blocks of this order.
    pub order: Option<u8>,
    /// Of these cells.
    pub chosen: Chosen,
}

/// The cells that a user asks about.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Only of this kernel, by its name or its column's label.
    pub kernel: Option<String>,
    /// Only of this case.
    pub case: Option<String>,
    /// Only of this seed.
    pub seed: Option<u64>,
}

/// Operations with their facts, as text.
pub fn text(explained: &[Explained]) -> String {
    explained.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// An operation with its facts, as text.
pub(crate) fn block(explained: &Explained) -> String {
    words::block(explained)
}

/// Operations with their facts, as JSON.
pub fn json(explained: &[Explained]) -> String {
    serde_json::to_string_pretty(explained).expect("facts serialise") + "\n"
}

/// An operation of the log of a cell.
#[derive(Clone, Copy)]
struct Stall<'a> {
    cell: &'a Cell,
    log: &'a SlowPath,
    entry: &'a Entry,
    number: usize,
}

/// Explains operations of a result.
///
/// # Errors
/// No result, none of the simulator, one of another program, or fewer operations than asked for; a cell that does not come out
/// as it did.
pub fn why(wanted: &WhyWanted, stop: &AtomicBool) -> Result<Vec<Explained>, RunError> {
    let directory = &wanted.result;
    let (identity, contents) = results::contents(directory, None)?;
    let is_cell = |record: &Record| matches!(record, Record::Cell(_));
    let (cells, others): (Vec<Record>, Vec<Record>) = contents.records.into_iter().partition(is_cell);
    let cells = report::cells(cells);
    let cells = chosen(&cells, directory, &wanted.chosen)?;
    let stalls = stalls(&cells, wanted)?;
    let mut explained: Vec<Explained> = Vec::new();
    for cell in &cells {
        let of_cell: Vec<Stall<'_>> = stalls.iter().filter(|stall| stall.cell.key == cell.key).copied().collect();
        let Some(first) = of_cell.first() else { continue };
        provenance::check_program(&cell.key.program)
            .map_err(|problem| UsageError::in_file(directory.display(), problem))?;
        let order = order_again(directory, &identity, &others, &cell.key)?;
        let span =
            |stall: &Stall<'_>| (stall.entry.task, stall.entry.start_ps, stall.entry.start_ps + stall.entry.ps());
        let order =
            Order::Why(WhyOrder { cell: order, operations: of_cell.iter().map(span).collect(), timeline: false });
        let facts: Facts = run(&order, &cell.key, stop)?;
        check_same(cell, first.log, (&facts.run_hash, &facts.slow_path))?;
        for (stall, story) in of_cell.iter().zip(facts.stories) {
            if !story.is_whole {
                return Err(failed(&cell.key, "the parts of an operation do not sum to its time by the clock"));
            }
            explained.push(of_stall(*stall, story.facts));
        }
    }
    explained.sort_by_key(|explained| explained.stall);
    Ok(explained)
}

/// The simulated cells that are asked about.
pub(crate) fn chosen<'a>(cells: &'a [Cell], result: &Path, wanted: &Chosen) -> Result<Vec<&'a Cell>, UsageError> {
    let place = result.display();
    let logged: Vec<&Cell> = cells.iter().filter(|cell| cell.slow_path.is_some()).collect();
    if logged.is_empty() {
        let targets: Vec<&str> = cells.iter().map(|cell| cell.key.target.name()).collect();
        let is_simulated = targets.contains(&Target::Sim.name());
        let how = if is_simulated {
            "its program kept no log of slow operations; run it again with this one"
        } else {
            "only the simulator knows what an operation did; the same run with --target sim can be asked, and `pagelab show` has \
             the counters and latencies of this one"
        };
        return Err(UsageError::in_file(place, how));
    }
    let is_kernel = |key: &Key, name: &str| key.kernel == name || key.column().label() == name;
    let of_kernel = keep(logged, wanted.kernel.as_ref(), "--kernel", |key| key.kernel.clone(), is_kernel)?;
    let of_case =
        keep(of_kernel, wanted.case.as_ref(), "--case", |key| key.case.clone(), |key, case| key.case == case)?;
    let seed = wanted.seed.map(|seed| seed.to_string());
    let of_seed =
        keep(of_case, seed.as_ref(), "--seed", |key| key.seed.to_string(), |key, seed| key.seed.to_string() == seed)?;
    Ok(of_seed)
}

/// Refuses runs with several kernels: nothing is counted of them yet, and no branch leaves them.
pub(crate) fn check_single<'a>(mut keys: impl Iterator<Item = &'a Key>) -> Result<(), UsageError> {
    match keys.find(|key| key.workload == workloads::guests::INFO.name) {
        None => Ok(()),
        Some(key) => {
            let problem = "has several kernels; of such runs --slowest, --stall and --at can be asked";
            Err(UsageError::new(format!("{} {problem}", key.workload)))
        }
    }
}

/// The cells of a name, where one is given.
fn keep<'a>(
    cells: Vec<&'a Cell>,
    name: Option<&String>,
    option: &str,
    of: impl Fn(&Key) -> String,
    is: impl Fn(&Key, &str) -> bool,
) -> Result<Vec<&'a Cell>, UsageError> {
    let Some(name) = name else { return Ok(cells) };
    let (kept, others): (Vec<&Cell>, Vec<&Cell>) = cells.into_iter().partition(|cell| is(&cell.key, name));
    if kept.is_empty() {
        let known: BTreeSet<String> = others.iter().map(|cell| of(&cell.key)).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let what = option.trim_start_matches('-');
        return Err(UsageError::of_key(option, unknown(what, name, &known)));
    }
    Ok(kept)
}

/// The operations in the logs of cells, the slowest first, as far as they are asked about: of tasks, unless a thread is named.
fn stalls<'a>(cells: &[&'a Cell], wanted: &WhyWanted) -> Result<Vec<Stall<'a>>, UsageError> {
    let of_thread = wanted.what.as_deref().is_some_and(is_of_thread);
    let of_cell = |cell: &'a Cell| {
        let log = cell.slow_path.as_ref().expect("cells without a log were left out");
        let entries = log.entries.iter().filter(move |entry| is_of_thread(log.name(entry)) == of_thread);
        entries.map(move |entry| Stall { cell, log, entry, number: 0 })
    };
    let mut all: Vec<Stall<'a>> = cells.iter().copied().flat_map(of_cell).collect();
    if let Some(what) = &wanted.what {
        let is = |stall: &Stall<'_>| stall.log.name(stall.entry) == what || base(stall.log.name(stall.entry)) == what;
        if !all.iter().any(is) {
            let known: BTreeSet<&str> = all.iter().map(|stall| stall.log.name(stall.entry)).collect();
            let known: Vec<&str> = known.into_iter().collect();
            return Err(UsageError::of_key("--what", unknown("operation", what, &known)));
        }
        all.retain(is);
    }
    if let Some(order) = wanted.order {
        all.retain(|stall| stall.entry.order == Some(order));
    }
    all.sort_by_key(|stall| Reverse(stall.entry.ps()));
    all.iter_mut().zip(1..).for_each(|(stall, number)| stall.number = number);
    let (place, count) = (wanted.result.display(), all.len());
    let whose = if of_thread { "kernel threads" } else { "tasks" };
    let has =
        |option: &str| UsageError::of_key(option, format!("the logs of {place} hold {count} operations of {whose}"));
    match wanted.which {
        Which::Slowest(_) if all.is_empty() => Err(has("--slowest")),
        Which::Slowest(most) => Ok(all.into_iter().take(most).collect()),
        Which::Nth(nth) => {
            all.into_iter().nth(nth.saturating_sub(1)).map(|stall| vec![stall]).ok_or_else(|| has("--stall"))
        }
        Which::At { at, task } => {
            let is_in = |stall: &Stall<'_>| {
                let Entry { start_ps, task: its, .. } = *stall.entry;
                (start_ps..=start_ps + stall.entry.ps()).contains(&at.ps()) && task.is_none_or(|task| task == its)
            };
            let found = all.into_iter().find(is_in).map(|stall| vec![stall]);
            found.ok_or_else(|| UsageError::of_key("--at", format!("no slow operation of {place} was under way then")))
        }
    }
}

/// The name of an operation without its guest: `fault` of `guest 1: fault`.
fn base(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(_, base)| base)
}

/// Whether an operation is the work of a kernel thread, such as `kswapd0`.
pub(crate) fn is_of_thread(name: &str) -> bool {
    let base = base(name).trim_end_matches(|letter: char| letter.is_ascii_digit());
    Daemon::ALL.iter().any(|daemon| Row::of(*daemon).name == base)
}

/// Has a worker carry out an order about a cell.
pub(crate) fn run<T: DeserializeOwned>(order: &Order, key: &Key, stop: &AtomicBool) -> Result<T, RunError> {
    let order = serde_json::to_vec(order).expect("an order serialises");
    match worker::run(&order, Some(TIMEOUT_S_MAX), stop) {
        Ok(line) => serde_json::from_str(&line).map_err(|error| failed(key, &report::brief(error))),
        Err(WorkerError::Interrupted) => Err(RunError::InterruptedEarly),
        Err(WorkerError::Refused(reason)) => Err(RunError::Usage(UsageError::new(reason))),
        Err(error) => Err(failed(key, &error.to_string())),
    }
}

pub(crate) fn failed(key: &Key, problem: &str) -> RunError {
    RunError::Failed(format!("{} {} seed {}: {problem}", key.kernel, key.case, key.seed))
}

/// Fails unless the cell has come out as it did.
pub(crate) fn check_same(cell: &Cell, log: &SlowPath, (now, slow_path): (&str, &SlowPath)) -> Result<(), RunError> {
    let hash = cell.measured.detail["run_hash"].as_str().unwrap_or_default();
    if now != hash || slow_path != log {
        return Err(failed(&cell.key, &format!("it did not come out as it did: run hash {now}, and {hash} before")));
    }
    Ok(())
}

/// The kernel of an operation, where the run has several.
fn place_of(key: &Key, name: &str) -> Option<String> {
    let guest = name.split_once(": ").map(|(guest, _)| guest.to_owned());
    guest.or_else(|| (key.workload == workloads::guests::INFO.name).then(|| "host".to_owned()))
}

fn of_stall(stall: Stall<'_>, facts: Vec<Told>) -> Explained {
    let Stall { cell, log, entry, number } = stall;
    Explained {
        stall: number,
        key: cell.key.clone(),
        what: log.name(entry).to_owned(),
        is_thread: is_of_thread(log.name(entry)),
        place: place_of(&cell.key, log.name(entry)),
        start_ps: entry.start_ps,
        time_ps: entry.ps(),
        task: entry.task,
        cpu: entry.cpu,
        vpn: entry.vpn,
        order: entry.order,
        parts: log.parts(entry).into_iter().map(|(cause, ps)| (cause.to_owned(), ps)).collect(),
        facts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_kernel_threads_is_none_of_a_task() {
        assert_eq!(["kswapd0", "guest 1: kcompactd12", "khugepaged", "flush"].map(is_of_thread), [true; 4]);
        assert_eq!(["fault", "pwrite", "guest 2: fsync", "mmap"].map(is_of_thread), [false; 4]);
    }
}
