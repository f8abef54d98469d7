//! Linux: kernel/locking/rwsem.c (v6.1), rwsem.c (v5.4), rwsem-xadd.c (v3.16, v4.14): the lock of an address space.
//!
//! The lock of an address space (`mmap_lock`) is held for write by operations that change mappings and for read by faults,
//! across steps. It has owners, a queue of tasks that sleep for it, and a queue of tasks that spin for it (the OSQ), of which
//! only the first looks at the lock.
//!
//! | rules | since | readers | writers |
//! |---|---|---|---|
//! | sleeping | | queue behind whoever waits | the same |
//! | spinning | 3.16 | the same | spin while a writer has it and runs; who spins is faster than who wakes up |
//! | spinning on readers | 5.3 | spin and come in as long as no writer has it | spin on readers too, for at most 25 us |
//! | stealing | 5.11 | come in at once if nobody has it | the same |
//!
//! From 5.3 on a wake-up lets all readers of the queue in, and a task that was first in the queue for 4 ms is handed the lock.
//! A writer that has spun on readers in vain forbids spinning: to writers until no reader has the lock, to readers (which then
//! queue, so that the readers come to an end) up to 5.10 until a writer had it.
//!
//! Not modelled: the second try of a reader that stops spinning (`rwsem_reader_phase_trylock`, up to 5.10), a first waiter
//! that spins on a running writer once it has asked for the hand-over, and batches of 256 readers.

use std::mem::size_of;

use rules::variant::MmapLock as Rules;
use units::{Picos, Time};

use crate::{TICK, ids::TaskId};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

/// A task that wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) task: TaskId,
    pub(crate) mode: Mode,
    pub(crate) now: Time,
}

/// The result of a try to take the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The task holds the lock.
    Held,
    /// The task spins on its CPU, until it is told to try again or until this instant.
    Spin(Option<Time>),
    /// The task waits in the queue.
    Sleep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    task: TaskId,
    mode: Mode,
    since: Time,
    /// Spinning was forbidden when the task began to wait.
    saw_forbidden: bool,
}

impl Waiter {
    /// Whether the task has waited for longer than `RWSEM_WAIT_TIMEOUT`, one jiffy of 4 ms (`time_after`).
    fn is_overdue(&self, now: Time) -> bool {
        let jiffy = |at: Time| at.0 / TICK.0;
        jiffy(now) > jiffy(self.since) + 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spinner {
    task: TaskId,
    mode: Mode,
    /// When a writer that spins on readers gives up.
    until: Option<Time>,
}

/// The tasks to be told of a change of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Tasks that hold the lock for read now, and wake up.
    pub(crate) granted: Vec<TaskId>,
    /// The first task of the queue, which wakes up and tries.
    pub(crate) woken: Option<TaskId>,
    /// The first task that spins, which tries.
    pub(crate) tries: Option<TaskId>,
}

impl Told {
    /// Whether no task is told, as is the case if none waits.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.granted.is_empty() && self.woken.is_none() && self.tries.is_none()
    }
}

/// The tasks that a wake-up is for (`enum rwsem_wake_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// The first of the queue.
    Any,
    /// Readers only.
    Readers,
    /// Readers only, woken by a task that holds the lock for read.
    ReadOwned,
}

/// One lock, in a cache line of its own.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Rwsem {
    readers: u32,
    writer: Option<TaskId>,
    /// Waiters and spinners, the first one first; both lists are short.
    queue: Vec<Waiter>,
    spinners: Vec<Spinner>,
    /// Only the first of the queue may take the lock (`RWSEM_FLAG_HANDOFF`).
    handoff: bool,
    /// Whether writers may not spin, and readers may not (`RWSEM_NONSPINNABLE`, up to 5.10 a bit for each).
    no_write_spin: bool,
    no_read_spin: bool,
}

const _: () = assert!(size_of::<Rwsem>() == 64);

/// Whether these are the rules since the rewrite of 5.3.
fn is_rewritten(rules: Rules) -> bool {
    matches!(rules, Rules::SpinningOnReaders | Rules::Stealing)
}

impl Rwsem {
    /// Tries to take the lock (`down_read`, `down_write`), or goes on with a try. `is_running`: whether a task has a CPU.
    pub(crate) fn acquire(&mut self, wish: Wish, rules: Rules, is_running: impl Fn(TaskId) -> bool) -> (Outcome, Told) {
        let mut told = Told::default();
        let outcome = match wish.mode {
            Mode::Read => self.read(wish, rules, is_running, &mut told),
            Mode::Write => self.write(wish, rules, is_running, &mut told),
        };
        (outcome, told)
    }

