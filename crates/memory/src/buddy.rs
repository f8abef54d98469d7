//! Linux: mm/page_alloc.c (v3.9 to v6.1).
//! Differs: `nr_free` is kept by order and type.

use rules::variant::{ListEnd, Merging, Variant};
use units::{Order, Pfn};

use crate::{
    cost::{Cause, Work},
    cx::Cx,
    event::Event,
    fallback::Extfrag,
    frame::{Frame, FrameTable},
    list::List,
    pageblock::MigrateType,
    shuffle::Shuffle,
    spin::SpinLock,
    tally::{Place, Test},
};

/// Number of orders, from one frame to 2^10 (`MAX_ORDER` of these kernels).
pub const ORDERS: usize = 11;

/// The free blocks of one order, a list for each type.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeArea {
    lists: [List; MigrateType::COUNT],
}

impl FreeArea {
    /// The list of one type.
    #[inline]
    pub fn list(&self, list: MigrateType) -> &List {
        &self.lists[list as usize]
    }

    /// Blocks on the lists of all types (`nr_free`, a column of /proc/buddyinfo).
    pub fn nr_free(&self) -> u64 {
        self.lists.iter().map(|list| u64::from(list.len())).sum()
    }
}

/// The free blocks of a zone.
#[derive(Clone, Debug)]
pub struct Buddy {
    areas: [FreeArea; ORDERS],
    free: u64,
    /// Another allocator has the zone's free frames: here they are only counted.
    pub(crate) counts_for_another: bool,
    max_order: Order,
    /// The zone's lock.
    lock: SpinLock,
    /// Fallbacks into pageblocks that were broken up by them, for which the zone has not raised its watermarks yet.
    pub broken_up: u32,
    /// Frames of LRU lists that reclaim has looked at since a block last came back (`NR_PAGES_SCANNED`, up to 4.11).
    pub scanned: u64,
    /// The block that the step's task waits for while it compacts (`capture_control`).
    pub(crate) capture: Option<Capture>,
    /// Fallbacks so far, where a caller wants to know.
    pub trace: Option<Vec<Extfrag>>,
    /// Blocks from this order on that become free are to be reported to a hypervisor.
    pub notify_from: Option<Order>,
    /// Where blocks of the largest order go, when that is random.
    pub shuffle: Option<Shuffle>,
}

impl Buddy {
    pub(crate) fn new(max_order: Order) -> Self {
        assert!(usize::from(max_order.0) < ORDERS, "order {max_order} is beyond the largest");
        Self {
            areas: [FreeArea::default(); ORDERS],
            free: 0,
            counts_for_another: false,
            max_order,
            lock: SpinLock::default(),
            broken_up: 0,
            scanned: 0,
            capture: None,
            trace: None,
            notify_from: None,
            shuffle: None,
        }
    }

    /// Takes over the number of free frames of the allocator that has them.
    pub(crate) fn count_for_another(&mut self, free: u64) {
        self.free = free;
    }

