//! Settings for a machine at work: from copies of its /proc to at most three settings, or to none.
//!
//! | file | has |
//! |---|---|
//! | `files.rs` | two captures of /proc/vmstat, the time between them, the machine |
//! | `demand.rs` | how much memory is in use, and how much is taken each second |
//! | `profile.rs` | services of that demand, which differ in how it comes |
//! | `replay.rs` | counters of a profile beside the machine's |
//! | `choices.rs` | settings that may help, and their values |
//! | `judge.rs` | goals, and what a setting does to them |
//! | `text.rs` | the answer as text |
//!
//! Settings are found with some seeds and confirmed with others, so that the best of many is not merely the luckiest.

mod choices;
mod demand;
mod files;
mod judge;
mod profile;
mod replay;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use linux::qemu::Accelerator;
use report::{Cell, write_whole};
use serde::Serialize;

use self::{
    choices::{Choice, choices},
    demand::Demand,
    files::Observed,
    judge::{Change, Finding},
    profile::{Profile, Shape},
    replay::Replay,
};
pub use self::{judge::Goal, text::text};
use crate::{
    evidence,
    plan::{Plan, Request, Seeds},
    progress::{Progress, RunError},
    run, show, sweep,
    usage::UsageError,
};

/// Less of a machine's counters within their class, in per cent, and its profile says too little of it.
pub const BAR: f64 = 50.0;
/// Seeds with which settings are found, and those with which they are confirmed.
const FOUND: (u64, u64) = (1, 3);
const CONFIRMED: (u64, u64) = (101, 108);
/// Settings that are confirmed, and those that are named.
const CONFIRMED_MAX: usize = 5;
const NAMED_MAX: usize = 3;
/// Threads of a process of a profile, at most.
const THREADS_MAX: usize = 4;
/// A profile this many points behind the nearest may be the machine's as well.
const RIVAL_POINTS: f64 = 15.0;
/// The kernel whose rules are taken where no file has a release.
const KERNEL: &str = "6.1";

/// Advice that a user asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// A folder with copies of /proc.
    pub from: PathBuf,
    /// The quantity that is to get better.
    pub goal: Goal,
    /// A machine file, where the folder has no zoneinfo.
    pub machine: Option<String>,
    /// Seconds between the two captures, where the folder has no uptime.
    pub seconds: Option<f64>,
    /// Simulated cells at a time.
    pub workers: Option<usize>,
    /// Where profiles, the machine and all results go.
    pub out: PathBuf,
}

/// A profile that was tried.
#[derive(Clone, Debug, Serialize)]
struct Tried {
    shape: Shape,
    replay: Replay,
}

/// A setting that was tried, with the gain it was found with, in per cent.
#[derive(Clone, Debug, Serialize)]
struct Screened {
    choice: Choice,
    gain: Option<f64>,
}

/// A setting that was confirmed with other seeds.
#[derive(Clone, Debug, Serialize)]
struct Confirmed {
    choice: Choice,
    finding: Finding,
    /// Changes of the goal in other profiles that may be the machine's, where it has to help too.
    rivals: Vec<(String, Change)>,
}

/// Advice for a machine at work.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    from: PathBuf,
    out: PathBuf,
    goal: Goal,
    release: String,
    memory: u64,
    cpus: usize,
    seconds: f64,
    demand: Demand,
    profile: Shape,
    replay: Replay,
    tried: Vec<Tried>,
    screened: Vec<Screened>,
    confirmed: Vec<Confirmed>,
    named: Vec<Choice>,
    not_modelled: Vec<String>,
}

impl Advice {
    /// Is the profile like the machine, so that there is advice?
    pub fn is_given(&self) -> bool {
        self.replay.share >= BAR
    }

    /// Of each other profile that may be the machine's as well, the nearest.
    fn rivals(&self) -> Vec<Shape> {
        let least = BAR.max(self.replay.share - RIVAL_POINTS);
        let others = Profile::ALL.into_iter().filter(|profile| *profile != self.profile.profile);
        let of = |profile| self.tried.iter().filter(move |tried| tried.shape.profile == profile);
        others
            .filter_map(|profile| nearest(of(profile)))
            .filter(|tried| tried.replay.share >= least)
            .map(|tried| tried.shape)
            .collect()
    }

