//! Linux: mm/page_poison.c and want_init_on_free() (v5.11 to v6.1); virtballoon_validate() in
//! drivers/virtio/virtio_balloon.c (v5.8), and QEMU's virtio_balloon_handle_report().
//! Differs: poisoning and checking a page cost as much as clearing it: assumed, as the CPU caches are not modelled. Blocks that
//! compaction takes from free lists are neither checked nor poisoned; a page for a user is cleared again with init_on_free.
//!
//! A kernel may overwrite freed pages with a pattern, which it checks when the page is allocated, or with zeros. A page that
//! the host discards comes back as zeros, so the pattern would be lost: the device must know of it.

use rules::zone::Settings;
use units::{Order, Pfn};

use crate::{
    Memory,
    cx::Cx,
    frame::{Frame, FrameTable},
};

/// The pattern that a kernel writes over freed pages, and at boot over all free pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFree {
    /// Nothing.
    #[default]
    Nothing,
    /// A pattern (`page_poison=1`); it has precedence over zeros.
    Poison,
    /// Zeros (`init_on_free=1`).
    Zero,
}

impl OnFree {
    pub(crate) fn of(settings: &Settings) -> Self {
        match (settings.page_poison, settings.init_on_free) {
            (true, _) => Self::Poison,
            (false, true) => Self::Zero,
            (false, false) => Self::Nothing,
        }
    }
}

/// The contents of a poisoned frame, where the table keeps contents.
// PAGE_POISON, include/linux/poison.h (v6.1).
pub const PATTERN: u64 = 0xaaaa_aaaa_aaaa_aaaa;

impl Memory {
    /// Does a balloon report free pages? Not where they hold something of which the device does not know
    /// (`virtballoon_validate`).
    pub fn may_report(&self) -> bool {
        self.on_free == OnFree::Nothing || self.device_knows_poison
    }

    /// Are freed pages poisoned, and does the balloon's device know with what?
    pub fn is_poison_known(&self) -> bool {
        self.on_free == OnFree::Poison && self.device_knows_poison
    }

    /// A block is about to be freed (`free_pages_prepare`).
    #[inline]
    pub(crate) fn overwrite_freed(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        if self.on_free != OnFree::Nothing {
            self.overwrite(cx, pfn, order);
        }
    }

    #[inline(never)]
    fn overwrite(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        // A freed block need not be backed by the host: pages out of a balloon are not.
        self.access_through_host(cx, pfn, order);
        self.clear(cx, pfn, order);
        if self.on_free == OnFree::Poison {
            self.frames.poison_contents(pfn, order);
        }
    }

    /// Checks a block that was just allocated (`kernel_unpoison_pages`).
    #[inline]
    pub(crate) fn check_poison(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        if self.on_free == OnFree::Poison {
            self.check_pattern(cx, pfn, order);
        }
    }

    #[inline(never)]
    fn check_pattern(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        for pfn in (0..order.frames()).map(|n| pfn.plus(n)).filter(|_| self.frames.keeps_contents()) {
            let content = self.frames.content(pfn);
            assert_eq!(content, PATTERN, "frame {pfn} was poisoned when it was freed");
        }
        // The kernel reads the whole block.
        self.clear(cx, pfn, order);
    }

    /// Turns poisoning on, and poisons all free blocks: for tests.
    pub fn poison(&mut self) {
        (self.on_free, self.device_knows_poison) = (OnFree::Poison, true);
        let mut at = Pfn(0);
        // Bound: each block has at least one frame.
        while at.0 < self.frames.len() {
            let frame = self.frames.get(at);
            let order = self.frames.order_of(frame);
            if matches!(frame, Frame::Free { .. } | Frame::Pcp { .. }) {
                self.frames.poison_contents(at, order);
            }
            at = at.plus(order.frames());
        }
    }
}

impl FrameTable {
    fn poison_contents(&mut self, pfn: Pfn, order: Order) {
        if self.keeps_contents() {
            (0..order.frames()).for_each(|n| self.store(pfn.plus(n), PATTERN));
        }
    }
}
