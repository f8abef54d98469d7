//! Linux: compact_zone() and compact_finished() in mm/compaction.c (v4.1 to v6.1).
//! Differs: a step scans 32 frames, or moves one page or 32 pages; no task is killed while it compacts.
//!
//! One compaction run over one zone: the migrate scanner goes up from the zone's start, the free scanner down from its end,
//! until a block of the requested order is free or the scanners meet.

use memory::{
    cx::Cx,
    decision::Decision,
    event::Event,
    fact::Fact,
    frame::{Held, Holdings, moves::MoveReason},
    pageblock::{MigrateType, ZoneIndex},
    step::{RUN, Step, Wait},
    suitable::Suitable,
};
use rules::{
    gfp::{AllocRequest, Mark, Urgency},
    variant::{CompactContended, CompactEnds},
    zone::ZoneKind,
};
use units::{Order, Pfn};

use crate::{
    Mm, Spaces,
    compact::{
        CompactPriority, CompactResult, Contention, free_scanner::FreeScan, migrate_scanner::MigrateScan, tally::Caller,
    },
    migrate::{Migrate, MigrateMode, Migrating},
};

/// The caller of a compaction run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A task, for its request (direct compaction).
    Direct(CompactPriority),
    /// kcompactd, for the order that it was woken for.
    Daemon,
    /// kcompactd, to lower the node's fragmentation score.
    Proactive,
    /// `vm.compact_memory`.
    Manual,
}

/// Where the linear scan goes on if the free lists give no source (`fast_start_pfn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FastStart {
    None,
    At(Pfn),
    Used,
}

/// A compaction run over a zone (`struct compact_control`).
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as the kernel has them")]
pub(crate) struct CompactControl {
    pub(super) zone: ZoneIndex,
    /// The requested order; none: the whole zone is compacted.
    pub(super) order: Option<Order>,
    pub(super) list: MigrateType,
    highest: ZoneKind,
    urgency: Urgency,
    pub(super) reason: Reason,
    pub(super) mode: MigrateMode,
    /// The run began at the ends of the zone.
    whole_zone: bool,
    /// Contention for a lock or the CPU that the run has met.
    pub(super) contended: Option<Contention>,
    /// The pageblock is scanned for the second time in a row (`cc->rescan`).
    pub(super) rescan: bool,
    pub(super) migrate_pfn: Pfn,
    pub(super) free_pfn: Pfn,
    pub(super) fast_start: FastStart,
    pub(super) fast_search_fail: u32,
    pub(super) search_order: u8,
    /// First frame of the scan whose pages were moved last; cleared when the CPU's lists are drained so that freed frames
    /// merge.
    last_migrated: Option<Pfn>,
    /// First frame of the scan in progress.
    iteration_start: Pfn,
    /// No page was isolated yet: async compaction may move the start of sync compaction too (`update_cached`).
    update_cached: bool,
    is_captured: bool,
    /// Isolated pages that are to be moved.
    pub(super) sources: Vec<Pfn>,
    /// Number of `sources` when their migration began.
    pub(super) nr_sources: usize,
    /// Isolated free frames to move pages to; the last is used first.
    pub(super) targets: Vec<Pfn>,
    pub(super) migrate_scanned: u64,
    pub(super) free_scanned: u64,
    /// Pages that have moved, and pages that failed.
    moved: (u64, u64),
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Check whether the zone is suitable, and set the scanners' starts.
    Begin,
    /// Check whether the run is finished.
    Look,
    /// Choose the next pageblock to take pages from, at or behind this frame.
    Choose(Option<Pfn>),
    /// Isolate pages of the pageblock.
    Isolate(MigrateScan),
    /// Migrate these pages.
    Migrate(Migrate),
    /// Isolate free frames for the migration.
    FindFree(FreeScan, Migrate),
    /// Give back the free frames that were not used.
    Release(CompactResult),
}

/// Where a phase leads.
type Next = memory::step::Next<Phase, CompactResult>;

