//! Linux: hpage_collapse_scan_pmd() and hpage_collapse_find_target_node() in mm/khugepaged.c (v6.1), khugepaged_scan_pmd(),
//! khugepaged_scan_abort() and khugepaged_find_target_node() in mm/huge_memory.c (v4.1).
//! Differs: without zone reclaim, the distance of nodes ends no scan.

use memory::{
    cx::Cx,
    frame::FrameFlag,
    primitive,
    tally::{Place, Test},
};
use rules::variant::CollapseTarget;
use units::NodeId;

use super::HUGE_PAGES;
use crate::{
    Mm,
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::{Pmd, TableId},
        vma::PageRange,
    },
};

/// The result of looking at one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The range should be collapsed, on this node.
    Suitable(NodeId),
    Unsuitable,
}

/// The pages of one range, as far as they were looked at.
#[derive(Debug, Default)]
struct Survey {
    none: u32,
    /// Pages whose frames were looked at.
    present: u32,
    /// Pages that have passed all tests.
    passed: u32,
    shared: u32,
    swapped: u32,
    /// The survey is for a scan, not for the second check before the collapse.
    is_scan: bool,
    is_writable: bool,
    referenced: u32,
    /// Pages by node, in the order of appearance.
    nodes: Vec<(NodeId, u32)>,
}

impl Survey {
    /// Looks at one entry; the test that fails if the range cannot be collapsed (`hpage_collapse_scan_pmd`).
    fn look(&mut self, mm: &Mm, pte: Pte) -> Result<(), Test> {
        let (settings, rules) = (&mm.khugepaged.settings, mm.memory.variant());
        if pte.swap_slot().is_some() {
            self.swapped += 1;
            if !rules.khugepaged_swaps_in {
                return Err(Test::KhugepagedNoSwap);
            }
            return or(Test::KhugepagedSwap, self.swapped <= settings.max_ptes_swap);
        }
        if !pte.is_present() || pte.is_zero_page() {
            self.none += 1;
            return or(Test::KhugepagedNone, self.none <= settings.max_ptes_none && pte.is_none_or_zero());
        }
        let pfn = pte.pfn();
        self.present += 1;
        self.is_writable |= pte.is_writable();
        if mm.frame_mappings(pfn) > 1 {
            self.shared += 1;
            if !rules.khugepaged_shared {
                return Err(Test::KhugepagedUnshared);
            }
            or(Test::KhugepagedShared, self.shared <= settings.max_ptes_shared)?;
        }
        let node = mm.memory.node_of(pfn);
        or(Test::KhugepagedAbort, !self.is_left_alone(mm, node))?;
        self.count_node(node);
        let head = mm.folio_head(pfn);
        self.referenced += u32::from(pte.is_accessed() || mm.memory.frames.has(head, FrameFlag::Referenced));
        // A folio in a batch, or a pinned one, has a reference that no mapping explains.
        or(Test::KhugepagedLru, mm.memory.frames.has(head, FrameFlag::OnLru))?;
        or(Test::KhugepagedLocked, !mm.memory.frames.has(head, FrameFlag::Locked))?;
        or(Test::KhugepagedPinned, !mm.is_pinned(head))?;
        self.passed += 1;
        Ok(())
    }

    /// Counts the tests of a range: each that one of its entries was tested by.
    #[cold]
    fn count(&self, mm: &Mm, cx: &mut Cx, failed: Option<Test>) {
        let rules = mm.memory.variant();
        let swap = if rules.khugepaged_swaps_in { Test::KhugepagedSwap } else { Test::KhugepagedNoSwap };
        let shared = if rules.khugepaged_shared { Test::KhugepagedShared } else { Test::KhugepagedUnshared };
        for (test, entries) in [(swap, self.swapped), (Test::KhugepagedNone, self.none)] {
            if entries > 0 || failed == Some(test) {
                cx.test(test, Place::Machine, failed != Some(test));
            }
        }
        let abort = rules.khugepaged_checks_nodes.then_some(Test::KhugepagedAbort);
        let of_page = [Test::KhugepagedLru, Test::KhugepagedLocked, Test::KhugepagedPinned];
        let chain = || std::iter::once(shared).chain(abort).chain(of_page);
        let is_in_chain = chain().any(|test| failed == Some(test));
        for test in chain().filter(|_| self.passed > 0 || is_in_chain) {
            cx.test(test, Place::Machine, failed != Some(test));
            if failed == Some(test) && self.passed == 0 {
                return;
            }
        }
    }

