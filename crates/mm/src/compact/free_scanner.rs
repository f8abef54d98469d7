//! Linux: isolate_freepages() and isolate_freepages_block() in mm/compaction.c, __isolate_free_page() in mm/page_alloc.c
//! (v4.1 to v6.1).
//! Differs: a step ends where the kernel releases the lock, every 32 frames.
//!
//! The free scanner: isolates free frames, from the upper part of the zone down.

use memory::{buddy::Block, cx::Cx, event::Event, frame::Seen, pageblock::MigrateType, primitive, step::RUN};
use rules::variant::CompactHugePages;
use units::{Order, Pfn};

use crate::{
    Mm,
    compact::control::{CompactControl, block_end},
    migrate::MigrateMode,
};

/// Stride at which async compaction samples frames of a pageblock, at first.
// isolate_freepages, mm/compaction.c (v5.1 and later): COMPACT_CLUSTER_MAX.
const STRIDE_MAX: u32 = 32;
/// Pageblocks that are passed in one step at most.
const BLOCKS_PER_STEP: u32 = 32;

/// A search for free frames, over several steps.
#[derive(Clone, Debug)]
pub(crate) struct FreeScan(Stage);

#[derive(Clone, Debug)]
enum Stage {
    /// Search the free lists.
    Fast,
    /// Scan the pageblock of the block that the search found.
    Around(BlockScan),
    /// Choose the next pageblock down.
    NextBlock { start: Pfn, from: Pfn, stride: u32 },
    /// Scan a pageblock.
    Block { start: Pfn, scan: BlockScan, stride: u32 },
}

/// A scan of one pageblock.
#[derive(Clone, Debug)]
pub(super) struct BlockScan {
    /// The next frame to scan.
    at: Pfn,
    end: Pfn,
    stride: u32,
    isolated: u64,
}

impl FreeScan {
    pub(super) fn new() -> Self {
        Self(Stage::Fast)
    }
}

impl CompactControl {
    /// Takes a step; returns true if the search is over (`isolate_freepages`).
    pub(super) fn find_free(&mut self, mm: &mut Mm, cx: &mut Cx, scan: &mut FreeScan) -> bool {
        if self.should_abort(mm, cx) {
            self.leave(&scan.0);
            return true;
        }
        match &mut scan.0 {
            Stage::Fast => {
                let fast = mm.memory.variant().compact_lists_for_targets;
                let found = if fast { self.fast_isolate_freepages(mm, cx) } else { None };
                let around = found.filter(|_| self.targets.len() < self.nr_sources && !self.is_direct_async());
                scan.0 = match around {
                    Some(pfn) => Stage::Around(self.block_around(mm, pfn)),
                    None if self.targets.is_empty() => self.first_block(mm),
                    None => return true,
                };
                false
            }
            Stage::Around(block) => {
                if !self.isolate_block(mm, cx, block) {
                    return false;
                }
                if block.isolated == 0 && !mm.memory.variant().compact_marks_searched {
                    // Who searched the lists alone makes the linear search begin further down, too.
                    let start = Pfn(block.end.0 - 1).align_down(mm.memory.frames.blocks.order());
                    self.note_searched(mm, start, block);
                }
                if self.targets.len() < self.nr_sources {
                    // It is full, or nearly so.
                    mm.memory.frames.blocks.set_skip(Pfn(block.end.0 - 1), true);
                }
                if !self.targets.is_empty() {
                    return true;
                }
                scan.0 = self.first_block(mm);
                false
            }
            Stage::NextBlock { start, from, stride } => {
                let (start, from, stride) = (*start, *from, *stride);
                self.next_block(mm, cx, scan, (start, from, stride))
            }
            Stage::Block { start, scan: block, stride } => {
                if !self.isolate_block(mm, cx, block) {
                    return false;
                }
                let (start, stride, block) = (*start, *stride, block.clone());
                self.after_block(mm, scan, start, &block, stride)
            }
        }
    }

