//! The simulated machine: CPUs, tasks, address spaces and the memory manager, all of it data.
//!
//! The world of a run is a thread-local that `of_thread.rs` alone touches, so that the simulator's handle on `Os` is a task's
//! number, and runs on different threads are kept apart.

mod check;
mod clear_on;
mod of_thread;
pub(crate) mod rig;
mod run_on;
mod step;
mod turns;
mod write_again;

use std::collections::BTreeSet;

use memory::{cost::Prices, cx::Cx, frame::SpaceId, step::Step, tlb::Shootdowns};
use mm::{
    Mm,
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::HugeAdvice,
    },
};
use units::{Bytes, CpuId, FrameChurn, FrameChurned, Frames, Picos, Time};

pub(crate) use self::{
    of_thread::{scoped, with},
    turns::Turn,
};
use crate::{
    CannotStart, TICK,
    branch::{Change, Changes},
    clock::Clock,
    draw::{Draws, Purpose},
    faults::FaultPoints,
    guests::{Guest, GuestLost},
    ids::{HOST, KernelId, TaskId},
    inject::Injector,
    kernel::{Kernel, Kernels},
    run_hash::RunHash,
    sched::{Cpu, CpuPrices, Domains, Topology},
    task::{Meeting, Task},
    watch::{
        livelock::Watchdog,
        sampler::Sampler,
        slow_log::SlowLog,
        spans::{Spans, TaskName, Timeline},
        trace::Trace,
        why::Why,
    },
};

/// The state of a run, except the user halves of its tasks.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) kernels: Kernels,
    pub(crate) prices: CpuPrices,
    pub(crate) tasks: Vec<Task>,
    /// The guests of the host, in the order of their kernels.
    pub(crate) guests: Vec<Guest>,
    /// A guest that was lost: then the run has no result.
    pub(crate) guest_lost: Option<GuestLost>,
    /// Armed timers of kernel threads that wake up from time to time: they keep no run from ending.
    pub(crate) periodic: BTreeSet<(Time, TaskId)>,
    pub(crate) cpus: Vec<Cpu>,
    /// Number of times that a task came to a CPU.
    pub(crate) arrivals: i64,
    /// Number of times that balancing has passed a task by, counted down.
    pub(crate) passed_by: i64,
    /// The CPU that wakes tasks now; none if a task is woken by its own timer.
    pub(crate) waker: Option<CpuId>,
    /// Number of disk interrupts so far.
    pub(crate) disk_irqs: usize,
    pub(crate) meetings: Vec<Meeting>,
    pub(crate) clock: Clock,
    pub(crate) hash: RunHash,
    pub(crate) watchdog: Watchdog,
    pub(crate) injector: Injector,
    pub(crate) faults: FaultPoints,
    /// Number of operations that have ended.
    pub(crate) operations: u64,
    /// Trace lines, if they were asked for.
    pub(crate) trace: Option<Trace>,
    /// The facts of some operations, if they were asked for.
    pub(crate) why: Option<Box<Why>>,
    /// The timeline, if it was asked for.
    pub(crate) spans: Option<Box<Spans>>,
    pub(crate) sampler: Sampler,
    /// Changes of a branch.
    pub(crate) changes: Changes,
    pub(crate) slow_log: SlowLog,
    /// The instant at which the first task starts.
    pub(crate) begin: Time,
    /// The task whose user half runs.
    pub(crate) current: TaskId,
    /// The address space that each CPU runs, as of the last step that needed it: a list that is reused.
    running: Vec<SpaceId>,
}

impl World {
    pub(crate) fn new(mm: Mm, cpus: usize, prices: Prices, quantum: Picos, cap: Bytes) -> Self {
        let host = Kernel::new(mm, 0..cpus, cap);
        Self {
            cpus: vec![Cpu::new(HOST, host.variant()); cpus],
            kernels: Kernels::new(host),
            prices: CpuPrices { alone: prices.clone(), shared_core: prices },
            tasks: Vec::new(),
            guests: Vec::new(),
            guest_lost: None,
            periodic: BTreeSet::new(),
            arrivals: 0,
            passed_by: 0,
            waker: None,
            disk_irqs: 0,
            meetings: Vec::new(),
            clock: Clock::new(cpus, quantum),
            hash: RunHash::default(),
            watchdog: Watchdog::default(),
            injector: Injector::default(),
            faults: FaultPoints::default(),
            operations: 0,
            trace: None,
            why: None,
            spans: None,
            sampler: Sampler::default(),
            changes: Changes::default(),
            slow_log: SlowLog::default(),
            begin: Time(0),
            current: TaskId(0),
            running: Vec::new(),
        }
    }

    /// Makes the order one for the present number of CPUs, none of which stands in it yet.
    pub(crate) fn restart_clock(&mut self, quantum: Picos) {
        self.clock = Clock::new(self.cpus.len(), quantum);
    }

