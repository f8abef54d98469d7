//! Cells that travel: a line out for each cell of a run, a line back from a worker anywhere, and the result made of these.
//!
//! A line out has all that a worker needs, and says of which program it is. A line back is a record as `result.jsonl` has it. Who
//! carries lines to and fro (docs/cluster.md) may lose, repeat, cut and mix them: they are judged by what is in them.

mod line;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::AtomicBool,
};

use linux::worker::{self, WorkerError};
use report::{
    ALTERED, Cell, Key, Record, Store, read_line,
    seal::{Seal, seal},
};

use self::line::{Sent, Travelling, VERSION};
use super::{
    directory::{self, Opened},
    held::{self, column_of_system, key_of},
    sim_order, sim_system,
};
use crate::{
    notice,
    order::{CellOrder, Order},
    plan::{Place, Plan, Request, Start},
    progress::RunError,
    provenance::{self, short},
    simulated::with_settings,
    usage::UsageError,
};

/// Lines that came back from somewhere.
#[derive(Debug)]
pub struct Lines {
    /// The file, for messages.
    pub from: String,
    /// The bytes of it.
    pub bytes: Vec<u8>,
}

/// A result that was collected.
#[derive(Debug, PartialEq, Eq)]
pub struct Collected {
    /// Cells in the result.
    pub cells: usize,
    /// Lines that said again what another line had said.
    pub repeated: usize,
    /// Lines that were cut off, each with its place. Other lines have their cells.
    pub torn: Vec<String>,
}

/// Why there is no result.
#[derive(Debug)]
pub struct NotCollected {
    /// The message.
    pub error: UsageError,
    /// Cells that no line is of.
    pub missing: BTreeSet<Key>,
}

impl From<UsageError> for NotCollected {
    fn from(error: UsageError) -> Self {
        Self { error, missing: BTreeSet::new() }
    }
}

/// A line for each cell that the result directory of a run lacks. The directory is made, with all that is known before cells.
///
/// # Errors
/// Settings that cannot run, a cell that needs more than its line, or a directory of another run.
pub fn lines(request: &Request) -> Result<Vec<String>, UsageError> {
    let plan = Plan::new(request, |_| linux::qemu::Accelerator::Tcg)?;
    let directory = request.out.as_deref().expect("cells have a directory to come back to");
    for session in &plan.sessions {
        match &session.place {
            Place::Sim { twin_of: None, start: Start::Fresh | Start::Recipe(_), .. } => {}
            Place::Sim { start: Start::File(file), .. } => {
                return Err(UsageError::new(format!(
                    "cells: state {} is a file of this machine, which a line does not carry; expected fresh or a recipe",
                    file.path.display()
                )));
            }
            _ => return Err(UsageError::new("cells: only simulated cells travel")),
        }
    }
    if plan.trace || plan.map {
        return Err(UsageError::new("cells: --trace and --map write files beside the result, which do not travel"));
    }
    let Opened { mut store, done, systems, note, .. } = directory::open(directory, &plan)?;
    note.into_iter().for_each(notice::leave);
    let mut lines = Vec::new();
    for session in &plan.sessions {
        let Place::Sim { variant, start, .. } = &session.place else { unreachable!("looked at above") };
        let machine = with_settings(session.machine.clone(), &session.settings);
        let record = sim_system(session, &machine);
        if column_of_system(&record).is_some_and(|column| !systems.contains(&column)) {
            store.append(&record).map_err(UsageError::from)?;
        }
        for key in session.keys.iter().filter(|key| !done.contains(key)) {
            let order = sim_order((&plan, session), (variant, start, None), &machine, directory, key);
            let line = line_of(order, plan.timeout_s);
            lines.push(line.map_err(|problem| UsageError::new(format!("cells: {problem}")))?);
        }
    }
    Ok(lines)
}

/// The line for a cell.
///
/// # Errors
/// The name of what a line does not carry.
pub(super) fn line_of(order: CellOrder, timeout_s: u64) -> Result<String, String> {
    let program = provenance::PROGRAM_HASH.to_owned();
    let line = Travelling { pagelab_cell: VERSION, program, timeout_s, order: Sent::of(order)? };
    Ok(serde_json::to_string(&line).expect("an order serialises"))
}

