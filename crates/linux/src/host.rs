//! `Os` by system calls: on this machine, and inside a guest by the same binary.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use os::{
    Accessed, Advice, Amount, Barrier, Died, File, MapSpec, Mempolicy, Moves, NumaNode, Os, Pattern, Placed, Placement,
    Runs, Rusage, VmRange, VmStat, Wire,
};
use units::{BlockCensus, Bytes, CpuId, Errno, FrameChurn, FrameChurned, NodeId, Order, Picos, Stores, Streamed, Time};

use crate::{
    access,
    barrier::SharedBarrier,
    file::{Files, Ground},
    fork,
    memory::{self, FileMapping},
    moves, numa, pin, places, process, procfs, stores,
    tracing::{self, Fallbacks, Watch},
    worker,
};

/// A handle on the Linux kernel that this program runs on.
#[derive(Clone, Debug)]
pub struct Linux {
    pub(crate) shared: Arc<Shared>,
}

/// State that all tasks of one process share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `CLOCK_MONOTONIC` at the start of the run, in ns; the same in every process of the run.
    pub(crate) epoch_ns: u64,
    /// The CPUs of the run, cores before their second hardware threads.
    pub(crate) cpus: Vec<CpuId>,
    /// Bytes that this process may still map.
    pub(crate) left: AtomicU64,
    /// Directory and memory of the run, and its rights on the machine.
    pub(crate) files: Files,
    /// Tasks of this process that have not ended.
    pub(crate) tasks: AtomicU32,
    /// Barriers that somebody here made or used.
    pub(crate) barriers: Mutex<Vec<Arc<SharedBarrier>>>,
    /// A task of this process has panicked, so that what others count is never full.
    panicked: AtomicBool,
    /// The counter of fallbacks.
    fallbacks: Mutex<tracing::Reader>,
}

impl Linux {
    /// A handle for a new run on `cpus` (in the order in which tasks are spread over them) that maps at most `cap` bytes.
    pub fn new(cpus: Vec<CpuId>, cap: Bytes, ground: Ground) -> Self {
        Self::resume(monotonic_ns(), cpus, cap, ground)
    }

    /// A handle for a process of a run that started elsewhere at `epoch_ns`.
    pub(crate) fn resume(epoch_ns: u64, cpus: Vec<CpuId>, cap: Bytes, ground: Ground) -> Self {
        assert!(!cpus.is_empty(), "a run needs at least one CPU");
        raise_open_files();
        let left = AtomicU64::new(cap.0);
        let tasks = AtomicU32::new(1);
        let files = Files::new(ground);
        let fallbacks = Mutex::new(tracing::Reader::new(Watch::default()));
        let (barriers, panicked) = (Mutex::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { epoch_ns, cpus, left, files, tasks, barriers, panicked, fallbacks }) }
    }

    /// Reads fallbacks of the page allocator from here on, in this process: [`Os::vmstat`] has them too.
    pub fn watch(&self, watch: Watch) {
        *self.shared.fallbacks.lock().expect("no task panics while it reads") = tracing::Reader::new(watch);
    }

    /// Fallbacks of the whole machine since they are counted. The reason where they are not.
    pub fn fallbacks(&self) -> Result<Fallbacks, String> {
        self.shared.fallbacks.lock().expect("no task panics while it reads").read()
    }

    /// log2 of the frames in a pageblock.
    pub fn pageblock_order(&self) -> Order {
        self.shared.fallbacks.lock().expect("no task panics while it reads").pageblock_order()
    }

    pub(crate) fn barrier_of(&self, handle: Barrier) -> Result<Arc<SharedBarrier>, Errno> {
        let mut barriers = self.shared.barriers.lock().expect("no task panics while it holds the list of barriers");
        if let Some(known) = barriers.iter().find(|known| known.handle() == handle) {
            return Ok(Arc::clone(known));
        }
        let barrier = Arc::new(SharedBarrier::open(handle)?);
        barriers.push(Arc::clone(&barrier));
        Ok(barrier)
    }

    /// Tells everybody who waits for the dead that they wait in vain.
    pub(crate) fn cancel_all(&self) {
        for barrier in self.shared.barriers.lock().expect("no task panics while it holds the list").iter() {
            barrier.cancel();
        }
    }
}

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The CPUs that this process may run on, first hardware threads of all cores first.
pub fn usable_cpus() -> Vec<CpuId> {
    // A machine with more possible CPUs than the set holds refuses the call; then all that are online may be used.
    let allowed: Vec<CpuId> = match sched_getaffinity(Pid::from_raw(0)) {
        Ok(allowed) => {
            let all = (0..u32::try_from(CpuSet::count()).expect("CPU sets are small")).map(CpuId);
            all.filter(|cpu| allowed.is_set(cpu.0 as usize).unwrap_or(false)).collect()
        }
        Err(_) => std::fs::read_to_string(ONLINE)
            .ok()
            .and_then(|text| procfs::list::cpus(ONLINE, &text).ok())
            .unwrap_or_else(|| vec![CpuId(0)]),
    };
    let mut cpus: Vec<_> = allowed.into_iter().map(|cpu| (thread_in_core(cpu), cpu)).collect();
    cpus.sort_unstable();
    cpus.into_iter().map(|(_, cpu)| cpu).collect()
}

