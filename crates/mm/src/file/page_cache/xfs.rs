//! Linux: fs/xfs: xfs_buf_allocate_memory(), xfs_buftarg_shrink_scan() in xfs_buf.c, xfs_imap_to_bp(), xfs_iflush() in
//! xfs_inode.c, xfsaild_push() in xfs_trans_ail.c, xfs_log_worker() in xfs_log.c (v4.20).
//! Differs: of metadata only the buffers of inodes are modelled; the log never fills up, so that inodes are flushed by the worker
//! of the log and by the flusher alone; inodes that are given up are freed at once. log.rs has the memory of a transaction.
//!
//! The inodes of XFS lie on its disk in clusters of 32. Reading an inode, or writing it back, takes the buffer of its cluster:
//! four pages that belong to no file and cannot be moved, and a small object. Unused buffers are freed under pressure, and
//! allocated again when they are needed: they come and go where inodes stay.

mod log;

use std::collections::BTreeMap;

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::{Frame, Held},
    list_order::Ordered,
    per_node::PerNode,
    primitive,
    slab::{Cache, Object},
    step::Step,
};
use rules::{
    gfp::{AllocRequest, Mobility},
    machine::MachineSpec,
};
use units::{NodeId, Order, Pfn, Picos, Time};

use self::log::Log;
pub(super) use self::log::{Fields, Logged};
use super::{
    InodeId, PageCache,
    dirty::{METADATA_PAGES, disk_wait},
};
use crate::{
    Mm,
    file::disk::{DiskSpec, Filesystem},
};

/// Inodes of 512 bytes in a cluster of 16 KiB (`xfs_icluster_size_fsb`; mkfs.xfs of 2018 makes version 5).
const INODES: u32 = 32;
const PAGES: usize = METADATA_PAGES as usize;
/// Passes of the shrinker that a used buffer of inodes survives (`XFS_INO_REF`, xfs_shared.h).
const REFERENCES: u8 = 2;
/// Time between two flushes of everything that is dirty (`xfs_syncd_centisecs`).
const PUSH_PERIOD: Picos = Picos::from_secs(30);
/// Time after which the flusher tries again if it got no memory (`xfsaild`).
pub(super) const RETRY: Picos = Picos::from_micros(20_000);

/// Number of a cluster of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterId(u32);

/// The place of a new inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) cluster: ClusterId,
    /// The inode is the cluster's first.
    pub(super) is_new: bool,
}

/// A cluster of inodes.
#[derive(Clone, Debug, Default)]
struct Cluster {
    buffer: Option<Buffer>,
    /// The cluster's place among those that are to be flushed.
    dirty_place: Option<u64>,
}

/// The buffer of a cluster (`struct xfs_buf`).
#[derive(Clone, Debug)]
struct Buffer {
    object: Object,
    pages: [Pfn; PAGES],
    references: u8,
    place: u64,
    /// When the disk has read the buffer.
    read_by: Time,
}

impl Buffer {
    /// Done when the disk has read the buffer.
    fn is_read(&self, now: Time) -> Step<()> {
        if self.read_by > now { Step::Block(disk_wait(self.read_by)) } else { Step::Done(()) }
    }
}

/// The parts of a buffer that were allocated so far. Its pages are isolated.
#[derive(Clone, Debug, Default)]
pub(super) struct Building {
    object: Option<Object>,
    pages: Vec<Pfn>,
}

impl Building {
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.pages.iter().map(|pfn| Held { pfn: *pfn, order: Order::BASE })
    }

    pub(super) fn object(&self) -> Option<Object> {
        self.object
    }
}

/// The metadata of an XFS file system.
#[derive(Clone, Debug)]
pub(super) struct Xfs {
    clusters: Vec<Cluster>,
    /// The last cluster of each directory, and its number of inodes.
    directories: BTreeMap<String, (ClusterId, u32)>,
    /// Buffers in the order of their last use (`bt_lru`).
    lru: PerNode<Ordered<ClusterId>>,
    /// Clusters with inodes that were changed in the log alone (`xa_ail`).
    dirty: Ordered<ClusterId>,
    /// When the worker of the log next runs.
    due: Option<Time>,
    /// Clusters up to this place of `dirty` were dirty when the pass began.
    end: u64,
    /// The parts of a buffer for the cluster that is being flushed.
    building: Building,
    log: Log,
}

impl Xfs {
    pub(super) fn new(machine: &MachineSpec) -> Self {
        Self {
            clusters: Vec::new(),
            directories: BTreeMap::new(),
            lru: PerNode::new(machine, |_| Ordered::default()),
            dirty: Ordered::default(),
            due: None,
            end: 0,
            building: Building::default(),
            log: Log::new(&DiskSpec::default()),
        }
    }

