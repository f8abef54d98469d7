//! Linux: generic_perform_write() in mm/filemap.c, ext4_da_write_begin() and ext4_da_write_end() in fs/ext4/inode.c (v6.1).
//! Differs: no lock of the inode; a page that is written in part is read from the disk alone.

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::{FrameFlag, Held, Holdings},
    primitive,
    step::{Step, TICK, Wait},
};
use units::{Bytes, Errno, Order, Pfn, Time};

use super::{CachedPage, InodeId, Marks, PageFlag, Room, dirty::disk_wait, xfs::RETRY};
use crate::Mm;

/// One write(2).
#[derive(Clone, Debug)]
pub(super) struct Write {
    id: InodeId,
    at: u64,
    end: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Change the inode's times.
    Times,
    /// Find the next page, or allocate a frame for it.
    Page,
    /// Put a new page into the cache.
    Insert(Pfn),
    /// Make the buffer of the locked page, then copy the bytes.
    Locked,
    /// Pause the writer if it must.
    Balance,
}

/// The rest of a file that a task writes with one write(2) per block.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The file's descriptor.
    pub file: u32,
    /// The first byte that is not written yet.
    pub at: u64,
    /// End of the last block.
    pub end: u64,
    /// Bytes of each block but the last; above 0.
    pub block: u64,
}

enum Next {
    Phase(Phase),
    /// There is no memory for the phase, yet or at all.
    Without(NoMemory),
    Wait(Wait),
    Failed(Errno),
}

impl Write {
    pub(super) fn new(id: InodeId, offset: Bytes, len: Bytes) -> Self {
        Self { id, at: offset.0, end: offset.0 + len.0, phase: Phase::Times }
    }

    fn index(&self) -> u64 {
        self.at / Bytes::PAGE.0
    }

    /// Takes a step until `horizon`, at least one phase.
    pub(super) fn step(&mut self, mm: &mut Mm, cx: &mut Cx, horizon: Time) -> Step<Result<(), Errno>> {
        mm.complete_disk_io(cx);
        // Bound: each turn goes to the next phase of a page.
        while self.at < self.end || matches!(self.phase, Phase::Balance) {
            let next = match self.phase {
                Phase::Times => match mm.update_times(cx, self.id, true) {
                    Ok(Step::Done(())) => Next::Phase(Phase::Page),
                    Ok(Step::Block(wait)) => Next::Wait(wait),
                    Ok(Step::More) => return Step::More,
                    // The call repeats it until there is memory (KM_SLEEP).
                    Err(NoMemory::Refused) => Next::Wait(disk_wait(cx.now() + RETRY)),
                    Err(asked @ NoMemory::Asked) => Next::Without(asked),
                },
                Phase::Page => self.find(mm, cx),
                Phase::Insert(held) => self.insert(mm, cx, held),
                Phase::Locked => self.write(mm, cx),
                Phase::Balance => match mm.balance_dirty(cx) {
                    Some(wait) => Next::Wait(wait),
                    None => Next::Phase(Phase::Page),
                },
            };
            match next {
                Next::Phase(phase) => self.phase = phase,
                Next::Wait(wait) => return Step::Block(wait),
                Next::Without(NoMemory::Asked) => return Step::More,
                Next::Without(NoMemory::Refused) => return self.fail(mm, cx, Errno::NOMEM),
                Next::Failed(errno) => return self.fail(mm, cx, errno),
            }
            if cx.is_over(horizon) {
                return Step::More;
            }
        }
        Step::Done(Ok(()))
    }

    fn fail(&mut self, mm: &mut Mm, cx: &mut Cx, errno: Errno) -> Step<Result<(), Errno>> {
        self.abort(mm, cx);
        self.at = self.end;
        Step::Done(Err(errno))
    }

    /// `__filemap_get_folio` with FGP_LOCK, FGP_WRITE and FGP_CREAT.
    fn find(&self, mm: &mut Mm, cx: &mut Cx) -> Next {
        if let Some(head) = mm.cache.page(self.id, self.index()) {
            if let Some(wait) = mm.wait_for_page((self.id, self.index()), head) {
                return Next::Wait(wait);
            }
            mm.try_lock_folio(head);
            return Next::Phase(Phase::Locked);
        }
        let request = mm.page_cache_request(cx, true);
        let full = mm.nodes_full_of_dirty();
        match mm.memory.alloc_beside(cx, &request, full) {
            Ok(head) => {
                mm.memory.isolate(cx, head, Order::BASE);
                Next::Phase(Phase::Insert(head))
            }
            Err(no) => Next::Without(no),
        }
    }

    fn insert(&self, mm: &mut Mm, cx: &mut Cx, held: Pfn) -> Next {
        match mm.cache.inode(self.id).mapping.room(&mm.cache.nodes, self.index()) {
            Room::Taken => {
                // Another task was faster.
                mm.memory.free(cx, held, Order::BASE);
                return Next::Phase(Phase::Page);
            }
            Room::Free => {}
            Room::NeedsNode => {
                if let Err(no) = mm.make_place(cx, self.id, self.index()) {
                    return Next::Without(no);
                }
            }
        }
        mm.memory.assert_isolated(cx, held, Order::BASE);
        mm.add_page(cx, (self.id, self.index()), held, false);
        Next::Phase(Phase::Locked)
    }

