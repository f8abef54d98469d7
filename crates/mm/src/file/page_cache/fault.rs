//! Linux: do_read_fault(), do_cow_fault(), do_shared_fault() and do_wp_page() in mm/memory.c, filemap_fault() and
//! filemap_map_pages() in mm/filemap.c, ext4_page_mkwrite() (v6.1).
//! Differs: a private copy is allocated once the page is there; a fault that waits for the disk releases the mmap lock and
//! begins again.

use memory::{alloc::NoMemory, cx::Cx, frame::FrameFlag, primitive, step::Wait};
use rules::gfp::AllocRequest;
use units::{Order, Pfn, Vpn};

use super::{InodeId, PageFlag, read::Window};
use crate::{
    Mm,
    fault::{Access, FaultDone},
    folio::pte::Pte,
    space::{
        address_space::AddressSpace,
        page_table::TableId,
        vma::{FileMap, Vma},
    },
};

/// Most pages in the cache that a fault maps at once (`fault_around_bytes`: 64 KiB).
const AROUND: u64 = 16;

/// A fault in a file mapping, once that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileFault {
    /// Pages that are being read for the fault.
    window: Option<Window>,
    /// Read-ahead was done, or was not possible: the page is read alone.
    is_alone: bool,
    /// The fault has waited for the disk.
    is_major: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileWent {
    /// There is no memory, yet or at all.
    Without(NoMemory),
    /// The fault begins again after this.
    Waits(Wait),
    Done(FaultDone),
}

/// The page of a fault, and its place in the tables and in the file.
#[derive(Clone, Copy, Debug)]
struct At {
    table: TableId,
    vpn: Vpn,
    map: FileMap,
    index: u64,
}

impl FileFault {
    /// Takes a step. `table` is the page's table, in which its entry is empty or maps a write-protected page of the file.
    pub(crate) fn step(
        &mut self,
        mm: &mut Mm,
        space: &mut AddressSpace,
        cx: &mut Cx,
        (table, vma, vpn, access): (TableId, Vma, Vpn, Access),
    ) -> FileWent {
        mm.complete_disk_io(cx);
        let map = vma.file.expect("the caller looked");
        let at = At { table, vpn, map, index: map.index(vpn) };
        let was = space.tables.pte(table, vpn);
        if was.is_present() {
            return if map.is_shared {
                Self::make_writable(mm, space, cx, at, was.pfn())
            } else {
                copy(mm, space, cx, at, was.pfn())
            };
        }
        if at.index >= mm.cache.inode(map.inode).pages() {
            return FileWent::Done(FaultDone::BusError);
        }
        if access == Access::Read && self.window.is_none() && !self.is_alone && map_around(mm, space, cx, &vma, at) {
            return FileWent::Done(FaultDone::Handled);
        }
        let head = match self.find(mm, cx, at) {
            Ok(head) => head,
            Err(went) => return went,
        };
        match access {
            Access::Read => {
                map_page(mm, space, cx, at, head, false);
                FileWent::Done(FaultDone::Handled)
            }
            Access::Write if map.is_shared => Self::make_writable(mm, space, cx, at, head),
            Access::Write => copy(mm, space, cx, at, head),
        }
    }

    /// Finds the page, up to date and unlocked (`filemap_fault`).
    fn find(&mut self, mm: &mut Mm, cx: &mut Cx, at: At) -> Result<Pfn, FileWent> {
        let At { map: FileMap { inode, file, .. }, index, .. } = at;
        if self.window.is_none() {
            let is_there = mm.cache.page(inode, index).is_some();
            self.window = if is_there { mm.read_behind(file, inode, index) } else { self.read_around(mm, cx, at) };
        }
        if let Some(window) = &mut self.window
            && let Err(no) = mm.read_window(cx, inode, window)
        {
            return Err(FileWent::Without(no));
        }
        let wait = |mm: &mut Mm, head| mm.wait_for_page((inode, index), head);
        match mm.cache.page(inode, index) {
            Some(head) => {
                if let Some(wait) = wait(mm, head) {
                    return Err(FileWent::Waits(wait));
                }
                if mm.cache.has((inode, index), PageFlag::Uptodate) {
                    return Ok(head);
                }
                if std::mem::replace(&mut self.is_alone, true) {
                    // The disk failed to read it, twice.
                    return Err(FileWent::Done(FaultDone::BusError));
                }
            }
            None => self.is_alone = true,
        }
        mm.read_one(cx, inode, index).map_err(FileWent::Without)?;
        let head = mm.cache.page(inode, index).expect("it was just added");
        match wait(mm, head) {
            Some(wait) => Err(FileWent::Waits(wait)),
            None if mm.cache.has((inode, index), PageFlag::Uptodate) => Ok(head),
            // A disk that is memory has failed already.
            None => Err(FileWent::Done(FaultDone::BusError)),
        }
    }

    fn read_around(&mut self, mm: &mut Mm, cx: &mut Cx, at: At) -> Option<Window> {
        if !std::mem::replace(&mut self.is_major, true) {
            cx.major_fault();
        }
        mm.read_ahead_of(at.map.file).around(at.index)
    }

