//! Prices of a guest: its init runs the probes as its one job, and sends home what they gave.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use linux::{
    guest::{GuestRecord, Plan},
    kernel_image::{self, KernelImage},
    probe::Rounds,
    procfs::Snapshot,
    qemu::{self, Accelerator, Guest, GuestError},
};
use units::Frames;

use super::{Calibration, live, probe_here, setting};
use crate::{
    import,
    machine::Machine,
    order::Order,
    progress::{Progress, RunError},
    provenance, run,
    usage::UsageError,
};

/// The guest whose prices are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// A kernel: a release in the cache or the path of an image.
    pub kernel: String,
    /// A machine: a name or the path of a file.
    pub machine: String,
    /// The engine that runs its instructions; the host's processor where that can be, if the user does not say.
    pub accelerator: Option<Accelerator>,
}

/// Probes this machine as a worker inside the guest, and says what came of it.
pub(crate) fn probe_as_worker(seconds: u16) -> Result<String, String> {
    let rounds = probe_here(setting(&live()?), seconds, &AtomicBool::new(false), &mut Silent)?;
    serde_json::to_string(&rounds).map_err(|error| error.to_string())
}

/// Progress that is not shown: there is no terminal.
struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: usize, _: usize, _: &str) {}

    fn note(&mut self, _: &str) {}
}

/// Boots a guest, probes it for some seconds of its time and imports it under `name`. Times are the guest's: with translation
/// and a clock that counts instructions, prices are counts of instructions.
pub fn calibrate_guest(
    wanted: &Wanted,
    name: &str,
    seconds: u16,
    stop: &AtomicBool,
    progress: &mut (dyn Progress + Send),
) -> Result<Calibration, RunError> {
    let image = kernel_image::resolve(&wanted.kernel).map_err(|error| UsageError::of_key("--kernel", error))?;
    let machine = Machine::load(&wanted.machine, &linux::setting::names())?;
    let accelerator = wanted.accelerator.unwrap_or_else(|| run::choose_accelerator(&image, stop, progress));
    let replayable = matches!(accelerator, Accelerator::Replayable { .. });
    let machine = if replayable { machine.with_one_cpu() } else { machine };
    linux::module::check(&image, &machine.modules).map_err(|error| UsageError::new(error.to_string()))?;
    let (model, release) = (accelerator.name(), &image.release);
    progress.note(&format!("Linux {release} on {}, under QEMU ({model})", machine.name));
    let records = boot(&image, &machine, accelerator, seconds, stop)?;
    let snapshot =
        records.captures.get("recomputed").ok_or_else(|| RunError::Failed("the guest sent no capture".to_owned()))?;
    let rounds = records.outcome.ok_or_else(|| RunError::Failed("the guest sent no prices".to_owned()))?;
    let rounds: Rounds =
        rounds.and_then(|line| serde_json::from_value(line).map_err(report::brief)).map_err(RunError::Failed)?;
    let mut of_guest = import::import(snapshot, name);
    of_guest.about = format!(
        "{}, Linux {release} under QEMU ({model}); prices measured {} in {} rounds of the guest's time",
        machine.name,
        provenance::now(),
        rounds.samples.len(),
    );
    Ok(Calibration::new(of_guest, &rounds))
}

#[derive(Default)]
struct Records {
    captures: BTreeMap<String, Snapshot>,
    outcome: Option<Result<serde_json::Value, String>>,
}

fn boot(
    image: &KernelImage,
    machine: &Machine,
    accelerator: Accelerator,
    seconds: u16,
    stop: &AtomicBool,
) -> Result<Records, RunError> {
    let order = serde_json::to_value(Order::Probe { seconds }).expect("an order serialises");
    let plan = Plan {
        nodes: run::planned_nodes(machine),
        settings: machine.settings.clone(),
        held: Frames(0),
        disk: None,
        jobs: vec![order],
        frames: false,
        clock: false,
        inject: None,
    };
    let guest = Guest {
        kernel: image,
        accelerator,
        distances: machine.nodes.iter().map(|node| node.distance.clone()).collect(),
        modules: &machine.modules,
        plan: &plan,
        footprint: None,
        operator: None,
        boot_timeout_s: run::BOOT_TIMEOUT_S,
        // Translation takes its time.
        job_timeout_s: run::BOOT_TIMEOUT_S + 100 * u64::from(seconds),
    };
    let failed = |problem: String| RunError::Failed(problem);
    let (guard, scratch) = run::scratch().map_err(|error| failed(format!("scratch directory: {error}")))?;
    let mut records = Records::default();
    let mut broken = Ok(());
    let boot = qemu::boot(&guest, &scratch, stop, |record| match record {
        GuestRecord::Capture { phase, files } => match Snapshot::parse(&files) {
            Ok(snapshot) => drop(records.captures.insert(phase, snapshot)),
            Err(error) => broken = Err(failed(error.to_string())),
        },
        GuestRecord::Job { outcome, .. } => records.outcome = Some(outcome),
        GuestRecord::FirstOperation
        | GuestRecord::Clock { .. }
        | GuestRecord::Frames { .. }
        | GuestRecord::Exit { .. } => {}
    });
    guard.finish().map_err(failed)?;
    match boot {
        Err(GuestError::Interrupted) => return Err(RunError::InterruptedEarly),
        Err(GuestError::Refused(problem)) => return Err(RunError::Usage(UsageError::new(problem))),
        boot => boot.map_err(|error| failed(error.to_string()))?,
    };
    broken.map(|()| records)
}
