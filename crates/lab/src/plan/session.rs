//! Which kernels and machines a run goes to, and what it cannot go to.

use std::collections::BTreeSet;

use linux::{
    disk,
    kernel_image::{self, KernelImage},
    procfs::{Capture, Snapshot},
    qemu::{self, Accelerator},
};
use os::NumaNode;
use report::{Column, Key, SCHEMA, Skipped, Target};
use rules::variant::Named;
use units::Bytes;
use workloads::Workload;

use super::{
    AcceleratorChoice, Place, Request, Session, Start, fits,
    grid::{self, Ground},
    sets::{Settings, labelled},
    targets::{self, Chosen},
};
use crate::{
    experiment::{Experiment, FRESH, KERNEL},
    import,
    machine::{self, Machine, Storage},
    simulated,
    source::unknown,
    state::{self, StateFile},
    usage::UsageError,
    variant,
};

/// The name of the machine that is imported from this host.
const HERE: &str = "here";

pub(super) struct Planner<'a, P> {
    pub(super) request: &'a Request,
    pub(super) experiment: &'a Experiment,
    /// Settings of each simulated column.
    pub(super) settings: &'a [Settings],
    /// Settings of each column of this host.
    pub(super) of_host: &'a [Settings],
    pub(super) params: Vec<(String, Vec<String>)>,
    pub(super) probe: P,
}

/// A simulated column to be.
struct SimColumn {
    /// What tables call it.
    kernel: String,
    variant: Named,
    chosen_for: Option<String>,
    /// The set of tables that it belongs to.
    group: Option<String>,
    /// The settings that differ between the columns.
    label: Option<String>,
    /// All that is set.
    settings: Vec<(String, String)>,
    /// Its machine, where it is its own.
    machine: Option<String>,
    /// Parameters that are its own.
    params: Params,
}

/// Parameters of the workload, with their values.
type Params = Vec<(String, Vec<String>)>;

/// A node of a machine, as programs on it see it.
fn numa_node(node: &machine::Node) -> NumaNode {
    let machine::Node { id, cpus, memory, distance, .. } = node.clone();
    NumaNode { id, cpus, memory, distance }
}

/// A session, or why there is none: the user's mistake, or something this host lacks.
enum Refusal {
    Mistake(UsageError),
    Lacking(String),
}

/// Whether a workload means to have memory reclaimed.
fn presses(workload: &str) -> bool {
    Workload::parse(workload, []).expect("its defaults are right").presses()
}

/// Memory that a workload may map of a machine: its kernel needs some itself, and reclaim is not what fault-storm measures. A
/// workload that means to have memory reclaimed may map all of it, and swap. A service may map what it likes: whom the kernel
/// kills is a result.
pub(crate) fn cap_of(workload: &str, machine: &Machine) -> Bytes {
    /// All addresses of a process (`TASK_SIZE`, x86).
    const ADDRESSES: Bytes = Bytes(1 << 47);
    if workload == workloads::service::INFO.name {
        return ADDRESSES;
    }
    if presses(workload) { machine.memory() + machine.swap } else { Bytes(machine.memory().0 / 4 * 3) }
}

