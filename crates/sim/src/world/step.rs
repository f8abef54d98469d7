//! One step of an operation, or of the memory that it has asked for; and for tests, whose every frame is after it.

use mm::{
    ControlId, Mm, SpaceId, Spaces,
    alloc::slow::Supply,
    cost::{Cause, Circumstances, Cx, Running, Shootdowns},
    line::CacheLine,
    step::{Step, Wait},
    variant::MmapLock,
};
use units::{Bytes, CpuId, Time};

use crate::{
    operation::{Operation, Progress},
    run_hash::Mark,
    rwsem::{self, Mode},
    sched::Cpu,
    task::{Answer, Task, TaskId, TaskState},
    world::{MAIN, World},
};

impl World {
    /// One step of the operation that a task is in; true when the kernel ends the task. Its effects happen at its start,
    /// its price is paid after.
    pub(super) fn step(&mut self, id: TaskId, cpu: CpuId, horizon: Time) -> bool {
        // Only who reclaims or compacts asks about other address spaces.
        let is_slow = self.tasks[id.0 as usize].supply.is_busy();
        let running = if is_slow { self.running_spaces() } else { Vec::new() };
        let mut asked_of = Vec::new();
        let prices = self.prices.on(&self.cpus, cpu);
        let (task, here) = (&mut self.tasks[id.0 as usize], &mut self.cpus[cpu.0 as usize]);
        let TaskState::Kernel(operation) = &mut task.state else {
            unreachable!("only operations are stepped");
        };
        let (space_id, start) = (task.space, here.clock);
        // All but this one.
        let sharers = self.running_in[space_id.0 as usize] - 1;
        let left = (sharers > 0 || task.is_settled).then(|| operation.left());
        let (need_resched, was_preempted) = (here.need_resched(), std::mem::take(&mut task.was_preempted));
        let loss = self.injector.begin(&self.counters);
        let mut cx = Cx::new(cpu, start, prices, &mut self.counters);
        let running = is_slow.then_some(Running { spaces: &running, asked: &mut asked_of });
        let control = ControlId(id.0);
        cx.set_circumstances(Circumstances { control, sharers, running, need_resched, was_preempted });
        if here.asked.rounds > 0 {
            cx.receive(std::mem::take(&mut here.asked));
        }
        let horizon = if task.is_dying { start } else { horizon };
        let kills = gives_up(task.is_dying, operation, &task.supply)
            || (loss.is_some() && operation.may_be_killed() && id != MAIN && self.injector.kills(loss));
        let memory = Memory { mm: &mut self.mm, spaces: &mut self.spaces, left: &mut self.left };
        let what = (space_id, &mut *operation, &mut task.supply);
        let progress = if kills { kill(memory, what, &mut cx) } else { advance(memory, what, &mut cx, horizon) };
        let keeps = keeps_lock(&progress, operation, &task.supply);
        let line = (sharers > 0).then(|| (&mut self.lines[space_id.0 as usize], self.mm.variant().mmap_lock));
        pay(&mut cx, task, here, line);
        let (faults, shootdowns) = (cx.faults().fold, cx.shootdowns());
        if let Some(loss) = loss {
            let spent = *cx.spent();
            here.clock = self.injector.lose(loss, &mut self.counters, here.clock, &spent);
        }
        if let Some(trace) = &mut self.trace {
            trace.take(&mut self.mm, id, cpu, start);
        }
        self.finish(id, cpu, Past { start, left, keeps, faults, shootdowns, asked_of: &asked_of, progress })
    }

    /// What a step leaves to do at its end; true when the kernel ends the task.
    pub(super) fn finish(&mut self, id: TaskId, cpu: CpuId, past: Past<'_>) -> bool {
        let Past { start, left, keeps, faults, shootdowns, asked_of, progress } = past;
        let end = self.cpus[cpu.0 as usize].clock;
        self.hash.fold(end, cpu, Mark::Faults, faults);
        if let Some(left) = left {
            self.note_pace(id, (left, start), end, matches!(progress, Progress::More));
        }
        self.end_hold(id, cpu, keeps, start);
        let space = self.tasks[id.0 as usize].space;
        self.interrupt(space, cpu, shootdowns);
        for (space, asked) in asked_of {
            self.interrupt(*space, cpu, *asked);
        }
        let killed = match progress {
            Progress::More => false,
            other => self.end_step(id, cpu, other),
        };
        self.wake_woken(self.cpus[cpu.0 as usize].clock);
        #[cfg(test)]
        self.check();
        killed
    }