    /// Frames on all free lists of the zone (`NR_FREE_PAGES`).
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.free
    }

    /// The largest order.
    #[inline]
    pub fn max_order(&self) -> Order {
        self.max_order
    }

    /// The free lists of one order.
    #[inline]
    pub fn area(&self, order: Order) -> &FreeArea {
        &self.areas[usize::from(order.0)]
    }

    /// Takes the zone's lock (`zone->lock`), which protects the free lists.
    #[inline]
    pub fn lock(&mut self, cx: &mut Cx<'_>) {
        self.lock.acquire(cx, Cause::ZoneLock);
    }

    /// Releases the zone's lock.
    #[inline]
    pub fn unlock(&mut self, cx: &mut Cx<'_>) {
        self.lock.release(cx, Cause::ZoneLock);
    }

    /// Takes a block of `order` from a list, or splits the smallest larger block of that type; `__rmqueue_smallest`. The
    /// block is the interior of nothing until the caller sets its use.
    #[inline]
    pub(crate) fn take_smallest(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        order: Order,
        list: MigrateType,
    ) -> Option<Pfn> {
        let (pfn, found) = self.take_first(frames, cx, order, list)?;
        self.split(frames, cx, Block { pfn, order: found }, order, list);
        Some(pfn)
    }

    /// Takes up to `most` blocks of `order`, all out of one larger block; returns the first of them and their number.
    ///
    /// Takes blocks one after the other from the smallest block that is large enough, as all lists below its order are
    /// empty. Each request gets the frames behind the last request's frames; blocks of falling order are left. Halves that
    /// would be listed and taken in between are not shown.
    #[inline]
    pub(crate) fn take_run(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        order: Order,
        list: MigrateType,
        most: u32,
    ) -> Option<(Pfn, u32)> {
        let (pfn, found) = self.take_first(frames, cx, order, list)?;
        let splits = u32::from(found.0 - order.0);
        let run = most.min(1 << splits);
        let mut rest = pfn.plus(run << order.0);
        // Bound: a piece of each order at most.
        while !rest.is_aligned(found) {
            let piece = Order(u8::try_from(rest.0.trailing_zeros()).expect("below 32"));
            self.add(frames, Block { pfn: rest, order: piece }, list, ListEnd::Head);
            rest = rest.plus(piece.frames());
        }
        // The first request splits down to `order`; request number n splits as often as 2 divides n.
        let later = run - 1;
        cx.work(Work::ListMove, u64::from(run + splits + (later - later.count_ones())));
        Some((pfn, run))
    }

    /// Takes the first block of a list, of the smallest order that has one from `order` on.
    #[inline]
    fn take_first(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        order: Order,
        list: MigrateType,
    ) -> Option<(Pfn, Order)> {
        let found = (order.0..=self.max_order.0).find(|o| !self.area(Order(*o)).list(list).is_empty()).map(Order)?;
        let pfn = self.areas[usize::from(found.0)].lists[list as usize].pop_head(frames.free_threads(found))?;
        assert!(frames.free_list(pfn, found) == list, "frame {pfn} is on another list than it says");
        if self.notify_from.is_some_and(|from| found >= from) && frames.is_reported(pfn) {
            cx.count(Event::SimPagesFromReported, found.frames().into());
        }
        frames.clear_free(pfn, found);
        self.free -= u64::from(found.frames());
        Some((pfn, found))
    }

    /// Takes a given free block and splits it down to `order`; what is left goes to the lists of type `rest`.
    pub fn take(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block, order: Order, rest: MigrateType) {
        self.remove(frames, block);
        self.split(frames, cx, block, order, rest);
    }

    /// Splits a block that was taken off its list down to `order`; `expand`.
    #[inline]
    fn split(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block, order: Order, rest: MigrateType) {
        // Upper halves first, each to the head of its list: the caller gets the lowest part.
        for half in (order.0..block.order.0).rev().map(Order) {
            let upper = Block { pfn: block.pfn.plus(half.frames()), order: half };
            self.add(frames, upper, rest, ListEnd::Head);
        }
        cx.work(Work::ListMove, 1 + u64::from(block.order.0 - order.0));
    }

    /// Gives a block back, merging it with its free buddies; `__free_one_page`. `end` overrides the choice between head
    /// and tail by how likely the block is to merge once more.
    #[inline]
    pub fn give(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        list: MigrateType,
        end: Option<ListEnd>,
        rules: &Variant,
    ) {
        assert!(block.pfn.is_aligned(block.order), "frame {} is no block of order {}", block.pfn, block.order);
        self.scanned = 0;
        if self.capture.is_some_and(|capture| capture.block.is_none()) && self.captures(frames, cx, block, list, rules)
        {
            return;
        }
        let mut merged = block;
        while merged.order < self.max_order && may_merge(frames, merged, list, rules.merging) {
            let buddy = merged.pfn.buddy(merged.order);
            self.remove(frames, Block { pfn: buddy, order: merged.order });
            merged = Block { pfn: merged.pfn.min(buddy), order: Order(merged.order.0 + 1) };
        }
        let end = end.unwrap_or_else(|| self.free_end(frames, merged));
        self.add(frames, merged, list, end);
        cx.work(Work::ListMove, 1 + u64::from(merged.order.0 - block.order.0));
        if self.notify_from.is_some_and(|from| cx.test(Test::ReportOrder, Place::Machine, merged.order >= from)) {
            cx.note_free_block();
        }
    }

    /// The default end of the free list.
    #[inline]
    fn free_end(&mut self, frames: &FrameTable, block: Block) -> ListEnd {
        match &mut self.shuffle {
            Some(shuffle) if block.order == self.max_order => shuffle.pick_end(),
            _ => self.likely_end(frames, block),
        }
    }

    /// Whether a block that is given back, merged with its free buddies, is the one that the compacting task waits for.
    /// Then the task has it before others see it (`compaction_capture`).
    #[cold]
    fn captures(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        list: MigrateType,
        rules: &Variant,
    ) -> bool {
        let wanted = self.capture.expect("somebody waits").order;
        // A request of smaller order would scatter unmovable frames over a Movable pageblock.
        let is_polluting = wanted < frames.blocks.order() && list == MigrateType::Movable;
        if block.order > wanted
            || wanted >= self.max_order
            || is_polluting
            || matches!(list, MigrateType::Cma | MigrateType::Isolate)
        {
            return false;
        }
        let mut merged = block;
        // Bound: each turn doubles the block.
        while merged.order < wanted {
            if !may_merge(frames, merged, list, rules.merging) {
                return false;
            }
            merged = Block { pfn: merged.pfn.align_down(Order(merged.order.0 + 1)), order: Order(merged.order.0 + 1) };
        }
        let mut at = block;
        while at.order < wanted {
            let buddy = at.pfn.buddy(at.order);
            self.remove(frames, Block { pfn: buddy, order: at.order });
            at = Block { pfn: at.pfn.min(buddy), order: Order(at.order.0 + 1) };
        }
        cx.work(Work::ListMove, 1 + u64::from(wanted.0 - block.order.0));
        self.capture = Some(Capture { order: wanted, block: Some(merged.pfn) });
        true
    }

    /// Takes a given free block off its list, whole (`del_page_from_free_list`).
    pub fn isolate(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, block: Block) {
        self.remove(frames, block);
        cx.work(Work::ListMove, 1);
    }

    /// Makes a free block the first of its list; those before it follow the last, in their order (`move_freelist_head`).
    pub fn rotate(&mut self, frames: &mut FrameTable, Block { pfn, order }: Block) {
        let list = frames.free_list(pfn, order);
        self.areas[usize::from(order.0)].lists[list as usize].rotate_to(frames.free_threads(order), pfn);
    }

    /// Would the zone's lock have to be waited for?
    pub fn is_contended(&self, cx: &Cx<'_>) -> bool {
        self.lock.is_contended(cx)
    }

    /// Moves a free block to one end of another type's list; `move_to_free_list`.
    pub(crate) fn move_to(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        list: MigrateType,
        end: ListEnd,
    ) {
        let is_reported = frames.is_reported(block.pfn);
        self.remove(frames, block);
        self.add(frames, block, list, end);
        if is_reported {
            frames.set_reported(block.pfn, block.order);
        }
        cx.work(Work::ListMove, 1);
    }

    /// The blocks of a list, from its head on.
    pub fn blocks_of(&self, frames: &FrameTable, order: Order, list: MigrateType) -> Vec<Pfn> {
        self.area(order).list(list).iter(frames).collect()
    }

    /// Puts the blocks of a list in another order: `blocks` are all blocks of the list.
    pub(crate) fn reorder(&mut self, frames: &mut FrameTable, order: Order, list: MigrateType, blocks: &[Pfn]) {
        let of = &mut self.areas[usize::from(order.0)].lists[list as usize];
        assert!(of.len() as usize == blocks.len(), "these are not the blocks of the list");
        for pfn in blocks {
            of.remove(frames.free_threads(order), *pfn);
            of.push_tail(frames.free_threads(order), *pfn);
        }
    }

    /// The tail if the block is likely to merge soon: the buddy of the block that it would merge into is free already
    /// (`buddy_merge_likely`).
    fn likely_end(&self, frames: &FrameTable, block: Block) -> ListEnd {
        if block.order.0 + 1 >= self.max_order.0 {
            return ListEnd::Head;
        }
        let above = Order(block.order.0 + 1);
        let beside = block.pfn.align_down(above).buddy(above);
        if is_free_near(frames, beside, above, block.pfn) { ListEnd::Tail } else { ListEnd::Head }
    }

    fn add(&mut self, frames: &mut FrameTable, block: Block, list: MigrateType, end: ListEnd) {
        frames.set(block.pfn, Frame::Free { order: block.order, list, reported: false });
        let threads = frames.free_threads(block.order);
        let to = &mut self.areas[usize::from(block.order.0)].lists[list as usize];
        match end {
            ListEnd::Head => to.push_head(threads, block.pfn),
            ListEnd::Tail => to.push_tail(threads, block.pfn),
        }
        self.free += u64::from(block.order.frames());
    }

    fn remove(&mut self, frames: &mut FrameTable, Block { pfn, order }: Block) {
        let list = frames.free_list(pfn, order);
        self.areas[usize::from(order.0)].lists[list as usize].remove(frames.free_threads(order), pfn);
        frames.clear_free(pfn, order);
        self.free -= u64::from(order.frames());
    }
}

