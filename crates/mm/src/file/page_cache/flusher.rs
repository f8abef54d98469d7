//! Linux: wb_workfn() and below in fs/fs-writeback.c (v6.1).
//! Differs: one device, one thread; inodes in the order in which they became dirty; requests that come while it works are
//! served after. The thread also commits the journal of ext4 or the log of XFS, and removes files that lost their last user
//! in munmap or exit.

use std::collections::VecDeque;

use memory::{
    cx::Cx,
    frame::Holdings,
    news::{Daemon, News},
    primitive,
    step::{Step, Wait},
};
use units::{NodeId, Picos, Time};

use super::{
    InodeId,
    dirty::{Sent, disk_wait},
    xfs::{Fields, RETRY},
};
use crate::{Mm, Spaces};

const CENTISECOND: Picos = Picos::from_micros(10_000);

/// The reason for which the flusher writes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Too many pages are dirty: write until fewer than the lower limit are (`for_background`).
    Background,
    /// Pages have been dirty for too long (`for_kupdate`).
    Old,
    /// Memory is short: write everything (`WB_REASON_VMSCAN`).
    Everything,
}

/// The thread that writes files to the disk.
#[derive(Clone, Debug, Default)]
pub struct Flusher {
    /// Background writeback was requested.
    wants_background: bool,
    wants_everything: bool,
    /// When the flusher next looks for old pages.
    due: Option<Time>,
    state: Option<Work>,
    /// Files to be removed.
    pub(super) orphans: VecDeque<InodeId>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    reason: Reason,
    /// Inodes up to this place of `dirty` were dirty when the work began.
    end: u64,
    /// Place from which on the next inode is looked for, and that of the inode being written, if there is one.
    at: u64,
    begun: Option<u64>,
    /// Pages of this inode that are still to be written.
    left: u64,
    /// Pages were sent in this round.
    has_sent: bool,
}

impl Flusher {
    /// Whether the flusher writes, or is about to (`writeback_in_progress`).
    pub(super) fn is_working(&self) -> bool {
        self.wants_background || self.state.is_some()
    }
}

impl Mm {
    /// Starts the flusher's timer at the first dirty inode (`wb_wakeup_delayed`).
    pub(super) fn arm_flusher(&mut self, now: Time) {
        let centisecs = self.cache.settings.dirty_writeback_centisecs;
        if self.cache.flusher.due.is_none() && centisecs > 0 {
            self.cache.flusher.due = Some(now + CENTISECOND * centisecs);
            self.tell_flusher();
        }
    }

    pub(super) fn tell_flusher(&mut self) {
        self.memory.tell(News::Woken(Daemon::Flusher, NodeId(0)));
    }

    /// `wb_start_background_writeback`.
    pub(super) fn start_background_writeback(&mut self, cx: &mut Cx) {
        if !self.cache.flusher.wants_background {
            self.cache.flusher.wants_background = true;
            self.tell_flusher();
            cx.cut();
        }
    }

    /// Wakes the flusher when reclaim meets too many dirty pages that are not under writeback (`wakeup_flusher_threads`).
    pub(crate) fn wake_flusher(&mut self, cx: &mut Cx) {
        if !self.cache.flusher.wants_everything {
            self.cache.flusher.wants_everything = true;
            self.tell_flusher();
            cx.cut();
        }
    }

    /// Leaves the removal of an unused file to the flusher.
    pub(super) fn leave_orphan(&mut self, id: InodeId) {
        self.cache.flusher.orphans.push_back(id);
        self.tell_flusher();
    }

    /// Pages that the flusher holds between two steps.
    pub(crate) fn flusher_holdings(&self) -> Holdings {
        Holdings { isolated: self.cache.xfs.held().collect(), ..Holdings::default() }
    }

    /// Whether the flusher only waits for its timer.
    pub fn is_flusher_idle(&self) -> bool {
        let flusher = &self.cache.flusher;
        !flusher.is_working()
            && !flusher.wants_everything
            && flusher.orphans.is_empty()
            && !self.cache.xfs.is_log_wanted()
            && !self.cache.ext4.is_commit_wanted()
    }

    /// Takes a step: writes some pages, or sleeps until it is asked or pages are old.
    pub fn step_flusher(&mut self, spaces: &mut Spaces, cx: &mut Cx) -> Step<()> {
        self.complete_disk_io(cx);
        if let Some(id) = self.cache.flusher.orphans.front().copied() {
            return match self.evict_some(cx, id) {
                Step::Done(()) => {
                    self.cache.flusher.orphans.pop_front();
                    Step::More
                }
                other => other,
            };
        }
        self.update_bandwidth(cx);
        let flushed = if self.cache.is_xfs() { self.flush_inodes(cx) } else { self.step_journal(cx) };
        let written = self.write_or_wait(spaces, cx);
        // While metadata is being read files are written, and the other way round.
        match (flushed, written) {
            (Some(Step::Block(wait)), Step::Block(_)) => Step::Block(wait),
            (Some(_), _) => Step::More,
            (None, written) => written,
        }
    }

