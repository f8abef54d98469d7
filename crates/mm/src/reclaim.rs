//! Linux: struct scan_control, shrink_zone() (v4.1) and shrink_node() (v5.9 to v6.1) in mm/vmscan.c.
//! Differs: no memcg, no demotion to other nodes, no proactive reclaim, no generations (MGLRU), no vmpressure, no
//! throttle_vm_writeout(). A huge page that is split counts as its pages, not as one, before 5.8 too.
//!
//! A pass over a node, or over a zone with LRU lists of its own, is data ([`NodeScan`]): each step isolates folios from a list,
//! or decides on the fate of isolated ones, or ages an active list.
//!
//! Floor 4: this room is reclaim, kswapd, shrinkers, and the split of huge pages that reclaim meets. Files here use floors 0 to
//! 3. Begin with `direct.rs` for a task and `kswapd.rs` for the thread.

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
    fact::{Fact, Throttle},
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
pub(crate) use direct::DirectReclaim;

/// The priority at which reclaim begins: each pass scans one frame in 2^12.
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

/// The aims of one reclaim run, and its results so far (`struct scan_control`).
#[expect(clippy::struct_excessive_bools, reason = "switches that do not exclude each other, as the kernel has them")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanControl {
    pub(crate) by: Reclaimer,
    /// The order of the request.
    pub(crate) order: Order,
    /// The highest zone of use: frames of higher zones are not reclaimed (`reclaim_idx`).
    pub(crate) highest: ZoneKind,
    pub(crate) to_reclaim: u64,
    /// Each pass scans one frame in 2^this.
    pub(crate) priority: u8,
    pub(crate) may_write: bool,
    pub(crate) may_swap: bool,
    /// Active lists are aged whatever their size.
    pub(crate) force_deactivate: bool,
    /// An active list was spared.
    pub(crate) spared_active: bool,
    pub(crate) scanned: u64,
    pub(crate) reclaimed: u64,
    /// Numbers of frames by the state that the run met them in.
    pub(crate) met: Met,
    /// All folios met lately on the node are under writeback (`PGDAT_WRITEBACK`).
    pub(crate) meets_writeback: bool,
    /// All files' folios met lately are dirty, and none is under writeback (`PGDAT_DIRTY`).
    pub(crate) meets_dirty: bool,
}

/// Frames that one pass over a node isolated, by state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    pub(crate) taken: u64,
    pub(crate) writeback: u64,
    /// Met again while under writeback.
    pub(crate) immediate: u64,
    /// Dirty or under writeback; dirty and not under writeback; and met again while under writeback.
    pub(crate) dirty: u64,
    pub(crate) unqueued_dirty: u64,
    pub(crate) congested: u64,
    /// Isolated from lists of files.
    pub(crate) file_taken: u64,
}

impl Met {
    /// Adds the counts of one list, but not the isolated frames.
    pub(crate) fn add(&mut self, other: Self) {
        self.writeback += other.writeback;
        self.immediate += other.immediate;
        self.dirty += other.dirty;
        self.unqueued_dirty += other.unqueued_dirty;
        self.congested += other.congested;
    }

    /// Whether all files' frames met are dirty, and none is under writeback (`PGDAT_DIRTY`).
    pub(crate) fn is_all_dirty(&self) -> bool {
        self.unqueued_dirty == self.file_taken
    }

    /// Whether all dirty frames are on their way to the disk, and were met before (`LRUVEC_CONGESTED`).
    pub(crate) fn is_congested(&self) -> bool {
        self.dirty > 0 && self.dirty == self.congested
    }

    /// Whether all frames met are under writeback (`PGDAT_WRITEBACK`).
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

/// A pass over a node, or over one of its zones.
#[derive(Clone, Debug)]
pub(crate) struct NodeScan {
    node: NodeId,
    /// The zone, if the pass is over one.
    zone: Option<ZoneIndex>,
    /// Whether shrinkers are called after the lists.
    pub(crate) asks_shrinkers: bool,
    /// Frames scanned when the pass began, and frames on the lists that it has scanned.
    pressure: Pressure,
    /// Index of the lists being scanned, and one past the last.
    lruvec: usize,
    end: usize,
    amounts: Amounts,
    phase: Phase,
    /// Folios isolated from a list.
    taken: Taken,
    /// Base pages of an isolated huge page that was split.
    tails: Vec<Pfn>,
    /// Frames reclaimed from these lists so far.
    reclaimed: u64,
    /// The pass has waited for other tasks to put back isolated folios.
    stalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Compute how many frames of each list to scan.
    Count,
    /// Scan the lists in turn, from this one on.
    Lists { next: usize },
    /// Decide on the isolated folios of this list.
    Folios { from: usize },
    /// Age the active list of anonymous memory, if needed.
    Age,
    /// Call the shrinkers, once for the node.
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

