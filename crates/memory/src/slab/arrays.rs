//! Linux: mm/slab.c (v4.20, with CONFIG_NUMA).
//! Differs: the slabs of `slabs_full` are on no list, as no code searches it; objects are never asked for by node; no mempolicy,
//! no CPU hotplug, no reserves for reclaimers. Up to 4.3 a CPU's try for a frame of its node wakes kswapd.
//!
//! Each CPU keeps an array of free objects, and the CPUs of a node share another one. Behind these the node has slabs: some with
//! free objects, some empty. If a node has more free objects than its limit, empty slabs are freed. Objects that belong to
//! another node are collected in an array of their own, and sent there when it is full.

use rules::{gfp::AllocRequest, machine::MachineSpec};
use units::{CpuId, NodeId, Order, Pfn, Time};

use super::{
    Cache, Object, Slab,
    layout::{self, Layout},
    reap::{self, Reaper},
    slab_at,
};
use crate::{
    Memory,
    alloc::NoMemory,
    cx::Cx,
    frame::{Frame, FrameTable},
    list::List,
    per_node::PerNode,
};

/// Most objects that a CPU takes from its node at a time, if its array was not used lately (`BATCHREFILL_LIMIT`).
const UNTOUCHED_BATCH: usize = 16;
/// Objects of one other node that a node collects before they are sent there (`alloc_alien_cache`).
const ALIENS: usize = 12;

/// The slabs and arrays of all caches, and the state of each CPU's `cache_reap`.
#[derive(Clone, Debug)]
pub struct Arrays {
    caches: [KmemCache; Cache::ALL.len()],
    pub(super) reapers: Vec<Reaper>,
}

/// A cache of objects (`struct kmem_cache`).
#[derive(Clone, Debug)]
pub struct KmemCache {
    cache: Cache,
    layout: Layout,
    /// Objects that move between two arrays, or an array and slabs, at a time (`batchcount`).
    batch: usize,
    /// The array of each CPU.
    pub cpus: Vec<ArrayCache>,
    /// Slabs and arrays of each node.
    pub nodes: PerNode<CacheNode>,
}

/// An array of free objects; the last one is used first (`struct array_cache`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayCache {
    /// The slab of each free object.
    pub slabs: Vec<Pfn>,
    /// Most objects in the array.
    pub limit: usize,
    /// Whether the array was used since `cache_reap` last looked at it.
    pub touched: bool,
}

/// The slabs of a cache on a node (`struct kmem_cache_node`).
#[derive(Clone, Debug)]
pub struct CacheNode {
    /// Slabs with some objects in use or in an array.
    pub partial: List,
    /// Slabs whose objects are all free.
    pub free: List,
    /// Free objects in `partial` and `free`.
    pub free_objects: usize,
    /// Free objects above which empty slabs are freed.
    pub free_limit: usize,
    /// Whether an empty slab was wanted since `cache_reap` last looked at the node.
    pub free_touched: bool,
    /// The array that the CPUs of the node share, if the machine has several CPUs.
    pub shared: Option<ArrayCache>,
    /// Objects of each other node that were freed here, if there are other nodes.
    pub aliens: Option<PerNode<ArrayCache>>,
    /// When `cache_reap` next looks at the node.
    pub next_reap: Time,
}

/// The array of a CPU, or the shared one of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Cpu(CpuId),
    Shared,
}

impl ArrayCache {
    fn new(limit: usize) -> Self {
        Self { slabs: Vec::new(), limit, touched: false }
    }

    fn room(&self) -> usize {
        self.limit - self.slabs.len()
    }

    /// Takes up to `most` objects from the end of another array; returns their number (`transfer_objects`).
    fn take_from(&mut self, other: &mut Self, most: usize) -> usize {
        let count = most.min(other.slabs.len()).min(self.room());
        self.slabs.extend(other.slabs.drain(other.slabs.len() - count..));
        count
    }

