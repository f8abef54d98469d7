//! The copy of a huge page on a store once more, as kernels before 5.8 make it.

use memory::event::Event;

use crate::{
    model::Wish,
    processes::{Entry, HUGE, Page, World},
};

/// Base pages that a step allocates or frees.
const RUN: usize = 32;

/// A copy under way.
#[derive(Clone, Debug)]
pub(crate) struct HugeCopy {
    /// The entry that is copied.
    was: Entry,
    /// The huge page that it becomes, if there is one.
    huge: Option<u32>,
    /// Else the base pages.
    base: Vec<u32>,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Begin,
    MapHuge,
    AllocBase,
    MapBase,
    /// Because memory is out, or because somebody else was faster.
    GiveBack {
        out_of_memory: bool,
    },
}

/// The result of a step.
pub(crate) enum Copied {
    NotYet,
    Done,
    /// There are base entries now, of which one is to be copied.
    Split,
}

impl HugeCopy {
    pub(crate) fn new(was: Entry) -> Self {
        Self { was, huge: None, base: Vec::new(), then: Then::Begin }
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = u32> + '_ {
        self.huge.into_iter().chain(self.base.iter().copied())
    }
}

impl World {
    pub(crate) fn copy_huge(&mut self, cpu: usize, id: u32, page: u64, copy: &mut HugeCopy) -> Copied {
        let is_same = self.process(id).entries.get(&(page / HUGE)) == Some(&copy.was);
        match copy.then {
            Then::Begin => return self.begin_copy(cpu, id, page, copy),
            Then::MapHuge => {
                let frame = copy.huge.take().unwrap();
                if is_same {
                    self.map_new(cpu, frame);
                    let entry = Entry::Huge { frame, zero: false, writable: true };
                    self.process(id).entries.insert(page / HUGE, entry);
                    self.put_copied(cpu, id, &copy.was);
                } else {
                    self.memory.free(cpu, frame);
                }
                return Copied::Done;
            }
            Then::AllocBase => {
                for _ in 0..RUN {
                    let node = self.memory.node_of(cpu);
                    let Some(frame) = self.memory.alloc(cpu, Wish::user(node)) else {
                        copy.then = Then::GiveBack { out_of_memory: true };
                        return Copied::NotYet;
                    };
                    copy.base.push(frame);
                }
                if copy.base.len() as u64 == HUGE {
                    copy.then = Then::MapBase;
                }
            }
            Then::MapBase if is_same => {
                let table = self.process(id).pmd_table(page).kept.remove(0);
                let mut pages = Vec::new();
                for pfn in std::mem::take(&mut copy.base) {
                    self.map_new(cpu, pfn);
                    pages.push(Page::Frame { pfn, writable: true });
                }
                self.process(id).entries.insert(page / HUGE, Entry::Table { frame: table, pages });
                self.put_copied(cpu, id, &copy.was);
                return Copied::Done;
            }
            Then::MapBase => copy.then = Then::GiveBack { out_of_memory: false },
            Then::GiveBack { out_of_memory } => {
                for frame in copy.base.split_off(copy.base.len().saturating_sub(RUN)).into_iter().rev() {
                    self.memory.free(cpu, frame);
                }
                if copy.base.is_empty() && out_of_memory && is_same {
                    self.split_huge_entry(id, page);
                    return Copied::Split;
                }
                if copy.base.is_empty() {
                    return Copied::Done;
                }
            }
        }
        Copied::NotYet
    }

    fn begin_copy(&mut self, cpu: usize, id: u32, page: u64, copy: &mut HugeCopy) -> Copied {
        copy.huge = if self.may_be_huge(id, page) { self.alloc_huge(cpu, id, page) } else { None };
        if copy.huge.is_some() {
            self.memory.count(Event::ThpFaultAlloc, 1);
            copy.then = Then::MapHuge;
            return Copied::NotYet;
        }
        self.memory.count(Event::ThpFaultFallback, 1);
        if let Entry::Huge { zero: true, .. } = copy.was {
            self.split_huge_entry(id, page);
            return Copied::Split;
        }
        copy.then = Then::AllocBase;
        Copied::NotYet
    }

    fn put_copied(&mut self, cpu: usize, id: u32, was: &Entry) {
        match *was {
            Entry::Huge { zero: true, .. } => self.process(id).rss += HUGE,
            Entry::Huge { frame, .. } => {
                if self.unmap_huge(frame) {
                    self.put_folio(cpu, frame);
                }
            }
            Entry::Table { .. } => panic!("only a huge page is copied"),
        }
    }
}
