//! Results as traces for Perfetto.

use std::path::Path;

use crate::{plan::Seeds, show, usage::UsageError};

/// The outcome of an export.
#[derive(Debug)]
pub struct Traced {
    /// A line for each run that is in the trace.
    pub runs: Vec<String>,
    /// Runs that are not, a line for each.
    pub left_out: Vec<String>,
}

/// Writes the runs of the result in `result`, or those with some seeds, to the file `to`, which must not exist: whole, or not at
/// all.
///
/// # Errors
/// No result, nothing in it that is known over time, or a file that is there or cannot be written.
pub fn export(result: &Path, seeds: Option<Seeds>, to: &Path) -> Result<Traced, UsageError> {
    if to.symlink_metadata().is_ok() {
        return Err(UsageError::new(format!("{} exists already; give the name of a new file", to.display())));
    }
    report::check_whole(to)?;
    let shown = show::read(result, seeds)?;
    let traced = report::perfetto::trace(&shown.cells).map_err(|error| UsageError::in_file(result.display(), error))?;
    if traced.runs.is_empty() {
        return Err(UsageError::in_file(
            result.display(),
            format!(
                "nothing in it is known over time (simulated runs have operations off the allocator's fast path); {}",
                shown.sampling(result)
            ),
        ));
    }
    report::write_whole(to, &traced.trace.to_bytes())?;
    Ok(Traced { runs: traced.runs, left_out: traced.left_out })
}