    fn write(&mut self, mm: &mut Mm, cx: &mut Cx) -> Next {
        let at = (self.id, self.index());
        let CachedPage { head, marks, has_buffer } = mm.cache.look_up(at).expect("a locked page stays");
        if !has_buffer && let Err(no) = mm.make_buffer(cx, at) {
            return Next::Without(no);
        }
        let start = at.1 * Bytes::PAGE.0;
        let is_whole = self.at == start && (self.end >= start + Bytes::PAGE.0 || self.end >= mm.cache.inode(at.0).size);
        if !marks.has(PageFlag::Uptodate) && !is_whole && mm.cache.inode(at.0).blocks.has(at.1) {
            // The disk has the rest of the page. A task that waits for the page waits for its read.
            mm.fill_from_disk(at, head);
            let done = mm.submit_request(cx, at.0, (at.1, 1), false);
            self.phase = Phase::Page;
            return Next::Wait(disk_wait(done));
        }
        if !marks.has(PageFlag::Dirty) && !mm.reserve_block(at.0, at.1) {
            return Next::Failed(Errno::NOSPC);
        }
        let end = self.end.min(start + Bytes::PAGE.0);
        primitive::write_file_page(cx, Bytes(end - self.at));
        mm.cache.remark(at, (Marks::NONE.with(PageFlag::Uptodate).with(PageFlag::Dirty), Marks::NONE));
        if !marks.has(PageFlag::Dirty) {
            mm.account_dirtied(cx, at.0, head);
        }
        mm.store_tag(head);
        mm.unlock_folio(cx, head);
        self.at = end;
        let inode = mm.cache.inode_mut(at.0);
        inode.size = inode.size.max(self.at);
        Next::Phase(Phase::Balance)
    }

    /// The frame that the call holds between two steps.
    pub(super) fn holdings(&self) -> Holdings {
        match self.phase {
            Phase::Insert(pfn) => Holdings { isolated: vec![Held { pfn, order: Order::BASE }], ..Holdings::default() },
            Phase::Times | Phase::Page | Phase::Locked | Phase::Balance => Holdings::default(),
        }
    }

    /// Frees what the call holds, and unlocks the page.
    pub(super) fn abort(&mut self, mm: &mut Mm, cx: &mut Cx) {
        match std::mem::replace(&mut self.phase, Phase::Page) {
            Phase::Insert(held) => mm.memory.free(cx, held, Order::BASE),
            Phase::Locked => {
                let head = mm.cache.page(self.id, self.index()).expect("a locked page stays");
                mm.unlock_folio(cx, head);
            }
            Phase::Times | Phase::Page | Phase::Balance => {}
        }
    }
}

impl Mm {
    /// Does the next calls of write(2) of a task that only change bytes of one page: the page is in the cache, up to date,
    /// dirty and unlocked; the file's times are of this tick; the task need not pause, no request of the disk ends, and all
    /// calls end before `before`. Each call takes the same time. Returns their number; 0 means that nothing was done.
    pub fn write_again(&mut self, cx: &mut Cx, blocks: Blocks, before: Time) -> u64 {
        let Blocks { file, at, end, block } = blocks;
        let index = at / Bytes::PAGE.0;
        let in_page = ((index + 1) * Bytes::PAGE.0).min(end).saturating_sub(at) / block;
        let before = self.cache.disk.next_end().map_or(before, |done| done.min(before));
        let Ok(id) = self.opened(file) else { return 0 };
        let Some(head) = self.cache.page(id, index) else { return 0 };
        let next_tick = cx.now().0 / TICK.0 + 1;
        if self.cache.inode(id).modified != next_tick {
            return 0;
        }
        let before = before.min(Time(next_tick * TICK.0));
        let Some(span) = before.0.checked_sub(cx.now().0 + 1).filter(|_| in_page > 0) else { return 0 };
        let is_there = self.cache.inode(id).mapping.is_written(&self.cache.nodes, index);
        if !is_there || self.memory.frames.has(head, FrameFlag::Locked) || !self.cache.runs_free(cx.control()) {
            return 0;
        }
        let each = primitive::write_again_price(cx, Bytes(block));
        let n = span.checked_div(each.0).map_or(in_page, |most| most.min(in_page));
        primitive::write_again(cx, Bytes(block), n);
        if self.memory.frames.keeps_contents() && n > 0 {
            self.cache.balancing.tags += n - 1;
            self.store_tag(head);
        }
        let inode = self.cache.inode_mut(id);
        inode.size = inode.size.max(at + block * n);
        n
    }

    /// The wait for a page that another task has locked, or that is being read.
    pub(super) fn wait_for_page(&mut self, at: (InodeId, u64), head: Pfn) -> Option<Wait> {
        if !self.memory.frames.has(head, FrameFlag::Locked) {
            return None;
        }
        Some(self.read_by(at).map_or_else(|| self.wait_on_folio(head), disk_wait))
    }

    /// Sets the contents of a page to the contents of its block.
    pub(super) fn fill_from_disk(&mut self, (id, index): (InodeId, u64), head: Pfn) {
        if self.memory.frames.keeps_contents() {
            let content = self.cache.inode(id).content(index);
            self.memory.frames.store(head, content);
        }
    }

    /// Stores contents that no other page has: for tests.
    fn store_tag(&mut self, head: Pfn) {
        if self.memory.frames.keeps_contents() {
            self.cache.balancing.tags += 1;
            self.memory.frames.store(head, self.cache.balancing.tags);
        }
    }
}
