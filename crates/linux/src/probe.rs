//! Timing small parts of the kernel and of the machine, from user space, without changing anything. Privileges are needed for
//! one of them only.
//!
//! | file | what it times |
//! |---|---|
//! | `entry.rs` | system calls, an exception that needs no memory management, finding a VMA |
//! | `memory.rs` | clearing and copying frames, in and out of the caches |
//! | `mapping.rs` | mappings of a file in memory: VMAs, page-table entries, flushes, unmapping, LRU lists, stores |
//! | `zero_page.rs` | faults that map the zero page, and taking it away again |
//! | `allocation.rs` | frames that pipes and files in memory take and give back |
//! | `packet_ring.rs` | freeing blocks of frames of two orders (`CAP_NET_RAW`) |
//! | `structures.rs` | lists and locks of our own with the kernel's access patterns |
//! | `pairs.rs` | two threads: interrupts between CPUs, context switches, cache lines, wake-ups |
//!
//! Nothing here takes a fault that allocates, copies or frees anonymous memory: what is composed of these parts can be
//! compared with such faults.
//! One thread's work is timed by its own CPU time, which a busy machine disturbs least.

mod allocation;
mod entry;
mod mapping;
mod memory;
mod packet_ring;
mod pairs;
mod structures;
mod zero_page;

use std::thread;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuId};

use crate::{host, worker::start_in};

/// One thing that is timed. Samples are picoseconds per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Raw {
    /// `getuid`.
    SystemCall,
    /// A load from a private page that was never stored to: a fault that maps the zero page, in a table that is there.
    ZeroFault,
    /// `madvise(MADV_DONTNEED)` of pages that map the zero page, per page: its entry is taken away and nothing else.
    ZeroForget,
    /// Clearing 4 KiB that are in no cache, each block above the last.
    ClearUp,
    /// Clearing blocks, each below the last.
    ClearDown,
    /// Clearing 4 KiB that are in the L2 cache.
    ClearHot,
    /// Copying 4 KiB from and to memory in no cache, each block below the last.
    CopyDown,
    /// `mmap` of private memory that nobody touches, and its `munmap`.
    MapUnmap,
    /// `mprotect` to read-only of [`FEW_PAGES`] present pages.
    ProtectFew,
    /// As `ProtectFew`, twice as many pages.
    ProtectTwice,
    /// As `ProtectFew`, [`SOME_PAGES`].
    ProtectSome,
    /// As `ProtectFew`, half of [`SOME_PAGES`].
    ProtectHalf,
    /// As `ProtectFew`, with [`FEW_PAGES`] pages whose entries are empty: nothing is flushed.
    ProtectEmpty,
    /// `mprotect` to read-only of [`MANY_PAGES`] present pages.
    ProtectMany,
    /// `mincore` of [`FEW_PAGES`] present pages.
    ScanFew,
    /// `mincore` of [`MANY_PAGES`] present pages.
    ScanMany,
    /// `munmap` of [`MANY_PAGES`] present pages of a file, only loaded from, which stay in the file.
    UnmapPresent,
    /// As `UnmapPresent`, when no page is present, but the page tables are.
    UnmapAbsent,
    /// `munlock` of present pages of a file, per page: off one LRU list, on another.
    Unlock,
    /// As `Unlock`, while another mapping still locks the pages: they stay where they are (5.18 and later).
    UnlockShared,
    /// A store to each present base page of a mapping, in address order, per page.
    Touch,
    /// A store to every byte of the same, per page.
    Fill,
    /// A packet of one byte written to a pipe and read from it, one after the other: the pipe keeps its page.
    PacketPair,
    /// A packet of one byte written to a pipe: takes a page.
    PacketWrite,
    /// A packet of one byte read from a pipe: gives the page back.
    PacketRead,
    /// A byte written to a pipe that has room in its last page.
    ByteWrite,
    /// A byte read from a page that stays.
    ByteRead,
    /// A read behind the end of `/proc/self/environ`, for which the kernel takes a page, not charged, and gives it back.
    EnvironRead,
    /// A read behind the end of `/proc/self/cmdline`, for which it takes none.
    CmdlineRead,
    /// `fallocate` of a file in memory, per page: a charged page on the LRU, in a file's tree, not cleared.
    Fallocate,
    /// `ftruncate` of the same, per page.
    Truncate,
    /// Taking the first node of a list of 64-byte nodes in address order and pushing it to another, in the L2 cache.
    ListMove,
    /// As `ListMove`, of a shuffled list in no cache.
    ListMoveShuffled,
    /// Changing each of 512 64-byte nodes in address order, in memory in no cache, per node.
    TailFrame,
    /// Freeing a frame of a packet socket's ring, with its share of the system call.
    FreeSingle,
    /// As `FreeSingle`, a block of 2 MiB.
    FreeHuge,
    /// Filling a page of 4 KiB that was just cleared word by word, per word.
    PteStore,
    /// Taking and releasing a lock that nobody else wants.
    LockPair,
    /// `membarrier` while the process runs on one CPU only.
    MembarrierAlone,
    /// `membarrier` while a second thread runs on another CPU: interrupts it and waits.
    MembarrierPaired,
    /// Time that one of these interrupts takes from the second thread.
    Interrupted,
    /// `sched_yield` from one thread to another of its process on the same CPU.
    Switch,
    /// Half a round trip of a word between two CPUs.
    LineTransfer,
    /// From a wake-up of a thread on an idle CPU to its first instruction.
    WakeUp,
}

