//! Linux: virt/kvm/kvm_main.c (v6.1), and QEMU: a guest's memory is a mapping of a process of the host, each of its CPUs a task
//! of that process.
//! Differs: a CPU of a guest has a CPU of its own for the guest's code. Its work in the host is done by a task of the host's
//! kernel, and the CPU stands still in the guest meanwhile.
//!
//! A step of a guest never faults in the host in its middle. At its end ([`World::tell_host`]) the blocks that it has accessed
//! are looked up in the page tables of its process. If the host has not mapped a page, the CPU stands still, and its task in
//! the host touches page after page, as any program does, with all that this may take: reclaim, swap, locks. Blocks that a
//! guest reports are freed by another task of the process, with `madvise`.

mod state;

use std::{cell::RefCell, pin::Pin, rc::Rc};

use memory::{
    cost::{Cause, Work},
    event::{Counters, Event},
    frame::SpaceId,
    news::Daemon,
};
use mm::{Mm, Spaces, space::page_table::Pmd};
use os::{Advice, MapSpec, Os, Placement, VmRange};
use units::{Bytes, CpuId, Errno, NodeId, Picos, Time, VirtAddr, Vpn};

pub(crate) use self::state::Guest;
pub use self::state::{GuestLost, LostBy, ProcessMemory};
use self::state::{Pages, Vcpu};
use crate::{
    Config, Entries, Finish, NoResult, Sim, Times,
    branch::Branch,
    draw::Draws,
    ids::{HOST, KernelId, TaskId, Thread},
    kernel::Kernel,
    run_hash::Mark,
    runqueue::{Enqueue, Nice},
    sched::Cpu,
    start_as_guest,
    task::{
        Answer, Request, Task, TaskState, executor,
        handle::{Call, join},
    },
    watch::{
        sampler::{Sampler, Samples},
        slow_log::SlowOperations,
        spans::{Spans, Timeline},
        why::{Story, Watched, Why},
    },
    world::{World, with},
};

/// The first page from `pages.at` on that the host has not mapped.
fn absent(spaces: &Spaces, process: SpaceId, pages: &mut Pages) -> Option<Vpn> {
    const HUGE: u64 = 512;
    let tables = &spaces.get(process)?.tables;
    // Bound: the pages of a block.
    while pages.at < pages.end {
        match tables.pmd_of(pages.at) {
            Pmd::None => return Some(pages.at),
            Pmd::Huge(huge) if !huge.is_present() => return Some(pages.at),
            Pmd::Huge(_) => pages.at = Vpn((pages.at.0 / HUGE + 1) * HUGE),
            Pmd::Table(table) if !tables.pte(table, pages.at).is_present() => return Some(pages.at),
            Pmd::Table(_) => pages.at.0 += 1,
        }
    }
    None
}

impl World {
    /// Tells the host, at the end of a guest's step, what it has accessed and reported.
    #[inline]
    pub(crate) fn tell_host(&mut self, id: TaskId, cpu: CpuId) {
        let kernel = self.tasks[id.0 as usize].kernel;
        if kernel != HOST && self.kernels[kernel].mm.memory.has_host_work() {
            self.tell_host_all(kernel, cpu);
        } else if self.kernels[kernel].mm.memory.has_host_clears() {
            self.cpus[cpu.0 as usize].host_clears += self.kernels[kernel].mm.memory.take_host_clears();
        } else if self.kernels[kernel].mm.memory.has_host_flushes() {
            let times = self.kernels[kernel].mm.memory.take_host_flushes();
            self.kick_vcpus(kernel, times);
        }
    }

    /// Makes the guest's CPUs leave it, once for each of `times` changes that the host has made to its page tables
    /// (`kvm_make_all_cpus_request`). Their page walks after that are not priced here.
    #[inline(never)]
    fn kick_vcpus(&mut self, kernel: KernelId, times: u64) {
        for cpu in &mut self.cpus[self.kernels[kernel].cpus.clone()] {
            if cpu.running.is_some() && !cpu.stands && cpu.host_clears == 0 {
                cpu.kicks += times;
            }
        }
    }

