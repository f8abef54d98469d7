//! A result as read: each line of `result.jsonl` held against `run.json`, and each file of `files/` against its name.
//!
//! `run.json` says which cells the run has and, once the run has ended, which lines. Both files have checksums, so nothing
//! changes in them unseen. Results of programs that wrote none are read as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use report::{
    Column, Contents, Key, Line, Lines, RESULT_FILE, Record, Rejected, Store, Target, brief,
    seal::{Seal, seal, verify},
};

use super::files::IDENTITY_FILE;
use crate::{notice, plan::Identity, usage::UsageError};

/// Rejected lines that a message names.
const NAMED: usize = 3;

/// The contents of `run.json`, and whether it has a checksum.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) identity: Identity,
    pub(super) is_sealed: bool,
}

/// The identity of the run whose result lies in `directory`.
pub(super) fn read_identity(directory: &Path) -> Result<Identity, UsageError> {
    identity(directory).map(|known| known.identity)
}

/// Reads a result directory.
///
/// # Errors
/// A result that is not as it was written; the message names the lines.
pub(crate) fn read(directory: &Path) -> Result<(Identity, Contents), UsageError> {
    let known = identity(directory)?;
    let lines = Store::read(directory).map_err(UsageError::from)?;
    let held = hold(directory, &known, lines);
    held.check(directory)?;
    held.notices(directory, &known).into_iter().for_each(notice::leave);
    let records = held.kept.into_iter().map(|line| line.record).collect();
    Ok((known.identity, Contents { records }))
}

/// Reads which run the result is of.
///
/// # Errors
/// A file that is not there, is none, or is not as it was written.
pub(super) fn identity(directory: &Path) -> Result<Known, UsageError> {
    let file = directory.join(IDENTITY_FILE);
    let wrong = |problem: String| UsageError::in_file(file.display(), problem);
    let bytes = report::check_regular(&file).and_then(|()| std::fs::read(&file));
    let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| wrong(brief(error)))?;
    let seal = verify(&bytes);
    if seal == Seal::Broken {
        return Err(wrong(
            "its checksum does not match: it was altered; put a copy back, or run into another directory".to_owned(),
        ));
    }
    let identity: Identity = serde_json::from_slice(&bytes).map_err(|error| wrong(brief(error)))?;
    // The name of the checksum is one byte away from a key that says nothing.
    let unknown = value.as_object().and_then(|keys| keys.keys().find(|key| !Identity::KEYS.contains(&key.as_str())));
    if seal == Seal::Missing && identity.lines.is_some() {
        return Err(wrong("it says which lines the run ended with, and has no checksum: it was altered".to_owned()));
    }
    match unknown.filter(|_| seal == Seal::Missing) {
        Some(key) => {
            Err(wrong(format!("it has a key {} and no checksum: it was altered", brief(format_args!("{key:?}")))))
        }
        None => Ok(Known { identity, is_sealed: seal == Seal::Whole }),
    }
}

/// Writes what run the result is of, without a checksum where its lines have none.
pub(super) fn write_identity(directory: &Path, identity: &Identity, is_sealed: bool) -> Result<(), UsageError> {
    let text = serde_json::to_vec_pretty(identity).expect("an identity serialises");
    let text = if is_sealed { seal(text) } else { text };
    report::write_whole(&directory.join(IDENTITY_FILE), &text).map_err(UsageError::from)
}

/// Notes that a run has not ended, before anything of its result changes.
pub(super) fn unfinish(directory: &Path, known: &Known) -> Result<(), UsageError> {
    match &known.identity.lines {
        Some(_) => write_identity(directory, &Identity { lines: None, ..known.identity.clone() }, known.is_sealed),
        None => Ok(()),
    }
}

/// Lines that were held against a run.
#[derive(Debug)]
pub(super) struct Held {
    /// Those that are of the run, in the order of the file; of a finished one in the order that it had.
    pub(super) kept: Vec<Line>,
    /// All others.
    pub(super) rejected: Vec<Rejected>,
    /// Other parts that are not as they were written.
    damage: Vec<String>,
    /// Lines whose file is not there, or is another one.
    files: Vec<(u64, String, FileState)>,
    /// Columns with cells whose system has no line.
    pub(super) without_system: BTreeSet<Column>,
    /// Cells without a line.
    pub(super) missing: usize,
    /// Whether the run has ended and all is as it was then.
    pub(super) is_finished: bool,
    /// Notes that a reader may want.
    notes: Vec<String>,
}

