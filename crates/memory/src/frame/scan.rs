//! Linux: PageBuddy(), PageLRU(), PageCompound() and PageReported(), include/linux/page-flags.h (v6.1).
//! Differs: one look at a frame answers all these questions, for compaction's scanners.

use units::{Order, Pfn};

use super::{
    ANON, FILE, FREE, FrameFlag, FrameTable, ISOLATED, KIND_MASK, NIL, ORDER_MASK, ZERO_HUGE, unpack_order,
    word::{INTERIOR, SLAB},
};
use crate::frame::Frame;

/// A frame as a scanner of compaction sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The head of a free block.
    Free(Order),
    /// A page on an LRU list.
    Lru,
    /// The head of an allocated block of more than one frame (`PageCompound`).
    Compound(Order),
    /// Anything else.
    Other,
}

impl FrameTable {
    /// The result of one look of a compaction scanner at a frame.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "in the innermost loops of both scanners")]
    pub fn seen(&self, pfn: Pfn) -> Seen {
        let state = self.state[pfn.0 as usize];
        let compound = |order| if order > Order::BASE { Seen::Compound(order) } else { Seen::Other };
        match state & KIND_MASK {
            ANON | FILE if state & (ORDER_MASK | FrameFlag::OnLru.mask()) == FrameFlag::OnLru.mask() => Seen::Lru,
            ANON | FILE | SLAB | ISOLATED => compound(unpack_order(state)),
            FREE => Seen::Free(unpack_order(state)),
            INTERIOR if pfn.is_aligned(self.blocks.order()) => match self.block_state[self.blocks.index(pfn)] {
                0 => Seen::Other,
                block => Seen::Free(unpack_order(block)),
            },
            ZERO_HUGE => Seen::Compound(self.blocks.order()),
            _ => Seen::Other,
        }
    }

    /// The frame behind one on its list, towards the tail.
    pub fn next_of(&self, pfn: Pfn) -> Option<Pfn> {
        Some(self.links(pfn).next).filter(|next| *next != NIL)
    }

    /// The frame before one on its list, towards the head.
    pub fn previous_of(&self, pfn: Pfn) -> Option<Pfn> {
        Some(self.links(pfn).prev).filter(|prev| *prev != NIL)
    }
}

impl FrameTable {
    /// Says of a free block that the hypervisor knows that it is free (`__SetPageReported`).
    pub fn set_reported(&mut self, pfn: Pfn, order: Order) {
        let list = self.free_list(pfn, order);
        self.set(pfn, Frame::Free { order, list, reported: true });
    }

    /// Does the hypervisor know that a free block is free (`PageReported`)?
    pub fn is_reported(&self, pfn: Pfn) -> bool {
        matches!(self.get(pfn), Frame::Free { reported: true, .. })
    }
}
