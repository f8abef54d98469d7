//! The machine: virtual time, CPUs and tasks; implements `Os` on top of the memory manager.
//!
//! | file | what |
//! |---|---|
//! | `clock.rs` | the one order: timers and CPUs by time, horizon and quantum |
//! | `world.rs` and its folder | everything of a run that is data; turns and steps; the path of most turns |
//! | `ids.rs` | which task, kernel or kernel thread |
//! | `kernel.rs` | what one kernel has: its memory, processes and locks |
//! | `task.rs` | the kernel half of a task |
//! | `task/operation.rs` | what a task can be inside of |
//! | `task/executor.rs`, `task/handle.rs` | the user half: futures over `Os` |
//! | `task/layout.rs` | stacks of threads, and what a process has before its program begins |
//! | `task/affinity.rs` | which CPUs and which nodes a task is for |
//! | `task/oom.rs` | the end of a process that the OOM killer has chosen |
//! | `task/programs.rs` | what a machine's system runs beside a benchmark |
//! | `sched.rs`, `runqueue.rs` and their folders | who runs where: CFS or EEVDF; load balance, loads, wake-ups |
//! | `lock.rs`, `rwsem.rs` | the lock of an address space |
//! | `daemon.rs` and its folder | kernel threads |
//! | `guests.rs` | guests of a host: their memory is a mapping of a process, their CPUs are tasks |
//! | `draw.rs` | what follows from the seed |
//! | `branch.rs` | a run that leaves its path at an instant |
//! | `run_hash.rs` | (time, cpu, event) folded into 64 bits |
//! | `counter_names.rs` | which counters a kernel has |
//! | `inject.rs`, `faults.rs` | for tests: one step of a run loses something; faults from outside, until an instant |
//! | `watch/sampler.rs`, `watch/map_sampler.rs`, `watch/free_watch.rs` | what is where, over time |
//! | `watch/slow_log.rs` | what left the fast path |
//! | `watch/trace.rs` | trace events as lines |
//! | `watch/why.rs` | the facts of some operations |
//! | `watch/spans.rs` | who runs where, who wakes whom, and the parts of operations in their order |
//! | `watch/livelock.rs` | the end of a run in which nothing gets on |

mod branch;
mod clock;
mod counter_names;
mod daemon;
mod draw;
mod faults;
mod guests;
mod ids;
mod inject;
mod kernel;
mod lock;
mod run_hash;
mod runqueue;
mod rwsem;
mod sched;
mod task;
#[cfg(test)]
mod tests;
mod watch;
mod world;

use std::{cell::RefCell, rc::Rc};

use memory::{
    backing::HostSpec,
    cost::{Latency, Prices, Spent},
    event::Counters,
    fact::Told,
    tally::Counted,
    watermark::Marks,
};
use mm::{
    Mm,
    file::disk::DiskSpec,
    guest::{balloon::BalloonSpec, reporting::ReportingSpec},
    swap::SwapSpec,
    thp::{ThpEnabled, khugepaged::KhugepagedSettings},
    whole::state::{FrameMap, System},
};
use os::Placement;
use rules::{
    machine::MachineSpec,
    variant::{NeedsBoot, ThpDefrag, Variant},
    zone::Settings,
};
use units::{Bytes, BytesPerSecond, CpuId, ExtfragCounts, Frames, NodeId, Picos, Time};

use branch::Changes;
pub use branch::{Branch, Change, Decided, Symptom};
pub use counter_names::{all_counter_names, counter_names};
use draw::{Draws, Purpose, StateDraws};
use faults::FaultPoints;
pub use faults::Faults;
pub use guests::{
    GuestLost, GuestsFinish, GuestsOptions, LostBy, ProcessMemory, simulate_guests, simulate_guests_with,
};
use ids::HOST;
use inject::Injector;
pub use inject::{Injection, Lost};
use kernel::Kernel;
use run_hash::Mark;
pub use task::executor::{Entries, EntryFuture};
pub use task::handle::Sim;
pub use watch::free_watch::Free;
pub use watch::livelock::{Bounds, Livelock, Stuck};
pub use watch::map_sampler::{CELLS_MAX, CellMove, MapSample, MapSamples};
pub use watch::sampler::Samples;
pub use watch::slow_log::{SlowOperation, SlowOperations, SlowTotal, What};
pub use watch::spans::{OnCpu, Stretch, TaskName, Timeline, Waker, Wakeup};
pub use watch::why::{Story, Watched};
use watch::{
    map_sampler::MapSampler,
    sampler::Sampler,
    spans::Spans,
    trace::Trace,
    why::{Observed, Why},
};
use world::World;

