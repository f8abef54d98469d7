//! The file of an export with what mmtests' own files cannot say.

use report::Cell;
use serde::{Deserialize, Serialize};

use crate::plan::Identity;

/// Beside the runs of an export: what mmtests' files cannot hold.
pub(super) const BESIDE: &str = "pagelab.json";
/// Version of [`BESIDE`].
pub(super) const BESIDE_VERSION: u32 = 1;

/// The contents of [`BESIDE`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Beside {
    pub(super) version: u32,
    pub(super) identity: Identity,
    /// Systems and what was skipped.
    pub(super) records: Vec<report::Record>,
    pub(super) cells: Vec<CellBeside>,
}

/// A cell without the numbers that are in logs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CellBeside {
    /// The run's directory under that of the export.
    pub(super) run: String,
    /// The number of `iter-N`.
    pub(super) iteration: usize,
    /// The test whose logs have its numbers.
    pub(super) test: String,
    /// The name of its case in logs, of metrics that have no part.
    pub(super) label: String,
    pub(super) cell: Cell,
}
