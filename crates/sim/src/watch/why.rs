//! The facts of some operations, for `pagelab why`.
//!
//! Off by default: then steps are lent no list for their facts, and record none. Nothing that is simulated depends on facts. An
//! operation is known from an earlier run of the same cell: its task, its start and its end (`slow_log.rs`). Watched are the
//! steps of its task from the step that ends at its start, in which a request found too little memory, up to the first step
//! behind its end, which takes what the slow path has got, or falls back.

mod requests;
mod turns;

use std::collections::BTreeMap;

use memory::{
    cost::Cause,
    fact::{Device, Fact, Facts, Kswapd, Told, ZoneName},
    tally::Counted,
};
use units::{CpuId, NodeId, Time, Vpn};

use self::{requests::Requests, turns::Turns};
use crate::{
    branch::{Branch, Watch},
    ids::TaskId,
};

/// An operation of an earlier run of the same cell, whose facts are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The number of the task.
    pub task: u32,
    /// When the operation left the fast path.
    pub start: Time,
    /// When the operation was over.
    pub end: Time,
}

/// The facts of the watched operations so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Why {
    /// The facts of the step in progress.
    pub(crate) facts: Facts,
    /// The operations of each task, by their starts.
    watched: BTreeMap<u32, OfTask>,
    /// The last failed run that deferred compaction of a zone of a kernel, whoever's run it was.
    deferrals: BTreeMap<(u16, ZoneName), Told>,
    /// The last request that woke the kswapd of a node of a kernel, whoever's request it was.
    wakeups: BTreeMap<(u16, NodeId), Told>,
    /// The holder of the lock that a task waits for.
    holders: BTreeMap<u32, String>,
    /// Requests to devices that are under way.
    requests: Requests,
    /// The tasks that CPUs have run lately.
    turns: Turns,
    /// The watch for a branch's symptom.
    pub(crate) symptom: Option<Watch>,
    /// Facts of all tasks between two instants, in the order of their steps.
    window: Option<(Time, Time)>,
    seen: Vec<Told>,
}

/// Most facts between two instants that are kept.
const SEEN_MAX: usize = 4096;

/// All that was observed of a run.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The facts of each operation, in the order in which operations were given.
    pub(crate) stories: Vec<Story>,
    /// Facts between two instants.
    pub(crate) window: Vec<Told>,
    /// The counts of tests.
    pub(crate) tests: Vec<Counted>,
}

/// The watched operations of a task, with their places among all.
#[derive(Clone, Debug, Default)]
struct OfTask {
    all: Vec<(usize, Watched, Story)>,
    /// All operations before this one are over.
    first: usize,
}

impl OfTask {
    /// The operations that are not over, and begin at an instant or before.
    fn open(&mut self, until: Time) -> impl Iterator<Item = (&Watched, &mut Story)> {
        while self.all.get(self.first).is_some_and(|(_, _, story)| story.is_over) {
            self.first += 1;
        }
        let rest = self.all[self.first..].iter_mut();
        let begun = rest.take_while(move |(_, watched, _)| watched.start <= until);
        begun.filter(|(_, _, story)| !story.is_over).map(|(_, watched, story)| (&*watched, story))
    }
}

/// A step that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) task: TaskId,
    /// Whether the task is a kernel thread. No step behind its stretch of work belongs to that.
    pub(crate) is_thread: bool,
    /// The kernel's number, and the number of its first CPU.
    pub(crate) kernel: (u16, u32),
    pub(crate) cpu: CpuId,
    /// When the step began and ended.
    pub(crate) span: (Time, Time),
}

/// The facts of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Facts in the order of their instants.
    pub facts: Vec<Told>,
    /// Whether a step of the task began or ended at the start of the operation, and at its end, by the clock of its CPU: then
    /// the parts of the operation sum to its time.
    pub is_whole: [bool; 2],
    is_over: bool,
}

/// The facts of the request that ends a step, as the slow path goes on with it; none if no request does.
fn last_request(told: &[Told]) -> &[Told] {
    let is_asked = told.iter().any(|told| matches!(told.fact, Fact::SlowPath { .. }));
    let from = told.iter().rposition(|told| matches!(told.fact, Fact::Request { .. })).filter(|_| is_asked);
    &told[from.unwrap_or(told.len())..]
}

