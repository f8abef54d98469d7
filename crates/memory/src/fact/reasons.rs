//! Linux: tracepoints (include/trace/events/vmscan.h, huge_memory.h, migrate.h, writeback.h, v6.1): their enumerations.
//! Differs: `mpol_misplaced` and `migrate_misplaced_page` have no tracepoint that says why a page stays.

use serde::{Deserialize, Serialize};

/// A device that tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The swap device.
    Swap,
    /// The disk with the files.
    Disk,
}

/// The reason for which a task is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// Too many pages are isolated (`too_many_isolated`), against an eighth of the inactive list, or for compaction half of all
    /// lists.
    Isolated,
    /// Reclaim meets pages again that are being written (`VMSCAN_THROTTLE_WRITEBACK`): pages met, of those isolated.
    Writeback,
    /// All dirty pages of a node or zone are on their way to the disk (`VMSCAN_THROTTLE_CONGESTED`, `wait_iff_congested`).
    Congested,
    /// A round of reclaim at priority 1 has reclaimed nothing (`VMSCAN_THROTTLE_NOPROGRESS`).
    NoProgress,
    /// The node's free pages are below half of its Min marks (`throttle_direct_reclaim`): free pages, of that half.
    Reserves,
    /// Reclaim has reclaimed nothing, and the request is tried again (`should_reclaim_retry`): tries so far, of 16.
    Retry,
    /// The OOM killer is at work, or has chosen a process.
    Oom,
    /// A request that would fragment memory waits for kswapd (the stall of fragmentation, 5.0-rc).
    Stall,
    /// The task has dirtied pages of files faster than the disk writes (`balance_dirty_pages`): dirty pages, of the limit.
    Dirty,
}

/// The decision on a NUMA hinting fault, as `mpol_misplaced` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintVerdict {
    /// The page is on the node of the CPU.
    IsLocal,
    /// A memory policy says where the page belongs.
    Policy,
    /// The last fault on the page was on another node (the two-stage filter), or by another process.
    LastElsewhere,
    /// The NUMA group of the task uses the page's node enough (`should_numa_migrate_memory`).
    Group,
    /// The huge page is used in parts by several tasks, and is split.
    FalselyShared,
    /// The page is to move.
    Moves,
}

/// The end of moving a misplaced page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The page has moved.
    Moved,
    /// The page is mapped by several processes, dirty, or a part of a huge page.
    Unfit,
    /// The limit on moves to the node in this interval is reached (`migrate_ratelimited`).
    RateLimit,
    /// The node has no room above its High mark, or the page is off its list (`numamigrate_isolate_page`).
    NoRoom,
    /// There is no free frame on the node.
    NoFrame,
    /// The page was locked or referenced in each pass.
    Busy,
    /// The entry of the page has changed meanwhile.
    Changed,
    /// The page is on the node already.
    IsThere,
}

/// The end of a collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collapsed {
    /// The range is a huge page.
    Succeeded,
    /// The range has changed, or one of its pages is referenced, locked or in swap.
    Abandoned,
    /// There is no huge page.
    NoMemory,
}
