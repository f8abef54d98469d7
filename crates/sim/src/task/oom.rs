//! Linux: __oom_kill_process() in mm/oom_kill.c, and what SIGKILL does to a task in the kernel (v6.1).
//! Differs: the first task of a run is spared, as it stands for the shell that started the benchmark, and so is the memory of
//! its process; tasks that wait for a lock or a device are not woken early.

use memory::frame::SpaceId;
use units::{Errno, Time};

use crate::{
    ids::{KernelId, MAIN, TaskId},
    task::{Answer, Task, TaskState},
    world::World,
};

/// The reason that waiters for such a task are given.
const REASON: &str = "out of memory: killed by signal 9 (SIGKILL)";

impl World {
    /// Ends the tasks of a process that a kernel's OOM killer has chosen.
    pub(crate) fn oom_kill(&mut self, kernel: KernelId, space: SpaceId, at: Time) {
        self.lose_guest_of(kernel, space, at);
        let is_its = |(_, task): &(u32, &Task)| {
            (task.kernel, task.space) == (kernel, space) && !matches!(task.state, TaskState::Ended)
        };
        let ids: Vec<TaskId> = (0..).zip(&self.tasks).filter(is_its).map(|(id, _)| TaskId(id)).collect();
        for id in ids {
            self.kill(id, at);
        }
        let main = &self.tasks[MAIN.0 as usize];
        if (main.kernel, main.space) == (kernel, space) {
            // The first task's memory stays; nobody shall wait for it.
            self.kernels[kernel].mm.spare_from_oom(space);
        }
    }

    /// Marks a task so that it ends at the next point where the kernel checks for signals; one that sleeps in user code wakes
    /// up.
    fn kill(&mut self, id: TaskId, at: Time) {
        if id == MAIN {
            return;
        }
        let task = &mut self.tasks[id.0 as usize];
        task.kill(REASON);
        task.supply.open_reserves();
        if matches!(task.state, TaskState::Blocked) {
            task.sleeps_until = None;
            self.leave_barriers(id);
            self.answer(id, Answer::Unit(Err(Errno::CANCELED)), at);
        }
    }

    /// Whether a task was killed, so that its user half never runs again.
    pub(crate) fn is_killed(&self, id: TaskId) -> bool {
        self.tasks[id.0 as usize].is_dying
    }

    fn leave_barriers(&mut self, id: TaskId) {
        for meeting in &mut self.meetings {
            meeting.waiting.retain(|waiting| *waiting != id);
        }
    }
}
