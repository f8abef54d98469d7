//! The commands that hold results against published tables.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use lab::{
    evidence::{self, Judged},
    plan::{Request, Seeds},
    run,
    usage::UsageError,
};
use report::Published;

use crate::{args, print, progress};

/// What a claim is judged by where nobody says.
const DEFAULT_SEEDS: u64 = 8;

/// Runs what is needed, and prints which claims hold.
pub(crate) fn claims(args: &args::Claims) -> anyhow::Result<ExitCode> {
    let (judged, failed) = match &args.result {
        Some(directory) => {
            let name = match args.series.as_slice() {
                [] => None,
                [name] => Some(name.as_str()),
                _ => return Err(UsageError::new("--result is of one series; name one, or none").into()),
            };
            let published = evidence::series_of(directory, name)?;
            let results = evidence::beside(directory, &published);
            (vec![evidence::judged(published, &results, args.seeds)?], false)
        }
        None => run_and_judge(args)?,
    };
    let code = print(&evidence::claims(&judged, args.format.into()))?;
    let all_reached = judged.iter().all(|judged| judged.is_reached() != Some(false));
    Ok(if all_reached && !failed { code } else { ExitCode::FAILURE })
}

/// Each series, and whether a cell failed.
fn run_and_judge(args: &args::Claims) -> anyhow::Result<(Vec<Judged>, bool)> {
    let series = evidence::series(&args.series)?;
    let runnable = series.iter().filter(|published| has_experiments(published)).count();
    if args.output.is_some() && runnable > 1 {
        return Err(UsageError::new("-o is for one series; name it").into());
    }
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut failed = false;
    let mut judged = Vec::new();
    for published in series {
        judged.push(run_one(published, args, &stop, &mut failed)?);
    }
    Ok((judged, failed))
}

/// Whether there is anything to be run for a series.
fn has_experiments(published: &Published) -> bool {
    published.source.experiment.is_some() || !published.source.also.is_empty()
}

fn run_one(published: Published, args: &args::Claims, stop: &AtomicBool, failed: &mut bool) -> anyhow::Result<Judged> {
    let seeds = args.seeds.unwrap_or_else(|| Seeds::up_to(DEFAULT_SEEDS));
    let workers = args.workers.map(usize::from);
    let mut results = Vec::new();
    for request in evidence::requests(&published, seeds, workers, args.output.as_deref()) {
        let Ran { directory, is_whole, is_empty } = run_request(&request, args.progress, stop)?;
        *failed |= !is_whole;
        if !is_empty {
            results.push(directory);
        }
    }
    Ok(evidence::judged(published, &results, None)?)
}

/// The end of a run that was asked for by another command.
pub(crate) struct Ran {
    pub(crate) directory: PathBuf,
    /// No cell failed.
    pub(crate) is_whole: bool,
    /// All cells did.
    pub(crate) is_empty: bool,
}

/// Runs with progress, and says which cells failed and where the result is.
pub(crate) fn run_request(request: &Request, form: args::ProgressArg, stop: &AtomicBool) -> anyhow::Result<Ran> {
    let mut progress = progress::Reporter::new(form, false);
    let finished = run::run(request, stop, &mut progress);
    progress.clear();
    let finished = finished?;
    progress.finished(&finished);
    let (is_whole, is_empty) = (finished.failures.is_empty(), finished.cells == 0);
    Ok(Ran { directory: finished.directory, is_whole, is_empty })
}

/// Prints how near a result is.
pub(crate) fn score(args: &args::Score) -> anyhow::Result<ExitCode> {
    print(&evidence::score(&args.result, args.published.as_deref(), args.seeds, args.format.into())?)
}
