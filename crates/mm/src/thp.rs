//! Linux: mm/huge_memory.c, include/linux/huge_mm.h (v6.1).
//! Differs: no memcg.

use units::{NodeId, Order, Pfn, Vpn};

use crate::{
    Mm,
    address_space::AddressSpace,
    alloc::NoMemory,
    cx::Cx,
    event::Event,
    frame::Frame,
    gfp::{AllocRequest, Effort, Mark, Mobility},
    mempolicy::{HugeReach, Mempolicy},
    page_table::{Pmd, PmdSlot},
    primitive,
    pte::Pte,
    variant::{ThpDefrag, ThpNodes},
    vma::{HugeAdvice, PageRange, Vma},
    zone::ZoneKind,
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

/// The request of a fault with such a wish in a try; was the mapping advised to have huge pages?
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
        // The Low mark was what the first try asked for.
        (ThpNodes::LocalFast, HugeTry::Second) => AllocRequest { mark: Mark::Min, ..wish },
        _ => wish,
    };
    if stays { wish.this_node() } else { wish }
}

/// Does a fault with such a wish try once more when it got none?
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

/// How far a fault has come with getting a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HugeTry {
    #[default]
    First,
    /// From any node.
    Second,
}

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeGot {
    Frame(Pfn),
    /// Memory was asked for: the same try again.
    Asked,
    /// The next try.
    Next(HugeTry),
    Nothing,
}

/// Transparent huge pages: settings, and the one huge zero page.
#[derive(Clone, Debug)]
pub struct Thp {
    /// `enabled`.
    pub enabled: ThpEnabled,
    /// `defrag`.
    pub defrag: ThpDefrag,
    /// `use_zero_page`.
    pub use_zero_page: bool,
    zero: Option<HugeZero>,
}

#[derive(Clone, Debug)]
struct HugeZero {
    frame: Pfn,
    /// Address spaces that have mapped it.
    users: u32,
}

impl Default for Thp {
    /// The kernel's defaults (4.6 and later) where the build says `always`.
    fn default() -> Self {
        Self { enabled: ThpEnabled::Always, defrag: ThpDefrag::Madvise, use_zero_page: true, zero: None }
    }
}

impl Thp {
    /// The frame of the huge zero page, once it was needed.
    pub fn huge_zero_frame(&self) -> Option<Pfn> {
        self.zero.as_ref().map(|zero| zero.frame)
    }

    /// Is there a huge zero page that nobody uses?
    pub(crate) fn is_huge_zero_unused(&self) -> bool {
        self.zero.as_ref().is_some_and(|zero| zero.users == 0)
    }

    /// The address spaces that use the huge zero page, as it is: for checks.
    pub(crate) fn raw_zero_users(&self) -> u32 {
        self.zero.as_ref().map_or(0, |zero| zero.users)
    }
}

/// The huge page that holds `vpn`.
pub fn huge_range(vpn: Vpn) -> PageRange {
    PageRange::new(vpn.huge_start(), u64::from(Order::HUGE.frames()))
}

impl Mm {
    /// May a fault at `vpn` map a huge page (`hugepage_vma_check`, `transhuge_vma_suitable`)?
    pub fn is_thp_eligible(&self, vma: &Vma, vpn: Vpn) -> bool {
        let wanted = match (self.thp.enabled, vma.advice) {
            (ThpEnabled::Never, _) | (_, HugeAdvice::NoHugePage) => false,
            (ThpEnabled::Always, _) => true,
            (ThpEnabled::Madvise, advice) => advice == HugeAdvice::HugePage,
        };
        // Machines with small pageblocks, for tests, have no huge pages.
        wanted && vma.file.is_none() && self.frames.blocks.order() == Order::HUGE && vma.range().covers(huge_range(vpn))
    }

