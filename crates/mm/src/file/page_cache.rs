//! Linux: mm/filemap.c, mm/truncate.c, mm/page-writeback.c, mm/readahead.c, fs/buffer.c, fs/inode.c, fs/dcache.c and, as far
//! as memory sees it, fs/ext4 (v6.1).
//! Differs: one file system on one disk, with blocks of one page; delayed allocation, one extent for each file; base pages only;
//! a task that writes a file does not lock it against others.
//!
//! A file's pages are found by inode and index; a frame of the cache has the segment and index of its page. A page leaves the
//! cache when the file is truncated or removed, or when reclaim takes it.

mod balance;
mod bio;
mod dirty;
mod drop;
mod ext4;
mod fault;
mod filemap_read;
mod flusher;
mod inode;
mod mapping;
mod names;
mod operation;
mod read;
mod shrink;
mod sync;
mod truncate;
mod write;
mod xfs;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher},
};

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::{ControlId, FamilyId, Frame, FrameFlag, FrameTable, SegmentId},
    list_order::Ordered,
    pageblock::ZoneIndex,
    per_node::PerNode,
    per_zone::PerZone,
    primitive,
    slab::{Cache, Object},
};
use rules::{gfp::AllocRequest, machine::MachineSpec, zone::Settings};
use units::{Order, Pfn, Vpn};

use crate::{
    Mm,
    file::disk::{Disk, DiskSpec},
};

use balance::{Balancing, TaskDirty};
pub(crate) use fault::{FileFault, FileWent, copy_at_once};
pub use flusher::Flusher;
pub use inode::InodeId;
use inode::{Inode, Segment};
pub(crate) use mapping::Marks;
use mapping::{CachedPage, Nodes, Room};
pub use mapping::{PageFlag, Slot};
pub use operation::{FileAnswer, FileOperation, FileRequest};
pub(crate) use shrink::LeftOfInodes;
pub use write::Blocks;

/// Numbers of a zone's frames that belong to files, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// All frames of files (`nr_file_pages`).
    pub pages: u64,
    /// Frames that are mapped (`nr_mapped`).
    pub mapped: u64,
    /// Frames whose contents the disk does not have (`nr_dirty`).
    pub dirty: u64,
    /// Frames that are being written (`nr_writeback`).
    pub writeback: u64,
}

/// An open file (`struct file`).
#[derive(Clone, Copy, Debug)]
struct Open {
    inode: InodeId,
    object: Object,
    /// The file has a descriptor.
    has_descriptor: bool,
    /// VMAs that map it.
    maps: u32,
    /// The read-ahead state (`struct file_ra_state`).
    read_ahead: read::ReadAhead,
}

/// Files by name: a million of them in thpfioscale, where an ordered map compares names twenty times.
#[expect(clippy::disallowed_types, reason = "names are looked up and never gone through: their order decides nothing")]
type Names = std::collections::HashMap<Box<str>, InodeId, BuildHasherDefault<DefaultHasher>>;

/// The page cache: files with their pages, inodes and names, and the disk that they are on.
#[derive(Clone, Debug)]
pub struct PageCache {
    inodes: Vec<Option<Inode>>,
    free_inodes: Vec<u32>,
    segments: Vec<Option<Segment>>,
    free_segments: Vec<u32>,
    names: Names,
    open: Vec<Option<Open>>,
    /// Numbers of descriptors below `open.len()` that are free: the lowest goes first.
    free_files: BinaryHeap<Reverse<u32>>,
    nodes: Nodes,
    disk: Disk<InodeId>,
    /// The bios of each request, in the order of the disk's queue.
    bios: VecDeque<Vec<Object>>,
    counts: PerZone<FileCounts>,
    /// Blocks of the disk that are allocated, or promised to dirty pages.
    blocks_used: u64,
    /// Unused dentries, and inodes without a dentry, by node.
    dentries: PerNode<Ordered<InodeId>>,
    idle: PerNode<Ordered<InodeId>>,
    /// Inodes with dirty pages, in the order in which they became dirty.
    dirty: Ordered<InodeId>,
    flusher: Flusher,
    balancing: Balancing,
    /// Pages dirtied by each task since it last paused.
    dirtiers: BTreeMap<ControlId, TaskDirty>,
    /// Metadata, if the disk has XFS.
    xfs: xfs::Xfs,
    /// Metadata, if the disk has ext4.
    ext4: ext4::Ext4,
    /// `vm.dirty_ratio` and the other settings.
    settings: FileSettings,
}

