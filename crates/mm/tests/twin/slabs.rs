//! Slabs once more: which frames hold how many objects of which kind, as SLUB has it.

use std::collections::BTreeMap;

use memory::slab::{Cache, SlabAllocator};
use rules::variant::SlubCpuPartial;

use crate::{
    model::{Model, Wish},
    processes::World,
};

/// Empty slabs are kept while a node has fewer partial ones.
const KEPT: usize = 5;

/// Mechanisms that streams of objects must reach, as objects come and go.
pub(crate) const SLUB: [&str; 6] = [
    "a slab of a CPU's partial list is the next",
    "several slabs of a node go to a CPU",
    "the partial list of a CPU is full",
    "an empty slab of a CPU's partial list goes back",
    "an empty slab of a node goes back",
    "an empty slab stays with its node",
];

/// The slab caches that streams of objects use; processes use some of the same caches.
pub(crate) const KINDS: [Cache; 4] = [Cache::VmArea, Cache::MmStruct, Cache::BufferHead, Cache::Kmalloc512];

/// Where objects live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slabs {
    /// By the first frame.
    pub(crate) all: BTreeMap<u32, Slab>,
    /// The one that a CPU allocates from.
    pub(crate) current: BTreeMap<(Cache, usize), u32>,
    /// Those that it will allocate from, with the free objects that it believes to have from there on; the last is the next.
    pub(crate) of_cpu: BTreeMap<(Cache, usize), Vec<(u32, u32)>>,
    /// By node; the first is the next to be used.
    pub(crate) partial: BTreeMap<(Cache, u32), Vec<u32>>,
}

impl Slabs {
    pub(crate) fn in_use(&self) -> usize {
        self.all.values().map(|slab| slab.in_use as usize).sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    pub(crate) cache: Cache,
    pub(crate) order: u32,
    pub(crate) in_use: u32,
}

/// Bytes of an object.
pub(crate) fn bytes(cache: Cache) -> u32 {
    match cache {
        Cache::VmArea => 200,
        Cache::MmStruct => 1600,
        Cache::BufferHead => 104,
        Cache::Kmalloc512 => 512,
        _ => panic!("no stream has {cache:?}"),
    }
}

/// Objects in a slab.
pub(crate) fn room(cache: Cache, order: u32) -> u32 {
    (4096 << order) / bytes(cache)
}

impl Slab {
    pub(crate) fn free(self) -> u32 {
        room(self.cache, self.order) - self.in_use
    }
}

/// The order of a slab where there is memory: one CPU wants 8 objects in it, two and three want 12, four to seven 16.
fn usual(cache: Cache, cpus: usize) -> u32 {
    assert!(cpus < 8, "slabs of VMAs are larger with more CPUs");
    match (cache, cpus) {
        (Cache::MmStruct, 1) => 2,
        (Cache::MmStruct, _) => 3,
        (Cache::Kmalloc512, 2..) => 1,
        _ => 0,
    }
}

/// The wish for a frame of a kind's slab.
pub(crate) fn wish(cache: Cache, node: u32) -> Wish {
    let mobility =
        if cache == Cache::BufferHead { rules::gfp::Mobility::Reclaimable } else { rules::gfp::Mobility::Unmovable };
    Wish { mobility, ..Wish::kernel(node) }
}

/// Does a CPU have the most slab memory it may keep, given its count of free objects and slabs? And at least half of it?
fn has_enough(model: &Model, cache: Cache, objects: u32, slabs: u32) -> (bool, bool) {
    let most = match cache {
        Cache::MmStruct => 6,
        Cache::Kmalloc512 => 13,
        _ => 30,
    };
    if model.rules.slub_cpu_partial == SlubCpuPartial::Objects {
        return (objects > most, objects > most / 2);
    }
    // The bound is four times as large in objects; a slab counts as half in use.
    let most = (4 * most * 2).div_ceil(room(cache, usual(cache, model.cpus())));
    (slabs >= most, slabs > most / 2)
}

impl World {
    /// An object's slab; nothing when memory is out.
    pub(crate) fn new_object(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        if self.allocator == SlabAllocator::Slab {
            return self.take_object(cpu, cache);
        }
        let current = self.slabs.current.get(&(cache, cpu)).copied();
        let slab = match current.filter(|slab| self.slabs.all[slab].free() > 0) {
            Some(slab) => slab,
            None => self.next_slab(cpu, cache)?,
        };
        self.slabs.all.get_mut(&slab).unwrap().in_use += 1;
        Some(slab)
    }

