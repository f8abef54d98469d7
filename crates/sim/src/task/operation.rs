//! Operations that a task can be inside of, as data, each taken in bounded steps.

use memory::{
    cost::{self, Cause, Work},
    cx::Cx,
    frame::SpaceId,
    step::{Step, Wait},
};
use mm::{
    Mm, Spaces,
    fault::{
        Access, FaultDone,
        access::{self, Accesses, Limits},
        gup::Pin,
        touch::Touch,
    },
    file::page_cache::FileOperation,
    numa::{numa_balancing::scan::ScanWork, numa_hint::HintScan},
    space::{
        address_space::AddressSpace,
        fork::Fork,
        unmap::Unmap,
        vma::{HugeAdvice, PageRange},
    },
};
use os::{Accessed, Advice, Amount, MapSpec, Pattern, Runs, VmRange};
use rules::{mempolicy::Mempolicy, variant::Variant};
use units::{Bytes, Errno, Picos, Time, VirtAddr, Vpn};

use crate::{
    ids::TaskId,
    runqueue::Ticks,
    rwsem::Mode,
    task::{Answer, Request},
};

/// An operation under way.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Mmap {
        len: Bytes,
        spec: MapSpec,
        entered: bool,
    },
    Munmap {
        range: VmRange,
        /// Bytes of the range that may be mapped again once it is unmapped; none before that is known.
        private: Option<Bytes>,
        unmap: Unmap,
        entered: bool,
    },
    Madvise {
        range: VmRange,
        advice: Advice,
        entered: bool,
    },
    /// `madvise(MADV_DONTNEED)`.
    Discard {
        range: VmRange,
        unmap: Unmap,
        entered: bool,
    },
    Touch(Touch),
    Access {
        accesses: Box<Accesses>,
        ticks: Ticks,
    },
    Hint(HintScan),
    Compute {
        left: Picos,
        ticks: Ticks,
    },
    NodeOf {
        range: VmRange,
    },
    /// Pins memory for a device.
    Pin {
        pin: Box<Pin>,
        entered: bool,
    },
    File {
        operation: Box<FileOperation>,
        entered: bool,
    },
    Mincore {
        range: VmRange,
    },
    Fork {
        fork: Box<Fork>,
        entered: bool,
    },
    /// Makes pages hint on the way back to user mode (`task_numa_work`); then the task goes on with `then`.
    Scan {
        work: Box<ScanWork>,
        then: Box<Operation>,
    },
    /// Unmaps everything after the last task of a process has ended.
    Exit(Unmap),
}

/// The result of a step.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    More,
    /// The operation sleeps.
    Block(Wait),
    Done(Answer),
    /// A child has the memory of the calling process. (Boxed: every step has a progress, and few are this one.)
    Forked(Box<AddressSpace>),
    /// The address space is empty but for its root table.
    Exited,
    /// The kernel ends the task for this reason.
    Killed(&'static str),
}

/// The task that requests an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) task: TaskId,
    /// When it makes the request.
    pub(crate) at: Time,
    pub(crate) ticks: Ticks,
    pub(crate) policy: Mempolicy,
}

