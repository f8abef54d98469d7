//! Linux: mm/page_reporting.c, virtballoon_free_page_report() in drivers/virtio/virtio_balloon.c ("Provide support for free page
//! reporting" v16, 3 January 2020; v5.7 to v6.1).
//! Differs: the list of reported blocks takes no memory; the work item is a kernel thread of its own, which waits for its time.
//!
//! Tells the host which blocks are free. A pass goes through the free lists of all zones, takes up to 32 blocks off at a time,
//! passes them to the device, waits until the host has discarded them, and puts them back, marked as reported.

use memory::{
    buddy::Block,
    cost::Cause,
    cx::Cx,
    event::Event,
    frame::{Frame, Held, Holdings, NIL},
    news::{Daemon, News},
    pageblock::{MigrateType, ZoneIndex},
    primitive,
    step::{Step, Wait},
    tally::Test,
};
use rules::{variant::ListEnd, zone::ZoneKind};
use units::{NodeId, Order, Picos, Time};

use crate::{
    Mm,
    guest::mistake::{Mistake, Seeded},
};

/// Most blocks that the device takes at a time.
// PAGE_REPORTING_CAPACITY, include/linux/page_reporting.h (v5.7).
pub const CAPACITY: usize = 32;
/// A pass reports one part in this many of a free list.
const PASSES: u64 = 16;

/// How free blocks are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportingSpec {
    /// The smallest blocks that are reported (`page_reporting_order`; `PAGE_REPORTING_MIN_ORDER` is that of a pageblock).
    pub order: Order,
    /// Time from the first free block to the pass that reports it (`PAGE_REPORTING_DELAY`).
    pub delay: Picos,
}

/// Whether a pass is wanted (`PAGE_REPORTING_IDLE` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Requested,
    Active,
}

/// The device, and the progress of the thread's pass (`page_reporting_dev_info`).
#[derive(Clone, Debug)]
pub(crate) struct Reporting {
    spec: ReportingSpec,
    state: State,
    /// When the next pass begins, if one is wanted.
    due: Option<Time>,
    pass: Option<Pass>,
    /// For tests: every n-th report fails, none if 0; and the number of reports.
    fail_every: u64,
    reports: u64,
    /// The smallest part of a list that a pass reported when it left unreported blocks, in millionths.
    least: Option<u64>,
    /// The rule that is broken, for tests.
    pub(crate) seeded: Option<Seeded>,
}

/// A pass through all free lists.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    zone: usize,
    order: Order,
    /// Number of the list among the free lists of its order.
    list: usize,
    /// Blocks that were taken off their lists for the device (`sgl`).
    pub(crate) taken: Vec<Held>,
    /// Reports that this list may still have in this pass; below 0 there are none.
    budget: i64,
    /// Blocks of this list when the pass came to it, and those taken off since.
    cycle: Cycle,
    stage: Stage,
}

/// The effect of a pass on one list.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    nr_free: u64,
    blocks: u64,
    taken: u64,
    reports: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Zone,
    List,
    /// Walk a list from its head.
    Walk,
    /// Wait until the device is done with the blocks. `leftover`: they are the rest at the end of a zone.
    Reported {
        leftover: bool,
        failed: bool,
    },
}

/// The end of a walk over a list.
enum Walked {
    /// The device's list is full.
    Full,
    End,
}

impl Mm {
    /// Whether the device discards nothing, as pages are poisoned (`poison_val`).
    pub(crate) fn device_keeps(&self) -> bool {
        self.memory.is_poison_known() && !self.does_reporter(Mistake::DiscardsPoisoned)
    }

    /// Registers a device that takes reports (`page_reporting_register`). Blocks that are free at that moment are reported
    /// first. Does nothing if freed pages hold a pattern that the device does not know of.
    pub fn register_reporting(&mut self, spec: ReportingSpec, now: Time) {
        if !self.memory.may_report() {
            return;
        }
        for zone in self.memory.zone_indices() {
            self.memory.zone_mut(zone).notify_from(spec.order);
        }
        let (state, due) = (State::Requested, Some(now + spec.delay));
        let (fail_every, reports, least, seeded) = (0, 0, None, None);
        let reporting = Reporting { spec, state, due, pass: None, fail_every, reports, least, seeded };
        self.reporting = Some(Box::new(reporting));
        self.memory.tell(News::Woken(Daemon::Reporter, NodeId(0)));
    }

