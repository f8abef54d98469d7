//! The threads of a process, which go through its phases in step, and threads that run beside them.

use std::{future::Future, ops::Range};

use os::{Barrier, Died, Os, Placement, Rusage};
use units::{Bytes, Errno, Picos, Time};

use super::{
    meeting::Meeting,
    operations::{Hand, Member, settle},
    pace,
    phase::{Thread, Work, count, wait_for, wait_for_phase},
    plan::{Event, Phase, Until},
};
use crate::member::PhaseOutcome;

/// More parties than a barrier ever has waiters: it is there to be cancelled.
const NOBODY: u32 = 1_000_000;

/// Where threads of a process meet: before a phase and behind it.
#[derive(Clone, Copy, Debug)]
struct Step {
    begin: Meeting,
    end: Meeting,
}

impl Step {
    /// Lets no thread wait for the calling one, which has failed.
    async fn leave<O: Os>(self, os: &O) -> Result<(), Errno> {
        self.begin.leave(os).await?;
        self.end.leave(os).await
    }
}

/// A phase beside another one, when it is over.
struct Beside {
    work: Work,
    skipped: u64,
    rusage: Rusage,
    hand: Hand,
}

/// All threads through some groups of phases, each a phase and what runs beside it. The calling task is the first thread.
pub(super) async fn work<O: Os>(
    os: &O,
    member: &mut Member,
    groups: &[Range<usize>],
    used: &mut Rusage,
) -> Result<Vec<PhaseOutcome>, Errno> {
    let of = member.process().clone();
    let mains: Vec<usize> = groups.iter().map(|group| group.start).collect();
    let threads = mains.iter().map(|main| member.threads_of(&of.phases[*main])).max().unwrap_or(1);
    let step = Step { begin: Meeting::new(os, threads).await?, end: Meeting::new(os, threads).await? };
    let before = os.rusage().await?;
    let mut crew = Vec::new();
    for index in 1..threads {
        let (mut member, mains) = (member.clone(), mains.clone());
        crew.push(os.spawn(Placement::Free, async move |os: O| follow(&os, &mut member, &mains, (index, step)).await));
    }
    let led = lead(os, member, groups, step).await;
    if led.is_err() {
        step.leave(os).await?;
    }
    let mut others = Vec::new();
    for thread in crew {
        others.push(thread.await.map_err(|_| Errno::CANCELED)?);
    }
    let (mut phases, mut hands, rusage) = led?;
    for other in others {
        let (works, own_hands, own) = other?;
        for (work, (_, all, _)) in works.iter().zip(&mut phases) {
            all.add(work);
        }
        hands.extend(own_hands);
        used.add(&own);
    }
    used.add(&rusage);
    used.add(&os.rusage().await?.since(&before));
    for hand in &mut hands {
        member.take_over(hand);
    }
    let mut outcomes = Vec::new();
    for (main, (start, work, beside)) in mains.into_iter().zip(phases) {
        outcomes.push(outcome(os, member, &of.phases[main], start, work).await);
        for (index, work, skipped) in beside {
            outcomes.push(PhaseOutcome { skipped, ..outcome(os, member, &of.phases[index], start, work).await });
        }
    }
    Ok(outcomes)
}

/// A phase that is over: its start, what its first thread did, and the phases beside it.
type Led = (Time, Work, Vec<(usize, Work, u64)>);

/// The begin and the end of a group, for threads that run beside its phase.
#[derive(Clone, Copy, Debug)]
struct Gate {
    open: Barrier,
    over: Barrier,
}

