//! Linux: mm/page_alloc.c (v3.9 to v6.1).
//! Differs: `high` and the refill batch of 6.7 and later are not tuned at run time: `high` stays at its lower bound and
//! frees follow the rules of 6.1; 6.10 and later keep huge pages on two lists, here on one; no CPU hotplug; no drains but
//! those of a full list.

use units::{CpuId, Order, Pfn};

use crate::{
    buddy::{Block, Buddy},
    cost::{Cx, Work},
    fallback::Want,
    frame::{Frame, FrameTable},
    list::List,
    pageblock::MigrateType,
    pcp::{PcpHigh, PcpLimits},
    variant::{PcpDrain, PcpFree, PcpLists, Variant},
};

/// Types that have lists here (`MIGRATE_PCPTYPES`).
const TYPES: usize = 3;
/// Orders up to this one have lists here, besides huge pages.
// PAGE_ALLOC_COSTLY_ORDER, include/linux/mmzone.h (v6.1).
const COSTLY: Order = Order(3);
/// Blocks that a refill draws at least, where batches are larger than one frame.
// __rmqueue_pcplist, mm/page_alloc.c (v6.1).
const LEAST_REFILL: u32 = 2;
/// Orders 0 to 3 and huge pages, by type.
const LISTS: usize = TYPES * (COSTLY.0 as usize + 2);

/// One CPU's lists of one zone.
#[derive(Clone, Debug)]
pub struct Pcp {
    lists: [List; LISTS],
    /// Frames on all of them.
    count: u32,
    batch: u32,
    high: u32,
    /// How often in a row it gave back; each doubles the amount.
    free_factor: u8,
}

/// Where a list draws from and gives back to.
pub(crate) struct Source<'a> {
    pub(crate) buddy: &'a mut Buddy,
    pub(crate) frames: &'a mut FrameTable,
    pub(crate) rules: &'a Variant,
    pub(crate) cpu: CpuId,
    /// One past the last frame of the zone.
    pub(crate) end: Pfn,
}

/// Do per-CPU lists hold blocks of this order? `pcp_allowed_order`.
#[inline]
pub fn holds(rules: PcpLists, order: Order, pageblock: Order) -> bool {
    match rules {
        PcpLists::BaseReclaimableFirst | PcpLists::Base => order == Order::BASE,
        PcpLists::HugeByType | PcpLists::HugeTogether => order <= COSTLY || order == pageblock,
    }
}

/// How many lists there are.
fn lists(rules: PcpLists) -> usize {
    match rules {
        PcpLists::BaseReclaimableFirst | PcpLists::Base => TYPES,
        PcpLists::HugeByType => LISTS,
        PcpLists::HugeTogether => LISTS - TYPES + 1,
    }
}

/// The list for a block of `order` that goes back to the free list `list`; `order_to_pindex`.
#[inline]
fn index(rules: PcpLists, order: Order, list: MigrateType) -> usize {
    let reclaimable_first = usize::from(rules == PcpLists::BaseReclaimableFirst);
    let by_type = match list {
        MigrateType::Unmovable => 0,
        MigrateType::Reclaimable => 2 - reclaimable_first,
        _ => 1 + reclaimable_first,
    };
    match rules {
        _ if order <= COSTLY => usize::from(order.0) * TYPES + by_type,
        PcpLists::HugeTogether => LISTS - TYPES,
        _ => LISTS - TYPES + by_type,
    }
}

impl Pcp {
    pub(crate) fn new(limits: PcpLimits) -> Self {
        let mut pcp = Self { lists: [List::default(); LISTS], count: 0, batch: 0, high: 0, free_factor: 0 };
        pcp.set_limits(limits);
        pcp
    }

    /// Takes over new limits (`pageset_update`).
    pub(crate) fn set_limits(&mut self, limits: PcpLimits) {
        let high = match limits.high {
            PcpHigh::Fixed(high) => high,
            PcpHigh::Tuned { min, .. } => min,
        };
        let [batch, high] = [limits.batch, high].map(|frames| u32::try_from(frames.0).unwrap_or(u32::MAX));
        (self.batch, self.high) = (batch, high);
    }

    /// Frames on all the lists.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its lists, those of one order after those of the order below.
    pub fn lists(&self) -> &[List] {
        &self.lists
    }

    /// The list of blocks of `order` that go back to the free list `list`.
    pub fn list(&self, rules: PcpLists, order: Order, list: MigrateType) -> &List {
        &self.lists[index(rules, order, list)]
    }

    /// Takes the block at the head of the list, which is refilled if it is empty; `rmqueue_pcplist`.
    pub(crate) fn take(&mut self, from: &mut Source<'_>, cx: &mut Cx<'_>, want: Want) -> Option<Pfn> {
        let at = index(from.rules.pcp_lists, want.order, want.list);
        if self.lists[at].is_empty() {
            self.refill(from, cx, want, at);
            if self.lists[at].is_empty() {
                self.free_factor >>= 1;
                return None;
            }
        }
        self.take_listed(from.frames, cx, want.order, want.list, from.rules.pcp_lists)
    }

    /// Takes the block at the head of the list, if there is one.
    #[inline]
    pub(crate) fn take_listed(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        order: Order,
        list: MigrateType,
        rules: PcpLists,
    ) -> Option<Pfn> {
        let pfn = self.lists[index(rules, order, list)].pop_head(frames.threads())?;
        self.free_factor >>= 1;
        self.count -= order.frames();
        cx.work(Work::AllocFast, 1);
        Some(pfn)
    }

