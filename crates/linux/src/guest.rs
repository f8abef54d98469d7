//! Inside the guest: this program as `/init`.
//!
//! Init mounts file systems, loads the modules that were packed with it, applies the settings, checks that the machine is
//! the one that was asked for, lets workers do the jobs, and streams records to the second serial port: one JSON line
//! each, the last of them the exit record. Then it drains the port and powers off. The host trusts nothing but that
//! record: QEMU exits with 0 after a kernel panic too.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::atomic::AtomicBool,
};

use nix::{
    mount::{MsFlags, mount},
    sys::{
        reboot::{RebootMode, reboot},
        termios::{self, SetArg},
    },
};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId, Frames, NodeId};

use crate::{
    balloon,
    disk::{self, Disk, Medium},
    frame_map::{Recorded, Recorder},
    host::monotonic_ns,
    memory,
    procfs::{Capture, Snapshot},
    setting, tracing, worker,
};

/// Where the plan lies in the guest.
pub(crate) const PLAN_PATH: &str = "plan.json";
/// Where modules lie in the guest, named by their place in the load order.
pub(crate) const MODULES_PATH: &str = "modules";
/// The port that carries records; the first one is the console.
const DATA_PORT: &str = "/dev/ttyS1";

/// The work of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The nodes that must be there.
    pub nodes: Vec<PlannedNode>,
    /// Settings, by kernel name, in the order in which they are written.
    pub settings: Vec<(String, String)>,
    /// Frames that init takes before the first job and keeps: another layout of free memory.
    pub held: Frames,
    /// The guest's disk and swap, if it has any.
    pub disk: Option<Disk>,
    /// Orders for workers, opaque to this crate.
    pub jobs: Vec<serde_json::Value>,
    /// Record every frame before each job.
    #[serde(default)]
    pub frames: bool,
    /// Say what time it is before each job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock: bool,
    /// A fault to inject before the first job, for tests.
    pub inject: Option<Fault>,
}

/// A node as asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// The node's memory.
    pub memory: Bytes,
    /// The node's CPUs; none for a memory-only node.
    pub cpus: Vec<CpuId>,
}

/// Ways for a guest to fail, so that tests can see what the host makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The kernel panics.
    Panic,
    /// Nothing happens any more.
    Hang,
    /// init ends without the exit record.
    Exit,
    /// Nearly all memory is taken before the first job, so that the OOM killer ends its worker.
    Oom,
}

/// Why a guest did not get to its jobs' end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// The kernel refused, or does not have, a setting that was asked for.
    Refused(String),
    /// Anything else.
    Failed(String),
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// The output of a guest, one JSON line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum GuestRecord {
    /// The kernel's files at one moment: `booted`, or `recomputed` after the marks were recomputed.
    Capture {
        /// Which moment.
        phase: String,
        /// The files.
        files: Capture,
    },
    /// The first job starts now.
    FirstOperation,
    /// Every frame as it was just before a job, which comes next.
    Frames {
        /// Which job of the plan.
        index: usize,
        /// The frames.
        recorded: Recorded,
    },
    /// The guest's time just before a job.
    Clock {
        /// Which job of the plan.
        index: usize,
        /// The guest's monotonic clock, in nanoseconds.
        at_ns: u64,
    },
    /// A worker's line, or why there is none.
    Job {
        /// Which job of the plan.
        index: usize,
        /// The line as JSON, or what went wrong.
        outcome: Result<serde_json::Value, String>,
    },
    /// The end. A stream without it is an error.
    Exit {
        /// How many records came before this one.
        records: usize,
        /// An error outside of jobs.
        error: Option<Problem>,
    },
}

/// The word on the kernel's command line that marks our guests; the kernel hands it to init as an environment variable.
pub(crate) const MARK: &str = "PAGELAB_GUEST";

/// Whether this process is the init of one of our guests: process 1, marked, and with the plan at the root.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::var_os(MARK).is_some() && Path::new("/").join(PLAN_PATH).exists()
}

