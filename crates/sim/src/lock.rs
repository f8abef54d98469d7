//! Linux: include/linux/mmap_lock.h, mm/mmap_lock.c (v6.1): which operation holds the lock of its address space, and how.
//!
//! A step's effects happen at its start and its price is paid after: the lock is held until the turn of the CPU that comes at
//! the end of the step, so that others find it as it is at each instant.

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    frame::SpaceId,
};
use units::{CpuId, Picos, Time};

use crate::{
    QUANTUM,
    ids::TaskId,
    kernel::Kernel,
    runqueue::Enqueue,
    rwsem::{Mode, Outcome, Told, Wish},
    sched::LetGo,
    task::TaskState,
    world::World,
};

/// The end of an operation that is as far away is in no step of another CPU that begins now.
const FAR: Picos = Picos(2 * QUANTUM.0);

impl World {
    /// Takes the lock that the next step of a task needs, unless it holds it from the last one. False when the task has to
    /// wait: its CPU is then free for others, unless it spins.
    #[inline]
    pub(crate) fn lock(&mut self, id: TaskId, cpu: CpuId) -> bool {
        let Self { kernels, tasks, .. } = self;
        let task = &mut tasks[id.0 as usize];
        let Kernel { mm, spaces, locks, .. } = &mut kernels[task.kernel];
        let TaskState::Kernel(operation) = &task.state else {
            unreachable!("only operations take locks");
        };
        if task.holds.is_some() {
            return true;
        }
        let memory = spaces.get(task.space).expect("a live task has an address space");
        let Some(mode) = operation.needs(memory, mm.memory.variant()) else { return true };
        if mode == Mode::Read && locks[task.lock_of.0 as usize].read_alone(mm.memory.variant().mmap_lock) {
            task.holds = Some(mode);
            return true;
        }
        self.acquire(id, cpu, mode)
    }

    /// Takes a lock for the running task of a CPU, or makes it wait: false.
    #[inline(never)]
    pub(crate) fn acquire(&mut self, id: TaskId, cpu: CpuId, mode: Mode) -> bool {
        let Self { kernels, tasks, cpus, .. } = self;
        let Kernel { mm, locks, .. } = &mut kernels[tasks[id.0 as usize].kernel];
        let rules = mm.memory.variant().mmap_lock;
        let space = tasks[id.0 as usize].lock_of;
        let now = cpus[cpu.0 as usize].clock;
        let runs = |task: TaskId| cpus[tasks[task.0 as usize].cpu.0 as usize].running == Some(task);
        let lock = &mut locks[space.0 as usize];
        let (outcome, told) = lock.acquire(Wish { task: id, mode, now }, rules, runs);
        let task = &mut tasks[id.0 as usize];
        task.spins_until = None;
        match outcome {
            Outcome::Held => task.holds = Some(mode),
            Outcome::Spin(_) | Outcome::Sleep => {
                task.state = match std::mem::replace(&mut task.state, TaskState::Blocked) {
                    TaskState::Kernel(operation) => TaskState::LockWait(operation),
                    TaskState::Daemon(daemon) => TaskState::DaemonLockWait(daemon),
                    other => unreachable!("{other:?} takes no lock"),
                };
                task.lock_since = now;
                task.is_spinning = outcome != Outcome::Sleep;
                // One that others wait for on its CPU looks up at the next tick.
                let cpu = &cpus[cpu.0 as usize];
                let tick = cpu.has_waiting().then_some(cpu.next_tick.max(now + Picos(1)));
                if let Outcome::Spin(until) = outcome
                    && let Some(until) = until.into_iter().chain(tick).min()
                {
                    task.spins_until = Some(until);
                    self.clock.arm(until, id);
                }
            }
        }
        self.tell(space, &told, cpu);
        // It begins to wait when it has woken others.
        let task = &mut self.tasks[id.0 as usize];
        if task.waits_for_lock() {
            task.lock_since = self.cpus[cpu.0 as usize].clock;
        }
        outcome == Outcome::Held
    }

    /// Up to when a step may go: not beyond what it must do, where its task holds a lock that others want, or that somebody may
    /// want within the step. A range of faults takes the lock for each of them, and who wants it acts on the first that lets go.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every turn asks, and most need no more than its first answers")]
    pub(crate) fn horizon_under_lock(&self, id: TaskId, cpu: CpuId, horizon: Time) -> Time {
        let task = &self.tasks[id.0 as usize];
        if task.holds.is_none() {
            return horizon;
        }
        let (kernel, space) = (&self.kernels[task.kernel], task.space.0 as usize);
        let others = kernel.running_in[space] - 1;
        let settled = kernel.settled_in[space] - u32::from(task.is_settled);
        let is_wanted = settled < others || kernel.locks[space].is_wanted();
        if is_wanted { self.cpus[cpu.0 as usize].clock } else { horizon }
    }

