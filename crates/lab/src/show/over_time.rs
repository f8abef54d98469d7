//! What a result says over time: samples, and the operations that left the fast path.

use std::path::Path;

use report::{Page, Part, over_time};

use super::{
    print::Format,
    shown::{Shown, read},
};
use crate::{plan::Seeds, source::unknown, usage::UsageError};

/// Prints the time series of the cells in `directory` that have one: these columns, or a digest where none is named.
pub fn series(directory: &Path, seeds: Option<Seeds>, names: &[String], format: Format) -> Result<String, UsageError> {
    let mut cells = sampled(directory, seeds, names)?.cells;
    report::name_cases(&mut cells);
    let page = Page::of(vec![Part::Series(&cells, names)]);
    Ok(format.of(&page))
}

/// Prints the `count` longest operations of each cell in `directory` that has a log of them.
pub fn stalls(directory: &Path, seeds: Option<Seeds>, count: usize, format: Format) -> Result<String, UsageError> {
    let mut cells = logged(directory, seeds)?.cells;
    report::name_cases(&mut cells);
    let page = Page::of(vec![Part::SlowPath(&cells, count)]);
    Ok(format.of(&page))
}

/// Reads a result in which something was sampled, of which these are columns.
pub(super) fn sampled(directory: &Path, seeds: Option<Seeds>, names: &[String]) -> Result<Shown, UsageError> {
    let shown = read(directory, seeds)?;
    if shown.cells.iter().all(|cell| over_time::series_of(cell).next().is_none()) {
        let place = directory.display();
        let how = shown.sampling(directory);
        return Err(UsageError::of_key("--series", format!("nothing in {place} was sampled; {how}")));
    }
    let known: Vec<&str> = over_time::series_names(&shown.cells).into_iter().collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(UsageError::of_key("--series", unknown("column", name, &known)));
    }
    Ok(shown)
}

/// Reads a result in which some cell has a log of slow operations.
pub(super) fn logged(directory: &Path, seeds: Option<Seeds>) -> Result<Shown, UsageError> {
    let shown = read(directory, seeds)?;
    if shown.cells.iter().all(|cell| cell.slow_path.is_none()) {
        let place = directory.display();
        return Err(UsageError::of_key(
            "--stalls",
            format!("nothing in {place} has a log of slow operations; simulated runs have one"),
        ));
    }
    Ok(shown)
}
