//! Linux: include/linux/mmap_lock.h, mm/mmap_lock.c (v6.1): which operation holds the lock of its address space, and how.

use mm::cost::Cause;
use units::{CpuId, Time};

use crate::{
    runqueue::Enqueue,
    rwsem::{Mode, Outcome, Released},
    task::{SpaceId, TaskId, TaskState},
    world::World,
};

impl World {
    /// Takes the lock that the next step of a task needs, unless it holds it from the last one. False when the task has to
    /// wait: its CPU is then free for others, unless it spins.
    pub(crate) fn lock(&mut self, id: TaskId, cpu: CpuId) -> bool {
        let rules = *self.mm.variant();
        let Self { tasks, cpus, locks, spaces, .. } = self;
        let TaskState::Kernel(operation) = &tasks[id.0 as usize].state else {
            unreachable!("only operations take locks");
        };
        let space = tasks[id.0 as usize].space.0 as usize;
        let memory = spaces[space].as_ref().expect("a live task has an address space");
        let Some(mode) = operation.needs(memory, &rules) else { return true };
        if tasks[id.0 as usize].holds.is_some() {
            return true;
        }
        let now = cpus[cpu.0 as usize].clock;
        let runs = |task: TaskId| cpus[tasks[task.0 as usize].cpu.0 as usize].running == Some(task);
        match locks[space].acquire(id, mode, now, rules.mmap_lock, runs) {
            Outcome::Held(from) => {
                let task = &mut tasks[id.0 as usize];
                task.holds = Some(mode);
                // A step that has begun elsewhere holds it until its end: less than a quantum, and nobody sleeps for that.
                task.spin(now, from, Cause::MmapLock);
                cpus[cpu.0 as usize].clock = from;
                true
            }
            outcome => {
                let task = &mut tasks[id.0 as usize];
                let TaskState::Kernel(operation) = std::mem::replace(&mut task.state, TaskState::Blocked) else {
                    unreachable!("it was an operation above");
                };
                task.state = TaskState::LockWait(operation);
                task.lock_since = now;
                task.is_spinning = outcome == Outcome::Spin;
                false
            }
        }
    }

    /// Does a task hold a lock that others wait for, or that keeps others out? Then each of its steps is as short as it can be:
    /// a range of faults takes the lock for each of them, and who wants it acts on the first that lets go.
    pub(crate) fn is_lock_wanted(&self, id: TaskId) -> bool {
        let task = &self.tasks[id.0 as usize];
        task.holds.is_some() && self.locks[task.space.0 as usize].is_wanted()
    }

    /// Lets go of a task's lock at an instant.
    pub(crate) fn unlock(&mut self, id: TaskId, at: Time) {
        let rules = self.mm.variant().mmap_lock;
        let task = &mut self.tasks[id.0 as usize];
        if let Some(mode) = task.holds.take() {
            let space = task.space;
            let released = self.locks[space.0 as usize].release(mode, at, rules);
            self.hand_on(space, released, at);
        }
    }

    /// A writer lets readers in.
    pub(crate) fn downgrade(&mut self, id: TaskId, at: Time) {
        let rules = self.mm.variant().mmap_lock;
        let task = &mut self.tasks[id.0 as usize];
        if task.holds == Some(Mode::Write) {
            task.holds = Some(Mode::Read);
            let space = task.space;
            let released = self.locks[space.0 as usize].downgrade(at, rules);
            self.hand_on(space, released, at);
        }
    }

    fn hand_on(&mut self, space: SpaceId, released: Released, at: Time) {
        for reader in released.granted {
            self.tasks[reader.0 as usize].holds = Some(Mode::Read);
            let from = self.locks[space.0 as usize].granted_from(at);
            self.go_on(reader, from);
        }
        if let Some(task) = released.tries {
            self.go_on(task, at);
        }
    }

    /// A task that waits for a lock has it, or tries again.
    fn go_on(&mut self, id: TaskId, at: Time) {
        let task = &mut self.tasks[id.0 as usize];
        match std::mem::replace(&mut task.state, TaskState::Blocked) {
            TaskState::LockWait(operation) => {
                task.state = TaskState::Kernel(operation);
                let since = task.lock_since;
                if std::mem::take(&mut task.is_spinning) {
                    let cpu = task.cpu;
                    self.end_spin(cpu, at);
                    let until = self.cpus[cpu.0 as usize].clock;
                    self.tasks[id.0 as usize].spin(since, until, Cause::MmapLock);
                    self.cpus[cpu.0 as usize].ready(cpu, &mut self.clock);
                } else {
                    // One that ran ahead of who lets go came too late to have to wait.
                    let at = at.max(since);
                    task.wait(since, at, Cause::MmapLock);
                    self.wake(id, at, Enqueue::Woken);
                }
            }
            // It was told already, and has not run yet.
            other => task.state = other,
        }
    }

    /// A task that holds locks stops running: those who spin for it sleep from now on.
    pub(crate) fn stop_spinning_on(&mut self, owner: TaskId) {
        let task = &self.tasks[owner.0 as usize];
        let lock = &self.locks[task.space.0 as usize];
        if !lock.is_written_by(owner) {
            return;
        }
        let at = self.cpus[task.cpu.0 as usize].clock;
        for spinner in lock.spinners().collect::<Vec<_>>() {
            self.go_on(spinner, at);
        }
    }
}