    /// A task has taken a step: will its operation leave mappings as they are for some quanta yet, at the pace of this step? Of
    /// what it went through, `before` was left. Nobody asks about a task that is alone in its address space.
    #[inline]
    pub(crate) fn note_pace(&mut self, id: TaskId, (before, start): (u64, Time), end: Time, goes_on: bool) {
        let task = &mut self.tasks[id.0 as usize];
        let TaskState::Kernel(operation) = &task.state else { unreachable!("a step of an operation ends") };
        let after = if goes_on { operation.left() } else { 0 };
        let passed = before.saturating_sub(after).max(1);
        let is_settled = after.saturating_mul(end.since(start).0) > passed.saturating_mul(FAR.0);
        let count = &mut self.kernels[task.kernel].settled_in[task.space.0 as usize];
        *count = *count + u32::from(is_settled) - u32::from(task.is_settled);
        task.is_settled = is_settled;
    }

    /// At the end of a step: does what it has left to do with the lock. True when waking others took time, so that other
    /// CPUs may come first now.
    #[inline]
    pub(crate) fn let_go(&mut self, cpu: CpuId) -> bool {
        let Self { kernels, cpus, tasks, .. } = self;
        let here = &mut cpus[cpu.0 as usize];
        let Some((id, what)) = here.lets_go.take() else { return false };
        let task = &mut tasks[id.0 as usize];
        if what == (LetGo::Unlock { after: Picos(0) })
            && let Some(mode) = task.holds
            && kernels[task.kernel].locks[task.lock_of.0 as usize].release_alone(mode)
        {
            task.holds = None;
            return false;
        }
        self.let_go_of(id, cpu, what)
    }

    /// Lets go of a lock where that takes time, or others are told.
    #[inline(never)]
    fn let_go_of(&mut self, id: TaskId, cpu: CpuId, what: LetGo) -> bool {
        let before = self.cpus[cpu.0 as usize].clock;
        match what {
            LetGo::Unlock { after } => {
                self.unlock(id, cpu);
                let clock = &mut self.cpus[cpu.0 as usize].clock;
                *clock = *clock + after;
            }
            LetGo::Downgrade => self.downgrade(id, cpu),
        }
        self.cpus[cpu.0 as usize].clock > before
    }

    /// A step of a task has come to its end: remembers what is to be done with the lock. `keeps`: the next step
    /// needs it.
    #[inline]
    pub(crate) fn end_hold(&mut self, id: TaskId, cpu: CpuId, keeps: bool, start: Time) {
        let task = &self.tasks[id.0 as usize];
        let Some(mode) = task.holds else { return };
        let TaskState::Kernel(operation) = &task.state else { unreachable!("a step of an operation ends") };
        let (kernel, prices) = (&self.kernels[task.kernel], self.prices.on(&self.cpus, cpu));
        let cpu = &mut self.cpus[cpu.0 as usize];
        if !keeps {
            let mut after = Picos(0);
            if operation.is_touch() && kernel.locks[task.space.0 as usize].is_contended() {
                // Half of a trap, in and out, and what user code does are before and after the hold (`do_user_addr_fault`).
                let outside = Picos(prices.of(Work::Trap).0 / 2) + prices.of(Work::UserTouch);
                after = outside.min(cpu.clock.since(start));
                cpu.clock = Time(cpu.clock.0 - after.0);
            }
            cpu.lets_go = Some((id, LetGo::Unlock { after }));
        } else if mode == Mode::Write && operation.is_downgraded() && kernel.variant().munmap_downgrades {
            cpu.lets_go = Some((id, LetGo::Downgrade));
        }
    }

    /// Lets go of a task's lock.
    fn unlock(&mut self, id: TaskId, cpu: CpuId) {
        let now = self.cpus[cpu.0 as usize].clock;
        let task = &mut self.tasks[id.0 as usize];
        let Kernel { mm, locks, .. } = &mut self.kernels[task.kernel];
        if let Some(mode) = task.holds.take() {
            let space = task.lock_of;
            let told = locks[space.0 as usize].release(mode, now, mm.memory.variant().mmap_lock);
            self.tell(space, &told, cpu);
        }
    }

