//! Linux: fs/ext4: ext4_create() and ext4_add_entry() in namei.c, ext4_new_inode() and find_group_other() in ialloc.c,
//! __ext4_get_inode_loc() in inode.c, ext4_mb_load_buddy() in mballoc.c, ext4_file_open() in file.c,
//! ext4_es_insert_delayed_block() in extents_status.c (v6.1; v5.10 has the same).
//! Differs: inodes fill one flexible group after the other, and directories of the root are not spread over groups of their own
//! (`find_group_orlov`); files fill the disk from its start on, not from the second group (`ext4_inode_to_goal_block`); the index
//! block of a directory never fills up; each file is one extent, which fits into its inode. Extents of files that are only read
//! are not kept, and others go with their inode, not before (`ext4_es_scan`); they are allocated like other objects. unlink(2)
//! reads no blocks. Blocks that mounting reads are there: the superblock, and descriptors of groups.
//!
//! A file on ext4 is more than its pages, its inode and its name. Sixteen inodes share a block of the inode table, some hundred
//! names a block of their directory, and each group has bitmaps. All these are pages of the block device (`device.rs`), and
//! cannot be moved while the journal holds them (`journal.rs`). The journal's record of a file lies in unmovable slabs as long as
//! the inode does; so do the pages that list free blocks.

mod device;
mod journal;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    ops::RangeInclusive,
};

use memory::{
    alloc::NoMemory,
    cx::Cx,
    slab::{Cache, Object},
    step::{Step, TICK},
};
use units::Bytes;

use self::journal::Journal;
use super::{InodeId, PageCache};
use crate::{Mm, file::disk::DiskSpec};

/// Blocks of a group; a block is as large as a page.
const GROUP: u64 = 32_768;
/// Groups whose bitmaps and inode tables lie together (mke2fs: `-G 16`).
const FLEX: u64 = 16;
/// Inodes of a group, 256 bytes each: as many as it has blocks, as on guests' disks (mke2fs: `-i 4096`).
const INODES: u64 = 32_768;
const INODES_OF_BLOCK: u64 = Bytes::PAGE.0 / 256;
/// Blocks of an inode table that are read at once (`EXT4_DEF_INODE_READAHEAD_BLKS`).
const READ_AROUND: u64 = 32;
/// Blocks before the first bitmap: the superblock and the descriptors.
const FIRST_BITMAP: u64 = 2;
const FIRST_TABLE: u64 = FIRST_BITMAP + 2 * FLEX;
/// Directories lie behind the inode tables of the first groups, and the journal behind them.
const DIRECTORIES: u64 = 40_960;
const JOURNAL_AREA: u64 = 2 * GROUP;
/// The inode of the root (`EXT4_ROOT_INO`).
const ROOT: u32 = 2;
/// The first inode for files: lost+found has the one before (`EXT4_GOOD_OLD_FIRST_INO`).
const FIRST_INODE: u32 = 12;
/// Bytes of a directory's block that hold names: without `.` and `..`, and the checksum.
const NAMES: u64 = Bytes::PAGE.0 - 12 - 24;

/// The metadata of an ext4 file system.
#[derive(Clone, Debug)]
pub(super) struct Ext4 {
    /// The block device as a file (`bd_inode`), and the file whose pages list free blocks (`s_buddy_cache`).
    device: Option<InodeId>,
    buddies: Option<InodeId>,
    /// Blocks of the device with contents, which are read if they are not in memory.
    known: BTreeSet<u64>,
    groups: u64,
    /// Free inode numbers that were used before, of which the lowest is given out first; and the first number that was never
    /// used.
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
    directories: BTreeMap<String, Directory>,
    directory_blocks: u64,
    /// Blocks of files that were allocated so far.
    allocated: u64,
    journal: Journal,
}

/// A directory: its inode, its blocks, and the bytes of names in them.
#[derive(Clone, Debug)]
struct Directory {
    number: u32,
    blocks: Vec<u64>,
    bytes: u64,
}

impl Directory {
    /// Blocks that a directory needs for this many bytes of names: one until that is full; then a root and leaves, which are
    /// three quarters full on average, as a full leaf is split in halves (`do_split`).
    fn wants(bytes: u64) -> u64 {
        if bytes <= NAMES { 1 } else { 1 + bytes.div_ceil(NAMES * 3 / 4) }
    }

    /// The blocks that a lookup of a name with this hash reads.
    fn path(&self, hash: u64) -> impl Iterator<Item = u64> + '_ {
        let leaves = self.blocks.len() as u64 - 1;
        let leaf = hash.checked_rem(leaves).map(|at| 1 + usize::try_from(at).expect("memory addresses them"));
        std::iter::once(0).chain(leaf).map(|at| self.blocks[at])
    }
}

