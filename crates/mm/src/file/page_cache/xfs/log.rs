//! Linux: fs/xfs/xfs_log_cil.c: xlog_cil_alloc_shadow_bufs(), xlog_cil_insert_format_items(), xlog_cil_push(),
//! xlog_cil_committed(); xfs_inode_item_size() in xfs_inode_item.c, xfs_setfilesize() in xfs_aops.c, xfs_vn_update_time() in
//! xfs_iops.c (v4.20).
//! Differs: only inodes are logged; the flusher also does the work of the threads that commit (`xfs-data`, `xfs-cil`).
//!
//! A task that changes an inode copies it into a log vector, which is unmovable memory. Vectors gather in a checkpoint. When
//! the checkpoint is large enough it is written to the log, and its vectors are freed together: so unmovable memory comes in
//! bursts.

use std::{collections::VecDeque, vec::IntoIter};

use memory::{
    alloc::NoMemory,
    cx::Cx,
    slab::{Cache, Object},
    step::{Step, TICK},
};
use units::{Bytes, Time};

use super::super::{InodeId, dirty::disk_wait};
use crate::{Mm, file::disk::DiskSpec};

/// Vectors that one step frees at most, and inodes whose size it logs.
const AT_ONCE: usize = 32;

/// The parts of an inode that a transaction changed, the smaller set first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Fields {
    /// The inode's core (`XFS_ILOG_CORE`).
    Core,
    /// The inode's core and its extents (`XFS_ILOG_DEXT`).
    Extents,
}

impl Fields {
    /// The cache of a vector: its head of 56 bytes, 16 for each region, `xfs_inode_log_format` of 56, the core of 176 and, in
    /// the worst case, all 336 bytes of extents of an inode of 512 bytes; with alignment 336 and 696 bytes.
    pub(in super::super) fn cache(self) -> Cache {
        match self {
            Self::Core => Cache::Kmalloc512,
            Self::Extents => Cache::Kmalloc1k,
        }
    }

    /// Bytes in the log: two regions, or three with an extent of 16 bytes, and 12 bytes before each.
    fn bytes(self) -> u64 {
        match self {
            Self::Core => 256,
            Self::Extents => 284,
        }
    }
}

/// A log vector (`struct xfs_log_vec`).
#[derive(Clone, Copy, Debug)]
struct Vector {
    object: Object,
    fields: Fields,
}

/// The log's objects of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Logged {
    /// Number of the last checkpoint that has the inode, from 1, and its vector's place there.
    checkpoint: u32,
    at: u32,
    /// A vector for the next transaction, if one is allocated (`li_lv_shadow`).
    shadow: Option<Vector>,
}

impl Logged {
    /// The objects of an inode that is in no checkpoint yet, with the memory for one.
    pub(in super::super) fn new(object: Object) -> Self {
        Self { shadow: Some(Vector { object, fields: Fields::Core }), ..Self::default() }
    }

    /// The object of the shadow vector.
    pub(in super::super) fn object(&self) -> Option<Object> {
        self.shadow.map(|vector| vector.object)
    }

    /// Takes the shadow vector of an inode that goes (`xfs_inode_item_destroy`).
    pub(in super::super) fn take(&mut self) -> Option<Object> {
        self.shadow.take().map(|vector| vector.object)
    }
}

/// A checkpoint that was sent to the disk.
#[derive(Clone, Debug)]
struct Checkpoint {
    written_by: Time,
    vectors: IntoIter<Vector>,
}

/// The log (`struct xfs_cil`).
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// The number of the open checkpoint, its vectors, and their bytes in the log.
    sequence: u32,
    open: Vec<Vector>,
    bytes: u64,
    /// Bytes at which the open checkpoint is written (`XLOG_CIL_SPACE_LIMIT`).
    limit: u64,
    sent: VecDeque<Checkpoint>,
    /// Inodes that were written beyond the file size that the disk has (`xfs_ioend_is_append`).
    appended: VecDeque<InodeId>,
}

impl Log {
    /// The log of a file system as mkfs.xfs makes it: a 2048th of the disk, from 10 MiB to 2 GiB. A checkpoint takes at most an
    /// eighth of it.
    pub(super) fn new(disk: &DiskSpec) -> Self {
        let size = (disk.size.0 / 2048).clamp(Bytes::mib(10).0, Bytes::gib(2).0);
        let (open, sent, appended) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { sequence: 1, open, bytes: 0, limit: size / 8, sent, appended }
    }

    /// The objects of vectors in checkpoints.
    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let sent = self.sent.iter().flat_map(|checkpoint| checkpoint.vectors.as_slice());
        self.open.iter().chain(sent).map(|vector| vector.object)
    }

    /// When there is something to do, if ever, apart from the worker's rounds.
    pub(super) fn due(&self) -> Option<Time> {
        let written = self.sent.front().map(|checkpoint| checkpoint.written_by);
        if self.is_wanted() { Some(Time(0)) } else { written }
    }

    /// Whether there is something to do at once.
    pub(super) fn is_wanted(&self) -> bool {
        !self.appended.is_empty() || self.is_full()
    }

    /// Whether the open checkpoint is large enough to be written.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.limit
    }

    /// Notes an inode whose size on the disk is to be changed; returns whether it is the only one.
    pub(super) fn append(&mut self, id: InodeId) -> bool {
        let is_first = self.appended.is_empty();
        if self.appended.back() != Some(&id) {
            self.appended.push_back(id);
        }
        is_first
    }
}