    /// Sets the place at which the search goes on if it is left in its middle.
    fn leave(&mut self, stage: &Stage) {
        match stage {
            Stage::NextBlock { from, .. } => self.free_pfn = *from,
            Stage::Block { scan, .. } => self.free_pfn = scan.at,
            Stage::Fast | Stage::Around(_) => {}
        }
    }

    /// A scan of the pageblock of a frame, from the first frame that is in the zone.
    fn block_around(&self, mm: &Mm, pfn: Pfn) -> BlockScan {
        let (order, zone) = (mm.memory.frames.blocks.order(), mm.memory.zone(self.zone));
        let at = pfn.align_down(order).max(zone.start);
        BlockScan { at, end: block_end(pfn, order).min(zone.end), stride: 1, isolated: 0 }
    }

    /// The stage at which the linear search goes on.
    fn first_block(&self, mm: &Mm) -> Stage {
        let sparse = self.mode == MigrateMode::Async && mm.memory.variant().compact_samples;
        let stride = if sparse { STRIDE_MAX } else { 1 };
        Stage::NextBlock {
            start: self.free_pfn.align_down(mm.memory.frames.blocks.order()),
            from: self.free_pfn,
            stride,
        }
    }

    /// Chooses the next pageblock down that frames can be taken from; returns true if there is none above the migrate scanner.
    fn next_block(&mut self, mm: &Mm, cx: &mut Cx, scan: &mut FreeScan, at: (Pfn, Pfn, u32)) -> bool {
        let (mut start, mut from, stride) = at;
        let order = mm.memory.frames.blocks.order();
        let low = block_end(self.migrate_pfn, order);
        // Bound: this number of pageblocks.
        for _ in 0..BLOCKS_PER_STEP {
            if start < low {
                self.free_pfn = from;
                return true;
            }
            primitive::scan_block(cx, mm.memory.variant().compact_zone_frames);
            let is_here = mm.memory.frames.blocks.zone(start) == Some(self.zone);
            if is_here && self.is_target(mm, start) && (self.ignores_skip() || !mm.memory.frames.blocks.skip(start)) {
                let end = block_end(start, order).min(mm.memory.zone(self.zone).end);
                scan.0 = Stage::Block { start, scan: BlockScan { at: from, end, stride, isolated: 0 }, stride };
                return false;
            }
            start = Pfn(start.0 - order.frames());
            from = start;
        }
        scan.0 = Stage::NextBlock { start, from, stride };
        false
    }

    /// Whether pages may move to a pageblock (`suitable_migration_target`). Not to one that is already a free block.
    fn is_target(&self, mm: &Mm, start: Pfn) -> bool {
        let order = mm.memory.frames.blocks.order();
        if let Seen::Free(found) = mm.memory.frames.seen(start)
            && found >= order
        {
            return false;
        }
        let list = mm.memory.frames.blocks.migrate_type(start);
        self.ignores_block_type() || matches!(list, MigrateType::Movable | MigrateType::Cma)
    }

    /// Goes on after a pageblock was searched, wholly or in part; returns true if the search is over.
    fn after_block(&mut self, mm: &mut Mm, scan: &mut FreeScan, start: Pfn, block: &BlockScan, stride: u32) -> bool {
        let size = mm.memory.frames.blocks.order().frames();
        // Before 5.1 a pageblock from which free pages were isolated gets no skip bit.
        if block.isolated == 0 || mm.memory.variant().compact_marks_searched {
            self.note_searched(mm, start, block);
        }
        let below = Pfn(start.0.saturating_sub(size));
        if self.targets.len() >= self.nr_sources {
            self.free_pfn = if block.at >= block.end { below } else { block.at };
            return true;
        }
        if block.at < block.end {
            // The zone cannot spare more frames.
            self.free_pfn = block.at;
            return true;
        }
        let stride = if block.isolated > 0 { 1 } else { STRIDE_MAX.min(stride << 1) };
        let stride = if mm.memory.variant().compact_samples { stride } else { 1 };
        scan.0 = Stage::NextBlock { start: below, from: below, stride };
        false
    }