    /// Objects to drop from an array that was not used lately: a fifth of its room, or half of its objects if there are fewer
    /// (`drain_array_locked`).
    fn unused(&self) -> usize {
        let fifth = self.limit.div_ceil(5);
        if fifth > self.slabs.len() { self.slabs.len().div_ceil(2) } else { fifth }
    }
}

impl Arrays {
    pub(super) fn new(machine: &MachineSpec, cpu_nodes: &[NodeId]) -> Self {
        let cpus = cpu_nodes.len();
        let cache = |cache: Cache| {
            let layout = Layout::new(cache, machine);
            let limit = layout::cpu_limit(cache);
            let batch = limit.div_ceil(2);
            let shared = layout::shared_batches(cache, cpus);
            let aliens = (machine.nodes.len() > 1).then(|| PerNode::new(machine, |_| ArrayCache::new(ALIENS)));
            let node = |local: usize| CacheNode {
                partial: List::default(),
                free: List::default(),
                free_objects: 0,
                free_limit: (1 + local) * batch + usize::from(layout.objects),
                free_touched: false,
                shared: (shared > 0).then(|| ArrayCache::new(shared * batch)),
                aliens: aliens.clone(),
                next_reap: reap::first_of(cache),
            };
            let nodes = PerNode::new(machine, |spec| node(spec.cpus.len()));
            KmemCache { cache, layout, batch, cpus: vec![ArrayCache::new(limit); cpus], nodes }
        };
        let reapers = cpu_nodes.iter().map(|node| Reaper::new(machine, *node)).collect();
        Self { caches: Cache::ALL.map(cache), reapers }
    }

    /// The arrays and slabs of a cache.
    pub fn of(&self, cache: Cache) -> &KmemCache {
        &self.caches[cache as usize]
    }

    pub(super) fn of_mut(&mut self, cache: Cache) -> &mut KmemCache {
        &mut self.caches[cache as usize]
    }

    /// Objects in arrays: free, but in use in the books of their slabs.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let of_node = |node: &'_ CacheNode| {
            let aliens = node.aliens.iter().flat_map(PerNode::values).flat_map(|array| array.slabs.clone());
            node.shared.iter().flat_map(|array| array.slabs.clone()).chain(aliens).collect::<Vec<_>>()
        };
        let of_cache = move |cache: &'_ KmemCache| {
            let of_cpus = cache.cpus.iter().flat_map(|array| array.slabs.clone());
            of_cpus.chain(cache.nodes.values().flat_map(of_node)).collect::<Vec<_>>()
        };
        self.caches.iter().flat_map(of_cache).map(Object::of)
    }
}

impl KmemCache {
    /// The order of the cache's slabs.
    pub fn order(&self) -> Order {
        self.layout.order
    }

    /// Number of objects in a slab.
    pub fn objects(&self) -> u16 {
        self.layout.objects
    }

    fn is_full(&self, slab: Slab) -> bool {
        slab.in_use == self.layout.objects
    }

    /// The request to the page allocator for the frames of a slab.
    fn request(&self, node: NodeId) -> AllocRequest {
        self.cache.request(node).of_order(self.layout.order)
    }

    /// Refills the empty array of a CPU from its node, as far as the node has free objects; returns the number still wanted
    /// (`cache_alloc_refill`).
    fn refill(&mut self, frames: &mut FrameTable, cpu: CpuId, at: NodeId) -> usize {
        let (array, node) = (&mut self.cpus[cpu.0 as usize], &mut self.nodes[at]);
        let mut wanted = if array.touched { self.batch } else { self.batch.min(UNTOUCHED_BATCH) };
        if let Some(shared) = &mut node.shared
            && array.take_from(shared, wanted) > 0
        {
            shared.touched = true;
            return 0;
        }
        if node.free_objects == 0 {
            return wanted;
        }
        // Bound: each turn takes at least one object.
        while wanted > 0
            && let Some(slab) = self.first_slab(frames, at)
        {
            let count = self.fill(frames, cpu, slab, wanted);
            self.nodes[at].free_objects -= count;
            wanted -= count;
            self.put_used(frames, at, slab);
        }
        wanted
    }

