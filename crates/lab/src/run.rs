//! Carrying out a plan: cell by cell into a result directory, on this kernel and in guests.

mod again;
mod at_once;
mod boot;
mod by_hand;
mod directory;
mod files;
mod held;
mod here;
mod outside;
mod planned;
mod states;
mod stopped;
mod system;
pub mod travel;
mod watched;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use linux::{
    file::Ground,
    guard::Guard,
    guest::GuestRecord,
    kernel_image::KernelImage,
    procfs::{Capture, Snapshot},
    qemu::{self, Accelerator, Guest, GuestError},
    tracing::Watch,
    worker::{self, WorkerError},
};
use report::{Column, Key, Record, Store, brief};
use rules::variant::Named;
use units::Bytes;

pub use self::{again::Repeated, files::IDENTITY_FILE};
pub(crate) use self::{
    again::{lines_again, order_again, repeat},
    at_once::{News, in_order},
    boot::{BOOT_TIMEOUT_S, planned_nodes},
    directory::{directory_of_case, discard},
    files::{SIMULATED_MACHINE, state_path},
    held::read,
    here::{choose_accelerator, put_back, scratch},
};
use self::{
    boot::{boots, guest_plan, modules},
    directory::{Opened, finish, fresh_directory, open, with_seeds_that_are_there},
    files::CELL,
    held::{column_of_system, key_of},
    outside::Outside,
    planned::{expected, planned},
    stopped::Stopped,
    system::{capture_json, system},
};
use crate::{
    import::import,
    machine::Machine,
    order::{CellOrder, Order, Simulated},
    plan::{Place, Plan, Request, Session, Start},
    progress::{Progress, RunError},
    simulated::with_settings,
    suggest,
    usage::UsageError,
    variant::Recorded,
};

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// Its result directory.
    pub directory: PathBuf,
    /// Cells that have a result.
    pub cells: usize,
    /// Cells that gave no result, with the reason.
    pub failures: Vec<String>,
}

/// Runs what the user asked for.
pub fn run(request: &Request, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Finished, RunError> {
    put_back(progress);
    let request = &with_seeds_that_are_there(request)?;
    let (plan, notes) = planned(request, stop, progress)?;
    let directory = request.out.clone().map_or_else(|| fresh_directory(&plan), Ok)?;
    let Opened { store, done, systems, is_finished, note } = open(&directory, &plan)?;
    planned::tell(&plan, &notes, (!request.targets.is_empty(), &done), progress);
    if let Some(note) = note {
        progress.note(&note);
    }
    if !done.is_empty() {
        progress.note(&format!("resuming {}: {} of {} cells are there", directory.display(), done.len(), plan.cells()));
    }
    if let Some(expected) = expected(request, &plan, done.len()) {
        progress.note(&expected);
    }
    let finished = done.len();
    let (failures, unable) = (Vec::new(), Vec::new());
    let mut runner =
        Runner { plan: &plan, store, systems, done, measured: finished, finished, failures, unable, stop, progress };
    let outcome = plan.sessions.iter().try_for_each(|session| runner.session(session));
    let Runner { mut store, mut failures, done, measured, unable, .. } = runner;
    if outcome.is_ok() && measured == 0 && failures.is_empty() {
        discard(&directory);
        return Err(RunError::Usage(UsageError::new(format!("nothing can run here: {}", unable.join("; ")))));
    }
    // What a refused run has so far is no result: it can neither go on nor be shown as what was asked for.
    let is_refused = finished == 0 && matches!(outcome, Err(Stopped::Refused(_)));
    if is_refused || (outcome.is_err() && done.is_empty()) {
        discard(&directory);
    }
    if outcome.is_ok() && failures.is_empty() && !is_finished && done.len() == plan.cells() {
        failures = finish(&directory, &mut store).map_err(|error| RunError::Failed(error.to_string()))?;
    }
    match outcome {
        Ok(()) => Ok(Finished { directory, cells: measured, failures }),
        Err(Stopped::Interrupted) if done.is_empty() => Err(RunError::InterruptedEarly),
        Err(Stopped::Interrupted) => {
            let command = suggest::Again::of(&plan.identity()).map(|again| again.into(&directory)).unwrap_or_default();
            Err(RunError::Interrupted { directory, command })
        }
        Err(Stopped::Mistake(error) | Stopped::Refused(error)) => Err(RunError::Usage(error)),
        Err(Stopped::Failed(message)) => Err(RunError::Failed(message)),
    }
}

struct Runner<'a> {
    plan: &'a Plan,
    store: Store,
    /// Columns whose system is in the store.
    systems: BTreeSet<Column>,
    done: BTreeSet<Key>,
    finished: usize,
    /// Cells that have a result.
    measured: usize,
    failures: Vec<String>,
    /// Why others have none: their targets lack something.
    unable: Vec<String>,
    stop: &'a AtomicBool,
    progress: &'a mut dyn Progress,
}

