//! Linux: mm/slub.c (v4.20 to v6.1).
//! Differs: a CPU takes partial slabs of its own node only (`get_any_partial` is left out); objects are never asked for by
//! node, so that no slab is taken from its CPU before it is full (`deactivate_slab`). From 6.8 on slabs of a CPU's partial list
//! are not frozen, which changes nothing here; the sheaves of 6.18 are left out.
//!
//! Each CPU fills one slab at a time. When an object of a full slab is freed, the slab goes to the partial list of the freeing
//! CPU; when that list is full, all its slabs go to the lists of their nodes. An empty slab is freed if its node has enough
//! partial slabs.

use rules::{
    gfp::AllocRequest,
    machine::MachineSpec,
    variant::{SlubCpuPartial, Variant},
};
use units::{NodeId, Order, Pfn};

use super::{Cache, Object, Slab, slab_at};
use crate::{
    Memory,
    alloc::NoMemory,
    cx::Cx,
    frame::{Frame, FrameTable},
    list::List,
    per_node::PerNode,
};

impl Cache {
    /// The order of a slab while memory is not short, on a machine of `cpus` CPUs: the lowest that leaves at most a sixteenth
    /// over and holds as many objects as `calculate_order` wants for that number of CPUs (mm/slub.c, v6.1; 4.20 counts possible
    /// CPUs).
    ///
    /// # Panics
    /// When the objects fit badly: the kernel then accepts more waste, which no cache here needs.
    fn order_on(self, cpus: u32) -> Order {
        /// `slub_max_order`: PAGE_ALLOC_COSTLY_ORDER.
        const MOST: u8 = 3;
        let wanted = (4 * (cpus.checked_ilog2().map_or(0, |log| log + 1) + 1)).min(self.objects(Order(MOST)).into());
        let fits = |order: &Order| {
            let bytes = order.frames() << 12;
            bytes >= wanted * self.size() && bytes % self.size() <= bytes / 16
        };
        (0..=MOST).map(Order).find(fits).expect("slabs of this kind leave little over")
    }

    /// Partial slabs of a node up to which empty slabs are kept: half the logarithm of the object's size, at least 5, at most
    /// 10 (`MIN_PARTIAL`, `MAX_PARTIAL`, mm/slub.c, v6.1).
    fn min_partial(self) -> u32 {
        (self.size().ilog2() / 2).clamp(5, 10)
    }

    /// Free objects on a CPU's partial list above which the next slab sends all slabs of the list to their nodes
    /// (`set_cpu_partial`, mm/slub.c, v4.20).
    const fn cpu_partial(self) -> u32 {
        match self.size() {
            4096.. => 2,
            1024.. => 6,
            256.. => 13,
            _ => 30,
        }
    }

    /// The limit of `cpu_partial` in slabs of an order, each taken to be half full (v5.16).
    fn cpu_partial_slabs(self, order: Order) -> u32 {
        let objects: u32 = match self.size() {
            4096.. => 6,
            1024.. => 24,
            256.. => 52,
            _ => 120,
        };
        (objects * 2).div_ceil(self.objects(order).into())
    }
}

/// The slabs of all caches.
#[derive(Clone, Debug)]
pub struct Slub {
    caches: [CacheState; Cache::ALL.len()],
}

#[derive(Clone, Debug)]
struct CacheState {
    /// The order of a slab while memory is not short.
    order: Order,
    /// The slab that each CPU allocates from.
    current: Vec<Option<Pfn>>,
    /// The partial list of each CPU; the slab that is used next is the last.
    cpu_partial: Vec<Vec<CpuPartial>>,
    /// When the partial list of a CPU is full.
    limit: Limit,
    /// Partial slabs of each node that no CPU holds.
    partial: PerNode<List>,
}

/// A slab on the partial list of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPartial {
    /// The slab's first frame.
    pub slab: Pfn,
    /// Free objects of this slab and of those below it on the list, each counted when it was put there (`pobjects`).
    pub objects: u32,
}

/// When the partial list of a CPU is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// With more free objects than this.
    Objects(u32),
    /// With this number of slabs.
    Slabs(u32),
}

impl Limit {
    /// Whether a list must be emptied before the next slab is added.
    fn is_reached(self, list: &[CpuPartial]) -> bool {
        match self {
            Self::Objects(most) => list.last().is_some_and(|head| head.objects > most),
            Self::Slabs(most) => list.len() >= most as usize,
        }
    }

