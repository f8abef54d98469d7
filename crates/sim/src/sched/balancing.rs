//! When a CPU looks at others, and what others see of it: its loads, and its mean idle time.

use units::{Picos, Time};

use super::cpu::Cpu;
use crate::{
    runqueue::{NICE_0, Periods},
    task::Task,
};

/// A task that ran within this time stays where its cache is (`sysctl_sched_migration_cost`).
pub(super) const MIGRATION_COST: Picos = Picos::from_micros(500);

/// Upper bound of a CPU's mean idle time (`avg_idle`): twice `max_idle_balance_cost`.
pub(super) const MOST_IDLE: Picos = Picos(2 * MIGRATION_COST.0);

/// The looks of a CPU at the others of a domain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// The tick of the last look (`last_balance`).
    pub(super) last: Time,
    /// Whether the last look, or one when the CPU became idle, saw that others had too much (`balance_interval` is the
    /// shortest then).
    pub(super) saw_imbalance: bool,
    /// Number of looks in a row that saw an imbalance and got nothing of it (`nr_balance_failed`).
    pub(super) failed: u32,
}

/// The outcome of a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Another CPU has too much.
    pub(super) is_uneven: bool,
    /// The CPU that looked got some of it.
    pub(super) got: bool,
    /// The other CPU was asked to push its running task away.
    pub(super) pushes: bool,
}

impl Seen {
    /// All have as much as they should.
    pub(super) const NOTHING: Self = Self { is_uneven: false, got: false, pushes: false };

    /// Whether the next look comes after the shortest interval: another CPU has too much, and is not about to push it away.
    pub(super) fn is_pressing(self) -> bool {
        self.is_uneven && !self.pushes
    }
}

/// When a CPU looks at others, and what others see of it.
#[derive(Clone, Debug)]
pub(super) struct Balancing {
    /// Looks by level of the CPU's domains.
    pub(super) looks: Vec<Look>,
    /// Mean time for which the CPU idles until a task wakes up on it; the last time counts an eighth (`avg_idle`).
    pub(super) mean_idle: Picos,
    /// When the CPU became idle, if no task has woken up on it since (`idle_stamp`).
    pub(super) idle_since: Option<Time>,
    /// Since when the CPU has been busy: an idle CPU has no ticks.
    pub(super) busy_since: Time,
    /// The load of its tasks with some delay: the difference to the present load is halved at each tick
    /// (`cpu_load[1]`).
    pub(super) load: u64,
    /// Up to when `load` is computed.
    pub(super) load_at: Time,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            looks: vec![Look::default()],
            mean_idle: MOST_IDLE,
            idle_since: None,
            busy_since: Time(0),
            load: 0,
            load_at: Time(0),
        }
    }
}

impl Cpu {
    /// Sets the number of levels of the CPU's domains.
    pub(crate) fn has_levels(&mut self, levels: usize) {
        self.balancing.looks.resize(levels, Look::default());
    }

    pub(super) fn begin_to_be_busy(&mut self) {
        self.balancing.busy_since = self.clock;
    }

    /// Ends an idle time, when a task wakes up on the CPU (`ttwu_do_wakeup`).
    pub(super) fn count_idle(&mut self, at: Time) {
        if let Some(since) = self.balancing.idle_since.take() {
            let (mean, idle) = (self.balancing.mean_idle, Picos(at.0.saturating_sub(since.0)));
            let mean =
                if idle > mean { mean.0 + (idle.0 - mean.0) / 8 } else { mean.0 - (mean.0 - idle.0).div_ceil(8) };
            self.balancing.mean_idle = Picos(mean).min(MOST_IDLE);
        }
    }

    /// The first tick at which the CPU looks at others in a domain of `span` CPUs, if it stays busy.
    pub(super) fn next_balance(&self, level: usize, span: u64, periods: &Periods) -> Time {
        let Look { last, saw_imbalance, .. } = self.balancing.looks[level];
        let due = periods.ticks.from(last + periods.balance(span, true, saw_imbalance));
        due.max(periods.ticks.after(self.balancing.busy_since))
    }

    /// Whether another CPU looks for this one in a domain of `span` CPUs, while it is idle.
    pub(super) fn is_looked_for(&self, at: Time, level: usize, span: u64, periods: &Periods) -> bool {
        let Look { last, saw_imbalance, .. } = self.balancing.looks[level];
        last + periods.balance(span, false, saw_imbalance) <= at
    }

    /// Notes that all looks of the CPU up to an instant found no task too many.
    pub(super) fn found_nothing(&mut self, until: Time, level: usize, span: u64, periods: &Periods) {
        // Bound: each turn goes on by an interval.
        loop {
            let next = self.next_balance(level, span, periods);
            if next > until {
                return;
            }
            self.looked(next, level, Seen::NOTHING);
        }
    }

    /// Notes when the CPU looked at others, and what came of it.
    pub(super) fn looked(&mut self, at: Time, level: usize, seen: Seen) {
        let look = &mut self.balancing.looks[level];
        (look.last, look.saw_imbalance) = (at, seen.is_pressing());
        if !seen.is_uneven {
            look.failed = 0;
        }
    }

    /// The load of all tasks of the CPU at an instant (`runnable_load_avg`).
    pub(super) fn load(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.load(at, periods)).sum()
    }

    /// The part of their recent time for which the CPU's tasks could run, in units of 1/`NICE_0` (`cpu_runnable`).
    pub(super) fn runnable(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.runnable(at, periods)).sum()
    }

    /// The part of their recent time for which the CPU's tasks ran, in units of 1/`NICE_0` (`get_cpu_usage`).
    pub(super) fn usage(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.usage(at, periods)).sum::<u64>().min(NICE_0)
    }

    /// The delayed load at an instant at which the load is `now`.
    pub(super) fn delayed(&self, now: u64, at: Time, periods: &Periods) -> u64 {
        let Balancing { load, load_at, .. } = self.balancing;
        let ticks = periods.ticks.count(at).saturating_sub(periods.ticks.count(load_at));
        let halvings = u32::try_from(ticks).unwrap_or(u32::MAX);
        let rest = load.abs_diff(now).checked_shr(halvings).unwrap_or(0);
        if load > now { now + rest } else { now - rest }
    }
}
