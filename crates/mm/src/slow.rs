//! Linux: __alloc_pages_slowpath() in mm/page_alloc.c (v4.1 to v6.1).
//! Differs: kernels before 4.1 go in its order too; no reserves for those who reclaim; who was killed (before 4.14 one of its
//! threads) may have half of what marks keep, and not all.
//!
//! Phases have numbers in the order of the kernel's function; where kernels before 4.8 go on differently, `fixed.rs` has it.
//! 0 to 2 are part of [`Mm::alloc`]: kswapd is woken, and the zones are tried down to Min. A step of an operation that
//! then still has no memory *asks* for it ([`Shortage`]), undoes nothing and stays where it is; its [`Supply`] takes the
//! steps below, and the operation's step is taken again with the block in its hand.
//!
//! Floor 4: this room is the slow path of a request, stalls (`stall.rs`) and the OOM killer (`oom.rs`). Files here use floors
//! 0 to 3, reclaim and compaction.

mod fixed;
pub(crate) mod oom;
pub(crate) mod stall;

use memory::{
    alloc::lent::{Given, Shortage},
    cx::Cx,
    frame::{Held, Holdings},
    pageblock::ZoneIndex,
    primitive,
    step::{Step, TICK, Wait},
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

/// Times without progress after which nothing more is tried.
// MAX_RECLAIM_RETRIES, mm/internal.h (v6.1).
const RECLAIM_RETRIES_MAX: u32 = 16;
/// Times that compaction is tried again; a quarter of them for costly orders.
// MAX_COMPACT_RETRIES, mm/page_alloc.c (v6.1).
const COMPACT_RETRIES_MAX: u32 = 16;

/// Does a large request that compacted first give up now?
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

/// One allocation that the fast path could not serve.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as the kernel has them")]
pub struct AllocControl {
    /// As it was asked for.
    asked: AllocRequest,
    pub(super) request: AllocRequest,
    phase: Phase,
    /// The effort of the next compaction.
    priority: CompactPriority,
    /// The result of the last compaction.
    compacted: CompactResult,
    /// Reclaims in a row that were of no use.
    no_progress: u32,
    /// Compactions that had some effect.
    compactions: u32,
    /// Frames that were reclaimed, in all rounds (up to 4.7).
    reclaimed: u64,
    /// A kernel thread asks (`PF_KTHREAD`).
    is_kthread: bool,
    /// A task asks that is being killed for want of memory.
    pub(super) is_victim: bool,
    /// The request has tried the reserves that only victims may have.
    has_tried_reserves: bool,
    /// The request has compacted without waiting (up to 4.7).
    is_begun: bool,
}

#[expect(clippy::large_enum_variant, reason = "few are alive at a time, and none is moved often")]
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// 2: the look that was part of [`Mm::alloc`] may have spared what others had.
    Enter,
    /// 2: it has slept since then, and looks once more.
    Stalled { since: Time },
    /// 3: which way to begin.
    Begin,
    /// 3: compact, before anything is reclaimed.
    CompactFirst(DirectCompact),
    /// 4, 5: look once more, and give up if this request may not reclaim.
    Look,
    /// 6: reclaim.
    Reclaim(DirectReclaim),
    /// 7: compact, after something was reclaimed.
    Compact { reclaimed: u64, compact: DirectCompact },
    /// 8 to 10: is it worth another round?
    Decide { reclaimed: u64 },
    /// 11: the OOM killer.
    Oom,
    /// 11: a balloon gives pages back instead.
    Leak(Leak),
}

/// Is another round worth it?
enum Again {
    AtOnce,
    After(Wait),
    No,
}

/// Where a phase of the slow path leads.
pub(super) type Next = memory::step::Next<Phase, Option<Pfn>>;

impl AllocControl {
    /// For a kernel thread.
    pub(crate) fn new(request: AllocRequest) -> Self {
        Self { is_kthread: true, ..Self::of_task(request) }
    }

    /// For a task.
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

