//! Linux: hpage_collapse_scan_pmd() and hpage_collapse_find_target_node() in mm/khugepaged.c (v6.1), khugepaged_scan_pmd(),
//! khugepaged_scan_abort() and khugepaged_find_target_node() in mm/huge_memory.c (v4.1).
//! Differs: without zone reclaim, the distance of nodes ends no scan.

use memory::{cx::Cx, frame::FrameFlag, primitive};
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
    /// Looks at one entry; false if the range cannot be collapsed (`hpage_collapse_scan_pmd`).
    fn look(&mut self, mm: &Mm, pte: Pte) -> bool {
        let settings = &mm.khugepaged.settings;
        if pte.swap_slot().is_some() {
            self.swapped += 1;
            return mm.memory.variant().khugepaged_swaps_in && self.swapped <= settings.max_ptes_swap;
        }
        if !pte.is_present() || pte.is_zero_page() {
            self.none += 1;
            return self.none <= settings.max_ptes_none && pte.is_none_or_zero();
        }
        let pfn = pte.pfn();
        self.present += 1;
        self.is_writable |= pte.is_writable();
        if mm.frame_mappings(pfn) > 1 {
            self.shared += 1;
            if !mm.memory.variant().khugepaged_shared || self.shared > settings.max_ptes_shared {
                return false;
            }
        }
        let node = mm.memory.node_of(pfn);
        if self.is_left_alone(mm, node) {
            return false;
        }
        self.count_node(node);
        let head = mm.folio_head(pfn);
        self.referenced += u32::from(pte.is_accessed() || mm.memory.frames.has(head, FrameFlag::Referenced));
        // A folio in a batch, or a pinned one, has a reference that no mapping explains.
        mm.memory.frames.has(head, FrameFlag::OnLru)
            && !mm.memory.frames.has(head, FrameFlag::Locked)
            && !mm.is_pinned(head)
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
    fn verdict(&self, by: CollapseTarget, last: Option<NodeId>) -> Found {
        // Pages should only be read from swap for a range that is worth it.
        let is_cold = self.swapped > 0 && u64::from(self.referenced) < HUGE_PAGES / 2;
        if !self.is_writable || self.referenced == 0 || is_cold {
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

impl Mm {
    /// 2: decides whether this range should be collapsed.
    pub(super) fn survey(&mut self, cx: &mut Cx, space: &AddressSpace, range: PageRange) -> Found {
        let Pmd::Table(table) = space.tables.pmd_of(range.start) else { return Found::Unsuitable };
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
        let ended = ptes.find_map(|(pte, n)| (!survey.look(self, *pte)).then_some(n));
        primitive::scan_ptes(cx, ended.unwrap_or(HUGE_PAGES));
        primitive::scan_mapped_frames(cx, survey.present.into());
        if ended.is_some() {
            return Found::Unsuitable;
        }
        survey.verdict(self.memory.variant().khugepaged_target, self.khugepaged.last_target)
    }
}
