//! Linux: ext4_sync_file() in fs/ext4/fsync.c, file_write_and_wait_range() in mm/filemap.c, ksys_sync() in fs/sync.c (v6.1).
//! Differs: the journal is one block, written when the file's pages are; sync(2) writes none, and looks every tick how far the
//! flusher has come.

use units::Errno;

use super::{
    InodeId,
    dirty::{JOURNAL, Sent, disk_wait},
};
use crate::{
    Mm, Spaces,
    cx::Cx,
    step::{Step, TICK},
};

/// One fsync(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    id: InodeId,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Send what is dirty from here on.
    Send(u64),
    /// Wait until it is written.
    Wait,
    /// Wait for the journal.
    Commit,
}

impl Sync {
    pub(super) fn new(id: InodeId) -> Self {
        Self { id, phase: Phase::Send(0) }
    }

    pub(super) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        match self.phase {
            Phase::Send(from) => match mm.send_run(spaces, cx, self.id, from, u64::MAX) {
                Sent::Some(_, next) => {
                    self.phase = Phase::Send(next);
                    Step::More
                }
                Sent::Full(wait) => Step::Block(wait),
                Sent::Locked(index, head) => mm.wait_for_page((self.id, index), head).map_or(Step::More, Step::Block),
                Sent::None => {
                    if mm.cache.inode(self.id).mapping.next_dirty(&mm.cache.nodes, 0).is_none() {
                        mm.cache.leave_dirty(self.id);
                        mm.rest_inode(self.id);
                    }
                    self.phase = Phase::Wait;
                    Step::More
                }
            },
            Phase::Wait => {
                let written_by = mm.cache.inode(self.id).written_by;
                if written_by > cx.now() {
                    return Step::Block(disk_wait(written_by));
                }
                if mm.cache.inode(self.id).mapping.next_dirty(&mm.cache.nodes, 0).is_some() {
                    // Changed while it was written.
                    self.phase = Phase::Send(0);
                    return Step::More;
                }
                let done = mm.submit_request(cx, self.id, (JOURNAL, 1), true);
                self.phase = Phase::Commit;
                Step::Block(disk_wait(done))
            }
            Phase::Commit => {
                let has_failed = std::mem::take(&mut mm.cache.inode_mut(self.id).has_failed);
                Step::Done(if has_failed { Err(Errno::IO) } else { Ok(()) })
            }
        }
    }
}

/// One sync(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncAll {
    /// Pages written since the start of the kernel when all that was dirty when it began is written.
    until: i64,
}

impl SyncAll {
    pub(super) fn new(mm: &Mm) -> Self {
        let counts = mm.cache.totals();
        let pages = (counts.dirty + counts.writeback).cast_signed();
        Self { until: mm.cache.balancing.written + pages }
    }

    /// Takes a step; pages that become dirty meanwhile are not waited for.
    pub(super) fn step(self, mm: &mut Mm, cx: &mut Cx) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        let counts = mm.cache.totals();
        if counts.dirty + counts.writeback == 0 || mm.cache.balancing.written >= self.until {
            return Step::Done(Ok(()));
        }
        mm.wake_flusher(cx);
        Step::Block(disk_wait(cx.now() + TICK))
    }
}
