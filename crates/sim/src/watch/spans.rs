//! The run as a timeline, for traces: turns of CPUs, wake-ups with their wakers, and the parts of slow operations in their order.
//!
//! Off by default: then each place pays one branch. Nothing that is simulated depends on it. Operations are known from an earlier
//! run of the same cell, as in `why.rs`: of them alone the parts are kept, so that a long run has room. A part is as exact as a
//! step: within one step, which is never interrupted, causes stand in the order of `Cause`.

use std::collections::{BTreeMap, BTreeSet};

use memory::cost::{Cause, Spent};
use units::{CpuId, Picos, Time};

use crate::ids::TaskId;

/// Most turns and most wake-ups that are kept; the others are counted.
const KEPT_MAX: usize = 1 << 18;

/// A stretch of a slow operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The mechanism of the slow path that worked, such as direct reclaim.
    pub mechanism: Option<&'static str>,
    /// The cause of the time.
    pub cause: Cause,
    /// Whether the task had no CPU.
    pub waits: bool,
    /// The length.
    pub time: Picos,
}

/// A task on a CPU, without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// The CPU, as its kernel numbers it.
    pub cpu: CpuId,
    /// The number of the task.
    pub task: u32,
    /// When the task came to the CPU.
    pub start: Time,
    /// When the task left the CPU.
    pub end: Time,
}

/// The source of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// A task, by its number.
    Task(u32),
    /// The interrupt of a disk.
    Disk,
    /// A timer.
    Timer,
}

/// A task that becomes runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The instant.
    pub at: Time,
    /// The number of the woken task.
    pub task: u32,
    /// The waker.
    pub by: Waker,
}

/// A task's name, and its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskName {
    /// The kernel: 0 is the host or the only one, 1 the first guest.
    pub kernel: u16,
    /// The name of a kernel thread; others are called by their numbers.
    pub name: String,
}

/// The timeline of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// All tasks, by their numbers.
    pub tasks: Vec<TaskName>,
    /// Turns of CPUs, by their ends.
    pub turns: Vec<OnCpu>,
    /// Wake-ups, in the order of the run.
    pub wakeups: Vec<Wakeup>,
    /// Stretches of each watched operation, by its task and start.
    pub stretches: BTreeMap<(u32, Time), Vec<Stretch>>,
    /// Turns and wake-ups that found no room.
    pub dropped: u64,
}

/// An operation that is off the fast path, and watched.
#[derive(Clone, Debug)]
struct Open {
    start: Time,
    /// The time that its task had spent, as of the last stretch.
    spent: Spent,
    stretches: Vec<Stretch>,
}

/// The observer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    watched: BTreeSet<(u32, Time)>,
    open: BTreeMap<TaskId, Open>,
    /// The task that runs on each CPU, and since when.
    on_cpu: BTreeMap<CpuId, (TaskId, Time)>,
    /// Whether the present turn is a timer's.
    is_timer: bool,
    timeline: Timeline,
}

impl Spans {
    /// The observer of a run with these operations, by their tasks and starts.
    pub(crate) fn of(operations: impl Iterator<Item = (u32, Time)>) -> Box<Self> {
        Box::new(Self { watched: operations.collect(), ..Self::default() })
    }

    /// The timeline of a run that has ended.
    pub(crate) fn finish(mut self, tasks: Vec<TaskName>) -> Timeline {
        self.timeline.tasks = tasks;
        self.timeline
    }

    /// The CPUs on which tasks are.
    pub(crate) fn busy(&self) -> Vec<CpuId> {
        self.on_cpu.keys().copied().collect()
    }

    /// Notes that the turn which begins is a timer's, or a CPU's.
    pub(crate) fn begin_turn(&mut self, is_timer: bool) {
        self.is_timer = is_timer;
    }

    /// Notes that a task leaves the fast path.
    pub(crate) fn begin_slow(&mut self, id: TaskId, start: Time, spent: Spent) {
        if self.watched.contains(&(id.0, start)) {
            self.open.insert(id, Open { start, spent, stretches: Vec::new() });
        }
    }

    /// Adds the time that a task has spent since its last stretch.
    pub(crate) fn spend(&mut self, id: TaskId, spent: &Spent, mechanism: Option<&'static str>, waits: bool) {
        let Some(open) = self.open.get_mut(&id) else { return };
        for (cause, time) in spent.since(&open.spent).by_cause() {
            match open.stretches.last_mut() {
                Some(last) if (last.mechanism, last.cause, last.waits) == (mechanism, cause, waits) => {
                    last.time += time;
                }
                _ => open.stretches.push(Stretch { mechanism, cause, waits, time }),
            }
        }
        open.spent = *spent;
    }

