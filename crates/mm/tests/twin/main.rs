//! The memory manager against its naive twin: the same frames, the same tables and the same order on every list after
//! every operation, and a whole walk of the state.

mod arrays;
mod compare;
mod fork;
mod huge_copy;
mod kept;
mod kswapd;
mod lru;
mod marks;
mod model;
mod objects;
mod pair;
mod processes;
mod sequences;
mod shrink;
mod slabs;
#[path = "../soak/mod.rs"]
mod soak;
mod stream;
mod touch;
mod unmap;

use std::collections::{BTreeMap, BTreeSet};

use memory::{event::Event, slab::SlabAllocator};
use mm::{fault::Access, space::vma::HugeAdvice, thp::ThpEnabled};
use model::Wish;
use pair::Pair;
use rules::{
    gfp::{Mobility, Urgency},
    variant::{self, Variant},
    zone::{Settings, ZoneKind},
};
use stream::{Numbers, Weights};

const SEEDS: u64 = 120;
const OPERATIONS: u32 = 5_000;
/// The variable that says which seed to run alone.
const ONE_SEED: &str = "TWIN_SEED";
/// Streams on zones of up to `SMALL` frames are looked at after every operation.
const SMALL: u32 = 4_096;
/// Streams on `LARGE` frames now and then.
const LARGE: u32 = 65_536;
const LARGE_EVERY: u32 = 1_000;
/// Contents of pages are compared less often: a wrong one stays wrong for a while.
const CONTENTS_EVERY: u32 = 8;
/// How often each event happens in a test at least.
const LEAST: u64 = 5;

/// Processes at a time.
const PROCESSES: usize = 6;
/// Operations under way at a time.
const RUNNING: usize = 5;
/// Mappings of a process from which on it makes no more.
const MAPPINGS: usize = 12;

/// One for each form of the rules. (Seeds below that are run for what they found keep their places.)
const VARIANTS: [&str; 13] = [
    "v3.9",
    "v4.1",
    "v4.4",
    "v4.20",
    "v4.20-rc3+1,2,3,4,5",
    "v5.0",
    "v5.4",
    "v5.9",
    "v5.10",
    "v5.14",
    "v6.7",
    "v6.1",
    "v6.18",
];
/// `vm.watermark_boost_factor`.
const BOOSTS: [u32; 4] = [15_000, 150_000, 15_000, 0];

/// The rules of a version, except for kswapd and shrinkers before 4.8 and 4.16, whose rules the twin does not know.
pub(crate) fn rules(name: &str) -> Variant {
    let (base, patches) = variant::split_patches(name).unwrap();
    let rules = if patches.is_empty() { *variant::named(base) } else { variant::patched(base, &patches) };
    Variant { lru_by: variant::LruBy::Node, slab_by_scanned: false, ..rules }
}

/// The rules of a seed, and its settings as far as they follow from it.
fn by_seed(seed: u64, settings: &Settings) -> (Variant, Settings) {
    let (round, place) = (seed / VARIANTS.len() as u64, seed % VARIANTS.len() as u64);
    let rules = rules(VARIANTS[usize::try_from(place).unwrap()]);
    let watermark_boost_factor = BOOSTS[usize::try_from(round).unwrap() % BOOSTS.len()];
    // Who stalls does so between the Min and the Low mark.
    let watermark_scale_factor = if rules.fragment_stall { 1_000 } else { settings.watermark_scale_factor };
    // A third has the other slab allocator. (Those that are run for what they found have SLUB.)
    let slab_allocator = if (round + place) % 3 == 2 { SlabAllocator::Slab } else { SlabAllocator::Slub };
    (rules, Settings { watermark_boost_factor, watermark_scale_factor, slab_allocator, ..settings.clone() })
}

/// The operations of a stream.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Alloc,
    AllocMany,
    FreeAny,
    FreeLast,
    FreeMany,
    MakeMovable,
    Start,
    Map,
    Write,
    WriteWhole,
    Read,
    UnmapPart,
    UnmapWhole,
    Advise,
    Fork,
    Exit,
    GoOn,
    Shrink,
    Unreserve,
    SetMinFree,
    Kswapd,
}

const DEEDS: [Deed; 21] = [
    Deed::Alloc,
    Deed::AllocMany,
    Deed::FreeAny,
    Deed::FreeLast,
    Deed::FreeMany,
    Deed::MakeMovable,
    Deed::Start,
    Deed::Map,
    Deed::Write,
    Deed::WriteWhole,
    Deed::Read,
    Deed::UnmapPart,
    Deed::UnmapWhole,
    Deed::Advise,
    Deed::Fork,
    Deed::Exit,
    Deed::GoOn,
    Deed::Shrink,
    Deed::Unreserve,
    Deed::SetMinFree,
    Deed::Kswapd,
];