impl Runner<'_> {
    fn session(&mut self, session: &Session) -> Result<(), Stopped> {
        let missing: Vec<_> = session.keys.iter().filter(|key| !self.done.contains(key)).cloned().collect();
        // A line about a system that was lost is written again, though all of its cells are there. A guest's comes with a boot.
        let is_described = matches!(session.place, Place::Vm { .. }) || self.systems.contains(&session.column());
        if missing.is_empty() && (is_described || session.keys.is_empty()) {
            return Ok(());
        }
        match &session.place {
            Place::Host => self.host(session, &missing),
            Place::Sim { variant, twin_of, start, .. } => {
                let missing = states::available(&self.directory(), start, twin_of.as_ref(), missing);
                self.sim(session, variant, (twin_of.as_ref(), start), &missing)
            }
            Place::Vm { image, accelerators, .. } => {
                let replayable = matches!(accelerators[..], [Accelerator::Replayable { .. }, ..]);
                for keys in boots(session, replayable, &self.done) {
                    let accelerator = session.place.accelerator(keys[0].seed).expect("a guest has one");
                    self.vm(session, image, accelerator, &keys)?;
                }
                Ok(())
            }
        }
    }

    fn step(&mut self, session: &Session, doing: &str) {
        let doing = format!("{} {}: {doing}", session.target(), session.kernel);
        self.progress.step(self.finished, self.plan.cells(), &doing);
    }

    /// Stores a cell and counts it. One that is there already (a replayed boot repeats all of its cells) stays as it is.
    fn keep(&mut self, record: &Record) -> Result<(), Stopped> {
        if let Some(key) = key_of(record) {
            if !self.done.insert(key.clone()) {
                return Ok(());
            }
            self.finished += 1;
        }
        match record {
            Record::Cell(_) => self.measured += 1,
            Record::Skipped(skipped) => {
                self.unable.push(format!("{} {}: {}", skipped.target, skipped.what, skipped.reason));
            }
            Record::System(_) => {}
        }
        self.store.append(record)?;
        Ok(())
    }

    fn host(&mut self, session: &Session, missing: &[Key]) -> Result<(), Stopped> {
        let mut guard = None;
        if !session.settings.is_empty() {
            let mut settings =
                Guard::start().map_err(|error| Stopped::Failed(format!("the guard process: {error}")))?;
            for (name, value) in linux::setting::in_order(&session.settings) {
                settings.set(&name, &value)?;
            }
            guard = Some(settings);
        }
        // After the settings: the zones that are shown are those that the cells ran on.
        let capture = Capture::live().map_err(|error| Stopped::Failed(error.to_string()))?;
        self.keep(&Record::System(system(session, None, capture_json([("live", &capture)]))))?;
        let files = session.files();
        let place = (files > Bytes(0)).then(scratch).transpose();
        let (mut files_guard, directory) =
            place.map_err(|error| Stopped::Failed(format!("scratch directory: {error}")))?.unzip();
        // Where nobody mixes memory, nobody needs to count it.
        let watch = files_guard.as_mut().map(Watch::start).unwrap_or_default();
        let ground = Ground {
            directory: directory.map(|directory| directory.join(CELL)),
            room: files,
            memory: Some(session.memory()),
            drops_caches: self.plan.drop_caches,
        };
        let order = |key: &Key| CellOrder {
            key: key.clone(),
            cap: session.cap,
            ground: ground.clone(),
            watch: watch.clone(),
            idle_window: true,
            simulated: None,
            trace: None,
            sample: self.plan.sample,
            map: None,
            footprint: None,
        };
        self.workers(session, missing, order)?;
        [files_guard, guard].into_iter().flatten().try_for_each(Guard::finish).map_err(Stopped::Failed)
    }

    /// Each cell in a worker of its own, on the machine that the real session before it found, or on that of its file.
    fn sim(
        &mut self,
        session: &Session,
        variant: &Named,
        (twin_of, start): (Option<&Column>, &Start),
        missing: &[Key],
    ) -> Result<(), Stopped> {
        let machine = match twin_of {
            // A kernel does not say what operations take; the file of its machine may.
            Some(real) => self.found(real)?.map(|found| found.as_fast_as(&session.machine)),
            None => Some(session.machine.clone()),
        };
        let Some(machine) = machine else {
            // The real one failed, and has said why.
            return Ok(());
        };
        let machine = with_settings(machine, &session.settings);
        let record = sim_system(session, &machine);
        // A run that goes on finds a real machine as it is now, and the same simulated one.
        if column_of_system(&record).is_some_and(|column| self.systems.insert(column)) {
            self.keep(&record)?;
        }
        let (plan, directory) = (self.plan, self.directory());
        let order = |key: &Key| sim_order((plan, session), (variant, start, twin_of), &machine, &directory, key);
        self.workers(session, missing, order)
    }

    /// Each cell in a worker of its own on this host. One that gives no result is a failure, and the others go on.
    fn workers(
        &mut self,
        session: &Session,
        keys: &[Key],
        order: impl Fn(&Key) -> CellOrder + Sync,
    ) -> Result<(), Stopped> {
        // Cells that are measured on this host would disturb each other; simulated ones have a time of their own.
        let at_once = match session.place {
            Place::Sim { .. } => self.plan.workers,
            Place::Host | Place::Vm { .. } => 1,
        };
        let (timeout_s, stop) = (self.plan.timeout_s, self.stop);
        let work = |key: &Key| {
            let order = serde_json::to_vec(&Order::Cell(order(key))).expect("an order serialises");
            worker::run(&order, Some(timeout_s), stop)
        };
        in_order(keys, at_once, work, |key, news| match news {
            News::Began => {
                self.step(session, &key.case);
                Ok(())
            }
            News::Done(result) => self.worked(session, key, result),
        })
    }

    /// What a worker has left.
    fn worked(&mut self, session: &Session, key: &Key, result: Result<String, WorkerError>) -> Result<(), Stopped> {
        // There is one host, but there may be several simulated machines.
        let who = match session.place {
            Place::Sim { .. } => format!("sim {} on {}", key.case, session.machine.name),
            Place::Host | Place::Vm { .. } => format!("{} {}", session.target(), key.case),
        };
        match result {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(record) => self.keep(&record)?,
                Err(error) => self.failures.push(format!("{who}: unreadable result: {}", brief(error))),
            },
            Err(WorkerError::Interrupted) => return Err(Stopped::Interrupted),
            Err(WorkerError::Refused(reason)) => {
                return Err(Stopped::Refused(UsageError::new(format!("{who}: {reason}"))));
            }
            Err(error) => self.failures.push(format!("{who}: {error}")),
        }
        Ok(())
    }

    /// The result directory.
    fn directory(&self) -> PathBuf {
        self.store.path().parent().unwrap_or(Path::new(".")).to_owned()
    }

    /// The machine of a twin: as its real kernel said it is, in its last capture.
    fn found(&self, real: &Column) -> Result<Option<Machine>, Stopped> {
        let directory = &self.directory();
        let lines = Store::read(directory)?.whole;
        let captures = lines.iter().rev().find_map(|line| match &line.record {
            Record::System(system)
                if (system.target, &system.kernel, &system.machine) == (real.target, &real.kernel, &real.machine) =>
            {
                Some(&system.captures)
            }
            _ => None,
        });
        let Some(files) = captures.and_then(|captures| captures.get("recomputed").or_else(|| captures.get("live")))
        else {
            return Ok(None);
        };
        let capture: Capture = serde_json::from_value(files.clone()).map_err(|error| Stopped::Failed(brief(error)))?;
        let snapshot = Snapshot::parse(&capture).map_err(|error| Stopped::Failed(error.to_string()))?;
        Ok(Some(import(&snapshot, &real.machine)))
    }

    /// One boot: these cells, one after the other.
    fn vm(
        &mut self,
        session: &Session,
        image: &KernelImage,
        accelerator: Accelerator,
        keys: &[Key],
    ) -> Result<(), Stopped> {
        let plan = guest_plan(session, keys, self.plan.sample).map_err(Stopped::Failed)?;
        let modules = modules(session, image, &plan).map_err(|error| Stopped::Failed(error.to_string()))?;
        let outside = Outside::of(session);
        let guest = Guest {
            kernel: image,
            accelerator,
            distances: session.machine.nodes.iter().map(|node| node.distance.clone()).collect(),
            modules: &modules,
            plan: &plan,
            footprint: outside.seen(),
            operator: outside.operator(),
            boot_timeout_s: BOOT_TIMEOUT_S.min(self.plan.timeout_s),
            job_timeout_s: self.plan.timeout_s,
        };
        let (guard, scratch) = scratch().map_err(|error| Stopped::Failed(format!("scratch directory: {error}")))?;
        self.step(session, &format!("booting on {} ({})", session.machine.name, accelerator.name()));
        let failures = self.failures.len();
        let mut captures = Vec::new();
        let mut broken = Ok(());
        let stop = self.stop;
        let boot = qemu::boot(&guest, &scratch, stop, |record| match record {
            GuestRecord::Capture { phase, files } => captures.push((phase, files)),
            GuestRecord::FirstOperation => self.step(session, &keys[0].case),
            GuestRecord::Frames { index, recorded } => {
                let kept = states::keep(&self.directory(), &keys[index.min(keys.len() - 1)], &captures, recorded);
                broken = std::mem::replace(&mut broken, Ok(())).and(kept.map_err(Stopped::Failed));
            }
            GuestRecord::Job { index, outcome } => {
                let kept = self.guest_cell(session, keys, (index, outcome), &outside);
                broken = std::mem::replace(&mut broken, Ok(())).and(kept);
            }
            GuestRecord::Clock { index, at_ns } => {
                let begun = outside.begins((index, at_ns), keys, &captures);
                broken = std::mem::replace(&mut broken, Ok(())).and(begun);
            }
            GuestRecord::Exit { .. } => {}
        });
        guard.finish().map_err(Stopped::Failed)?;
        broken?;
        let failed = self.failures.len() > failures;
        if !captures.is_empty() {
            // Also of a guest that died later: its finished cells are of use only with what it was.
            let files = capture_json(captures.iter().map(|(phase, files)| (phase.as_str(), files)));
            let system = system(session, Some((accelerator, boot.as_ref().ok())), files);
            self.store.append(&Record::System(system))?;
        }
        match boot {
            Ok(boot) => {
                if let Some(failure) = self.failures.last_mut().filter(|_| failed) {
                    *failure += &format!("; the guest's last lines:\n{}", boot.tail);
                }
                Ok(())
            }
            Err(GuestError::Interrupted) => Err(Stopped::Interrupted),
            Err(GuestError::Refused(problem)) => Err(Stopped::Mistake(UsageError::new(format!(
                "vm {} on {}: {problem}",
                session.kernel, session.machine.name
            )))),
            Err(error @ (GuestError::Ended { .. } | GuestError::Silent { .. }))
                if captures.is_empty() && !image.checksum_matches() =>
            {
                let path = image.path.display();
                Err(Stopped::Mistake(UsageError::new(format!(
                    "{path} does not boot, and its checksum does not match: is it damaged? {error}"
                ))))
            }
            Err(error) => {
                self.failures.push(format!("vm {} on {}: {error}", session.kernel, session.machine.name));
                Ok(())
            }
        }
    }

    fn guest_cell(
        &mut self,
        session: &Session,
        keys: &[Key],
        (index, outcome): (usize, Result<serde_json::Value, String>),
        outside: &Outside,
    ) -> Result<(), Stopped> {
        let case = keys.get(index).map_or("?", |key| key.case.as_str());
        match outcome.and_then(|line| serde_json::from_value(line).map_err(brief)) {
            Ok(mut record) => {
                outside.fill(index, &mut record);
                self.keep(&record)?;
            }
            Err(problem) => self.failures.push(format!("vm {} {case}: {problem}", session.kernel)),
        }
        if let Some(next) = keys.get(index + 1) {
            self.step(session, &next.case);
        }
        Ok(())
    }
}

