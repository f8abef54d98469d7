//! Linux: the system calls on files in fs/open.c, fs/read_write.c, fs/namei.c, fs/sync.c, and fs/drop_caches.c (v6.1).
//! Differs: descriptors belong to the machine, not to a process.

use memory::{cx::Cx, frame::Holdings, primitive, step::Step};
use units::{Bytes, Errno, Time};

use super::{
    InodeId,
    drop::DropCaches,
    filemap_read::Read,
    names::Opening,
    sync::{Sync, SyncAll},
    write::Write,
};
use crate::{Mm, Spaces};

/// A system call on files.
#[derive(Clone, Debug)]
pub enum FileRequest {
    /// Create a file and open it.
    Create(String),
    /// Open an existing file.
    Open(String),
    /// Close a descriptor.
    Close(u32),
    /// Remove a name.
    Unlink(String),
    /// Set a file's length.
    Truncate(u32, Bytes),
    /// Write `len` bytes from an offset on.
    Write {
        /// The descriptor.
        file: u32,
        /// The first byte.
        offset: Bytes,
        /// Number of bytes.
        len: Bytes,
    },
    /// Read up to `len` bytes from an offset on, as far as the file goes.
    Read {
        /// The descriptor.
        file: u32,
        /// The first byte.
        offset: Bytes,
        /// Number of bytes.
        len: Bytes,
    },
    /// Announce random reads through this descriptor (`POSIX_FADV_RANDOM`).
    AdviseRandom(u32),
    /// Wait until a file is on the disk (fsync(2)).
    Sync(u32),
    /// Wait until all files are on the disk (sync(2)).
    SyncAll,
    /// Drop clean pages, dentries and inodes.
    DropCaches,
}

/// The result of a system call on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAnswer {
    /// A file was opened: its descriptor.
    Opened(u32),
    /// The call is done.
    Done,
}

/// A system call on files under way.
#[derive(Clone, Debug)]
pub struct FileOperation {
    request: FileRequest,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Begin,
    Opening(Opening),
    Evict(InodeId),
    Write(Write),
    Read(Read),
    Truncate(InodeId, Bytes),
    Sync(Sync),
    SyncAll(SyncAll),
    Drop(DropCaches),
}

impl FileOperation {
    /// A call that has not begun.
    pub fn new(request: FileRequest) -> Self {
        Self { request, state: State::Begin }
    }

    /// The name of the system call.
    pub fn name(&self) -> &'static str {
        match self.request {
            FileRequest::Create(_) => "creat",
            FileRequest::Open(_) => "open",
            FileRequest::Close(_) => "close",
            FileRequest::Unlink(_) => "unlink",
            FileRequest::Truncate(..) => "ftruncate",
            FileRequest::Write { .. } => "pwrite",
            FileRequest::Read { .. } => "pread",
            FileRequest::AdviseRandom(_) => "fadvise",
            FileRequest::Sync(_) => "fsync",
            FileRequest::SyncAll => "sync",
            FileRequest::DropCaches => "drop_caches",
        }
    }

    /// Takes a step until `horizon`, at least one phase.
    pub fn step(
        &mut self,
        mm: &mut Mm,
        spaces: &mut Spaces,
        cx: &mut Cx,
        horizon: Time,
    ) -> Step<Result<FileAnswer, Errno>> {
        if let State::Begin = self.state {
            match self.begin(mm, cx) {
                Ok(Some(state)) => self.state = state,
                Ok(None) => return Step::Done(Ok(FileAnswer::Done)),
                Err(errno) => return Step::Done(Err(errno)),
            }
        }
        let done = |step: Step<Result<(), Errno>>| match step {
            Step::More => Step::More,
            Step::Block(wait) => Step::Block(wait),
            Step::Done(result) => Step::Done(result.map(|()| FileAnswer::Done)),
        };
        match &mut self.state {
            State::Begin => unreachable!("left behind above"),
            State::Opening(opening) => match opening.step(mm, cx) {
                Step::More => Step::More,
                Step::Block(wait) => Step::Block(wait),
                Step::Done(result) => Step::Done(result.map(FileAnswer::Opened)),
            },
            State::Evict(id) => {
                // Bound: each turn frees pages.
                loop {
                    match mm.evict_some(cx, *id) {
                        Step::More if !cx.is_over(horizon) => {}
                        Step::More => return Step::More,
                        Step::Block(wait) => return Step::Block(wait),
                        Step::Done(()) => return Step::Done(Ok(FileAnswer::Done)),
                    }
                }
            }
            State::Write(write) => done(write.step(mm, cx, horizon)),
            State::Read(read) => done(read.step(mm, cx, horizon)),
            State::Truncate(id, len) => match mm.truncate_some(spaces, cx, *id, *len) {
                Step::More => Step::More,
                Step::Block(wait) => Step::Block(wait),
                Step::Done(()) => Step::Done(Ok(FileAnswer::Done)),
            },
            State::Sync(sync) => done(sync.step(mm, spaces, cx)),
            State::SyncAll(sync) => done(sync.step(mm, cx)),
            State::Drop(drop) => done(drop.step(mm, cx)),
        }
    }

    /// Begins the call; returns the state in which it goes on, or none if it is done.
    fn begin(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<Option<State>, Errno> {
        let state = match &self.request {
            FileRequest::Create(name) => State::Opening(Opening::new(name.clone(), true)),
            FileRequest::Open(name) => State::Opening(Opening::new(name.clone(), false)),
            FileRequest::Close(file) => return Ok(mm.close_file(cx, *file)?.map(State::Evict)),
            FileRequest::Unlink(name) => return Ok(mm.unlink_file(cx, name)?.map(State::Evict)),
            FileRequest::Truncate(file, len) => {
                let id = mm.opened(*file)?;
                primitive::file_operation(cx);
                if len.0 >= mm.cache.inode(id).size {
                    mm.cache.inode_mut(id).size = len.0;
                    return Ok(None);
                }
                State::Truncate(id, *len)
            }
            FileRequest::Write { file, offset, len } => State::Write(Write::new(mm.opened(*file)?, *offset, *len)),
            FileRequest::Read { file, offset, len } => State::Read(Read::new(*file, mm.opened(*file)?, *offset, *len)),
            FileRequest::AdviseRandom(file) => {
                mm.opened(*file)?;
                mm.read_ahead_of(*file).set_random();
                return Ok(None);
            }
            FileRequest::Sync(file) => State::Sync(Sync::new(mm.opened(*file)?)),
            FileRequest::SyncAll => State::SyncAll(SyncAll::new(mm)),
            FileRequest::DropCaches => State::Drop(DropCaches::new()),
        };
        Ok(Some(state))
    }

    /// Frames that the call holds between two steps.
    pub fn holdings(&self) -> Holdings {
        match &self.state {
            State::Opening(opening) => opening.holdings(),
            State::Write(write) => write.holdings(),
            State::Begin
            | State::Evict(_)
            | State::Read(_)
            | State::Truncate(..)
            | State::Sync(_)
            | State::SyncAll(_)
            | State::Drop(_) => Holdings::default(),
        }
    }

    /// Frees what the call holds.
    pub fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        match std::mem::replace(&mut self.state, State::Begin) {
            State::Opening(mut opening) => opening.abort(mm, cx),
            State::Write(mut write) => write.abort(mm, cx),
            State::Evict(id) => mm.leave_orphan(id),
            State::Begin
            | State::Read(_)
            | State::Truncate(..)
            | State::Sync(_)
            | State::SyncAll(_)
            | State::Drop(_) => {}
        }
    }
}
