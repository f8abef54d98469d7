//! Linux: the history of mm/page_alloc.c, mm/slub.c and others (v3.9 to v6.18).
//! Differs: values of rules whose mechanism stands on a higher floor, or in no single file.

use serde::Serialize;

/// Allocations that count in `compact_stall`, and then in `compact_success` or `compact_fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactStall {
    /// Allocations for which some zone was compacted.
    Tried,
    /// As `Tried`, and allocations that found compaction deferred in some zone.
    NotSkipped,
    /// All allocations that asked for compaction, even if no zone had the free frames that a run needs. They also try the free
    /// lists once more.
    Asked,
}

/// The scheduler that chooses the next task of a CPU (kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scheduler {
    /// The task with the least weighted run time (`vruntime`) runs next.
    Cfs,
    /// Among tasks that have had no more than their share, the one with the earliest virtual deadline runs next.
    Eevdf,
    /// As `Eevdf`; a task that sleeps after more than its share stays queued until its lag is gone (`DELAY_DEQUEUE`).
    EevdfDelayed,
}

/// Fairness of the mmap lock (kernel/locking/rwsem.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MmapLock {
    /// Tasks that find the lock taken sleep, in the order of arrival.
    Sleeping,
    /// As `Sleeping`, but a writer spins while the writer that owns the lock runs.
    Spinning,
    /// Writers spin on readers too, for a while, and readers spin. A wake-up lets all readers in. A task that has waited long is
    /// handed the lock.
    SpinningOnReaders,
    /// As `SpinningOnReaders`, but readers do not spin: a reader takes the lock at once if no writer owns or awaits it.
    Stealing,
}

/// The unused inodes that the shrinker of a file system frees (`inode_lru_isolate`, fs/inode.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum InodeShrink {
    /// Any unused inode; its pages are freed with it.
    TakesPages,
    /// As `TakesPages`, but an inode with more than one page stays ("mm: don't reclaim inodes with many attached pages", 4.20;
    /// reverted in 5.0).
    KeepsMany,
    /// An inode without pages; others are not on the shrinker's list ("vfs: keep inodes with page cache off the inode shrinker
    /// LRU", 5.16).
    WithoutPages,
}

/// The zones whose watermarks a fallback raises (`boost_watermark`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatermarkBoost {
    /// No zone.
    None,
    /// Every zone ("mm: reclaim small amounts of memory when an external fragmentation event occurs", 5.0).
    Any,
    /// Every zone of at least 4 pageblocks ("mm: limit boost_watermark on small zones", 5.7).
    NotSmall,
}

/// Effect of a store to a huge page that others map too, or to the huge zero page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HugeCow {
    /// The task gets a huge page of its own; without one, 512 base pages.
    Copy,
    /// The PMD is split, and the store gets one base page ("thp: change CoW semantics for anon-THP", 5.8).
    SplitPmd,
}

/// Fallback of a request that finds no free block of its own type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FallbackRules {
    /// The request breaks the largest block of another type. A reclaimable request also takes the other free frames of that
    /// pageblock, others do so only for a large block. The pageblock changes type if half of its frames were free.
    ReclaimableSteals,
    /// As `ReclaimableSteals`, and unmovable requests have the right of reclaimable ones.
    KernelSteals,
    /// Allocated frames of a compatible type count towards the half too. A movable request that may not take the whole pageblock
    /// breaks the smallest block.
    CountsAlike,
}

/// Source of a request when no other type has a block either (`__rmqueue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LastResort {
    /// Pageblocks kept as a reserve (`MIGRATE_RESERVE`). A reserved frame that a per-CPU list gives back goes to the free list of
    /// the type that it was taken for (until "mm/page_alloc: prevent MIGRATE_RESERVE pages from being misplaced", 3.16).
    ReserveMisplaced,
    /// Pageblocks kept as a reserve (`MIGRATE_RESERVE`); their frames return to it.
    Reserve,
    /// None: the request fails.
    Nothing,
}

/// Reserve that an atomic request for more than one frame leaves for later requests (`MIGRATE_HIGHATOMIC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HighAtomic {
    /// Nothing.
    Nothing,
    /// The pageblock of the block. The next request tries the reserve first, except for orders that per-CPU lists hold.
    Pageblock,
    /// The pageblock of the block. The next request tries the reserve after the per-CPU list of its order.
    PageblockAfterPcp,
}

