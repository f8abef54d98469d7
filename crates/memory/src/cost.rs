//! Linux: none; this is what real time does by itself.
//! Differs: prices are integers from the machine file, one per primitive operation.
//!
//! A clock moves only through [`Meter::work`] and [`Meter::wait`], each under a [`Cause`], so the parts of a latency sum to it
//! by construction. Algorithms never name a price: the primitives they are made of charge themselves. Requests of a step to
//! memory and to other CPUs are in `cx.rs`.

pub mod latency;
mod spent;
pub mod walk;

use units::{CpuId, ExtfragKind, Picos, Time, Vpn};

use crate::event::{Counters, Event};

pub use latency::{AccessPrice, LastCache, Latency, Pattern, TlbReach};
pub use spent::Spent;
pub use walk::{HostPages, TlbEntries, Walk};

macro_rules! works {
    ($($(#[$doc:meta])* $work:ident = $name:literal, $cause:ident;)*) => {
        /// A primitive operation that takes time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Work { $($(#[$doc])* $work,)* }

        impl Work {
            /// Every operation, in the order of declaration.
            pub const ALL: &[Work] = &[$(Work::$work,)*];

            /// The operation's name in the `[prices]` of a machine file.
            pub const fn name(self) -> &'static str {
                match self { $(Work::$work => $name,)* }
            }

            /// The cause that the operation is charged to outside a scope ([`Cx::because`](super::cx::Cx::because)).
            pub const fn cause(self) -> Cause {
                match self { $(Work::$work => Cause::$cause,)* }
            }
        }
    };
}

works! {
    /// A store or load of user code that hits mapped memory, per page touched.
    UserTouch = "user_touch", User;
    /// Writing every byte of a mapped page, by user code.
    UserFill = "user_fill", User;
    /// Entering the kernel for a page fault and leaving it again, with the part that all faults share: finding the VMA, walking
    /// the tables, locking the page table.
    Trap = "trap", Trap;
    /// Switching from one task to another, on one CPU.
    ContextSwitch = "context_switch", RunQueue;
    /// From waking a task whose CPU idles to its first instruction there.
    WakeUp = "wake_up", RunQueue;
    /// Waking another task: the time of the waker, up to the interrupt that goes to the task's CPU.
    WakeOther = "wake_other", RunQueue;
    /// Entering the kernel for a system call and leaving it again.
    SystemCall = "system_call", Trap;
    /// Finding or making a VMA.
    VmaUpdate = "vma_update", PageTable;
    /// Writing one page-table entry that other CPUs may read or change meanwhile: an atomic operation.
    PteWrite = "pte_write", PageTable;
    /// Clearing one page-table entry on a walk over a range: an exchange, and a look at the page that it maps.
    PteClear = "pte_clear", PageTable;
    /// Reading one page-table entry while walking a range.
    PteScan = "pte_scan", PageTable;
    /// Storing one page-table entry in a table that is being filled, and that no processor walks yet.
    PteStore = "pte_store", PageTable;
    /// Counting a mapping of a folio, or counting it off: reference, map count, counters of the process and of the node.
    Rmap = "rmap", PageTable;
    /// Flushing the whole TLB of a CPU.
    TlbFlush = "tlb_flush", PageTable;
    /// Flushing one page from the TLB of a CPU.
    TlbFlushPage = "tlb_flush_page", PageTable;
    /// Sending an interrupt to another CPU and waiting until it has handled it.
    Ipi = "ipi", Ipi;
    /// Time that each further CPU to which an interrupt is sent adds for the sender.
    IpiTarget = "ipi_target", Ipi;
    /// Being interrupted by another CPU, without the work that the interrupt asks for.
    IpiReceive = "ipi_receive", Ipi;
    /// Clearing a frame that is not in a cache.
    ClearFrame = "clear_frame", Clear;
    /// Copying a frame.
    CopyFrame = "copy_frame", Copy;
    /// Allocating from a per-CPU list that is not empty, charged to the cgroup: a composite whose parts are known.
    AllocFast = "alloc_fast", Allocator;
    /// Entering the slow path: waking kswapd, and looking at all zones once more.
    AllocSlow = "alloc_slow", Allocator;
    /// Freeing to a per-CPU list: a composite whose parts are known.
    FreeFast = "free_fast", Allocator;
    /// Writing the record of a tail frame when a larger folio is made (`prep_compound_tail`).
    TailFrame = "tail_frame", Allocator;
    /// Clearing the record of a tail frame when the folio is freed (`free_tail_page_prepare`).
    TailFree = "tail_free", Allocator;
    /// Reading the record of one frame of a huge folio, where its mappings are counted frame by frame (`total_mapcount`).
    TailRead = "tail_read", ReclaimScan;
    /// Giving back the cgroup's charge for a page, or for a batch of pages.
    Uncharge = "uncharge", Allocator;
    /// Moving one block between free lists: taking, splitting one order, merging one order.
    ListMove = "list_move", Allocator;
    /// Taking and releasing a free spin lock.
    LockPair = "lock_pair", Allocator;
    /// Getting a cache line that another CPU has written.
    LineTransfer = "line_transfer", Allocator;
    /// Putting a folio on an LRU list, or taking it off, with the counters of node and cgroup.
    LruMove = "lru_move", LruLock;
    /// Looking at one folio that was taken off its LRU list: locking it, finding the entries that map it, and testing them.
    FolioScan = "folio_scan", ReclaimScan;
    /// Finding the entries that map a folio, to change them: one walk for all (`rmap_walk`).
    RmapWalk = "rmap_walk", ReclaimScan;
    /// Sending a page to a swap device or reading it back, with the interrupt at the end.
    SwapIo = "swap_io", Swap;
    /// Changing the record that a file has of one of its pages: the page is added, removed, or sent to the disk.
    FilePage = "file_page", File;
    /// Time of write(2) for each page that it reaches, beside finding it: the file system's work before and after.
    FileWrite = "file_write", File;
    /// Time of read(2) for each page that it uses, beside the copy: the file system's way to it, and finding it.
    FileGet = "file_get", File;
    /// Copying a sector (512 bytes) between a page of a file and a program's buffer, both in the CPU's caches.
    FileCopy = "file_copy", File;
    /// Time to read a page ahead, beside its place in the file: its part of a request, and marking it up to date.
    FileRead = "file_read", File;
    /// Changing a name or an inode.
    FileOperation = "file_operation", File;
    /// Time of the file system when a file is written back, without its pages and requests.
    FileWriteback = "file_writeback", File;
    /// A page of a file on its way to a disk and back, without its request: bits and tags of its file, and its buffers.
    FileWritepage = "file_writepage", File;
    /// Sending a request to a disk, with the interrupt at its end.
    DiskIo = "disk_io", Disk;
    /// Looking at one frame in search of a page to move, or of a free frame.
    ScanFrame = "scan_frame", CompactScan;
    /// Looking at a pageblock in the same search: its type and its skip mark.
    ScanBlock = "scan_block", CompactScan;
    /// Reading the record (`struct page`) of a frame that is not in a cache, and whose neighbours were not read.
    FarFrame = "far_frame", CompactScan;
    /// Making one frame the copy of another: flags, references and locks, without contents, lists and page-table entries.
    MigrateFolio = "migrate_folio", Migrate;
    /// An access of a guest to memory that its host does not back: leaving the guest, mapping the page in the host's tables,
    /// and entering again; without the host's own fault.
    HostExit = "host_exit", Host;
    /// A report of free blocks to the host: the notification, waking the host's thread, and the acknowledgement.
    HostReport = "host_report", Host;
    /// Giving back one of the blocks that a guest has reported, by the host.
    HostDiscard = "host_discard", Host;
}

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $name:literal;)*) => {
        /// Why time passed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause { $($(#[$doc])* $cause,)* }

        impl Cause {
            /// Every cause, in the order of declaration.
            pub const ALL: &[Cause] = &[$(Cause::$cause,)*];

            /// The cause's name in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$cause => $name,)* }
            }
        }
    };
}

