//! `trait Os`: everything a workload may ask of an operating system, and nothing else.
//!
//! The simulator, a guest and this machine implement it; a workload is an `async fn` over it and sees no target.
//! One task awaits one operation at a time; concurrency comes only from [`Os::spawn`], [`Os::spawn_process`] and
//! [`Os::fork`]. What a target lacks is `ENOSYS`. The trait grows with its workloads: nothing is declared here before
//! something uses it.

mod access;
mod counters;
mod file;
mod memory;
mod numa;
mod task;

use std::future::Future;

pub use access::{Accessed, Amount, Pattern, Runs};
pub use counters::{Rusage, VmStat};
pub use file::File;
pub use memory::{Advice, FileRange, MapSpec, VmRange};
pub use numa::{Mempolicy, NumaNode, Placed};
use serde::{Serialize, de::DeserializeOwned};
pub use task::{Barrier, CountedBy, Died, Moves, Placement};
use units::{BlockCensus, Bytes, CpuId, Errno, FrameChurn, FrameChurned, NodeId, Picos, Stores, Streamed, Time};

/// A value that crosses a process border, through a pipe.
pub trait Wire: Serialize + DeserializeOwned + Send + 'static {}
impl<T: Serialize + DeserializeOwned + Send + 'static> Wire for T {}

