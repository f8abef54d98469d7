//! Unmapping once more, in the same bounded steps: time is measured in pages looked at.

use std::collections::VecDeque;

use crate::{
    model::Wish,
    processes::{Entry, HUGE, Page, World},
};

/// Base pages, folios, tables or VMAs between two looks at the clock.
const RUN: usize = 32;
/// Pages that fit into the gather itself, and into each further frame.
const BUNDLE: usize = 8;
const BATCH: usize = 510;
const BATCHES_MAX: usize = 19;

/// Pages that were unmapped and wait for the TLB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    /// First frames, and whether they are huge.
    folios: Vec<(u32, bool)>,
    /// Frames that hold the list of them.
    batches: Vec<u32>,
    /// The rest of a flush; others wait until it is over.
    flush: Option<VecDeque<Release>>,
}

#[derive(Clone, Copy, Debug)]
enum Release {
    /// Before each batch of the gather.
    DrainLru,
    Put(u32),
}

/// An unmapping under way.
#[derive(Clone, Debug)]
pub(crate) struct Unmap {
    range: (u64, u64),
    phase: Phase,
    gather: Gather,
    /// Where the mappings lived, the lowest last.
    pub(crate) objects: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Detach,
    Zap(u64),
    FreeBatches,
    Tables,
    Objects,
}

impl Unmap {
    pub(crate) fn new(range: (u64, u64)) -> Self {
        Self { range, phase: Phase::Detach, gather: Gather::default(), objects: Vec::new() }
    }

    /// The frames that it holds.
    pub(crate) fn held(&self) -> Vec<u32> {
        let put = |release: &Release| match release {
            Release::Put(head) => Some(*head),
            Release::DrainLru => None,
        };
        let gather = &self.gather;
        let flushed = gather.flush.iter().flatten().filter_map(put);
        gather.folios.iter().map(|folio| folio.0).chain(flushed).chain(gather.batches.iter().copied()).collect()
    }
}

/// How far a step has come.
struct Clock {
    looked: u64,
    most: u64,
}

impl World {
    /// Goes on until it has looked at `most` pages, at least by one run; says at the end whether there was memory.
    pub(crate) fn unmap(&mut self, cpu: usize, id: u32, unmap: &mut Unmap, most: u64) -> Option<bool> {
        if let Phase::Detach = unmap.phase {
            match self.detach(cpu, id, unmap.range, &mut unmap.objects) {
                None => return Some(false),
                // A process that ends has tables to free even if it maps nothing.
                _ if unmap.range == Self::EVERYTHING => {}
                Some(None) => return Some(true),
                Some(Some(range)) => unmap.range = range,
            }
            self.drain_batch(cpu);
            unmap.phase = Phase::Zap(unmap.range.0);
        }
        let mut clock = Clock { looked: 0, most };
        while !self.run_of_unmap(cpu, id, unmap, &mut clock) {
            if self.is_over(clock.looked, clock.most) {
                return None;
            }
        }
        Some(true)
    }

    /// True at the end.
    fn run_of_unmap(&mut self, cpu: usize, id: u32, unmap: &mut Unmap, clock: &mut Clock) -> bool {
        if unmap.gather.flush.is_some() {
            self.release_run(cpu, &mut unmap.gather);
            return false;
        }
        match unmap.phase {
            Phase::Detach => panic!("left behind"),
            Phase::Zap(from) => {
                if let Some(from) = self.zap(cpu, id, unmap, from, clock) {
                    unmap.phase = Phase::Zap(from);
                } else {
                    unmap.gather.begin_flush();
                    unmap.phase = Phase::FreeBatches;
                }
            }
            Phase::FreeBatches => {
                self.free_batches(cpu, &mut unmap.gather);
                unmap.phase = Phase::Tables;
            }
            Phase::Tables => {
                if self.free_tables(cpu, id, unmap.range, RUN) {
                    unmap.phase = Phase::Objects;
                }
            }
            Phase::Objects => {
                for _ in 0..RUN {
                    if let Some(object) = unmap.objects.pop() {
                        self.free_object(cpu, object);
                    }
                }
                return unmap.objects.is_empty();
            }
        }
        false
    }