/// A block that a compacting task wants: the task has it as soon as its own frees complete it (`capture_control`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    pub(crate) order: Order,
    pub(crate) block: Option<Pfn>,
}

/// A run of frames that starts at a multiple of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's first frame.
    pub pfn: Pfn,
    /// The block's order.
    pub order: Order,
}

/// Whether the buddy of a block is free, and may merge with the block.
#[inline]
fn may_merge(frames: &FrameTable, block: Block, list: MigrateType, rules: Merging) -> bool {
    let buddy = block.pfn.buddy(block.order);
    if !is_free_near(frames, buddy, block.order, block.pfn) {
        return false;
    }
    if block.order < frames.blocks.order() {
        return true;
    }
    types_merge(list, frames.blocks.migrate_type(buddy), rules)
}

/// May free blocks of at least pageblock order become one?
pub fn types_merge(one: MigrateType, other: MigrateType, rules: Merging) -> bool {
    let types = [one, other];
    one == other
        || match rules {
            Merging::AllButIsolated => !types.contains(&MigrateType::Isolate),
            Merging::Requestable => types.into_iter().all(MigrateType::is_requestable),
        }
}

/// Whether a free block of `order` starts at `pfn`, in the zone of the frame `near`; `page_is_buddy`.
#[inline]
fn is_free_near(frames: &FrameTable, pfn: Pfn, order: Order, near: Pfn) -> bool {
    frames.is_free(pfn, order) && (order < frames.blocks.order() || frames.blocks.zone(pfn) == frames.blocks.zone(near))
}
