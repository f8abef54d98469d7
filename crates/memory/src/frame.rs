//! Linux: struct page, include/linux/mm_types.h (v6.1).
//! Differs: 16 bytes per frame at rest; the interior of a block is all zero; free blocks of at least a pageblock live in
//! a table of their own, so that a machine is built without touching its frames.

mod contents;
mod damage;
mod loose;
pub mod moves;
mod scan;
mod touched;
mod word;

pub use self::scan::Seen;
use rules::gfp::Mobility;
use units::{CpuId, Order, Pfn, Vpn};

use self::word::{
    ALLOCATED, ALLOCATED_BASE, ANON, FILE, FLAGS_SHIFT, FOLIOS, FREE, INDEX_BITS, ISOLATED, KERNEL, KIND_MASK,
    MAP_COUNT_MASK, MAP_COUNT_SHIFT, NEXT_MASK, NEXT_SHIFT, ORDER_MASK, ORDER_SHIFT, PAYLOAD_SHIFT, PCP, PINNED_SHIFT,
    TYPE_MASK, ZERO_HUGE, pack, unpack, unpack_links, unpack_order,
};

use crate::{
    lru_kind::LruKind,
    pageblock::{MigrateType, Pageblocks, ZoneIndex},
    slab::{Object, Slab},
};

/// A family of processes related by fork, which may share anonymous frames. 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyId(pub u16);

/// Number of an address space, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// A part of a file of at most [`SegmentId::PAGES`] pages. 28 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// Pages of a segment: 4 GiB.
    pub const PAGES: u32 = 1 << INDEX_BITS;
}

/// Number of the operation that holds isolated frames; `Cx::control` is that of the running step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControlId(pub u32);

/// The state of a frame. In a block only the head has a state of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A frame inside a block, free or allocated, but not its head.
    Interior,
    /// Head of a block on a free list of the buddy allocator.
    Free {
        /// The block's order.
        order: Order,
        /// The free list that the block is on; its type may differ from the pageblock's.
        list: MigrateType,
        /// Whether the hypervisor was told that the block is free.
        reported: bool,
    },
    /// Head of a block on a per-CPU list, which is not threaded through its frames.
    Pcp {
        /// The CPU of the list.
        cpu: CpuId,
        /// The block's order.
        order: Order,
        /// The free list that the block will go back to.
        list: MigrateType,
    },
    /// Head of a folio of anonymous memory.
    Anon {
        /// The family of processes that may map the frame.
        family: FamilyId,
        /// The page number at which they map the folio.
        vpn: Vpn,
        /// The folio's order.
        order: Order,
    },
    /// Head of a folio of the page cache.
    File {
        /// The segment of a file that the page belongs to.
        segment: SegmentId,
        /// The page's number in its segment.
        index: u32,
        /// The folio's order.
        order: Order,
    },
    /// A page table.
    PageTable,
    /// Head of a slab of kernel objects.
    Slab(Slab),
    /// Head of an allocated block of unknown use; the state after every allocation.
    Kernel {
        /// The block's order.
        order: Order,
        /// The mobility of the request.
        mobility: Mobility,
    },
    /// Head of a block taken off its list by a running operation.
    Isolated {
        /// The operation.
        owner: ControlId,
        /// The block's order.
        order: Order,
    },
    /// Head of the huge zero page, of pageblock order.
    ZeroHuge,
    /// A tail frame that lends its words to its folio.
    Tail {
        /// A number that the folio keeps here, such as the number of its mapped frames.
        count: u32,
    },
    /// Not given to the buddy allocator: a hole, or memory reserved at boot.
    Reserved,
}

/// A block of frames that a control holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The block's first frame.
    pub pfn: Pfn,
    /// The block's order.
    pub order: Order,
}

impl Held {
    /// The block of the same order with which this one makes a larger one.
    #[must_use]
    pub fn buddy_block(self) -> Self {
        Self { pfn: self.pfn.buddy(self.order), ..self }
    }
}

