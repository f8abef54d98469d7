//! Linux: kernel/locking/rwsem.c, kernel/locking/rwsem-xadd.c (v3.9 to v6.1).
//!
//! The lock of an address space (`mmap_lock`), held for write by what changes mappings and for read by faults. It is held
//! across steps, so it has owners and a queue; and as a step's effects happen at its start, the end of a hold lies in the
//! future of those who look earlier, so there is also the instant from which the lock is free.
//!
//! A writer that finds another writer running spins (optimistic spinning, 3.16); everybody else sleeps. Up to 5.1 readers
//! queue behind whoever waits; later kernels let a reader in as long as no writer has the lock (stealing, 5.11), wake all
//! readers of the queue at once, and hand the lock to a writer that has waited for 4 ms. Not here: spinning on readers
//! (5.2 to 5.10), and the batch of 256 readers that one wake-up lets in.

use std::collections::VecDeque;

use mm::variant::MmapLock as Rules;
use units::{Picos, Time};

use crate::task::TaskId;

/// A writer that has waited for this long gets the lock handed over (`RWSEM_WAIT_TIMEOUT`).
const HANDOFF_AFTER: Picos = Picos::from_micros(4000);

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

/// What trying to take it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is held from this instant on.
    Held(Time),
    /// It is about to be free: the CPU waits.
    Spin,
    /// The task waits in the queue.
    Sleep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    task: TaskId,
    mode: Mode,
    since: Time,
}

/// What letting go leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// These have the lock for read, and wake up.
    pub(crate) granted: Vec<TaskId>,
    /// This one wakes up, or stops spinning, and tries again.
    pub(crate) tries: Option<TaskId>,
}

/// One lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rwsem {
    readers: u32,
    writer: Option<TaskId>,
    /// When the last reader, and the last writer, have let go.
    read_until: Time,
    written_until: Time,
    queue: VecDeque<Waiter>,
    /// Writers that spin, the first one first (the OSQ).
    spinners: VecDeque<TaskId>,
}

impl Rwsem {
    /// Tries to take the lock. `is_running`: does a task have a CPU?
    pub(crate) fn acquire(
        &mut self,
        task: TaskId,
        mode: Mode,
        now: Time,
        rules: Rules,
        is_running: impl Fn(TaskId) -> bool,
    ) -> Outcome {
        let is_first = self.queue.front().is_some_and(|first| first.task == task);
        let may = match mode {
            Mode::Read => self.may_read(now, rules, is_first),
            Mode::Write => self.may_write(task, now, rules, is_first),
        };
        if may {
            self.leave(task);
            return Outcome::Held(self.take(task, mode, now));
        }
        let is_queued = self.queue.iter().any(|waiter| waiter.task == task);
        if mode == Mode::Write && !is_queued && rules != Rules::Sleeping && self.writer.is_some_and(is_running) {
            if !self.spinners.contains(&task) {
                self.spinners.push_back(task);
            }
            return Outcome::Spin;
        }
        if !is_queued {
            self.spinners.retain(|spinner| *spinner != task);
            self.queue.push_back(Waiter { task, mode, since: now });
        }
        Outcome::Sleep
    }

    fn may_read(&self, now: Time, rules: Rules, is_first: bool) -> bool {
        if self.writer.is_some() {
            return false;
        }
        let behind = !self.queue.is_empty() && !is_first;
        match rules {
            Rules::Stealing => !behind || (self.readers <= 1 && !self.hands_over(now)),
            Rules::Sleeping | Rules::Spinning => !behind,
        }
    }

    fn may_write(&self, task: TaskId, now: Time, rules: Rules, is_first: bool) -> bool {
        let is_free = self.readers == 0 && self.writer.is_none();
        let is_next_spinner = self.spinners.front().is_none_or(|first| *first == task);
        let may_steal = rules != Rules::Sleeping && is_next_spinner && !self.hands_over(now);
        is_free && (is_first || self.queue.is_empty() || may_steal)
    }

    /// Has the first of the queue waited for so long that nobody may be faster?
    fn hands_over(&self, now: Time) -> bool {
        let waited = |first: &Waiter| first.mode == Mode::Write && now > first.since + HANDOFF_AFTER;
        self.queue.front().is_some_and(waited)
    }

    fn take(&mut self, task: TaskId, mode: Mode, now: Time) -> Time {
        match mode {
            Mode::Read => {
                self.readers += 1;
                now.max(self.written_until)
            }
            Mode::Write => {
                self.writer = Some(task);
                now.max(self.written_until).max(self.read_until)
            }
        }
    }

    /// A writer becomes a reader (`downgrade_write`): readers at the head of the queue come in.
    pub(crate) fn downgrade(&mut self, at: Time, rules: Rules) -> Released {
        self.writer = None;
        self.readers += 1;
        self.written_until = self.written_until.max(at);
        Released { granted: self.let_readers_in(rules), tries: None }
    }

    /// Lets go at an instant (`rwsem_wake`).
    pub(crate) fn release(&mut self, mode: Mode, at: Time, rules: Rules) -> Released {
        match mode {
            Mode::Read => {
                self.readers -= 1;
                self.read_until = self.read_until.max(at);
            }
            Mode::Write => {
                self.writer = None;
                self.written_until = self.written_until.max(at);
            }
        }
        let mut released = Released::default();
        if self.readers > 0 {
            return released;
        }
        match (self.spinners.front(), self.queue.front()) {
            (Some(spinner), _) if !self.hands_over(at) => released.tries = Some(*spinner),
            (_, Some(Waiter { mode: Mode::Write, task, .. })) => released.tries = Some(*task),
            (_, Some(Waiter { mode: Mode::Read, .. })) => released.granted = self.let_readers_in(rules),
            (Some(spinner), None) => released.tries = Some(*spinner),
            (None, None) => {}
        }
        released
    }

