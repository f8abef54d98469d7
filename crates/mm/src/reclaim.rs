//! Linux: struct scan_control, shrink_zone() (v4.1) and shrink_node() (v5.9 to v6.1) in mm/vmscan.c.
//! Differs: no memcg, no demotion to other nodes, no proactive reclaim, no generations (MGLRU), no vmpressure, no
//! throttle_vm_writeout(). A huge page that is split counts as its pages, not as one, before 5.8 too.
//!
//! A pass over a node, or over a zone that has lists of its own, is data
//! ([`NodeScan`]): each step takes folios off a list, or decides what becomes of those that were taken, or ages an active list.
//!
//! Floor 4: this room is reclaim, kswapd, shrinkers, and the split of huge pages that reclaim meets. Files here use floors 0
//! to 3. Begin with `direct.rs` for a task and `kswapd.rs` for the thread.

mod active;
mod amounts;
mod by_zone;
mod direct;
mod file;
mod folio;
pub mod kswapd;
mod quiet;
pub(crate) mod shrinker;
pub mod split;
mod throttle;

use memory::{
    cx::Cx,
    event::Event,
    frame::{Held, Holdings},
    lru_kind::LruKind,
    pageblock::ZoneIndex,
    step::{RUN, Step, Wait},
};
use rules::zone::ZoneKind;
use units::{NodeId, Order, Pfn, Time};

use crate::{Mm, Spaces, folio::lru::Taken, reclaim::shrinker::SlabScan};

use amounts::Amounts;
use by_zone::Pressure;
pub(crate) use direct::{DirectReclaim, compact_gap};

/// Where reclaim begins: each pass looks at one frame in 2^12.
// DEF_PRIORITY, include/linux/mmzone.h (v6.1).
pub(crate) const DEF_PRIORITY: u8 = 12;
/// The task or thread that reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaimer {
    /// A node's kswapd.
    Kswapd,
    /// A task that needs memory.
    Direct,
}

/// The aims of one run of reclaim, and its results so far (`struct scan_control`).
#[expect(clippy::struct_excessive_bools, reason = "switches that do not exclude each other, as the kernel has them")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanControl {
    pub(crate) by: Reclaimer,
    /// The order of the request.
    pub(crate) order: Order,
    /// Frames of higher zones are of no use (`reclaim_idx`).
    pub(crate) highest: ZoneKind,
    pub(crate) to_reclaim: u64,
    /// Each pass looks at one frame in 2^this.
    pub(crate) priority: u8,
    pub(crate) may_write: bool,
    pub(crate) may_swap: bool,
    /// Active lists are aged whatever they hold.
    pub(crate) force_deactivate: bool,
    /// One was spared.
    pub(crate) spared_active: bool,
    pub(crate) scanned: u64,
    pub(crate) reclaimed: u64,
    /// The state of folios that the run met on a node.
    pub(crate) met: Met,
    /// All that was met on the node lately is being written (`PGDAT_WRITEBACK`).
    pub(crate) meets_writeback: bool,
    /// All files that were met lately are dirty, and none is being written (`PGDAT_DIRTY`).
    pub(crate) meets_dirty: bool,
}

/// Frames that one pass over a node took off lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    pub(crate) taken: u64,
    pub(crate) writeback: u64,
    /// Met again while they are being written.
    pub(crate) immediate: u64,
    /// Dirty, or being written; those that are not being written; and those met again while they are being written.
    pub(crate) dirty: u64,
    pub(crate) unqueued_dirty: u64,
    pub(crate) congested: u64,
    /// Taken off lists of files.
    pub(crate) file_taken: u64,
}

impl Met {
    /// Adds what one list came to, but for what was taken off it.
    pub(crate) fn add(&mut self, other: Self) {
        self.writeback += other.writeback;
        self.immediate += other.immediate;
        self.dirty += other.dirty;
        self.unqueued_dirty += other.unqueued_dirty;
        self.congested += other.congested;
    }

