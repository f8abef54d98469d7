//! Linux: mm/page_alloc.c (v3.10, v4.1, v4.12 to v6.1).
//! Differs: no CMA; page grouping is always on; the zone raises its watermarks when the allocation is over (`zone_state.rs`).

use rules::{
    gfp::STALL_ORDER,
    variant::{FallbackRules, LastResort, ListEnd, Variant, WatermarkBoost},
};
use units::{ExtfragKind, Order, Pfn};

use crate::{
    buddy::{Block, Buddy},
    cx::Cx,
    event::Event,
    frame::{Frame, FrameFlag, FrameTable, moves::MoveReason},
    pageblock::MigrateType,
    tally::{Place, Test},
};

/// A free block was taken from another type's list: the tracepoint `mm_page_alloc_extfrag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extfrag {
    /// The free block that was taken.
    pub pfn: Pfn,
    /// The order of the request.
    pub alloc_order: Order,
    /// The order of the block.
    pub fallback_order: Order,
    /// The type of the request.
    pub alloc_type: MigrateType,
    /// The type of the list that the block was on.
    pub fallback_type: MigrateType,
    /// The block is smaller than a pageblock: its pageblock now holds frames of both types, or did.
    pub fragmenting: bool,
    /// The pageblock has changed to the type of the request.
    pub change_ownership: bool,
}

impl Extfrag {
    /// The fields of the event that are counted.
    ///
    /// # Panics
    /// When a type is not one that requests ask for.
    pub fn kind(&self) -> ExtfragKind {
        let [alloc_type, fallback_type] = [self.alloc_type, self.fallback_type]
            .map(|list| list.mobility().expect("requests fall back to each other's types only"));
        ExtfragKind {
            alloc_type,
            fallback_type,
            alloc_order: self.alloc_order,
            fallback_order: self.fallback_order,
            change_ownership: self.change_ownership,
        }
    }
}

/// How much of a pageblock a request may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steal {
    /// All of it: the free block spans at least a pageblock, whose type changes.
    FreeBlocks,
    /// All of it: the pageblock changes type, and its free frames change lists.
    WholeBlock,
    /// The pageblock's free frames change lists; the pageblock keeps its type.
    FreeFrames,
    /// Only the block that was found.
    FoundOnly,
}

/// Frames of a pageblock, by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCensus {
    /// On free lists.
    pub free: u32,
    /// Frames on LRU lists, which can be migrated. Frames in a CPU's batch of new folios or isolated from their list do not
    /// count.
    pub movable: u32,
    /// All frames of a pageblock.
    pub size: u32,
}

/// A request to the free lists of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The order of the block.
    pub order: Order,
    /// The type of the free lists to take it from.
    pub list: MigrateType,
    /// Take no block smaller than a pageblock from other types (`ALLOC_NOFRAGMENT`).
    pub whole_blocks_only: bool,
    /// Take no small block from other types, but raise the marks as if one were taken (`ALLOC_FRAGMENT_STALL`).
    pub stalls: bool,
    /// Wake kswapd if a pageblock is broken up for the request (`ALLOC_KSWAPD`).
    pub wakes_kswapd: bool,
}

/// The types whose blocks a request of type `from` takes if it finds none of its own, in this order (`fallbacks`).
pub const fn fallbacks(from: MigrateType) -> [MigrateType; 2] {
    use MigrateType::{Movable, Reclaimable, Unmovable};
    match from {
        Movable => [Reclaimable, Unmovable],
        Reclaimable => [Unmovable, Movable],
        _ => [Reclaimable, Movable],
    }
}

/// Whether a request of type `from` may take more of the pageblock than the block of order `found`; `can_steal_fallback`.
pub fn can_steal(rules: FallbackRules, found: Order, from: MigrateType, pageblock: Order) -> bool {
    let is_large = found.0 >= pageblock.0 / 2;
    match rules {
        FallbackRules::ReclaimableSteals => is_large || from == MigrateType::Reclaimable,
        FallbackRules::KernelSteals | FallbackRules::CountsAlike => is_large || from != MigrateType::Movable,
    }
}