/// 0 for the first hardware thread of a core, 1 for the second, ...; 0 where the topology is not exposed.
fn thread_in_core(cpu: CpuId) -> usize {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| procfs::list::cpus(&file, &text).ok())
        .and_then(|siblings| siblings.iter().position(|sibling| *sibling == cpu))
        .unwrap_or(0)
}

/// The most memory this process has had resident, in KiB (`ru_maxrss`, getrusage(2)).
pub fn max_rss_kib() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss().cast_unsigned())
}

/// Memory that the memory cgroup of this process leaves, where there is one with a limit (cgroup v2, `memory.max` of it and of
/// its ancestors; Documentation/admin-guide/cgroup-v2.rst).
pub fn memory_limit() -> Option<Bytes> {
    let of = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = of.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |file: std::path::PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let root = std::path::Path::new("/sys/fs/cgroup");
    let left = |group: &std::path::Path| {
        let (max, now) = (number(group.join("memory.max"))?, number(group.join("memory.current"))?);
        Some(Bytes(max.saturating_sub(now)))
    };
    root.join(path).ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

/// Offers this process and its children to the OOM killer first: on a machine that others use, it should pick us.
pub fn volunteer_for_oom() {
    // Raising one's own score needs no privilege; where /proc is restricted, the default stays.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Lets this process and its children open as many files as it may (`ulimit -n`); root may open as many as the kernel allows any
/// process.
fn raise_open_files() {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    // Who may not raise the hard limit stays below it.
    let raised = most.is_some_and(|most: u64| setrlimit(Resource::RLIMIT_NOFILE, most, most.max(hard)).is_ok());
    if !raised {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The name of this computer (`uname -n`).
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Pins the calling thread, or lets it run on all of the run's CPUs, wherever its parent was.
pub(crate) fn place(cpus: &[CpuId], on: Placement) {
    match on {
        Placement::Spread(index) => pin(cpus[index as usize % cpus.len()]),
        Placement::Free => allow(cpus),
    }
}

/// To one CPU.
pub(crate) fn pin(cpu: CpuId) {
    allow(&[cpu]);
}

fn allow(cpus: &[CpuId]) {
    // A CPU that went offline since leaves the task where it is: the run goes on, only less evenly spread.
    let _ = set_affinity(cpus);
}

fn set_affinity(cpus: &[CpuId]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu.0 as usize).map_err(errno)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(errno)
}

/// Sets the nice level of the calling thread, which its children inherit.
fn set_nice(level: i8) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "nix does not wrap setpriority")]
    // SAFETY: the call takes three numbers and touches no memory.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, level.into()) };
    if status == 0 { Ok(()) } else { Err(errno(nix::errno::Errno::last())) }
}