    /// A writer lets readers in.
    fn downgrade(&mut self, id: TaskId, cpu: CpuId) {
        let now = self.cpus[cpu.0 as usize].clock;
        let task = &mut self.tasks[id.0 as usize];
        let Kernel { mm, locks, .. } = &mut self.kernels[task.kernel];
        if task.holds == Some(Mode::Write) {
            task.holds = Some(Mode::Read);
            let space = task.space;
            let told = locks[space.0 as usize].downgrade(now, mm.memory.variant().mmap_lock);
            self.tell(space, &told, cpu);
        }
    }

    /// The running task of a CPU tells others; it pays for waking them, one after the other (`wake_up_q`).
    #[inline]
    fn tell(&mut self, space: SpaceId, told: &Told, cpu: CpuId) {
        if !told.is_nothing() {
            self.tell_all(space, told, cpu);
        }
    }

    fn tell_all(&mut self, space: SpaceId, told: &Told, cpu: CpuId) {
        if let Some(task) = told.tries {
            self.go_on(task, self.cpus[cpu.0 as usize].clock);
        }
        for task in told.woken.into_iter().chain(told.granted.iter().copied()) {
            debug_assert_eq!(self.tasks[task.0 as usize].lock_of, space, "it waits for this lock");
            if told.granted.contains(&task) {
                self.tasks[task.0 as usize].holds = Some(Mode::Read);
            }
            if self.tasks[task.0 as usize].waits_for_lock() {
                let at = self.pay_for_waking(cpu, Cause::MmapLock);
                self.go_on(task, at);
            }
        }
    }

    /// The running task of a CPU pays for waking one other, for a cause; when it has done so.
    pub(crate) fn pay_for_waking(&mut self, cpu: CpuId, cause: Cause) -> Time {
        let waker = self.cpus[cpu.0 as usize].running.expect("a task wakes others while it runs");
        let prices = self.prices.on(&self.cpus, cpu);
        let kernel = &mut self.kernels[self.tasks[waker.0 as usize].kernel];
        let (number, counters) = (kernel.number(cpu), &mut kernel.counters);
        let mut cx = Cx::new(number, self.cpus[cpu.0 as usize].clock, prices, counters);
        cx.because(cause, |cx| cx.work(Work::WakeOther, 1));
        let now = cx.now();
        self.tasks[waker.0 as usize].spent.add(cx.spent());
        self.cpus[cpu.0 as usize].clock = now;
        now
    }

    /// A task that waits for a lock has it, or tries again.
    fn go_on(&mut self, id: TaskId, at: Time) {
        let task = &mut self.tasks[id.0 as usize];
        if !task.waits_for_lock() {
            // It was told already, and has not run yet.
            return;
        }
        task.state = match std::mem::replace(&mut task.state, TaskState::Blocked) {
            TaskState::LockWait(operation) => TaskState::Kernel(operation),
            TaskState::DaemonLockWait(daemon) => TaskState::Daemon(daemon),
            other => unreachable!("{other:?} waits for no lock"),
        };
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

    /// A task has spun for as long as it may, unless it spins no more or anew.
    pub(crate) fn spin_timer(&mut self, id: TaskId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        if task.is_spinning && task.spins_until == Some(at) {
            self.kernels[task.kernel].locks[task.lock_of.0 as usize].end_of_spinning(id, at);
            self.go_on(id, at);
        }
    }

    /// The task that spins on a CPU looks whether another one shall run there.
    pub(crate) fn look_up_from_spinning(&mut self, cpu: CpuId, at: Time) {
        let running = self.cpus[cpu.0 as usize].running.expect("a CPU spins for its task");
        self.go_on(running, at);
    }

    /// A task has no CPU any more: if it spun for the lock, it will begin anew, and others who spin are not kept by it.
    pub(crate) fn stop_spinning(&mut self, id: TaskId, cpu: CpuId) {
        let task = &self.tasks[id.0 as usize];
        let space = task.lock_of;
        // Most kernel threads have nothing to do with any.
        if let Some(lock) = self.kernels[task.kernel].locks.get_mut(space.0 as usize) {
            let told = lock.leave(id);
            self.tell(space, &told, cpu);
        }
    }

    /// A task that holds locks stops running: those who spin for it sleep from now on.
    pub(crate) fn stop_spinning_on(&mut self, owner: TaskId) {
        let task = &self.tasks[owner.0 as usize];
        let lock = &self.kernels[task.kernel].locks[task.lock_of.0 as usize];
        if !lock.is_written_by(owner) {
            return;
        }
        let at = self.cpus[task.cpu.0 as usize].clock;
        for spinner in lock.spinners().collect::<Vec<_>>() {
            self.go_on(spinner, at);
        }
    }
}
