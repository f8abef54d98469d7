//! Linux: kernel/locking/qspinlock.c, include/linux/spinlock.h (v6.1).
//! Differs: a lock knows when it was held, not which CPUs stand in its queue.
//!
//! Spin locks are held within one step, so no step ever finds one taken: all that is left of a hold is the period in which
//! the lock was not free. A CPU that comes in this period waits, and so do later CPUs, first come, first served. If the CPU
//! that comes later was simulated earlier, the other CPU waits in its place: a lock is never held twice at once.

use units::{CpuId, Time};

use crate::{
    cost::{Cause, Work},
    cx::Cx,
    fact::Fact,
};

/// Number of busy periods that are remembered. CPUs run ahead of each other by a quantum and a step at most, a few
/// microseconds, in which a lock is held a few times; under contention holds join into one period.
const PERIODS: u8 = 4;

const NOBODY: CpuId = CpuId(u32::MAX);

/// A spin lock.
#[derive(Clone, Debug)]
pub struct SpinLock {
    /// The most recent busy periods, in a ring.
    periods: [Period; PERIODS as usize],
    /// When the last period ends.
    free_at: Time,
    /// Index of the next period in the ring.
    next: u8,
    /// Index of the period that the present hold belongs to, and when the hold began.
    held: Option<(u8, Time)>,
    /// The CPU whose cache holds the lock.
    last: CpuId,
}

/// A busy period: holds without a gap between them.
#[derive(Clone, Copy, Debug)]
struct Period {
    from: Time,
    /// When the last holder releases the lock.
    until: Time,
    last: CpuId,
}

impl Period {
    const NONE: Self = Self { from: Time(0), until: Time(0), last: NOBODY };

    /// Whether a CPU that comes now has to wait. A period that begins later is the hold of a CPU that runs ahead.
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
    /// Takes the lock, after waiting for the holds of earlier CPUs. Waiting and locking are charged to `cause`.
    ///
    /// # Panics
    /// When the lock is held: a step has forgotten to release it.
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

    /// Waits until no earlier CPU holds the lock; returns the period that this CPU's hold then joins, if it had to wait.
    #[cold]
    fn wait(&self, cx: &mut Cx<'_>, cause: Cause) -> Option<u8> {
        let (mut now, cpu) = (cx.now(), cx.cpu());
        let mut joined = None;
        // Bound: each turn passes the end of a period, and no period ends after the lock is free.
        while now < self.free_at
            && let Some((at, busy)) = (0..).zip(&self.periods).find(|(_, period)| period.is_busy(now, cpu))
        {
            now = busy.until;
            joined = Some(at);
        }
        if let Some(at) = joined {
            let (holder, lock) = (self.periods[at as usize].last, || cause.name().to_owned());
            cx.fact(|| Fact::SpinWait { lock: lock(), holder, by: None, until: now });
        }
        cx.wait(now, cause);
        joined
    }

    /// Whether a CPU that comes now has to wait (`spin_trylock` fails).
    #[inline]
    pub fn is_contended(&self, cx: &Cx<'_>) -> bool {
        cx.now() < self.free_at && self.periods.iter().any(|period| period.is_busy(cx.now(), cx.cpu()))
    }

    /// Releases the lock. If another CPU came during this hold but was simulated earlier and did not wait, this CPU first
    /// waits for as long in its place, charged to `cause`.
    ///
    /// # Panics
    /// When the lock is not held.
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

    /// Appends this hold to that of a CPU that was simulated earlier: both take their time, one after the other.
    #[cold]
    fn give_way(&mut self, cx: &mut Cx<'_>, cause: Cause, from: Time) {
        let came = |period: &&mut Period| from < period.from && period.from < cx.now() && period.last != cx.cpu();
        if let Some(other) = self.periods.iter_mut().filter(came).min_by_key(|period| period.from) {
            let both = cx.now().since(other.from);
            let (holder, until) = (other.last, cx.now() + both);
            cx.fact(|| Fact::SpinWait { lock: cause.name().to_owned(), holder, by: None, until });
            other.until = other.until + both;
            self.free_at = self.free_at.max(other.until);
            cx.wait(cx.now() + both, cause);
        }
    }
}

#[cfg(test)]
mod tests;
