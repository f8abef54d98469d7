//! Linux: none; the pages of a range, as user code meets them.
//!
//! Code that accesses memory at a rate asks for runs of equal pages, not for one page: a run within a table, or the summary of a
//! whole table. Both are computed when asked for, and kept until an entry of the table is written; hinting and hinting faults
//! update the summary themselves.

use units::Pfn;

use super::{ENTRIES, Level, PageTables, PmdSlot, TableId};
use crate::{Mm, folio::pte::Pte, space::vma::PageRange};

/// Most nodes of a machine whose tables have summaries; else tables are looked at run by run.
pub(crate) const NODES: usize = 8;

/// The summary of a table of base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Pages by position of their node; the zero page is not counted.
    pub(crate) by_node: [u16; NODES],
    /// Pages whose entries hint.
    hinting: u16,
    /// All pages have been accessed.
    is_used: bool,
    /// All pages are writable, and have been stored to.
    is_written: bool,
}

impl Summary {
    /// Whether user code can access all 512 pages without changing an entry.
    pub(crate) fn is_plain(&self, stores: bool) -> bool {
        let is_full = usize::from(self.by_node.iter().sum::<u16>()) == ENTRIES;
        is_full && self.hinting == 0 && self.leaves_no_trace(stores)
    }

    /// Whether an access leaves the entries unchanged.
    fn leaves_no_trace(&self, stores: bool) -> bool {
        self.is_used && (self.is_written || !stores)
    }

    /// All pages of the table as one run of `pages` pages, if they are equal.
    fn as_run(&self, pages: u64, stores: bool) -> Option<Run> {
        let node = self.by_node.iter().position(|of| usize::from(*of) == ENTRIES)?;
        match usize::from(self.hinting) {
            _ if !self.leaves_no_trace(stores) => None,
            0 => Some(Run::Ready { node: Some(node), pages }),
            ENTRIES => Some(Run::Hinting { node, pages }),
            _ => None,
        }
    }
}

/// The state in which user code meets a page, and the number of pages from there on in that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Memory of the node at this position, ready for access; none: the zero page.
    Ready {
        node: Option<usize>,
        pages: u64,
    },
    /// As `Ready`, but after a hinting fault.
    Hinting {
        node: usize,
        pages: u64,
    },
    Faults,
}

impl PageTables {
    /// The summary of a table; none if the machine has too many nodes.
    pub(crate) fn summary(&mut self, mm: &Mm, table: TableId) -> Option<Summary> {
        if mm.memory.nodes().count() > NODES {
            return None;
        }
        let table = &mut self.arena[table.0 as usize];
        Some(*table.summary.get_or_insert_with(|| summarise(mm, &table.entries)))
    }

    /// The run of equal pages at the beginning of `range`, which lies within one table.
    pub(crate) fn run(&self, mm: &Mm, table: TableId, range: PageRange, stores: bool) -> Run {
        let known = self.table(table).summary;
        if let Some(run) = known.and_then(|summary| summary.as_run(range.pages(), stores)) {
            return run;
        }
        let entries = &self.table(table).entries[Level::Pte.index(range.start)..];
        let mut nodes = Nodes::new(mm);
        let first = entries[0];
        if !first.is_present() || (stores && !first.is_writable()) {
            return Run::Faults;
        }
        let mut node_of = |pte: Pte| (!pte.is_zero_page()).then(|| nodes.of(pte.pfn()));
        let node = node_of(first);
        let is_same = |pte: &&Pte| {
            pte.is_present()
                && pte.is_hinting() == first.is_hinting()
                && (pte.is_writable() || !stores)
                && node_of(**pte) == node
        };
        let most = usize::try_from(range.pages()).expect("at most a table");
        let pages = entries.iter().take(most).take_while(is_same).count() as u64;
        match node {
            Some(node) if first.is_hinting() => Run::Hinting { node, pages },
            _ => Run::Ready { node, pages },
        }
    }

