//! The lock of an address space, held for write by what changes mappings and for read by faults.
//!
//! Held across steps it has owners and a queue; the end of a hold lies in the future of those who look earlier, because a
//! step's effects happen at its start, so there is also the instant from which the lock is free. First come, first served:
//! the kernel's fairness and spinning, and the locks per VMA of 6.4 and later, come with step 3.

use std::collections::VecDeque;

use units::Time;

use crate::task::TaskId;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

/// One lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct MmapLock {
    readers: u32,
    writer: bool,
    /// When the last reader, and the last writer, have let go.
    read_until: Time,
    written_until: Time,
    queue: VecDeque<TaskId>,
}

impl MmapLock {
    /// Takes the lock, from the returned instant on; `None` when the task has to wait in the queue.
    pub(crate) fn acquire(&mut self, task: TaskId, mode: Mode, now: Time) -> Option<Time> {
        let taken = self.writer || (mode == Mode::Write && self.readers > 0);
        let behind = self.queue.front().is_some_and(|first| *first != task);
        if taken || behind {
            if !self.queue.contains(&task) {
                self.queue.push_back(task);
            }
            return None;
        }
        self.queue.retain(|waiting| *waiting != task);
        match mode {
            Mode::Read => {
                self.readers += 1;
                Some(now.max(self.written_until))
            }
            Mode::Write => {
                self.writer = true;
                Some(now.max(self.written_until).max(self.read_until))
            }
        }
    }

    /// Lets go at an instant; the task that may try next.
    pub(crate) fn release(&mut self, mode: Mode, at: Time) -> Option<TaskId> {
        match mode {
            Mode::Read => {
                self.readers -= 1;
                self.read_until = self.read_until.max(at);
            }
            Mode::Write => {
                self.writer = false;
                self.written_until = self.written_until.max(at);
            }
        }
        self.next()
    }

    /// The first in the queue, if it would not find the lock held for write. One that wants to read lets those behind it
    /// try as well, once it has the lock.
    pub(crate) fn next(&self) -> Option<TaskId> {
        self.queue.front().copied().filter(|_| !self.writer)
    }

    /// A task that waits no longer.
    pub(crate) fn leave(&mut self, task: TaskId) {
        self.queue.retain(|waiting| *waiting != task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_for_readers_and_readers_behind_writers() {
        let mut lock = MmapLock::default();
        let [a, b, c] = [0, 1, 2].map(TaskId);
        assert_eq!(lock.acquire(a, Mode::Read, Time(1)), Some(Time(1)));
        assert_eq!(lock.acquire(b, Mode::Write, Time(2)), None);
        assert_eq!(lock.acquire(c, Mode::Read, Time(3)), None, "first come, first served");
        assert_eq!(lock.release(Mode::Read, Time(10)), Some(b));
        assert_eq!(lock.acquire(b, Mode::Write, Time(5)), Some(Time(10)), "not before the reader has let go");
        assert_eq!(lock.release(Mode::Write, Time(20)), Some(c));
        assert_eq!(lock.acquire(c, Mode::Read, Time(30)), Some(Time(30)));
        assert_eq!(lock.release(Mode::Read, Time(40)), None);
    }
}