/// Frames that a control holds between two of its steps, so that a check finds the owner of every frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Blocks on no list: `Frame::Isolated`, with the control as owner.
    pub isolated: Vec<Held>,
    /// Folios that lost their last mapping and wait for a TLB flush: still `Frame::Anon` and on the lists that they were on,
    /// but unmapped.
    pub gathered: Vec<Held>,
    /// Folios that were taken off their LRU list and are unchanged otherwise.
    pub off_lru: Vec<Held>,
    /// Kernel objects that belong to no structure any more.
    pub objects: Vec<Object>,
}

impl Holdings {
    /// Adds what another part of the control holds.
    pub fn add(&mut self, other: Self) {
        self.isolated.extend(other.isolated);
        self.gathered.extend(other.gathered);
        self.off_lru.extend(other.off_lru);
        self.objects.extend(other.objects);
    }
}

/// Neighbours on a list; [`NIL`] at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Towards the head.
    pub prev: Pfn,
    /// Towards the tail.
    pub next: Pfn,
}

/// No frame: the end of a list. No machine has a frame with the largest number of a `Pfn`.
pub const NIL: Pfn = Pfn(u32::MAX);

/// The states and links of all frames of a machine: two words each, and two more for each pageblock.
#[derive(Clone, Debug)]
pub struct FrameTable {
    state: Vec<u64>,
    links: Vec<u64>,
    /// State of the free block of at least pageblock order that starts with this pageblock; else 0.
    block_state: Vec<u64>,
    block_links: Vec<u64>,
    /// A word for the contents of each frame: a column for tests, empty unless asked for.
    contents: Vec<u64>,
    /// Pageblocks with a frame whose state has changed, and movers of pages: for maps, empty unless a map is drawn.
    touched: touched::Touched,
    /// Facts about whole pageblocks.
    pub blocks: Pageblocks,
}

impl FrameTable {
    /// Bytes of a frame at rest.
    pub const BYTES_PER_FRAME: usize = 2 * size_of::<u64>();

    /// The largest map count that a frame's flags hold.
    pub const MAP_COUNT_MAX: u8 = 3;

    /// A table for the frames below `end`, rounded up to whole blocks of `max_order`, all reserved. Touches no frame's words.
    pub fn new(end: Pfn, pageblock_order: Order, max_order: Order) -> Self {
        assert!(pageblock_order > Order::BASE && pageblock_order <= max_order, "pageblocks are blocks");
        let frames = end.0.next_multiple_of(max_order.frames());
        let blocks = (frames >> pageblock_order.0) as usize;
        let words = |n| vec![0; n];
        Self {
            state: words(frames as usize),
            links: words(frames as usize),
            block_state: words(blocks),
            block_links: words(blocks),
            contents: Vec::new(),
            touched: touched::Touched::default(),
            blocks: Pageblocks::new(pageblock_order, blocks),
        }
    }

    /// Frames in the table.
    pub fn len(&self) -> u32 {
        u32::try_from(self.state.len()).expect("a frame number has 32 bits")
    }

    /// Whether there is no frame at all.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// The state of a frame.
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Frame {
        let state = self.state[pfn.0 as usize];
        if state == 0 { self.get_zero(pfn) } else { unpack(state) }
    }

    /// The state of a frame whose word is 0: an interior, or the head of a free block whose state is in the pageblock's word.
    fn get_zero(&self, pfn: Pfn) -> Frame {
        let block = self.blocks.index(pfn);
        if pfn.is_aligned(self.blocks.order()) && self.block_state[block] != 0 {
            return unpack(self.block_state[block]);
        }
        if self.blocks.zone(pfn).is_some() { Frame::Interior } else { Frame::Reserved }
    }

