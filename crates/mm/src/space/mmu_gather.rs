//! Linux: mm/mmu_gather.c, release_pages() in mm/swap.c (v6.1).
//! Differs: batches are one list with marks at their borders; a flush frees a run of folios at a time, after which the
//! lock of their LRU list is let go; the TLB is flushed before page tables are unlinked, for them too.
//!
//! Frames that lost their last mapping wait here until the TLB is flushed, and go back a batch at a time. Until then they
//! are what they were, with no mapping left; the frames that hold the batches are isolated.

use memory::{
    cx::Cx,
    frame::{Held, Holdings},
    primitive,
    step::RUN,
};
use rules::gfp::AllocRequest;
use units::{Order, Pfn, Vpn};

use crate::{
    Mm,
    folio::lru::Run,
    space::{page_table::Level, rmap::Unmapped, vma::PageRange},
};

/// Folios that fit into the gather itself.
// MMU_GATHER_BUNDLE, include/asm-generic/tlb.h (v6.1).
const BUNDLE: usize = 8;
/// Folios that fit into one further batch: a frame of pointers behind its header.
// MAX_GATHER_BATCH, include/asm-generic/tlb.h (v6.1).
const BATCH: usize = (4096 - 16) / 8;
/// Most further batches.
// MAX_GATHER_BATCH_COUNT, include/asm-generic/tlb.h (v6.1).
const BATCHES_MAX: usize = 10_000 / BATCH;

const _: () = assert!(BATCHES_MAX as u64 <= RUN, "the batches' own frames go back in one step");

/// Folios to free after the next flush of the TLB.
#[derive(Clone, Debug)]
pub(crate) struct MmuGather {
    folios: Vec<Unmapped>,
    /// How many more there is room for.
    room: usize,
    /// Frames that hold the further batches.
    batches: Vec<Pfn>,
    /// A process ends (`fullmm`).
    everything: bool,
    /// Pages that were unmapped since the last flush.
    stale: Option<Stale>,
    /// The TLB is flushed, and folios are being freed.
    flush: Option<Flush>,
}

/// Translations that TLBs may still hold: all of a range.
#[derive(Clone, Copy, Debug)]
struct Stale {
    start: Vpn,
    end: Vpn,
    /// The smallest of them.
    level: Level,
}

/// How far a flush has come.
#[derive(Clone, Copy, Debug)]
struct Flush {
    /// The batch that is being freed: these folios.
    start: usize,
    end: usize,
    /// The run's huge pages begin here, in the order in which they come.
    huge_from: usize,
    /// The run's base pages lie below this, from the last, so that the first is the next to be used.
    base_below: usize,
}

impl Flush {
    fn of_batch(start: usize, end: usize) -> Self {
        Self { start, end, huge_from: start, base_below: end }
    }

    /// Is nothing of the batch freed yet?
    fn is_fresh(&self) -> bool {
        (self.huge_from, self.base_below) == (self.start, self.end)
    }

    /// The next huge page of the batch: they come first (`release_pages`).
    fn next_huge(&mut self, folios: &[Unmapped]) -> Option<Unmapped> {
        let ahead = &folios[self.huge_from..self.end];
        let found = ahead.iter().position(|folio| folio.order > Order::BASE);
        self.huge_from = found.map_or(self.end, |at| self.huge_from + at + 1);
        found.map(|at| ahead[at])
    }

    /// The next base pages of the batch, up to so many; says how many there were.
    fn take_base(&mut self, folios: &[Unmapped], most: u64, run: &mut Run) -> u64 {
        let mut taken = 0;
        while taken < most && self.base_below > self.start {
            self.base_below -= 1;
            let folio = folios[self.base_below];
            if folio.order == Order::BASE {
                run.push(folio.head);
                taken += 1;
            }
        }
        taken
    }

    /// Is the folio at this place of the gather still to be freed?
    fn is_ahead(&self, place: usize, order: Order) -> bool {
        place >= self.end
            || if order > Order::BASE {
                place >= self.huge_from
            } else {
                (self.start..self.base_below).contains(&place)
            }
    }
}

/// Is there room for more?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    Left,
    /// Only after a flush.
    None,
}

impl Default for MmuGather {
    fn default() -> Self {
        Self { folios: Vec::new(), room: BUNDLE, batches: Vec::new(), everything: false, stale: None, flush: None }
    }
}

impl MmuGather {
    /// For the end of a process.
    pub(crate) fn of_everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Mappings were taken away, entries of tables of `level`: the TLB may still hold them.
    #[inline]
    pub(crate) fn note_unmapped(&mut self, range: PageRange, level: Level) {
        let PageRange { start, end } = range;
        let stale = self.stale.get_or_insert(Stale { start, end, level });
        *stale = Stale { start: stale.start.min(start), end: stale.end.max(end), level: stale.level.min(level) };
    }

