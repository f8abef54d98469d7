//! Linux: include/linux/mmap_lock.h, mm/mmap_lock.c (v6.1): which operation holds the mmap lock of its address space, and how.
//!
//! A step's effects happen at its start and its price is paid after: the lock is held until the turn of the CPU at the end of
//! the step, so that others find it in the right state at each instant.

use memory::{
    cost::{Cause, Work},
    cx::Cx,
    frame::SpaceId,
};
use units::{CpuId, Picos, Time};

use crate::{
    QUANTUM,
    ids::{KernelId, TaskId},
    kernel::Kernel,
    runqueue::Enqueue,
    rwsem::{Mode, Outcome, Told, Wish},
    sched::LetGo,
    task::{Task, TaskState},
    world::World,
};

/// An operation that ends later than this ends within no step of another CPU that begins now.
const FAR: Picos = Picos(2 * QUANTUM.0);

impl World {
    /// Takes the lock that the next step of a task needs, unless the task holds it since the last step. Returns false if the
    /// task has to wait: its CPU is then free for others, unless it spins.
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

    /// Takes a lock for the running task of a CPU, or makes the task wait and returns false.
    #[inline(never)]
    pub(crate) fn acquire(&mut self, id: TaskId, cpu: CpuId, mode: Mode) -> bool {
        let Self { kernels, tasks, cpus, .. } = self;
        let kernel = tasks[id.0 as usize].kernel;
        let Kernel { mm, locks, .. } = &mut kernels[kernel];
        let rules = mm.memory.variant().mmap_lock;
        let space = tasks[id.0 as usize].lock_of;
        let now = cpus[cpu.0 as usize].clock;
        let runs = |task: TaskId| cpus[tasks[task.0 as usize].cpu.0 as usize].running == Some(task);
        let lock = &mut locks[space.0 as usize];
        let (outcome, told) = lock.acquire(Wish { task: id, mode, now }, rules, runs);
        if self.why.is_some() && outcome != Outcome::Held {
            self.name_holder(id, kernel, space);
        }
        let Self { tasks, cpus, .. } = self;
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
                // A task with others waiting for its CPU looks up from spinning at the next tick.
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
        // The task's wait begins after the task has woken others.
        let task = &mut self.tasks[id.0 as usize];
        if task.waits_for_lock() {
            task.lock_since = self.cpus[cpu.0 as usize].clock;
        }
        outcome == Outcome::Held
    }

    /// Notes who holds the lock that a task begins to wait for, and what the holder does.
    #[cold]
    fn name_holder(&mut self, id: TaskId, kernel: KernelId, space: SpaceId) {
        let holder = self.kernels[kernel].locks[space.0 as usize].holder();
        let holds = |task: &Task| task.holds.is_some() && (task.kernel, task.lock_of) == (kernel, space);
        let of_lock = (0..).zip(&self.tasks).filter(|(n, task)| *n != id.0 && holds(task)).map(|(n, _)| TaskId(n));
        let readers: Vec<TaskId> = if let Err(1..) = holder { of_lock.take(2).collect() } else { Vec::new() };
        let text = match (holder, &*readers) {
            (Ok(writer), _) => self.name_and_work(writer),
            (Err(count), [reader, ..]) => {
                let others = if count > 1 { format!(" and {} more readers", count - 1) } else { String::new() };
                format!("{}{others}", self.name_and_work(*reader))
            }
            (Err(count), []) => format!("{count} readers"),
        };
        if let Some(why) = &mut self.why {
            why.finds_held(id, || text);
        }
    }

    /// Up to when a step may go: if its task holds a lock that others want, or may want within the step, only as far as it must.
    /// A range of faults takes the lock for each fault, and a waiter takes it at the first release.
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

    /// Notes, after a step, whether the task's operation will leave mappings unchanged for some quanta yet, at the pace of this
    /// step. `before` is the work that was left before it. Only asked about tasks that share their address space.
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

    /// Does at the end of a step what it has left to do with the lock. Returns true if waking others took time, so that other
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

    /// Releases a lock where that takes time, or others are to be woken.
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

    /// Notes, at the end of a task's step, what is to be done with the lock. `keeps`: the next step needs it.
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
                // Half of a trap, in and out, and the access itself are outside the hold (`do_user_addr_fault`).
                let outside = Picos(prices.of(Work::Trap).0 / 2) + prices.of(Work::UserTouch);
                after = outside.min(cpu.clock.since(start));
                cpu.clock = Time(cpu.clock.0 - after.0);
            }
            cpu.lets_go = Some((id, LetGo::Unlock { after }));
        } else if mode == Mode::Write && operation.is_downgraded() && kernel.variant().munmap_downgrades {
            cpu.lets_go = Some((id, LetGo::Downgrade));
        }
    }

    /// Releases a task's lock.
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

    /// Turns a write hold into a read hold, which lets readers in.
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

    /// Wakes others for the running task of a CPU, which pays for each wake-up (`wake_up_q`).
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

    /// Charges the running task of a CPU for waking another one; returns when that is done.
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

    /// Lets a task that waits for a lock go on: it has the lock, or tries again.
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
            if let Some(why) = &mut self.why {
                why.waited_for_lock(id, (since, until), Cause::MmapLock);
            }
            if self.spans.is_some() {
                self.note_wait(id, false);
            }
            self.cpus[cpu.0 as usize].ready(cpu, &mut self.clock);
        } else {
            // A task that ran ahead of the release came too late to have to wait.
            let at = at.max(since);
            task.wait(since, at, Cause::MmapLock);
            if let Some(why) = &mut self.why {
                why.waited_for_lock(id, (since, at), Cause::MmapLock);
            }
            if self.spans.is_some() {
                self.note_wait(id, true);
            }
            self.wake(id, at, Enqueue::Woken);
        }
    }

    /// Ends a task's spinning after the longest time, unless it spins no more or began anew.
    pub(crate) fn spin_timer(&mut self, id: TaskId, at: Time) {
        let task = &self.tasks[id.0 as usize];
        if task.is_spinning && task.spins_until == Some(at) {
            self.kernels[task.kernel].locks[task.lock_of.0 as usize].end_of_spinning(id, at);
            self.go_on(id, at);
        }
    }

    /// Checks, for the task that spins on a CPU, whether another task shall run there.
    pub(crate) fn look_up_from_spinning(&mut self, cpu: CpuId, at: Time) {
        let running = self.cpus[cpu.0 as usize].running.expect("a CPU spins for its task");
        self.go_on(running, at);
    }

    /// Stops the spinning of a task that loses its CPU: it will begin anew, and does not hold up other spinners.
    pub(crate) fn stop_spinning(&mut self, id: TaskId, cpu: CpuId) {
        let task = &self.tasks[id.0 as usize];
        let space = task.lock_of;
        // Most kernel threads hold no such lock.
        if let Some(lock) = self.kernels[task.kernel].locks.get_mut(space.0 as usize) {
            let told = lock.leave(id);
            self.tell(space, &told, cpu);
        }
    }

    /// Makes tasks that spin on the owner of locks sleep, as the owner stops running.
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
