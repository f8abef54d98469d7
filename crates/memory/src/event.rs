//! Linux: include/linux/vm_event_item.h, mm/vmstat.c (v6.1).
//! Differs: one set of totals instead of one per CPU; only events of mechanisms that exist here.
//!
//! Events are counted, never read back: no mechanism may depend on one.

use rules::variant::Variant;
use units::{ExtfragCounts, ExtfragKind};

/// Makes the enum, the kernel's names and the doc lines from one table, so that they cannot drift apart.
macro_rules! vm_events {
    ($($(#[$doc:meta])* $event:ident = $name:literal,)*) => {
        /// Something the kernel counts in `/proc/vmstat`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Event { $($(#[$doc])* $event,)* }

        impl Event {
            /// Every event, in the order of declaration.
            pub const ALL: &[Event] = &[$(Event::$event,)*];

            /// The kernel's name, byte for byte; names of our own start with `sim_`.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$event => $name,)* }
            }
        }
    };
}

vm_events! {
    /// Frames allocated from a DMA zone, 2^order per allocation.
    PgallocDma = "pgalloc_dma",
    /// Frames allocated from a DMA32 zone.
    PgallocDma32 = "pgalloc_dma32",
    /// Frames allocated from a Normal zone.
    PgallocNormal = "pgalloc_normal",
    /// Frames allocated from a Movable zone.
    PgallocMovable = "pgalloc_movable",
    /// Frames freed.
    Pgfree = "pgfree",
    /// Page faults, retries counted again.
    Pgfault = "pgfault",
    /// Write faults on a base page that no other process maps: it is kept, not copied (since 5.10).
    Pgreuse = "pgreuse",
    /// Page faults that had to wait for a device.
    Pgmajfault = "pgmajfault",
    /// KiB read from disks.
    Pgpgin = "pgpgin",
    /// KiB written to disks.
    Pgpgout = "pgpgout",
    /// Pages of files made dirty.
    NrDirtied = "nr_dirtied",
    /// Pages of files written.
    NrWritten = "nr_written",
    /// Frames read from swap.
    Pswpin = "pswpin",
    /// Frames written to swap.
    Pswpout = "pswpout",
    /// Pages read from swap ahead of their use.
    SwapRa = "swap_ra",
    /// Pages read ahead that were used.
    SwapRaHit = "swap_ra_hit",
    /// Entries into direct reclaim for requests that go no higher than DMA.
    AllocstallDma = "allocstall_dma",
    /// Entries into direct reclaim for requests that go no higher than DMA32.
    AllocstallDma32 = "allocstall_dma32",
    /// Entries into direct reclaim for requests that go no higher than Normal.
    AllocstallNormal = "allocstall_normal",
    /// Entries into direct reclaim for requests that may go anywhere.
    AllocstallMovable = "allocstall_movable",
    /// Frames moved to an active list.
    Pgactivate = "pgactivate",
    /// Frames moved from an active list to an inactive one.
    Pgdeactivate = "pgdeactivate",
    /// Frames of active lists that were looked at.
    Pgrefill = "pgrefill",
    /// Frames freed by kswapd.
    PgstealKswapd = "pgsteal_kswapd",
    /// Frames freed by direct reclaim.
    PgstealDirect = "pgsteal_direct",
    /// Frames of inactive lists that kswapd looked at.
    PgscanKswapd = "pgscan_kswapd",
    /// Frames of inactive lists that direct reclaim looked at.
    PgscanDirect = "pgscan_direct",
    /// Frames of inactive lists of a DMA zone that kswapd looked at (by zone up to 4.7).
    PgscanKswapdDma = "pgscan_kswapd_dma",
    /// Pages of a DMA32 zone that kswapd looked at.
    PgscanKswapdDma32 = "pgscan_kswapd_dma32",
    /// Pages of a Normal zone that kswapd looked at.
    PgscanKswapdNormal = "pgscan_kswapd_normal",
    /// Pages of a Movable zone that kswapd looked at.
    PgscanKswapdMovable = "pgscan_kswapd_movable",
    /// Frames of inactive lists of a DMA zone that direct reclaim looked at (by zone up to 4.7).
    PgscanDirectDma = "pgscan_direct_dma",
    /// Pages of a DMA32 zone that direct reclaim looked at.
    PgscanDirectDma32 = "pgscan_direct_dma32",
    /// Pages of a Normal zone that direct reclaim looked at.
    PgscanDirectNormal = "pgscan_direct_normal",
    /// Pages of a Movable zone that direct reclaim looked at.
    PgscanDirectMovable = "pgscan_direct_movable",
    /// Frames of a DMA zone freed by kswapd (by zone up to 4.7).
    PgstealKswapdDma = "pgsteal_kswapd_dma",
    /// Pages of a DMA32 zone that kswapd freed.
    PgstealKswapdDma32 = "pgsteal_kswapd_dma32",
    /// Pages of a Normal zone that kswapd freed.
    PgstealKswapdNormal = "pgsteal_kswapd_normal",
    /// Pages of a Movable zone that kswapd freed.
    PgstealKswapdMovable = "pgsteal_kswapd_movable",
    /// Frames of a DMA zone freed by direct reclaim (by zone up to 4.7).
    PgstealDirectDma = "pgsteal_direct_dma",
    /// Pages of a DMA32 zone that direct reclaim freed.
    PgstealDirectDma32 = "pgsteal_direct_dma32",
    /// Pages of a Normal zone that direct reclaim freed.
    PgstealDirectNormal = "pgsteal_direct_normal",
    /// Pages of a Movable zone that direct reclaim freed.
    PgstealDirectMovable = "pgsteal_direct_movable",
    /// Times that direct reclaim waited for kswapd, because the reserves ran low.
    PgscanDirectThrottle = "pgscan_direct_throttle",
    /// Frames of anonymous memory that were looked at.
    PgscanAnon = "pgscan_anon",
    /// Frames of files that were looked at.
    PgscanFile = "pgscan_file",
    /// Frames of anonymous memory that were freed.
    PgstealAnon = "pgsteal_anon",
    /// Frames of files that were freed.
    PgstealFile = "pgsteal_file",
    /// Frames moved to the tail of an inactive list when their writeback ended.
    Pgrotated = "pgrotated",
    /// Frames that reclaim has sent to a device.
    NrVmscanWrite = "nr_vmscan_write",
    /// Dirty frames of files that reclaim met: they are reclaimed as soon as they are written.
    NrVmscanImmediateReclaim = "nr_vmscan_immediate_reclaim",
    /// Times that all clean pages were dropped.
    DropPagecache = "drop_pagecache",
    /// Times that all dentries and inodes were dropped.
    DropSlab = "drop_slab",
    /// Objects that shrinkers were asked about.
    SlabsScanned = "slabs_scanned",
    /// Anonymous pages that came back after they had been reclaimed.
    WorkingsetRefaultAnon = "workingset_refault_anon",
    /// Anonymous pages that came back soon enough to be active at once.
    WorkingsetActivateAnon = "workingset_activate_anon",
    /// Anonymous pages that came back and had been in use before they were reclaimed.
    WorkingsetRestoreAnon = "workingset_restore_anon",
    /// Pages of files that came back after they had been reclaimed.
    WorkingsetRefaultFile = "workingset_refault_file",
    /// Pages of files that came back soon enough to be active at once.
    WorkingsetActivateFile = "workingset_activate_file",
    /// Pages of files that came back and had been in use before they were reclaimed.
    WorkingsetRestoreFile = "workingset_restore_file",
    /// Pages migrated to another frame.
    PgmigrateSuccess = "pgmigrate_success",
    /// Pages whose migration failed.
    PgmigrateFail = "pgmigrate_fail",
    /// Frames that compaction looked at in search of pages to move.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Frames that compaction looked at in search of free frames.
    CompactFreeScanned = "compact_free_scanned",
    /// Frames that compaction isolated: pages to move, and free frames to move them to.
    CompactIsolated = "compact_isolated",
    /// Allocations that compacted memory directly.
    CompactStall = "compact_stall",
    /// Direct compactions after which the allocation got no block.
    CompactFail = "compact_fail",
    /// Direct compactions after which the allocation got its block.
    CompactSuccess = "compact_success",
    /// Times that kcompactd was woken.
    CompactDaemonWake = "compact_daemon_wake",
    /// Pages that kcompactd looked at in search of pages to move.
    CompactDaemonMigrateScanned = "compact_daemon_migrate_scanned",
    /// Pages that kcompactd looked at in search of free frames.
    CompactDaemonFreeScanned = "compact_daemon_free_scanned",
    /// Processes killed because memory was out.
    OomKill = "oom_kill",
    /// Sleeps for kswapd in place of a fallback to a small block, of a tick or longer (of a patch that was dropped, 4.20-rc3).
    FragmentStall = "fragment_stall",
    /// Balancing runs of kswapd.
    Pageoutrun = "pageoutrun",
    /// Naps of kswapd that a shortage cut short.
    KswapdLowWmarkHitQuickly = "kswapd_low_wmark_hit_quickly",
    /// Naps of kswapd that ended below the High mark.
    KswapdHighWmarkHitQuickly = "kswapd_high_wmark_hit_quickly",
    /// Allocations served by the preferred node.
    NumaHit = "numa_hit",
    /// Allocations served here though another node was preferred.
    NumaMiss = "numa_miss",
    /// Allocations that preferred this node and went elsewhere.
    NumaForeign = "numa_foreign",
    /// Allocations from the node of the running CPU.
    NumaLocal = "numa_local",
    /// Allocations from another node than that of the running CPU.
    NumaOther = "numa_other",
    /// Huge pages allocated by faults.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that wanted a huge page and did without.
    ThpFaultFallback = "thp_fault_fallback",
    /// Allocations of the huge zero page, which is shared by all; its mappings are not counted.
    ThpZeroPageAlloc = "thp_zero_page_alloc",
    /// Huge pages allocated by khugepaged.
    ThpCollapseAlloc = "thp_collapse_alloc",
    /// Huge pages that khugepaged wanted and did not get.
    ThpCollapseAllocFailed = "thp_collapse_alloc_failed",
    /// PMDs split into 512 PTEs.
    ThpSplitPmd = "thp_split_pmd",
    /// Huge pages queued for a split when memory is short.
    ThpDeferredSplitPage = "thp_deferred_split_page",
    /// Huge pages split into base pages.
    ThpSplitPage = "thp_split_page",
    /// Huge pages that could not be split, as another task held them.
    ThpSplitPageFailed = "thp_split_page_failed",
    /// Huge pages split because swap does not take one as a whole (4.13).
    ThpSwpoutFallback = "thp_swpout_fallback",
    /// A free block was taken from another migrate type's list (the tracepoint `mm_page_alloc_extfrag`).
    SimExtfrag = "sim_mm_page_alloc_extfrag",
    /// A free block smaller than a pageblock was taken from another migrate type's list: the pageblock is shared from now on.
    SimExtfragFragmenting = "sim_mm_page_alloc_extfrag_fragmenting",
    /// Requests for which no zone had enough free frames for compaction, or needed compaction (`COMPACT_SKIPPED`, of the event
    /// `mm_compaction_suitable` on real kernels); with `compact_counts_reasons` only.
    SimCompactSkipped = "sim_compact_skipped",
    /// Requests for which compaction was deferred after earlier failures (`COMPACT_DEFERRED`, `mm_compaction_deferred`).
    SimCompactDeferred = "sim_compact_deferred",
    /// Flushes of a CPU's whole TLB that the CPU asked for itself (`nr_tlb_local_flush_all`; as the next three counters, in
    /// kernels with `CONFIG_DEBUG_TLBFLUSH` only, which distributions do not set).
    SimTlbLocalFlushAll = "sim_nr_tlb_local_flush_all",
    /// Pages that a CPU flushed one by one from its own TLB (`nr_tlb_local_flush_one`).
    SimTlbLocalFlushOne = "sim_nr_tlb_local_flush_one",
    /// Flushes that other CPUs were interrupted for (`nr_tlb_remote_flush`).
    SimTlbRemoteFlush = "sim_nr_tlb_remote_flush",
    /// CPUs that were interrupted for a TLB flush (`nr_tlb_remote_flush_received`).
    SimTlbRemoteFlushReceived = "sim_nr_tlb_remote_flush_received",
    /// Calls of the device that takes reports of free blocks.
    SimPageReports = "sim_page_reports",
    /// Frames of the blocks that were reported.
    SimPagesReported = "sim_pages_reported",
    /// Frames of reported blocks that were taken for an allocation, which splits them if it is smaller.
    SimPagesFromReported = "sim_pages_from_reported",
    /// Free lists of which a pass reported less than a sixteenth and left more.
    SimReportListsShort = "sim_report_lists_short",
    /// Reports of a pass beyond the budget of a free list.
    SimReportsBeyondBudget = "sim_reports_beyond_budget",
    /// Accesses of a guest to memory that its host did not back.
    SimHostFaults = "sim_host_faults",
    /// Frames that the host cleared for accesses of a guest.
    SimHostClearedPages = "sim_host_cleared_pages",
    /// Frames cleared for a guest that the host had taken back before.
    SimHostRefaults = "sim_host_refaults",
    /// Frames of a guest that the host has taken back.
    SimHostDiscards = "sim_host_discards",
    /// Nanoseconds that the host took to free reported blocks and a balloon's pages, while a worker of the guest slept.
    SimHostGivesBackNs = "sim_host_gives_back_ns",
    /// Entries made hinting, so that the next access faults (`change_prot_numa`).
    NumaPteUpdates = "numa_pte_updates",
    /// Hinting faults.
    NumaHintFaults = "numa_hint_faults",
    /// Hinting faults on a page of the CPU's own node.
    NumaHintFaultsLocal = "numa_hint_faults_local",
    /// Pages that were moved to the node that uses them (`migrate_misplaced_page`).
    NumaPagesMigrated = "numa_pages_migrated",
    /// Huge pages migrated as a whole (since 5.9).
    ThpMigrationSuccess = "thp_migration_success",
    /// Huge pages that could neither be migrated nor split.
    ThpMigrationFail = "thp_migration_fail",
    /// Huge pages that were split so that their parts could be migrated.
    ThpMigrationSplit = "thp_migration_split",
    /// Pages that a balloon has taken from the guest for the host.
    BalloonInflate = "balloon_inflate",
    /// Pages that a balloon has given back to the guest.
    BalloonDeflate = "balloon_deflate",
}

impl Event {
    /// Whether the event belongs to balloons (CONFIG_MEMORY_BALLOON), which few machines here have.
    const fn is_of_balloon(self) -> bool {
        self as usize >= Self::BalloonInflate as usize
    }

    /// Whether the event belongs to guests.
    const fn is_of_guest(self) -> bool {
        self as usize >= Self::SimPageReports as usize && (self as usize) < Self::NumaPteUpdates as usize
    }
}

const EVENTS: usize = Event::ALL.len();

/// The count of each event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether some counters are there")]
pub struct Counters {
    events: [u64; EVENTS],
    extfrag: ExtfragCounts,
    /// The kernel counts `fragment_stall`.
    has_stalls: bool,
    /// The kernel counts why compaction did not begin.
    has_reasons: bool,
    /// The kernel is a guest.
    is_guest: bool,
    /// The guest has a balloon.
    has_balloon: bool,
    /// The kernel balances NUMA.
    balances_numa: bool,
    /// The kernel has counters of huge pages that move.
    counts_huge_moves: bool,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            events: [0; EVENTS],
            extfrag: ExtfragCounts::default(),
            has_stalls: false,
            has_reasons: false,
            is_guest: false,
            has_balloon: false,
            balances_numa: false,
            counts_huge_moves: false,
        }
    }
}