/// The tick of distribution kernels (CONFIG_HZ=250).
const TICK: Picos = Picos::from_micros(4000);

/// The value of [`Config::quantum`] by default: 2 us, about one page fault.
pub const QUANTUM: Picos = Picos::from_micros(2);

/// A machine with a kernel, as a run begins.
#[derive(Clone, Debug)]
pub struct Config {
    /// The machine's nodes and zones.
    pub machine: MachineSpec,
    /// The rules of the kernel.
    pub variant: Variant,
    /// The kernel's settings.
    pub settings: Settings,
    /// `transparent_hugepage/enabled`.
    pub thp_enabled: ThpEnabled,
    /// `transparent_hugepage/defrag`.
    pub thp_defrag: ThpDefrag,
    /// `transparent_hugepage/khugepaged`.
    pub khugepaged: KhugepagedSettings,
    /// `transparent_hugepage/use_zero_page`.
    pub use_zero_page: bool,
    /// The prices of primitive operations.
    pub prices: Prices,
    /// The latency of memory, by the nodes of the CPU and of the memory; empty if memory is flat.
    pub latency: Latency,
    /// The hardware threads of each core; without cores, each CPU is one.
    pub cores: Vec<Vec<CpuId>>,
    /// The CPUs that share each of the last caches; without caches, all share one.
    pub caches: Vec<Vec<CpuId>>,
    /// Prices while another hardware thread of the core is busy, in percent.
    pub shared_core: u32,
    /// Bandwidth that a node's memory has for all CPUs together; nodes that are not listed have no limit.
    pub bandwidth: Vec<(NodeId, BytesPerSecond)>,
    /// The swap device, if there is one.
    pub swap: Option<SwapSpec>,
    /// The disk that files are on.
    pub disk: DiskSpec,
    /// Number of CPUs that tasks are spread over.
    pub cpus: usize,
    /// Most time by which a CPU may run ahead of another; 0 is the strict order.
    pub quantum: Picos,
    /// Bytes that may be mapped.
    pub cap: Bytes,
    /// The seed of the run's draws.
    pub seed: u64,
    /// Frames that init takes one by one before the first task starts, and keeps, to change the layout of free memory.
    pub held: Frames,
    /// Memory in use before that, unless the run starts from a map.
    pub system: Option<System>,
    /// The host behind the memory, if this is a guest.
    pub host: Option<HostSpec>,
    /// Free page reporting, if the guest reports to its host.
    pub reporting: Option<ReportingSpec>,
    /// The guest's balloon, and its operator's orders.
    pub balloon: Option<BalloonSpec>,
    /// Whether free lists are shuffled.
    pub shuffle: bool,
}

/// The end of a run, besides its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The run hash, in hexadecimal.
    pub hash: String,
    /// All events of the run.
    pub counters: Counters,
    /// Time of all tasks by cause.
    pub times: Times,
}

/// The time of all tasks of a run, kernel threads included, by cause. Time asleep until a timer, a barrier or another task's
/// end is in neither part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time with a CPU: working, or spinning.
    pub cpu: Spent,
    /// Time without a CPU: in a run queue, or asleep for a lock.
    pub waiting: Spent,
}

/// A kernel lacks memory before its first process runs: until then nothing can be reclaimed, and no process killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotStart {
    /// No free memory is above the Min marks for the first process.
    NoProcess,
    /// There are fewer free frames than init is to hold.
    NoFrames(Frames),
    /// A recorded map leaves no frames for the page tables of its mapped memory.
    NoTables,
}

impl std::fmt::Display for CannotStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoProcess => f.write_str("its min marks and reserves leave no memory for the first process"),
            Self::NoFrames(frames) => write!(f, "the machine has not the {} frames that init holds", frames.0),
            Self::NoTables => f.write_str("expected that the map has room for the tables of what it says is mapped"),
        }
    }
}

impl std::error::Error for CannotStart {}

/// The reason why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// A kernel lacks memory before its first process runs.
    CannotStart(CannotStart),
    /// A guest is lost before its end.
    GuestLost(GuestLost),
    /// The run would never end.
    Livelock(Box<Livelock>),
    /// A branch has shown its symptom, or not: it was not run to its end.
    Decided(Decided),
    /// A branch changes rules that only a boot can change.
    NeedsBoot(NeedsBoot),
}

impl From<CannotStart> for NoResult {
    fn from(problem: CannotStart) -> Self {
        Self::CannotStart(problem)
    }
}

