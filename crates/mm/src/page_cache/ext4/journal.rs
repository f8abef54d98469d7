//! Linux: fs/jbd2: jbd2_journal_add_journal_head() and jbd2_journal_get_descriptor_buffer() in journal.c,
//! jbd2_journal_get_write_access() in transaction.c, jbd2_journal_commit_transaction() in commit.c,
//! __jbd2_journal_clean_checkpoint_list() in checkpoint.c; buffer_migrate_folio_norefs() in mm/migrate.c, drop_buffers() in
//! fs/buffer.c (v6.1, v5.10).
//! Differs: the thread that commits (`jbd2`) is the one that writes back; a block that changes while it is being committed is not
//! copied before, and the buffer heads of what is sent are none; the journal never fills up; who wants the page of a block that
//! is written gets it at once (`bdev_try_to_free_page` up to 5.13; a shrinker from 5.14 on does so in time).
//!
//! A block that a transaction changes has a journal head, which holds a reference to its buffer: neither reclaim nor migration
//! gets its page. After the commit it is dirty, and the flusher writes it; with the commit after that the head goes.

use std::collections::{BTreeMap, VecDeque};

use units::{Bytes, Pfn, Picos, Time};

use super::{
    super::{PageFlag, dirty::disk_wait},
    JOURNAL_AREA,
};
use crate::{
    Mm,
    alloc::NoMemory,
    cx::Cx,
    frame::Frame,
    slab::{Cache, Object},
    step::Step,
};

/// How old a transaction gets (`JBD2_DEFAULT_MAX_COMMIT_AGE`).
const AGE: Picos = Picos::from_secs(5);
/// Blocks that a descriptor names: tags of 16 bytes, with what is before and behind them (`journal_block_tag3_t`).
const TAGS: u64 = (Bytes::PAGE.0 - 12 - 16 - 4) / 16;
/// Blocks that one step makes dirty.
const AT_ONCE: usize = 32;

/// The journal's part in a block (`struct journal_head`): with neither mark the commit is over, and the block may still have to
/// be written.
#[derive(Clone, Copy, Debug)]
struct Head {
    object: Object,
    /// The running transaction has changed it.
    runs: bool,
    /// The block is on its way to the journal.
    commits: bool,
}

/// The journal (`journal_t`).
#[derive(Clone, Debug)]
pub(super) struct Journal {
    heads: BTreeMap<u64, Head>,
    running: Vec<u64>,
    committing: VecDeque<u64>,
    /// When those are there, if any are on their way.
    written_by: Option<Time>,
    /// When the running transaction is committed at the latest.
    due: Option<Time>,
    /// A task waits for that.
    is_asked: bool,
    /// Blocks of the journal, and the next one.
    size: u64,
    at: u64,
}

impl Journal {
    /// The journal of a file system of so many blocks (`ext2fs_default_journal_size`, e2fsprogs 1.47).
    pub(super) fn new(blocks: u64) -> Self {
        let size = match blocks {
            0..0x8000 => 1024,
            0x8000..0x4_0000 => 4096,
            0x4_0000..0x8_0000 => 8192,
            0x8_0000..0x40_0000 => 16_384,
            0x40_0000..0x80_0000 => 32_768,
            0x80_0000..0x100_0000 => 65_536,
            0x100_0000..0x200_0000 => 131_072,
            _ => 262_144,
        };
        let (heads, running, committing) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        Self { heads, running, committing, written_by: None, due: None, is_asked: false, size, at: 1 }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.heads.values().map(|head| head.object)
    }

    /// Is the running transaction to be committed now: asked for, or as large as one gets (`j_max_transaction_buffers`)?
    pub(super) fn is_wanted(&self) -> bool {
        !self.running.is_empty() && (self.is_asked || self.running.len() as u64 > self.size / 4)
    }

    pub(super) fn due(&self) -> Option<Time> {
        if self.written_by.is_some() {
            return self.written_by;
        }
        if self.is_wanted() { Some(Time(0)) } else { self.due }
    }
}

