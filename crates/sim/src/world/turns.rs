//! Turns of the one order: which CPU or timer has the next, the current task's request, and the end of waits.

use memory::{
    cost::Cause,
    decision::Decision,
    frame::{Held, Holdings, SpaceId},
    step::Wait,
    tlb::Shootdowns,
};
use os::{Barrier, Placement};
use units::{CpuId, Errno, Time};

use super::World;
use crate::{
    clock::Next,
    ids::TaskId,
    run_hash::Mark,
    runqueue::{Enqueue, Nice},
    sched::Wakes,
    task::{
        Answer, Request, Slumber, Task, TaskState,
        operation::{Asker, Operation},
    },
};

/// The next work of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Poll this task's user half.
    Poll(TaskId),
    /// Drop this task's user half: the kernel has ended it.
    Drop(TaskId),
    /// Everything has come to its end.
    Over,
}

impl World {
    /// Creates a task, runnable from the current task's time on.
    pub(crate) fn create_task(&mut self, on: Placement, space: SpaceId) -> TaskId {
        let mut cpus = self.own_kernel().cpu_ids();
        let id = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
        let cpu = match on {
            Placement::Spread(index) => cpus.nth(index as usize % cpus.len()).expect("one of them"),
            Placement::Free => self.idlest_cpu(),
        };
        let kernel = self.own();
        self.kernels[kernel].mm.expose_to_oom(space);
        let from = if self.tasks.is_empty() { self.begin } else { self.now() };
        // The first task may run anywhere; tasks that are spread are pinned, as on the host.
        let is_free = self.tasks.is_empty() || on == Placement::Free;
        let allowed = if is_free { Vec::new() } else { vec![cpu] };
        let parent = self.tasks.get(self.current.0 as usize);
        let nice = parent.map_or_else(Nice::default, |parent| parent.nice_of_children);
        let wakes = parent.map_or_else(Wakes::default, |parent| parent.wakes);
        let mut task = Task::new(cpu, allowed, (kernel, space), nice);
        task.wakes = wakes;
        task.policy = parent.map_or_else(rules::mempolicy::Mempolicy::default, |parent| parent.policy);
        self.tasks.push(task);
        self.begin_to_balance(id, from);
        self.wake(id, from, Enqueue::New);
        id
    }

    /// Submits a request of the current task; its user half stops here.
    pub(crate) fn submit(&mut self, request: Request) {
        let task = self.current;
        let (at, cpu) = (self.now(), self.current().cpu);
        self.hash.fold(at, cpu, Mark::Begin, u64::from(task.0));
        self.tasks[task.0 as usize].state = match request {
            Request::Sleep(span) => {
                self.tasks[task.0 as usize].sleeps_until = Some(at + span);
                self.clock.arm(at + span, task);
                TaskState::Blocked
            }
            Request::Arrive(barrier) => self.arrive(task, barrier),
            Request::AwaitGuest => self.await_guest(task, at),
            Request::AwaitReports => self.await_reports(task, at),
            Request::Join(other) if matches!(self.tasks[other.0 as usize].state, TaskState::Ended) => {
                TaskState::Answered(Answer::Unit(Ok(())))
            }
            Request::Join(other) => {
                self.tasks[other.0 as usize].joiners.push(task);
                TaskState::Blocked
            }
            Request::SetAffinity(cpus) => self.set_affinity(task, &cpus, at),
            Request::SetMempolicy(policy) => self.set_mempolicy(task, &policy),
            Request::Fork if self.threads_of(self.current) > 1 => TaskState::Answered(Answer::Space(Err(Errno::INVAL))),
            operation => {
                let by = Asker { task, at, ticks: self.own_kernel().ticks, policy: self.current().policy };
                let task = &mut self.tasks[task.0 as usize];
                task.asked = Some((at, task.spent.total()));
                TaskState::Kernel(Operation::new(operation, by))
            }
        };
    }