/// Holds lines against the run that they are to be of.
pub(super) fn hold(directory: &Path, known: &Known, lines: Lines) -> Held {
    let Known { identity, is_sealed } = known;
    let Lines { whole, mut rejected, torn } = lines;
    let mut judge = Judge::of(identity, *is_sealed);
    let mut kept = Vec::new();
    for line in whole {
        match judge.problem(&line) {
            None => kept.push(line),
            Some(reason) => rejected.push(Rejected { line: line.number, reason, is_foreign: false }),
        }
    }
    let mut held = Held {
        without_system: without_system(&kept),
        missing: identity.keys.len().saturating_sub(judge.cells.len()),
        kept,
        rejected,
        damage: Vec::new(),
        files: Vec::new(),
        is_finished: false,
        notes: Vec::new(),
    };
    if let Some(torn) = torn {
        let note = format!("{}: a last line that was cut off", place(directory, torn.line));
        match &identity.lines {
            Some(_) if !torn.is_cut => held.rejected.push(Rejected {
                line: torn.line,
                reason: "not a result record: it was altered".to_owned(),
                is_foreign: false,
            }),
            _ => held.notes.push(note),
        }
    }
    if *is_sealed {
        let of_real = |column: &&Column| column.target != Target::Vm;
        for column in held.without_system.iter().filter(of_real) {
            held.damage.push(format!("the line about the system {} is not there", column.label()));
        }
        held.hold_files(directory);
    }
    if let Some(lines) = &identity.lines {
        held.hold_order(lines);
    }
    held.rejected.sort_by_key(|rejected| rejected.line);
    held
}

impl Held {
    /// A finished run's lines have an order, and none of them is missing.
    fn hold_order(&mut self, then: &[String]) {
        let now: Vec<_> = self.kept.iter().map(|line| line.checksum.as_str()).collect();
        let lacking = then.len().saturating_sub(now.len());
        if lacking > self.missing {
            self.damage.push(format!("{lacking} lines that were there when the run ended are not"));
        } else if self.missing > 0 {
            let (missing, all) = (self.missing, then.len());
            self.notes
                .push(format!("cells of {missing} of the {all} lines that were there when the run ended are missing"));
        }
        let is_whole =
            self.rejected.is_empty() && self.damage.is_empty() && self.files.is_empty() && self.notes.is_empty();
        if now == then {
            self.is_finished = is_whole;
            return;
        }
        let at: BTreeMap<&str, usize> = then.iter().map(String::as_str).zip(0..).collect();
        let places: Vec<_> = self.kept.iter().map(|line| at.get(line.checksum.as_str()).copied()).collect();
        if !places.is_sorted() {
            self.notes.push("its lines are in another order than when the run ended".to_owned());
        }
        self.kept.sort_by_key(|line| at.get(line.checksum.as_str()).copied());
    }

    /// Files are named by their hash.
    fn hold_files(&mut self, directory: &Path) {
        for line in &self.kept {
            let Some(name) = map_of(&line.record) else { continue };
            match file_state(directory, name) {
                FileState::Whole => {}
                state => self.files.push((line.number, name.to_owned(), state)),
            }
        }
        let absent = self.files.iter().filter(|(.., state)| *state == FileState::Absent).count();
        if absent > 0 {
            self.notes.push(format!("{absent} maps of memory are not in files/ any more; tables do without"));
        }
    }

    /// Rejects cells that have to be run again: cells without their file, and cells of guests about which nothing is known and
    /// no further boot will tell.
    pub(super) fn reject_what_lacks_something(&mut self, identity: &Identity) {
        let files = std::mem::take(&mut self.files);
        for (line, name, state) in files {
            let reason = match state {
                FileState::Absent => format!("its map files/{name} is not there any more"),
                _ => format!("its map files/{name} was altered"),
            };
            self.reject(line, reason);
        }
        let of_guests = |column: &&Column| column.target == Target::Vm && self.missing_of(identity, column) == 0;
        let columns: Vec<Column> = self.without_system.iter().filter(of_guests).cloned().collect();
        for column in columns {
            let is_its = |line: &&Line| key_of(&line.record).is_some_and(|key| key.column() == column);
            let lines: Vec<u64> = self.kept.iter().filter(is_its).map(|line| line.number).collect();
            for line in lines {
                self.reject(line, format!("the line about its system {} is not there", column.label()));
            }
        }
    }

