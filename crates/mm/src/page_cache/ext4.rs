//! Linux: ext4_es_insert_delayed_block() in fs/ext4/extents_status.c, ext4_file_open() in fs/ext4/file.c,
//! ext4_inode_attach_jinode() in fs/ext4/inode.c, jbd2_journal_init_inode_cache() in fs/jbd2/journal.c (v6.1; v5.10 has the
//! same).
//! Differs: the blocks of a file are one extent; those of a file that is only read are not kept; extents go with their inode, and
//! are not given back before (`ext4_es_scan`); they are asked for like other objects, and not by those who cannot wait.
//!
//! A file on ext4 is more than its pages, its inode and its name: what the journal knows of it lies in unmovable slabs and stays
//! as long as the inode, of every file that was opened to be written; where its blocks are is kept in reclaimable ones.

use super::InodeId;
use crate::{Mm, alloc::NoMemory, cx::Cx, slab::Cache};

impl Mm {
    /// A file gets its first block, or the promise of one: the extent that says so (`__es_insert_extent`).
    pub(super) fn make_extent(&mut self, cx: &mut Cx, id: InodeId) -> Result<(), NoMemory> {
        let inode = self.cache.inode(id);
        if inode.extent.is_none() && inode.object.is_some() {
            let extent = self.alloc_object(cx, Cache::ExtentStatus)?;
            self.cache.inode_mut(id).extent = Some(extent);
        }
        Ok(())
    }
}
