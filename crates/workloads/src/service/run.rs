//! A service from the start of its processes to the end of the last one.

use std::collections::BTreeSet;

use os::{Barrier, Died, Os, Placement, Rusage};
use units::Errno;

use super::{
    operations::Signals,
    phase::wait_for,
    plan::{Event, Service},
    process::{PROCESS_ENTRY, ProcessParams, prepare},
};
use crate::{
    During, Outcome, TaskOutcome, WorkloadError,
    draw::seed_of,
    meet::{Meet, TaskError, Window},
    member::MemberOutcome,
    outcome::drop_caches,
};

/// More parties than such a barrier ever has waiters.
const NOBODY: u32 = 1_000_000;

/// Runs all processes; counters are read from their common start, or from the end of a phase, until the last one is done.
pub async fn run<O: Os>(os: O, service: Service, seed: u64) -> Result<Outcome, WorkloadError> {
    let mut unable = Vec::new();
    prepare(&os, &service, os.memory()).await.during("a file that is read")?;
    if service.reads() {
        drop_caches(&os, &mut unable).await?;
    }
    let members: Vec<(u32, u32)> = (0..)
        .zip(&service.processes)
        .flat_map(|(index, process)| (0..process.copies).map(move |copy| (index, copy)))
        .collect();
    let meet = Meet::new(&os, u32::try_from(members.len()).expect("few processes")).await?;
    let signals = signals(&os, &service).await.during("barrier")?;
    let leave = os.barrier(NOBODY).await.during("barrier")?;
    let mut running = Vec::new();
    for (number, (process, copy)) in (0..).zip(members) {
        let done = os.barrier(NOBODY).await.during("barrier")?;
        let with = ProcessParams {
            service: service.clone(),
            process,
            copy,
            seed: seed_of(seed, number),
            signals: signals.clone(),
            meet,
            done,
            leave,
        };
        let watched = os.spawn(Placement::Free, async move |os: O| watch(&os, with).await);
        running.push((done, watched));
    }
    let window = window(&os, &service, &signals, meet, &running, leave).await;
    if window.is_err() {
        meet.cancel(&os).await;
        os.set(leave, 1).during("barrier")?;
        os.cancel(leave).await;
    }
    let mut tasks = Vec::new();
    let mut refused = None;
    for (_, watched) in running {
        match watched.await? {
            Ok((member, rusage)) => tasks.push(task_outcome(&os, member, rusage)),
            Err(TaskError::Died(died)) => return Err(died.into()),
            Err(TaskError::Call(errno)) if refused.is_none_or(|known| known == Errno::CANCELED) => {
                refused = Some(errno);
            }
            Err(TaskError::Call(_)) => {}
        }
    }
    match refused {
        Some(errno) => Err(WorkloadError::Call("an operation of a phase", errno)),
        None => Ok(window?.outcome(tasks, unable)),
    }
}

/// Barriers for each phase and each process that others wait for.
async fn signals<O: Os>(os: &O, service: &Service) -> Result<Signals, Errno> {
    let events: BTreeSet<Event> = service.events().collect();
    let mut signals = Signals { phases: Vec::new(), ended: Vec::new() };
    for event in events {
        signals.phases.push((event, os.barrier(NOBODY).await?));
    }
    for _ in &service.processes {
        signals.ended.push(os.barrier(NOBODY).await?);
    }
    Ok(signals)
}

/// Starts a process and waits for its end. If the kernel kills it, nobody waits for it any longer.
async fn watch<O: Os>(os: &O, with: ProcessParams) -> Result<(MemberOutcome, Rusage), TaskError> {
    let (service, process, copy) = (with.service.clone(), with.process, with.copy);
    let (signals, done) = (with.signals.clone(), with.done);
    let of = &service.processes[process as usize];
    if of.nice != 0 {
        os.nice_children(of.nice)?;
    }
    let result: Result<Result<(MemberOutcome, Rusage), TaskError>, Died> =
        os.spawn_process(Placement::Free, PROCESS_ENTRY, with).await;
    if let Ok(ended) = result {
        if ended.is_err() {
            free(os, &signals, process, of.copies, done).await?;
        }
        return ended;
    }
    free(os, &signals, process, of.copies, done).await?;
    Ok((MemberOutcome { process: of.name.clone(), copy, killed: true, phases: Vec::new() }, Rusage::default()))
}

/// Lets nobody wait for a process that is no more.
async fn free<O: Os>(os: &O, signals: &Signals, process: u32, copies: u32, done: Barrier) -> Result<(), Errno> {
    let phases = signals.phases.iter().filter(|(event, _)| event.process == process).map(|(_, barrier)| *barrier);
    for barrier in phases.chain([signals.ended[process as usize]]) {
        os.set(barrier, copies)?;
        os.cancel(barrier).await;
    }
    os.set(done, 1)?;
    os.cancel(done).await;
    Ok(())
}

/// Counts from the start on, or from the end of a phase, until all processes are done; then lets them go.
async fn window<O: Os, T>(
    os: &O,
    service: &Service,
    signals: &Signals,
    meet: Meet,
    running: &[(Barrier, T)],
    leave: Barrier,
) -> Result<Window, WorkloadError> {
    os.arrive(meet.ready).await.during("barrier")?;
    let mut before = os.vmstat().await.during("vmstat")?;
    let mut start = os.now();
    os.arrive(meet.start).await.during("barrier")?;
    if let Some(event) = service.from {
        let (_, barrier) = *signals.phases.iter().find(|(known, _)| *known == event).expect("made for the plan");
        let copies = service.processes[event.process as usize].copies;
        wait_for(os, barrier, copies).await.during("barrier")?;
        before = os.vmstat().await.during("vmstat")?;
        start = os.now();
    }
    for (done, _) in running {
        wait_for(os, *done, 1).await.during("barrier")?;
    }
    let span = os.now().since(start);
    let after = os.vmstat().await.during("vmstat")?;
    os.set(leave, 1).during("barrier")?;
    os.cancel(leave).await;
    Ok(Window { counters: after.since(&before), gauges: std::collections::BTreeMap::new(), span })
}

fn task_outcome<O: Os>(os: &O, member: MemberOutcome, rusage: Rusage) -> TaskOutcome {
    let now = os.now();
    let start = member.phases.iter().map(|phase| phase.start).min().unwrap_or(now);
    let end = member.phases.iter().map(|phase| phase.end).max().unwrap_or(now);
    let mut outcome = TaskOutcome::starting(start, rusage);
    outcome.end = end;
    outcome.part = Some(member.process.clone());
    outcome.member = Some(member);
    outcome
}
