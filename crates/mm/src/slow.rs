//! Linux: __alloc_pages_slowpath() in mm/page_alloc.c (v4.1 to v6.1).
//! Differs: kernels before 4.1 go in its order too; no reserves for reclaimers (`ALLOC_NO_WATERMARKS`); a task that the OOM
//! killer has killed (before 4.14 one of its threads) may use half of the Min mark, not all of it.
//!
//! Phases have numbers in the order of the kernel's function; `fixed.rs` has the order of kernels before 4.8. 0 to 2 are part of
//! [`memory::Memory::alloc`]: kswapd is woken, and the zones are tried down to Min. A step of an operation that still has no
//! memory then *asks* for it ([`Shortage`]), undoes nothing and stays where it is; its [`Supply`] takes the steps below, and the
//! operation's step is taken again with the block in its hand.
//!
//! Floor 4: this room is the slow path of a request, stalls (`stall.rs`) and the OOM killer (`oom.rs`). Files here use floors 0
//! to 3, reclaim and compaction.

mod fixed;
pub(crate) mod oom;
pub(crate) mod stall;

use memory::{
    alloc::lent::{Given, Shortage},
    cx::Cx,
    fact::{Fact, Throttle},
    frame::{Held, Holdings},
    pageblock::ZoneIndex,
    primitive,
    step::{Step, TICK, Wait},
    tally::Test,
};
use rules::{
    gfp::{AllocRequest, COSTLY, Effort, Mark, Mobility, Urgency},
    variant::{GivesUp, SlowPath},
};
use units::{Order, Pfn, Time};

use crate::{
    Mm, Spaces,
    compact::{CompactPriority, CompactResult, Compacted, DirectCompact},
    guest::balloon::Leak,
    reclaim::DirectReclaim,
};

/// Reclaims without progress after which the slow path stops.
// MAX_RECLAIM_RETRIES, mm/internal.h (v6.1).
const RECLAIM_RETRIES_MAX: u32 = 16;
/// Most retries of compaction; a quarter of that for costly orders.
// MAX_COMPACT_RETRIES, mm/page_alloc.c (v6.1).
const COMPACT_RETRIES_MAX: u32 = 16;

/// Whether a large request that compacted first fails after this result of compaction.
fn gives_up(rule: GivesUp, control: &AllocControl, pageblock: Order, came_to: CompactResult) -> bool {
    let request = &control.request;
    let is_whole = request.order >= pageblock && request.effort != Effort::RetriesHard;
    if rule == GivesUp::WholeBlocks && request.order == pageblock && request.no_retry && !control.is_kthread {
        return true;
    }
    match came_to {
        CompactResult::Deferred => request.no_retry || (rule == GivesUp::Pageblocks && is_whole),
        CompactResult::Skipped => match rule {
            GivesUp::Deferred | GivesUp::WholeBlocks => false,
            GivesUp::Pageblocks => is_whole,
            GivesUp::NotBegun => request.no_retry,
        },
        _ => false,
    }
}

/// The slow path of one allocation.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as the kernel has them")]
pub struct AllocControl {
    /// The request as its caller made it.
    asked: AllocRequest,
    pub(super) request: AllocRequest,
    phase: Phase,
    /// The priority of the next compaction.
    priority: CompactPriority,
    /// The result of the last compaction.
    compacted: CompactResult,
    /// Reclaims in a row that freed nothing.
    no_progress: u32,
    /// Compactions that made progress.
    compactions: u32,
    /// Frames reclaimed in all rounds (up to 4.7).
    reclaimed: u64,
    /// A kernel thread allocates (`PF_KTHREAD`).
    is_kthread: bool,
    /// The task that allocates was killed by the OOM killer.
    pub(super) is_victim: bool,
    /// The request has tried the reserves that OOM victims alone may use.
    has_tried_reserves: bool,
    /// The request has done its async compaction (up to 4.7).
    is_begun: bool,
}

#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and none is moved often")]
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// 2: try once more with everything that the try in [`memory::Memory::alloc`] may have spared.
    Enter,
    /// 2: the request has slept for kswapd, and tries once more.
    Stalled { since: Time },
    /// 3: choose between compaction and reclaim.
    Begin,
    /// 3: compact before the first reclaim.
    CompactFirst(DirectCompact),
    /// 4, 5: try once more, and fail if the request may not reclaim.
    Look,
    /// 6: reclaim.
    Reclaim(DirectReclaim),
    /// 7: compact after reclaim.
    Compact { reclaimed: u64, compact: DirectCompact },
    /// 8 to 10: decide whether another round is worth it.
    Decide { reclaimed: u64 },
    /// 11: the OOM killer.
    Oom,
    /// 11: deflate a balloon instead.
    Leak(Leak),
}

