//! The directory of a result: made, opened to go on with the same run, or removed when nothing in it is of use.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use report::{Column, Key, Lines, Record, Store, StoreError};

use super::{
    files::{IDENTITY_FILE, RESULTS},
    held::{self, column_of_system, key_of, read_identity},
    states,
};
use crate::{
    plan::{Identity, Plan, Request, Seeds},
    provenance,
    usage::UsageError,
};

/// Removes a result without a single cell: there is nothing to resume, and it would only be in the way. Only our own files
/// go, and the directory if nothing else is in it; what cannot be removed stays.
pub(crate) fn discard(directory: &Path) {
    for file in [report::RESULT_FILE, IDENTITY_FILE] {
        let _ = std::fs::remove_file(directory.join(file));
    }
    states::discard(directory);
    discard_files(directory);
    let _ = std::fs::remove_dir(directory);
    if directory.parent() == Some(Path::new(RESULTS)) {
        let _ = std::fs::remove_dir(RESULTS);
    }
}

/// Removes a result file that has no line yet, and the directory if nothing else is in it.
fn leave(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(report::RESULT_FILE));
    let _ = std::fs::remove_dir(directory);
    if directory.parent() == Some(Path::new(RESULTS)) {
        let _ = std::fs::remove_dir(RESULTS);
    }
}

/// Removes the files of a result without cells that are named by their hash. What cannot be removed stays.
fn discard_files(directory: &Path) {
    let folder = directory.join(report::map::FOLDER);
    let is_hash = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_hash)) {
        let _ = std::fs::remove_file(entry.path());
    }
    let _ = std::fs::remove_dir(folder);
}

/// A directory for a run that names none. Runs that begin in the same second are numbered: else the second would go on
/// from the first.
pub(super) fn fresh_directory(plan: &Plan) -> Result<PathBuf, UsageError> {
    const AT_ONCE_MAX: usize = 1000;
    let usage =
        |place: &Path, error: &io::Error| UsageError::new(format!("cannot create {}: {error}", place.display()));
    std::fs::create_dir_all(RESULTS).map_err(|error| usage(Path::new(RESULTS), &error))?;
    let first = Path::new(RESULTS).join(format!("{}-{}", plan.experiment.name, provenance::stamp()));
    let others = (2..=AT_ONCE_MAX).map(|number| PathBuf::from(format!("{}-{number}", first.display())));
    for directory in std::iter::once(first.clone()).chain(others) {
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(usage(&directory, &error)),
            Ok(()) => return Ok(directory),
        }
    }
    Err(UsageError::new(format!("{} and {AT_ONCE_MAX} more exist; give a directory with -o", first.display())))
}

/// The directory of a case's result where the user names none.
pub(crate) fn directory_of_case(file: &Path) -> PathBuf {
    Path::new(RESULTS).join(file.file_stem().unwrap_or_default())
}

/// An open result directory.
pub(super) struct Opened {
    pub(super) store: Store,
    /// The cells that are there.
    pub(super) done: BTreeSet<Key>,
    /// The columns whose system is there.
    pub(super) systems: BTreeSet<Column>,
    /// Whether the run has ended, and all is as it was then.
    pub(super) is_finished: bool,
    /// Parts of the result that were not as they were written, and are made again.
    pub(super) note: Option<String>,
}

/// Makes the result directory, or opens it to go on with the same run.
pub(super) fn open(directory: &Path, plan: &Plan) -> Result<Opened, UsageError> {
    let identity = plan.identity();
    let place = directory.display();
    let is_known = || directory.join(IDENTITY_FILE).exists();
    if is_known() {
        // Before anything of another run is touched.
        check_same(directory, &identity)?;
    }
    std::fs::create_dir_all(directory).map_err(|error| UsageError::new(format!("cannot create {place}: {error}")))?;
    let (store, lines) = match Store::create(directory) {
        Err(StoreError::Exists { .. }) => Store::open(directory).map_err(UsageError::from)?,
        made => (made.map_err(UsageError::from)?, Lines::default()),
    };
    let is_empty = lines.whole.is_empty() && lines.rejected.is_empty();
    // Nobody else writes here from now on.
    let is_growing = is_known() && check_same(directory, &identity)?;
    if !is_known() && !is_empty {
        return Err(UsageError::new(format!("{place} holds lines of a run that is not known; give another directory")));
    }
    if !is_known() {
        // Before the first line, so that a run that is killed at once can be resumed too.
        held::write_identity(directory, &identity, true).inspect_err(|_| leave(directory))?;
    }
    go_on(directory, plan, is_growing, (store, lines))
}

