//! Touching memory and its faults once more, in the same bounded steps: time is measured in pages touched.

use memory::event::Event;
use mm::{fault::FaultDone, space::vma::HugeAdvice};
use rules::variant::{HugeCow, ThpNodes};

use crate::{
    huge_copy::{Copied, HugeCopy},
    model::Wish,
    processes::{Entry, HUGE, Page, Store, World},
};

/// Loads or stores, one to each page.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// The store, if the task does not load.
    pub(crate) store: Option<Store>,
    /// A fault under way.
    pub(crate) fault: Option<UnderWay>,
}

/// A fault between two steps.
#[derive(Clone, Debug)]
pub(crate) enum UnderWay {
    /// A huge page was cleared and is not mapped yet; and there is the table to keep with it.
    Cleared { frame: u32, table: u32 },
    /// Nothing is held: memory was out, which is to be said once more.
    Again,
    /// A huge page is being copied.
    Copy(HugeCopy),
}

impl Touch {
    /// The frames that it holds.
    pub(crate) fn held(&self) -> Vec<u32> {
        match &self.fault {
            None | Some(UnderWay::Again) => Vec::new(),
            Some(UnderWay::Cleared { frame, table }) => vec![*frame, *table],
            Some(UnderWay::Copy(copy)) => copy.held().collect(),
        }
    }
}