/// How much of a pageblock of type `block` a request of type `from` takes over, if it [may](can_steal) take more than the block
/// it found, which is smaller than the pageblock; `steal_suitable_fallback`.
pub fn may_steal(rules: FallbackRules, from: MigrateType, block: MigrateType, census: BlockCensus) -> Steal {
    let alike = match (rules, from, block) {
        (FallbackRules::ReclaimableSteals | FallbackRules::KernelSteals, ..) => 0,
        (_, MigrateType::Movable, _) => census.movable,
        (_, _, MigrateType::Movable) => census.size - (census.free + census.movable),
        _ => 0,
    };
    match census.free {
        0 => Steal::FoundOnly,
        free if free + alike >= census.size / 2 => Steal::WholeBlock,
        _ => Steal::FreeFrames,
    }
}

/// A free block of another type.
#[derive(Clone, Copy, Debug)]
struct Found {
    block: Block,
    list: MigrateType,
}

impl Buddy {
    /// Takes a block of the request's type, or else of another; also returns the list that the block returns to if it stays
    /// unused; `__rmqueue`. `end` is one past the last frame of the zone.
    pub(crate) fn take_or_fall_back(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        want: Want,
        end: Pfn,
        rules: &Variant,
    ) -> Option<(Pfn, MigrateType)> {
        let found = self
            .take_smallest(frames, cx, want.order, want.list)
            .or_else(|| self.fall_back(frames, cx, want, end, rules));
        if let Some(pfn) = found {
            return Some((pfn, want.list));
        }
        let back_to = match rules.last_resort {
            LastResort::ReserveMisplaced => want.list,
            LastResort::Reserve => MigrateType::Reserve,
            LastResort::Nothing => return None,
        };
        Some((self.take_smallest(frames, cx, want.order, MigrateType::Reserve)?, back_to))
    }

    /// Takes a block from another type's lists; `__rmqueue_fallback`.
    fn fall_back(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        want: Want,
        end: Pfn,
        rules: &Variant,
    ) -> Option<Pfn> {
        let found = self.find_fallback(want, frames.blocks.order(), rules.fallback)?;
        let is_reserved = frames.blocks.migrate_type(found.block.pfn) == MigrateType::HighAtomic;
        let breaks_up = found.block.order < frames.blocks.order() && !is_reserved;
        self.broken_up += u32::from(breaks_up);
        if rules.watermark_boost != WatermarkBoost::None {
            cx.test(Test::BoostBreaks, Place::Machine, breaks_up);
        }
        if want.stalls && breaks_up && found.block.order < STALL_ORDER {
            return None;
        }
        let steal = verdict(frames, found.block, want.list, end, rules.fallback);
        self.steal(frames, cx, found.block, want.list, (steal, rules.moved_end));
        let pfn = match rules.fallback {
            // The whole rest of the split block goes to the lists of the request's type, whether the pageblock is taken over or
            // not.
            FallbackRules::ReclaimableSteals | FallbackRules::KernelSteals => {
                self.take(frames, cx, found.block, want.order, want.list);
                found.block.pfn
            }
            FallbackRules::CountsAlike => {
                let taken = self.take_smallest(frames, cx, want.order, want.list);
                taken.expect("what was found is on the list of the type wanted now")
            }
        };
        self.record(frames, cx, found, want);
        Some(pfn)
    }

    /// The block to fall back to: the first of the largest order; the smallest for a movable request that may not take over the
    /// pageblock.
    fn find_fallback(&self, want: Want, pageblock: Order, rules: FallbackRules) -> Option<Found> {
        let least = if want.whole_blocks_only { want.order.max(pageblock) } else { want.order };
        let largest = (least.0..=self.max_order().0).rev().find_map(|o| self.first_fallback(Order(o), want.list))?;
        let prefers_smallest = rules == FallbackRules::CountsAlike
            && want.list == MigrateType::Movable
            && !can_steal(rules, largest.block.order, want.list, pageblock);
        if prefers_smallest {
            (want.order.0..=self.max_order().0).find_map(|o| self.first_fallback(Order(o), want.list))
        } else {
            Some(largest)
        }
    }

    /// The first free block of `order` of the types that `from` falls back to; `find_suitable_fallback`.
    fn first_fallback(&self, order: Order, from: MigrateType) -> Option<Found> {
        fallbacks(from).into_iter().find_map(|list| {
            let pfn = self.area(order).list(list).first()?;
            Some(Found { block: Block { pfn, order }, list })
        })
    }

