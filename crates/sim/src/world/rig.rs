//! One step, of a task inside an operation or of a kernel thread. Its circumstances (time, prices, what other CPUs do) and the
//! effects that it has on others at its end are handled here alone.

use memory::{
    cost::Cause,
    cx::{Circumstances, Cx},
    frame::{ControlId, SpaceId},
    line::CacheLine,
    tlb::{Running, Shootdowns},
};
use mm::{Mm, Spaces};
use rules::variant::MmapLock;
use units::{Bytes, CpuId, Time};

use crate::{
    ids::{HOST, NO_SPACE, TaskId},
    inject::{Injector, Lost},
    kernel::Kernel,
    run_hash::Mark,
    rwsem::{self, Mode},
    sched::Cpu,
    task::Task,
    watch::why::Taken,
    world::World,
};

/// The state that a step works on.
pub(crate) struct Stage<'w> {
    pub(crate) mm: &'w mut Mm,
    pub(crate) spaces: &'w mut Spaces,
    /// Bytes that each process may still map.
    pub(crate) left: &'w mut [Bytes],
    /// The task that takes the step.
    pub(crate) task: &'w mut Task,
    pub(crate) injector: &'w mut Injector,
    /// The part of the step that a test makes it lose.
    pub(crate) loss: Option<(Lost, u64)>,
}

/// The effects of a step on others.
pub(crate) struct Owed<'a> {
    /// The fold of the step's faults.
    pub(crate) faults: u64,
    /// Requests to the CPUs that have the step's address space loaded.
    pub(crate) shootdowns: Shootdowns,
    /// Requests to CPUs that have other address spaces loaded.
    pub(crate) asked_of: &'a [(SpaceId, Shootdowns)],
}

impl World {
    /// Takes a step of the running task of a CPU: its effects happen at its start, its price is paid after. Returns the result
    /// of `body`. Tasks that the step has woken are told by [`Self::end_of_step`], once the task's own state is as the step left
    /// it.
    #[inline]
    pub(crate) fn take_step<T>(&mut self, id: TaskId, cpu: CpuId, body: impl FnOnce(Stage<'_>, &mut Cx<'_>) -> T) -> T {
        let task = &self.tasks[id.0 as usize];
        let (kernel, space, is_thread) = (task.kernel, task.space, task.space == NO_SPACE);
        // Only reclaim and compaction change other address spaces.
        let is_slow = is_thread || task.supply.is_busy();
        let alone_until = if is_slow { self.alone_until(cpu) } else { Time(0) };
        let mut loaded = std::mem::take(&mut self.running);
        if is_slow {
            self.list_running_spaces(kernel, &mut loaded);
        }
        // All other CPUs. It is not known yet whose entries a kernel thread will change: the TLBs of all CPUs that run user code
        // may have them.
        let sharers = if is_thread {
            self.kernels[kernel].running_user
        } else {
            self.kernels[kernel].running_in[space.0 as usize] - 1
        };
        if self.kernels[kernel].mm.memory.shares_cpus() {
            let beside = self.beside(cpu, kernel);
            self.kernels[kernel].mm.memory.set_beside(beside);
        }
        let prices = self.prices.on(&self.cpus, cpu);
        let (task, here) = (&mut self.tasks[id.0 as usize], &mut self.cpus[cpu.0 as usize]);
        let number = self.kernels[kernel].number(cpu);
        let Kernel { mm, spaces, left, counters, lines, .. } = &mut self.kernels[kernel];
        let (start, mut asked_of) = (here.clock, Vec::new());
        let (need_resched, was_preempted) = (here.need_resched(), std::mem::take(&mut task.was_preempted));
        let loss = self.injector.begin(counters);
        let mut cx = Cx::new(number, start, prices, counters);
        let running = is_slow.then_some(Running { spaces: &loaded, asked: &mut asked_of });
        let control = ControlId(id.0);
        cx.set_circumstances(Circumstances { control, sharers, running, need_resched, was_preempted, alone_until });
        cx.tell_facts(self.why.as_deref_mut().map(|why| why.lend(id, kernel.0, start)));
        let before = self.spans.is_some().then(|| task.supply.mechanism()).flatten();
        if here.kicks > 0 {
            cx.leave_guest(std::mem::take(&mut here.kicks));
        }
        if here.asked.rounds > 0 && !is_thread {
            cx.receive(std::mem::take(&mut here.asked));
        }
        let came_to =
            body(Stage { mm: &mut *mm, spaces, left, task: &mut *task, injector: &mut self.injector, loss }, &mut cx);
        if cx.has_free_block() {
            mm.notify_reporting(cx.now());
        }
        let line = (sharers > 0 && !is_thread).then(|| (&mut lines[space.0 as usize], mm.memory.variant().mmap_lock));
        pay(&mut cx, task, here, line);
        let (faults, shootdowns) = (cx.faults().fold, cx.shootdowns());
        if let Some(loss) = loss {
            let spent = *cx.spent();
            here.clock = self.injector.lose(loss, counters, here.clock, &spent);
        }
        if let Some(trace) = &mut self.trace {
            trace.take(mm, id, cpu, start);
        }
        if let Some(spans) = &mut self.spans {
            spans.spend(id, &task.spent, before.or_else(|| task.supply.mechanism()), false);
        }
        if let Some(why) = &mut self.why {
            let (of, span) = (&self.kernels[kernel], (start, here.clock));
            let of_kernel = (kernel.0, u32::try_from(of.cpus.start).expect("fewer than 2^32 CPUs"));
            let taken = Taken { task: id, is_thread, kernel: of_kernel, cpu, span };
            why.end_step(taken, task.page(), |task| of.name_of(task));
        }
        self.settle_step(id, cpu, &Owed { faults, shootdowns, asked_of: &asked_of });
        self.running = loaded;
        came_to
    }