    /// The request of a fault in a mapping with such advice (`vma_thp_gfp_mask`; `alloc_hugepage_gfpmask` before 4.8).
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
        let is_spared = match (self.thp.defrag, self.variant().thp_advised_retries) {
            (ThpDefrag::Always, true) => !advised,
            (_, true) => false,
            (_, false) => true,
        };
        AllocRequest { reclaims, wakes_kswapd, no_retry: reclaims && is_spared, ..light }
    }

    /// One try to get a huge page for a fault (`vma_alloc_folio`).
    pub(crate) fn try_huge(
        &mut self,
        cx: &mut Cx,
        advice: HugeAdvice,
        which: HugeTry,
        (policy, vpn): (Mempolicy, Vpn),
    ) -> HugeGot {
        let wish = policy.apply(self.thp_request(self.node_of_cpu(cx.cpu()), advice), vpn);
        let rule = self.variant().thp_nodes;
        let rule = match policy.huge_reach(&wish, rule) {
            HugeReach::ByRule => rule,
            HugeReach::ByPolicy => ThpNodes::Any,
        };
        let request = huge_request(rule, which, wish, advice == HugeAdvice::HugePage);
        if which == HugeTry::First && !self.may_try_huge(cx, &request) {
            self.huge_fault_failed(request.node);
            return HugeGot::Nothing;
        }
        self.count_huge_try(cx, &request);
        let is_fast_alone = rule == ThpNodes::LocalFast && which == HugeTry::First;
        let found = if is_fast_alone {
            self.alloc_above(cx, &request, Mark::Low).ok_or(NoMemory::Refused)
        } else {
            self.alloc(cx, &request)
        };
        match found {
            Ok(frame) => {
                primitive::write_tails(cx, Order::HUGE);
                HugeGot::Frame(frame)
            }
            Err(NoMemory::Asked) => HugeGot::Asked,
            Err(NoMemory::Refused) if which == HugeTry::First && tries_twice(rule, self, &wish) => {
                HugeGot::Next(HugeTry::Second)
            }
            Err(NoMemory::Refused) => {
                self.huge_fault_failed(request.node);
                HugeGot::Nothing
            }
        }
    }

    /// Has the node of a request for a huge page too few free base pages for as much memory?
    fn is_short_of_base_pages(&self, request: &AllocRequest) -> bool {
        let base = request.this_node();
        let more = u64::from(request.order.frames());
        let has_them = |zone| self.zones[zone].has_above_low(more, request.highest);
        !self.zones_for(&base).into_iter().any(has_them)
    }

    /// The huge zero page for one more address space (`mm_get_huge_zero_page`); nothing when memory is out.
    pub(crate) fn get_huge_zero(&mut self, cx: &mut Cx, space: &mut AddressSpace) -> Option<Pfn> {
        if self.thp.zero.is_none() {
            let user = AllocRequest::gfp_transhuge_light(self.node_of_cpu(cx.cpu()));
            let request = AllocRequest { mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..user };
            // A request that does not reclaim asks for nothing.
            let frame = self.alloc(cx, &request).ok()?;
            self.frames.set(frame, Frame::ZeroHuge);
            self.clear(cx, frame, Order::HUGE);
            cx.count(Event::ThpZeroPageAlloc, 1);
            self.thp.zero = Some(HugeZero { frame, users: 0 });
        }
        let zero = self.thp.zero.as_mut().expect("made above");
        if !space.uses_huge_zero {
            space.uses_huge_zero = true;
            zero.users += 1;
        }
        Some(zero.frame)
    }

    /// An address space ends (`mm_put_huge_zero_page`). The page stays until memory is short.
    pub(crate) fn put_huge_zero(&mut self, space: &AddressSpace) {
        if space.uses_huge_zero {
            self.thp.zero.as_mut().expect("the space had it").users -= 1;
        }
    }

    /// Frees the huge zero page if nobody uses it, as its shrinker does; says whether.
    pub fn shrink_huge_zero(&mut self, cx: &mut Cx) -> bool {
        let unused = self.thp.zero.take_if(|zero| zero.users == 0);
        if let Some(zero) = &unused {
            self.free(cx, zero.frame, Order::HUGE);
        }
        unused.is_some()
    }
}

impl AddressSpace {
    /// Splits the PMD that maps a huge page across `at`, where a VMA is about to end (`vma_adjust_trans_huge`).
    pub(crate) fn split_pmd_across(&mut self, mm: &mut Mm, cx: &mut Cx, at: Vpn) {
        if at != at.huge_start()
            && let Some(slot) = self.tables.pmd_slot(at)
            && let Pmd::Huge(_) = self.tables.pmd(slot)
        {
            self.split_pmd(mm, cx, slot);
        }
    }

    /// Maps the base pages of a huge page one by one, through the table kept for this (`__split_huge_pmd_locked`).
    pub(crate) fn split_pmd(&mut self, mm: &mut Mm, cx: &mut Cx, slot: PmdSlot) {
        let huge = self.split_pmd_unflushed(mm, cx, slot);
        // Counted in base pages whatever they were (`flush_pmd_tlb_range`).
        primitive::flush_tlb_range(cx, Self::HUGE_PAGES);
        if mm.variant().thp_splits_at_once && !huge.is_zero_page() {
            mm.split_with_pmd(cx, huge.pfn());
        }
    }

    /// Splits a PMD entry without a flush of the TLB, and returns the old entry.
    pub(crate) fn split_pmd_unflushed(&mut self, mm: &mut Mm, cx: &mut Cx, slot: PmdSlot) -> Pte {
        let Pmd::Huge(huge) = self.tables.pmd(slot) else { unreachable!("only a huge page is split") };
        cx.count(Event::ThpSplitPmd, 1);
        let table = self.tables.withdraw(slot);
        for (n, pte) in (0..).zip(self.tables.ptes_mut(table)) {
            *pte = huge.base_part(n);
        }
        primitive::fill_ptes(cx, u64::from(Order::HUGE.frames()));
        self.tables.link_pte_table(cx, slot, table);
        // One that is on its way is mapped by nobody, and by base entries when it is there.
        if !huge.is_zero_page() && !huge.is_migration() {
            mm.map_huge_by_base(huge.pfn());
        }
        huge
    }

    /// Shares the huge page at `slot` of the parent with a child (`copy_huge_pmd`).
    pub(crate) fn share_huge(
        &mut self,
        child: &mut Self,
        mm: &mut Mm,
        cx: &mut Cx,
        slot: PmdSlot,
        at: Vpn,
    ) -> Result<(), NoMemory> {
        let Pmd::Huge(huge) = self.tables.pmd(slot) else { unreachable!("the caller looked") };
        let to = child.tables.make_pmd_slot(mm, cx, at)?;
        let deposit = child.tables.alloc_pte_table(mm, cx)?;
        let shared = huge.write_protected();
        if huge.is_zero_page() {
            mm.get_huge_zero(cx, child).expect("the parent has it");
        } else {
            mm.map_huge_again(cx, huge.pfn());
            child.rss += u64::from(Order::HUGE.frames());
            self.tables.set_pmd(cx, slot, shared);
        }
        child.tables.deposit(to, deposit);
        child.tables.set_pmd(cx, to, shared);
        Ok(())
    }
}