    /// Settings that help, the best first, each with its best value.
    fn helping(&self) -> Vec<&Confirmed> {
        let helps = self.confirmed.iter().filter(|confirmed| confirmed.finding.helps);
        let mut best: Vec<&Confirmed> = Vec::new();
        let mut all: Vec<&Confirmed> = helps.collect();
        let gain = |confirmed: &Confirmed| judge::gain(self.goal, confirmed.finding.change);
        all.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        for confirmed in all {
            if best.iter().all(|better| better.choice.name != confirmed.choice.name) {
                best.push(confirmed);
            }
        }
        best.truncate(NAMED_MAX);
        best
    }
}

/// Finds the settings that help a machine at work.
///
/// # Errors
/// Files that are not enough, a machine that is not modelled, no profile that the goal can be read of, or an interrupted run.
pub fn advise(wanted: &Wanted, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Advice, RunError> {
    let observed = files::read(&wanted.from, wanted.machine.as_deref(), wanted.seconds)?;
    let demand = Demand::of(&observed);
    let bench = Bench::new(wanted, &observed, &demand)?;
    let tried = bench.fit(&observed, stop, progress)?;
    let best = nearest(tried.iter()).expect("one profile is of any demand").clone();
    let mut advice = Advice {
        from: wanted.from.clone(),
        out: wanted.out.clone(),
        goal: wanted.goal,
        release: observed.machine.kernel.clone().unwrap_or_else(|| KERNEL.to_owned()),
        memory: observed.machine.memory().0,
        cpus: observed.machine.cpus().len(),
        seconds: observed.seconds,
        profile: best.shape,
        replay: best.replay,
        tried,
        screened: Vec::new(),
        confirmed: Vec::new(),
        named: Vec::new(),
        not_modelled: observed.not_modelled.clone(),
        demand: demand.clone(),
    };
    if advice.is_given() {
        bench.try_settings(&mut advice, &observed, stop, progress)?;
    }
    advice.named = advice.helping().into_iter().map(|confirmed| confirmed.choice.clone()).collect();
    let json = serde_json::to_vec_pretty(&advice).expect("fields serialise");
    write_whole(&wanted.out.join("advice.json"), &json).map_err(UsageError::from)?;
    Ok(advice)
}

/// The profile with most counters within their class, and of these the least distance; none of none.
fn nearest<'a>(tried: impl Iterator<Item = &'a Tried>) -> Option<&'a Tried> {
    let order = |a: &&Tried, b: &&Tried| {
        a.replay.share.total_cmp(&b.replay.share).then(b.replay.distance.total_cmp(&a.replay.distance))
    };
    tried.max_by(order)
}

/// Advice as JSON.
pub fn json(advice: &Advice) -> String {
    serde_json::to_string_pretty(advice).expect("fields serialise") + "\n"
}

/// The folder in which profiles of a machine run.
struct Bench<'a> {
    wanted: &'a Wanted,
    machine: PathBuf,
    release: (u32, u32),
    kernel: String,
    threads: usize,
    demand: &'a Demand,
}

impl<'a> Bench<'a> {
    /// Writes the machine.
    fn new(wanted: &'a Wanted, observed: &Observed, demand: &'a Demand) -> Result<Self, UsageError> {
        let out = &wanted.out;
        fs::create_dir_all(out).map_err(|error| UsageError::in_file(out.display(), error))?;
        let release = files::release(&observed.machine);
        let kernel = release.map_or_else(|| KERNEL.to_owned(), |(major, minor)| format!("{major}.{minor}"));
        let machine = out.join("machine.toml");
        write_whole(&machine, observed.machine.to_toml().as_bytes()).map_err(UsageError::from)?;
        let threads = observed.machine.cpus().len().clamp(1, THREADS_MAX);
        Ok(Self { wanted, machine, release: release.unwrap_or((6, 1)), kernel, threads, demand })
    }