    /// Marks the entries of such pages as used, as the processor does when user code reads or stores.
    pub(crate) fn use_pages(&mut self, table: TableId, pages: PageRange, stores: bool) {
        let table = &mut self.arena[table.0 as usize];
        if table.summary.is_some_and(|summary| summary.leaves_no_trace(stores)) {
            return;
        }
        let mut changes = 0;
        for pte in &mut table.entries[places(pages)] {
            let used = pte.used(stores);
            changes |= used.raw() ^ pte.raw();
            *pte = used;
        }
        if changes != 0 {
            table.summary = None;
            self.changes += 1;
        }
    }

    /// Makes the entries of these pages hint, as far as they map memory (`change_pte_range`); returns the number of new hints.
    pub(crate) fn hint(&mut self, table: TableId, pages: PageRange) -> u64 {
        let table = &mut self.arena[table.0 as usize];
        let mut updated = 0;
        for pte in &mut table.entries[places(pages)] {
            if pte.is_accessible() && !pte.is_zero_page() {
                *pte = pte.hinting();
                updated += 1;
            }
        }
        if let Some(summary) = &mut table.summary {
            summary.hinting += updated;
        }
        self.changes += 1;
        updated.into()
    }

    /// Notes whether one fault clears the hints of all pages of a table (`change_pmd_protnuma`).
    pub(crate) fn hint_all_at_once(&mut self, table: TableId, at_once: bool) {
        self.arena[table.0 as usize].hints_at_once = at_once;
    }

    /// Whether one fault clears the hints of all pages of a table.
    pub(crate) fn hints_at_once(&self, table: TableId) -> bool {
        self.table(table).hints_at_once
    }

    /// Clears the hints of these pages of a table, all of which hinted, after a fault (`do_numa_page`).
    pub(crate) fn clear_hints(&mut self, table: TableId, pages: PageRange) {
        self.changes += 1;
        let table = &mut self.arena[table.0 as usize];
        for pte in &mut table.entries[places(pages)] {
            *pte = pte.without_hint();
        }
        if let Some(summary) = &mut table.summary {
            summary.hinting -= u16::try_from(pages.pages()).expect("at most a table");
        }
    }

    /// Sets or clears the hint of a huge page's entry (`change_huge_pmd`).
    pub(crate) fn hint_huge(&mut self, slot: PmdSlot, hints: bool) {
        self.changes += 1;
        let pte = &mut self.arena[slot.table.0 as usize].entries[slot.index];
        *pte = if hints { pte.hinting() } else { pte.without_hint() };
    }
}

fn places(pages: PageRange) -> std::ops::Range<usize> {
    let from = Level::Pte.index(pages.start);
    from..from + usize::try_from(pages.pages()).expect("at most a table")
}

fn summarise(mm: &Mm, entries: &[Pte; ENTRIES]) -> Summary {
    let mut summary = Summary { by_node: [0; NODES], hinting: 0, is_used: true, is_written: true };
    let mut nodes = Nodes::new(mm);
    for pte in entries.iter().filter(|pte| pte.is_present() && !pte.is_zero_page()) {
        summary.by_node[nodes.of(pte.pfn())] += 1;
        summary.hinting += u16::from(pte.is_hinting());
        summary.is_used &= pte.is_accessed();
        summary.is_written &= pte.is_writable() && pte.is_dirty();
    }
    summary
}

/// The nodes of frames; neighbouring frames are mostly asked for one after the other.
struct Nodes<'a> {
    mm: &'a Mm,
    /// The pageblock that was asked for last, and its node's position.
    last: Option<(u32, usize)>,
}

impl<'a> Nodes<'a> {
    fn new(mm: &'a Mm) -> Self {
        Self { mm, last: None }
    }

    #[inline]
    fn of(&mut self, pfn: Pfn) -> usize {
        let block = pfn.0 >> self.mm.memory.frames.blocks.order().0;
        match self.last {
            Some((last, node)) if last == block => node,
            _ => {
                let node = self.mm.memory.nodes().place(self.mm.memory.node_of(pfn));
                self.last = Some((block, node));
                node
            }
        }
    }
}
