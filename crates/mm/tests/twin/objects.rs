//! Streams of kernel objects: bursts that come, and go in some order, on any CPU, while frames are sometimes short.

use std::collections::BTreeMap;

use memory::{event::Event, slab::SlabAllocator};
use mm::thp::ThpEnabled;
use rules::zone::Settings;
use units::{Picos, Time};

use crate::{
    SMALL,
    arrays::SLAB,
    by_seed,
    model::Wish,
    pair::Pair,
    run_all, seeds,
    slabs::{KINDS, SLUB},
    stream::{self, Numbers, Weights},
};

/// Objects of a kind from which on no more are asked for.
const MOST: usize = 1_500;

#[derive(Clone, Copy, Debug)]
enum Deed {
    AllocObjects,
    FreeObjects,
    FreeEveryNth,
    AllocFrames,
    FreeFrames,
    Wait,
}

const DEEDS: [(Deed, u32); 6] = [
    (Deed::AllocObjects, 16),
    (Deed::FreeObjects, 12),
    (Deed::FreeEveryNth, 6),
    (Deed::AllocFrames, 4),
    (Deed::FreeFrames, 4),
    (Deed::Wait, 4),
];

struct Objects {
    pair: Pair,
    numbers: Numbers,
    deeds: Weights,
    cpus: u32,
    nodes: u32,
    /// The CPU that most is done on, so that something comes of it there.
    home: u32,
    now: Time,
    /// When each CPU looks for what lies idle again.
    due: BTreeMap<u32, Time>,
}

impl Objects {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let pageblock = 2 + numbers.below(4);
        // Slabs are larger where memory is.
        let frames = numbers.pick(&[SMALL / 4, SMALL / 4, SMALL / 2, SMALL, 4 * SMALL]);
        let machine = stream::machine(&mut numbers, (frames, 4 * SMALL), pageblock);
        let (variant, settings) = by_seed(seed, &stream::settings(&mut numbers, frames));
        let slab_allocator = if numbers.one_in(2) { SlabAllocator::Slab } else { SlabAllocator::Slub };
        let settings = Settings { slab_allocator, ..settings };
        let weights: Vec<(usize, u32)> = DEEDS.iter().map(|(deed, weight)| (*deed as usize, *weight)).collect();
        let deeds = Weights::about(&mut numbers, DEEDS.len(), &weights);
        let pair = Pair::new(&machine, variant, &settings, ThpEnabled::Never);
        let cpus = machine.nodes.iter().map(|node| u32::try_from(node.cpus.len()).unwrap()).sum();
        let nodes = u32::try_from(machine.nodes.len()).unwrap();
        Self { pair, numbers, deeds, cpus, nodes, home: 0, now: Time(0), due: BTreeMap::new() }
    }

    fn operate(&mut self) {
        if self.numbers.one_in(16) {
            self.home = self.numbers.below(self.cpus);
        }
        let cpu = if self.numbers.one_in(4) { self.numbers.below(self.cpus) } else { self.home };
        let numbers = &mut self.numbers;
        match DEEDS[self.deeds.pick(numbers)].0 {
            Deed::AllocObjects => {
                let cache = numbers.pick(&KINDS);
                for _ in 0..=numbers.below(250) {
                    if self.pair.objects_of(cache) >= MOST || !self.pair.alloc_object(cpu, cache) {
                        break;
                    }
                }
            }
            Deed::FreeObjects => {
                let at = numbers.below(u32::try_from(self.pair.objects.len()).unwrap().max(1)) as usize;
                for _ in 0..=numbers.below(400) {
                    self.pair.free_object(cpu, at);
                }
            }
            Deed::FreeEveryNth => {
                let step = 1 + numbers.below(40) as usize;
                let mut at = numbers.below(40) as usize;
                while at < self.pair.objects.len() {
                    self.pair.free_object(cpu, at);
                    at += step;
                }
            }
            Deed::AllocFrames => {
                let wish = Wish { order: numbers.below(3), ..Wish::kernel(numbers.below(self.nodes)) };
                for _ in 0..numbers.below(200) {
                    self.pair.alloc(cpu, wish);
                }
            }
            Deed::FreeFrames => {
                let at = numbers.below(u32::try_from(self.pair.live.len()).unwrap().max(1)) as usize;
                for _ in 0..numbers.below(300) {
                    self.pair.free(cpu, at);
                }
            }
            Deed::Wait => {
                for _ in 0..=numbers.below(6) {
                    self.now = self.now + Picos::from_micros(u64::from(numbers.below(2_500)) * 1_000);
                    let who = if numbers.one_in(2) { numbers.below(self.cpus) } else { cpu };
                    // No CPU looks before it is time.
                    let due = self.due.get(&who).copied().unwrap_or(Time(0));
                    self.now = self.now.max(due);
                    self.due.extend(self.pair.reap(who, self.now).map(|due| (who, due)));
                }
            }
        }
    }

    /// Everything goes; slabs stay that hold nothing.
    fn finish(mut self) -> Pair {
        while !self.pair.objects.is_empty() {
            self.pair.free_object(self.numbers.below(self.cpus), self.pair.objects.len() - 1);
        }
        while !self.pair.live.is_empty() {
            self.pair.free(0, self.pair.live.len() - 1);
        }
        self.pair.compare();
        assert_eq!(self.pair.twin.slabs.in_use(), self.pair.twin.arrays.spare());
        assert!(self.pair.twin.memory.taken.keys().eq(self.pair.twin.slabs.all.keys()));
        self.pair
    }
}

/// Runs the stream of a seed, and looks at everything after each operation.
fn run(seed: u64) -> Pair {
    let mut stream = Objects::new(seed);
    for _ in 0..400 {
        stream.operate();
        stream.pair.compare();
    }
    stream.finish()
}

/// Of what slabs come to, streams of processes see little: they have too few objects.
#[test]
fn objects_agree_after_every_operation() {
    run_all(0..seeds(), (run, "objects"), (&[Event::PgallocNormal, Event::Pgfree], &[&SLUB[..], &SLAB[..]].concat()));
}
