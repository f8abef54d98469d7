//! Linux: try_to_compact_pages() and below in mm/compaction.c (v4.1 to v6.1).
//! Differs: no CMA; no pages of drivers that can be moved.
//!
//! Compacting a zone moves pages from its lower part to free frames in its upper part, until there is a free block of the
//! requested order. `control.rs` is one run over a zone; its two scanners are in files of their own.
//!
//! Floor 4: this room is compaction and kcompactd. Files here use floors 0 to 3 and migration.

mod control;
mod fast;
mod free_scanner;
pub mod kcompactd;
mod migrate_scanner;
mod suitable;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod zone;

use memory::{
    cx::Cx,
    decision::Decision,
    event::Event,
    fact::Compaction,
    frame::{Held, Holdings},
    pageblock::ZoneIndex,
    step::Step,
    tally::Test,
};
use rules::{
    gfp::{AllocRequest, Mark},
    variant::{CompactStall, SlowPath},
};
use units::{Order, Pfn};

use crate::{Mm, Spaces, migrate::MigrateMode};

pub(crate) use control::CompactControl;
pub use zone::ZoneCompact;

/// How hard compaction tries (`enum compact_priority`), from the least effort up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactPriority {
    /// Waits neither for locks nor for disks.
    Async,
    /// Waits for locks, not for disks.
    SyncLight,
    /// Waits for locks and disks, and scans every pageblock.
    SyncFull,
}

impl CompactPriority {
    /// The next higher priority, if requests of such an order reach one.
    pub(crate) fn harder(self, is_costly: bool) -> Option<Self> {
        match self {
            Self::Async => Some(Self::SyncLight),
            Self::SyncLight if !is_costly => Some(Self::SyncFull),
            Self::SyncLight | Self::SyncFull => None,
        }
    }
}

/// The result of compaction for a request (`enum compact_result`), in the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactResult {
    /// No zone had enough free frames for a run, or needed one.
    Skipped,
    /// Compaction is deferred in every zone after earlier failures.
    Deferred,
    /// The scanners have met after scanning the whole zone.
    Complete,
    /// The scanners have met, but did not start at the ends of the zone.
    PartialSkipped,
    /// The run ended because another task wanted the lock or the CPU.
    Contended,
    /// There is a free block now.
    Success,
}

impl CompactResult {
    /// The result's name among facts.
    fn told(self) -> Compaction {
        match self {
            Self::Skipped => Compaction::Skipped,
            Self::Deferred => Compaction::Deferred,
            Self::Complete => Compaction::Complete,
            Self::PartialSkipped => Compaction::PartialSkipped,
            Self::Contended => Compaction::Contended,
            Self::Success => Compaction::Success,
        }
    }
}

/// The reason why asynchronous compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contention {
    /// Another task wanted the CPU (`COMPACT_CONTENDED_SCHED`).
    Cpu,
    /// Another CPU held the lock (`COMPACT_CONTENDED_LOCK`).
    Lock,
}

/// The result of direct compaction, and the block if one was captured or taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compacted {
    pub(crate) result: CompactResult,
    pub(crate) block: Option<Pfn>,
    /// The contention that ended the run, which the slow path needs up to 4.7.
    pub(crate) contention: Option<Contention>,
}

/// Direct compaction of the zones for one request (`try_to_compact_pages`).
#[derive(Clone, Debug)]
pub(crate) struct DirectCompact {
    request: AllocRequest,
    priority: CompactPriority,
    /// Number of zones that are done.
    passed: usize,
    /// The best result of these zones.
    best: CompactResult,
    /// Whether a zone was tried: up to 4.7 the result is `Deferred` if none was.
    has_tried: bool,
    /// Whether lock contention ended the runs over all zones that were tried.
    all_locked: bool,
    contention: Option<Contention>,
    /// The compaction run of the zone being tried now (`compact_zone_order`).
    run: Option<Box<CompactControl>>,
    /// A block that the run has completed and captured.
    captured: Option<Pfn>,
}

