//! The real one beside its twin: each operation is done by both, and what came of it compared.

use std::collections::BTreeMap;

use memory::{
    cost::{Prices, Work},
    cx::Cx,
    event::Counters,
    frame::{ControlId, FrameFlag, Holdings},
    news::Daemon,
    slab::{Cache, Object},
    step,
};
use mm::{
    Mm, Spaces,
    fault::{Access, touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        fork, unmap,
        vma::{HugeAdvice, PageRange},
    },
    thp::ThpEnabled,
    whole::check::Owners,
};
use rules::{
    gfp::{AllocRequest, Mark},
    machine::MachineSpec,
    variant::Variant,
    zone::Settings,
};
use units::{Bytes, CpuId, NodeId, Order, Pfn, Picos, Time, Vpn};

use crate::{
    fork as twin_fork,
    kswapd::Then,
    model::Wish,
    processes::{Store, World},
    touch as twin_touch, unmap as twin_unmap,
};

/// Contents of frames before they are cleared.
const DIRT: u64 = u64::MAX;

#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) mm: Mm,
    pub(crate) spaces: BTreeMap<u32, AddressSpace>,
    pub(crate) twin: World,
    /// Frames that the kernel has allocated for itself, oldest first.
    pub(crate) live: Vec<Pfn>,
    /// Kernel objects that belong to no process, with their kinds, oldest first.
    pub(crate) objects: Vec<(Object, Cache)>,
    pub(crate) running: Vec<Running>,
    pub(crate) counters: Counters,
    prices: Prices,
    next_process: u32,
    next_value: u32,
    next_control: u32,
    machine: MachineSpec,
    settings: Settings,
}

/// An operation between two steps, and the process and the CPU that it is for.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) id: u32,
    pub(crate) cpu: u32,
    /// The owner that its frames record.
    pub(crate) control: ControlId,
    pub(crate) work: Operation,
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a sequence has few at a time")]
pub(crate) enum Operation {
    Touch(touch::Touch, twin_touch::Touch),
    Unmap(unmap::Unmap, twin_unmap::Unmap),
    Fork(fork::Fork, twin_fork::Fork),
}

impl Running {
    /// May others not change the process's mappings (the mmap lock is held for read)?
    fn reads(&self) -> bool {
        matches!(&self.work, Operation::Touch(_, twin) if twin.fault.is_some())
    }

    /// May others not even look at them (it is held for write)?
    fn writes(&self) -> bool {
        !matches!(&self.work, Operation::Touch(..))
    }

    /// The holdings of the operation, which its twin must have too.
    fn holdings(&self, space: &AddressSpace) -> Holdings {
        let (holdings, mut held, objects) = match &self.work {
            Operation::Touch(real, twin) => (real.holdings(space), twin.held(), &[][..]),
            Operation::Unmap(real, twin) => (real.holdings(), twin.held(), &twin.objects[..]),
            Operation::Fork(real, twin) => {
                let undo = twin.undo.as_ref();
                let objects = undo.map_or(&[][..], |undo| &undo.objects);
                (real.holdings(), undo.map_or(Vec::new(), twin_unmap::Unmap::held), objects)
            }
        };
        let says = holdings.isolated.iter().chain(&holdings.gathered).map(|held| held.pfn.0);
        let mut says: Vec<u32> = says.collect();
        says.sort_unstable();
        held.sort_unstable();
        assert_eq!(says, held);
        assert!(holdings.objects.iter().map(|object| object.slab().0).eq(objects.iter().copied()));
        holdings
    }
}

fn request(wish: Wish) -> AllocRequest {
    let order = Order(u8::try_from(wish.order).unwrap());
    AllocRequest {
        order,
        mobility: wish.mobility,
        highest: wish.highest,
        this_node_only: wish.only,
        mark: Mark::Low,
        urgency: wish.urgency,
        wakes_kswapd: wish.wakes,
        reclaims: wish.reclaims,
        ..AllocRequest::gfp_kernel(NodeId(wish.node))
    }
}

