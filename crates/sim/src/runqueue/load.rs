//! Linux: kernel/sched/fair.c (v4.1): `__update_entity_runnable_avg`, `__update_entity_load_avg_contrib`: for how much of its
//! time a task could run of late. What was a period of 2^20 ns ago counts half when 32 of them have passed.
//!
//! Differs: parts of a period decay too; all tasks are up to date whenever one asks, not from tick to tick.

use units::Time;

use crate::runqueue::Periods;

/// A period in ns, as a power of two.
const PERIOD_SHIFT: u32 = 20;
/// In so many periods things come to count half.
const HALF: usize = 32;
/// What all the time that there ever was counts.
const ALWAYS: u64 = 1 << 31;

/// How much is left after each number of periods, in parts of 2^32.
const LEFT: [u64; HALF + 1] = {
    // The 32nd root of a half, in parts of 2^32, rounded.
    const AFTER_ONE: u64 = 4_202_935_003;
    let mut left = [1 << 32; HALF + 1];
    let mut n = 1;
    while n < HALF {
        left[n] = (left[n - 1] * AFTER_ONE) >> 32;
        n += 1;
    }
    left[HALF] = 1 << 31;
    left
};

/// For how much of its time a task could run, recent times counting more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runnable {
    /// In parts of [`ALWAYS`]: the time for which it could run, and all that it has been there.
    sum: u64,
    all: u64,
    /// Up to when these count.
    at: Time,
    /// Can it run since then?
    can_run: bool,
}

/// What is left of something after a while.
fn decayed(value: u64, nanos: u64) -> u64 {
    let (periods, part) = (nanos >> PERIOD_SHIFT, nanos & ((1 << PERIOD_SHIFT) - 1));
    let halvings = u32::try_from(periods / HALF as u64).unwrap_or(u32::MAX);
    let n = usize::try_from(periods % HALF as u64).expect("fewer than 32");
    // Within a period nearly a straight line.
    let left = LEFT[n] - (((LEFT[n] - LEFT[n + 1]) * part) >> PERIOD_SHIFT);
    ((value * left) >> 32).checked_shr(halvings).unwrap_or(0)
}

impl Runnable {
    /// A new task, from `at` on: until more is known of it, as if it could always run (`init_task_runnable_average`).
    pub(crate) fn begin(&mut self, at: Time, periods: &Periods) {
        let all = ALWAYS - decayed(ALWAYS, periods.latency.as_nanos());
        *self = Self { sum: all, all, at, can_run: true };
    }

    /// It can run from `at` on, or sleeps from then on.
    pub(crate) fn changes(&mut self, can_run: bool, at: Time) {
        let at = at.max(self.at);
        (self.sum, self.all) = self.sums(at);
        (self.at, self.can_run) = (at, can_run);
    }

    fn sums(&self, at: Time) -> (u64, u64) {
        let nanos = at.0.saturating_sub(self.at.0) / 1000;
        let passed = ALWAYS - decayed(ALWAYS, nanos);
        let could = if self.can_run { passed } else { 0 };
        (decayed(self.sum, nanos) + could, decayed(self.all, nanos) + passed)
    }

    /// The load of a task of such a weight at an instant.
    pub(crate) fn load(&self, weight: u64, at: Time) -> u64 {
        let (sum, all) = self.sums(at);
        (weight * sum).checked_div(all).unwrap_or(weight)
    }
}

#[cfg(test)]
mod tests {
    use mm::variant;
    use units::Picos;

    use super::*;

    const MILLISECOND: Picos = Picos::from_micros(1000);

    fn new() -> Runnable {
        let mut task = Runnable::default();
        task.begin(Time(0), &Periods::for_cpus(4, Picos(MILLISECOND.0 * 4), variant::named("v4.1")));
        task
    }

    #[test]
    fn who_always_runs_weighs_all_that_it_weighs() {
        for at in [0, 1, 100, 10_000] {
            let load = new().load(1024, Time(MILLISECOND.0 * at));
            assert!((1023..=1024).contains(&load), "{at} ms: {load}");
        }
    }

    #[test]
    fn who_sleeps_comes_to_weigh_less_and_then_more_again() {
        let half = Picos(Picos::from_nanos(1 << PERIOD_SHIFT).0 * HALF as u64);
        let (asleep, awake) = (Time(half.0 * 20), Time(half.0 * 21));
        let mut task = new();
        task.changes(false, asleep);
        let load = task.load(1024, asleep + Picos(half.0 / 2));
        assert!(load.abs_diff(724) <= 2, "1024 by the root of two, not {load}");
        task.changes(true, awake);
        // What it lacks is halved each time.
        for (halves, wanted) in [(0, 512), (1, 768), (2, 896), (5, 1008), (30, 1024)] {
            let load = task.load(1024, awake + Picos(half.0 * halves));
            assert!(load.abs_diff(wanted) <= 2, "after {halves} halves {load}, expected {wanted}");
        }
    }

    /// Many short times add up to what one long time is.
    #[test]
    fn it_does_not_matter_how_often_one_asks() {
        let (mut often, mut once) = (new(), new());
        for n in 1..=20_000 {
            often.changes(n % 2 == 0, Time(Picos::from_micros(10).0 * n));
        }
        let end = Time(Picos::from_micros(200_000).0);
        once.changes(false, end);
        let load = often.load(1024, end);
        assert!((500..=530).contains(&load), "it could run half of the time: {load}");
        assert!(once.load(1024, end) >= 1023);
    }
}