impl std::fmt::Display for NoResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CannotStart(problem) => problem.fmt(f),
            Self::GuestLost(lost) => write!(f, "guest {} is lost after {} of virtual time", lost.guest + 1, lost.after),
            Self::Livelock(livelock) => livelock.fmt(f),
            Self::Decided(_) => f.write_str("a branch has come to its symptom, and has no result"),
            Self::NeedsBoot(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for NoResult {}

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A loss to inject, for tests.
    pub loss: Option<Injection>,
    /// Other bounds of a run without progress, for tests.
    pub bounds: Option<Bounds>,
    /// Faults to inject, for tests.
    pub faults: Faults,
    /// Steps between two checks that every frame has its owner, for tests; there is another check at the end. 0 is never.
    pub check_every: u64,
    /// Most trace events that are kept as lines; none unless asked for.
    pub trace_lines: Option<usize>,
    /// The time between two samples; none are taken unless asked for.
    pub sample: Option<Picos>,
    /// Whether each sample has a map of memory by pageblock.
    pub map: bool,
    /// Operations whose facts are wanted.
    pub why: Vec<Watched>,
    /// Whether a timeline is wanted, with the stretches of the operations in [`Options::why`].
    pub timeline: bool,
    /// Where the run leaves its path.
    pub branch: Branch,
    /// Whether the tests of all mechanisms are counted.
    pub tests: bool,
}

/// The output of these options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Steps that the run took.
    pub steps: u64,
    /// Operations that ended; for each the time was compared with the sum of its parts.
    pub operations: u64,
    /// Whether the step of [`Options::loss`] has lost something.
    pub lost: bool,
    /// Number of faults of [`Options::faults`] that the run injected: failed allocations and late wake-ups.
    pub faults: u64,
    /// Trace events, one per line.
    pub trace: Option<String>,
    /// Fallbacks by kind, from the moment at which the first process is made to the end.
    pub extfrag: ExtfragCounts,
    /// Samples, with one of the start and one of the end.
    pub samples: Option<Samples>,
    /// The map of memory at the same instants, where it was asked for.
    pub map: Option<MapSamples>,
    /// Operations that left the fast path.
    pub slow_operations: SlowOperations,
    /// The facts of each operation of [`Options::why`].
    pub why: Vec<Story>,
    /// The timeline, where it was asked for.
    pub timeline: Option<Timeline>,
    /// The run hash before each change of [`Options::branch`]; of changes behind the end, there is none.
    pub hashes: Vec<String>,
    /// Facts between the two instants of [`Options::branch`], if they are asked for.
    pub window: Vec<Told>,
    /// The counts of the tests of all mechanisms, where they were asked for.
    pub tests: Vec<Counted>,
    /// Free memory over time: since [`Sim::watch_free_anew`], else of the whole run.
    pub free: Free,
    /// Watermarks of all zones together, at the end.
    pub marks: Marks,
    /// If memory was loaded from a map: facts that were drawn, and facts that could not be taken over.
    pub notes: Vec<String>,
}

fn fresh(config: &Config) -> World {
    let mm = Mm::new(&config.machine, config.variant, &config.settings);
    World::new(mm, config.cpus, config.prices.clone(), config.quantum, config.cap)
}

fn taken_over(config: &Config, map: &FrameMap, draws: &mut StateDraws) -> Result<(World, Vec<String>), CannotStart> {
    let loaded = Mm::from_map(&config.machine, config.variant, &config.settings, map, draws);
    let loaded = loaded.ok_or(CannotStart::NoTables)?;
    let mut world = World::new(loaded.mm, config.cpus, config.prices.clone(), config.quantum, config.cap);
    world.kernels[HOST].add_space(loaded.init, None);
    Ok((world, loaded.notes))
}

/// The map of memory as a kernel had it, before anything runs.
///
/// # Panics
/// As [`simulate_from`].
pub fn map_of_state(config: &Config, state: &FrameMap) -> MapSamples {
    let taken = taken_over(config, state, &mut StateDraws::new(Draws::new(config.seed)));
    let (mut world, _) = taken.unwrap_or_else(|problem| panic!("{problem}"));
    MapSampler::of(&mut world.kernels[HOST].mm)
}

