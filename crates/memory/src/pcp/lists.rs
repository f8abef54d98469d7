//! Linux: mm/page_alloc.c (v3.9 to v6.1).
//! Differs: `high` and the refill batch of 6.7 and later are not tuned at run time: `high` stays at its lower bound and frees
//! follow the rules of 6.1; 6.10 and later keep huge pages on two lists, here on one; no CPU hotplug; only a full list is
//! drained.

use std::mem::offset_of;

use rules::{
    gfp::{COSTLY, Mobility},
    variant::{ListEnd, PcpDrain, PcpFree, PcpLists, Variant},
};
use units::{CpuId, Order, Pfn};

use crate::{
    buddy::{Block, Buddy},
    cost::Work,
    cx::Cx,
    event::Event,
    fallback::Want,
    frame::{Frame, FrameTable},
    pageblock::MigrateType,
    pcp::{PcpHigh, PcpLimits, stack::Stack},
};

/// Number of types that have per-CPU lists (`MIGRATE_PCPTYPES`).
const TYPES: usize = 3;
/// Fewest blocks that a refill draws, if the batch is larger than one frame.
// __rmqueue_pcplist, mm/page_alloc.c (v6.1).
const LEAST_REFILL: u32 = 2;
/// Batches of frames that a CPU may keep while kswapd reclaims the zone.
// nr_pcp_high, mm/page_alloc.c (v5.14): batch << 2.
const BATCHES_IN_RECLAIM: u32 = 4;
/// Number of lists: orders 0 to 3 and huge pages, by type.
const LISTS: usize = TYPES * (COSTLY.0 as usize + 2);

/// One CPU's lists of one zone. The counts and the list of movable base pages fill one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Pcp {
    /// Frames on all lists.
    count: u32,
    batch: u32,
    /// Frames at which the lists give some back, at present.
    high: u32,
    /// How many times in a row the lists gave frames back; each time doubles the number of frames.
    free_factor: u8,
    /// The event that an allocation counts: `numa_local` if the CPU is on the zone's node, else `numa_other`.
    locality: Event,
    /// The lists, indexed by [`place`].
    lists: [Stack; LISTS],
    /// The value of `high` while no task reclaims (`pcp->high`).
    high_at_rest: u32,
    /// kswapd reclaims for the zone (`ZONE_RECLAIM_ACTIVE`).
    yields: bool,
    /// The lists stay empty: another allocator has the zone's frames.
    keeps_nothing: bool,
}

const _: () = assert!(offset_of!(Pcp, lists) + (MigrateType::Movable as usize + 1) * size_of::<Stack>() <= 64);

/// The buddy allocator that a list is refilled from and gives back to.
pub(crate) struct Source<'a> {
    pub(crate) buddy: &'a mut Buddy,
    pub(crate) frames: &'a mut FrameTable,
    pub(crate) rules: &'a Variant,
    pub(crate) cpu: CpuId,
    /// One past the last frame of the zone.
    pub(crate) end: Pfn,
}

/// Whether per-CPU lists hold blocks of this order; `pcp_allowed_order`.
#[inline]
pub fn holds(rules: PcpLists, order: Order, pageblock: Order) -> bool {
    match rules {
        PcpLists::BaseReclaimableFirst | PcpLists::Base => order == Order::BASE,
        PcpLists::HugeByType | PcpLists::HugeTogether => order <= COSTLY || order == pageblock,
    }
}

/// Number of lists.
fn lists(rules: PcpLists) -> usize {
    match rules {
        PcpLists::BaseReclaimableFirst | PcpLists::Base => TYPES,
        PcpLists::HugeByType => LISTS,
        PcpLists::HugeTogether => LISTS - TYPES + 1,
    }
}

/// Index of the list for a block of `order` that goes back to the free list `list`; `order_to_pindex`.
#[inline]
fn place(rules: PcpLists, order: Order, list: MigrateType) -> usize {
    let by_type = if list.is_requestable() { list as usize } else { MigrateType::Movable as usize };
    match rules {
        _ if order <= COSTLY => usize::from(order.0) * TYPES + by_type,
        PcpLists::HugeTogether => LISTS - TYPES,
        _ => LISTS - TYPES + by_type,
    }
}

/// Index of the n-th list, in the order in which Linux counts and drains the lists; and the inverse.
fn nth(rules: PcpLists, n: usize) -> usize {
    const SWAPPED: [usize; 2] = [MigrateType::Movable as usize, MigrateType::Reclaimable as usize];
    match rules {
        PcpLists::BaseReclaimableFirst if SWAPPED.contains(&n) => SWAPPED[0] + SWAPPED[1] - n,
        _ => n,
    }
}

