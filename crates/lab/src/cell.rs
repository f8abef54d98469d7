//! One cell, on the worker's side: an order on standard input, one self-describing line on standard output.
//!
//! The same code works in a worker on this machine and in a worker inside a guest.

mod branch;
pub(crate) mod guests;
mod trial;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use linux::{
    file::Ground,
    host::{self, Linux, block_on},
    tracing::Fallbacks,
};
use os::Os;
use report::{
    Cell, Check, Duration, Extfrag, Footprint, Key, Measured, Memory, Record, Run, SCHEMA, Series, Skip, Skipped,
    SlowPath, WAITING, brief,
};
use units::{Errno, ExtfragCounts, Picos, Time};
use workloads::{Outcome, Workload, WorkloadError};

use crate::{
    calibrate,
    counted::{SKIPPED, is_counter},
    footprint,
    machine::Machine,
    metrics,
    order::{BranchOrder, Branched, CellOrder, Facts, Order, Prefix, Simulated, Story, Tests, WhyOrder},
    over_time,
    plan::Every,
    provenance,
    sampler::Sampling,
    source::Source,
    state::{self, Picture, State},
    workload,
};

pub(crate) use trial::{Trial, try_out};

/// Trace events of one cell that are kept: some ten megabytes.
const TRACE_LINES: usize = 65_536;

/// A counter whose idle movement is more than this share of its movement under the workload says nothing about the
/// workload: 0.1 %.
const NOISE_PER_MILLE: u64 = 1;

/// Why a worker has no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// What the user asks for cannot be had, as the run itself has shown.
    Refused(String),
    /// The simulation would never end; tasks, zones and the last turns, in lines.
    Livelock(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Failed(problem)
    }
}

/// Carries out an order and returns the line that comes of it.
pub fn work(order: &[u8]) -> Result<String, Problem> {
    match serde_json::from_slice(order).map_err(|error| format!("the order is malformed: {}", brief(error)))? {
        Order::Cell(order) => work_on_cell(order),
        Order::Why(order) => why(&order),
        Order::Branch(order) => branch(&order),
        Order::Nothing(cell) => nothing(&cell),
        Order::Probe { seconds } => Ok(calibrate::probe_as_worker(seconds)?),
    }
}

fn work_on_cell(order: CellOrder) -> Result<String, Problem> {
    let workload = workload::of_key(&order.key)?;
    let date = provenance::now();
    let start = host::monotonic_ns();
    let found = match &order.simulated {
        None => real(&workload, &order),
        Some(what) => simulated(&workload, &order, what, &mut Trial::default()),
    };
    let Found { measured, series, map, slow_path, footprint } = match found {
        Ok(found) => found,
        Err(Failure::Lacking(reason)) => return Ok(line(&Record::Skipped(skipped(order.key, reason)))),
        Err(failure) => return Err(failure.into()),
    };
    let run = Run {
        date,
        wall_s: Picos::from_nanos(host::monotonic_ns() - start).as_secs_f64(),
        boot_s: None,
        host: host::host_name(),
        commit: provenance::COMMIT.to_owned(),
        max_rss_kib: host::max_rss_kib(),
    };
    Ok(line(&Record::Cell(Cell { schema: SCHEMA, key: order.key, measured, series, map, slow_path, footprint, run })))
}

/// A simulated cell once more, for the facts of some of its operations.
fn why(order: &WhyOrder) -> Result<String, Problem> {
    let WhyOrder { cell, operations, timeline } = order;
    let what = cell.simulated.as_ref().ok_or_else(|| "only simulated cells run again".to_owned())?;
    let watched = |(task, start, end): &(u32, u64, u64)| {
        let (start, end) = (Time(*start), Time(*end));
        sim::Watched { task: *task, start, end }
    };
    let why = operations.iter().map(watched).collect();
    let mut trial = Trial { why, wants_timeline: *timeline, ..Trial::default() };
    let found = simulated(&workload::of_key(&cell.key)?, cell, what, &mut trial)?;
    let story = |story: sim::Story| Story { is_whole: story.is_whole == [true; 2], facts: story.facts };
    let facts = Facts {
        run_hash: found.measured.detail["run_hash"].as_str().unwrap_or_default().to_owned(),
        slow_path: found.slow_path.unwrap_or_default(),
        stories: trial.stories.into_iter().map(story).collect(),
        timeline: trial.timeline,
    };
    Ok(serde_json::to_string(&facts).expect("facts serialise"))
}