    /// Notes that a task's operation is over, which took `time`: later stretches belong to what followed. `spent`: the time that
    /// the task has spent, where the operation ends now.
    pub(crate) fn end_slow(&mut self, id: TaskId, spent: Option<&Spent>, time: Picos) {
        if let Some(spent) = spent {
            self.spend(id, spent, None, false);
        }
        let Some(Open { start, mut stretches, .. }) = self.open.remove(&id) else { return };
        let mut left = time;
        for stretch in &mut stretches {
            stretch.time = stretch.time.min(left);
            left = left - stretch.time;
        }
        stretches.retain(|stretch| stretch.time > Picos(0));
        if !stretches.is_empty() {
            self.timeline.stretches.insert((id.0, start), stretches);
        }
    }

    /// Notes that a task comes to a CPU.
    pub(crate) fn comes(&mut self, cpu: CpuId, task: TaskId, at: Time) {
        self.on_cpu.insert(cpu, (task, at));
    }

    /// Notes that a task leaves its CPU, which its kernel calls `number`.
    pub(crate) fn leaves(&mut self, cpu: CpuId, number: CpuId, end: Time) {
        let Some((task, start)) = self.on_cpu.remove(&cpu) else { return };
        if start == end {
            return;
        }
        if self.timeline.turns.len() < KEPT_MAX {
            self.timeline.turns.push(OnCpu { cpu: number, task: task.0, start, end });
        } else {
            self.timeline.dropped += 1;
        }
    }

    /// Notes a wake-up by the task that runs on `cpu`; none if a task is woken by its own timer.
    pub(crate) fn wakes(&mut self, id: TaskId, at: Time, (cpu, running): (Option<CpuId>, Option<TaskId>)) {
        let by = match (self.is_timer, cpu, running) {
            (true, Some(_), _) => Waker::Disk,
            (false, _, Some(waker)) if waker != id => Waker::Task(waker.0),
            _ => Waker::Timer,
        };
        if self.timeline.wakeups.len() < KEPT_MAX {
            self.timeline.wakeups.push(Wakeup { at, task: id.0, by });
        } else {
            self.timeline.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(parts: &[(Cause, u64)]) -> Spent {
        let mut spent = Spent::default();
        for (cause, picos) in parts {
            spent.add_on(*cause, Picos(*picos));
        }
        spent
    }

    #[test]
    fn stretches_are_in_order_and_end_with_their_operation() {
        let (id, mut spans) = (TaskId(3), Spans::of([(3, Time(10))].into_iter()));
        // Another operation of the task is not watched.
        spans.begin_slow(id, Time(5), Spent::default());
        spans.end_slow(id, None, Picos(1));
        spans.begin_slow(id, Time(10), spent(&[(Cause::User, 4)]));
        let reclaim = Some("direct reclaim");
        spans.spend(id, &spent(&[(Cause::User, 4), (Cause::ReclaimScan, 10)]), reclaim, false);
        spans.spend(id, &spent(&[(Cause::User, 4), (Cause::ReclaimScan, 15)]), reclaim, false);
        spans.spend(id, &spent(&[(Cause::User, 4), (Cause::ReclaimScan, 15), (Cause::Disk, 9)]), reclaim, true);
        spans.spend(id, &spent(&[(Cause::User, 4), (Cause::ReclaimScan, 25), (Cause::Disk, 9)]), reclaim, false);
        spans.end_slow(id, None, Picos(30));
        let stretch = |cause, waits, time| Stretch { mechanism: reclaim, cause, waits, time: Picos(time) };
        let wanted = [(Cause::ReclaimScan, false, 15), (Cause::Disk, true, 9), (Cause::ReclaimScan, false, 6)];
        let wanted = wanted.map(|(cause, waits, time)| stretch(cause, waits, time)).to_vec();
        assert_eq!(spans.timeline.stretches, [((3, Time(10)), wanted)].into());
    }

    #[test]
    fn a_turn_without_time_is_none() {
        let mut spans = Spans::of(std::iter::empty());
        for (start, end) in [(1, 1), (2, 5)] {
            spans.comes(CpuId(4), TaskId(7), Time(start));
            spans.leaves(CpuId(4), CpuId(0), Time(end));
        }
        let turn = OnCpu { cpu: CpuId(0), task: 7, start: Time(2), end: Time(5) };
        assert_eq!(spans.timeline.turns, [turn]);
    }

    #[test]
    fn a_waker_is_a_task_a_disk_or_a_timer() {
        let mut spans = Spans::of(std::iter::empty());
        let (cpu, other) = (Some(CpuId(0)), Some(TaskId(2)));
        for (is_timer, waker) in
            [(false, (cpu, other)), (true, (cpu, other)), (true, (None, None)), (false, (cpu, None))]
        {
            spans.begin_turn(is_timer);
            spans.wakes(TaskId(1), Time(0), waker);
        }
        let by: Vec<Waker> = spans.timeline.wakeups.iter().map(|wakeup| wakeup.by).collect();
        assert_eq!(by, [Waker::Task(2), Waker::Disk, Waker::Timer, Waker::Timer]);
    }
}
