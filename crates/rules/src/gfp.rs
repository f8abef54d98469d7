//! Linux: include/linux/gfp.h, include/linux/gfp_types.h (v6.1).
//! Differs: a request is typed fields instead of a mask; only the bits whose mechanisms exist.

pub use units::Mobility;
use units::{NodeId, Order};

use crate::{mempolicy::NodeMask, zone::ZoneKind};

/// Orders above this one are not worth much trouble.
// PAGE_ALLOC_COSTLY_ORDER, include/linux/mmzone.h (v6.1).
pub const COSTLY: Order = Order(3);
/// Blocks of this order and larger ones are worth no stall (`fragment_stall_order`).
pub const STALL_ORDER: Order = Order(COSTLY.0 + 1);

/// A watermark that a zone must stay above for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// `WMARK_MIN`: the slow path's.
    Min,
    /// `WMARK_LOW`: the fast path's.
    Low,
    /// `WMARK_HIGH`.
    High,
}

/// The reserves that a request may use, beyond others, once the Low mark is not met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Nothing.
    #[default]
    Normal,
    /// Half of what the Min mark keeps (`__GFP_HIGH`).
    High,
    /// A quarter of it, and HIGHATOMIC pageblocks (`ALLOC_HARDER`: real-time tasks).
    Harder,
    /// Five eighths of it, and HIGHATOMIC pageblocks (`GFP_ATOMIC`).
    Atomic,
    /// Half of it, and what HIGHATOMIC pageblocks keep (`ALLOC_OOM`: those that the OOM killer has killed, 4.14).
    Victim,
}

impl Urgency {
    /// All that callers have; [`Self::Victim`] comes with the slow path.
    pub const ALL: [Self; 4] = [Self::Normal, Self::High, Self::Harder, Self::Atomic];

    /// `ALLOC_HARDER`.
    #[inline]
    pub const fn is_harder(self) -> bool {
        matches!(self, Self::Harder | Self::Atomic)
    }

    /// The rest of a mark of that many frames for this request; `__zone_watermark_ok`, mm/page_alloc.c (v3.9 to v6.1).
    #[inline]
    pub const fn lowered(self, mark: u64) -> u64 {
        let mark = if matches!(self, Self::High | Self::Atomic | Self::Victim) { mark - mark / 2 } else { mark };
        if self.is_harder() { mark - mark / 4 } else { mark }
    }
}

/// The trouble that a request is worth, beside the number of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As its order has it.
    #[default]
    Usual,
    /// Many rounds, even for a large block (`__GFP_RETRY_MAYFAIL`).
    RetriesHard,
    /// One compaction, and never reclaim (`__GFP_ONLY_COMPACT`, which was posted in August 2018 and never merged).
    OnlyCompacts,
}

/// One allocation's wish.
#[expect(clippy::struct_excessive_bools, reason = "they are bits of a mask, each with a name of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRequest {
    /// log2 of the frames wanted.
    pub order: Order,
    /// Which pageblocks they belong in.
    pub mobility: Mobility,
    /// The highest zone that may serve it.
    pub highest: ZoneKind,
    /// The node preferred.
    pub node: NodeId,
    /// The nodes that may serve it (`nodemask`).
    pub allowed: NodeMask,
    /// No other node will do (`__GFP_THISNODE`).
    pub this_node_only: bool,
    /// The mark that the first try leaves in a zone. A request that finds no zone above it tries again with Min.
    pub mark: Mark,
    /// The reserves that the request may use with the Min mark.
    pub urgency: Urgency,
    /// Does it wake kswapd when no zone is above the mark (`__GFP_KSWAPD_RECLAIM`)?
    pub wakes_kswapd: bool,
    /// May it reclaim and compact by itself, and wait for that (`__GFP_DIRECT_RECLAIM`)?
    pub reclaims: bool,
    /// One round of that is enough (`__GFP_NORETRY`).
    pub no_retry: bool,
    /// More about the trouble that it is worth.
    pub effort: Effort,
    /// Will it be dirty, so that it should go where there is room for that (`__GFP_WRITE`)?
    pub writes: bool,
    /// Will a device write to it first, so that it need not be one that a cache holds (`__GFP_COLD`, up to 4.14)?
    pub is_cold: bool,
}

impl AllocRequest {
    /// `GFP_KERNEL`: the kernel's own memory, one frame.
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

    /// `GFP_ATOMIC`: for those who cannot wait, one frame.
    pub const fn gfp_atomic(node: NodeId) -> Self {
        Self { urgency: Urgency::Atomic, ..Self::gfp_nowait(node) }
    }

    /// `GFP_NOWAIT`: the kernel's own memory, if it is to be had at once, one frame.
    pub const fn gfp_nowait(node: NodeId) -> Self {
        Self { reclaims: false, ..Self::gfp_kernel(node) }
    }

    /// `GFP_PGTABLE_USER`: a user's page table, one frame.
    pub const fn gfp_pgtable_user(node: NodeId) -> Self {
        Self::gfp_kernel(node)
    }

    /// `GFP_KERNEL | __GFP_RECLAIMABLE`: what a shrinker can give back, one frame.
    pub const fn gfp_kernel_reclaimable(node: NodeId) -> Self {
        Self { mobility: Mobility::Reclaimable, ..Self::gfp_kernel(node) }
    }

    /// `GFP_HIGHUSER_MOVABLE`: user memory, one frame.
    pub const fn gfp_highuser_movable(node: NodeId) -> Self {
        Self { mobility: Mobility::Movable, highest: ZoneKind::Movable, ..Self::gfp_kernel(node) }
    }

    /// `GFP_TRANSHUGE_LIGHT`: user memory of huge-page order, without any reclaim.
    pub const fn gfp_transhuge_light(node: NodeId) -> Self {
        Self { order: Order::HUGE, wakes_kswapd: false, reclaims: false, ..Self::gfp_highuser_movable(node) }
    }

    /// Makes it a request for a block of `order`.
    #[must_use]
    pub const fn of_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Makes it a request for memory of its node or none at all (`__GFP_THISNODE`).
    #[must_use]
    pub const fn this_node(self) -> Self {
        Self { this_node_only: true, ..self }
    }
}