    /// Sets the state of a frame that is not on a free list: only the buddy allocator takes a block off one. Clears the flags,
    /// keeps the links.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "most callers know the kind, and then this is a store")]
    pub fn set(&mut self, pfn: Pfn, frame: Frame) {
        self.touch(pfn, self.order_of(frame));
        if let Frame::Free { order, .. } = frame
            && order >= self.blocks.order()
        {
            // The frame's own word is zero already, and stays untouched.
            assert!(pfn.is_aligned(order), "frame {pfn} is no block of order {order}");
            let block = self.blocks.index(pfn);
            self.block_state[block] = pack(frame);
            return;
        }
        self.state[pfn.0 as usize] = pack(frame);
    }

    /// The order of the allocated block whose head is this frame, if the frame is the head of a block.
    #[inline]
    pub fn allocated(&self, pfn: Pfn) -> Option<Order> {
        let state = self.state[pfn.0 as usize];
        let kind = state & KIND_MASK;
        if ALLOCATED >> kind & 1 == 0 {
            None
        } else if kind == ZERO_HUGE {
            Some(self.blocks.order())
        } else {
            Some(unpack_order(state))
        }
    }

    /// Clears the state of a free block of `order` that leaves its list, after [`Self::free_list`]: its head is an interior
    /// until the caller sets its use.
    #[inline]
    pub(crate) fn clear_free(&mut self, pfn: Pfn, order: Order) {
        self.touch(pfn, order);
        if order >= self.blocks.order() {
            let block = self.blocks.index(pfn);
            self.block_state[block] = 0;
        } else {
            self.state[pfn.0 as usize] = 0;
        }
    }

    /// Turns an allocated base frame that is on no list into one of a per-CPU list; returns false and changes nothing if the
    /// frame is anything else.
    #[inline]
    pub(crate) fn enter_pcp(&mut self, pfn: Pfn, cpu: CpuId, list: MigrateType) -> bool {
        self.touch(pfn, Order::BASE);
        let state = &mut self.state[pfn.0 as usize];
        let is_one = ALLOCATED_BASE.contains(&(*state & (KIND_MASK | ORDER_MASK))) && self.links[pfn.0 as usize] == 0;
        if is_one {
            *state = pack(Frame::Pcp { cpu, order: Order::BASE, list });
        }
        is_one
    }

    /// Takes a block off a per-CPU list; returns its order and the free list that it goes back to. The head is the interior of
    /// nothing until the caller sets its use.
    #[inline]
    pub(crate) fn leave_pcp(&mut self, pfn: Pfn) -> (Order, MigrateType) {
        self.touch(pfn, Order::BASE);
        let state = std::mem::take(&mut self.state[pfn.0 as usize]);
        assert!(state & KIND_MASK == PCP, "frame {pfn} is on a per-CPU list, but its state is {state:#x}");
        (unpack_order(state), MigrateType::from_index((state >> PAYLOAD_SHIFT & TYPE_MASK) as usize))
    }

    /// Takes the base frames of a block of `order` off a CPU's list, if every frame of the block is on the list and goes back
    /// to one free list; else nothing happens.
    pub(crate) fn leave_pcp_together(&mut self, pfn: Pfn, order: Order) -> Option<MigrateType> {
        self.touch(pfn, order);
        let states = &mut self.state[pfn.0 as usize..][..order.frames() as usize];
        let first = states[0];
        assert!(first & KIND_MASK == PCP, "frame {pfn} is on a per-CPU list, but its state is {first:#x}");
        if states.iter().any(|state| *state != first) {
            return None;
        }
        states.fill(0);
        Some(MigrateType::from_index((first >> PAYLOAD_SHIFT & TYPE_MASK) as usize))
    }

    /// The list that a free block of `order` is on.
    #[inline]
    pub(crate) fn free_list(&self, pfn: Pfn, order: Order) -> MigrateType {
        let state = if order >= self.blocks.order() {
            self.block_state[self.blocks.index(pfn)]
        } else {
            self.state[pfn.0 as usize]
        };
        assert!(
            state & (KIND_MASK | ORDER_MASK) == FREE | u64::from(order.0) << ORDER_SHIFT,
            "no free block of order {order} starts at frame {pfn}, which is {:?}",
            self.get(pfn)
        );
        MigrateType::from_index((state >> PAYLOAD_SHIFT & TYPE_MASK) as usize)
    }

