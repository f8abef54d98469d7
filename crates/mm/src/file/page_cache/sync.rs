//! Linux: ext4_sync_file() in fs/ext4/fsync.c, file_write_and_wait_range() in mm/filemap.c, ksys_sync() in fs/sync.c (v6.1).
//! Differs: with XFS the log is one block, written after the file's pages; with ext4 that block ends the transaction, and is
//! sent by the task that waits for it. sync(2) checks every tick how far the flusher has come.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    step::{Step, TICK},
};
use units::Errno;

use super::{
    InodeId,
    dirty::{JOURNAL, Sent, disk_wait},
    xfs::RETRY,
};
use crate::{Mm, Spaces};

/// One fsync(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync {
    id: InodeId,
    phase: Phase,
    /// The journal has the blocks that were allocated for the file's pages.
    is_allocated: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Send dirty pages from this index on.
    Send(u64),
    /// Wait until they are written.
    Wait,
    /// Wait for the commit of the journal.
    Commit,
}

impl Sync {
    pub(super) fn new(id: InodeId) -> Self {
        Self { id, phase: Phase::Send(0), is_allocated: false }
    }

    pub(super) fn step(&mut self, mm: &mut Mm, spaces: &mut Spaces, cx: &mut Cx) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        match self.phase {
            Phase::Send(0) if mm.cache.inode(self.id).dirty_place.is_some() && !self.is_allocated => {
                match mm.allocate_on_ext4(cx, self.id) {
                    Ok(Step::Done(())) => self.is_allocated = true,
                    other => return retry(cx, other),
                }
                Step::More
            }
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
                    // A page was changed while it was written.
                    self.phase = Phase::Send(0);
                    return Step::More;
                }
                if mm.cache.is_ext4() {
                    match mm.commit(cx, false) {
                        Ok(Step::Done(())) => {}
                        other => return retry(cx, other),
                    }
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

/// Repeats a call to the journal until it has got its memory (`__GFP_NOFAIL`).
fn retry(cx: &Cx, got: Result<Step<()>, NoMemory>) -> Step<Result<(), Errno>> {
    match got {
        Ok(Step::Block(wait)) => Step::Block(wait),
        Ok(Step::Done(()) | Step::More) | Err(NoMemory::Asked) => Step::More,
        Err(NoMemory::Refused) => Step::Block(disk_wait(cx.now() + RETRY)),
    }
}

/// One sync(2): pages of files, the journal, and then pages of the block device that the journal held back (`sync_fs`,
/// `sync_bdevs`).
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncAll {
    /// Number of pages written since boot at which all pages that were dirty at the beginning are written.
    until: i64,
    round: Round,
}

#[derive(Clone, Copy, Debug)]
enum Round {
    Files,
    Journal,
    Device,
}

impl SyncAll {
    pub(super) fn new(mm: &Mm) -> Self {
        Self { until: until(mm), round: Round::Files }
    }

    /// Takes a step. Pages that become dirty meanwhile are not waited for.
    pub(super) fn step(&mut self, mm: &mut Mm, cx: &mut Cx) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        let counts = mm.cache.totals();
        let is_written = counts.dirty + counts.writeback == 0 || mm.cache.balancing.written >= self.until;
        match self.round {
            Round::Files if is_written => {
                mm.ask_for_commit();
                self.round = Round::Journal;
                return Step::More;
            }
            Round::Journal if !mm.is_committing() => {
                (self.until, self.round) = (until(mm), Round::Device);
                return Step::More;
            }
            Round::Device if is_written => return Step::Done(Ok(())),
            Round::Journal => mm.tell_flusher(),
            Round::Files | Round::Device => mm.wake_flusher(cx),
        }
        Step::Block(disk_wait(cx.now() + TICK))
    }
}

/// Number of pages written since boot at which all pages that are dirty now are written.
fn until(mm: &Mm) -> i64 {
    let counts = mm.cache.totals();
    mm.cache.balancing.written + (counts.dirty + counts.writeback).cast_signed()
}