impl Operation {
    /// # Panics
    /// When the request is not one that takes steps.
    pub(crate) fn new(request: Request, by: Asker) -> Self {
        match request {
            Request::Mmap(len, spec) => Self::Mmap { len, spec, entered: false },
            Request::Munmap(range) => {
                Self::Munmap { range, private: None, unmap: Unmap::new(pages(range)), entered: false }
            }
            Request::Madvise(range, Advice::DontNeed) => {
                Self::Discard { range, unmap: Unmap::discard(pages(range)), entered: false }
            }
            Request::Madvise(range, advice) => Self::Madvise { range, advice, entered: false },
            Request::Store(range, stride) => {
                Self::Touch(Touch::new(range.start, range.len, stride, Access::Write).under(by.policy))
            }
            Request::Load(range, stride) => {
                Self::Touch(Touch::new(range.start, range.len, stride, Access::Read).under(by.policy))
            }
            Request::Fill(range) => Self::Touch(Touch::fill(range.start, range.len).under(by.policy)),
            Request::Access(runs, pattern, amount) => {
                let accesses = Box::new(accesses(runs, pattern, amount, &by).under(by.policy));
                Self::Access { accesses, ticks: by.ticks }
            }
            Request::Pin(range) => Self::Pin { pin: Box::new(Pin::new(pages(range)).under(by.policy)), entered: false },
            Request::NodeOf(range) => Self::NodeOf { range },
            Request::Compute(left) => Self::Compute { left, ticks: by.ticks },
            Request::Hint(range) => Self::Hint(HintScan::new(pages(range))),
            Request::File(request) => Self::File { operation: Box::new(FileOperation::new(request)), entered: false },
            Request::Mincore(range) => Self::Mincore { range },
            Request::Fork => Self::Fork { fork: Box::new(Fork::new()), entered: false },
            Request::Sleep(_)
            | Request::Arrive(_)
            | Request::Join(_)
            | Request::AwaitGuest
            | Request::AwaitReports
            | Request::SetAffinity(_)
            | Request::SetMempolicy(_) => unreachable!("{request:?} only waits"),
        }
    }

    /// The operation at the end of a process's last task.
    pub(crate) fn exit() -> Self {
        Self::Exit(Unmap::everything())
    }

    /// How the mmap lock must be held for a step, if at all. If VMAs have locks of their own, a fault in a VMA that already
    /// has anonymous pages needs no other. (A fault checks in each step whether its VMA is still there, so that nobody has
    /// to wait for it.)
    #[inline]
    pub(crate) fn needs(&self, space: &AddressSpace, rules: &Variant) -> Option<Mode> {
        match self {
            Self::Mmap { .. } | Self::Munmap { .. } | Self::Madvise { .. } | Self::Fork { .. } | Self::Exit(_) => {
                Some(Mode::Write)
            }
            // Pages of a file are unmapped under locks of their own.
            Self::File { .. } | Self::Compute { .. } => None,
            Self::Touch(touch) => Self::touch_needs(touch, space, rules),
            Self::Access { accesses, .. } if !accesses.is_in_fault() => None,
            Self::Access { accesses, .. } if rules.vma_locks && accesses.has_tied_vma(space) => None,
            Self::Access { .. }
            | Self::Hint(_)
            | Self::Scan { .. }
            | Self::NodeOf { .. }
            | Self::Pin { .. }
            | Self::Mincore { .. }
            | Self::Discard { .. } => Some(Mode::Read),
        }
    }

    /// The lock that user code needs for its accesses, by that rule.
    #[inline]
    pub(crate) fn touch_needs(touch: &Touch, space: &AddressSpace, rules: &Variant) -> Option<Mode> {
        if rules.vma_locks && touch.has_tied_vma(space) { None } else { Some(Mode::Read) }
    }

    /// Whether the VMAs of the operation are removed, so that readers may run beside the rest of it.
    pub(crate) fn is_downgraded(&self) -> bool {
        matches!(self, Self::Munmap { unmap, .. } if unmap.is_detached())
    }

    /// Work left before the operation could end or change mappings, in units that take about the same time each.
    pub(crate) fn left(&self) -> u64 {
        match self {
            Self::Touch(touch) => touch.left(),
            Self::Access { accesses, .. } => accesses.left(),
            Self::Pin { pin, .. } => pin.left(),
            Self::Compute { left, .. } => left.as_nanos(),
            // The number of pages is not known before they are found.
            Self::Munmap { unmap, .. } | Self::Discard { unmap, .. } if unmap.has_pages_left() => u64::from(u32::MAX),
            Self::Scan { then, .. } => then.left(),
            _ => 0,
        }
    }

    /// The range of a sweep by rounds, with the pages that it has passed and those before it.
    pub(crate) fn sweep(&self) -> Option<(PageRange, u64, u64)> {
        let Self::Access { accesses, .. } = self else { return None };
        accesses.sweep().map(|(range, passed)| (range, passed, accesses.left()))
    }

