//! Linux: mm/huge_memory.c, include/linux/huge_mm.h (v6.1).
//! Differs: no memcg.
//!
//! Floor 5: this room is transparent huge pages and khugepaged. Files here use floors 0 to 4.

pub(crate) mod huge_cow;
pub mod khugepaged;

use memory::{alloc::NoMemory, cx::Cx, primitive, tally::Test};
use rules::{
    gfp::{AllocRequest, Effort, Mark},
    mempolicy::{HugeReach, Mempolicy},
    variant::{ThpDefrag, ThpNodes},
};
use units::{NodeId, Order, Pfn, Vpn};

use crate::{
    Mm,
    space::vma::{HugeAdvice, PageRange, Vma},
};

/// `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpEnabled {
    /// For every mapping that does not refuse.
    Always,
    /// For mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// For none.
    Never,
}

/// The request of a fault for a huge page in this try; `is_advised`: the mapping has `MADV_HUGEPAGE`.
pub(crate) fn huge_request(rule: ThpNodes, which: HugeTry, wish: AllocRequest, is_advised: bool) -> AllocRequest {
    let once = AllocRequest { no_retry: true, ..wish };
    let stays = match rule {
        ThpNodes::Any => false,
        ThpNodes::Local | ThpNodes::LocalCompacted => true,
        ThpNodes::LocalUnlessReclaims => !wish.reclaims,
        ThpNodes::LocalThenOnce | ThpNodes::LocalFirst | ThpNodes::LocalFast | ThpNodes::LocalCompactedUnlessShort => {
            which == HugeTry::First
        }
        ThpNodes::LocalUnlessAdvised => !is_advised,
        ThpNodes::LocalIfAdvised => is_advised || !wish.reclaims,
    };
    let wish = match (rule, which) {
        (ThpNodes::LocalThenOnce, HugeTry::Second) | (ThpNodes::LocalFirst, HugeTry::First) => once,
        (ThpNodes::LocalCompacted | ThpNodes::LocalCompactedUnlessShort, _) => {
            AllocRequest { effort: Effort::OnlyCompacts, ..once }
        }
        // The first try was at the Low mark.
        (ThpNodes::LocalFast, HugeTry::Second) => AllocRequest { mark: Mark::Min, ..wish },
        _ => wish,
    };
    if stays { wish.this_node() } else { wish }
}

/// Whether a fault tries a second time if the first try got no huge page.
fn tries_twice(rule: ThpNodes, mm: &Mm, wish: &AllocRequest) -> bool {
    match rule {
        ThpNodes::LocalThenOnce | ThpNodes::LocalFirst => wish.reclaims,
        ThpNodes::LocalFast => true,
        ThpNodes::LocalCompactedUnlessShort => mm.is_short_of_base_pages(wish),
        ThpNodes::Any
        | ThpNodes::Local
        | ThpNodes::LocalUnlessReclaims
        | ThpNodes::LocalCompacted
        | ThpNodes::LocalUnlessAdvised
        | ThpNodes::LocalIfAdvised => false,
    }
}

/// The try of a fault for a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HugeTry {
    #[default]
    First,
    /// The second try, from any node.
    Second,
}

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeGot {
    Frame(Pfn),
    /// The slow path was asked: the same try again.
    Asked,
    /// Go on with the next try.
    Next(HugeTry),
    Nothing,
}

/// Settings of transparent huge pages.
#[derive(Clone, Debug)]
pub struct Thp {
    /// `enabled`.
    pub enabled: ThpEnabled,
    /// `defrag`.
    pub defrag: ThpDefrag,
    /// `use_zero_page`.
    pub use_zero_page: bool,
}

impl Default for Thp {
    /// The kernel's defaults (4.6 and later) if it is built with `always`.
    fn default() -> Self {
        Self { enabled: ThpEnabled::Always, defrag: ThpDefrag::Madvise, use_zero_page: true }
    }
}

/// The huge page that holds `vpn`.
pub fn huge_range(vpn: Vpn) -> PageRange {
    PageRange::new(vpn.huge_start(), u64::from(Order::HUGE.frames()))
}