    /// Takes a slab of a node with free objects off its list (`get_first_slab`).
    fn first_slab(&mut self, frames: &mut FrameTable, node: NodeId) -> Option<Pfn> {
        let node = &mut self.nodes[node];
        node.partial.pop_head(frames.threads()).or_else(|| {
            node.free_touched = true;
            node.free.pop_head(frames.threads())
        })
    }

    /// Moves up to `most` objects of a slab to the array of a CPU; returns their number (`alloc_block`).
    fn fill(&mut self, frames: &mut FrameTable, cpu: CpuId, pfn: Pfn, most: usize) -> usize {
        let slab = slab_at(frames, pfn);
        let free = self.layout.objects - slab.in_use;
        let count = u16::try_from(most).map_or(free, |most| most.min(free));
        frames.set(pfn, Frame::Slab(Slab { in_use: slab.in_use + count, ..slab }));
        let array = &mut self.cpus[cpu.0 as usize].slabs;
        array.extend(std::iter::repeat_n(pfn, count.into()));
        count.into()
    }

    /// Puts a slab back of which objects were taken: at the head of the partial slabs, unless it is full (`fixup_slab_list`).
    fn put_used(&mut self, frames: &mut FrameTable, node: NodeId, pfn: Pfn) {
        if !self.is_full(slab_at(frames, pfn)) {
            self.nodes[node].partial.push_head(frames.threads(), pfn);
        }
    }

    /// Takes one object of a node's slabs, past all arrays (`____cache_alloc_node`).
    fn take_one(&mut self, frames: &mut FrameTable, node: NodeId) -> Object {
        let pfn = self.first_slab(frames, node).expect("the caller knows of a free object");
        let slab = slab_at(frames, pfn);
        frames.set(pfn, Frame::Slab(Slab { in_use: slab.in_use + 1, ..slab }));
        self.nodes[node].free_objects -= 1;
        self.put_used(frames, node, pfn);
        Object::of(pfn)
    }

    /// Adds a new slab as the last of its node's empty slabs (`cache_grow_end`).
    pub(super) fn put_new(&mut self, frames: &mut FrameTable, node: NodeId, pfn: Pfn) {
        let node = &mut self.nodes[node];
        node.free.push_tail(frames.threads(), pfn);
        node.free_objects += usize::from(self.layout.objects);
    }

    /// Returns objects to their slabs; the result is the slabs to be freed (`free_block`).
    #[must_use]
    fn free_block(&mut self, frames: &mut FrameTable, node: NodeId, objects: &[Pfn]) -> Vec<Pfn> {
        let in_slab = self.layout.objects;
        let node = &mut self.nodes[node];
        node.free_objects += objects.len();
        for pfn in objects.iter().copied() {
            let slab = slab_at(frames, pfn);
            if slab.in_use < in_slab {
                node.partial.remove(frames.threads(), pfn);
            }
            let in_use = slab.in_use.checked_sub(1).expect("the object is in use");
            frames.set(pfn, Frame::Slab(Slab { in_use, ..slab }));
            if in_use == 0 {
                node.free.push_head(frames.threads(), pfn);
            } else {
                node.partial.push_tail(frames.threads(), pfn);
            }
        }
        let mut gone = Vec::new();
        while node.free_objects > node.free_limit
            && let Some(pfn) = node.free.pop_tail(frames.threads())
        {
            node.free_objects -= usize::from(in_slab);
            gone.push(pfn);
        }
        // Linux collects them on a list that grows at its head.
        gone.reverse();
        gone
    }

