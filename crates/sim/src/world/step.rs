//! One step of an operation, or of the memory that it has asked for; and for tests, whose every frame is after it.

#[cfg(test)]
use mm::ControlId;
use mm::{
    Mm, SpaceId, Spaces,
    alloc::slow::Supply,
    cost::Cx,
    step::{Step, Wait},
};
use units::{Bytes, Time};

use crate::operation::{Operation, Progress};
#[cfg(test)]
use crate::{
    task::{Task, TaskId, TaskState},
    world::World,
};

/// Does a task that has taken this step hold the lock of its address space until its next one?
pub(super) fn keeps_lock(progress: &Progress, operation: &Operation, supply: &Supply) -> bool {
    match progress {
        Progress::More => supply.is_busy() || operation.keeps_lock(),
        // A fault that waits for a device lets others have the address space, and begins again.
        Progress::Block(Wait::Io { .. }) => false,
        Progress::Block(_) => true,
        _ => false,
    }
}

/// Does a task that is being killed end before this step? It does where signals are looked for: between two accesses, not
/// inside of a fault.
pub(super) fn gives_up(is_dying: bool, operation: &Operation, supply: &Supply) -> bool {
    is_dying && operation.may_be_killed() && !operation.is_in_fault() && !supply.is_busy()
}

/// What an operation works on.
pub(super) struct Memory<'a> {
    pub(super) mm: &'a mut Mm,
    pub(super) spaces: &'a mut Spaces,
    pub(super) left: &'a mut [Bytes],
}

/// One step of an operation, or of the slow path of an allocation that it has asked for.
pub(super) fn advance(
    memory: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
    horizon: Time,
) -> Progress {
    let Memory { mm, spaces, left } = memory;
    if supply.is_busy() {
        return match supply.step(mm, spaces, cx) {
            Step::Block(wait) => Progress::Block(wait),
            Step::More | Step::Done(()) => Progress::More,
        };
    }
    supply.lend(cx);
    let progress = operation.step_file(mm, spaces, cx, horizon).unwrap_or_else(|| {
        let space = spaces.get_mut(id).expect("a live task has an address space");
        operation.step(mm, space, cx, horizon, &mut left[id.0 as usize])
    });
    let space = spaces.get_mut(id).expect("a live task has an address space");
    if supply.settle(mm, cx) {
        return Progress::More;
    }
    match progress {
        Progress::Killed(_) => operation.abort(mm, space, cx),
        Progress::Exited => spaces.take(id).end(mm, cx),
        Progress::More | Progress::Block(_) | Progress::Done(_) | Progress::Forked(_) => {}
    }
    progress
}

/// A test ends the task in the middle of its operation.
pub(super) fn kill(
    Memory { mm, spaces, .. }: Memory<'_>,
    (id, operation, supply): (SpaceId, &mut Operation, &mut Supply),
    cx: &mut Cx<'_>,
) -> Progress {
    supply.abort(mm, spaces, cx);
    let space = spaces.get_mut(id).expect("a live task has an address space");
    operation.abort(mm, space, cx);
    Progress::Killed("killed by a test")
}

/// The frames of a world, and whose they are.
#[cfg(test)]
impl World {
    pub(crate) fn check(&self) {
        mm::check::walk_files(&self.mm).unwrap();
        let children = self.tasks.iter().filter_map(|task| match &task.state {
            TaskState::Kernel(operation) | TaskState::LockWait(operation) | TaskState::Sleeping(operation, _) => {
                operation.child()
            }
            _ => None,
        });
        let spaces = self.spaces.iter().map(|(_, space)| space).chain(children).collect();
        let holdings = |(id, task): (u32, &Task)| match &task.state {
            TaskState::Kernel(operation) | TaskState::LockWait(operation) | TaskState::Sleeping(operation, _) => {
                let space = self.spaces.get(task.space).expect("a live task has an address space");
                let mut holdings = operation.holdings(space);
                holdings.add(task.supply.holdings());
                Some((ControlId(id), holdings))
            }
            _ => None,
        };
        let daemons = self.kswapds.iter().zip(self.mm.kswapds());
        let kswapds = daemons.map(|(id, kswapd)| (ControlId(id.0), kswapd.holdings()));
        let daemon = |(node, id): (usize, &TaskId)| (ControlId(id.0), self.mm.kcompactd_holdings(node));
        let khugepaged = self.khugepaged.iter().map(|id| (ControlId(id.0), self.mm.khugepaged.holdings()));
        let daemons = kswapds.chain(self.kcompactds.iter().enumerate().map(daemon)).chain(khugepaged);
        let controls = (0..).zip(&self.tasks).filter_map(holdings).chain(daemons).collect();
        mm::check::walk(&self.mm).unwrap();
        mm::check::walk_owners(&self.mm, &mm::check::Owners { spaces, controls }).unwrap();
    }
}
