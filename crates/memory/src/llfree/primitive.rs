//! Linux: none; LLFree, Wrenger et al. (USENIX ATC 2023).
//! Differs: nothing is atomic; it is priced.
//!
//! The operations that LLFree is made of charge themselves, at the prices of Linux's per-CPU lists, as nothing was measured for
//! LLFree: an allocation or a free changes a bit and two counters, and counts, checks and prepares its frames as with any
//! allocator. Added to that is a transfer for each cache line that another CPU has written last. Not priced: comparing and
//! exchanging once more after another CPU was faster, reading the counters of trees and areas that are passed over, and the
//! instructions by which both allocators differ.

use crate::{
    cost::{Cause, Work},
    cx::Cx,
    line::CacheLine,
};

/// An allocation, beside the lines that it writes to.
#[inline]
pub(super) fn allocate(cx: &mut Cx<'_>) {
    cx.work(Work::AllocFast, 1);
}

/// A free, beside the lines that it writes to.
#[inline]
pub(super) fn free(cx: &mut Cx<'_>) {
    cx.work(Work::FreeFast, 1);
}

/// One atomic change of a cache line.
#[inline]
pub(super) fn change(line: &mut CacheLine, cx: &mut Cx<'_>) {
    line.access(cx, 1, Cause::Allocator);
}