    /// Gives the pageblocks of the frames from `start` up to `end` to a zone. Frames outside the range that share a pageblock
    /// with it become reserved.
    pub(crate) fn reserve_edges(&mut self, start: Pfn, end: Pfn, zone: ZoneIndex) {
        let order = self.blocks.order();
        let first = start.align_down(order);
        let after = Pfn(end.0.next_multiple_of(order.frames()));
        for block in (first.0..after.0).step_by(order.frames() as usize) {
            self.blocks.set_zone(Pfn(block), zone);
        }
        for pfn in (first.0..start.0).chain(end.0..after.0) {
            self.set(Pfn(pfn), Frame::Reserved);
        }
    }

    /// Whether this is the head of a free block of exactly this order.
    #[inline]
    pub fn is_free(&self, pfn: Pfn, order: Order) -> bool {
        let state = if order >= self.blocks.order() {
            self.block_state[self.blocks.index(pfn)]
        } else {
            self.state[pfn.0 as usize]
        };
        state & (KIND_MASK | ORDER_MASK) == FREE | u64::from(order.0) << ORDER_SHIFT
    }

    /// Whether this is an anonymous folio of one frame, as nearly every mapped frame is.
    #[inline]
    pub fn is_base_anon(&self, pfn: Pfn) -> bool {
        self.state[pfn.0 as usize] & (KIND_MASK | ORDER_MASK) == ANON
    }

    /// Whether this is the head of an anonymous folio.
    #[inline]
    pub fn is_anon(&self, pfn: Pfn) -> bool {
        self.state[pfn.0 as usize] & KIND_MASK == ANON
    }

    /// Whether this is the head of a folio of the page cache.
    #[inline]
    pub fn is_file(&self, pfn: Pfn) -> bool {
        self.state[pfn.0 as usize] & KIND_MASK == FILE
    }

    /// The order of the block whose head has this state; 0 for frames that are not heads.
    pub fn order_of(&self, frame: Frame) -> Order {
        match frame {
            Frame::Free { order, .. }
            | Frame::Pcp { order, .. }
            | Frame::Anon { order, .. }
            | Frame::File { order, .. }
            | Frame::Kernel { order, .. }
            | Frame::Isolated { order, .. }
            | Frame::Slab(Slab { order, .. }) => order,
            Frame::ZeroHuge => self.blocks.order(),
            Frame::Interior | Frame::PageTable | Frame::Tail { .. } | Frame::Reserved => Order::BASE,
        }
    }

    /// Turns a newly allocated block into an anonymous folio, mapped once and in a CPU's batch of new folios: [`Self::set`],
    /// the map count and the flags in one store.
    #[inline]
    pub fn set_new_anon(&mut self, pfn: Pfn, (family, vpn): (FamilyId, Vpn), order: Order, to: LruKind) {
        self.touch(pfn, order);
        let state = &mut self.state[pfn.0 as usize];
        assert!(*state & KIND_MASK == KERNEL || *state & KIND_MASK == ISOLATED, "frame {pfn} was not just allocated");
        let active = if to.is_active() { FrameFlag::Active.mask() } else { 0 };
        *state = pack(Frame::Anon { family, vpn, order }) | 1 << MAP_COUNT_SHIFT | FrameFlag::InBatch.mask() | active;
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, pfn: Pfn, flag: FrameFlag) -> bool {
        self.state[pfn.0 as usize] & flag.mask() != 0
    }

    /// Sets or clears a flag of a frame whose state is not 0.
    #[inline]
    pub fn mark(&mut self, pfn: Pfn, flag: FrameFlag, on: bool) {
        let state = &mut self.state[pfn.0 as usize];
        assert!(*state != 0, "frame {pfn} has no flags: it speaks for nothing");
        if on { *state |= flag.mask() } else { *state &= !flag.mask() }
    }

