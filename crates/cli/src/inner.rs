//! The hidden subcommands: this program as worker, as task, as sampler and as guard.
//!
//! Their input says which directories are emptied, which files are written and which settings are put back. They take it from a
//! process of this program alone, through the pipe that it has made: `pagelab worker` is for lines of others.

use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use lab::{cell::Problem, usage::UsageError};
use linux::worker::{LIVELOCK, REFUSED};

/// Refuses to be told by any other program.
fn check_parent(command: &str) -> Result<(), UsageError> {
    if linux::process::is_started_by_own_program() {
        return Ok(());
    }
    Err(UsageError::new(format!(
        "{command}: only pagelab itself starts this; `pagelab worker` takes lines of `pagelab cells`"
    )))
}

/// One cell: an order on stdin, one line on stdout.
pub(crate) fn cell() -> anyhow::Result<ExitCode> {
    check_parent(linux::worker::CELL_COMMAND)?;
    let mut order = Vec::new();
    io::stdin().read_to_end(&mut order).context("cannot read the order")?;
    match lab::cell::work(&order) {
        Ok(line) => crate::print(&(line + "\n")),
        Err(Problem::Refused(reason)) => {
            // Who has started it says it again.
            writeln!(io::stderr(), "{reason}")?;
            Ok(ExitCode::from(REFUSED))
        }
        Err(Problem::Livelock(livelock)) => {
            writeln!(io::stderr(), "{livelock}")?;
            Ok(ExitCode::from(LIVELOCK))
        }
        Err(Problem::Failed(problem)) => Err(anyhow!(problem)),
    }
}

/// One task of a workload, started by a worker.
pub(crate) fn task(entry: &str) -> anyhow::Result<ExitCode> {
    check_parent(linux::process::TASK_COMMAND)?;
    linux::process::run_task(|os, params| lab::cell::run_entry(os, entry, params))
        .map_err(|problem| anyhow!(problem))?;
    Ok(ExitCode::SUCCESS)
}

/// Samples of this kernel, until stdin closes.
pub(crate) fn sampler(every_ps: u64) -> anyhow::Result<ExitCode> {
    check_parent(linux::sampler::SAMPLER_COMMAND)?;
    lab::sampler::serve(every_ps, io::stdin(), &mut io::stdout().lock()).map_err(|problem| anyhow!(problem))?;
    Ok(ExitCode::SUCCESS)
}

/// The guard: what it could not put back goes to stdout, where the one who started it reads.
pub(crate) fn guard() -> anyhow::Result<ExitCode> {
    check_parent(linux::guard::GUARD_COMMAND)?;
    Ok(match linux::guard::serve(io::stdin().lock(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            let told = writeln!(io::stdout(), "{failures}");
            if told.is_err() {
                // The one who started us is gone; the user may still see this.
                let _ = writeln!(io::stderr(), "pagelab: not everything could be put back: {failures}");
            }
            ExitCode::FAILURE
        }
    })
}
