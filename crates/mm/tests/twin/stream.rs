//! Seeded machines, and seeded operations for them.

use rules::{
    machine::{MachineSpec, NodeSpec, ZoneSpec},
    zone::{Settings, ZoneKind},
};
use units::{CpuId, Frames, NodeId, Order, Pfn};

/// A stream of numbers that depends on its seed alone: splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.next() % u64::from(n)).unwrap()
    }

    /// True once in `n`.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(u32::try_from(of.len()).unwrap()) as usize]
    }
}

/// Frames of the smallest zone.
const LEAST: u32 = 68;

/// One to four nodes of about `frames` frames in all, with reserved frames at starts, holes at ends, and zones that may be
/// missing, none larger than `most`; pageblocks of order `pageblock`.
pub(crate) fn machine(numbers: &mut Numbers, (frames, most): (u32, u32), pageblock: u32) -> MachineSpec {
    // Fewer where pageblocks are huge: one that must hold the kernel's own memory is no place for huge pages.
    let nodes = numbers.pick(if pageblock == 9 { &[1, 1, 1, 2, 2, 4] } else { &[1, 2, 3, 4] });
    let max = pageblock + 1 + u32::from(numbers.one_in(4));
    let [pageblock_order, max_order] = [pageblock, max].map(|order| Order(u8::try_from(order.min(10)).unwrap()));
    let (mut start, mut cpus) = (0, 0);
    let mut spec = MachineSpec { pageblock_order, max_order, nodes: Vec::new() };
    for id in 0..nodes {
        let mut kinds = vec![ZoneKind::Normal];
        if id == 0 && numbers.one_in(2) {
            kinds.insert(0, ZoneKind::Dma32);
        }
        if numbers.one_in(3) {
            kinds.push(ZoneKind::Movable);
        }
        if nodes > 1 && numbers.one_in(8) {
            kinds.clear();
        }
        let share = u32::max(frames / nodes / u32::try_from(kinds.len().max(1)).unwrap(), LEAST).min(most);
        let zones = kinds.into_iter().map(|kind| {
            let zone = zone(numbers, kind, start, share);
            let gap = numbers.below(2) * pageblock_order.frames();
            start = zone.end().0.next_multiple_of(pageblock_order.frames()) + gap;
            zone
        });
        let zones = zones.collect();
        let first = cpus;
        cpus += 1 + u32::from(numbers.one_in(3));
        spec.nodes.push(NodeSpec {
            id: NodeId(id),
            cpus: (first..cpus).map(CpuId).collect(),
            distance: (0..nodes).map(|other| distance(id, other)).collect(),
            zones,
        });
    }
    if spec.nodes.iter().all(|node| node.zones.is_empty()) {
        spec.nodes[0].zones.push(zone(numbers, ZoneKind::Normal, 0, frames.min(most)));
    }
    spec
}

/// One node or two, of one zone each with up to `most` frames in all, pageblocks of a huge page, and two CPUs.
pub(crate) fn huge_machine(numbers: &mut Numbers, most: u32) -> MachineSpec {
    let nodes = numbers.pick(&[1, 1, 2]);
    let size = most / nodes - numbers.below(most / nodes / 4);
    let node = |id| NodeSpec {
        id: NodeId(id),
        cpus: vec![CpuId(2 * id), CpuId(2 * id + 1)],
        distance: (0..nodes).map(|other| distance(id, other)).collect(),
        zones: vec![ZoneSpec::whole(ZoneKind::Normal, Pfn(id * most), size)],
    };
    MachineSpec { pageblock_order: Order(9), max_order: Order(10), nodes: (0..nodes).map(node).collect() }
}

/// No two nodes are equally far, so that there is nothing to guess.
fn distance(from: u32, to: u32) -> u32 {
    10 + 4 * from.abs_diff(to) + if to < from { 2 } else { 0 }
}

fn zone(numbers: &mut Numbers, kind: ZoneKind, start: u32, frames: u32) -> ZoneSpec {
    let whole = ZoneSpec::whole(kind, Pfn(start), frames / 2 + numbers.below(frames / 2 + 1));
    if numbers.one_in(2) {
        return whole;
    }
    let present = Frames(whole.spanned.0 - u64::from(numbers.below(17)));
    let managed = Frames(present.0 - u64::from(numbers.below(17)));
    ZoneSpec { present, managed, ..whole }
}

pub(crate) fn settings(numbers: &mut Numbers, frames: u32) -> Settings {
    Settings {
        min_free_kbytes: u64::from(4 * numbers.below(frames / 16)),
        percpu_pagelist_high_fraction: numbers.pick(&[0, 0, 8, 16, 50]),
        ..Settings::default()
    }
}

/// How often a stream does each operation: some never, the others lopsidedly.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    weights: Vec<u32>,
}

impl Weights {
    pub(crate) fn new(numbers: &mut Numbers, of: usize) -> Self {
        let mut weights: Vec<u32> =
            (0..of).map(|_| if numbers.one_in(4) { 0 } else { 1 << numbers.below(7) }).collect();
        if weights.iter().all(|weight| *weight == 0) {
            weights[0] = 1;
        }
        Self { weights }
    }

    /// Some things about so often, the others never.
    pub(crate) fn about(numbers: &mut Numbers, of: usize, which: &[(usize, u32)]) -> Self {
        let mut weights = vec![0; of];
        for (which, weight) in which {
            weights[*which] = 1 + numbers.below(2 * weight);
        }
        Self { weights }
    }

    /// Makes these operations happen at least now and then.
    pub(crate) fn with(mut self, which: &[usize]) -> Self {
        for which in which {
            self.weights[*which] = self.weights[*which].max(4);
        }
        self
    }

    /// Makes these operations never happen.
    pub(crate) fn without(mut self, which: &[usize]) -> Self {
        for which in which {
            self.weights[*which] = 0;
        }
        self
    }

    pub(crate) fn pick(&self, numbers: &mut Numbers) -> usize {
        let mut at = numbers.below(self.weights.iter().sum());
        let mut which = 0;
        while at >= self.weights[which] {
            at -= self.weights[which];
            which += 1;
        }
        which
    }
}
