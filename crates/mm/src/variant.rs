//! Linux: the history of mm/page_alloc.c and mm/khugepaged.c (v3.9 to v6.18).
//! Differs: one file per release in which a rule changed or that an experiment names (`variants/`), each its parent plus
//! what differs; development kernels between two releases have the older one's rules.
//!
//! The table of rules here is the only description of which keys and values a variant file may have; `built_in.rs` reads
//! the files that come with the program, `lab` those of users.

mod built_in;
mod choices;
pub mod file;
mod named;
mod patches;
mod rule;
#[cfg(test)]
mod tests;
mod words;

use serde::Serialize;
use units::Bytes;

use self::rule::{Value, rules};
pub use self::{
    built_in::{all, built_in, named, patched},
    choices::{
        CompactStall, EmptyReserve, FallbackRules, HighAtomic, HugeCow, InodeShrink, LastResort, MarkStep, Merging,
        MmapLock, MovableMarks, NumaFilter, NumaHintsCow, NumaPeriod, NumaPlaces, PcpDrain, PcpFree, PcpHighRule,
        PcpLists, RatioZero, Scheduler, SlubCpuPartial, ThpZones, WatermarkBoost, WatermarkOrders,
    },
    named::{Named, NeedsBoot, UnknownRelease},
    patches::{Patch, PatchProblem, PatchesForm, split_patches},
    rule::{Changes, Rule, Takes},
};
use crate::{
    alloc::slow::{GivesUp, SlowPath},
    balloon::BalloonDeflates,
    buddy::End,
    compact::{CompactContended, CompactEnds, CompactHugePages, CompactMark},
    fault::CowReuse,
    khugepaged::{CollapseTarget, ThpRequests},
    lru::{LruBy, NewAnon},
    thp::{ThpDefrag, ThpNodes},
    vma::MmapAlign,
};

