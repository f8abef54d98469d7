//! The targets of a run: the targets that the user names, else the targets that the given options are for, else the
//! experiment's. An option that no target can use is refused: nothing that a user names is ignored.

use linux::qemu::Accelerator;
use report::Target::{self, Host, Sim, Vm};
use units::setting::{self, Real};

use super::{AcceleratorChoice, Request};
use crate::{
    experiment::{Experiment, FRESH, KERNEL},
    usage::UsageError,
};

/// Where a run goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// In the order host, vm, sim; each once.
    pub(super) targets: Vec<Target>,
    /// The user means these, by name or by an option: each must be had. Else they are the experiment's, where they can be had.
    pub(super) by_name: bool,
}

/// The targets that can use an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Host,
    Vm,
    /// Simulated cells, also as the twins of a real kernel.
    Sim,
    /// Simulated cells that are no twin: a twin has the rules of its kernel.
    SimAlone,
    /// Guests, and simulated cells that are no twin: a twin has the machine of its kernel.
    Machines,
    /// A setting or a state, which is judged where it is set: there the message knows more.
    Judged,
}

/// An option that not every target can use.
struct Bound {
    /// The option as the user writes it.
    option: &'static str,
    of: For,
    /// The target that it means where `--target` names none.
    means: Option<Target>,
}

/// The targets of a run.
pub(super) fn choose(request: &Request, experiment: &Experiment) -> Result<Chosen, UsageError> {
    let bound = bound(request);
    let (mut targets, by, by_name) = match request.targets.as_slice() {
        [] => meant(&bound, request, experiment),
        named => (named.to_vec(), "--target".to_owned(), true),
    };
    targets.sort_unstable();
    targets.dedup();
    let refusal = |bound: &Bound| Some(format!("{} is for {}", bound.option, bound.of.refusal(&targets, &by)?));
    match bound.iter().find_map(refusal) {
        Some(problem) => Err(UsageError::new(problem)),
        None => Ok(Chosen { targets, by_name }),
    }
}

/// The targets that the options mean, else the experiment's; then what says so, and whether the user did.
fn meant(bound: &[Bound], request: &Request, experiment: &Experiment) -> (Vec<Target>, String, bool) {
    if request.state.as_deref() == Some(KERNEL) {
        return (vec![Vm, Sim], format!("--state {KERNEL}"), true);
    }
    // An option of guests alone goes before those of machines: guests have machines too.
    let first = |target| bound.iter().find(|bound| bound.means == Some(target)).map(|bound| (target, bound.option));
    if let Some((target, option)) = first(Vm).or_else(|| first(Sim)) {
        return (vec![target], option.to_owned(), true);
    }
    let known = [Host, Vm, Sim].into_iter();
    let targets = known.filter(|target| experiment.targets.iter().any(|name| name == target.name()));
    (targets.collect(), format!("experiment {}", experiment.name), false)
}

/// The options of a request that not every target can use.
fn bound(request: &Request) -> Vec<Bound> {
    let state = request.state.as_deref();
    let names = request.sets.iter().filter_map(|set| set.split_once('='));
    let mut reals = names.filter_map(|(name, _)| Some(setting::find(name)?.real));
    let is_replayable = matches!(
        &request.accelerator,
        AcceleratorChoice::InTurn(all) if matches!(all[..], [Accelerator::Replayable { .. }, ..])
    );
    let has_accelerator = request.accelerator != AcceleratorChoice::Auto;
    let options = [
        (!request.kernels.is_empty(), "--kernel", For::Vm, Some(Vm)),
        (is_replayable, "--replayable", For::Vm, Some(Vm)),
        (has_accelerator && !is_replayable, "--accel", For::Vm, Some(Vm)),
        (!request.variants.is_empty(), "--variant", For::SimAlone, Some(Sim)),
        (!request.columns.is_empty(), "--column", For::SimAlone, Some(Sim)),
        (request.machine.is_some(), "--machine", For::Machines, Some(Sim)),
        (state == Some(FRESH), "--state", For::Sim, Some(Sim)),
        (state.is_some_and(|state| state != FRESH), "--state", For::Judged, Some(Sim)),
        (reals.any(|real| real != Real::File), "--set", For::Judged, Some(Sim)),
        (request.trace, "--trace", For::Sim, None),
        (request.map, "--map", For::Sim, None),
        (request.causes, "--causes", For::Sim, None),
        (request.memory.is_some(), "--memory", For::Host, None),
        (request.drop_caches, "--drop-caches", For::Host, None),
    ];
    let given = options.into_iter().filter(|(is_given, ..)| *is_given);
    given.map(|(_, option, of, means)| Bound { option, of, means }).collect()
}

impl For {
    /// The end of a message about an option that none of these targets can use, as `by` has left out those that can.
    fn refusal(self, targets: &[Target], by: &str) -> Option<String> {
        let has = |target| targets.contains(&target);
        let left_out = |whom: &str| format!("{whom}, which {by} leaves out");
        match self {
            Self::Host => (!has(Host)).then(|| left_out("target host")),
            Self::Vm => (!has(Vm)).then(|| left_out("target vm")),
            Self::Sim => (!has(Sim)).then(|| left_out("target sim")),
            Self::SimAlone if has(Sim) => {
                (targets != [Sim]).then(|| "target sim alone; a twin has the rules of its kernel".to_owned())
            }
            Self::SimAlone => Some(left_out("target sim")),
            Self::Machines if has(Vm) || targets == [Sim] => None,
            Self::Machines if has(Sim) => {
                Some("targets vm and sim; beside host, sim is the twin of this machine".to_owned())
            }
            Self::Machines => Some(left_out("targets vm and sim")),
            Self::Judged => None,
        }
    }
}

#[cfg(test)]
mod tests;
