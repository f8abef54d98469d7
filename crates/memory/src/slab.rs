//! Linux: mm/slab_common.c (v6.1), kmem_cache_create() calls in kernel/fork.c, fs/dcache.c, fs/buffer.c, fs/file_table.c,
//! block/bio.c, fs/ext4/super.c, fs/ext4/extents_status.c, fs/jbd2/journal.c, fs/xfs/xfs_super.c (v4.20) and lib/radix-tree.c.
//! Differs: caches of like objects are not merged; objects in a slab have no order. The price of an object is part of the
//! operation that needs it; only slabs are priced here.
//!
//! Kernel objects live in slabs: blocks of frames for objects of one kind. Which slab an object comes from, and when an empty
//! slab is freed, is up to the allocator that the kernel is built with: `slub.rs`, or `arrays.rs` with `reap.rs` for idle
//! objects.

mod arrays;
pub mod kinds;
mod layout;
mod reap;
mod slub;

use rules::{gfp::AllocRequest, machine::MachineSpec, variant::Variant, zone::Settings};
use units::{NodeId, Order, Pfn};

use crate::{
    Memory,
    alloc::NoMemory,
    cx::Cx,
    frame::{Frame, FrameTable},
};

pub use arrays::{ArrayCache, Arrays, CacheNode, KmemCache};
pub use kinds::{Cache, Object, Slab};
pub use reap::REAP_CPU;
pub use slub::{CpuPartial, Slub};
pub use units::setting::SlabAllocator;

impl Cache {
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
            Self::Kmalloc1k | Self::Biovec64 => 1024,
            // struct jbd2_inode and struct extent_status (fs/jbd2, fs/ext4, v6.1) have 64 and 40 bytes. struct journal_head has
            // 112; as its slabs are freed by RCU, the pointer of the free list takes 8 more.
            Self::Jbd2Inode => 64,
            Self::ExtentStatus => 40,
            // An rcu_head, and a pointer each of Landlock and of BPF: 128 per slab of order 0 in /proc/slabinfo of Debian's 6.1.
            Self::LsmInode => 32,
            Self::JournalHead => 120,
            // A bio has 120 bytes and 16 for each of four pages, and begins with a cache line: 21 per slab of order 0, and 8
            // vectors of order 3, in /proc/slabinfo of a 6.18 host. Vectors have 16 bytes for each page too.
            Self::Bio => (120 + 4 * 16_u32).next_multiple_of(64),
            Self::BiovecMax => 256 * 16,
        }
    }

    /// Whether objects of this cache can be reclaimed or are freed soon (`SLAB_RECLAIM_ACCOUNT`, `SLAB_TEMPORARY`).
    const fn is_reclaimable(self) -> bool {
        matches!(
            self,
            Self::Dentry
                | Self::Ext4Inode
                | Self::RadixTreeNode
                | Self::BufferHead
                | Self::XfsInode
                | Self::ExtentStatus
                | Self::JournalHead
        )
    }

    /// Whether objects are constructed when their slab is made (`ctor`).
    const fn has_constructor(self) -> bool {
        matches!(self, Self::Ext4Inode | Self::RadixTreeNode | Self::XfsInode)
    }

    /// The request for the frames of a slab, without its order.
    const fn request(self, node: NodeId) -> AllocRequest {
        match self {
            // If no frame is free, an object from the pool's reserve is taken (`mempool_alloc`).
            Self::Bio | Self::Biovec64 | Self::BiovecMax => AllocRequest::gfp_nowait(node),
            _ if self.is_reclaimable() => AllocRequest::gfp_kernel_reclaimable(node),
            _ => AllocRequest::gfp_kernel(node),
        }
    }

    /// Most objects in a slab of `order`.
    pub fn objects(self, order: Order) -> u16 {
        let objects = (order.frames() << 12) / self.size();
        u16::try_from(objects).expect("a slab has few objects")
    }
}