/// The settings of the page cache, by their names in /proc/sys/vm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileSettings {
    dirty_ratio: u64,
    dirty_background_ratio: u64,
    dirty_expire_centisecs: u64,
    dirty_writeback_centisecs: u64,
    vfs_cache_pressure: u64,
}

impl FileSettings {
    fn of(settings: &Settings) -> Self {
        Self {
            dirty_ratio: settings.dirty_ratio.into(),
            dirty_background_ratio: settings.dirty_background_ratio.into(),
            dirty_expire_centisecs: settings.dirty_expire_centisecs.into(),
            dirty_writeback_centisecs: settings.dirty_writeback_centisecs.into(),
            vfs_cache_pressure: settings.vfs_cache_pressure.into(),
        }
    }
}

impl PageCache {
    pub(crate) fn new(zones: usize, machine: &MachineSpec, settings: &Settings) -> Self {
        Self {
            inodes: Vec::new(),
            free_inodes: Vec::new(),
            segments: Vec::new(),
            free_segments: Vec::new(),
            names: Names::default(),
            open: Vec::new(),
            free_files: BinaryHeap::new(),
            nodes: Nodes::default(),
            disk: Disk::new(DiskSpec::default()),
            bios: VecDeque::new(),
            counts: PerZone::new(vec![FileCounts::default(); zones]),
            blocks_used: 0,
            dentries: PerNode::new(machine, |_| Ordered::default()),
            idle: PerNode::new(machine, |_| Ordered::default()),
            dirty: Ordered::default(),
            flusher: Flusher::default(),
            balancing: Balancing::default(),
            dirtiers: BTreeMap::new(),
            xfs: xfs::Xfs::new(machine),
            ext4: ext4::Ext4::new(&DiskSpec::default()),
            settings: FileSettings::of(settings),
        }
    }

    /// Applies a write to `vm.dirty_ratio` or another setting.
    pub(crate) fn apply_settings(&mut self, settings: &Settings) {
        self.settings = FileSettings::of(settings);
    }

    /// Numbers of a zone's frames that belong to files.
    pub fn counts(&self, zone: ZoneIndex) -> FileCounts {
        self.counts[zone]
    }

    /// Pages of files in all zones.
    pub fn totals(&self) -> FileCounts {
        self.counts.iter().fold(FileCounts::default(), |sum, counts| FileCounts {
            pages: sum.pages + counts.pages,
            mapped: sum.mapped + counts.mapped,
            dirty: sum.dirty + counts.dirty,
            writeback: sum.writeback + counts.writeback,
        })
    }

    /// Counts a page of a zone that has got its first mapping, or has lost its last.
    pub(crate) fn count_mapped(&mut self, zone: ZoneIndex, on: bool) {
        let mapped = &mut self.counts[zone].mapped;
        *mapped = if on { *mapped + 1 } else { *mapped - 1 };
    }

    /// Makes every n-th request to the disk fail: for tests.
    pub fn fail_disk(&mut self, every: u32) {
        self.disk.fail_every = every;
    }

    /// Makes the disk slower by a factor: for tests.
    ///
    /// # Panics
    /// At 0 times.
    pub fn slow_disk(&mut self, times: u32) {
        assert!(times > 0, "a disk takes its time");
        self.disk.slowdown = times.into();
    }

    /// The slot at an index of a file.
    pub fn slot(&self, id: InodeId, index: u64) -> Slot {
        self.inode(id).mapping.get(&self.nodes, index)
    }