    /// Is all that was met of files dirty, and none being written (`PGDAT_DIRTY`)?
    pub(crate) fn is_all_dirty(&self) -> bool {
        self.unqueued_dirty == self.file_taken
    }

    /// Is all that is dirty on its way to the disk, and was met before (`LRUVEC_CONGESTED`)?
    pub(crate) fn is_congested(&self) -> bool {
        self.dirty > 0 && self.dirty == self.congested
    }

    /// Is all of it being written (`PGDAT_WRITEBACK`)?
    pub(crate) fn is_all_writeback(&self) -> bool {
        self.writeback > 0 && self.writeback == self.taken
    }
}

impl ScanControl {
    pub(crate) fn new(by: Reclaimer, order: Order, highest: ZoneKind) -> Self {
        Self {
            by,
            order,
            highest,
            to_reclaim: RUN,
            priority: DEF_PRIORITY,
            may_write: true,
            may_swap: true,
            force_deactivate: false,
            spared_active: false,
            scanned: 0,
            reclaimed: 0,
            met: Met::default(),
            meets_writeback: false,
            meets_dirty: false,
        }
    }
}

/// One pass over a node, or one of its zones.
#[derive(Clone, Debug)]
pub(crate) struct NodeScan {
    node: NodeId,
    /// Only this zone, by its position.
    zone: Option<ZoneIndex>,
    /// Are shrinkers asked after it?
    pub(crate) asks_shrinkers: bool,
    /// Frames looked at when it began, and those of the lists that it has looked at.
    pressure: Pressure,
    /// The lists being scanned, and those after them.
    lruvec: usize,
    end: usize,
    amounts: Amounts,
    phase: Phase,
    /// Folios taken off a list.
    taken: Taken,
    /// Pages of a huge one of them that was split.
    tails: Vec<Pfn>,
    /// Frames reclaimed from these lists so far.
    reclaimed: u64,
    /// The run has waited for others to put back what they hold.
    stalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// How much of each list to scan.
    Count,
    /// The lists in turn, from this one on.
    Lists { next: usize },
    /// Folios of this one are taken: what becomes of them?
    Folios { from: usize },
    /// Does the anonymous active list need aging?
    Age,
    /// Shrinkers, once for the node.
    Slab(SlabScan),
}

impl NodeScan {
    pub(crate) fn new(mm: &Mm, node: NodeId, sc: &mut ScanControl) -> Self {
        sc.met = Met::default();
        Self::over(node, mm.lruvecs_of(node, sc.highest), sc.scanned)
    }

    fn over(node: NodeId, lruvecs: std::ops::Range<usize>, scanned: u64) -> Self {
        Self {
            node,
            zone: None,
            asks_shrinkers: true,
            pressure: Pressure { scanned, eligible: 0 },
            lruvec: lruvecs.start,
            end: lruvecs.end,
            amounts: Amounts::default(),
            phase: if lruvecs.is_empty() { Phase::Slab(SlabScan::default()) } else { Phase::Count },
            taken: Taken::default(),
            tails: Vec::new(),
            reclaimed: 0,
            stalled: false,
        }
    }

