//! Linux: khugepaged() and its use of mmap_lock in mm/khugepaged.c (v6.1).
//!
//! The thread's work is in `mm`, which tells for each step of a kernel thread which mmap lock it needs, and how. Here the thread
//! waits for that lock in the lock's queue, keeps it until a step needs another one, and so keeps faults and system calls of
//! that process out.

use memory::news::Daemon;
use mm::{thp::khugepaged::NeedsLock, whole::daemon::Row};
use units::{CpuId, Picos};

use crate::{
    ids::{NO_SPACE, TaskId},
    kernel::Kernel,
    rwsem::Mode,
    sched::LetGo,
    world::World,
};

impl World {
    /// Takes the lock that the next step of a kernel thread needs, unless it holds it. Some(false): the step goes on without, as
    /// it needs none or only tried. None: the thread waits.
    pub(super) fn lock_for_daemon(&mut self, id: TaskId, cpu: CpuId, daemon: Daemon) -> Option<bool> {
        let task = &mut self.tasks[id.0 as usize];
        let Kernel { mm, spaces, locks, .. } = &mut self.kernels[task.kernel];
        let Some(needs) = (Row::of(daemon).needs)(mm, spaces) else { return Some(false) };
        if task.holds.is_some() {
            return Some(true);
        }
        let (NeedsLock::TryRead(space) | NeedsLock::Read(space) | NeedsLock::Write(space)) = needs;
        task.lock_of = space;
        let mode = match needs {
            NeedsLock::TryRead(_) => {
                let is_held = locks[space.0 as usize].try_read(mm.memory.variant().mmap_lock);
                task.holds = is_held.then_some(Mode::Read);
                return Some(is_held);
            }
            NeedsLock::Read(_) => Mode::Read,
            NeedsLock::Write(_) => Mode::Write,
        };
        self.acquire(id, cpu, mode).then_some(true)
    }

    /// Releases the lock at the end of a step, unless the next step needs it. `is_over`: the thread leaves its CPU.
    pub(super) fn end_hold_of_daemon(&mut self, id: TaskId, cpu: CpuId, daemon: Daemon, is_over: bool) {
        let task = &mut self.tasks[id.0 as usize];
        let Kernel { mm, spaces, .. } = &self.kernels[task.kernel];
        let needs = (Row::of(daemon).needs)(mm, spaces);
        let Some(mode) = task.holds else {
            task.lock_of = NO_SPACE;
            return;
        };
        let keeps = match needs {
            None => false,
            Some(NeedsLock::TryRead(space) | NeedsLock::Read(space)) => mode == Mode::Read && space == task.lock_of,
            Some(NeedsLock::Write(space)) => mode == Mode::Write && space == task.lock_of,
        };
        if !keeps {
            self.cpus[cpu.0 as usize].lets_go = Some((id, LetGo::Unlock { after: Picos(0) }));
            if is_over {
                self.let_go(cpu);
            }
        }
    }
}
