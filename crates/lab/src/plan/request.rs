//! The request of a user, before anything of it is checked.

use std::path::PathBuf;

use linux::qemu::Accelerator;
use report::{Target, compare::Axis};
use units::Bytes;

use super::{every::Every, seeds::Seeds};

/// Seconds that one cell may take where nobody says.
pub const TIMEOUT_S: u64 = 900;
/// Seconds that one cell may take, at most: 11 days.
pub const TIMEOUT_S_MAX: u64 = 1_000_000;

/// The request of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Request {
    /// Name or path of an experiment.
    pub experiment: String,
    /// Targets asked for by name. When empty: the targets that other options are for, or else the targets of the experiment, each
    /// only if this machine has it.
    pub targets: Vec<Target>,
    /// Kernels for target vm: versions in the cache or paths of images; empty means the kernel of the experiment.
    pub kernels: Vec<String>,
    /// Name or path of the machine for targets vm and sim.
    pub machine: Option<String>,
    /// Names or paths of variants for target sim alone; empty means the newest rules not newer than the experiment's kernel.
    pub variants: Vec<String>,
    /// Kernels of the experiment's own columns that are wanted, for target sim alone; empty means all.
    pub columns: Vec<String>,
    /// `NAME=VALUE`: a kernel setting, or a parameter of the workload.
    pub sets: Vec<String>,
    /// Seeds: everything is repeated with each of them.
    pub seeds: Seeds,
    /// Whether a workload may drop the caches of this machine. In guests it always may.
    pub drop_caches: bool,
    /// How much memory a workload may map on this machine; a quarter of MemAvailable when not given.
    pub memory: Option<Bytes>,
    /// Where memory stands when a simulated workload starts, instead of what the experiment says.
    pub state: Option<String>,
    /// The accelerators that run the instructions of guests.
    pub accelerator: AcceleratorChoice,
    /// Seconds that one cell may take.
    pub timeout_s: u64,
    /// Simulated cells at a time; one per CPU of this host when not given.
    pub workers: Option<usize>,
    /// Whether the trace events of simulated cells are written beside the result.
    pub trace: bool,
    /// How often what the kernel counts and holds is sampled; not at all when not given.
    pub sample: Option<Every>,
    /// The axes of a sweep, for whoever prints its result; empty of other runs.
    pub axes: Vec<Axis>,
    /// Whether each sample of a simulated cell has the map of its memory, too.
    pub map: bool,
    /// Whether times by cause are printed, which simulated cells alone have.
    pub causes: bool,
    /// Where results go; a run that stopped there is resumed.
    pub out: Option<PathBuf>,
}

/// The choice of the accelerators that run the instructions of guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceleratorChoice {
    /// KVM where it boots the kernel, else translation.
    Auto,
    /// These accelerators: seed 1 takes the first, seed 2 the second and so on, over and over. There is at least one accelerator,
    /// and all are of a kind.
    InTurn(Vec<Accelerator>),
}

/// Log2 of the nanoseconds that an instruction takes; none in a guest whose time is not counted in instructions.
pub(super) fn shift(accelerator: Accelerator) -> Option<u8> {
    match accelerator {
        Accelerator::Replayable { shift } => Some(shift),
        Accelerator::Kvm | Accelerator::Tcg => None,
    }
}
