//! Linux: none; the fragmentation benchmark of LLFree, Wrenger et al. (USENIX ATC 2023), as a module in the kernel.
//! Differs: CPUs take turns instead of running at once, so nobody waits.
//!
//! A module that allocates frames by itself: all memory is filled, some of it is freed at random, and then frames that are drawn
//! are freed and others taken for them, round after round. After each round it counts the free blocks of 2 MiB. In the end
//! everything is given back.

use rules::{
    gfp::{Mobility, Urgency},
    variant::{ListEnd, Variant},
};
use units::{CpuId, FrameChurn, FrameChurned, Order, PageAllocator, Pfn, Time};

use crate::{
    Memory,
    buddy::Block,
    cost::{Prices, Spent},
    cx::Cx,
    event::Counters,
    fallback::Want,
    frame::{Frame, FrameTable},
    frame_allocator::FrameAllocator,
    llfree::LlFree,
    pageblock::MigrateType,
    per_zone::PerZone,
    splitmix::{SPLITMIX_STEP, mix},
    zone_state::ZoneState,
};

/// Blocks that a CPU allocates, frees or replaces before it is another CPU's turn. Ours: a few microseconds of work.
const TURN: usize = 32;

impl Memory {
    /// Runs the module from `now` on; says what it found, and what its CPUs spent together.
    ///
    /// # Panics
    /// When an allocator breaks an invariant.
    pub fn churn_frames(
        &mut self,
        churn: &FrameChurn,
        now: Time,
        prices: &Prices,
        counters: &mut Counters,
    ) -> (FrameChurned, Spent) {
        let mut clock = Clock { now, spent: Spent::default(), prices, counters };
        let Self { frames, zones, variant, .. } = self;
        for zone in zones.iter_mut() {
            clock.turn(0, |cx| FrameAllocator::drain(zone, frames, cx, variant));
        }
        let found = match churn.allocator {
            PageAllocator::Linux => {
                let zones = zones.iter_mut().map(|zone| (zone.start, zone.end, zone)).rev().collect();
                Module::new(frames, zones, variant, churn, &mut clock).run()
            }
            PageAllocator::Llfree => {
                let mut own = shadows(frames, zones, churn.cpus);
                let zones = own.iter_mut().map(|(start, end, all)| (*start, *end, all)).rev().collect();
                Module::new(frames, zones, variant, churn, &mut clock).run()
            }
        };
        (found, clock.spent)
    }

    /// Allocates and frees a frame `pairs` times, each time with the highest zone's allocator: for measurements of this program.
    pub fn pairs_of(&mut self, allocator: PageAllocator, cx: &mut Cx<'_>, pairs: u32) {
        let Self { frames, zones, variant, .. } = self;
        match allocator {
            PageAllocator::Linux => {
                pairs_of(zones.iter_mut().last().expect("there is a zone"), frames, cx, pairs, variant);
            }
            PageAllocator::Llfree => {
                let mut own = shadows(frames, zones, cx.cpu().0 + 1);
                let (_, _, all) = own.last_mut().expect("there is a zone");
                pairs_of(all, frames, cx, pairs, variant);
            }
        }
    }
}

fn pairs_of<A: FrameAllocator>(
    allocator: &mut A,
    frames: &mut FrameTable,
    cx: &mut Cx<'_>,
    pairs: u32,
    rules: &Variant,
) {
    for _ in 0..pairs {
        let request = (want(Order::BASE), ListEnd::Head);
        let pfn = allocator.take(frames, cx, request, Urgency::Normal, rules).expect("there is memory");
        let block = Block { pfn, order: Order::BASE };
        allocator.give(frames, cx, block, (MigrateType::Movable, ListEnd::Head), rules);
    }
}

/// LLFree for each zone, with the frames that are free there.
fn shadows(frames: &FrameTable, zones: &PerZone<ZoneState>, cpus: u32) -> Vec<(Pfn, Pfn, LlFree)> {
    let shadow = |zone: &ZoneState| {
        let mut all = LlFree::new(zone.start, zone.end, cpus);
        zone.visit_free(frames, |Block { pfn, order }| all.release(pfn, pfn.plus(order.frames())));
        (zone.start, zone.end, all)
    };
    zones.iter().map(shadow).collect()
}