    fn page(&self, id: InodeId, index: u64) -> Option<Pfn> {
        match self.slot(id, index) {
            Slot::Folio(pfn) => Some(pfn),
            Slot::Empty | Slot::Shadow(_) => None,
        }
    }

    /// A page of a file that is in the cache, with its marks.
    fn look_up(&self, (id, index): (InodeId, u64)) -> Option<CachedPage> {
        self.inode(id).mapping.page(&self.nodes, index)
    }

    /// A page of a file that is in the cache, up to date and without a read-ahead mark.
    fn ready_page(&self, id: InodeId, index: u64) -> Option<Pfn> {
        let inode = self.inode(id);
        if index < inode.pages() { inode.mapping.ready_page(&self.nodes, index) } else { None }
    }

    pub(crate) fn has(&self, (id, index): (InodeId, u64), flag: PageFlag) -> bool {
        self.inode(id).mapping.has(&self.nodes, index, flag)
    }

    pub(crate) fn mark(&mut self, (id, index): (InodeId, u64), flag: PageFlag, on: bool) {
        let inode = self.inodes[id.0 as usize].as_mut().expect("a page has an inode");
        inode.mapping.mark(&mut self.nodes, index, flag, on);
    }

    /// Sets marks of a page, and clears others, in one walk of the tree.
    fn remark(&mut self, (id, index): (InodeId, u64), marks: (Marks, Marks)) {
        let inode = self.inodes[id.0 as usize].as_mut().expect("a page has an inode");
        inode.mapping.remark(&mut self.nodes, index, marks);
    }

    fn replace(&mut self, (id, index): (InodeId, u64), to: Pfn) {
        let inode = self.inodes[id.0 as usize].as_mut().expect("a page has an inode");
        inode.mapping.replace(&mut self.nodes, index, to);
    }

    /// The file and index of a frame in the cache; none for a frame that has left the cache and is not freed yet.
    pub(crate) fn place_of(&self, frames: &FrameTable, head: Pfn) -> Option<(InodeId, u64)> {
        self.find(frames, head).map(|(at, _)| at)
    }

    /// The file, index and marks of a page, in one walk of the tree.
    pub(crate) fn find(&self, frames: &FrameTable, head: Pfn) -> Option<((InodeId, u64), Marks)> {
        let Frame::File { segment, index, .. } = frames.get(head) else { return None };
        let part = self.segments.get(segment.0 as usize)?.as_ref()?;
        let index = u64::from(part.nth) * u64::from(SegmentId::PAGES) + u64::from(index);
        let marks = self.inode(part.inode).mapping.marks_of(&self.nodes, index, head)?;
        Some(((part.inode, index), marks))
    }

    /// A contradiction in the page cache, if there is one: for checks.
    pub(crate) fn check(&self) -> Option<String> {
        let promised = self
            .pages()
            .filter(|(id, index, _)| self.has((*id, *index), PageFlag::Dirty) && !self.inode(*id).blocks.has(*index));
        let files = (0..).map(InodeId).zip(&self.inodes).filter(|(id, _)| !self.ext4.is_own(*id));
        let taken: u64 = files.filter_map(|(_, inode)| Some(inode.as_ref()?.blocks.blocks())).sum();
        let used = taken + promised.count() as u64;
        if used != self.blocks_used {
            return Some(format!("{used} blocks of the disk are used, but {} are counted", self.blocks_used));
        }
        let stray = (0..).map(InodeId).zip(&self.inodes).find_map(|(id, inode)| {
            let inode = inode.as_ref()?;
            let is_dirty = inode.mapping.next_dirty(&self.nodes, 0).is_some();
            (is_dirty && inode.dirty_place.is_none() && inode.has_name).then_some(id)
        });
        stray.map(|id| format!("{id:?} has dirty pages, but the flusher does not know it"))
    }