/// The result of isolating pages of a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolated {
    /// The pageblock is not scanned to its end.
    More,
    Block(Wait),
    /// Too many pages are isolated already.
    Abort,
    Done,
}

impl CompactControl {
    /// A run for a request (`compact_zone_order`).
    pub(crate) fn direct(zone: ZoneIndex, request: &AllocRequest, priority: CompactPriority) -> Self {
        Self {
            list: MigrateType::of(request.mobility),
            urgency: request.urgency,
            whole_zone: priority == CompactPriority::SyncFull,
            ..Self::new(zone, Some(request.order), request.highest, Reason::Direct(priority), priority.mode())
        }
    }

    /// A run of kcompactd: for an order, or of the whole zone.
    pub(crate) fn by_daemon(zone: ZoneIndex, order: Option<Order>, highest: ZoneKind) -> Self {
        let reason = if order.is_some() { Reason::Daemon } else { Reason::Proactive };
        Self::new(zone, order, highest, reason, MigrateMode::SyncLight)
    }

    /// A run of kswapd, async (`compact_pgdat`, up to 4.5). The kernel leaves the control zeroed: migrate type Unmovable,
    /// highest zone DMA.
    pub(crate) fn by_kswapd(zone: ZoneIndex, order: Order) -> Self {
        Self::new(zone, Some(order), ZoneKind::Dma, Reason::Daemon, MigrateMode::Async)
    }

    /// A run for `vm.compact_memory`, over the whole zone (`compact_node`).
    pub(crate) fn manual(zone: ZoneIndex) -> Self {
        Self::new(zone, None, ZoneKind::Movable, Reason::Manual, MigrateMode::Sync)
    }