    /// Sets the skip mark of a pageblock that was searched to its end (`update_pageblock_skip`).
    fn note_searched(&self, mm: &mut Mm, start: Pfn, block: &BlockScan) {
        if block.at == block.end {
            mm.memory.frames.blocks.set_skip(start, true);
            let cached = &mut mm.zone_compacts[self.zone].cached_free;
            *cached = start.min(*cached);
        }
    }

    /// Isolates free frames of a pageblock until there are enough, the pageblock ends, the zone can spare no more, or the lock
    /// has been held long enough; returns false in the last case (`isolate_freepages_block`).
    fn isolate_block(&mut self, mm: &mut Mm, cx: &mut Cx, scan: &mut BlockScan) -> bool {
        let (mut is_locked, mut scanned) = (false, 0);
        let before = scan.isolated;
        let mut is_over = true;
        let by_frame = mm.memory.variant().compact_huge_pages == CompactHugePages::ByFrame;
        let counts_passed = mm.memory.variant().compact_counts_passed;
        // Bound: each turn passes a frame.
        while scan.at < scan.end {
            if is_locked && u64::from(scan.at.0) % RUN == 0 {
                is_over = false;
                break;
            }
            scanned += 1;
            let order = match mm.memory.frames.seen(scan.at) {
                Seen::Free(order) => order,
                Seen::Compound(order) => {
                    let rest = u64::from(order.frames().min(scan.end.0 - scan.at.0) - 1);
                    if by_frame {
                        scanned += rest;
                    } else if counts_passed {
                        // One look passes all frames of the block.
                        self.free_scanned += rest;
                    }
                    scan.at = scan.at.plus(order.frames() - 1 + scan.stride);
                    continue;
                }
                Seen::Lru | Seen::Other => {
                    scan.at = scan.at.plus(scan.stride);
                    continue;
                }
            };
            if !is_locked {
                if !self.hold_zone(mm, cx) {
                    break;
                }
                is_locked = true;
            }
            let block = Block { pfn: scan.at, order };
            if !self.take_free(mm, cx, block) {
                if mm.memory.variant().compact_ends_at_mark {
                    break;
                }
                scan.at = scan.at.plus(1);
                continue;
            }
            let frames = order.frames();
            if mm.memory.variant().compact_counts_frames {
                scanned += u64::from(frames - 1);
            }
            scan.isolated += u64::from(frames);
            if self.targets.len() >= self.nr_sources {
                scan.at = scan.at.plus(frames);
                break;
            }
            scan.at = scan.at.plus(frames - 1 + scan.stride);
        }
        primitive::scan_frames(cx, scanned);
        if is_locked {
            mm.memory.zone_mut(self.zone).unlock(cx);
        }
        self.free_scanned += scanned;
        cx.count(Event::CompactIsolated, scan.isolated - before);
        scan.at = scan.at.min(scan.end);
        is_over
    }

    /// Takes the zone's lock, and notes contention for it; returns false if the run gives way.
    pub(super) fn hold_zone(&mut self, mm: &mut Mm, cx: &mut Cx) -> bool {
        let is_contended = mm.memory.zone(self.zone).is_contended(cx);
        if self.gives_way(mm, is_contended) {
            return false;
        }
        mm.memory.zone_mut(self.zone).lock(cx);
        true
    }

    /// Isolates a free block to move pages to, as single frames of which the highest is used first; returns false if the zone
    /// cannot spare it (`__isolate_free_page`, `split_map_pages`).
    pub(super) fn take_free(&mut self, mm: &mut Mm, cx: &mut Cx, block: Block) -> bool {
        if !mm.memory.isolate_free_block(cx, self.zone, block) {
            return false;
        }
        for pfn in (0..block.order.frames()).map(|n| block.pfn.plus(n)) {
            mm.memory.isolate(cx, pfn, Order::BASE);
            self.targets.push(pfn);
        }
        true
    }
}
