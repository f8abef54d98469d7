//! Linux: none; a small machine whose memory is fragmented on purpose, and checks after every step.

use memory::{
    cost::Prices,
    cx::Cx,
    event::{Counters, Event},
    frame::{ControlId, Holdings, SpaceId},
    step::Step,
};
use rules::{
    gfp::AllocRequest,
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::{self, Variant},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, NodeId, Order, Pfn, Time, Vpn};

use crate::{
    Mm, Spaces,
    compact::{CompactPriority, Compacted, DirectCompact, kcompactd::CompactMemory},
    fault::{Access, FaultDone, touch::Touch},
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        vma::PageRange,
    },
    thp::ThpEnabled,
    whole::check::{self, Owners},
};

/// The control that compacts.
pub(super) const ME: ControlId = ControlId(7);
/// Anybody else.
pub(super) const OTHER: ControlId = ControlId(8);

pub(super) struct Lab {
    pub(super) mm: Mm,
    pub(super) spaces: Spaces,
    pub(super) counters: Counters,
    pub(super) prices: Prices,
    /// The pages mapped: of a process, from a page on.
    pub(super) mapped: Vec<(SpaceId, PageRange)>,
    pub(super) now: Time,
}

pub(super) fn rules(name: &str) -> Variant {
    *variant::named(name)
}