    /// A turn of a CPU for which the host clears frames: as many as fit before another CPU has a turn.
    #[inline(never)]
    pub(crate) fn clear_in_host(&mut self, id: CpuId) {
        let Self { kernels, cpus, prices, clock, tasks, .. } = self;
        let prices = prices.on(cpus, id);
        let here = &mut cpus[id.0 as usize];
        let kernel = &mut kernels[here.kernel];
        let (number, since) = (kernel.number(id), here.clock);
        let before = clock.earliest();
        let mut cx = memory::cx::Cx::new(number, since, prices, &mut kernel.counters);
        // Bound: the frames.
        loop {
            kernel.mm.memory.clear_one_by_host(&mut cx);
            here.host_clears -= 1;
            if here.host_clears == 0 || cx.now() >= before {
                break;
            }
        }
        here.clock = cx.now();
        if let Some(running) = here.running {
            tasks[running.0 as usize].spin(since, here.clock, Cause::Host);
            if let Some(why) = &mut self.why {
                why.waited(running, (since, here.clock), Cause::Host, || {
                    Some("the host, which clears memory".to_owned())
                });
            }
        }
        here.ready(id, clock);
        let now = self.cpus[id.0 as usize].clock;
        self.gets_on(now);
    }

    #[inline(never)]
    fn tell_host_all(&mut self, kernel: KernelId, cpu: CpuId) {
        let work = self.kernels[kernel].mm.memory.take_host_work();
        let at = self.cpus[cpu.0 as usize].clock;
        let (guest, vcpu) = (usize::from(kernel.0) - 1, self.kernels[kernel].number(cpu).0 as usize);
        let of = &mut self.guests[guest];
        for held in work.accessed {
            let pages = of.pages(held);
            of.cpus[vcpu].accessed.push(pages);
        }
        if !work.reported.is_empty() {
            of.reported.extend(work.reported);
            of.is_reporting = true;
            if let Some(balloon) = of.balloon {
                self.ask_balloon(guest, balloon, at);
            }
        }
        if let Some(page) = self.next_absent(guest, vcpu) {
            self.cpus[cpu.0 as usize].stands = true;
            let of = &mut self.guests[guest].cpus[vcpu];
            of.stands_since = Some(at);
            let task = of.task.expect("its tasks are there before it is started");
            // The task may not have come to wait for its guest yet; then it will ask.
            if let TaskState::Blocked = self.tasks[task.0 as usize].state {
                self.tasks[task.0 as usize].state = TaskState::Answered(Answer::Range(Ok(page)));
                // The task runs already: a CPU that leaves its guest wakes nobody.
                self.wake(task, at, Enqueue::New);
            }
        }
    }

    /// The next page that a CPU of a guest has accessed and that the host has not mapped.
    fn next_absent(&mut self, guest: usize, vcpu: usize) -> Option<VmRange> {
        let of = &mut self.guests[guest];
        // Bound: each turn is done with a block.
        while let Some(pages) = of.cpus[vcpu].accessed.last_mut() {
            let spaces = &self.kernels[HOST].spaces;
            if let Some(page) = absent(spaces, of.process, pages) {
                self.kernels[of.kernel].counters.count(Event::SimHostFaults, 1);
                return Some(VmRange { start: VirtAddr(page.0 * Bytes::PAGE.0), len: Bytes::PAGE });
            }
            let last = Vpn(pages.end.0 - 1);
            of.cpus[vcpu].accessed.pop();
            let tables = spaces.get(of.process).map(|process| &process.tables);
            if tables.is_some_and(|tables| matches!(tables.pmd_of(last), Pmd::Huge(_))) {
                let pfn = of.frame(last);
                self.kernels[of.kernel].mm.memory.note_backed_huge(pfn);
            }
        }
        None
    }

    /// Lets a guest's CPU go on, as its task in the host has nothing more to do for it.
    pub(crate) fn await_guest(&mut self, task: TaskId, at: Time) -> TaskState {
        let (guest, vcpu) = self.guest_of(task);
        if let Some(page) = self.next_absent(guest, vcpu) {
            return TaskState::Answered(Answer::Range(Ok(page)));
        }
        if let Some(since) = self.guests[guest].cpus[vcpu].stands_since.take() {
            self.enter_guest(guest, vcpu, (since, at));
        }
        if self.guests[guest].is_off {
            return TaskState::Answered(Answer::Unit(Err(Errno::CANCELED)));
        }
        TaskState::Blocked
    }

