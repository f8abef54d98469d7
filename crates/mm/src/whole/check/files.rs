//! Linux: none; `filemap_unaccount_folio` and `__free_pages_ok` complain about single pages.
//! Differs: compares every page of every file with its frame, and every frame with its file.

use memory::{
    frame::{Frame, FrameFlag},
    pageblock::ZoneIndex,
};
use units::Pfn;

use super::{Broken, ensure};
use crate::{
    Mm,
    file::page_cache::{FileCounts, PageFlag},
};

/// Checks that every page of a file has a frame that names it, that every frame of a file is one of its pages, unless it
/// waits to be freed, and that the counts agree.
pub fn walk_files(mm: &Mm) -> Result<(), Broken> {
    let mut counts = vec![FileCounts::default(); mm.memory.zones().len()];
    let mut pages = 0_u64;
    for (inode, index, head) in mm.cache.pages() {
        let at = mm.cache.place_of(&mm.memory.frames, head);
        ensure(at == Some((inode, index)), Some(head), || format!("page {index} of {inode:?}, but it is {at:?}"))?;
        let here = &mut counts[mm.memory.frames.blocks.zone(head).expect("a page is in a zone").position()];
        let [dirty, writeback] = [PageFlag::Dirty, PageFlag::Writeback].map(|flag| mm.cache.has((inode, index), flag));
        here.pages += 1;
        here.dirty += u64::from(dirty);
        here.writeback += u64::from(writeback);
        here.mapped += u64::from(mm.memory.frames.map_count(head) > 0);
        pages += 1;
        ensure(!mm.memory.frames.has(head, FrameFlag::Dropped), Some(head), || {
            "given up, but in the cache".to_owned()
        })?;
        let is_read = mm.cache.has((inode, index), PageFlag::Uptodate);
        ensure(is_read || !dirty, Some(head), || "dirty, but it does not hold what it should".to_owned())?;
    }
    for (at, found) in counts.iter().enumerate() {
        let counted = mm.cache.counts(ZoneIndex::at(at));
        ensure(counted == *found, None, || format!("zone {at} counts {counted:?}, not {found:?}"))?;
    }
    let is_waiting = |pfn: &Pfn| {
        matches!(mm.memory.frames.get(*pfn), Frame::File { .. }) && mm.memory.frames.has(*pfn, FrameFlag::Dropped)
    };
    let mut heads = 0;
    for pfn in
        (0..mm.memory.frames.len()).map(Pfn).filter(|pfn| matches!(mm.memory.frames.get(*pfn), Frame::File { .. }))
    {
        let is_cached = mm.cache.place_of(&mm.memory.frames, pfn).is_some();
        ensure(is_cached || is_waiting(&pfn), Some(pfn), || "of a file, which does not have it".to_owned())?;
        heads += u64::from(is_cached);
    }
    ensure(heads == pages, None, || format!("{pages} pages of files, but {heads} frames of them"))?;
    mm.cache.check().map_or(Ok(()), |what| super::broken(None, || what))
}