    /// Map count of a folio, up to [`Self::MAP_COUNT_MAX`], which stands for that count and every higher one.
    #[inline]
    pub fn map_count(&self, pfn: Pfn) -> u8 {
        let count = self.state[pfn.0 as usize] >> MAP_COUNT_SHIFT & MAP_COUNT_MASK;
        u8::try_from(count).expect("two bits")
    }

    /// Takes the only mapping off a base page; returns false and changes nothing if the frame is anything else.
    #[inline]
    pub fn unmap_only(&mut self, pfn: Pfn) -> bool {
        const COUNT: u64 = MAP_COUNT_MASK << MAP_COUNT_SHIFT;
        let state = &mut self.state[pfn.0 as usize];
        let is_only = *state & (KIND_MASK | ORDER_MASK | COUNT) == ANON | 1 << MAP_COUNT_SHIFT;
        *state &= if is_only { !COUNT } else { !0 };
        is_only
    }

    /// Takes a folio out of its CPU's batch; returns its list and order. If the batch's reference is not the last, the folio is
    /// on an LRU list from now on, on which the caller puts it.
    #[inline]
    pub fn leave_batch(&mut self, pfn: Pfn) -> Option<(LruKind, Order)> {
        const IN_BATCH: u64 = FrameFlag::InBatch.mask();
        let state = &mut self.state[pfn.0 as usize];
        let is_folio = FOLIOS >> (*state & KIND_MASK) & 1 != 0;
        assert!(is_folio && *state & IN_BATCH != 0, "frame {pfn} is no folio in a batch");
        *state &= !IN_BATCH;
        if *state & FrameFlag::Dropped.mask() != 0 {
            return None;
        }
        *state |= FrameFlag::OnLru.mask();
        let is_active = *state & FrameFlag::Active.mask() != 0;
        Some((LruKind::of(*state & KIND_MASK == FILE, is_active), unpack_order(*state)))
    }

    /// Clears the LRU flag of a folio that the caller takes off its list, and returns the list; none if the folio is on none.
    #[inline]
    pub fn leave_lru(&mut self, pfn: Pfn) -> Option<LruKind> {
        let state = &mut self.state[pfn.0 as usize];
        let is_listed = *state & FrameFlag::OnLru.mask() != 0;
        *state &= !FrameFlag::OnLru.mask();
        let is_active = *state & FrameFlag::Active.mask() != 0;
        is_listed.then(|| LruKind::of(*state & KIND_MASK == FILE, is_active))
    }

    /// Sets the map count of a folio.
    #[inline]
    pub fn set_map_count(&mut self, pfn: Pfn, count: u8) {
        assert!(count <= Self::MAP_COUNT_MAX, "a map count of {count} does not fit");
        let state = &mut self.state[pfn.0 as usize];
        assert!(FOLIOS >> (*state & KIND_MASK) & 1 != 0, "frame {pfn} is not the head of a folio");
        *state = *state & !(MAP_COUNT_MASK << MAP_COUNT_SHIFT) | u64::from(count) << MAP_COUNT_SHIFT;
    }