    /// What a step has come to, at its end, where that is not more of the same; true when the kernel ends the task.
    #[inline(never)]
    fn end_step(&mut self, id: TaskId, cpu: CpuId, progress: Progress) -> bool {
        // Nobody can be sure that its CPU will have another turn.
        if matches!(progress, Progress::Exited | Progress::Killed(_) | Progress::Block(_)) {
            self.let_go(cpu);
        }
        let end = self.cpus[cpu.0 as usize].clock;
        match progress {
            Progress::More => {}
            Progress::Block(wait) => self.sleep(id, end, wait),
            Progress::Done(answer) => self.end_operation(id, cpu, answer),
            Progress::Forked(child) => {
                let child = self.add_space(*child);
                self.end_operation(id, cpu, Answer::Space(Ok(child)));
            }
            Progress::Exited => {
                self.tasks[id.0 as usize].state = TaskState::Ended;
                self.hash.fold(end, cpu, Mark::Exit, u64::from(id.0));
                self.tell_joiners(id, end);
            }
            Progress::Killed(reason) => {
                self.tasks[id.0 as usize].kill(reason);
                return true;
            }
        }
        false
    }

    fn end_operation(&mut self, id: TaskId, cpu: CpuId, answer: Answer) {
        self.tasks[id.0 as usize].state = TaskState::Answered(answer);
        self.hash.fold(self.cpus[cpu.0 as usize].clock, cpu, Mark::End, u64::from(id.0));
    }
}

/// A step that has been taken.
pub(super) struct Past<'a> {
    pub(super) start: Time,
    /// What its operation had left to go through before, if somebody asks.
    pub(super) left: Option<u64>,
    /// The task holds the lock of its address space until its next step.
    pub(super) keeps: bool,
    /// The fold of its faults.
    pub(super) faults: u64,
    pub(super) shootdowns: Shootdowns,
    pub(super) asked_of: &'a [(SpaceId, Shootdowns)],
    pub(super) progress: Progress,
}

/// A task and its CPU pay for a step. `line`: where the count of the lock is, if others share the address space.
#[inline(always)]
#[expect(clippy::inline_always, reason = "half of it is constant where it is called")]
pub(super) fn pay(cx: &mut Cx<'_>, task: &mut Task, here: &mut Cpu, line: Option<(&mut CacheLine, MmapLock)>) {
    let faults = cx.faults();
    if let Some((line, rules)) = line
        && faults.taken > 0
        && task.holds == Some(Mode::Read)
    {
        line.access(cx, faults.taken * rwsem::line_accesses(rules), Cause::MmapLock);
    }
    task.faults += faults.taken;
    if faults.major > 0 {
        task.major_faults += faults.major;
    }
    task.spent.add_step(cx);
    here.clock = cx.now();
}

/// Does a task that has taken this step hold the lock of its address space until its next one?
#[inline]
pub(super) fn keeps_lock(progress: &Progress, operation: &Operation, supply: &Supply) -> bool {
    match progress {
        Progress::More => supply.is_busy() || operation.keeps_lock(),
        // A fault that waits for a device lets others have the address space, and begins again.
        Progress::Block(Wait::Io { .. }) => false,
        Progress::Block(_) => true,
        _ => false,
    }
}

/// Does a task that is being killed end before this step? It does where signals are looked for: between two accesses, not
/// inside of a fault.
#[inline]
fn gives_up(is_dying: bool, operation: &Operation, supply: &Supply) -> bool {
    is_dying && operation.may_be_killed() && !operation.is_in_fault() && !supply.is_busy()
}

/// What an operation works on.
struct Memory<'a> {
    mm: &'a mut Mm,
    spaces: &'a mut Spaces,
    left: &'a mut [Bytes],
}