    /// Lets a CPU of a guest go on after it stood still.
    fn enter_guest(&mut self, guest: usize, vcpu: usize, (since, at): (Time, Time)) {
        let kernel = self.guests[guest].kernel;
        let id = CpuId(u32::try_from(self.kernels[kernel].cpus.start + vcpu).expect("fewer than 2^32 CPUs"));
        let until = at + self.prices.alone.of(Work::HostExit);
        let cpu = &mut self.cpus[id.0 as usize];
        cpu.stands = false;
        if let Some(running) = cpu.running {
            self.tasks[running.0 as usize].spin(since, until, Cause::Host);
            if let Some(why) = &mut self.why {
                let by = self.guests[guest].cpus[vcpu].task.map(|task| task.0);
                let behind = || by.map(|by| format!("task {by} of the host, which makes room for it there"));
                why.waited(running, (since, until), Cause::Host, behind);
            }
        }
        cpu.clock = cpu.clock.max(until);
        self.cpus[id.0 as usize].ready(id, &mut self.clock);
    }

    /// Makes the task that frees reported blocks wait; tells the guest when none are left.
    pub(crate) fn await_reports(&mut self, task: TaskId, at: Time) -> TaskState {
        let guest = self.guests.iter().position(|guest| guest.balloon == Some(task)).expect("it is some guest's");
        if let Some(range) = self.next_reported(guest) {
            return TaskState::Answered(Answer::Range(Ok(range)));
        }
        let of = &mut self.guests[guest];
        let (kernel, is_off) = (of.kernel, of.is_off);
        if std::mem::take(&mut of.is_reporting) {
            let thread = Thread { daemon: Daemon::Reporter, node: NodeId(0) };
            let id = self.kernels[kernel].thread(thread).expect("who reports is there");
            self.wake_daemon(id, at + self.prices.alone.of(Work::HostReport));
        }
        if is_off { TaskState::Answered(Answer::Unit(Err(Errno::CANCELED))) } else { TaskState::Blocked }
    }

    fn ask_balloon(&mut self, guest: usize, balloon: TaskId, at: Time) {
        if let TaskState::Blocked = self.tasks[balloon.0 as usize].state
            && let Some(range) = self.next_reported(guest)
        {
            self.answer(balloon, Answer::Range(Ok(range)), at);
        }
    }

    fn next_reported(&mut self, guest: usize) -> Option<VmRange> {
        let of = &mut self.guests[guest];
        let held = of.reported.pop()?;
        let pages = of.pages(held);
        let frames = u64::from(held.order.frames());
        let kernel = of.kernel;
        self.kernels[kernel].counters.count(Event::SimHostDiscards, frames);
        self.kick_vcpus(kernel, 1);
        Some(VmRange { start: VirtAddr(pages.at.0 * Bytes::PAGE.0), len: Bytes(frames * Bytes::PAGE.0) })
    }

    fn guest_of(&self, task: TaskId) -> (usize, usize) {
        let found = self.guests.iter().enumerate().find_map(|(guest, of)| {
            let vcpu = of.cpus.iter().position(|cpu| cpu.task == Some(task))?;
            Some((guest, vcpu))
        });
        found.expect("it is a CPU of some guest")
    }

    /// Adds a guest that is not started yet.
    fn add_guest(&mut self, config: &Config) {
        let mut mm = Mm::new(&config.machine, config.variant, &config.settings);
        mm.memory.attach_host_kernel();
        let (first, id) = (self.cpus.len(), KernelId(u16::try_from(self.guests.len() + 1).expect("fewer guests")));
        let kernel = Kernel::new(mm, first..first + config.cpus, config.cap);
        self.cpus.extend(vec![Cpu::new(id, kernel.variant()); config.cpus]);
        self.kernels.add(kernel);
        let cpu = Vcpu { task: None, stands_since: None, accessed: Vec::new() };
        self.guests.push(Guest {
            kernel: id,
            process: SpaceId(u32::MAX),
            main: None,
            memory: None,
            cpus: vec![cpu; config.cpus],
            reported: Vec::new(),
            balloon: None,
            is_reporting: false,
            is_off: false,
        });
    }