    /// Whether half of the pages are on a node that has no huge page, so that a collapse would fail (`khugepaged_scan_abort`
    /// of the series).
    fn is_left_alone(&self, mm: &Mm, node: NodeId) -> bool {
        let half = |(known, count): &(NodeId, u32)| *known == node && u64::from(*count) == HUGE_PAGES / 2;
        self.is_scan && mm.leaves_node_alone(node) && self.nodes.iter().any(half)
    }

    fn count_node(&mut self, node: NodeId) {
        match self.nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, count)) => *count += 1,
            None => self.nodes.push((node, 1)),
        }
    }

    /// The result after the last entry (`hpage_collapse_find_target_node`). `last`: the node that was chosen before.
    fn verdict(&self, cx: &mut Cx, by: CollapseTarget, last: Option<NodeId>) -> Found {
        // Pages should only be read from swap for a range that is worth it.
        let is_cold = self.swapped > 0 && u64::from(self.referenced) < HUGE_PAGES / 2;
        let is_used = self.referenced > 0 && !is_cold;
        let mut asks = |test, passes| if self.is_scan { cx.test(test, Place::Machine, passes) } else { passes };
        if !asks(Test::KhugepagedWritable, self.is_writable) || !asks(Test::KhugepagedReferenced, is_used) {
            return Found::Unsuitable;
        }
        let most = self.nodes.iter().map(|(_, count)| *count).max();
        let equal = || self.nodes.iter().filter(|(_, count)| Some(*count) == most).map(|(node, _)| *node);
        let first = equal().min();
        let target = match by {
            CollapseTarget::FirstPage => self.nodes.first().map(|(node, _)| *node),
            CollapseTarget::MostInTurn if first <= last => equal().filter(|node| Some(*node) > last).min().or(first),
            CollapseTarget::MostInTurn | CollapseTarget::Most => first,
        };
        target.map_or(Found::Unsuitable, Found::Suitable)
    }
}

/// A test that fails, as an error.
fn or(test: Test, passes: bool) -> Result<(), Test> {
    if passes { Ok(()) } else { Err(test) }
}

impl Mm {
    /// 2: decides whether this range should be collapsed.
    pub(super) fn survey(&mut self, cx: &mut Cx, space: &AddressSpace, range: PageRange) -> Found {
        let pmd = space.tables.pmd_of(range.start);
        cx.test(Test::KhugepagedPmd, Place::Machine, matches!(pmd, Pmd::Table(_)));
        let Pmd::Table(table) = pmd else { return Found::Unsuitable };
        let found = self.survey_table(cx, space, table, true);
        if let Found::Suitable(node) = found {
            self.khugepaged.last_target = Some(node);
        }
        found
    }

    /// Looks at the pages of a page table; `is_scan`: not the second check before the collapse.
    pub(super) fn survey_table(&self, cx: &mut Cx, space: &AddressSpace, table: TableId, is_scan: bool) -> Found {
        let mut survey = Survey { is_scan, ..Survey::default() };
        let mut ptes = space.tables.ptes(table).iter().zip(1..);
        let ended = ptes.find_map(|(pte, n)| survey.look(self, *pte).err().map(|test| (n, test)));
        primitive::scan_ptes(cx, ended.map_or(HUGE_PAGES, |(n, _)| n));
        primitive::scan_mapped_frames(cx, survey.present.into());
        if is_scan && cx.counts_tests() {
            survey.count(self, cx, ended.map(|(_, test)| test));
        }
        if ended.is_some() {
            return Found::Unsuitable;
        }
        survey.verdict(cx, self.memory.variant().khugepaged_target, self.khugepaged.last_target)
    }
}
