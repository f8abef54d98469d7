//! Linux: as `tally.rs`; each test has the function and the file of the release that it was read in.
//!
//! The mechanisms, by the names that a user types, and their tests: one table for the counts, the texts and the help.

use rules::variant::{LruBy, SlowPath, Variant, WatermarkBoost};
use serde::{Deserialize, Serialize};

/// A daemon, or a part of the slow path, whose tests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Requests that the lists of a CPU cannot serve.
    Allocation,
    /// Reclaim by kswapd.
    Kswapd,
    /// Compaction by kswapd, up to 4.5.
    KswapdCompaction,
    /// Compaction by a task, for its own request.
    DirectCompaction,
    /// Compaction by kcompactd, for the order that it was woken for.
    Kcompactd,
    /// Compaction by kcompactd, to lower a node's fragmentation score.
    ProactiveCompaction,
    /// Reclaim by a task, for its own request.
    DirectReclaim,
    /// The OOM killer.
    Oom,
    /// Collapse of base pages into a huge page.
    Khugepaged,
    /// Faults that map a huge page.
    HugeFault,
    /// Scans that make pages hint.
    NumaScan,
    /// Moves of misplaced pages after a hinting fault.
    NumaBalancing,
    /// Reports of free blocks to the host.
    Reporting,
    /// Watermarks that are raised when a pageblock is broken up.
    Boost,
}

impl Mechanism {
    /// All mechanisms, in the order of their tests.
    pub const ALL: &[Self] = &[
        Self::Allocation,
        Self::Kswapd,
        Self::KswapdCompaction,
        Self::DirectCompaction,
        Self::Kcompactd,
        Self::ProactiveCompaction,
        Self::DirectReclaim,
        Self::Oom,
        Self::Khugepaged,
        Self::HugeFault,
        Self::NumaScan,
        Self::NumaBalancing,
        Self::Reporting,
        Self::Boost,
    ];

    /// The name that a user types.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Kswapd => "kswapd",
            Self::KswapdCompaction => "kswapd-compaction",
            Self::DirectCompaction => "direct-compaction",
            Self::Kcompactd => "kcompactd",
            Self::ProactiveCompaction => "proactive-compaction",
            Self::DirectReclaim => "reclaim",
            Self::Oom => "oom",
            Self::Khugepaged => "khugepaged",
            Self::HugeFault => "huge-fault",
            Self::NumaScan => "numa-scan",
            Self::NumaBalancing => "numa-balancing",
            Self::Reporting => "reporting",
            Self::Boost => "boost",
        }
    }

    /// The work that is done when the last test passes, as the beginning of a sentence.
    pub const fn done(self) -> &'static str {
        match self {
            Self::Allocation => "a zone gave a block",
            Self::Kswapd => "kswapd freed memory",
            Self::KswapdCompaction => "kswapd's compaction made a block",
            Self::DirectCompaction => "direct compaction made a block",
            Self::Kcompactd => "kcompactd made a block",
            Self::ProactiveCompaction => "kcompactd lowered a zone's score",
            Self::DirectReclaim => "direct reclaim freed memory",
            Self::Oom => "the OOM killer chose a process",
            Self::Khugepaged => "khugepaged collapsed a range",
            Self::HugeFault => "a fault mapped a huge page",
            Self::NumaScan => "a scan made pages hint",
            Self::NumaBalancing => "a misplaced page moved",
            Self::Reporting => "the host took a report",
            Self::Boost => "a zone raised its marks",
        }
    }

    /// The mechanism with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mechanism| mechanism.name() == name)
    }

    /// The tests of the mechanism, in the order of the kernel's code; when the last one passes, the work is done.
    pub fn tests(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| row.mechanism == self)
    }

    /// Whether a kernel with these rules has the mechanism: its last test.
    pub fn is_in(self, rules: &Variant) -> bool {
        self.tests().last().is_some_and(|row| (row.has)(rules))
    }
}