impl Mm {
    /// Copies an inode into the open checkpoint (`xfs_log_commit_cil`).
    pub(super) fn format_inode(&mut self, cx: &mut Cx, id: InodeId, fields: Fields) -> Result<(), NoMemory> {
        let shadow = self.cache.inode(id).logged.shadow;
        let shadow = if let Some(vector) = shadow.filter(|vector| vector.fields >= fields) {
            vector
        } else {
            if let Some(small) = self.cache.inode_mut(id).logged.take() {
                self.memory.free_object(cx, small);
            }
            Vector { object: self.memory.alloc_object(cx, fields.cache())?, fields }
        };
        let log = &mut self.cache.xfs.log;
        let inode = self.cache.inodes[id.0 as usize].as_mut().expect("the file exists");
        let logged = &mut inode.logged;
        if logged.checkpoint == log.sequence {
            // The vector in the checkpoint holds the change, or is exchanged for the shadow.
            let vector = &mut log.open[logged.at as usize];
            log.bytes += fields.bytes().saturating_sub(vector.fields.bytes());
            let spare = if shadow.fields > vector.fields { std::mem::replace(vector, shadow) } else { shadow };
            logged.shadow = Some(spare);
        } else {
            let at = u32::try_from(log.open.len()).expect("a checkpoint has few vectors");
            *logged = Logged { checkpoint: log.sequence, at, shadow: None };
            log.open.push(shadow);
            log.bytes += fields.bytes();
        }
        Ok(())
    }

    /// Updates the times of a file that was written or read, in ticks; a read counts only if the file was written since the
    /// last read (`file_update_time`, `relatime_need_update`, `xfs_vn_update_time`).
    pub(in super::super) fn update_times(
        &mut self,
        cx: &mut Cx,
        id: InodeId,
        is_write: bool,
    ) -> Result<Step<()>, NoMemory> {
        if self.cache.is_ext4() {
            // ext4 is mounted with `noatime`: a read changes no inode.
            return if is_write { self.update_times_on_ext4(cx, id) } else { Ok(Step::Done(())) };
        }
        let (now, inode) = (cx.now().0 / TICK.0, self.cache.inode(id));
        let is_stale = if is_write { inode.modified != now } else { inode.accessed <= inode.modified };
        if !is_stale {
            return Ok(Step::Done(()));
        }
        self.log_inode(cx, id, Fields::Core)?;
        let inode = self.cache.inode_mut(id);
        *(if is_write { &mut inode.modified } else { &mut inode.accessed }) = now;
        Ok(Step::Done(()))
    }

    /// Notes that a write made a file longer on the disk.
    pub(in super::super) fn note_append(&mut self, id: InodeId, index: u64) {
        if !self.cache.is_xfs() || index < self.cache.inode(id).on_disk {
            return;
        }
        self.cache.inode_mut(id).on_disk = index + 1;
        if self.cache.xfs.log.append(id) {
            self.tell_flusher();
        }
    }

    /// Takes a step of the log; none if there is nothing to do now.
    pub(super) fn step_log(&mut self, cx: &mut Cx) -> Option<Step<()>> {
        let now = cx.now();
        let log = &mut self.cache.xfs.log;
        if let Some(checkpoint) = log.sent.front_mut().filter(|checkpoint| checkpoint.written_by <= now) {
            let vectors: Vec<Vector> = checkpoint.vectors.by_ref().take(AT_ONCE).collect();
            if checkpoint.vectors.as_slice().is_empty() {
                log.sent.pop_front();
            }
            for vector in vectors {
                self.memory.free_object(cx, vector.object);
            }
            return Some(Step::More);
        }
        if log.is_full() {
            self.push_checkpoint(cx);
            return Some(Step::More);
        }
        let mut left = AT_ONCE;
        // Bound: the inodes that one step handles.
        while left > 0
            && let Some(id) = self.cache.xfs.log.appended.front().copied()
        {
            let is_there = self.cache.inodes[id.0 as usize].as_ref().is_some_and(|inode| inode.object.is_some());
            // Steps of kernel threads do not ask the slow path.
            if is_there && self.log_inode(cx, id, Fields::Core).is_err() {
                return Some(Step::Block(disk_wait(now + super::RETRY)));
            }
            self.cache.xfs.log.appended.pop_front();
            left -= 1;
        }
        (left < AT_ONCE).then_some(Step::More)
    }

    /// Writes the open checkpoint (`xlog_cil_push`).
    pub(super) fn push_checkpoint(&mut self, cx: &mut Cx) {
        let log = &mut self.cache.xfs.log;
        if log.open.is_empty() {
            return;
        }
        let pages = log.bytes.div_ceil(Bytes::PAGE.0);
        let vectors = std::mem::take(&mut log.open).into_iter();
        (log.sequence, log.bytes) = (log.sequence + 1, 0);
        let written_by = self.submit_log(cx, pages);
        self.cache.xfs.log.sent.push_back(Checkpoint { written_by, vectors });
    }
}