/// Whether another round is worth it.
enum Again {
    AtOnce,
    After(Wait),
    No,
}

/// Where a phase of the slow path leads.
pub(super) type Next = memory::step::Next<Phase, Option<Pfn>>;

impl AllocControl {
    /// The slow path of a kernel thread's request.
    pub(crate) fn new(request: AllocRequest) -> Self {
        Self { is_kthread: true, ..Self::of_task(request) }
    }

    /// The slow path of a task's request.
    pub(crate) fn of_task(request: AllocRequest) -> Self {
        Self {
            asked: request,
            request,
            phase: Phase::Enter,
            priority: CompactPriority::SyncLight,
            compacted: CompactResult::Skipped,
            no_progress: 0,
            compactions: 0,
            reclaimed: 0,
            is_kthread: false,
            is_victim: false,
            has_tried_reserves: false,
            is_begun: false,
        }
    }

    /// Takes a step. The result is the block (`Frame::Kernel`, as from [`memory::Memory::alloc`]), or none if memory is out.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Option<Pfn>> {
        // Bound: phases go forward, and rounds are counted.
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Begin);
            if let Some(step) = self.run_phase(mm, spaces, cx, phase).note(&mut self.phase) {
                return step;
            }
        }
    }

    /// The blocks that the slow path holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.phase {
            Phase::CompactFirst(compact) | Phase::Compact { compact, .. } => compact.holdings(),
            Phase::Reclaim(reclaim) => reclaim.holdings(),
            // Pages that are on their way out of a balloon still belong to it.
            _ => Holdings::default(),
        }
    }

    /// Gives back the blocks that the slow path holds.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::CompactFirst(mut compact) | Phase::Compact { mut compact, .. } => compact.abort(mm, spaces, cx),
            Phase::Reclaim(mut reclaim) => reclaim.abort(mm, cx),
            Phase::Leak(leak) => mm.end_leak(cx, leak),
            Phase::Enter | Phase::Stalled { .. } | Phase::Begin | Phase::Look | Phase::Decide { .. } | Phase::Oom => {}
        }
    }

    fn run_phase(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx, phase: Phase) -> Next {
        let is_fixed = mm.memory.variant().slow_path == SlowPath::Fixed;
        match phase {
            Phase::Enter if memory::alloc::stalls_for_block(&self.request, mm.memory.variant()) => self.stall(mm, cx),
            Phase::Stalled { since } => self.end_stall(mm, cx, since),
            Phase::Enter => Next::Phase(Phase::Begin),
            Phase::Begin if is_fixed => self.begin_fixed(),
            Phase::Begin => self.begin(),
            Phase::CompactFirst(mut compact) => match compact.step(mm, spaces, cx) {
                Step::More => Next::Later(Phase::CompactFirst(compact)),
                Step::Block(wait) => Next::Block(wait, Phase::CompactFirst(compact)),
                Step::Done(came_to) if is_fixed => self.after_first_of_fixed(came_to),
                Step::Done(came_to) => self.after_first_compaction(mm, came_to),
            },
            Phase::Look => self.look(mm, cx),
            Phase::Reclaim(mut reclaim) => match reclaim.step(mm, spaces, cx) {
                Step::More => Next::Later(Phase::Reclaim(reclaim)),
                Step::Block(wait) => Next::Block(wait, Phase::Reclaim(reclaim)),
                Step::Done(reclaimed) => self.after_reclaim(mm, cx, reclaimed),
            },
            Phase::Compact { reclaimed, mut compact } => match compact.step(mm, spaces, cx) {
                Step::More => Next::Later(Phase::Compact { reclaimed, compact }),
                Step::Block(wait) => Next::Block(wait, Phase::Compact { reclaimed, compact }),
                Step::Done(came_to) => {
                    self.compacted = came_to.result;
                    match came_to.block {
                        // Before 4.8 nothing comes after the second compaction.
                        None if !is_fixed => Next::Phase(Phase::Decide { reclaimed }),
                        got => Next::Done(got),
                    }
                }
            },
            Phase::Decide { reclaimed } if is_fixed => self.decide_fixed(mm, cx, reclaimed),
            Phase::Decide { reclaimed } => self.decide(mm, cx, reclaimed),
            Phase::Oom => self.out_of_memory(mm, spaces, cx),
            Phase::Leak(leak) => {
                mm.end_leak(cx, leak);
                self.after_oom(Next::Later(Phase::Look))
            }
        }
    }

    fn is_costly(&self) -> bool {
        self.request.order > COSTLY
    }

    /// 3: requests for huge pages, and unmovable requests for more than one frame, compact first.
    fn begin(&mut self) -> Next {
        let request = &self.request;
        let unmovable = request.order > Order::BASE && request.mobility != Mobility::Movable;
        if request.reclaims && (self.is_costly() || unmovable) {
            return Next::Phase(Phase::CompactFirst(DirectCompact::new(self.request, CompactPriority::Async)));
        }
        Next::Phase(Phase::Look)
    }

    /// 3a, 3b: some requests fail if compaction could not do anything; a request with `__GFP_NORETRY` does not wait in its next
    /// compaction.
    fn after_first_compaction(&mut self, mm: &Mm, came_to: Compacted) -> Next {
        if let Some(block) = came_to.block {
            return Next::Done(Some(block));
        }
        self.compacted = came_to.result;
        if self.request.effort == Effort::OnlyCompacts {
            return Next::Done(None);
        }
        if self.is_costly() {
            if gives_up(mm.memory.variant().slow_gives_up, self, mm.memory.frames.blocks.order(), came_to.result) {
                return Next::Done(None);
            }
            if self.request.no_retry {
                self.priority = CompactPriority::Async;
            }
        }
        Next::Later(Phase::Look)
    }

    fn look(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        primitive::enter_slow_path(cx);
        if self.request.wakes_kswapd {
            mm.memory.wake_for(cx, &self.request);
        }
        if self.is_victim {
            self.request.urgency = Urgency::Victim;
            self.has_tried_reserves = true;
        }
        if let Some(found) = mm.memory.alloc_above_min(cx, &self.request) {
            return Next::Done(Some(found));
        }
        if !self.request.reclaims {
            return Next::Done(None);
        }
        if mm.memory.variant().slow_path == SlowPath::Fixed {
            return Next::Later(Phase::Begin);
        }
        Next::Later(Phase::Reclaim(DirectReclaim::new(self.request)))
    }

    /// 6: reclaimed frames may be on the CPUs' lists, or in HIGHATOMIC pageblocks.
    fn after_reclaim(&mut self, mm: &mut Mm, cx: &mut Cx, reclaimed: u64) -> Next {
        if reclaimed > 0 {
            let found = mm.memory.alloc_above_min(cx, &self.request).or_else(|| {
                mm.memory.unreserve_high_atomic(cx, &self.request, false);
                mm.memory.drain_all_pages(cx);
                mm.memory.alloc_above_min(cx, &self.request)
            });
            if found.is_some() {
                return Next::Done(found);
            }
        }
        if self.request.order == Order::BASE || mm.memory.variant().slow_path == SlowPath::Fixed {
            return Next::Phase(Phase::Decide { reclaimed });
        }
        Next::Later(Phase::Compact { reclaimed, compact: DirectCompact::new(self.request, self.priority) })
    }

    /// 8 to 11: begins another round, calls the OOM killer, or fails.
    fn decide(&mut self, mm: &mut Mm, cx: &mut Cx, reclaimed: u64) -> Next {
        let (node, retries) = (self.request.node, self.request.effort == Effort::RetriesHard);
        if !cx.test(Test::OomRetries, node, !self.request.no_retry)
            || !cx.test(Test::OomCostly, node, !self.is_costly() || retries)
        {
            return Next::Done(None);
        }
        let again = self.should_reclaim_again(mm, cx, reclaimed);
        cx.test(Test::OomReclaim, node, matches!(again, Again::No));
        match again {
            Again::AtOnce => return Next::Later(Phase::Look),
            Again::After(wait) => return Next::Block(wait, Phase::Look),
            Again::No => {}
        }
        if reclaimed > 0 && !cx.test(Test::OomCompact, node, !self.should_compact_again(mm)) {
            return Next::Later(Phase::Look);
        }
        Next::Phase(Phase::Oom)
    }

    /// 11 (`__alloc_pages_may_oom`): tries at the High mark once more, in case a process was killed meanwhile.
    fn out_of_memory(&mut self, mm: &mut Mm, spaces: &Spaces, cx: &mut Cx) -> Next {
        let request = AllocRequest { urgency: Urgency::Normal, ..self.request };
        let found = mm.memory.alloc_above(cx, &request, Mark::High);
        if !cx.test(Test::OomHigh, request.node, found.is_none()) {
            return Next::Done(found);
        }
        // Killing a process would not make a large block, nor memory of one node.
        let helps = !self.is_costly() && request.effort != Effort::RetriesHard && !request.this_node_only;
        if mm.is_leaking_on_oom() {
            // Another task holds `oom_lock`: wait for its result (`__alloc_pages_may_oom`).
            return self.after_oom(self.wait_for_oom(cx));
        }
        if helps && let Some((leak, wait)) = mm.begin_leak_on_oom(cx) {
            return Next::Block(wait, Phase::Leak(leak));
        }
        if !cx.test(Test::OomHelps, request.node, helps) {
            return Next::Done(None);
        }
        let is_killed = mm.out_of_memory(spaces, cx, self.is_victim);
        if !cx.test(Test::OomKills, request.node, is_killed) {
            return Next::Done(None);
        }
        if mm.memory.variant().slow_path == SlowPath::Fixed {
            // Who was killed is given the time to end (`schedule_timeout_killable(1)` in out_of_memory, mm/oom_kill.c, v4.1).
            return self.after_oom(self.wait_for_oom(cx));
        }
        self.after_oom(Next::Later(Phase::Look))
    }

    /// Sleeps a tick while the OOM killer is at work, or its victim ends.
    fn wait_for_oom(&self, cx: &mut Cx) -> Next {
        let tries = (self.no_progress.into(), RECLAIM_RETRIES_MAX.into());
        Next::Block(Wait::Until(Mm::throttled(cx, Throttle::Oom, tries, cx.now() + TICK)), Phase::Look)
    }

    /// Goes on after the OOM killer has done something. A victim that has tried its reserves in vain fails here, as it would
    /// loop forever.
    fn after_oom(&mut self, next: Next) -> Next {
        if self.has_tried_reserves {
            return Next::Done(None);
        }
        self.no_progress = 0;
        next
    }

    /// 9 (`should_reclaim_retry`): whether reclaiming everything could serve the request in some zone, at once or after a pause.
    fn should_reclaim_again(&mut self, mm: &mut Mm, cx: &mut Cx, reclaimed: u64) -> Again {
        self.no_progress = if reclaimed > 0 && !self.is_costly() { 0 } else { self.no_progress + 1 };
        if self.no_progress > RECLAIM_RETRIES_MAX {
            // Before giving up, what is kept for others.
            return if mm.memory.unreserve_high_atomic(cx, &self.request, true) { Again::AtOnce } else { Again::No };
        }
        let request = self.request;
        if !mm.memory.zones_for(&request).into_iter().any(|zone| mm.could_serve(zone, &request)) {
            return Again::No;
        }
        // A task that runs on would keep flushers from running.
        if reclaimed > 0 {
            return Again::AtOnce;
        }
        let (tries, until) = ((self.no_progress.into(), RECLAIM_RETRIES_MAX.into()), cx.now() + TICK);
        Again::After(Wait::Until(Mm::throttled(cx, Throttle::Retry, tries, until)))
    }

    /// 10 (`should_compact_retry`): whether compaction is tried again.
    fn should_compact_again(&mut self, mm: &Mm) -> bool {
        let AllocRequest { order, highest, urgency, .. } = self.request;
        if order == Order::BASE {
            return false;
        }
        match self.compacted {
            // Compaction was skipped: would a part of the reclaimable frames be enough?
            CompactResult::Skipped => {
                let mut zones = mm.memory.zones_for(&self.request).into_iter();
                return zones.any(|zone| mm.could_compact(zone, order, highest, urgency));
            }
            CompactResult::Success => {
                self.compactions += 1;
                let most = if self.is_costly() { COMPACT_RETRIES_MAX / 4 } else { COMPACT_RETRIES_MAX };
                if self.compactions <= most {
                    return true;
                }
            }
            // Compaction was in vain, or did not scan the whole zone.
            CompactResult::Complete
            | CompactResult::PartialSkipped
            | CompactResult::Deferred
            | CompactResult::Contended => {}
        }
        match self.priority.harder(self.is_costly()) {
            Some(harder) => {
                self.priority = harder;
                self.compactions = 0;
                true
            }
            None => false,
        }
    }
}