/// The first thread of a process, and threads that run beside it.
async fn lead<O: Os>(
    os: &O,
    member: &mut Member,
    groups: &[Range<usize>],
    step: Step,
) -> Result<(Vec<Led>, Vec<Hand>, Rusage), Errno> {
    let of = member.process().clone();
    let (mut gates, mut waiting) = (Vec::new(), Vec::new());
    // A thread that runs beside a phase is there before it, and sleeps: a task that wakes up runs sooner than a new one.
    for group in groups {
        let gate = Gate { open: os.barrier(NOBODY).await?, over: os.barrier(1).await? };
        for (number, index) in (0..).zip(group.start + 1..group.end) {
            let (member, place, every) = (member.clone(), of.threads + number, of.phases[index].every);
            let thread = os.spawn(Placement::Free, async move |os: O| {
                settle(&os, &member, place).await?;
                wait_for(&os, gate.open, 1).await?;
                match every {
                    Some(every) => again(&os, member, (index, every), gate.over).await,
                    None => once(&os, member, index).await,
                }
            });
            waiting.push((index, thread));
        }
        gates.push(gate);
    }
    let led = lead_through(os, member, groups, step, (&gates, waiting)).await;
    if led.is_err() {
        // Threads beside a phase that does not come go on, and end.
        for gate in gates {
            count(os, gate.open, 1).await?;
            count(os, gate.over, 1).await?;
        }
    }
    led
}

async fn lead_through<O: Os>(
    os: &O,
    member: &mut Member,
    groups: &[Range<usize>],
    step: Step,
    (gates, waiting): (&[Gate], Vec<(usize, impl Future<Output = Result<Result<Beside, Errno>, Died>>)>),
) -> Result<(Vec<Led>, Vec<Hand>, Rusage), Errno> {
    let of = member.process().clone();
    let (mut all, mut hands) = (Vec::new(), Vec::new());
    let mut rusage = Rusage::default();
    let mut waiting = waiting.into_iter().peekable();
    for (group, gate) in groups.iter().zip(gates) {
        let main = &of.phases[group.start];
        if let Some(event) = main.after {
            wait_for_phase(os, member, event).await?;
        }
        step.begin.arrive(os).await?;
        let start = os.now();
        count(os, gate.open, 1).await?;
        let mut thread = Thread::new(member, main, (0, 0), start);
        thread.go_on(os, member, main, None).await?;
        step.end.arrive(os).await?;
        count(os, gate.over, 1).await?;
        let mut ended = Vec::new();
        while let Some((index, thread)) = waiting.next_if(|(index, _)| group.contains(index)) {
            let beside = thread.await.map_err(|_| Errno::CANCELED)??;
            rusage.add(&beside.rusage);
            hands.push(beside.hand);
            ended.push((index, beside.work, beside.skipped));
        }
        tell(os, member, group.clone()).await?;
        all.push((start, thread.work(), ended));
        hands.push(thread.hand);
    }
    Ok((all, hands, rusage))
}

/// Any other thread of a process: through all main phases, where it does its part.
async fn follow<O: Os>(
    os: &O,
    member: &mut Member,
    mains: &[usize],
    (index, step): (u32, Step),
) -> Result<(Vec<Work>, Vec<Hand>, Rusage), Errno> {
    let worked = follow_through(os, member, mains, (index, step)).await;
    if worked.is_err() {
        step.leave(os).await?;
    }
    let (works, hands) = worked?;
    Ok((works, hands, os.rusage().await?))
}

async fn follow_through<O: Os>(
    os: &O,
    member: &mut Member,
    mains: &[usize],
    (index, step): (u32, Step),
) -> Result<(Vec<Work>, Vec<Hand>), Errno> {
    settle(os, member, index).await?;
    let of = member.process().clone();
    let (mut works, mut hands) = (Vec::new(), Vec::new());
    for main in mains {
        let phase = &of.phases[*main];
        step.begin.arrive(os).await?;
        let mut thread = Thread::new(member, phase, (index, 0), os.now());
        if index < member.threads_of(phase) {
            thread.go_on(os, member, phase, None).await?;
        }
        step.end.arrive(os).await?;
        works.push(thread.work());
        hands.push(thread.hand);
    }
    Ok((works, hands))
}

