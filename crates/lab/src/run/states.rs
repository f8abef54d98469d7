//! The states of a result: every frame of a guest before each of its cells, a file for each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use linux::{frame_map::Recorded, procfs::Capture};
use report::{Column, Key};

use super::files::{STATE_SUFFIX, STATES, state_path};

use crate::{
    order::Prefix,
    plan::{Asked, Start},
    state::State,
    suggest,
};

/// Writes the state before a guest's cell, whole or not at all.
pub(super) fn keep(
    directory: &Path,
    key: &Key,
    captures: &[(String, Capture)],
    recorded: Recorded,
) -> Result<(), String> {
    let (_, capture) = captures.last().ok_or("the guest recorded frames before it said what it is")?;
    let state = State::new(capture, recorded).map_err(|problem| format!("{}: {problem}", key.case))?;
    fs::create_dir_all(directory.join(STATES)).map_err(|error| format!("{}: {error}", directory.display()))?;
    report::write_whole(&state_path(directory, &key.column(), key), &state.to_bytes())
        .map_err(|error| error.to_string())
}

/// The state file that a simulated cell starts from, if any.
pub(super) fn file(directory: &Path, start: &Start, twin_of: Option<&Column>, key: &Key) -> Option<PathBuf> {
    match start {
        Start::Fresh | Start::Recipe(_) => None,
        Start::Kernel => twin_of.map(|real| state_path(directory, real, key)),
        Start::File(file) => Some(file.path.clone()),
    }
}

/// What a simulated cell does before its workload, if anything. What a recipe's file says of other settings says nothing of it.
pub(super) fn prefix(start: &Start, has_settings: bool, key: &Key, asked: &Asked) -> Option<Prefix> {
    let Start::Recipe(start) = start else { return None };
    let expected = start.expected(&key.machine, &key.variant, key.seed).filter(|_| !has_settings);
    let again = suggest::state_again(start, &key.machine, asked);
    Some(Prefix { recipe: start.recipe.clone(), expected: expected.map(str::to_owned), again })
}

/// The cells whose state there is: a real cell that failed has none, and has said why.
pub(super) fn available(directory: &Path, start: &Start, twin_of: Option<&Column>, mut keys: Vec<Key>) -> Vec<Key> {
    keys.retain(|key| file(directory, start, twin_of, key).is_none_or(|file| file.exists()));
    keys
}

/// Removes the states of a result without cells. What cannot be removed stays.
pub(super) fn discard(directory: &Path) {
    let folder = directory.join(STATES);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in entries.filter(|file| file.extension().is_some_and(|suffix| suffix == STATE_SUFFIX)) {
        let _ = fs::remove_file(file);
    }
    let _ = fs::remove_dir(folder);
}
