//! The real one beside its twin: each operation is done by both, and what came of it compared.

use std::collections::BTreeMap;

use mm::{
    AllocRequest, FamilyId, Frame, Mark, Mm, Settings, Variant,
    address_space::{AddressSpace, MMAP_BASE},
    cost::{Cx, Prices, Work},
    event::Counters,
    fault::Access,
    fork, step,
    thp::ThpEnabled,
    touch, unmap,
    vma::{HugeAdvice, PageRange},
};
use units::{Bytes, CpuId, NodeId, Order, Pfn, Picos, Time, Vpn};

use crate::{
    model::Wish,
    operations::{self, Touch},
    processes::{Store, World},
};

/// What frames hold before anybody clears them.
const DIRT: u64 = u64::MAX;

#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) mm: Mm,
    pub(crate) spaces: BTreeMap<u32, AddressSpace>,
    pub(crate) twin: World,
    /// What the kernel has allocated for itself, oldest first.
    pub(crate) live: Vec<Pfn>,
    pub(crate) running: Vec<Running>,
    pub(crate) counters: Counters,
    prices: Prices,
    next_process: u32,
    next_value: u32,
}

/// An operation between two steps, and the process and the CPU that it is for.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) id: u32,
    pub(crate) cpu: u32,
    pub(crate) work: Operation,
}

#[derive(Clone)]
pub(crate) enum Operation {
    Touch(touch::Touch, Touch),
    Unmap(unmap::Unmap, operations::Unmap),
    Fork(fork::Fork, operations::Fork),
}

impl Running {
    /// May others not change the process's mappings (the mmap lock is held for read)?
    fn reads(&self) -> bool {
        matches!(&self.work, Operation::Touch(_, twin) if twin.holds.is_some())
    }

    /// May others not even look at them (it is held for write)?
    fn writes(&self) -> bool {
        !matches!(&self.work, Operation::Touch(..))
    }

    /// Frames that it owns.
    fn held(&self) -> Vec<u32> {
        match &self.work {
            Operation::Touch(_, twin) => twin.holds.into_iter().flat_map(|(frame, table)| [frame, table]).collect(),
            Operation::Unmap(_, twin) => twin.gather.held().collect(),
            Operation::Fork(..) => Vec::new(),
        }
    }
}

fn pages_of((start, end): (u64, u64)) -> PageRange {
    PageRange { start: Vpn(start), end: Vpn(end) }
}

impl Pair {
    pub(crate) fn new(machine: &mm::MachineSpec, rules: Variant, settings: &Settings, enabled: ThpEnabled) -> Self {
        let mut mm = Mm::new(machine, rules, settings);
        mm.thp.enabled = enabled;
        mm.frames.keep_contents(DIRT);
        let mut twin = World::new(machine, rules, settings);
        twin.enabled = enabled;
        let pair = Self {
            mm,
            spaces: BTreeMap::new(),
            twin,
            live: Vec::new(),
            running: Vec::new(),
            counters: Counters::default(),
            // Only pages take time, so that the twin can say how far a step goes.
            prices: Prices::new(|work| Picos(u64::from(matches!(work, Work::UserTouch | Work::PteScan)))),
            next_process: 0,
            next_value: 0,
        };
        pair.compare();
        pair
    }

    // ---- The kernel's own memory.

