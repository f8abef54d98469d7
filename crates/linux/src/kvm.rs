//! Whether KVM works here, found out by booting: a device that is there may still fail at the first instruction it has
//! to emulate, as some nested ones do.

use std::{collections::BTreeMap, fs, path::Path, sync::atomic::AtomicBool};

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Frames};

use crate::{
    guest::{Plan, PlannedNode},
    kernel_image::{KernelImage, cache_dir},
    qemu::{self, Accelerator, Guest, GuestError},
};

/// How long the trial boot may take; under KVM it takes about one second.
const PATIENCE_S: u64 = 15;
const DEVICE: &str = "/dev/kvm";

/// Results of trials, kept for as long as this host stays up.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    boot_id: String,
    /// For each release, why it does not work; none when it does.
    problems: BTreeMap<String, Option<String>>,
}

/// A trial that ended for a reason that says nothing about KVM (a full disk, an interrupt) is not remembered.
enum Trial {
    Works,
    Fails(String),
    SaysNothing(String),
}

/// Why KVM is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKvm {
    /// The reason.
    pub reason: String,
    /// Whether it was found out just now, so that it is worth telling.
    pub news: bool,
}

/// Whether this kernel boots under KVM here; the error says why not. The answer is remembered until the host reboots.
pub fn probe(image: &KernelImage, scratch: &Path, stop: &AtomicBool) -> Result<(), NoKvm> {
    let device = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    device.map_err(|error| NoKvm { reason: format!("{DEVICE}: {error}"), news: false })?;
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let file = cache_dir().ok().map(|cache| cache.join("kvm-probe.json"));
    let known = file.as_ref().and_then(|file| serde_json::from_slice::<Memory>(&fs::read(file).ok()?).ok());
    let mut memory = known.filter(|known| known.boot_id == boot_id).unwrap_or_default();
    if let Some(problem) = memory.problems.get(&image.release) {
        return problem.clone().map_or(Ok(()), |reason| Err(NoKvm { reason, news: false }));
    }
    let problem = match try_boot(image, scratch, stop) {
        Trial::Works => None,
        Trial::Fails(reason) => Some(reason),
        Trial::SaysNothing(reason) => return Err(NoKvm { reason, news: true }),
    };
    memory.boot_id = boot_id;
    memory.problems.insert(image.release.clone(), problem.clone());
    if let Some(file) = file {
        // Without a cache the question is asked again next time.
        let _ = remember(&file, &memory);
    }
    problem.map_or(Ok(()), |reason| Err(NoKvm { reason, news: true }))
}

/// Whole or absent: another run may be reading.
fn remember(file: &Path, memory: &Memory) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let partial = directory.join(format!(".kvm-probe.{}", std::process::id()));
    fs::write(&partial, serde_json::to_vec(memory)?)?;
    fs::rename(&partial, file)
}

fn try_boot(image: &KernelImage, scratch: &Path, stop: &AtomicBool) -> Trial {
    let node = PlannedNode { memory: Bytes::mib(512), cpus: vec![CpuId(0)] };
    let (settings, jobs) = (Vec::new(), Vec::new());
    let (held, frames, clock) = (Frames(0), false, false);
    let plan = Plan { nodes: vec![node], settings, held, disk: None, jobs, frames, clock, inject: None };
    let guest = Guest {
        kernel: image,
        accelerator: Accelerator::Kvm,
        distances: vec![vec![10]],
        modules: &[],
        plan: &plan,
        footprint: None,
        operator: None,
        boot_timeout_s: PATIENCE_S,
        job_timeout_s: PATIENCE_S,
    };
    match qemu::boot(&guest, scratch, stop, |_| ()) {
        Ok(_) => Trial::Works,
        // The console says nothing about KVM.
        Err(GuestError::Ended { how, .. }) => Trial::Fails(format!("a trial boot ended: QEMU {how}")),
        Err(GuestError::Silent { seconds, .. }) => {
            Trial::SaysNothing(format!("a trial boot did not finish within {seconds} s"))
        }
        Err(other) => Trial::SaysNothing(other.to_string()),
    }
}
