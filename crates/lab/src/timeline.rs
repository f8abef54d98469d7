//! The timeline of a simulated cell: its run once more, with an observer.
//!
//! As for `why`, the program must be the result's, and the run hash and the log of slow operations must come out the same.

use std::{collections::BTreeMap, path::Path, sync::atomic::AtomicBool};

use memory::fact::Told;
use report::{
    Cell, Record, SlowPath,
    timeline::{Fact, InOrder, Note, Stretch, TaskName, Timeline, Waker},
};
use serde_json::Value;
use sim::SlowOperations;

use crate::{
    order::{Facts, Order, WhyOrder},
    plan::Identity,
    progress::RunError,
    provenance,
    run::order_again,
    usage::UsageError,
    why,
};

/// An operation with more stretches than this shows each stretch of work between two waits as sums by cause.
const WHOLE_MAX: usize = 64;
/// Most facts of a kind that an operation shows.
const OF_A_KIND: usize = 16;

/// Runs a cell again for its timeline; none if nothing of it is known over time.
///
/// # Errors
/// A cell of another program or of a real kernel, and one that does not come out as it did.
pub(crate) fn observe(
    directory: &Path,
    (identity, others): (&Identity, &[Record]),
    cell: &Cell,
    stop: &AtomicBool,
) -> Result<Option<Timeline>, RunError> {
    let Some(log) = &cell.slow_path else { return Ok(None) };
    provenance::check_program(&cell.key.program)
        .map_err(|problem| UsageError::in_file(directory.display(), problem))?;
    let order = order_again(directory, identity, others, &cell.key)?;
    let operations =
        log.entries.iter().map(|entry| (entry.task, entry.start_ps, entry.start_ps + entry.ps())).collect();
    let order = Order::Why(WhyOrder { cell: order, operations, timeline: true });
    let Facts { run_hash, slow_path, stories, timeline } = why::run(&order, &cell.key, stop)?;
    why::check_same(cell, log, (&run_hash, &slow_path))?;
    let mut timeline = timeline.unwrap_or_default();
    for (operation, story) in timeline.operations.iter_mut().zip(stories) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let facts = story.facts.iter().map(|told| fact(told, &timeline.tasks));
        let kept = facts.filter(|fact| {
            let seen = seen.entry(fact.name.clone()).or_default();
            *seen += 1;
            *seen <= OF_A_KIND
        });
        operation.facts = kept.collect();
        operation.left_out = (story.facts.len() - operation.facts.len()) as u64;
    }
    check(log, &timeline).map_err(|problem| why::failed(&cell.key, &problem))?;
    Ok(Some(timeline))
}

/// Fails unless the stretches of each operation are its parts by cause.
fn check(log: &SlowPath, timeline: &Timeline) -> Result<(), String> {
    if log.entries.len() != timeline.operations.len() {
        return Err(format!("{} of {} operations were observed", timeline.operations.len(), log.entries.len()));
    }
    for (entry, operation) in log.entries.iter().zip(&timeline.operations) {
        let parts: BTreeMap<&str, u64> = log.parts(entry).into_iter().filter(|(_, ps)| *ps > 0).collect();
        if parts != operation.by_cause() {
            let (task, start) = (entry.task, entry.start_ps);
            return Err(format!("the stretches of task {task}'s operation at {start} ps do not sum to its parts"));
        }
    }
    Ok(())
}

/// A fact with its numbers by name.
fn fact(told: &Told, tasks: &[TaskName]) -> Fact {
    let mut notes = BTreeMap::new();
    if let Value::Object(mut fields) = serde_json::to_value(&told.fact).expect("a fact serialises") {
        let name = fields.remove("fact");
        flatten("", &Value::Object(fields), &mut notes);
        if let Some(by) = tasks.get(told.by as usize) {
            notes.insert("by".to_owned(), Note::Word(by.name.clone()));
        }
        let name = name.as_ref().and_then(Value::as_str).unwrap_or("fact").replace('_', " ");
        return Fact { at_ps: told.at.0, name, notes };
    }
    unreachable!("a fact is an object");
}

/// Numbers and words of a value, by the names that lead to them.
fn flatten(path: &str, value: &Value, notes: &mut BTreeMap<String, Note>) {
    let note = match value {
        Value::Null => return,
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
                flatten(&name, value, notes);
            }
            return;
        }
        Value::Array(values) => {
            let words = values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            Note::Word(words.collect::<Vec<_>>().join(" "))
        }
        Value::Number(number) => number.as_u64().map_or_else(|| Note::Word(number.to_string()), Note::Number),
        Value::String(text) => Note::Word(text.clone()),
        Value::Bool(is) => Note::Word(if *is { "yes" } else { "no" }.to_owned()),
    };
    notes.insert(path.replace('_', " "), note);
}