    /// The node of the pass.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Takes a step; done when the pass is over (`shrink_node`, without the decision about another pass).
    pub(crate) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, sc: &mut ScanControl) -> Step<()> {
        mm.complete_swap_io(cx);
        mm.complete_disk_io(cx);
        // Bound: each turn goes to the next list, or takes from the frames to be scanned.
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

    /// Scans a part of the next list (`shrink_lruvec`, `shrink_list`); none if only the phase has changed.
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
                return Some(self.sleep_crowded(mm, cx, kind));
            }
            if self.zone.is_some() {
                // A reclaimer sleeps while too many folios are isolated (`too_many_isolated`).
                return Some(self.sleep_crowded(mm, cx, kind));
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

    /// Whether more frames of a kind are isolated than are left on the list (`too_many_isolated`). kswapd is exempt.
    fn is_crowded(&self, mm: &Mm, sc: &ScanControl, kind: LruKind) -> bool {
        if sc.by == Reclaimer::Kswapd {
            return false;
        }
        // A task that may write and enter file systems is held back sooner, so that other tasks are not.
        let (isolated, limit) = self.isolated(mm, kind);
        isolated > limit
    }

    /// The isolated frames of a kind, and how many may be: an eighth of the list.
    fn isolated(&self, mm: &Mm, kind: LruKind) -> (u64, u64) {
        let zones = mm.memory.zone_indices().filter(|zone| mm.lru.of_zone(*zone) == self.lruvec);
        let isolated: u64 = zones.map(|zone| mm.lru.zone_isolated(zone, kind.is_file())).sum();
        (isolated, mm.lru.frames(self.lruvec, kind) >> 3)
    }

    /// Sleeps because too many frames are isolated.
    fn sleep_crowded(&self, mm: &Mm, cx: &mut Cx, kind: LruKind) -> Step<()> {
        let until = mm.isolated_throttle(cx);
        cx.fact(|| {
            let (has, limit) = self.isolated(mm, kind);
            Fact::Throttled { by: Throttle::Isolated, has, limit, until }
        });
        Step::Block(Wait::Until(until))
    }

    fn shrink_taken(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, sc: &mut ScanControl, from: LruKind) {
        let taken = std::mem::take(&mut self.taken);
        let reclaimed = mm.shrink_folio_list(spaces, cx, sc, (self.lruvec, from), &taken, &mut self.tails);
        self.reclaimed += reclaimed;
        if let Some(zone) = self.zone {
            cx.count(by_zone::stolen(sc.by, mm.memory.zone(zone).kind), reclaimed);
        }
    }

    /// Whether the active list of a kind may be aged: its inactive list is too short, or pages of files are refaulted too soon.
    /// Since 5.5 this is decided before the scan.
    fn may_age(&self, mm: &Mm, kind: LruKind) -> bool {
        if mm.memory.variant().reclaim_ages_by_pass {
            return self.amounts.may_deactivate[usize::from(kind.is_file())];
        }
        let comes_back = kind.is_file() && mm.comes_back(self.lruvec, true);
        comes_back || mm.inactive_is_low(self.lruvec, kind.is_file())
    }

    /// Notes the state of a zone after the isolated folios of its list were handled; returns a wait if there is something to
    /// wait for (the end of `shrink_inactive_list`, v4.1).
    fn after_list(&self, mm: &mut Mm, cx: &mut Cx, sc: &ScanControl) -> Step<()> {
        let wait = self.zone.and_then(|zone| mm.end_zone_list(cx, sc, zone));
        wait.map_or(Step::More, |until| Step::Block(Wait::Until(until)))
    }

    /// Takes the next run of base pages of a huge page that was split, in order.
    fn take_tails(&mut self) {
        for _ in 0..RUN {
            let Some(tail) = self.tails.pop() else { return };
            self.taken.push(tail, Order::BASE);
        }
    }

    /// The folios that the pass holds between two steps.
    pub(crate) fn holdings(&self) -> Holdings {
        let tails = self.tails.iter().map(|tail| Held { pfn: *tail, order: Order::BASE });
        Holdings { off_lru: self.taken.iter().chain(tails).collect(), ..Holdings::default() }
    }

    /// Puts back the folios that the pass holds.
    pub(crate) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        // Bound: each turn puts some folios back.
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
    /// Whether a request to a device ends by `at`.
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
