//! Linux: none; the tracepoints mm_compaction_migratepages, mm_migrate_pages and mm_page_alloc_extfrag name no pageblock (v6.1).
//! Differs: pages that came into a pageblock and left it, by mover and reason, for maps of memory over time. Kept only while
//! pageblocks are watched; otherwise each place pays one branch. No mechanism reads them.

use std::collections::BTreeMap;

use units::Order;

use crate::pageblock::MigrateType;

/// The reason why pages came into a pageblock or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// Compaction, for a block of this order; none: for the whole zone.
    Compaction(Option<Order>),
    /// NUMA balancing.
    NumaBalancing,
    /// A system call that moves pages to a node (`move_pages`, `migrate_pages`, `mbind`).
    ToNode,
    /// Base pages were collapsed into a huge page.
    Collapse,
    /// A request of one type was served from the free lists of another (`mm_page_alloc_extfrag`).
    Fallback {
        /// The type of the request.
        request: MigrateType,
        /// The type of the list.
        list: MigrateType,
        /// Whether the pageblock has the type of the request afterwards.
        takes_over: bool,
    },
    /// The pageblock got this type for another reason: it was reserved, given back or emptied.
    Retyped(MigrateType),
}

/// Pages that came into a pageblock and left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that came; of a fallback, pages of the block that was taken.
    pub came: u32,
    /// Pages that left.
    pub left: u32,
}

/// Moved pages by pageblock, number of the control that moved them, and reason.
pub type Moves = BTreeMap<(u32, u32, MoveReason), Moved>;