/// Sets a kernel up as at boot.
fn set_up(kernel: &mut Kernel, config: &Config) {
    let mm = &mut kernel.mm;
    mm.thp.enabled = config.thp_enabled;
    mm.thp.use_zero_page = config.use_zero_page;
    mm.thp.defrag = config.thp_defrag;
    mm.khugepaged.settings = config.khugepaged;
    if let Some(swap) = &config.swap {
        mm.swapon(swap);
        mm.swap.page_cluster = config.settings.page_cluster;
    }
    mm.mount(&config.disk);
    mm.memory.set_latency(config.latency.clone());
    if let Some(percent) = config.latency.sharing.and_then(|sharing| sharing.uneven_percent) {
        let (draws, most) = (Draws::new(config.seed), 10 * u64::from(percent));
        let time = |cpu: u64| 1000 - most + draws.below(2 * most + 1, cpu, Purpose::Unevenness, 0);
        mm.memory.flows_mut().set_unevenness((0..kernel.cpus.len() as u64).map(time).collect());
    }
    mm.enable_oom_killer();
}

/// Sets up a guest: its host backs its memory from the beginning, and free blocks are reported first.
fn start_as_guest(config: &Config, kernel: &mut Kernel, now: Time) {
    let Kernel { mm, counters, .. } = kernel;
    if config.host.is_some() {
        counters.of_guest();
    }
    if config.shuffle {
        mm.memory.shuffle(Draws::new(config.seed).below(u64::MAX, 0, Purpose::Shuffle, 0));
    }
    if let Some(host) = config.host.filter(|_| !mm.memory.has_host_kernel()) {
        mm.memory.attach_host(host);
    }
    if let Some(reporting) = config.reporting {
        mm.register_reporting(reporting, now);
    }
    if let Some(balloon) = &config.balloon {
        counters.of_balloon();
        mm.add_balloon(balloon, now);
    }
}

/// Runs `main` as the first task of a freshly booted machine, and every task that it spawns, to the end.
///
/// # Panics
/// When an invariant breaks, when tasks wait for each other for ever or make no progress, or when the machine has fewer
/// frames than init holds.
pub fn simulate<T: 'static>(
    config: &Config,
    entries: Entries,
    main: impl AsyncFnOnce(Sim) -> T + 'static,
) -> (T, Finish) {
    let (result, finish, _) = simulate_with(config, Options::default(), entries, main);
    (result, finish)
}

/// Runs as [`simulate`] does, with options.
///
/// # Panics
/// As [`simulate`].
pub fn simulate_with<T: 'static>(
    config: &Config,
    options: Options,
    entries: Entries,
    main: impl AsyncFnOnce(Sim) -> T + 'static,
) -> (T, Finish, Extra) {
    simulate_from(config, options, None, entries, main)
}

