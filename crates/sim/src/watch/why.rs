//! The facts of some operations, for `pagelab why`.
//!
//! Off by default: then steps are lent no list for their facts, and record none. Nothing that is simulated depends on facts. An
//! operation is known from an earlier run of the same cell: its task, its start and its end (`slow_log.rs`). Watched are the
//! steps of its task from the step that ends at its start, in which a request found too little memory, up to the first step
//! behind its end, which takes what the slow path has got, or falls back.

use std::collections::BTreeMap;

use memory::{
    cost::Cause,
    fact::{Fact, Facts, Kswapd, Told, ZoneName},
    tally::Counted,
};
use units::{NodeId, Time, Vpn};

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
    /// The operations of each task, with their places among all.
    watched: BTreeMap<u32, Vec<(usize, Watched, Story)>>,
    /// The last failed run that deferred compaction of a zone, whoever's run it was.
    deferrals: BTreeMap<ZoneName, Told>,
    /// The last request that woke the kswapd of a node, whoever's request it was.
    wakeups: BTreeMap<NodeId, Told>,
    /// The holder of the lock that a task waits for.
    holders: BTreeMap<u32, String>,
    /// The watch for a branch's symptom.
    pub(crate) symptom: Option<Watch>,
    /// Facts of all tasks between two instants, in the order of their steps.
    window: Option<(Time, Time)>,
    seen: Vec<Told>,
}

/// Most facts between two instants that are kept.
const SEEN_MAX: usize = 4096;

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

/// The facts of the request that ends a step, as the slow path goes on with it; none if no request does.
fn last_request(told: &[Told]) -> &[Told] {
    let is_asked = told.iter().any(|told| matches!(told.fact, Fact::SlowPath { .. }));
    let from = told.iter().rposition(|told| matches!(told.fact, Fact::Request { .. })).filter(|_| is_asked);
    &told[from.unwrap_or(told.len())..]
}

/// The facts of a step up to its next request.
fn before_request(told: &[Told]) -> &[Told] {
    let next = told.iter().position(|told| matches!(told.fact, Fact::Request { .. }));
    &told[..next.unwrap_or(told.len())]
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
            why.watched.entry(watched.task).or_default().push((place, watched, Story::default()));
        }
        why
    }

    /// Takes the facts of a task's step, which began and ended at these instants; `page` comes next for its operation.
    #[inline]
    pub(crate) fn end_step(&mut self, task: TaskId, (start, end): (Time, Time), page: Option<Vpn>) {
        if let Some(symptom) = &mut self.symptom {
            symptom.stepped(task.0, end, page);
        }
        if !self.facts.is_empty() || self.watched.contains_key(&task.0) {
            self.sort(task, (start, end));
        }
    }

    /// Keeps a fact between the two instants.
    fn see(&mut self, told: &Told) {
        let is_wanted = self.window.is_some_and(|(first, last)| first <= told.at && told.at <= last);
        if is_wanted && self.seen.len() < SEEN_MAX {
            self.seen.push(told.clone());
        }
    }

    fn sort(&mut self, task: TaskId, (start, end): (Time, Time)) {
        let told = self.facts.take();
        told.iter().for_each(|told| self.see(told));
        for told in &told {
            match told.fact {
                Fact::DeferCompaction { zone, .. } => drop(self.deferrals.insert(zone, told.clone())),
                Fact::WakeupKswapd { node, kswapd: Kswapd::Woken, .. } => drop(self.wakeups.insert(node, told.clone())),
                _ => {}
            }
        }
        let of_task = self.watched.get_mut(&task.0).into_iter().flatten();
        for (_, watched, story) in of_task.filter(|(_, watched, story)| !story.is_over && watched.start <= end) {
            for (is_met, at) in story.is_whole.iter_mut().zip([watched.start, watched.end]) {
                *is_met |= start == at || end == at;
            }
            let is_behind = start >= watched.end;
            let its = match (start < watched.start, is_behind) {
                (true, _) => last_request(&told),
                (_, true) => before_request(&told),
                _ => &told,
            };
            // Steps that take no time end reclaim and try the request once more, all at the end of the operation.
            story.is_over = is_behind && (end > watched.end || its.len() < told.len());
            for told in its {
                let reason = match &told.fact {
                    Fact::CompactionDeferred { zone, .. } => self.deferrals.get(zone),
                    Fact::WakeupKswapd { node, kswapd: Kswapd::Awake, .. } => self.wakeups.get(node),
                    _ => None,
                };
                story.facts.extend(reason.filter(|reason| !story.facts.contains(reason)).cloned());
                story.facts.push(told.clone());
            }
        }
    }

    /// Notes who holds the lock that a task begins to wait for.
    pub(crate) fn finds_held(&mut self, task: TaskId, holder: String) {
        if self.watched.contains_key(&task.0) {
            self.holders.insert(task.0, holder);
        }
    }

    /// Notes the end of a task's wait for a lock, behind the holder that the task found.
    pub(crate) fn waited_for_lock(&mut self, task: TaskId, span: (Time, Time), cause: Cause) {
        let holder = self.holders.remove(&task.0);
        self.waited(task, span, cause, || holder);
    }

    /// Notes the end of a task's wait; `behind` names the task that had what this one waited for.
    pub(crate) fn waited(
        &mut self,
        task: TaskId,
        (since, until): (Time, Time),
        cause: Cause,
        behind: impl FnOnce() -> Option<String>,
    ) {
        let mut of_task = self.watched.get_mut(&task.0).into_iter().flatten();
        let during = of_task.find(|(_, watched, story)| !story.is_over && watched.start <= since);
        if until == since || (during.is_none() && self.window.is_none()) {
            return;
        }
        let fact = Fact::Waited { cause: cause.name().to_owned(), since, behind: behind() };
        let told = Told { at: until, by: task.0, fact };
        if let Some((_, _, story)) = during {
            story.facts.push(told.clone());
        }
        self.see(&told);
    }

    /// All that was observed.
    pub(crate) fn finish(self) -> Observed {
        let tests = self.facts.tally.counts();
        let mut all: Vec<_> = self.watched.into_values().flatten().collect();
        all.sort_by_key(|(place, ..)| *place);
        let sorted = |(_, _, mut story): (usize, Watched, Story)| {
            // A wait is known at its end, as is a deferral of another task when it shows.
            story.facts.sort_by_key(|told| told.at);
            story
        };
        Observed { stories: all.into_iter().map(sorted).collect(), window: self.seen, tests }
    }
}
