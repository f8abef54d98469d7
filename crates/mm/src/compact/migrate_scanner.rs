//! Linux: isolate_migratepages() and isolate_migratepages_block() in mm/compaction.c (v4.1 to v6.1).
//! Differs: no movable pages of drivers; a step ends where the kernel releases the lock, every 32 frames.
//!
//! The migrate scanner: isolates pages from their LRU lists, from the lower part of the zone up.

use memory::{
    cx::Cx,
    event::Event,
    fact::{Fact, Throttle},
    frame::Seen,
    pageblock::MigrateType,
    primitive,
    step::{RUN, Wait},
};
use rules::variant::CompactHugePages;
use units::Pfn;

use crate::{
    Mm,
    compact::control::{CompactControl, Isolated, block_end},
    migrate::MigrateMode,
};

/// Pageblocks that are passed in one step at most.
// isolate_migratepages, mm/compaction.c (v6.1): cond_resched every COMPACT_CLUSTER_MAX pageblocks.
const BLOCKS_PER_STEP: u32 = 32;

/// A scan of one pageblock.
#[derive(Clone, Debug)]
pub(crate) struct MigrateScan {
    /// First frame of the scan.
    first: Pfn,
    /// The next frame to scan.
    at: Pfn,
    end: Pfn,
    /// Pages isolated, without those put back.
    isolated: u64,
    /// End of the block of the requested order that the scan is in: such a block is isolated as a whole or not at all.
    next_skip: Option<Pfn>,
    /// The first frame of the pageblock was among those looked at.
    is_valid: bool,
    /// The skip mark of the pageblock was checked under the lock.
    skip_updated: bool,
    is_begun: bool,
    /// Frames scanned in this step.
    scanned: u64,
}

/// The content of one frame, as the scanner finds it.
enum Found {
    /// Free frames; the frame to go on at.
    Free(Pfn),
    /// Nothing to isolate; the frame to go on at.
    Fail(Pfn),
    Page,
    /// Another run scans the pageblock, or the lock is contended.
    Abort,
}

impl CompactControl {
    /// Chooses the next pageblock to take pages from, if there is one below the free scanner; an error is the place to go
    /// on at after others may have run (`isolate_migratepages`).
    pub(super) fn choose(&mut self, mm: &mut Mm, cx: &mut Cx, from: Option<Pfn>) -> Result<Option<MigrateScan>, Pfn> {
        if from.is_some() && self.should_abort(mm, cx) {
            return Ok(None);
        }
        let order = mm.memory.frames.blocks.order();
        let mut low = from.unwrap_or_else(|| self.fast_find_migrateblock(mm, cx));
        let mut is_fast = from.is_none() && low != self.migrate_pfn && self.fast_search_fail == 0;
        let mut end = block_end(low, order);
        let (is_private, passes) =
            (mm.memory.variant().compact_private_sources, mm.memory.variant().compact_passes_unfit);
        // Bound: the zone's pageblocks.
        while end <= self.free_pfn {
            let is_here = mm.memory.frames.blocks.zone(low) == Some(self.zone);
            primitive::scan_block(cx, mm.memory.variant().compact_zone_frames);
            let is_asked = !is_private || low.is_aligned(order);
            let is_skipped = is_asked && !is_fast && !self.ignores_skip() && mm.memory.frames.blocks.skip(low);
            if is_here && !is_skipped {
                if self.is_source(mm, low) {
                    return Ok(Some(self.scan_of(mm, low, end)));
                }
                if passes {
                    mm.zone_compacts[self.zone].update_cached_migrate(end, self.mode, order);
                }
            }
            is_fast = false;
            self.migrate_pfn = end;
            low = end;
            end = low.plus(order.frames());
            if low.0 >> order.0 & (BLOCKS_PER_STEP - 1) == 0 {
                return Err(low);
            }
        }
        Ok(None)
    }

    /// Whether pages may be taken from a pageblock (`suitable_migration_source`).
    fn is_source(&self, mm: &Mm, pfn: Pfn) -> bool {
        let order = mm.memory.frames.blocks.order();
        if mm.memory.variant().compact_huge_pages == CompactHugePages::ByBlock
            && let Seen::Compound(found) = mm.memory.frames.seen(pfn)
            && found >= order
        {
            return false;
        }
        if self.mode != MigrateMode::Async {
            return true;
        }
        let list = mm.memory.frames.blocks.migrate_type(pfn);
        if self.list == MigrateType::Movable || !mm.memory.variant().compact_own_blocks {
            matches!(list, MigrateType::Movable | MigrateType::Cma)
        } else {
            list == self.list
        }
    }

