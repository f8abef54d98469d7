//! The one order of time: (time, class, id, sequence), timers before CPUs.
//!
//! The earliest timer or CPU runs, up to its *horizon*: the earlier of the next timer and the clock of the next CPU, plus a
//! quantum. So no CPU runs ahead of another by more than one quantum, and range operations may take many faults in one step.

use std::{cmp::Reverse, collections::BinaryHeap};

use units::{CpuId, Picos, Time};

use crate::ids::TaskId;

/// The next timer or CPU in the one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A timer fires for a task.
    Timer { at: Time, task: TaskId },
    /// A CPU runs from its clock up to the horizon.
    Cpu { cpu: CpuId, clock: Time, horizon: Time },
    /// Nothing will ever run again.
    Nothing,
}

/// Timers and the CPUs that have something to run.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Armed timers; the sequence keeps timers of equal time in the order in which they were armed.
    timers: BinaryHeap<Reverse<(Time, u64, TaskId)>>,
    cpus: Ring,
    armed: u64,
    quantum: Picos,
    latest_start: Time,
    /// Turns and timers since the latest start has moved, and since a task has made progress; and the bounds at which the
    /// world checks for progress.
    still: u64,
    vain: u64,
    still_max: u64,
    vain_max: u64,
    patience: Time,
}

impl Clock {
    pub(crate) fn new(cpus: usize, quantum: Picos) -> Self {
        Self {
            timers: BinaryHeap::new(),
            cpus: Ring::new(cpus),
            armed: 0,
            quantum,
            latest_start: Time(0),
            still: 0,
            vain: 0,
            still_max: 0,
            vain_max: 0,
            patience: Time(0),
        }
    }

    /// Whether a check for progress is due.
    #[inline]
    pub(crate) fn is_overdue(&self) -> bool {
        self.still >= self.still_max || self.vain >= self.vain_max || self.latest_start > self.patience
    }

    /// Sets when the next check is due: after an instant, after `still` turns at one instant, or after `vain` turns without
    /// progress.
    pub(crate) fn look_again(&mut self, after: Time, still: u64, vain: u64) {
        (self.patience, self.still_max, self.vain_max) = (after, still, vain);
    }

    /// Notes that a task has made progress.
    #[inline]
    pub(crate) fn get_on(&mut self) {
        self.vain = 0;
    }

    /// Turns and timers since a task has made progress.
    pub(crate) fn vain(&self) -> u64 {
        self.vain
    }

    /// The latest start of any turn of a CPU.
    pub(crate) fn latest_start(&self) -> Time {
        self.latest_start
    }

    /// Turns and timers since the latest start has moved.
    pub(crate) fn still(&self) -> u64 {
        self.still
    }

    /// Arms a timer.
    pub(crate) fn arm(&mut self, at: Time, task: TaskId) {
        self.timers.push(Reverse((at, self.armed, task)));
        self.armed += 1;
    }

    /// When the next timer fires or the next CPU in the order has its turn, whichever is earlier.
    pub(crate) fn earliest(&self) -> Time {
        let timer = self.timers.peek().map_or(NEVER, |Reverse((at, _, _))| *at);
        let ((first, _), _) = self.cpus.first_two();
        timer.min(first)
    }

    /// Number of armed timers.
    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Puts a CPU into the order that has something to run from `clock` on. Each CPU is in the order at most once.
    #[inline]
    pub(crate) fn ready(&mut self, cpu: CpuId, clock: Time) {
        self.cpus.enter(cpu, clock);
    }

    /// Takes the next timer or CPU out of the order.
    ///
    /// # Panics
    /// When a step would start more than one quantum before an earlier one did.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        let timer = self.timers.peek().map_or(NEVER, |Reverse((at, _, _))| *at);
        let ((clock, cpu), (second, _)) = self.cpus.first_two();
        if timer <= clock {
            return self.fire();
        }
        self.cpus.take();
        let horizon = Time(timer.min(second).0.saturating_add(self.quantum.0));
        let earliest_allowed = Time(self.latest_start.0.saturating_sub(self.quantum.0));
        assert!(clock >= earliest_allowed, "a step at {clock:?} after one at {:?}", self.latest_start);
        self.still = if clock > self.latest_start { 0 } else { self.still + 1 };
        self.vain += 1;
        self.latest_start = self.latest_start.max(clock);
        Next::Cpu { cpu, clock, horizon }
    }

    fn fire(&mut self) -> Next {
        (self.still, self.vain) = (self.still + 1, self.vain + 1);
        match self.timers.pop() {
            Some(Reverse((at, _, task))) => Next::Timer { at, task },
            None => Next::Nothing,
        }
    }
}

/// A time after all others.
const NEVER: Time = Time(u64::MAX);

/// CPUs in order of their clocks; of equal clocks the lowest CPU number first. A sorted ring: a CPU that had a turn has run
/// up to the horizon, where few CPUs are behind it, so that it finds its place in a few comparisons; and the next CPU is
/// known at once.
#[derive(Clone, Debug)]
struct Ring {
    /// Places, a power of two of them and at least two; `VACANT` where no CPU stands.
    places: Box<[u128]>,
    /// Index of the first CPU, and number of CPUs in the ring.
    head: usize,
    len: usize,
}

