//! Linux: struct inode, include/linux/fs.h; fs/inode.c, fs/dcache.c (v6.1); i_mmap in mm/mmap.c.
//! Differs: inodes that are not in memory are kept here too, as far as the disk has them.

use std::{collections::BTreeMap, num::NonZeroU64};

use memory::{
    cx::Cx,
    frame::{FamilyId, SegmentId},
    slab::Object,
};
use rules::variant::InodeShrink;
use units::{NodeId, Picos, Time};

use super::{
    PageCache,
    mapping::Mapping,
    xfs::{ClusterId, Logged},
};
use crate::{Mm, space::vma::FileMap};

/// A file of the disk, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeId(pub u32);

/// The file and part that a segment is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) inode: InodeId,
    pub(super) nth: u32,
}

/// A family that maps a file so that page `index` of the file is at page number `index + shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappedBy {
    pub(super) family: FamilyId,
    pub(super) shift: u64,
    /// Number of VMAs.
    pub(super) vmas: u32,
}

/// A place among the unused inodes or dentries of a node, in eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unused(NonZeroU64);

impl Unused {
    /// Bits of a node's number (`NODES_SHIFT`).
    const NODE_BITS: u32 = 10;

    /// # Panics
    /// If the node or the place is too large.
    pub(super) fn new(node: NodeId, place: u64) -> Self {
        assert!(
            node.0 >> Self::NODE_BITS == 0 && place >> (u64::BITS - Self::NODE_BITS) == 0,
            "{node:?}, place {place}"
        );
        Self(NonZeroU64::new(place << Self::NODE_BITS | u64::from(node.0)).expect("places begin at 1"))
    }

    /// The node, and the place in its list.
    pub(super) fn parts(self) -> (NodeId, u64) {
        let node = self.0.get() & ((1 << Self::NODE_BITS) - 1);
        (NodeId(u32::try_from(node).expect("ten bits")), self.0.get() >> Self::NODE_BITS)
    }
}

/// Runs of blocks, from start to end. Nearly all files have one run, which needs no map.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "a tree takes 24 bytes, and nearly no file has one")]
pub(super) enum Extents {
    /// One run; none if start and end are equal.
    One(u64, u64),
    Many(Box<BTreeMap<u64, u64>>),
}

impl Default for Extents {
    fn default() -> Self {
        Self::One(0, 0)
    }
}

impl Extents {
    pub(super) fn has(&self, index: u64) -> bool {
        match self {
            Self::One(start, end) => (*start..*end).contains(&index),
            Self::Many(runs) => runs.range(..=index).next_back().is_some_and(|(_, end)| index < *end),
        }
    }

    /// Adds a block; returns false if it was there.
    pub(super) fn add(&mut self, index: u64) -> bool {
        if self.has(index) {
            return false;
        }
        match self {
            Self::One(start, end) if start == end => (*start, *end) = (index, index + 1),
            Self::One(_, end) if *end == index => *end += 1,
            Self::One(start, _) if *start == index + 1 => *start -= 1,
            Self::One(start, end) => {
                *self = Self::Many(Box::new(BTreeMap::from([(*start, *end), (index, index + 1)])));
            }
            Self::Many(runs) => {
                let mut end = index + 1;
                if let Some(behind) = runs.remove(&end) {
                    end = behind;
                }
                match runs.range_mut(..index).next_back() {
                    Some((_, before)) if *before == index => *before = end,
                    _ => {
                        runs.insert(index, end);
                    }
                }
            }
        }
        true
    }

    /// Removes all blocks from an index on; returns their number.
    pub(super) fn cut(&mut self, from: u64) -> u64 {
        let before = self.blocks();
        match self {
            Self::One(start, end) => (*start, *end) = ((*start).min(from), (*end).min(from)),
            Self::Many(runs) => {
                runs.split_off(&from);
                if let Some((_, end)) = runs.range_mut(..from).next_back() {
                    *end = (*end).min(from);
                }
            }
        }
        before - self.blocks()
    }

    pub(super) fn blocks(&self) -> u64 {
        match self {
            Self::One(start, end) => end - start,
            Self::Many(runs) => runs.iter().map(|(start, end)| end - start).sum(),
        }
    }
}

/// Facts of an inode that few files have.
#[derive(Clone, Debug, Default)]
pub(super) struct Rare {
    /// Segments of a large file behind its first.
    segments: Vec<SegmentId>,
    maps: Vec<MappedBy>,
    /// The contents of the file's blocks, for tests.
    contents: BTreeMap<u64, u64>,
}