/// Runs on a machine whose memory is loaded from a kernel's map. The map already has frames that init would hold.
///
/// # Panics
/// As [`simulate`]; and when the map leaves no free memory.
pub fn simulate_from<T: 'static>(
    config: &Config,
    options: Options,
    state: Option<&FrameMap>,
    entries: Entries,
    main: impl AsyncFnOnce(Sim) -> T + 'static,
) -> (T, Finish, Extra) {
    try_simulate_from(config, options, state, entries, main).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Runs like [`simulate_from`], when it is not certain that the machine can start.
///
/// # Errors
/// When no memory is left above the Min marks for the first process; when no task makes progress any more.
///
/// # Panics
/// See [`simulate_from`], but for these.
pub fn try_simulate_from<T: 'static>(
    config: &Config,
    options: Options,
    state: Option<&FrameMap>,
    entries: Entries,
    main: impl AsyncFnOnce(Sim) -> T + 'static,
) -> Result<(T, Finish, Extra), NoResult> {
    for (_, change) in &options.branch.changes {
        if let Change::Rules(rules) = change {
            config.variant.check_change(rules).map_err(NoResult::NeedsBoot)?;
        }
    }
    let mut draws = StateDraws::new(Draws::new(config.seed));
    let system = config.system.filter(|_| state.is_none()).map(|system| system.drawn(&mut draws));
    let own = system.map(|system| FrameMap::of_system(&config.machine, &system, &mut draws));
    let (mut world, notes) = match state.or(own.as_ref()) {
        None => (fresh(config), Vec::new()),
        Some(map) => taken_over(config, map, &mut draws)?,
    };
    set_up(&mut world.kernels[HOST], config);
    world.share_cores(&config.cores, config.shared_core);
    world.compare_cpus(config);
    world.start_clock(Draws::new(config.seed));
    if state.is_none() {
        world.hold(config.held)?;
    }
    // init is never killed, whatever it holds.
    let Kernel { mm, spaces, .. } = &mut world.kernels[HOST];
    for (id, _) in spaces.iter() {
        mm.spare_from_oom(id);
    }
    for (node, limit) in &config.bandwidth {
        world.kernels[HOST].mm.memory.limit_bandwidth(*node, *limit);
    }
    world.injector.wanted = options.loss;
    world.watchdog.bounds = options.bounds.unwrap_or_default();
    world.injector.check_every = options.check_every;
    world.faults = FaultPoints::begin(options.faults, &mut world.kernels[HOST].mm);
    world.trace = options.trace_lines.map(Trace::new);
    world.spans = options.timeline.then(|| Spans::of(options.why.iter().map(|of| (of.task, of.start))));
    world.why = Why::of(options.why, options.tests, &options.branch);
    world.kernels[HOST].mm.memory.trace_extfrag(world.trace.is_some());
    let booted = world.kernels[HOST].counters.extfrag().clone();
    world.sampler = options.sample.map(Sampler::new).unwrap_or_default();
    if options.map {
        world.sampler = std::mem::take(&mut world.sampler).with_map(&mut world.kernels[HOST].mm);
    }
    world.changes = Changes::new(options.branch.changes);
    world.sampler.expect_change(world.changes.next());
    let space = world.try_space().ok_or(CannotStart::NoProcess)?;
    world.create_task(Placement::Spread(0), space);
    // The first task is never killed; while it has no siblings, neither is its process.
    world.kernels[HOST].mm.spare_from_oom(space);
    let now = world.latest();
    start_as_guest(config, &mut world.kernels[HOST], now);
    let places: Vec<_> = config.machine.nodes.iter().map(|node| (node.id, node.cpus.clone())).collect();
    world.start_daemons(HOST, &places, Draws::new(config.seed));
    let slot = Rc::new(RefCell::new(None));
    let result = Rc::clone(&slot);
    let of_programs = system.map_or(Frames(0), |system| system.programs);
    let beside = task::programs::beside(Sim, of_programs, Draws::new(config.seed), main);
    let main = Box::pin(async move { *result.borrow_mut() = Some(beside.await) });
    let mut world = task::executor::run(world, entries, main);
    if let Some(livelock) = world.watchdog.found.take() {
        return Err(NoResult::Livelock(livelock));
    }
    if world.is_decided() {
        let symptom = world.why.as_ref().and_then(|why| why.symptom);
        let is_met = symptom.and_then(|symptom| symptom.is_met) == Some(true);
        let left = symptom.and_then(|symptom| symptom.left);
        return Err(NoResult::Decided(Decided { is_met, hashes: world.changes.hashes, left }));
    }
    if options.check_every > 0 {
        world.check();
    }
    let result = slot.take().expect("the first task has ended");
    let (finish, extra) = end(world, &booted, notes);
    Ok((result, finish, extra))
}

/// The outcome of a run that has ended, beside its result. `booted`: fallbacks before the first process; `notes`: of its state.
fn end(mut world: World, booted: &ExtfragCounts, notes: Vec<String>) -> (Finish, Extra) {
    let end = world.latest();
    for (_, count) in world.kernels[HOST].counters.clone().iter() {
        world.hash.fold(end, CpuId(0), Mark::Counter, count);
    }
    let Injector { steps, done: lost, .. } = world.injector;
    let ((samples, map), slow_operations) = (world.end_samples(), world.take_slow_operations());
    let (free, timeline) = (world.end_free(), world.take_timeline());
    let marks = all_marks(&world.kernels[HOST].mm);
    let trace = world.trace.map(|trace| trace.text());
    let Observed { stories: why, window, tests } = world.why.map(|why| why.finish()).unwrap_or_default();
    let extfrag = world.kernels[HOST].counters.extfrag().since(booted);
    let (operations, hashes) = (world.operations, world.changes.hashes);
    let faults = world.faults.made();
    let extra = Extra {
        steps,
        operations,
        lost,
        faults,
        trace,
        extfrag,
        samples,
        map,
        slow_operations,
        why,
        timeline,
        hashes,
        window,
        tests,
        free,
        marks,
        notes,
    };
    let mut times = Times::default();
    world.tasks.iter().for_each(|task| task.add_to(&mut times));
    (Finish { hash: world.hash.hex(), counters: world.kernels[HOST].counters.clone(), times }, extra)
}

/// Sums of the watermarks of all zones.
fn all_marks(mm: &Mm) -> Marks {
    let mut marks = Marks::default();
    for zone in mm.memory.zones() {
        marks.min += zone.marks.min;
        marks.low += zone.marks.low;
        marks.high += zone.marks.high;
    }
    marks
}