/// A simulated cell once more, for the counts of tests.
fn nothing(cell: &CellOrder) -> Result<String, Problem> {
    let what = cell.simulated.as_ref().ok_or_else(|| "only simulated cells run again".to_owned())?;
    let mut trial = Trial { tests: true, ..Trial::default() };
    let found = simulated(&workload::of_key(&cell.key)?, cell, what, &mut trial)?;
    let tests = Tests {
        run_hash: found.measured.detail["run_hash"].as_str().unwrap_or_default().to_owned(),
        slow_path: found.slow_path.unwrap_or_default(),
        counts: trial.counts,
    };
    Ok(serde_json::to_string(&tests).expect("counts serialise"))
}

/// A simulated cell that leaves its path, to its end or to its symptom.
fn branch(order: &BranchOrder) -> Result<String, Problem> {
    let what = order.cell.simulated.as_ref().ok_or_else(|| "only simulated cells run again".to_owned())?;
    let mut trial = Trial { branch: branch::of(order)?, ..Trial::default() };
    let found = simulated(&workload::of_key(&order.cell.key)?, &order.cell, what, &mut trial);
    let branched = if let Some(sim::Decided { is_met, hashes, left }) = trial.decided {
        let left_ps = left.map(|left| left.0);
        Branched { hashes, is_met: Some(is_met), left_ps, window: Vec::new(), found: None }
    } else {
        let found = found?;
        // The run has ended without the fault: the symptom has not shown.
        let is_met = order.symptom.map(|_| false);
        let found = Some((found.measured, found.series));
        Branched { hashes: trial.hashes, is_met, left_ps: None, window: trial.window, found }
    };
    Ok(serde_json::to_string(&branched).expect("a branch serialises"))
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("a record serialises")
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lacking(reason) | Failure::Refused(reason) => Self::Refused(reason),
            Failure::Livelock(livelock) => Self::Livelock(livelock),
            Failure::Failed(problem) => Self::Failed(problem),
        }
    }
}

/// A cell that its target cannot run.
fn skipped(key: Key, reason: String) -> Skipped {
    let what = format!("{} on {}", key.case, key.kernel);
    Skipped { schema: SCHEMA, target: key.target, what, reason, key: Some(key) }
}

/// What a cell found.
struct Found {
    measured: Measured,
    series: Option<Series>,
    /// The hash of the file with the map of memory.
    map: Option<String>,
    slow_path: Option<SlowPath>,
    footprint: Option<Footprint>,
}