/// Bytes of an entry of a directory (`ext4_dir_rec_len`).
fn entry(name: &str) -> u64 {
    let (_, name) = split(name);
    (8 + name.len() as u64).next_multiple_of(4)
}

fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// A stand-in for the hash of a name, which spreads inodes over the leaves of a directory.
fn hash(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

/// An inode's group, and its index there; inode numbers begin at one (`__ext4_get_inode_loc`).
fn place(number: u32) -> (u64, u64) {
    let before = u64::from(number) - 1;
    (before / INODES, before % INODES)
}

/// The first block of a group's inode table.
fn table(group: u64) -> u64 {
    flex(group) + FIRST_TABLE + group % FLEX * (INODES / INODES_OF_BLOCK)
}

/// The block of the inode table that holds an inode.
fn table_block(number: u32) -> u64 {
    let (group, at) = place(number);
    table(group) + at / INODES_OF_BLOCK
}

fn inode_bitmap(number: u32) -> u64 {
    let (group, _) = place(number);
    flex(group) + FIRST_BITMAP + FLEX + group % FLEX
}

fn block_bitmap(group: u64) -> u64 {
    flex(group) + FIRST_BITMAP + group % FLEX
}

fn flex(group: u64) -> u64 {
    group / FLEX * FLEX * GROUP
}

impl Ext4 {
    pub(super) fn new(disk: &DiskSpec) -> Self {
        let blocks = disk.size.0 / Bytes::PAGE.0;
        Self {
            device: None,
            buddies: None,
            known: BTreeSet::new(),
            groups: blocks.div_ceil(GROUP).max(1),
            free: BinaryHeap::new(),
            next: FIRST_INODE,
            directories: BTreeMap::new(),
            directory_blocks: 0,
            allocated: 0,
            journal: Journal::new(blocks),
        }
    }

    /// The kernel objects of the journal.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.journal.objects()
    }

    /// Allocates the lowest free inode number (`ext4_new_inode`, `find_group_other`).
    pub(super) fn take_number(&mut self) -> u32 {
        self.free.pop().map_or_else(
            || {
                self.next += 1;
                self.next - 1
            },
            |Reverse(free)| free,
        )
    }

    /// Frees an inode number; 0 is none.
    pub(super) fn give_number(&mut self, number: u32) {
        if number > 0 {
            self.free.push(Reverse(number));
        }
    }

    /// Blocks of an inode table that are read together with one of them: from a multiple of `READ_AROUND` to the next, at most to
    /// the last block with a used inode (`__ext4_get_inode_loc`). None if the block is not of an inode table.
    fn read_around(&self, block: u64) -> Option<RangeInclusive<u64>> {
        let flex = block / (FLEX * GROUP) * FLEX;
        let at = (block % (FLEX * GROUP)).checked_sub(FIRST_TABLE)? / (INODES / INODES_OF_BLOCK);
        let group = (at < FLEX).then_some(flex + at)?;
        // Blocks behind the last inode that was ever used (`bg_itable_unused`) are not read.
        let used = u64::from(self.next - 1).saturating_sub(group * INODES).min(INODES);
        let first = (block / READ_AROUND * READ_AROUND).max(table(group));
        Some(first..=(first + READ_AROUND).min(table(group) + used / INODES_OF_BLOCK))
    }

    /// Counts a block that was allocated for a file.
    pub(super) fn note_allocated(&mut self) {
        self.allocated += 1;
    }

    /// Whether a file is the block device, or the one that lists free blocks.
    pub(super) fn is_own(&self, id: InodeId) -> bool {
        self.device == Some(id) || self.buddies == Some(id)
    }

    /// Counts a name in its directory.
    pub(super) fn add_name(&mut self, name: &str) {
        if let Some(directory) = self.directories.get_mut(split(name).0) {
            directory.bytes += entry(name);
        }
    }

    /// When the journal next has something to do, if ever.
    pub(super) fn due(&self) -> Option<units::Time> {
        self.journal.due()
    }

    pub(super) fn is_commit_wanted(&self) -> bool {
        self.journal.is_wanted()
    }
}

impl PageCache {
    pub(super) fn is_ext4(&self) -> bool {
        !self.is_xfs()
    }
}

impl Mm {
    /// Allocates the extent object for a file's first block, allocated or promised (`__es_insert_extent`).
    pub(super) fn make_extent(&mut self, cx: &mut Cx, id: InodeId) -> Result<(), NoMemory> {
        let inode = self.cache.inode(id);
        if inode.extent.is_none() && inode.object.is_some() {
            let extent = self.memory.alloc_object(cx, Cache::ExtentStatus)?;
            self.cache.inode_mut(id).extent = Some(extent);
        }
        Ok(())
    }