    /// Readers get the lock by who wakes them: those at the head of the queue, and since 5.2 all others if one is.
    fn let_readers_in(&mut self, rules: Rules) -> Vec<TaskId> {
        if self.queue.front().is_none_or(|first| first.mode == Mode::Write) {
            return Vec::new();
        }
        let head = self.queue.iter().take_while(|waiter| waiter.mode == Mode::Read).count();
        let many = if rules == Rules::Stealing { self.queue.len() } else { head };
        let mut granted = Vec::new();
        let mut rest = VecDeque::new();
        for (place, waiter) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            if place < many && waiter.mode == Mode::Read {
                granted.push(waiter.task);
            } else {
                rest.push_back(waiter);
            }
        }
        self.queue = rest;
        self.readers += u32::try_from(granted.len()).expect("fewer than 2^32 tasks");
        granted
    }

    /// When a task that was granted the lock for read really has it.
    pub(crate) fn granted_from(&self, at: Time) -> Time {
        at.max(self.written_until)
    }

    /// The tasks that spin; they stop when the owner no longer runs.
    pub(crate) fn spinners(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.spinners.iter().copied()
    }

    /// Does anybody wait for it, or hold it alone?
    pub(crate) fn is_wanted(&self) -> bool {
        self.writer.is_some() || !self.queue.is_empty() || !self.spinners.is_empty()
    }

    /// Is this task the writer?
    pub(crate) fn is_written_by(&self, task: TaskId) -> bool {
        self.writer == Some(task)
    }

    /// A task that waits no longer.
    pub(crate) fn leave(&mut self, task: TaskId) {
        self.queue.retain(|waiting| waiting.task != task);
        self.spinners.retain(|spinner| *spinner != task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Picos::from_micros(1000).0;

    fn got(lock: &mut Rwsem, task: u32, mode: Mode, now: u64, rules: Rules) -> Outcome {
        lock.acquire(TaskId(task), mode, Time(now), rules, |_| true)
    }

    #[test]
    fn old_kernels_serve_in_the_order_of_arrival() {
        let mut lock = Rwsem::default();
        let rules = Rules::Sleeping;
        assert_eq!(got(&mut lock, 0, Mode::Read, 1, rules), Outcome::Held(Time(1)));
        assert_eq!(got(&mut lock, 1, Mode::Write, 2, rules), Outcome::Sleep);
        assert_eq!(got(&mut lock, 2, Mode::Read, 3, rules), Outcome::Sleep, "behind the writer");
        assert_eq!(got(&mut lock, 3, Mode::Write, 3, rules), Outcome::Sleep);
        assert_eq!(got(&mut lock, 4, Mode::Read, 4, rules), Outcome::Sleep);
        assert_eq!(lock.release(Mode::Read, Time(10), rules).tries, Some(TaskId(1)));
        assert_eq!(
            got(&mut lock, 1, Mode::Write, 5, rules),
            Outcome::Held(Time(10)),
            "not before the reader has let go"
        );
        assert_eq!(lock.release(Mode::Write, Time(20), rules).granted, [TaskId(2)], "those before the next writer");
        assert_eq!(lock.granted_from(Time(5)), Time(20));
        assert_eq!(lock.release(Mode::Read, Time(30), rules).tries, Some(TaskId(3)));
    }

    #[test]
    fn a_writer_spins_while_another_one_runs() {
        let mut lock = Rwsem::default();
        let rules = Rules::Spinning;
        got(&mut lock, 0, Mode::Write, 1, rules);
        assert_eq!(lock.acquire(TaskId(1), Mode::Write, Time(2), rules, |_| false), Outcome::Sleep, "its owner sleeps");
        assert_eq!(got(&mut lock, 2, Mode::Write, 2, rules), Outcome::Spin);
        assert_eq!(got(&mut lock, 3, Mode::Read, 2, rules), Outcome::Sleep, "readers do not");
        assert_eq!(
            lock.release(Mode::Write, Time(9), rules).tries,
            Some(TaskId(2)),
            "who spins is faster than who wakes up"
        );
        assert_eq!(got(&mut lock, 2, Mode::Write, 2, rules), Outcome::Held(Time(9)));
        let later = Time(9 * MS);
        assert_eq!(lock.release(Mode::Write, later, rules).tries, Some(TaskId(1)));
    }

    #[test]
    fn new_kernels_let_readers_steal_until_a_writer_has_waited_too_long() {
        let mut lock = Rwsem::default();
        let rules = Rules::Stealing;
        got(&mut lock, 0, Mode::Read, 0, rules);
        assert_eq!(got(&mut lock, 1, Mode::Write, 1, rules), Outcome::Sleep);
        assert_eq!(got(&mut lock, 2, Mode::Read, 2, rules), Outcome::Held(Time(2)), "no writer has it");
        assert_eq!(got(&mut lock, 3, Mode::Read, 3, rules), Outcome::Sleep, "readers own it: wait for your turn");
        lock.release(Mode::Read, Time(4), rules);
        assert_eq!(got(&mut lock, 4, Mode::Read, 5 * MS, rules), Outcome::Sleep, "the writer has waited for 4 ms");
        assert_eq!(lock.release(Mode::Read, Time(6 * MS), rules).tries, Some(TaskId(1)));
        assert_eq!(got(&mut lock, 1, Mode::Write, 6 * MS, rules), Outcome::Held(Time(6 * MS)));
        assert_eq!(got(&mut lock, 5, Mode::Write, 6 * MS, rules), Outcome::Spin);
        let downgraded = lock.downgrade(Time(7 * MS), rules);
        assert_eq!(downgraded.granted, [TaskId(3), TaskId(4)], "all readers of the queue");
    }
}