impl DirectCompact {
    pub(crate) fn new(request: AllocRequest, priority: CompactPriority) -> Self {
        Self {
            request,
            priority,
            passed: 0,
            best: CompactResult::Skipped,
            has_tried: false,
            all_locked: true,
            contention: None,
            run: None,
            captured: None,
        }
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Compacted> {
        let zones = mm.memory.zones_for(&self.request);
        // Bound: each turn passes a zone, or ends a step.
        loop {
            let Some(zone) = zones.get(self.passed).copied() else { return self.end(mm, cx) };
            if let Some(run) = &mut self.run {
                let stepped = capturing(mm, cx, &mut self.captured, run, |mm, cx, run| run.step(mm, spaces, cx));
                match stepped {
                    Step::More => return Step::More,
                    Step::Block(wait) => return Step::Block(wait),
                    Step::Done(result) => {
                        let contention = run.contention();
                        self.run = None;
                        self.passed += 1;
                        let is_over = if mm.memory.variant().slow_path == SlowPath::Fixed {
                            self.after_zone_by_mark(mm, cx, zone, (result, contention))
                        } else {
                            self.after_zone(mm, cx, zone, result)
                        };
                        if is_over {
                            self.passed = zones.len();
                        }
                    }
                }
            } else {
                self.begin_zone(mm, cx, zone);
            }
        }
    }

    /// Begins a run over a zone, unless compaction is deferred there. `SyncFull` ignores deferral, and is not counted.
    fn begin_zone(&mut self, mm: &mut Mm, cx: &mut Cx, zone: ZoneIndex) {
        let asks = self.priority < CompactPriority::SyncFull;
        let is_deferred = asks && mm.is_compaction_deferred(zone, &self.request);
        if asks && !cx.test(Test::DirectCompactDeferred, mm.memory.zone(zone).name(), !is_deferred) {
            let (name, compact) = (mm.memory.zone(zone).name(), &mm.zone_compacts[zone]);
            cx.fact(|| compact.deferred(name, self.request.order));
            if cx.decides_otherwise(Decision::Deferred) {
                self.run = Some(Box::new(CompactControl::direct(zone, &self.request, self.priority)));
                return;
            }
            if mm.memory.variant().slow_path == SlowPath::ByProgress {
                self.best = self.best.max(CompactResult::Deferred);
            }
            self.passed += 1;
            return;
        }
        self.run = Some(Box::new(CompactControl::direct(zone, &self.request, self.priority)));
    }

    pub(crate) fn holdings(&self) -> Holdings {
        let mut holdings = self.run.as_ref().map_or_else(Holdings::default, |run| run.holdings());
        holdings.isolated.extend(self.captured.map(|pfn| Held { pfn, order: self.request.order }));
        holdings
    }

    pub(crate) fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        if let Some(mut run) = self.run.take() {
            run.abort(mm, spaces, cx);
        }
        if let Some(pfn) = self.captured.take() {
            mm.memory.free(cx, pfn, self.request.order);
        }
    }

    /// Notes the result of a zone; returns true if the other zones are left out.
    fn after_zone(&mut self, mm: &mut Mm, cx: &mut Cx, zone: ZoneIndex, result: CompactResult) -> bool {
        let result = if self.captured.is_some() { CompactResult::Success } else { result };
        self.best = self.best.max(result);
        let compact = &mut mm.zone_compacts[zone];
        if result == CompactResult::Success {
            compact.reset_deferral(self.request.order, false);
            return true;
        }
        if matches!(result, CompactResult::Complete | CompactResult::PartialSkipped) {
            let order = self.request.order;
            if cx.decides_otherwise(Decision::Defer) {
                // The zone stays open to the next request.
            } else if mm.memory.variant().compact_defers_by_reason {
                mm.zone_compacts[zone].defer_until_freed(order, mm.memory.zone(zone).free_frames());
                mm.tell_deferral(cx, zone, order);
            } else if self.priority > CompactPriority::Async {
                mm.zone_compacts[zone].defer(order);
                mm.tell_deferral(cx, zone, order);
            }
        }
        self.priority == CompactPriority::Async && cx.need_resched()
    }