    /// The answer to the current task's request, once there is one.
    ///
    /// # Panics
    /// When the time of the operation differs from the sum of its parts.
    pub(crate) fn take_answer(&mut self) -> Option<Answer> {
        let now = self.now();
        let task = &mut self.tasks[self.current.0 as usize];
        match std::mem::replace(&mut task.state, TaskState::User) {
            TaskState::Answered(answer) => {
                if let Some((from, spent)) = task.asked.take() {
                    // A test may have taken some time away from a part.
                    let parts = task.spent.total() - spent;
                    assert!(now.since(from) == parts || self.injector.done, "the parts of a latency sum to it");
                    self.operations += 1;
                }
                Some(answer)
            }
            other => {
                task.state = other;
                None
            }
        }
    }

    /// Lets a task arrive at a barrier. The last task wakes the others one after the other and pays for it (`futex_wake`,
    /// `wake_up_q`), so that they start one after the other. If they started at one instant, the numbers of their CPUs and
    /// tasks would decide which is first at a lock, the same in all seeds.
    fn arrive(&mut self, task: TaskId, barrier: Barrier) -> TaskState {
        let meeting = &mut self.meetings[barrier.id as usize];
        if meeting.cancelled {
            return TaskState::Answered(Answer::Unit(Err(Errno::CANCELED)));
        }
        if meeting.waiting.len() + 1 < meeting.parties as usize {
            meeting.waiting.push(task);
            return TaskState::Blocked;
        }
        let waiting = std::mem::take(&mut meeting.waiting);
        let cpu = self.tasks[task.0 as usize].cpu;
        for other in waiting {
            let at = self.pay_for_waking(cpu, Cause::RunQueue);
            self.answer(other, Answer::Unit(Ok(())), at);
        }
        TaskState::Answered(Answer::Unit(Ok(())))
    }

    /// Frees all tasks at a barrier with `ECANCELED`.
    pub(crate) fn cancel(&mut self, barrier: Barrier) {
        let at = self.now();
        let meeting = &mut self.meetings[barrier.id as usize];
        meeting.cancelled = true;
        for task in std::mem::take(&mut meeting.waiting) {
            self.answer(task, Answer::Unit(Err(Errno::CANCELED)), at);
        }
    }

    /// Ends the wait of a blocked task.
    pub(crate) fn answer(&mut self, task: TaskId, answer: Answer, at: Time) {
        // The task may have been killed while it waited.
        let TaskState::Blocked = self.tasks[task.0 as usize].state else { return };
        self.tasks[task.0 as usize].state = TaskState::Answered(answer);
        self.wake(task, at, Enqueue::Woken);
    }

    /// Sends requests of a step to the CPUs that ran a task of its address space meanwhile.
    #[inline]
    pub(crate) fn interrupt(&mut self, space: SpaceId, from: CpuId, asked: Shootdowns) {
        if asked.rounds > 0 {
            self.interrupt_all(space, from, asked);
        }
    }

    #[inline(never)]
    fn interrupt_all(&mut self, space: SpaceId, from: CpuId, asked: Shootdowns) {
        let sharers: Vec<usize> = self.sharers(space, from).collect();
        for other in sharers {
            self.cpus[other].asked.add(asked);
        }
    }

    /// Ends the current task, by itself or because the kernel ended it. The last task of a process first frees its memory, step
    /// by step.
    pub(crate) fn end(&mut self) {
        let id = self.current;
        let (kernel, space) = (self.current().kernel, self.current().space);
        self.tasks[id.0 as usize].state = TaskState::Ended;
        self.end_to_balance(id);
        let lives =
            |task: &Task| (task.kernel, task.space) == (kernel, space) && !matches!(task.state, TaskState::Ended);
        if self.tasks.iter().any(lives) {
            self.tell_joiners(id, self.now());
        } else {
            self.tasks[id.0 as usize].state = TaskState::Kernel(Operation::exit());
            self.kernels[kernel].spaces.get_mut(space).expect("it lives until then").is_exiting = true;
        }
    }

    /// Lets tasks go on that wait for the end of this one.
    pub(super) fn tell_joiners(&mut self, id: TaskId, at: Time) {
        for joiner in std::mem::take(&mut self.tasks[id.0 as usize].joiners) {
            self.answer(joiner, Answer::Unit(Ok(())), at);
        }
    }