    /// Makes CPUs hardware threads of one core, which slow each other down to `percent` of their prices.
    pub(crate) fn share_cores(&mut self, cores: &[Vec<CpuId>], percent: u32) {
        self.prices.shared_core = self.prices.alone.shared_core(percent);
        for core in cores {
            for cpu in core {
                self.cpus[cpu.0 as usize].share_core(core.iter().copied().filter(|other| other != cpu).collect());
            }
        }
    }

    /// Builds the sched domains from the CPUs' cores, caches and nodes. QEMU shows a guest CPUs without hardware threads, unless
    /// it is told otherwise (`-smp`).
    pub(crate) fn compare_cpus(&mut self, config: &crate::Config) {
        let places = |cpus: &Vec<CpuId>| cpus.iter().map(|cpu| cpu.0 as usize).collect::<Vec<_>>();
        let nodes = &config.machine.nodes;
        let with_cpus: Vec<usize> = (0..nodes.len()).filter(|node| !nodes[*node].cpus.is_empty()).collect();
        let distances = |node: &usize| with_cpus.iter().map(|to| nodes[*node].distance[*to]).collect();
        let cores = config.cores.iter().filter(|_| config.host.is_none());
        let topology = Topology {
            cores: cores.map(places).collect(),
            caches: config.caches.iter().map(places).collect(),
            nodes: with_cpus.iter().map(|node| (places(&nodes[*node].cpus), distances(node))).collect(),
        };
        // Tests and guests have no caches listed.
        if !topology.caches.is_empty() {
            self.set_domains(&topology);
        }
    }

    /// Sets the sched domains of the host's CPUs.
    pub(crate) fn set_domains(&mut self, topology: &Topology) {
        let domains = Domains::new(topology);
        for cpu in self.kernels[HOST].cpus.clone() {
            self.cpus[cpu].has_levels(domains.levels());
        }
        self.kernels[HOST].domains = domains;
    }

    /// Sets the first instant, which is within a tick. The clock of a CPU that has not run yet is set when it is woken.
    pub(crate) fn start_clock(&mut self, draws: Draws) {
        self.begin = Time(draws.below(TICK.0, 0, Purpose::ClockOffset, 0));
        self.kernels[HOST].ticks.offset = Picos(draws.below(TICK.0, 0, Purpose::TickPhase, 0));
    }

    /// Makes the changes of a branch that are due before a step that starts at `start`.
    pub(crate) fn make_changes(&mut self, start: Time) {
        while self.changes.next() <= start {
            let Some((_, change)) = self.changes.left.pop_front() else { break };
            self.changes.hashes.push(self.hash.hex());
            match change {
                Change::Nothing => {}
                Change::Rules(rules) => {
                    self.kernels[HOST].mm.memory.set_variant(*rules).expect("it was checked before the run");
                }
                Change::Draws(seed) => self.draw_anew(Draws::new(seed)),
            }
        }
        self.sampler.expect_change(self.changes.next());
    }

    /// Draws what a kernel cannot know from one moment to the next: when its ticks come, and a few interrupts.
    fn draw_anew(&mut self, draws: Draws) {
        self.kernels[HOST].ticks.offset = Picos(draws.below(TICK.0, 0, Purpose::TickPhase, 0));
        for (number, cpu) in (0..).zip(&mut self.cpus) {
            let rounds = u32::try_from(draws.below(8, number, Purpose::Interrupts, 0)).expect("at most seven");
            cpu.asked.add(Shootdowns { rounds, whole: 0, pages: 0 });
        }
    }

    /// Whether it is known of a branch that its symptom shows, or that it does not.
    pub(crate) fn is_decided(&self) -> bool {
        self.why.as_ref().is_some_and(|why| why.symptom.is_some_and(|symptom| symptom.is_met.is_some()))
    }

    /// Lets init map and store into this number of base pages, and keep them, as in our real guests, before the clocks start.
    ///
    /// # Errors
    /// When the machine has too little free memory.
    pub(crate) fn hold(&mut self, frames: Frames) -> Result<(), CannotStart> {
        if frames == Frames(0) {
            return Ok(());
        }
        let id = self.try_space().ok_or(CannotStart::NoProcess)?;
        // Making init takes no time, so that no lock counts as held by init later.
        let prices = Prices::free();
        let Kernel { mm, spaces, counters, .. } = &mut self.kernels[HOST];
        let mut cx = Cx::new(CpuId(0), Time(0), &prices, counters);
        let space = spaces.get_mut(id).expect("it was just made");
        let range = space.mmap(mm, &mut cx, frames.0).expect("an empty address space has room");
        space.madvise(mm, &mut cx, range, HugeAdvice::NoHugePage).expect("the range was just mapped");
        let mut touch = Touch::pages(range, Access::Write);
        loop {
            match touch.step(mm, space, &mut cx, Time(u64::MAX)) {
                Step::More => {}
                Step::Done(FaultDone::Handled) => return Ok(()),
                _ => return Err(CannotStart::NoFrames(frames)),
            }
        }
    }