    /// Notes the result of a zone up to 4.7, where a zone has succeeded if the watermark test for the request passes now.
    fn after_zone_by_mark(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        zone: ZoneIndex,
        (result, contention): (CompactResult, Option<Contention>),
    ) -> bool {
        let AllocRequest { order, highest, urgency, .. } = self.request;
        self.has_tried = true;
        self.best = self.best.max(result);
        self.all_locked &= contention == Some(Contention::Lock);
        let is_sched = contention == Some(Contention::Cpu);
        if is_sched {
            self.contention = contention;
        }
        let helps = mm.memory.zone(zone).is_ok(order, Mark::Low, highest, urgency, mm.memory.variant());
        if helps {
            mm.zone_compacts[zone].reset_deferral(order, false);
        } else if self.priority > CompactPriority::Async
            && matches!(result, CompactResult::Complete | CompactResult::PartialSkipped)
            && !cx.decides_otherwise(Decision::Defer)
        {
            mm.zone_compacts[zone].defer(order);
            mm.tell_deferral(cx, zone, order);
        }
        // Zones that are left out count as uncontended.
        self.all_locked &= !helps && !is_sched;
        helps || is_sched
    }

    /// The result of all zones up to 4.7: `Deferred` only if every zone was deferred.
    fn result_by_mark(&mut self) -> CompactResult {
        if !self.has_tried {
            return CompactResult::Deferred;
        }
        if self.best > CompactResult::Deferred && self.all_locked {
            self.contention = Some(Contention::Lock);
        }
        self.best
    }

    /// Ends direct compaction with the captured block, or with one from the free lists (`__alloc_pages_direct_compact`).
    fn end(&mut self, mm: &mut Mm, cx: &mut Cx) -> Step<Compacted> {
        let is_fixed = mm.memory.variant().slow_path == SlowPath::Fixed;
        let result = if is_fixed { self.result_by_mark() } else { self.best };
        let contention = self.contention;
        if mm.memory.variant().compact_counts_reasons {
            match result {
                CompactResult::Skipped => cx.count(Event::SimCompactSkipped, 1),
                CompactResult::Deferred => cx.count(Event::SimCompactDeferred, 1),
                _ => {}
            }
        }
        let counts = match result {
            CompactResult::Skipped => mm.memory.variant().compact_stall == CompactStall::Asked,
            CompactResult::Deferred => mm.memory.variant().compact_stall != CompactStall::Tried,
            _ => true,
        };
        if !counts {
            return Step::Done(Compacted { result, block: None, contention });
        }
        cx.count(Event::CompactStall, 1);
        let order = self.request.order;
        let captured = self.captured.take().inspect(|pfn| mm.memory.assert_isolated(cx, *pfn, order));
        let block = captured.or_else(|| mm.memory.alloc_above_min(cx, &self.request));
        if let Some(pfn) = block {
            mm.memory.frames.set(pfn, memory::frame::Frame::Kernel { order, mobility: self.request.mobility });
            let compact = mm.zone_compact_of_mut(pfn);
            compact.blockskip_flush = false;
            compact.reset_deferral(order, true);
        }
        cx.count(if block.is_some() { Event::CompactSuccess } else { Event::CompactFail }, 1);
        Step::Done(Compacted { result, block, contention })
    }
}

const _: () = assert!(size_of::<DirectCompact>() <= 256, "a task's kernel half is small");

/// Takes a step of a run in which the task captures the wanted block if its own frees complete it.
fn capturing<T>(
    mm: &mut Mm,
    cx: &mut Cx,
    captured: &mut Option<Pfn>,
    run: &mut CompactControl,
    step: impl FnOnce(&mut Mm, &mut Cx, &mut CompactControl) -> T,
) -> T {
    let (zone, order) = (run.zone(), run.order().expect("for a request"));
    if mm.memory.variant().compact_capture && captured.is_none() {
        mm.memory.zone_mut(zone).begin_capture(order);
    }
    let result = step(mm, cx, run);
    if let Some(pfn) = mm.memory.zone_mut(zone).end_capture() {
        mm.memory.isolate(cx, pfn, order);
        *captured = Some(pfn);
        run.note_captured();
    }
    result
}

impl CompactPriority {
    /// The mode of migration (`compact_zone_order`): direct compaction never waits for disks.
    fn mode(self) -> MigrateMode {
        if self == Self::Async { MigrateMode::Async } else { MigrateMode::SyncLight }
    }
}

/// The order of huge pages, for which a node's fragmentation score is computed.
// COMPACTION_HPAGE_ORDER, mm/compaction.c (v6.1).
pub(crate) const SCORE_ORDER: Order = Order::HUGE;