    /// Ends the current task, which the kernel has killed: nobody shall wait for it.
    pub(crate) fn end_killed(&mut self) {
        self.lose_guest_with(self.current);
        self.cancel_all();
        self.end();
    }

    /// Frees all tasks at any barrier: one of them will never come.
    pub(crate) fn cancel_all(&mut self) {
        for id in 0..self.meetings.len() {
            let parties = self.meetings[id].parties;
            self.cancel(Barrier { id: u32::try_from(id).expect("barriers have 32-bit numbers"), parties });
        }
    }

    /// Takes turns of the order until one concerns a user half. The CPU that ran last is then put back by [`Self::settle`].
    pub(crate) fn turn(&mut self) -> Turn {
        // Bound: that of the run; each turn lets time pass, or ends a task's wait.
        loop {
            if self.why.is_some() && self.is_decided() {
                return Turn::Over;
            }
            let next = self.clock.next();
            if self.clock.is_overdue() && self.is_livelock(next) {
                return Turn::Over;
            }
            let turn = match next {
                Next::Nothing => Some(Turn::Over),
                Next::Timer { at, task } => {
                    self.waker = None;
                    if let Some(spans) = &mut self.spans {
                        spans.begin_turn(true);
                    }
                    self.timer(task, at);
                    None
                }
                Next::Cpu { cpu, clock, .. } if !self.begin_turn(cpu, clock) => None,
                Next::Cpu { cpu, clock, horizon } => {
                    self.sample_before(clock);
                    self.waker = Some(cpu);
                    if let Some(spans) = &mut self.spans {
                        spans.begin_turn(false);
                    }
                    if clock >= self.kernels[self.cpus[cpu.0 as usize].kernel].next_kick {
                        self.kick_idle(cpu, clock);
                    }
                    if self.push_away(cpu) {
                        continue;
                    }
                    if self.cpus[cpu.0 as usize].host_clears > 0 {
                        self.clear_in_host(cpu);
                        continue;
                    }
                    match self.run_on(cpu, horizon) {
                        Some(kills) => kills.then_some(Turn::Drop(self.current)),
                        None => self.run(cpu, horizon),
                    }
                }
            };
            if let Some(turn) = turn {
                return turn;
            }
        }
    }

    /// Handles a timer; does nothing if its task waits for something else by now.
    pub(super) fn timer(&mut self, task: TaskId, at: Time) {
        match self.tasks[task.0 as usize].state {
            TaskState::Blocked if self.tasks[task.0 as usize].sleeps_until == Some(at) => {
                self.tasks[task.0 as usize].sleeps_until = None;
                self.answer(task, Answer::Unit(Ok(())), at);
            }
            TaskState::LockWait(_) | TaskState::DaemonLockWait(_) => self.spin_timer(task, at),
            TaskState::Sleeping(_, slumber) if self.tasks[task.0 as usize].sleeps_until == Some(at) => {
                let is_for_disk = matches!(slumber.cause, Cause::Disk | Cause::Swap);
                self.waker = is_for_disk.then(|| self.disk_answers(self.tasks[task.0 as usize].cpu));
                self.end_sleep(task, at);
            }
            TaskState::Sleeping(..) => {}
            _ => self.daemon_timer(task, at),
        }
    }

    /// Takes a turn of a CPU; returns what the executor is to do in it, if anything.
    #[inline(never)]
    fn run(&mut self, cpu: CpuId, horizon: Time) -> Option<Turn> {
        if self.let_go(cpu) {
            self.cpus[cpu.0 as usize].ready(cpu, &mut self.clock);
            return None;
        }
        if self.leave_for_swap(cpu) {
            return None;
        }
        let task = self.schedule(cpu);
        if self.kernels[self.cpus[cpu.0 as usize].kernel].mm.balances_numa() {
            if self.leave_for_preferred(task, cpu) {
                return None;
            }
            self.numa_tick(task, cpu);
        }
        let horizon = self.horizon_of(cpu, horizon);
        self.current = task;
        match self.tasks[task.0 as usize].state {
            TaskState::Daemon(daemon) => self.step_daemon(task, cpu, daemon),
            TaskState::Kernel(_) => {
                if self.lock(task, cpu) {
                    let horizon = self.horizon_under_lock(task, cpu, horizon);
                    if self.step(task, cpu, horizon) {
                        return Some(Turn::Drop(task));
                    }
                }
            }
            _ if self.is_killed(task) => return Some(Turn::Drop(task)),
            _ => return Some(Turn::Poll(task)),
        }
        self.settle(cpu);
        None
    }