    /// The links of frames: LRU lists, partial slabs, small free blocks.
    pub fn threads(&mut self) -> Threads<'_> {
        Threads { words: &mut self.links, shift: 0 }
    }

    /// The links of free blocks of one order.
    #[inline]
    pub fn free_threads(&mut self, order: Order) -> Threads<'_> {
        if order >= self.blocks.order() {
            Threads { shift: u32::from(self.blocks.order().0), words: &mut self.block_links }
        } else {
            self.threads()
        }
    }

    /// Neighbours of a frame on its list.
    pub fn links(&self, pfn: Pfn) -> Links {
        let in_block = self.state[pfn.0 as usize] == 0 && matches!(self.get(pfn), Frame::Free { .. });
        unpack_links(if in_block { self.block_links[self.blocks.index(pfn)] } else { self.links[pfn.0 as usize] })
    }

    /// The state and links words of one frame, undecoded: for checks.
    pub fn raw(&self, pfn: Pfn) -> (u64, u64) {
        (self.raw_state(pfn), self.raw_links(pfn))
    }

    /// The state word of one frame, undecoded: for checks.
    pub fn raw_state(&self, pfn: Pfn) -> u64 {
        self.state[pfn.0 as usize]
    }

    /// The links word of one frame, undecoded: for checks.
    pub fn raw_links(&self, pfn: Pfn) -> u64 {
        self.links[pfn.0 as usize]
    }

    /// The state and links words of a frame's pageblock, undecoded: for checks.
    pub fn raw_block(&self, pfn: Pfn) -> (u64, u64) {
        let block = self.blocks.index(pfn);
        (self.block_state[block], self.block_links[block])
    }
}

const _: () = assert!(FrameTable::BYTES_PER_FRAME <= 16);

/// A column of links, by frame or by pageblock.
#[derive(Debug)]
pub struct Threads<'a> {
    words: &'a mut [u64],
    shift: u32,
}

impl Threads<'_> {
    /// Borrows the column once more.
    pub fn again(&mut self) -> Threads<'_> {
        Threads { words: self.words, shift: self.shift }
    }

    /// The neighbours of a frame.
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Links {
        unpack_links(self.words[(pfn.0 >> self.shift) as usize])
    }

    /// Sets both neighbours of a frame.
    #[inline]
    pub fn set(&mut self, pfn: Pfn, links: Links) {
        self.words[(pfn.0 >> self.shift) as usize] = u64::from(links.next.0) << NEXT_SHIFT | u64::from(links.prev.0);
    }

    /// Sets the neighbour of a frame towards the head.
    #[inline]
    pub fn set_prev(&mut self, pfn: Pfn, prev: Pfn) {
        let word = &mut self.words[(pfn.0 >> self.shift) as usize];
        *word = *word & NEXT_MASK | u64::from(prev.0);
    }

    /// Sets the neighbour of a frame towards the tail.
    #[inline]
    pub fn set_next(&mut self, pfn: Pfn, next: Pfn) {
        let word = &mut self.words[(pfn.0 >> self.shift) as usize];
        *word = *word & !NEXT_MASK | u64::from(next.0) << NEXT_SHIFT;
    }

    /// Sets the links of a frame to 0.
    #[inline]
    pub fn clear(&mut self, pfn: Pfn) {
        self.words[(pfn.0 >> self.shift) as usize] = 0;
    }
}

/// A flag of a frame, kept beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFlag {
    /// On an LRU list (`PG_lru`); or standing for a kernel page that was on one in a recording, and is not reclaimed here.
    OnLru,
    /// On an active list, or to be put on one (`PG_active`).
    Active,
    /// In a CPU's batch of folios on their way to the LRU lists; the batch holds a reference.
    InBatch,
    /// The batch's reference to the folio is the last one.
    Dropped,
    /// Accessed since reclaim last looked at it, other than through a page table (`PG_referenced`).
    Referenced,
    /// A task works on the folio; others wait for it or pass it by (`PG_locked`).
    Locked,
    /// An anonymous folio with a long-term reference beside its mappings (`FOLL_LONGTERM`).
    Pinned,
}

impl FrameFlag {
    const fn mask(self) -> u64 {
        match self {
            Self::OnLru => 1 << (FLAGS_SHIFT + 1),
            Self::Active => 1 << (FLAGS_SHIFT + 2),
            Self::InBatch => 1 << (FLAGS_SHIFT + 3),
            Self::Dropped => 1 << (FLAGS_SHIFT + 4),
            Self::Referenced => 1 << FLAGS_SHIFT,
            Self::Locked => 1 << (FLAGS_SHIFT + 5),
            Self::Pinned => 1 << (PAYLOAD_SHIFT + PINNED_SHIFT),
        }
    }
}

#[cfg(test)]
mod tests;
