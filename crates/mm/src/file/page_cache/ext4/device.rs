//! Linux: __getblk_gfp(), grow_dev_page() and touch_buffer() in fs/buffer.c, def_blk_aops in block/fops.c; sb_getblk() in
//! include/linux/buffer_head.h; __ext4_get_inode_loc() in fs/ext4/inode.c, ext4_sb_breadahead_unmovable() in fs/ext4/super.c;
//! ext4_mb_load_buddy_gfp() in fs/ext4/mballoc.c (v6.1.166; v5.10.265 has the same).
//! Differs: a block that cannot be read is read again; a block whose inodes were all freed is read too; CPUs keep no
//! references to the buffers that they used last (`bh_lrus`), which migration would drop and reclaim would not.
//!
//! A block of metadata is a page of the block device, which is in the page cache like a file: on the LRU lists, with a buffer
//! head, and movable, but never in ZONE_MOVABLE (`GFP_USER | __GFP_MOVABLE`). Blocks of an inode table that are read ahead are
//! allocated as unmovable; migration moves them like the others. The lists of free blocks are in pages without buffers, also
//! allocated as unmovable (`GFP_NOFS`).

use memory::{alloc::NoMemory, cx::Cx, frame::FrameFlag, step::Step};
use rules::gfp::{AllocRequest, Mobility};
use units::{Order, Time};

use super::super::{Inode, InodeId, PageFlag, dirty::disk_wait, inode::Extents};
use crate::Mm;

impl Mm {
    /// Makes a file without a name, whose blocks are the disk's.
    fn own_file(&mut self) -> InodeId {
        self.cache.add_inode(Inode { has_name: true, blocks: Extents::One(0, u64::MAX), ..Inode::default() })
    }

    /// The block device as a file, which is made at the first call.
    pub(super) fn device(&mut self) -> InodeId {
        if let Some(id) = self.cache.ext4.device {
            return id;
        }
        let id = self.own_file();
        *self.cache.ext4.device.insert(id)
    }

    /// Brings a block of the device into memory; it is read if the disk has it and `matters` is true. Done when it is there.
    pub(super) fn get_block(&mut self, cx: &mut Cx, block: u64, matters: bool) -> Result<Step<()>, NoMemory> {
        self.complete_disk_io(cx);
        let at = (self.device(), block);
        let request =
            AllocRequest { mobility: Mobility::Movable, ..AllocRequest::gfp_kernel(self.memory.node_of_cpu(cx.cpu())) };
        self.find_or_create(cx, at, &request)?;
        let head = self.cache.page(at.0, at.1).expect("found, or made");
        if let Some(wait) = self.wait_for_page(at, head) {
            return Ok(Step::Block(wait));
        }
        self.make_buffer(cx, at)?;
        if self.cache.has(at, PageFlag::Uptodate) {
            return Ok(Step::Done(()));
        }
        if self.cache.ext4.known.insert(block) || !matters {
            self.memory.clear(cx, head, Order::BASE);
            self.cache.mark(at, PageFlag::Uptodate, true);
            return Ok(Step::Done(()));
        }
        Ok(Step::Block(disk_wait(self.read_block(cx, at)?)))
    }

    /// Reads a block, and with a block of an inode table its neighbours (`ext4_sb_breadahead_unmovable`). Returns when it will
    /// be there.
    fn read_block(&mut self, cx: &mut Cx, (id, block): (InodeId, u64)) -> Result<Time, NoMemory> {
        let around = self.cache.ext4.read_around(block).unwrap_or(block..=block);
        let request = AllocRequest::gfp_kernel(self.memory.node_of_cpu(cx.cpu()));
        for other in around.clone().filter(|other| *other != block) {
            self.find_or_create(cx, (id, other), &request)?;
            self.make_buffer(cx, (id, other))?;
        }
        let mut unread = Vec::new();
        for at in around.map(|at| (id, at)) {
            let head = self.cache.page(id, at.1).expect("found, or made");
            if !self.cache.has(at, PageFlag::Uptodate) && self.try_lock_folio(head) {
                self.fill_from_disk(at, head);
                unread.push(at.1);
            }
        }
        let mut there = cx.now();
        // The queue is plugged: neighbouring blocks become one request.
        for run in unread.chunk_by(|one, next| one + 1 == *next) {
            let pages = u32::try_from(run.len()).expect("few blocks");
            let done = self.submit_request(cx, id, (run[0], pages), false);
            if run.contains(&block) {
                there = done;
            }
        }
        Ok(there)
    }

    /// Brings the list of a group's free blocks into memory (`ext4_mb_load_buddy`): its bitmap with promised blocks, and the
    /// buddies.
    pub(super) fn load_buddy(&mut self, cx: &mut Cx, group: u64) -> Result<(), NoMemory> {
        let id = if let Some(id) = self.cache.ext4.buddies {
            id
        } else {
            let id = self.own_file();
            *self.cache.ext4.buddies.insert(id)
        };
        let request = AllocRequest::gfp_kernel(self.memory.node_of_cpu(cx.cpu()));
        for at in [(id, 2 * group), (id, 2 * group + 1)] {
            self.find_or_create(cx, at, &request)?;
            self.cache.mark(at, PageFlag::Uptodate, true);
        }
        Ok(())
    }

    /// Finds or makes the page at an index, which counts as used (`find_or_create_page`).
    fn find_or_create(&mut self, cx: &mut Cx, at: (InodeId, u64), request: &AllocRequest) -> Result<(), NoMemory> {
        if let Some(head) = self.cache.page(at.0, at.1) {
            self.mark_page_accessed(cx, head);
            return Ok(());
        }
        self.make_place(cx, at.0, at.1)?;
        let head = self.memory.alloc(cx, request)?;
        debug_assert_eq!(request.order, Order::BASE);
        self.add_page(cx, at, head, true);
        self.memory.frames.mark(head, FrameFlag::Referenced, true);
        self.unlock_folio(cx, head);
        // The caller uses the block once more before it drops its reference.
        self.mark_page_accessed(cx, head);
        Ok(())
    }
}