/// A file. A disk may have a million small files, in one array: rare facts are boxed.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// A name leads to the file: false once it is unlinked.
    pub(super) has_name: bool,
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) mapping: Mapping,
    /// The first segment.
    pub(super) segment: Option<SegmentId>,
    /// Blocks of the file on the disk.
    pub(super) blocks: Extents,
    /// Number of open files.
    pub(super) opens: u32,
    /// The object of the inode, if it is in memory.
    pub(super) object: Option<Object>,
    pub(super) dentry: Option<Object>,
    /// The record of the inode in the log or the journal (`struct xfs_inode_log_item`, `struct jbd2_inode`).
    pub(super) log_item: Option<Object>,
    /// The object of security modules while the inode is in memory (`i_security`).
    pub(super) security: Option<Object>,
    /// On ext4: the extent of the file's blocks, known or promised (`struct extent_status`).
    pub(super) extent: Option<Object>,
    /// On ext4: the inode's number.
    pub(super) number: u32,
    /// On XFS: the inode's cluster, and its vectors in the log.
    pub(super) cluster: Option<ClusterId>,
    pub(super) logged: Logged,
    /// On XFS: pages up to the file size that the disk has.
    pub(super) on_disk: u64,
    /// Ticks in which the file was last written, and last read; on ext4 one more than the tick, of writes only.
    pub(super) modified: u64,
    pub(super) accessed: u64,
    /// The dentry's place among unused dentries; and whether it was used again since.
    pub(super) dentry_place: Option<Unused>,
    pub(super) is_dentry_used: bool,
    /// The inode's place among unused inodes.
    pub(super) idle_place: Option<Unused>,
    /// The inode's place among inodes with dirty pages, and the time at which it got it.
    pub(super) dirty_place: Option<u64>,
    pub(super) dirty_since: Time,
    /// Index at which the flusher goes on.
    pub(super) write_from: u64,
    /// When all pages sent so far are written.
    pub(super) written_by: Time,
    /// A page could not be written since this was last checked (`AS_EIO`).
    pub(super) has_failed: bool,
    pub(super) rare: Option<Box<Rare>>,
}

impl Inode {
    /// Whether the inode is used, and so stays in memory.
    pub(super) fn is_used(&self) -> bool {
        self.opens > 0 || !self.maps().is_empty() || self.dentry.is_some()
    }

    /// The families that map the file.
    pub(super) fn maps(&self) -> &[MappedBy] {
        self.rare.as_ref().map_or(&[], |rare| &rare.maps)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Segments of the file, in order.
    fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.segment.into_iter().chain(self.rare.iter().flat_map(|rare| rare.segments.iter().copied()))
    }

    fn add_segment(&mut self, segment: SegmentId) {
        if self.segment.is_none() {
            self.segment = Some(segment);
        } else {
            self.rare().segments.push(segment);
        }
    }

    /// The contents of a block, for tests: 0 if it was never written.
    pub(super) fn content(&self, index: u64) -> u64 {
        self.rare.as_ref().and_then(|rare| rare.contents.get(&index).copied()).unwrap_or(0)
    }

    /// Sets the contents of a block, for tests.
    pub(super) fn set_content(&mut self, index: u64, content: u64) {
        self.rare().contents.insert(index, content);
    }

    /// Clears the contents of the blocks from an index on, for tests.
    pub(super) fn cut_contents(&mut self, from: u64) {
        if let Some(rare) = &mut self.rare {
            rare.contents.split_off(&from);
        }
    }

    /// Number of pages up to the file's end.
    pub(super) fn pages(&self) -> u64 {
        self.size.div_ceil(units::Bytes::PAGE.0)
    }
}

impl PageCache {
    pub(super) fn inode(&self, id: InodeId) -> &Inode {
        self.inodes[id.0 as usize].as_ref().expect("the file exists")
    }

    pub(super) fn inode_mut(&mut self, id: InodeId) -> &mut Inode {
        self.inodes[id.0 as usize].as_mut().expect("the file exists")
    }

    pub(super) fn add_inode(&mut self, inode: Inode) -> InodeId {
        let inode = Some(inode);
        if let Some(id) = self.free_inodes.pop() {
            self.inodes[id as usize] = inode;
            return InodeId(id);
        }
        self.inodes.push(inode);
        InodeId(u32::try_from(self.inodes.len() - 1).expect("fewer than 2^32 files"))
    }

    /// Drops the inode of a file that is gone, without pages and users.
    pub(super) fn forget_inode(&mut self, id: InodeId) {
        self.leave_idle(id);
        self.leave_dirty(id);
        let inode = self.inodes[id.0 as usize].take().expect("the file exists");
        assert!(inode.mapping.is_empty() && !inode.is_used() && inode.object.is_none(), "{id:?} is still used");
        self.blocks_used -= inode.blocks.blocks();
        self.ext4.give_number(inode.number);
        for segment in inode.segments() {
            self.segments[segment.0 as usize] = None;
            self.free_segments.push(segment.0);
        }
        self.free_inodes.push(id.0);
    }