/// Operations that make huge pages again and again.
const HUGE_DEEDS: [usize; 6] = [
    Deed::Write as usize,
    Deed::Read as usize,
    Deed::Fork as usize,
    Deed::Exit as usize,
    Deed::UnmapWhole as usize,
    Deed::Shrink as usize,
];

/// Operations, with weights, that fill memory with huge pages and take parts of them, until kswapd has to look for the rest.
const SHORT_DEEDS: [(Deed, u32); 12] = [
    (Deed::Start, 2),
    (Deed::Map, 8),
    (Deed::Write, 8),
    (Deed::WriteWhole, 32),
    (Deed::Read, 2),
    (Deed::UnmapPart, 32),
    (Deed::UnmapWhole, 2),
    (Deed::Fork, 4),
    (Deed::Exit, 8),
    (Deed::GoOn, 32),
    (Deed::Kswapd, 16),
    (Deed::Advise, 1),
];

struct Stream {
    pair: Pair,
    numbers: Numbers,
    deeds: Weights,
    orders: Weights,
    cpus: u32,
    nodes: u32,
    has_huge: bool,
    /// Most mappings hold some huge pages.
    is_roomy: bool,
    min_free_most: u32,
}

impl Stream {
    fn new(seed: u64, most: u32) -> Self {
        let mut numbers = Numbers(seed);
        let has_huge = numbers.one_in(4);
        let is_large = most > SMALL;
        let frames = match (has_huge, is_large) {
            // Of several nodes' zones, each of up to `SMALL`.
            (true, false) => 2 * most,
            (false, false) => most >> numbers.below(6),
            (_, true) => most,
        };
        let pageblock = match (has_huge, is_large) {
            (true, _) => 9,
            (false, true) => 5 + numbers.below(4),
            (false, false) => 2 + numbers.below(4),
        };
        let machine = stream::machine(&mut numbers, (frames, most), pageblock);
        let frames = if has_huge { frames / 16 } else { frames };
        let (variant, settings) = by_seed(seed, &stream::settings(&mut numbers, frames));
        let enabled = numbers.pick(&[
            ThpEnabled::Always,
            ThpEnabled::Always,
            ThpEnabled::Always,
            ThpEnabled::Madvise,
            ThpEnabled::Never,
        ]);
        let deeds = Weights::new(&mut numbers, DEEDS.len()).with(&[Deed::Map as usize, Deed::GoOn as usize]);
        let deeds = match numbers.below(4) {
            _ if !has_huge => deeds,
            0 => deeds.with(&HUGE_DEEDS),
            // Without the kernel's own memory all over it.
            _ => deeds.with(&HUGE_DEEDS).without(&[Deed::Alloc as usize, Deed::AllocMany as usize]),
        };
        let orders = Weights::new(&mut numbers, usize::from(machine.max_order.0) + 1);
        let mut pair = Pair::new(&machine, variant, &settings, enabled);
        pair.start(0);
        let cpus = machine.nodes.iter().map(|node| u32::try_from(node.cpus.len()).unwrap()).sum();
        let nodes = u32::try_from(machine.nodes.len()).unwrap();
        Self { pair, numbers, deeds, orders, cpus, nodes, has_huge, is_roomy: false, min_free_most: frames / 16 }
    }

    /// One where huge pages are all that memory is short of.
    fn short(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let machine = stream::huge_machine(&mut numbers, SMALL + SMALL / 2);
        let min = SMALL / 64 * (1 + numbers.below(4));
        let settings = Settings { min_free_kbytes: u64::from(4 * min), ..Settings::default() };
        let deeds =
            Weights::about(&mut numbers, DEEDS.len(), &SHORT_DEEDS.map(|(deed, weight)| (deed as usize, weight)));
        let (variant, settings) = by_seed(seed, &settings);
        let mut pair = Pair::new(&machine, variant, &settings, ThpEnabled::Always);
        pair.start(0);
        let orders = Weights::new(&mut numbers, usize::from(machine.max_order.0) + 1);
        let nodes = u32::try_from(machine.nodes.len()).unwrap();
        Self {
            pair,
            numbers,
            deeds,
            orders,
            cpus: 2 * nodes,
            nodes,
            has_huge: true,
            is_roomy: true,
            min_free_most: 2 * min,
        }
    }

