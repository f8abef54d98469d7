//! Linux: fs/jbd2: jbd2_journal_add_journal_head() and jbd2_journal_get_descriptor_buffer() in journal.c,
//! jbd2_journal_write_metadata_buffer() there, jbd2_journal_get_write_access() in transaction.c,
//! jbd2_journal_commit_transaction() in commit.c, __jbd2_journal_clean_checkpoint_list() and
//! jbd2_journal_shrink_checkpoint_list() in checkpoint.c; buffer_migrate_folio_norefs() in mm/migrate.c, drop_buffers() in
//! fs/buffer.c (v6.1.166); bdev_try_to_free_page() in fs/ext4/super.c, jbd2_journal_try_to_free_buffers() in transaction.c
//! (v5.10.265).
//! Differs: the flusher also commits (`jbd2` in the kernel); a block that changes while it is being committed is not copied
//! first; the journal never fills up, so that no task waits for a checkpoint (`log_do_checkpoint`); extents are not first
//! allocated as unwritten, so that the end of a write does not change the inode again; a shrinker looks at all transactions each
//! time (`j_shrink_transaction`).
//!
//! A block that a transaction changes has a journal head, which holds a reference to its buffer: neither reclaim nor migration
//! can take its page. After the commit the block is dirty, and the flusher writes it. The head of a written block is freed at a
//! later commit, once the pages of all older blocks are; before 5.14 also when reclaim wants the page, and since then when the
//! shrinker is asked for many objects.

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

/// Age at which a transaction is committed (`JBD2_DEFAULT_MAX_COMMIT_AGE`).
const AGE: Picos = Picos::from_secs(5);
/// Blocks that a descriptor block lists: tags of 16 bytes, without its header and tail (`journal_block_tag3_t`).
const TAGS: u64 = (Bytes::PAGE.0 - 12 - 16 - 4) / 16;
/// Blocks that one step makes dirty at most.
const AT_ONCE: usize = 32;

/// The journal's record of a block (`struct journal_head`): with neither flag the commit is over, and the block may still have to
/// be written.
#[derive(Clone, Copy, Debug)]
struct Head {
    object: Object,
    /// The running transaction has changed it.
    runs: bool,
    /// The block is being written to the journal.
    commits: bool,
    /// The last transaction that wrote the block to the journal.
    checkpoint: Option<u64>,
}

/// A transaction in the journal, with the blocks of which it holds the last version (`t_checkpoint_list`).
#[derive(Clone, Debug)]
struct Checkpoint {
    transaction: u64,
    /// Blocks of the transaction, some of which were released or belong to a later one.
    blocks: VecDeque<u64>,
    /// Number of blocks that still belong to it.
    left: u64,
}

/// The journal (`journal_t`).
#[derive(Clone, Debug)]
pub(super) struct Journal {
    heads: BTreeMap<u64, Head>,
    running: Vec<u64>,
    committing: VecDeque<u64>,
    /// Buffer heads by which blocks are being written to the journal.
    shadows: Vec<Object>,
    /// Transactions in the journal, the oldest first; the last may still be on its way there.
    checkpoints: VecDeque<Checkpoint>,
    /// Transactions so far (`j_transaction_sequence`).
    transactions: u64,
    /// When the commit under way will be in the journal, if there is one.
    written_by: Option<Time>,
    /// Latest time at which the running transaction is committed.
    due: Option<Time>,
    /// A task waits for the commit of the running transaction.
    is_asked: bool,
    /// Blocks of the journal, and the next block to write.
    size: u64,
    at: u64,
}

impl Journal {
    /// The journal of a file system of this many blocks (`ext2fs_default_journal_size`, e2fsprogs 1.47).
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

    /// Most blocks of a transaction (`j_max_transaction_buffers`).
    fn most(&self) -> u64 {
        self.size / 4
    }

    /// Takes a block out of its transaction's checkpoint list (`__jbd2_journal_remove_checkpoint`).
    fn leave_checkpoint(&mut self, transaction: Option<u64>) {
        let Some(transaction) = transaction else { return };
        let mut newest_first = self.checkpoints.iter_mut().rev();
        newest_first.find(|known| known.transaction == transaction).expect("a block of it is left").left -= 1;
    }

    /// The first block of the oldest transaction; transactions without blocks are dropped.
    fn first_checkpointed(&mut self) -> Option<u64> {
        // Bound: each turn drops a block or a transaction.
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

    /// Whether the running transaction is to be committed now: a task asked for it, or it is too large
    /// (`j_max_transaction_buffers`).
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
    /// Adds blocks to the running transaction: brings each into memory and gives it a journal head.
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

    /// Adds a block to the running transaction if it has a journal head.
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

    /// Commits the running transaction: sends its blocks to the journal, and the commit record too if `is_ended`. Done when
    /// everything is sent, which is after the commit before has ended.
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
        // Each block is sent by a buffer head of its own, whose allocation is repeated until there is memory.
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

    /// Marks some blocks dirty that are in the journal now (`jbd2_journal_refile_buffer`); returns whether there may be more.
    fn finish_commit(&mut self, cx: &mut Cx) -> bool {
        let device = self.device();
        for shadow in std::mem::take(&mut self.cache.ext4.journal.shadows) {
            self.memory.free_object(cx, shadow);
        }
        // Bound: the blocks that one step handles.
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

    /// Frees journal heads of blocks that were written back, up to the first block that was not: later transactions are not
    /// looked at (`__jbd2_journal_clean_checkpoint_list`, v5.10, v6.1).
    fn clean_checkpoints(&mut self, cx: &mut Cx) {
        // Bound: each turn releases a block.
        while let Some(block) = self.cache.ext4.journal.first_checkpointed() {
            if !self.release_block(cx, block) {
                break;
            }
        }
    }

    /// Blocks in the journal with a head, as the shrinker counts them (`jbd2_journal_shrink_count`, 5.14).
    pub(crate) fn count_checkpointed(&self) -> u64 {
        if !self.memory.variant().journal_shrinks {
            return 0;
        }
        self.cache.ext4.journal.checkpoints.iter().map(|checkpoint| checkpoint.left).sum()
    }

    /// Objects that the shrinker is asked for at a time: the most blocks of a transaction.
    pub(crate) fn checkpointed_batch(&self) -> u64 {
        self.cache.ext4.journal.most()
    }

    /// Releases up to `most` written blocks, from the oldest transaction on (`jbd2_journal_shrink_scan`, 5.14).
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

    /// Releases a block from the journal, if it is written; returns whether the journal does not hold it any more.
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

    /// The block of a page, if the journal holds it.
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

    /// Whether the journal holds a reference to a page, so that it cannot be moved.
    pub(crate) fn is_journaled(&self, head: Pfn) -> bool {
        self.journaled(head).is_some()
    }

    /// Whether the journal holds a clean page that reclaim wants (`filemap_release_folio`). Before 5.14 it is asked to release
    /// the page (`blkdev_releasepage`); since then the block device has no such operation ("ext4: remove bdev_try_to_free_page()
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

    /// Whether a commit is under way, or is to begin at once.
    pub(in super::super) fn is_committing(&self) -> bool {
        self.cache.ext4.journal.written_by.is_some() || self.cache.ext4.journal.is_wanted()
    }

    /// Takes a step of the journal; none if there is nothing to do now.
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
            // Steps of kernel threads do not ask the slow path.
            Err(_) => Step::Block(disk_wait(now + super::super::xfs::RETRY)),
        })
    }
}