/// User memory: it can be moved.
fn want(order: Order) -> Want {
    let list = MigrateType::of(Mobility::Movable);
    Want { order, list, whole_blocks_only: false, stalls: false, wakes_kswapd: false }
}

/// The time of the CPUs, of which one at a time acts.
struct Clock<'a> {
    now: Time,
    spent: Spent,
    prices: &'a Prices,
    counters: &'a mut Counters,
}

impl Clock<'_> {
    fn turn<T>(&mut self, cpu: u32, body: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(CpuId(cpu), self.now, self.prices, self.counters);
        let result = body(&mut cx);
        self.now = cx.now();
        self.spent.add(cx.spent());
        result
    }
}

/// The module as it runs.
struct Module<'a, 'b, A> {
    clock: &'a mut Clock<'b>,
    /// Turns so far.
    turns: u32,
    blocks: Blocks<'a, A>,
}

/// The blocks that the module has, and the allocators that it has them from.
struct Blocks<'a, A> {
    frames: &'a mut FrameTable,
    /// First frame, one past the last, and allocator of each zone; those that requests try first come first.
    zones: Vec<(Pfn, Pfn, &'a mut A)>,
    rules: &'a Variant,
    churn: &'a FrameChurn,
    held: Vec<Pfn>,
    /// State of the stream of numbers.
    drawn: u64,
}

impl<'a, 'b, A: FrameAllocator> Module<'a, 'b, A> {
    fn new(
        frames: &'a mut FrameTable,
        zones: Vec<(Pfn, Pfn, &'a mut A)>,
        rules: &'a Variant,
        churn: &'a FrameChurn,
        clock: &'a mut Clock<'b>,
    ) -> Self {
        assert!(churn.cpus > 0 && churn.kept <= 100 && churn.at_once > 0, "{churn:?} is no work");
        let blocks = Blocks { frames, zones, rules, churn, held: Vec::new(), drawn: mix(churn.seed) };
        Self { clock, turns: 0, blocks }
    }

    fn run(mut self) -> FrameChurned {
        let free = self.blocks.free_frames();
        let mut found = FrameChurned::default();
        self.fill();
        found.filled = self.blocks.held.len() as u64;
        found.free_huge_full = self.blocks.free_huge();
        self.blocks.shuffle();
        self.free_down_to(found.filled * u64::from(self.blocks.churn.kept) / 100);
        found.kept = self.blocks.held.len() as u64;
        found.free_huge.push(self.blocks.free_huge());
        for _ in 0..self.blocks.churn.rounds {
            self.replace_some();
            found.free_huge.push(self.blocks.free_huge());
        }
        self.blocks.check();
        self.free_down_to(0);
        self.turn(Blocks::drain);
        self.blocks.check();
        assert_eq!(self.blocks.free_frames(), free, "frames that were free are not free again");
        found
    }

    /// Takes all there is, also of what CPUs keep for themselves.
    fn fill(&mut self) {
        let mut is_drained = false;
        // Bound: the blocks there are; each turn gets one, but for those after which CPUs are drained.
        loop {
            let before = self.blocks.held.len();
            self.turn(|blocks, cx| blocks.take_more(cx, TURN));
            if self.blocks.held.len() > before {
                is_drained = false;
            } else if is_drained {
                return;
            } else {
                self.turn(Blocks::drain);
                is_drained = true;
            }
        }
    }

    fn free_down_to(&mut self, kept: u64) {
        let kept = usize::try_from(kept).expect("fewer than there are frames");
        // Bound: each turn frees a block at least.
        while self.blocks.held.len() > kept {
            self.turn(|blocks, cx| {
                for _ in 0..TURN.min(blocks.held.len() - kept) {
                    let pfn = blocks.held.pop().expect("more are held");
                    blocks.give(cx, pfn);
                }
            });
        }
    }

    /// Replaces blocks that are drawn.
    fn replace_some(&mut self) {
        let at_once = self.blocks.churn.at_once as usize;
        let mut left = self.blocks.held.len() * self.blocks.churn.replaced as usize / 100;
        // Bound: each turn replaces a block at least.
        while left > 0 {
            let more = left.min(TURN.max(at_once));
            left -= more;
            self.turn(|blocks, cx| {
                for at in (0..more).step_by(at_once) {
                    blocks.replace(cx, at_once.min(more - at));
                }
            });
        }
    }

    /// Lets the next CPU do something.
    fn turn(&mut self, body: impl FnOnce(&mut Blocks<'a, A>, &mut Cx<'_>)) {
        let cpu = self.turns % self.blocks.churn.cpus;
        self.turns = self.turns.wrapping_add(1);
        self.clock.turn(cpu, |cx| body(&mut self.blocks, cx));
    }
}

impl<A: FrameAllocator> Blocks<'_, A> {
    /// Puts the blocks into an order that is drawn.
    fn shuffle(&mut self) {
        for at in (1..self.held.len()).rev() {
            let other = self.draw(at + 1);
            self.held.swap(at, other);
        }
    }