/// Pageblocks whose free blocks merge with the free blocks of a neighbour (`__free_one_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Merging {
    /// All pageblocks; an isolated pageblock merges with isolated ones alone.
    AllButIsolated,
    /// Pageblocks of the types that requests ask for, and any two of equal type.
    Requestable,
}

/// The free blocks that a request for more than one frame needs above a watermark (`__zone_watermark_ok`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatermarkOrders {
    /// For each smaller order its blocks are taken off the free frames and the mark is halved.
    HalvedPerOrder,
    /// Any free block of the requested order or larger.
    AnyLargeEnough,
}

/// The blocks that per-CPU lists hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpLists {
    /// Single frames; lists in the order unmovable, reclaimable, movable.
    BaseReclaimableFirst,
    /// Single frames; lists in the order unmovable, movable, reclaimable.
    Base,
    /// Orders 0 to 3, and huge pages by type.
    HugeByType,
    /// Orders 0 to 3, and huge pages on one list for all types.
    HugeTogether,
}

/// How many frames a full per-CPU list gives back (`nr_pcp_free`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpFree {
    /// One batch.
    Batch,
    /// Twice as many frames as the time before, until an allocation halves the number.
    Doubling,
    /// As `Doubling`; and the whole list if larger blocks (not huge pages) are freed in a row.
    DoublingAllOfHigh,
}

/// The order in which the lists of a CPU give back frames (`free_pcppages_bulk`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpDrain {
    /// One list after the other; a list gives back more, the more empty lists were passed before it.
    RoundRobin,
    /// The list that was just freed to gives back all it can, then the others.
    RequestedFirst,
}

/// Distance from Min to Low, and from Low to High.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MarkStep {
    /// A quarter of Min each.
    QuarterOfMin,
    /// A quarter of Min, or `vm.watermark_scale_factor` of the zone if that is more.
    ScaleFactor,
}

/// How ZONE_MOVABLE takes part in `min_free_kbytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MovableMarks {
    /// The zone takes its share like any other.
    Share,
    /// The other zones share all of it; Movable has a small min mark of its own, even when empty.
    Clamped,
}

/// Meaning of a `vm.lowmem_reserve_ratio` of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RatioZero {
    /// As a ratio of 1: the reserve is as large as all higher zones.
    One,
    /// Requests for higher zones leave no reserve in this zone.
    NoReserve,
}

/// Reserve of a zone without managed frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EmptyReserve {
    /// By the formula that holds for other zones.
    Formula,
    /// None.
    Nothing,
}

/// Most frames on the lists of one CPU (`pcp->high`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpHighRule {
    /// Six batches.
    SixBatches,
    /// The zone's low mark, divided among the CPUs of its node.
    LowMarkPerCpu,
    /// Tuned at run time, from the low mark per CPU up to an eighth of the zone per CPU.
    Tuned,
}

/// Zones that count in the `min_free_kbytes` recommended for transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpZones {
    /// Every populated zone.
    Populated,
    /// Populated zones up to Normal: all pages in Movable are movable anyway.
    UpToNormal,
}

/// Unit in which the partial list of a CPU is limited (`slub_set_cpu_partial`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SlubCpuPartial {
    /// Objects that were free in its slabs when these were put on the list.
    Objects,
    /// Slabs ("mm, slub: change percpu partial accounting from objects to pages", b47291ef02b0, 5.16).
    Slabs,
}

/// Shared pages that move to the node of a task that faults on them (`should_numa_migrate_memory`, kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaFilter {
    /// Pages whose last hinting fault came from this node too.
    Twice,
    /// Of the pages of `Twice`, a page that tasks of a group share moves only from a node that the group does not use, or to a
    /// node where the group faults more than on the page's node ("sched/numa, mm: Use active_nodes nodemask to limit numa
    /// migrations", 10f39042711b, 3.15).
    ActiveNodes,
    /// Of the pages of `Twice`, a page that tasks of a group share moves only to a node where the group faults much more, or
    /// faults more relative to the memory that it has there ("sched/numa: Spread memory according to CPU and memory use",
    /// 4142c3ebb685, 4.6).
    CpuUse,
}