    /// The smallest part of a list that a pass reported when it left unreported blocks, in millionths; none before such a pass.
    pub fn least_reported(&self) -> Option<u64> {
        self.reporting.as_ref()?.least
    }

    /// Whether there is a device.
    pub fn has_reporting(&self) -> bool {
        self.reporting.is_some()
    }

    /// Makes every n-th report fail: for tests.
    pub fn fail_reports(&mut self, every: u64) {
        self.reporting.as_mut().expect("there is a device").fail_every = every;
    }

    /// Requests a pass, after a step has made a free block that is large enough (`__page_reporting_notify`).
    pub fn notify_reporting(&mut self, now: Time) {
        let Some(reporting) = &mut self.reporting else { return };
        if std::mem::replace(&mut reporting.state, State::Requested) == State::Idle {
            reporting.due = Some(now + reporting.spec.delay);
            self.memory.tell(News::Woken(Daemon::Reporter, NodeId(0)));
        }
    }

    /// Whether the thread only waits for the time of a pass.
    pub fn is_reporter_idle(&self) -> bool {
        self.reporting.as_ref().is_none_or(|reporting| reporting.pass.is_none())
    }

    /// Blocks that the thread holds between two steps.
    pub fn reporter_holdings(&self) -> Holdings {
        let pass = self.reporting.as_ref().and_then(|reporting| reporting.pass.as_ref());
        let isolated = pass.map(|pass| pass.taken.clone()).unwrap_or_default();
        Holdings { isolated, ..Holdings::default() }
    }

    /// Takes a step of the thread, until others may run or the host has something to do (`page_reporting_process`).
    pub fn step_reporter(&mut self, cx: &mut Cx<'_>) -> Step<()> {
        let Some(reporting) = &mut self.reporting else { return Step::Block(Wait::Queue) };
        let mut pass = match (reporting.pass.take(), reporting.due) {
            (Some(pass), _) => pass,
            (None, None) => return Step::Block(Wait::Queue),
            (None, Some(due)) if cx.now() < due => return Step::Block(Wait::Until(due)),
            (None, Some(_)) => {
                (reporting.state, reporting.due) = (State::Active, None);
                Pass::new(reporting.spec.order)
            }
        };
        match self.step_pass(cx, &mut pass) {
            Step::Done(()) => self.end_reporting(cx),
            step => {
                self.reporting.as_mut().expect("there is a device").pass = Some(pass);
                step
            }
        }
    }

    /// Ends a pass: all zones are done, or a report failed.
    fn end_reporting(&mut self, cx: &Cx<'_>) -> Step<()> {
        let reporting = self.reporting.as_mut().expect("there is a device");
        match reporting.state {
            State::Requested => {
                let due = cx.now() + reporting.spec.delay;
                reporting.due = Some(due);
                Step::Block(Wait::Until(due))
            }
            State::Active | State::Idle => {
                reporting.state = State::Idle;
                Step::Block(Wait::Queue)
            }
        }
    }

    fn step_pass(&mut self, cx: &mut Cx<'_>, pass: &mut Pass) -> Step<()> {
        // Bound: each turn is done with a list, or ends the step.
        loop {
            match pass.stage {
                Stage::Zone if pass.zone == self.memory.zones().len() => return Step::Done(()),
                Stage::Zone => {
                    pass.order = self.reporting_order();
                    pass.list = 0;
                    pass.stage = Stage::List;
                    let (at, can_spare) = (ZoneIndex::at(pass.zone), self.can_spare_reports(ZoneIndex::at(pass.zone)));
                    if !cx.test(Test::ReportRoom, self.memory.zone(at).name(), can_spare) {
                        pass.zone += 1;
                        pass.stage = Stage::Zone;
                    }
                }
                Stage::List => self.enter_list(cx, pass),
                Stage::Walk if pass.order > self.memory.max_order() => {
                    // All lists of the zone.
                    if !pass.taken.is_empty() {
                        return self.report(cx, pass, true);
                    }
                    pass.zone += 1;
                    pass.stage = Stage::Zone;
                    return Step::More;
                }
                Stage::Walk => {
                    let zone = ZoneIndex::at(pass.zone);
                    self.memory.zone_mut(zone).lock(cx);
                    let step = self.walk_list(cx, pass);
                    self.memory.zone_mut(zone).unlock(cx);
                    match step {
                        Walked::Full => return self.report(cx, pass, false),
                        Walked::End => self.leave_list(cx, pass),
                    }
                }
                Stage::Reported { leftover, failed } => {
                    let zone = ZoneIndex::at(pass.zone);
                    self.memory.zone_mut(zone).lock(cx);
                    self.err_after_report(cx, pass);
                    self.drain_reported(cx, pass, !failed || self.does_reporter(Mistake::MarksWhatFailed));
                    self.memory.zone_mut(zone).unlock(cx);
                    match (failed, leftover) {
                        (true, _) => return Step::Done(()),
                        (false, true) => {
                            pass.zone += 1;
                            pass.stage = Stage::Zone;
                        }
                        (false, false) => pass.stage = Stage::Walk,
                    }
                }
            }
        }
    }

