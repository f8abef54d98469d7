//! Linux: fs/jbd2: jbd2_journal_add_journal_head() and jbd2_journal_get_descriptor_buffer() in journal.c,
//! jbd2_journal_write_metadata_buffer() there, jbd2_journal_get_write_access() in transaction.c,
//! jbd2_journal_commit_transaction() in commit.c, __jbd2_journal_clean_checkpoint_list() and
//! jbd2_journal_shrink_checkpoint_list() in checkpoint.c; buffer_migrate_folio_norefs() in mm/migrate.c, drop_buffers() in
//! fs/buffer.c (v6.1.166); bdev_try_to_free_page() in fs/ext4/super.c, jbd2_journal_try_to_free_buffers() in transaction.c
//! (v5.10.265).
//! Differs: the thread that commits (`jbd2`) is the one that writes back; a block that changes while it is being committed is not
//! copied before; the journal never fills up, so that no task waits for a checkpoint (`log_do_checkpoint`); extents are not
//! first allocated as unwritten, so that no end of a write changes its inode once more; a shrinker looks at all transactions
//! each time (`j_shrink_transaction`).
//!
//! A block that a transaction changes has a journal head, which holds a reference to its buffer: neither reclaim nor migration
//! gets its page. After the commit it is dirty, and the flusher writes it. The head of a written block goes with a later commit
//! if those of all older blocks do; before 5.14 also when reclaim wants the page, from then on when a shrinker is asked for much.

use std::collections::{BTreeMap, VecDeque};

use memory::{
    alloc::NoMemory,
    cx::Cx,
    frame::Frame,
    slab::{Cache, Object},
    step::Step,
};
use units::{Bytes, Pfn, Picos, Time};

use super::{
    super::{PageFlag, dirty::disk_wait},
    JOURNAL_AREA,
};
use crate::Mm;

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
    /// The last transaction that has brought it there.
    checkpoint: Option<u64>,
}

/// A transaction that is in the journal, for the blocks that it was the last to bring there (`t_checkpoint_list`).
#[derive(Clone, Debug)]
struct Checkpoint {
    transaction: u64,
    /// Blocks that it brought, some of which have gone or belong to a later one.
    blocks: VecDeque<u64>,
    /// Those that have not.
    left: u64,
}

