//! Linux: none; a small machine of two nodes, and a naive account of what its processes have stored.

use std::collections::BTreeMap;

use memory::{
    cost::Prices,
    cx::{Circumstances, Cx},
    event::{Counters, Event},
    frame::{ControlId, Holdings, SpaceId},
    step::{Step, Wait},
    tlb::Running,
};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{Variant, named},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Time, Vpn};

use crate::{
    Mm, Spaces,
    fault::{Access, FaultDone, touch::Touch},
    migrate::{
        misplaced::{Misplaced, Misplacement},
        to_node::{Moved, ToNode},
    },
    numa::numa_hint::HintScan,
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        fork::Fork,
        page_table::Pmd,
        unmap::Unmap,
        vma::PageRange,
    },
    thp::ThpEnabled,
    whole::check::{self, Owners},
};

pub(super) const HUGE: u64 = Order::HUGE.frames() as u64;
/// Frames of a node.
const FRAMES: u32 = 16 * Order::HUGE.frames();
/// The control that moves pages.
pub(super) const ME: ControlId = ControlId(7);
/// Any other one.
pub(super) const OTHER: ControlId = ControlId(8);

/// Two nodes of 32 MiB with a CPU each.
pub(super) struct World {
    pub(super) mm: Mm,
    pub(super) spaces: Spaces,
    pub(super) counters: Counters,
    pub(super) now: Time,
    /// The process that the CPU of node 1 runs.
    pub(super) runs: Option<SpaceId>,
    /// A child is half made, of which no check knows.
    is_forking: bool,
    /// Stores so far: each stores its number.
    stores: u64,
    /// The content of each page of each process.
    holds: BTreeMap<(SpaceId, Vpn), u64>,
}

impl World {
    pub(super) fn new(rules: &str) -> Self {
        Self::by(*named(rules))
    }

    pub(super) fn by(rules: Variant) -> Self {
        Self::with(rules, &[])
    }