    /// Puts the current task's CPU back into the order, after its user half was polled.
    pub(crate) fn settle_current(&mut self) {
        self.gets_on(self.now());
        self.settle(self.current().cpu);
    }

    /// Puts an operation to sleep.
    pub(super) fn sleep(&mut self, id: TaskId, from: Time, wait: Wait) {
        if self.why.is_some() {
            self.tell_sleep(id, from, wait);
        }
        let task = &mut self.tasks[id.0 as usize];
        let TaskState::Kernel(operation) = std::mem::replace(&mut task.state, TaskState::Blocked) else {
            unreachable!("an operation sleeps");
        };
        let (until, cause) = match wait {
            Wait::Until(until) => (until, Cause::Throttle),
            Wait::Io { until, cause } => (until, cause),
            Wait::Pass { node, until } => {
                self.kernels[task.kernel].pass_sleepers.push((node, id));
                (until, Cause::Throttle)
            }
            Wait::Folio(pfn) => {
                self.kernels[task.kernel].folio_sleepers.push((pfn, id));
                task.sleeps_until = None;
                task.state = TaskState::Sleeping(operation, Slumber { since: from, cause: Cause::FolioLock });
                return;
            }
            Wait::Queue | Wait::Yield => unreachable!("nobody would wake it yet"),
        };
        // The event may have come while the task was on its way to sleep.
        let until = if self.decides_otherwise(id, from, Decision::Sleep) { from } else { until.max(from) };
        let task = &mut self.tasks[id.0 as usize];
        task.state = TaskState::Sleeping(operation, Slumber { since: from, cause });
        task.sleeps_until = Some(until);
        self.clock.arm(until, id);
    }

    /// Tells the observer of operations what a task begins to sleep for.
    #[cold]
    fn tell_sleep(&mut self, id: TaskId, from: Time, wait: Wait) {
        let kernel = self.tasks[id.0 as usize].kernel;
        let is_within = self.why.as_mut().is_some_and(|why| why.is_within(id, from));
        match wait {
            Wait::Folio(pfn) if is_within => {
                let has = |held: &Held| held.pfn <= pfn && pfn < held.pfn.plus(held.order.frames());
                let holds = |holdings: &Holdings| holdings.off_lru.iter().chain(&holdings.isolated).any(has);
                let found = self.holdings(kernel).find(|(control, its)| control.0 != id.0 && holds(its));
                let text = found.map(|(control, _)| self.name_and_work(TaskId(control.0)));
                if let (Some(why), Some(text)) = (&mut self.why, text) {
                    why.finds_held(id, || text);
                }
            }
            Wait::Io { until, cause } if is_within => {
                let Self { kernels, why, .. } = self;
                let name = |task: TaskId| kernels[kernel].name_of(task);
                if let Some(why) = why {
                    why.waits_for_device((id, kernel.0), (from, until.max(from)), cause, name);
                }
            }
            _ => {}
        }
    }

    /// Ends the sleep of an operation.
    pub(crate) fn end_sleep(&mut self, id: TaskId, at: Time) {
        self.leave_pass(id);
        let task = &mut self.tasks[id.0 as usize];
        task.sleeps_until = None;
        if let TaskState::Sleeping(operation, slumber) = std::mem::replace(&mut task.state, TaskState::Blocked) {
            task.state = TaskState::Kernel(operation);
            let at = at.max(slumber.since);
            task.wait(slumber.since, at, slumber.cause);
            if let Some(why) = &mut self.why {
                why.waited_for_lock(id, (slumber.since, at), slumber.cause);
            }
            if self.spans.is_some() {
                self.note_wait(id, true);
            }
            self.wake(id, at, Enqueue::Woken);
        }
    }
}
