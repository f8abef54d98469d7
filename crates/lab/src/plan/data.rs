//! A plan, and what a result keeps of it.

use std::collections::BTreeSet;

use linux::{disk::Disk, kernel_image::KernelImage, qemu::Accelerator};
use mm::whole::state::System;
use report::{Column, Key, Layout, Skipped, Target};
use rules::variant::Named;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSecond, Picos};

use super::{asked::Asked, every::Every, request::shift};
use crate::{
    experiment::{Experiment, FRESH, KERNEL},
    footprint,
    machine::{Latency, Machine},
    presentation::Presentation,
    prices, provenance,
    state::{RecipeStart, StateFile},
    variant::Recorded,
    workload,
};

/// Everything that will run.
#[derive(Debug)]
pub struct Plan {
    /// The experiment, as read.
    pub experiment: Experiment,
    /// One per kernel and machine.
    pub sessions: Vec<Session>,
    /// The run as its user asked for it.
    pub asked: Asked,
    /// How the result is printed.
    pub presentation: Presentation,
    /// Columns that the default run would have had but cannot.
    pub skipped: Vec<Skipped>,
    /// Seconds that one cell may take.
    pub timeout_s: u64,
    /// Simulated cells at a time.
    pub workers: usize,
    /// Whether the trace events of simulated cells are written beside the result.
    pub trace: bool,
    /// How often cells are sampled.
    pub sample: Option<Every>,
    /// Whether each sample of a simulated cell has the map of its memory, too.
    pub map: bool,
    /// Whether a workload may drop the caches of this machine.
    pub drop_caches: bool,
}

/// All cells on one kernel and machine.
#[derive(Clone, Debug)]
pub struct Session {
    /// The machine.
    pub machine: Machine,
    /// The label of the kernel, with the settings that tell this column from others.
    pub kernel: String,
    /// Those settings alone, as a label.
    pub label: Option<String>,
    /// Settings that the machine file does not have.
    pub settings: Vec<(String, String)>,
    /// Where the session runs.
    pub place: Place,
    /// How much memory a workload may map.
    pub cap: Bytes,
    /// The cells of the session, in the order in which they run.
    pub keys: Vec<Key>,
}

/// Where a session runs.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has a few of them")]
pub enum Place {
    /// On the kernel of this machine.
    Host,
    /// In a guest.
    Vm {
        /// The kernel of the guest.
        image: KernelImage,
        /// The accelerators that run the instructions of the guest, by seed in turn.
        accelerators: Vec<Accelerator>,
        /// Every frame is recorded before each cell.
        frames: bool,
    },
    /// In the simulator.
    Sim {
        /// The kernel as data.
        variant: Named,
        /// The release whose nearest rules these are, when nobody asked for them by name.
        chosen_for: Option<String>,
        /// The real session whose twin it is: on the same machine, as that kernel found it.
        twin_of: Option<Column>,
        /// Where memory stands at the start.
        start: Start,
        /// Of a guest's twin, which is as fast as that guest: the accelerators of the guest, by seed in turn.
        accelerators: Vec<Accelerator>,
    },
}

/// Where memory stands when a simulated workload starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// All of it is free.
    #[default]
    Fresh,
    /// As the real session's kernel had it before the same cell.
    Kernel,
    /// As a state file says.
    File(StateFile),
    /// As a recipe leaves it, which each cell follows first.
    Recipe(RecipeStart),
}