    /// Whether the operation is user code with its faults.
    pub(crate) fn is_touch(&self) -> bool {
        matches!(self, Self::Touch(_))
    }

    /// Whether the operation is user code inside of a fault.
    pub(crate) fn is_in_fault(&self) -> bool {
        match self {
            Self::Touch(touch) => touch.is_in_fault(),
            Self::Access { accesses, .. } => accesses.keeps_lock(),
            Self::Pin { pin, .. } => pin.is_in_fault(),
            _ => false,
        }
    }

    /// Whether the mmap lock stays held until the next step.
    pub(crate) fn keeps_lock(&self) -> bool {
        match self {
            Self::Munmap { .. }
            | Self::Fork { .. }
            | Self::Exit(_)
            | Self::Discard { .. }
            | Self::Hint(_)
            | Self::Scan { .. } => true,
            Self::Touch(touch) => touch.is_in_fault(),
            Self::Access { accesses, .. } => accesses.keeps_lock(),
            Self::Pin { pin, .. } => pin.is_in_fault(),
            Self::Mmap { .. }
            | Self::Madvise { .. }
            | Self::Mincore { .. }
            | Self::NodeOf { .. }
            | Self::Compute { .. }
            | Self::File { .. } => false,
        }
    }

    /// Whether the kernel may end the task between two steps. munmap checks for no signal: a task that is killed in it ends
    /// afterwards.
    pub(crate) fn may_be_killed(&self) -> bool {
        !matches!(self, Self::Munmap { entered: true, .. } | Self::Discard { entered: true, .. } | Self::Exit(_))
    }

