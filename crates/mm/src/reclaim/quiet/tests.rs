//! Passes over lists of pinned pages, in runs and step by step: everything comes to the same, also the time.

use memory::{
    cost::Prices,
    event::Counters,
    step::{Step, Wait},
    zone_state::ZoneState,
};
use rules::{
    gfp::{AllocRequest, Mark},
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    variant::named,
    zone::{Settings, ZoneKind},
};
use units::{Bytes, BytesPerSecond, CpuId, NodeId, Order, Picos, Time};

use super::*;
use crate::{
    fault::{Access, gup::Pin, touch::Touch},
    reclaim::DirectReclaim,
    space::{
        address_space::{AddressSpace, MMAP_BASE},
        unmap::Unmap,
        vma::PageRange,
    },
    swap::{SwapMedium, SwapSpec},
    thp::ThpEnabled,
};

const HUGE: u64 = Order::HUGE.frames() as u64;

/// One node of two zones, two CPUs, and a swap device.
#[derive(Clone)]
struct World {
    mm: Mm,
    spaces: Spaces,
    counters: Counters,
    prices: Prices,
    now: Time,
    steps: u64,
}

/// For how long after each step begins others have no turn.
type Alone<'a> = dyn FnMut() -> u64 + 'a;

impl World {
    fn new(rules: &str) -> Self {
        let blocks = |n: u32| n * Order::HUGE.frames();
        let zones = vec![
            ZoneSpec::whole(ZoneKind::Dma32, Pfn(0), blocks(24)),
            ZoneSpec::whole(ZoneKind::Normal, Pfn(blocks(24)), blocks(40)),
        ];
        let node = NodeSpec { id: NodeId(0), cpus: vec![CpuId(0), CpuId(1)], distance: vec![10], zones };
        let machine = MachineSpec { pageblock_order: Order::HUGE, max_order: Order(10), nodes: vec![node] };
        let settings = Settings { min_free_kbytes: 10 << 10, watermark_boost_factor: 0, ..Settings::default() };
        let mut mm = Mm::new(&machine, *named(rules), &settings);
        mm.thp.enabled = ThpEnabled::Madvise;
        let bandwidth = BytesPerSecond::new(Bytes::mib(400)).unwrap();
        let medium = SwapMedium::Disk { latency: Picos::from_micros(80), bandwidth };
        mm.swapon(&SwapSpec { size: Bytes::mib(64), medium });
        // Each price is one of its own, so that no two works can stand for each other.
        let prices = Prices::new(|work| Picos(10_007 + 1_009 * work as u64));
        let mut world =
            Self { mm, spaces: Spaces::default(), counters: Counters::default(), prices, now: Time(0), steps: 0 };
        for _ in 0..2 {
            world.with(0, |mm, spaces, cx| spaces.add(AddressSpace::new(mm, cx, MMAP_BASE).unwrap()));
        }
        world
    }