impl Start {
    /// The name of the start in keys of cells.
    pub fn name(&self) -> String {
        match self {
            Self::Fresh => FRESH.to_owned(),
            Self::Kernel => KERNEL.to_owned(),
            Self::Recipe(start) => start.recipe.to_string(),
            Self::File(file) => file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

impl Session {
    /// Host or vm.
    pub fn target(&self) -> Target {
        match self.place {
            Place::Host => Target::Host,
            Place::Vm { .. } => Target::Vm,
            Place::Sim { .. } => Target::Sim,
        }
    }

    /// The column of its cells.
    pub(crate) fn column(&self) -> Column {
        let (kernel, machine) = (self.kernel.clone(), self.machine.name.clone());
        Column { result: None, target: self.target(), kernel, machine }
    }

    /// The memory of the machine as workloads plan with it, before the machine is there to be asked.
    pub fn memory(&self) -> Bytes {
        match self.place {
            Place::Host => self.cap,
            Place::Vm { .. } | Place::Sim { .. } => self.machine.memory(),
        }
    }

    /// The largest that any cell's files become.
    pub fn files(&self) -> Bytes {
        let files = self.keys.iter().map(|key| workload::planned(key).files(self.memory()));
        files.max().unwrap_or_default()
    }

    /// Whether its workload means to fill memory.
    pub fn presses(&self) -> bool {
        self.keys.iter().any(|key| workload::planned(key).presses())
    }

    /// How often the memory of the guest on its host is looked at, if at all.
    pub(crate) fn footprint(&self) -> Option<Picos> {
        let every = self.keys.iter().filter_map(|key| footprint::every(&workload::planned(key), &self.settings));
        every.max().filter(|_| !self.place.is_host())
    }

    /// Does somebody outside say how large the balloon of its guest shall be?
    pub(crate) fn has_balloon(&self) -> bool {
        linux::balloon::target(&[self.machine.settings.as_slice(), &self.settings].concat()).is_some()
    }

    /// The disk of a guest that needs one.
    pub fn disk(&self) -> Option<Disk> {
        let accelerator = self.place.accelerator(1)?;
        let swap = if self.presses() { self.machine.swap } else { Bytes(0) };
        (self.files() > Bytes(0) || swap > Bytes(0)).then(|| Disk::new(self.files(), swap, accelerator))
    }

    fn simulated(&self) -> Option<SimulatedColumn> {
        let Place::Sim { variant, chosen_for, twin_of, start, accelerators } = &self.place else { return None };
        let machine = self.place.as_fast_as_its_guest(self.machine.clone(), 1);
        Some(SimulatedColumn {
            column: self.column(),
            variant: Recorded::of(variant),
            chosen_for: chosen_for.clone(),
            twin_of: twin_of.clone(),
            start: start.clone(),
            system: self.machine.system.filter(|_| *start == Start::Fresh).map(in_words),
            prices: prices::all(&machine.prices, machine.pace.as_ref()),
            shifts: accelerators.iter().copied().filter_map(shift).collect(),
            is_translated: accelerators.contains(&Accelerator::Tcg),
            shared_core: (!self.machine.threads.is_empty())
                .then(|| prices::shared_core(self.machine.shared_core.as_ref()).clone()),
            bandwidth: self.machine.nodes.iter().map(|node| node.bandwidth).collect(),
            latency: self.machine.latency.clone(),
        })
    }
}

/// A sentence about the memory that a system has before a run, and the programs that it starts meanwhile.
fn in_words(system: System) -> String {
    let System { anonymous, kernel, percent, programs, varies } = system;
    let varied = if varies > 0 { format!(", each drawn {varies} % up or down") } else { String::new() };
    let [anonymous, kernel, programs] = [anonymous, kernel, programs].map(units::Frames::bytes);
    let programs = if programs > Bytes(0) { format!(", programs of {programs}") } else { String::new() };
    format!("{anonymous} of daemons in {percent} % of the pageblocks and {kernel} of the kernel{programs}{varied}")
}

impl Place {
    /// The accelerator that runs the instructions of a guest with this seed.
    pub fn accelerator(&self, seed: u64) -> Option<Accelerator> {
        let Self::Vm { accelerators, .. } = self else { return None };
        Some(in_turn(accelerators, seed))
    }

    /// A simulated machine with this seed: its own, or as fast as the guest whose twin it is.
    pub fn as_fast_as_its_guest(&self, machine: Machine, seed: u64) -> Machine {
        let accelerators = match self {
            Self::Sim { accelerators, .. } if !accelerators.is_empty() => accelerators,
            Self::Host | Self::Vm { .. } | Self::Sim { .. } => return machine,
        };
        match in_turn(accelerators, seed) {
            Accelerator::Replayable { shift } => machine.counting_instructions(shift),
            Accelerator::Tcg => machine.translated(),
            Accelerator::Kvm => machine,
        }
    }

    /// On this kernel.
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host)
    }
}

/// The element for a seed: the first for seed 1, the second for seed 2 and so on, over and over.
pub fn in_turn<T: Copy>(all: &[T], seed: u64) -> T {
    let turn = seed.saturating_sub(1) % all.len() as u64;
    all[usize::try_from(turn).expect("fewer than there are")]
}

/// The identity of a run, as its result directory keeps it, so that a resumed run is the same run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Hash of the program's sources.
    pub program: String,
    /// Every cell, in the order of the experiment.
    pub keys: Vec<Key>,
    /// The machine of each session, as a machine file, and the accelerators of its guest.
    pub machines: Vec<(String, String)>,
    /// The simulated columns.
    pub simulated: Vec<SimulatedColumn>,
    /// How the tables of the run are laid out.
    #[serde(default)]
    pub layout: Layout,
    /// How often the cells of the run were sampled. Results without samples lack something, and on a real kernel the sampler has
    /// a part in the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Every>,
    /// Whether simulated cells have maps of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub map: bool,
    /// How the result is printed; none in results of earlier programs. Another presentation does not make another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presentation: Option<Presentation>,
    /// The run as its user asked for it; none in results of earlier programs. Other words for it do not make another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Checksums of the lines of `result.jsonl`, in order, once the run has ended with all of its cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
}