    /// Takes a step, at most up to `horizon` if the operation is a long one. `left`: bytes that may still be mapped.
    #[inline]
    pub(crate) fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx<'_>,
        horizon: Time,
        left: &mut Bytes,
    ) -> Progress {
        match self {
            Self::Touch(touch) => progress_of(touch.step(mm, space, cx, horizon)),
            _ => self.step_call(mm, space, cx, horizon, left),
        }
    }

    /// Takes a step of a system call, or of the end of a process.
    #[inline(never)]
    fn step_call(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx<'_>,
        horizon: Time,
        left: &mut Bytes,
    ) -> Progress {
        match self {
            Self::Mmap { len, spec, entered } => {
                enter(cx, entered);
                Progress::Done(Answer::Range(map(mm, space, cx, (*len, *spec), left)))
            }
            Self::Touch(_) => unreachable!("it is no call"),
            Self::File { .. } => unreachable!("it works on more than this address space"),
            Self::Access { .. } | Self::Hint(_) | Self::Compute { .. } | Self::Pin { .. } | Self::Scan { .. } => {
                self.step_access(mm, space, cx, horizon)
            }
            Self::NodeOf { range } => {
                cx.work(Work::SystemCall, 1);
                Progress::Done(Answer::Nodes(space.nodes_of(mm, cx, pages(*range))))
            }
            Self::Munmap { range, private, unmap, entered } => {
                enter(cx, entered);
                let private = *private.get_or_insert_with(|| private_part(space, *range));
                // A task waits until readers are let in.
                let is_short = !unmap.is_detached() && cx.is_over(horizon);
                let step = if is_short { unmap.begin(mm, space, cx) } else { unmap.step(mm, space, cx, horizon) };
                let Some(result) = unmapped(step) else { return Progress::More };
                left.0 += if result.is_ok() { private.0 } else { 0 };
                Progress::Done(Answer::Unit(result))
            }
            Self::Madvise { range, advice, entered } => {
                enter(cx, entered);
                let advice = match advice {
                    Advice::HugePage => HugeAdvice::HugePage,
                    Advice::NoHugePage => HugeAdvice::NoHugePage,
                    Advice::DontNeed => unreachable!("an operation of its own"),
                };
                Progress::Done(Answer::Unit(space.madvise(mm, cx, pages(*range), advice)))
            }
            Self::Discard { range, unmap, entered } => {
                enter(cx, entered);
                let Some(result) = unmapped(unmap.step(mm, space, cx, horizon)) else { return Progress::More };
                let is_whole = space.is_mapped(pages(*range));
                Progress::Done(Answer::Unit(result.and(if is_whole { Ok(()) } else { Err(Errno::NOMEM) })))
            }
            Self::Mincore { range } => {
                cx.work(Work::SystemCall, 1);
                Progress::Done(Answer::Resident(space.mincore(mm, cx, pages(*range))))
            }
            Self::Fork { fork, entered } => {
                enter(cx, entered);
                match fork.step(mm, space, cx, horizon) {
                    Step::More => Progress::More,
                    Step::Block(wait) => Progress::Block(wait),
                    Step::Done(Ok(child)) => Progress::Forked(Box::new(child)),
                    Step::Done(Err(errno)) => Progress::Done(Answer::Space(Err(errno))),
                }
            }
            Self::Exit(unmap) => {
                let Some(result) = unmapped(unmap.step(mm, space, cx, horizon)) else { return Progress::More };
                result.expect("nothing is split when everything goes");
                Progress::Exited
            }
        }
    }

    /// Whether the task is in user mode, where a tick finds it.
    #[inline]
    pub(crate) fn is_in_user_mode(&self) -> bool {
        match self {
            Self::Touch(touch) => !touch.is_in_fault(),
            Self::Access { accesses, .. } => !accesses.is_in_fault(),
            Self::Compute { .. } => true,
            _ => false,
        }
    }

    /// Makes the task scan before it goes on with this operation.
    pub(crate) fn after(self, work: ScanWork) -> Self {
        Self::Scan { work: Box::new(work), then: Box::new(self) }
    }

    fn step_scan(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx<'_>, horizon: Time) -> Progress {
        let Self::Scan { work, then } = self else { unreachable!("it scans") };
        if let Step::Done(()) = cx.because(Cause::Balancing, |cx| work.step(mm, space, cx, horizon)) {
            let rest = Self::Compute { left: Picos(0), ticks: Ticks::every(Picos(1)) };
            *self = std::mem::replace(then, rest);
        }
        Progress::More
    }

    /// Whether the operation is in a hinting fault that has pages to move, which needs all address spaces.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        match self {
            Self::Touch(touch) => touch.is_moving(),
            Self::Access { accesses, .. } => accesses.is_moving(),
            _ => false,
        }
    }

    /// Takes a step of moving these pages.
    #[inline(never)]
    pub(crate) fn step_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx<'_>, id: SpaceId) -> Progress {
        let step = match self {
            Self::Touch(touch) => touch.step_moving(mm, spaces, cx, id),
            Self::Access { accesses, .. } => accesses.step_moving(mm, spaces, cx, id),
            _ => unreachable!("only accesses move pages"),
        };
        progress_of(step)
    }

    /// Leaves the pages that were to move where they are, before the operation is aborted.
    pub(crate) fn abort_moving(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx<'_>) {
        match self {
            Self::Touch(touch) => touch.abort_moving(mm, spaces, cx),
            Self::Access { accesses, .. } => accesses.abort_moving(mm, spaces, cx),
            _ => {}
        }
    }

    /// Takes a step of an operation that accesses memory again and again, pins it, or makes it hint.
    fn step_access(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx<'_>, horizon: Time) -> Progress {
        match self {
            Self::Scan { .. } => self.step_scan(mm, space, cx, horizon),
            Self::Access { accesses, ticks } => {
                let limits = Limits { horizon, until: ticks.after(cx.now()) };
                let progress = progress_of(accesses.step(mm, space, cx, limits));
                let (accesses, time) = (accesses.accesses(), accesses.elapsed());
                match progress {
                    Progress::Done(_) => Progress::Done(Answer::Accessed(Accessed { accesses, time })),
                    other => other,
                }
            }
            Self::Compute { left, ticks } => {
                let now = cx.now();
                let percent = u64::from(mm.memory.compute_percent());
                // A shared core does less until the tick.
                let fits = ticks.after(now).since(now).0 * 100 / percent;
                let done = Picos(fits.clamp(1, left.0.max(1)).min(left.0));
                cx.wait(now + Picos(done.0 * percent / 100), Cause::User);
                *left = *left - done;
                if *left > Picos(0) { Progress::More } else { Progress::Done(Answer::Unit(Ok(()))) }
            }
            Self::Hint(scan) => match scan.step(space, cx, horizon) {
                Step::Done(()) => Progress::Done(Answer::Unit(Ok(()))),
                Step::More | Step::Block(_) => Progress::More,
            },
            Self::Pin { pin, entered } => {
                enter(cx, entered);
                match pin.step(mm, space, cx, horizon) {
                    Step::More => Progress::More,
                    Step::Block(wait) => Progress::Block(wait),
                    Step::Done(result) => Progress::Done(Answer::Unit(result)),
                }
            }
            _ => unreachable!("it is another"),
        }
    }

    /// Takes a step of a file operation, which needs all address spaces.
    #[inline(never)]
    pub(crate) fn step_file(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx<'_>, horizon: Time) -> Progress {
        let Self::File { operation, entered } = self else { unreachable!("it works on one address space") };
        enter(cx, entered);
        match operation.step(mm, spaces, cx, horizon) {
            Step::More => Progress::More,
            Step::Block(wait) => Progress::Block(wait),
            Step::Done(result) => Progress::Done(Answer::File(result)),
        }
    }

    /// The frames that it holds between two steps.
    pub(crate) fn holdings(&self, space: &AddressSpace) -> memory::frame::Holdings {
        match self {
            Self::Touch(touch) => touch.holdings(space),
            Self::Access { accesses, .. } => accesses.holdings(space),
            Self::Pin { pin, .. } => pin.holdings(space),
            Self::Munmap { unmap, .. } | Self::Discard { unmap, .. } | Self::Exit(unmap) => unmap.holdings(),
            Self::Fork { fork, .. } => fork.holdings(),
            Self::File { operation, .. } => operation.holdings(),
            Self::Scan { then, .. } => then.holdings(space),
            Self::Mmap { .. }
            | Self::Madvise { .. }
            | Self::Mincore { .. }
            | Self::NodeOf { .. }
            | Self::Compute { .. }
            | Self::Hint(_) => memory::frame::Holdings::default(),
        }
    }

    /// The child of a fork that is under way.
    pub(crate) fn child(&self) -> Option<&AddressSpace> {
        match self {
            Self::Fork { fork, .. } => fork.child(),
            _ => None,
        }
    }

    /// Frees what an operation holds that will not go on.
    pub(crate) fn abort(&mut self, mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx<'_>) {
        match self {
            Self::Touch(touch) => touch.abort(mm, space, cx),
            Self::Access { accesses, .. } => accesses.abort(mm, space, cx),
            Self::Pin { pin, .. } => pin.abort(mm, space, cx),
            Self::Munmap { unmap, .. } | Self::Discard { unmap, .. } | Self::Exit(unmap) => unmap.abort(mm, cx),
            Self::Fork { fork, .. } => fork.abort(mm, cx),
            Self::File { operation, .. } => operation.abort(mm, cx),
            Self::Scan { then, .. } => then.abort(mm, space, cx),
            Self::Mmap { .. }
            | Self::Madvise { .. }
            | Self::Mincore { .. }
            | Self::NodeOf { .. }
            | Self::Compute { .. }
            | Self::Hint(_) => {}
        }
    }
}

