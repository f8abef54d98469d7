//! Linux: include/linux/gfp.h, include/linux/gfp_types.h (v6.1).
//! Differs: a request is typed fields instead of a mask; only the bits whose mechanisms exist.

use serde::{Deserialize, Serialize};
pub use units::Mobility;
use units::{NodeId, Order};

use crate::{mempolicy::NodeMask, zone::ZoneKind};

/// Orders above this one are costly: the slow path gives up on them sooner.
// PAGE_ALLOC_COSTLY_ORDER, include/linux/mmzone.h (v6.1).
pub const COSTLY: Order = Order(3);
/// Blocks of this order and larger ones are worth no stall (`fragment_stall_order`).
pub const STALL_ORDER: Order = Order(COSTLY.0 + 1);

/// A watermark that a zone must stay above for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// `WMARK_MIN`: the slow path tries with it.
    Min,
    /// `WMARK_LOW`: the fast path tries with it.
    Low,
    /// `WMARK_HIGH`: kswapd reclaims up to it.
    High,
}

/// How far below the Min mark a request may go, and whether it may use HIGHATOMIC pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Not below the mark.
    #[default]
    Normal,
    /// Half of the Min mark is free to the request (`__GFP_HIGH`).
    High,
    /// A quarter of the Min mark, and HIGHATOMIC pageblocks (`ALLOC_HARDER`: real-time tasks).
    Harder,
    /// Five eighths of the Min mark, and HIGHATOMIC pageblocks (`GFP_ATOMIC`).
    Atomic,
    /// Half of the Min mark, and HIGHATOMIC pageblocks (`ALLOC_OOM`: tasks that the OOM killer has killed, 4.14).
    Victim,
}

impl Urgency {
    /// Every urgency that a caller may ask for; the slow path alone sets [`Self::Victim`].
    pub const ALL: [Self; 4] = [Self::Normal, Self::High, Self::Harder, Self::Atomic];

    /// Whether `ALLOC_HARDER` is set.
    #[inline]
    pub const fn is_harder(self) -> bool {
        matches!(self, Self::Harder | Self::Atomic)
    }

    /// The part of a mark of `mark` frames that this request must leave free; `__zone_watermark_ok`, mm/page_alloc.c
    /// (v3.9 to v6.1).
    #[inline]
    pub const fn lowered(self, mark: u64) -> u64 {
        let mark = if matches!(self, Self::High | Self::Atomic | Self::Victim) { mark - mark / 2 } else { mark };
        if self.is_harder() { mark - mark / 4 } else { mark }
    }
}

/// How hard the slow path tries for a request, beside `no_retry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As hard as the order of the request says.
    #[default]
    Usual,
    /// Many rounds of reclaim and compaction, even for a large block (`__GFP_RETRY_MAYFAIL`).
    RetriesHard,
    /// One compaction, and never reclaim (`__GFP_ONLY_COMPACT`, which was posted in August 2018 and never merged).
    OnlyCompacts,
}

/// The request of one allocation (`gfp_t`, the order and the policy's nodes).
#[expect(clippy::struct_excessive_bools, reason = "they are bits of a mask, each with a name of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRequest {
    /// log2 of the frames wanted.
    pub order: Order,
    /// Mobility of the pageblocks that the block is taken from.
    pub mobility: Mobility,
    /// The highest zone that may serve the request (`gfp_zone`).
    pub highest: ZoneKind,
    /// The node that is tried first.
    pub node: NodeId,
    /// The nodes that may serve the request (`nodemask`).
    pub allowed: NodeMask,
    /// No other node will do (`__GFP_THISNODE`).
    pub this_node_only: bool,
    /// The mark that the first try leaves in a zone. If no zone is above it, the request tries again with Min.
    pub mark: Mark,
    /// How far the request may go below the Min mark.
    pub urgency: Urgency,
    /// Whether the request wakes kswapd when no zone is above the mark (`__GFP_KSWAPD_RECLAIM`).
    pub wakes_kswapd: bool,
    /// Whether the task may reclaim and compact for the request, and wait for that (`__GFP_DIRECT_RECLAIM`).
    pub reclaims: bool,
    /// One round of reclaim and compaction is enough (`__GFP_NORETRY`).
    pub no_retry: bool,
    /// Flags that make the slow path try harder, or only compact.
    pub effort: Effort,
    /// The page will be dirtied: nodes at their limit of dirty pages are passed over (`__GFP_WRITE`).
    pub writes: bool,
    /// A device writes to the page first: a frame that no CPU cache holds will do (`__GFP_COLD`, up to 4.14).
    pub is_cold: bool,
}

impl AllocRequest {
    /// `GFP_KERNEL`: one frame for the kernel itself.
    pub const fn gfp_kernel(node: NodeId) -> Self {
        Self {
            order: Order::BASE,
            mobility: Mobility::Unmovable,
            highest: ZoneKind::Normal,
            node,
            allowed: NodeMask::ALL,
            this_node_only: false,
            mark: Mark::Low,
            urgency: Urgency::Normal,
            wakes_kswapd: true,
            reclaims: true,
            no_retry: false,
            effort: Effort::Usual,
            writes: false,
            is_cold: false,
        }
    }

    /// `GFP_ATOMIC`: one frame for a caller that cannot sleep.
    pub const fn gfp_atomic(node: NodeId) -> Self {
        Self { urgency: Urgency::Atomic, ..Self::gfp_nowait(node) }
    }

    /// `GFP_NOWAIT`: one frame for the kernel itself, if one is free; no reclaim by the caller.
    pub const fn gfp_nowait(node: NodeId) -> Self {
        Self { reclaims: false, ..Self::gfp_kernel(node) }
    }

    /// `GFP_PGTABLE_USER`: one frame for a page table of a process.
    pub const fn gfp_pgtable_user(node: NodeId) -> Self {
        Self::gfp_kernel(node)
    }

    /// `GFP_KERNEL | __GFP_RECLAIMABLE`: one frame for objects that a shrinker can free.
    pub const fn gfp_kernel_reclaimable(node: NodeId) -> Self {
        Self { mobility: Mobility::Reclaimable, ..Self::gfp_kernel(node) }
    }

    /// `GFP_HIGHUSER_MOVABLE`: one frame of user memory.
    pub const fn gfp_highuser_movable(node: NodeId) -> Self {
        Self { mobility: Mobility::Movable, highest: ZoneKind::Movable, ..Self::gfp_kernel(node) }
    }

    /// `GFP_TRANSHUGE_LIGHT`: a huge page of user memory, without reclaim by the caller or by kswapd.
    pub const fn gfp_transhuge_light(node: NodeId) -> Self {
        Self { order: Order::HUGE, wakes_kswapd: false, reclaims: false, ..Self::gfp_highuser_movable(node) }
    }

    /// Changes the order of the request.
    #[must_use]
    pub const fn of_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Restricts the request to its preferred node (`__GFP_THISNODE`).
    #[must_use]
    pub const fn this_node(self) -> Self {
        Self { this_node_only: true, ..self }
    }
}
