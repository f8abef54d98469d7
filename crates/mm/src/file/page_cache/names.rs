//! Linux: path_openat() in fs/namei.c, alloc_empty_file() in fs/file_table.c, __d_alloc() and retain_dentry() in fs/dcache.c,
//! ext4_create() in fs/ext4/namei.c (v6.1).
//! Differs: no dentries of directories, and no negative dentries.

use std::cmp::Reverse;

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::Holdings,
    primitive,
    slab::{Cache, Object},
    step::Step,
};
use units::Errno;

use super::{
    InodeId, Open, PageCache,
    dirty::disk_wait,
    inode::{Inode, Unused},
    read::ReadAhead,
    xfs::{Building, Fields, Logged, Placed, RETRY},
};
use crate::{Mm, file::disk::Filesystem};

/// open(2) of a file, or its creation.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    name: String,
    makes: bool,
    /// Objects allocated so far: file, dentry, inode.
    filp: Option<Object>,
    dentry: Option<Object>,
    inode: Option<Object>,
    /// The record of the inode in the log or the journal.
    log_item: Option<Object>,
    /// The object of security modules.
    security: Option<Object>,
    /// On XFS: the vector of a new inode in the log; its cluster, and memory for the cluster's buffer.
    vector: Option<Object>,
    cluster: Option<Placed>,
    building: Building,
    /// On ext4: the number of a new inode.
    number: Option<u32>,
}

impl Opening {
    pub(super) fn new(name: String, makes: bool) -> Self {
        let (filp, dentry, inode, log_item, security, vector) = (None, None, None, None, None, None);
        let (cluster, building, number) = (None, Building::default(), None);
        Self { name, makes, filp, dentry, inode, log_item, security, vector, cluster, building, number }
    }

    /// On XFS: gets the buffer that an inode is read from, or that a new cluster of inodes is written to (`xfs_imap_to_bp`,
    /// `xfs_ialloc_inode_init`). A new inode in an existing cluster needs none (`xfs_iread`).
    fn buffer(&mut self, mm: &mut Mm, cx: &mut Cx, known: Option<InodeId>) -> Step<Result<(), Errno>> {
        let wanted = match known {
            Some(id) => mm.cache.inode(id).cluster.filter(|_| mm.cache.inode(id).object.is_none()).map(|at| (at, id)),
            None => self.cluster.filter(|placed| placed.is_new).map(|placed| (placed.cluster, InodeId(0))),
        };
        let Some(wanted) = wanted else { return Step::Done(Ok(())) };
        match mm.get_buffer(cx, wanted, &mut self.building, known.is_some()) {
            Ok(step) => step.map(Ok),
            Err(no) => no.step(),
        }
    }

    /// On ext4: gets the blocks of a new inode and of its name, or the blocks of a name and inode that are not in memory (`has`).
    fn blocks(&mut self, mm: &mut Mm, cx: &mut Cx, known: Option<InodeId>, has: [bool; 3]) -> Step<Result<(), Errno>> {
        let got = match known {
            Some(id) if !(has[0] && has[1]) => mm.look_up_on_ext4(cx, &self.name, id),
            Some(_) => Ok(Step::Done(())),
            None => {
                let number = *self.number.get_or_insert_with(|| mm.cache.ext4.take_number());
                mm.create_on_ext4(cx, &self.name, number)
            }
        };
        match got {
            Ok(step) => step.map(Ok),
            Err(NoMemory::Asked) => Step::More,
            // The request is repeated until there is memory (`__GFP_NOFAIL`).
            Err(NoMemory::Refused) => Step::Block(disk_wait(cx.now() + RETRY)),
        }
    }

    /// Allocates the objects that are missing, except those that are in memory (`has`): a dentry, an inode, and the journal's
    /// record of it, which ext4 needs as files are opened for writing too (`ext4_file_open`).
    fn alloc_objects(&mut self, mm: &mut Mm, cx: &mut Cx, has: [bool; 3]) -> Result<(), NoMemory> {
        let (item, has_item) = match mm.cache.disk.filesystem() {
            Filesystem::Ext4 => (Cache::Jbd2Inode, has[2]),
            Filesystem::Xfs => (Cache::XfsIli, !self.makes),
        };
        let wanted = [
            (&mut self.filp, Cache::Filp, false),
            (&mut self.dentry, Cache::Dentry, has[0]),
            (&mut self.inode, mm.cache.inode_cache(), has[1]),
            (&mut self.security, Cache::LsmInode, has[1] || !mm.memory.variant().lsm_inode_blob),
            (&mut self.log_item, item, has_item),
            (&mut self.vector, Fields::Core.cache(), !self.makes || !mm.cache.is_xfs()),
        ];
        for (got, cache, is_there) in wanted {
            if got.is_none() && !is_there {
                *got = Some(mm.memory.alloc_object(cx, cache)?);
            }
        }
        Ok(())
    }

