//! Linux: none; LLFree's lower allocator, Wrenger et al. (USENIX ATC 2023).
//! Differs: see `area.rs`.

use units::{Order, Pfn};

use super::{
    area::{AREA, Bits, Counter, ROW, TREE_AREAS},
    primitive,
};
use crate::{buddy::Block, cx::Cx, line::CacheLine};

/// All areas, by number. Frames are numbered from the start of the first area on.
#[derive(Clone, Debug)]
pub(super) struct Areas {
    pub(super) bits: Vec<Bits>,
    pub(super) counters: Vec<Counter>,
    /// Cache lines of the bit fields.
    bit_lines: Vec<CacheLine>,
    /// Cache lines of the counters: 2 bytes each, so that the counters of a tree of 32 areas are one line.
    counter_lines: Vec<CacheLine>,
}

impl Areas {
    /// Areas without a free frame.
    pub(super) fn new(count: usize) -> Self {
        Self {
            bits: vec![Bits::default(); count],
            counters: vec![Counter::WHOLE; count],
            bit_lines: vec![CacheLine::default(); count],
            counter_lines: vec![CacheLine::default(); count.div_ceil(TREE_AREAS as usize)],
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.counters.len()).expect("an area has 512 frames, whose numbers have 32 bits")
    }

    /// Takes the first free run of a tree, from the row `from` of it on. Areas are tried in their order, from that of the row on
    /// and once around the tree.
    #[inline]
    pub(super) fn take_first(&mut self, cx: &mut Cx<'_>, from: u32, order: Order) -> Option<u32> {
        let first = from / (AREA / ROW);
        let tree = first / TREE_AREAS * TREE_AREAS;
        let end = self.count().min(tree + TREE_AREAS);
        if order >= Order::HUGE {
            return self.take_whole(cx, first, (tree, end), order);
        }
        let found = self.take_in(cx, first, from % (AREA / ROW), order);
        // Bound: the areas of a tree.
        found.or_else(|| (first + 1..end).chain(tree..first).find_map(|area| self.take_in(cx, area, 0, order)))
    }

    /// Takes the first free run of an area, from a row of it on.
    #[inline]
    fn take_in(&mut self, cx: &mut Cx<'_>, area: u32, row: u32, order: Order) -> Option<u32> {
        let counter = &mut self.counters[area as usize];
        if counter.free() < order.frames() {
            return None;
        }
        let at = self.bits[area as usize].take_first(row, order)?;
        counter.take(order);
        self.change(cx, area);
        Some(area * AREA + at)
    }

    /// Takes the first free area of a tree, or the first two that are a pair.
    fn take_whole(&mut self, cx: &mut Cx<'_>, first: u32, (tree, end): (u32, u32), order: Order) -> Option<u32> {
        let step = order.frames() / AREA;
        let first = first / step * step;
        let runs = (first..end).step_by(step as usize).chain((tree..first).step_by(step as usize));
        let found = runs.into_iter().find(|run| self.is_free(run * AREA, order))?;
        self.take(cx, found * AREA, order);
        Some(found * AREA)
    }

    /// Is every frame of a run free?
    pub(super) fn is_free(&self, at: u32, order: Order) -> bool {
        let area = (at / AREA) as usize;
        if order >= Order::HUGE {
            let run = self.counters.get(area..area + (order.frames() / AREA) as usize);
            return run.is_some_and(|run| run.iter().all(|counter| *counter == Counter::FREE));
        }
        self.counters.get(area).is_some_and(|counter| counter.free() >= order.frames())
            && self.bits[area].is(at % AREA, order, false)
    }

    /// Takes a run that is free.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, at: u32, order: Order) {
        if order >= Order::HUGE {
            for area in at / AREA..(at + order.frames()) / AREA {
                self.counters[area as usize] = Counter::WHOLE;
                primitive::change(&mut self.counter_lines[(area / TREE_AREAS) as usize], cx);
            }
            return;
        }
        self.bits[(at / AREA) as usize].set(at % AREA, order, true);
        self.counters[(at / AREA) as usize].take(order);
        self.change(cx, at / AREA);
    }

    /// Gives a run back. Part of an area that was allocated whole leaves the rest allocated, frame by frame.
    #[inline]
    pub(super) fn give(&mut self, cx: &mut Cx<'_>, at: u32, order: Order) {
        if order >= Order::HUGE {
            for area in at / AREA..(at + order.frames()) / AREA {
                self.give_whole(area);
                primitive::change(&mut self.counter_lines[(area / TREE_AREAS) as usize], cx);
            }
            return;
        }
        let area = at / AREA;
        self.give_part(at, order);
        self.change(cx, area);
    }

    fn give_whole(&mut self, area: u32) {
        let counter = &mut self.counters[area as usize];
        assert!(counter.free() == 0, "area {area} is freed whole, but has {} free frames", counter.free());
        if !counter.is_whole() {
            self.bits[area as usize] = Bits::default();
        }
        *counter = Counter::FREE;
    }

    #[inline]
    fn give_part(&mut self, at: u32, order: Order) {
        let (bits, counter) = (&mut self.bits[(at / AREA) as usize], &mut self.counters[(at / AREA) as usize]);
        if counter.is_whole() {
            *bits = Bits::TAKEN;
            *counter = Counter::default();
        }
        assert!(bits.is(at % AREA, order, true), "a run of order {order} at {at} is freed, but part of it is free");
        bits.set(at % AREA, order, false);
        counter.add(order);
    }

    /// Gives a run back while the kernel boots.
    pub(super) fn release(&mut self, at: u32, order: Order) {
        if order < Order::HUGE {
            return self.give_part(at, order);
        }
        for area in at / AREA..(at + order.frames()) / AREA {
            self.give_whole(area);
        }
    }

    #[inline]
    fn change(&mut self, cx: &mut Cx<'_>, area: u32) {
        primitive::change(&mut self.bit_lines[area as usize], cx);
        primitive::change(&mut self.counter_lines[(area / TREE_AREAS) as usize], cx);
    }

    /// Free frames of a range of areas.
    pub(super) fn free_of(&self, areas: std::ops::Range<u32>) -> u32 {
        self.counters[areas.start as usize..areas.end as usize].iter().map(|counter| counter.free()).sum()
    }

    /// Goes through the largest aligned runs of free frames, up to `max`, in their order.
    pub(super) fn visit_free(&self, max: Order, mut visit: impl FnMut(Block)) {
        let (mut at, end) = (0, self.count() * AREA);
        // Bound: each turn passes a frame at least.
        while at < end {
            let area = (at / AREA) as usize;
            if self.counters[area].free() == 0 {
                at = (at / AREA + 1) * AREA;
            } else if !self.is_free(at, Order::BASE) {
                at += 1;
            } else {
                let aligned = |order: &Order| at.is_multiple_of(order.frames());
                let orders = (1..=max.0).map(Order).take_while(aligned);
                let order = orders.take_while(|order| self.is_free(at, *order)).last().unwrap_or(Order::BASE);
                visit(Block { pfn: Pfn(at), order });
                at += order.frames();
            }
        }
    }
}
