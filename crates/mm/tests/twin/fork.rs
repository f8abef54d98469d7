//! Forking once more, in the same bounded steps.

use memory::slab::Cache;

use crate::{
    processes::{Entry, HUGE, Page, World},
    unmap::Unmap,
};

/// Base pages that are copied between two looks at the clock.
const RUN: u64 = 32;

/// A child that has got the parent's pages below `from`.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    pub(crate) child: u32,
    from: u64,
    /// The mapping that is being copied ends here.
    end: Option<u64>,
    /// Memory is out, and the child goes again.
    pub(crate) undo: Option<Unmap>,
}

impl Fork {
    pub(crate) fn new(child: u32) -> Self {
        Self { child, from: 0, end: None, undo: None }
    }
}

impl World {
    /// Copies until it has looked at `most` pages, at least one run; says at the end whether there is a child.
    pub(crate) fn fork(&mut self, cpu: usize, parent: u32, fork: &mut Fork, most: u64) -> Option<bool> {
        let child = fork.child;
        if !self.processes.contains_key(&child) {
            if !self.start(cpu, child, Some(parent)) {
                return Some(false);
            }
            self.process(child).contents = self.process(parent).contents.clone();
        }
        if let Some(undo) = &mut fork.undo {
            self.unmap(cpu, child, undo, most)?;
            self.end(cpu, child);
            return Some(false);
        }
        let mut looked = 0;
        loop {
            let vmas = &self.process(parent).vmas;
            if fork.end.is_none() && vmas.iter().all(|vma| vma.end <= fork.from) {
                return Some(true);
            }
            let Some(cost) = self.copy_some(cpu, parent, fork) else {
                fork.undo = Some(Unmap::new(Self::EVERYTHING));
                return None;
            };
            looked += cost;
            if self.is_over(looked, most) {
                return None;
            }
        }
    }

    /// A mapping, or a run of its pages; says how many entries it looked at, or nothing when memory is out.
    fn copy_some(&mut self, cpu: usize, parent: u32, fork: &mut Fork) -> Option<u64> {
        let child = fork.child;
        let Some(end) = fork.end else {
            let vma = *self.process(parent).vmas.iter().find(|vma| vma.end > fork.from).unwrap();
            let object = self.new_object(cpu, Cache::VmArea)?;
            self.inherit(child, vma, object);
            (fork.from, fork.end) = if vma.tie.is_some() { (vma.start, Some(vma.end)) } else { (vma.end, None) };
            return Some(0);
        };
        let past_end = if fork.from < end { end.div_ceil(HUGE) } else { fork.from / HUGE };
        let mut entries = self.process(parent).entries.range(fork.from / HUGE..past_end);
        let entry = entries.next().map(|(number, entry)| match entry {
            Entry::Huge { frame, zero, .. } => (*number, Some((*frame, *zero))),
            Entry::Table { .. } => (*number, None),
        });
        let Some((number, huge)) = entry else {
            (fork.from, fork.end) = (end, None);
            return Some(0);
        };
        let start = fork.from.max(number * HUGE);
        let part = (start, end.min((number + 1) * HUGE));
        if !self.upper_tables(cpu, child, start) {
            return None;
        }
        if let Some(huge) = huge {
            let table = self.table(cpu)?;
            self.share_huge((parent, child), number, huge, table);
            fork.from = part.1;
            return Some(0);
        }
        let part = (part.0, part.1.min(part.0 + RUN));
        if !self.base_table(cpu, child, part.0) {
            return None;
        }
        self.share_pages((parent, child), part);
        fork.from = part.1;
        Some(part.1 - part.0)
    }

    fn share_huge(&mut self, (parent, child): (u32, u32), number: u64, (frame, zero): (u32, bool), table: u32) {
        let shared = Entry::Huge { frame, zero, writable: false };
        self.process(parent).entries.insert(number, shared.clone());
        let heir = self.process(child);
        heir.keep(number * HUGE, table);
        heir.entries.insert(number, shared);
        if zero {
            heir.uses_huge_zero = true;
        } else {
            heir.rss += HUGE;
            self.folios.get_mut(&frame).unwrap().by_huge += 1;
        }
    }

    fn share_pages(&mut self, (parent, child): (u32, u32), part: (u64, u64)) {
        for page in part.0..part.1 {
            let shared = match self.process(parent).page(page) {
                Page::Frame { pfn, .. } => {
                    self.map_again(pfn);
                    self.process(child).rss += 1;
                    Page::Frame { pfn, writable: false }
                }
                other => other,
            };
            *self.process(parent).page_mut(page) = shared;
            *self.process(child).page_mut(page) = shared;
        }
    }

    pub(crate) fn abort_fork(&mut self, cpu: usize, fork: &mut Fork) {
        if self.processes.contains_key(&fork.child) {
            if let Some(undo) = &mut fork.undo {
                self.abort_unmap(cpu, undo);
            }
            self.exit(cpu, fork.child);
        }
    }
}
