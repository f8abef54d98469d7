//! Both sets of rules, each CPU under its own ticks.

use rules::variant;
use units::{Picos, Time};

use super::*;
use crate::TICK;

/// A CPU and its tasks.
struct OneCpu {
    periods: Periods,
    queue: RunQueue,
    tasks: Vec<Entity>,
    current: Option<TaskId>,
    now: Time,
}

impl OneCpu {
    fn new(rules: &str, nice: &[i8]) -> Self {
        let rules = variant::named(rules);
        let periods = Periods::for_cpus(1, Ticks::every(TICK), rules);
        let tasks = nice.iter().map(|nice| Entity::new(Nice::new(*nice))).collect();
        let mut cpu = Self { periods, queue: RunQueue::new(rules), tasks, current: None, now: Time(0) };
        for id in 0..nice.len() {
            cpu.queue.enqueue(name(id), &mut cpu.tasks[id], Enqueue::New, &cpu.periods);
        }
        cpu.switch();
        cpu
    }

    fn switch(&mut self) {
        self.current = self.queue.pick();
        if let Some(id) = self.current {
            RunQueue::start(&mut self.tasks[id.0 as usize], self.now);
        }
    }

    fn resched(&mut self) {
        let id = self.current.expect("somebody runs");
        self.queue.enqueue(id, &mut self.tasks[id.0 as usize], Enqueue::Preempted, &self.periods);
        self.switch();
    }

    /// Up to the next tick; who ran.
    fn tick(&mut self) -> TaskId {
        let id = self.current.expect("somebody runs");
        self.run(TICK);
        let task = &mut self.tasks[id.0 as usize];
        let over = self.queue.account(task, self.now, &self.periods);
        if over || self.queue.tick_preempts(task, self.now, &self.periods) {
            self.resched();
        }
        id
    }

    fn run(&mut self, span: Picos) {
        self.now = self.now + span;
    }

    fn sleep(&mut self, why: Leave) -> TaskId {
        let id = self.current.take().expect("somebody runs");
        self.queue.leave(id, &mut self.tasks[id.0 as usize], self.now, why, &self.periods);
        self.switch();
        id
    }

    /// Wakes a task; does it run at once?
    fn wake(&mut self, id: TaskId) -> bool {
        self.queue.enqueue(id, &mut self.tasks[id.0 as usize], Enqueue::Woken, &self.periods);
        let Some(current) = self.current else {
            self.switch();
            return true;
        };
        self.queue.account(&mut self.tasks[current.0 as usize], self.now, &self.periods);
        let [running, woken] = [current, id].map(|id| &self.tasks[id.0 as usize]);
        let preempts = self.queue.preempts(running, id, woken, &self.periods);
        if preempts {
            self.resched();
        }
        preempts
    }
}

fn name(id: usize) -> TaskId {
    TaskId(u32::try_from(id).unwrap())
}

/// The ticks that each task had out of `ticks` ticks.
fn shares(rules: &str, nice: &[i8], ticks: u64) -> Vec<u64> {
    let mut cpu = OneCpu::new(rules, nice);
    let mut ran = vec![0; nice.len()];
    (0..ticks).for_each(|_| ran[cpu.tick().0 as usize] += 1);
    ran
}

#[test]
fn equal_tasks_share_and_heavier_ones_get_more() {
    for rules in ["v6.1", "v6.6", "v6.12"] {
        let equal = shares(rules, &[0, 0, 0], 3000);
        assert!(equal.iter().all(|ran| ran.abs_diff(1000) < 10), "{rules}: {equal:?}");
        let ran = shares(rules, &[0, 19], 100_000);
        let share = ran[1] as f64 / 100_000.0;
        assert!((share / (15.0 / 1039.0) - 1.0).abs() < 0.05, "{rules}: nice 19 gets 1.44 % beside nice 0: {share}");
        assert_eq!(shares(rules, &[0], 10), [10], "alone it is never preempted");
    }
}

#[test]
fn nobody_waits_longer_than_for_a_slice_of_each_other_task() {
    for rules in ["v6.6", "v6.12"] {
        let mut cpu = OneCpu::new(rules, &[0; 5]);
        let ran: Vec<usize> = (0..1000).map(|_| cpu.tick().0 as usize).collect();
        // A slice is shorter than a tick here, so each tick is somebody else's, and lag never exceeds one.
        for task in 0..5 {
            let turns: Vec<usize> = (0..ran.len()).filter(|at| ran[*at] == task).collect();
            let longest = turns.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(longest <= 6, "{rules}: task {task} waits for {longest} ticks");
        }
    }
}

