//! Touching, unmapping, forking and ending once more, in the same bounded steps as the real ones: each is measured in
//! pages, which the prices of the streams make the only thing that takes time.

use mm::{Mobility, ZoneKind, event::Event, fault::FaultDone};

use crate::{
    model::Wish,
    processes::{Entry, HUGE, Page, Store, World},
};

/// Base pages that an unmapping looks at between two looks at the clock.
const RUN: u64 = 32;
/// Pages that fit into the gather itself, and into each further frame.
const BUNDLE: usize = 8;
const BATCH: usize = 510;
const BATCHES_MAX: usize = 19;

/// Loads or stores, one to each page.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// What it stores, if it does not load.
    pub(crate) store: Option<Store>,
    /// A huge page that was cleared and not mapped yet, and the table to keep with it.
    pub(crate) holds: Option<(u32, u32)>,
}

/// What a fault came to.
enum Fault {
    Done(FaultDone),
    /// Others may run before it goes on.
    Paused,
}

impl World {
    /// Touches pages until `most` of them are touched; nothing if there is more to do.
    pub(crate) fn touch(&mut self, cpu: usize, id: u32, touch: &mut Touch, most: u64) -> Option<FaultDone> {
        let mut touched = 0;
        while touch.next < touch.end {
            let number = touch.next / HUGE;
            let is_huge = matches!(self.process(id).entries.get(&number), Some(Entry::Huge { .. }));
            let may = match self.process(id).page(touch.next) {
                _ if touch.holds.is_some() => false,
                Page::Frame { writable, .. } => writable || touch.store.is_none(),
                Page::Zero => touch.store.is_none(),
                Page::Nothing => false,
            };
            if may {
                let end = if is_huge { touch.end.min((number + 1) * HUGE) } else { touch.next + 1 };
                touched += end - touch.next;
                for page in touch.next..end {
                    if let Some(store) = touch.store {
                        self.process(id).store(page, store);
                    }
                }
                touch.next = end;
                if touched >= most && touch.next < touch.end {
                    return None;
                }
                continue;
            }
            match self.fault(cpu, id, touch) {
                Fault::Done(FaultDone::Handled) => {}
                Fault::Done(failed) => return Some(failed),
                Fault::Paused => return None,
            }
        }
        Some(FaultDone::Handled)
    }

    /// What the fault of a touch holds goes back.
    pub(crate) fn abort_touch(&mut self, cpu: usize, touch: &mut Touch) {
        if let Some((frame, table)) = touch.holds.take() {
            self.memory.free(cpu, table);
            self.memory.free(cpu, frame);
        }
    }

    fn fault(&mut self, cpu: usize, id: u32, touch: &mut Touch) -> Fault {
        let page = touch.next;
        if let Some((frame, table)) = touch.holds.take() {
            return self.map_huge(cpu, id, page, (frame, table));
        }
        if self.process(id).vma_of(page).is_none() {
            return Fault::Done(FaultDone::BadAddress);
        }
        self.memory.count(Event::Pgfault, 1);
        if !self.upper_tables(cpu, id, page) {
            return Fault::Done(FaultDone::OutOfMemory);
        }
        match self.process(id).entries.get(&(page / HUGE)).cloned() {
            None if self.may_be_huge(id, page) => {
                self.tie(id, page);
                if touch.store.is_none() {
                    return self.zero_fault(cpu, id, page);
                }
                let node = self.memory.node_of(cpu);
                if let Some(frame) = self.memory.alloc(cpu, Wish { order: 9, only: true, ..Wish::user(node) }) {
                    if let Some(table) = self.table(cpu) {
                        touch.holds = Some((frame, table));
                        return Fault::Paused;
                    }
                    self.memory.free(cpu, frame);
                    return Fault::Done(FaultDone::OutOfMemory);
                }
                self.memory.count(Event::ThpFaultFallback, 1);
            }
            Some(Entry::Huge { frame, zero, .. }) => {
                // It is there, so this is a store to what may only be read.
                if !zero && self.folios[&frame].mappings() == 1 {
                    self.process(id).entries.insert(page / HUGE, Entry::Huge { frame, zero, writable: true });
                    return Fault::Done(FaultDone::Handled);
                }
                self.split_huge_entry(id, page);
            }
            _ => {}
        }
        Fault::Done(self.base_fault(cpu, id, page, touch.store.is_some()))
    }

    /// A load from a huge page that is not there.
    fn zero_fault(&mut self, cpu: usize, id: u32, page: u64) -> Fault {
        let Some(table) = self.table(cpu) else { return Fault::Done(FaultDone::OutOfMemory) };
        if self.huge_zero.is_none() {
            let node = self.memory.node_of(cpu);
            let wish = Wish { order: 9, mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..Wish::user(node) };
            self.huge_zero = self.memory.alloc(cpu, wish);
            self.memory.count(Event::ThpZeroPageAlloc, u64::from(self.huge_zero.is_some()));
        }
        let Some(frame) = self.huge_zero else {
            self.memory.free(cpu, table);
            self.memory.count(Event::ThpFaultFallback, 1);
            return Fault::Done(self.base_fault(cpu, id, page, false));
        };
        let process = self.process(id);
        process.uses_huge_zero = true;
        process.keep(page, table);
        process.entries.insert(page / HUGE, Entry::Huge { frame, zero: true, writable: false });
        Fault::Done(FaultDone::Handled)
    }