/// The progress of user code and its faults.
#[inline]
pub(crate) fn progress_of(step: Step<FaultDone>) -> Progress {
    match step {
        Step::More => Progress::More,
        Step::Block(wait) => Progress::Block(wait),
        Step::Done(FaultDone::Handled) => Progress::Done(Answer::Unit(Ok(()))),
        Step::Done(FaultDone::OutOfMemory) => Progress::Killed("out of memory"),
        Step::Done(FaultDone::BadAddress) => Progress::Killed("killed by signal 11 (SIGSEGV)"),
        Step::Done(FaultDone::BusError) => Progress::Killed("killed by signal 7 (SIGBUS)"),
    }
}

/// The result of unmapping, once everything is unmapped.
fn unmapped(step: Step<Result<(), Errno>>) -> Option<Result<(), Errno>> {
    match step {
        Step::More => None,
        Step::Block(wait) => unreachable!("unmapping does not wait, but for {wait:?}"),
        Step::Done(result) => Some(result),
    }
}

/// Charges the entry into the kernel, unless the step is taken again.
fn enter(cx: &mut Cx<'_>, entered: &mut bool) {
    if !std::mem::replace(entered, true) {
        cx.work(Work::SystemCall, 1);
    }
}

fn map(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx<'_>,
    (len, spec): (Bytes, MapSpec),
    left: &mut Bytes,
) -> Result<VmRange, Errno> {
    let private = if spec.is_private() { len.0 } else { 0 };
    let rest = left.0.checked_sub(private).ok_or(Errno::NOMEM)?;
    let pages = len.0.div_ceil(Bytes::PAGE.0);
    let range = match spec {
        MapSpec::Anonymous => space.mmap(mm, cx, pages)?,
        MapSpec::Private(of) | MapSpec::Shared(of) | MapSpec::SharedRead(of) => {
            if !of.offset.0.is_multiple_of(Bytes::PAGE.0) {
                return Err(Errno::INVAL);
            }
            space.mmap_file(mm, cx, pages, (of.file.id, of.offset.0 / Bytes::PAGE.0, !spec.is_private()))?
        }
    };
    *left = Bytes(rest);
    Ok(VmRange { start: VirtAddr(range.start.0 * Bytes::PAGE.0), len })
}

