//! Linux: none; LLFree, Wrenger et al., "LLFree: Scalable and Optionally-Persistent Page-Frame Allocation" (USENIX ATC 2023).
//! Differs: one task at a time, so nothing is retried; nothing is persistent; searches begin at the last tree, not at its cache
//! line, and take a half-full tree anywhere before a free one nearby.
//!
//! A page allocator without locks and without lists, by its published design. Frames of a zone are grouped twice:
//!
//! - An **area** is 512 frames: a bit for each, and a counter of those that are free. An allocation of order 9 takes an area
//!   by its counter and leaves its bits alone; one of order 10 takes two neighbours that are a pair.
//! - A **tree** is 32 areas (64 MiB), with a counter of its own. Each CPU *reserves* a tree: the counter becomes the CPU's, and
//!   the CPU allocates from that tree until it is used up. Then it reserves another: a half-full tree rather than one that is
//!   almost free, that rather than one that is almost allocated, and of these the one nearest to its last tree.
//!
//! A free goes to the area that the frames came from. It is counted by the CPU if the tree is its own, and else by the tree: the
//! tree's CPU takes such frames over when it runs out, if they are many. A CPU that frees to a tree which no CPU has, as it did
//! the last four times, reserves that tree.
//!
//! There are no migrate types, no lists of CPUs and no reserves. `primitive.rs` says which work is priced.

mod area;
mod areas;
mod check;
mod primitive;
mod trees;

use units::{CpuId, Order, Pfn};

use self::{
    area::{AREA, Counter, ROW, TREE},
    areas::Areas,
    trees::{Among, FEW, Fill, Reservation, SCATTERED, Trees, USED_UP, fill},
};
use crate::{
    buddy::{Block, ORDERS},
    cx::Cx,
};

/// The frames of one zone.
#[derive(Clone, Debug)]
pub struct LlFree {
    start: Pfn,
    end: Pfn,
    /// The first frame of the first area; orders are aligned from here as they are from frame 0.
    base: Pfn,
    areas: Areas,
    trees: Trees,
    /// The tree of each CPU, by CPU number.
    reserved: Vec<Reservation>,
    /// Free frames: kept for callers that ask often, and no part of the design.
    free: u64,
}

/// How an allocation from the CPU's own tree has ended.
enum Own {
    Taken(u32),
    /// The tree has no more frames, or the CPU has none.
    UsedUp,
    /// The tree has frames enough, but they are not a run.
    Scattered,
}

impl LlFree {
    /// The largest order.
    pub const MAX_ORDER: Order = Order(10);

    /// An allocator of the frames from `start` up to `end`, which are allocated until they are [released](Self::release).
    pub fn new(start: Pfn, end: Pfn, cpus: u32) -> Self {
        assert!(start <= end && cpus > 0, "frames {start} to {end} for {cpus} CPUs are no zone");
        let base = start.align_down(Self::MAX_ORDER);
        let areas = (end.0 - base.0).div_ceil(AREA);
        Self {
            start,
            end,
            base,
            areas: Areas::new(areas as usize),
            trees: Trees::new(areas * AREA),
            reserved: vec![Reservation::default(); cpus as usize],
            free: 0,
        }
    }

    /// Gives frames to the allocator when the kernel boots, at no price.
    pub fn release(&mut self, start: Pfn, end: Pfn) {
        assert!(self.start <= start && end <= self.end, "frames {start} to {end} are not all of the zone");
        let (mut at, end) = (start.0 - self.base.0, end.0 - self.base.0);
        // Bound: each turn releases a frame at least.
        while at < end {
            let largest = at.trailing_zeros().min((end - at).ilog2()).min(Order::HUGE.0.into());
            let order = Order(u8::try_from(largest).expect("at most that of an area"));
            self.areas.release(at, order);
            self.trees.each[(at / TREE) as usize].free += order.frames();
            self.free += u64::from(order.frames());
            at += order.frames();
        }
    }