impl Slab {
    /// Whether the slab has no free object left in SLUB.
    fn is_full(self) -> bool {
        self.in_use == self.cache.objects(self.order)
    }

    /// Free objects of the slab in SLUB.
    fn free(self) -> u32 {
        u32::from(self.cache.objects(self.order) - self.in_use)
    }
}

/// All slabs of the kernel, by the allocator that it is built with.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum Slabs {
    /// The slabs of SLUB.
    Slub(Slub),
    /// The slabs and arrays of SLAB.
    Slab(Arrays),
}

impl Slabs {
    pub(crate) fn new(machine: &MachineSpec, cpu_nodes: &[NodeId], settings: &Settings, rules: &Variant) -> Self {
        match settings.slab_allocator {
            SlabAllocator::Slub => Self::Slub(Slub::new(cpu_nodes.len(), machine, rules)),
            SlabAllocator::Slab => Self::Slab(Arrays::new(machine, cpu_nodes)),
        }
    }

    /// The order of a slab of a kind where memory is not short.
    pub fn order(&self, cache: Cache) -> Order {
        match self {
            Self::Slub(slub) => slub.order(cache),
            Self::Slab(arrays) => arrays.of(cache).order(),
        }
    }

    /// Objects that nobody has, but that count as in use where they lie: SLAB's arrays.
    pub fn spare_objects(&self) -> Vec<Object> {
        self.arrays().map_or(Vec::new(), |arrays| arrays.objects().collect())
    }

    /// The slabs of SLUB, if the kernel is built with it.
    pub fn slub(&self) -> Option<&Slub> {
        match self {
            Self::Slub(slub) => Some(slub),
            Self::Slab(_) => None,
        }
    }

    /// The slabs of SLAB, if the kernel is built with it.
    pub fn arrays(&self) -> Option<&Arrays> {
        match self {
            Self::Slub(_) => None,
            Self::Slab(arrays) => Some(arrays),
        }
    }

    fn slub_mut(&mut self) -> &mut Slub {
        match self {
            Self::Slub(slub) => slub,
            Self::Slab(_) => unreachable!("the kernel is built with SLAB"),
        }
    }

    fn arrays_mut(&mut self) -> &mut Arrays {
        match self {
            Self::Slab(arrays) => arrays,
            Self::Slub(_) => unreachable!("the kernel is built with SLUB"),
        }
    }
}

impl Memory {
    /// An object (`kmem_cache_alloc`).
    pub fn alloc_object(&mut self, cx: &mut Cx, cache: Cache) -> Result<Object, NoMemory> {
        match self.slabs {
            Slabs::Slub(_) => self.slub_alloc(cx, cache),
            Slabs::Slab(_) => self.slab_alloc(cx, cache),
        }
    }

    /// Frees an object (`kmem_cache_free`).
    ///
    /// # Panics
    /// When the slab has no object in use.
    pub fn free_object(&mut self, cx: &mut Cx, object: Object) {
        match self.slabs {
            Slabs::Slub(_) => self.slub_free(cx, object),
            Slabs::Slab(_) => self.slab_free(cx, object),
        }
    }

    /// A block that holds objects already becomes a slab of a kind, all its objects free. They are used
    /// before objects of new slabs.
    pub fn take_over_slab(&mut self, pfn: Pfn, cache: Cache, order: Order) {
        self.frames.set(pfn, Frame::Slab(Slab { cache, order, in_use: 0, frozen: false }));
        let node = self.node_of(pfn);
        match &mut self.slabs {
            Slabs::Slub(slub) => slub.put_partial(&mut self.frames, node, pfn),
            Slabs::Slab(arrays) => arrays.of_mut(cache).put_new(&mut self.frames, node, pfn),
        }
    }
}

fn slab_at(frames: &FrameTable, pfn: Pfn) -> Slab {
    match frames.get(pfn) {
        Frame::Slab(slab) => slab,
        other => panic!("frame {pfn} holds objects, but it is {other:?}"),
    }
}
