//! A driver: tasks, each in an operation, and kswapd take steps in turn, as chance will have it, on a clock of their own.

use memory::{
    cost::{Prices, Work},
    cx::Cx,
    event::{Counters, Event},
    frame::{ControlId, Frame, Holdings, SpaceId},
    news::Daemon,
    step::{Step, Wait},
};
use mm::{
    Mm, Spaces,
    compact::kcompactd::CompactMemory,
    fault::{Access, FaultDone, touch::Touch},
    slow::Supply,
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        fork::Fork,
        unmap::Unmap,
        vma::PageRange,
    },
    swap::{SwapMedium, SwapSpec},
    whole::check::{Owners, walk, walk_owners},
};
use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, ThpDefrag, Variant},
    zone::{Settings, ZoneKind},
};

use crate::{chance::Chance, mistakes::Seeded};
use std::collections::{BTreeMap, BTreeSet};
use units::{Bytes, BytesPerSecond, CpuId, ExtfragCounts, NodeId, Order, Pfn, Picos, Time, Vpn};

pub(crate) struct Setup {
    pub(crate) frames: u64,
    pub(crate) swap: Option<u64>,
    pub(crate) medium: SwapMedium,
    pub(crate) variant: Variant,
    /// Faults take huge pages, for which they reclaim and compact.
    pub(crate) huge: bool,
    /// Processes are killed when memory is out.
    pub(crate) kills: bool,
    /// `vm.watermark_boost_factor`.
    pub(crate) boost_factor: u32,
}

fn disk() -> SwapMedium {
    let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
    SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth }
}

impl Default for Setup {
    fn default() -> Self {
        let (variant, boost_factor) = (*variant::named("v6.1"), 15_000);
        Self { frames: 4096, swap: None, medium: disk(), variant, huge: false, kills: false, boost_factor }
    }
}

/// How it ended for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    OutOfMemory,
    /// A page of its own cannot be had any more: SIGBUS.
    BusError,
}

pub(crate) struct Machine {
    pub(crate) mm: Mm,
    pub(crate) counters: Counters,
    pub(crate) spaces: Spaces,
    pub(crate) prices: Prices,
    pub(crate) now: Time,
    /// Until when kswapd sleeps; None until it is woken.
    pub(crate) kswapd: Option<Time>,
    /// Until when kcompactd and khugepaged sleep, and the lock of a process that the latter keeps between steps.
    pub(crate) kcompactd: Option<Time>,
    pub(crate) khugepaged: Option<Time>,
    /// Until when the reporting thread sleeps.
    pub(crate) reporter: Option<Time>,
    pub(crate) keeps: Option<mm::thp::khugepaged::NeedsLock>,
    /// All of memory is being compacted for somebody, and until when he sleeps.
    pub(crate) compact: Option<CompactMemory>,
    pub(crate) compact_sleeps: Time,
    /// The last content that each process wrote, by page, and the range that it may write.
    pub(crate) memory: BTreeMap<SpaceId, (PageRange, BTreeMap<Vpn, u64>)>,
    /// Processes that are to end.
    pub(crate) killed: BTreeSet<SpaceId>,
    /// Number of allocations in the next step that still succeed before one fails.
    pub(crate) fails_alloc: Option<u32>,
    /// Fallbacks, as the trace says.
    fell_back: ExtfragCounts,
    /// How many steps were made to fail so.
    pub(crate) injected: u64,
    /// Swap had no room once.
    pub(crate) was_full: bool,
    /// Blocks of requests that cannot wait for memory.
    pub(crate) atomic: BTreeMap<Pfn, Order>,
    /// The mistake that breaks a rule of free page reporting, and the check that sees it.
    pub(crate) seeded: Seeded,
    /// Cases reached that no event counts.
    pub(crate) reached: BTreeMap<&'static str, u64>,
    /// A crowd begins with processes that have written to all that they map.
    fills: bool,
    /// Processes end by force only.
    kills: bool,
    writes: u64,
    pub(crate) steps: u64,
    /// After how many steps everything is checked.
    pub(crate) check_every: u64,
}

