//! Linux: what a frame of a slab tells: `struct slab`, mm/slab.h, and the names of caches in mm/slab_common.c (v6.1).
//! Differs: a number for each cache.

use units::{Order, Pfn};

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
    /// `jbd2_inode`: what the journal of ext4 knows of a file that was opened to be written.
    Jbd2Inode,
    /// `ext4_extent_status`: where a run of a file's blocks is, or that it is promised.
    ExtentStatus,
    /// `lsm_inode_cache`: what security modules keep with a file.
    LsmInode,
    /// `jbd2_journal_head`: a block that the journal of ext4 has a part in.
    JournalHead,
    /// `bio-0`, since 5.12 `bio-184`: pages on their way to a disk or from it, up to four of them.
    Bio,
    /// `biovec-64`: more of them.
    Biovec64,
    /// `biovec-max`: as many as one bio has.
    BiovecMax,
}

impl Cache {
    /// Every kind.
    pub const ALL: [Self; 19] = [
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
        Self::Jbd2Inode,
        Self::ExtentStatus,
        Self::LsmInode,
        Self::JournalHead,
        Self::Bio,
        Self::Biovec64,
        Self::BiovecMax,
    ];

    pub(crate) fn from_index(index: usize) -> Self {
        Self::ALL[index]
    }
}

/// An object that is in use, by the first frame of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object(pub Pfn);

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