impl Counters {
    /// The counters of a kernel with these rules.
    pub fn of(rules: &Variant) -> Self {
        Self {
            has_stalls: rules.fragment_stall,
            has_reasons: rules.compact_counts_reasons,
            counts_huge_moves: rules.thp_migration_counts,
            ..Self::default()
        }
    }

    /// Adds the counters that guests alone have.
    pub fn of_guest(&mut self) {
        self.is_guest = true;
    }

    /// Adds the counters of a balloon.
    pub fn of_balloon(&mut self) {
        self.has_balloon = true;
    }

    /// Adds the counters of NUMA balancing.
    pub fn of_balancing(&mut self) {
        self.balances_numa = true;
    }

    /// Counts an event `n` times.
    #[inline]
    pub fn count(&mut self, event: Event, n: u64) {
        // No event is counted 2^64 times.
        let counter = &mut self.events[event as usize];
        *counter = counter.wrapping_add(n);
    }

    /// Takes one count of an event back: for tests that check that a lost count is found.
    ///
    /// # Panics
    /// When the count is 0.
    pub fn lose(&mut self, event: Event) {
        self.events[event as usize] -= 1;
    }

    /// Counts one event of `mm_page_alloc_extfrag` by its kind.
    ///
    /// # Panics
    /// When there can be no such event.
    #[inline]
    pub(crate) fn count_extfrag(&mut self, kind: ExtfragKind) {
        assert!(self.extfrag.count(kind, 1), "{kind:?} is no fallback");
    }

    /// Events of `mm_page_alloc_extfrag` by kind.
    pub fn extfrag(&self) -> &ExtfragCounts {
        &self.extfrag
    }

    /// The count of an event.
    pub fn get(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Every event with its count, in the order of declaration. Events that not all kernels have are left out if the count is
    /// 0; `fragment_stall` and events of guests are left out only if the kernel cannot have them.
    pub fn iter(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        let all = Event::ALL.iter().map(|event| (*event, self.get(*event)));
        let exists = |event: Event| match event {
            Event::FragmentStall => self.has_stalls,
            Event::SimCompactSkipped | Event::SimCompactDeferred => self.has_reasons,
            event if event.is_of_guest() => self.is_guest,
            event if event.is_of_balloon() => self.has_balloon,
            Event::NumaPteUpdates | Event::NumaHintFaults | Event::NumaHintFaultsLocal | Event::NumaPagesMigrated => {
                self.balances_numa
            }
            Event::ThpMigrationSuccess | Event::ThpMigrationFail | Event::ThpMigrationSplit => self.counts_huge_moves,
            _ => true,
        };
        all.filter(move |(event, count)| *count > 0 || exists(*event))
    }
}