    fn reject(&mut self, line: u64, reason: String) {
        self.kept.retain(|kept| kept.number != line);
        self.rejected.push(Rejected { line, reason, is_foreign: false });
        self.is_finished = false;
    }

    /// Cells of a column without a line.
    fn missing_of(&self, identity: &Identity, column: &Column) -> usize {
        let done: BTreeSet<&Key> = self.kept.iter().filter_map(|line| key_of(&line.record)).collect();
        identity.keys.iter().filter(|key| key.column() == *column && !done.contains(key)).count()
    }

    /// Refuses what is not as it was written.
    pub(super) fn check(&self, directory: &Path) -> Result<(), UsageError> {
        let problems = self.problems(directory);
        if problems.is_empty() {
            return Ok(());
        }
        let message = in_words(&problems);
        let of_newer = self.rejected.iter().any(|rejected| rejected.is_foreign);
        let advice = if of_newer { "" } else { "; the run again with -o and this directory works on what is lost" };
        Err(UsageError::new(format!("{message}{advice}")))
    }

    /// Everything that is not as it was written, each with its place.
    pub(super) fn problems(&self, directory: &Path) -> Vec<String> {
        let rejected =
            self.rejected.iter().map(|Rejected { line, reason, .. }| format!("{}: {reason}", place(directory, *line)));
        let result = directory.join(RESULT_FILE);
        let damage = self.damage.iter().map(|damage| format!("{}: {damage}", result.display()));
        let altered = self.files.iter().filter(|(.., state)| *state == FileState::Altered);
        let file = |name: &str| directory.join(report::map::FOLDER).join(name);
        let altered = altered.map(|(_, name, _)| {
            format!("{}: its content is not that of its name: it was altered", file(name).display())
        });
        rejected.chain(damage).chain(altered).collect()
    }

    fn notices(&self, directory: &Path, known: &Known) -> Vec<String> {
        let older = "an older program wrote it, without checksums: changes to it would not be seen";
        let older = (!known.is_sealed).then(|| older.to_owned());
        let all = self.notes.iter().cloned().chain(older);
        all.map(|note| format!("{}: {note}", directory.display())).collect()
    }
}

fn place(directory: &Path, line: u64) -> String {
    format!("{}:{line}", directory.join(RESULT_FILE).display())
}

/// The first of several problems.
pub(super) fn in_words(problems: &[String]) -> String {
    let named = problems.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match problems.len() {
        few if few <= NAMED => named,
        many => format!("{named}; and {} more", many - NAMED),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    Whole,
    Absent,
    Altered,
}

fn file_state(directory: &Path, name: &str) -> FileState {
    let file = directory.join(report::map::FOLDER).join(name);
    match report::check_regular(&file).and_then(|()| std::fs::read(&file)) {
        Err(_) => FileState::Absent,
        Ok(bytes) if blake3::hash(&bytes).to_hex().as_str() == name => FileState::Whole,
        Ok(_) => FileState::Altered,
    }
}

fn map_of(record: &Record) -> Option<&str> {
    match record {
        Record::Cell(cell) => cell.map.as_deref(),
        Record::System(_) | Record::Skipped(_) => None,
    }
}

fn without_system(lines: &[Line]) -> BTreeSet<Column> {
    let known: BTreeSet<_> = lines.iter().filter_map(|line| column_of_system(&line.record)).collect();
    let of_cell = |line: &Line| match &line.record {
        Record::Cell(cell) => Some(cell.key.column()),
        Record::System(_) | Record::Skipped(_) => None,
    };
    lines.iter().filter_map(of_cell).filter(|column| !known.contains(column)).collect()
}

/// A run that lines are held against.
pub(super) struct Judge<'a> {
    is_sealed: bool,
    wanted: BTreeSet<&'a Key>,
    columns: BTreeSet<Column>,
    /// Checksums of the lines of a finished run.
    finished: Option<BTreeSet<&'a str>>,
    /// Cells and lines so far.
    cells: BTreeSet<Key>,
    lines: BTreeSet<String>,
    systems: BTreeSet<Column>,
}

