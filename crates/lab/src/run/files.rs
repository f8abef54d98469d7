//! Names in a result directory.

use std::path::{Path, PathBuf};

use report::{Column, Key, file_name_of_cell};

/// The file of a result directory that says what run it holds.
pub const IDENTITY_FILE: &str = "run.json";
/// The directory of one cell's files.
pub(super) const CELL: &str = "cell";
/// In the captures of a simulated system: the machine file that it was made from.
pub(crate) const SIMULATED_MACHINE: &str = "machine";
/// Where results go when the user does not say.
pub(super) const RESULTS: &str = "results";
/// The folder of a result directory with the states.
pub(super) const STATES: &str = "states";
/// The end of their names.
pub(super) const STATE_SUFFIX: &str = "state";

/// The state before a cell of a real session.
pub(crate) fn state_path(directory: &Path, real: &Column, key: &Key) -> PathBuf {
    directory.join(STATES).join(format!("{}.{STATE_SUFFIX}", file_name_of_cell(real, key)))
}

/// The file of a cell's trace events.
pub(super) fn trace_name(key: &Key) -> String {
    format!("trace-{}.txt", file_name_of_cell(&key.column(), key))
}
