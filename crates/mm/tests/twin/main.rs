//! The allocator against its naive twin: the same frame and the same order on every list after every operation, and a
//! whole walk of the state.

extern crate pagelab_mm as mm;

mod model;
mod stream;

use mm::{
    AllocRequest, FamilyId, Frame, Mark, MigrateType, Mm, Mobility, Settings, Urgency, Variant, ZoneKind, ZoneSpec,
    check,
    cost::{Cx, Prices},
    event::Counters,
    variant,
};
use units::{CpuId, NodeId, Order, Pfn, Time, Vpn};

use model::{Model, Wish};
use stream::{Numbers, Weights};

/// Streams on zones of up to `SMALL` frames, looked at after every operation.
const SMALL_SEEDS: u64 = 200;
const SMALL_OPS: u32 = 5_000;
const SMALL: u32 = 4_096;
/// Streams on `LARGE` frames, looked at now and then.
const LARGE_SEEDS: u64 = 12;
const LARGE_OPS: u32 = 20_000;
const LARGE: u32 = 65_536;
const LARGE_EVERY: u32 = 1_000;

/// One for each form of the rules.
const VARIANTS: [&str; 7] = ["v3.9", "v4.1", "v4.4", "v4.20", "v5.10", "v5.14", "v6.1"];

/// The real one and its twin.
#[derive(Clone)]
struct Pair {
    mm: Mm,
    model: Model,
    /// What is allocated, oldest first.
    live: Vec<Pfn>,
    cpus: u32,
    machine: mm::MachineSpec,
    settings: Settings,
}

impl Pair {
    fn new(machine: &mm::MachineSpec, variant: Variant, settings: &Settings) -> Self {
        let cpus = u32::try_from(machine.nodes.iter().map(|node| node.cpus.len()).sum::<usize>()).unwrap();
        let pair = Self {
            mm: Mm::new(machine, variant, settings),
            model: Model::new(machine, variant, settings),
            live: Vec::new(),
            cpus,
            machine: machine.clone(),
            settings: settings.clone(),
        };
        pair.compare();
        pair
    }

