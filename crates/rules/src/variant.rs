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
use units::{Bytes, Bzero, PageAllocator};

use self::rule::{Value, Whole, rules};
pub use self::{
    built_in::{all, built_in, named, patched},
    choices::{
        BalloonDeflates, CollapseTarget, CompactContended, CompactEnds, CompactHugePages, CompactMark, CompactStall,
        CowReuse, EmptyReserve, FallbackRules, GivesUp, HighAtomic, HugeCow, InodeShrink, LastResort, ListEnd, LruBy,
        MarkStep, Merging, MmapAlign, MmapLock, MovableMarks, NewAnon, NumaFilter, NumaHintsCow, NumaPeriod,
        NumaPlaces, PcpDrain, PcpFree, PcpHighRule, PcpLists, RatioZero, Scheduler, SlowPath, SlubCpuPartial,
        ThpDefrag, ThpNodes, ThpRequests, ThpZones, WatermarkBoost, WatermarkOrders,
    },
    named::{Named, NeedsBoot, UnknownRelease},
    patches::{Patch, PatchProblem, PatchesForm, split_patches},
    rule::{Changes, Rule, Takes},
};

rules! {
    ["Zones and their watermarks"]
    /// Distance from one watermark to the next (`__setup_per_zone_wmarks`).
    mark_step: MarkStep => AtBoot,
    /// Zones have a mark above High, for promotion between memory tiers (`WMARK_PROMO`).
    promo_mark: bool => AtBoot,
    /// Part of ZONE_MOVABLE in `min_free_kbytes` (`__setup_per_zone_wmarks`).
    movable_marks: MovableMarks => AtBoot,
    /// Meaning of a `vm.lowmem_reserve_ratio` of 0 (`setup_per_zone_lowmem_reserve`).
    reserve_ratio_zero: RatioZero => AtBoot,
    /// Reserve of a zone without managed frames (`setup_per_zone_lowmem_reserve`).
    empty_zone_reserve: EmptyReserve => AtBoot,
    /// Largest `vm.min_free_kbytes` chosen by the size of memory, in KiB (`init_per_zone_wmark_min`).
    // From the least that it chooses to the largest `int` (`calculate_min_free_kbytes`, mm/page_alloc.c, v6.1).
    min_free_kbytes_max: u64 where Takes::Number(128, 0x7fff_ffff) => AtBoot,
    /// Zones that raise the `min_free_kbytes` recommended for huge pages (`set_recommended_min_free_kbytes`).
    thp_zones: ThpZones => AtBoot,
    /// Free blocks that a request for more than one frame needs above a mark (`__zone_watermark_ok`).
    watermark_orders: WatermarkOrders,
    /// The zones of a node serve requests in turn, by the distance of their marks (`ALLOC_FAIR`).
    fair_zones: bool,
    /// A request that may not wait but wakes kswapd may use a quarter of the Min mark (`ALLOC_HARDER`).
    nowait_is_harder: bool,

    ["Another page allocator"]
    /// Allocator of all frames: Linux's, or LLFree, which cannot compact or report (an idea).
    allocator: PageAllocator => AtBoot,

    ["Watermarks that are raised for a while"]
    /// Fallbacks that break up a pageblock and so raise the zone's watermarks (`boost_watermark`).
    watermark_boost: WatermarkBoost,
    /// While kswapd only makes room for raised marks, it leaves shrinkers alone (`may_shrinkslab`).
    boost_spares_slab: bool,
    /// A broken-up pageblock wakes kswapd although no mark was raised (`steal_suitable_fallback`).
    fallback_wakes_unboosted: bool,
    /// An atomic request for one frame is held to the Min mark without its boost (`zone_watermark_fast`).
    atomic_ignores_boost: bool,
    /// Raised marks keep free blocks from compaction's free scanner (`__isolate_free_page`).
    boost_keeps_targets: bool,

    ["Free lists by migrate type"]
    /// Blocks of other types that a request takes when its own type has none (`__rmqueue_fallback`).
    fallback: FallbackRules,
    /// Source of a request when no other type has a block either (`__rmqueue`).
    last_resort: LastResort => AtBoot,
    /// Memory that an atomic request for more than one frame sets aside (`reserve_highatomic_pageblock`).
    high_atomic: HighAtomic => AtBoot,
    /// Pageblocks whose free memory may become one block (`__free_one_page`).
    merging: Merging,
    /// End of the free list for blocks given at boot or moved between types (`move_freepages`).
    moved_end: ListEnd,
    /// A request for Normal takes its node's DMA32 before another type's pageblock (`ALLOC_NOFRAGMENT`).
    nofragment: bool,
    /// The result of `alloc_flags_nofragment` is lost: a mistake that was posted and released.
    nofragment_flag_lost: bool,
    /// A movable request sleeps for kswapd once before it takes another type's small block (posted 2018).
    fragment_stall: bool => AtBoot,

    ["Per-CPU lists"]
    /// Size at which a CPU's `batch` stops growing with its zone (`zone_batchsize`).
    // From a page to what a zone of 1 TiB comes to by its size (`zone_batchsize`, mm/page_alloc.c, v6.1).
    pcp_batch_limit: Bytes where Takes::Size(Bytes::PAGE, Bytes::gib(1)) => AtBoot,
    /// Most that a CPU's lists may hold (`zone_highsize`).
    pcp_high: PcpHighRule => AtBoot,
    /// Blocks that a CPU's lists hold (`free_unref_page`).
    pcp_lists: PcpLists => AtBoot,
    /// Number of blocks that a full list of a CPU gives back (`nr_pcp_free`).
    pcp_free: PcpFree,
    /// Most doublings of the number of blocks that a CPU's list gives back (`nr_pcp_free`).
    // The shifts that an `int` has (`nr_pcp_free`, mm/page_alloc.c, v6.1). 6.7 has up to 6 (CONFIG_PCP_BATCH_SCALE_MAX).
    pcp_doublings_max: u64 where Takes::Number(0, 31),
    /// A CPU's lists stay nearly empty while kswapd reclaims the zone (`ZONE_RECLAIM_ACTIVE`).
    pcp_yields_to_reclaim: bool,
    /// Order in which the lists of a CPU give back (`free_pcppages_bulk`).
    pcp_drain: PcpDrain,
    /// Reclaimed pages go to the end of a CPU's list that gives back, and reads take from it (`cold`).
    pcp_has_cold_end: bool,

    ["The slow path of an allocation"]
    /// Order of compaction and reclaim below the Min mark, and the end of trying (`__alloc_pages_slowpath`).
    slow_path: SlowPath,
    /// Result of compaction that ends a request before reclaim (`__alloc_pages_slowpath`, from 4.8).
    slow_gives_up: GivesUp,
    /// A request for one node that may not reclaim ends below its first mark and wakes nobody (`GFP_THISNODE`).
    node_only_gives_up: bool,

    ["LRU lists"]
    /// New folios that a CPU collects before they go to the LRU lists (`PAGEVEC_SIZE`).
    // From one at a time to the largest of any release (include/linux/pagevec.h, v6.18).
    lru_batch: u64 where Takes::Number(1, 31),
    /// A CPU's batch of new folios goes to the lists when it is full, not with one more (`lru_cache_add`).
    lru_full_drains: bool,
    /// A huge page sends a CPU's batch of new folios to the lists at once (`lru_cache_add`).
    lru_huge_drains: bool,
    /// Owner of LRU lists, by which kswapd and direct reclaim go (`struct lruvec`).
    lru_by: LruBy => AtBoot,
    /// LRU list of new anonymous folios (`lru_cache_add_active_or_unevictable`).
    lru_new_anon: NewAnon,
    /// An inactive list is too short by both lists' sizes, not by the zone or by half (`inactive_list_is_low`).
    inactive_by_lists: bool,

    ["Reclaim"]
    /// Anonymous memory and files are weighed by the cost of reclaim, not by pages in use (`lru_note_cost`).
    reclaim_by_costs: bool,
    /// Pages that come back make active lists age (`snapshot_refaults`).
    reclaim_notes_refaults: bool,
    /// Ageing is decided for a whole pass, and again after a vain run (`may_deactivate`).
    ///
    /// Else each time, for files alone.
    reclaim_ages_by_pass: bool,
    /// Reclaim moves dirty files out of its way, and wakes the flusher for want of others (`shrink_inactive_list`).
    reclaim_sets_dirty_aside: bool,
    /// Reclaim leaves pinned base pages; else they end in the swap cache for good (`folio_maybe_dma_pinned`).
    reclaim_keeps_pinned: bool,
    /// Reclaim flushes TLBs once per run, not after each entry (`TTU_BATCH_FLUSH`).
    reclaim_batches_flushes: bool,
    /// Reclaim waits for a reason of its own (`reclaim_throttle`), not for a less busy disk.
    reclaim_throttles: bool,
    /// A direct reclaim that got nothing goes through all priorities once more (`may_thrash`).
    reclaim_vain_again: bool,
    /// Reclaim for a large block frees twice its size before it asks for compaction (`should_continue_reclaim`).
    reclaim_gap_first: bool,
    /// Direct reclaim that has enough trims the rest in proportion each time, not once (`shrink_lruvec`).
    reclaim_trims_again: bool,
    /// kswapd goes on for the highest zone of its requests and its work, else for DMA (`kswapd`).
    kswapd_keeps_highest: bool,
    /// kswapd rests on the zones asked for during its run alone, else on DMA (`kswapd`).
    kswapd_rests_on_asked: bool,
    /// kswapd sleeps, and wakes kcompactd, only with all zones balanced, not one (`prepare_kswapd_sleep`).
    kswapd_needs_all_zones: bool,

    ["Shrinkers and slabs"]
    /// Shrinkers are asked in proportion to pages scanned, not by reclaim's priority (`shrink_slab`).
    slab_by_scanned: bool,
    /// A cache is asked for at least a batch of objects, or for all that it has (`do_shrink_slab`).
    slab_scans_a_batch: bool,
    /// Objects that a shrinker deferred are asked for by reclaim's priority too (`do_shrink_slab`).
    slab_deferred_by_priority: bool,
    /// Unused inodes that the shrinker of a file system frees (`inode_lru_isolate`).
    inode_shrink: InodeShrink,
    /// A security module keeps memory for each inode (`lsm_inode_cache`).
    lsm_inode_blob: bool,
    /// A shrinker frees journal heads of written blocks, not the reclaimer of a page (`jbd2_journal_shrink_scan`).
    journal_shrinks: bool,
    /// The kernel can be built with the allocator SLAB, not with SLUB alone (`CONFIG_SLAB`).
    has_slab: bool,
    /// Unit in which the partial list of a CPU is limited in SLUB (`slub_set_cpu_partial`).
    slub_cpu_partial: SlubCpuPartial => AtBoot,

    ["Compaction"]
    /// The migrate scanner looks on the free lists first for a partly free pageblock (`fast_find_migrateblock`).
    compact_lists_for_sources: bool,
    /// A pageblock has its skip mark while pages are taken from it, so no other run takes it (`test_and_set_skip`).
    compact_private_sources: bool,
    /// The free scanner looks on the free lists first, high up in the zone (`fast_isolate_freepages`).
    compact_lists_for_targets: bool,
    /// Free lists are searched in turn from the order that served last (`next_search_order`).
    compact_orders_in_turn: bool,
    /// A pageblock that a run comes to again is moved as a whole and marked (`cc->rescan`).
    compact_rescans_at_once: bool,
    /// The next run begins behind pageblocks that are unfit as sources (`isolate_migratepages`).
    compact_passes_unfit: bool,
    /// Async compaction that has found nothing yet also moves the start of sync compaction (`compact_zone`).
    compact_syncs_cached: bool,
    /// Only the linear search marks pageblocks without free frames, each at its end (`isolate_freepages`).
    compact_marks_searched: bool,
    /// Async compaction samples a few frames of a pageblock until it finds free ones (`isolate_freepages_block`).
    compact_samples: bool,
    /// A search of free lists that finds no source is vain, and bounded in blocks (`fast_find_migrateblock`).
    ///
    /// Without it a search is in vain where it reaches its bound at a block that is not skipped for its mark or its place.
    compact_fails_without_source: bool,
    /// The search for targets looks at several blocks of a list also after its start (`fast_isolate_freepages`).
    compact_looks_further: bool,
    /// The linear search begins at the highest free block seen only if that is high up (`fast_isolate_freepages`).
    compact_begins_high: bool,
    /// Skip marks are cleared only where there is a source or a target (`__reset_isolation_pfn`).
    compact_clears_selectively: bool,
    /// Frames of a pageblock looked at to see that it is all of one zone (`pageblock_pfn_to_page`).
    // The frames of a pageblock (`pageblock_pfn_to_page`, mm/compaction.c, v6.1, looks at two).
    compact_zone_frames: u64 where Takes::Number(0, 512),
    /// State of a zone that ends its compaction for a request (`compact_finished`).
    compact_ends: CompactEnds,
    /// Reaction of async compaction to others that want the lock or the CPU (`compact_unlock_should_abort`).
    compact_contended: CompactContended,
    /// Compaction is deferred by why it failed: while frames are lacking, or until some came free (an idea).
    compact_defers_by_reason: bool,
    /// Reasons why compaction did not begin are counted (`mm_compaction_suitable`).
    compact_counts_reasons: bool => AtBoot,
    /// Handling of huge pages in compaction's way (`isolate_migratepages_block`).
    compact_huge_pages: CompactHugePages,
    /// The free scanner ends at the first block that the zone cannot spare (`isolate_freepages_block`).
    compact_ends_at_mark: bool,
    /// All frames of a free block that is taken count as scanned, not one (`isolate_freepages_block`).
    compact_counts_frames: bool,
    /// All frames of a huge page or a free block passed by count as scanned (`isolate_migratepages_block`).
    compact_counts_passed: bool,
    /// Watermark that a zone must hold before it is compacted (`compaction_suitable`).
    compact_mark: CompactMark,
    /// Compaction that waits for locks, not for disks, leaves pages under writeback listed (`__isolate_lru_page`).
    compact_leaves_written: bool,
    /// A page that cannot move makes async compaction leave out the block around it (`skip_on_failure`).
    compact_skips_on_failure: bool,
    /// A task that compacts gets the block that it completes before others see it (`compaction_capture`).
    compact_capture: bool,
    /// Allocations that count as `compact_stall` (`__alloc_pages_direct_compact`).
    compact_stall: CompactStall,
    /// Async compaction for unmovable requests empties pageblocks of that type (`suitable_migration_source`).
    compact_own_blocks: bool,
    /// A request that may not reclaim wakes kcompactd where kswapd is left asleep (`wakeup_kswapd`).
    kcompactd_without_kswapd: bool,
    /// Each node has a kernel thread that compacts (`kcompactd`).
    kcompactd: bool,
    /// kcompactd also compacts unasked, from time to time (`proactive_compact_node`).
    compact_proactive: bool,

    ["Migration of pages"]
    /// Pages that are unmapped before they are copied, one by one (`migrate_pages_batch`).
    // From one after the other to NR_MAX_BATCHED_MIGRATION (mm/migrate.c, v6.3), the base pages of a huge one.
    migrate_batch: u64 where Takes::Number(1, 512),
    /// Pages tried too often, or without a frame to move to, count as failed (`migrate_pages`).
    migrate_counts_tried: bool,
    /// Pages wait in a CPU's batch of new folios after a move before they are freed or listed (`putback_lru_page`).
    migrate_through_batch: bool,
    /// Entries keep their accessed and dirty bits over a move; else they are old and clean (`remove_migration_pte`).
    migrate_keeps_young: bool,
    /// Huge pages migrate as a whole, not split (`thp_migration_supported`).
    thp_migrates: bool,
    /// A huge page that migrates counts by its base pages, and in `thp_migration_*` (`migrate_pages`).
    thp_migration_counts: bool => AtBoot,
    /// A huge page that was only tried in vain counts as all its base pages, not as one (`migrate_pages`).
    migrate_counts_parts: bool,

    ["Address spaces and their lock"]
    /// Alignment of mappings without an address (`thp_get_unmapped_area`).
    mmap_align: MmapAlign,
    /// Fairness of the lock of an address space (`rwsem_down_write_slowpath`).
    mmap_lock: MmapLock,
    /// Faults go on while munmap frees memory, once the mappings are gone (`downgrade_write` in `__do_munmap`).
    munmap_downgrades: bool,
    /// Faults lock their VMA instead of the address space (`lock_vma_under_rcu`).
    vma_locks: bool,
    /// Shared pages that a store takes over without copying them (`do_wp_page`).
    cow_reuse: CowReuse,

    ["khugepaged"]
    /// khugepaged reads up to `max_ptes_swap` pages from swap (`__collapse_huge_page_swapin`).
    khugepaged_swaps_in: bool,
    /// khugepaged takes up to `max_ptes_shared` pages that others map too (`__collapse_huge_page_isolate`).
    khugepaged_shared: bool,
    /// A wake-up of khugepaged first drains the CPUs' batches of new folios (`khugepaged_do_scan`).
    khugepaged_drains_lru: bool,
    /// khugepaged passes by a process whose mmap lock is held; else it queues (`khugepaged_scan_mm_slot`).
    khugepaged_tries_lock: bool,
    /// Node of the huge page of a collapsed range (`khugepaged_find_target_node`).
    khugepaged_target: CollapseTarget,
    /// khugepaged keeps the huge page of an abandoned collapse for the next one on that node (posted 2015).
    ///
    /// Until its wake-up is over; and a huge page that it does not get ends the wake-up. Else each collapse allocates, and the
    /// first failure only interrupts the wake-up. With `khugepaged_checks_nodes` alone, what the check gets is given back.
    khugepaged_keeps_page: bool,
    /// khugepaged notes nodes that gave it no huge page, and tries there first at each wake-up (posted 2015).
    ///
    /// Until one does, it collapses nothing there. Without it faults may note it for each other, but not for khugepaged.
    khugepaged_checks_nodes: bool,

    ["Huge pages in faults"]
    /// Nodes from which faults take huge pages (`alloc_pages_vma`).
    thp_nodes: ThpNodes,
    /// A fault in a mapping with `MADV_HUGEPAGE` tries harder than once (no `__GFP_NORETRY`).
    thp_advised_retries: bool,
    /// Value of `transparent_hugepage/defrag` at boot (`transparent_hugepage_flags`).
    thp_defrag: ThpDefrag => AtBoot,
    /// Number of words of `defrag`: 3, with `defer` 4, with `defer+madvise` 5 (`defrag_store`).
    // Three words in all releases, and two that came later (Documentation/admin-guide/mm/transhuge.rst, v6.1).
    thp_defrag_values: u64 where Takes::Number(3, 5) => AtBoot,
    /// A fault that allocates a huge page and then loses a race counts as `thp_fault_alloc` too.
    thp_fault_alloc_counts_losers: bool,
    /// Faults try for a huge page only while their node is not known to have none (posted 2015).
    ///
    /// A fault that fails makes that known, a huge page that is freed ends it; with `khugepaged_checks_nodes` so does
    /// khugepaged, without it nobody else: a node may be without huge faults for long.
    thp_faults_gated: bool,
    /// A fault that gets no huge page wakes khugepaged for one (posted 2015).
    ///
    /// Also one that did not try. Without `khugepaged_checks_nodes` khugepaged only scans sooner; without `thp_faults_gated`
    /// faults go on trying by themselves.
    thp_faults_request: bool,
    /// Thread that allocates the huge pages that faults ask for (posted 2015).
    ///
    /// Without `thp_faults_request` the threads of nodes only look around from time to time, and without any of the rules
    /// above they find nothing to do.
    thp_requests: ThpRequests => AtBoot,
    /// Effect of a store to a huge page that others map too (`do_huge_pmd_wp_page`).
    huge_cow: HugeCow,
    /// A huge page falls apart for all as soon as one process maps its base pages (`split_huge_page_pmd`).
    thp_splits_at_once: bool,
    /// Each frame's mapcount is read before a huge page is split, or refused (`total_mapcount`).
    split_counts_each: bool,

    ["Balloons and page reporting"]
    /// Trigger that takes pages out of a balloon (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
    balloon_deflates: BalloonDeflates => AtBoot,
    /// A device can tell a hypervisor which blocks are free (`page_reporting_register`).
    page_reporting: bool => AtBoot,
    /// A pass makes the first block that it leaves the head of its free list (`page_reporting_cycle`).
    reporting_rotates: bool,
    /// A pass reports a sixteenth of each free list, the next pass more (`page_reporting_cycle`).
    reporting_has_budget: bool,

    ["The C library of the time"]
    /// Stores of bzero(3), as the glibc of a release's time has them (`__x86_shared_cache_size`).
    bzero: Bzero,

    ["The scheduler"]
    /// Choice of the next task on a CPU (`pick_next_entity`).
    scheduler: Scheduler => AtBoot,
    /// A CPU that looks for tasks to take over compares loads, not numbers of tasks (`calculate_imbalance`).
    sched_compares_loads: bool,
    /// A task that waits for a CPU keeps the load that it had when it began to wait (`update_load_avg`).
    sched_load_stays: bool,
    /// A group of CPUs is overloaded only if its tasks used nearly all of its time of late (`group_is_overloaded`).
    sched_overload_by_usage: bool,
    /// Groups of CPUs even out single tasks only where one has two more than the other (`update_sd_lb_stats`).
    sched_evens_out_two: bool,
    /// Of tasks that wait, the one that came last moves, not the one that waits longest (`detach_tasks`).
    sched_moves_latest: bool,
    /// A task may wake on the CPU that wakes it, by the loads of that CPU and its last (`wake_affine`).
    sched_wake_affine_by_load: bool,
    /// Factor by which a busy CPU waits longer than an idle one before it looks for tasks (`busy_factor`).
    // The file of it holds an `unsigned int` (debugfs, sched/domains/*/*/busy_factor, v6.1); 0 would have it look always.
    sched_busy_factor: u64 where Takes::Number(1, 0xffff_ffff),
    /// A busy CPU looks a tick early, so that near and far looks differ (`get_sd_balance_interval`).
    sched_looks_a_tick_early: bool,
    /// Least time of a task on a shared CPU, in ns on one CPU (`sched_min_granularity_ns`).
    // `min_sched_granularity_ns` and `max_sched_granularity_ns`, kernel/sysctl.c (v4.1).
    sched_base_slice_ns: u64 where Takes::Number(100_000, 1_000_000_000),

    ["Automatic NUMA balancing: tasks and their faults"]
    /// The kernel can balance NUMA automatically (`kernel.numa_balancing`).
    numa_balancing: bool => AtBoot,
    /// A task counts its hinting faults by the node of the memory (`numa_faults`).
    numa_counts_faults: bool,
    /// A hinting fault at a huge page that stays counts for the CPU's node (`do_huge_pmd_numa_page`).
    numa_huge_fault_here: bool,
    /// Faults at the huge zero page do not count for balancing (`do_huge_pmd_numa_page`).
    numa_spares_huge_zero: bool,
    /// A task prefers the node of most of its faults (`numa_preferred_nid`).
    numa_prefers_node: bool,
    /// Faults of a scan are collected before they join those of earlier scans (`numa_faults_buffer`).
    numa_faults_by_scan: bool,
    /// Pages keep PID bits of the last fault, to tell private from shared ones (`_last_nidpid`).
    numa_private_by_pid: bool,
    /// A huge page is split whose parts are each one task's own, of several nodes (an idea).
    numa_splits_false_sharing: bool => AtBoot,
    /// A fault at a page of the task's own node leaves no trace at the page (`_last_cpupid`).
    numa_local_keeps_last: bool,
    /// Tasks that fault at the same pages count faults together, by nodes of their CPUs too (`numa_group`).
    numa_groups: bool,
    /// The load balancer moves tasks to nodes they prefer, also cache-hot ones (`migrate_improves_locality`).
    numa_favours_moves: bool,
    /// A task goes to the node that it prefers as soon as it prefers it (`numa_migrate_preferred`).
    numa_moves_at_once: bool,
    /// The CPU on a preferred node is chosen as `wake_affine` would, not by load alone (`task_numa_find_cpu`).
    numa_finds_cpu: bool,
    /// Search for a CPU on a preferred node (`task_numa_find_cpu`).
    numa_places: NumaPlaces,

    ["Automatic NUMA balancing: scans"]
    /// A settled task that prefers another node scans faster; periods are not reset (`task_numa_placement`).
    numa_period_by_preference: bool,
    /// Scan periods are those of a whole task, however large it is (`task_scan_min`).
    numa_period_by_size: bool,
    /// Change of a task's scan period by its faults (`update_task_scan_period`).
    numa_period: NumaPeriod,
    /// A task's size, for scan periods, counts resident pages, not all that it maps (`task_nr_scan_windows`).
    numa_size_is_rss: bool,
    /// Tasks of a group start to scan the slower, the more they are and share (`task_scan_start`).
    ///
    /// Their longest period grows too.
    numa_period_by_sharing: bool,
    /// A task that comes to another node begins anew with its scan period (`update_scan_period`).
    numa_move_resets_period: bool,
    /// Nothing is scanned before tasks of the process ran on two nodes (`first_nid`).
    numa_waits_for_second_node: bool,
    /// Pages that several processes map are scanned (`change_pte_range`).
    numa_scans_shared: bool,
    /// VMAs smaller than a huge page are scanned (`task_numa_work`).
    numa_scans_small_vmas: bool,
    /// A scan ends after eight times its size, whatever it found there (`task_numa_work`).
    numa_scan_ends: bool,
    /// A task whose scan took more than a tick scans less for it (`task_numa_work`).
    numa_scan_pays: bool,
    /// A VMA waits for a period before it is scanned, once all has been (`vma_numab_state`).
    numa_vma_delay: bool,
    /// A VMA is scanned only by tasks that faulted in it, once all was scanned twice (`vma_is_accessed`).
    numa_vma_by_pid: bool,
    /// Tasks that faulted in a VMA are forgotten after a while (`pids_active`).
    numa_vma_forgets_pids: bool,
    /// A PID has the bit of its hash, not that of its last six bits (`vma_set_access_pid_bit`).
    numa_vma_hashes_pids: bool,
    /// Tasks that faulted in a VMA are forgotten before `vma_is_accessed` asks for them.
    numa_vma_forgets_first: bool,
    /// A VMA whose scan has begun is finished, whoever uses it (`vma_is_accessed`).
    numa_vma_finishes: bool,
    /// A VMA is scanned once in a scan of all, an unused one if there is no other (`prev_scan_seq`).
    numa_vma_once: bool,
    /// The first two scans, which ask nobody, are those of the VMA (`start_scan_seq`).
    numa_vma_own_scans: bool,
    /// A VMA is scanned that more scans left out than the process has threads (`vma_is_accessed`).
    numa_vma_unscanned: bool,
    /// One fault does for all pages of a page table that are on one node (`do_pmd_numa_page`).
    numa_hints_by_table: bool,
    /// Entries of private memory that hint, of pages that others may use too (`change_pte_range`).
    numa_hints_cow: NumaHintsCow,
    /// Entries of dirty pages of files hint (`change_pte_range`).
    numa_hints_dirty: bool,
    /// Entries of base pages on the node of a process with one task hint (`change_pte_range`).
    numa_hints_local: bool,

    ["Automatic NUMA balancing: pages that move"]
    /// A misplaced huge page is copied while it is mapped (`migrate_misplaced_transhuge_page`).
    ///
    /// Its one entry is replaced then. Without the rule it moves as other pages do.
    numa_huge_at_once: bool,
    /// The TLB is flushed when a moved huge page's entry is replaced (`migrate_misplaced_transhuge_page`).
    numa_huge_flushes: bool,
    /// Base pages that several entries map move to the node that uses them too (`migrate_misplaced_page`).
    numa_moves_shared: bool,
    /// Huge pages that several entries map move too; never with `numa_huge_at_once` (`migrate_misplaced_page`).
    numa_moves_shared_huge: bool,
    /// Dirty pages of files move to the node that uses them too (`migrate_misplaced_page`).
    numa_moves_dirty: bool,
    /// At most 128 MiB move to a node in a tenth of a second (`numamigrate_update_ratelimit`).
    numa_rate_limit: bool,
    /// A node's room for moved pages leaves what zones keep from higher requests (`migrate_balanced_pgdat`).
    numa_room_spares_low: bool,
    /// Shared pages that come to the node of a task that faults there (`should_numa_migrate_memory`).
    numa_filter: NumaFilter,
    /// A page comes at once if its task is young and no other faulted there (`should_numa_migrate_memory`).
    numa_moves_early: bool,
}

/// The two numbers that a release begins with.
pub fn major_minor(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