/// The time that the calling thread has used of its CPU, in ns.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock");
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has a monotonic clock");
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

/// Runs a future of this target to its end. Every operation of the target completes inside its first poll, so there is
/// nothing to wake.
///
/// # Panics
/// When the future suspends: then it awaited something that is not of this target.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an operation of the linux target suspended"),
    }
}

pub(crate) fn errno(errno: nix::errno::Errno) -> Errno {
    Errno(errno as i32)
}

/// A thread's end: there is one task less, and when it panicked the others are freed, as they may be waiting for it at a
/// barrier.
struct ThreadEnd(Linux);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        self.0.shared.tasks.fetch_sub(1, Ordering::Release);
        if std::thread::panicking() {
            self.0.shared.panicked.store(true, Ordering::Release);
            self.0.cancel_all();
        }
    }
}

impl Os for Linux {
    fn now(&self) -> Time {
        Time(Picos::from_nanos(monotonic_ns() - self.shared.epoch_ns).0)
    }

    fn cpus(&self) -> u32 {
        u32::try_from(self.shared.cpus.len()).expect("fewer than 2^32 CPUs")
    }

    fn memory(&self) -> Bytes {
        self.shared.files.memory()
    }

    fn nodes(&self) -> Vec<NumaNode> {
        numa::nodes(&self.shared.cpus, self.memory())
    }

    async fn set_affinity(&self, cpus: &[CpuId]) -> Result<(), Errno> {
        set_affinity(cpus)
    }

    fn nice_children(&self, level: i8) -> Result<(), Errno> {
        set_nice(level)
    }

    async fn set_mempolicy(&self, policy: &Mempolicy) -> Result<(), Errno> {
        numa::set_mempolicy(policy)
    }

    async fn node_of(&self, range: VmRange) -> Result<Vec<Option<NodeId>>, Errno> {
        numa::node_of(range)
    }

    async fn compute(&self, span: Picos) {
        let until = thread_ns() + span.as_nanos();
        while thread_ns() < until {
            std::hint::spin_loop();
        }
    }

    async fn sleep(&self, span: Picos) {
        std::thread::sleep(std::time::Duration::from_nanos(span.as_nanos()));
    }