/// A simulated column, with all that explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedColumn {
    /// The column.
    #[serde(flatten)]
    pub column: Column,
    /// The kernel of the column.
    pub variant: Recorded,
    /// The release whose nearest rules these are, when nobody asked for them by name.
    pub chosen_for: Option<String>,
    /// The real column whose twin it is.
    pub twin_of: Option<Column>,
    /// Where memory stood at the start.
    #[serde(default)]
    pub start: Start,
    /// The contents of memory at the start, in words, of a machine that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Prices of primitive operations; of a guest's twin, with seed 1.
    pub prices: Vec<prices::Used>,
    /// Of the twin of a guest that counts time in instructions: log2 of the nanoseconds that one takes, by seed in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<u8>,
    /// Whether it is the twin of a guest whose instructions are translated in the host's time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_translated: bool,
    /// The price of sharing a core, where CPUs do.
    pub shared_core: Option<prices::SharedCore>,
    /// The bandwidth of each node's memory, for all CPUs together, where that is limited.
    pub bandwidth: Vec<Option<BytesPerSecond>>,
    /// How far memory is from each CPU, where it is not equally far everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

impl Plan {
    /// The number of cells.
    pub fn cells(&self) -> usize {
        self.sessions.iter().map(|session| session.keys.len()).sum()
    }

    /// A line that says that this machine's own kernel is used, and for what; none where no cell but those that are done is
    /// on it.
    pub fn on_host(&self, done: &BTreeSet<Key>) -> Option<String> {
        let hosts = || self.sessions.iter().filter(|session| session.place.is_host());
        let kernel = hosts().map(|session| session.kernel.split(' ').next().unwrap_or_default()).next()?;
        let keys = hosts().flat_map(|session| session.keys.iter().map(move |key| (key, session.memory())));
        let needs: Vec<Bytes> = keys
            .filter(|(key, _)| !done.contains(*key))
            .map(|(key, memory)| workload::planned(key).memory(memory))
            .collect();
        let most = needs.iter().max()?.as_mib();
        let cells = if needs.len() == 1 { "1 cell".to_owned() } else { format!("{} cells, each", needs.len()) };
        let set: BTreeSet<&str> =
            hosts().flat_map(|session| session.settings.iter().map(|(name, _)| name.as_str())).collect();
        let set = set.into_iter().collect::<Vec<_>>().join(", ");
        let set = if set.is_empty() { set } else { format!("; {set} is set, and put back at the end") };
        let drops = if self.drop_caches { "; its caches may be dropped" } else { "" };
        Some(format!(
            "this machine's own kernel is used (host, {kernel}): {cells} of up to {most} MiB{set}{drops} \
             (--target sim leaves it alone)"
        ))
    }

    /// The identity of the run: two runs with the same identity are the same run. The machine imported from this host is left
    /// out, as its free memory and its automatic settings move by themselves.
    pub fn identity(&self) -> Identity {
        let machine = |session: &Session| match &session.place {
            Place::Host | Place::Sim { twin_of: Some(_), .. } => (String::new(), session.target().to_string()),
            Place::Sim { twin_of: None, .. } => (session.machine.to_toml(), "sim".to_owned()),
            Place::Vm { accelerators, frames, .. } => {
                let recorded = if *frames { ", frames recorded" } else { "" };
                let names: Vec<_> = accelerators.iter().map(|accelerator| accelerator.name()).collect();
                (session.machine.to_toml(), names.join(" ") + recorded)
            }
        };
        Identity {
            program: provenance::PROGRAM_HASH.to_owned(),
            keys: self.sessions.iter().flat_map(|session| session.keys.iter().cloned()).collect(),
            machines: self.sessions.iter().map(machine).collect(),
            simulated: self.sessions.iter().filter_map(Session::simulated).collect(),
            layout: self.experiment.layout,
            sample: self.sample,
            map: self.map,
            presentation: Some(self.presentation.clone()),
            asked: Some(self.asked.clone()),
            lines: None,
        }
    }
}