    /// Allocates a run of `order` for the step's CPU.
    #[inline]
    pub fn alloc(&mut self, cx: &mut Cx<'_>, order: Order) -> Option<Pfn> {
        assert!(order <= Self::MAX_ORDER, "order {order} is beyond the largest");
        let found = match self.take_own(cx, order) {
            Own::Taken(at) => Some(at),
            Own::UsedUp => self.take_elsewhere(cx, order, USED_UP),
            Own::Scattered => self.take_elsewhere(cx, order, SCATTERED),
        }?;
        self.free -= u64::from(order.frames());
        primitive::allocate(cx);
        Some(self.base.plus(found))
    }

    /// Takes a run from the tree that the CPU has.
    #[inline]
    fn take_own(&mut self, cx: &mut Cx<'_>, order: Order) -> Own {
        let own = &mut self.reserved[cx.cpu().0 as usize];
        let Some(tree) = own.tree else { return Own::UsedUp };
        if own.free < order.frames() {
            // Frames that other CPUs have freed: few are not worth staying for.
            let more = self.trees.each[tree as usize].free;
            if own.free + more <= FEW {
                return Own::UsedUp;
            }
            self.trees.change(cx, tree).free = 0;
            own.free += more;
        }
        let Some(at) = self.areas.take_first(cx, own.row, order) else { return Own::Scattered };
        own.free -= order.frames();
        own.row = at / ROW;
        Own::Taken(at)
    }

    /// Takes a run from another tree, which becomes the CPU's; from any tree, and all CPUs lose theirs, if there is no other way.
    #[cold]
    fn take_elsewhere(&mut self, cx: &mut Cx<'_>, order: Order, searches: [Among; 3]) -> Option<u32> {
        if self.free < u64::from(order.frames()) {
            return None;
        }
        let own = self.reserved[cx.cpu().0 as usize];
        let cpus = u32::try_from(self.reserved.len()).expect("fewer than 2^32 CPUs");
        // CPUs begin far from each other.
        let start = own.tree.unwrap_or(self.trees.count() / cpus * cx.cpu().0);
        let found = searches.into_iter().find_map(|among| self.reserve_and_take(cx, order, start, among));
        found.or_else(|| {
            self.drain(cx);
            self.reserve_and_take(cx, order, start, Among::Any)
        })
    }

    /// Reserves the nearest tree of a search that has such a run, and takes that.
    fn reserve_and_take(&mut self, cx: &mut Cx<'_>, order: Order, start: u32, among: Among) -> Option<u32> {
        // Bound: each tree once.
        for n in 0..self.trees.count() {
            let tree = self.trees.nth_from(start, n);
            if self.trees.is_among(tree, among, order)
                && let Some(at) = self.areas.take_first(cx, tree * (TREE / ROW), order)
            {
                self.trees.change(cx, tree).free -= order.frames();
                self.reserve(cx, tree, at / ROW);
                return Some(at);
            }
        }
        None
    }

    /// Makes a tree the CPU's, instead of the one that it had.
    fn reserve(&mut self, cx: &mut Cx<'_>, tree: u32, row: u32) {
        let cpu = cx.cpu();
        self.give_up(cx, cpu);
        let own = &mut self.reserved[cpu.0 as usize];
        let reserved = self.trees.change(cx, tree);
        (own.tree, own.free, own.row) = (Some(tree), std::mem::take(&mut reserved.free), row);
        reserved.cpu = Some(cpu);
    }

    /// Takes a CPU's tree away from it.
    fn give_up(&mut self, cx: &mut Cx<'_>, cpu: CpuId) {
        let own = &mut self.reserved[cpu.0 as usize];
        if let Some(tree) = own.tree.take() {
            let reserved = self.trees.change(cx, tree);
            reserved.free += std::mem::take(&mut own.free);
            reserved.cpu = None;
        }
    }

