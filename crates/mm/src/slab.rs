//! Linux: mm/slab_common.c (v6.1), kmem_cache_create() calls in kernel/fork.c, fs/dcache.c, fs/buffer.c, fs/file_table.c,
//! fs/ext4/super.c, fs/xfs/xfs_super.c (v4.20) and lib/radix-tree.c.
//! Differs: caches of like objects are not merged; objects in a slab have no order. The price of an object is part of what
//! it is for; only slabs are priced here.
//!
//! Kernel objects live in slabs: blocks of frames of one kind of object. `slub.rs` says which slab an object comes from, and
//! when an empty one goes back.

mod slub;

use units::{NodeId, Order, Pfn};

use crate::{
    frame::{Frame, FrameTable},
    gfp::AllocRequest,
};

pub use slub::{CpuPartial, Slabs, SlubCpuPartial};

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

    /// Can its objects be given back under pressure (`SLAB_RECLAIM_ACCOUNT`)?
    const fn is_reclaimable(self) -> bool {
        matches!(self, Self::Dentry | Self::Ext4Inode | Self::RadixTreeNode | Self::BufferHead | Self::XfsInode)
    }

    /// The request to the page allocator for a slab, but for the order.
    const fn request(self, node: NodeId) -> AllocRequest {
        if self.is_reclaimable() { AllocRequest::gfp_kernel_reclaimable(node) } else { AllocRequest::gfp_kernel(node) }
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
    /// A CPU allocates from it, or has it among those that it will allocate from: it is on no list of its node, and stays when
    /// it is empty.
    pub frozen: bool,
}

impl Slab {
    /// Has it no room left?
    pub fn is_full(self) -> bool {
        self.in_use == self.cache.objects(self.order)
    }

    /// Objects not in use.
    fn free(self) -> u32 {
        u32::from(self.cache.objects(self.order) - self.in_use)
    }
}

fn slab_at(frames: &FrameTable, pfn: Pfn) -> Slab {
    match frames.get(pfn) {
        Frame::Slab(slab) => slab,
        other => panic!("frame {pfn} holds objects, but it is {other:?}"),
    }
}