    pub(crate) fn alloc(&mut self, cpu: u32, wish: Wish) {
        let request = AllocRequest {
            order: Order(u8::try_from(wish.order).unwrap()),
            mobility: wish.mobility,
            highest: wish.highest,
            node: NodeId(wish.node),
            this_node_only: wish.only,
            mark: Mark::Low,
        };
        let Self { mm, counters, prices, .. } = self;
        let got = mm.alloc(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), &request);
        let expected = self.twin.memory.alloc(cpu as usize, wish);
        assert_eq!(got.map(|pfn| pfn.0), expected, "{wish:?} on CPU {cpu}");
        self.live.extend(got);
    }

    pub(crate) fn free(&mut self, cpu: u32, at: usize) {
        if at < self.live.len() {
            let pfn = self.live.remove(at);
            let Self { mm, counters, prices, .. } = self;
            let order = mm.frames.order_of(mm.frames.get(pfn));
            mm.free(&mut Cx::new(CpuId(cpu), Time(0), prices, counters), pfn, order);
            self.twin.memory.free(cpu as usize, pfn.0);
        }
    }

    /// A block becomes memory that could be migrated.
    pub(crate) fn make_movable(&mut self, at: usize) {
        if let Some(pfn) = self.live.get(at).copied() {
            let order = self.mm.frames.order_of(self.mm.frames.get(pfn));
            let vpn = Vpn(u64::from(pfn.0));
            self.mm.frames.set(pfn, Frame::Anon { family: FamilyId(4095), vpn, order });
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
        let mut cx = Cx::new(CpuId(cpu), Time(0), prices, counters);
        let range = spaces.get_mut(&id).unwrap().mmap(mm, &mut cx, pages);
        assert_eq!(range.ok().map(|range| range.start.0), twin.map(id, pages));
    }

    pub(crate) fn advise(&mut self, cpu: u32, id: u32, range: (u64, u64), advice: HugeAdvice) {
        let Self { mm, counters, prices, spaces, twin, .. } = self;
        let mut cx = Cx::new(CpuId(cpu), Time(0), prices, counters);
        let result = spaces.get_mut(&id).unwrap().madvise(mm, &mut cx, pages_of(range), advice);
        assert_eq!(result.is_ok(), twin.advise(id, range, advice), "{result:?}");
    }

    pub(crate) fn touch(&mut self, cpu: u32, id: u32, (next, end): (u64, u64), access: Access) {
        self.next_value += 1;
        let store = Store { value: self.next_value, upper: self.next_value.is_multiple_of(3) };
        let store = (access == Access::Write).then_some(store);
        let real = touch::Touch::pages(pages_of((next, end)), access);
        let work = Operation::Touch(real, Touch { next, end, store, holds: None });
        self.running.push(Running { id, cpu, work });
    }

    pub(crate) fn unmap(&mut self, cpu: u32, id: u32, range: (u64, u64)) {
        let work = Operation::Unmap(unmap::Unmap::new(pages_of(range)), operations::Unmap::new(range));
        self.running.push(Running { id, cpu, work });
    }

    pub(crate) fn fork(&mut self, cpu: u32, id: u32) {
        let work = Operation::Fork(fork::Fork::new(), operations::Fork::new(self.next_process));
        self.next_process += 1;
        self.running.push(Running { id, cpu, work });
    }

    /// Takes one step of an operation, of `most` pages.
    pub(crate) fn advance(&mut self, which: usize, most: u64) {
        let mut running = self.running.remove(which);
        if !self.step(&mut running, most) {
            self.running.insert(which, running);
        }
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
        let Running { id, cpu, work } = running;
        let space = spaces.get_mut(id).unwrap();
        let mut cx = Cx::new(CpuId(*cpu), Time(0), prices, counters);
        let (cpu, horizon) = (*cpu as usize, Time(most));
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
                assert_eq!(real.is_in_fault(), model.holds.is_some() || came_to.is_some_and(is_failure));
                came_to.is_some()
            }
            Operation::Unmap(real, model) => {
                let is_done = is_done(&real.step(mm, space, &mut cx, horizon), Result::is_ok);
                assert_eq!(is_done, twin.unmap(cpu, *id, model, most).then_some(true));
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
        let mut cx = Cx::new(CpuId(running.cpu), Time(0), prices, counters);
        let (cpu, space) = (running.cpu as usize, spaces.get_mut(&running.id).unwrap());
        match running.work {
            Operation::Touch(mut real, mut model) => {
                real.abort(mm, space, &mut cx);
                twin.abort_touch(cpu, &mut model);
            }
            Operation::Unmap(mut real, mut model) => {
                real.abort(mm, &mut cx);
                twin.finish(cpu, &mut model.gather);
            }
            Operation::Fork(mut real, model) => {
                real.abort(mm, &mut cx);
                if twin.processes.contains_key(&model.child) {
                    twin.exit(cpu, model.child);
                }
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

    /// Frames that no process owns, in order.
    pub(crate) fn owned_by_others(&self) -> Vec<u32> {
        let held = self.running.iter().flat_map(Running::held);
        let mut all: Vec<u32> = self.live.iter().map(|pfn| pfn.0).chain(held).collect();
        all.sort_unstable();
        all
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
    mm.frames.store(pfn, word.into(mm.frames.content(pfn)));
}