/// The facts of a step behind an operation that ended at an instant, up to its next request: what came of the operation.
fn before_request(told: &[Told], end: Time) -> &[Told] {
    let is_next = |told: &Told| {
        let is_work = matches!(told.fact, Fact::Sent { .. } | Fact::Throttled { .. } | Fact::HintFault { .. });
        matches!(told.fact, Fact::Request { .. }) || (is_work && told.at > end)
    };
    &told[..told.iter().position(is_next).unwrap_or(told.len())]
}

/// The facts of a step that ends where an operation starts: its last request, or the hinting fault that went to sleep.
fn before_start(told: &[Told]) -> &[Told] {
    let asked = last_request(told);
    let hint = told.iter().rposition(|told| matches!(told.fact, Fact::HintFault { .. })).filter(|_| asked.is_empty());
    hint.map_or(asked, |hint| &told[hint..])
}

impl Story {
    /// Adds a fact, or adds its numbers to the last fact's.
    fn push(&mut self, told: Told) {
        let last = self.facts.last_mut().filter(|last| last.by == told.by);
        if !last.is_some_and(|last| last.fact.absorb(&told.fact)) {
            self.facts.push(told);
        }
    }
}

impl Why {
    /// The observer of these operations, and of a branch; none if there is nothing to observe.
    pub(crate) fn of(all: Vec<Watched>, counts_tests: bool, branch: &Branch) -> Option<Box<Self>> {
        let Branch { otherwise, symptom, window, .. } = branch;
        if all.is_empty() && !counts_tests && otherwise.is_none() && symptom.is_none() && window.is_none() {
            return None;
        }
        let mut why = Self::new(all);
        (why.symptom, why.facts.otherwise, why.window) = (symptom.map(Watch::new), *otherwise, *window);
        Some(Box::new(why))
    }

    fn new(all: Vec<Watched>) -> Self {
        let mut why = Self::default();
        for (place, watched) in all.into_iter().enumerate() {
            why.watched.entry(watched.task).or_default().all.push((place, watched, Story::default()));
        }
        for of_task in why.watched.values_mut() {
            of_task.all.sort_by_key(|(_, watched, _)| watched.start);
        }
        why
    }

    /// Lends a step that begins now a list for its facts.
    pub(crate) fn lend(&mut self, task: TaskId, kernel: u16, now: Time) -> &mut Facts {
        let of_task = self.watched.get_mut(&task.0);
        let is_within = of_task.is_some_and(|of_task| of_task.open(now).any(|(watched, _)| now < watched.end));
        self.facts.begin(kernel, is_within);
        &mut self.facts
    }

    /// Takes the facts of a task's step. `page` comes next for its operation. `name`: the name of a task.
    #[inline]
    pub(crate) fn end_step(&mut self, taken: Taken, page: Option<Vpn>, name: impl Fn(TaskId) -> String) {
        if let Some(symptom) = &mut self.symptom {
            symptom.stepped(taken.task.0, taken.span.1, page);
        }
        self.turns.note(taken.cpu, taken.task, taken.span);
        if !self.facts.is_empty() || self.watched.contains_key(&taken.task.0) {
            self.sort(taken, name);
        }
    }

    /// Keeps a fact between the two instants.
    fn see(&mut self, told: &Told) {
        let is_wanted = self.window.is_some_and(|(first, last)| first <= told.at && told.at <= last);
        if is_wanted && self.seen.len() < SEEN_MAX {
            self.seen.push(told.clone());
        }
    }