/// A test between the moment at which a mechanism is wanted and its work.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The test.
    pub test: Test,
    /// The mechanism that the test keeps from its work when it fails.
    pub mechanism: Mechanism,
    /// The kernel's function.
    pub function: &'static str,
    /// The condition in that function: another function, or a variable.
    pub condition: &'static str,
    /// The kernel's file.
    pub file: &'static str,
    /// The state in which the test passes.
    pub passes: &'static str,
    /// The unit that is counted, in the plural.
    pub unit: &'static str,
    /// Whether one place at which the test fails is enough to end the round; otherwise that place is passed over.
    pub ends_all: bool,
    /// Whether a kernel with these rules asks the test.
    pub has: fn(&Variant) -> bool,
}

impl Row {
    /// All tests, mechanism by mechanism.
    pub const ALL: &[Self] = ROWS;

    /// Most characters of a name.
    pub const NAME_MAX: usize = 41;

    /// The function and its condition.
    pub fn name(&self) -> String {
        format!("{}: {}", self.function, self.condition)
    }
}

impl Test {
    /// The test's line in the table.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

const VMSCAN: &str = "mm/vmscan.c";
const COMPACTION: &str = "mm/compaction.c";
const KHUGEPAGED: &str = "mm/khugepaged.c";
const HUGE_MEMORY: &str = "mm/huge_memory.c";
const PAGE_ALLOC: &str = "mm/page_alloc.c";
const MIGRATE: &str = "mm/migrate.c";
const MEMPOLICY: &str = "mm/mempolicy.c";
const REPORTING: &str = "mm/page_reporting.c";
const FAIR: &str = "kernel/sched/fair.c";

/// Every kernel asks the test.
fn always(_: &Variant) -> bool {
    true
}

fn by_zone(rules: &Variant) -> bool {
    rules.lru_by == LruBy::Zone
}

fn by_node(rules: &Variant) -> bool {
    rules.lru_by == LruBy::Node
}

fn kswapd_compacts(rules: &Variant) -> bool {
    by_zone(rules) && !rules.kcompactd
}

fn has_kcompactd(rules: &Variant) -> bool {
    rules.kcompactd
}

fn is_proactive(rules: &Variant) -> bool {
    rules.kcompactd && rules.compact_proactive
}

fn is_fixed(rules: &Variant) -> bool {
    rules.slow_path == SlowPath::Fixed
}

fn boosts(rules: &Variant) -> bool {
    rules.watermark_boost != WatermarkBoost::None
}

fn balances(rules: &Variant) -> bool {
    rules.numa_balancing
}

fn reports(rules: &Variant) -> bool {
    rules.page_reporting
}

/// Makes the tests and their table. A test that is marked `all` ends the round when it fails in one place.
macro_rules! tests {
    ($($mechanism:ident {
        $($test:ident: $function:literal, $condition:literal, $file:ident, $unit:literal, $ends_all:literal, $has:expr,
            $passes:literal;)+
    })+) => {
        /// A test, named in its row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Test {
            $($(#[doc = concat!("`", $function, "`, ", $condition, ": passes if ", $passes, ".")] $test,)+)+
        }

        /// The table.
        const ROWS: &[Row] = &[
            $($(Row {
                test: Test::$test,
                mechanism: Mechanism::$mechanism,
                function: $function,
                condition: $condition,
                file: $file,
                passes: $passes,
                unit: $unit,
                ends_all: $ends_all,
                has: $has,
            },)+)+
        ];
    };
}

tests! {
    Allocation {
        AllocMark: "get_page_from_freelist", "zone_watermark_ok", PAGE_ALLOC, "zones", false, always,
            "the zone is above the mark with a block of the order";
        AllocLists: "get_page_from_freelist", "rmqueue", PAGE_ALLOC, "zones", false, always,
            "the lists that the request may take from have a block";
    }
    Kswapd {
        KswapdAsleep: "wakeup_kswapd", "waitqueue_active", VMSCAN, "requests", true, always, "kswapd sleeps";
        KswapdHopes: "wakeup_kswapd", "kswapd_failures", VMSCAN, "requests", true, by_node,
            "kswapd has not failed 16 times in a row";
        KswapdNodeLacks: "wakeup_kswapd", "pgdat_balanced", VMSCAN, "requests", true, by_node,
            "the node is not balanced, or boosted";
        KswapdZoneLacks: "wakeup_kswapd", "zone_balanced", VMSCAN, "zones", false, by_zone, "the zone is not balanced";
        KswapdReclaimable: "balance_pgdat", "zone_reclaimable", VMSCAN, "zones", false, by_zone,
            "the zone was not scanned in vain too often";
        KswapdFindsZone: "balance_pgdat", "zone_balanced", VMSCAN, "zones", false, by_zone, "the zone is not balanced";
        KswapdFindsNode: "balance_pgdat", "pgdat_balanced", VMSCAN, "passes", true, by_node,
            "the node is not balanced, or boosted";
        KswapdShrinks: "kswapd_shrink_zone", "zone_balanced", VMSCAN, "zones", false, by_zone,
            "the zone is not balanced for what compaction leaves to reclaim";
        KswapdFrees: "balance_pgdat", "nr_reclaimed", VMSCAN, "passes", false, always, "the pass has freed memory";
    }
    KswapdCompaction {
        KswapdCompactOrder: "balance_pgdat", "sc.order", VMSCAN, "rounds", true, kswapd_compacts, "the order is above 0";
        KswapdCompactHasBlock: "balance_pgdat", "zone_watermark_ok", VMSCAN, "rounds", true, kswapd_compacts,
            "the zone has no block of the order above its Low mark";
        KswapdCompactGap: "balance_pgdat", "nr_reclaimed < 2 << order", VMSCAN, "rounds", true, kswapd_compacts,
            "the run has reclaimed too little for kswapd to give the order up";
        KswapdCompactAttempted: "balance_pgdat", "nr_reclaimed > attempted", VMSCAN, "rounds", true, kswapd_compacts,
            "the pass has reclaimed more than the sum of its zones' targets";
        KswapdCompactDeferred: "__compact_pgdat", "compaction_deferred", COMPACTION, "zones", false, kswapd_compacts,
            "compaction is not deferred in the zone";
        KswapdCompactMark: "compaction_suitable", "zone_watermark_ok", COMPACTION, "zones", false, kswapd_compacts,
            "the zone has no block yet";
        KswapdCompactRoom: "compaction_suitable", "free frames", COMPACTION, "zones", false, kswapd_compacts,
            "the zone has room to move pages";
        KswapdCompactIndex: "compaction_suitable", "fragindex", COMPACTION, "zones", false, kswapd_compacts,
            "the zone lacks a block because its free memory is in pieces";
        KswapdCompactContended: "compact_finished", "cc->contended", COMPACTION, "runs", false, kswapd_compacts,
            "no other task wanted the lock or the CPU";
        KswapdCompactMet: "compact_finished", "compact_scanners_met", COMPACTION, "runs", false, kswapd_compacts,
            "there is a block before the scanners have met";
    }
    DirectCompaction {
        DirectCompactDeferred: "try_to_compact_pages", "compaction_deferred", COMPACTION, "zones", false, always,
            "compaction is not deferred in the zone";
        DirectCompactMark: "compaction_suitable", "zone_watermark_ok", COMPACTION, "zones", false, always,
            "the zone has no block yet";
        DirectCompactRoom: "compaction_suitable", "free frames", COMPACTION, "zones", false, always,
            "the zone has room to move pages";
        DirectCompactIndex: "compaction_suitable", "fragindex", COMPACTION, "zones", false, always,
            "the zone lacks a block because its free memory is in pieces";
        DirectCompactContended: "compact_finished", "cc->contended", COMPACTION, "runs", false, always,
            "no other task wanted the lock or the CPU";
        DirectCompactMet: "compact_finished", "compact_scanners_met", COMPACTION, "runs", false, always,
            "there is a block before the scanners have met";
    }
    Kcompactd {
        KswapdSleepsZone: "prepare_kswapd_sleep", "zone_balanced", VMSCAN, "rounds", true,
            |rules| rules.kcompactd && rules.kswapd_needs_all_zones,
            "the zone is balanced, so that kswapd goes to sleep and wakes kcompactd before";
        KswapdSleepsNode: "prepare_kswapd_sleep", "pgdat_balanced", VMSCAN, "rounds", true,
            |rules| rules.kcompactd && by_node(rules) && !rules.kswapd_needs_all_zones,
            "the node is balanced, so that kswapd goes to sleep and wakes kcompactd before";
        KcompactdOrder: "wakeup_kcompactd", "order", COMPACTION, "requests", true, has_kcompactd, "the order is above 0";
        KcompactdAsleep: "wakeup_kcompactd", "waitqueue_active", COMPACTION, "requests", true, has_kcompactd, "kcompactd sleeps";
        KcompactdNodeSuitable: "kcompactd_node_suitable", "suitable", COMPACTION, "zones", false, has_kcompactd,
            "compaction may help the zone";
        KcompactdDeferred: "kcompactd_do_work", "compaction_deferred", COMPACTION, "zones", false, has_kcompactd,
            "compaction is not deferred in the zone";
        KcompactdSuitable: "kcompactd_do_work", "compaction_suitable", COMPACTION, "zones", false, has_kcompactd,
            "compaction may help the zone";
        KcompactdBegins: "compact_zone", "compaction_suitable", COMPACTION, "zones", false, has_kcompactd,
            "compaction may help the zone";
        KcompactdContended: "compact_finished", "cc->contended", COMPACTION, "runs", false, has_kcompactd,
            "no other task wanted the lock or the CPU";
        KcompactdMet: "compact_finished", "compact_scanners_met", COMPACTION, "runs", false, has_kcompactd,
            "there is a block before the scanners have met";
    }
    ProactiveCompaction {
        ProactiveOn: "kcompactd", "compaction_proactiveness", COMPACTION, "rounds", true, is_proactive, "the setting is above 0";
        ProactiveKswapd: "kcompactd", "kswapd_is_running", COMPACTION, "rounds", true, is_proactive, "the node's kswapd sleeps";
        ProactiveScore: "kcompactd", "fragmentation_score_node", COMPACTION, "rounds", true, is_proactive,
            "the node's score is above the High mark of scores";
        ProactiveContended: "compact_finished", "cc->contended", COMPACTION, "runs", false, is_proactive,
            "no other task wanted the lock or the CPU";
        ProactiveMet: "compact_finished", "compact_scanners_met", COMPACTION, "runs", false, is_proactive,
            "the zone's score is low enough before the scanners have met or kswapd wakes up";
    }
    DirectReclaim {
        ReclaimAllowed: "__alloc_pages_slowpath", "direct_reclaim", PAGE_ALLOC, "requests", true, always,
            "the request may reclaim";
        ReclaimZone: "shrink_zones", "zone_reclaimable", VMSCAN, "zones", false, by_zone,
            "the zone was not scanned in vain too often";
        ReclaimReady: "shrink_zones", "compaction_ready", VMSCAN, "zones", false, always,
            "compaction cannot begin in the zone yet";
        ReclaimFrees: "do_try_to_free_pages", "nr_reclaimed", VMSCAN, "runs", true, always, "the run has freed memory";
    }
    Oom {
        OomRetries: "__alloc_pages_slowpath", "__GFP_NORETRY", PAGE_ALLOC, "rounds", true, always,
            "the request may be tried again";
        OomCostly: "__alloc_pages_slowpath", "costly order", PAGE_ALLOC, "rounds", true, always,
            "the order is 3 at most, or the request retries hard";
        OomProgress: "__alloc_pages_slowpath", "did_some_progress", PAGE_ALLOC, "rounds", true, is_fixed,
            "reclaim has freed nothing";
        OomReclaim: "should_reclaim_retry", "retry", PAGE_ALLOC, "rounds", true, |rules| !is_fixed(rules),
            "reclaim is not worth another round";
        OomCompact: "should_compact_retry", "retry", PAGE_ALLOC, "rounds", true, |rules| !is_fixed(rules),
            "compaction is not worth another round";
        OomHigh: "__alloc_pages_may_oom", "high_wmark", PAGE_ALLOC, "rounds", true, always,
            "no zone is above its High mark";
        OomHelps: "__alloc_pages_may_oom", "order and node", PAGE_ALLOC, "rounds", true, always,
            "killing a process would help: a small block, of any node";
        OomKills: "__alloc_pages_may_oom", "out_of_memory", PAGE_ALLOC, "rounds", true, always, "there is a process to kill";
    }
    Khugepaged {
        KhugepagedLock: "khugepaged_scan_mm_slot", "mmap_lock", KHUGEPAGED, "processes", true,
            |rules| rules.khugepaged_tries_lock, "the process is there and its lock is free";
        KhugepagedVma: "khugepaged_scan_mm_slot", "vma_check", KHUGEPAGED, "mappings", true, always,
            "the rest of the mapping may have huge pages, and has room for one";
        KhugepagedPmd: "khugepaged_scan_pmd", "pmd", KHUGEPAGED, "ranges", true, always, "the range has a page table";
        KhugepagedNoSwap: "khugepaged_scan_pmd", "pte_present", KHUGEPAGED, "ranges", true,
            |rules| !rules.khugepaged_swaps_in, "no page of the range is swapped";
        KhugepagedSwap: "khugepaged_scan_pmd", "max_ptes_swap", KHUGEPAGED, "ranges", true,
            |rules| rules.khugepaged_swaps_in, "few enough pages are swapped";
        KhugepagedNone: "khugepaged_scan_pmd", "max_ptes_none", KHUGEPAGED, "ranges", true, always,
            "few enough pages are missing";
        KhugepagedUnshared: "khugepaged_scan_pmd", "page_count", KHUGEPAGED, "ranges", true,
            |rules| !rules.khugepaged_shared, "no page is shared with another process";
        KhugepagedShared: "khugepaged_scan_pmd", "max_ptes_shared", KHUGEPAGED, "ranges", true,
            |rules| rules.khugepaged_shared, "few enough pages are shared with other processes";
        KhugepagedAbort: "khugepaged_scan_abort", "thp_avail_nodes", HUGE_MEMORY, "ranges", true,
            |rules| rules.khugepaged_checks_nodes, "half of the range is not on a node without huge pages";
        KhugepagedLru: "khugepaged_scan_pmd", "PageLRU", KHUGEPAGED, "ranges", true, always, "all pages are on their LRU lists";
        KhugepagedLocked: "khugepaged_scan_pmd", "PageLocked", KHUGEPAGED, "ranges", true, always, "no page is locked";
        KhugepagedPinned: "khugepaged_scan_pmd", "is_refcount_suitable", KHUGEPAGED, "ranges", true, always, "no page is pinned";
        KhugepagedWritable: "khugepaged_scan_pmd", "writable", KHUGEPAGED, "ranges", true, always, "an entry is writable";
        KhugepagedReferenced: "khugepaged_scan_pmd", "referenced", KHUGEPAGED, "ranges", true, always,
            "a page was used lately; half of them if some are swapped";
        KhugepagedAlloc: "collapse_huge_page", "alloc_charge_hpage", KHUGEPAGED, "ranges", true, always, "there is a huge page";
        KhugepagedRevalidate: "collapse_huge_page", "revalidate", KHUGEPAGED, "ranges", true, always,
            "the range may still have a huge page";
        KhugepagedIsolate: "collapse_huge_page", "isolate", KHUGEPAGED, "ranges", true, always,
            "the second look passes, and all pages could be isolated";
    }
    HugeFault {
        HugeEligible: "do_huge_pmd_anonymous_page", "vma_check", HUGE_MEMORY, "faults", true, always,
            "the mapping may have huge pages, and has room for one";
        HugeGated: "alloc_pages_vma", "thp_avail_isset", MEMPOLICY, "faults", true, |rules| rules.thp_faults_gated,
            "the node has huge pages, as far as is known";
        HugeAlloc: "vma_alloc_folio", "order 9", MEMPOLICY, "faults", true, always, "the allocator has a huge page";
        HugeMapped: "do_huge_pmd_anonymous_page", "pmd_none", HUGE_MEMORY, "faults", true, always, "no other task was faster";
    }
    NumaScan {
        ScanPolicy: "task_numa_work", "vma_policy_mof", FAIR, "mappings", true, |rules| balances(rules) && rules.numa_groups,
            "the memory policy is the local one";
        ScanSmall: "task_numa_work", "HPAGE_SIZE", FAIR,
            "mappings", true, |rules| balances(rules) && !rules.numa_scans_small_vmas,
            "the mapping is as large as a huge page";
        ScanLibrary: "task_numa_work", "VM_READ of a file", FAIR,
            "mappings", true, |rules| balances(rules) && rules.numa_scans_shared,
            "the mapping is no shared library";
        ScanVma: "task_numa_work", "vma_is_accessed", FAIR, "mappings", true,
            |rules| balances(rules) && (rules.numa_vma_delay || rules.numa_vma_by_pid),
            "the mapping is due, and the task has faulted there lately";
        ScanMarks: "task_numa_work", "change_prot_numa", FAIR, "ranges", true, balances, "an entry hints that did not before";
    }
    NumaBalancing {
        MisplacedPolicy: "mpol_misplaced", "MPOL_F_MOF", MEMPOLICY, "faults", true, balances,
            "the memory policy is the local one";
        MisplacedNode: "mpol_misplaced", "curnid == polnid", MEMPOLICY, "faults", true, balances,
            "the page is on another node than the task";
        MisplacedTwice: "mpol_misplaced", "should_numa_migrate", MEMPOLICY, "faults", true, balances,
            "the last fault on the page, and the use of both nodes, say that it should move";
        MisplacedShared: "migrate_misplaced_page", "page_mapcount", MIGRATE, "pages", true, balances,
            "no other process maps the page, or that does not matter";
        MisplacedDirty: "migrate_misplaced_page", "PageDirty", MIGRATE,
            "pages", true, |rules| balances(rules) && !rules.numa_moves_dirty,
            "the page of a file is clean";
        MisplacedRate: "migrate_misplaced_page", "ratelimit", MIGRATE,
            "pages", true, |rules| balances(rules) && rules.numa_rate_limit,
            "few enough pages have moved to the node lately";
        MisplacedRoom: "numamigrate_isolate_page", "balanced_pgdat", MIGRATE, "pages", true, balances,
            "the node stays above a High mark";
        MisplacedIsolated: "numamigrate_isolate_page", "isolate_lru", MIGRATE, "pages", true, balances,
            "the page is on its LRU list";
        MisplacedAlloc: "migrate_misplaced_page", "alloc_huge_dst", MIGRATE, "pages", true, balances,
            "the node has a free huge page";
        MisplacedMoved: "migrate_misplaced_page", "migrate_pages", MIGRATE, "pages", true, balances,
            "the page could be unmapped and copied";
    }
    Reporting {
        ReportOrder: "page_reporting_notify_free", "order", REPORTING, "blocks", true, reports, "the free block is large enough";
        ReportRoom: "page_reporting_process_zone", "watermark", REPORTING, "zones", false, reports,
            "the zone is far enough above its Low mark";
        ReportBlocks: "page_reporting_cycle", "list_empty", REPORTING, "lists", false, reports, "the free list has a block";
        ReportUnreported: "page_reporting_cycle", "PageReported", REPORTING, "walks", false, reports,
            "the walk has found blocks that were not reported";
        ReportTaken: "page_reporting_cycle", "prdev->report", REPORTING, "reports", true, reports, "the device took the blocks";
    }
    Boost {
        BoostBreaks: "steal_suitable_fallback", "pageblock_order", PAGE_ALLOC, "fallbacks", true, boosts,
            "a pageblock is broken up: the block is smaller than one";
        BoostFactor: "boost_watermark", "watermark_boost_factor", PAGE_ALLOC, "fallbacks", false, boosts,
            "the factor and the High mark allow a boost";
        BoostLarge: "boost_watermark", "managed", PAGE_ALLOC, "fallbacks", false,
            |rules| rules.watermark_boost == WatermarkBoost::NotSmall, "the zone has 4 pageblocks at least";
        BoostRaised: "boost_watermark", "watermark_boost", PAGE_ALLOC, "fallbacks", false, boosts,
            "the boost was below its bound";
    }
}