    /// Runs each profile with one seed beside the machine's counters, and then the nearest with what counters do not tell.
    fn fit(&self, observed: &Observed, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Vec<Tried>, RunError> {
        let of_demand = Profile::ALL.into_iter().filter(|profile| profile.is_of(self.demand));
        let mut tried = Vec::new();
        for shape in of_demand.map(Shape::of) {
            tried.push(self.beside(observed, shape, (stop, progress))?);
        }
        // A profile may be near in most counters and just miss their classes: it is worth another look too.
        let least = tried.iter().min_by(|a, b| a.replay.distance.total_cmp(&b.replay.distance));
        let looked_at: Vec<Shape> = nearest(tried.iter()).into_iter().chain(least).map(|tried| tried.shape).collect();
        for shape in looked_at.iter().flat_map(|shape| shape.others()) {
            if tried.iter().all(|tried| tried.shape != shape) {
                tried.push(self.beside(observed, shape, (stop, &mut *progress))?);
            }
        }
        Ok(tried)
    }

    /// Writes a profile, and runs it with one seed beside the machine's counters.
    fn beside(
        &self,
        observed: &Observed,
        shape: Shape,
        (stop, progress): (&AtomicBool, &mut dyn Progress),
    ) -> Result<Tried, RunError> {
        let file = self.wanted.out.join(format!("{}.toml", shape.name()));
        let text = shape.to_toml(self.demand, &self.kernel, self.threads);
        write_whole(&file, text.as_bytes()).map_err(UsageError::from)?;
        let cells = self.run(shape, &[], (1, 1), &format!("fit-{}", shape.name()), (stop, progress))?;
        Ok(Tried { shape, replay: replay::replay(observed, &cells) })
    }

    /// Finds settings with some seeds, and confirms the best of them with others.
    fn try_settings(
        &self,
        advice: &mut Advice,
        observed: &Observed,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<(), RunError> {
        let (profile, goal) = (advice.profile, advice.goal);
        let taking = profile.profile.taking(self.demand);
        let now = self.now(profile)?;
        let all = choices(self.release, observed.machine.nodes.len(), self.demand, now);
        let without = self.run(profile, &[], FOUND, "found", (stop, progress))?;
        if without.iter().all(|cell| goal.value(cell, taking).is_none()) {
            return Err(UsageError::of_key(
                "--goal",
                format!("the counters tell of nothing whose quantity this is: {}", goal.about()),
            )
            .into());
        }
        let found = self.tried(profile, &all, (FOUND, "found"), (stop, progress))?;
        let gains =
            found.iter().map(|cells| judge::change(goal, taking, &without, cells).map(|of| judge::gain(goal, of)));
        let gains: Vec<Option<f64>> = gains.collect();
        advice.screened =
            all.iter().zip(&gains).map(|(choice, gain)| Screened { choice: choice.clone(), gain: *gain }).collect();
        let mut best: Vec<&Screened> =
            advice.screened.iter().filter(|of| of.gain.is_some_and(|gain| gain >= judge::MATERIAL)).collect();
        best.sort_by(|a, b| b.gain.unwrap_or(0.0).total_cmp(&a.gain.unwrap_or(0.0)));
        best.truncate(CONFIRMED_MAX);
        let best: Vec<Choice> = best.into_iter().map(|of| of.choice.clone()).collect();
        if best.is_empty() {
            return Ok(());
        }
        let without = self.run(profile, &[], CONFIRMED, "confirmed", (stop, progress))?;
        let with = self.tried(profile, &best, (CONFIRMED, "confirmed"), (stop, progress))?;
        let judged = best.into_iter().zip(with);
        let judged = judged.filter_map(|(choice, cells)| {
            let finding = judge::finding(goal, taking, &without, &cells)?;
            Some(Confirmed { choice, finding, rivals: Vec::new() })
        });
        advice.confirmed = judged.collect();
        for rival in advice.rivals() {
            self.hold_against(advice, rival, (stop, progress))?;
        }
        Ok(())
    }

    /// Settings that help must help in another profile too, which may be the machine's as well.
    fn hold_against(
        &self,
        advice: &mut Advice,
        rival: Shape,
        (stop, progress): (&AtomicBool, &mut dyn Progress),
    ) -> Result<(), RunError> {
        let helping = advice.confirmed.iter().filter(|confirmed| confirmed.finding.helps);
        let choices: Vec<Choice> = helping.map(|confirmed| confirmed.choice.clone()).collect();
        if choices.is_empty() {
            return Ok(());
        }
        let (goal, taking) = (advice.goal, rival.profile.taking(self.demand));
        let stage = format!("rival-{}", rival.name());
        let without = self.run(rival, &[], CONFIRMED, &stage, (stop, &mut *progress))?;
        let with = self.tried(rival, &choices, (CONFIRMED, &stage), (stop, progress))?;
        for (choice, cells) in choices.iter().zip(with) {
            let Some(finding) = judge::finding(goal, taking, &without, &cells) else { continue };
            let of = advice.confirmed.iter_mut().filter(|confirmed| confirmed.choice == *choice);
            for confirmed in of {
                confirmed.finding.helps &= finding.helps;
                confirmed.rivals.push((rival.profile.name().to_owned(), finding.change));
            }
        }
        Ok(())
    }

    /// The value of each setting that the machine has now.
    fn now(&self, profile: Shape) -> Result<impl Fn(&str) -> Option<String> + use<>, UsageError> {
        let request = self.request(profile, Vec::new(), FOUND, "found");
        let plan = Plan::new(&request, |_| Accelerator::Tcg)?;
        Ok(move |name: &str| sweep::default(name, &plan.sessions[0], &plan.experiment))
    }

    /// Cells of each choice, from a run for each setting.
    fn tried(
        &self,
        profile: Shape,
        choices: &[Choice],
        (seeds, stage): ((u64, u64), &str),
        (stop, progress): (&AtomicBool, &mut dyn Progress),
    ) -> Result<Vec<Vec<Cell>>, RunError> {
        let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for choice in choices {
            by_name.entry(&choice.name).or_default().push(&choice.value);
        }
        let mut cells = BTreeMap::new();
        for (name, values) in by_name {
            let set = format!("{name}={}", values.join(","));
            let place = format!("{stage}-{}", name.replace('/', "-"));
            cells.insert(name, self.run(profile, &[set], seeds, &place, (stop, &mut *progress))?);
        }
        let of = |choice: &Choice| {
            let all = cells.get(choice.name.as_str()).into_iter().flatten();
            let is_it = |cell: &&Cell| cell.key.params.get(&choice.name) == Some(&choice.value);
            all.filter(is_it).cloned().collect()
        };
        Ok(choices.iter().map(of).collect())
    }

    fn request(&self, profile: Shape, sets: Vec<String>, (first, last): (u64, u64), place: &str) -> Request {
        let file = self.wanted.out.join(format!("{}.toml", profile.name()));
        let seeds = Seeds::around([first, last]).expect("seeds that a user may ask for");
        let out = self.wanted.out.join(place);
        let plain = evidence::request(as_path(&file), Vec::new(), seeds, self.wanted.workers, out);
        Request { machine: Some(as_path(&self.machine)), sets, ..plain }
    }

    /// Cells of a profile with some settings; a run that was stopped goes on.
    fn run(
        &self,
        profile: Shape,
        sets: &[String],
        seeds: (u64, u64),
        place: &str,
        (stop, progress): (&AtomicBool, &mut dyn Progress),
    ) -> Result<Vec<Cell>, RunError> {
        let request = self.request(profile, sets.to_vec(), seeds, place);
        let finished = run::run(&request, stop, progress)?;
        if let Some(failure) = finished.failures.first() {
            return Err(RunError::Failed(failure.clone()));
        }
        Ok(show::read(&finished.directory, None)?.cells)
    }
}

/// Where advice for a folder goes where nobody says.
pub fn directory(from: &Path) -> PathBuf {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    sweep::place("advise", &name, &from.to_string_lossy())
}

/// A path that is not taken for a name.
fn as_path(path: &Path) -> String {
    if path.is_absolute() || path.starts_with(".") {
        path.display().to_string()
    } else {
        Path::new(".").join(path).display().to_string()
    }
}