impl Pcp {
    pub(crate) fn new(limits: PcpLimits, is_local: bool) -> Self {
        let locality = if is_local { Event::NumaLocal } else { Event::NumaOther };
        let (count, batch, high, free_factor) = (0, 0, 0, 0);
        let (lists, high_at_rest, yields) = (Default::default(), 0, false);
        let keeps_nothing = false;
        let mut pcp = Self { count, batch, high, free_factor, locality, lists, high_at_rest, yields, keeps_nothing };
        pcp.set_limits(limits);
        pcp
    }

    /// Sets new limits (`pageset_update`).
    pub(crate) fn set_limits(&mut self, limits: PcpLimits) {
        let high = match limits.high {
            PcpHigh::Fixed(high) => high,
            PcpHigh::Tuned { min, .. } => min,
        };
        let [batch, high] = [limits.batch, high].map(|frames| u32::try_from(frames.0).unwrap_or(u32::MAX));
        (self.batch, self.high_at_rest) = (batch, high);
        self.set_yields(self.yields);
    }

    /// The lists stay empty, whatever the settings: another allocator has the zone's frames.
    pub(crate) fn never_keep(&mut self) {
        self.keeps_nothing = true;
        self.set_yields(self.yields);
    }

    /// Lowers `high` while kswapd reclaims the zone: the CPU keeps few frames and gives back the others as it frees
    /// (`nr_pcp_high`).
    pub(crate) fn set_yields(&mut self, yields: bool) {
        self.yields = yields;
        let least = self.batch.saturating_mul(BATCHES_IN_RECLAIM);
        self.high = if self.keeps_nothing {
            0
        } else if yields {
            self.high_at_rest.min(least)
        } else {
            self.high_at_rest
        };
    }

    /// Frames on all lists.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The lists in the order in which Linux counts them: by order, lowest first.
    pub fn lists(&self, rules: PcpLists) -> impl Iterator<Item = &Stack> {
        (0..LISTS).map(move |n| &self.lists[nth(rules, n)])
    }

    /// The lists, for tests that damage them.
    #[cfg(test)]
    pub fn lists_mut(&mut self) -> &mut [Stack] {
        &mut self.lists
    }

    /// The event that an allocation from these lists counts.
    #[inline]
    pub fn locality(&self) -> Event {
        self.locality
    }

    /// Takes the block at an end of a list, which is refilled if it is empty; `rmqueue_pcplist`.
    pub(crate) fn take(&mut self, from: &mut Source<'_>, cx: &mut Cx<'_>, want: Want, end: ListEnd) -> Option<Pfn> {
        let at = place(from.rules.pcp_lists, want.order, want.list);
        if self.lists[at].is_empty() {
            self.refill(from, cx, want, at, end);
        }
        let taken = match end {
            ListEnd::Head => self.lists[at].pop_head(),
            ListEnd::Tail => self.lists[at].pop_tail(),
        };
        self.free_factor >>= 1;
        if taken.is_some() {
            self.count -= want.order.frames();
            cx.work(Work::AllocFast, 1);
        }
        taken
    }

    /// Takes one frame, if the list of its type has any.
    #[inline]
    pub fn take_base(&mut self, cx: &mut Cx<'_>, mobility: Mobility) -> Option<Pfn> {
        let pfn = self.lists[MigrateType::of(mobility) as usize].pop_head()?;
        if self.free_factor > 0 {
            self.free_factor >>= 1;
        }
        // Frames on a list are in `count`, so that this does not wrap.
        self.count = self.count.wrapping_sub(1);
        cx.work(Work::AllocFast, 1);
        Some(pfn)
    }

    /// Draws up to a batch of blocks while holding the zone's lock once; `rmqueue_bulk`.
    fn refill(&mut self, from: &mut Source<'_>, cx: &mut Cx<'_>, want: Want, at: usize, end: ListEnd) {
        let blocks = if self.batch > 1 { (self.batch >> want.order.0).max(LEAST_REFILL) } else { 1 };
        from.buddy.lock(cx);
        let mut left = blocks;
        // Bound: each turn draws at least one block.
        while left > 0 {
            let run = from.buddy.take_run(from.frames, cx, want.order, want.list, left);
            let run = run.map(|(first, count)| (first, count, want.list)).or_else(|| {
                let (pfn, list) = from.buddy.take_or_fall_back(from.frames, cx, want, from.end, from.rules)?;
                Some((pfn, 1, list))
            });
            let Some((first, count, list)) = run else { break };
            for pfn in (0..count).map(|n| first.plus(n << want.order.0)) {
                from.frames.set(pfn, Frame::Pcp { cpu: from.cpu, order: want.order, list });
                self.lists[at].push_head(pfn);
            }
            self.count += count << want.order.0;
            left -= count;
        }
        // The list was empty, and the block that was drawn first is taken first, from either end.
        if end == ListEnd::Head {
            self.lists[at].reverse();
        }
        from.buddy.unlock(cx);
    }