causes! {
    /// User code.
    User = "user";
    /// Entering and leaving the kernel.
    Trap = "trap";
    /// Page tables and VMAs.
    PageTable = "page table";
    /// Taking a zone's lock, and waiting for it.
    ZoneLock = "zone lock";
    /// The LRU lists and their lock.
    LruLock = "lru lock";
    /// Waiting for an mmap lock.
    MmapLock = "mmap lock";
    /// The page allocator.
    Allocator = "allocator";
    /// Clearing memory.
    Clear = "clear";
    /// Copying memory.
    Copy = "copy";
    /// Looking for pages to move, and for frames to move them to.
    CompactScan = "compaction scan";
    /// Moving pages from one frame to another, but for the copy.
    Migrate = "migrate";
    /// Waiting for a folio that another task works on.
    FolioLock = "folio lock";
    /// Interrupting other CPUs, and being interrupted by them.
    Ipi = "ipi";
    /// Waiting for a node's memory when CPUs want more bandwidth than it has.
    Bandwidth = "bandwidth";
    /// Looking for memory that can be reclaimed.
    ReclaimScan = "reclaim scan";
    /// Writing to and reading from swap, and waiting for that.
    Swap = "swap";
    /// Operations on files that have no cause of their own.
    File = "file";
    /// Reading and writing files on a disk, and waiting for that.
    Disk = "disk";
    /// Asleep while memory is short and others reclaim (`reclaim_throttle`).
    Throttle = "throttle";
    /// Waiting for a CPU, and being switched to.
    RunQueue = "run queue";
    /// Time that an access to another node's memory takes beyond one to the CPU's own.
    RemoteMemory = "remote memory";
    /// In a guest: reports to its host, and waiting for memory that the host did not back.
    Host = "host";
    /// Balancing of NUMA: scans, hinting faults but for their entry into the kernel, and the moves that follow from them.
    Balancing = "balancing";
}

