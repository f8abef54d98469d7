//! Linux: kernel/sched/fair.c (v4.1): `__update_entity_runnable_avg`, `__update_entity_load_avg_contrib`,
//! `__update_entity_utilization_avg_contrib`: the part of its recent time for which a task could run, and ran. A period of
//! 2^20 ns counts half after 32 further periods.
//!
//! Differs: parts of a period decay too.

use units::Time;

use super::{NICE_0, Periods};

/// A period in ns, as a power of two.
const PERIOD_SHIFT: u32 = 20;
/// Periods after which a time counts half.
const HALF: usize = 32;
/// The sum over an infinitely long time.
const ALWAYS: u64 = 1 << 31;

/// The part that is left after each number of periods, in units of 2^-32.
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

/// The activity of a task, as the load of its CPU counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    #[default]
    Sleeps,
    Waits,
    Runs,
}

/// The part of its time for which a task could run, and ran; recent times count more (`struct sched_avg`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    /// In units of 1/[`ALWAYS`]: the time for which it could run, the time for which it ran, and its whole time.
    could: u64,
    ran: u64,
    all: u64,
    /// Up to when these are counted.
    at: Time,
    /// The task's activity since then.
    doing: Doing,
}

/// The rest of a value after a time.
fn decayed(value: u64, nanos: u64) -> u64 {
    let (periods, part) = (nanos >> PERIOD_SHIFT, nanos & ((1 << PERIOD_SHIFT) - 1));
    let halvings = u32::try_from(periods / HALF as u64).unwrap_or(u32::MAX);
    let n = usize::try_from(periods % HALF as u64).expect("fewer than 32");
    // Nearly linear within a period.
    let left = LEFT[n] - (((LEFT[n] - LEFT[n + 1]) * part) >> PERIOD_SHIFT);
    ((value * left) >> 32).checked_shr(halvings).unwrap_or(0)
}

impl Average {
    /// Begins the record of a new task at `at` as if it had always run (`init_task_runnable_average`).
    pub(crate) fn begin(&mut self, at: Time, periods: &Periods) {
        let all = ALWAYS - decayed(ALWAYS, periods.latency.as_nanos());
        *self = Self { could: all, ran: all, all, at, doing: Doing::Waits };
    }

    /// Notes at `at` that the task does something else.
    pub(crate) fn changes(&mut self, doing: Doing, at: Time) {
        *self = Self { doing, ..self.up_to(at) };
    }

    fn up_to(&self, at: Time) -> Self {
        let nanos = at.0.saturating_sub(self.at.0) / 1000;
        let passed = ALWAYS - decayed(ALWAYS, nanos);
        let since = |sum, counts: bool| decayed(sum, nanos) + if counts { passed } else { 0 };
        Self {
            could: since(self.could, self.doing != Doing::Sleeps),
            ran: since(self.ran, self.doing == Doing::Runs),
            all: since(self.all, true),
            at: at.max(self.at),
            doing: self.doing,
        }
    }

    /// The average as its CPU sees it at an instant: that of a running task is updated at ticks, that of a waiting task when
    /// it is read, or not at all.
    fn seen(&self, at: Time, periods: &Periods) -> Self {
        match self.doing {
            _ if !periods.load_stays => self.up_to(at),
            Doing::Runs => self.up_to(periods.ticks.last(at)),
            Doing::Waits => *self,
            Doing::Sleeps => self.up_to(at),
        }
    }

    /// The part of a task with this weight in the load of its CPU at an instant (`load_avg_contrib`).
    pub(crate) fn load(&self, weight: u64, at: Time, periods: &Periods) -> u64 {
        let Self { could, all, .. } = self.seen(at, periods);
        (weight * could).checked_div(all).unwrap_or(weight)
    }

    /// The part of a CPU that the task uses, in units of 1/[`NICE_0`] (`utilization_avg_contrib`).
    pub(crate) fn usage(&self, at: Time, periods: &Periods) -> u64 {
        let Self { ran, all, .. } = self.seen(at, periods);
        (NICE_0 * ran).checked_div(all).unwrap_or(NICE_0)
    }
}