/// One task's handle on its operating system.
pub trait Os: Clone + Send + 'static {
    /// The time since the start of the run: virtual in the simulator, monotonic elsewhere. Comparable between all tasks
    /// of a run, also across processes.
    fn now(&self) -> Time;

    /// The number of CPUs this run may use.
    fn cpus(&self) -> u32;

    /// The memory of this run: what the machine has (`MemTotal` of /proc/meminfo), or less where others use it too.
    /// Workloads that mean to fill memory take their sizes from it.
    fn memory(&self) -> Bytes;

    /// The NUMA nodes of the machine, lowest number first.
    fn nodes(&self) -> Vec<NumaNode>;

    /// Lets the calling task run on these CPUs of the run only, now and later (sched_setaffinity(2)).
    fn set_affinity(&self, cpus: &[CpuId]) -> impl Future<Output = Result<(), Errno>>;

    /// Sets the nice level, from -20 to 19, with which tasks begin that the calling one creates from now on
    /// (setpriority(2)). `PERM` where a level is below the own one and this is not allowed.
    fn nice_children(&self, level: i8) -> Result<(), Errno>;

    /// Says where pages are to be that the calling task uses for the first time (set_mempolicy(2)). Tasks that it creates begin
    /// with the same.
    fn set_mempolicy(&self, policy: &Mempolicy) -> impl Future<Output = Result<(), Errno>>;

    /// The node of each page of the range; none where there is no page, or the zero page (move_pages(2)).
    fn node_of(&self, range: VmRange) -> impl Future<Output = Result<Vec<Option<NodeId>>, Errno>>;

    /// How much of a range of anonymous memory is on each node, by page size: as /proc/PID/numa_maps has it by node, but with
    /// huge pages apart. Sorted, without what is not there. Takes no time of a simulated machine. `ENOSYS` where the kernel does
    /// not show this process which of its pages are huge.
    fn places(&self, range: VmRange) -> impl Future<Output = Result<Vec<Placed>, Errno>>;

    /// Uses CPU time of the task's CPU, and no memory.
    fn compute(&self, span: Picos) -> impl Future<Output = ()>;

    /// Sleeps for at least `span`.
    fn sleep(&self, span: Picos) -> impl Future<Output = ()>;

    /// Maps `len` bytes (rounded up to whole pages). `ENOMEM` also when the run's memory cap would be exceeded.
    fn mmap(&self, len: Bytes, spec: MapSpec) -> impl Future<Output = Result<VmRange, Errno>>;

    /// Unmaps any part of one or more mappings.
    fn munmap(&self, range: VmRange) -> impl Future<Output = Result<(), Errno>>;

    /// Gives advice about a range.
    fn madvise(&self, range: VmRange, advice: Advice) -> impl Future<Output = Result<(), Errno>>;

    /// Brings in all pages of a range of anonymous memory, one after the other as by stores, and pins them for the life of the
    /// mapping: nothing moves them or takes them away, as if a device had them (VFIO_IOMMU_MAP_DMA; on real kernels buffers
    /// registered with an io_uring). `ENOSYS` where the kernel cannot, `ENOMEM` also where no more may be pinned.
    fn pin(&self, range: VmRange) -> impl Future<Output = Result<(), Errno>>;

    /// Stores one byte at the start of every `stride` bytes of the range, in address order.
    fn store(&self, range: VmRange, stride: Bytes) -> impl Future<Output = Result<(), Errno>>;

    /// Writes every byte of the range in address order, as memset(3).
    fn fill(&self, range: VmRange) -> impl Future<Output = Result<(), Errno>>;

    /// The stores with which bzero(3) clears `len` bytes here.
    fn bzero(&self, len: Bytes) -> Stores;

    /// Loads one byte at the start of every `stride` bytes of the range, in address order.
    fn load(&self, range: VmRange, stride: Bytes) -> impl Future<Output = Result<(), Errno>>;

    /// Goes through all pages of the range, round after round.
    fn access(&self, range: VmRange, pattern: Pattern, amount: Amount)
    -> impl Future<Output = Result<Accessed, Errno>>;

    /// As [`Os::access`], but only through parts of the range.
    fn access_runs(
        &self,
        runs: Runs,
        pattern: Pattern,
        amount: Amount,
    ) -> impl Future<Output = Result<Accessed, Errno>>;

    /// Which pages of the range are resident, one entry per page.
    fn mincore(&self, range: VmRange) -> impl Future<Output = Result<Vec<bool>, Errno>>;

    /// Makes an empty file that did not exist, and opens it for reading and writing. Names are relative to a directory of
    /// the run that is empty at first and removed at its end; directories in a name are made with their first file.
    fn create(&self, name: &str) -> impl Future<Output = Result<File, Errno>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> impl Future<Output = Result<File, Errno>>;

    /// Closes a file. Mappings of it stay.
    fn close(&self, file: File) -> impl Future<Output = Result<(), Errno>>;

    /// Removes a name. The file lives while it is open or mapped.
    fn unlink(&self, name: &str) -> impl Future<Output = Result<(), Errno>>;

    /// Sets the length; what a file gains is a hole. `ENOSPC` also when the run's files would become larger than it
    /// declared.
    fn truncate(&self, file: File, len: Bytes) -> impl Future<Output = Result<(), Errno>>;

    /// Writes `len` bytes from `offset` on with one write(2), through the page cache. `ENOSPC` as for [`Os::truncate`].
    fn write(&self, file: File, offset: Bytes, len: Bytes) -> impl Future<Output = Result<(), Errno>>;

    /// Writes `len` bytes from `offset` on, one write(2) after the other of `block` bytes each (the last may be shorter), as
    /// dd(1) does. Ends at the first one that fails; `EINVAL` where a block is empty.
    fn write_blocks(
        &self,
        file: File,
        offset: Bytes,
        len: Bytes,
        block: Bytes,
    ) -> impl Future<Output = Result<(), Errno>>;

    /// Reads `len` bytes from `offset` on with one read(2), through the page cache; less where the file ends before.
    fn read(&self, file: File, offset: Bytes, len: Bytes) -> impl Future<Output = Result<(), Errno>>;

    /// Says that this descriptor is read here and there, so that nothing is read ahead (`POSIX_FADV_RANDOM`).
    fn advise_random(&self, file: File) -> impl Future<Output = Result<(), Errno>>;

    /// Waits until a file is on its disk.
    fn fsync(&self, file: File) -> impl Future<Output = Result<(), Errno>>;

    /// Waits until all files of the run are on their disk (sync(2), or syncfs(2) where others use the machine too).
    fn sync(&self) -> impl Future<Output = Result<(), Errno>>;

    /// Drops clean page cache, dentries and inodes of the whole machine (3 to /proc/sys/vm/drop_caches). `ENOSYS` where
    /// that would disturb others.
    fn drop_caches(&self) -> impl Future<Output = Result<(), Errno>>;

    /// Resources that the calling task has used so far (not its siblings or children).
    fn rusage(&self) -> impl Future<Output = Result<Rusage, Errno>>;

    /// How often the calling task has gone from one CPU to another so far.
    fn moves(&self) -> impl Future<Output = Result<Moves, Errno>>;

    /// The counters of `/proc/vmstat`, machine-wide.
    fn vmstat(&self) -> impl Future<Output = Result<VmStat, Errno>>;

    /// Bytes that sweeps of all tasks have moved through memory since the start of the run. Takes no time. `ENOSYS` where nobody
    /// counts that, or where no memory has a limit.
    fn streamed(&self) -> impl Future<Output = Result<Streamed, Errno>>;

    /// How much of memory cannot be moved, and how scattered that is. `ENOSYS` where nobody can see every frame.
    fn block_census(&self) -> impl Future<Output = Result<BlockCensus, Errno>>;

    /// Loads a kernel module that allocates frames and frees them, waits until it is done, and unloads it. All memory is full
    /// meanwhile. `ENOSYS` where there is no such module.
    fn churn_frames(&self, churn: &FrameChurn) -> impl Future<Output = Result<FrameChurned, Errno>>;

    /// A new barrier for `parties` tasks, in this process or in ones spawned from it.
    fn barrier(&self, parties: u32) -> impl Future<Output = Result<Barrier, Errno>>;

    /// Waits until all parties have arrived. `ECANCELED` when one of them died or gave up, so that nobody waits for
    /// ever.
    fn arrive(&self, barrier: Barrier) -> impl Future<Output = Result<(), Errno>>;

    /// Makes everybody who waits at the barrier, now or later, return `ECANCELED`: for a task that will not arrive.
    fn cancel(&self, barrier: Barrier) -> impl Future<Output = ()>;

    /// Has somebody cancelled the barrier? For a task that goes on until others have no more use for it, and cancel a barrier
    /// to say so.
    fn is_cancelled(&self, barrier: Barrier) -> bool;

    /// Adds to a number that those who know the barrier share, 0 at first, and says what it was before: an atomic operation of
    /// user code, which takes no time of a simulated machine. It wraps around. `ECANCELED` where a task of this process has
    /// panicked, which counts no more.
    fn add(&self, barrier: Barrier, n: u32) -> Result<u32, Errno>;

    /// Sets that number.
    fn set(&self, barrier: Barrier, value: u32) -> Result<(), Errno>;

    /// Starts a task that shares this address space, like a thread. It runs from now on, awaited or not.
    fn spawn<T: Send + 'static>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Died>> + 'static;

    /// Copies this process, which must have no other task (`EINVAL` otherwise): the first await is fork(2), the second one
    /// waits for the child's end. The child runs from fork on, awaited or not, and finds the same memory; its result comes
    /// through a pipe. A child that is killed frees nobody at a barrier.
    fn fork<T: Wire>(
        &self,
        on: Placement,
        body: impl AsyncFnOnce(Self) -> T + 'static,
    ) -> impl Future<Output = Result<impl Future<Output = Result<T, Died>> + 'static, Errno>>;

    /// Starts a task in a new process by re-executing the program at the named entry, for benchmarks that fork before
    /// they allocate. It runs from now on, awaited or not.
    fn spawn_process<P: Wire, T: Wire>(
        &self,
        on: Placement,
        entry: &'static str,
        params: P,
    ) -> impl Future<Output = Result<T, Died>> + 'static;
}