const RAWS: usize = Raw::WakeUp as usize + 1;

/// A range that is flushed whole (more than `tlb_single_page_flush_ceiling`, 33) and yet is few entries.
pub const FEW_PAGES: i64 = 40;
/// A range that is flushed page by page.
pub const SOME_PAGES: i64 = 32;
/// A range over which what is done once does not count.
pub const MANY_PAGES: i64 = 4096;

/// The samples of one round of probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples(Vec<Option<i64>>);

impl Default for Samples {
    /// Nothing was timed.
    fn default() -> Self {
        Self(vec![None; RAWS])
    }
}

impl Samples {
    /// Picoseconds per operation; nothing when it could not be timed.
    pub fn get(&self, raw: Raw) -> Option<i64> {
        self.0[raw as usize]
    }

    /// Notes a sample.
    pub fn set(&mut self, raw: Raw, ps: i64) {
        self.0[raw as usize] = Some(ps);
    }
}

/// Where and with how much the probes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The CPU of nearly everything.
    pub cpu: CpuId,
    /// The CPU of the second thread: on another core, where there is one.
    pub partner: Option<CpuId>,
    /// Memory that may be used.
    pub memory: Bytes,
}

/// All rounds, and what could not be timed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rounds {
    /// In the order in which they were taken.
    pub samples: Vec<Samples>,
    /// Figures that are missing in all rounds from some round on, and why.
    pub absent: Vec<(Raw, String)>,
}

/// Rounds before the first that counts: caches, branch predictors and memory that a hypervisor has not backed yet.
const WARMUP: u32 = 2;
/// Of a memory budget this fraction is one buffer; clearing, copying and the file make up the rest.
const BUFFER_SHARE: u64 = 2;
/// Beyond this a larger buffer only takes longer to set up.
const BUFFER_MAX: Bytes = Bytes::mib(256);

/// Runs round after round while `more`, which is told how many are done, says so. A round takes some tens of milliseconds.
///
/// # Errors
/// No thread can be had.
pub fn run(setting: Setting, more: &mut (dyn FnMut(usize) -> bool + Send)) -> Result<Rounds, String> {
    // A thread of its own: the caller's affinity stays as it is.
    let work = || {
        host::pin(setting.cpu);
        rounds(setting, more)
    };
    thread::scope(|scope| {
        let rounds = start_in(scope, work)?.join();
        Ok(rounds.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn rounds(setting: Setting, more: &mut (dyn FnMut(usize) -> bool + Send)) -> Rounds {
    let mut rounds = Rounds::default();
    let mut probes = Vec::new();
    let buffer = Bytes(setting.memory.0 / BUFFER_SHARE).min(BUFFER_MAX);
    let kinds = [
        entry::probes(),
        memory::probes(buffer),
        mapping::probes(),
        zero_page::probes(),
        allocation::probes(),
        packet_ring::probes(),
        structures::probes(),
    ];
    for found in kinds.into_iter().flatten().chain(pairs::probes(setting.cpu, setting.partner)) {
        match found {
            Ok(probe) => probes.push(probe),
            Err(absent) => rounds.absent.extend(absent.gives.iter().map(|raw| (*raw, absent.why.clone()))),
        }
    }
    for _ in 0..WARMUP {
        round(&mut probes, &mut rounds.absent);
    }
    // Bound: the caller's.
    while more(rounds.samples.len()) {
        let samples = round(&mut probes, &mut rounds.absent);
        rounds.samples.push(samples);
    }
    rounds
}

/// Every probe once, one after the other, so that a disturbance hits all alike.
fn round(probes: &mut Vec<Probe>, absent: &mut Vec<(Raw, String)>) -> Samples {
    let mut samples = Samples::default();
    probes.retain_mut(|probe| match (probe.take)(&mut samples) {
        Ok(()) => true,
        Err(why) => {
            absent.extend(probe.gives.iter().map(|raw| (*raw, why.clone())));
            false
        }
    });
    samples
}

/// Figures that are timed together. A failure is said in words and ends the probe.
struct Probe {
    gives: &'static [Raw],
    take: Box<Take>,
}

/// Figures that cannot be timed here, and why.
struct Absent {
    gives: &'static [Raw],
    why: String,
}

type Take = dyn FnMut(&mut Samples) -> Result<(), String>;
type Found = Result<Probe, Absent>;

#[expect(clippy::unnecessary_wraps, reason = "what is found is a probe, or absent")]
fn probe(gives: &'static [Raw], take: impl FnMut(&mut Samples) -> Result<(), String> + 'static) -> Found {
    Ok(Probe { gives, take: Box::new(take) })
}

fn absent(gives: &'static [Raw], why: impl Into<String>) -> Found {
    Err(Absent { gives, why: why.into() })
}

/// CPU time of this thread in nanoseconds.
fn thread_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux knows a thread's CPU time");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// This thread's CPU time for `body`, in nanoseconds.
fn timed(body: impl FnOnce()) -> i64 {
    let start = thread_ns();
    body();
    thread_ns() - start
}

/// Picoseconds per operation when `times` of them took `ns`.
fn each(ns: i64, times: i64) -> i64 {
    ns * 1000 / times
}

/// The name of an error of a system call, for the reason why something is absent.
fn failed(call: &'static str) -> impl Fn(nix::errno::Errno) -> String {
    move |errno| format!("{call}: {}", errno.desc())
}

/// The kernel's name for the CPUs of this machine.
pub fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "CPU of unknown model".to_owned(), |(_, model)| model.trim().to_owned())
}
