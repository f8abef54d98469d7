//! Linux: arch/x86/mm/fault.c, arch/x86/mm/tlb.c (v6.1).
//! Differs: TLB flushes are only priced.
//!
//! The operations that faults and system calls on address spaces are made of. Each charges its own price.

use units::{Bytes, Order, Picos, Vpn};

use crate::{
    cost::{Cause, Work},
    cx::Cx,
    frame::SpaceId,
};

/// Most pages that are flushed from the TLB one by one; for more pages the whole TLB is flushed.
// tlb_single_page_flush_ceiling, arch/x86/mm/tlb.c (v3.17 and later).
const FLUSH_ONE_BY_ONE_MAX: u64 = 33;

/// Entering the kernel for an access where nothing is mapped, and leaving it.
pub fn bad_access(cx: &mut Cx) {
    cx.work(Work::Trap, 1);
}

/// Enters the kernel for a page fault in a mapping, and leaves it. Only such faults are counted (`handle_mm_fault`).
#[inline]
pub fn page_fault(cx: &mut Cx, vpn: Vpn) {
    cx.fault(vpn);
    cx.work(Work::Trap, 1);
}

/// Charges `n` page faults, one after the other.
pub fn page_faults(cx: &mut Cx, vpn: Vpn, n: u64) {
    cx.faults_from(vpn, n);
    cx.work(Work::Trap, n);
}

/// Charges `n` loads or stores of user code that find their page mapped.
#[inline]
pub fn user_touch(cx: &mut Cx, n: u64) {
    cx.work(Work::UserTouch, n);
}

/// Entering a fault once more after it has waited for a device.
pub fn retry_fault(cx: &mut Cx, vpn: Vpn) {
    cx.fault(vpn);
}

/// Sending a page to a swap device, or having one read, and the interrupt at its end.
pub fn swap_io(cx: &mut Cx) {
    cx.work(Work::SwapIo, 1);
}

/// Writes `n` mapped pages in user code, every byte of each.
#[inline]
pub fn user_fill(cx: &mut Cx, n: u64) {
    cx.work(Work::UserFill, n);
}

/// Changing what a file knows of `n` of its pages.
pub fn file_pages(cx: &mut Cx, n: u64) {
    cx.work(Work::FilePage, n);
}

/// Writing a page with write(2), once it is found.
pub fn write_file_page(cx: &mut Cx, len: Bytes) {
    cx.work(Work::FileWrite, 1);
    cx.work(Work::FileCopy, len.0.div_ceil(512));
}

/// `n` write(2) in a row to a page that is there, each of `len` bytes.
pub fn write_again(cx: &mut Cx, len: Bytes, n: u64) {
    cx.work(Work::SystemCall, n);
    cx.work(Work::FileWrite, n);
    cx.work(Work::FileCopy, len.0.div_ceil(512) * n);
}

/// The price of one such write.
pub fn write_again_price(cx: &Cx, len: Bytes) -> Picos {
    let copy = Picos(cx.price(Work::FileCopy).0 * len.0.div_ceil(512));
    cx.price(Work::SystemCall) + cx.price(Work::FileWrite) + copy
}

/// Reading bytes of one page of a file by read(2), beside finding that page.
pub fn read_file(cx: &mut Cx, len: Bytes) {
    cx.work(Work::FileGet, 1);
    cx.work(Work::FileCopy, len.0.div_ceil(512));
}

/// Having a page read ahead, once it has its place.
pub fn read_file_page(cx: &mut Cx) {
    cx.work(Work::FileRead, 1);
}

/// Entering the allocator's slow path, or going round in it.
pub fn enter_slow_path(cx: &mut Cx) {
    cx.work(Work::AllocSlow, 1);
}

/// Charges `n` accesses of a guest to memory that its host does not back, without the host's clearing.
pub(crate) fn host_faults(cx: &mut Cx, n: u64) {
    cx.work(Work::HostExit, n);
    cx.because(Cause::Host, |cx| cx.work(Work::Trap, n));
}

/// From telling the host of `n` free blocks to hearing that it is done with them: nobody's work in the guest.
pub fn host_report_takes(cx: &Cx, n: u64) -> Picos {
    cx.price(Work::HostReport) + Picos(cx.price(Work::HostDiscard).0 * n)
}

/// Reading the records of `n` blocks of a free list.
pub fn read_free_blocks(cx: &mut Cx, n: u64) {
    cx.because(Cause::Host, |cx| cx.work(Work::FarFrame, n));
}

/// Copying `n` frames.
pub fn copy_frames(cx: &mut Cx, n: u64) {
    cx.work(Work::CopyFrame, n);
}

/// Changing a name, or what the file system knows of a file (`ext4_create`, `ext4_page_mkwrite` and so on).
pub fn file_operation(cx: &mut Cx) {
    cx.work(Work::FileOperation, 1);
}

/// A file's turn to be written back: its blocks are allocated, and its inode is written (`ext4_writepages`, `ext4_write_inode`).
pub fn file_writeback(cx: &mut Cx) {
    cx.work(Work::FileWriteback, 1);
}

/// A page of a file that is written back (`mpage_submit_folio`, `ext4_finish_bio`).
pub fn write_page_back(cx: &mut Cx) {
    cx.work(Work::FileWritepage, 1);
}

