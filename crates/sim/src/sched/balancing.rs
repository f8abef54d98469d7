//! When a CPU looks at others, and what these see of it: its loads, and how long it idles.

use units::{Picos, Time};

use super::cpu::Cpu;
use crate::{
    runqueue::{NICE_0, Periods},
    task::Task,
};

/// A task that ran so recently stays where its cache is (`sysctl_sched_migration_cost`).
pub(super) const MIGRATION_COST: Picos = Picos::from_micros(500);

/// More counts as this much in the mean for which a CPU idles (twice `max_idle_balance_cost`).
pub(super) const MOST_IDLE: Picos = Picos(2 * MIGRATION_COST.0);

/// When a CPU looks at others in a domain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// At which tick it did (`last_balance`).
    pub(super) last: Time,
    /// Did it see last, then or when it became idle, that others had too much (`balance_interval` is the shortest)?
    pub(super) saw_imbalance: bool,
    /// How often in a row it has got nothing of what it saw (`nr_balance_failed`).
    pub(super) failed: u32,
}

/// When a CPU looks at others, and what others see of it.
#[derive(Clone, Debug)]
pub(super) struct Balancing {
    /// By level of its domains.
    pub(super) looks: Vec<Look>,
    /// For how long it idles until a task wakes up on it: each time makes an eighth of that (`avg_idle`).
    pub(super) mean_idle: Picos,
    /// When it became idle, if no task has woken up on it since (`idle_stamp`).
    pub(super) idle_since: Option<Time>,
    /// Since when it has been busy: an idle CPU has no ticks.
    pub(super) busy_since: Time,
    /// The weight of its tasks with some delay: what it differs by from now is halved at each tick (`cpu_load[1]`).
    pub(super) load: u64,
    /// Up to when that is worked out.
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
    /// The CPU's domains have so many levels.
    pub(crate) fn has_levels(&mut self, levels: usize) {
        self.balancing.looks.resize(levels, Look::default());
    }

    pub(super) fn begin_to_be_busy(&mut self) {
        self.balancing.busy_since = self.clock;
    }

    /// A task wakes up on it (`ttwu_do_wakeup`).
    pub(super) fn count_idle(&mut self, at: Time) {
        if let Some(since) = self.balancing.idle_since.take() {
            let (mean, idle) = (self.balancing.mean_idle, Picos(at.0.saturating_sub(since.0)));
            let mean =
                if idle > mean { mean.0 + (idle.0 - mean.0) / 8 } else { mean.0 - (mean.0 - idle.0).div_ceil(8) };
            self.balancing.mean_idle = Picos(mean).min(MOST_IDLE);
        }
    }

    /// The first of its ticks at which it looks at others in a domain of so many CPUs, if it stays busy.
    pub(super) fn next_balance(&self, level: usize, span: u64, periods: &Periods) -> Time {
        let Look { last, saw_imbalance, .. } = self.balancing.looks[level];
        let due = periods.ticks.from(last + periods.balance(span, true, saw_imbalance));
        due.max(periods.ticks.after(self.balancing.busy_since))
    }

    /// Looks somebody for it in a domain of so many CPUs, while it is idle?
    pub(super) fn is_looked_for(&self, at: Time, level: usize, span: u64, periods: &Periods) -> bool {
        let Look { last, saw_imbalance, .. } = self.balancing.looks[level];
        last + periods.balance(span, false, saw_imbalance) <= at
    }

    /// Whenever it looked at others up to an instant, nobody had a task too many.
    pub(super) fn found_nothing(&mut self, until: Time, level: usize, span: u64, periods: &Periods) {
        // Bound: each turn goes on by an interval.
        loop {
            let next = self.next_balance(level, span, periods);
            if next > until {
                return;
            }
            self.looked(next, level, false);
        }
    }

    pub(super) fn looked(&mut self, at: Time, level: usize, saw_imbalance: bool) {
        let look = &mut self.balancing.looks[level];
        (look.last, look.saw_imbalance) = (at, saw_imbalance);
        if !saw_imbalance {
            look.failed = 0;
        }
    }

    /// The load of all that it runs or has waiting at an instant (`runnable_load_avg`).
    pub(super) fn load(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.load(at, periods)).sum()
    }

    /// For how much of its time its tasks could run of late, in parts of `NICE_0` (`cpu_runnable`).
    pub(super) fn runnable(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.runnable(at, periods)).sum()
    }

    /// For how much of its time these have run of late, in parts of `NICE_0` (`get_cpu_usage`).
    pub(super) fn usage(&self, tasks: &[Task], at: Time, periods: &Periods) -> u64 {
        let all = self.queue.waiting().chain(self.running);
        all.map(|id| tasks[id.0 as usize].entity.usage(at, periods)).sum::<u64>().min(NICE_0)
    }

    /// The delayed load at an instant, where it is really `now`.
    pub(super) fn delayed(&self, now: u64, at: Time, periods: &Periods) -> u64 {
        let Balancing { load, load_at, .. } = self.balancing;
        let ticks = periods.ticks.count(at).saturating_sub(periods.ticks.count(load_at));
        let halvings = u32::try_from(ticks).unwrap_or(u32::MAX);
        let rest = load.abs_diff(now).checked_shr(halvings).unwrap_or(0);
        if load > now { now + rest } else { now - rest }
    }
}