/// How hinting faults change a task's scan period (`task_numa_fault`, `update_task_scan_period`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaPeriod {
    /// The period grows at each fault that moves no page.
    Unmoved,
    /// The period grows if at least 7/10 of the faults were local; else it shrinks, less so the more of them were shared
    /// ("sched/numa: Adjust scan rate in task_numa_placement", 04bb2f947507, 3.13, there with 3/10).
    Local,
    /// As `Local`; and the period doubles if a migration failed ("mm: numa: slow PTE scan rate if migration failures occur",
    /// 074c238177a7, 4.0).
    LocalUnlessFailed,
    /// As `LocalUnlessFailed`, and the period also grows if at least 7/10 of the faults were private ("sched/numa: Slow down scan
    /// rate if shared faults dominate", 37ec97deb3a8, 4.14).
    LocalOrPrivate,
}

/// Search for a CPU on a task's preferred node (`task_numa_migrate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaPlaces {
    /// The task moves to a CPU of the preferred node, whatever runs there (the patches for 3.9).
    Alone,
    /// The task moves to a CPU of a node with capacity to spare, or changes places with a task if loads stay alike ("sched/numa:
    /// Use a system-wide search to find swap/migration candidates", 2c8a50aa0a7f and others, 3.13).
    ByCapacity,
    /// The task moves if that evens out the loads of both nodes, or changes places with a task ("sched/numa: Evaluate move once
    /// per node", 2d4056fafa19, 4.19).
    ByImbalance,
    /// As the load balancer does: the task moves to an idle CPU of a node that has room, or changes places with a task,
    /// preferably one that wants to move here ("sched/numa: Use similar logic to the load balancer for moving between domains
    /// with spare capacity", fb86f5b21192, 5.7).
    ByRoom,
}

/// Entries of private memory that a scan makes hinting (`change_pte_range`, mm/mprotect.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaHintsCow {
    /// All entries.
    All,
    /// Entries of pages that no other entry maps ("mm: numa: do not trap faults on shared data section pages", 859d4adc3415,
    /// 4.16).
    MappedOnce,
    /// Entries of pages without another reference ("mm: don't try to NUMA-migrate COW pages that have other uses", 80d47f5de5e3,
    /// 5.17).
    ReferencedOnce,
}

/// The order in which the slow path compacts and reclaims, and when a request gives up (`__alloc_pages_slowpath`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SlowPath {
    /// Async compaction, reclaim, and compaction once more. A request for up to 8 frames starts over again and again; a request
    /// for a huge page gives up if async compaction met contention.
    Fixed,
    /// A large request compacts first. The slow path starts over as long as reclaim or compaction make progress.
    ByProgress,
}

/// Results of the first compaction after which a request fails without reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GivesUp {
    /// Compaction was deferred after an earlier failure, and the request is costly with `__GFP_NORETRY`.
    Deferred,
    /// As `ByProgress`; and a request for a pageblock or more without `__GFP_RETRY_MAYFAIL` fails if compaction was deferred or
    /// skipped for want of free frames.
    Pageblocks,
    /// Compaction was deferred or skipped for want of free frames, and the request is costly with `__GFP_NORETRY`.
    NotBegun,
    /// As `Deferred`; and a task's request for a pageblock with `__GFP_NORETRY` fails after any result of compaction (posted in
    /// October 2018, never merged).
    WholeBlocks,
}

/// The trigger that takes pages out of a balloon, where the host allows that (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BalloonDeflates {
    /// None.
    Never,
    /// A request that would invoke the OOM killer (`virtio_balloon_oom_notify`).
    OnOom,
    /// Reclaim asks the balloon's shrinker (`virtio_balloon_shrinker_scan`).
    Shrinker,
}

/// An end of a free list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ListEnd {
    /// The end that the next allocation takes from.
    Head,
    /// The end that allocations reach last.
    Tail,
}

/// State of a zone that ends its compaction for a request (`compact_finished`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactEnds {
    /// The zone is above its Low mark for the order, and has a free block of the request's type or one that it may steal.
    AboveLow,
    /// The zone has a free block of the request's type. A block of another type counts at once for movable requests and async
    /// compaction, else only at the end of a pageblock.
    AtBlock,
    /// As `AtBlock`, but the free lists are checked at the end of a pageblock only.
    AtPageblock,
}

/// Reaction of async compaction to contention for its lock, or to a task that wants the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactContended {
    /// The run ends, puts back its isolated frames and reports contention to its caller (`COMPACT_CONTENDED`).
    Aborts,
    /// The run waits for the lock, and goes on to the end of the pageblock.
    GoesOn,
}