    /// Puts a block at an end of its list; `free_unref_page_commit`. Says whether that makes too many.
    pub fn put(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        (list, end): (MigrateType, ListEnd),
        rules: &Variant,
    ) -> bool {
        frames.set(block.pfn, Frame::Pcp { cpu: cx.cpu(), order: block.order, list });
        let to = &mut self.lists[place(rules.pcp_lists, block.order, list)];
        match end {
            ListEnd::Head => to.push_head(block.pfn),
            ListEnd::Tail => to.push_tail(block.pfn),
        }
        self.count += block.order.frames();
        cx.work(Work::FreeFast, 1);
        self.count >= self.high || self.gives_all(block.order, rules.pcp_free)
    }

    /// Puts an allocated frame of a type that requests ask for on its list, if the lists stay below `high` and the list has
    /// room without growing. Else returns false and changes nothing.
    #[inline]
    pub(crate) fn put_base(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, pfn: Pfn, list: MigrateType) -> bool {
        let count = self.count + 1;
        if !list.is_requestable() || count >= self.high {
            return false;
        }
        let to = &mut self.lists[list as usize];
        let Some(slot) = to.next_slot() else { return false };
        if !frames.enter_pcp(pfn, cx.cpu(), list) {
            return false;
        }
        *slot = pfn;
        to.raise_head();
        self.count = count;
        cx.work(Work::FreeFast, 1);
        true
    }

    /// Whether the lists give back all frames, because larger blocks are freed in a row.
    #[inline]
    fn gives_all(&self, order: Order, rules: PcpFree) -> bool {
        order > Order::BASE && order <= COSTLY && self.free_factor > 0 && rules == PcpFree::DoublingAllOfHigh
    }

    /// Gives back frames, after a block of `order`, which goes back to the free list `list`, has filled the lists.
    #[inline(never)]
    pub(crate) fn give_back(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, order: Order, list: MigrateType) {
        let rules = to.rules;
        let all = self.gives_all(order, rules.pcp_free);
        let frames = if all { self.count } else { self.excess(rules) };
        let requested = nth(rules.pcp_lists, place(rules.pcp_lists, order, list));
        self.drain(to, cx, frames.min(self.count), requested);
    }

    /// Number of frames to give back; `nr_pcp_free`.
    fn excess(&mut self, rules: &Variant) -> u32 {
        if rules.pcp_free == PcpFree::Batch {
            return self.batch;
        }
        if self.high < self.batch {
            return 1;
        }
        let most = self.high - self.batch;
        let doubled = self.batch << self.free_factor;
        if doubled < most && u64::from(self.free_factor) < rules.pcp_doublings_max {
            self.free_factor += 1;
        }
        doubled.max(self.batch).min(most)
    }

    /// Gives back all frames.
    pub(crate) fn drain_all(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>) {
        if self.count > 0 {
            self.drain(to, cx, self.count, 0);
        }
    }

    /// Gives back at least `frames` frames while holding the zone's lock once; `free_pcppages_bulk`.
    fn drain(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, frames: u32, requested: usize) {
        to.buddy.lock(cx);
        match to.rules.pcp_drain {
            PcpDrain::RequestedFirst => {
                let mut left = frames;
                let lists = lists(to.rules.pcp_lists);
                for at in (0..lists).map(|turn| nth(to.rules.pcp_lists, (requested + turn) % lists)) {
                    while left > 0 && !self.lists[at].is_empty() {
                        left = left.saturating_sub(self.give_back_some(to, cx, at, left));
                    }
                }
            }
            PcpDrain::RoundRobin => self.drain_in_turn(to, cx, frames),
        }
        to.buddy.unlock(cx);
    }

