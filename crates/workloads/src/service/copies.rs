//! A process that is copied: the child reads memory of its parent as it was, and writes it to a file.

use std::{future::Future, ops::Range};

use os::{Barrier, Died, Os, Placement, Rusage};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use super::{
    crew::{outcome, tell},
    operations::{Member, settle},
    pace,
    phase::{Thread, Work, wait_for_phase},
    plan::{Action, Child, Phase, Until},
};
use crate::member::{PhaseOutcome, Recorder};

/// A child that was copied of its process.
type Saving = std::pin::Pin<Box<dyn Future<Output = Result<Saved, Died>>>>;

/// The end of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Saved {
    end: Time,
    bytes: u64,
    result: Result<(), Errno>,
}

/// Copies of a process that a phase makes beside another one.
struct Copies {
    index: usize,
    every: Picos,
    /// When the process is to be copied again.
    due: Time,
    made: u32,
    /// Children count their ends here.
    over: Barrier,
    /// When each began, and its end.
    saving: Vec<(Time, Saving)>,
    /// Times of fork(2).
    calls: Recorder,
    skipped: u64,
    start: Time,
}

impl Copies {
    fn new(index: usize, every: Picos, start: Time, over: Barrier) -> Self {
        Self {
            index,
            every,
            due: start + every,
            made: 0,
            over,
            saving: Vec::new(),
            calls: Recorder::new(),
            skipped: 0,
            start,
        }
    }
}

/// A phase beside which the process is copied. Its other threads end before each copy and begin anew behind it: fork(2) copies
/// the thread that calls it, and keeps others from changing memory meanwhile.
pub(super) async fn beside<O: Os>(
    os: &O,
    member: &mut Member,
    group: Range<usize>,
    used: &mut Rusage,
) -> Result<Vec<PhaseOutcome>, Errno> {
    let of = member.process().clone();
    let main = &of.phases[group.start];
    if let Some(event) = main.after {
        wait_for_phase(os, member, event).await?;
    }
    let start = os.now();
    let before = os.rusage().await?;
    let mut copies = Vec::new();
    for index in group.start + 1..group.end {
        let every = of.phases[index].every.expect("forks beside a phase are repeated, and nothing else is beside them");
        copies.push(Copies::new(index, every, start, os.barrier(1_000_000).await?));
    }
    let work = run_phase(os, member, main, start, (&mut copies, used)).await?;
    let mut outcomes = vec![outcome(os, member, main, start, work).await];
    for copy in copies {
        outcomes.push(ended(os, &of.phases[copy.index], copy).await?);
    }
    used.add(&os.rusage().await?.since(&before));
    tell(os, member, group).await?;
    Ok(outcomes)
}

/// All threads of a phase, from its begin to its end.
async fn run_phase<O: Os>(
    os: &O,
    member: &mut Member,
    phase: &Phase,
    start: Time,
    (copies, used): (&mut [Copies], &mut Rusage),
) -> Result<Work, Errno> {
    let threads = member.threads_of(phase);
    let mut own = Thread::new(member, phase, (0, 0), start);
    let mut others: Vec<Thread> = (1..threads).map(|index| Thread::new(member, phase, (index, 0), start)).collect();
    let mut done = Vec::new();
    let mut is_over = false;
    loop {
        let stop = copies.iter().map(|copy| copy.due).min();
        let mut running = Vec::new();
        for mut thread in others.drain(..) {
            let (mut member, phase) = (member.clone(), phase.clone());
            running.push(os.spawn(Placement::Free, async move |os: O| {
                settle(&os, &member, thread.hand.index).await?;
                let over = thread.go_on(&os, &mut member, &phase, stop).await?;
                Ok::<_, Errno>((thread, over, os.rusage().await?))
            }));
        }
        let alone = running.is_empty();
        if !is_over {
            is_over = own.go_on(os, member, phase, stop).await?;
        }
        for task in running {
            let (thread, over, rusage) = task.await.map_err(|_| Errno::CANCELED)??;
            used.add(&rusage);
            if over { done.push(thread) } else { others.push(thread) }
        }
        if is_over && others.is_empty() {
            break;
        }
        if alone {
            // The next operation is due behind the copy, and no other thread takes the time until then.
            let now = os.now();
            if let Some(stop) = stop.filter(|stop| *stop > now) {
                os.sleep(stop.since(now)).await;
            }
        }
        // Threads that are done wait with the others for the end of the phase.
        copy_due(os, member, copies).await?;
    }
    let mut work = own.work();
    member.take_over(&mut own.hand);
    done.sort_by_key(|thread| thread.hand.index);
    for mut thread in done {
        work.add(&thread.work());
        member.take_over(&mut thread.hand);
    }
    Ok(work)
}

