//! Linux: isolate_lru_pages(), shrink_inactive_list(), shrink_page_list() and shrink_active_list() in mm/vmscan.c (v4.18), when
//! nothing can be reclaimed.
//! Differs: several steps of a pass over such lists are one, as long as no other task or CPU has a turn between them.
//!
//! If all anonymous folios of a node are pinned and unused, each scan has the same result: a huge page becomes active, as it
//! cannot be split; a base page of the swap cache stays. The steps here do what a pass of reclaim does, at the same prices and
//! in the same order, but on a compact copy of the lists (`lru/quiet.rs`).

use memory::{
    cx::Cx,
    event::Event,
    frame::{Frame, FrameFlag, SpaceId},
    lru_kind::LruKind,
    primitive,
    step::RUN,
};
use rules::variant::LruBy;
use units::{CpuId, Pfn};

use super::{NodeScan, Phase, Reclaimer, ScanControl};
use crate::{
    Mm, Spaces,
    folio::lru::{Quiet, QuietFolio, QuietLists},
    reclaim::shrinker::SlabScan,
    space::page_table::Pmd,
};

/// The result of a try to take a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// A step was taken, or two in a row.
    Taken,
    /// The pass goes on to another list, or ends.
    Passed,
    /// The step is left to the ordinary code.
    Left,
}

impl NodeScan {
    /// Takes the steps of this pass over quiet lists until others may run; returns whether there was one.
    pub(super) fn scan_quiet(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, sc: &mut ScanControl) -> bool {
        if !matches!(self.phase, Phase::Lists { .. }) || cx.now() >= cx.alone_until() || self.zone.is_some() {
            return false;
        }
        let lruvec = self.lruvec;
        let Some(mut quiet) = mm.quiet_lists(spaces, cx, lruvec, sc) else { return false };
        let mut is_any = false;
        // Bound: each turn takes from the frames to be scanned, or ends the pass.
        while self.lruvec == lruvec && !(is_any && mm.has_to_let_run(cx)) {
            match self.quiet_turn(mm, cx, sc, &mut quiet.lists) {
                Turn::Taken => is_any = true,
                Turn::Passed => {}
                Turn::Left => break,
            }
        }
        mm.lru.settle(&mut mm.memory.frames, lruvec, &mut quiet.lists);
        mm.lru.lruvec_mut(lruvec).quiet = Some(quiet);
        is_any
    }

    /// Does a turn of [`Self::scan_next`] on these lists, and the steps after it.
    fn quiet_turn(&mut self, mm: &mut Mm, cx: &mut Cx, sc: &mut ScanControl, lists: &mut QuietLists) -> Turn {
        let next = match self.phase {
            Phase::Lists { next: 0 } if self.amounts.is_done() => return self.quiet_end(mm, cx, sc, lists),
            Phase::Lists { next } => next,
            Phase::Age => return self.quiet_end(mm, cx, sc, lists),
            Phase::Count | Phase::Folios { .. } | Phase::Slab(_) => return Turn::Left,
        };
        let Some(at) = (next..LruKind::ALL.len()).find(|at| self.amounts.left[*at] > 0) else {
            self.amounts.trim(self.reclaimed, sc, mm.memory.variant().reclaim_trims_again);
            self.phase = if self.amounts.is_over { Phase::Age } else { Phase::Lists { next: 0 } };
            return Turn::Passed;
        };
        let kind = LruKind::ALL[at];
        let run = self.amounts.left[at].min(RUN);
        if kind.is_file() || (!kind.is_active() && !mm.has_time_to_isolate(cx, lists.count_last(false, run))) {
            return Turn::Left;
        }
        self.stalled = false;
        self.amounts.take(at, RUN);
        self.phase = Phase::Lists { next: at + 1 };
        if !kind.is_active() {
            mm.look_at_quiet(cx, sc, (self.lruvec, lists), run);
            return Turn::Taken;
        }
        if !self.may_age_quiet(mm, lists) {
            sc.spared_active |= mm.memory.variant().reclaim_ages_by_pass;
            return Turn::Passed;
        }
        mm.age_quiet(cx, (self.lruvec, lists), run);
        Turn::Taken
    }

    /// [`Self::may_age`] of anonymous memory.
    fn may_age_quiet(&self, mm: &Mm, lists: &QuietLists) -> bool {
        let by_pass = mm.memory.variant().reclaim_ages_by_pass;
        if by_pass { self.amounts.may_deactivate[0] } else { mm.is_low(self.lruvec, lists.frames, false) }
    }