rules! {
    ["Zones and their watermarks"]
    /// Distance between two watermarks.
    mark_step: MarkStep => AtBoot,
    /// Is there a mark above high, for promotion between memory tiers?
    promo_mark: bool => AtBoot,
    /// How ZONE_MOVABLE takes part in `min_free_kbytes`.
    movable_marks: MovableMarks => AtBoot,
    /// What a `vm.lowmem_reserve_ratio` of 0 means.
    reserve_ratio_zero: RatioZero => AtBoot,
    /// What a zone without managed frames keeps in reserve.
    empty_zone_reserve: EmptyReserve => AtBoot,
    /// The most that the kernel chooses for `vm.min_free_kbytes` by the size of memory, in KiB.
    min_free_kbytes_max: u64 => AtBoot,
    /// Zones that count in the `min_free_kbytes` recommended for transparent huge pages.
    thp_zones: ThpZones => AtBoot,
    /// What a request for more than one frame must find above a watermark.
    watermark_orders: WatermarkOrders,
    /// Do the zones of a node take turns in serving requests, each as long as its marks are apart (`ALLOC_FAIR`)?
    fair_zones: bool,
    /// Does a request that may not wait have a quarter of what the Min mark keeps, if it wakes kswapd (`ALLOC_HARDER`)?
    nowait_is_harder: bool,

    ["Watermarks that are raised for a while"]
    /// Does a fallback that breaks up a pageblock raise the zone's watermarks for kswapd (`watermark_boost`)?
    watermark_boost: WatermarkBoost,
    /// Does kswapd leave shrinkers alone as long as it only makes the room by which marks were raised (`may_shrinkslab`)?
    boost_spares_slab: bool,
    /// Is kswapd woken also for a pageblock that was broken up without raising marks, which is so with a factor of 0?
    fallback_wakes_unboosted: bool,
    /// Has an atomic request for one frame what the Min mark would leave it if it were not raised?
    atomic_ignores_boost: bool,
    /// Do raised marks keep free blocks from compaction, which looks for some to move pages to?
    boost_keeps_targets: bool,

    ["Free lists by migrate type"]
    /// What a request does that finds no free block of its own type.
    fallback: FallbackRules,
    /// Where it turns when there is no other type either.
    last_resort: LastResort => AtBoot,
    /// What an atomic request for more than one frame leaves for the next one.
    high_atomic: HighAtomic => AtBoot,
    /// Which free pageblocks become one block.
    merging: Merging,
    /// Where blocks go that nobody just used: those given at boot, those moved between types.
    moved_end: End,
    /// Does a request for Normal rather go to its node's DMA32 than break up another type's pageblock (`ALLOC_NOFRAGMENT`)?
    nofragment: bool,
    /// Is that found out for each request, and then lost, so that none does (a mistake that was posted, and released)?
    nofragment_flag_lost: bool,
    /// Does a movable request that may wait rather sleep for kswapd once than take a small block from another type?
    fragment_stall: bool => AtBoot,

    ["Per-CPU lists"]
    /// Where a CPU's `batch` stops growing with the zone.
    pcp_batch_limit: Bytes => AtBoot,
    /// How long a CPU's list may grow.
    pcp_high: PcpHighRule => AtBoot,
    /// Which blocks per-CPU lists hold.
    pcp_lists: PcpLists => AtBoot,
    /// How a per-CPU list decides how much to give back.
    pcp_free: PcpFree,
    /// How often at most that doubles.
    pcp_doublings_max: u64,
    /// Does a CPU keep next to nothing while kswapd reclaims for the zone (`ZONE_RECLAIM_ACTIVE`)?
    pcp_yields_to_reclaim: bool,
    /// In which order the lists of a CPU give back.
    pcp_drain: PcpDrain,
    /// Does what is reclaimed go to the end of a CPU's list that gives back, and what is read into come from there (`cold`)?
    pcp_has_cold_end: bool,

    ["The slow path of an allocation"]
    /// In which order a request compacts and reclaims that finds no zone above its Min mark, and when it gives up.
    slow_path: SlowPath,
    /// When a request that compacts before it reclaims gives up in between (4.8 and later).
    slow_gives_up: GivesUp,
    /// Does a request for one node that may not reclaim have what is above its first mark or nothing, and wake nobody?
    node_only_gives_up: bool,

    ["LRU lists"]
    /// How many new folios a CPU collects before they go to the LRU lists, at most 31 (`PAGEVEC_SIZE`).
    lru_batch: u64,
    /// Do they go there as soon as there are so many, and not only when there is one more?
    lru_full_drains: bool,
    /// Does a huge page send what is collected to the lists at once?
    lru_huge_drains: bool,
    /// Who has LRU lists, and so what kswapd and direct reclaim go by. (The lists are built by it when a kernel starts.)
    lru_by: LruBy => AtBoot,
    /// The LRU list for new anonymous folios.
    lru_new_anon: NewAnon,
    /// Is an inactive list too short by the size of both lists, and not by the zone's (anonymous memory) or by half (files)?
    inactive_by_lists: bool,

    ["Reclaim"]
    /// Are anonymous memory and files weighed by what reclaiming them has cost, and not by the pages that were in use?
    reclaim_by_costs: bool,
    /// Do pages that come back make active lists age?
    reclaim_notes_refaults: bool,
    /// Is that decided for a whole pass, and aged what was spared when a run was in vain? Else each time, for files alone.
    reclaim_ages_by_pass: bool,
    /// Does reclaim move dirty files out of its way, and wake the flusher for want of others, not for having looked at enough?
    reclaim_sets_dirty_aside: bool,
    /// Does reclaim leave pinned base pages as they are? Else they go to the swap cache, from where they cannot be freed.
    reclaim_keeps_pinned: bool,
    /// Does reclaim flush TLBs once for all that it unmaps in a run, and not after each entry (`TTU_BATCH_FLUSH`)?
    reclaim_batches_flushes: bool,
    /// Does reclaim wait for what it waits for, and not for a disk to be less busy (`congestion_wait`)?
    reclaim_throttles: bool,
    /// Does a direct reclaim that got nothing go through all priorities once more (`may_thrash`)?
    reclaim_vain_again: bool,
    /// Does reclaim for a large block free twice its size, before it asks whether compaction can begin?
    reclaim_gap_first: bool,
    /// Does a direct reclaimer that has enough give up what is left in proportion again and again, and not only once?
    reclaim_trims_again: bool,
    /// Does kswapd go on for the highest zone that it was asked for or did something for, and for DMA alone when nobody asks?
    kswapd_keeps_highest: bool,
    /// Does kswapd rest on what was asked for during its run alone, and on DMA when nothing was (`kswapd`, up to 4.11)?
    kswapd_rests_on_asked: bool,
    /// Must all zones be balanced before kswapd sleeps and wakes kcompactd (`prepare_kswapd_sleep`, up to 4.11), and not one?
    kswapd_needs_all_zones: bool,

    ["Shrinkers and slabs"]
    /// Are shrinkers asked in proportion to the pages that reclaim has looked at, and not by its priority?
    slab_by_scanned: bool,
    /// Is a cache asked for a batch of objects at least, or for all that it has?
    slab_scans_a_batch: bool,
    /// Of what it was not asked for so far, how much it is asked for now follows from the priority too.
    slab_deferred_by_priority: bool,
    /// Which inodes that nobody uses the shrinker of a file system frees.
    inode_shrink: InodeShrink,
    /// Does a security module keep something with each inode in memory (`lsm_inode_cache`)?
    lsm_inode_blob: bool,
    /// Does a shrinker free what the journal of ext4 knows of blocks that are written, and not who wants the page of one?
    journal_shrinks: bool,
    /// Can the kernel be built with the slab allocator SLAB, and not with SLUB alone?
    has_slab: bool,
    /// The measure by which the partial list of a CPU is long enough in the slab allocator SLUB.
    slub_cpu_partial: SlubCpuPartial => AtBoot,

    ["Compaction"]
    /// Does compaction look on the free lists first for a pageblock to empty, one that is partly free?
    compact_lists_for_sources: bool,
    /// Has a pageblock its mark for the time that pages are taken from it, so that no other compaction takes it?
    compact_private_sources: bool,
    /// Does it look on the free lists first for frames to move to, high up in the zone?
    compact_lists_for_targets: bool,
    /// Does that begin with the order that served last and go round, and not with the largest below the one wanted?
    compact_orders_in_turn: bool,
    /// Are all pages of a pageblock that a run comes to again moved at once, and is it marked then, whatever was there?
    compact_rescans_at_once: bool,
    /// Does the next compaction begin behind pageblocks that are none to take pages from?
    compact_passes_unfit: bool,
    /// Does asynchronous compaction that has found nothing yet say for synchronous compaction too where to begin?
    compact_syncs_cached: bool,
    /// Does the linear search alone mark where no free frames are left: each pageblock that it has searched to its end?
    compact_marks_searched: bool,
    /// Does asynchronous compaction look for free frames at a few frames of a pageblock only, until it finds some?
    compact_samples: bool,
    /// Is a search of the free lists for a pageblock to empty in vain whenever it finds none, and does it look at no more blocks
    /// than it may? Else it is where it comes to that number at a block that is not skipped for its mark or its place.
    compact_fails_without_source: bool,
    /// Does the search for frames to move to look at several blocks of a free list also after its start, where it looks at many?
    compact_looks_further: bool,
    /// Does the linear search begin at the highest free block that was seen only if that is high up in the zone?
    compact_begins_high: bool,
    /// Are marks cleared only where there is something to move, or somewhere to move it to?
    compact_clears_selectively: bool,
    /// At how many frames of a pageblock compaction looks to see that it is all of one zone.
    compact_zone_frames: u64,
    /// When a zone is compacted enough for a request.
    compact_ends: CompactEnds,
    /// What asynchronous compaction does when others want the lock or the CPU.
    compact_contended: CompactContended,
    /// Is compaction put off by the reason of a failure: as long as frames are lacking, or until some have come free?
    compact_defers_by_reason: bool,
    /// Is it counted why compaction did not begin for a request, as events of the kernel's trace say it?
    compact_counts_reasons: bool => AtBoot,
    /// What compaction does about huge pages in its way.
    compact_huge_pages: CompactHugePages,
    /// Does the search for free frames end at the first block that the zone cannot spare?
    compact_ends_at_mark: bool,
    /// Do all frames of a free block that is taken count as scanned, and not only the one that was looked at?
    compact_counts_frames: bool,
    /// Do all frames of a huge page or a free block that a scanner passes by count as scanned?
    compact_counts_passed: bool,
    /// Which mark a zone must hold before it is compacted.
    compact_mark: CompactMark,
    /// Does compaction that waits for locks, but for no disk, leave pages on their lists that are being written?
    compact_leaves_written: bool,
    /// Does a page that cannot be moved make asynchronous compaction leave out the block of the order asked for around it?
    compact_skips_on_failure: bool,
    /// Does a task that compacts have the block that it completes, before others see it?
    compact_capture: bool,
    /// Which allocations count as ones that compacted.
    compact_stall: CompactStall,
    /// Does asynchronous compaction for what cannot be moved empty pageblocks of that type, and not movable ones?
    compact_own_blocks: bool,
    /// Does a request that may not reclaim wake kcompactd where kswapd is left asleep (`wakeup_kswapd`, since 4.17)?
    kcompactd_without_kswapd: bool,
    /// Does each node have a kernel thread that compacts?
    kcompactd: bool,
    /// Does that also look, from time to time, whether there is something to do?
    compact_proactive: bool,

    ["Migration of pages"]
    /// How many pages are unmapped before they are copied, one after the other.
    migrate_batch: u64,
    /// Do pages count as failed that may only have been tried too often, or for which there was no frame?
    migrate_counts_tried: bool,
    /// Do pages that were moved, and those that were not, wait among the CPU's new folios before they are freed and listed?
    migrate_through_batch: bool,
    /// Do entries say after a move, as before, that their page was used and stored to through them? Else they are old and clean.
    migrate_keeps_young: bool,
    /// Do huge pages migrate as a whole, and not split?
    thp_migrates: bool,
    /// Is a huge page that migrates counted by its base pages, and in counters of its own?
    thp_migration_counts: bool => AtBoot,
    /// Does a huge page that was not migrated count as all its base pages also where it was only tried in vain, and not as one?
    migrate_counts_parts: bool,

    ["Address spaces and their lock"]
    /// How mappings without an address are placed.
    mmap_align: MmapAlign,
    /// How the lock of an address space is fair.
    mmap_lock: MmapLock,
    /// Does munmap let faults go on once the mappings are gone, while it frees their memory?
    munmap_downgrades: bool,
    /// Do faults lock their VMA instead of the address space?
    vma_locks: bool,
    /// Whose pages a store to a shared page takes over instead of copying them.
    cow_reuse: CowReuse,

    ["khugepaged"]
    /// Does khugepaged read pages from a swap device (`max_ptes_swap`)?
    khugepaged_swaps_in: bool,
    /// Does it take pages that others map too (`max_ptes_shared`)?
    khugepaged_shared: bool,
    /// Does a wake-up of khugepaged begin with what CPUs have collected for the LRU lists?
    khugepaged_drains_lru: bool,
    /// Does khugepaged pass by a process whose mmap lock it cannot have at once? Else it queues for it.
    khugepaged_tries_lock: bool,
    /// On which node a collapsed range's huge page is.
    khugepaged_target: CollapseTarget,
    /// Does khugepaged keep the huge page of an abandoned collapse for the next one on that node?
    ///
    /// Until its wake-up is over; and a huge page that it does not get ends the wake-up. Else each collapse allocates, and the
    /// first failure only interrupts the wake-up. With `khugepaged_checks_nodes` alone, what the check gets is given back.
    khugepaged_keeps_page: bool,
    /// Does khugepaged note which nodes gave it no huge page, and try there first at each wake-up?
    ///
    /// Until one does, it collapses nothing there. Without it faults may note it for each other, but not for khugepaged.
    khugepaged_checks_nodes: bool,

    ["Huge pages in faults"]
    /// From which nodes faults take huge pages.
    thp_nodes: ThpNodes,
    /// Does a fault in a mapping with `MADV_HUGEPAGE` try harder than once (no `__GFP_NORETRY`)?
    thp_advised_retries: bool,
    /// What `transparent_hugepage/defrag` is at boot.
    thp_defrag: ThpDefrag => AtBoot,
    /// How many of its words there are: `always`, `madvise` and `never`, then `defer`, then `defer+madvise`.
    thp_defrag_values: u64 => AtBoot,
    /// Does a fault that has allocated a huge page and finds that another task was first count as `thp_fault_alloc` too?
    thp_fault_alloc_counts_losers: bool,
    /// Do faults try for a huge page only while their node is not known to have none?
    ///
    /// A fault that fails makes that known, a huge page that is freed ends it; with `khugepaged_checks_nodes` so does
    /// khugepaged, without it nobody else: a node may be without huge faults for long.
    thp_faults_gated: bool,
    /// Does a fault that gets no huge page wake khugepaged for one?
    ///
    /// Also one that did not try. Without `khugepaged_checks_nodes` khugepaged only scans sooner; without `thp_faults_gated`
    /// faults go on trying by themselves.
    thp_faults_request: bool,
    /// Who allocates the huge pages that faults ask for.
    ///
    /// Without `thp_faults_request` the threads of nodes only look around from time to time, and without any of the rules
    /// above they find nothing to do.
    thp_requests: ThpRequests => AtBoot,
    /// What a store to a huge page does that others map too.
    huge_cow: HugeCow,
    /// Does a huge page fall apart for all as soon as one process maps its base pages?
    thp_splits_at_once: bool,
    /// Is the mapcount of each frame read before a huge page is split, and of one that is refused then (`total_mapcount`)?
    split_counts_each: bool,

    ["Balloons and page reporting"]
    /// What takes pages out of a balloon that may shrink by itself (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
    balloon_deflates: BalloonDeflates => AtBoot,
    /// Can a device tell a hypervisor which blocks are free?
    page_reporting: bool => AtBoot,
    /// Does a pass make the first block that it leaves the head of its free list, so that what is reported is behind it?
    reporting_rotates: bool,
    /// Does a pass report a sixteenth of each free list, and the next one the rest?
    reporting_has_budget: bool,

    ["The scheduler"]
    /// Who runs next on a CPU. (Its queues are built by it when a kernel starts.)
    scheduler: Scheduler => AtBoot,
    /// Does a CPU that looks for tasks to take over compare loads, and not numbers of tasks?
    sched_compares_loads: bool,
    /// Does a task that waits for a CPU count there as it did when it began to wait?
    sched_load_stays: bool,
    /// Has a group of CPUs too many tasks only if these have run for nearly all of its time of late?
    sched_overload_by_usage: bool,
    /// Of tasks that wait for a CPU, does the one move to another that came last, and not the one that waits longest?
    sched_moves_latest: bool,
    /// May a task wake up on the CPU that wakes it, by the loads of that and of the one that it ran on?
    sched_wake_affine_by_load: bool,
    /// How much longer a busy CPU waits than an idle one before it looks for tasks on others.
    sched_busy_factor: u64,
    /// Does it look a tick before that is over, so that CPUs do not look near and far at the same ticks?
    sched_looks_a_tick_early: bool,
    /// What a task runs at least when several share a CPU, or asks for, in ns on one CPU (`sched_min_granularity_ns`).
    sched_base_slice_ns: u64,

    ["Automatic NUMA balancing: tasks and their faults"]
    /// Can the kernel balance NUMA automatically (`kernel.numa_balancing`)?
    numa_balancing: bool => AtBoot,
    /// Does a task count its hinting faults by the node of the memory (`numa_faults`)?
    numa_counts_faults: bool,
    /// Does a hinting fault at a huge page count for the CPU's node where the page stays, and not for the page's?
    numa_huge_fault_here: bool,
    /// Is a fault at the huge zero page none of balancing's?
    numa_spares_huge_zero: bool,
    /// Does a task prefer the node of most of its faults (`numa_preferred_nid`)?
    numa_prefers_node: bool,
    /// Are faults of one scan collected before they are added to those of earlier scans (`numa_faults_buffer`)?
    numa_faults_by_scan: bool,
    /// Do pages keep part of the PID that faulted last, to tell what is private to a task (`_last_nidpid`)?
    numa_private_by_pid: bool,
    /// Is a huge page split whose parts are each one task's own, where these are of several nodes? No kernel does: an idea.
    numa_splits_false_sharing: bool => AtBoot,
    /// Does a fault at a page of the task's own node leave no trace at the page (`_last_cpupid`)?
    numa_local_keeps_last: bool,
    /// Do tasks that fault at the same pages count their faults together (`numa_group`), each fault by the node of its CPU too?
    numa_groups: bool,
    /// Does the load balancer move tasks to nodes that they prefer, whether their caches are hot or not?
    numa_favours_moves: bool,
    /// Does a task go to the node that it prefers as soon as it does?
    numa_moves_at_once: bool,
    /// Is the CPU on a preferred node chosen as `wake_affine` would (`task_numa_find_cpu`), and not by its load alone?
    numa_finds_cpu: bool,
    /// How a task finds a CPU on a node that it prefers.
    numa_places: NumaPlaces,

    ["Automatic NUMA balancing: scans"]
    /// Does a settled task that prefers another node scan faster, and no other be made to from time to time?
    numa_period_by_preference: bool,
    /// Are periods of scans those of a whole task, however large it is?
    numa_period_by_size: bool,
    /// How the period of scans of a task follows from its faults.
    numa_period: NumaPeriod,
    /// Does the size of a task, as periods of scans go by it, count resident pages only, and not all that it maps?
    numa_size_is_rss: bool,
    /// Do tasks of a group begin to scan the more slowly the more of them there are and the more they share
    /// (`task_scan_start`)? Their longest period grows too.
    numa_period_by_sharing: bool,
    /// Does a task that comes to another node begin anew with its period (`update_scan_period`)?
    numa_move_resets_period: bool,
    /// Is nothing scanned before tasks of the process have run on two nodes (`first_nid`)?
    numa_waits_for_second_node: bool,
    /// Are pages scanned that several processes map?
    numa_scans_shared: bool,
    /// Are VMAs scanned that are smaller than a huge page?
    numa_scans_small_vmas: bool,
    /// Does a scan end when it has passed eight times its size, whatever it has found there?
    numa_scan_ends: bool,
    /// Does a task that scanned beyond a tick scan less for it?
    numa_scan_pays: bool,
    /// Does a VMA wait for a period before it is scanned, once all has been (`vma_numab_state`)?
    numa_vma_delay: bool,
    /// Is a VMA scanned only by tasks that have faulted in it, once all has been scanned twice (`vma_is_accessed`)?
    numa_vma_by_pid: bool,
    /// Are those tasks forgotten after a while (`pids_active`)?
    numa_vma_forgets_pids: bool,
    /// Has a PID the bit that a hash says, and not that of its last six bits?
    numa_vma_hashes_pids: bool,
    /// Are they forgotten before it is asked who has faulted?
    numa_vma_forgets_first: bool,
    /// Is a VMA finished that was begun, whoever uses it?
    numa_vma_finishes: bool,
    /// Is a VMA scanned once in a scan of all, and one that its tasks do not use if there is no other (`prev_scan_seq`)?
    numa_vma_once: bool,
    /// Are the first two scans, which ask nobody, those of the VMA (`start_scan_seq`)?
    numa_vma_own_scans: bool,
    /// Is a VMA scanned that more scans of all have left out than the process has threads?
    numa_vma_unscanned: bool,
    /// Does one fault do for all pages of a page table, where these are of one node (`do_pmd_numa_page`)?
    numa_hints_by_table: bool,
    /// Which entries of private memory hint, of pages that others may use too.
    numa_hints_cow: NumaHintsCow,
    /// Do those of dirty pages of files?
    numa_hints_dirty: bool,
    /// Do those of base pages on the node where a process with one task runs?
    numa_hints_local: bool,

    ["Automatic NUMA balancing: pages that move"]
    /// Is a huge page that is used on another node copied while it is mapped, and its one entry replaced
    /// (`migrate_misplaced_transhuge_page`)? Else it moves as other pages do.
    numa_huge_at_once: bool,
    /// Is the TLB flushed when that entry is replaced, at which user code faults anyway?
    numa_huge_flushes: bool,
    /// Do base pages move to the node that uses them also where several entries map them?
    numa_moves_shared: bool,
    /// Do huge pages? With `numa_huge_at_once` they never do.
    numa_moves_shared_huge: bool,
    /// Do pages of files that are dirty?
    numa_moves_dirty: bool,
    /// May not more than 128 MiB move to a node in a tenth of a second for that?
    numa_rate_limit: bool,
    /// Does a node have room for such pages only beside what its zones keep from requests that have higher zones?
    numa_room_spares_low: bool,
    /// Which shared pages come to the node of a task that faults there.
    numa_filter: NumaFilter,
    /// Does a page come at once where its task is young, and no other has faulted there?
    numa_moves_early: bool,
}

/// The two numbers that a release begins with.
pub fn major_minor(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
