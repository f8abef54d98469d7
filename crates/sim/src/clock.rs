//! The one order: (time, class, id, sequence), timers before CPUs.
//!
//! The earliest runs, up to its *horizon*: the earlier of the next timer and the clock of the next CPU, plus a quantum. So
//! no CPU runs ahead of another by more than one quantum, and range operations may take many faults in one step.

use std::{cmp::Reverse, collections::BinaryHeap};

use units::{CpuId, Picos, Time};

use crate::task::TaskId;

/// What runs next.
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
    /// Armed timers; the sequence keeps equal times in the order in which they were armed.
    timers: BinaryHeap<Reverse<(Time, u64, TaskId)>>,
    /// Runnable CPUs by their clocks; equal clocks in the order of their numbers.
    cpus: BinaryHeap<Reverse<(Time, CpuId)>>,
    armed: u64,
    quantum: Picos,
    latest_start: Time,
}

impl Clock {
    pub(crate) fn new(quantum: Picos) -> Self {
        Self { timers: BinaryHeap::new(), cpus: BinaryHeap::new(), armed: 0, quantum, latest_start: Time(0) }
    }

    /// Arms a timer.
    pub(crate) fn arm(&mut self, at: Time, task: TaskId) {
        self.timers.push(Reverse((at, self.armed, task)));
        self.armed += 1;
    }

    /// Timers that are armed.
    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// A CPU has something to run from `clock` on. Each CPU is in here at most once.
    pub(crate) fn ready(&mut self, cpu: CpuId, clock: Time) {
        self.cpus.push(Reverse((clock, cpu)));
    }

    /// Takes what runs next out of the order.
    ///
    /// # Panics
    /// When a step would start more than one quantum before an earlier one did.
    pub(crate) fn next(&mut self) -> Next {
        let timer = self.timers.peek().map(|Reverse((at, _, _))| *at);
        let Some(Reverse((clock, cpu))) = self.cpus.peek().copied() else {
            return self.fire();
        };
        if timer.is_some_and(|at| at <= clock) {
            return self.fire();
        }
        self.cpus.pop();
        let other = self.cpus.peek().map(|Reverse((clock, _))| *clock);
        let soonest = [timer, other].into_iter().flatten().min();
        let horizon = soonest.map_or(Time(u64::MAX), |soonest| soonest + self.quantum);
        let earliest_allowed = Time(self.latest_start.0.saturating_sub(self.quantum.0));
        assert!(clock >= earliest_allowed, "a step at {clock:?} after one at {:?}", self.latest_start);
        self.latest_start = self.latest_start.max(clock);
        Next::Cpu { cpu, clock, horizon }
    }

    fn fire(&mut self) -> Next {
        match self.timers.pop() {
            Some(Reverse((at, _, task))) => Next::Timer { at, task },
            None => Next::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_before_cpus_and_equal_times_in_order() {
        let mut clock = Clock::new(Picos(2));
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
    fn a_timer_bounds_the_horizon() {
        let mut clock = Clock::new(Picos(2));
        clock.arm(Time(50), TaskId(0));
        clock.ready(CpuId(0), Time(1));
        assert_eq!(clock.next(), Next::Cpu { cpu: CpuId(0), clock: Time(1), horizon: Time(52) });
    }

    #[test]
    #[should_panic(expected = "a step at")]
    fn a_cpu_that_fell_behind_by_more_than_a_quantum_is_a_bug() {
        let mut clock = Clock::new(Picos(2));
        clock.ready(CpuId(0), Time(10));
        clock.next();
        clock.ready(CpuId(1), Time(7));
        clock.next();
    }
}
