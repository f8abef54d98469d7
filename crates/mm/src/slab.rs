//! Linux: mm/slub.c (v6.1), kmem_cache_create() calls in kernel/fork.c, fs/dcache.c, fs/buffer.c, fs/file_table.c,
//! fs/ext4/super.c, fs/xfs/xfs_super.c (v4.20) and lib/radix-tree.c.
//! Differs: no per-CPU partial lists (as without CONFIG_SLUB_CPU_PARTIAL); a CPU looks for partial slabs on its own node
//! only; caches of like objects are not merged; objects in a slab have no order. The price of an object is part of what it
//! is for; only slabs are priced here.
//!
//! Kernel objects live in slabs: blocks of frames of one kind of object. Each CPU fills one slab at a time; others that
//! have room are on a list of their node. A slab that becomes empty goes back when its node has enough of them.

use units::{Order, Pfn};

use crate::{
    MachineSpec, Mm, PerNode,
    cx::Cx,
    frame::{Frame, FrameTable},
    gfp::AllocRequest,
    list::List,
};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// `vm_area_struct`: a VMA.
    VmArea,
    /// `mm_struct`: an address space.
    MmStruct,
    /// `filp`: an open file.
    Filp,
    /// `dentry`: a name.
    Dentry,
    /// `ext4_inode_cache`: a file.
    Ext4Inode,
    /// `radix_tree_node`: a node of the tree of a file's pages.
    RadixTreeNode,
    /// `buffer_head`: the block of a page.
    BufferHead,
    /// `xfs_inode`: a file.
    XfsInode,
    /// `xfs_ili`: what the log holds of it.
    XfsIli,
    /// `xfs_buf`: a buffer of metadata.
    XfsBuf,
    /// `kmalloc-512`: anything of up to 512 bytes.
    Kmalloc512,
    /// `kmalloc-1k`: anything of up to 1024 bytes.
    Kmalloc1k,
}

impl Cache {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::VmArea,
        Self::MmStruct,
        Self::Filp,
        Self::Dentry,
        Self::Ext4Inode,
        Self::RadixTreeNode,
        Self::BufferHead,
        Self::XfsInode,
        Self::XfsIli,
        Self::XfsBuf,
        Self::Kmalloc512,
        Self::Kmalloc1k,
    ];

    /// Bytes from one object to the next.
    const fn size(self) -> u32 {
        match self {
            // 20 per frame on x86-64 up to 6.3; 192 bytes, 21 per frame, in /proc/slabinfo of a 6.18 host.
            Self::VmArea => 200,
            // 20 per slab of order 3 in /proc/slabinfo of a 6.18 host.
            Self::MmStruct => 1600,
            // Per slab in /proc/slabinfo of Debian's 6.1: 16 of order 0, 21 of order 0, 27 of order 3, 28 of order 2, 39 of
            // order 0 [mem].
            Self::Filp => 256,
            Self::Dentry => 192,
            Self::Ext4Inode => 1184,
            Self::RadixTreeNode => 584,
            Self::BufferHead => 104,
            // Per slab in /proc/slabinfo of 4.x kernels: 34 of order 3, 24 of order 0, 42 of order 2 [mem].
            Self::XfsInode => 960,
            Self::XfsIli => 168,
            Self::XfsBuf => 384,
            Self::Kmalloc512 => 512,
            Self::Kmalloc1k => 1024,
        }
    }

    /// The order of a slab where memory is not short, on so many CPUs: the least that leaves at most a sixteenth over and holds
    /// as many objects as `calculate_order` asks for there (mm/slub.c, v6.1; 4.20 has the same, and counts CPUs that may come).
    ///
    /// # Panics
    /// When the objects fit badly: the kernel is content with less then, and no kind of ours needs that.
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

    /// Can its objects be given back under pressure (`SLAB_RECLAIM_ACCOUNT`)?
    const fn is_reclaimable(self) -> bool {
        matches!(self, Self::Dentry | Self::Ext4Inode | Self::RadixTreeNode | Self::BufferHead | Self::XfsInode)
    }

    /// Empty slabs stay up to this many partial ones of a node: half the logarithm of the size, at least 5, at most 10
    /// (`MIN_PARTIAL`, `MAX_PARTIAL`, mm/slub.c, v6.1).
    fn min_partial(self) -> u32 {
        (self.size().ilog2() / 2).clamp(5, 10)
    }

    /// Objects in a slab of an order.
    pub fn objects(self, order: Order) -> u16 {
        let objects = (order.frames() << 12) / self.size();
        u16::try_from(objects).expect("a slab has few objects")
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self::ALL[index]
    }
}

/// An object that is in use, by the first frame of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object(pub(crate) Pfn);

impl Object {
    /// The first frame of its slab.
    pub fn slab(self) -> Pfn {
        self.0
    }
}

/// The state of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The cache of its objects.
    pub cache: Cache,
    /// The slab's order.
    pub order: Order,
    /// Objects in use.
    pub in_use: u16,
    /// A CPU allocates from it: it is on no list, and stays when it is empty.
    pub frozen: bool,
}

impl Slab {
    /// Has it no room left?
    pub fn is_full(self) -> bool {
        self.in_use == self.cache.objects(self.order)
    }
}

/// All slabs.
#[derive(Clone, Debug)]
pub struct Slabs {
    caches: [CacheState; Cache::ALL.len()],
}

#[derive(Clone, Debug)]
struct CacheState {
    /// The order of a slab where memory is not short.
    order: Order,
    /// The slab that each CPU allocates from.
    current: Vec<Option<Pfn>>,
    /// Slabs of each node with room that no CPU allocates from.
    partial: PerNode<List>,
}