/// Bytes of a range in private mappings.
fn private_part(space: &AddressSpace, range: VmRange) -> Bytes {
    let shared = space.vmas.overlapping(pages(range)).filter(|vma| vma.file.is_some_and(|file| file.is_shared));
    let of = |vma: &mm::space::vma::Vma| {
        let (start, end) = (vma.start.max(pages(range).start), vma.end().min(pages(range).end));
        (end.0 - start.0) * Bytes::PAGE.0
    };
    Bytes(range.len.0.saturating_sub(shared.map(of).sum()))
}

/// The accesses of a task. A random order is the task's own, and a new one each time that it accesses parts of a range.
fn accesses(runs: Runs, pattern: Pattern, amount: Amount, by: &Asker) -> Accesses {
    let pattern = match pattern {
        // The string instruction owns lines as other stores do.
        Pattern::Sweep | Pattern::RepStosb => cost::Pattern::Sweep,
        Pattern::NonTemporal => cost::Pattern::NonTemporal,
        Pattern::Fresh => cost::Pattern::Fresh,
        Pattern::Random => cost::Pattern::Random,
        Pattern::Lines(lines) => cost::Pattern::Lines(lines),
        Pattern::Stride => cost::Pattern::Stride,
        Pattern::Update => cost::Pattern::Update,
    };
    let amount = match amount {
        Amount::Rounds(rounds) => access::Amount::Rounds(rounds),
        Amount::Time(span) => access::Amount::Time(span),
    };
    let task = u64::from(by.task.0);
    let draw = if runs == Runs::from(runs.range) { task } else { task ^ by.at.0.rotate_left(u32::BITS / 2) };
    Accesses::new(runs_of(runs), pattern, amount, draw)
}

fn runs_of(runs: Runs) -> access::Runs {
    let frames = |len: Bytes| len.0.div_ceil(Bytes::PAGE.0);
    access::Runs { range: pages(runs.range), len: frames(runs.len), every: frames(runs.every) }
}

pub(crate) fn pages(range: VmRange) -> PageRange {
    PageRange::new(Vpn(range.start.0 / Bytes::PAGE.0), range.len.0.div_ceil(Bytes::PAGE.0))
}