    fn new(zone: ZoneIndex, order: Option<Order>, highest: ZoneKind, reason: Reason, mode: MigrateMode) -> Self {
        Self {
            zone,
            order,
            // The type of `GFP_KERNEL`.
            list: MigrateType::Unmovable,
            highest,
            urgency: Urgency::Normal,
            reason,
            mode,
            whole_zone: matches!(reason, Reason::Proactive | Reason::Manual),
            contended: None,
            rescan: false,
            migrate_pfn: Pfn(0),
            free_pfn: Pfn(0),
            fast_start: FastStart::None,
            fast_search_fail: 0,
            search_order: order.map_or(0, |order| order.0),
            last_migrated: None,
            iteration_start: Pfn(0),
            update_cached: false,
            is_captured: false,
            sources: Vec::new(),
            nr_sources: 0,
            targets: Vec::new(),
            migrate_scanned: 0,
            free_scanned: 0,
            moved: (0, 0),
            phase: Phase::Begin,
        }
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<CompactResult> {
        // Bound: each turn passes 32 pageblocks that are only checked, or ends the step.
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Look);
            if let Some(step) = self.run_phase(mm, spaces, cx, phase).note(&mut self.phase) {
                return step;
            }
        }
    }

    /// Frames that the run holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        let page = |pfn: &Pfn| Held { pfn: *pfn, order: Order::BASE };
        let mut holdings = match &self.phase {
            Phase::Migrate(migrate) | Phase::FindFree(_, migrate) => migrate.holdings(),
            _ => Holdings { off_lru: self.sources.iter().map(page).collect(), ..Holdings::default() },
        };
        holdings.isolated.extend(self.targets.iter().map(page));
        holdings
    }

    /// Gives back all pages and frames that the run holds.
    pub(crate) fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Look) {
            Phase::Migrate(mut migrate) | Phase::FindFree(_, mut migrate) => {
                migrate.abort(mm, spaces, cx, &mut self.targets);
            }
            _ => mm.put_back_all(cx, &std::mem::take(&mut self.sources)),
        }
        for target in self.targets.drain(..) {
            mm.memory.free(cx, target, Order::BASE);
        }
        self.count_scanned(cx);
    }

    pub(crate) fn zone(&self) -> ZoneIndex {
        self.zone
    }

    pub(crate) fn order(&self) -> Option<Order> {
        self.order
    }

    /// Notes that the task has captured the block that it wants.
    pub(crate) fn note_captured(&mut self) {
        self.is_captured = true;
    }

    /// Frames that the migrate scanner and the free scanner have scanned.
    pub(crate) fn scanned(&self) -> (u64, u64) {
        (self.migrate_scanned, self.free_scanned)
    }

    /// Whether the run is searching for free frames.
    #[cfg(test)]
    pub(super) fn seeks_free(&self) -> bool {
        matches!(self.phase, Phase::FindFree(..))
    }

    /// Whether the run is in the middle of isolating pages.
    #[cfg(test)]
    pub(super) fn takes_pages(&self) -> bool {
        matches!(self.phase, Phase::Isolate(_)) && !self.sources.is_empty()
    }

    /// The contention that ended the run.
    pub(super) fn contention(&self) -> Option<Contention> {
        self.contended
    }

    /// Whether contention ends the run.
    pub(super) fn is_aborting(&self, mm: &Mm) -> bool {
        self.contended.is_some() && mm.memory.variant().compact_contended == CompactContended::Aborts
    }

    /// Whether the run must end because another task wants the CPU (`compact_should_abort`).
    pub(super) fn should_abort(&mut self, mm: &Mm, cx: &Cx) -> bool {
        let aborts =
            self.mode == MigrateMode::Async && mm.memory.variant().compact_contended == CompactContended::Aborts;
        if aborts && cx.has_to_yield() {
            self.contended = Some(Contention::Cpu);
        }
        self.is_aborting(mm)
    }

    /// Notes contention for a lock: returns true if the run ends for that (`compact_trylock_irqsave`), else it waits.
    pub(super) fn gives_way(&mut self, mm: &Mm, is_contended: bool) -> bool {
        if self.mode == MigrateMode::Async && is_contended {
            self.contended = Some(Contention::Lock);
        }
        self.is_aborting(mm)
    }

    /// The mechanism that the run is a part of. kcompactd always waits for locks.
    fn caller(&self) -> Caller {
        match self.reason {
            Reason::Direct(_) => Caller::Direct,
            Reason::Daemon if self.mode == MigrateMode::Async => Caller::Kswapd,
            Reason::Daemon => Caller::Kcompactd,
            Reason::Proactive => Caller::Proactive,
            Reason::Manual => Caller::Manual,
        }
    }

    /// Whether a task compacts for its own request.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.reason, Reason::Direct(_))
    }

    /// Whether a task compacts for its own request, and waits for nothing.
    pub(super) fn is_direct_async(&self) -> bool {
        self.is_direct() && self.mode == MigrateMode::Async
    }

    /// Whether pageblocks with a skip mark are scanned too (`ignore_skip_hint`).
    pub(super) fn ignores_skip(&self) -> bool {
        !matches!(self.reason, Reason::Daemon | Reason::Direct(CompactPriority::Async | CompactPriority::SyncLight))
    }

    /// Whether pages may move to pageblocks of any type (`ignore_block_suitable`).
    pub(super) fn ignores_block_type(&self) -> bool {
        self.reason == Reason::Direct(CompactPriority::SyncFull)
    }

    /// Whether the scanners have come to the same pageblock (`compact_scanners_met`).
    fn have_met(&self, mm: &Mm) -> bool {
        let order = mm.memory.frames.blocks.order().0;
        self.free_pfn.0 >> order <= self.migrate_pfn.0 >> order
    }

    fn run_phase(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, phase: Phase) -> Next {
        match phase {
            Phase::Begin => self.begin(mm, cx),
            Phase::Look => self.look(mm),
            Phase::Choose(from) => match self.choose(mm, cx, from) {
                Ok(Some(scan)) => Next::Phase(Phase::Isolate(scan)),
                Ok(None) => self.after_isolation(mm, cx),
                Err(from) => Next::Later(Phase::Choose(Some(from))),
            },
            Phase::Isolate(mut scan) => match self.isolate(mm, cx, &mut scan) {
                Isolated::More => Next::Later(Phase::Isolate(scan)),
                Isolated::Block(wait) => Next::Block(wait, Phase::Isolate(scan)),
                Isolated::Abort => {
                    mm.put_back_all(cx, &std::mem::take(&mut self.sources));
                    Next::Later(Phase::Release(CompactResult::Contended))
                }
                Isolated::Done => self.after_isolation(mm, cx),
            },
            Phase::Migrate(migrate) => self.migrate(mm, spaces, cx, migrate),
            Phase::FindFree(mut scan, mut migrate) => {
                if !self.find_free(mm, cx, &mut scan) {
                    return Next::Later(Phase::FindFree(scan, migrate));
                }
                if self.targets.is_empty() {
                    migrate.no_target();
                }
                Next::Later(Phase::Migrate(migrate))
            }
            Phase::Release(result) => self.release(mm, cx, result),
        }
    }

    fn begin(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        if mm.memory.zone(self.zone).is_llfree() {
            // Without lists of free blocks there is nothing for the free scanner to take.
            return Next::Done(CompactResult::Skipped);
        }
        if let Some(order) = self.order {
            let suitable = mm.memory.is_suitable_for(self.zone, order, self.highest, self.urgency);
            let request = (self.zone, order, self.highest, self.urgency);
            self.caller().count_suitable(&mm.memory, cx, request, suitable);
            let result = match suitable {
                Suitable::Skipped => Some(CompactResult::Skipped),
                Suitable::Success => Some(CompactResult::Success),
                Suitable::Continue => None,
            };
            if let Some(result) = result {
                self.tell_unsuitable(mm, cx, order, result);
                return Next::Done(result);
            }
            let compact = &mut mm.zone_compacts[self.zone];
            if compact.is_restarting(order) {
                if mm.memory.variant().compact_clears_selectively {
                    compact.reset_isolation_suitable(&mut mm.memory, self.zone, cx);
                } else {
                    // Even if no task has looked at all of it since.
                    compact.reset_all(&mut mm.memory, self.zone, cx);
                }
            }
        }
        let pageblock = mm.memory.frames.blocks.order();
        let (zone, compact) = (mm.memory.zone(self.zone), &mut mm.zone_compacts[self.zone]);
        let sync = usize::from(self.mode != MigrateMode::Async);
        if self.whole_zone {
            (self.migrate_pfn, self.free_pfn) = (zone.start, Pfn(zone.end.0 - 1).align_down(pageblock));
        } else {
            let inside = |pfn| zone.start <= pfn && pfn < zone.end;
            if !inside(compact.cached_free) {
                compact.cached_free = Pfn(zone.end.0 - 1).align_down(pageblock);
            }
            if !inside(compact.cached_migrate[sync]) {
                compact.cached_migrate = [zone.start; 2];
            }
            self.free_pfn = compact.cached_free;
            self.migrate_pfn = compact.cached_migrate[sync];
            self.whole_zone = compact.init_migrate.is_some_and(|first| self.migrate_pfn <= first);
        }
        let cached = mm.zone_compacts[self.zone].cached_migrate;
        self.update_cached = mm.memory.variant().compact_syncs_cached && sync == 0 && cached[0] == cached[1];
        let (zone, sync) = (zone.name(), sync > 0);
        cx.fact(|| Fact::CompactionBegin { zone, order: self.order, sync });
        if cx.decides_otherwise(Decision::Compact) {
            return Next::Phase(Phase::Release(CompactResult::Skipped));
        }
        mm.lru_add_drain(cx);
        Next::Later(Phase::Look)
    }

    /// The head of the loop of `compact_zone`: goes on with the next pageblock, unless the run is finished.
    fn look(&mut self, mm: &mut Mm) -> Next {
        if let Some(result) = self.finished(mm) {
            return Next::Phase(Phase::Release(result));
        }
        let block = |pfn: Pfn| pfn.align_down(mm.memory.frames.blocks.order());
        self.iteration_start = self.migrate_pfn;
        let is_same = self.last_migrated.is_some_and(|last| block(last) == block(self.iteration_start));
        self.rescan = is_same && mm.memory.variant().compact_rescans_at_once;
        Next::Phase(Phase::Choose(None))
    }

    /// The result of the run, if it is finished (`compact_finished`).
    fn finished(&mut self, mm: &mut Mm) -> Option<CompactResult> {
        if self.is_aborting(mm) {
            return Some(CompactResult::Contended);
        }
        if self.have_met(mm) {
            let is_direct = self.is_direct();
            let pageblock = mm.memory.frames.blocks.order();
            let (zone, compact) = (mm.memory.zone(self.zone), &mut mm.zone_compacts[self.zone]);
            compact.reset_cached(zone.start, zone.end, pageblock);
            // kcompactd leaves it to those who wait for memory to have everything looked at again.
            compact.blockskip_flush |= is_direct;
            return Some(if self.whole_zone { CompactResult::Complete } else { CompactResult::PartialSkipped });
        }
        let verdict = match (self.reason, self.order) {
            (Reason::Proactive, _) => {
                let node = mm.memory.zone(self.zone).node;
                if !mm.memory.node(node).kswapd.is_asleep() {
                    return Some(CompactResult::PartialSkipped);
                }
                (mm.zone_score(self.zone) <= mm.compaction.score_marks().0).then_some(CompactResult::Success)
            }
            (_, None) => return None,
            (_, Some(order)) => match self.has_block(mm, order) {
                Ended::NotHere => return None,
                Ended::Yes => return Some(CompactResult::Success),
                Ended::No => None,
            },
        };
        if self.contended.is_some() { Some(CompactResult::Contended) } else { verdict }
    }

    /// Whether the zone now has a block for the request, or one that the request may steal.
    fn has_block(&self, mm: &Mm, order: Order) -> Ended {
        let pageblock = mm.memory.frames.blocks.order();
        let zone = mm.memory.zone(self.zone);
        let is_at_block = self.migrate_pfn.is_aligned(pageblock);
        let ends = mm.memory.variant().compact_ends;
        match ends {
            CompactEnds::AtPageblock if !is_at_block => return Ended::NotHere,
            CompactEnds::AboveLow if !zone.is_ok(order, Mark::Low, self.highest, self.urgency, mm.memory.variant()) => {
                return Ended::No;
            }
            _ => {}
        }
        for at in (order.0..=zone.max_order().0).map(Order) {
            if !zone.free_list(at, self.list).is_empty() {
                return Ended::Yes;
            }
            if zone.may_steal_from(at, self.list, pageblock, mm.memory.variant().fallback) {
                let finishes_first = ends == CompactEnds::AtBlock
                    && self.list != MigrateType::Movable
                    && self.mode != MigrateMode::Async
                    && !is_at_block;
                return if finishes_first { Ended::No } else { Ended::Yes };
            }
        }
        Ended::No
    }

    /// Goes on after isolating pages of a pageblock, of which there may be none.
    fn after_isolation(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        if self.sources.is_empty() {
            if self.update_cached {
                let cached = &mut mm.zone_compacts[self.zone].cached_migrate;
                cached[1] = cached[0];
            }
            return self.check_drain(mm, cx);
        }
        self.update_cached = false;
        self.last_migrated = Some(self.iteration_start);
        self.nr_sources = self.sources.len();
        let sources = std::mem::take(&mut self.sources);
        // Direct compaction must not wait for locks: its task may hold some (`PF_MEMALLOC`).
        let migrate = Migrate::new(sources, self.mode, self.is_direct());
        Next::Later(Phase::Migrate(migrate.for_reason(MoveReason::Compaction(self.order))))
    }

    fn migrate(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, mut migrate: Migrate) -> Next {
        match migrate.step(mm, spaces, cx, &mut self.targets) {
            Migrating::More => Next::Later(Phase::Migrate(migrate)),
            Migrating::Block(wait) => Next::Block(wait, Phase::Migrate(migrate)),
            Migrating::WantsTarget if self.is_aborting(mm) => {
                migrate.no_target();
                Next::Phase(Phase::Migrate(migrate))
            }
            Migrating::WantsTarget => Next::Phase(Phase::FindFree(FreeScan::new(), migrate)),
            Migrating::Done(migrated) => {
                self.moved.0 += u64::from(migrated.moved);
                self.moved.1 += u64::from(migrated.failed);
                self.sources = migrate.into_memory();
                self.nr_sources = 0;
                if migrated.is_out && !self.have_met(mm) {
                    return Next::Phase(Phase::Release(CompactResult::Contended));
                }
                if (migrated.failed > 0 || migrated.is_out)
                    && self.is_direct_async()
                    && let Some(order) = self.order
                    && mm.memory.variant().compact_skips_on_failure
                {
                    // One page that stays is enough: the rest of its block is not worth moving.
                    self.migrate_pfn = block_end(Pfn(self.migrate_pfn.0 - 1), order);
                    self.last_migrated = None;
                }
                self.check_drain(mm, cx)
            }
        }
    }

    /// Drains this CPU's lists once the scanner has left the block that pages were moved from, so that freed frames merge.
    fn check_drain(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        if let (Some(order), Some(last)) = (self.order, self.last_migrated)
            && last < self.migrate_pfn.align_down(order)
        {
            mm.lru_add_drain(cx);
            mm.memory.drain_local_pages(cx, self.zone);
            self.last_migrated = None;
        }
        if self.is_captured || mm.memory.zone(self.zone).has_captured() {
            return Next::Later(Phase::Release(CompactResult::Success));
        }
        Next::Later(Phase::Look)
    }

    /// Gives back the unused free frames at the end of a run; the next run's free scanner starts at them.
    fn release(&mut self, mm: &mut Mm, cx: &mut Cx, result: CompactResult) -> Next {
        let highest = self.targets.iter().max().map(|pfn| pfn.align_down(mm.memory.frames.blocks.order()));
        if let Some(highest) = highest {
            let cached = &mut mm.zone_compacts[self.zone].cached_free;
            *cached = highest.max(*cached);
        }
        for _ in 0..RUN {
            let Some(target) = self.targets.pop() else { break };
            mm.memory.free(cx, target, Order::BASE);
        }
        if !self.targets.is_empty() {
            return Next::Later(Phase::Release(result));
        }
        self.count_scanned(cx);
        let ended = (result == CompactResult::Contended, result == CompactResult::Success);
        self.caller().count_end(&mm.memory, cx, self.zone, ended);
        self.tell_end(mm, cx, result);
        Next::Done(result)
    }

    /// Records that the zone is not worth compacting, or needs none.
    fn tell_unsuitable(&self, mm: &Mm, cx: &mut Cx, order: Order, result: CompactResult) {
        let zone = mm.memory.zone(self.zone);
        let (zone, free) = (zone.name(), zone.free_frames());
        cx.fact(|| Fact::CompactionUnsuitable { zone, order, result: result.told(), free });
    }

    /// Records the end of the run.
    fn tell_end(&self, mm: &Mm, cx: &mut Cx, result: CompactResult) {
        let (migrate_scanned, free_scanned) = self.scanned();
        let (moved, failed) = self.moved;
        let (zone, result) = (mm.memory.zone(self.zone).name(), result.told());
        cx.fact(|| Fact::CompactionEnd { zone, result, migrate_scanned, free_scanned, moved, failed });
    }

    fn count_scanned(&self, cx: &mut Cx) {
        cx.count(Event::CompactMigrateScanned, self.migrate_scanned);
        cx.count(Event::CompactFreeScanned, self.free_scanned);
    }
}

/// Whether a run ends with what is free now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Not at a pageblock boundary: the end is not checked here.
    NotHere,
    No,
    Yes,
}

/// One past the last frame of the block of an order that holds `pfn` (`block_end_pfn`).
pub(super) fn block_end(pfn: Pfn, order: Order) -> Pfn {
    pfn.align_down(order).plus(order.frames())
}