#[test]
fn who_was_picked_keeps_its_slice_while_it_is_eligible() {
    let mut cpu = OneCpu::new("v6.6", &[0, 0]);
    let first = cpu.sleep(Leave::Sleeps);
    // The other one has run for a part of its slice: it has had more than its share as soon as somebody is there to share.
    cpu.run(Picos::from_micros(100));
    assert!(cpu.wake(first), "with a claim on the same time, and an earlier deadline");
    let mut cpu = OneCpu::new("v6.6", &[0, 0, 0]);
    cpu.run(Picos::from_micros(100));
    let first = cpu.sleep(Leave::Sleeps);
    let second = cpu.current.unwrap();
    assert!(!cpu.wake(first), "it had more than its share: the one that was just picked goes on");
    assert_eq!(cpu.current, Some(second));
}

#[test]
fn sleep_neither_pays_nor_is_paid() {
    // CFS gives who slept for a second half a period; EEVDF gives back the lag that it left with, and that is a few slices.
    for (rules, gained) in [("v6.1", 3_000_000), ("v6.6", 0), ("v6.12", 0)] {
        let mut cpu = OneCpu::new(rules, &[0, 0, 0]);
        let sleeper = cpu.sleep(Leave::Sleeps);
        (0..250).for_each(|_| {
            cpu.tick();
        });
        cpu.wake(sleeper);
        let others: Vec<u64> = (0..3).filter(|id| name(*id) != sleeper).map(|id| cpu.tasks[id].vruntime).collect();
        let behind = others.iter().max().unwrap().saturating_sub(cpu.tasks[sleeper.0 as usize].vruntime);
        assert!(behind.abs_diff(gained) <= 2_000_000 + TICK.as_nanos() / 2, "{rules}: {behind} ns");
        assert_eq!(behind >= 3_000_000, rules == "v6.1", "{rules}: {behind} ns");
    }
}

#[test]
fn lag_outlives_sleep_and_a_debt_is_paid_before() {
    // A task that has had a tick more than its share sleeps for a moment.
    let lag_after = |rules: &str, away: u64| {
        let mut cpu = OneCpu::new(rules, &[0, 0, 0]);
        cpu.run(TICK);
        let sleeper = cpu.sleep(Leave::Sleeps);
        (0..away).for_each(|_| {
            cpu.tick();
        });
        cpu.wake(sleeper);
        let mean: u64 = cpu.tasks.iter().map(|task| task.vruntime).sum::<u64>() / 3;
        i64::try_from(mean).unwrap() - i64::try_from(cpu.tasks[sleeper.0 as usize].vruntime).unwrap()
    };
    let tick = i64::try_from(TICK.as_nanos()).unwrap();
    assert!(lag_after("v6.6", 0) < -tick / 2 && lag_after("v6.12", 0) < -tick / 2);
    assert!(lag_after("v6.6", 100) < -tick / 2, "however long it sleeps");
    assert!(lag_after("v6.12", 100).abs() < 2, "the others have caught up meanwhile");
}

#[test]
fn nobody_is_left_when_the_last_one_goes() {
    for rules in ["v6.1", "v6.6", "v6.12"] {
        let mut cpu = OneCpu::new(rules, &[0, 0]);
        cpu.run(TICK);
        let first = cpu.sleep(Leave::Sleeps);
        assert_eq!(cpu.queue.len(), 0);
        cpu.run(TICK);
        let second = cpu.sleep(Leave::Ends);
        assert_ne!(first, second);
        assert!(cpu.queue.is_empty() && !cpu.queue.keeps(first, &cpu.tasks[first.0 as usize]), "{rules}");
        assert!(cpu.wake(first), "{rules}");
        assert_eq!(cpu.current, Some(first));
    }
}

#[test]
fn a_slice_is_shorter_since_6_15_and_longer_on_larger_machines() {
    let slice = |rules, cpus| Periods::for_cpus(cpus, Ticks::every(TICK), variant::named(rules)).base_slice;
    let all =
        [("v6.6", 1), ("v6.12", 8), ("v6.18", 1), ("v6.18", 96)].map(|(rules, cpus)| slice(rules, cpus).as_nanos());
    assert_eq!(all, [750_000, 3_000_000, 700_000, 2_800_000]);
}