    /// Adds an empty address space: a new process, related to no other.
    ///
    /// # Panics
    /// When the machine has no memory for one page table, or more than 4,096 families.
    pub(crate) fn create_space(&mut self) -> SpaceId {
        self.try_space().expect("a fresh process needs one page table")
    }

    /// Adds an address space; none if there is no memory for its page table. (Nothing is reclaimed for it.)
    pub(crate) fn try_space(&mut self) -> Option<SpaceId> {
        let (cpu, now) = if self.tasks.is_empty() { (CpuId(0), Time(0)) } else { (self.current().cpu, self.now()) };
        let prices = self.prices.on(&self.cpus, cpu);
        let kernel = self.own();
        let number = self.kernels[kernel].number(cpu);
        let Kernel { mm, counters, .. } = &mut self.kernels[kernel];
        let mut cx = Cx::new(number, now, prices, counters);
        let space = AddressSpace::new(mm, &mut cx, MMAP_BASE);
        let (until, spent) = (cx.now(), *cx.spent());
        if let Some(trace) = &mut self.trace {
            trace.take(mm, self.current, cpu, now);
        }
        self.cpus[cpu.0 as usize].clock = until;
        if let Some(parent) = self.tasks.get_mut(self.current.0 as usize) {
            parent.spent.add(&spent);
        }
        let parent = self.tasks.get(self.current.0 as usize).map(|parent| parent.space);
        Some(self.kernels[kernel].add_space(space.ok()?, parent))
    }

    /// Runs a kernel module for the current task, to its end; the time of all its CPUs is that of the task's.
    pub(crate) fn churn_frames(&mut self, churn: &FrameChurn) -> FrameChurned {
        let (cpu, now) = (self.current().cpu, self.now());
        let prices = self.prices.on(&self.cpus, cpu);
        let kernel = self.own();
        let Kernel { mm, counters, .. } = &mut self.kernels[kernel];
        let (found, spent) = mm.memory.churn_frames(churn, now, prices, counters);
        self.cpus[cpu.0 as usize].clock = now + spent.total();
        self.tasks[self.current.0 as usize].spent.add(&spent);
        found
    }

    /// Adds the process that a task has forked.
    pub(crate) fn add_child(&mut self, parent: TaskId, mut space: AddressSpace) -> SpaceId {
        let parent = &self.tasks[parent.0 as usize];
        let now = self.cpus[parent.cpu.0 as usize].clock;
        let Kernel { mm, spaces, .. } = &mut self.kernels[parent.kernel];
        if let Some(of_parent) = spaces.get_mut(parent.space) {
            mm.numa_fork(of_parent, &mut space, now);
        }
        self.kernels[parent.kernel].add_space(space, Some(parent.space))
    }

    /// The kernel of the task whose user half runs; the host's before there is a task.
    fn own(&self) -> KernelId {
        self.tasks.get(self.current.0 as usize).map_or(HOST, |task| task.kernel)
    }

    /// The kernel of the current task.
    pub(crate) fn own_kernel(&self) -> &Kernel {
        &self.kernels[self.own()]
    }

    /// The clock of the CPU of the task whose user half runs.
    pub(crate) fn now(&self) -> Time {
        self.cpus[self.cpu_of(self.current)].clock
    }

    pub(crate) fn current(&self) -> &Task {
        &self.tasks[self.current.0 as usize]
    }

    fn cpu_of(&self, task: TaskId) -> usize {
        self.tasks[task.0 as usize].cpu.0 as usize
    }

    /// The latest clock of any CPU.
    pub(crate) fn latest(&self) -> Time {
        self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(Time(0))
    }

    /// Adds a wait of a task that has ended to its operation.
    #[cold]
    pub(crate) fn note_wait(&mut self, id: TaskId, waits: bool) {
        let Self { tasks, spans, .. } = self;
        let task = &tasks[id.0 as usize];
        if let Some(spans) = spans {
            spans.spend(id, &task.spent, task.supply.mechanism(), waits);
        }
    }

    /// Notes that a task is woken.
    #[cold]
    pub(crate) fn note_wakeup(&mut self, id: TaskId, at: Time) {
        let running = self.waker.and_then(|cpu| self.cpus[cpu.0 as usize].on_it());
        if let Some(spans) = &mut self.spans {
            spans.wakes(id, at, (self.waker, running));
        }
    }

    /// The timeline of a run that has ended.
    pub(crate) fn take_timeline(&mut self) -> Option<Timeline> {
        let mut spans = *self.spans.take()?;
        for cpu in spans.busy() {
            let here = &self.cpus[cpu.0 as usize];
            spans.leaves(cpu, self.kernels[here.kernel].number(cpu), here.clock);
        }
        let name = |id: usize| {
            let kernel = self.tasks[id].kernel;
            let id = TaskId(u32::try_from(id).expect("fewer than 2^32 tasks"));
            TaskName { kernel: kernel.0, name: self.kernels[kernel].name_of(id) }
        };
        Some(spans.finish((0..self.tasks.len()).map(name).collect()))
    }
}