    fn wish(&mut self) -> Wish {
        let slow_path = self.pair.twin.memory.rules.slow_path;
        let numbers = &mut self.numbers;
        let order = u32::try_from(self.orders.pick(numbers)).unwrap().min(self.pair.twin.memory.max);
        let mobility = numbers.pick(&Mobility::ALL);
        let allowed = if mobility == Mobility::Movable { ZoneKind::Movable } else { ZoneKind::Normal };
        let highest = if numbers.one_in(6) { ZoneKind::Dma32 } else { allowed };
        let urgency = if numbers.one_in(3) { numbers.pick(&Urgency::ALL) } else { Urgency::Normal };
        Wish {
            order,
            mobility,
            highest,
            node: numbers.below(self.nodes),
            only: numbers.one_in(5),
            urgency,
            wakes: !numbers.one_in(4),
            reclaims: slow_path == variant::SlowPath::ByProgress || !numbers.one_in(5),
        }
    }

    fn operate(&mut self) {
        let cpu = self.numbers.below(self.cpus);
        let any = self.numbers.below(u32::try_from(self.pair.live.len()).unwrap().max(1)) as usize;
        let deed = DEEDS[self.deeds.pick(&mut self.numbers)];
        match deed {
            Deed::Alloc | Deed::AllocMany => {
                // A burst of one kind: zones fill up, and types fall back to each other.
                let count = if let Deed::Alloc = deed { 1 } else { self.numbers.below(12) };
                let wish = self.wish();
                for _ in 0..count {
                    self.pair.alloc(cpu, wish);
                }
            }
            Deed::FreeAny => self.pair.free(cpu, any),
            Deed::FreeLast => self.pair.free(cpu, self.pair.live.len().saturating_sub(1)),
            Deed::FreeMany => {
                // A burst from one place: per-CPU lists overflow, and blocks merge.
                for _ in 0..self.numbers.below(12) {
                    self.pair.free(cpu, any);
                }
            }
            Deed::MakeMovable => self.pair.make_movable(any),
            Deed::Shrink => self.pair.shrink_huge_zero(cpu),
            Deed::Unreserve if self.numbers.one_in(4) => {
                let (wish, force) = (self.wish(), self.numbers.one_in(2));
                self.pair.unreserve(wish, force);
            }
            Deed::SetMinFree if self.numbers.one_in(16) => {
                let most = self.min_free_most;
                self.pair.set_min_free(u64::from(4 * self.numbers.below(most)));
            }
            Deed::Kswapd => {
                let node = self.numbers.below(self.nodes);
                // A nap is the end, so that somebody may come and wake it.
                for _ in 0..=self.numbers.below(16) {
                    if !self.pair.step_kswapd(node as usize) {
                        break;
                    }
                }
            }
            Deed::Start if self.pair.ids().len() < PROCESSES => self.pair.start(cpu),
            Deed::Start | Deed::Unreserve | Deed::SetMinFree => {}
            Deed::GoOn => self.go_on(),
            _ => self.operate_on_process(cpu, deed),
        }
    }

    /// One of the operations under way takes a step.
    fn go_on(&mut self) {
        let free: Vec<usize> = (0..self.pair.running.len()).filter(|which| self.may_go_on(*which)).collect();
        if !free.is_empty() {
            let which = self.numbers.pick(&free);
            let most = self.horizon();
            self.pair.advance(which, most);
        }
    }

    fn may_go_on(&self, which: usize) -> bool {
        let running = &self.pair.running[which];
        matches!(running.work, pair::Operation::Touch(..)) <= self.pair.may_read(running.id)
    }

    /// Pages after which a step is over.
    fn horizon(&mut self) -> u64 {
        match self.numbers.below(5) {
            0 => u64::from(self.numbers.below(4)),
            // One run, whatever it is of.
            1 => 0,
            2 => 1 + u64::from(self.numbers.below(80)),
            _ => 1 << 40,
        }
    }