    /// Starts the first task of a guest, from the current task of the host.
    fn boot_guest(&mut self, guest: usize, config: &Config) -> TaskId {
        let (id, at) = (self.guests[guest].kernel, self.now());
        crate::set_up(&mut self.kernels[id], config);
        start_as_guest(config, &mut self.kernels[id], at);
        let kernel = &mut self.kernels[id];
        let first = u32::try_from(kernel.cpus.start).expect("fewer than 2^32 CPUs");
        let mut cx = memory::cx::Cx::new(CpuId(0), at, &self.prices.alone, &mut kernel.counters);
        let space =
            mm::space::address_space::AddressSpace::new(&mut kernel.mm, &mut cx, mm::space::address_space::MMAP_BASE);
        let space = kernel.add_space(space.expect("a fresh guest has memory for a page table"), None);
        kernel.mm.spare_from_oom(space);
        let places = config.machine.nodes.iter().map(|node| {
            let cpus = node.cpus.iter().map(|cpu| CpuId(first + cpu.0)).collect();
            (node.id, cpus)
        });
        let places: Vec<_> = places.collect();
        let task = TaskId(u32::try_from(self.tasks.len()).expect("fewer than 2^32 tasks"));
        self.tasks.push(Task::new(CpuId(first), Vec::new(), (id, space), Nice::default()));
        self.wake(task, at, Enqueue::New);
        self.start_daemons(id, &places, Draws::new(config.seed));
        task
    }

    /// Notes that the OOM killer of the host has chosen a process; if it is a guest's, the run has no result.
    pub(crate) fn lose_guest_of(&mut self, kernel: KernelId, space: SpaceId, at: Time) {
        let found = self.guests.iter().position(|guest| kernel == HOST && guest.process == space);
        let Some(guest) = found.filter(|guest| !self.guests[*guest].is_off) else { return };
        let spaces = &self.kernels[HOST].spaces;
        let bytes = |pages: u64| Bytes(pages * Bytes::PAGE.0);
        let memory = self.guests.iter().map(|guest| {
            let pages = spaces.get(guest.process).map_or((0, 0), |space| (space.rss_pages(), space.swapped_pages()));
            ProcessMemory { resident: bytes(pages.0), swapped: bytes(pages.1) }
        });
        let by = LostBy::Host(memory.collect());
        self.guest_lost.get_or_insert(GuestLost { guest, after: at.since(self.begin), by });
    }

    /// Notes that the kernel has ended a task; if it is the first task of a guest, the run has no result.
    pub(crate) fn lose_guest_with(&mut self, task: TaskId) {
        if let Some(guest) = self.guests.iter().position(|guest| guest.main == Some(task)) {
            let after = self.now().since(self.begin);
            self.guest_lost.get_or_insert(GuestLost { guest, after, by: LostBy::Itself });
        }
    }

    /// Powers a guest off: the tasks of its process may end.
    fn power_off(&mut self, guest: usize) {
        let at = self.now();
        self.guests[guest].is_off = true;
        let of = &self.guests[guest];
        let tasks: Vec<TaskId> = of.cpus.iter().filter_map(|cpu| cpu.task).chain(of.balloon).collect();
        for task in tasks {
            self.answer(task, Answer::Unit(Err(Errno::CANCELED)), at);
        }
    }
}

/// The end of a run with guests.
#[derive(Clone, Debug)]
pub struct GuestsFinish {
    /// The end of the host's run.
    pub host: Finish,
    /// Events of each guest.
    pub guests: Vec<Counters>,
    /// Samples of all kernels, if they were asked for.
    pub samples: Option<Samples>,
    /// The log of slow operations of all kernels.
    pub slow_operations: SlowOperations,
    /// The facts of the operations that were asked about.
    pub why: Vec<Story>,
    /// The timeline of all kernels, where it was asked for.
    pub timeline: Option<Timeline>,
}