    fn with<T>(&mut self, cpu: u32, body: impl FnOnce(&mut Mm, &mut Cx<'_>) -> T) -> T {
        let (prices, mut counters) = (Prices::free(), Counters::default());
        body(&mut self.mm, &mut Cx::new(CpuId(cpu), Time(0), &prices, &mut counters))
    }

    fn alloc(&mut self, cpu: u32, wish: Wish) {
        let got = self.with(cpu, |mm, cx| mm.alloc(cx, &request(wish)));
        let expected = self.model.alloc(cpu as usize, wish);
        assert_eq!(got.map(|pfn| pfn.0), expected, "{wish:?} on CPU {cpu}");
        self.live.extend(got);
    }

    /// A request is about to fail, and gets what was kept for atomic ones.
    fn unreserve(&mut self, wish: Wish, force: bool) {
        let got = self.with(0, |mm, cx| mm.unreserve_high_atomic(cx, &request(wish), force));
        assert_eq!(got, self.model.give_up_kept(wish, force), "{wish:?}");
    }

    /// Somebody writes another `min_free_kbytes`.
    fn set_min_free(&mut self, min_free_kbytes: u64) {
        let (machine, settings) = (self.machine.clone(), Settings { min_free_kbytes, ..self.settings.clone() });
        self.with(0, |mm, cx| mm.apply_settings(cx, &machine.view(), &settings));
        self.model.set_marks(&machine, &settings);
    }

    fn free(&mut self, cpu: u32, at: usize) {
        if at < self.live.len() {
            let pfn = self.live.remove(at);
            let order = self.mm.frames.order_of(self.mm.frames.get(pfn));
            self.with(cpu, |mm, cx| mm.free(cx, pfn, order));
            self.model.free(cpu as usize, pfn.0);
        }
    }

    /// A block becomes user memory, which could be migrated.
    fn make_movable(&mut self, at: usize) {
        if let Some(pfn) = self.live.get(at).copied() {
            let order = self.mm.frames.order_of(self.mm.frames.get(pfn));
            let vpn = Vpn(u64::from(pfn.0));
            self.mm.frames.set(pfn, Frame::Anon { family: FamilyId(1), vpn, order });
            self.model.taken.get_mut(&pfn.0).unwrap().on_lru = true;
        }
    }

    fn compare(&self) {
        for (zone, twin) in self.mm.zones().iter().zip(&self.model.zones) {
            for order in 0..=self.model.max {
                for list in MigrateType::ALL {
                    let ours = zone.buddy.area(Order(u8::try_from(order).unwrap())).list(list);
                    let theirs = twin.free.get(&(order, list)).map_or(&[][..], Vec::as_slice);
                    let same = ours.iter(&self.mm.frames).map(|pfn| pfn.0).eq(theirs.iter().copied());
                    assert!(same, "{} order {order} {list:?}: {:?}, not {theirs:?}", zone.kind, self.listed(ours));
                }
            }
            assert_eq!(zone.high_atomic, twin.high_atomic, "{}", zone.kind);
            for (ours, theirs) in zone.pcps.iter().zip(&twin.pcps) {
                assert_eq!(ours.count(), theirs.count());
                for (ours, theirs) in ours.lists().iter().zip(&theirs.lists) {
                    let same = ours.iter(&self.mm.frames).map(|pfn| pfn.0).eq(theirs.iter().map(|block| block.0));
                    assert!(same, "{} per CPU: {:?}, not {theirs:?}", zone.kind, self.listed(ours));
                }
            }
        }
        for pfn in (0..self.mm.frames.len()).step_by(1 << self.model.pageblock) {
            assert_eq!(self.mm.frames.blocks.migrate_type(Pfn(pfn)), self.model.type_at(pfn), "pageblock of {pfn}");
        }
        for (pfn, taken) in &self.model.taken {
            let order = self.mm.frames.order_of(self.mm.frames.get(Pfn(*pfn)));
            assert_eq!(u32::from(order.0), taken.order, "frame {pfn}");
        }
        check::walk(&self.mm).unwrap();
    }

    fn listed(&self, list: &mm::list::List) -> Vec<u32> {
        list.iter(&self.mm.frames).map(|pfn| pfn.0).collect()
    }
}

fn request(wish: Wish) -> AllocRequest {
    AllocRequest {
        order: Order(u8::try_from(wish.order).unwrap()),
        mobility: wish.mobility,
        highest: wish.highest,
        node: NodeId(wish.node),
        this_node_only: wish.only,
        mark: Mark::Low,
        urgency: wish.urgency,
        wakes_kswapd: true,
    }
}

/// What a stream can do.
const OPERATIONS: usize = 9;

fn wish(pair: &Pair, numbers: &mut Numbers, sizes: &Weights) -> Wish {
    let order = u32::try_from(sizes.pick(numbers)).unwrap().min(pair.model.max);
    let mobility = numbers.pick(&Mobility::ALL);
    let allowed = if mobility == Mobility::Movable { ZoneKind::Movable } else { ZoneKind::Normal };
    let highest = if numbers.one_in(6) { ZoneKind::Dma32 } else { allowed };
    let urgency = if numbers.one_in(3) { numbers.pick(&Urgency::ALL) } else { Urgency::Normal };
    Wish { order, mobility, highest, node: numbers.below(pair.cpus), only: numbers.one_in(5), urgency }
}

fn operate(pair: &mut Pair, numbers: &mut Numbers, weights: &Weights, sizes: &Weights) {
    let cpu = numbers.below(pair.cpus);
    let live = u32::try_from(pair.live.len()).unwrap();
    match weights.pick(numbers) {
        0 => {
            let wish = wish(pair, numbers, sizes);
            pair.alloc(cpu, wish);
        }
        1 => {
            // A burst of one kind: zones fill up, and types fall back to each other.
            let wish = wish(pair, numbers, sizes);
            for _ in 0..numbers.below(12) {
                pair.alloc(cpu, wish);
            }
        }
        2 => pair.free(cpu, numbers.below(live.max(1)) as usize),
        3 => pair.free(cpu, pair.live.len().saturating_sub(1)),
        4 | 5 => pair.make_movable(numbers.below(live.max(1)) as usize),
        6 if numbers.one_in(4) => {
            let wish = wish(pair, numbers, sizes);
            pair.unreserve(wish, numbers.one_in(2));
        }
        7 if numbers.one_in(16) => pair.set_min_free(u64::from(4 * numbers.below(pair.mm.frames.len() / 16))),
        _ => {
            // A burst from one place: per-CPU lists overflow, and blocks merge.
            let at = numbers.below(live.max(1)) as usize;
            for _ in 0..numbers.below(12) {
                pair.free(cpu, at);
            }
        }
    }
}

fn run(seed: u64, most: u32, ops: u32, every: u32) -> u32 {
    let mut numbers = Numbers(seed);
    let frames = if most > SMALL { most } else { most >> numbers.below(6) };
    let variant = variant::named(VARIANTS[usize::try_from(seed).unwrap() % VARIANTS.len()]);
    let machine = stream::machine(&mut numbers, frames);
    let settings = stream::settings(&mut numbers, frames);
    let mut pair = Pair::new(&machine, *variant, &settings);
    let weights = Weights::new(&mut numbers, OPERATIONS);
    let sizes = Weights::new(&mut numbers, usize::from(machine.max_order.0) + 1);
    pair.mm.trace_extfrag(true);
    for op in 0..ops {
        operate(&mut pair, &mut numbers, &weights, &sizes);
        if op % every == 0 {
            pair.compare();
        }
    }
    while !pair.live.is_empty() {
        pair.free(0, pair.live.len() - 1);
    }
    pair.compare();
    u32::try_from(pair.mm.take_extfrag().len()).unwrap()
}

/// Runs one seed and says which it was when it fails.
fn run_named(seed: u64, most: u32, ops: u32, every: u32) -> u32 {
    std::panic::catch_unwind(|| run(seed, most, ops, every)).unwrap_or_else(|panic| {
        #[expect(clippy::print_stdout, reason = "the command that replays a failure")]
        let () = println!("seed {seed}, {most} frames: cargo test -p pagelab-mm --release --test twin");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn small_zones_agree_after_every_operation() {
    let fallbacks: u32 = (0..SMALL_SEEDS).map(|seed| run_named(seed, SMALL, SMALL_OPS, 1)).sum();
    assert!(fallbacks > 1_000, "{fallbacks} fallbacks are too few to have tested anything");
}

#[test]
fn large_zones_agree() {
    let fallbacks: u32 = (0..LARGE_SEEDS).map(|seed| run_named(seed, LARGE, LARGE_OPS, LARGE_EVERY)).sum();
    assert!(fallbacks > 1_000, "{fallbacks} fallbacks are too few to have tested anything");
}

// ---- every sequence of six operations on sixteen frames

const DEPTH: u32 = 6;
/// Order and mobility of what each operation allocates; the operations after these free or change.
const ALLOCATIONS: [(u32, Mobility); 6] = [
    (0, Mobility::Unmovable),
    (0, Mobility::Movable),
    (0, Mobility::Reclaimable),
    (1, Mobility::Unmovable),
    (2, Mobility::Movable),
    (3, Mobility::Movable),
];

fn every_sequence(pair: &Pair, depth: u32) -> u64 {
    if depth == DEPTH {
        return 1;
    }
    let mut sequences = 0;
    for operation in 0..ALLOCATIONS.len() + 4 {
        let mut next = pair.clone();
        match (ALLOCATIONS.get(operation), operation - ALLOCATIONS.len().min(operation)) {
            (Some((order, mobility)), _) => {
                let (order, mobility, highest) = (*order, *mobility, ZoneKind::Movable);
                next.alloc(0, Wish { order, mobility, highest, node: 0, only: false, urgency: Urgency::Normal });
            }
            (_, 0) => next.free(0, 0),
            (_, 1) => next.free(0, 1),
            (_, 2) => next.free(0, next.live.len().saturating_sub(1)),
            _ => next.make_movable(0),
        }
        next.compare();
        sequences += every_sequence(&next, depth + 1);
    }
    sequences
}

fn sixteen_frames(variant: &Variant) {
    let node = mm::NodeSpec {
        id: NodeId(0),
        cpus: vec![CpuId(0)],
        distance: vec![10],
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(0), 16)],
    };
    let machine = mm::MachineSpec { pageblock_order: Order(2), max_order: Order(3), nodes: vec![node] };
    let pair = Pair::new(&machine, *variant, &Settings { min_free_kbytes: 0, ..Settings::default() });
    assert_eq!(every_sequence(&pair, 0), 10_u64.pow(DEPTH));
}

#[test]
fn every_six_operations_on_sixteen_frames_v3_9() {
    sixteen_frames(variant::named("v3.9"));
}

#[test]
fn every_six_operations_on_sixteen_frames_v4_20() {
    sixteen_frames(variant::named("v4.20"));
}

#[test]
fn every_six_operations_on_sixteen_frames_v6_1() {
    sixteen_frames(variant::named("v6.1"));
}
