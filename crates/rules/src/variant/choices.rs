//! Linux: the history of mm/page_alloc.c, mm/slub.c and others (v3.9 to v6.18).
//! Differs: values of rules whose mechanism stands on a higher floor, or in no single file.

use serde::Serialize;

/// Which allocations count as ones that compacted (`compact_stall`), and then as ones that did so with or without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactStall {
    /// Those for which some zone was compacted.
    Tried,
    /// As `Tried`, and those that found compaction deferred in some zone.
    NotSkipped,
    /// All that asked for it, also where no zone had the frames that it takes. They look at the free lists once more, too.
    Asked,
}

/// The scheduler that chooses the next task of a CPU (kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scheduler {
    /// The task that has run least, by weight.
    Cfs,
    /// Of those that had no more than their share, the one with the earliest virtual deadline.
    Eevdf,
    /// As `Eevdf`; a task that sleeps after more than its share stays in the queue until it has paid.
    EevdfDelayed,
}

/// How the lock of an address space is fair (kernel/locking/rwsem.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MmapLock {
    /// Tasks that find the lock taken sleep, in the order of arrival.
    Sleeping,
    /// As `Sleeping`, but a writer spins as long as the writer that has it runs.
    Spinning,
    /// Writers spin on readers too, for a while; readers spin; a wake-up lets all readers in; who has waited for long gets
    /// the lock handed over.
    SpinningOnReaders,
    /// As `SpinningOnReaders`, but readers do not spin: one takes the lock at once if nobody has it.
    Stealing,
}

/// Which inodes that nobody uses the shrinker of a file system frees (`inode_lru_isolate`, fs/inode.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum InodeShrink {
    /// Any; its pages go with it.
    TakesPages,
    /// As `TakesPages`, but an inode with more than one page stays ("mm: don't reclaim inodes with many attached pages", 4.20;
    /// reverted in 5.0).
    KeepsMany,
    /// One without pages: others are not on its list ("vfs: keep inodes with page cache off the inode shrinker LRU", 5.16).
    WithoutPages,
}

/// Which zones' watermarks a fallback raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatermarkBoost {
    /// None's.
    None,
    /// Any's ("mm: reclaim small amounts of memory when an external fragmentation event occurs", 5.0).
    Any,
    /// Any's of at least four pageblocks ("mm: limit boost_watermark on small zones", 5.7).
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
    /// The request breaks the largest block of another type; reclaimable requests take the free frames around it, others only
    /// from large blocks; half a pageblock makes it theirs.
    ReclaimableSteals,
    /// As the one above, with the right of reclaimable requests for unmovable ones.
    KernelSteals,
    /// Allocated frames of a like kind count towards the half, and a movable request that may not take more than it
    /// found breaks the smallest block.
    CountsAlike,
}

/// Where a request turns when no other type has a block for it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LastResort {
    /// To pageblocks kept for this. Frames of theirs that a per-CPU list drew and gives back go to the type that they
    /// were drawn for ("mm/page_alloc: prevent MIGRATE_RESERVE pages from being misplaced", 3.16, ends that).
    ReserveMisplaced,
    /// To pageblocks kept for this.
    Reserve,
    /// Nowhere: the request fails.
    Nothing,
}

/// Reserve that an atomic request for more than one frame leaves for the next one (`MIGRATE_HIGHATOMIC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HighAtomic {
    /// Nothing.
    Nothing,
    /// The pageblock; the next request looks there first, but for orders that per-CPU lists hold.
    Pageblock,
    /// The pageblock; the next request looks there first, after the per-CPU list of its order.
    PageblockAfterPcp,
}

/// Which free pageblocks become one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Merging {
    /// All, but those being emptied with others.
    AllButIsolated,
    /// Those of types that requests ask for, and those of the same type.
    Requestable,
}

/// Blocks that a request for more than one frame must find above a watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatermarkOrders {
    /// Without the blocks of each smaller order, half the mark for each.
    HalvedPerOrder,
    /// Any free block that is large enough.
    AnyLargeEnough,
}

/// Which blocks per-CPU lists hold.
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

/// How a per-CPU list decides how much to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpFree {
    /// One batch.
    Batch,
    /// Twice as much each time, until an allocation halves it again.
    Doubling,
    /// As the one above, and everything when larger blocks (but not huge ones) are freed in a row.
    DoublingAllOfHigh,
}

/// In which order the lists of a CPU give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PcpDrain {
    /// In turn, more from one the more empty ones were passed.
    RoundRobin,
    /// The list just freed to as far as it goes, then the others.
    RequestedFirst,
}

