//! Real kernels' runs, each kept in the cache until something that it depends on is another one.
//!
//! A directory per boot. It counts when it has the file `done` (how many seconds it took) or `failed` (why); anything else is
//! what an interrupted run left, and is run again.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use lab::{
    fidelity::cells,
    provenance::GUEST_HASH,
    source::{self, Kind},
};
use linux::{
    host::monotonic_ns,
    kernel_image::{self, KernelImage},
    qemu::Accelerator,
};

use super::{Options, last_words};
use crate::pool::Clock;

const DONE: &str = "done";
const FAILED: &str = "failed";
/// Seconds that one cell may take in a guest: of the fixed list, and of a draw, whose cells nobody has timed.
const TIMEOUT_S: &str = "300";
const DRAWN_TIMEOUT_S: &str = "900";

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its result is in this directory.
    Done(PathBuf),
    /// There is none.
    Failed(String),
}

/// All guests.
pub(super) struct Guests<'a> {
    program: &'a Path,
    /// By the names that the list calls them; or why there is none.
    kernels: BTreeMap<String, Result<KernelImage, String>>,
    cache: PathBuf,
    options: &'a Options,
}

impl<'a> Guests<'a> {
    pub(super) fn new(program: &'a Path, runs: &[&cells::Run], options: &'a Options) -> Result<Self> {
        let image = |name: &String| {
            let image = kernel_image::resolve(name)
                .map_err(|error| format!("kernel {name}: {error}; `cargo xtask kernel {name}` fetches one"));
            (name.clone(), image)
        };
        let kernels: BTreeMap<_, _> = runs.iter().map(|run| image(&run.guest.kernel)).collect();
        if let Some(Err(reason)) = kernels.values().find(|_| kernels.values().all(Result::is_err)) {
            bail!("{reason}");
        }
        let cache = kernel_image::cache_dir()?.join("fidelity");
        fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        Ok(Self { program, kernels, cache, options })
    }

    /// The kernel of a run's guests; or why there is none.
    pub(super) fn image(&self, run: &cells::Run) -> Result<&KernelImage, &str> {
        self.kernels[&run.guest.kernel].as_ref().map_err(String::as_str)
    }

    /// What the kernels call themselves.
    pub(super) fn releases(&self) -> String {
        let releases: Vec<_> = self.kernels.values().flatten().map(|image| image.release.as_str()).collect();
        releases.join(" and ")
    }

    /// Whether it need not run.
    pub(super) fn has(&self, run: &cells::Run, seed: u64) -> bool {
        self.options.cached || !self.options.refresh && self.kept(run, seed).is_some()
    }

    /// From the cache, else from a guest that runs now.
    pub(super) fn outcome(&self, run: &cells::Run, seed: u64, clock: &Clock) -> Outcome {
        let kept = if self.options.refresh { None } else { self.kept(run, seed) };
        match kept {
            Some(outcome) => outcome,
            None if self.options.cached => Outcome::Failed("not in the cache".to_owned()),
            None => {
                let outcome = self.run(run, seed).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
                clock.done(&format!("{}, seed {seed}", run.label()));
                outcome
            }
        }
    }

    /// Time that the boots took together, in seconds.
    pub(super) fn seconds(&self, boots: &[(&cells::Run, u64)]) -> f64 {
        let of = |(run, seed): &(&cells::Run, u64)| {
            let Outcome::Done(directory) = self.kept(run, *seed)? else { return None };
            fs::read_to_string(directory.join(DONE)).ok()?.trim().parse::<f64>().ok()
        };
        boots.iter().filter_map(of).sum()
    }

    fn kept(&self, run: &cells::Run, seed: u64) -> Option<Outcome> {
        let directory = self.directory(run, seed);
        let earlier = if self.options.stale { self.earlier(run, seed) } else { Vec::new() };
        std::iter::once(directory).chain(earlier).find_map(|directory| {
            match fs::read_to_string(directory.join(FAILED)) {
                Ok(reason) => Some(Outcome::Failed(reason)),
                Err(_) => directory.join(DONE).exists().then_some(Outcome::Done(directory)),
            }
        })
    }