/// The extras of a run with guests.
#[derive(Clone, Debug, Default)]
pub struct GuestsOptions {
    /// The time between two samples of all kernels.
    pub sample: Option<Picos>,
    /// Operations whose facts are wanted.
    pub why: Vec<Watched>,
    /// Whether a timeline is wanted.
    pub timeline: bool,
}

/// Runs `body` as the first task of each guest of a host, all at the same time; `body` is told the number of its guest.
///
/// # Errors
/// When a guest is lost before its end, or no task makes progress any more: the run ends at once.
///
/// # Panics
/// As [`crate::simulate`]; and when the host lacks memory for the page tables of its processes.
pub fn simulate_guests<T: 'static, F: AsyncFn(Sim, usize) -> T + Clone + 'static>(
    host: &Config,
    guests: &[Config],
    entries: Entries,
    body: F,
) -> Result<(Vec<T>, GuestsFinish), NoResult> {
    simulate_guests_with(host, guests, GuestsOptions::default(), entries, body)
}

/// Runs guests like [`simulate_guests`], with extras.
///
/// # Errors
/// As [`simulate_guests`].
///
/// # Panics
/// As [`simulate_guests`]; and when the time between two samples is 0.
pub fn simulate_guests_with<T: 'static, F: AsyncFn(Sim, usize) -> T + Clone + 'static>(
    host: &Config,
    guests: &[Config],
    options: GuestsOptions,
    entries: Entries,
    body: F,
) -> Result<(Vec<T>, GuestsFinish), NoResult> {
    let mut world = crate::fresh(host);
    crate::set_up(&mut world.kernels[HOST], host);
    world.share_cores(&host.cores, host.shared_core);
    world.compare_cpus(host);
    world.start_clock(Draws::new(host.seed));
    for guest in guests {
        world.add_guest(guest);
    }
    world.restart_clock(host.quantum);
    world.spans = options.timeline.then(|| Spans::of(options.why.iter().map(|of| (of.task, of.start))));
    world.why = Why::of(options.why, false, &Branch::default());
    world.sampler = options.sample.map(Sampler::new).unwrap_or_default();
    let space = world.create_space();
    world.create_task(Placement::Spread(0), space);
    world.kernels[HOST].mm.spare_from_oom(space);
    let places: Vec<_> = host.machine.nodes.iter().map(|node| (node.id, node.cpus.clone())).collect();
    world.start_daemons(HOST, &places, Draws::new(host.seed));
    let slot = Rc::new(RefCell::new(Vec::new()));
    let results = Rc::clone(&slot);
    let guests = guests.to_vec();
    let main = Box::pin(async move {
        let running: Vec<_> = guests.into_iter().enumerate().map(|(n, guest)| start(n, guest, body.clone())).collect();
        for one in running {
            let result = one.await;
            results.borrow_mut().push(result);
        }
    });
    let mut world = executor::run(world, entries, main);
    if let Some(lost) = world.guest_lost.take() {
        return Err(NoResult::GuestLost(lost));
    }
    if let Some(livelock) = world.watchdog.found.take() {
        return Err(NoResult::Livelock(livelock));
    }
    let (end, samples) = (world.latest(), world.end_samples().0);
    let (slow_operations, timeline) = (world.take_slow_operations(), world.take_timeline());
    let why = world.why.take().map(|why| why.finish().stories).unwrap_or_default();
    let mut times = Times::default();
    world.tasks.iter().for_each(|task| task.add_to(&mut times));
    let counters: Vec<Counters> = world.kernels.all().map(|kernel| kernel.counters.clone()).collect();
    for (_, count) in counters.iter().flat_map(Counters::iter) {
        world.hash.fold(end, CpuId(0), Mark::Counter, count);
    }
    let mut counters = counters.into_iter();
    let host = Finish { hash: world.hash.hex(), counters: counters.next().expect("the host's"), times };
    Ok((slot.take(), GuestsFinish { host, guests: counters.collect(), samples, slow_operations, why, timeline }))
}

