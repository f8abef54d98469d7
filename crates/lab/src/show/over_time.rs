//! What a result says over time: samples, and the operations that left the fast path.

use std::path::Path;

use report::{Page, Part, over_time};

use super::{Format, read};
use crate::{
    plan::{Seeds, UsageError},
    source::unknown,
};

/// Prints the time series of the cells in `directory` that have one: these columns, or a digest where none is named.
pub fn series(directory: &Path, seeds: Option<Seeds>, names: &[String], format: Format) -> Result<String, UsageError> {
    let cells = read(directory, seeds)?.cells;
    if cells.iter().all(|cell| over_time::series_of(cell).next().is_none()) {
        let place = directory.display();
        return Err(UsageError(format!("--series: nothing in {place} was sampled; `pagelab run --sample 1s` does it")));
    }
    let known: Vec<&str> = over_time::series_names(&cells).into_iter().collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(UsageError(format!("--series: {}", unknown("column", name, &known))));
    }
    let page = Page::of(vec![Part::Series(&cells, names)]);
    Ok(format.of(&page))
}

/// Prints the longest operations of the cells in `directory` that have a log of them, so many of each cell.
pub fn stalls(directory: &Path, seeds: Option<Seeds>, count: usize, format: Format) -> Result<String, UsageError> {
    let cells = read(directory, seeds)?.cells;
    if cells.iter().all(|cell| cell.slow_path.is_none()) {
        let place = directory.display();
        return Err(UsageError(format!(
            "--stalls: nothing in {place} has a log of slow operations; simulated runs have one"
        )));
    }
    let page = Page::of(vec![Part::SlowPath(&cells, count)]);
    Ok(format.of(&page))
}
