//! When a stall became inevitable: branches from instants before it, with other draws.
//!
//! A branch is the run up to an instant. From there on what a kernel cannot know is drawn anew ([`sim::Change::Draws`]). It ends
//! when it is known whether the symptom shows: the task's fault on the same pages takes more than half of the stall's time. Of
//! the decisions that the stall's facts tell, the one is sought without which the stall is gone; branches behind it, with and
//! without it, say how much hangs on it.

use std::{cmp::Reverse, sync::atomic::AtomicBool};

use memory::{
    decision::{Decision, Otherwise},
    fact::{Fact, Told},
};
use report::{Record, WIDTH, short::text::fold};
use serde::Serialize;
use units::{Order, Time};

use super::{
    Explained, WhyWanted, chain, check_single,
    numbers::{seconds, span},
    why, words,
};
use crate::{
    branches::run_all,
    order::{BranchChange, BranchOrder, Branched, CellOrder, Symptom},
    progress::{Progress, RunError},
    results,
    run::order_again,
    usage::UsageError,
};

/// Branches from each instant before the event.
const DRAWS: u64 = 3;
/// Branches with the event, and as many without.
const SURE: u64 = 4;
/// Decisions that are tried.
const TRIED: usize = 4;
/// Times before the event, in picoseconds.
const BEFORE: [u64; 3] = [10_000_000_000_000, 1_000_000_000_000, 100_000_000_000];

/// A stall and what it hung on.
#[derive(Clone, Debug, Serialize)]
pub struct Inevitable {
    /// The stall and its facts.
    pub explained: Explained,
    /// More time than this is the symptom, in picoseconds.
    pub over_ps: u64,
    /// The share of branches with the symptom, by instant.
    pub curve: Vec<Point>,
    /// The event without which the stall is gone; none if no decision was found.
    pub event: Option<Event>,
    /// Number of branches.
    pub branches: usize,
}

/// Branches from an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The instant, in picoseconds since the start of the run.
    pub at_ps: u64,
    /// Branches with the symptom.
    pub met: u64,
    /// All branches.
    pub of: u64,
}

impl Point {
    fn share(self) -> f64 {
        self.met as f64 / self.of.max(1) as f64
    }
}

/// A decision that a stall hung on.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// The decision.
    pub decision: Otherwise,
    /// The fact that tells of it.
    pub fact: Told,
    /// Branches behind the decision.
    pub kept: Point,
    /// Branches behind the decision, taken otherwise.
    pub removed: Point,
}