    fn with<T>(&mut self, cpu: u32, body: impl FnOnce(&mut Mm, &mut Spaces, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(CpuId(cpu), self.now, &self.prices, &mut self.counters);
        let result = body(&mut self.mm, &mut self.spaces, &mut cx);
        self.now = cx.now();
        result
    }

    /// Takes steps until something is done.
    fn run<T: PartialEq>(
        &mut self,
        cpu: u32,
        alone: &mut Alone<'_>,
        mut step: impl FnMut(&mut Mm, &mut Spaces, &mut Cx<'_>) -> Step<T>,
    ) -> T {
        loop {
            self.steps += 1;
            let until = Time(self.now.0.saturating_add(alone()));
            let came_to = self.with(cpu, |mm, spaces, cx| {
                cx.be_alone_until(until);
                step(mm, spaces, cx)
            });
            match came_to {
                Step::Done(result) => return result,
                Step::More => {}
                Step::Block(Wait::Until(at) | Wait::Io { until: at, .. }) => self.now = self.now.max(at),
                Step::Block(other) => panic!("nobody would wake it from {other:?}"),
            }
        }
    }

    fn act(&mut self, act: Act, alone: &mut Alone<'_>) {
        match act {
            Act::Pin(id, range) => {
                let mut pin = Pin::new(range);
                let _ =
                    self.run(0, alone, |mm, spaces, cx| pin.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
            }
            Act::Touch(id, range, access) => {
                let mut touch = Touch::pages(range, access);
                self.run(1, alone, |mm, spaces, cx| touch.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
            }
            Act::Unmap(id, range) => {
                let mut unmap = Unmap::new(range);
                let _ = self
                    .run(1, alone, |mm, spaces, cx| unmap.step(mm, spaces.get_mut(id).unwrap(), cx, Time(u64::MAX)));
            }
            Act::Direct(cpu) => {
                let light = AllocRequest::gfp_transhuge_light(NodeId(0));
                let mut direct = DirectReclaim::new(AllocRequest { reclaims: true, ..light }.this_node());
                self.run(cpu, alone, |mm, spaces, cx| direct.step(mm, spaces, cx));
            }
            Act::Kswapd(priority) => {
                let mut sc =
                    ScanControl { priority, ..ScanControl::new(Reclaimer::Kswapd, Order::BASE, ZoneKind::Movable) };
                let mut scan = NodeScan::new(&self.mm, NodeId(0), &mut sc);
                self.run(1, alone, |mm, spaces, cx| scan.step(mm, spaces, cx, &mut sc));
            }
        }
    }

    /// A range that is to have huge pages and begins with one, as far as there is memory for what says so.
    fn map(&mut self, id: SpaceId, pages: u64) -> Option<PageRange> {
        self.with(0, |mm, spaces, cx| {
            let space = spaces.get_mut(id).unwrap();
            let range = space.mmap(mm, cx, pages + HUGE).ok()?;
            let range = PageRange::new(range.start.plus(HUGE - 1).huge_start(), pages);
            space.madvise(mm, cx, range, crate::space::vma::HugeAdvice::HugePage).ok()?;
            Some(range)
        })
    }

    /// All that a pass could have changed.
    fn assert_same(&self, other: &Self, what: &str) {
        assert_eq!(self.now, other.now, "{what}: the time");
        for event in Event::ALL {
            assert_eq!(self.counters.get(*event), other.counters.get(*event), "{what}: {}", event.name());
        }
        for pfn in (0..self.mm.memory.frames.len()).map(Pfn) {
            assert_eq!(self.mm.memory.frames.raw(pfn), other.mm.memory.frames.raw(pfn), "{what}: frame {pfn}");
        }
        for (mine, yours) in self.mm.lru.lruvecs().iter().zip(other.mm.lru.lruvecs()) {
            for kind in LruKind::ALL {
                assert_eq!(mine.list(kind), yours.list(kind), "{what}: {kind:?}");
            }
            let recent = |of: &crate::folio::lru::Lruvec| of.recent.map(|recent| (recent.scanned, recent.rotated));
            assert_eq!((recent(mine), mine.cost), (recent(yours), yours.cost), "{what}");
        }
        for zone in self.mm.memory.zone_indices() {
            let sizes = |mm: &Mm| LruKind::ALL.map(|kind| mm.lru.zone_frames(zone, kind));
            assert_eq!(sizes(&self.mm), sizes(&other.mm), "{what}: zone {zone:?}");
        }
        crate::whole::check::walk(&self.mm).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Pin(SpaceId, PageRange),
    Touch(SpaceId, PageRange, Access),
    Unmap(SpaceId, PageRange),
    /// By a task of this CPU.
    Direct(u32),
    /// One pass of this priority.
    Kswapd(u8),
}

/// Numbers by chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A node full of pinned huge pages, beside some pinned base pages.
fn full(rules: &str) -> World {
    let mut world = World::new(rules);
    let huge = world.map(SpaceId(0), 54 * HUGE).unwrap();
    world.act(Act::Pin(SpaceId(0), huge), &mut || 0);
    world.mm.thp.enabled = ThpEnabled::Never;
    // So few frames are left that there is no huge page and compaction cannot begin: reclaim goes on to the last priority.
    let sum = |of: fn(&ZoneState) -> u64| world.mm.memory.zones().iter().map(of).sum::<u64>();
    let spare = sum(ZoneState::free_frames) - sum(|zone| zone.mark(Mark::Low));
    assert!(spare > 100, "{rules}: there is more to be filled");
    let base = world.map(SpaceId(1), spare - 100).unwrap();
    world.act(Act::Pin(SpaceId(1), base), &mut || 0);
    world.mm.thp.enabled = ThpEnabled::Madvise;
    world
}

#[test]
fn a_storm_in_quiet_runs_equals_one_in_steps() {
    // Up to 4.15 shrinkers go by what was looked at; since 5.11 pinned base pages stay mapped, and may be used any time.
    for (rules, goes_in_runs) in
        [("v4.18", true), ("v4.20", true), ("v5.4", true), ("v5.10", true), ("v4.15", false), ("v5.14", false)]
    {
        let mut singly = full(rules);
        let mut in_runs = singly.clone();
        for n in 0..12 {
            singly.act(Act::Direct(n % 2), &mut || 0);
            in_runs.act(Act::Direct(n % 2), &mut || u64::MAX);
            in_runs.assert_same(&singly, &format!("{rules}, storm {n}"));
        }
        let (few, many) = (in_runs.steps, singly.steps);
        assert_eq!(many > 3 * few, goes_in_runs, "{rules}: {few} steps instead of {many}");
        let is_quiet = |world: &World| world.mm.lru.lruvecs()[0].quiet.is_some();
        assert_eq!((is_quiet(&in_runs), is_quiet(&singly)), (goes_in_runs, false), "{rules}");
    }
}

#[test]
fn whatever_comes_between_two_runs_they_come_to_the_same() {
    let (mut few, mut many) = (0, 0);
    for (seed, rules) in (0..).zip(["v4.18", "v4.18", "v4.18", "v4.20", "v5.3", "v5.8", "v5.10", "v6.1"]) {
        let mut chance = Chance(seed);
        let mut singly = full(rules);
        let mut in_runs = singly.clone();
        let mut ranges: Vec<(SpaceId, PageRange)> = Vec::new();
        let mut last = Chance(seed + 100);
        for n in 0..120 {
            let id = SpaceId(u32::try_from(chance.below(2)).unwrap());
            let known =
                (!ranges.is_empty()).then(|| ranges[usize::try_from(chance.below(ranges.len() as u64)).unwrap()]);
            let act = match (chance.below(16), known) {
                (0, _) => {
                    let pages = [1, 7, 40, HUGE][usize::try_from(chance.below(4)).unwrap()];
                    let range = singly.map(id, pages);
                    assert_eq!(in_runs.map(id, pages), range);
                    let Some(range) = range else { continue };
                    ranges.push((id, range));
                    Act::Pin(id, range)
                }
                (1, _) => {
                    let range = singly.map(id, 30);
                    assert_eq!(in_runs.map(id, 30), range);
                    let Some(range) = range else { continue };
                    ranges.push((id, range));
                    Act::Touch(id, range, Access::Write)
                }
                (2, Some((id, range))) => Act::Touch(id, range, Access::Read),
                (3, Some((id, range))) => {
                    ranges.retain(|known| *known != (id, range));
                    Act::Unmap(id, PageRange::new(range.start, range.pages().div_ceil(2)))
                }
                (4, _) => Act::Kswapd(u8::try_from(chance.below(13)).unwrap()),
                (cpu, _) => Act::Direct(u32::from(cpu == 5)),
            };
            singly.act(act, &mut || 0);
            // Others have turns: seldom, often, or hardly ever.
            in_runs.act(act, &mut || [20_000, 3_000_000, u64::MAX][usize::try_from(last.below(3)).unwrap()]);
            in_runs.assert_same(&singly, &format!("seed {seed}, {rules}, {n}: {act:?}"));
        }
        (few, many) = (few + in_runs.steps, many + singly.steps);
    }
    assert!(many > 2 * few, "{few} steps instead of {many}");
}