    async fn mmap(&self, len: Bytes, spec: MapSpec) -> Result<VmRange, Errno> {
        // Pages of a shared mapping are the file's, whose size has a limit of its own.
        let own = if spec.is_private() { len.0 } else { 0 };
        let reserve = |left: u64| left.checked_sub(own);
        self.shared.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).map_err(|_| Errno::NOMEM)?;
        let files = &self.shared.files;
        let mapped = match spec {
            MapSpec::Anonymous => memory::map_anonymous(len),
            MapSpec::Private(part) => files.map(part, len, FileMapping::Private),
            MapSpec::Shared(part) => files.map(part, len, FileMapping::Shared),
            MapSpec::SharedRead(part) => files.map(part, len, FileMapping::SharedRead),
        };
        match mapped {
            Ok(range) if own == 0 => files.note_shared(range),
            Ok(_) => {}
            Err(_) => {
                self.shared.left.fetch_add(own, Ordering::Relaxed);
            }
        }
        mapped
    }

    async fn pin(&self, range: VmRange) -> Result<(), Errno> {
        pin::pin(range)
    }

    async fn munmap(&self, range: VmRange) -> Result<(), Errno> {
        memory::unmap(range)?;
        pin::unpin(range);
        if !self.shared.files.forget_shared(range) {
            self.shared.left.fetch_add(range.len.0, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn madvise(&self, range: VmRange, advice: Advice) -> Result<(), Errno> {
        memory::advise(range, advice)
    }

    async fn store(&self, range: VmRange, stride: Bytes) -> Result<(), Errno> {
        memory::store(range, stride);
        Ok(())
    }

    async fn fill(&self, range: VmRange) -> Result<(), Errno> {
        memory::fill(range)
    }

    fn bzero(&self, len: Bytes) -> Stores {
        stores::bzero(len)
    }

    async fn load(&self, range: VmRange, stride: Bytes) -> Result<(), Errno> {
        memory::load(range, stride);
        Ok(())
    }

    async fn access(&self, range: VmRange, pattern: Pattern, amount: Amount) -> Result<Accessed, Errno> {
        access::access(range.into(), pattern, amount)
    }

    async fn access_runs(&self, runs: Runs, pattern: Pattern, amount: Amount) -> Result<Accessed, Errno> {
        access::access(runs, pattern, amount)
    }

    async fn mincore(&self, range: VmRange) -> Result<Vec<bool>, Errno> {
        memory::resident(range)
    }

    async fn create(&self, name: &str) -> Result<File, Errno> {
        self.shared.files.create(name)
    }

    async fn open(&self, name: &str) -> Result<File, Errno> {
        self.shared.files.open(name)
    }

    async fn close(&self, file: File) -> Result<(), Errno> {
        self.shared.files.close(file)
    }

    async fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.shared.files.unlink(name)
    }

    async fn truncate(&self, file: File, len: Bytes) -> Result<(), Errno> {
        self.shared.files.truncate(file, len)
    }

    async fn write(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        self.shared.files.write(file, offset, len)
    }

    async fn write_blocks(&self, file: File, offset: Bytes, len: Bytes, block: Bytes) -> Result<(), Errno> {
        self.shared.files.write_blocks(file, offset, len, block)
    }

    async fn read(&self, file: File, offset: Bytes, len: Bytes) -> Result<(), Errno> {
        self.shared.files.read(file, offset, len)
    }

    async fn advise_random(&self, file: File) -> Result<(), Errno> {
        self.shared.files.advise_random(file)
    }

    async fn fsync(&self, file: File) -> Result<(), Errno> {
        self.shared.files.fsync(file)
    }

    async fn sync(&self) -> Result<(), Errno> {
        self.shared.files.sync()
    }

    async fn drop_caches(&self) -> Result<(), Errno> {
        self.shared.files.drop_caches()
    }

    async fn rusage(&self) -> Result<Rusage, Errno> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(errno)?;
        let picos = |time: nix::sys::time::TimeVal| {
            Picos::from_micros(time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_usec().cast_unsigned())
        };
        Ok(Rusage {
            minor_faults: usage.minor_page_faults().cast_unsigned(),
            major_faults: usage.major_page_faults().cast_unsigned(),
            user: picos(usage.user_time()),
            system: picos(usage.system_time()),
        })
    }

    async fn moves(&self) -> Result<Moves, Errno> {
        moves::moves()
    }

    async fn places(&self, range: VmRange) -> Result<Vec<Placed>, Errno> {
        places::places(range)
    }

    async fn streamed(&self) -> Result<Streamed, Errno> {
        Err(Errno::NOSYS)
    }

    async fn block_census(&self) -> Result<BlockCensus, Errno> {
        // /proc/kpageflags has it, for root; nothing that runs here asks for it yet.
        Err(Errno::NOSYS)
    }

    async fn churn_frames(&self, _: &FrameChurn) -> Result<FrameChurned, Errno> {
        // LLFree's authors have such a module for their kernels; none is built here.
        Err(Errno::NOSYS)
    }

    async fn vmstat(&self) -> Result<VmStat, Errno> {
        // Gauges are spread over CPUs and folded now and then; root may ask for it (vmstat_refresh, mm/vmstat.c, v4.7).
        // For others they stay off by some pages per CPU; events are exact either way.
        let _ = std::fs::read("/proc/sys/vm/stat_refresh");
        let text = std::fs::read_to_string("/proc/vmstat").map_err(|_| Errno::NOSYS)?;
        let mut counters = procfs::vmstat::parse(&text).map_err(|_| Errno::INVAL)?;
        if let Ok(fallbacks) = self.fallbacks() {
            let by_class = fallbacks.counts.by_class(self.pageblock_order());
            counters.extend(by_class.map(|(class, count)| (class.name(), count)));
        }
        Ok(VmStat(counters))
    }

    async fn barrier(&self, parties: u32) -> Result<Barrier, Errno> {
        let barrier = Arc::new(SharedBarrier::new(parties)?);
        let handle = barrier.handle();
        self.shared.barriers.lock().expect("no task panics while it holds the list of barriers").push(barrier);
        Ok(handle)
    }

    async fn arrive(&self, barrier: Barrier) -> Result<(), Errno> {
        self.barrier_of(barrier)?.arrive()
    }

    async fn cancel(&self, barrier: Barrier) {
        if let Ok(barrier) = self.barrier_of(barrier) {
            barrier.cancel();
        }
    }

    fn is_cancelled(&self, barrier: Barrier) -> bool {
        // A barrier that cannot be found any more is nobody's.
        self.barrier_of(barrier).is_ok_and(|barrier| barrier.is_cancelled())
    }

    fn add(&self, barrier: Barrier, n: u32) -> Result<u32, Errno> {
        if self.shared.panicked.load(Ordering::Acquire) {
            return Err(Errno::CANCELED);
        }
        Ok(self.barrier_of(barrier)?.add(n))
    }

    fn set(&self, barrier: Barrier, value: u32) -> Result<(), Errno> {
        self.barrier_of(barrier)?.set(value);
        Ok(())
    }

    fn spawn<T: Send + 'static>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Died>> + 'static {
        let os = self.clone();
        self.shared.tasks.fetch_add(1, Ordering::Release);
        let end = ThreadEnd(self.clone());
        let thread = worker::start(move || {
            let _end = end;
            place(&os.shared.cpus, on);
            block_on(body(os))
        });
        if thread.is_err() {
            self.cancel_all();
        }
        async move {
            let thread = thread.map_err(|error| Died { reason: error.to_string() })?;
            thread.join().map_err(|_| Died { reason: "the thread panicked".to_owned() })
        }
    }

    async fn fork<T: Wire>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + 'static,
    ) -> Result<impl Future<Output = Result<T, Died>> + 'static, Errno> {
        let child = fork::fork(self, on, body)?;
        Ok(async move { child.receive() })
    }

    fn spawn_process<P: Wire, T: Wire>(
        &self,
        on: Placement,
        entry: &'static str,
        params: P,
    ) -> impl Future<Output = Result<T, Died>> + 'static {
        process::spawn(self, on, entry, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_frees_those_who_wait_for_it() {
        let os = Linux::new(usable_cpus(), Bytes::mib(1), Ground::default());
        let meet = block_on(os.barrier(2)).unwrap();
        let task = os.spawn(Placement::Spread(0), async move |_: Linux| panic!("on purpose"));
        assert_eq!(block_on(os.arrive(meet)), Err(Errno::CANCELED));
        assert!(block_on(task).is_err());
        // Nor do they wait for a count.
        assert_eq!(os.add(meet, 1), Err(Errno::CANCELED));
    }

    #[test]
    fn the_cap_holds_and_unmapping_gives_back() {
        let os = Linux::new(usable_cpus(), Bytes::mib(4), Ground::default());
        let first = block_on(os.mmap(Bytes::mib(3), MapSpec::Anonymous)).unwrap();
        assert_eq!(block_on(os.mmap(Bytes::mib(2), MapSpec::Anonymous)), Err(Errno::NOMEM));
        block_on(os.munmap(first)).unwrap();
        let range = block_on(os.mmap(Bytes::mib(4), MapSpec::Anonymous)).unwrap();
        assert!(block_on(os.mincore(range)).unwrap().iter().all(|resident| !resident));
        let before = block_on(os.rusage()).unwrap().faults();
        block_on(os.madvise(range, Advice::NoHugePage)).unwrap();
        block_on(os.store(range, Bytes::PAGE)).unwrap();
        assert!(block_on(os.rusage()).unwrap().faults() >= before + range.pages(Bytes::PAGE));
        assert!(block_on(os.mincore(range)).unwrap().iter().all(|resident| *resident));
    }
}