    /// Goes on until others may run. The block, or nothing when memory is out: `Frame::Kernel`, as from [`Mm::alloc`].
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Option<Pfn>> {
        // Bound: phases go forward, and rounds are counted.
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Begin);
            if let Some(step) = self.run_phase(mm, spaces, cx, phase).note(&mut self.phase) {
                return step;
            }
        }
    }

    /// The blocks that it holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.phase {
            Phase::CompactFirst(compact) | Phase::Compact { compact, .. } => compact.holdings(),
            Phase::Reclaim(reclaim) => reclaim.holdings(),
            // What is on its way out of a balloon is still the balloon's.
            _ => Holdings::default(),
        }
    }

    /// Gives back what it holds.
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
                        // Before 4.8 nothing comes after the second one.
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

    /// 3: huge pages, and what cannot be moved and so should not spread, are compacted for first.
    fn begin(&mut self) -> Next {
        let request = &self.request;
        let unmovable = request.order > Order::BASE && request.mobility != Mobility::Movable;
        if request.reclaims && (self.is_costly() || unmovable) {
            return Next::Phase(Phase::CompactFirst(DirectCompact::new(self.request, CompactPriority::Async)));
        }
        Next::Phase(Phase::Look)
    }

    /// 3a, 3b: some give up where compaction could not do anything, and who asked not to try hard does not wait in the next one.
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

    /// 6: what was reclaimed may be on the lists of CPUs, or kept for others.
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

    /// 8 to 11.
    fn decide(&mut self, mm: &mut Mm, cx: &mut Cx, reclaimed: u64) -> Next {
        if self.request.no_retry || (self.is_costly() && self.request.effort != Effort::RetriesHard) {
            return Next::Done(None);
        }
        match self.should_reclaim_again(mm, cx, reclaimed) {
            Again::AtOnce => Next::Later(Phase::Look),
            Again::After(wait) => Next::Block(wait, Phase::Look),
            Again::No if reclaimed > 0 && self.should_compact_again(mm) => Next::Later(Phase::Look),
            Again::No => Next::Phase(Phase::Oom),
        }
    }

    /// 11 (`__alloc_pages_may_oom`): a last look, for the case that a process has been killed meanwhile.
    fn out_of_memory(&mut self, mm: &mut Mm, spaces: &Spaces, cx: &mut Cx) -> Next {
        let request = AllocRequest { urgency: Urgency::Normal, ..self.request };
        if let Some(found) = mm.memory.alloc_above(cx, &request, Mark::High) {
            return Next::Done(Some(found));
        }
        // One process less would not make a large block, nor memory of one node.
        let helps = !self.is_costly() && request.effort != Effort::RetriesHard && !request.this_node_only;
        if mm.is_leaking_on_oom() {
            // Another task has `oom_lock`: wait for the result (`__alloc_pages_may_oom`).
            return self.after_oom(Next::Block(Wait::Until(cx.now() + TICK), Phase::Look));
        }
        if helps && let Some((leak, wait)) = mm.begin_leak_on_oom(cx) {
            return Next::Block(wait, Phase::Leak(leak));
        }
        if !helps || !mm.out_of_memory(spaces, cx, self.is_victim) {
            return Next::Done(None);
        }
        if mm.memory.variant().slow_path == SlowPath::Fixed {
            // Who was killed is given the time to end (`schedule_timeout_killable(1)` in out_of_memory, mm/oom_kill.c, v4.1).
            return self.after_oom(Next::Block(Wait::Until(cx.now() + TICK), Phase::Look));
        }
        self.after_oom(Next::Later(Phase::Look))
    }

    /// Something is to be expected. Who has looked at what only victims may have would look for ever.
    fn after_oom(&mut self, next: Next) -> Next {
        if self.has_tried_reserves {
            return Next::Done(None);
        }
        self.no_progress = 0;
        next
    }

    /// 9 (`should_reclaim_retry`): could reclaiming everything help some zone? Perhaps after a while.
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
        // Who runs on and on would keep those from running who make pages clean.
        if reclaimed == 0 { Again::After(Wait::Until(cx.now() + TICK)) } else { Again::AtOnce }
    }

    /// 10 (`should_compact_retry`).
    fn should_compact_again(&mut self, mm: &Mm) -> bool {
        let AllocRequest { order, highest, urgency, .. } = self.request;
        if order == Order::BASE {
            return false;
        }
        match self.compacted {
            // It could not begin: would a part of what can be reclaimed be enough?
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
            // In vain, or not to the end.
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

/// The slow path of an operation whose request the fast path does not serve: it keeps the block until the operation's step
/// takes it.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    state: State,
    /// The operation's task is being killed for want of memory.
    is_victim: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Idle,
    /// On the slow path. (In a box: every task has a supply, and looks at it in each step.)
    Busy(Box<AllocControl>),
    /// With a block for the step that asked.
    Hand(Given),
    /// Without: that request fails.
    Refused(AllocRequest),
}

const _: () = assert!(size_of::<Supply>() <= 32, "it is in a task's first line of cache");

impl Supply {
    /// Has it nothing to do, and nothing to give?
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Does it take steps of its own before the operation goes on?
    #[inline]
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy(_))
    }

    /// The order of what it is about to get, while it takes steps of its own.
    pub fn order(&self) -> Option<Order> {
        match &self.state {
            State::Busy(control) => Some(control.asked.order),
            _ => None,
        }
    }

    /// A step on the slow path. Done when the operation's step can be taken again.
    ///
    /// # Panics
    /// When it is not busy.
    pub fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<()> {
        let State::Busy(control) = &mut self.state else { unreachable!("only who is busy takes steps") };
        control.is_victim = self.is_victim;
        match control.step(mm, spaces, cx) {
            Step::More => Step::More,
            Step::Block(wait) => Step::Block(wait),
            Step::Done(Some(pfn)) => {
                let request = control.asked;
                mm.memory.isolate(cx, pfn, request.order);
                self.state = State::Hand(Given { request, pfn });
                Step::Done(())
            }
            Step::Done(None) => {
                self.state = State::Refused(control.asked);
                Step::Done(())
            }
        }
    }

    /// Before a step of the operation: what it may do about memory that is short.
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

    /// After it: has it asked for memory, so that it is to be taken again?
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

    /// The operation's task is being killed for want of memory: it may use memory below the marks, to come to its end.
    pub fn open_reserves(&mut self) {
        self.is_victim = true;
    }

    /// The blocks that it holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.state {
            State::Idle | State::Refused(_) => Holdings::default(),
            State::Busy(control) => control.holdings(),
            State::Hand(given) => {
                Holdings { isolated: vec![Held { pfn: given.pfn, order: given.request.order }], ..Holdings::default() }
            }
        }
    }

    /// Gives back what it holds.
    pub fn abort(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) {
        match std::mem::take(&mut self.state) {
            State::Idle | State::Refused(_) => {}
            State::Busy(mut control) => control.abort(mm, spaces, cx),
            State::Hand(given) => mm.memory.free(cx, given.pfn, given.request.order),
        }
    }
}

impl Mm {
    /// Could a zone serve a request if all that can be reclaimed in it were free?
    fn could_serve(&self, zone: ZoneIndex, request: &AllocRequest) -> bool {
        let reclaimable = self.reclaimable_frames(zone);
        self.memory.zone(zone).could_be_ok(request, reclaimable, self.memory.variant())
    }
}

#[cfg(test)]
mod tests;