    fn operate_on_process(&mut self, cpu: u32, deed: Deed) {
        let ids = self.pair.ids();
        if ids.is_empty() {
            return self.pair.start(cpu);
        }
        let id = self.numbers.pick(&ids);
        if let Deed::Exit = deed {
            // Processes live long enough to map something.
            if self.numbers.one_in(8) {
                self.pair.exit(cpu, id);
            }
            return;
        }
        let is_touch = matches!(deed, Deed::Write | Deed::WriteWhole | Deed::Read);
        let may = if is_touch { self.pair.may_read(id) } else { self.pair.may_write(id) };
        if !may || self.pair.running.len() >= RUNNING {
            return self.go_on();
        }
        let has_mappings = !self.pair.twin.processes[&id].vmas.is_empty();
        match if has_mappings { deed } else { Deed::Map } {
            Deed::Map if self.pair.twin.processes[&id].vmas.len() >= MAPPINGS => return,
            Deed::Map => {
                let pages = self.length();
                return self.pair.map(cpu, id, pages);
            }
            Deed::Fork if ids.len() >= PROCESSES => return,
            Deed::Fork => self.pair.fork(cpu, id),
            _ => {
                let Some((part, whole)) = self.range(id) else { return };
                match deed {
                    Deed::Write => self.pair.touch(cpu, id, part, Access::Write),
                    Deed::WriteWhole => self.pair.touch(cpu, id, whole, Access::Write),
                    Deed::Read => self.pair.touch(cpu, id, part, Access::Read),
                    Deed::UnmapPart => self.pair.unmap(cpu, id, part),
                    Deed::UnmapWhole => self.pair.unmap(cpu, id, whole),
                    _ => {
                        let all = [HugeAdvice::HugePage, HugeAdvice::HugePage, HugeAdvice::NoHugePage];
                        let advice = self.numbers.pick(&all);
                        return self.pair.advise(cpu, id, part, advice);
                    }
                }
            }
        }
        let most = self.horizon();
        self.pair.advance(self.pair.running.len() - 1, most);
    }

    fn length(&mut self) -> u64 {
        let huge = 512 * (1 + self.numbers.below(3));
        let pages = match self.numbers.below(5) {
            1.. if self.is_roomy => 2 * huge + self.numbers.below(100),
            _ => self.usual_length(huge),
        };
        pages.into()
    }

    fn usual_length(&mut self, huge: u32) -> u32 {
        match self.numbers.below(if self.has_huge { 4 } else { 8 }) {
            0 => huge,
            1 => huge + self.numbers.below(100),
            2 => 1 + self.numbers.below(700),
            _ => 1 + self.numbers.below(40),
        }
    }

    /// A part of a mapping that may reach beyond it, and all of the mapping.
    fn range(&mut self, id: u32) -> Option<((u64, u64), (u64, u64))> {
        let vmas = &self.pair.twin.processes[&id].vmas;
        let which = self.numbers.below(u32::try_from(vmas.len()).unwrap().max(1));
        let vma = vmas.get(which as usize)?;
        let numbers = &mut self.numbers;
        let start = vma.start + u64::from(numbers.below(u32::try_from(vma.end - vma.start).unwrap()));
        let start = if numbers.one_in(4) { (start / 512 * 512).max(vma.start) } else { start };
        let longest = numbers.pick(&[8, 40, 600]);
        let end = start + 1 + u64::from(numbers.below(longest));
        let end = if numbers.one_in(8) { end } else { end.min(vma.end) };
        Some(((start, end.min(mm::space::address_space::TASK_PAGES)), (vma.start, vma.end)))
    }

    /// Everything ends, and everything is free.
    fn finish(mut self) -> Pair {
        for id in self.pair.ids() {
            self.pair.exit(0, id);
        }
        self.pair.compare();
        self.pair.compare_contents();
        while !self.pair.live.is_empty() {
            self.pair.free(0, self.pair.live.len() - 1);
        }
        self.pair.shrink_huge_zero(0);
        self.pair.compare();
        // Slabs stay, and what other CPUs' batches hold.
        let twin = &self.pair.twin;
        assert_eq!(twin.slabs.in_use(), twin.arrays.spare());
        let kept: BTreeSet<u32> = twin.slabs.all.keys().chain(&twin.lru.dropped).copied().collect();
        assert!(twin.memory.taken.keys().eq(&kept));
        self.pair
    }
}