    /// The node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Goes on until others may run; done when the node was passed (`shrink_node` without what comes of it).
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, sc: &mut ScanControl) -> Step<()> {
        mm.complete_swap_io(cx);
        mm.complete_disk_io(cx);
        // Bound: each turn goes to the next list, or takes from what is to be scanned.
        loop {
            match self.phase {
                Phase::Count => {
                    self.amounts = Amounts::count(mm, cx, self.lruvec, sc);
                    self.pressure.eligible += self.amounts.eligible;
                    (self.phase, self.reclaimed) = (Phase::Lists { next: 0 }, 0);
                }
                Phase::Lists { next } => {
                    if self.scan_quiet(mm, spaces, cx, sc) {
                        return Step::More;
                    }
                    if self.phase != (Phase::Lists { next }) {
                        continue;
                    }
                    if let Some(step) = self.scan_next(mm, spaces, cx, sc, next) {
                        return step;
                    }
                }
                Phase::Folios { from } => {
                    self.shrink_taken(mm, spaces, cx, sc, LruKind::ALL[from]);
                    self.take_tails();
                    if self.taken.is_empty() {
                        self.phase = Phase::Lists { next: from + 1 };
                        return self.after_list(mm, cx, sc);
                    }
                    return Step::More;
                }
                Phase::Age => {
                    sc.reclaimed += self.reclaimed;
                    self.lruvec += 1;
                    self.phase = if self.lruvec < self.end { Phase::Count } else { Phase::Slab(SlabScan::default()) };
                    if mm.swap.is_on() && mm.inactive_is_low(self.lruvec - 1, false) {
                        mm.shrink_active_list(spaces, cx, sc, (self.lruvec - 1, LruKind::ActiveAnon), RUN);
                        return Step::More;
                    }
                }
                Phase::Slab(_) if !self.asks_shrinkers => return Step::Done(()),
                Phase::Slab(mut slab) => {
                    let demand = self.pressure.demand(mm, sc);
                    let step = slab.step(mm, spaces, cx, (self.node, demand));
                    self.phase = Phase::Slab(slab);
                    return step;
                }
            }
        }
    }

    /// Some of the next list that has something to be scanned (`shrink_lruvec`, `shrink_list`); nothing when the phase has
    /// changed without it.
    fn scan_next(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        sc: &mut ScanControl,
        next: usize,
    ) -> Option<Step<()>> {
        if next == 0 && self.amounts.is_done() {
            self.phase = Phase::Age;
            return None;
        }
        let Some(at) = (next..LruKind::ALL.len()).find(|at| self.amounts.left[*at] > 0) else {
            self.amounts.trim(self.reclaimed, sc, mm.memory.variant().reclaim_trims_again);
            self.phase = if self.amounts.is_over { Phase::Age } else { Phase::Lists { next: 0 } };
            return None;
        };
        let kind = LruKind::ALL[at];
        if !kind.is_active() && self.is_crowded(mm, sc, kind) {
            if !std::mem::replace(&mut self.stalled, true) {
                return Some(Step::Block(Wait::Until(mm.isolated_throttle(cx))));
            }
            if self.zone.is_some() {
                // A reclaimer sleeps while too much is off the lists (`too_many_isolated`).
                return Some(Step::Block(Wait::Until(mm.isolated_throttle(cx))));
            }
            self.amounts.take(at, RUN);
            self.phase = Phase::Lists { next: at + 1 };
            return None;
        }
        self.stalled = false;
        let run = self.amounts.take(at, RUN);
        self.phase = Phase::Lists { next: at + 1 };
        if kind.is_active() {
            if !self.may_age(mm, kind) {
                sc.spared_active |= mm.memory.variant().reclaim_ages_by_pass;
                return None;
            }
            mm.shrink_active_list(spaces, cx, sc, (self.lruvec, kind), run);
            return Some(Step::More);
        }
        mm.lru_add_drain(cx);
        let (met, took) = mm.isolate_folios(cx, (self.lruvec, kind), run, sc.highest, &mut self.taken);
        cx.count(if sc.by == Reclaimer::Kswapd { Event::PgscanKswapd } else { Event::PgscanDirect }, met);
        cx.count(if kind.is_file() { Event::PgscanFile } else { Event::PgscanAnon }, met);
        if let Some(zone) = self.zone {
            mm.begin_zone_list(cx, sc, zone, met);
        }
        mm.lru.lruvec_mut(self.lruvec).recent[usize::from(kind.is_file())].scanned += took;
        sc.met.taken += took;
        if !self.taken.is_empty() {
            self.phase = Phase::Folios { from: at };
        }
        Some(Step::More)
    }

    /// Do others hold more of a kind than is left on the list (`too_many_isolated`)? Kswapd does not mind.
    fn is_crowded(&self, mm: &Mm, sc: &ScanControl, kind: LruKind) -> bool {
        if sc.by == Reclaimer::Kswapd {
            return false;
        }
        let zones = mm.memory.zone_indices().filter(|zone| mm.lru.of_zone(*zone) == self.lruvec);
        let isolated: u64 = zones.map(|zone| mm.lru.zone_isolated(zone, kind.is_file())).sum();
        // Who may write and enter file systems is held back sooner, so that others are not.
        isolated > mm.lru.frames(self.lruvec, kind) >> 3
    }

    fn shrink_taken(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, sc: &mut ScanControl, from: LruKind) {
        let taken = std::mem::take(&mut self.taken);
        let reclaimed = mm.shrink_folio_list(spaces, cx, sc, (self.lruvec, from), &taken, &mut self.tails);
        self.reclaimed += reclaimed;
        if let Some(zone) = self.zone {
            cx.count(by_zone::stolen(sc.by, mm.memory.zone(zone).kind), reclaimed);
        }
    }

    /// Is there too little on the inactive list of a kind, or do pages of files come back too soon? Since 5.5 that is asked
    /// before anything is scanned.
    fn may_age(&self, mm: &Mm, kind: LruKind) -> bool {
        if mm.memory.variant().reclaim_ages_by_pass {
            return self.amounts.may_deactivate[usize::from(kind.is_file())];
        }
        let comes_back = kind.is_file() && mm.comes_back(self.lruvec, true);
        comes_back || mm.inactive_is_low(self.lruvec, kind.is_file())
    }

    /// Notes the state of a zone after folios taken off its lists were looked at; is there something to wait for (the end of
    /// `shrink_inactive_list`, v4.1)?
    fn after_list(&self, mm: &mut Mm, cx: &Cx, sc: &ScanControl) -> Step<()> {
        let wait = self.zone.and_then(|zone| mm.end_zone_list(cx, sc, zone));
        wait.map_or(Step::More, |until| Step::Block(Wait::Until(until)))
    }

    /// The next run of pages of a huge one that was split, the first of it first.
    fn take_tails(&mut self) {
        for _ in 0..RUN {
            let Some(tail) = self.tails.pop() else { return };
            self.taken.push(tail, Order::BASE);
        }
    }

    /// The folios that it holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        let tails = self.tails.iter().map(|tail| Held { pfn: *tail, order: Order::BASE });
        Holdings { off_lru: self.taken.iter().chain(tails).collect(), ..Holdings::default() }
    }

    /// Puts back what it holds.
    pub(crate) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        // Bound: each turn puts some back.
        while !self.taken.is_empty() {
            let lost = mm.put_back_folios(cx, self.lruvec, &std::mem::take(&mut self.taken));
            mm.free_folios(cx, &lost);
            self.take_tails();
        }
        if let Phase::Slab(slab) = &mut self.phase {
            slab.abort(mm, cx);
        }
    }
}

impl Mm {
    /// Is something of what a device was asked for done by an instant?
    fn has_io_due(&self, at: Time) -> bool {
        self.is_swap_io_due(at) || self.is_disk_io_due(at)
    }

    /// Frames of a zone that reclaim could free (`zone_reclaimable_pages`).
    pub(crate) fn reclaimable_frames(&self, zone: ZoneIndex) -> u64 {
        let of = |kind| self.lru.zone_frames(zone, kind);
        let files = of(LruKind::InactiveFile) + of(LruKind::ActiveFile);
        let anon = of(LruKind::InactiveAnon) + of(LruKind::ActiveAnon);
        if self.swap.free() > 0 { files + anon } else { files }
    }
}

#[cfg(test)]
mod tests;