    /// Where to go on, or nothing at the end.
    fn zap(&mut self, cpu: usize, id: u32, unmap: &mut Unmap, from: u64, clock: &mut Clock) -> Option<u64> {
        let (mut from, end) = (from, unmap.range.1);
        while from < end {
            let mut entries = self.process(id).entries.range(from / HUGE..end.div_ceil(HUGE));
            let number = *entries.next()?.0;
            from = from.max(number * HUGE);
            let part_end = end.min((number + 1) * HUGE);
            if let Some(Entry::Huge { .. }) = self.process(id).entries.get(&number) {
                self.unmap_huge_entry(cpu, id, number, &mut unmap.gather);
                clock.looked += 1;
                from = part_end;
            } else {
                let run_end = part_end.min(from + RUN as u64);
                while from < run_end && unmap.gather.flush.is_none() {
                    self.unmap_page(cpu, id, from, &mut unmap.gather);
                    clock.looked += 1;
                    from += 1;
                }
            }
            if unmap.gather.flush.is_some() || self.is_over(clock.looked, clock.most) {
                return Some(from);
            }
        }
        None
    }

    pub(crate) fn exit(&mut self, cpu: usize, id: u32) {
        let mut unmap = Unmap::new(Self::EVERYTHING);
        while self.unmap(cpu, id, &mut unmap, u64::MAX).is_none() {}
        self.end(cpu, id);
    }

    pub(crate) fn abort_unmap(&mut self, cpu: usize, unmap: &mut Unmap) {
        if unmap.gather.flush.is_none() {
            unmap.gather.begin_flush();
        }
        while unmap.gather.flush.is_some() {
            self.release_run(cpu, &mut unmap.gather);
        }
        self.free_batches(cpu, &mut unmap.gather);
        while let Some(object) = unmap.objects.pop() {
            self.free_object(cpu, object);
        }
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
            let nowait = Wish { reclaims: false, ..Wish::kernel(self.memory.node_of(cpu)) };
            let may_grow = gather.batches.len() < BATCHES_MAX;
            let more = may_grow.then(|| self.memory.alloc(cpu, nowait)).flatten();
            match more {
                Some(frame) => gather.batches.push(frame),
                None => gather.begin_flush(),
            }
        }
    }

    fn release_run(&mut self, cpu: usize, gather: &mut Gather) {
        let mut put = 0;
        while put < RUN {
            match gather.flush.as_mut().unwrap().pop_front() {
                Some(Release::DrainLru) => self.drain_batch(cpu),
                Some(Release::Put(head)) => {
                    self.put_folio(cpu, head);
                    put += 1;
                }
                None => {
                    gather.flush = None;
                    return;
                }
            }
        }
    }

    fn free_batches(&mut self, cpu: usize, gather: &mut Gather) {
        for frame in std::mem::take(&mut gather.batches) {
            self.memory.free(cpu, frame);
        }
    }
}

impl Gather {
    /// Batch by batch: huge pages first, then base pages from the last.
    fn begin_flush(&mut self) {
        let folios = std::mem::take(&mut self.folios);
        let (first, others) = folios.split_at(BUNDLE.min(folios.len()));
        let mut releases = VecDeque::new();
        for batch in [first].into_iter().chain(others.chunks(BATCH)).filter(|batch| !batch.is_empty()) {
            let (huge, base): (Vec<(u32, bool)>, Vec<_>) = batch.iter().copied().partition(|(_, is_huge)| *is_huge);
            releases.push_back(Release::DrainLru);
            releases.extend(huge.into_iter().chain(base.into_iter().rev()).map(|(head, _)| Release::Put(head)));
        }
        self.flush = (!releases.is_empty()).then_some(releases);
    }
}
