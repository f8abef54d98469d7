//! Fallbacks of the page allocator, which /proc/vmstat does not count: events of `mm_page_alloc_extfrag`, by kind.
//!
//! In guests histogram triggers count them in the kernel, so that none is lost (Documentation/trace/histogram.rst, v6.1). A
//! kernel without them, and a machine that others use, gets a trace instance of our own, with buffers of its own
//! (Documentation/trace/ftrace.rst, "Instances"): its lines are read and counted, and what did not fit is known.

mod histogram;
mod lines;

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};
use units::{ExtfragCounts, Mobility, Order};

use crate::{guard::Guard, procfs::pagetypeinfo};

/// Where tracefs is mounted, and where it was before 4.1.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Pages of one mobility taken from a block of another.
const EVENT: &str = "events/kmem/mm_page_alloc_extfrag";
/// The instance of a guest's init.
const OF_GUEST: &str = "pagelab";
/// KiB of an instance's buffer on each CPU: some 40,000 events.
const BUFFER_KIB: &str = "2048";

/// The counter of fallbacks for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Watch {
    /// No counter, for this reason.
    Nobody(String),
    /// The init of the guest that it runs in, however it can.
    Init,
    /// The buffers of this instance.
    Instance(PathBuf),
}

impl Default for Watch {
    fn default() -> Self {
        Self::Nobody("nobody was asked to".to_owned())
    }
}

impl Watch {
    /// Starts an instance on a machine that others use. The guard removes it at the end.
    pub fn start(guard: &mut Guard) -> Self {
        match start_guarded(guard) {
            Ok(instance) => Self::Instance(instance),
            Err(reason) => Self::Nobody(reason),
        }
    }
}

fn start_guarded(guard: &mut Guard) -> Result<PathBuf, String> {
    let name = format!("{OF_GUEST}-{}", std::process::id());
    let instances = TRACEFS.map(|tracefs| Path::new(tracefs).join("instances"));
    let there = instances.iter().find(|instances| instances.is_dir());
    let instance = there.ok_or_else(|| format!("{} is not mounted", TRACEFS[0]))?.join(name);
    // Known to the guard before it exists, so that there is no moment at which it could be left behind.
    guard.remove_instance_at_end(&instance).map_err(|error| explain(&instance, &error))?;
    start_instance(&instance)?;
    Ok(instance)
}

fn explain(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn start_instance(instance: &Path) -> Result<(), String> {
    fs::create_dir(instance).map_err(|error| explain(instance, &error))?;
    for (file, value) in [("buffer_size_kb", BUFFER_KIB), (&format!("{EVENT}/enable"), "1")] {
        let path = instance.join(file);
        fs::write(&path, value).map_err(|error| explain(&path, &error))?;
    }
    Ok(())
}

/// In a guest: counts fallbacks from now on. A kernel that cannot says why.
pub(crate) fn start() -> Result<(), String> {
    let tracefs = TRACEFS[0];
    mount(Some("tracefs"), tracefs, Some("tracefs"), MsFlags::empty(), None::<&str>)
        .map_err(|error| explain(Path::new(tracefs), &error))?;
    let tracefs = Path::new(tracefs);
    if start_histograms(&tracefs.join(EVENT).join("trigger")).is_ok() {
        return Ok(());
    }
    start_instance(&tracefs.join("instances").join(OF_GUEST))
}

fn start_histograms(trigger: &Path) -> io::Result<()> {
    for trigger_text in histogram::triggers(&Numbers::live()) {
        // Opened anew each time, and not truncated: a file that is opened for writing alone loses its triggers.
        OpenOptions::new().append(true).open(trigger)?.write_all(trigger_text.as_bytes())?;
    }
    Ok(())
}

// ---- What the kernel calls mobilities

/// The mobility of each number in `enum migratetype`, and the order of a pageblock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    types: Vec<Option<Mobility>>,
    pageblock_order: Order,
}

/// The event numbers of a kernel with huge pages, 4.4 or later.
impl Default for Numbers {
    fn default() -> Self {
        Self { types: Mobility::ALL.map(Some).to_vec(), pageblock_order: Order::HUGE }
    }
}

impl Numbers {
    /// As /proc/pagetypeinfo lists them: its columns are in the order of `enum migratetype` (mm/vmstat.c, v3.10 to v6.1), whose
    /// second and third changed places in 4.4.
    fn live() -> Self {
        let text = fs::read_to_string("/proc/pagetypeinfo").unwrap_or_default();
        Self::of(&text)
    }