    fn reporting_order(&self) -> Order {
        self.reporting.as_ref().expect("there is a device").spec.order
    }

    /// Whether a zone is far enough above its Low mark for the blocks of a report (`page_reporting_process_zone`).
    fn can_spare_reports(&self, zone: ZoneIndex) -> bool {
        let state = self.memory.zone(zone);
        let taken = (CAPACITY as u64) << self.reporting_order().0;
        let mark = state.marks.low.0 + state.boost + taken;
        self.memory.has_above(zone, Order::BASE, mark, ZoneKind::Dma)
    }

    /// Goes to the next list that is not empty, or behind the last.
    fn enter_list(&mut self, cx: &mut Cx<'_>, pass: &mut Pass) {
        let zone = self.memory.zone(ZoneIndex::at(pass.zone));
        pass.stage = Stage::Walk;
        // Bound: so many lists.
        while pass.order <= zone.max_order() {
            let of_type = MigrateType::from_index(pass.list);
            let (nr_free, list) = (zone.nr_free(pass.order), zone.free_list(pass.order, of_type));
            let has_blocks = of_type != MigrateType::Isolate && !list.is_empty();
            if cx.test(Test::ReportBlocks, zone.name(), has_blocks) {
                let per_report = CAPACITY as u64 * PASSES;
                pass.budget = i64::try_from(nr_free.div_ceil(per_report)).expect("fewer than 2^63 blocks");
                pass.cycle = Cycle { nr_free, blocks: list.len().into(), ..Cycle::default() };
                return;
            }
            pass.next_list();
        }
    }

    /// Leaves a list, and notes the part of it that was reported.
    fn leave_list(&mut self, cx: &mut Cx<'_>, pass: &mut Pass) {
        let cycle = pass.cycle;
        if self.memory.variant().reporting_has_budget {
            let is_short = pass.budget < 0 && cycle.taken * PASSES < cycle.blocks;
            cx.count(Event::SimReportListsShort, is_short.into());
            if pass.budget < 0 {
                let part = cycle.taken * 1_000_000 / cycle.blocks;
                let reporting = self.reporting.as_mut().expect("there is a device");
                reporting.least = Some(reporting.least.map_or(part, |least| least.min(part)));
            }
            let most = cycle.nr_free.div_ceil(CAPACITY as u64 * PASSES) + 1;
            cx.count(Event::SimReportsBeyondBudget, cycle.reports.saturating_sub(most));
        }
        pass.next_list();
        pass.stage = Stage::List;
    }

    /// Takes unreported blocks off a list, from its head on, under the zone's lock (`page_reporting_cycle`).
    fn walk_list(&mut self, cx: &mut Cx<'_>, pass: &mut Pass) -> Walked {
        let (order, zone) = (pass.order, ZoneIndex::at(pass.zone));
        let (rotates, has_budget) =
            (self.memory.variant().reporting_rotates, self.memory.variant().reporting_has_budget);
        let list = MigrateType::from_index(pass.list);
        let mut next = self.memory.zone(zone).free_list(order, list).first();
        let mut seen = 0;
        let mut end = Walked::End;
        // Bound: the list's length.
        while let Some(pfn) = next {
            seen += 1;
            next = Some(self.memory.frames.links(pfn).next).filter(|next| *next != NIL);
            if self.memory.frames.is_reported(pfn) {
                continue;
            }
            let block = Block { pfn, order };
            if has_budget && pass.budget < 0 {
                self.reporting.as_mut().expect("there is a device").state = State::Requested;
                if rotates {
                    self.rotate_to(zone, block);
                }
                break;
            }
            if rotates && pass.taken.len() == CAPACITY {
                self.rotate_to(zone, block);
                end = Walked::Full;
                break;
            }
            let stays = self.does_reporter(Mistake::LeavesOnList);
            if !stays && !self.memory.isolate_free_block(cx, zone, block) {
                if rotates {
                    self.rotate_to(zone, block);
                }
                break;
            }
            if !stays {
                self.memory.isolate(cx, pfn, order);
            }
            pass.taken.push(Held { pfn, order });
            pass.cycle.taken += 1;
            if !rotates && pass.taken.len() == CAPACITY {
                end = Walked::Full;
                break;
            }
        }
        primitive::read_free_blocks(cx, seen);
        cx.test(Test::ReportUnreported, self.memory.zone(zone).name(), !pass.taken.is_empty());
        end
    }