    /// Empties the oldest part of a CPU's full array into the node's shared array, or into slabs (`cache_flusharray`).
    #[must_use]
    fn flush(&mut self, frames: &mut FrameTable, cpu: CpuId, node: NodeId) -> Vec<Pfn> {
        let array = &mut self.cpus[cpu.0 as usize].slabs;
        if let Some(shared) = &mut self.nodes[node].shared
            && shared.room() > 0
        {
            shared.slabs.extend(array.drain(..self.batch.min(shared.room())));
            return Vec::new();
        }
        let oldest: Vec<Pfn> = array.drain(..self.batch).collect();
        self.free_block(frames, node, &oldest)
    }

    /// Sends the objects of node `of` that node `at` has collected to their slabs (`__drain_alien_cache`).
    #[must_use]
    pub(super) fn drain_aliens(&mut self, frames: &mut FrameTable, at: NodeId, of: NodeId) -> Vec<Pfn> {
        let Some(aliens) = &mut self.nodes[at].aliens else { return Vec::new() };
        let mut array = ArrayCache { slabs: std::mem::take(&mut aliens[of].slabs), ..aliens[of] };
        if let Some(shared) = &mut self.nodes[of].shared {
            shared.take_from(&mut array, ALIENS);
        }
        if array.slabs.is_empty() { Vec::new() } else { self.free_block(frames, of, &array.slabs) }
    }

    /// Drops some of the oldest objects of an array that was not used lately (`drain_array`).
    #[must_use]
    pub(super) fn drain_unused(&mut self, frames: &mut FrameTable, which: Which, node: NodeId) -> Vec<Pfn> {
        let array = match which {
            Which::Cpu(cpu) => Some(&mut self.cpus[cpu.0 as usize]),
            Which::Shared => self.nodes[node].shared.as_mut(),
        };
        let Some(array) = array.filter(|array| !array.slabs.is_empty()) else { return Vec::new() };
        if std::mem::take(&mut array.touched) {
            return Vec::new();
        }
        let oldest: Vec<Pfn> = array.slabs.drain(..array.unused()).collect();
        self.free_block(frames, node, &oldest)
    }

    /// Takes a fifth of the limit of a node's empty slabs, if none was wanted lately (`drain_freelist`).
    #[must_use]
    pub(super) fn drain_free(&mut self, frames: &mut FrameTable, node: NodeId) -> Vec<Pfn> {
        let in_slab = usize::from(self.layout.objects);
        let node = &mut self.nodes[node];
        if std::mem::take(&mut node.free_touched) {
            return Vec::new();
        }
        let most = node.free_limit.div_ceil(5 * in_slab);
        let gone: Vec<Pfn> = (0..most).map_while(|_| node.free.pop_tail(frames.threads())).collect();
        node.free_objects -= gone.len() * in_slab;
        gone
    }
}

impl Memory {
    /// The arrays of a kind, and the frames that its slabs are.
    pub(super) fn slab_cache(&mut self, cache: Cache) -> (&mut KmemCache, &mut FrameTable) {
        (self.slabs.arrays_mut().of_mut(cache), &mut self.frames)
    }

    /// Allocates an object (`kmem_cache_alloc`).
    pub(super) fn slab_alloc(&mut self, cx: &mut Cx, cache: Cache) -> Result<Object, NoMemory> {
        let (cpu, node) = (cx.cpu(), self.node_of_cpu(cx.cpu()));
        let (kmem, frames) = self.slab_cache(cache);
        let mut wanted = 0;
        if kmem.cpus[cpu.0 as usize].slabs.is_empty() {
            wanted = kmem.refill(frames, cpu, node);
        }
        if kmem.cpus[cpu.0 as usize].slabs.is_empty() {
            let Some(pfn) = self.grow_here(cx, cache, node) else {
                return self.slab_alloc_elsewhere(cx, cache, node);
            };
            let (kmem, frames) = self.slab_cache(cache);
            let taken = kmem.fill(frames, cpu, pfn, wanted);
            kmem.nodes[node].free_objects += usize::from(kmem.layout.objects) - taken;
            kmem.put_used(frames, node, pfn);
        }
        let array = &mut self.slab_cache(cache).0.cpus[cpu.0 as usize];
        array.touched = true;
        Ok(Object::of(array.slabs.pop().expect("filled above")))
    }