/// Starts the process of a guest; the future completes with the guest's result at its end.
fn start<T: 'static, F: AsyncFn(Sim, usize) -> T + 'static>(
    guest: usize,
    config: Config,
    body: F,
) -> impl Future<Output = T> + 'static {
    let slot = Rc::new(RefCell::new(None));
    let result = Rc::clone(&slot);
    let task = with(|world| {
        let space = world.create_space();
        world.guests[guest].process = space;
        world.create_task(Placement::Free, space)
    });
    executor::adopt(task, Box::pin(async move { *result.borrow_mut() = Some(Ok(qemu(guest, config, body).await)) }));
    async move { join(task, slot).await.expect(ENDS) }
}

/// The process of a guest: maps its memory, starts its CPUs and its balloon, and then the guest.
async fn qemu<T: 'static, F: AsyncFn(Sim, usize) -> T + 'static>(guest: usize, config: Config, body: F) -> T {
    // Whole blocks of its page allocator, the last of which may extend beyond the guest's memory.
    let frames = config.machine.end().0.next_multiple_of(config.machine.max_order.frames());
    let size = Bytes(u64::from(frames) * Bytes::PAGE.0);
    let mapped = Sim.mmap(size + Bytes::HUGE_PAGE, MapSpec::Anonymous).await.expect("the host lets it map that");
    let memory = mapped.aligned_part(Bytes::HUGE_PAGE, size);
    Sim.madvise(memory, Advice::HugePage).await.expect("it was just mapped");
    with(|world| world.guests[guest].memory = Some(memory));
    let first: usize = with(|world| world.guests[..guest].iter().map(|other| other.cpus.len()).sum());
    let mut threads: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..config.cpus {
        let place = u32::try_from(first + n).expect("fewer than 2^32 CPUs");
        let (task, thread) = thread(Placement::Spread(place), vcpu());
        with(|world| world.guests[guest].cpus[n].task = Some(task));
        threads.push(Box::pin(thread));
    }
    if config.reporting.is_some() {
        let (task, thread) = thread(Placement::Free, balloon());
        with(|world| world.guests[guest].balloon = Some(task));
        threads.push(Box::pin(thread));
    }
    let slot = Rc::new(RefCell::new(None));
    let result = Rc::clone(&slot);
    let main = with(|world| {
        let main = world.boot_guest(guest, &config);
        world.guests[guest].main = Some(main);
        main
    });
    executor::adopt(main, Box::pin(async move { *result.borrow_mut() = Some(Ok(body(Sim, guest).await)) }));
    let result = join(main, slot).await.expect(ENDS);
    with(|world| world.power_off(guest));
    for thread in threads {
        thread.await;
    }
    result
}

/// A run ends as soon as a task of a guest is killed ([`World::guest_lost`]).
const ENDS: &str = "the tasks of a guest come to their end";

/// Starts a thread of the calling process of the host; the future completes at its end.
fn thread(on: Placement, body: impl Future<Output = ()> + 'static) -> (TaskId, impl Future<Output = ()> + 'static) {
    let task = with(|world| {
        let space = world.current().space;
        world.create_task(on, space)
    });
    let slot = Rc::new(RefCell::new(None));
    let done = Rc::clone(&slot);
    executor::adopt(
        task,
        Box::pin(async move {
            body.await;
            *done.borrow_mut() = Some(Ok(()));
        }),
    );
    (task, async move { join(task, slot).await.expect(ENDS) })
}

/// A CPU of a guest: its task touches every page that the guest has accessed.
async fn vcpu() {
    // Bound: the life of the guest.
    while let Answer::Range(Ok(page)) = Call::of(Request::AwaitGuest).await {
        Sim.store(page, Bytes::PAGE).await.expect("it is the guest's memory");
    }
}

/// Gives back what the guest reports (`virtio_balloon_handle_report`, `ram_block_discard_range`).
async fn balloon() {
    // Bound: the life of the guest.
    while let Answer::Range(Ok(range)) = Call::of(Request::AwaitReports).await {
        Sim.madvise(range, Advice::DontNeed).await.expect("it is the guest's memory");
    }
}