    /// Takes a step; the result is the file's descriptor.
    pub(super) fn step(&mut self, mm: &mut Mm, cx: &mut Cx) -> Step<Result<u32, Errno>> {
        let known = mm.cache.names.get(self.name.as_str()).copied();
        match (known, self.makes) {
            (Some(_), true) => return self.fail(mm, cx, Errno::EXIST),
            (None, false) => return self.fail(mm, cx, Errno::NOENT),
            (Some(_), false) | (None, true) => {}
        }
        // A known name may have a dentry and an inode in memory.
        let has = known.map_or([false; 3], |id| {
            let inode = mm.cache.inode(id);
            [inode.dentry.is_some(), inode.object.is_some(), inode.log_item.is_some()]
        });
        match self.alloc_objects(mm, cx, has) {
            Ok(()) => {}
            Err(NoMemory::Asked) => return Step::More,
            Err(NoMemory::Refused) => return self.fail(mm, cx, Errno::NOMEM),
        }
        if self.makes && self.cluster.is_none() {
            self.cluster = mm.cache.place_inode(&self.name);
        }
        let got = if mm.cache.is_ext4() { self.blocks(mm, cx, known, has) } else { self.buffer(mm, cx, known) };
        match got {
            Step::Done(Ok(())) => {}
            Step::Done(Err(errno)) => return self.fail(mm, cx, errno),
            Step::Block(wait) => return Step::Block(wait),
            Step::More => return Step::More,
        }
        primitive::file_operation(cx);
        let id = known.unwrap_or_else(|| {
            let (log_item, cluster) = (self.log_item.take(), self.cluster.map(|placed| placed.cluster));
            let logged = self.vector.take().map(Logged::new).unwrap_or_default();
            let number = self.number.take().unwrap_or(0);
            let inode = Inode { has_name: true, log_item, logged, cluster, number, ..Inode::default() };
            let id = mm.cache.add_inode(inode);
            mm.cache.names.insert(self.name.as_str().into(), id);
            mm.cache.ext4.add_name(&self.name);
            mm.log_inode(cx, id, Fields::Core).expect("a new inode has its vector");
            id
        });
        mm.cache.leave_idle(id);
        let inode = mm.cache.inode_mut(id);
        // Another task may have made them meanwhile.
        let dentry = if inode.dentry.is_none() {
            std::mem::replace(&mut inode.dentry, self.dentry.take())
        } else {
            self.dentry.take()
        };
        let [object, security] = if inode.object.is_none() {
            inode.security = self.security.take();
            [std::mem::replace(&mut inode.object, self.inode.take()), None]
        } else {
            [self.inode.take(), self.security.take()]
        };
        let item = self.log_item.take().and_then(|item| match inode.log_item {
            Some(_) => Some(item),
            None => inode.log_item.replace(item),
        });
        inode.opens += 1;
        for spare in [dentry, object, security, item].into_iter().flatten() {
            mm.memory.free_object(cx, spare);
        }
        let object = self.filp.take().expect("got above");
        let open = Open { inode: id, object, has_descriptor: true, maps: 0, read_ahead: ReadAhead::default() };
        Step::Done(Ok(mm.cache.keep_open(open)))
    }

    fn fail(&mut self, mm: &mut Mm, cx: &mut Cx, errno: Errno) -> Step<Result<u32, Errno>> {
        self.abort(mm, cx);
        Step::Done(Err(errno))
    }

    pub(super) fn holdings(&self) -> Holdings {
        let inode = [self.inode, self.security, self.log_item];
        let objects = [self.filp, self.dentry, self.vector, self.building.object()].into_iter().chain(inode);
        let isolated = self.building.held().collect();
        Holdings { objects: objects.flatten().collect(), isolated, ..Holdings::default() }
    }

    pub(super) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        let files = [self.filp.take(), self.dentry.take(), self.inode.take(), self.security.take()];
        let objects = files.into_iter().chain([self.log_item.take(), self.vector.take()]);
        for object in objects.flatten() {
            mm.memory.free_object(cx, object);
        }
        mm.give_up_building(cx, &mut self.building);
        mm.cache.ext4.give_number(self.number.take().unwrap_or(0));
    }
}