    /// All kernel objects of the page cache.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let open = self.open.iter().flatten().map(|open| open.object);
        let inodes = self
            .inodes
            .iter()
            .flatten()
            .flat_map(|inode| {
                let own = [inode.object, inode.security, inode.log_item, inode.extent];
                own.into_iter().chain([inode.dentry, inode.logged.object()])
            })
            .flatten();
        open.chain(inodes)
            .chain(self.nodes.objects())
            .chain(self.buffers())
            .chain(self.xfs.objects())
            .chain(self.ext4.objects())
            .chain(self.bios.iter().flatten().copied())
    }

    /// Pages of buffers of metadata.
    pub(crate) fn metadata_pages(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.xfs.pages()
    }

    fn buffers(&self) -> impl Iterator<Item = Object> + '_ {
        self.pages().filter_map(|(id, index, _)| self.inode(id).mapping.buffer(&self.nodes, index))
    }

    /// Every page: its file, its index, its frame.
    pub fn pages(&self) -> impl Iterator<Item = (InodeId, u64, Pfn)> + '_ {
        let ids = (0..).map(InodeId).zip(&self.inodes).filter_map(|(id, inode)| Some((id, inode.as_ref()?)));
        ids.flat_map(move |(id, inode)| {
            let mut from = Some(0);
            std::iter::from_fn(move || {
                let (index, pfn) = inode.mapping.next_folio(&self.nodes, from?)?;
                from = index.checked_add(1);
                Some((id, index, pfn))
            })
        })
    }
}

impl Mm {
    /// Sets the disk that files are on, before there are files.
    pub fn mount(&mut self, spec: &DiskSpec) {
        assert!(self.cache.inodes.is_empty(), "a disk is there before its files");
        self.cache.disk = Disk::new(*spec);
        self.cache.xfs.mount(spec);
        self.cache.ext4 = ext4::Ext4::new(spec);
    }

    /// The request for a page of the cache (`mapping_gfp_mask`). `writes`: the page will be dirtied (`__GFP_WRITE`), not read
    /// from the disk (`page_cache_alloc_cold`, `page_cache_alloc_readahead`).
    fn page_cache_request(&self, cx: &Cx, writes: bool) -> AllocRequest {
        let is_cold = !writes && self.memory.variant().pcp_has_cold_end;
        AllocRequest { writes, is_cold, ..AllocRequest::gfp_highuser_movable(self.memory.node_of_cpu(cx.cpu())) }
    }

    /// Adds the tree nodes that an index needs (`xas_nomem`).
    fn make_place(&mut self, cx: &mut Cx, id: InodeId, index: u64) -> Result<(), NoMemory> {
        // Bound: the levels of a tree.
        while self.cache.inode(id).mapping.room(&self.cache.nodes, index) == Room::NeedsNode {
            let object = self.memory.alloc_object(cx, Cache::RadixTreeNode)?;
            let inode = self.cache.inodes[id.0 as usize].as_mut().expect("the caller has it open");
            inode.mapping.add_node(&mut self.cache.nodes, index, object);
        }
        Ok(())
    }

    /// Turns a new frame into a page of a file, at an index whose tree nodes exist (`filemap_add_folio`): locked, and in the
    /// CPU's batch of new folios. A page read back soon after its eviction may become active at once.
    fn add_page(&mut self, cx: &mut Cx, (id, index): (InodeId, u64), head: Pfn, is_read: bool) {
        let segment = self.cache.segment(id, index);
        let inner = u32::try_from(index % u64::from(SegmentId::PAGES)).expect("below 2^20");
        self.memory.frames.set(head, Frame::File { segment, index: inner, order: Order::BASE });
        self.swap.forget(head);
        self.memory.frames.mark(head, FrameFlag::InBatch, true);
        self.memory.frames.mark(head, FrameFlag::Locked, true);
        let inode = self.cache.inodes[id.0 as usize].as_mut().expect("the caller has it open");
        let was = inode.mapping.set(&mut self.cache.nodes, index, Slot::Folio(head));
        assert!(!matches!(was, Slot::Folio(_)), "two pages at one index");
        self.cache.leave_idle(id);
        let zone = self.zone_position(head);
        self.cache.counts[zone].pages += 1;
        primitive::file_pages(cx, 1);
        if let (Slot::Shadow(shadow), true) = (was, is_read) {
            self.refault_file(cx, (id, index), head, shadow);
        }
        self.lru_add(cx, head, Order::BASE);
    }