/// Works on a line and returns the line to send back.
///
/// # Errors
/// A line that is none, or of another program; a cell that gave no result.
pub fn work(line: &str, stop: &AtomicBool) -> Result<String, RunError> {
    let program = Travelling::program_of(line).map_err(|problem| no_line(&problem))?;
    let own = provenance::PROGRAM_HASH;
    if program != own {
        return Err(RunError::Usage(UsageError::new(format!(
            "worker: the line is of program {}, and this one is {}; build it from the same sources",
            short(&program),
            short(own)
        ))));
    }
    let Travelling { timeout_s, order, .. } = read(line)?;
    let who = format!("{} {} seed {}", order.key.kernel, order.key.case, order.key.seed);
    let order = serde_json::to_vec(&Order::Cell(order.into_order())).expect("an order serialises");
    match worker::run(&order, Some(timeout_s), stop) {
        // From here on the line is in others' hands.
        Ok(line) => match read_line(line.as_bytes()) {
            Ok(_) => Ok(String::from_utf8(seal(line.into_bytes())).expect("it is JSON")),
            Err(none) => Err(RunError::Failed(format!("{who}: {}", none.reason))),
        },
        Err(WorkerError::Interrupted) => Err(RunError::InterruptedEarly),
        Err(WorkerError::Refused(reason)) => Err(RunError::Usage(UsageError::new(format!("{who}: {reason}")))),
        Err(error) => Err(RunError::Failed(format!("{who}: {error}"))),
    }
}

fn read(line: &str) -> Result<Travelling, UsageError> {
    Travelling::read(line).map_err(|problem| no_line(&problem))
}

fn no_line(problem: &str) -> UsageError {
    UsageError::new(format!("worker: expected a line of pagelab cells: {problem}"))
}

/// The lines out, of these, whose cells are missing.
///
/// # Errors
/// A line that is none.
pub fn again(orders: &str, missing: &BTreeSet<Key>) -> Result<Vec<String>, UsageError> {
    let lines = orders.lines().filter(|line| !line.trim().is_empty());
    let lines = lines.map(|line| Ok((line, read(line)?))).collect::<Result<Vec<_>, UsageError>>()?;
    let is_missing = |(_, read): &(&str, Travelling)| missing.contains(&read.order.key);
    Ok(lines.into_iter().filter(is_missing).map(|(line, _)| line.to_owned()).collect())
}

/// Makes the result of lines that came back, whole or not at all.
///
/// # Errors
/// Lines of another program or of other cells, lines of one cell that differ, cells without a line.
pub fn collect(directory: &Path, lines: &[Lines]) -> Result<Collected, NotCollected> {
    let place = directory.display();
    let known = held::identity(directory)?;
    let identity = &known.identity;
    let (mut store, own) = Store::open(directory).map_err(UsageError::from)?;
    let mut held = held::hold(directory, &known, own);
    held.reject_what_lacks_something(identity);
    for problem in held.problems(directory) {
        notice::leave(format!("{problem}; left out"));
    }
    let wanted: BTreeSet<&Key> = identity.keys.iter().collect();
    let mut judge = Judge {
        program: &identity.program,
        is_sealed: known.is_sealed,
        wanted: &wanted,
        found: BTreeMap::new(),
        problems: Vec::new(),
        torn: Vec::new(),
        repeated: 0,
    };
    let mut before = Vec::new();
    for record in held.kept.into_iter().map(|line| line.record) {
        match key_of(&record) {
            Some(_) => judge.keep(&place.to_string(), record),
            None => before.push(record),
        }
    }
    let is_whole = held.is_finished;
    for Lines { from, bytes } in lines {
        judge.read(from, bytes);
    }
    let Judge { found, problems, torn, repeated, .. } = judge;
    let missing: BTreeSet<Key> = identity.keys.iter().filter(|key| !found.contains_key(key)).cloned().collect();
    if !problems.is_empty() {
        let message = held::in_words(&problems);
        return Err(NotCollected {
            error: UsageError::new(format!("collect: {message}; {place} is as it was")),
            missing,
        });
    }
    if let Some(first) = missing.first() {
        let cut = if torn.is_empty() { String::new() } else { format!(", and {} lines were cut off", torn.len()) };
        let message = format!(
            "collect: {} of {} cells have no line (the first: {} {} seed {}){cut}; {place} is as it was",
            missing.len(),
            identity.keys.len(),
            first.kernel,
            first.case,
            first.seed
        );
        return Err(NotCollected { error: UsageError::new(message), missing });
    }
    let cells = found.len();
    if !is_whole {
        held::unfinish(directory, &known)?;
        store.replace(&in_order(before, &identity.keys, found)).map_err(UsageError::from)?;
        let problems = directory::finish(directory, &mut store)?;
        if !problems.is_empty() {
            return Err(UsageError::new(format!("collect: {}", held::in_words(&problems))).into());
        }
    }
    Ok(Collected { cells, repeated, torn })
}