/// Says of faults when they became inevitable.
///
/// # Errors
/// As [`why`]; an operation that is no fault.
pub fn inevitable(
    wanted: &WhyWanted,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Vec<Inevitable>, RunError> {
    let explained = why(wanted, stop)?;
    check_single(explained.iter().map(|stall| &stall.key))?;
    if let Some(other) = explained.iter().find(|stall| stall.vpn.is_none()) {
        let how =
            format!("{} of task {} is no fault, and has no pages to know it by; --what fault", other.what, other.task);
        return Err(UsageError::of_key("--inevitable", how).into());
    }
    let (identity, contents) = results::contents(&wanted.result, None)?;
    let is_cell = |record: &Record| matches!(record, Record::Cell(_));
    let others: Vec<Record> = contents.records.into_iter().filter(|record| !is_cell(record)).collect();
    let mut all = Vec::new();
    for explained in explained {
        let cell = order_again(&wanted.result, &identity, &others, &explained.key)?;
        let stall = Stall::new(cell, &explained);
        all.push(stall.look(explained, stop, progress)?);
    }
    Ok(all)
}

struct Stall {
    cell: CellOrder,
    /// From when on faults are looked at, without a branch: the start of the stall.
    start: u64,
    symptom: Symptom,
}

impl Stall {
    fn new(cell: CellOrder, explained: &Explained) -> Self {
        let first = explained.vpn.unwrap_or_default();
        let last = first | (u64::from(Order::HUGE.frames()) - 1);
        let (task, over_ps, from_ps) = (explained.task, explained.time_ps / 2, explained.start_ps);
        Self { cell, start: from_ps, symptom: Symptom { task, pages: [first, last], over_ps, from_ps } }
    }

    /// A branch that leaves the run at an instant; none if it only takes a decision otherwise.
    fn branch(&self, draws: Option<(u64, u64)>, otherwise: Option<Otherwise>) -> BranchOrder {
        let from_ps = draws.map_or(self.start, |(at, _)| at.min(self.start));
        BranchOrder {
            cell: self.cell.clone(),
            changes: draws.into_iter().map(|(at, seed)| (at, BranchChange::Draws(seed))).collect(),
            otherwise,
            symptom: Some(Symptom { from_ps, ..self.symptom }),
            window: None,
        }
    }

    fn look(
        &self,
        explained: Explained,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Inevitable, RunError> {
        let candidates = candidates(&explained);
        let mut orders = vec![self.branch(None, None)];
        orders.extend(candidates.iter().map(|(decision, _)| self.branch(None, Some(*decision))));
        let tried = run_all(&orders, stop, progress)?;
        let (base, tried) = tried.split_first().expect("the run itself was the first");
        let is_met = |branch: &Branched| branch.is_met == Some(true);
        if !is_met(base) {
            return Err(RunError::Failed(
                "the stall does not show by its task and pages when its cell runs again".into(),
            ));
        }
        let mut branches = orders.len();
        let found = candidates.into_iter().zip(tried).find(|(_, branch)| !is_met(branch)).map(|(found, _)| found);
        let at = found.as_ref().map_or(self.start, |(decision, _)| decision.at.0);
        // The range may not be left between the instant and the stall, or another fault would be looked at.
        let earliest = base.left_ps.map_or(0, |left| left + 1);
        let mut instants: Vec<u64> = BEFORE.iter().filter_map(|before| at.checked_sub(*before)).collect();
        instants.push(at.saturating_sub(1));
        instants.retain(|instant| *instant >= earliest);
        let of_instants = instants.iter().flat_map(|at| (1..=DRAWS).map(|seed| self.branch(Some((*at, seed)), None)));
        let behind = |otherwise| (1..=SURE).map(move |seed| (seed, otherwise));
        let of_event = found.iter().flat_map(|(decision, _)| behind(None).chain(behind(Some(*decision))));
        let of_event = of_event.map(|(seed, otherwise)| self.branch(Some((at + 1, seed)), otherwise));
        let orders: Vec<BranchOrder> = of_instants.chain(of_event).collect();
        let met: Vec<bool> = run_all(&orders, stop, progress)?.iter().map(is_met).collect();
        branches += orders.len();
        let (before, behind) = met.split_at(instants.len() * usize::try_from(DRAWS).unwrap_or(0));
        let point = |at_ps: u64, met: &[bool]| {
            let count = |met: usize| u64::try_from(met).expect("few branches");
            Point { at_ps, met: count(met.iter().filter(|met| **met).count()), of: count(met.len()) }
        };
        let per = usize::try_from(DRAWS).unwrap_or(1);
        let curve = instants.iter().zip(before.chunks(per)).map(|(at, met)| point(*at, met)).collect();
        let event = found.map(|(decision, fact)| {
            let (kept, removed) = behind.split_at(behind.len() / 2);
            Event { decision, fact, kept: point(at + 1, kept), removed: point(at + 1, removed) }
        });
        Ok(Inevitable { over_ps: self.symptom.over_ps, explained, curve, event, branches })
    }
}

/// The decisions that a stall's facts tell of, by the time that hangs on them: the most first.
fn candidates(explained: &Explained) -> Vec<(Otherwise, Told)> {
    let part = |names: &[&str]| {
        let of = explained.parts.iter().filter(|(cause, _)| names.contains(&cause.as_str()));
        of.map(|(_, ps)| *ps).sum::<u64>()
    };
    let weight = |told: &Told, decision: Decision| match (&told.fact, decision) {
        (Fact::Waited { since, .. }, _) => told.at.since(*since).0,
        (_, Decision::Compact | Decision::Deferred) => part(&["compaction scan", "migrate"]),
        (_, Decision::Reclaim) => part(&["reclaim scan", "lru lock", "ipi"]),
        _ => 0,
    };
    let of = |told: &Told| {
        let (decision, at) = told.decision()?;
        Some((weight(told, decision), Otherwise { at, by: told.by, decision }, told.clone()))
    };
    let mut all: Vec<_> = explained.facts.iter().filter_map(of).collect();
    all.sort_by_key(|(weight, decision, _)| (Reverse(*weight), decision.at));
    all.into_iter().take(TRIED).map(|(_, decision, told)| (decision, told)).collect()
}

/// Stalls as text.
pub fn text(all: &[Inevitable]) -> String {
    all.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Stalls as JSON.
pub fn json(all: &[Inevitable]) -> String {
    serde_json::to_string_pretty(all).expect("fields serialise") + "\n"
}

fn block(of: &Inevitable) -> String {
    let Inevitable { explained, over_ps, curve, event, branches } = of;
    let mut lines = vec![String::new()];
    let symptom = format!("the symptom: task {} is at these pages for more than {}", explained.task, span(*over_ps));
    lines.extend(fold(&symptom, WIDTH));
    lines.push(format!("{branches} branches; with other draws from an instant on, the symptom shows in"));
    let stall = explained.start_ps;
    let before = |at: u64| match stall.checked_sub(at) {
        Some(0) | None => format!("{} after its begin", span(at - stall)),
        Some(before) => format!("{} before it", span(before)),
    };
    let line = |point: &Point, what: &str| {
        let Point { at_ps, met, of } = *point;
        format!("{:>13} s  {met} of {of}  {what}", seconds(Time(at_ps)))
    };
    lines.extend(curve.iter().map(|point| line(point, &before(point.at_ps))));
    match event {
        None => lines.push("the stall shows whichever of its decisions is taken otherwise".to_owned()),
        Some(event) => {
            lines.push(line(&event.kept, "behind the event"));
            lines.push(line(&event.removed, "behind it, the decision taken otherwise"));
            lines.extend(fold(&jump(curve, event), WIDTH));
            lines.extend(fold(&format!("the event, at {} s: {}", seconds(event.decision.at), name(event)), WIDTH));
        }
    }
    words::block(explained) + &lines.iter().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
}

/// Where the share of branches rises most.
fn jump(curve: &[Point], event: &Event) -> String {
    let all: Vec<Point> = curve.iter().copied().chain([event.kept]).collect();
    let rise = |pair: &&[Point]| pair[1].share() - pair[0].share();
    let most = all.windows(2).max_by(|a, b| rise(a).total_cmp(&rise(b)));
    match most {
        Some([from, to]) if to.share() > from.share() => {
            let at = |point: &Point| seconds(Time(point.at_ps));
            format!("it jumps between {} s and {} s, from {:.2} to {:.2}", at(from), at(to), from.share(), to.share())
        }
        _ => "it does not rise: what made the stall was there before".to_owned(),
    }
}

/// The event in words, and what would have been otherwise.
fn name(event: &Event) -> String {
    let otherwise = match event.decision.decision {
        Decision::WakeKswapd => "kswapd is woken; otherwise it sleeps on",
        Decision::Defer => "a failed run defers compaction; otherwise the zone stays open",
        Decision::Deferred => "compaction is deferred; otherwise the request compacts",
        Decision::Compact => "a run of compaction begins; otherwise the zone is skipped",
        Decision::Reclaim => "direct reclaim begins; otherwise nothing is reclaimed",
        Decision::Preempt => "the task leaves its CPU; otherwise it runs on to the next tick",
        Decision::Sleep => "the task sleeps; otherwise it goes on at once",
    };
    let sentences = chain::sentences(std::slice::from_ref(&event.fact), (event.decision.by, u64::MAX));
    let fact = sentences.first().map(|sentence| format!("{} - ", sentence.text));
    format!("{}{otherwise}", fact.unwrap_or_default())
}
