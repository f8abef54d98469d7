//! One step of an operation, or of the slow path of an allocation.

use memory::{
    cx::Cx,
    frame::SpaceId,
    step::{Step, Wait},
};
use mm::{Mm, Spaces, slow::Supply};
use units::{Bytes, CpuId, Time};

use crate::{
    ids::{MAIN, TaskId},
    run_hash::Mark,
    task::{
        Answer, TaskState,
        operation::{Operation, Progress},
    },
    world::{World, rig::Stage},
};

impl World {
    /// Takes a step of the operation that a task is in; returns true if the kernel ends the task.
    pub(super) fn step(&mut self, id: TaskId, cpu: CpuId, horizon: Time) -> bool {
        self.slow_goes_on(id);
        let (task, start) = (&self.tasks[id.0 as usize], self.cpus[cpu.0 as usize].clock);
        let space = task.space;
        let TaskState::Kernel(operation) = &task.state else {
            unreachable!("only operations are stepped");
        };
        let is_shared = self.kernels[task.kernel].running_in[space.0 as usize] > 1 || task.is_settled;
        let left = is_shared.then(|| operation.left());
        let horizon = if task.is_dying { start } else { horizon };
        let fails_alloc = operation.may_be_killed() && self.faults.fails_alloc();
        let (progress, keeps) = self.take_step(id, cpu, |stage, cx| {
            let Stage { mm, spaces, left, task, injector, loss } = stage;
            let TaskState::Kernel(operation) = &mut task.state else {
                unreachable!("only operations are stepped");
            };
            let kills = gives_up(task.is_dying, operation, &task.supply)
                || (loss.is_some() && operation.may_be_killed() && id != MAIN && injector.kills(loss));
            let memory = Memory { mm, spaces, left };
            let what = (space, &mut *operation, &mut task.supply);
            let progress =
                if kills { kill(memory, what, cx) } else { advance(memory, what, cx, (horizon, fails_alloc)) };
            let keeps = keeps_lock(&progress, operation, &task.supply);
            (progress, keeps)
        });
        self.finish(id, cpu, Past { start, left, keeps, progress })
    }

    /// Does the work that a step leaves to its end; returns true if the kernel ends the task.
    pub(super) fn finish(&mut self, id: TaskId, cpu: CpuId, past: Past) -> bool {
        let Past { start, left, keeps, progress } = past;
        if !matches!(progress, Progress::Block(_)) && !self.tasks[id.0 as usize].supply.is_busy() {
            self.gets_on(self.cpus[cpu.0 as usize].clock);
        }
        if let Some(left) = left {
            let end = self.cpus[cpu.0 as usize].clock;
            self.note_pace(id, (left, start), end, matches!(progress, Progress::More));
        }
        self.slow_step(id, &progress);
        self.end_hold(id, cpu, keeps, start);
        let killed = match progress {
            Progress::More => false,
            other => self.end_step(id, cpu, other),
        };
        self.end_of_step(id, cpu);
        killed
    }

    /// Ends a step that is not followed by another one of the operation; returns true if the kernel ends the task.
    #[inline(never)]
    fn end_step(&mut self, id: TaskId, cpu: CpuId, progress: Progress) -> bool {
        // The CPU may have no further turn, so it lets go of its task now.
        if matches!(progress, Progress::Exited | Progress::Killed(_) | Progress::Block(_)) {
            self.let_go(cpu);
        }
        let end = self.cpus[cpu.0 as usize].clock;
        match progress {
            Progress::More => {}
            Progress::Block(wait) => self.sleep(id, end, wait),
            Progress::Done(answer) => self.end_operation(id, cpu, answer),
            Progress::Forked(child) => {
                let child = self.add_child(id, *child);
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

/// A step that was taken.
pub(super) struct Past {
    pub(super) start: Time,
    /// Work that its operation had left before, if that is asked for.
    pub(super) left: Option<u64>,
    /// The task holds the mmap lock until its next step.
    pub(super) keeps: bool,
    pub(super) progress: Progress,
}

/// Whether a task that has taken this step holds the mmap lock until its next one.
#[inline]
pub(super) fn keeps_lock(progress: &Progress, operation: &Operation, supply: &Supply) -> bool {
    match progress {
        Progress::More => supply.is_busy() || operation.keeps_lock(),
        // A fault that waits for a device releases the lock, and begins again.
        Progress::Block(Wait::Io { .. }) => false,
        Progress::Block(_) => true,
        _ => false,
    }
}

/// Whether a task that is being killed ends before this step. It does where signals are checked: between two accesses,
/// not inside of a fault.
#[inline]
fn gives_up(is_dying: bool, operation: &Operation, supply: &Supply) -> bool {
    is_dying && operation.may_be_killed() && !operation.is_in_fault() && !supply.is_busy()
}

/// The memory that an operation works on.
struct Memory<'a> {
    mm: &'a mut Mm,
    spaces: &'a mut Spaces,
    left: &'a mut [Bytes],
}

/// Takes a step of an operation, or of the slow path of an allocation that it has asked for.
#[inline]
fn advance(
    memory: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
    (horizon, fails_alloc): (Time, bool),
) -> Progress {
    let Memory { mm, spaces, left } = memory;
    if supply.is_busy() {
        return go_on_supplying(mm, spaces, supply, cx);
    }
    supply.lend(cx);
    if fails_alloc {
        cx.fail_alloc(0);
    }
    let progress = if let Operation::File { .. } = operation {
        operation.step_file(mm, spaces, cx, horizon)
    } else if operation.is_moving() {
        operation.step_moving(mm, spaces, cx, id)
    } else {
        let space = spaces.get_mut(id).expect("a live task has an address space");
        operation.step(mm, space, cx, horizon, &mut left[id.0 as usize])
    };
    come_to(mm, spaces, (id, operation, supply), progress, cx)
}

/// The progress of an operation's step, once it is known whether the step has asked for memory.
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

/// Frees what an operation holds that will not go on, or the rest of its process.
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
        operation.abort_moving(mm, spaces, cx);
        let space = spaces.get_mut(id).expect("a live task has an address space");
        operation.abort(mm, space, cx);
    }
}

/// Takes a step of the slow path.
#[inline(never)]
fn go_on_supplying(mm: &mut Mm, spaces: &mut Spaces, supply: &mut Supply, cx: &mut Cx<'_>) -> Progress {
    match supply.step(mm, spaces, cx) {
        Step::Block(wait) => Progress::Block(wait),
        Step::More | Step::Done(()) => Progress::More,
    }
}

/// Ends the task in the middle of its operation, for a test.
#[cold]
fn kill(
    Memory { mm, spaces, .. }: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
) -> Progress {
    supply.abort(mm, spaces, cx);
    operation.abort_moving(mm, spaces, cx);
    let space = spaces.get_mut(id).expect("a live task has an address space");
    operation.abort(mm, space, cx);
    Progress::Killed("killed by a test")
}
