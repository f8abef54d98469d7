//! Linux: mm/filemap.c, mm/page-writeback.c, mm/workingset.c, fs/ext4, fs/xfs and block/blk-mq.c (v6.1).
//! Differs: one file system, on one disk.
//!
//! Floor 3: files and the disk under them. Files here use floors 0 to 2 and the rooms `folio` and `swap`. Begin with
//! `page_cache.rs`: reads and writes.

pub mod disk;
pub mod page_cache;
pub(crate) mod workingset;