    /// The task that holds the lock alone, or the number of readers that hold it.
    pub(crate) fn holder(&self) -> Result<TaskId, u32> {
        self.writer.ok_or(self.readers)
    }

    /// Takes the lock for read if that needs no waiting (`down_read_trylock`).
    pub(crate) fn try_read(&mut self, rules: Rules) -> bool {
        let is_open = self.writer.is_none() && self.queue.is_empty();
        if is_open {
            self.take_read(rules);
        }
        is_open
    }

    /// Takes the lock for a reader that does not spin, if there are no waiters: the case of nearly every fault.
    #[inline]
    pub(crate) fn read_alone(&mut self, rules: Rules) -> bool {
        let is_open = self.writer.is_none() && !self.is_contended();
        if is_open {
            self.take_read(rules);
        }
        is_open
    }

    /// Releases the lock for a reader if it `had` it, and takes it again if it `needs` it, where no task waits.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "in most turns nothing is left of it")]
    pub(crate) fn renew(&mut self, had: bool, needs: bool, rules: Rules) {
        if had != needs {
            self.readers = if had { self.readers - 1 } else { self.readers + 1 };
        }
        if needs && rules == Rules::SpinningOnReaders {
            self.no_write_spin = false;
        }
    }

    /// Whether any task waits for the lock.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        !self.queue.is_empty() || !self.spinners.is_empty()
    }

    fn is_free(&self) -> bool {
        self.readers == 0 && self.writer.is_none()
    }

    // ---- Readers

    fn read(&mut self, wish: Wish, rules: Rules, is_running: impl Fn(TaskId) -> bool, told: &mut Told) -> Outcome {
        if self.writer.is_none() && self.queue.is_empty() {
            self.stop_spinning(wish.task, told);
            self.take_read(rules);
            return Outcome::Held;
        }
        match rules {
            Rules::Sleeping | Rules::Spinning => {}
            Rules::SpinningOnReaders if !self.no_read_spin && self.writer.is_none_or(is_running) => {
                if !self.is_next_spinner(wish.task) || self.writer.is_some() || self.handoff {
                    return self.spin(wish, rules);
                }
                self.stop_spinning(wish.task, told);
                self.take_read(rules);
                self.wake(Wake::ReadOwned, wish.now, rules, told);
                return Outcome::Held;
            }
            Rules::SpinningOnReaders => self.stop_spinning(wish.task, told),
            Rules::Stealing => {
                if self.is_free() && !self.handoff {
                    self.take_read(rules);
                    self.wake(Wake::ReadOwned, wish.now, rules, told);
                    return Outcome::Held;
                }
            }
        }
        self.queue_reader(wish, rules, told)
    }

    /// Queues a reader (the end of `rwsem_down_read_slowpath`).
    fn queue_reader(&mut self, wish: Wish, rules: Rules, told: &mut Told) -> Outcome {
        self.enqueue(wish);
        if self.is_free() {
            self.allow_writers_to_spin(rules);
            self.wake(Wake::Any, wish.now, rules, told);
        } else if self.writer.is_none() && (rules == Rules::Stealing || self.queue.len() == 1) {
            self.wake(Wake::Readers, wish.now, rules, told);
        }
        match told.granted.iter().position(|granted| *granted == wish.task) {
            Some(own) => {
                told.granted.remove(own);
                Outcome::Held
            }
            None => Outcome::Sleep,
        }
    }

    #[inline]
    fn take_read(&mut self, rules: Rules) {
        self.readers += 1;
        if rules == Rules::SpinningOnReaders {
            // The owner is written anew, and only the readers' bit survives (`__rwsem_set_reader_owned`).
            self.no_write_spin = false;
        }
    }

    // ---- Writers

    fn write(&mut self, wish: Wish, rules: Rules, is_running: impl Fn(TaskId) -> bool, told: &mut Told) -> Outcome {
        if self.queue.iter().any(|waiter| waiter.task == wish.task) {
            return self.try_queued(wish, rules);
        }
        let may_spin = match rules {
            Rules::Sleeping => false,
            Rules::Spinning => self.writer.map_or(self.readers == 0, is_running),
            Rules::SpinningOnReaders | Rules::Stealing => !self.no_write_spin && self.writer.is_none_or(is_running),
        };
        let is_next = self.is_next_spinner(wish.task);
        if self.is_free() && (self.queue.is_empty() || (may_spin && is_next && !self.handoff)) {
            self.stop_spinning(wish.task, told);
            self.take_write(wish.task);
            // The releasing task finds a writer where it would have let the first reader in.
            self.wake(Wake::ReadOwned, wish.now, rules, told);
            return Outcome::Held;
        }
        if may_spin {
            return self.spin(wish, rules);
        }
        self.stop_spinning(wish.task, told);
        self.enqueue(wish);
        if self.queue.len() > 1 && self.writer.is_none() {
            match (self.readers > 0, is_rewritten(rules)) {
                (true, _) => self.wake(Wake::Readers, wish.now, rules, told),
                (false, true) => self.wake(Wake::Any, wish.now, rules, told),
                (false, false) => {}
            }
        }
        self.try_queued(wish, rules)
    }

    /// Lets a task of the queue try (`rwsem_try_write_lock`); if it fails, it may ask for the hand-over.
    fn try_queued(&mut self, wish: Wish, rules: Rules) -> Outcome {
        let place = self.queue.iter().position(|waiter| waiter.task == wish.task).expect("it waits in the queue");
        let is_first = place == 0;
        if self.is_free() && (is_first || (rules != Rules::Sleeping && !self.handoff)) {
            let waiter = self.queue.remove(place);
            self.handoff = false;
            self.take_write(wish.task);
            self.no_read_spin = rules == Rules::SpinningOnReaders && waiter.saw_forbidden;
            return Outcome::Held;
        }
        self.handoff |= is_rewritten(rules) && is_first && self.queue[place].is_overdue(wish.now);
        Outcome::Sleep
    }

    fn take_write(&mut self, task: TaskId) {
        self.writer = Some(task);
        (self.no_write_spin, self.no_read_spin) = (false, false);
        for spinner in &mut self.spinners {
            // Readers that come after this writer are spun on for the whole time again.
            spinner.until = None;
        }
    }

    // ---- Letting go

    /// Releases the lock if no task waits, so that none is told; else returns false and changes nothing.
    #[inline]
    pub(crate) fn release_alone(&mut self, mode: Mode) -> bool {
        let is_alone = !self.is_contended();
        if is_alone {
            self.drop_hold(mode);
        }
        is_alone
    }

    #[inline]
    fn drop_hold(&mut self, mode: Mode) {
        match mode {
            Mode::Read => self.readers -= 1,
            Mode::Write => {
                self.writer = None;
                (self.no_write_spin, self.no_read_spin) = (false, false);
            }
        }
    }

    /// Releases the lock (`up_read`, `up_write`).
    pub(crate) fn release(&mut self, mode: Mode, now: Time, rules: Rules) -> Told {
        let mut told = Told::default();
        self.drop_hold(mode);
        if self.readers > 0 || !self.is_contended() {
            return told;
        }
        if !self.queue.is_empty() {
            self.allow_writers_to_spin(rules);
        }
        let head = self.spinners.first().copied();
        match (head, self.queue.first()) {
            // The spinner sees the free lock before the releasing task has taken the queue's lock.
            (Some(Spinner { mode: Mode::Write, .. }), Some(first)) if !self.handoff => {
                if first.mode == Mode::Write {
                    told.woken = Some(first.task);
                }
            }
            _ => self.wake(Wake::Any, now, rules, &mut told),
        }
        told.tries = head.map(|spinner| spinner.task);
        told
    }

    /// Turns a write hold into a read hold (`downgrade_write`).
    pub(crate) fn downgrade(&mut self, now: Time, rules: Rules) -> Told {
        let mut told = Told { tries: self.spinners.first().map(|spinner| spinner.task), ..Told::default() };
        self.writer = None;
        self.take_read(rules);
        self.wake(Wake::ReadOwned, now, rules, &mut told);
        told
    }

    /// Wakes the first of the queue, or all readers that may come in (`rwsem_mark_wake`).
    fn wake(&mut self, whom: Wake, now: Time, rules: Rules, told: &mut Told) {
        let Some(first) = self.queue.first() else { return };
        match (first.mode, self.writer) {
            (Mode::Write, _) if whom == Wake::Any => told.woken = Some(first.task),
            (Mode::Write, _) => {}
            (Mode::Read, Some(_)) => self.handoff |= is_rewritten(rules) && first.is_overdue(now),
            (Mode::Read, None) => {
                let saw_forbidden = first.saw_forbidden;
                self.let_readers_in(rules, told);
                // The owner field is the first reader's, with the flag that it saw.
                self.no_read_spin |= rules == Rules::SpinningOnReaders && saw_forbidden;
            }
        }
    }

    /// Gives the lock to readers, without a try of theirs: to those at the head of the queue, and since 5.3 to all others too.
    fn let_readers_in(&mut self, rules: Rules, told: &mut Told) {
        let head = self.queue.iter().take_while(|waiter| waiter.mode == Mode::Read).count();
        let many = if is_rewritten(rules) { self.queue.len() } else { head };
        let mut rest = Vec::new();
        for (place, waiter) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            if place < many && waiter.mode == Mode::Read {
                told.granted.push(waiter.task);
                self.take_read(rules);
            } else {
                rest.push(waiter);
            }
        }
        self.queue = rest;
        self.handoff = false;
        told.tries = told.tries.or(self.spinners.first().map(|spinner| spinner.task));
    }

    // ---- Spinning and sleeping

    fn spin(&mut self, wish: Wish, rules: Rules) -> Outcome {
        let Wish { task, mode, now } = wish;
        if !self.is_spinner(task) {
            self.spinners.push(Spinner { task, mode, until: None });
        }
        let readers = self.readers;
        let head = self.spinners.first_mut().filter(|head| head.task == task);
        let Some(head) = head.filter(|_| mode == Mode::Write && is_rewritten(rules) && readers > 0) else {
            return Outcome::Spin(None);
        };
        Outcome::Spin(Some(*head.until.get_or_insert(now + spin_on(readers))))
    }

    /// Lets a task look up from spinning. A writer that has spun on readers for the longest time forbids spinning.
    pub(crate) fn end_of_spinning(&mut self, task: TaskId, now: Time) {
        let is_over = |head: &Spinner| head.task == task && head.until.is_some_and(|until| until <= now);
        if self.spinners.first().is_some_and(is_over) {
            self.forbid_spinning();
        }
    }

    fn forbid_spinning(&mut self) {
        if self.readers > 0 {
            (self.no_write_spin, self.no_read_spin) = (true, true);
        }
    }

    /// Lets writers spin again, as no reader holds the lock while a task waits (`clear_nonspinnable`).
    fn allow_writers_to_spin(&mut self, rules: Rules) {
        self.no_write_spin = false;
        self.no_read_spin &= rules == Rules::SpinningOnReaders;
    }

    fn is_spinner(&self, task: TaskId) -> bool {
        self.spinners.iter().any(|spinner| spinner.task == task)
    }

    fn is_next_spinner(&self, task: TaskId) -> bool {
        self.spinners.first().is_none_or(|head| head.task == task)
    }

    /// Stops a task's spinning, if it spins; the next spinner then looks at the lock.
    fn stop_spinning(&mut self, task: TaskId, told: &mut Told) {
        if self.spinners.is_empty() {
            return;
        }
        let was_head = self.spinners.first().is_some_and(|head| head.task == task);
        self.spinners.retain(|spinner| spinner.task != task);
        if was_head {
            told.tries = self.spinners.first().map(|spinner| spinner.task);
        }
    }

    fn enqueue(&mut self, wish: Wish) {
        let saw_forbidden = self.no_read_spin;
        self.queue.push(Waiter { task: wish.task, mode: wish.mode, since: wish.now, saw_forbidden });
    }

    /// Stops a task's spinning.
    pub(crate) fn leave(&mut self, task: TaskId) -> Told {
        let mut told = Told::default();
        self.stop_spinning(task, &mut told);
        told
    }

    /// The tasks that spin; they stop when the owner no longer runs.
    pub(crate) fn spinners(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.spinners.iter().map(|spinner| spinner.task)
    }

    /// Whether any task waits for the lock, or holds it for write.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.writer.is_some() || self.is_contended()
    }

    /// Whether this task holds the lock for write.
    pub(crate) fn is_written_by(&self, task: TaskId) -> bool {
        self.writer == Some(task)
    }
}

/// Number of writes by which a fault that holds the lock for read changes the cache line of its count, if other CPUs do so
/// too: trylock reads and exchanges, or exchanges in vain and again; unlock subtracts; from 5.3 on a reader also writes the
/// owner.
pub(crate) fn line_accesses(rules: Rules) -> u64 {
    if is_rewritten(rules) { 4 } else { 3 }
}

/// How long a writer spins on readers (`rwsem_rspin_threshold`).
fn spin_on(readers: u32) -> Picos {
    Picos::from_nanos(500 * (20 + u64::from(readers.min(30))))
}

#[cfg(test)]
mod tests;