    fn sort(&mut self, taken: Taken, name: impl Fn(TaskId) -> String) {
        let Taken { task, is_thread, kernel: (kernel, first_cpu), span: (start, end), .. } = taken;
        let mut told = self.facts.take();
        for told in &mut told {
            match &mut told.fact {
                Fact::DeferCompaction { zone, .. } => drop(self.deferrals.insert((kernel, *zone), told.clone())),
                Fact::WakeupKswapd { node, kswapd: Kswapd::Woken, .. } => {
                    drop(self.wakeups.insert((kernel, *node), told.clone()));
                }
                Fact::SpinWait { holder, by, until, .. } => {
                    *by = self.turns.on(CpuId(first_cpu + holder.0), *until, task).map(&name);
                }
                Fact::Sent { .. } => self.requests.note(kernel, task, told),
                _ => {}
            }
        }
        for told in &told {
            self.see(told);
        }
        let Some(of_task) = self.watched.get_mut(&task.0) else { return };
        for (watched, story) in of_task.open(end) {
            for (is_met, at) in story.is_whole.iter_mut().zip([watched.start, watched.end]) {
                *is_met |= start == at || end == at;
            }
            let is_behind = start >= watched.end;
            let its = match (start < watched.start, is_behind) {
                (true, _) => before_start(&told),
                (_, true) if is_thread => &[],
                (_, true) => before_request(&told, watched.end),
                _ => &told,
            };
            // Steps that take no time end reclaim and try the request once more, all at the end of the operation.
            story.is_over = is_behind && (end > watched.end || its.len() < told.len());
            for told in its {
                let reason = match &told.fact {
                    Fact::CompactionDeferred { zone, .. } => self.deferrals.get(&(kernel, *zone)),
                    Fact::WakeupKswapd { node, kswapd: Kswapd::Awake, .. } => self.wakeups.get(&(kernel, *node)),
                    _ => None,
                };
                story.facts.extend(reason.filter(|reason| !story.facts.contains(reason)).cloned());
                story.push(told.clone());
            }
        }
    }

    /// Whether a task's facts are wanted at an instant.
    pub(crate) fn is_within(&mut self, task: TaskId, now: Time) -> bool {
        self.watched.get_mut(&task.0).is_some_and(|of_task| of_task.open(now).any(|(watched, _)| now <= watched.end))
    }

    /// Notes who holds the lock that a task begins to wait for.
    pub(crate) fn finds_held(&mut self, task: TaskId, holder: impl FnOnce() -> String) {
        if self.watched.contains_key(&task.0) {
            self.holders.insert(task.0, holder());
        }
    }

    /// Notes the end of a task's wait for a lock, behind the holder that the task found.
    pub(crate) fn waited_for_lock(&mut self, task: TaskId, span: (Time, Time), cause: Cause) {
        let holder = self.holders.remove(&task.0);
        self.waited(task, span, cause, || holder);
    }

    /// Notes that a task begins to wait for a device.
    pub(crate) fn waits_for_device(
        &mut self,
        (task, kernel): (TaskId, u16),
        (now, until): (Time, Time),
        cause: Cause,
        name: impl Fn(TaskId) -> String,
    ) {
        let device = match cause {
            Cause::Swap => Device::Swap,
            Cause::Disk => Device::Disk,
            _ => return,
        };
        let fact = self.requests.wait((kernel, device), (now, until), name);
        let told = Told { at: now, by: task.0, kernel, fact };
        let of_task = self.watched.get_mut(&task.0);
        // The operation begins with this sleep, or has begun before.
        let during = of_task.and_then(|of_task| of_task.open(now).find(|(watched, _)| now < watched.end));
        if let Some((_, story)) = during {
            story.push(told);
        }
    }

    /// Notes the end of a task's wait; `behind` names the task that had what this one waited for.
    pub(crate) fn waited(
        &mut self,
        task: TaskId,
        (since, until): (Time, Time),
        cause: Cause,
        behind: impl FnOnce() -> Option<String>,
    ) {
        let of_task = self.watched.get_mut(&task.0);
        let during = of_task.and_then(|of_task| of_task.open(since).find(|(watched, _)| since < watched.end));
        if until == since || (during.is_none() && self.window.is_none()) {
            return;
        }
        let kernel = during.as_ref().and_then(|(_, story)| story.facts.last()).map_or(0, |told| told.kernel);
        let fact = Fact::Waited { cause: cause.name().to_owned(), since, behind: behind() };
        let told = Told { at: until, by: task.0, kernel, fact };
        if let Some((_, story)) = during {
            story.push(told.clone());
        }
        self.see(&told);
    }

    /// All that was observed.
    pub(crate) fn finish(self) -> Observed {
        let tests = self.facts.tally.counts();
        let mut all: Vec<_> = self.watched.into_values().flat_map(|of_task| of_task.all).collect();
        all.sort_by_key(|(place, ..)| *place);
        let sorted = |(_, _, mut story): (usize, Watched, Story)| {
            // A wait is known at its end, as is a deferral of another task when it shows.
            story.facts.sort_by_key(|told| told.at);
            story
        };
        Observed { stories: all.into_iter().map(sorted).collect(), window: self.seen, tests }
    }
}
