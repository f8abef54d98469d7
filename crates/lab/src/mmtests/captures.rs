//! Two captures of /proc/vmstat, file beside file: how far each counter moved between them.

use std::path::PathBuf;

use super::{
    logs::read_packed,
    sysstate::{moved_on, vmstat},
};
use crate::usage::UsageError;

/// A line for each counter that moved; none if the paths are not two captures.
///
/// # Errors
/// A line that is no counter, or a second capture that is older than the first.
pub(crate) fn compare(paths: &[PathBuf]) -> Result<Option<String>, UsageError> {
    let [before, after] = paths else { return Ok(None) };
    let mut captures = Vec::new();
    for path in [before, after] {
        if !path.is_file() {
            return Ok(None);
        }
        let text = linux::procfs::paste::plain(&String::from_utf8_lossy(&read_packed(path)?));
        if !text.lines().any(|line| line.starts_with("nr_free_pages ")) {
            return Ok(None);
        }
        captures.push(vmstat(path, &text)?);
    }
    let moved = moved_on((before, &captures[0]), (after, &captures[1]))?;
    let mut text = format!("{:<32} {:>20} {:>20} {:>20}\n", "counter", "before", "after", "moved");
    for (name, moved) in moved.iter().filter(|(_, moved)| **moved != 0) {
        let value = |at: usize| captures[at].get(name).copied().unwrap_or(0);
        text += &format!("{name:<32} {:>20} {:>20} {moved:>20}\n", value(0), value(1));
    }
    Ok(Some(text))
}