const CAUSES: usize = Cause::ALL.len();
const WORKS: usize = Work::ALL.len();

/// The cause of each operation.
type Charged = [Cause; WORKS];

/// The causes outside all scopes.
static TO_ITS_OWN: Charged = {
    let mut causes = [Cause::User; WORKS];
    let mut n = 0;
    while n < WORKS {
        causes[n] = Work::ALL[n].cause();
        n += 1;
    }
    causes
};

/// The causes in the scope of each cause. A table, so that no operation has to check whether it is in a scope.
static TO_ONE: [Charged; CAUSES] = {
    let mut scopes = [[Cause::User; WORKS]; CAUSES];
    let mut n = 0;
    while n < CAUSES {
        scopes[n] = [Cause::ALL[n]; WORKS];
        n += 1;
    }
    scopes
};

/// The price of each primitive operation on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices([Picos; WORKS]);

impl Prices {
    /// Prices as the function `of` returns them.
    pub fn new(of: impl Fn(Work) -> Picos) -> Self {
        let mut prices = [Picos(0); WORKS];
        for work in Work::ALL {
            prices[*work as usize] = of(*work);
        }
        Self(prices)
    }

    /// The price of one operation.
    pub fn of(&self, work: Work) -> Picos {
        self.0[work as usize]
    }

    /// Prices on a CPU whose core is shared with a busy hardware thread: `percent` of each price (100 changes nothing), rounded
    /// to the nearest picosecond. Prices of pure waiting stay.
    ///
    /// # Panics
    /// When `percent` is below 100.
    #[must_use]
    pub fn shared_core(&self, percent: u32) -> Self {
        assert!(percent >= 100, "a shared core takes {percent} % of the time of one that is not");
        Self::new(|work| match work {
            Work::LineTransfer | Work::WakeUp | Work::Ipi | Work::HostReport | Work::HostDiscard => self.of(work),
            _ => Picos((self.of(work).0 * u64::from(percent) + 50) / 100),
        })
    }

    /// All prices 0: for tests of mechanisms.
    pub fn free() -> Self {
        Self([Picos(0); WORKS])
    }
}

/// The page faults of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of faults.
    pub taken: u64,
    /// The instant and the page of each fault, in their order, folded into one word; 0 without faults.
    pub fold: u64,
    /// Number of faults that waited for a device.
    pub major: u64,
}

impl Faults {
    /// Adds a fault that begins. One multiplication: this is in the hottest path there is.
    #[inline]
    fn take(&mut self, at: Time, vpn: Vpn) {
        // The fractional part of the golden ratio: odd, and without a pattern.
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        self.taken += 1;
        self.fold = (self.fold.rotate_left(5) ^ at.0 ^ vpn.0.rotate_right(u64::BITS / 2)).wrapping_mul(MULTIPLIER);
    }
}

/// The meter of one step, which adds up time and events: the only way to let time pass and to count.
#[derive(Debug)]
pub struct Meter<'a> {
    cpu: CpuId,
    start: Time,
    spent: Spent,
    total: Picos,
    charged: &'static Charged,
    /// Instant at which the step ends, whatever its horizon: a task was woken.
    cut: Time,
    faults: Faults,
    prices: &'a Prices,
    counters: &'a mut Counters,
}

impl<'a> Meter<'a> {
    /// The meter of a step that starts at `now` on `cpu`.
    #[inline]
    pub fn new(cpu: CpuId, now: Time, prices: &'a Prices, counters: &'a mut Counters) -> Self {
        Self {
            cpu,
            start: now,
            spent: Spent::default(),
            total: Picos(0),
            charged: &TO_ITS_OWN,
            cut: Time(u64::MAX),
            faults: Faults::default(),
            prices,
            counters,
        }
    }