impl Mm {
    /// Blocks that a transaction changes: each is there, and has a journal head.
    pub(super) fn change_blocks(&mut self, cx: &mut Cx, blocks: &[u64]) -> Result<Step<()>, NoMemory> {
        for block in blocks {
            if let Step::Block(wait) = self.get_block(cx, *block, true)? {
                return Ok(Step::Block(wait));
            }
        }
        for block in blocks {
            self.change_block(cx, *block)?;
        }
        Ok(Step::Done(()))
    }

    /// `jbd2_journal_get_write_access`, `jbd2_journal_dirty_metadata`.
    fn change_block(&mut self, cx: &mut Cx, block: u64) -> Result<(), NoMemory> {
        if !self.cache.ext4.journal.heads.contains_key(&block) {
            let object = self.alloc_object(cx, Cache::JournalHead)?;
            let head = Head { object, runs: false, commits: false };
            self.cache.ext4.journal.heads.insert(block, head);
        }
        self.change_known_block(block);
        let journal = &mut self.cache.ext4.journal;
        let is_first = journal.due.is_none();
        journal.due.get_or_insert(cx.now() + AGE);
        if is_first || journal.is_wanted() {
            self.tell_flusher();
        }
        Ok(())
    }

    /// A block changes once more that has a journal head; others are left out.
    pub(super) fn change_known_block(&mut self, block: u64) {
        let journal = &mut self.cache.ext4.journal;
        let Some(head) = journal.heads.get_mut(&block).filter(|head| !head.runs) else { return };
        head.runs = true;
        journal.running.push(block);
        // The block must not be written before its transaction is committed.
        let at = (self.device(), block);
        if let Some(page) = self.cache.page(at.0, at.1)
            && self.cache.has(at, PageFlag::Dirty)
        {
            self.cancel_dirty(at, page);
        }
    }

    /// Sends the running transaction to the journal, with the record that ends it if that `is_ended` here; done when all that was
    /// to be committed is on its way, which takes until the one before is there.
    pub(in super::super) fn commit(&mut self, cx: &mut Cx, is_ended: bool) -> Result<Step<()>, NoMemory> {
        if let Some(by) = self.cache.ext4.journal.written_by {
            if by > cx.now() {
                return Ok(Step::Block(disk_wait(by)));
            }
            // Bound: the blocks of a transaction.
            while self.finish_commit(cx) {}
        }
        let (blocks, at, size) = {
            let journal = &self.cache.ext4.journal;
            (journal.running.len() as u64, journal.at, journal.size)
        };
        if blocks == 0 {
            return Ok(Step::Done(()));
        }
        let descriptors = blocks.div_ceil(TAGS);
        let ends = (0..descriptors).map(|n| n * (TAGS + 1)).chain([blocks + descriptors]);
        for block in ends {
            if let Step::Block(wait) = self.get_block(cx, JOURNAL_AREA + (at + block) % size, false)? {
                return Ok(Step::Block(wait));
            }
        }
        self.clean_checkpoints(cx);
        let pages = blocks + descriptors;
        let written_by = self.submit_log(cx, pages + u64::from(is_ended));
        let journal = &mut self.cache.ext4.journal;
        for block in journal.running.drain(..) {
            let head = journal.heads.get_mut(&block).expect("a running transaction holds it");
            (head.runs, head.commits) = (false, true);
            journal.committing.push_back(block);
        }
        journal.at = (at + pages + 1) % size;
        (journal.written_by, journal.due, journal.is_asked) = (Some(written_by), None, false);
        self.tell_flusher();
        Ok(Step::Done(()))
    }