#[cfg(test)]
mod tests {
    use rules::variant;
    use units::Picos;

    use super::*;
    use crate::runqueue::Ticks;

    const MILLISECOND: Picos = Picos::from_micros(1000);

    fn periods(rules: &str) -> Periods {
        Periods::for_cpus(4, Ticks::every(Picos(MILLISECOND.0 * 4)), variant::named(rules))
    }

    fn new() -> Average {
        let mut task = Average::default();
        task.begin(Time(0), &periods("v4.4"));
        task
    }

    fn load(task: &Average, at: Time) -> u64 {
        task.load(1024, at, &periods("v4.4"))
    }

    #[test]
    fn who_can_always_run_weighs_all_that_it_weighs() {
        for at in [0, 1, 100, 10_000] {
            let load = load(&new(), Time(MILLISECOND.0 * at));
            assert!((1023..=1024).contains(&load), "{at} ms: {load}");
        }
    }

    #[test]
    fn who_sleeps_comes_to_weigh_less_and_then_more_again() {
        let half = Picos(Picos::from_nanos(1 << PERIOD_SHIFT).0 * HALF as u64);
        let (asleep, awake) = (Time(half.0 * 20), Time(half.0 * 21));
        let mut task = new();
        task.changes(Doing::Sleeps, asleep);
        let asleep = load(&task, asleep + Picos(half.0 / 2));
        assert!(asleep.abs_diff(724) <= 2, "1024 by the root of two, not {asleep}");
        task.changes(Doing::Waits, awake);
        // The rest that is missing is halved each time.
        for (halves, wanted) in [(0, 512), (1, 768), (2, 896), (5, 1008), (30, 1024)] {
            let load = load(&task, awake + Picos(half.0 * halves));
            assert!(load.abs_diff(wanted) <= 2, "after {halves} halves {load}, expected {wanted}");
        }
    }

    /// Many short times add up to one long time.
    #[test]
    fn it_does_not_matter_how_often_one_asks() {
        let (mut often, mut once) = (new(), new());
        for n in 1..=20_000 {
            let doing = if n % 2 == 0 { Doing::Runs } else { Doing::Sleeps };
            often.changes(doing, Time(Picos::from_micros(10).0 * n));
        }
        let end = Time(Picos::from_micros(200_000).0);
        once.changes(Doing::Sleeps, end);
        let often = load(&often, end);
        assert!((500..=530).contains(&often), "it could run half of the time: {often}");
        assert!(load(&once, end) >= 1023);
    }

    #[test]
    fn a_task_running_half_the_time_has_half_usage_full_load() {
        let mut task = new();
        for n in 1..=200 {
            task.changes(if n % 2 == 0 { Doing::Runs } else { Doing::Waits }, Time(MILLISECOND.0 * n));
        }
        let end = Time(MILLISECOND.0 * 200);
        let usage = task.usage(end, &periods("v4.4"));
        assert!((490..=530).contains(&usage), "{usage}");
        assert!(load(&task, end) >= 1023);
    }

    #[test]
    fn up_to_4_2_a_waiting_tasks_load_stays() {
        let at = |millis: u64| Time(MILLISECOND.0 * millis);
        let mut task = new();
        task.changes(Doing::Sleeps, at(10));
        task.changes(Doing::Waits, at(1010));
        let seen = |task: &Average, rules, millis| task.load(1024, at(millis), &periods(rules));
        assert_eq!([seen(&task, "v4.1", 1010), seen(&task, "v4.1", 1100)], [0, 0]);
        assert!(seen(&task, "v4.4", 1100) > 800);
        task.changes(Doing::Runs, at(1102));
        assert_eq!(seen(&task, "v4.1", 1103), seen(&task, "v4.4", 1102), "there was no tick since then");
        assert_eq!(seen(&task, "v4.1", 1107), seen(&task, "v4.4", 1104));
    }
}