    /// Frees `count` blocks that are drawn, then takes as many.
    fn replace(&mut self, cx: &mut Cx<'_>, count: usize) {
        let count = count.min(self.held.len());
        for _ in 0..count {
            let at = self.draw(self.held.len());
            let pfn = self.held.swap_remove(at);
            self.give(cx, pfn);
        }
        self.take_more(cx, count);
    }

    /// Takes up to `count` blocks.
    fn take_more(&mut self, cx: &mut Cx<'_>, count: usize) {
        for _ in 0..count {
            let Some(pfn) = self.take(cx) else { return };
            self.held.push(pfn);
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>) -> Option<Pfn> {
        let Self { frames, zones, rules, churn, .. } = self;
        let request = (want(churn.order), ListEnd::Head);
        let mut zones = zones.iter_mut();
        let pfn = zones.find_map(|(_, _, allocator)| allocator.take(frames, cx, request, Urgency::Normal, rules))?;
        if A::OFFERS.marked_blocks {
            frames.set(pfn, Frame::Kernel { order: churn.order, mobility: Mobility::Movable });
        }
        Some(pfn)
    }

    fn give(&mut self, cx: &mut Cx<'_>, pfn: Pfn) {
        let zone = self.zones.iter_mut().find(|(start, end, _)| (*start..*end).contains(&pfn));
        let (_, _, allocator) = zone.expect("a block that was taken is in a zone");
        let list = self.frames.blocks.zone_and_type(pfn).1;
        let block = Block { pfn, order: self.churn.order };
        allocator.give(self.frames, cx, block, (list, ListEnd::Head), self.rules);
    }

    fn drain(&mut self, cx: &mut Cx<'_>) {
        for (_, _, allocator) in &mut self.zones {
            allocator.drain(self.frames, cx, self.rules);
        }
    }

    /// Free blocks of 2 MiB, those in larger ones too.
    fn free_huge(&self) -> u64 {
        let of = |(_, _, allocator): &(Pfn, Pfn, &mut A)| -> u64 {
            let orders = (Order::HUGE.0..=allocator.max_order().0).map(Order);
            orders.map(|order| allocator.free_blocks(order, None) << (order.0 - Order::HUGE.0)).sum()
        };
        self.zones.iter().map(of).sum()
    }

    fn free_frames(&self) -> u64 {
        self.zones.iter().map(|(_, _, allocator)| allocator.free_frames()).sum()
    }

    fn check(&self) {
        for (start, end, allocator) in &self.zones {
            let mut held = self.held.iter().filter(|pfn| (*start..*end).contains(pfn));
            let free = held.find(|pfn| allocator.is_free(self.frames, **pfn));
            assert!(free.is_none(), "{free:?} was taken, and is free");
            let checked = allocator.check(self.frames);
            assert!(checked.is_ok(), "the zone from frame {start} on is broken: {checked:?}");
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.drawn = self.drawn.wrapping_add(SPLITMIX_STEP);
        usize::try_from(mix(self.drawn) % below as u64).expect("below a length")
    }
}

#[cfg(test)]
mod tests;
