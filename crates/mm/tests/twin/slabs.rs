//! Slabs once more: which frames hold how many objects of which kind.

use std::collections::BTreeMap;

use mm::slab::Cache;

use crate::{model::Wish, processes::World};

/// Empty slabs are kept while a node has fewer partial ones.
const KEPT: usize = 5;

/// Where VMAs and address spaces live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slabs {
    /// By the first frame.
    pub(crate) all: BTreeMap<u32, Slab>,
    /// The one that a CPU allocates from.
    pub(crate) current: BTreeMap<(Cache, usize), u32>,
    /// By node; the first is the next to be used.
    pub(crate) partial: BTreeMap<(Cache, u32), Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    cache: Cache,
    pub(crate) order: u32,
    pub(crate) in_use: u32,
}

impl Slab {
    /// 200 bytes for a VMA, 1,600 for an address space.
    fn has_room(self) -> bool {
        let most = match (self.cache, self.order) {
            (Cache::VmArea, 0) | (Cache::MmStruct, 3) => 20,
            (Cache::MmStruct, 2) => 10,
            (Cache::MmStruct, 0) => 2,
            _ => panic!("no such slab: {self:?}"),
        };
        self.in_use < most
    }
}

impl World {
    /// An object's slab; nothing when memory is out.
    pub(crate) fn new_object(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let current = self.slabs.current.get(&(cache, cpu)).copied();
        let slab = match current.filter(|slab| self.slabs.all[slab].has_room()) {
            Some(slab) => slab,
            None => self.next_slab(cpu, cache)?,
        };
        self.slabs.all.get_mut(&slab).unwrap().in_use += 1;
        Some(slab)
    }

    fn next_slab(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let node = self.memory.node_of(cpu);
        let partial = self.slabs.partial.entry((cache, node)).or_default();
        let slab = if partial.is_empty() { self.new_slab(cpu, cache)? } else { partial.remove(0) };
        self.slabs.current.insert((cache, cpu), slab);
        Some(slab)
    }

    /// For an order that is not needed nobody makes room. One CPU wants 8 address spaces in a slab, two to seven want 12 or 16;
    /// as many VMAs are in one frame.
    fn new_slab(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        assert!(self.memory.cpus() < 8, "slabs of VMAs are larger with more CPUs");
        let usual = if self.memory.cpus() == 1 { 2 } else { 3 };
        let orders: &[u32] = if cache == Cache::MmStruct { &[usual, 0] } else { &[0] };
        let node = self.memory.node_of(cpu);
        for order in orders.iter().copied() {
            let is_least = order == 0;
            let wish = Wish { order, wakes: is_least, reclaims: is_least, ..Wish::kernel(node) };
            if let Some(frame) = self.memory.alloc(cpu, wish) {
                self.slabs.all.insert(frame, Slab { cache, order, in_use: 0 });
                return Some(frame);
            }
        }
        None
    }

    pub(crate) fn free_object(&mut self, cpu: usize, frame: u32) {
        let node = self.memory.zones[self.memory.zone_of(frame)].node;
        let slab = self.slabs.all.get_mut(&frame).unwrap();
        let was_full = !slab.has_room();
        slab.in_use -= 1;
        let slab = *slab;
        if self.slabs.current.values().any(|current| *current == frame) {
            return;
        }
        let partial = self.slabs.partial.entry((slab.cache, node)).or_default();
        if slab.in_use == 0 && partial.len() >= KEPT {
            partial.retain(|other| *other != frame);
            self.slabs.all.remove(&frame);
            self.memory.free(cpu, frame);
        } else if was_full {
            partial.push(frame);
        }
    }
}
