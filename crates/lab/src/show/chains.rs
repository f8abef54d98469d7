//! Chains of the slowest operations of the runs on a page: each of the runs is run once more, as `pagelab why` does it.

use std::sync::atomic::AtomicBool;

use report::{
    Cell,
    html::{Chain, Kernel},
};

use super::commands::{How, PageWanted, with_chains};
use crate::{
    progress::{Progress, RunError},
    suggest::{command, path},
    usage::UsageError,
    why::{self, Chosen, Which, WhyWanted},
};

/// Chains of each run that a page has where it is asked for some, at most.
pub const CHAINS_MAX: usize = 100;
/// Chains of each run that a page without chains suggests.
const SUGGESTED: usize = 5;

/// A run on a page, and how its operations are asked about; none where no facts are kept.
pub(super) type Question = Option<WhyWanted>;

/// The command that prints the chain of an operation, but for the operation's number.
pub(super) fn command_of(question: &WhyWanted) -> String {
    let WhyWanted { result, chosen: Chosen { kernel, case, seed }, .. } = question;
    let of = |option: &str, value: Option<String>| value.map_or(Vec::new(), |value| vec![option.to_owned(), value]);
    let words = [
        vec!["why".to_owned(), path(result)],
        of("--kernel", kernel.clone()),
        of("--case", case.clone()),
        of("--seed", seed.map(|seed| seed.to_string())),
        vec!["--stall".to_owned()],
    ];
    command(words.concat())
}

/// Puts the chains that are wanted into the runs. A run that does not come out again, such as one of another program, stays
/// without, and says why, if another run has chains.
///
/// # Errors
/// No run that can be run again; one that comes out otherwise; an interruption.
pub(super) fn put(
    wanted: &PageWanted,
    kernels: &mut [Kernel],
    (questions, cells): (Vec<Question>, &[Cell]),
    (stop, progress): (&AtomicBool, &mut dyn Progress),
) -> Result<(), RunError> {
    if wanted.why == 0 {
        return Ok(());
    }
    check(wanted, &questions, cells)?;
    let total = questions.iter().flatten().count();
    let mut done = 0;
    let mut refused: Option<UsageError> = None;
    for (kernel, question) in kernels.iter_mut().zip(questions) {
        let Some(question) = question else {
            kernel.no_chains = Some("only the simulator knows what an operation did".to_owned());
            continue;
        };
        progress.step(done, total, &format!("why: {}, {}", kernel.name, kernel.note));
        done += 1;
        if kernel.stalls.is_empty() {
            kernel.no_chains = Some("no operation of a task left the fast path of the allocator".to_owned());
            continue;
        }
        match why::why(&WhyWanted { which: Which::Slowest(wanted.why), ..question }, stop) {
            Ok(explained) => {
                kernel.chains =
                    (1..).zip(&explained).map(|(number, one)| Chain { number, text: why::block(one) }).collect();
            }
            Err(RunError::Usage(problem)) => {
                kernel.no_chains = Some(problem.to_string());
                refused = refused.or(Some(problem));
            }
            Err(error) => return Err(error),
        }
    }
    let has_chains = kernels.iter().any(|kernel| !kernel.chains.is_empty());
    refused.filter(|_| !has_chains).map_or(Ok(()), |problem| Err(problem.into()))
}

/// Refuses pages on which no run is one that facts are kept of.
fn check(wanted: &PageWanted, questions: &[Question], cells: &[Cell]) -> Result<(), UsageError> {
    if questions.iter().any(Option::is_some) {
        return Ok(());
    }
    why::chosen(cells, &wanted.results[0], &Chosen::default())?;
    Err(UsageError::of_key(
        "--why",
        "no run that is shown over time is of the simulator; --kernel and --case choose others",
    ))
}

/// The command that makes a page with more chains, with what it is for; none where there cannot be more.
pub(super) fn more(wanted: &PageWanted, kernels: &[Kernel]) -> Option<How> {
    let can = kernels.iter().any(|kernel| kernel.why.is_some() && kernel.stalls.len() > kernel.chains.len());
    let most = if wanted.why == 0 { SUGGESTED } else { (4 * wanted.why).min(CHAINS_MAX) };
    let what = match wanted.why {
        0 => {
            format!("No chain of an operation is here; this puts those of the {most} slowest of each run on the page:")
        }
        _ => "More chains:".to_owned(),
    };
    (can && most > wanted.why).then(|| (what, with_chains(wanted, most)))
}