    /// Takes the trees of all CPUs away from them.
    pub fn drain(&mut self, cx: &mut Cx<'_>) {
        for cpu in 0..self.reserved.len() {
            self.give_up(cx, CpuId(u32::try_from(cpu).expect("fewer than 2^32 CPUs")));
        }
    }

    /// Frees a run: one that was allocated so, or part of a larger one, or several that fill it.
    #[inline]
    pub fn free(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) {
        let at = self.place_of(pfn, order);
        self.areas.give(cx, at, order);
        self.free += u64::from(order.frames());
        primitive::free(cx);
        let tree = at / TREE;
        let own = &mut self.reserved[cx.cpu().0 as usize];
        if own.tree == Some(tree) {
            own.free += order.frames();
            own.note_free(tree);
            return;
        }
        let counted = self.trees.change(cx, tree);
        counted.free += order.frames();
        let is_worth_it = counted.cpu.is_none() && fill(counted.free, TREE) != Fill::AlmostAllocated;
        if is_worth_it && own.frees_to(tree) {
            return self.reserve(cx, tree, tree * (TREE / ROW));
        }
        own.note_free(tree);
    }

    /// Allocates a given run, for who needs the frames of one place; false, and nothing happens, if one of them is not free.
    pub fn take_at(&mut self, cx: &mut Cx<'_>, pfn: Pfn, order: Order) -> bool {
        let at = self.place_of(pfn, order);
        if !self.areas.is_free(at, order) {
            return false;
        }
        self.areas.take(cx, at, order);
        self.free -= u64::from(order.frames());
        primitive::allocate(cx);
        let tree = self.trees.change(cx, at / TREE);
        let counted = tree.free.min(order.frames());
        tree.free -= counted;
        if let Some(cpu) = tree.cpu {
            self.reserved[cpu.0 as usize].free -= order.frames() - counted;
        }
        true
    }

    /// Free frames.
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.free
    }

    /// Is this frame free?
    pub fn is_free(&self, pfn: Pfn) -> bool {
        (self.start..self.end).contains(&pfn) && self.areas.is_free(pfn.0 - self.base.0, Order::BASE)
    }

    /// Areas whose frames are all free: how many allocations of order 9 there is room for.
    pub fn free_areas(&self) -> u64 {
        self.areas.counters.iter().map(|counter| u64::from(counter.free() / AREA)).sum()
    }

    /// Free blocks by order, each counted once, at the largest order that it is part of (/proc/buddyinfo).
    pub fn free_blocks(&self) -> [u64; ORDERS] {
        let mut blocks = [0; ORDERS];
        self.visit_free(|_, order| blocks[usize::from(order.0)] += 1);
        blocks
    }

    /// Free blocks of one order, counted likewise; of the two largest orders by counters alone.
    pub fn free_blocks_of(&self, order: Order) -> u64 {
        if order < Order::HUGE {
            return self.free_blocks()[usize::from(order.0)];
        }
        let pairs = self.areas.counters.chunks_exact(2).filter(|pair| **pair == [Counter::FREE; 2]).count() as u64;
        if order == Self::MAX_ORDER { pairs } else { self.free_areas() - 2 * pairs }
    }

    /// Goes through these blocks, from the start of the zone on.
    pub fn visit_free(&self, mut visit: impl FnMut(Pfn, Order)) {
        self.areas.visit_free(Self::MAX_ORDER, |Block { pfn, order }| visit(self.base.plus(pfn.0), order));
    }

    /// Where a run is, counted from the base.
    #[inline]
    fn place_of(&self, pfn: Pfn, order: Order) -> u32 {
        let is_inside = self.start <= pfn && pfn.0 + order.frames() <= self.end.0;
        assert!(is_inside && pfn.is_aligned(order), "frame {pfn} begins no block of order {order} in this zone");
        pfn.0 - self.base.0
    }
}

#[cfg(test)]
mod tests;