impl Slabs {
    pub(crate) fn new(cpus: usize, machine: &MachineSpec) -> Self {
        let partial = PerNode::new(machine, |_| List::default());
        let present = u32::try_from(cpus).expect("few CPUs");
        let cache = |cache: Cache| CacheState {
            order: cache.order_on(present),
            current: vec![None; cpus],
            partial: partial.clone(),
        };
        Self { caches: Cache::ALL.map(cache) }
    }

    /// The order of a slab of a kind where memory is not short.
    pub(crate) fn order(&self, cache: Cache) -> Order {
        self.caches[cache as usize].order
    }

    /// Slabs of a kind with room that no CPU allocates from, of each node.
    pub fn partial(&self, cache: Cache) -> &PerNode<List> {
        &self.caches[cache as usize].partial
    }

    /// The slab of a kind that each CPU allocates from.
    pub fn current(&self, cache: Cache) -> &[Option<Pfn>] {
        &self.caches[cache as usize].current
    }
}

impl Mm {
    /// An object; nothing when memory is out (`kmem_cache_alloc`).
    pub(crate) fn alloc_object(&mut self, cx: &mut Cx, cache: Cache) -> Option<Object> {
        let cpu = cx.cpu().0 as usize;
        let has_room = |frames: &FrameTable, slab: &Pfn| !slab_at(frames, *slab).is_full();
        let current = self.slabs.caches[cache as usize].current[cpu].filter(|slab| has_room(&self.frames, slab));
        let slab = match current {
            Some(slab) => slab,
            None => self.next_slab(cx, cache)?,
        };
        let state = slab_at(&self.frames, slab);
        self.frames.set(slab, Frame::Slab(Slab { in_use: state.in_use + 1, ..state }));
        Some(Object(slab))
    }

    /// Gives an object back (`kmem_cache_free`).
    pub(crate) fn free_object(&mut self, cx: &mut Cx, object: Object) {
        let Object(pfn) = object;
        let was = slab_at(&self.frames, pfn);
        let now = Slab { in_use: was.in_use.checked_sub(1).expect("the object is in use"), ..was };
        self.frames.set(pfn, Frame::Slab(now));
        if now.frozen {
            return;
        }
        let node = self.node_of(pfn);
        let partial = &mut self.slabs.caches[now.cache as usize].partial[node];
        if now.in_use == 0 && partial.len() >= now.cache.min_partial() {
            if !was.is_full() {
                partial.remove(self.frames.threads(), pfn);
            }
            self.free(cx, pfn, now.order);
        } else if was.is_full() {
            partial.push_tail(self.frames.threads(), pfn);
        }
    }

    /// A block that holds objects already becomes a slab of a kind, all free: of objects that come before those of new ones.
    pub(crate) fn take_over_slab(&mut self, pfn: Pfn, cache: Cache, order: Order) {
        let node = self.node_of(pfn);
        self.frames.set(pfn, Frame::Slab(Slab { cache, order, in_use: 0, frozen: false }));
        self.slabs.caches[cache as usize].partial[node].push_tail(self.frames.threads(), pfn);
    }

    /// Another slab for this CPU: a partial one of its node, or a new one (`___slab_alloc`).
    fn next_slab(&mut self, cx: &mut Cx, cache: Cache) -> Option<Pfn> {
        let (cpu, node) = (cx.cpu().0 as usize, self.node_of_cpu(cx.cpu()));
        let partial = self.slabs.caches[cache as usize].partial[node].pop_head(self.frames.threads());
        let slab = match partial {
            Some(slab) => slab,
            None => self.new_slab(cx, cache)?,
        };
        if let Some(full) = self.slabs.caches[cache as usize].current[cpu].replace(slab) {
            self.freeze(full, false);
        }
        self.freeze(slab, true);
        Some(slab)
    }

    /// A slab of the usual order, or of the least that holds an object (`allocate_slab`).
    fn new_slab(&mut self, cx: &mut Cx, cache: Cache) -> Option<Pfn> {
        let node = self.node_of_cpu(cx.cpu());
        let request = if cache.is_reclaimable() {
            AllocRequest::gfp_kernel_reclaimable(node)
        } else {
            AllocRequest::gfp_kernel(node)
        };
        let usual = self.slabs.order(cache);
        let least = (0..=usual.0).map(Order).find(|order| cache.objects(*order) > 0).expect("objects are small");
        let orders = if least < usual { [Some(usual), Some(least)] } else { [Some(least), None] };
        orders.into_iter().flatten().find_map(|order| {
            // Where less will do, nobody makes room for more (`allocate_slab`).
            let light = AllocRequest { wakes_kswapd: false, reclaims: false, ..request };
            let request = if order > least { light } else { request };
            let pfn = self.alloc(cx, &request.of_order(order))?;
            self.frames.set(pfn, Frame::Slab(Slab { cache, order, in_use: 0, frozen: false }));
            Some(pfn)
        })
    }

    fn freeze(&mut self, pfn: Pfn, frozen: bool) {
        let slab = slab_at(&self.frames, pfn);
        self.frames.set(pfn, Frame::Slab(Slab { frozen, ..slab }));
    }
}

fn slab_at(frames: &FrameTable, pfn: Pfn) -> Slab {
    match frames.get(pfn) {
        Frame::Slab(slab) => slab,
        other => panic!("frame {pfn} holds objects, but it is {other:?}"),
    }
}

#[cfg(test)]
mod tests;