/// The result of a fault.
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
                _ if touch.fault.is_some() => false,
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
                if self.is_over(touched, most) && touch.next < touch.end {
                    return None;
                }
                continue;
            }
            let is_quick = touch.fault.is_none() && self.is_quick(id, touch);
            match self.fault(cpu, id, touch) {
                // The page is touched in the same turn.
                Fault::Done(FaultDone::Handled) if is_quick => {}
                Fault::Done(FaultDone::OutOfMemory) if is_quick => {
                    touch.fault = Some(UnderWay::Again);
                    if self.is_over(touched, most) {
                        return None;
                    }
                }
                Fault::Done(FaultDone::Handled) => {
                    if self.is_over(touched, most) {
                        return None;
                    }
                }
                Fault::Done(failed) => return Some(failed),
                Fault::Paused => return None,
            }
        }
        Some(FaultDone::Handled)
    }

    /// Is this a first store to a base page beside others?
    fn is_quick(&mut self, id: u32, touch: &Touch) -> bool {
        let process = self.process(id);
        let is_tied = process.vma_of(touch.next).is_some_and(|vma| process.vmas[vma].tie.is_some());
        let has_table = matches!(process.entries.get(&(touch.next / HUGE)), Some(Entry::Table { .. }));
        touch.store.is_some() && is_tied && has_table && process.page(touch.next) == Page::Nothing
    }

    /// Gives back all that the fault of a touch holds.
    pub(crate) fn abort_touch(&mut self, cpu: usize, touch: &mut Touch) {
        match touch.fault.take() {
            None | Some(UnderWay::Again) => {}
            Some(UnderWay::Cleared { frame, table }) => {
                self.memory.free(cpu, table);
                self.memory.free(cpu, frame);
            }
            Some(UnderWay::Copy(copy)) => {
                for frame in copy.held() {
                    self.memory.free(cpu, frame);
                }
            }
        }
    }

    fn fault(&mut self, cpu: usize, id: u32, touch: &mut Touch) -> Fault {
        let page = touch.next;
        match touch.fault.take() {
            None => {}
            Some(UnderWay::Again) => return Fault::Done(self.base_fault(cpu, id, page, touch.store.is_some())),
            Some(UnderWay::Cleared { frame, table }) => return self.map_huge(cpu, id, page, (frame, table)),
            Some(UnderWay::Copy(copy)) => return self.go_on_copying(cpu, id, touch, copy),
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
                if let Some(frame) = self.alloc_huge(cpu, id, page) {
                    if let Some(table) = self.table(cpu) {
                        touch.fault = Some(UnderWay::Cleared { frame, table });
                        return Fault::Paused;
                    }
                    self.memory.free(cpu, frame);
                    return Fault::Done(FaultDone::OutOfMemory);
                }
                self.memory.count(Event::ThpFaultFallback, 1);
            }
            Some(Entry::Huge { frame, zero, .. }) => {
                // It is there, so this is a store to what may only be read.
                if !zero && self.may_reuse(cpu, frame) {
                    self.process(id).entries.insert(page / HUGE, Entry::Huge { frame, zero, writable: true });
                    return Fault::Done(FaultDone::Handled);
                }
                if self.memory.rules.huge_cow == HugeCow::Copy {
                    self.tie(id, page);
                    let copy = HugeCopy::new(Entry::Huge { frame, zero, writable: false });
                    return self.go_on_copying(cpu, id, touch, copy);
                }
                self.split_huge_entry(id, page);
            }
            _ => {}
        }
        Fault::Done(self.base_fault(cpu, id, page, touch.store.is_some()))
    }

    fn go_on_copying(&mut self, cpu: usize, id: u32, touch: &mut Touch, mut copy: HugeCopy) -> Fault {
        match self.copy_huge(cpu, id, touch.next, &mut copy) {
            Copied::NotYet => {
                touch.fault = Some(UnderWay::Copy(copy));
                Fault::Paused
            }
            Copied::Done => Fault::Done(FaultDone::Handled),
            Copied::Split => Fault::Done(self.base_fault(cpu, id, touch.next, true)),
        }
    }

    /// Tries to get a huge page. There is no reclaim here, so that a second try only differs in the nodes that it may take from.
    /// That is for mappings that would reclaim: with the default `defrag`, those with advice.
    pub(crate) fn alloc_huge(&mut self, cpu: usize, id: u32, page: u64) -> Option<u32> {
        let node = self.memory.node_of(cpu);
        let process = &self.processes[&id];
        let is_advised = process.vmas[process.vma_of(page).unwrap()].advice == HugeAdvice::HugePage;
        let wish = Wish { order: 9, wakes: false, reclaims: is_advised, ..Wish::user(node) };
        let tries: &[bool] = match self.memory.rules.thp_nodes {
            ThpNodes::Any => &[false],
            ThpNodes::LocalUnlessReclaims if is_advised => &[false],
            ThpNodes::LocalFirst | ThpNodes::LocalThenOnce if is_advised => &[true, false],
            ThpNodes::Local | ThpNodes::LocalUnlessReclaims | ThpNodes::LocalThenOnce | ThpNodes::LocalFirst => &[true],
            rule => unreachable!("no kernel of the twin has {rule:?}"),
        };
        tries.iter().find_map(|only| self.memory.alloc(cpu, Wish { only: *only, ..wish }))
    }

    /// A load from a huge page that is not there.
    fn zero_fault(&mut self, cpu: usize, id: u32, page: u64) -> Fault {
        let Some(table) = self.table(cpu) else { return Fault::Done(FaultDone::OutOfMemory) };
        if self.huge_zero.is_none() {
            let node = self.memory.node_of(cpu);
            let wish = Wish { order: 9, wakes: false, reclaims: false, ..Wish::kernel(node) };
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
            // A release that counts what it allocates, and not what it maps.
            self.memory.count(Event::ThpFaultAlloc, self.memory.rules.thp_fault_alloc_counts_losers.into());
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
            if !writable && self.may_reuse(cpu, pfn) {
                *self.process(id).page_mut(page) = Page::Frame { pfn, writable: true };
                self.memory.count(Event::Pgreuse, 1);
                return FaultDone::Handled;
            }
            if writable {
                return FaultDone::Handled;
            }
        }
        self.tie(id, page);
        let node = self.memory.node_of(cpu);
        let Some(frame) = self.memory.alloc(cpu, Wish::user(node)) else { return FaultDone::OutOfMemory };
        self.map_new(cpu, frame);
        *self.process(id).page_mut(page) = Page::Frame { pfn: frame, writable: true };
        if let Page::Frame { pfn, .. } = was {
            let head = self.head_of(pfn);
            if self.unmap_base(pfn) {
                self.put_folio(cpu, head);
            }
        } else {
            self.process(id).rss += 1;
        }
        FaultDone::Handled
    }
}
