//! Linux: arch/x86/mm/fault.c, include/linux/highmem.h (v6.1).
//! Differs: nothing is cleared or copied but the words that tests keep; it is priced.
//!
//! The operations that faults and system calls on address spaces are made of. They charge themselves.

use units::{Order, Pfn, Vpn};

use crate::{
    cost::{Cx, Work},
    frame::FrameTable,
};

/// Entering the kernel for an access where nothing is mapped, and leaving it.
pub(crate) fn bad_access(cx: &mut Cx) {
    cx.work(Work::Trap, 1);
}

/// Entering the kernel for a page fault in a mapping, and leaving it. Only these are counted (`handle_mm_fault`).
#[inline]
pub(crate) fn page_fault(cx: &mut Cx, vpn: Vpn) {
    cx.fault(vpn);
    cx.work(Work::Trap, 1);
}

/// `n` loads or stores of user code that find their page mapped.
#[inline]
pub(crate) fn user_touch(cx: &mut Cx, n: u64) {
    cx.work(Work::UserTouch, n);
}

/// Clearing a run of frames.
#[inline]
pub(crate) fn clear(frames: &mut FrameTable, cx: &mut Cx, pfn: Pfn, order: Order) {
    frames.clear_contents(pfn, order);
    cx.work(Work::ClearFrame, u64::from(order.frames()));
}

/// Copying a run of frames to another.
pub(crate) fn copy(frames: &mut FrameTable, cx: &mut Cx, from: Pfn, to: Pfn, order: Order) {
    frames.copy_contents(from, to, order);
    cx.work(Work::CopyFrame, u64::from(order.frames()));
}

/// Making, changing or removing a VMA.
pub(crate) fn update_vma(cx: &mut Cx) {
    cx.work(Work::VmaUpdate, 1);
}

/// Flushing this CPU's TLB, whole or a part.
pub(crate) fn flush_tlb(cx: &mut Cx) {
    cx.work(Work::TlbFlush, 1);
}

/// Writing `n` page-table entries.
#[inline]
pub(crate) fn write_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteWrite, n);
}

/// Reading `n` page-table entries on a walk over a range.
#[inline]
pub(crate) fn scan_ptes(cx: &mut Cx, n: u64) {
    cx.work(Work::PteScan, n);
}
