//! Linux: kernel/locking/qspinlock.c, include/linux/spinlock.h (v6.1).
//! Differs: a lock knows when it was held, not who stands in its queue.
//!
//! Spin locks are held within one step, so nobody ever finds one taken: what is left of a hold is the time in which it was
//! not free. Who comes in that time waits, and those who come later wait for him too, first come, first served. Where the one
//! who comes later was simulated earlier, the other one waits in his place: a lock is never held twice at once.

use units::{CpuId, Time};

use crate::{
    cost::{Cause, Work},
    cx::Cx,
};

/// How many busy periods are remembered. CPUs run ahead of each other by a quantum and a step at most, a few microseconds,
/// in which a lock is held a few times; under contention holds join and are one period.
const PERIODS: u8 = 4;

const NOBODY: CpuId = CpuId(u32::MAX);

/// A spin lock.
#[derive(Clone, Debug)]
pub struct SpinLock {
    /// The last of them, in a ring.
    periods: [Period; PERIODS as usize],
    /// When the last of them ends.
    free_at: Time,
    /// Where the next one goes.
    next: u8,
    /// The one that the present hold belongs to, and when this began.
    held: Option<(u8, Time)>,
    /// The CPU that has the lock's cache line.
    last: CpuId,
}

/// Holds without a gap between them.
#[derive(Clone, Copy, Debug)]
struct Period {
    from: Time,
    /// When the last holder lets go.
    until: Time,
    last: CpuId,
}

impl Period {
    const NONE: Self = Self { from: Time(0), until: Time(0), last: NOBODY };

    /// Does a CPU that comes now have to wait? A hold that begins later is that of a CPU which runs ahead.
    fn is_busy(&self, now: Time, cpu: CpuId) -> bool {
        self.from <= now && now < self.until && self.last != cpu
    }
}

impl Default for SpinLock {
    fn default() -> Self {
        Self { periods: [Period::NONE; PERIODS as usize], free_at: Time(0), next: 0, held: None, last: NOBODY }
    }
}

impl SpinLock {
    /// Takes the lock, after waiting for all who came before. Waiting and locking are charged to `cause`.
    ///
    /// # Panics
    /// When it is held: its holder's step has forgotten to release it.
    pub fn acquire(&mut self, cx: &mut Cx<'_>, cause: Cause) {
        assert!(self.held.is_none(), "a spin lock is held within one step");
        let cpu = cx.cpu();
        let joined = if cx.now() < self.free_at { self.wait(cx, cause) } else { None };
        let period = joined.unwrap_or_else(|| {
            let period = self.next;
            self.periods[usize::from(period)] = Period { from: cx.now(), until: cx.now(), last: cpu };
            self.next = (period + 1) % PERIODS;
            period
        });
        self.held = Some((period, cx.now()));
        cx.because(cause, |cx| {
            if self.last != cpu && self.last != NOBODY {
                cx.work(Work::LineTransfer, 1);
            }
            cx.work(Work::LockPair, 1);
        });
        self.last = cpu;
    }

    /// Waits until nobody is before this CPU; says whose period it then joins, if it had to wait.
    #[cold]
    fn wait(&self, cx: &mut Cx<'_>, cause: Cause) -> Option<u8> {
        let (mut now, cpu) = (cx.now(), cx.cpu());
        let mut joined = None;
        // Bound: each turn passes the end of a period, and none ends after the lock is free.
        while now < self.free_at
            && let Some((at, busy)) = (0..).zip(&self.periods).find(|(_, period)| period.is_busy(now, cpu))
        {
            now = busy.until;
            joined = Some(at);
        }
        cx.wait(now, cause);
        joined
    }

    /// Would a CPU that comes now have to wait (`spin_trylock` fails)?
    #[inline]
    pub fn is_contended(&self, cx: &Cx<'_>) -> bool {
        cx.now() < self.free_at && self.periods.iter().any(|period| period.is_busy(cx.now(), cx.cpu()))
    }

    /// Lets go of it, after waiting for as long as somebody who came in the meantime should have waited, but was simulated
    /// before and did not. That is charged to `cause`.
    ///
    /// # Panics
    /// When it is not held.
    #[inline]
    pub fn release(&mut self, cx: &mut Cx<'_>, cause: Cause) {
        let (held, from) = self.held.take().expect("a spin lock is taken before it is released");
        if from < self.free_at {
            self.give_way(cx, cause, from);
        }
        let period = &mut self.periods[usize::from(held)];
        (period.until, period.last) = (cx.now(), cx.cpu());
        self.free_at = self.free_at.max(cx.now());
    }

    /// Both holds take their time one after the other, whoever waits.
    #[cold]
    fn give_way(&mut self, cx: &mut Cx<'_>, cause: Cause, from: Time) {
        let came = |period: &&mut Period| from < period.from && period.from < cx.now() && period.last != cx.cpu();
        if let Some(other) = self.periods.iter_mut().filter(came).min_by_key(|period| period.from) {
            let both = cx.now().since(other.from);
            other.until = other.until + both;
            self.free_at = self.free_at.max(other.until);
            cx.wait(cx.now() + both, cause);
        }
    }
}

#[cfg(test)]
mod tests;