impl PageCache {
    /// Gives an open file the lowest free descriptor.
    fn keep_open(&mut self, open: Open) -> u32 {
        if let Some(Reverse(free)) = self.free_files.pop() {
            self.open[free as usize] = Some(open);
            return free;
        }
        self.open.push(Some(open));
        u32::try_from(self.open.len() - 1).expect("fewer than 2^32 open files")
    }
}

impl Mm {
    /// The inode of a descriptor.
    pub(super) fn opened(&self, file: u32) -> Result<InodeId, Errno> {
        let open = self.cache.open.get(file as usize).and_then(Option::as_ref);
        let open = open.filter(|open| open.has_descriptor);
        open.map(|open| open.inode).ok_or(Errno::BADF)
    }

    /// The file behind a descriptor, to be mapped.
    pub fn inode_of(&self, file: u32) -> Result<InodeId, Errno> {
        self.opened(file)
    }

    /// Closes a descriptor; returns the file if it must be removed now.
    pub(super) fn close_file(&mut self, cx: &mut Cx, file: u32) -> Result<Option<InodeId>, Errno> {
        let open = self.cache.open.get_mut(file as usize).and_then(Option::as_mut);
        let open = open.filter(|open| open.has_descriptor).ok_or(Errno::BADF)?;
        open.has_descriptor = false;
        Ok(self.put_file(cx, file))
    }

    /// Closes an open file without descriptor and mappings (`__fput`); returns its inode if it must be removed now.
    fn put_file(&mut self, cx: &mut Cx, file: u32) -> Option<InodeId> {
        let open = self.cache.open[file as usize].take_if(|open| !open.has_descriptor && open.maps == 0)?;
        self.cache.free_files.push(Reverse(file));
        self.memory.free_object(cx, open.object);
        self.cache.inode_mut(open.inode).opens -= 1;
        self.let_go_of(open.inode)
    }

    /// Removes a name; returns the file if it must be removed now.
    pub(super) fn unlink_file(&mut self, cx: &mut Cx, name: &str) -> Result<Option<InodeId>, Errno> {
        let id = self.cache.names.remove(name).ok_or(Errno::NOENT)?;
        primitive::file_operation(cx);
        self.drop_dentry(cx, id);
        self.unlink_on_ext4(cx, name, id);
        self.cache.inode_mut(id).has_name = false;
        Ok(self.let_go_of(id))
    }

    pub(super) fn drop_dentry(&mut self, cx: &mut Cx, id: InodeId) {
        if let Some((node, place)) = self.cache.inode_mut(id).dentry_place.take().map(Unused::parts) {
            self.cache.dentries[node].remove(place);
        }
        if let Some(dentry) = self.cache.inode_mut(id).dentry.take() {
            self.memory.free_object(cx, dentry);
        }
    }

    /// Handles a file that lost a user: an unused file without a name is returned to be removed, else its dentry waits to be
    /// reclaimed (`dput`).
    fn let_go_of(&mut self, id: InodeId) -> Option<InodeId> {
        let inode = self.cache.inode(id);
        if inode.opens > 0 || !inode.maps().is_empty() {
            return None;
        }
        if !inode.has_name {
            self.cache.leave_idle(id);
            self.cache.leave_dirty(id);
            return Some(id);
        }
        match (inode.dentry, inode.dentry_place) {
            (Some(dentry), None) => {
                let node = self.memory.node_of(dentry.slab());
                let place = self.cache.dentries[node].push(id);
                let inode = self.cache.inode_mut(id);
                (inode.dentry_place, inode.is_dentry_used) = (Some(Unused::new(node, place)), false);
            }
            (Some(_), Some(_)) => self.cache.inode_mut(id).is_dentry_used = true,
            (None, _) => self.rest_inode(id),
        }
        None
    }

    /// Counts off a VMA of an open file. If that was the last user, some of the file is removed at once, and the flusher does the
    /// rest.
    pub(super) fn put_mapped_file(&mut self, cx: &mut Cx, file: u32) {
        self.cache.open[file as usize].as_mut().expect("a VMA keeps it").maps -= 1;
        let Some(id) = self.put_file(cx, file) else { return };
        // Bound: each step frees some pages.
        loop {
            match self.evict_some(cx, id) {
                Step::More => {}
                Step::Block(_) => return self.leave_orphan(id),
                Step::Done(()) => return,
            }
        }
    }
}