/// Takes what is in a result directory as far as it is as it was written, and removes the rest.
fn go_on(
    directory: &Path,
    plan: &Plan,
    is_growing: bool,
    (mut store, lines): (Store, Lines),
) -> Result<Opened, UsageError> {
    let known = held::identity(directory)?;
    let mut held = held::hold(directory, &known, lines);
    if !known.is_sealed || held.rejected.iter().any(|rejected| rejected.is_foreign) {
        // What may be of another program is not ours to remove.
        held.check(directory)?;
    }
    held.reject_what_lacks_something(&known.identity);
    let problems = held.problems(directory);
    if is_growing {
        held::write_identity(directory, &plan.identity(), known.is_sealed)?;
    } else if !held.is_finished {
        held::unfinish(directory, &known)?;
    }
    if !held.rejected.is_empty() {
        store.keep(&held.kept.iter().map(|line| line.number).collect::<Vec<_>>()).map_err(UsageError::from)?;
    }
    let records: Vec<&Record> = held.kept.iter().map(|line| &line.record).collect();
    if records.is_empty() || !problems.is_empty() {
        let skipped = plan.skipped.iter().map(|skipped| Record::Skipped(skipped.clone()));
        for skipped in skipped.filter(|skipped| !records.contains(&skipped)) {
            store.append(&skipped).map_err(UsageError::from)?;
        }
    }
    let note = (!problems.is_empty()).then(|| format!("{}; what is lost is made again", held::in_words(&problems)));
    Ok(Opened {
        store,
        done: records.iter().filter_map(|record| key_of(record)).cloned().collect(),
        systems: records.iter().filter_map(|record| column_of_system(record)).collect(),
        is_finished: held.is_finished && !is_growing,
        note,
    })
}

/// Puts the lines of a run with all of its cells in order, and notes that it has ended. Returns what is not as it was written.
///
/// # Errors
/// Files that cannot be read or written.
pub(super) fn finish(directory: &Path, store: &mut Store) -> Result<Vec<String>, UsageError> {
    let known = held::identity(directory)?;
    if !known.is_sealed {
        return Ok(Vec::new());
    }
    let lines = Store::read(directory).map_err(UsageError::from)?;
    let mut held = held::hold(directory, &known, lines);
    held.reject_what_lacks_something(&known.identity);
    let problems = held.problems(directory);
    if !problems.is_empty() {
        return Ok(problems);
    }
    let order = held::in_order(&known.identity, &held.kept);
    if !order.is_sorted() {
        store.keep(&order.iter().map(|at| held.kept[*at].number).collect::<Vec<_>>()).map_err(UsageError::from)?;
    }
    let lines = order.iter().map(|at| held.kept[*at].checksum.clone()).collect();
    held::write_identity(directory, &Identity { lines: Some(lines), ..known.identity }, true)?;
    Ok(Vec::new())
}

/// The request with the seeds of the result that it goes on with, where there is one: seeds can be added, and none is lost.
///
/// # Errors
/// Seeds that lie between the result's seeds and the seeds that are asked for.
pub(super) fn with_seeds_that_are_there(request: &Request) -> Result<Request, UsageError> {
    let there = request.out.as_deref().filter(|directory| directory.join(IDENTITY_FILE).exists());
    let Some(directory) = there else { return Ok(request.clone()) };
    let Some(there) = read_identity(directory)?.seeds() else { return Ok(request.clone()) };
    let seeds = request.seeds.joined(there).ok_or_else(|| gap(directory, there, request.seeds))?;
    Ok(Request { seeds, ..request.clone() })
}

fn gap(directory: &Path, there: Seeds, wanted: Seeds) -> UsageError {
    let place = directory.display();
    UsageError::new(format!("{place} holds seeds {there}: expected --seeds that adjoin them, not {wanted}"))
}

/// Refuses to go on with another run. Whether the run goes on with seeds that are not in the directory yet.
fn check_same(directory: &Path, identity: &Identity) -> Result<bool, UsageError> {
    let there = read_identity(directory)?;
    if there.goes_on_as(identity) {
        return Ok(there.keys.len() < identity.keys.len());
    }
    let place = directory.display();
    let differences = there.differences(identity).join("; ");
    Err(UsageError::new(format!("{place} holds a different run ({differences}); give another directory with -o")))
}
