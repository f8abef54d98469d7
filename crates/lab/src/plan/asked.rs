//! A run as its user asked for it, which `run.json` keeps: a command that is suggested is the user's own but for what it adds.

use linux::qemu::Accelerator;
use report::Target;
use serde::{Deserialize, Serialize};

use super::request::{AcceleratorChoice, Request, TIMEOUT_S, shift};

/// The words of a run after `pagelab run`, by option, but for those that say where results go, how often a sample is taken and
/// how results are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Name or path of the experiment.
    pub experiment: String,
    /// Targets with cells, whoever chose them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Name or path of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Kernels of guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Names or paths of variants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Kernels of the experiment's own columns, if the user wants only some of these columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// `NAME=VALUES`, as the user wrote them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Words of other options: each option with its value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
}

impl Asked {
    /// A request whose cells are on these targets.
    pub fn of(request: &Request, targets: Vec<Target>) -> Self {
        let Request { experiment, machine, kernels, variants, columns, sets, .. } = request.clone();
        Self { experiment, targets, machine, kernels, variants, columns, sets, more: more(request) }
    }

    /// The words after `pagelab run`.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.experiment.clone()];
        let mut add = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
        self.targets.iter().for_each(|target| add("--target", target.name()));
        self.machine.iter().for_each(|machine| add("--machine", machine));
        self.kernels.iter().for_each(|kernel| add("--kernel", kernel));
        self.variants.iter().for_each(|variant| add("--variant", variant));
        self.columns.iter().for_each(|column| add("--column", column));
        self.sets.iter().for_each(|set| add("--set", set));
        words.extend(self.more.iter().cloned());
        words
    }
}

fn more(request: &Request) -> Vec<String> {
    let mut words = Vec::new();
    let mut add =
        |option: &str, value: Option<String>| words.extend([Some(option.to_owned()), value].into_iter().flatten());
    if request.seeds.all().ne([1]) {
        add("--seeds", Some(request.seeds.to_string()));
    }
    if let Some(state) = &request.state {
        add("--state", Some(state.clone()));
    }
    if let AcceleratorChoice::InTurn(all) = &request.accelerator {
        let shifts: Vec<String> = all.iter().filter_map(|one| shift(*one)).map(|shift| shift.to_string()).collect();
        match all[..] {
            [Accelerator::Replayable { .. }, ..] => add("--replayable", Some(shifts.join(","))),
            [Accelerator::Kvm, ..] => add("--accel", Some("kvm".to_owned())),
            [Accelerator::Tcg, ..] => add("--accel", Some("tcg".to_owned())),
            [] => {}
        }
    }
    if let Some(memory) = request.memory {
        add("--memory", Some(memory.to_string()));
    }
    if request.drop_caches {
        add("--drop-caches", None);
    }
    if request.timeout_s != TIMEOUT_S {
        add("--timeout", Some(request.timeout_s.to_string()));
    }
    if request.trace {
        add("--trace", None);
    }
    words
}
