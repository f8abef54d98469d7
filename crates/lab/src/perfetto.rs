//! Results as traces for Perfetto.

use std::{collections::BTreeMap, path::Path, sync::atomic::AtomicBool};

use report::Record;

use crate::{
    plan::Seeds,
    progress::{Progress, RunError},
    results, show, timeline,
    usage::UsageError,
};

/// The outcome of an export.
#[derive(Debug)]
pub struct Traced {
    /// A line for each run that is in the trace.
    pub runs: Vec<String>,
    /// Runs that are not, a line for each.
    pub left_out: Vec<String>,
}

/// Runs simulated cells again for their timelines.
pub struct Again<'a> {
    /// Set by a signal.
    pub stop: &'a AtomicBool,
    /// Told which cell runs.
    pub progress: &'a mut dyn Progress,
}

/// Writes the runs of the result in `result`, or those with some seeds, to the file `to`, which must not exist: whole, or not at
/// all. With `again` the simulated cells first run again, observed.
///
/// # Errors
/// No result, nothing in it that is known over time, or a file that is there or cannot be written; a cell that does not come out
/// as it did.
pub fn export(result: &Path, seeds: Option<Seeds>, to: &Path, again: Option<Again<'_>>) -> Result<Traced, RunError> {
    if to.symlink_metadata().is_ok() {
        let problem = format!("{} exists already; give the name of a new file", to.display());
        return Err(UsageError::new(problem).into());
    }
    report::check_whole(to).map_err(UsageError::from)?;
    let shown = show::read(result, seeds)?;
    let mut timelines = BTreeMap::new();
    if let Some(Again { stop, progress }) = again {
        let (identity, contents) = results::contents(result, seeds)?;
        let others: Vec<Record> =
            contents.records.into_iter().filter(|record| !matches!(record, Record::Cell(_))).collect();
        for (place, cell) in shown.cells.iter().enumerate() {
            let name = format!("{} {} seed {}", cell.key.kernel, cell.key.case, cell.key.seed);
            progress.step(place, shown.cells.len(), &name);
            let timeline = timeline::observe(result, (&identity, &others), cell, stop)?;
            timelines.extend(timeline.map(|timeline| (place, timeline)));
        }
    }
    let traced = report::perfetto::trace(&shown.cells, &timelines)
        .map_err(|error| UsageError::in_file(result.display(), error))?;
    if traced.runs.is_empty() {
        let problem = format!(
            "nothing in it is known over time (simulated runs have operations off the allocator's fast path); {}",
            shown.sampling(result)
        );
        return Err(UsageError::in_file(result.display(), problem).into());
    }
    report::write_whole(to, &traced.trace.to_bytes()).map_err(UsageError::from)?;
    Ok(Traced { runs: traced.runs, left_out: traced.left_out })
}