impl Mm {
    /// Whether a fault at `vpn` may map a huge page (`hugepage_vma_check`, `transhuge_vma_suitable`).
    pub fn is_thp_eligible(&self, vma: &Vma, vpn: Vpn) -> bool {
        let wanted = match (self.thp.enabled, vma.advice) {
            (ThpEnabled::Never, _) | (_, HugeAdvice::NoHugePage) => false,
            (ThpEnabled::Always, _) => true,
            (ThpEnabled::Madvise, advice) => advice == HugeAdvice::HugePage,
        };
        // Machines with small pageblocks, for tests, have no huge pages.
        wanted
            && vma.file.is_none()
            && self.memory.frames.blocks.order() == Order::HUGE
            && vma.range().covers(huge_range(vpn))
    }

    /// The request of a fault in a mapping with this advice (`vma_thp_gfp_mask`; `alloc_hugepage_gfpmask` before 4.8).
    pub(crate) fn thp_request(&self, node: NodeId, advice: HugeAdvice) -> AllocRequest {
        let light = AllocRequest::gfp_transhuge_light(node);
        let advised = advice == HugeAdvice::HugePage;
        let (reclaims, wakes_kswapd) = match self.thp.defrag {
            ThpDefrag::Always => (true, false),
            ThpDefrag::Defer => (false, true),
            ThpDefrag::DeferMadvise => (advised, !advised),
            ThpDefrag::Madvise => (advised, false),
            ThpDefrag::Never => (false, false),
        };
        let is_spared = match (self.thp.defrag, self.memory.variant().thp_advised_retries) {
            (ThpDefrag::Always, true) => !advised,
            (_, true) => false,
            (_, false) => true,
        };
        AllocRequest { reclaims, wakes_kswapd, no_retry: reclaims && is_spared, ..light }
    }

    /// Tries once to get a huge page for a fault (`vma_alloc_folio`).
    pub(crate) fn try_huge(
        &mut self,
        cx: &mut Cx,
        advice: HugeAdvice,
        which: HugeTry,
        (policy, vpn): (Mempolicy, Vpn),
    ) -> HugeGot {
        let wish = policy.apply(self.thp_request(self.memory.node_of_cpu(cx.cpu()), advice), vpn);
        let rule = self.memory.variant().thp_nodes;
        let rule = match policy.huge_reach(&wish, rule) {
            HugeReach::ByRule => rule,
            HugeReach::ByPolicy => ThpNodes::Any,
        };
        let request = huge_request(rule, which, wish, advice == HugeAdvice::HugePage);
        if which == HugeTry::First && !self.asks_try_huge(cx, &request) {
            self.huge_fault_failed(request.node);
            return HugeGot::Nothing;
        }
        self.count_huge_try(cx, &request);
        let is_fast_alone = rule == ThpNodes::LocalFast && which == HugeTry::First;
        let found = if is_fast_alone {
            self.memory.alloc_above(cx, &request, Mark::Low).ok_or(NoMemory::Refused)
        } else {
            self.memory.alloc(cx, &request)
        };
        match found {
            Ok(frame) => {
                cx.test(Test::HugeAlloc, request.node, true);
                primitive::write_tails(cx, Order::HUGE);
                HugeGot::Frame(frame)
            }
            Err(NoMemory::Asked) => HugeGot::Asked,
            Err(NoMemory::Refused) if which == HugeTry::First && tries_twice(rule, self, &wish) => {
                HugeGot::Next(HugeTry::Second)
            }
            Err(NoMemory::Refused) => {
                cx.test(Test::HugeAlloc, request.node, false);
                self.huge_fault_failed(request.node);
                HugeGot::Nothing
            }
        }
    }

    /// Whether a fault may try for a huge page, as a test where that is a rule.
    fn asks_try_huge(&mut self, cx: &mut Cx, request: &AllocRequest) -> bool {
        let may = self.may_try_huge(cx, request);
        if self.memory.variant().thp_faults_gated { cx.test(Test::HugeGated, request.node, may) } else { may }
    }

    /// Whether the node of a request for a huge page lacks even 512 free base pages.
    fn is_short_of_base_pages(&self, request: &AllocRequest) -> bool {
        let base = request.this_node();
        let more = u64::from(request.order.frames());
        let has_them = |zone| self.memory.zone(zone).has_above_low(more, request.highest);
        !self.memory.zones_for(&base).into_iter().any(has_them)
    }
}