    /// [`Phase::Age`].
    fn quiet_end(&mut self, mm: &mut Mm, cx: &mut Cx, sc: &mut ScanControl, lists: &mut QuietLists) -> Turn {
        let lruvec = self.lruvec;
        sc.reclaimed += self.reclaimed;
        self.lruvec += 1;
        self.phase = if self.lruvec < self.end { Phase::Count } else { Phase::Slab(SlabScan::default()) };
        if mm.is_low(lruvec, lists.frames, false) {
            mm.age_quiet(cx, (lruvec, lists), RUN);
            return Turn::Taken;
        }
        Turn::Passed
    }
}

impl Mm {
    /// The anonymous lists, if none of their folios can be reclaimed and nothing is about to change that.
    fn quiet_lists(&mut self, spaces: &Spaces, cx: &Cx, lruvec: usize, sc: &ScanControl) -> Option<Box<Quiet>> {
        let of = &self.lru.lruvecs()[lruvec];
        if !self.pins.has_any || (of.quiet.is_none() && !of.patience.is_over()) {
            return None;
        }
        let is_plain = self.memory.variant().lru_by == LruBy::Node
            && self.memory.variant().inactive_by_lists
            && !self.memory.variant().slab_by_scanned
            && self.swap.is_on()
            && self.batch_goes_elsewhere(cx.cpu(), lruvec)
            && self.zones_of(lruvec).all(|zone| self.lru.zone_isolated(zone, false) == 0)
            && self.is_cost_settled(lruvec);
        if !is_plain {
            return None;
        }
        let known = self.lru.lruvec_mut(lruvec).quiet.take();
        let known = known.filter(|quiet| self.is_still_quiet(spaces, lruvec, quiet));
        let quiet = known.or_else(|| self.find_quiet(spaces, lruvec))?;
        if quiet.lists.highest > sc.highest {
            self.lru.lruvec_mut(lruvec).quiet = Some(quiet);
            return None;
        }
        Some(quiet)
    }

    fn is_still_quiet(&self, spaces: &Spaces, lruvec: usize, quiet: &Quiet) -> bool {
        let changes = |id| spaces.get(id).map(|space| space.tables.huge_changes());
        self.lru.knows(lruvec, &quiet.lists)
            && quiet.pins_lost == self.pins.lost
            && quiet.mapped_by.iter().all(|(id, then)| changes(*id) == Some(*then))
    }

    /// Checks all folios of both lists, if the check is due.
    fn find_quiet(&mut self, spaces: &Spaces, lruvec: usize) -> Option<Box<Quiet>> {
        let of = &self.lru.lruvecs()[lruvec];
        let folios = of.list(LruKind::InactiveAnon).len() + of.list(LruKind::ActiveAnon).len();
        if folios == 0 || !of.patience.is_over() {
            return None;
        }
        let found = self.survey_quiet(spaces, lruvec);
        self.lru.lruvec_mut(lruvec).patience.learn(found.is_some(), folios);
        found.map(Box::new)
    }

    fn survey_quiet(&self, spaces: &Spaces, lruvec: usize) -> Option<Quiet> {
        let lists = QuietLists::new(self.lru.moves(lruvec));
        let mut quiet = Quiet { lists, mapped_by: Vec::new(), pins_lost: self.pins.lost };
        for is_active in [false, true] {
            let list = self.lru.lruvecs()[lruvec].list(LruKind::of(false, is_active));
            let mut next = list.first();
            for _ in 0..list.len() {
                let head = next?;
                let (folio, space) = self.quiet_folio(spaces, head, is_active)?;
                if let Some(id) = space
                    && !quiet.mapped_by.iter().any(|(known, _)| *known == id)
                {
                    quiet.mapped_by.push((id, spaces.get(id)?.tables.huge_changes()));
                }
                let links = self.memory.frames.links(head);
                quiet.lists.add(folio, self.memory.zone(folio.zone).kind, links, is_active);
                next = Some(links.next);
            }
        }
        Some(quiet)
    }