    /// Sets the disk, before there are files on it.
    pub(super) fn mount(&mut self, disk: &DiskSpec) {
        self.log = Log::new(disk);
    }

    /// Kernel objects of buffers, and of the log.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let buffers = self.clusters.iter().filter_map(|cluster| Some(cluster.buffer.as_ref()?.object));
        buffers.chain(self.building.object).chain(self.log.objects())
    }

    /// Pages of buffers.
    pub(super) fn pages(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.clusters.iter().filter_map(|cluster| cluster.buffer.as_ref()).flat_map(|buffer| buffer.pages)
    }

    /// Frames that the flusher holds for a buffer.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.building.held()
    }

    /// When there is something to flush or to log, if ever.
    pub(super) fn due(&self) -> Option<Time> {
        if self.dirty.from(0).is_some_and(|(place, _)| place < self.end) {
            return Some(Time(0));
        }
        [self.due, self.log.due()].into_iter().flatten().min()
    }

    /// Whether the log needs a step at once.
    pub(super) fn is_log_wanted(&self) -> bool {
        self.log.is_wanted()
    }

    fn cluster(&self, id: ClusterId) -> &Cluster {
        &self.clusters[id.0 as usize]
    }

    fn cluster_mut(&mut self, id: ClusterId) -> &mut Cluster {
        &mut self.clusters[id.0 as usize]
    }

    /// The cluster for the next inode of a directory; each directory has clusters of its own (`xfs_dialloc`).
    fn place(&mut self, name: &str) -> Placed {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        if let Some((id, inodes)) = self.directories.get_mut(directory).filter(|(_, inodes)| *inodes < INODES) {
            *inodes += 1;
            return Placed { cluster: *id, is_new: false };
        }
        let id = ClusterId(u32::try_from(self.clusters.len()).expect("fewer than 2^32 clusters"));
        self.clusters.push(Cluster::default());
        self.directories.insert(directory.to_owned(), (id, 1));
        Placed { cluster: id, is_new: true }
    }
}

impl PageCache {
    /// The cache of the file system's inodes.
    pub(super) fn inode_cache(&self) -> Cache {
        match self.disk.filesystem() {
            Filesystem::Ext4 => Cache::Ext4Inode,
            Filesystem::Xfs => Cache::XfsInode,
        }
    }

    pub(super) fn is_xfs(&self) -> bool {
        self.disk.filesystem() == Filesystem::Xfs
    }

    /// The cluster for the inode of a file that is created.
    pub(super) fn place_inode(&mut self, name: &str) -> Option<Placed> {
        self.is_xfs().then(|| self.xfs.place(name))
    }
}

impl Mm {
    /// Copies an inode into the log (`xfs_trans_log_inode`, `xfs_trans_commit`). Other file systems need no memory for that.
    pub(super) fn log_inode(&mut self, cx: &mut Cx, id: InodeId, fields: Fields) -> Result<(), NoMemory> {
        let Some(cluster) = self.cache.inode(id).cluster else { return Ok(()) };
        self.format_inode(cx, id, fields)?;
        let xfs = &mut self.cache.xfs;
        if xfs.cluster(cluster).dirty_place.is_none() {
            xfs.cluster_mut(cluster).dirty_place = Some(xfs.dirty.push(cluster));
        }
        let is_first = xfs.due.is_none();
        xfs.due.get_or_insert(cx.now() + PUSH_PERIOD);
        if is_first || xfs.log.is_full() {
            self.tell_flusher();
        }
        Ok(())
    }

    /// Allocates the missing parts of a buffer, as far as there is memory.
    fn build(&mut self, cx: &mut Cx, building: &mut Building) -> Result<(), NoMemory> {
        if building.object.is_none() {
            building.object = Some(self.memory.alloc_object(cx, Cache::XfsBuf)?);
        }
        // Bound: the pages of a buffer.
        while building.pages.len() < PAGES {
            let pfn = self.memory.alloc(cx, &AllocRequest::gfp_kernel(self.memory.node_of_cpu(cx.cpu())))?;
            self.memory.isolate(cx, pfn, Order::BASE);
            building.pages.push(pfn);
        }
        Ok(())
    }

    /// Frees the parts of a buffer.
    pub(super) fn give_up_building(&mut self, cx: &mut Cx, building: &mut Building) {
        for pfn in building.pages.drain(..) {
            self.memory.free(cx, pfn, Order::BASE);
        }
        if let Some(object) = building.object.take() {
            self.memory.free_object(cx, object);
        }
    }