impl Ring {
    fn new(cpus: usize) -> Self {
        Self { places: vec![VACANT; cpus.next_power_of_two().max(2)].into(), head: 0, len: 0 }
    }

    /// The two earliest clocks with their CPUs; a clock that is missing is `NEVER`.
    #[inline]
    fn first_two(&self) -> ((Time, CpuId), (Time, CpuId)) {
        let mask = self.places.len() - 1;
        let at = |n| self.places[self.head.wrapping_add(n) & mask];
        (of_key(at(0)), of_key(at(1)))
    }

    /// Takes the first CPU out.
    #[inline]
    fn take(&mut self) {
        let Self { places, head, len } = self;
        let mask = places.len() - 1;
        places[*head & mask] = VACANT;
        *head = head.wrapping_add(1) & mask;
        *len -= 1;
    }

    #[inline]
    fn enter(&mut self, cpu: CpuId, clock: Time) {
        let Self { places, head, len } = self;
        assert!(*len < places.len(), "every CPU stands in the order once");
        let new = key(clock, cpu);
        let mask = places.len() - 1;
        let mut place = head.wrapping_add(*len) & mask;
        *len += 1;
        // Bound: the CPUs in the ring.
        while place != *head {
            let before = place.wrapping_sub(1) & mask;
            let other = places[before];
            if other < new {
                break;
            }
            places[place] = other;
            place = before;
        }
        places[place] = new;
    }
}

/// An empty place, which sorts behind all others.
const VACANT: u128 = u128::MAX;

/// A clock and its CPU in one number, a word each: of equal clocks, the lowest CPU number sorts first.
#[inline]
fn key(clock: Time, cpu: CpuId) -> u128 {
    u128::from(clock.0) << u64::BITS | u128::from(cpu.0)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two parts have 64 and 32 bits")]
fn of_key(key: u128) -> (Time, CpuId) {
    (Time((key >> u64::BITS) as u64), CpuId(key as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_before_cpus_and_equal_times_in_order() {
        let mut clock = Clock::new(2, Picos(2));
        clock.ready(CpuId(1), Time(10));
        clock.ready(CpuId(0), Time(10));
        clock.arm(Time(10), TaskId(7));
        clock.arm(Time(10), TaskId(3));
        assert_eq!(clock.next(), Next::Timer { at: Time(10), task: TaskId(7) });
        assert_eq!(clock.next(), Next::Timer { at: Time(10), task: TaskId(3) });
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(0), clock: Time(10), horizon: Time(12) });
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(1), clock: Time(10), horizon: Time(u64::MAX) });
        assert_eq!(clock.next(), Next::Nothing);
    }

    #[test]
    fn the_earliest_of_any_number_of_cpus_comes_first() {
        for cpus in [1, 2, 3, 16, 96] {
            let mut clock = Clock::new(cpus as usize, Picos(1000));
            let mut clocks: Vec<u64> = (0..cpus).map(|cpu| u64::from(cpu) * 7919 % 101).collect();
            (0..cpus).for_each(|cpu| clock.ready(CpuId(cpu), Time(clocks[cpu as usize])));
            for turn in 0..2000 {
                let Next::Cpu { cpu, clock: at, horizon } = clock.next() else { panic!("all are ready") };
                let id = cpu.0 as usize;
                assert_eq!((at.0, id), (0..clocks.len()).map(|id| (clocks[id], id)).min().unwrap());
                let others = clocks.iter().enumerate().filter(|(other, _)| *other != id).map(|(_, clock)| *clock);
                assert_eq!(horizon.0, others.min().unwrap_or(u64::MAX).saturating_add(1000));
                clocks[id] += 1 + turn * 7919 % 97;
                clock.ready(cpu, Time(clocks[id]));
            }
        }
    }

    #[test]
    fn a_cpu_that_does_not_return_leaves_the_order() {
        let mut clock = Clock::new(3, Picos(5));
        clock.ready(CpuId(2), Time(4));
        clock.ready(CpuId(1), Time(6));
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(2), clock: Time(4), horizon: Time(11) });
        clock.ready(CpuId(0), Time(5));
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(0), clock: Time(5), horizon: Time(11) });
        clock.ready(CpuId(2), Time(5));
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(2), clock: Time(5), horizon: Time(11) });
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(1), clock: Time(6), horizon: Time(u64::MAX) });
        assert_eq!(clock.next(), Next::Nothing);
    }

    #[test]
    fn a_timer_bounds_the_horizon() {
        let mut clock = Clock::new(2, Picos(2));
        clock.arm(Time(50), TaskId(0));
        clock.ready(CpuId(0), Time(1));
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(0), clock: Time(1), horizon: Time(52) });
    }

    #[test]
    #[should_panic(expected = "a step at")]
    fn a_cpu_more_than_a_quantum_behind_is_a_bug() {
        let mut clock = Clock::new(2, Picos(2));
        clock.ready(CpuId(0), Time(10));
        clock.next();
        clock.ready(CpuId(1), Time(7));
        clock.next();
    }
}