impl Lab {
    /// A machine with one zone of `mib` MiB and 2 CPUs; its watermarks are as without huge pages.
    pub(super) fn new(mib: u32, rules: Variant) -> Self {
        let zone = ZoneSpec::whole(ZoneKind::Normal, Pfn(0), mib << 8);
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0), CpuId(1)], distance: vec![10], zones: vec![zone] };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let mut mm = Mm::new(
            &machine,
            rules,
            &Settings { min_free_kbytes: u64::from(mib) * 32, watermark_boost_factor: 0, ..Settings::default() },
        );
        mm.memory.frames.keep_contents(u64::MAX);
        mm.thp.enabled = ThpEnabled::Never;
        Self {
            mm,
            spaces: Spaces::default(),
            counters: Counters::default(),
            prices: Prices::free(),
            mapped: Vec::new(),
            now: Time(0),
        }
    }

    pub(super) fn step<T>(&mut self, who: ControlId, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx) -> T) -> T {
        let cpu = CpuId(u32::from(who != ME));
        let mut cx = Cx::new(cpu, self.now, &self.prices, &mut self.counters).acting_for(who);
        body(&mut self.mm, &mut self.spaces, &mut cx)
    }

    pub(super) fn process(&mut self) -> SpaceId {
        let space = self.step(OTHER, |mm, _, cx| AddressSpace::new(mm, cx, MMAP_BASE)).unwrap();
        self.spaces.add(space)
    }

    pub(super) fn map(&mut self, id: SpaceId, pages: u64) -> PageRange {
        let range = self.step(OTHER, |mm, spaces, cx| spaces.get_mut(id).unwrap().mmap(mm, cx, pages)).unwrap();
        self.mapped.push((id, range));
        range
    }

    /// Stores to some pages, and what each then holds.
    pub(super) fn write(&mut self, id: SpaceId, range: PageRange) {
        let mut touch = Touch::pages(range, Access::Write);
        loop {
            let step =
                self.step(OTHER, |mm, spaces, cx| touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
            match step {
                Step::More => {}
                Step::Done(FaultDone::Handled) => break,
                other => panic!("{other:?}"),
            }
        }
        for vpn in (range.start.0..range.end.0).map(Vpn) {
            let pfn = self.spaces.get(id).unwrap().tables.lookup(vpn).pfn();
            self.mm.memory.frames.store(pfn, content(id, vpn));
        }
    }

    /// Fills nearly all of memory with pages of two processes in turn, and ends the second: every second frame is free.
    pub(super) fn fragmented(mib: u32, rules: Variant) -> (Self, SpaceId) {
        Self::fragmented_every(mib, rules, 1)
    }

    /// A fragmented zone whose free runs have `run` pages.
    pub(super) fn fragmented_every(mib: u32, rules: Variant, run: u64) -> (Self, SpaceId) {
        let mut lab = Self::new(mib, rules);
        let (stays, goes) = (lab.process(), lab.process());
        // But for what the Min mark keeps, tables and VMAs.
        let zone = &lab.mm.memory.zones()[0];
        let pages = (zone.free_frames() * 199 / 200 - zone.marks.min.0 - 64) / 2 / run * run;
        let [one, two] = [stays, goes].map(|id| lab.map(id, pages));
        for at in (0..pages).step_by(usize::try_from(run).unwrap()) {
            for (id, range) in [(stays, one), (goes, two)] {
                lab.write(id, PageRange::new(range.start.plus(at), run));
            }
        }
        lab.end(goes);
        for who in [ME, OTHER] {
            lab.step(who, |mm, _, cx| {
                mm.lru_add_drain(cx);
                mm.memory.drain_all_pages(cx);
            });
        }
        lab.check(Holdings::default());
        (lab, stays)
    }

    pub(super) fn end(&mut self, id: SpaceId) {
        let space = self.spaces.take(id);
        self.step(OTHER, |mm, _, cx| space.exit(mm, cx));
        self.mapped.retain(|(owner, _)| *owner != id);
    }

    /// Every frame is somebody's, and every page holds what was stored to it.
    pub(super) fn check(&self, mine: Holdings) {
        self.check_with(mine, Holdings::default());
    }

    pub(super) fn check_with(&self, mine: Holdings, others: Holdings) {
        check::walk(&self.mm).unwrap();
        let spaces = self.spaces.iter().map(|(_, space)| space).collect();
        let controls = vec![(ME, mine), (OTHER, others)];
        check::walk_owners(&self.mm, &Owners { spaces, controls }).unwrap();
    }

    pub(super) fn check_contents(&self) {
        for (id, range) in &self.mapped {
            let tables = &self.spaces.get(*id).unwrap().tables;
            for vpn in (range.start.0..range.end.0).map(Vpn) {
                let pte = tables.lookup(vpn);
                if (pte.is_present() && !pte.is_zero_page()) || pte.is_migration() {
                    let holds = self.mm.memory.frames.content(pte.pfn());
                    assert!(holds == content(*id, vpn) || holds == 0, "page {vpn:?} of {id:?} at {:?}", pte.pfn());
                }
            }
        }
    }

    /// A huge page for a user.
    pub(super) fn request() -> AllocRequest {
        AllocRequest { reclaims: true, ..AllocRequest::gfp_transhuge_light(NodeId(0)) }
    }

    /// Compacts to the end, asking everybody after each step.
    pub(super) fn compact(&mut self, request: AllocRequest, priority: CompactPriority) -> Compacted {
        let mut compact = DirectCompact::new(request, priority);
        loop {
            let step = self.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx));
            match step {
                Step::More => {}
                Step::Block(wait) => panic!("nobody is waited for, but {wait:?}"),
                Step::Done(compacted) => {
                    self.check(Holdings::default());
                    return compacted;
                }
            }
            self.check(compact.holdings());
        }
    }

    /// Compacts without a check after each step, for large machines.
    pub(super) fn compact_fast(&mut self, request: AllocRequest, priority: CompactPriority) -> Compacted {
        let mut compact = DirectCompact::new(request, priority);
        loop {
            match self.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)) {
                Step::More => {}
                Step::Block(wait) => panic!("nobody is waited for, but {wait:?}"),
                Step::Done(compacted) => return compacted,
            }
        }
    }

    /// A write to `vm.compact_memory`.
    pub(super) fn compact_memory(&mut self) {
        let mut compact = CompactMemory::default();
        while self.step(ME, |mm, spaces, cx| compact.step(mm, spaces, cx)) == Step::More {}
        self.check(compact.holdings());
    }

    /// Free blocks of an order, larger ones counted by their parts.
    pub(super) fn free_blocks(&self, order: u8) -> u64 {
        let zone = &self.mm.memory.zones()[0];
        (order..=10).map(|at| zone.nr_free(Order(at)) << (at - order)).sum()
    }

    pub(super) fn count(&self, event: Event) -> u64 {
        self.counters.get(event)
    }
}

/// The content of a page: no two the same, none zero.
fn content(id: SpaceId, vpn: Vpn) -> u64 {
    u64::from(id.0 + 1) << 40 | vpn.0 & 0xff_ffff_ffff
}