/// The journal (`journal_t`).
#[derive(Clone, Debug)]
pub(super) struct Journal {
    heads: BTreeMap<u64, Head>,
    running: Vec<u64>,
    committing: VecDeque<u64>,
    /// Buffer heads that name those on their way.
    shadows: Vec<Object>,
    /// Transactions that are there, the oldest first: the last may be one on its way.
    checkpoints: VecDeque<Checkpoint>,
    /// Transactions so far (`j_transaction_sequence`).
    transactions: u64,
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
        Self {
            heads: BTreeMap::new(),
            running: Vec::new(),
            committing: VecDeque::new(),
            shadows: Vec::new(),
            checkpoints: VecDeque::new(),
            transactions: 0,
            written_by: None,
            due: None,
            is_asked: false,
            size,
            at: 1,
        }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.heads.values().map(|head| head.object).chain(self.shadows.iter().copied())
    }

    /// Blocks that a transaction has at most (`j_max_transaction_buffers`).
    fn most(&self) -> u64 {
        self.size / 4
    }

    /// A block belongs to a transaction no longer (`__jbd2_journal_remove_checkpoint`).
    fn leave_checkpoint(&mut self, transaction: Option<u64>) {
        let Some(transaction) = transaction else { return };
        let mut newest_first = self.checkpoints.iter_mut().rev();
        newest_first.find(|known| known.transaction == transaction).expect("a block of it is left").left -= 1;
    }

    /// The first block that belongs to the oldest transaction; those without any go.
    fn first_checkpointed(&mut self) -> Option<u64> {
        // Bound: each turn takes a block or a transaction.
        loop {
            let oldest = self.checkpoints.front_mut()?;
            let transaction = oldest.transaction;
            match oldest.blocks.front() {
                Some(block) if self.heads.get(block).is_some_and(|head| head.checkpoint == Some(transaction)) => {
                    return Some(*block);
                }
                Some(_) => {
                    oldest.blocks.pop_front();
                }
                None => {
                    self.checkpoints.pop_front();
                }
            }
        }
    }

    /// Is the running transaction to be committed now: asked for, or as large as one gets (`j_max_transaction_buffers`)?
    pub(super) fn is_wanted(&self) -> bool {
        !self.running.is_empty() && (self.is_asked || self.running.len() as u64 > self.most())
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
            let object = self.memory.alloc_object(cx, Cache::JournalHead)?;
            let head = Head { object, runs: false, commits: false, checkpoint: None };
            self.cache.ext4.journal.heads.insert(block, head);
        }
        self.change_known_block(cx, block);
        Ok(())
    }

    /// A block changes once more that has a journal head; others are left out.
    pub(super) fn change_known_block(&mut self, cx: &Cx, block: u64) {
        let journal = &mut self.cache.ext4.journal;
        let Some(head) = journal.heads.get_mut(&block).filter(|head| !head.runs) else { return };
        head.runs = true;
        journal.running.push(block);
        let is_first = journal.due.is_none();
        journal.due.get_or_insert(cx.now() + AGE);
        if is_first || journal.is_wanted() {
            self.tell_flusher();
        }
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
        // Each block is sent by a buffer head of its own, which is asked for until there is memory.
        while (self.cache.ext4.journal.shadows.len() as u64) < blocks {
            let shadow = self.memory.alloc_object(cx, Cache::BufferHead)?;
            self.cache.ext4.journal.shadows.push(shadow);
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
        journal.transactions += 1;
        let checkpoint = Checkpoint { transaction: journal.transactions, blocks: VecDeque::new(), left: 0 };
        journal.checkpoints.push_back(checkpoint);
        journal.at = (at + pages + 1) % size;
        (journal.written_by, journal.due, journal.is_asked) = (Some(written_by), None, false);
        self.tell_flusher();
        Ok(Step::Done(()))
    }

    /// Blocks that are in the journal are dirty from now on (`jbd2_journal_refile_buffer`); some of them, and says whether there
    /// may be more.
    fn finish_commit(&mut self, cx: &mut Cx) -> bool {
        let device = self.device();
        for shadow in std::mem::take(&mut self.cache.ext4.journal.shadows) {
            self.memory.free_object(cx, shadow);
        }
        // Bound: as many as a step takes.
        for _ in 0..AT_ONCE {
            let Some(block) = self.cache.ext4.journal.committing.pop_front() else {
                self.cache.ext4.journal.written_by = None;
                return false;
            };
            let journal = &mut self.cache.ext4.journal;
            let head = journal.heads.get_mut(&block).expect("a commit holds it");
            let (runs, before) = (head.runs, head.checkpoint);
            (head.commits, head.checkpoint) = (false, Some(journal.transactions));
            journal.leave_checkpoint(before);
            let checkpoint = journal.checkpoints.back_mut().expect("the commit has made it");
            checkpoint.blocks.push_back(block);
            checkpoint.left += 1;
            if !runs {
                let page = self.cache.page(device, block).expect("a journal head keeps it");
                self.set_page_dirty(cx, page);
            }
        }
        true
    }

    /// Journal heads go of blocks that are written where they belong, up to the first that is not: no transaction behind that
    /// one's is looked at (`__jbd2_journal_clean_checkpoint_list`, v5.10, v6.1).
    fn clean_checkpoints(&mut self, cx: &mut Cx) {
        // Bound: each turn releases a block.
        while let Some(block) = self.cache.ext4.journal.first_checkpointed() {
            if !self.release_block(cx, block) {
                break;
            }
        }
    }

    /// Blocks in the journal that have a head, where a shrinker asks (`jbd2_journal_shrink_count`, 5.14).
    pub(crate) fn count_checkpointed(&self) -> u64 {
        if !self.memory.variant().journal_shrinks {
            return 0;
        }
        self.cache.ext4.journal.checkpoints.iter().map(|checkpoint| checkpoint.left).sum()
    }

    /// How many of them a shrinker asks for at once: as many as a transaction has at most.
    pub(crate) fn checkpointed_batch(&self) -> u64 {
        self.cache.ext4.journal.most()
    }

    /// Lets go of so many blocks that are written, from the oldest transaction on (`jbd2_journal_shrink_scan`, 5.14).
    pub(crate) fn shrink_checkpointed(&mut self, cx: &mut Cx, most: u64) {
        let checkpoints = self.cache.ext4.journal.checkpoints.iter();
        let of =
            checkpoints.flat_map(|checkpoint| checkpoint.blocks.iter().map(|block| (checkpoint.transaction, *block)));
        let blocks: Vec<(u64, u64)> = of.collect();
        let mut freed = 0;
        // Bound: the blocks of the journal.
        for (transaction, block) in blocks {
            if freed == most {
                break;
            }
            let known = self.cache.ext4.journal.heads.get(&block);
            let is_its = known.is_some_and(|head| head.checkpoint == Some(transaction));
            freed += u64::from(is_its && self.release_block(cx, block));
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
        self.cache.ext4.journal.leave_checkpoint(head.checkpoint);
        self.memory.free_object(cx, head.object);
        true
    }

    /// The block that a page is, if the journal has a part in it.
    fn journaled(&self, head: Pfn) -> Option<u64> {
        let device = self.cache.ext4.device?;
        let Frame::File { segment, .. } = self.memory.frames.get(head) else { return None };
        let part = self.cache.segments.get(segment.0 as usize)?.as_ref()?;
        if part.inode != device {
            return None;
        }
        let (_, block) = self.cache.place_of(&self.memory.frames, head)?;
        self.cache.ext4.journal.heads.contains_key(&block).then_some(block)
    }

    /// Has the journal a reference to a page, so that it stays where it is?
    pub(crate) fn is_journaled(&self, head: Pfn) -> bool {
        self.journaled(head).is_some()
    }

    /// Has the journal a part in a page that is clean and wanted (`filemap_release_folio`)? Before 5.14 it is asked to let go of
    /// it (`blkdev_releasepage`); from then on the block device has no such operation ("ext4: remove bdev_try_to_free_page()
    /// callback", 5.14).
    pub(crate) fn is_kept_by_journal(&mut self, cx: &mut Cx, head: Pfn) -> bool {
        self.journaled(head)
            .is_some_and(|block| self.memory.variant().journal_shrinks || !self.release_block(cx, block))
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