/// Distance from min to low, and from low to high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MarkStep {
    /// A quarter of min each.
    QuarterOfMin,
    /// A quarter of min, or `vm.watermark_scale_factor` of the zone when that is more.
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
    /// As 1: all of the higher zones' frames are kept.
    One,
    /// Nothing is kept.
    NoReserve,
}

/// Reserve of a zone without managed frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EmptyReserve {
    /// By the formula of other zones.
    Formula,
    /// Nothing.
    Nothing,
}

/// How long a CPU's list may grow.
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

/// Measure by which the partial list of a CPU is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SlubCpuPartial {
    /// By the free objects that its slabs had when they came.
    Objects,
    /// By slabs ("mm, slub: change percpu partial accounting from objects to pages", b47291ef02b0, 5.16).
    Slabs,
}

/// Which shared pages come to the node of a task that faults there (`should_numa_migrate_memory`, kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaFilter {
    /// Those at which the task before, too, faulted on this node.
    Twice,
    /// Of these, pages of a group of tasks only from a node that it does not use, or to where it faults more than to where
    /// the page is ("sched/numa, mm: Use active_nodes nodemask to limit numa migrations", 10f39042711b, 3.15).
    ActiveNodes,
    /// Of these, pages of a group only to where it faults much more, or more for the memory that it has there
    /// ("sched/numa: Spread memory according to CPU and memory use", 4142c3ebb685, 4.6).
    CpuUse,
}

/// How the period of scans of a task follows from its faults (`task_numa_fault`, `update_task_scan_period`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaPeriod {
    /// Each fault that moves nothing makes it longer.
    Unmoved,
    /// With seven tenths of local faults and more it grows; with fewer it shrinks, the less the more faults are shared
    /// ("sched/numa: Adjust scan rate in task_numa_placement", 04bb2f947507, 3.13, there with three tenths).
    Local,
    /// As `Local`; and after a move in vain it doubles ("mm: numa: slow PTE scan rate if migration failures occur",
    /// 074c238177a7, 4.0).
    LocalUnlessFailed,
    /// The part of private faults does, or else that of local ones, from seven tenths on ("sched/numa: Slow down scan rate if
    /// shared faults dominate", 37ec97deb3a8, 4.14).
    LocalOrPrivate,
}

/// How a task finds a CPU on a node that it prefers (`task_numa_migrate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaPlaces {
    /// A task goes to a CPU there, whatever runs on it (the patches for 3.9).
    Alone,
    /// To one of a node that can run more, or in exchange for a task, where loads stay alike ("sched/numa: Use a system-wide
    /// search to find swap/migration candidates", 2c8a50aa0a7f and others, 3.13).
    ByCapacity,
    /// To one whose node's load comes nearer to the own node's, or in exchange for a task ("sched/numa: Evaluate move once per
    /// node", 2d4056fafa19, 4.19).
    ByImbalance,
    /// As the load balancer would: to an idle CPU of a node that has room, or in exchange for a task, at best one that wants to
    /// come ("sched/numa: Use similar logic to the load balancer for moving between domains with spare capacity", fb86f5b21192,
    /// 5.7).
    ByRoom,
}

/// Which entries of private memory hint (`change_pte_range`, mm/mprotect.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NumaHintsCow {
    /// All.
    All,
    /// Those of pages that no other entry maps ("mm: numa: do not trap faults on shared data section pages", 859d4adc3415, 4.16).
    MappedOnce,
    /// Those of pages to which there is no other reference ("mm: don't try to NUMA-migrate COW pages that have other uses",
    /// 80d47f5de5e3, 5.17).
    ReferencedOnce,
}

/// In which order a request compacts and reclaims, and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SlowPath {
    /// A request compacts without waiting, reclaims, and compacts once more. One for up to 8 frames begins again and again;
    /// one for a huge page gives up as soon as others are in its way.
    Fixed,
    /// A request compacts first for large blocks, and begins again for as long as reclaim or compaction promise something.
    ByProgress,
}

/// When a request that compacts first gives up right after that, instead of reclaiming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GivesUp {
    /// Where compaction was put off because it failed lately, if one for a large block shall not try hard.
    Deferred,
    /// As `ByProgress`; and a request for a pageblock or more that is not to try very hard fails where compaction was put off
    /// or found too little free to begin with.
    Pageblocks,
    /// Where it was put off or found too little free to begin with, if one for a large block shall not try hard.
    NotBegun,
    /// As `Deferred`; and a task's request for a pageblock that shall not try hard gives up whatever compaction came to (posted
    /// in October 2018, never merged).
    WholeBlocks,
}

/// When pages are taken out of a balloon for want of memory, where the host allows it (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BalloonDeflates {
    /// Nothing.
    Never,
    /// When a request has no memory, instead of the OOM killer (`virtio_balloon_oom_notify`).
    OnOom,
    /// Reclaim, as out of a cache (`virtio_balloon_shrinker_scan`).
    Shrinker,
}

