//! Linux: none; slab debugging looks at one slab at a time.
//! Differs: all slabs of either allocator, their lists, and arrays of objects.

use units::{NodeId, Pfn};

use crate::{
    frame::Frame,
    list::List,
    per_node::PerNode,
    slab::{ArrayCache, Arrays, Cache, CacheNode, KmemCache, Slab, Slabs, Slub},
};

use super::{Broken, Walk, ensure};

impl Walk<'_> {
    /// The lists of slabs, and the arrays of objects.
    ///
    /// # Errors
    /// The first list that is not sound.
    pub fn slab_lists(&mut self) -> Result<(), Broken> {
        match &self.memory.slabs {
            Slabs::Slub(all) => Cache::ALL.into_iter().try_for_each(|cache| self.slub_lists(all, cache)),
            Slabs::Slab(arrays) => Cache::ALL.into_iter().try_for_each(|cache| self.array_lists(arrays, cache)),
        }
    }

    /// Checks that a slab is where it belongs: on the right list of its node, or held by a CPU.
    pub(super) fn is_kept(&self, pfn: Pfn, slab: Slab) -> Result<(), Broken> {
        match &self.memory.slabs {
            Slabs::Slub(all) => self.is_kept_by_slub(all, pfn, slab),
            Slabs::Slab(arrays) => self.is_kept_by_node(arrays, pfn, slab),
        }
    }

    fn slub_lists(&mut self, all: &Slub, cache: Cache) -> Result<(), Broken> {
        for (node, list) in all.partial(cache).iter() {
            let wanted = move |frame| matches!(frame, Frame::Slab(slab) if slab.cache == cache);
            let what = || format!("the partial {cache:?} slabs of node {node}");
            self.list(list, &|_| true, false, &wanted, &what)?;
        }
        Ok(())
    }

    /// Checks that a partial slab is on a list of its node, unless a CPU allocates from it or has it on its partial
    /// list.
    fn is_kept_by_slub(&self, all: &Slub, pfn: Pfn, slab: Slab) -> Result<(), Broken> {
        let currents = all.current(slab.cache).iter().filter(|current| **current == Some(pfn)).count();
        let later = all.cpu_partial(slab.cache).iter().flatten().filter(|partial| partial.slab == pfn).count();
        let listed = self.listed[pfn.0 as usize];
        ensure(currents + later == usize::from(slab.frozen), Some(pfn), || {
            format!("{slab:?} of {currents} CPUs, and later of {later}")
        })?;
        let most = slab.cache.objects(slab.order);
        ensure(later == 0 || slab.in_use < most, Some(pfn), || format!("{slab:?} is on a list of a CPU"))?;
        ensure(slab.in_use <= most, Some(pfn), || format!("{slab:?} is more than full"))?;
        let belongs = !slab.frozen && slab.in_use < most;
        ensure(listed == belongs, Some(pfn), || format!("{slab:?}, on a list: {listed}"))
    }

    fn array_lists(&mut self, arrays: &Arrays, cache: Cache) -> Result<(), Broken> {
        let kmem = arrays.of(cache);
        for (id, node) in kmem.nodes.iter() {
            let here = |slab: Slab| slab.cache == cache && slab.in_use < kmem.objects();
            let wanted = move |frame: Frame| matches!(frame, Frame::Slab(slab) if here(slab) && slab.in_use > 0);
            self.list(&node.partial, &|_| true, false, &wanted, &|| {
                format!("the partial {cache:?} slabs of node {id}")
            })?;
            let wanted = move |frame: Frame| matches!(frame, Frame::Slab(slab) if here(slab) && slab.in_use == 0);
            self.list(&node.free, &|_| true, false, &wanted, &|| format!("the empty {cache:?} slabs of node {id}"))?;
            self.counts_free(kmem, (id, node))?;
            self.arrays_of_node(cache, (id, node))?;
        }
        for (cpu, array) in (0..).map(units::CpuId).zip(&kmem.cpus) {
            self.array(cache, array, self.memory.node_of_cpu(cpu), &|| format!("CPU {cpu}'s"))?;
        }
        Ok(())
    }

    /// Checks that a node's count of free objects agrees with its slabs, and that these are on the node.
    fn counts_free(&self, kmem: &KmemCache, (id, node): (NodeId, &CacheNode)) -> Result<(), Broken> {
        let mut free = 0;
        let slabs = |list: &List| list.iter(&self.memory.frames);
        for pfn in slabs(&node.partial).chain(slabs(&node.free)) {
            let Frame::Slab(slab) = self.memory.frames.get(pfn) else { unreachable!("the list was walked") };
            free += usize::from(kmem.objects() - slab.in_use);
            let of = self.memory.node_of(pfn);
            ensure(of == id, Some(pfn), || format!("a slab of node {of} on a list of node {id}"))?;
        }
        let counted = node.free_objects;
        ensure(counted == free, None, || format!("node {id} counts {counted} free objects, not {free}"))
    }

    fn arrays_of_node(&self, cache: Cache, (id, node): (NodeId, &CacheNode)) -> Result<(), Broken> {
        if let Some(shared) = &node.shared {
            self.array(cache, shared, id, &|| format!("node {id}'s shared"))?;
        }
        for (of, array) in node.aliens.iter().flat_map(PerNode::iter) {
            ensure(of != id || array.slabs.is_empty(), None, || format!("node {id} collects its own objects"))?;
            self.array(cache, array, of, &|| format!("node {id}'s of node {of}"))?;
        }
        Ok(())
    }

    /// Checks that an array holds objects of one cache and one node, and not too many.
    fn array(&self, cache: Cache, array: &ArrayCache, node: NodeId, whose: &dyn Fn() -> String) -> Result<(), Broken> {
        let count = array.slabs.len();
        ensure(count <= array.limit, None, || format!("{} array of {cache:?} holds {count}", whose()))?;
        for pfn in array.slabs.iter().copied() {
            let frame = self.memory.frames.get(pfn);
            let is_its = matches!(frame, Frame::Slab(slab) if slab.cache == cache) && self.memory.node_of(pfn) == node;
            ensure(is_its, Some(pfn), || format!("{frame:?}, but in {} array of {cache:?}", whose()))?;
        }
        Ok(())
    }

    /// Checks that a slab with a free object is on a list of its node. (Which list, and the number of free objects, are
    /// checked with the lists.)
    fn is_kept_by_node(&self, arrays: &Arrays, pfn: Pfn, slab: Slab) -> Result<(), Broken> {
        let kmem = arrays.of(slab.cache);
        let listed = self.listed[pfn.0 as usize];
        let is_sound = !slab.frozen && slab.in_use <= kmem.objects() && slab.order == kmem.order();
        ensure(is_sound, Some(pfn), || format!("{slab:?} cannot be"))?;
        ensure(listed == (slab.in_use < kmem.objects()), Some(pfn), || format!("{slab:?}, on a list: {listed}"))
    }
}