    /// Blocks that are in the journal are dirty from now on (`jbd2_journal_refile_buffer`); some of them, and says whether there
    /// may be more.
    fn finish_commit(&mut self, cx: &mut Cx) -> bool {
        let device = self.device();
        // Bound: as many as a step takes.
        for _ in 0..AT_ONCE {
            let Some(block) = self.cache.ext4.journal.committing.pop_front() else {
                self.cache.ext4.journal.written_by = None;
                return false;
            };
            let head = self.cache.ext4.journal.heads.get_mut(&block).expect("a commit holds it");
            head.commits = false;
            if !head.runs {
                let page = self.cache.page(device, block).expect("a journal head keeps it");
                self.set_page_dirty(cx, page);
            }
        }
        true
    }

    /// Journal heads go of blocks that are written where they belong.
    fn clean_checkpoints(&mut self, cx: &mut Cx) {
        let blocks: Vec<u64> = self.cache.ext4.journal.heads.keys().copied().collect();
        for block in blocks {
            self.release_block(cx, block);
        }
    }

    /// The journal lets go of a block, if it is written; says whether it has no part in it.
    fn release_block(&mut self, cx: &mut Cx, block: u64) -> bool {
        let Some(head) = self.cache.ext4.journal.heads.get(&block).copied() else { return true };
        let at = (self.device(), block);
        let is_written = ![PageFlag::Dirty, PageFlag::Writeback].into_iter().any(|flag| self.cache.has(at, flag));
        if head.runs || head.commits || !is_written {
            return false;
        }
        self.cache.ext4.journal.heads.remove(&block);
        self.free_object(cx, head.object);
        true
    }

    /// The block that a page is, if the journal has a part in it.
    fn journaled(&self, head: Pfn) -> Option<u64> {
        let device = self.cache.ext4.device?;
        let Frame::File { segment, .. } = self.frames.get(head) else { return None };
        let part = self.cache.segments.get(segment.0 as usize)?.as_ref()?;
        if part.inode != device {
            return None;
        }
        let (_, block) = self.cache.place_of(&self.frames, head)?;
        self.cache.ext4.journal.heads.contains_key(&block).then_some(block)
    }

    /// Has the journal a reference to a page, so that it stays where it is?
    pub(crate) fn is_journaled(&self, head: Pfn) -> bool {
        self.journaled(head).is_some()
    }

    /// Asks the journal for a page that is clean; says whether it has a part in it still (`try_to_release_page`).
    pub(crate) fn is_kept_by_journal(&mut self, cx: &mut Cx, head: Pfn) -> bool {
        self.journaled(head).is_some_and(|block| !self.release_block(cx, block))
    }

    /// Asks for a commit of the running transaction (`jbd2_journal_start_commit`).
    pub(in super::super) fn ask_for_commit(&mut self) {
        if self.cache.is_ext4() && !self.cache.ext4.journal.running.is_empty() {
            self.cache.ext4.journal.is_asked = true;
            self.tell_flusher();
        }
    }

    /// Is a transaction on its way to the journal, or one to be sent at once?
    pub(in super::super) fn is_committing(&self) -> bool {
        self.cache.ext4.journal.written_by.is_some() || self.cache.ext4.journal.is_wanted()
    }

    /// Does something for the journal; nothing when there is nothing to do now.
    pub(in super::super) fn step_journal(&mut self, cx: &mut Cx) -> Option<Step<()>> {
        let (now, journal) = (cx.now(), &self.cache.ext4.journal);
        if journal.written_by.is_some_and(|by| by <= now) {
            self.finish_commit(cx);
            return Some(Step::More);
        }
        let is_due = journal.is_wanted() || journal.due.is_some_and(|due| due <= now);
        if !is_due {
            return None;
        }
        if journal.running.is_empty() {
            self.cache.ext4.journal.due = None;
            return None;
        }
        Some(match self.commit(cx, true) {
            Ok(Step::Done(())) => Step::More,
            Ok(step) => step,
            // Steps of kernel threads ask for nothing.
            Err(_) => Step::Block(disk_wait(now + super::super::xfs::RETRY)),
        })
    }
}