    /// Whether a CPU that takes slabs from its node has enough, with this number of free objects and of slabs on its list.
    fn is_refilled(self, objects: u32, slabs: u32) -> bool {
        match self {
            Self::Objects(most) => objects > most / 2,
            Self::Slabs(most) => slabs > most / 2,
        }
    }
}

impl Slub {
    pub(super) fn new(cpus: usize, machine: &MachineSpec, rules: &Variant) -> Self {
        let partial = PerNode::new(machine, |_| List::default());
        let present = u32::try_from(cpus).expect("few CPUs");
        let cache = |cache: Cache| {
            let order = cache.order_on(present);
            let limit = match rules.slub_cpu_partial {
                SlubCpuPartial::Objects => Limit::Objects(cache.cpu_partial()),
                SlubCpuPartial::Slabs => Limit::Slabs(cache.cpu_partial_slabs(order)),
            };
            let (current, cpu_partial) = (vec![None; cpus], vec![Vec::new(); cpus]);
            CacheState { order, current, cpu_partial, limit, partial: partial.clone() }
        };
        Self { caches: Cache::ALL.map(cache) }
    }

    /// The order of a cache's slabs while memory is not short.
    pub(super) fn order(&self, cache: Cache) -> Order {
        self.caches[cache as usize].order
    }

    /// Partial slabs of a cache that no CPU holds, of each node.
    pub fn partial(&self, cache: Cache) -> &PerNode<List> {
        &self.caches[cache as usize].partial
    }

    /// The slab of a cache that each CPU allocates from.
    pub fn current(&self, cache: Cache) -> &[Option<Pfn>] {
        &self.caches[cache as usize].current
    }

    /// Puts a slab at the end of its node's partial slabs.
    pub(super) fn put_partial(&mut self, frames: &mut FrameTable, node: NodeId, pfn: Pfn) {
        let cache = slab_at(frames, pfn).cache;
        self.caches[cache as usize].partial[node].push_tail(frames.threads(), pfn);
    }

    /// The partial list of each CPU for a cache; the slab that is used next is the last.
    pub fn cpu_partial(&self, cache: Cache) -> &[Vec<CpuPartial>] {
        &self.caches[cache as usize].cpu_partial
    }
}

impl Memory {
    /// An object (`kmem_cache_alloc`).
    pub(super) fn slub_alloc(&mut self, cx: &mut Cx, cache: Cache) -> Result<Object, NoMemory> {
        let cpu = cx.cpu().0 as usize;
        let has_room = |frames: &FrameTable, slab: &Pfn| !slab_at(frames, *slab).is_full();
        let current =
            self.slabs.slub_mut().caches[cache as usize].current[cpu].filter(|slab| has_room(&self.frames, slab));
        let slab = match current {
            Some(slab) => slab,
            None => self.next_slab(cx, cache)?,
        };
        let state = slab_at(&self.frames, slab);
        self.frames.set(slab, Frame::Slab(Slab { in_use: state.in_use + 1, ..state }));
        Ok(Object::of(slab))
    }

    /// Frees an object (`kmem_cache_free`).
    pub(super) fn slub_free(&mut self, cx: &mut Cx, object: Object) {
        let pfn = object.slab();
        let was = slab_at(&self.frames, pfn);
        let now = Slab { in_use: was.in_use.checked_sub(1).expect("the object is in use"), ..was };
        self.frames.set(pfn, Frame::Slab(now));
        if now.frozen {
            return;
        }
        if was.is_full() {
            // The slab was on no list: the CPU has it now, and its node never listed it.
            if self.slabs.slub_mut().caches[now.cache as usize].is_cpu_full(cx) {
                self.unfreeze_partials(cx, now.cache);
            }
            return self.put_cpu_partial(cx, pfn);
        }
        let node = self.node_of(pfn);
        let partial = &mut self.slabs.slub_mut().caches[now.cache as usize].partial[node];
        if now.in_use == 0 && partial.len() >= now.cache.min_partial() {
            partial.remove(self.frames.threads(), pfn);
            self.free(cx, pfn, now.order);
        }
    }

    /// Gets another slab for this CPU: of its partial list, of its node's, or a new one (`___slab_alloc`).
    fn next_slab(&mut self, cx: &mut Cx, cache: Cache) -> Result<Pfn, NoMemory> {
        let cpu = cx.cpu().0 as usize;
        let slab = match self.slabs.slub_mut().caches[cache as usize].cpu_partial[cpu].pop() {
            Some(CpuPartial { slab, .. }) => slab,
            None => match self.take_partials(cx, cache) {
                Some(slab) => slab,
                None => self.new_slab(cx, cache)?,
            },
        };
        if let Some(full) = self.slabs.slub_mut().caches[cache as usize].current[cpu].replace(slab) {
            self.freeze(full, false);
        }
        self.freeze(slab, true);
        Ok(slab)
    }

