//! Branches of simulated cells: several at a time, each a worker that executes the cell from its seed.
//!
//! That a branch is the run that it branches from, up to there, is judged by the run hash at each change.

use std::{sync::atomic::AtomicBool, thread};

use report::Key;

use crate::{
    order::{BranchOrder, Branched, Order},
    progress::{Progress, RunError},
    run::{News, in_order},
    why,
};

/// Runs all branches, as many at a time as there are CPUs; the results in their order.
///
/// # Errors
/// The first branch that fails; an interruption.
pub(crate) fn run_all(
    orders: &[BranchOrder],
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Branched>, RunError> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut all = Vec::new();
    in_order(
        orders,
        workers,
        |order| why::run(&Order::Branch(Box::new(order.clone())), &order.cell.key, stop),
        |order, news| {
            match news {
                News::Began => {
                    let Key { kernel, seed, .. } = &order.cell.key;
                    progress.step(all.len(), orders.len(), &format!("branch of {kernel} seed {seed}"));
                }
                News::Done(branched) => all.push(branched?),
            }
            Ok::<_, RunError>(())
        },
    )?;
    Ok(all)
}

/// Checks that each branch had this run hash when it left its path.
///
/// # Errors
/// A branch that was another run before.
pub(crate) fn check_same_path(branches: &[Branched], hash: &str, key: &Key) -> Result<(), RunError> {
    if branches.iter().all(|branch| branch.hashes.first().is_some_and(|found| found == hash)) {
        return Ok(());
    }
    let Key { kernel, case, seed, .. } = key;
    Err(RunError::Failed(format!("{kernel} {case} seed {seed}: a branch was another run before it left")))
}