    /// Until when no other CPU has a turn; time 0 if each step is observed.
    fn alone_until(&self, cpu: CpuId) -> Time {
        if self.injector.wanted.is_some() || self.trace.is_some() {
            return Time(0);
        }
        let until = self.clock.earliest().min(self.sampler.due);
        let here = &self.cpus[cpu.0 as usize];
        if here.has_waiting() { until.min(here.next_tick) } else { until }
    }

    /// Adds a task's step to the run hash, and its requests to other CPUs.
    pub(crate) fn settle_step(&mut self, id: TaskId, cpu: CpuId, owed: &Owed<'_>) {
        let end = self.cpus[cpu.0 as usize].clock;
        let space = self.tasks[id.0 as usize].space;
        if space == NO_SPACE {
            self.hash.fold(end, cpu, Mark::Daemon, u64::from(id.0));
            self.interrupt_runners(cpu, owed.shootdowns);
        } else {
            self.hash.fold(end, cpu, Mark::Faults, owed.faults);
            self.interrupt(space, cpu, owed.shootdowns);
        }
        for (space, asked) in owed.asked_of {
            self.interrupt(*space, cpu, *asked);
        }
    }

    /// Ends a step: tasks and threads that it has woken run from its end on.
    #[inline]
    pub(crate) fn end_of_step(&mut self, id: TaskId, cpu: CpuId) {
        self.tell_news(self.tasks[id.0 as usize].kernel, self.cpus[cpu.0 as usize].clock);
        self.tell_host(id, cpu);
        let now = self.cpus[cpu.0 as usize].clock;
        if self.faults.are_over(now) {
            self.faults.end(&mut self.kernels[HOST].mm);
        }
        if cfg!(test) || self.injector.is_check_due() {
            self.check();
        }
        #[cfg(test)]
        self.check_tags();
    }

    fn runs_user(&self, cpu: &Cpu) -> bool {
        cpu.running.is_some_and(|task| self.tasks[task.0 as usize].space != NO_SPACE)
    }

    /// Sends a kernel thread's requests to all CPUs of the same kernel that run tasks of processes.
    fn interrupt_runners(&mut self, from: CpuId, asked: Shootdowns) {
        if asked.rounds == 0 {
            return;
        }
        for cpu in self.kernels[self.cpus[from.0 as usize].kernel].cpus.clone() {
            if cpu != from.0 as usize && self.runs_user(&self.cpus[cpu]) {
                self.cpus[cpu].asked.add(asked);
            }
        }
    }
}

/// Charges a step to a task and its CPU. `line`: the cache line of the mmap lock's count, if others share the address space.
#[inline(always)]
#[expect(clippy::inline_always, reason = "half of it is constant where it is called")]
pub(crate) fn pay(cx: &mut Cx<'_>, task: &mut Task, here: &mut Cpu, line: Option<(&mut CacheLine, MmapLock)>) {
    let faults = cx.faults();
    if let Some((line, rules)) = line
        && faults.taken > 0
        && task.holds == Some(Mode::Read)
    {
        line.access(cx, faults.taken * rwsem::line_accesses(rules), Cause::MmapLock);
    }
    task.faults += faults.taken;
    if faults.major > 0 {
        task.major_faults += faults.major;
    }
    task.spent.add_step(cx.meter());
    here.clock = cx.now();
}