/// Which end of a free list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ListEnd {
    /// Allocated next.
    Head,
    /// Allocated last.
    Tail,
}

/// When a zone is compacted enough for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactEnds {
    /// When it is above its Low mark for that order, and there is a block, or one to steal.
    AboveLow,
    /// When there is a block; one of another type at once for movable requests and asynchronous compaction, else at the end
    /// of the pageblock.
    AtBlock,
    /// When there is a block, as for `AtBlock`, but looked for at the end of a pageblock only.
    AtPageblock,
}

/// How asynchronous compaction behaves when others want the lock that it wants, or the CPU that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactContended {
    /// Compaction ends, puts back the frames that it has, and says so to its caller.
    Aborts,
    /// Compaction waits for the lock, and ends after the pageblock.
    GoesOn,
}

/// How compaction treats huge pages in its way. No release moves them: up to 6.8 compaction leaves all compound pages alone, and
/// since then those of a pageblock's size (`skip_isolation_on_order`, mm/compaction.c, v6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactHugePages {
    /// The search for pages looks at the first frame, that for free frames at each of them. Their pageblocks are marked as
    /// ones where nothing is to be had, also for the time when the huge pages are gone.
    ByFrame,
    /// As `ByFrame`, but both searches pass a huge page at once.
    ByPage,
    /// Their pageblocks are left out before anything is looked at.
    ByBlock,
}

/// Which mark a zone must hold, with room for the move, before it is compacted; and when it is asked whether memory is
/// short rather than fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CompactMark {
    /// Low; always.
    Low,
    /// Low for orders above 3, else Min; for orders above 3.
    ByOrder,
}

/// The pages that a store to a shared page takes over instead of copying them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CowReuse {
    /// Those of folios that nobody else maps (`reuse_swap_page`).
    ByMappings,
    /// Those to whose folio there is no other reference, such as that of a CPU's batch of new folios.
    ByReferences,
    /// As `ByReferences`, after this CPU's batch was drained.
    ByReferencesDrained,
}

/// On which node the huge page of a collapsed range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CollapseTarget {
    /// That of its first page.
    FirstPage,
    /// That of most of its pages; of several, the next after the last one that was chosen.
    MostInTurn,
    /// That of most of its pages; of several, the first.
    Most,
}

/// The allocator of the huge pages that faults ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpRequests {
    /// khugepaged, which then looks at processes too (patch 4 of the series).
    Khugepaged,
    /// khugepaged, which does no more when it was woken for that ("maybe just skip the collapse scanning altogether", the end
    /// of its cover letter).
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

/// Where new anonymous folios begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NewAnon {
    /// As not yet known to be in use (5.9).
    Inactive,
    /// In use.
    Active,
}

/// `/sys/kernel/mm/transparent_hugepage/defrag`: what a fault does to get a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpDefrag {
    /// Reclaims and compacts.
    Always,
    /// Wakes those who do (4.6).
    Defer,
    /// Wakes them, and reclaims and compacts for mappings with `MADV_HUGEPAGE` (4.11).
    DeferMadvise,
    /// Reclaims and compacts for mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Takes what is there.
    Never,
}

/// From which nodes faults take huge pages (`alloc_pages_vma`, mm/mempolicy.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ThpNodes {
    /// From any, the local one first.
    Any,
    /// From the local one.
    Local,
    /// From the local one, but from any where the fault may reclaim: rather far than reclaimed.
    LocalUnlessReclaims,
    /// From the local one with all effort, then, where the fault may reclaim, from any with little.
    LocalThenOnce,
    /// From the local one without much effort, then from any.
    LocalFirst,
    /// From the local one, where a fault compacts once and never reclaims (`__GFP_ONLY_COMPACT`, posted in August 2018).
    LocalCompacted,
    /// As `LocalCompacted`; then from any, compacting once, if the local one has not enough free base pages either.
    LocalCompactedUnlessShort,
    /// From the local one if it has one above its Low mark; then from any with all effort.
    LocalFast,
    /// From the local one, but from any for mappings with `MADV_HUGEPAGE`.
    LocalUnlessAdvised,
    /// From the local one for mappings with `MADV_HUGEPAGE`, which stands for a `MADV_HUGEPAGE_FORCE_LOCAL`; for others as
    /// `LocalUnlessReclaims`.
    LocalIfAdvised,
}

/// How mappings without an address are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MmapAlign {
    /// At base pages.
    Base,
    /// At huge pages from 2 MiB on.
    LargeAtHuge,
    /// At huge pages where the length is a multiple of 2 MiB.
    MultiplesAtHuge,
}
