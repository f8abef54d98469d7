//! Numbers of a run that was made elsewhere, before they have a place beside ours.

use super::{logs::Numbers, sysstate::Around};

/// One test in one iteration of a run.
#[derive(Debug)]
pub(super) struct Found {
    /// The run, which is mmtests' word for a kernel.
    pub(super) run: String,
    pub(super) test: String,
    /// Whether it is a pair of captures of /proc/vmstat.
    pub(super) is_pair: bool,
    /// None where its logs are not understood.
    pub(super) numbers: Option<Vec<Numbers>>,
    pub(super) around: Around,
}