    /// Allocates an object when this CPU's node has no free frame: of another node's slabs, or of a new slab, for which memory
    /// is reclaimed (`fallback_alloc`).
    #[cold]
    fn slab_alloc_elsewhere(&mut self, cx: &mut Cx, cache: Cache, node: NodeId) -> Result<Object, NoMemory> {
        // The node is tried once more, past its arrays.
        let (kmem, frames) = self.slab_cache(cache);
        let had_none = kmem.first_slab(frames, node).is_none();
        assert!(had_none, "the array of a CPU is empty only when its node has no free object");
        if let Some(pfn) = self.grow_here(cx, cache, node) {
            let (kmem, frames) = self.slab_cache(cache);
            kmem.put_new(frames, node, pfn);
            return Ok(kmem.take_one(frames, node));
        }
        let request = self.slab_cache(cache).0.request(node);
        for zone in self.zones_for(&request) {
            let other = self.zones[zone].node;
            let (kmem, frames) = self.slab_cache(cache);
            if kmem.nodes[other].free_objects > 0 {
                return Ok(kmem.take_one(frames, other));
            }
        }
        let pfn = self.grow(cx, cache, &request)?;
        let other = self.node_of(pfn);
        let (kmem, frames) = self.slab_cache(cache);
        kmem.put_new(frames, other, pfn);
        Ok(kmem.take_one(frames, other))
    }

    /// Adds a slab on a node, if the node has a free frame (`gfp_exact_node`).
    fn grow_here(&mut self, cx: &mut Cx, cache: Cache, node: NodeId) -> Option<Pfn> {
        let request = self.slab_cache(cache).0.request(node).this_node();
        // A request that does not reclaim does not ask the slow path.
        self.grow(cx, cache, &AllocRequest { wakes_kswapd: false, reclaims: false, ..request }).ok()
    }

    fn grow(&mut self, cx: &mut Cx, cache: Cache, request: &AllocRequest) -> Result<Pfn, NoMemory> {
        let pfn = self.alloc(cx, request)?;
        self.frames.set(pfn, Frame::Slab(Slab { cache, order: request.order, in_use: 0, frozen: false }));
        Ok(pfn)
    }

    /// Frees an object (`kmem_cache_free`).
    pub(super) fn slab_free(&mut self, cx: &mut Cx, object: Object) {
        let pfn = object.slab();
        let (cpu, node, of) = (cx.cpu(), self.node_of_cpu(cx.cpu()), self.node_of(pfn));
        let cache = slab_at(&self.frames, pfn).cache;
        let (kmem, frames) = self.slab_cache(cache);
        let gone = if node == of {
            let is_full = kmem.cpus[cpu.0 as usize].room() == 0;
            let gone = if is_full { kmem.flush(frames, cpu, node) } else { Vec::new() };
            kmem.cpus[cpu.0 as usize].slabs.push(pfn);
            gone
        } else {
            let room = |kmem: &KmemCache| kmem.nodes[node].aliens.as_ref().map(|aliens| aliens[of].room());
            let gone = if room(kmem) == Some(0) { kmem.drain_aliens(frames, node, of) } else { Vec::new() };
            let aliens = kmem.nodes[node].aliens.as_mut().expect("there are several nodes");
            aliens[of].slabs.push(pfn);
            gone
        };
        self.destroy_slabs(cx, gone);
    }

    /// Frees slabs to the page allocator (`slabs_destroy`).
    pub(super) fn destroy_slabs(&mut self, cx: &mut Cx, slabs: Vec<Pfn>) {
        for pfn in slabs {
            let order = slab_at(&self.frames, pfn).order;
            self.free(cx, pfn, order);
        }
    }
}

#[cfg(test)]
mod tests;