/// Init as process 1. Never returns.
pub fn main() -> ! {
    let outcome = prepare().and_then(|mut port| {
        let error = work(&mut port).err();
        let records = port.sent;
        port.send(&GuestRecord::Exit { records, error })?;
        port.drain()
    });
    if let Err(message) = outcome {
        // Without the port, the console is all there is: it becomes the guest's last lines.
        let _ = writeln!(io::stderr(), "pagelab init: {message}");
    }
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // A machine that cannot power off halts here; the host has the exit record and ends it.
    loop {
        std::thread::park();
    }
}

/// The data port.
struct Port {
    file: File,
    sent: usize,
}

impl Port {
    fn open() -> Result<Self, String> {
        let file = OpenOptions::new().write(true).open(DATA_PORT).map_err(|error| format!("{DATA_PORT}: {error}"))?;
        let mut modes = termios::tcgetattr(&file).map_err(|error| format!("{DATA_PORT}: {error}"))?;
        termios::cfmakeraw(&mut modes);
        termios::tcsetattr(&file, SetArg::TCSANOW, &modes).map_err(|error| format!("{DATA_PORT}: {error}"))?;
        Ok(Self { file, sent: 0 })
    }

    fn send(&mut self, record: &GuestRecord) -> Result<(), String> {
        let mut line = serde_json::to_vec(record).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| format!("{DATA_PORT}: {error}"))?;
        self.sent += 1;
        Ok(())
    }

    fn drain(&self) -> Result<(), String> {
        termios::tcdrain(&self.file).map_err(|error| format!("{DATA_PORT}: {error}"))
    }
}

fn prepare() -> Result<Port, String> {
    const MOUNTS: [(&str, &str); 4] = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")];
    for (kind, target) in MOUNTS {
        fs::create_dir_all(target).map_err(|error| format!("{target}: {error}"))?;
        mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)
            .map_err(|error| format!("mount {kind} on {target}: {error}"))?;
    }
    Port::open()
}

fn work(port: &mut Port) -> Result<(), Problem> {
    let plan = fs::read(Path::new("/").join(PLAN_PATH)).map_err(|error| format!("{PLAN_PATH}: {error}"))?;
    let plan: Plan = serde_json::from_slice(&plan).map_err(|error| format!("{PLAN_PATH}: {error}"))?;
    let booted = Capture::live().map_err(|error| error.to_string())?;
    load_modules()?;
    if let Some(disk) = plan.disk {
        disk::attach(disk)?;
    }
    // A kernel that cannot count fallbacks goes without; results say so.
    let _ = tracing::start();
    balloon::check(&plan.settings).map_err(Problem::Refused)?;
    for (name, value) in setting::in_order(&plan.settings).into_iter().filter(|(name, _)| !balloon::is_outside(name)) {
        setting::write(&name, &value).map_err(|error| Problem::Refused(error.to_string()))?;
    }
    recompute()?;
    take(plan.held)?;
    let recomputed = Capture::live().map_err(|error| error.to_string())?;
    check_shape(&plan, &recomputed)?;
    match plan.inject {
        None => {}
        Some(Fault::Panic) => fs::write("/proc/sysrq-trigger", "c").map_err(|error| error.to_string())?,
        Some(Fault::Hang) => loop {
            std::thread::park();
        },
        Some(Fault::Exit) => std::process::exit(0),
        Some(Fault::Oom) => take_memory(&recomputed)?,
    }
    for (phase, files) in [("booted", booted), ("recomputed", recomputed)] {
        port.send(&GuestRecord::Capture { phase: phase.to_owned(), files })?;
    }
    port.send(&GuestRecord::FirstOperation)?;
    // The port empties in the background; the first job must not share the machine with it.
    port.drain()?;
    let mut recorder = if plan.frames { Some(Recorder::open().map_err(|error| error.to_string())?) } else { None };
    for (index, job) in plan.jobs.iter().enumerate() {
        if plan.clock {
            port.send(&GuestRecord::Clock { index, at_ns: monotonic_ns() })?;
            port.drain()?;
        }
        let stood_still = recorder.as_mut().map(Recorder::record).transpose().map_err(|error| error.to_string())?;
        let outcome = run_job(job);
        // Only now: what is said takes memory.
        if let (Some(recorder), Some(stood_still)) = (&recorder, stood_still) {
            port.send(&GuestRecord::Frames { index, recorded: recorder.recorded(stood_still) })?;
        }
        port.send(&GuestRecord::Job { index, outcome })?;
        port.drain()?;
    }
    Ok(())
}