impl<P: FnMut(&KernelImage) -> Accelerator> Planner<'_, P> {
    pub(super) fn sessions(&mut self) -> Result<(Vec<Session>, Vec<Skipped>), UsageError> {
        let Chosen { targets, by_name } = targets::choose(self.request, self.experiment)?;
        let mut sessions = Vec::new();
        let mut skipped = Vec::new();
        self.check_state(&targets)?;
        let with_twins = targets.contains(&Target::Sim);
        for target in targets {
            if target == Target::Sim && !sessions.is_empty() {
                // Each real session has its twin already.
                continue;
            }
            match self.session(target, &mut skipped) {
                Ok(more) if by_name && more.iter().all(|session| session.keys.is_empty()) => {
                    let reasons: Vec<_> = skipped.iter().map(|skip: &Skipped| skip.reason.as_str()).collect();
                    return Err(UsageError::new(format!("target {target}: no case fits: {}", reasons.join("; "))));
                }
                Ok(more) if with_twins && target != Target::Sim => {
                    for session in more {
                        let twin = twin(&session, &twins_start(&session), &sessions, &mut skipped);
                        sessions.push(session);
                        sessions.extend(twin);
                    }
                }
                Ok(more) => sessions.extend(more),
                Err(Refusal::Mistake(error)) => return Err(error),
                Err(Refusal::Lacking(reason)) if by_name => {
                    return Err(UsageError::new(format!("target {target}: {reason}")));
                }
                Err(Refusal::Lacking(reason)) => {
                    let what = format!("all of {}", self.experiment.name);
                    skipped.push(Skipped { schema: SCHEMA, key: None, target, what, reason });
                }
            }
        }
        Ok((sessions, skipped))
    }

    fn session(&mut self, target: Target, skipped: &mut Vec<Skipped>) -> Result<Vec<Session>, Refusal> {
        match target {
            Target::Host => self.hosts(skipped),
            Target::Vm => self.vms(skipped),
            Target::Sim => self.sims(skipped),
        }
    }

    fn sims(&self, skipped: &mut Vec<Skipped>) -> Result<Vec<Session>, Refusal> {
        let columns = self.columns()?;
        let mut sessions = Vec::new();
        for SimColumn { kernel, variant, chosen_for, group, label, settings, machine, params } in columns {
            let (machine, start) = self.simulated_machine(machine.as_deref())?;
            let cap = self.cap_of(&machine);
            let cpus = u32::try_from(machine.cpus().len()).expect("fewer than 2^32 CPUs");
            let name = variant.name.clone();
            let machine_set = simulated::with_settings(machine.clone(), &settings);
            let check = if self.has_guests() { simulated::check_host_of_guests } else { simulated::check_guest };
            check(&machine_set).map_err(|problem| Refusal::Mistake(UsageError::new(problem)))?;
            let can_start = simulated::check_start(&machine_set, &variant.rules);
            can_start.map_err(|problem| Refusal::Mistake(UsageError::new(problem)))?;
            let laid_out = (start != Start::Fresh).then(|| start.name());
            simulated::check_state(laid_out.as_deref(), &variant.rules)
                .map_err(|problem| Refusal::Mistake(UsageError::new(problem)))?;
            // What means to fill memory does not fit by design.
            let room = simulated::room(&machine_set, &variant.rules).ok().filter(|_| !self.presses());
            let place =
                Place::Sim { variant, chosen_for, twin_of: None, start: start.clone(), accelerators: Vec::new() };
            let session = Session { machine, kernel, label, settings, place, cap, keys: Vec::new() };
            let cap_from = self.cap_from("three quarters of the machine's memory");
            let mut session = self.fill(session, (cpus, cap_from, room), &params, skipped)?;
            for key in &mut session.keys {
                key.variant.clone_from(&name);
                key.group = group.clone().or(key.group.take());
                key.state = start.name();
            }
            sessions.push(session);
        }
        check_recipe(&sessions).map_err(Refusal::Mistake)?;
        Ok(sessions)
    }

    /// The machine that the user names, or else a column, or else the experiment; and where its memory stands.
    fn simulated_machine(&self, of_column: Option<&str>) -> Result<(Machine, Start), Refusal> {
        let name = self.request.machine.as_deref().or(of_column).unwrap_or(&self.experiment.machine);
        let machine = Machine::load(name, &linux::setting::names()).map_err(Refusal::Mistake)?;
        let (machine, start) = self.start(machine).map_err(Refusal::Mistake)?;
        simulated::spec(&machine)
            .map_err(|problem| Refusal::Mistake(UsageError::new(format!("machine {}: {problem}", machine.name))))?;
        Ok((machine, start))
    }

    /// Where memory is to stand when a simulated workload starts.
    fn state(&self) -> &str {
        self.request.state.as_deref().unwrap_or(&self.experiment.state)
    }

    /// A state that cannot be had is the user's mistake.
    fn check_state(&self, targets: &[Target]) -> Result<(), UsageError> {
        let has_real = targets != [Target::Sim];
        if has_real && !matches!(self.state(), FRESH | KERNEL) {
            // Nobody has looked at it yet, and what is wrong with it comes second.
            let words = self.state();
            let what = match state::Named::from_words(words) {
                Ok(state::Named::Recipe(_)) => "a recipe",
                _ => "a state file",
            };
            return Err(UsageError::new(format!(
                "state {words}: {what} is for target sim alone (expected fresh or kernel)"
            )));
        }
        match state::Named::from_words(self.state())? {
            state::Named::Kernel if !targets.contains(&Target::Vm) => {
                Err(UsageError::new("state kernel: a guest's, so it needs target vm"))
            }
            _ => Ok(()),
        }
    }

    /// Where a simulated machine's memory stands, and the machine: that of the kernel whose memory it was, as fast as the
    /// one that was asked for.
    fn start(&self, asked: Machine) -> Result<(Machine, Start), UsageError> {
        let name = self.state();
        let (path, state) = match state::Named::from_words(name)? {
            state::Named::Fresh | state::Named::Kernel => return Ok((asked, Start::Fresh)),
            state::Named::Recipe(start) => return Ok((asked, Start::Recipe(start))),
            state::Named::File(path, state) => (path, state),
        };
        let machine = Machine { modules: asked.modules.clone(), ..state.machine(&asked.name).as_fast_as(&asked) };
        let shape = |machine: &Machine| machine.nodes.iter().map(|node| node.cpus.len()).collect::<Vec<_>>();
        let (of_state, of_asked) = (shape(&machine), shape(&asked));
        if of_state != of_asked {
            let message = format!(
                "state {name}: of a machine with {of_state:?} CPUs by node; machine {} has {of_asked:?}",
                asked.name
            );
            return Err(UsageError::new(message));
        }
        Ok((machine, Start::File(StateFile { path, hash: state.hash() })))
    }

    /// Refuses a column that the experiment lacks.
    fn check_wanted(&self) -> Result<(), String> {
        let known: Vec<&str> = self.experiment.columns.iter().map(|column| column.kernel.as_str()).collect();
        let wanted = &self.request.columns;
        match wanted.iter().find(|column| !known.contains(&column.as_str())) {
            _ if !wanted.is_empty() && !self.request.variants.is_empty() => {
                Err("--column: is of the experiment's own columns, which --variant replaces".to_owned())
            }
            Some(column) if known.is_empty() => {
                Err(format!("--column {column}: {} has no columns of its own", self.experiment.name))
            }
            Some(column) => Err(format!("--column: {}", unknown("column", column, &known))),
            None => Ok(()),
        }
    }

    /// What the user asked for, else the experiment's own columns, else the rules of its kernel.
    fn columns(&self) -> Result<Vec<SimColumn>, Refusal> {
        let mistake = |problem: String| Refusal::Mistake(UsageError::new(problem));
        self.check_wanted().map_err(mistake)?;
        let check = |column: &SimColumn| {
            simulated::check_settings(&column.settings, &column.variant.rules)
                .map_err(|problem| mistake(format!("--set {problem}")))
        };
        let columns =
            self.settings.iter().map(|settings| self.columns_with(settings)).collect::<Result<Vec<_>, _>>()?;
        let columns: Vec<_> = columns.into_iter().flatten().collect();
        columns.iter().try_for_each(check)?;
        Ok(columns)
    }

    fn columns_with(&self, set: &Settings) -> Result<Vec<SimColumn>, Refusal> {
        if self.request.variants.is_empty() && !self.experiment.columns.is_empty() {
            let wanted = &self.request.columns;
            let own = self.experiment.columns.iter();
            let own = own.filter(|column| wanted.is_empty() || wanted.contains(&column.kernel)).map(|column| {
                let variant = variant::load(&column.variant).map_err(Refusal::Mistake)?;
                // What the user sets goes before.
                let is_left = |(name, _): &&(String, String)| set.values.iter().all(|(set, _)| set != name);
                let settings = column.settings.iter().filter(is_left).chain(&set.values).cloned().collect();
                let (kernel, group) = (set.of_kernel(&column.kernel), column.tables.clone());
                let (label, machine, params) = (set.label.clone(), column.machine.clone(), column.params.clone());
                Ok(SimColumn { kernel, variant, chosen_for: None, group, label, settings, machine, params })
            });
            own.collect()
        } else {
            let column = |(variant, chosen_for): (Named, Option<String>)| SimColumn {
                kernel: set.of_kernel(&variant.name),
                variant,
                chosen_for,
                group: None,
                label: set.label.clone(),
                settings: set.values.clone(),
                machine: None,
                params: Vec::new(),
            };
            Ok(self.variants()?.into_iter().map(column).collect())
        }
    }

    /// The variants asked for, or that of the experiment's kernel; each with the release that it was chosen for.
    fn variants(&self) -> Result<Vec<(Named, Option<String>)>, Refusal> {
        let nearest =
            |release: &str| Ok((variant::for_release(release).map_err(Refusal::Lacking)?, Some(release.to_owned())));
        let mut variants: Vec<(Named, Option<String>)> = Vec::new();
        for asked in &self.request.variants {
            let found = if asked == variant::HOST {
                nearest(&variant::host_release().map_err(|error| Refusal::Lacking(error.to_string()))?)?
            } else {
                (variant::load(asked).map_err(Refusal::Mistake)?, None)
            };
            // Tables and results tell variants apart by their names.
            if variants.iter().any(|(known, _)| known.name == found.0.name) {
                let message = format!("--variant {asked}: there is another {} in this run already", found.0.name);
                return Err(Refusal::Mistake(UsageError::new(message)));
            }
            variants.push(found);
        }
        if variants.is_empty() {
            variants.push(nearest(&self.experiment.kernel)?);
        }
        Ok(variants)
    }

    fn hosts(&self, skipped: &mut Vec<Skipped>) -> Result<Vec<Session>, Refusal> {
        self.of_host.iter().map(|settings| self.host(settings, skipped)).collect()
    }

    fn host(&self, set: &Settings, skipped: &mut Vec<Skipped>) -> Result<Session, Refusal> {
        let capture = Capture::live().map_err(|error| Refusal::Lacking(error.to_string()))?;
        let snapshot = Snapshot::parse(&capture).map_err(|error| Refusal::Lacking(error.to_string()))?;
        for (name, _) in &set.values {
            if let Some(reason) = linux::balloon::refused_on_host(name) {
                return Err(Refusal::Mistake(UsageError::of_key(format!("--set {name}"), reason)));
            }
            let check = linux::setting::check_writable(name);
            check.map_err(|error| Refusal::Mistake(UsageError::new(format!("--set {error}"))))?;
        }
        let available =
            linux::host::memory_limit().unwrap_or(Bytes(u64::MAX)).min(Bytes::kib(available_kib(&snapshot)));
        let (cap, cap_from) = match self.request.memory {
            Some(cap) if cap > available => {
                let message = format!("--memory {cap}: more than the {} MiB that are available", available.as_mib());
                return Err(Refusal::Mistake(UsageError::new(message)));
            }
            Some(cap) => (cap, "--memory"),
            None => (Bytes(available.0 / 4), "a quarter of the memory that is available"),
        };
        let session = Session {
            machine: import::import(&snapshot, HERE),
            kernel: set.of_kernel(&snapshot.version.text),
            label: set.label.clone(),
            settings: set.values.clone(),
            place: Place::Host,
            cap,
            keys: Vec::new(),
        };
        let cpus = u32::try_from(linux::host::usable_cpus().len()).expect("fewer than 2^32 CPUs");
        self.fill(session, (cpus, cap_from, None), &Vec::new(), skipped)
    }

    fn vms(&mut self, skipped: &mut Vec<Skipped>) -> Result<Vec<Session>, Refusal> {
        let name = self.request.machine.as_deref().unwrap_or(&self.experiment.machine);
        let machine = Machine::load(name, &linux::setting::names()).map_err(Refusal::Mistake)?;
        qemu::find_emulator().map_err(|error| Refusal::Lacking(error.to_string()))?;
        check_emulated(&machine)?;
        let kernels = match self.request.kernels.as_slice() {
            [] => vec![self.experiment.kernel.clone()],
            kernels => kernels.to_vec(),
        };
        let mut sessions: Vec<Session> = Vec::new();
        let mut images: Vec<Session> = Vec::new();
        for name in kernels {
            images.push(self.vm(&name, &machine, &images)?);
        }
        let with = |set: &Settings, image: &Session| Session {
            kernel: set.of_kernel(&image.kernel),
            label: set.label.clone(),
            settings: set.values.clone(),
            ..image.clone()
        };
        for session in self.settings.iter().flat_map(|set| images.iter().map(move |image| with(set, image))) {
            let cpus = u32::try_from(session.machine.cpus().len()).expect("fewer than 2^32 CPUs");
            let cap_from = self.cap_from("three quarters of the guest's memory");
            let session = self.fill(session, (cpus, cap_from, None), &Vec::new(), skipped)?;
            fits::reporting(&session).map_err(|problem| Refusal::Mistake(UsageError::new(problem)))?;
            if session.disk().is_some() {
                disk::find_mke2fs().map_err(Refusal::Lacking)?;
            }
            sessions.push(session);
        }
        Ok(sessions)
    }

    fn vm(&mut self, name: &str, machine: &Machine, others: &[Session]) -> Result<Session, Refusal> {
        let image = self.image(name)?;
        linux::module::check(&image, &machine.modules).map_err(|error| {
            Refusal::Mistake(UsageError::new(format!("machine {}: modules: {error}", machine.name)))
        })?;
        let accelerators = match &self.request.accelerator {
            AcceleratorChoice::InTurn(accelerators) => accelerators.clone(),
            AcceleratorChoice::Auto => vec![(self.probe)(&image)],
        };
        let replayable = matches!(accelerators[..], [Accelerator::Replayable { .. }, ..]);
        let machine = if replayable { machine.with_one_cpu() } else { machine.clone() };
        // Two images may say the same release, or one may be given twice: a number tells them apart.
        let same = others.iter().filter(|session| session.kernel.split(' ').next() == Some(&image.release)).count();
        let kernel = if same == 0 { image.release.clone() } else { format!("{} #{}", image.release, same + 1) };
        let cap = self.cap_of(&machine);
        let frames = self.state() == KERNEL;
        let place = Place::Vm { image, accelerators, frames };
        Ok(Session { machine, kernel, label: None, settings: Vec::new(), place, cap, keys: Vec::new() })
    }

    fn presses(&self) -> bool {
        presses(self.experiment.workload.default_program().name)
    }

    /// Whether the machine is a host, whose guests do the work.
    fn has_guests(&self) -> bool {
        self.experiment.workload.default_program().name == workloads::guests::INFO.name
    }

    fn cap_of(&self, machine: &Machine) -> Bytes {
        cap_of(self.experiment.workload.default_program().name, machine)
    }

    /// What that is, for messages.
    fn cap_from(&self, usual: &'static str) -> &'static str {
        if self.presses() { "memory and swap of the machine" } else { usual }
    }

    /// An image that the user named must be one; the experiment's own may be missing from the cache.
    fn image(&self, name: &str) -> Result<KernelImage, Refusal> {
        kernel_image::resolve(name).map_err(|error| {
            if self.request.kernels.is_empty() {
                Refusal::Lacking(error.to_string())
            } else {
                Refusal::Mistake(UsageError::of_key(format!("--kernel {name}"), error))
            }
        })
    }

    fn fill(
        &self,
        mut session: Session,
        (cpus, cap_from, room): (u32, &str, Option<Bytes>),
        params: &Params,
        skipped: &mut Vec<Skipped>,
    ) -> Result<Session, Refusal> {
        let target = session.target();
        let ground = Ground {
            settings: &session.settings,
            memory: session.memory(),
            key: grid::base_key(self.experiment, target, &session.kernel, &session.machine.name),
            cpus,
            nodes: session.machine.nodes.iter().map(numa_node).collect(),
            cap: session.cap,
            cap_from,
            room,
            seeds: self.request.seeds,
            params,
        };
        let grid = grid::lay(self.experiment, &self.params, &ground).map_err(Refusal::Mistake)?;
        session.keys = grid.keys;
        let skip = |(what, reason)| Skipped { schema: SCHEMA, key: None, target, what, reason };
        skipped.extend(grid.misfits.into_iter().map(skip));
        if let Some(problem) = fits::misfit(&session) {
            return Err(Refusal::Mistake(UsageError::new(problem)));
        }
        fits::lack(&session, memory_available).map_or(Ok(session), |problem| Err(Refusal::Lacking(problem)))
    }
}