/// The simulated machine, whole: a twin's is nowhere else, as it was found during this run.
fn sim_system(session: &Session, machine: &Machine) -> Record {
    let machine = session.place.as_fast_as_its_guest(machine.clone(), 1).to_toml();
    Record::System(system(session, None, serde_json::json!({ SIMULATED_MACHINE: machine })))
}

/// The order of a simulated cell, on a machine with all of its settings.
pub(crate) fn sim_order(
    (plan, session): (&Plan, &Session),
    (variant, start, twin_of): (&Named, &Start, Option<&Column>),
    machine: &Machine,
    directory: &Path,
    key: &Key,
) -> CellOrder {
    let simulated = Simulated {
        machine: session.place.as_fast_as_its_guest(machine.clone(), key.seed).to_toml(),
        variant: Recorded::of(variant),
        state: states::file(directory, start, twin_of, key),
        prefix: states::prefix(start, !session.settings.is_empty(), key, &plan.asked),
    };
    CellOrder {
        key: key.clone(),
        // Memory that is mapped and not there costs a simulated machine nothing.
        cap: session.cap.max(crate::workload::planned(key).mapped(session.memory())),
        ground: Ground::default(),
        watch: Watch::default(),
        idle_window: false,
        simulated: Some(simulated),
        trace: plan.trace.then(|| directory.join(files::trace_name(key))),
        sample: plan.sample,
        map: plan.map.then(|| directory.join(report::map::FOLDER)),
        footprint: session.footprint(),
    }
}