impl<'a> Judge<'a> {
    pub(super) fn of(identity: &'a Identity, is_sealed: bool) -> Self {
        Self {
            is_sealed,
            wanted: identity.keys.iter().collect(),
            columns: identity.keys.iter().map(Key::column).collect(),
            finished: identity.lines.as_ref().map(|lines| lines.iter().map(String::as_str).collect()),
            cells: BTreeSet::new(),
            lines: BTreeSet::new(),
            systems: BTreeSet::new(),
        }
    }

    /// Why a line is none of the run's lines, if it is not. Lines that have no checksum by right are not judged.
    fn problem(&mut self, line: &Line) -> Option<String> {
        if self.is_sealed {
            let problem = self.foreign(&line.record).or_else(|| self.again(line)).or_else(|| self.altered(line));
            if problem.is_some() {
                return problem;
            }
        }
        self.cells.extend(key_of(&line.record).cloned());
        self.lines.insert(line.checksum.clone());
        self.systems.extend(column_of_system(&line.record));
        None
    }

    fn altered(&self, line: &Line) -> Option<String> {
        if !line.is_sealed {
            return Some("it has no checksum: it was altered".to_owned());
        }
        let is_new = self.finished.as_ref().is_some_and(|lines| !lines.contains(line.checksum.as_str()));
        is_new.then(|| "it was not there when the run ended".to_owned())
    }

    /// Why a record is not of the run, if it is not.
    pub(super) fn foreign(&self, record: &Record) -> Option<String> {
        match (key_of(record), column_of_system(record)) {
            (Some(key), _) if !self.wanted.contains(key) => Some(format!("{} is no cell of this run", name(key))),
            (_, Some(column)) if !self.columns.contains(&column) => {
                Some(format!("the system {} is none of this run", column.label()))
            }
            _ => None,
        }
    }

    fn again(&self, line: &Line) -> Option<String> {
        if let Some(key) = key_of(&line.record).filter(|key| self.cells.contains(*key)) {
            return Some(format!("{} is there already", name(key)));
        }
        // A guest's boots have a line each; a simulated machine is what it was.
        let column = column_of_system(&line.record).filter(|column| column.target == Target::Sim);
        let is_again =
            self.lines.contains(&line.checksum) || column.is_some_and(|column| self.systems.contains(&column));
        is_again.then(|| "an earlier line says it already".to_owned())
    }
}

/// The cell that a record is about: it is done, or its target cannot do it.
pub(super) fn key_of(record: &Record) -> Option<&Key> {
    match record {
        Record::Cell(cell) => Some(&cell.key),
        Record::Skipped(skipped) => skipped.key.as_ref(),
        Record::System(_) => None,
    }
}

/// The column that a record describes the system of.
pub(super) fn column_of_system(record: &Record) -> Option<Column> {
    match record {
        Record::System(system) => Some(system.column()),
        Record::Cell(_) | Record::Skipped(_) => None,
    }
}

/// A cell, for messages.
pub(super) fn name(key: &Key) -> String {
    format!("{} {} on {} seed {}", key.kernel, key.case, key.machine, key.seed)
}

/// The numbers of lines in the order of their run: the systems of a column, then its cells. A guest says what it was when it
/// ends, so its system has its place behind the last cell of its boot.
pub(super) fn in_order(identity: &Identity, lines: &[Line]) -> Vec<usize> {
    let places: BTreeMap<&Key, usize> = identity.keys.iter().zip(1..).collect();
    let mut columns: BTreeMap<Column, usize> = BTreeMap::new();
    for (key, place) in identity.keys.iter().zip(1..) {
        columns.entry(key.column()).or_insert(place);
    }
    let mut before = BTreeMap::new();
    let mut place = |record: &Record| match (key_of(record), column_of_system(record)) {
        (Some(key), _) => {
            let place = places.get(key).copied().unwrap_or(usize::MAX);
            before.insert(key.column(), place);
            (place, 1)
        }
        (None, Some(column)) => {
            let first = columns.get(&column).copied().unwrap_or(usize::MAX);
            match before.get(&column).filter(|_| column.target == Target::Vm) {
                Some(place) => (*place, 2),
                None => (first, 0),
            }
        }
        (None, None) => (0, 0),
    };
    let places: Vec<_> = lines.iter().map(|line| place(&line.record)).collect();
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|at| places[*at]);
    order
}

#[cfg(test)]
mod tests;