/// A recipe that no cell can reach is the user's mistake, and known before anything runs. Where some cells reach it, the others
/// are skipped when they have tried.
fn check_recipe(sessions: &[Session]) -> Result<(), UsageError> {
    let mut tried = BTreeSet::new();
    let mut first = Ok(());
    for seed in sessions.iter().flat_map(|session| &session.keys).map(|key| key.seed) {
        if !tried.insert(seed) {
            continue;
        }
        for session in sessions.iter().filter(|session| session.keys.iter().any(|key| key.seed == seed)) {
            let Place::Sim { start: Start::Recipe(start), variant, .. } = &session.place else { return Ok(()) };
            let machine = simulated::with_settings(session.machine.clone(), &session.settings);
            match state::make(&start.recipe, &machine, variant, seed) {
                Ok(_) => return Ok(()),
                Err(problem) => first = first.and(Err(problem)),
            }
        }
    }
    first
}

/// Where the memory of a real session's twin stands: frames are recorded in guests only.
fn twins_start(real: &Session) -> Start {
    if matches!(real.place, Place::Vm { frames: true, .. }) { Start::Kernel } else { Start::Fresh }
}

/// The simulator on the machine of a real session, with the newest rules not newer than its kernel. What it cannot do is
/// skipped with the reason: all of it, or cases that can be seen not to fit.
fn twin(real: &Session, start: &Start, others: &[Session], skipped: &mut Vec<Skipped>) -> Option<Session> {
    let what = format!("the twin of {} {}", real.target(), real.kernel);
    let skip = |what: String, reason: String| Skipped { schema: SCHEMA, key: None, target: Target::Sim, what, reason };
    let mut twin = match whole_twin(real, start, others) {
        Ok(twin) => twin,
        Err(reason) => {
            skipped.push(skip(what, reason));
            return None;
        }
    };
    let Place::Sim { variant, .. } = &twin.place else { unreachable!("a twin is simulated") };
    if twin.presses() {
        // What means to fill memory does not fit by design.
        return Some(twin);
    }
    // A machine that cannot be laid out says so when it runs.
    if let Ok(room) = simulated::room(&simulated::with_settings(twin.machine.clone(), &twin.settings), &variant.rules) {
        let misfit = |key: &Key| grid::misfit_of(key, room);
        let misfits: BTreeSet<String> = twin.keys.iter().filter_map(misfit).collect();
        twin.keys.retain(|key| misfit(key).is_none());
        skipped.extend(misfits.into_iter().map(|reason| skip(what.clone(), reason)));
    }
    Some(twin)
}

