//! From what a user asks to the cells that will run: everything that can be wrong is found here, before anything runs.

mod asked;
mod data;
mod every;
mod fits;
mod grid;
mod identity;
mod request;
mod seeds;
mod session;
mod sets;
mod targets;
mod traces;

use std::collections::BTreeSet;

use linux::{kernel_image::KernelImage, qemu::Accelerator};
use report::Target;
use workloads::Workload;

pub(crate) use self::session::cap_of;
pub use self::{
    asked::Asked,
    data::{Identity, Place, Plan, Session, SimulatedColumn, Start, in_turn},
    every::Every,
    grid::task_counts,
    request::{AcceleratorChoice, Request, TIMEOUT_S, TIMEOUT_S_MAX},
    seeds::Seeds,
};
use crate::{experiment::Experiment, mmtests, presentation::Presentation, usage::UsageError, workload};

impl Plan {
    /// Makes the plan. `probe` says what runs the instructions of a guest with this kernel when the user leaves it open.
    pub fn new(request: &Request, probe: impl FnMut(&KernelImage) -> Accelerator) -> Result<Self, UsageError> {
        let experiment = match mmtests::config::experiment(&request.experiment)? {
            Some(experiment) => experiment,
            None => Experiment::load(&request.experiment)?,
        };
        let sets::Split { columns, of_host, params } = sets::split(request, &experiment)?;
        let (settings, of_host) = (&columns, &of_host);
        let mut planner = session::Planner { request, experiment: &experiment, settings, of_host, params, probe };
        let (sessions, skipped) = planner.sessions()?;
        if sessions.iter().all(|session| session.keys.is_empty()) {
            let reasons: Vec<_> = skipped.iter().map(|skip| format!("{}: {}", skip.target, skip.reason)).collect();
            return Err(UsageError::new(format!("nothing can run here: {}", reasons.join("; "))));
        }
        let workers = request.workers.unwrap_or_else(|| linux::host::usable_cpus().len());
        let Request { timeout_s, trace, sample, map, .. } = *request;
        check_map(request, &sessions)?;
        let drop_caches = request.drop_caches;
        let asked = Asked::of(request, targets_of(&sessions));
        let presentation = Presentation::of(&experiment, sessions.iter().flat_map(|session| &session.keys))?;
        let presentation = Presentation { axes: request.axes.clone(), ..presentation };
        Ok(Self {
            experiment,
            sessions,
            asked,
            presentation,
            skipped,
            timeout_s,
            workers,
            trace,
            sample,
            map,
            drop_caches,
        })
    }
}

/// Refuses maps of memory where no cell would have one.
fn check_map(request: &Request, sessions: &[Session]) -> Result<(), UsageError> {
    if !request.map {
        return Ok(());
    }
    if request.sample.is_none() {
        return Err(UsageError::of_key("--map", "expected --sample TIME too, which says how often"));
    }
    if !sessions.iter().any(|session| session.target() == Target::Sim && !session.keys.is_empty()) {
        return Err(UsageError::new("--map is for target sim, and nothing here is simulated"));
    }
    let mut keys = sessions.iter().flat_map(|session| &session.keys);
    match keys.find(|key| matches!(workload::planned(key), Workload::Guests(_))) {
        Some(key) => Err(UsageError::of_key(
            "--map",
            format!("{} has several kernels, whose memory has no map yet; --sample alone samples them", key.workload),
        )),
        None => Ok(()),
    }
}

/// The targets of sessions with cells, each once.
fn targets_of(sessions: &[Session]) -> Vec<Target> {
    let with_cells = sessions.iter().filter(|session| !session.keys.is_empty());
    with_cells.map(Session::target).collect::<BTreeSet<_>>().into_iter().collect()
}