/// Copies the process for each phase that is due.
async fn copy_due<O: Os>(os: &O, member: &Member, copies: &mut [Copies]) -> Result<(), Errno> {
    for copy in copies.iter_mut() {
        if os.now() < copy.due {
            continue;
        }
        let due = copy.due;
        copy.due = due + copy.every;
        if os.add(copy.over, 0)? < copy.made {
            copy.skipped += 1;
            continue;
        }
        let phase = &member.process().phases[copy.index];
        let start = os.now();
        copy.saving.push((due, save(os, member, phase, (copy.made, Some(copy.over))).await?));
        copy.calls.record(os.now().since(start));
        copy.made += 1;
    }
    Ok(())
}

/// Copies the process; the child reads all of its memory, block by block, and writes it if it shall.
async fn save<O: Os>(
    os: &O,
    member: &Member,
    phase: &Phase,
    (number, over): (u32, Option<Barrier>),
) -> Result<Saving, Errno> {
    let (of, phase) = (member.clone(), phase.clone());
    let body = async move |os: O| {
        let result = read_all(&os, &of, &phase, number).await;
        if let Some(over) = over {
            // The number alone is of use; nobody waits.
            let _ = os.add(over, 1);
        }
        Saved { end: os.now(), bytes: result.unwrap_or(0), result: result.map(drop) }
    };
    Ok(Box::pin(os.fork(Placement::Free, body).await?))
}

async fn read_all<O: Os>(os: &O, member: &Member, phase: &Phase, number: u32) -> Result<u64, Errno> {
    let Action::Fork(Child { writes }) = phase.action else { unreachable!("only forks copy") };
    let file = if writes { Some(os.create(&member.file_name(phase, number)).await?) } else { None };
    let start = os.now();
    let period = pace::period(phase.requests.rate, phase.requests.block);
    let mut done = Bytes(0);
    let mut count = 0;
    for range in member.arena.ranges() {
        let mut at = Bytes(0);
        while at < range.len {
            let due = period.map(|period| start + period * count);
            let now = os.now();
            if let Some(wait) = due.filter(|due| *due > now).map(|due| due.since(now)) {
                os.sleep(wait).await;
            }
            let part = range.part(at, Bytes(phase.requests.block.0.min(range.len.0 - at.0)));
            os.load(part, Bytes::PAGE).await?;
            if let Some(file) = file {
                os.write(file, done, part.len).await?;
            }
            at += part.len;
            done += part.len;
            count += 1;
        }
    }
    if let Some(file) = file {
        os.fsync(file).await?;
        os.close(file).await?;
        if number > 0 {
            os.unlink(&member.file_name(phase, number - 1)).await?;
        }
    }
    Ok(done.0)
}

/// A fork in the order of phases: the process waits for its child.
pub(super) async fn save_in_turn<O: Os>(os: &O, member: &Member, phase: &Phase) -> Result<PhaseOutcome, Errno> {
    if let Some(event) = phase.after {
        wait_for_phase(os, member, event).await?;
    }
    let start = os.now();
    let times = match phase.requests.until {
        Until::Times(times) => u32::try_from(times).unwrap_or(u32::MAX),
        Until::Time(_) | Until::Ended(_) => 1,
    };
    let (mut operations, mut calls) = (Recorder::new(), Recorder::new());
    let (mut bytes, mut killed) = (0, 0);
    for number in 0..times {
        let from = os.now();
        let saving = save(os, member, phase, (number, None)).await?;
        calls.record(os.now().since(from));
        match saving.await {
            Ok(saved) => {
                saved.result?;
                bytes += saved.bytes;
                operations.record(saved.end.since(from));
            }
            Err(_) => killed += 1,
        }
    }
    let work = Work { operations: operations.counts(), inner: calls.counts(), bytes, killed, end: os.now() };
    let index = member.number_of(phase) as usize;
    tell(os, member, index..index + 1).await?;
    Ok(outcome(os, member, phase, start, work).await)
}

/// Waits for the children of a phase that copies its process beside another one.
async fn ended<O: Os>(os: &O, phase: &Phase, copies: Copies) -> Result<PhaseOutcome, Errno> {
    let mut operations = Recorder::new();
    let (mut bytes, mut killed) = (0, 0);
    for (due, saving) in copies.saving {
        match saving.await {
            Ok(saved) => {
                saved.result?;
                bytes += saved.bytes;
                operations.record(saved.end.since(due));
            }
            Err(_) => killed += 1,
        }
    }
    Ok(PhaseOutcome {
        name: phase.name.clone(),
        start: copies.start,
        end: os.now(),
        asked: None,
        operations: operations.counts(),
        inner: copies.calls.counts(),
        bytes,
        skipped: copies.skipped,
        killed,
        resident: None,
    })
}