    /// Makes a block the head of its list.
    fn rotate_to(&mut self, zone: ZoneIndex, block: Block) {
        self.memory.rotate_free(zone, block);
    }

    /// Passes the blocks to the device, and waits until the host has discarded them (`virtballoon_free_page_report`).
    fn report(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, leftover: bool) -> Step<()> {
        let reporting = self.reporting.as_mut().expect("there is a device");
        reporting.reports += 1;
        let failed = reporting.fail_every > 0 && reporting.reports.is_multiple_of(reporting.fail_every);
        pass.budget -= 1;
        pass.cycle.reports += 1;
        self.err_before_report(cx, pass, failed);
        let keeps = self.device_keeps();
        let (mut pages, mut is_done) = (0, true);
        if !failed {
            for held in &pass.taken {
                pages += u64::from(held.order.frames());
                is_done &= keeps || self.memory.discard_by_host(cx, held.pfn, held.order);
            }
        }
        cx.test(Test::ReportTaken, self.memory.zone(ZoneIndex::at(pass.zone)).name(), !failed);
        cx.count(Event::SimPageReports, 1);
        cx.count(Event::SimPagesReported, pages);
        pass.stage = Stage::Reported { leftover, failed };
        if !is_done {
            // The host wakes the thread.
            return Step::Block(Wait::Queue);
        }
        let discards = if keeps { 0 } else { pass.taken.len() as u64 };
        let takes = primitive::host_report_takes(cx, discards);
        cx.count(Event::SimHostGivesBackNs, takes.as_nanos());
        Step::Block(Wait::Io { until: cx.now() + takes, cause: Cause::Host })
    }

    /// Puts the blocks back, and marks those that have not merged (`page_reporting_drain`).
    pub(crate) fn drain_reported(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, reported: bool) {
        let Self { memory, reporting, .. } = self;
        let makes = |mistake| reporting.as_ref().is_some_and(|reporting| reporting.makes(mistake));
        let zone = ZoneIndex::at(pass.zone);
        // It was filled from its end, and is emptied from its beginning.
        for Held { pfn, order } in pass.taken.drain(..).rev() {
            if makes(Mistake::LeavesOnList) {
                continue;
            }
            let of_block = memory.frames.blocks.migrate_type(pfn);
            let list = if makes(Mistake::PutsBackOnOtherList) { Mistake::other_list(of_block) } else { of_block };
            memory.frames.set(pfn, Frame::Interior);
            let end = (memory.variant().moved_end == ListEnd::Tail).then_some(ListEnd::Tail);
            let notifies = makes(Mistake::NotifiesItself);
            memory.put_back_reported(cx, zone, Block { pfn, order }, (list, end), notifies);
            if reported && memory.frames.is_free(pfn, order) {
                memory.frames.set_reported(pfn, order);
            } else if reported && makes(Mistake::MarksMerged) {
                let sizes = (order.0..=memory.max_order().0).map(|order| (pfn.align_down(Order(order)), Order(order)));
                let merged = sizes.into_iter().find(|(pfn, order)| memory.frames.is_free(*pfn, *order));
                if let Some((pfn, order)) = merged {
                    memory.frames.set_reported(pfn, order);
                }
            }
        }
    }
}

impl Pass {
    fn new(order: Order) -> Self {
        let (zone, list, budget, cycle) = (0, 0, 0, Cycle::default());
        Self { zone, order, list, taken: Vec::with_capacity(CAPACITY), budget, cycle, stage: Stage::Zone }
    }

    fn next_list(&mut self) {
        self.list += 1;
        if self.list == MigrateType::COUNT {
            (self.list, self.order) = (0, Order(self.order.0 + 1));
        }
    }
}

#[cfg(test)]
mod tests;