    /// Makes a page of a shared mapping writable: first the page is marked dirty and gets a block (`do_page_mkwrite`,
    /// `fault_dirty_shared_page`).
    fn make_writable(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, at: At, head: Pfn) -> FileWent {
        let place = (at.map.inode, at.index);
        if let Some(wait) = mm.wait_for_page(place, head) {
            return FileWent::Waits(wait);
        }
        if let Err(no) = mm.make_buffer(cx, place) {
            return FileWent::Without(no);
        }
        if !mm.cache.has(place, PageFlag::Dirty) && !mm.reserve_block(place.0, place.1) {
            return FileWent::Done(FaultDone::BusError);
        }
        primitive::file_operation(cx);
        mm.set_page_dirty(cx, head);
        if space.tables.pte(at.table, at.vpn).is_present() {
            let was = space.tables.pte(at.table, at.vpn);
            space.tables.set_pte(cx, at.table, at.vpn, was.rewritten());
        } else {
            map_page(mm, space, cx, at, head, true);
        }
        match mm.balance_dirty(cx) {
            Some(wait) => FileWent::Waits(wait),
            None => FileWent::Done(FaultDone::Handled),
        }
    }
}

/// Does the first store to a page of a private file mapping that is ready ([`Mm::ready_page`]): the work of [`FileFault`], in
/// the same order.
#[inline]
pub(crate) fn copy_at_once(
    mm: &mut Mm,
    space: &mut AddressSpace,
    cx: &mut Cx,
    (table, vpn, map): (TableId, Vpn, FileMap),
    page: Pfn,
) -> Result<(), NoMemory> {
    mm.complete_disk_io(cx);
    let request = AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu()));
    let frame = mm.memory.alloc(cx, &request)?;
    mm.read_ahead_of(map.file).hit();
    install_copy(mm, space, cx, At { table, vpn, map, index: map.index(vpn) }, (page, frame));
    Ok(())
}

/// Maps the pages around a page that are in the cache (`do_fault_around`); returns whether the page itself was among them.
fn map_around(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, vma: &Vma, at: At) -> bool {
    let first = Vpn(at.vpn.0 & !(AROUND - 1)).max(vma.start);
    let end = Vpn((at.vpn.0 & !(AROUND - 1)) + AROUND).min(vma.end());
    let size = mm.cache.inode(at.map.inode).pages();
    for vpn in (first.0..end.0).map(Vpn) {
        let index = at.map.index(vpn);
        if index >= size {
            break;
        }
        let place = (at.map.inode, index);
        let Some(head) = mm.cache.page(place.0, index) else { continue };
        let is_ready = mm.cache.has(place, PageFlag::Uptodate) && !mm.cache.has(place, PageFlag::ReadAhead);
        if !is_ready || mm.memory.frames.has(head, FrameFlag::Locked) {
            continue;
        }
        mm.read_ahead_of(at.map.file).hit();
        if space.tables.pte(at.table, vpn) == Pte::NONE {
            map_page(mm, space, cx, At { vpn, index, ..at }, head, false);
        }
    }
    space.tables.pte(at.table, at.vpn).is_present()
}

fn map_page(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, at: At, head: Pfn, stores: bool) {
    mm.map_file_page(head);
    primitive::count_mappings(cx, 1);
    let pte = if stores { Pte::written(head) } else { Pte::read(head) };
    space.tables.set_pte(cx, at.table, at.vpn, pte);
    space.rss += 1;
}

/// Copies a page for a store to a private mapping: the copy is anonymous memory.
fn copy(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, at: At, from: Pfn) -> FileWent {
    space.vmas.prepare_anon(at.vpn);
    let request = AllocRequest::gfp_highuser_movable(mm.memory.node_of_cpu(cx.cpu()));
    match mm.memory.alloc(cx, &request) {
        Ok(frame) => {
            install_copy(mm, space, cx, at, (from, frame));
            FileWent::Done(FaultDone::Handled)
        }
        Err(no) => FileWent::Without(no),
    }
}

#[inline]
fn install_copy(mm: &mut Mm, space: &mut AddressSpace, cx: &mut Cx, at: At, (from, frame): (Pfn, Pfn)) {
    mm.memory.copy(cx, from, frame, Order::BASE);
    mm.map_new_folio(cx, frame, space.family, at.vpn, Order::BASE);
    if space.tables.pte(at.table, at.vpn).is_present() {
        primitive::flush_tlb_range(cx, 1);
        primitive::count_mappings(cx, 1);
        mm.unmap_file_page(from);
        space.rss -= 1;
    }
    space.tables.set_pte(cx, at.table, at.vpn, Pte::written(frame));
    space.rss += 1;
}

impl Mm {
    /// The file's page at a place of a mapping, if it is in the cache, up to date, unlocked and without a read-ahead mark.
    #[inline]
    pub(crate) fn ready_page(&self, map: FileMap, vpn: Vpn) -> Option<Pfn> {
        let page = self.cache.ready_page(map.inode, map.index(vpn))?;
        (!self.memory.frames.has(page, FrameFlag::Locked)).then_some(page)
    }

    /// The pages to read ahead after a hit on a page with a read-ahead mark (`do_async_mmap_readahead`).
    fn read_behind(&mut self, file: u32, inode: InodeId, index: u64) -> Option<Window> {
        self.read_ahead_of(file).hit();
        if !self.cache.has((inode, index), PageFlag::ReadAhead) {
            return None;
        }
        self.cache.mark((inode, index), PageFlag::ReadAhead, false);
        let miss = self.next_miss(inode, index);
        self.read_ahead_of(file).ahead(index, || miss)
    }
}