    fn next_slab(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let own = self.slabs.of_cpu.entry((cache, cpu)).or_default().pop();
        let slab = match own {
            Some((slab, _)) => {
                self.memory.reach(SLUB[0]);
                slab
            }
            None => match self.take_from_node(cpu, cache) {
                Some(slab) => slab,
                None => self.new_slab(cpu, cache)?,
            },
        };
        self.slabs.current.insert((cache, cpu), slab);
        Some(slab)
    }

    fn take_from_node(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let node = self.memory.node_of(cpu);
        let of_node = self.slabs.partial.entry((cache, node)).or_default();
        let mut taken = Vec::new();
        let mut objects = 0;
        while !of_node.is_empty() {
            let slab = of_node.remove(0);
            objects += self.slabs.all[&slab].free();
            taken.push(slab);
            if has_enough(&self.memory, cache, objects, u32::try_from(taken.len() - 1).unwrap()).1 {
                break;
            }
        }
        if taken.len() > 1 {
            self.memory.reach(SLUB[1]);
        }
        for slab in taken.iter().skip(1) {
            self.put_on_cpu(cpu, *slab);
        }
        taken.first().copied()
    }

    fn put_on_cpu(&mut self, cpu: usize, frame: u32) {
        let slab = self.slabs.all[&frame];
        let list = self.slabs.of_cpu.entry((slab.cache, cpu)).or_default();
        let before = list.last().map_or(0, |last| last.1);
        list.push((frame, before + slab.free()));
    }

    /// For an order that is not needed nobody makes room.
    fn new_slab(&mut self, cpu: usize, cache: Cache) -> Option<u32> {
        let usual = usual(cache, self.memory.cpus());
        let orders = if usual > 0 { vec![usual, 0] } else { vec![0] };
        let node = self.memory.node_of(cpu);
        for order in orders {
            let is_least = order == 0;
            let wish = Wish { order, wakes: is_least, reclaims: is_least, ..wish(cache, node) };
            if let Some(frame) = self.memory.alloc(cpu, wish) {
                self.slabs.all.insert(frame, Slab { cache, order, in_use: 0 });
                return Some(frame);
            }
        }
        None
    }

    pub(crate) fn free_object(&mut self, cpu: usize, frame: u32) {
        if self.allocator == SlabAllocator::Slab {
            return self.give_object(cpu, frame);
        }
        let slab = self.slabs.all.get_mut(&frame).unwrap();
        let was_full = slab.free() == 0;
        slab.in_use -= 1;
        let slab = *slab;
        let is_on_cpu = self.slabs.of_cpu.values().flatten().any(|(other, _)| *other == frame);
        if is_on_cpu || self.slabs.current.values().any(|current| *current == frame) {
            return;
        }
        if was_full {
            self.make_room_on_cpu(cpu, slab.cache);
            return self.put_on_cpu(cpu, frame);
        }
        let node = self.node_of_frame(frame);
        let partial = self.slabs.partial.entry((slab.cache, node)).or_default();
        if slab.in_use == 0 && partial.len() >= KEPT {
            partial.retain(|other| *other != frame);
            self.slabs.all.remove(&frame);
            self.memory.free(cpu, frame);
            self.memory.reach(SLUB[4]);
        } else if slab.in_use == 0 {
            self.memory.reach(SLUB[5]);
        }
    }

    fn make_room_on_cpu(&mut self, cpu: usize, cache: Cache) {
        let list = self.slabs.of_cpu.entry((cache, cpu)).or_default();
        let (objects, slabs) = (list.last().map_or(0, |last| last.1), u32::try_from(list.len()).unwrap());
        if !has_enough(&self.memory, cache, objects, slabs).0 {
            return;
        }
        self.memory.reach(SLUB[2]);
        let mut gone = Vec::new();
        let list = std::mem::take(self.slabs.of_cpu.get_mut(&(cache, cpu)).unwrap());
        for (frame, _) in list.into_iter().rev() {
            let node = self.node_of_frame(frame);
            let partial = self.slabs.partial.entry((cache, node)).or_default();
            if self.slabs.all[&frame].in_use == 0 && partial.len() >= KEPT {
                gone.insert(0, frame);
            } else {
                partial.push(frame);
            }
        }
        for frame in gone {
            self.memory.reach(SLUB[3]);
            self.slabs.all.remove(&frame);
            self.memory.free(cpu, frame);
        }
    }

    pub(crate) fn node_of_frame(&self, frame: u32) -> u32 {
        self.memory.zones[self.memory.zone_of(frame)].node
    }
}