    /// Takes a page out of the cache, with its buffer head; it is not dirty after that. The caller owns the frame.
    pub(crate) fn remove_page(&mut self, cx: &mut Cx, head: Pfn, shadow: Option<u32>) {
        let ((id, index), marks) = self.cache.find(&self.memory.frames, head).expect("it is in the cache");
        assert!(!marks.has(PageFlag::Writeback), "page {index} of {id:?} is being written");
        if marks.has(PageFlag::Dirty) {
            self.cancel_dirty((id, index), head);
        }
        let inode = self.cache.inodes[id.0 as usize].as_mut().expect("a page has an inode");
        let slot = shadow.map_or(Slot::Empty, Slot::Shadow);
        let (was, buffer) = inode.mapping.exchange(&mut self.cache.nodes, index, slot);
        assert_eq!(was, Slot::Folio(head), "frame {head} is page {index} of {id:?}");
        let is_shrinkable = inode.mapping.is_shrinkable();
        if let Some(buffer) = buffer {
            self.memory.free_object(cx, buffer);
        }
        let zone = self.zone_position(head);
        self.cache.counts[zone].pages -= 1;
        primitive::file_pages(cx, 1);
        self.free_tree_nodes(cx);
        if is_shrinkable {
            self.rest_inode(id);
        }
    }

    fn free_tree_nodes(&mut self, cx: &mut Cx) {
        while let Some(object) = self.cache.nodes.freed.pop() {
            self.memory.free_object(cx, object);
        }
    }

    /// Gives a page a buffer head, if it has none (`create_empty_buffers`), and the file the extent for its first block.
    fn make_buffer(&mut self, cx: &mut Cx, (id, index): (InodeId, u64)) -> Result<(), NoMemory> {
        if self.cache.is_xfs() || self.cache.inode(id).mapping.buffer(&self.cache.nodes, index).is_some() {
            return Ok(());
        }
        self.make_extent(cx, id)?;
        let buffer = self.memory.alloc_object(cx, Cache::BufferHead)?;
        let inode = self.cache.inodes[id.0 as usize].as_mut().expect("a page has an inode");
        inode.mapping.set_buffer(&mut self.cache.nodes, index, buffer);
        Ok(())
    }

    /// Adds a page to the first file, as if it had been read: for tests.
    #[cfg(test)]
    pub(crate) fn add_clean_page(&mut self, cx: &mut Cx, index: u64) -> Pfn {
        if self.cache.inodes.is_empty() {
            self.cache.add_inode(Inode::default());
        }
        let at = (InodeId(0), index);
        self.make_place(cx, at.0, at.1).expect("there is memory");
        let head = self.memory.alloc(cx, &self.page_cache_request(cx, false)).expect("there is memory");
        self.add_page(cx, at, head, true);
        self.cache.mark(at, PageFlag::Uptodate, true);
        self.unlock_folio(cx, head);
        head
    }

    /// Sends `requests` writes to the disk that change no page: for tests.
    #[cfg(test)]
    pub(crate) fn send_writes(&mut self, cx: &mut Cx, requests: u64) {
        for at in 0..requests {
            self.cache.disk.submit(cx, InodeId(0), (2 * at, 1), true);
            self.cache.bios.push_back(Vec::new());
        }
    }

    /// The page at an index of a file, for tests.
    pub fn file_page(&self, id: InodeId, index: u64) -> Option<Pfn> {
        self.cache.page(id, index)
    }

    /// The places where a page of the cache may be mapped: families and page numbers.
    pub(crate) fn file_places(&self, head: Pfn) -> Vec<(FamilyId, Vpn)> {
        let Some((id, index)) = self.cache.place_of(&self.memory.frames, head) else { return Vec::new() };
        let maps = self.cache.inode(id).maps();
        maps.iter().map(|map| (map.family, Vpn(index.wrapping_add(map.shift)))).collect()
    }
}

#[cfg(test)]
mod tests;