fn pages_of((start, end): (u64, u64)) -> PageRange {
    PageRange { start: Vpn(start), end: Vpn(end) }
}

impl Pair {
    pub(crate) fn new(
        machine: &rules::machine::MachineSpec,
        rules: Variant,
        settings: &Settings,
        enabled: ThpEnabled,
    ) -> Self {
        let mut mm = Mm::new(machine, rules, settings);
        mm.thp.enabled = enabled;
        mm.memory.frames.keep_contents(DIRT);
        let mut twin = World::new(machine, rules, settings);
        twin.enabled = enabled;
        let pair = Self {
            mm,
            spaces: BTreeMap::new(),
            twin,
            live: Vec::new(),
            objects: Vec::new(),
            running: Vec::new(),
            counters: Counters::default(),
            // Only pages take time, so that the twin can say how far a step goes.
            prices: Prices::new(|work| Picos(u64::from(matches!(work, Work::UserTouch | Work::PteScan)))),
            next_process: 0,
            next_value: 0,
            next_control: 1,
            machine: machine.clone(),
            settings: settings.clone(),
        };
        pair.compare();
        pair
    }

    // ---- The kernel's own memory.

    pub(crate) fn alloc(&mut self, cpu: u32, wish: Wish) {
        let Self { mm, counters, prices, .. } = self;
        let got = mm.memory.alloc(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), &request(wish));
        let expected = self.twin.memory.alloc(cpu as usize, wish);
        assert_eq!(got.map(|pfn| pfn.0).ok(), expected, "{wish:?} on CPU {cpu}");
        self.live.extend(got);
    }

    pub(crate) fn free(&mut self, cpu: u32, at: usize) {
        if at < self.live.len() {
            let pfn = self.live.remove(at);
            let Self { mm, counters, prices, .. } = self;
            let order = mm.memory.frames.order_of(mm.memory.frames.get(pfn));
            mm.memory.free(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), pfn, order);
            self.twin.memory.free(cpu as usize, pfn.0);
        }
    }

    /// One more object of a kind; false when memory is out.
    pub(crate) fn alloc_object(&mut self, cpu: u32, cache: Cache) -> bool {
        let Self { mm, counters, prices, .. } = self;
        let got = mm.memory.alloc_object(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), cache);
        let expected = self.twin.new_object(cpu as usize, cache);
        assert_eq!(got.map(|object| object.slab().0).ok(), expected, "{cache:?} on CPU {cpu}");
        self.objects.extend(got.map(|object| (object, cache)));
        got.is_ok()
    }

    pub(crate) fn free_object(&mut self, cpu: u32, at: usize) {
        if at < self.objects.len() {
            let (object, _) = self.objects.remove(at);
            let Self { mm, counters, prices, .. } = self;
            mm.memory.free_object(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), object);
            self.twin.free_object(cpu as usize, object.slab().0);
        }
    }

    /// A CPU takes what lies idle out of its arrays, if there are any; says when it will do so again.
    pub(crate) fn reap(&mut self, cpu: u32, now: Time) -> Option<Time> {
        let Self { mm, counters, prices, .. } = self;
        mm.memory.slabs.arrays()?;
        let until = loop {
            match mm.memory.step_cache_reap(&mut Cx::new(CpuId(cpu), now, prices, counters)) {
                step::Step::More => {}
                step::Step::Block(step::Wait::Until(until)) => break until,
                other => panic!("it has no end and waits for nothing but time: {other:?}"),
            }
        };
        assert_eq!(until.0, self.twin.reap(cpu as usize, now.0), "CPU {cpu} at {now:?}");
        Some(until)
    }

    pub(crate) fn objects_of(&self, cache: Cache) -> usize {
        self.objects.iter().filter(|(_, known)| *known == cache).count()
    }

    /// A request is about to fail, and gets what was kept for atomic ones.
    pub(crate) fn unreserve(&mut self, wish: Wish, force: bool) {
        let Self { mm, counters, prices, .. } = self;
        let mut cx = Cx::new(CpuId(0), Time(0), prices, counters);
        let got = mm.memory.unreserve_high_atomic(&mut cx, &request(wish), force);
        assert_eq!(got, self.twin.memory.give_up_kept(wish, force), "{wish:?}");
    }

    /// A node's kswapd takes a step; says whether there is more to do.
    pub(crate) fn step_kswapd(&mut self, node: usize) -> bool {
        let unborn = self.running.iter().filter_map(|running| match &running.work {
            Operation::Fork(real, model) => real.child().map(|_| model.child),
            _ => None,
        });
        let unborn = unborn.collect();
        let Self { mm, counters, prices, twin, spaces, .. } = self;
        let woken: Vec<_> = mm.memory.take_woken(Daemon::Kswapd).into_iter().map(|node| node.0 as usize).collect();
        assert_eq!(woken, std::mem::take(&mut twin.memory.woken));
        // It may change anybody's page tables.
        let mut all = Spaces::default();
        let lent: Vec<_> = std::mem::take(spaces).into_iter().map(|(id, space)| (id, all.add(space))).collect();
        let id = NodeId(u32::try_from(node).unwrap());
        let step = mm.step_kswapd(&mut all, &mut Cx::new(CpuId(0), Time(0), prices, counters), id);
        spaces.extend(lent.into_iter().map(|(id, number)| (id, all.take(number))));
        let came_to = match step {
            step::Step::More | step::Step::Done(()) => Then::More,
            step::Step::Block(step::Wait::Queue) => Then::Sleep,
            step::Step::Block(step::Wait::Until(_)) => Then::Nap,
            step::Step::Block(wait) => panic!("kswapd sleeps, but waits for {wait:?}"),
        };
        assert_eq!(came_to, twin.step_kswapd(node, &unborn));
        came_to == Then::More
    }

    /// Writes another `min_free_kbytes`.
    pub(crate) fn set_min_free(&mut self, min_free_kbytes: u64) {
        let settings = Settings { min_free_kbytes, ..self.settings.clone() };
        let Self { mm, counters, prices, machine, .. } = self;
        mm.apply_settings(&mut Cx::new(CpuId(0), Time(0), prices, counters), &machine.view(), &settings);
        self.twin.memory.set_marks(machine, &settings);
    }

    /// A block becomes memory that could be migrated: it stands for a page on an LRU list.
    pub(crate) fn make_movable(&mut self, at: usize) {
        if let Some(pfn) = self.live.get(at).copied() {
            self.mm.memory.frames.mark(pfn, FrameFlag::OnLru, true);
            self.twin.memory.taken.get_mut(&pfn.0).unwrap().on_lru = true;
        }
    }

    pub(crate) fn shrink_huge_zero(&mut self, cpu: u32) {
        let Self { mm, counters, prices, .. } = self;
        let freed = mm.shrink_huge_zero(&mut Cx::new(CpuId(cpu), Time(0), prices, counters));
        assert_eq!(freed, self.twin.shrink_huge_zero(cpu as usize));
    }

    // ---- Processes.

    pub(crate) fn start(&mut self, cpu: u32) {
        let id = self.next_process;
        let Self { mm, counters, prices, .. } = self;
        let space = AddressSpace::new(mm, &mut Cx::new(CpuId(cpu), Time(0), prices, counters), MMAP_BASE);
        assert_eq!(space.is_ok(), self.twin.start(cpu as usize, id, None));
        self.spaces.extend(space.ok().map(|space| (id, space)));
        self.next_process += 1;
    }

    /// Can a system call that changes the mappings of a process begin?
    pub(crate) fn may_write(&self, id: u32) -> bool {
        self.running.iter().all(|other| other.id != id || !(other.reads() || other.writes()))
    }

    /// Can a fault in a process begin, or go on?
    pub(crate) fn may_read(&self, id: u32) -> bool {
        self.running.iter().all(|other| other.id != id || !other.writes())
    }

    pub(crate) fn map(&mut self, cpu: u32, id: u32, pages: u64) {
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let cpu = CpuId(cpu);
        let mut cx = Cx::new(cpu, Time(0), prices, counters);
        let range = spaces.get_mut(&id).unwrap().mmap(mm, &mut cx, pages);
        assert_eq!(range.ok().map(|range| range.start.0), twin.map(cpu.0 as usize, id, pages));
    }

    pub(crate) fn advise(&mut self, cpu: u32, id: u32, range: (u64, u64), advice: HugeAdvice) {
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let mut cx = Cx::new(CpuId(cpu), Time(0), prices, counters);
        let result = spaces.get_mut(&id).unwrap().madvise(mm, &mut cx, pages_of(range), advice);
        assert_eq!(result.is_ok(), twin.advise(cpu as usize, id, range, advice), "{result:?}");
    }

    pub(crate) fn touch(&mut self, cpu: u32, id: u32, (next, end): (u64, u64), access: Access) {
        self.next_value += 1;
        let store = Store { value: self.next_value, upper: self.next_value.is_multiple_of(3) };
        let store = (access == Access::Write).then_some(store);
        let real = touch::Touch::pages(pages_of((next, end)), access);
        self.begin(cpu, id, Operation::Touch(real, twin_touch::Touch { next, end, store, fault: None }));
    }

    pub(crate) fn unmap(&mut self, cpu: u32, id: u32, range: (u64, u64)) {
        self.begin(cpu, id, Operation::Unmap(unmap::Unmap::new(pages_of(range)), twin_unmap::Unmap::new(range)));
    }

    pub(crate) fn fork(&mut self, cpu: u32, id: u32) {
        self.begin(cpu, id, Operation::Fork(fork::Fork::new(), twin_fork::Fork::new(self.next_process)));
        self.next_process += 1;
    }

    fn begin(&mut self, cpu: u32, id: u32, work: Operation) {
        let control = ControlId(self.next_control);
        self.next_control += 1;
        self.running.push(Running { id, cpu, control, work });
    }

    /// Takes one step of an operation, of `most` pages.
    pub(crate) fn advance(&mut self, which: usize, most: u64) {
        let mut running = self.running.remove(which);
        if !self.step(&mut running, most) {
            self.running.insert(which, running);
        }
    }

    /// Takes one run after the other, and looks after each.
    pub(crate) fn run_to_end(&mut self) {
        while !self.running.is_empty() {
            self.advance(0, 0);
            self.compare();
        }
        self.compare_contents();
    }

    /// The process ends, and with it what it was doing.
    pub(crate) fn exit(&mut self, cpu: u32, id: u32) {
        let (own, others) = std::mem::take(&mut self.running).into_iter().partition(|running| running.id == id);
        self.running = others;
        for running in own {
            self.abort(running);
        }
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let mut cx = Cx::new(CpuId(cpu), Time(0), prices, counters);
        spaces.remove(&id).unwrap().exit(mm, &mut cx);
        twin.exit(cpu as usize, id);
    }

    /// True at the end.
    fn step(&mut self, running: &mut Running, most: u64) -> bool {
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let Running { id, cpu, control, work } = running;
        let space = spaces.get_mut(id).unwrap();
        let mut cx = Cx::new(CpuId(*cpu), Time(0), prices, counters).acting_for(*control);
        // With no time at all a touch would stop between an access and its fault, which is one to its twin.
        let most = if let Operation::Touch(..) = work { most.max(1) } else { most };
        let (cpu, horizon) = (*cpu as usize, Time(most));
        twin.memory.cut = false;
        match work {
            Operation::Touch(real, model) => {
                let first = real.next().0 / Bytes::PAGE.0;
                let came_to = match real.step(mm, space, &mut cx, horizon) {
                    step::Step::More => None,
                    step::Step::Block(wait) => panic!("{wait:?}"),
                    step::Step::Done(done) => Some(done),
                };
                for page in first..real.next().0 / Bytes::PAGE.0 {
                    if let Some(word) = model.store {
                        store(mm, space, page, word);
                    }
                }
                let expected = twin.touch(cpu, *id, model, most);
                assert_eq!((came_to, real.next().0 / Bytes::PAGE.0), (expected, model.next));
                assert_eq!(real.is_in_fault(), model.fault.is_some() || came_to.is_some_and(is_failure));
                came_to.is_some()
            }
            Operation::Unmap(real, model) => {
                let is_done = is_done(&real.step(mm, space, &mut cx, horizon), Result::is_ok);
                assert_eq!(is_done, twin.unmap(cpu, *id, model, most));
                is_done.is_some()
            }
            Operation::Fork(real, model) => {
                let step = real.step(mm, space, &mut cx, horizon);
                let is_done = is_done(&step, Result::is_ok);
                assert_eq!(is_done, twin.fork(cpu, *id, model, most));
                if let step::Step::Done(Ok(child)) = step {
                    spaces.insert(model.child, child);
                }
                is_done.is_some()
            }
        }
    }

    fn abort(&mut self, running: Running) {
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let mut cx = Cx::new(CpuId(running.cpu), Time(0), prices, counters).acting_for(running.control);
        let (cpu, space) = (running.cpu as usize, spaces.get_mut(&running.id).unwrap());
        match running.work {
            Operation::Touch(mut real, mut model) => {
                real.abort(mm, space, &mut cx);
                twin.abort_touch(cpu, &mut model);
            }
            Operation::Unmap(mut real, mut model) => {
                real.abort(mm, &mut cx);
                twin.abort_unmap(cpu, &mut model);
            }
            Operation::Fork(mut real, mut model) => {
                real.abort(mm, &mut cx);
                twin.abort_fork(cpu, &mut model);
            }
        }
    }

    /// Processes that are born and not dying.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.spaces.keys().copied().collect()
    }

    /// Every address space, also of those who are not born yet.
    pub(crate) fn all_spaces(&self) -> impl Iterator<Item = (u32, &AddressSpace)> {
        let unborn = self.running.iter().filter_map(|running| match &running.work {
            Operation::Fork(real, model) => real.child().map(|child| (model.child, child)),
            _ => None,
        });
        self.spaces.iter().map(|(id, space)| (*id, space)).chain(unborn)
    }

    /// Everybody who has frames, and, in order, those that the kernel has for itself.
    pub(crate) fn owners(&self) -> (Owners<'_>, Vec<Pfn>) {
        let mut controls: Vec<(ControlId, Holdings)> = Vec::new();
        for running in &self.running {
            controls.push((running.control, running.holdings(&self.spaces[&running.id])));
        }
        let objects = self.objects.iter().map(|(object, _)| *object).collect();
        controls.push((ControlId(0), Holdings { objects, ..Holdings::default() }));
        let mut kernel = self.live.clone();
        kernel.sort_unstable();
        let spaces = self.all_spaces().map(|(_, space)| space).collect();
        (Owners { spaces, controls }, kernel)
    }
}

fn is_failure(done: mm::fault::FaultDone) -> bool {
    done != mm::fault::FaultDone::Handled
}

fn is_done<T>(step: &step::Step<T>, is_ok: impl Fn(&T) -> bool) -> Option<bool> {
    match step {
        step::Step::More => None,
        step::Step::Block(wait) => panic!("{wait:?}"),
        step::Step::Done(result) => Some(is_ok(result)),
    }
}

/// User code stores to a page that it has just touched.
fn store(mm: &mut Mm, space: &AddressSpace, page: u64, word: Store) {
    let pte = space.tables.lookup(Vpn(page));
    assert!(pte.is_writable(), "page {page} was written");
    let offset = if pte.is_huge() { u32::try_from(page % 512).unwrap() } else { 0 };
    let pfn = pte.pfn().plus(offset);
    mm.memory.frames.store(pfn, word.into(page, mm.memory.frames.content(pfn)));
}