fn whole_twin(real: &Session, start: &Start, others: &[Session]) -> Result<Session, String> {
    let variant = variant::for_release(&real.kernel)?;
    simulated::check_settings(&real.settings, &variant.rules)?;
    let machine_set = simulated::with_settings(real.machine.clone(), &real.settings);
    if *start == Start::Fresh {
        simulated::check_start(&machine_set, &variant.rules)?;
    }
    let kernel = labelled(&variant.name, real.label.as_deref());
    let same = |other: &&Session| {
        let place = (other.target(), &other.kernel, &other.machine.name);
        place == (Target::Sim, &kernel, &real.machine.name)
    };
    if others.iter().any(|other| same(&other)) {
        return Err(format!("{kernel} on {} is there already", real.machine.name));
    }
    let key = |key: &Key| Key {
        target: Target::Sim,
        kernel: kernel.clone(),
        variant: variant.name.clone(),
        state: start.name(),
        ..key.clone()
    };
    let column =
        Column { result: None, target: real.target(), kernel: real.kernel.clone(), machine: real.machine.name.clone() };
    let mut machine = real.machine.clone();
    if real.disk().is_some_and(|disk| disk.medium == disk::Medium::Pmem) {
        machine.storage = Storage::Memory;
    }
    Ok(Session {
        machine,
        kernel: kernel.clone(),
        label: real.label.clone(),
        settings: real.settings.clone(),
        place: Place::Sim {
            variant: variant.clone(),
            chosen_for: Some(real.kernel.clone()),
            twin_of: Some(column),
            start: start.clone(),
            accelerators: match &real.place {
                Place::Vm { accelerators, .. } => accelerators.clone(),
                Place::Host | Place::Sim { .. } => Vec::new(),
            },
        },
        cap: real.cap,
        keys: real.keys.iter().map(key).collect(),
    })
}