    fn of(text: &str) -> Self {
        let Ok(info) = pagetypeinfo::parse(text) else { return Self::default() };
        let Some(zone) = info.blocks.first() else { return Self::default() };
        let of = |name: &str| Mobility::ALL.into_iter().find(|mobility| mobility.name().eq_ignore_ascii_case(name));
        let types: Vec<Option<Mobility>> = zone.blocks.iter().map(|(name, _)| of(name)).collect();
        let pageblock_order = u8::try_from(info.pageblock_order).map_or(Order::HUGE, Order);
        Self { types, pageblock_order }
    }

    fn mobility(&self, number: u64) -> Option<Mobility> {
        self.types.get(usize::try_from(number).ok()?).copied().flatten()
    }

    fn number(&self, mobility: Mobility) -> Option<usize> {
        self.types.iter().position(|of| *of == Some(mobility))
    }
}

// ---- Reading

/// Fallbacks since somebody began to count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// By kind.
    pub counts: ExtfragCounts,
    /// Events that no buffer had room for.
    pub lost: u64,
}

impl Fallbacks {
    /// Those since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { counts: self.counts.since(&earlier.counts), lost: self.lost.saturating_sub(earlier.lost) }
    }
}

/// Reads what is counted for a worker.
#[derive(Debug)]
pub(crate) struct Reader {
    numbers: Numbers,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Nothing(String),
    Histograms(PathBuf),
    /// Counts of the buffers of an instance so far, and that instance.
    Buffers(Box<ExtfragCounts>, PathBuf),
}

impl Reader {
    pub(crate) fn new(watch: Watch) -> Self {
        let buffers = |instance| Source::Buffers(Box::default(), instance);
        let source = match watch {
            Watch::Nobody(reason) => Source::Nothing(reason),
            Watch::Instance(instance) => buffers(instance),
            Watch::Init => {
                let tracefs = Path::new(TRACEFS[0]);
                let (hist, instance) = (tracefs.join(EVENT).join("hist"), tracefs.join("instances").join(OF_GUEST));
                if instance.is_dir() {
                    buffers(instance)
                } else if fs::read_to_string(&hist).is_ok_and(|text| histogram::is_any(&text)) {
                    Source::Histograms(hist)
                } else {
                    Source::Nothing("the guest's kernel has no histogram triggers and no trace instances".to_owned())
                }
            }
        };
        // Reading them takes time, which a worker's children do not give to what they do not need.
        let numbers = if let Source::Nothing(_) = source { Numbers::default() } else { Numbers::live() };
        Self { numbers, source }
    }

    /// log2 of the frames in a pageblock.
    pub(crate) fn pageblock_order(&self) -> Order {
        self.numbers.pageblock_order
    }

    /// Fallbacks up to now, or the reason why they are not counted.
    pub(crate) fn read(&mut self) -> Result<Fallbacks, String> {
        let Self { numbers, source } = self;
        match source {
            Source::Nothing(reason) => Err(reason.clone()),
            Source::Histograms(hist) => {
                let text = fs::read_to_string(&*hist).map_err(|error| explain(hist, &error))?;
                Ok(histogram::parse(&text, numbers))
            }
            Source::Buffers(counts, instance) => {
                let lost = drain(instance, numbers, counts).map_err(|error| explain(instance, &error))?;
                Ok(Fallbacks { counts: (**counts).clone(), lost })
            }
        }
    }
}

/// Reads at a time.
const CHUNK: usize = 1 << 16;

/// Counts what the buffers of all CPUs hold, which empties them. How many events had no room in them, ever.
fn drain(instance: &Path, numbers: &Numbers, counts: &mut ExtfragCounts) -> io::Result<u64> {
    let mut lost = 0;
    for cpu in fs::read_dir(instance.join("per_cpu"))? {
        let cpu = cpu?.path();
        let mut text = String::new();
        let mut chunk = vec![0; CHUNK];
        let mut pipe =
            OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(cpu.join("trace_pipe"))?;
        // Bound: what a buffer holds; what comes meanwhile may be read too.
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => text += &String::from_utf8_lossy(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Lines are whole, but may come in several reads.
            let end = text.rfind('\n').map_or(0, |end| end + 1);
            lines::count(&text[..end], numbers, counts);
            text.drain(..end);
        }
        lost += lines::lost(&fs::read_to_string(cpu.join("stats"))?);
    }
    Ok(lost)
}

#[cfg(test)]
mod tests;