/// One step of an operation, or of the slow path of an allocation that it has asked for.
#[inline]
fn advance(
    memory: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
    horizon: Time,
) -> Progress {
    let Memory { mm, spaces, left } = memory;
    if supply.is_busy() {
        return go_on_supplying(mm, spaces, supply, cx);
    }
    supply.lend(cx);
    let progress = if let Operation::File { .. } = operation {
        operation.step_file(mm, spaces, cx, horizon)
    } else {
        let space = spaces.get_mut(id).expect("a live task has an address space");
        operation.step(mm, space, cx, horizon, &mut left[id.0 as usize])
    };
    come_to(mm, spaces, (id, operation, supply), progress, cx)
}

/// What a step of an operation came to, once it is known whether it has asked for memory.
#[inline]
pub(super) fn come_to(
    mm: &mut Mm,
    spaces: &mut Spaces,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    progress: Progress,
    cx: &mut Cx<'_>,
) -> Progress {
    if supply.settle(mm, cx) {
        return Progress::More;
    }
    match progress {
        Progress::Killed(_) | Progress::Exited => end_operation(mm, spaces, (id, operation), &progress, cx),
        Progress::More | Progress::Block(_) | Progress::Done(_) | Progress::Forked(_) => {}
    }
    progress
}

/// Gives back what an operation that will not go on holds, or what is left of its process.
#[inline(never)]
fn end_operation(
    mm: &mut Mm,
    spaces: &mut Spaces,
    (id, operation): (SpaceId, &mut Operation),
    progress: &Progress,
    cx: &mut Cx<'_>,
) {
    if let Progress::Exited = progress {
        spaces.take(id).end(mm, cx);
    } else {
        let space = spaces.get_mut(id).expect("a live task has an address space");
        operation.abort(mm, space, cx);
    }
}

/// One step of the slow path.
#[inline(never)]
fn go_on_supplying(mm: &mut Mm, spaces: &mut Spaces, supply: &mut Supply, cx: &mut Cx<'_>) -> Progress {
    match supply.step(mm, spaces, cx) {
        Step::Block(wait) => Progress::Block(wait),
        Step::More | Step::Done(()) => Progress::More,
    }
}

/// A test ends the task in the middle of its operation.
#[cold]
fn kill(
    Memory { mm, spaces, .. }: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
) -> Progress {
    supply.abort(mm, spaces, cx);
    let space = spaces.get_mut(id).expect("a live task has an address space");
    operation.abort(mm, space, cx);
    Progress::Killed("killed by a test")
}

/// The frames of a world, and whose they are.
#[cfg(test)]
impl World {
    pub(crate) fn check(&self) {
        mm::check::walk_files(&self.mm).unwrap();
        let children = self.tasks.iter().filter_map(|task| match &task.state {
            TaskState::Kernel(operation) | TaskState::LockWait(operation) | TaskState::Sleeping(operation, _) => {
                operation.child()
            }
            _ => None,
        });
        let spaces = self.spaces.iter().map(|(_, space)| space).chain(children).collect();
        let holdings = |(id, task): (u32, &Task)| match &task.state {
            TaskState::Kernel(operation) | TaskState::LockWait(operation) | TaskState::Sleeping(operation, _) => {
                let space = self.spaces.get(task.space).expect("a live task has an address space");
                let mut holdings = operation.holdings(space);
                holdings.add(task.supply.holdings());
                Some((ControlId(id), holdings))
            }
            _ => None,
        };
        let daemons = self.kswapds.iter().zip(self.mm.kswapds());
        let kswapds = daemons.map(|(id, kswapd)| (ControlId(id.0), kswapd.holdings()));
        let daemon = |(node, id): (usize, &TaskId)| (ControlId(id.0), self.mm.kcompactd_holdings(node));
        let khugepaged = self.khugepaged.iter().map(|id| (ControlId(id.0), self.mm.khugepaged.holdings()));
        let threads = self.thp_threads.iter().zip(self.mm.thp_threads());
        let threads = threads.map(|(id, thread)| (ControlId(id.0), thread.holdings()));
        let daemons = kswapds.chain(self.kcompactds.iter().enumerate().map(daemon)).chain(khugepaged).chain(threads);
        let controls = (0..).zip(&self.tasks).filter_map(holdings).chain(daemons).collect();
        mm::check::walk(&self.mm).unwrap();
        mm::check::walk_owners(&self.mm, &mm::check::Owners { spaces, controls }).unwrap();
    }
}