/// The stretches of an operation; where there are many, the work between two waits summed by cause.
fn brief(stretches: Vec<Stretch>) -> Vec<Stretch> {
    if stretches.len() <= WHOLE_MAX {
        return stretches;
    }
    // Sums from this place on are of the present stretch of work.
    let (mut sums, mut from): (Vec<Stretch>, usize) = (Vec::new(), 0);
    for stretch in stretches {
        let is_apart = |last: &Stretch| last.waits || last.mechanism != stretch.mechanism;
        if stretch.waits || sums.last().is_some_and(is_apart) {
            from = sums.len();
        }
        match sums[from..].iter_mut().find(|sum| sum.cause == stretch.cause) {
            Some(sum) => sum.ps += stretch.ps,
            None => sums.push(stretch),
        }
    }
    sums
}

/// The timeline in the form of a result, without facts: operations in the order of the log.
pub(crate) fn written(timeline: sim::Timeline, operations: &SlowOperations) -> Timeline {
    let sim::Timeline { tasks, turns, wakeups, stretches, dropped } = timeline;
    let stretch = |of: &sim::Stretch| Stretch {
        mechanism: of.mechanism.map(str::to_owned),
        cause: of.cause.name().to_owned(),
        waits: of.waits,
        ps: of.time.0,
    };
    let in_order = |operation: &sim::SlowOperation| {
        let found = stretches.get(&(operation.task, operation.start));
        InOrder { stretches: brief(found.into_iter().flatten().map(stretch).collect()), ..InOrder::default() }
    };
    let by = |waker| match waker {
        sim::Waker::Task(task) => Waker::Task(task),
        sim::Waker::Disk => Waker::Disk,
        sim::Waker::Timer => Waker::Timer,
    };
    Timeline {
        tasks: tasks.into_iter().map(|task| TaskName { kernel: task.kernel, name: task.name }).collect(),
        turns: turns.iter().map(|turn| (turn.cpu.0, turn.task, turn.start.0, turn.end.0)).collect(),
        wakeups: wakeups.iter().map(|wakeup| (wakeup.at.0, wakeup.task, by(wakeup.by))).collect(),
        operations: operations.longest.iter().map(in_order).collect(),
        dropped,
    }
}

#[cfg(test)]
mod tests {
    use memory::fact::{Fact as Decided, Lacks, Room, ZoneName};
    use rules::{gfp::Mark, zone::ZoneKind};
    use units::{NodeId, Order, Time};

    use super::*;

    #[test]
    fn work_between_waits_is_summed_where_there_is_much() {
        let stretch = |mechanism: Option<&str>, cause: &str, waits| Stretch {
            mechanism: mechanism.map(str::to_owned),
            cause: cause.to_owned(),
            waits,
            ps: 1,
        };
        let work = |mechanism| [stretch(mechanism, "copy", false), stretch(mechanism, "migrate", false)];
        let few: Vec<Stretch> = work(None).into_iter().cycle().take(WHOLE_MAX).collect();
        assert_eq!(brief(few.clone()), few);
        let wait = stretch(None, "copy", true);
        let of_compaction = work(Some("direct compaction"));
        let many = few.into_iter().chain([wait]).chain(work(None)).chain(of_compaction).collect();
        let sums: Vec<(String, u64)> = brief(many).into_iter().map(|sum| (sum.cause, sum.ps)).collect();
        let wanted =
            [("copy", 32), ("migrate", 32), ("copy", 1), ("copy", 1), ("migrate", 1), ("copy", 1), ("migrate", 1)];
        assert_eq!(sums, wanted.map(|(cause, ps)| (cause.to_owned(), ps)));
    }

    #[test]
    fn a_fact_has_its_numbers_by_name() {
        let room = Room { free: 7, blocks: vec![3, 2], mark: 5, boost: 0, keeps: 0, needs: 6 };
        let zone = ZoneName { node: NodeId(1), kind: ZoneKind::Normal };
        let decided = Decided::PassedOver { zone, order: Order(9), mark: Mark::Low, room, lacks: Lacks::Block };
        let told = Told { at: Time(8), by: 0, kernel: 0, fact: decided };
        let fact = fact(&told, &[TaskName { kernel: 0, name: "kswapd0".to_owned() }]);
        assert_eq!((fact.at_ps, fact.name.as_str()), (8, "passed over"));
        let numbers = ["zone node", "order", "room free", "room mark"].map(|name| fact.notes[name].clone());
        assert_eq!(numbers, [1, 9, 7, 5].map(Note::Number));
        let words = ["by", "room blocks", "lacks"].map(|name| fact.notes[name].clone());
        assert_eq!(words, ["kswapd0", "3 2", "block"].map(|word| Note::Word(word.to_owned())));
    }
}