    /// The CPU that runs the step.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The time now: the start of the step plus the time spent since.
    #[inline]
    pub fn now(&self) -> Time {
        self.start + self.total
    }

    /// Whether the step must end, at its horizon or because a task was woken in it.
    #[inline]
    pub fn is_over(&self, horizon: Time) -> bool {
        self.now() >= horizon.min(self.cut)
    }

    /// Notes that a task was woken: a range operation ends its step as soon as it can.
    pub fn cut(&mut self) {
        self.cut = self.now();
    }

    /// Charges `n` primitive operations of one kind.
    #[inline]
    pub fn work(&mut self, work: Work, n: u64) {
        let span = Picos(self.prices.0[work as usize].0 * n);
        self.total += span;
        // A part is no more than the total, and the sum of the total is checked.
        let part = &mut self.spent.0[self.charged[work as usize] as usize].0;
        *part = part.wrapping_add(span.0);
    }

    /// The prices of this CPU.
    #[inline]
    pub fn prices(&self) -> &Prices {
        self.prices
    }

    /// The price of one primitive operation on this CPU.
    #[inline]
    pub fn price(&self, work: Work) -> Picos {
        self.prices.of(work)
    }

    /// Charges `n` accesses of user code to memory, at the price for the CPU's node and the memory's.
    #[inline]
    pub fn access(&mut self, price: AccessPrice, n: u64) {
        for (cause, each) in [(Cause::User, price.near), (Cause::RemoteMemory, price.far)] {
            let span = Picos(each.0 * n);
            self.total += span;
            self.spent.0[cause as usize] += span;
        }
    }

    /// Waits until an instant; an instant in the past takes no time.
    pub fn wait(&mut self, until: Time, cause: Cause) {
        if until > self.now() {
            let span = until.since(self.now());
            self.spent.0[cause as usize] += span;
            self.total += span;
        }
    }

    /// Counts an event.
    #[inline]
    pub fn count(&mut self, event: Event, n: u64) {
        self.counters.count(event, n);
    }

    /// Counts several events, each once.
    #[inline]
    pub fn count_each<const N: usize>(&mut self, events: [Event; N]) {
        let counters = &mut *self.counters;
        for event in events {
            counters.count(event, 1);
        }
    }

    /// Counts an event of `mm_page_alloc_extfrag` by its kind.
    #[inline]
    pub(crate) fn count_extfrag(&mut self, kind: ExtfragKind) {
        self.counters.count_extfrag(kind);
    }

    /// Counts a page fault that begins now.
    #[inline]
    pub fn fault(&mut self, vpn: Vpn) {
        self.count(Event::Pgfault, 1);
        self.faults.take(self.now(), vpn);
    }

    /// Counts `n` page faults, one after the other; `vpn` is the page of the first.
    pub(crate) fn faults_from(&mut self, vpn: Vpn, n: u64) {
        self.count(Event::Pgfault, n);
        self.faults.take(self.now(), Vpn(vpn.0 ^ n.rotate_right(8)));
        self.faults.taken += n - 1;
    }

    /// Counts the current page fault as one that needs a device.
    pub fn major_fault(&mut self) {
        self.count(Event::Pgmajfault, 1);
        self.faults.major += 1;
    }

    /// The page faults since the step began.
    #[inline]
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Time spent since the step began, by cause.
    #[inline]
    pub fn spent(&self) -> &Spent {
        debug_assert_eq!(self.spent.total(), self.total, "the parts of a latency sum to it");
        &self.spent
    }

    /// Charges everything to one cause, up to [`Self::charge_again`]; returns the causes charged before.
    #[inline]
    pub(crate) fn charge_to(&mut self, cause: Cause) -> Charging {
        Charging(std::mem::replace(&mut self.charged, &TO_ONE[cause as usize]))
    }

    /// The cause that an operation is charged to in the present scope.
    #[inline]
    pub(crate) fn charges(&self, work: Work) -> Cause {
        self.charged[work as usize]
    }

    /// Returns to the causes charged before [`Self::charge_to`].
    #[inline]
    pub(crate) fn charge_again(&mut self, outer: Charging) {
        self.charged = outer.0;
    }
}

/// The cause of each operation, saved while a scope is open.
#[must_use]
#[derive(Clone, Copy)]
pub struct Charging(&'static Charged);

#[cfg(test)]
mod tests;