    /// The same of programs that worked otherwise inside guests, or not; in the order of their hashes.
    fn earlier(&self, run: &cells::Run, seed: u64) -> Vec<PathBuf> {
        let name = self.name(run, seed);
        let entries = fs::read_dir(&self.cache).into_iter().flatten().flatten().map(|entry| entry.path());
        let same = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
        let mut earlier: Vec<_> = entries.filter(same).collect();
        earlier.sort();
        earlier
    }

    /// Whether some results are of another program than this one.
    pub(super) fn note(&self, boots: &[(&cells::Run, u64)]) -> Option<String> {
        let stale = |(run, seed): &&(&cells::Run, u64)| {
            let kept = self.kept(run, *seed);
            matches!(kept, Some(Outcome::Done(directory)) if directory != self.directory(run, *seed))
        };
        let stale = boots.iter().filter(stale).count();
        let what = "boots are from before a change of what works inside guests";
        (self.options.stale && stale > 0).then(|| format!("{stale} of {} {what}", boots.len()))
    }

    /// Where a result is: its name, and the hash of the program as far as it works in guests.
    fn directory(&self, run: &cells::Run, seed: u64) -> PathBuf {
        self.cache.join(self.name(run, seed) + GUEST_HASH)
    }

    /// All else that a result depends on: the kernel, the files of machine and experiment, what is asked for, and how QEMU makes
    /// it replayable where it does. So not even `--stale` finds guests that were kept when QEMU let in what its host was doing.
    fn name(&self, run: &cells::Run, seed: u64) -> String {
        let text = |kind, name: &str| {
            source::lookup(kind, name).map_or_else(|_| name.to_owned(), |file| file.text().to_owned())
        };
        let parts = [
            self.image(run).map(|image| image.release.clone()).unwrap_or_default(),
            text(Kind::Machine, &run.guest.machine),
            text(Kind::Experiment, &run.experiment),
            arguments(run, seed).join("\n"),
            run.guest.replayable.as_ref().map(|_| replayable()).unwrap_or_default(),
        ];
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        format!("{}-{}-{seed}-{}-", run.experiment, run.guest.name, &hasher.finalize().to_hex()[..16])
    }

    fn run(&self, run: &cells::Run, seed: u64) -> Result<Outcome> {
        let directory = self.directory(run, seed);
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
        }
        let start = monotonic_ns();
        let timeout = if self.options.draw.is_some() { DRAWN_TIMEOUT_S } else { TIMEOUT_S };
        let mut command = Command::new("nice");
        command.args(["-n", "5"]).arg(self.program).arg("run").args(arguments(run, seed));
        command.args(["--kernel", &run.guest.kernel, "--timeout", timeout]).arg("-o").arg(&directory);
        let output = command.output().context("pagelab")?;
        let (name, text) = match output.status.code() {
            Some(0) => (DONE, ((monotonic_ns() - start) as f64 / 1e9).to_string()),
            // A cell failed: the kernel ran out of memory, or of time.
            Some(1) => (FAILED, last_words(&output.stderr)),
            // The user's wish, or something that this host lacks now.
            _ => return Ok(Outcome::Failed(last_words(&output.stderr))),
        };
        let file = directory.join(name);
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(&file, text))
            .with_context(|| file.display().to_string())?;
        self.kept(run, seed).context("it was written just now")
    }
}

/// How QEMU runs all replayable guests. The time that an instruction takes is among the arguments.
fn replayable() -> String {
    Accelerator::Replayable { shift: 0 }.words().join("\n")
}

/// What `pagelab run` is told.
fn arguments(run: &cells::Run, seed: u64) -> Vec<String> {
    let guest = &run.guest;
    let mut arguments = vec![run.experiment.clone(), "--target".to_owned(), "vm".to_owned()];
    arguments.extend(["--state", "kernel", "--machine", &guest.machine].map(str::to_owned));
    arguments.extend(["--seeds".to_owned(), format!("{seed}-{seed}")]);
    match &guest.replayable {
        Some(shifts) => arguments.extend(["--replayable".to_owned(), shifts.clone()]),
        None => arguments.extend(["--accel", "tcg"].map(str::to_owned)),
    }
    arguments.extend(run.sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    arguments
}