/// The slow path of an operation whose request the fast path cannot serve. It keeps the block until the operation's step takes
/// it.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    state: State,
    /// The operation's task was killed by the OOM killer.
    is_victim: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Idle,
    /// On the slow path. (Boxed: every task has a supply, and checks it in each step.)
    Busy(Box<AllocControl>),
    /// The slow path has a block for the step that asked.
    Hand(Given),
    /// The slow path has none: that request fails.
    Refused(AllocRequest),
}

const _: () = assert!(size_of::<Supply>() <= 32, "it is in a task's first line of cache");

impl Supply {
    /// Whether the slow path is not used, and holds no answer.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether the slow path takes steps before the operation goes on.
    #[inline]
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy(_))
    }

    /// The order of the request while the slow path takes steps.
    pub fn order(&self) -> Option<Order> {
        match &self.state {
            State::Busy(control) => Some(control.asked.order),
            _ => None,
        }
    }

    /// The mechanism that the slow path is in, for observers.
    pub fn mechanism(&self) -> Option<&'static str> {
        let State::Busy(control) = &self.state else { return None };
        match &control.phase {
            Phase::CompactFirst(_) | Phase::Compact { .. } => Some("direct compaction"),
            Phase::Reclaim(_) => Some("direct reclaim"),
            Phase::Oom => Some("OOM killer"),
            Phase::Leak(_) => Some("balloon"),
            Phase::Enter | Phase::Stalled { .. } | Phase::Begin | Phase::Look | Phase::Decide { .. } => None,
        }
    }

    /// Takes a step of the slow path; done when the operation's step can be taken again.
    ///
    /// # Panics
    /// When the slow path is not busy.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<()> {
        let State::Busy(control) = &mut self.state else { unreachable!("only who is busy takes steps") };
        control.is_victim = self.is_victim;
        match control.step(mm, spaces, cx) {
            Step::More => Step::More,
            Step::Block(wait) => Step::Block(wait),
            Step::Done(Some(pfn)) => {
                let request = control.asked;
                cx.fact(|| Fact::SlowPathEnd { order: request.order, found: true });
                mm.memory.isolate(cx, pfn, request.order);
                self.state = State::Hand(Given { request, pfn });
                Step::Done(())
            }
            Step::Done(None) => {
                let order = control.asked.order;
                cx.fact(|| Fact::SlowPathEnd { order, found: false });
                self.state = State::Refused(control.asked);
                Step::Done(())
            }
        }
    }

    /// Before a step of the operation: gives its context the right to ask, or the slow path's answer.
    #[inline]
    pub fn lend(&mut self, cx: &mut Cx) {
        cx.memory.shortage = Shortage::Ask;
        if !self.is_idle() {
            self.lend_what_there_is(cx);
        }
    }

    #[inline(never)]
    fn lend_what_there_is(&mut self, cx: &mut Cx) {
        match std::mem::take(&mut self.state) {
            State::Idle => {}
            State::Hand(given) => cx.memory.given = Some(given),
            State::Refused(request) => cx.memory.shortage = Shortage::Refused(request),
            State::Busy(_) => unreachable!("the slow path ends first"),
        }
    }

    /// After that step: returns whether it has asked for memory and is to be taken again.
    #[inline]
    pub fn settle(&mut self, mm: &mut Mm, cx: &mut Cx) -> bool {
        if !cx.is_supplied() {
            return false;
        }
        // The step no longer makes this request: free the block.
        if let Some(given) = cx.memory.given.take() {
            mm.memory.free(cx, given.pfn, given.request.order);
        }
        let asked = cx.has_asked();
        if let Shortage::Asked(request) = std::mem::take(&mut cx.memory.shortage) {
            self.state = State::Busy(Box::new(AllocControl::of_task(request)));
        }
        asked
    }

    /// Notes that the operation's task was killed by the OOM killer: it may use memory below the marks until it ends.
    pub fn open_reserves(&mut self) {
        self.is_victim = true;
    }

    /// The blocks that the slow path holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.state {
            State::Idle | State::Refused(_) => Holdings::default(),
            State::Busy(control) => control.holdings(),
            State::Hand(given) => {
                Holdings { isolated: vec![Held { pfn: given.pfn, order: given.request.order }], ..Holdings::default() }
            }
        }
    }

    /// Gives back the blocks that the slow path holds.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::take(&mut self.state) {
            State::Idle | State::Refused(_) => {}
            State::Busy(mut control) => control.abort(mm, spaces, cx),
            State::Hand(given) => mm.memory.free(cx, given.pfn, given.request.order),
        }
    }
}

impl Mm {
    /// Whether a zone could serve a request if all its reclaimable frames were free.
    fn could_serve(&self, zone: ZoneIndex, request: &AllocRequest) -> bool {
        let reclaimable = self.reclaimable_frames(zone);
        self.memory.zone(zone).could_be_ok(request, reclaimable, self.memory.variant())
    }
}

#[cfg(test)]
mod tests;