/// A stream from its seed to its end, and the tests that have it.
type Kind = (fn(u64) -> Pair, &'static str);

const SMALL_ZONES: Kind = (|seed| run(Stream::new(seed, SMALL), 1), "small_zones");
const LARGE_ZONES: Kind = (|seed| run(Stream::new(seed, LARGE), LARGE_EVERY), "large_zones");
const SHORT_OF_HUGE: Kind = (|seed| run(Stream::short(seed), 2), "huge_pages");

/// Runs a stream of operations, and compares with the twin after every `every` operations.
fn run(mut stream: Stream, every: u32) -> Pair {
    for operation in 0..OPERATIONS {
        stream.operate();
        if operation % every == 0 {
            stream.pair.compare();
        }
        if operation % CONTENTS_EVERY.max(every) == 0 {
            stream.pair.compare_contents();
        }
    }
    stream.finish()
}

/// Runs one seed and says which it was when it fails.
fn run_named(seed: u64, kind: Kind) -> Pair {
    std::panic::catch_unwind(|| kind.0(seed)).unwrap_or_else(|panic| {
        #[expect(clippy::print_stdout, reason = "the command that replays a failure")]
        let () = println!("{ONE_SEED}={seed} PAGELAB_SOAK=10 cargo test -p mm --release --test twin {}", kind.1);
        std::panic::resume_unwind(panic)
    })
}

/// Runs some of the seeds. Nothing that the streams are for may be missing from them.
fn run_all(seeds: std::ops::Range<u64>, kind: Kind, (made, reached): (&[Event], &[&str])) {
    if let Ok(one) = std::env::var(ONE_SEED) {
        let one = one.parse().expect("a seed is a number");
        if seeds.contains(&one) {
            run_named(one, kind);
        }
        return;
    }
    let mut sums: BTreeMap<Event, u64> = BTreeMap::new();
    let mut others: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let pair = run_named(seed, kind);
        for (event, count) in pair.counters.iter() {
            *sums.entry(event).or_insert(0) += count;
        }
        for (what, count) in &pair.twin.memory.reached {
            *others.entry(what).or_insert(0) += count;
        }
    }
    for what in reached {
        assert!(others.contains_key(what), "{what}: never, so that nothing was tested; {others:?}");
    }
    // Up to 4.4 a huge page of which a part goes falls apart at once.
    let splits = sums.get(&Event::ThpSplitPage).copied().unwrap_or(0);
    *sums.entry(Event::ThpDeferredSplitPage).or_insert(0) += splits;
    for event in made {
        let sum = sums[event];
        assert!(sum >= LEAST, "{} happened {sum} times: too few to have tested anything", event.name());
    }
}

/// Events that the streams are made to reach.
const MADE: [Event; 20] = [
    Event::PgallocDma32,
    Event::PgallocNormal,
    Event::PgallocMovable,
    Event::Pgfree,
    Event::Pgfault,
    Event::Pgreuse,
    Event::Pageoutrun,
    Event::KswapdLowWmarkHitQuickly,
    Event::NumaHit,
    Event::NumaMiss,
    Event::NumaForeign,
    Event::NumaLocal,
    Event::NumaOther,
    Event::ThpFaultAlloc,
    Event::ThpFaultFallback,
    Event::ThpZeroPageAlloc,
    Event::ThpSplitPmd,
    Event::ThpDeferredSplitPage,
    Event::SimExtfrag,
    Event::SimExtfragFragmenting,
];

/// Effects of raised marks.
const BOOSTED: [&str; 10] = [
    "marks are raised",
    "marks are as high as they may be",
    "kswapd is woken without a boost",
    "a boost gives way to a need",
    "a gentle pass",
    "a gentle pass that spares slab",
    "a boost outlives a run",
    "a boost ends",
    "an atomic request ignores a boost",
    "a small block is refused",
];

/// Effects of raised marks in large zones, with next to no fallbacks.
const BOOSTED_LARGE: [&str; 5] = [
    "marks are raised",
    "marks are as high as they may be",
    "a boost gives way to a need",
    "a gentle pass",
    "a boost ends",
];

fn seeds() -> u64 {
    SEEDS * soak::times()
}

/// Events of streams that are short of memory because of huge pages.
const MADE_SHORT: [Event; 5] = [
    Event::ThpFaultAlloc,
    Event::ThpDeferredSplitPage,
    Event::ThpSplitPage,
    Event::SlabsScanned,
    Event::KswapdLowWmarkHitQuickly,
];

// Four tests, which the harness spreads over CPUs.

#[test]
fn small_zones_agree_after_every_operation_1() {
    run_all(0..seeds() / 2, SMALL_ZONES, (&MADE, &BOOSTED));
}

#[test]
fn small_zones_agree_after_every_operation_2() {
    run_all(seeds() / 2..seeds(), SMALL_ZONES, (&MADE, &BOOSTED));
}

/// In most streams no huge page waits for its split when memory is short.
#[test]
fn huge_pages_that_lost_a_part_agree() {
    run_all(0..seeds() / 10, SHORT_OF_HUGE, (&MADE_SHORT, &[]));
}

/// Seeds of longer runs that found something once.
#[test]
fn what_was_found_stays_mended() {
    if std::env::var(ONE_SEED).is_err() {
        for (seed, kind) in [(205, SMALL_ZONES), (726, LARGE_ZONES)] {
            run_named(seed, kind);
        }
    }
}

#[test]
fn large_zones_agree() {
    run_all(0..seeds(), LARGE_ZONES, (&MADE, &BOOSTED_LARGE));
}
