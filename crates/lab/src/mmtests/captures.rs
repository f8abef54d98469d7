//! Two captures of /proc/vmstat, file beside file: how far each counter moved between them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::logs::read_packed;
pub(crate) use super::sysstate::{moved_on, vmstat};
use crate::usage::UsageError;

/// How far counters moved: name, value before, value after, and the difference.
pub(crate) struct Moved(Vec<(String, [i64; 3])>);

/// Each counter that moved; none if the paths are not two captures.
///
/// # Errors
/// A line that is no counter, or a second capture that is older than the first.
pub(crate) fn compare(paths: &[PathBuf]) -> Result<Option<Moved>, UsageError> {
    let [before, after] = paths else { return Ok(None) };
    let mut captures = Vec::new();
    for path in [before, after] {
        if !path.is_file() {
            return Ok(None);
        }
        let whole = String::from_utf8_lossy(&read_packed(path)?).into_owned();
        let text = linux::procfs::paste::plain(&whole);
        if !text.lines().any(|line| line.starts_with("nr_free_pages ")) {
            return Ok(None);
        }
        captures.push(vmstat(path, &text).or_else(|error| pasted(path, &whole).ok_or(error))?);
    }
    let moved = moved_on((before, &captures[0]), (after, &captures[1]))?;
    let rows = moved.iter().filter(|(_, moved)| **moved != 0).map(|(name, moved)| {
        let value = |at: usize| captures[at].get(name).copied().unwrap_or(0);
        (name.clone(), [value(0), value(1), *moved])
    });
    Ok(Some(Moved(rows.collect())))
}

/// The capture in a text with prompts, prose or other files around it.
fn pasted(path: &Path, text: &str) -> Option<BTreeMap<String, i64>> {
    let capture = linux::procfs::Capture::pasted(text);
    vmstat(path, capture.text("vmstat").ok()?).ok()
}

impl Moved {
    /// A line for each.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:<32} {:>20} {:>20} {:>20}\n", "counter", "before", "after", "moved");
        for (name, [before, after, moved]) in &self.0 {
            text += &format!("{name:<32} {before:>20} {after:>20} {moved:>20}\n");
        }
        text
    }

    /// A line for each, for programs. Names of counters have no commas.
    pub(crate) fn csv(&self) -> String {
        let rows = self.0.iter().map(|(name, [before, after, moved])| format!("{name},{before},{after},{moved}\n"));
        "counter,before,after,moved\n".to_owned() + &rows.collect::<String>()
    }
}