/// How compaction treats huge pages in its way. No release moves them: up to 6.8 compaction leaves all compound pages alone, and
/// since then those of a pageblock's size (`skip_isolation_on_order`, mm/compaction.c, v6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactHugePages {
    /// The migrate scanner looks at the first frame of a huge page, the free scanner at every frame. The pageblock gets a skip
    /// mark, which outlasts the huge page.
    ByFrame,
    /// As `ByFrame`, but both scanners pass a huge page in one step.
    ByPage,
    /// The scanners pass a pageblock that is a huge page without a look at its frames.
    ByBlock,
}

/// The mark that a zone must hold, with room for the frames to move, before compaction (`compaction_suitable`); and the orders
/// for which the fragmentation index decides between lack of memory and fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactMark {
    /// The Low mark; the index is checked for all orders.
    Low,
    /// The Low mark for orders above 3, else Min; the index is checked for orders above 3.
    ByOrder,
}

/// Shared pages that a store takes over without copying them (`do_wp_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CowReuse {
    /// Pages of folios that no other process maps (`reuse_swap_page`).
    ByMappings,
    /// Pages of folios without another reference, such as that of a CPU's batch of new folios.
    ByReferences,
    /// As `ByReferences`, after this CPU's batch of new folios was drained.
    ByReferencesDrained,
}

/// Node of the huge page of a collapsed range (`khugepaged_find_target_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CollapseTarget {
    /// The node of the range's first page.
    FirstPage,
    /// The node of most pages of the range; among equals, the node after the one chosen last.
    MostInTurn,
    /// The node of most pages of the range; among equals, the first.
    Most,
}

/// Thread that allocates the huge pages that faults ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpRequests {
    /// khugepaged, which after that scans processes as usual (patch 4 of the series).
    Khugepaged,
    /// khugepaged, which scans nothing when a fault woke it ("maybe just skip the collapse scanning altogether", the end of the
    /// series' cover letter).
    KhugepagedUnscanned,
    /// A thread of each node ("if each node had own khugepaged just for the THP allocation work", ibid.).
    NodeThreads,
}

/// The owner of LRU lists: a zone or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LruBy {
    /// Each zone.
    Zone,
    /// Each node.
    Node,
}

/// LRU list of new anonymous folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NewAnon {
    /// The inactive list (5.9).
    Inactive,
    /// The active list.
    Active,
}

/// `/sys/kernel/mm/transparent_hugepage/defrag`: what a fault does to get a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpDefrag {
    /// Reclaims and compacts.
    Always,
    /// Wakes kswapd and kcompactd, which reclaim and compact (4.6).
    Defer,
    /// Wakes kswapd and kcompactd; for mappings with `MADV_HUGEPAGE` it reclaims and compacts itself (4.11).
    DeferMadvise,
    /// Reclaims and compacts for mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Takes a free block or none.
    Never,
}

/// Nodes from which faults take huge pages (`alloc_pages_vma`, mm/mempolicy.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpNodes {
    /// From any node, the local one first.
    Any,
    /// From the local node alone.
    Local,
    /// From the local node; from any node if the fault may reclaim: remote memory is better than reclaim.
    LocalUnlessReclaims,
    /// From the local node with all effort; then, if the fault may reclaim, from any node with little effort.
    LocalThenOnce,
    /// From the local node with little effort, then from any node.
    LocalFirst,
    /// From the local node, where a fault compacts once and never reclaims (`__GFP_ONLY_COMPACT`, posted in August 2018).
    LocalCompacted,
    /// As `LocalCompacted`; then from any node, compacting once, if the local node lacks free base pages too.
    LocalCompactedUnlessShort,
    /// From the local node if it has a free huge page above its Low mark; then from any node with all effort.
    LocalFast,
    /// From the local node; from any node for mappings with `MADV_HUGEPAGE`.
    LocalUnlessAdvised,
    /// From the local node for mappings with `MADV_HUGEPAGE`, which stands for a `MADV_HUGEPAGE_FORCE_LOCAL`; for others as
    /// `LocalUnlessReclaims`.
    LocalIfAdvised,
}

/// Alignment of mappings without an address (`thp_get_unmapped_area`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MmapAlign {
    /// 4 KiB.
    Base,
    /// 2 MiB for mappings of at least 2 MiB.
    LargeAtHuge,
    /// 2 MiB if the length is a multiple of 2 MiB.
    MultiplesAtHuge,
}