    /// Gives back one block of a list, and one more for each empty list passed on the way to it.
    fn drain_in_turn(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, frames: u32) {
        let rules = to.rules.pcp_lists;
        let lists = lists(rules);
        let (mut left, mut turn, mut share) = (frames, 0, 0);
        // Each round gives back at least one block, and the lists hold at least `left` frames.
        while left > 0 {
            let passed = (1..=lists).find(|passed| !self.lists[nth(rules, (turn + passed) % lists)].is_empty());
            let passed = passed.expect("what is left is on some list");
            turn = (turn + passed) % lists;
            let at = nth(rules, turn);
            share += u32::try_from(passed).expect("there are few lists");
            if share as usize >= lists {
                share = left; // no other list has any frame
            }
            while share > 0 && left > 0 && !self.lists[at].is_empty() {
                let given = self.give_back_some(to, cx, at, left.min(share));
                left = left.saturating_sub(given);
                // The share is counted in blocks.
                share -= if at < TYPES { given } else { 1 };
            }
        }
    }

    /// Gives back the block at the tail of a list, or up to `most` blocks that merge into one larger block; returns the number
    /// of frames.
    fn give_back_some(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, at: usize, most: u32) -> u32 {
        if at < TYPES
            && to.buddy.capture.is_none()
            && let Some((block, list)) = self.leave_together(to.frames, at, most)
        {
            // Between these blocks nothing else is freed. Each but the last is listed and taken off again, all but the first
            // merge, and the last merges on with blocks outside. The intermediate halves are not shown.
            cx.work(Work::ListMove, 2 * u64::from(block.order.frames() - 1));
            to.buddy.give(to.frames, cx, block, list, None, to.rules);
            return block.order.frames();
        }
        let pfn = self.lists[at].pop_tail().expect("the list is not empty");
        let (order, list) = to.frames.leave_pcp(pfn);
        self.count -= order.frames();
        to.buddy.give(to.frames, cx, Block { pfn, order }, list, None, to.rules);
        order.frames()
    }

    /// Takes the base frames at the tail of a list that form one larger block, and go back to one free list.
    fn leave_together(&mut self, frames: &mut FrameTable, at: usize, most: u32) -> Option<(Block, MigrateType)> {
        let blocks = self.lists[at].blocks();
        let order = whole_block(blocks, most, frames.blocks.order());
        if order == Order::BASE {
            return None;
        }
        let block = Block { pfn: blocks[0].align_down(order), order };
        let list = frames.leave_pcp_together(block.pfn, order)?;
        self.lists[at].drop_tail(order.frames());
        self.count -= order.frames();
        Some((block, list))
    }
}

/// The largest block, smaller than a pageblock, that the first frames of `frames` form, at most `most` frames, in rising or
/// falling order.
fn whole_block(frames: &[Pfn], most: u32, pageblock: Order) -> Order {
    let most = u32::try_from(frames.len()).map_or(most, |len| len.min(most));
    let [first, second, ..] = *frames else { return Order::BASE };
    // Frames that were taken one after the other are freed in that order, or in reverse.
    let (rises, places) = match () {
        () if first.0 + 1 == second.0 => (true, first.0.trailing_zeros()),
        () if second.0 + 1 == first.0 => (false, (first.0 + 1).trailing_zeros()),
        () => return Order::BASE,
    };
    let order = places.min(most.max(1).ilog2()).min(u32::from(pageblock.0) - 1);
    let pairs = frames[..1 << order].windows(2);
    let follows = |pair: &&[Pfn]| if rises { pair[0].0 + 1 == pair[1].0 } else { pair[1].0 + 1 == pair[0].0 };
    let run = 1 + pairs.take_while(follows).count();
    Order(u8::try_from(run.ilog2()).expect("below 32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_at_the_tail_in_either_direction() {
        let order_of = |frames: &[u32], most| {
            let frames: Vec<Pfn> = frames.iter().map(|pfn| Pfn(*pfn)).collect();
            whole_block(&frames, most, Order(9)).0
        };
        assert_eq!(order_of(&[8, 9, 10, 11, 12], 63), 2);
        assert_eq!(order_of(&[11, 10, 9, 8, 7], 63), 2);
        assert_eq!(order_of(&[11, 10, 9, 8, 7], 3), 1, "as many as are given back");
        assert_eq!(order_of(&[11, 10, 9, 7], 63), 1);
        assert_eq!(order_of(&[9, 10, 11, 12], 63), 0, "9 and 10 are of two blocks");
        assert_eq!(order_of(&[10, 9, 8], 63), 0);
        assert_eq!(order_of(&[9, 8, 10, 11], 63), 1);
        assert_eq!(order_of(&[8], 63), 0);
        assert_eq!(order_of(&[7, 3], 63), 0);
        let pageblocks: Vec<u32> = (1024..2048).collect();
        assert_eq!(order_of(&pageblocks, 2000), 8, "whole pageblocks merge by their types");
    }
}
