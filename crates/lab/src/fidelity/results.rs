//! Runs, read from result directories: a guest's with the memory it started from, and that of a simulated run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use report::{Record, Target};

use super::{Figures, figures};
use crate::{run, usage::UsageError};

/// One case that a guest has run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The case's name in the experiment.
    pub case: String,
    /// Parameters and settings, as `pagelab run --set` takes them.
    pub sets: BTreeMap<String, String>,
    /// The guest's memory just before it.
    pub state: PathBuf,
    /// The kernel's release.
    pub kernel: String,
    /// The figures of the run.
    pub figures: Figures,
}

/// The cases that guests have run into this directory.
pub fn guests(directory: &Path) -> Result<Vec<Ran>, UsageError> {
    let cells = report::cells(read(directory)?).into_iter().filter(|cell| cell.key.target == Target::Vm);
    let ran = cells.map(|cell| Ran {
        state: run::state_path(directory, &cell.key.column(), &cell.key),
        figures: figures(&cell.measured),
        case: cell.key.case,
        sets: cell.key.params,
        kernel: cell.key.kernel,
    });
    Ok(ran.collect())
}

/// The one simulated run of this directory, if it got to its end.
pub fn simulated(directory: &Path) -> Result<Option<Figures>, UsageError> {
    let cells = report::cells(read(directory)?);
    Ok(cells.iter().find(|cell| cell.key.target == Target::Sim).map(|cell| figures(&cell.measured)))
}

fn read(directory: &Path) -> Result<Vec<Record>, UsageError> {
    run::read(directory).map(|(_, contents)| contents.records)
}