    /// A huge page that was cleared is mapped, unless somebody else has mapped something or unmapped all.
    fn map_huge(&mut self, cpu: usize, id: u32, page: u64, (frame, table): (u32, u32)) -> Fault {
        let start = page / HUGE * HUGE;
        let process = self.process(id);
        let covered = process.vma_of(page).map(|which| process.vmas[which]);
        let is_covered = covered.is_some_and(|vma| vma.start <= start && start + HUGE <= vma.end);
        if !is_covered || process.entries.contains_key(&(page / HUGE)) {
            self.memory.free(cpu, table);
            self.memory.free(cpu, frame);
            return Fault::Done(FaultDone::Handled);
        }
        process.keep(page, table);
        process.entries.insert(page / HUGE, Entry::Huge { frame, zero: false, writable: true });
        process.rss += HUGE;
        self.map_new(cpu, frame);
        self.memory.count(Event::ThpFaultAlloc, 1);
        Fault::Done(FaultDone::Handled)
    }

    fn base_fault(&mut self, cpu: usize, id: u32, page: u64, write: bool) -> FaultDone {
        if !self.base_table(cpu, id, page) {
            return FaultDone::OutOfMemory;
        }
        let was = self.process(id).page(page);
        if !write {
            if was == Page::Nothing {
                *self.process(id).page_mut(page) = Page::Zero;
            }
            return FaultDone::Handled;
        }
        if let Page::Frame { pfn, writable } = was {
            let alone = self.folios[&self.head_of(pfn)].mappings() == 1;
            if writable || alone {
                *self.process(id).page_mut(page) = Page::Frame { pfn, writable: true };
                return FaultDone::Handled;
            }
        }
        self.tie(id, page);
        let node = self.memory.node_of(cpu);
        let Some(frame) = self.memory.alloc(cpu, Wish::user(node)) else { return FaultDone::OutOfMemory };
        self.map_new(cpu, frame);
        *self.process(id).page_mut(page) = Page::Frame { pfn: frame, writable: true };
        if let Page::Frame { pfn, .. } = was {
            // Others map it too, or it would not have been copied.
            assert!(!self.unmap_base(pfn));
        } else {
            self.process(id).rss += 1;
        }
        FaultDone::Handled
    }
}

// ---- Unmapping.

/// What was unmapped and waits for the TLB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    /// First frames, and whether they are huge.
    folios: Vec<(u32, bool)>,
    /// Frames that hold the list of them.
    batches: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Unmap {
    range: (u64, u64),
    /// The first page that was not looked at; nothing before the mappings are taken out.
    from: Option<u64>,
    pub(crate) gather: Gather,
}

impl Gather {
    /// The frames that it holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = u32> + '_ {
        self.folios.iter().map(|(head, _)| *head).chain(self.batches.iter().copied())
    }
}

impl Unmap {
    pub(crate) fn new(range: (u64, u64)) -> Self {
        Self { range, from: None, gather: Gather::default() }
    }
}

impl World {
    /// Looks at pages until it has looked at `most`; true at the end.
    pub(crate) fn unmap(&mut self, cpu: usize, id: u32, unmap: &mut Unmap, most: u64) -> bool {
        let mut from = match unmap.from {
            Some(from) => from,
            None => match self.detach(id, unmap.range) {
                // A process that ends has tables to free even if it maps nothing.
                _ if unmap.range == Self::EVERYTHING => 0,
                Some(range) => {
                    unmap.range = range;
                    range.0
                }
                None => return true,
            },
        };
        let end = unmap.range.1;
        let mut looked = 0;
        let mut numbers: Vec<u64> =
            self.process(id).entries.range(from / HUGE..end.div_ceil(HUGE)).map(|e| *e.0).collect();
        numbers.reverse();
        while let Some(number) = numbers.pop() {
            from = from.max(number * HUGE);
            let run_end = end.min((number + 1) * HUGE);
            if let Some(Entry::Huge { .. }) = self.process(id).entries.get(&number) {
                self.unmap_huge_entry(cpu, id, number, &mut unmap.gather);
                looked += 1;
                from = run_end;
            } else {
                let run_end = run_end.min(from + RUN);
                for page in from..run_end {
                    self.unmap_page(cpu, id, page, &mut unmap.gather);
                }
                looked += run_end - from;
                from = run_end;
                if from < end.min((number + 1) * HUGE) {
                    numbers.push(number);
                }
            }
            if looked >= most {
                unmap.from = Some(from);
                return false;
            }
        }
        self.finish(cpu, &mut unmap.gather);
        self.free_tables(cpu, id, unmap.range);
        true
    }