/// The records that come before cells, and behind each system its cells in the order of the run.
fn in_order(before: Vec<Record>, keys: &[Key], mut found: BTreeMap<Key, Record>) -> Vec<Record> {
    let mut records = Vec::new();
    for record in before {
        let column = column_of_system(&record);
        records.push(record);
        let of_column = keys.iter().filter(|key| column.as_ref().is_some_and(|column| key.column() == *column));
        records.extend(of_column.filter_map(|key| found.remove(key)));
    }
    records.extend(keys.iter().filter_map(|key| found.remove(key)));
    records
}

/// Lines as they are judged.
struct Judge<'a> {
    program: &'a str,
    /// Whether lines have checksums.
    is_sealed: bool,
    wanted: &'a BTreeSet<&'a Key>,
    found: BTreeMap<Key, Record>,
    /// Lines that must not be there.
    problems: Vec<String>,
    torn: Vec<String>,
    repeated: usize,
}

impl Judge<'_> {
    fn read(&mut self, from: &str, bytes: &[u8]) {
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let place = format!("{from}:{number}");
            let json = serde_json::from_slice::<serde::de::IgnoredAny>(line);
            if json.is_err_and(|error| error.is_eof()) {
                self.torn.push(place);
                continue;
            }
            match read_line(line) {
                Ok((record, seal)) => self.keep_sealed(&place, record, seal),
                Err(none) => self.problems.push(format!("{place}: no result of a worker: {}", none.reason)),
            }
        }
    }

    /// Keeps a record if it is of the run, and its line is as the worker wrote it.
    fn keep_sealed(&mut self, place: &str, record: Record, seal: Seal) {
        let is_right = seal == Seal::Whole || (seal == Seal::Missing && !self.is_sealed);
        if is_right {
            return self.keep(place, record);
        }
        // What it is about may say more than that it was altered.
        let problem = self.problem(&record).unwrap_or_else(|| ALTERED.to_owned());
        self.problems.push(format!("{place}: {problem}"));
    }

    fn keep(&mut self, place: &str, record: Record) {
        match (self.problem(&record), key_of(&record).cloned()) {
            (None, Some(key)) if self.found.contains_key(&key) => self.repeated += 1,
            (None, Some(key)) => drop(self.found.insert(key, record)),
            (problem, _) => self.problems.push(format!("{place}: {}", problem.unwrap_or_default())),
        }
    }

    /// Why a record must not be there, if it must not.
    fn problem(&self, record: &Record) -> Option<String> {
        let Some(key) = key_of(record) else { return Some("of no cell".to_owned()) };
        if key.program != self.program {
            let (found, own) = (short(&key.program), short(self.program));
            return Some(format!("of program {found}, and the run is of {own}"));
        }
        let Key { kernel, case, seed, .. } = key;
        if !self.wanted.contains(key) {
            return Some(format!("{kernel} {case} seed {seed} is no cell of this run"));
        }
        let differs = self.found.get(key).is_some_and(|known| !say_the_same(known, record));
        differs.then(|| format!("{kernel} {case} seed {seed} says another thing than an earlier line"))
    }
}

/// Simulated cells repeat what they measure, wherever they run.
pub(super) fn say_the_same(one: &Record, other: &Record) -> bool {
    match (one, other) {
        (Record::Cell(one), Record::Cell(other)) => {
            let measured = |cell: &Cell| Cell { run: one.run.clone(), ..cell.clone() };
            measured(one) == measured(other)
        }
        (one, other) => one == other,
    }
}