    /// Gets the buffer of a cluster (`xfs_buf_get_map`, `xfs_buf_read_map`); that of a new cluster is not read. Done when it is
    /// there.
    pub(super) fn get_buffer(
        &mut self,
        cx: &mut Cx,
        (id, of): (ClusterId, InodeId),
        building: &mut Building,
        is_read: bool,
    ) -> Result<Step<()>, NoMemory> {
        if let Some(buffer) = &mut self.cache.xfs.cluster_mut(id).buffer {
            buffer.references = REFERENCES;
            return Ok(buffer.is_read(cx.now()));
        }
        self.build(cx, building)?;
        let pages: Vec<Pfn> = building.pages.drain(..).collect();
        for pfn in &pages {
            self.memory.assert_isolated(cx, *pfn, Order::BASE);
            self.memory.frames.set(*pfn, Frame::Kernel { order: Order::BASE, mobility: Mobility::Unmovable });
        }
        let object = building.object.take().expect("it is built");
        let node = self.memory.node_of(pages[0]);
        let read_by = if is_read { self.submit_metadata(cx, of, false) } else { cx.now() };
        let place = self.cache.xfs.lru[node].push(id);
        let pages = pages.try_into().expect("as many as a buffer has");
        let buffer = Buffer { object, pages, references: REFERENCES, place, read_by };
        Ok(self.cache.xfs.cluster_mut(id).buffer.insert(buffer).is_read(cx.now()))
    }

    /// Flushes inodes in the flusher (`xfsaild`, `xfs_inode_item_push`): reads the buffer of a cluster, if it is not there, and
    /// writes it. None if there is nothing to flush now.
    pub(super) fn flush_inodes(&mut self, cx: &mut Cx) -> Option<Step<()>> {
        if self.cache.xfs.due.is_some_and(|due| due <= cx.now()) {
            self.push_checkpoint(cx);
            self.cache.xfs.end = self.cache.xfs.dirty.end();
            self.cache.xfs.due = None;
        }
        if let Some(step) = self.step_log(cx) {
            return Some(step);
        }
        let xfs = &mut self.cache.xfs;
        let (place, id) = xfs.dirty.from(0).filter(|(place, _)| *place < xfs.end)?;
        let of = InodeId(0);
        let mut building = std::mem::take(&mut xfs.building);
        let got = self.get_buffer(cx, (id, of), &mut building, true);
        self.cache.xfs.building = building;
        match got {
            Ok(Step::Done(())) => {}
            Ok(step) => return Some(step),
            // Steps of kernel threads do not ask the slow path.
            Err(_) => return Some(Step::Block(disk_wait(cx.now() + RETRY))),
        }
        let xfs = &mut self.cache.xfs;
        xfs.dirty.remove(place);
        xfs.cluster_mut(id).dirty_place = None;
        // Clusters that have become dirty since wait for the next pass.
        if xfs.dirty.from(0).is_some_and(|(place, _)| place >= xfs.end) {
            xfs.due.get_or_insert(cx.now() + PUSH_PERIOD);
        }
        primitive::file_writeback(cx);
        self.submit_metadata(cx, of, true);
        Some(Step::More)
    }

    /// Number of buffers of a node, scaled by `vm.vfs_cache_pressure` (`xfs_buftarg_shrink_count`).
    pub(crate) fn count_buffers(&self, node: NodeId) -> u64 {
        self.vfs_pressure_ratio(self.cache.xfs.lru[node].len())
    }

    /// Looks at `most` buffers, and frees those that were not used for long (`xfs_buftarg_isolate`).
    pub(crate) fn shrink_buffers(&mut self, cx: &mut Cx, node: NodeId, most: u64) {
        // Bound: the objects asked for.
        for _ in 0..most {
            let xfs = &mut self.cache.xfs;
            let Some(id) = xfs.lru[node].first() else { break };
            let cluster = &mut xfs.clusters[id.0 as usize];
            let buffer = cluster.buffer.as_mut().expect("it is on the list");
            xfs.lru[node].remove(buffer.place);
            if buffer.references > 0 || buffer.read_by > cx.now() {
                buffer.references = buffer.references.saturating_sub(1);
                buffer.place = xfs.lru[node].push(id);
                continue;
            }
            let Buffer { object, pages, .. } = cluster.buffer.take().expect("found above");
            for pfn in pages {
                self.memory.free(cx, pfn, Order::BASE);
            }
            self.memory.free_object(cx, object);
        }
    }
}