    fn scan_of(&self, mm: &Mm, at: Pfn, end: Pfn) -> MigrateScan {
        let skips = self.is_direct_async() && mm.memory.variant().compact_skips_on_failure;
        MigrateScan {
            first: at,
            at,
            end,
            isolated: 0,
            next_skip: self.order.filter(|_| skips).map(|order| block_end(at, order)),
            is_valid: false,
            skip_updated: false,
            is_begun: false,
            scanned: 0,
        }
    }

    /// Isolates pages until there are 32, the pageblock ends, or the lock has been held long enough.
    pub(super) fn isolate(&mut self, mm: &mut Mm, cx: &mut Cx, scan: &mut MigrateScan) -> Isolated {
        if !scan.is_begun {
            self.migrate_pfn = scan.at;
            if mm.too_many_isolated(self.zone) {
                if !self.sources.is_empty() || self.mode == MigrateMode::Async {
                    return Isolated::Abort;
                }
                let until = mm.isolated_throttle(cx);
                cx.fact(|| {
                    let (has, limit) = mm.isolated_and_limit(self.zone);
                    Fact::Throttled { by: Throttle::Isolated, has, limit, until }
                });
                return Isolated::Block(Wait::Until(until));
            }
            scan.is_begun = true;
        }
        if self.should_abort(mm, cx) {
            return abort(cx, scan);
        }
        let (mut is_locked, mut moves) = (false, 0);
        let is_over = self.isolate_run(mm, cx, scan, (&mut is_locked, &mut moves));
        let scanned = std::mem::take(&mut scan.scanned);
        self.migrate_scanned += scanned;
        primitive::scan_frames(cx, scanned);
        if is_locked {
            mm.lru.let_go(cx, self.zone, moves);
        }
        if self.is_aborting(mm) {
            return abort(cx, scan);
        }
        if !is_over {
            return Isolated::More;
        }
        scan.at = scan.at.min(scan.end);
        if scan.at == scan.end && (scan.isolated == 0 || self.rescan) {
            self.pass_by(mm, scan);
        }
        cx.count(Event::CompactIsolated, scan.isolated);
        self.migrate_pfn = scan.at;
        Isolated::Done
    }

    /// Marks a pageblock that has no more pages to take, so that the next run skips it (`update_pageblock_skip`, and from
    /// 5.1 on `update_cached_migrate`).
    fn pass_by(&self, mm: &mut Mm, scan: &MigrateScan) {
        let order = mm.memory.frames.blocks.order();
        let is_private = mm.memory.variant().compact_private_sources;
        if !is_private && (self.ignores_skip() || !scan.is_valid) {
            return;
        }
        if scan.is_valid && (!scan.skip_updated || !is_private) {
            mm.memory.frames.blocks.set_skip(Pfn(scan.end.0 - 1), true);
        }
        let compact = &mut mm.zone_compacts[self.zone];
        if is_private {
            compact.update_cached_migrate(scan.at, self.mode, order);
        } else {
            // The next run goes on at this pageblock, and then skips it.
            compact.raise_cached_migrate(scan.first, self.mode);
        }
    }

