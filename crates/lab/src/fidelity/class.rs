//! How near the simulator has to be: classes of counters, by what the cell is like.

use serde::Serialize;

use super::{
    Cell, EXTFRAG, HUGE_BLOCKS, HUGE_FAULTS, HUGE_MEMORY, KSWAPD, NEAR_MEMORY, PTE_UPDATES, STALLS, SWAPPED_OUT, Spread,
};

/// Up to this standard deviation, in percentage points, the kernel's own runs agree on the share of huge pages.
pub const CLEAR_POINTS: f64 = 3.0;

/// The class of a counter, which says how near it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Faults and allocations of a cell without swap-in or reclaim.
    Faults,
    /// Faults elsewhere.
    FaultsUnderReclaim,
    /// The share of huge pages where the kernel's runs agree.
    ShareClear,
    /// Shares of huge pages where runs of the kernel do not agree.
    ShareContended,
    /// Work of kswapd while files stream through memory.
    Streaming,
    /// Splits of huge pages.
    Splits,
    /// Reclaim, compaction and fallbacks, of which the kernel itself does another amount each time.
    Reclaim,
    /// Scans, hinting faults and moves of NUMA balancing, which go by the time that all takes.
    Balancing,
}

impl Class {
    /// Each of them, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Faults,
        Self::FaultsUnderReclaim,
        Self::ShareClear,
        Self::ShareContended,
        Self::Streaming,
        Self::Splits,
        Self::Reclaim,
        Self::Balancing,
    ];

    /// The class's name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::FaultsUnderReclaim => "faults under reclaim",
            Self::ShareClear => "huge share, clear",
            Self::ShareContended => "huge share, contended",
            Self::Streaming => "streaming kswapd",
            Self::Splits => "splits",
            Self::Reclaim => "reclaim, compaction, extfrag",
            Self::Balancing => "NUMA balancing",
        }
    }

    /// The class's tolerance in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Faults => "0.5 % plus 400",
            Self::FaultsUnderReclaim => "between the kernel's lowest and highest run, or 3 %",
            Self::ShareClear => "3 points",
            Self::ShareContended => "15 points",
            Self::Streaming => "3 %",
            Self::Splits => "10 %",
            Self::Reclaim | Self::Balancing => "a factor of 2, and present or absent together",
        }
    }

    /// Whether our mean is near enough to the kernel's.
    pub fn holds(self, kernel: f64, spread: Spread, ours: f64) -> bool {
        let apart = (ours - kernel).abs();
        match self {
            Self::Faults => apart <= kernel * 0.005 + 400.0,
            Self::FaultsUnderReclaim => apart <= kernel * 0.03 || (spread.low..=spread.high).contains(&ours),
            Self::ShareClear => apart <= 3.0,
            Self::ShareContended => apart <= 15.0,
            Self::Streaming => apart <= kernel * 0.03,
            Self::Splits => apart <= kernel * 0.1,
            // With none on one side, there is no factor.
            Self::Reclaim | Self::Balancing => kernel.max(ours) <= 2.0 * kernel.min(ours),
        }
    }
}

/// The nature of a cell, by the kernel's own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a cell may be all of these")]
pub struct Nature {
    /// Some run swapped in or scanned for pages to reclaim.
    pub reclaims: bool,
    /// The runs do not agree on the share of huge pages.
    pub contended: bool,
    /// Files stream through memory.
    pub streaming: bool,
    /// Both sides balance NUMA.
    pub balances: bool,
}

impl Nature {
    pub(super) fn of(cell: &Cell) -> Self {
        let any = |name: &str| cell.kernel(name).iter().any(|moved| *moved > 0.0);
        let share = if any(HUGE_BLOCKS) { HUGE_BLOCKS } else { HUGE_FAULTS };
        Self {
            reclaims: ["pswpin", "pgscan_kswapd", "pgscan_direct"].into_iter().any(any),
            contended: Spread::of(&cell.kernel(share)).deviation > CLEAR_POINTS,
            streaming: cell.streaming,
            balances: cell.balances(),
        }
    }
}

/// Faults and what they allocate.
const FAULTS: [&str; 8] = [
    "pgfault",
    "pgreuse",
    "pgalloc_dma",
    "pgalloc_dma32",
    "pgalloc_normal",
    "pgalloc_movable",
    "pgfree",
    "thp_zero_page_alloc",
];
/// Under reclaim these are what the share of huge faults is made of, and that is compared.
const HUGE: [&str; 2] = ["thp_fault_alloc", "thp_fault_fallback"];
const SPLITS: [&str; 4] = ["thp_split_page", "thp_split_page_failed", "thp_split_pmd", "thp_deferred_split_page"];
/// Streams that kswapd keeps up with.
const OF_KSWAPD: [&str; 2] = ["pgscan_kswapd", KSWAPD];
const RECLAIM: [&str; 18] = [
    STALLS,
    "pgscan_direct",
    "pgsteal_direct",
    "pageoutrun",
    "pswpin",
    SWAPPED_OUT,
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_isolated",
    "compact_daemon_wake",
    "compact_daemon_migrate_scanned",
    "compact_daemon_free_scanned",
    "pgmigrate_success",
    "pgmigrate_fail",
    EXTFRAG,
];

/// Counters of a kernel that balances NUMA.
const BALANCING: [&str; 4] = [PTE_UPDATES, "numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated"];

/// The counters that are compared in such a cell, with their classes.
pub fn of_cell(nature: Nature) -> impl Iterator<Item = (&'static str, Class)> {
    let faults = if nature.reclaims { Class::FaultsUnderReclaim } else { Class::Faults };
    let share = if nature.contended { Class::ShareContended } else { Class::ShareClear };
    let kswapd = if nature.streaming { Class::Streaming } else { Class::Reclaim };
    let huge = HUGE.into_iter().filter(move |_| !nature.reclaims);
    let classed = |class: Class| move |name: &'static str| (name, class);
    let shares = [HUGE_BLOCKS, HUGE_FAULTS, HUGE_MEMORY, NEAR_MEMORY].into_iter().map(classed(share));
    let counted = FAULTS.into_iter().chain(huge).map(classed(faults)).chain(shares);
    let under = SPLITS.into_iter().map(classed(Class::Splits)).chain(OF_KSWAPD.into_iter().map(classed(kswapd)));
    let balancing = BALANCING.into_iter().filter(move |_| nature.balances).map(classed(Class::Balancing));
    counted.chain(under).chain(RECLAIM.into_iter().map(classed(Class::Reclaim))).chain(balancing)
}