    /// Could a request take more than it needs from the first block of `order` that is of another type
    /// (`find_suitable_fallback` with `only_stealable`)?
    pub fn may_steal_from(&self, order: Order, from: MigrateType, pageblock: Order, rules: FallbackRules) -> bool {
        self.first_fallback(order, from).is_some() && can_steal(rules, order, from, pageblock)
    }

    /// Moves the block that was found, and as much of its pageblock as `Steal` says, to one end of the lists of type `from`.
    fn steal(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        found: Block,
        from: MigrateType,
        (steal, end): (Steal, ListEnd),
    ) {
        match steal {
            Steal::FreeBlocks => {
                for start in (0..found.order.frames()).step_by(frames.blocks.order().frames() as usize) {
                    frames.blocks.set_migrate_type(found.pfn.plus(start), from);
                }
                self.move_to(frames, cx, found, from, end);
            }
            Steal::WholeBlock => {
                frames.blocks.set_migrate_type(found.pfn, from);
                self.move_free_frames(frames, cx, found.pfn, from, end);
            }
            Steal::FreeFrames => self.move_free_frames(frames, cx, found.pfn, from, end),
            Steal::FoundOnly => self.move_to(frames, cx, found, from, end),
        }
    }

    /// Moves every free block of a pageblock to the lists of type `to`; `move_freepages_block`.
    pub(crate) fn move_free_frames(
        &mut self,
        frames: &mut FrameTable,
        cx: &mut Cx<'_>,
        pfn: Pfn,
        to: MigrateType,
        end: ListEnd,
    ) {
        let start = pfn.align_down(frames.blocks.order());
        let mut at = 0;
        while at < frames.blocks.order().frames() {
            let head = start.plus(at);
            let frame = frames.get(head);
            let order = frames.order_of(frame);
            if matches!(frame, Frame::Free { .. }) {
                self.move_to(frames, cx, Block { pfn: head, order }, to, end);
            }
            at += order.frames();
        }
    }

    fn record(&mut self, frames: &mut FrameTable, cx: &mut Cx<'_>, found: Found, want: Want) {
        let event = Extfrag {
            pfn: found.block.pfn,
            alloc_order: want.order,
            fallback_order: found.block.order,
            alloc_type: want.list,
            fallback_type: found.list,
            fragmenting: found.block.order < frames.blocks.order(),
            change_ownership: frames.blocks.migrate_type(found.block.pfn) == want.list,
        };
        cx.count(Event::SimExtfrag, 1);
        cx.count(Event::SimExtfragFragmenting, u64::from(event.fragmenting));
        cx.count_extfrag(event.kind());
        let reason = MoveReason::Fallback { request: want.list, list: found.list, takes_over: event.change_ownership };
        frames.note_taken(cx.control(), reason, found.block.pfn, found.block.order);
        if let Some(trace) = &mut self.trace {
            trace.push(event);
        }
    }
}

/// How much a request of type `from` takes over around the block that it found.
fn verdict(frames: &FrameTable, found: Block, from: MigrateType, end: Pfn, rules: FallbackRules) -> Steal {
    let owner = frames.blocks.migrate_type(found.pfn);
    if owner == MigrateType::HighAtomic {
        Steal::FoundOnly
    } else if found.order >= frames.blocks.order() {
        Steal::FreeBlocks
    } else if can_steal(rules, found.order, from, frames.blocks.order()) {
        may_steal(rules, from, owner, census(frames, found.pfn, end))
    } else {
        Steal::FoundOnly
    }
}

/// Counts the frames of a pageblock. A pageblock that reaches beyond its zone counts as if it had none. Frames on an LRU list
/// count as movable, of files as well as of processes (`PageLRU` in move_freepages, mm/page_alloc.c, v4.12 to v6.1); no driver
/// here has movable pages of its own.
fn census(frames: &FrameTable, pfn: Pfn, end: Pfn) -> BlockCensus {
    let size = frames.blocks.order().frames();
    let start = pfn.align_down(frames.blocks.order());
    let mut census = BlockCensus { size, ..BlockCensus::default() };
    if start.0 + size > end.0 {
        return census;
    }
    let mut at = 0;
    while at < size {
        let head = start.plus(at);
        let frame = frames.get(head);
        let count = frames.order_of(frame).frames();
        match frame {
            Frame::Free { .. } => census.free += count,
            _ if frames.has(head, FrameFlag::OnLru) => census.movable += count,
            _ => {}
        }
        at += count;
    }
    census
}

#[cfg(test)]
mod tests;
