//! A process of a service: its phases in order.

use os::{Barrier, Os, Rusage};
use serde::{Deserialize, Serialize};
use units::{Bytes, Errno, Picos};

use super::{
    copies, crew,
    operations::{Member, Signals, settle, whole_pages},
    phase::{count, wait_for, wait_for_phase},
    plan::{Action, Phase, Process, Service},
};
use crate::{
    conditions::Policy,
    meet::{Meet, TaskError},
    member::{MemberOutcome, PhaseOutcome},
};

/// The entry of a process of a service.
pub const PROCESS_ENTRY: &str = "service-process";

/// Parameters of a process; they cross a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessParams {
    pub(super) service: Service,
    pub(super) process: u32,
    pub(super) copy: u32,
    pub(super) seed: u64,
    pub(super) signals: Signals,
    pub(super) meet: Meet,
    /// The process has done its work.
    pub(super) done: Barrier,
    /// The counters have been read.
    pub(super) leave: Barrier,
}

/// One process, from its start to the end of the run.
pub async fn process<O: Os>(os: O, with: ProcessParams) -> Result<(MemberOutcome, Rusage), TaskError> {
    let (meet, done, leave) = (with.meet, with.done, with.leave);
    let total = os.memory();
    let ProcessParams { service, process, copy, seed, signals, .. } = with;
    let mut member = Member::new(service, (process, copy), seed, signals, total);
    let worked = work(&os, &mut member, meet).await;
    let ended = count(&os, member.signals.ended[process as usize], member.process().copies).await;
    let told = count(&os, done, 1).await;
    let (phases, rusage) = worked?;
    ended.and(told)?;
    wait_for(&os, leave, 1).await?;
    // Memory of the process goes with it.
    let process = member.process().name.clone();
    Ok((MemberOutcome { process, copy, killed: false, phases }, rusage))
}

async fn work<O: Os>(os: &O, member: &mut Member, meet: Meet) -> Result<(Vec<PhaseOutcome>, Rusage), Errno> {
    let of = member.process().clone();
    settle(os, member, 0).await?;
    if of.policy != Policy::Default {
        os.set_mempolicy(&of.policy.of(&os.nodes())).await?;
    }
    os.arrive(meet.ready).await?;
    os.arrive(meet.start).await?;
    if let Some(event) = of.after {
        wait_for_phase(os, member, event).await?;
    }
    if of.start > Picos(0) {
        os.sleep(of.start).await;
    }
    let mut outcomes = Vec::new();
    let mut rusage = Rusage::default();
    let mut left = &groups(&of)[..];
    while let Some(group) = left.first() {
        let phase = &of.phases[group.start];
        let forks = |index: usize| matches!(of.phases[index].action, Action::Fork(_));
        if forks(group.start) {
            outcomes.push(copies::save_in_turn(os, member, phase).await?);
            left = &left[1..];
        } else if group.clone().any(forks) {
            outcomes.extend(copies::beside(os, member, group.clone(), &mut rusage).await?);
            left = &left[1..];
        } else {
            let together = left.iter().take_while(|group| keeps_memory(&of, group)).count().max(1);
            outcomes.extend(crew::work(os, member, &left[..together], &mut rusage).await?);
            left = &left[together..];
        }
    }
    Ok((outcomes, rusage))
}

/// Phases, each with those that run beside it.
fn groups(of: &Process) -> Vec<std::ops::Range<usize>> {
    let mains: Vec<usize> = (0..of.phases.len()).filter(|index| !of.phases[*index].is_beside()).collect();
    let ends = mains.iter().skip(1).copied().chain([of.phases.len()]);
    mains.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Whether the process has the same memory before a group and behind it, so that the same threads go on with the group behind it.
fn keeps_memory(of: &Process, group: &std::ops::Range<usize>) -> bool {
    let keeps = |phase: &Phase| {
        matches!(
            phase.action,
            Action::Access(_) | Action::Read { .. } | Action::Write { .. } | Action::Exec(_) | Action::Compute(_)
        )
    };
    let is_beside = |phase: &Phase| keeps(phase) || matches!(phase.action, Action::Allocate { .. }) && phase.beside;
    keeps(&of.phases[group.start]) && of.phases[group.start + 1..group.end].iter().all(is_beside)
}

/// The files that a process reads, made before the start: written to their disk, or holes.
pub(super) async fn prepare<O: Os>(os: &O, service: &Service, total: Bytes) -> Result<(), Errno> {
    for (process, of) in (0..).zip(&service.processes) {
        for copy in 0..of.copies {
            // Names are made by a member, which needs no signals for that.
            let signals = Signals { phases: Vec::new(), ended: Vec::new() };
            let member = Member::new(service.clone(), (process, copy), 0, signals, total);
            for phase in &of.phases {
                let Action::Read { file: size, written, .. } = phase.action else { continue };
                let file = os.create(&member.file_name(phase, "read")).await?;
                let size = whole_pages(size.of(total));
                if written {
                    os.write_blocks(file, Bytes(0), size, Bytes::mib(1)).await?;
                    os.fsync(file).await?;
                } else {
                    os.truncate(file, size).await?;
                }
                os.close(file).await?;
            }
        }
    }
    Ok(())
}