/// Sending a request to a disk, and its interrupt.
pub fn disk_io(cx: &mut Cx) {
    cx.work(Work::DiskIo, 1);
}

/// Looking at `n` folios that were taken off their LRU list.
pub fn scan_folios(cx: &mut Cx, n: u64) {
    cx.work(Work::FolioScan, n);
}

/// Finding the entries that map a folio which is to be moved, or was, or which is to go (`rmap_walk`), `n` times.
pub fn walk_rmap(cx: &mut Cx, n: u64) {
    cx.work(Work::RmapWalk, n);
}

/// Making a frame what another was (`migrate_folio_unmap`, `move_to_new_folio`), but for copying, lists and entries.
pub fn migrate_folio(cx: &mut Cx) {
    cx.work(Work::MigrateFolio, 1);
}

/// Making, changing or removing a VMA.
pub fn update_vma(cx: &mut Cx) {
    cx.work(Work::VmaUpdate, 1);
}

/// Flushing all of an address space from the TLBs of the CPUs that run it (`flush_tlb_mm`).
pub fn flush_tlb(cx: &mut Cx) {
    cx.flush_tlb(None);
}

/// Flushing translations, of base pages or of huge pages, from the TLBs of these CPUs (`flush_tlb_mm_range`).
pub fn flush_tlb_range(cx: &mut Cx, pages: u64) {
    cx.flush_tlb(if pages <= FLUSH_ONE_BY_ONE_MAX { u32::try_from(pages).ok() } else { None });
}

/// Writing `n` page-table entries.
#[inline]
pub fn write_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteWrite, n);
}

/// Looks at `n` frames in search of pages to move, or of free frames.
#[inline]
pub fn scan_frames(cx: &mut Cx, n: u64) {
    cx.work(Work::ScanFrame, n);
}

/// A round of khugepaged that it does not sleep after: `khugepaged_mm_lock`, for the round that ends and for the next.
pub fn khugepaged_round(cx: &mut Cx) {
    cx.work(Work::LockPair, 2);
}

/// Looks at a pageblock in search of pages to move, or of free frames: its type, its skip mark, and `frames` of its frames to see
/// which zone they are in.
#[inline]
pub fn scan_block(cx: &mut Cx, frames: u64) {
    cx.work(Work::ScanBlock, 1);
    cx.work(Work::FarFrame, frames);
}

/// Flushing a base page of some address space from the TLBs of the CPUs that run it (`flush_tlb_page`).
pub fn flush_tlb_page(cx: &mut Cx, space: SpaceId, pages: u32) {
    cx.flush_tlb_of(space, Some(pages));
}

/// When TLBs forget a page-table entry that was cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbFlush {
    /// Before anything else is done (`ptep_clear_flush`).
    AtOnce,
    /// Later, by the caller, for all entries that it has cleared.
    Later,
}

/// The flush, if any, after an entry of some address space was taken away.
pub fn flush_entry(cx: &mut Cx, space: SpaceId, when: TlbFlush) {
    if when == TlbFlush::AtOnce {
        flush_tlb_page(cx, space, 1);
    }
}

/// Flushing a huge page's range of some address space from the TLBs of the CPUs that run it.
pub fn flush_tlb_huge(cx: &mut Cx, space: SpaceId) {
    // More than are flushed one by one.
    cx.flush_tlb_of(space, None);
}

/// Stores `n` page-table entries in a table that no CPU walks yet: eight to a cache line, without locking.
#[inline]
pub fn fill_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteStore, n);
}

/// Counts `n` mappings of folios, added or removed (`folio_add_new_anon_rmap`, `folio_remove_rmap_pte` and so on).
#[inline]
pub fn count_mappings(cx: &mut Cx, n: u64) {
    cx.work(Work::Rmap, n);
}

/// Taking away `n` page-table entries on a walk over a range (`zap_pte_range`).
#[inline]
pub fn clear_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteClear, n);
}

/// Turns a folio back into a block of frames: each tail frame is written.
#[inline]
pub fn clear_tails(cx: &mut Cx, order: Order) {
    cx.work(Work::TailFree, u64::from(order.frames() - 1));
}

/// Counts the mappings of a folio, frame by frame.
#[inline]
pub fn read_frames(cx: &mut Cx, order: Order) {
    cx.work(Work::TailRead, u64::from(order.frames()));
}

/// Making a folio of a block of frames: each tail frame is written.
#[inline]
pub fn write_tails(cx: &mut Cx, order: Order) {
    cx.work(Work::TailFrame, u64::from(order.frames() - 1));
}

/// Gives back the cgroup's charge for one page, or for a batch of folios (`mem_cgroup_uncharge_folios`, v6.9).
#[inline]
pub fn uncharge(cx: &mut Cx) {
    cx.work(Work::Uncharge, 1);
}

/// Reading `n` page-table entries on a walk over a range.
#[inline]
pub fn scan_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteScan, n);
}

/// Reading the records of `n` frames that were found in page tables, on the same walk.
pub fn scan_mapped_frames(cx: &mut Cx, n: u64) {
    // No part of compaction, though the price is the same.
    cx.because(Cause::PageTable, |cx| cx.work(Work::ScanFrame, n));
}
