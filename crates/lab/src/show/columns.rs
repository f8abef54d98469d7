//! A result as columns, for programs that work on tables.

use std::path::Path;

use report::{ColumnTable, Columns};

use super::{
    over_time::{logged, sampled},
    print::Causes,
    shown::{Shown, read},
};
use crate::{plan::Seeds, usage::UsageError};

/// The tables that are printed as columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// Cells, samples, counters, and times by cause.
    Tables(Causes),
    /// Samples over time: these names, or all where none is named.
    Series(&'a [String]),
    /// The given number of longest operations off the fast path in each cell.
    Stalls(usize),
}

/// Prints tables of the result in `directory` as columns.
///
/// # Errors
/// A directory that is no result, and one without what was asked for.
pub fn columns(directory: &Path, seeds: Option<Seeds>, which: Which<'_>) -> Result<String, UsageError> {
    let shown: Shown = match which {
        Which::Tables(_) => read(directory, seeds)?,
        Which::Series(names) => sampled(directory, seeds, names)?,
        Which::Stalls(_) => logged(directory, seeds)?,
    };
    let cells = &shown.cells;
    let tables = match which {
        Which::Tables(causes) => {
            shown.check_causes(causes, directory)?;
            vec![
                ColumnTable::cells(cells),
                ColumnTable::samples(cells),
                ColumnTable::counters(cells),
                ColumnTable::causes(cells),
            ]
        }
        Which::Series(names) => vec![ColumnTable::series(cells, names)],
        Which::Stalls(count) => vec![ColumnTable::stalls(cells, count)],
    };
    let whole = Columns::new(&shown.program, &shown.experiment, tables);
    Ok(Columns { missing: shown.missing, skipped: &shown.skipped, ..whole }.to_json())
}
