//! Whether KVM works here, found out by booting: a device that is there may still fail at the first instruction it has
//! to emulate, as some nested ones do.

use std::{fs, path::Path, sync::atomic::AtomicBool};

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId};

use crate::{
    guest::{Plan, PlannedNode},
    kernel_image::{KernelImage, cache_dir},
    qemu::{self, Accelerator, Guest, GuestError},
};

/// How long the trial boot may take; under KVM it takes about one second.
const PATIENCE_S: u64 = 15;
const DEVICE: &str = "/dev/kvm";

/// What the trial said, kept for as long as this host stays up.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    boot_id: String,
    release: String,
    /// Why it does not work; none when it does.
    problem: Option<String>,
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
    let known = file.as_ref().and_then(|file| serde_json::from_slice::<Verdict>(&fs::read(file).ok()?).ok());
    if let Some(known) = known.filter(|known| known.boot_id == boot_id && known.release == image.release) {
        return known.problem.map_or(Ok(()), |reason| Err(NoKvm { reason, news: false }));
    }
    let outcome = try_boot(image, scratch, stop);
    if !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let verdict = Verdict { boot_id, release: image.release.clone(), problem: outcome.clone().err() };
        // Without a cache the question is asked again next time.
        if let Some(file) = file {
            let _ = file.parent().map(fs::create_dir_all);
            let _ = fs::write(file, serde_json::to_vec(&verdict).expect("a verdict serialises"));
        }
    }
    outcome.map_err(|reason| NoKvm { reason, news: true })
}

fn try_boot(image: &KernelImage, scratch: &Path, stop: &AtomicBool) -> Result<(), String> {
    let node = PlannedNode { memory: Bytes::mib(512), cpus: vec![CpuId(0)] };
    let plan = Plan { nodes: vec![node], settings: Vec::new(), jobs: Vec::new(), inject: None };
    let guest = Guest {
        kernel: image,
        accelerator: Accelerator::Kvm,
        distances: vec![vec![10]],
        modules: &[],
        plan: &plan,
        boot_timeout_s: PATIENCE_S,
        job_timeout_s: PATIENCE_S,
    };
    let boot = qemu::boot(&guest, scratch, stop, |_| ());
    boot.map(drop).map_err(|error| match error {
        // The console says nothing about KVM.
        GuestError::Ended { how, .. } => format!("a trial boot ended: QEMU {how}"),
        GuestError::Silent { seconds, .. } => format!("a trial boot did not finish within {seconds} s"),
        other => other.to_string(),
    })
}