    /// Scans during one hold of the lock at most; returns whether the scan is over.
    fn isolate_run(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut MigrateScan,
        (is_locked, moves): (&mut bool, &mut u64),
    ) -> bool {
        // Before 5.1 the rest of a pageblock in which nothing is found marks it, whatever was found before.
        let is_private = mm.memory.variant().compact_private_sources;
        let counts_passed = mm.memory.variant().compact_counts_passed;
        // Bound: each turn passes a frame.
        while scan.at < scan.end {
            if let (Some(next), Some(order)) = (scan.next_skip, self.order)
                && scan.at >= next
            {
                if scan.isolated > 0 {
                    return true;
                }
                scan.next_skip = Some(block_end(scan.at, order));
            }
            if *is_locked && u64::from(scan.at.0) % RUN == 0 {
                return false;
            }
            scan.scanned += 1;
            if !scan.is_valid && (!is_private || scan.at.is_aligned(mm.memory.frames.blocks.order())) {
                if is_private && !self.ignores_skip() && mm.memory.frames.blocks.skip(scan.at) {
                    // Also what the fast search has just found, and marked for itself.
                    scan.at = scan.end;
                    return true;
                }
                scan.is_valid = true;
            }
            let found = self.look_at(mm, cx, scan, is_locked);
            if let (Found::Free(next) | Found::Fail(next), true) = (&found, counts_passed) {
                // One look passes all frames of the block.
                self.migrate_scanned += u64::from(next.0 - scan.at.0 - 1);
            }
            match found {
                Found::Free(next) => scan.at = next,
                Found::Abort => return true,
                Found::Fail(next) => {
                    scan.at = next;
                    self.skip_block(mm, cx, scan, (is_locked, moves));
                }
                Found::Page => {
                    mm.isolate_lru(scan.at).expect("it was seen on a list");
                    *moves += 1;
                    self.sources.push(scan.at);
                    scan.isolated += 1;
                    scan.at = scan.at.plus(1);
                    if self.sources.len() as u64 >= RUN && !self.rescan && self.contended.is_none() {
                        return true;
                    }
                }
            }
        }
        true
    }

    /// Scans one frame; takes the lock if the frame is a page that can be isolated.
    #[inline]
    fn look_at(&mut self, mm: &mut Mm, cx: &mut Cx, scan: &mut MigrateScan, is_locked: &mut bool) -> Found {
        let next = scan.at.plus(1);
        match mm.memory.frames.seen(scan.at) {
            Seen::Free(order) => return Found::Free(scan.at.plus(order.frames())),
            Seen::Compound(order) => return Found::Fail(scan.at.plus(order.frames())),
            Seen::Lru if mm.is_migratable(scan.at, self.mode) => {}
            Seen::Lru | Seen::Other => return Found::Fail(next),
        }
        if !*is_locked {
            let is_contended = mm.lru.is_contended(cx, self.zone);
            if self.gives_way(mm, is_contended) {
                if mm.memory.variant().compact_private_sources {
                    // Nobody has scanned it (patch 10 as posted; patch 13 of the same series waits for the lock).
                    mm.memory.frames.blocks.set_skip(scan.at, false);
                }
                return Found::Abort;
            }
            mm.lru.hold(cx, self.zone);
            *is_locked = true;
            if !std::mem::replace(&mut scan.skip_updated, true) && self.test_and_set_skip(mm, scan.at) {
                return Found::Abort;
            }
        }
        Found::Page
    }

    /// Marks a pageblock when its scan begins; returns whether it was marked already.
    fn test_and_set_skip(&self, mm: &mut Mm, pfn: Pfn) -> bool {
        // Before 5.1 a pageblock is not marked for the time of its scan.
        let marks = mm.memory.variant().compact_private_sources;
        if self.ignores_skip() || !marks || !pfn.is_aligned(mm.memory.frames.blocks.order()) {
            return false;
        }
        let was = mm.memory.frames.blocks.skip(pfn);
        mm.memory.frames.blocks.set_skip(pfn, true);
        was
    }

    /// Skips the block of the requested order around a page that cannot be isolated; pages isolated from it go back.
    fn skip_block(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut MigrateScan,
        (is_locked, moves): (&mut bool, &mut u64),
    ) {
        let (Some(next), Some(order)) = (scan.next_skip, self.order) else { return };
        if scan.isolated > 0 {
            if std::mem::take(is_locked) {
                mm.lru.let_go(cx, self.zone, std::mem::take(moves));
            }
            mm.put_back_all(cx, &self.sources);
            self.sources.clear();
            scan.isolated = 0;
        }
        if scan.at <= next {
            scan.at = next;
            scan.next_skip = Some(next.plus(order.frames()));
        }
    }
}

/// Ends the scan because of contention: the isolated pages are counted, and go back (`ISOLATE_ABORT`).
fn abort(cx: &mut Cx, scan: &MigrateScan) -> Isolated {
    cx.count(Event::CompactIsolated, scan.isolated);
    Isolated::Abort
}
