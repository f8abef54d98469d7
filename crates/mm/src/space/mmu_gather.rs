//! Linux: mm/mmu_gather.c, release_pages() in mm/swap.c (v6.1).
//! Differs: batches are one list with marks at their borders; a flush frees a run of folios at a time, after which the
//! LRU lock is released; the TLB is flushed before page tables are unlinked, for the tables too.
//!
//! Folios that lost their last mapping wait here until the TLB is flushed, and are freed a batch at a time. Until then
//! they keep their state, without mappings; the frames that hold the batches are isolated.

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
/// Folios that fit into one further batch: a frame of pointers behind a header.
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
    /// Folios that there is room for.
    room: usize,
    /// Frames that hold the further batches.
    batches: Vec<Pfn>,
    /// A process ends (`fullmm`).
    everything: bool,
    /// Translations of pages that were unmapped since the last flush of the TLB.
    stale: Option<Stale>,
    /// The state of a flush: the TLB was flushed, and folios are being freed.
    flush: Option<Flush>,
}

/// Translations that TLBs may still hold: any in this range.
#[derive(Clone, Copy, Debug)]
struct Stale {
    start: Vpn,
    end: Vpn,
    /// Lowest level of the entries that were cleared.
    level: Level,
}

/// The progress of a flush.
#[derive(Clone, Copy, Debug)]
struct Flush {
    /// The batch that is being freed: the folios from `start` to `end`.
    start: usize,
    end: usize,
    /// Huge pages of the batch from this index on are still to be freed, in order.
    huge_from: usize,
    /// Base pages of the batch below this index are still to be freed, the last first, so that the first one freed last
    /// is reused next.
    base_below: usize,
}

impl Flush {
    fn of_batch(start: usize, end: usize) -> Self {
        Self { start, end, huge_from: start, base_below: end }
    }

    /// Whether no folio of the batch was freed yet.
    fn is_fresh(&self) -> bool {
        (self.huge_from, self.base_below) == (self.start, self.end)
    }

    /// The next huge page of the batch: huge pages are freed first (`release_pages`).
    fn next_huge(&mut self, folios: &[Unmapped]) -> Option<Unmapped> {
        let ahead = &folios[self.huge_from..self.end];
        let found = ahead.iter().position(|folio| folio.order > Order::BASE);
        self.huge_from = found.map_or(self.end, |at| self.huge_from + at + 1);
        found.map(|at| ahead[at])
    }

    /// Takes the next base pages of the batch, at most `most`; returns their number.
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

    /// Whether the folio at this place of the gather is still to be freed.
    fn is_ahead(&self, place: usize, order: Order) -> bool {
        place >= self.end
            || if order > Order::BASE {
                place >= self.huge_from
            } else {
                (self.start..self.base_below).contains(&place)
            }
    }
}

/// Whether there is room for more folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    Left,
    /// There is room after a flush only.
    None,
}

impl Default for MmuGather {
    fn default() -> Self {
        Self { folios: Vec::new(), room: BUNDLE, batches: Vec::new(), everything: false, stale: None, flush: None }
    }
}

impl MmuGather {
    /// A gather for the end of a process.
    pub(crate) fn of_everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Notes that entries of `level` in this range were cleared: TLBs may still hold them.
    #[inline]
    pub(crate) fn note_unmapped(&mut self, range: PageRange, level: Level) {
        let PageRange { start, end } = range;
        let stale = self.stale.get_or_insert(Stale { start, end, level });
        *stale = Stale { start: stale.start.min(start), end: stale.end.max(end), level: stale.level.min(level) };
    }

    /// Notes that the tables which cover nothing outside `gap` will be freed: the flush begins at their start.
    pub(crate) fn note_tables(&mut self, gap: PageRange) {
        if let Some(stale) = &mut self.stale {
            let tables = [Level::Pmd, Level::Pud, Level::Pgd].map(|level| level.entry_range(stale.start));
            stale.start =
                tables.iter().filter(|table| gap.covers(**table)).map(|table| table.start).fold(stale.start, Vpn::min);
        }
    }

    /// Takes a folio without mappings (`tlb_remove_page`).
    #[inline]
    pub(crate) fn take(&mut self, mm: &mut Mm, cx: &mut Cx, folio: Unmapped) -> Room {
        debug_assert!(self.flush.is_none(), "a flush ends before the next folio comes");
        self.folios.push(folio);
        self.room -= 1;
        if self.room == 0 { self.next_batch(mm, cx) } else { Room::Left }
    }

    /// Adds a batch, unless there are enough or memory is out.
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
                // One batch more; a gather that needs two batches is likely to need all.
                let more = if self.batches.len() > 1 { BATCHES_MAX + 1 - self.batches.len() } else { 1 };
                self.folios.reserve(more * BATCH);
                Room::Left
            }
            None => Room::None,
        }
    }

    /// Flushes the TLB, and begins to free the folios (`tlb_flush_mmu`).
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

    /// Whether there are folios to free before anything else is done.
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
                // This CPU's new folios go to their lists first (`free_pages_and_swap_cache`).
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

    /// Frees the batches' own frames at the end of the operation (`tlb_finish_mmu`).
    pub(crate) fn free_batches(&mut self, mm: &mut Mm, cx: &mut Cx) {
        assert!(self.folios.is_empty(), "flushed before it ends");
        for frame in self.batches.drain(..) {
            mm.memory.free(cx, frame, Order::BASE);
        }
    }

    /// Flushes the TLB, and frees all folios at once.
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