/// A task in an operation.
#[expect(clippy::large_enum_variant, reason = "there are a few of them")]
pub(crate) enum Operation {
    Touch(Touch),
    Fork(Fork),
    /// Gives up some pages (`MADV_DONTNEED`).
    Discard(Unmap),
    Exit(Unmap),
}

pub(crate) struct Task {
    pub(crate) id: u32,
    pub(crate) space: SpaceId,
    pub(crate) operation: Operation,
    pub(crate) supply: Supply,
    pub(crate) sleeps_until: Time,
    /// Or until kswapd has come to the end of a pass.
    pub(crate) waits_for_pass: bool,
    access: Access,
    page: Vpn,
}

const KSWAPD: u32 = 1 << 30;
pub(crate) const KCOMPACTD: u32 = KSWAPD + 1;
pub(crate) const KHUGEPAGED: u32 = KSWAPD + 2;
pub(crate) const COMPACT: u32 = KSWAPD + 3;
pub(crate) const REPORTER: u32 = KSWAPD + 4;

impl Machine {
    pub(crate) fn new(setup: &Setup) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), u32::try_from(setup.frames).unwrap());
        let cpus = vec![CpuId(0), CpuId(1)];
        let node = NodeSpec { id: NodeId(0), cpus, distance: vec![10], zones: vec![zone] };
        let pageblock_order = if setup.huge { Order::HUGE } else { Order(4) };
        let machine = MachineSpec { pageblock_order, max_order: Order(10), nodes: vec![node] };
        let watermark_boost_factor = setup.boost_factor;
        let settings = Settings { min_free_kbytes: 256, watermark_boost_factor, ..Settings::default() };
        let mut mm = Mm::new(&machine, setup.variant, &settings);
        mm.thp.defrag = ThpDefrag::Always;
        if setup.kills {
            mm.enable_oom_killer();
        }
        mm.memory.frames.keep_contents(!0);
        mm.memory.trace_extfrag(true);
        if let Some(pages) = setup.swap {
            mm.swapon(&SwapSpec { size: Bytes(pages * 4096), medium: setup.medium });
        }
        let prices = Prices::new(|work| if work == Work::UserTouch { Picos(0) } else { Picos::from_nanos(100) });
        let (counters, spaces) = (Counters::default(), Spaces::default());
        Self {
            mm,
            counters,
            spaces,
            prices,
            now: Time(0),
            kswapd: None,
            kcompactd: None,
            khugepaged: None,
            reporter: None,
            keeps: None,
            compact: None,
            compact_sleeps: Time(0),
            memory: BTreeMap::new(),
            killed: BTreeSet::new(),
            fails_alloc: None,
            fell_back: ExtfragCounts::default(),
            injected: 0,
            was_full: false,
            atomic: BTreeMap::new(),
            seeded: Seeded::default(),
            reached: BTreeMap::new(),
            fills: setup.huge && !setup.kills,
            kills: setup.kills,
            writes: 0,
            steps: 0,
            check_every: 97,
        }
    }

    pub(crate) fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    /// Starts a process and maps `pages` pages.
    pub(crate) fn start(&mut self, pages: u64) -> SpaceId {
        self.try_start(pages).unwrap()
    }

    /// Starts a process, as far as there is memory at once.
    pub(crate) fn try_start(&mut self, pages: u64) -> Option<SpaceId> {
        let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters);
        let mut space = AddressSpace::new(&mut self.mm, &mut cx, MMAP_BASE).ok()?;
        let Ok(range) = space.mmap(&mut self.mm, &mut cx, pages) else {
            space.exit(&mut self.mm, &mut cx);
            return None;
        };
        let id = self.spaces.add(space);
        self.memory.insert(id, (range, BTreeMap::new()));
        Some(id)
    }

    pub(crate) fn write_all(&mut self, process: SpaceId) {
        assert_eq!(self.try_write_all(process), Fate::Done);
    }

    pub(crate) fn try_write_all(&mut self, process: SpaceId) -> Fate {
        self.access_all(process, 1, Access::Write)
    }

    /// Writes to every `nth` page.
    pub(crate) fn write_some(&mut self, process: SpaceId, nth: u64) {
        assert_eq!(self.access_all(process, nth, Access::Write), Fate::Done);
    }

    /// Reads every page, each of which must hold what was written to it.
    pub(crate) fn read_all(&mut self, process: SpaceId) {
        assert_eq!(self.access_all(process, 1, Access::Read), Fate::Done);
    }

    /// Reads all pages, as far as they can be read.
    pub(crate) fn try_read_all(&mut self, process: SpaceId) -> Fate {
        self.access_all(process, 1, Access::Read)
    }

    fn access_all(&mut self, process: SpaceId, nth: u64, access: Access) -> Fate {
        let range = self.memory[&process].0;
        for n in (0..range.pages()).step_by(usize::try_from(nth).unwrap()) {
            let fate = self.access_one(process, range.start.plus(n), access);
            if fate != Fate::Done {
                return fate;
            }
        }
        self.check(&[]);
        Fate::Done
    }

    fn access_one(&mut self, process: SpaceId, page: Vpn, access: Access) -> Fate {
        let mut tasks = vec![self.access(1, process, page, access)];
        loop {
            if let Some((_, fate)) = self.turn(&mut tasks, &mut |_| 0) {
                return fate;
            }
        }
    }

    /// Reads `pages` pages of both processes in turn, so that they get their frames in turn.
    pub(crate) fn read_in_turn(&mut self, processes: [SpaceId; 2], pages: u64) {
        for (n, process) in (0..pages).flat_map(|n| processes.map(|process| (n, process))) {
            let page = self.memory[&process].0.start.plus(n);
            assert_eq!(self.access_one(process, page, Access::Read), Fate::Done);
        }
    }

    /// Accesses `accesses` pages at random.
    pub(crate) fn storm(&mut self, process: SpaceId, seed: u64, accesses: u64) {
        let mut chance = Chance(seed);
        let range = self.memory[&process].0;
        for _ in 0..accesses {
            let access = if chance.below(3) == 0 { Access::Write } else { Access::Read };
            let mut tasks = vec![self.access(1, process, range.start.plus(chance.below(range.pages())), access)];
            while self.turn(&mut tasks, &mut |n| chance.below(n)).is_none() {}
        }
    }

    pub(crate) fn fork(&mut self, parent: SpaceId) -> SpaceId {
        let mut tasks = vec![self.task(1, parent, Operation::Fork(Fork::new()))];
        while self.turn(&mut tasks, &mut |_| 0).is_none() {}
        *self.memory.keys().last().unwrap()
    }

    pub(crate) fn end(&mut self, process: SpaceId) {
        let mut tasks = vec![self.task(1, process, Operation::Exit(Unmap::everything()))];
        while self.turn(&mut tasks, &mut |_| 0).is_none() {}
    }

    /// Several processes and their children at once, each in its own operation, for `steps` steps; then all end.
    pub(crate) fn crowd(&mut self, seed: u64, steps: u64) {
        let mut chance = Chance(seed + 1);
        self.check_every = 5;
        for _ in 0..3 {
            let process = self.start(7 * 256);
            if self.fills {
                self.write_all(process);
            }
        }
        let steps = self.steps + steps;
        let mut tasks: Vec<Task> = Vec::new();
        let mut id = 0;
        loop {
            let is_over = self.steps >= steps;
            if self.memory.is_empty() && !is_over {
                self.start(7 * 256);
            }
            if tasks.is_empty() && self.memory.is_empty() {
                break;
            }
            let busy: Vec<SpaceId> = tasks.iter().map(|task| task.space).collect();
            let idle: Vec<SpaceId> = self.memory.keys().copied().filter(|space| !busy.contains(space)).collect();
            let dead = idle.iter().copied().find(|space| self.killed.contains(space));
            if let Some(space) = dead {
                id += 1;
                tasks.push(self.exit(id, space));
            } else if !idle.is_empty() && (tasks.len() < 3 || is_over) {
                id += 1;
                let space = idle[usize::try_from(chance.below(idle.len() as u64)).unwrap()];
                let range = self.memory[&space].0;
                let page = range.start.plus(chance.below(range.pages()));
                let task = match chance.below(40) {
                    _ if is_over => self.exit(id, space),
                    0 if self.memory.len() < 5 => self.task(id, space, Operation::Fork(Fork::new())),
                    1 if self.memory.len() > 2 && !self.kills => self.exit(id, space),
                    n if n < 24 => self.access(id, space, page, Access::Write),
                    _ => self.access(id, space, page, Access::Read),
                };
                tasks.push(task);
            }
            if let Some((_, Fate::OutOfMemory)) = self.turn(&mut tasks, &mut |n| chance.below(n)) {
                // Whatever was short, somebody goes.
                let busy: Vec<SpaceId> = tasks.iter().map(|task| task.space).collect();
                if let Some(victim) = self.memory.keys().copied().find(|space| !busy.contains(space)) {
                    id += 1;
                    tasks.push(self.exit(id, victim));
                }
            }
        }
        self.check(&[]);
    }

    pub(crate) fn exit(&mut self, id: u32, space: SpaceId) -> Task {
        self.spaces.get_mut(space).unwrap().is_exiting = true;
        self.task(id, space, Operation::Exit(Unmap::everything()))
    }

    pub(crate) fn task(&self, id: u32, space: SpaceId, operation: Operation) -> Task {
        let (supply, access) = (Supply::default(), Access::Read);
        let (sleeps_until, waits_for_pass) = (self.now, false);
        Task { id, space, operation, supply, sleeps_until, waits_for_pass, access, page: Vpn(0) }
    }

    pub(crate) fn access(&self, id: u32, space: SpaceId, page: Vpn, access: Access) -> Task {
        let touch = Touch::pages(PageRange::new(page, 1), access);
        Task { access, page, ..self.task(id, space, Operation::Touch(touch)) }
    }

    /// Takes a step of kswapd, or of the task that `chance` picks; a task that has come to its end is taken out.
    /// When no task can go on, time passes.
    pub(crate) fn turn(&mut self, tasks: &mut Vec<Task>, chance: &mut dyn FnMut(u64) -> u64) -> Option<(u32, Fate)> {
        self.steps += 1;
        if !self.mm.memory.take_woken(Daemon::Kswapd).is_empty() {
            self.kswapd = Some(self.now);
        }
        let ready: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].sleeps_until <= self.now).collect();
        let kswapd_is_ready = self.kswapd.is_some_and(|until| until <= self.now);
        let mut ended = None;
        if kswapd_is_ready && (ready.is_empty() || self.steps.is_multiple_of(3)) {
            self.step_kswapd();
        } else if !ready.is_empty() {
            let at = ready[usize::try_from(chance(ready.len() as u64)).unwrap() % ready.len()];
            if let Some(fate) = self.step(&mut tasks[at]) {
                let task = tasks.remove(at);
                ended = Some((task.id, fate));
            }
        } else {
            let sleeps = tasks.iter().map(|task| task.sleeps_until).chain(self.kswapd);
            self.now = sleeps.min().expect("somebody waits for a time");
        }
        self.wake_after_pass(tasks);
        for space in self.mm.memory.take_killed() {
            self.killed.insert(space);
            tasks.iter_mut().filter(|task| task.space == space).for_each(|task| task.supply.open_reserves());
        }
        if self.steps.is_multiple_of(self.check_every) {
            self.check(tasks);
        }
        ended
    }

    pub(crate) fn step_kswapd(&mut self) {
        let cx = Cx::new(CpuId(1), self.now, &self.prices, &mut self.counters);
        let mut cx = cx.acting_for(ControlId(KSWAPD));
        let step = self.mm.step_kswapd(&mut self.spaces, &mut cx, NodeId(0));
        self.now = cx.now();
        self.kswapd = goes_on(&step, self.now);
    }

    /// A step of a task; how it ended, if it has.
    pub(crate) fn step(&mut self, task: &mut Task) -> Option<Fate> {
        let Self { mm, spaces, prices, counters, fails_alloc, injected, .. } = self;
        let mut cx = Cx::new(CpuId(0), self.now, prices, counters).acting_for(ControlId(task.id));
        if task.supply.is_busy() {
            if let Step::Block(wait) = task.supply.step(mm, spaces, &mut cx) {
                task.sleeps_until = until(wait, cx.now());
                task.waits_for_pass = matches!(wait, Wait::Pass { .. });
            }
            self.now = cx.now();
            return None;
        }
        task.supply.lend(&mut cx);
        if let (Some(after), false) = (fails_alloc.take(), matches!(task.operation, Operation::Exit(_))) {
            *injected += u64::from(cx.fail_alloc(after));
        }
        let space = spaces.get_mut(task.space).unwrap();
        let mut child = None;
        let step = match &mut task.operation {
            Operation::Touch(touch) => match touch.step(mm, space, &mut cx, Time(0)) {
                Step::Done(FaultDone::Handled) => Step::Done(Fate::Done),
                Step::Done(FaultDone::OutOfMemory) => {
                    touch.abort(mm, space, &mut cx);
                    Step::Done(Fate::OutOfMemory)
                }
                Step::Done(FaultDone::BusError) => {
                    touch.abort(mm, space, &mut cx);
                    Step::Done(Fate::BusError)
                }
                Step::Done(FaultDone::BadAddress) => panic!("all of it is mapped"),
                Step::More => Step::More,
                Step::Block(wait) => Step::Block(wait),
            },
            Operation::Fork(fork) => match fork.step(mm, space, &mut cx, Time(0)) {
                Step::Done(Ok(made)) => {
                    child = Some(made);
                    Step::Done(Fate::Done)
                }
                Step::Done(Err(_)) => Step::Done(Fate::OutOfMemory),
                Step::More | Step::Block(_) => Step::More,
            },
            Operation::Discard(unmap) | Operation::Exit(unmap) => match unmap.step(mm, space, &mut cx, Time(0)) {
                Step::Done(_) => Step::Done(Fate::Done),
                Step::More | Step::Block(_) => Step::More,
            },
        };
        let again = task.supply.settle(mm, &mut cx);
        self.now = cx.now();
        match step {
            _ if again => None,
            Step::More => None,
            Step::Block(wait) => {
                task.sleeps_until = until(wait, self.now);
                None
            }
            Step::Done(fate) => {
                self.has_ended(task, child, fate);
                Some(fate)
            }
        }
    }

    fn has_ended(&mut self, task: &Task, child: Option<AddressSpace>, fate: Fate) {
        match &task.operation {
            Operation::Touch(_) if fate == Fate::Done => self.use_page(task),
            Operation::Touch(_) | Operation::Discard(_) => {}
            Operation::Fork(_) => {
                if let Some(child) = child {
                    let inherited = self.memory[&task.space].clone();
                    let id = self.spaces.add(child);
                    self.memory.insert(id, inherited);
                }
            }
            Operation::Exit(_) => {
                let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters);
                self.spaces.take(task.space).end(&mut self.mm, &mut cx);
                self.memory.remove(&task.space);
            }
        }
    }

    /// User code reads what it wrote, and stores something else.
    fn use_page(&mut self, task: &Task) {
        let pte = self.spaces.get(task.space).unwrap().tables.lookup(task.page);
        assert!(pte.is_present(), "it was just touched");
        let written = &mut self.memory.get_mut(&task.space).unwrap().1;
        let expected = written.get(&task.page).copied();
        if pte.is_zero_page() {
            assert_eq!(expected, None, "{:?} was written", task.page);
            return;
        }
        let within = if pte.is_huge() { u32::try_from(task.page.0 % 512).unwrap() } else { 0 };
        let pfn = pte.pfn().plus(within);
        assert_eq!(self.mm.memory.frames.content(pfn), expected.unwrap_or(0), "{:?} at {:?}", task.page, pte);
        if task.access == Access::Write {
            assert!(pte.is_writable() && pte.is_dirty());
            self.writes += 1;
            self.mm.memory.frames.store(pfn, self.writes);
            written.insert(task.page, self.writes);
        }
    }

    /// All memory is compacted (`vm.compact_memory`), while nobody else does anything.
    pub(crate) fn compact(&mut self) {
        let mut compact = CompactMemory::default();
        loop {
            let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters).acting_for(ControlId(1));
            let step = compact.step(&mut self.mm, &mut self.spaces, &mut cx);
            self.now = cx.now();
            walk(&self.mm).unwrap();
            match step {
                Step::More => {}
                Step::Block(wait) => self.now = self.now.max(until(wait, self.now)),
                Step::Done(()) => return,
            }
        }
    }

    /// Frames of the swap cache.
    pub(crate) fn cached(&self) -> Vec<(mm::folio::pte::SwapSlot, Pfn)> {
        let frames = (0..self.mm.memory.frames.len()).map(Pfn);
        let mut cached: Vec<_> = frames.filter_map(|pfn| Some((self.mm.swap.slot_of(pfn)?, pfn))).collect();
        cached.sort_unstable();
        cached
    }

    /// Every frame is somebody's, every slot is named as often as it counts.
    pub(crate) fn check(&self, tasks: &[Task]) {
        walk(&self.mm).unwrap();
        let mut spaces: Vec<&AddressSpace> = self.spaces.iter().map(|(_, space)| space).collect();
        let mut controls = vec![
            (ControlId(KSWAPD), self.mm.kswapds[NodeId(0)].holdings()),
            (ControlId(KCOMPACTD), self.mm.kcompactd_holdings(NodeId(0))),
            (ControlId(KHUGEPAGED), self.mm.khugepaged.holdings()),
            (ControlId(REPORTER), self.mm.reporter_holdings()),
            (ControlId(COMPACT), self.compact.as_ref().map_or_else(Holdings::default, CompactMemory::holdings)),
        ];
        for task in tasks {
            let space = self.spaces.get(task.space).unwrap();
            let mut holdings = match &task.operation {
                Operation::Touch(touch) => touch.holdings(space),
                Operation::Fork(fork) => fork.holdings(),
                Operation::Discard(unmap) | Operation::Exit(unmap) => unmap.holdings(),
            };
            holdings.add(task.supply.holdings());
            if let Operation::Fork(fork) = &task.operation {
                spaces.extend(fork.child());
            }
            controls.push((ControlId(task.id), holdings));
        }
        let others = walk_owners(&self.mm, &Owners { spaces, controls }).unwrap();
        assert!(others.iter().eq(self.atomic.keys()), "what the kernel has for itself");
    }

    /// Nothing is left but what stays for others: slabs.
    pub(crate) fn is_empty(&mut self) {
        // What is being written when its last user ends stays in the swap cache until somebody needs memory.
        let mut cx = Cx::new(CpuId(0), self.now, &self.prices, &mut self.counters);
        self.mm.lru_add_drain_all(&mut cx);
        self.check(&[]);
        for event in self.mm.memory.take_extfrag() {
            assert!(self.fell_back.count(event.kind(), 1), "{event:?}");
        }
        assert_eq!(&self.fell_back, self.counters.extfrag(), "counts are those of the trace");
        let mut left = 0;
        for pfn in (0..self.mm.memory.frames.len()).map(Pfn) {
            match self.mm.memory.frames.get(pfn) {
                Frame::Anon { .. } => {
                    assert!(self.mm.swap.slot_of(pfn).is_some(), "frame {pfn} is nobody's");
                    left += 1;
                }
                Frame::PageTable | Frame::Kernel { .. } | Frame::Isolated { .. } => panic!("frame {pfn} is left"),
                _ => {}
            }
        }
        assert_eq!(self.mm.swap.total() - self.mm.swap.free(), left, "slots of what is left");
    }
}

/// When a daemon takes its next step; None if it waits to be woken.
pub(crate) fn goes_on(step: &Step<()>, now: Time) -> Option<Time> {
    match *step {
        Step::More => Some(now),
        Step::Block(Wait::Queue) => None,
        Step::Block(wait) => Some(until(wait, now)),
        Step::Done(()) => unreachable!("a daemon has no end"),
    }
}

/// The instant at which a waiter looks again: nothing tells it that a folio is unlocked.
pub(crate) fn until(wait: Wait, now: Time) -> Time {
    match wait {
        Wait::Until(until) | Wait::Io { until, .. } | Wait::Pass { until, .. } => until,
        Wait::Folio(_) => now + Picos::from_micros(5),
        Wait::Queue | Wait::Yield => panic!("nobody would wake it"),
    }
}