    /// Draws up to a batch of blocks, under one hold of the zone's lock; `rmqueue_bulk`.
    fn refill(&mut self, from: &mut Source<'_>, cx: &mut Cx<'_>, want: Want, at: usize) {
        let blocks = if self.batch > 1 { (self.batch >> want.order.0).max(LEAST_REFILL) } else { 1 };
        from.buddy.lock(cx);
        let mut left = blocks;
        // Bound: each turn draws a block at least.
        while left > 0 {
            let run = from.buddy.take_run(from.frames, cx, want.order, want.list, left);
            let run = run.map(|(first, count)| (first, count, want.list)).or_else(|| {
                let (pfn, list) = from.buddy.take_or_fall_back(from.frames, cx, want, from.end, from.rules)?;
                Some((pfn, 1, list))
            });
            let Some((first, count, list)) = run else { break };
            for pfn in (0..count).map(|n| first.plus(n << want.order.0)) {
                from.frames.set(pfn, Frame::Pcp { cpu: from.cpu, order: want.order, list });
                self.lists[at].push_tail(from.frames.threads(), pfn);
            }
            self.count += count << want.order.0;
            left -= count;
        }
        from.buddy.unlock(cx);
    }

    /// Puts a block at the head of its list; `free_unref_page_commit`. Says whether that makes too many.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for single frames, once for all others")]
    pub(crate) fn put(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        block: Block,
        list: MigrateType,
        rules: &Variant,
    ) -> bool {
        frames.set(block.pfn, Frame::Pcp { cpu: cx.cpu(), order: block.order, list });
        self.lists[index(rules.pcp_lists, block.order, list)].push_head(frames.threads(), block.pfn);
        self.count += block.order.frames();
        cx.work(Work::FreeFast, 1);
        self.count >= self.high || self.gives_all(block.order, rules.pcp_free)
    }

    /// Is everything given back, because larger blocks are freed in a row?
    #[inline]
    fn gives_all(&self, order: Order, rules: PcpFree) -> bool {
        order > Order::BASE && order <= COSTLY && self.free_factor > 0 && rules == PcpFree::DoublingAllOfHigh
    }

    /// Gives back some, after a block of `order` that goes back to the free list `list` made too many.
    #[inline(never)]
    pub(crate) fn give_back(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, order: Order, list: MigrateType) {
        let rules = to.rules;
        let all = self.gives_all(order, rules.pcp_free);
        let frames = if all { self.count } else { self.excess(rules.pcp_free) };
        self.drain(to, cx, frames.min(self.count), index(rules.pcp_lists, order, list));
    }

    /// How many frames to give back; `nr_pcp_free`.
    fn excess(&mut self, rules: PcpFree) -> u32 {
        if rules == PcpFree::Batch {
            return self.batch;
        }
        if self.high < self.batch {
            return 1;
        }
        let most = self.high - self.batch;
        let doubled = self.batch << self.free_factor;
        if doubled < most {
            self.free_factor += 1;
        }
        doubled.max(self.batch).min(most)
    }

    /// Gives back all of them.
    pub(crate) fn drain_all(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>) {
        if self.count > 0 {
            self.drain(to, cx, self.count, 0);
        }
    }

    /// Gives back at least `frames` frames, under one hold of the zone's lock; `free_pcppages_bulk`.
    fn drain(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, frames: u32, requested: usize) {
        to.buddy.lock(cx);
        match to.rules.pcp_drain {
            PcpDrain::RequestedFirst => {
                let mut left = frames;
                let lists = lists(to.rules.pcp_lists);
                for at in (0..lists).map(|turn| (requested + turn) % lists) {
                    while left > 0 && !self.lists[at].is_empty() {
                        left = left.saturating_sub(self.give_back_last(to, cx, at));
                    }
                }
            }
            PcpDrain::RoundRobin => self.drain_in_turn(to, cx, frames),
        }
        to.buddy.unlock(cx);
    }

    /// One block from a list, and one more for each empty list passed on the way to it.
    fn drain_in_turn(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, frames: u32) {
        let lists = lists(to.rules.pcp_lists);
        let (mut left, mut at, mut share) = (frames, 0, 0);
        // Each round gives back at least one block, and the lists hold at least `left` frames.
        while left > 0 {
            let passed = (1..=lists).find(|turn| !self.lists[(at + turn) % lists].is_empty());
            let passed = passed.expect("what is left is on some list");
            at = (at + passed) % lists;
            share += u32::try_from(passed).expect("there are few lists");
            if share as usize >= lists {
                share = left; // no other list has any
            }
            while share > 0 && left > 0 && !self.lists[at].is_empty() {
                left = left.saturating_sub(self.give_back_last(to, cx, at));
                share -= 1;
            }
        }
    }

    /// Gives back the block at the tail of a list and returns its frames.
    fn give_back_last(&mut self, to: &mut Source<'_>, cx: &mut Cx<'_>, at: usize) -> u32 {
        let pfn = self.lists[at].pop_tail(to.frames.threads()).expect("the list is not empty");
        let (order, list) = to.frames.leave_pcp(pfn);
        self.count -= order.frames();
        to.buddy.give(to.frames, cx, Block { pfn, order }, list, None, to.rules);
        order.frames()
    }
}