    pub(crate) fn exit(&mut self, cpu: usize, id: u32) {
        assert!(self.unmap(cpu, id, &mut Unmap::new(Self::EVERYTHING), u64::MAX));
        self.end(cpu, id);
    }

    fn unmap_page(&mut self, cpu: usize, id: u32, page: u64, gather: &mut Gather) {
        let was = std::mem::replace(self.process(id).page_mut(page), Page::Nothing);
        if let Page::Frame { pfn, .. } = was {
            self.process(id).rss -= 1;
            let head = self.head_of(pfn);
            let is_huge = self.folios[&head].by_base.len() > 1;
            if self.unmap_base(pfn) {
                self.gather(cpu, gather, (head, is_huge));
            }
        }
    }

    fn unmap_huge_entry(&mut self, cpu: usize, id: u32, number: u64, gather: &mut Gather) {
        let Some(Entry::Huge { frame, zero, .. }) = self.process(id).entries.remove(&number) else {
            panic!("{number} is not huge");
        };
        let table = self.process(id).pmd_table(number * HUGE).kept.remove(0);
        self.memory.free(cpu, table);
        if !zero {
            self.process(id).rss -= HUGE;
            if self.unmap_huge(frame) {
                self.gather(cpu, gather, (frame, true));
            }
        }
    }

    fn gather(&mut self, cpu: usize, gather: &mut Gather, folio: (u32, bool)) {
        gather.folios.push(folio);
        if gather.folios.len() == BUNDLE + gather.batches.len() * BATCH {
            let more = if gather.batches.len() < BATCHES_MAX { self.table(cpu) } else { None };
            match more {
                Some(frame) => gather.batches.push(frame),
                None => self.flush(cpu, gather),
            }
        }
    }

    /// Batch by batch: huge pages first, then base pages from the last.
    fn flush(&mut self, cpu: usize, gather: &mut Gather) {
        let folios = std::mem::take(&mut gather.folios);
        let (first, others) = folios.split_at(BUNDLE.min(folios.len()));
        for batch in [first].into_iter().chain(others.chunks(BATCH)) {
            let (huge, base): (Vec<(u32, bool)>, Vec<_>) = batch.iter().copied().partition(|(_, is_huge)| *is_huge);
            for (head, _) in huge.into_iter().chain(base.into_iter().rev()) {
                self.free_folio(cpu, head);
            }
        }
    }

    pub(crate) fn finish(&mut self, cpu: usize, gather: &mut Gather) {
        self.flush(cpu, gather);
        for frame in std::mem::take(&mut gather.batches) {
            self.memory.free(cpu, frame);
        }
    }
}

// ---- Forking.

/// A child that has got the parent's pages below `from`.
#[derive(Clone, Debug)]
pub(crate) struct Fork {
    pub(crate) child: u32,
    from: u64,
}

impl Fork {
    pub(crate) fn new(child: u32) -> Self {
        Self { child, from: 0 }
    }
}

impl World {
    /// Copies until it has looked at `most` pages; says at the end whether there is a child.
    pub(crate) fn fork(&mut self, cpu: usize, parent: u32, fork: &mut Fork, most: u64) -> Option<bool> {
        let child = fork.child;
        if !self.processes.contains_key(&child) {
            if !self.start(cpu, child, Some(parent)) {
                return Some(false);
            }
            self.inherit(parent, child);
        }
        let mut looked = 0;
        let mut vmas = self.process(parent).vmas.clone();
        vmas.retain(|vma| vma.tie.is_some() && vma.end > fork.from);
        for vma in vmas {
            let from = vma.start.max(fork.from);
            let numbers = self.process(parent).entries.range(from / HUGE..vma.end.div_ceil(HUGE));
            let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
            for number in numbers {
                let part = (from.max(number * HUGE), vma.end.min((number + 1) * HUGE));
                let Some(cost) = self.share(cpu, (parent, child), part) else {
                    self.exit(cpu, child);
                    return Some(false);
                };
                looked += cost;
                fork.from = part.1;
                if looked >= most {
                    return None;
                }
            }
        }
        Some(true)
    }

    /// Shares the pages of one PMD entry; says how many entries it looked at, or nothing when memory is out.
    fn share(&mut self, cpu: usize, (parent, child): (u32, u32), part: (u64, u64)) -> Option<u64> {
        if !self.upper_tables(cpu, child, part.0) {
            return None;
        }
        let number = part.0 / HUGE;
        if let Some(Entry::Huge { frame, zero, .. }) = self.process(parent).entries.get(&number).cloned() {
            let table = self.table(cpu)?;
            let shared = Entry::Huge { frame, zero, writable: false };
            self.process(parent).entries.insert(number, shared.clone());
            let heir = self.process(child);
            heir.keep(part.0, table);
            heir.entries.insert(number, shared);
            if zero {
                heir.uses_huge_zero = true;
            } else {
                heir.rss += HUGE;
                self.folios.get_mut(&frame).unwrap().by_huge += 1;
            }
            return Some(0);
        }
        if !self.base_table(cpu, child, part.0) {
            return None;
        }
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
        Some(part.1 - part.0)
    }
}