/// Why a cell gave no result.
enum Failure {
    /// The target does not have something that the workload asks for.
    Lacking(String),
    /// The machine that the user asks for is too small, as the run has shown.
    Refused(String),
    /// Nothing gets on.
    Livelock(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self::Failed(problem)
    }
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        match error {
            WorkloadError::Call(call, Errno::NOSYS) => {
                Self::Lacking(format!("the target does not have it yet: {call} says {}", Errno::NOSYS))
            }
            WorkloadError::Refused(problem) => Self::Refused(problem),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// On the kernel that this program runs on.
fn real(workload: &Workload, order: &CellOrder) -> Result<Found, Failure> {
    // Before this process offers itself to the OOM killer: the sampler would inherit that.
    let sampling = order.sample.map(|every| Sampling::start(every.time())).transpose()?;
    host::volunteer_for_oom();
    let files = Files::fresh(&order.ground)?;
    let os = Linux::new(host::usable_cpus(), order.cap, order.ground.clone());
    os.watch(order.watch.clone());
    let before = os.fallbacks();
    let conditions = workload::conditions(&order.key)?;
    let outcome = block_on(async {
        conditions.bring_about(&os).await?;
        workload.run(os.clone(), order.key.seed).await
    })?;
    let now_us = Picos(os.now().0).as_nanos() / 1000;
    let footprint = order.footprint.map(|_| Footprint {
        epoch_us: (host::monotonic_ns() / 1000).saturating_sub(now_us),
        held: footprint::held(workload, &os, &outcome),
        // Who sees the host adds it.
        series: Series::default(),
    });
    let fallbacks = before.and_then(|before| Ok(os.fallbacks()?.since(&before)));
    let series = sampling.map(Sampling::end).transpose();
    drop(files);
    let idle = if order.idle_window { Some(idle_movement(&os, outcome.window)?) } else { None };
    let extfrag = fallbacks
        .map(|Fallbacks { counts, lost }| Extfrag::new(os.pageblock_order(), &counts, &outcome.counters, lost));
    let mut measured = measure(workload, outcome, idle.as_ref());
    match extfrag {
        Ok(extfrag) => {
            measured.skipped.extend((extfrag.lost > 0).then(|| events_lost(extfrag.lost)));
            measured.extfrag = Some(extfrag);
        }
        // Of a workload that means to mix memory a reader wants to know.
        Err(reason) if order.ground.directory.is_some() => {
            measured.skipped.push(Skip { what: EXTFRAG.to_owned(), reason });
        }
        Err(_) => {}
    }
    // Short memory may have ended it; what was measured is worth something without.
    let series = series.unwrap_or_else(|reason| {
        measured.skipped.push(Skip { what: "time series".to_owned(), reason });
        None
    });
    Ok(Found { measured, series, map: None, slow_path: None, footprint })
}

/// The trace event of fallbacks.
const EXTFRAG: &str = "mm_page_alloc_extfrag";

/// What is counted of it is too little.
fn events_lost(lost: u64) -> Skip {
    let reason = format!("{lost} events found no room in the kernel's buffers and are not counted");
    Skip { what: EXTFRAG.to_owned(), reason }
}

/// The directory of a cell's files, for as long as the cell runs.
struct Files(Option<PathBuf>);

impl Files {
    /// Empty, whatever a cell that was killed has left in it.
    fn fresh(ground: &Ground) -> Result<Self, String> {
        let files = Self(ground.directory.clone());
        files.remove();
        if let Some(directory) = &files.0 {
            std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        Ok(files)
    }

    /// What cannot be removed goes with the run's scratch directory, or with the guest.
    fn remove(&self) {
        let _ = self.0.as_ref().map(std::fs::remove_dir_all);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}

/// In the simulator.
fn simulated(workload: &Workload, order: &CellOrder, what: &Simulated, trial: &mut Trial) -> Result<Found, Failure> {
    host::volunteer_for_oom();
    if let Workload::Guests(params) = workload {
        return guests::run(workload, params, (order, what), trial);
    }
    let source = Source::from_text(format!("{}.toml", order.key.machine), what.machine.as_str());
    let machine = Machine::from_source(&source, &linux::setting::names()).map_err(|error| error.to_string())?;
    let cap = if what.prefix.is_some() { order.cap.max(state::room_for_state(&machine)) } else { order.cap };
    let config = crate::simulated::config(&machine, &what.variant.rules()?, cap, order.key.seed)?;
    let balloon = crate::simulated::balloon(&machine, workload, crate::simulated::managed(&config.machine));
    // A state may have been made with more files than the workload has.
    let disk =
        if what.prefix.is_some() { config.disk } else { crate::simulated::fit_disk(&machine, workload, config.disk) };
    let config = sim::Config { balloon, disk, ..config };
    let (workload_there, seed) = (workload.clone(), order.key.seed);
    let (trace_lines, sample) =
        (order.trace.as_ref().map(|_| TRACE_LINES), order.sample.map(Every::time).or(order.footprint));
    let options = sim::Options { trace_lines, sample, map: order.map.is_some(), ..trial.options() };
    let conditions = workload::conditions(&order.key)?;
    let prefix = what.prefix.clone();
    let main = async move |os: sim::Sim| {
        let before = match prefix {
            None => None,
            Some(prefix) => Some(follow(&prefix, &os, &machine, seed).await?),
        };
        conditions.bring_about(&os).await?;
        // What was free before is not of the workload.
        os.watch_free_anew();
        let outcome = workload_there.run(os, seed).await?;
        let held = footprint::held(&workload_there, &os, &outcome);
        Ok::<_, Failure>((outcome, held, before))
    };
    let state = what.state.as_deref().map(|file| load_state(file, &config.machine)).transpose()?;
    let map = state.as_ref().map(|(_, map)| map);
    let run = sim::try_simulate_from(&config, options, map, entry, main);
    if let Err(sim::NoResult::Decided(decided)) = &run {
        trial.decided = Some(decided.clone());
    }
    let (outcome, finish, mut extra) = run.map_err(|problem| no_result(&problem, &order.key.machine))?;
    trial.keep(&finish, &mut extra);
    // Also of a run that failed: it may show why.
    if let (Some(file), Some(trace)) = (&order.trace, extra.trace) {
        report::write_whole(file, trace.as_bytes()).map_err(|error| error.to_string())?;
    }
    let (outcome, held, before) = outcome?;
    // What came before the workload is not the workload's.
    let fallbacks = before.as_ref().map_or(extra.extfrag, |(_, before)| finish.counters.extfrag().since(before));
    let extfrag = Extfrag::new(config.machine.pageblock_order, &fallbacks, &outcome.counters, 0);
    let mut measured = measure(workload, outcome, None);
    measured.extfrag = Some(extfrag);
    measured.memory = Some(memory(extra.free, extra.marks));
    measured.causes = causes(&finish.times);
    measured.detail = serde_json::json!({
        "tasks": measured.detail,
        "run_hash": finish.hash,
        "variant": what.variant.difference,
    });
    if let Some((hash, _)) = state {
        measured.detail[state::DETAIL] = serde_json::json!({ "hash": hash, "notes": extra.notes });
    }
    if let Some((picture, _)) = before {
        let notes = [state::in_words(&picture.census)];
        measured.detail[state::DETAIL] = serde_json::json!({ "hash": picture.checksum, "notes": notes });
    }
    let samples = sample.zip(extra.samples.as_ref());
    let footprint = samples.filter(|_| order.footprint.is_some());
    let footprint = footprint
        .and_then(|(every, samples)| footprint::simulated(every, samples, held, footprint::frames(&config.machine)));
    let series = samples.filter(|_| order.sample.is_some()).map(|(every, samples)| over_time::series(every, samples));
    let instants =
        || samples.iter().flat_map(|(_, samples)| samples.rows.iter().map(|(at, _)| *at)).collect::<Vec<_>>();
    let map = order.map.as_deref().zip(extra.map.as_ref());
    let map = map.map(|(folder, map)| keep_file(folder, &over_time::map(map, &instants()).to_bytes())).transpose()?;
    let slow_path = Some(over_time::slow_path(&extra.slow_operations));
    Ok(Found { measured, series, map, slow_path, footprint })
}

/// Follows the recipe before a workload; what memory is like then, and the fallbacks until then.
async fn follow(
    prefix: &Prefix,
    os: &sim::Sim,
    machine: &Machine,
    seed: u64,
) -> Result<(Picture, ExtfragCounts), Failure> {
    let Prefix { recipe, expected, again } = prefix;
    // Of several cells some may reach it.
    let lacking = |error| Failure::Lacking(format!("recipe not reached: {}", state::in_cell(&error, machine)));
    recipe.run(os, seed).await.map_err(lacking)?;
    let picture = os.look(Picture::of);
    match expected {
        Some(expected) if *expected != picture.checksum => Err(Failure::Failed(format!(
            "state {recipe}: its file says checksum {expected}, and it came to {}: another version of this program made it \
             (this makes it again: {again})",
            picture.checksum
        ))),
        _ => Ok((picture, os.extfrag())),
    }
}

fn no_result(problem: &sim::NoResult, machine: &str) -> Failure {
    match problem {
        sim::NoResult::Livelock(livelock) => Failure::Livelock(livelock.to_string()),
        problem => Failure::Failed(format!("machine {machine}: {problem}")),
    }
}

/// Writes a file of a result, named by its hash, into a folder that is made if need be; returns the name.
fn keep_file(folder: &Path, bytes: &[u8]) -> Result<String, String> {
    let name = blake3::hash(bytes).to_hex().to_string();
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    report::write_whole(&folder.join(&name), bytes).map_err(|error| error.to_string())?;
    Ok(name)
}

/// The hash of a state, and its frames on a machine.
fn load_state(
    file: &Path,
    machine: &rules::machine::MachineSpec,
) -> Result<(String, mm::whole::state::FrameMap), String> {
    let place = file.display();
    let state = State::load(file).map_err(|error| error.to_string())?;
    state.check_machine(machine).map_err(|problem| format!("{place}: {problem}"))?;
    let map = state.frame_map(machine.end()).map_err(|problem| format!("{place}: {problem}"))?;
    Ok((state.hash(), map))
}

/// Free memory of a simulated run, and its watermarks.
fn memory(free: sim::Free, marks: memory::watermark::Marks) -> Memory {
    Memory { free_least: free.least.0, free_mean: free.mean.0, min: marks.min.0, low: marks.low.0, high: marks.high.0 }
}

/// Where the time of a simulated run went, in picoseconds by name.
fn causes(times: &sim::Times) -> BTreeMap<String, u64> {
    let cpu = times.cpu.by_cause().map(|(cause, span)| (cause.name().to_owned(), span.0));
    let waiting = times.waiting.by_cause().map(|(cause, span)| (format!("{WAITING}{}", cause.name()), span.0));
    cpu.chain(waiting).collect()
}

/// The entries of spawned processes, for the simulator.
fn entry(name: &'static str, params: Vec<u8>) -> sim::EntryFuture {
    Box::pin(async move {
        let result = workloads::run_entry(sim::Sim, name, &params).await.ok_or_else(|| format!("no entry {name:?}"))?;
        result.map_err(|error| format!("{name}: {error}"))
    })
}

/// Runs one task of a workload in a process of its own: parameters and result are JSON.
pub fn run_entry(os: Linux, entry: &str, params: &[u8]) -> Result<Vec<u8>, String> {
    let result = block_on(workloads::run_entry(os, entry, params)).ok_or_else(|| format!("no entry {entry:?}"))?;
    result.map_err(|error| format!("{entry}: {error}"))
}

/// How far the counters move while nothing of ours runs, for as long as the workload ran.
fn idle_movement(os: &Linux, window: Picos) -> Result<BTreeMap<String, i64>, String> {
    let read = || block_on(os.vmstat()).map_err(|error| format!("reading /proc/vmstat: {error}"));
    let before = read()?;
    block_on(os.sleep(window));
    Ok(read()?.since(&before))
}

fn measure(workload: &Workload, outcome: Outcome, idle: Option<&BTreeMap<String, i64>>) -> Measured {
    let (counters, mut skipped) = take_off_idle(&outcome.counters, idle);
    skipped.extend(outcome.unable.iter().map(|part| Skip { what: part.what.clone(), reason: part.reason.clone() }));
    let mut checks = Vec::new();
    if workload.knows_its_faults() {
        let moved = |name: &str| counters.get(name).map_or(0, |moved| u64::try_from(*moved).unwrap_or(0));
        let (swapped_in, swapped_out) = (moved("pswpin"), moved("pswpout"));
        if swapped_out > 0 {
            // A huge page that is swapped falls apart, and pages that are gone fault again: how often, nobody knows beforehand.
            let swapped = swapped_in + swapped_out;
            let reason = format!("{swapped} pages were swapped meanwhile: their faults are not known beforehand");
            skipped.push(Skip { what: "check of faults".to_owned(), reason });
        } else {
            let expected = outcome.tasks.iter().map(|task| task.faults).sum();
            let found = outcome.tasks.iter().map(|task| task.rusage.faults()).sum();
            checks.push(fault_check("faults by getrusage", expected, found, swapped_in));
            if let Some(found) = counters.get("pgfault").and_then(|moved| u64::try_from(*moved).ok()) {
                checks.push(fault_check("pgfault of /proc/vmstat", expected, found, swapped_in));
            }
        }
    }
    let used = outcome.rusage();
    let duration = Duration { user_ps: used.user.0, system_ps: used.system.0, elapsed_ps: outcome.window.0 };
    Measured {
        scored: workload.scored(),
        metrics: metrics::of(workload, &outcome),
        counters,
        gauges: outcome.gauges,
        duration: Some(duration),
        causes: BTreeMap::new(),
        extfrag: None,
        memory: None,
        checks,
        skipped,
        detail: serde_json::to_value(outcome.tasks).expect("outcomes serialise"),
    }
}

/// The tolerance for faults of a fixed program: 0.5 % plus 400 (the kernel's own spread between repetitions is 0.1 %, and
/// reading the counters costs up to 400 faults of its own). A page that was swapped out before the workload's window, and comes
/// back in it, may be one fault more.
fn fault_check(name: &str, expected: u64, found: u64, swapped_in: u64) -> Check {
    let within = expected.abs_diff(found) * 200 <= expected + (400 + swapped_in) * 200;
    let mut tolerance = "0.5 % + 400".to_owned();
    if swapped_in > 0 {
        tolerance += &format!(" + {swapped_in} swapped in");
    }
    Check { name: name.to_owned(), expected, found, tolerance, within }
}

/// Leaves out gauges and fallbacks, which have a place of their own, and noughts, which readers put back ([`crate::counted`]);
/// takes the idle movement off every counter, and reports those that are too noisy as skipped.
fn take_off_idle(
    moved: &BTreeMap<String, i64>,
    idle: Option<&BTreeMap<String, i64>>,
) -> (BTreeMap<String, i64>, Vec<Skip>) {
    let mut counters = BTreeMap::new();
    let mut skipped = Vec::new();
    for (name, moved) in moved.iter().filter(|(name, moved)| is_counter(name) && **moved != 0) {
        let idle = idle.and_then(|idle| idle.get(name)).copied().unwrap_or(0);
        if idle.unsigned_abs() * 1000 > moved.unsigned_abs() * NOISE_PER_MILLE {
            let reason = format!("an idle window of the same length moved it by {idle}, more than 0.1 % of {moved}");
            skipped.push(Skip { what: format!("{SKIPPED}{name}"), reason });
        } else {
            counters.insert(name.clone(), moved - idle);
        }
    }
    (counters, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
        pairs.iter().map(|(name, moved)| ((*name).to_owned(), *moved)).collect()
    }

    #[test]
    fn idle_movement_is_taken_off_and_noise_is_skipped() {
        let moved = counters(&[("pgfault", 100_000), ("pgfree", 1_000), ("nr_free_pages", -7), ("pgalloc_dma", 0)]);
        let idle = counters(&[("pgfault", 100), ("pgfree", 2)]);
        let (kept, skipped) = take_off_idle(&moved, Some(&idle));
        assert_eq!(kept, counters(&[("pgfault", 99_900)]));
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].what, "vmstat pgfree");
        assert!(skipped[0].reason.contains("moved it by 2, more than 0.1 % of 1000"), "{}", skipped[0].reason);
    }

    #[test]
    fn faults_may_be_off_by_half_a_percent_and_400() {
        assert!(fault_check("", 100_000, 100_900, 0).within);
        assert!(!fault_check("", 100_000, 100_901, 0).within);
        assert!(fault_check("", 100_000, 99_100, 0).within);
        assert!(!fault_check("", 100_000, 99_099, 0).within);
        let swapped_in = fault_check("", 100_000, 100_902, 2);
        assert!(swapped_in.within && swapped_in.tolerance == "0.5 % + 400 + 2 swapped in", "{swapped_in:?}");
        assert!(!fault_check("", 100_000, 100_903, 2).within);
    }
}