/// Tells those who wait for phases that they are over.
pub(super) async fn tell<O: Os>(os: &O, member: &Member, phases: Range<usize>) -> Result<(), Errno> {
    for index in phases {
        let event = Event { process: member.process, phase: u32::try_from(index).expect("few phases") };
        if let Some((_, barrier)) = member.signals.phases.iter().find(|(known, _)| *known == event) {
            count(os, *barrier, member.process().copies).await?;
        }
    }
    Ok(())
}

/// The outcome of a phase.
pub(super) async fn outcome<O: Os>(os: &O, member: &Member, phase: &Phase, start: Time, work: Work) -> PhaseOutcome {
    let time = match phase.requests.until {
        Until::Time(time) => Some(time),
        Until::Times(_) | Until::Ended(_) => None,
    };
    let period = pace::period(phase.requests.rate, phase.requests.block);
    PhaseOutcome {
        name: phase.name.clone(),
        start,
        end: work.end.max(start),
        asked: time.filter(|_| phase.every.is_none()).and_then(|time| pace::asked(period, time)),
        operations: work.operations,
        inner: work.inner,
        bytes: work.bytes,
        skipped: 0,
        killed: work.killed,
        resident: resident(os, member).await,
    }
}

/// Memory of the process, of base pages and of huge ones.
async fn resident<O: Os>(os: &O, member: &Member) -> Option<(Bytes, Bytes)> {
    /// Where memory is in more parts, asking for each takes too long on real kernels.
    const PARTS_MAX: usize = 64;
    let ranges = member.arena.ranges();
    if ranges.len() > PARTS_MAX {
        return None;
    }
    let mut all = (Bytes(0), Bytes(0));
    for range in ranges {
        for place in os.places(range).await.ok()? {
            let of = if place.is_huge { &mut all.1 } else { &mut all.0 };
            *of += place.size;
        }
    }
    Some(all)
}

/// A phase beside another one, once.
async fn once<O: Os>(os: &O, mut member: Member, index: usize) -> Result<Beside, Errno> {
    let phase = member.process().phases[index].clone();
    if let Some(event) = phase.after {
        wait_for_phase(os, &member, event).await?;
    }
    let mut thread = Thread::new(&member, &phase, (0, 0), os.now());
    thread.go_on(os, &mut member, &phase, None).await?;
    Ok(Beside { work: thread.work(), skipped: 0, rusage: os.rusage().await?, hand: thread.hand })
}

/// Whether the phase that another one runs beside is over. A kill cancels the barrier too, and counts nothing at it.
fn is_over<O: Os>(os: &O, over: Barrier) -> Result<bool, Errno> {
    Ok(os.is_cancelled(over) && os.add(over, 0)? > 0)
}

/// A phase beside another one, again and again until that one is over.
async fn again<O: Os>(
    os: &O,
    mut member: Member,
    (index, every): (usize, Picos),
    over: Barrier,
) -> Result<Beside, Errno> {
    /// So often it looks whether the other one is over.
    const LOOK: Picos = Picos::from_millis(100);
    let phase = member.process().phases[index].clone();
    let mut all = Work::default();
    let mut skipped = 0;
    let mut due = os.now() + every;
    let mut thread = Thread::new(&member, &phase, (0, 0), due);
    let mut allocated = Vec::new();
    for number in 1.. {
        loop {
            // Read once: the clock of a real kernel goes on meanwhile.
            let now = os.now();
            if now >= due || is_over(os, over)? {
                break;
            }
            os.sleep(Picos(due.since(now).0.min(LOOK.0))).await;
        }
        if is_over(os, over)? {
            break;
        }
        thread.go_on(os, &mut member, &phase, None).await?;
        all.add(&thread.work());
        allocated.append(&mut thread.hand.allocated);
        due = due + every;
        let now = os.now();
        let late = now.since(due.min(now)).0.div_ceil(every.0);
        skipped += late;
        due = due + every * late;
        thread = Thread::new(&member, &phase, (0, number), due);
    }
    thread.hand.allocated = allocated;
    Ok(Beside { work: all, skipped, rusage: os.rusage().await?, hand: thread.hand })
}