    pub(super) fn with(rules: Variant, changed: &[(&str, &str)]) -> Self {
        let node = |id: u32| NodeSpec {
            id: NodeId(id),
            cpus: vec![CpuId(id)],
            distance: (0..2_u32).map(|to| if to == id { 10 } else { 20 }).collect(),
            zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * FRAMES), FRAMES)],
        };
        let machine =
            MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: (0..2).map(node).collect() };
        let mut settings = Settings { min_free_kbytes: 512, watermark_boost_factor: 0, ..Settings::default() };
        for (name, value) in changed {
            settings.set(name, value).unwrap();
        }
        let mut mm = Mm::new(&machine, rules, &settings);
        mm.memory.frames.keep_contents(u64::MAX);
        mm.thp.enabled = ThpEnabled::Always;
        let (spaces, counters) = (Spaces::default(), Counters::default());
        Self { mm, spaces, counters, now: Time(0), runs: None, is_forking: false, stores: 0, holds: BTreeMap::new() }
    }

    /// A step of a control, on the CPU of a node.
    pub(super) fn on<T>(
        &mut self,
        who: ControlId,
        node: u32,
        body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx) -> T,
    ) -> T {
        let prices = Prices::free();
        let (spaces, mut asked) = ([SpaceId(u32::MAX), self.runs.unwrap_or(SpaceId(u32::MAX))], Vec::new());
        let running = Running { spaces: &spaces, asked: &mut asked };
        let mut cx = Cx::new(CpuId(node), self.now, &prices, &mut self.counters);
        cx.set_circumstances(Circumstances { running: Some(running), ..Circumstances::plain(who, 0) });
        body(&mut self.mm, &mut self.spaces, &mut cx)
    }

    pub(super) fn process(&mut self) -> SpaceId {
        let space = self.on(OTHER, 0, |mm, _, cx| AddressSpace::new(mm, cx, MMAP_BASE)).unwrap();
        self.spaces.add(space)
    }

    /// Reserves `huge` huge ranges of a process that are not mapped to memory yet.
    pub(super) fn room(&mut self, id: SpaceId, huge: u64) -> PageRange {
        let room =
            self.on(OTHER, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().mmap(mm, cx, (huge + 1) * HUGE)).unwrap();
        PageRange::new(Vpn(room.start.0.next_multiple_of(HUGE)), huge * HUGE)
    }

    /// Stores to pages on a node's CPU, and notes what each holds.
    pub(super) fn write(&mut self, id: SpaceId, range: PageRange, node: u32) {
        self.write_while(id, range, node, |_| panic!("no page is on its way"));
        self.drain();
    }

    /// Stores to those pages of a range that a process has; while one of them is on its way, others run.
    pub(super) fn write_while(&mut self, id: SpaceId, range: PageRange, node: u32, mut others: impl FnMut(&mut Self)) {
        for vpn in (range.start.0..range.end.0).map(Vpn) {
            let mut touch = Touch::pages(PageRange::new(vpn, 1), Access::Write);
            // Bound: each step passes a phase, and each wait ends with a move.
            let done = loop {
                match self
                    .on(OTHER, node, |mm, spaces, cx| touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)))
                {
                    Step::More => {}
                    Step::Block(Wait::Folio(_)) => others(self),
                    Step::Block(wait) => panic!("{wait:?}"),
                    Step::Done(done) => break done,
                }
            };
            if done != FaultDone::Handled {
                assert_eq!(done, FaultDone::BadAddress, "there is memory");
                continue;
            }
            self.store(id, vpn);
        }
    }

    /// User code stores to a page that it has just faulted at.
    pub(super) fn store(&mut self, id: SpaceId, vpn: Vpn) {
        let pte = self.spaces.get(id).unwrap().tables.lookup(vpn);
        assert!(pte.is_accessible() && pte.is_writable(), "page {vpn:?} was stored to: {pte:?}");
        let part = if pte.is_huge() { u32::try_from(vpn.0 % HUGE).unwrap() } else { 0 };
        self.stores += 1;
        self.mm.memory.frames.store(pte.pfn().plus(part), self.stores);
        self.holds.insert((id, vpn), self.stores);
    }

    /// A task of a process begins to exist.
    pub(super) fn begin_to_balance(&mut self, task: ControlId, id: SpaceId) {
        self.mm.numa_begin(task, (id, self.spaces.get_mut(id).unwrap()), None);
    }

    /// A process gives up pages, and keeps the range (`MADV_DONTNEED`).
    pub(super) fn forget(&mut self, id: SpaceId, range: PageRange) {
        let mut unmap = Unmap::discard(range);
        while let Step::More | Step::Block(_) =
            self.on(OTHER, 0, |mm, spaces, cx| unmap.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)))
        {
        }
        self.holds.retain(|(owner, vpn), _| *owner != id || !range.contains(*vpn));
    }

    /// A child of a process, which holds what the parent does.
    pub(super) fn fork(&mut self, id: SpaceId) -> SpaceId {
        self.fork_while(id, |_| panic!("no page is on its way")).expect("there is memory")
    }

    /// A child of a process, while others run where a page is on its way; none where there is no memory.
    pub(super) fn fork_while(&mut self, id: SpaceId, mut others: impl FnMut(&mut Self)) -> Option<SpaceId> {
        let mut fork = Fork::new();
        // Bound: each step passes some of the parent's entries, and each wait ends with a move.
        let child = loop {
            match self.on(OTHER, 0, |mm, spaces, cx| fork.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX))) {
                Step::More => {}
                Step::Block(Wait::Folio(_)) => {
                    self.is_forking = true;
                    others(self);
                    self.is_forking = false;
                }
                Step::Block(wait) => panic!("{wait:?}"),
                Step::Done(child) => break child.ok()?,
            }
        };
        let child = self.spaces.add(child);
        let of_parent: Vec<_> =
            self.holds.range((id, Vpn(0))..=(id, Vpn(u64::MAX))).map(|(at, it)| (at.1, *it)).collect();
        self.holds.extend(of_parent.into_iter().map(|(vpn, content)| ((child, vpn), content)));
        Some(child)
    }

    pub(super) fn unmap(&mut self, id: SpaceId, range: PageRange) {
        self.on(OTHER, 0, |mm, spaces, cx| spaces.get_mut(id).unwrap().munmap(mm, cx, range)).unwrap();
        self.holds.retain(|(owner, vpn), _| *owner != id || !range.contains(*vpn));
    }

    pub(super) fn end(&mut self, id: SpaceId) {
        let space = self.spaces.take(id);
        self.on(OTHER, 0, |mm, _, cx| space.exit(mm, cx));
        self.holds.retain(|(owner, _), _| *owner != id);
    }

    /// Makes user code fault at a range.
    pub(super) fn hint(&mut self, id: SpaceId, range: PageRange) {
        let mut scan = HintScan::new(range);
        while self.on(OTHER, 0, |_, spaces, cx| scan.step(spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)))
            == Step::More
        {}
    }

    pub(super) fn is_huge(&self, id: SpaceId, vpn: Vpn) -> bool {
        matches!(self.spaces.get(id).unwrap().tables.pmd_of(vpn), Pmd::Huge(_))
    }

    pub(super) fn head(&self, id: SpaceId, vpn: Vpn) -> Pfn {
        self.spaces.get(id).unwrap().tables.lookup(vpn).pfn()
    }

    /// The nodes of a range's pages, each once.
    pub(super) fn nodes(&self, id: SpaceId, range: PageRange) -> Vec<u32> {
        let tables = &self.spaces.get(id).unwrap().tables;
        let of = |vpn| self.mm.memory.node_of(tables.lookup(Vpn(vpn)).pfn()).0;
        let mut nodes: Vec<u32> = (range.start.0..range.end.0).map(of).collect();
        nodes.dedup();
        nodes
    }

    pub(super) fn free(&self, node: u32) -> u64 {
        let zone = &self.mm.memory.zones()[node as usize];
        zone.free_frames() + zone.cpu_lists().iter().map(|pcp| u64::from(pcp.count())).sum::<u64>()
    }

    /// New folios of all CPUs go to their lists.
    pub(super) fn drain(&mut self) {
        self.on(OTHER, 0, |mm, _, cx| mm.lru_add_drain_all(cx));
    }

    pub(super) fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }

    /// Every frame is owned by one, every count is right, and every page holds what was stored to it.
    pub(super) fn check(&self, mine: Holdings) {
        if !self.is_forking {
            self.check_of(vec![(ME, mine)]);
        }
    }

    /// All of that, of what some controls hold.
    pub(super) fn check_of(&self, controls: Vec<(ControlId, Holdings)>) {
        check::walk(&self.mm).unwrap();
        let spaces = self.spaces.iter().map(|(_, space)| space).collect();
        check::walk_owners(&self.mm, &Owners { spaces, controls }).unwrap();
        for ((id, vpn), content) in &self.holds {
            let pte = self.spaces.get(*id).unwrap().tables.lookup(*vpn);
            let part = if pte.is_huge() { u32::try_from(vpn.0 % HUGE).unwrap() } else { 0 };
            assert_eq!(self.mm.memory.frames.content(pte.pfn().plus(part)), *content, "page {vpn:?} of {id:?}");
        }
    }

    /// Leaves every second frame of a node free, and no more.
    pub(super) fn fragment(&mut self, node: u32) {
        let request = AllocRequest::gfp_highuser_movable(NodeId(node)).this_node();
        let request = AllocRequest { reclaims: false, wakes_kswapd: false, ..request };
        let mut taken = Vec::new();
        while let Ok(frame) = self.on(OTHER, node, |mm, _, cx| mm.memory.alloc(cx, &request)) {
            taken.push(frame);
        }
        for frame in taken.iter().filter(|frame| frame.0 % 2 == 0) {
            self.on(OTHER, node, |mm, _, cx| mm.memory.free(cx, *frame, Order::BASE));
        }
    }

    /// Moves a range to a node, with everything walked after each step.
    pub(super) fn move_to_node(&mut self, id: SpaceId, range: PageRange, node: u32) -> Moved {
        let mut moving = ToNode::new(id, range, NodeId(node));
        // Bound: each step passes a page, or tries one for one of ten times.
        loop {
            let step = self.on(ME, 0, |mm, spaces, cx| moving.step(mm, spaces, cx));
            self.check(moving.holdings());
            match step {
                Step::More => {}
                Step::Done(moved) => return moved,
                Step::Block(wait) => panic!("{wait:?}"),
            }
        }
    }

    /// A step of a move, with everything walked after.
    pub(super) fn step(&mut self, moving: &mut Misplaced) -> Step<Misplacement> {
        let step = self.on(ME, 1, |mm, spaces, cx| moving.step(mm, spaces, cx));
        self.check(moving.holdings());
        step
    }

    /// Moves a page to a node, at which user code has faulted; how it ended.
    pub(super) fn migrate(&mut self, id: SpaceId, vpn: Vpn, node: u32) -> Misplacement {
        self.hint(id, PageRange::new(vpn, 1));
        let mut moving = Misplaced::new(id, vpn, NodeId(node));
        // Bound: ten passes of a few steps.
        loop {
            match self.step(&mut moving) {
                Step::More => {}
                Step::Done(done) => return done,
                Step::Block(Wait::Folio(head)) => panic!("folio {head} is locked by no one here"),
                Step::Block(wait) => panic!("{wait:?}"),
            }
        }
    }
}