    /// Takes the first partial slab of this CPU's node, and more slabs for the CPU's partial list (`get_partial_node`).
    fn take_partials(&mut self, cx: &mut Cx, cache: Cache) -> Option<Pfn> {
        let node = self.node_of_cpu(cx.cpu());
        let (mut first, mut objects, mut slabs) = (None, 0, 0);
        // Bound: each turn takes a slab off the node's list.
        while let Some(slab) =
            self.slabs.slub_mut().caches[cache as usize].partial[node].pop_head(self.frames.threads())
        {
            objects += slab_at(&self.frames, slab).free();
            if first.is_none() {
                first = Some(slab);
            } else {
                self.put_cpu_partial(cx, slab);
                slabs += 1;
            }
            if self.slabs.slub_mut().caches[cache as usize].limit.is_refilled(objects, slabs) {
                break;
            }
        }
        first
    }

    /// Puts a slab on this CPU's partial list, which will be used next (`put_cpu_partial`).
    fn put_cpu_partial(&mut self, cx: &Cx, pfn: Pfn) {
        let slab = slab_at(&self.frames, pfn);
        self.freeze(pfn, true);
        let list = &mut self.slabs.slub_mut().caches[slab.cache as usize].cpu_partial[cx.cpu().0 as usize];
        let objects = list.last().map_or(0, |head| head.objects) + slab.free();
        list.push(CpuPartial { slab: pfn, objects });
    }

    /// Sends the slabs of this CPU's partial list to their nodes; empty slabs are freed if the node has enough partial ones
    /// (`unfreeze_partials`).
    fn unfreeze_partials(&mut self, cx: &mut Cx, cache: Cache) {
        let mut list =
            std::mem::take(&mut self.slabs.slub_mut().caches[cache as usize].cpu_partial[cx.cpu().0 as usize]);
        let mut empty = Vec::new();
        while let Some(CpuPartial { slab: pfn, .. }) = list.pop() {
            self.freeze(pfn, false);
            let node = self.node_of(pfn);
            let partial = &mut self.slabs.slub_mut().caches[cache as usize].partial[node];
            if slab_at(&self.frames, pfn).in_use == 0 && partial.len() >= cache.min_partial() {
                empty.push(pfn);
            } else {
                partial.push_tail(self.frames.threads(), pfn);
            }
        }
        // Linux collects the empty slabs on a stack.
        for pfn in empty.into_iter().rev() {
            let order = slab_at(&self.frames, pfn).order;
            self.free(cx, pfn, order);
        }
    }

    /// Makes a slab of the usual order, or of the lowest order that holds an object (`allocate_slab`).
    fn new_slab(&mut self, cx: &mut Cx, cache: Cache) -> Result<Pfn, NoMemory> {
        let request = cache.request(self.node_of_cpu(cx.cpu()));
        let usual = self.slabs.order(cache);
        let least = (0..=usual.0).map(Order).find(|order| cache.objects(*order) > 0).expect("objects are small");
        // As a lower order will do, no memory is reclaimed for the usual one (`allocate_slab`).
        let light = AllocRequest { wakes_kswapd: false, reclaims: false, ..request }.of_order(usual);
        let large = (least < usual).then(|| self.alloc(cx, &light).ok()).flatten();
        let (pfn, order) = match large {
            Some(pfn) => (pfn, usual),
            None => (self.alloc(cx, &request.of_order(least))?, least),
        };
        self.frames.set(pfn, Frame::Slab(Slab { cache, order, in_use: 0, frozen: false }));
        Ok(pfn)
    }

    fn freeze(&mut self, pfn: Pfn, frozen: bool) {
        let slab = slab_at(&self.frames, pfn);
        self.frames.set(pfn, Frame::Slab(Slab { frozen, ..slab }));
    }
}

impl CacheState {
    /// Whether this CPU's partial list must be emptied before the next slab is added.
    fn is_cpu_full(&self, cx: &Cx) -> bool {
        self.limit.is_reached(&self.cpu_partial[cx.cpu().0 as usize])
    }
}

#[cfg(test)]
mod tests;