    /// Brings the directory of a name into memory, with room for the name.
    fn find_directory(&mut self, cx: &mut Cx, name: &str) -> Result<Step<()>, NoMemory> {
        let (path, bytes) = (split(name).0, entry(name));
        let ext4 = &mut self.cache.ext4;
        if !ext4.directories.contains_key(path) {
            let number = if path.is_empty() { ROOT } else { ext4.take_number() };
            ext4.directories.insert(path.to_owned(), Directory { number, blocks: Vec::new(), bytes: 0 });
        }
        let directory = &ext4.directories[path];
        let (number, blocks) = (directory.number, directory.blocks.len() as u64);
        if Directory::wants(directory.bytes + bytes) <= blocks {
            return Ok(Step::Done(()));
        }
        let block = DIRECTORIES + ext4.directory_blocks;
        if let waits @ (Step::Block(_) | Step::More) = self.change_blocks(cx, &[block, table_block(number)])? {
            return Ok(waits);
        }
        let ext4 = &mut self.cache.ext4;
        ext4.directory_blocks += 1;
        ext4.directories.get_mut(path).expect("made above").blocks.push(block);
        // A directory that outgrows its block needs two blocks: there may be another one to get.
        Ok(Step::More)
    }

    /// Adds a new file's inode, and its name in its directory: brings their blocks into memory and into the transaction.
    pub(super) fn create_on_ext4(&mut self, cx: &mut Cx, name: &str, number: u32) -> Result<Step<()>, NoMemory> {
        if let waits @ (Step::Block(_) | Step::More) = self.find_directory(cx, name)? {
            return Ok(waits);
        }
        let directory = &self.cache.ext4.directories[split(name).0];
        let mut blocks = vec![inode_bitmap(number), table_block(number), table_block(directory.number)];
        let path: Vec<u64> = directory.path(hash(number)).collect();
        let (leaf, root) = path.split_last().expect("a directory has a block");
        blocks.push(*leaf);
        for block in root {
            if let Step::Block(wait) = self.get_block(cx, *block, true)? {
                return Ok(Step::Block(wait));
            }
        }
        self.change_blocks(cx, &blocks)
    }

    /// Looks a file up: brings the blocks of its directory, and that of its inode, into memory (`ext4_lookup`, `ext4_iget`).
    pub(super) fn look_up_on_ext4(&mut self, cx: &mut Cx, name: &str, id: InodeId) -> Result<Step<()>, NoMemory> {
        let number = self.cache.inode(id).number;
        let directory = self.cache.ext4.directories.get(split(name).0);
        let path = directory.into_iter().flat_map(|directory| directory.path(hash(number)));
        let blocks: Vec<u64> = path.chain([table_block(number)]).collect();
        for block in blocks {
            if let Step::Block(wait) = self.get_block(cx, block, true)? {
                return Ok(Step::Block(wait));
            }
        }
        Ok(Step::Done(()))
    }

    /// Removes a name, and perhaps its inode. Of their blocks only those with a journal head join the transaction.
    pub(super) fn unlink_on_ext4(&mut self, cx: &Cx, name: &str, id: InodeId) {
        let number = self.cache.inode(id).number;
        let Some(directory) = self.cache.ext4.directories.get_mut(split(name).0) else { return };
        directory.bytes = directory.bytes.saturating_sub(entry(name));
        let leaf = directory.path(hash(number)).last();
        for block in leaf.into_iter().chain([table_block(number), inode_bitmap(number)]) {
            self.change_known_block(cx, block);
        }
    }

    /// Changes the times of a file that was written, once in a tick (`ext4_dirty_inode`).
    pub(super) fn update_times_on_ext4(&mut self, cx: &mut Cx, id: InodeId) -> Result<Step<()>, NoMemory> {
        let (now, inode) = (cx.now().0 / TICK.0, self.cache.inode(id));
        if inode.modified == now + 1 {
            return Ok(Step::Done(()));
        }
        let step = self.change_blocks(cx, &[table_block(inode.number)])?;
        if step == Step::Done(()) {
            self.cache.inode_mut(id).modified = now + 1;
        }
        Ok(step)
    }

    /// Prepares the allocation of blocks for a file, in one transaction: its inode and the group's bitmap change, and the list of
    /// the group's free blocks is brought into memory (`ext4_map_blocks`, `ext4_mb_mark_diskspace_used`).
    pub(super) fn allocate_on_ext4(&mut self, cx: &mut Cx, id: InodeId) -> Result<Step<()>, NoMemory> {
        if self.cache.is_xfs() || self.cache.ext4.is_own(id) {
            return Ok(Step::Done(()));
        }
        let group = self.cache.ext4.allocated / GROUP % self.cache.ext4.groups;
        self.load_buddy(cx, group)?;
        let number = self.cache.inode(id).number;
        self.change_blocks(cx, &[block_bitmap(group), table_block(number)])
    }
}