    /// A folio of which a scan changes only the place, and the process that maps it; none if the folio is not like that.
    fn quiet_folio(&self, spaces: &Spaces, head: Pfn, is_active: bool) -> Option<(QuietFolio, Option<SpaceId>)> {
        let is_free_of = |flag| !self.memory.frames.has(head, flag);
        if !self.is_pinned(head)
            || ![FrameFlag::Dropped, FrameFlag::Locked, FrameFlag::Referenced].into_iter().all(is_free_of)
        {
            return None;
        }
        let Frame::Anon { vpn, order, .. } = self.memory.frames.get(head) else { return None };
        let (zone, frames, mapped) = (self.zone_position(head), order.frames(), self.folio_mappings(head));
        let slot = self.swap.slot_of(head);
        if frames == 1 {
            // No process maps the page, and it cannot be freed (`is_page_cache_freeable`).
            let stays = mapped == 0 && !is_active && slot.is_some() && !self.swap.is_writeback(head);
            return stays.then_some((QuietFolio { head, zone, frames, entries: 0, activates: false }, None));
        }
        if mapped != 1 || slot.is_some() || self.can_split(head) || !self.swap.is_workingset(head) {
            return None;
        }
        let mapping = *spaces.mappings(self, head).first()?;
        let space = spaces.get(mapping.space)?;
        let Pmd::Huge(huge) = space.tables.pmd_of(vpn) else { return None };
        let activates = !self.memory.variant().reclaim_keeps_pinned;
        let is_unused = huge.pfn() == head && !huge.is_accessed();
        is_unused.then_some((QuietFolio { head, zone, frames, entries: 1, activates }, Some(mapping.space)))
    }

    /// Whether all new folios of a CPU are for other lists than these. Then draining them, which a scan does first, leaves these
    /// lists unchanged.
    fn batch_goes_elsewhere(&self, cpu: CpuId, lruvec: usize) -> bool {
        let is_for_others = |head: &Pfn| {
            !self.memory.frames.has(*head, FrameFlag::Dropped) && self.lru.of_zone(self.zone_position(*head)) != lruvec
        };
        self.lru.batch(cpu).iter().all(is_for_others)
    }

    /// Whether a step over other lists, by any CPU, or the end of a request to a device may come first.
    fn has_to_let_run(&self, cx: &Cx) -> bool {
        cx.now() >= cx.alone_until() || self.has_io_due(cx.now())
    }

    /// Whether it is certain that `folios` folios can leave a list before others may run.
    fn has_time_to_isolate(&self, cx: &Cx, folios: u64) -> bool {
        let at = cx.now() + self.lru.isolation_takes_at_most(cx, folios);
        at < cx.alone_until() && !self.has_io_due(at)
    }

    /// Isolates folios from the inactive list, scans them and puts them back: [`NodeScan::scan_next`] and, a step later,
    /// [`Mm::shrink_folio_list`].
    fn look_at_quiet(
        &mut self,
        cx: &mut Cx,
        sc: &mut ScanControl,
        (lruvec, lists): (usize, &mut QuietLists),
        run: u64,
    ) {
        self.lru_add_drain(cx);
        let taken = self.lru.take_quiet(cx, lists, (false, run));
        let took = taken.frames();
        cx.count(if sc.by == Reclaimer::Kswapd { Event::PgscanKswapd } else { Event::PgscanDirect }, took);
        cx.count(Event::PgscanAnon, took);
        self.lru.lruvec_mut(lruvec).recent[0].scanned += took;
        sc.met.taken += took;
        if took == 0 {
            return;
        }
        primitive::scan_folios(cx, taken.folios());
        primitive::scan_ptes(cx, taken.entries());
        if self.memory.variant().split_counts_each {
            // Each huge folio, as its entry was read and says that nothing uses it.
            (0..taken.entries()).for_each(|_| primitive::read_frames(cx, units::Order::HUGE));
        }
        let activated = self.lru.return_quiet(cx, lists, (&taken, true));
        sc.scanned += took;
        cx.count(Event::Pgactivate, activated);
        self.lru.lruvec_mut(lruvec).recent[0].rotated += activated;
    }

    /// Moves folios from the active list to the inactive one: [`Mm::shrink_active_list`].
    fn age_quiet(&mut self, cx: &mut Cx, (lruvec, lists): (usize, &mut QuietLists), most: u64) {
        self.lru_add_drain(cx);
        let taken = self.lru.take_quiet(cx, lists, (true, most));
        let took = taken.frames();
        cx.count(Event::Pgrefill, took);
        primitive::scan_folios(cx, taken.folios());
        primitive::scan_ptes(cx, taken.entries());
        if took > 0 {
            self.lru.return_quiet(cx, lists, (&taken, false));
        }
        cx.count(Event::Pgdeactivate, took);
        self.lru.lruvec_mut(lruvec).recent[0].scanned += took;
    }
}

#[cfg(test)]
mod tests;