    /// The tables that cover nothing outside `gap` will go: what is flushed begins where they do.
    pub(crate) fn note_tables(&mut self, gap: PageRange) {
        if let Some(stale) = &mut self.stale {
            let tables = [Level::Pmd, Level::Pud, Level::Pgd].map(|level| level.entry_range(stale.start));
            stale.start =
                tables.iter().filter(|table| gap.covers(**table)).map(|table| table.start).fold(stale.start, Vpn::min);
        }
    }

    /// Takes a folio that nobody maps (`tlb_remove_page`).
    #[inline]
    pub(crate) fn take(&mut self, mm: &mut Mm, cx: &mut Cx, folio: Unmapped) -> Room {
        debug_assert!(self.flush.is_none(), "a flush ends before the next folio comes");
        self.folios.push(folio);
        self.room -= 1;
        if self.room == 0 { self.next_batch(mm, cx) } else { Room::Left }
    }

    /// One more batch, unless there are enough or memory is out.
    #[inline(never)]
    fn next_batch(&mut self, mm: &mut Mm, cx: &mut Cx) -> Room {
        let may_grow = self.batches.len() < BATCHES_MAX;
        // A request that does not reclaim asks for nothing.
        let request = AllocRequest::gfp_nowait(mm.memory.node_of_cpu(cx.cpu()));
        match may_grow.then(|| mm.memory.alloc(cx, &request).ok()).flatten() {
            Some(frame) => {
                mm.memory.isolate(cx, frame, Order::BASE);
                self.batches.push(frame);
                self.room = BATCH;
                // A bundle, and the frames that it could not hold; who needs more is likely to need many.
                let more = if self.batches.len() > 1 { BATCHES_MAX + 1 - self.batches.len() } else { 1 };
                self.folios.reserve(more * BATCH);
                Room::Left
            }
            None => Room::None,
        }
    }

    /// Flushes the TLB and begins to free the folios (`tlb_flush_mmu`).
    pub(crate) fn begin_flush(&mut self, cx: &mut Cx) {
        match self.stale.take() {
            Some(_) if self.everything => primitive::flush_tlb(cx),
            Some(Stale { start, end, level }) => {
                primitive::flush_tlb_range(cx, (end.0 - start.0).div_ceil(level.entry_pages()));
            }
            None => {}
        }
        if !self.folios.is_empty() {
            self.flush = Some(Flush::of_batch(0, BUNDLE.min(self.folios.len())));
        }
    }

    /// Are there folios to free before anything else?
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// Frees the next run of folios.
    pub(crate) fn release_run(&mut self, mm: &mut Mm, cx: &mut Cx) {
        let mut left = RUN;
        let mut run = Run::EMPTY;
        // Bound: each turn frees a folio or begins a batch.
        while left > 0
            && let Some(flush) = &mut self.flush
        {
            if flush.is_fresh() {
                // This CPU's new folios go to their lists before (`free_pages_and_swap_cache`).
                mm.lru_add_drain(cx);
            }
            if let Some(folio) = flush.next_huge(&self.folios) {
                left -= 1;
                mm.put_folio(cx, folio);
                continue;
            }
            left -= flush.take_base(&self.folios, left, &mut run);
            if left == 0 {
                break;
            }
            mm.put_run(cx, &mut run);
            if flush.end < self.folios.len() {
                *flush = Flush::of_batch(flush.end, (flush.end + BATCH).min(self.folios.len()));
            } else {
                self.folios.clear();
                self.room = BUNDLE + self.batches.len() * BATCH;
                self.flush = None;
            }
        }
        mm.put_run(cx, &mut run);
    }

    /// Gives back the batches' own frames at the end of the operation (`tlb_finish_mmu`).
    pub(crate) fn free_batches(&mut self, mm: &mut Mm, cx: &mut Cx) {
        assert!(self.folios.is_empty(), "flushed before it ends");
        for frame in self.batches.drain(..) {
            mm.memory.free(cx, frame, Order::BASE);
        }
    }

    /// All of it at once.
    pub(crate) fn finish(&mut self, mm: &mut Mm, cx: &mut Cx) {
        if self.flush.is_none() {
            self.begin_flush(cx);
        }
        // Bound: the folios.
        while self.is_flushing() {
            self.release_run(mm, cx);
        }
        self.free_batches(mm, cx);
    }

    pub(crate) fn holdings(&self) -> Holdings {
        let waits = |place, order| self.flush.is_none_or(|flush| flush.is_ahead(place, order));
        let folios = self.folios.iter().enumerate().filter(|(place, folio)| waits(*place, folio.order));
        Holdings {
            isolated: self.batches.iter().map(|pfn| Held { pfn: *pfn, order: Order::BASE }).collect(),
            gathered: folios.map(|(_, folio)| Held { pfn: folio.head, order: folio.order }).collect(),
            ..Holdings::default()
        }
    }
}