    /// The segment that holds an index of a file.
    pub(super) fn segment(&mut self, id: InodeId, index: u64) -> SegmentId {
        let nth = usize::try_from(index / u64::from(SegmentId::PAGES)).expect("memory addresses them");
        // Bound: the parts of the file.
        loop {
            let inode = self.inode(id);
            let found = if nth == 0 { inode.segment } else { inode.segments().nth(nth) };
            if let Some(segment) = found {
                return segment;
            }
            let at = u32::try_from(inode.segments().count()).expect("few parts");
            let part = Some(Segment { inode: id, nth: at });
            let segment = if let Some(free) = self.free_segments.pop() {
                self.segments[free as usize] = part;
                free
            } else {
                self.segments.push(part);
                u32::try_from(self.segments.len() - 1).expect("fewer than 2^28 segments")
            };
            self.inode_mut(id).add_segment(SegmentId(segment));
        }
    }

    /// Takes an inode off the unused ones: it is used again, or gone.
    pub(super) fn leave_idle(&mut self, id: InodeId) {
        if let Some((node, place)) = self.inode_mut(id).idle_place.take().map(Unused::parts) {
            self.idle[node].remove(place);
        }
    }

    pub(super) fn leave_dirty(&mut self, id: InodeId) {
        if let Some(place) = self.inode_mut(id).dirty_place.take() {
            self.dirty.remove(place);
        }
    }

    /// Puts an inode among those with dirty pages (`__mark_inode_dirty`); returns whether it is the only one.
    pub(super) fn enter_dirty(&mut self, id: InodeId, now: Time) -> bool {
        let is_first = self.dirty.len() == 0;
        if self.inode(id).dirty_place.is_some() {
            return false;
        }
        let place = self.dirty.push(id);
        let inode = self.inode_mut(id);
        (inode.dirty_place, inode.dirty_since) = (Some(place), now);
        is_first
    }

    /// Whether an inode became dirty at least `age` ago.
    pub(super) fn is_older(&self, id: InodeId, now: Time, age: Picos) -> bool {
        self.inode(id).dirty_since + age <= now
    }

    /// Counts a VMA that maps the file.
    pub(super) fn add_mapper(&mut self, id: InodeId, family: FamilyId, shift: u64) {
        let maps = &mut self.inode_mut(id).rare().maps;
        match maps.iter_mut().find(|map| map.family == family && map.shift == shift) {
            Some(map) => map.vmas += 1,
            None => maps.push(MappedBy { family, shift, vmas: 1 }),
        }
        self.leave_idle(id);
    }
}

impl Mm {
    /// Counts a VMA of a family that maps a file (`vma_link_file`).
    pub(crate) fn map_file(&mut self, family: FamilyId, map: FileMap) {
        self.cache.add_mapper(map.inode, family, map.shift);
        self.cache.open[map.file as usize].as_mut().expect("it is open, or another VMA keeps it").maps += 1;
    }

    /// Ends a mapping of a file; an unlinked file that is not open is removed at once (`remove_vma`, `iput`).
    pub(crate) fn unmap_file(&mut self, cx: &mut Cx, family: FamilyId, map: FileMap) {
        let maps = &mut self.cache.inode_mut(map.inode).rare().maps;
        let at = maps.iter().position(|known| known.family == family && known.shift == map.shift);
        let at = at.expect("it was mapped");
        maps[at].vmas -= 1;
        if maps[at].vmas == 0 {
            maps.swap_remove(at);
        }
        self.put_mapped_file(cx, map.file);
    }

    /// Frees the objects of an inode in memory.
    pub(super) fn free_inode_objects(&mut self, cx: &mut Cx, id: InodeId) {
        let inode = self.cache.inode_mut(id);
        let objects = [inode.object.take(), inode.log_item.take(), inode.extent.take(), inode.logged.take()];
        let security = inode.security.take();
        for object in objects.into_iter().chain([security]).flatten() {
            self.memory.free_object(cx, object);
        }
    }

    /// Puts an unused inode among those to be reclaimed, or drops it with its file (`inode_add_lru`): since 5.16 once it has
    /// no pages, before that once none of them is dirty.
    pub(super) fn rest_inode(&mut self, id: InodeId) {
        let inode = self.cache.inode(id);
        let (Some(object), false, None) = (inode.object, inode.is_used(), inode.idle_place) else { return };
        let is_kept = match self.memory.variant().inode_shrink {
            InodeShrink::WithoutPages => !inode.mapping.is_shrinkable(),
            InodeShrink::TakesPages | InodeShrink::KeepsMany => inode.dirty_place.is_some(),
        };
        if is_kept || !inode.has_name {
            return;
        }
        let node = self.memory.node_of(object.slab());
        let place = self.cache.idle[node].push(id);
        self.cache.inode_mut(id).idle_place = Some(Unused::new(node, place));
    }
}