    fn write_or_wait(&mut self, spaces: &mut Spaces, cx: &mut Cx) -> Step<()> {
        let Some(mut work) = self.cache.flusher.state.take() else { return self.next_writing(cx) };
        let step = self.write_some(spaces, cx, &mut work);
        match step {
            Step::Done(()) => Step::More,
            other => {
                self.cache.flusher.state = Some(work);
                other
            }
        }
    }

    /// The next work: everything if that was asked for, then old pages, then background writeback (`wb_do_writeback`).
    fn next_writing(&mut self, cx: &mut Cx) -> Step<()> {
        let now = cx.now();
        let flusher = &mut self.cache.flusher;
        let reason = if std::mem::take(&mut flusher.wants_everything) {
            Some(Reason::Everything)
        } else if flusher.due.is_some_and(|due| due <= now) {
            Some(Reason::Old)
        } else if std::mem::take(&mut flusher.wants_background) {
            Some(Reason::Background)
        } else {
            None
        };
        let centisecs = self.cache.settings.dirty_writeback_centisecs;
        if reason == Some(Reason::Old) || self.cache.flusher.due.is_none() {
            let is_dirty = self.cache.dirty.len() > 0 && centisecs > 0;
            self.cache.flusher.due = is_dirty.then_some(now + CENTISECOND * centisecs);
        }
        let Some(reason) = reason else {
            let due = [self.cache.flusher.due, self.cache.xfs.due(), self.cache.ext4.due()].into_iter().flatten().min();
            return Step::Block(due.map_or(Wait::Queue, Wait::Until));
        };
        let end = self.cache.dirty.end();
        self.cache.flusher.state =
            Some(Work { reason, end, at: 0, begun: None, left: self.cache.chunk(), has_sent: false });
        Step::More
    }

    /// Writes a run of pages of the inode whose turn it is (`writeback_sb_inodes`).
    fn write_some(&mut self, spaces: &mut Spaces, cx: &mut Cx, work: &mut Work) -> Step<()> {
        if work.reason == Reason::Background && !self.is_over_background() {
            return Step::Done(());
        }
        let next = self.cache.dirty.from(work.at).filter(|(place, _)| *place < work.end);
        let expire = CENTISECOND * self.cache.settings.dirty_expire_centisecs;
        let next = next.filter(|(_, id)| work.reason != Reason::Old || self.cache.is_older(*id, cx.now(), expire));
        let Some((place, id)) = next else {
            let goes_on = work.reason != Reason::Old && work.has_sent && self.cache.dirty.len() > 0;
            // Inodes of which only a part was written were requeued behind the others.
            (work.at, work.end, work.has_sent) = (0, self.cache.dirty.end(), false);
            return if goes_on { Step::More } else { Step::Done(()) };
        };
        if work.begun != Some(place) {
            // A transaction decides on the blocks of the pages (`xfs_iomap_write_allocate`).
            if self.log_inode(cx, id, Fields::Extents).is_err() {
                return Step::Block(disk_wait(cx.now() + RETRY));
            }
            match self.allocate_on_ext4(cx, id) {
                Ok(Step::Done(())) => {}
                Ok(step) => return step,
                Err(_) => return Step::Block(disk_wait(cx.now() + RETRY)),
            }
            (work.at, work.begun, work.left) = (place, Some(place), self.cache.chunk());
            primitive::file_writeback(cx);
        }
        let from = self.cache.inode(id).write_from;
        match self.send_run(spaces, cx, id, from, work.left) {
            Sent::Full(wait) => return Step::Block(wait),
            Sent::Some(pages, next) => {
                work.has_sent |= pages > 0;
                work.left -= pages;
                self.cache.inode_mut(id).write_from = next;
                if work.left == 0 {
                    self.requeue_dirty(id);
                    work.at = place + 1;
                    work.left = self.cache.chunk();
                }
            }
            // The kernel waits for the lock here; in the simulator its owner may wait for memory.
            Sent::Locked(index, _) => self.cache.inode_mut(id).write_from = index + 1,
            Sent::None => {
                self.cache.inode_mut(id).write_from = 0;
                if from == 0 || self.cache.inode(id).mapping.next_dirty(&self.cache.nodes, 0).is_none() {
                    self.cache.leave_dirty(id);
                    self.rest_inode(id);
                } else {
                    self.requeue_dirty(id);
                }
                work.at = place + 1;
                work.left = self.cache.chunk();
            }
        }
        Step::More
    }

    /// Requeues an inode behind all others, as a part of it is still to be written (`requeue_inode`).
    fn requeue_dirty(&mut self, id: InodeId) {
        let since = self.cache.inode(id).dirty_since;
        self.cache.leave_dirty(id);
        self.cache.enter_dirty(id, since);
    }
}
