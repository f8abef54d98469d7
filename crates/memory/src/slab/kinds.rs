//! Linux: the state of a slab's frame: `struct slab`, mm/slab.h, and the names of caches in mm/slab_common.c (v6.1).
//! Differs: a number for each cache.

use std::{fmt, num::NonZeroU32};

use units::{Order, Pfn};

/// A cache of kernel objects of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// `vm_area_struct`: a VMA.
    VmArea,
    /// `mm_struct`: an address space.
    MmStruct,
    /// `filp`: an open file.
    Filp,
    /// `dentry`: a name in the file system.
    Dentry,
    /// `ext4_inode_cache`: an inode of ext4.
    Ext4Inode,
    /// `radix_tree_node`: a node of the tree that holds a file's pages.
    RadixTreeNode,
    /// `buffer_head`: the disk block of a page.
    BufferHead,
    /// `xfs_inode`: an inode of XFS.
    XfsInode,
    /// `xfs_ili`: the log item of an XFS inode.
    XfsIli,
    /// `xfs_buf`: a buffer of metadata.
    XfsBuf,
    /// `kmalloc-512`: any object of up to 512 bytes.
    Kmalloc512,
    /// `kmalloc-1k`: any object of up to 1024 bytes.
    Kmalloc1k,
    /// `jbd2_inode`: the journal's record of an ext4 file that was opened for writing.
    Jbd2Inode,
    /// `ext4_extent_status`: a run of a file's blocks: where it is on the disk, or that it is delayed.
    ExtentStatus,
    /// `lsm_inode_cache`: the data of security modules for an inode.
    LsmInode,
    /// `jbd2_journal_head`: a block that a transaction of ext4's journal holds.
    JournalHead,
    /// `bio-0`, since 5.12 `bio-184`: a request to a disk, with room for four pages.
    Bio,
    /// `biovec-64`: the pages of a larger bio, up to 64.
    Biovec64,
    /// `biovec-max`: the pages of the largest bio.
    BiovecMax,
}

impl Cache {
    /// Every cache.
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

/// An object in use, named by the first frame of its slab. An inode has several that it may lack: `Option<Object>` takes four
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object(NonZeroU32);

impl Object {
    /// Added to a frame's number, so that neither frame 0 nor `NIL` comes to 0.
    const SHIFT: u32 = 2;

    /// An object of the slab that begins with this frame.
    ///
    /// # Panics
    /// At frame 2^32 - 2, which no machine has.
    pub fn of(slab: Pfn) -> Self {
        Self(NonZeroU32::new(slab.0.wrapping_add(Self::SHIFT)).expect("fewer than 2^32 - 2 frames"))
    }

    /// The first frame of the object's slab.
    pub fn slab(self) -> Pfn {
        Pfn(self.0.get().wrapping_sub(Self::SHIFT))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.slab()).finish()
    }
}

/// The state of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The cache that the slab's objects belong to.
    pub cache: Cache,
    /// The slab's order.
    pub order: Order,
    /// Objects in use.
    pub in_use: u16,
    /// A CPU allocates from the slab or has it on its partial list: it is on no list of its node, and stays even if it is
    /// empty.
    pub frozen: bool,
}