fn run_job(job: &serde_json::Value) -> Result<serde_json::Value, String> {
    let order = serde_json::to_vec(job).map_err(|error| error.to_string())?;
    let line = worker::run(&order, None, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    serde_json::from_str(&line).map_err(|error| format!("the worker's line is not JSON: {error}"))
}

/// Takes memory for good.
fn take(frames: Frames) -> Result<(), String> {
    if frames == Frames(0) {
        return Ok(());
    }
    let range = memory::map_anonymous(frames.bytes()).map_err(|errno| format!("taking {frames} frames: {errno}"))?;
    memory::advise(range, os::Advice::NoHugePage).map_err(|errno| format!("taking {frames} frames: {errno}"))?;
    memory::store(range, Bytes::PAGE);
    Ok(())
}

/// Takes all memory but 48 MiB, for good. The OOM killer never picks init, so it picks the worker.
fn take_memory(capture: &Capture) -> Result<(), String> {
    let snapshot = Snapshot::parse(capture).map_err(|error| error.to_string())?;
    let available = Bytes::kib(snapshot.meminfo.get("MemAvailable").copied().unwrap_or(0));
    take(Bytes(available.0.saturating_sub(Bytes::mib(48).0)).frames())
}

/// Loads the packed modules in the order of their names.
fn load_modules() -> Result<(), String> {
    let directory = Path::new("/").join(MODULES_PATH);
    let Ok(entries) = fs::read_dir(&directory) else { return Ok(()) };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    for path in files {
        let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        nix::kmod::finit_module(&file, c"", nix::kmod::ModuleInitFlags::empty())
            .map_err(|error| format!("loading {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Writes back `lowmem_reserve_ratio` and `min_free_kbytes`, which makes the kernel recompute all marks from the pages
/// it manages now: at boot they were computed before the pages of init and of the boot allocator were given back.
fn recompute() -> Result<(), String> {
    for name in ["vm.lowmem_reserve_ratio", "vm.min_free_kbytes"] {
        let value = setting::read(name).map_err(|error| error.to_string())?;
        setting::write(name, &value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The kernel image and its data stay out of `managed`, more of it on small machines; a node that lost more than this
/// share of what was asked is not the machine that was asked for.
const LOST_AT_MOST: Bytes = Bytes::mib(96);
/// Memory behind one byte of struct pages: a disk that lies in memory costs its node these, though no zone manages it.
const MEMORY_PER_STRUCT_PAGES: u64 = 64;

/// Memory of a node that its zones may lack.
fn lost_at_most(plan: &Plan, asked: Bytes) -> Bytes {
    let in_memory = plan.disk.filter(|disk| disk.medium == Medium::Pmem);
    let behind = in_memory.map_or(Bytes(0), |disk| disk::layout(asked, disk).extra);
    Bytes(LOST_AT_MOST.0.max(asked.0 / 16) + behind.0 / MEMORY_PER_STRUCT_PAGES)
}

fn check_shape(plan: &Plan, capture: &Capture) -> Result<(), String> {
    let snapshot = Snapshot::parse(capture).map_err(|error| error.to_string())?;
    if snapshot.nodes.len() != plan.nodes.len() {
        return Err(format!("asked for {} nodes, the kernel has {}", plan.nodes.len(), snapshot.nodes.len()));
    }
    for (id, asked) in (0..).map(NodeId).zip(&plan.nodes) {
        let found = snapshot.nodes.iter().find(|node| node.id == id);
        let found = found.ok_or_else(|| format!("asked for node {id}, the kernel does not have it"))?;
        if found.cpus != asked.cpus {
            return Err(format!("node {id}: asked for CPUs {:?}, the kernel has {:?}", asked.cpus, found.cpus));
        }
        let managed: Frames = snapshot.zones.iter().filter(|zone| zone.node == id).map(|zone| zone.managed).sum();
        if managed.bytes() + lost_at_most(plan, asked.memory) < asked.memory {
            let managed = managed.bytes().as_mib();
            return Err(format!("node {id}: asked for {}, the kernel manages {managed} MiB", asked.memory));
        }
    }
    Ok(())
}
