//! A thread in a phase: operations at their time, until the phase is over or the process is to be copied.

use os::{Barrier, Os};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos, Time};

use super::{
    operations::{Hand, Member},
    pace::{self, Pace},
    pattern::{MILLION, Pattern, below_u64},
    plan::{Access, Action, Event, Phase, Until},
};
use crate::{
    draw::seed_of,
    member::{Latencies, Recorder},
};

/// A thread, with all that it takes from one part of its phase to the next.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) hand: Hand,
    start: Time,
    until: Until,
    pace: Pace,
    accesses: Option<Accesses>,
    churn: Option<Pace>,
    operations: Recorder,
    /// Pieces that were given back and taken anew.
    churned: Recorder,
    bytes: u64,
    /// The end of its last operation.
    end: Time,
}

/// Where accesses go.
#[derive(Debug)]
struct Accesses {
    pattern: Pattern,
    /// The first page of the memory that is accessed.
    from: u64,
    /// Part that stores, in millionths.
    writes: u32,
}

/// The work of a phase's threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) operations: Latencies,
    pub(super) inner: Latencies,
    pub(super) bytes: u64,
    pub(super) killed: u64,
    /// The end of its last operation.
    pub(super) end: Time,
}

/// The stream that an operation is of.
enum Next {
    Operation,
    Churn,
}

impl Thread {
    /// A thread of a phase that begins now.
    pub(super) fn new(member: &Member, phase: &Phase, (index, repetition): (u32, u64), start: Time) -> Self {
        let threads = member.threads_of(phase);
        let of = (index, threads);
        let seed = seed_of(seed_of(member.seed, member.number_of(phase)), index).wrapping_add(repetition);
        let period = pace::period(phase.requests.rate, phase.requests.block);
        let (mut accesses, mut churn) = (None, None);
        if let Action::Access(Access { of: allocated_by, pattern, writes, churn: part }) = phase.action {
            let arena = &member.arena;
            let (from, pages) = arena.pages_of(allocated_by);
            let blocks = (pages / (phase.requests.block.0 / Bytes::PAGE.0)).max(1);
            accesses = Some(Accesses { pattern: Pattern::new(pattern, blocks, of), from, writes });
            let milli = match part {
                0 => arena.ended_in_a_second(),
                part => arena.pieces().saturating_mul(part.into()) / 1000,
            };
            let period = (milli > 0).then(|| Picos(Picos::from_secs(1000).0 / milli));
            churn = period.map(|period| Pace::new(start, Some(period), of));
        }
        Self {
            hand: Hand::new(index, ChaCha8Rng::seed_from_u64(seed), repetition),
            start,
            until: phase.requests.until,
            pace: Pace::new(start, period, of),
            accesses,
            churn,
            operations: Recorder::new(),
            churned: Recorder::new(),
            bytes: 0,
            end: start,
        }
    }

    /// Goes on with a phase until it is over, or until an operation would begin at `stop` or later. Says whether it is over.
    pub(super) async fn go_on<O: Os>(
        &mut self,
        os: &O,
        member: &mut Member,
        phase: &Phase,
        stop: Option<Time>,
    ) -> Result<bool, Errno> {
        loop {
            let now = os.now();
            let (next, due) = self.next(now);
            if self.is_over(os, member, due.max(now))? {
                return Ok(true);
            }
            if stop.is_some_and(|stop| due.max(now) >= stop) {
                return Ok(false);
            }
            if due > now {
                os.sleep(due.since(now)).await;
            }
            match next {
                Next::Churn => {
                    member.replace(os, &mut self.hand.random).await?;
                    self.churned.record(os.now().since(due));
                    self.churn.as_mut().expect("it was due").count();
                }
                Next::Operation => {
                    let bytes = match &mut self.accesses {
                        Some(accesses) => {
                            let block = accesses.pattern.draw(&mut self.hand.random, self.start, due);
                            let stores = below_u64(&mut self.hand.random, MILLION) < u64::from(accesses.writes);
                            let page = accesses.from + block * (phase.requests.block.0 / Bytes::PAGE.0);
                            member.access(os, phase.requests.block, page, stores).await?
                        }
                        None => member.operate(os, phase, &mut self.hand).await?,
                    };
                    self.bytes += bytes.0;
                    self.end = os.now();
                    self.operations.record(self.end.since(due));
                    self.pace.count();
                    if let Some((range, time)) = self.hand.held.take() {
                        if time > Picos(0) {
                            os.sleep(time).await;
                        }
                        os.munmap(range).await?;
                    }
                }
            }
        }
    }

    /// The operation that comes next, and when it is due.
    fn next(&self, now: Time) -> (Next, Time) {
        let due = self.pace.due().unwrap_or(now);
        match self.churn.as_ref().and_then(Pace::due) {
            Some(churn) if churn <= due => (Next::Churn, churn),
            _ => (Next::Operation, due),
        }
    }

    /// Whether the phase is over for an operation that would begin at `at`.
    fn is_over<O: Os>(&self, os: &O, member: &Member, at: Time) -> Result<bool, Errno> {
        match self.until {
            Until::Times(times) if self.accesses.is_some() => Ok(self.pace.done() >= times),
            Until::Times(times) => Ok(self.hand.rounds >= times),
            Until::Time(time) => Ok(at.since(self.start) >= time),
            Until::Ended(process) => member.has_ended(os, process),
        }
    }

    /// The work that the thread has done.
    pub(super) fn work(&self) -> Work {
        Work {
            operations: self.operations.counts(),
            inner: self.churned.counts(),
            bytes: self.bytes,
            killed: self.hand.killed,
            end: self.end,
        }
    }
}

impl Work {
    pub(super) fn add(&mut self, other: &Self) {
        self.operations.add(&other.operations);
        self.inner.add(&other.inner);
        self.bytes += other.bytes;
        self.killed += other.killed;
        self.end = self.end.max(other.end);
    }
}

/// Between two looks at a count whose barrier is cancelled before the count is full.
pub(super) const LOOK: Picos = Picos::from_millis(10);

/// Waits until something has happened so often as is said: somebody counts it at a barrier that nobody else arrives at, and
/// cancels the barrier when the count is full. All barriers are cancelled where a process dies: then the count is looked at.
pub(super) async fn wait_for<O: Os>(os: &O, barrier: Barrier, count: u32) -> Result<(), Errno> {
    if os.add(barrier, 0)? < count {
        // Cancelled is what it waits for.
        let _ = os.arrive(barrier).await;
    }
    while os.add(barrier, 0)? < count {
        os.sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until a phase of any process is over.
pub(super) async fn wait_for_phase<O: Os>(os: &O, member: &Member, event: Event) -> Result<(), Errno> {
    let (_, barrier) = *member.signals.phases.iter().find(|(known, _)| *known == event).expect("made for the plan");
    wait_for(os, barrier, member.service.processes[event.process as usize].copies).await
}

/// Counts for [`wait_for`].
pub(super) async fn count<O: Os>(os: &O, barrier: Barrier, full: u32) -> Result<(), Errno> {
    if os.add(barrier, 1)? + 1 >= full {
        os.cancel(barrier).await;
    }
    Ok(())
}