#[cfg(test)]
mod tests {
    use memory::{
        cost::{Cause, Work},
        step::Wait,
    };
    use os::Placement;
    use rules::gfp::AllocRequest;
    use units::{NodeId, Picos, Time};

    use super::*;
    use crate::{
        ids::HOST,
        runqueue::Ticks,
        task::{TaskState, operation::Operation},
        tests::world_of,
        watch::trace::Trace,
    };

    #[test]
    fn what_a_kernel_thread_falls_back_to_is_traced_as_its_own() {
        let mut world = world_of("v6.1", vec![vec![0, 1]]);
        world.trace = Some(Trace::new(10));
        world.kernels[HOST].mm.memory.trace_extfrag(true);
        let space = world.create_space();
        world.create_task(Placement::Spread(0), space);
        let id = world.create_task(Placement::Spread(1), space);
        world.tasks[id.0 as usize].space = NO_SPACE;
        world.cpus[1].running = Some(id);
        world.cpus[1].clock = Time(7_000_000);
        // No block is Reclaimable yet.
        let request = AllocRequest::gfp_kernel_reclaimable(world.kernels[HOST].mm.memory.node_of_cpu(CpuId(1)));
        let got = world.take_step(id, CpuId(1), |Stage { mm, .. }, cx| mm.memory.alloc(cx, &request));
        assert!(got.is_ok());
        let text = world.trace.as_ref().unwrap().text();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.last().unwrap().contains("task-1 [001]     0.000007: mm_page_alloc_extfrag:"), "{text}");
    }

    /// The price on a CPU of a step that moves one block between lists: beside a task that runs on the other thread of the core.
    fn price(is_thread: bool, shares: bool) -> Picos {
        let mut world = world_of("v6.1", vec![vec![0, 1]]);
        world.share_cores(&[vec![CpuId(0), CpuId(1)]], if shares { 300 } else { 100 });
        let space = world.create_space();
        let beside = world.create_task(Placement::Spread(0), space);
        world.cpus[0].running = Some(beside);
        world.kernels[HOST].running_user += 1;
        world.kernels[HOST].running_in[space.0 as usize] += 1;
        let own = if is_thread { NO_SPACE } else { world.create_space() };
        let id = world.create_task(Placement::Spread(1), space);
        world.tasks[id.0 as usize].space = own;
        if !is_thread {
            world.kernels[HOST].running_in[own.0 as usize] += 1;
        }
        world.cpus[1].running = Some(id);
        let before = world.cpus[1].clock;
        world.take_step(id, CpuId(1), |_, cx| cx.work(Work::ListMove, 1));
        assert_eq!(world.tasks[id.0 as usize].spent.total(), world.cpus[1].clock.since(before));
        world.cpus[1].clock.since(before)
    }

    #[test]
    fn whoever_steps_pays_for_a_busy_sibling() {
        for is_thread in [false, true] {
            assert_eq!(price(is_thread, true), Picos(3 * price(is_thread, false).0), "thread: {is_thread}");
        }
    }

    #[test]
    fn a_waiter_for_a_pass_goes_on_with_it_or_times_out() {
        let slept = |passed: Option<Time>| {
            let mut world = world_of("v6.1", vec![vec![0, 1]]);
            let space = world.create_space();
            let id = world.create_task(Placement::Spread(0), space);
            let operation = Operation::Compute { left: Picos(1), ticks: Ticks::every(Picos(1)) };
            world.tasks[id.0 as usize].state = TaskState::Kernel(operation);
            let wait = Wait::Pass { node: NodeId(0), until: Time(100) };
            world.sleep(id, Time(5), wait);
            world.wake_after_pass(HOST, NodeId(1), Time(10));
            assert_eq!(world.kernels[HOST].pass_sleepers, [(NodeId(0), id)], "that is another node's");
            if let Some(at) = passed {
                world.wake_after_pass(HOST, NodeId(0), at);
                assert!(matches!(world.tasks[id.0 as usize].state, TaskState::Kernel(_)));
            }
            world.timer(id, Time(100));
            assert!(matches!(world.tasks[id.0 as usize].state, TaskState::Kernel(_)));
            assert!(world.kernels[HOST].pass_sleepers.is_empty());
            // A waiter that comes too late is not woken.
            world.wake_after_pass(HOST, NodeId(0), Time(200));
            world.tasks[id.0 as usize].spent.on(Cause::Throttle)
        };
        assert_eq!([slept(Some(Time(20))), slept(None)], [Picos(15), Picos(95)]);
    }
}