/// What QEMU's `pc` machine can be: 255 CPUs (8-bit APIC ids) and 128 nodes (MAX_NODES, include/sysemu/numa.h, 7.2).
fn check_emulated(machine: &Machine) -> Result<(), Refusal> {
    const CPUS_MAX: usize = 255;
    const NODES_MAX: usize = 128;
    let (cpus, nodes) = (machine.cpus().len(), machine.nodes.len());
    if cpus <= CPUS_MAX && nodes <= NODES_MAX {
        return Ok(());
    }
    let message = format!(
        "machine {}: a guest has at most {CPUS_MAX} CPUs and {NODES_MAX} nodes, found {cpus} and {nodes}",
        machine.name
    );
    Err(Refusal::Mistake(UsageError::new(message)))
}

/// Memory of this host that may be taken; no limit where the kernel does not say.
fn memory_available() -> Bytes {
    let found = Capture::live().ok().and_then(|capture| Snapshot::parse(&capture).ok());
    found.map_or(Bytes(u64::MAX), |snapshot| Bytes::kib(available_kib(&snapshot)))
}

/// Free memory in KiB, as the kernel estimates it; kernels before 3.14 do not.
fn available_kib(snapshot: &Snapshot) -> u64 {
    let of = |name: &str| snapshot.meminfo.get(name).copied();
    of("MemAvailable").or_else(|| of("MemFree")).unwrap_or(0)
}
