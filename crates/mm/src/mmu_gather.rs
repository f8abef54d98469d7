//! Linux: mm/mmu_gather.c, release_pages() in mm/swap.c (v6.1).
//! Differs: batches are one list with marks at their borders.
//!
//! Frames that lost their last mapping wait here until the TLB is flushed, and go back a batch at a time.

use units::{Order, Pfn};

use crate::{Mm, cost::Cx, gfp::AllocRequest, primitive, rmap::Unmapped};

/// Folios that fit into the gather itself.
// MMU_GATHER_BUNDLE, include/asm-generic/tlb.h (v6.1).
const BUNDLE: usize = 8;
/// Folios that fit into one further batch: a frame of pointers behind its header.
// MAX_GATHER_BATCH, include/asm-generic/tlb.h (v6.1).
const BATCH: usize = (4096 - 16) / 8;
/// Most further batches.
// MAX_GATHER_BATCH_COUNT, include/asm-generic/tlb.h (v6.1).
const BATCHES_MAX: usize = 10_000 / BATCH;

/// Folios to free after the next flush of the TLB.
#[derive(Clone, Debug, Default)]
pub(crate) struct MmuGather {
    folios: Vec<Unmapped>,
    /// Frames that hold the further batches.
    batches: Vec<Pfn>,
    /// Was anything unmapped since the last flush?
    stale: bool,
}

impl MmuGather {
    /// A mapping was taken away: the TLB may still hold it.
    pub(crate) fn note_unmapped(&mut self) {
        self.stale = true;
    }

    /// Takes a folio that nobody maps (`tlb_remove_page`).
    #[inline]
    pub(crate) fn take(&mut self, mm: &mut Mm, cx: &mut Cx, folio: Unmapped) {
        self.folios.push(folio);
        if self.folios.len() >= BUNDLE + self.batches.len() * BATCH {
            self.next_batch(mm, cx);
        }
    }

    /// Flushes the TLB and frees the folios (`tlb_flush_mmu`).
    fn flush(&mut self, mm: &mut Mm, cx: &mut Cx) {
        if std::mem::take(&mut self.stale) {
            primitive::flush_tlb(cx);
        }
        let mut rest = self.folios.as_slice();
        let mut capacity = BUNDLE;
        // Bound: each turn frees a batch.
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(capacity.min(rest.len()));
            release(mm, cx, batch);
            (rest, capacity) = (later, BATCH);
        }
        self.folios.clear();
    }

    /// The same at the end of the operation; the batches' own frames go back too (`tlb_finish_mmu`).
    pub(crate) fn finish(&mut self, mm: &mut Mm, cx: &mut Cx) {
        self.flush(mm, cx);
        for frame in self.batches.drain(..) {
            mm.free(cx, frame, Order::BASE);
        }
    }

    /// One more batch, or a flush when there are enough or memory is out.
    fn next_batch(&mut self, mm: &mut Mm, cx: &mut Cx) {
        let may_grow = self.batches.len() < BATCHES_MAX;
        match may_grow.then(|| mm.alloc(cx, &AllocRequest::gfp_kernel(mm.node_of_cpu(cx.cpu())))).flatten() {
            Some(frame) => self.batches.push(frame),
            None => self.flush(mm, cx),
        }
    }
}

/// Frees a batch: huge pages as they come, then base pages from the last, so that the first is the next to be used. Before
/// that, this CPU's new folios go to their lists (`free_pages_and_swap_cache`).
fn release(mm: &mut Mm, cx: &mut Cx, batch: &[Unmapped]) {
    mm.lru_add_drain(cx);
    for folio in batch.iter().filter(|folio| folio.order > Order::BASE) {
        mm.put_folio(cx, *folio);
    }
    for folio in batch.iter().rev().filter(|folio| folio.order == Order::BASE) {
        mm.put_folio(cx, *folio);
    }
}
